//! What gateways and hosts with nodes say to each other so that nodes send bytes themselves,
//! in connections of the gateway's clients (SPIRAL section 2).

use std::fmt;
use std::net::SocketAddr;

use crossdock_names::{FileRef, Version};
use crossdock_types::WallTime;
use serde::{Deserialize, Serialize};

use crate::CallId;

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

/// Bytes of a file that a gateway wants another one to send, which keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAsk {
    /// Names it in the answer.
    pub id: CallId,
    /// In which connection of the asking gateway.
    pub flow: Flow,
    /// Of which file.
    pub file: FileRef,
    /// As it is since this time of change, which no two states of a file share.
    pub changed: WallTime,
    /// First byte, in the file.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u64,
}

/// Under which pin a gateway has them, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPin {
    /// As in [`NodeAnswer::Held`](crate::NodeAnswer::Held).
    pub pin: u64,
    /// No later change than this one of their column was in them.
    pub version: Version,
}

/// A word about third-party transfer; none is answered but [`Transfer::Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transfer {
    /// To a gateway: where the sending host, one with nodes or another gateway, takes packets to
    /// finish.
    Tunnel {
        /// Its UDP port.
        address: SocketAddr,
        /// Under which it believes this gateway.
        secret: TunnelSecret,
    },
    /// To one of those: no more packets of this connection, or to this client, come.
    End(Flow),
    /// To one of those: the gateway does not need these pins any more. Those that are
    /// unknown are none.
    Release(Vec<u64>),
    /// To a gateway: packets came for these pins, which the sending host does not have (any
    /// more), or whose connection it does not know: somebody else has to send.
    Unfilled(Vec<u64>),
    /// To a gateway: the sending one keeps all that columns have of these files, each as it is
    /// since that time. At most `limits::KEPT_FILES_TOLD_MAX`.
    Keeps(Vec<(FileRef, WallTime)>),
    /// To a gateway that keeps a file: it is to send bytes of it.
    Ask(Box<KeptAsk>),
    /// The answer.
    Lent {
        /// To which question.
        id: CallId,
        /// None: it does not send them.
        pin: Option<KeptPin>,
    },
}
