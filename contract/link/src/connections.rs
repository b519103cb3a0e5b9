//! Which link leads to which host: one at a time, the newest.
//!
//! Both hosts may connect. Each connection between two hosts has a number above
//! all earlier ones; of two with the same number that of the host with the higher
//! id is the newer one. Who accepts a newer connection closes the older one first:
//! what may still arrive over that is dropped, so nothing that was sent before a
//! reconnect ever comes after what was sent behind it (history `late-write`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::{LINK_HANDSHAKES_MAX, LINK_PEERS_MAX};
use crossdock_names::{Epoch, HostId};
use crossdock_types::{Fill, Time};

use crate::calls::CallKey;
use crate::{
    CallRef, CloseReason, Identity, Link, LinkConfig, LinkEffect, LinkInput, Peer, Refusal,
    RefusalKind, Stamped,
};

/// A connection, as shell and machine call it. Never used for another one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How a host deals with others.
#[derive(Clone, Debug)]
pub struct ConnectionsConfig {
    /// What it says of itself, and how patient it is.
    pub link: LinkConfig,
    /// For the jitter of the pauses.
    pub seed: u64,
    /// Pause before the second attempt to connect; each is twice as long as the
    /// one before.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl ConnectionsConfig {
    /// With the usual pauses.
    #[must_use]
    pub const fn new(link: LinkConfig, seed: u64) -> Self {
        Self {
            link,
            seed,
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
        }
    }
}

/// What happens to a host's connections. Inputs about a link that has ended do
/// nothing.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub enum ConnectionsInput {
    /// From now on there is to be a connection to that host.
    Connect(HostId),
    /// No more; the one that is there ends.
    Forget(HostId),
    /// The stream that [`ConnectionsEffect::Dial`] wanted is connected.
    Opened(LinkId),
    /// What the other host's certificate says: see [`LinkInput::Certified`].
    Certified(LinkId, Identity),
    /// The next bytes of a stream.
    Received(LinkId, Bytes),
    /// What [`ConnectionsEffect::Fill`] has asked for.
    Filled(LinkId, Bytes),
    /// So many bytes lie at the socket: see [`LinkInput::Sent`].
    Sent {
        /// Of which stream.
        link: LinkId,
        /// How many bytes.
        queued_bytes: usize,
    },
    /// A stream has ended, or could not be connected.
    Closed(LinkId),
    /// A frame for a host.
    Send(HostId, Stamped),
    /// The routing table has a new epoch.
    Table(Epoch),
    /// The time of [`Connections::poll_timeout`], or any other.
    Timeout,
}

/// What a host's connections want done.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub enum ConnectionsEffect {
    /// A stream is to be connected to that host:
    /// [`ConnectionsInput::Opened`] or [`ConnectionsInput::Closed`] follows.
    Dial {
        /// Its name from now on.
        link: LinkId,
        /// Whose address to connect to.
        peer: HostId,
    },
    /// Pieces for a stream, in order.
    Transmit(LinkId, Vec<Bytes>),
    /// The rest of a payload is to be received right behind its beginning.
    Fill(LinkId, Fill),
    /// A link has ended; its stream is to be closed, at once unless the reason
    /// [flushes](CloseReason::flushes).
    Close {
        /// Which.
        link: LinkId,
        /// To or from whom, as far as that is known.
        peer: Option<HostId>,
        /// To be logged.
        reason: CloseReason,
    },
    /// That host can be talked to.
    Ready(Peer),
    /// For a part of this host. To take it opens the window for the next.
    Frame {
        /// From which host.
        from: HostId,
        /// What.
        sent: Stamped,
    },
    /// A call that was not sent: there is no room.
    Busy {
        /// To which host.
        peer: HostId,
        /// Which.
        call: CallRef,
    },
    /// A call that gets no answer; it may have been carried out, or may still be.
    Lost {
        /// From which host.
        peer: HostId,
        /// Which.
        call: CallRef,
    },
    /// That host cannot be talked to any more. Its calls of nodes have been
    /// cancelled by frames before this.
    Gone {
        /// Which.
        peer: HostId,
    },
}

/// The machine of all connections of one host.
#[derive(Debug)]
pub struct Connections {
    config: ConnectionsConfig,
    now: Time,
    links: BTreeMap<LinkId, Entry>,
    peers: BTreeMap<HostId, State>,
    next_link: u64,
    chance: u64,
    effects: VecDeque<ConnectionsEffect>,
    /// Links that may have effects.
    busy: VecDeque<LinkId>,
}

