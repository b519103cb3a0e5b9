//! The machine: connections and datagrams, calls in progress, back-pressure.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::{NFS_TCP_IO_BYTES_MAX, NFS_UDP_IO_BYTES_MAX};
use crossdock_locking::{Finished, LockThen};
use crossdock_names::{ExportId, FileRef, HandleKeys};
use crossdock_nfs3::mount;
use crossdock_peer::{
    Call, CallId, Choice, Flow, Policy, SiteOperation, SiteRequest, TransferMode, Transport,
};
use crossdock_router::{Heat, RoutedReply, Waited};
use crossdock_rpc::{CallHeader, RecordWriter, ReplyHeader};
use crossdock_types::{Payload, Time};
use crossdock_xdr::{Decoder, Encode};

use crate::ahead::{Mark, Readers};
use crate::connection::Connection;
use crate::convert::View;
use crate::datagrams::datagrams;
use crate::dispatch::Served;
use crate::figures::{Answered, Figures, Kind, Meter};
use crate::identity::CallerCache;
use crate::locking::Locking;
use crate::message::{ConnId, DoorConfig, NfsEffect, NfsInput};
use crate::mount::{Walk, Walked};
use crate::mounts::Mounts;
use crate::proofs::Proofs;
use crate::proving::Unproven;
use crate::request::Expected;
use crate::room::Line;
use crate::way::{Places, directory_of};

/// Serves NFS, MOUNT and locks to any number of clients.
///
/// [`handle`](Self::handle) takes what happened; then
/// [`poll_effect`](Self::poll_effect) until it is empty, in order; then wait no
/// longer than [`poll_timeout`](Self::poll_timeout). It waits for the router,
/// which answers each call by its deadline, and for clients as long as its
/// limits say.
///
/// A connection is paused while it, or the door, holds as much as its limits
/// allow, and read again when replies have gone out. When a connection ends its
/// reads are withdrawn; what changes something goes on.
pub struct NfsDoor {
    pub(crate) config: DoorConfig,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    /// Closed, but not all is sent yet: since when.
    pub(crate) closing: BTreeMap<ConnId, Time>,
    /// No connection has waited too long before this time.
    pub(crate) wake: Option<Time>,
    pub(crate) calls: BTreeMap<CallId, Pending>,
    /// WRITEs in progress by client and xid.
    writes: BTreeMap<(IpAddr, u32), CallId>,
    pub(crate) calls_total: u64,
    pub(crate) bytes: usize, // Of calls in progress and of replies not gone yet.
    pub(crate) datagram_callers: CallerCache,
    pub(crate) mounts: Mounts,
    pub(crate) figures: Figures,
    /// How long the connection that is being served stood in line before.
    pub(crate) queued: Duration,
    pub(crate) locking: Locking,
    /// Whether the gateway is scoped to exports.
    pub(crate) is_scoped: bool,
    pub(crate) proofs: Proofs,
    pub(crate) readers: Readers,
    /// Which way bytes go.
    pub(crate) transfer: Arc<Policy>,
    pub(crate) places: Places,
    pub(crate) heat: Heat,
    pub(crate) effects: VecDeque<NfsEffect>,
    with_replies: VecDeque<ConnId>, // Connections whose outbox is not empty.
    pub(crate) arrived_bytes: usize, // Of these, what is no call yet.
    /// Paused because the door is full.
    pub(crate) lines: [VecDeque<ConnId>; Line::COUNT],
    /// Those that have had their turn, and when the next one begins.
    pub(crate) turns: VecDeque<ConnId>,
    pub(crate) next_turn: Option<Time>,
}

/// Where a call came from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    Stream(ConnId, SocketAddr),
    /// And where it has arrived, if nodes may answer from there.
    Datagram(SocketAddr, Option<SocketAddr>),
}

impl Origin {
    pub(crate) const fn client(&self) -> SocketAddr {
        match self {
            Self::Stream(_, client) | Self::Datagram(client, _) => *client,
        }
    }

    /// Bytes of a list of MOUNT.
    pub(crate) const fn list_bytes_max(&self) -> usize {
        match self {
            Self::Stream(..) => NFS_TCP_IO_BYTES_MAX,
            Self::Datagram(..) => NFS_UDP_IO_BYTES_MAX,
        }
    }

