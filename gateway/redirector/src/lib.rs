//! The redirector: what the bytes of a gateway's connections are, and which node finishes a
//! packet that was caught (SPIRAL 2).
//!
//! The gateway's kernel sends dummy bytes where a storage node has the real ones, and
//! repeats, cuts and delays them as TCP wants. A packet that has any is caught before it
//! leaves. All that is known of it then is where in the connection's stream it lies; here is
//! what belongs there.

mod headers;
mod redirector;
mod stream;

pub use redirector::{AnnounceError, Figures, Redirector};
pub use stream::StreamFull;
