//! Room for small files: inlined bytes move to backing objects, and freed
//! backing space is reused, or given back to the nodes.

use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order};
use crossdock_smallfile::{BackingHole, Fetched, Plan};
use crossdock_types::{Time, WallTime};

use crate::calls::Target;
use crate::commit::Draft;
use crate::site::{Purpose, Site};
use crate::small::Job;

/// Inlined bytes that are moved to backing objects in one step.
const FLUSH_BYTES_MAX: usize = 256 << 10;

/// Free space on its way back to the nodes.
#[derive(Debug)]
pub(crate) struct Returning {
    hole: BackingHole,
    outstanding: usize,
    is_given_back: bool,
}

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

    /// Gives free space back to the nodes that has been there for a while, piece
    /// by piece: members make a hole of it before it is free again.
    pub(crate) fn return_space_when_idle(&mut self, now: Time) {
        if self.small.returning.is_some() {
            return;
        }
        if !self.state.small.return_helps() || self.members.is_empty() {
            self.small.return_since = None;
            return;
        }
        let since = *self.small.return_since.get_or_insert(now);
        if now.since(since) >= self.config.limits.volatile_patience
            && let Some(hole) = self.state.small.begin_return()
        {
            self.small.returning = Some(Returning {
                hole,
                outstanding: self.members.len(),
                is_given_back: true,
            });
            self.send_hole(now, &hole);
        }
    }

    fn send_hole(&mut self, now: Time, hole: &BackingHole) {
        let order = Order::Given(self.next_version());
        for member in self.members.clone() {
            let request = NodeRequest::Zero {
                object: hole.object,
                offset_bytes: hole.offset_bytes,
                length_bytes: hole.length_bytes,
                context: self.context(),
                order,
            };
            self.send(now, Target::Node(member), request, Purpose::HoleMade);
        }
    }

    /// A member has made a hole of free space, or cannot.
    pub(crate) fn hole_made(&mut self, now: Time, outcome: &Result<NodeAnswer, NodeError>) {
        let Some(mut returning) = self.small.returning.take() else {
            return;
        };
        returning.outstanding -= 1;
        // Where there is no such object there are no bytes either.
        returning.is_given_back &= matches!(outcome, Ok(_) | Err(NodeError::NoObject));
        if returning.outstanding > 0 {
            self.small.returning = Some(returning);
            return;
        }
        let Returning {
            hole,
            is_given_back,
            ..
        } = returning;
        self.state.small.end_return(&hole, is_given_back);
        if !is_given_back {
            self.small.return_since = Some(now); // Not at once again.
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
