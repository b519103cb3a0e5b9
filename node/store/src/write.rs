//! Writes: which bytes go where, bulk writes in flight, commits.
//!
//! - Whole blocks of big writes go to new runs at once (a *flight*). The record
//!   that maps them is appended when their data has been flushed.
//! - Other stable bytes go into the journal.
//! - Other unstable bytes stay in memory until a commit, or until they are old,
//!   and then go one of these two ways.
//!
//! Reads see all of them at once, in the overlay.

use std::collections::BTreeSet;

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::DiskOperation;
use crossdock_log::Position;
use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload, is_aligned};

use crate::interface::{Mutation, StoreDisk};
use crate::overlay::{Piece, PieceState};
use crate::record::Record;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::space::AllocationError;
use crate::store::{BLOCK, DiskUse, Store};
use crate::waiting::Hold;

/// Whole blocks of at least this much go to new runs; less goes into the journal.
pub(crate) const BULK_BYTES_MIN: u64 = 64 << 10;

/// Bytes of a record besides its payload, at most.
const RECORD_BYTES: u64 = 128;

/// No object reaches beyond this.
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 44;

/// A write on its way to new runs.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) object: ObjectId,
    pub(crate) stamp: u64,
    pub(crate) version: Version,
    pub(crate) first_block: u64,
    /// Where the blocks go, in order.
    pub(crate) extents: Vec<DiskRange>,
    pub(crate) checksums: Vec<u32>,
    /// Blocks of the object that nothing newer has taken, as (from, to).
    pub(crate) live: Vec<(u64, u64)>,
    /// Bytes beside the whole blocks, to be recorded together with them.
    pub(crate) edges: Vec<(u64, Bytes)>,
    /// The object reaches at least to here.
    pub(crate) end_bytes: u64,
    /// What it counts as held in memory.
    pub(crate) held_bytes: u64,
    pub(crate) stage: Stage,
    /// Somebody waits for it: it is flushed at once.
    pub(crate) is_urgent: bool,
    /// The store's own: it merges overlay and runs.
    pub(crate) is_settling: bool,
    /// A block beneath could not be read: the new one must not pass for good.
    pub(crate) is_poisoned: bool,
    pub(crate) reply: Option<(CallId, NodeAnswer)>,
    pub(crate) commits: Vec<u64>,
}

/// How far a flight has got.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its bytes are being read and merged.
    Merging,
    /// It has its bytes, and no place yet.
    Placing(Bytes),
    /// So many disk writes have not completed.
    Writing(usize),
    /// On the disk, not flushed.
    Written,
    /// A flush that covers it is under way.
    Flushing,
}

impl Flight {
    /// Whether it concerns bytes of `from..to`.
    pub(crate) fn meets(&self, from: u64, to: u64) -> bool {
        let blocks = self.live.iter().map(|(a, b)| (a * BLOCK, b * BLOCK));
        let edges = self
            .edges
            .iter()
            .map(|(at, edge)| (*at, at + edge.len() as u64));
        blocks.chain(edges).any(|(a, b)| a < to && from < b)
    }
}

/// A commit that waits for flights.
#[derive(Debug)]
pub(crate) struct CommitWait {
    pub(crate) call: CallId,
    flights: usize,
}

/// What is to be written.
#[derive(Debug)]
pub(crate) struct NewWrite {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) payload: Payload,
    pub(crate) version: Version,
    pub(crate) is_stable: bool,
    /// Up to this many bytes go into the journal.
    pub(crate) inline_max: u64,
    pub(crate) reply: (CallId, NodeAnswer),
}

