//! Object ids: what a storage node calls its byte arrays.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{FileId, SiteId};

/// Bytes of an encoded [`ObjectId`].
pub const OBJECT_ID_BYTES: usize = 24;

/// What an object is for. It decides who orders its writes: columns by the
/// primary of their replica set, allocations by the depot that has them, everything else by
/// the site that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u16)]
pub enum ObjectClass {
    /// One stripe column of a segment of a file.
    Column = 0,
    /// A piece of a site's log.
    SiteLog = 1,
    /// A checkpoint of a site.
    Checkpoint = 2,
    /// Backing object of a site's small files.
    SmallFiles = 3,
    /// An allocation of a depot (IBP): of one node, without replicas.
    Allocation = 4,
}

impl ObjectClass {
    /// The class of that number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Column,
            1 => Self::SiteLog,
            2 => Self::Checkpoint,
            3 => Self::SmallFiles,
            4 => Self::Allocation,
            _ => return None,
        })
    }
}

/// The name of an object, the same on every node that has a replica.
///
/// | offset | bytes | name | meaning (all big-endian, so that ids sort as bytes) |
/// |---|---|---|---|
/// | 0 | 2 | class | [`ObjectClass`] |
/// | 2 | 8 | placement | file id of the origin; for site objects the site; for allocations their number |
/// | 10 | 4 | generation | the file's generation |
/// | 14 | 4 | branch | 0, or the clone or snapshot |
/// | 18 | 4 | segment | 64 GiB piece of the file; number of a site's object |
/// | 22 | 2 | column | stripe column |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// What the object is for.
    pub class: ObjectClass,
    /// The file id of the origin, kept by clones and snapshots; for objects of
    /// a site, the site's number; of allocations, theirs.
    pub placement: u64,
    /// The file's generation.
    pub generation: u32,
    /// 0, or the clone or snapshot that the object belongs to.
    pub branch: u32,
    /// Which 64 GiB of the file; for objects of a site, a running number.
    pub segment: u32,
    /// Which stripe column.
    pub column: u16,
}

impl ObjectId {
    /// Column `column` of `segment` of a file.
    #[must_use]
    pub const fn column(placement: FileId, generation: u32, segment: u32, column: u16) -> Self {
        Self {
            class: ObjectClass::Column,
            placement: placement.0,
            generation,
            branch: 0,
            segment,
            column,
        }
    }

    /// Object `number` of `class` that belongs to `site`.
    #[must_use]
    pub const fn of_site(class: ObjectClass, site: SiteId, number: u32) -> Self {
        Self {
            class,
            placement: site.0 as u64,
            generation: 0,
            branch: 0,
            segment: number,
            column: 0,
        }
    }

    /// Allocation `number` of a depot.
    #[must_use]
    pub const fn allocation(number: u64) -> Self {
        Self {
            class: ObjectClass::Allocation,
            placement: number,
            generation: 0,
            branch: 0,
            segment: 0,
            column: 0,
        }
    }

    /// The encoded id; byte order of encodings is the order of ids.
    #[must_use]
    pub fn encode(&self) -> [u8; OBJECT_ID_BYTES] {
        let mut bytes = [0; OBJECT_ID_BYTES];
        bytes[0..2].copy_from_slice(&(self.class as u16).to_be_bytes());
        bytes[2..10].copy_from_slice(&self.placement.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.generation.to_be_bytes());
        bytes[14..18].copy_from_slice(&self.branch.to_be_bytes());
        bytes[18..22].copy_from_slice(&self.segment.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.column.to_be_bytes());
        bytes
    }

    /// The id that [`encode`](Self::encode) gave; `None` for an unknown class.
    #[must_use]
    pub fn decode(bytes: &[u8; OBJECT_ID_BYTES]) -> Option<Self> {
        let (class, rest) = bytes.split_first_chunk::<2>()?;
        let (placement, rest) = rest.split_first_chunk::<8>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let (branch, rest) = rest.split_first_chunk::<4>()?;
        let (segment, rest) = rest.split_first_chunk::<4>()?;
        let (column, _) = rest.split_first_chunk::<2>()?;
        Some(Self {
            class: ObjectClass::from_number(u16::from_be_bytes(*class))?,
            placement: u64::from_be_bytes(*placement),
            generation: u32::from_be_bytes(*generation),
            branch: u32::from_be_bytes(*branch),
            segment: u32::from_be_bytes(*segment),
            column: u16::from_be_bytes(*column),
        })
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?}:{:x}.{}.{}.{}.{}",
            self.class, self.placement, self.generation, self.branch, self.segment, self.column
        )
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: encodings are reversible and sort like ids.
    #[test]
    fn encoding_keeps_value_and_order() {
        let small = ObjectId::column(FileId(7), 1, 0, 2);
        let large = ObjectId::column(FileId(7), 1, 1, 0);
        let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(3), 9);
        let allocation = ObjectId::allocation(u64::MAX);
        for id in [small, large, log, allocation] {
            assert_eq!(ObjectId::decode(&id.encode()), Some(id));
        }
        assert!(small < large && small.encode() < large.encode());
        assert!(large < log && large.encode() < log.encode());
        assert!(log < allocation && log.encode() < allocation.encode());
    }
}
