//! Comparing what members hold: copies and parity that nobody reads.
//!
//! Step by step the members of each whole set are read and held against each other. Blocks
//! where they differ are *suspects*: which member is wrong is not known here. Whoever knows
//! what the space should hold reads all of it meanwhile, and mends what is wrong; of suspects
//! of a mirror he is given the first member's copy. After that, what is read is right, and
//! [`agree`](DiskSets::agree) makes the other copies and the parity of it.
//!
//! A step fences its stripes, as those of rebuilds do, so that nothing changes while they are
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Time};

use super::work::{Job, Next, Owner, Reply, Work};
use super::{DiskSets, SetsError, SetsEvent, time_of};
use crate::assemble::DiskNumber;
use crate::geometry::{BLOCK, Kind, to_usize};
use crate::parity::xor_into;

/// Stripes that are compared in one step: 1 MiB of each member.
const STEP_STRIPES: u64 = 16;

/// Blocks of cells that are remembered as suspects; more are found the next time.
const SUSPECTS_MAX: usize = 4096;

/// A comparison of all sets.
#[derive(Debug, Default)]
pub(super) struct Comparing {
    stage: Stage,
    phase: Phase,
    set: usize,
    /// The next stripe of the set.
    stripe: u64,
    /// Rows of stripes, by set and stripe.
    suspects: BTreeMap<(usize, u64), BTreeSet<usize>>,
    differing: u64,
    agreed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Done,
    Looking,
    /// Others find out what is right.
    Waiting,
    Agreeing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// The next step is due then.
    Resting(Time),
    Draining,
    Working,
}

/// One step: what is read, and what it shows.
#[derive(Debug, Default)]
pub(super) struct CompareStep {
    is_asked: bool,
    differing: Vec<(u64, usize)>,
}

/// Some rows of one stripe become the same on all members.
#[derive(Debug)]
pub(super) struct AgreeStep {
    rows: Vec<usize>,
    phase: AgreePhase,
    written: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgreePhase {
    Begin,
    Reading,
    Writing,
}

impl DiskSets {
    /// Compares the members of all sets that lack nothing, at the rate of rebuilds.
    /// [`SetsEvent::Compared`] comes at the end.
    ///
    /// # Errors
    /// [`SetsError::Opening`] and [`SetsError::Comparing`].
    pub fn begin_comparing(&mut self, now: Time) -> Result<(), SetsError> {
        self.now = now;
        if self.recovering.is_some() {
            return Err(SetsError::Opening);
        }
        if matches!(self.comparing.stage, Stage::Looking | Stage::Agreeing) {
            return Err(SetsError::Comparing);
        }
        self.comparing = Comparing {
            stage: Stage::Looking,
            phase: Phase::Resting(now),
            ..Comparing::default()
        };
        self.mind_comparing();
        Ok(())
    }

    /// All that is used was read since [`SetsEvent::Compared`], and mended where it was wrong:
    /// copies and parity that still differ from it become like it. [`SetsEvent::Agreed`] comes
    /// at the end.
    pub fn agree(&mut self, now: Time) {
        self.now = now;
        if self.comparing.stage == Stage::Waiting {
            self.comparing.stage = Stage::Agreeing;
            self.comparing.phase = Phase::Resting(now);
            self.mind_comparing();
        }
    }

    /// Whether members differ somewhere in a stripe, as far as is known.
    pub(super) fn is_suspect(&self, set: usize, stripe: u64) -> bool {
        self.comparing.suspects.contains_key(&(set, stripe))
    }

    pub(super) fn comparing_due(&self) -> Option<Time> {
        match self.comparing.phase {
            Phase::Resting(due) => Some(due),
            _ => None,
        }
    }

    /// Whether all members of a set are there, so that they can be compared.
    fn is_comparable(&self, set: usize) -> bool {
        let record = &self.pool.sets[set];
        let is_whole = record.lacking() == 0 && self.sets[set].rebuild.is_none();
        is_whole && !record.is_retired() && record.kind != Kind::Stripe
    }

    /// Goes on with what can go on.
    pub(super) fn mind_comparing(&mut self) {
        match self.comparing.phase {
            Phase::Resting(due) if due <= self.now => self.begin_compare_step(),
            Phase::Draining => self.work_when_drained(),
            _ => {}
        }
    }

    fn begin_compare_step(&mut self) {
        match self.comparing.stage {
            Stage::Looking => self.next_to_look_at(),
            Stage::Agreeing => self.next_to_agree(),
            Stage::Done | Stage::Waiting => self.comparing.phase = Phase::Idle,
        }
    }

    fn next_to_look_at(&mut self) {
        while self.comparing.set < self.sets.len() {
            let (set, from) = (self.comparing.set, self.comparing.stripe);
            let end = self.pool.sets[set].formatted.min(from + STEP_STRIPES);
            if from < end && self.is_comparable(set) {
                return self.fence_for_comparing(set, from..end);
            }
            self.comparing.set += 1;
            self.comparing.stripe = 0;
        }
        self.comparing.phase = Phase::Idle;
        self.comparing.stage = Stage::Waiting;
        let differing = self.comparing.differing;
        self.events.push_back(SetsEvent::Compared { differing });
    }

