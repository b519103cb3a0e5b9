//! What the data thread tells of itself, once for all who watch: `/metrics`,
//! `/health`, `/v1/figures`, the history, the console.
//!
//! Counters run since the start of the process (those of a node since its own
//! start); whoever wants rates takes two snapshots.

use std::collections::BTreeMap;

use crossdock_metrics::Histogram;
use serde::{Deserialize, Serialize};

use crate::Status;

/// Everything, at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was taken, in seconds since 1970.
    pub at: f64,
    /// Seconds since the process was ready.
    pub uptime_seconds: f64,
    /// Nodes, doors, space.
    pub status: Status,
    /// Procedures that were called.
    pub procedures: Vec<Procedure>,
    /// The clients that called last.
    pub clients: Vec<Client>,
    /// What all other clients have asked for.
    pub other_clients: Traffic,
    /// Exports that were used, by path.
    pub exports: BTreeMap<String, Traffic>,
    /// The door to clients.
    pub door: DoorFigures,
    /// The HTTP door, and what is read ahead for its connections.
    #[serde(default)]
    pub http: HttpFigures,
    /// The nodes' own HTTP door.
    #[serde(default)]
    pub node_http: NodeHttpFigures,
    /// The iSCSI door.
    #[serde(default)]
    pub iscsi: IscsiFigures,
    /// What nodes send to clients themselves.
    #[serde(default)]
    pub transfer: TransferFigures,
    /// Nodes that run.
    pub nodes: Vec<NodeFigures>,
    /// Sites that are open.
    pub sites: Vec<SiteFigures>,
    /// A scrub, if one was started.
    pub scrub: crate::ScrubStatus,
    /// Defragmentation, if some was done.
    #[serde(default)]
    pub defrag: crate::DefragStatus,
    /// The event loop.
    pub event_loop: LoopFigures,
    /// Bytes of memory by what they are for.
    pub memory: BTreeMap<String, u64>,
    /// The newest slow requests, oldest first.
    pub slow: Vec<SlowRequest>,
    /// The process, as the kernel sees it; filled in by who serves the snapshot.
    #[serde(default)]
    pub process: ProcessFigures,
}

/// A procedure of a door's protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Procedure {
    /// `nfs3`, `mount3`, `nlm`, `nsm`.
    pub program: String,
    /// Its name in the RFC.
    pub name: String,
    /// How many ended how: `ok`, or the protocol's error.
    pub statuses: BTreeMap<String, u64>,
    /// From a call that is there completely to its reply at the socket, in
    /// microseconds.
    #[serde(with = "sparse")]
    pub latency: Histogram,
    /// Bytes of calls.
    pub in_bytes: u64,
    /// Bytes of replies.
    pub out_bytes: u64,
}

/// What somebody has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests that were answered.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
}

/// A client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// Its address.
    pub address: String,
    /// How many connections it has.
    pub connections: u64,
    /// Seconds since its last request was answered.
    pub idle_seconds: f64,
    /// What it has asked for.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// The NFS door.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DoorFigures {
    /// Connections.
    pub connections: u64,
    /// Connections that are not read from at this moment.
    pub connections_paused: u64,
    /// How often one was not read from any more for want of room.
    pub pauses_total: u64,
    /// Calls in progress.
    pub calls: u64,
    /// How many there may be.
    pub calls_max: u64,
    /// Bytes of calls in progress, and of replies that are not gone yet.
    pub held_bytes: u64,
    /// How many there may be.
    pub held_bytes_max: u64,
    /// Calls that the RPC layer refused.
    pub rejected_total: u64,
    /// WRITEs that came again while the first was in progress.
    pub retransmitted_total: u64,
    /// Calls that took longer than `--slow-ms`.
    pub slow_total: u64,
    /// Requests that the router works on.
    pub routed: u64,
    /// Leases of files that the router holds.
    pub file_leases: u64,
    /// Windows of files' block maps that it knows.
    pub map_windows: u64,
}

