//! PREEMPT AND ABORT: those whom it has preempted are fenced off, which it is not before their
//! writes have ended.

use std::collections::BTreeSet;

use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::respond::Outcome;
use crate::task::{Task, TaskId};

/// A PREEMPT AND ABORT that is answered when nothing of those whom it has preempted is written
/// any more.
#[derive(Debug)]
pub(crate) struct Fence {
    task: TaskId,
    unit: u64,
    waits_for: BTreeSet<TaskId>,
}

impl IscsiDoor {
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
