//! What goes into the door and what comes out of it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{DeliveryConfig, DiskProfile, TcpSample};
use crossdock_http1::HeadLimits;
use crossdock_limits::{NODE_HTTP_CONNECTIONS_MAX, NODE_HTTP_MEMORY_BYTES};
use crossdock_names::NodeId;
use crossdock_peer::{Call, CallId, NodeReply, NodeRequest};
use crossdock_web::ObjectGate;

/// A TCP connection, by a number that the shell never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Bounds of what is kept for clients.
#[derive(Clone, Debug)]
pub struct ObjectDoorConfig {
    /// Connections; a further one is answered 503.
    pub connections_max: usize,
    /// Of a request's head.
    pub head: HeadLimits,
    /// How the delivery engine of the door is set up. Its memory is for what is read and not
    /// taken by the kernel, of all connections.
    pub delivery: DeliveryConfig,
    /// How long the node may take for a read.
    pub patience: Duration,
    /// A head has to be complete this long after its first byte.
    pub head_patience: Duration,
    /// A client has to take something of a response within this time.
    pub send_patience: Duration,
    /// A connection without a request ends after this time.
    pub idle_patience: Duration,
}

impl Default for ObjectDoorConfig {
    /// The usual bounds; head, reader and idle have the time that they have at gateways.
    fn default() -> Self {
        Self {
            connections_max: NODE_HTTP_CONNECTIONS_MAX,
            head: HeadLimits::default(),
            delivery: DeliveryConfig {
                memory_bytes: NODE_HTTP_MEMORY_BYTES,
                ..DeliveryConfig::default()
            },
            patience: Duration::from_secs(30),
            head_patience: Duration::from_secs(15),
            send_patience: Duration::from_secs(120),
            idle_patience: Duration::from_secs(75),
        }
    }
}

/// What happens to a door.
#[derive(Clone, Debug)]
pub enum ObjectDoorInput {
    /// A client has connected.
    Opened(ConnId),
    /// Bytes have arrived. After [`ObjectDoorEffect::Pause`] what was under way already is
    /// still taken.
    Received(ConnId, Bytes),
    /// The kernel has taken that many bytes of earlier [`ObjectDoorEffect::Send`]s.
    Sent(ConnId, usize),
    /// What [`ObjectDoorEffect::Sample`] asked for.
    Sampled(ConnId, TcpSample),
    /// What the disk of a node of this process is like, and how busy.
    Disk(NodeId, DiskProfile),
    /// The client sends no more, but can still read.
    PeerDone(ConnId),
    /// The connection is over, whoever ended it.
    Closed(ConnId),
    /// A node answers.
    Reply(NodeReply),
    /// What requests are judged by from now on; until the first one all are refused.
    Gate(ObjectGate),
    /// No more requests are taken: connections end behind what is to be sent.
    Stop,
    /// The time of [`ObjectDoor::poll_timeout`](crate::ObjectDoor::poll_timeout) has come
    /// (or not yet).
    Timeout,
}

/// What a door wants done.
#[derive(Clone, Debug)]
pub enum ObjectDoorEffect {
    /// Send these pieces in order, behind all earlier ones; tell when the kernel has
    /// taken them.
    Send(ConnId, Vec<Bytes>),
    /// Close once everything is sent, and tell when it is over.
    Close(ConnId),
    /// Close at once, with a reset: a response that cannot be completed must not look
    /// complete.
    Abort(ConnId),
    /// Stop reading.
    Pause(ConnId),
    /// Read on.
    Resume(ConnId),
    /// Tell how the connection is: [`ObjectDoorInput::Sampled`].
    Sample(ConnId),
    /// Ask the node of this process.
    Node(NodeId, Call<NodeRequest>),
    /// Tell the node that nobody waits for this any more.
    Cancel(NodeId, CallId),
    /// This call can wait so long, as its client does not take what it has.
    Postpone(NodeId, CallId, Duration),
    /// A call that was put off is wanted again.
    Hurry(NodeId, CallId),
}
