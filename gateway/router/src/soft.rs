//! What a router keeps between requests: nothing of it outlives the process.

use crossdock_names::HostId;
use crossdock_types::Time;

use crate::leases::Leases;
use crate::unstable::Unstable;

/// The soft state, and the time.
#[derive(Debug)]
pub(crate) struct Soft {
    /// Of this turn.
    pub(crate) now: Time,
    /// This process, as a holder of leases.
    pub(crate) host: HostId,
    pub(crate) unstable: Unstable,
    pub(crate) leases: Leases,
    /// Beyond so many holders of unstable bytes the oldest file is committed.
    pub(crate) unstable_holders_max: usize,
}

impl Soft {
    /// Whom the site may give a lease.
    pub(crate) fn holder(&self) -> Option<HostId> {
        self.leases.are_wanted().then_some(self.host)
    }
}
