//! Layout of a checkpoint object: chunks of whole changes, and a trailer.
//!
//! Every chunk begins at a multiple of 4 KiB and is padded with zeros to one.
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDCP" |
//! | 4 | 1 | format | 2 |
//! | 5 | 1 | kind | 1 changes, 2 trailer |
//! | 6 | 2 | – | zero |
//! | 8 | 4 | length | bytes of the payload |
//! | 12 | 4 | checksum | CRC32C of bytes 0–11 and the payload |
//! | 16 | … | payload | changes as in log records; or the trailer's fields |
//!
//! Trailer (varints): number of chunks before it, CRC32C over their checksums
//! (4 bytes little-endian each), then where replay begins: log object, offset,
//! next sequence, checksum of the frame before, epoch.

use bytes::{Buf, BytesMut};
use crossdock_checksum::{crc32c, crc32c_append};
use crossdock_log::{ChainPosition, put_varint};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload};

use crate::log::LogPoint;
use crate::record::{Change, get_number};

const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"XDCP";
const FORMAT: u8 = 2;
const KIND_CHANGES: u8 = 1;
const KIND_TRAILER: u8 = 2;

/// Most bytes of one chunk that is accepted.
const CHUNK_BYTES_MAX: usize = 8 << 20;

/// Builds the chunks of a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct ChunkWriter {
    chunks: u32,
    checksum: u32,
    /// Where the next chunk begins.
    pub(crate) offset_bytes: u64,
}

impl ChunkWriter {
    pub(crate) fn changes(&mut self, payload: &[u8]) -> Payload {
        let chunk = self.chunk(KIND_CHANGES, payload);
        self.chunks += 1;
        chunk
    }

    pub(crate) fn trailer(&mut self, start: &LogPoint) -> Payload {
        let mut payload = Vec::new();
        for number in [
            self.chunks.into(),
            self.checksum.into(),
            start.segment.into(),
            start.offset_bytes,
            start.chain.next_sequence,
            start.chain.previous_checksum.into(),
            start.chain.epoch,
        ] {
            put_varint(&mut payload, number);
        }
        self.chunk(KIND_TRAILER, &payload)
    }

    fn chunk(&mut self, kind: u8, payload: &[u8]) -> Payload {
        let mut buffer = AlignedBuffer::zeroed(HEADER_BYTES + payload.len());
        buffer[0..4].copy_from_slice(&MAGIC);
        buffer[4] = FORMAT;
        buffer[5] = kind;
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        buffer[8..12].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c_append(crc32c(&buffer[..12]), payload);
        buffer[12..16].copy_from_slice(&checksum.to_le_bytes());
        buffer[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        self.checksum = crc32c_append(self.checksum, &checksum.to_le_bytes());
        self.offset_bytes += buffer.len() as u64;
        Payload::from(buffer.freeze())
    }
}

/// Reads the chunks of a checkpoint, whatever pieces its bytes come in.
#[derive(Debug, Default)]
pub(crate) struct ChunkReader {
    buffer: BytesMut,
    chunks: u32,
    checksum: u32,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// More bytes are needed to tell.
    Unfinished,
    Changes(Vec<Change>),
    /// The end: the checkpoint is whole, and replay begins there.
    Trailer(LogPoint),
    /// Another version wrote it.
    Unknown(u8),
    /// Not a checkpoint, or a damaged one.
    Damaged,
}

impl ChunkReader {
    pub(crate) fn push(&mut self, payload: &Payload) {
        for piece in payload.pieces() {
            self.buffer.extend_from_slice(piece);
        }
    }

