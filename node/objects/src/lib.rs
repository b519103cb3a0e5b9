//! The HTTP door of a storage node, or of all nodes of a process: whoever shows a URL that was
//! signed for a range of one of its objects gets those bytes, straight from the node.
//!
//! What is served under a URL ([`ObjectUrl`](crossdock_web::ObjectUrl)) is exactly the range
//! that was signed, as a representation of its own: offsets of a Range field count from its
//! beginning. Behind the end of the object it is zeros, as a file is whose column ends early.
//! GET and HEAD, conditions, one range, If-Range, keep-alive and pipelining are those of
//! RFC 9110 and 9112; there are no others.
//!
//! When a node is asked for which of a response's bytes the delivery engine says
//! ([`crossdock_delivery`]), as it does at gateways.
//!
//! The machine is [`ObjectDoor`]; no I/O and no clock here.

mod connection;
mod door;
mod figures;
mod message;
mod reading;
mod transfer;

pub use door::ObjectDoor;
pub use figures::{ObjectDoorFigures, STATUS_CLASSES};
pub use message::{ConnId, ObjectDoorConfig, ObjectDoorEffect, ObjectDoorInput};
