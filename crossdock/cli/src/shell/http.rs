//! The HTTP door's sockets.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_delivery::{Congestion, Switches, TcpSample};
use crossdock_host::HostInput;
use crossdock_http::{ConnId, HttpEffect, HttpInput};
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, TcpInfo};
use crossdock_secure::WebStream;
use tracing::warn;

use super::Shell;
use super::https::Https;

/// The HTTP clients' connections.
pub(super) struct Web {
    listeners: Vec<ListenerId>,
    /// If clients are to talk over TLS.
    https: Option<Https>,
    connections: BTreeMap<ConnId, Connection>,
    names: BTreeMap<ConnectionId, ConnId>,
    connections_total: u64,
    /// Mechanisms of the TPF paper: with IDSR the kernel goes on with sends by itself, with
    /// the daemon others come first.
    delivery: Switches,
    /// Whether they do at present.
    gives_way: bool,
    /// Those with bytes that the kernel has not taken yet.
    unsent: BTreeMap<ConnId, usize>,
}

struct Connection {
    id: ConnectionId,
    /// Of HTTPS.
    session: Option<Box<WebStream>>,
}

impl Web {
    pub(super) const fn new(
        listeners: Vec<ListenerId>,
        https: Option<Https>,
        delivery: Switches,
    ) -> Self {
        Self {
            listeners,
            https,
            delivery,
            gives_way: false,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            connections_total: 0,
            unsent: BTreeMap::new(),
        }
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
        for &connection in self.names.keys() {
            driver.pause_receive(connection);
        }
    }

    fn id(&self, name: ConnId) -> Option<ConnectionId> {
        self.connections.get(&name).map(|connection| connection.id)
    }

    /// The TLS session of a connection that has one.
    pub(super) fn session(&mut self, name: ConnId) -> Option<(&mut Https, &mut WebStream)> {
        let session = self.connections.get_mut(&name)?.session.as_deref_mut();
        self.https.as_mut().zip(session)
    }

    fn is_https(&self, name: ConnId) -> bool {
        let connection = self.connections.get(&name);
        connection.is_some_and(|connection| connection.session.is_some())
    }

    /// The connection is over.
    fn forget(&mut self, name: ConnId) {
        let gone = self.connections.remove(&name);
        let session = gone.and_then(|connection| connection.session);
        if let (Some(https), Some(session)) = (&mut self.https, session) {
            https.forget(&session);
        }
        self.unsent.remove(&name);
    }

    /// What an event is to the door; the event again if it is not the door's.
    fn input(&mut self, driver: &mut Driver, event: Event) -> Result<Option<HttpInput>, Event> {
        match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } if self.listeners.contains(&listener) => {
                let session = match self.https.as_mut().map(Https::accept) {
                    Some(Some(session)) => Some(Box::new(session)),
                    // Without TLS nobody is served then.
                    Some(None) => {
                        driver.abort(connection);
                        return Ok(None);
                    }
                    None => None,
                };
                self.connections_total += 1;
                let name = ConnId(self.connections_total);
                let accepted = Connection {
                    id: connection,
                    session,
                };
                self.connections.insert(name, accepted);
                self.names.insert(connection, name);
                Ok(Some(HttpInput::Opened(name, peer)))
            }
            Event::Received { connection, bytes } => match self.names.get(&connection) {
                Some(&name) => Ok(Some(HttpInput::Received(name, bytes))),
                None => Err(Event::Received { connection, bytes }),
            },
            Event::PeerDone { connection } => match self.names.get(&connection) {
                Some(&name) => Ok(Some(HttpInput::PeerDone(name))),
                None => Err(event),
            },
            Event::Closed { connection, .. } => match self.names.remove(&connection) {
                Some(name) => {
                    self.forget(name);
                    Ok(Some(HttpInput::Closed(name)))
                }
                None => Err(event),
            },
            event => Err(event),
        }
    }
}

impl Shell {
    /// Something has happened at an HTTP client's connection; the event again if it is
    /// somebody else's.
    pub(super) fn take_http_event(&mut self, event: Event) -> Option<Event> {
        if let Event::Accepted {
            listener,
            connection,
            ..
        } = event
            && self.web.delivery.idsr
            && self.web.listeners.contains(&listener)
        {
            self.driver.send_whole(connection);
        }
        match self.web.input(&mut self.driver, event) {
            Ok(Some(HttpInput::Received(name, bytes))) if self.web.is_https(name) => {
                self.receive_https(name, Some(&bytes));
            }
            Ok(Some(HttpInput::PeerDone(name))) if self.web.is_https(name) => {
                self.receive_https(name, None);
            }
            Ok(Some(input)) => self.give(HostInput::Http(input)),
            Ok(None) => {}
            Err(event) => return Some(event),
        }
        None
    }

