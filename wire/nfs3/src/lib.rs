//! NFS version 3 and MOUNT version 3 (RFC 1813).
//!
//! A server reads the arguments of a call with [`Call::decode`], where names
//! and handles borrow from the record and WRITE data shares its memory, and
//! answers with one [`Reply`]: `Ok` holds the results of success, `Err` a
//! [`Failure`] with its [`Status`] and the attributes that go with it. A client
//! goes the other way. MOUNT has the same shape in [`mount`].
//!
//! Nothing here does I/O, knows what a handle means, or decides anything.

pub mod call;
pub mod mount;
pub mod reply;

mod attributes;
mod listing;
mod names;
mod procedure;
mod status;

pub use attributes::{
    Attributes, DeviceNumber, FileType, SetAttributes, SetTime, Timestamp, WccAttributes, WccData,
};
pub use call::Call;
pub use listing::{Entry, EntryList, EntryPlus, EntryPlusList, ReaddirBuilder, ReaddirplusBuilder};
pub use names::{
    CookieVerifier, CreateVerifier, HANDLE_BYTES_MAX, Handle, HandleBuffer, Location, Name, Path,
    WriteVerifier,
};
pub use procedure::{PROGRAM, Procedure, VERSION};
pub use reply::{Failure, Outcome, Reply};
pub use status::Status;
