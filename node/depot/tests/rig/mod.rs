//! A depot over a node of its own on simulated disks, and clients that say what they are told.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses its part"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::TcpSample;
use crossdock_depot::{ConnId, Depot, DepotConfig, DepotEffect, DepotInput, DepotPolicy};
use crossdock_disk::Disk;
use crossdock_ibp::{Capabilities, Capability, Probe, answer};
use crossdock_names::{
    Epoch, Incarnation, NodeId, ReplicaSet, RoutingTable, SITES, SLOTS, SetId, SiteRecord,
};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Port};
use crossdock_server::{Node, NodeEffect, NodeInput};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::{Index, StoreConfig, StoreDisk, StoreInput};
use crossdock_types::{Time, WallTime};

pub const NODE: NodeId = NodeId(7);

pub struct Rig {
    pub depot: Depot,
    node: Node,
    index: Index,
    index_disk: SimBlockingDisk,
    journal: SimDisk,
    data: SimDisk,
    policy: DepotPolicy,
    boot: u64,
    pub now: Time,
    /// What the machine's clock says beyond the rig's time, in seconds.
    pub wall_ahead: i64,
    connections: u64,
    /// What clients have been sent and have not taken.
    heard: BTreeMap<ConnId, Vec<u8>>,
    /// Bytes that each has got so far.
    sent: BTreeMap<ConnId, u64>,
    /// Connections that the depot has ended.
    pub ended: BTreeSet<ConnId>,
    /// Clients that take nothing of what they are sent.
    pub stalled: BTreeSet<ConnId>,
    /// Whether copies reach this depot itself, wherever they go; else nobody is there.
    pub reaches_itself: bool,
    /// Connections of the depot to itself: of each end, the other one.
    loops: BTreeMap<ConnId, ConnId>,
    pub cancelled: usize,
    pub warnings: Vec<String>,
    /// What the node, or the depot, has answered to a router.
    routed: Vec<NodeReply>,
}

impl Rig {
    pub fn new(seed: u64, policy: DepotPolicy) -> Self {
        let options = SimDiskOptions::default();
        let index_disk = SimBlockingDisk::new(seed ^ 2, 0, options);
        let disks = (
            SimDisk::new(seed, 0, options),
            SimDisk::new(seed ^ 1, 0, options),
        );
        Self::open(
            policy,
            index_disk,
            disks,
            (1, Time::from_secs(1), 1_000_000),
        )
    }

