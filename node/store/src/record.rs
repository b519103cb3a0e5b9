//! Records of the journal: logical changes of the store.
//!
//! A record is a kind byte and its fields as variable-length numbers (LEB128);
//! byte strings come last and have no length of their own (the frame has).
//! `object` is class, placement, generation, branch, segment, column.
//!
//! | kind | name | fields |
//! |---|---|---|
//! | 1 | create | object, serial, incarnation (8 bytes), reserved blocks, version, attributes |
//! | 2 | map | object, stamp, version, first block, disk block, end of the write in bytes, CRC32C of each block (4 bytes each) |
//! | 3 | inline | object, stamp, version, offset, CRC32C of the bytes (4 bytes), bytes |
//! | 4 | zero | object, stamp, version, offset, length |
//! | 5 | truncate | object, stamp, version, size, truncate generation, serial from now on |
//! | 6 | remove | object, version |
//! | 7 | fence | object, fence |
//! | 8 | marker | object, stamp, version, block, CRC32C (4 bytes) |
//! | 9 | reap | serial, first block, end block, 1 if nothing is left |
//! | 10 | grown | blocks of the data disk |
//! | 11 | attributes | object, reserved blocks, version, attributes |
//!
//! The stamp orders what concerns the same bytes: a bulk write is recorded when
//! its data is on the disk, which may be after the record of a later write.

use bytes::Bytes;
use crossdock_log::{get_varint, put_varint};
use crossdock_names::{Epoch, ObjectClass, ObjectId, Version};

/// One logical change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Create {
        object: ObjectId,
        serial: u64,
        incarnation: u64,
        reserved_blocks: u64,
        version: Version,
        attributes: Bytes,
    },
    Map {
        object: ObjectId,
        stamp: u64,
        version: Version,
        first_block: u64,
        disk: u64,
        end_bytes: u64,
        checksums: Vec<u32>,
    },
    Inline {
        object: ObjectId,
        stamp: u64,
        version: Version,
        offset: u64,
        checksum: u32,
        bytes: Bytes,
    },
    Zero {
        object: ObjectId,
        stamp: u64,
        version: Version,
        offset: u64,
        length: u64,
    },
    Truncate {
        object: ObjectId,
        stamp: u64,
        version: Version,
        size: u64,
        generation: u64,
        serial: u64,
    },
    Remove {
        object: ObjectId,
        version: Version,
    },
    Fence {
        object: ObjectId,
        fence: Epoch,
    },
    Marker {
        object: ObjectId,
        stamp: u64,
        version: Version,
        first_block: u64,
        checksums: Vec<u32>,
    },
    Reap {
        serial: u64,
        first_block: u64,
        end_block: u64,
        is_last: bool,
    },
    Grown {
        blocks: u64,
    },
    Attributes {
        object: ObjectId,
        reserved_blocks: u64,
        version: Version,
        attributes: Bytes,
    },
}

