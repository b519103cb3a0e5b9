//! The store machine: its state, and what each input sets in motion.
//!
//! Everything that changes becomes a [`Record`], which is appended to the
//! journal and applied to memory in the same step; who waits for it is answered
//! when its position is durable. So memory is always what replay would make of
//! all records so far, plus what is unstable.
//!
//! [`Record`]: crate::record::Record

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_disk::{
    DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};
use crossdock_log::Position;
use crossdock_metrics::Histogram;
use crossdock_names::ObjectId;
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, PinId};
use crossdock_types::{BLOCK_BYTES, Scatter, Time};

use crate::ahead::Ahead;
use crate::bad::BadBlocks;
use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::commit::CommitWait;
use crate::flight::Flight;
use crate::index::{IndexAnswer, IndexCall, IndexReply, IndexRequest, RingPoint, Walker};
use crate::interface::{
    DiskPurpose, Mutation, StoreConfig, StoreDisk, StoreEffect, StoreInput, StoreStatus,
};
use crate::journal::{Journal, RING_OFFSET, RingReplay};
use crate::list::{ChangesWait, ListWait};
use crate::mending::Mending;
use crate::mover::Mover;
use crate::object::{Entry, Object};
use crate::opening::Opening;
use crate::pins::{Holds, Pin};
use crate::read::{ReadWait, Reader, Wanted};
use crate::reap::Reaping;
use crate::runs::{DiskRange, Window};
use crate::scrub::Scrub;
use crate::settle::Settling;
use crate::space::Space;
use crate::under_way::ReadsUnderWay;
use crate::waiting::Waiting;

/// Asked of whoever is told "busy".
pub(crate) const RETRY_AFTER_MS: u32 = 20;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file system that was full may have room again after this time.
const GROW_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// 256 MiB.
const METADATA_RESERVE_BLOCKS_MAX: u64 = (256 << 20) / BLOCK;

/// The object store of one node.
///
/// Feed it [`StoreInput`]s, carry out its [`StoreEffect`]s in order, call back
/// at [`poll_timeout`](Self::poll_timeout). It opens by itself; requests before
/// [`StoreEffect::Opened`] are answered "busy".
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) now: Time,
    pub(crate) phase: Phase,
    pub(crate) effects: VecDeque<StoreEffect>,
    pub(crate) operations: BTreeMap<u64, DiskUse>,
    pub(crate) next_token: u64,
    pub(crate) store: u64,

    pub(crate) journal: Journal,
    pub(crate) unanswered: BTreeMap<Position, Vec<NodeReply>>,
    pub(crate) checkpoint: Checkpoint,

    pub(crate) objects: BTreeMap<ObjectId, Entry>,
    pub(crate) windows: BTreeMap<(u64, u64), Window>,
    pub(crate) tick: u64,
    pub(crate) space: Space,
    pub(crate) is_growing: bool,
    /// A disk that has refused to grow is asked again from then on.
    grow_again_at: Time,
    pub(crate) totals: Totals,
    pub(crate) dead: BTreeSet<u64>,

    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) commits: BTreeMap<u64, CommitWait>,
    /// Flights that are on the disk, and in no flush.
    pub(crate) written: BTreeSet<u64>,
    pub(crate) flushing: Option<Vec<u64>>,
    /// Objects with an overlay.
    pub(crate) overlaid: BTreeSet<ObjectId>,
    pub(crate) settling: Settling,
    pub(crate) reaping: Reaping,

    pub(crate) cache: Cache,
    pub(crate) reads: BTreeMap<u64, ReadWait>,
    pub(crate) under_way: ReadsUnderWay,
    pub(crate) ahead: Ahead,
    pub(crate) holds: Holds,
    /// Those of pins alone.
    pub(crate) pinned: Holds,
    /// Blocks that are being written where they are already.
    pub(crate) written_again: BTreeSet<u64>,
    pub(crate) pins: BTreeMap<PinId, Pin>,
    pub(crate) next_pin: u64,
    pub(crate) lists: VecDeque<ListWait>,
    pub(crate) changes: VecDeque<ChangesWait>,
    pub(crate) scrub: Scrub,
    pub(crate) mover: Mover,
    pub(crate) waiting: Waiting,
    pub(crate) counters: Counters,
    pub(crate) bad_blocks: BadBlocks,
    /// Why the index answers nothing any more.
    pub(crate) index_failure: Option<String>,
}

