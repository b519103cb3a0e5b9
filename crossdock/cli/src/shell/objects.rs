//! The sockets of the nodes' HTTP door.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_host::HostInput;
use crossdock_net::{ConnectionId, Driver, Event, ListenerId};
use crossdock_objects::{ConnId, ObjectDoorEffect, ObjectDoorInput};

use super::Shell;

/// The connections of clients with signed URLs.
pub(super) struct ObjectClients {
    listeners: Vec<ListenerId>,
    connections: BTreeMap<ConnId, Client>,
    names: BTreeMap<ConnectionId, ConnId>,
    connections_total: u64,
}

struct Client {
    id: ConnectionId,
    /// Bytes that the kernel has not taken yet.
    unsent_bytes: usize,
}

impl ObjectClients {
    pub(super) const fn new(listeners: Vec<ListenerId>) -> Self {
        Self {
            listeners,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            connections_total: 0,
        }
    }

    /// Whether the kernel has not taken all that was sent.
    pub(super) fn has_unsent(&self) -> bool {
        let mut clients = self.connections.values();
        clients.any(|client| client.unsent_bytes > 0)
    }

    /// Takes no more clients, and no more requests of those that are there.
    pub(super) fn stop(&mut self, driver: &mut Driver) {
        for listener in self.listeners.drain(..) {
            driver.close_listener(listener);
        }
        for &connection in self.names.keys() {
            driver.pause_receive(connection);
        }
    }

    /// What an event is to the door; the event again if it is not the door's.
    fn input(&mut self, event: Event) -> Result<ObjectDoorInput, Event> {
        let name = |connection| self.names.get(connection).copied();
        match event {
            Event::Accepted {
                listener,
                connection: id,
                ..
            } if self.listeners.contains(&listener) => {
                self.connections_total += 1;
                let name = ConnId(self.connections_total);
                let unsent_bytes = 0;
                let client = Client { id, unsent_bytes };
                self.connections.insert(name, client);
                self.names.insert(id, name);
                Ok(ObjectDoorInput::Opened(name))
            }
            Event::Received { connection, bytes } => match name(&connection) {
                Some(name) => Ok(ObjectDoorInput::Received(name, bytes)),
                None => Err(Event::Received { connection, bytes }),
            },
            Event::PeerDone { connection } => {
                let name = name(&connection).ok_or(event)?;
                Ok(ObjectDoorInput::PeerDone(name))
            }
            Event::Closed { connection, .. } => match self.names.remove(&connection) {
                Some(name) => {
                    self.connections.remove(&name);
                    Ok(ObjectDoorInput::Closed(name))
                }
                None => Err(event),
            },
            event => Err(event),
        }
    }
}

impl Shell {
    /// Something has happened at a connection to a node; the event again if it is somebody
    /// else's.
    pub(super) fn take_object_event(&mut self, event: Event) -> Option<Event> {
        match self.objects.input(event) {
            Ok(input) => {
                self.give(HostInput::Objects(input));
                None
            }
            Err(event) => Some(event),
        }
    }

    /// Tells the nodes' HTTP door what the kernel has taken.
    pub(super) fn tell_objects_sent(&mut self) {
        let mut gone = Vec::new();
        for (&name, client) in &mut self.objects.connections {
            if client.unsent_bytes == 0 {
                continue;
            }
            let queued = self.driver.queued_bytes(client.id);
            if queued < client.unsent_bytes {
                gone.push((name, client.unsent_bytes - queued));
                client.unsent_bytes = queued;
            }
        }
        for (name, bytes) in gone {
            self.give(HostInput::Objects(ObjectDoorInput::Sent(name, bytes)));
        }
    }

    pub(super) fn take_object_effect(&mut self, effect: ObjectDoorEffect) {
        match effect {
            ObjectDoorEffect::Send(name, pieces) => self.send_object(name, pieces),
            ObjectDoorEffect::Close(name) => self.on_client(name, Driver::close),
            ObjectDoorEffect::Abort(name) => self.on_client(name, Driver::abort),
            ObjectDoorEffect::Pause(name) => self.on_client(name, Driver::pause_receive),
            ObjectDoorEffect::Resume(name) => self.on_client(name, Driver::resume_receive),
            // The host has passed them to its nodes.
            ObjectDoorEffect::Node(..) | ObjectDoorEffect::Cancel(..) => {}
        }
    }

    fn send_object(&mut self, name: ConnId, pieces: Vec<Bytes>) {
        if let Some(client) = self.objects.connections.get_mut(&name) {
            client.unsent_bytes += pieces.iter().map(Bytes::len).sum::<usize>();
            if self.driver.send(client.id, pieces).is_err() {
                self.driver.abort(client.id);
            }
        }
    }

    fn on_client(&mut self, name: ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(client) = self.objects.connections.get(&name) {
            act(&mut self.driver, client.id);
        }
    }
}
