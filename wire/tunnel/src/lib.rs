//! The tunnel between a gateway's redirector and the nodes' inflators (SPIRAL 2).
//!
//! The redirector catches the packets of a client's connection, takes the dummy bytes out,
//! and tells a node what belongs there: the packet's headers, literal bytes, and extents by
//! their pins. A reply over UDP it hands over whole, as it never was in a socket. Several such
//! records travel in one datagram, which is authentic or nothing: who could forge one could
//! have a node say anything in the name of a gateway.

mod caught;
mod datagram;
mod flow;
mod packet;
mod reply;
mod turn;
mod window;

pub use caught::{CAUGHT_BYTES, Caught, ConnectionId};
pub use datagram::{
    DATAGRAM_BYTES_MAX, Envelope, Opened, PACKET_ROOM_BYTES, Records, Seal, TunnelError, TunnelKey,
    open,
};
pub use flow::{Flow, HeaderError, TCP, sequence, tcp};
pub use packet::{
    Baton, HEADERS_BYTES_MAX, PARTS_MAX, PARTS_ROOM_BYTES, PAYLOAD_BYTES_MAX, Packet, Part, Parts,
    Record, RecordError,
};
pub use reply::{IPV4_MTU_MIN, IPV6_MTU_MIN, REPLY_BYTES_MAX, REPLY_ROOM_BYTES, Reply};
pub use turn::{decode_turn, encode_turn};
pub use window::ReplayWindow;
