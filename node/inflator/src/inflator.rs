//! Which gateways a node believes, and what becomes of the packets that they hand it.
//!
//! Sans-io: datagrams of the tunnel come in, reads of pins and packets to send go out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use crossdock_tunnel::{
    Baton, Flow, Packet, Part, Parts, Record, ReplayWindow, Reply, decode_turn, encode_turn, open,
};
use crossdock_types::{Payload, Time};

use crate::fragment::{Head, packets};
use crate::frame::finish;
use crate::merge::Shape;
use crate::message::{Ends, Figures, Filled, GatewayPin, Read, ReadId, Rights, Transport};
use crate::waiting::{Form, Waiting, pieces};

/// Packets that wait for bytes, of all gateways.
const PACKETS_MAX: usize = 16_384;
/// Their payload.
const BYTES_MAX: usize = 256 << 20;
/// Pieces of a payload that go out at once: fewer than one gathered write takes (IOV_MAX).
const PIECES_MAX: usize = 512;
/// Connections that gateways have announced.
const FLOWS_MAX: usize = 65_536;
/// How long packets wait for their turn at most: the node before them has died, or what it said
/// was lost. Shorter than TCP's own patience, 200 ms in Linux.
const TURN_PATIENCE: Duration = Duration::from_millis(100);
/// Turns that came before what they are for.
const TURNS_MAX: usize = 16_384;

#[derive(Debug)]
struct Gateway {
    rights: Rights,
    window: ReplayWindow,
}

/// Why a record does nothing.
enum Untaken {
    /// It may not.
    Refused,
    /// Its flow is not announced, or not any more.
    Unknown,
    /// There is no room for it.
    Full,
}

/// The packets of a flow go out in the order in which they came.
#[derive(Debug)]
struct Queue {
    gateway: u64,
    items: VecDeque<Item>,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Packet(u64),
    /// The next node is told that it is its turn.
    Baton {
        turn: u64,
        to: SocketAddr,
    },
}

/// Whose headers of a connection's packet they are.
fn connection(headers: &[u8]) -> Result<Ends, Untaken> {
    let flow = Flow::of(headers).map_err(|_| Untaken::Refused)?;
    Ok(Ends {
        transport: Transport::Tcp,
        source: flow.source,
        destination: flow.destination,
    })
}

/// A node's side of third-party transfer (SPIRAL section 2).
#[derive(Debug)]
pub struct Inflator {
    boot: u64,
    gateways: BTreeMap<u64, Gateway>,
    flows: BTreeMap<Ends, Queue>,
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    next: u64,
    reads: VecDeque<Read>,
    /// Turns that packets wait for.
    awaited: BTreeMap<u64, u64>,
    /// The same by packet, as their numbers are in the order of time: until when, and for
    /// which.
    deadlines: BTreeMap<u64, (Time, u64)>,
    /// Turns that have come and nobody has waited for, the oldest first.
    early: VecDeque<u64>,
    turns: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Flows whose first packet may be ready.
    ready: BTreeSet<Ends>,
    unfilled: BTreeSet<GatewayPin>,
    /// Of a datagram: what is to be sent before anything else.
    fragments: VecDeque<Filled>,
    spent: Vec<GatewayPin>,
    figures: Figures,
}

