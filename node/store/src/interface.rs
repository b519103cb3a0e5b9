//! What goes into a [`Store`](crate::Store) and what comes out of it.

use crossdock_disk::{DiskCompletion, DiskRequest, DiskToken};
use crossdock_names::{Incarnation, NodeId, ObjectId};
use crossdock_peer::{Call, CallId, NodeError, NodeReply, NodeRequest};
use crossdock_types::Time;
use std::time::Duration;
use thiserror::Error;

use crate::index::{IndexReply, IndexRequest};
use crate::layout::{FreeSpace, Layout};

/// How a store is set up. All sizes are bounds that it keeps by itself.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The node whose store it is; opening another node's store is refused.
    pub node: NodeId,
    /// A number that no other start of this store has had, random: it names
    /// the incarnation that takes unstable writes, and the store when it is
    /// made.
    pub boot: Incarnation,
    /// Most bytes of the data file, rounded down to whole blocks.
    pub capacity_bytes: u64,
    /// Length of the journal file when it is made; an existing one keeps its own.
    pub journal_bytes: u64,
    /// The data file grows by this much.
    pub growth_bytes: u64,
    /// Bytes that are kept of what was read.
    pub cache_bytes: usize,
    /// Bytes of writes that are held in memory until they are on the disk.
    pub dirty_bytes_max: usize,
    /// Run maps and object heads that are kept in memory.
    pub map_entries_max: usize,
    /// Requests that wait for room or for the index; more are answered "busy".
    pub waiting_max: usize,
    /// A durable commit of the index comes at least this often while there are changes.
    pub checkpoint_interval: Duration,
    /// Written bytes are mapped durably after this time, also without a commit.
    pub writeback_delay: Duration,
    /// Blocks of the data disk that are to hold nothing.
    pub closed: Vec<ClosedBlocks>,
    /// A fault built in on purpose, so that tests prove they would find it.
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
}

/// Blocks of the data disk that are to hold nothing, as what lies below them is to go, or has
/// gone: of each of `rows` rows, the first `blocks`. What is there is moved away by
/// [`StoreInput::Evacuate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedBlocks {
    /// The first block of the first row.
    pub first: u64,
    /// Blocks that are closed in each row, at least 1.
    pub blocks: u64,
    /// Blocks of a row, at least as many.
    pub row_blocks: u64,
    /// How many rows there are.
    pub rows: u64,
}

impl StoreConfig {
    /// The usual bounds for a store of `capacity_bytes`.
    #[must_use]
    pub const fn new(node: NodeId, boot: Incarnation, capacity_bytes: u64) -> Self {
        Self {
            node,
            boot,
            capacity_bytes,
            journal_bytes: 64 << 20,
            growth_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            dirty_bytes_max: 16 << 20,
            map_entries_max: 16 << 10,
            waiting_max: 4096,
            checkpoint_interval: Duration::from_secs(5),
            writeback_delay: Duration::from_secs(2),
            closed: Vec::new(),
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }

    #[cfg(feature = "mutations")]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(feature = "mutations"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(&self, _: Mutation) -> bool {
        false
    }
}

/// A fault that a test build can put into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Stable requests are answered when the journal's write begins.
    ReplyBeforeFlush,
    /// No flush is ever sent to a disk, and no write is durable.
    NoFlush,
    /// Blocks are handed out unchecked.
    NoChecksumCheck,
    /// The index commits changes before the journal has them.
    IndexAheadOfJournal,
    /// A freed run is reused before the record that frees it is durable.
    FreedRunReusedEarly,
    /// Blocks are written over in place before the journal has their content.
    InPlaceBeforeJournal,
    /// Blocks that are moved cover what was written while they were on their way.
    MoveOverNewer,
}

/// Which of a node's disks (the index has the third, see [`crate::Index`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreDisk {
    /// The ring of records, written through with zeros when made.
    Journal,
    /// The blocks.
    Data,
}

/// What a disk request is for, so that those before the disk can tell what is
/// urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskPurpose {
    /// Records, for which everybody waits who wants something to be stable.
    Journal,
    /// Blocks that a call wants to have. May fail with
    /// [`DiskError::NotBegun`](crossdock_disk::DiskError::NotBegun); the call is
    /// then told to try again.
    Read(CallId),
    /// Blocks, and what they need, that become visible by a later record.
    Write,
    /// The store's own work, for which nobody waits yet.
    Upkeep,
}