/// The HTTP door and the delivery engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpFigures {
    /// Requests by method, in small letters.
    pub requests: BTreeMap<String, u64>,
    /// Responses by the class of their status: `1xx` to `5xx`.
    pub responses: BTreeMap<String, u64>,
    /// Connections.
    pub connections: u64,
    /// Bytes of files that were given to connections.
    pub sent_bytes: u64,
    /// Bytes of contents that came.
    pub received_bytes: u64,
    /// Bytes of contents on their way to the volume.
    pub upload_bytes: u64,
    /// Responses that were broken off because their file has changed.
    pub changed_total: u64,
    /// Connections that were ended because their clients took too long.
    pub late_total: u64,
    /// Streams that are open.
    pub streams: u64,
    /// Streams that wait for memory.
    pub waiting: u64,
    /// B_net, in bytes per second.
    pub rate_net: u64,
    /// T_D, in seconds.
    pub buffering_seconds: f64,
    /// Bytes requested or read and not handed to sockets.
    pub memory_used: u64,
    /// How many there may be.
    pub memory_bytes: u64,
    /// Reads that were withdrawn.
    pub withdrawn_total: u64,
    /// Reads that were moved behind others.
    pub postponed_total: u64,
    /// Bytes that were found to be asked for too early, of which those are.
    pub postponed_bytes: u64,
    /// Bytes read and not sent to a connection that lived.
    pub thrown_away_bytes: u64,
    /// Bytes that nodes were told to read ahead, and no client has asked for.
    pub unclaimed_bytes: u64,
    /// Bytes read for connections that died.
    pub dead_bytes: u64,
    /// Reads that the engine has asked for.
    pub delivery_requests: u64,
    /// Their bytes.
    pub delivery_requested_bytes: u64,
    /// From the disk to the network, in microseconds.
    #[serde(with = "sparse")]
    pub residence: Histogram,
    /// The same, in percent of the connection's own T_D.
    #[serde(with = "sparse")]
    pub residence_percent: Histogram,
}

/// The HTTP door of the nodes of this process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeHttpFigures {
    /// Responses by the class of their status: `1xx` to `5xx`.
    pub responses: BTreeMap<String, u64>,
    /// Connections.
    pub connections: u64,
    /// Bytes of objects that were given to connections.
    pub sent_bytes: u64,
    /// Bytes of responses in memory.
    pub held_bytes: u64,
    /// Reads that were withdrawn.
    pub withdrawn_total: u64,
    /// Reads that were moved behind others.
    pub postponed_total: u64,
    /// Responses that were broken off.
    pub broken_total: u64,
    /// Connections that were ended because their clients took too long.
    pub late_total: u64,
}

/// The iSCSI door.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IscsiFigures {
    /// Commands by what they do: `read`, `write`, `other`.
    pub commands: BTreeMap<String, u64>,
    /// Answers by status: `good`, `check_condition`, `reservation_conflict`, `busy`.
    pub responses: BTreeMap<String, u64>,
    /// Bytes of LUNs that were given to connections.
    pub sent_bytes: u64,
    /// Bytes that came with commands.
    pub received_bytes: u64,
    /// Bytes that copies have written, by which way they went: `nodes`, `gateway`.
    pub copied_bytes: BTreeMap<String, u64>,
    /// Commands that were aborted.
    pub aborted_total: u64,
    /// Reads of aborted commands that were withdrawn.
    pub withdrawn_total: u64,
    /// Logins that were refused.
    pub refused_logins_total: u64,
    /// PDUs that were refused, or ended their connection.
    pub rejected_total: u64,
    /// Connections.
    pub connections: u64,
    /// Sessions.
    pub sessions: u64,
    /// Commands in progress.
    pub tasks: u64,
    /// Bytes that they hold.
    pub held_bytes: u64,
}

