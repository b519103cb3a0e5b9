//! Works: what is done within one set, phase by phase.

use std::ops::Range;

use crossdock_disk::{DiskError, DiskOperation, DiskOutput};
use crossdock_types::{AlignedBuffer, Scatter};

use super::compare::{AgreeStep, CompareStep};
use super::opening::Resync;
use super::parity_write::ParityWrite;
use super::read::{Copied, DirectRead};
use super::rebuild::RebuildStep;
use super::recover::Recover;
use super::write::PlainWrite;
use super::{DiskSets, Purpose};
use crate::assemble::DiskNumber;
use crate::geometry::Kind;

/// One work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) set: usize,
    pub(super) stripes: Range<u64>,
    pub(super) owner: Owner,
    pub(super) job: Job,
    pub(super) outstanding: usize,
    /// What disks have answered in this phase.
    pub(super) replies: Vec<Reply>,
}

impl Work {
    /// One that has not begun.
    pub(super) const fn new(set: usize, stripes: Range<u64>, owner: Owner, job: Job) -> Self {
        Self {
            set,
            stripes,
            owner,
            job,
            outstanding: 0,
            replies: Vec::new(),
        }
    }
}

/// What a disk has answered.
#[derive(Debug)]
pub(super) struct Reply {
    /// A number that the phase has chosen.
    pub(super) slot: usize,
    /// Which disk: another one may be in its place by now.
    pub(super) disk: DiskNumber,
    pub(super) answer: Result<Option<AlignedBuffer>, DiskError>,
}

/// Who is told when it ends.
#[derive(Debug)]
pub(super) enum Owner {
    Request(u64),
    Rebuild,
    Recovery,
    Comparison,
}

#[derive(Debug)]
pub(super) enum Job {
    Read(DirectRead),
    Copied(Copied),
    Recover(Recover),
    Write(PlainWrite),
    Parity(ParityWrite),
    Rebuild(RebuildStep),
    Resync(Resync),
    Compare(CompareStep),
    Agree(AgreeStep),
}

/// How a work goes on.
#[derive(Debug)]
pub(super) enum Next {
    /// It waits for disks, or goes on at once if none was asked.
    Disks,
    /// It waits for something that will step it.
    Parked,
    /// It has ended.
    Done(Option<DiskError>),
}

impl Job {
    /// Whether it changes what is on disks, or needs all of a stripe as it is.
    const fn is_fenced(&self) -> bool {
        matches!(self, Self::Recover(_) | Self::Write(_) | Self::Parity(_))
    }
}

impl DiskSets {
    /// Begins a work, as soon as nothing stands in its way.
    pub(super) fn add_work(&mut self, work: Work) {
        let number = self.number();
        if let Some(request) = work.owner.request()
            && let Some(request) = self.requests.get_mut(&request)
        {
            request.outstanding += 1;
        }
        self.works.insert(number, work);
        self.admit(number);
    }

    pub(super) fn admit(&mut self, number: u64) {
        let Some(work) = self.works.get(&number) else {
            return;
        };
        if work.job.is_fenced() {
            let kind = self.pool.sets[work.set].kind;
            let set = &mut self.sets[work.set];
            let stripes = &work.stripes;
            let meets = |fence: &Range<u64>| fence.start < stripes.end && stripes.start < fence.end;
            if set.fence.as_ref().is_some_and(meets) {
                set.fenced.push_back(number);
                return;
            }
            if kind == Kind::Parity {
                if let Some(waiting) = set.busy.get_mut(&stripes.start) {
                    waiting.push_back(number);
                    return;
                }
                set.busy
                    .insert(stripes.start, std::collections::VecDeque::new());
            }
            set.active.insert(number);
        }
        self.step(number);
    }

