//! Writes: which bytes go where.
//!
//! - Whole blocks of big writes go to new runs at once (a *flight*). The record
//!   that maps them is appended when their data has been flushed.
//! - Other stable bytes go into the journal.
//! - Other unstable bytes stay in memory until a commit, or until they are old,
//!   and then go one of these two ways.
//!
//! Reads see all of them at once, in the overlay.

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_log::Position;
use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError};
use crossdock_types::{BLOCK_BYTES, Payload, is_aligned};

use crate::commit::EDGES_BYTES_MAX;
use crate::flight::{Flight, aligned_copy, block_checksums};
use crate::overlay::{Piece, PieceState};
use crate::record::Record;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::space::AllocationError;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

/// Whole blocks of at least this much go to new runs; less goes into the journal.
pub(crate) const BULK_BYTES_MIN: u64 = 64 << 10;

/// Bytes of a record besides its payload, at most.
const RECORD_BYTES: u64 = 128;

/// Whole blocks of this many bytes within a piece are a piece of their own, whatever lies
/// around them; less is copied together with that.
const ALONE_BYTES_MIN: usize = 32 << 10;

/// No object reaches beyond this.
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 44;

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
        let journalled = if is_bulk { 2 * BLOCK } else { length };
        if write.is_stable || is_bulk {
            self.need_journal(journalled + RECORD_BYTES + EDGES_BYTES_MAX)?;
        } else {
            self.need_ring(journalled + RECORD_BYTES)?;
        }
        if write.is_stable {
            self.harden_edges(&write.object, write.offset, end)?;
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
        self.may_grow_again();
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

    /// As many blocks as that would have a place now.
    pub(crate) fn need_place(&mut self, blocks: u64) -> Result<(), Hold> {
        for range in self.place(blocks)? {
            self.space.untake(range);
        }
        Ok(())
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
        let volatile = self.totals.volatile_bytes;
        let is_crowded = volatile > 0 && volatile + length > self.volatile_bytes_max();
        if is_full || is_crowded {
            self.checkpoint.must_write_back = true;
            return Err(Hold::Room);
        }
        Ok(())
    }

    /// Small unstable bytes must fit into the journal when they are committed.
    pub(crate) const fn volatile_bytes_max(&self) -> u64 {
        self.journal.ring_bytes() / 8
    }

    /// Room in the frame that gathers, and in the ring.
    pub(crate) fn need_journal(&mut self, bytes: u64) -> Result<(), Hold> {
        let frame = self.journal.gathered_bytes();
        if frame > 0 && frame + bytes > self.journal.frame_bytes_max() {
            return Err(Hold::Room);
        }
        self.need_ring(bytes)
    }

    /// Room in the ring, with what unstable bytes will take when they are
    /// recorded, and what it takes to move all of it to runs.
    fn need_ring(&mut self, bytes: u64) -> Result<(), Hold> {
        let debt = (self.totals.promised_blocks * 64).min(self.journal.ring_bytes() / 8);
        let volatile = self.totals.volatile_bytes;
        let used = self.journal.used_bytes() + volatile + debt + bytes;
        if used > self.journal.ring_bytes() / 4 * 3 {
            self.settling.is_wanted = true;
            return Err(Hold::Room);
        }
        Ok(())
    }

    /// Blocks that an object may take, counting what is promised to others. The disk has
    /// all of them before anything is promised: what the journal takes on a promise gets
    /// its place, and the journal gets empty, even if the disk does not grow any more.
    pub(crate) fn need_space(&mut self, id: &ObjectId, blocks: u64) -> Result<(), Hold> {
        self.may_grow_again();
        let own = self
            .object(id)
            .map_or(0, |object| object.head.outstanding_blocks());
        let free = self.space.free();
        let kept = match id.class {
            ObjectClass::SiteLog | ObjectClass::Checkpoint => 0,
            // What is its own stays its own, whatever logs have taken.
            _ if blocks <= own => 0,
            ObjectClass::Column | ObjectClass::SmallFiles | ObjectClass::Allocation => {
                self.metadata_reserve_blocks()
            }
        };
        let taken = self.reserve_blocks() + kept + self.totals.reserved - own;
        let needed = taken + self.totals.promised_blocks + blocks;
        if free >= needed {
            if let Some(target) = self.space.growth_for(needed) {
                self.grow(target);
                return Err(Hold::Room);
            }
            // Ahead of need, such that the next ones do not wait.
            let ahead = self.space.growth() / 2;
            if let Some(target) = self.space.growth_for(needed + ahead)
                && !self.space.is_stuck()
            {
                self.grow(target);
            }
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

    pub(crate) fn record_inline(
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
            checksums: block_checksums(&data),
            edges,
            end_bytes: end,
            held_bytes: write.payload.len() as u64,
            is_urgent: is_stable,
            reply: is_stable.then(|| reply.clone()),
            ..Flight::new(id, (stamp, version), whole, extents)
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

    /// Up to this many bytes of a write go into the journal. It takes less while
    /// it fills: what it takes has to be written a second time to make room.
    pub(crate) fn inline_max(&self) -> u64 {
        let most = BULK_BYTES_MIN.min(self.journal.frame_bytes_max() / 4);
        match self.journal.used_bytes() > self.journal.ring_bytes() / 2 {
            true => most / 4,
            false => most,
        }
    }
}

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
pub(crate) fn cut_payload(write: &NewWrite, whole: (u64, u64)) -> (Vec<Bytes>, Vec<(u64, Bytes)>) {
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

/// The payload in pieces that a disk takes, padded with zeros; copied only
/// where it has to be. Where pieces begin follows from the payload's own: by
/// which address the bytes came does not show, so that one seed is one run.
pub(crate) fn aligned_pieces(payload: &Payload) -> Vec<Bytes> {
    let whole = payload.len() - payload.len() % BLOCK_BYTES;
    let (blocks, rest) = (payload.slice(0, whole), payload.slice(whole, payload.len()));
    let mut aligned = Vec::new();
    // What is copied together: pieces that are no blocks, up to the end of a block.
    let mut mixed = Payload::new();
    for mut piece in blocks.into_pieces() {
        let missing = mixed.len().next_multiple_of(BLOCK_BYTES) - mixed.len();
        mixed.push(piece.split_to(missing.min(piece.len())));
        let end = piece.split_off(piece.len() - piece.len() % BLOCK_BYTES);
        let is_alone = end.is_empty() || piece.len() >= ALONE_BYTES_MIN;
        if mixed.len().is_multiple_of(BLOCK_BYTES) && is_alone {
            push_aligned(&mut aligned, std::mem::take(&mut mixed));
            push_aligned(&mut aligned, piece.into());
        } else {
            mixed.push(piece);
        }
        mixed.push(end);
    }
    push_aligned(&mut aligned, mixed);
    if !rest.is_empty() {
        aligned.push(aligned_copy(&rest));
    }
    aligned
}

/// Adds whole blocks, copied unless they lie in one piece that a disk takes.
fn push_aligned(aligned: &mut Vec<Bytes>, blocks: Payload) {
    match blocks.pieces() {
        [] => {}
        [only] if is_aligned(only) => aligned.push(only.clone()),
        _ => aligned.push(aligned_copy(&blocks)),
    }
}

/// Whole blocks lie where a disk takes them.
fn own_copy(payload: &Payload) -> Bytes {
    if payload.len().is_multiple_of(BLOCK_BYTES) {
        return aligned_copy(payload);
    }
    let mut bytes = vec![0; payload.len()];
    payload.copy_to_slice(&mut bytes);
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use crossdock_types::AlignedBuffer;

    use super::*;

    /// Goal: of pieces that meet within a block only that block is copied, if they are long and
    /// lie where a disk takes them; short ones are copied together.
    #[test]
    fn only_what_is_cut_is_copied() {
        let long = 16 * BLOCK_BYTES;
        // What has come by itself, two pieces that were received in their place, and an end.
        let lengths = [BLOCK_BYTES + 500, long - 500, long, 3000, 3000, 2192];
        let mut payload = Payload::new();
        let mut at = 0;
        for length in lengths {
            let lead = at % BLOCK_BYTES;
            payload.push(
                AlignedBuffer::zeroed(lead + length)
                    .freeze()
                    .slice(lead..lead + length),
            );
            at += length;
        }
        let aligned = aligned_pieces(&payload);
        let blocks: Vec<_> = aligned.iter().map(|it| it.len() / BLOCK_BYTES).collect();
        assert_eq!(blocks, [2, 15, 16, 2]);
        let is_same = |piece: &Bytes, whole: &Bytes| {
            let whole = whole.as_ptr_range();
            whole.contains(&piece.as_ptr())
        };
        assert!(is_same(&aligned[1], &payload.pieces()[1]));
        assert!(is_same(&aligned[2], &payload.pieces()[2]));
    }

    /// Goal: what a disk gets of a write does not depend on where in memory it lay. Two runs
    /// of seed 2509 of the simulation of hosts differed once: what had come to lie on a block
    /// boundary by chance was not copied, and reached the disk in other pieces.
    #[test]
    fn pieces_do_not_depend_on_addresses() {
        let bytes = (0..=250).cycle();
        let content: Vec<u8> = bytes.take(7 * BLOCK_BYTES + 100).collect();
        // Pieces of whole blocks, two that are whole blocks together only, and an end.
        let [two, three, five, seven] = [2, 3, 5, 7].map(|blocks| blocks * BLOCK_BYTES);
        let cuts = [0, two, three - 8, five, seven, content.len()];
        let lying = |behind: usize| {
            let mut payload = Payload::new();
            for cut in cuts.windows(2) {
                let part = &content[cut[0]..cut[1]];
                let mut buffer = AlignedBuffer::zeroed(behind + part.len());
                buffer[behind..behind + part.len()].copy_from_slice(part);
                payload.push(buffer.freeze().slice(behind..behind + part.len()));
            }
            aligned_pieces(&payload)
        };
        let [on_boundaries, elsewhere] = [lying(0), lying(12)];
        assert_eq!(on_boundaries, elsewhere);
        let blocks: Vec<_> = elsewhere.iter().map(|it| it.len() / BLOCK_BYTES).collect();
        assert_eq!(blocks, [2, 1, 2, 2, 1]);
        assert!(elsewhere.iter().all(|piece| is_aligned(piece)));
        assert_eq!(elsewhere.concat()[..content.len()], content);
    }
}