impl Store {
    /// Takes the bytes in; the object is there.
    pub(crate) fn write(&mut self, write: NewWrite) -> Result<(), Hold> {
        let length = write.payload.len() as u64;
        let end = write.offset + length;
        let (from, to) = (write.offset / BLOCK, end.div_ceil(BLOCK));
        self.need_blocks(&write.object, from, to)?;
        self.need_memory(length)?;
        let whole = (write.offset.div_ceil(BLOCK), self.end_of_whole(&write, end));
        let whole_bytes = whole.1.saturating_sub(whole.0) * BLOCK;
        let mut is_bulk = whole_bytes >= write.inline_max.max(BLOCK);
        let holes = self.holes(&write.object, from, to);
        let needed = if is_bulk { to - from } else { holes };
        if needed > 0
            && let Err(hold) = self.need_space(&write.object, needed)
        {
            // Overwriting needs no space if it goes through the journal.
            let fits = holes == 0 && length <= self.journal.frame_bytes_max() / 2;
            if !fits || !matches!(hold, Hold::Refuse(_)) {
                return Err(hold);
            }
            is_bulk = false;
        }
        if write.is_stable || is_bulk {
            let journalled = if is_bulk { 2 * BLOCK } else { length };
            self.need_journal(journalled + RECORD_BYTES)?;
        }
        let extents = if is_bulk {
            self.place(whole.1 - whole.0)?
        } else {
            Vec::new()
        };
        let stamp = self.next_stamp();
        if is_bulk {
            self.write_bulk(write, stamp, whole, extents);
        } else {
            self.write_small(write, stamp);
        }
        Ok(())
    }

    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.totals.next_stamp += 1;
        self.totals.next_stamp - 1
    }

    /// Blocks on the disk, or what has to happen before.
    pub(crate) fn place(&mut self, blocks: u64) -> Result<Vec<DiskRange>, Hold> {
        match self.space.allocate(blocks) {
            Ok(extents) => Ok(extents),
            Err(AllocationError::Load(group)) => Err(Hold::group(group)),
            Err(AllocationError::Grow(blocks)) => {
                self.grow(blocks);
                Err(Hold::Room)
            }
            Err(AllocationError::Full) => Err(Hold::Room),
        }
    }

    /// The end of the whole blocks of a write. The last one counts as whole if
    /// nothing lies behind the write in it.
    fn end_of_whole(&self, write: &NewWrite, end: u64) -> u64 {
        let last = end / BLOCK;
        let Some(object) = self.object(&write.object) else {
            return last;
        };
        let is_last = !end.is_multiple_of(BLOCK) && end >= object.visible_size;
        let is_fresh = || {
            let flights = object.flights.iter().filter_map(|id| self.flights.get(id));
            self.is_hole(object.head.serial, last)
                && !object.overlay.touches(last)
                && !flights
                    .into_iter()
                    .any(|flight| flight.meets(last * BLOCK, end))
        };
        if is_last && is_fresh() {
            last + 1
        } else {
            last
        }
    }

    pub(crate) fn is_hole(&self, serial: u64, block: u64) -> bool {
        let window = self.windows.get(&(serial, block / WINDOW_BLOCKS));
        window.is_none_or(|window| window.find(block).is_none())
    }

    /// How many of the blocks have no run yet.
    fn holes(&self, id: &ObjectId, from: u64, to: u64) -> u64 {
        let Some(object) = self.object(id) else {
            return 0;
        };
        let serial = object.head.serial;
        (from..to)
            .filter(|block| self.is_hole(serial, *block))
            .count() as u64
    }

    /// Room for so many bytes in memory.
    pub(crate) fn need_memory(&mut self, length: u64) -> Result<(), Hold> {
        let dirty = self.dirty_bytes();
        let limit = self.config.dirty_bytes_max as u64;
        let is_full = dirty > 0 && dirty + length > limit;
        // Small unstable bytes must fit into the journal when they are committed.
        let volatile = self.totals.volatile_bytes;
        let is_crowded = volatile > 0 && volatile + length > self.journal.ring_bytes() / 8;
        if is_full || is_crowded {
            self.checkpoint.must_write_back = true;
            return Err(Hold::Room);
        }
        Ok(())
    }

    /// Room in the frame that gathers, and in the ring, with what it takes to
    /// move all that is in the journal to runs.
    pub(crate) fn need_journal(&mut self, bytes: u64) -> Result<(), Hold> {
        let frame = self.journal.gathered_bytes();
        if frame > 0 && frame + bytes > self.journal.frame_bytes_max() {
            return Err(Hold::Room);
        }
        let debt = (self.totals.promised_blocks * 64).min(self.journal.ring_bytes() / 8);
        let used = self.journal.used_bytes() + debt + bytes;
        if used > self.journal.ring_bytes() / 4 * 3 {
            self.settling.is_wanted = true;
            return Err(Hold::Room);
        }
        Ok(())
    }

    /// Blocks that an object may take, counting what is promised to others.
    pub(crate) fn need_space(&mut self, id: &ObjectId, blocks: u64) -> Result<(), Hold> {
        let own = self
            .object(id)
            .map_or(0, |object| object.head.outstanding_blocks());
        let free = self.space.free();
        let kept = match id.class {
            ObjectClass::SiteLog | ObjectClass::Checkpoint => 0,
            // What is its own stays its own, whatever logs have taken.
            _ if blocks <= own => 0,
            ObjectClass::Column | ObjectClass::SmallFiles => self.metadata_reserve_blocks(),
        };
        let taken = self.reserve_blocks() + kept + self.totals.reserved - own;
        if free >= taken + self.totals.promised_blocks + blocks {
            return Ok(());
        }
        if self.space.has_held() || !self.dead.is_empty() {
            return Err(Hold::Room); // Space is being freed.
        }
        if self.totals.promised_blocks > 0 && free >= taken + blocks {
            self.settling.is_wanted = true;
            return Err(Hold::Room); // Promises count more than they will take.
        }
        Err(Hold::Refuse(NodeError::NoSpace))
    }

    fn write_small(&mut self, write: NewWrite, stamp: u64) {
        let NewWrite {
            object: id,
            offset,
            payload,
            version,
            is_stable,
            reply,
            ..
        } = write;
        // A copy of its own: the buffer it came in may be much larger.
        let bytes = own_copy(&payload);
        if is_stable {
            let position = self.record_inline(id, stamp, version, offset, bytes);
            self.reply_at(position, reply.0, reply.1);
            return;
        }
        let end = offset + bytes.len() as u64;
        self.change_overlay(&id, |object| {
            let piece = Piece::data(bytes, stamp, version, PieceState::Volatile);
            object.overlay.insert(offset, piece);
        });
        self.show_write(&id, version, end);
        self.reply(reply.0, reply.1);
    }

    fn record_inline(
        &mut self,
        object: ObjectId,
        stamp: u64,
        version: Version,
        offset: u64,
        bytes: Bytes,
    ) -> Position {
        let checksum = crc32c(&bytes);
        self.record(Record::Inline {
            object,
            stamp,
            version,
            offset,
            checksum,
            bytes,
        })
    }

    fn show_write(&mut self, id: &ObjectId, version: Version, end: u64) {
        if let Some(object) = self.object_mut(id) {
            object.visible_size = object.visible_size.max(end);
            object.visible_version = object.visible_version.max(version);
        }
    }

    fn write_bulk(
        &mut self,
        write: NewWrite,
        stamp: u64,
        whole: (u64, u64),
        extents: Vec<DiskRange>,
    ) {
        let (id, version) = (write.object, write.version);
        let end = write.offset + write.payload.len() as u64;
        let (is_stable, reply) = (write.is_stable, write.reply.clone());
        let (data, edges) = cut_payload(&write, whole);
        let flight = Flight {
            object: id,
            stamp,
            version,
            first_block: whole.0,
            extents,
            checksums: block_checksums(&data),
            live: vec![whole],
            edges,
            end_bytes: end,
            held_bytes: write.payload.len() as u64,
            stage: Stage::Writing(0),
            is_urgent: is_stable,
            is_settling: false,
            is_poisoned: false,
            reply: is_stable.then(|| reply.clone()),
            commits: Vec::new(),
        };
        self.change_overlay(&id, |object| {
            let mut at = whole.0 * BLOCK;
            for piece in &data {
                // Zeros behind the write's end do not show.
                let length = (piece.len() as u64).min(end.saturating_sub(at));
                insert_flying(object, at, piece, length, stamp, version);
                at += piece.len() as u64;
            }
            for (at, edge) in &flight.edges {
                insert_flying(object, *at, edge, edge.len() as u64, stamp, version);
            }
        });
        self.show_write(&id, version, end);
        self.launch(flight, data);
        if !is_stable {
            self.reply(reply.0, reply.1);
        }
    }

    /// Starts the disk writes of a flight that has its place.
    pub(crate) fn launch(&mut self, mut flight: Flight, data: Vec<Bytes>) {
        let number = self.next_token;
        self.next_token += 1;
        let mut data = data.into_iter().fold(Payload::new(), |mut all, piece| {
            all.push(piece);
            all
        });
        flight.stage = Stage::Writing(flight.extents.len());
        self.totals.flight_bytes += flight.held_bytes;
        for extent in flight.extents.clone() {
            #[expect(clippy::cast_possible_truncation, reason = "bounded by a request")]
            let length = (extent.blocks * BLOCK) as usize;
            let rest = data.slice(length, data.len());
            data.truncate(length);
            let pieces = std::mem::replace(&mut data, rest).into_pieces();
            let offset_bytes = extent.block * BLOCK;
            let write = DiskOperation::Write {
                offset_bytes,
                pieces,
            };
            self.submit(
                StoreDisk::Data,
                DiskUse::DataWrite { flight: number },
                write,
            );
        }
        if let Some(object) = self.object_mut(&flight.object) {
            object.flights.insert(number);
        }
        self.flights.insert(number, flight);
    }

    pub(crate) fn flight_written(&mut self, number: u64) {
        if let Some(flight) = self.flights.get_mut(&number)
            && let Stage::Writing(outstanding) = &mut flight.stage
        {
            *outstanding -= 1;
            if *outstanding == 0 {
                flight.stage = Stage::Written;
            }
        }
    }

    /// One flush for all flights that are written, if one of them is urgent.
    pub(crate) fn flush_data(&mut self) {
        let is_written = |flight: &Flight| matches!(flight.stage, Stage::Written);
        let is_due = |flight: &Flight| is_written(flight) && flight.is_urgent;
        if self.flushing.is_some() || !self.flights.values().any(is_due) {
            return;
        }
        let mut covered = Vec::new();
        for (number, flight) in &mut self.flights {
            if is_written(flight) {
                flight.stage = Stage::Flushing;
                covered.push(*number);
            }
        }
        self.flushing = Some(covered);
        if self.config.has(Mutation::NoFlush) {
            self.data_flushed();
            return;
        }
        self.counters.data_flushes += 1;
        self.submit(StoreDisk::Data, DiskUse::DataFlush, DiskOperation::Flush);
    }

    pub(crate) fn data_flushed(&mut self) {
        let mut covered = self.flushing.take().unwrap_or_default();
        let stamp_of = |number: &u64| self.flights.get(number).map_or(0, |flight| flight.stamp);
        covered.sort_by_key(stamp_of);
        for number in covered {
            if let Some(flight) = self.flights.remove(&number) {
                self.land(number, flight);
            }
        }
    }

    /// Records what a flight has brought to the disk.
    fn land(&mut self, number: u64, mut flight: Flight) {
        self.totals.flight_bytes -= flight.held_bytes;
        if flight.is_settling {
            self.settle_landed();
        }
        let id = flight.object;
        let is_there = self
            .object(&id)
            .is_some_and(|object| object.flights.contains(&number));
        if !is_there {
            flight.live.clear();
            flight.edges.clear();
        }
        let mut block = flight.first_block;
        for extent in std::mem::take(&mut flight.extents) {
            self.map_extent(&flight, block, extent);
            block += extent.blocks;
        }
        for (offset, bytes) in std::mem::take(&mut flight.edges) {
            self.record_inline(id, flight.stamp, flight.version, offset, bytes);
        }
        if let Some(object) = self.object_mut(&id) {
            object.flights.remove(&number);
        }
        let position = self.journal.last();
        if let Some((call, answer)) = flight.reply {
            self.reply_at(position, call, answer);
        }
        for commit in flight.commits {
            self.commit_advanced(commit);
        }
    }

    /// Maps the live parts of an extent that holds the blocks from `block` on,
    /// and gives the others back.
    fn map_extent(&mut self, flight: &Flight, block: u64, extent: DiskRange) {
        let end = block + extent.blocks;
        let mut at = block;
        let part = |from: u64, to: u64| DiskRange {
            block: extent.block + (from - block),
            blocks: to - from,
        };
        for (from, to) in flight.live.iter().copied() {
            let (from, to) = (from.max(at), to.min(end));
            if from >= to {
                continue;
            }
            if at < from {
                self.space.give_back(part(at, from), Position(0));
            }
            #[expect(clippy::cast_possible_truncation, reason = "bounded by a request")]
            let index = |block: u64| (block - flight.first_block) as usize;
            self.record(Record::Map {
                object: flight.object,
                stamp: flight.stamp,
                version: flight.version,
                first_block: from,
                disk: part(from, to).block,
                end_bytes: flight.end_bytes.min(to * BLOCK),
                checksums: flight.checksums[index(from)..index(to)].to_vec(),
            });
            at = to;
        }
        if at < end {
            self.space.give_back(part(at, end), Position(0));
        }
    }

    /// Something newer was recorded for `from..to` of an object: older flights
    /// must not cover it when they land.
    pub(crate) fn trim_flights(&mut self, id: &ObjectId, from: u64, to: u64, stamp: u64) {
        let Some(object) = self
            .objects
            .get(id)
            .and_then(|entry| entry.object.as_deref())
        else {
            return;
        };
        for number in &object.flights {
            let Some(flight) = self.flights.get_mut(number) else {
                continue;
            };
            if flight.stamp >= stamp {
                continue;
            }
            let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
            flight.live = cut_ranges(&flight.live, first, last);
            let edges = std::mem::take(&mut flight.edges);
            for (at, edge) in edges {
                keep_outside(&mut flight.edges, at, &edge, from, to);
            }
            if to == u64::MAX {
                flight.end_bytes = flight.end_bytes.min(from); // A truncate.
            }
        }
    }

    /// Makes all unstable bytes of an object durable; answers the call then.
    pub(crate) fn commit(&mut self, call: CallId, id: &ObjectId) -> Result<(), Hold> {
        self.promote(id)?;
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let last = object.last_position;
        let numbers: Vec<u64> = object.flights.iter().copied().collect();
        let commit = self.next_token;
        self.next_token += 1;
        let mut flights = 0;
        for number in numbers {
            if let Some(flight) = self.flights.get_mut(&number).filter(|f| !f.is_settling) {
                flight.is_urgent = true;
                flight.commits.push(commit);
                flights += 1;
            }
        }
        if flights == 0 {
            self.reply_at(last, call, NodeAnswer::Committed);
        } else {
            self.commits.insert(commit, CommitWait { call, flights });
        }
        Ok(())
    }

    fn commit_advanced(&mut self, commit: u64) {
        let Some(wait) = self.commits.get_mut(&commit) else {
            return;
        };
        wait.flights -= 1;
        if wait.flights == 0
            && let Some(wait) = self.commits.remove(&commit)
        {
            self.reply_at(self.journal.last(), wait.call, NodeAnswer::Committed);
        }
    }

    /// Sends the bytes of an object that are only in memory on their way:
    /// whole blocks of long stretches to new runs, others into the journal.
    ///
    /// What covers a part of something older is recorded before it: else a crash
    /// in between would show the older write with a hole, in one block.
    pub(crate) fn promote(&mut self, id: &ObjectId) -> Result<(), Hold> {
        let Some(object) = self.object(id).filter(|o| o.overlay.volatile_bytes() > 0) else {
            return Ok(());
        };
        for stretch in volatile_stretches(object.overlay.iter(), BULK_BYTES_MAX) {
            self.promote_stretch(id, &stretch)?;
        }
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let pieces = object.overlay.iter();
        let is_volatile = |(_, piece): &(u64, &Piece)| piece.state == PieceState::Volatile;
        let volatile = pieces
            .filter(is_volatile)
            .map(|(at, piece)| (at, piece.clone()));
        let mut volatile: Vec<(u64, Piece)> = volatile.collect();
        volatile.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.stamp));
        for (at, piece) in volatile {
            self.need_no_flight_above(id, at, &piece)?;
            // Beyond the bound for requests: volatile bytes have their room.
            let gathered = self.journal.gathered_bytes();
            if gathered > 0 && gathered + piece.length > self.journal.frame_bytes_max() {
                return Err(Hold::Room);
            }
            let bytes = piece.bytes.clone().unwrap_or_default();
            self.record_inline(*id, piece.stamp, piece.version, at, bytes);
        }
        Ok(())
    }

    fn need_no_flight_above(&mut self, id: &ObjectId, at: u64, piece: &Piece) -> Result<(), Hold> {
        let from = at / BLOCK * BLOCK;
        let to = (at + piece.length).next_multiple_of(BLOCK);
        let numbers: Vec<u64> = self
            .object(id)
            .map_or_else(Vec::new, |object| object.flights.iter().copied().collect());
        let mut is_covered = false;
        for number in numbers {
            if let Some(flight) = self.flights.get_mut(&number)
                && !flight.is_settling
                && flight.stamp > piece.stamp
                && flight.meets(from, to)
            {
                flight.is_urgent = true;
                is_covered = true;
            }
        }
        if is_covered { Err(Hold::Room) } else { Ok(()) }
    }

    /// A stretch that is long enough goes to new runs.
    fn promote_stretch(&mut self, id: &ObjectId, stretch: &[(u64, Piece)]) -> Result<(), Hold> {
        let Some(offset) = stretch.first().map(|(offset, _)| *offset) else {
            return Ok(());
        };
        let length: u64 = stretch.iter().map(|(_, piece)| piece.length).sum();
        let end = offset + length;
        let whole = (offset.div_ceil(BLOCK), end / BLOCK);
        let whole_bytes = whole.1.saturating_sub(whole.0) * BLOCK;
        if whole_bytes < self.inline_max() {
            return Ok(());
        }
        self.need_blocks(id, offset / BLOCK, end.div_ceil(BLOCK))?;
        let extents = self.place(whole.1 - whole.0)?;
        let mut payload = Payload::new();
        let (mut stamp, mut version) = (0, Version::NONE);
        for (_, piece) in stretch {
            payload.push(piece.bytes.clone().unwrap_or_default());
            stamp = stamp.max(piece.stamp);
            version = version.max(piece.version);
        }
        let write = NewWrite {
            object: *id,
            offset,
            payload,
            version,
            is_stable: false,
            inline_max: 0,
            reply: (CallId(0), NodeAnswer::Committed),
        };
        self.promote_bulk(&write, stamp, whole, extents, stretch);
        Ok(())
    }

    fn promote_bulk(
        &mut self,
        write: &NewWrite,
        stamp: u64,
        whole: (u64, u64),
        extents: Vec<DiskRange>,
        stretch: &[(u64, Piece)],
    ) {
        let (data, edges) = cut_payload(write, whole);
        let length = write.payload.len() as u64;
        let flight = Flight {
            object: write.object,
            stamp,
            version: write.version,
            first_block: whole.0,
            extents,
            checksums: block_checksums(&data),
            live: vec![whole],
            edges,
            end_bytes: write.offset + length,
            held_bytes: length,
            stage: Stage::Writing(0),
            is_urgent: true,
            is_settling: false,
            is_poisoned: false,
            reply: None,
            commits: Vec::new(),
        };
        self.change_overlay(&write.object, |object| {
            for (at, piece) in stretch {
                let flying = Piece {
                    state: PieceState::Flying,
                    stamp,
                    ..piece.clone()
                };
                object.overlay.insert(*at, flying);
            }
        });
        self.launch(flight, data);
    }

    /// Up to this many bytes of a write go into the journal.
    pub(crate) fn inline_max(&self) -> u64 {
        BULK_BYTES_MIN.min(self.journal.frame_bytes_max() / 4)
    }

    /// At intervals, and when memory is short: unstable bytes become durable
    /// without being asked for.
    pub(crate) fn write_back_old(&mut self) {
        let delay = self.config.writeback_delay;
        let is_due = self.now >= self.checkpoint.last_writeback + delay;
        if is_due || self.checkpoint.must_write_back || self.checkpoint.is_draining {
            self.checkpoint.last_writeback = self.now;
            self.write_back(true);
        }
    }

    pub(crate) fn write_back(&mut self, is_all: bool) {
        for flight in self.flights.values_mut() {
            flight.is_urgent |= is_all;
        }
        let volatile: BTreeSet<ObjectId> = (self.overlaid.iter())
            .filter(|id| {
                self.object(id)
                    .is_some_and(|o| o.overlay.volatile_bytes() > 0)
            })
            .copied()
            .collect();
        let mut is_done = true;
        for id in volatile {
            match self.promote(&id) {
                Ok(()) | Err(Hold::Refuse(_)) => {}
                Err(Hold::Load(wanted)) => {
                    self.load(*wanted);
                }
                Err(Hold::Room) => is_done = false,
            }
        }
        self.checkpoint.must_write_back &= !is_done;
    }
}

