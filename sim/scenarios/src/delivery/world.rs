//! The door, the network, the node, and time.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_delivery::{Decision, Delivery, End, StreamClass, StreamId};
use crossdock_disk::DiskToken;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::connection::Connection;
use super::node::{Node, Read};
use super::{Plan, StreamPlan};

/// After a reset nothing may be issued for the connection later than this.
const DEAD_ISSUE_MAX: Duration = Duration::from_millis(10);

/// A message between door and node takes up to this.
const MESSAGE_MICROS_MAX: u64 = 1000;

/// A node tells about its disk this often.
const REPORT: Duration = Duration::from_millis(250);

/// A stream without anything asks within T_D and this, while there is memory.
const SLACK: Duration = Duration::from_millis(200);

/// A node's disk takes no read for more urgent than this.
const NODE_PATIENCE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
enum Event {
    Open(usize),
    Reset(StreamId),
    Finish(StreamId),
    Stall(StreamId, bool),
    Congest(StreamId, bool),
    /// The connection moves by itself.
    Step(StreamId),
    /// A decision has come to the node; a request with its place and deadline.
    AtNode(Decision, u64, Time),
    DiskDone(DiskToken),
    /// A block, or the news that there is none, has come to the door.
    AtDoor(Read, bool),
    /// What was put off returns.
    Returns,
    Report,
}

/// The door's side of a stream.
struct Door {
    class: StreamClass,
    total_bytes: u64,
    asked_bytes: u64,
    requested_bytes: u64,
    arrived: BTreeMap<u64, u64>,
    handed_bytes: u64,
    connection: Connection,
    is_stepping: bool,
    dry_since: Option<Time>,
    /// Its peer has sent FIN: it may have lost its place in the line.
    is_finished: bool,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) trace_hash: u64,
    pub(super) resets: u64,
    pub(super) history: Vec<String>,
    is_history: bool,
    plans: Vec<StreamPlan>,
    delivery: Delivery,
    memory_bytes: u64,
    request_bytes_max: u64,
    term_max: Duration,
    doors: BTreeMap<StreamId, Door>,
    died: BTreeMap<StreamId, Time>,
    unopened: usize,
    /// Bytes that clients of ended streams have got.
    received_bytes: u64,
    node: Node,
    random: Random,
    /// Messages do not overtake each other.
    wire_until: Time,
    events: BTreeMap<(Time, u64), Event>,
    sequence: u64,
}

impl World {
    pub(super) fn new(plan: &Plan, mut random: Random, is_history: bool) -> Self {
        let mut world = Self {
            now: Time::default(),
            trace_hash: 0,
            resets: 0,
            history: Vec::new(),
            is_history,
            plans: plan.streams.clone(),
            delivery: Delivery::new(plan.config),
            memory_bytes: plan.config.memory_bytes,
            request_bytes_max: plan.config.request_bytes_max,
            term_max: Duration::ZERO,
            doors: BTreeMap::new(),
            died: BTreeMap::new(),
            unopened: plan.streams.len(),
            received_bytes: 0,
            node: Node::new(plan.arm, random.fork()),
            random,
            wire_until: Time::default(),
            events: BTreeMap::new(),
            sequence: 0,
        };
        // Streams are numbered in the order of their coming.
        world.plans.sort_by_key(|stream| stream.begins);
        let begins: Vec<_> = world.plans.iter().map(|stream| stream.begins).collect();
        for (index, begins) in begins.into_iter().enumerate() {
            world.at(begins, Event::Open(index));
        }
        world.at(Time::default(), Event::Report);
        world
    }

    #[cfg(test)]
    pub(super) const fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// What all clients have got.
    #[cfg(test)]
    pub(super) fn received_bytes(&self) -> u64 {
        let living = self.doors.values();
        self.received_bytes
            + living
                .map(|door| door.connection.received_bytes())
                .sum::<u64>()
    }

