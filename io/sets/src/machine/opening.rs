//! Putting in order what a loss of power has left, before anything is served.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use super::ring::Ring;
use super::work::{Job, Next, Owner, Reply, Work};
use super::{DiskSets, SetState};
use crate::assemble::{DiskNumber, Recovery, RowRecord};
use crate::geometry::{BLOCK, to_usize};
use crate::label::MemberState;
use crate::parity::xor_into;

/// Regions and stripes that are looked at together.
const TOGETHER: usize = 4;

/// What is still to be done.
#[derive(Debug, Default)]
pub(super) struct Recovering {
    /// The labels have to say this first.
    labels: Option<u64>,
    waiting: VecDeque<(usize, Range<u64>, Resync)>,
    active: usize,
}

/// Making the members of a set agree.
#[derive(Debug)]
pub(super) enum Resync {
    /// Of a mirror: some stripes.
    Copies { is_compared: bool },
    /// Of a parity set: what was noted of each row of one stripe.
    Parity {
        rows: Vec<Option<RowRecord>>,
        phase: Phase,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Begin,
    Reading { lost: Option<usize> },
    Writing,
}

impl DiskSets {
    pub(super) fn open(&mut self, recovery: Recovery, is_changed: bool) {
        self.sets = self.pool.sets.iter().map(|_| SetState::default()).collect();
        for set in 0..self.sets.len() {
            let members = self.pool.sets[set].members.len();
            for place in 0..members {
                let id = self.pool.sets[set].members[place].disk;
                let next = recovery.sequences.get(&id).copied().unwrap_or(0);
                self.sets[set].rings.push(Ring::from(next));
            }
            self.sets[set].intent.sequence = recovery.lists.get(&set).copied().unwrap_or(0);
        }
        let mut recovering = Recovering::default();
        let each = u64::from(self.pool.geometry.region_stripes);
        for (set, region) in recovery.regions {
            let stripes = region * each..((region + 1) * each).min(self.pool.sets[set].formatted);
            for stripes in self.parts_of(set, stripes) {
                let resync = Resync::Copies { is_compared: false };
                recovering.waiting.push_back((set, stripes, resync));
            }
        }
        for ((set, stripe), rows) in recovery.stripes {
            if stripe < self.pool.sets[set].formatted {
                let phase = Phase::Begin;
                let resync = Resync::Parity { rows, phase };
                let stripes = stripe..stripe + 1;
                recovering.waiting.push_back((set, stripes, resync));
            }
        }
        self.recovering = Some(recovering);
        if is_changed || self.pool.generation == 0 {
            let ticket = self.request_labels();
            if let Some(recovering) = &mut self.recovering {
                recovering.labels = Some(ticket);
            }
        }
        self.opening_labelled();
    }

    /// A region in parts of which each member has all or nothing: one that is rebuilt may have
    /// come to the middle of it, where the set ended when it was there.
    fn parts_of(&self, set: usize, region: Range<u64>) -> Vec<Range<u64>> {
        let members = self.pool.sets[set].members.iter();
        let cuts = members.filter_map(|member| match member.state {
            MemberState::Rebuilding { stripes } if region.contains(&stripes) => Some(stripes),
            _ => None,
        });
        let ends: BTreeSet<u64> = cuts.chain([region.end]).collect();
        let mut start = region.start;
        let parts = ends.into_iter().map(|end| {
            let part = start..end;
            start = end;
            part
        });
        parts.filter(|part| part.start < part.end).collect()
    }

    pub(super) fn opening_labelled(&mut self) {
        let Some(recovering) = &mut self.recovering else {
            return;
        };
        if recovering
            .labels
            .is_some_and(|ticket| ticket > self.labels.done)
        {
            return;
        }
        recovering.labels = None;
        self.go_on_recovering();
    }

    fn go_on_recovering(&mut self) {
        loop {
            let Some(recovering) = &mut self.recovering else {
                return;
            };
            if recovering.labels.is_some() || recovering.active >= TOGETHER {
                return;
            }
            let Some((set, stripes, resync)) = recovering.waiting.pop_front() else {
                break;
            };
            recovering.active += 1;
            self.add_work(Work::new(
                set,
                stripes,
                Owner::Recovery,
                Job::Resync(resync),
            ));
        }
        let is_done = self.recovering.as_ref().is_some_and(|it| it.active == 0);
        if is_done {
            self.opened();
        }
    }

    pub(super) fn resync_ended(&mut self) {
        if let Some(recovering) = &mut self.recovering {
            recovering.active -= 1;
        }
        self.go_on_recovering();
    }

    fn opened(&mut self) {
        self.recovering = None;
        for set in 0..self.sets.len() {
            if self.pool.sets[set].is_retired() {
                continue;
            }
            let mut members = self.pool.sets[set].members.iter();
            let is_rebuilding =
                |state: MemberState| matches!(state, MemberState::Rebuilding { .. });
            if let Some(place) = members.position(|member| is_rebuilding(member.state)) {
                self.begin_rebuild(set, place);
            }
        }
        self.use_spares();
        for request in std::mem::take(&mut self.early) {
            self.begin(request);
        }
        self.mind_rebuilds();
    }

    pub(super) fn advance_resync(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut Resync,
    ) -> Next {
        match job {
            Resync::Copies { is_compared } => self.resync_copies(number, work, is_compared),
            Resync::Parity { rows, phase } => self.resync_parity(number, work, rows, phase),
        }
    }