/// Most bytes of one flight that memory is written back with.
const BULK_BYTES_MAX: u64 = 1 << 20;

fn insert_flying(
    object: &mut crate::object::Object,
    at: u64,
    bytes: &Bytes,
    length: u64,
    stamp: u64,
    version: Version,
) {
    if length > 0 {
        #[expect(clippy::cast_possible_truncation, reason = "within the piece")]
        let bytes = bytes.slice(..length as usize);
        let piece = Piece::data(bytes, stamp, version, PieceState::Flying);
        object.overlay.insert(at, piece);
    }
}

/// The whole blocks of a write as aligned memory, and the bytes beside them.
fn cut_payload(write: &NewWrite, whole: (u64, u64)) -> (Vec<Bytes>, Vec<(u64, Bytes)>) {
    let length = write.payload.len() as u64;
    let end = write.offset + length;
    let (start, stop) = (whole.0 * BLOCK, (whole.1 * BLOCK).min(end));
    #[expect(clippy::cast_possible_truncation, reason = "within the payload")]
    let part = |from: u64, to: u64| {
        let (from, to) = (from - write.offset, to - write.offset);
        write.payload.slice(from as usize, to as usize)
    };
    let mut edges = Vec::new();
    if write.offset < start {
        edges.push((write.offset, own_copy(&part(write.offset, start))));
    }
    if stop < end {
        edges.push((stop, own_copy(&part(stop, end))));
    }
    (aligned_pieces(&part(start, stop)), edges)
}

