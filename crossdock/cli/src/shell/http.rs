//! The HTTP door's sockets.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_delivery::{Congestion, TcpSample};
use crossdock_host::HostInput;
use crossdock_http::{ConnId, HttpEffect, HttpInput};
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, TcpInfo};

use super::Shell;

/// The HTTP clients' connections.
pub(super) struct Web {
    listeners: Vec<ListenerId>,
    connections: BTreeMap<ConnId, Connection>,
    names: BTreeMap<ConnectionId, ConnId>,
    connections_total: u64,
    /// Whether the kernel goes on with sends by itself (IDSR of the TPF paper).
    is_idsr: bool,
    /// Those with bytes that the kernel has not taken yet.
    unsent: BTreeMap<ConnId, usize>,
}

struct Connection {
    id: ConnectionId,
}

impl Web {
    pub(super) const fn new(listeners: Vec<ListenerId>, is_idsr: bool) -> Self {
        Self {
            listeners,
            is_idsr,
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

    /// What an event is to the door; the event again if it is not the door's.
    fn input(&mut self, event: Event) -> Result<Option<HttpInput>, Event> {
        match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } if self.listeners.contains(&listener) => {
                self.connections_total += 1;
                let name = ConnId(self.connections_total);
                self.connections.insert(name, Connection { id: connection });
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
                    self.connections.remove(&name);
                    self.unsent.remove(&name);
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
            && self.web.is_idsr
            && self.web.listeners.contains(&listener)
        {
            self.driver.send_whole(connection);
        }
        match self.web.input(event) {
            Ok(Some(input)) => self.give(HostInput::Http(input)),
            Ok(None) => {}
            Err(event) => return Some(event),
        }
        None
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
            self.give(HostInput::Http(HttpInput::Sent(name, bytes)));
        }
    }

    pub(super) fn take_http_effect(&mut self, effect: HttpEffect) {
        match effect {
            HttpEffect::Send(name, pieces) => {
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                if let Some(id) = self.web.id(name) {
                    *self.web.unsent.entry(name).or_default() += bytes;
                    if self.driver.send(id, pieces).is_err() {
                        self.driver.abort(id);
                    }
                }
            }
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
            // The host has passed them to the router.
            HttpEffect::Router(_)
            | HttpEffect::Withdraw(_)
            | HttpEffect::Postpone(..)
            | HttpEffect::Hurry(_) => {}
        }
    }

    fn on_http(&mut self, name: ConnId, act: fn(&mut Driver, ConnectionId)) {
        if let Some(id) = self.web.id(name) {
            act(&mut self.driver, id);
        }
    }
}

/// What the delivery engine wants to know. Bytes in the loop's own queue are not handed to the
/// socket yet, as it counts.
fn sample(info: &TcpInfo) -> TcpSample {
    TcpSample {
        unsent_bytes: u64::from(info.unsent_bytes),
        delivery_rate: info.delivery_rate,
        is_app_limited: info.is_app_limited,
        acked_bytes: info.acked_bytes,
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
