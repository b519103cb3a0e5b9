//! A logical unit: what may run at the same time, and what initiators have set of it.
//!
//! Commands whose blocks overlap run one after the other, in the order in which they came,
//! if one of them writes. An ordered one waits for all before it, and all behind wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crossdock_peer::Lun;
use crossdock_router::WriteVerifier;
use crossdock_scsi::ModePages;

use crate::session::SessionId;
use crate::task::{Attribute, TaskId};

/// What a command does to which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) range: Range<u64>,
    pub(crate) is_change: bool,
    pub(crate) attribute: Attribute,
}

impl Claim {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        (self.is_change || other.is_change)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// A unit that is served.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) lun: Lun,
    pub(crate) pages: ModePages,
    pub(crate) default_pages: ModePages,
    /// By RESERVE (6).
    pub(crate) reserved_by: Option<SessionId>,
    /// START STOP UNIT has stopped it.
    pub(crate) is_stopped: bool,
    /// Its medium has been taken out.
    pub(crate) is_ejected: bool,
    waiting: VecDeque<(TaskId, Claim)>,
    running: BTreeMap<TaskId, Claim>,
    /// What copies, of whatever unit, are about to do next, and do.
    steps_waiting: VecDeque<(TaskId, Claim)>,
    steps: BTreeMap<TaskId, Claim>,
    pub(crate) cache: WriteCache,
}

impl Unit {
    /// Where other gateways serve it, too, it has no write cache, and its pages stay as they are.
    pub(crate) fn new(lun: Lun, is_shared: bool) -> Self {
        let pages = ModePages {
            is_write_cached: !is_shared && lun.has_write_cache,
            may_change_cache: !is_shared,
            may_change_control: !is_shared,
            is_descriptor_sense: false,
            is_software_protected: false,
        };
        Self {
            lun,
            pages,
            default_pages: pages,
            reserved_by: None,
            is_stopped: false,
            is_ejected: false,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            steps_waiting: VecDeque::new(),
            steps: BTreeMap::new(),
            cache: WriteCache::default(),
        }
    }

    /// A task waits for its turn.
    pub(crate) fn queue(&mut self, task: TaskId, claim: Claim) {
        match claim.attribute {
            Attribute::HeadOfQueue => self.waiting.push_front((task, claim)),
            _ => self.waiting.push_back((task, claim)),
        }
    }

    /// Takes the next task whose turn it is, of those that `may_run`.
    pub(crate) fn next(&mut self, may_run: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        // What is ordered runs alone.
        let alone = self.running.values().next();
        let alone = alone.filter(|_| self.running.len() == 1);
        let is_behind_ordered = alone.is_some_and(|it| it.attribute == Attribute::Ordered);
        if is_behind_ordered || self.waiting.is_empty() {
            return None;
        }
        // Copies have begun already: they are not overtaken.
        let mut passed: Vec<&Claim> = self.steps_waiting.iter().map(|(_, claim)| claim).collect();
        let mut found = None;
        for (place, (task, claim)) in self.waiting.iter().enumerate() {
            let is_ordered = claim.attribute == Attribute::Ordered;
            if is_ordered && (place > 0 || !self.running.is_empty()) {
                break;
            }
            let running = self.running.values().chain(self.steps.values());
            let mut others = running.chain(passed.iter().copied());
            if !others.any(|other| other.is_in_the_way_of(claim)) && may_run(*task) {
                found = Some(place);
                break;
            }
            if is_ordered {
                break;
            }
            passed.push(claim);
        }
        let (task, claim) = self.waiting.remove(found?)?;
        self.running.insert(task, claim);
        Some(task)
    }

    /// A step of a copy that runs already waits for its turn; the order of tasks is not its
    /// order.
    pub(crate) fn queue_step(&mut self, task: TaskId, claim: Claim) {
        self.steps_waiting.push_back((task, claim));
    }

    /// Takes the next copy whose step's turn it is.
    pub(crate) fn next_step(&mut self) -> Option<TaskId> {
        let is_free = |&(place, (_, claim)): &(usize, &(TaskId, Claim))| {
            let running = self.running.values().chain(self.steps.values());
            let before = self.steps_waiting.iter().take(place);
            let mut others = running.chain(before.map(|(_, before)| before));
            !others.any(|other| other.is_in_the_way_of(claim))
        };
        let (place, _) = self.steps_waiting.iter().enumerate().find(is_free)?;
        let (task, claim) = self.steps_waiting.remove(place)?;
        self.steps.insert(task, claim);
        Some(task)
    }

    /// A copy's step is over, or not wanted any more.
    pub(crate) fn end_step(&mut self, task: TaskId) {
        if self.steps.remove(&task).is_none() {
            self.steps_waiting.retain(|(waiting, _)| *waiting != task);
        }
    }

