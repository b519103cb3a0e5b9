//! Site to whoever checks the volume: which files and names it has, piece by piece.
//!
//! Answers of several sites at different times make no picture of one moment. So every
//! row says what tells whether it has changed since: the ctime of a file, which moves
//! with each of its names, and the cookie of a name, which is never given twice.

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, Incarnation, Spread};
use crossdock_types::WallTime;
use serde::{Deserialize, Serialize};

use crate::FileKind;

/// Where a list goes on. Places of another incarnation of the site mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusPlace {
    /// Which kind of row is next; 0 = the beginning.
    pub phase: u8,
    /// From which record on.
    pub index: u64,
}

/// Which files a list is about: so many look through a volume one after the other as
/// their figures would not fit memory together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusClass {
    /// Which class.
    pub number: u32,
    /// Of how many, at least 1.
    pub of: u32,
}

impl CensusClass {
    /// The class of all files.
    pub const ALL: Self = Self { number: 0, of: 1 };

    /// Whether a file is in it; all parts of a directory are in one class.
    #[must_use]
    pub fn has(&self, spread: Spread, file: FileRef) -> bool {
        let id = spread.whole(file).id;
        // The numbers of a site's files follow each other, those of sites as well.
        let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed % u64::from(self.of.max(1)) == u64::from(self.number)
    }
}

/// One thing that a site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CensusRow {
    /// What is decided, and not done by all, touches this file: what is wrong with it
    /// may be right when that has been done.
    Unsettled(FileId),
    /// A file.
    File {
        /// Which.
        file: FileRef,
        /// What it is.
        kind: FileKind,
        /// Its link count.
        links: u32,
        /// Its ctime.
        changed: WallTime,
        /// Columns per segment; 0 = all of it is at the site.
        columns: u16,
        /// Segments that have columns.
        segments: u32,
    },
    /// A directory's parent, as it says itself; of a part that is not the home of a
    /// directory whose names are hashed, its home.
    Parent {
        /// Which directory.
        directory: FileId,
        /// Its `..`.
        parent: FileRef,
    },
    /// Who may do what in a directory whose names are hashed, or in a part of it.
    Rights {
        /// Which.
        directory: FileId,
        /// Who may do what.
        rights: Rights,
    },
    /// A name.
    Name {
        /// The directory, or its part; of generation 0 if it is not there.
        directory: FileRef,
        /// The name's cookie.
        cookie: u64,
        /// What it names.
        child: FileRef,
    },
}

/// Whose a directory is, and who may do what in it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Rights {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The 12 permission bits.
    pub mode: u32,
}

/// Where a name is: what leads to it after a look through the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamePlace {
    /// The directory, or its part.
    pub directory: FileRef,
    /// The name's cookie.
    pub cookie: u64,
}

/// A piece of a site's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusPage {
    /// Changes when the site is opened anew: then the list begins anew.
    pub incarnation: Incarnation,
    /// What is in it.
    pub rows: Vec<CensusRow>,
    /// Where it goes on; absent at the end.
    pub next: Option<CensusPlace>,
}

/// What mends something that a check has found. It is done only if that is still so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// A name in the directory, of a file that is not there, goes.
    RemoveName {
        /// The name's cookie.
        cookie: u64,
        /// What it names.
        child: FileRef,
    },
    /// A file without a name gets one in the directory.
    AddName {
        /// The name.
        name: Bytes,
        /// The file.
        child: FileRef,
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// The file's link count becomes the number of its names.
    SetLinks {
        /// Its ctime when they were counted.
        changed: WallTime,
        /// How many.
        links: u32,
    },
    /// The directory's `..` becomes where its name is.
    SetParent {
        /// Its ctime when that was found.
        changed: WallTime,
        /// The directory that names it.
        parent: FileRef,
    },
    /// A directory, or a part of one, that is not there is made anew, with the names in
    /// it that are left.
    MakeDirectory {
        /// Who may do what in it.
        rights: Rights,
    },
    /// The part of a directory gets the rights of its home.
    SetRights {
        /// Its ctime when that was found.
        changed: WallTime,
        /// What the home has.
        rights: Rights,
    },
    /// A part of a directory that is not there goes, if no names are in it.
    RemovePart {
        /// Its ctime when that was found.
        changed: WallTime,
    },
    /// Objects of the file that no node has are made anew, with nothing in them.
    MakeObjects,
}