impl Record {
    /// The object it is about.
    pub(crate) const fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Create { object, .. }
            | Self::Map { object, .. }
            | Self::Inline { object, .. }
            | Self::Zero { object, .. }
            | Self::Truncate { object, .. }
            | Self::Remove { object, .. }
            | Self::Fence { object, .. }
            | Self::Marker { object, .. }
            | Self::Attributes { object, .. } => Some(*object),
            Self::Reap { .. } | Self::Grown { .. } => None,
        }
    }

    /// Its place among changes of the same bytes; 0 for those that need none.
    pub(crate) const fn stamp(&self) -> u64 {
        match self {
            Self::Map { stamp, .. }
            | Self::Inline { stamp, .. }
            | Self::Zero { stamp, .. }
            | Self::Truncate { stamp, .. }
            | Self::Marker { stamp, .. } => *stamp,
            _ => 0,
        }
    }

    /// Kind and numbers go to `head`; the bytes that follow them are returned,
    /// so that a payload is copied once, into the frame.
    pub(crate) fn encode<'a>(&'a self, head: &mut Vec<u8>) -> &'a [u8] {
        head.clear();
        match self {
            Self::Create {
                object,
                serial,
                incarnation,
                reserved_blocks,
                version,
                attributes,
            } => {
                put_object(head, 1, object);
                put_varint(head, *serial);
                head.extend_from_slice(&incarnation.to_le_bytes());
                put_varint(head, *reserved_blocks);
                put_varint(head, version.0);
                return attributes;
            }
            Self::Map {
                object,
                stamp,
                version,
                first_block,
                disk,
                end_bytes,
                checksums,
            } => {
                put_object(head, 2, object);
                for number in [*stamp, version.0, *first_block, *disk, *end_bytes] {
                    put_varint(head, number);
                }
                put_checksums(head, checksums);
            }
            Self::Inline {
                object,
                stamp,
                version,
                offset,
                checksum,
                bytes,
            } => {
                put_object(head, 3, object);
                for number in [*stamp, version.0, *offset] {
                    put_varint(head, number);
                }
                head.extend_from_slice(&checksum.to_le_bytes());
                return bytes;
            }
            Self::Zero {
                object,
                stamp,
                version,
                offset,
                length,
            } => {
                put_object(head, 4, object);
                for number in [*stamp, version.0, *offset, *length] {
                    put_varint(head, number);
                }
            }
            Self::Truncate {
                object,
                stamp,
                version,
                size,
                generation,
                serial,
            } => {
                put_object(head, 5, object);
                for number in [*stamp, version.0, *size, *generation, *serial] {
                    put_varint(head, number);
                }
            }
            Self::Remove { object, version } => {
                put_object(head, 6, object);
                put_varint(head, version.0);
            }
            Self::Fence { object, fence } => {
                put_object(head, 7, object);
                put_varint(head, fence.0);
            }
            Self::Marker {
                object,
                stamp,
                version,
                first_block,
                checksums,
            } => {
                put_object(head, 8, object);
                for number in [*stamp, version.0, *first_block] {
                    put_varint(head, number);
                }
                put_checksums(head, checksums);
            }
            Self::Reap {
                serial,
                first_block,
                end_block,
                is_last,
            } => {
                head.push(9);
                for number in [*serial, *first_block, *end_block, u64::from(*is_last)] {
                    put_varint(head, number);
                }
            }
            Self::Grown { blocks } => {
                head.push(10);
                put_varint(head, *blocks);
            }
            Self::Attributes {
                object,
                reserved_blocks,
                version,
                attributes,
            } => {
                put_object(head, 11, object);
                put_varint(head, *reserved_blocks);
                put_varint(head, version.0);
                return attributes;
            }
        }
        &[]
    }

    /// `None` if these are not the bytes of a record: the journal was written
    /// by something else.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut at: &[u8] = bytes;
        let (&kind, rest) = at.split_first()?;
        at = rest;
        if kind == 9 {
            return Some(Self::Reap {
                serial: get_varint(&mut at)?,
                first_block: get_varint(&mut at)?,
                end_block: get_varint(&mut at)?,
                is_last: get_varint(&mut at)? == 1,
            });
        }
        if kind == 10 {
            return Some(Self::Grown {
                blocks: get_varint(&mut at)?,
            });
        }
        let object = get_object(&mut at)?;
        Some(match kind {
            1 => Self::Create {
                object,
                serial: get_varint(&mut at)?,
                incarnation: u64::from_le_bytes(get_array(&mut at)?),
                reserved_blocks: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                attributes: bytes.slice_ref(at),
            },
            2 => Self::Map {
                object,
                stamp: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                first_block: get_varint(&mut at)?,
                disk: get_varint(&mut at)?,
                end_bytes: get_varint(&mut at)?,
                checksums: get_checksums(at)?,
            },
            3 => Self::Inline {
                object,
                stamp: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                offset: get_varint(&mut at)?,
                checksum: u32::from_le_bytes(get_array(&mut at)?),
                bytes: bytes.slice_ref(at),
            },
            4 => Self::Zero {
                object,
                stamp: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                offset: get_varint(&mut at)?,
                length: get_varint(&mut at)?,
            },
            5 => Self::Truncate {
                object,
                stamp: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                size: get_varint(&mut at)?,
                generation: get_varint(&mut at)?,
                serial: get_varint(&mut at)?,
            },
            6 => Self::Remove {
                object,
                version: Version(get_varint(&mut at)?),
            },
            7 => Self::Fence {
                object,
                fence: Epoch(get_varint(&mut at)?),
            },
            8 => Self::Marker {
                object,
                stamp: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                first_block: get_varint(&mut at)?,
                checksums: get_checksums(at)?,
            },
            11 => Self::Attributes {
                object,
                reserved_blocks: get_varint(&mut at)?,
                version: Version(get_varint(&mut at)?),
                attributes: bytes.slice_ref(at),
            },
            _ => return None,
        })
    }
}

