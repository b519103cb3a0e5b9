//! Rebuilding a member on a spare, step by step.
//!
//! A step fences a few stripes, waits for the works there, makes what is to be copied
//! stable, copies, and has the labels say how far it came. Only then do others count on
//! it: a loss of power finds either what the label says, or nothing.

use crossdock_types::{AlignedBuffer, Time};

use super::flush::FlushOwner;
use super::work::{Job, Next, Owner, Work};
use super::{DiskSets, SetsError, SetsEvent, time_of};
use crate::assemble::DiskNumber;
use crate::geometry::{Kind, to_usize};
use crate::label::MemberState;
use crate::parity::xor_into;

/// A rebuild.
#[derive(Debug)]
pub(super) struct Rebuild {
    pub(super) place: usize,
    phase: Phase,
    /// Stripes of the next step: fewer after one has failed.
    step: u64,
    pub(super) unreadable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next step is due then.
    Waiting(Time),
    Draining,
    Flushing,
    Copying,
    Labelling(u64),
}

/// The copying of one step.
#[derive(Debug)]
pub(super) struct RebuildStep {
    place: usize,
    /// The disk that is filled: another one may be in the place before this ends.
    target: DiskNumber,
    phase: StepPhase,
    /// Where the other members cannot be read, zeros are written.
    gives_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepPhase {
    Begin,
    Reading,
    Writing,
}

impl DiskSets {
    pub(super) fn begin_rebuild(&mut self, set: usize, place: usize) {
        self.stop_comparing(set);
        self.sets[set].rebuild = Some(Rebuild {
            place,
            phase: Phase::Waiting(self.now),
            step: u64::from(self.pool.geometry.region_stripes),
            unreadable: 0,
        });
        let disk = self.member_disk(set, place);
        if let Some(disk) = disk.and_then(|number| self.disks.get(&number)) {
            let name = disk.name.clone();
            self.events.push_back(SetsEvent::RebuildBegun { name, set });
        }
    }

    /// The member that was being rebuilt is out.
    pub(super) fn stop_rebuild_of(&mut self, set: usize, place: usize) {
        let rebuild = self.sets[set].rebuild.as_ref();
        if rebuild.is_some_and(|rebuild| rebuild.place == place) {
            self.sets[set].rebuild = None;
            self.unfence(set);
        }
    }

    pub(super) fn unfence(&mut self, set: usize) {
        self.sets[set].fence = None;
        for work in std::mem::take(&mut self.sets[set].fenced) {
            self.admit(work);
        }
    }

    pub(super) fn rebuild_due(&self) -> Option<Time> {
        if self.is_paused || self.recovering.is_some() {
            return None;
        }
        let sets = (0..self.sets.len()).filter(|&set| !self.waits_for_growth(set));
        let rebuilds = sets.filter_map(|set| self.sets[set].rebuild.as_ref());
        let due = rebuilds.filter_map(|rebuild| match rebuild.phase {
            Phase::Waiting(due) => Some(due),
            _ => None,
        });
        due.min()
    }

    /// Whether all that is there is rebuilt, and more is just being added.
    fn waits_for_growth(&self, set: usize) -> bool {
        self.growing.is_some() && self.progress(set) >= self.pool.sets[set].formatted
    }

    /// Goes on with what can go on.
    pub(super) fn mind_rebuilds(&mut self) {
        if self.recovering.is_some() {
            return;
        }
        for set in 0..self.sets.len() {
            let Some(rebuild) = &self.sets[set].rebuild else {
                continue;
            };
            match rebuild.phase {
                Phase::Waiting(due) if due <= self.now && !self.is_paused => {
                    self.begin_step(set);
                }
                Phase::Draining => self.try_flush(set),
                Phase::Labelling(ticket) if ticket <= self.labels.done => self.step_labelled(set),
                _ => {}
            }
        }
    }

    fn enter(&mut self, set: usize, phase: Phase) {
        if let Some(rebuild) = &mut self.sets[set].rebuild {
            rebuild.phase = phase;
        }
    }