    fn open(
        policy: DepotPolicy,
        index_disk: SimBlockingDisk,
        (journal, data): (SimDisk, SimDisk),
        (boot, now, wall_ahead): (u64, Time, i64),
    ) -> Self {
        let config = StoreConfig {
            journal_bytes: 4 << 20,
            growth_bytes: 4 << 20,
            cache_bytes: 1 << 20,
            ..StoreConfig::new(NODE, Incarnation(boot), 64 << 20)
        };
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&boot.to_le_bytes());
        let mut rig = Self {
            depot: Depot::new(NODE, DepotConfig::new(policy.clone(), seed)),
            node: Node::new(now, NODE, Incarnation(boot), config, 8, table(boot)),
            index: Index::open(Box::new(index_disk.clone())).expect("an index"),
            index_disk,
            journal,
            data,
            policy,
            boot,
            now,
            wall_ahead,
            connections: boot << 32,
            heard: BTreeMap::new(),
            sent: BTreeMap::new(),
            ended: BTreeSet::new(),
            stalled: BTreeSet::new(),
            reaches_itself: false,
            loops: BTreeMap::new(),
            cancelled: 0,
            warnings: Vec::new(),
            routed: Vec::new(),
        };
        rig.settle();
        rig
    }

    /// Loses power, and starts again `seconds` later.
    pub fn crash(mut self, random: &mut Random, seconds: u64) -> Self {
        self.journal.crash(random);
        self.data.crash(random);
        self.index_disk.crash(random);
        let Self {
            index_disk,
            journal,
            data,
            policy,
            boot,
            now,
            wall_ahead,
            index,
            ..
        } = self;
        drop(index);
        let now = now + Duration::from_secs(seconds);
        Self::open(
            policy,
            index_disk,
            (journal, data),
            (boot + 1, now, wall_ahead),
        )
    }

    fn wall(&self) -> WallTime {
        let now = i64::try_from(self.now.0).expect("small");
        WallTime(now + self.wall_ahead * 1_000_000_000)
    }

    pub fn give(&mut self, input: DepotInput) {
        let space = self.node.store().status();
        self.depot.set_space(space.capacity_bytes, space.free_bytes);
        let wall = self.wall();
        self.depot.handle(self.now, wall, input);
        self.carry();
    }

    /// Carries out all effects.
    fn carry(&mut self) {
        loop {
            if let Some(effect) = self.depot.poll_effect() {
                self.take_depot_effect(effect);
            } else if let Some(effect) = self.node.poll_effect() {
                self.take_node_effect(effect);
            } else {
                return;
            }
        }
    }

    fn tell_node(&mut self, input: NodeInput) {
        self.node.handle(self.now, input);
    }

    fn take_depot_effect(&mut self, effect: DepotEffect) {
        let from = Port::Depot;
        match effect {
            DepotEffect::Node(call) => self.tell_node(NodeInput::Call { from, call }),
            DepotEffect::Cancel(id) => {
                self.cancelled += 1;
                self.tell_node(NodeInput::Cancel { from, id });
            }
            DepotEffect::Postpone(id, by) => self.tell_node(NodeInput::Postpone { from, id, by }),
            DepotEffect::Hurry(id) => self.tell_node(NodeInput::Resume { from, id }),
            DepotEffect::Send(id, pieces) if self.loops.contains_key(&id) => {
                let (other, bytes) = (self.loops[&id], pieces.concat());
                let wall = self.wall();
                let sent = DepotInput::Sent(id, bytes.len());
                self.depot.handle(self.now, wall, sent);
                let received = DepotInput::Received(other, bytes.into());
                self.depot.handle(self.now, wall, received);
            }
            DepotEffect::Send(id, pieces) => {
                let heard = self.heard.entry(id).or_default();
                let before = heard.len();
                pieces
                    .iter()
                    .for_each(|piece| heard.extend_from_slice(piece));
                let bytes = heard.len() - before;
                if !self.stalled.contains(&id) {
                    *self.sent.entry(id).or_default() += bytes as u64;
                    let wall = self.wall();
                    self.depot
                        .handle(self.now, wall, DepotInput::Sent(id, bytes));
                }
            }
            DepotEffect::Close(id) | DepotEffect::Abort(id) => {
                self.ended.insert(id);
                let wall = self.wall();
                self.depot.handle(self.now, wall, DepotInput::Closed(id));
                if let Some(other) = self.loops.remove(&id) {
                    self.loops.remove(&other);
                    self.depot.handle(self.now, wall, DepotInput::Closed(other));
                }
            }
            DepotEffect::Warning(what) => self.warnings.push(what),
            DepotEffect::Shared { reply, .. } => self.routed.push(reply),
            DepotEffect::Sample(id) => {
                // A fast line on which nothing waits, unless its client stands still.
                let sample = TcpSample {
                    delivery_rate: 100_000_000,
                    acked_bytes: self.sent.get(&id).copied().unwrap_or_default(),
                    rtt: Duration::from_millis(1),
                    ..TcpSample::default()
                };
                if !self.stalled.contains(&id) {
                    let wall = self.wall();
                    self.depot
                        .handle(self.now, wall, DepotInput::Sampled(id, sample));
                }
            }
            DepotEffect::Pause(_) | DepotEffect::Resume(_) => {}
            DepotEffect::Connect {
                id, host, within, ..
            } => {
                let ip = host.parse::<IpAddr>();
                let is_within = |ip| within.iter().any(|network| network.contains(ip));
                let input = match ip.is_ok_and(is_within) {
                    true if self.reaches_itself => {
                        let other = self.connect();
                        self.loops.insert(id, other);
                        self.loops.insert(other, id);
                        DepotInput::Connected(id)
                    }
                    true => DepotInput::Closed(id),
                    false => DepotInput::NotAllowed(id),
                };
                let wall = self.wall();
                self.depot.handle(self.now, wall, input);
            }
        }
    }

    fn take_node_effect(&mut self, effect: NodeEffect) {
        let wall = self.wall();
        match effect {
            NodeEffect::Reply {
                to: Port::Router,
                reply,
                ..
            } => self.routed.push(reply),
            NodeEffect::Reply { reply, .. } => {
                self.depot.handle(self.now, wall, DepotInput::Reply(reply));
            }
            NodeEffect::Disk(StoreDisk::Journal, request) => self.journal.submit(request),
            NodeEffect::Disk(StoreDisk::Data, request) => self.data.submit(request),
            NodeEffect::Index(request) => {
                let reply = self.index.handle(request);
                self.tell_node(NodeInput::Store(StoreInput::Index(reply)));
            }
            NodeEffect::Opened(outcome) => {
                outcome.expect("the store opens");
                self.depot.handle(self.now, wall, DepotInput::NodeOpened);
            }
            _ => {}
        }
    }

    /// The next thing happens that was under way; false if nothing was.
    pub fn step(&mut self) -> bool {
        self.carry();
        let disks = [
            self.journal.next_completion_at(),
            self.data.next_completion_at(),
        ];
        let Some(at) = disks.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(at);
        self.journal.advance(self.now);
        self.data.advance(self.now);
        if let Some(completion) = self.journal.poll() {
            let input = StoreInput::Disk(StoreDisk::Journal, completion);
            self.tell_node(NodeInput::Store(input));
        } else if let Some(completion) = self.data.poll() {
            let input = StoreInput::Disk(StoreDisk::Data, completion);
            self.tell_node(NodeInput::Store(input));
        }
        self.carry();
        true
    }

    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Time passes, with everything that is due in it.
    pub fn wait(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        loop {
            self.settle();
            let dues = [self.depot.poll_timeout(), self.node.poll_timeout()];
            let Some(due) = dues.into_iter().flatten().min().filter(|due| *due <= until) else {
                break;
            };
            self.now = self.now.max(due);
            if dues[1].is_some_and(|due| due <= self.now) {
                self.tell_node(NodeInput::Store(StoreInput::Timeout));
            }
            self.give(DepotInput::Timeout);
        }
        self.now = self.now.max(until);
    }

    pub fn connect(&mut self) -> ConnId {
        self.connect_from("127.0.0.1:5000")
    }

    pub fn connect_from(&mut self, peer: &str) -> ConnId {
        self.connections += 1;
        let id = ConnId(self.connections);
        let end = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        self.give(DepotInput::Opened {
            id,
            peer: end(peer),
            local: end("127.0.0.1:6714"),
        });
        id
    }

    pub fn say(&mut self, id: ConnId, bytes: impl AsRef<[u8]>) {
        let bytes = Bytes::copy_from_slice(bytes.as_ref());
        self.give(DepotInput::Received(id, bytes));
    }

    /// What a client has been sent.
    pub fn hear(&mut self, id: ConnId) -> Vec<u8> {
        self.heard.remove(&id).unwrap_or_default()
    }

    /// The same as text, once nothing is under way any more.
    pub fn answer(&mut self, id: ConnId) -> String {
        self.settle();
        String::from_utf8(self.hear(id)).expect("text")
    }

    /// Says a line on a connection of its own; what is answered.
    pub fn ask(&mut self, said: impl AsRef<[u8]>) -> String {
        let id = self.connect();
        self.say(id, said);
        let answer = self.answer(id);
        self.give(DepotInput::Closed(id));
        answer
    }

    pub fn allocate(&mut self, wanted: &str) -> Capabilities {
        let line = self.ask(format!("0 1 {wanted} 0\n"));
        answer::read_capabilities(line.trim_end().as_bytes()).expect("an allocation")
    }

    /// Stores, which has to be taken.
    pub fn store(&mut self, write: &Capability, data: &[u8]) {
        let id = self.begin_store(write, data.len());
        self.say(id, data);
        assert_eq!(self.answer(id), answer::stored(data.len() as u64));
        self.give(DepotInput::Closed(id));
    }

    pub fn begin_store(&mut self, write: &Capability, bytes: usize) -> ConnId {
        let id = self.connect();
        self.say(id, format!("0 2 {} {bytes} 0\n", keys(write)));
        assert_eq!(self.answer(id), answer::done());
        id
    }

    /// All that there is; what is answered, so many bytes of it.
    pub fn load(&mut self, read: &Capability, bytes: usize) -> Vec<u8> {
        let id = self.connect();
        self.say(id, format!("0 8 {} 0 0 1\n", keys(read)));
        let mut heard = Vec::new();
        for _ in 0..10 {
            self.settle();
            heard.append(&mut self.hear(id));
            if heard.len() >= bytes {
                break;
            }
            self.wait(1);
        }
        self.give(DepotInput::Closed(id));
        self.settle();
        heard
    }

    /// The bytes that there are; none if the load times out.
    pub fn content(&mut self, capabilities: &Capabilities) -> Vec<u8> {
        match self.probe(&capabilities.read).map(|probe| probe.size_bytes) {
            None | Some(0) => Vec::new(),
            Some(bytes) => {
                let head = answer::follows(bytes);
                let whole = head.len() + usize::try_from(bytes).expect("small");
                let heard = self.load(&capabilities.read, whole);
                let rest = heard.strip_prefix(head.as_bytes());
                rest.unwrap_or_else(|| panic!("{}", heard[..20].escape_ascii()))
                    .to_vec()
            }
        }
    }

    /// What a probe tells, if there is the allocation.
    pub fn probe(&mut self, capability: &Capability) -> Option<Probe> {
        let line = self.ask(format!("0 9 {} 40 0 0\n", keys(capability)));
        answer::read_probe(line.trim_end().as_bytes()).ok()
    }

    /// Of the table that this start of the node has.
    pub const fn epoch(&self) -> Epoch {
        Epoch(self.boot)
    }

    /// What a router asks of the node, or of its depot.
    pub fn route(&mut self, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        let (from, id) = (Port::Router, CallId(1));
        let call = Call {
            id,
            deadline: self.now + Duration::from_secs(10),
            request,
        };
        match call.request {
            NodeRequest::Share { .. } => self.give(DepotInput::Share { from, call }),
            _ => self.tell_node(NodeInput::Call { from, call }),
        }
        self.settle();
        let answered = self.routed.pop().expect("an answer");
        assert_eq!((answered.id, self.routed.len()), (id, 0));
        answered.outcome
    }

    /// Objects of the node: allocations, and the depot's own.
    pub fn objects(&self) -> u64 {
        self.node.store().status().objects
    }

    /// Bytes that the node has promised or given.
    pub fn taken_bytes(&self) -> u64 {
        let status = self.node.store().status();
        status.allocated_bytes + status.reserved_bytes
    }
}

/// Key and attribute key, as two fields.
pub fn keys(capability: &Capability) -> String {
    format!("{} {}", capability.key, capability.attribute_key)
}

/// Every start raises all epochs.
fn table(boot: u64) -> Arc<RoutingTable> {
    let epoch = Epoch(boot);
    let set = ReplicaSet {
        epoch,
        members: vec![NODE],
    };
    let site = SiteRecord {
        epoch,
        set: SetId(0),
    };
    Arc::new(RoutingTable {
        epoch,
        sets: BTreeMap::from([(SetId(0), set)]),
        slots: vec![vec![SetId(0)]; SLOTS],
        sites: vec![site; SITES],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    })
}
