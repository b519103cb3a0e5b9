//! The last ten minutes, second by second: what the console draws before it has
//! watched for long.

use std::collections::{BTreeMap, VecDeque};

use crossdock_metrics::Histogram;
use serde::{Deserialize, Serialize};

use crate::snapshot::{Client, Snapshot};

/// Points that are kept.
pub const HISTORY_MAX: usize = 600;

/// What happened between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// How long it was.
    pub seconds: f64,
    /// Requests a second by procedure.
    pub requests: BTreeMap<String, f64>,
    /// Bytes a second read from files.
    pub read_bytes: f64,
    /// Bytes a second written to files.
    pub written_bytes: f64,
    /// Half of the requests took less, in seconds; not there if there were none.
    pub p50: Option<f64>,
    /// 99 of 100 requests took less.
    pub p99: Option<f64>,
    /// Seconds of CPU a second.
    pub cpu: f64,
    /// Requests in progress at the end.
    pub calls: u64,
    /// Connections at the end.
    pub connections: u64,
    /// Bytes in use on all nodes at the end.
    pub used_bytes: u64,
}

/// A bounded history.
#[derive(Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
    last: Option<Snapshot>,
}

impl History {
    /// Takes the next snapshot.
    pub(crate) fn push(&mut self, snapshot: Snapshot) {
        if let Some(last) = &self.last
            && snapshot.at > last.at
        {
            if self.points.len() == HISTORY_MAX {
                self.points.pop_front();
            }
            self.points.push_back(point(last, &snapshot));
        }
        self.last = Some(snapshot);
    }

    /// The points that end after `at`, oldest first.
    pub(crate) fn after(&self, at: f64) -> Vec<Point> {
        let points = self.points.iter().filter(|point| point.at > at);
        points.cloned().collect()
    }
}

/// What happened between two snapshots of one process.
#[must_use]
pub fn point(earlier: &Snapshot, later: &Snapshot) -> Point {
    let seconds = (later.at - earlier.at).max(f64::MIN_POSITIVE);
    let per_second = |count: u64| count as f64 / seconds;
    let mut latency = Histogram::default();
    let mut requests = BTreeMap::new();
    for procedure in &later.procedures {
        let before = earlier.procedures.iter();
        let mut before = before
            .filter(|other| other.program == procedure.program && other.name == procedure.name);
        let since = match before.next() {
            Some(before) => procedure.latency.since(&before.latency),
            None => procedure.latency.clone(),
        };
        if since.count() > 0 {
            latency.add(&since);
            *requests.entry(procedure.name.clone()).or_default() += per_second(since.count());
        }
    }
    let (read, written) = moved(later);
    let (read_before, written_before) = moved(earlier);
    let in_seconds = |micros: f64| micros / 1e6;
    let cpu = later.process.cpu_seconds - earlier.process.cpu_seconds;
    Point {
        at: later.at,
        seconds,
        requests,
        read_bytes: per_second(read.saturating_sub(read_before)),
        written_bytes: per_second(written.saturating_sub(written_before)),
        p50: latency.quantile(0.5).map(in_seconds),
        p99: latency.quantile(0.99).map(in_seconds),
        cpu: cpu.max(0.0) / seconds,
        calls: later.door.calls,
        connections: later.door.connections,
        used_bytes: later.nodes.iter().map(|node| node.used_bytes).sum(),
    }
}

/// Bytes that all clients have read and written.
fn moved(snapshot: &Snapshot) -> (u64, u64) {
    let clients = snapshot
        .clients
        .iter()
        .map(|client: &Client| client.traffic);
    clients
        .chain([snapshot.other_clients])
        .fold((0, 0), |(read, written), traffic| {
            (read + traffic.read_bytes, written + traffic.written_bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Goal: a point says what happened in its time, and only that; the history
    /// is bounded and can be asked for what is new.
    #[test]
    fn points_are_differences_and_bounded() {
        let mut history = History::default();
        let mut snapshot = sample::snapshot();
        let start = snapshot.at;
        history.push(snapshot.clone());
        assert_eq!(history.after(0.0), [], "one snapshot says nothing of rates");
        for _ in 0..HISTORY_MAX + 5 {
            snapshot.at += 2.0;
            snapshot.procedures[0].latency.record(100);
            snapshot.procedures[0].latency.record(100);
            snapshot.clients[0].traffic.read_bytes += 4096;
            snapshot.process.cpu_seconds += 1.0;
            history.push(snapshot.clone());
        }
        let points = history.after(0.0);
        assert_eq!(points.len(), HISTORY_MAX);
        let last = points.last().expect("points");
        let name = snapshot.procedures[0].name.clone();
        assert_eq!(last.requests, BTreeMap::from([(name, 1.0)]));
        assert_eq!(
            (last.read_bytes, last.written_bytes, last.cpu),
            (2048.0, 0.0, 0.5)
        );
        let p99 = last.p99.expect("requests");
        assert!((96e-6..=112e-6).contains(&p99), "{p99}");
        let end = start + 2.0 * (HISTORY_MAX + 5) as f64;
        assert_eq!(last.at, end);
        assert_eq!(history.after(end - 4.0).len(), 2);
    }
}
