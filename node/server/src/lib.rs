//! A storage node: the object store, and in front of it the rules by which
//! replicas never differ to a reader (CONSISTENCY 1 and 3).

mod copies;
mod disks;
mod exchange;
mod fallback;
mod figures;
mod guard;
mod node;
mod ordering;
mod pacing;
mod repair;
mod sendings;
mod unsettled;

pub use crossdock_disks::DiskFigures;
pub use figures::{NodeCounts, REQUESTS};
pub use guard::{CAPABILITY_SECONDS, CLOCK_MARGIN_SECONDS, Guard};
pub use node::{Node, NodeEffect, NodeInput};
pub use pacing::{MoverPace, MoverTurn};
