//! The machine: connections, requests in progress, and what they wait for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Delivery, End, Record, StreamId};
use crossdock_http1::Status;
use crossdock_limits::DELIVERY_RECORDS_KEPT;
use crossdock_names::FileRef;
use crossdock_pace::Pace;
use crossdock_peer::{Call, CallId, DuplicateKey, Policy, SiteOperation, SiteRequest};
use crossdock_router::{Heat, RoutedReply};
use crossdock_types::{Payload, Time, WallTime};
use crossdock_web::Gate;

use crate::connection::{Connection, Gone};
use crate::exchange::{Exchange, Stage};
use crate::figures::HttpFigures;
use crate::message::{ConnId, HttpConfig, HttpEffect, HttpInput};

/// Calls of the door have this bit, those of others never.
const CALL_BIT: u64 = 1 << 59;

/// A connection with more unsent bytes begins no further request.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// Content of a refused request that is read and dropped: a client that is still sending
/// would not see the response if its connection were reset.
const DROPPED_BYTES_MAX: u64 = 16 << 20;

/// After which somebody who was busy is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Serves files and directories of the volume over HTTP/1.1.
///
/// [`handle`](Self::handle) takes what happened; then
/// [`poll_effect`](Self::poll_effect) until it is empty, in order; then wait no longer
/// than [`poll_timeout`](Self::poll_timeout).
///
/// Requests of a connection are served one after the other; pipelined ones wait, and a
/// connection that has sent too many is not read from. When a connection ends, its reads
/// are withdrawn and its upload is removed; what changes a name goes on.
pub struct HttpDoor {
    pub(crate) config: HttpConfig,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    pub(crate) calls: BTreeMap<CallId, Pending>,
    calls_total: u64,
    pub(crate) delivery: Delivery,
    /// Streams of living requests.
    pub(crate) streams: BTreeMap<StreamId, ConnId>,
    pub(crate) streams_total: u64,
    pub(crate) gate: Gate,
    is_scoped: bool,
    pub(crate) pace: Pace,
    /// When somebody is asked again for a connection.
    pub(crate) retries: BTreeSet<(Time, ConnId)>,
    pub(crate) upload_bytes: usize,
    pub(crate) uploads_total: u64,
    /// No connection has waited too long before this time.
    pub(crate) wake: Option<Time>,
    /// Which way bytes go.
    pub(crate) transfer: Arc<Policy>,
    pub(crate) heat: Heat,
    pub(crate) figures: HttpFigures,
    pub(crate) effects: VecDeque<HttpEffect>,
    with_output: VecDeque<ConnId>,
}

/// A call that is not answered.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    Of(ConnId, What),
    /// A read for a stream that is no more.
    Dead(StreamId, u64),
    /// An upload's own file, which is to be removed when it is there.
    Orphan(FileRef, Bytes),
    /// Nobody waits; it goes on.
    Forgotten,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The next step of the request.
    Step,
    /// A piece of a file.
    Piece,
    /// Whether the file has changed.
    Check,
}

impl Pending {
    pub(crate) const fn dead(stream: StreamId, bytes: u64) -> Self {
        Self::Dead(stream, bytes)
    }

    /// Whether it is a read of that dead stream.
    pub(crate) fn is_of(&self, wanted: StreamId) -> bool {
        matches!(self, Self::Dead(stream, _) if *stream == wanted)
    }
}

