//! What the scheduler knows of one depot.

use std::time::Duration;

use crossdock_types::Time;

use super::{Depot, rate};
use crate::forecaster::Forecaster;

/// How long a depot that has refused a connection, or broken, is left alone: doubled each time
/// in a row.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pieces per connection that have to come well before one more connection is tried.
const PIECES_PER_CONNECTION: usize = 4;

#[derive(Debug)]
pub(super) struct DepotState {
    prior: Option<f64>,
    seen: Forecaster,
    /// Connections that it has.
    pub(super) active: usize,
    /// Connections that it is believed to serve.
    pub(super) limit: usize,
    limit_max: usize,
    /// Pieces that came well while it had as many connections as it may.
    well: usize,
    /// Failures in a row, and since when.
    failures: u32,
    broken_since: Option<Time>,
    /// Before that it is left alone.
    pub(super) retry_at: Time,
    /// The longest that a connection lately waited for its first byte.
    pub(super) first_byte: Duration,
}

impl DepotState {
    pub(super) fn new(depot: &Depot) -> Self {
        let limit = depot.connections_max.max(1);
        Self {
            prior: depot.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            seen: Forecaster::new(),
            active: 0,
            limit,
            limit_max: limit,
            well: 0,
            failures: 0,
            broken_since: None,
            retry_at: Time::default(),
            first_byte: Duration::ZERO,
        }
    }

    /// A connection has got its first byte, so long after it was asked for.
    pub(super) fn began(&mut self, waited: Duration) {
        self.first_byte = waited.max(self.first_byte * 9 / 10);
    }

    /// What a connection is expected to carry: what was seen counts, not what was said.
    pub(super) fn rate(&self) -> Option<f64> {
        let seen = self.seen.forecast().map(|forecast| forecast.value);
        seen.or(self.prior)
    }

    pub(super) fn can_start(&self, now: Time) -> bool {
        self.active < self.limit && self.retry_at <= now
    }

    pub(super) fn observe(&mut self, bytes: u64, elapsed: Duration) {
        self.seen.observe(rate(bytes, elapsed.as_secs_f64()));
    }

    pub(super) fn succeeded(&mut self, bytes: u64, elapsed: Duration) {
        self.observe(bytes, elapsed);
        self.failures = 0;
        self.broken_since = None;
        if self.active + 1 < self.limit || self.limit == self.limit_max {
            return;
        }
        self.well += 1;
        if self.well >= PIECES_PER_CONNECTION * self.limit {
            self.limit += 1;
            self.well = 0;
        }
    }

    /// It has refused a connection, which is not counted any more.
    pub(super) fn refused(&mut self, now: Time) {
        self.limit = self.active.max(1);
        self.well = 0;
        if self.active == 0 {
            self.pause(now);
        }
    }

    /// A connection of it broke.
    pub(super) fn broke(&mut self, now: Time) {
        self.broken_since.get_or_insert(now);
        self.pause(now);
    }

    /// Whether it has been away for so long.
    pub(super) fn is_away(&self, now: Time, patience: Duration) -> bool {
        self.broken_since
            .is_some_and(|since| now - since >= patience)
    }

    fn pause(&mut self, now: Time) {
        if now < self.retry_at {
            return; // Others failed at the same time.
        }
        let doubled = PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.retry_at = now + doubled.min(PAUSE_MAX);
    }
}
