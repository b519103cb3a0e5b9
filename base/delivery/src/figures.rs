//! What delivery counts.

use std::time::Duration;

use crossdock_metrics::Histogram;

/// Everything that was counted, and how things are now.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFigures {
    /// T_D now, of the foreground.
    pub buffering_time: Duration,
    /// The memory that may be taken, in bytes.
    pub memory_bytes: u64,
    /// D2 + D3 of all streams now, in bytes.
    pub memory_used: u64,
    /// The most that it has been, in bytes.
    pub memory_used_max: u64,
    /// B_net now, of all streams, in bytes per second.
    pub rate_net: u64,
    /// Streams that are open.
    pub streams: usize,
    /// Streams that wait for memory now.
    pub waiting: usize,
    /// How long streams waited for memory, in microseconds.
    pub wait: Histogram,
    /// Sizes of requests, in bytes; their number and sum.
    pub requests: Histogram,
    /// Bytes that came from the disks for streams that lived.
    pub delivered_bytes: u64,
    /// Bytes that the disks could not give.
    pub failed_bytes: u64,
    /// Bytes handed to sockets.
    pub handed_bytes: u64,
    /// Postponements, and their bytes.
    pub postponed_total: u64,
    /// See `postponed_total`.
    pub postponed_bytes: u64,
    /// How often what was postponed returned early.
    pub resumed_total: u64,
    /// Streams whose requests were withdrawn, and the bytes of those.
    pub withdrawn_total: u64,
    /// See `withdrawn_total`.
    pub withdrawn_bytes: u64,
    /// Bytes that were read and not sent although their connection lived: to be 0.
    pub thrown_away_bytes: u64,
    /// Bytes that nodes were told to read ahead, and no client has asked for.
    pub unclaimed_bytes: u64,
    /// Bytes that were read, or were still being read, for connections that died.
    pub dead_bytes: u64,
    /// From a block's arrival from the disk until it left the socket's queue, in
    /// microseconds; as exact as samples are frequent.
    pub residence: Histogram,
}
