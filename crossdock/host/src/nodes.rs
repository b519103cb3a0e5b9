//! The nodes of this host: starting, stopping, and what state each is in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crossdock_depot::{Depot, DepotPolicy};
use crossdock_members::Change;
use crossdock_names::{Incarnation, NodeId};
use crossdock_peer::{Call, NodeError, NodeReply, NodeRequest, Port};
use crossdock_server::{Node, NodeInput};
use crossdock_store::{ScrubReport, StoreConfig, StoreInput};
use crossdock_types::{Time, WallTime};

use crate::host::{Host, HostEffect};
use crate::message::{EQUALIZE_CALL, Message};
use crate::watch::{HostStatus, NodeFigures, ScrubProgress};

/// Blocks that one step of a scrub reads: a step must not hold up clients.
const SCRUB_STEP_BLOCKS: u64 = 256;

/// Rest between two steps.
const SCRUB_REST: Duration = Duration::from_millis(1);

/// Findings of a scrub that are kept.
const FINDINGS_MAX: usize = 1000;

/// Which start of a node's store something belongs to: completions of disks
/// that were opened for an earlier one are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

/// By how much data files grow: seldom, for a journal's flush waits while one does.
pub const GROWTH_BYTES: u64 = 64 << 20;

/// How the stores of this host are set up.
#[derive(Clone, Copy, Debug)]
pub struct NodeSettings {
    /// Bytes of data that a node may hold.
    pub capacity_bytes: u64,
    /// Bytes of a new node's journal.
    pub journal_bytes: u64,
    /// Bytes of a node's read cache.
    pub cache_bytes: usize,
    /// Requests that each of a node's disks works on at a time, at least 1.
    pub disk_depth: usize,
    /// How fast members of replica sets are copied while clients are served, at least 1.
    pub rebuild_bytes_per_second: u64,
    /// In pieces of how many bytes the logs of members are compared, and copied where
    /// they differ; a multiple of a block.
    pub log_piece_bytes: u64,
    /// By how much a node's data file grows at a time.
    pub growth_bytes: u64,
}

/// What may change while a host runs; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// From which time on a call is slow.
    pub slow_after: Option<Duration>,
    /// Bytes of calls and replies that the NFS door holds at most.
    pub request_bytes: Option<usize>,
    /// As [`NodeSettings::cache_bytes`].
    pub cache_bytes: Option<usize>,
    /// As [`NodeSettings::disk_depth`].
    pub disk_depth: Option<usize>,
    /// As [`NodeSettings::rebuild_bytes_per_second`].
    pub rebuild_bytes_per_second: Option<u64>,
    /// What depots grant, instead of what they did, also as clients have changed it.
    pub depot_policy: Option<Box<DepotPolicy>>,
}

/// What a node is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Its store is being opened.
    Opening,
    /// It serves.
    Running,
    /// An administrator has stopped it.
    Stopped,
    /// Its store cannot be opened, for this reason.
    Failed(String),
}

/// A node of this host.
pub(crate) struct NodeSlot {
    pub(crate) id: NodeId,
    pub(crate) number: u32,
    pub(crate) state: NodeState,
    pub(crate) boot: Boot,
    /// `None` while stopped or failed.
    pub(crate) node: Option<Node>,
    /// If the host has depots, as long as the node runs.
    pub(crate) depot: Option<Box<Depot>>,
    pub(crate) is_quiet: bool,
}

impl NodeState {
    /// One word for `status`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

/// How long a graceful stop waits for requests and sites if a node is away.
const AWAY_PATIENCE: Duration = Duration::from_secs(3);

/// How far a graceful stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// No stop was asked for.
    Serving,
    /// Requests in progress are being finished.
    Finishing,
    /// Sites are given to other managers.
    Moving,
    /// Sites write what is in memory only.
    Sites,
    /// Nodes do.
    Nodes,
    /// All is quiet.
    Done,
}

