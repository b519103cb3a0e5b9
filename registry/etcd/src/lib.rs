//! The registry that the hosts of an ensemble share, in an etcd cluster.
//!
//! All of it, one [`State`](crossdock_members::State), is the value of one key,
//! changed by compare-and-swap. A host that lives keeps a key of its own under a
//! lease; one whose key has gone is reported as [`Notice::Expired`]. That says who
//! is not heard of, and protects nothing: what a replaced host still writes is
//! refused by the epochs in the state (CONSISTENCY 3).
//!
//! [`create`] makes an ensemble, [`read`] looks at it, and [`start`] follows it on a
//! thread of its own. The decisions are in a machine without I/O or clock
//! (`session`); the thread only carries them out.

mod api;
mod client;
mod keys;
mod proto;
mod session;
mod shell;

pub use api::{Config, Error, Handle, Notice, Tls, change, create, read, start};
