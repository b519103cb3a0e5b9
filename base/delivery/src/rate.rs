//! B_n: how fast a connection takes bytes.
//!
//! What counts is the progress of acknowledged bytes over windows of time. While the
//! socket always had something to send, that progress is the rate, of the network or of
//! the client that reads; if it ran dry in between, the rate was ours, and is a lower
//! bound only: it raises the estimate, and an estimate that only lower bounds follow
//! fades slowly. How far the rate may lie above such a bound is told by the time in which
//! the socket was busy: without that, a stream that starves would seem to be one that
//! takes little, and be given little. The kernel's delivery rate is that of a burst, which a client's buffer
//! may have taken whole: it serves until the first window has ended, and in congestion.

use std::collections::VecDeque;
use std::time::Duration;

use crossdock_types::Time;

use crate::connection::{Congestion, TcpSample};
use crate::number::whole;

/// Length of a window, and of the first one; or some round trips, if they take longer.
const WINDOW: Duration = Duration::from_millis(1000);
const WINDOW_FIRST: Duration = Duration::from_millis(250);
const WINDOW_ROUND_TRIPS: u32 = 4;

/// A lower bound is the mean of so many windows: a socket that was dry is filled in bursts.
const WINDOWS_OF_BOUND: usize = 4;

/// A socket that was busy for less than one part in so many of a time has emptied into the
/// peer's buffer, and shows how fast that fills.
const BUSY_PART_MAX: u32 = 2;

/// An estimate that is followed by lower bounds only loses a part of itself in this time.
const FADING: Duration = Duration::from_secs(16);

/// No estimate is lower, in bytes per second: a stopped client may go on.
const RATE_MIN: u64 = 256;

/// None is higher: ten times what any wire carries, so that sums do not overflow.
const RATE_MAX: u64 = 1 << 40;

/// Estimates the rate of a connection from what the kernel tells of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateEstimator {
    rate: Option<u64>,
    /// Begins of windows; the last is that of this window.
    marks: VecDeque<Mark>,
    /// The socket had something to send at every look of this window.
    is_full: bool,
    /// A window has ended.
    is_measured: bool,
    /// One in which the socket was never dry, or so many that a burst counts little.
    is_proven: bool,
    /// Congestion has lowered the estimate in this window: the sender, too, slows down once
    /// for all that is lost or marked in a round trip.
    is_lowered: bool,
    began_acked: u64,
    last: Option<TcpSample>,
}

/// How things were when a window began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    acked_bytes: u64,
    busy: Duration,
}

impl Mark {
    const fn new(at: Time, sample: &TcpSample) -> Self {
        Self {
            at,
            acked_bytes: sample.acked_bytes,
            busy: sample.busy,
        }
    }
}

/// What a sample shows beside the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Something was acknowledged since the last one.
    pub(crate) is_progress: bool,
    /// Loss, a mark of congestion, or a peer without room.
    pub(crate) is_trouble: bool,
}

/// What is known of a connection whose stream has ended, for its next one: a client that
/// fetches file after file is the same all along.
#[derive(Debug)]
pub struct Pace {
    estimator: RateEstimator,
    ended: Time,
}

impl Pace {
    pub(crate) const fn new(estimator: RateEstimator, ended: Time) -> Self {
        Self { estimator, ended }
    }

    /// For a stream that begins now. What was not measured is not worth much after a pause.
    pub(crate) fn resume(self, now: Time) -> RateEstimator {
        let mut estimator = self.estimator;
        if now.since(self.ended) > WINDOW {
            if !estimator.is_measured {
                return RateEstimator::default();
            }
            estimator.marks.clear();
        }
        estimator
    }
}

impl RateEstimator {
    /// Bytes per second; none before the first sample that says something.
    pub(crate) const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Whether it comes from progress, not from a burst into the peer's buffer.
    pub(crate) const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether it is more than what the kernel saw of a first burst.
    pub(crate) const fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Bytes acknowledged since the first sample.
    pub(crate) fn acked_bytes(&self) -> u64 {
        let now = self.last.map_or(0, |last| last.acked_bytes);
        now.saturating_sub(self.began_acked)
    }