/// What happens to a store.
#[derive(Debug)]
pub enum StoreInput {
    /// Somebody wants something.
    Request(Call<NodeRequest>),
    /// Nobody waits for that read any more. It is told to try again at once, as each
    /// call has one reply, and what only it wanted of the disk is withdrawn. A change
    /// that has begun goes on.
    Cancel(CallId),
    /// Nobody needs the answer to that read before then.
    Postpone(CallId, Time),
    /// Somebody waits for it again.
    Resume(CallId),
    /// A disk request of ours ended.
    Disk(StoreDisk, DiskCompletion),
    /// The index answered; replies come in the order of the requests.
    Index(IndexReply),
    /// The time of [`poll_timeout`](crate::Store::poll_timeout) has come.
    Timeout,
    /// Verify the blocks of up to `blocks_max` from where the last step ended;
    /// answered by [`StoreEffect::Scrubbed`].
    Scrub {
        /// How much to verify in this step.
        blocks_max: u64,
    },
    /// Look at how objects lie, and put together what lies apart, from where the last step
    /// ended; answered by [`StoreEffect::Defragged`]. One at a time.
    Defrag(DefragStep),
    /// The data disk can be that long from now on, and these blocks of it are to hold nothing.
    /// It is never shorter than what it has.
    Space {
        /// As [`StoreConfig::capacity_bytes`].
        capacity_bytes: u64,
        /// As [`StoreConfig::closed`].
        closed: Vec<ClosedBlocks>,
    },
    /// Move away what lies on closed blocks, from where the last step ended; answered by
    /// [`StoreEffect::Evacuated`]. One at a time, and none together with
    /// [`Defrag`](Self::Defrag).
    Evacuate {
        /// It begins with the first object, wherever the step before ended.
        is_first: bool,
        /// Most blocks to move.
        blocks_max: u64,
    },
    /// Write everything back and bring the index up to date; answered by
    /// [`StoreEffect::Quiet`]. No request may come after it.
    Drain,
}

/// What a store wants done.
#[derive(Debug)]
pub enum StoreEffect {
    /// Start this on that disk. Requests under way together may be carried out
    /// in any order: what needs another's end waits for it here. So a flush is
    /// asked for only after the writes that it is to cover have completed.
    Disk(StoreDisk, DiskPurpose, DiskRequest),
    /// One more call waits for what that request of the data disk fetches; it was asked
    /// for as upkeep, or may have been postponed.
    Urgent(DiskToken),
    /// Nobody waits for what that request of the data disk fetches: if it has not
    /// begun it may end as [`DiskError::NotBegun`](crossdock_disk::DiskError::NotBegun).
    Withdraw(DiskToken),
    /// Nobody needs what it fetches before then.
    Postpone(DiskToken, Time),
    /// Somebody waits for it as before.
    Resume(DiskToken),
    /// Hand this to the [`Index`](crate::Index), in order.
    Index(IndexRequest),
    /// Answer a call.
    Reply(NodeReply),
    /// The first effect that matters: the store serves, or never will.
    Opened(Result<OpenReport, OpenError>),
    /// A disk lets nothing be written any more, or the index is gone: from now on
    /// there are only reads. Comes before the answers to those who waited.
    Failed(String),
    /// A step of the scrub ended, or the index has failed.
    Scrubbed(Result<ScrubReport, NodeError>),
    /// A step of the mover ended, or nothing can be written any more.
    Defragged(Result<DefragReport, NodeError>),
    /// A step of emptying closed blocks ended, or nothing can be written any more.
    Evacuated(Result<EvacuationReport, NodeError>),
    /// Drained: nothing is held in memory only, or a disk has failed and nothing
    /// of it can be saved.
    Quiet,
}

/// What opening found and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was made just now.
    pub is_new: bool,
    /// Journal frames that were replayed.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the journal that were replayed.
    pub replayed_bytes: u64,
    /// Random number of the store.
    pub store: u64,
}

/// Why a store cannot be opened. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// Made by a newer version of Crossdock.
    #[error(
        "the store has format version {found}, this program reads {supported}: use the version of crossdock that wrote it"
    )]
    UnknownFormat {
        /// What the superblock says.
        found: u32,
        /// What this program reads.
        supported: u32,
    },
    /// It belongs to another node.
    #[error("the store belongs to node {found}, not to {wanted}: check the data folder")]
    ForeignNode {
        /// Whose it is.
        found: NodeId,
        /// Who opened it.
        wanted: NodeId,
    },
    /// The files do not belong together, or one is damaged.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What does not fit; `crossdock fsck` tells more.
        what: String,
    },
    /// A disk failed, or is too small.
    #[error("{what}")]
    Disk {
        /// Which one and what it said.
        what: String,
    },
    /// The bounds make no sense together.
    #[error("{0}")]
    Config(&'static str),
}

/// What one step of a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blocks that were verified.
    pub blocks: u64,
    /// Blocks that cannot be read or do not match.
    pub findings: Vec<ScrubFinding>,
    /// The end was reached; the next step begins anew.
    pub is_complete: bool,
}

