//! The machine: connections, and the commands that they give.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_checksum::keyed_hash;
use crossdock_delivery::{Delivery, End, StreamId};
use crossdock_ibp::{Access, Command, ErrorCode, Key, Request, answer};
use crossdock_limits::{IBP_ANSWER_BYTES_MAX, IBP_REQUEST_BYTES_MAX};
use crossdock_names::{NodeId, Version};
use crossdock_pace::Pace;
use crossdock_peer::{CallId, Port};
use crossdock_types::{Payload, Time, WallTime};

use crate::clock::Clock;
use crate::connection::{Connection, Doing, Late};
use crate::figures::{self, DepotFigures};
use crate::keys::Keyring;
use crate::ledger::{Allocation, Ledger};
use crate::loading::LoadStage;
use crate::message::{ConnId, DepotEffect, DepotInput};
use crate::node::{Asked, Purpose};
use crate::opening::Opening;
use crate::policy::DepotConfig;
use crate::storing::PIECE_BYTES_MAX;

/// No more commands are taken while so much of earlier answers waits for the kernel.
const UNSENT_BYTES_MAX: u64 = 64 << 10;

/// Why allocations go, by the place of the word in [`figures::GONE`].
pub(crate) const EXPIRED: usize = 0;
pub(crate) const REVOKED: usize = 1;
pub(crate) const RELEASED: usize = 2;

/// The depot of a node.
///
/// [`handle`](Self::handle) takes what happened; then [`poll_effect`](Self::poll_effect) until
/// it is empty, in order; then wait no longer than [`poll_timeout`](Self::poll_timeout).
///
/// Commands of a connection are carried out one after the other. One that is refused ends its
/// connection, as LoCI's depot does: a client may have sent data behind it that nobody wants.
pub struct Depot {
    pub(crate) node: NodeId,
    pub(crate) config: DepotConfig,
    pub(crate) opening: Opening,
    /// Once the depot's state is known.
    pub(crate) ring: Option<Keyring>,
    pub(crate) clock: Option<Clock>,
    /// Of the depot's own object.
    pub(crate) own_version: Version,
    pub(crate) ledger: Ledger,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    pub(crate) own_total: u64,
    /// Random numbers that were drawn.
    drawn_total: u64,
    pace: Pace,
    /// Says what is read when; it has the memory for that.
    pub(crate) delivery: Delivery,
    pub(crate) streams: BTreeMap<StreamId, ConnId>,
    pub(crate) streams_total: u64,
    pub(crate) calls: BTreeMap<CallId, Asked>,
    pub(crate) calls_total: u64,
    /// When the node is asked again what.
    pub(crate) retries: BTreeSet<(Time, CallId)>,
    /// Commands that may go on.
    pub(crate) ready: VecDeque<ConnId>,
    /// Commands that wait until there is more room.
    pub(crate) waiting_for_room: Vec<ConnId>,
    /// Bytes of stores that the node has not answered.
    pub(crate) storing_bytes: usize,
    /// What the node may hold, and what of it is free.
    pub(crate) capacity_bytes: u64,
    pub(crate) free_bytes: u64,
    /// No connection has waited too long before this time.
    wake: Option<Time>,
    is_stopping: bool,
    pub(crate) figures: DepotFigures,
    pub(crate) effects: VecDeque<DepotEffect>,
}

impl Depot {
    /// A depot of a node whose store is not open yet: it asks clients to wait.
    #[must_use]
    pub fn new(node: NodeId, config: DepotConfig) -> Self {
        Self {
            node,
            delivery: Delivery::new(config.delivery),
            config,
            opening: Opening::Closed,
            ring: None,
            clock: None,
            own_version: Version::NONE,
            ledger: Ledger::default(),
            connections: BTreeMap::new(),
            own_total: 0,
            drawn_total: 0,
            pace: Pace::default(),
            streams: BTreeMap::new(),
            streams_total: 0,
            calls: BTreeMap::new(),
            calls_total: 0,
            retries: BTreeSet::new(),
            ready: VecDeque::new(),
            waiting_for_room: Vec::new(),
            storing_bytes: 0,
            capacity_bytes: 0,
            free_bytes: 0,
            wake: None,
            is_stopping: false,
            figures: DepotFigures::default(),
            effects: VecDeque::new(),
        }
    }

