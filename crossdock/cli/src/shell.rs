//! The data thread: drives the host's machines with the event loop, the index
//! threads and the orders of other threads. No policy.

mod exports;
mod figures;
mod locks;
mod quotas;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::Bytes;
use crossdock_admin::{Answer, Command, Control, Refusal, Snapshot};
use crossdock_host::{
    Boot, ExportTicket, Host, HostConfig, HostEffect, HostInput, NodeSettings, QuotaTicket,
    ReleaseTicket,
};
use crossdock_members::{HostRecord, Registry};
use crossdock_net::{
    ConnectionId, DiskId, Driver, Event, ListenerId, Receiver, Sender, SocketId, now,
};
use crossdock_nfs::{ConnId, NfsEffect, NfsInput, Services};
use crossdock_store::{Index, IndexReply, IndexRequest, StoreDisk, StoreInput};
use crossdock_types::{Time, WallTime};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::config::Settings;
use crate::data::{self, DataDirectory};
use crate::memory;
use crate::notify;
use crate::report::{self, Surroundings};

/// Answers of index threads that wait for the data thread.
const INDEX_REPLIES_MAX: usize = 4096;

/// How long a graceful stop may take.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

/// What other threads ask of the data thread.
pub(crate) enum Order {
    /// SIGINT or SIGTERM.
    Stop,
    /// The admin API.
    Admin(Command, oneshot::Sender<Answer>),
    /// Whoever watches.
    Snapshot(oneshot::Sender<Snapshot>),
}

/// The control thread's end.
pub(crate) struct RemoteControl {
    orders: Arc<Sender<Order>>,
}

impl RemoteControl {
    pub(crate) const fn new(orders: Arc<Sender<Order>>) -> Self {
        Self { orders }
    }
}

impl Control for RemoteControl {
    fn ask(&self, command: Command, reply: oneshot::Sender<Answer>) {
        // A refused order drops its reply, which the API reports as stopping.
        let _ = self.orders.try_send(Order::Admin(command, reply));
    }

    fn snapshot(&self, reply: oneshot::Sender<Snapshot>) {
        let _ = self.orders.try_send(Order::Snapshot(reply)); // As above.
    }
}

/// The data thread's state.
pub(crate) struct Shell {
    host: Host,
    driver: Driver,
    node_directories: Vec<std::path::PathBuf>,
    nodes: BTreeMap<u32, NodeShell>,
    disks: BTreeMap<DiskId, (u32, StoreDisk)>,
    nfs: Vec<NfsSockets>,
    connections: BTreeMap<ConnId, ConnectionId>,
    names: BTreeMap<ConnectionId, ConnId>,
    /// Bytes of replies that the kernel has not taken yet, per connection.
    unsent: BTreeMap<ConnId, usize>,
    connections_total: u64,
    turns_total: u64,
    told: figures::Told,
    boots_total: u64,
    orders: Receiver<Order>,
    index_sender: Sender<(u32, Boot, IndexReply)>,
    index_replies: Receiver<(u32, Boot, IndexReply)>,
    started: Time,
    stop_by: Option<Time>,
    is_quiet: bool,
    surroundings: Surroundings,
    /// Who waits for an export to be added.
    export_replies: BTreeMap<ExportTicket, oneshot::Sender<Answer>>,
    /// Who waits for a quota to be set or removed, and what it is called then.
    quota_replies: BTreeMap<QuotaTicket, (&'static str, oneshot::Sender<Answer>)>,
    /// Who waits for locks to be given up, and whose.
    release_replies: BTreeMap<ReleaseTicket, (String, oneshot::Sender<Answer>)>,
    /// The CPUs of all threads but this one, once it has one of its own.
    other_cpus: Vec<usize>,
    failure: Option<String>,
}

/// Where the NFS door and its portmapper listen, once for each kind of address.
pub(crate) struct NfsSockets {
    pub(crate) listener: ListenerId,
    pub(crate) datagrams: SocketId,
    /// Which kind of address a client has that it serves.
    pub(crate) is_ipv6: bool,
    /// Whether it is not NFS's, but the portmapper's.
    pub(crate) is_portmap: bool,
}

/// What a node has outside its machine. Its disks stay open while it is
/// stopped, so that nobody else takes them.
struct NodeShell {
    journal: DiskId,
    data: DiskId,
    boot: Boot,
    index: Option<mpsc::Sender<IndexRequest>>,
    index_thread: Option<thread::JoinHandle<()>>,
    /// Requests that its disks have not answered yet.
    in_flight: usize,
    /// Whether it starts as soon as nothing is in flight.
    starts: bool,
}

impl Shell {
    pub(crate) fn start(
        settings: &Settings,
        directory: DataDirectory,
        driver: Driver,
        nfs: Vec<NfsSockets>,
        orders: Receiver<Order>,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        let count = directory.node_directories.len();
        let mut host = Host::new(HostConfig {
            registry: Registry::Own(directory.registry),
            role: HostRecord::default(),
            nodes: NodeSettings {
                capacity_bytes: directory.node_capacity_bytes,
                journal_bytes: data::JOURNAL_BYTES,
                cache_bytes: memory::cache_bytes(settings)? / count,
                disk_depth: settings.disk_depth,
            },
            request_bytes: memory::request_bytes(settings)?,
            instance: data::random_u64()?,
            grace: Duration::from_secs(settings.grace),
        })
        .context("cannot write the registry")?;
        let (index_sender, index_replies) =
            crossdock_net::channel(INDEX_REPLIES_MAX, driver.waker());
        host.set_slow_after(settings.slow_after());
        let mut shell = Self {
            host,
            driver,
            node_directories: directory.node_directories,
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            nfs,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            unsent: BTreeMap::new(),
            connections_total: 0,
            turns_total: 0,
            told: figures::Told::default(),
            boots_total: 0,
            orders,
            index_sender,
            index_replies,
            started: now(),
            stop_by: None,
            is_quiet: false,
            surroundings,
            export_replies: BTreeMap::new(),
            quota_replies: BTreeMap::new(),
            release_replies: BTreeMap::new(),
            other_cpus: Vec::new(),
            failure: None,
        };
        for (number, directory) in (0..).zip(shell.node_directories.clone()) {
            shell.add_node(number, &directory)?;
        }
        for number in shell.host.nodes_to_start() {
            shell.start_node(number)?;
        }
        Ok(shell)
    }