/// Third-party transfer: of a gateway what went which way and why, of a host with nodes what
/// it has sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TransferFigures {
    /// Nodes may send to clients of this gateway.
    pub is_gateway: bool,
    /// This host's nodes send to clients of gateways.
    pub is_node: bool,
    /// Bytes that nodes were to send.
    pub injected_bytes: u64,
    /// Bytes for which clients were sent to nodes.
    #[serde(default)]
    pub redirected_bytes: u64,
    /// Bytes that are kept of files that are read again and again.
    #[serde(default)]
    pub hot_bytes: u64,
    /// Bytes that were given out of it.
    #[serde(default)]
    pub hot_served_bytes: u64,
    /// Bytes that this gateway keeps and was to send to clients of others.
    #[serde(default)]
    pub lent_bytes: u64,
    /// Bytes that other gateways keep and were to send to clients of this one; they are among
    /// those of nodes, too.
    #[serde(default)]
    pub borrowed_bytes: u64,
    /// Bytes that the gateway has sent itself, by why.
    pub relayed_bytes: BTreeMap<String, u64>,
    /// Hosts that fill packets.
    pub tunnels: u64,
    /// Connections in which nodes may send.
    pub connections: u64,
    /// Packets by what became of them.
    pub packets: BTreeMap<String, u64>,
    /// Bytes whose holder did not send them, and that others have sent, or the gateway.
    #[serde(default)]
    pub refilled_bytes: u64,
    /// Connections that were reset.
    pub reset_total: u64,
    /// Over UDP; nothing above has it in.
    #[serde(default)]
    pub udp: DatagramFigures,
    /// Bytes of packets that were filled: by nodes for gateways, by a gateway where no node
    /// could.
    pub sent_bytes: u64,
    /// Those packets.
    pub sent_packets: u64,
    /// Bytes that are held for gateways.
    pub held_bytes: u64,
    /// Reads whose bytes they are.
    pub pins: u64,
    /// What was not filled or held, by why.
    pub refused: BTreeMap<String, u64>,
}

/// Replies over UDP: those of a gateway's door, and of a host with nodes those that it has sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DatagramFigures {
    /// Replies that nodes were to send.
    pub injected: u64,
    /// Bytes of files in them.
    pub injected_bytes: u64,
    /// Replies that the gateway has sent itself.
    pub relayed: u64,
    /// Their bytes, by why.
    pub relayed_bytes: BTreeMap<String, u64>,
    /// Replies whose node was gone by then, or that had no number: their clients ask again.
    pub lost: u64,
    /// Replies that this host's nodes have sent.
    pub sent: u64,
    /// Bytes of files in them.
    pub sent_bytes: u64,
    /// Packets of IP that they were.
    pub sent_fragments: u64,
}

/// A set of a node's disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSetFigures {
    /// The number that it has as long as it is there.
    pub number: u64,
    /// `stripe`, `mirror` or `parity`.
    pub kind: String,
    /// Members that lack something, or are not there.
    pub lacking: u64,
    /// Reads that members have failed since the start.
    pub read_errors: u64,
    /// Bytes that a rebuild has still to make; 0 without one.
    pub rebuild_bytes: u64,
    /// Stripes that it could not make.
    pub unreadable_stripes: u64,
    /// Blocks in which members were found to differ since the start.
    #[serde(default)]
    pub differing_blocks: u64,
    /// Blocks that were written such that they do not.
    #[serde(default)]
    pub agreed_blocks: u64,
}

