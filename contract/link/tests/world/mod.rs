//! Hosts with streams between them, under simulated time: streams take their
//! time to connect, bytes theirs to arrive, any stream may be cut on one side or
//! both, and what was on its way over a closed stream still arrives later.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_link::{
    CallRef, CloseReason, Connections, ConnectionsConfig, ConnectionsEffect, ConnectionsInput,
    Frame, LinkConfig, LinkId, Role, Target,
};
use crossdock_names::{Epoch, FileId, HostId, Incarnation, NodeId, ObjectId};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeReply, NodeRequest, Port};
use crossdock_sim::random::Random;
use crossdock_types::Time;

/// By which table everything is sent.
const EPOCH: Epoch = Epoch(3);

const ENSEMBLE: u64 = 5;

/// A host, its calls, and what came of them.
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) connections: Connections,
    pub(crate) next_call: u64,
    /// Calls without answer yet, to whom.
    pub(crate) waiting: BTreeMap<u64, HostId>,
    pub(crate) answered: usize,
    pub(crate) lost: usize,
    /// Who can be talked to.
    pub(crate) ready: Vec<HostId>,
    /// Of each other host the number of its last call.
    pub(crate) last_call: BTreeMap<HostId, u64>,
    pub(crate) cancelled: usize,
    pub(crate) closed: Vec<CloseReason>,
    /// Its ends of streams.
    ends: BTreeMap<LinkId, (usize, usize)>,
}

/// A stream between two hosts; side 0 has connected.
struct Stream {
    hosts: [usize; 2],
    links: [Option<LinkId>; 2],
    /// On the way to each side: bytes, or the end.
    flights: [VecDeque<(Time, Option<Bytes>)>; 2],
    /// When the connection is made.
    opens_at: Option<Time>,
    /// Whether bytes of that side still get through.
    is_up: [bool; 2],
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    streams: Vec<Stream>,
    pub(crate) random: Random,
    /// Whether new connections come about.
    pub(crate) connects: bool,
    pub(crate) delay_max: Duration,
}

impl World {
    pub(crate) fn new(seed: u64, hosts: u64) -> Self {
        let host = |number: u64| {
            let id = HostId(number + 1);
            let link = LinkConfig::new(ENSEMBLE, id, Role::All);
            Host {
                id,
                connections: Connections::new(ConnectionsConfig::new(link, seed + number)),
                next_call: 0,
                waiting: BTreeMap::new(),
                answered: 0,
                lost: 0,
                ready: Vec::new(),
                last_call: BTreeMap::new(),
                cancelled: 0,
                closed: Vec::new(),
                ends: BTreeMap::new(),
            }
        };
        Self {
            now: Time::from_secs(10),
            hosts: (0..hosts).map(host).collect(),
            streams: Vec::new(),
            random: Random::new(seed),
            connects: true,
            delay_max: Duration::from_millis(5),
        }
    }

    pub(crate) fn give(&mut self, host: usize, input: ConnectionsInput) {
        self.hosts[host].connections.handle(self.now, input);
        self.take(host);
    }

    /// A call from one host to another.
    pub(crate) fn call(&mut self, from: usize, to: usize) -> u64 {
        let peer = self.hosts[to].id;
        let host = &mut self.hosts[from];
        host.next_call += 1;
        let id = host.next_call;
        host.waiting.insert(id, peer);
        let call = Call {
            id: CallId(id),
            deadline: self.now + Duration::from_secs(3600),
            request: NodeRequest::Commit {
                object: ObjectId::column(FileId(id), 1, 0, 0),
                incarnation: Incarnation(1),
            },
        };
        let frame = Frame::NodeCall {
            from: Port::Router,
            to: NodeId(peer.0),
            call,
            capability: None,
            flow: None,
        };
        self.give(from, ConnectionsInput::Send(peer, frame.by(EPOCH)));
        id
    }