fn put_object(head: &mut Vec<u8>, kind: u8, object: &ObjectId) {
    head.push(kind);
    for number in [
        object.class as u64,
        object.placement,
        u64::from(object.generation),
        u64::from(object.branch),
        u64::from(object.segment),
        u64::from(object.column),
    ] {
        put_varint(head, number);
    }
}

fn get_object(at: &mut &[u8]) -> Option<ObjectId> {
    Some(ObjectId {
        class: ObjectClass::from_number(u16::try_from(get_varint(at)?).ok()?)?,
        placement: get_varint(at)?,
        generation: u32::try_from(get_varint(at)?).ok()?,
        branch: u32::try_from(get_varint(at)?).ok()?,
        segment: u32::try_from(get_varint(at)?).ok()?,
        column: u16::try_from(get_varint(at)?).ok()?,
    })
}

fn get_array<const N: usize>(at: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = at.split_first_chunk::<N>()?;
    *at = rest;
    Some(*array)
}

fn put_checksums(head: &mut Vec<u8>, checksums: &[u32]) {
    head.extend(checksums.iter().flat_map(|sum| sum.to_le_bytes()));
}

fn get_checksums(at: &[u8]) -> Option<Vec<u32>> {
    let (checksums, odd) = at.as_chunks::<4>();
    odd.is_empty()
        .then(|| checksums.iter().map(|c| u32::from_le_bytes(*c)).collect())
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;
    use proptest::prelude::*;

    use super::*;

    fn round_trip(record: &Record) {
        let mut bytes = Vec::new();
        let tail = record.encode(&mut bytes).to_vec();
        bytes.extend_from_slice(&tail);
        let bytes = Bytes::from(bytes);
        assert_eq!(Record::decode(&bytes).as_ref(), Some(record));
        // A shorter one is another record or none, never a panic.
        for end in 0..bytes.len() {
            let _ = Record::decode(&bytes.slice(..end));
        }
    }

    proptest! {
        /// Goal: every kind of record survives its encoding.
        #[test]
        fn records_come_back(
            (placement, stamp, number) in any::<(u64, u64, u64)>(),
            column in any::<u16>(),
            checksums in any::<Vec<u32>>(),
            bytes in any::<Vec<u8>>(),
        ) {
            let object = ObjectId::column(FileId(placement), 3, 9, column);
            let version = Version(number);
            let bytes = Bytes::from(bytes);
            for record in [
                Record::Create { object, serial: stamp, incarnation: number, reserved_blocks: 5, version, attributes: bytes.clone() },
                Record::Map { object, stamp, version, first_block: 1, disk: number, end_bytes: 4, checksums: checksums.clone() },
                Record::Attributes { object, reserved_blocks: number, version, attributes: bytes.clone() },
                Record::Inline { object, stamp, version, offset: number, checksum: 77, bytes },
                Record::Zero { object, stamp, version, offset: number, length: stamp },
                Record::Truncate { object, stamp, version, size: 8, generation: number, serial: 3 },
                Record::Remove { object, version },
                Record::Fence { object, fence: Epoch(number) },
                Record::Marker { object, stamp, version, first_block: 3, checksums: checksums.clone() },
                Record::Reap { serial: stamp, first_block: 1, end_block: number, is_last: true },
                Record::Grown { blocks: number },
            ] {
                round_trip(&record);
            }
        }

        /// Goal: no bytes make the decoder panic.
        #[test]
        fn random_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = Record::decode(&Bytes::from(bytes));
        }
    }
}
