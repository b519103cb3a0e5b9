//! Writes of a stripe of a parity set: read what is not written, note the partial parity,
//! write data and parity.
//!
//! The parity is always made anew of all cells. With few members that reads no more than
//! the old bytes and the old parity would be, and a parity that was wrong does not stay
//! so.

use std::ops::Range;

use bytes::Bytes;
use crossdock_disk::DiskError;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use super::DiskSets;
use super::read::lacking;
use super::ring::{Noted, Place};
use super::work::{Next, Reply, Work};
use crate::assemble::DiskNumber;
use crate::geometry::{BLOCK, LOG_OFFSET};
use crate::intent::{ParityRecord, wants_parity};
use crate::parity::xor_into;

/// One cell's part of a write.
#[derive(Debug)]
pub(super) struct CellWrite {
    /// Which data cell.
    pub(super) cell: usize,
    /// Its blocks.
    pub(super) rows: Range<usize>,
    pub(super) pieces: Vec<Bytes>,
}

/// What happens to one stripe.
#[derive(Debug)]
pub(super) struct ParityWrite {
    cells: Vec<CellWrite>,
    is_durable: bool,
    phase: Phase,
    /// A data cell that has to be made of the others.
    lost: Option<usize>,
    /// The new parity of all rows from the first to the last that is written.
    parity: Option<Bytes>,
    record: Option<ParityRecord>,
    /// Place and number of the record in the log of the member with the parity.
    logged: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Reading,
    /// Its record has no place in the log yet.
    Noting,
    Noted,
    Writing,
}

/// A block of a stripe's cells that was changed since the last flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirtyRow {
    /// Which data cells.
    mask: u64,
    /// Flushes that had begun when the last write ended; `None` while one is under way.
    stamp: Option<u64>,
}

impl ParityWrite {
    pub(super) const fn new(cells: Vec<CellWrite>, is_durable: bool) -> Self {
        Self {
            cells,
            is_durable,
            phase: Phase::Begin,
            lost: None,
            parity: None,
            record: None,
            logged: None,
        }
    }

    /// From the first block that is written to the last.
    fn hull(&self) -> Range<usize> {
        let starts = self.cells.iter().map(|cell| cell.rows.start);
        let ends = self.cells.iter().map(|cell| cell.rows.end);
        starts.min().unwrap_or(0)..ends.max().unwrap_or(0)
    }

    /// The cells that are written in a row, as bits.
    fn mask(&self, row: usize) -> u64 {
        let cells = self.cells.iter().filter(|cell| cell.rows.contains(&row));
        cells.fold(0, |mask, cell| mask | 1 << cell.cell)
    }

    fn covers(&self, cell: usize, rows: &Range<usize>) -> bool {
        let mut cells = self.cells.iter();
        cells.any(|one| one.cell == cell && one.rows == *rows)
    }
}

impl CellWrite {
    /// The new content of a row.
    fn row(&self, row: usize) -> Option<&[u8]> {
        if !self.rows.contains(&row) {
            return None;
        }
        let mut skip = (row - self.rows.start) * BLOCK_BYTES;
        for piece in &self.pieces {
            if skip < piece.len() {
                return piece.get(skip..skip + BLOCK_BYTES);
            }
            skip -= piece.len();
        }
        None
    }
}

/// The members of one stripe.
struct StripeView {
    cells: usize,
    /// Of each data cell: its place, and its disk if that has it.
    data: Vec<(usize, Option<DiskNumber>)>,
    parity: (usize, Option<DiskNumber>),
}

impl DiskSets {
    fn stripe_view(&self, set: usize, stripe: u64) -> StripeView {
        let record = &self.pool.sets[set];
        let (kind, members) = (record.kind, record.members.len());
        let cells = record.data_cells();
        let data = (0..cells).map(|cell| {
            let place = kind.member_of(members, stripe, cell);
            (place, self.present(set, place, stripe))
        });
        let data = data.collect();
        let parity = kind.parity_member(members, stripe).unwrap_or(0);
        StripeView {
            cells,
            data,
            parity: (parity, self.present(set, parity, stripe)),
        }
    }

