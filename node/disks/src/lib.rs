//! The disk queue of a storage node: priority, deadline, cancellation.

mod figures;
mod lane;
mod queue;

pub use figures::{ClassFigures, DiskFigures, Operation, OperationFigures};
pub use queue::{DiskClass, DiskQueue, Full, QueuedRequest};
