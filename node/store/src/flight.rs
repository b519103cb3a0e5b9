//! Flights: blocks on their way to the data disk, from the write to the record
//! that makes them the object's.
//!
//! A flight's blocks are written, then flushed together with those of all others
//! that wait, and then it *lands*: the record that maps its blocks is appended.
//! What something newer has taken meanwhile is left out.

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::DiskOperation;
use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload};

use crate::interface::{Mutation, StoreDisk};
use crate::record::Record;
use crate::runs::DiskRange;
use crate::store::{BLOCK, DiskUse, Store};

/// A write on its way to new runs.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) object: ObjectId,
    pub(crate) stamp: u64,
    pub(crate) version: Version,
    pub(crate) first_block: u64,
    /// How many there are.
    pub(crate) blocks: u64,
    /// Where the blocks go, in order.
    pub(crate) extents: Vec<DiskRange>,
    pub(crate) checksums: Vec<u32>,
    /// The blocks' content, to be cached once they are the object's.
    pub(crate) content: Payload,
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
    pub(crate) role: Role,
    /// A block beneath could not be read: the new one must not pass for good.
    pub(crate) is_poisoned: bool,
    pub(crate) reply: Option<(CallId, NodeAnswer)>,
    pub(crate) commits: Vec<u64>,
}

/// What a flight carries, and how that becomes the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// What a client wrote.
    Client,
    /// Overlay and runs, merged; see [`crate::settle`].
    Merge,
    /// The overlay, to where the runs are already; see there.
    InPlace,
    /// What runs have, to another place; see [`crate::mover`].
    Move,
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
    /// Blocks `from..to` of an object, to be written to `extents`.
    pub(crate) fn new(
        object: ObjectId,
        (stamp, version): (u64, Version),
        (from, to): (u64, u64),
        extents: Vec<DiskRange>,
    ) -> Self {
        Self {
            object,
            stamp,
            version,
            first_block: from,
            blocks: to - from,
            live: vec![(from, to)],
            extents,
            checksums: Vec::new(),
            content: Payload::new(),
            edges: Vec::new(),
            end_bytes: 0,
            held_bytes: 0,
            stage: Stage::Writing(0),
            is_urgent: true,
            role: Role::Client,
            is_poisoned: false,
            reply: None,
            commits: Vec::new(),
        }
    }

    /// It carries nothing that a client waits for.
    pub(crate) const fn is_own(&self) -> bool {
        !matches!(self.role, Role::Client)
    }

    /// Of blocks `from..to` of the object.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by a request")]
    pub(crate) fn checksums_of(&self, from: u64, to: u64) -> Vec<u32> {
        let index = |block: u64| (block - self.first_block) as usize;
        self.checksums[index(from)..index(to)].to_vec()
    }

    /// The blocks that it changes, also in part, as (from, to).
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let edges = self.edges.iter().map(|(at, edge)| {
            let end = at + edge.len() as u64;
            (at / BLOCK, end.div_ceil(BLOCK))
        });
        self.live.iter().copied().chain(edges)
    }

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

