//! What a set notes before it writes, so that a loss of power leaves no write hole.
//!
//! **Mirror.** The regions that writes may be under way to, in two slots of a block that
//! are written in turn, on every member. After a loss of power the members are made equal
//! there.
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `XDINTENT` |
//! | 8 | 8 | disk | whose it is |
//! | 16 | 8 | sequence | the slot is sequence mod 2 |
//! | 24 | 2 | count | regions |
//! | 26 | 4 | checksum | CRC32C of what comes before and after |
//! | 30 | 8 each | regions | by number |
//!
//! **Parity.** A log of records on the disk that has the parity of the stripe: which data
//! cells are changed in which blocks, and the exclusive or of those that are not ("partial
//! parity"). With it the parity can be made right after a loss of power, even if a disk
//! is missing whose bytes were not being written. Slots are used in turn, so the newest
//! record of a stripe that is there is the newest that there was.
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `XDPARTPL` |
//! | 8 | 8 | disk | whose log it is |
//! | 16 | 8 | sequence | the slot is sequence mod slots |
//! | 24 | 8 | stripe | |
//! | 32 | 4 | payload checksum | CRC32C of the partial parity |
//! | 36 | 4 | checksum | CRC32C of the block with this field as zero |
//! | 40 | 8 each | masks | of each block of a cell: which data cells are changed, as bits |
//! | 4096 | 4096 each | partial parity | of each block whose mask has some but not all bits |

use bytes::Bytes;
use crossdock_checksum::{crc32c, crc32c_append};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use crate::codec::{Reader, Writer};
use crate::label::DiskId;

const INTENT_MAGIC: [u8; 8] = *b"XDINTENT";
const RECORD_MAGIC: [u8; 8] = *b"XDPARTPL";

/// Regions of a mirror that may differ at a time.
pub(crate) const REGIONS_MAX: usize = 32;

/// The regions of a mirror that may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionList {
    pub(crate) disk: DiskId,
    pub(crate) sequence: u64,
    pub(crate) regions: Vec<u64>,
}

impl RegionList {
    pub(crate) fn encode(&self) -> Bytes {
        let mut head = Writer::default();
        head.bytes.extend_from_slice(&INTENT_MAGIC);
        head.u64(self.disk.0);
        head.u64(self.sequence);
        head.count(self.regions.len());
        let mut tail = Writer::default();
        for &region in &self.regions {
            tail.u64(region);
        }
        let checksum = crc32c_append(crc32c(&head.bytes), &tail.bytes);
        head.u32(checksum);
        head.bytes.extend_from_slice(&tail.bytes);
        AlignedBuffer::padded_from(&head.bytes).freeze()
    }

    pub(crate) fn decode(block: &[u8], disk: DiskId) -> Option<Self> {
        let mut reader = Reader::new(block.strip_prefix(&INTENT_MAGIC)?);
        let (owner, sequence) = (DiskId(reader.u64()?), reader.u64()?);
        let count = usize::from(reader.u16()?);
        let checksum = reader.u32()?;
        let tail = block.get(30..30 + count * 8)?;
        let found = crc32c_append(crc32c(&block[..26]), tail);
        if owner != disk || found != checksum || count > REGIONS_MAX {
            return None;
        }
        let regions = (0..count).map(|_| reader.u64()).collect::<Option<_>>()?;
        Some(Self {
            disk,
            sequence,
            regions,
        })
    }
}

/// A record of the partial-parity log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParityRecord {
    pub(crate) sequence: u64,
    pub(crate) stripe: u64,
    /// Of each block of a cell, which data cells are changed.
    pub(crate) masks: Vec<u64>,
    /// Partial parity of the blocks whose masks want some, one after the other.
    pub(crate) payload: Vec<u8>,
}

/// Whether a record has partial parity for a block with that mask.
pub(crate) const fn wants_parity(mask: u64, data_cells: usize) -> bool {
    let is_full = mask.count_ones() as usize == data_cells;
    mask != 0 && !is_full
}

impl ParityRecord {
    /// What is written to its slot: whole blocks.
    pub(crate) fn encode(&self, disk: DiskId) -> Bytes {
        let mut head = Writer::default();
        head.bytes.extend_from_slice(&RECORD_MAGIC);
        head.u64(disk.0);
        head.u64(self.sequence);
        head.u64(self.stripe);
        head.u32(crc32c(&self.payload));
        head.u32(0);
        for &mask in &self.masks {
            head.u64(mask);
        }
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES + self.payload.len());
        block[..head.bytes.len()].copy_from_slice(&head.bytes);
        let checksum = crc32c(&block[..BLOCK_BYTES]);
        block[36..40].copy_from_slice(&checksum.to_le_bytes());
        block[BLOCK_BYTES..].copy_from_slice(&self.payload);
        block.freeze()
    }

    /// The record in a slot, if there is a whole one of that disk.
    pub(crate) fn decode(
        slot: &[u8],
        disk: DiskId,
        rows: usize,
        data_cells: usize,
    ) -> Option<Self> {
        let mut block = slot.get(..BLOCK_BYTES)?.to_vec();
        let mut reader = Reader::new(block.strip_prefix(&RECORD_MAGIC)?);
        let (owner, sequence) = (DiskId(reader.u64()?), reader.u64()?);
        let stripe = reader.u64()?;
        let (payload_checksum, checksum) = (reader.u32()?, reader.u32()?);
        let masks = (0..rows)
            .map(|_| reader.u64())
            .collect::<Option<Vec<_>>>()?;
        block[36..40].fill(0);
        if owner != disk || crc32c(&block) != checksum {
            return None;
        }
        let wanted = masks.iter().filter(|mask| wants_parity(**mask, data_cells));
        let length = wanted.count() * BLOCK_BYTES;
        let payload = slot.get(BLOCK_BYTES..BLOCK_BYTES + length)?;
        (crc32c(payload) == payload_checksum).then(|| Self {
            sequence,
            stripe,
            masks,
            payload: payload.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both kinds are read as they were written, by their owner only, and not if
    /// anything of them is torn.
    #[test]
    fn records_are_whole_or_nothing() {
        let disk = DiskId(5);
        let list = RegionList {
            disk,
            sequence: 9,
            regions: vec![1, 77],
        };
        let mut block = list.encode().to_vec();
        assert_eq!(RegionList::decode(&block, disk), Some(list));
        assert_eq!(RegionList::decode(&block, DiskId(6)), None);
        block[31] ^= 1;
        assert_eq!(RegionList::decode(&block, disk), None);

        let record = ParityRecord {
            sequence: 3,
            stripe: 8,
            masks: vec![0, 0b11, 0b111],
            payload: vec![7; BLOCK_BYTES],
        };
        let slot = record.encode(disk).to_vec();
        assert_eq!(ParityRecord::decode(&slot, disk, 3, 3), Some(record));
        for at in [40, BLOCK_BYTES + 100] {
            let mut torn = slot.clone();
            torn[at] ^= 1;
            assert_eq!(ParityRecord::decode(&torn, disk, 3, 3), None);
        }
    }
}
