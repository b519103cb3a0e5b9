//! From a path to a file, name by name, as an NFS client would ask. Symbolic links
//! are followed within the volume.

use bytes::Bytes;
use crossdock_limits::NAME_BYTES_MAX;
use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{Attributes, FileKind, SiteAnswer, SiteError, SiteOperation, SiteReply};

/// Symbolic links on one way, as Linux has it.
const LINKS_MAX: u32 = 40;

/// Names on one way, those of links included: what a path of 8 KiB can have, twice.
const NAMES_MAX: usize = 8192;

/// A path on its way to its file.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Names still to look up, the next one last.
    rest: Vec<Bytes>,
    /// The way so far, without links: name and directory in which it is.
    way: Vec<(Bytes, FileRef)>,
    here: FileRef,
    links: u32,
    /// Whether a link in the last place is followed.
    follows_last: bool,
    /// What was asked last.
    asked: Asked,
}

#[derive(Debug)]
enum Asked {
    Nothing,
    /// Attributes of where we are.
    Here,
    Name(Bytes),
    /// The text of the link that has this name.
    Link,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// Ask this.
    Ask(SiteOperation),
    /// This is it.
    Found(Attributes),
    /// There is none, or nobody may see it.
    Failed(SiteError),
}

impl Walk {
    /// A walk from the volume's root.
    pub(crate) fn new(names: &[Bytes], follows_last: bool) -> Self {
        Self {
            rest: names.iter().rev().cloned().collect(),
            way: Vec::new(),
            here: FileRef::root_of(SiteId(0)),
            links: 0,
            follows_last,
            asked: Asked::Nothing,
        }
    }

    /// The names that lead to what was found, without links.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Bytes> {
        self.way.iter().map(|(name, _)| name)
    }

    /// The directories that it has led through, from the volume's root on.
    pub(crate) fn directories(&self) -> impl DoubleEndedIterator<Item = FileRef> {
        self.way.iter().map(|&(_, directory)| directory)
    }

    /// Asks for the first name.
    pub(crate) fn begin(&mut self) -> WalkStep {
        self.go_on(None)
    }

    /// Goes on after an answer.
    pub(crate) fn next(&mut self, reply: SiteReply) -> WalkStep {
        let asked = std::mem::replace(&mut self.asked, Asked::Nothing);
        match (asked, reply.outcome) {
            (_, Err(error)) => WalkStep::Failed(error),
            (Asked::Here, Ok(_)) => match reply.subject.after {
                Some(attributes) => self.go_on(Some(attributes)),
                None => WalkStep::Failed(SiteError::Io),
            },
            (Asked::Name(name), Ok(SiteAnswer::Found { attributes, .. })) => {
                self.found(name, attributes)
            }
            (Asked::Link, Ok(SiteAnswer::Link { target })) => self.follow(&target),
            _ => WalkStep::Failed(SiteError::Io),
        }
    }

    fn go_on(&mut self, found: Option<Attributes>) -> WalkStep {
        match (self.rest.pop(), found) {
            (Some(name), _) => {
                if name.len() > NAME_BYTES_MAX {
                    return WalkStep::Failed(SiteError::NameTooLong);
                }
                let operation = SiteOperation::Lookup {
                    directory: self.here,
                    name: name.clone(),
                };
                self.asked = Asked::Name(name);
                WalkStep::Ask(operation)
            }
            (None, Some(attributes)) => WalkStep::Found(attributes),
            (None, None) => {
                self.asked = Asked::Here;
                WalkStep::Ask(SiteOperation::GetAttributes { file: self.here })
            }
        }
    }

    fn found(&mut self, name: Bytes, attributes: Attributes) -> WalkStep {
        if attributes.kind == FileKind::Symlink && (self.follows_last || !self.rest.is_empty()) {
            self.asked = Asked::Link;
            let file = attributes.file;
            return WalkStep::Ask(SiteOperation::ReadLink { file });
        }
        self.way.push((name, self.here));
        self.here = attributes.file;
        self.go_on(Some(attributes))
    }

    /// The names of the link's text come first. `..` of the root is the root.
    fn follow(&mut self, target: &Bytes) -> WalkStep {
        self.links += 1;
        let names = target.split(|&byte| byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
        if self.links > LINKS_MAX || names.len() + self.rest.len() > NAMES_MAX {
            return WalkStep::Failed(SiteError::NotFound);
        }
        if target.starts_with(b"/") {
            self.way.clear();
            self.here = FileRef::root_of(SiteId(0));
        }
        let mut names = names.into_iter();
        // Only those at its beginning lead up; one behind a name needs what that is.
        let mut first = names.next();
        while first == Some(b"..") {
            if let Some((_, directory)) = self.way.pop() {
                self.here = directory;
            }
            first = names.next();
        }
        let rest: Vec<Bytes> = first
            .into_iter()
            .chain(names)
            .map(Bytes::copy_from_slice)
            .collect();
        if rest.iter().any(|name| name.as_ref() == b"..") {
            return WalkStep::Failed(SiteError::NotFound);
        }
        self.rest.extend(rest.into_iter().rev());
        self.go_on(None)
    }
}
