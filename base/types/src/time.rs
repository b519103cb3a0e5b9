//! The two clocks of a machine: monotonic [`Time`] for deadlines, and
//! [`WallTime`] for what people and clients see.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on the monotonic clock of one process, in nanoseconds since an
/// arbitrary origin. Machines receive it as an argument and never read a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time `seconds` after the origin.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// The next multiple of `step` from the origin that is not before this.
    #[must_use]
    pub fn round_up(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0.checked_next_multiple_of(step).unwrap_or(u64::MAX))
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, patience: Duration) -> Self {
        let nanos = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Nanoseconds since 1970-01-01 UTC; what becomes mtime and ctime. Negative
/// values are dates before 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WallTime(pub i64);

impl WallTime {
    /// Whole seconds (rounded down) and the nanoseconds beyond them.
    #[must_use]
    pub const fn parts(self) -> (i64, u32) {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder below 1e9")]
        let nanos = self.0.rem_euclid(1_000_000_000) as u32;
        (self.0.div_euclid(1_000_000_000), nanos)
    }

    /// The time of `seconds` and `nanos` since 1970, saturating at the range
    /// of 64-bit nanoseconds (years 1677 to 2262).
    #[must_use]
    pub const fn from_parts(seconds: i64, nanos: u32) -> Self {
        Self(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(nanos as i64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dates before 1970 split into a negative second and a positive rest.
    #[test]
    fn wall_time_parts_round_down() {
        assert_eq!(WallTime(-1).parts(), (-1, 999_999_999));
        assert_eq!(WallTime::from_parts(-1, 999_999_999), WallTime(-1));
        assert_eq!(WallTime(1_500_000_000).parts(), (1, 500_000_000));
    }
}
