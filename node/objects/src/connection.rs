//! One TCP connection.

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
    /// Bytes of responses that the kernel has not taken yet.
    pub(crate) unsent_bytes: u64,
    /// Its client sends no more.
    pub(crate) is_peer_done: bool,
    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) is_closing: bool,
    /// Waits for memory.
    pub(crate) is_waiting: bool,
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
            is_peer_done: false,
            is_closing: false,
            is_waiting: false,
            active: now,
        }
    }

    /// Bytes in memory for it: asked for, or not taken by the kernel.
    pub(crate) fn held_bytes(&self) -> u64 {
        let asked = self.transfer.as_deref().map_or(0, Transfer::asked_bytes);
        self.unsent_bytes + asked
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
