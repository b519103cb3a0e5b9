//! Newtypes for every id, so that one can never be passed for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, $format, self.0)
            }
        }
    };
}

id!(
    /// A volume: random, so that two ensembles can be merged.
    VolumeId(u64),
    "{:016x}"
);
id!(
    /// A storage node: random, given when its store is made.
    NodeId(u64),
    "{:016x}"
);
id!(
    /// A process of the ensemble: random, new for each start. It is the instance
    /// that writes carry and fences name.
    HostId(u64),
    "{:016x}"
);
id!(
    /// A replica set: a registry record of nodes that hold the same objects.
    SetId(u32),
    "{}"
);
impl SetId {
    /// No set: what lies on one node without replicas.
    pub const NONE: Self = Self(u32::MAX);
}
id!(
    /// A logical site, one of [`crate::SITES`].
    SiteId(u16),
    "{}"
);
id!(
    /// A bucket of the placement hash, one of [`crate::SLOTS`].
    Slot(u16),
    "{}"
);
id!(
    /// An export of a volume.
    ExportId(u32),
    "{}"
);
id!(
    /// A number that only grows; whoever holds a lower one has been replaced
    /// (CONSISTENCY 1–3).
    Epoch(u64),
    "{}"
);
id!(
    /// What took unstable bytes and loses them when it changes: a node's boot,
    /// a site's epoch, a replica set's epoch (CONSISTENCY 6).
    Incarnation(u64),
    "{}"
);

id!(
    /// A file's number: site (16 bit) | serial (48 bit). It never changes.
    FileId(u64),
    "{:016x}"
);

impl FileId {
    /// The file `serial` (below 2^48) of `site`.
    #[must_use]
    pub const fn new(site: SiteId, serial: u64) -> Self {
        debug_assert!(serial < 1 << 48, "serial beyond 48 bits");
        Self((site.0 as u64) << 48 | serial)
    }

    /// The site that owns the attribute cell.
    #[must_use]
    pub const fn site(self) -> SiteId {
        SiteId((self.0 >> 48) as u16)
    }

    /// The number within the site; 0 is no file, 1 is the root (at site 0).
    #[must_use]
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    /// The file of `site` that `origin` numbered (below 2^40): a directory is made
    /// by its parent's site. The upper 8 bits of the serial are the difference of
    /// the two, so that what a site numbers for itself has small serials.
    #[must_use]
    pub const fn numbered_by(origin: SiteId, site: SiteId, number: u64) -> Self {
        debug_assert!(number < NUMBERS_MAX, "number beyond 40 bits");
        Self::new(site, ((origin.0 ^ site.0) as u64) << NUMBER_BITS | number)
    }

    /// The site that numbered it.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "8 bits")]
    pub const fn origin(self) -> SiteId {
        SiteId((self.serial() >> NUMBER_BITS) as u16 ^ self.site().0)
    }

    /// The number that its origin gave it, which that never gives again.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & (NUMBERS_MAX - 1)
    }
}

/// Bits of a serial that its origin counts.
const NUMBER_BITS: u32 = 40;

/// Files that a site can number.
pub const NUMBERS_MAX: u64 = 1 << NUMBER_BITS;

/// A file as a request names it: the generation tells a reused or removed id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// The file's number.
    pub id: FileId,
    /// Which of the files that had this number.
    pub generation: u32,
}

impl FileRef {
    /// Stands for a site; at site 0 it is the volume's root directory.
    #[must_use]
    pub const fn root_of(site: SiteId) -> Self {
        Self {
            id: FileId::new(site, 1),
            generation: 1,
        }
    }
}

id!(
    /// Version of a write: epoch of the ordering authority (24 bit) | sequence
    /// (40 bit). A restart raises the epoch before it gives numbers, so no
    /// number is used twice (CONSISTENCY 1).
    Version(u64),
    "{:x}"
);

impl Version {
    /// Nothing was ever written.
    pub const NONE: Self = Self(0);

    /// The first version of `epoch` (only its lower 24 bits count).
    #[must_use]
    pub const fn first_of(epoch: Epoch) -> Self {
        Self((epoch.0 & 0xff_ffff) << 40)
    }

    /// The version after this one. After 2^40 numbers it would run into the
    /// next epoch, which its owner must raise before.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch part.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch(self.0 >> 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the parts of a file id and of a version come out as they went in.
    #[test]
    fn packed_ids_unpack() {
        let file = FileId::new(SiteId(0xabcd), (1 << 48) - 1);
        assert_eq!(file.site(), SiteId(0xabcd));
        assert_eq!(file.serial(), (1 << 48) - 1);
        let own = FileId::numbered_by(SiteId(9), SiteId(9), 77);
        assert_eq!((own.serial(), own.origin()), (77, SiteId(9)));
        let other = FileId::numbered_by(SiteId(0xfe), SiteId(9), NUMBERS_MAX - 1);
        assert_eq!((other.site(), other.origin()), (SiteId(9), SiteId(0xfe)));
        assert_eq!(other.number(), NUMBERS_MAX - 1);
        let version = Version::first_of(Epoch(5)).next();
        assert_eq!(version.epoch(), Epoch(5));
        assert!(version < Version::first_of(Epoch(6)));
    }
}
