//! The time after a restart.
//!
//! The locks are all there, they come from the log; so nothing can be taken from
//! a client that has one. The grace period is for the clients: those that were
//! told of the restart take their locks again, and nobody comes between. It ends
//! when all of them have been told, and at its time in any case.

use std::collections::BTreeSet;

use crossdock_peer::LockClient;
use crossdock_types::Time;

use crate::machine::Locks;

/// A grace period.
#[derive(Debug)]
pub(crate) struct Grace {
    pub(crate) until: Time,
    pub(crate) awaited: BTreeSet<LockClient>,
}

impl Locks {
    /// The site has restarted. Returns who is to be told; if there is anybody,
    /// a grace period lasts until then.
    pub fn begin_grace(&mut self, until: Time) -> Vec<LockClient> {
        let monitored = self.clients.iter().filter(|(_, all)| all.is_monitored);
        let awaited: BTreeSet<LockClient> = monitored.map(|(client, _)| client.clone()).collect();
        let clients = awaited.iter().cloned().collect();
        self.grace = (!awaited.is_empty()).then_some(Grace { until, awaited });
        clients
    }

    /// Whether only reclaims are taken.
    #[must_use]
    pub const fn is_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// When it ends in any case.
    #[must_use]
    pub fn grace_end(&self) -> Option<Time> {
        self.grace.as_ref().map(|grace| grace.until)
    }

    /// Ends it if its time has come.
    pub fn end_grace(&mut self, now: Time) {
        self.grace.take_if(|grace| grace.until <= now);
    }

    /// This client knows of the restart, or has restarted itself.
    pub(crate) fn told(&mut self, client: &LockClient) {
        if let Some(grace) = &mut self.grace {
            grace.awaited.remove(client);
        }
        self.grace.take_if(|grace| grace.awaited.is_empty());
    }
}
