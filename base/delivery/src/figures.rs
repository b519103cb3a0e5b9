//! What delivery counts.

use std::time::Duration;

use crossdock_metrics::Histogram;

use crate::number::whole;

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
    /// From the disk to the network.
    pub residence: Residence,
}

/// From a block's arrival from the disk until it left the socket's queue; as exact as
/// samples are frequent.
#[derive(Clone, Debug, Default)]
pub struct Residence {
    /// In microseconds.
    pub time: Histogram,
    /// In percent of the stream's own T_D, when the block arrived: where memory is short a
    /// slow stream is read ahead of for longer than a fast one.
    pub percent: Histogram,
}

impl Residence {
    pub(crate) fn record(&mut self, time: Duration, buffering: Duration) {
        self.time.record_time(time);
        let part = time.as_secs_f64() / buffering.as_secs_f64().max(f64::EPSILON);
        self.percent.record(whole(100.0 * part));
    }
}
