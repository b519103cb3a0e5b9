//! One stream: where its bytes are.

use std::collections::VecDeque;
use std::time::Duration;

use crossdock_types::Time;

use crate::connection::{StreamClass, TcpSample};
use crate::figures::Residence;
use crate::number::whole;
use crate::rate::RateEstimator;
use crate::snapshot::Look;

/// Arrivals that are told apart for the residence figures; more are counted as the last.
const ARRIVALS_MAX: usize = 256;

/// A stream's bytes go from `remaining` to D3, D2, D1 and away.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) class: StreamClass,
    pub(crate) remaining_bytes: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) ready_bytes: u64,
    unsent_bytes: u64,
    /// As of when that is.
    unsent_at: Time,
    /// When it was looked at last.
    sampled_at: Option<Time>,
    /// What is under way to look at it again.
    pub(crate) looking: Looking,
    /// What the client has asked for by itself, and has not been answered.
    asked_bytes: u64,
    /// How much it asks for at a time, if it does.
    pub(crate) unit_bytes: u64,
    /// Where in the file the stream ends, if it is known and has no gaps until there.
    end_place_bytes: Option<u64>,
    pub(crate) estimator: RateEstimator,

    // Trouble.
    pub(crate) postponed_bytes: u64,
    pub(crate) postponed_until: Option<Time>,
    pub(crate) is_troubled: bool,
    pub(crate) is_held: bool,

    // Its turn.
    pub(crate) waiting_since: Option<Time>,
    pub(crate) is_ready: bool,
    pub(crate) look_at: Option<Time>,
    /// When it is in the timers.
    pub(crate) timer: Option<Time>,

    /// Its T_D, when it was decided on last.
    pub(crate) buffering: Duration,
    arrivals: VecDeque<Arrival>,
    arrived_bytes: u64,
    handed_bytes: u64,
}

/// A stream that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
    /// Nobody has asked for a sample since the last one.
    No,
    /// Its timer has.
    Asked,
    /// A request waits for it, or has been made without: a door may have nothing to tell.
    Awaited,
}

/// A block that has not left the socket's queue.
#[derive(Debug)]
struct Arrival {
    at: Time,
    /// How many bytes had arrived with it.
    end_bytes: u64,
    /// T_D then.
    buffering: Duration,
}

impl Stream {
    pub(crate) fn new(class: StreamClass, total_bytes: u64) -> Self {
        Self {
            class,
            remaining_bytes: total_bytes,
            requested_bytes: 0,
            ready_bytes: 0,
            unsent_bytes: 0,
            unsent_at: Time::default(),
            sampled_at: None,
            looking: Looking::No,
            asked_bytes: 0,
            unit_bytes: 0,
            end_place_bytes: None,
            estimator: RateEstimator::default(),
            postponed_bytes: 0,
            postponed_until: None,
            is_troubled: false,
            is_held: false,
            waiting_since: None,
            is_ready: false,
            look_at: None,
            timer: None,
            buffering: Duration::ZERO,
            arrivals: VecDeque::new(),
            arrived_bytes: 0,
            handed_bytes: 0,
        }
    }

    /// D2 + D3.
    pub(crate) const fn memory_bytes(&self) -> u64 {
        self.requested_bytes + self.ready_bytes
    }

    /// Whether it takes part in the rounds of the disks: it wants more, or has what it got
    /// last, after which the connection mostly wants something else.
    pub(crate) const fn is_active(&self) -> bool {
        self.remaining_bytes > 0 || self.memory_bytes() > 0
    }

    /// B_n as it counts to B_net: the burst of a new stream into its peer's buffer would
    /// count as hundreds of others.
    pub(crate) fn rate_bytes(&self) -> u64 {
        match self.counts() {
            true => self.estimator.rate().unwrap_or(0),
            false => 0,
        }
    }

    /// D1 as of the last sample, of a stream whose rate counts to B_net.
    pub(crate) const fn counted_unsent_bytes(&self) -> u64 {
        match self.counts() {
            true => self.unsent_bytes,
            false => 0,
        }
    }

    const fn counts(&self) -> bool {
        self.is_active() && self.estimator.is_measured()
    }

    /// D1: what was in the socket, less what has left it since at B_n.
    fn unsent_bytes(&self, now: Time) -> u64 {
        match self.estimator.rate() {
            Some(rate) if self.estimator.is_measured() => {
                let seconds = now.since(self.unsent_at).as_secs_f64();
                self.unsent_bytes
                    .saturating_sub(whole(rate as f64 * seconds))
            }
            _ => self.unsent_bytes,
        }
    }

