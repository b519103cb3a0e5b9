//! The host's queue: every message to every machine goes through here.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossdock_depot::{DepotEffect, DepotInput};
use crossdock_disk::DiskRequest;
use crossdock_http::{HttpConfig, HttpDoor, HttpEffect, HttpInput};
use crossdock_iscsi::{IscsiConfig, IscsiDoor, IscsiEffect, IscsiInput, LunTable, Portals};
use crossdock_link::{CallRef, Role, Stamped};
use crossdock_locks::Holdings;
use crossdock_members::{
    AddressRecord, Change, ExportRecord, HostRecord, OpenError, PolicyRecord, Registry, State,
    VirtualAddress,
};
use crossdock_names::{HostId, MintingKey, NodeId, RoutingTable, SiteId};
use crossdock_nfs::{NfsDoor, NfsEffect, NfsInput};
use crossdock_objects::{ObjectDoor, ObjectDoorConfig, ObjectDoorEffect, ObjectDoorInput};
use crossdock_peer::{Lun, NodeError, NodeReply, Policy, Port, WriterId};
use crossdock_router::{Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_server::{NodeEffect, NodeInput};
use crossdock_site::Site;
use crossdock_store::{IndexRequest, StoreDisk, StoreInput};
use crossdock_tunnel::TunnelKey;
use crossdock_types::{Extent, Time, WallTime};
use crossdock_web::{ObjectGate, TokenRecord};

use crate::access::Access;
use crate::address_orders::{AddressChange, AddressError, AddressTicket};
use crate::addresses::Addresses;
use crate::clocks::Clocks;
use crate::columns::{ColumnsError, ColumnsTicket, SharedFile, SignedColumns, Signings};
use crate::defrag::Defrag;
use crate::depots::DepotSettings;
use crate::evacuation::{DataRoom, Evacuation};
use crate::exports::{ExportChange, ExportError, ExportTicket};
use crate::fsck::Fsck;
use crate::gateway_orders::{GatewayChange, GatewayError, GatewayOrder, GatewayTicket};
use crate::iscsi::{Obedience, ReserveChange};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::lending::Lending;
use crate::locks::{ReleaseError, ReleaseTicket};
use crate::luns::{LunChange, LunError, LunTicket};
use crate::members::Following;
use crate::message::{Message, Shown};
#[cfg(feature = "mutations")]
use crate::mutation::Mutation;
use crate::nodes::{Boot, Drain, NodeSettings, NodeSlot, NodeState};
use crate::peers::Peers;
use crate::placing::Absences;
use crate::policy::{PolicyChange, PolicyError, PolicyTicket};
use crate::profiles::DiskProfile;
use crate::quotas::{PlacedQuota, QuotaError, QuotaTicket};
use crate::refill::Refills;
use crate::replicas::Replicas;
use crate::scope::Scopes;
use crate::space::{Load, NodeSpace};
use crate::sweep::Sweeps;
use crate::transfer::Transfers;
use crate::walks::Walk;
use crate::watch::ScrubProgress;
use crate::web::{TokenChange, TokenError, TokenTicket, Web};

/// What a host is made from.
pub struct HostConfig {
    /// The registry, opened.
    pub registry: Registry,
    /// What this host is, if the registry is shared with others; else it is
    /// everything.
    pub role: HostRecord,
    /// How stores are set up.
    pub nodes: NodeSettings,
    /// Bytes that the NFS door may hold.
    pub request_bytes: usize,
    /// How the HTTP door is set up, whether anybody can reach it or not.
    pub http: HttpConfig,
    /// How the iSCSI door is, likewise.
    pub iscsi: IscsiConfig,
    /// A random number of this process: it names the gateway's instance.
    pub instance: u64,
    /// A random secret of this process: a manager makes capabilities with it.
    pub minting: MintingKey,
    /// Another one: what the ensemble's proofs are made with from now on, if there is no
    /// key for them yet and one is wanted.
    pub proving: [u8; 32],
    /// Another one: what handles are made with by gateways without a scope, if the volume
    /// is new.
    pub handling: [u8; 32],
    /// How long only reclaims of locks are taken after a restart, at most.
    pub grace: Duration,
}

/// What can happen to a host.
#[derive(Debug)]
pub enum HostInput {
    /// Something happened at the NFS door's sockets.
    Door(NfsInput),
    /// Something happened at the HTTP door's sockets.
    Http(HttpInput),
    /// Something happened at the iSCSI door's sockets.
    Iscsi(IscsiInput),
    /// Something happened at the sockets of the nodes' HTTP door.
    Objects(ObjectDoorInput),
    /// Something happened at the sockets of a node's depot.
    Depot {
        /// The node's number.
        number: u32,
        /// What.
        input: DepotInput,
    },
    /// A disk or an index of a node answered.
    Store {
        /// The node's number.
        number: u32,
        /// For which start of its store it was opened.
        boot: Boot,
        /// What.
        input: StoreInput,
    },
    /// A connection to another host is there.
    Connected {
        /// Which.
        peer: HostId,
        /// What it does; over TLS its certificate says so, too.
        role: Role,
        /// What its certificate calls a gateway.
        gateway: Option<Arc<str>>,
    },
    /// It has ended: what was sent over it and not answered may have been done.
    Disconnected(HostId),
    /// A message of another host.
    Frame {
        /// Which.
        from: HostId,
        /// What.
        sent: Box<Stamped>,
    },
    /// A call to another host was not sent: there is no room.
    Unsent {
        /// To whom.
        to: HostId,
        /// Which.
        call: CallRef,
    },
    /// The shared registry's state of a later revision.
    Registry {
        /// Grows with every change.
        revision: u64,
        /// All of it.
        state: Box<State>,
    },
    /// The shared registry has heard of this host: nobody takes its place before then.
    Heard(Time),
    /// Somebody has connected to a virtual address of this host, or is gone.
    Client {
        /// The address, and the door's port.
        at: SocketAddr,
        /// Who.
        client: SocketAddr,
        /// Whether the connection is there.
        is_open: bool,
    },
    /// The shared registry has not heard of a host for too long.
    Expired(HostId),
    /// The time of [`Host::poll_timeout`] has come.
    Timeout,
}

/// What a host wants done.
#[derive(Debug)]
pub enum HostEffect {
    /// Something at the NFS door's sockets.
    Door(NfsEffect),
    /// Something at the HTTP door's sockets.
    Http(HttpEffect),
    /// Something at the iSCSI door's sockets.
    Iscsi(IscsiEffect),
    /// Something at the sockets of the nodes' HTTP door.
    Objects(ObjectDoorEffect),
    /// Something at the sockets of a node's depot.
    Depot {
        /// The node's number.
        number: u32,
        /// What.
        effect: DepotEffect,
    },
    /// A request to a node's disk.
    Disk {
        /// The node's number.
        number: u32,
        /// Which of its disks.
        disk: StoreDisk,
        /// What.
        request: DiskRequest,
    },
    /// A request to a node's index.
    Index {
        /// The node's number.
        number: u32,
        /// What.
        request: IndexRequest,
    },
    /// A node's store serves, or why it cannot.
    NodeOpened {
        /// The node's number.
        number: u32,
        /// What came of it.
        result: Result<(), String>,
    },
    /// All of a node whose disks differ has been read, and mended where it was wrong.
    Scrubbed {
        /// The node's number.
        number: u32,
    },
    /// Nothing lies any more where nothing is to lie on a node's data disk.
    Evacuated {
        /// The node's number.
        number: u32,
    },
    /// What came of [`Host::add_export`], [`Host::set_export`] or
    /// [`Host::remove_export`]: the export as it is now, or was.
    ExportChanged {
        /// Of which.
        ticket: ExportTicket,
        /// What.
        result: Result<ExportRecord, ExportError>,
    },
    /// What came of [`Host::order_address`]: the address as it is now, or was.
    AddressChanged {
        /// Of which.
        ticket: AddressTicket,
        /// What.
        result: Result<AddressRecord, AddressError>,
    },
    /// What came of [`Host::order_gateway`]: the order as it was carried out.
    GatewayChanged {
        /// Of which.
        ticket: GatewayTicket,
        /// What.
        result: Result<GatewayOrder, GatewayError>,
    },
    /// What came of [`Host::add_token`] or [`Host::remove_token`]: the token as it is
    /// now, or was.
    TokenChanged {
        /// Of which.
        ticket: TokenTicket,
        /// What.
        result: Result<TokenRecord, TokenError>,
    },
    /// What came of [`Host::set_policy`] or [`Host::remove_policy`]: the rule as it is now,
    /// or was.
    PolicyChanged {
        /// Of which.
        ticket: PolicyTicket,
        /// What.
        result: Result<PolicyRecord, PolicyError>,
    },
    /// What came of an order about LUNs: the LUN as it is now, or was.
    LunChanged {
        /// Of which.
        ticket: LunTicket,
        /// What.
        result: Result<Lun, LunError>,
    },
    /// What came of [`Host::share_file`].
    FileShared {
        /// Of which.
        ticket: ColumnsTicket,
        /// What is to be known of the file, and the capabilities.
        file: Box<SharedFile>,
    },
    /// What came of [`Host::sign_columns`], or why nothing did of [`Host::share_file`].
    ColumnsSigned {
        /// Of which.
        ticket: ColumnsTicket,
        /// What.
        result: Result<SignedColumns, ColumnsError>,
    },
    /// What came of [`Host::set_quota`] or [`Host::remove_quota`]: the quota as
    /// it is now, or was.
    QuotaChanged {
        /// Of which.
        ticket: QuotaTicket,
        /// What.
        result: Result<PlacedQuota, QuotaError>,
    },
    /// What came of [`Host::release_locks`]: what the clients had.
    LocksReleased {
        /// Of which.
        ticket: ReleaseTicket,
        /// What.
        result: Result<Holdings, ReleaseError>,
    },
    /// A block of a node could not be read.
    Damage {
        /// The node's number.
        number: u32,
        /// The object that it belongs to.
        object: String,
        /// Where in the object, in bytes.
        offset_bytes: u64,
        /// What the disk said.
        what: String,
        /// Another member's block has taken its place.
        is_repaired: bool,
    },
    /// Reads of a node were cancelled before its disk had got what they wanted.
    Withdrawn {
        /// The node's number.
        number: u32,
        /// Disk requests that were taken out in this turn.
        requests: u64,
        /// What they would have read.
        bytes: u64,
    },
    /// Disk requests of a node were moved behind others, in this turn.
    Postponed {
        /// The node's number.
        number: u32,
        /// How many.
        requests: u64,
    },
    /// A disk of a node takes no writes any more, for this reason.
    DiskFailed {
        /// The node's number.
        number: u32,
        /// What happened.
        reason: String,
    },
    /// A message for another host.
    Send {
        /// Which.
        to: HostId,
        /// What.
        sent: Box<Stamped>,
    },
    /// A change for the shared registry, to be carried out there in this host's
    /// name ([`State::apply_by`]); repeated until it is.
    Propose(Change),
    /// The virtual addresses that this host has, all of them. Each is to be gone by
    /// itself [`ADDRESS_LIFETIME`](crate::ADDRESS_LIFETIME) after it was named last.
    Addresses(Vec<VirtualAddress>),
    /// A virtual address is here now: these were connected to it elsewhere, and wait
    /// for answers that nobody gives any more.
    WakeClients {
        /// The address, and the door's port.
        at: SocketAddr,
        /// Who.
        clients: Vec<SocketAddr>,
    },
    /// A host with nodes, another gateway or this one itself fills packets of this gateway, from
    /// now on.
    TunnelOpened {
        /// Which.
        holder: HostId,
        /// Where it takes them.
        address: SocketAddr,
        /// What proves that they are this gateway's.
        key: TunnelKey,
        /// It has nodes: what is read may come from there.
        is_node: bool,
    },
    /// It does not any more.
    TunnelClosed(HostId),
    /// It does not send what it is told of some pins: others have to.
    Unfilled {
        /// Which.
        holder: HostId,
        /// What it does not have, or for whom.
        pins: Vec<u64>,
    },
    /// What came of [`Host::refill`]: who holds the bytes now, if anybody does.
    Refilled {
        /// Of which.
        ticket: u64,
        /// In place of what was lost.
        found: Option<Extent>,
    },
    /// Something that an administrator should know.
    Warning(String),
    /// The host cannot go on, for this reason.
    Failed(String),
    /// An administrator wants this manager to end: [`Host::drain`] is to be called.
    Retired,
    /// After [`Host::drain`]: nothing is in memory only.
    Quiet,
}

/// All roles of one host.
pub struct Host {
    pub(crate) registry: Registry,
    pub(crate) role: HostRecord,
    pub(crate) peers: Peers,
    pub(crate) access: Access,
    pub(crate) scopes: Scopes,
    pub(crate) keys: Keys,
    pub(crate) transfers: Transfers,
    pub(crate) refills: Refills,
    pub(crate) lending: Lending,
    pub(crate) web: Web,
    pub(crate) following: Following,
    pub(crate) leases: Leases,
    /// Of files, of sites that were open here before.
    pub(crate) leases_end: BTreeMap<SiteId, Time>,
    pub(crate) addresses: Addresses,
    pub(crate) settings: NodeSettings,
    pub(crate) table: Arc<RoutingTable>,
    pub(crate) nodes: BTreeMap<NodeId, NodeSlot>,
    pub(crate) sites: BTreeMap<SiteId, Site>,
    pub(crate) router: Router,
    pub(crate) door: NfsDoor,
    pub(crate) http: HttpDoor,
    pub(crate) iscsi: IscsiDoor,
    /// The LUNs, as that door knows them.
    pub(crate) luns: Arc<LunTable>,
    /// Where the iSCSI door was told that initiators connect.
    pub(crate) portals: Portals,
    /// Changes of them that are not in the registry yet.
    pub(crate) lun_changes: Vec<LunChange>,
    /// The same of their reservations.
    pub(crate) reserve_changes: Vec<ReserveChange>,
    pub(crate) obedience: Obedience,
    pub(crate) objects: ObjectDoor,
    /// What that door was told last.
    pub(crate) object_gate: ObjectGate,
    /// How depots of nodes are set up, if there are any.
    pub(crate) depots: Option<DepotSettings>,
    pub(crate) signings: Signings,
    pub(crate) queue: VecDeque<Message>,
    /// Whose turn has begun.
    pub(crate) sites_at_work: Vec<SiteId>,
    /// When sites want a timeout; there may be hundreds, and few have work.
    pub(crate) site_dues: BTreeMap<SiteId, Time>,
    nodes_at_work: Vec<NodeId>,
    pub(crate) effects: VecDeque<HostEffect>,
    pub(crate) scrub: ScrubProgress,
    pub(crate) defrag: Defrag,
    /// What is said of nodes' data disks, by number; the others are as the settings say.
    pub(crate) data_rooms: BTreeMap<u32, DataRoom>,
    pub(crate) evacuations: BTreeMap<u32, Evacuation>,
    pub(crate) replicas: Replicas,
    pub(crate) sweeps: Sweeps,
    pub(crate) fsck: Fsck,
    pub(crate) absences: Absences,
    pub(crate) space_due: Time,
    pub(crate) space_patience: u32,
    pub(crate) clocks: Clocks,
    /// What every node has, as far as it was heard of.
    pub(crate) spaces: BTreeMap<NodeId, NodeSpace>,
    pub(crate) loads: BTreeMap<NodeId, Load>,
    /// How fast the disk of every node is, as far as it was heard of.
    pub(crate) profiles: BTreeMap<NodeId, DiskProfile>,
    pub(crate) is_ready: bool,
    pub(crate) drain: Drain,
    /// When a graceful stop waits no longer for what a node that is away holds
    /// up, and whether that time has come.
    pub(crate) drain_due: Option<Time>,
    pub(crate) is_drain_late: bool,
    pub(crate) requests: u64,
    pub(crate) tool_replies: VecDeque<NodeReply>,
    /// Paths on their way to their directories.
    pub(crate) walks: BTreeMap<u64, Walk>,
    pub(crate) walks_total: u64,
    /// Changes of exports that are not in the registry yet.
    pub(crate) export_changes: Vec<ExportChange>,
    /// The same of virtual addresses.
    pub(crate) address_changes: Vec<AddressChange>,
    /// The same of gateways.
    pub(crate) gateway_changes: Vec<GatewayChange>,
    /// The same of bearer tokens.
    pub(crate) token_changes: Vec<TokenChange>,
    /// Which way bytes go to clients, as the doors know it.
    pub(crate) policy: Arc<Policy>,
    /// Whether the gateway keeps what is read again and again.
    pub(crate) keeps_hot: bool,
    /// Changes of it that are not in the registry yet.
    pub(crate) policy_changes: Vec<PolicyChange>,
    /// Nodes that have been opened while the host was serving.
    pub(crate) started: Vec<NodeId>,
    /// Numbers of nodes that serve since just now.
    pub(crate) opened: Vec<u32>,
    instance: u64,
    pub(crate) grace: Duration,
    #[cfg(feature = "mutations")]
    pub(crate) mutation: Option<Mutation>,
}

impl Host {
    /// A host whose nodes are all down; start them with
    /// [`start_node`](Self::start_node).
    ///
    /// Every start raises all epochs first, so that nothing of an earlier one
    /// counts any more; with a shared registry, those of what it takes by joining.
    ///
    /// # Errors
    /// If the registry cannot be written.
    pub fn new(config: HostConfig) -> Result<Self, OpenError> {
        let HostConfig {
            mut registry,
            role,
            nodes: settings,
            request_bytes,
            http,
            iscsi,
            instance,
            minting,
            proving,
            handling,
            grace,
        } = config;
        if !registry.is_shared() {
            registry.change(Change::RaiseAll)?;
        }
        let is_shared = registry.is_shared();
        let is_here = |node: u64| !is_shared || role.nodes.contains(&node);
        let state = registry.state();
        let has_schedule = state.defrag.is_some();
        let table = Arc::new(state.table());
        let nodes = state
            .nodes
            .iter()
            .filter(|record| is_here(record.id))
            .map(|record| (NodeId(record.id), NodeSlot::down(record)))
            .collect();
        let router = Router::new(RouterConfig::new(WriterId(instance)), Arc::clone(&table));
        let door = NfsDoor::new(crate::sites::door_config(
            state,
            request_bytes,
            http.delivery.switches,
        ));
        let mut host = Self {
            registry,
            role,
            peers: Peers::default(),
            access: Access::new(minting),
            scopes: Scopes::default(),
            keys: Keys::new(handling, proving),
            transfers: Transfers::default(),
            refills: Refills::default(),
            lending: Lending::default(),
            web: Web::default(),
            following: Following::new(is_shared),
            leases: Leases::default(),
            leases_end: BTreeMap::new(),
            addresses: Addresses::default(),
            settings,
            table,
            nodes,
            sites: BTreeMap::new(),
            router,
            door,
            http: HttpDoor::new(http),
            iscsi: IscsiDoor::new(iscsi),
            luns: Arc::default(),
            portals: Portals::default(),
            lun_changes: Vec::new(),
            reserve_changes: Vec::new(),
            obedience: Obedience::default(),
            objects: ObjectDoor::new(ObjectDoorConfig::default()),
            object_gate: ObjectGate::default(),
            depots: None,
            signings: Signings::default(),
            queue: VecDeque::new(),
            sites_at_work: Vec::new(),
            site_dues: BTreeMap::new(),
            nodes_at_work: Vec::new(),
            effects: VecDeque::new(),
            scrub: ScrubProgress::default(),
            defrag: Defrag::new(has_schedule),
            data_rooms: BTreeMap::new(),
            evacuations: BTreeMap::new(),
            replicas: Replicas::default(),
            sweeps: Sweeps::default(),
            fsck: Fsck::default(),
            absences: Absences::default(),
            space_due: Time::default(),
            space_patience: crate::space::PATIENCE,
            clocks: Clocks::default(),
            spaces: BTreeMap::new(),
            loads: BTreeMap::new(),
            profiles: BTreeMap::new(),
            is_ready: false,
            drain: Drain::Serving,
            drain_due: None,
            is_drain_late: false,
            requests: 0,
            tool_replies: VecDeque::new(),
            walks: BTreeMap::new(),
            walks_total: 0,
            export_changes: Vec::new(),
            address_changes: Vec::new(),
            gateway_changes: Vec::new(),
            token_changes: Vec::new(),
            policy: Arc::default(),
            keeps_hot: false,
            policy_changes: Vec::new(),
            started: Vec::new(),
            opened: Vec::new(),
            instance,
            grace,
            #[cfg(feature = "mutations")]
            mutation: None,
        };
        host.tell_exports();
        host.tell_tokens();
        host.tell_policy();
        host.tell_portals();
        host.tell_luns();
        host.tell_object_gate();
        Ok(host)
    }

    /// Takes one input and carries all messages that follow from it.
    pub fn handle(&mut self, now: Time, wall: WallTime, input: HostInput) {
        self.gather(now, wall, input);
        self.end_turn(now, wall);
    }

    /// The same; logs and journals wait for [`end_turn`](Self::end_turn), so that
    /// inputs that came together share a durable write, and what goes on beside requests
    /// is looked at once for all of them.
    pub fn gather(&mut self, now: Time, wall: WallTime, input: HostInput) {
        self.door.replies_sent(now);
        self.leases.now = now;
        self.access.wall = wall;
        match input {
            HostInput::Door(input) => self.queue.push_back(Message::Door(input)),
            HostInput::Http(input) => self.queue.push_back(Message::Http(input)),
            HostInput::Iscsi(input) => self.queue.push_back(Message::Iscsi(input)),
            HostInput::Objects(input) => self.queue.push_back(Message::Objects(input)),
            HostInput::Depot { number, input } => self.take_depot_input(number, input),
            HostInput::Store {
                number,
                boot,
                input,
            } => self.take_store(number, boot, input),
            HostInput::Connected {
                peer,
                role,
                gateway,
            } => self.take_connected(peer, role, gateway),
            HostInput::Disconnected(peer) => self.take_disconnected(peer),
            HostInput::Frame { from, sent } => self.take_frame(from, *sent),
            HostInput::Unsent { to, call } => self.take_unsent(to, call),
            HostInput::Registry { revision, state } => {
                self.take_news(now, wall, revision, state);
            }
            HostInput::Heard(until) => self.take_heard(now, until),
            HostInput::Client {
                at,
                client,
                is_open,
            } => self.take_client(now, at, client, is_open),
            HostInput::Expired(host) => self.propose_leave(host),
            HostInput::Timeout => self.take_timeout(now, wall),
        }
        self.carry(now, wall);
    }

    /// No more inputs come at the moment.
    pub fn end_turn(&mut self, now: Time, wall: WallTime) {
        self.advance(now, wall);
        self.pump(now, wall);
        self.release_pins(now);
    }

    /// The next thing for the shell to do.
    pub fn poll_effect(&mut self) -> Option<HostEffect> {
        if let Some(change) = self.registry.next_proposal() {
            return Some(HostEffect::Propose(change));
        }
        self.effects.pop_front()
    }

    /// When the host wants [`HostInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let nodes = self
            .nodes
            .values()
            .filter_map(|slot| slot.node.as_ref()?.poll_timeout());
        let sites = self.site_dues.values().copied();
        nodes
            .chain(sites)
            .chain(self.router.poll_timeout())
            .chain(self.door.poll_timeout())
            .chain(self.http.poll_timeout())
            .chain(self.iscsi.poll_timeout())
            .chain(self.objects.poll_timeout())
            .chain(self.depot_due())
            .chain(self.signings.due())
            .chain(self.tells_space().then_some(self.space_due))
            .chain(self.clock_due())
            .chain(self.scrub.step_due)
            .chain(self.defrag.due())
            .chain(self.evacuations.values().filter_map(Evacuation::due))
            .chain(self.fsck.due())
            .chain(self.refills.due())
            .chain(self.release_due())
            .chain(self.drain_due)
            .chain(self.following.again_due())
            .chain(self.replicas.due())
            .chain(self.absences.due())
            .chain(self.lease_due())
            .chain(self.address_due())
            .chain(self.export_changes.iter().map(|change| change.due))
            .chain(self.address_changes.iter().map(|change| change.due))
            .chain(self.gateway_changes.iter().map(|change| change.due))
            .chain(self.token_changes.iter().map(|change| change.due))
            .chain(self.policy_changes.iter().map(|change| change.due))
            .chain(self.lun_changes.iter().map(|change| change.due))
            .chain(self.reserve_changes.iter().map(|change| change.due))
            .chain(self.obedience_due())
            .min()
    }

    /// Whether requests can be taken.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready || self.following.has_joined
    }

    /// This process's random number.
    #[must_use]
    pub const fn instance(&self) -> u64 {
        self.instance
    }

    /// This process, as others know it.
    #[must_use]
    pub const fn host_id(&self) -> HostId {
        HostId(self.instance)
    }

    /// Carries messages until none is left, and ends the turns of all machines.
    pub(crate) fn pump(&mut self, now: Time, wall: WallTime) {
        self.leases.now = now;
        loop {
            self.carry(now, wall);
            self.end_turns(now);
            self.release_answers();
            if self.queue.is_empty() {
                return;
            }
        }
    }

    /// Sites first: what they log goes into the nodes' journals.
    fn end_turns(&mut self, now: Time) {
        while let Some(id) = self.sites_at_work.pop() {
            if let Some(site) = self.sites.get_mut(&id) {
                site.end_turn(now);
            }
            self.drain_site(id);
        }
        if !self.queue.is_empty() {
            return;
        }
        while let Some(id) = self.nodes_at_work.pop() {
            if let Some(node) = self.nodes.get_mut(&id).and_then(|slot| slot.node.as_mut()) {
                node.end_turn(now);
            }
            self.drain_node(id);
        }
    }

    pub(crate) fn carry(&mut self, now: Time, wall: WallTime) {
        while let Some(message) = self.queue.pop_front() {
            match message {
                Message::Node(id, input) => self.carry_to_node(now, id, input, Shown::default()),
                Message::Routed(id, call, shown) => {
                    let from = Port::Router;
                    self.carry_to_node(now, id, NodeInput::Call { from, call }, shown);
                }
                Message::Site(id, input) => self.run_site(now, wall, id, input),
                Message::Router(input) => self.run_router(now, input),
                Message::Door(input) => self.run_door(now, input),
                Message::Http(input) => self.run_http(now, wall, input),
                Message::Iscsi(input) => self.run_iscsi(now, input),
                Message::Objects(input) => self.run_objects(now, wall, input),
                Message::Depot(id, input) => self.run_depot(now, wall, id, input),
                Message::Column(reply) => self.take_column(now, reply),
                Message::Signing(routed) => self.take_signing(now, routed.reply),
                Message::Refill(reply) => self.take_refill(now, reply),
                Message::Spare(reply) => self.take_spare(reply),
                Message::Host(answer) => self.step_equalize(Some(answer)),
                Message::Sweep(answer) => self.take_swept(answer),
                Message::FsckNode(reply) => self.take_listed(now, reply),
                Message::FsckSite(routed) => self.take_census(now, routed.reply),
                Message::Tool(reply) => self.tool_replies.push_back(reply),
                Message::Walk(routed) => self.take_walk(now, routed.reply),
            }
        }
    }

    /// Within the host nobody looks at what is shown.
    fn carry_to_node(&mut self, now: Time, id: NodeId, input: NodeInput, shown: Shown) {
        if !self.nodes.contains_key(&id) {
            return self.send_to_node(id, input, shown);
        }
        let Some(input) = self.hold(id, input).and_then(|it| self.share(id, it)) else {
            return;
        };
        self.run_node(now, id, input);
    }

    fn run_node(&mut self, now: Time, id: NodeId, input: NodeInput) {
        let node = self.nodes.get_mut(&id).and_then(|slot| slot.node.as_mut());
        let Some(node) = node else {
            self.refuse(id, input);
            return;
        };
        node.gather(now, input);
        if !self.nodes_at_work.contains(&id) {
            self.nodes_at_work.push(id);
        }
        self.drain_node(id);
    }

    pub(crate) fn drain_node(&mut self, id: NodeId) {
        while let Some(effect) = self.nodes.get_mut(&id).and_then(NodeSlot::poll_effect) {
            self.take_node_effect(id, effect);
        }
    }

    /// Answers for a node that is down.
    pub(crate) fn refuse(&mut self, node: NodeId, input: NodeInput) {
        if let NodeInput::Call { from, call } = input {
            let outcome = Err(NodeError::Unavailable { node });
            let reply = NodeReply {
                id: call.id,
                outcome,
            };
            self.answer_node(node, from, reply);
        }
    }

    fn take_node_effect(&mut self, id: NodeId, effect: NodeEffect) {
        let Some(number) = self.nodes.get(&id).map(|slot| slot.number) else {
            return;
        };
        match effect {
            NodeEffect::Reply { to, reply, shows } => {
                self.answer_for_node(id, to, reply, shows);
            }
            NodeEffect::Peer { to, call } => {
                self.spare_held(to, &call.request);
                let from = Port::Node(id);
                self.queue.push_back(Message::call(to, from, call));
            }
            NodeEffect::Fetch { to, call } => {
                let from = Port::Copy(id);
                self.queue.push_back(Message::call(to, from, call));
            }
            NodeEffect::Suspect { set, epoch, member } => self.expel(set, epoch, member),
            NodeEffect::Disk(disk, request) => {
                self.effects.push_back(HostEffect::Disk {
                    number,
                    disk,
                    request,
                });
            }
            NodeEffect::Index(request) => {
                self.effects
                    .push_back(HostEffect::Index { number, request });
            }
            NodeEffect::Opened(result) => {
                let result = result.map(|_| ()).map_err(|error| match error {
                    crossdock_store::OpenError::Damaged { .. } => {
                        format!("{error}; crossdock fsck --node DIR tells more")
                    }
                    error => error.to_string(),
                });
                self.take_opened(id, number, result);
            }
            NodeEffect::Scrubbed(report) => self.take_scrubbed(number, report),
            NodeEffect::Defragged(step) => self.take_defragged(number, step),
            NodeEffect::Evacuated(step) => self.take_evacuated(number, step),
            NodeEffect::Damage {
                object,
                offset_bytes,
                what,
                is_repaired,
            } => self.effects.push_back(HostEffect::Damage {
                number,
                object: object.to_string(),
                offset_bytes,
                what,
                is_repaired,
            }),
            NodeEffect::Withdrawn { requests, bytes } => {
                self.effects.push_back(HostEffect::Withdrawn {
                    number,
                    requests,
                    bytes,
                });
            }
            NodeEffect::Postponed { requests } => {
                let postponed = HostEffect::Postponed { number, requests };
                self.effects.push_back(postponed);
            }
            NodeEffect::Failed(reason) => {
                let failed = HostEffect::DiskFailed { number, reason };
                self.effects.push_back(failed);
            }
            NodeEffect::Quiet => self.take_quiet(id),
        }
    }

    fn run_router(&mut self, now: Time, input: RouterInput) {
        self.router.handle(now, input);
        while let Some(effect) = self.router.poll_effect() {
            let message = match effect {
                RouterEffect::Site(site, call) => Some(Message::request(site, call)),
                RouterEffect::Node(node, call, capability) => {
                    let flow = None;
                    Some(Message::Routed(node, call, Shown { capability, flow }))
                }
                RouterEffect::ReadFor(flow, node, call, capability) => {
                    let flow = self.flow_for(flow);
                    Some(Message::Routed(node, call, Shown { capability, flow }))
                }
                RouterEffect::ReadKept(flow, gateway, id, kept) => {
                    self.ask_kept(flow, gateway, id, kept);
                    None
                }
                RouterEffect::Keeps(file, changed) => {
                    self.tell_kept(file, changed);
                    None
                }
                RouterEffect::CancelNode(node, id) => {
                    let from = Port::Router;
                    Some(Message::Node(node, NodeInput::Cancel { from, id }))
                }
                RouterEffect::PostponeNode(node, id, by) => {
                    let from = Port::Router;
                    Some(Message::Node(node, NodeInput::Postpone { from, id, by }))
                }
                RouterEffect::ResumeNode(node, id) => {
                    let from = Port::Router;
                    Some(Message::Node(node, NodeInput::Resume { from, id }))
                }
                RouterEffect::Reply(routed) if Self::is_of_fsck(routed.reply.id) => {
                    Some(Message::FsckSite(routed))
                }
                RouterEffect::Reply(routed) if Self::is_of_walk(routed.reply.id) => {
                    Some(Message::Walk(routed))
                }
                RouterEffect::Reply(routed) if Self::is_of_signing(routed.reply.id) => {
                    Some(Message::Signing(routed))
                }
                RouterEffect::Reply(routed) if HttpDoor::owns(routed.reply.id) => {
                    Some(Message::Http(HttpInput::Reply(routed)))
                }
                RouterEffect::Reply(routed) if IscsiDoor::owns(routed.reply.id) => {
                    Some(Message::Iscsi(IscsiInput::Reply(routed)))
                }
                RouterEffect::Reply(routed) => Some(Message::Door(NfsInput::Reply(routed))),
            };
            self.queue.extend(message);
        }
    }

    fn run_door(&mut self, now: Time, input: NfsInput) {
        self.door.handle(now, input);
        while let Some(effect) = self.door.poll_effect() {
            match effect {
                NfsEffect::Router(call) => self.ask_router(RouterInput::Request(call)),
                NfsEffect::ReadFor(flow, choice, call) => self.read_for(flow, choice, call),
                NfsEffect::ReadHot(call) => self.ask_router(RouterInput::ReadHot(call)),
                NfsEffect::Withdraw(id) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Withdraw(id)));
                }
                NfsEffect::Ahead(ahead) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Ahead(ahead)));
                }
                // One engine serves both doors: they read from the same disks.
                NfsEffect::Deliver(guest) => {
                    self.queue.push_back(Message::Http(HttpInput::Guest(guest)));
                }
                effect => self.effects.push_back(HostEffect::Door(effect)),
            }
        }
    }

    fn take_timeout(&mut self, now: Time, wall: WallTime) {
        for slot in self.nodes.values() {
            if slot
                .node
                .as_ref()
                .and_then(crossdock_server::Node::poll_timeout)
                .is_some_and(|due| due <= now)
            {
                let input = NodeInput::Store(StoreInput::Timeout);
                self.queue.push_back(Message::Node(slot.id, input));
            }
        }
        for (&id, _) in self.site_dues.iter().filter(|(_, due)| **due <= now) {
            self.queue
                .push_back(Message::Site(id, crossdock_site::SiteInput::Timeout));
        }
        if self.router.poll_timeout().is_some_and(|due| due <= now) {
            self.queue.push_back(Message::Router(RouterInput::Timeout));
        }
        if self.door.poll_timeout().is_some_and(|due| due <= now) {
            self.queue.push_back(Message::Door(NfsInput::Timeout));
        }
        if self.http.poll_timeout().is_some_and(|due| due <= now) {
            self.queue.push_back(Message::Http(HttpInput::Timeout));
        }
        if self.iscsi.poll_timeout().is_some_and(|due| due <= now) {
            self.queue.push_back(Message::Iscsi(IscsiInput::Timeout));
        }
        if self.objects.poll_timeout().is_some_and(|due| due <= now) {
            let timeout = Message::Objects(ObjectDoorInput::Timeout);
            self.queue.push_back(timeout);
        }
        self.wake_depots(now);
        self.expire_signings(now);
        self.step_refills(now);
        if self.tells_space() && self.space_due <= now {
            self.tell_space(now);
        }
        if self.clock_due().is_some_and(|due| due <= now) {
            self.ask_clocks(now);
        }
        if self.scrub.step_due.is_some_and(|due| due <= now) {
            self.step_scrub();
        }
        self.wake_defrag(now, wall);
        self.wake_evacuations(now);
        if self.fsck.due().is_some_and(|due| due <= now) {
            self.step_fsck(now);
        }
        self.following.wake(now);
        if self.absences.due().is_some_and(|due| due <= now) {
            self.replace_absent(now);
        }
        self.wake_leases(now, wall);
        self.settle_exports(now);
        self.settle_addresses(now);
        self.settle_gateways(now);
        self.settle_tokens(now);
        self.settle_policy(now);
        self.settle_luns(now);
        self.settle_reservations(now);
        self.tell_obeyed(now);
        self.follow_addresses(now);
        self.is_drain_late |= self.drain_due.take_if(|due| *due <= now).is_some();
    }

    /// Tells everybody about a new routing table.
    pub(crate) fn spread_table(&mut self) {
        let table = Arc::new(self.registry.state().table());
        let old = std::mem::replace(&mut self.table, table);
        self.count_leases();
        self.follow_gateways();
        self.keep_promises(self.leases.now, &old);
        for (&id, slot) in &self.nodes {
            if slot.node.is_some() {
                let input = NodeInput::Table(Arc::clone(&self.table));
                self.queue.push_back(Message::Node(id, input));
            }
        }
        for &id in self.sites.keys() {
            let input = crossdock_site::SiteInput::Table(Arc::clone(&self.table));
            self.queue.push_back(Message::Site(id, input));
        }
        let input = RouterInput::Table(Arc::clone(&self.table));
        self.queue.push_back(Message::Router(input));
    }
}

impl NodeSlot {
    fn poll_effect(&mut self) -> Option<NodeEffect> {
        self.node.as_mut()?.poll_effect()
    }

    fn down(record: &crossdock_members::NodeRecord) -> Self {
        Self {
            id: NodeId(record.id),
            number: record.number,
            state: NodeState::Stopped,
            boot: Boot(0),
            node: None,
            depot: None,
            is_quiet: false,
        }
    }
}