    /// All members get what the first of them has that can be read.
    fn resync_copies(&mut self, number: u64, work: &mut Work, is_compared: &mut bool) -> Next {
        let members = self.pool.sets[work.set].members.len();
        let at = self.disk_offset(work.stripes.start);
        if *is_compared {
            return Next::Done(None);
        }
        if work.replies.is_empty() {
            let bytes = (work.stripes.end - work.stripes.start) * self.pool.geometry.chunk();
            for place in 0..members {
                if let Some(disk) = self.present(work.set, place, work.stripes.start) {
                    self.read_disk(number, work, place, disk, (at, to_usize(bytes)));
                }
            }
            return match work.outstanding {
                0 => Next::Done(None),
                _ => Next::Disks,
            };
        }
        *is_compared = true;
        let mut replies = std::mem::take(&mut work.replies);
        replies.sort_by_key(|reply| reply.slot);
        let is_read = |reply: &Reply| matches!(reply.answer, Ok(Some(_)));
        let Some(source) = replies.iter().position(is_read) else {
            return Next::Done(None); // Nothing can be read: reads will say so.
        };
        let Ok(Some(content)) = replies.swap_remove(source).answer else {
            return Next::Done(None);
        };
        let content = content.freeze();
        for Reply {
            slot: place,
            disk,
            answer,
        } in replies
        {
            let is_same = matches!(&answer, Ok(Some(cell)) if cell[..] == content[..]);
            if !is_same && !self.is_out(disk) {
                let write = (at, vec![content.clone()], true);
                self.write_disk(number, work, place, disk, write);
            }
        }
        Next::Disks
    }

    /// The parity becomes what it should be of what is on the disks.
    fn resync_parity(
        &mut self,
        number: u64,
        work: &mut Work,
        rows: &[Option<RowRecord>],
        phase: &mut Phase,
    ) -> Next {
        let stripe = work.stripes.start;
        let set = &self.pool.sets[work.set];
        let (kind, members, cells) = (set.kind, set.members.len(), set.data_cells());
        let parity = kind.parity_member(members, stripe).unwrap_or(0);
        let Some(parity_disk) = self.present(work.set, parity, stripe) else {
            return Next::Done(None); // There is none to be made right.
        };
        let data: Vec<Option<DiskNumber>> = (0..cells)
            .map(|cell| self.present(work.set, kind.member_of(members, stripe, cell), stripe))
            .collect();
        let chunk = to_usize(self.pool.geometry.chunk());
        let at = self.disk_offset(stripe);
        match *phase {
            Phase::Begin => {
                let lost = data.iter().position(Option::is_none);
                *phase = Phase::Reading { lost };
                for (cell, disk) in data.iter().enumerate() {
                    if let Some(disk) = disk {
                        self.read_disk(number, work, cell, *disk, (at, chunk));
                    }
                }
                self.read_disk(number, work, cells, parity_disk, (at, chunk));
                Next::Disks
            }
            Phase::Reading { lost } => {
                let mut read: Vec<Option<AlignedBuffer>> = (0..=cells).map(|_| None).collect();
                for Reply { slot, answer, .. } in std::mem::take(&mut work.replies) {
                    read[slot] = answer.ok().flatten();
                }
                *phase = Phase::Writing;
                if let Some((first, content)) = right_parity(rows, &read, lost, cells) {
                    let offset = at + first as u64 * BLOCK;
                    let write = (offset, vec![content.freeze()], true);
                    self.write_disk(number, work, parity, parity_disk, write);
                }
                Next::Disks
            }
            Phase::Writing => Next::Done(None),
        }
    }
}

/// The rows of the parity that are not as they should be: the first, and the content from
/// there on. `read` has the data cells, then the parity.
fn right_parity(
    rows: &[Option<RowRecord>],
    read: &[Option<AlignedBuffer>],
    lost: Option<usize>,
    cells: usize,
) -> Option<(usize, AlignedBuffer)> {
    let parity = read[cells].as_ref()?;
    let mut right = AlignedBuffer::zeroed(parity.len());
    right.copy_from_slice(parity);
    for (row, record) in rows.iter().enumerate() {
        let Some(record) = record else {
            continue;
        };
        let range = row * BLOCK_BYTES..(row + 1) * BLOCK_BYTES;
        let content = row_parity(record, read, lost, cells, &range);
        if let Some(content) = content {
            right[range].copy_from_slice(&content);
        }
    }
    let is_wrong = |row: &usize| {
        let range = row * BLOCK_BYTES..(row + 1) * BLOCK_BYTES;
        right[range.clone()] != parity[range]
    };
    let first = (0..rows.len()).find(is_wrong)?;
    let last = (0..rows.len()).rfind(is_wrong)?;
    let mut content = AlignedBuffer::zeroed((last + 1 - first) * BLOCK_BYTES);
    content.copy_from_slice(&right[first * BLOCK_BYTES..(last + 1) * BLOCK_BYTES]);
    Some((first, content))
}

/// What the parity of a row should be; `None` if it is to stay.
fn row_parity(
    record: &RowRecord,
    read: &[Option<AlignedBuffer>],
    lost: Option<usize>,
    cells: usize,
    range: &Range<usize>,
) -> Option<[u8; BLOCK_BYTES]> {
    let mut content = [0; BLOCK_BYTES];
    let mut take = |cell: usize| {
        let cell = read[cell].as_ref()?;
        xor_into(&mut content, &cell[range.clone()]);
        Some(())
    };
    match lost {
        None => (0..cells).try_for_each(take)?,
        // It was being written: what the parity says of it is all there is.
        Some(lost) if record.mask & 1 << lost != 0 => return None,
        Some(_) => {
            let written = (0..cells).filter(|cell| record.mask & 1 << cell != 0);
            for cell in written {
                take(cell)?;
            }
            xor_into(&mut content, record.partial.as_deref()?);
        }
    }
    Some(content)
}
