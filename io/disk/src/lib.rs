//! Disks: the interface, io_uring, and a thread pool.

mod interface;
#[cfg(any(test, feature = "suite"))]
pub mod suite;

pub use interface::{
    BlockingDisk, Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest,
    DiskToken,
};
