//! From fractions to whole bytes.

use std::time::Duration;

/// The whole part; what is negative or no number counts as 0, what is too large as the
/// largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is wanted"
)]
pub(crate) const fn whole(value: f64) -> u64 {
    value as u64
}

/// So many seconds; what is longer than a `Duration` can be is the longest.
pub(crate) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX)
}
