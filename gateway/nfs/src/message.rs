//! What goes into the door and what comes out of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Advice, Guest, Switches, TcpSample};
use crossdock_limits::{
    NFS_CONNECTION_BYTES_MAX, NFS_CONNECTION_IDLE_SECONDS_MAX, NFS_CONNECTION_PRESSED_SECONDS_MAX,
    NFS_CONNECTION_STALLED_SECONDS_MAX, NFS_REQUEST_BYTES_MAX,
};
use crossdock_locking::Services;
use crossdock_names::{HandleKey, HandleKeys, VolumeId};
use crossdock_peer::{Call, CallId, Choice, Flow, LockNotice, Policy, SiteRequest};
use crossdock_router::{ReadAhead, RoutedReply};
use crossdock_types::{Fill, Payload};

use crate::export::Export;

/// A TCP connection, by a number that the shell never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What a door is told when it is made.
#[derive(Clone)]
pub struct DoorConfig {
    /// The volume that is served; the file system id that clients see.
    pub volume: VolumeId,
    /// What may be mounted by whom, until [`NfsInput::Exports`].
    pub exports: Vec<Export>,
    /// Keys of handles of format 1, if they are known before [`NfsInput::HandleKey`].
    pub keys: Option<HandleKeys>,
    /// How long the rest of the system may take for a call; then the client is
    /// asked to try again.
    pub patience: Duration,
    /// Bounds of queues.
    pub limits: DoorLimits,
    /// Which mechanisms of the delivery engine READs go through: TDAP, and the withdrawals
    /// of EDRC.
    pub delivery: Switches,
}

/// Bounds of what is kept for clients (DESIGN invariant 9). A connection that
/// reaches one is not read from until there is room again; a datagram is dropped.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Connections. For a further one those give way that have been without a
    /// call for longest; if all are at work, it is closed at once.
    pub connections_max: usize,
    /// Calls of one connection in progress.
    pub calls_per_connection_max: usize,
    /// Bytes of one connection: arguments and expected results of its calls in
    /// progress, a large record that has arrived in part, and replies that its
    /// client has not taken yet. A call begins
    /// below it, so one call (1 MiB and its headers) can come on top: the shell
    /// must be able to queue that much for sending.
    pub connection_bytes_max: usize,
    /// All calls in progress.
    pub calls_max: usize,
    /// All bytes, counted as for one connection, and all that has arrived and is
    /// no call yet.
    pub bytes_max: usize,
    /// A connection without any call ends after this time.
    pub idle_patience: Duration,
    /// So does one whose client does not finish a record within this time, or
    /// takes none of its replies for so long.
    pub stalled_patience: Duration,
    /// The same, while others wait because the door is full: a record must then be
    /// complete, and what lies ready for a client be taken by it, within this time;
    /// some of it within a second.
    pub pressed_patience: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections_max: 12_000, // With what else is open, below the 16,384 of the shell.
            calls_per_connection_max: 256,
            connection_bytes_max: NFS_CONNECTION_BYTES_MAX,
            calls_max: 4096,
            bytes_max: NFS_REQUEST_BYTES_MAX,
            idle_patience: Duration::from_secs(NFS_CONNECTION_IDLE_SECONDS_MAX),
            stalled_patience: Duration::from_secs(NFS_CONNECTION_STALLED_SECONDS_MAX),
            pressed_patience: Duration::from_secs(NFS_CONNECTION_PRESSED_SECONDS_MAX),
        }
    }
}

/// What happens to a door.
#[derive(Clone, Debug)]
pub enum NfsInput {
    /// A client has connected.
    Opened(ConnId, SocketAddr),
    /// A client of the portmapper has connected.
    OpenedPortmap(ConnId, SocketAddr),
    /// Bytes have arrived. After [`NfsEffect::Pause`] what was under way already
    /// is still taken.
    Received(ConnId, Bytes),
    /// From now on nodes may send in this connection themselves: what is sent may have
    /// extents.
    Flow(ConnId, Flow),
    /// The record of a [`NfsEffect::Fill`] is complete.
    Filled(ConnId, Bytes),
    /// That many bytes of earlier [`NfsEffect::Send`]s are gone.
    Sent(ConnId, usize),
    /// The client sends no more calls, but can still read: the door closes the
    /// connection behind the last reply.
    PeerDone(ConnId),
    /// The connection is over, whoever ended it.
    Closed(ConnId),
    /// A datagram has arrived.
    Datagram(SocketAddr, Bytes),
    /// The same, where nodes may send the reply themselves.
    DatagramIn(Flow, Bytes),
    /// A datagram has arrived at the portmapper.
    PortmapDatagram(SocketAddr, Bytes),
    /// From now on programs are here, for the portmapper, and this machine is
    /// called so.
    Services(Services),
    /// A site has something to be told to clients about their locks.
    Lock(LockNotice),
    /// From now on this is what may be mounted by whom: calls that come later
    /// are judged by it, whenever their handles were given out.
    Exports(Vec<Export>),
    /// From now on this says which way the bytes of READs go.
    Policy(Arc<Policy>),
    /// What handles of format 1 are made with. Before it is there, calls wait, unless the
    /// gateway is scoped.
    HandleKey(HandleKey),
    /// From now on the gateway is scoped to exports, or is not: under a scope handles are
    /// made of proofs of managers, and no others are taken.
    Scoped(bool),
    /// What [`NfsEffect::Sample`] asked for.
    Sampled(ConnId, TcpSample),
    /// The delivery engine has decided something about a stream of the door.
    Advice(Advice),
    /// The router answers.
    Reply(Box<RoutedReply>),
    /// The time of [`NfsDoor::poll_timeout`](crate::NfsDoor::poll_timeout) has
    /// come (or not yet).
    Timeout,
}

/// What a door wants done.
#[derive(Clone, Debug)]
pub enum NfsEffect {
    /// Send this behind all earlier bytes; tell when they are gone.
    Send(ConnId, Payload),
    /// Send one datagram of these pieces.
    SendDatagram(SocketAddr, Vec<Bytes>),
    /// Send one datagram that may have extents: in answer to one that came so.
    SendIn(Flow, Payload),
    /// Send one datagram of these pieces from the portmapper's address.
    SendPortmapDatagram(SocketAddr, Vec<Bytes>),
    /// Close once everything is sent, and tell when it is over. Nothing more is
    /// expected of it.
    Close(ConnId),
    /// Close at once: its client does not take what is sent.
    Abort(ConnId),
    /// The next bytes complete this record: receive them behind its beginning,
    /// and give the whole. A pause holds for them as well.
    Fill(ConnId, Fill),
    /// Stop reading.
    Pause(ConnId),
    /// Read on.
    Resume(ConnId),
    /// Ask the router.
    Router(Box<Call<SiteRequest>>),
    /// The same of a read whose bytes go to the client in this connection, as the policy has it.
    ReadFor(Flow, Choice, Box<Call<SiteRequest>>),
    /// The same of a read of a file that is read again and again.
    ReadHot(Box<Call<SiteRequest>>),
    /// Tell the router that nobody waits for this read any more.
    Withdraw(CallId),
    /// Tell the router what a client will read next, or that it will not.
    Ahead(Box<ReadAhead>),
    /// Tell the delivery engine something of a stream.
    Deliver(Guest),
    /// Tell how the connection is doing.
    Sample(ConnId),
}