impl Inflator {
    /// Of a node in this boot.
    #[must_use]
    pub fn new(boot: u64) -> Self {
        Self {
            boot,
            gateways: BTreeMap::new(),
            flows: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            next: 0,
            reads: VecDeque::new(),
            awaited: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            early: VecDeque::new(),
            turns: VecDeque::new(),
            ready: BTreeSet::new(),
            unfilled: BTreeSet::new(),
            fragments: VecDeque::new(),
            spent: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// A gateway of the ensemble, or a new boot of one: from now on only its datagrams count.
    pub fn admit(&mut self, gateway: u64, rights: Rights) {
        self.dismiss(gateway);
        let window = ReplayWindow::default();
        self.gateways.insert(gateway, Gateway { rights, window });
    }

    /// The gateway is none of the ensemble any more: nothing of it is sent.
    pub fn dismiss(&mut self, gateway: u64) {
        self.gateways.remove(&gateway);
        let theirs = |queue: &Queue| queue.gateway == gateway;
        let flows = self.flows.iter().filter(|(_, queue)| theirs(queue));
        let flows: Vec<Ends> = flows.map(|(&ends, _)| ends).collect();
        for ends in flows {
            self.withdraw(gateway, ends);
        }
    }

    /// As whom the node may speak for a gateway from now on.
    pub fn set_addresses(&mut self, gateway: u64, addresses: Vec<IpAddr>) {
        if let Some(gateway) = self.gateways.get_mut(&gateway) {
            gateway.rights.addresses = addresses;
        }
    }

    /// A gateway will hand packets of this flow; false if it may not, or too many are
    /// announced.
    pub fn announce(&mut self, gateway: u64, ends: Ends) -> bool {
        let rights = self.gateways.get(&gateway).map(|gateway| &gateway.rights);
        let is_theirs = rights.is_some_and(|it| it.addresses.contains(&ends.source.ip()));
        if !is_theirs || self.flows.len() >= FLOWS_MAX {
            return false;
        }
        let new = || Queue {
            gateway,
            items: VecDeque::new(),
        };
        self.flows.entry(ends).or_insert_with(new).gateway == gateway
    }

    /// The flow has ended: what waits for it is dropped.
    pub fn withdraw(&mut self, gateway: u64, ends: Ends) {
        if self.flows.get(&ends).map(|queue| queue.gateway) != Some(gateway) {
            return;
        }
        let items = self.flows.remove(&ends).map(|queue| queue.items);
        for item in items.into_iter().flatten() {
            if let Item::Packet(packet) = item {
                self.forget(packet);
            }
        }
    }

    fn forget(&mut self, packet: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&packet)?;
        if let Some(turn) = waiting.turn {
            self.awaited.remove(&turn);
            self.deadlines.remove(&packet);
        }
        self.waiting_bytes -= waiting.payload_bytes;
        Some(waiting)
    }

    /// A datagram that came to the tunnel's port, from whomever.
    pub fn take(&mut self, now: Time, datagram: &[u8]) {
        if let Some(turn) = decode_turn(datagram) {
            self.on_turn(turn);
            return;
        }
        let gateways = &self.gateways;
        let key = |sender, _| gateways.get(&sender).map(|gateway| &gateway.rights.key);
        let Ok(opened) = open(datagram, key) else {
            self.figures.forged += 1;
            return;
        };
        let envelope = opened.envelope;
        let gateway = self.gateways.get_mut(&envelope.sender);
        let is_new = gateway.is_some_and(|gateway| {
            envelope.receiver_boot == self.boot
                && envelope.sender_boot == gateway.rights.boot
                && gateway.window.admit(envelope.sequence)
        });
        if !is_new {
            self.figures.stale += 1;
            return;
        }
        for record in opened.records() {
            let taken = match &record {
                Ok(Record::Packet(packet)) => self.wait(now, envelope.sender, packet),
                Ok(Record::Baton(baton)) => self.hold(envelope.sender, baton),
                Ok(Record::Reply(reply)) => self.wait_reply(envelope.sender, reply),
                Err(_) => Err(Untaken::Refused),
            };
            match taken {
                Ok(()) => {}
                Err(Untaken::Full) => self.figures.overflowed += 1,
                Err(Untaken::Refused) => self.figures.refused += 1,
                Err(Untaken::Unknown) => {
                    self.figures.refused += 1;
                    if let Ok(Record::Packet(packet)) = record {
                        self.disown(envelope.sender, packet.parts);
                    }
                }
            }
        }
    }

    /// The queue of a flow that the gateway has announced.
    fn queue(&mut self, gateway: u64, ends: &Ends) -> Result<&mut Queue, Untaken> {
        let queue = self.flows.get_mut(ends);
        let queue = queue.filter(|queue| queue.gateway == gateway);
        queue.ok_or(Untaken::Unknown)
    }

    /// The gateway has to be told that nothing of a packet is sent from here: it takes the
    /// flow for announced.
    fn disown(&mut self, gateway: u64, parts: Parts<'_>) {
        let pins = parts.iter().filter_map(|part| match part {
            Part::Extent { pin, .. } => Some(GatewayPin { gateway, pin }),
            Part::Literal(_) => None,
        });
        self.unfilled.extend(pins);
    }

    /// Has a turn wait for the packets before it.
    fn hold(&mut self, gateway: u64, baton: &Baton<'_>) -> Result<(), Untaken> {
        let ends = connection(baton.headers)?;
        let queue = self.queue(gateway, &ends)?;
        if queue.items.len() >= PACKETS_MAX {
            return Err(Untaken::Full);
        }
        let Baton { turn, to, .. } = *baton;
        queue.items.push_back(Item::Baton { turn, to });
        self.ready.insert(ends);
        Ok(())
    }

    /// A node before this one has sent what comes before the packets of this turn.
    fn on_turn(&mut self, turn: u64) {
        let Some(packet) = self.awaited.remove(&turn) else {
            if self.early.len() >= TURNS_MAX {
                self.early.pop_front();
            }
            self.early.push_back(turn);
            return;
        };
        self.deadlines.remove(&packet);
        if let Some(waiting) = self.waiting.get_mut(&packet) {
            waiting.turn = None;
            self.ready.insert(waiting.ends);
        }
    }

    /// The turn that a packet has to wait for, if it has not come already.
    fn await_turn(&mut self, now: Time, packet: u64, turn: u64) -> Option<u64> {
        if let Some(at) = self.early.iter().rposition(|&early| early == turn) {
            self.early.remove(at);
            return None;
        }
        self.awaited.insert(turn, packet);
        self.deadlines.insert(packet, (now + TURN_PATIENCE, turn));
        Some(turn)
    }

    /// When [`Self::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let first = self.deadlines.first_key_value();
        first.map(|(_, &(deadline, _))| deadline)
    }

