//! A gateway's clients whose bytes nodes may send: what the kernel's program catches becomes
//! datagrams for the hosts that hold the bytes (SPIRAL section 2).
//!
//! Bytes of a connection enter its socket in the order in which they are given here, each
//! only after the redirector knows what it is and the program catches it. What there is no
//! room for waits here until the client has acknowledged some.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use crossdock_bpf::{CatchDevice, Catcher};
use crossdock_names::HostId;
use crossdock_net::{ConnectionId, Driver, Event, SocketId, WatchId};
use crossdock_peer::Flow;
use crossdock_redirector::{AnnounceError, Redirector};
use crossdock_tunnel::{ConnectionId as CaughtId, TunnelKey};
use crossdock_types::{Part, Payload, Time};
use tracing::{debug, warn};

/// How often connections are looked at whose clients lack something.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a client may take nothing of what is on its way when its connection is to end.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Dummy bytes come from here.
static DUMMY: [u8; 64 << 10] = [0; 64 << 10];

/// The gateway's side of third-party transfer.
pub(crate) struct Injector {
    catcher: Catcher,
    watch: WatchId,
    tunnel: SocketId,
    redirector: Redirector,
    clients: BTreeMap<ConnectionId, Client>,
    by_caught: BTreeMap<CaughtId, ConnectionId>,
    /// Those that wait for acknowledgements.
    under_way: BTreeSet<ConnectionId>,
    look_due: Option<Time>,
    /// Flows that have ended since somebody asked.
    ended: Vec<Flow>,
    figures: InjectFigures,
}

/// What went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InjectFigures {
    /// Bytes that nodes were to send, in connections where they may.
    pub(crate) injected_bytes: u64,
    /// Bytes that came from the gateway, in those connections.
    pub(crate) relayed_bytes: u64,
    /// Connections that were reset because nobody had their bytes any more.
    pub(crate) reset: u64,
}

struct Client {
    caught: CaughtId,
    flow: Flow,
    /// For the socket, when there is room.
    waiting: VecDeque<Part>,
    waiting_bytes: usize,
    ending: Option<Ending>,
}

/// A connection ends when its client has everything.
#[derive(Clone, Copy, Debug)]
struct Ending {
    is_shut: bool,
    acknowledged: u64,
    /// When it has taken nothing for too long.
    until: Time,
}

impl Injector {
    /// Puts the program before what leaves by `device`.
    ///
    /// # Errors
    /// The rights are missing, or the kernel has not what it takes.
    pub(crate) fn open(
        driver: &mut Driver,
        device: &str,
        address: IpAddr,
        gateway: HostId,
    ) -> anyhow::Result<Self> {
        let caught = CatchDevice::make(device).and_then(Catcher::attach);
        let catcher = caught.with_context(|| format!("--spiral-device {device}"))?;
        let descriptor: OwnedFd = catcher.as_fd().try_clone_to_owned()?;
        let watch = driver.watch(descriptor)?;
        let (tunnel, _) = driver.bind_datagram(SocketAddr::new(address, 0))?;
        Ok(Self {
            catcher,
            watch,
            tunnel,
            redirector: Redirector::new(gateway.0, gateway.0),
            clients: BTreeMap::new(),
            by_caught: BTreeMap::new(),
            under_way: BTreeSet::new(),
            look_due: None,
            ended: Vec::new(),
            figures: InjectFigures::default(),
        })
    }

    /// What went which way so far.
    pub(crate) const fn figures(&self) -> InjectFigures {
        self.figures
    }

    /// When [`Self::look`] is to be called.
    pub(crate) const fn due(&self) -> Option<Time> {
        self.look_due
    }

    /// A host fills packets from now on.
    pub(crate) fn connect(&mut self, holder: HostId, address: SocketAddr, key: TunnelKey) {
        debug!(%holder, %address, "tunnel opened");
        self.redirector.connect(holder, address, key);
    }