    fn take(&mut self, index: usize) {
        while let Some(effect) = self.hosts[index].connections.poll_effect() {
            match effect {
                ConnectionsEffect::Dial { link, peer } => self.dial(index, link, peer),
                ConnectionsEffect::Transmit(link, pieces) => {
                    for piece in pieces {
                        self.depart(index, link, Some(piece));
                    }
                    let sent = ConnectionsInput::Sent {
                        link,
                        queued_bytes: 0,
                    };
                    self.hosts[index].connections.handle(self.now, sent);
                }
                ConnectionsEffect::Fill(..) => panic!("nobody has asked for it"),
                ConnectionsEffect::Close { link, reason, .. } => {
                    self.depart(index, link, None);
                    self.hosts[index].ends.remove(&link);
                    self.hosts[index].closed.push(reason);
                }
                ConnectionsEffect::Ready(peer) => {
                    assert!(!self.hosts[index].ready.contains(&peer.host), "ready twice");
                    self.hosts[index].ready.push(peer.host);
                }
                ConnectionsEffect::Gone { peer } => {
                    let ready = &mut self.hosts[index].ready;
                    let count = ready.len();
                    ready.retain(|host| *host != peer);
                    assert_eq!(ready.len() + 1, count, "gone without being there");
                }
                ConnectionsEffect::Frame { from, sent } => self.frame(index, from, sent.frame),
                ConnectionsEffect::Busy { call, .. } => panic!("busy: {call:?}"),
                ConnectionsEffect::Lost { peer, call } => self.lost(index, peer, call),
            }
        }
    }

    fn frame(&mut self, index: usize, from: HostId, frame: Frame) {
        let host = &mut self.hosts[index];
        match frame {
            Frame::NodeCall {
                from: port,
                to,
                call,
                ..
            } => {
                // Nothing comes behind what was sent later: no zombie speaks.
                let last = host.last_call.insert(from, call.id.0);
                assert!(last < Some(call.id.0), "{last:?} before {}", call.id.0);
                let reply = NodeReply {
                    id: call.id,
                    outcome: Ok(NodeAnswer::Committed),
                };
                let (from_node, to_port) = (to, port);
                let frame = Frame::NodeReply {
                    from: from_node,
                    to: to_port,
                    reply,
                };
                // Some take their time, some are never done.
                if !self.random.one_in(10) {
                    self.give(index, ConnectionsInput::Send(from, frame.by(EPOCH)));
                }
            }
            Frame::NodeReply { reply, .. } => {
                let peer = host.waiting.remove(&reply.id.0);
                assert_eq!(peer, Some(from), "an answer that nobody waits for");
                host.answered += 1;
            }
            Frame::CancelNode { .. } => host.cancelled += 1,
            other => panic!("{other:?}"),
        }
    }

    fn lost(&mut self, index: usize, peer: HostId, call: CallRef) {
        let host = &mut self.hosts[index];
        assert_eq!(call.to, Target::Node(NodeId(peer.0)));
        assert_eq!(host.waiting.remove(&call.id.0), Some(peer), "lost twice");
        host.lost += 1;
    }

    fn delay(&mut self) -> Duration {
        let most = u64::try_from(self.delay_max.as_nanos()).expect("short");
        Duration::from_nanos(self.random.between(0, most))
    }

    fn dial(&mut self, from: usize, link: LinkId, peer: HostId) {
        let to = self.hosts.iter().position(|host| host.id == peer);
        let Some(to) = to.filter(|_| self.connects) else {
            // Handled with the next timeouts: a shell does not call back.
            self.streams.push(Stream::nowhere(from, link));
            self.hosts[from]
                .ends
                .insert(link, (self.streams.len() - 1, 0));
            return;
        };
        let opens_at = self.now + self.delay();
        self.hosts[from].ends.insert(link, (self.streams.len(), 0));
        self.streams.push(Stream {
            hosts: [from, to],
            links: [Some(link), None],
            flights: Default::default(),
            opens_at: Some(opens_at),
            is_up: [true; 2],
        });
    }

