//! Flushes: of all disks of a set at once.

use crossdock_disk::{DiskError, DiskOperation, DiskToken};

use super::ring::Ring;
use super::{DiskSets, Purpose, RequestKind};
use crate::assemble::DiskNumber;

/// A flush of one set.
#[derive(Debug)]
pub(super) struct Flush {
    set: usize,
    /// Which one of the set it is.
    number: u64,
    outstanding: usize,
    error: Option<DiskError>,
    owner: FlushOwner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushOwner {
    Request(u64),
    /// The machine itself: for room in the notes, or before a durable write.
    Notes,
    Grow,
    /// What is copied is stable first: a copy must not outlive it.
    Rebuild,
}

impl DiskSets {
    pub(super) fn begin_flush(&mut self, token: DiskToken) {
        let request = self.open_request(token, RequestKind::Change);
        for set in 0..self.sets.len() {
            if let Some(request) = self.requests.get_mut(&request) {
                request.outstanding += 1;
            }
            self.flush_set(set, FlushOwner::Request(request));
        }
        self.part_ended(request, None);
    }

    pub(super) fn flush_set(&mut self, set: usize, owner: FlushOwner) {
        let state = &mut self.sets[set];
        state.flush_started += 1;
        let number = state.flush_started;
        let places = 0..self.pool.sets[set].members.len();
        let disks = places.filter_map(|place| self.member_disk(set, place));
        let disks: Vec<DiskNumber> = disks.collect();
        let flush = Flush {
            set,
            number,
            outstanding: disks.len(),
            error: None,
            owner,
        };
        let id = self.number();
        let is_idle = disks.is_empty();
        self.flushes.insert(id, flush);
        for disk in disks {
            self.send(disk, Purpose::Flush(id), DiskOperation::Flush);
        }
        if is_idle {
            self.flush_ended(id);
        }
    }

    pub(super) fn flush_answered(&mut self, id: u64, disk: DiskNumber, error: Option<DiskError>) {
        // A disk that has failed it is out by now, if the set can do without it.
        let is_out = self.is_out(disk);
        let Some(flush) = self.flushes.get_mut(&id) else {
            return;
        };
        if let Some(error) = error.filter(|_| !is_out) {
            flush.error.get_or_insert(error);
        }
        flush.outstanding -= 1;
        if flush.outstanding == 0 {
            self.flush_ended(id);
        }
    }

    fn flush_ended(&mut self, id: u64) {
        let Some(flush) = self.flushes.remove(&id) else {
            return;
        };
        let set = flush.set;
        if flush.error.is_none() {
            let state = &mut self.sets[set];
            state.flushed = state.flushed.max(flush.number);
            self.retire_parity(set);
        }
        match flush.owner {
            FlushOwner::Request(request) => self.part_ended(request, flush.error),
            FlushOwner::Grow => self.grow_flushed(flush.error),
            FlushOwner::Rebuild => self.rebuild_flushed(set, flush.error.is_some()),
            FlushOwner::Notes => {
                self.sets[set].is_flushing = false;
                if let Some(error) = flush.error {
                    return self.fail_waiting(set, &error);
                }
                self.wake_flush_waiters(set);
            }
        }
        self.wake_noting(set);
        self.write_intent(set);
    }

    /// Makes everything stable, so that notes may be forgotten.
    pub(super) fn flush_for_room(&mut self, set: usize) {
        if !std::mem::replace(&mut self.sets[set].is_flushing, true) {
            self.flush_set(set, FlushOwner::Notes);
        }
    }

    /// Steps a work once what was written before it is stable.
    pub(super) fn flush_then_step(&mut self, set: usize, work: u64) {
        self.sets[set].flush_waiting.push_back(work);
        self.flush_for_room(set);
    }

    /// What waits for room in the notes cannot have it.
    fn fail_waiting(&mut self, set: usize, error: &DiskError) {
        let state = &mut self.sets[set];
        let mut works: Vec<u64> = std::mem::take(&mut state.flush_waiting).into();
        works.extend(state.intent.give_up());
        works.extend(state.rings.iter_mut().flat_map(Ring::give_up));
        for number in works {
            if let Some(work) = self.works.remove(&number) {
                self.end_work(number, work, Some(error.clone()));
            }
        }
    }

    pub(super) fn wake_flush_waiters(&mut self, set: usize) {
        for work in std::mem::take(&mut self.sets[set].flush_waiting) {
            self.step(work);
        }
    }
}