    fn next_to_agree(&mut self) {
        while let Some((&(set, stripe), _)) = self.comparing.suspects.first_key_value() {
            if self.is_comparable(set) {
                self.comparing.set = set;
                return self.fence_for_comparing(set, stripe..stripe + 1);
            }
            // What is rebuilt is made of what is right.
            self.comparing.suspects.remove(&(set, stripe));
        }
        self.comparing.phase = Phase::Idle;
        self.comparing.stage = Stage::Done;
        let blocks = self.comparing.agreed;
        self.events.push_back(SetsEvent::Agreed { blocks });
    }

    fn fence_for_comparing(&mut self, set: usize, stripes: Range<u64>) {
        self.sets[set].fence = Some(stripes);
        self.comparing.phase = Phase::Draining;
        self.work_when_drained();
    }

    fn work_when_drained(&mut self) {
        let set = self.comparing.set;
        let Some(fence) = self.sets[set].fence.clone() else {
            return;
        };
        if self.has_works_in(set, &fence) {
            return;
        }
        self.comparing.phase = Phase::Working;
        let job = match self.comparing.stage {
            Stage::Agreeing => {
                let rows = self.comparing.suspects.remove(&(set, fence.start));
                Job::Agree(AgreeStep {
                    rows: rows.into_iter().flatten().collect(),
                    phase: AgreePhase::Begin,
                    written: 0,
                })
            }
            _ => Job::Compare(CompareStep::default()),
        };
        self.add_work(Work::new(set, fence, Owner::Comparison, job));
    }

    /// A set is to be rebuilt: it is not compared any more.
    pub(super) fn stop_comparing(&mut self, set: usize) {
        let is_at_it = matches!(self.comparing.phase, Phase::Draining | Phase::Working);
        if is_at_it && self.comparing.set == set {
            self.comparing.phase = Phase::Resting(self.now);
            self.unfence(set);
        }
        self.comparing.suspects.retain(|(of, _), _| *of != set);
    }

    /// A step has ended, if it is the one that is under way.
    pub(super) fn comparison_ended(&mut self, work: &Work) {
        let set = work.set;
        let is_current = self.comparing.phase == Phase::Working
            && self.comparing.set == set
            && self.sets[set].fence.as_ref() == Some(&work.stripes);
        if !is_current {
            return;
        }
        match &work.job {
            Job::Compare(step) => {
                self.comparing.stripe = work.stripes.end;
                self.comparing.differing += step.differing.len() as u64;
                self.sets[set].differing_blocks += step.differing.len() as u64;
                for &(stripe, row) in &step.differing {
                    let suspects = &mut self.comparing.suspects;
                    if suspects.values().map(BTreeSet::len).sum::<usize>() < SUSPECTS_MAX {
                        suspects.entry((set, stripe)).or_default().insert(row);
                    }
                }
            }
            Job::Agree(step) => {
                self.comparing.agreed += step.written;
                self.sets[set].agreed_blocks += step.written;
            }
            _ => return,
        }
        let bytes = (work.stripes.end - work.stripes.start) * self.pool.geometry.chunk();
        let wait = time_of(bytes, self.options.rebuild_bytes_per_second);
        self.comparing.phase = Phase::Resting(self.now + wait);
        self.unfence(set);
    }

    /// The disks of all members.
    fn all_members(&self, set: usize, stripe: u64) -> Vec<(usize, DiskNumber)> {
        let places = 0..self.pool.sets[set].members.len();
        let disks = places.filter_map(|place| Some((place, self.present(set, place, stripe)?)));
        disks.collect()
    }

    pub(super) fn advance_compare(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut CompareStep,
    ) -> Next {
        let chunk = to_usize(self.pool.geometry.chunk());
        if !std::mem::replace(&mut job.is_asked, true) {
            let at = self.disk_offset(work.stripes.start);
            let bytes = to_usize(work.stripes.end - work.stripes.start) * chunk;
            for (place, disk) in self.all_members(work.set, work.stripes.start) {
                self.read_disk(number, work, place, disk, (at, bytes));
            }
            return Next::Disks;
        }
        if !self.is_comparable(work.set) {
            return Next::Done(None);
        }
        let kind = self.pool.sets[work.set].kind;
        let cells: Option<Vec<AlignedBuffer>> = std::mem::take(&mut work.replies)
            .into_iter()
            .map(|reply| reply.answer.ok().flatten())
            .collect();
        // What one of them cannot read is looked at block by block.
        let differs = cells.map(|cells| differing(kind, &cells));
        let rows = self.pool.geometry.rows();
        for (stripe, first) in work.stripes.clone().zip((0..).step_by(chunk / BLOCK_BYTES)) {
            let is_odd = |row: &usize| {
                differs
                    .as_ref()
                    .is_none_or(|differs| differs.contains(&(first + row)))
            };
            let odd = (0..rows).filter(is_odd);
            job.differing.extend(odd.map(|row| (stripe, row)));
        }
        Next::Done(None)
    }

