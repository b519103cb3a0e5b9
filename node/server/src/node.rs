//! The node's machine: takes calls, orders what it is primary for, carries them
//! out on its own store and on the other members, and answers when *all*
//! members have them.
//!
//! Reads of columns are served by the primary only: it alone knows which writes
//! all members have. What its disk cannot give it gets from another member (see
//! [`crate::fallback`]). A node whose disk takes no writes any more leaves its sets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossdock_disk::DiskRequest;
use crossdock_names::{
    Epoch, HostId, Incarnation, NodeId, ObjectClass, ObjectId, RoutingTable, SetId, Version,
};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, Port, ReadVersion,
    WriteContext,
};
use crossdock_store::{
    DefragReport, EvacuationReport, IndexRequest, OpenError, OpenReport, ScrubReport, Store,
    StoreConfig, StoreDisk, StoreEffect, StoreInput,
};
use crossdock_types::Time;

use crate::copies::Copies;
use crate::disks::{NodeDisks, Relief};
use crate::exchange::{Exchanges, touched_by};
use crate::fallback::ReadOfPending;
use crate::figures::{self, NodeCounts};
use crate::ordering::Ordering;
use crate::repair::Repairs;
use crate::sendings::{Caller as Asker, Sendings};
use crate::unsettled::{Unsettled, shown_by};

/// What can happen to a node.
#[derive(Debug)]
pub enum NodeInput {
    /// A request.
    Call {
        /// Who asks.
        from: Port,
        /// What.
        call: Call<NodeRequest>,
    },
    /// Nobody waits for that request any more.
    Cancel {
        /// Who had asked.
        from: Port,
        /// The call's id.
        id: CallId,
    },
    /// Nobody needs the answer to that read so soon any more: what it wants of the disk
    /// goes behind everything else for a while.
    Postpone {
        /// Who had asked.
        from: Port,
        /// The call's id.
        id: CallId,
        /// For how long, if the disk has other things to do.
        by: Duration,
    },
    /// Somebody waits for it as before.
    Resume {
        /// Who had asked.
        from: Port,
        /// The call's id.
        id: CallId,
    },
    /// Another node's answer to what this node sent as primary, or has fetched.
    Reply {
        /// Who answers.
        from: NodeId,
        /// What.
        reply: NodeReply,
    },
    /// A routing table.
    Table(Arc<RoutingTable>),
    /// For the store.
    Store(StoreInput),
}

/// What a node wants done.
#[derive(Debug)]
pub enum NodeEffect {
    /// An answer.
    Reply {
        /// To whom.
        to: Port,
        /// What.
        reply: NodeReply,
        /// The set of which it shows what this node has as its primary, without
        /// another member having had a part in it: the primary may have been
        /// replaced without knowing (CONSISTENCY 4).
        shows: Option<SetId>,
    },
    /// A change in the given order for another member.
    Peer {
        /// Which.
        to: NodeId,
        /// What.
        call: Call<NodeRequest>,
    },
    /// A read of bytes that are to be copied, of a node that may be this one; it is from
    /// [`Port::Copy`].
    Fetch {
        /// Which.
        to: NodeId,
        /// What.
        call: Call<NodeRequest>,
    },
    /// A member did not carry out a change: it has to leave the set, by
    /// compare-and-swap, before the change is answered.
    Suspect {
        /// The set.
        set: SetId,
        /// Its epoch.
        epoch: Epoch,
        /// The member.
        member: NodeId,
    },
    /// A request to one of the node's disks.
    Disk(StoreDisk, DiskRequest),
    /// A request to the node's index.
    Index(IndexRequest),
    /// The store is open, or cannot be opened.
    Opened(Result<OpenReport, OpenError>),
    /// A step of the scrub ended, or cannot be done.
    Scrubbed(Result<ScrubReport, NodeError>),
    /// A step of the mover ended, or cannot be done.
    Defragged(Result<DefragReport, NodeError>),
    /// A step of emptying closed blocks ended, or cannot be done.
    Evacuated(Result<EvacuationReport, NodeError>),
    /// A block could not be read, and what came of it. (One that nobody but this
    /// node has is told of by the errors of its reads.)
    Damage {
        /// The object.
        object: ObjectId,
        /// First byte of the block.
        offset_bytes: u64,
        /// What the disk said.
        what: String,
        /// Another member's block has taken its place.
        is_repaired: bool,
    },
    /// In this turn reads were cancelled before the disk had got what they wanted.
    Withdrawn {
        /// Disk requests that were taken out.
        requests: u64,
        /// What they would have read.
        bytes: u64,
    },
    /// In this turn disk requests were moved behind others.
    Postponed {
        /// How many.
        requests: u64,
    },
    /// A disk takes no writes any more, for this reason: the node only reads.
    Failed(String),
    /// The store holds nothing in memory only.
    Quiet,
}

