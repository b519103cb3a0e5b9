//! Checkpoints: the state at one point of the log, handed out in chunks while
//! changes go on.
//!
//! Each chunk: format (1 byte), kind (1 byte), then (varints unless a width is
//! given, little-endian):
//!
//! | kind | name | layout |
//! |---|---|---|
//! | 1 | start | sequence that it covers, units in one backing object, units of backing space |
//! | 2 | maps | per file to the chunk's end: serial, version (8 bytes), count of blocks, per block: index (1 byte), unit, stored, CRC32C (4 bytes), valid |
//! | 3 | pieces | per inlined piece to the chunk's end: serial, offset, length, bytes |
//! | 4 | end | count of files, count of pieces |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_log::put_varint;
use crossdock_names::Version;

use crate::map::{Blocks, CHUNK_FILES, Chunk};
use crate::record::{FORMAT, Input, put_block, put_piece};
use crate::space::BLOCK_UNITS;
use crate::{RecordError, Sequence, SmallFiles};

const KIND_START: u8 = 1;
const KIND_MAPS: u8 = 2;
const KIND_PIECES: u8 = 3;
const KIND_END: u8 = 4;

/// Whether a checkpoint may be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointState {
    /// Records or backing writes of changes within it are still under way.
    Waiting,
    /// Everything in it is durable.
    Ready,
    /// A change within it may have become void: begin another one.
    Broken,
}

/// A frozen view of the small files; shares memory with the live state.
#[derive(Debug)]
pub struct Checkpoint {
    covers: Sequence,
    units_per_object: u32,
    end_units: u64,
    maps: VecDeque<(u64, Arc<Chunk>)>,
    pieces: VecDeque<(u64, u32, Bytes)>,
    in_flight: BTreeSet<u64>,
    voids_before: u64,
    files_out: u64,
    pieces_out: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    Body,
    Done,
}

impl Checkpoint {
    /// Records above this have to be replayed on top of it.
    #[must_use]
    pub const fn covers(&self) -> Sequence {
        self.covers
    }

    /// The next chunk, of about `bytes_max` (exceeded by the map records of 64
    /// files or by one piece at most); `None` after the last.
    pub fn next_chunk(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        match self.stage {
            Stage::Start => {
                self.stage = Stage::Body;
                let mut bytes = vec![FORMAT, KIND_START];
                put_varint(&mut bytes, self.covers.0);
                put_varint(&mut bytes, u64::from(self.units_per_object));
                put_varint(&mut bytes, self.end_units);
                Some(bytes)
            }
            Stage::Body if !self.maps.is_empty() => Some(self.map_chunk(bytes_max)),
            Stage::Body if !self.pieces.is_empty() => Some(self.piece_chunk(bytes_max)),
            Stage::Body => {
                self.stage = Stage::Done;
                let mut bytes = vec![FORMAT, KIND_END];
                put_varint(&mut bytes, self.files_out);
                put_varint(&mut bytes, self.pieces_out);
                Some(bytes)
            }
            Stage::Done => None,
        }
    }

    fn map_chunk(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut bytes = vec![FORMAT, KIND_MAPS];
        while bytes.len() < bytes_max
            && let Some((key, chunk)) = self.maps.pop_front()
        {
            for (index, blocks) in chunk.iter() {
                put_varint(&mut bytes, key * CHUNK_FILES + index);
                bytes.extend_from_slice(&blocks.version.0.to_le_bytes());
                put_varint(&mut bytes, blocks.iter().count() as u64);
                for (index, block) in blocks.iter() {
                    put_block(&mut bytes, index, &block);
                    put_varint(&mut bytes, u64::from(block.valid));
                }
                self.files_out += 1;
            }
        }
        bytes
    }

    fn piece_chunk(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut bytes = vec![FORMAT, KIND_PIECES];
        while bytes.len() < bytes_max
            && let Some((serial, offset, piece)) = self.pieces.pop_front()
        {
            put_piece(&mut bytes, serial, offset, &piece);
            self.pieces_out += 1;
        }
        bytes
    }
}

