//! The inflator: what a gateway's redirector has caught and shrunk becomes a packet again,
//! with the bytes that the node holds, under the gateway's address; and so does a reply over
//! UDP, of which nothing was caught (SPIRAL 2).

mod fragment;
mod frame;
mod inflator;
mod merge;
mod message;
mod sum;
mod waiting;

pub use fragment::{Head, Packets, packets};
pub use frame::{Frame, OFFLOAD_BYTES, finish};
pub use inflator::Inflator;
pub use message::{Ends, Figures, Filled, GatewayPin, Read, ReadId, Rights, Transport};
