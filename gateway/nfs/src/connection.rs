//! One TCP connection: records that come in, replies that go out, and how much
//! of both is held.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_rpc::{RecordError, RecordReader};
use crossdock_types::Time;

use crate::fill::{FILL_BYTES_MIN, Fill, lead_bytes};
use crate::identity::CallerCache;
use crate::message::DoorLimits;

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) callers: CallerCache,
    /// Not read from until there is room.
    pub(crate) is_paused: bool,
    /// In the door's queue of those that wait for room.
    pub(crate) is_waiting: bool,
    /// Its client sends no more calls; it ends when all have their replies.
    pub(crate) is_peer_done: bool,
    /// Replies for the next send.
    pub(crate) outbox: Vec<Bytes>,
    /// Bytes of replies that are not gone yet.
    pub(crate) unsent_bytes: usize,
    /// Calls in progress, and the bytes that they stand for.
    pub(crate) calls: usize,
    pub(crate) calls_bytes: usize,
    /// Bytes of the record that is filled elsewhere.
    pub(crate) filling_bytes: usize,
    /// One that was.
    filled: Option<Bytes>,
    reader: RecordReader,
    inbox: VecDeque<Bytes>,
    /// When there was last anything to do.
    active: Time,
    /// Since when a part of a record is here.
    record_since: Option<Time>,
    /// Since when its client has taken no reply.
    unsent_since: Option<Time>,
}

impl Connection {
    pub(crate) fn new(now: Time, peer: SocketAddr) -> Self {
        Self {
            peer,
            callers: CallerCache::default(),
            is_paused: false,
            is_waiting: false,
            is_peer_done: false,
            outbox: Vec::new(),
            unsent_bytes: 0,
            calls: 0,
            calls_bytes: 0,
            filling_bytes: 0,
            filled: None,
            reader: RecordReader::default(),
            inbox: VecDeque::new(),
            active: now,
            record_since: None,
            unsent_since: None,
        }
    }

    pub(crate) fn received(&mut self, chunk: Bytes) {
        self.inbox.push_back(chunk);
    }

    /// The rest of a large WRITE, if one has begun, shall come in one piece.
    pub(crate) fn begin_fill(&mut self) -> Option<Fill> {
        let missing_bytes = self.reader.missing_bytes();
        if missing_bytes < FILL_BYTES_MIN {
            return None;
        }
        let lead_bytes = lead_bytes(self.reader.beginning()?)?;
        let fill = Fill {
            head: self.reader.lend()?,
            lead_bytes,
            missing_bytes,
        };
        self.filling_bytes = fill.record_bytes();
        Some(fill)
    }

    /// It has come.
    pub(crate) fn filled(&mut self, record: Bytes) {
        self.reader.give_back(&record);
        self.filling_bytes = 0;
        self.filled = Some(record);
    }

    /// Whether another call may begin.
    pub(crate) const fn has_room(&self, limits: &DoorLimits) -> bool {
        self.calls < limits.calls_per_connection_max
            && self.calls_bytes + self.unsent_bytes < limits.connection_bytes_max
    }

    /// The next record that is there completely.
    pub(crate) fn next_record(&mut self) -> Result<Option<Bytes>, RecordError> {
        if let Some(record) = self.filled.take() {
            self.record_since = None;
            return Ok(Some(record));
        }
        while let Some(chunk) = self.inbox.front_mut() {
            if let Some(record) = self.reader.next_record(chunk)? {
                self.record_since = None;
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
    }

    /// Notes since when it waits for its client; to be called after anything has
    /// happened to it.
    pub(crate) fn note(&mut self, now: Time) {
        self.active = now;
        let is_partial = !self.is_paused && !self.reader.is_between_records();
        self.record_since = is_partial.then(|| self.record_since.unwrap_or(now));
        let is_unsent = self.unsent_bytes > 0;
        self.unsent_since = is_unsent.then(|| self.unsent_since.unwrap_or(now));
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
