//! What travels between the machines of one host.

use crossdock_names::{NodeId, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_peer::{Call, NodeReply, NodeRequest, SiteReply, SiteRequest};
use crossdock_router::RouterInput;
use crossdock_server::{NodeInput, Party};
use crossdock_site::SiteInput;

/// A message on its way to a machine.
#[derive(Debug)]
pub(crate) enum Message {
    ToNode(NodeId, NodeInput),
    ToSite(SiteId, SiteInput),
    ToRouter(RouterInput),
    ToDoor(NfsInput),
}

impl Message {
    /// A request to a node.
    pub(crate) const fn call(to: NodeId, from: Party, call: Call<NodeRequest>) -> Self {
        Self::ToNode(to, NodeInput::Call { from, call })
    }

    /// A node's answer, to whoever asked; `None` if the host itself did.
    pub(crate) fn reply(from: NodeId, to: Party, reply: NodeReply) -> Option<Self> {
        Some(match to {
            Party::Router => Self::ToRouter(RouterInput::Node(from, reply)),
            Party::Site(site) => Self::ToSite(site, SiteInput::Node(from, reply)),
            Party::Node(node) => Self::ToNode(node, NodeInput::Reply { from, reply }),
            Party::Host => return None,
        })
    }

    /// A request to a site.
    pub(crate) const fn request(to: SiteId, call: Call<SiteRequest>) -> Self {
        Self::ToSite(to, SiteInput::Request(call))
    }

    /// A site's answer.
    pub(crate) const fn answer(reply: SiteReply) -> Self {
        Self::ToRouter(RouterInput::Site(reply))
    }
}