    /// Runs until all streams have ended; fails if they have not by `until`.
    pub(super) fn live(&mut self, until: Time) -> Result<(), String> {
        while self.unopened > 0 || !self.doors.is_empty() {
            if self.now > until {
                let who: Vec<_> = self.doors.keys().collect();
                return Err(format!("{who:?} hang"));
            }
            self.step()?;
        }
        let figures = self.delivery.figures();
        match figures.thrown_away_bytes {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes were read and thrown away")),
        }
    }

    /// Runs until `until`.
    #[cfg(test)]
    pub(super) fn pass(&mut self, until: Time) -> Result<(), String> {
        while self.now < until {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let next = self.events.first_key_value().map(|(&(when, _), _)| when);
        let timer = self.delivery.poll_timeout();
        if let Some(timer) = timer.filter(|timer| next.is_none_or(|next| *timer < next)) {
            self.now = self.now.max(timer);
            self.delivery.timeout(self.now);
        } else if let Some(((when, _), event)) = self.events.pop_first() {
            self.now = when;
            self.happen(event)?;
        }
        self.carry_out()?;
        self.work()?;
        self.check()
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Open(index) => self.open(index),
            Event::Reset(stream) => self.reset(stream),
            Event::Finish(stream) => {
                if let Some(door) = self.doors.get_mut(&stream) {
                    door.is_finished = true;
                    self.note(|| format!("{stream:?} is half closed"));
                    self.delivery.close(self.now, stream, End::PeerFinished);
                }
            }
            Event::Stall(stream, is_stalled) => {
                if let Some(door) = self.doors.get_mut(&stream) {
                    door.connection.pass(self.now)?;
                    door.connection.is_stalled = is_stalled;
                }
            }
            Event::Congest(stream, is_congested) => {
                if let Some(door) = self.doors.get_mut(&stream) {
                    door.connection.pass(self.now)?;
                    door.connection.congest(self.now, is_congested);
                }
            }
            Event::Step(stream) => {
                if let Some(door) = self.doors.get_mut(&stream) {
                    door.is_stepping = false;
                }
                self.pump(stream)?;
            }
            Event::AtNode(decision, offset, deadline) => {
                self.at_node(decision, offset, deadline)?;
            }
            Event::DiskDone(token) => {
                if let Some((read, is_well)) = self.node.completed(self.now, token) {
                    self.trace([2, read.stream.0, read.offset]);
                    self.send(Event::AtDoor(read, is_well));
                }
            }
            Event::AtDoor(read, is_well) => self.at_door(read, is_well)?,
            Event::Returns => self.node.expire(self.now)?,
            Event::Report => {
                let profile = self.node.report(REPORT);
                self.delivery.set_disk(0, profile);
                self.at(self.now + REPORT, Event::Report);
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize) {
        self.unopened -= 1;
        let stream = StreamId(index as u64);
        let plan = self.plans[index].clone();
        if plan.total_bytes == 0 {
            return;
        }
        self.note(|| format!("{stream:?} opens: {plan:?}"));
        let door = Door {
            class: plan.class,
            total_bytes: plan.total_bytes,
            asked_bytes: 0,
            requested_bytes: 0,
            arrived: BTreeMap::new(),
            handed_bytes: 0,
            connection: Connection::new(plan.path, self.now),
            is_stepping: false,
            dry_since: None,
            is_finished: false,
        };
        self.doors.insert(stream, door);
        self.delivery
            .open(self.now, stream, plan.total_bytes, plan.class);
        let resets = plan.resets.map(|when| (when, Event::Reset(stream)));
        let finishes = plan.finishes.map(|when| (when, Event::Finish(stream)));
        let stall = plan.stall.map(|span| (span, Event::Stall as fn(_, _) -> _));
        let congestion = plan
            .congestion
            .map(|span| (span, Event::Congest as fn(_, _) -> _));
        let single = resets.into_iter().chain(finishes);
        let spans = stall.into_iter().chain(congestion);
        let spans = spans.flat_map(|((from, until), event)| {
            [(from, event(stream, true)), (until, event(stream, false))]
        });
        for (when, event) in single.chain(spans).collect::<Vec<_>>() {
            self.at(when, event);
        }
    }

    fn reset(&mut self, stream: StreamId) {
        if let Some(door) = self.doors.remove(&stream) {
            self.note(|| format!("{stream:?} is reset"));
            self.resets += 1;
            self.received_bytes += door.connection.received_bytes();
            self.died.insert(stream, self.now);
            self.delivery.close(self.now, stream, End::Reset);
        }
    }

    fn at_door(&mut self, read: Read, is_well: bool) -> Result<(), String> {
        let Read {
            stream,
            offset,
            bytes,
            ..
        } = read;
        let Some(door) = self.doors.get_mut(&stream) else {
            self.delivery.delivered(self.now, stream, bytes);
            return Ok(());
        };
        door.requested_bytes -= bytes;
        if !is_well {
            self.delivery.failed(self.now, stream, bytes);
            self.reset(stream);
            return Ok(());
        }
        if door.arrived.insert(offset, bytes).is_some() {
            return Err(format!("{stream:?} gets byte {offset} twice"));
        }
        self.delivery.delivered(self.now, stream, bytes);
        self.pump(stream)
    }

    /// Lets the connection move, and hands it what is next.
    fn pump(&mut self, stream: StreamId) -> Result<(), String> {
        let now = self.now;
        let Some(door) = self.doors.get_mut(&stream) else {
            return Ok(());
        };
        door.connection.pass(now)?;
        let mut has_sent = false;
        while let Some((offset, bytes)) = door.arrived.pop_first() {
            let part = bytes.min(door.connection.room());
            // Small pieces are not worth a call, but at the end of what there is.
            let is_worth_it = part == bytes || part >= 16 << 10;
            if offset != door.handed_bytes || !is_worth_it {
                door.arrived.insert(offset, bytes);
                break;
            }
            if part < bytes {
                door.arrived.insert(offset + part, bytes - part);
            }
            door.handed_bytes += part;
            door.connection.push(offset, part);
            self.delivery.handed(now, stream, part);
            has_sent = true;
        }
        if has_sent {
            self.delivery.sample(now, stream, door.connection.sample());
        }
        if door.connection.received_bytes() == door.total_bytes {
            self.trace([3, stream.0, 0]);
            self.note(|| format!("{stream:?} is done"));
            if let Some(door) = self.doors.remove(&stream) {
                self.received_bytes += door.total_bytes;
            }
            self.delivery.close(now, stream, End::Done);
        } else if door.connection.is_moving() && !door.is_stepping {
            door.is_stepping = true;
            let step = door.connection.step();
            self.at(now + step, Event::Step(stream));
        }
        Ok(())
    }

    /// The door carries out what delivery decides.
    fn carry_out(&mut self) -> Result<(), String> {
        while let Some(decision) = self.delivery.poll_decision() {
            let stream = decision.stream();
            self.note(|| format!("{decision:?}"));
            match decision {
                Decision::Look { .. } => {
                    if let Some(door) = self.doors.get_mut(&stream) {
                        door.connection.pass(self.now)?;
                        self.delivery
                            .sample(self.now, stream, door.connection.sample());
                    }
                }
                Decision::Request { bytes, .. } => self.request(stream, bytes)?,
                _ => self.send(Event::AtNode(decision, 0, self.now)),
            }
        }
        Ok(())
    }

    fn request(&mut self, stream: StreamId, bytes: u64) -> Result<(), String> {
        self.trace([1, stream.0, bytes]);
        let door = self.doors.get_mut(&stream);
        let door = door.ok_or_else(|| format!("{stream:?} is dead and requests"))?;
        let offset = door.asked_bytes;
        door.asked_bytes += bytes;
        door.requested_bytes += bytes;
        if bytes == 0 || door.asked_bytes > door.total_bytes {
            return Err(format!("{stream:?} requests {bytes} bytes beyond its end"));
        }
        let class = door.class;
        let mut earlier = self.doors.range(..stream);
        let overtaken = earlier.find(|(_, door)| {
            door.class == class && door.asked_bytes == 0 && offset == 0 && !door.is_finished
        });
        if let Some((other, _)) = overtaken {
            return Err(format!("{other:?} waits, and {stream:?} begins"));
        }
        let margin = self.delivery.margin(stream, bytes).unwrap_or_default();
        let deadline = self.now + margin.max(NODE_PATIENCE);
        let decision = Decision::Request { stream, bytes };
        self.send(Event::AtNode(decision, offset, deadline));
        Ok(())
    }

    fn at_node(&mut self, decision: Decision, offset: u64, deadline: Time) -> Result<(), String> {
        match decision {
            Decision::Request { stream, bytes } => {
                self.node.read(self.now, stream, offset, bytes, deadline)
            }
            Decision::Postpone { stream, bytes, by } => {
                self.node.postpone(stream, bytes, self.now + by);
                self.at(self.now + by, Event::Returns);
                Ok(())
            }
            Decision::Resume { stream } => self.node.resume(self.now, stream),
            Decision::Withdraw { stream } => {
                self.node.withdraw(stream);
                Ok(())
            }
            Decision::Look { .. } => Ok(()),
        }
    }

    /// The disk takes what it has room for.
    fn work(&mut self) -> Result<(), String> {
        for read in self.node.issue(self.now) {
            let died = self.died.get(&read.stream);
            let late = died.map(|&died| self.now.since(died));
            let is_heeded = self.delivery.config().switches.edrc;
            if let Some(late) = late.filter(|late| is_heeded && *late > DEAD_ISSUE_MAX) {
                return Err(format!("{read:?} is issued {late:?} after the reset"));
            }
        }
        if let Some((token, time)) = self.node.start() {
            self.at(self.now + time, Event::DiskDone(token));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let ahead = |door: &Door| door.requested_bytes + door.arrived.values().sum::<u64>();
        let used: u64 = self.doors.values().map(ahead).sum();
        let figures = self.delivery.figures();
        if used > self.memory_bytes || figures.memory_used < used {
            return Err(format!("{used} bytes are ahead of {}", self.memory_bytes));
        }
        self.term_max = self.term_max.max(figures.buffering_time);
        let patience = self.term_max + SLACK;
        let has_memory = self.memory_bytes - figures.memory_used >= self.request_bytes_max;
        for (stream, door) in &mut self.doors {
            let is_dry = door.asked_bytes < door.total_bytes
                && ahead(door) + door.connection.unsent_bytes() == 0
                && door.class == StreamClass::Foreground;
            if !is_dry || !has_memory {
                door.dry_since = None;
                continue;
            }
            let since = *door.dry_since.get_or_insert(self.now);
            if self.now.since(since) > patience {
                return Err(format!("{stream:?} starves since {since:?}"));
            }
        }
        Ok(())
    }

    /// A message leaves; it arrives after those before it.
    fn send(&mut self, event: Event) {
        let micros = self.random.between(50, MESSAGE_MICROS_MAX);
        self.wire_until = self
            .wire_until
            .max(self.now + Duration::from_micros(micros));
        self.at(self.wire_until, event);
    }

    fn at(&mut self, when: Time, event: Event) {
        self.sequence += 1;
        self.events
            .insert((when.max(self.now), self.sequence), event);
    }

    fn trace(&mut self, words: [u64; 3]) {
        for word in words.into_iter().chain([self.now.0]) {
            self.trace_hash = (self.trace_hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.is_history {
            self.history
                .push(format!("{:>9} µs  {}", self.now.0 / 1000, line()));
        }
    }
}
