//! Looking for completions before going to sleep: what comes within some microseconds is
//! there sooner than a sleeping processor wakes up.

use std::time::Duration;

/// How long that is done: up to a bound, as long as waits end within it. A longer one ends it
/// until there is a short one again, so that who has little to do sleeps.
#[derive(Debug, Default)]
pub(crate) struct IdlePoll {
    most: Duration,
    is_worth_it: bool,
}

impl IdlePoll {
    /// For `most` at a time; zero: never.
    pub(crate) const fn new(most: Duration) -> Self {
        Self {
            most,
            is_worth_it: false,
        }
    }

    /// Whether waits have to be measured.
    pub(crate) const fn is_on(&self) -> bool {
        !self.most.is_zero()
    }

    /// How long to look before the next sleep.
    pub(crate) const fn time(&self) -> Duration {
        if self.is_worth_it {
            self.most
        } else {
            Duration::ZERO
        }
    }

    /// A wait has ended, with all looking and sleeping.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.is_worth_it = time < self.most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only who was woken soon looks before the next sleep.
    #[test]
    fn long_waits_are_slept() {
        let (short, long) = (Duration::from_micros(40), Duration::from_micros(60));
        let mut poll = IdlePoll::new(Duration::from_micros(50));
        assert_eq!(poll.time(), Duration::ZERO);
        poll.waited(short);
        assert_eq!(poll.time(), Duration::from_micros(50));
        poll.waited(short);
        assert_eq!(poll.time(), Duration::from_micros(50));
        poll.waited(long);
        assert_eq!(poll.time(), Duration::ZERO);
        assert!(!IdlePoll::default().is_on());
    }
}
