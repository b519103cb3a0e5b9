//! What goes into an inflator and what comes out of it.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use crossdock_tunnel::TunnelKey;

use crate::frame::Frame;

/// What a gateway may have a node do.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The gateway's boot; datagrams of any other are refused.
    pub boot: u64,
    /// What proves that a datagram is the gateway's.
    pub key: TunnelKey,
    /// As whom the node may speak for it.
    pub addresses: Vec<IpAddr>,
}

/// By which protocol packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// In a connection.
    Tcp,
    /// Each datagram for itself.
    Udp,
}

/// Whose packets, and to whom: what a gateway announces before it hands packets of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// What is announced for one may not be sent by the other.
    pub transport: Transport,
    /// The gateway's.
    pub source: SocketAddr,
    /// The client's.
    pub destination: SocketAddr,
}

/// Which read of which packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadId {
    pub(crate) packet: u64,
    pub(crate) part: usize,
}

/// Bytes that a packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// To be given back with the bytes.
    pub id: ReadId,
    /// Whose pin.
    pub gateway: u64,
    /// The pin.
    pub pin: u64,
    /// Of the first byte, in the object.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: usize,
}

/// A packet that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// What goes before the payload.
    pub frame: Frame,
    /// The payload, in order.
    pub payload: Vec<Bytes>,
}

/// A pin of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayPin {
    /// Whose.
    pub gateway: u64,
    /// The pin.
    pub pin: u64,
}

/// What became of datagrams and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets that were sent, after merging.
    pub sent: u64,
    /// Of them: those that others were merged into, each counted.
    pub merged: u64,
    /// Bytes of extents in them.
    pub injected_bytes: u64,
    /// Datagrams of UDP that were sent.
    pub replies: u64,
    /// Packets of IP in which they were; they are not among those above.
    pub fragments: u64,
    /// Bytes of extents in them.
    pub replied_bytes: u64,
    /// Datagrams that nobody with a key has made, or none at all.
    pub forged: u64,
    /// Datagrams that came before, or of another boot of either side.
    pub stale: u64,
    /// Packets that were none, of an address that is not the gateway's, or of a flow
    /// that it has not announced.
    pub refused: u64,
    /// Packets for which there was no room.
    pub overflowed: u64,
    /// Packets whose turn did not come in time; they were sent then.
    pub untold: u64,
    /// Packets whose bytes could not be read.
    pub unfilled: u64,
}
