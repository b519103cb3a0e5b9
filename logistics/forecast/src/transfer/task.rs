//! One attempt to move a piece, and how fast it goes.

use std::time::Duration;

use crossdock_types::Time;

use super::{DepotId, PieceId, TaskId, rate};

/// Over how long a rate is taken: so long that a connection has got something, and so short that
/// a change is soon seen.
const SPAN: Duration = Duration::from_millis(100);

/// What a connection carries is believed so long after its first byte at least, and at most …
const WARM_MIN: Duration = Duration::from_millis(100);
const WARM_MAX: Duration = Duration::from_millis(500);

/// … and else after so many times as long as its depot takes for a first byte: TCP begins
/// slowly, by round trips.
const WARM_TIMES: u32 = 2;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) piece: PieceId,
    pub(super) source: usize,
    pub(super) depot: DepotId,
    pub(super) bytes: u64,
    pub(super) done: u64,
    /// When it was asked for; behind another one, when that one had ended.
    pub(super) started: Time,
    /// When it last got something.
    pub(super) progressed: Time,
    /// When its first byte came.
    began: Option<Time>,
    /// The span at hand: since when, and from which byte on.
    span: (Time, u64),
    /// What came in the span before, in bytes per second.
    before: Option<f64>,
    /// Whose connection it waits for: its own request is on the way already.
    pub(super) behind: Option<TaskId>,
    /// Whether it was behind another one.
    pub(super) was_behind: bool,
    /// Whether another one is behind it: it takes no thread any more, and no connection.
    pub(super) is_followed: bool,
}

impl Task {
    pub(super) const fn new(
        now: Time,
        (piece, source): (PieceId, usize),
        depot: DepotId,
        bytes: u64,
        behind: Option<TaskId>,
    ) -> Self {
        Self {
            piece,
            source,
            depot,
            bytes,
            done: 0,
            started: now,
            progressed: now,
            began: None,
            span: (now, 0),
            before: None,
            behind,
            was_behind: behind.is_some(),
            is_followed: false,
        }
    }

    /// It has so many bytes now; whether these are the first ones.
    pub(super) fn progress(&mut self, now: Time, bytes: u64) -> bool {
        let bytes = bytes.min(self.bytes);
        let is_first = self.began.is_none() && bytes > 0;
        let (since, from) = self.span;
        if is_first {
            self.began = Some(now);
            // These have waited for their way, and say nothing of a rate.
            self.span = (now, bytes);
        } else if now - since >= SPAN {
            let came = bytes.saturating_sub(from);
            self.before = Some(rate(came, (now - since).as_secs_f64()));
            self.span = (now, bytes);
        }
        self.done = bytes;
        self.progressed = now;
        is_first
    }

    /// The one before it has ended: the connection is its own.
    pub(super) const fn has_turn(&mut self, now: Time) {
        self.behind = None;
        self.started = now;
        self.progressed = now;
    }

    /// What it carries at the moment, in bytes per second, if it has been there for some time;
    /// its depot takes so long for a first byte. Silence counts little by little: TCP pauses now
    /// and then.
    pub(super) fn rate(&self, now: Time, first_byte: Duration) -> Option<f64> {
        let warm = (first_byte * WARM_TIMES).clamp(WARM_MIN, WARM_MAX);
        self.began.filter(|&began| now - began >= warm)?;
        let (since, from) = self.span;
        let elapsed = (now - since).as_secs_f64();
        let here = rate(self.done.saturating_sub(from), elapsed);
        let span = SPAN.as_secs_f64();
        Some(match self.before {
            Some(before) => (before * span + here * elapsed) / (span + elapsed),
            None => here,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let piece = (PieceId(0), 0);
        Task::new(Time::default(), piece, DepotId(0), 10_000_000, None)
    }

    fn at(ms: u64) -> Time {
        Time::default() + Duration::from_millis(ms)
    }

    /// Goal: a connection that slows down is seen to within a fifth of a second, however long it
    /// was fast; what came before its first byte does not count.
    #[test]
    fn a_change_is_soon_seen() {
        let mut task = task();
        assert!(task.progress(at(500), 1000));
        for ms in 1..=50 {
            assert!(!task.progress(at(500 + 20 * ms), 1000 + 20_000 * ms));
        }
        let fast = task.rate(at(1500), Duration::ZERO).expect("warm");
        assert!((0.95e6..1.05e6).contains(&fast), "{fast}");
        for ms in 1..=10 {
            task.progress(at(1500 + 20 * ms), 1_001_000 + 2000 * ms);
        }
        let slow = task.rate(at(1700), Duration::ZERO).expect("warm");
        assert!((0.95e5..2e5).contains(&slow), "{slow}");
    }

    /// Goal: a pause of a tenth of a second halves what is believed, and no more.
    #[test]
    fn a_pause_is_no_end() {
        let mut task = task();
        for ms in 1..=50 {
            task.progress(at(20 * ms), 20_000 * ms);
        }
        let paused = task.rate(at(1100), Duration::ZERO).expect("warm");
        assert!((4.5e5..6.5e5).contains(&paused), "{paused}");
        let silent = task.rate(at(2000), Duration::ZERO).expect("warm");
        assert!(silent < 2e5, "{silent}");
    }

    /// Goal: nothing is said of one that has just begun; the farther its depot, the longer.
    #[test]
    fn beginnings_say_nothing() {
        let mut task = task();
        assert_eq!(task.rate(at(5000), Duration::ZERO), None);
        task.progress(at(100), 1000);
        assert_eq!(task.rate(at(199), Duration::ZERO), None);
        assert!(task.rate(at(200), Duration::ZERO).is_some());
        assert_eq!(task.rate(at(399), Duration::from_millis(150)), None);
        assert!(task.rate(at(400), Duration::from_millis(150)).is_some());
    }
}