    /// Largest READ and WRITE.
    #[expect(clippy::cast_possible_truncation, reason = "limits of 1 MiB and less")]
    pub(crate) const fn io_bytes_max(&self) -> u32 {
        const TCP: u32 = NFS_TCP_IO_BYTES_MAX as u32;
        const UDP: u32 = NFS_UDP_IO_BYTES_MAX as u32;
        match self {
            Self::Stream(..) => TCP,
            Self::Datagram(..) => UDP,
        }
    }
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) origin: Origin,
    meter: Meter,
    xid: u32,
    bytes: usize, // Counted until the reply is there.
    export: ExportId,
    pub(crate) then: Then,
    /// Of a READ over a connection.
    read: Option<Mark>,
    /// Of a READ that nodes could answer and are not asked to: why, and whether its file is hot.
    relayed: Option<(Choice, bool)>,
    /// Where a name is looked for, or made.
    directory: Option<FileRef>,
    /// Of a WRITE: to recognise its retransmission.
    record: Option<Bytes>,
    /// Whether handles in the reply are of format 2: those in the call were, or the
    /// gateway is scoped.
    is_proven: bool,
    /// What waits until handles of the call are known to be true.
    pub(crate) unproven: Option<Box<Unproven>>,
}

/// What the answer is for.
#[derive(Debug)]
pub(crate) enum Then {
    Nfs(Expected),
    Mount(Walk),
    Lock(LockThen),
}

/// Room for the headers of a reply.
pub(crate) const HEAD_BYTES: usize = 256;