    /// Takes a sample. With `heeds_trouble`, signs of congestion lower the estimate at once.
    pub(crate) fn sample(&mut self, now: Time, sample: TcpSample, heeds_trouble: bool) -> Signs {
        let before = self.last.replace(sample);
        let signs = signs_of(before.as_ref(), &sample);
        let Some(before) = before else {
            self.begin(now, &sample);
            return signs;
        };
        self.is_full &= sample.unsent_bytes > 0 && !sample.is_app_limited;
        if !self.is_measured {
            self.guess(&sample);
        }
        self.close_window(now, &sample);
        let begins = sample.congestion > Congestion::Disorder
            && before.congestion <= Congestion::Disorder
            || sample.delivered_ce > before.delivered_ce;
        if heeds_trouble && begins && !self.is_lowered {
            self.is_lowered = true;
            self.congested(&sample);
        }
        signs
    }

    fn begin(&mut self, now: Time, sample: &TcpSample) {
        self.began_acked = sample.acked_bytes;
        self.marks.push_back(Mark::new(now, sample));
        self.is_full = sample.unsent_bytes > 0 && !sample.is_app_limited;
        self.guess(sample);
    }

    /// Before there is a window: what the kernel saw.
    fn guess(&mut self, sample: &TcpSample) {
        let seen = sample.delivery_rate;
        if seen == 0 {
            return;
        }
        let known = self.rate.filter(|_| sample.is_app_limited).unwrap_or(0);
        self.rate = Some(seen.max(known).clamp(RATE_MIN, RATE_MAX));
    }

    fn close_window(&mut self, now: Time, sample: &TcpSample) {
        let Some(&mark) = self.marks.back() else {
            self.is_full = sample.unsent_bytes > 0;
            return self.marks.push_back(Mark::new(now, sample));
        };
        let least = if self.is_measured {
            WINDOW
        } else {
            WINDOW_FIRST
        };
        let elapsed = now.since(mark.at);
        if elapsed < least.max(sample.rtt * WINDOW_ROUND_TRIPS) {
            return;
        }
        let progress = progress_rate(sample.acked_bytes.saturating_sub(mark.acked_bytes), elapsed);
        let rate = match (self.is_full, self.rate.filter(|_| self.is_measured)) {
            (true, Some(rate)) if self.is_proven => rate.midpoint(progress),
            (true, _) => progress,
            (false, rate) => self.bound(now, sample, elapsed).max(faded(rate, elapsed)),
        };
        self.is_proven |= self.is_full || self.marks.len() >= WINDOWS_OF_BOUND;
        self.rate = Some(rate.clamp(RATE_MIN, RATE_MAX));
        self.is_measured = true;
        self.is_lowered = false;
        self.is_full = sample.unsent_bytes > 0;
        self.marks.push_back(Mark::new(now, sample));
        if self.marks.len() > WINDOWS_OF_BOUND {
            self.marks.pop_front();
        }
    }

    /// The rate is at least what has progressed; it is what has progressed while the socket
    /// was busy, as far as that can be believed.
    fn bound(&self, now: Time, sample: &TcpSample, elapsed: Duration) -> u64 {
        let Some(mark) = self.marks.front() else {
            return 0;
        };
        let bytes = sample.acked_bytes.saturating_sub(mark.acked_bytes);
        let since = now.since(mark.at).max(elapsed);
        let busy = match sample.busy.saturating_sub(mark.busy) {
            Duration::ZERO => since, // The kernel does not tell.
            busy => busy.clamp(since / BUSY_PART_MAX, since),
        };
        progress_rate(bytes, busy)
    }

