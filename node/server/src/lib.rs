//! A storage node: the object store, and in front of it the rules by which
//! replicas never differ to a reader (CONSISTENCY 1 and 3).

mod disks;
mod fallback;
mod figures;
mod node;
mod ordering;
mod repair;

pub use figures::{NodeCounts, REQUESTS};
pub use node::{Node, NodeEffect, NodeInput};
