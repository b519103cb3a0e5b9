//! The NFS door: NFS version 3, MOUNT version 3, and for locks NLM and NSM on one
//! port, over TCP and UDP (RFC 1813, RFC 5531); and the portmapper on its own.
//!
//! [`NfsDoor`] takes the bytes of connections and datagrams, turns each call
//! into one request to the router, and each answer into a reply, in whatever
//! order the answers come. It checks exports, clients, credentials and handles
//! with every request; permissions are the sites' business.
//!
//! Files that are read on over a connection are streams of the delivery engine, which
//! another door has ([`crossdock_delivery::Guest`]): it says how far nodes read ahead.
//!
//! It keeps nothing that a client could miss: calls in progress, connections,
//! and a list of mounts to look at.
//! No I/O and no clock here: the shell feeds [`NfsInput`]s and carries out
//! [`NfsEffect`]s in order.

mod ahead;
mod arrival;
mod connection;
mod convert;
mod datagrams;
mod dispatch;
mod door;
mod ending;
mod export;
mod figures;
mod fill;
mod identity;
mod listing;
mod locking;
mod message;
mod mount;
mod mounts;
mod proofs;
mod proving;
mod reading;
mod reply;
mod request;
mod room;
mod way;

pub use crossdock_locking::Services;
pub use door::NfsDoor;
pub use export::Export;
pub use figures::{
    CLIENTS_MAX, ClientFigures, DoorFigures, ProcedureFigures, SLOW_CALLS_MAX, SlowCall, Traffic,
};
pub use message::{ConnId, DoorConfig, DoorLimits, NfsEffect, NfsInput};
pub use proofs::Proofs;
