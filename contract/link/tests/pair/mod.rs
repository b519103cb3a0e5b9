//! Two links with a simulated network between them: delays, any cuts of the
//! stream, a slow line, a line that is cut.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use crossdock_link::{CallRef, CloseReason, Frame, Link, LinkEffect, LinkInput, Peer};
use crossdock_names::Epoch;
use crossdock_sim::random::Random;
use crossdock_types::{Fill, Time};

/// By which table everything is sent.
const EPOCH: Epoch = Epoch(3);

pub(crate) mod frames;

/// What a link has told its host.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub(crate) enum Told {
    Ready(Peer),
    Frame(Frame),
    Busy(CallRef),
    Lost(CallRef),
    Closed(CloseReason),
}

/// How the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) delay_max: Duration,
    /// Chunks are of up to so many bytes.
    pub(crate) chunk_bytes_max: usize,
    /// Bytes between the hosts at a time.
    pub(crate) flight_bytes_max: usize,
}

pub(crate) const LAN: Network = Network {
    delay_max: Duration::from_micros(300),
    chunk_bytes_max: 100_000,
    flight_bytes_max: 300_000,
};

/// One of the two.
pub(crate) struct Side {
    pub(crate) link: Link,
    pub(crate) told: Vec<Told>,
    /// Given to the socket.
    socket: VecDeque<Bytes>,
    socket_bytes: usize,
    /// On the way from here: when it arrives, and what.
    flight: VecDeque<(Time, Bytes)>,
    flight_bytes: usize,
    fill: Option<(Fill, Vec<u8>)>,
    pub(crate) fills: usize,
    /// Whether the host takes what its link tells.
    pub(crate) takes: bool,
}

pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) sides: [Side; 2],
    pub(crate) network: Network,
    /// Whether bytes get through.
    pub(crate) is_up: bool,
    random: Random,
}

impl Side {
    fn new(link: Link) -> Self {
        Self {
            link,
            told: Vec::new(),
            socket: VecDeque::new(),
            socket_bytes: 0,
            flight: VecDeque::new(),
            flight_bytes: 0,
            fill: None,
            fills: 0,
            takes: true,
        }
    }

    pub(crate) const fn flight_bytes(&self) -> usize {
        self.flight_bytes
    }

    pub(crate) const fn socket_bytes(&self) -> usize {
        self.socket_bytes
    }

    pub(crate) fn frames(&self) -> Vec<Frame> {
        let frames = self.told.iter().filter_map(|told| match told {
            Told::Frame(frame) => Some(frame.clone()),
            _ => None,
        });
        frames.collect()
    }

    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        match self.told.last() {
            Some(Told::Closed(reason)) => Some(reason),
            _ => None,
        }
    }
}

impl Pair {
    pub(crate) fn new(seed: u64, connects: Link, accepts: Link) -> Self {
        let mut pair = Self {
            now: Time::from_secs(100),
            sides: [Side::new(connects), Side::new(accepts)],
            network: LAN,
            is_up: true,
            random: Random::new(seed),
        };
        for side in 0..2 {
            pair.give(side, LinkInput::Timeout);
        }
        pair
    }

    /// Gives a link an input, and does what it wants.
    pub(crate) fn give(&mut self, side: usize, input: LinkInput) {
        self.sides[side].link.handle(self.now, input);
        self.take(side);
    }

    pub(crate) fn send(&mut self, side: usize, frame: Frame) {
        self.give(side, LinkInput::Send(frame.by(EPOCH)));
    }

    /// Takes what a link tells.
    pub(crate) fn take(&mut self, index: usize) {
        let side = &mut self.sides[index];
        while side.takes {
            let Some(effect) = side.link.poll_effect() else {
                break;
            };
            side.told.push(match effect {
                LinkEffect::Transmit(pieces) => {
                    side.socket_bytes += pieces.iter().map(Bytes::len).sum::<usize>();
                    side.socket.extend(pieces);
                    let queued_bytes = side.socket_bytes();
                    side.link.handle(self.now, LinkInput::Sent { queued_bytes });
                    continue;
                }
                LinkEffect::Fill(fill) => {
                    side.fills += 1;
                    let beginning = fill.head.to_vec();
                    side.fill = Some((fill, beginning));
                    continue;
                }
                LinkEffect::Asked(_) => panic!("asked without being told to"),
                LinkEffect::Ready(peer) => Told::Ready(peer),
                LinkEffect::Frame(sent) => Told::Frame(sent.frame),
                LinkEffect::Busy(call) => Told::Busy(call),
                LinkEffect::Lost(call) => Told::Lost(call),
                LinkEffect::Close(reason) => Told::Closed(reason),
            });
        }
        self.depart(index);
    }

    /// Sends off what the network takes.
    fn depart(&mut self, index: usize) {
        let side = &mut self.sides[index];
        let before = side.socket.len();
        while side.flight_bytes < self.network.flight_bytes_max {
            let Some(piece) = side.socket.front_mut() else {
                break;
            };
            let most = u64::try_from(self.network.chunk_bytes_max).expect("small");
            let length = usize::try_from(self.random.between(1, most)).expect("small");
            let chunk = piece.split_to(length.min(piece.len()));
            if piece.is_empty() {
                side.socket.pop_front();
            }
            side.socket_bytes -= chunk.len();
            let delay_ns = u64::try_from(self.network.delay_max.as_nanos()).expect("short");
            let delay = Duration::from_nanos(self.random.between(0, delay_ns));
            let last = side.flight.back().map_or(self.now, |(at, _)| *at);
            let arrival = last.max(self.now + delay);
            if self.is_up {
                side.flight_bytes += chunk.len();
                side.flight.push_back((arrival, chunk));
            }
        }
        if before > 0 {
            let queued_bytes = side.socket_bytes();
            side.link.handle(self.now, LinkInput::Sent { queued_bytes });
            if side.takes && queued_bytes == 0 && side.link.queued_bytes() > 0 {
                self.take(index);
            }
        }
    }

    /// Lets time pass until something happens, at most until `until`: whether
    /// anything has.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let arrivals = self.sides.iter().filter_map(|side| side.flight.front());
        let timeouts = self
            .sides
            .iter()
            .filter_map(|side| side.link.poll_timeout());
        let next = arrivals.map(|(at, _)| *at).chain(timeouts).min();
        let Some(next) = next.filter(|at| *at <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        for index in 0..2 {
            let due = self.sides[index]
                .flight
                .pop_front_if(|(at, _)| *at <= self.now);
            if let Some((_, chunk)) = due {
                self.sides[index].flight_bytes -= chunk.len();
                self.arrive(1 - index, chunk);
                self.take(index);
            }
            let timeout = self.sides[index].link.poll_timeout();
            if timeout.is_some_and(|at| at <= self.now) {
                self.give(index, LinkInput::Timeout);
            }
        }
        true
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    fn arrive(&mut self, index: usize, mut chunk: Bytes) {
        if let Some((fill, mut filled)) = self.sides[index].fill.take() {
            let length = fill.head.len() + fill.missing_bytes;
            let part = chunk.split_to(chunk.len().min(length - filled.len()));
            filled.extend_from_slice(&part);
            if filled.len() < length {
                self.sides[index].fill = Some((fill, filled));
            } else {
                self.give(index, LinkInput::Filled(filled.into()));
            }
        }
        if !chunk.is_empty() {
            self.give(index, LinkInput::Received(chunk));
        }
    }

    /// The line is dead: what is on it is lost.
    pub(crate) fn cut(&mut self) {
        self.is_up = false;
        for side in &mut self.sides {
            side.flight.clear();
            side.flight_bytes = 0;
        }
    }
}
