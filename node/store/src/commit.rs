//! Unstable bytes become durable: at a commit, when they are old, or when memory
//! is short.

use std::ops::Bound;

use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer};
use crossdock_types::Payload;

use crate::flight::{Flight, block_checksums};
use crate::overlay::{Piece, PieceState};
use crate::runs::DiskRange;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;
use crate::write::{NewWrite, cut_payload};

/// Most bytes that [`Store::harden_edges`] records.
pub(crate) const EDGES_BYTES_MAX: u64 = 2 * BLOCK + 512;

/// Most bytes of one flight that memory is written back with.
const BULK_BYTES_MAX: u64 = 1 << 20;

/// Most bytes that are written back in one step.
const BACK_BYTES_MAX: u64 = 256 << 10;

/// How far a lap over all objects with unstable bytes has got: up to there in that object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrittenBack {
    object: Option<ObjectId>,
    bytes: u64,
}

/// A commit that waits for flights.
#[derive(Debug)]
pub(crate) struct CommitWait {
    pub(crate) call: CallId,
    flights: usize,
}

impl Store {
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
            if let Some(flight) = self.flights.get_mut(&number).filter(|f| !f.is_own()) {
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

    pub(crate) fn commit_advanced(&mut self, commit: u64) {
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
        self.promote_part(id, 0, u64::MAX)
    }

    /// The same for the pieces that begin in `from..to`, which are all of its blocks.
    fn promote_part(&mut self, id: &ObjectId, from: u64, to: u64) -> Result<(), Hold> {
        let Some(object) = self.object(id).filter(|o| o.overlay.volatile_bytes() > 0) else {
            return Ok(());
        };
        for stretch in stretches(object.overlay.volatile(from, to), BULK_BYTES_MAX) {
            self.promote_stretch(id, &stretch)?;
        }
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let volatile = object.overlay.volatile(from, to);
        let mut volatile: Vec<(u64, Piece)> =
            volatile.map(|(at, piece)| (at, piece.clone())).collect();
        volatile.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.stamp));
        let flights = self.client_flights(id);
        for (at, piece) in volatile {
            self.need_flights_landed(&flights, (at, at + piece.length), piece.stamp)?;
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

    /// Before a stable change of bytes `from..to`: unstable bytes of blocks that
    /// it changes in part become durable with it. Else a member that loses them
    /// in a crash would hold other bytes than one that does not, under one version.
    pub(crate) fn harden_edges(&mut self, id: &ObjectId, from: u64, to: u64) -> Result<(), Hold> {
        let is_partial = |at: &u64| !at.is_multiple_of(BLOCK);
        let flights = self.client_flights(id);
        for at in [from, to].into_iter().filter(is_partial) {
            self.need_flights_landed(&flights, (at, at), 0)?;
            self.harden_block(id, at / BLOCK);
        }
        Ok(())
    }

    /// Records the unstable bytes of a block.
    pub(crate) fn harden_block(&mut self, id: &ObjectId, block: u64) {
        let Some(object) = self.object(id) else {
            return;
        };
        let pieces = object.overlay.range(block * BLOCK, (block + 1) * BLOCK);
        let is_volatile = |(_, piece): &(u64, Piece)| piece.state == PieceState::Volatile;
        let mut pieces: Vec<(u64, Piece)> = pieces.filter(is_volatile).collect();
        pieces.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.stamp));
        for (at, piece) in pieces {
            let bytes = piece.bytes.unwrap_or_default();
            self.record_inline(*id, piece.stamp, piece.version, at, bytes);
        }
    }

    /// The object's flights that carry a client's bytes.
    fn client_flights(&self, id: &ObjectId) -> Vec<u64> {
        let is_client = |number: &u64| {
            let flight = self.flights.get(number);
            flight.is_some_and(|flight| !flight.is_own())
        };
        self.object(id).map_or_else(Vec::new, |object| {
            object.flights.iter().copied().filter(is_client).collect()
        })
    }

    /// Flushes what clients have on its way to the object. False: nothing is.
    pub(crate) fn hurry_flights(&mut self, id: &ObjectId) -> bool {
        let flights = self.client_flights(id);
        for number in &flights {
            if let Some(flight) = self.flights.get_mut(number) {
                flight.is_urgent = true;
            }
        }
        !flights.is_empty()
    }

    /// None of these flights, with a stamp above `stamp`, is on its way to the
    /// blocks of `from..to`.
    fn need_flights_landed(
        &mut self,
        flights: &[u64],
        (from, to): (u64, u64),
        stamp: u64,
    ) -> Result<(), Hold> {
        let (from, to) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
        let mut is_flying = false;
        for number in flights {
            if let Some(flight) = self.flights.get_mut(number)
                && flight.stamp > stamp
                && flight.meets(from, to)
            {
                flight.is_urgent = true;
                is_flying = true;
            }
        }
        if is_flying { Err(Hold::Room) } else { Ok(()) }
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
        let extents = match self.place(whole.1 - whole.0) {
            Ok(extents) => extents,
            // Not so much space is free; the journal has room for what is volatile.
            Err(Hold::Room) if !self.is_growing => return Ok(()),
            Err(hold) => return Err(hold),
        };
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
            checksums: block_checksums(&data),
            edges,
            end_bytes: write.offset + length,
            held_bytes: length,
            ..Flight::new(write.object, (stamp, write.version), whole, extents)
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

    /// At intervals unstable bytes become durable without being asked for, from now on.
    pub(crate) fn write_back_old(&mut self) {
        if self.now >= self.checkpoint.last_writeback + self.config.writeback_delay {
            self.checkpoint.last_writeback = self.now;
            // One that is under way comes to its end first, however slow the disk is.
            self.checkpoint.written_back.get_or_insert_default();
            self.hurry_all();
        }
    }

    fn hurry_all(&mut self) {
        for flight in self.flights.values_mut() {
            flight.is_urgent = true;
        }
    }

    /// A step of that, and of the same when they are many or memory is short: a little at a time,
    /// one object after the other, as everybody waits for it.
    pub(crate) fn write_back(&mut self) {
        let is_needed = self.checkpoint.must_write_back || self.checkpoint.is_draining;
        let are_many = self.totals.volatile_bytes > self.volatile_bytes_max() / 4 * 3;
        if !(is_needed || are_many || self.checkpoint.written_back.is_some()) {
            return;
        }
        let step = BACK_BYTES_MAX.min(self.journal.frame_bytes_max() / 4);
        if self.journal.gathered_bytes() >= step {
            return;
        }
        if is_needed {
            self.hurry_all();
        }
        self.checkpoint.must_write_back = false;
        let mut lap = self.checkpoint.written_back.take().unwrap_or_default();
        let mut left = step;
        // What has nothing to be written back is passed over at once: nobody would call again.
        while left > 0 {
            let Some(id) = self.overlaid.range(lap.rest()).next().copied() else {
                return; // All of them.
            };
            let begun = lap.object.filter(|it| *it == id);
            let from = begun.map_or(0, |_| lap.bytes);
            let overlay = self.object(&id).map(|object| &object.overlay);
            let part = overlay.and_then(|it| it.volatile_blocks(from, left));
            lap.object = Some(id);
            lap.bytes = part.map_or(u64::MAX, |(_, to)| to);
            let Some((from, to)) = part else {
                continue;
            };
            match self.promote_part(&id, from, to) {
                Ok(()) => left = left.saturating_sub(to - from),
                Err(Hold::Refuse(_)) => {}
                Err(Hold::Room) => {
                    lap.bytes = from;
                    break;
                }
                Err(Hold::Load(wanted)) => {
                    self.load(*wanted);
                    lap.bytes = from;
                    break;
                }
            }
        }
        self.checkpoint.written_back = Some(lap);
    }
}

impl WrittenBack {
    /// The objects that are left.
    fn rest(&self) -> (Bound<ObjectId>, Bound<ObjectId>) {
        let first = match self.object {
            None => Bound::Unbounded,
            Some(id) if self.bytes == u64::MAX => Bound::Excluded(id),
            Some(id) => Bound::Included(id),
        };
        (first, Bound::Unbounded)
    }
}

/// Pieces that lie one after the other, in groups of up to `bytes_max`.
fn stretches<'a>(
    pieces: impl Iterator<Item = (u64, &'a Piece)>,
    bytes_max: u64,
) -> Vec<Vec<(u64, Piece)>> {
    let mut stretches: Vec<Vec<(u64, Piece)>> = Vec::new();
    let (mut next, mut length) = (None, 0);
    for (at, piece) in pieces {
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
