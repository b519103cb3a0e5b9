//! Name entries, and what a directory knows beside its cell.

use std::collections::BTreeMap;

use crossdock_names::{FileRef, SiteId};

use crate::slab::Record;

/// Names up to this long lie inside the entry.
const INLINE_BYTES: usize = 22;

/// A file name in 24 bytes, on the heap only if it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Inline {
        length: u8,
        bytes: [u8; INLINE_BYTES],
    },
    Heap(Box<[u8]>),
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(room), Ok(length)) => {
                room.copy_from_slice(name);
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(name.into()),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Serial of the directory; 0 = vacant.
    pub(crate) parent: u64,
    /// The file; its id says at which site its cell is.
    pub(crate) child: u64,
    pub(crate) generation: u32,
    pub(crate) cookie: u64,
    pub(crate) name: Name,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            parent: 0,
            child: 0,
            generation: 0,
            cookie: 0,
            name: Name::new(b""),
        }
    }
}

impl Record for Entry {
    fn is_vacant(&self) -> bool {
        self.parent == 0
    }
}

impl Entry {
    pub(crate) const fn child(&self) -> FileRef {
        FileRef {
            id: crossdock_names::FileId(self.child),
            generation: self.generation,
        }
    }
}

/// What a directory has beside its cell. It may for a while be there without
/// the cell: when a log is replayed over a checkpoint that is newer than its
/// beginning.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Serial of the directory; 0 = vacant.
    pub(crate) serial: u64,
    /// The directory's own parent (`..`).
    pub(crate) parent: u64,
    pub(crate) parent_generation: u32,
    /// Counter part of the next entry's cookie.
    pub(crate) next_cookie: u64,
    /// Entries by cookie.
    pub(crate) entries: BTreeMap<u64, u32>,
}

impl Record for Listing {
    fn is_vacant(&self) -> bool {
        self.serial == 0
    }
}

/// The counter part of a directory's first cookie: 0 is the beginning, 1 is
/// after `.`, 2 is after `..`.
pub(crate) const FIRST_COOKIE: u64 = 3;

/// Bits of the counter in a cookie; the site's 16 bits lie above it, below bit 62.
const COOKIE_COUNTER_BITS: u32 = 46;
const COOKIE_BITS: u32 = 62;

/// The cookie with that counter, given out by `site`.
pub(crate) const fn cookie(site: SiteId, counter: u64) -> u64 {
    (site.0 as u64) << COOKIE_COUNTER_BITS | counter
}

/// Whether the counter is used up.
pub(crate) const fn cookies_are_used_up(counter: u64) -> bool {
    counter >= 1 << COOKIE_COUNTER_BITS
}

/// A well-mixed hash of a name in a directory; `seed` makes it another one in
/// every volume, so that nobody can prepare names that collide.
pub(crate) fn hash_name(seed: u64, parent: u64, name: &[u8]) -> u64 {
    let mut hash = mix(seed ^ parent.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    mix(hash ^ name.len() as u64)
}

/// A well-mixed hash of a serial.
pub(crate) const fn hash_serial(seed: u64, serial: u64) -> u64 {
    mix(seed ^ serial)
}

/// SplitMix64's finaliser.
const fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Whether `cookie` can lie behind the dots of a directory whose next entry has
/// the counter `next`: all others were never given out.
pub(crate) const fn is_given(cookie: u64, next: u64) -> bool {
    let counter = counter_of(cookie);
    cookie >> COOKIE_BITS == 0 && counter >= FIRST_COOKIE && counter < next
}

/// The counter part of a cookie.
pub(crate) const fn counter_of(cookie: u64) -> u64 {
    cookie & ((1 << COOKIE_COUNTER_BITS) - 1)
}
