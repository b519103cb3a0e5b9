//! The NFS door's sockets, and its portmapper's.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use crossdock_host::HostInput;
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, NetError, SocketId};
use crossdock_nfs::{ConnId, NfsEffect, NfsInput, Services};
use crossdock_peer::Flow;
use crossdock_types::Payload;

use super::Shell;

/// Where the NFS door and its portmapper listen, once for each kind of address.
pub(crate) struct NfsSockets {
    pub(crate) listener: ListenerId,
    pub(crate) datagrams: SocketId,
    /// Where; clients have one of the same kind.
    pub(crate) address: SocketAddr,
    /// Whether it is not NFS's, but the portmapper's.
    pub(crate) is_portmap: bool,
    /// The virtual address where it is, and its port, if it is at one.
    pub(crate) virtual_at: Option<SocketAddr>,
}

/// Clients that are answered from a virtual address by UDP; those beyond are answered
/// from the gateway's own.
const DATAGRAM_CLIENTS_MAX: usize = 4096;

/// The clients' connections.
pub(super) struct Doors {
    sockets: Vec<NfsSockets>,
    connections: BTreeMap<ConnId, ConnectionId>,
    names: BTreeMap<ConnectionId, ConnId>,
    /// Connections at virtual addresses: where, and whose.
    at_virtual: BTreeMap<ConnectionId, (SocketAddr, SocketAddr)>,
    /// At which virtual address a client has asked last by UDP.
    datagrams_at: BTreeMap<SocketAddr, SocketId>,
    /// Bytes of replies that the kernel has not taken yet, per connection.
    unsent: BTreeMap<ConnId, usize>,
    connections_total: u64,
}

impl Doors {
    pub(super) const fn new(sockets: Vec<NfsSockets>) -> Self {
        Self {
            sockets,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            at_virtual: BTreeMap::new(),
            datagrams_at: BTreeMap::new(),
            unsent: BTreeMap::new(),
            connections_total: 0,
        }
    }

    /// How many clients are connected.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    /// The door's name of a connection, if it is a client's.
    fn name(&self, connection: ConnectionId) -> Option<ConnId> {
        self.names.get(&connection).copied()
    }

    /// How many have been since the start.
    pub(super) const fn accepted_total(&self) -> u64 {
        self.connections_total
    }

    /// Whether the kernel has not taken all replies.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// A client has connected.
    fn accept(
        &mut self,
        listener: ListenerId,
        connection: ConnectionId,
        peer: SocketAddr,
    ) -> NfsInput {
        self.connections_total += 1;
        let name = ConnId(self.connections_total);
        self.connections.insert(name, connection);
        self.names.insert(connection, name);
        let mut sockets = self.sockets.iter();
        let here = sockets.find(|sockets| sockets.listener == listener);
        if let Some(at) = here.and_then(|sockets| sockets.virtual_at) {
            self.at_virtual.insert(connection, (at, peer));
        }
        if self.is_portmap(|sockets| sockets.listener == listener) {
            NfsInput::OpenedPortmap(name, peer)
        } else {
            NfsInput::Opened(name, peer)
        }
    }

    fn closed(&mut self, connection: ConnectionId) -> Option<NfsInput> {
        let name = self.names.remove(&connection)?;
        self.connections.remove(&name);
        self.unsent.remove(&name);
        Some(NfsInput::Closed(name))
    }

    /// Where a client of NFS asks whose datagram has come to `socket`.
    fn asked_at(&self, socket: SocketId) -> Option<SocketAddr> {
        let mut sockets = self.sockets.iter().filter(|sockets| !sockets.is_portmap);
        let here = sockets.find(|sockets| sockets.datagrams == socket)?;
        Some(here.address)
    }

    fn datagram(&mut self, socket: SocketId, from: SocketAddr, bytes: Bytes) -> NfsInput {
        let mut sockets = self.sockets.iter();
        let is_virtual =
            sockets.any(|sockets| sockets.datagrams == socket && sockets.virtual_at.is_some());
        self.datagrams_at.remove(&from);
        if is_virtual && self.datagrams_at.len() < DATAGRAM_CLIENTS_MAX {
            self.datagrams_at.insert(from, socket);
        }
        if self.is_portmap(|sockets| sockets.datagrams == socket) {
            NfsInput::PortmapDatagram(from, bytes)
        } else {
            NfsInput::Datagram(from, bytes)
        }
    }

    /// Where doors are at virtual addresses: the port is that of the gateway's own door.
    pub(super) fn port(&self, is_ipv6: bool) -> Option<u16> {
        let own = self.sockets.iter();
        let own = own.filter(|sockets| !sockets.is_portmap && sockets.virtual_at.is_none());
        let is_same = |sockets: &&NfsSockets| sockets.address.is_ipv6() == is_ipv6;
        let same = own.clone().find(is_same);
        same.or_else(|| own.clone().next())
            .map(|sockets| sockets.address.port())
    }

