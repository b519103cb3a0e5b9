//! One TCP connection.

use crossdock_delivery::Pace;
use crossdock_http1::Inbox;
use crossdock_types::Time;

use crate::message::ObjectDoorConfig;
use crate::transfer::Transfer;

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Arrived, and not served yet.
    pub(crate) inbox: Inbox,
    /// The request that is served; the next one waits in the inbox.
    pub(crate) transfer: Option<Box<Transfer>>,
    /// Bytes of responses that the kernel has not taken yet …
    pub(crate) unsent_bytes: u64,
    /// … and how many of the first of them are of no object.
    plain_bytes: u64,
    /// What is known of how fast it takes bytes, between its responses.
    pub(crate) pace: Option<Box<Pace>>,
    /// Its client sends no more.
    pub(crate) is_peer_done: bool,
    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) is_closing: bool,
    /// When something last came, or went, or a request ended.
    pub(crate) active: Time,
}

/// What a client has not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Completed a head.
    Head,
    /// Taken anything of a response.
    Reader,
    /// Asked for anything.
    Idle,
}

impl Connection {
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            inbox: Inbox::new(),
            transfer: None,
            unsent_bytes: 0,
            plain_bytes: 0,
            pace: None,
            is_peer_done: false,
            is_closing: false,
            active: now,
        }
    }

    /// So many bytes of no object are to be sent. (None are behind those of an object: the
    /// next request begins when these are gone.)
    pub(crate) const fn push_plain(&mut self, bytes: u64) {
        self.unsent_bytes += bytes;
        self.plain_bytes += bytes;
    }

    /// The kernel has taken bytes. Returns how many of them were of an object.
    pub(crate) fn sent(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.unsent_bytes);
        let plain = bytes.min(self.plain_bytes);
        self.unsent_bytes -= bytes;
        self.plain_bytes -= plain;
        bytes - plain
    }

    /// When it has waited for its client for too long, and what for.
    pub(crate) fn deadline(&self, config: &ObjectDoorConfig) -> Option<(Time, Late)> {
        if self.unsent_bytes > 0 {
            return Some((self.active + config.send_patience, Late::Reader));
        }
        match (&self.transfer, self.inbox.head_since()) {
            (Some(_), _) => None, // It is the node that has to do something.
            (None, Some(since)) => Some((since + config.head_patience, Late::Head)),
            (None, None) => Some((self.active + config.idle_patience, Late::Idle)),
        }
    }
}