    /// A host does not any more: connections that need it cannot go on.
    pub(crate) fn disconnect(&mut self, driver: &mut Driver, holder: HostId) {
        for caught in self.redirector.disconnect(holder) {
            if let Some(&id) = self.by_caught.get(&caught) {
                self.reset(driver, id);
            }
        }
    }

    fn reset(&mut self, driver: &mut Driver, id: ConnectionId) {
        self.figures.reset += 1;
        driver.abort(id);
    }

    /// A client has connected: whether nodes may send to it. `may_speak` tells whether they
    /// let themselves be told to speak as that address.
    pub(crate) fn accept(
        &mut self,
        driver: &Driver,
        id: ConnectionId,
        peer: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Option<Flow> {
        let socket = driver.socket(id)?;
        let source = rustix::net::getsockname(socket).ok()?;
        let flow = Flow {
            source: source.try_into().ok()?,
            destination: peer,
        };
        let is_outside = !peer.ip().is_loopback() && peer.ip() != flow.source.ip();
        if !(is_outside && self.redirector.has_tunnels() && may_speak(flow.source.ip())) {
            return None;
        }
        let caught = match self.catcher.add(socket) {
            Ok(caught) => caught,
            Err(error) => {
                debug!(%error, "a connection is relayed");
                return None;
            }
        };
        self.redirector.open(caught);
        self.by_caught.insert(caught, id);
        let client = Client {
            caught,
            flow,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ending: None,
        };
        self.clients.insert(id, client);
        Some(flow)
    }

    /// Whether nodes may send to it.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.clients.contains_key(&id)
    }

    /// Bytes that the socket has not been given yet.
    pub(crate) fn waiting_bytes(&self, id: ConnectionId) -> usize {
        self.clients.get(&id).map_or(0, |it| it.waiting_bytes)
    }