    /// A task is over.
    pub(crate) fn remove(&mut self, task: TaskId) {
        if self.running.remove(&task).is_none() {
            self.waiting.retain(|(waiting, _)| *waiting != task);
        }
        self.cache.forget(task);
    }
}

/// What was written and is not durable, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct WriteCache {
    unsynced: Unsynced,
    /// A commit on its way, and what it is for.
    commit: Option<(Unsynced, Vec<TaskId>)>,
    /// Those that came too late for it.
    next: Vec<TaskId>,
    /// Somebody wants one without waiting for it.
    is_wanted: bool,
}

/// Writes that were answered before they were durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unsynced {
    /// What holds while their bytes are there.
    verifier: Option<WriteVerifier>,
    /// Some of them are gone.
    is_lost: bool,
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// All that was written before it began is durable.
    Durable,
    /// It is not known whether it is.
    Failed,
    /// Some of it is gone for good.
    Lost,
}

impl WriteCache {
    /// A write was answered that is not durable.
    pub(crate) fn wrote(&mut self, verifier: WriteVerifier) {
        self.unsynced.add(Unsynced {
            verifier: Some(verifier),
            is_lost: false,
        });
    }

    /// A task waits until all that was written is durable; without one nobody waits.
    pub(crate) fn want(&mut self, task: Option<TaskId>) {
        match task {
            Some(task) => self.next.push(task),
            None => self.is_wanted = true,
        }
    }

    /// Whether a commit is to be asked for now.
    pub(crate) fn begin(&mut self) -> bool {
        let is_wanted = self.is_wanted || !self.next.is_empty();
        if self.commit.is_some() || !is_wanted {
            return false;
        }
        self.is_wanted = false;
        let waiting = std::mem::take(&mut self.next);
        self.commit = Some((std::mem::take(&mut self.unsynced), waiting));
        true
    }

    /// The commit is over, with this verifier if it was done. Who waited for it, and what they
    /// are told; what nobody was told yet is told with the next one.
    pub(crate) fn end(&mut self, verifier: Option<WriteVerifier>) -> (Vec<TaskId>, Committed) {
        let Some((unsynced, waiting)) = self.commit.take() else {
            return (Vec::new(), Committed::Failed);
        };
        let Some(verifier) = verifier else {
            self.unsynced.add(unsynced);
            return (waiting, Committed::Failed);
        };
        let is_same = unsynced.verifier.is_none_or(|seen| seen == verifier);
        if is_same && !unsynced.is_lost {
            return (waiting, Committed::Durable);
        }
        self.unsynced.is_lost |= waiting.is_empty();
        (waiting, Committed::Lost)
    }

    fn forget(&mut self, task: TaskId) {
        self.next.retain(|waiting| *waiting != task);
        if let Some((_, waiting)) = &mut self.commit {
            waiting.retain(|waiting| *waiting != task);
        }
    }
}

impl Unsynced {
    fn add(&mut self, other: Self) {
        let differs = |(a, b): (WriteVerifier, WriteVerifier)| a != b;
        self.is_lost |= other.is_lost | self.verifier.zip(other.verifier).is_some_and(differs);
        self.verifier = other.verifier.or(self.verifier);
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, FileRef};
    use crossdock_peer::{LunAccess, Reservations};

    use super::*;

    fn unit() -> Unit {
        let file = FileRef {
            id: FileId(1),
            generation: 1,
        };
        let lun = Lun {
            id: 1,
            name: "a".to_owned(),
            file,
            size_bytes: 1 << 20,
            block_bytes: 512,
            is_thin: false,
            is_removable: false,
            has_write_cache: true,
            access: LunAccess::local(),
            reservations: Reservations::default(),
        };
        Unit::new(lun, false)
    }

    fn queue(unit: &mut Unit, task: u64, range: Range<u64>, is_change: bool, attribute: Attribute) {
        let claim = Claim {
            range,
            is_change,
            attribute,
        };
        unit.queue(TaskId(task), claim);
    }

    fn run(unit: &mut Unit) -> Vec<u64> {
        std::iter::from_fn(|| unit.next(|_| true))
            .map(|task| task.0)
            .collect()
    }

    /// Goal: reads run beside each other, a write waits for what it overlaps, and nobody
    /// overtakes who waits for the same bytes.
    #[test]
    fn overlapping_changes_take_turns() {
        let mut unit = unit();
        queue(&mut unit, 1, 0..10, false, Attribute::Simple);
        queue(&mut unit, 2, 5..15, false, Attribute::Simple);
        queue(&mut unit, 3, 0..10, true, Attribute::Simple);
        queue(&mut unit, 4, 8..12, false, Attribute::Simple);
        queue(&mut unit, 5, 10..12, true, Attribute::Simple);
        queue(&mut unit, 6, 20..30, true, Attribute::Simple);
        assert_eq!(run(&mut unit), [1, 2, 6]);
        unit.remove(TaskId(1));
        assert_eq!(run(&mut unit), [0; 0]);
        unit.remove(TaskId(2));
        assert_eq!(run(&mut unit), [3]);
        unit.remove(TaskId(3));
        assert_eq!(run(&mut unit), [4]);
        unit.remove(TaskId(5));
        unit.remove(TaskId(4));
        unit.remove(TaskId(6));
        assert!(run(&mut unit).is_empty() && unit.running.is_empty());
    }

