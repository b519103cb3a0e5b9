//! Disk sets: stripes, mirrors and rotating parity over disks, striped into one space
//! ("multi-stage striping" of iNAS; decision 0048).
//!
//! [`DiskSets`] is to its user what a [`Disk`](crossdock_disk::Disk) is, and does no I/O:
//! it turns requests into requests of member disks and takes their completions. What disks
//! there are and what is on them [`assemble`] finds out when a node starts, from what the
//! beginnings of the disks hold.
//!
//! Promises, beyond those of every disk: a mirror loses nothing with all members but one, a
//! parity set nothing with one; power may fail at any moment, also while a member is missing
//! or being rebuilt. Then blocks that were not written since the last flush are as they
//! were. The one exception is where both meet: what was written since the last flush to a
//! disk of a parity set that is missing when it starts again may be neither old nor new.

mod assemble;
mod codec;
mod geometry;
mod intent;
mod label;
mod machine;
mod parity;
pub mod spec;

pub use assemble::{AssembleError, Assembled, DiskNumber, Found, SetWish, Wish, assemble};
pub use geometry::{Geometry, Kind, Places};
pub use machine::adding::{NewDisk, NewSet};
pub use machine::status::{DiskState, DiskStatus, RebuildStatus, SetStatus, SetsStatus};
pub use machine::{DiskSets, Options, SetsError, SetsEvent};
