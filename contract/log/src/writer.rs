//! Group commit: records gather while the frame before is being made durable,
//! and go out together.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use crate::frame::{
    ChainPosition, FRAME_HEADER_BYTES, FRAME_PAYLOAD_BYTES_MAX, LogId, finish_frame,
};
use crate::varint::give_varint;

/// Longer memory is not kept to gather in again.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Place of a record in the log: the sequence of its frame. Everything at or
/// below the durable position survives a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// A frame on its way to the medium.
#[derive(Clone, Debug)]
pub struct PendingFrame {
    /// Its number, and the position of its records.
    pub position: Position,
    /// Header and records, padded with zeros to whole blocks that lie where a disk takes them.
    pub padded: Bytes,
    /// Bytes of them without the zeros.
    pub length: usize,
}

impl PendingFrame {
    /// Header and records, not padded.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.padded.slice(..self.length)
    }
}

/// Memory that a frame gathers in: it grows in blocks, and comes back when the frame is written.
#[derive(Debug)]
struct Gathering {
    buffer: AlignedBuffer,
    length: usize,
}

/// Where memory comes back to.
type Shelf = Arc<Mutex<Option<AlignedBuffer>>>;

/// Memory of a frame, under the `Bytes` that are written.
struct Lent {
    buffer: AlignedBuffer,
    shelf: Shelf,
}

/// Builds the frames of a log, one in flight at a time.
///
/// [`append`](Self::append) records; whenever [`next_frame`](Self::next_frame)
/// gives a frame, write it and make it durable, then call
/// [`frame_durable`](Self::frame_durable). Whoever waits for a position is
/// answered once [`durable`](Self::durable) has reached it.
#[derive(Debug)]
pub struct LogWriter {
    log_id: LogId,
    epoch: u64,
    position: ChainPosition,
    gathering: Gathering,
    spare: Shelf,
    records: u32,
    in_flight: bool,
    durable: Position,
}

impl LogWriter {
    /// A writer that goes on at `position`, as the owner of `epoch`.
    ///
    /// # Panics
    /// If the log has already seen a higher epoch.
    #[must_use]
    pub fn new(log_id: LogId, epoch: u64, position: ChainPosition) -> Self {
        assert!(
            epoch >= position.epoch,
            "a log never goes back to an old epoch"
        );
        Self {
            log_id,
            epoch,
            position,
            gathering: Gathering::in_memory(AlignedBuffer::zeroed(BLOCK_BYTES)),
            spare: Shelf::default(),
            records: 0,
            in_flight: false,
            durable: Position(position.next_sequence - 1),
        }
    }

    /// Adds a record to the frame that is being gathered; its position.
    ///
    /// The caller bounds what it appends before frames become durable, see
    /// [`gathered_bytes`](Self::gathered_bytes).
    ///
    /// # Panics
    /// If the record alone exceeds [`FRAME_PAYLOAD_BYTES_MAX`].
    pub fn append(&mut self, record: &[u8]) -> Position {
        self.append_parts(&[record])
    }

    /// Adds a record whose bytes lie in several places.
    ///
    /// # Panics
    /// If the record alone exceeds [`FRAME_PAYLOAD_BYTES_MAX`].
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Position {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        assert!(
            length + 10 <= FRAME_PAYLOAD_BYTES_MAX,
            "a record of {length} bytes"
        );
        give_varint(length as u64, |byte| self.gathering.push(&[byte]));
        for part in parts {
            self.gathering.push(part);
        }
        self.records += 1;
        self.gathering_position()
    }

    /// Bytes that wait for the frame in flight; a caller stops appending, and
    /// answers "busy", before this reaches [`FRAME_PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub const fn gathered_bytes(&self) -> usize {
        self.gathering.length - FRAME_HEADER_BYTES
    }

    /// Records that are gathered for the next frame.
    #[must_use]
    pub const fn gathered_records(&self) -> u32 {
        self.records
    }

    /// The next frame to write, if there are records and no frame is in flight.
    pub fn next_frame(&mut self) -> Option<PendingFrame> {
        if self.in_flight || self.records == 0 {
            return None;
        }
        let kept = take(&self.spare);
        let memory = kept.unwrap_or_else(|| AlignedBuffer::zeroed(BLOCK_BYTES));
        let Gathering { mut buffer, length } =
            std::mem::replace(&mut self.gathering, Gathering::in_memory(memory));
        let position = Position(self.position.next_sequence);
        let checksum = finish_frame(
            &mut buffer[..length],
            self.log_id,
            self.epoch,
            &self.position,
            self.records,
        );
        self.position = ChainPosition {
            next_sequence: position.0 + 1,
            previous_checksum: checksum,
            epoch: self.epoch,
        };
        self.records = 0;
        self.in_flight = true;
        let end = length.next_multiple_of(BLOCK_BYTES);
        buffer[length..end].fill(0);
        let lent = Lent {
            buffer,
            shelf: Arc::clone(&self.spare),
        };
        Some(PendingFrame {
            position,
            padded: Bytes::from_owner(lent).slice(..end),
            length,
        })
    }

    /// The frame in flight is on stable storage; returns the new durable position.
    ///
    /// # Panics
    /// If none is in flight.
    pub fn frame_durable(&mut self) -> Position {
        assert!(self.in_flight, "no frame is in flight");
        self.in_flight = false;
        self.durable = Position(self.position.next_sequence - 1);
        self.durable
    }

    /// Up to where the log is durable.
    #[must_use]
    pub const fn durable(&self) -> Position {
        self.durable
    }

    /// The position that a record appended now gets.
    #[must_use]
    pub const fn gathering_position(&self) -> Position {
        Position(self.position.next_sequence)
    }

    /// Whether everything that was appended is durable.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        !self.in_flight && self.records == 0
    }

    /// The chain after the last frame that was handed out.
    #[must_use]
    pub const fn chain(&self) -> ChainPosition {
        self.position
    }
}

