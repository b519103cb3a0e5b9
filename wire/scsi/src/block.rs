//! What a disk says of its blocks, and lists of blocks (SBC-3 section 5).

use crate::bytes::{long, tiny, u16_at, u32_at, u64_at};
use crate::lun::LogicalUnit;
use crate::sense::{AdditionalSense, Sense};

/// How much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityData {
    /// Blocks; at least one.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many blocks make a physical one, as a power of two.
    pub physical_exponent: u8,
    /// Whether blocks need not have space (LBPME), and those that have none are zeros (LBPRZ).
    pub is_thin: bool,
}

/// READ CAPACITY (10): of larger units that the other form tells.
#[must_use]
pub fn capacity_10(data: &CapacityData) -> Vec<u8> {
    let last = u32::try_from(data.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    let mut bytes = last.to_be_bytes().to_vec();
    bytes.extend(data.block_bytes.to_be_bytes());
    bytes
}

/// READ CAPACITY (16).
#[must_use]
pub fn capacity_16(data: &CapacityData) -> Vec<u8> {
    let mut bytes = data.blocks.saturating_sub(1).to_be_bytes().to_vec();
    bytes.extend(data.block_bytes.to_be_bytes());
    bytes.extend([0, data.physical_exponent & 0x0f]);
    bytes.extend([if data.is_thin { 0xc0 } else { 0 }, 0]);
    bytes.resize(32, 0);
    bytes
}

/// Whether blocks have space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Provisioning {
    /// They have, or nobody knows better.
    Mapped = 0,
    /// They have none.
    Deallocated = 1,
}

/// What GET LBA STATUS tells of blocks that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatus {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
    /// What is so.
    pub provisioning: Provisioning,
}

/// GET LBA STATUS.
#[must_use]
pub fn lba_status(runs: &[LbaStatus]) -> Vec<u8> {
    let mut data = long(4 + runs.len() * 16).to_be_bytes().to_vec();
    data.extend([0; 4]);
    for run in runs {
        data.extend(run.lba.to_be_bytes());
        data.extend(run.blocks.to_be_bytes());
        data.extend([run.provisioning as u8, 0, 0, 0]);
    }
    data
}

/// REPORT LUNS.
#[must_use]
pub fn report_luns(units: &[LogicalUnit]) -> Vec<u8> {
    let mut data = long(units.len() * 8).to_be_bytes().to_vec();
    data.extend([0; 4]);
    data.extend(units.iter().flat_map(|unit| unit.encode()));
    data
}

/// Blocks that are not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapDescriptor {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// Reads the parameter list of UNMAP; one that is too short to have descriptors has none.
///
/// # Errors
/// There are more than `descriptors_max`, or the list says that it is longer than it is.
pub fn unmap_list(list: &[u8], descriptors_max: usize) -> Result<Vec<UnmapDescriptor>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    if list.len() < 8 {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    let told = usize::from(u16_at(list, 2));
    if usize::from(u16_at(list, 0)) + 2 > list.len() || told + 8 > list.len() {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    // What is left behind the last whole descriptor is not looked at (SBC-3 section 5.28.2).
    let descriptors = list[8..8 + told].chunks_exact(16);
    if descriptors.len() > descriptors_max {
        return Err(Sense::invalid_parameter(2, None));
    }
    let read = |bytes: &[u8]| UnmapDescriptor {
        lba: u64_at(bytes, 0),
        blocks: u32_at(bytes, 8),
    };
    Ok(descriptors.map(read).collect())
}

/// A block descriptor of mode parameters: the short form holds 32 bits of blocks.
pub(crate) fn block_descriptor(blocks: u64, block_bytes: u32, is_long: bool) -> Vec<u8> {
    if is_long {
        let mut data = blocks.to_be_bytes().to_vec();
        data.extend([0; 4]);
        data.extend(block_bytes.to_be_bytes());
        return data;
    }
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut data = blocks.to_be_bytes().to_vec();
    data.extend(block_bytes.to_be_bytes()); // Its highest byte is always zero.
    debug_assert_eq!(tiny(data.len()), 8);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sizes are told by their last block; what does not fit ten bytes sends to the
    /// other form.
    #[test]
    fn capacities_are_told() {
        let mut data = CapacityData {
            blocks: 1 << 33,
            block_bytes: 512,
            physical_exponent: 3,
            is_thin: true,
        };
        assert_eq!(capacity_10(&data), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
        let long = capacity_16(&data);
        assert_eq!(long.len(), 32);
        assert_eq!(long[..8], ((1u64 << 33) - 1).to_be_bytes());
        assert_eq!(long[8..15], [0, 0, 2, 0, 0, 3, 0xc0]);
        data.blocks = 8;
        assert_eq!(capacity_10(&data)[..4], [0, 0, 0, 7]);
    }

    /// Goal: descriptors are read as they lie, and a list that lies about itself is refused.
    #[test]
    fn unmap_lists_are_read() {
        let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
        for (lba, blocks) in [(7u64, 1u32), (1 << 40, 9)] {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        let read = unmap_list(&list, 2).expect("a list");
        assert_eq!((read[0].lba, read[1].lba, read[1].blocks), (7, 1 << 40, 9));
        assert!(unmap_list(&list, 1).is_err());
        assert!(unmap_list(&list[..39], 2).is_err());
        assert!(unmap_list(&list[..7], 2).is_err());
        assert_eq!(unmap_list(&[], 2), Ok(Vec::new()));
        assert_eq!(unmap_list(&[0, 6, 0, 0, 0, 0, 0, 0], 2), Ok(Vec::new()));
    }

    /// Goal: each run has sixteen bytes, each unit eight.
    #[test]
    fn lists_say_how_long_they_are() {
        let run = LbaStatus {
            lba: 3,
            blocks: 5,
            provisioning: Provisioning::Deallocated,
        };
        let status = lba_status(&[run, run]);
        assert_eq!((status[3], status.len()), (36, 40));
        assert_eq!(
            status[8..24],
            [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5, 1, 0, 0, 0]
        );
        let units = report_luns(&[LogicalUnit::Number(0)]);
        assert_eq!((units[3], units.len()), (8, 16));
    }
}
