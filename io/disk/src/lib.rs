//! Disks: the interface, and its implementations over a thread pool and over
//! io_uring. The simulated one is in `sim/world`; all three pass `suite`.
//!
//! A disk is a file or a block device, opened for direct I/O
//! ([`file::DiskFile`]); what serves it is chosen by the event loop.

mod blocking;
pub mod file;
mod interface;
pub mod pool;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
#[cfg(test)]
mod tests;
pub mod uring;

pub use blocking::FileBlockingDisk;
pub use file::{DiskFile, OpenError, OpenOptions};
pub use interface::{
    BlockingDisk, Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest,
    DiskToken,
};
