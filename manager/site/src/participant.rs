//! The part of a site in operations that another one coordinates.

use std::time::Duration;

use bytes::Bytes;
use crossdock_directory::{Cell, Mutation, decode_edits};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{
    Call, Part, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, TransactionId,
    TransactionStep, WeakCache,
};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::config::Fault;
use crate::intentions::Kind;
use crate::names::Cut;
use crate::promises::{MOVES, Promise, Promises, files_of};
use crate::site::Site;
use crate::site_calls::Asked;

/// How long a site waits for an outcome before it asks for it.
const INQUIRY_PAUSE: Duration = Duration::from_secs(1);

impl Site {
    /// A step of an operation over several sites.
    pub(crate) fn transaction(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        let SiteOperation::Transaction { id, step, .. } = &call.request.operation else {
            return;
        };
        let id = *id;
        match step {
            TransactionStep::Prepare { parts, oldest } => {
                let outcome = self.prepare(now, wall, id, parts, *oldest);
                self.answer_step(&call, outcome);
            }
            TransactionStep::Finish(edits) => {
                let edits = edits.clone();
                self.finish_promise(now, wall, call, id, edits);
            }
            TransactionStep::Adopt {
                edits,
                settled_below,
            } => {
                let outcome = self.adopt(now, wall, id.site, edits, *settled_below);
                self.answer_step(&call, outcome);
            }
            TransactionStep::Inquire => {
                let outcome = self.tell_outcome(id);
                self.answer_step(&call, outcome);
            }
        }
    }

    /// Promises to keep these as they are, and tells them.
    fn prepare(
        &mut self,
        now: Time,
        wall: WallTime,
        id: TransactionId,
        parts: &[Part],
        oldest: u64,
    ) -> Result<(SiteAnswer, After), SiteError> {
        if self.state.promises.has_ended(id) {
            return Err(SiteError::Invalid); // Late: nobody waits for it.
        }
        let mut files = files_of(parts);
        if files.iter().any(|&file| self.is_kept_from(file, id)) || self.quota_work.is_some() {
            return Err(SiteError::Busy);
        }
        for part in parts {
            if let Part::Ancestors(directory) = part {
                let above = self.state.directory.ancestors(*directory);
                let mut way = above.iter().chain([directory]);
                if way.any(|file| self.is_promised_to_another(file.id, id)) {
                    return Err(SiteError::Busy);
                }
            }
        }
        if self.leased_by_parts(now, parts) {
            return Err(SiteError::Busy);
        }
        let told = self.state.directory.tell(parts)?;
        files.retain(|&file| self.state.promises.holder(file).is_none());
        files.sort_unstable();
        files.dedup();
        if !files.is_empty() {
            if self.config.has(Fault::FreezeNothing) {
                files.clear();
            }
            let draft = Draft {
                promises: vec![
                    Promise::Oldest(TransactionId {
                        number: oldest,
                        ..id
                    }),
                    Promise::Make(id, files),
                ],
                ..Draft::default()
            };
            self.commit(now, wall, draft);
            self.inquire_later(now, id);
        }
        // Also what was promised and told before may not be durable yet.
        let after = After::position(self.log_mut().newest());
        let shown = self.after_of(files_of(parts).iter().map(|file| file.serial()));
        Ok((SiteAnswer::Prepared(told.into()), after.and(shown)))
    }

    /// Whether a file is not to be had by a transaction now.
    fn is_kept_from(&self, file: FileId, id: TransactionId) -> bool {
        let is_moving = file == MOVES && self.moving.is_some();
        is_moving || self.is_promised_to_another(file, id) || self.state.intentions.is_busy(file)
    }

    fn is_promised_to_another(&self, file: FileId, id: TransactionId) -> bool {
        let holder = self.state.promises.holder(file);
        holder.is_some_and(|holder| holder != id)
    }

    /// What was promised ends, with these changes or without.
    fn finish_promise(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        id: TransactionId,
        edits: Option<Bytes>,
    ) {
        let Some(files) = self.state.promises.of(id).map(<[FileId]>::to_vec) else {
            // An earlier sending has been carried out; maybe it is not durable yet.
            let after = After::position(self.log_mut().newest());
            return self.answer_step(&call, Ok((SiteAnswer::Done, after)));
        };
        let mut draft = Draft {
            promises: vec![Promise::End(id)],
            ..Draft::default()
        };
        match edits.as_deref().map(decode_edits) {
            Some(None) => return self.answer_step(&call, Err(SiteError::Invalid)),
            Some(Some(mutations)) => {
                if let Some(file) = self.leased_by_changes(now, &mutations) {
                    return self.block(file, call);
                }
                if let Some(freed) = self.freed_by(&mutations) {
                    match self.cut_small(&freed, 0) {
                        Cut::Change(change) => draft.small = change,
                        Cut::Wait(sequence) => return self.park(sequence, call),
                    }
                    draft
                        .declare
                        .extend(self.intention_for(&freed, Kind::Remove));
                }
                draft.mutations = mutations;
            }
            None => {}
        }
        let after = self.commit(now, wall, draft);
        self.inquiries.retain(|&(_, own)| own != id);
        self.answer_step(&call, Ok((SiteAnswer::Done, after)));
        self.unblock(&files);
    }

