//! What the door counts.

use crossdock_delivery::DeliveryFigures;
use crossdock_http1::{Method, Status};
use crossdock_peer::RelayedBytes;

/// Responses are counted by the first digit of their status, from 1 on.
pub const STATUS_CLASSES: usize = 5;

/// What has happened at the door since it was made, and how it is.
#[derive(Clone, Debug, Default)]
pub struct HttpFigures {
    /// GET, HEAD, PUT, DELETE, OPTIONS, others.
    pub requests_total: [u64; 6],
    /// Responses whose status begins with 1 to 5.
    pub responses_total: [u64; STATUS_CLASSES],
    /// Bytes of files that were given to connections.
    pub sent_bytes: u64,
    /// Of these, what nodes could have sent and were not asked to.
    pub relayed: RelayedBytes,
    /// Bytes of files for which clients were sent to nodes.
    pub redirected_bytes: u64,
    /// Bytes of content that came.
    pub received_bytes: u64,
    /// Reads that were withdrawn, as their clients are gone.
    pub withdrawn_total: u64,
    /// Reads that were moved behind others.
    pub postponed_total: u64,
    /// Responses that were broken off because their file has changed.
    pub changed_total: u64,
    /// Connections that their clients left alone for too long.
    pub late_total: u64,
    /// Connections there are.
    pub connections: usize,
    /// Bytes of contents on their way to the volume.
    pub upload_bytes: usize,
    /// What the delivery engine counts.
    pub delivery: DeliveryFigures,
}

impl HttpFigures {
    pub(crate) fn request(&mut self, method: Method) {
        let at = match method {
            Method::Get => 0,
            Method::Head => 1,
            Method::Put => 2,
            Method::Delete => 3,
            Method::Options => 4,
            Method::Post | Method::Patch | Method::Trace | Method::Unknown => 5,
        };
        self.requests_total[at] += 1;
    }

    pub(crate) fn response(&mut self, status: Status) {
        let class = usize::from(status.number() / 100).clamp(1, STATUS_CLASSES);
        self.responses_total[class - 1] += 1;
    }
}
