//! What the admin API tells, as JSON; also what the command line reads.

use serde::{Deserialize, Serialize};

/// The whole system at a glance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the running program.
    pub version: String,
    /// Ensemble id, hexadecimal.
    pub ensemble: String,
    /// Volume id, hexadecimal.
    pub volume: String,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// How the disks are driven: `io_uring` or `threads`.
    pub io: String,
    /// Copies of data.
    pub replicas: u32,
    /// Copies of site logs.
    pub site_replicas: u32,
    /// What an administrator should know; empty when all is well.
    pub warnings: Vec<String>,
    /// The doors that answer.
    pub doors: Vec<DoorStatus>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Epoch of the routing table.
    pub table_epoch: u64,
    /// Files and directories of the volume.
    pub files: u64,
    /// Client connections.
    pub connections: u64,
    /// Requests since start.
    pub requests: u64,
    /// What this process does: `all`, or `node`, `manager` or `gateway` of an
    /// ensemble.
    #[serde(default = "all")]
    pub role: String,
    /// Replica sets in use that miss a member, as far as this process knows.
    #[serde(default)]
    pub sets_short: u64,
    /// The processes of the ensemble.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// The sites that there are.
    #[serde(default)]
    pub sites: Vec<SiteStatus>,
    /// When the certificate ends by which this process talks to the others, in seconds
    /// since 1970; nothing if it talks in the clear.
    #[serde(default)]
    pub certificate_ends: Option<u64>,
    /// What this gateway is called, if an administrator has revoked it.
    #[serde(default)]
    pub revoked: Option<String>,
}

fn all() -> String {
    "all".to_owned()
}

/// A process of an ensemble.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its id, hexadecimal.
    pub id: String,
    /// `node 3`, `manager` or `gateway`.
    pub role: String,
    /// What the machine that it runs on is called.
    pub machine: String,
    /// Where other processes connect to it.
    pub link: String,
    /// Where administrators do; empty if they cannot.
    pub admin: String,
    /// Where HTTP clients reach its nodes with signed URLs; empty if they do not.
    #[serde(default)]
    pub node_http: String,
    /// Whether it is the process that was asked, or this one talks to it.
    pub is_connected: bool,
    /// By how many milliseconds its clock is ahead of that of the process that was asked,
    /// give or take what a message takes; nothing if that is not known.
    #[serde(default)]
    pub clock_ahead_ms: Option<i64>,
}

/// A site: names of a part of the volume's directories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its number.
    pub site: u16,
    /// Id of the manager that serves it, hexadecimal; empty in one process.
    pub manager: String,
    /// Files and directories, if the process that was asked serves it.
    pub files: Option<u64>,
    /// Operations that were decided and are not finished yet, likewise.
    pub intentions: Option<u64>,
}

/// A door.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DoorStatus {
    /// `nfs`, `admin`, …
    pub name: String,
    /// Where it listens.
    pub address: String,
}

/// A storage node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its place in the all-in-one.
    pub number: u32,
    /// Its id, hexadecimal.
    pub id: String,
    /// `running`, `opening`, `stopped` or `failed`.
    pub state: String,
    /// Where HTTP clients reach it with signed URLs; empty if they do not.
    #[serde(default)]
    pub http: String,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes of the journal in use.
    pub journal_used_bytes: u64,
    /// Journal flushes since start.
    pub flushes: u64,
    /// Blocks that did not match their checksum since start.
    pub media_errors: u64,
    /// Bad blocks that were replaced by those of another node since start.
    pub repaired_blocks: u64,
    /// Blocks that are known to be bad now.
    pub bad_blocks: u64,
}

/// How far a scrub has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether one is at work.
    pub running: bool,
    /// Blocks read and compared so far.
    pub blocks_checked: u64,
    /// Blocks to check in all, as known now.
    pub blocks_total: u64,
    /// What was found and stays: node, object, offset.
    pub findings: Vec<String>,
    /// What was found and has been repaired from another node.
    #[serde(default)]
    pub repaired: Vec<String>,
    /// Blocks in which the disks of sets were found to differ.
    #[serde(default)]
    pub differing_blocks: u64,
    /// Blocks that were written such that they do not.
    #[serde(default)]
    pub agreed_blocks: u64,
}

/// One thing that a check of names, files and objects has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckFinding {
    /// For people.
    pub text: String,
    /// Where it is, from the volume's root, with escapes for what cannot be shown;
    /// absent if no names lead there.
    pub path: Option<String>,
}

/// How far a check of names, files and objects has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckStatus {
    /// Whether one is at work.
    pub running: bool,
    /// Which look through the volume, from 1 on: what looks wrong is looked for again.
    pub looks: u32,
    /// Files, directories and links that the look has seen.
    pub files: u64,
    /// Names that it has seen.
    pub names: u64,
    /// Objects of large files that it has seen, on all nodes.
    pub objects: u64,
    /// What is wrong, the first of it.
    pub findings: Vec<FsckFinding>,
    /// How much is wrong in all.
    pub findings_total: u64,
    /// What was wrong and has been mended, the first of it.
    #[serde(default)]
    pub repaired: Vec<FsckFinding>,
    /// What was being changed in every look, so that nothing can be said.
    pub unsettled: u64,
    /// Numbers of nodes that were not there to be asked.
    pub nodes_away: Vec<u32>,
    /// Why it has ended without a result.
    pub error: Option<String>,
}
