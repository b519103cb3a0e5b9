//! When a slow connection is sent to next.
//!
//! A send that waits for all to be taken wakes the thread each time that acknowledgements
//! have made room: with hundreds of slow connections some thousand times a second, for a
//! few KiB each. Their sends do not wait: when one has found the socket full the next one
//! comes when a third of the socket's buffer should be free, as the kernel does it, but
//! by the rate seen so far, and at a tick, together with those of all others. So the
//! thread sleeps in between however many there are.

use std::time::Duration;

use crossdock_limits::TIMER_TICK_MILLIS;
use crossdock_ring::SendWait;
use crossdock_types::Time;

const TICK: Duration = Duration::from_millis(TIMER_TICK_MILLIS);
/// What comes sooner is waited for.
const REST_MIN: Duration = Duration::from_millis(2 * TIMER_TICK_MILLIS);
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
    /// A third of the socket's buffer, in bytes.
    third_bytes: u64,
    /// When the socket was full last, and what it has taken since.
    full: Time,
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
    /// unless that was all. `buffer_bytes` tells the size of its buffer.
    pub(crate) fn end(
        &mut self,
        now: Time,
        bytes: usize,
        is_all: bool,
        buffer_bytes: impl FnOnce() -> usize,
    ) {
        let bytes = bytes as u64;
        match &mut self.slow {
            Some(slow) => {
                slow.taken_bytes += bytes;
                if !is_all && !slow.found_full(now) {
                    self.slow = None;
                }
            }
            None => {
                let elapsed = now.since(self.began);
                if elapsed >= REST_MIN {
                    let third_bytes = buffer_bytes() as u64 / 3;
                    let slow = Slow {
                        rate: rate(bytes, elapsed),
                        third_bytes,
                        full: now,
                        taken_bytes: 0,
                        until: None,
                    };
                    self.slow = (slow.rest() >= REST_MIN).then_some(slow);
                }
            }
        }
    }
}

impl Slow {
    /// Plans the next rest; false if it is no good: the peer takes nothing any more, or as
    /// much as it is better to wait for.
    fn found_full(&mut self, now: Time) -> bool {
        let elapsed = now.since(self.full);
        match (self.until.is_some(), self.taken_bytes) {
            (true, 0) if elapsed >= REST_MAX => return false,
            // It takes lumps: the next one may be on its way.
            (true, 0) => {}
            (has_rested, taken) => {
                if has_rested {
                    self.learn(rate(taken, elapsed));
                }
                self.full = now;
                self.taken_bytes = 0;
            }
        }
        let rest = self.rest();
        self.until = Some((now + rest.min(REST_MAX)).round_up(TICK));
        rest >= REST_MIN
    }

    /// By a buffer that may have run dry the rate is too small, but still so large that the
    /// next rest is at most half of this one.
    fn learn(&mut self, seen: u64) {
        self.rate = match self.taken_bytes > 2 * self.third_bytes {
            true => seen.max(self.rate),
            false => seen.midpoint(self.rate),
        };
    }

    /// For how long a third of the buffer lasts.
    fn rest(&self) -> Duration {
        Duration::from_millis(self.third_bytes.saturating_mul(1000) / self.rate.max(1))
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

    const BUFFER: usize = 120_000;
    const MS: u64 = 1_000_000;

    fn at(millis: u64) -> Time {
        Time(millis * MS)
    }

    /// A connection that has taken a megabyte in a second.
    fn slow() -> Pace {
        let mut pace = Pace::default();
        assert_eq!(pace.begin(at(0)), SendWait::All);
        pace.end(at(1000), 1_000_000, true, || BUFFER);
        pace
    }

    /// Goal: a send that is taken at once, or by a fast peer, changes nothing.
    #[test]
    fn who_is_fast_is_waited_for() {
        let mut pace = Pace::default();
        for (begin, end, bytes) in [(0, 1, 1 << 20), (1, 101, 1 << 20)] {
            assert_eq!(pace.begin(at(begin)), SendWait::All);
            pace.end(at(end), bytes, true, || BUFFER);
        }
        assert_eq!(pace.begin(at(200)), SendWait::All);
        assert_eq!(pace.rests_until(at(200)), None);
    }

    /// Goal: a slow one is tried, and after it was found full again when a third of the
    /// buffer is free, at a tick.
    #[test]
    fn who_is_slow_is_tried_at_ticks() {
        let mut pace = slow();
        assert_eq!(pace.begin(at(1003)), SendWait::Nothing);
        pace.end(at(1003), 10_000, false, || BUFFER);
        assert_eq!(pace.rests_until(at(1003)), Some(at(1050)));
        assert_eq!(pace.rests_until(at(1050)), None);
        assert_eq!(pace.begin(at(1050)), SendWait::Nothing);
        // It has taken all: there may be room for more, so there is no rest.
        pace.end(at(1050), 20_000, true, || BUFFER);
        assert_eq!(pace.rests_until(at(1050)), None);
        pace.begin(at(1050));
        pace.end(at(1050), 15_000, false, || BUFFER);
        let seen = (1_000_000 + 35_000_000 / 47) / 2;
        assert_eq!(
            pace.rests_until(at(1050)),
            Some((at(1050) + Duration::from_millis(40_000_000 / seen)).round_up(TICK))
        );
    }

    /// Goal: a peer that takes lumps keeps its pace, one that takes nothing any more is
    /// waited for.
    #[test]
    fn who_takes_nothing_is_waited_for() {
        let mut pace = slow();
        let lumps = [0, 0, 80_000, 0, 0, 0, 0, 0, 0];
        for (now, taken) in (1000..).step_by(40).zip(lumps) {
            assert_eq!(pace.begin(at(now)), SendWait::Nothing);
            pace.end(at(now), taken, false, || BUFFER);
            assert_eq!(pace.rests_until(at(now)), Some(at(now + 40)));
        }
        let late = at(1000 + 9 * 40);
        assert_eq!(pace.begin(late), SendWait::Nothing);
        pace.end(late, 0, false, || BUFFER);
        assert_eq!(pace.begin(late), SendWait::All);
        assert_eq!(pace.rests_until(late), None);
    }

    /// Goal: one that has become fast, so that all of its buffer has gone each time, is
    /// waited for soon.
    #[test]
    fn who_becomes_fast_is_waited_for() {
        let mut pace = Pace::default();
        pace.begin(at(0));
        pace.end(at(10_000), 10_000, true, || BUFFER);
        pace.begin(at(10_000));
        pace.end(at(10_000), 1, false, || BUFFER);
        let mut now = at(10_000);
        let mut rests = 0;
        while let Some(until) = pace.rests_until(now) {
            now = until;
            pace.begin(now);
            pace.end(now, BUFFER, false, || BUFFER);
            rests += 1;
        }
        assert_eq!(pace.begin(now), SendWait::All);
        assert!(rests <= 3 && now <= at(10_400), "{rests} until {now:?}");
    }

    /// Goal: no rest is longer than its bound, however slow the peer is.
    #[test]
    fn rests_are_bounded() {
        let mut pace = Pace::default();
        pace.begin(at(0));
        pace.end(at(10_000), 10_000, true, || BUFFER);
        pace.begin(at(10_000));
        pace.end(at(10_000), 1, false, || BUFFER);
        assert_eq!(pace.rests_until(at(10_000)), Some(at(10_250)));
    }
}
