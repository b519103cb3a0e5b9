//! The processes of an ensemble in simulated time: the production hosts, their
//! disks, the network between them, the registry, and the wires to clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
#[cfg(test)]
use crossdock_delivery::DeliveryFigures;
#[cfg(test)]
use crossdock_directory::{Directory, Mutation as DirectoryMutation};
use crossdock_disk::Disk;
#[cfg(test)]
use crossdock_disk::DiskOperation;
#[cfg(test)]
use crossdock_host::Tuning;
use crossdock_host::{Boot, FsckProgress, Host, HostConfig, HostEffect, HostInput, Mutation};
#[cfg(test)]
use crossdock_host::{ColumnsError, SignedColumns, TokenError};
#[cfg(test)]
use crossdock_host::{DefragProgress, DiskProfile};
#[cfg(test)]
use crossdock_link::Frame;
use crossdock_link::Role;
use crossdock_members::{Change, HostRecord, Registry, Shared, State, VirtualAddress};
#[cfg(test)]
use crossdock_names::{Epoch, FileRef, HandleKey, NodeId, Proof, SiteId};
use crossdock_names::{HostId, MintingKey};
use crossdock_nfs::{ConnId, NfsEffect, NfsInput};
#[cfg(test)]
use crossdock_objects::ObjectDoorEffect;
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeRequest};
#[cfg(test)]
use crossdock_peer::{Port, Repair, SiteReply};
use crossdock_sim::random::Random;
use crossdock_store::{Index, IndexRequest, StoreDisk, StoreInput};
use crossdock_types::{Time, WallTime};
#[cfg(test)]
use crossdock_web::TokenRecord;

use super::super::shell::{self, INDEX_DELAY_MAX, NodeDisks, SETTINGS, WIRE_DELAY_MAX, Wire, mix};
use super::super::wire;
use super::datagrams::{Datagram, Datagrams};
use super::network::{Arrival, Network, Pace, Place};
use super::service::{News, Service};
use super::{PROVING, role_of, secret_of};

mod targets;

use targets::{End, Targets};

/// By how much the machines' clocks are wrong, in turn.
pub(super) const CLOCKS_SECONDS: [i64; 3] = [5, -5, 0];

/// What secrets of a process are for.
const MINTING: u8 = 0;
const HANDLING: u8 = 1;

/// The number of calls that a process never made.
#[cfg(test)]
pub(super) const FORGED: CallId = CallId(u64::MAX >> 4);

/// Where a process runs: what outlives it.
struct Machine {
    record: HostRecord,
    disks: Option<NodeDisks>,
    /// Its node's files are lost, and it is to be whichever of these the registry has: of two
    /// that were proposed, the one that came first is given up for the other.
    fresh: Vec<u64>,
    process: Option<Process>,
    starts_at: Option<Time>,
}

struct Process {
    host: Host,
    boot: Boot,
    index: Option<Index>,
    index_queue: VecDeque<(Time, IndexRequest)>,
    fired: Option<Time>,
}

/// A client's connection to a gateway.
struct Link {
    place: Place,
    wire: Wire,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Disk(Place, StoreDisk),
    Index(Place),
    Timer(Place),
    Start(Place),
    ToServer(ConnId),
    ToClient(ConnId),
    Iscsi(crossdock_iscsi::ConnId, End),
    Datagram,
    Network,
    Service,
    Wake,
}

pub(super) struct World {
    pub(super) now: Time,
    random: Random,
    mutation: Option<Mutation>,
    machines: Vec<Machine>,
    network: Network,
    pub(super) datagrams: Datagrams,
    /// What every process does that was ever started.
    roles: BTreeMap<HostId, Role>,
    pub(super) service: Service,
    links: BTreeMap<ConnId, Link>,
    pub(super) targets: Targets,
    /// The virtual addresses that each process has, as it said last.
    addresses: BTreeMap<Place, Vec<VirtualAddress>>,
    /// Processes that do nothing until then.
    paused: BTreeMap<Place, Time>,
    boots: u64,
    pub(super) trace_hash: u64,
    pub(super) events: u64,
    /// Replies that have arrived at clients.
    pub(super) replies: VecDeque<(ConnId, Bytes)>,
    /// Likewise, as datagrams.
    pub(super) posted: VecDeque<Bytes>,
    /// Connections that have ended.
    pub(super) ended: VecDeque<ConnId>,
    /// Processes that have ended because others had replaced them.
    pub(super) replaced: VecDeque<Place>,
    /// Processes that have ended in order.
    pub(super) stopped: VecDeque<Place>,
    pub(super) notes: Vec<String>,
    #[cfg(test)]
    pub(super) spent: super::costs::Spent,
    failure: Option<String>,
    /// What was answered to calls that a process never made.
    #[cfg(test)]
    pub(super) forged: Vec<(SiteReply, Vec<Proof>)>,
    /// Who was told what handles are made with, by whom.
    #[cfg(test)]
    pub(super) told: Vec<(Place, Place, HandleKey)>,
    /// What became of orders about bearer tokens.
    #[cfg(test)]
    pub(super) tokens: Vec<Result<TokenRecord, TokenError>>,
    /// What became of orders to sign URLs at nodes.
    #[cfg(test)]
    pub(super) columns: Vec<Result<SignedColumns, ColumnsError>>,
    /// What the HTTP doors of nodes wanted done.
    #[cfg(test)]
    pub(super) objects: Vec<(Place, ObjectDoorEffect)>,
    /// Which nodes have withdrawn how many disk requests, when.
    #[cfg(test)]
    pub(super) withdrawn: Vec<(Time, Place, u64)>,
    /// Whose data disk has got a read, when.
    #[cfg(test)]
    pub(super) reads_issued: Vec<(Time, Place)>,
    /// Bytes that each host has copied to nodes of others, by write.
    #[cfg(test)]
    pub(super) copied_bytes: BTreeMap<Place, Vec<u64>>,
    /// What gateways have told nodes of other processes to read ahead (or not any more).
    #[cfg(test)]
    pub(super) told_ahead: Vec<(NodeId, u64, bool)>,
    /// Whether a test has damaged something: sites that cannot be opened are no finding.
    #[cfg(test)]
    pub(super) has_damage: bool,
}

