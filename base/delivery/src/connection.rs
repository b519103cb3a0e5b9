//! What is known of a connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One delivery of bytes over a connection: a response, a file that is read on.
/// Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

/// Who goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StreamClass {
    /// A client waits.
    #[default]
    Foreground,
    /// Takes what is left: memory of which no foreground stream is in want, at most a
    /// quarter of all.
    Background,
}

/// State of the kernel's congestion control (tcpi_ca_state).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Congestion {
    /// TCP_CA_Open.
    #[default]
    Open,
    /// TCP_CA_Disorder or TCP_CA_CWR: duplicate acknowledgements, or a mark by ECN.
    Disorder,
    /// TCP_CA_Recovery: fast retransmissions.
    Recovery,
    /// TCP_CA_Loss: a retransmission time-out.
    Loss,
}

/// One look at a connection, from TCP_INFO; taken at each completed send, and when a
/// [`Look`](crate::Decision::Look) asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// D1: tcpi_notsent_bytes and what lies in the door's own queue to the socket.
    pub unsent_bytes: u64,
    /// tcpi_delivery_rate, in bytes per second; 0 if the kernel has none.
    pub delivery_rate: u64,
    /// tcpi_delivery_rate_app_limited: the rate was ours, not the network's.
    pub is_app_limited: bool,
    /// tcpi_bytes_acked: all that was acknowledged since the connection began.
    pub acked_bytes: u64,
    /// tcpi_busy_time: for how long since the connection began there was something to send or
    /// not yet acknowledged; zero if the kernel does not tell.
    pub busy: Duration,
    /// tcpi_ca_state.
    pub congestion: Congestion,
    /// tcpi_delivered_ce: packets that arrived with a mark of congestion (RFC 3168).
    pub delivered_ce: u64,
    /// The peer's window has no room (tcpi_snd_wnd below a segment).
    pub is_window_zero: bool,
    /// tcpi_rtt.
    pub rtt: Duration,
}

/// How a stream ended, or that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was handed to the socket, or the door needs no more of it.
    Done,
    /// RST, an error of the socket, a time-out: nothing can be sent any more.
    Reset,
    /// FIN alone: the peer will not send any more, and may well read on (RFC 9293 3.6).
    /// The stream lives; its requests wait a little for a sign of that.
    PeerFinished,
}

/// What delivery wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Ask the disks for the next `bytes` of this stream.
    Request {
        /// Of which.
        stream: StreamId,
        /// How much; never 0, never beyond the end of the stream.
        bytes: u64,
    },
    /// Of what was requested and is not yet in flight at a disk, move the last `bytes`
    /// behind what others requested. They return by themselves after `by`.
    Postpone {
        /// Of which.
        stream: StreamId,
        /// How much.
        bytes: u64,
        /// For how long: T_D / 2.
        by: Duration,
    },
    /// What was postponed returns at once.
    Resume {
        /// Of which.
        stream: StreamId,
    },
    /// Take out everything that is requested, free its memory; nothing of it counts any more.
    Withdraw {
        /// Of which.
        stream: StreamId,
    },
    /// Look at the connection now: give a [`TcpSample`]. Nothing else would happen to it
    /// that delivery would learn of, for its socket has taken everything.
    Look {
        /// Of which.
        stream: StreamId,
    },
}

impl Decision {
    /// The stream that it is about.
    #[must_use]
    pub const fn stream(self) -> StreamId {
        match self {
            Self::Request { stream, .. }
            | Self::Postpone { stream, .. }
            | Self::Resume { stream }
            | Self::Withdraw { stream }
            | Self::Look { stream } => stream,
        }
    }
}