/// How far the store has got.
#[derive(Debug)]
pub(crate) enum Phase {
    Opening(Box<Opening>),
    Open,
    /// A disk lost writes or the index is gone: nothing is changed any more.
    Failed(String),
}

/// Sums over all objects.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    pub(crate) reserved: u64,
    pub(crate) next_serial: u64,
    pub(crate) next_stamp: u64,
    pub(crate) volatile_bytes: u64,
    pub(crate) flight_bytes: u64,
    pub(crate) promised_blocks: u64,
    pub(crate) dirty_entries: usize,
}

/// Counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) journal_flushes: u64,
    pub(crate) data_flushes: u64,
    pub(crate) checkpoints: u64,
    pub(crate) media_errors: u64,
    pub(crate) repaired_blocks: u64,
    pub(crate) moved_blocks: u64,
    pub(crate) miss_blocks: u64,
    /// Reads found them on their way.
    pub(crate) shared_blocks: u64,
    pub(crate) ahead_blocks: u64,
}

/// What a disk request is for.
#[derive(Debug)]
pub(crate) enum DiskUse {
    Opening,
    JournalWrite,
    DataWrite {
        flight: u64,
        /// It carries nothing of a client's.
        is_own: bool,
    },
    DataFlush,
    DataRead {
        read: u64,
        wanted: Vec<Wanted>,
    },
    /// What such a read has given is not all right.
    ReadOther(Box<Mending>),
    /// A block that was found elsewhere.
    WriteAgain(DiskRange),
    Grow(u64),
}

