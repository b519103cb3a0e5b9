//! One TCP connection: records that come in, replies that go out, and how much
//! of both is held.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_rpc::{RecordError, RecordReader};

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
    reader: RecordReader,
    inbox: VecDeque<Bytes>,
}

impl Connection {
    pub(crate) fn new(peer: SocketAddr) -> Self {
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
            reader: RecordReader::default(),
            inbox: VecDeque::new(),
        }
    }

    pub(crate) fn received(&mut self, chunk: Bytes) {
        self.inbox.push_back(chunk);
    }

    /// Whether another call may begin.
    pub(crate) const fn has_room(&self, limits: &DoorLimits) -> bool {
        self.calls < limits.calls_per_connection_max
            && self.calls_bytes + self.unsent_bytes < limits.connection_bytes_max
    }

    /// The next record that is there completely.
    pub(crate) fn next_record(&mut self) -> Result<Option<Bytes>, RecordError> {
        while let Some(chunk) = self.inbox.front_mut() {
            if let Some(record) = self.reader.next_record(chunk)? {
                return Ok(Some(record));
            }
            self.inbox.pop_front();
        }
        Ok(None)
    }
}
