//! Frames: what one write to the medium holds.
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDLG" |
//! | 4 | 1 | format | 1 |
//! | 5 | 3 | – | zero |
//! | 8 | 8 | log id | random id of the log |
//! | 16 | 8 | epoch | of the owner that wrote it |
//! | 24 | 8 | sequence | 1, 2, 3 … within the log |
//! | 32 | 4 | records | number of records |
//! | 36 | 4 | payload length | bytes after the header |
//! | 40 | 4 | previous | checksum of the frame before, 0 for the first |
//! | 44 | 4 | checksum | CRC32C of bytes 0–43 and the payload |
//! | 48 | … | payload | records: varint length, bytes |

use bytes::Bytes;
use crossdock_checksum::{crc32c, crc32c_append};
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::get_varint;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 48;

/// Most payload bytes of a frame.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 8 << 20;

const MAGIC: [u8; 4] = *b"XDLG";
const FORMAT: u8 = 1;

/// Random number of a log; frames of another log are foreign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogId(pub u64);

/// Where a chain of frames has got to: what the next frame must say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainPosition {
    /// Sequence of the next frame, from 1.
    pub next_sequence: u64,
    /// Checksum of the frame before it.
    pub previous_checksum: u32,
    /// Highest epoch so far.
    pub epoch: u64,
}

impl ChainPosition {
    /// The beginning of a log.
    #[must_use]
    pub const fn start() -> Self {
        Self {
            next_sequence: 1,
            previous_checksum: 0,
            epoch: 0,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    format: u8,
    zero: [u8; 3],
    log_id: U64,
    epoch: U64,
    sequence: U64,
    records: U32,
    payload_length: U32,
    previous: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<Header>() == FRAME_HEADER_BYTES);

/// Why bytes are not the next frame of the log. At the tail every one of them
/// means: the log ends here.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// There are not enough bytes.
    #[error("the frame is cut off")]
    Short,
    /// No frame at all, or of another format.
    #[error("no frame of this format")]
    NotAFrame,
    /// A frame of another log.
    #[error("a frame of another log")]
    Foreign,
    /// An older lap of a ring, or another owner's tail.
    #[error("a frame that does not follow the one before")]
    Unchained,
    /// Torn or damaged.
    #[error("the frame's checksum is wrong")]
    Checksum,
}

/// One frame that was read.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its number in the log.
    pub sequence: u64,
    /// Epoch of the owner that wrote it.
    pub epoch: u64,
    /// Bytes of header and payload, without padding.
    pub length_bytes: usize,
    records: Bytes,
}

impl Frame {
    /// The records in order, sharing the frame's memory.
    pub fn records(&self) -> impl Iterator<Item = Bytes> {
        let mut rest = self.records.clone();
        std::iter::from_fn(move || {
            let mut cursor: &[u8] = &rest;
            let length = usize::try_from(get_varint(&mut cursor)?).ok()?;
            let start = rest.len() - cursor.len();
            if length > cursor.len() {
                return None; // Our own writer never does; the checksum was right.
            }
            let record = rest.slice(start..start + length);
            rest = rest.slice(start + length..);
            Some(record)
        })
    }
}

/// Reads a chain of frames.
#[derive(Clone, Debug)]
pub struct FrameReader {
    log_id: LogId,
    position: ChainPosition,
}

impl FrameReader {
    /// A reader that expects the frame at `position` of the log next.
    #[must_use]
    pub const fn new(log_id: LogId, position: ChainPosition) -> Self {
        Self { log_id, position }
    }