    /// Serves at a virtual address.
    pub(super) fn open(&mut self, driver: &mut Driver, at: SocketAddr) -> Result<(), NetError> {
        let (listener, _) = driver.listen(at)?;
        let datagrams = match driver.bind_datagram(at) {
            Ok((datagrams, _)) => datagrams,
            Err(error) => {
                driver.close_listener(listener);
                return Err(error);
            }
        };
        self.sockets.push(NfsSockets {
            listener,
            datagrams,
            address: at,
            is_portmap: false,
            virtual_at: Some(at),
        });
        Ok(())
    }

    pub(super) fn is_open(&self, address: IpAddr) -> bool {
        let mut virtual_at = self.sockets.iter().filter_map(|sockets| sockets.virtual_at);
        virtual_at.any(|at| at.ip() == address)
    }

    /// Serves no more at a virtual address, also those who are connected there.
    pub(super) fn shut(&mut self, driver: &mut Driver, address: IpAddr) {
        let is_there = |at: SocketAddr| at.ip() == address;
        let gone = self
            .sockets
            .extract_if(.., |sockets| sockets.virtual_at.is_some_and(is_there));
        for sockets in gone {
            driver.close_listener(sockets.listener);
            driver.close_datagram(sockets.datagrams);
            self.datagrams_at
                .retain(|_, socket| *socket != sockets.datagrams);
        }
        let connections = self.at_virtual.iter();
        for (&connection, _) in connections.filter(|(_, (at, _))| is_there(*at)) {
            driver.abort(connection);
        }
    }

    /// Takes no more clients, and no more calls of those that are there.
    pub(super) fn stop(&mut self, driver: &mut Driver) {
        for sockets in self.sockets.drain(..) {
            driver.close_listener(sockets.listener);
            driver.close_datagram(sockets.datagrams);
        }
        for &connection in self.names.keys() {
            driver.pause_receive(connection);
        }
    }

    fn is_portmap(&self, is_it: impl Fn(&NfsSockets) -> bool) -> bool {
        let mut portmap = self.sockets.iter().filter(|sockets| sockets.is_portmap);
        portmap.any(is_it)
    }
}

impl Shell {
    /// Tells the door where its programs are.
    pub(crate) fn tell_services(&mut self, services: Services) {
        self.give(HostInput::Door(NfsInput::Services(services)));
    }