    pub(crate) fn next(&mut self) -> Chunk {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            return Chunk::Unfinished;
        };
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (kind, checksum) = (header[5], number(12));
        let Ok(length) = usize::try_from(number(8)) else {
            return Chunk::Damaged;
        };
        if header[..4] != MAGIC || length > CHUNK_BYTES_MAX {
            return Chunk::Damaged;
        }
        let whole = (HEADER_BYTES + length).next_multiple_of(BLOCK_BYTES);
        if self.buffer.len() < whole {
            return Chunk::Unfinished;
        }
        let bytes = self.buffer.split_to(whole);
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + length];
        if crc32c_append(crc32c(&bytes[..12]), payload) != checksum {
            return Chunk::Damaged;
        }
        if bytes[4] != FORMAT {
            return Chunk::Unknown(bytes[4]);
        }
        match kind {
            KIND_CHANGES => {
                self.chunks += 1;
                self.checksum = crc32c_append(self.checksum, &checksum.to_le_bytes());
                decode_changes(payload).map_or(Chunk::Damaged, Chunk::Changes)
            }
            KIND_TRAILER => self
                .decode_trailer(payload)
                .map_or(Chunk::Damaged, Chunk::Trailer),
            _ => Chunk::Damaged,
        }
    }

    fn decode_trailer(&self, mut payload: &[u8]) -> Option<LogPoint> {
        let bytes = &mut payload;
        let chunks: u32 = get_number(bytes)?;
        let checksum: u32 = get_number(bytes)?;
        let start = LogPoint {
            segment: get_number(bytes)?,
            offset_bytes: get_number(bytes)?,
            chain: ChainPosition {
                next_sequence: get_number(bytes)?,
                previous_checksum: get_number(bytes)?,
                epoch: get_number(bytes)?,
            },
        };
        let whole = chunks == self.chunks && checksum == self.checksum && !bytes.has_remaining();
        (whole && start.chain.next_sequence > 0).then_some(start)
    }
}

fn decode_changes(mut payload: &[u8]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    while !payload.is_empty() {
        changes.push(Change::decode(&mut payload)?);
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point() -> LogPoint {
        LogPoint {
            segment: 3,
            offset_bytes: 4711,
            chain: ChainPosition {
                next_sequence: 9,
                previous_checksum: 0xdead_beef,
                epoch: 2,
            },
        }
    }

    fn checkpoint() -> Vec<u8> {
        let mut writer = ChunkWriter::default();
        let mut whole = Vec::new();
        for id in [5, 6] {
            let mut payload = Vec::new();
            Change::Done(id).encode(&mut payload);
            whole.extend_from_slice(&writer.changes(&payload).to_bytes());
        }
        whole.extend_from_slice(&writer.trailer(&point()).to_bytes());
        assert_eq!(writer.offset_bytes, whole.len() as u64);
        whole
    }

    fn read(bytes: &[u8], step: usize) -> Option<(usize, LogPoint)> {
        let mut reader = ChunkReader::default();
        let mut changes = 0;
        for piece in bytes.chunks(step) {
            reader.push(&Payload::from(bytes::Bytes::copy_from_slice(piece)));
            loop {
                match reader.next() {
                    Chunk::Unfinished => break,
                    Chunk::Changes(found) => changes += found.len(),
                    Chunk::Trailer(start) => return Some((changes, start)),
                    Chunk::Damaged | Chunk::Unknown(_) => return None,
                }
            }
        }
        None
    }

    /// Goal: a checkpoint comes back, whatever pieces it is read in.
    #[test]
    fn chunks_come_back() {
        for step in [1 << 20, 4096, 1000] {
            assert_eq!(read(&checkpoint(), step), Some((2, point())));
        }
        assert_eq!(read(&checkpoint()[..8192], 4096), None, "no trailer");
        let mut without_first = checkpoint();
        without_first.drain(..4096);
        assert_eq!(read(&without_first, 4096), None, "a chunk is missing");
    }

    /// Goal: what another version wrote is said to be that, and not taken for damage.
    #[test]
    fn another_format_is_told_from_damage() {
        let mut later = checkpoint();
        later[4] = FORMAT - 1;
        let checksum = crc32c_append(crc32c(&later[..12]), &later[16..16 + 2]);
        later[12..16].copy_from_slice(&checksum.to_le_bytes());
        let mut reader = ChunkReader::default();
        reader.push(&Payload::from(bytes::Bytes::from(later)));
        assert_eq!(reader.next(), Chunk::Unknown(FORMAT - 1));
    }

    proptest! {
        /// Goal: no bytes make the reader panic.
        #[test]
        fn random_bytes_are_no_checkpoint(mut bytes: Vec<u8>, like: bool) {
            if like && bytes.len() > 5 {
                bytes[..5].copy_from_slice(b"XDCP\x02");
                bytes.resize(8192, 0);
            }
            prop_assert_eq!(read(&bytes, 4096), None);
        }
    }
}
