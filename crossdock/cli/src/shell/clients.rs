//! The sockets of a door over TCP, with TLS over them or without: who is connected,
//! and what the kernel has taken of what was sent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, TcpInfo};
use crossdock_peer::Flow;
use crossdock_secure::{WebEffect, WebFailure, WebStream};
use crossdock_types::{Fill, Payload};
use tracing::debug;

use super::https::Https;
use super::inject::{Injector, Why};

/// The connections of a door's clients, by numbers that are never used twice.
pub(super) struct Clients {
    listeners: Vec<ListenerId>,
    /// If clients are to talk over TLS.
    https: Option<Https>,
    /// Whether the kernel is to go on with sends by itself (IDSR).
    sends_whole: bool,
    connections: BTreeMap<u64, Client>,
    numbers: BTreeMap<ConnectionId, u64>,
    connections_total: u64,
    /// Bytes that the kernel has not taken yet, of those that have some.
    unsent: BTreeMap<u64, usize>,
}

struct Client {
    id: ConnectionId,
    /// Of HTTPS.
    session: Option<Box<WebStream>>,
}

/// What a door is to hear of a client.
#[derive(Debug)]
pub(super) enum Heard {
    Opened(u64, SocketAddr),
    Received(u64, Bytes),
    /// So many bytes of what the door has sent are gone.
    Sent(u64, usize),
    PeerDone(u64),
    Closed(u64),
}

impl Clients {
    pub(super) const fn new(
        listeners: Vec<ListenerId>,
        https: Option<Https>,
        sends_whole: bool,
    ) -> Self {
        Self {
            listeners,
            https,
            sends_whole,
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            connections_total: 0,
            unsent: BTreeMap::new(),
        }
    }

    /// Whether nobody is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether the kernel has not taken all that was sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes no more clients, and no more requests of those that are there.
    pub(super) fn stop(&mut self, driver: &mut Driver) {
        for listener in self.listeners.drain(..) {
            driver.close_listener(listener);
        }
        for &connection in self.numbers.keys() {
            driver.pause_receive(connection);
        }
    }

