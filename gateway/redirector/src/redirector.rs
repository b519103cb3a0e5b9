//! What becomes of caught packets: whose connection they are of, and which node is told.
//!
//! Sans-io: caught packets come in, datagrams for nodes and pins to be given back go out.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use crossdock_names::NodeId;
use crossdock_tunnel::{Caught, ConnectionId, Envelope, Packet, Parts, Seal, TunnelKey};
use thiserror::Error;

use crate::headers::headers_at;
use crate::stream::{Holder, Pinned, Section, Stream, StreamFull};

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
}

/// Why a reply cannot be sent by a node, now or at all.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AnnounceError {
    /// It can when the client has acknowledged some.
    #[error(transparent)]
    Full(#[from] StreamFull),
    /// The gateway has no tunnel to this boot of the node.
    #[error("there is no tunnel to node {} in its boot {:x}", .0.node, .0.boot)]
    Tunnel(Holder),
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

/// The way to a node's inflator.
#[derive(Debug)]
struct Tunnel {
    key: TunnelKey,
    /// The node's boot, in which the pins were given.
    boot: u64,
    sequence: u64,
    seal: Option<Seal>,
}

/// A gateway's side of third-party transfer (SPIRAL section 2).
#[derive(Debug)]
pub struct Redirector {
    gateway: u64,
    boot: u64,
    tunnels: BTreeMap<NodeId, Tunnel>,
    streams: BTreeMap<ConnectionId, Stream>,
    full: VecDeque<(NodeId, Vec<u8>)>,
    released: VecDeque<Pinned>,
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
            streams: BTreeMap::new(),
            full: VecDeque::new(),
            released: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// A node that will send packets, in this boot; its key is for that boot and this one only,
    /// as sequence numbers begin anew.
    pub fn connect(&mut self, node: NodeId, boot: u64, key: TunnelKey) {
        let tunnel = Tunnel {
            key,
            boot,
            sequence: 0,
            seal: None,
        };
        self.tunnels.insert(node, tunnel);
    }

    /// The node is gone: its extents have to come otherwise.
    pub fn disconnect(&mut self, node: NodeId) {
        self.tunnels.remove(&node);
    }

    /// A connection whose packets can be caught from now on. Nothing was sent on it yet.
    pub fn open(&mut self, connection: ConnectionId) {
        self.streams.insert(connection, Stream::default());
    }

    /// The connection is gone, or all of its bytes are acknowledged.
    pub fn end(&mut self, connection: ConnectionId) {
        if let Some(mut stream) = self.streams.remove(&connection) {
            self.released.extend(stream.end_all());
        }
    }

    /// Connections that have not ended.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.streams.len()
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
        pinned: Pinned,
    ) -> Result<Option<u64>, AnnounceError> {
        let tunnel = self.tunnels.get(&pinned.holder.node);
        if tunnel.map(|tunnel| tunnel.boot) != Some(pinned.holder.boot) {
            return Err(AnnounceError::Tunnel(pinned.holder));
        }
        let stream = self.stream(connection)?;
        stream.push_extent(pinned)?;
        Ok(stream.caught_from())
    }

    fn stream(&mut self, connection: ConnectionId) -> Result<&mut Stream, AnnounceError> {
        let stream = self.streams.get_mut(&connection);
        stream.ok_or(AnnounceError::Ended)
    }

    /// The client has acknowledged all before an offset of the stream. Returns from where on
    /// packets have to be caught now.
    pub fn acknowledged(&mut self, connection: ConnectionId, offset: u64) -> Option<u64> {
        let stream = self.streams.get_mut(&connection)?;
        self.released.extend(stream.acknowledged(offset));
        stream.caught_from()
    }

    /// A packet that the program has caught. Returns from where on packets have to be caught
    /// now.
    pub fn caught(&mut self, caught: &Caught) -> Option<u64> {
        let catch_from = self.acknowledged(caught.connection, caught.acknowledged);
        let Some(stream) = self.streams.get(&caught.connection) else {
            self.figures.unsent += 1;
            return None;
        };
        let Ok(sections) = stream.cut(caught.offset, caught.payload_bytes) else {
            self.figures.unsent += 1;
            return catch_from;
        };
        let count = sections.len();
        for (number, section) in sections.iter().enumerate() {
            let at_bytes = u32::try_from(section.at_bytes).unwrap_or(u32::MAX);
            let headers = headers_at(&caught.headers, at_bytes, number + 1 == count);
            // A node that has begun anew knows other bytes by the same pin.
            let tunnel = section.holder.and_then(|Holder { node, boot }| {
                let tunnel = self.tunnels.get_mut(&node);
                Some((node, tunnel.filter(|tunnel| tunnel.boot == boot)?))
            });
            let (Ok(headers), Some((node, tunnel))) = (headers, tunnel) else {
                self.figures.unreachable += 1;
                continue;
            };
            let from = (self.gateway, self.boot);
            if let Some(full) = tunnel.push(from, &headers, caught.segment_bytes, section) {
                self.full.push_back((node, full));
            }
            self.figures.handed += 1;
        }
        catch_from
    }

    /// The next datagram: those that are full, then, as nothing more was caught, the rest.
    pub fn poll_datagram(&mut self) -> Option<(NodeId, Vec<u8>)> {
        let rest = |tunnels: &mut BTreeMap<NodeId, Tunnel>| {
            tunnels
                .iter_mut()
                .find_map(|(&node, tunnel)| Some((node, tunnel.seal.take()?.finish())))
        };
        let next = self.full.pop_front().or_else(|| rest(&mut self.tunnels));
        self.figures.datagrams += u64::from(next.is_some());
        next
    }

    /// A pin that this gateway does not need any more for one of its connections.
    pub fn poll_released(&mut self) -> Option<Pinned> {
        self.released.pop_front()
    }

    /// What became of caught packets so far.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }
}

impl Tunnel {
    /// Puts a packet into the datagram that is being filled; returns the one before, if
    /// there was no room in it.
    fn push(
        &mut self,
        (gateway, gateway_boot): (u64, u64),
        headers: &[u8],
        segment_bytes: u16,
        section: &Section<'_>,
    ) -> Option<Vec<u8>> {
        let packet = Packet {
            headers,
            segment_bytes,
            parts: Parts::Given(&section.parts),
        };
        // A section is one that a datagram takes (Stream::cut).
        let put = |seal: &mut Seal| seal.push(&packet).unwrap_or(true);
        if self.seal.as_mut().is_some_and(put) {
            return None;
        }
        self.sequence += 1;
        let envelope = Envelope {
            sender: gateway,
            sender_boot: gateway_boot,
            receiver_boot: self.boot,
            sequence: self.sequence,
        };
        let mut seal = Seal::new(&envelope, &self.key);
        put(&mut seal);
        self.seal.replace(seal).map(Seal::finish)
    }
}