    /// What the node may hold and has free, in bytes.
    pub const fn set_space(&mut self, capacity_bytes: u64, free_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.free_bytes = free_bytes;
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, wall: WallTime, input: DepotInput) {
        match input {
            DepotInput::Opened { id, peer, local } => self.open(now, id, (peer, local)),
            DepotInput::Connected(id) => self.connected(now, id),
            DepotInput::NotAllowed(id) => self.not_allowed(now, id),
            DepotInput::Received(id, chunk) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.active = now;
                    connection.received.push(chunk);
                    self.ready.push_back(id);
                }
            }
            DepotInput::Sent(id, bytes) => self.take_sent(now, id, bytes),
            DepotInput::PeerDone(id) => self.take_peer_done(now, id),
            DepotInput::Sampled(id, sample) => {
                let load = self.connections.get(&self.owner_of(id));
                if let Some(Doing::Load(load)) = load.map(|connection| &connection.doing)
                    && let Some(stream) = load.stream
                {
                    self.delivery.sample(now, stream, sample);
                }
            }
            DepotInput::Closed(id) => self.take_closed(now, id),
            DepotInput::NodeOpened => self.begin_opening(now),
            DepotInput::Reply(reply) => self.take_reply(now, wall, reply),
            DepotInput::Share { from, call } => self.begin_share(now, from, call),
            DepotInput::Disk(profile) => self.delivery.set_disk(self.node.0, profile),
            DepotInput::Policy(policy) => {
                self.config.policy = policy;
                self.wake_for_room();
            }
            DepotInput::Stop => self.stop(),
            DepotInput::Timeout => self.take_timeout(now),
        }
        self.settle(now, wall);
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<DepotEffect> {
        self.effects.pop_front()
    }

    /// When to call [`handle`](Self::handle) with [`DepotInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let retry = self.retries.first().map(|&(when, _)| when);
        let clock = self.clock.as_ref();
        let end = self.ledger.first_end();
        let end = clock.and_then(|clock| Some(clock.when(end?.0)));
        let save = clock.filter(|_| self.ledger.first_end().is_some());
        let save = save.map(Clock::save_due);
        let delivery = self.delivery.poll_timeout();
        let all = [self.wake, retry, end, save, delivery];
        all.into_iter().flatten().min()
    }

    /// Who waits for a capability of the volume's bytes, when it is not there any more.
    pub fn callers(&self) -> impl Iterator<Item = (Port, CallId)> {
        self.calls.values().filter_map(Asked::caller)
    }

    /// Its connections, when it is not there any more.
    pub fn into_connections(self) -> impl Iterator<Item = ConnId> {
        self.connections.into_keys()
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> DepotFigures {
        let promised = self.ledger.promised();
        DepotFigures {
            allocations: self.ledger.len(),
            stable_bytes: promised.stable,
            volatile_bytes: promised.volatile,
            connections: self.connections.len(),
            held_bytes: self.delivery.figures().memory_used,
            ..self.figures
        }
    }

    /// Random bytes that nobody has had.
    pub(crate) fn draw(&mut self) -> [u8; 32] {
        self.drawn_total += 1;
        keyed_hash(&self.config.seed, &self.drawn_total.to_be_bytes())
    }

    fn open(&mut self, now: Time, id: ConnId, ends: (SocketAddr, SocketAddr)) {
        let is_full = self.connections.len() >= self.config.policy.connections_max;
        let connection = Connection::new(now, Some(ends), Doing::Nothing);
        self.connections.insert(id, connection);
        if is_full {
            self.figures.busy_total += 1;
            self.refuse(id, ErrorCode::QUEUE_FULL);
        }
        if self.is_stopping {
            self.shut(id);
        }
        self.watch(id);
    }

    /// Everything that follows from what happened.
    fn settle(&mut self, now: Time, wall: WallTime) {
        loop {
            self.end_leases(now);
            self.carry_decisions(now);
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            self.go_on(now, id);
        }
        self.save_clock(now, wall);
    }

    /// Carries out what has arrived on a connection, as far as it can be.
    fn go_on(&mut self, now: Time, id: ConnId) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_closing {
                connection.received = Payload::new();
                break;
            }
            let goes_on = match connection.doing {
                Doing::Nothing => self.begin_next(now, id),
                Doing::Allocate(_) => self.try_allocate(now, id),
                Doing::Store(_) => self.go_on_storing(now, id),
                Doing::Load(_) => self.go_on_loading(now, id),
                Doing::Change(_) => self.try_change(now, id),
                Doing::Limits(_) => self.take_limits(now, id),
                Doing::Copy(owner) => self.go_on_copying(now, id, owner),
            };
            if !goes_on {
                break;
            }
        }
        self.hold_back(id);
        self.watch(id);
    }

    /// Takes the next line of a client, if there is one.
    pub(crate) fn take_line(&mut self, now: Time, id: ConnId) -> Option<Vec<u8>> {
        let connection = self.connections.get_mut(&id)?;
        let bytes_max = match id.is_own() {
            true => IBP_ANSWER_BYTES_MAX,
            false => IBP_REQUEST_BYTES_MAX,
        };
        match connection.take_line(now, bytes_max) {
            Ok(Some(line)) => Some(line),
            Ok(None) => {
                if connection.is_peer_done {
                    self.shut(id);
                }
                None
            }
            Err(_) => {
                self.refuse(id, ErrorCode::BAD_FORMAT);
                None
            }
        }
    }

    fn begin_next(&mut self, now: Time, id: ConnId) -> bool {
        let connection = self.connections.get(&id);
        if connection.is_none_or(|connection| connection.unsent_bytes > UNSENT_BYTES_MAX) {
            return false;
        }
        let Some(line) = self.take_line(now, id) else {
            return false;
        };
        let begun = Request::parse(&line).and_then(|request| self.begin(now, id, request));
        if let Err(code) = begun {
            self.refuse(id, code);
        }
        true
    }

    fn begin(&mut self, now: Time, id: ConnId, request: Request) -> Result<(), ErrorCode> {
        let connection = self.connections.get(&id);
        let client = connection.and_then(|connection| connection.ends);
        if let Some(rate) = self.config.policy.requests_per_second
            && let Some((client, _)) = client
            && !self.pace.admits(now, client.ip(), rate)
        {
            self.figures.busy_total += 1;
            return Err(ErrorCode::QUEUE_FULL);
        }
        if !matches!(self.opening, Opening::Done) {
            return Err(ErrorCode::SERVER_RECOVERING);
        }
        let Request { version, command } = request;
        self.figures.commands[figures::index(&command)] += 1;
        match command {
            Command::Allocate { .. } => self.begin_allocate(now, id, command),
            Command::Store { .. } | Command::Write { .. } => self.begin_store(now, id, command),
            Command::Load { .. } | Command::Send { .. } => self.begin_load(now, id, command),
            Command::Manage {
                key,
                attribute_key,
                manage,
                ..
            } => self.begin_manage(now, id, (&key, &attribute_key), manage),
            Command::Status {
                resource, query, ..
            } => self.begin_status(id, version, resource.as_ref(), query),
        }
    }

    /// The allocation that a key and its attribute key allow that kind of access to.
    pub(crate) fn find(
        &self,
        key: &Key,
        attribute: &Key,
        access: Option<Access>,
    ) -> Result<(u64, &Allocation), ErrorCode> {
        let ring = self.ring.as_ref().ok_or(ErrorCode::SERVER_RECOVERING)?;
        let shown = ring.read(key)?;
        let allocation = self.ledger.get(shown.allocation);
        let allocation = allocation.filter(|it| ring.is_of(&shown, &it.record.secret));
        let allocation = allocation.ok_or(ErrorCode::CAP_NOT_FOUND)?;
        let wanted = access.unwrap_or(shown.access);
        if wanted != shown.access || !ring.has_attribute(&shown, attribute) {
            return Err(match wanted {
                Access::Read => ErrorCode::INVALID_READ_CAP,
                Access::Write => ErrorCode::INVALID_WRITE_CAP,
                Access::Manage => ErrorCode::INVALID_MANAGE_CAP,
            });
        }
        Ok((shown.allocation, allocation))
    }

    /// Until when a command that says `seconds` may wait: with 0 as long as any.
    pub(crate) fn deadline(&self, now: Time, seconds: u32) -> Time {
        let longest = self.config.wait_max;
        let wanted = std::time::Duration::from_secs(seconds.into());
        match seconds {
            0 => now + longest,
            _ => now + wanted.min(longest),
        }
    }

    /// Says something to a client.
    pub(crate) fn answer(&mut self, id: ConnId, text: String) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.push_plain(text.len() as u64);
            self.push(id, vec![Bytes::from(text)]);
        }
    }

    /// Says no, and ends the connection.
    pub(crate) fn refuse(&mut self, id: ConnId, code: ErrorCode) {
        self.refuse_with(id, answer::refused(code));
    }

    pub(crate) fn refuse_with(&mut self, id: ConnId, text: String) {
        self.figures.refused_total += 1;
        self.answer(id, text);
        self.shut(id);
    }

    /// Gives pieces to the connection, in one send with what goes there anyway.
    pub(crate) fn push(&mut self, id: ConnId, pieces: Vec<Bytes>) {
        match self.effects.back_mut() {
            Some(DepotEffect::Send(to, before)) if *to == id => before.extend(pieces),
            _ if pieces.is_empty() => {}
            _ => self.effects.push_back(DepotEffect::Send(id, pieces)),
        }
    }

    /// The command is done: the next one may begin.
    pub(crate) fn finish(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.doing = Doing::Nothing;
            connection.active = now;
            self.ready.push_back(id);
            if self.is_stopping {
                self.shut(id);
            }
        }
    }

    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) fn shut(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.is_closing, true)
        {
            connection.received = Payload::new();
            self.effects.push_back(DepotEffect::Close(id));
        }
    }

    pub(crate) fn abort(&mut self, now: Time, id: ConnId) {
        self.end_command(now, id, None, End::Reset);
        if self.connections.remove(&id).is_some() {
            self.effects.push_back(DepotEffect::Abort(id));
        }
    }

    /// Those that are served are still served to the end of their command.
    fn stop(&mut self) {
        self.is_stopping = true;
        let idle = self.connections.iter();
        let idle = idle.filter(|(_, connection)| matches!(connection.doing, Doing::Nothing));
        for id in idle.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.shut(id);
        }
    }

    /// The command of a connection goes no further. With a code its client is told why, unless
    /// it has got a part of its bytes already; without one it is gone.
    pub(crate) fn end_command(&mut self, now: Time, id: ConnId, code: Option<ErrorCode>, end: End) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let is_broken = match std::mem::replace(&mut connection.doing, Doing::Nothing) {
            Doing::Store(store) => {
                self.break_store(now, *store);
                false
            }
            Doing::Load(load) => self.break_load(now, id, *load, end),
            _ => false,
        };
        match code {
            Some(_) if is_broken => self.abort(now, id),
            Some(code) => self.refuse(id, code),
            None => {}
        }
    }

    /// The same, of a client that is told why.
    pub(crate) fn end_command_with(&mut self, now: Time, id: ConnId, code: ErrorCode) {
        self.end_command(now, id, Some(code), End::Reset);
    }

    /// What a connection is for at the moment.
    pub(crate) fn doing(&mut self, id: ConnId) -> Option<&mut Doing> {
        self.connections.get_mut(&id).map(|it| &mut it.doing)
    }

    pub(crate) fn set_doing(&mut self, id: ConnId, doing: Doing) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.doing = doing;
        }
    }

    fn take_peer_done(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.is_peer_done = true;
        match &mut connection.doing {
            // What it has not sent by now does not come any more.
            Doing::Store(store) if store.lacks(connection.received.len()) => {
                self.end_command(now, id, Some(ErrorCode::SOCK_READ), End::Reset);
            }
            // Nor does it wait for others any more.
            Doing::Load(load) if load.stage == LoadStage::Waiting => load.deadline = now,
            Doing::Load(load) => {
                if let Some(stream) = load.stream {
                    // It may well read on, or be gone.
                    self.delivery.close(now, stream, End::PeerFinished);
                }
            }
            Doing::Copy(owner) => {
                let owner = *owner;
                self.other_side_gone(now, id, owner);
            }
            _ => {}
        }
        self.ready.push_back(id);
    }

    fn take_closed(&mut self, now: Time, id: ConnId) {
        let connection = self.connections.get(&id);
        if let Some(&Doing::Copy(owner)) = connection.map(|connection| &connection.doing) {
            self.connections.remove(&id);
            self.other_side_gone(now, id, owner);
            return;
        }
        self.end_command(now, id, None, End::Reset);
        self.connections.remove(&id);
    }

    /// Whose command a connection serves.
    pub(crate) fn owner_of(&self, id: ConnId) -> ConnId {
        match self
            .connections
            .get(&id)
            .map(|connection| &connection.doing)
        {
            Some(&Doing::Copy(owner)) => owner,
            _ => id,
        }
    }

    /// Stops reading from who has sent more than can be taken now, and reads on.
    fn hold_back(&mut self, id: ConnId) {
        let is_scarce = self.storing_bytes >= self.config.store_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let limit = match &connection.doing {
            Doing::Store(store) if store.is_receiving() && is_scarce => PIECE_BYTES_MAX,
            Doing::Store(store) if store.is_receiving() => 2 * PIECE_BYTES_MAX,
            _ => 2 * IBP_REQUEST_BYTES_MAX,
        };
        let is_full = connection.received.len() >= limit;
        let changed = connection.hold_back(is_full);
        self.effects.extend(changed.map(|is_held| match is_held {
            true => DepotEffect::Pause(id),
            false => DepotEffect::Resume(id),
        }));
    }

    /// Something has happened to a connection: when is it to be looked at?
    fn watch(&mut self, id: ConnId) {
        let connection = self.connections.get(&id);
        let due = connection.and_then(|connection| connection.deadline(&self.config));
        self.wake = self.wake.into_iter().chain(due.map(|(due, _)| due)).min();
    }

    fn take_timeout(&mut self, now: Time) {
        self.ask_again(now);
        if self.delivery.poll_timeout().is_some_and(|due| due <= now) {
            self.delivery.timeout(now);
        }
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        let (mut late, mut next) = (Vec::new(), None);
        for (&id, connection) in &self.connections {
            match connection.deadline(&self.config) {
                Some((due, why)) if due <= now => late.push((id, why)),
                Some((due, _)) => next = Some(next.map_or(due, |next: Time| next.min(due))),
                None => {}
            }
        }
        self.wake = next;
        for (id, why) in late {
            self.end_late(now, id, why);
        }
    }

    fn end_late(&mut self, now: Time, id: ConnId, why: Late) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if why == Late::Waited {
            // The command knows what that means.
            return self.ready.push_back(id);
        }
        self.figures.late_total += 1;
        match why {
            Late::Line | Late::Data => {
                connection.active = now; // It has its time to read why.
                self.end_command(now, id, Some(ErrorCode::CLIENT_TIMEOUT), End::Reset);
                self.watch(id);
            }
            Late::Idle if !connection.is_closing => {
                connection.active = now;
                self.shut(id);
                self.watch(id);
            }
            _ => match connection.doing {
                Doing::Copy(owner) => self.other_side_gone(now, id, owner),
                _ => self.abort(now, id),
            },
        }
    }

    /// Those that wait until something of an allocation is different look at it.
    pub(crate) fn wake_waiters(&mut self, number: u64) {
        if let Some(allocation) = self.ledger.get_mut(number) {
            self.ready.extend(allocation.waiters.drain(..));
        }
    }

    pub(crate) fn wake_for_room(&mut self) {
        self.ready.extend(self.waiting_for_room.drain(..));
    }

    fn end_leases(&mut self, now: Time) {
        while let Some((end, number)) = self.ledger.first_end()
            && let Some(clock) = &self.clock
            && end <= clock.read(now)
        {
            self.remove(now, number, EXPIRED, None);
        }
    }

    fn save_clock(&mut self, now: Time, wall: WallTime) {
        if !matches!(self.opening, Opening::Done) || self.ledger.first_end().is_none() {
            return;
        }
        let key = self.ring.as_ref().map(Keyring::key);
        let clock = self.clock.as_mut().zip(key);
        if let Some(state) = clock.and_then(|(clock, key)| clock.take_unsaved(now, wall, key)) {
            let request = self.save(&state);
            self.ask(now, Purpose::Nobody, request);
        }
    }
}
