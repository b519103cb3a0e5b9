//! What gateways and hosts with nodes say to each other so that nodes send bytes themselves,
//! in connections of the gateway's clients (SPIRAL section 2).

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// By which protocol a gateway and its client talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Transport {
    /// In a connection, of whose stream nodes send parts.
    Tcp,
    /// In datagrams, each of which a node sends as a whole or not at all.
    Udp,
}

/// What a gateway sends to a client: in a connection, or from one port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Flow {
    /// What nodes may send in one they may not in the other.
    pub transport: Transport,
    /// The gateway's end.
    pub source: SocketAddr,
    /// The client's.
    pub destination: SocketAddr,
}

/// What proves that a datagram in the tunnel is a gateway's: of one start of the gateway and
/// one of the other host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelSecret(pub [u8; 32]);

impl fmt::Debug for TunnelSecret {
    /// Never shows the secret: messages are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TunnelSecret")
    }
}

/// A word about third-party transfer; none is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transfer {
    /// To a gateway: where the sending host takes packets to finish.
    Tunnel {
        /// Its UDP port.
        address: SocketAddr,
        /// Under which it believes this gateway.
        secret: TunnelSecret,
    },
    /// To a host with nodes: no more packets of this connection, or to this client, come.
    End(Flow),
    /// To a host with nodes: the gateway does not need these pins any more. Those that are
    /// unknown are none.
    Release(Vec<u64>),
    /// To a gateway: packets came for these pins, which the sending host does not have (any
    /// more), or whose connection it does not know: somebody else has to send.
    Unfilled(Vec<u64>),
}
