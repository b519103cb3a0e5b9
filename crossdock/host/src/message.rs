//! What travels between the machines of one host.

use crossdock_depot::DepotInput;
use crossdock_http::HttpInput;
use crossdock_iscsi::IscsiInput;
use crossdock_names::{FileCapability, NodeId, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_objects::{ObjectDoor, ObjectDoorInput};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeError, NodeReply, NodeRequest, Port, SiteReply, SiteRequest,
};
use crossdock_router::{RoutedReply, RouterInput};
use crossdock_server::NodeInput;
use crossdock_site::SiteInput;

use crate::columns::Signings;
use crate::held::SPARE_BIT;
use crate::refill::Refills;

/// Under which the task that makes replicas equal asks; tools ask otherwise.
pub(crate) const EQUALIZE_CALL: CallId = CallId(0);

/// Under which garbage is looked for and removed.
pub(crate) const SWEEP_CALL: CallId = CallId(1 << 60);

/// Calls by which nodes are asked what they hold, to check the volume, have this bit.
pub(crate) const FSCK_NODE_BIT: u64 = 1 << 61;

/// What the router's calls go with to other hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// By what right it asks.
    pub(crate) capability: Option<FileCapability>,
    /// In which connection what is read may be sent from there.
    pub(crate) flow: Option<Flow>,
}

/// A message on its way to a machine.
#[derive(Debug)]
pub(crate) enum Message {
    Node(NodeId, NodeInput),
    /// The router's to a node, with what it shows to those of other hosts.
    Routed(NodeId, Call<NodeRequest>, Shown),
    Site(SiteId, SiteInput),
    Router(RouterInput),
    Door(NfsInput),
    Http(HttpInput),
    Iscsi(IscsiInput),
    /// To the nodes' HTTP door.
    Objects(ObjectDoorInput),
    /// To the depot of a node.
    Depot(NodeId, DepotInput),
    /// To what signs URLs of a file's columns: from a node, or a site.
    Column(NodeReply),
    Signing(Box<RoutedReply>),
    /// To what is asked for again.
    Refill(NodeReply),
    /// To what is held for gateways, of pins at other members.
    Spare(NodeReply),
    /// To the task that makes replicas equal.
    Host(Result<NodeAnswer, NodeError>),
    /// To the search for garbage.
    Sweep(Result<NodeAnswer, NodeError>),
    /// To the check of the volume: from a node, or a site.
    FsckNode(NodeReply),
    FsckSite(Box<RoutedReply>),
    /// To the tool that asked a node.
    Tool(NodeReply),
    /// To the walk to a directory, or what is done with it.
    Walk(Box<RoutedReply>),
}

impl Message {
    /// A request to a node.
    pub(crate) const fn call(to: NodeId, from: Port, call: Call<NodeRequest>) -> Self {
        Self::Node(to, NodeInput::Call { from, call })
    }

    /// A node's answer, to whoever asked.
    pub(crate) fn reply(from: NodeId, to: Port, reply: NodeReply) -> Self {
        match to {
            Port::Router if ObjectDoor::owns(reply.id) => {
                Self::Objects(ObjectDoorInput::Reply(reply))
            }
            Port::Router if Signings::owns(reply.id) => Self::Column(reply),
            Port::Router if Refills::owns(reply.id) => Self::Refill(reply),
            Port::Router => Self::Router(RouterInput::Node(from, reply)),
            Port::Site(site) => Self::Site(site, SiteInput::Node(from, reply)),
            Port::Node(node) | Port::Copy(node) => {
                Self::Node(node, NodeInput::Reply { from, reply })
            }
            Port::Depot => Self::Depot(from, DepotInput::Reply(reply)),
            Port::Host => match reply.id {
                EQUALIZE_CALL => Self::Host(reply.outcome),
                SWEEP_CALL => Self::Sweep(reply.outcome),
                CallId(id) if id & SPARE_BIT != 0 => Self::Spare(reply),
                CallId(id) if id & FSCK_NODE_BIT != 0 => Self::FsckNode(reply),
                _ => Self::Tool(reply),
            },
        }
    }

    /// A request to a site.
    pub(crate) const fn request(to: SiteId, call: Box<Call<SiteRequest>>) -> Self {
        Self::Site(to, SiteInput::Request(call))
    }

    /// A site's answer, to whoever asked: no node does, and a host asks as a router.
    pub(crate) fn answer(to: Port, reply: Box<SiteReply>) -> Self {
        match to {
            Port::Site(site) => Self::Site(site, SiteInput::Site(reply)),
            Port::Router | Port::Host | Port::Node(_) | Port::Copy(_) | Port::Depot => {
                Self::Router(RouterInput::Site(reply))
            }
        }
    }
}