    fn depart(&mut self, host: usize, link: LinkId, what: Option<Bytes>) {
        let Some(&(stream, side)) = self.hosts[host].ends.get(&link) else {
            return;
        };
        let delay = self.delay();
        let stream = &mut self.streams[stream];
        if what.is_none() {
            stream.links[side] = None;
            stream.opens_at = None;
        }
        let flight = &mut stream.flights[1 - side];
        let last = flight.back().map_or(self.now, |(at, _)| *at);
        if stream.is_up[side] {
            flight.push_back((last.max(self.now + delay), what));
        }
    }

    /// Cuts a stream, in one direction or both; what is on its way arrives later.
    pub(crate) fn cut_one(&mut self) {
        let live = self.streams.iter_mut();
        let mut live: Vec<&mut Stream> = live
            .filter(|stream| stream.links.iter().all(Option::is_some))
            .collect();
        if live.is_empty() {
            return;
        }
        let which = self.random.index(live.len());
        let stream = &mut live[which];
        match self.random.below(3) {
            0 => stream.is_up[0] = false,
            1 => stream.is_up[1] = false,
            _ => stream.is_up = [false; 2],
        }
        for flight in &mut stream.flights {
            let later = Duration::from_millis(self.random.between(0, 8000));
            for (at, _) in flight {
                *at = *at + later;
            }
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    fn step(&mut self, until: Time) -> bool {
        let opens = self.streams.iter().filter_map(|stream| stream.opens_at);
        let flights = self.streams.iter().flat_map(|stream| &stream.flights);
        let arrivals = flights.filter_map(|flight| flight.front().map(|(at, _)| *at));
        let hosts = self.hosts.iter();
        let timeouts = hosts.filter_map(|host| host.connections.poll_timeout());
        let next = opens.chain(arrivals).chain(timeouts).min();
        let Some(next) = next.filter(|at| *at <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        for stream in 0..self.streams.len() {
            self.advance(stream);
        }
        for host in 0..self.hosts.len() {
            let timeout = self.hosts[host].connections.poll_timeout();
            if timeout.is_some_and(|at| at <= self.now) {
                self.give(host, ConnectionsInput::Timeout);
            }
        }
        true
    }

    fn advance(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if stream.opens_at.is_some_and(|at| at <= self.now) {
            stream.opens_at = None;
            let [from, to] = stream.hosts;
            if let Some(link) = stream.links[0] {
                let accepted = self.hosts[to].connections.accept(self.now);
                self.streams[index].links[1] = Some(accepted);
                self.hosts[to].ends.insert(accepted, (index, 1));
                self.take(to);
                self.give(from, ConnectionsInput::Opened(link));
            }
        }
        for side in 0..2 {
            let stream = &mut self.streams[index];
            let due = stream.flights[side].pop_front_if(|(at, _)| *at <= self.now);
            let (Some((_, what)), Some(link)) = (due, stream.links[side]) else {
                continue;
            };
            let host = stream.hosts[side];
            let input = match what {
                Some(bytes) => ConnectionsInput::Received(link, bytes),
                None => ConnectionsInput::Closed(link),
            };
            self.give(host, input);
        }
    }

    /// Streams that are connected on both sides, between two hosts.
    pub(crate) fn streams_between(&self, one: usize, other: usize) -> usize {
        let both = |stream: &&Stream| {
            let mut hosts = stream.hosts;
            hosts.sort_unstable();
            hosts == [one, other] && stream.links.iter().all(Option::is_some)
        };
        self.streams.iter().filter(both).count()
    }
}

impl Stream {
    /// It is refused at once.
    fn nowhere(from: usize, link: LinkId) -> Self {
        let mut flights: [VecDeque<_>; 2] = Default::default();
        flights[0].push_back((Time::default(), None));
        Self {
            hosts: [from, from],
            links: [Some(link), None],
            flights,
            opens_at: None,
            is_up: [false; 2],
        }
    }
}
