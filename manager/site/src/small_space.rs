//! Room for small files: inlined bytes move to backing objects, and freed
//! backing space is reused.

use crossdock_smallfile::{Fetched, Plan};
use crossdock_types::{Time, WallTime};

use crate::commit::Draft;
use crate::site::Site;
use crate::small::Job;

/// Inlined bytes that are moved to backing objects in one step.
const FLUSH_BYTES_MAX: usize = 256 << 10;

impl Site {
    /// Moves inlined bytes to backing objects, when there are enough.
    pub(crate) fn flush_small(&mut self, now: Time, wall: WallTime) {
        let due = !self.small.flushing && self.state.small.flush_is_due();
        if due && self.log_mut().has_room_for_flush() {
            self.plan_flush(now, wall, &Fetched::new());
        }
    }

    /// Freed space is reused once a later record says that no change before can
    /// become void any more. Where none comes by itself, because the site is
    /// idle or too full to change anything, one is logged after a while.
    pub(crate) fn mark_small_when_idle(&mut self, now: Time, wall: WallTime) {
        if !self.state.small.mark_helps() {
            self.small.mark_since = None;
            return;
        }
        let since = *self.small.mark_since.get_or_insert(now);
        if now.since(since) >= self.config.limits.volatile_patience {
            self.mark_small(now, wall);
            self.small.mark_since = None;
        }
    }

    /// Lets freed backing space be reused.
    pub(crate) fn mark_small(&mut self, now: Time, wall: WallTime) {
        if let Some(mark) = self.state.small.plan_mark() {
            let draft = Draft {
                small: Some(mark),
                ..Draft::default()
            };
            self.commit(now, wall, draft);
        }
    }

    pub(crate) fn plan_flush(&mut self, now: Time, wall: WallTime, fetched: &Fetched) {
        let version = self.next_version();
        let plan = self
            .state
            .small
            .plan_flush(version, FLUSH_BYTES_MAX, fetched);
        match plan {
            Ok(Plan::Change(change)) => {
                let draft = Draft {
                    small: Some(change),
                    ..Draft::default()
                };
                self.commit(now, wall, draft);
            }
            Ok(Plan::Fetch { reads, ticket }) => {
                self.small.flushing = true;
                let job = Job::Flush(fetched.clone());
                self.start_reads(now, wall, job, reads, Some(ticket));
            }
            // Nothing to move now; or freed space is held until a mark.
            Ok(Plan::Done { .. } | Plan::Wait(_)) | Err(_) => self.mark_small(now, wall),
        }
    }
}
