//! From an operation to its answer and its changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_limits::NAME_BYTES_MAX;
use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{Caller, DirectoryEntry, SiteError, SiteOperation};
use crossdock_types::WallTime;

use crate::abroad::Abroad;
use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::names::{Entry, cookie, cookies_are_used_up};
use crate::permission::Wanted;
use crate::state::Directory;

/// What an operation answers; attributes are read after the changes are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing but attributes.
    Done,
    /// Those of a part of a directory, whose entries have changed so often.
    Part(u64),
    /// A file that was found or made.
    Found(FileRef),
    /// The same, of which only another site knows more.
    Elsewhere(FileRef),
    /// The directory that was found, if it is to be told; whether it lies within a
    /// tree depends on another one, of another site.
    Above(Option<FileRef>, FileRef),
    /// ACCESS3 bits.
    Access(u32),
    /// Text of a symbolic link.
    Link(Bytes),
    /// Entries of a directory.
    Directory {
        /// In cookie order.
        entries: Vec<DirectoryEntry>,
        /// Whether the directory ends after them.
        end: bool,
    },
}

/// What an operation does if its changes are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is answered then.
    pub answer: Answer,
    /// The changes, in order; all of them go into one log record.
    pub mutations: Vec<Mutation>,
    /// The changes that other sites make, each in order.
    pub elsewhere: BTreeMap<SiteId, Vec<Mutation>>,
    /// The file whose last name goes: its bytes are to be removed.
    pub freed: Option<Cell>,
    /// The new cell of a regular file that is truncated or extended by the
    /// caller: its bytes are to be cut.
    pub resized: Option<Cell>,
}

impl Plan {
    /// Adds a change of that site, for one who plans at `here`.
    pub(crate) fn put(&mut self, here: SiteId, site: SiteId, mutation: Mutation) {
        if site == here {
            self.mutations.push(mutation);
        } else {
            self.elsewhere.entry(site).or_default().push(mutation);
        }
    }

    pub(crate) const fn answer(answer: Answer) -> Self {
        Self {
            answer,
            mutations: Vec::new(),
            elsewhere: BTreeMap::new(),
            freed: None,
            resized: None,
        }
    }
}

impl Directory {
    /// What `operation` answers and changes, were it done now. The state stays
    /// as it is until the changes are applied.
    ///
    /// # Errors
    /// As the operation's documentation in `contract/peer` says;
    /// [`SiteError::Invalid`] for operations on content, space and quotas;
    /// [`SiteError::Moved`] if it needs what other sites have and have not told.
    pub fn plan(
        &self,
        caller: &Caller,
        operation: &SiteOperation,
        wall: WallTime,
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        match operation {
            SiteOperation::GetAttributes { file } => {
                let is_split = self.is_split(self.cell(*file)?);
                Ok(Plan::answer(match is_split {
                    true => Answer::Part(self.changes_of(*file)?),
                    false => Answer::Done,
                }))
            }
            SiteOperation::SetAttributes {
                file,
                changes,
                guard,
            } => self.set_attributes(caller, *file, changes, *guard, wall, abroad),
            SiteOperation::Lookup { directory, name } => self.lookup(caller, *directory, name),
            SiteOperation::LookupParent { directory, within } => {
                self.lookup_parent(caller, *directory, *within)
            }
            SiteOperation::Within { directory, root } => {
                self.directory_cell(*directory)?;
                let above = self.check_within(*directory, *root)?;
                Ok(Plan::answer(
                    above.map_or(Answer::Done, |at| Answer::Above(None, at)),
                ))
            }
            SiteOperation::Access { file, wanted } => Ok(Plan::answer(Answer::Access(
                self.cell(*file)?.access(caller, *wanted),
            ))),
            SiteOperation::ReadLink { file } => self.read_link(*file),
            SiteOperation::Create {
                directory,
                name,
                mode,
            } => self.create(caller, *directory, name, mode, wall),
            SiteOperation::MakeDirectory {
                directory,
                name,
                changes,
            } => self.make_directory(caller, *directory, name, changes, wall),
            SiteOperation::MakeSymlink {
                directory,
                name,
                changes,
                target,
            } => self.make_symlink(caller, *directory, name, changes, target, wall),
            SiteOperation::MakeNode {
                directory,
                name,
                kind,
                device,
                changes,
            } => self.make_node(caller, *directory, name, *kind, *device, changes, wall),
            SiteOperation::Remove { directory, name } => {
                self.remove(caller, *directory, name, wall, abroad)
            }
            SiteOperation::RemoveDirectory { directory, name } => {
                self.remove_directory(caller, *directory, name, wall, abroad)
            }
            SiteOperation::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => {
                let from = (*from_directory, from_name);
                self.rename(caller, from, (*to_directory, to_name), wall, abroad)
            }
            SiteOperation::Link {
                file,
                directory,
                name,
            } => self.link(caller, *file, *directory, name, wall, abroad),
            SiteOperation::ReadDirectory {
                directory,
                cookie,
                entries_max,
                name_bytes_max,
                with_attributes,
            } => {
                let bounds = (*entries_max, *name_bytes_max);
                self.read_directory(caller, *directory, *cookie, bounds, *with_attributes)
            }
            SiteOperation::Space { .. }
            | SiteOperation::SetQuota { .. }
            | SiteOperation::RemoveQuota { .. }
            | SiteOperation::Read { .. }
            | SiteOperation::Locate { .. }
            | SiteOperation::Zero { .. }
            | SiteOperation::Mapped { .. }
            | SiteOperation::Exchange { .. }
            | SiteOperation::Copy { .. }
            | SiteOperation::Write { .. }
            | SiteOperation::Commit { .. }
            | SiteOperation::Open { .. }
            | SiteOperation::PushAttributes { .. }
            | SiteOperation::Locks { .. }
            | SiteOperation::Transaction { .. }
            | SiteOperation::Census { .. }
            | SiteOperation::Names { .. }
            | SiteOperation::Repair { .. }
            | SiteOperation::Prove { .. } => Err(SiteError::Invalid),
        }
    }

