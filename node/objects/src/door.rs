//! The machine: connections, the requests that they make, and memory for what is read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use crossdock_http1::{Framing, HttpVersion, Method, RequestHead, ResponseHead, Status};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest};
use crossdock_types::{Payload, Time, WallTime};
use crossdock_web::ObjectGate;

use crate::connection::{Connection, Late};
use crate::figures::ObjectDoorFigures;
use crate::message::{ConnId, ObjectDoorConfig, ObjectDoorEffect, ObjectDoorInput};
use crate::transfer::{Next, Transfer};

/// Calls of the door have this bit, those of others never.
const CALL_BIT: u64 = 1 << 58;

/// Serves signed URLs of objects of this process's nodes.
///
/// [`handle`](Self::handle) takes what happened; then [`poll_effect`](Self::poll_effect)
/// until it is empty, in order; then wait no longer than
/// [`poll_timeout`](Self::poll_timeout).
///
/// Requests of a connection are served one after the other. When a connection ends, what it
/// has asked of the node is cancelled.
#[derive(Debug)]
pub struct ObjectDoor {
    config: ObjectDoorConfig,
    gate: ObjectGate,
    is_stopping: bool,
    connections: BTreeMap<ConnId, Connection>,
    calls: BTreeMap<CallId, ConnId>,
    calls_total: u64,
    /// Bytes that are asked for or not taken by the kernel, of all connections.
    held_bytes: u64,
    /// Those that read on when there is memory, in the order in which they came.
    waiting: VecDeque<ConnId>,
    /// When the node is asked again for whom.
    retries: BTreeSet<(Time, ConnId)>,
    /// No connection has waited too long before this time.
    wake: Option<Time>,
    figures: ObjectDoorFigures,
    effects: VecDeque<ObjectDoorEffect>,
}

impl ObjectDoor {
    /// A door without connections, which lets nobody in yet.
    #[must_use]
    pub fn new(config: ObjectDoorConfig) -> Self {
        Self {
            config,
            gate: ObjectGate::default(),
            is_stopping: false,
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            calls_total: 0,
            held_bytes: 0,
            waiting: VecDeque::new(),
            retries: BTreeSet::new(),
            wake: None,
            figures: ObjectDoorFigures::default(),
            effects: VecDeque::new(),
        }
    }