    /// Whose turn has not come in time goes on.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, &(deadline, turn))) = self.deadlines.first_key_value()
            && deadline <= now
        {
            self.figures.untold += 1;
            self.on_turn(turn);
        }
    }

    /// What another node is to be told, and where.
    pub fn poll_turn(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.turns.pop_front()
    }

    /// Has the packet wait for its bytes.
    fn wait(&mut self, now: Time, gateway: u64, packet: &Packet<'_>) -> Result<(), Untaken> {
        let ends = connection(packet.headers)?;
        let form = Form::Segments(Shape {
            headers: packet.headers.to_vec(),
            segment_bytes: packet.segment_bytes,
            payload_bytes: packet.parts.payload_bytes(),
        });
        let number = self.enqueue(gateway, ends, form, packet.parts)?;
        if packet.turn != 0 {
            let turn = self.await_turn(now, number, packet.turn);
            if let Some(waiting) = self.waiting.get_mut(&number) {
                waiting.turn = turn;
            }
        }
        Ok(())
    }

    /// The same with a datagram of UDP.
    fn wait_reply(&mut self, gateway: u64, reply: &Reply<'_>) -> Result<(), Untaken> {
        let head = Head {
            source: reply.source,
            destination: reply.destination,
            identification: reply.identification,
            mtu: reply.mtu,
        };
        let ends = Ends {
            transport: Transport::Udp,
            source: reply.source,
            destination: reply.destination,
        };
        let pins = reply.parts.iter().filter_map(|part| match part {
            Part::Extent { pin, .. } => Some(pin),
            Part::Literal(_) => None,
        });
        let form = Form::Datagram(head, pins.collect());
        self.enqueue(gateway, ends, form, reply.parts).map(drop)
    }

    /// Its number.
    fn enqueue(
        &mut self,
        gateway: u64,
        ends: Ends,
        form: Form,
        parts: Parts<'_>,
    ) -> Result<u64, Untaken> {
        let number = self.next + 1;
        let payload_bytes = parts.payload_bytes();
        let has_room =
            self.waiting.len() < PACKETS_MAX && payload_bytes <= BYTES_MAX - self.waiting_bytes;
        let queue = self.queue(gateway, &ends)?;
        if !has_room {
            return Err(Untaken::Full);
        }
        queue.items.push_back(Item::Packet(number));
        self.next = number;
        let mut waiting = Waiting {
            ends,
            form,
            payload_bytes,
            parts: Vec::new(),
            missing: 0,
            extent_bytes: 0,
            has_failed: false,
            turn: None,
        };
        for (part, what) in parts.iter().enumerate() {
            let length_bytes = what.length_bytes();
            waiting.parts.push(match what {
                Part::Literal(bytes) => Some(Bytes::copy_from_slice(bytes).into()),
                Part::Extent {
                    pin, offset_bytes, ..
                } => {
                    waiting.missing += 1;
                    waiting.extent_bytes += length_bytes;
                    self.reads.push_back(Read {
                        id: ReadId {
                            packet: number,
                            part,
                        },
                        gateway,
                        pin,
                        offset_bytes,
                        length_bytes,
                    });
                    None
                }
            });
        }
        if waiting.missing == 0 {
            self.ready.insert(ends);
        }
        self.waiting_bytes += payload_bytes;
        self.waiting.insert(number, waiting);
        Ok(number)
    }

    /// The next bytes to be read; each is answered by [`Self::on_read`].
    pub fn poll_read(&mut self) -> Option<Read> {
        self.reads.pop_front()
    }

    /// The bytes of a read, all of them, or none: the pin is unknown, or what lies there
    /// cannot be read. A packet without all its bytes is not sent.
    pub fn on_read(&mut self, read: &Read, bytes: Option<Payload>) {
        let Some(waiting) = self.waiting.get_mut(&read.id.packet) else {
            return;
        };
        let bytes = bytes.filter(|bytes| bytes.len() == read.length_bytes);
        if bytes.is_none() {
            waiting.has_failed = true;
            let Read { gateway, pin, .. } = *read;
            self.unfilled.insert(GatewayPin { gateway, pin });
        }
        if let Some(part @ None) = waiting.parts.get_mut(read.id.part) {
            *part = Some(bytes.unwrap_or_default());
            waiting.missing -= 1;
        }
        if waiting.missing == 0 {
            self.ready.insert(waiting.ends);
        }
    }

    /// A pin that a gateway has to be told of.
    pub fn poll_unfilled(&mut self) -> Option<GatewayPin> {
        self.unfilled.pop_first()
    }

    /// A pin that nothing needs any more: the datagram that it was for is sent.
    pub fn poll_spent(&mut self) -> Option<GatewayPin> {
        self.spent.pop()
    }

    /// The next packet to be sent: the first of its flow, with those behind it that can go
    /// along; or the next fragment of a datagram.
    pub fn poll_filled(&mut self) -> Option<Filled> {
        loop {
            if let Some(fragment) = self.fragments.pop_front() {
                return Some(fragment);
            }
            let &ends = self.ready.first()?;
            self.settle(ends);
            let whole = self.first(ends).is_some();
            let Some(first) = whole.then(|| self.pop(ends)).flatten() else {
                self.ready.remove(&ends);
                continue;
            };
            match first.form {
                Form::Segments(shape) => {
                    let filled = self.merge(ends, shape, first.parts, first.extent_bytes);
                    if filled.is_some() {
                        return filled;
                    }
                }
                Form::Datagram(head, pins) => {
                    self.send_datagram(&head, first.parts, first.extent_bytes);
                    self.spend(ends, pins);
                }
            }
        }
    }

    /// A packet of a connection, with its neighbours.
    fn merge(
        &mut self,
        ends: Ends,
        mut shape: Shape,
        parts: Vec<Option<Payload>>,
        mut extent_bytes: usize,
    ) -> Option<Filled> {
        let mut payload: Vec<Bytes> = pieces(parts).collect();
        while let Some(next) = self.first(ends)
            && payload.len() + next.pieces() <= PIECES_MAX
            && let Form::Segments(next) = &next.form
            && shape.merge(next)
            && let Some(next) = self.pop(ends)
        {
            extent_bytes += next.extent_bytes;
            payload.extend(pieces(next.parts));
            self.figures.merged += 1;
        }
        let finished = finish(&shape.headers, shape.segment_bytes, shape.payload_bytes);
        let Ok(frame) = finished else {
            self.figures.refused += 1;
            return None;
        };
        self.figures.sent += 1;
        self.figures.injected_bytes += extent_bytes as u64;
        Some(Filled { frame, payload })
    }

    fn send_datagram(&mut self, head: &Head, parts: Vec<Option<Payload>>, extent_bytes: usize) {
        let payload: Payload = pieces(parts).collect();
        let Some(packets) = packets(head, &payload) else {
            self.figures.refused += 1;
            return;
        };
        self.figures.replies += 1;
        self.figures.fragments += packets.fragments as u64;
        self.figures.replied_bytes += extent_bytes as u64;
        self.fragments.extend(packets.filled);
    }

    /// Pins of a datagram, which has been sent or never will be.
    fn spend(&mut self, ends: Ends, pins: Vec<u64>) {
        if let Some(gateway) = self.flows.get(&ends).map(|queue| queue.gateway) {
            let pins = pins.into_iter().map(|pin| GatewayPin { gateway, pin });
            self.spent.extend(pins);
        }
    }

    /// All before the front of a flow is sent: turns there are passed on, and packets that
    /// cannot be filled are dropped.
    fn settle(&mut self, ends: Ends) {
        while let Some(front) = self.front(ends) {
            match front {
                Item::Baton { turn, to } => {
                    self.turns.push_back((to, encode_turn(turn).to_vec()));
                }
                Item::Packet(packet) if self.waiting.get(&packet).is_some_and(Waiting::is_lost) => {
                    self.figures.unfilled += 1;
                }
                Item::Packet(_) => break,
            }
            self.pop(ends);
        }
    }

    /// The packet at the front of a flow, if all of it is there and its turn has come.
    fn first(&self, ends: Ends) -> Option<&Waiting> {
        let Item::Packet(packet) = self.front(ends)? else {
            return None;
        };
        let waiting = self.waiting.get(&packet)?;
        (waiting.is_settled() && !waiting.has_failed).then_some(waiting)
    }

    fn front(&self, ends: Ends) -> Option<Item> {
        self.flows.get(&ends)?.items.front().copied()
    }

    /// Takes what is at the front of a flow; none if that is no packet.
    fn pop(&mut self, ends: Ends) -> Option<Waiting> {
        match self.flows.get_mut(&ends)?.items.pop_front()? {
            Item::Packet(packet) => self.forget(packet),
            Item::Baton { .. } => None,
        }
    }

    /// What has become of everything so far.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }
}