/// Largest number of calls that a node carries out at once.
const CALLS_MAX: usize = 16_384;

/// Suggested pause for callers of a node that is full.
pub(crate) const RETRY_AFTER_MS: u32 = 20;

/// A storage node.
///
/// Feed it with [`handle`](Self::handle), carry out all of
/// [`poll_effect`](Self::poll_effect), call `handle` with
/// `NodeInput::Store(StoreInput::Timeout)` at [`poll_timeout`](Self::poll_timeout).
pub struct Node {
    id: NodeId,
    boot: Incarnation,
    pub(crate) store: Store,
    disks: NodeDisks,
    pub(crate) ordering: Ordering,
    pub(crate) next_call: u64,
    /// Calls by the number under which the store and the members know them.
    pub(crate) pending: BTreeMap<CallId, Pending>,
    /// Callers' numbers, for cancellation.
    by_caller: BTreeMap<(Port, CallId), CallId>,
    requests: [u64; figures::REQUESTS.len()],
    /// Calls of others than this host's own upkeep, and when the last of them came.
    client_calls: u64,
    last_call: Time,
    refused_total: u64,
    pub(crate) repairs: Repairs,
    pub(crate) exchanges: Exchanges,
    pub(crate) copies: Copies,
    pub(crate) sendings: Sendings,
    pub(crate) unsettled: Unsettled,
    pub(crate) effects: VecDeque<NodeEffect>,
}

pub(crate) struct Pending {
    pub(crate) from: Port,
    /// The caller's number; what is done for an exchange has none.
    id: Option<CallId>,
    /// The store's answer, once there.
    pub(crate) local: Option<Result<NodeAnswer, NodeError>>,
    /// Members that have not answered yet.
    waiting: BTreeSet<NodeId>,
    /// Set for what this node orders.
    ordered: Option<(SetId, Epoch, Version)>,
    /// Set for what changes an object, whoever ordered it, but for copies.
    change: Option<(SetId, Version)>,
    /// Set for reads that other members can help with.
    pub(crate) read: Option<ReadOfPending>,
    /// Set for what only a primary may answer, and does so alone.
    shows: Option<SetId>,
    /// Changes that some members may lack, and that this shows.
    pub(crate) unsettled: BTreeSet<CallId>,
    /// Set for what is done for an exchange, which it answers.
    exchange: Option<ForExchange>,
}

impl Pending {
    fn is_ready(&self) -> bool {
        self.local.is_some() && self.waiting.is_empty() && self.unsettled.is_empty()
    }
}

/// What is done for an exchange.
enum ForExchange {
    Read(ObjectId),
    Write(Asker),
}

/// Whom a call is for.
enum Caller {
    Port(Port, CallId),
    /// As a gateway's.
    Exchange(ForExchange),
}

impl Node {
    /// A node that opens its store, each of whose disks gets at most
    /// `disk_depth` requests at a time. `boot` is new for each start.
    ///
    /// # Panics
    /// If `disk_depth` is 0.
    #[must_use]
    pub fn new(
        now: Time,
        id: NodeId,
        boot: Incarnation,
        config: StoreConfig,
        disk_depth: usize,
        table: Arc<RoutingTable>,
    ) -> Self {
        let mut node = Self {
            id,
            boot,
            store: Store::new(config),
            disks: NodeDisks::new(disk_depth),
            ordering: Ordering::new(id, table),
            next_call: 0,
            pending: BTreeMap::new(),
            by_caller: BTreeMap::new(),
            repairs: Repairs::default(),
            exchanges: Exchanges::default(),
            copies: Copies::default(),
            sendings: Sendings::default(),
            unsettled: Unsettled::default(),
            effects: VecDeque::new(),
            requests: Default::default(),
            client_calls: 0,
            last_call: now,
            refused_total: 0,
        };
        node.drain_store(now);
        node
    }

