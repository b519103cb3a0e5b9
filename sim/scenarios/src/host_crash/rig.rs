//! One start of a host: the machines of production, their disks, and the wires
//! to the clients, in simulated time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{Disk, DiskRequest};
use crossdock_host::{Boot, Host, HostConfig, HostEffect, HostInput};
use crossdock_members::{Embedded, HostRecord, Registry, State};
use crossdock_names::MintingKey;
use crossdock_nfs::{ConnId, NfsEffect, NfsInput};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeRequest};
use crossdock_sim::disk::{SimBlockingDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::{Index, IndexRequest, StoreDisk, StoreInput};
use crossdock_types::{Time, WallTime};

use super::flushes::Watch;
use super::shell::{self, INDEX_DELAY_MAX, NodeDisks, SETTINGS, WIRE_DELAY_MAX, Wire, mix};
use super::wire;

/// What outlives a start.
pub(super) struct Disks {
    registry: SimBlockingDisk,
    nodes: Vec<NodeDisks>,
}

/// What a node has outside its machine.
struct NodeShell {
    disks: NodeDisks,
    boot: Boot,
    index: Option<Index>,
    index_queue: VecDeque<(Time, IndexRequest)>,
    /// Whether it starts as soon as nothing is in flight.
    starts: bool,
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something happened.
    Done,
    /// Nothing is due before the given time, which has come.
    Woken,
    /// Nothing will ever happen.
    Idle,
}

pub(super) struct Rig {
    host: Host,
    registry: SimBlockingDisk,
    nodes: Vec<NodeShell>,
    wires: BTreeMap<ConnId, Wire>,
    pub(super) now: Time,
    random: Random,
    /// When the timer last fired.
    fired: Option<Time>,
    boots: u64,
    /// Everything that happened so far, for [`Disks::trace_hash`].
    pub(super) trace_hash: u64,
    pub(super) events: u64,
    pub(super) watch: Watch,
    /// Replies that have arrived at clients.
    pub(super) replies: VecDeque<(ConnId, Bytes)>,
    pub(super) warnings: VecDeque<String>,
    pub(super) is_quiet: bool,
    /// When a disk began to take no writes.
    pub(super) failed_at: Option<Time>,
    failure: Option<String>,
}

impl Disks {
    /// The disks of a host that was just set up with this `state`.
    pub(super) fn fresh(state: State, random: &mut Random) -> Result<Self, String> {
        let options = SimDiskOptions::default();
        let registry = SimBlockingDisk::new(random.next_u64(), 0, options);
        let nodes = state.nodes.iter().map(|_| NodeDisks::fresh(random));
        let nodes = nodes.collect();
        Embedded::create(Box::new(registry.clone()), state)
            .map_err(|error| format!("no registry can be made: {error}"))?;
        Ok(Self { registry, nodes })
    }

    /// Two runs that did the same agree in it.
    pub(super) fn trace_hash(&self) -> u64 {
        let disks = self.nodes.iter();
        let hashes = disks.flat_map(|disks| [disks.journal.trace_hash(), disks.data.trace_hash()]);
        hashes.fold(0, mix)
    }
}

impl Rig {
    /// Opens the registry and starts all nodes that nobody has stopped.
    pub(super) fn start(disks: Disks, now: Time, mut random: Random) -> Result<Self, String> {
        let registry = Embedded::open(Box::new(disks.registry.clone()))
            .map_err(|error| format!("the registry does not open: {error}"))?;
        let mut handling = [0; 32];
        random.fill(&mut handling);
        let host = Host::new(HostConfig {
            registry: Registry::Own(registry),
            role: HostRecord::default(),
            nodes: SETTINGS,
            request_bytes: crossdock_limits::NFS_REQUEST_BYTES_MIN,
            http: crossdock_http::HttpConfig::default(),
            iscsi: crossdock_iscsi::IscsiConfig::default(),
            instance: random.next_u64(),
            minting: MintingKey([0; 32]),
            proving: [0; 32],
            // Another one each time: what is told has to be what the log has.
            handling,
            grace: Duration::from_secs(45),
        })
        .map_err(|error| format!("the host does not start: {error}"))?;
        let nodes = disks.nodes.into_iter().map(|mut disks| {
            disks.advance(now);
            for disk in [&mut disks.journal, &mut disks.data] {
                disk.set_options(SimDiskOptions::default());
            }
            NodeShell {
                disks,
                boot: Boot(0),
                index: None,
                index_queue: VecDeque::new(),
                starts: false,
            }
        });
        let mut rig = Self {
            host,
            registry: disks.registry,
            nodes: nodes.collect(),
            wires: BTreeMap::new(),
            now,
            random,
            fired: None,
            boots: 0,
            trace_hash: 0,
            events: 0,
            watch: Watch::default(),
            replies: VecDeque::new(),
            warnings: VecDeque::new(),
            is_quiet: false,
            failed_at: None,
            failure: None,
        };
        for number in rig.host.nodes_to_start() {
            rig.start_now(number)?;
        }
        Ok(rig)
    }

    /// What the journal and the data of a node do wrong from now on.
    pub(super) fn set_disk_options(&mut self, node: usize, options: [SimDiskOptions; 2]) {
        if let Some(node) = self.nodes.get_mut(node) {
            let [journal, data] = options;
            node.disks.journal.set_options(journal);
            node.disks.data.set_options(data);
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.host.is_ready() && self.host.knows_handles()
    }

    pub(super) fn status(&self) -> crossdock_host::HostStatus {
        self.host.status()
    }

    pub(super) fn connect(&mut self, connection: ConnId, client: usize) {
        self.wires.insert(connection, Wire::default());
        let from = wire::address(client, connection.0);
        self.give(HostInput::Door(NfsInput::Opened(connection, from)));
    }

    /// Sends a record, in one piece or in two.
    pub(super) fn send(&mut self, connection: ConnId, mut record: Bytes) {
        if self.random.one_in(4) && record.len() > 1 {
            let at = 1 + self.random.index(record.len() - 1);
            let first = record.split_to(at);
            self.put_on_wire(connection, first);
        }
        self.put_on_wire(connection, record);
    }

    fn put_on_wire(&mut self, connection: ConnId, bytes: Bytes) {
        let due = self.now + self.delay(WIRE_DELAY_MAX);
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.send(due, bytes);
        }
    }

    /// An administrator stops a node; what its index thread has been handed is
    /// still carried out.
    pub(super) fn stop_node(&mut self, number: u32) -> Result<(), String> {
        let wall = self.wall();
        self.host.stop_node(self.now, wall, number)?;
        self.carry_out();
        if let Some(node) = self.nodes.get_mut(number as usize) {
            if let Some(mut index) = node.index.take() {
                for (_, request) in node.index_queue.drain(..) {
                    index.handle(request);
                }
            }
            node.index_queue.clear();
        }
        Ok(())
    }

    /// An administrator starts a node again.
    pub(super) fn start_node(&mut self, number: u32) -> Result<(), String> {
        self.host.can_start(number)?;
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.starts = true;
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) {
        let wall = self.wall();
        self.host.drain(self.now, wall);
    }

    /// Asks a node past all ordering.
    pub(super) fn ask_node(&mut self, number: u32, request: NodeRequest) -> Result<(), String> {
        let call = Call {
            id: CallId(1),
            deadline: self.now + Duration::from_secs(3600),
            request,
        };
        let wall = self.wall();
        self.host.ask_node(self.now, wall, number, call)
    }

    pub(super) fn node_answer(&mut self) -> Option<Result<NodeAnswer, NodeError>> {
        self.host.tool_reply().map(|reply| reply.outcome)
    }

    /// Carries out effects, then lets the one next thing happen that is due
    /// before `wake`, unless there are replies to be looked at.
    pub(super) fn step(&mut self, wake: Option<Time>) -> Result<Step, String> {
        self.start_idle_nodes()?;
        self.carry_out();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if !self.replies.is_empty() {
            return Ok(Step::Done);
        }
        let Some((due, source)) = self.next_event(wake) else {
            return Ok(Step::Idle);
        };
        self.now = self.now.max(due);
        for node in &mut self.nodes {
            node.disks.advance(self.now);
        }
        if source == Source::Wake {
            return Ok(Step::Woken);
        }
        self.events += 1;
        self.trace_hash = mix(self.trace_hash, self.now.0);
        self.take(source);
        self.carry_out();
        Ok(Step::Done)
    }

    fn next_event(&self, wake: Option<Time>) -> Option<(Time, Source)> {
        let nodes = (0..).zip(&self.nodes).flat_map(|(number, node)| {
            let journal = node.disks.journal.next_completion_at();
            let data = node.disks.data.next_completion_at();
            let index = node.index_queue.front().map(|&(due, _)| due);
            [
                journal.map(|due| (due, Source::Disk(number, StoreDisk::Journal))),
                data.map(|due| (due, Source::Disk(number, StoreDisk::Data))),
                index.map(|due| (due, Source::Index(number))),
            ]
        });
        let wires = self.wires.iter().flat_map(|(&name, wire)| {
            let there = wire.to_server.front();
            let back = wire.to_client.front();
            [
                there.map(|&(due, _)| (due, Source::ToServer(name))),
                back.map(|&(due, _)| (due, Source::ToClient(name))),
            ]
        });
        // A timer that stays due is served again a little later.
        let timer = self.host.poll_timeout().map(|due| due.max(self.now));
        let timer = timer.map(|due| match self.fired == Some(due) {
            true => due + Duration::from_millis(1),
            false => due,
        });
        nodes
            .chain(wires)
            .chain([timer.map(|due| (due, Source::Timer))])
            .chain([wake.map(|due| (due, Source::Wake))])
            .flatten()
            .min_by_key(|&(due, _)| due)
    }

    fn take(&mut self, source: Source) {
        match source {
            Source::Disk(number, disk) => self.take_disk(number, disk),
            Source::Index(number) => self.take_index(number),
            Source::ToServer(name) => {
                let wire = self.wires.get_mut(&name);
                if let Some((_, bytes)) = wire.and_then(|wire| wire.to_server.pop_front()) {
                    self.receive(name, bytes);
                }
            }
            Source::ToClient(name) => self.take_reply(name),
            Source::Timer => {
                self.fired = Some(self.now);
                self.give(HostInput::Timeout);
            }
            Source::Wake => {}
        }
    }

    fn receive(&mut self, name: ConnId, bytes: Bytes) {
        let wire = self.wires.get_mut(&name);
        let inputs = wire.map(|wire| wire.arrived(name, bytes));
        for input in inputs.into_iter().flatten() {
            self.give(HostInput::Door(input));
        }
    }

    fn take_disk(&mut self, number: u32, disk: StoreDisk) {
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        if let Some(completion) = node.disks.device(disk).poll() {
            self.watch.completed(number, disk, completion.token);
            let boot = node.boot;
            // Of an earlier boot: nobody waits for it any more.
            if node.index.is_some() {
                let input = StoreInput::Disk(disk, completion);
                self.give(HostInput::Store {
                    number,
                    boot,
                    input,
                });
            }
        }
    }

    fn take_index(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        let request = node.index_queue.pop_front();
        if let (Some((_, request)), Some(index)) = (request, &mut node.index) {
            let boot = node.boot;
            let input = StoreInput::Index(index.handle(request));
            self.give(HostInput::Store {
                number,
                boot,
                input,
            });
        }
    }

    fn take_reply(&mut self, name: ConnId) {
        let Some(wire) = self.wires.get_mut(&name) else {
            return;
        };
        let Some((_, bytes)) = wire.to_client.pop_front() else {
            return;
        };
        let length = bytes.len();
        match wire.records(bytes) {
            Ok(records) => {
                for record in records {
                    self.trace_hash = record
                        .iter()
                        .fold(self.trace_hash, |hash, &byte| mix(hash, u64::from(byte)));
                    self.replies.push_back((name, record));
                }
            }
            Err(what) => {
                self.failure = Some(what);
                return;
            }
        }
        self.give(HostInput::Door(NfsInput::Sent(name, length)));
    }

    fn give(&mut self, input: HostInput) {
        let wall = self.wall();
        self.host.gather(self.now, wall, input);
    }

    fn carry_out(&mut self) {
        // What comes at the same moment belongs to the same turn.
        if self.next_event(None).is_none_or(|(due, _)| due > self.now) {
            let wall = self.wall();
            self.host.end_turn(self.now, wall);
        }
        while let Some(effect) = self.host.poll_effect() {
            match effect {
                HostEffect::Door(NfsEffect::Sample(name)) => {
                    if let Some(wire) = self.wires.get(&name) {
                        let input = NfsInput::Sampled(name, wire.sample());
                        let wall = self.wall();
                        self.host.handle(self.now, wall, HostInput::Door(input));
                    }
                }
                HostEffect::Door(effect) => {
                    let (now, wires, random) = (self.now, &mut self.wires, &mut self.random);
                    let arrival = || now + shell::delay(random, WIRE_DELAY_MAX);
                    let done = shell::carry_out(effect, |name| wires.get_mut(&name), arrival);
                    if let Err(what) = done {
                        self.failure = Some(what);
                    }
                }
                HostEffect::Disk {
                    number,
                    disk,
                    request,
                } => self.submit(number, disk, request),
                HostEffect::Index { number, request } => {
                    let due = self.now + self.delay(INDEX_DELAY_MAX);
                    if let Some(node) = self.nodes.get_mut(number as usize)
                        && node.index.is_some()
                    {
                        let due = node.index_queue.back().map_or(due, |last| last.0.max(due));
                        node.index_queue.push_back((due, request));
                    }
                }
                HostEffect::NodeOpened { number, result } => {
                    if let Err(reason) = result {
                        self.failure = Some(format!("node {number} does not open: {reason}"));
                    }
                }
                // Nobody is connected there.
                HostEffect::Http(_) | HostEffect::Iscsi(_) | HostEffect::LunChanged { .. } => {}
                HostEffect::Objects(_)
                | HostEffect::Depot { .. }
                | HostEffect::ColumnsSigned { .. }
                | HostEffect::FileShared { .. } => {}
                // No scenario exports anything while it runs.
                // Nothing is closed on the disks of these hosts.
                HostEffect::Evacuated { .. }
                | HostEffect::Scrubbed { .. }
                | HostEffect::ExportChanged { .. }
                | HostEffect::QuotaChanged { .. }
                | HostEffect::LocksReleased { .. } => {}
                HostEffect::Damage { .. }
                | HostEffect::Withdrawn { .. }
                | HostEffect::Postponed { .. } => {}
                HostEffect::DiskFailed { .. } => {
                    self.failed_at.get_or_insert(self.now);
                }
                HostEffect::Send { .. }
                | HostEffect::Propose(_)
                | HostEffect::Addresses(_)
                | HostEffect::AddressChanged { .. }
                | HostEffect::GatewayChanged { .. }
                | HostEffect::TokenChanged { .. }
                | HostEffect::PolicyChanged { .. }
                | HostEffect::TunnelOpened { .. }
                | HostEffect::TunnelClosed(_)
                | HostEffect::Unfilled { .. }
                | HostEffect::Refilled { .. }
                | HostEffect::WakeClients { .. } => {
                    self.failure = Some("there are no other hosts".to_owned());
                }
                HostEffect::Warning(what) => self.warnings.push_back(what),
                HostEffect::Failed(reason) => self.failure = Some(reason),
                HostEffect::Retired => {
                    self.failure = Some("there are no other managers".to_owned())
                }
                HostEffect::Quiet => self.is_quiet = true,
            }
        }
    }

    fn submit(&mut self, number: u32, disk: StoreDisk, request: DiskRequest) {
        if self.host.is_ready() {
            self.watch.submitted(number, disk, &request);
        }
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.disks.submit(disk, request);
        }
    }

    /// Starts the nodes that wait for it, once nothing of an earlier boot can
    /// land later.
    fn start_idle_nodes(&mut self) -> Result<(), String> {
        for number in 0..u32::try_from(self.nodes.len()).unwrap_or(0) {
            let node = &mut self.nodes[number as usize];
            if node.starts && node.disks.in_flight() == 0 {
                node.starts = false;
                self.start_now(number)?;
            }
        }
        Ok(())
    }

    fn start_now(&mut self, number: u32) -> Result<(), String> {
        self.boots += 1;
        let boot = Boot(self.boots);
        if let Some(node) = self.nodes.get_mut(number as usize) {
            let index = Index::open(Box::new(node.disks.index.clone()))
                .map_err(|error| format!("the index of node {number} does not open: {error}"))?;
            node.index = Some(index);
            node.boot = boot;
        }
        let incarnation = self.random.next_u64();
        let wall = self.wall();
        self.host
            .start_node(self.now, wall, number, boot, incarnation)
    }

    fn delay(&mut self, delay_max: Duration) -> Duration {
        shell::delay(&mut self.random, delay_max)
    }

    fn wall(&self) -> WallTime {
        shell::wall(self.now)
    }

    /// Power fails now, or the process is killed. The indexes may still write
    /// while they are dropped, but to disks that nobody sees any more.
    pub(super) fn crash(mut self) -> Disks {
        let random = &mut self.random;
        let registry = self.registry.crashed(random);
        let nodes = self.nodes.iter().map(|node| node.disks.crashed(random));
        let nodes = nodes.collect();
        Disks { registry, nodes }
    }

    /// An orderly end, after a drain: the indexes close their files.
    pub(super) fn close(self) -> Disks {
        drop(self.host);
        let nodes = self.nodes.into_iter().map(|node| {
            drop(node.index);
            node.disks
        });
        Disks {
            registry: self.registry,
            nodes: nodes.collect(),
        }
    }
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Disk(u32, StoreDisk),
    Index(u32),
    ToServer(ConnId),
    ToClient(ConnId),
    Timer,
    Wake,
}