    /// Something happened at a client's connection.
    pub(super) fn take_door_event(&mut self, event: Event) {
        let doors = &mut self.doors;
        let input = match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } => {
                let accepted = doors.accept(listener, connection, peer);
                self.tell_virtual(connection, true);
                let name = self.doors.name(connection);
                self.give(HostInput::Door(accepted));
                let may_speak = |address| self.host.speaks_as(address);
                let driver = &self.driver;
                let flow = self.injector.accept(driver, connection, peer, may_speak);
                name.zip(flow)
                    .map(|(name, flow)| NfsInput::Flow(name, flow))
            }
            Event::Received { connection, bytes } => {
                let name = doors.name(connection);
                name.map(|name| NfsInput::Received(name, bytes))
            }
            Event::Filled { connection, bytes } => {
                let name = doors.name(connection);
                name.map(|name| NfsInput::Filled(name, bytes))
            }
            Event::PeerDone { connection } => doors.name(connection).map(NfsInput::PeerDone),
            Event::Closed { connection, .. } => {
                let closed = doors.closed(connection);
                self.injector.forget(connection);
                self.tell_virtual(connection, false);
                closed
            }
            Event::Datagram {
                socket,
                from,
                bytes,
            } => {
                let may_speak = |address| self.host.speaks_as(address);
                let flow = self.doors.asked_at(socket);
                let flow = flow.and_then(|at| self.injector.admit_datagram(at, from, may_speak));
                let input = self.doors.datagram(socket, from, bytes);
                Some(match (input, flow) {
                    (NfsInput::Datagram(_, bytes), Some(flow)) => NfsInput::DatagramIn(flow, bytes),
                    (input, _) => input,
                })
            }
            Event::Writable { .. }
            | Event::Disk(..)
            | Event::Readable(_)
            | Event::Woken
            | Event::Timeout => None,
        };
        if let Some(input) = input {
            self.give(HostInput::Door(input));
        }
    }

    /// Tells the host who has come to a virtual address, or is gone from there.
    fn tell_virtual(&mut self, connection: ConnectionId, is_open: bool) {
        let there = match is_open {
            true => self.doors.at_virtual.get(&connection).copied(),
            false => self.doors.at_virtual.remove(&connection),
        };
        if let Some((at, client)) = there {
            self.give(HostInput::Client {
                at,
                client,
                is_open,
            });
        }
    }

    /// Tells the door what the kernel has taken of its replies.
    pub(super) fn tell_sent(&mut self) {
        let mut gone = Vec::new();
        let doors = &mut self.doors;
        for (&name, unsent_bytes) in &mut doors.unsent {
            let connection = doors.connections.get(&name);
            let queued = |&id| self.injector.queued_bytes(&self.driver, id);
            let queued = connection.map_or(0, queued);
            if queued < *unsent_bytes {
                gone.push((name, *unsent_bytes - queued));
                *unsent_bytes = queued;
            }
        }
        doors.unsent.retain(|_, unsent_bytes| *unsent_bytes > 0);
        for (name, bytes) in gone {
            self.give(HostInput::Door(NfsInput::Sent(name, bytes)));
        }
    }

    pub(super) fn take_door_effect(&mut self, effect: NfsEffect) {
        match effect {
            NfsEffect::Send(name, payload) => {
                if let Some(&connection) = self.doors.connections.get(&name) {
                    *self.doors.unsent.entry(name).or_default() += payload.len();
                    self.injector.send(&mut self.driver, connection, payload);
                }
            }
            NfsEffect::SendDatagram(to, pieces) => self.send_datagram(false, to, pieces),
            NfsEffect::SendPortmapDatagram(to, pieces) => self.send_datagram(true, to, pieces),
            NfsEffect::SendIn(flow, reply) => self.send_in(flow, reply),
            NfsEffect::Close(name) => {
                if let Some(&connection) = self.doors.connections.get(&name) {
                    self.injector.close(&mut self.driver, connection);
                }
            }
            NfsEffect::Abort(name) => self.on_connection(&name, Driver::abort),
            NfsEffect::Fill(name, fill) => {
                if let Some(&connection) = self.doors.connections.get(&name) {
                    self.driver.fill(connection, &fill);
                }
            }
            NfsEffect::Pause(name) => self.on_connection(&name, Driver::pause_receive),
            NfsEffect::Resume(name) => self.on_connection(&name, Driver::resume_receive),
            NfsEffect::Sample(name) => {
                let connection = self.doors.connections.get(&name);
                let info = connection.and_then(|&id| self.driver.tcp_info(id));
                if let Some(info) = info {
                    let sample = super::http::sample(&info);
                    self.give(HostInput::Door(NfsInput::Sampled(name, sample)));
                }
            }
            // The host has passed them to the router, or to the delivery engine.
            NfsEffect::Router(_)
            | NfsEffect::ReadFor(..)
            | NfsEffect::ReadHot(_)
            | NfsEffect::Withdraw(_)
            | NfsEffect::Ahead(_)
            | NfsEffect::Deliver(_) => {}
        }
    }

    fn send_datagram(&mut self, is_portmap: bool, to: SocketAddr, pieces: Vec<Bytes>) {
        let mut sockets = self.doors.sockets.iter();
        let is_own = |sockets: &&NfsSockets| {
            sockets.is_portmap == is_portmap
                && sockets.address.is_ipv6() == to.is_ipv6()
                && sockets.virtual_at.is_none()
        };
        let asked_at = self.doors.datagrams_at.get(&to).copied();
        let asked_at = asked_at.filter(|_| !is_portmap);
        let own = || Some(sockets.find(is_own)?.datagrams);
        if let Some(socket) = asked_at.or_else(own) {
            if !is_portmap {
                let bytes = pieces.iter().map(Bytes::len).sum();
                self.injector.note_datagram(to, bytes);
            }
            // A datagram that does not fit is lost, as on the wire.
            let _ = self.driver.send_datagram(socket, to, pieces);
        }
    }

    /// Has a node answer a client's datagram, or answers it from where it was asked.
    fn send_in(&mut self, flow: Flow, reply: Payload) {
        let Some(reply) = self.injector.send_in(flow, reply) else {
            return;
        };
        let to = flow.destination;
        self.injector.note_datagram(to, reply.len());
        let mut sockets = self.doors.sockets.iter();
        let here = sockets.find(|sockets| !sockets.is_portmap && sockets.address == flow.source);
        if let Some(socket) = here.map(|sockets| sockets.datagrams) {
            let _ = self.driver.send_datagram(socket, to, reply.into_pieces());
        }
    }

    fn on_connection(&mut self, name: &ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(&connection) = self.doors.connections.get(name) {
            act(&mut self.driver, connection);
        }
    }
}
