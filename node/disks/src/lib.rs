//! The disk queue of a storage node: priority, deadline, cancellation.

mod lane;
mod queue;

pub use queue::{DiskClass, DiskQueue, Full, QueuedRequest};