impl SmallFiles {
    /// Freezes the state. Replay begins with the records that are appended
    /// after this call. Unstable bytes are not part of it.
    #[must_use]
    pub fn begin_checkpoint(&self) -> Checkpoint {
        let pieces = self
            .inlined
            .iter()
            .map(|(serial, start, bytes)| (serial, start, bytes.clone()));
        Checkpoint {
            covers: Sequence(self.next - 1),
            units_per_object: self.backing.units_per_object,
            end_units: self.space.end_units(),
            maps: self.maps.freeze().into(),
            pieces: pieces.collect(),
            in_flight: self.in_flight.keys().copied().collect(),
            voids_before: self.voids,
            files_out: 0,
            pieces_out: 0,
            stage: Stage::Start,
        }
    }

    /// Whether `checkpoint` may become the one that a restart loads.
    #[must_use]
    pub fn checkpoint_state(&self, checkpoint: &Checkpoint) -> CheckpointState {
        if self.voids != checkpoint.voids_before && !checkpoint.in_flight.is_empty() {
            return CheckpointState::Broken;
        }
        let under_way = |sequence: &u64| self.in_flight.contains_key(sequence);
        if checkpoint.covers.0 >= self.durable_below || checkpoint.in_flight.iter().any(under_way) {
            return CheckpointState::Waiting;
        }
        CheckpointState::Ready
    }

    /// Takes the next chunk of a checkpoint, in order, before any replay.
    ///
    /// # Errors
    /// [`RecordError`]: the state is not to be used.
    pub fn load(&mut self, chunk: &[u8]) -> Result<(), RecordError> {
        let mut input = Input(chunk);
        let format = input.byte()?;
        if format != FORMAT {
            return Err(RecordError::UnknownFormat(format));
        }
        match input.byte()? {
            KIND_START => self.load_start(&mut input),
            KIND_MAPS => {
                while !input.is_empty() {
                    self.load_file(&mut input)?;
                }
                Ok(())
            }
            KIND_PIECES => {
                while !input.is_empty() {
                    let (serial, offset, piece) = input.piece()?;
                    self.inlined.insert(serial, offset, piece);
                }
                Ok(())
            }
            KIND_END => {
                let files = input.number()?;
                let pieces = input.number()?;
                let all = files == self.maps.files() as u64
                    && pieces == self.inlined.iter().count() as u64;
                all.then_some(()).ok_or(RecordError::Malformed(
                    "parts of the checkpoint are missing",
                ))
            }
            _ => Err(RecordError::Malformed("unknown chunk")),
        }
    }

    fn load_start(&mut self, input: &mut Input<'_>) -> Result<(), RecordError> {
        let covers = input.number()?;
        if input.number()? != u64::from(self.backing.units_per_object) {
            return Err(RecordError::Malformed("backing objects of another size"));
        }
        let end_units = input.number()?;
        if self.next != 1 || self.maps.files() > 0 || covers == u64::MAX {
            return Err(RecordError::Malformed(
                "a checkpoint begins on an empty state",
            ));
        }
        let end_block = u32::try_from(end_units / u64::from(BLOCK_UNITS));
        self.space
            .extend_to(end_block.map_err(|_| RecordError::Malformed("end of space"))?);
        self.next = covers + 1;
        self.durable_below = self.next;
        self.marked_below_durable = self.next;
        Ok(())
    }

    fn load_file(&mut self, input: &mut Input<'_>) -> Result<(), RecordError> {
        let serial = input.number()?;
        let mut blocks = Blocks {
            version: Version(input.word()?),
            ..Blocks::EMPTY
        };
        for _ in 0..input.count()? {
            let (index, mut block) = input.block()?;
            block.valid = u16::try_from(input.below(u32::from(block.stored))?).unwrap_or(0);
            let known = !blocks.blocks[index].is_hole();
            if known || !self.space.claim(block.unit, block.units()) {
                let sequence = self.next - 1;
                return Err(RecordError::Overlap { sequence });
            }
            blocks.blocks[index] = block;
        }
        self.maps.set(serial, &blocks);
        Ok(())
    }
}
