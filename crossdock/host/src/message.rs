//! What travels between the machines of one host.

use crossdock_names::{NodeId, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_peer::{Call, NodeReply, NodeRequest, SiteReply, SiteRequest};
use crossdock_router::RouterInput;
use crossdock_server::{NodeInput, Party};
use crossdock_site::SiteInput;

use crate::equalize::Answer;

/// A message on its way to a machine.
#[derive(Debug)]
pub(crate) enum Message {
    ToNode(NodeId, NodeInput),
    ToSite(SiteId, SiteInput),
    ToRouter(RouterInput),
    ToDoor(NfsInput),
    /// To the task that makes replicas equal.
    ToHost(Answer),
}

impl Message {
    /// A request to a node.
    pub(crate) const fn call(to: NodeId, from: Party, call: Call<NodeRequest>) -> Self {
        Self::ToNode(to, NodeInput::Call { from, call })
    }

    /// A node's answer, to whoever asked.
    pub(crate) fn reply(from: NodeId, to: Party, reply: NodeReply) -> Self {
        match to {
            Party::Router => Self::ToRouter(RouterInput::Node(from, reply)),
            Party::Site(site) => Self::ToSite(site, SiteInput::Node(from, reply)),
            Party::Node(node) => Self::ToNode(node, NodeInput::Reply { from, reply }),
            Party::Host => Self::ToHost(Answer::Call(reply.outcome)),
        }
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
