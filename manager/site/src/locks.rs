//! Operations on locks: each that changes something is a record of its own; who
//! waited is granted in the records behind it, and told when they are durable.

use crossdock_directory::Wanted;
use crossdock_locks::{Decision, LockChange};
use crossdock_names::FileRef;
use crossdock_peer::{
    Call, Caller, LockNotice, LockOperation, SiteAnswer, SiteError, SiteOperation, SiteRequest,
};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::site::{Site, SiteEffect};

/// Locks of one list.
const LISTED_MAX: usize = 65_536;

impl Site {
    /// Plans, logs, applies, answers.
    pub(crate) fn locks(&mut self, now: Time, wall: WallTime, call: &Call<SiteRequest>) {
        let SiteOperation::Locks { file, operation } = &call.request.operation else {
            return;
        };
        let shape = self.shape(&call.request.operation, None, false);
        let newest = After::position(self.log_mut().newest());
        if let Err(error) = self.check_lock(&call.request.caller, *file, operation) {
            return self.reply_content(call, &shape, Err(error), newest);
        }
        let changes = match self.state.locks.plan(file.id.serial(), operation) {
            Decision::Refuse(refusal) => {
                let answer = Ok(SiteAnswer::NotLocked(refusal));
                return self.reply_content(call, &shape, answer, newest);
            }
            Decision::Change(changes) => changes,
        };
        let mut touched = self.files_touched(&changes);
        if matches!(operation, LockOperation::Cancel(_)) {
            touched.push(file.id.serial());
        }
        if changes.is_empty() {
            let answer = match operation {
                LockOperation::List => SiteAnswer::Locked(self.state.locks.list(LISTED_MAX)),
                _ => SiteAnswer::Done,
            };
            self.reply_content(call, &shape, Ok(answer), newest);
        } else {
            let draft = Draft {
                locks: changes,
                duplicate: call.request.duplicate.map(|key| (key, shape)),
                ..Draft::default()
            };
            let after = self.commit(now, wall, draft);
            self.reply_content(call, &shape, Ok(SiteAnswer::Done), after);
        }
        self.grant_waiting(now, wall, touched);
    }

    /// Who may read or write a file may lock it; to give a lock up needs no
    /// right, and what is about clients comes from the door.
    fn check_lock(
        &self,
        caller: &Caller,
        file: FileRef,
        operation: &LockOperation,
    ) -> Result<(), SiteError> {
        let is_granted = matches!(operation, LockOperation::GrantAnswered(..));
        if operation.is_about_clients() || is_granted {
            return Ok(());
        }
        let cell = self.state.directory.cell(file)?;
        let is_taken = matches!(
            operation,
            LockOperation::Test(_) | LockOperation::Lock(..) | LockOperation::Share(..)
        );
        if !is_taken || cell.is_owner(caller) {
            return Ok(());
        }
        cell.check(caller, Wanted::Read)
            .or_else(|_| cell.check(caller, Wanted::Write))
    }

    /// Files where somebody may go on after these changes.
    fn files_touched(&self, changes: &[LockChange]) -> Vec<u64> {
        let mut files = Vec::new();
        for change in changes {
            match change {
                LockChange::Forget { client, .. } => {
                    files.extend(self.state.locks.files_of(client));
                }
                change => files.extend(change.file()),
            }
        }
        files
    }

    /// Gives locks to those who waited for them.
    fn grant_waiting(&mut self, now: Time, wall: WallTime, files: Vec<u64>) {
        for file in files {
            while let Some((locks, notice)) = self.state.locks.next_grant(file) {
                let position = if locks.is_empty() {
                    self.log_mut().newest()
                } else {
                    let draft = Draft {
                        locks,
                        ..Draft::default()
                    };
                    self.commit(now, wall, draft).position
                };
                self.lock_notices.push_back((position, notice));
            }
        }
    }

    /// The site serves: who had locks is told, and has the time to take them
    /// again.
    pub(crate) fn tell_restart(&mut self, now: Time) {
        let clients = self.state.locks.begin_grace(now + self.config.grace);
        let half = u32::try_from(self.config.epoch.0 & 0x3fff_ffff).unwrap_or_default();
        let state = half * 2 + 1; // Every opening has an epoch of its own.
        let notice = LockNotice::Restarted { state, clients };
        self.effects.push_back(SiteEffect::Lock(notice));
    }

    /// Passes on what doors may be told by now.
    pub(crate) fn tell_notices(&mut self, now: Time) {
        self.state.locks.end_grace(now);
        let newest = self.log_mut().newest();
        while let Some(notice) = self.state.locks.poll_notice() {
            self.lock_notices.push_back((newest, notice));
        }
        let durable = self.log_mut().durable();
        while let Some((_, notice)) = self
            .lock_notices
            .pop_front_if(|(position, _)| *position <= durable)
        {
            self.effects.push_back(SiteEffect::Lock(notice));
        }
    }

    /// The locks, for reports and tests.
    #[must_use]
    pub const fn lock_table(&self) -> &crossdock_locks::Locks {
        &self.state.locks
    }
}
