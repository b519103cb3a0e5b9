//! The small-file role of a site (Slice 4.4, CONSISTENCY 10): files, and heads
//! of files, below 64 KiB.
//!
//! [`SmallFiles`] holds map records, inlined pieces and the free space of the
//! site's backing objects. It is a pure sub-machine: it has no log and does no
//! I/O. The site that hosts it
//!
//! 1. asks for a [`Plan`] (`plan_write`, `plan_commit`, `plan_truncate`,
//!    `plan_flush`): nothing has changed yet;
//! 2. for [`Plan::Change`]: puts the change's record into the log record that
//!    it appends, **at once** calls [`SmallFiles::accept`], and sends the
//!    change's backing writes, all in the same step;
//! 3. tells [`SmallFiles::durable`] how far the log is durable and
//!    [`SmallFiles::written`] when the backing writes of a change are durable on
//!    every member; the change is acknowledged when both have happened
//!    ([`SmallFiles::standing`]);
//! 4. after a restart loads the checkpoint, pushes the log's records through a
//!    [`ReplayTail`], which holds back what has to be verified first, and gives
//!    what comes out to [`SmallFiles::replay`];
//! 5. now and then gives free space back to the nodes: makes a hole of what
//!    [`SmallFiles::begin_return`] names, on every member, and tells
//!    [`SmallFiles::end_return`].
//!
//! Memory runs ahead of the log, so a reply that shows the state of a file
//! waits until the sequence named by the plan (`after`) has settled.

mod backing;
mod checkpoint;
mod compare;
mod figures;
mod machine;
mod map;
mod overlay;
mod plan;
mod read;
mod record;
mod runs;
mod space;
mod tail;
mod write;

pub use checkpoint::{Checkpoint, CheckpointState};
pub use compare::Comparison;
pub use figures::{MemoryFigures, SpaceFigures};
pub use machine::{INLINE_BYTES_MAX, SmallFiles, SmallFilesConfig, Standing};
pub use plan::{
    BackingHole, BackingRead, BackingWrite, Change, Corrupt, Fetched, FragmentCheck, Plan,
    ReadPiece, ReadPlan, ReadTicket, Sequence, SmallFileError, Write,
};
pub use record::{RecordError, RecordSummary};
pub use tail::ReplayTail;