#[derive(Debug)]
struct Entry {
    link: Link,
    peer: Option<HostId>,
    /// Its number, and who has connected: which of two is newer.
    number: Number,
    /// Whether the stream is connected.
    is_open: bool,
    is_ready: bool,
    is_busy: bool,
    /// Transmitted before the stream was connected: a greeting at most.
    held: Vec<Vec<Bytes>>,
}

type Number = (u64, HostId);

/// What is known of a host.
#[derive(Debug, Default)]
struct State {
    /// Whether this host connects to it.
    is_wanted: bool,
    link: Option<LinkId>,
    /// The newest connection that both had agreed on.
    newest: Number,
    /// The highest number that was ever used.
    highest: u64,
    attempts: u32,
    retry_at: Option<Time>,
    seen_at: Time,
}

impl Connections {
    /// Without any connection.
    #[must_use]
    pub const fn new(config: ConnectionsConfig) -> Self {
        let chance = config.seed;
        Self {
            config,
            now: Time(0),
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            next_link: 0,
            chance,
            effects: VecDeque::new(),
            busy: VecDeque::new(),
        }
    }

    /// Somebody has connected: the stream's name from now on.
    pub fn accept(&mut self, now: Time) -> LinkId {
        self.now = self.now.max(now);
        let strangers = self.links.values().filter(|entry| entry.peer.is_none());
        let is_full = strangers.count() >= LINK_HANDSHAKES_MAX;
        let mut config = self.config.link.clone();
        config.asks = true;
        let id = self.add(Link::accept(config), None, Number::default(), true);
        let input = match is_full {
            true => LinkInput::Refuse(full("unknown hosts that connect")),
            false => LinkInput::Timeout,
        };
        self.give(id, input);
        id
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: ConnectionsInput) {
        self.now = self.now.max(now);
        match input {
            ConnectionsInput::Connect(host) => self.want(host),
            ConnectionsInput::Forget(host) => self.forget(host),
            ConnectionsInput::Opened(id) => self.opened(id),
            ConnectionsInput::Certified(id, identity) => {
                self.give(id, LinkInput::Certified(identity));
            }
            ConnectionsInput::Received(id, chunk) => self.give(id, LinkInput::Received(chunk)),
            ConnectionsInput::Filled(id, payload) => self.give(id, LinkInput::Filled(payload)),
            ConnectionsInput::Sent { link, queued_bytes } => {
                self.give(link, LinkInput::Sent { queued_bytes });
            }
            ConnectionsInput::Closed(id) => self.give(id, LinkInput::Closed),
            ConnectionsInput::Send(host, sent) => self.send(host, sent),
            ConnectionsInput::Table(epoch) => self.config.link.table_epoch = epoch,
            ConnectionsInput::Timeout => self.handle_timeout(),
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<ConnectionsEffect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            let id = *self.busy.front()?;
            if !self.translate_next(id) {
                self.busy.pop_front();
                if let Some(entry) = self.links.get_mut(&id) {
                    entry.is_busy = false;
                }
            }
        }
    }

    /// When [`ConnectionsInput::Timeout`] is wanted at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let links = self.links.values();
        let links = links.filter_map(|entry| entry.link.poll_timeout());
        let pauses = self.peers.values().filter_map(|state| state.retry_at);
        links.chain(pauses).min()
    }

    /// The hosts that can be talked to.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        let ready = self.links.values().filter(|entry| entry.is_ready);
        ready.filter_map(|entry| entry.link.peer())
    }

    fn add(&mut self, link: Link, peer: Option<HostId>, number: Number, is_open: bool) -> LinkId {
        let id = LinkId(self.next_link);
        self.next_link += 1;
        let entry = Entry {
            link,
            peer,
            number,
            is_open,
            is_ready: false,
            is_busy: false,
            held: Vec::new(),
        };
        self.links.insert(id, entry);
        id
    }

    fn give(&mut self, id: LinkId, input: LinkInput) {
        let Some(entry) = self.links.get_mut(&id) else {
            return; // It has ended: what comes late is dropped.
        };
        entry.link.handle(self.now, input);
        if !std::mem::replace(&mut entry.is_busy, true) {
            self.busy.push_back(id);
        }
    }

    fn send(&mut self, host: HostId, sent: Stamped) {
        let link = self.peers.get(&host).and_then(|state| state.link);
        match (link, CallKey::of_call(&sent.frame)) {
            (Some(id), _) => self.give(id, LinkInput::Send(sent)),
            (None, Some((key, to))) => self.effects.push_back(ConnectionsEffect::Lost {
                peer: host,
                call: key.call(to),
            }),
            // Whom it would have mattered to is told that the link has ended.
            (None, None) => {}
        }
    }
}

