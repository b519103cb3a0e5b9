//! Checkpoints without stopping.
//!
//! The start of replay is noted first; then the state is written chunk by
//! chunk while the site works on. Every change is an absolute value, so what a
//! chunk shows of changes made meanwhile does no harm: replay makes them
//! again, in order. The trailer, which alone makes a checkpoint valid, is
//! written only when the log is durable beyond everything that a chunk may
//! show, and the small files' backing writes are.
//!
//! The start is the beginning of a frame. Records that were being gathered for
//! it lie behind the start and are in the chunks nevertheless: the small files
//! know them by their number and leave them out, unverified (their bytes were
//! there before the trailer was); everything else is set to the same value
//! again.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use crossdock_directory::{PieceWriter, Scan};
use crossdock_locks::LockChange;
use crossdock_log::Position;
use crossdock_names::{NodeId, ObjectClass, ObjectId};
use crossdock_peer::{NodeRequest, Order, Stability};
use crossdock_smallfile::{Checkpoint as SmallCheckpoint, CheckpointState};
use crossdock_types::{Payload, Time, WallTime};

use crate::calls::{Answered, Target};
use crate::chunks::ChunkWriter;
use crate::log::LogPoint;
use crate::promises::Promise;
use crate::record::Change;
use crate::site::{Purpose, Site};

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct CheckpointRun {
    number: u32,
    start: LogPoint,
    writer: ChunkWriter,
    waiting: BTreeSet<NodeId>,
    stage: Stage,
    scan: Scan,
    small: SmallCheckpoint,
    /// Number of the remembered reply that is written next.
    reply: u64,
    /// Number of the intention that is written next.
    intention: u64,
    /// The file whose locks were taken last, and those of them that are left.
    lock_file: Option<u64>,
    lock_changes: VecDeque<LockChange>,
    /// Keys that are left.
    keys: VecDeque<Change>,
    /// Promises that are left.
    promises: VecDeque<Promise>,
    failed: bool,
    begun: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Names,
    SmallFiles,
    Keys,
    Replies,
    Intentions,
    Locks,
    Promises,
    /// All is written; the log has to be durable up to there.
    Draining(Position),
    Trailer,
}

/// Which call of a checkpoint was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointStep(u32);

impl Site {
    /// Begins a checkpoint when enough has been logged; goes on with one.
    pub(crate) fn advance_checkpoint(&mut self, now: Time, wall: WallTime) {
        let limits = &self.config.limits;
        let wanted = limits.checkpoint_after(self.checkpoint_bytes);
        let due = self.log_mut().bytes_since_checkpoint >= wanted;
        if self.checkpoint.is_none() && due && !self.members.is_empty() {
            self.begin_checkpoint(now, wall);
        }
        let Some(mut run) = self.checkpoint.take() else {
            return;
        };
        if !run.waiting.is_empty() {
            self.checkpoint = Some(run);
            return;
        }
        if run.failed || self.state.small.checkpoint_state(&run.small) == CheckpointState::Broken {
            // Another one begins after as many log bytes again.
            self.remove_object(now, ObjectClass::Checkpoint, run.number);
            return;
        }
        if run.stage == Stage::Trailer {
            self.checkpoint_is_valid(now, &run);
            return;
        }
        if let Some(chunk) = self.next_chunk(&mut run) {
            self.write_chunk(now, &mut run, chunk);
        }
        self.checkpoint = Some(run);
    }

    /// Begins a checkpoint now, whatever has been logged.
    fn begin_checkpoint(&mut self, now: Time, wall: WallTime) {
        // So that the chunks show nothing that is in memory only.
        self.log_volatile(now, wall);
        let number = self.next_checkpoint;
        self.next_checkpoint += 1;
        self.log_mut().bytes_since_checkpoint = 0;
        let mut run = CheckpointRun {
            number,
            start: self.log_mut().point(),
            writer: ChunkWriter::default(),
            waiting: BTreeSet::new(),
            stage: Stage::Names,
            scan: Scan::default(),
            small: self.state.small.begin_checkpoint(),
            reply: 0,
            intention: 0,
            lock_file: None,
            lock_changes: VecDeque::new(),
            keys: VecDeque::new(),
            promises: VecDeque::new(),
            failed: false,
            begun: now,
        };
        for member in self.members.clone() {
            let request = NodeRequest::Create {
                object: self.checkpoint_object(number),
                reservation_bytes: 0,
                attributes: Bytes::new(),
                context: self.context(),
                order: Order::Given(self.next_version()),
            };
            run.waiting.insert(member);
            let purpose = Purpose::Checkpoint(CheckpointStep(number));
            self.send(now, Target::Node(member), request, purpose);
        }
        self.checkpoint = Some(run);
    }

    pub(crate) fn checkpoint_answered(
        &mut self,
        _now: Time,
        step: CheckpointStep,
        answered: Answered<Purpose>,
    ) {
        if let Some(run) = &mut self.checkpoint
            && run.number == step.0
        {
            run.waiting.remove(&answered.node);
            run.failed |= answered.outcome.is_err();
        }
    }

