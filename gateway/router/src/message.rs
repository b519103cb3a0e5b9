//! What goes into the router and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crossdock_limits::GATEWAY_HOT_BYTES_MAX;
use crossdock_names::{FileCapability, FileRef, HostId, NodeId, ObjectId, RoutingTable, SiteId};
use crossdock_peer::{
    Call, CallId, Caller, Flow, NodeReply, NodeRequest, Recall, SiteReply, SiteRequest, WriterId,
};
use crossdock_types::WallTime;

/// Tells a client whether its unstable writes may have been lost: it resends
/// what was answered with another one than its COMMIT (RFC 1813 section 3.3.21).
pub type WriteVerifier = [u8; 8];

/// What a router is told when it is made.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// This instance of the gateway; a restart makes a new one. It goes into
    /// every write context and into the write verifier.
    pub writer: WriterId,
    /// Most requests in progress; beyond, the answer is "busy".
    pub requests_max: usize,
    /// Most holders of unstable bytes remembered; beyond, the oldest file is
    /// committed before the next write is answered.
    pub unstable_holders_max: usize,
    /// Most files of which the router has leases; 0: sites are asked by each request.
    pub leases_max: usize,
    /// Most windows of files' block maps that the router keeps, of up to 1 KiB each.
    pub map_windows_max: usize,
    /// Most bytes of files that are read again and again.
    pub hot_bytes_max: usize,
}

impl RouterConfig {
    /// The usual bounds.
    #[must_use]
    pub const fn new(writer: WriterId) -> Self {
        Self {
            writer,
            requests_max: 4096,
            unstable_holders_max: 16 << 10,
            leases_max: 4096,
            map_windows_max: 16 << 10,
            hot_bytes_max: GATEWAY_HOT_BYTES_MAX,
        }
    }
}

/// What a client that reads on will want of a file, or no longer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Who reads.
    pub caller: Caller,
    /// What.
    pub file: FileRef,
    /// First byte of the range.
    pub offset_bytes: u64,
    /// Its end.
    pub end_bytes: u64,
    /// If so, nodes fetch the range, or leave it to the door; if not, the client is gone,
    /// and they withdraw what they are about to fetch of it.
    pub is_wanted: bool,
    /// Whether the door asks for the range itself: nodes then fetch nothing beyond what it
    /// asks for.
    pub is_read: bool,
}

/// Bytes of a file that another gateway is asked for, which keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRead {
    /// Of which file.
    pub file: FileRef,
    /// As it is since then.
    pub changed: WallTime,
    /// First byte, in the file.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u64,
    /// The column that has them …
    pub object: ObjectId,
    /// … from this byte on,
    pub object_offset: u64,
    /// and by what right they are read of it.
    pub capability: Option<FileCapability>,
}

/// What happens to a router.
#[derive(Clone, Debug)]
pub enum RouterInput {
    /// A door asks. Every request is answered exactly once.
    Request(Box<Call<SiteRequest>>),
    /// The same of a read whose bytes go to a client in this connection: nodes may keep
    /// them, and the payload of the answer then has extents.
    ReadFor(Flow, Box<Call<SiteRequest>>),
    /// The same of a read of a file that is read again and again: its bytes are kept.
    ReadHot(Box<Call<SiteRequest>>),
    /// Nobody waits for this request of a door any more: a read ends at once
    /// (its answer is "busy"), anything else goes on.
    Withdraw(CallId),
    /// The answer to this request of a door is not needed so soon: what a read wants of
    /// disks goes behind everything else for so long, now and where it goes on to, or
    /// until the disk has nothing else to do. A request that is postponed for long
    /// right behind its own input is one of the background. The last word counts.
    Postpone(CallId, Duration),
    /// It is needed as it was at first.
    Resume(CallId),
    /// A door says what of a file a client will read next. Nobody is answered.
    Ahead(Box<ReadAhead>),
    /// A site answers.
    Site(Box<SiteReply>),
    /// A node answers.
    Node(NodeId, NodeReply),
    /// The answer to [`RouterEffect::ReadKept`]: as a node's to a read, or any error.
    Kept(NodeReply),
    /// Another gateway keeps a file, as it is since that time.
    KeptElsewhere(HostId, FileRef, WallTime),
    /// A site wants a lease back.
    Recall(Recall),
    /// The routing table has changed.
    Table(Arc<RoutingTable>),
    /// The time of [`poll_timeout`](crate::Router::poll_timeout) has come.
    Timeout,
}

/// What a router wants done. Every call to a site or node must be answered
/// sometime, at the latest when the connection to it is given up: an answer to
/// a change is never replaced by a guess.
#[derive(Clone, Debug)]
pub enum RouterEffect {
    /// Send to the manager that hosts the site.
    Site(SiteId, Box<Call<SiteRequest>>),
    /// Send to the node, and show it the right to ask.
    Node(NodeId, Call<NodeRequest>, Option<FileCapability>),
    /// The same of a read: what it gives may stay at the node, to be sent from there in
    /// this connection.
    ReadFor(Flow, NodeId, Call<NodeRequest>, Option<FileCapability>),
    /// Ask another gateway for bytes that it keeps, to be sent from there in this connection.
    ReadKept(Flow, HostId, CallId, Box<KeptRead>),
    /// From now on this gateway keeps all that columns have of a file, as it is since that time:
    /// others may be told.
    Keeps(FileRef, WallTime),
    /// Nobody waits for this read any more; no answer is needed.
    CancelNode(NodeId, CallId),
    /// The answer to this read is not needed before that time has gone by.
    PostponeNode(NodeId, CallId, Duration),
    /// It is, as at first.
    ResumeNode(NodeId, CallId),
    /// Give to the door.
    Reply(Box<RoutedReply>),
}

/// A reply to a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedReply {
    /// The answer, with the door's call id.
    pub reply: SiteReply,
    /// What the reply to WRITE or COMMIT carries. For a WRITE it is as of the
    /// arrival of the request: a loss that is noticed while the write is under
    /// way may concern the write itself.
    pub verifier: WriteVerifier,
    /// What it waited for.
    pub waited: Waited,
}

/// How long a request waited for whom. Of those that were asked at the same time
/// the last one that answered counts: the others cost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// For a site, its log included.
    pub site: Duration,
    /// For nodes: their disks, and what they ask of each other.
    pub nodes: Duration,
}
