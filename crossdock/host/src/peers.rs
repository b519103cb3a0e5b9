//! What crosses to other hosts of the ensemble, and what is owed for it.
//!
//! A call of another host gets a number of this host's, under which the machines
//! here know it. When a connection ends, everybody who waits for an answer over
//! it is told, and what was begun for the other side is withdrawn.
//!
//! Every message carries the epoch of the table by which it was sent: one that
//! is ahead of this host's table waits until that has come, and one of a host
//! that has been replaced is refused (CONSISTENCY 3). So nothing of a replaced
//! gateway or manager lands after its successor's first message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossdock_link::{CallRef, Frame, Role, Stamped, Target};
use crossdock_members::HostRecord;
use crossdock_names::{FileCapability, HostId, NodeId, Proof, Rights, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_peer::{
    AccessError, Call, CallId, LockNotice, NodeAnswer, NodeError, NodeReply, NodeRequest, Port,
    SiteError, SiteReply, SiteRequest,
};
use crossdock_router::RouterInput;
use crossdock_server::NodeInput;
use crossdock_site::SiteInput;
use crossdock_types::Time;

use crate::access::{rights_of, site_error};
use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};
use crate::mutation::Mutation;
use crate::profiles::DiskProfile;
use crate::refill::Source;
use crate::scope::Judged;
use crate::sites::ROOT_SITE;
use crate::space::NodeSpace;

/// Numbers of calls of other hosts have this bit, those of this host never.
const RELAYED: u64 = 1 << 62;

/// Messages of one host that wait for a table.
const EARLY_MAX: usize = 4096;

/// What is between this host and the others.
#[derive(Default)]
pub(crate) struct Peers {
    connected: BTreeMap<HostId, (Role, Option<Arc<str>>)>,
    relayed_total: u64,
    /// Calls of others, by the numbers that they have here …
    relayed: BTreeMap<CallId, Origin>,
    /// … and by those that they have there.
    by_origin: BTreeMap<(HostId, Port, CallId), CallId>,
    /// What this host has asked others.
    asked_nodes: BTreeMap<(HostId, Port, CallId), Asked>,
    asked_sites: BTreeSet<(HostId, Port, CallId)>,
    /// Messages that wait for the table by which they were sent.
    early: BTreeMap<HostId, VecDeque<Stamped>>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    node: NodeId,
    at: Time,
    /// Of a read whose bytes may stay there.
    source: Option<Source>,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    host: HostId,
    id: CallId,
    callee: Callee,
    /// What is read stays here, under this pin.
    pin: Option<u64>,
    /// Which manager has given the right to read it.
    minter: Option<HostId>,
}

#[derive(Clone, Copy, Debug)]
enum Callee {
    Node(NodeId, Port),
    /// And what the answer allows whoever asked to ask of nodes.
    Site(Port, Rights),
}

impl Peers {
    pub(crate) fn is_connected(&self, host: HostId) -> bool {
        self.connected.contains_key(&host)
    }

    /// What a host does that is connected.
    pub(crate) fn role(&self, host: HostId) -> Option<Role> {
        self.connected.get(&host).map(|(role, _)| *role)
    }

    /// What its certificate calls a gateway that is connected over TLS.
    pub(crate) fn certified_name(&self, host: HostId) -> Option<&str> {
        self.connected.get(&host)?.1.as_deref()
    }

    fn relay(&mut self, origin: Origin) -> CallId {
        self.relayed_total += 1;
        let id = CallId(RELAYED | self.relayed_total);
        if let Callee::Node(_, party) = origin.callee {
            self.by_origin.insert((origin.host, party, origin.id), id);
        }
        self.relayed.insert(id, origin);
        id
    }

    fn end_relay(&mut self, id: CallId) -> Option<Origin> {
        let origin = self.relayed.remove(&id)?;
        if let Callee::Node(_, party) = origin.callee {
            let key = (origin.host, party, origin.id);
            // A later sending of the same call has taken its place.
            if self.by_origin.get(&key) == Some(&id) {
                self.by_origin.remove(&key);
            }
        }
        Some(origin)
    }
}

/// Whether a call came from another host.
pub(crate) const fn is_relayed(id: CallId) -> bool {
    id.0 & RELAYED != 0 && id.0 & crate::walks::WALK_BIT == 0
}

