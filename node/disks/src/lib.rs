//! The disk queue of a storage node: priority, deadline,
//! postponement, cancellation; and how fast the disk is.

mod figures;
mod lane;
mod pace;
mod queue;

pub use figures::{ClassFigures, DiskFigures, Operation, OperationFigures};
pub use pace::DiskPace;
pub use queue::{DiskClass, DiskQueue, Full, QueuedRequest};
