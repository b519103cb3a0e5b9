//! One TCP connection: records that come in, replies that go out, and how much
//! of both is held.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_peer::Flow;
use crossdock_rpc::{RecordError, RecordReader};
use crossdock_types::{FILL_BYTES_MIN, Fill, Payload, Time};

use crate::figures::ClientPlace;
use crate::fill::lead_bytes;
use crate::identity::CallerCache;
use crate::message::DoorLimits;
use crate::room::part_bytes;

/// While others wait for room, a client has to take something of its replies
/// within this time: any that is alive does.
pub(crate) const STUCK_PATIENCE: Duration = Duration::from_secs(1);

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) callers: CallerCache,
    /// Where its calls are counted.
    pub(crate) place: ClientPlace,
    /// Not read from until there is room.
    pub(crate) is_paused: bool,
    /// Since when it was last so.
    pub(crate) paused_since: Time,
    /// It came to the portmapper's address.
    pub(crate) is_portmap: bool,
    /// In the door's queue of those that wait for room.
    pub(crate) is_waiting: bool,
    /// Its client sends no more calls; it ends when all have their replies.
    pub(crate) is_peer_done: bool,
    /// Replies for the next send.
    pub(crate) outbox: Payload,
    /// If nodes may send in it.
    pub(crate) flow: Option<Box<Flow>>,
    /// Bytes of replies that are not gone yet.
    pub(crate) unsent_bytes: usize,
    /// Bytes of all replies that there were.
    pub(crate) replied_bytes: u64,
    /// Calls in progress, and the bytes that they stand for.
    pub(crate) calls: usize,
    pub(crate) calls_bytes: usize,
    /// Calls that it has begun since the others had their turn.
    pub(crate) turn_calls: u32,
    /// In the door's queue of those that let others go first.
    pub(crate) awaits_turn: bool,
    /// Bytes that have arrived and are no call in progress yet, as counted.
    pub(crate) arrived_bytes: usize,
    /// Bytes of the record that is filled elsewhere.
    pub(crate) filling_bytes: usize,
    /// A record that is served next: one that was filled, or that found no room.
    parked: Option<Bytes>,
    reader: RecordReader,
    inbox: VecDeque<Bytes>,
    /// When there was last anything to do.
    active: Time,
    /// Since when a part of a record is here.
    part_since: Option<Time>,
    /// ... and its rest is awaited.
    record_since: Option<Time>,
    /// Since when its client has taken no reply.
    unsent_since: Option<Time>,
    /// Bytes of the oldest replies that still have to go, and since when: a
    /// client that takes a byte now and then is slow all the same.
    oldest: Option<(usize, Time)>,
}

impl Connection {
    pub(crate) fn new(now: Time, peer: SocketAddr) -> Self {
        Self {
            peer,
            callers: CallerCache::default(),
            place: ClientPlace::default(),
            is_paused: false,
            paused_since: now,
            is_portmap: false,
            is_waiting: false,
            is_peer_done: false,
            outbox: Payload::new(),
            flow: None,
            unsent_bytes: 0,
            replied_bytes: 0,
            calls: 0,
            calls_bytes: 0,
            turn_calls: 0,
            awaits_turn: false,
            arrived_bytes: 0,
            filling_bytes: 0,
            parked: None,
            reader: RecordReader::default(),
            inbox: VecDeque::new(),
            active: now,
            part_since: None,
            record_since: None,
            unsent_since: None,
            oldest: None,
        }
    }

    pub(crate) fn received(&mut self, chunk: Bytes) {
        self.inbox.push_back(chunk);
    }

    /// What is missing of a large WRITE, if one has begun and the beginning says
    /// where its data goes.
    fn missing_bulk(&self) -> Option<(usize, usize)> {
        let missing_bytes = self.reader.missing_bytes();
        if missing_bytes < FILL_BYTES_MIN {
            return None;
        }
        Some((missing_bytes, lead_bytes(self.reader.beginning()?)?))
    }

    /// Bytes of it, zero if there is none.
    pub(crate) fn fill_bytes(&self) -> usize {
        self.missing_bulk()
            .map_or(0, |(missing_bytes, _)| missing_bytes)
    }

    /// It shall come in one piece.
    pub(crate) fn begin_fill(&mut self) -> Option<Fill> {
        let (missing_bytes, lead_bytes) = self.missing_bulk()?;
        let fill = Fill {
            head: self.reader.lend()?,
            lead_bytes,
            missing_bytes,
        };
        self.filling_bytes = fill.whole_bytes();
        Some(fill)
    }