/// Connecting.
impl Connections {
    fn want(&mut self, host: HostId) {
        let state = self.peers.entry(host).or_default();
        state.is_wanted = true;
        if state.link.is_none() && state.retry_at.is_none() {
            self.dial(host);
        }
    }

    fn forget(&mut self, host: HostId) {
        let Some(state) = self.peers.get_mut(&host) else {
            return;
        };
        state.is_wanted = false;
        state.retry_at = None;
        if let Some(id) = state.link {
            self.give(id, LinkInput::Close(CloseReason::Unwanted));
        }
    }

    fn dial(&mut self, host: HostId) {
        let ours = self.config.link.host;
        let state = self.peers.entry(host).or_default();
        state.retry_at = None;
        state.highest = state.highest.saturating_add(1);
        let number = (state.highest, ours);
        let mut config = self.config.link.clone();
        config.connection = state.highest;
        config.expected = Some(host);
        let id = self.add(Link::connect(config), Some(host), number, false);
        if let Some(state) = self.peers.get_mut(&host) {
            state.link = Some(id);
        }
        self.effects.push_back(ConnectionsEffect::Dial {
            link: id,
            peer: host,
        });
        // The patience for the handshake is that for connecting, too.
        self.give(id, LinkInput::Timeout);
    }

    fn opened(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(&id) else {
            return;
        };
        entry.is_open = true;
        for pieces in std::mem::take(&mut entry.held) {
            self.effects
                .push_back(ConnectionsEffect::Transmit(id, pieces));
        }
        self.give(id, LinkInput::Timeout);
    }

    fn handle_timeout(&mut self) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
        let links = self.links.iter();
        let links: Vec<LinkId> = links
            .filter(|(_, entry)| is_due(entry.link.poll_timeout()))
            .map(|(id, _)| *id)
            .collect();
        let peers = self.peers.iter();
        let hosts: Vec<HostId> = peers
            .filter(|(_, state)| is_due(state.retry_at))
            .map(|(host, _)| *host)
            .collect();
        for id in links {
            self.give(id, LinkInput::Timeout);
        }
        for host in hosts {
            self.dial(host);
        }
    }

    /// How long to wait before the next attempt: longer each time, and never all
    /// at the same time.
    fn pause(&mut self, attempts: u32) -> Duration {
        let doubled = self.config.pause_min * (1 << attempts.min(16));
        let longest = doubled.min(self.config.pause_max);
        let half_ms = u64::try_from(longest.as_millis() / 2).unwrap_or(u64::MAX);
        // SplitMix64.
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        Duration::from_millis(half_ms + mixed % half_ms.saturating_add(1))
    }
}

/// What links want.
impl Connections {
    /// Turns the next effect of a link into ours; `false` if it has none.
    fn translate_next(&mut self, id: LinkId) -> bool {
        let Some(entry) = self.links.get_mut(&id) else {
            return false;
        };
        let Some(effect) = entry.link.poll_effect() else {
            return false;
        };
        let peer = entry.peer;
        match (effect, peer) {
            (LinkEffect::Transmit(pieces), _) if !entry.is_open => entry.held.push(pieces),
            (LinkEffect::Transmit(pieces), _) => {
                self.effects
                    .push_back(ConnectionsEffect::Transmit(id, pieces));
            }
            (LinkEffect::Fill(fill), _) => {
                self.effects.push_back(ConnectionsEffect::Fill(id, fill));
            }
            (LinkEffect::Asked(peer), _) => self.decide(id, &peer),
            (LinkEffect::Ready(peer), _) => self.ready(id, peer),
            (LinkEffect::Close(reason), _) => self.ended(id, reason),
            (LinkEffect::Frame(sent), Some(from)) => {
                self.effects
                    .push_back(ConnectionsEffect::Frame { from, sent });
            }
            (LinkEffect::Busy(call), Some(peer)) => {
                self.effects
                    .push_back(ConnectionsEffect::Busy { peer, call });
            }
            (LinkEffect::Lost(call), Some(peer)) => {
                self.effects
                    .push_back(ConnectionsEffect::Lost { peer, call });
            }
            // Nobody talks over a link before it is known to whom.
            (LinkEffect::Frame(_) | LinkEffect::Busy(_) | LinkEffect::Lost(_), None) => {}
        }
        true
    }