    /// Whether an answer with this id is for the door.
    #[must_use]
    pub const fn owns(id: CallId) -> bool {
        id.0 >> 58 == 1
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, wall: WallTime, input: ObjectDoorInput) {
        match input {
            ObjectDoorInput::Opened(id) => self.open(now, wall, id),
            ObjectDoorInput::Received(id, chunk) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.active = now;
                    connection.inbox.push(chunk);
                    self.go_on(now, wall, id);
                }
            }
            ObjectDoorInput::Sent(id, bytes) => self.take_sent(now, wall, id, bytes),
            ObjectDoorInput::PeerDone(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_peer_done = true;
                    self.go_on(now, wall, id);
                }
            }
            ObjectDoorInput::Closed(id) => self.forget(id),
            ObjectDoorInput::Reply(reply) => self.take_reply(now, wall, reply),
            ObjectDoorInput::Gate(gate) => self.gate = gate,
            ObjectDoorInput::Stop => self.stop(),
            ObjectDoorInput::Timeout => self.take_timeout(now, wall),
        }
        self.serve_waiting(now);
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<ObjectDoorEffect> {
        self.effects.pop_front()
    }

    /// When to call [`handle`](Self::handle) with [`ObjectDoorInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let retry = self.retries.first().map(|&(when, _)| when);
        self.wake.into_iter().chain(retry).min()
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> ObjectDoorFigures {
        ObjectDoorFigures {
            connections: self.connections.len(),
            held_bytes: self.held_bytes,
            ..self.figures
        }
    }

    fn open(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let is_full = self.connections.len() >= self.config.connections_max;
        self.connections.insert(id, Connection::new(now));
        if is_full {
            self.refuse_unread(wall, id, Status::ServiceUnavailable, "too many connections");
        }
        if self.is_stopping {
            self.shut(id);
        }
        self.watch(id);
    }

    /// Serves what has arrived on a connection, as far as it is its turn.
    fn go_on(&mut self, now: Time, wall: WallTime, id: ConnId) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_closing {
                connection.inbox.clear();
                break;
            }
            if connection.transfer.is_some() || connection.unsent_bytes > self.config.ahead_bytes {
                break;
            }
            match connection.inbox.take_head(now, &self.config.head) {
                Ok(Some(head)) => self.begin(now, wall, id, head),
                Ok(None) => {
                    if connection.is_peer_done {
                        self.shut(id);
                    }
                    break;
                }
                Err(error) => {
                    self.refuse_unread(wall, id, error.status(), &error.to_string());
                    break;
                }
            }
        }
        self.hold_back(id);
        self.watch(id);
    }

    fn begin(&mut self, now: Time, wall: WallTime, id: ConnId, head: RequestHead) {
        match head.method {
            Method::Get | Method::Head => {}
            Method::Unknown => {
                let hint = "the method is not known here";
                return self.refuse_unread(wall, id, Status::NotImplemented, hint);
            }
            _ => {
                let answer = ResponseHead::new(head.version, Status::MethodNotAllowed)
                    .header("Allow", "GET, HEAD")
                    .content_length(0);
                self.answer(wall, id, &answer.keep_alive(false));
                return self.shut(id);
            }
        }
        // Where content ends is nothing that this door cares for.
        if head.framing != Framing::None {
            return self.refuse_unread(wall, id, Status::BadRequest, "content is not taken here");
        }
        let (path, query) = split(&head.target.raw);
        let seconds = u64::try_from(wall.0 / 1_000_000_000).unwrap_or(0);
        match self.gate.check(path, query, seconds) {
            Ok(url) => {
                let transfer = Transfer::new(head, url);
                let request = transfer.stat();
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.transfer = Some(Box::new(transfer));
                    self.ask(now, id, request);
                }
            }
            Err(denial) => {
                let status = match denial.status() {
                    400 => Status::BadRequest,
                    _ => Status::Forbidden,
                };
                let asked = Asked {
                    version: head.version,
                    keep_alive: head.keep_alive,
                    is_head: head.method == Method::Head,
                };
                self.refuse(wall, id, asked, status, &denial.to_string());
                if !asked.keep_alive {
                    self.shut(id);
                }
            }
        }
    }

    fn take_reply(&mut self, now: Time, wall: WallTime, reply: NodeReply) {
        let Some(id) = self.calls.remove(&reply.id) else {
            return; // Nobody waits any more.
        };
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        let node = transfer.node();
        transfer.call = None;
        let held = transfer.asked_bytes();
        let next = match (reply.outcome, transfer.is_reading()) {
            (Ok(NodeAnswer::Stat(stat)), false) => transfer.found(stat.version),
            (Ok(NodeAnswer::Read { payload, .. }), true) => transfer.arrived(payload),
            // No answer to what was asked is as good as none.
            (Ok(_), _) => transfer.failed(&NodeError::Unavailable { node }),
            (Err(error), _) => transfer.failed(&error),
        };
        let is_to_come = matches!(next, Next::Wait(_));
        if !is_to_come {
            self.held_bytes -= held;
        }
        self.follow(now, wall, id, next);
        self.go_on(now, wall, id);
    }

    fn follow(&mut self, now: Time, wall: WallTime, id: ConnId, next: Next) {
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        let asked = Asked {
            version: transfer.client(),
            keep_alive: transfer.keep_alive,
            is_head: transfer.head.method == Method::Head,
        };
        match next {
            Next::Ask => self.read_on(now, id),
            Next::Answer(head) => {
                let head = head.keep_alive(transfer.keep_alive);
                self.answer(wall, id, &head);
                self.finish(now, id);
            }
            Next::Send(head, payload) => {
                if let Some(head) = head {
                    self.answer(wall, id, &head.keep_alive(asked.keep_alive));
                }
                self.figures.sent_bytes += payload.len() as u64;
                self.send(id, payload);
                match self.transfer(id).is_some_and(|transfer| transfer.is_read()) {
                    true => self.finish(now, id),
                    false => self.read_on(now, id),
                }
            }
            Next::Wait(pause) => {
                let when = now + pause;
                transfer.retry = Some(when);
                self.retries.insert((when, id));
            }
            Next::Restart => {
                let request = transfer.stat();
                self.ask(now, id, request);
            }
            Next::Refuse(status, hint) => {
                self.refuse(wall, id, asked, status, &hint);
                self.finish(now, id);
            }
            Next::Abort => {
                self.figures.broken_total += 1;
                self.abort(id);
            }
        }
    }

    /// Asks for what comes next, if the client keeps up and there is memory; else it waits
    /// for its turn.
    fn read_on(&mut self, now: Time, id: ConnId) {
        let (ahead_bytes, piece_bytes) = (self.config.ahead_bytes, self.config.piece_bytes);
        let is_full = self.held_bytes >= self.config.memory_bytes;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let is_idle = |transfer: &Transfer| transfer.call.is_none() && transfer.retry.is_none();
        let wants = |transfer: &Transfer| transfer.is_reading() && !transfer.is_read();
        let has_turn = connection.unsent_bytes < ahead_bytes;
        let Some(transfer) = connection.transfer.as_deref_mut() else {
            return;
        };
        if !has_turn || !is_idle(transfer) || !wants(transfer) {
            return;
        }
        if is_full {
            if !std::mem::replace(&mut connection.is_waiting, true) {
                self.waiting.push_back(id);
            }
            return;
        }
        let request = transfer.read(piece_bytes);
        self.held_bytes += transfer.asked_bytes();
        self.ask(now, id, request);
    }

    /// Memory has become free, perhaps.
    fn serve_waiting(&mut self, now: Time) {
        while self.held_bytes < self.config.memory_bytes
            && let Some(id) = self.waiting.pop_front()
        {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_waiting = false;
                self.read_on(now, id);
            }
        }
    }

    fn ask(&mut self, now: Time, id: ConnId, request: NodeRequest) {
        self.calls_total += 1;
        let call = CallId(CALL_BIT | self.calls_total);
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        transfer.call = Some(call);
        let node = transfer.node();
        self.calls.insert(call, id);
        let call = Call {
            id: call,
            deadline: now + self.config.patience,
            request,
        };
        self.effects.push_back(ObjectDoorEffect::Node(node, call));
    }

    fn take_sent(&mut self, now: Time, wall: WallTime, id: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.active = now;
        let bytes = (bytes as u64).min(connection.unsent_bytes);
        connection.unsent_bytes -= bytes;
        self.held_bytes -= bytes;
        self.read_on(now, id);
        self.go_on(now, wall, id);
    }

    /// A response that tells why there is none, and what can be done.
    fn refuse(&mut self, wall: WallTime, id: ConnId, asked: Asked, status: Status, hint: &str) {
        let text = Bytes::from(format!("{hint}; ask the gateway again for a URL\n"));
        let mut head = ResponseHead::new(asked.version, status)
            .keep_alive(asked.keep_alive)
            .header("Content-Type", "text/plain; charset=utf-8")
            .content_length(text.len() as u64);
        if status == Status::ServiceUnavailable {
            head = head.header("Retry-After", "1");
        }
        self.answer(wall, id, &head);
        // Of HEAD the text would be taken for the next response.
        if !asked.is_head {
            self.send(id, Payload::from(text));
        }
    }

    /// Where the next request begins cannot be told: answers, and ends the connection.
    fn refuse_unread(&mut self, wall: WallTime, id: ConnId, status: Status, hint: &str) {
        let asked = Asked {
            version: HttpVersion::Http11,
            keep_alive: false,
            is_head: false,
        };
        self.refuse(wall, id, asked, status, hint);
        self.shut(id);
    }

    /// Sends the head of a response.
    fn answer(&mut self, wall: WallTime, id: ConnId, head: &ResponseHead) {
        self.figures.response(head.status());
        self.send(id, Payload::from(head.encode(wall)));
    }

    fn send(&mut self, id: ConnId, payload: Payload) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let bytes = payload.len() as u64;
        connection.unsent_bytes += bytes;
        self.held_bytes += bytes;
        let pieces = payload.into_pieces();
        match self.effects.back_mut() {
            // Head and content leave in one send.
            Some(ObjectDoorEffect::Send(to, before)) if *to == id => before.extend(pieces),
            _ if pieces.is_empty() => {}
            _ => self.effects.push_back(ObjectDoorEffect::Send(id, pieces)),
        }
    }

    /// The response is on its way, all of it.
    fn finish(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.active = now;
        let transfer = connection.transfer.take();
        if transfer.is_some_and(|transfer| !transfer.keep_alive) {
            self.shut(id);
        }
    }

    /// Nothing more is served: it ends behind what is to be sent.
    fn shut(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.is_closing, true)
        {
            connection.inbox.clear();
            self.effects.push_back(ObjectDoorEffect::Close(id));
        }
    }

    /// Those that are served are still read to the end of their response.
    fn stop(&mut self) {
        self.is_stopping = true;
        let idle = self.connections.iter();
        let idle = idle.filter(|(_, connection)| connection.transfer.is_none());
        for id in idle.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.shut(id);
        }
        for connection in self.connections.values_mut() {
            if let Some(transfer) = &mut connection.transfer {
                transfer.keep_alive = false;
            }
        }
    }

    fn abort(&mut self, id: ConnId) {
        self.forget(id);
        self.effects.push_back(ObjectDoorEffect::Abort(id));
    }

    /// The connection is over.
    fn forget(&mut self, id: ConnId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        self.held_bytes -= connection.held_bytes();
        self.waiting.retain(|&waiting| waiting != id);
        let Some(transfer) = connection.transfer else {
            return;
        };
        if let Some(when) = transfer.retry {
            self.retries.remove(&(when, id));
        }
        if let Some(call) = transfer.call {
            self.calls.remove(&call);
            let node = transfer.node();
            self.effects.push_back(ObjectDoorEffect::Cancel(node, call));
        }
    }

    /// Stops reading from who has sent more than can be served now, and reads on.
    fn hold_back(&mut self, id: ConnId) {
        let limit = self.config.head.head_bytes_max;
        let connection = self.connections.get_mut(&id);
        let changed = connection.and_then(|connection| connection.inbox.hold_back(limit));
        self.effects.extend(changed.map(|is_held| match is_held {
            true => ObjectDoorEffect::Pause(id),
            false => ObjectDoorEffect::Resume(id),
        }));
    }

    /// Something has happened to a connection: when is it to be looked at?
    fn watch(&mut self, id: ConnId) {
        let connection = self.connections.get(&id);
        let due = connection.and_then(|connection| connection.deadline(&self.config));
        self.wake = self.wake.into_iter().chain(due.map(|(due, _)| due)).min();
    }

    fn take_timeout(&mut self, now: Time, wall: WallTime) {
        while let Some(&(when, id)) = self.retries.first()
            && when <= now
        {
            self.retries.pop_first();
            self.retry(now, id);
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
            self.end_late(now, wall, id, why);
        }
    }

    /// The node was busy.
    fn retry(&mut self, now: Time, id: ConnId) {
        let piece_bytes = self.config.piece_bytes;
        if let Some(transfer) = self.transfer(id) {
            transfer.retry = None;
            let request = match transfer.is_reading() {
                true => transfer.read(piece_bytes),
                false => transfer.stat(),
            };
            self.ask(now, id, request);
        }
    }

    fn end_late(&mut self, now: Time, wall: WallTime, id: ConnId, why: Late) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        self.figures.late_total += 1;
        match why {
            Late::Head => {
                connection.active = now; // It has its time to read why.
                let hint = "the request was not complete in time";
                self.refuse_unread(wall, id, Status::RequestTimeout, hint);
                self.watch(id);
            }
            Late::Idle if !connection.is_closing => {
                connection.active = now;
                self.shut(id);
                self.watch(id);
            }
            Late::Idle | Late::Reader => self.abort(id),
        }
    }

    fn transfer(&mut self, id: ConnId) -> Option<&mut Transfer> {
        self.connections.get_mut(&id)?.transfer.as_deref_mut()
    }
}

/// What a response depends on that refuses a request.
#[derive(Clone, Copy)]
struct Asked {
    version: HttpVersion,
    keep_alive: bool,
    is_head: bool,
}

/// Path and query of a target as it was sent: a signed URL has nothing that is encoded.
fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}