impl World {
    pub(super) fn new(
        state: State,
        records: Vec<HostRecord>,
        mut random: Random,
        mutation: Option<Mutation>,
    ) -> Self {
        let mut disks = |_: &u64| NodeDisks::fresh(&mut random);
        let machines = records.into_iter().map(|record| Machine {
            disks: record.nodes.first().map(&mut disks),
            record,
            fresh: Vec::new(),
            process: None,
            starts_at: Some(Time(0)),
        });
        let machines = machines.collect();
        Self {
            now: Time(0),
            random,
            mutation,
            machines,
            network: Network::default(),
            datagrams: Datagrams::default(),
            roles: BTreeMap::new(),
            service: Service::new(state, mutation),
            links: BTreeMap::new(),
            targets: Targets::default(),
            addresses: BTreeMap::new(),
            paused: BTreeMap::new(),
            boots: 0,
            trace_hash: 0,
            events: 0,
            replies: VecDeque::new(),
            posted: VecDeque::new(),
            ended: VecDeque::new(),
            replaced: VecDeque::new(),
            stopped: VecDeque::new(),
            notes: Vec::new(),
            #[cfg(test)]
            spent: super::costs::Spent::default(),
            failure: None,
            #[cfg(test)]
            forged: Vec::new(),
            #[cfg(test)]
            told: Vec::new(),
            #[cfg(test)]
            tokens: Vec::new(),
            #[cfg(test)]
            columns: Vec::new(),
            #[cfg(test)]
            objects: Vec::new(),
            #[cfg(test)]
            withdrawn: Vec::new(),
            #[cfg(test)]
            reads_issued: Vec::new(),
            #[cfg(test)]
            copied_bytes: BTreeMap::new(),
            #[cfg(test)]
            told_ahead: Vec::new(),
            #[cfg(test)]
            has_damage: false,
        }
    }

    pub(super) fn places(&self) -> usize {
        self.machines.len()
    }

    pub(super) fn is_running(&self, place: Place) -> bool {
        self.machines[place].process.is_some()
    }

    /// Whether clients can connect.
    pub(super) fn is_open(&self, place: Place) -> bool {
        let machine = &self.machines[place];
        let process = machine.process.as_ref();
        let is_known = |process: &Process| {
            let host = process.host.host_id();
            self.service.state.hosts.contains_key(&host.0) && process.host.is_ready()
        };
        machine.record.is_gateway && process.is_some_and(is_known)
    }

    /// Whether a manager goes on that does not know that it has been replaced: what
    /// it takes until its leases end it takes in memory, and its successor lacks it.
    /// (Clients learn that from the write verifier.)
    pub(super) fn has_deposed_manager(&self) -> bool {
        let managers = self.machines.iter().filter(|it| it.record.is_manager);
        let mut running = managers.filter_map(|it| it.process.as_ref());
        let known = &self.service.state.hosts;
        running.any(|process| !known.contains_key(&process.host.host_id().0))
    }

    /// Whether the gateway at the other end has been replaced, maybe without
    /// knowing it: then its address has moved.
    pub(super) fn has_moved(&self, name: ConnId) -> bool {
        let link = self.links.get(&name);
        let process = link.and_then(|link| self.machines[link.place].process.as_ref());
        process.is_none_or(|process| {
            let host = process.host.host_id();
            process.host.is_ready() && !self.service.state.hosts.contains_key(&host.0)
        })
    }

    /// Where a connection leads, if that is still there.
    pub(super) fn gateway_of(&self, name: ConnId) -> Option<Place> {
        let place = self.links.get(&name)?.place;
        self.is_open(place).then_some(place)
    }

    /// Who serves the root's site, if it runs.
    pub(super) fn owner_of_root(&self) -> Option<Place> {
        let owner = self.service.state.owners.get(&0)?;
        self.place_of(HostId(*owner))
    }

