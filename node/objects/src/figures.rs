//! What the door counts.

use crossdock_http1::Status;

/// Responses are counted by the first digit of their status, from 1 on.
pub const STATUS_CLASSES: usize = 5;

/// What has happened at the door since it was made, and how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectDoorFigures {
    /// Responses whose status begins with 1 to 5.
    pub responses_total: [u64; STATUS_CLASSES],
    /// Bytes of objects that were given to connections.
    pub sent_bytes: u64,
    /// Responses that were broken off: the object has changed, or cannot be read.
    pub broken_total: u64,
    /// Connections that their clients left alone for too long.
    pub late_total: u64,
    /// Connections there are.
    pub connections: usize,
    /// Bytes of objects in memory: asked for, or not taken by the kernel.
    pub held_bytes: u64,
    /// Reads that were put off because their connections stand still.
    pub postponed_total: u64,
    /// Reads that were taken back because their connections are over.
    pub withdrawn_total: u64,
}

impl ObjectDoorFigures {
    pub(crate) fn response(&mut self, status: Status) {
        let class = usize::from(status.number() / 100).clamp(1, STATUS_CLASSES);
        self.responses_total[class - 1] += 1;
    }
}