    /// Turns the loop until every part serves.
    pub(crate) fn run_until_ready(&mut self) -> anyhow::Result<()> {
        while !self.host.is_ready() {
            if self.stop_by.is_some() {
                bail!("stopped before it was ready");
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Gives this thread a CPU of its own, the last one: caches stay warm, and
    /// interrupts mostly go to the first. Threads that were started before may
    /// run on all of them.
    pub(crate) fn pin(&mut self) {
        let pinned = crossdock_net::allowed_cpus().and_then(|cpus| {
            if let [_, .., last] = cpus[..] {
                crossdock_net::pin_thread(last)?;
                self.other_cpus = cpus;
            }
            Ok(())
        });
        if let Err(error) = pinned {
            warn!(%error, "the data thread has no CPU of its own");
        }
    }

    /// Turns the loop until a stop was ordered and everything is quiet.
    pub(crate) fn run(&mut self) -> anyhow::Result<()> {
        while !self.is_quiet {
            if self.stop_by.is_some_and(|deadline| now() >= deadline) {
                bail!(
                    "not everything was written back within {} s; it will be replayed at the next start",
                    DRAIN_PATIENCE.as_secs()
                );
            }
            self.turn()?;
        }
        info!("stopped");
        Ok(())
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        self.turns_total += 1;
        self.start_nodes()?;
        self.carry_out_effects();
        // Everything that came at once shares one durable write.
        self.host.end_turn(now(), wall_time());
        self.carry_out_effects();
        if self.host.has_noted() {
            self.settle_figures(now());
        }
        if let Some(failure) = self.failure.take() {
            bail!(failure);
        }
        if self.is_quiet {
            return Ok(());
        }
        let until = [self.host.poll_timeout(), self.stop_by]
            .into_iter()
            .flatten()
            .min();
        self.driver
            .wait(until)
            .context("the event loop has failed")?;
        while let Some(event) = self.driver.next_event() {
            self.take_event(event);
        }
        self.tell_sent();
        let time = now();
        self.settle_figures(time);
        if self.host.poll_timeout().is_some_and(|due| due <= time) {
            self.give(HostInput::Timeout);
        }
        Ok(())
    }

    fn give(&mut self, input: HostInput) {
        self.host.gather(now(), wall_time(), input);
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } => {
                self.connections_total += 1;
                let name = ConnId(self.connections_total);
                self.connections.insert(name, connection);
                self.names.insert(connection, name);
                let opened = if self.is_portmap(|sockets| sockets.listener == listener) {
                    NfsInput::OpenedPortmap(name, peer)
                } else {
                    NfsInput::Opened(name, peer)
                };
                self.give(HostInput::Door(opened));
            }
            Event::Received { connection, bytes } => self.take_received(connection, bytes),
            Event::Filled { connection, bytes } => {
                if let Some(&name) = self.names.get(&connection) {
                    self.give(HostInput::Door(NfsInput::Filled(name, bytes)));
                }
            }
            Event::Timeout => {}
            Event::PeerDone { connection } => {
                if let Some(&name) = self.names.get(&connection) {
                    self.give(HostInput::Door(NfsInput::PeerDone(name)));
                }
            }
            Event::Writable { .. } => {} // See `tell_sent`.
            Event::Closed { connection, .. } => {
                if let Some(name) = self.names.remove(&connection) {
                    self.connections.remove(&name);
                    self.unsent.remove(&name);
                    self.give(HostInput::Door(NfsInput::Closed(name)));
                }
            }
            Event::Datagram {
                socket,
                from,
                bytes,
            } => {
                let datagram = if self.is_portmap(|sockets| sockets.datagrams == socket) {
                    NfsInput::PortmapDatagram(from, bytes)
                } else {
                    NfsInput::Datagram(from, bytes)
                };
                self.give(HostInput::Door(datagram));
            }
            Event::Disk(disk, completion) => {
                if let Some(&(number, disk)) = self.disks.get(&disk)
                    && let Some(node) = self.nodes.get_mut(&number)
                {
                    node.in_flight -= 1;
                    // Of an earlier boot: nobody waits for it any more.
                    if node.index.is_some() {
                        let boot = node.boot;
                        let input = StoreInput::Disk(disk, completion);
                        self.give(HostInput::Store {
                            number,
                            boot,
                            input,
                        });
                    }
                }
            }
            Event::Woken => self.take_woken(),
        }
        self.carry_out_effects();
    }

    /// Tells the door what the kernel has taken of its replies.
    fn tell_sent(&mut self) {
        let mut gone = Vec::new();
        for (&name, unsent_bytes) in &mut self.unsent {
            let queued = self
                .connections
                .get(&name)
                .map_or(0, |&id| self.driver.queued_bytes(id));
            if queued < *unsent_bytes {
                gone.push((name, *unsent_bytes - queued));
                *unsent_bytes = queued;
            }
        }
        self.unsent.retain(|_, unsent_bytes| *unsent_bytes > 0);
        for (name, bytes) in gone {
            self.give(HostInput::Door(NfsInput::Sent(name, bytes)));
        }
    }

    fn take_received(&mut self, connection: ConnectionId, bytes: Bytes) {
        if let Some(&name) = self.names.get(&connection) {
            self.give(HostInput::Door(NfsInput::Received(name, bytes)));
        }
    }

    fn take_woken(&mut self) {
        while let Some((number, boot, reply)) = self.index_replies.try_receive() {
            let input = StoreInput::Index(reply);
            self.give(HostInput::Store {
                number,
                boot,
                input,
            });
        }
        while let Some(order) = self.orders.try_receive() {
            match order {
                Order::Stop => self.stop(),
                Order::Admin(command, reply) => {
                    self.take_command(command, reply);
                }
                Order::Snapshot(reply) => {
                    let snapshot = self.snapshot().filter(|_| self.stop_by.is_none());
                    if let Some(snapshot) = snapshot {
                        // The asker may have gone away meanwhile.
                        let _ = reply.send(snapshot);
                    }
                }
            }
        }
    }

    fn carry_out_effects(&mut self) {
        while let Some(effect) = self.host.poll_effect() {
            match effect {
                HostEffect::Door(effect) => self.take_door_effect(effect),
                HostEffect::Disk {
                    number,
                    disk,
                    request,
                } => {
                    if let Some(node) = self.nodes.get_mut(&number) {
                        node.in_flight += 1;
                        let id = match disk {
                            StoreDisk::Journal => node.journal,
                            StoreDisk::Data => node.data,
                        };
                        self.driver.submit_disk(id, request);
                    }
                }
                HostEffect::Index { number, request } => {
                    if let Some(index) =
                        self.nodes.get(&number).and_then(|node| node.index.as_ref())
                    {
                        // The thread ends only after its sender is gone from here.
                        let _ = index.send(request);
                    }
                }
                HostEffect::NodeOpened { number, result } => match result {
                    Ok(()) => info!(node = number, "node serves"),
                    Err(reason) if self.host.is_ready() => {
                        error!(node = number, %reason, "node failed")
                    }
                    Err(reason) => self.failure = Some(self.describe_failure(number, &reason)),
                },
                HostEffect::ExportAdded { ticket, result } => {
                    self.take_export_added(ticket, result);
                }
                HostEffect::QuotaChanged { ticket, result } => {
                    self.take_quota_changed(ticket, result);
                }
                HostEffect::LocksReleased { ticket, result } => {
                    self.take_locks_released(ticket, result);
                }
                HostEffect::Damage {
                    number,
                    object,
                    offset_bytes,
                    what,
                    is_repaired,
                } => {
                    if is_repaired {
                        warn!(node = number, %object, offset_bytes, %what, "a bad block was repaired");
                    } else {
                        error!(node = number, %object, offset_bytes, %what, "a block is lost on this node");
                    }
                }
                HostEffect::DiskFailed { number, reason } => {
                    error!(node = number, %reason, "a disk takes no writes any more");
                }
                // This process is all there is.
                HostEffect::Send { .. } | HostEffect::Propose(_) => {}
                HostEffect::Warning(what) => warn!("{what}"),
                HostEffect::Failed(reason) => self.failure = Some(reason),
                HostEffect::Quiet => self.is_quiet = true,
            }
        }
    }

    fn take_door_effect(&mut self, effect: NfsEffect) {
        match effect {
            NfsEffect::Send(name, pieces) => {
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                if let Some(&connection) = self.connections.get(&name) {
                    *self.unsent.entry(name).or_default() += bytes;
                    if self.driver.send(connection, pieces).is_err() {
                        // The door bounds what it sends: a client that does not read.
                        self.driver.abort(connection);
                    }
                }
            }
            NfsEffect::SendDatagram(to, pieces) => self.send_datagram(false, to, pieces),
            NfsEffect::SendPortmapDatagram(to, pieces) => self.send_datagram(true, to, pieces),
            NfsEffect::Close(name) => self.on_connection(&name, Driver::close),
            NfsEffect::Abort(name) => self.on_connection(&name, Driver::abort),
            NfsEffect::Fill(name, fill) => {
                if let Some(&connection) = self.connections.get(&name) {
                    let (lead, missing) = (fill.lead_bytes, fill.missing_bytes);
                    self.driver.fill(connection, &fill.head, lead, missing);
                }
            }
            NfsEffect::Pause(name) => self.on_connection(&name, Driver::pause_receive),
            NfsEffect::Resume(name) => self.on_connection(&name, Driver::resume_receive),
            // The host has passed them to the router.
            NfsEffect::Router(_) | NfsEffect::Withdraw(_) => {}
        }
    }

    fn send_datagram(&mut self, is_portmap: bool, to: SocketAddr, pieces: Vec<Bytes>) {
        let ours = self
            .nfs
            .iter()
            .find(|sockets| sockets.is_portmap == is_portmap && sockets.is_ipv6 == to.is_ipv6());
        if let Some(ours) = ours {
            // A datagram that does not fit is lost, as on the wire.
            let _ = self.driver.send_datagram(ours.datagrams, to, pieces);
        }
    }

    fn is_portmap(&self, is_it: impl Fn(&NfsSockets) -> bool) -> bool {
        let mut portmap = self.nfs.iter().filter(|sockets| sockets.is_portmap);
        portmap.any(is_it)
    }

    /// Tells the door where its programs are.
    pub(crate) fn tell_services(&mut self, services: Services) {
        self.give(HostInput::Door(NfsInput::Services(services)));
    }

    fn describe_failure(&self, number: u32, reason: &str) -> String {
        let directory = usize::try_from(number)
            .ok()
            .and_then(|number| self.node_directories.get(number));
        let directory = directory
            .map(|directory| directory.display().to_string())
            .unwrap_or_default();
        format!("node {number} in {directory} cannot be opened: {reason}")
    }

    fn on_connection(&mut self, name: &ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(&connection) = self.connections.get(name) {
            act(&mut self.driver, connection);
        }
    }

    fn stop(&mut self) {
        if self.stop_by.is_some() {
            return;
        }
        info!("stopping: finishing what is in progress");
        notify::tell(notify::STOPPING);
        self.stop_by = Some(now() + DRAIN_PATIENCE);
        for nfs in &self.nfs {
            self.driver.close_listener(nfs.listener);
            self.driver.close_datagram(nfs.datagrams);
        }
        for &connection in self.names.keys() {
            self.driver.pause_receive(connection);
        }
        self.host.drain(now(), wall_time());
    }

    fn take_command(&mut self, command: Command, reply: oneshot::Sender<Answer>) {
        let answer = match command {
            _ if self.stop_by.is_some() => Err(Refusal::Stopping),
            Command::ExportAdd(addition) => return self.add_export(addition, reply),
            Command::QuotaSet(setting) => return self.set_quota(&setting, reply),
            Command::QuotaRemove(id) => return self.remove_quota(id, reply),
            Command::LockRelease(order) => return self.release_locks(order, reply),
            Command::LockList => self.list_locks(),
            Command::QuotaList => self.list_quotas(),
            Command::ExportList => self.list_exports(),
            Command::ExportSet(id, change) => self.set_export(id, change),
            Command::ExportRemove(id) => self.remove_export(id),
            Command::Status => {
                let uptime = now().since(self.started);
                report::status(&self.host, &self.surroundings, uptime, self.names.len())
            }
            Command::ScrubStatus => report::scrub(&self.host),
            Command::ScrubStart => self.start_scrub(),
            Command::NodeStop(number) => self.stop_node(number),
            Command::NodeStart(number) => self.order_start(number),
        };
        // The asker may have gone away meanwhile.
        let _ = reply.send(answer);
    }

    fn start_scrub(&mut self) -> Answer {
        let started = self.host.start_scrub(now(), wall_time());
        started.map_err(Refusal::Conflict)?;
        report::scrub(&self.host)
    }

    fn stop_node(&mut self, number: u32) -> Answer {
        let stopped = self.host.stop_node(now(), wall_time(), number);
        stopped.map_err(Refusal::Conflict)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.index = None;
            info!(node = number, "node stopped");
        }
        Ok(serde_json::json!({"node": number, "state": "stopped"}))
    }