/// A node that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Its number.
    pub number: u32,
    /// How often it was asked for what.
    pub requests: BTreeMap<String, u64>,
    /// Calls in progress.
    pub calls: u64,
    /// Calls that were refused because too many were.
    pub refused_total: u64,
    /// Its journal and its data.
    pub disks: Vec<DiskFigures>,
    /// The sets of disks that its data is on.
    #[serde(default)]
    pub sets: Vec<DiskSetFigures>,
    /// Records of each frame of its journal.
    #[serde(with = "sparse")]
    pub frame_records: Histogram,
    /// Bytes of the journal's frames.
    pub journal_written_bytes: u64,
    /// Durable writes of the journal.
    pub journal_flushes: u64,
    /// How often the journal's tail went on.
    pub journal_trims: u64,
    /// Length of the journal.
    pub journal_bytes: u64,
    /// Bytes of it in use.
    pub journal_used_bytes: u64,
    /// Durable commits of the index.
    pub checkpoints: u64,
    /// Bytes that it may hold, has in use, and new data can take.
    pub capacity_bytes: u64,
    /// See `capacity_bytes`.
    pub used_bytes: u64,
    /// See `capacity_bytes`.
    pub free_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes that are in memory only.
    pub dirty_bytes: u64,
    /// Blocks that reads found in the cache, or on their way there.
    pub cache_hit_blocks: u64,
    /// Blocks that reads fetched from the disk.
    pub cache_miss_blocks: u64,
    /// Blocks that were fetched for sequential readers before they asked.
    pub read_ahead_blocks: u64,
    /// Blocks that left the cache for others.
    pub cache_evicted_blocks: u64,
    /// Memory that the cache takes.
    pub cache_used_bytes: u64,
    /// Memory that it may take.
    pub cache_capacity_bytes: u64,
    /// Blocks that could not be read or did not match their checksum.
    pub media_errors: u64,
    /// Whether its disk takes no writes any more.
    pub has_failed: bool,
    /// Of its depot, if it has one.
    #[serde(default)]
    pub depot: Option<DepotFigures>,
}

/// A node's IBP depot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DepotFigures {
    /// Requests that were understood, by command.
    pub commands: BTreeMap<String, u64>,
    /// Requests that were refused, or have failed.
    pub refused_total: u64,
    /// Connections and requests that were told to come again.
    pub busy_total: u64,
    /// Connections.
    pub connections: u64,
    /// Connections that were ended because the other side took too long.
    pub late_total: u64,
    /// Bytes that were stored.
    pub stored_bytes: u64,
    /// Bytes that were given to connections.
    pub sent_bytes: u64,
    /// Bytes of loads and copies in memory.
    pub held_bytes: u64,
    /// Loads that were broken off.
    pub broken_total: u64,
    /// Reads that were withdrawn.
    pub withdrawn_total: u64,
    /// Reads that were moved behind others.
    pub postponed_total: u64,
    /// Allocations.
    pub allocations: u64,
    /// Allocations that have ended, by why.
    pub gone: BTreeMap<String, u64>,
    /// Bytes that stable allocations may hold.
    pub stable_bytes: u64,
    /// Bytes that volatile ones may hold.
    pub volatile_bytes: u64,
}

/// A disk and the queue before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskFigures {
    /// `journal` or `data`.
    pub name: String,
    /// By what the disk was asked to do.
    pub operations: Vec<DiskOperation>,
    /// By what it was asked for.
    pub classes: Vec<DiskClass>,
    /// Requests that were refused because too many waited.
    pub refused_total: u64,
    /// Requests that were taken out because nobody waited for them any more.
    pub cancelled_total: u64,
    /// Bytes that those would have read.
    pub cancelled_bytes: u64,
    /// Requests that were moved behind others.
    pub postponed_total: u64,
    /// Requests that are behind others now.
    pub postponed: u64,
    /// What it takes to begin to read elsewhere, in seconds.
    pub positioning_seconds: f64,
    /// What it reads in a second once it is there.
    pub sequential_bytes_per_second: u64,
}

/// What a disk does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskOperation {
    /// `read`, `write`, `flush`, `grow`.
    pub name: String,
    /// From issue to completion, in microseconds.
    #[serde(with = "sparse")]
    pub latency: Histogram,
    /// Bytes moved.
    pub bytes: u64,
    /// How many failed.
    pub failures: u64,
}

/// What a disk does it for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskClass {
    /// `journal`, `foreground`, `write`, `background`.
    pub name: String,
    /// How long requests waited before their issue, in microseconds.
    #[serde(with = "sparse")]
    pub wait: Histogram,
    /// Requests that wait now.
    pub waiting: u64,
    /// Requests that the disk works on now.
    pub in_flight: u64,
}