/// A bad block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// Whose.
    pub object: ObjectId,
    /// Where in the object, in bytes.
    pub offset_bytes: u64,
    /// What is wrong.
    pub what: String,
    /// Another member's block has taken its place.
    pub is_repaired: bool,
}

/// What the mover is to do in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragStep {
    /// Of which file's objects, by the placement in their ids; `None` means all objects.
    pub placement: Option<u64>,
    /// Whether something is moved, or only looked at.
    pub moves: bool,
    /// It begins with the first object, wherever the step before ended.
    pub is_first: bool,
    /// Most blocks to move.
    pub blocks_max: u64,
}

/// What one step of the mover found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// How what was looked at lay.
    pub layout: Layout,
    /// What was moved, and what was not.
    pub moves: Moves,
    /// The journal or the disk has to get room first.
    pub is_stalled: bool,
    /// The end was reached; the next step begins anew.
    pub is_complete: bool,
    /// How the free space lies, told with the end.
    pub free: FreeSpace,
}

/// Blocks that the mover has moved, or would have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Those that have another place now.
    pub moved_blocks: u64,
    /// Those that are pinned, and stay until they are not.
    pub pinned_blocks: u64,
    /// Those that something is about to change.
    pub busy_blocks: u64,
    /// Those that cannot be read, or lie beside such ones.
    pub unreadable_blocks: u64,
    /// Those that there is no room for elsewhere.
    pub homeless_blocks: u64,
}

impl Moves {
    /// Counts those of another step, too; what other hosts say is not believed to add up.
    pub const fn add(&mut self, other: &Self) {
        self.moved_blocks = self.moved_blocks.saturating_add(other.moved_blocks);
        self.pinned_blocks = self.pinned_blocks.saturating_add(other.pinned_blocks);
        self.busy_blocks = self.busy_blocks.saturating_add(other.busy_blocks);
        self.unreadable_blocks = self
            .unreadable_blocks
            .saturating_add(other.unreadable_blocks);
        self.homeless_blocks = self.homeless_blocks.saturating_add(other.homeless_blocks);
    }
}

/// What one step of emptying closed blocks has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvacuationReport {
    /// What was moved, and what was not.
    pub moves: Moves,
    /// The journal or the disk has to get room first.
    pub is_stalled: bool,
    /// The end was reached; the next step begins anew.
    pub is_complete: bool,
    /// Closed blocks that still hold something, or may be read or written yet; told with
    /// the end. If there are none nothing is ever asked of them again, also after a crash.
    pub left_blocks: u64,
}

/// Numbers for `status` and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Bytes that the data file may have.
    pub capacity_bytes: u64,
    /// Bytes in runs.
    pub allocated_bytes: u64,
    /// Bytes that new data can take: without reservations and reserves.
    pub free_bytes: u64,
    /// Bytes that are reserved and not taken yet.
    pub reserved_bytes: u64,
    /// How many objects there are.
    pub objects: u64,
    /// Length of the journal's ring.
    pub journal_bytes: u64,
    /// Bytes of it between tail and head.
    pub journal_used_bytes: u64,
    /// Bytes that are in memory only.
    pub dirty_bytes: u64,
    /// Journal frames written since the start.
    pub frames: u64,
    /// Their bytes, with what pads them to blocks.
    pub frame_bytes: u64,
    /// How often the journal's tail went on.
    pub journal_trims: u64,
    /// Durable writes of the journal since the start.
    pub journal_flushes: u64,
    /// Flushes of the data disk since the start.
    pub data_flushes: u64,
    /// Durable commits of the index since the start.
    pub checkpoints: u64,
    /// Blocks that could not be read or did not match their checksum.
    pub media_errors: u64,
    /// Bad blocks that were replaced by those of another member.
    pub repaired_blocks: u64,
    /// Blocks that the mover has given another place.
    pub moved_blocks: u64,
    /// Blocks that are known to be bad now.
    pub bad_blocks: u64,
    /// Blocks that reads found in the cache, or on their way there.
    pub cache_hit_blocks: u64,
    /// Blocks that reads fetched from the disk.
    pub cache_miss_blocks: u64,
    /// Blocks that were fetched for sequential readers before they asked.
    pub read_ahead_blocks: u64,
    /// Blocks that left the cache for others.
    pub cache_evicted_blocks: u64,
    /// Memory that the cache takes, its bookkeeping included.
    pub cache_used_bytes: u64,
    /// Memory that it may take.
    pub cache_capacity_bytes: u64,
    /// Whether a disk failed in a way that lets nothing be written any more.
    pub has_failed: bool,
}
