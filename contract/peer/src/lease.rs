//! Leases of files: a router may keep what a site has told it of a file for a while
//! (CONSISTENCY 4, docs/decisions/0027).

use std::time::Duration;

use crossdock_names::FileRef;
use crossdock_types::WallTime;
use serde::{Deserialize, Serialize};

/// Names a lease of a site: its epoch in the upper half, a count in the lower. Later ones
/// are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A promise of a file's site to a router: until the lease has ended or been given
/// back, nobody is shown anything of the file that the holder could not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLease {
    /// Its name.
    pub id: LeaseId,
    /// Whether nobody else has one: size and times may change at the holder.
    pub is_exclusive: bool,
    /// How long it lasts, in milliseconds from when the holder asked for it, on its
    /// clock.
    pub lasts_ms: u32,
    /// The site's clock when it was given: what the holder counts times on from.
    pub wall: WallTime,
    /// Columns are there for writes up to here.
    pub writable_bytes: u64,
}

impl FileLease {
    /// How long any lease lasts at most (CONSISTENCY 4).
    pub const LASTS: Duration = Duration::from_millis(1500);

    /// How long the site counts on it, from when it was asked for: clocks that run up to
    /// a fiftieth faster or slower than each other do no harm.
    pub const KEPT: Duration = Duration::from_millis(1530);
}

/// What becomes of a lease by what its holder tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseUse {
    /// It stays.
    Keep(LeaseId),
    /// It ends.
    GiveBack(LeaseId),
}

/// A site wants a lease back: the answer is a push that gives it back, also from a
/// router that knows of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    /// Of this file.
    pub file: FileRef,
    /// This one.
    pub lease: LeaseId,
}
