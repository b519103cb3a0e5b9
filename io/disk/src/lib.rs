//! Disks: the interface, io_uring, and a thread pool.

mod interface;

pub use interface::{
    BlockingDisk, Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest,
    DiskToken,
};