    /// The congestion window has shrunk: half of what there was (TPF 3.3), or what the
    /// kernel sees, if that is less.
    fn congested(&mut self, sample: &TcpSample) {
        let Some(rate) = self.rate else {
            return;
        };
        let is_known = sample.delivery_rate > 0 && !sample.is_app_limited;
        let seen = if is_known { sample.delivery_rate } else { rate };
        self.rate = Some((rate / 2).min(seen).clamp(RATE_MIN, RATE_MAX));
    }
}

fn signs_of(before: Option<&TcpSample>, sample: &TcpSample) -> Signs {
    let (acked, marked) = before.map_or((0, sample.delivered_ce), |before| {
        (before.acked_bytes, before.delivered_ce)
    });
    Signs {
        is_progress: sample.acked_bytes > acked,
        is_trouble: sample.congestion != Congestion::Open
            || sample.delivered_ce > marked
            || sample.is_window_zero,
    }
}

fn progress_rate(bytes: u64, elapsed: Duration) -> u64 {
    whole(bytes as f64 / elapsed.as_secs_f64().max(1e-9))
}

fn faded(rate: Option<u64>, elapsed: Duration) -> u64 {
    let part = (elapsed.as_secs_f64() / FADING.as_secs_f64()).min(1.0);
    whole(rate.unwrap_or(0) as f64 * (1.0 - part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    /// A connection that takes `rate` bytes per second, looked at every 100 ms.
    fn run(estimator: &mut RateEstimator, from: u64, to: u64, rate: u64, sample: TcpSample) {
        let acked = estimator.last.map_or(0, |last| last.acked_bytes);
        for millis in (from..=to).step_by(100) {
            let acked_bytes = acked + (millis - from) * rate / 1000;
            let sample = TcpSample {
                acked_bytes,
                ..sample
            };
            estimator.sample(at(millis), sample, true);
        }
    }

    const FULL: TcpSample = TcpSample {
        unsent_bytes: 50_000,
        delivery_rate: 100_000_000,
        is_app_limited: false,
        acked_bytes: 0,
        busy: Duration::ZERO,
        congestion: Congestion::Open,
        delivered_ce: 0,
        is_window_zero: false,
        rtt: Duration::from_millis(10),
    };

    const DRY: TcpSample = TcpSample {
        unsent_bytes: 0,
        is_app_limited: true,
        ..FULL
    };

    fn near(estimator: &RateEstimator, rate: u64) -> bool {
        let found = estimator.rate().expect("a rate");
        found.abs_diff(rate) <= rate / 10
    }

    /// Goal: a client that reads slowly is slow, however fast its packets come.
    #[test]
    fn a_full_socket_measures_what_the_client_takes() {
        let mut estimator = RateEstimator::default();
        run(&mut estimator, 0, 3000, 125_000, FULL);
        assert!(near(&estimator, 125_000), "{:?}", estimator.rate());
        run(&mut estimator, 3000, 12_000, 25_000, FULL);
        assert!(near(&estimator, 25_000), "{:?}", estimator.rate());
    }

    /// Goal: that we gave a connection little does not make it a slow one.
    #[test]
    fn a_dry_socket_only_bounds_the_rate_from_below() {
        let mut estimator = RateEstimator::default();
        run(&mut estimator, 0, 3000, 125_000, FULL);
        run(&mut estimator, 3000, 5000, 10_000, DRY);
        assert!(estimator.rate() > Some(100_000), "{:?}", estimator.rate());
        run(&mut estimator, 5000, 60_000, 10_000, DRY);
        assert!(estimator.rate() < Some(20_000), "{:?}", estimator.rate());
        run(&mut estimator, 60_000, 70_000, 90_000, DRY);
        assert!(near(&estimator, 90_000), "{:?}", estimator.rate());
    }

    /// Goal: before anything is measured the kernel's word counts, as a bound if it says so.
    #[test]
    fn the_first_guess_is_the_kernels() {
        let mut estimator = RateEstimator::default();
        assert_eq!(estimator.rate(), None);
        let slower = TcpSample {
            delivery_rate: 1000,
            ..DRY
        };
        estimator.sample(at(0), DRY, true);
        estimator.sample(at(1), slower, true);
        assert_eq!(estimator.rate(), Some(100_000_000));
        let real = TcpSample {
            unsent_bytes: 1,
            is_app_limited: false,
            ..slower
        };
        estimator.sample(at(2), real, true);
        assert_eq!(estimator.rate(), Some(1000));
    }

    /// Goal: a stream that gets a block now and then, and takes it at its own rate, is seen to
    /// take more than it gets; though never much more, for its buffer may have taken it.
    #[test]
    fn who_starves_is_seen_to_take_more() {
        for (busy_millis, expected) in [(90, 100_000), (60, 150_000), (1, 180_000)] {
            let mut estimator = RateEstimator::default();
            let mut sample = DRY;
            for tenth in 0..100_u64 {
                sample.acked_bytes += 9_000;
                sample.busy += Duration::from_millis(busy_millis);
                estimator.sample(at(tenth * 100), sample, true);
            }
            assert!(near(&estimator, expected), "{:?}", estimator.rate());
        }
    }

    /// Goal: the next stream of a client begins with what is known of it: its rate counts
    /// at once, and a pause in between is not taken for slowness.
    #[test]
    fn the_next_stream_goes_on_where_one_has_ended() {
        let mut estimator = RateEstimator::default();
        run(&mut estimator, 0, 3000, 100_000, FULL);
        let mut next = Pace::new(estimator, at(3000)).resume(at(60_000));
        assert!(near(&next, 100_000) && next.is_proven());
        run(&mut next, 60_000, 62_000, 100_000, FULL);
        assert!(near(&next, 100_000), "{:?}", next.rate());
        let new = RateEstimator::default();
        assert_eq!(Pace::new(new, at(0)).resume(at(60_000)).rate(), None);
    }

    /// Goal: congestion counts at once and once, and not at all if nobody heeds it.
    #[test]
    fn congestion_halves_the_rate_once() {
        for heeds in [true, false] {
            let mut estimator = RateEstimator::default();
            run(&mut estimator, 0, 3000, 100_000, FULL);
            for millis in 1..5 {
                let recovering = TcpSample {
                    acked_bytes: 300_000,
                    congestion: Congestion::Recovery,
                    ..FULL
                };
                let signs = estimator.sample(at(3000 + millis), recovering, heeds);
                assert!(signs.is_trouble && !signs.is_progress);
            }
            let expected = if heeds { 50_000 } else { 100_000 };
            assert!(near(&estimator, expected), "{:?}", estimator.rate());
        }
    }

    /// Goal: marks that come with one sample after the other are one congestion; those of
    /// later windows count again.
    #[test]
    fn marks_halve_the_rate_once_a_window() {
        let mut estimator = RateEstimator::default();
        run(&mut estimator, 0, 3000, 100_000, FULL);
        let marked = |millis: u64| TcpSample {
            acked_bytes: 300_000 + (millis - 3000) * 50,
            delivered_ce: millis - 3000,
            ..FULL
        };
        for millis in 3001..3050 {
            estimator.sample(at(millis), marked(millis), true);
        }
        assert!(near(&estimator, 50_000), "{:?}", estimator.rate());
        // The window from 2.3 s on ends: half of what it was, and of 85 kB/s, is halved.
        for millis in 3050..4000 {
            estimator.sample(at(millis), marked(millis), true);
        }
        assert!(near(&estimator, 33_750), "{:?}", estimator.rate());
    }

    /// Goal: a client that has stopped is found out, and never divides by zero.
    #[test]
    fn a_stopped_client_has_nearly_no_rate() {
        let mut estimator = RateEstimator::default();
        run(&mut estimator, 0, 3000, 100_000, FULL);
        run(&mut estimator, 3000, 30_000, 0, FULL);
        assert_eq!(estimator.rate(), Some(RATE_MIN));
    }
}