    /// How many bytes the frame at the front of `bytes` has, header included,
    /// as its header says; `None` if there is no header of this log. For
    /// readers that fetch the payload after the header.
    #[must_use]
    pub fn length_of(&self, bytes: &[u8]) -> Option<usize> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let length = usize::try_from(header.payload_length.get()).ok()?;
        (self.check_header(header).is_ok() && length <= FRAME_PAYLOAD_BYTES_MAX)
            .then_some(FRAME_HEADER_BYTES + length)
    }

    /// Takes the frame at the front of `bytes`.
    ///
    /// # Errors
    /// [`FrameError`]: the log ends before these bytes; the position stays.
    pub fn read(&mut self, bytes: &Bytes) -> Result<Frame, FrameError> {
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| FrameError::Short)?;
        self.check_header(header)?;
        let payload_length = header.payload_length.get() as usize;
        if payload_length > FRAME_PAYLOAD_BYTES_MAX {
            return Err(FrameError::NotAFrame);
        }
        let payload = rest.get(..payload_length).ok_or(FrameError::Short)?;
        let checksum = checksum_of(header, payload);
        if checksum != header.checksum.get() {
            return Err(FrameError::Checksum);
        }
        self.position = ChainPosition {
            next_sequence: header.sequence.get() + 1,
            previous_checksum: checksum,
            epoch: header.epoch.get(),
        };
        let length_bytes = FRAME_HEADER_BYTES + payload_length;
        Ok(Frame {
            sequence: header.sequence.get(),
            epoch: header.epoch.get(),
            length_bytes,
            records: bytes.slice(FRAME_HEADER_BYTES..length_bytes),
        })
    }

    /// Whether a whole frame of this log is at the front of `bytes`, wherever in the
    /// chain it belongs.
    #[must_use]
    pub fn is_frame(&self, bytes: &[u8]) -> bool {
        let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
            return false;
        };
        let payload = rest.get(..header.payload_length.get() as usize);
        header.magic == MAGIC
            && header.log_id.get() == self.log_id.0
            && payload.is_some_and(|payload| checksum_of(header, payload) == header.checksum.get())
    }

    /// Where the chain has got to: a writer goes on from here.
    #[must_use]
    pub const fn position(&self) -> ChainPosition {
        self.position
    }

    fn check_header(&self, header: &Header) -> Result<(), FrameError> {
        if header.magic != MAGIC || header.format != FORMAT {
            return Err(FrameError::NotAFrame);
        }
        if header.log_id.get() != self.log_id.0 {
            return Err(FrameError::Foreign);
        }
        let chained = header.sequence.get() == self.position.next_sequence
            && header.previous.get() == self.position.previous_checksum
            && header.epoch.get() >= self.position.epoch;
        if chained {
            Ok(())
        } else {
            Err(FrameError::Unchained)
        }
    }
}

/// Of all of a frame but the checksum itself.
fn checksum_of(header: &Header, payload: &[u8]) -> u32 {
    let fields = &header.as_bytes()[..FRAME_HEADER_BYTES - size_of::<U32>()];
    crc32c_append(crc32c(fields), payload)
}

/// Writes header and checksum in front of the records in `frame`, whose first
/// [`FRAME_HEADER_BYTES`] bytes are room for the header. Returns the checksum.
pub(crate) fn finish_frame(
    frame: &mut [u8],
    log_id: LogId,
    epoch: u64,
    position: &ChainPosition,
    records: u32,
) -> u32 {
    let (head, payload) = frame.split_at_mut(FRAME_HEADER_BYTES);
    assert!(
        payload.len() <= FRAME_PAYLOAD_BYTES_MAX,
        "a frame of {} bytes",
        payload.len()
    );
    let mut header = Header {
        magic: MAGIC,
        format: FORMAT,
        zero: [0; 3],
        log_id: U64::new(log_id.0),
        epoch: U64::new(epoch),
        sequence: U64::new(position.next_sequence),
        records: U32::new(records),
        #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
        payload_length: U32::new(payload.len() as u32),
        previous: U32::new(position.previous_checksum),
        checksum: U32::new(0),
    };
    let checksum = checksum_of(&header, payload);
    header.checksum = U32::new(checksum);
    head.copy_from_slice(header.as_bytes());
    checksum
}
