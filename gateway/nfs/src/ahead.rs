//! Reading ahead of clients by what their connections take: READs go through the delivery
//! engine's TDAP (docs/decisions/0030-delivery-engine.md).
//!
//! Who reads a file on over a connection is a *stream* of the engine from his second READ on,
//! once the file's size is known. The engine says up to where is read ahead of him, by the
//! rate of his own bytes; nodes are told, and the bytes wait in their caches until READs come
//! for them. First READs and random ones cost nothing and ask for nothing.
//!
//! Clients with large READs, several at a time, read ahead themselves: for them nothing is
//! fetched (see the node's own read-ahead, `node/store/src/ahead.rs`, for why).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_delivery::{Advice, Guest, StreamId, Switches, TcpSample};
use crossdock_limits::{
    DELIVERY_BUFFERING_MILLIS_MAX, NFS_READERS_MAX, NFS_READERS_PER_CONNECTION_MAX,
    READ_AHEAD_BYTES_MAX,
};
use crossdock_names::FileRef;
use crossdock_peer::Caller;
use crossdock_router::ReadAhead;
use crossdock_types::Time;

use crate::message::{ConnId, NfsEffect};

/// A READ that begins this near to where the last one ended goes on with it: clients send
/// several at once, which overtake each other.
const NEAR_BYTES: u64 = 1 << 20;

/// Who has not read for so long reads no more: as long as the engine looks ahead at most.
const IDLE: Duration = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MAX);

/// A connection is not looked at more often, unless the engine asks.
const SAMPLE_PAUSE: Duration = Duration::from_millis(20);

/// Answers on their way of which is known whose they are; older ones count as arrived.
const REPLIES_MAX: usize = 512;

/// All clients that read files on.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    connections: BTreeMap<ConnId, Readings>,
    /// Whose connection a stream of the engine is.
    streams: BTreeMap<StreamId, ConnId>,
    /// Of all connections.
    count: usize,
    numbers_total: u64,
    swept: Time,
    effects: VecDeque<NfsEffect>,
}

/// What is read over a connection.
#[derive(Debug, Default)]
struct Readings {
    all: Vec<Reading>,
    /// Answers that have not arrived, as far as is known.
    replies: VecDeque<Reply>,
    sampled: Time,
}

/// An answer to a READ of a stream.
#[derive(Clone, Copy, Debug)]
struct Reply {
    stream: StreamId,
    bytes: u64,
    /// Where it ends among all bytes that were sent over the connection.
    end: u64,
}

/// A file that is read at some place.
#[derive(Debug)]
struct Reading {
    number: u64,
    caller: Caller,
    file: FileRef,
    /// Where the next READ is expected.
    next: u64,
    /// Up to here nodes were told.
    told: u64,
    size: Option<u64>,
    /// Length of the last READ.
    unit_bytes: u64,
    /// Whether the last READ has gone on with one before.
    goes_on: bool,
    /// Of READs without an answer.
    outstanding_bytes: u64,
    stream: Option<Stream>,
    used: Time,
}

/// What the engine knows of it.
#[derive(Clone, Copy, Debug)]
struct Stream {
    id: StreamId,
    /// Where it ends in the file.
    end: u64,
    /// Of its answers, what has arrived.
    acked_bytes: u64,
}

/// A READ of somebody who may read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    number: u64,
    bytes: u64,
    /// By so much his place has moved in the engine's eyes.
    moved: Option<(StreamId, u64)>,
}

/// A READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) file: FileRef,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// How a connection is, as the door and the kernel see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// All bytes that the door has sent over it.
    pub(crate) sent_bytes: u64,
    /// Of these, what the kernel has not taken.
    pub(crate) queued_bytes: u64,
    pub(crate) sample: TcpSample,
}

impl Readers {
    /// What is to be done next.
    pub(crate) fn poll_effect(&mut self) -> Option<NfsEffect> {
        self.effects.pop_front()
    }

