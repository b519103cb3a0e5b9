//! A disk with one arm, for measurements: how long its requests take, and the log of
//! what it was asked.
//!
//! The program `crossdock-slowdisk` exports one file by FUSE and answers reads and
//! writes of it when the [model] says that they are done. Under a loop device
//! with direct I/O that file is a slow disk on which any file system can be made.

pub mod content;
pub mod model;
pub mod record;
