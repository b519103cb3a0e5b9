//! When a slow connection is sent to next.
//!
//! A send that waits for all to be taken wakes the thread each time that acknowledgements
//! have made room: with hundreds of slow connections some thousand times a second, for a
//! few KiB each. Their sends do not wait: when one has found the socket full the next one
//! comes when a third of what it holds should have gone, about as the kernel does it, but
//! by the rate seen so far, and at a tick, together with those of all others. So the
//! thread sleeps in between however many there are.

use std::time::Duration;

use crossdock_limits::TIMER_TICK_MILLIS;
use crossdock_ring::SendWait;
use crossdock_types::Time;

const TICK: Duration = Duration::from_millis(TIMER_TICK_MILLIS);
/// What comes sooner is waited for.
const REST_MIN: Duration = Duration::from_millis(2 * TIMER_TICK_MILLIS);
/// Who takes more than this, in bytes per second, is not slow: it is served in large pieces,
/// and there cannot be hundreds of them.
const RATE_MAX: u64 = 8 << 20;
/// For so long, at most, a client goes without bytes that has become faster.
const REST_MAX: Duration = Duration::from_millis(250);

/// The pace of one connection's sends.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the send in flight has begun.
    began: Time,
    slow: Option<Slow>,
}

/// What is known of a connection that is slow.
#[derive(Debug)]
struct Slow {
    /// What the peer takes, in bytes per second.
    rate: u64,
    /// When the socket was full last, what it held then, and what it has taken since.
    full: Time,
    held_bytes: u64,
    taken_bytes: u64,
    /// The end of the last rest, if there was one.
    until: Option<Time>,
}

impl Pace {
    /// A send begins: for what is it to wait?
    pub(crate) const fn begin(&mut self, now: Time) -> SendWait {
        self.began = now;
        match self.slow {
            Some(_) => SendWait::Nothing,
            None => SendWait::All,
        }
    }

    /// Until when nothing is sent.
    pub(crate) fn rests_until(&self, now: Time) -> Option<Time> {
        let slow = self.slow.as_ref()?;
        slow.until.filter(|&until| until > now)
    }

    /// The send has ended: the socket has taken so many bytes, and has no room for more
    /// unless that was all. `held_bytes` tells how many it holds, sent or not, that the
    /// peer has not acknowledged.
    pub(crate) fn end(
        &mut self,
        now: Time,
        bytes: usize,
        is_all: bool,
        held_bytes: impl FnOnce() -> u64,
    ) {
        let bytes = bytes as u64;
        match &mut self.slow {
            Some(slow) => {
                slow.taken_bytes += bytes;
                if !is_all && !slow.found_full(now, held_bytes) {
                    self.slow = None;
                }
            }
            None => {
                let elapsed = now.since(self.began);
                if elapsed >= REST_MIN {
                    let slow = Slow {
                        rate: rate(bytes, elapsed),
                        full: now,
                        held_bytes: held_bytes(),
                        taken_bytes: 0,
                        until: None,
                    };
                    self.slow = slow.is_slow().then_some(slow);
                }
            }
        }
    }
}

impl Slow {
    /// Plans the next rest; false if it is no good: the peer takes nothing any more, or as
    /// much as it is better to wait for.
    fn found_full(&mut self, now: Time, held_bytes: impl FnOnce() -> u64) -> bool {
        let elapsed = now.since(self.full);
        let longest = match (self.until.is_some(), self.taken_bytes) {
            // That it is slow may have been our own doing: a busy thread hears late of a
            // send. The first rest is short, and tells.
            (false, _) => REST_MIN,
            (true, 0) if elapsed >= REST_MAX => return false,
            // It takes lumps: the next one may be on its way.
            (true, 0) => REST_MAX,
            // All but a sixth has gone: it may have been without bytes.
            (true, taken) if taken > self.held_bytes / 6 * 5 => return false,
            (true, taken) => {
                self.rate = self.rate.midpoint(rate(taken, elapsed));
                REST_MAX
            }
        };
        if self.until.is_none() || self.taken_bytes > 0 {
            self.full = now;
            self.held_bytes = held_bytes();
            self.taken_bytes = 0;
        }
        self.until = Some((now + self.rest().min(longest)).round_up(TICK));
        self.is_slow()
    }

    fn is_slow(&self) -> bool {
        self.rate <= RATE_MAX && self.rest() >= REST_MIN
    }

    /// For how long a third of what the socket holds lasts.
    fn rest(&self) -> Duration {
        Duration::from_millis((self.held_bytes / 3).saturating_mul(1000) / self.rate.max(1))
    }
}

