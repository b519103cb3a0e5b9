//! Connections to the ensemble's other hosts: the streams under a
//! [`Connections`] machine.
//!
//! Of two hosts the one with the larger id connects. Connecting waits for the
//! network, so each attempt is a short-lived thread; there are no more of them
//! than hosts that cannot be reached, each for as long as a handshake may take.
//!
//! With [`Security`] there is TLS between stream and machine: a link is opened when
//! both sides have shown their certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use crossdock_host::HostInput;
use crossdock_link::{
    CloseReason, Connections, ConnectionsConfig, ConnectionsEffect, ConnectionsInput, LinkConfig,
    LinkId, RefusalKind, Stamped,
};
use crossdock_members::State;
use crossdock_names::{Epoch, HostId};
use crossdock_net::{ConnectionId, Driver, Event, ListenerId, Receiver, Sender, now};
use crossdock_types::Time;
use tracing::{debug, info, warn};

use super::Shell;
use super::secure::{SealedEffect, Security};

/// Attempts to connect that have ended and wait for the data thread.
const DIALED_MAX: usize = 256;

/// How long an attempt may take.
const DIAL_PATIENCE: Duration = Duration::from_secs(3);

/// The connections of this host.
pub(crate) struct Links {
    machine: Connections,
    listener: ListenerId,
    host: HostId,
    /// Where the hosts of the table are.
    addresses: BTreeMap<HostId, SocketAddr>,
    streams: BTreeMap<LinkId, ConnectionId>,
    names: BTreeMap<ConnectionId, LinkId>,
    /// Bytes that the kernel has not taken yet, per link that has some.
    unsent: BTreeMap<LinkId, usize>,
    /// Links that are being connected.
    dialing: BTreeSet<LinkId>,
    dialed: Receiver<Dialed>,
    dialer: Sender<Dialed>,
    /// `None`: in the clear.
    security: Option<Security>,
}

struct Dialed {
    link: LinkId,
    stream: io::Result<TcpStream>,
}

impl Links {
    /// Those of the host that `config` describes, which listens at `listener`.
    pub(crate) fn new(
        config: LinkConfig,
        seed: u64,
        listener: ListenerId,
        driver: &Driver,
        security: Option<Security>,
    ) -> Self {
        let (dialer, dialed) = crossdock_net::channel(DIALED_MAX, driver.waker());
        let host = config.host;
        Self {
            machine: Connections::new(ConnectionsConfig::new(config, seed)),
            listener,
            host,
            addresses: BTreeMap::new(),
            streams: BTreeMap::new(),
            names: BTreeMap::new(),
            unsent: BTreeMap::new(),
            dialing: BTreeSet::new(),
            dialed,
            dialer,
            security,
        }
    }

    /// When this host's certificate ends, in seconds since 1970, if it has one.
    pub(super) fn certificate_ends(&self) -> Option<u64> {
        self.security.as_ref().map(Security::certificate_ends)
    }

