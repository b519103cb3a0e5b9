//! What a node counts of the calls that it takes.

use crossdock_disks::DiskFigures;
use crossdock_peer::NodeRequest;

/// Everything that a node has counted since it was started.
#[derive(Clone, Debug, Default)]
pub struct NodeCounts {
    /// How often it was asked for what.
    pub requests: [u64; REQUESTS.len()],
    /// Calls that were refused because too many were in progress.
    pub refused_total: u64,
    /// Calls in progress.
    pub calls: usize,
    /// Its journal's disk and its data's.
    pub disks: [DiskFigures; 2],
}

/// What a node can be asked for, in the order of [`NodeCounts::requests`].
pub const REQUESTS: [&str; 21] = [
    "create",
    "read",
    "write",
    "commit",
    "append",
    "seal",
    "truncate",
    "zero",
    "remove",
    "stat",
    "list",
    "pin",
    "unpin",
    "repair",
    "changes",
    "ahead",
    "set-attributes",
    "mapped",
    "share",
    "exchange",
    "copy",
];

/// Place of a request in [`REQUESTS`].
pub(crate) const fn index(request: &NodeRequest) -> usize {
    match request {
        NodeRequest::Create { .. } => 0,
        NodeRequest::Read { .. } => 1,
        NodeRequest::Write { .. } => 2,
        NodeRequest::Commit { .. } => 3,
        NodeRequest::Append { .. } => 4,
        NodeRequest::Seal { .. } => 5,
        NodeRequest::Truncate { .. } => 6,
        NodeRequest::Zero { .. } => 7,
        NodeRequest::Remove { .. } => 8,
        NodeRequest::Stat { .. } => 9,
        NodeRequest::List { .. } => 10,
        NodeRequest::Pin { .. } => 11,
        NodeRequest::Unpin { .. } => 12,
        NodeRequest::Repair { .. } => 13,
        NodeRequest::Changes { .. } => 14,
        NodeRequest::Ahead { .. } => 15,
        NodeRequest::SetAttributes { .. } => 16,
        NodeRequest::Mapped { .. } => 17,
        NodeRequest::Share { .. } => 18,
        NodeRequest::Exchange { .. } => 19,
        NodeRequest::Copy { .. } => 20,
    }
}
