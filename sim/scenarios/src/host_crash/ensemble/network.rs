//! Connections between processes: in order as TCP has them, with delays, breaks
//! that lose what is on its way, directions in which nothing moves, and slow ones, in
//! which messages queue up while those of other connections overtake them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_link::{Frame, Stamped};
use crossdock_names::HostId;
use crossdock_peer::Port;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::shell::nanos;

/// A message takes up to this.
const DELAY_MAX: Duration = Duration::from_micros(400);

/// A side that hears nothing for so long takes the connection for dead.
const KEEPALIVE: Duration = Duration::from_millis(1500);

/// How soon a connection is made again.
const RECONNECT: Duration = Duration::from_millis(100);

/// Where a process runs.
pub(super) type Place = usize;

/// What arrives at a process.
#[derive(Debug)]
pub(super) enum Arrival {
    Connected,
    Frame(Box<Stamped>),
    Disconnected,
}

/// What a message has beside its payload, about.
const FRAME_BYTES: usize = 200;

/// How fast one direction is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// What every message takes beside its place in the queue.
    pub(super) latency: Duration,
    pub(super) bytes_per_second: u64,
}

impl Pace {
    fn time_for(self, bytes: usize) -> Duration {
        let bytes = bytes as u64;
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1))
    }
}

/// One direction.
#[derive(Default)]
struct Direction {
    /// With whoever sent it.
    queue: VecDeque<(Time, HostId, Arrival)>,
    /// Nothing moves before then.
    cut_until: Time,
    /// Until then a slow one is busy with what it was given.
    busy_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Both sides are being told; it is made again then.
    Down(Time),
}

/// What is sent later than it could be.
struct Late {
    due: Time,
    way: (Place, Place),
    sender: HostId,
    sent: Box<Stamped>,
}

#[derive(Default)]
pub(super) struct Network {
    directions: BTreeMap<(Place, Place), Direction>,
    links: BTreeMap<(Place, Place), State>,
    processes: BTreeMap<Place, HostId>,
    /// Processes that do nothing until then: what reached them waits for them.
    paused: BTreeMap<Place, Time>,
    /// Links that will break of themselves.
    breaks: BTreeMap<(Place, Place), Time>,
    /// Directions that are slow.
    paces: BTreeMap<(Place, Place), Pace>,
    /// Nodes take so long to read what others copy.
    copies_take: Option<Duration>,
    /// What they read meanwhile.
    late: Vec<Late>,
}

const fn pair(a: Place, b: Place) -> (Place, Place) {
    if a < b { (a, b) } else { (b, a) }
}

impl Network {
    /// A process has started: it connects to all that run.
    pub(super) fn starts(&mut self, now: Time, place: Place, host: HostId, others: &[Place]) {
        self.processes.insert(place, host);
        for &other in others {
            self.links
                .insert(pair(place, other), State::Down(now + RECONNECT));
        }
    }

    /// A process is gone: the others learn it, sooner or later.
    pub(super) fn ends(&mut self, now: Time, place: Place, random: &mut Random) {
        let links: Vec<_> = self.links.keys().copied().collect();
        for (a, b) in links {
            if a != place && b != place {
                continue;
            }
            let other = if a == place { b } else { a };
            self.lose(now, (a, b), random);
            self.links.remove(&(a, b));
            self.directions.remove(&(other, place));
            self.breaks.remove(&(a, b));
        }
    }

    pub(super) fn send(
        &mut self,
        now: Time,
        from: Place,
        to: Place,
        sent: Box<Stamped>,
        random: &mut Random,
    ) {
        if self.links.get(&pair(from, to)) != Some(&State::Up) {
            return; // The sender does not know yet.
        }
        match (self.copies_take, self.processes.get(&from)) {
            (Some(latency), Some(&sender)) if is_to_be_copied(&sent) => {
                self.late.push(Late {
                    due: now + latency,
                    way: (from, to),
                    sender,
                    sent,
                });
            }
            _ => self.put(now, (from, to), Arrival::Frame(sent), random),
        }
    }

    /// Sends what was read late, unless its node is gone.
    fn send_late(&mut self, now: Time, random: &mut Random) {
        let due: Vec<Late> = self.late.extract_if(.., |late| late.due <= now).collect();
        for late in due {
            let (from, to) = late.way;
            let is_up = self.links.get(&pair(from, to)) == Some(&State::Up);
            if is_up && self.processes.get(&from) == Some(&late.sender) {
                self.put(now, late.way, Arrival::Frame(late.sent), random);
            }
        }
    }

    fn put(&mut self, now: Time, way: (Place, Place), arrival: Arrival, random: &mut Random) {
        let delay = Duration::from_nanos(random.below(nanos(DELAY_MAX)));
        let Some(&sender) = self.processes.get(&way.0) else {
            return;
        };
        let direction = self.directions.entry(way).or_default();
        let mut due = now + delay;
        if let Some(pace) = self.paces.get(&way) {
            let begun = direction.busy_until.max(now);
            direction.busy_until = begun + pace.time_for(size_bytes(&arrival));
            due = direction.busy_until + pace.latency + delay;
        }
        let due = due.max(direction.cut_until);
        let due = direction.queue.back().map_or(due, |last| last.0.max(due));
        direction.queue.push_back((due, sender, arrival));
    }