    /// How long ago it was looked at, if it was.
    pub(crate) fn sample_age(&self, now: Time) -> Option<Duration> {
        self.sampled_at.map(|at| now.since(at))
    }

    pub(crate) fn look(&self, now: Time, is_behind_others: bool) -> Look {
        Look {
            class: self.class,
            remaining_bytes: self.remaining_bytes,
            unsent_bytes: self.unsent_bytes(now).saturating_add(self.asked_bytes),
            ready_bytes: self.ready_bytes,
            requested_bytes: self.requested_bytes,
            unit_bytes: self.unit_bytes,
            place_bytes: self.place_bytes(),
            postponed_bytes: self.postponed_bytes,
            rate: self.estimator.rate(),
            is_measured: self.estimator.is_proven(),
            acked_bytes: self.estimator.acked_bytes(),
            is_troubled: self.is_troubled,
            is_held: self.is_held,
            is_behind_others,
        }
    }

    /// Where the next byte that is not requested lies in its file.
    pub(crate) fn place_bytes(&self) -> Option<u64> {
        Some(self.end_place_bytes?.saturating_sub(self.remaining_bytes))
    }

    /// It lies there.
    pub(crate) const fn set_place(&mut self, place_bytes: u64) {
        self.end_place_bytes = Some(place_bytes.saturating_add(self.remaining_bytes));
    }

    /// D3 → D2.
    pub(crate) fn arrive(&mut self, now: Time, bytes: u64) {
        self.leave_requested(bytes);
        self.ready_bytes += bytes;
        self.arrived_bytes += bytes;
        if self.arrivals.len() >= ARRIVALS_MAX {
            self.arrivals.pop_back();
        }
        self.arrivals.push_back(Arrival {
            at: now,
            end_bytes: self.arrived_bytes,
            buffering: self.buffering,
        });
    }

    /// D3 shrinks; what is postponed is part of it.
    pub(crate) fn leave_requested(&mut self, bytes: u64) {
        let left = self.requested_bytes.checked_sub(bytes);
        self.requested_bytes = left.expect("more came than was requested");
        self.postponed_bytes = self.postponed_bytes.min(self.requested_bytes);
    }

    /// The client asks for the next bytes: what was requested of them first.
    pub(crate) fn ask(&mut self, bytes: u64) {
        let of_requested = bytes.min(self.requested_bytes);
        self.leave_requested(of_requested);
        let others = (bytes - of_requested).min(self.remaining_bytes);
        self.remaining_bytes -= others;
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
    }

    /// ... and is answered.
    pub(crate) fn answer(&mut self, bytes: u64) {
        self.asked_bytes = self.asked_bytes.saturating_sub(bytes);
        self.unsent_bytes = self.unsent_bytes.saturating_add(bytes);
    }

    /// D2 → D1.
    pub(crate) fn hand(&mut self, now: Time, bytes: u64) {
        let left = self.ready_bytes.checked_sub(bytes);
        self.ready_bytes = left.expect("more was handed on than had come");
        self.unsent_bytes = self.unsent_bytes(now) + bytes;
        self.unsent_at = now;
        self.handed_bytes += bytes;
    }

    /// Takes a sample.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        sample: TcpSample,
        heeds_trouble: bool,
        residence: &mut Residence,
    ) {
        let signs = self.estimator.sample(now, sample, heeds_trouble);
        // Headers and the like may lie in the queue too.
        self.unsent_bytes = sample.unsent_bytes;
        self.unsent_at = now;
        self.sampled_at = Some(now);
        self.looking = Looking::No;
        self.look_at = None;
        self.is_troubled = signs.is_trouble;
        self.is_held &= !signs.is_progress;
        let sent_bytes = self.handed_bytes.saturating_sub(sample.unsent_bytes);
        self.left(now, sent_bytes, residence);
    }

    /// `sent_bytes` in all have left the socket's queue.
    pub(crate) fn left(&mut self, now: Time, sent_bytes: u64, residence: &mut Residence) {
        while let Some(left) = self.arrivals.pop_front_if(|it| it.end_bytes <= sent_bytes) {
            residence.record(now.since(left.at), left.buffering);
        }
    }

    /// The whole stream has gone, as far as anybody will see.
    pub(crate) fn left_all(&mut self, now: Time, residence: &mut Residence) {
        self.left(now, self.handed_bytes, residence);
    }

    /// Nothing is postponed any more.
    pub(crate) const fn end_postponement(&mut self) {
        self.postponed_bytes = 0;
        self.postponed_until = None;
    }
}
