//! Map records: where the blocks of each file are, as an array indexed by the
//! file's serial (Slice 4.4), in chunks that checkpoints share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_names::Version;

use crate::space::UNIT_BYTES;

/// Bytes of a logical block.
pub(crate) const BLOCK_BYTES: u32 = 8 << 10;

/// Logical blocks below the threshold.
pub(crate) const BLOCKS: usize = 8;

/// Map records in a chunk.
pub(crate) const CHUNK_FILES: u64 = RECORDS as u64;

const RECORDS: usize = 64;

/// The fragment of one logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// First unit in backing space.
    pub(crate) unit: u32,
    /// CRC32C of the stored bytes.
    pub(crate) crc: u32,
    /// Bytes that were written; 0 = a hole.
    pub(crate) stored: u16,
    /// Bytes of these that have not been cut off since; zeros follow.
    pub(crate) valid: u16,
}

impl Block {
    pub(crate) const HOLE: Self = Self {
        unit: 0,
        crc: 0,
        stored: 0,
        valid: 0,
    };

    pub(crate) const fn is_hole(&self) -> bool {
        self.stored == 0
    }

    /// Size of the fragment.
    pub(crate) const fn units(&self) -> u32 {
        fragment_units(self.stored as u32)
    }
}

/// Units of a fragment for `stored` bytes: the next power of two from 128 B.
pub(crate) const fn fragment_units(stored: u32) -> u32 {
    let units = stored.div_ceil(UNIT_BYTES).next_power_of_two();
    if units == 0 { 1 } else { units }
}

/// All blocks of a file, and the newest version among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) version: Version,
    pub(crate) blocks: [Block; BLOCKS],
}

impl Blocks {
    pub(crate) const EMPTY: Self = Self {
        version: Version::NONE,
        blocks: [Block::HOLE; BLOCKS],
    };

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Block)> {
        let present = |(_, block): &(usize, Block)| !block.is_hole();
        self.blocks.into_iter().enumerate().filter(present)
    }
}

/// The map record of a file as it is kept: most files have one block, and it
/// is right in the array.
#[derive(Clone, Debug, Default)]
enum Record {
    #[default]
    Empty,
    One {
        version: Version,
        block: Block,
    },
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    version: Version,
    blocks: Box<[Block]>,
}

const _: () = assert!(size_of::<Record>() == 24, "map records are compact");

impl Record {
    fn pack(blocks: &Blocks) -> Self {
        let version = blocks.version;
        let used = BLOCKS
            - blocks
                .blocks
                .iter()
                .rev()
                .take_while(|block| block.is_hole())
                .count();
        match used {
            0 => Self::Empty,
            1 => Self::One {
                version,
                block: blocks.blocks[0],
            },
            _ => Self::Many(Box::new(Many {
                version,
                blocks: Box::from(&blocks.blocks[..used]),
            })),
        }
    }

    fn unpack(&self) -> Blocks {
        let mut blocks = Blocks::EMPTY;
        match self {
            Self::Empty => {}
            Self::One { version, block } => {
                blocks.version = *version;
                blocks.blocks[0] = *block;
            }
            Self::Many(many) => {
                blocks.version = many.version;
                blocks.blocks[..many.blocks.len()].copy_from_slice(&many.blocks);
            }
        }
        blocks
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Empty | Self::One { .. } => 0,
            Self::Many(many) => size_of::<Many>() + size_of_val(&*many.blocks),
        }
    }
}

/// 64 map records of neighbouring serials.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    files: usize,
    records: [Record; RECORDS],
}

impl Chunk {
    /// The files that have a record: place in the chunk and blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Blocks)> {
        (0..)
            .zip(&self.records)
            .filter_map(|(index, record)| match record {
                Record::Empty => None,
                record => Some((index, record.unpack())),
            })
    }
}

/// The map records of all files.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    files: usize,
    heap_bytes: usize,
}

