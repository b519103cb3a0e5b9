//! The object store of a storage node.
//!
//! [`Store`] is a sans-io machine that owns everything: it takes requests,
//! completions of its two disks (journal and data) and answers of the index, and
//! gives disk requests, index requests and replies. [`Index`] is the part that
//! may block, on a thread of its own.

mod cache;
mod index;
mod interface;
mod store;

pub use index::{Index, IndexError, IndexReply, IndexRequest};
pub use interface::{
    ChangedRange, Mutation, OpenError, OpenReport, ScrubFinding, ScrubReport, StoreConfig,
    StoreDisk, StoreEffect, StoreInput, StoreStatus,
};
pub use store::Store;
