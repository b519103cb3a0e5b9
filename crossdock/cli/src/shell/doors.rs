//! The NFS door's sockets, and its portmapper's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_host::HostInput;
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, SocketId};
use crossdock_nfs::{ConnId, NfsEffect, NfsInput, Services};

use super::Shell;

/// Where the NFS door and its portmapper listen, once for each kind of address.
pub(crate) struct NfsSockets {
    pub(crate) listener: ListenerId,
    pub(crate) datagrams: SocketId,
    /// Which kind of address a client has that it serves.
    pub(crate) is_ipv6: bool,
    /// Whether it is not NFS's, but the portmapper's.
    pub(crate) is_portmap: bool,
}

/// The clients' connections.
pub(super) struct Doors {
    sockets: Vec<NfsSockets>,
    connections: BTreeMap<ConnId, ConnectionId>,
    names: BTreeMap<ConnectionId, ConnId>,
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

    fn datagram(&self, socket: SocketId, from: SocketAddr, bytes: Bytes) -> NfsInput {
        if self.is_portmap(|sockets| sockets.datagrams == socket) {
            NfsInput::PortmapDatagram(from, bytes)
        } else {
            NfsInput::Datagram(from, bytes)
        }
    }

    /// Takes no more clients, and no more calls of those that are there.
    pub(super) fn stop(&self, driver: &mut Driver) {
        for sockets in &self.sockets {
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
            } => Some(doors.accept(listener, connection, peer)),
            Event::Received { connection, bytes } => {
                let name = doors.name(connection);
                name.map(|name| NfsInput::Received(name, bytes))
            }
            Event::Filled { connection, bytes } => {
                let name = doors.name(connection);
                name.map(|name| NfsInput::Filled(name, bytes))
            }
            Event::PeerDone { connection } => doors.name(connection).map(NfsInput::PeerDone),
            Event::Closed { connection, .. } => doors.closed(connection),
            Event::Datagram {
                socket,
                from,
                bytes,
            } => Some(doors.datagram(socket, from, bytes)),
            Event::Writable { .. } | Event::Disk(..) | Event::Woken | Event::Timeout => None,
        };
        if let Some(input) = input {
            self.give(HostInput::Door(input));
        }
    }

    /// Tells the door what the kernel has taken of its replies.
    pub(super) fn tell_sent(&mut self) {
        let mut gone = Vec::new();
        let doors = &mut self.doors;
        for (&name, unsent_bytes) in &mut doors.unsent {
            let connection = doors.connections.get(&name);
            let queued = connection.map_or(0, |&id| self.driver.queued_bytes(id));
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
            NfsEffect::Send(name, pieces) => {
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                if let Some(&connection) = self.doors.connections.get(&name) {
                    *self.doors.unsent.entry(name).or_default() += bytes;
                    if self.driver.send(connection, pieces).is_err() {
                        // The door bounds what it sends: a client that does not read.
                        self.driver.abort(connection);
                    }
                }
            }
            NfsEffect::SendDatagram(to, pieces) => self.send_datagram(false, to, pieces),
            NfsEffect::SendPortmapDatagram(to, pieces) => self.send_datagram(true, to, pieces),
            NfsEffect::Close(name) => self.on_connection(&name, Driver::close),
            NfsEffect::Abort(name) => self.on_connection(&name, Driver::abort),
            NfsEffect::Fill(name, fill) => {
                if let Some(&connection) = self.doors.connections.get(&name) {
                    let (lead, missing) = (fill.lead_bytes, fill.missing_bytes);
                    self.driver.fill(connection, &fill.head, lead, missing);
                }
            }
            NfsEffect::Pause(name) => self.on_connection(&name, Driver::pause_receive),
            NfsEffect::Resume(name) => self.on_connection(&name, Driver::resume_receive),
            // The host has passed them to the router.
            NfsEffect::Router(_) | NfsEffect::Withdraw(_) => {}
        }
    }

    fn send_datagram(&mut self, is_portmap: bool, to: SocketAddr, pieces: Vec<Bytes>) {
        let mut sockets = self.doors.sockets.iter();
        let ours = sockets
            .find(|sockets| sockets.is_portmap == is_portmap && sockets.is_ipv6 == to.is_ipv6());
        if let Some(ours) = ours {
            // A datagram that does not fit is lost, as on the wire.
            let _ = self.driver.send_datagram(ours.datagrams, to, pieces);
        }
    }

    fn on_connection(&mut self, name: &ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(&connection) = self.doors.connections.get(name) {
            act(&mut self.driver, connection);
        }
    }
}
