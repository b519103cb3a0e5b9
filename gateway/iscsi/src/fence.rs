//! PREEMPT AND ABORT, and COPY OPERATION ABORT: those whom it has preempted, or the copy that it has
//! aborted, are fenced off, which is not before their writes have ended. Other changes of reservations, and those that were made through other
//! gateways, are obeyed when that is so of all who have lost their right by them, and of what was
//! aborted as a unit was reset.

use std::collections::BTreeSet;

use crossdock_peer::Nexus;
use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::message::IscsiEffect;
use crate::respond::Outcome;
use crate::task::{Task, TaskId};
use crate::unit::Unit;

/// A PREEMPT AND ABORT, or a COPY OPERATION ABORT, that is answered when nothing of those whom it has
/// preempted, or of that copy, is written any more.
#[derive(Debug)]
pub(crate) struct Fence {
    task: TaskId,
    unit: u64,
    waits_for: BTreeSet<TaskId>,
}

/// Reservations that are obeyed when nothing of those who have lost their right is written any
/// more; and resets, likewise.
#[derive(Debug)]
pub(crate) struct Obedience {
    changes: u64,
    /// Which tasks, and to which units they write.
    waits_for: BTreeSet<(u64, TaskId)>,
}

impl IscsiDoor {
    /// From now on reservations are as they were after so many changes; who has begun to write
    /// against them, or was pushed out by them, is waited for.
    pub(crate) fn obey(&mut self, changes: u64) {
        let pushed_out = std::mem::take(&mut self.pushed_out);
        let reset_tasks = std::mem::take(&mut self.reset_tasks);
        let has_lost = |task: &Task, unit: &Unit| {
            let Some(known) = self.sessions.get(&task.asked.session) else {
                return true; // It is over, and what it has begun is not.
            };
            let is_out =
                |(number, nexus): &(u64, Nexus)| *number == unit.lun.id && *nexus == known.nexus;
            pushed_out.iter().any(is_out) || self.is_kept_by_reservation(known, unit, true)
        };
        let mut waits_for: BTreeSet<(u64, TaskId)> = reset_tasks.into_iter().collect();
        for (&number, unit) in &self.units {
            let tasks = self.tasks.iter();
            let tasks = tasks.filter(|(_, task)| task.may_write_to(number) && has_lost(task, unit));
            waits_for.extend(tasks.map(|(&id, _)| (number, id)));
        }
        self.obediences.push_back(Obedience { changes, waits_for });
        self.settle_obediences();
    }

    /// Tells of those behind which nothing is written any more, in their order.
    pub(crate) fn settle_obediences(&mut self) {
        let tasks = &self.tasks;
        for obedience in &mut self.obediences {
            let may_write = |(unit, task): &(u64, TaskId)| {
                tasks.get(task).is_some_and(|task| task.may_write_to(*unit))
            };
            obedience.waits_for.retain(may_write);
        }
        while let Some(obeyed) = self.obediences.pop_front_if(|it| it.waits_for.is_empty()) {
            self.effects.push_back(IscsiEffect::Obeyed(obeyed.changes));
        }
    }

    /// Commands of those who are not registered any more are aborted, and waited for as far as
    /// they write; so is what copies of theirs write here (SPC-4, preempting and aborting).
    pub(crate) fn abort_preempted(&mut self, now: Time, by: TaskId) {
        let Some(task) = self.tasks.get(&by) else {
            return;
        };
        let (number, own) = (task.unit, task.asked.session);
        let Some(unit) = self.units.get(&number) else {
            return;
        };
        let is_out = |task: &Task| {
            let known = self.sessions.get(&task.asked.session);
            let key = known.and_then(|known| unit.lun.reservations.key_of(&known.nexus));
            task.asked.session != own && key.is_none()
        };
        let tasks = self.tasks.iter().filter(|(_, task)| is_out(task));
        let tasks: Vec<(TaskId, bool)> =
            tasks.map(|(&id, task)| (id, task.unit == number)).collect();
        let mut waits_for = BTreeSet::new();
        for (task, is_here) in tasks {
            // Copies of other units end by themselves: they may not write here any more.
            if !is_here || !self.abort_task(now, task) {
                waits_for.insert(task);
            }
        }
        self.fences.push(Fence {
            task: by,
            unit: number,
            waits_for,
        });
        self.settle_fences(now);
    }

    /// A command is answered when nothing of that copy is written any more at its unit.
    pub(crate) fn fence_copy(&mut self, now: Time, by: TaskId, copy: TaskId) {
        let Some(unit) = self.tasks.get(&by).map(|task| task.unit) else {
            return;
        };
        self.fences.push(Fence {
            task: by,
            unit,
            waits_for: [copy].into(),
        });
        self.settle_fences(now);
    }

    /// Answers those behind which nothing is written any more.
    pub(crate) fn settle_fences(&mut self, now: Time) {
        let tasks = &self.tasks;
        for fence in &mut self.fences {
            let unit = fence.unit;
            let may_change = |task: &TaskId| tasks.get(task).is_some_and(|it| it.writes_to(unit));
            fence.waits_for.retain(may_change);
        }
        let is_done = |fence: &mut Fence| fence.waits_for.is_empty();
        let done: Vec<Fence> = self.fences.extract_if(.., is_done).collect();
        for fence in done {
            self.complete(now, fence.task, Outcome::Good);
        }
    }
}
