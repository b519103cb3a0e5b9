//! The inflator: what a gateway's redirector has caught and shrunk becomes a packet again,
//! with the bytes that the node holds, under the gateway's address (SPIRAL 2).

mod flow;
mod frame;

pub use flow::{Flow, HeaderError};
pub use frame::{Frame, OFFLOAD_BYTES, finish};
