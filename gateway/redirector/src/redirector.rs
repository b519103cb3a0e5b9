//! What becomes of caught packets: whose connection they are of, and which node is told.
//!
//! Sans-io: caught packets come in, datagrams for nodes go out.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_checksum::mac;
use crossdock_names::HostId;
use crossdock_tunnel::{
    Baton, Caught, ConnectionId, Envelope, Packet, Parts, Record, Reply, Seal, TunnelKey,
};
use crossdock_types::Extent;
use thiserror::Error;

use crate::headers::headers_at;
use crate::stream::{Section, Stream, StreamFull};

/// Closed tunnels that are remembered.
const CLOSED_MAX: usize = 256;

/// What became of caught packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets that nodes were told of, where they were cut each piece.
    pub handed: u64,
    /// Datagrams that told of them.
    pub datagrams: u64,
    /// Nobody knew what they were, or all of it was acknowledged: not sent.
    pub unsent: u64,
    /// Packets for nodes that there is no tunnel to any more.
    pub unreachable: u64,
    /// How often the next bytes of a connection were another node's.
    pub turns: u64,
    /// Replies over UDP that nodes were handed.
    pub replies: u64,
}

/// Why a reply cannot be sent by a node, now or at all.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AnnounceError {
    /// It can when the client has acknowledged some.
    #[error(transparent)]
    Full(#[from] StreamFull),
    /// The gateway has no tunnel to the process that holds the bytes.
    #[error("there is no tunnel to host {0}")]
    Tunnel(HostId),
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

/// The way to the inflator of a process with nodes.
#[derive(Debug)]
struct Tunnel {
    /// Where others tell it that it is its turn.
    address: SocketAddr,
    key: TunnelKey,
    sequence: u64,
    turns: u64,
    seal: Option<Seal>,
    /// It is a process with nodes.
    is_node: bool,
}

#[derive(Debug, Default)]
struct Connection {
    stream: Stream,
    /// Up to where packets were handed to nodes.
    handed: u64,
    /// To whom the last of those.
    sent_by: Option<HostId>,
}

/// A gateway's side of third-party transfer (SPIRAL section 2).
#[derive(Debug)]
pub struct Redirector {
    gateway: u64,
    boot: u64,
    tunnels: BTreeMap<HostId, Tunnel>,
    /// Those that were closed last: they may open again, and their sequence goes on.
    closed: VecDeque<(HostId, Tunnel)>,
    connections: BTreeMap<ConnectionId, Connection>,
    full: VecDeque<(HostId, Vec<u8>)>,
    figures: Figures,
}

impl Redirector {
    /// Of a gateway in this boot.
    #[must_use]
    pub fn new(gateway: u64, boot: u64) -> Self {
        Self {
            gateway,
            boot,
            tunnels: BTreeMap::new(),
            closed: VecDeque::new(),
            connections: BTreeMap::new(),
            full: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// A process with nodes that will send packets, another gateway or this one itself; its key is
    /// for this start of it and of the gateway only, as sequence numbers begin anew.
    pub fn connect(&mut self, holder: HostId, address: SocketAddr, key: TunnelKey, is_node: bool) {
        let mut closed = self.closed.iter();
        let before = closed.position(|(of, tunnel)| *of == holder && tunnel.key == key);
        let before = before.and_then(|place| self.closed.remove(place));
        let (sequence, turns) = before.map_or((0, 0), |(_, it)| (it.sequence, it.turns));
        let tunnel = Tunnel {
            address,
            key,
            sequence,
            turns,
            seal: None,
            is_node,
        };
        self.tunnels.insert(holder, tunnel);
    }

    /// How many processes with nodes fill packets.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        self.tunnels.values().filter(|it| it.is_node).count()
    }

    /// Where the inflator of a process is, if there is a tunnel to it.
    #[must_use]
    pub fn address(&self, holder: HostId) -> Option<SocketAddr> {
        Some(self.tunnels.get(&holder)?.address)
    }

    /// The process is gone: its extents have to come otherwise. Returns those that are on
    /// their way to clients.
    pub fn disconnect(&mut self, holder: HostId) -> Vec<(ConnectionId, Extent)> {
        if let Some(tunnel) = self.tunnels.remove(&holder) {
            self.closed.push_back((holder, tunnel));
            if self.closed.len() > CLOSED_MAX {
                self.closed.pop_front();
            }
        }
        self.lose(holder, |_| true)
    }

    /// The process has no bytes under some of its pins any more. Returns the extents of those
    /// that are on their way to clients.
    pub fn lose(
        &mut self,
        holder: HostId,
        is_lost: impl Fn(u64) -> bool,
    ) -> Vec<(ConnectionId, Extent)> {
        let mut lost = Vec::new();
        for (&id, connection) in &mut self.connections {
            let extents = connection.stream.of(holder);
            let gone = extents.filter(|extent| is_lost(extent.pin()));
            let before = lost.len();
            lost.extend(gone.map(|extent| (id, extent.clone())));
            if lost.len() > before || !self.tunnels.contains_key(&holder) {
                connection.stream.forget(holder);
            }
        }
        lost
    }

    /// Somebody else has the bytes of an extent that is on its way.
    pub fn replace(&mut self, connection: ConnectionId, lost: &Extent, found: &Extent) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.stream.replace(lost, found);
        }
    }

    /// A connection whose packets can be caught from now on. Nothing was sent on it yet.
    pub fn open(&mut self, connection: ConnectionId) {
        self.connections.insert(connection, Connection::default());
    }

    /// The connection is gone, or all of its bytes are acknowledged.
    pub fn end(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }

    /// Whether the client lacks bytes that were announced.
    #[must_use]
    pub fn is_under_way(&self, connection: ConnectionId) -> bool {
        let connection = self.connections.get(&connection);
        connection.is_some_and(|it| it.stream.acknowledged_to() < it.stream.end())
    }

    /// Whether the client lacks bytes of extents: the socket may have dummy bytes.
    #[must_use]
    pub fn has_extents(&self, connection: ConnectionId) -> bool {
        let connection = self.connections.get(&connection);
        connection.is_some_and(|it| it.stream.caught_from().is_some())
    }

    /// Connections that have not ended.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bytes go by that nobody needs to know of: there is no extent before them that they could
    /// overtake.
    ///
    /// # Errors
    /// [`AnnounceError`]: they have to be announced.
    pub fn pass(
        &mut self,
        connection: ConnectionId,
        length_bytes: u64,
    ) -> Result<(), AnnounceError> {
        Ok(self.stream(connection)?.pass(length_bytes)?)
    }

    /// Announces literal bytes, before they enter the socket. Returns from where on packets
    /// have to be caught, which the program must be told first.
    ///
    /// # Errors
    /// [`AnnounceError`]: nothing is announced.
    pub fn announce_literal(
        &mut self,
        connection: ConnectionId,
        bytes: Bytes,
    ) -> Result<Option<u64>, AnnounceError> {
        let stream = self.stream(connection)?;
        stream.push_literal(bytes)?;
        Ok(stream.caught_from())
    }

    /// The same for bytes that a node has, before the dummy bytes enter the socket.
    ///
    /// # Errors
    /// [`AnnounceError`]: nothing is announced.
    pub fn announce_extent(
        &mut self,
        connection: ConnectionId,
        extent: Extent,
    ) -> Result<Option<u64>, AnnounceError> {
        let holder = HostId(extent.holder());
        if !self.tunnels.contains_key(&holder) {
            return Err(AnnounceError::Tunnel(holder));
        }
        let stream = self.stream(connection)?;
        stream.push_extent(extent)?;
        Ok(stream.caught_from())
    }

    fn stream(&mut self, connection: ConnectionId) -> Result<&mut Stream, AnnounceError> {
        let connection = self.connections.get_mut(&connection);
        let stream = connection.map(|connection| &mut connection.stream);
        stream.ok_or(AnnounceError::Ended)
    }

    /// The client has acknowledged all before an offset of the stream. Returns from where on
    /// packets have to be caught now.
    pub fn acknowledged(&mut self, connection: ConnectionId, offset: u64) -> Option<u64> {
        let stream = &mut self.connections.get_mut(&connection)?.stream;
        stream.acknowledged(offset);
        stream.caught_from()
    }

    /// A packet that the program has caught. Returns from where on packets have to be caught
    /// now.
    pub fn caught(&mut self, caught: &Caught) -> Option<u64> {
        let catch_from = self.acknowledged(caught.connection, caught.acknowledged);
        let Some(connection) = self.connections.get_mut(&caught.connection) else {
            self.figures.unsent += 1;
            return None;
        };
        let Ok(sections) = connection.stream.cut(caught.offset, caught.payload_bytes) else {
            self.figures.unsent += 1;
            return catch_from;
        };
        let mut way = Way {
            from: (self.gateway, self.boot),
            tunnels: &mut self.tunnels,
            full: &mut self.full,
            figures: &mut self.figures,
        };
        let acknowledged = connection.stream.acknowledged_to();
        let count = sections.len();
        for (number, section) in sections.iter().enumerate() {
            let at = caught.offset + section.at_bytes as u64;
            // What is repeated goes by itself, and so does what has nothing before it.
            let is_first = at < connection.handed || at <= acknowledged;
            let before = connection.sent_by.filter(|_| !is_first);
            let handed = way.hand(caught, section, before, number + 1 == count);
            way.figures.unreachable += u64::from(handed.is_none());
            if at >= connection.handed {
                connection.sent_by = section.holder;
            }
            connection.handed = connection.handed.max(at + section.length_bytes() as u64);
        }
        catch_from
    }

    /// Hands a reply that a node sends as it is, in no connection.
    pub(crate) fn hand_reply(&mut self, holder: HostId, reply: &Reply<'_>) {
        let mut way = Way {
            from: (self.gateway, self.boot),
            tunnels: &mut self.tunnels,
            full: &mut self.full,
            figures: &mut self.figures,
        };
        match way.put(holder, &Record::Reply(*reply)) {
            Some(()) => way.figures.replies += 1,
            None => way.figures.unreachable += 1,
        }
    }

    /// The next datagram: those that are full, then, as nothing more was caught, the rest.
    pub fn poll_datagram(&mut self) -> Option<(HostId, Vec<u8>)> {
        let rest = |tunnels: &mut BTreeMap<HostId, Tunnel>| {
            tunnels
                .iter_mut()
                .find_map(|(&holder, tunnel)| Some((holder, tunnel.seal.take()?.finish())))
        };
        let next = self.full.pop_front().or_else(|| rest(&mut self.tunnels));
        self.figures.datagrams += u64::from(next.is_some());
        next
    }

    /// What became of caught packets so far.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }
}