    /// The process ends at once; the machine starts another one after a while.
    pub(super) fn kill(&mut self, place: Place, pause: Duration) {
        let Some(process) = self.machines[place].process.take() else {
            return;
        };
        drop(process);
        self.paused.remove(&place);
        self.addresses.remove(&place);
        if let Some(disks) = &mut self.machines[place].disks {
            *disks = disks.crashed(&mut self.random);
        }
        self.machines[place].starts_at = Some(self.now + pause);
        self.network.ends(self.now, place, &mut self.random);
        self.service.ends(place);
        let gone = self.links.extract_if(.., |_, link| link.place == place);
        self.ended.extend(gone.map(|(name, _)| name));
        self.targets.end_at(place);
    }

    /// A process that has ended starts again now.
    #[cfg(test)]
    pub(super) fn start_now(&mut self, place: Place) {
        self.machines[place].starts_at = Some(self.now);
    }

    /// An administrator changes what may change of all processes.
    #[cfg(test)]
    pub(super) fn tune(&mut self, tuning: &Tuning) {
        for machine in &mut self.machines {
            if let Some(process) = &mut machine.process {
                process.host.tune(tuning);
            }
        }
    }

    /// Another machine is there, and starts its process when the registry knows its node.
    pub(super) fn add_machine(&mut self, record: HostRecord) {
        let has_node = !record.nodes.is_empty();
        self.machines.push(Machine {
            record,
            disks: has_node.then(|| NodeDisks::fresh(&mut self.random)),
            fresh: Vec::new(),
            process: None,
            starts_at: Some(self.now),
        });
    }

    /// The process is to end in order.
    pub(super) fn stop(&mut self, place: Place) {
        let (now, wall) = (self.now, self.wall(place));
        if let Some(process) = &mut self.machines[place].process {
            process.host.drain(now, wall);
            self.carry_out(place);
        }
    }

    /// It has: the others learn it at once.
    pub(super) fn end(&mut self, place: Place, pause: Duration) {
        if let Some(process) = &self.machines[place].process {
            let host = process.host.host_id().0;
            self.propose(place, Change::Leave { host });
            self.kill(place, pause);
        }
    }

    /// Managers that run.
    pub(super) fn managers(&self) -> Vec<Place> {
        let places = (0..self.machines.len()).filter(|&place| {
            let machine = &self.machines[place];
            machine.record.is_manager && machine.process.is_some()
        });
        places.collect()
    }

