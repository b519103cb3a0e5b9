//! What a gateway shows to nodes: the right to the columns of one file, made by a
//! manager for that gateway (CONSISTENCY 9, docs/decisions/0024).

use std::fmt;

use crossdock_checksum::{equal_in_constant_time, mac};
use serde::{Deserialize, Serialize};

use crate::{FileId, HostId, ObjectClass, ObjectId, Rights};

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

/// The right of one gateway to the columns of one file.
///
/// Between hosts it travels in the encoding of the messages; the MAC covers:
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 2 |
/// | 1 | 1 | rights | [`Rights`] |
/// | 2 | 2 | – | zero |
/// | 4 | 8 | minter | the manager's process |
/// | 12 | 8 | holder | the gateway's process |
/// | 20 | 8 | placement | under which file id the columns are named |
/// | 28 | 4 | generation | in the columns' names |
/// | 32 | 8 | expiry | seconds since 1970 |
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
    /// Under which file id the columns are named.
    pub placement: FileId,
    /// Generation in the columns' names.
    pub generation: u32,
    /// When it ends, in seconds since 1970 by the minter's clock.
    pub expiry_seconds: u64,
    /// Keyed BLAKE3, first 128 bits.
    pub mac: [u8; 16],
}

const FORMAT: u8 = 2;
const COVERED_BYTES: usize = 40;

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
    pub fn covers(&self, object: &ObjectId) -> bool {
        object.class == ObjectClass::Column
            && object.placement == self.placement.0
            && object.generation == self.generation
            && object.branch == 0
    }

    fn expected_mac(&self, key: &MintingKey) -> [u8; 16] {
        let mut covered = [0; COVERED_BYTES];
        covered[0] = FORMAT;
        covered[1] = self.rights.0;
        covered[4..12].copy_from_slice(&self.minter.0.to_be_bytes());
        covered[12..20].copy_from_slice(&self.holder.0.to_be_bytes());
        covered[20..28].copy_from_slice(&self.placement.0.to_be_bytes());
        covered[28..32].copy_from_slice(&self.generation.to_be_bytes());
        covered[32..40].copy_from_slice(&self.expiry_seconds.to_be_bytes());
        mac(&key.0, &covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteId;

    const FILE: FileId = FileId(9);

    fn capability() -> FileCapability {
        FileCapability {
            rights: Rights::READ,
            minter: HostId(1),
            holder: HostId(2),
            placement: FILE,
            generation: 3,
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
            |it| it.placement = FileId(10),
            |it| it.generation = 4,
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
        assert!(made.covers(&ObjectId::column(FILE, 3, 7, 5)));
        assert!(!made.covers(&ObjectId::column(FILE, 2, 0, 0)));
        assert!(!made.covers(&ObjectId::column(FileId(8), 3, 0, 0)));
        let mut clone = ObjectId::column(FILE, 3, 0, 0);
        clone.branch = 1;
        assert!(!made.covers(&clone));
        let mut log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(9), 0);
        log.generation = 3;
        assert!(!made.covers(&log));
    }

    /// Goal: who prints a message does not print the key.
    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", MintingKey([7; 32])), "MintingKey");
    }
}