/// The payload in pieces that a disk takes; copied only if it has to be.
pub(crate) fn aligned_pieces(payload: &Payload) -> Vec<Bytes> {
    if payload.pieces().iter().all(|piece| is_aligned(piece)) {
        return payload.pieces().to_vec();
    }
    let mut buffer = AlignedBuffer::zeroed(payload.len());
    payload.copy_to_slice(&mut buffer[..payload.len()]);
    vec![buffer.freeze()]
}

/// CRC32C of each block.
pub(crate) fn block_checksums(pieces: &[Bytes]) -> Vec<u32> {
    let blocks = pieces
        .iter()
        .flat_map(|piece| piece.chunks_exact(BLOCK_BYTES));
    blocks.map(crc32c).collect()
}

fn own_copy(payload: &Payload) -> Bytes {
    let mut bytes = vec![0; payload.len()];
    payload.copy_to_slice(&mut bytes);
    Bytes::from(bytes)
}

/// Volatile pieces that lie one after the other, in groups of up to `bytes_max`.
fn volatile_stretches<'a>(
    pieces: impl Iterator<Item = (u64, &'a Piece)>,
    bytes_max: u64,
) -> Vec<Vec<(u64, Piece)>> {
    let mut stretches: Vec<Vec<(u64, Piece)>> = Vec::new();
    let (mut next, mut length) = (None, 0);
    for (at, piece) in pieces.filter(|(_, piece)| piece.state == PieceState::Volatile) {
        let item = (at, piece.clone());
        match stretches.last_mut() {
            Some(last) if next == Some(at) && length + piece.length <= bytes_max => {
                length += piece.length;
                last.push(item);
            }
            _ => {
                length = piece.length;
                stretches.push(vec![item]);
            }
        }
        next = Some(at + piece.length);
    }
    stretches
}

/// `ranges` without `from..to`.
fn cut_ranges(ranges: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    if from >= to {
        return ranges.to_vec();
    }
    let sides = |&(a, b): &(u64, u64)| [(a, b.min(from)), (a.max(to), b)];
    let pieces = ranges.iter().flat_map(sides);
    pieces.filter(|(a, b)| a < b).collect()
}

/// Adds the parts of an edge that lie outside `from..to`.
fn keep_outside(edges: &mut Vec<(u64, Bytes)>, at: u64, edge: &Bytes, from: u64, to: u64) {
    let end = at + edge.len() as u64;
    for (a, b) in cut_ranges(&[(at, end)], from, to) {
        #[expect(clippy::cast_possible_truncation, reason = "within the edge")]
        let part = edge.slice((a - at) as usize..(b - at) as usize);
        edges.push((a, part));
    }
}
