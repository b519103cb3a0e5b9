//! Giving trees quotas, and taking them away.
//!
//! A new tree's cells are walked and put into it in memory, in one step, so no
//! rename or create comes in between. The log learns it piece by piece, as it
//! has room: first that the tree's number is taken, then which cells belong to
//! it, last that the tree is there, which answers the request. Before its last
//! record the others mean nothing, so a crash leaves no tree behind.

use crossdock_directory::{Mutation, NewTree, QuotaPlan};
use crossdock_names::FileRef;
use crossdock_peer::{Call, Quota, QuotaChange, SiteAnswer, SiteError, SiteRequest};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::site::Site;

/// A tree on its way into the log.
#[derive(Debug)]
pub(crate) struct QuotaWork {
    pub(crate) call: Call<SiteRequest>,
    new: NewTree,
    /// Its newest record.
    logged: After,
}

impl Site {
    pub(crate) fn set_quota(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        directory: FileRef,
        change: QuotaChange,
    ) {
        match self.state.directory.plan_quota(directory, &change) {
            Err(error) => self.answer_quota(&call, Err(error), After::default()),
            Ok(QuotaPlan::Limits(mutation)) => {
                let after = self.commit_quota(now, wall, mutation);
                let quota = self.quota_at(directory);
                self.answer_quota(&call, quota, after);
            }
            Ok(QuotaPlan::New(_)) if self.quota_work.is_some() => {
                self.answer_quota(&call, Err(SiteError::Busy), After::default());
            }
            Ok(QuotaPlan::New(new)) => {
                let logged = self.commit_quota(now, wall, new.reserve());
                self.state.directory.hold_tree(&new);
                self.quota_work = Some(QuotaWork { call, new, logged });
            }
        }
    }

    pub(crate) fn remove_quota(
        &mut self,
        now: Time,
        wall: WallTime,
        call: &Call<SiteRequest>,
        directory: FileRef,
    ) {
        let removed = self.quota_at(directory);
        match self.state.directory.plan_quota_removal(directory) {
            Err(error) => self.answer_quota(call, Err(error), After::default()),
            Ok(mutation) => {
                let after = self.commit_quota(now, wall, mutation);
                self.answer_quota(call, removed, after);
            }
        }
    }

    /// Logs the next piece of a new tree once the one before is durable, so that
    /// others find room in between.
    pub(crate) fn advance_quota(&mut self, now: Time, wall: WallTime) {
        let has_room = self.log_mut().has_room_for_flush();
        let durable = self.log_mut().durable();
        let may_go_on = |work: &mut QuotaWork| has_room && work.logged.position <= durable;
        let Some(mut work) = self.quota_work.take_if(may_go_on) else {
            return; // What is under way brings it here again.
        };
        if let Some(cells) = work.new.next_cells(self.config.limits.quota_cells_max) {
            work.logged = self.commit_quota(now, wall, cells);
            self.quota_work = Some(work);
        } else if self.state.directory.holds_tree(&work.new) {
            let after = self.commit_quota(now, wall, work.new.put());
            let outcome = self.quota_at(*work.call.request.operation.subject());
            self.answer_quota(&work.call, outcome, after);
        } else {
            // Its root was removed meanwhile.
            self.answer_quota(&work.call, Err(SiteError::Stale), After::default());
        }
    }

    fn quota_at(&self, directory: FileRef) -> Result<Quota, SiteError> {
        let quota = self.state.directory.quota_at(directory);
        quota.ok_or(SiteError::NotFound)
    }

    fn commit_quota(&mut self, now: Time, wall: WallTime, mutation: Mutation) -> After {
        let draft = Draft {
            mutations: vec![mutation],
            ..Draft::default()
        };
        self.commit(now, wall, draft)
    }

    fn answer_quota(
        &mut self,
        call: &Call<SiteRequest>,
        outcome: Result<Quota, SiteError>,
        after: After,
    ) {
        let shape = self.shape(&call.request.operation, None, false);
        self.reply_content(call, &shape, outcome.map(SiteAnswer::Quota), after);
    }
}