    fn progress(&self, set: usize) -> u64 {
        let Some(rebuild) = &self.sets[set].rebuild else {
            return 0;
        };
        match self.pool.sets[set].members[rebuild.place].state {
            MemberState::Rebuilding { stripes } => stripes,
            _ => 0,
        }
    }

    fn begin_step(&mut self, set: usize) {
        let from = self.progress(set);
        let formatted = self.pool.sets[set].formatted;
        if self.waits_for_growth(set) {
            return; // What is being added is copied when it is there.
        }
        if from >= formatted {
            return self.rebuilt(set);
        }
        let step = self.sets[set]
            .rebuild
            .as_ref()
            .map_or(1, |rebuild| rebuild.step);
        self.sets[set].fence = Some(from..formatted.min(from + step));
        self.enter(set, Phase::Draining);
        self.try_flush(set);
    }

    /// Once nobody is at work behind the fence, what was written there is made stable.
    fn try_flush(&mut self, set: usize) {
        let Some(fence) = self.sets[set].fence.clone() else {
            return;
        };
        if self.has_works_in(set, &fence) {
            return;
        }
        self.enter(set, Phase::Flushing);
        self.flush_set(set, FlushOwner::Rebuild);
    }

    /// Whether somebody is at work there.
    pub(super) fn has_works_in(&self, set: usize, fence: &std::ops::Range<u64>) -> bool {
        let mut active = self.sets[set].active.iter();
        active.any(|number| {
            let stripes = self.works.get(number).map(|work| &work.stripes);
            stripes.is_some_and(|stripes| fence.start < stripes.end && stripes.start < fence.end)
        })
    }

    pub(super) fn rebuild_flushed(&mut self, set: usize, has_failed: bool) {
        let Some(rebuild) = &self.sets[set].rebuild else {
            return;
        };
        let place = rebuild.place;
        if rebuild.phase != Phase::Flushing {
            return;
        }
        let gives_up = rebuild.step == 1;
        if has_failed {
            return self.rebuild_step_ended(set, true);
        }
        let fence = self.sets[set].fence.clone();
        let Some((fence, target)) = fence.zip(self.member_disk(set, place)) else {
            return;
        };
        self.enter(set, Phase::Copying);
        self.add_work(Work::new(
            set,
            fence,
            Owner::Rebuild,
            Job::Rebuild(RebuildStep {
                place,
                target,
                phase: StepPhase::Begin,
                gives_up,
            }),
        ));
    }

    pub(super) fn advance_rebuild(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut RebuildStep,
    ) -> Next {
        let chunk = self.pool.geometry.chunk();
        let bytes = to_usize((work.stripes.end - work.stripes.start) * chunk);
        let at = self.disk_offset(work.stripes.start);
        match job.phase {
            StepPhase::Begin => {
                job.phase = StepPhase::Reading;
                for disk in self.step_sources(work, job) {
                    self.read_disk(number, work, 0, disk, (at, bytes));
                }
                Next::Disks
            }
            StepPhase::Reading => {
                let content = self.step_content(work, job, bytes);
                let content = content.filter(|_| !self.is_out(job.target));
                let Some(content) = content else {
                    return Next::Done(Some(super::read::lacking(work.set)));
                };
                job.phase = StepPhase::Writing;
                let write = (at, vec![content.freeze()], true);
                self.write_disk(number, work, job.place, job.target, write);
                Next::Disks
            }
            StepPhase::Writing => match work.replies.pop().map(|reply| reply.answer) {
                Some(Ok(_)) => Next::Done(None),
                _ => Next::Done(Some(super::read::lacking(work.set))),
            },
        }
    }

    /// Whose cells make those that are copied: all of a parity set, one of a mirror.
    fn step_sources(&self, work: &Work, job: &RebuildStep) -> Vec<DiskNumber> {
        let set = &self.pool.sets[work.set];
        let places = (0..set.members.len()).filter(|&place| place != job.place);
        let disks = places.filter_map(|place| self.present(work.set, place, work.stripes.start));
        match set.kind {
            Kind::Mirror => disks.take(1).collect(),
            _ => disks.collect(),
        }
    }

