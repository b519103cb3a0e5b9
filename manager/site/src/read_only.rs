//! A log that takes nothing any more: the disk of its only member fails, so
//! nobody can make a change durable, now or after trying again.
//!
//! Memory is ahead of the log then, by what was carried out and not answered.
//! All of that is answered with an error, and so is every change from now on.
//! What can be read goes on, as long as nothing of those changes is shown. The
//! frame that failed may be on the disk all the same: whoever opens the site
//! next finds it there or not, as with a request that nobody answered.

use crossdock_log::Position;
use crossdock_peer::{
    Call, CallId, LockOperation, OpenFor, SiteAnswer, SiteError, SiteOperation, SiteReply,
    SiteRequest,
};
use crossdock_types::{Time, WallTime};

use crate::commit::After;
use crate::site::{Phase, Purpose, Site, SiteEffect};

impl Site {
    /// Whether the site has to be opened anew before it takes changes again.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        matches!(self.phase, Phase::ReadOnly)
    }

    /// The same, or its opening has failed.
    #[must_use]
    pub const fn needs_opening(&self) -> bool {
        matches!(self.phase, Phase::ReadOnly | Phase::Failed)
    }

    /// Nothing can be logged any more: whoever waits for the log is told.
    pub(crate) fn log_failed(&mut self, what: &str) {
        self.phase = Phase::ReadOnly;
        self.effects
            .push_back(SiteEffect::ReadOnly(what.to_owned()));
        let is_read = |purpose: &Purpose| matches!(purpose, Purpose::BackingRead { .. });
        self.calls.keep(is_read);
        self.checkpoint = None;
        self.end_crossings();
        self.lock_notices.clear();
        for id in self.take_unanswered() {
            self.refuse(id, SiteError::Io);
        }
    }

    /// All who wait for something that will not happen here any more.
    pub(crate) fn take_unanswered(&mut self) -> Vec<CallId> {
        let parked = std::mem::take(&mut self.parked).into_values().flatten();
        let blocked = std::mem::take(&mut self.blocked).into_values().flatten();
        let crossing = std::mem::take(&mut self.crossings);
        let later = std::mem::take(&mut self.later);
        let mut ids: Vec<CallId> = parked
            .chain(blocked)
            .chain(self.waiting.drain(..))
            .chain(self.redo.drain(..))
            .chain(self.quota_work.take().map(|work| work.call))
            .chain(crossing.into_values().map(|crossing| crossing.call))
            .chain(later.into_values().map(|(call, _)| call))
            .map(|call| call.id)
            .collect();
        ids.extend(self.waits.take_ids());
        let driven = self.state.intentions.take_all_waiting();
        ids.extend(driven.into_iter().map(|reply| reply.id));
        ids
    }

    /// A reply that shows what is durable goes out, any other is an error.
    pub(crate) fn reply_read_only(&mut self, reply: SiteReply, after: After) {
        let durable = self.log.as_ref().map(crate::log::SiteLog::durable);
        let is_logged = durable.unwrap_or(Position(0)) >= after.position;
        let settled = after.sequence.is_none_or(|own| self.has_settled(own));
        if is_logged && settled {
            self.effects.push_back(SiteEffect::Reply(Box::new(reply)));
        } else {
            self.refuse(reply.id, SiteError::Io);
        }
    }

    /// A request to a site that takes no changes.
    pub(crate) fn serve_read_only(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        if self.answer_duplicate(wall, &call) {
            return;
        }
        let file = call.request.operation.subject().id;
        match &call.request.operation {
            SiteOperation::GetAttributes { .. }
            | SiteOperation::Lookup { .. }
            | SiteOperation::LookupParent { .. }
            | SiteOperation::Within { .. }
            | SiteOperation::Access { .. }
            | SiteOperation::ReadLink { .. }
            | SiteOperation::ReadDirectory { .. } => self.names(now, wall, call),
            SiteOperation::Space { file } => self.tell_space(&call, *file),
            // Its columns are being changed, and nobody can say how far.
            SiteOperation::Read { .. }
            | SiteOperation::Locate { .. }
            | SiteOperation::Open { .. }
                if self.state.intentions.is_busy(file) =>
            {
                self.refuse(call.id, SiteError::Io);
            }
            SiteOperation::Read { .. } | SiteOperation::Locate { .. } => {
                self.read_small(now, wall, call);
            }
            &SiteOperation::Open {
                file,
                purpose: purpose @ OpenFor::Read { .. },
                ..
            } => self.open_content(now, wall, &call, (file, purpose, None)),
            // Times of reading are not kept.
            &SiteOperation::PushAttributes {
                wrote: false,
                size_at_least_bytes: 0,
                ..
            } => {
                let shape = self.shape(&call.request.operation, None, false);
                self.reply_content(&call, &shape, Ok(SiteAnswer::Done), After::default());
            }
            SiteOperation::Locks {
                operation: LockOperation::Test(_) | LockOperation::List,
                ..
            } => self.locks(now, wall, &call),
            _ => self.refuse(call.id, SiteError::Io),
        }
    }
}