    /// A host wants in: it may if its connection is newer than the one there is.
    fn decide(&mut self, id: LinkId, peer: &Peer) {
        let host = peer.host;
        self.make_room();
        if self.peers.len() >= LINK_PEERS_MAX && !self.peers.contains_key(&host) {
            return self.give(id, LinkInput::Refuse(full("hosts")));
        }
        let number = (peer.connection, host);
        let state = self.peers.entry(host).or_default();
        let older = state.link;
        // The other host may have seen our greeting as soon as the stream was
        // connected; then both have to come to the same result.
        let greeted = older.and_then(|older| self.links.get(&older));
        let greeted = greeted.filter(|entry| entry.is_open);
        let newest = greeted.map_or(state.newest, |entry| entry.number.max(state.newest));
        state.highest = state.highest.max(peer.connection);
        if number <= newest {
            let mut refusal = Refusal::new(
                RefusalKind::Superseded,
                format!(
                    "connection {} of host {} is not newer than connection {} of host {}",
                    number.0, number.1, newest.0, newest.1
                ),
            );
            refusal.connection = newest.0;
            return self.give(id, LinkInput::Refuse(refusal));
        }
        (state.newest, state.retry_at) = (number, None);
        if let Some(older) = older {
            self.give(older, LinkInput::Close(CloseReason::Superseded));
            // All of it goes before anything of the newer one.
            while self.translate_next(older) {}
        }
        if let Some(state) = self.peers.get_mut(&host) {
            (state.link, state.retry_at) = (Some(id), None);
        }
        if let Some(entry) = self.links.get_mut(&id) {
            (entry.peer, entry.number) = (Some(host), number);
        }
        self.give(id, LinkInput::Admit);
    }

    fn ready(&mut self, id: LinkId, peer: Peer) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.is_ready = true;
            let state = self.peers.entry(peer.host).or_default();
            state.newest = state.newest.max(entry.number);
            state.attempts = 0;
        }
        self.effects.push_back(ConnectionsEffect::Ready(peer));
    }

    fn ended(&mut self, id: LinkId, reason: CloseReason) {
        let Some(entry) = self.links.remove(&id) else {
            return;
        };
        let mut wait = None;
        if let Some(host) = entry.peer {
            let state = self.peers.entry(host).or_default();
            state.seen_at = self.now;
            if let CloseReason::RefusedByPeer(refusal) = &reason {
                state.highest = state.highest.max(refusal.connection);
            }
            if state.link == Some(id) {
                state.link = None;
                let attempts = state.attempts;
                state.attempts = attempts.saturating_add(1);
                wait = state.is_wanted.then_some((host, attempts));
            }
        }
        if let Some((host, attempts)) = wait {
            let attempts = if is_hopeless(&reason) {
                u32::MAX
            } else {
                attempts
            };
            let retry_at = self.now + self.pause(attempts);
            if let Some(state) = self.peers.get_mut(&host) {
                state.retry_at = Some(retry_at);
            }
        }
        self.effects.push_back(ConnectionsEffect::Close {
            link: id,
            peer: entry.peer,
            reason,
        });
        if let Some(peer) = entry.peer.filter(|_| entry.is_ready) {
            self.effects.push_back(ConnectionsEffect::Gone { peer });
        }
    }

    /// Forgets the host that was not seen for the longest time, if there are too
    /// many.
    fn make_room(&mut self) {
        if self.peers.len() < LINK_PEERS_MAX {
            return;
        }
        let peers = self.peers.iter();
        let idle = peers.filter(|(_, state)| state.link.is_none() && !state.is_wanted);
        let oldest = idle.min_by_key(|(_, state)| state.seen_at);
        if let Some(host) = oldest.map(|(host, _)| *host) {
            self.peers.remove(&host);
        }
    }
}

/// Whether a quick second attempt would end like the first.
fn is_hopeless(reason: &CloseReason) -> bool {
    let (CloseReason::Refused(refusal) | CloseReason::RefusedByPeer(refusal)) = reason else {
        return false;
    };
    !matches!(refusal.kind(), RefusalKind::Superseded | RefusalKind::Other)
}

fn full(of_what: &str) -> Refusal {
    Refusal::new(RefusalKind::Full, format!("too many {of_what}"))
}