    #[cfg(test)]
    const fn is_damaged(&self) -> bool {
        self.has_damage
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    const fn is_damaged(&self) -> bool {
        false
    }

    /// Which process runs there.
    pub(super) fn host_at(&self, place: Place) -> Option<HostId> {
        let process = self.machines[place].process.as_ref();
        process.map(|process| process.host.host_id())
    }

    /// The files of a node are gone, if the registry lets another one take its place.
    pub(super) fn loses_files(&mut self, place: Place, id: u64) {
        self.machines[place].fresh.push(id);
    }

    /// The process at `place`.
    #[cfg(test)]
    pub(super) fn host(&self, place: Place) -> &Host {
        let process = self.machines[place].process.as_ref();
        &process.expect("it runs").host
    }

    /// It is given an order.
    #[cfg(test)]
    pub(super) fn order<T>(
        &mut self,
        place: Place,
        order: impl FnOnce(&mut Host, Time, WallTime) -> T,
    ) -> T {
        let (now, wall) = (self.now, self.wall(place));
        let process = self.machines[place].process.as_mut();
        let ordered = order(&mut process.expect("it runs").host, now, wall);
        self.carry_out(place);
        ordered
    }

    /// What the process at `place` believes of the clock at another, in nanoseconds.
    #[cfg(test)]
    pub(super) fn clock_ahead(&self, place: Place, other: Place) -> Option<i64> {
        let process = self.machines[place].process.as_ref()?;
        process.host.clock_ahead(self.host_at(other)?)
    }

    /// The manager there begins to check the volume, and to mend it if that is wanted.
    pub(super) fn begin_fsck(&mut self, place: Place, repairs: bool) {
        if let Some(process) = &mut self.machines[place].process {
            process.host.begin_fsck(self.now, repairs);
        }
    }

    /// The manager there damages the volume.
    #[cfg(test)]
    pub(super) fn plant(&mut self, place: Place, file: FileRef, damage: Repair) {
        let (now, wall) = (self.now, self.wall(place));
        if let Some(process) = &mut self.machines[place].process {
            process.host.plant(now, wall, file, damage);
            self.carry_out(place);
        }
    }

    /// A site has changes that no operation makes.
    #[cfg(test)]
    pub(super) fn damage(
        &mut self,
        site: SiteId,
        changes: impl FnOnce(&Directory) -> Vec<DirectoryMutation>,
    ) {
        let owner = self.service.state.owners.get(&site.0);
        let place = owner.and_then(|&owner| self.place_of(HostId(owner)));
        let place = place.expect("somebody has the site");
        let (now, wall) = (self.now, self.wall(place));
        if let Some(process) = &mut self.machines[place].process {
            process.host.damage(now, wall, site, changes);
            self.carry_out(place);
        }
    }

    /// How far the check of the manager there is.
    pub(super) fn fsck_progress(&self, place: Place) -> Option<&FsckProgress> {
        let process = self.machines[place].process.as_ref();
        process.map(|process| process.host.fsck_progress())
    }

    /// Where a node runs, or is to run.
    pub(super) fn place_of_node(&self, node: u64) -> Option<Place> {
        let mut machines = self.machines.iter();
        machines.position(|machine| {
            machine.record.nodes.first() == Some(&node) || machine.fresh.contains(&node)
        })
    }

    pub(super) fn propose(&mut self, place: Place, change: Change) {
        self.service
            .propose(self.now, place, change, &mut self.random);
    }

    /// Asks a node past all ordering; [`node_answer`](Self::node_answer) has the answer.
    pub(super) fn ask_node(
        &mut self,
        place: Place,
        number: u32,
        request: NodeRequest,
    ) -> Result<(), String> {
        let (now, wall) = (self.now, self.wall(place));
        let process = self.machines[place].process.as_mut();
        let process = process.ok_or_else(|| format!("process {place} does not run"))?;
        let call = Call {
            id: CallId(1),
            deadline: Time(u64::MAX),
            request,
        };
        process.host.ask_node(now, wall, number, call)?;
        self.carry_out(place);
        Ok(())
    }

    pub(super) fn node_answer(&mut self, place: Place) -> Option<Result<NodeAnswer, NodeError>> {
        let process = self.machines[place].process.as_mut()?;
        Some(process.host.tool_reply()?.outcome)
    }

    pub(super) fn cut(&mut self, from: Place, to: Place, length: Duration) {
        self.network.cut(self.now, from, to, length);
    }

    /// Messages from one process to another take their time until all is mended.
    pub(super) fn slow(&mut self, from: Place, to: Place, pace: Pace) {
        self.network.slow(from, to, pace);
    }

    /// Nodes take so long to read what others copy, from now on.
    pub(super) const fn slow_copies(&mut self, latency: Option<Duration>) {
        self.network.slow_copies(latency);
    }

    /// The process does nothing for a while.
    pub(super) fn pause(&mut self, place: Place, length: Duration) {
        self.paused.insert(place, self.now + length);
        self.network.pause(self.now, place, length);
        self.service.cut(self.now, place, length);
    }

    /// A client gives its connection up: what it has sent still arrives.
    pub(super) fn leave(&mut self, name: ConnId) {
        if let Some(Link { wire, .. }) = self.links.get_mut(&name) {
            wire.to_client.clear();
            let last = wire.to_server.back().map_or(self.now, |last| last.0);
            wire.to_server.push_back((last, Bytes::new()));
        }
    }

    pub(super) fn cut_from_registry(&mut self, place: Place, length: Duration) {
        self.service.cut(self.now, place, length);
    }

    pub(super) fn break_link(&mut self, a: Place, b: Place) {
        let link = (a.min(b), a.max(b));
        self.network.lose(self.now, link, &mut self.random);
    }

    pub(super) fn heal(&mut self) {
        self.network.heal(self.now);
        self.service.heal();
        self.paused.clear();
        for machine in &mut self.machines {
            if machine.process.is_none() {
                machine.starts_at = Some(self.now);
            }
        }
    }

    pub(super) fn connect(&mut self, name: ConnId, client: usize, place: Place) {
        let wire = Wire::default();
        self.links.insert(name, Link { place, wire });
        let from = wire::address(client, name.0);
        self.give(place, HostInput::Door(NfsInput::Opened(name, from)));
    }

    pub(super) fn send(&mut self, name: ConnId, record: Bytes) {
        let due = self.now + shell::delay(&mut self.random, WIRE_DELAY_MAX);
        if let Some(link) = self.links.get_mut(&name) {
            link.wire.send(due, record);
        }
    }

    /// A client sends a record as a datagram.
    pub(super) fn post(&mut self, client: usize, place: Place, record: &Bytes) {
        let from = wire::address(client, 0);
        let call = Datagram::Call(place, from, record.slice(4..));
        self.datagrams.send(self.now, call, &mut self.random);
    }

    fn take_datagram(&mut self) {
        let paused = &self.paused;
        let is_awake = |place| paused.get(place).is_none_or(|until| *until <= self.now);
        match self.datagrams.next(self.now) {
            // For one that stands still a kernel keeps few of them: here none.
            Some(Datagram::Call(place, from, bytes)) if is_awake(&place) => {
                self.give(place, HostInput::Door(NfsInput::Datagram(from, bytes)));
            }
            Some(Datagram::Reply(bytes)) => {
                let words = bytes.iter().map(|&byte| u64::from(byte));
                self.trace_hash = words.fold(self.trace_hash, mix);
                self.posted.push_back(bytes);
            }
            Some(Datagram::Call(..)) | None => {}
        }
    }

    /// Lets the one next thing happen that is due before `wake`.
    pub(super) fn step(&mut self, wake: Time) -> Result<(), String> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (due, source) = self.next_event(wake);
        self.now = self.now.max(due);
        for machine in &mut self.machines {
            if let Some(disks) = &mut machine.disks {
                disks.advance(self.now);
            }
        }
        if source != Source::Wake {
            self.events += 1;
            self.trace_hash = mix(self.trace_hash, self.now.0);
            self.take(source)?;
        }
        Ok(())
    }

