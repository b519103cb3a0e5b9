//! Changes on their way: applied here to the state that this host knows, written if
//! nobody was faster, else applied anew to what the faster one has written.
//!
//! All that wait go together, in order. A change that finds something newer than it
//! had seen is dropped; whoever proposed it sees that from the state. One whose
//! answer is lost is proposed again: it names what it has seen, so if it was carried
//! out it is dropped then.

use std::collections::VecDeque;

use crossdock_members::{Change, State};
use crossdock_types::Time;

use super::{Entry, Request, Session};

/// Changes that wait, e.g. while etcd is away. A start of all sites of a volume is
/// some hundred.
pub(super) const PROPOSALS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Proposals {
    waiting: VecDeque<Change>,
    /// How many of them are being written, and what the state becomes by them.
    sent: Option<(usize, State)>,
}

impl Proposals {
    /// Takes a change, unless it waits already or the queue is full: hosts propose
    /// what they still want again.
    pub(super) fn add(&mut self, change: Change) {
        let is_known = is_repeatable(&change) && self.waiting.contains(&change);
        if !is_known && self.waiting.len() < PROPOSALS_MAX {
            self.waiting.push_back(change);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn forget_sent(&mut self) {
        self.sent = None;
    }
}

/// Whether doing it once is as good as doing it twice, with others between.
const fn is_repeatable(change: &Change) -> bool {
    match change {
        Change::SetMembers { .. }
        | Change::SetEqual { .. }
        | Change::RaiseSite { .. }
        | Change::MoveSites { .. }
        | Change::Retire { .. }
        | Change::SiteOpened { .. }
        | Change::Join { .. }
        | Change::ReleaseAddress { .. }
        | Change::RetireGateway { .. }
        | Change::ObeyReservations { .. }
        | Change::EndDefrag { .. }
        | Change::Leave { .. } => true,
        Change::Snapshot(_)
        | Change::RaiseAll
        | Change::Place(_)
        | Change::NodeStopped { .. }
        | Change::AddExport { .. }
        | Change::SetExport { .. }
        | Change::RemoveExport { .. }
        | Change::RevokeGateway { .. }
        | Change::RestoreGateway { .. }
        | Change::ScopeGateway { .. }
        | Change::AddAddress { .. }
        | Change::RemoveAddress { .. }
        | Change::AddToken { .. }
        | Change::RemoveToken { .. }
        | Change::SetPolicy { .. }
        | Change::RemovePolicy { .. }
        | Change::AddWebToken { .. }
        | Change::RemoveWebToken { .. }
        | Change::AddLun { .. }
        | Change::SetLun { .. }
        | Change::RemoveLun { .. }
        | Change::SetReservations { .. }
        | Change::SetDefrag { .. }
        | Change::SetNodeDefrag { .. }
        | Change::OrderDefrag { .. }
        | Change::StopDefrag { .. } => false,
    }
}

impl Session {
    /// Writes what waits. Not before others hear of this host: one that is in the
    /// state and not heard of is taken for dead.
    pub(super) fn send_proposals(&mut self, now: Time) {
        if self.proposals.sent.is_some() || !self.is_heard_of() {
            return;
        }
        let mut state = self.state.clone();
        let (host, was_member) = (self.host.0, self.was_member);
        self.proposals.waiting.retain(|change| {
            // Carried out before, and undone by others: it must not be done twice.
            let joins_again =
                was_member && matches!(change, Change::Join { host: own, .. } if *own == host);
            !joins_again && state.apply_by(self.host, change.clone()).is_ok()
        });
        let count = self.proposals.waiting.len();
        if count == 0 {
            return;
        }
        match serde_json::to_vec(&state) {
            Ok(value) => {
                self.proposals.sent = Some((count, state));
                let expected = self.revision;
                self.ask(now, Request::Swap { expected, value });
            }
            Err(error) => self.fail(now, format!("the state cannot be written: {error}")),
        }
    }

    pub(super) fn take_swapped(&mut self, revision: i64) {
        if let Some((count, state)) = self.proposals.sent.take() {
            self.proposals.waiting.drain(..count);
            // The watch may have been faster.
            if revision > self.revision {
                self.take_state(revision, state);
            }
            self.take_success();
        }
    }

    pub(super) fn take_differing(&mut self, now: Time, state: Option<Entry>) {
        self.proposals.sent = None;
        match state {
            Some(entry) => self.take_entry(now, &entry),
            None => self.fail(now, super::missing()),
        }
    }
}
