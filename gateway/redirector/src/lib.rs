//! The redirector: what the bytes of a gateway's connections are, and which node finishes a
//! packet that was caught (SPIRAL 2).
//!
//! The gateway's kernel sends dummy bytes where a storage node has the real ones, and
//! repeats, cuts and delays them as TCP wants. A packet that has any is caught before it
//! leaves. All that is known of it then is where in the connection's stream it lies; here is
//! what belongs there.
//!
//! A reply over UDP enters no socket: it is handed to its node as a whole.

mod headers;
mod idents;
mod redirector;
mod replies;
mod stream;

pub use redirector::{AnnounceError, Figures, Redirector};
pub use replies::{Replies, ReplyEnds, ReplyError};
pub use stream::StreamFull;
