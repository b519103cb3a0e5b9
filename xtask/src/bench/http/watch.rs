//! What delivery of ours tells while it is measured: its metrics, looked at from time to
//! time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::rig::network::Network;

/// Where a server answers that was told nothing else.
const ADMIN: &str = "127.0.0.1:7070";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked.
const EVERY: Duration = Duration::from_millis(500);

/// What it has told.
#[derive(Default)]
pub(super) struct Watched {
    looks: Vec<Look>,
}

/// All of it at one time.
struct Look {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: u64,
    samples: BTreeMap<String, f64>,
}

/// Does `work` while the server in `network` is looked at.
pub(super) fn beside<T>(
    network: &Network,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Watched)> {
    thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let watching = scope.spawn(move || network.within(move || Ok(watch(&ended))));
        let done = work();
        drop(end);
        let watched = watching.join().ok().context("the watch has panicked")?;
        Ok((done?, watched?))
    })
}

/// Looks until the work has ended. One that does not answer may have been killed: the row
/// tells.
fn watch(ended: &Receiver<()>) -> Watched {
    let mut watched = Watched::default();
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        match Look::now() {
            Ok(look) => watched.looks.push(look),
            Err(error) => eprintln!("    no metrics: {error:#}"),
        }
    }
    watched
}

impl Look {
    fn now() -> Result<Self> {
        let at = clock_gettime(ClockId::Monotonic);
        let at = Duration::try_from(at).unwrap_or_default();
        let mut stream = TcpStream::connect(ADMIN)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Self::of(u64::try_from(at.as_nanos())?, &answer)
    }

    fn of(at_ns: u64, answer: &str) -> Result<Self> {
        let (_, text) = answer.split_once("\r\n\r\n").context("no HTTP")?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        let samples: BTreeMap<String, f64> = samples.collect();
        ensure!(!samples.is_empty(), "no metrics");
        Ok(Self { at_ns, samples })
    }

    fn value(&self, name: &str) -> Result<f64> {
        let value = self.samples.get(name).copied();
        value.with_context(|| format!("no metric {name}"))
    }
}

impl Watched {
    /// What a counter has grown between two times, as far as it was looked at.
    pub(super) fn grown(&self, name: &str, from_ns: u64, to_ns: u64) -> Result<f64> {
        let (first, last) = self.ends(from_ns, to_ns)?;
        Ok(last.value(name)? - first.value(name)?)
    }

    /// The middle one of what a gauge has been between two times.
    pub(super) fn median(&self, name: &str, from_ns: u64, to_ns: u64) -> Result<f64> {
        let looks = self.looks.iter();
        let looks = looks.filter(|it| (from_ns..=to_ns).contains(&it.at_ns));
        let mut values = looks
            .map(|it| it.value(name))
            .collect::<Result<Vec<f64>>>()?;
        values.sort_by(f64::total_cmp);
        values
            .get(values.len() / 2)
            .copied()
            .context("not looked at")
    }

    /// At most so great were a `part` of what a histogram has counted between two times:
    /// its buckets are powers of two, and values are taken to lie evenly in one.
    pub(super) fn quantile(&self, name: &str, part: f64, from_ns: u64, to_ns: u64) -> Result<f64> {
        let (first, last) = self.ends(from_ns, to_ns)?;
        let prefix = format!("{name}_bucket{{le=\"");
        let mut buckets = Vec::new();
        for (key, count) in last.samples.range(prefix.clone()..) {
            let Some(rest) = key.strip_prefix(&prefix) else {
                break;
            };
            let bound: f64 = match rest.trim_end_matches("\"}") {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().with_context(|| key.clone())?,
            };
            buckets.push((bound, count - first.samples.get(key).unwrap_or(&0.0)));
        }
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let all = buckets
            .last()
            .with_context(|| format!("no metric {name}"))?
            .1;
        ensure!(all > 0.0, "{name} has counted nothing");
        let wanted = part * all;
        let (mut below_bound, mut below) = (0.0, 0.0);
        for (bound, count) in buckets {
            if count >= wanted && count > below {
                let inside = (wanted - below) / (count - below);
                // What lies beyond the last bound is at least that.
                let width = if bound.is_finite() {
                    bound - below_bound
                } else {
                    0.0
                };
                return Ok(below_bound + inside * width);
            }
            (below_bound, below) = (bound, count);
        }
        Ok(below_bound)
    }

    /// The last look before the one time, and the last before the other.
    fn ends(&self, from_ns: u64, to_ns: u64) -> Result<(&Look, &Look)> {
        let last_before = |ns: u64| self.looks.iter().rev().find(|it| it.at_ns <= ns);
        let ends = last_before(from_ns).zip(last_before(to_ns));
        ends.context("it was not looked at")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ns: u64, count: u64, buckets: [u64; 3], now: f64) -> Look {
        let [one, two, all] = buckets;
        let text = format!(
            "HTTP/1.1 200 OK\r\n\r\n# HELP x\nx_total {count}\nnow {now}\n\
             t_bucket{{le=\"2\"}} {one}\nt_bucket{{le=\"16\"}} {two}\n\
             t_bucket{{le=\"+Inf\"}} {all}\nt_sum 5\n"
        );
        Look::of(at_ns, &text).unwrap()
    }

    fn watched() -> Watched {
        Watched {
            looks: vec![
                look(10, 3, [1, 1, 1], 1.0),
                look(20, 5, [1, 1, 1], 7.0),
                look(30, 9, [51, 101, 101], 2.0),
                look(40, 9, [51, 101, 201], 3.0),
            ],
        }
    }

    /// Goal: a counter is what it has grown in the time that is asked for, not since the
    /// server began.
    #[test]
    fn counters_are_of_their_time() {
        let watched = watched();
        assert_eq!(watched.grown("x_total", 15, 35).unwrap(), 6.0);
        assert!(watched.grown("x_total", 5, 35).is_err());
        assert!(watched.grown("y_total", 15, 35).is_err());
        assert_eq!(watched.median("now", 15, 40).unwrap(), 3.0);
    }

    /// Goal: quantiles are those of what was counted in that time; what lies beyond all
    /// bounds is not taken for little.
    #[test]
    fn quantiles_are_of_their_time() {
        let watched = watched();
        let at = |part, to| watched.quantile("t", part, 20, to).unwrap();
        assert_eq!(at(0.5, 30), 2.0);
        assert_eq!(at(0.75, 30), 9.0);
        assert_eq!(at(0.99, 40), 16.0);
        assert!(watched.quantile("t", 0.5, 30, 30).is_err());
    }
}