impl Host {
    /// Numbers of the nodes of this host that are not stopped by an administrator.
    #[must_use]
    pub fn nodes_to_start(&self) -> Vec<u32> {
        let nodes = &self.registry.state().nodes;
        nodes
            .iter()
            .filter(|node| !node.stopped && self.nodes.contains_key(&NodeId(node.id)))
            .map(|node| node.number)
            .collect()
    }

    /// Changes what may change while the host runs; nodes that are started later have it, too.
    pub fn tune(&mut self, tuning: &Tuning) {
        if let Some(slow_after) = tuning.slow_after {
            self.door.set_slow_after(slow_after);
        }
        if let Some(bytes) = tuning.request_bytes {
            self.door.set_bytes_max(bytes);
        }
        if let Some(rate) = tuning.rebuild_bytes_per_second {
            self.settings.rebuild_bytes_per_second = rate;
        }
        if let Some(policy) = &tuning.depot_policy {
            self.set_depot_policy(policy);
        }
        let nodes = self.nodes.values_mut();
        let mut nodes: Vec<&mut Node> = nodes.filter_map(|slot| slot.node.as_mut()).collect();
        if let Some(depth) = tuning.disk_depth {
            self.settings.disk_depth = depth;
            nodes.iter_mut().for_each(|node| node.set_disk_depth(depth));
        }
        if let Some(bytes) = tuning.cache_bytes {
            self.settings.cache_bytes = bytes;
            nodes
                .iter_mut()
                .for_each(|node| node.set_cache_bytes(bytes));
        }
    }

