//! The site's log: frames appended to log objects on every member.

use std::collections::BTreeSet;

use crossdock_log::{ChainPosition, LogId, LogWriter, Position};
use crossdock_names::{Epoch, NodeId, ObjectClass, ObjectId, SiteId, VolumeId};
use crossdock_types::Payload;

use crate::figures::FrameFigures;

/// Bytes gathered for the next frame at which requests have to wait: a frame
/// is one object write, and what is under way may still add to it.
const GATHERED_BYTES_MAX: usize = 512 << 10;

/// The same for a flush of small files, whose record names thousands of them.
const GATHERED_BYTES_FLUSH_MAX: usize = 64 << 10;

/// A place in the log where a frame begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPoint {
    /// Number of the log object.
    pub(crate) segment: u32,
    /// Where in it; at its end, the frame begins the next object.
    pub(crate) offset_bytes: u64,
    /// What the frame has to say.
    pub(crate) chain: ChainPosition,
}

/// Writes the log, one frame at a time.
#[derive(Debug)]
pub(crate) struct SiteLog {
    site: SiteId,
    writer: LogWriter,
    segment: u32,
    offset_bytes: u64,
    segment_bytes_max: u64,
    waiting: BTreeSet<NodeId>,
    /// The frame that they wait for.
    in_flight: Option<Append>,
    /// Bytes since the newest checkpoint began.
    pub(crate) bytes_since_checkpoint: u64,
    figures: Box<FrameFigures>,
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) object: ObjectId,
    pub(crate) offset_bytes: u64,
    pub(crate) payload: Payload,
}

impl SiteLog {
    /// Goes on after `chain`, in the new object `segment`.
    pub(crate) fn new(
        (site, volume): (SiteId, VolumeId),
        epoch: Epoch,
        chain: ChainPosition,
        segment: u32,
        segment_bytes_max: u64,
    ) -> Self {
        Self {
            site,
            writer: LogWriter::new(log_id(site, volume), epoch.0, chain),
            segment,
            offset_bytes: 0,
            segment_bytes_max,
            waiting: BTreeSet::new(),
            in_flight: None,
            bytes_since_checkpoint: 0,
            figures: Box::default(),
        }
    }

    pub(crate) fn append(&mut self, record: &[u8]) -> Position {
        self.writer.append(record)
    }

    /// Whether another operation may append.
    pub(crate) const fn has_room(&self) -> bool {
        self.writer.gathered_bytes() < GATHERED_BYTES_MAX
    }

    /// Whether a flush of small files may append.
    pub(crate) const fn has_room_for_flush(&self) -> bool {
        self.writer.gathered_bytes() < GATHERED_BYTES_FLUSH_MAX
    }

    /// The next frame, if none is in flight, to be appended on all `members`.
    pub(crate) fn next_append(&mut self, members: &[NodeId]) -> Option<Append> {
        if members.is_empty() {
            return None; // Unavailable until the table names some.
        }
        let records = self.writer.gathered_records();
        let frame = self.writer.next_frame()?;
        let length = frame.length as u64;
        self.figures.records.record(records.into());
        self.figures.bytes += length;
        if self.offset_bytes > 0 && self.offset_bytes + length > self.segment_bytes_max {
            self.segment += 1;
            self.offset_bytes = 0;
        }
        let append = Append {
            object: ObjectId::of_site(ObjectClass::SiteLog, self.site, self.segment),
            offset_bytes: self.offset_bytes,
            payload: Payload::from(frame.bytes()),
        };
        self.offset_bytes += length;
        self.bytes_since_checkpoint += length;
        self.waiting = members.iter().copied().collect();
        self.in_flight = Some(append.clone());
        Some(append)
    }

    /// The frame in flight, as long as `node` has not acknowledged it.
    pub(crate) fn awaited_of(&self, node: NodeId) -> Option<&Append> {
        let append = self.in_flight.as_ref();
        append.filter(|_| self.waiting.contains(&node))
    }

    /// `node` has the frame in flight; the new durable position once all have.
    pub(crate) fn acknowledged(&mut self, node: NodeId) -> Option<Position> {
        (self.waiting.remove(&node) && self.waiting.is_empty()).then(|| self.writer.frame_durable())
    }

    /// Only `members` count from now on; see [`acknowledged`](Self::acknowledged).
    pub(crate) fn retain_members(&mut self, members: &[NodeId]) -> Option<Position> {
        let waited = !self.waiting.is_empty();
        self.waiting.retain(|node| members.contains(node));
        (waited && self.waiting.is_empty()).then(|| self.writer.frame_durable())
    }

    pub(crate) fn figures(&self) -> FrameFigures {
        self.figures.as_ref().clone()
    }

    pub(crate) const fn durable(&self) -> Position {
        self.writer.durable()
    }

    /// The position of the newest record.
    pub(crate) fn newest(&self) -> Position {
        let gathering = self.writer.gathering_position();
        if self.writer.gathered_bytes() > 0 {
            gathering
        } else {
            Position(gathering.0 - 1)
        }
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.writer.is_idle()
    }

    /// Where the frame that is being gathered will begin.
    pub(crate) const fn point(&self) -> LogPoint {
        LogPoint {
            segment: self.segment,
            offset_bytes: self.offset_bytes,
            chain: self.writer.chain(),
        }
    }
}

/// The log's own number: a frame of another volume or site is never taken.
pub(crate) const fn log_id(site: SiteId, volume: VolumeId) -> LogId {
    LogId(volume.0 ^ (site.0 as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