impl HttpDoor {
    /// A door without connections.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        let mut delivery = Delivery::new(config.delivery);
        delivery.record(DELIVERY_RECORDS_KEPT);
        let gate = Gate {
            policy: config.policy,
            ..Gate::default()
        };
        Self {
            config,
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            calls_total: 0,
            delivery,
            streams: BTreeMap::new(),
            streams_total: 0,
            gate,
            is_scoped: false,
            pace: Pace::default(),
            retries: BTreeSet::new(),
            upload_bytes: 0,
            uploads_total: 0,
            wake: None,
            transfer: Arc::default(),
            heat: Heat::default(),
            figures: HttpFigures::default(),
            effects: VecDeque::new(),
            with_output: VecDeque::new(),
        }
    }

    /// Whether an answer with this id is for the door.
    #[must_use]
    pub const fn owns(id: CallId) -> bool {
        id.0 >> 59 == 1
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, wall: WallTime, input: HttpInput) {
        match input {
            HttpInput::Opened(id, peer) => self.open(now, wall, id, peer),
            HttpInput::Flow(id, flow) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.flow = Some(Box::new(flow));
                }
            }
            HttpInput::Secure(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_secure = true;
                }
            }
            HttpInput::Located(id, url) => self.take_located(now, wall, id, url.as_deref()),
            HttpInput::Received(id, chunk) => {
                self.end_fill(now, id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.active = now;
                    connection.inbox.push(chunk);
                    self.go_on(now, wall, id);
                }
            }
            HttpInput::Sent(id, bytes) => self.take_sent(now, wall, id, bytes),
            HttpInput::Sampled(id, sample) => {
                if let Some(number) = self.stream_of(id) {
                    self.delivery.sample(now, number, sample);
                    self.carry_decisions(now);
                }
            }
            HttpInput::PeerDone(id) => self.take_peer_done(now, wall, id),
            HttpInput::Closed(id) => self.forget(now, id, End::Reset),
            HttpInput::Gate(gate) => {
                let policy = self.config.policy;
                self.gate = Gate { policy, ..gate };
            }
            HttpInput::Policy(policy) => {
                self.heat.limit(policy.hot_file_bytes_max);
                self.transfer = policy;
            }
            HttpInput::Guest(guest) => {
                guest.tell(now, &mut self.delivery);
                self.carry_decisions(now);
            }
            HttpInput::Disk(disk, profile) => {
                self.delivery.set_disk(disk, profile);
                self.carry_decisions(now);
            }
            HttpInput::Scoped(is_scoped) => self.is_scoped = is_scoped,
            HttpInput::Stop => self.stop(now),
            HttpInput::Reply(routed) => self.take_reply(now, wall, *routed),
            HttpInput::Timeout => self.take_timeout(now, wall),
        }
    }

    /// What is to be done next. What is ready together goes out in one send per
    /// connection, after everything else.
    pub fn poll_effect(&mut self) -> Option<HttpEffect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        while let Some(id) = self.with_output.pop_front() {
            if let Some(connection) = self.connections.get_mut(&id)
                && !connection.outbox.is_empty()
            {
                let payload = std::mem::take(&mut connection.outbox);
                return Some(HttpEffect::Send(id, payload));
            }
        }
        None
    }

    /// When to call [`handle`](Self::handle) with [`HttpInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let retry = self.retries.first().map(|&(when, _)| when);
        let delivery = self.delivery.poll_timeout();
        self.wake.into_iter().chain(retry).chain(delivery).min()
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> HttpFigures {
        let mut figures = self.figures.clone();
        figures.connections = self.connections.len();
        figures.upload_bytes = self.upload_bytes;
        figures.delivery = self.delivery.figures();
        figures
    }

    /// The last decisions of the delivery engine, and what each saw.
    pub fn decisions(&self) -> impl Iterator<Item = &Record> {
        self.delivery.records()
    }

    /// Requests in progress.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Serves what has arrived on a connection, as far as it is its turn.
    pub(crate) fn go_on(&mut self, now: Time, wall: WallTime, id: ConnId) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_closing {
                connection.inbox.clear();
                break;
            }
            if connection.exchange.is_some() {
                if !self.take_body(now, wall, id) {
                    break;
                }
                continue;
            }
            if connection.unsent_bytes > UNSENT_BYTES_MAX {
                break;
            }
            let limits = &self.config.limits.head;
            match connection.inbox.take_head(now, limits) {
                Ok(Some(head)) => {
                    connection.requests += 1;
                    self.begin(now, wall, id, head);
                }
                Ok(None) => {
                    if connection.is_peer_done {
                        self.shut(id);
                    }
                    break;
                }
                Err(error) => {
                    self.answer_unread(wall, id, error.status(), &error.to_string());
                    break;
                }
            }
        }
        // Before reading goes on, as this is what comes then.
        self.begin_fill(now, id);
        self.hold_back(id);
        self.watch(now, id);
    }

    /// Takes content of the request that is served. Whether there may be more to do.
    fn take_body(&mut self, now: Time, wall: WallTime, id: ConnId) -> bool {
        let is_crowded = self.upload_bytes >= self.config.limits.upload_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let Some(exchange) = &mut connection.exchange else {
            return true;
        };
        let is_upload = matches!(exchange.stage, Stage::Upload(_));
        let takes = match &exchange.stage {
            Stage::Upload(upload) => !(upload.is_full() || is_crowded && upload.is_writing()),
            Stage::Ended => true,
            _ => false,
        };
        if !takes || exchange.body.is_done() {
            return self.end_if_done(now, id);
        }
        match exchange.body.take(connection.inbox.content()) {
            Ok(Some(data)) => {
                self.figures.received_bytes += data.len() as u64;
                if is_upload {
                    self.gather(now, wall, id, data);
                    return true;
                }
                exchange.dropped_bytes += data.len() as u64;
                let is_endless = exchange.dropped_bytes > DROPPED_BYTES_MAX;
                if is_endless {
                    self.shut(id);
                }
                !is_endless
            }
            Ok(None) => {
                let is_cut = connection.is_peer_done && !exchange.body.is_done();
                if exchange.body.is_done() && is_upload {
                    self.write_gathered(now, wall, id);
                } else if is_cut {
                    self.abort(now, id);
                    return false;
                }
                self.end_if_done(now, id)
            }
            Err(error) => {
                self.clean_up(now, id);
                self.answer_unread(wall, id, Status::BadRequest, &error.to_string());
                false
            }
        }
    }

    /// Ends the request if its response and its content are complete. Whether it did.
    pub(crate) fn end_if_done(&mut self, now: Time, id: ConnId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let is_done = |exchange: &Exchange| exchange.is_answered && exchange.body.is_done();
        if !connection.exchange.as_deref().is_some_and(is_done) {
            return false;
        }
        let exchange = connection.exchange.take();
        connection.active = now;
        if exchange.is_some_and(|exchange| !exchange.keep_alive) {
            self.shut(id);
            return false;
        }
        true
    }

    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) fn shut(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_closing = true;
            connection.exchange = None;
            connection.inbox.clear();
            self.flush(id);
            self.effects.push_back(HttpEffect::Close(id));
        }
    }

    /// Gives out what is to be sent before what is done next.
    fn flush(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.outbox.is_empty()
        {
            let payload = std::mem::take(&mut connection.outbox);
            self.effects.push_back(HttpEffect::Send(id, payload));
        }
    }

    /// The connection cannot go on: the client must not take what it has got for all.
    pub(crate) fn abort(&mut self, now: Time, id: ConnId) {
        self.forget(now, id, End::Reset);
        self.effects.push_back(HttpEffect::Abort(id));
    }

    /// The connection is over.
    fn forget(&mut self, now: Time, id: ConnId, end: End) {
        self.clean_up(now, id);
        self.drop_stream(now, id, end);
        let of_it: Vec<CallId> = self.calls_for(id).collect();
        for call in of_it {
            self.calls.insert(call, Pending::Forgotten);
        }
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        let mut last = None;
        for number in connection.streams() {
            if last != Some(number) {
                self.streams.remove(&number);
                self.delivery.close(now, number, end);
            }
            last = Some(number);
        }
        self.carry_decisions(now);
    }

    /// Stops reading from who has sent more than can be served now, and reads on.
    fn hold_back(&mut self, id: ConnId) {
        let inbox_bytes_max = self.config.limits.inbox_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        // Content waits in the client; of heads as much as makes one.
        let waits = connection
            .exchange
            .as_deref()
            .is_some_and(|exchange| !exchange.body.is_done());
        let limit = if waits { 0 } else { inbox_bytes_max };
        let changed = connection.inbox.hold_back(limit);
        self.effects.extend(changed.map(|is_held| match is_held {
            true => HttpEffect::Pause(id),
            false => HttpEffect::Resume(id),
        }));
    }

    fn take_sent(&mut self, now: Time, wall: WallTime, id: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.active = now;
        for part in connection.sent(bytes) {
            match part {
                Gone::Bytes(stream, bytes) => self.delivery.handed(now, stream, bytes),
                Gone::End(stream) => {
                    self.streams.remove(&stream);
                    connection.pace = self.delivery.close(now, stream, End::Done).map(Box::new);
                }
            }
        }
        if let Some(number) = self.stream_of(id) {
            self.sample(now, id, number);
        }
        self.send_ready(now, id);
        self.carry_decisions(now);
        self.go_on(now, wall, id);
    }

    /// Looks at the connection of a stream of which something was sent, unless it is known
    /// well enough.
    fn sample(&mut self, now: Time, id: ConnId, number: StreamId) {
        if self.delivery.wants_sample(now, number) {
            self.effects.push_back(HttpEffect::Sample(id));
        }
    }

    fn take_peer_done(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.is_peer_done = true;
        if let Some(number) = self.stream_of(id) {
            // It may well read on (RFC 9112 section 9.6), or be gone.
            self.delivery.close(now, number, End::PeerFinished);
            self.carry_decisions(now);
        }
        self.go_on(now, wall, id);
    }

    fn take_reply(&mut self, now: Time, wall: WallTime, routed: RoutedReply) {
        let call = routed.reply.id;
        let pending = self.calls.remove(&call);
        let of = match &pending {
            Some(Pending::Of(id, _)) => Some(*id),
            _ => None,
        };
        match pending {
            Some(Pending::Of(id, What::Piece)) => {
                self.after_piece(now, wall, id, call, routed.reply);
            }
            Some(Pending::Of(id, What::Check)) => {
                self.after_check(now, wall, id, call, &routed.reply);
            }
            Some(Pending::Of(id, What::Step)) => self.step(now, wall, id, routed),
            Some(Pending::Dead(stream, bytes)) => match routed.reply.outcome {
                Ok(_) => self.delivery.delivered(now, stream, bytes),
                Err(_) => self.delivery.failed(now, stream, bytes),
            },
            Some(Pending::Orphan(directory, name)) if routed.reply.outcome.is_ok() => {
                self.remove_upload(now, directory, name);
            }
            Some(Pending::Orphan(..) | Pending::Forgotten) | None => {}
        }
        // Small responses to pipelined requests go out together, not one by one.
        let is_free = |id: &ConnId| self.connections.get(id).is_some_and(Connection::is_free);
        if let Some(id) = of.filter(is_free) {
            self.go_on(now, wall, id);
        }
    }

    /// Asks the router on behalf of a connection's request.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        id: ConnId,
        what: What,
        operation: SiteOperation,
    ) -> Option<CallId> {
        self.ask_as(now, id, what, operation, None)
    }

    /// The same for what must happen once.
    pub(crate) fn ask_once(
        &mut self,
        now: Time,
        id: ConnId,
        operation: SiteOperation,
        key: DuplicateKey,
    ) {
        self.ask_as(now, id, What::Step, operation, Some(key));
    }

    fn ask_as(
        &mut self,
        now: Time,
        id: ConnId,
        what: What,
        operation: SiteOperation,
        duplicate: Option<DuplicateKey>,
    ) -> Option<CallId> {
        let caller = self.exchange(id)?.caller.clone();
        let request = SiteRequest {
            caller,
            duplicate,
            operation,
        };
        let call_id = self.next_call();
        self.calls.insert(call_id, Pending::Of(id, what));
        let call = self.call(now, call_id, request);
        let effect = match what {
            What::Piece => self.read(id, call),
            What::Step | What::Check => HttpEffect::Router(call),
        };
        self.effects.push_back(effect);
        Some(call_id)
    }

    /// What the router is asked.
    fn call(&self, now: Time, id: CallId, request: SiteRequest) -> Box<Call<SiteRequest>> {
        let deadline = now + self.config.patience;
        Box::new(Call {
            id,
            deadline,
            request,
        })
    }

    fn next_call(&mut self) -> CallId {
        self.calls_total += 1;
        CallId(CALL_BIT | self.calls_total)
    }

    /// Names a change that must happen once: of this process, and counted.
    pub(crate) fn duplicate_key(&mut self) -> DuplicateKey {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.config.seed.to_be_bytes());
        key[8..].copy_from_slice(&(CALL_BIT | (self.calls_total + 1)).to_be_bytes());
        DuplicateKey(key)
    }

    /// Removes an upload's own file, as the ensemble itself.
    pub(crate) fn remove_upload(&mut self, now: Time, directory: FileRef, name: Bytes) {
        let key = self.duplicate_key();
        let mut request = SiteRequest::as_root(SiteOperation::Remove { directory, name });
        request.duplicate = Some(key);
        let call = self.next_call();
        self.calls.insert(call, Pending::Forgotten);
        let call = self.call(now, call, request);
        self.effects.push_back(HttpEffect::Router(call));
    }

    /// What this call makes is to be removed.
    pub(crate) fn orphan(&mut self, call: CallId, directory: FileRef, name: Bytes) {
        self.calls.insert(call, Pending::Orphan(directory, name));
    }

    /// The calls of a connection that are not answered.
    pub(crate) fn calls_for(&self, id: ConnId) -> impl Iterator<Item = CallId> {
        self.calls
            .iter()
            .filter(move |(_, pending)| matches!(pending, Pending::Of(of, _) if *of == id))
            .map(|(&call, _)| call)
    }

    /// The request that is served.
    pub(crate) fn exchange(&mut self, id: ConnId) -> Option<&mut Exchange> {
        self.connections.get_mut(&id)?.exchange.as_deref_mut()
    }

    /// Puts pieces behind what is to be sent.
    pub(crate) fn push(&mut self, id: ConnId, pieces: impl IntoIterator<Item = Bytes>) {
        self.push_payload(id, pieces.into_iter().collect());
    }

    /// The same with bytes of which nodes may have some.
    pub(crate) fn push_payload(&mut self, id: ConnId, payload: Payload) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.push(payload);
            self.with_output.push_back(id);
        }
    }

    /// The same with bytes of a stream; `is_end`: they are its last.
    pub(crate) fn push_of(
        &mut self,
        id: ConnId,
        stream: StreamId,
        payload: Payload,
        read_bytes: u64,
        is_end: bool,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let read_bytes = usize::try_from(read_bytes).unwrap_or(usize::MAX);
            connection.push_of(stream, payload, read_bytes);
            if is_end {
                connection.push_end(stream);
            }
            self.with_output.push_back(id);
        }
    }

    /// Bytes of a connection's responses that the kernel has not taken.
    pub(crate) fn unsent_bytes(&self, id: ConnId) -> usize {
        self.connections
            .get(&id)
            .map_or(0, |connection| connection.unsent_bytes)
    }

    pub(crate) const fn busy_pause(&self) -> Duration {
        BUSY_PAUSE
    }

    /// Makes a line that does not occur in what is sent, between parts of a response.
    pub(crate) const fn boundary(&self) -> impl Fn() -> String + use<> {
        let (seed, calls_total) = (self.config.seed, self.calls_total);
        move || format!("{seed:016x}{calls_total:016x}")
    }

    pub(crate) const fn is_scoped(&self) -> bool {
        self.is_scoped
    }

    /// The stream whose bytes are read for a connection now.
    pub(crate) fn stream_of(&self, id: ConnId) -> Option<StreamId> {
        let stage = &self.connections.get(&id)?.exchange.as_deref()?.stage;
        match stage {
            Stage::Stream(stream) => stream.number(),
            _ => None,
        }
    }
}
