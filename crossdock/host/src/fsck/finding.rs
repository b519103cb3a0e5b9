//! What can be wrong with a volume.

use std::fmt;

use crossdock_names::{FileId, FileRef, NodeId, ObjectId, SiteId};
use crossdock_peer::{NamePlace, Rights};
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
        /// Who may do what in it.
        rights: Rights,
        /// Whether there are names in this part or others of the directory.
        has_names: bool,
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
        /// Who may do what in the directory.
        rights: Rights,
    },
    /// In a part of a directory other things are allowed than in its home.
    PartDiffers {
        /// Which.
        part: FileRef,
        /// Its ctime.
        changed: WallTime,
        /// That of the home.
        home_changed: WallTime,
        /// What the home has.
        rights: Rights,
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
    /// The name that it is about, if it is not about a file.
    pub(super) const fn name(&self) -> Option<NamePlace> {
        match *self {
            Self::Dangling {
                directory, cookie, ..
            } => Some(NamePlace { directory, cookie }),
            _ => None,
        }
    }

    /// The files that it is about, first of all the one that is wrong.
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
            | Self::PartDiffers { part: file, .. }
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

/// A finding, and where what it is about lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFinding {
    /// What is wrong.
    pub finding: Finding,
    /// A path from the volume's root, as it can be shown; nothing if no names lead
    /// there, or too many.
    pub path: Option<String>,
}

impl fmt::Display for NamedFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finding.tell(self.path.as_deref(), out)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(None, out)
    }
}

/// A file by its path, if it has one, and the number that `ls -i` shows.
struct Named<'a> {
    kind: &'static str,
    id: FileId,
    path: Option<&'a str>,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number) = (self.kind, self.id.0);
        match self.path {
            Some(path) => write!(out, "{path} ({kind} {number})"),
            None => write!(out, "{kind} {number}"),
        }
    }
}

impl Finding {
    /// For people.
    fn tell(&self, path: Option<&str>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |kind, id| Named { kind, id, path };
        let file = |file: &FileRef| named("file", file.id);
        let directory = |directory: &FileRef| named("directory", directory.id);
        match self {
            Self::Dangling {
                directory,
                cookie,
                child,
            } => {
                let (directory, child) = (directory.id.0, child.id.0);
                match path {
                    Some(path) => write!(
                        out,
                        "{path} names file {child}, which is not there (directory {directory}, cookie {cookie})"
                    ),
                    None => write!(
                        out,
                        "directory {directory} names file {child}, which is not there (cookie {cookie})"
                    ),
                }
            }
            Self::Nowhere { directory } => write!(
                out,
                "there are names in {}, which is not there",
                named("directory", *directory)
            ),
            Self::PartAlone { part, .. } => write!(
                out,
                "{} is a part of a directory that is not there",
                named("directory", part.id)
            ),
            Self::SeveralNames {
                directory: file,
                names,
                ..
            } => write!(out, "{} has {names} names", directory(file)),
            Self::Orphan { file, .. } => write!(out, "file {} has no name", file.id.0),
            Self::Links {
                file: of,
                links,
                names,
                ..
            } => write!(
                out,
                "{} has {links} links, and {names} lead to it",
                file(of)
            ),
            Self::Parent {
                directory: below,
                says,
                named_in,
                ..
            } => {
                let says = says.map_or_else(|| "nowhere".to_owned(), |says| says.0.to_string());
                write!(
                    out,
                    "the parent of {} is {says}, and its name is in {}",
                    directory(below),
                    named_in.id.0
                )
            }
            Self::PartMissing {
                directory: whole,
                site,
                ..
            } => write!(out, "site {site} has no part of {}", directory(whole)),
            Self::PartDiffers { part, .. } => write!(
                out,
                "{} is a part with another owner, group or mode than its directory",
                directory(part)
            ),
            Self::Leaked { node, object } => {
                let id = FileId(object.placement);
                let node = node.0;
                match path {
                    Some(_) => write!(
                        out,
                        "node {node:016x} holds {object}, which {} does not have",
                        named("file", id)
                    ),
                    None => write!(
                        out,
                        "node {node:016x} holds {object}, which belongs to no file"
                    ),
                }
            }
            Self::Missing {
                file: of, objects, ..
            } => write!(
                out,
                "of {} {objects} objects are on no node: it has holes where they were",
                file(of)
            ),
        }
    }
}