/// In bytes per second.
fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    bytes.saturating_mul(1_000_000) / micros.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: u64 = 120_000;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    /// A try that ends at once.
    fn attempt(pace: &mut Pace, now: Time, taken: usize, is_all: bool) {
        assert_eq!(pace.begin(now), SendWait::Nothing);
        pace.end(now, taken, is_all, || HELD);
    }

    /// A connection that has taken a megabyte in a second, up to 1000 ms, and was found
    /// full at 1020.
    fn slow() -> Pace {
        let mut pace = Pace::default();
        assert_eq!(pace.begin(at(0)), SendWait::All);
        pace.end(at(1000), 1_000_000, true, || HELD);
        attempt(&mut pace, at(1000), 5_000, false);
        assert_eq!(
            pace.rests_until(at(1000)),
            Some(at(1020)),
            "the first is short"
        );
        attempt(&mut pace, at(1020), 20_000, false);
        pace
    }

    /// Goal: a send that is taken at once, or by a fast peer, changes nothing.
    #[test]
    fn who_is_fast_is_waited_for() {
        let mut pace = Pace::default();
        let sends = [
            (1, 1 << 20, HELD),
            (100, 1 << 20, HELD),
            (50, 1 << 20, 8 << 20),
        ];
        for (millis, bytes, held) in sends {
            assert_eq!(pace.begin(at(0)), SendWait::All);
            pace.end(at(millis), bytes, true, || held);
        }
        assert_eq!(pace.begin(at(200)), SendWait::All);
        assert_eq!(pace.rests_until(at(200)), None);
    }

    /// Goal: a slow one is tried, and after it was found full again when a third of what
    /// it holds has gone, at a tick.
    #[test]
    fn who_is_slow_is_tried_at_ticks() {
        let mut pace = slow();
        assert_eq!(pace.rests_until(at(1020)), Some(at(1060)));
        assert_eq!(pace.rests_until(at(1060)), None);
        attempt(&mut pace, at(1063), 20_000, true);
        // It has taken all: there may be room for more, so there is no rest.
        assert_eq!(pace.rests_until(at(1063)), None);
        attempt(&mut pace, at(1063), 15_000, false);
        let seen = (1_000_000 + 35_000_000 / 43) / 2;
        let rest = Duration::from_millis(40_000_000 / seen);
        let until = (at(1063) + rest).round_up(TICK);
        assert_eq!(pace.rests_until(at(1063)), Some(until));
    }

    /// Goal: a peer that takes lumps keeps its pace, one that takes nothing any more is
    /// waited for.
    #[test]
    fn who_takes_nothing_is_waited_for() {
        let mut pace = slow();
        let lumps = [0, 80_000, 0, 0, 0, 0, 0, 0];
        for (now, taken) in (1060..).step_by(40).zip(lumps) {
            attempt(&mut pace, at(now), taken, false);
            assert_eq!(pace.rests_until(at(now)), Some(at(now + 40)), "at {now}");
        }
        let late = at(1060 + 8 * 40);
        attempt(&mut pace, late, 0, false);
        assert_eq!(pace.begin(late), SendWait::All);
        assert_eq!(pace.rests_until(late), None);
    }

    /// Goal: one that has become fast, so that its bytes have run out, is waited for at
    /// once; also where it was never slow, but the thread too busy to hear of a send.
    #[test]
    fn who_becomes_fast_is_waited_for() {
        let mut pace = slow();
        attempt(&mut pace, at(1060), 101_000, false);
        assert_eq!(pace.begin(at(1060)), SendWait::All);

        let mut pace = Pace::default();
        pace.begin(at(0));
        pace.end(at(100), 100_000, true, || 100_000);
        attempt(&mut pace, at(100), 900_000, false);
        assert_eq!(pace.rests_until(at(100)), Some(at(120)));
        attempt(&mut pace, at(120), 1 << 20, true);
        attempt(&mut pace, at(120), 500_000, false);
        assert_eq!(pace.begin(at(120)), SendWait::All);
        assert_eq!(pace.rests_until(at(120)), None);
    }

    /// Goal: no rest is longer than its bound, however slow the peer is.
    #[test]
    fn rests_are_bounded() {
        let mut pace = Pace::default();
        pace.begin(at(0));
        pace.end(at(10_000), 10_000, true, || HELD);
        attempt(&mut pace, at(10_000), 1, false);
        attempt(&mut pace, at(10_020), 1, false);
        assert_eq!(pace.rests_until(at(10_020)), Some(at(10_270)));
    }
}
