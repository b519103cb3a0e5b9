//! What nodes tell managers of an order to put together what lies apart, as long as they are at work
//! on it (docs/decisions/0050): what came of it is in the registry.

use serde::{Deserialize, Serialize};

/// How far a node is with an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragWord {
    /// The order's number.
    pub order: u64,
    /// It has moved what it could, and looks at what has come of it.
    pub is_looking: bool,
    /// It waits because clients are at work.
    pub is_yielding: bool,
    /// How objects lay when it came to them.
    pub found: LayoutWord,
    /// How they lie, as far as that has been looked at since.
    pub left: LayoutWord,
    /// Blocks that have another place.
    pub moved_blocks: u64,
    /// Blocks that stayed, as they were pinned, being changed, unreadable, or without room.
    pub kept_blocks: [u64; 4],
}

/// How objects lie on a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutWord {
    /// Objects that have blocks there.
    pub objects: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Stretches of contiguous blocks in which they lie.
    pub runs: u64,
    /// How far apart these are, in blocks and all together.
    pub seek_blocks: u64,
}