    /// Whether node `number` can be started.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn can_start(&self, number: u32) -> Result<(), String> {
        match self.slot(number)?.state {
            NodeState::Stopped | NodeState::Failed(_) => Ok(()),
            NodeState::Running | NodeState::Opening => {
                Err(format!("node {number} is running already"))
            }
        }
    }

    /// Starts node `number`, whose disks and index the shell has opened as
    /// `boot`; `incarnation` is a fresh random number.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn start_node(
        &mut self,
        now: Time,
        wall: WallTime,
        number: u32,
        boot: Boot,
        incarnation: u64,
    ) -> Result<(), String> {
        self.can_start(number)?;
        let id = self.slot(number)?.id;
        if self.is_ready {
            self.raise_sets_of(id)?;
            self.change(Change::NodeStopped {
                number,
                stopped: false,
            })?;
        }
        if self.registry.is_shared() {
            self.leases.begin(now);
        }
        let boot_number = Incarnation(incarnation);
        let room = self.data_rooms.get(&number);
        let capacity_bytes = room.map_or(self.settings.capacity_bytes, |room| room.capacity_bytes);
        let mut config = StoreConfig::new(id, boot_number, capacity_bytes);
        config.closed = room.map(|room| room.closed.clone()).unwrap_or_default();
        config.journal_bytes = self.settings.journal_bytes;
        config.cache_bytes = self.settings.cache_bytes;
        config.growth_bytes = self.settings.growth_bytes;
        let depth = self.settings.disk_depth.max(1);
        let table = Arc::clone(&self.table);
        let node = Node::new(now, id, boot_number, config, depth, table);
        if let Some(slot) = self.nodes.get_mut(&id) {
            slot.boot = boot;
            slot.state = NodeState::Opening;
            slot.node = Some(node);
        }
        self.make_depot(id);
        self.spread_table();
        self.drain_node(id);
        self.pump(now, wall);
        Ok(())
    }

    /// Stops node `number` at once. Where there are replicas they go on; what
    /// was unstable on it is lost, and clients learn it from the write verifier.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn stop_node(&mut self, now: Time, wall: WallTime, number: u32) -> Result<(), String> {
        let slot = self.slot(number)?;
        let id = slot.id;
        let Some(node) = &slot.node else {
            return Err(format!("node {number} is not running"));
        };
        let callers: Vec<_> = node.callers().collect();
        self.change(Change::NodeStopped {
            number,
            stopped: true,
        })?;
        let sets = self.registry.state().sets.clone();
        for (set, record) in sets {
            let members: Vec<u64> = record
                .members
                .iter()
                .copied()
                .filter(|&member| member != id.0)
                .collect();
            if !members.is_empty() && members.len() < record.members.len() {
                self.change(Change::SetMembers {
                    set,
                    expected: record.epoch,
                    members,
                })?;
            }
        }
        if let Some(slot) = self.nodes.get_mut(&id) {
            slot.state = NodeState::Stopped;
            slot.node = None;
        }
        self.end_depot(id);
        self.spread_table();
        // Its step of a scrub has no answer now.
        self.scrub.is_step_wanted |= self.scrub.left.first() == Some(&number);
        self.forget_defrag_of(number);
        self.forget_evacuation_of(number);
        self.forget_pairs_of(id);
        // The task that makes replicas equal has been told.
        let callers = callers
            .into_iter()
            .filter(|&(from, call)| !matches!(from, Port::Host) || call != EQUALIZE_CALL);
        for (from, call) in callers {
            let outcome = Err(NodeError::Unavailable { node: id });
            self.queue
                .push_back(Message::reply(id, from, NodeReply { id: call, outcome }));
        }
        self.pump(now, wall);
        Ok(())
    }

    /// Begins a graceful stop: what is in progress is finished and written back;
    /// [`HostEffect::Quiet`] comes when nothing is in memory only.
    pub fn drain(&mut self, now: Time, wall: WallTime) {
        if self.drain == Drain::Serving {
            self.drain = Drain::Finishing;
            self.drain_due = Some(now + AWAY_PATIENCE);
            self.follow_addresses(now);
        }
        self.advance(now, wall);
    }

    /// Starts a scrub of all running nodes. The disks of those in `comparing` are compared
    /// first: their turns come when [`scrub_compared`](Self::scrub_compared) says so; if some
    /// differ, [`HostEffect::Scrubbed`] asks to make them the same, and
    /// [`scrub_agreed`](Self::scrub_agreed) ends it.
    ///
    /// # Errors
    /// One is at work already.
    pub fn start_scrub(
        &mut self,
        now: Time,
        wall: WallTime,
        comparing: BTreeSet<u32>,
    ) -> Result<(), String> {
        if self.scrub.running {
            return Err(
                "a scrub is at work already; crossdock scrub shows it when it ends".to_owned(),
            );
        }
        let left = self
            .nodes
            .values()
            .filter(|slot| slot.state == NodeState::Running);
        self.scrub = ScrubProgress {
            running: true,
            left: left.map(|slot| slot.number).collect(),
            comparing,
            ..ScrubProgress::default()
        };
        self.step_scrub();
        self.pump(now, wall);
        Ok(())
    }

    /// The disks of a node have been compared: so many blocks differ.
    pub fn scrub_compared(&mut self, now: Time, wall: WallTime, number: u32, differing: u64) {
        if self.scrub.comparing.remove(&number) {
            self.scrub.differing_blocks += differing;
            if differing > 0 {
                self.scrub.differing.insert(number);
            }
            self.scrub.is_step_wanted = true;
            self.advance(now, wall);
        }
    }

    /// The disks of a node are the same; so many blocks were written for that.
    pub fn scrub_agreed(&mut self, number: u32, blocks: u64) {
        if self.scrub.agreeing.remove(&number) {
            self.scrub.agreed_blocks += blocks;
            self.end_scrub();
        }
    }

    fn end_scrub(&mut self) {
        let scrub = &mut self.scrub;
        scrub.running =
            !(scrub.left.is_empty() && scrub.comparing.is_empty() && scrub.agreeing.is_empty());
    }

    /// Which place that node has, of all nodes that there are.
    #[must_use]
    pub fn node_number(&self, id: u64) -> Option<u32> {
        let mut nodes = self.registry.state().nodes.iter();
        nodes.find(|node| node.id == id).map(|node| node.number)
    }

    /// How far the last scrub has come.
    #[must_use]
    pub const fn scrub_progress(&self) -> &ScrubProgress {
        &self.scrub
    }

    /// The host at a glance.
    #[must_use]
    pub fn status(&self) -> HostStatus {
        let state = self.registry.state();
        let mut nodes: Vec<NodeFigures> = self
            .nodes
            .values()
            .map(|slot| NodeFigures {
                number: slot.number,
                id: slot.id.0,
                state: slot.state.clone(),
                store: slot
                    .node
                    .as_ref()
                    .map(|node| node.store().status())
                    .unwrap_or_default(),
            })
            .collect();
        nodes.sort_by_key(|node| node.number);
        HostStatus {
            ensemble: state.ensemble,
            volume: state.volume,
            replicas: state.replicas,
            site_replicas: state.site_replicas,
            table_epoch: state.table_epoch,
            files: self
                .sites
                .values()
                .map(|site| site.directory().memory_use().cells as u64)
                .sum(),
            requests: self.requests,
            sets_short: self.sets_short(),
            nodes,
        }
    }

    /// Asks node `number` past all ordering, for tools that look at what each
    /// node holds by itself; [`tool_reply`](Self::tool_reply) has the answer
    /// under `id`, which is not 0.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn ask_node(
        &mut self,
        now: Time,
        wall: WallTime,
        number: u32,
        call: Call<NodeRequest>,
    ) -> Result<(), String> {
        let id = self.slot(number)?.id;
        self.queue.push_back(Message::call(id, Port::Host, call));
        self.pump(now, wall);
        Ok(())
    }

    /// The next answer to a tool.
    pub fn tool_reply(&mut self) -> Option<NodeReply> {
        self.tool_replies.pop_front()
    }

    pub(crate) fn take_store(&mut self, number: u32, boot: Boot, input: StoreInput) {
        let slot = self
            .nodes
            .values()
            .find(|slot| slot.number == number && slot.boot == boot);
        if let Some(slot) = slot {
            self.queue
                .push_back(Message::Node(slot.id, NodeInput::Store(input)));
        }
    }

    pub(crate) fn take_opened(&mut self, id: NodeId, number: u32, result: Result<(), String>) {
        if let Some(slot) = self.nodes.get_mut(&id) {
            slot.state = match &result {
                Ok(()) => NodeState::Running,
                Err(reason) => NodeState::Failed(reason.clone()),
            };
            if result.is_err() {
                slot.node = None;
            }
        }
        self.open_depot(id, result.is_ok());
        if result.is_ok() {
            self.opened.push(number);
        }
        if self.is_ready && result.is_ok() {
            self.plan_returns(|_, _, node| node == id);
            self.started.push(id);
        }
        self.following.want();
        self.effects
            .push_back(HostEffect::NodeOpened { number, result });
    }

    pub(crate) fn take_scrubbed(&mut self, number: u32, step: Result<ScrubReport, NodeError>) {
        self.scrub.is_step_wanted = true;
        let report = match step {
            Ok(report) => report,
            Err(error) => {
                let finding = format!("node {number}: not verified to its end: {error}");
                if self.scrub.findings.len() < FINDINGS_MAX {
                    self.scrub.findings.push(finding);
                }
                self.scrub.left.retain(|&left| left != number);
                self.scrub.differing.remove(&number);
                return;
            }
        };
        self.scrub.blocks_checked += report.blocks;
        for finding in report.findings {
            let list = match finding.is_repaired {
                true => &mut self.scrub.repaired,
                false => &mut self.scrub.findings,
            };
            if list.len() < FINDINGS_MAX {
                list.push(format!(
                    "node {number}, object {}, offset {}: {}",
                    finding.object, finding.offset_bytes, finding.what
                ));
            }
        }
        if report.is_complete {
            self.scrub.left.retain(|&left| left != number);
            // What is read is right by now: the other copies and the parity follow it.
            if self.scrub.differing.remove(&number) {
                self.scrub.agreeing.insert(number);
                self.effects.push_back(HostEffect::Scrubbed { number });
            }
        }
    }

    /// Asks the next node for the next step; a node that is gone is left out.
    pub(crate) fn step_scrub(&mut self) {
        self.scrub.step_due = None;
        loop {
            let ScrubProgress {
                left, comparing, ..
            } = &mut self.scrub;
            let Some(place) = left.iter().position(|number| !comparing.contains(number)) else {
                break;
            };
            left.swap(0, place);
            let number = left[0];
            let slot = self.nodes.values().find(|slot| slot.number == number);
            if let Some(slot) = slot.filter(|slot| slot.state == NodeState::Running) {
                let input = StoreInput::Scrub {
                    blocks_max: SCRUB_STEP_BLOCKS,
                };
                self.queue
                    .push_back(Message::Node(slot.id, NodeInput::Store(input)));
                return;
            }
            self.scrub.left.remove(0);
        }
        self.end_scrub();
    }

    /// Steps that follow from the state as a whole: opening sites once the nodes
    /// serve, and the phases of a graceful stop.
    pub(crate) fn advance(&mut self, now: Time, wall: WallTime) {
        if std::mem::take(&mut self.scrub.is_step_wanted) {
            self.scrub.step_due = Some(now + SCRUB_REST);
        }
        self.plan_defrag(now);
        self.plan_evacuations(now);
        self.begin_equalize();
        self.sweep();
        if self.following.takes_turn(now) {
            self.follow(now, wall);
        }
        self.renew_leases();
        if !self.is_ready && !self.registry.is_shared() {
            self.open_sites(now);
        }
        for node in std::mem::take(&mut self.started) {
            self.reopen_sites(now, node);
        }
        for number in std::mem::take(&mut self.opened) {
            self.resume_evacuation_of(now, number);
        }
        if self.drain == Drain::Serving {
            return self.carry(now, wall);
        }
        self.pump(now, wall);
        // A change that waits for a node that is away has not been answered: its
        // client sends it again, and the log knows whether it was done.
        let is_hopeless = self.is_drain_late && self.nodes.values().any(|slot| slot.node.is_none());
        if self.drain == Drain::Finishing && (self.router.requests() == 0 || is_hopeless) {
            self.drain = Drain::Moving;
            self.retire_here();
        }
        if self.drain == Drain::Moving && !self.has_handed_over() {
            self.following.later(now);
        } else if self.drain == Drain::Moving {
            self.drain = Drain::Sites;
            for site in self.sites.values_mut() {
                site.settle(now, wall);
            }
            let ids: Vec<_> = self.sites.keys().copied().collect();
            ids.into_iter().for_each(|id| self.drain_site(id));
            self.pump(now, wall);
        }
        let is_settled = || self.sites.values().all(crossdock_site::Site::is_settled);
        if self.drain == Drain::Sites && (is_settled() || is_hopeless) {
            self.drain = Drain::Nodes;
            for slot in self.nodes.values().filter(|slot| slot.node.is_some()) {
                let input = NodeInput::Store(StoreInput::Drain);
                self.queue.push_back(Message::Node(slot.id, input));
            }
            self.pump(now, wall);
        }
        if self.drain == Drain::Nodes
            && self
                .nodes
                .values()
                .all(|slot| slot.is_quiet || slot.node.is_none())
        {
            self.drain = Drain::Done;
            self.effects.push_back(HostEffect::Quiet);
        }
    }

    pub(crate) fn take_quiet(&mut self, id: NodeId) {
        if let Some(slot) = self.nodes.get_mut(&id) {
            slot.is_quiet = true;
        }
    }

    /// A primary that restarts gives no version that it may have given before.
    fn raise_sets_of(&mut self, id: NodeId) -> Result<(), String> {
        for (set, record) in self.registry.state().sets.clone() {
            if record.members.first() == Some(&id.0) {
                let members = record.members;
                self.change(Change::SetMembers {
                    set,
                    expected: record.epoch,
                    members,
                })?;
            }
        }
        Ok(())
    }

    fn slot(&self, number: u32) -> Result<&NodeSlot, String> {
        self.nodes
            .values()
            .find(|slot| slot.number == number)
            .ok_or_else(|| format!("there is no node {number}; crossdock status lists them"))
    }
}