impl Store {
    /// A store that begins to open; [`StoreEffect::Opened`] tells the outcome.
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        let blocks = |bytes: u64| bytes / BLOCK;
        let start = RingReplay::new(RingPoint {
            offset: 0,
            chain: crossdock_log::ChainPosition::start(),
        });
        let mut store = Self {
            now: Time::default(),
            phase: Phase::Opening(Box::default()),
            effects: VecDeque::new(),
            operations: BTreeMap::new(),
            next_token: 1,
            store: 0,
            journal: Journal::new(0, config.journal_bytes.saturating_sub(RING_OFFSET), &start),
            unanswered: BTreeMap::new(),
            checkpoint: Checkpoint::default(),
            objects: BTreeMap::new(),
            windows: BTreeMap::new(),
            tick: 0,
            space: Space::new(blocks(config.capacity_bytes), blocks(config.growth_bytes)),
            is_growing: false,
            grow_again_at: Time::default(),
            totals: Totals::default(),
            dead: BTreeSet::new(),
            flights: BTreeMap::new(),
            commits: BTreeMap::new(),
            written: BTreeSet::new(),
            flushing: None,
            overlaid: BTreeSet::new(),
            settling: Settling::default(),
            reaping: Reaping::default(),
            cache: Cache::new(config.cache_bytes),
            reads: BTreeMap::new(),
            under_way: ReadsUnderWay::default(),
            ahead: Ahead::new(config.cache_bytes),
            holds: Holds::default(),
            pinned: Holds::default(),
            written_again: BTreeSet::new(),
            pins: BTreeMap::new(),
            next_pin: 1,
            lists: VecDeque::new(),
            changes: VecDeque::new(),
            scrub: Scrub::default(),
            mover: Mover::default(),
            waiting: Waiting::default(),
            counters: Counters::default(),
            bad_blocks: BadBlocks::default(),
            index_failure: None,
            config,
        };
        store.set_room();
        store.begin_opening();
        store
    }

    /// Takes one input at the time `now`, a turn of its own.
    pub fn handle(&mut self, now: Time, input: StoreInput) {
        self.gather(now, input);
        self.end_turn();
    }

    /// The same; what it has for the journal waits until the turn ends. So
    /// inputs that came together share a frame.
    pub fn gather(&mut self, now: Time, input: StoreInput) {
        self.now = self.now.max(now);
        match input {
            StoreInput::Request(call) => self.handle_request(call),
            StoreInput::Cancel(call) => self.cancel(call),
            StoreInput::Postpone(call, until) => self.postpone(call, Some(until)),
            StoreInput::Resume(call) => self.postpone(call, None),
            StoreInput::Disk(disk, completion) => self.handle_disk(disk, completion),
            StoreInput::Index(reply) => self.handle_index(reply),
            StoreInput::Timeout => self.handle_timeout(),
            StoreInput::Scrub { blocks_max } => self.begin_scrub(blocks_max),
            StoreInput::Defrag(step) => self.begin_moving(step),
            StoreInput::Evacuate {
                is_first,
                blocks_max,
            } => self.begin_evacuating(is_first, blocks_max),
            StoreInput::Space {
                capacity_bytes,
                closed,
            } => self.take_space(capacity_bytes, closed),
            StoreInput::Drain => self.checkpoint.is_draining = true,
        }
        self.pump();
    }

    /// Sends to the journal what was gathered, once the frame before is durable, after a step of
    /// what goes on in the background.
    pub fn end_turn(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.settle();
            self.write_back();
            self.flush_data();
            self.advance_checkpoint();
            self.evict_maps();
            self.write_frame();
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<StoreEffect> {
        self.effects.pop_front()
    }

    /// When [`StoreInput::Timeout`] is wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if !matches!(self.phase, Phase::Open) {
            return None;
        }
        let pins = self.pins.values().map(|pin| pin.expires).min();
        let writeback = (self.totals.volatile_bytes > 0 || !self.flights.is_empty())
            .then(|| self.checkpoint.last_writeback + self.config.writeback_delay);
        // One that is under way goes on by itself, however late it is.
        let is_resting = !self.checkpoint.is_busy() && !self.is_settling();
        let checkpoint = (is_resting && self.has_unsaved_changes())
            .then(|| self.checkpoint.last_durable + self.config.checkpoint_interval);
        let waiting = self.waiting.next_deadline();
        let is_starved = self.settling.is_starved && self.space.is_stuck();
        let growth = (is_starved && !self.checkpoint.is_quiet()).then_some(self.grow_again_at);
        [pins, writeback, checkpoint, waiting, growth]
            .into_iter()
            .flatten()
            .min()
    }

    /// Numbers for `status` and metrics.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        StoreStatus {
            capacity_bytes: self.space.capacity() * BLOCK,
            allocated_bytes: self.space.committed() * BLOCK,
            free_bytes: self.spare_blocks() * BLOCK,
            reserved_bytes: self.totals.reserved * BLOCK,
            objects: self.totals.objects,
            journal_bytes: self.journal.ring_bytes(),
            journal_used_bytes: self.journal.used_bytes(),
            dirty_bytes: self.dirty_bytes(),
            frames: self.journal.frames_written,
            frame_bytes: self.journal.bytes_written,
            journal_trims: self.journal.trims,
            journal_flushes: self.counters.journal_flushes,
            data_flushes: self.counters.data_flushes,
            checkpoints: self.counters.checkpoints,
            media_errors: self.counters.media_errors,
            repaired_blocks: self.counters.repaired_blocks,
            moved_blocks: self.counters.moved_blocks,
            bad_blocks: self.bad_blocks.len() as u64,
            cache_hit_blocks: self.cache.stats().hit_blocks + self.counters.shared_blocks,
            cache_miss_blocks: self.counters.miss_blocks,
            read_ahead_blocks: self.counters.ahead_blocks,
            cache_evicted_blocks: self.cache.stats().evicted_blocks,
            cache_used_bytes: self.cache.used_bytes() as u64,
            cache_capacity_bytes: self.config.cache_bytes as u64,
            has_failed: matches!(self.phase, Phase::Failed(_)),
        }
    }

    /// Blocks that new data can take.
    pub(crate) fn spare_blocks(&self) -> u64 {
        self.space.free().saturating_sub(
            self.reserve_blocks()
                + self.metadata_reserve_blocks()
                + self.totals.promised_blocks
                + self.totals.reserved,
        )
    }

    /// Makes the read cache larger or smaller; what is too much is forgotten at once.
    pub fn set_cache_bytes(&mut self, cache_bytes: usize) {
        self.config.cache_bytes = cache_bytes;
        self.cache.set_capacity(cache_bytes);
        self.ahead.set_cache_bytes(cache_bytes);
    }

    /// How many records each journal frame has: what shares one durable write.
    #[must_use]
    pub fn frame_records(&self) -> &Histogram {
        &self.journal.frame_records
    }

    fn handle_request(&mut self, call: Call<NodeRequest>) {
        match &self.phase {
            Phase::Opening(_) => self.refuse(call.id, busy()),
            Phase::Failed(_) | Phase::Open => self.begin(call),
        }
    }

    fn handle_disk(&mut self, disk: StoreDisk, completion: DiskCompletion) {
        let Some(operation) = self.operations.remove(&completion.token.0) else {
            return; // Not ours: the shell mixed something up; nothing depends on it.
        };
        match (operation, completion.result) {
            (DiskUse::Opening, result) => self.opening_disk(disk, result),
            (DiskUse::DataRead { read, wanted }, result) => {
                self.read_ended((completion.token, read), wanted, result);
            }
            (DiskUse::ReadOther(mending), result) => self.other_read(mending, result),
            (DiskUse::WriteAgain(range), _) => self.was_written_again(range),
            (DiskUse::Grow(blocks), result) => self.grow_ended(blocks, result),
            (operation, Err(error)) => self.fail(&format!("{disk:?} disk, {operation:?}: {error}")),
            (DiskUse::JournalWrite, Ok(_)) => self.frame_written(),
            (DiskUse::DataWrite { flight, .. }, Ok(_)) => self.flight_written(flight),
            (DiskUse::DataFlush, Ok(_)) => self.data_flushed(),
        }
    }

    fn handle_index(&mut self, reply: IndexReply) {
        if self.index_failure.is_some() {
            return; // Nobody waits for it any more.
        }
        match reply.0 {
            Err(what) => self.fail_index(&what),
            Ok(IndexAnswer::Started { meta, free, dead }) => self.index_started(meta, free, dead),
            Ok(IndexAnswer::Loaded(loaded)) => self.index_loaded(*loaded),
            Ok(IndexAnswer::Applied { number }) => self.batch_applied(number),
            Ok(IndexAnswer::List(objects)) => self.list_answered(objects),
            Ok(IndexAnswer::NextWindows { serial, windows }) => self.reap_found(serial, &windows),
            Ok(IndexAnswer::NextObject(Walker::Scrub, object)) => self.scrub_found(object),
            Ok(IndexAnswer::NextObject(Walker::Mover, object)) => self.mover_found(object),
            Ok(IndexAnswer::Reserved { blocks, is_there }) => match is_there {
                true => self.extend_data(blocks),
                false => self.grow_ended(blocks, Err(DiskError::NoSpace)),
            },
            Ok(IndexAnswer::Changes {
                changes,
                more_after,
            }) => {
                self.changes_answered(changes, more_after);
            }
        }
    }

    fn handle_timeout(&mut self) {
        self.expire_pins();
        self.expire_waiting();
        if matches!(self.phase, Phase::Open) {
            self.may_grow_again();
            self.write_back_old();
        }
    }

    /// Whatever can go on, goes on.
    fn pump(&mut self) {
        match self.phase {
            Phase::Opening(_) => return,
            Phase::Failed(_) => {
                self.rest_failed();
                return;
            }
            Phase::Open => {}
        }
        self.release_freed();
        self.retry_waiting();
        self.reap();
    }

    /// Sends the next frame, once the one before is durable.
    fn write_frame(&mut self) {
        let Some(frame) = self.journal.next_frame() else {
            return;
        };
        // Memory is now exactly what the records up to this frame make it.
        self.collect_batch();
        let write = DiskOperation::Write {
            offset_bytes: frame.offset_bytes,
            pieces: vec![frame.padded],
            is_durable: !self.config.has(Mutation::NoFlush),
        };
        self.counters.journal_flushes += 1;
        self.submit(StoreDisk::Journal, DiskUse::JournalWrite, write);
        if self.config.has(Mutation::ReplyBeforeFlush) {
            self.answer_up_to(frame.position);
        }
    }

    fn frame_written(&mut self) {
        let durable = self.journal.frame_durable();
        self.answer_up_to(durable);
        self.send_batch(durable);
    }

    fn answer_up_to(&mut self, durable: Position) {
        while let Some(entry) = self.unanswered.first_entry()
            && *entry.key() <= durable
        {
            let replies = entry.remove();
            self.effects
                .extend(replies.into_iter().map(StoreEffect::Reply));
        }
    }

    fn grow_ended(&mut self, blocks: u64, result: Result<DiskOutput, DiskError>) {
        self.is_growing = false;
        match result {
            Ok(_) => {
                self.space.set_grown(blocks);
                self.record(crate::record::Record::Grown { blocks });
                self.space.may_grow();
                self.settling.is_starved = false;
            }
            // The file system is full: what the disk has is all there is.
            Err(_) => {
                self.space.cannot_grow();
                self.grow_again_at = self.now + GROW_AGAIN_AFTER;
            }
        }
    }

    /// The disk has refused to grow some time ago: it may have room by now.
    pub(crate) fn may_grow_again(&mut self) {
        if self.space.is_stuck() && self.now >= self.grow_again_at {
            self.space.may_grow();
            self.settling.is_starved = false;
        }
    }

    /// The disk is to have this many blocks, once the index has room for them: a
    /// disk that is full of data must still be able to forget some.
    pub(crate) fn grow(&mut self, blocks: u64) {
        if !std::mem::replace(&mut self.is_growing, true) {
            self.ask_index(IndexCall::Reserve { blocks });
        }
    }

    fn extend_data(&mut self, blocks: u64) {
        let length_bytes = blocks * BLOCK;
        let grow = DiskOperation::Grow { length_bytes };
        self.submit(StoreDisk::Data, DiskUse::Grow(blocks), grow);
    }

    pub(crate) fn submit(
        &mut self,
        disk: StoreDisk,
        purpose: DiskUse,
        operation: DiskOperation,
    ) -> DiskToken {
        let token = self.next_token;
        self.next_token += 1;
        let told = self.purpose_of(disk, &purpose);
        self.operations.insert(token, purpose);
        let token = DiskToken(token);
        let request = DiskRequest { token, operation };
        self.effects
            .push_back(StoreEffect::Disk(disk, told, request));
        token
    }

    fn purpose_of(&self, disk: StoreDisk, purpose: &DiskUse) -> DiskPurpose {
        match purpose {
            DiskUse::JournalWrite => DiskPurpose::Journal,
            DiskUse::Opening if disk == StoreDisk::Journal => DiskPurpose::Journal,
            DiskUse::DataRead { read, .. } => match self.reads.get(read).map(ReadWait::reader) {
                Some(Reader::Client(call)) => DiskPurpose::Read(call),
                _ => DiskPurpose::Upkeep,
            },
            DiskUse::ReadOther(mending) => {
                match self.reads.get(&mending.fetched.read).map(ReadWait::reader) {
                    Some(Reader::Client(call)) => DiskPurpose::Read(call),
                    _ => DiskPurpose::Upkeep,
                }
            }
            DiskUse::DataWrite { is_own: true, .. } | DiskUse::WriteAgain(_) => DiskPurpose::Upkeep,
            DiskUse::DataWrite { .. } | DiskUse::DataFlush => DiskPurpose::Write,
            DiskUse::Grow(_) | DiskUse::Opening => DiskPurpose::Write,
        }
    }

    pub(crate) fn submit_read(&mut self, range: DiskRange, purpose: DiskUse) -> DiskToken {
        #[expect(clippy::cast_possible_truncation, reason = "bounded by a request")]
        let buffer = Scatter::zeroed((range.blocks * BLOCK) as usize);
        let offset_bytes = range.block * BLOCK;
        let read = DiskOperation::Read {
            offset_bytes,
            buffer,
        };
        self.submit(StoreDisk::Data, purpose, read)
    }

    pub(crate) fn ask_index(&mut self, call: IndexCall) {
        self.effects
            .push_back(StoreEffect::Index(IndexRequest(call)));
    }

    /// Answers when `position` is durable.
    pub(crate) fn reply_at(&mut self, position: Position, id: CallId, answer: NodeAnswer) {
        let outcome = Ok(answer);
        let reply = NodeReply { id, outcome };
        if position <= self.journal.durable() {
            self.effects.push_back(StoreEffect::Reply(reply));
        } else {
            self.unanswered.entry(position).or_default().push(reply);
        }
    }

    pub(crate) fn reply(&mut self, id: CallId, answer: NodeAnswer) {
        let outcome = Ok(answer);
        self.effects
            .push_back(StoreEffect::Reply(NodeReply { id, outcome }));
    }

    pub(crate) fn refuse(&mut self, id: CallId, error: NodeError) {
        let outcome = Err(error);
        self.effects
            .push_back(StoreEffect::Reply(NodeReply { id, outcome }));
    }

    pub(crate) fn media(&self, what: impl Into<String>) -> NodeError {
        NodeError::Media {
            node: self.config.node,
            what: what.into(),
        }
    }

    /// Nothing can be made durable any more: everybody who waits is told, and
    /// only reads go on.
    pub(crate) fn fail(&mut self, what: &str) {
        if matches!(self.phase, Phase::Opening(_)) {
            self.opening_failed(crate::OpenError::Disk {
                what: what.to_owned(),
            });
            return;
        }
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.phase = Phase::Failed(what.to_owned());
        self.effects.push_back(StoreEffect::Failed(what.to_owned()));
        let error = self.media(what);
        let mut waiting: Vec<CallId> = Vec::new();
        for (_, replies) in std::mem::take(&mut self.unanswered) {
            waiting.extend(replies.iter().map(|reply| reply.id));
        }
        for (_, flight) in std::mem::take(&mut self.flights) {
            waiting.extend(flight.reply.map(|(id, _)| id));
        }
        waiting.extend(
            std::mem::take(&mut self.commits)
                .into_values()
                .map(|wait| wait.call),
        );
        waiting.extend(self.waiting.take_changes());
        for id in waiting {
            self.refuse(id, error.clone());
        }
        self.fail_mover(&error);
    }

    pub(crate) fn object(&self, id: &ObjectId) -> Option<&Object> {
        self.objects.get(id)?.object.as_deref()
    }

    pub(crate) fn object_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        self.objects.get_mut(id)?.object.as_deref_mut()
    }

    pub(crate) const fn dirty_bytes(&self) -> u64 {
        self.totals.volatile_bytes + self.totals.flight_bytes
    }

    /// Blocks that only the store's own work may take: what is merged needs a
    /// place before the old one is free.
    pub(crate) const fn reserve_blocks(&self) -> u64 {
        match self.space.capacity() / 64 {
            share @ 8..=2048 => share,
            0..8 => 8,
            _ => 2048,
        }
    }

    /// Blocks beside those that only logs and checkpoints of sites may take: a
    /// site whose disk is full must still be able to log that something goes.
    pub(crate) fn metadata_reserve_blocks(&self) -> u64 {
        (self.space.capacity() / 64).min(METADATA_RESERVE_BLOCKS_MAX)
    }
}

pub(crate) const fn busy() -> NodeError {
    NodeError::Busy {
        retry_after_ms: RETRY_AFTER_MS,
    }
}
