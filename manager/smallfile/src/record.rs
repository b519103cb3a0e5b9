//! Records of changes, as they lie in the site's log.
//!
//! | bytes | name | meaning |
//! |---|---|---|
//! | 1 | format | 1 |
//! | 1 | kind | below |
//! | varint | sequence | number of the change |
//! | varint | age | sequence − age: backing writes of all changes below are durable |
//!
//! then, by kind (numbers are varints unless a width is given; little-endian):
//!
//! | kind | name | layout |
//! |---|---|---|
//! | 1 | inline | count, then per piece: serial, offset, length, bytes |
//! | 2 | write | version (8 bytes), count of files, then per file: serial, count of blocks, per block: index (1 byte), unit, stored, CRC32C (4 bytes) |
//! | 3 | truncate | serial, size |
//! | 4 | void | count, sequences |
//! | 5 | mark | nothing |

use bytes::Bytes;
use crossdock_log::{get_varint, put_varint};
use crossdock_names::Version;
use thiserror::Error;

use crate::backing::Backing;
use crate::map::{BLOCK_BYTES, BLOCKS, Block};
use crate::overlay::END;
use crate::{BackingRead, Sequence};

/// Format of records and checkpoint chunks.
pub(crate) const FORMAT: u8 = 1;

/// Files that one record may write, so that it fits a frame of the log.
pub(crate) const RECORD_FILES_MAX: usize = 4096;

/// A record that cannot be what this site wrote.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// Written by a newer version.
    #[error("small-file record of unknown format {0}")]
    UnknownFormat(u8),
    /// Ends early, or holds numbers that make no sense.
    #[error("malformed small-file record: {0}")]
    Malformed(&'static str),
    /// It takes space that is not free: records are missing or out of order.
    #[error("small-file record {sequence} takes space that is in use")]
    Overlap {
        /// Which record, or the one that a checkpoint covers.
        sequence: u64,
    },
}

/// What a replay has to know of a record before it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    /// Its number.
    pub sequence: Sequence,
    /// Backing writes of all changes below this were durable when it was logged.
    pub written_below: Sequence,
    /// Changes that it declares void.
    pub voids: Vec<Sequence>,
    /// What its backing writes wrote; empty if it had none.
    pub verify: Vec<BackingRead>,
}

/// A record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) written_below: u64,
    pub(crate) body: Body,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Pieces whose bytes are in the record.
    Inline(Vec<(u64, u32, Bytes)>),
    /// Whole blocks in new fragments; what was inlined in them is within.
    Write {
        version: Version,
        files: Vec<(u64, Vec<(usize, Block)>)>,
    },
    /// Everything at and beyond the size is gone.
    Truncate { serial: u64, size: u32 },
    /// These changes never happened.
    Void(Vec<u64>),
    /// Nothing, but that the log moved on.
    Mark,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, self.body.kind()];
        put_varint(&mut bytes, self.sequence);
        put_varint(&mut bytes, self.sequence - self.written_below);
        match &self.body {
            Body::Inline(pieces) => {
                put_varint(&mut bytes, pieces.len() as u64);
                for (serial, offset, piece) in pieces {
                    put_piece(&mut bytes, *serial, *offset, piece);
                }
            }
            Body::Write { version, files } => {
                bytes.extend_from_slice(&version.0.to_le_bytes());
                put_varint(&mut bytes, files.len() as u64);
                for (serial, blocks) in files {
                    put_varint(&mut bytes, *serial);
                    put_varint(&mut bytes, blocks.len() as u64);
                    for (index, block) in blocks {
                        put_block(&mut bytes, *index, block);
                    }
                }
            }
            Body::Truncate { serial, size } => {
                put_varint(&mut bytes, *serial);
                put_varint(&mut bytes, u64::from(*size));
            }
            Body::Void(sequences) => {
                put_varint(&mut bytes, sequences.len() as u64);
                for &sequence in sequences {
                    put_varint(&mut bytes, sequence);
                }
            }
            Body::Mark => {}
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut input = Input(bytes);
        let format = input.byte()?;
        if format != FORMAT {
            return Err(RecordError::UnknownFormat(format));
        }
        let kind = input.byte()?;
        let sequence = input.number()?;
        let age = input.number()?;
        let written_below = sequence
            .checked_sub(age)
            .ok_or(RecordError::Malformed("age above sequence"))?;
        let body = Body::decode(kind, &mut input)?;
        input.end()?;
        Ok(Self {
            sequence,
            written_below,
            body,
        })
    }

    /// The files that it is about.
    pub(crate) fn serials(&self) -> Vec<u64> {
        match &self.body {
            Body::Inline(pieces) => {
                let mut serials: Vec<u64> = pieces.iter().map(|(serial, ..)| *serial).collect();
                serials.dedup();
                serials
            }
            Body::Write { files, .. } => files.iter().map(|(serial, _)| *serial).collect(),
            Body::Truncate { serial, .. } => vec![*serial],
            Body::Void(_) | Body::Mark => Vec::new(),
        }
    }

    pub(crate) fn summary(&self, backing: Backing) -> RecordSummary {
        let mut voids = Vec::new();
        let mut verify = Vec::new();
        match &self.body {
            Body::Void(sequences) => voids = sequences.iter().copied().map(Sequence).collect(),
            Body::Write { version, files } => {
                for (_, block) in files.iter().flat_map(|(_, blocks)| blocks) {
                    let range = (0, u32::from(block.stored));
                    backing.push_read(&mut verify, block, range, *version);
                }
            }
            Body::Inline(_) | Body::Truncate { .. } | Body::Mark => {}
        }
        RecordSummary {
            sequence: Sequence(self.sequence),
            written_below: Sequence(self.written_below),
            voids,
            verify,
        }
    }
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Inline(_) => 1,
            Self::Write { .. } => 2,
            Self::Truncate { .. } => 3,
            Self::Void(_) => 4,
            Self::Mark => 5,
        }
    }

    fn decode(kind: u8, input: &mut Input<'_>) -> Result<Self, RecordError> {
        Ok(match kind {
            1 => {
                let count = input.count()?;
                Self::Inline(
                    (0..count)
                        .map(|_| input.piece())
                        .collect::<Result<_, _>>()?,
                )
            }
            2 => {
                let version = Version(input.word()?);
                let count = input.count()?;
                let files = (0..count).map(|_| {
                    let serial = input.number()?;
                    let count = input.count()?;
                    let blocks = (0..count).map(|_| input.block());
                    Ok((serial, blocks.collect::<Result<_, _>>()?))
                });
                Self::Write {
                    version,
                    files: files.collect::<Result<_, _>>()?,
                }
            }
            3 => Self::Truncate {
                serial: input.number()?,
                size: input.below(END)?,
            },
            4 => {
                let count = input.count()?;
                Self::Void(
                    (0..count)
                        .map(|_| input.number())
                        .collect::<Result<_, _>>()?,
                )
            }
            5 => Self::Mark,
            _ => return Err(RecordError::Malformed("unknown kind")),
        })
    }
}

