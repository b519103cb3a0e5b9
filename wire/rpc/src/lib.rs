//! ONC RPC version 2 (RFC 5531): headers of calls and replies, and records.
//!
//! A door reads records with [`RecordReader`] (TCP; a UDP datagram is a record
//! as it is), reads the [`CallHeader`] with a decoder that then stands at the
//! procedure's arguments, and answers through a [`RecordWriter`]: a
//! [`ReplyHeader`] and, if it says success, the procedure's results.
//!
//! Nothing here does I/O.

mod auth;
mod header;
mod record;

pub use auth::{AuthSys, Credential, FLAVOR_NONE, FLAVOR_SHORT, FLAVOR_SYS, Groups, Verifier};
pub use header::{
    AcceptStatus, AuthStatus, CallError, CallHeader, RPC_VERSION, Rejection, ReplyBody, ReplyHeader,
};
pub use record::{RecordError, RecordReader, RecordWriter};
