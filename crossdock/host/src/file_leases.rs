//! Leases of files, between the sites of this host and routers, which may be others'
//! (docs/decisions/0027).

use crossdock_link::Frame;
use crossdock_names::{HostId, SiteId};
use crossdock_peer::{Recall, SiteAnswer, SiteOperation, SiteReply, SiteRequest};
use crossdock_router::RouterInput;
use crossdock_types::Time;

use crate::host::Host;
use crate::message::Message;
use crate::mutation::Mutation;

/// A minute.
const LONG_MS: u32 = 60_000;

impl Host {
    /// A request of a router on another host: the leases that it asks for are that host's,
    /// whatever it says.
    pub(crate) fn hold_lease(&self, peer: HostId, request: &mut SiteRequest) {
        match &mut request.operation {
            SiteOperation::Open {
                holder: Some(holder),
                ..
            } => *holder = peer,
            SiteOperation::PushAttributes {
                truncate_generation,
                ..
            } if self.has(Mutation::PushAnyGeneration) => *truncate_generation = u64::MAX,
            _ => {}
        }
    }

    /// What a router may do with what it is told of a file ends with the right of this
    /// host to tell it: a successor waits for that.
    pub(crate) fn bound_lease(&self, site: SiteId, reply: &mut SiteReply) {
        let Ok(SiteAnswer::Opened {
            lease: Some(lease), ..
        }) = &mut reply.outcome
        else {
            return;
        };
        if self.has(Mutation::LeaseForLong) {
            lease.lasts_ms = LONG_MS;
        } else if self.registry.is_shared()
            && let Some(record) = self.table.site(site)
        {
            let hosts = self.hosts_of(record.set).flatten();
            let end = hosts.map(|host| self.leases.until(host)).min();
            let left = end.map(|end| end.since(self.leases.now).as_millis());
            let left = left.and_then(|left| u32::try_from(left).ok());
            lease.lasts_ms = lease.lasts_ms.min(left.unwrap_or(u32::MAX));
        }
    }

    /// Wants a lease back from the router of `holder`.
    pub(crate) fn recall(&mut self, site: SiteId, holder: HostId, recall: Recall) {
        if self.has(Mutation::RecallNothing) {
            self.queue.push_back(Message::faked_return(site, recall));
        } else if holder == self.host_id() {
            let input = RouterInput::Recall(recall);
            self.queue.push_back(Message::Router(input));
        } else {
            self.send_frame(holder, Frame::Recall(recall));
        }
    }

    /// A site is not open here any more, or is opened anew.
    pub(crate) fn remove_site(&mut self, id: SiteId) {
        if let Some(site) = self.sites.remove(&id) {
            self.site_dues.remove(&id);
            self.leases_end.insert(id, site.leases_end());
        }
    }

    /// When all leases have ended that an earlier opening of the site here has given.
    pub(crate) fn leases_end(&self, site: SiteId) -> Time {
        self.leases_end.get(&site).copied().unwrap_or_default()
    }
}
