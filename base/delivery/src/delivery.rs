//! The machine: streams, the memory they share, whose turn it is.

mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_types::Time;

use crate::config::{DeliveryConfig, DiskProfile, Mutation, Policy};
use crate::connection::{Decision, End, StreamClass, StreamId, TcpSample};
use crate::decide::horizon;
use crate::figures::DeliveryFigures;
use crate::line::Line;
use crate::rate::{Pace, RateEstimator};
use crate::record::{Record, Recorder};
use crate::snapshot::{Disks, Pool};
use crate::stream::Stream;

/// A connection whose rate is measured is looked at again after this.
const SAMPLE_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that lie at a socket, and not yet in it.
pub const SENDING_BYTES_MAX: usize = 2 << 20;
const SENDING_BYTES_MIN: usize = 64 << 10;

/// No more than a connection takes in this part of a second.
const SENDING_PART: u64 = 2;

/// Decides for all streams of a door what is read when.
///
/// For each stream the door calls [`open`](Self::open); then, whenever it happens,
/// [`delivered`](Self::delivered) or [`failed`](Self::failed) (a block has come from the
/// disks, or will not), [`handed`](Self::handed) (bytes went to the socket) and, after
/// each completed send, [`sample`](Self::sample); in the end [`close`](Self::close).
/// After each input, and after [`timeout`](Self::timeout), which is due at
/// [`poll_timeout`](Self::poll_timeout), it carries out all decisions of
/// [`poll_decision`](Self::poll_decision) in order. A door whose clients ask for each piece
/// calls [`asked`](Self::asked) and [`answered`](Self::answered) instead of `delivered` and
/// `handed`: what it requests waits elsewhere until then. A request counts as D3 from the
/// moment it is polled. Calls about streams that are closed change nothing but figures.
///
/// Always: D2 + D3 of all streams ≤ the memory. What was read ahead is never given up
/// unless its connection dies. As many streams may be open as the door has connections.
#[derive(Debug)]
pub struct Delivery {
    config: DeliveryConfig,
    policy: Policy,
    disks: BTreeMap<u64, DiskProfile>,
    now: Time,

    streams: BTreeMap<StreamId, Stream>,
    /// Closed without EDRC: bytes that still come from the disks for nobody.
    dying: BTreeMap<StreamId, u64>,
    totals: [Totals; 2],
    dying_bytes: u64,

    /// Decided, not yet polled.
    decisions: VecDeque<Decision>,
    /// To be looked at, in turn.
    ready: VecDeque<StreamId>,
    /// Who waits for memory, by class.
    lines: [Line; 2],
    /// The first of the line was looked at and nothing has happened since.
    is_line_stuck: [bool; 2],
    timers: BTreeSet<(Time, StreamId)>,

    recorder: Recorder,
    figures: Box<DeliveryFigures>,
}

/// Sums over the streams of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    active: u64,
    rate: u64,
    rate_roots: u64,
    memory_bytes: u64,
    unsent_bytes: u64,
}

impl Delivery {
    /// Delivery without streams, over disks of which nothing is known.
    #[must_use]
    pub fn new(config: DeliveryConfig) -> Self {
        Self {
            config,
            policy: config.policy(),
            disks: BTreeMap::new(),
            now: Time::default(),
            streams: BTreeMap::new(),
            dying: BTreeMap::new(),
            totals: [Totals::default(); 2],
            dying_bytes: 0,
            decisions: VecDeque::new(),
            ready: VecDeque::new(),
            lines: Default::default(),
            is_line_stuck: [false; 2],
            timers: BTreeSet::new(),
            recorder: Recorder::default(),
            figures: Box::default(),
        }
    }

    /// How it is set up.
    #[must_use]
    pub const fn config(&self) -> &DeliveryConfig {
        &self.config
    }

    /// A node tells what the disk of number `disk` is like, and how busy.
    pub fn set_disk(&mut self, disk: u64, profile: DiskProfile) {
        self.disks.insert(disk, profile);
        self.heed_disks();
    }

    /// A disk, or the node that it belongs to, is no more.
    pub fn remove_disk(&mut self, disk: u64) {
        self.disks.remove(&disk);
        self.heed_disks();
    }

    /// A stream of `total_bytes` begins.
    ///
    /// # Panics
    /// If a stream of this id was opened before and is not closed.
    pub fn open(&mut self, now: Time, stream: StreamId, total_bytes: u64, class: StreamClass) {
        self.wake(now);
        let is_new = !self.streams.contains_key(&stream) && !self.dying.contains_key(&stream);
        assert!(is_new, "{stream:?} is open");
        let new = Stream::new(class, total_bytes);
        self.totals[class as usize].add(&new);
        self.streams.insert(stream, new);
        self.touch(stream);
    }