    /// Goal: an ordered task runs alone; one for the head of the queue goes before others
    /// that wait.
    #[test]
    fn ordered_tasks_run_alone() {
        let mut unit = unit();
        queue(&mut unit, 1, 0..1, false, Attribute::Simple);
        queue(&mut unit, 2, 1..2, false, Attribute::Ordered);
        queue(&mut unit, 3, 2..3, false, Attribute::Simple);
        assert_eq!(run(&mut unit), [1]);
        queue(&mut unit, 4, 3..4, false, Attribute::HeadOfQueue);
        assert_eq!(run(&mut unit), [4]);
        unit.remove(TaskId(1));
        assert_eq!(run(&mut unit), [0; 0]);
        unit.remove(TaskId(4));
        assert_eq!(run(&mut unit), [2]);
        unit.remove(TaskId(2));
        assert_eq!(run(&mut unit), [3]);
    }

    /// Goal: a copy's step waits for what it overlaps and for no order, not even its own task's,
    /// and tasks that come behind it do not overtake it.
    #[test]
    fn steps_of_copies_have_their_turn() {
        let mut unit = unit();
        let claim = |range, is_change| Claim {
            range,
            is_change,
            attribute: Attribute::Simple,
        };
        queue(&mut unit, 1, 0..10, true, Attribute::Simple);
        assert_eq!(run(&mut unit), [1]);
        unit.queue_step(TaskId(7), claim(5..15, false));
        unit.queue_step(TaskId(8), claim(10..20, true));
        unit.queue_step(TaskId(9), claim(30..40, true));
        queue(&mut unit, 2, 12..13, true, Attribute::Simple);
        assert_eq!(unit.next_step(), Some(TaskId(9)));
        assert_eq!((unit.next_step(), run(&mut unit)), (None, vec![]));
        unit.remove(TaskId(1));
        assert_eq!(unit.next_step(), Some(TaskId(7)));
        assert_eq!((unit.next_step(), run(&mut unit)), (None, vec![]));
        unit.end_step(TaskId(8));
        assert_eq!(run(&mut unit), [0; 0], "what is read is not changed");
        unit.end_step(TaskId(7));
        assert_eq!(run(&mut unit), [2]);
        unit.remove(TaskId(2));
        queue(&mut unit, 3, 0..0, false, Attribute::Ordered);
        assert_eq!(run(&mut unit), [3]);
        unit.queue_step(TaskId(3), claim(0..5, true));
        queue(&mut unit, 4, 50..60, false, Attribute::Simple);
        assert_eq!(
            (unit.next_step(), run(&mut unit)),
            (Some(TaskId(3)), vec![])
        );
        unit.end_step(TaskId(3));
        unit.remove(TaskId(3));
        assert_eq!(run(&mut unit), [4]);
    }

    /// Goal: a commit covers what was written before it began, and no more; who comes while it
    /// is under way waits for the next one; a change of the verifier is told, once.
    #[test]
    fn losses_are_told_once() {
        let mut cache = WriteCache::default();
        assert!(!cache.begin());
        cache.wrote([1; 8]);
        cache.want(Some(TaskId(1)));
        assert!(cache.begin() && !cache.begin());
        cache.wrote([2; 8]);
        cache.want(Some(TaskId(2)));
        assert!(!cache.begin(), "one at a time");
        assert_eq!(
            cache.end(Some([1; 8])),
            (vec![TaskId(1)], Committed::Durable)
        );
        assert!(cache.begin());
        assert_eq!(cache.end(None), (vec![TaskId(2)], Committed::Failed));
        cache.want(Some(TaskId(3)));
        assert!(cache.begin());
        assert_eq!(cache.end(Some([3; 8])), (vec![TaskId(3)], Committed::Lost));
        cache.want(Some(TaskId(4)));
        assert!(cache.begin());
        assert_eq!(
            cache.end(Some([3; 8])),
            (vec![TaskId(4)], Committed::Durable)
        );
        // Nobody waited for this one.
        cache.wrote([3; 8]);
        cache.wrote([4; 8]);
        cache.want(None);
        assert!(cache.begin());
        assert_eq!(cache.end(Some([4; 8])), (vec![], Committed::Lost));
        cache.want(Some(TaskId(5)));
        assert!(cache.begin());
        assert_eq!(cache.end(Some([4; 8])), (vec![TaskId(5)], Committed::Lost));
    }
}