    /// When [`timeout`](Self::timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        (self.count > 0).then(|| self.swept + IDLE)
    }

    /// Forgets who reads no more.
    pub(crate) fn timeout(&mut self, now: Time) {
        if now < self.swept + IDLE {
            return;
        }
        self.swept = now;
        let mut ended = Vec::new();
        for readings in self.connections.values_mut() {
            let is_idle = |reading: &mut Reading| {
                reading.used + IDLE <= now && reading.outstanding_bytes == 0
            };
            ended.extend(readings.all.extract_if(.., is_idle));
        }
        for mut reading in ended {
            self.count -= 1;
            self.leave(&mut reading);
        }
        self.connections
            .retain(|_, readings| !readings.all.is_empty());
    }

    /// A READ begins. Gives what [`answered`](Self::answered) wants to know of it.
    pub(crate) fn read(&mut self, now: Time, id: ConnId, read: Read<'_>) -> Option<Mark> {
        if self.count == 0 {
            self.swept = now;
        }
        let bytes = read.to.saturating_sub(read.from);
        let readings = self.connections.entry(id).or_default();
        let is_it = |reading: &&mut Reading| {
            reading.file == read.file && reading.next.abs_diff(read.from) <= NEAR_BYTES
        };
        let Some(reading) = readings.all.iter_mut().find(is_it) else {
            let number = self.begin(now, id, read)?;
            let moved = None;
            return Some(Mark {
                number,
                bytes,
                moved,
            });
        };
        reading.used = now;
        let pulls = bytes >= READ_AHEAD_BYTES_MAX / 2 && reading.outstanding_bytes >= bytes;
        reading.outstanding_bytes += bytes;
        let number = reading.number;
        let fresh = read.to.saturating_sub(reading.next);
        reading.next = reading.next.max(read.to);
        reading.goes_on = !pulls;
        reading.unit_bytes = bytes;
        if reading.caller != *read.caller {
            reading.caller = read.caller.clone();
        }
        let mut moved = None;
        match reading.stream {
            Some(stream) if pulls || reading.next >= stream.end => self.leave_of(id, number),
            Some(Stream { id: stream, .. }) if fresh > 0 => {
                moved = Some((stream, fresh));
                let asked = Guest::Asked {
                    stream,
                    bytes: fresh,
                };
                self.effects.push_back(NfsEffect::Deliver(asked));
            }
            Some(_) => {}
            None => self.open(id, number),
        }
        Some(Mark {
            number,
            bytes,
            moved,
        })
    }

    /// It has its answer, of `reply_bytes`, which ends at `sent_bytes` of its connection;
    /// and the file is so long.
    pub(crate) fn answered(
        &mut self,
        id: ConnId,
        mark: Mark,
        (reply_bytes, sent_bytes): (u64, u64),
        size: Option<u64>,
    ) {
        let Some(readings) = self.connections.get_mut(&id) else {
            return;
        };
        let mut all = readings.all.iter_mut();
        let Some(reading) = all.find(|reading| reading.number == mark.number) else {
            return;
        };
        reading.outstanding_bytes = reading.outstanding_bytes.saturating_sub(mark.bytes);
        reading.size = size.or(reading.size);
        let Some(stream) = &reading.stream else {
            return self.open(id, mark.number);
        };
        let reply = Reply {
            stream: stream.id,
            bytes: reply_bytes,
            end: sent_bytes,
        };
        if let Some((moved, bytes)) = mark.moved
            && moved == stream.id
        {
            let answered = Guest::Answered {
                stream: moved,
                bytes,
            };
            self.effects.push_back(NfsEffect::Deliver(answered));
        }
        readings.replies.push_back(reply);
        if readings.replies.len() > REPLIES_MAX {
            readings.settle_first();
        }
    }

    /// The kernel has taken bytes of a connection.
    pub(crate) fn sent(&mut self, now: Time, id: ConnId) {
        if let Some(readings) = self.connections.get_mut(&id)
            && readings.sampled + SAMPLE_PAUSE <= now
            && readings.all.iter().any(|reading| reading.stream.is_some())
        {
            readings.sampled = now;
            self.effects.push_back(NfsEffect::Sample(id));
        }
    }

    /// How a connection is: each of its streams has its part of that.
    pub(crate) fn sampled(&mut self, id: ConnId, wire: Wire) {
        let Some(readings) = self.connections.get_mut(&id) else {
            return;
        };
        let Wire {
            sent_bytes,
            queued_bytes,
            sample,
        } = wire;
        while let Some(first) = readings.replies.front()
            && first.end <= sample.acked_bytes
        {
            readings.settle_first();
        }
        let gone = sent_bytes.saturating_sub(queued_bytes.saturating_add(sample.unsent_bytes));
        let streams = readings.all.iter().filter_map(|reading| reading.stream);
        let count = streams.clone().count().max(1) as u64;
        for stream in streams {
            let of_it = |reply: &&Reply| reply.stream == stream.id && reply.end > gone;
            let unsent = readings.replies.iter().filter(of_it);
            let sample = TcpSample {
                unsent_bytes: unsent.map(|reply| reply.bytes).sum(),
                acked_bytes: stream.acked_bytes,
                delivery_rate: sample.delivery_rate / count,
                ..sample
            };
            let stream = stream.id;
            let told = Guest::Sample { stream, sample };
            self.effects.push_back(NfsEffect::Deliver(told));
        }
    }

    /// The engine has decided something.
    pub(crate) fn advised(&mut self, advice: Advice) {
        let (stream, remaining_bytes) = match advice {
            Advice::Look { stream } => {
                let id = self.streams.get(&stream);
                self.effects.extend(id.map(|&id| NfsEffect::Sample(id)));
                return;
            }
            Advice::Request {
                stream,
                remaining_bytes,
            } => (stream, remaining_bytes),
        };
        let id = self.streams.get(&stream);
        let Some(readings) = id.and_then(|id| self.connections.get_mut(id)) else {
            return;
        };
        let is_its = |known: &Option<Stream>| known.is_some_and(|known| known.id == stream);
        let mut all = readings.all.iter_mut();
        let Some(reading) = all.find(|reading| is_its(&reading.stream)) else {
            return;
        };
        let of_file = reading.stream.map_or(0, |known| known.end);
        let end = of_file.saturating_sub(remaining_bytes);
        let from = reading.told.max(reading.next);
        if from < end {
            reading.told = end;
            let wanted = reading.ahead(from, true);
            self.effects.push_back(wanted);
        }
    }

    /// The connection is gone: so is who read over it. With EDRC, what nodes are about to
    /// read for him is withdrawn.
    pub(crate) fn lost(&mut self, id: ConnId, switches: Switches) {
        let Some(readings) = self.connections.remove(&id) else {
            return;
        };
        for reading in readings.all {
            self.count -= 1;
            let Some(Stream { id: stream, .. }) = reading.stream else {
                continue;
            };
            self.streams.remove(&stream);
            let lost = Guest::Lost { stream };
            self.effects.push_back(NfsEffect::Deliver(lost));
            if switches.edrc && reading.next < reading.told {
                self.effects.push_back(reading.ahead(reading.next, false));
            }
        }
    }

    /// Somebody reads where nobody did. Gives his number if there is room for him.
    fn begin(&mut self, now: Time, id: ConnId, read: Read<'_>) -> Option<u64> {
        self.numbers_total += 1;
        let number = self.numbers_total;
        let new = Reading {
            number,
            caller: read.caller.clone(),
            file: read.file,
            next: read.to,
            told: read.to,
            size: None,
            unit_bytes: 0,
            goes_on: false,
            outstanding_bytes: read.to.saturating_sub(read.from),
            stream: None,
            used: now,
        };
        let readings = self.connections.get_mut(&id)?;
        if readings.all.len() < NFS_READERS_PER_CONNECTION_MAX && self.count < NFS_READERS_MAX {
            readings.all.push(new);
            self.count += 1;
            return Some(number);
        }
        let oldest = readings.all.iter_mut().min_by_key(|reading| reading.used);
        let Some(oldest) = oldest else {
            self.connections.remove(&id); // No room: nodes do as they think right.
            return None;
        };
        let mut old = std::mem::replace(oldest, new);
        self.leave(&mut old);
        Some(number)
    }

    /// Makes it a stream of the engine, if it is known to go on and how far it can.
    fn open(&mut self, id: ConnId, number: u64) {
        let readings = self.connections.get_mut(&id);
        let mut all = readings.into_iter().flat_map(|readings| &mut readings.all);
        let Some(reading) = all.find(|reading| reading.number == number) else {
            return;
        };
        let Some(end) = reading.size.filter(|&size| size > reading.next) else {
            return;
        };
        if !reading.goes_on {
            return;
        }
        self.numbers_total += 1;
        let stream = Guest::stream(self.numbers_total);
        reading.told = reading.next;
        reading.stream = Some(Stream {
            id: stream,
            end,
            acked_bytes: 0,
        });
        let total_bytes = end - reading.next;
        let open = Guest::Open {
            stream,
            total_bytes,
            unit_bytes: reading.unit_bytes,
            place_bytes: reading.next,
        };
        self.streams.insert(stream, id);
        self.effects.push_back(NfsEffect::Deliver(open));
        // Its rate is unknown until somebody looks.
        self.effects.push_back(NfsEffect::Sample(id));
    }

    fn leave_of(&mut self, id: ConnId, number: u64) {
        let readings = self.connections.get_mut(&id);
        let mut all = readings.into_iter().flat_map(|readings| &mut readings.all);
        let stream = all
            .find(|reading| reading.number == number)
            .and_then(|reading| reading.stream.take());
        self.tell_leave(stream);
    }

    fn leave(&mut self, reading: &mut Reading) {
        let stream = reading.stream.take();
        self.tell_leave(stream);
    }

    fn tell_leave(&mut self, stream: Option<Stream>) {
        if let Some(Stream { id: stream, .. }) = stream {
            self.streams.remove(&stream);
            let leave = Guest::Leave { stream };
            self.effects.push_back(NfsEffect::Deliver(leave));
        }
    }
}

impl Readings {
    /// The oldest answer has arrived.
    fn settle_first(&mut self) {
        let Some(first) = self.replies.pop_front() else {
            return;
        };
        let mut streams = self.all.iter_mut().filter_map(|one| one.stream.as_mut());
        if let Some(stream) = streams.find(|stream| stream.id == first.stream) {
            stream.acked_bytes += first.bytes;
        }
    }
}

impl Reading {
    /// What nodes are told of the range from there to where they were told last.
    fn ahead(&self, offset_bytes: u64, is_wanted: bool) -> NfsEffect {
        NfsEffect::Ahead(Box::new(ReadAhead {
            caller: self.caller.clone(),
            file: self.file,
            offset_bytes,
            end_bytes: self.told,
            is_wanted,
            is_read: false,
        }))
    }
}

#[cfg(test)]
mod tests;
