//! Disks: the interface, io_uring, and a thread pool.