    /// The file that is removed, if it has content.
    fn freed_by(&self, mutations: &[Mutation]) -> Option<Cell> {
        mutations.iter().find_map(|mutation| {
            let Mutation::RemoveCell { serial } = mutation else {
                return None;
            };
            let cell = self.state.directory.cell_of(*serial)?;
            cell.is_regular().then(|| cell.clone())
        })
    }

    /// Takes a directory over that the coordinator has made.
    fn adopt(
        &mut self,
        now: Time,
        wall: WallTime,
        origin: SiteId,
        edits: &Bytes,
        settled_below: u64,
    ) -> Result<(SiteAnswer, After), SiteError> {
        let mut mutations = decode_edits(edits).ok_or(SiteError::Invalid)?;
        let cell = mutations.iter().find_map(|mutation| match mutation {
            Mutation::PutCell(cell) => Some(cell.file(self.config.site)),
            _ => None,
        });
        let file: FileRef = cell.ok_or(SiteError::Invalid)?;
        if !self.state.directory.is_adoptable(file) {
            // It was here before; maybe it is not durable yet.
            let after = After::position(self.log_mut().newest());
            return Ok((SiteAnswer::Done, after));
        }
        mutations.push(Mutation::Settled {
            origin,
            below: settled_below,
        });
        let draft = Draft {
            mutations,
            ..Draft::default()
        };
        let after = self.commit(now, wall, draft);
        Ok((SiteAnswer::Done, after))
    }

    fn answer_step(
        &mut self,
        call: &Call<SiteRequest>,
        outcome: Result<(SiteAnswer, After), SiteError>,
    ) {
        let (outcome, after) = match outcome {
            Ok((answer, after)) => (Ok(answer), after),
            // What it saw may not be durable yet.
            Err(error) => (Err(error), After::position(self.log_mut().newest())),
        };
        let reply = SiteReply {
            id: call.id,
            outcome,
            subject: WeakCache::default(),
            second: WeakCache::default(),
        };
        self.reply(reply, after);
    }

    fn inquire_later(&mut self, now: Time, id: TransactionId) {
        self.inquiries.retain(|&(_, own)| own != id);
        self.inquiries.insert((now + INQUIRY_PAUSE, id));
    }

    /// The site serves: asks at once what has become of what it promised earlier.
    pub(crate) fn inquire_all(&mut self, now: Time) {
        if self.config.has(Fault::PrepareUnlogged) {
            self.state.promises = Promises::default();
        }
        let promised = self.state.promises.ids();
        self.inquiries = promised.map(|id| (now, id)).collect();
    }

    /// Sites have been opened anew: what they had not decided ends, so they are asked
    /// at once.
    pub(crate) fn inquire_of_reopened(&mut self, now: Time) {
        let is_of_earlier = |id: &TransactionId| {
            let site = self.table.site(id.site);
            site.is_some_and(|site| site.epoch > id.epoch)
        };
        let inquiries = self.inquiries.iter().map(|&(due, id)| {
            let due = if is_of_earlier(&id) {
                due.min(now)
            } else {
                due
            };
            (due, id)
        });
        self.inquiries = inquiries.collect();
    }

    /// Asks for the outcomes that have not come for long.
    pub(crate) fn inquire(&mut self, now: Time) {
        while let Some(&(due, id)) = self.inquiries.first()
            && due <= now
        {
            self.inquiries.pop_first();
            let step = TransactionStep::Inquire;
            self.site_calls.send(now, id.site, id, step, Asked::Inquire);
        }
    }

    /// What the coordinator knows: nothing, so it will never be decided; or it goes on.
    pub(crate) fn take_inquiry(
        &mut self,
        now: Time,
        wall: WallTime,
        id: TransactionId,
        outcome: &Result<SiteAnswer, SiteError>,
    ) {
        let Some(files) = self.state.promises.of(id).map(<[FileId]>::to_vec) else {
            return;
        };
        if outcome.is_err() {
            return self.inquire_later(now, id);
        }
        let draft = Draft {
            promises: vec![Promise::End(id)],
            ..Draft::default()
        };
        self.commit(now, wall, draft);
        self.unblock(&files);
    }

    /// Whether something is kept for operations of other sites, for tests.
    #[must_use]
    pub fn keeps_promises(&self) -> bool {
        !self.state.promises.is_empty() || !self.crossings.is_empty() || !self.later.is_empty()
    }

    /// Lets go who waited for these.
    pub(crate) fn unblock(&mut self, files: &[FileId]) {
        for file in files {
            if let Some(calls) = self.blocked.remove(file) {
                self.redo.extend(calls);
            }
        }
    }
}
