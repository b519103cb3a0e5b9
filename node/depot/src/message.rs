//! What goes into a depot and what comes out of it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{DiskProfile, TcpSample};
use crossdock_peer::{Call, CallId, Network, NodeReply, NodeRequest, Port};

use crate::policy::DepotPolicy;

/// A TCP connection, by a number that is never used twice: of clients the shell gives it, of
/// those that the depot opens the depot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl ConnId {
    /// The depot's own have this bit, those of clients never.
    const OWN_BIT: u64 = 1 << 63;

    /// The depot's connection of that number.
    pub(crate) const fn own(number: u64) -> Self {
        Self(number | Self::OWN_BIT)
    }

    /// Whether the depot has opened it.
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.0 & Self::OWN_BIT != 0
    }
}

/// What happens to a depot.
#[derive(Clone, Debug)]
pub enum DepotInput {
    /// A client has connected.
    Opened {
        /// The connection.
        id: ConnId,
        /// Who.
        peer: SocketAddr,
        /// At which address of ours.
        local: SocketAddr,
    },
    /// What [`DepotEffect::Connect`] asked for is there.
    Connected(ConnId),
    /// The host that it asked for has no address within its bounds.
    NotAllowed(ConnId),
    /// Bytes have arrived. After [`DepotEffect::Pause`] what was under way already is still
    /// taken.
    Received(ConnId, Bytes),
    /// The kernel has taken that many bytes of earlier [`DepotEffect::Send`]s.
    Sent(ConnId, usize),
    /// What [`DepotEffect::Sample`] asked for.
    Sampled(ConnId, TcpSample),
    /// The other side sends no more, but can still read.
    PeerDone(ConnId),
    /// The connection is over, whoever ended it, or could not be made.
    Closed(ConnId),
    /// The node's store is open: the depot learns what it has.
    NodeOpened,
    /// The node answers.
    Reply(NodeReply),
    /// Somebody wants a capability of the volume's bytes ([`NodeRequest::Share`]):
    /// [`DepotEffect::Shared`] answers.
    Share {
        /// Who.
        from: Port,
        /// Which.
        call: Call<NodeRequest>,
    },
    /// What the node's disk is like, and how busy.
    Disk(DiskProfile),
    /// What is granted from now on.
    Policy(DepotPolicy),
    /// No more requests are taken: connections end behind what is to be sent.
    Stop,
    /// The time of [`Depot::poll_timeout`](crate::Depot::poll_timeout) has come (or not yet).
    Timeout,
}

/// What a depot wants done.
#[derive(Clone, Debug)]
pub enum DepotEffect {
    /// Connect to a host, at an address within these bounds: [`DepotInput::Connected`],
    /// [`DepotInput::NotAllowed`] or [`DepotInput::Closed`].
    Connect {
        /// The connection that it is to be.
        id: ConnId,
        /// Its name or address, as capabilities write it.
        host: String,
        /// Of TCP.
        port: u16,
        /// Where it may be. What is connected to has to be one of these, not only what was
        /// looked up before: names change.
        within: Vec<Network>,
    },
    /// Send these pieces in order, behind all earlier ones; tell when the kernel has taken
    /// them.
    Send(ConnId, Vec<Bytes>),
    /// Close once everything is sent, and tell when it is over.
    Close(ConnId),
    /// Close at once, with a reset: bytes that cannot be completed must not look complete.
    Abort(ConnId),
    /// Stop reading.
    Pause(ConnId),
    /// Read on.
    Resume(ConnId),
    /// Tell how the connection is: [`DepotInput::Sampled`].
    Sample(ConnId),
    /// Ask the node.
    Node(Call<NodeRequest>),
    /// Tell the node that nobody waits for this any more.
    Cancel(CallId),
    /// This call can wait so long, as its client does not take what it has.
    Postpone(CallId, Duration),
    /// A call that was put off is wanted again.
    Hurry(CallId),
    /// What came of [`DepotInput::Share`].
    Shared {
        /// Who has asked.
        to: Port,
        /// What.
        reply: NodeReply,
    },
    /// Something that an administrator should know.
    Warning(String),
}
