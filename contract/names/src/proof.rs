//! Proofs that a file was reached from the root of an export: what handles of gateways
//! that are scoped to exports are made of (CONSISTENCY 9, docs/decisions/0028).

use std::fmt;

use crossdock_checksum::{equal_in_constant_time, mac};
use serde::{Deserialize, Serialize};

use crate::handle::{HANDLE_BYTES, HandleError, MAC_AT, be32, be64};
use crate::{ExportId, FileId, FileRef, LayoutClass, VolumeId};

/// Format of handles whose MAC is a proof.
pub(crate) const FORMAT: u8 = 2;

/// What managers make proofs with: random, in the log of the root's site, never told to
/// gateways or nodes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofKey {
    /// The number that proofs carry.
    pub id: u8,
    /// The secret.
    pub key: [u8; 32],
}

impl fmt::Debug for ProofKey {
    /// Never shows the secret: messages are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ProofKey({})", self.id)
    }
}

/// That a file was reached from the root of an export. Within the ensemble it travels as
/// it is; to clients as a handle of format 2, which has nothing else in it:
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 2 |
/// | 1 | 1 | key id | which proof key made the MAC |
/// | 2 | 1 | layout | that of striped files |
/// | 3 | 1 | – | zero |
/// | 4 | 4 | export | from whose root it was reached |
/// | 8 | 8 | volume | |
/// | 16 | 8 | file id | |
/// | 24 | 4 | generation | |
/// | 28 | 4 | snapshot | 0 = the living file |
/// | 32 | 8 | placement | the file id again |
/// | 40 | 8 | – | zero |
/// | 48 | 16 | MAC | keyed BLAKE3 of bytes 0–47, first 128 bits |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// From whose root it was reached.
    pub export: ExportId,
    /// The file; of a directory in parts the one at its home.
    pub file: FileRef,
    /// Which key made the MAC.
    pub key_id: u8,
    /// The MAC.
    pub mac: [u8; 16],
}

impl Proof {
    /// Makes one.
    #[must_use]
    pub fn new(key: &ProofKey, volume: VolumeId, export: ExportId, file: FileRef) -> Self {
        let mut proof = Self {
            export,
            file,
            key_id: key.id,
            mac: [0; 16],
        };
        proof.mac = proof.expected_mac(key, volume);
        proof
    }

    /// Whether `key` made it; takes the same time for any MAC.
    #[must_use]
    pub fn verify(&self, key: &ProofKey, volume: VolumeId) -> bool {
        let expected = self.expected_mac(key, volume);
        self.key_id == key.id && equal_in_constant_time(&self.mac, &expected)
    }

    /// Whether it is that one, which is known to be right; takes the same time for any
    /// MAC.
    #[must_use]
    pub fn is_same(&self, known: &Self) -> bool {
        let is_of_same =
            (self.export, self.file, self.key_id) == (known.export, known.file, known.key_id);
        is_of_same && equal_in_constant_time(&self.mac, &known.mac)
    }

    /// The handle that a client has for it.
    #[must_use]
    pub fn to_handle(&self, volume: VolumeId) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = self.key_id;
        bytes[2] = LayoutClass::STRIPED.0;
        bytes[4..8].copy_from_slice(&self.export.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&volume.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.file.id.0.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.file.generation.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.file.id.0.to_be_bytes());
        bytes[MAC_AT..].copy_from_slice(&self.mac);
        bytes
    }

    /// What a client's handle of format 2 says, true or not; `None` if it is of another
    /// format.
    ///
    /// # Errors
    /// [`HandleError::Forged`]: nobody would make such a handle of `volume`.
    pub fn of_handle(bytes: &[u8], volume: VolumeId) -> Result<Option<Self>, HandleError> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().map_err(|_| HandleError::Forged)?;
        if bytes[0] != FORMAT {
            return Ok(None);
        }
        let mut mac = [0; 16];
        mac.copy_from_slice(&bytes[MAC_AT..]);
        let proof = Self {
            export: ExportId(be32(bytes, 4)),
            file: FileRef {
                id: FileId(be64(bytes, 16)),
                generation: be32(bytes, 24),
            },
            key_id: bytes[1],
            mac,
        };
        match proof.to_handle(volume) == *bytes {
            true => Ok(Some(proof)),
            false => Err(HandleError::Forged),
        }
    }

    fn expected_mac(&self, key: &ProofKey, volume: VolumeId) -> [u8; 16] {
        let handle = self.to_handle(volume);
        mac(&key.key, &handle[..MAC_AT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteId;

    const VOLUME: VolumeId = VolumeId(11);
    const KEY: ProofKey = ProofKey {
        id: 1,
        key: [7; 32],
    };

    fn proof() -> Proof {
        let file = FileRef {
            id: FileId::new(SiteId(1), 99),
            generation: 3,
        };
        Proof::new(&KEY, VOLUME, ExportId(2), file)
    }

    /// Goal: a proof comes back out of its handle and holds under its key and volume; one
    /// flipped bit anywhere in the handle, and it is none (invariant 8).
    #[test]
    fn every_bit_of_its_handle_is_protected() {
        let bytes = proof().to_handle(VOLUME);
        assert_eq!(Proof::of_handle(&bytes, VOLUME), Ok(Some(proof())));
        assert!(proof().verify(&KEY, VOLUME));
        assert!(!proof().verify(&KEY, VolumeId(12)));
        let other = ProofKey {
            id: 1,
            key: [8; 32],
        };
        assert!(!proof().verify(&other, VOLUME));
        for bit in 0..HANDLE_BYTES * 8 {
            let mut forged = bytes;
            forged[bit / 8] ^= 1 << (bit % 8);
            let taken = Proof::of_handle(&forged, VOLUME);
            let is_good = matches!(taken, Ok(Some(proof)) if proof.verify(&KEY, VOLUME));
            assert!(!is_good, "bit {bit}");
            let is_known = matches!(taken, Ok(Some(forged)) if forged.is_same(&proof()));
            assert!(!is_known, "bit {bit}");
        }
        assert_eq!(
            Proof::of_handle(&bytes[..63], VOLUME),
            Err(HandleError::Forged)
        );
    }

    /// Goal: the secret is in no log.
    #[test]
    fn the_secret_is_not_shown() {
        assert_eq!(format!("{KEY:?}"), "ProofKey(1)");
    }
}
