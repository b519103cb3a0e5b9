//! What goes into the door and what comes out of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Advice, DeliveryConfig, DiskProfile, Guest, TcpSample};
use crossdock_http1::HeadLimits;
use crossdock_limits::{
    HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_INBOX_BYTES_MAX, HTTP_UPLOAD_BYTES_MAX,
};
use crossdock_peer::{Call, CallId, Choice, Flow, Policy, SiteRequest};
use crossdock_router::{ReadAhead, RoutedReply};
use crossdock_types::{Fill, Payload};
use crossdock_web::{Gate, ReadPolicy};

use crate::redirect::Wanted;

/// A TCP connection, by a number that the shell never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What a door is told when it is made.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Who may read without showing anything.
    pub policy: ReadPolicy,
    /// How long the rest of the system may take for a request.
    pub patience: Duration,
    /// Bounds of what is kept for clients.
    pub limits: HttpLimits,
    /// How what is longer than a small file is read ahead.
    pub delivery: DeliveryConfig,
    /// A random number of this process: it names uploads and parts of responses.
    pub seed: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            policy: ReadPolicy::default(),
            patience: Duration::from_secs(30),
            limits: HttpLimits::default(),
            delivery: DeliveryConfig::default(),
            seed: 0,
        }
    }
}

/// Bounds of what is kept for clients (DESIGN invariant 9), and how long they may
/// take.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections. For a further one the idlest gives way; if all are at work it is
    /// answered 503.
    pub connections_max: usize,
    /// Of a request's head.
    pub head: HeadLimits,
    /// Bytes that arrived and are not served yet; then the connection is not read
    /// from.
    pub inbox_bytes_max: usize,
    /// Bytes of all bodies on their way to the volume.
    pub upload_bytes_max: usize,
    /// Longest body.
    pub body_bytes_max: u64,
    /// Ranges of one request; one with more gets the whole file.
    pub ranges_max: usize,
    /// Requests per second of one client (an IPv4 address, a /64 of IPv6); ten times as
    /// many may come at once. `None`: as many as come.
    pub requests_per_second: Option<u32>,
    /// A head has to be complete this long after its first byte.
    pub head_patience: Duration,
    /// A body has to go on within this time; where it comes in long pieces, such a piece has
    /// [more](crossdock_types::fill_patience).
    pub body_patience: Duration,
    /// A client has to take something of a response within this time.
    pub send_patience: Duration,
    /// A connection without a request ends after this time.
    pub idle_patience: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: HTTP_CONNECTIONS_MAX,
            head: HeadLimits::default(),
            inbox_bytes_max: HTTP_INBOX_BYTES_MAX,
            upload_bytes_max: HTTP_UPLOAD_BYTES_MAX,
            body_bytes_max: HTTP_BODY_BYTES_MAX,
            ranges_max: 32,
            requests_per_second: None,
            head_patience: Duration::from_secs(15),
            body_patience: Duration::from_secs(60),
            send_patience: Duration::from_secs(120),
            idle_patience: Duration::from_secs(75),
        }
    }
}

/// What happens to a door.
#[derive(Clone, Debug)]
pub enum HttpInput {
    /// A client has connected.
    Opened(ConnId, SocketAddr),
    /// From now on nodes may send in this connection themselves: what is sent may have
    /// extents.
    Flow(ConnId, Flow),
    /// The connection is one over TLS.
    Secure(ConnId),
    /// What [`HttpEffect::Locate`] asked for: the URL, if there is one.
    Located(ConnId, Option<String>),
    /// Bytes have arrived, or what [`HttpEffect::Fill`] has asked for is whole. After [`HttpEffect::Pause`] what was under way already is
    /// still taken.
    Received(ConnId, Bytes),
    /// The kernel has taken that many bytes of earlier [`HttpEffect::Send`]s.
    Sent(ConnId, usize),
    /// What [`HttpEffect::Sample`] asked for.
    Sampled(ConnId, TcpSample),
    /// The client sends no more, but can still read.
    PeerDone(ConnId),
    /// The connection is over, whoever ended it.
    Closed(ConnId),
    /// From now on requests are judged by these tokens and keys.
    Gate(Gate),
    /// From now on this says which way bytes go.
    Policy(Arc<Policy>),
    /// Another door, which uses this one's engine, tells it something.
    Guest(Guest),
    /// From now on the disks of this node are like this.
    Disk(u64, DiskProfile),
    /// From now on the gateway is scoped to exports, or is not: under a scope it cannot
    /// prove how it reached files, and the door answers nothing.
    Scoped(bool),
    /// The process is about to end: changes that are under way are finished, nothing else
    /// is.
    Stop,
    /// The router answers.
    Reply(Box<RoutedReply>),
    /// The time of [`HttpDoor::poll_timeout`](crate::HttpDoor::poll_timeout) has come
    /// (or not yet).
    Timeout,
}

/// What a door wants done.
#[derive(Clone, Debug)]
pub enum HttpEffect {
    /// Send this behind all earlier bytes; tell when the kernel has taken it.
    Send(ConnId, Payload),
    /// Close once everything is sent, and tell when it is over.
    Close(ConnId),
    /// Close at once, with a reset: a response that cannot be completed must not look
    /// complete.
    Abort(ConnId),
    /// Receive the next bytes of content in one piece: the next [`HttpInput::Received`] of the
    /// connection is the whole of it. Not over TLS.
    Fill(ConnId, Fill),
    /// Stop reading.
    Pause(ConnId),
    /// Read on.
    Resume(ConnId),
    /// Tell how the connection is doing.
    Sample(ConnId),
    /// Tell the router that so far is read on for a client, and no farther.
    Ahead(Box<ReadAhead>),
    /// Tell the other door what the engine has decided.
    Advise(Advice),
    /// Ask the router.
    Router(Box<Call<SiteRequest>>),
    /// The same of a read whose bytes go to the client in this connection, as the policy has it.
    ReadFor(Flow, Choice, Box<Call<SiteRequest>>),
    /// The same of a read of a file that is read again and again.
    ReadHot(Box<Call<SiteRequest>>),
    /// Find the node that has all of this, and sign a URL for it.
    Locate(ConnId, Box<Wanted>),
    /// Tell the router that nobody waits for this read any more.
    Withdraw(CallId),
    /// This read can wait so much longer.
    Postpone(CallId, Duration),
    /// It cannot any more.
    Hurry(CallId),
}