    fn next_event(&self, wake: Time) -> (Time, Source) {
        let mut first = (wake, Source::Wake);
        let mut offer = |due: Option<Time>, source| {
            if let Some(due) = due
                && due < first.0
            {
                first = (due, source);
            }
        };
        for (place, machine) in self.machines.iter().enumerate() {
            if let Some(disks) = &machine.disks {
                let (journal, data) = (&disks.journal, &disks.data);
                let journal = journal
                    .next_completion_at()
                    .map(|due| self.awake(place, due));
                let data = data.next_completion_at().map(|due| self.awake(place, due));
                offer(journal, Source::Disk(place, StoreDisk::Journal));
                offer(data, Source::Disk(place, StoreDisk::Data));
            }
            if let Some(process) = &machine.process {
                let index = process.index_queue.front();
                let index = index.map(|(due, _)| self.awake(place, *due));
                offer(index, Source::Index(place));
                let timer = process.host.poll_timeout().map(|due| due.max(self.now));
                let timer = timer.map(|due| self.awake(place, due));
                let timer = timer.filter(|&due| process.fired != Some(due));
                offer(timer, Source::Timer(place));
            } else {
                offer(machine.starts_at, Source::Start(place));
            }
        }
        for (&name, Link { place, wire }) in &self.links {
            let call = wire.to_server.front();
            let call = call.map(|(due, _)| self.awake(*place, *due));
            offer(call, Source::ToServer(name));
            let reply = wire.to_client.front();
            offer(reply.map(|(due, _)| *due), Source::ToClient(name));
        }
        for (due, name, end, place) in self.targets.due() {
            let due = match end {
                End::Target => self.awake(place, due),
                End::Initiator => due,
            };
            offer(Some(due), Source::Iscsi(name, end));
        }
        offer(self.datagrams.next_at(), Source::Datagram);
        offer(self.network.next_at(), Source::Network);
        offer(self.service.next_at(), Source::Service);
        first
    }

    /// When what is due then happens at a process that may be paused.
    fn awake(&self, place: Place, due: Time) -> Time {
        let paused = self.paused.get(&place);
        paused.map_or(due, |until| due.max(*until))
    }

    fn take(&mut self, source: Source) -> Result<(), String> {
        match source {
            Source::Disk(place, disk) => self.take_disk(place, disk),
            Source::Index(place) => self.take_index(place),
            Source::Timer(place) => {
                if let Some(process) = &mut self.machines[place].process {
                    process.fired = Some(self.now);
                }
                self.give(place, HostInput::Timeout);
            }
            Source::Start(place) => return self.start(place),
            Source::ToServer(name) => self.take_call(name),
            Source::ToClient(name) => return self.take_reply(name),
            Source::Iscsi(name, end) => self.take_bytes(name, end),
            Source::Datagram => self.take_datagram(),
            Source::Network => {
                if let Some((at, from, arrival)) = self.network.next(self.now, &mut self.random) {
                    self.take_arrival(at, from, arrival);
                }
            }
            Source::Service => {
                if let Some((place, news)) = self.service.next(self.now, &mut self.random) {
                    self.give(
                        place,
                        match news {
                            News::State(revision, state) => HostInput::Registry { revision, state },
                            News::Expired(host) => HostInput::Expired(host),
                            News::Heard(until) => HostInput::Heard(until),
                        },
                    );
                }
                self.notes.append(&mut self.service.told);
            }
            Source::Wake => {}
        }
        Ok(())
    }

