//! The data thread: drives the host's machines with the event loop, the index
//! threads and the orders of other threads. No policy.

mod address_orders;
mod addresses;
mod clients;
mod depots;
mod doors;
mod ensemble;
mod exnode_orders;
mod exports;
mod figures;
mod gateway_orders;
mod http;
mod https;
mod imports;
mod inflate;
mod inject;
mod iscsi;
mod lbone;
mod links;
mod locks;
mod luns;
mod nodes;
mod objects;
mod orders;
mod placing;
mod policy;
mod quotas;
mod secure;
mod set_changes;
mod sets;
mod token_orders;
mod transfer;
mod waiting;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use crossdock_delivery::Switches;
use crossdock_host::{
    AddressTicket, Boot, ColumnsTicket, ExportTicket, GatewayTicket, Host, HostEffect, HostInput,
    LunTicket, PolicyTicket, QuotaTicket, ReleaseTicket, TokenTicket,
};
use crossdock_http::HttpInput;
use crossdock_iscsi::IscsiInput;
use crossdock_net::{DiskId, Driver, Event, ListenerId, Receiver, Sender, now};
use crossdock_objects::ObjectDoorInput;
use crossdock_peer::Network;
use crossdock_sets::DiskNumber;
use crossdock_store::{IndexReply, StoreDisk, StoreInput};
use crossdock_types::{Time, WallTime};
use crossdock_web::{TokenSecret, UrlPath};
use tracing::{debug, error, info, warn};

use crate::notify;
use crate::report::Surroundings;
use crate::sets::OpenSets;

pub(crate) use addresses::Addresses;
use clients::Clients;
use depots::Depots;
use doors::Doors;
pub(crate) use doors::NfsSockets;
pub(crate) use ensemble::Ensemble;
use http::Web;
pub(crate) use https::{Https, TlsFiles};
use imports::Imports;
pub(crate) use inflate::Inflating;
pub(crate) use inject::Injector;
use lbone::Lbone;
pub(crate) use links::Links;
use nodes::NodeShell;
pub(crate) use orders::{Order, RemoteControl};
pub(crate) use secure::Security;
pub(crate) use set_changes::Retiring;
pub(crate) use sets::NodeDisks;
use waiting::Waiting;

/// Answers of index threads that wait for the data thread.
const INDEX_REPLIES_MAX: usize = 4096;

/// How long a graceful stop may take.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

/// How long the last answers may take to leave: who does not read them asks again.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// What the data thread begins with.
pub(crate) struct Parts {
    pub(crate) host: Host,
    pub(crate) driver: Driver,
    /// Where the nodes of this process keep what they hold, by number.
    pub(crate) node_directories: BTreeMap<u32, PathBuf>,
    /// Those that have their data on sets of disks.
    pub(crate) node_sets: BTreeMap<u32, OpenSets>,
    /// Bytes per second that a set copies at most to a disk that takes another one's place.
    pub(crate) set_rebuild_rate: u64,
    pub(crate) nfs: Vec<NfsSockets>,
    pub(crate) http: Vec<ListenerId>,
    pub(crate) iscsi: Vec<ListenerId>,
    /// Where clients of nodes connect.
    pub(crate) node_http: Vec<ListenerId>,
    /// Where clients of each node's depot connect, by number.
    pub(crate) depots: BTreeMap<u32, Vec<ListenerId>>,
    /// Which mechanisms of delivery are on.
    pub(crate) delivery: Switches,
    /// Of a gateway: where files may be imported from, besides the volume's depots.
    pub(crate) import_from: Vec<Network>,
    /// Of a gateway: if nodes may send to its clients.
    pub(crate) injector: Injector,
    /// Of a node: if it sends to clients of gateways. Of a gateway: if it does what no node can.
    pub(crate) inflating: Option<Inflating>,
    /// If HTTP clients are to talk over TLS.
    pub(crate) https: Option<Https>,
    /// If clients of nodes are.
    pub(crate) node_https: Option<Https>,
    /// The others, unless this process is everything.
    pub(crate) ensemble: Option<Ensemble>,
    pub(crate) orders: Receiver<Order>,
    pub(crate) surroundings: Surroundings,
}

