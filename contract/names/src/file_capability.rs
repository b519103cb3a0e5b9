//! What a gateway shows to nodes: the right to bytes of one file, made by a
//! manager for that gateway (CONSISTENCY 9, docs/decisions/0024).

use std::fmt;
use std::ops::Range;

use crossdock_checksum::{equal_in_constant_time, mac};
use serde::{Deserialize, Serialize};

use crate::{FileId, HostId, OBJECT_ID_BYTES, ObjectClass, ObjectId, Rights, Version};

/// What a process of a manager makes capabilities with: random, new for each start,
/// known to the nodes and to nobody else. Nodes forget it when the process is replaced.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintingKey(pub [u8; 32]);

impl fmt::Debug for MintingKey {
    /// Never shows the secret: messages are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MintingKey")
    }
}

/// To which bytes a [`FileCapability`] is the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All columns of a file.
    Columns {
        /// Under which file id they are named.
        placement: FileId,
        /// Generation in their names.
        generation: u32,
    },
    /// A range of an object that has small files: others lie beside it.
    Range {
        /// The backing object of a small-file site.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// As they are up to this version: what is newer may be another file's.
        version: Version,
    },
}

/// The right of one gateway to bytes of one file.
///
/// Between hosts it travels in the encoding of the messages; the MAC covers:
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 2: columns; 3: a range |
/// | 1 | 1 | rights | [`Rights`] |
/// | 2 | 2 | – | zero |
/// | 4 | 8 | minter | the manager's process |
/// | 12 | 8 | holder | the gateway's process |
/// | 20 | 8 | expiry | seconds since 1970 |
/// | 28 | 8 | placement | of columns: under which file id they are named |
/// | 36 | 4 | generation | of columns: in their names |
/// | 28 | 24 | object | of a range: [`ObjectId`] |
/// | 52 | 8 | offset | of a range: first byte |
/// | 60 | 8 | length | of a range: bytes |
/// | 68 | 8 | version | of a range: the newest |
///
/// [`crate::Capability`] names bytes of one object, for holders that know nothing of
/// files; a router knows the layout of a file, and one of these for all its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCapability {
    /// What it allows.
    pub rights: Rights,
    /// Who made it.
    pub minter: HostId,
    /// For whom: it is of no use to others.
    pub holder: HostId,
    /// To which bytes.
    pub scope: Scope,
    /// When it ends, in seconds since 1970 by the minter's clock.
    pub expiry_seconds: u64,
    /// Keyed BLAKE3, first 128 bits.
    pub mac: [u8; 16],
}

const FORMAT_COLUMNS: u8 = 2;
const FORMAT_RANGE: u8 = 3;
const COLUMNS_BYTES: usize = 40;
const RANGE_BYTES: usize = 76;

impl FileCapability {
    /// Fills in the MAC.
    #[must_use]
    pub fn mint(mut self, key: &MintingKey) -> Self {
        self.mac = self.expected_mac(key);
        self
    }

    /// Whether the MAC is right under `key`; takes the same time for any MAC. Holder,
    /// expiry, rights and object are the caller's to check.
    #[must_use]
    pub fn verify(&self, key: &MintingKey) -> bool {
        equal_in_constant_time(&self.mac, &self.expected_mac(key))
    }

    /// Whether `object` is a column of the file.
    #[must_use]
    pub fn covers_column(&self, object: &ObjectId) -> bool {
        let Scope::Columns {
            placement,
            generation,
        } = self.scope
        else {
            return false;
        };
        object.class == ObjectClass::Column
            && object.placement == placement.0
            && object.generation == generation
            && object.branch == 0
    }

    /// Whether all of `bytes` of the backing object are the file's, up to `version`.
    #[must_use]
    pub fn covers_range(&self, object: &ObjectId, bytes: Range<u64>, version: Version) -> bool {
        match self.scope {
            Scope::Columns { .. } => false,
            Scope::Range {
                object: own,
                offset_bytes,
                length_bytes,
                version: newest,
            } => {
                *object == own
                    && bytes.start >= offset_bytes
                    && bytes.end <= offset_bytes.saturating_add(length_bytes)
                    && version <= newest
            }
        }
    }