    fn start(&mut self, place: Place) -> Result<(), String> {
        let machine = &mut self.machines[place];
        machine.starts_at = None;
        if let Some(disks) = &machine.disks
            && disks.in_flight() > 0
        {
            machine.starts_at = Some(self.now + Duration::from_millis(1));
            return Ok(());
        }
        if let Some(&node) = machine.record.nodes.first() {
            let is_known = |id: u64| self.service.state.has_node(id);
            if let Some(at) = machine.fresh.iter().position(|&fresh| is_known(fresh)) {
                machine.record.nodes = vec![machine.fresh.remove(at)];
                machine.disks = Some(NodeDisks::fresh(&mut self.random));
            } else if !is_known(node) {
                machine.starts_at = Some(self.now + Duration::from_secs(1));
                return Ok(());
            }
        }
        let instance = self.random.next_u64();
        let shared = Shared::new(self.service.revision, self.service.state.clone());
        let mut host = Host::new(HostConfig {
            registry: Registry::Shared(shared),
            role: machine.record.clone(),
            nodes: SETTINGS,
            request_bytes: crossdock_limits::NFS_REQUEST_BYTES_MIN,
            http: crossdock_http::HttpConfig::default(),
            iscsi: crossdock_iscsi::IscsiConfig {
                is_shared: true,
                ..crossdock_iscsi::IscsiConfig::default()
            },
            instance,
            minting: MintingKey(secret_of(instance, MINTING)),
            proving: PROVING,
            // Another one each time: what is told has to be what the log has.
            handling: secret_of(instance, HANDLING),
            grace: Duration::from_secs(45),
        })
        .map_err(|error| format!("a host does not start: {error}"))?;
        host.build_in(self.mutation);
        self.roles
            .insert(HostId(instance), role_of(&machine.record));
        self.boots += 1;
        let mut process = Process {
            host,
            boot: Boot(self.boots),
            index: None,
            index_queue: VecDeque::new(),
            fired: None,
        };
        if let Some(disks) = &machine.disks {
            let index = Index::open(Box::new(disks.index.clone()))
                .map_err(|error| format!("an index does not open: {error}"))?;
            process.index = Some(index);
        }
        let boot = process.boot;
        let numbers = process.host.nodes_to_start();
        machine.process = Some(process);
        self.notes
            .push(format!("process {place} starts as {instance:016x}"));
        let others: Vec<Place> = (0..self.machines.len())
            .filter(|&other| other != place && self.is_running(other))
            .collect();
        self.network
            .starts(self.now, place, HostId(instance), &others);
        self.service.starts(self.now, place, HostId(instance));
        let (incarnation, wall, now) = (self.random.next_u64(), self.wall(place), self.now);
        if let Some(process) = &mut self.machines[place].process {
            for number in numbers {
                process
                    .host
                    .start_node(now, wall, number, boot, incarnation)?;
            }
        }
        self.give(place, HostInput::Timeout);
        Ok(())
    }

    fn take_arrival(&mut self, at: Place, peer: HostId, arrival: Arrival) {
        self.give(
            at,
            match arrival {
                Arrival::Connected => HostInput::Connected {
                    peer,
                    role: self.roles[&peer],
                    gateway: None,
                },
                Arrival::Frame(sent) => HostInput::Frame { from: peer, sent },
                Arrival::Disconnected => HostInput::Disconnected(peer),
            },
        );
    }

    fn take_disk(&mut self, place: Place, disk: StoreDisk) {
        let machine = &mut self.machines[place];
        let Some(disks) = &mut machine.disks else {
            return;
        };
        // Of an earlier boot: nobody waits for it any more.
        let completion = disks.device(disk).poll();
        let boot = machine.process.as_ref().map(|process| process.boot);
        if let (Some(completion), Some(boot)) = (completion, boot) {
            self.give_store(place, boot, StoreInput::Disk(disk, completion));
        }
    }

    fn take_index(&mut self, place: Place) {
        let Some(process) = &mut self.machines[place].process else {
            return;
        };
        if let (Some((_, request)), Some(index)) =
            (process.index_queue.pop_front(), &mut process.index)
        {
            let (boot, reply) = (process.boot, index.handle(request));
            self.give_store(place, boot, StoreInput::Index(reply));
        }
    }

    fn give_store(&mut self, place: Place, boot: Boot, input: StoreInput) {
        let state = &self.service.state;
        let node = self.machines[place].record.nodes.first();
        let record = state.nodes.iter().find(|record| Some(&record.id) == node);
        if let Some(number) = record.map(|record| record.number) {
            self.give(
                place,
                HostInput::Store {
                    number,
                    boot,
                    input,
                },
            );
        }
    }

    fn take_call(&mut self, name: ConnId) {
        let Some(Link { place, wire }) = self.links.get_mut(&name) else {
            return;
        };
        let place = *place;
        let Some((_, bytes)) = wire.to_server.pop_front() else {
            return;
        };
        if bytes.is_empty() {
            self.links.remove(&name);
            return self.give(place, HostInput::Door(NfsInput::Closed(name)));
        }
        for input in wire.arrived(name, bytes) {
            self.give(place, HostInput::Door(input));
        }
    }

    fn take_reply(&mut self, name: ConnId) -> Result<(), String> {
        let Some(Link { place, wire }) = self.links.get_mut(&name) else {
            return Ok(());
        };
        let place = *place;
        let Some((_, bytes)) = wire.to_client.pop_front() else {
            return Ok(());
        };
        let length = bytes.len();
        for record in wire.records(bytes)? {
            let hash = record
                .iter()
                .fold(self.trace_hash, |hash, &byte| mix(hash, u64::from(byte)));
            self.trace_hash = hash;
            self.replies.push_back((name, record));
        }
        self.give(place, HostInput::Door(NfsInput::Sent(name, length)));
        Ok(())
    }

    /// All others see another name in the certificate of that gateway.
    #[cfg(test)]
    pub(super) fn certify(&mut self, gateway: Place, name: &str) {
        let Some(peer) = self.machines[gateway].process.as_ref() else {
            return;
        };
        let peer = peer.host.host_id();
        for place in (0..self.machines.len()).filter(|place| *place != gateway) {
            let input = HostInput::Connected {
                peer,
                role: self.roles[&peer],
                gateway: Some(std::sync::Arc::from(name)),
            };
            self.give(place, input);
        }
    }