    fn lookup(&self, caller: &Caller, directory: FileRef, name: &[u8]) -> Result<Plan, SiteError> {
        let cell = self.directory_cell(directory)?;
        cell.check(caller, Wanted::Execute)?;
        let found = match name {
            b"." => directory,
            b".." => return Err(SiteError::Invalid),
            _ => {
                check_name(name)?;
                let entry = self.entry(cell.serial, name);
                entry.ok_or(SiteError::NotFound)?.child()
            }
        };
        self.found(found)
    }

    /// The answer that a file was found.
    fn found(&self, file: FileRef) -> Result<Plan, SiteError> {
        if file.id.site() != self.site {
            return Ok(Plan::answer(Answer::Elsewhere(file)));
        }
        // The attributes of a directory in parts are elsewhere, too.
        let is_split = self.is_split(self.cell(file)?);
        Ok(Plan::answer(match is_split {
            true => Answer::Elsewhere(file),
            false => Answer::Found(file),
        }))
    }

    fn lookup_parent(
        &self,
        caller: &Caller,
        directory: FileRef,
        within: FileRef,
    ) -> Result<Plan, SiteError> {
        let cell = self.directory_cell(directory)?;
        cell.check(caller, Wanted::Execute)?;
        let parent = self.parent_of(cell.serial).ok_or(SiteError::Io)?;
        match self.check_within(parent, within)? {
            Some(directory) => Ok(Plan::answer(Answer::Above(Some(parent), directory))),
            None => self.found(parent),
        }
    }

    /// Checks that `directory` is `root` or lies below it: a directory may have
    /// been moved out of the tree in which a client got its handle. The one of
    /// another site that it depends on, if it does.
    fn check_within(
        &self,
        directory: FileRef,
        root: FileRef,
    ) -> Result<Option<FileRef>, SiteError> {
        let mut at = directory;
        // Everything lies below the volume's root.
        while at != root && root != FileRef::root_of(SiteId(0)) {
            if at.id.site() != self.site {
                return Ok(Some(at));
            }
            let parent = self.parent_of(at.id.serial()).ok_or(SiteError::Stale)?;
            if parent == at {
                return Err(SiteError::AccessDenied); // The volume's root.
            }
            at = parent;
        }
        Ok(None)
    }

    fn read_link(&self, file: FileRef) -> Result<Plan, SiteError> {
        let cell = self.cell(file)?;
        let text = self.links.get(&cell.serial).ok_or(SiteError::Invalid)?;
        Ok(Plan::answer(Answer::Link(Bytes::copy_from_slice(text))))
    }

    /// The cell of a file that must be a directory.
    pub(crate) fn directory_cell(&self, file: FileRef) -> Result<&Cell, SiteError> {
        let cell = self.cell(file)?;
        if cell.is_directory() {
            Ok(cell)
        } else {
            Err(SiteError::NotDirectory)
        }
    }

    /// The change that adds a name to a directory of this site.
    pub(crate) fn new_entry_here(
        &self,
        directory: &Cell,
        name: &[u8],
        child: FileRef,
    ) -> Result<Mutation, SiteError> {
        let listing = self.listing(directory.serial).ok_or(SiteError::Io)?;
        let directory = directory.file(self.site);
        new_entry(directory, listing.next_cookie, name, child)
    }

    /// A directory in which the caller may change entries, and what `name`
    /// names there now.
    pub(crate) fn directory_to_change(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
    ) -> Result<(&Cell, Option<&Entry>), SiteError> {
        let cell = self.directory_cell(directory)?;
        check_name(name)?;
        cell.check(caller, Wanted::Write)?;
        Ok((cell, self.entry(cell.serial, name)))
    }
}

/// The change that adds a name, under a cookie that the directory never had: the
/// one with the counter `next_cookie`.
pub(crate) fn new_entry(
    directory: FileRef,
    next_cookie: u64,
    name: &[u8],
    child: FileRef,
) -> Result<Mutation, SiteError> {
    if cookies_are_used_up(next_cookie) {
        return Err(SiteError::NoSpace);
    }
    Ok(Mutation::PutEntry {
        parent: directory.id.serial(),
        name: Bytes::copy_from_slice(name),
        child,
        cookie: cookie(directory.id.site(), next_cookie),
    })
}

/// Checks a name that is to be found, made or removed.
pub(crate) fn check_name(name: &[u8]) -> Result<(), SiteError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(SiteError::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(SiteError::Invalid);
    }
    Ok(())
}

/// Whether a name is `.` or `..`, which only LOOKUP takes.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