    fn expected_mac(&self, key: &MintingKey) -> [u8; 16] {
        let mut covered = [0; RANGE_BYTES];
        covered[1] = self.rights.0;
        covered[4..12].copy_from_slice(&self.minter.0.to_be_bytes());
        covered[12..20].copy_from_slice(&self.holder.0.to_be_bytes());
        covered[20..28].copy_from_slice(&self.expiry_seconds.to_be_bytes());
        match self.scope {
            Scope::Columns {
                placement,
                generation,
            } => {
                covered[0] = FORMAT_COLUMNS;
                covered[28..36].copy_from_slice(&placement.0.to_be_bytes());
                covered[36..40].copy_from_slice(&generation.to_be_bytes());
                mac(&key.0, &covered[..COLUMNS_BYTES])
            }
            Scope::Range {
                object,
                offset_bytes,
                length_bytes,
                version,
            } => {
                covered[0] = FORMAT_RANGE;
                covered[28..28 + OBJECT_ID_BYTES].copy_from_slice(&object.encode());
                covered[52..60].copy_from_slice(&offset_bytes.to_be_bytes());
                covered[60..68].copy_from_slice(&length_bytes.to_be_bytes());
                covered[68..76].copy_from_slice(&version.0.to_be_bytes());
                mac(&key.0, &covered)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteId;

    const FILE: FileId = FileId(9);

    const fn columns(placement: FileId, generation: u32) -> Scope {
        Scope::Columns {
            placement,
            generation,
        }
    }

    const fn range(object: ObjectId, offset_bytes: u64, length_bytes: u64, version: u64) -> Scope {
        Scope::Range {
            object,
            offset_bytes,
            length_bytes,
            version: Version(version),
        }
    }

    fn capability() -> FileCapability {
        FileCapability {
            rights: Rights::READ,
            minter: HostId(1),
            holder: HostId(2),
            scope: columns(FILE, 3),
            expiry_seconds: 100,
            mac: [0; 16],
        }
    }

    /// Goal: a capability holds under its key as it was made, and with any field
    /// changed it does not.
    #[test]
    fn everything_in_it_is_bound() {
        let key = MintingKey([7; 32]);
        let made = capability().mint(&key);
        assert!(made.verify(&key));
        assert!(!made.verify(&MintingKey([8; 32])));
        let changes: [fn(&mut FileCapability); 7] = [
            |it| it.rights = Rights::WRITE,
            |it| it.minter = HostId(9),
            |it| it.holder = HostId(9),
            |it| it.scope = columns(FileId(10), 3),
            |it| it.scope = columns(FILE, 4),
            |it| it.expiry_seconds = 101,
            |it| it.mac[15] ^= 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut forged = made;
            change(&mut forged);
            assert!(!forged.verify(&key), "change {number}");
        }
    }

    /// Goal: all columns of the file are covered, and nothing else is.
    #[test]
    fn it_covers_the_columns_of_its_file() {
        let made = capability();
        assert!(made.covers_column(&ObjectId::column(FILE, 3, 7, 5)));
        assert!(!made.covers_column(&ObjectId::column(FILE, 2, 0, 0)));
        assert!(!made.covers_column(&ObjectId::column(FileId(8), 3, 0, 0)));
        let mut clone = ObjectId::column(FILE, 3, 0, 0);
        clone.branch = 1;
        assert!(!made.covers_column(&clone));
        let mut log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(9), 0);
        log.generation = 3;
        assert!(!made.covers_column(&log));
    }

    /// Goal: a range of an object is bound to all that names it, and covers nothing of what lies
    /// beside it, nor any column.
    #[test]
    fn a_range_covers_no_neighbour() {
        let key = MintingKey([7; 32]);
        let object = |number| ObjectId::of_site(ObjectClass::SmallFiles, SiteId(9), number);
        let of = |scope| FileCapability {
            scope,
            ..capability()
        };
        let made = of(range(object(0), 8192, 4096, 7)).mint(&key);
        assert!(made.verify(&key));
        for scope in [
            range(object(1), 8192, 4096, 7),
            range(object(0), 8191, 4096, 7),
            range(object(0), 8192, 4097, 7),
            range(object(0), 8192, 4096, 8),
            columns(FILE, 3),
        ] {
            assert!(!FileCapability { scope, ..made }.verify(&key), "{scope:?}");
        }
        let covers = |object, bytes, version| made.covers_range(&object, bytes, Version(version));
        assert!(covers(object(0), 8192..12_288, 7));
        assert!(covers(object(0), 9000..9001, 6));
        assert!(!covers(object(0), 8191..9000, 7));
        assert!(!covers(object(0), 9000..12_289, 7));
        assert!(!covers(object(1), 8192..12_288, 7));
        assert!(!covers(object(0), 8192..12_288, 8));
        assert!(!made.covers_column(&ObjectId::column(FILE, 3, 0, 0)));
        assert!(!capability().covers_range(&object(0), 0..1, Version(0)));
    }

    /// Goal: who prints a message does not print the key.
    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", MintingKey([7; 32])), "MintingKey");
    }
}