    /// A work goes on with its next phase.
    pub(super) fn step(&mut self, number: u64) {
        loop {
            let Some(mut work) = self.works.remove(&number) else {
                return;
            };
            let next = self.advance(number, &mut work);
            let is_waiting = work.outstanding > 0;
            match next {
                Next::Done(error) => return self.end_work(number, work, error),
                Next::Parked => {
                    self.works.insert(number, work);
                    return;
                }
                Next::Disks => {
                    self.works.insert(number, work);
                    if is_waiting {
                        return;
                    }
                }
            }
        }
    }

    fn advance(&mut self, number: u64, work: &mut Work) -> Next {
        // Taken out, so that the phases can use both.
        let placeholder = Job::Copied(Copied::default());
        let mut job = std::mem::replace(&mut work.job, placeholder);
        let next = match &mut job {
            Job::Read(job) => self.advance_read(number, work, job),
            Job::Copied(job) => self.advance_copied(number, work, job),
            Job::Recover(job) => self.advance_recover(number, work, job),
            Job::Write(job) => self.advance_write(number, work, job),
            Job::Parity(job) => self.advance_parity(number, work, job),
            Job::Rebuild(job) => self.advance_rebuild(number, work, job),
            Job::Resync(job) => self.advance_resync(number, work, job),
            Job::Compare(job) => self.advance_compare(number, work, job),
            Job::Agree(job) => self.advance_agree(number, work, job),
        };
        work.job = job;
        next
    }

    pub(super) fn end_work(&mut self, number: u64, work: Work, error: Option<DiskError>) {
        if work.job.is_fenced() {
            let set = &mut self.sets[work.set];
            set.active.remove(&number);
            if self.pool.sets[work.set].kind == Kind::Parity
                && let Some(waiting) = set.busy.remove(&work.stripes.start)
            {
                for waiter in waiting {
                    self.admit(waiter);
                }
            }
        }
        match work.owner {
            Owner::Request(request) => self.part_ended(request, error),
            Owner::Rebuild => self.copying_ended(&work, error.is_some()),
            Owner::Recovery => self.resync_ended(),
            Owner::Comparison => self.comparison_ended(&work),
        }
    }

    /// A disk has answered a work.
    pub(super) fn work_answered(
        &mut self,
        number: u64,
        slot: usize,
        disk: DiskNumber,
        result: Result<DiskOutput, DiskError>,
    ) {
        let Some(work) = self.works.get_mut(&number) else {
            return;
        };
        work.outstanding -= 1;
        let answer = match result {
            Ok(DiskOutput::Read(buffer)) => {
                let mut parts = buffer.into_parts();
                match (&mut work.job, parts.len()) {
                    (Job::Read(read), _) => {
                        read.parts = parts;
                        Ok(None)
                    }
                    (_, 1) => Ok(parts.pop()),
                    _ => Ok(None),
                }
            }
            Ok(DiskOutput::Done) => Ok(None),
            Err(error) => Err(error),
        };
        work.replies.push(Reply { slot, disk, answer });
        if work.outstanding == 0 {
            self.step(number);
        }
    }

    /// Asks a disk for one buffer.
    pub(super) fn read_disk(
        &mut self,
        number: u64,
        work: &mut Work,
        slot: usize,
        disk: DiskNumber,
        (offset_bytes, bytes): (u64, usize),
    ) {
        let buffer = Scatter::from(AlignedBuffer::zeroed(bytes));
        let read = DiskOperation::Read {
            offset_bytes,
            buffer,
        };
        work.outstanding += 1;
        self.send(disk, Purpose::Work { work: number, slot }, read);
    }

    /// Writes to a disk.
    pub(super) fn write_disk(
        &mut self,
        number: u64,
        work: &mut Work,
        slot: usize,
        disk: DiskNumber,
        (offset_bytes, pieces, is_durable): (u64, Vec<bytes::Bytes>, bool),
    ) {
        let write = DiskOperation::Write {
            offset_bytes,
            pieces,
            is_durable,
        };
        work.outstanding += 1;
        self.send(disk, Purpose::Work { work: number, slot }, write);
    }
}
