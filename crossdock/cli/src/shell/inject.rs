//! A gateway's clients whose bytes nodes may send: what the kernel's program catches becomes
//! datagrams for the hosts that hold the bytes (SPIRAL section 2).
//!
//! Bytes of a connection enter its socket in the order in which they are given here, each
//! only after the redirector knows what it is and the program catches it. What there is no
//! room for waits here until the client has acknowledged some.

mod announce;
mod datagrams;
mod ending;
mod figures;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::Context;
use crossdock_bpf::{BpfError, CatchDevice, Catcher, Room};
use crossdock_host::Window;
use crossdock_names::HostId;
use crossdock_net::{ConnectionId, Driver, Event, WatchId, now};
use crossdock_peer::{Flow, Transport};
use crossdock_redirector::{AnnounceError, Redirector};
use crossdock_tunnel::{ConnectionId as CaughtId, TunnelKey};
use crossdock_types::{Extent, Part, Payload, Time};
use tracing::{debug, warn};

use crate::data;
use announce::announce;
use datagrams::Datagrams;
use ending::{Ending, reset_when_closed};
pub(crate) use figures::{InjectFigures, Why};
use window::Course;

/// How often connections are looked at whose clients lack something.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How often it is looked whether the kernel's program is where it was put.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// How bytes get to clients: nodes send some of them themselves, if the gateway has it so.
#[derive(Default)]
pub(crate) struct Injector {
    catching: Option<Catching>,
    /// Connections in which nodes might send, but do not.
    relayed: BTreeMap<ConnectionId, Why>,
    figures: InjectFigures,
}

/// The gateway's side of third-party transfer.
struct Catching {
    catcher: Catcher,
    watch: WatchId,
    /// Datagrams leave at once: by way of the loop each would cost a turn of its own.
    tunnel: UdpSocket,
    redirector: Redirector,
    clients: BTreeMap<ConnectionId, Client>,
    by_caught: BTreeMap<CaughtId, ConnectionId>,
    /// Those that wait for acknowledgements.
    under_way: BTreeSet<ConnectionId>,
    look_due: Option<Time>,
    keep_due: Option<Time>,
    /// Flows that have ended since somebody asked.
    ended: Vec<Flow>,
    /// Flows whose window is another one since somebody asked.
    windows: Vec<(Flow, Window)>,
    /// Dummy bytes enter sockets when the loop turns next: their packets are caught then.
    has_given: bool,
    /// The program has been told that the loop looks by itself.
    is_awake: bool,
    /// Extents whose holder is gone, of which nobody has been asked yet.
    lost: Vec<Lost>,
    /// Those of which somebody has, by ticket.
    asked: BTreeMap<u64, Asked>,
    tickets_total: u64,
    /// What goes in no connection.
    datagrams: Datagrams,
}

/// Bytes that a client is to get and whose holder is gone.
pub(crate) struct Lost {
    /// Names them when they are found.
    pub(crate) ticket: u64,
    pub(crate) flow: Flow,
    pub(crate) extent: Extent,
}

struct Asked {
    id: ConnectionId,
    lost: Extent,
    /// Its holder has said that it does not send it; else it may only be out of reach.
    is_disowned: bool,
}

