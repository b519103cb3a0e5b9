//! Copies that outlive their command: with IMMED it is answered when its turn has come and the first
//! blocks may be copied, and from then on none of the unit's commands (SPC-4, third-party copies in
//! the background). RECEIVE ROD TOKEN INFORMATION tells how far it is. It ends like any other, with
//! its session, with a reset of its unit, or by COPY OPERATION ABORT.

use crossdock_scsi::{AdditionalSense, Sense, SenseKey};
use crossdock_types::Time;

use super::{STRETCH_BYTES, Told};
use crate::door::IscsiDoor;
use crate::respond::Outcome;
use crate::task::{Stage, TaskId};

/// Of one session at a time; one more finds the task set full.
const OF_SESSION_MAX: usize = 4;

/// What was aborted by COPY OPERATION ABORT, if its command is not answered yet.
const ENDED: Sense = Sense::new(SenseKey::CopyAborted, AdditionalSense::NONE);

impl IscsiDoor {
    /// Whether a copy, one more, may be answered before it is done. All of them together hold no more
    /// than half of the memory for commands.
    pub(crate) fn has_room_behind(&self, id: TaskId) -> bool {
        let Some(session) = self.tasks.get(&id).map(|task| task.asked.session) else {
            return false;
        };
        let of_copies = self.tasks.values().filter(|task| match &task.stage {
            Stage::Copying(copying) => copying.is_immediate,
            _ => false,
        });
        let (mut all, mut own) = (0, 0);
        for task in of_copies {
            all += 1;
            own += usize::from(task.asked.session == session);
        }
        let stretch_bytes = usize::try_from(STRETCH_BYTES).unwrap_or(usize::MAX);
        let all_max = self.config.limits.held_bytes_max / 2 / stretch_bytes;
        own < OF_SESSION_MAX && all < all_max.max(1)
    }

    /// Answers the command of a copy that has begun, if that is wanted; it is no longer one of the
    /// session's, or of the unit's, and nobody waits behind it but for its blocks.
    pub(super) fn answer_begun(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let told = match &task.stage {
            Stage::Copying(copying) if copying.is_immediate && !task.is_answered => copying.told,
            _ => return,
        };
        task.is_answered = true;
        let (asked, unit) = (task.asked, task.unit);
        let (sent_pdus, out_bytes) = (task.gather.sent_pdus, task.planned.out_bytes);
        self.detach(id);
        if let Some(unit) = self.units.get_mut(&unit) {
            unit.remove(id);
            self.is_pumped_again = true; // Others may have waited for it.
        }
        let session = self.sessions.get_mut(&asked.session);
        if let Told::Token(number) = told
            && let Some(operation) = session.and_then(|session| session.tokens.get_mut(&number))
        {
            operation.is_background = true;
        }
        self.answer(&asked, sent_pdus, Outcome::Good, out_bytes);
    }

    /// COPY OPERATION ABORT: answered when nothing of the copy is written any more.
    pub(crate) fn abort_copy(&mut self, now: Time, id: TaskId, list_id: u32) {
        let Some(session) = self.tasks.get(&id).map(|task| task.asked.session) else {
            return;
        };
        let mut tasks = self.tasks.iter();
        let copy = tasks.find(|(_, task)| match &task.stage {
            Stage::Copying(copying) => {
                let is_meant = matches!(copying.told, Told::Token(number) if number == list_id);
                is_meant && !copying.is_dying && task.asked.session == session
            }
            _ => false,
        });
        let Some((&copy, _)) = copy else {
            let unknown = Sense::invalid_field(2, None);
            return self.complete(now, id, unknown.into());
        };
        let is_over = self.stop_copy(copy);
        self.figures.aborted_total += 1;
        if is_over {
            self.complete(now, copy, ENDED.into());
        } else if let Some(copying) = self.copying(copy) {
            copying.is_told_of_end = true;
        }
        self.fence_copy(now, id, copy);
    }

    /// The last write of an aborted copy is answered.
    pub(super) fn bury_copy(&mut self, now: Time, id: TaskId) {
        let is_told = self.copying(id).is_some_and(|it| it.is_told_of_end);
        match is_told {
            true => self.complete(now, id, ENDED.into()),
            false => self.bury(now, id),
        }
    }
}