impl Maps {
    pub(crate) fn get(&self, serial: u64) -> Blocks {
        self.chunks
            .get(&(serial / CHUNK_FILES))
            .map_or(Blocks::EMPTY, |chunk| {
                chunk.records[index_of(serial)].unpack()
            })
    }

    pub(crate) fn set(&mut self, serial: u64, blocks: &Blocks) {
        let record = Record::pack(blocks);
        let key = serial / CHUNK_FILES;
        if matches!(record, Record::Empty) && !self.chunks.contains_key(&key) {
            return;
        }
        let chunk = Arc::make_mut(self.chunks.entry(key).or_insert_with(|| {
            Arc::new(Chunk {
                files: 0,
                records: [const { Record::Empty }; RECORDS],
            })
        }));
        let place = &mut chunk.records[index_of(serial)];
        let count = |record: &Record| usize::from(!matches!(record, Record::Empty));
        self.heap_bytes = self.heap_bytes + record.heap_bytes() - place.heap_bytes();
        self.files = self.files + count(&record) - count(place);
        chunk.files = chunk.files + count(&record) - count(place);
        *place = record;
        if chunk.files == 0 {
            self.chunks.remove(&key);
        }
    }

    /// The chunks as they are now, shared.
    pub(crate) fn freeze(&self) -> Vec<(u64, Arc<Chunk>)> {
        self.chunks
            .iter()
            .map(|(&key, chunk)| (key, Arc::clone(chunk)))
            .collect()
    }

    /// All files that have a record.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Blocks)> {
        self.chunks.iter().flat_map(|(&key, chunk)| {
            chunk
                .iter()
                .map(move |(index, blocks)| (key * CHUNK_FILES + index, blocks))
        })
    }

    pub(crate) const fn files(&self) -> usize {
        self.files
    }

    /// What the records cost: chunks with their counts and tree entries, side
    /// records.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entry = size_of::<u64>() + size_of::<Arc<Chunk>>() + 2 * size_of::<usize>();
        self.chunks.len() * (size_of::<Chunk>() + entry) + self.heap_bytes
    }
}

const fn index_of(serial: u64) -> usize {
    (serial % CHUNK_FILES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(used: &[usize]) -> Blocks {
        let mut blocks = Blocks::EMPTY;
        blocks.version = Version(9);
        for &index in used {
            blocks.blocks[index] = Block {
                unit: 64,
                crc: 5,
                stored: 8192,
                valid: 1,
            };
        }
        blocks
    }

    /// Goal: every shape of a file survives packing; empty chunks vanish.
    #[test]
    fn records_come_back_as_they_were_set() {
        let mut maps = Maps::default();
        let shapes: [&[usize]; 4] = [&[0], &[7], &[0, 1, 2], &[1, 5]];
        for (serial, shape) in (60..).zip(shapes) {
            maps.set(serial, &blocks(shape));
            assert_eq!(maps.get(serial), blocks(shape));
        }
        maps.set(1 << 40, &Blocks::EMPTY);
        assert_eq!((maps.files(), maps.chunks.len()), (4, 1));
        maps.set(64, &blocks(&[0]));
        assert_eq!(maps.chunks.len(), 2);
        for serial in 60..65 {
            maps.set(serial, &Blocks::EMPTY);
        }
        assert_eq!((maps.files(), maps.memory_bytes()), (0, 0));
    }

    /// Goal: a file of one block costs less than 26 bytes of map.
    #[test]
    fn a_small_file_costs_one_array_place() {
        let mut maps = Maps::default();
        for serial in 0..6400 {
            maps.set(serial, &blocks(&[0]));
        }
        assert!(maps.memory_bytes() < 6400 * 26, "{}", maps.memory_bytes());
    }

    /// Goal: fragments have power-of-two sizes from 128 B.
    #[test]
    fn fragment_sizes() {
        let units: Vec<u32> = [1, 128, 129, 300, 4096, 4097, 8192]
            .map(fragment_units)
            .to_vec();
        assert_eq!(units, [1, 1, 2, 4, 32, 64, 64]);
    }
}
