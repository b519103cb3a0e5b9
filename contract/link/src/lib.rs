//! Hosts talk to each other: the messages of [`crossdock_peer`] over one stream
//! of bytes.
//!
//! A [`Link`] is one connection: handshake, framing, windows, cancellation, and
//! whether the other side is alive. [`Connections`] is all of a host's: it connects
//! and reconnects, and sees to it that there is one link to each other host. Both
//! are sans-io machines; a stream may be a TCP connection, a TLS one, or a
//! simulated one.

mod calls;
mod config;
mod connections;
mod frame;
mod handshake;
mod header;
mod interface;
mod link;
mod message;
mod outbox;
mod reader;

pub use calls::{CallRef, Target};
pub use config::LinkConfig;
pub use connections::{
    Connections, ConnectionsConfig, ConnectionsEffect, ConnectionsInput, LinkId,
};
pub use frame::{Frame, Stamped};
pub use handshake::{Identity, Peer};
pub use header::{FrameError, HEADER_BYTES};
pub use interface::{CloseReason, LinkEffect, LinkInput};
pub use link::Link;
pub use message::{
    Credit, EncodeError, Encoded, Hello, Message, PROTOCOL_VERSION, Refusal, RefusalKind, Role,
    Welcome,
};
pub use reader::FrameReader;