    fn step_content(
        &mut self,
        work: &mut Work,
        job: &RebuildStep,
        bytes: usize,
    ) -> Option<AlignedBuffer> {
        let set = &self.pool.sets[work.set];
        let needed = match set.kind {
            Kind::Mirror => 1,
            _ => set.members.len() - 1,
        };
        let mut content = AlignedBuffer::zeroed(bytes);
        let mut found = 0;
        for reply in std::mem::take(&mut work.replies) {
            if let Ok(Some(cells)) = reply.answer {
                xor_into(&mut content, &cells);
                found += 1;
            }
        }
        if found == needed {
            return Some(content);
        }
        if !job.gives_up {
            return None;
        }
        if let Some(rebuild) = &mut self.sets[work.set].rebuild {
            rebuild.unreadable += work.stripes.end - work.stripes.start;
        }
        content.fill(0);
        Some(content)
    }

    /// A step has ended, if it is one of the rebuild that is under way.
    pub(super) fn copying_ended(&mut self, work: &Work, has_failed: bool) {
        let set = work.set;
        let Job::Rebuild(step) = &work.job else {
            return;
        };
        let is_current = self.sets[set].fence.as_ref() == Some(&work.stripes)
            && self.member_disk(set, step.place) == Some(step.target);
        if is_current {
            self.rebuild_step_ended(set, has_failed);
        }
    }

    fn rebuild_step_ended(&mut self, set: usize, has_failed: bool) {
        let fence = self.sets[set].fence.clone();
        let region = u64::from(self.pool.geometry.region_stripes);
        let Some((rebuild, fence)) = self.sets[set].rebuild.as_mut().zip(fence) else {
            return; // The member is out.
        };
        let place = rebuild.place;
        if has_failed {
            // Smaller, to find what cannot be read.
            rebuild.step = 1;
            rebuild.phase = Phase::Waiting(self.now + RETRY);
            return self.unfence(set);
        }
        if fence.end.is_multiple_of(region) {
            rebuild.step = region;
        }
        rebuild.phase = Phase::Labelling(u64::MAX);
        let stripes = fence.end;
        self.pool.sets[set].members[place].state = MemberState::Rebuilding { stripes };
        let ticket = self.request_labels();
        self.enter(set, Phase::Labelling(ticket));
    }

    fn step_labelled(&mut self, set: usize) {
        let Some(fence) = self.sets[set].fence.clone() else {
            return;
        };
        let bytes = (fence.end - fence.start) * self.pool.geometry.chunk();
        let wait = time_of(bytes, self.options.rebuild_bytes_per_second);
        self.enter(set, Phase::Waiting(self.now + wait));
        self.unfence(set);
    }

    fn rebuilt(&mut self, set: usize) {
        let Some(rebuild) = self.sets[set].rebuild.take() else {
            return;
        };
        let place = rebuild.place;
        let disk = self.member_disk(set, place);
        self.pool.sets[set].members[place].state = MemberState::Active;
        self.request_labels();
        let disk = disk.and_then(|number| self.disks.get(&number));
        self.events.push_back(SetsEvent::Rebuilt {
            name: disk.map_or_else(String::new, |disk| disk.name.clone()),
            set,
            unreadable: rebuild.unreadable,
        });
        // A mirror may lack more than one.
        self.use_spares();
    }

    /// Holds all rebuilds, or lets them go on.
    ///
    /// # Errors
    /// [`SetsError::NotRebuilding`].
    pub fn pause_rebuild(&mut self, now: Time, is_paused: bool) -> Result<(), SetsError> {
        self.now = now;
        if self.sets.iter().all(|set| set.rebuild.is_none()) {
            return Err(SetsError::NotRebuilding);
        }
        self.is_paused = is_paused;
        self.mind_rebuilds();
        Ok(())
    }
}

/// How long a step that has failed waits to be tried again.
const RETRY: std::time::Duration = std::time::Duration::from_millis(10);