    /// Removes one of the site's objects everywhere; nobody waits for it.
    pub(crate) fn remove_object(&mut self, now: Time, class: ObjectClass, number: u32) {
        for member in self.members.clone() {
            let request = NodeRequest::Remove {
                object: ObjectId::of_site(class, self.config.site, number),
                context: self.context(),
                order: Order::Given(self.next_version()),
            };
            self.send(now, Target::Node(member), request, Purpose::Removed);
        }
    }

    fn next_chunk(&mut self, run: &mut CheckpointRun) -> Option<Payload> {
        let bytes_max = self.config.limits.checkpoint_chunk_bytes;
        let mut payload = Vec::with_capacity(bytes_max + 1024);
        while payload.len() < bytes_max {
            match self.next_change(run, bytes_max - payload.len()) {
                Some(change) => change.encode(&mut payload),
                None => break,
            }
        }
        if !payload.is_empty() {
            return Some(run.writer.changes(&payload));
        }
        if !matches!(run.stage, Stage::Draining(_)) {
            run.stage = Stage::Draining(self.log_mut().newest());
        }
        let Stage::Draining(position) = run.stage else {
            return None;
        };
        let durable = self.log_mut().durable() >= position;
        let settled = self.state.small.checkpoint_state(&run.small) == CheckpointState::Ready;
        if !durable || !settled {
            return None;
        }
        run.stage = Stage::Trailer;
        Some(run.writer.trailer(&run.start))
    }

    /// The next piece of the state; at the end of a part goes to the next.
    fn next_change(&mut self, run: &mut CheckpointRun, bytes_max: usize) -> Option<Change> {
        loop {
            match run.stage {
                Stage::Names => {
                    let piece = self.next_piece(&mut run.scan, bytes_max);
                    if let Some(piece) = piece {
                        return Some(Change::Piece(piece));
                    }
                    run.stage = Stage::SmallFiles;
                }
                Stage::SmallFiles => {
                    if let Some(chunk) = run.small.next_chunk(bytes_max.max(4096)) {
                        return Some(Change::SmallChunk(chunk.into()));
                    }
                    run.keys = self.state.keys.changes().collect();
                    run.stage = Stage::Keys;
                }
                Stage::Keys => {
                    if let Some(key) = run.keys.pop_front() {
                        return Some(key);
                    }
                    run.stage = Stage::Replies;
                }
                Stage::Replies => {
                    if let Some((behind, key, reply)) = self.state.duplicates.next_from(run.reply) {
                        run.reply = behind;
                        return Some(Change::Remembered(key, reply.clone()));
                    }
                    run.stage = Stage::Intentions;
                    return Some(Change::NextIntention(self.state.intentions.next_id()));
                }
                Stage::Intentions => {
                    let next = self.state.intentions.iter_from(run.intention).next();
                    if let Some(intention) = next {
                        run.intention = intention.id + 1;
                        return Some(Change::Declare(intention.clone()));
                    }
                    run.stage = Stage::Locks;
                }
                Stage::Locks => {
                    if let Some(change) = run.lock_changes.pop_front() {
                        return Some(Change::Lock(change));
                    }
                    match self.state.locks.scan(run.lock_file) {
                        Some((file, changes)) => {
                            run.lock_file = Some(file);
                            run.lock_changes = changes.into();
                        }
                        None => {
                            run.promises = self.state.promises.all().into();
                            run.stage = Stage::Promises;
                        }
                    }
                }
                Stage::Promises => {
                    return run.promises.pop_front().map(Change::Promise);
                }
                Stage::Draining(_) | Stage::Trailer => return None,
            }
        }
    }

    /// The next names and attributes.
    fn next_piece(&self, scan: &mut Scan, bytes_max: usize) -> Option<Bytes> {
        let mut piece = PieceWriter::default();
        if scan.is_new() {
            piece.put_sizes(&self.state.directory);
        }
        while piece.len() < bytes_max
            && let Some(mutation) = self.state.directory.scan(scan)
        {
            piece.put(&mutation);
        }
        (!piece.is_empty()).then(|| piece.finish().into())
    }

    fn write_chunk(&mut self, now: Time, run: &mut CheckpointRun, chunk: Payload) {
        let offset_bytes = run.writer.offset_bytes - chunk.len() as u64;
        for member in self.members.clone() {
            let request = NodeRequest::Write {
                object: self.checkpoint_object(run.number),
                offset_bytes,
                payload: chunk.clone(),
                stability: Stability::Stable,
                context: self.context(),
                order: Order::Given(self.next_version()),
            };
            run.waiting.insert(member);
            let purpose = Purpose::Checkpoint(CheckpointStep(run.number));
            self.send(now, Target::Node(member), request, purpose);
        }
    }

    /// The trailer is durable everywhere: what it replaces can go.
    fn checkpoint_is_valid(&mut self, now: Time, run: &CheckpointRun) {
        for number in std::mem::replace(&mut self.checkpoints, vec![run.number]) {
            self.remove_object(now, ObjectClass::Checkpoint, number);
        }
        for number in self.first_segment..run.start.segment {
            self.remove_object(now, ObjectClass::SiteLog, number);
        }
        self.first_segment = run.start.segment;
        self.checkpoint_bytes = run.writer.offset_bytes;
        self.counted.checkpoint(now, run.begun);
    }

    fn checkpoint_object(&self, number: u32) -> ObjectId {
        ObjectId::of_site(ObjectClass::Checkpoint, self.config.site, number)
    }
}