    /// The stream's connection has had another one before, of which this is known.
    pub fn resume(&mut self, now: Time, stream: StreamId, pace: Pace) {
        self.wake(now);
        self.change(stream, |known| known.estimator = pace.resume(now));
        self.touch(stream);
    }

    /// Whether a sample is worth its cost after something of the stream was sent: once its
    /// rate is measured, what its socket empties is known well enough for a while.
    #[must_use]
    pub fn wants_sample(&self, now: Time, stream: StreamId) -> bool {
        let Some(known) = self.streams.get(&stream) else {
            return false;
        };
        let is_fresh = |age| age < SAMPLE_PAUSE;
        !known.estimator.is_measured() || !known.sample_age(now).is_some_and(is_fresh)
    }

    /// How much of the stream may lie at its socket and not in it: the kernel goes on with a
    /// send by itself (IDSR), and lets go of its bytes when the last one is in the socket. In
    /// bytes, what the connection takes in half a second.
    #[must_use]
    pub fn sending_bytes_max(&self, stream: StreamId) -> usize {
        let estimator = self.streams.get(&stream).map(|known| &known.estimator);
        let measured = estimator.filter(|estimator| estimator.is_measured());
        let rate = measured.and_then(RateEstimator::rate);
        rate.map_or(SENDING_BYTES_MAX, |rate| {
            let bytes = usize::try_from(rate / SENDING_PART).unwrap_or(usize::MAX);
            bytes.clamp(SENDING_BYTES_MIN, SENDING_BYTES_MAX)
        })
    }

    /// The client of a stream asks for so many bytes at a time: what is requested is whole
    /// pieces, and at least one.
    pub fn set_unit(&mut self, now: Time, stream: StreamId, unit_bytes: u64) {
        self.wake(now);
        self.change(stream, |known| known.unit_bytes = unit_bytes);
        self.touch(stream);
    }

    /// What of the stream is not requested begins there in its file, and has no gaps: its
    /// requests end where a stripe does. To be told again where a gap has been passed;
    /// without it stripes do not count.
    pub fn set_place(&mut self, now: Time, stream: StreamId, place_bytes: u64) {
        let known = self.streams.get(&stream);
        if known.is_some_and(|known| known.place_bytes() != Some(place_bytes)) {
            self.wake(now);
            self.change(stream, |known| known.set_place(place_bytes));
            self.touch(stream);
        }
    }

    /// A block has come from the disks: D3 → D2.
    ///
    /// # Panics
    /// If more comes than was requested.
    pub fn delivered(&mut self, now: Time, stream: StreamId, bytes: u64) {
        self.wake(now);
        match self.change(stream, |known| known.arrive(now, bytes)) {
            Some(()) => {
                self.figures.delivered_bytes += bytes;
                self.touch(stream);
            }
            None => self.came_for_nobody(stream, bytes, true),
        }
    }

    /// A block will not come: D3 shrinks. Whether the stream can go on is the door's
    /// business; who reads the block again by himself leaves it requested.
    ///
    /// # Panics
    /// If more fails than was requested.
    pub fn failed(&mut self, now: Time, stream: StreamId, bytes: u64) {
        self.wake(now);
        match self.change(stream, |known| known.leave_requested(bytes)) {
            Some(()) => {
                self.figures.failed_bytes += bytes;
                self.touch(stream);
            }
            None => self.came_for_nobody(stream, bytes, false),
        }
    }

    /// The next bytes of the stream went to the socket, or to the door's queue to it:
    /// D2 → D1.
    ///
    /// # Panics
    /// If more is handed on than has come.
    pub fn handed(&mut self, now: Time, stream: StreamId, bytes: u64) {
        self.wake(now);
        if self
            .change(stream, |known| known.hand(now, bytes))
            .is_some()
        {
            self.figures.handed_bytes += bytes;
            self.touch(stream);
        }
    }

    /// At a door of requests (NFS) the client asks for the next `bytes` of the stream: they
    /// leave D3, where what was read ahead lies until then, and what of them was not
    /// requested will not be. Until [`answered`](Self::answered) they are ahead of the
    /// client, and in nobody's budget but the door's own.
    pub fn asked(&mut self, now: Time, stream: StreamId, bytes: u64) {
        self.wake(now);
        if self.change(stream, |known| known.ask(bytes)).is_some() {
            self.touch(stream);
        }
    }