    pub(super) fn advance_agree(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut AgreeStep,
    ) -> Next {
        let members = self.pool.sets[work.set].members.len();
        let begin = self.disk_offset(work.stripes.start);
        let at = |row: usize| begin + row as u64 * BLOCK;
        match job.phase {
            AgreePhase::Begin => {
                job.phase = AgreePhase::Reading;
                for (place, disk) in self.all_members(work.set, work.stripes.start) {
                    for &row in &job.rows {
                        let slot = row * members + place;
                        self.read_disk(number, work, slot, disk, (at(row), BLOCK_BYTES));
                    }
                }
                Next::Disks
            }
            AgreePhase::Reading => {
                job.phase = AgreePhase::Writing;
                if !self.is_comparable(work.set) {
                    return Next::Done(None);
                }
                let mut rows: BTreeMap<usize, Vec<Option<AlignedBuffer>>> = BTreeMap::new();
                for Reply { slot, answer, .. } in std::mem::take(&mut work.replies) {
                    let row = rows.entry(slot / members);
                    let row = row.or_insert_with(|| (0..members).map(|_| None).collect());
                    row[slot % members] = answer.ok().flatten();
                }
                let kind = self.pool.sets[work.set].kind;
                let parity = kind.parity_member(members, work.stripes.start);
                for (row, cells) in rows {
                    let wrong = match parity {
                        Some(parity) => wrong_of_parity(&cells, parity),
                        None => wrong_copies(&cells),
                    };
                    for (place, content) in wrong {
                        if let Some(disk) = self.present(work.set, place, work.stripes.start) {
                            job.written += 1;
                            let write = (at(row), vec![content.freeze()], true);
                            self.write_disk(number, work, place, disk, write);
                        }
                    }
                }
                Next::Disks
            }
            AgreePhase::Writing => Next::Done(None),
        }
    }
}

/// The blocks, from the beginning of the cells on, in which members are not as they should be.
fn differing(kind: Kind, cells: &[AlignedBuffer]) -> BTreeSet<usize> {
    let mut differing = BTreeSet::new();
    let Some((first, others)) = cells.split_first() else {
        return differing;
    };
    if kind == Kind::Mirror {
        for other in others {
            if first[..] == other[..] {
                continue;
            }
            let blocks = first.chunks(BLOCK_BYTES).zip(other.chunks(BLOCK_BYTES));
            let differs = blocks.enumerate().filter(|(_, (one, other))| one != other);
            differing.extend(differs.map(|(block, _)| block));
        }
        return differing;
    }
    let mut sum = copy_of(first);
    others.iter().for_each(|other| xor_into(&mut sum, other));
    let blocks = sum.chunks(BLOCK_BYTES).enumerate();
    let differs = blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0));
    differing.extend(differs.map(|(block, _)| block));
    differing
}

/// Copies that are not what the first one that can be read is, and what they should be.
fn wrong_copies(cells: &[Option<AlignedBuffer>]) -> Vec<(usize, AlignedBuffer)> {
    let Some(right) = cells.iter().flatten().next() else {
        return Vec::new();
    };
    let cells = cells.iter().enumerate();
    let is_wrong = |cell: &Option<AlignedBuffer>| match cell {
        Some(cell) => cell[..] != right[..],
        None => true,
    };
    let wrong = cells.filter(|(_, cell)| is_wrong(cell));
    wrong.map(|(place, _)| (place, copy_of(right))).collect()
}

/// The cell of a stripe that cannot be read, or else the parity if it is not what the others
/// make, and what it should be.
fn wrong_of_parity(cells: &[Option<AlignedBuffer>], parity: usize) -> Vec<(usize, AlignedBuffer)> {
    let mut lost = (0..cells.len()).filter(|&place| cells[place].is_none());
    let wrong = match (lost.next(), lost.next()) {
        (None, _) => parity,
        (Some(lost), None) => lost,
        (Some(_), Some(_)) => return Vec::new(),
    };
    let mut others = (0..cells.len()).filter(|&place| place != wrong);
    let Some(mut right) = others
        .next()
        .and_then(|place| cells[place].as_ref())
        .map(copy_of)
    else {
        return Vec::new();
    };
    for cell in others.filter_map(|place| cells[place].as_ref()) {
        xor_into(&mut right, cell);
    }
    let is_right = |cell: &AlignedBuffer| cell[..] == right[..];
    match cells[wrong].as_ref().is_some_and(is_right) {
        true => Vec::new(),
        false => vec![(wrong, right)],
    }
}

fn copy_of(cell: &AlignedBuffer) -> AlignedBuffer {
    let mut copy = AlignedBuffer::zeroed(cell.len());
    copy.copy_from_slice(cell);
    copy
}