    /// Sends what the door has, behind what it had before.
    pub(crate) fn send(
        &mut self,
        driver: &mut Driver,
        now: Time,
        id: ConnectionId,
        payload: Payload,
    ) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.waiting_bytes += payload.len();
        client.waiting.extend(payload.into_parts());
        self.go_on(driver, now, id);
    }

    /// Gives the socket what the redirector has room for.
    fn go_on(&mut self, driver: &mut Driver, now: Time, id: ConnectionId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let mut pieces = Vec::new();
        let mut failure = None;
        while let Some(piece) = client.waiting.front() {
            match announce(&mut self.redirector, client.caught, piece) {
                Ok(None) => {}
                Ok(Some(catch_from)) => self.catcher.catch_from(client.caught, catch_from),
                Err(AnnounceError::Full(_)) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            let Some(piece) = client.waiting.pop_front() else {
                break;
            };
            client.waiting_bytes -= piece.len();
            match piece {
                Part::Bytes(bytes) => {
                    self.figures.relayed_bytes += bytes.len() as u64;
                    pieces.push(bytes);
                }
                Part::Extent(extent) => {
                    self.figures.injected_bytes += extent.length_bytes as u64;
                    let mut left = extent.length_bytes;
                    while left > 0 {
                        let some = left.min(DUMMY.len());
                        pieces.push(Bytes::from_static(&DUMMY[..some]));
                        left -= some;
                    }
                }
            }
        }
        let is_refused = !pieces.is_empty() && driver.send(id, pieces).is_err();
        if let Some(error) = failure {
            warn!(%error, "a connection is reset: its bytes cannot be sent any more");
        }
        if is_refused || failure.is_some() {
            return self.reset(driver, id);
        }
        self.watch(now, id);
    }

    /// Whoever has something on its way is looked at again.
    fn watch(&mut self, now: Time, id: ConnectionId) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let is_under_way = self.redirector.is_under_way(client.caught);
        if is_under_way || client.waiting_bytes > 0 || client.ending.is_some() {
            self.under_way.insert(id);
            self.look_due.get_or_insert(now + LOOK_EVERY);
        } else {
            self.under_way.remove(&id);
        }
    }

    /// Ends a connection when its client has everything: until then somebody has to know
    /// what its dummy bytes are.
    pub(crate) fn close(&mut self, now: Time, id: ConnectionId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.ending.get_or_insert(Ending {
                is_shut: false,
                acknowledged: 0,
                until: now + END_PATIENCE,
            });
        }
        self.watch(now, id);
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(client) = self.clients.remove(&id) {
            self.under_way.remove(&id);
            self.by_caught.remove(&client.caught);
            self.redirector.end(client.caught);
            self.catcher.remove(client.caught);
            self.ended.push(client.flow);
        }
    }

    /// Flows that nobody fills packets of any more.
    pub(crate) fn take_ended(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.ended)
    }

    /// Packets may have been caught; the event again if it is somebody else's.
    pub(crate) fn take_event(&mut self, driver: &mut Driver, event: Event) -> Option<Event> {
        match event {
            Event::Readable(watch) if watch == self.watch => {
                self.take_caught(driver);
                None
            }
            // Nobody has anything to say to this end of the tunnels.
            Event::Datagram { socket, .. } if socket == self.tunnel => None,
            event => Some(event),
        }
    }

    fn take_caught(&mut self, driver: &mut Driver) {
        while let Some(caught) = self.catcher.next_caught() {
            let catch_from = self.redirector.caught(&caught);
            self.catcher.catch_from(caught.connection, catch_from);
        }
        while let Some((holder, datagram)) = self.redirector.poll_datagram() {
            if let Some(address) = self.redirector.address(holder) {
                // One that is lost is as lost as its packets: TCP repeats them.
                let _ = driver.send_datagram(self.tunnel, address, vec![datagram.into()]);
            }
        }
    }

    /// Looks what clients have acknowledged.
    pub(crate) fn look(&mut self, driver: &mut Driver, now: Time) {
        if self.look_due.is_none_or(|due| due > now) {
            return;
        }
        self.look_due = None;
        let under_way: Vec<ConnectionId> = self.under_way.iter().copied().collect();
        for id in under_way {
            self.look_at(driver, now, id);
        }
    }

    fn look_at(&mut self, driver: &mut Driver, now: Time, id: ConnectionId) {
        let (Some(client), Some(info)) = (self.clients.get_mut(&id), driver.tcp_info(id)) else {
            self.under_way.remove(&id);
            return;
        };
        let acknowledged = info.acked_bytes;
        let catch_from = self.redirector.acknowledged(client.caught, acknowledged);
        self.catcher.catch_from(client.caught, catch_from);
        if let Some(ending) = &mut client.ending {
            if acknowledged > ending.acknowledged {
                ending.acknowledged = acknowledged;
                ending.until = now + END_PATIENCE;
            }
            let is_given = client.waiting.is_empty() && driver.queued_bytes(id) == 0;
            if is_given && !ending.is_shut {
                ending.is_shut = true;
                shut(driver, id);
            }
            let is_done = is_given && !self.redirector.is_under_way(client.caught);
            if is_done {
                driver.close(id);
                self.under_way.remove(&id);
                return;
            }
            if ending.until <= now {
                return self.reset(driver, id);
            }
        }
        self.go_on(driver, now, id);
    }
}

/// Tells the redirector of a piece. From where on packets are caught then, if that may have
/// changed.
fn announce(
    redirector: &mut Redirector,
    caught: CaughtId,
    part: &Part,
) -> Result<Option<Option<u64>>, AnnounceError> {
    match part {
        Part::Bytes(bytes) => {
            match redirector.announce_literal(caught, bytes.clone()) {
                // More than is remembered goes by itself, if it overtakes nobody.
                Err(AnnounceError::Full(_)) => {
                    redirector.pass(caught, bytes.len() as u64)?;
                    Ok(Some(None))
                }
                announced => announced.map(Some),
            }
        }
        Part::Extent(extent) => redirector.announce_extent(caught, extent.clone()).map(Some),
    }
}

/// The client is to see the end of the stream behind all bytes.
fn shut(driver: &Driver, id: ConnectionId) {
    if let Some(socket) = driver.socket(id) {
        // One that is over already has ended, too.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
    }
}