    /// Each disk gets at most `disk_depth` requests at a time from now on.
    pub fn set_disk_depth(&mut self, disk_depth: usize) {
        self.disks.set_depth(disk_depth);
    }

    /// Makes the read cache larger or smaller.
    pub fn set_cache_bytes(&mut self, cache_bytes: usize) {
        self.store.set_cache_bytes(cache_bytes);
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: NodeInput) {
        self.gather(now, input);
        self.end_turn(now);
    }

    /// The same; what it has for the journal waits until the turn ends.
    pub fn gather(&mut self, now: Time, input: NodeInput) {
        match input {
            NodeInput::Call { from, call } => self.handle_call(now, from, call),
            NodeInput::Cancel { from, id } => {
                if let Some(&internal) = self.by_caller.get(&(from, id)) {
                    self.cancel(now, internal);
                } else {
                    self.cancel_copy(from, id);
                }
            }
            NodeInput::Postpone { from, id, by } => {
                if let Some(&internal) = self.by_caller.get(&(from, id)) {
                    let input = StoreInput::Postpone(internal, now + by);
                    self.store.gather(now, input);
                }
            }
            NodeInput::Resume { from, id } => {
                if let Some(&internal) = self.by_caller.get(&(from, id)) {
                    self.store.gather(now, StoreInput::Resume(internal));
                }
            }
            NodeInput::Reply { from, reply } => self.handle_member_reply(now, from, reply),
            NodeInput::Table(table) => self.handle_table(table),
            NodeInput::Store(input) => {
                let is_ours = match &input {
                    StoreInput::Disk(disk, completion) => {
                        self.disks.completed(now, *disk, completion)
                    }
                    _ => true,
                };
                if is_ours {
                    self.store.gather(now, input);
                }
            }
        }
        self.go_on(now);
    }

    /// All that can go on without an input.
    fn go_on(&mut self, now: Time) {
        self.drain_store(now);
        while self.advance_exchanges(now) {
            self.drain_store(now);
        }
    }