    /// While all clients are those of HTTP, whose sockets have something to send for a
    /// while, the data thread interrupts nobody else's work (TPF section 3.1.2, the
    /// daemon). Others wait for each of their requests.
    pub(super) fn mind_others(&mut self) {
        let gives_way =
            self.web.delivery.daemon && !self.web.names.is_empty() && self.doors.count() == 0;
        if gives_way != self.web.gives_way {
            self.web.gives_way = gives_way;
            if let Err(error) = crossdock_net::give_way(gives_way) {
                warn!(%error, "the data thread is scheduled as before");
            }
        }
    }

    /// Tells the HTTP door what the kernel has taken.
    pub(super) fn tell_http_sent(&mut self) {
        let mut gone = Vec::new();
        let web = &mut self.web;
        for (&name, unsent_bytes) in &mut web.unsent {
            let connection = web.connections.get(&name);
            let queued = connection.map_or(0, |found| self.driver.queued_bytes(found.id));
            if queued < *unsent_bytes {
                gone.push((name, *unsent_bytes - queued));
                *unsent_bytes = queued;
            }
        }
        web.unsent.retain(|_, unsent_bytes| *unsent_bytes > 0);
        for (name, bytes) in gone {
            match self.web.is_https(name) {
                true => self.tell_https_sent(name, bytes),
                false => self.give(HostInput::Http(HttpInput::Sent(name, bytes))),
            }
        }
    }

    pub(super) fn take_http_effect(&mut self, effect: HttpEffect) {
        match effect {
            HttpEffect::Send(name, pieces) if self.web.is_https(name) => {
                self.send_https(name, pieces);
            }
            HttpEffect::Send(name, pieces) => self.send_http(name, pieces),
            HttpEffect::Close(name) if self.web.is_https(name) => self.close_https(name),
            HttpEffect::Close(name) => self.on_http(name, Driver::close),
            HttpEffect::Abort(name) => self.on_http(name, Driver::abort),
            HttpEffect::Pause(name) => self.on_http(name, Driver::pause_receive),
            HttpEffect::Resume(name) => self.on_http(name, Driver::resume_receive),
            HttpEffect::Sample(name) => {
                let info = self.web.id(name).and_then(|id| self.driver.tcp_info(id));
                if let Some(info) = info {
                    self.give(HostInput::Http(HttpInput::Sampled(name, sample(&info))));
                }
            }
            // The host has passed them to the router, or to the NFS door.
            HttpEffect::Router(_)
            | HttpEffect::Advise(_)
            | HttpEffect::Withdraw(_)
            | HttpEffect::Postpone(..)
            | HttpEffect::Hurry(_)
            | HttpEffect::Ahead(_) => {}
        }
    }

    /// Gives pieces to the kernel as they are.
    pub(super) fn send_http(&mut self, name: ConnId, pieces: Vec<Bytes>) {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        if let Some(id) = self.web.id(name) {
            *self.web.unsent.entry(name).or_default() += bytes;
            if self.driver.send(id, pieces).is_err() {
                self.driver.abort(id);
            }
        }
    }

    pub(super) fn on_http(&mut self, name: ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(id) = self.web.id(name) {
            act(&mut self.driver, id);
        }
    }
}

/// What the delivery engine wants to know. Bytes in the loop's own queue are not handed to the
/// socket yet, as it counts.
pub(super) fn sample(info: &TcpInfo) -> TcpSample {
    TcpSample {
        unsent_bytes: u64::from(info.unsent_bytes),
        delivery_rate: info.delivery_rate,
        is_app_limited: info.is_app_limited,
        acked_bytes: info.acked_bytes,
        busy: info.busy,
        congestion: match info.congestion_state {
            0 => Congestion::Open,
            1 | 2 => Congestion::Disorder,
            3 => Congestion::Recovery,
            _ => Congestion::Loss,
        },
        delivered_ce: u64::from(info.delivered_ce),
        is_window_zero: info
            .window_bytes
            .is_some_and(|window| window < info.segment_bytes),
        rtt: info.rtt,
    }
}
