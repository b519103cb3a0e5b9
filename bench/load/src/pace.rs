//! When the next request is due, where they come at a given rate and not as fast as they are
//! answered.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// A rate below it is none.
const RATE_MIN: f64 = 0.01;

/// Requests at a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Duration,
    due: Instant,
}

impl Pace {
    /// `rate` requests in a second, the first at `from`.
    pub(crate) fn new(rate: f64, from: Instant) -> anyhow::Result<Self> {
        ensure!(rate >= RATE_MIN, "no rate: {rate}");
        Ok(Self {
            interval: Duration::from_secs_f64(1.0 / rate),
            due: from,
        })
    }

    /// When the next is due.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// When the one was due that is sent now, if it was: who is late sends them all.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due;
        (due <= now).then(|| {
            self.due += self.interval;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever comes late finds all that were due meanwhile, each with its own time.
    #[test]
    fn what_was_due_is_not_lost() {
        let begun = Instant::now();
        let mut pace = Pace::new(100.0, begun).unwrap();
        let ten = Duration::from_millis(10);
        assert_eq!(pace.take(begun), Some(begun));
        assert_eq!(pace.take(begun), None);
        let late = begun + 2 * ten;
        assert_eq!(pace.take(late), Some(begun + ten));
        assert_eq!(pace.take(late), Some(late));
        assert_eq!(pace.take(late), None);
        assert_eq!(pace.due(), begun + 3 * ten);
        assert!(Pace::new(0.0, begun).is_err());
    }
}