struct Client {
    caught: CaughtId,
    flow: Flow,
    /// For the socket, when there is room.
    waiting: VecDeque<Part>,
    waiting_bytes: usize,
    /// Its socket may have dummy bytes, and is reset when it is closed.
    is_guarded: bool,
    /// Its packets go by the kernel's program.
    is_led: bool,
    /// Nothing had to be caught when it was last looked whether it has to be led.
    is_idle: bool,
    /// What it has lost: it is relayed where that is much.
    course: Course,
    is_reset: bool,
    ending: Option<Ending>,
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
        let caught =
            CatchDevice::make(device).and_then(|device| Catcher::attach(device, Room::default()));
        let catcher = caught.with_context(|| format!("--spiral-device {device}"))?;
        let descriptor: OwnedFd = catcher.as_fd().try_clone_to_owned()?;
        let watch = driver.watch(descriptor)?;
        let tunnel = UdpSocket::bind((address, 0))?;
        tunnel.set_nonblocking(true)?;
        Ok(Self {
            catching: Some(Catching {
                catcher,
                watch,
                tunnel,
                redirector: Redirector::new(gateway.0, gateway.0),
                clients: BTreeMap::new(),
                by_caught: BTreeMap::new(),
                under_way: BTreeSet::new(),
                look_due: None,
                keep_due: None,
                ended: Vec::new(),
                windows: Vec::new(),
                has_given: false,
                is_awake: false,
                lost: Vec::new(),
                asked: BTreeMap::new(),
                tickets_total: 0,
                datagrams: Datagrams::new(data::random_bytes()?),
            }),
            ..Self::default()
        })
    }

    /// What went which way so far; nothing where all passes through the gateway.
    pub(crate) fn figures(&self) -> Option<&InjectFigures> {
        self.catching.is_some().then_some(&self.figures)
    }

    /// Packets, by what became of them at the kernel's program and at the redirector.
    pub(crate) fn packets(&self) -> BTreeMap<String, u64> {
        let Some(catching) = &self.catching else {
            return BTreeMap::new();
        };
        let program = catching.catcher.figures().unwrap_or_default();
        let own = catching.redirector.figures();
        let all = [
            ("passed", program.passed),
            ("caught", program.caught),
            ("late", program.late),
            ("unknown", program.unknown),
            ("full", program.full),
            ("stray", program.stray),
            ("handed", own.handed),
            ("unsent", own.unsent),
            ("unreachable", own.unreachable),
            ("turns", own.turns),
            ("replies", own.replies),
        ];
        all.map(|(fate, packets)| (fate.to_owned(), packets)).into()
    }

    /// Hosts that fill packets, and connections in which they may.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let catching = self.catching.as_ref();
        catching.map_or((0, 0), |it| (it.redirector.tunnels(), it.clients.len()))
    }

    /// When [`Self::look`] is to be called.
    pub(crate) fn due(&self) -> Option<Time> {
        let catching = self.catching.as_ref()?;
        let datagrams = catching.datagrams.poll_timeout();
        let all = [catching.look_due, catching.keep_due, datagrams];
        all.into_iter().flatten().min()
    }

    /// A host fills packets from now on.
    pub(crate) fn connect(
        &mut self,
        holder: HostId,
        address: SocketAddr,
        key: TunnelKey,
        is_node: bool,
    ) {
        if let Some(catching) = &mut self.catching {
            debug!(%holder, %address, "tunnel opened");
            catching.redirector.connect(holder, address, key, is_node);
        }
    }

    /// A host does not any more: what it has not sent is lost, or others have it.
    pub(crate) fn disconnect(&mut self, holder: HostId) {
        if let Some(catching) = &mut self.catching {
            for (caught, extent) in catching.redirector.disconnect(holder) {
                if let Some(&id) = catching.by_caught.get(&caught) {
                    catching.lose(id, extent, false);
                }
            }
        }
    }

    /// A host does not send what is under these pins.
    pub(crate) fn disown(&mut self, holder: HostId, pins: &[u64]) {
        if let Some(catching) = &mut self.catching {
            let is_lost = |pin| pins.contains(&pin);
            for (caught, extent) in catching.redirector.lose(holder, is_lost) {
                if let Some(&id) = catching.by_caught.get(&caught) {
                    catching.lose(id, extent, true);
                }
            }
        }
    }

    /// What somebody is to be asked for.
    pub(crate) fn take_lost(&mut self) -> Vec<Lost> {
        let catching = self.catching.as_mut();
        catching.map_or_else(Vec::new, |it| std::mem::take(&mut it.lost))
    }

    /// What came of it: another host has the bytes, or nobody, and the connection ends.
    pub(crate) fn refilled(&mut self, driver: &mut Driver, ticket: u64, found: Option<Extent>) {
        let Some(catching) = &mut self.catching else {
            return;
        };
        let Some(asked) = catching.asked.remove(&ticket) else {
            return;
        };
        let Asked {
            id,
            lost,
            is_disowned,
        } = asked;
        let Some(found) = found else {
            // Unless its holder was only out of reach.
            let holder = HostId(lost.holder());
            let is_gone = is_disowned || catching.redirector.address(holder).is_none();
            if is_gone {
                catching.reset(&mut self.figures, driver, id);
            }
            return;
        };
        self.figures.refilled_bytes += found.length_bytes as u64;
        catching.replace(id, &lost, &found);
        catching.go_on(&mut self.figures, driver, now(), id);
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
        let accepted = self.catching.as_mut()?.accept(driver, id, peer, may_speak);
        accepted.map_err(|why| self.relay(id, why)).ok()
    }

    /// Nodes do not send in this connection.
    pub(crate) fn relay(&mut self, id: ConnectionId, why: Why) {
        if self.catching.is_some() {
            self.relayed.insert(id, why);
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn queued_bytes(&self, driver: &Driver, id: ConnectionId) -> usize {
        let client = self.catching.as_ref().and_then(|it| it.clients.get(&id));
        driver.queued_bytes(id) + client.map_or(0, |client| client.waiting_bytes)
    }

    /// Sends what a door has, behind what it had before. A connection that does not take it
    /// ends: the doors bound what they send.
    pub(crate) fn send(&mut self, driver: &mut Driver, id: ConnectionId, payload: Payload) {
        if let Some(catching) = &mut self.catching {
            if let Some(client) = catching.clients.get_mut(&id) {
                client.waiting_bytes += payload.len();
                client.waiting.extend(payload.into_parts());
                return catching.go_on(&mut self.figures, driver, now(), id);
            }
            let why = self.relayed.get(&id).copied().unwrap_or(Why::Here);
            self.figures.note_relayed(why, payload.len());
        }
        if driver.send(id, payload.into_pieces()).is_err() {
            driver.abort(id);
        }
    }

    /// Ends a connection when its client has everything: until then somebody has to know
    /// what its dummy bytes are.
    pub(crate) fn close(&mut self, driver: &mut Driver, id: ConnectionId) {
        if let Some(catching) = &mut self.catching
            && !catching.lets_close(driver, id)
        {
            return catching.close(now(), id);
        }
        driver.close(id);
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.relayed.remove(&id);
        if let Some(catching) = &mut self.catching {
            catching.forget(id);
        }
    }

    /// Flows that nobody fills packets of any more.
    pub(crate) fn take_ended(&mut self) -> Vec<Flow> {
        let catching = self.catching.as_mut();
        catching.map_or_else(Vec::new, |it| std::mem::take(&mut it.ended))
    }

    /// Flows that nodes are to send less in for now, or more again.
    pub(crate) fn take_windows(&mut self) -> Vec<(Flow, Window)> {
        let catching = self.catching.as_mut();
        catching.map_or_else(Vec::new, |it| std::mem::take(&mut it.windows))
    }

    /// Packets may have been caught; the event again if it is somebody else's.
    pub(crate) fn take_event(&mut self, event: Event) -> Option<Event> {
        let Some(catching) = &mut self.catching else {
            return Some(event);
        };
        match event {
            Event::Readable(watch) if watch == catching.watch => {
                catching.take_caught();
                None
            }
            event => Some(event),
        }
    }

    /// The loop turns next: whether it may sleep then. It may not if packets will be caught as it
    /// turns, which are looked at right behind it.
    pub(crate) fn sleeps(&mut self) -> bool {
        let Some(catching) = &mut self.catching else {
            return true;
        };
        if std::mem::take(&mut catching.has_given) {
            return false;
        }
        if std::mem::take(&mut catching.is_awake) || !catching.clients.is_empty() {
            catching.catcher.set_awake(false);
            catching.take_caught();
        }
        true
    }

    /// The loop has turned.
    pub(crate) fn wakes(&mut self) {
        if let Some(catching) = &mut self.catching
            && !catching.clients.is_empty()
        {
            catching.catcher.set_awake(true);
            catching.is_awake = true;
            catching.take_caught();
        }
    }

    /// Looks what clients have acknowledged, and after the program, if it is time.
    pub(crate) fn look(&mut self, driver: &mut Driver) {
        let time = now();
        let Some(catching) = &mut self.catching else {
            return;
        };
        if catching.keep_due.take_if(|due| *due <= time).is_some() {
            catching.keep(time);
            catching.let_go(driver);
        }
        catching.mind_datagrams(time);
        if catching.look_due.take_if(|due| *due <= time).is_none() {
            return;
        }
        let under_way: Vec<ConnectionId> = catching.under_way.iter().copied().collect();
        for id in under_way {
            catching.look_at(&mut self.figures, driver, time, id);
        }
    }
}

impl Client {
    /// Its packets leave as any other's; if that cannot be they are led on, which does no harm.
    fn lead_no_more(&mut self, driver: &Driver, id: ConnectionId, catcher: &mut Catcher) {
        if self.is_led
            && let Some(socket) = driver.socket(id)
        {
            self.is_led = catcher.lead(self.caught, socket, false).is_err();
        }
    }
}

impl Catching {
    fn accept(
        &mut self,
        driver: &Driver,
        id: ConnectionId,
        peer: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Result<Flow, Why> {
        let socket = driver.socket(id).ok_or(Why::Address)?;
        let source = rustix::net::getsockname(socket).ok();
        let source = source.and_then(|source| source.try_into().ok());
        let flow = Flow {
            transport: Transport::Tcp,
            source: source.ok_or(Why::Address)?,
            destination: peer,
        };
        self.check(flow.source, peer, may_speak)?;
        let caught = self.catcher.open().map_err(|error| {
            debug!(%error, "a connection is relayed");
            Why::Program
        })?;
        self.redirector.open(caught);
        self.by_caught.insert(caught, id);
        self.keep_due.get_or_insert_with(|| now() + KEEP_EVERY);
        let client = Client {
            caught,
            flow,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_guarded: false,
            is_led: false,
            is_idle: false,
            course: Course::default(),
            is_reset: false,
            ending: None,
        };
        self.clients.insert(id, client);
        Ok(flow)
    }

    /// Whether nodes can send from there to the client.
    fn check(
        &self,
        source: SocketAddr,
        client: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Result<(), Why> {
        if client.ip().is_loopback() || client.ip() == source.ip() {
            return Err(Why::Loopback);
        }
        if self.redirector.tunnels() == 0 {
            return Err(Why::NoTunnel);
        }
        match may_speak(source.ip()) {
            true => Ok(()),
            false => Err(Why::Address),
        }
    }

    /// Gives the socket what the redirector has room for.
    fn go_on(
        &mut self,
        figures: &mut InjectFigures,
        driver: &mut Driver,
        now: Time,
        id: ConnectionId,
    ) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let here = match client.course.window() {
            Window::Wide => Why::Here,
            Window::Short | Window::Small => Why::Window,
        };
        let mut pieces = Vec::new();
        let (mut failure, mut lost) = (None, None);
        // Who asks for the next reply has mostly acknowledged the last one.
        let mut is_fresh = false;
        while let Some(part) = client.waiting.front() {
            match announce(&mut self.redirector, client.caught, part) {
                Ok(catch_from) => self.catcher.catch_from(client.caught, catch_from),
                Err(AnnounceError::Full(_)) if is_fresh => break,
                Err(AnnounceError::Full(_)) => {
                    let Some(info) = driver.tcp_info(id) else {
                        break;
                    };
                    acknowledge(
                        &mut self.redirector,
                        &self.catcher,
                        client.caught,
                        info.acked_bytes,
                    );
                    is_fresh = true;
                    continue;
                }
                // It waits here until somebody else has the bytes.
                Err(AnnounceError::Tunnel(_)) => {
                    if let Part::Extent(extent) = part {
                        lost = Some(extent.clone());
                    }
                    break;
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            let Some(part) = client.waiting.pop_front() else {
                break;
            };
            client.waiting_bytes -= part.len();
            match part {
                Part::Bytes(bytes) => {
                    figures.note_relayed(here, bytes.len());
                    pieces.push(bytes);
                }
                Part::Extent(extent) => {
                    figures.injected_bytes += extent.length_bytes as u64;
                    pieces.extend(crossdock_net::dummy(extent.length_bytes));
                    self.has_given = true;
                }
            }
        }
        if let Some(error) = failure {
            warn!(%error, "a connection is reset: its bytes cannot be sent any more");
            return self.reset(figures, driver, id);
        }
        if let Err(error) = self.guard(driver, id) {
            warn!(%error, "a connection is reset: its packets cannot be caught");
            return self.reset(figures, driver, id);
        }
        if !pieces.is_empty() && driver.send(id, pieces).is_err() {
            return driver.abort(id);
        }
        if let Some(lost) = lost {
            self.lose(id, lost, false);
        }
        self.watch(now, id);
    }

    /// As long as a socket may have dummy bytes its packets go by the kernel's program, and it is
    /// reset when it is closed.
    fn guard(&mut self, driver: &Driver, id: ConnectionId) -> Result<(), BpfError> {
        let (Some(client), Some(socket)) = (self.clients.get_mut(&id), driver.socket(id)) else {
            return Ok(());
        };
        let has_extents = self.redirector.has_extents(client.caught);
        client.is_idle &= !has_extents;
        if has_extents && !client.is_led {
            self.catcher.lead(client.caught, socket, true)?;
            client.is_led = true;
        }
        if std::mem::replace(&mut client.is_guarded, has_extents) != has_extents {
            reset_when_closed(socket, has_extents);
        }
        Ok(())
    }

    /// Packets of clients to which nodes have sent nothing for a while leave as any other's.
    fn let_go(&mut self, driver: &Driver) {
        for (&id, client) in &mut self.clients {
            let is_idle = !self.redirector.has_extents(client.caught);
            let was_idle = std::mem::replace(&mut client.is_idle, is_idle);
            if is_idle && was_idle {
                client.lead_no_more(driver, id, &mut self.catcher);
            }
        }
    }

    /// Whether the kernel's program is still there is looked at as long as it is of use.
    fn keep(&mut self, now: Time) {
        match self.catcher.keep() {
            Ok(false) => {}
            Ok(true) => warn!("somebody had taken away what leads packets to nodes; it is back"),
            Err(error) => warn!(%error, "clients get nothing any more"),
        }
        let is_used = !self.clients.is_empty() || self.catcher.is_guarded();
        self.keep_due = is_used.then_some(now + KEEP_EVERY);
    }

    /// Whoever has something on its way is looked at again.
    fn watch(&mut self, now: Time, id: ConnectionId) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let has_extents = self.redirector.has_extents(client.caught);
        let is_narrow = client.course.window() != Window::Wide;
        let is_held_up = client.waiting_bytes > 0 || is_narrow || client.ending.is_some();
        if has_extents || is_held_up {
            self.under_way.insert(id);
            self.look_due.get_or_insert(now + LOOK_EVERY);
        } else {
            self.under_way.remove(&id);
        }
    }

    /// Somebody is to be asked for an extent, unless that is so already.
    fn lose(&mut self, id: ConnectionId, extent: Extent, is_disowned: bool) {
        let mut asked = self.asked.values();
        let is_asked = asked.any(|asked| asked.id == id && asked.lost.is_same(&extent));
        let Some(client) = self.clients.get(&id).filter(|_| !is_asked) else {
            return;
        };
        self.tickets_total += 1;
        let ticket = self.tickets_total;
        let asked = Asked {
            id,
            lost: extent.clone(),
            is_disowned,
        };
        self.asked.insert(ticket, asked);
        let flow = client.flow;
        self.lost.push(Lost {
            ticket,
            flow,
            extent,
        });
    }

    /// Another host has the bytes of an extent.
    fn replace(&mut self, id: ConnectionId, lost: &Extent, found: &Extent) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        self.redirector.replace(client.caught, lost, found);
        for part in &mut client.waiting {
            if let Part::Extent(extent) = part
                && extent.is_same(lost)
            {
                *extent = found.clone();
            }
        }
    }

    /// Whether a connection may end as any other: nothing in it has to be caught any more.
    fn lets_close(&mut self, driver: &Driver, id: ConnectionId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else {
            return true;
        };
        let is_plain = client.waiting.is_empty() && !self.redirector.has_extents(client.caught);
        if is_plain {
            client.lead_no_more(driver, id, &mut self.catcher);
        }
        is_plain && !client.is_led && !client.is_guarded
    }

    fn close(&mut self, now: Time, id: ConnectionId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.ending.get_or_insert_with(|| Ending::new(now));
        }
        self.watch(now, id);
    }

    /// Its client sees it end; it counts once, whatever else of it is gone.
    fn reset(&mut self, figures: &mut InjectFigures, driver: &mut Driver, id: ConnectionId) {
        if let Some(client) = self.clients.get_mut(&id)
            && !std::mem::replace(&mut client.is_reset, true)
        {
            figures.reset += 1;
            driver.abort(id);
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        if let Some(client) = self.clients.remove(&id) {
            self.under_way.remove(&id);
            self.by_caught.remove(&client.caught);
            self.redirector.end(client.caught);
            self.catcher.remove(client.caught);
            self.ended.push(client.flow);
        }
    }

    fn take_caught(&mut self) {
        while let Some(caught) = self.catcher.next_caught() {
            let catch_from = self.redirector.caught(&caught);
            self.catcher.catch_from(caught.connection, catch_from);
        }
        self.send_tunnelled();
    }

    fn send_tunnelled(&mut self) {
        while let Some((holder, datagram)) = self.redirector.poll_datagram() {
            if let Some(address) = self.redirector.address(holder) {
                // One that is lost is as lost as its packets: TCP repeats them.
                let _ = self.tunnel.send_to(&datagram, address);
            }
        }
    }

    fn look_at(
        &mut self,
        figures: &mut InjectFigures,
        driver: &mut Driver,
        now: Time,
        id: ConnectionId,
    ) {
        let (Some(client), Some(info)) = (self.clients.get_mut(&id), driver.tcp_info(id)) else {
            self.under_way.remove(&id);
            return;
        };
        let before = client.course.window();
        let window = client.course.note(&info);
        if window != before {
            self.windows.push((client.flow, window));
        }
        let acknowledged = info.acked_bytes;
        acknowledge(
            &mut self.redirector,
            &self.catcher,
            client.caught,
            acknowledged,
        );
        // The gateway sends by itself, and without a detour.
        if window != Window::Wide && !self.redirector.has_extents(client.caught) {
            client.lead_no_more(driver, id, &mut self.catcher);
        }
        if let Some(ending) = &mut client.ending {
            let is_given = client.waiting.is_empty() && driver.queued_bytes(id) == 0;
            if is_given && let Some(socket) = driver.socket(id) {
                ending.shut(socket);
            }
            let goes_on = ending.goes_on(now, acknowledged);
            if is_given && !self.redirector.is_under_way(client.caught) {
                // It has been led already if it had to be.
                let _ = self.guard(driver, id);
                driver.close(id);
                self.under_way.remove(&id);
                return;
            }
            if !goes_on {
                return self.reset(figures, driver, id);
            }
        }
        self.go_on(figures, driver, now, id);
    }
}

/// A client has acknowledged all of its stream before an offset.
fn acknowledge(redirector: &mut Redirector, catcher: &Catcher, caught: CaughtId, offset: u64) {
    let catch_from = redirector.acknowledged(caught, offset);
    catcher.catch_from(caught, catch_from);
}