    /// No more inputs come at the moment: what they have for the journal goes there.
    pub fn end_turn(&mut self, now: Time) {
        self.store.end_turn();
        self.go_on(now);
        let Relief {
            withdrawn: requests,
            withdrawn_bytes: bytes,
            postponed,
        } = self.disks.take_relief();
        if requests > 0 {
            let withdrawn = NodeEffect::Withdrawn { requests, bytes };
            self.effects.push_back(withdrawn);
        }
        if postponed > 0 {
            let requests = postponed;
            self.effects.push_back(NodeEffect::Postponed { requests });
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<NodeEffect> {
        self.effects.pop_front()
    }

    /// When the store wants a timeout.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.store.poll_timeout()
    }

    /// The store, for its figures.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What was counted since this start of the node.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        NodeCounts {
            requests: self.requests,
            refused_total: self.refused_total,
            calls: self.pending.len() + self.copies.len(),
            disks: self.disks.figures(),
        }
    }

    /// Calls since this start of the node, but for those of this host's own upkeep.
    #[must_use]
    pub const fn client_calls(&self) -> u64 {
        self.client_calls
    }

    /// For how long nobody has wanted anything, but for this host's own upkeep.
    #[must_use]
    pub fn quiet_for(&self, now: Time) -> Duration {
        let is_upkeep = |pending: &Pending| pending.from == Port::Host;
        match self.pending.values().all(is_upkeep) && self.copies.len() == 0 {
            true => now.since(self.last_call),
            false => Duration::ZERO,
        }
    }

    fn handle_call(&mut self, now: Time, from: Port, call: Call<NodeRequest>) {
        let Call {
            id,
            deadline,
            request,
        } = call;
        self.requests[figures::index(&request)] += 1;
        if from != Port::Host {
            self.client_calls += 1;
            self.last_call = now;
        }
        let call = Call {
            id,
            deadline,
            request,
        };
        let begun = self.pending.len() + self.exchanges.queued() + self.copies.len();
        if begun >= CALLS_MAX {
            self.refused_total += 1;
            let retry_after_ms = RETRY_AFTER_MS;
            return self.refuse(from, id, NodeError::Busy { retry_after_ms });
        }
        match self.recognise(from, &call) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.refuse(from, id, error),
        }
        if let NodeRequest::Exchange { .. } = call.request {
            if let Err(error) = self.begin_exchange(from, call) {
                self.refuse(from, id, error);
            }
            return;
        }
        if let NodeRequest::Copy { .. } = call.request {
            let id = call.id;
            if let Err(error) = self.begin_copy(from, call) {
                self.refuse(from, id, error);
            }
            return;
        }
        self.take_change(now, from, call);
    }

    /// A call that may have to wait for exchanges of the same bytes.
    pub(crate) fn take_change(&mut self, now: Time, from: Port, call: Call<NodeRequest>) {
        match touched_by(&call.request) {
            Some((object, range))
                if is_to_be_ordered(&call.request) && self.waits_for_exchange(&object, &range) =>
            {
                self.queue_change(from, call, (object, range));
            }
            _ => self.handle_change(now, from, call),
        }
    }

    /// A call that nothing is in the way of (any more).
    pub(crate) fn handle_change(&mut self, now: Time, from: Port, call: Call<NodeRequest>) {
        let (id, caller) = (call.id, Caller::Port(from, call.id));
        if let Err(error) = self.start(now, caller, call.deadline, call.request) {
            self.refuse(from, id, error);
        }
    }

    pub(crate) fn refuse(&mut self, to: Port, id: CallId, error: NodeError) {
        self.answer((to, id), Err(error), None);
    }

    /// Reads bytes that are to be exchanged.
    pub(crate) fn read_for_exchange(
        &mut self,
        now: Time,
        object: ObjectId,
        request: NodeRequest,
    ) -> Result<(), NodeError> {
        let caller = Caller::Exchange(ForExchange::Read(object));
        self.start(now, caller, Time(u64::MAX), request)
    }

    /// Orders the write of an exchange.
    pub(crate) fn write_for_exchange(
        &mut self,
        now: Time,
        asker: Asker,
        deadline: Time,
        request: NodeRequest,
    ) -> Result<(), NodeError> {
        let caller = Caller::Exchange(ForExchange::Write(asker));
        self.start(now, caller, deadline, request)
    }

    fn start(
        &mut self,
        now: Time,
        caller: Caller,
        deadline: Time,
        mut request: NodeRequest,
    ) -> Result<(), NodeError> {
        let (from, id, exchange) = match caller {
            Caller::Port(from, id) => (from, Some(id), None),
            Caller::Exchange(exchange) => (Port::Router, None, Some(exchange)),
        };
        let ordered = self.prepare(from, &mut request)?;
        let change = match change_of(&mut request) {
            Some(((object, _), Order::Given(version)))
                if from != Port::Host && from != Port::Depot =>
            {
                Some((self.ordering.set_of(&object), *version))
            }
            _ => None,
        };
        self.next_call += 1;
        let internal = CallId(self.next_call);
        let read = ReadOfPending::of(from, &request);
        let shown = shown_by(from, &request);
        let shows = shown
            .as_ref()
            .map(|(object, _)| self.ordering.set_of(object));
        self.unsettled
            .begin(internal, &request, ordered.is_some(), shown);
        let waiting: BTreeSet<NodeId> = ordered
            .iter()
            .flat_map(|(_, others)| others.iter().copied())
            .collect();
        for &member in &waiting {
            self.effects.push_back(NodeEffect::Peer {
                to: member,
                call: Call {
                    id: internal,
                    deadline,
                    request: request.clone(),
                },
            });
        }
        if let NodeRequest::Commit { incarnation, .. } = &mut request
            && !matches!(from, Port::Site(_))
        {
            // The set's epoch has been checked; the store knows only its boot.
            *incarnation = self.boot;
        }
        if let Some(id) = id {
            self.by_caller.insert((from, id), internal);
        }
        self.pending.insert(
            internal,
            Pending {
                from,
                id,
                local: None,
                waiting,
                ordered: ordered.map(|(key, _)| key),
                change,
                read,
                shows,
                unsettled: BTreeSet::new(),
                exchange,
            },
        );
        let call = Call {
            id: internal,
            deadline,
            request,
        };
        self.store.gather(now, StoreInput::Request(call));
        Ok(())
    }

    /// Checks the right to ask, and gives a version where this node orders.
    /// Returns what was ordered and the other members.
    #[expect(clippy::type_complexity, reason = "the two halves of a pending entry")]
    fn prepare(
        &mut self,
        from: Port,
        request: &mut NodeRequest,
    ) -> Result<Option<((SetId, Epoch, Version), Vec<NodeId>)>, NodeError> {
        if let Some(((object, context), order)) = change_of(request) {
            return match *order {
                // The host copies between members, with the versions that are there.
                Order::Given(_) if from == Port::Host => Ok(None),
                Order::Given(version) => {
                    self.ordering.check_given(&object, version)?;
                    Ok(None)
                }
                Order::Primary => {
                    let turn = self.ordering.give(&object, &context)?;
                    *order = Order::Given(turn.version);
                    Ok(Some((
                        (turn.set, turn.set_epoch, turn.version),
                        turn.others,
                    )))
                }
            };
        }
        match request {
            NodeRequest::Commit {
                object,
                incarnation,
            } if from == Port::Router => {
                let (set, epoch) = self.ordering.primary_of(object)?;
                if *incarnation != Incarnation(epoch.0) {
                    return Err(NodeError::Lost {
                        current: Incarnation(epoch.0),
                    });
                }
                let others = self.ordering.others(set);
                Ok(Some(((set, epoch, Version::NONE), others)))
            }
            NodeRequest::Read {
                object, version, ..
            } if from.is_client() && is_any_members(object, *version) => {
                self.ordering.check_member(object).map(|()| None)
            }
            NodeRequest::Pin { object, .. } if from.is_client() => {
                self.ordering.check_member(object).map(|()| None)
            }
            // What a depot has given capabilities of is of one version: whichever member has
            // all that was answered has the same bytes, or newer ones that it does not give.
            NodeRequest::Read { object, .. } | NodeRequest::Stat { object }
                if from == Port::Depot && object.class == ObjectClass::Column =>
            {
                self.ordering.check_member(object).map(|()| None)
            }
            _ => {
                if let Some((object, _)) = shown_by(from, request) {
                    self.ordering.primary_of(&object)?;
                }
                Ok(None)
            }
        }
    }

    /// Nobody waits for that call any more. What changes something goes on: the
    /// other members do it too.
    fn cancel(&mut self, now: Time, internal: CallId) {
        let is_change = |pending: &Pending| pending.ordered.is_some();
        if self.pending.get(&internal).is_none_or(is_change) {
            return;
        }
        self.store.gather(now, StoreInput::Cancel(internal));
    }

    fn handle_member_reply(&mut self, now: Time, from: NodeId, reply: NodeReply) {
        if self.copies.awaits(reply.id) {
            return self.take_fetched(now, reply);
        }
        if self.repairs.awaits(reply.id) {
            self.repair_answered(now, reply.outcome);
            return;
        }
        let Some(pending) = self.pending.get_mut(&reply.id) else {
            return; // Answered before the member left the set.
        };
        let Some((set, epoch, _)) = pending.ordered else {
            self.take_read_of(reply);
            return;
        };
        match reply.outcome {
            Ok(_) => {
                pending.waiting.remove(&from);
            }
            Err(_) if !self.ordering.is_member(set, from) => {
                pending.waiting.remove(&from);
            }
            // The member stays in `waiting` until it has left the set.
            Err(_) => self.effects.push_back(NodeEffect::Suspect {
                set,
                epoch,
                member: from,
            }),
        }
        self.finish(reply.id);
    }

    fn handle_table(&mut self, table: Arc<RoutingTable>) {
        if !table.hosts.is_one_process() {
            let live = &table.hosts.live;
            self.sendings
                .retain(|writer| live.contains(&HostId(writer.0)));
        }
        self.ordering.take_table(table);
        self.refuse_exchanges();
        let ids: Vec<CallId> = self.pending.keys().copied().collect();
        for id in ids {
            if let Some(pending) = self.pending.get_mut(&id)
                && let Some((set, ..)) = pending.ordered
            {
                let ordering = &self.ordering;
                pending
                    .waiting
                    .retain(|&member| ordering.is_member(set, member));
            }
            self.finish(id);
        }
    }

    /// Takes what the store wants, and gives the disks what they have room for.
    fn drain_store(&mut self, now: Time) {
        loop {
            let Some(effect) = self.store.poll_effect() else {
                if self.repair(now) {
                    continue;
                }
                break;
            };
            match effect {
                StoreEffect::Disk(disk, purpose, request) => {
                    let request = (disk, purpose, request);
                    let (pending, repairs) = (&self.pending, &self.repairs);
                    let patience = |id| {
                        let call: Option<&Pending> = pending.get(&id);
                        let is_upkeep = |call: &Pending| call.from == Port::Host;
                        if repairs.awaits(id) || call.is_some_and(is_upkeep) {
                            return None;
                        }
                        let read = call.and_then(|call| call.read.as_ref());
                        Some(read.map_or(Duration::ZERO, ReadOfPending::patience))
                    };
                    if let Some(refused) = self.disks.push(now, request, patience) {
                        self.store.gather(now, StoreInput::Disk(disk, refused));
                    }
                }
                StoreEffect::Urgent(token) => self.disks.hurry(now, token),
                StoreEffect::Withdraw(token) => {
                    if let Some(ended) = self.disks.withdraw(token) {
                        let input = StoreInput::Disk(StoreDisk::Data, ended);
                        self.store.gather(now, input);
                    }
                }
                StoreEffect::Postpone(token, until) => self.disks.postpone(token, until),
                StoreEffect::Resume(token) => self.disks.resume(token),
                StoreEffect::Index(request) => self.effects.push_back(NodeEffect::Index(request)),
                StoreEffect::Opened(result) => self.effects.push_back(NodeEffect::Opened(result)),
                StoreEffect::Failed(what) => self.leave_sets(what),
                StoreEffect::Scrubbed(Ok(report)) => self.repairs.add_scrub(report),
                StoreEffect::Scrubbed(Err(error)) => {
                    self.effects.push_back(NodeEffect::Scrubbed(Err(error)));
                }
                StoreEffect::Defragged(step) => {
                    self.effects.push_back(NodeEffect::Defragged(step));
                }
                StoreEffect::Evacuated(step) => {
                    self.effects.push_back(NodeEffect::Evacuated(step));
                }
                StoreEffect::Quiet => self.effects.push_back(NodeEffect::Quiet),
                StoreEffect::Reply(reply) if self.repairs.awaits(reply.id) => {
                    self.repair_answered(now, reply.outcome);
                }
                StoreEffect::Reply(reply) => {
                    let reply = self.fall_back(reply);
                    if let Some(reply) = reply
                        && let Some(pending) = self.pending.get_mut(&reply.id)
                    {
                        pending.local = Some(reply.outcome);
                        self.wait_for_members(reply.id);
                        self.finish(reply.id);
                    }
                }
            }
        }
        while let Some((disk, request)) = self.disks.next(now) {
            self.effects.push_back(NodeEffect::Disk(disk, request));
        }
    }

    /// Answers the call if its own store and all members have answered.
    pub(crate) fn finish(&mut self, internal: CallId) {
        if !self.pending.get(&internal).is_some_and(Pending::is_ready) {
            return;
        }
        let Some(pending) = self.pending.remove(&internal) else {
            return;
        };
        if let Some(id) = pending.id {
            self.by_caller.remove(&(pending.from, id));
        }
        if let Some(object) = self.unsettled.end(internal) {
            self.exchanges.change_ended(object);
            self.settled(internal);
        }
        let Some(mut outcome) = pending.local else {
            return;
        };
        if let (Some((_, epoch, _)), Ok(NodeAnswer::Written { incarnation, .. })) =
            (pending.ordered, &mut outcome)
        {
            *incarnation = Incarnation(epoch.0);
        }
        // Who takes over has done it, too; to be asked again does no harm.
        if let (Some((set, ..)), Err(NodeError::Media { .. })) = (pending.ordered, &outcome)
            && self.store.status().has_failed
            && !self.ordering.others(set).is_empty()
        {
            outcome = Err(self.ordering.stale());
        }
        match (pending.exchange, pending.id) {
            (Some(ForExchange::Read(object)), _) => {
                self.take_exchange_read(object, internal, outcome);
            }
            (Some(ForExchange::Write(asker)), _) => self.exchange_written(asker, outcome),
            (None, Some(id)) => self.answer((pending.from, id), outcome, pending.shows),
            (None, None) => {}
        }
    }

    /// Whether changes of objects of `set` are under way, those that this node orders
    /// and those that an earlier primary has ordered.
    #[must_use]
    pub fn is_changing(&self, set: SetId) -> bool {
        let is_of_set = |object: &ObjectId| self.ordering.set_of(object) == set;
        let is_pending = self.pending.values().any(|pending| {
            let ordered = pending.ordered.map(|(ordered, ..)| ordered);
            let change = pending.change.map(|(changed, _)| changed);
            ordered.or(change) == Some(set)
        });
        let is_queued = self.exchanges.objects().any(is_of_set);
        is_pending || is_queued || self.copies.are_of(set)
    }

    /// Changes of objects of `set` that have not been made yet have this version or a
    /// later one, as long as this node is its primary.
    #[must_use]
    pub fn first_to_come(&self, set: SetId) -> Version {
        let changes = self.pending.values().filter_map(|pending| pending.change);
        let under_way = changes.filter(|(changed, _)| *changed == set);
        let versions = under_way.map(|(_, version)| version);
        versions
            .chain([self.ordering.next_of(set)])
            .min()
            .unwrap_or_default()
    }

    /// Who waits for an answer: they are told that the node is gone when it is
    /// dropped.
    pub fn callers(&self) -> impl Iterator<Item = (Port, CallId)> {
        let pending = self.pending.values();
        let pending = pending.filter_map(|pending| match pending.exchange {
            Some(ForExchange::Write(asker)) => Some(asker),
            _ => Some((pending.from, pending.id?)),
        });
        pending
            .chain(self.exchanges.callers())
            .chain(self.copies.callers())
            .map(|call| self.sendings.waits_for(call))
    }

    /// The node's id.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }
}