/// What a disk is there for.
#[derive(Clone, Copy, Debug)]
enum DiskRole {
    Store(u32, StoreDisk),
    /// Of a node's sets.
    Member(u32, DiskNumber),
}

/// The data thread's state.
pub(crate) struct Shell {
    host: Host,
    driver: Driver,
    nodes: BTreeMap<u32, NodeShell>,
    disks: BTreeMap<DiskId, DiskRole>,
    set_rebuild_rate: u64,
    doors: Doors,
    web: Web,
    injector: Injector,
    inflating: Option<Inflating>,
    objects: Clients,
    depots: Depots,
    initiators: Clients,
    ensemble: Option<Ensemble>,
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
    /// Who waits for an export to be added, changed or removed, and what it is
    /// called then.
    export_replies: Waiting<ExportTicket, &'static str>,
    /// Who waits for a virtual address to be added or removed.
    address_replies: Waiting<AddressTicket>,
    /// Who waits for a gateway to be revoked or restored.
    gateway_replies: Waiting<GatewayTicket>,
    /// The same for rules of the policy.
    policy_replies: Waiting<PolicyTicket, &'static str>,
    /// The same for LUNs.
    lun_replies: Waiting<LunTicket, &'static str>,
    /// Who waits for a bearer token to be made, with its secret, or revoked.
    token_replies: Waiting<TokenTicket, Option<TokenSecret>>,
    /// Who waits for URLs at nodes to be signed.
    column_replies: Waiting<ColumnsTicket, UrlPath>,
    imports: Imports,
    lbone: Option<Lbone>,
    /// Who waits for a quota to be set or removed, and what it is called then.
    quota_replies: Waiting<QuotaTicket, &'static str>,
    /// Who waits for locks to be given up, and whose.
    release_replies: Waiting<ReleaseTicket, String>,
    /// Who waits for disks to keep that a set goes, or stays.
    label_waiting: Vec<(
        sets::Labelling,
        tokio::sync::oneshot::Sender<crossdock_admin::Answer>,
    )>,
    /// Who waits for nodes to come or go.
    place_replies: Vec<placing::Pending>,
    /// The CPUs of all threads but this one, once it has one of its own.
    other_cpus: Vec<usize>,
    failure: Option<String>,
}

impl Shell {
    /// Opens the nodes' files and begins to open their stores.
    pub(crate) fn start(parts: Parts) -> anyhow::Result<Self> {
        let waker = parts.driver.waker();
        let (index_sender, index_replies) = crossdock_net::channel(INDEX_REPLIES_MAX, waker);
        let depots = Depots::new(parts.depots, &parts.driver);
        let mut shell = Self {
            host: parts.host,
            driver: parts.driver,
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            set_rebuild_rate: parts.set_rebuild_rate,
            doors: Doors::new(parts.nfs),
            web: Web::new(parts.http, parts.https, parts.delivery),
            injector: parts.injector,
            inflating: parts.inflating,
            objects: Clients::new(parts.node_http, parts.node_https, true),
            depots,
            initiators: Clients::new(parts.iscsi, None, false),
            ensemble: parts.ensemble,
            turns_total: 0,
            told: figures::Told::default(),
            boots_total: 0,
            orders: parts.orders,
            index_sender,
            index_replies,
            started: now(),
            stop_by: None,
            is_quiet: false,
            surroundings: parts.surroundings,
            export_replies: Waiting::new(),
            address_replies: Waiting::new(),
            gateway_replies: Waiting::new(),
            policy_replies: Waiting::new(),
            lun_replies: Waiting::new(),
            token_replies: Waiting::new(),
            column_replies: Waiting::new(),
            imports: Imports::new(parts.import_from),
            lbone: None,
            quota_replies: Waiting::new(),
            release_replies: Waiting::new(),
            label_waiting: Vec::new(),
            place_replies: Vec::new(),
            other_cpus: Vec::new(),
            failure: None,
        };
        let mut sets = parts.node_sets;
        for (number, directory) in parts.node_directories {
            shell.add_node(number, &directory, sets.remove(&number))?;
        }
        for number in shell.host.nodes_to_start() {
            shell.start_node(number)?;
        }
        if let Some(inflating) = &shell.inflating {
            inflating.show(&mut shell.host)?;
        }
        if shell.injector.figures().is_some() {
            shell.host.keep_hot();
        }
        // A host without nodes joins at once.
        shell.give(HostInput::Timeout);
        Ok(shell)
    }

