//! Capabilities: the right to an extent, with a MAC (CONSISTENCY 9).

use crossdock_checksum::{equal_in_constant_time, first_half};
use serde::{Deserialize, Serialize};

use crate::{Incarnation, ObjectId, Version};

/// What a capability allows; a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rights(pub u8);

impl Rights {
    /// Reading bytes of the range.
    pub const READ: Self = Self(1);
    /// Changing bytes of the range.
    pub const WRITE: Self = Self(2);
    /// Removing, truncating, changing attributes.
    pub const MANAGE: Self = Self(4);

    /// Whether all of `wanted` is allowed.
    #[must_use]
    pub const fn allow(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// The key by which one minter makes capabilities for one node:
/// KDF(node key, minter, its key epoch).
#[derive(Clone)]
pub struct CapabilityKey {
    key: [u8; 32],
    /// Who mints.
    pub minter: u32,
    /// Raising it revokes all that the minter made before.
    pub key_epoch: u32,
}

impl CapabilityKey {
    /// Derives the key of `minter` from the node's own.
    #[must_use]
    pub fn derive(node_key: &[u8; 32], minter: u32, key_epoch: u32) -> Self {
        let mut input = [0; 8];
        input[..4].copy_from_slice(&minter.to_be_bytes());
        input[4..].copy_from_slice(&key_epoch.to_be_bytes());
        Self {
            key: *blake3::keyed_hash(node_key, &input).as_bytes(),
            minter,
            key_epoch,
        }
    }
}

/// A right to `offset..offset + length` of an object.
///
/// The MAC also covers the object's incarnation, which is not sent: changing it
/// revokes every capability of the object.
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 1 |
/// | 1 | 1 | rights | [`Rights`] |
/// | 2 | 2 | – | zero |
/// | 4 | 4 | minter | whose key |
/// | 8 | 4 | key epoch | of that minter |
/// | 12 | 24 | object | [`ObjectId`] |
/// | 36 | 8 | version | 0 = any |
/// | 44 | 8 | offset | first byte |
/// | 52 | 8 | length | bytes |
/// | 60 | 8 | expiry | seconds since 1970 |
/// | 68 | 16 | MAC | keyed BLAKE3, first 128 bits |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it allows.
    pub rights: Rights,
    /// The object.
    pub object: ObjectId,
    /// The version, or [`Version::NONE`] for any.
    pub version: Version,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub length_bytes: u64,
    /// When it ends, in seconds since 1970.
    pub expiry_seconds: u64,
    /// Who made it.
    pub minter: u32,
    /// Under which epoch of the minter's key.
    pub key_epoch: u32,
    /// The first 128 bits of the keyed hash.
    pub mac: [u8; 16],
}

impl Capability {
    /// Fills in minter, key epoch and MAC.
    #[must_use]
    pub fn mint(mut self, key: &CapabilityKey, incarnation: Incarnation) -> Self {
        self.minter = key.minter;
        self.key_epoch = key.key_epoch;
        self.mac = self.expected_mac(key, incarnation);
        self
    }

    /// Whether the MAC is right under `key`; takes the same time for any MAC.
    /// Expiry, range and rights are the caller's to check.
    #[must_use]
    pub fn verify(&self, key: &CapabilityKey, incarnation: Incarnation) -> bool {
        self.minter == key.minter
            && self.key_epoch == key.key_epoch
            && equal_in_constant_time(&self.mac, &self.expected_mac(key, incarnation))
    }

    fn expected_mac(&self, key: &CapabilityKey, incarnation: Incarnation) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&key.key);
        hasher.update(&[1, self.rights.0, 0, 0]);
        hasher.update(&self.minter.to_be_bytes());
        hasher.update(&self.key_epoch.to_be_bytes());
        hasher.update(&self.object.encode());
        for number in [
            self.version.0,
            self.offset_bytes,
            self.length_bytes,
            self.expiry_seconds,
            incarnation.0,
        ] {
            hasher.update(&number.to_be_bytes());
        }
        first_half(hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

    /// Goal: a capability holds for its key and incarnation, and for nothing else.
    #[test]
    fn capability_is_bound_to_everything_in_it() {
        let key = CapabilityKey::derive(&[3; 32], 7, 1);
        let capability = Capability {
            rights: Rights::READ,
            object: ObjectId::column(FileId(9), 1, 0, 0),
            version: Version::NONE,
            offset_bytes: 0,
            length_bytes: 10,
            expiry_seconds: 100,
            minter: 0,
            key_epoch: 0,
            mac: [0; 16],
        }
        .mint(&key, Incarnation(5));
        assert!(capability.verify(&key, Incarnation(5)));
        assert!(!capability.verify(&key, Incarnation(6)));
        assert!(!capability.verify(&CapabilityKey::derive(&[3; 32], 7, 2), Incarnation(5)));
        let mut wider = capability;
        wider.length_bytes = 11;
        assert!(!wider.verify(&key, Incarnation(5)));
    }
}