/// What pieces of packets go by.
struct Way<'r> {
    from: (u64, u64),
    tunnels: &'r mut BTreeMap<HostId, Tunnel>,
    full: &'r mut VecDeque<(HostId, Vec<u8>)>,
    figures: &'r mut Figures,
}

impl Way<'_> {
    /// Hands a piece of a packet to its node, behind what `before` was handed; none if there
    /// is no tunnel to the node.
    fn hand(
        &mut self,
        caught: &Caught,
        section: &Section<'_>,
        before: Option<HostId>,
        is_last: bool,
    ) -> Option<()> {
        let at_bytes = u32::try_from(section.at_bytes).ok()?;
        let headers = headers_at(&caught.headers, at_bytes, is_last).ok()?;
        let holder = section.holder?;
        let before = before.filter(|&before| before != holder);
        let turn = before.and_then(|before| self.pass_turn(before, holder, &headers));
        let packet = Packet {
            headers: &headers,
            segment_bytes: caught.segment_bytes,
            turn: turn.unwrap_or(0),
            parts: Parts::Given(&section.parts),
        };
        self.put(holder, &Record::Packet(packet))?;
        self.figures.handed += 1;
        Some(())
    }

    /// Has one node pass the turn on to another; which turn it is.
    fn pass_turn(&mut self, from: HostId, to: HostId, headers: &[u8]) -> Option<u64> {
        let next = self.tunnels.get_mut(&to)?;
        let (turn, to) = (next.turn(), next.address);
        self.put(from, &Record::Baton(Baton { turn, to, headers }))?;
        self.figures.turns += 1;
        Some(turn)
    }

    fn put(&mut self, holder: HostId, record: &Record<'_>) -> Option<()> {
        let (gateway, boot) = self.from;
        let envelope = Envelope {
            sender: gateway,
            sender_boot: boot,
            receiver_boot: holder.0,
            sequence: 0,
        };
        let full = self.tunnels.get_mut(&holder)?.push(envelope, record);
        self.full.extend(full.map(|full| (holder, full)));
        Some(())
    }
}

impl Tunnel {
    /// A turn that nobody can guess who does not see the node's tunnel.
    fn turn(&mut self) -> u64 {
        self.turns += 1;
        let [a, b, c, d, e, f, g, h, ..] = mac(&self.key.key, &self.turns.to_be_bytes());
        // 0 is none.
        u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
    }

    /// Puts a record into the datagram that is being filled; returns the one before, if
    /// there was no room in it. The envelope gets its number here.
    fn push(&mut self, mut envelope: Envelope, record: &Record<'_>) -> Option<Vec<u8>> {
        // A section is one that a datagram takes (Stream::cut).
        let put = |seal: &mut Seal| seal.push(record).unwrap_or(true);
        if self.seal.as_mut().is_some_and(put) {
            return None;
        }
        self.sequence += 1;
        envelope.sequence = self.sequence;
        let mut seal = Seal::new(&envelope, &self.key);
        put(&mut seal);
        self.seal.replace(seal).map(Seal::finish)
    }
}