    pub(super) fn advance_parity(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut ParityWrite,
    ) -> Next {
        let stripe = work.stripes.start;
        let view = self.stripe_view(work.set, stripe);
        match job.phase {
            Phase::Begin => {
                if view.parity.1.is_none() {
                    self.write_cells(number, work, job, &view);
                    return Next::Disks;
                }
                if self.has_dirty_neighbours(work.set, stripe, job) {
                    self.flush_then_step(work.set, number);
                    return Next::Parked;
                }
                job.lost = view.data.iter().position(|(_, disk)| disk.is_none());
                self.read_cells(number, work, job, &view)
            }
            Phase::Reading => {
                let mut old: Vec<Option<AlignedBuffer>> = (0..=view.cells).map(|_| None).collect();
                for Reply { slot, answer, .. } in std::mem::take(&mut work.replies) {
                    match answer {
                        Ok(content) => old[slot] = content,
                        Err(_) if job.lost.is_none() && slot < view.cells => {
                            job.lost = Some(slot);
                        }
                        Err(error) => return Next::Done(Some(error)),
                    }
                }
                if job.lost.is_some() && old[view.cells].is_none() && self.needs_lost(job) {
                    // All others are needed to make it.
                    return self.read_cells(number, work, job, &view);
                }
                if !self.make_parity(work.set, stripe, job, &view, old) {
                    return Next::Done(Some(lacking(work.set)));
                }
                job.phase = Phase::Noting;
                Next::Disks
            }
            Phase::Noting => self.note_parity(number, work, job, &view),
            Phase::Noted => {
                if let Some((place, sequence)) = job.logged {
                    for waiting in self.sets[work.set].rings[place].written(sequence) {
                        self.step(waiting);
                    }
                }
                if let Some(reply) = work.replies.pop()
                    && let Err(error) = reply.answer
                    && !self.is_out(reply.disk)
                {
                    self.parity_ended(work.set, stripe, job, false);
                    return Next::Done(Some(error));
                }
                self.write_cells(number, work, job, &view);
                Next::Disks
            }
            Phase::Writing => {
                let error = self.parity_verdict(work, job, &view);
                self.parity_ended(work.set, stripe, job, error.is_none());
                Next::Done(error)
            }
        }
    }

    /// Whether a cell that must be made of the others is one whose old bytes count.
    fn needs_lost(&self, job: &ParityWrite) -> bool {
        job.lost.is_some_and(|lost| !job.covers(lost, &job.hull()))
    }

    /// Whether blocks beside those that are written are not stable yet. They become so first:
    /// noted as being written they could be acknowledged while this write is under way, and
    /// be lost with it; and a durable write must not hang on them.
    fn has_dirty_neighbours(&self, set: usize, stripe: u64, job: &ParityWrite) -> bool {
        let Some(dirty) = self.sets[set].dirty.get(&stripe) else {
            return false;
        };
        let mut rows = job.hull();
        rows.any(|row| dirty[row].mask & !job.mask(row) != 0)
    }

    /// Reads the cells whose old bytes are needed.
    fn read_cells(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut ParityWrite,
        view: &StripeView,
    ) -> Next {
        job.phase = Phase::Reading;
        let hull = job.hull();
        let reads_all = self.needs_lost(job);
        let at = self.disk_offset(work.stripes.start) + hull.start as u64 * BLOCK;
        let range = (at, hull.len() * BLOCK_BYTES);
        let mut wanted = Vec::new();
        for (cell, (_, disk)) in view.data.iter().enumerate() {
            let is_needed = reads_all || !job.covers(cell, &hull);
            if is_needed && job.lost != Some(cell) {
                wanted.push((cell, *disk));
            }
        }
        if reads_all {
            wanted.push((view.cells, view.parity.1));
        }
        for (slot, disk) in wanted {
            let Some(disk) = disk else {
                return Next::Done(Some(lacking(work.set)));
            };
            self.read_disk(number, work, slot, disk, range);
        }
        Next::Disks
    }

    /// Makes parity and partial parity of what was read and what is written. False if
    /// something lacks.
    fn make_parity(
        &mut self,
        set: usize,
        stripe: u64,
        job: &mut ParityWrite,
        view: &StripeView,
        mut old: Vec<Option<AlignedBuffer>>,
    ) -> bool {
        let hull = job.hull();
        let bytes = hull.len() * BLOCK_BYTES;
        if let Some(lost) = job.lost
            && self.needs_lost(job)
        {
            let mut made = AlignedBuffer::zeroed(bytes);
            for (slot, cell) in old.iter().enumerate() {
                match cell {
                    Some(cell) => xor_into(&mut made, cell),
                    None if slot == lost => {}
                    None => return false,
                }
            }
            old[lost] = Some(made);
        }
        let rows = self.pool.geometry.rows();
        let dirty = self.sets[set].dirty.entry(stripe);
        let dirty = dirty.or_insert_with(|| vec![DirtyRow::default(); rows]);
        let mut parity = AlignedBuffer::zeroed(bytes);
        let mut masks = vec![0; rows];
        let mut payload = Vec::new();
        for row in hull.clone() {
            let written = job.mask(row);
            let mask = dirty[row].mask | written;
            let at = (row - hull.start) * BLOCK_BYTES;
            let range = at..at + BLOCK_BYTES;
            let mut partial = [0; BLOCK_BYTES];
            for (cell, before) in old.iter().enumerate().take(view.cells) {
                let mut writes = job.cells.iter().filter(|one| one.cell == cell);
                let new = writes.find_map(|one| one.row(row));
                let before = before.as_ref().map(|before| &before[range.clone()]);
                let Some(content) = new.or(before) else {
                    return false;
                };
                xor_into(&mut parity[range.clone()], content);
                if mask & 1 << cell == 0 {
                    xor_into(&mut partial, content);
                }
            }
            if written != 0 {
                dirty[row] = DirtyRow { mask, stamp: None };
                masks[row] = mask;
                if wants_parity(mask, view.cells) {
                    payload.extend_from_slice(&partial);
                }
            }
        }
        job.parity = Some(parity.freeze());
        job.record = Some(ParityRecord {
            sequence: 0,
            stripe,
            masks,
            payload,
        });
        true
    }