    /// The client has got its answer: D1, until the next sample.
    pub fn answered(&mut self, now: Time, stream: StreamId, bytes: u64) {
        self.wake(now);
        if self.change(stream, |known| known.answer(bytes)).is_some() {
            self.touch(stream);
        }
    }

    /// Ends a stream whose client asks no more. What was read ahead of it lies with the
    /// nodes, and counts no longer.
    pub fn leave(&mut self, now: Time, stream: StreamId) {
        let left = self.change(stream, |known| {
            let left = known.requested_bytes;
            known.leave_requested(left);
            left
        });
        if let Some(left) = left {
            self.figures.unclaimed_bytes += left - self.forget_decisions(stream);
        }
        self.close(now, stream, End::Done);
    }

    /// How the connection is, after a completed send.
    pub fn sample(&mut self, now: Time, stream: StreamId, sample: TcpSample) {
        self.wake(now);
        let heeds_trouble = self.policy.switches.edrc;
        let mut residence = std::mem::take(&mut self.figures.residence);
        self.change(stream, |known| {
            known.sample(now, sample, heeds_trouble, &mut residence);
        });
        self.figures.residence = residence;
        self.touch(stream);
    }

    /// A stream ends, or may end. What is known of its connection, for the next one
    /// ([`resume`](Self::resume)).
    pub fn close(&mut self, now: Time, stream: StreamId, end: End) -> Option<Pace> {
        self.wake(now);
        if end == End::PeerFinished {
            self.change(stream, |known| known.is_held = true);
            self.touch(stream);
            return None;
        }
        let mut known = self.streams.remove(&stream)?;
        self.subtract(&known);
        self.unschedule(stream, &known);
        // What was decided and not polled has not happened.
        let unasked_bytes = self.forget_decisions(stream);
        known.left_all(now, &mut self.figures.residence);
        match end {
            End::Done | End::PeerFinished => self.figures.thrown_away_bytes += known.ready_bytes,
            End::Reset => self.figures.dead_bytes += known.ready_bytes,
        }
        self.withdraw(stream, known.requested_bytes - unasked_bytes);
        self.check_memory();
        Some(Pace::new(known.estimator, now))
    }

