//! Defragmentation of the nodes' disks, as the admin API takes orders and tells of it.

use serde::{Deserialize, Serialize};

/// What is wanted of the defragmenter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "lowercase", deny_unknown_fields)]
pub enum DefragOrder {
    /// A pass over all nodes begins.
    Now,
    /// The pass that is at work ends where it is.
    Stop,
    /// A pass over what the nodes have of one file begins.
    File {
        /// Its path, from the volume's root.
        path: String,
    },
    /// Passes are made at a time of every day.
    Schedule {
        /// When, like `02:00-05:00`, in UTC; nothing: only by order.
        window: Option<String>,
    },
}

/// How far the last pass has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragStatus {
    /// Whether one is at work.
    pub running: bool,
    /// It has begun because its time had come.
    pub scheduled: bool,
    /// It waits because clients are at work.
    pub yielding: bool,
    /// It was ended by order, before it had come to its end.
    pub stopped: bool,
    /// Of which file; of all if it is absent.
    pub path: Option<String>,
    /// When passes are made, every day, in UTC.
    pub schedule: Option<String>,
    /// How objects lay when it came to them.
    pub found: LayoutStatus,
    /// How they lie, as far as that has been looked at since.
    pub left: LayoutStatus,
    /// How the free space lies; told at the end.
    pub free: FreeSpaceStatus,
    /// Blocks that have another place now.
    pub moved_blocks: u64,
    /// Blocks that were left where they were because they are pinned.
    pub pinned_blocks: u64,
    /// The same, because they were being changed.
    pub busy_blocks: u64,
    /// The same, because they, or blocks beside them, cannot be read.
    pub unreadable_blocks: u64,
    /// The same, because there was no room.
    pub homeless_blocks: u64,
    /// What has kept it from going to the end.
    pub errors: Vec<String>,
    /// At a manager of an ensemble: how far each node is with the last order. What these have done
    /// is part of the figures above, also while they are at work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodePassStatus>,
}

/// How far a node is with the last order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePassStatus {
    /// Its number.
    pub node: u32,
    /// What it is at.
    pub state: PassState,
    /// It waits because clients are at work.
    pub yielding: bool,
    /// How objects lay when it came to them.
    pub found: LayoutStatus,
    /// How they lie, as far as that has been looked at since.
    pub left: LayoutStatus,
    /// Blocks that have another place now.
    pub moved_blocks: u64,
}

/// What a node is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PassState {
    /// It has not begun, or has not told so yet.
    Waiting,
    /// It moves what lies apart.
    Moving,
    /// It looks at what has come of that.
    Looking,
    /// It has come to the end.
    Done,
    /// It was called off before it was done.
    Stopped,
    /// The node is not there.
    Away,
}

/// How objects lie on disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutStatus {
    /// Objects that have blocks; a file has one for each of its columns and replicas.
    pub objects: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Stretches of contiguous blocks in which they lie; at best one for each object.
    pub runs: u64,
    /// How far apart the runs of an object lie, from each to the next, in blocks and all
    /// together.
    pub seek_blocks: u64,
    /// What sequential reads reach of the rate of a contiguous layout, in percent, on a disk
    /// with one arm (8 ms from one place to another, 60 MB/s), by the model.
    pub sequential_percent: u64,
}

/// How the free space of the nodes' disks lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpaceStatus {
    /// Free blocks, of which it is known where they lie.
    pub blocks: u64,
    /// Stretches of contiguous blocks that these are.
    pub runs: u64,
    /// The longest of them, in blocks.
    pub longest_blocks: u64,
    /// Free blocks of which it is not in memory where they lie.
    pub unseen_blocks: u64,
}