/// Whether any member may answer a router's read: it is of one version, or of a small file, whose
/// site has told in which version it is there.
const fn is_any_members(object: &ObjectId, version: ReadVersion) -> bool {
    let is_of_one = matches!(version, ReadVersion::Exactly(_) | ReadVersion::AsOf { .. });
    is_of_one || matches!(object.class, ObjectClass::SmallFiles)
}

/// Whether this node is to order it.
const fn is_to_be_ordered(request: &NodeRequest) -> bool {
    match request {
        NodeRequest::Create { order, .. }
        | NodeRequest::Write { order, .. }
        | NodeRequest::Truncate { order, .. }
        | NodeRequest::Zero { order, .. }
        | NodeRequest::Remove { order, .. } => matches!(order, Order::Primary),
        _ => false,
    }
}

/// Object, context and order of a request that changes something and is ordered
/// by a version. (Appends and seals are ordered by their fence.)
fn change_of(request: &mut NodeRequest) -> Option<((ObjectId, WriteContext), &mut Order)> {
    match request {
        NodeRequest::Create {
            object,
            context,
            order,
            ..
        }
        | NodeRequest::Write {
            object,
            context,
            order,
            ..
        }
        | NodeRequest::Truncate {
            object,
            context,
            order,
            ..
        }
        | NodeRequest::Zero {
            object,
            context,
            order,
            ..
        }
        | NodeRequest::Remove {
            object,
            context,
            order,
        }
        | NodeRequest::SetAttributes {
            object,
            context,
            order,
            ..
        } => Some(((*object, *context), order)),
        _ => None,
    }
}