    /// What is to be done next. To be asked until there is nothing.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        loop {
            if let Some(decision) = self.decisions.pop_front() {
                return Some(decision);
            }
            if !self.take_turn() {
                return None;
            }
        }
    }

    /// When [`timeout`](Self::timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(when, _)| when)
    }

    /// Does what is due by now.
    pub fn timeout(&mut self, now: Time) {
        self.wake(now);
        while let Some(&(when, stream)) = self.timers.first() {
            if when > now {
                break;
            }
            self.timers.pop_first();
            self.expire(stream);
        }
    }

    /// What of a stream is neither requested nor asked for.
    #[must_use]
    pub fn remaining_bytes(&self, stream: StreamId) -> Option<u64> {
        self.streams.get(&stream).map(|known| known.remaining_bytes)
    }

    /// T_n = (D1 + D2 + D3) / B_n without the last `bytes` that were requested: in this time
    /// the stream runs dry unless they come. Their deadline for a disk. None while its rate is
    /// unknown.
    #[must_use]
    pub fn margin(&self, stream: StreamId, bytes: u64) -> Option<Duration> {
        let known = self.streams.get(&stream)?;
        let rate = known.estimator.rate()?;
        let ahead = known.look(self.now, false).ahead_bytes();
        let ahead = ahead.saturating_sub(bytes);
        Some(crate::number::seconds(ahead as f64 / rate.max(1) as f64))
    }

    /// The same in whole milliseconds, as a node is told it; 0 while the rate is unknown.
    #[must_use]
    pub fn patience_ms(&self, stream: StreamId, bytes: u64) -> u32 {
        let margin = self.margin(stream, bytes).unwrap_or_default();
        u32::try_from(margin.as_millis()).unwrap_or(u32::MAX)
    }

    /// Keeps the last `records_max` decisions from now on, at most
    /// [`DELIVERY_RECORDS_MAX`](crossdock_limits::DELIVERY_RECORDS_MAX); with 0 none.
    pub fn record(&mut self, records_max: usize) {
        self.recorder.keep(records_max);
    }

    /// The decisions that were kept, the oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.recorder.iter()
    }

    /// What was counted, and how things are now.
    #[must_use]
    pub fn figures(&self) -> DeliveryFigures {
        DeliveryFigures {
            buffering_time: horizon(&self.pool(StreamClass::Foreground), None).buffering,
            memory_bytes: self.policy.memory_bytes,
            memory_used: self.memory_used(),
            rate_net: self.totals.iter().map(|totals| totals.rate).sum(),
            streams: self.streams.len(),
            waiting: self.lines.iter().map(Line::len).sum(),
            ..self.figures.as_ref().clone()
        }
    }

    /// D2 + D3 of all streams, and of those that died without EDRC.
    fn memory_used(&self) -> u64 {
        let living: u64 = self.totals.iter().map(|totals| totals.memory_bytes).sum();
        living + self.dying_bytes
    }

    fn pool(&self, class: StreamClass) -> Pool {
        let [foreground, background] = self.totals;
        // The background counts what is before it; the foreground does not see it.
        let behind = match class {
            StreamClass::Foreground => Totals::default(),
            StreamClass::Background => background,
        };
        let memory_used = match self.config.has(Mutation::OverrunBudget) {
            true => 0,
            false => self.memory_used(),
        };
        Pool {
            policy: self.policy,
            disks: self.worst_disks(),
            streams: foreground.active + behind.active,
            rate_net: foreground.rate.saturating_add(behind.rate),
            rate_roots: foreground.rate_roots + behind.rate_roots,
            memory_used,
            background_used: background.memory_bytes,
            unsent_bytes: foreground.unsent_bytes.saturating_add(behind.unsent_bytes),
        }
    }

    fn worst_disks(&self) -> Disks {
        let unknown = DiskProfile::default();
        let profiles = || {
            self.disks
                .values()
                .chain(self.disks.is_empty().then_some(&unknown))
        };
        Disks {
            count: u32::try_from(profiles().count()).unwrap_or(u32::MAX),
            positioning: profiles()
                .map(|disk| disk.positioning)
                .max()
                .unwrap_or_default(),
            sequential_bytes_per_second: profiles()
                .map(|disk| disk.sequential_bytes_per_second)
                .min()
                .unwrap_or_default(),
            load_percent: profiles().map(|disk| disk.load_percent).max().unwrap_or(0),
        }
    }

    /// Changes a stream, and the sums with it.
    fn change<R>(&mut self, stream: StreamId, act: impl FnOnce(&mut Stream) -> R) -> Option<R> {
        let known = self.streams.get_mut(&stream)?;
        let totals = &mut self.totals[known.class as usize];
        totals.subtract(known);
        let result = act(known);
        totals.add(known);
        self.check_memory();
        Some(result)
    }

    fn subtract(&mut self, known: &Stream) {
        self.totals[known.class as usize].subtract(known);
    }

    fn check_memory(&mut self) {
        let used = self.memory_used();
        self.figures.memory_used_max = self.figures.memory_used_max.max(used);
        let is_within =
            used <= self.policy.memory_bytes || self.config.has(Mutation::OverrunBudget);
        assert!(is_within, "{used} bytes are read ahead: over the budget");
    }

    /// Requests of a stream that has ended: taken out, or left to come for nobody.
    fn withdraw(&mut self, stream: StreamId, requested_bytes: u64) {
        if requested_bytes == 0 {
            return;
        }
        if !self.policy.switches.edrc || self.config.has(Mutation::KeepDead) {
            self.dying.insert(stream, requested_bytes);
            self.dying_bytes += requested_bytes;
            return;
        }
        self.figures.withdrawn_total += 1;
        self.figures.withdrawn_bytes += requested_bytes;
        self.decisions.push_front(Decision::Withdraw { stream });
    }

    fn came_for_nobody(&mut self, stream: StreamId, bytes: u64, is_read: bool) {
        self.figures.dead_bytes += if is_read { bytes } else { 0 };
        let Some(left) = self.dying.get_mut(&stream) else {
            return;
        };
        let bytes = bytes.min(*left);
        *left -= bytes;
        self.dying_bytes -= bytes;
        if *left == 0 {
            self.dying.remove(&stream);
        }
    }
}

impl Totals {
    fn add(&mut self, stream: &Stream) {
        self.active += u64::from(stream.is_active());
        self.rate = self.rate.saturating_add(stream.rate_bytes());
        self.rate_roots += stream.rate_bytes().isqrt();
        self.memory_bytes += stream.memory_bytes();
        self.unsent_bytes = self
            .unsent_bytes
            .saturating_add(stream.counted_unsent_bytes());
    }

    fn subtract(&mut self, stream: &Stream) {
        self.active -= u64::from(stream.is_active());
        self.rate = self.rate.saturating_sub(stream.rate_bytes());
        self.rate_roots -= stream.rate_bytes().isqrt();
        self.memory_bytes -= stream.memory_bytes();
        self.unsent_bytes = self
            .unsent_bytes
            .saturating_sub(stream.counted_unsent_bytes());
    }
}
