//! The inflator: what a gateway's redirector has caught and shrunk becomes a packet again,
//! with the bytes that the node holds, under the gateway's address (SPIRAL 2).

mod frame;
mod inflator;
mod merge;

pub use frame::{Frame, OFFLOAD_BYTES, finish};
pub use inflator::{Ends, Figures, Filled, Inflator, Read, ReadId, Rights, Unfilled};
