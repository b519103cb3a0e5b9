//! The HTTP door's sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use crossdock_delivery::{Congestion, Switches, TcpSample};
use crossdock_host::HostInput;
use crossdock_http::{ConnId, HttpEffect, HttpInput};
use crossdock_net::{Driver, Event, ListenerId, TcpInfo};
use tracing::warn;

use super::Shell;
use super::clients::{Clients, Heard};
use super::https::Https;

/// The HTTP clients' connections.
pub(super) struct Web {
    clients: Clients,
    /// With the daemon of the TPF paper others come first.
    is_daemon: bool,
    /// Whether they do at present.
    gives_way: bool,
}

impl Web {
    pub(super) const fn new(
        listeners: Vec<ListenerId>,
        https: Option<Https>,
        delivery: Switches,
    ) -> Self {
        Self {
            clients: Clients::new(listeners, https, delivery.idsr),
            is_daemon: delivery.daemon,
            gives_way: false,
        }
    }

    /// Whether the kernel has not taken all that was sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.clients.has_unsent()
    }

    /// Takes no more clients, and no more requests of those that are there.
    pub(super) fn stop(&mut self, driver: &mut Driver) {
        self.clients.stop(driver);
    }
}

impl Shell {
    /// Something has happened at an HTTP client's connection; the event again if it is
    /// somebody else's.
    pub(super) fn take_http_event(&mut self, event: Event) -> Option<Event> {
        match self
            .web
            .clients
            .take_event(&mut self.driver, &mut self.injector, event)
        {
            Ok(heard) => {
                self.tell_http(heard);
                None
            }
            Err(event) => Some(event),
        }
    }

    /// A connection to the HTTP door from within this process, whether the door listens anywhere
    /// or not.
    pub(super) fn connect_to_http(&mut self) -> io::Result<TcpStream> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let us = ours.local_addr()?;
        // Whoever else finds the port meanwhile is not served.
        let theirs = loop {
            let (stream, peer) = listener.accept()?;
            if peer == us {
                break stream;
            }
        };
        let id = self.driver.adopt(theirs);
        let id = id.map_err(|error| io::Error::other(error.to_string()))?;
        let heard = self.web.clients.let_in(&mut self.driver, id, us);
        self.tell_http(vec![heard]);
        Ok(ours)
    }

    /// While all clients are those of HTTP, whose sockets have something to send for a
    /// while, the data thread interrupts nobody else's work (TPF section 3.1.2, the
    /// daemon). Others wait for each of their requests.
    pub(super) fn mind_others(&mut self) {
        let is_only_http = !self.web.clients.is_empty() && self.doors.count() == 0;
        let gives_way = self.web.is_daemon && is_only_http;
        if gives_way != self.web.gives_way {
            self.web.gives_way = gives_way;
            if let Err(error) = crossdock_net::give_way(gives_way) {
                warn!(%error, "the data thread is scheduled as before");
            }
        }
    }

    /// Tells the HTTP door what the kernel has taken.
    pub(super) fn tell_http_sent(&mut self) {
        let heard = self
            .web
            .clients
            .take_sent(&mut self.driver, &mut self.injector);
        self.tell_http(heard);
    }

    fn tell_http(&mut self, heard: Vec<Heard>) {
        for heard in heard {
            let opened = match heard {
                Heard::Opened(number, peer) => Some((number, peer)),
                _ => None,
            };
            self.give(HostInput::Http(match heard {
                Heard::Opened(number, peer) => HttpInput::Opened(ConnId(number), peer),
                Heard::Received(number, bytes) => HttpInput::Received(ConnId(number), bytes),
                Heard::Sent(number, bytes) => HttpInput::Sent(ConnId(number), bytes),
                Heard::PeerDone(number) => HttpInput::PeerDone(ConnId(number)),
                Heard::Closed(number) => HttpInput::Closed(ConnId(number)),
            }));
            if let Some((number, peer)) = opened {
                self.tell_flow(number, peer);
            }
        }
    }

    /// Whether nodes may send to a client that has just connected.
    fn tell_flow(&mut self, number: u64, peer: SocketAddr) {
        if self.web.clients.is_secure(number) {
            self.give(HostInput::Http(HttpInput::Secure(ConnId(number))));
        }
        let may_speak = |address| self.host.speaks_as(address);
        let (driver, injector) = (&self.driver, &mut self.injector);
        let flow = self
            .web
            .clients
            .flow(driver, injector, number, peer, may_speak);
        if let Some(flow) = flow {
            let input = HttpInput::Flow(ConnId(number), flow);
            self.give(HostInput::Http(input));
        }
    }

    pub(super) fn take_http_effect(&mut self, effect: HttpEffect) {
        let (clients, driver) = (&mut self.web.clients, &mut self.driver);
        let injector = &mut self.injector;
        match effect {
            HttpEffect::Send(name, payload) => {
                let heard = clients.send(driver, injector, name.0, payload);
                self.tell_http(heard);
            }
            HttpEffect::Close(name) => {
                let heard = clients.close(driver, injector, name.0);
                self.tell_http(heard);
            }
            HttpEffect::Abort(name) => clients.on(driver, name.0, Driver::abort),
            HttpEffect::Fill(name, fill) => clients.fill(driver, name.0, &fill),
            HttpEffect::Pause(name) => clients.on(driver, name.0, Driver::pause_receive),
            HttpEffect::Resume(name) => clients.on(driver, name.0, Driver::resume_receive),
            HttpEffect::Sample(name) => {
                if let Some(info) = clients.tcp_info(driver, name.0) {
                    self.give(HostInput::Http(HttpInput::Sampled(name, sample(&info))));
                }
            }
            // The host has passed them to the router, or to the NFS door.
            HttpEffect::Router(_)
            | HttpEffect::ReadFor(..)
            | HttpEffect::ReadHot(_)
            | HttpEffect::Locate(..)
            | HttpEffect::Advise(_)
            | HttpEffect::Withdraw(_)
            | HttpEffect::Postpone(..)
            | HttpEffect::Hurry(_)
            | HttpEffect::Ahead(_) => {}
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