    /// A process is sent what another one never said: that one was taken over.
    #[cfg(test)]
    pub(super) fn forge(&mut self, from: Place, to: Place, frame: Frame) {
        if let Some(from) = self.host_at(from) {
            let sent = Box::new(frame.by(Epoch(0)));
            self.give(to, HostInput::Frame { from, sent });
        }
    }

    /// Keeps what is answered to such a call.
    #[cfg(test)]
    fn note_forged(&mut self, effect: &HostEffect) {
        if let HostEffect::Send { sent, .. } = effect
            && let Frame::SiteReply { reply, proofs, .. } = &sent.frame
            && reply.id == FORGED
        {
            self.forged.push(((**reply).clone(), proofs.clone()));
        }
    }

    #[cfg(test)]
    fn note_disk(&mut self, place: Place, effect: &HostEffect) {
        match effect {
            HostEffect::Withdrawn { requests, .. } => {
                self.withdrawn.push((self.now, place, *requests));
            }
            HostEffect::Disk { disk, request, .. } if *disk == StoreDisk::Data => {
                if let DiskOperation::Read { .. } = request.operation {
                    self.reads_issued.push((self.now, place));
                }
            }
            _ => {}
        }
    }

    /// The nodes whose disks a process knows.
    #[cfg(test)]
    pub(super) fn disk_profiles(&self, place: Place) -> Vec<(NodeId, DiskProfile)> {
        let process = self.machines[place].process.as_ref();
        process.map_or_else(Vec::new, |process| process.host.disk_profiles().collect())
    }

    /// What a process tells of defragmentation.
    #[cfg(test)]
    pub(super) fn defrag_told(&self, place: Place) -> DefragProgress {
        let process = self.machines[place].process.as_ref();
        process.expect("it runs").host.defrag_told()
    }

    /// What the delivery engine of a gateway has counted.
    #[cfg(test)]
    pub(super) fn delivery(&self, place: Place) -> DeliveryFigures {
        let process = self.machines[place].process.as_ref();
        process.expect("it runs").host.http_figures().delivery
    }

    #[cfg(test)]
    fn note_told(&mut self, place: Place, effect: &HostEffect) {
        if let HostEffect::Send { to, sent } = effect
            && let Frame::Handling(key) = &sent.frame
            && let Some(to) = self.place_of(*to)
        {
            self.told.push((place, to, key.clone()));
        }
        if let HostEffect::Send { sent, .. } = effect
            && let Frame::NodeCall { to, call, .. } = &sent.frame
            && let NodeRequest::Ahead {
                length_bytes,
                is_wanted,
                ..
            } = call.request
        {
            self.told_ahead.push((*to, length_bytes, is_wanted));
        }
        // What a host itself writes to another one's node are copies.
        if let HostEffect::Send { sent, .. } = effect
            && let Frame::NodeCall {
                from: Port::Host,
                call,
                ..
            } = &sent.frame
            && let NodeRequest::Write { payload, .. } = &call.request
        {
            let copied = self.copied_bytes.entry(place).or_default();
            copied.push(payload.len() as u64);
        }
    }

    fn give(&mut self, place: Place, input: HostInput) {
        let (now, wall) = (self.now, self.wall(place));
        let Some(process) = &mut self.machines[place].process else {
            return;
        };
        process.host.handle(now, wall, input);
        self.carry_out(place);
    }

