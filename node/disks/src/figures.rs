//! What a disk's queue counts.

use crossdock_disk::DiskOperation;
use crossdock_metrics::Histogram;

use crate::pace::DiskPace;
use crate::queue::DiskClass;

/// Everything that a queue has counted, and what it holds now.
#[derive(Clone, Debug, Default)]
pub struct DiskFigures {
    /// By what the disk was asked to do.
    pub operations: [OperationFigures; 4],
    /// By what it was asked for.
    pub classes: [ClassFigures; 4],
    /// Requests that were refused because too many waited.
    pub refused_total: u64,
    /// Requests that were taken out because nobody waited for them any more.
    pub cancelled_total: u64,
    /// Bytes that those would have read.
    pub cancelled_bytes: u64,
    /// Requests that were moved behind, each as often as it was.
    pub postponed_total: u64,
    /// Requests that are behind now; they count as waiting in their class, too.
    pub postponed: usize,
    /// How fast it reads.
    pub pace: DiskPace,
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes, durable or not.
    Write,
    /// Flushes.
    Flush,
    /// Makes its file longer.
    Grow,
}

/// One kind of operation.
#[derive(Clone, Debug, Default)]
pub struct OperationFigures {
    /// From its issue to its completion, in microseconds.
    pub latency: Histogram,
    /// Bytes moved.
    pub bytes: u64,
    /// How many failed.
    pub failures: u64,
}

/// One class of requests.
#[derive(Clone, Debug, Default)]
pub struct ClassFigures {
    /// How long they waited before their issue, in microseconds.
    pub wait: Histogram,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that the disk works on now.
    pub in_flight: usize,
}

impl Operation {
    /// All of them, in the order of [`DiskFigures::operations`].
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Grow];

    /// One word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Grow => "grow",
        }
    }

    pub(crate) fn of(operation: &DiskOperation) -> (Self, u64) {
        match operation {
            DiskOperation::Read { buffer, .. } | DiskOperation::ReadOther { buffer, .. } => {
                (Self::Read, buffer.len() as u64)
            }
            DiskOperation::Write { pieces, .. } => {
                let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                (Self::Write, bytes as u64)
            }
            DiskOperation::Flush => (Self::Flush, 0),
            DiskOperation::Grow { .. } => (Self::Grow, 0),
        }
    }
}

impl DiskClass {
    /// All of them, in the order of [`DiskFigures::classes`].
    pub const ALL: [Self; 4] = [
        Self::Journal,
        Self::Foreground,
        Self::Write,
        Self::Background,
    ];

    /// One word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Foreground => "foreground",
            Self::Write => "write",
            Self::Background => "background",
        }
    }
}