/// Layout of a piece, in records and checkpoints.
pub(crate) fn put_piece(bytes: &mut Vec<u8>, serial: u64, offset: u32, piece: &[u8]) {
    put_varint(bytes, serial);
    put_varint(bytes, u64::from(offset));
    put_varint(bytes, piece.len() as u64);
    bytes.extend_from_slice(piece);
}

/// Layout of a block, in records and checkpoints.
pub(crate) fn put_block(bytes: &mut Vec<u8>, index: usize, block: &Block) {
    bytes.push(u8::try_from(index).unwrap_or(u8::MAX));
    put_varint(bytes, u64::from(block.unit));
    put_varint(bytes, u64::from(block.stored));
    bytes.extend_from_slice(&block.crc.to_le_bytes());
}

/// Bytes of the log or of a checkpoint on their way in: nothing is believed.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RecordError> {
        let (&byte, rest) = self
            .0
            .split_first()
            .ok_or(RecordError::Malformed("short"))?;
        self.0 = rest;
        Ok(byte)
    }

    pub(crate) fn word(&mut self) -> Result<u64, RecordError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn number(&mut self) -> Result<u64, RecordError> {
        get_varint(&mut self.0).ok_or(RecordError::Malformed("short number"))
    }

    /// A number up to `max`.
    pub(crate) fn below(&mut self, max: u32) -> Result<u32, RecordError> {
        let number = u32::try_from(self.number()?).unwrap_or(u32::MAX);
        (number <= max)
            .then_some(number)
            .ok_or(RecordError::Malformed("out of range"))
    }

    /// A count of things that take a byte at least.
    pub(crate) fn count(&mut self) -> Result<usize, RecordError> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        (count <= self.0.len())
            .then_some(count)
            .ok_or(RecordError::Malformed("count"))
    }

    pub(crate) fn piece(&mut self) -> Result<(u64, u32, Bytes), RecordError> {
        let serial = self.number()?;
        let offset = self.below(END)?;
        let length = self.below(END - offset)? as usize;
        let (piece, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(RecordError::Malformed("short piece"))?;
        self.0 = rest;
        Ok((serial, offset, Bytes::copy_from_slice(piece)))
    }

    pub(crate) fn block(&mut self) -> Result<(usize, Block), RecordError> {
        let index = usize::from(self.byte()?);
        let unit = self.below(u32::MAX)?;
        let stored = u16::try_from(self.below(BLOCK_BYTES)?).unwrap_or(0);
        let crc = u32::from_le_bytes(self.array()?);
        if index >= BLOCKS || stored == 0 {
            return Err(RecordError::Malformed("block"));
        }
        let block = Block {
            unit,
            crc,
            stored,
            valid: stored,
        };
        Ok((index, block))
    }

    pub(crate) const fn end(&self) -> Result<(), RecordError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RecordError::Malformed("bytes after the end"))
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (array, rest) = self
            .0
            .split_first_chunk()
            .ok_or(RecordError::Malformed("short"))?;
        self.0 = rest;
        Ok(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let block = Block {
            unit: 77,
            crc: 0xdead_beef,
            stored: 8192,
            valid: 8192,
        };
        let bodies = [
            Body::Inline(vec![
                (1 << 47, 65_000, Bytes::from_static(b"abc")),
                (2, 0, Bytes::from_static(b"d")),
            ]),
            Body::Write {
                version: Version(u64::MAX),
                files: vec![(3, vec![(0, block), (7, block)]), (4, vec![(1, block)])],
            },
            Body::Truncate {
                serial: 9,
                size: 65_535,
            },
            Body::Void(vec![1, 2, 300]),
            Body::Mark,
        ];
        let record = |body| Record {
            sequence: 1000,
            written_below: 900,
            body,
        };
        bodies.into_iter().map(record).collect()
    }

    /// Goal: every kind survives; nothing cut short or longer is taken.
    #[test]
    fn records_survive_and_garbage_does_not() {
        for record in records() {
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err());
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert!(Record::decode(&longer).is_err());
        }
    }

    proptest::proptest! {
        /// Goal: no bytes make the decoder panic.
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), kind in 1u8..6) {
            if bytes.len() > 2 {
                bytes[0] = FORMAT;
                bytes[1] = kind;
            }
            drop(Record::decode(&bytes));
        }
    }
}