    /// Nothing moves from one to the other for a while: if it is long, both
    /// take the connection for dead.
    pub(super) fn cut(&mut self, now: Time, from: Place, to: Place, length: Duration) {
        let until = now + length;
        let direction = self.directions.entry((from, to)).or_default();
        direction.cut_until = direction.cut_until.max(until);
        for (due, ..) in &mut direction.queue {
            *due = (*due).max(until);
        }
        if length > KEEPALIVE && self.links.contains_key(&pair(from, to)) {
            self.breaks.entry(pair(from, to)).or_insert(now + KEEPALIVE);
        }
    }

    /// A process does nothing for a while: the others take it for dead if that is
    /// long, and it learns of that behind all that they had sent.
    pub(super) fn pause(&mut self, now: Time, place: Place, length: Duration) {
        self.paused.insert(place, now + length);
        let links: Vec<_> = self.links.keys().copied().collect();
        for (a, b) in links {
            if a == place || b == place {
                let other = if a == place { b } else { a };
                self.cut(now, other, place, length);
            }
        }
    }

    /// Messages in one direction take their time from now on.
    pub(super) fn slow(&mut self, from: Place, to: Place, pace: Pace) {
        self.paces.insert((from, to), pace);
    }

    /// Nodes take so long to read what others copy, from now on.
    pub(super) const fn slow_copies(&mut self, latency: Option<Duration>) {
        self.copies_take = latency;
    }

    /// Everything moves again, and as fast as ever.
    pub(super) fn heal(&mut self, now: Time) {
        for direction in self.directions.values_mut() {
            direction.cut_until = now;
        }
        self.paces.clear();
        self.copies_take = None;
        self.breaks.clear();
        self.paused.clear();
    }

    /// A connection breaks: a part of what was on its way still arrives.
    pub(super) fn lose(&mut self, now: Time, link: (Place, Place), random: &mut Random) {
        if self.links.get(&link) != Some(&State::Up) {
            return;
        }
        for way in [link, (link.1, link.0)] {
            let Some(&sender) = self.processes.get(&way.0) else {
                continue;
            };
            let direction = self.directions.entry(way).or_default();
            let is_paused = self.paused.get(&way.1).is_some_and(|until| *until > now);
            let is_cut = direction.cut_until > now;
            let kept = match (is_paused, is_cut) {
                (true, _) => direction.queue.len(),
                (false, true) => 0,
                (false, false) => random.index(direction.queue.len() + 1),
            };
            direction.queue.truncate(kept);
            let last = direction.queue.back().map_or(now, |last| last.0);
            let learns = Duration::from_nanos(random.below(nanos(KEEPALIVE)));
            let learns = (last + learns).max(direction.cut_until);
            direction
                .queue
                .push_back((learns, sender, Arrival::Disconnected));
        }
        self.links.insert(link, State::Down(now + KEEPALIVE * 2));
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Time> {
        let arrivals = self.directions.values();
        let arrivals = arrivals.filter_map(|direction| Some(direction.queue.front()?.0));
        let links = self.links.iter().filter_map(|(&link, state)| match state {
            State::Down(due) if self.is_drained(link) => {
                Some(self.cut_end(link).map_or(*due, |cut| cut.max(*due)))
            }
            _ => None,
        });
        arrivals
            .chain(links)
            .chain(self.breaks.values().copied())
            .chain(self.late.iter().map(|late| late.due))
            .min()
    }

    fn is_drained(&self, (a, b): (Place, Place)) -> bool {
        [(a, b), (b, a)].iter().all(|way| {
            let direction = self.directions.get(way);
            direction.is_none_or(|direction| direction.queue.is_empty())
        })
    }

    fn cut_end(&self, (a, b): (Place, Place)) -> Option<Time> {
        let ways = [(a, b), (b, a)];
        let ends = ways
            .iter()
            .filter_map(|way| Some(self.directions.get(way)?.cut_until));
        ends.max()
    }

    /// What arrives by now: at whom, from whom.
    pub(super) fn next(
        &mut self,
        now: Time,
        random: &mut Random,
    ) -> Option<(Place, HostId, Arrival)> {
        self.send_late(now, random);
        while let Some((&link, _)) = self.breaks.iter().find(|(_, due)| **due <= now) {
            self.breaks.remove(&link);
            self.lose(now, link, random);
        }
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(&link, &state)| (link, state))
            .collect();
        for (link, state) in links {
            let State::Down(due) = state else { continue };
            let is_open = self.cut_end(link).is_none_or(|end| end <= now);
            if due <= now && is_open && self.is_drained(link) {
                self.links.insert(link, State::Up);
                self.put(now, link, Arrival::Connected, random);
                self.put(now, (link.1, link.0), Arrival::Connected, random);
            }
        }
        let first = self.directions.iter().filter_map(|(&way, direction)| {
            let due = direction.queue.front()?.0;
            (due <= now).then_some((due, way))
        });
        let (_, way) = first.min()?;
        let (_, sender, arrival) = self.directions.get_mut(&way)?.queue.pop_front()?;
        Some((way.1, sender, arrival))
    }
}

/// Whether it is what a node has read for one that copies it.
const fn is_to_be_copied(sent: &Stamped) -> bool {
    matches!(
        sent.frame,
        Frame::NodeReply {
            to: Port::Copy(_),
            ..
        }
    )
}

fn size_bytes(arrival: &Arrival) -> usize {
    match arrival {
        Arrival::Frame(sent) => {
            let payload = sent.frame.payload();
            FRAME_BYTES + payload.map_or(0, crossdock_types::Payload::len)
        }
        Arrival::Connected | Arrival::Disconnected => 0,
    }
}
