//! Figures of a host, for `status` and scrub.

use std::collections::BTreeSet;

use crossdock_store::StoreStatus;
use crossdock_types::Time;

use crate::NodeState;

/// The host at a glance.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// The ensemble's id.
    pub ensemble: u64,
    /// The volume's id.
    pub volume: u64,
    /// Copies of data.
    pub replicas: u32,
    /// Copies of site logs.
    pub site_replicas: u32,
    /// Epoch of the routing table.
    pub table_epoch: u64,
    /// Files and directories.
    pub files: u64,
    /// Requests of clients since the start.
    pub requests: u64,
    /// Replica sets in use that miss a member.
    pub sets_short: usize,
    /// The nodes.
    pub nodes: Vec<NodeFigures>,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeFigures {
    /// Its place.
    pub number: u32,
    /// Its id.
    pub id: u64,
    /// What it is doing.
    pub state: NodeState,
    /// Its store's figures; zero while it does not run.
    pub store: StoreStatus,
}

/// A scrub of all nodes.
#[derive(Clone, Debug, Default)]
pub struct ScrubProgress {
    /// Whether it is at work.
    pub running: bool,
    /// Blocks verified so far.
    pub blocks_checked: u64,
    /// Bad blocks: node, object, offset, what is wrong.
    pub findings: Vec<String>,
    /// Blocks that were bad and have been replaced by those of another member.
    pub repaired: Vec<String>,
    /// Blocks in which the disks of sets were found to differ.
    pub differing_blocks: u64,
    /// Blocks that were written such that they do not.
    pub agreed_blocks: u64,
    /// Nodes that have still to be scrubbed, by number.
    pub(crate) left: Vec<u32>,
    /// Nodes whose disks are being compared: they are scrubbed after that.
    pub(crate) comparing: BTreeSet<u32>,
    /// Nodes whose disks differ: when they have been scrubbed they are made the same.
    pub(crate) differing: BTreeSet<u32>,
    /// Nodes whose disks are being made the same.
    pub(crate) agreeing: BTreeSet<u32>,
    /// The next step is to be asked for: never from within the answer to the
    /// one before, as a node that waits for its index answers at once.
    pub(crate) is_step_wanted: bool,
    /// When.
    pub(crate) step_due: Option<Time>,
}