impl Host {
    /// A connection to `peer` is there.
    pub(crate) fn take_connected(&mut self, peer: HostId, role: Role, gateway: Option<Arc<str>>) {
        self.peers.connected.insert(peer, (role, gateway));
        self.access.forget(peer);
        self.keys.forget(peer);
        self.forget_tunnel(peer);
        self.follow_gateways();
        self.follow_access();
        self.follow_scopes();
        self.tell_clients_soon();
        self.space_due = Time(0);
        self.following.want();
    }

    /// The connection to `peer` has ended, or `peer` has been replaced.
    pub(crate) fn take_disconnected(&mut self, peer: HostId) {
        self.peers.connected.remove(&peer);
        self.access.forget(peer);
        self.forget_tunnel(peer);
        self.peers.early.remove(&peer);
        self.following.forget_returns(peer);
        let first = (peer, Port::Router, CallId(0));
        let asked = self.peers.asked_nodes.range(first..);
        let asked: Vec<_> = asked
            .take_while(|((host, ..), _)| *host == peer)
            .map(|(&key, asked)| (key, asked.node))
            .collect();
        for (key, node) in asked {
            self.peers.asked_nodes.remove(&key);
            let (_, party, id) = key;
            let outcome = Err(NodeError::Unavailable { node });
            let reply = Message::reply(node, party, NodeReply { id, outcome });
            self.queue.push_back(reply);
        }
        let asked = self.peers.asked_sites.range(first..);
        let asked: Vec<_> = asked
            .take_while(|(host, ..)| *host == peer)
            .copied()
            .collect();
        for key in asked {
            self.peers.asked_sites.remove(&key);
            let (_, port, id) = key;
            let reply = refusal(id, self.away());
            self.queue.push_back(Message::answer(port, reply));
        }
        let begun = self.peers.relayed.iter();
        let begun: Vec<CallId> = begun
            .filter(|(_, origin)| origin.host == peer)
            .map(|(&id, _)| id)
            .collect();
        for id in begun {
            self.scopes.end(id);
            let Some(origin) = self.peers.end_relay(id) else {
                continue;
            };
            if let Callee::Node(node, from) = origin.callee
                && !self.has(Mutation::CopyForGone)
            {
                let cancel = NodeInput::Cancel { from, id };
                self.queue.push_back(Message::Node(node, cancel));
            }
            if let Some(pin) = origin.pin {
                self.drop_hold(pin);
            }
        }
    }

    /// A message of `peer`.
    pub(crate) fn take_frame(&mut self, peer: HostId, sent: Stamped) {
        let waiting = self.peers.early.get(&peer).map_or(0, VecDeque::len);
        let ignores = self.has(Mutation::IgnoreEpoch) || self.has(Mutation::TrustTables);
        let is_known = sent.epoch <= self.table.epoch || ignores;
        if waiting == 0 && is_known {
            return self.carry_frame(peer, sent.frame);
        }
        if waiting < EARLY_MAX {
            let early = self.peers.early.entry(peer).or_default();
            early.push_back(sent);
        } else {
            self.refuse_frame(peer, sent.frame, &NodeError::Busy { retry_after_ms: 20 });
        }
    }

    /// There was no room for a call to `peer`: it has not seen it.
    pub(crate) fn take_unsent(&mut self, peer: HostId, call: CallRef) {
        let CallRef { port, to, id } = call;
        match to {
            Target::Node(node) => {
                if self.peers.asked_nodes.remove(&(peer, port, id)).is_some() {
                    let outcome = Err(NodeError::Busy { retry_after_ms: 20 });
                    let reply = Message::reply(node, port, NodeReply { id, outcome });
                    self.queue.push_back(reply);
                }
            }
            Target::Site(_) => {
                if self.peers.asked_sites.remove(&(peer, port, id)) {
                    let reply = refusal(id, self.away());
                    self.queue.push_back(Message::answer(port, reply));
                }
            }
        }
    }

    /// What is said for a site that does not answer, or cannot be asked now. "Nothing
    /// was done" would be too much: the client may have sent it before, through
    /// another gateway, and what became of that only the site knows.
    fn away(&self) -> SiteError {
        match self.has(Mutation::ForgetDoubt) {
            true => SiteError::Refused,
            false => SiteError::Unanswered,
        }
    }