impl Store {
    /// Starts the disk writes of a flight that has its place.
    pub(crate) fn launch(&mut self, mut flight: Flight, data: Vec<Bytes>) {
        let number = self.next_token;
        self.next_token += 1;
        let mut data = data.into_iter().fold(Payload::new(), |mut all, piece| {
            all.push(piece);
            all
        });
        flight.stage = Stage::Writing(flight.extents.len());
        if matches!(flight.role, Role::Client | Role::Move) {
            flight.content = data.clone();
        }
        if let Some(writing) = self.writing_of(flight.role) {
            *writing += 1;
        }
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
                is_durable: false,
            };
            let purpose = DiskUse::DataWrite {
                flight: number,
                is_own: flight.is_own(),
            };
            self.submit(StoreDisk::Data, purpose, write);
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
                let role = flight.role;
                self.written.insert(number);
                if let Some(writing) = self.writing_of(role) {
                    *writing -= 1;
                }
                self.carry_on();
            }
        }
    }

    /// How many of the store's own flights of that kind are being written.
    const fn writing_of(&mut self, role: Role) -> Option<&mut usize> {
        match role {
            Role::Client => None,
            Role::Merge | Role::InPlace => Some(&mut self.settling.writing),
            Role::Move => Some(&mut self.mover.writing),
        }
    }

    /// One flush for all flights that are written, if one of them is urgent, or if there is so
    /// much that writers would soon have to wait for it.
    pub(crate) fn flush_data(&mut self) {
        let mut written = self.written.iter().filter_map(|it| self.flights.get(it));
        let are_many = self.totals.flight_bytes > self.config.dirty_bytes_max as u64 / 2;
        // Nobody waits for the store's own: they are flushed all together.
        let is_due = |flight: &Flight| match flight.role {
            Role::Client => flight.is_urgent || are_many,
            Role::Merge | Role::InPlace => flight.is_urgent && self.settling.writing == 0,
            Role::Move => flight.is_urgent && self.mover.is_written(),
        };
        if self.flushing.is_some() || !written.any(is_due) {
            return;
        }
        let covers = |number: &u64| {
            let flight = self.flights.get(number);
            flight.is_some_and(|flight| !self.is_early(flight))
        };
        let covered: Vec<u64> = self.written.iter().copied().filter(covers).collect();
        if covered.is_empty() {
            return; // Those that are due wait for others, which are being written.
        }
        for number in &covered {
            self.written.remove(number);
            if let Some(flight) = self.flights.get_mut(number) {
                flight.stage = Stage::Flushing;
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

    /// Whether an older flight, still being written, lies beneath an edge: that
    /// one lands first, for the same reason as in [`Self::harden_edges`].
    fn is_early(&self, flight: &Flight) -> bool {
        if flight.edges.is_empty() {
            return false;
        }
        let Some(object) = self.object(&flight.object) else {
            return false;
        };
        let others = object.flights.iter().filter_map(|id| self.flights.get(id));
        let mut older = others.filter(|other| {
            other.stamp < flight.stamp
                && !other.is_own()
                && matches!(other.stage, Stage::Writing(_))
        });
        older.any(|other| {
            let meets = |(at, _): &(u64, Bytes)| {
                let block = at / BLOCK;
                other.meets(block * BLOCK, (block + 1) * BLOCK)
            };
            flight.edges.iter().any(meets)
        })
    }

    pub(crate) fn data_flushed(&mut self) {
        let mut covered = Vec::new();
        for number in self.flushing.take().unwrap_or_default() {
            let Some(mut flight) = self.flights.remove(&number) else {
                continue;
            };
            let object = self.object_mut(&flight.object);
            if !object.is_some_and(|object| object.flights.remove(&number)) {
                // The object it was for is gone.
                flight.live.clear();
                flight.edges.clear();
            }
            covered.push(flight);
        }
        // None of them can take anything of one that comes after it.
        covered.sort_by_key(|flight| flight.stamp);
        for flight in covered {
            self.land(flight);
        }
    }

    /// Records what a flight has brought to the disk.
    fn land(&mut self, mut flight: Flight) {
        self.totals.flight_bytes -= flight.held_bytes;
        let id = flight.object;
        match flight.role {
            Role::Merge | Role::InPlace => self.settling.remove(&flight),
            Role::Client | Role::Move => {}
        }
        self.wake_settling(&id);
        match flight.role {
            Role::InPlace => self.mark_in_place(&flight),
            Role::Move => self.land_move(&flight),
            Role::Client | Role::Merge => {
                let mut block = flight.first_block;
                for extent in std::mem::take(&mut flight.extents) {
                    self.map_extent(&flight, block, extent);
                    block += extent.blocks;
                }
            }
        }
        for (offset, bytes) in std::mem::take(&mut flight.edges) {
            self.harden_block(&id, offset / BLOCK);
            self.record_inline(id, flight.stamp, flight.version, offset, bytes);
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
            self.record(Record::Map {
                object: flight.object,
                stamp: flight.stamp,
                version: flight.version,
                first_block: from,
                disk: part(from, to).block,
                end_bytes: flight.end_bytes.min(to * BLOCK),
                checksums: flight.checksums_of(from, to),
            });
            self.cache_written(flight, (from, to), part(from, to).block);
            at = to;
        }
        if at < end {
            self.space.give_back(part(at, end), Position(0));
        }
    }

    /// What was written is often read soon.
    fn cache_written(&mut self, flight: &Flight, (from, to): (u64, u64), block: u64) {
        if flight.content.is_empty() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "bounded by a request")]
        let at = |block: u64| ((block - flight.first_block) * BLOCK) as usize;
        let content = flight.content.slice(at(from), at(to));
        self.cache.insert_written(block, &content);
    }

    /// Blocks were written over where they lie: they have new checksums.
    fn mark_in_place(&mut self, flight: &Flight) {
        for extent in &flight.extents {
            self.holds.remove(*extent);
            self.cache.invalidate(extent.block, extent.blocks);
        }
        for (from, to) in flight.live.iter().copied() {
            self.record(Record::Marker {
                object: flight.object,
                stamp: flight.stamp,
                version: flight.version,
                first_block: from,
                checksums: flight.checksums_of(from, to),
            });
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
            let is_blind = flight.role == Role::Move && self.config.has(Mutation::MoveOverNewer);
            if flight.stamp >= stamp || is_blind {
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
}

/// The payload as one piece that a disk takes.
pub(crate) fn aligned_copy(payload: &Payload) -> Bytes {
    let mut buffer = AlignedBuffer::zeroed(payload.len());
    payload.copy_to_slice(&mut buffer[..payload.len()]);
    buffer.freeze()
}

/// CRC32C of each block.
pub(crate) fn block_checksums(pieces: &[Bytes]) -> Vec<u32> {
    let blocks = pieces
        .iter()
        .flat_map(|piece| piece.chunks_exact(BLOCK_BYTES));
    blocks.map(crc32c).collect()
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