    /// It has come.
    pub(crate) fn filled(&mut self, record: Bytes) {
        self.reader.give_back(&record);
        self.filling_bytes = 0;
        self.parked = Some(record);
    }

    /// A call finds no room: it is the next one again.
    pub(crate) fn park(&mut self, record: Bytes) {
        self.parked = Some(record);
    }

    /// What the record that found no room will hold more than now.
    pub(crate) fn parked_bytes(&self) -> usize {
        self.parked.as_ref().map_or(0, Bytes::len)
    }

    /// All that is kept for it.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.calls_bytes + self.unsent_bytes + self.filling_bytes + self.arrived_bytes
    }

    /// Whether there is something to serve.
    pub(crate) fn has_arrived(&self) -> bool {
        self.parked.is_some() || !self.inbox.is_empty()
    }

    /// Counts what has arrived and is no call yet.
    pub(crate) fn count_arrived(&self) -> usize {
        let inbox: usize = self.inbox.iter().map(Bytes::len).sum();
        inbox + self.parked_bytes() + part_bytes(self.reader.gathered_bytes())
    }

    /// Whether another call may begin, as far as its own limits go.
    pub(crate) const fn has_room(&self, limits: &DoorLimits) -> bool {
        self.calls < limits.calls_per_connection_max
            && self.calls_bytes + self.unsent_bytes < limits.connection_bytes_max
    }

    /// The next record that is there completely.
    pub(crate) fn next_record(&mut self) -> Result<Option<Bytes>, RecordError> {
        if let Some(record) = self.parked.take() {
            (self.part_since, self.record_since) = (None, None);
            return Ok(Some(record));
        }
        while let Some(chunk) = self.inbox.front_mut() {
            if let Some(record) = self.reader.next_record(chunk)? {
                (self.part_since, self.record_since) = (None, None);
                return Ok(Some(record));
            }
            self.inbox.pop_front();
        }
        Ok(None)
    }

    /// The client has taken some of its replies.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.unsent_bytes -= bytes;
        self.unsent_since = None;
        self.oldest = self.oldest.and_then(|(left_bytes, since)| {
            let left_bytes = left_bytes.checked_sub(bytes)?;
            (left_bytes > 0).then_some((left_bytes, since))
        });
    }

    /// Notes since when it waits for its client; to be called after anything has
    /// happened to it.
    pub(crate) fn note(&mut self, now: Time) {
        self.active = now;
        let is_partial = !self.reader.is_between_records();
        self.part_since = is_partial.then(|| self.part_since.unwrap_or(now));
        let is_awaited = is_partial && !self.is_paused;
        self.record_since = is_awaited.then(|| self.record_since.unwrap_or(now));
        let is_unsent = self.unsent_bytes > 0;
        self.unsent_since = is_unsent.then(|| self.unsent_since.unwrap_or(now));
        self.oldest = is_unsent.then(|| self.oldest.unwrap_or((self.unsent_bytes, now)));
    }

    /// When it has held room for too long that others wait for and only its
    /// client can give back.
    pub(crate) fn pressed_deadline(&self, limits: &DoorLimits) -> Option<Time> {
        let part = self.record_since.filter(|_| !self.is_paused);
        let slow = part.into_iter().chain(self.oldest.map(|(_, since)| since));
        let slow = slow.map(|since| since + limits.pressed_patience);
        let stuck = self.unsent_since.map(|since| since + STUCK_PATIENCE);
        slow.chain(stuck).min()
    }

    /// Since when a part of a record lies here, while nobody reads the rest.
    pub(crate) fn clogs_since(&self) -> Option<Time> {
        let is_clog = self.is_waiting && self.calls == 0;
        is_clog.then_some(self.part_since).flatten()
    }

    /// Since when nothing has happened, if there is nothing to wait for.
    pub(crate) fn idle_since(&self) -> Option<Time> {
        let is_idle = self.calls == 0 && self.held_bytes() == 0;
        is_idle.then_some(self.active)
    }

    /// When it has waited for its client for too long.
    pub(crate) fn deadline(&self, limits: &DoorLimits) -> Option<Time> {
        let stalled = self.record_since.into_iter().chain(self.unsent_since);
        let stalled = stalled.min().map(|since| since + limits.stalled_patience);
        // It is the door that has to do something about its calls.
        let is_idle = self.calls == 0;
        stalled.or_else(|| is_idle.then(|| self.active + limits.idle_patience))
    }
}
