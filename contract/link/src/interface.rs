//! What goes into a link and what comes out of it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_types::Fill;
use thiserror::Error;

use crate::calls::CallRef;
use crate::handshake::{Identity, Peer};
use crate::{EncodeError, FrameError, Refusal, Stamped};

/// What happens to a link.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub enum LinkInput {
    /// What the certificate says that the other host has shown, and whose key it has
    /// proved; before anything is [received](Self::Received).
    Certified(Identity),
    /// The next bytes of the stream.
    Received(Bytes),
    /// What [`LinkEffect::Fill`] has asked for: the head and what was missing.
    Filled(Bytes),
    /// A frame is to be sent. Frames that come before the other host is known
    /// wait.
    Send(Stamped),
    /// So much of what was transmitted lies at the socket and has not been taken
    /// by the kernel. To be told after each [`LinkEffect::Transmit`], and again
    /// when it sinks.
    Sent {
        /// How many bytes.
        queued_bytes: usize,
    },
    /// The peer that [`LinkEffect::Asked`] is welcome.
    Admit,
    /// It is not, or not any more.
    Refuse(Refusal),
    /// The link is to end.
    Close(CloseReason),
    /// The time of [`Link::poll_timeout`](crate::Link::poll_timeout), or any other.
    Timeout,
    /// The stream has ended.
    Closed,
}

/// What a link wants done.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub enum LinkEffect {
    /// Pieces for the stream, in order; to be held, not copied.
    Transmit(Vec<Bytes>),
    /// The rest of a payload is to be received right behind its beginning; no
    /// [`LinkInput::Received`] may come before it is [filled](LinkInput::Filled).
    Fill(Fill),
    /// A peer wants in ([`LinkConfig::asks`](crate::LinkConfig::asks)).
    Asked(Peer),
    /// Both know each other.
    Ready(Peer),
    /// For a part of this host. To take it opens the window for the next.
    Frame(Stamped),
    /// A call for which there is no room, or that waited too long to be sent: the
    /// other host has not seen it.
    Busy(CallRef),
    /// A call that gets no answer; the other host may have carried it out, or may
    /// still do.
    Lost(CallRef),
    /// The link has ended, the last effect.
    Close(CloseReason),
}

/// How a link has ended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CloseReason {
    /// This host will not have the other one.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The other one will not have this host.
    #[error("the other host has refused: {0}")]
    RefusedByPeer(Refusal),
    /// What came is no message.
    #[error("the other host does not make sense: {0}")]
    Broken(#[from] FrameError),
    /// A message that must not come now.
    #[error("the other host breaks the protocol: {0}")]
    Protocol(&'static str),
    /// A message that cannot be sent.
    #[error("{0}")]
    Unsendable(#[from] EncodeError),
    /// No byte for too long.
    #[error("nothing was heard of the other host for {} ms", .0.as_millis())]
    Silent(Duration),
    /// The other side did not say who it is.
    #[error("no handshake within {} ms", .0.as_millis())]
    NoHandshake(Duration),
    /// More answers wait for the other host than it may have asked for.
    #[error("the other host takes no answers")]
    Overrun,
    /// The stream has ended.
    #[error("the connection has ended")]
    Ended,
    /// A newer connection between the two hosts has taken its place.
    #[error("replaced by a newer connection")]
    Superseded,
    /// This host does not want it any more.
    #[error("not wanted any more")]
    Unwanted,
}

impl CloseReason {
    /// Whether what was transmitted should still reach the other host: else the
    /// stream can be cut at once.
    #[must_use]
    pub const fn flushes(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}
