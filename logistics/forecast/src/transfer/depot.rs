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

/// How long a depot that was too slow counts as that before its forecast is believed again:
/// doubled each time in a row.
const SLOW: Duration = Duration::from_secs(1);

/// The longest such time.
const SLOW_MAX: Duration = Duration::from_secs(8);

/// A piece that comes with this part of what was expected says that a depot is not slow any more.
const RECOVERED: f64 = 0.5;

/// Pieces per connection that have to come well before one more connection is tried.
const PIECES_PER_CONNECTION: usize = 4;

/// What a new connection carries in its first round trip: ten segments (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_480.0;

#[derive(Debug)]
pub(super) struct DepotState {
    /// What was forecast of a connection, in bytes per second.
    pub(super) prior: Option<f64>,
    seen: Forecaster,
    /// Connections on which something is asked for.
    pub(super) active: usize,
    /// Connections to it, those that are idle with them.
    open: usize,
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
    /// The shortest: the way there and back.
    round_trip: Option<Duration>,
    /// Whether it takes a request while it sends what was asked for before.
    pub(super) reads_ahead: bool,
    slow: Option<Slow>,
}

/// What a depot carried when a piece was taken from it.
#[derive(Clone, Copy, Debug)]
struct Slow {
    /// In bytes per second.
    rate: f64,
    until: Time,
    /// For how long it is believed.
    span: Duration,
    /// What was expected of it before, and is again when it is tried.
    before: f64,
}

impl DepotState {
    pub(super) fn new(depot: &Depot) -> Self {
        let limit = depot.connections_max.max(1);
        Self {
            prior: depot.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            seen: Forecaster::new(),
            active: 0,
            open: 0,
            limit,
            limit_max: limit,
            well: 0,
            failures: 0,
            broken_since: None,
            retry_at: Time::default(),
            first_byte: Duration::ZERO,
            round_trip: None,
            reads_ahead: depot.reads_ahead,
            slow: None,
        }
    }

    /// A connection has got its first byte, so long after it was asked for.
    pub(super) fn began(&mut self, waited: Duration) {
        self.first_byte = waited.max(self.first_byte * 9 / 10);
        let shortest = self.round_trip.map_or(waited, |it| it.min(waited));
        self.round_trip = Some(shortest);
    }

    /// Something is asked for: over an idle connection, if there is one.
    pub(super) fn asked(&mut self) {
        self.active += 1;
        self.open = self.open.max(self.active);
    }

    /// A connection has ended, which had not been idle.
    pub(super) fn closed(&mut self) {
        self.open = self.open.saturating_sub(1).max(self.active);
    }

    /// What a connection that carries `rate` bytes per second loses against one that is there
    /// already, for so many bytes, in seconds: a round trip to open it, and those in which TCP
    /// doubles its window. Nothing, where one is idle; and where nothing is known of the way.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn opening(&self, bytes: u64, rate: f64) -> f64 {
        let Some(round_trip) = self.round_trip.filter(|_| self.open <= self.active) else {
            return 0.0;
        };
        let round_trip = round_trip.as_secs_f64();
        let window = (rate * round_trip).min(bytes as f64);
        round_trip * (1.0 + (window / INITIAL_WINDOW_BYTES).max(1.0).log2())
    }

    /// What a connection is expected to carry: what was seen counts, not what was said.
    pub(super) fn rate(&self, now: Time) -> Option<f64> {
        self.seen(now).or(self.prior)
    }

    /// The same, if anything was seen.
    pub(super) fn seen(&self, now: Time) -> Option<f64> {
        let seen = self.seen.forecast().map(|forecast| forecast.value);
        match self.slow {
            Some(slow) if now < slow.until => {
                Some(seen.map_or(slow.rate, |seen| seen.min(slow.rate)))
            }
            Some(slow) => Some(seen.map_or(slow.before, |seen| seen.max(slow.before))),
            None => seen,
        }
    }

    /// What it has carried for sure: as long as it has not shown that it is fast again, what it
    /// carried when it was slow.
    pub(super) fn proven(&self) -> Option<f64> {
        let seen = self.seen.forecast().map(|forecast| forecast.value)?;
        Some(self.slow.map_or(seen, |slow| seen.min(slow.rate)))
    }

    /// What it may carry at best: what was forecast or seen, also before it was slow.
    pub(super) fn hoped(&self) -> Option<f64> {
        let seen = self.seen.forecast().map(|forecast| forecast.value);
        let before = self.slow.map(|slow| slow.before);
        [seen, before]
            .into_iter()
            .flatten()
            .reduce(f64::max)
            .or(self.prior)
    }

    /// A piece was taken from it: so much it carried lately, and others carry more.
    pub(super) fn was_left(&mut self, carried: f64, now: Time) {
        // A forecast that nothing has confirmed was wrong.
        let before = self.seen(now).unwrap_or(carried);
        let (span, before) = match self.slow {
            // Other pieces were taken from it at the same time.
            Some(slow) if now < slow.until => (slow.span, slow.before),
            Some(slow) => ((slow.span * 2).min(SLOW_MAX), slow.before),
            None => (SLOW, before),
        };
        self.observe(carried);
        if carried >= RECOVERED * before {
            return; // Its connections share a line: that is not its fault.
        }
        self.slow = Some(Slow {
            rate: carried,
            until: now + span,
            span,
            before,
        });
    }

    /// Whether it was slow, and a piece is under way that will tell whether it still is.
    pub(super) fn is_tried(&self, now: Time) -> bool {
        self.active > 0 && self.slow.is_some_and(|slow| now >= slow.until)
    }

    pub(super) fn can_start(&self, now: Time) -> bool {
        self.active < self.limit && self.retry_at <= now
    }

    /// So much it carried, in bytes per second.
    pub(super) fn observe(&mut self, carried: f64) {
        self.seen.observe(carried);
    }

    pub(super) fn succeeded(&mut self, now: Time, bytes: u64, elapsed: Duration) {
        let carried = rate(bytes, elapsed.as_secs_f64());
        match self.slow {
            Some(slow) if carried >= RECOVERED * slow.before => {
                // What was seen when it was slow says nothing any more.
                self.slow = None;
                self.seen = Forecaster::new();
                self.observe(carried);
            }
            Some(slow) if now >= slow.until => self.was_left(carried, now),
            _ => self.observe(carried),
        }
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
