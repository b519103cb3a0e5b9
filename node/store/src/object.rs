//! Objects as the store knows them: what the index has of each, and what is in
//! memory beside it.
//!
//! A head in the index (key: the encoded [`ObjectId`](crossdock_names::ObjectId)):
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 8 | serial | names the run map; changes when all bytes are dropped at once |
//! | 8 | 8 | size | end in bytes |
//! | 16 | 8 | version | of the newest change |
//! | 24 | 8 | hole version | of the newest truncate or zero |
//! | 32 | 8 | truncate generation | highest seen |
//! | 40 | 8 | fence | highest seen |
//! | 48 | 8 | incarnation | random; bound into capabilities |
//! | 56 | 8 | reserved blocks | set aside in all |
//! | 64 | 8 | allocated blocks | in runs |
//! | 72 | 8 | mapped end | no run reaches beyond this block |
//! | 80 | … | attributes | up to 512 bytes, opaque |

use std::collections::BTreeSet;

use bytes::Bytes;
use crossdock_log::Position;
use crossdock_names::{Epoch, Version};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::overlay::Overlay;
use crate::store::BLOCK;

/// What records say of an object, but for its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) serial: u64,
    pub(crate) size: u64,
    pub(crate) version: Version,
    pub(crate) hole_version: Version,
    pub(crate) truncate_generation: u64,
    pub(crate) fence: Epoch,
    pub(crate) incarnation: u64,
    pub(crate) reserved_blocks: u64,
    pub(crate) allocated_blocks: u64,
    pub(crate) mapped_end: u64,
    pub(crate) attributes: Bytes,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredHead {
    serial: U64,
    size: U64,
    version: U64,
    hole_version: U64,
    truncate_generation: U64,
    fence: U64,
    incarnation: U64,
    reserved_blocks: U64,
    allocated_blocks: U64,
    mapped_end: U64,
}

const _: () = assert!(size_of::<StoredHead>() == 80);

impl Head {
    /// Blocks that are reserved and not taken yet.
    pub(crate) const fn outstanding_blocks(&self) -> u64 {
        self.reserved_blocks.saturating_sub(self.allocated_blocks)
    }

    /// How many bytes of these blocks the object has: none behind its end, though the
    /// last block is whole on the disk.
    pub(crate) fn bytes_in(&self, first_block: u64, blocks: u64) -> u64 {
        let from = first_block * BLOCK;
        self.size.saturating_sub(from).min(blocks * BLOCK)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let stored = StoredHead {
            serial: U64::new(self.serial),
            size: U64::new(self.size),
            version: U64::new(self.version.0),
            hole_version: U64::new(self.hole_version.0),
            truncate_generation: U64::new(self.truncate_generation),
            fence: U64::new(self.fence.0),
            incarnation: U64::new(self.incarnation),
            reserved_blocks: U64::new(self.reserved_blocks),
            allocated_blocks: U64::new(self.allocated_blocks),
            mapped_end: U64::new(self.mapped_end),
        };
        [stored.as_bytes(), &self.attributes].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (stored, attributes) = StoredHead::ref_from_prefix(bytes).ok()?;
        Some(Self {
            serial: stored.serial.get(),
            size: stored.size.get(),
            version: Version(stored.version.get()),
            hole_version: Version(stored.hole_version.get()),
            truncate_generation: stored.truncate_generation.get(),
            fence: Epoch(stored.fence.get()),
            incarnation: stored.incarnation.get(),
            reserved_blocks: stored.reserved_blocks.get(),
            allocated_blocks: stored.allocated_blocks.get(),
            mapped_end: stored.mapped_end.get(),
            attributes: Bytes::copy_from_slice(attributes),
        })
    }
}

/// An object in memory.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// What was recorded.
    pub(crate) head: Head,
    /// End in bytes with what is not recorded yet.
    pub(crate) visible_size: u64,
    /// Newest version with what is not recorded yet.
    pub(crate) visible_version: Version,
    /// Bytes that are newer than the runs.
    pub(crate) overlay: Overlay,
    /// Bulk writes that are not recorded yet.
    pub(crate) flights: BTreeSet<u64>,
    /// Position of the last record about it.
    pub(crate) last_position: Position,
    /// Its oldest unstable bytes are this old, in nanoseconds; 0 = none.
    pub(crate) volatile_since: u64,
}

impl Object {
    pub(crate) fn of(head: Head) -> Self {
        Self {
            visible_size: head.size,
            visible_version: head.version,
            head,
            ..Self::default()
        }
    }

    /// Whether something of it is in memory only.
    pub(crate) fn is_busy(&self) -> bool {
        !self.overlay.is_empty() || !self.flights.is_empty()
    }
}

/// What is known of an object id.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `None`: there is no such object.
    pub(crate) object: Option<Box<Object>>,
    /// The index has to be told.
    pub(crate) is_dirty: bool,
    /// Number of the last batch for the index that had it.
    pub(crate) batch: u64,
    /// When it was last used, for eviction.
    pub(crate) used: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a head survives its encoding.
    #[test]
    fn heads_come_back_from_their_bytes() {
        let head = Head {
            serial: 1,
            size: 2,
            version: Version(3),
            hole_version: Version(4),
            truncate_generation: 5,
            fence: Epoch(6),
            incarnation: 7,
            reserved_blocks: 8,
            allocated_blocks: 3,
            mapped_end: 10,
            attributes: Bytes::from_static(b"opaque"),
        };
        assert_eq!(Head::decode(&head.encode()), Some(head.clone()));
        assert_eq!(head.outstanding_blocks(), 5);
        assert_eq!(Head::decode(&head.encode()[..79]), None);
    }
}
