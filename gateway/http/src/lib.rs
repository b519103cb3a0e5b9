//! The HTTP door: files and directories of the volume by path, over HTTP/1.1
//! (RFC 9110, RFC 9112).
//!
//! [`HttpDoor`] takes the bytes of connections, turns each request into requests
//! to the router, and the answers into responses, in the order of the requests.
//! What is longer than a small file goes out as a stream of the delivery engine
//! ([`crossdock_delivery`]): when its next bytes are read follows the connection.
//!
//! A response shows one version of a file: its entity tag names the file and its
//! time of change, which never repeats; whatever changes while bytes are on their
//! way ends the connection before the response is complete.
//!
//! No I/O and no clock here: the shell feeds [`HttpInput`]s and carries out
//! [`HttpEffect`]s in order.

mod access;
mod body;
mod connection;
mod directory;
mod door;
mod exchange;
mod figures;
mod fill;
mod message;
mod page;
mod redirect;
mod refuse;
mod remove;
mod respond;
mod route;
mod stream;
mod timing;
mod upload;
mod walk;
mod way;

pub use door::HttpDoor;
pub use figures::{HttpFigures, STATUS_CLASSES};
pub use message::{ConnId, HttpConfig, HttpEffect, HttpInput, HttpLimits};
pub use redirect::Wanted;