    fn order_start(&mut self, number: u32) -> Answer {
        self.host.can_start(number).map_err(Refusal::Conflict)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.starts = true;
        }
        Ok(serde_json::json!({"node": number, "state": "opening"}))
    }

    /// Opens a node's files.
    fn add_node(&mut self, number: u32, directory: &std::path::Path) -> anyhow::Result<()> {
        let (journal, data) = data::open_disks(directory)?;
        if !data.is_direct() {
            warn!(
                directory = %directory.display(),
                "this file system has no direct I/O: disks work through the page cache, which costs memory and speed"
            );
        }
        let journal = self
            .driver
            .add_disk(journal)
            .context("cannot serve the journal")?;
        let data = self
            .driver
            .add_disk(data)
            .context("cannot serve the data file")?;
        self.disks.insert(journal, (number, StoreDisk::Journal));
        self.disks.insert(data, (number, StoreDisk::Data));
        let node = NodeShell {
            journal,
            data,
            boot: Boot(0),
            index: None,
            index_thread: None,
            in_flight: 0,
            starts: false,
        };
        self.nodes.insert(number, node);
        Ok(())
    }

    /// Starts the nodes that wait for it, once their disks are idle: nothing of
    /// an earlier boot may land later.
    fn start_nodes(&mut self) -> anyhow::Result<()> {
        let ready: Vec<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.starts && node.in_flight == 0)
            .map(|(&number, _)| number)
            .collect();
        ready
            .into_iter()
            .try_for_each(|number| self.start_node(number))
    }

    fn start_node(&mut self, number: u32) -> anyhow::Result<()> {
        let directory = usize::try_from(number)
            .ok()
            .and_then(|number| self.node_directories.get(number))
            .with_context(|| format!("there is no node {number}"))?;
        self.boots_total += 1;
        let boot = Boot(self.boots_total);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.starts = false;
            if let Some(thread) = node.index_thread.take() {
                let _ = thread.join(); // It ends when its sender is gone.
            }
        }
        let (index, thread) = self.start_index(number, boot, data::open_index(directory)?)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.boot = boot;
            node.index = Some(index);
            node.index_thread = Some(thread);
        }
        let incarnation = data::random_u64()?;
        self.host
            .start_node(now(), wall_time(), number, boot, incarnation)
            .map_err(anyhow::Error::msg)
    }

    /// The index of a node on a thread of its own: redb is never on the path of
    /// a client's request.
    fn start_index(
        &self,
        number: u32,
        boot: Boot,
        disk: crossdock_disk::FileBlockingDisk,
    ) -> anyhow::Result<(mpsc::Sender<IndexRequest>, thread::JoinHandle<()>)> {
        let mut index =
            Index::open(Box::new(disk)).with_context(|| format!("the index of node {number}"))?;
        let (requests, received) = mpsc::channel();
        let replies = self.index_sender.clone();
        let cpus = self.other_cpus.clone();
        let thread = thread::Builder::new()
            .name(format!("index-{number}"))
            .spawn(move || {
                if !cpus.is_empty() {
                    // Without it the index shares our CPU: slower, not wrong.
                    let _ = crossdock_net::allow_cpus(&cpus);
                }
                while let Ok(request) = received.recv() {
                    if replies.send((number, boot, index.handle(request))).is_err() {
                        return;
                    }
                }
            })?;
        Ok((requests, thread))
    }
}

fn wall_time() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallTime(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
