//! Name entries, and what a directory knows beside its cell.

use crossdock_names::{FileRef, SiteId};
use crossdock_peer::COOKIE_COUNTER_BITS;

use crate::order::Order;
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

/// A number below 2^48 in 6 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Narrow([u8; 6]);

impl Narrow {
    fn new(number: u64) -> Self {
        let [a, b, c, d, e, f, ..] = number.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// A name in a directory, in 48 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Serial of the directory; 0 = vacant.
    parent: Narrow,
    /// The counter of its cookie: the rest of that is the site.
    counter: Narrow,
    /// The file; its id says at which site its cell is.
    child: u64,
    generation: u32,
    pub(crate) name: Name,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            parent: Narrow::default(),
            counter: Narrow::default(),
            child: 0,
            generation: 0,
            name: Name::new(b""),
        }
    }
}

impl Record for Entry {
    fn is_vacant(&self) -> bool {
        self.parent() == 0
    }
}

impl Entry {
    pub(crate) fn new(parent: u64, counter: u64, child: FileRef, name: Name) -> Self {
        Self {
            parent: Narrow::new(parent),
            counter: Narrow::new(counter),
            child: child.id.0,
            generation: child.generation,
            name,
        }
    }

    /// Serial of the directory.
    pub(crate) const fn parent(&self) -> u64 {
        self.parent.get()
    }

    pub(crate) const fn counter(&self) -> u64 {
        self.counter.get()
    }

    pub(crate) const fn child(&self) -> FileRef {
        FileRef {
            id: crossdock_names::FileId(self.child),
            generation: self.generation,
        }
    }

    pub(crate) fn is(&self, parent: u64, name: &[u8]) -> bool {
        self.parent() == parent && self.name.as_bytes() == name
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
    /// Entries by the counters of their cookies.
    pub(crate) entries: Order,
}

impl Record for Listing {
    fn is_vacant(&self) -> bool {
        self.serial == 0
    }
}

/// The counter part of a directory's first cookie: 0 is the beginning, 1 is
/// after `.`, 2 is after `..`.
pub(crate) const FIRST_COOKIE: u64 = 3;

/// Bits of a cookie.
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

/// The counter behind which the cookies of `site` are greater than `cookie`.
pub(crate) const fn counter_before(site: SiteId, cookie: u64) -> u64 {
    cookie.saturating_sub(crate::names::cookie(site, 0))
}

/// The counter part of a cookie.
pub(crate) const fn counter_of(cookie: u64) -> u64 {
    cookie & ((1 << COOKIE_COUNTER_BITS) - 1)
}
