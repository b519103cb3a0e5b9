//! What goes into the door and what comes out of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::{
    ISCSI_COMMANDS_MAX, ISCSI_CONNECTIONS_MAX, ISCSI_HELD_BYTES_MAX, ISCSI_SESSION_CONNECTIONS_MAX,
};
use crossdock_peer::{Call, CallId, Lun, Reservations, SiteRequest};
use crossdock_router::RoutedReply;
use crossdock_types::{Fill, Payload};

/// A TCP connection, by a number that the shell never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// All LUNs by their numbers.
pub type LunTable = BTreeMap<u64, Lun>;

/// What a door is told when it is made.
#[derive(Clone, Debug)]
pub struct IscsiConfig {
    /// How long the rest of the system may take for a request.
    pub patience: Duration,
    /// Bounds of what is kept for initiators.
    pub limits: IscsiLimits,
    /// Whether other gateways serve the same LUNs. Then no unit has a write cache (WCE), as
    /// SYNCHRONIZE CACHE would have to reach what others have written; and what would hold at one
    /// gateway only is not offered: RESERVE and RELEASE (6), other mode pages, units that are
    /// stopped, media that are ejected (docs/decisions/0049).
    pub is_shared: bool,
    /// A random secret of this process: challenges are made of it.
    pub seed: [u8; 32],
}

impl Default for IscsiConfig {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            limits: IscsiLimits::default(),
            is_shared: false,
            seed: [0; 32],
        }
    }
}

/// Bounds of what is kept for initiators (DESIGN invariant 9), and how long they may take.
#[derive(Clone, Copy, Debug)]
pub struct IscsiLimits {
    /// Connections; a further one is closed.
    pub connections_max: usize,
    /// Connections of one session.
    pub session_connections_max: usize,
    /// Commands of one session in progress: so many beyond what was answered are taken.
    pub commands_max: u32,
    /// Bytes that commands bring, or have asked to be read, of all initiators.
    pub held_bytes_max: usize,
    /// Bytes that a connection's socket has not taken, before nothing more is read for it,
    /// and no further request of its is looked at.
    pub unsent_bytes_max: usize,
    /// A login has to be complete within this time.
    pub login_patience: Duration,
    /// After so long without a sign of life an initiator is asked for one …
    pub idle_patience: Duration,
    /// … and has to answer within this time.
    pub answer_patience: Duration,
}

impl Default for IscsiLimits {
    fn default() -> Self {
        Self {
            connections_max: ISCSI_CONNECTIONS_MAX,
            session_connections_max: ISCSI_SESSION_CONNECTIONS_MAX,
            commands_max: ISCSI_COMMANDS_MAX,
            held_bytes_max: ISCSI_HELD_BYTES_MAX,
            unsent_bytes_max: 4 << 20,
            login_patience: Duration::from_secs(15),
            idle_patience: Duration::from_secs(30),
            answer_patience: Duration::from_secs(15),
        }
    }
}

/// What happens to a door.
#[derive(Clone, Debug)]
pub enum IscsiInput {
    /// An initiator has connected: from where, and where to.
    Opened(ConnId, SocketAddr, Option<SocketAddr>),
    /// Bytes have arrived, or what [`IscsiEffect::Fill`] has asked for is whole. After [`IscsiEffect::Pause`] what was under way already is
    /// still taken.
    Received(ConnId, Bytes),
    /// The kernel has taken that many bytes of earlier [`IscsiEffect::Send`]s.
    Sent(ConnId, usize),
    /// The connection is over, whoever ended it.
    Closed(ConnId),
    /// From now on these are the LUNs.
    Luns(Arc<LunTable>),
    /// The LUNs that were told last have their reservations as they were after so many changes:
    /// [`IscsiEffect::Obeyed`] tells when nothing against them is under way any more.
    Reservations(u64),
    /// Where initiators connect.
    Portals(Portals),
    /// What came of [`IscsiEffect::Reserve`]: whether it is in the registry. The LUNs as they
    /// are now were told before.
    Reserved(u64, bool),
    /// The process is about to end.
    Stop,
    /// The router answers.
    Reply(Box<RoutedReply>),
    /// The time of [`IscsiDoor::poll_timeout`](crate::IscsiDoor::poll_timeout) has come
    /// (or not yet).
    Timeout,
}

/// Where initiators find targets (RFC 7143 section 4.1.1): at the portals of all gateways. Those of a
/// gateway are one port of the target, whose number is told as the portal group's tag; a
/// virtual address is one of its own, as it is at several gateways in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portals {
    /// Where this door listens; an address that stands for all of its kind as it is.
    pub own: Vec<SocketAddr>,
    /// Number of this gateway's port; 0 as long as it is not known.
    pub port: u16,
    /// Portals of other gateways, each with the number of its port.
    pub others: Vec<(SocketAddr, u16)>,
    /// Virtual addresses at gateways that listen there, this one among them.
    pub virtual_ones: Vec<(SocketAddr, u16)>,
}

/// What a door wants done.
#[derive(Clone, Debug)]
pub enum IscsiEffect {
    /// Send this behind all earlier bytes; tell when the kernel has taken it.
    Send(ConnId, Payload),
    /// Close once everything is sent, and tell when it is over.
    Close(ConnId),
    /// Close at once.
    Abort(ConnId),
    /// Receive the rest of a PDU's data right behind its beginning: the next
    /// [`IscsiInput::Received`] of the connection is the whole of it.
    Fill(ConnId, Fill),
    /// Stop reading.
    Pause(ConnId),
    /// Read on.
    Resume(ConnId),
    /// Ask the router.
    Router(Box<Call<SiteRequest>>),
    /// Tell the router that nobody waits for this read any more.
    Withdraw(CallId),
    /// Have the registry keep other reservations.
    Reserve(Box<ReserveOrder>),
    /// Reservations as they were after so many changes are obeyed here: no command that they are
    /// in the way of is begun, and none writes any more that was begun before.
    Obeyed(u64),
}

/// A change of a LUN's reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveOrder {
    /// The answer has this.
    pub ticket: u64,
    /// The LUN's number.
    pub lun: u64,
    /// What was seen; if it is something else by now, nothing is changed.
    pub expected: Reservations,
    /// What is to be; the same, if nothing is to be changed.
    pub wanted: Reservations,
    /// Whether all gateways have to obey them before [`IscsiInput::Reserved`].
    pub is_obeyed_first: bool,
}
