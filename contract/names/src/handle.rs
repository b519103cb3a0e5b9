//! NFS file handles: opaque to clients, routable for us, forgeable by nobody.

use std::cell::Cell;
use std::fmt;

use crossdock_checksum::{equal_in_constant_time, mac};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{ExportId, FileId, FileRef, LayoutClass, VolumeId};

/// Bytes of every handle (RFC 1813 allows up to 64).
pub const HANDLE_BYTES: usize = 64;

const FORMAT: u8 = 1;
pub(crate) const MAC_AT: usize = HANDLE_BYTES - 16;

/// What a handle names.
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 1 | format | 1 |
/// | 1 | 1 | key id | which key made the MAC |
/// | 2 | 1 | layout | layout class as of creation, a hint |
/// | 3 | 1 | – | zero |
/// | 4 | 4 | export | through which export it was given out |
/// | 8 | 8 | volume | |
/// | 16 | 8 | file id | |
/// | 24 | 4 | generation | |
/// | 28 | 4 | snapshot | 0 = the living file |
/// | 32 | 8 | placement | file id of the origin |
/// | 40 | 8 | – | zero |
/// | 48 | 16 | MAC | keyed BLAKE3 of bytes 0–47, first 128 bits |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// The volume.
    pub volume: VolumeId,
    /// The export through which it was given out.
    pub export: ExportId,
    /// The file and its generation.
    pub file: FileRef,
    /// Under which file id the data was placed; differs for clones.
    pub placement: FileId,
    /// Layout class as of creation: a hint, the attribute cell decides.
    pub layout: LayoutClass,
}

/// One key for handles and its number: random, in the log of the root's site, told to
/// gateways without a scope and to nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleKey {
    /// The number that handles carry.
    pub id: u8,
    /// The secret.
    pub key: [u8; 32],
}

impl fmt::Debug for HandleKey {
    /// Never shows the secret: messages are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HandleKey({})", self.id)
    }
}

/// The keys that are valid now: the first makes new handles.
#[derive(Clone)]
pub struct HandleKeys {
    keys: Vec<HandleKey>,
    known: KnownMacs,
}

/// Why a handle is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HandleError {
    /// Not ours: another length or format, an unknown key, a wrong MAC.
    #[error("the file handle was not issued by this ensemble")]
    Forged,
}

impl HandleKeys {
    /// Keys in order of preference.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new(keys: Vec<HandleKey>) -> Self {
        assert!(!keys.is_empty(), "no handle key");
        let known = KnownMacs::new();
        Self { keys, known }
    }

    /// Whether these bytes are a handle of this format, true or not: that takes no key.
    #[must_use]
    pub fn is_format_of(bytes: &[u8]) -> bool {
        bytes.len() == HANDLE_BYTES && bytes[0] == FORMAT
    }

    /// The handle's bytes, with a MAC under the first key.
    #[must_use]
    pub fn seal(&self, handle: &FileHandle) -> [u8; HANDLE_BYTES] {
        let key = &self.keys[0];
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = key.id;
        bytes[2] = handle.layout.0;
        bytes[4..8].copy_from_slice(&handle.export.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&handle.volume.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&handle.file.id.0.to_be_bytes());
        bytes[24..28].copy_from_slice(&handle.file.generation.to_be_bytes());
        bytes[32..40].copy_from_slice(&handle.placement.0.to_be_bytes());
        self.known.seal(&key.key, bytes)
    }

    /// What `bytes` from a client name.
    ///
    /// # Errors
    /// [`HandleError::Forged`] if no valid key made them.
    pub fn open(&self, bytes: &[u8]) -> Result<FileHandle, HandleError> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().map_err(|_| HandleError::Forged)?;
        let key = self
            .keys
            .iter()
            .find(|key| key.id == bytes[1])
            .ok_or(HandleError::Forged)?;
        let expected = self.known.seal(&key.key, *bytes);
        if bytes[0] != FORMAT || !equal_in_constant_time(&bytes[MAC_AT..], &expected[MAC_AT..]) {
            return Err(HandleError::Forged);
        }
        Ok(FileHandle {
            layout: LayoutClass(bytes[2]),
            export: ExportId(be32(bytes, 4)),
            volume: VolumeId(be64(bytes, 8)),
            file: FileRef {
                id: FileId(be64(bytes, 16)),
                generation: be32(bytes, 24),
            },
            placement: FileId(be64(bytes, 32)),
        })
    }
}