    /// What an event is to the door; the event again if it is not the door's.
    pub(super) fn take_event(
        &mut self,
        driver: &mut Driver,
        injector: &mut Injector,
        event: Event,
    ) -> Result<Vec<Heard>, Event> {
        let number = |connection| self.numbers.get(connection).copied();
        match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } if self.listeners.contains(&listener) => {
                Ok(self.accept(driver, connection, peer).into_iter().collect())
            }
            Event::Received { connection, bytes } => match number(&connection) {
                Some(number) if self.is_https(number) => {
                    Ok(self.act(driver, injector, number, |session| session.receive(&bytes)))
                }
                Some(number) => Ok(vec![Heard::Received(number, bytes)]),
                None => Err(Event::Received { connection, bytes }),
            },
            Event::Filled { connection, bytes } => match number(&connection) {
                Some(number) => Ok(vec![Heard::Received(number, bytes)]),
                None => Err(Event::Filled { connection, bytes }),
            },
            Event::PeerDone { connection } => match number(&connection) {
                Some(number) if self.is_https(number) => {
                    Ok(self.act(driver, injector, number, |session| {
                        session.peer_done();
                        Ok(())
                    }))
                }
                Some(number) => Ok(vec![Heard::PeerDone(number)]),
                None => Err(event),
            },
            Event::Closed { connection, .. } => match self.numbers.remove(&connection) {
                Some(number) => {
                    injector.forget(connection);
                    self.forget(number);
                    Ok(vec![Heard::Closed(number)])
                }
                None => Err(event),
            },
            event => Err(event),
        }
    }

    /// Whether a client talks over TLS.
    pub(super) fn is_secure(&self, number: u64) -> bool {
        let client = self.connections.get(&number);
        client.is_some_and(|client| client.session.is_some())
    }

    /// Whether nodes may send to a client that has just connected.
    pub(super) fn flow(
        &self,
        driver: &Driver,
        injector: &mut Injector,
        number: u64,
        peer: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Option<Flow> {
        let client = self.connections.get(&number)?;
        if client.session.is_some() {
            injector.relay(client.id, Why::Tls);
            return None;
        }
        injector.accept(driver, client.id, peer, may_speak)
    }

    fn accept(&mut self, driver: &mut Driver, id: ConnectionId, peer: SocketAddr) -> Option<Heard> {
        let session = match self.https.as_mut().map(Https::accept) {
            Some(Some(session)) => Some(Box::new(session)),
            // Without TLS nobody is served then.
            Some(None) => {
                driver.abort(id);
                return None;
            }
            None => None,
        };
        Some(self.enter(driver, Client { id, session }, peer))
    }

    /// A client that has not come through a listener, and talks without TLS.
    pub(super) fn let_in(
        &mut self,
        driver: &mut Driver,
        id: ConnectionId,
        peer: SocketAddr,
    ) -> Heard {
        self.enter(driver, Client { id, session: None }, peer)
    }

    fn enter(&mut self, driver: &mut Driver, client: Client, peer: SocketAddr) -> Heard {
        if self.sends_whole {
            driver.send_whole(client.id);
        }
        self.connections_total += 1;
        let number = self.connections_total;
        self.numbers.insert(client.id, number);
        self.connections.insert(number, client);
        Heard::Opened(number, peer)
    }

    /// A connection that the door has opened itself, under a number of its own.
    pub(super) fn adopt(&mut self, driver: &mut Driver, number: u64, id: ConnectionId) {
        if self.sends_whole {
            driver.send_whole(id);
        }
        self.connections
            .insert(number, Client { id, session: None });
        self.numbers.insert(id, number);
    }

    /// The connection is over.
    fn forget(&mut self, number: u64) {
        let gone = self.connections.remove(&number);
        let session = gone.and_then(|client| client.session);
        if let (Some(https), Some(session)) = (&mut self.https, session) {
            https.forget(&session);
        }
        self.unsent.remove(&number);
    }

    /// What the kernel has taken since it was asked last.
    pub(super) fn take_sent(&mut self, driver: &mut Driver, injector: &mut Injector) -> Vec<Heard> {
        let mut gone = Vec::new();
        for (&number, unsent_bytes) in &mut self.unsent {
            let client = self.connections.get(&number);
            let queued = client.map_or(0, |client| injector.queued_bytes(driver, client.id));
            if queued < *unsent_bytes {
                gone.push((number, *unsent_bytes - queued));
                *unsent_bytes = queued;
            }
        }
        self.unsent.retain(|_, unsent_bytes| *unsent_bytes > 0);
        let mut heard = Vec::new();
        for (number, bytes) in gone {
            if !self.is_https(number) {
                heard.push(Heard::Sent(number, bytes));
                continue;
            }
            let mut plain_bytes = 0;
            heard.extend(self.act(driver, injector, number, |session| {
                plain_bytes = session.gone(bytes);
                Ok(())
            }));
            if plain_bytes > 0 {
                heard.push(Heard::Sent(number, plain_bytes));
            }
        }
        heard
    }

    /// What the door says to a client.
    pub(super) fn send(
        &mut self,
        driver: &mut Driver,
        injector: &mut Injector,
        number: u64,
        payload: Payload,
    ) -> Vec<Heard> {
        if !self.is_https(number) {
            self.transmit(driver, injector, number, payload);
            return Vec::new();
        }
        let pieces = payload.into_pieces();
        self.act(driver, injector, number, |session| {
            session.send(pieces);
            Ok(())
        })
    }

    /// The door ends a connection behind what it has said. What its client still says over
    /// TLS is not read.
    pub(super) fn close(
        &mut self,
        driver: &mut Driver,
        injector: &mut Injector,
        number: u64,
    ) -> Vec<Heard> {
        if !self.is_https(number) {
            if let Some(client) = self.connections.get(&number) {
                injector.close(driver, client.id);
            }
            return Vec::new();
        }
        self.on(driver, number, Driver::pause_receive);
        self.act(driver, injector, number, |session| {
            session.end();
            Ok(())
        })
    }

    /// Does something to the connection of a client, if it is there still.
    pub(super) fn on(&self, driver: &mut Driver, number: u64, act: fn(&mut Driver, ConnectionId)) {
        if let Some(client) = self.connections.get(&number) {
            act(driver, client.id);
        }
    }

    /// The next bytes of a client that does not talk over TLS are to come in one piece.
    pub(super) fn fill(&self, driver: &mut Driver, number: u64, fill: &Fill) {
        if let Some(client) = self.connections.get(&number) {
            driver.fill(client.id, fill);
        }
    }

    /// How a connection is.
    pub(super) fn tcp_info(&self, driver: &Driver, number: u64) -> Option<TcpInfo> {
        driver.tcp_info(self.connections.get(&number)?.id)
    }

    /// Where a client has connected to.
    pub(super) fn local_address(&self, driver: &Driver, number: u64) -> Option<SocketAddr> {
        let socket = driver.socket(self.connections.get(&number)?.id)?;
        let address = rustix::net::getsockname(socket).ok()?;
        SocketAddr::try_from(address).ok()
    }

    fn is_https(&self, number: u64) -> bool {
        let client = self.connections.get(&number);
        client.is_some_and(|client| client.session.is_some())
    }

    /// Gives pieces to the kernel as they are.
    fn transmit(
        &mut self,
        driver: &mut Driver,
        injector: &mut Injector,
        number: u64,
        payload: Payload,
    ) {
        if let Some(client) = self.connections.get(&number) {
            *self.unsent.entry(number).or_default() += payload.len();
            injector.send(driver, client.id, payload);
        }
    }

    /// Does something to a session and carries out what follows from it.
    fn act(
        &mut self,
        driver: &mut Driver,
        injector: &mut Injector,
        number: u64,
        act: impl FnOnce(&mut WebStream) -> Result<(), WebFailure>,
    ) -> Vec<Heard> {
        let client = self.connections.get_mut(&number);
        let session = client.and_then(|client| client.session.as_deref_mut());
        let Some((https, session)) = self.https.as_mut().zip(session) else {
            return Vec::new();
        };
        let outcome = https.with(session, act);
        let (mut sealed, mut heard, mut has_ended) = (Vec::new(), Vec::new(), outcome.is_err());
        while let Some(effect) = session.poll_effect() {
            match effect {
                WebEffect::Transmit(bytes) => sealed.push(bytes),
                WebEffect::Received(bytes) => heard.push(Heard::Received(number, bytes)),
                WebEffect::PeerDone => heard.push(Heard::PeerDone(number)),
                WebEffect::Ended => has_ended = true,
            }
        }
        if let Err(failure) = outcome {
            debug!(connection = number, "no HTTPS: {failure}");
        }
        if !sealed.is_empty() {
            let payload = sealed.into_iter().collect();
            self.transmit(driver, injector, number, payload);
        }
        if has_ended {
            self.on(driver, number, Driver::close);
        }
        heard
    }
}