    /// Which process serves the site of the root directory, and where its
    /// administrators reach it.
    #[must_use]
    pub fn root_manager(&self) -> Option<(HostId, Option<SocketAddr>)> {
        let state = self.registry.state();
        let &host = state.owners.get(&ROOT_SITE.0)?;
        let record = state.hosts.get(&host)?;
        Some((HostId(host), record.admin))
    }

    /// The processes of the ensemble, and whether this one is or talks to each.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &HostRecord, bool)> {
        let hosts = self.registry.state().hosts.iter();
        hosts.map(|(&host, record)| {
            let host = HostId(host);
            let is_connected = host == self.host_id() || self.peers.is_connected(host);
            (host, record, is_connected)
        })
    }

    /// Replica sets that miss a member: those of data, and of sites that there are.
    pub(crate) fn sets_short(&self) -> usize {
        let state = self.registry.state();
        let sites = state.opened_sites.iter();
        let sites = sites.filter_map(|&site| Some(state.sites.get(usize::from(site))?.1));
        let used = state.data_sets.iter().copied().chain(sites);
        let used: BTreeSet<u32> = used.collect();
        let sets = used.iter().filter_map(|set| state.sets.get(set));
        sets.filter(|set| set.members.len() < set.home.len())
            .count()
    }

    /// Whether what clients ask for reaches the site of the root directory.
    #[must_use]
    pub fn reaches_root(&self) -> bool {
        let manager = self.root_manager();
        manager.is_some_and(|(host, _)| host == self.host_id() || self.peers.is_connected(host))
    }

    /// The table has changed: carries what waited for it.
    pub(crate) fn carry_early(&mut self) {
        let peers: Vec<HostId> = self.peers.early.keys().copied().collect();
        for peer in peers {
            let Some(mut early) = self.peers.early.remove(&peer) else {
                continue;
            };
            while let Some(sent) = early.pop_front_if(|sent| sent.epoch <= self.table.epoch) {
                self.carry_frame(peer, sent.frame);
            }
            if !early.is_empty() {
                self.peers.early.insert(peer, early);
            }
        }
    }

    fn carry_frame(&mut self, peer: HostId, frame: Frame) {
        let is_replaced = !self.table.hosts.live.contains(&peer) || self.is_doomed(peer);
        if is_replaced && !self.has(Mutation::SkipFence) {
            let seen = self.table.epoch;
            return self.refuse_frame(peer, frame, &NodeError::Fenced { seen });
        }
        if !is_replaced && let Err(error) = self.check_access(peer, &frame) {
            return self.refuse_access(peer, frame, error);
        }
        match frame {
            Frame::NodeCall {
                from,
                to,
                mut call,
                flow,
                capability,
            } => {
                let is_kept =
                    from == Port::Router && matches!(call.request, NodeRequest::Pin { .. });
                let pin = match flow {
                    _ if is_kept => self.begin_keep(peer, &mut call.request),
                    Some(flow) => self.begin_hold(peer, to, *flow, &call.request),
                    None => None,
                };
                if is_kept && pin.is_none() {
                    let outcome = Err(NodeError::Busy { retry_after_ms: 20 });
                    let reply = NodeReply {
                        id: call.id,
                        outcome,
                    };
                    let (from, to) = (to, from);
                    return self.send_frame(peer, Frame::NodeReply { from, to, reply });
                }
                if is_leasing(from) {
                    self.grant(peer);
                }
                self.skips_epoch(&mut call.request);
                let callee = Callee::Node(to, from);
                call.id = self.peers.relay(Origin {
                    host: peer,
                    id: call.id,
                    callee,
                    pin,
                    minter: capability.map(|capability| capability.minter),
                });
                self.mistakes(from, &mut call);
                let from = self.asker(to, from, &call.request);
                let input = NodeInput::Call { from, call };
                self.queue.push_back(Message::Node(to, input));
            }
            Frame::NodeReply {
                from,
                to,
                mut reply,
            } => {
                let asked = self.peers.asked_nodes.remove(&(peer, to, reply.id));
                let source = asked.and_then(|asked| asked.source);
                let outcome = reply.outcome;
                // Also one that nobody waits for: its pin goes back.
                reply.outcome = outcome.map(|answer| self.name_held(peer, source, answer));
                if let Some(asked) = asked {
                    if is_leasing(to) && reply.outcome.is_ok() {
                        self.leases.granted(peer, asked.at);
                    }
                    self.queue.push_back(Message::reply(from, to, reply));
                }
            }
            Frame::CancelNode { from, to, id } => {
                if let Some(&id) = self.peers.by_origin.get(&(peer, from, id)) {
                    let cancel = NodeInput::Cancel { from, id };
                    self.queue.push_back(Message::Node(to, cancel));
                }
            }
            Frame::PostponeNode {
                from,
                to,
                id,
                by_micros,
            } => {
                if let Some(&id) = self.peers.by_origin.get(&(peer, from, id)) {
                    let by = Duration::from_micros(by_micros);
                    let postpone = NodeInput::Postpone { from, id, by };
                    self.queue.push_back(Message::Node(to, postpone));
                }
            }
            Frame::ResumeNode { from, to, id } => {
                if let Some(&id) = self.peers.by_origin.get(&(peer, from, id)) {
                    let resume = NodeInput::Resume { from, id };
                    self.queue.push_back(Message::Node(to, resume));
                }
            }
            Frame::SiteCall {
                from,
                to,
                mut call,
                proofs,
            } => {
                if !self.serves(to) {
                    let reply = refusal(call.id, SiteError::Moved);
                    return self.send_frame(peer, site_reply(from, reply));
                }
                let judged = match from {
                    Port::Router => self.judge_scope(peer, &call.request, &proofs),
                    _ => Judged::Passed(None),
                };
                let shown = match judged {
                    Judged::Passed(shown) => shown,
                    Judged::Answered(outcome) => {
                        let mut reply = refusal(call.id, SiteError::Refused);
                        reply.outcome = outcome;
                        return self.send_frame(peer, site_reply(from, reply));
                    }
                };
                if self.has(Mutation::ForgetDuplicates) {
                    call.request.duplicate = None;
                }
                self.hold_lease(peer, &mut call.request);
                call.id = self.peers.relay(Origin {
                    host: peer,
                    id: call.id,
                    callee: Callee::Site(from, rights_of(&call.request.operation)),
                    pin: None,
                    minter: None,
                });
                if let Some(shown) = shown {
                    self.scopes.begin(call.id, shown);
                }
                self.queue.push_back(Message::request(to, call));
            }
            Frame::SiteReply { to, reply, proofs } => {
                if self.peers.asked_sites.remove(&(peer, to, reply.id)) {
                    self.door.learn(proofs);
                    self.queue.push_back(Message::answer(to, reply));
                }
            }
            Frame::Lock(notice) => self.queue.push_back(Message::Door(NfsInput::Lock(notice))),
            Frame::Renew { at } => {
                self.grant(peer);
                self.send_frame(peer, Frame::Granted { at });
            }
            Frame::Granted { at } => {
                self.leases.granted(peer, Time(at));
                self.settle_reservations(self.leases.now);
            }
            Frame::AskClock { at } => self.tell_clock(peer, at),
            Frame::Clock { at, wall } => self.take_clock(peer, Time(at), wall),
            Frame::Space {
                node,
                total_bytes,
                free_bytes,
                load_percent,
            } => self.take_space(
                node,
                NodeSpace {
                    total_bytes,
                    free_bytes,
                    load_percent,
                },
            ),
            Frame::DiskProfile {
                node,
                positioning_nanos,
                sequential_bytes_per_second,
                load_percent,
            } => self.take_disk_profile(
                node,
                DiskProfile {
                    positioning: Duration::from_nanos(positioning_nanos),
                    sequential_bytes_per_second,
                    load_percent,
                },
            ),
            Frame::Defrag { node, word } => self.take_defrag_word(node, *word),
            Frame::Clients { at, clients } => self.take_clients(at, clients),
            Frame::Minting(key) => self.take_minting(peer, key),
            Frame::Proving(key) => self.take_proof_key(key),
            Frame::Handling(key) => self.take_handle_key(key),
            Frame::Recall(recall) => {
                let input = RouterInput::Recall(recall);
                self.queue.push_back(Message::Router(input));
            }
            Frame::Transfer(transfer) => self.take_transfer(peer, transfer),
        }
    }

    /// Answers who may not ask.
    fn refuse_access(&mut self, peer: HostId, frame: Frame, error: AccessError) {
        if let Frame::SiteCall { from: to, call, .. } = frame {
            let reply = refusal(call.id, site_error(error));
            return self.send_frame(peer, site_reply(to, reply));
        }
        self.refuse_frame(peer, frame, &NodeError::Refused(error));
    }

    fn refuse_frame(&mut self, peer: HostId, frame: Frame, error: &NodeError) {
        let reply = match frame {
            Frame::NodeCall { from, to, call, .. } => Frame::NodeReply {
                from: to,
                to: from,
                reply: NodeReply {
                    id: call.id,
                    outcome: Err(error.clone()),
                },
            },
            Frame::SiteCall { from, call, .. } => site_reply(from, refusal(call.id, self.away())),
            _ => return,
        };
        self.send_frame(peer, reply);
    }

    /// The managers of other hosts, as the registry knows them.
    pub(crate) fn other_managers(&self) -> Vec<HostId> {
        let here = self.host_id();
        let hosts = self.registry.state().hosts.iter();
        let managers = hosts.filter(|(_, record)| record.is_manager);
        let managers = managers.map(|(&host, _)| HostId(host));
        managers.filter(|&host| host != here).collect()
    }

    /// What is for a node that does not run here.
    pub(crate) fn send_to_node(
        &mut self,
        node: NodeId,
        input: NodeInput,
        Shown { capability, flow }: Shown,
    ) {
        let host = self.table.hosts.nodes.get(&node).copied();
        let host = host.filter(|&host| self.peers.is_connected(host));
        if self.fakes(node, &input) {
            return;
        }
        match (host, input) {
            (Some(host), NodeInput::Call { from, call }) => {
                let source = flow.and_then(|_| source_of(&call.request, capability));
                let asked = Asked {
                    node,
                    at: self.leases.now,
                    source,
                };
                self.peers.asked_nodes.insert((host, from, call.id), asked);
                if let Some(flow) = flow {
                    self.note_asked(flow, host);
                }
                let to = node;
                let frame = Frame::NodeCall {
                    from,
                    to,
                    call,
                    capability,
                    flow: flow.map(Box::new),
                };
                self.send_frame(host, frame);
            }
            (Some(host), NodeInput::Cancel { from, id }) => {
                let to = node;
                self.send_frame(host, Frame::CancelNode { from, to, id });
            }
            (Some(host), NodeInput::Postpone { from, id, by }) => {
                let by_micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
                let to = node;
                let postpone = Frame::PostponeNode {
                    from,
                    to,
                    id,
                    by_micros,
                };
                self.send_frame(host, postpone);
            }
            (Some(host), NodeInput::Resume { from, id }) => {
                let to = node;
                self.send_frame(host, Frame::ResumeNode { from, to, id });
            }
            (_, input) => self.refuse(node, input),
        }
    }

    /// What is for a site that is not served here.
    pub(crate) fn send_to_site(&mut self, site: SiteId, input: SiteInput) {
        let SiteInput::Request(call) = input else {
            return; // An answer for a site that has moved away.
        };
        if self.serves(site) {
            self.want_site(site);
            return self.answer_site(refusal(call.id, self.away()));
        }
        if is_relayed(call.id) {
            return self.answer_site(refusal(call.id, SiteError::Moved));
        }
        let host = self.table.hosts.sites.get(&site).copied();
        match host.filter(|&host| self.peers.is_connected(host)) {
            Some(host) => {
                let proofs = self.proofs_for(&call.request.operation);
                self.call_site(host, (Port::Router, site), call, proofs);
            }
            None => self.answer_site(refusal(call.id, self.away())),
        }
    }

    fn call_site(
        &mut self,
        host: HostId,
        (from, to): (Port, SiteId),
        call: Box<Call<SiteRequest>>,
        proofs: Vec<Proof>,
    ) {
        self.peers.asked_sites.insert((host, from, call.id));
        let frame = Frame::SiteCall {
            from,
            to,
            call,
            proofs,
        };
        self.send_frame(host, frame);
    }

    /// What a site of this host asks another one.
    pub(crate) fn ask_site(&mut self, asker: SiteId, to: SiteId, mut call: Box<Call<SiteRequest>>) {
        let from = Port::Site(asker);
        let here = self.host_id();
        let owner = match self.registry.is_shared() {
            true => self.table.hosts.sites.get(&to).copied(),
            false => Some(here),
        };
        match owner.filter(|&host| host == here || self.peers.is_connected(host)) {
            Some(host) if host == here => {
                call.id = self.peers.relay(Origin {
                    host,
                    id: call.id,
                    callee: Callee::Site(from, Rights::default()),
                    pin: None,
                    minter: None,
                });
                self.queue.push_back(Message::request(to, call));
            }
            Some(host) => self.call_site(host, (from, to), call, Vec::new()),
            None => {
                let reply = refusal(call.id, self.away());
                self.queue.push_back(Message::answer(from, reply));
            }
        }
    }

    /// A node's answer, to this host's machines or to another host.
    pub(crate) fn answer_node(&mut self, from: NodeId, to: Port, mut reply: NodeReply) {
        if !is_relayed(reply.id) {
            return self.queue.push_back(Message::reply(from, to, reply));
        }
        if let Some(origin) = self.peers.end_relay(reply.id) {
            reply.id = origin.id;
            if let Some(pin) = origin.pin {
                let held = (origin.host, pin);
                reply.outcome = self.hold_for(from, held, origin.minter, reply.outcome);
            }
            let to = match origin.callee {
                Callee::Node(_, port) => port,
                Callee::Site(..) => to,
            };
            self.send_frame(origin.host, Frame::NodeReply { from, to, reply });
        } else if let (Port::Router, Ok(NodeAnswer::Pinned { pin, .. })) = (to, reply.outcome) {
            // The gateway that wanted it kept is gone. (What another node's host has wanted stays:
            // it is for when that host is gone.)
            self.end_spare(from, pin);
        }
    }

    /// A site's answer, likewise.
    pub(crate) fn answer_site(&mut self, mut reply: Box<SiteReply>) {
        if !is_relayed(reply.id) {
            return self.queue.push_back(Message::answer(Port::Router, reply));
        }
        let shown = self.scopes.end(reply.id);
        let Some(origin) = self.peers.end_relay(reply.id) else {
            return;
        };
        reply.id = origin.id;
        let (to, rights) = match origin.callee {
            Callee::Site(port, rights) => (port, rights),
            Callee::Node(_, port) => (port, Rights::default()),
        };
        if origin.host == self.host_id() {
            self.queue.push_back(Message::answer(to, reply));
        } else {
            self.mint(origin.host, rights, &mut reply);
            let proofs = shown.map(|shown| self.prove_answer(&shown, &mut reply));
            let proofs = proofs.unwrap_or_default();
            self.send_frame(origin.host, Frame::SiteReply { to, reply, proofs });
        }
    }

    /// Tells the doors of all gateways.
    pub(crate) fn tell_doors(&mut self, notice: LockNotice) {
        let others = self.table.hosts.gateways.clone();
        for host in others {
            if host != self.host_id() && self.peers.is_connected(host) {
                self.send_frame(host, Frame::Lock(notice.clone()));
            }
        }
        let input = NfsInput::Lock(notice);
        self.queue.push_back(Message::Door(input));
    }

    pub(crate) fn send_frame(&mut self, to: HostId, frame: Frame) {
        if self.peers.is_connected(to) {
            let sent = Box::new(frame.by(self.table.epoch));
            self.effects.push_back(HostEffect::Send { to, sent });
        }
    }
}

/// Where the bytes come from that a read asks for.
const fn source_of(request: &NodeRequest, capability: Option<FileCapability>) -> Option<Source> {
    match request {
        NodeRequest::Read {
            object,
            offset_bytes,
            ..
        } => Some(Source {
            object: *object,
            offset_bytes: *offset_bytes,
            capability,
        }),
        _ => None,
    }
}

/// Whether what calls of a port are for needs a lease: to be called is to give one.
const fn is_leasing(port: Port) -> bool {
    matches!(port, Port::Site(_) | Port::Node(_))
}

/// An answer that proves nothing.
const fn site_reply(to: Port, reply: Box<SiteReply>) -> Frame {
    let proofs = Vec::new();
    Frame::SiteReply { to, reply, proofs }
}

pub(crate) fn refusal(id: CallId, error: SiteError) -> Box<SiteReply> {
    Box::new(SiteReply::refusal(id, error))
}
