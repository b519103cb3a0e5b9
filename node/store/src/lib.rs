//! The object store of a storage node.
//!
//! [`Store`] is a sans-io machine that owns everything: it takes requests,
//! completions of its two disks (journal and data) and answers of the index, and
//! gives disk requests, index requests and replies. [`Index`] is the part that
//! may block, on a thread of its own.

mod ahead;
mod apply;
mod backend;
mod bad;
mod cache;
mod checkpoint;
mod commit;
mod flight;
mod fsck;
mod index;
mod interface;
mod journal;
mod layout;
mod list;
mod mapped;
mod mending;
mod mover;
mod object;
mod opening;
mod operations;
mod overlay;
mod pins;
mod read;
mod reap;
mod record;
mod repair;
mod runs;
mod scrub;
mod settle;
mod space;
mod store;
mod under_way;
mod waiting;
mod withdraw;
mod write;

pub use fsck::{FsckReport, fsck};
pub use index::{Index, IndexError, IndexReply, IndexRequest};
pub use interface::{
    ClosedBlocks, DefragReport, DefragStep, DiskPurpose, EvacuationReport, Moves, Mutation,
    OpenError, OpenReport, ScrubFinding, ScrubReport, StoreConfig, StoreDisk, StoreEffect,
    StoreInput, StoreStatus,
};
pub use layout::{FreeSpace, Layout};
pub use store::Store;