impl NfsDoor {
    /// A door without connections.
    #[must_use]
    pub fn new(config: DoorConfig) -> Self {
        Self {
            config,
            connections: BTreeMap::new(),
            closing: BTreeMap::new(),
            wake: None,
            calls: BTreeMap::new(),
            writes: BTreeMap::new(),
            calls_total: 0,
            bytes: 0,
            datagram_callers: CallerCache::default(),
            mounts: Mounts::default(),
            figures: Figures::default(),
            queued: Duration::ZERO,
            locking: Locking::default(),
            is_scoped: false,
            proofs: Proofs::default(),
            readers: Readers::default(),
            transfer: Arc::default(),
            places: Places::default(),
            heat: Heat::default(),
            effects: VecDeque::new(),
            with_replies: VecDeque::new(),
            arrived_bytes: 0,
            lines: Default::default(),
            turns: VecDeque::new(),
            next_turn: None,
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, input: NfsInput) {
        match input {
            NfsInput::Opened(id, peer) => self.open(now, id, peer),
            NfsInput::OpenedPortmap(id, peer) => {
                self.open(now, id, peer);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_portmap = true;
                }
            }
            NfsInput::Flow(id, flow) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.flow = Some(Box::new(flow));
                }
            }
            NfsInput::Received(id, chunk) => {
                // Unknown: it was closed while the bytes were under way.
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.received(chunk);
                    self.go_on(now, id);
                }
            }
            NfsInput::Filled(id, record) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    self.bytes -= connection.filling_bytes;
                    connection.filled(record);
                    self.go_on(now, id);
                }
            }
            NfsInput::Sent(id, bytes) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    let bytes = bytes.min(connection.unsent_bytes);
                    connection.sent(bytes);
                    self.bytes -= bytes;
                    self.readers.sent(now, id);
                    self.after_room(now, id);
                    self.watch(now, id);
                }
            }
            NfsInput::PeerDone(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_peer_done = true;
                    self.close_if_done(now, id);
                }
            }
            NfsInput::Closed(id) => {
                self.closing.remove(&id);
                self.forget(now, id);
            }
            NfsInput::PortmapDatagram(client, datagram) => self.map_datagram(client, &datagram),
            NfsInput::Services(services) => self.locking.services = services,
            NfsInput::Lock(notice) => self.take_notice(now, notice),
            NfsInput::Datagram(client, datagram) => self.take_datagram(now, client, None, datagram),
            NfsInput::DatagramIn(flow, datagram) => {
                self.take_datagram(now, flow.destination, Some(flow.source), datagram);
            }
            NfsInput::Exports(exports) => {
                self.mounts.keep_of(&exports);
                self.figures.keep_exports(&exports);
                self.config.exports = exports;
            }
            NfsInput::Policy(policy) => {
                self.heat.limit(policy.hot_file_bytes_max);
                self.transfer = policy;
            }
            NfsInput::HandleKey(key) => {
                self.config.keys = Some(HandleKeys::new(vec![key]));
                self.wake_waiting(now);
            }
            NfsInput::Scoped(is_scoped) => {
                self.is_scoped = is_scoped;
                self.wake_waiting(now);
            }
            NfsInput::Sampled(id, sample) => self.note_sample(id, sample),
            NfsInput::Advice(advice) => self.readers.advised(advice),
            NfsInput::Reply(routed) => self.answered(now, *routed),
            NfsInput::Timeout => {
                if self.next_turn.is_some() {
                    self.take_turns(now);
                }
                self.end_stalled(now);
                self.readers.timeout(now);
                self.locking.calls.timeout(now);
                self.run_calls(now);
            }
        }
    }

    /// What is to be done next. Replies that are ready together go out in one
    /// send per connection, after everything else.
    pub fn poll_effect(&mut self) -> Option<NfsEffect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        if let Some(effect) = self.readers.poll_effect() {
            return Some(effect);
        }
        while let Some(id) = self.with_replies.pop_front() {
            if let Some(connection) = self.connections.get_mut(&id)
                && !connection.outbox.is_empty()
            {
                return Some(NfsEffect::Send(id, std::mem::take(&mut connection.outbox)));
            }
        }
        None
    }

    /// When to call [`handle`](Self::handle) with [`NfsInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let calls = self.locking.calls.poll_timeout();
        let first = self.next_turn.or(self.wake).into_iter();
        first.chain(calls).chain(self.readers.poll_timeout()).min()
    }

    /// Calls in progress.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Bytes of calls in progress, and of replies that are not gone yet.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn open(&mut self, now: Time, id: ConnId, peer: SocketAddr) {
        let all = self.connections.len() + self.closing.len();
        if all >= self.config.limits.connections_max && !self.end_idlest(now) {
            self.effects.push_back(NfsEffect::Close(id));
            return;
        }
        self.connections.insert(id, Connection::new(now, peer));
        self.watch(now, id);
    }

    /// Answers a record, or asks the router.
    pub(crate) fn serve(
        &mut self,
        now: Time,
        origin: Origin,
        record: Bytes,
    ) -> Result<(), Unserved> {
        let mut decoder = Decoder::of_record(&record);
        let header = match CallHeader::decode(&mut decoder) {
            Ok(header) => header,
            Err(error) => {
                let reply = error.reply().ok_or(Unserved::NotACall)?;
                self.reject(&origin, &reply);
                return Ok(());
            }
        };
        let xid = header.xid;
        let success = ReplyHeader::success(xid);
        let mut meter = Meter {
            kind: Kind::of(&header),
            arrived: now,
            in_bytes: record.len(),
            file: None,
            queued: self.queued,
            waited: Waited::default(),
        };
        match self.dispatch(&origin, &header, decoder, &record) {
            Served::Header(reply) => self.reject(&origin, &reply),
            Served::Nfs(reply) => {
                let out_bytes = self.send(&origin, &success, &reply);
                self.note(
                    now,
                    &origin,
                    (meter, None),
                    Answered::nfs(&reply),
                    out_bytes,
                );
            }
            Served::Mount(reply) => {
                let out_bytes = self.send(&origin, &success, &reply);
                self.note(
                    now,
                    &origin,
                    (meter, None),
                    Answered::mount(&reply),
                    out_bytes,
                );
            }
            Served::Lock(results, status) => {
                let out_bytes = self.send(&origin, &success, &results);
                self.note(
                    now,
                    &origin,
                    (meter, None),
                    Answered::lock(status),
                    out_bytes,
                );
            }
            Served::Ask {
                request,
                export,
                then,
                reply_bytes_max,
                mut shown,
            } => {
                let bytes = record.len() + reply_bytes_max;
                if !self.has_room(self.held_of(&origin), bytes) {
                    return Err(Unserved::NoRoom(record, bytes));
                }
                let is_write = matches!(then, Then::Nfs(Expected::Write { .. }));
                meter.file = Some(request.operation.subject().id.0);
                let is_proven = self.is_scoped || !shown.is_empty();
                shown.retain(|shown| !self.proofs.has(shown));
                let pending = Pending {
                    origin,
                    meter,
                    xid,
                    bytes,
                    export,
                    then,
                    read: None,
                    relayed: None,
                    directory: None,
                    record: is_write.then_some(record),
                    is_proven,
                    unproven: None,
                };
                if self.take_over(now, &pending) {
                    self.figures.retransmitted_total += 1;
                } else {
                    self.count(&pending.origin, pending.bytes);
                    self.prove(now, pending, shown, request);
                }
            }
        }
        Ok(())
    }

    /// Whether `again` is a WRITE that is in progress already: sent again over a
    /// new connection, or as another datagram. It then gets the reply of the
    /// first one. Were both carried out, the first, if it had to wait for a
    /// holder, could land after the next write of the client and undo it
    /// (CONSISTENCY 3, history `late-write`).
    fn take_over(&mut self, now: Time, again: &Pending) -> bool {
        if again.record.is_none() {
            return false; // Harmless, or recognised by the site.
        }
        let Some(id) = self.writes.get(&again.write_key()).copied() else {
            return false;
        };
        let Some(first) = self.calls.get_mut(&id) else {
            return false;
        };
        if first.record != again.record {
            return false;
        }
        let (bytes, old) = (
            first.bytes,
            std::mem::replace(&mut first.origin, again.origin),
        );
        self.uncount(&old, bytes);
        self.count(&again.origin, bytes);
        if let Origin::Stream(id, _) = old {
            self.close_if_done(now, id);
        }
        true
    }

    /// Hands a request to the router.
    pub(crate) fn ask(&mut self, now: Time, mut pending: Pending, request: SiteRequest) {
        self.calls_total += 1;
        pending.read = self.note_read(now, &pending.origin, &request);
        pending.directory = directory_of(&request.operation);
        let id = CallId(self.calls_total);
        if pending.record.is_some() {
            self.writes.entry(pending.write_key()).or_insert(id);
        }
        let call = Box::new(Call {
            id,
            deadline: now + self.config.patience,
            request,
        });
        let effect = self.asking(now, &mut pending, call);
        self.calls.insert(id, pending);
        self.effects.push_back(effect);
    }

    /// In what nodes may send.
    fn flow_of(&self, origin: &Origin) -> Option<Flow> {
        match origin {
            Origin::Stream(id, _) => self.connections.get(id)?.flow.as_deref().copied(),
            Origin::Datagram(client, at) => Some(datagrams((*at)?, *client)),
        }
    }

    /// How the router is asked: if it is a read, by what is to become of the bytes.
    fn asking(&self, now: Time, pending: &mut Pending, call: Box<Call<SiteRequest>>) -> NfsEffect {
        let SiteOperation::Read {
            file, length_bytes, ..
        } = call.request.operation
        else {
            return NfsEffect::Router(call);
        };
        let flow = self.flow_of(&pending.origin);
        let is_hot = self.heat.is_hot(now, file);
        let choice = self.way(
            &pending.origin,
            pending.export,
            (file, length_bytes, is_hot),
        );
        match flow {
            Some(flow) if choice.mode != TransferMode::Relay => {
                return NfsEffect::ReadFor(flow, choice, call);
            }
            Some(flow) if flow.transport == Transport::Tcp => {
                pending.relayed = Some((choice, is_hot));
            }
            // The shell counts what goes in datagrams.
            _ => {}
        }
        match is_hot {
            true => NfsEffect::ReadHot(call),
            false => NfsEffect::Router(call),
        }
    }

    /// What is kept for whoever called.
    fn held_of(&self, origin: &Origin) -> usize {
        match origin {
            Origin::Stream(id, _) => self.connections.get(id).map_or(0, Connection::held_bytes),
            Origin::Datagram(..) => 0,
        }
    }

    fn count(&mut self, origin: &Origin, bytes: usize) {
        self.bytes += bytes;
        if let Origin::Stream(id, _) = origin
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.calls += 1;
            connection.calls_bytes += bytes;
        }
    }

    fn uncount(&mut self, origin: &Origin, bytes: usize) {
        self.bytes -= bytes;
        if let Origin::Stream(id, _) = origin
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.calls -= 1;
            connection.calls_bytes -= bytes;
            if connection.calls == 0 && !connection.awaits_turn {
                connection.turn_calls = 0;
            }
        }
    }

    /// The router has answered.
    fn answered(&mut self, now: Time, routed: RoutedReply) {
        let id = routed.reply.id;
        let Some(mut pending) = self.calls.remove(&id) else {
            return;
        };
        if pending.record.is_some() && self.writes.get(&pending.write_key()) == Some(&id) {
            self.writes.remove(&pending.write_key());
        }
        let waited = &mut pending.meter.waited;
        waited.site += routed.waited.site;
        waited.nodes += routed.waited.nodes;
        let Some(mut pending) = self.take_proved(now, pending, &routed.reply) else {
            return;
        };
        if let Some(directory) = pending.directory {
            self.note_place(directory, &routed.reply);
        }
        self.note_bytes(now, pending.relayed, &routed.reply);
        let view = View {
            volume: self.config.volume,
            keys: self.config.keys.as_ref(),
            export: pending.export,
            proofs: pending.is_proven.then_some(&self.proofs),
        };
        let success = ReplyHeader::success(pending.xid);
        let origin = pending.origin;
        let metered = (pending.meter, Some(pending.export));
        match &mut pending.then {
            Then::Nfs(expected) => {
                let after = routed.reply.subject.after.as_ref();
                let size = after.map(|after| after.size_bytes);
                let reply = crate::reply::reply(&view, expected, routed);
                let out_bytes = self.send(&origin, &success, &reply);
                if let Some(mark) = pending.read {
                    self.note_answer(&origin, mark, out_bytes, size);
                }
                self.note(now, &origin, metered, Answered::nfs(&reply), out_bytes);
            }
            Then::Mount(walk) => match walk.next(&view, &routed.reply) {
                Walked::Reply(reply) => {
                    if let mount::Reply::Mnt(Ok(_)) = &reply {
                        let path = std::mem::take(&mut walk.path);
                        self.mounts.add(origin.client(), path, walk.export);
                    }
                    let out_bytes = self.send(&origin, &success, &reply);
                    self.note(now, &origin, metered, Answered::mount(&reply), out_bytes);
                }
                Walked::On(operation) => {
                    return self.ask(now, pending, SiteRequest::as_root(operation));
                }
            },
            Then::Lock(then) => {
                let Finished {
                    results,
                    status,
                    call,
                } = then.finish(&routed.reply);
                let export = Some(pending.export).filter(|_| !then.is_of_client());
                let metered = (pending.meter, export);
                let out_bytes = self.send(&origin, &success, &results);
                self.note(now, &origin, metered, Answered::lock(status), out_bytes);
                if let Some(call) = call {
                    self.locking.calls.begin(now, call);
                    self.run_calls(now);
                }
            }
        }
        self.uncount(&origin, pending.bytes);
        match origin {
            Origin::Stream(id, _) => {
                self.watch(now, id);
                self.after_room(now, id);
                self.close_if_done(now, id);
            }
            Origin::Datagram(..) => self.wake_waiting(now),
        }
    }

    /// Sends a reply to whoever called, if he is still there; how long it is.
    pub(crate) fn send(
        &mut self,
        origin: &Origin,
        header: &ReplyHeader<'_>,
        results: &impl Encode,
    ) -> usize {
        match origin {
            Origin::Datagram(client, at) => {
                let reply = record(RecordWriter::datagram(HEAD_BYTES), header, results);
                let bytes = reply.len();
                self.send_datagram(*client, *at, reply);
                bytes
            }
            Origin::Stream(id, _) => {
                let Some(connection) = self.connections.get_mut(id) else {
                    return 0;
                };
                let reply = record(RecordWriter::stream(HEAD_BYTES), header, results);
                let bytes = reply.len();
                connection.unsent_bytes += bytes;
                connection.replied_bytes += bytes as u64;
                self.bytes += bytes;
                if connection.outbox.is_empty() {
                    self.with_replies.push_back(*id);
                }
                connection.outbox.append(reply);
                bytes
            }
        }
    }
}

impl Pending {
    fn write_key(&self) -> (IpAddr, u32) {
        (self.origin.client().ip().to_canonical(), self.xid)
    }
}

/// Why a record is not served.
pub(crate) enum Unserved {
    /// It makes everything behind it on its connection meaningless.
    NotACall,
    /// The door is too full now for this call, which needs so many bytes.
    NoRoom(Bytes, usize),
}

pub(crate) fn record(
    mut writer: RecordWriter,
    header: &ReplyHeader<'_>,
    results: &impl Encode,
) -> Payload {
    let encoder = writer.encoder();
    encoder.put(header);
    encoder.put(results);
    writer.finish()
}