/// A site that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteFigures {
    /// Its number.
    pub number: u32,
    /// Whether it answers.
    pub is_serving: bool,
    /// Records of each frame of its log.
    #[serde(with = "sparse")]
    pub frame_records: Histogram,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of its log since the newest checkpoint began.
    pub log_bytes_since_checkpoint: u64,
    /// Checkpoints that became valid.
    pub checkpoints: u64,
    /// How long the last one took.
    pub checkpoint_seconds: f64,
    /// How long ago it was; not there before the first.
    pub checkpoint_age_seconds: Option<f64>,
    /// Length of the last one.
    pub checkpoint_bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Names.
    pub names: u64,
    /// Small files.
    pub small_files: u64,
    /// Replies that are remembered for retransmissions.
    pub duplicates: u64,
    /// Operations over several objects that are not finished.
    pub intentions: u64,
    /// Operations over several sites that it decided.
    pub decisions: u64,
    /// Requests that wait to be carried out.
    pub waiting: u64,
    /// Replies that wait for the log.
    pub held: u64,
}

/// The event loop of the data thread.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LoopFigures {
    /// Turns.
    pub turns_total: u64,
    /// System calls to wait and to hand over work.
    pub enters_total: u64,
    /// Connections accepted.
    pub accepted_total: u64,
}

/// A request that took long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// When its reply was sent, in seconds since 1970.
    pub at: f64,
    /// How long it took.
    pub seconds: f64,
    /// `nfs3`, `mount3`, `nlm`, `nsm`.
    pub program: String,
    /// Its procedure.
    pub procedure: String,
    /// Who called: address and port.
    pub client: String,
    /// Through which export, by path.
    pub export: Option<String>,
    /// The file or directory that it was about.
    pub file: Option<u64>,
    /// `ok` or what it failed with.
    pub status: String,
    /// Bytes read or written.
    pub io_bytes: u64,
    /// Where its time went, as far as that is known.
    #[serde(default)]
    pub waited: SlowWaits,
}

/// What a slow request waited for, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowWaits {
    /// For room in the door or its connection's turn, before its time began.
    pub queue: f64,
    /// For a site, its log included.
    pub site: f64,
    /// For nodes: disks and replicas.
    pub nodes: f64,
    /// The rest: in the door and the router, and until its reply was at the socket.
    pub other: f64,
}

impl SlowWaits {
    /// What took longest, in a word, and its seconds.
    #[must_use]
    pub fn longest(&self) -> (&'static str, f64) {
        let all = [
            ("queue", self.queue),
            ("site", self.site),
            ("nodes", self.nodes),
            ("other", self.other),
        ];
        let longest = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        longest.unwrap_or(("other", 0.0))
    }
}

/// The process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// When it was started, in seconds since 1970.
    pub started: f64,
    /// CPU seconds of all threads.
    pub cpu_seconds: f64,
    /// CPU seconds by thread.
    pub threads: BTreeMap<String, f64>,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Open files.
    pub open_fds: u64,
    /// How many there may be.
    pub max_fds: u64,
}

impl Procedure {
    /// How many calls there were.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// How many of them failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.requests() - self.statuses.get("ok").copied().unwrap_or_default()
    }
}

/// Histograms as JSON: the buckets that are not empty, and the sum.
mod sparse {
    use crossdock_metrics::Histogram;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Sparse {
        buckets: Vec<(usize, u64)>,
        sum: u64,
    }

    pub(super) fn serialize<S: Serializer>(
        histogram: &Histogram,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let sparse = Sparse {
            buckets: histogram.buckets().collect(),
            sum: histogram.sum(),
        };
        sparse.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Histogram, D::Error> {
        let Sparse { buckets, sum } = Sparse::deserialize(deserializer)?;
        Ok(Histogram::from_buckets(buckets, sum))
    }
}
