//! The depot's clock, by which leases end.
//!
//! A lease is so many seconds from now, however wrong the machine's clock is and however it
//! is set meanwhile: so the depot counts for itself, with the time that never steps. Only what
//! has passed while it did not run the machine's clock has to tell. How far that is from the
//! depot's is kept with the depot's [`State`], which is written anew when it changes; a step
//! that the depot has seen is none after a restart.

use std::time::Duration;

use bytes::Bytes;
use crossdock_types::{Time, WallTime};
use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Milliseconds since 1970 by the depot's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) u64);

/// Between the depot's clock and the machine's, what need not be written.
const DRIFT_MILLIS: u64 = 1000;

/// The state is written at least so often while there are leases: a machine whose clock was
/// set back while the depot did not run goes on from there.
const SAVE_EVERY: Duration = Duration::from_secs(60);

const FORMAT: u8 = 1;
const KIND: u8 = 2;

impl Millis {
    /// No time is as late.
    pub(crate) const FOREVER: Self = Self(u64::MAX);

    /// So many seconds later.
    pub(crate) const fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Whole seconds from `now` until then, at least one of what is left.
    pub(crate) const fn seconds_from(self, now: Self) -> u64 {
        self.0.saturating_sub(now.0).div_ceil(1000)
    }
}

/// What the depot keeps of itself: the attributes of its own object.
///
/// | offset | bytes | name | meaning (little-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 1 |
/// | 1 | 1 | kind | 2: the depot |
/// | 2 | 6 | | zeros |
/// | 8 | 8 | time | its clock when this was written, in milliseconds since 1970 |
/// | 16 | 8 | ahead | its clock minus the machine's at that time, in milliseconds |
/// | 24 | 32 | key | what MACs of capabilities are made with |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) time: Millis,
    pub(crate) ahead: i64,
    pub(crate) key: [u8; 32],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    format: u8,
    kind: u8,
    zeros: [u8; 6],
    time: U64,
    ahead: I64,
    key: [u8; 32],
}

impl State {
    pub(crate) fn encode(&self) -> Bytes {
        let stored = Stored {
            format: FORMAT,
            kind: KIND,
            zeros: [0; 6],
            time: U64::new(self.time.0),
            ahead: I64::new(self.ahead),
            key: self.key,
        };
        Bytes::copy_from_slice(stored.as_bytes())
    }

    /// `None` if these are not the attributes of a depot.
    pub(crate) fn decode(attributes: &[u8]) -> Option<Self> {
        let stored = Stored::ref_from_bytes(attributes).ok()?;
        ((stored.format, stored.kind) == (FORMAT, KIND)).then_some(Self {
            time: Millis(stored.time.get()),
            ahead: stored.ahead.get(),
            key: stored.key,
        })
    }
}

/// A clock that runs.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Time,
    started_at: Millis,
    saved: Time,
    saved_ahead: i64,
}

impl Clock {
    /// One that goes on from what was kept; `wall` is the machine's.
    pub(crate) fn resume(now: Time, wall: WallTime, state: &State) -> Self {
        let machine = millis(wall).saturating_add_signed(state.ahead);
        Self {
            started: now,
            started_at: Millis(machine.max(state.time.0)),
            saved: now,
            saved_ahead: state.ahead,
        }
    }

    pub(crate) fn read(&self, now: Time) -> Millis {
        let passed = now.since(self.started).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        Millis(self.started_at.0.saturating_add(passed))
    }

    /// When it will show that.
    pub(crate) fn when(&self, at: Millis) -> Time {
        let left = at.0.saturating_sub(self.started_at.0);
        // Beyond all that anybody waits for, sums would overflow.
        self.started + Duration::from_millis(left.min(1 << 40))
    }

    /// How far it is before the machine's.
    pub(crate) fn ahead(&self, now: Time, wall: WallTime) -> i64 {
        let (own, machine) = (self.read(now).0, millis(wall));
        i64::try_from(i128::from(own) - i128::from(machine)).unwrap_or(0)
    }

    /// What is to be written now, if that is so.
    pub(crate) fn take_unsaved(
        &mut self,
        now: Time,
        wall: WallTime,
        key: [u8; 32],
    ) -> Option<State> {
        let ahead = self.ahead(now, wall);
        let has_stepped = ahead.abs_diff(self.saved_ahead) > DRIFT_MILLIS;
        if !has_stepped && now < self.saved + SAVE_EVERY {
            return None;
        }
        (self.saved, self.saved_ahead) = (now, ahead);
        let time = self.read(now);
        Some(State { time, ahead, key })
    }

    /// When to ask that again, at the latest.
    pub(crate) fn save_due(&self) -> Time {
        self.saved + SAVE_EVERY
    }
}

fn millis(wall: WallTime) -> u64 {
    u64::try_from(wall.0 / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(seconds: i64) -> WallTime {
        WallTime::from_parts(seconds, 0)
    }

    const NEW: State = State {
        time: Millis(0),
        ahead: 0,
        key: [3; 32],
    };

    /// Goal: the state survives its encoding.
    #[test]
    fn states_come_back_from_their_bytes() {
        let state = State {
            time: Millis(5),
            ahead: -7,
            key: [9; 32],
        };
        let bytes = state.encode();
        assert!(State::decode(&bytes) == Some(state));
        assert!(State::decode(&bytes[1..]).is_none());
    }

    /// Goal: a machine's clock that steps while the depot runs changes nothing, also not after
    /// the next start; what passes between two starts counts.
    #[test]
    fn steps_of_the_machine_s_clock_are_none_of_the_depot_s() {
        let start = 1_000_000;
        let mut clock = Clock::resume(Time::from_secs(10), wall(start), &NEW);
        assert_eq!(clock.read(Time::from_secs(10)), Millis(1_000_000_000));
        let day = 86_400;
        for step in [day, -day] {
            let later = Time::from_secs(20);
            assert_eq!(clock.read(later), Millis(1_000_010_000));
            let saved = clock.take_unsaved(later, wall(start + 10 + step), NEW.key);
            let saved = saved.expect("it has stepped");
            let again = clock.take_unsaved(later, wall(start + 10 + step), NEW.key);
            assert!(again.is_none());
            // Down for 5 s.
            let again = Clock::resume(Time::from_secs(3), wall(start + 15 + step), &saved);
            assert_eq!(again.read(Time::from_secs(3)), Millis(1_000_015_000));
        }
    }

    /// Goal: a clock that was set back while the depot was down does not lead to the past.
    #[test]
    fn time_never_goes_back() {
        let mut clock = Clock::resume(Time::from_secs(0), wall(1000), &NEW);
        let later = Time::from_secs(60);
        let saved = clock.take_unsaved(later, wall(1060), NEW.key).expect("due");
        let again = Clock::resume(Time::from_secs(0), wall(10), &saved);
        assert_eq!(again.read(Time::from_secs(1)), Millis(1_061_000));
        assert_eq!(again.when(Millis(1_062_000)), Time::from_secs(2));
    }
}