    /// Turns the loop until every part serves.
    pub(crate) fn run_until_ready(&mut self) -> anyhow::Result<()> {
        while !self.is_ready() {
            if self.stop_by.is_some() {
                bail!("stopped before it was ready");
            }
            self.turn()?;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        match &self.ensemble {
            Some(ensemble) => ensemble.is_ready(&self.host),
            None => self.host.is_ready() && self.host.knows_handles(),
        }
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
        self.flush()?;
        if let Some(ensemble) = self.ensemble.take() {
            ensemble.leave();
        }
        info!("stopped");
        Ok(())
    }

    /// Hands what was answered last to the kernel.
    fn flush(&mut self) -> anyhow::Result<()> {
        let deadline = now() + FLUSH_PATIENCE;
        while self.has_unsent() && now() < deadline {
            self.driver
                .wait(Some(deadline))
                .context("the event loop has failed")?;
            while self.driver.next_event().is_some() {}
            self.tell_sent();
            self.tell_http_sent();
            self.tell_iscsi_sent();
            self.tell_objects_sent();
            self.tell_depots_sent();
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        let ensemble = self.ensemble.as_ref();
        self.doors.has_unsent()
            || self.web.has_unsent()
            || self.objects.has_unsent()
            || self.depots.has_unsent()
            || self.initiators.has_unsent()
            || ensemble.is_some_and(|ensemble| ensemble.links.has_unsent())
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
        let links = self.ensemble.as_ref();
        let links = links.and_then(|ensemble| ensemble.links.poll_timeout());
        let placing = self.placing_due();
        let due = self.host.poll_timeout();
        let tunnel = self.host.tunnel_due();
        let injected = self.injector.due();
        let sets = self.sets_due();
        let until = [due, links, placing, tunnel, injected, sets, self.stop_by];
        self.injector.flush();
        let until = match self.injector.sleeps() {
            true => until.into_iter().flatten().min(),
            false => Some(now()),
        };
        self.driver
            .wait(until)
            .context("the event loop has failed")?;
        self.injector.wakes();
        while let Some(event) = self.driver.next_event() {
            self.take_event(event);
        }
        self.send_filled();
        self.mind_injected();
        self.tell_sent();
        self.tell_http_sent();
        self.tell_iscsi_sent();
        self.tell_objects_sent();
        self.tell_depots_sent();
        self.mind_others();
        let time = now();
        self.mind_sets(time);
        self.settle_figures(time);
        // What events have made due since then is so in the next turn.
        if due.is_some_and(|due| due <= time) {
            self.give(HostInput::Timeout);
        }
        self.tell_links_sent(time);
        self.answer_placed();
        Ok(())
    }

    fn give(&mut self, input: HostInput) {
        self.host.gather(now(), wall_time(), input);
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Disk(disk, completion) => self.take_disk(disk, completion),
            Event::Woken => self.take_woken(),
            Event::Timeout | Event::Writable { .. } => {} // See `turn` and `tell_sent`.
            event => {
                let others = self.take_link_event(event);
                let others = others.and_then(|event| self.take_tunnel_event(event));
                let others = others.and_then(|event| self.take_caught_event(event));
                let others = others.and_then(|event| self.take_http_event(event));
                let others = others.and_then(|event| self.take_iscsi_event(event));
                let others = others.and_then(|event| self.take_object_event(event));
                if let Some(event) = others.and_then(|event| self.take_depot_event(event)) {
                    self.take_door_event(event);
                }
            }
        }
        self.carry_out_effects();
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
        self.take_dialed_depots();
        self.take_notices();
        self.take_orders();
    }

    fn carry_out_effects(&mut self) {
        loop {
            while let Some(effect) = self.host.poll_effect() {
                self.take_effect(effect);
            }
            // What other hosts have sent has effects of its own.
            if !self.carry_links() {
                return;
            }
        }
    }

    fn take_effect(&mut self, effect: HostEffect) {
        match effect {
            HostEffect::Door(effect) => self.take_door_effect(effect),
            HostEffect::Http(effect) => self.take_http_effect(effect),
            HostEffect::Iscsi(effect) => self.take_iscsi_effect(effect),
            HostEffect::Objects(effect) => self.take_object_effect(effect),
            HostEffect::Depot { number, effect } => self.take_depot_effect(number, effect),
            HostEffect::Disk {
                number,
                disk,
                request,
            } => self.submit(number, disk, request),
            HostEffect::Index { number, request } => self.ask_index(number, request),
            HostEffect::Scrubbed { number } => self.make_agree(number),
            HostEffect::Evacuated { number } => self.take_evacuated(number),
            HostEffect::NodeOpened { number, result } => match result {
                Ok(()) => info!(node = number, "node serves"),
                Err(reason) if self.host.is_ready() => {
                    error!(node = number, %reason, "node failed")
                }
                Err(reason) => self.failure = Some(self.describe_failure(number, &reason)),
            },
            HostEffect::ExportChanged { ticket, result } => {
                self.take_export_changed(ticket, result);
            }
            HostEffect::AddressChanged { ticket, result } => {
                self.take_address_changed(ticket, result);
            }
            HostEffect::GatewayChanged { ticket, result } => {
                self.take_gateway_changed(ticket, result);
            }
            HostEffect::TokenChanged { ticket, result } => self.take_token_changed(ticket, result),
            HostEffect::PolicyChanged { ticket, result } => {
                self.take_policy_changed(ticket, result);
            }
            HostEffect::LunChanged { ticket, result } => self.take_lun_changed(ticket, result),
            HostEffect::FileShared { ticket, file } => self.take_file_shared(ticket, *file),
            HostEffect::ColumnsSigned { ticket, result } => {
                self.take_columns_signed(ticket, result);
            }
            HostEffect::QuotaChanged { ticket, result } => self.take_quota_changed(ticket, result),
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
            HostEffect::Withdrawn {
                number,
                requests,
                bytes,
            } => {
                info!(
                    node = number,
                    requests, bytes, "reads that nobody waits for any more were withdrawn"
                );
            }
            HostEffect::Postponed { number, requests } => {
                debug!(node = number, requests, "reads were postponed");
            }
            HostEffect::DiskFailed { number, reason } => {
                error!(node = number, %reason, "a disk takes no writes any more");
            }
            HostEffect::Send { to, sent } => self.send_to(to, *sent),
            HostEffect::Propose(change) => self.propose(change),
            HostEffect::Addresses(held) => self.have_addresses(&held),
            HostEffect::WakeClients { at, clients } => self.wake_clients(at, clients),
            HostEffect::TunnelOpened {
                holder,
                address,
                key,
                is_node,
            } => self.injector.connect(holder, address, key, is_node),
            HostEffect::TunnelClosed(holder) => self.injector.disconnect(holder),
            HostEffect::Unfilled { holder, pins } => self.injector.disown(holder, &pins),
            HostEffect::Refilled { ticket, found } => {
                self.injector.refilled(&mut self.driver, ticket, found);
            }
            HostEffect::Warning(what) => warn!("{what}"),
            HostEffect::Failed(reason) => self.failure = Some(reason),
            HostEffect::Retired => self.stop(),
            HostEffect::Quiet => self.is_quiet = true,
        }
    }

    fn stop(&mut self) {
        if self.stop_by.is_some() {
            return;
        }
        info!("stopping: finishing what is in progress");
        notify::tell(notify::STOPPING);
        self.stop_by = Some(now() + DRAIN_PATIENCE);
        self.doors.stop(&mut self.driver);
        self.web.stop(&mut self.driver);
        self.objects.stop(&mut self.driver);
        self.depots.stop(&mut self.driver);
        self.initiators.stop(&mut self.driver);
        self.give(HostInput::Iscsi(IscsiInput::Stop));
        self.give(HostInput::Http(HttpInput::Stop));
        self.give(HostInput::Objects(ObjectDoorInput::Stop));
        self.host.stop_depots();
        self.host.drain(now(), wall_time());
    }
}

fn wall_time() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallTime(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
