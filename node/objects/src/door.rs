//! The machine: connections, and the requests that they make.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use crossdock_delivery::{Delivery, End, StreamId};
use crossdock_http1::{Framing, HttpVersion, Method, RequestHead, ResponseHead, Status};
use crossdock_names::NodeId;
use crossdock_peer::CallId;
use crossdock_types::{Time, WallTime};
use crossdock_web::ObjectGate;

use crate::connection::{Connection, Late};
use crate::figures::ObjectDoorFigures;
use crate::message::{ConnId, ObjectDoorConfig, ObjectDoorEffect, ObjectDoorInput};
use crate::transfer::Transfer;

/// Calls of the door have this bit, those of others never.
pub(crate) const CALL_BIT: u64 = 1 << 58;

/// No more requests are served while so much of earlier responses waits for the kernel.
const UNSENT_BYTES_MAX: u64 = 64 << 10;

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
    pub(crate) config: ObjectDoorConfig,
    gate: ObjectGate,
    is_stopping: bool,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    /// Says what is read when; it has the memory for that.
    pub(crate) delivery: Delivery,
    pub(crate) streams: BTreeMap<StreamId, ConnId>,
    pub(crate) streams_total: u64,
    pub(crate) calls: BTreeMap<CallId, ConnId>,
    pub(crate) calls_total: u64,
    /// When the node is asked again for whom.
    pub(crate) retries: BTreeSet<(Time, ConnId)>,
    /// No connection has waited too long before this time.
    wake: Option<Time>,
    pub(crate) figures: ObjectDoorFigures,
    pub(crate) effects: VecDeque<ObjectDoorEffect>,
}

impl ObjectDoor {
    /// A door without connections, which lets nobody in yet.
    #[must_use]
    pub fn new(config: ObjectDoorConfig) -> Self {
        Self {
            delivery: Delivery::new(config.delivery),
            config,
            gate: ObjectGate::default(),
            is_stopping: false,
            connections: BTreeMap::new(),
            streams: BTreeMap::new(),
            streams_total: 0,
            calls: BTreeMap::new(),
            calls_total: 0,
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
            ObjectDoorInput::PeerDone(id) => self.take_peer_done(now, wall, id),
            ObjectDoorInput::Sampled(id, sample) => {
                let stream = self.transfer(id).and_then(|transfer| transfer.stream);
                if let Some(stream) = stream {
                    self.delivery.sample(now, stream, sample);
                }
            }
            ObjectDoorInput::Disk(node, profile) => {
                self.delivery.set_disk(node.0, profile);
            }
            ObjectDoorInput::Closed(id) => self.forget(now, id),
            ObjectDoorInput::Reply(reply) => self.take_reply(now, wall, reply),
            ObjectDoorInput::Gate(gate) => self.gate = gate,
            ObjectDoorInput::Stop => self.stop(),
            ObjectDoorInput::Timeout => self.take_timeout(now, wall),
        }
        self.carry_decisions(now);
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<ObjectDoorEffect> {
        self.effects.pop_front()
    }

    /// When to call [`handle`](Self::handle) with [`ObjectDoorInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let retry = self.retries.first().map(|&(when, _)| when);
        let delivery = self.delivery.poll_timeout();
        self.wake.into_iter().chain(retry).chain(delivery).min()
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> ObjectDoorFigures {
        ObjectDoorFigures {
            connections: self.connections.len(),
            held_bytes: self.delivery.figures().memory_used,
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

    fn take_peer_done(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.is_peer_done = true;
        let transfer = connection.transfer.as_deref();
        if let Some(stream) = transfer.and_then(|transfer| transfer.stream) {
            // It may well read on (RFC 9112 section 9.6), or be gone.
            self.delivery.close(now, stream, End::PeerFinished);
        }
        self.go_on(now, wall, id);
    }

    /// Serves what has arrived on a connection, as far as it is its turn.
    pub(crate) fn go_on(&mut self, now: Time, wall: WallTime, id: ConnId) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_closing {
                connection.inbox.clear();
                break;
            }
            if connection.transfer.is_some() || connection.unsent_bytes > UNSENT_BYTES_MAX {
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
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.transfer = Some(Box::new(Transfer::new(head, url)));
                    self.look(now, id);
                }
            }
            Err(denial) => {
                let status = match denial.status() {
                    400 => Status::BadRequest,
                    _ => Status::Forbidden,
                };
                let asked = Asked::by(&head);
                self.refuse(wall, id, asked, status, &denial.to_string());
                if !asked.keep_alive {
                    self.shut(id);
                }
            }
        }
    }

    /// A response that tells why there is none, and what can be done.
    pub(crate) fn refuse(
        &mut self,
        wall: WallTime,
        id: ConnId,
        asked: Asked,
        status: Status,
        hint: &str,
    ) {
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
            self.send(id, text);
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
    pub(crate) fn answer(&mut self, wall: WallTime, id: ConnId, head: &ResponseHead) {
        self.figures.response(head.status());
        self.send(id, head.encode(wall));
    }

    fn send(&mut self, id: ConnId, text: Bytes) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.push_plain(text.len() as u64);
            self.push(id, vec![text]);
        }
    }

    /// The response is on its way, all of it.
    pub(crate) fn finish(&mut self, now: Time, id: ConnId) {
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

    pub(crate) fn abort(&mut self, now: Time, id: ConnId) {
        self.forget(now, id);
        self.effects.push_back(ObjectDoorEffect::Abort(id));
    }

    /// The connection is over.
    fn forget(&mut self, now: Time, id: ConnId) {
        self.drop_content(now, id, End::Reset);
        self.connections.remove(&id);
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
            self.end_late(now, wall, id, why);
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
            Late::Idle | Late::Reader => self.abort(now, id),
        }
    }

    pub(crate) fn transfer(&mut self, id: ConnId) -> Option<&mut Transfer> {
        self.connections.get_mut(&id)?.transfer.as_deref_mut()
    }

    pub(crate) fn node_of(&self, id: ConnId) -> Option<NodeId> {
        let transfer = self.connections.get(&id)?.transfer.as_deref();
        transfer.map(Transfer::node)
    }
}

/// What a response depends on that refuses a request.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) version: HttpVersion,
    pub(crate) keep_alive: bool,
    pub(crate) is_head: bool,
}

impl Asked {
    pub(crate) fn by(head: &RequestHead) -> Self {
        Self {
            version: head.version,
            keep_alive: head.keep_alive,
            is_head: head.method == Method::Head,
        }
    }
}

/// Path and query of a target as it was sent: a signed URL has nothing that is encoded.
fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}