    fn carry_out(&mut self, place: Place) {
        while let Some(effect) = self.next_effect(place) {
            #[cfg(test)]
            {
                self.spent.count(&effect);
                self.note_forged(&effect);
                self.note_told(place, &effect);
                self.note_disk(place, &effect);
            }
            match effect {
                HostEffect::Door(NfsEffect::SendDatagram(_, pieces)) => {
                    let reply = Datagram::Reply(pieces.concat().into());
                    self.datagrams.send(self.now, reply, &mut self.random);
                }
                HostEffect::Door(NfsEffect::Sample(name)) => {
                    if let Some(link) = self.links.get(&name) {
                        let input = NfsInput::Sampled(name, link.wire.sample());
                        self.give(place, HostInput::Door(input));
                    }
                }
                HostEffect::Door(effect) => {
                    let (now, links, random) = (self.now, &mut self.links, &mut self.random);
                    let arrival = || now + shell::delay(random, WIRE_DELAY_MAX);
                    let done = shell::carry_out(
                        effect,
                        |name| Some(&mut links.get_mut(&name)?.wire),
                        arrival,
                    );
                    if let Err(what) = done {
                        self.failure = Some(what);
                    }
                }
                HostEffect::Disk { disk, request, .. } => {
                    if let Some(disks) = &mut self.machines[place].disks {
                        disks.submit(disk, request);
                    }
                }
                HostEffect::Index { request, .. } => {
                    let due = self.now + shell::delay(&mut self.random, INDEX_DELAY_MAX);
                    if let Some(process) = &mut self.machines[place].process {
                        let last = process.index_queue.back();
                        let due = last.map_or(due, |last| last.0.max(due));
                        process.index_queue.push_back((due, request));
                    }
                }
                HostEffect::Send { to, sent } => {
                    if let Some(other) = self.place_of(to) {
                        self.network
                            .send(self.now, place, other, sent, &mut self.random);
                    }
                }
                HostEffect::Propose(change) => {
                    self.service
                        .propose(self.now, place, change, &mut self.random);
                }
                HostEffect::NodeOpened {
                    result: Err(why), ..
                } => {
                    self.failure = Some(format!("a node of process {place} does not open: {why}"));
                }
                HostEffect::Failed(reason) if reason.contains("replaced") => {
                    self.replaced.push_back(place);
                }
                HostEffect::Failed(reason) => {
                    self.failure = Some(format!("process {place}: {reason}"));
                }
                HostEffect::Addresses(held) => {
                    self.addresses.insert(place, held);
                    self.check_addresses();
                }
                HostEffect::Warning(what)
                    if what.contains("cannot be opened") && !self.is_damaged() =>
                {
                    self.failure.get_or_insert(what);
                }
                #[cfg(test)]
                HostEffect::TokenChanged { result, .. } => self.tokens.push(result),
                #[cfg(not(test))]
                HostEffect::TokenChanged { .. } => {}
                HostEffect::PolicyChanged { .. } => {} // Nobody has asked.
                HostEffect::Warning(what) => self.notes.push(format!("process {place}: {what}")),
                // Nobody is connected there.
                HostEffect::Http(_) => {}
                HostEffect::Iscsi(effect) => self.carry_out_iscsi(place, effect),
                HostEffect::LunChanged { result, .. } => self.targets.orders.push_back(result),
                #[cfg(test)]
                HostEffect::Objects(effect) => self.objects.push((place, effect)),
                #[cfg(test)]
                HostEffect::ColumnsSigned { result, .. } => self.columns.push(result),
                #[cfg(not(test))]
                HostEffect::Objects(_) | HostEffect::ColumnsSigned { .. } => {}
                // No host of a scenario has depots.
                HostEffect::Depot { .. }
                | HostEffect::Evacuated { .. }
                | HostEffect::Scrubbed { .. }
                | HostEffect::FileShared { .. }
                | HostEffect::NodeOpened { result: Ok(()), .. }
                | HostEffect::ExportChanged { .. }
                | HostEffect::QuotaChanged { .. }
                | HostEffect::LocksReleased { .. }
                | HostEffect::AddressChanged { .. }
                | HostEffect::GatewayChanged { .. }
                | HostEffect::TunnelOpened { .. }
                | HostEffect::TunnelClosed(_)
                | HostEffect::Unfilled { .. }
                | HostEffect::Refilled { .. }
                | HostEffect::WakeClients { .. }
                | HostEffect::Damage { .. }
                | HostEffect::Withdrawn { .. }
                | HostEffect::Postponed { .. }
                | HostEffect::DiskFailed { .. } => {}
                HostEffect::Retired => self.stop(place),
                HostEffect::Quiet => self.stopped.push_back(place),
            }
        }
    }

    /// No address is at two processes that run: what one has that stands still, its
    /// kernel takes away. A fault that is built in has to be found by what clients see.
    fn check_addresses(&mut self) {
        if self.mutation.is_some() {
            return;
        }
        let mut seen = BTreeSet::new();
        let awake = self.addresses.iter();
        let awake = awake.filter(|(place, _)| !self.paused.contains_key(place));
        for address in awake.flat_map(|(_, held)| held) {
            if !seen.insert(address) {
                self.failure = Some(format!(
                    "{address} is at two gateways: {:?}",
                    self.addresses
                ));
            }
        }
    }

    /// Every address is somewhere, now that nothing goes wrong.
    pub(super) fn check_all_addresses(&self) -> Result<(), String> {
        let held: usize = self.addresses.values().map(Vec::len).sum();
        match self.service.state.addresses.len() {
            count if count == held => Ok(()),
            count => Err(format!(
                "{held} of {count} virtual addresses are somewhere: {:?}",
                self.service.state.addresses
            )),
        }
    }

    fn next_effect(&mut self, place: Place) -> Option<HostEffect> {
        self.machines[place].process.as_mut()?.host.poll_effect()
    }

    pub(super) fn place_of(&self, host: HostId) -> Option<Place> {
        let is_it = |machine: &Machine| {
            let process = machine.process.as_ref();
            process.is_some_and(|process| process.host.host_id() == host)
        };
        self.machines.iter().position(is_it)
    }

    /// The time of day as a machine has it.
    fn wall(&self, place: Place) -> WallTime {
        let WallTime(nanos) = shell::wall(self.now);
        WallTime(nanos + CLOCKS_SECONDS[place % CLOCKS_SECONDS.len()] * 1_000_000_000)
    }
}
