//! What delivery of ours tells while it is measured: its figures, looked at from time to
//! time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use crossdock_metrics::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::admin::{self, ADMIN};
use crate::rig::network::Network;

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
    delivery: Value,
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
            Err(error) => eprintln!("    it tells nothing: {error:#}"),
        }
    }
    watched
}

impl Look {
    fn now() -> Result<Self> {
        let at = clock_gettime(ClockId::Monotonic);
        let at = Duration::try_from(at).unwrap_or_default();
        let answer = admin::get(ADMIN, "/v1/figures", PATIENCE)?;
        let (_, text) = answer.split_once("\r\n\r\n").context("no HTTP")?;
        let figures: Value = serde_json::from_str(text)?;
        Ok(Self {
            at_ns: u64::try_from(at.as_nanos())?,
            delivery: figures["http"].clone(),
        })
    }

    fn number(&self, name: &str) -> Result<f64> {
        let number = self.delivery[name].as_f64();
        number.with_context(|| format!("it tells no {name}"))
    }

    /// One that is told by the buckets that are not empty.
    fn histogram(&self, name: &str) -> Result<Histogram> {
        let buckets = self.delivery[name]["buckets"].as_array();
        let buckets = buckets.with_context(|| format!("it tells no {name}"))?;
        let buckets = buckets.iter().map(|bucket| {
            let part = |place: usize| bucket[place].as_u64().context("no bucket");
            Ok((usize::try_from(part(0)?)?, part(1)?))
        });
        let sum = self.delivery[name]["sum"].as_u64().context("no sum")?;
        let buckets = buckets.collect::<Result<Vec<_>>>()?;
        Ok(Histogram::from_buckets(buckets, sum))
    }
}

impl Watched {
    /// What a counter has grown between two times, as far as it was looked at.
    pub(super) fn grown(&self, name: &str, from_ns: u64, to_ns: u64) -> Result<f64> {
        let (first, last) = self.ends(from_ns, to_ns)?;
        Ok(last.number(name)? - first.number(name)?)
    }

    /// The middle one of what a gauge has been between two times.
    pub(super) fn median(&self, name: &str, from_ns: u64, to_ns: u64) -> Result<f64> {
        let looks = self.looks.iter();
        let looks = looks.filter(|it| (from_ns..=to_ns).contains(&it.at_ns));
        let values = looks.map(|it| it.number(name));
        let mut values = values.collect::<Result<Vec<f64>>>()?;
        values.sort_by(f64::total_cmp);
        let middle = values.get(values.len() / 2);
        middle.copied().context("it was not looked at")
    }

    /// At most so great were a `part` of what a histogram has counted between two times.
    pub(super) fn quantile(&self, name: &str, part: f64, from_ns: u64, to_ns: u64) -> Result<f64> {
        let (first, last) = self.ends(from_ns, to_ns)?;
        let counted = last.histogram(name)?.since(&first.histogram(name)?);
        let quantile = counted.quantile(part);
        quantile.with_context(|| format!("{name} has counted nothing"))
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
    use serde_json::json;

    use super::*;

    fn look(at_ns: u64, count: u64, now: f64, values: &[u64]) -> Look {
        let mut histogram = Histogram::default();
        for &value in values {
            histogram.record(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        let times = json!({"buckets": buckets, "sum": histogram.sum()});
        Look {
            at_ns,
            delivery: json!({"count": count, "now": now, "times": times}),
        }
    }

    fn watched() -> Watched {
        Watched {
            looks: vec![
                look(10, 3, 1.0, &[1000]),
                look(20, 5, 7.0, &[1000]),
                look(30, 9, 2.0, &[1000, 3, 3, 3]),
                look(40, 9, 3.0, &[1000, 3, 3, 3]),
            ],
        }
    }

    /// Goal: a counter is what it has grown in the time that is asked for, not since the
    /// server began; what nobody has looked at is not taken for nothing.
    #[test]
    fn counters_are_of_their_time() {
        let watched = watched();
        assert_eq!(watched.grown("count", 15, 35).unwrap(), 6.0);
        assert!(watched.grown("count", 5, 35).is_err());
        assert!(watched.grown("other", 15, 35).is_err());
        assert_eq!(watched.median("now", 15, 40).unwrap(), 3.0);
    }

    /// Goal: quantiles are those of what was counted in that time.
    #[test]
    fn quantiles_are_of_their_time() {
        let watched = watched();
        let found = watched.quantile("times", 0.99, 20, 40).unwrap();
        assert!((3.0..=4.0).contains(&found), "{found}");
        assert!(watched.quantile("times", 0.5, 30, 40).is_err());
    }
}