    /// Follows the registry: connects to those that this host connects to, and
    /// forgets those that have left.
    pub(super) fn follow(&mut self, state: &State) {
        let time = now();
        let epoch = Epoch(state.table_epoch);
        if let Some(security) = &mut self.security {
            security.follow(state);
        }
        self.machine.handle(time, ConnectionsInput::Table(epoch));
        let hosts = state.hosts.iter();
        let hosts = hosts.filter_map(|(&host, record)| Some((HostId(host), record.link?)));
        let before = std::mem::replace(&mut self.addresses, hosts.collect());
        for &host in before.keys() {
            if !self.addresses.contains_key(&host) {
                self.machine.handle(time, ConnectionsInput::Forget(host));
            }
        }
        for &host in self.addresses.keys() {
            if host < self.host && !before.contains_key(&host) {
                self.machine.handle(time, ConnectionsInput::Connect(host));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }

    /// Whether the kernel has not taken everything.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Attempts to connect that have ended.
    pub(super) fn take_dialed(&mut self, driver: &mut Driver) {
        while let Some(Dialed { link, stream }) = self.dialed.try_receive() {
            if !self.dialing.remove(&link) {
                continue; // Too late: it is not wanted any more.
            }
            let adopted = stream.and_then(|stream| {
                let remote = stream.peer_addr()?;
                let adopted = driver.adopt(stream);
                let adopted = adopted.map_err(|error| io::Error::other(error.to_string()))?;
                Ok((adopted, remote))
            });
            let input = match adopted {
                Ok((connection, remote)) => {
                    self.streams.insert(link, connection);
                    self.names.insert(connection, link);
                    if let Some(security) = &mut self.security {
                        security.connect(link, remote);
                        self.carry_sealed(driver, link);
                        continue;
                    }
                    ConnectionsInput::Opened(link)
                }
                Err(error) => {
                    debug!(link = link.0, %error, "cannot connect");
                    ConnectionsInput::Closed(link)
                }
            };
            self.machine.handle(now(), input);
        }
    }

    /// What happened at one of our streams; gives back what is none of ours.
    fn take_event(&mut self, driver: &mut Driver, event: Event) -> Option<Event> {
        let time = now();
        let input = match event {
            Event::Accepted {
                listener,
                connection,
                peer,
            } if listener == self.listener => {
                let link = self.machine.accept(time);
                self.streams.insert(link, connection);
                self.names.insert(connection, link);
                if let Some(security) = &mut self.security {
                    security.accept(link, peer);
                }
                return None;
            }
            Event::Received { connection, bytes } => match self.names.get(&connection) {
                Some(&link) if self.security.is_some() => {
                    self.take_sealed(driver, link, &bytes);
                    return None;
                }
                Some(&link) => ConnectionsInput::Received(link, bytes),
                None => return Some(Event::Received { connection, bytes }),
            },
            Event::Filled { connection, bytes } => match self.names.get(&connection) {
                Some(&link) => ConnectionsInput::Filled(link, bytes),
                None => return Some(Event::Filled { connection, bytes }),
            },
            Event::PeerDone { connection } => {
                let Some(&link) = self.names.get(&connection) else {
                    return Some(event);
                };
                // A host that sends no more cannot answer.
                driver.abort(connection);
                self.forget(link);
                ConnectionsInput::Closed(link)
            }
            Event::Closed { connection, .. } => {
                let Some(&link) = self.names.get(&connection) else {
                    return Some(event);
                };
                self.forget(link);
                ConnectionsInput::Closed(link)
            }
            event => return Some(event),
        };
        self.machine.handle(time, input);
        None
    }

    fn forget(&mut self, link: LinkId) {
        if let Some(security) = &mut self.security {
            security.forget(link);
        }
        self.dialing.remove(&link);
        self.unsent.remove(&link);
        if let Some(connection) = self.streams.remove(&link) {
            self.names.remove(&connection);
        }
    }

    /// Carries out the next thing that the machine wants; what the host is to
    /// learn of it. `None` if it wants nothing.
    fn step(&mut self, driver: &mut Driver) -> Option<Option<HostInput>> {
        let input = match self.machine.poll_effect()? {
            ConnectionsEffect::Dial { link, peer } => {
                self.dial(link, peer);
                None
            }
            ConnectionsEffect::Transmit(link, pieces) => {
                self.transmit(driver, link, pieces);
                None
            }
            ConnectionsEffect::Fill(link, fill) => {
                if let Some(&connection) = self.streams.get(&link) {
                    driver.fill(connection, &fill);
                }
                None
            }
            ConnectionsEffect::Close { link, peer, reason } => {
                tell_closed(peer, &reason);
                match self.streams.get(&link) {
                    Some(&connection) if reason.flushes() => driver.close(connection),
                    Some(&connection) => driver.abort(connection),
                    None => {}
                }
                self.forget(link);
                None
            }
            ConnectionsEffect::Ready(peer) => {
                info!(host = %peer.host, role = ?peer.role, "connected");
                let (host, role, gateway) = (peer.host, peer.role, peer.gateway);
                Some(HostInput::Connected {
                    peer: host,
                    role,
                    gateway,
                })
            }
            ConnectionsEffect::Frame { from, sent } => {
                let sent = Box::new(sent);
                Some(HostInput::Frame { from, sent })
            }
            ConnectionsEffect::Busy { peer, call } => Some(HostInput::Unsent { to: peer, call }),
            // The host has its own list of them, which it goes through when it
            // learns that the other one is gone.
            ConnectionsEffect::Lost { .. } => None,
            ConnectionsEffect::Gone { peer } => Some(HostInput::Disconnected(peer)),
        };
        Some(input)
    }

    fn dial(&mut self, link: LinkId, peer: HostId) {
        let Some(&address) = self.addresses.get(&peer) else {
            return self.machine.handle(now(), ConnectionsInput::Closed(link));
        };
        let dialer = self.dialer.clone();
        let attempt = move || {
            let stream = TcpStream::connect_timeout(&address, DIAL_PATIENCE);
            // If the data thread is gone, nobody wants it any more.
            let _ = dialer.send(Dialed { link, stream });
        };
        let thread = thread::Builder::new().name("dial".to_owned());
        match thread.spawn(attempt) {
            Ok(_) => {
                self.dialing.insert(link);
            }
            Err(error) => {
                warn!(host = %peer, %error, "cannot connect: no thread");
                self.machine.handle(now(), ConnectionsInput::Closed(link));
            }
        }
    }

    fn transmit(&mut self, driver: &mut Driver, link: LinkId, pieces: Vec<Bytes>) {
        let Some(security) = &mut self.security else {
            return self.put(driver, link, pieces);
        };
        let outcome = security.send(link, &pieces);
        self.carry_sealed(driver, link);
        if outcome.is_err() {
            self.end_sealed(driver, link);
        }
    }

    /// Gives bytes to the kernel.
    fn put(&mut self, driver: &mut Driver, link: LinkId, pieces: Vec<Bytes>) {
        let Some(&connection) = self.streams.get(&link) else {
            return;
        };
        if driver.send(connection, pieces).is_err() {
            // The link bounds what lies at the socket: the other side is gone.
            driver.abort(connection);
        }
        let queued_bytes = driver.queued_bytes(connection);
        if queued_bytes > 0 {
            self.unsent.insert(link, queued_bytes);
        }
        let sent = ConnectionsInput::Sent { link, queued_bytes };
        self.machine.handle(now(), sent);
    }

    /// Tells the machine what the kernel has taken, and the time.
    pub(super) fn tell_sent(&mut self, time: Time, driver: &Driver) {
        let mut sunk = Vec::new();
        for (&link, unsent_bytes) in &mut self.unsent {
            let connection = self.streams.get(&link);
            let queued_bytes = connection.map_or(0, |&id| driver.queued_bytes(id));
            if queued_bytes < *unsent_bytes {
                *unsent_bytes = queued_bytes;
                sunk.push(ConnectionsInput::Sent { link, queued_bytes });
            }
        }
        self.unsent.retain(|_, unsent_bytes| *unsent_bytes > 0);
        for input in sunk {
            self.machine.handle(time, input);
        }
        if self.poll_timeout().is_some_and(|due| due <= time) {
            self.machine.handle(time, ConnectionsInput::Timeout);
        }
    }
}

/// With TLS between stream and machine.
impl Links {
    fn take_sealed(&mut self, driver: &mut Driver, link: LinkId, bytes: &[u8]) {
        let Some(security) = &mut self.security else {
            return;
        };
        let outcome = security.receive(link, bytes);
        self.carry_sealed(driver, link);
        if outcome.is_err() {
            self.end_sealed(driver, link);
        }
    }

    fn carry_sealed(&mut self, driver: &mut Driver, link: LinkId) {
        while let Some(security) = &mut self.security
            && let Some(effect) = security.poll(link)
        {
            let time = now();
            match effect {
                SealedEffect::Transmit(bytes) => self.put(driver, link, vec![bytes]),
                SealedEffect::Opened(identity) => {
                    if let Some(identity) = identity {
                        let input = ConnectionsInput::Certified(link, identity);
                        self.machine.handle(time, input);
                    }
                    // Of one that was accepted the machine knows already.
                    self.machine.handle(time, ConnectionsInput::Opened(link));
                }
                SealedEffect::Received(bytes) => {
                    let input = ConnectionsInput::Received(link, bytes);
                    self.machine.handle(time, input);
                }
                SealedEffect::Done => self.end_sealed(driver, link),
            }
        }
    }

    /// Ends a connection once all is sent that was said.
    fn end_sealed(&mut self, driver: &mut Driver, link: LinkId) {
        if let Some(&connection) = self.streams.get(&link) {
            driver.close(connection);
        }
        self.forget(link);
        self.machine.handle(now(), ConnectionsInput::Closed(link));
    }
}

/// What an administrator should know of a connection that has ended.
fn tell_closed(peer: Option<HostId>, reason: &CloseReason) {
    let host = peer.map(|host| host.to_string()).unwrap_or_default();
    let is_usual = match reason {
        CloseReason::Superseded | CloseReason::Unwanted | CloseReason::Ended => true,
        // Two have connected to each other at once, or somebody has started anew.
        CloseReason::Refused(refusal) | CloseReason::RefusedByPeer(refusal) => {
            [RefusalKind::Superseded, RefusalKind::Host].contains(&refusal.kind())
        }
        _ => false,
    };
    if is_usual {
        debug!(host, %reason, "connection closed");
    } else {
        warn!(host, %reason, "connection closed");
    }
}

impl Shell {
    /// Gives back what is not of another host.
    pub(super) fn take_link_event(&mut self, event: Event) -> Option<Event> {
        match &mut self.ensemble {
            Some(ensemble) => ensemble.links.take_event(&mut self.driver, event),
            None => Some(event),
        }
    }

    /// Carries out what the links want; whether there was something.
    pub(super) fn carry_links(&mut self) -> bool {
        let mut has_carried = false;
        while let Some(ensemble) = &mut self.ensemble
            && let Some(input) = ensemble.links.step(&mut self.driver)
        {
            has_carried = true;
            if let Some(input) = input {
                self.give(input);
            }
        }
        has_carried
    }

    pub(super) fn send_to(&mut self, host: HostId, sent: Stamped) {
        if let Some(ensemble) = &mut self.ensemble {
            let input = ConnectionsInput::Send(host, sent);
            ensemble.links.machine.handle(now(), input);
        }
    }

    pub(super) fn tell_links_sent(&mut self, time: Time) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.links.tell_sent(time, &self.driver);
        }
    }
}
