//! What can be wrong with a volume.

use std::fmt;

use crossdock_names::{FileId, FileRef, NodeId, ObjectId, SiteId};
use crossdock_types::WallTime;

/// One thing that is wrong. Two looks that find the same have found what nobody was
/// just changing: ctimes and cookies are in it ([`crossdock_peer::CensusRow`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A name of a file that is not there.
    Dangling {
        /// The directory, or its part.
        directory: FileRef,
        /// The name's cookie.
        cookie: u64,
        /// What it names.
        child: FileRef,
    },
    /// Names in a directory, or a part of one, that is not there.
    Nowhere {
        /// Which directory.
        directory: FileId,
    },
    /// A file without a name.
    Orphan {
        /// Which.
        file: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// A part of a directory whose names are hashed, and no home.
    PartAlone {
        /// Which.
        part: FileRef,
        /// Its ctime.
        changed: WallTime,
    },
    /// A directory with several names.
    SeveralNames {
        /// Which.
        directory: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// How many.
        names: u32,
    },
    /// A link count that is not the number of names, or, of a directory, of the
    /// directories in it and two.
    Links {
        /// Which file.
        file: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// The count.
        links: u32,
        /// What it should be.
        names: u32,
    },
    /// A directory whose `..` is not where its name is.
    Parent {
        /// Which.
        directory: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// Its `..`, if it has one.
        says: Option<FileId>,
        /// Where its name is.
        named_in: FileRef,
    },
    /// A site has no part of a directory whose names are hashed.
    PartMissing {
        /// The directory.
        directory: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// Which site.
        site: SiteId,
    },
    /// An object of a file that is not there, or has no such part.
    Leaked {
        /// The node that holds it.
        node: NodeId,
        /// Which.
        object: ObjectId,
    },
    /// Objects of a file that no node holds.
    Missing {
        /// Which file.
        file: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// How many.
        objects: u64,
    },
}

impl Finding {
    /// The files that it is about.
    pub(super) fn files(&self) -> impl Iterator<Item = FileId> {
        let [first, second] = match *self {
            Self::Dangling {
                directory, child, ..
            } => [Some(directory.id), Some(child.id)],
            Self::Parent {
                directory,
                named_in,
                ..
            } => [Some(directory.id), Some(named_in.id)],
            Self::Orphan { file, .. }
            | Self::Links { file, .. }
            | Self::Missing { file, .. }
            | Self::PartAlone { part: file, .. }
            | Self::SeveralNames {
                directory: file, ..
            }
            | Self::PartMissing {
                directory: file, ..
            } => [Some(file.id), None],
            Self::Nowhere { directory } => [Some(directory), None],
            Self::Leaked { object, .. } => [Some(FileId(object.placement)), None],
        };
        first.into_iter().chain(second)
    }
}

/// For people: files by the numbers that `ls -i` shows.
impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dangling {
                directory,
                cookie,
                child,
            } => write!(
                out,
                "directory {} names file {}, which is not there (cookie {cookie})",
                directory.id.0, child.id.0
            ),
            Self::Nowhere { directory } => write!(
                out,
                "there are names in directory {}, which is not there",
                directory.0
            ),
            Self::PartAlone { part, .. } => write!(
                out,
                "{} is a part of a directory that is not there",
                part.id.0
            ),
            Self::SeveralNames {
                directory, names, ..
            } => write!(out, "directory {} has {names} names", directory.id.0),
            Self::Orphan { file, .. } => write!(out, "file {} has no name", file.id.0),
            Self::Links {
                file, links, names, ..
            } => write!(
                out,
                "file {} has {links} links, and {names} lead to it",
                file.id.0
            ),
            Self::Parent {
                directory,
                says,
                named_in,
                ..
            } => {
                let says = says.map_or_else(|| "nowhere".to_owned(), |says| says.0.to_string());
                write!(
                    out,
                    "the parent of directory {} is {says}, and its name is in {}",
                    directory.id.0, named_in.id.0
                )
            }
            Self::PartMissing {
                directory, site, ..
            } => write!(
                out,
                "site {site} has no part of directory {}",
                directory.id.0
            ),
            Self::Leaked { node, object } => write!(
                out,
                "node {:016x} holds {object}, which belongs to no file",
                node.0
            ),
            Self::Missing { file, objects, .. } => write!(
                out,
                "of file {} {objects} objects are on no node: it has holes where they were",
                file.id.0
            ),
        }
    }
}