impl Gathering {
    /// Nothing but room for the header.
    const fn in_memory(buffer: AlignedBuffer) -> Self {
        Self {
            buffer,
            length: FRAME_HEADER_BYTES,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if end > self.buffer.len() {
            self.buffer.grow(end.max(2 * self.buffer.len()));
        }
        self.buffer[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}

fn take(shelf: &Shelf) -> Option<AlignedBuffer> {
    let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    shelf.take()
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.buffer.len() <= KEPT_BYTES_MAX {
            let buffer = std::mem::replace(&mut self.buffer, AlignedBuffer::zeroed(0));
            let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
            *shelf = Some(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FrameError, FrameReader};

    const LOG: LogId = LogId(42);

    fn frames(batches: &[Vec<Vec<u8>>]) -> Vec<Bytes> {
        let mut writer = LogWriter::new(LOG, 1, ChainPosition::start());
        let mut frames = Vec::new();
        for batch in batches {
            for record in batch {
                writer.append(record);
            }
            if let Some(frame) = writer.next_frame() {
                // Of its own: the memory is gathered in again.
                frames.push(Bytes::copy_from_slice(&frame.bytes()));
                writer.frame_durable();
            }
        }
        frames
    }

    /// Goal: while a frame is in flight records gather, and go out in one frame.
    #[test]
    fn records_gather_behind_the_frame_in_flight() {
        let mut writer = LogWriter::new(LOG, 1, ChainPosition::start());
        assert_eq!(writer.append(b"a"), Position(1));
        assert!(writer.next_frame().is_some());
        assert_eq!(writer.append(b"b"), Position(2));
        assert_eq!(writer.append(b"c"), Position(2));
        assert!(writer.next_frame().is_none(), "one frame at a time");
        assert_eq!(writer.frame_durable(), Position(1));
        let second = writer.next_frame();
        assert_eq!(second.map(|frame| frame.position), Some(Position(2)));
        assert!(!writer.is_idle());
        assert_eq!(writer.frame_durable(), Position(2));
        assert!(writer.is_idle());
    }

    /// Goal: an old lap, another log and another owner's tail are never read as ours.
    #[test]
    fn foreign_tails_are_cut() {
        let ours = frames(&[vec![b"1".to_vec()], vec![b"2".to_vec()]]);
        let mut reader = FrameReader::new(LOG, ChainPosition::start());
        assert!(reader.read(&ours[0]).is_ok());
        assert_eq!(reader.read(&ours[0]).err(), Some(FrameError::Unchained));

        let mut other = LogWriter::new(LOG, 1, ChainPosition::start());
        other.append(b"x");
        assert!(other.next_frame().is_some());
        other.frame_durable();
        other.append(b"y");
        let tail = other
            .next_frame()
            .map(|frame| frame.bytes())
            .unwrap_or_default();
        assert_eq!(reader.read(&tail).err(), Some(FrameError::Unchained));

        let mut foreign = FrameReader::new(LogId(43), ChainPosition::start());
        assert_eq!(foreign.read(&ours[0]).err(), Some(FrameError::Foreign));
    }

    proptest! {
        /// Goal: what was written is read back, record for record.
        #[test]
        fn records_come_back(batches: Vec<Vec<Vec<u8>>>) {
            let mut reader = FrameReader::new(LOG, ChainPosition::start());
            let mut read = Vec::new();
            for bytes in frames(&batches) {
                let frame = reader.read(&bytes).expect("our own frame");
                prop_assert_eq!(frame.length_bytes, bytes.len());
                read.extend(frame.records().map(|record| record.to_vec()));
            }
            prop_assert_eq!(read, batches.concat());
        }

        /// Goal: one damaged byte anywhere ends the log there.
        #[test]
        fn damage_is_seen(records: Vec<Vec<u8>>, at: proptest::sample::Index, flip in 1u8..) {
            let written = frames(&[vec![b"first".to_vec()], records]);
            let mut bytes = written[written.len() - 1].to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let mut reader = FrameReader::new(LOG, ChainPosition::start());
            if written.len() > 1 {
                prop_assert!(reader.read(&written[0]).is_ok());
            }
            prop_assert!(reader.read(&Bytes::from(bytes)).is_err());
        }

        /// Goal: no bytes make the reader panic.
        #[test]
        fn random_bytes_are_no_frame(bytes: Vec<u8>) {
            let mut reader = FrameReader::new(LOG, ChainPosition::start());
            prop_assert!(reader.read(&Bytes::from(bytes)).is_err());
        }
    }
}