    fn note_parity(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut ParityWrite,
        view: &StripeView,
    ) -> Next {
        let (place, Some(disk)) = view.parity else {
            // It has failed meanwhile: without parity there is nothing to note.
            job.phase = Phase::Noted;
            return Next::Disks;
        };
        let slots = u64::from(self.pool.geometry.log_slots);
        let noted = Noted {
            stripe: work.stripes.start,
            rows: (job.hull().start, job.hull().end),
        };
        let sequence = match self.sets[work.set].rings[place].take(slots, noted, number) {
            Place::Taken(sequence) => sequence,
            Place::Behind => return Next::Parked,
            Place::Full => {
                self.flush_for_room(work.set);
                return Next::Parked;
            }
        };
        job.phase = Phase::Noted;
        job.logged = Some((place, sequence));
        if let Some(record) = &mut job.record {
            record.sequence = sequence;
            let at = LOG_OFFSET + sequence % slots * self.pool.geometry.slot_bytes();
            let owner = self.pool.sets[work.set].members[place].disk;
            let write = (at, vec![record.encode(owner)], true);
            self.write_disk(number, work, place, disk, write);
        }
        Next::Disks
    }

    fn write_cells(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut ParityWrite,
        view: &StripeView,
    ) {
        job.phase = Phase::Writing;
        let begin = self.disk_offset(work.stripes.start);
        for cell in &mut job.cells {
            if let (place, Some(disk)) = view.data[cell.cell] {
                let at = begin + cell.rows.start as u64 * BLOCK;
                let pieces = std::mem::take(&mut cell.pieces);
                let write = (at, pieces, job.is_durable);
                self.write_disk(number, work, place, disk, write);
            }
        }
        if let (Some(parity), (place, Some(disk))) = (&job.parity, view.parity) {
            let at = begin + job.hull().start as u64 * BLOCK;
            let write = (at, vec![parity.clone()], job.is_durable);
            self.write_disk(number, work, place, disk, write);
        }
    }

    /// How it has ended: what a member lacks the parity must have.
    fn parity_verdict(
        &self,
        work: &mut Work,
        job: &ParityWrite,
        view: &StripeView,
    ) -> Option<DiskError> {
        let mut written = Vec::new();
        let mut error = None;
        for reply in work.replies.drain(..) {
            match reply.answer {
                _ if self.is_out(reply.disk) => {}
                Ok(_) => written.push(reply.slot),
                Err(failed) => error = Some(failed),
            }
        }
        if error.is_some() {
            return error;
        }
        let has_parity = written.contains(&view.parity.0);
        let is_there = |cell: &CellWrite| written.contains(&view.data[cell.cell].0);
        let is_whole = job.cells.iter().all(is_there);
        (!is_whole && !has_parity).then(|| lacking(work.set))
    }

    fn parity_ended(&mut self, set: usize, stripe: u64, job: &ParityWrite, is_well: bool) {
        let state = &mut self.sets[set];
        let is_stable = is_well && job.is_durable;
        let stamp = Some(state.flush_started);
        if let Some((place, sequence)) = job.logged {
            state.rings[place].ended(sequence, stamp.filter(|_| !is_stable));
        }
        let Some(dirty) = state.dirty.get_mut(&stripe) else {
            return;
        };
        for row in job.hull() {
            if dirty[row].stamp.is_none() && dirty[row].mask != 0 {
                dirty[row].stamp = stamp;
                if is_stable {
                    dirty[row] = DirtyRow::default();
                }
            }
        }
    }

    /// A flush has ended well: what it covers needs no notes any more.
    pub(super) fn retire_parity(&mut self, set: usize) {
        let state = &mut self.sets[set];
        let flushed = state.flushed;
        state.dirty.retain(|_, rows| {
            for row in rows.iter_mut() {
                if row.stamp.is_some_and(|stamp| stamp < flushed) {
                    *row = DirtyRow::default();
                }
            }
            rows.iter().any(|row| row.mask != 0)
        });
    }

    /// Works that have waited for a slot of a log try again.
    pub(super) fn wake_noting(&mut self, set: usize) {
        let flushed = self.sets[set].flushed;
        for place in 0..self.sets[set].rings.len() {
            for work in self.sets[set].rings[place].retire(flushed) {
                self.step(work);
            }
        }
    }
}