/// Handles that were made or seen a moment ago. A listing makes one for each entry, and a MAC
/// costs as much as the rest of an entry; the same few handles come with most calls.
#[derive(Clone)]
struct KnownMacs(Box<[Cell<[u8; HANDLE_BYTES]>]>);

/// 256 KiB: it is to stay in a processor's cache.
const KNOWN_MACS: usize = 4096;

impl KnownMacs {
    fn new() -> Self {
        let empty = || Cell::new([0; HANDLE_BYTES]); // No handle begins with 0.
        Self(std::iter::repeat_with(empty).take(KNOWN_MACS).collect())
    }

    /// The handle, with the MAC of what comes before it.
    fn seal(&self, key: &[u8; 32], mut handle: [u8; HANDLE_BYTES]) -> [u8; HANDLE_BYTES] {
        let file = be64(&handle, 16);
        #[expect(clippy::cast_possible_truncation, reason = "less than the slots")]
        let slot = &self.0[(file ^ file >> 48) as usize % KNOWN_MACS];
        let known = slot.get();
        if known[..MAC_AT] == handle[..MAC_AT] {
            return known;
        }
        let mac = mac(key, &handle[..MAC_AT]);
        handle[MAC_AT..].copy_from_slice(&mac);
        if handle[0] == FORMAT {
            slot.set(handle);
        }
        handle
    }
}

pub(crate) fn be32(bytes: &[u8; HANDLE_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn be64(bytes: &[u8; HANDLE_BYTES], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteId;

    fn handle() -> FileHandle {
        FileHandle {
            volume: VolumeId(11),
            export: ExportId(2),
            file: FileRef {
                id: FileId::new(SiteId(1), 99),
                generation: 3,
            },
            placement: FileId(77),
            layout: LayoutClass::STRIPED,
        }
    }

    fn keys(id: u8, byte: u8) -> HandleKeys {
        HandleKeys::new(vec![HandleKey {
            id,
            key: [byte; 32],
        }])
    }

    /// Goal: a handle comes back as it was, and one flipped bit anywhere is a
    /// forgery (invariant 8).
    #[test]
    fn every_bit_is_protected() {
        let keys = keys(1, 5);
        let bytes = keys.seal(&handle());
        assert_eq!(keys.open(&bytes), Ok(handle()));
        for bit in 0..HANDLE_BYTES * 8 {
            let mut forged = bytes;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(&forged), Err(HandleError::Forged), "bit {bit}");
        }
        assert_eq!(keys.open(&bytes[..63]), Err(HandleError::Forged));
        assert_eq!(keys.open(&[]), Err(HandleError::Forged));
    }

    /// Goal: a handle that shares its place among the known ones with others, or
    /// differs from them in its key only, has the MAC that a fresh table gives it.
    #[test]
    fn handles_that_were_seen_before_are_sealed_alike() {
        let busy = HandleKeys::new(vec![
            HandleKey {
                id: 1,
                key: [5; 32],
            },
            HandleKey {
                id: 2,
                key: [6; 32],
            },
        ]);
        for round in 0..105 {
            let file = FileRef {
                id: FileId(round % 5 * KNOWN_MACS as u64 + round % 7),
                generation: u32::try_from(round % 3).expect("small"),
            };
            let handle = FileHandle { file, ..handle() };
            let sealed = busy.seal(&handle);
            assert_eq!(sealed, keys(1, 5).seal(&handle));
            assert_eq!(busy.open(&sealed), Ok(handle));
            let other = keys(2, 6).seal(&handle);
            assert_eq!(busy.open(&other), Ok(handle));
            let mut forged = sealed;
            forged[1] = 2;
            assert_eq!(busy.open(&forged), Err(HandleError::Forged));
        }
    }

    /// Goal: after a change of keys old handles stay valid while the old key is
    /// listed, and handles of another ensemble never are.
    #[test]
    fn two_key_sets_can_be_valid_at_once() {
        let old = keys(1, 5).seal(&handle());
        let both = HandleKeys::new(vec![
            HandleKey {
                id: 2,
                key: [6; 32],
            },
            HandleKey {
                id: 1,
                key: [5; 32],
            },
        ]);
        assert_eq!(both.open(&old), Ok(handle()));
        assert_eq!(both.seal(&handle())[1], 2);
        assert_eq!(keys(1, 9).open(&old), Err(HandleError::Forged));
    }
}
