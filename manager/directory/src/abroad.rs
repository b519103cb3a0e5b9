//! What other sites have: what an operation needs of it, how it is told, and a
//! view of files that is the same for those of this site and of others.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{Part, SiteError, SiteOperation};

use crate::cell::{Cell, get};
use crate::mutation::{Mutation, get_file, put_file};
use crate::state::Directory;

/// Format of what is told.
const FORMAT: u8 = 1;

/// Directories above another one that are told at a time.
const ANCESTORS_MAX: usize = 1024;

/// What other sites have told for one operation, and keep as it is until that
/// has ended.
#[derive(Debug, Default)]
pub struct Abroad {
    files: BTreeMap<FileRef, Told>,
    /// What names in directories name.
    places: BTreeMap<(FileRef, Bytes), Option<FileRef>>,
    /// Parents of directories.
    parents: BTreeMap<FileRef, FileRef>,
    /// Whether no directory gets another parent meanwhile.
    pub has_moves: bool,
}

#[derive(Debug)]
struct Told {
    cell: Cell,
    is_in_tree: bool,
    listing: Option<Listed>,
}

/// What a directory has beside its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) next_cookie: u64,
    pub(crate) is_empty: bool,
}

/// A file of this site or of another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) file: FileRef,
    pub(crate) cell: &'a Cell,
    /// The tree with a quota in which it lies; 0 = none. Of other sites' trees no
    /// more is known than that it is one.
    pub(crate) tree: u32,
    pub(crate) listing: Option<Listed>,
}

impl Known<'_> {
    pub(crate) const fn site(&self) -> SiteId {
        self.file.id.site()
    }

    pub(crate) fn listing(&self) -> Result<Listed, SiteError> {
        self.listing.ok_or(SiteError::Io)
    }
}

impl Abroad {
    /// Takes what a site has told about the parts that it was asked for; `None` if
    /// it is nothing that a site tells.
    pub fn take(&mut self, parts: &[Part], mut told: &[u8]) -> Option<()> {
        let bytes = &mut told;
        if get_byte(bytes)? != FORMAT {
            return None;
        }
        for part in parts {
            match part {
                Part::File(file) => self.take_file(*file, bytes)?,
                Part::Place { directory, name } => {
                    self.take_file(*directory, bytes)?;
                    let child = match get_byte(bytes)? {
                        0 => None,
                        _ => Some(get_file(bytes)?),
                    };
                    self.places.insert((*directory, name.clone()), child);
                }
                Part::Moves => self.has_moves = true,
                Part::Ancestors(directory) => {
                    let mut at = *directory;
                    for _ in 0..get::<usize>(bytes)? {
                        let parent = get_file(bytes)?;
                        self.parents.insert(at, parent);
                        at = parent;
                    }
                }
            }
        }
        bytes.is_empty().then_some(())
    }

    /// What another site told of a file.
    #[must_use]
    pub fn cell(&self, file: FileRef) -> Option<&Cell> {
        self.files.get(&file).map(|told| &told.cell)
    }

    fn take_file(&mut self, file: FileRef, bytes: &mut &[u8]) -> Option<()> {
        let cell = Cell::decode(bytes)?;
        let is_in_tree = get_byte(bytes)? != 0;
        let listing = match get_byte(bytes)? {
            0 => None,
            _ => Some(Listed {
                next_cookie: get_varint(bytes)?,
                is_empty: get_byte(bytes)? != 0,
            }),
        };
        let told = Told {
            cell,
            is_in_tree,
            listing,
        };
        self.files.insert(file, told);
        Some(())
    }
}

impl Directory {
    /// What another site needs to know of these parts, to be taken by
    /// [`Abroad::take`].
    ///
    /// # Errors
    /// [`SiteError::Stale`], [`SiteError::NotDirectory`]: as an operation on it would
    /// be told.
    pub fn tell(&self, parts: &[Part]) -> Result<Vec<u8>, SiteError> {
        let mut bytes = vec![FORMAT];
        for part in parts {
            match part {
                Part::File(file) => self.tell_file(*file, &mut bytes)?,
                Part::Place { directory, name } => {
                    let cell = self.directory_cell(*directory)?;
                    self.tell_file(*directory, &mut bytes)?;
                    let child = self
                        .entry(cell.serial, name)
                        .map(crate::names::Entry::child);
                    bytes.push(child.is_some().into());
                    if let Some(child) = child {
                        put_file(&mut bytes, &child);
                    }
                }
                Part::Moves => {}
                Part::Ancestors(directory) => {
                    self.directory_cell(*directory)?;
                    let above = self.ancestors(*directory);
                    put_varint(&mut bytes, above.len() as u64);
                    for parent in &above {
                        put_file(&mut bytes, parent);
                    }
                }
            }
        }
        Ok(bytes)
    }

    fn tell_file(&self, file: FileRef, bytes: &mut Vec<u8>) -> Result<(), SiteError> {
        let known = self.known_here(file)?;
        known.cell.encode(bytes);
        bytes.push((known.tree != 0).into());
        bytes.push(known.listing.is_some().into());
        if let Some(listing) = known.listing {
            put_varint(bytes, listing.next_cookie);
            bytes.push(listing.is_empty.into());
        }
        Ok(())
    }

    /// The directories above one of this site, up to the first of another site or
    /// the root, which is its own parent.
    #[must_use]
    pub fn ancestors(&self, directory: FileRef) -> Vec<FileRef> {
        let mut above = Vec::new();
        let mut at = directory;
        while at.id.site() == self.site && above.len() < ANCESTORS_MAX {
            let Some(parent) = self.parent_of(at.id.serial()) else {
                break;
            };
            above.push(parent);
            if parent == at {
                break;
            }
            at = parent;
        }
        above
    }

    /// What an operation needs of other sites and has not been told yet, per site.
    ///
    /// # Errors
    /// As the operation's own: it cannot succeed. [`SiteError::Moved`] if it is
    /// none of this site's.
    pub fn missing(
        &self,
        operation: &SiteOperation,
        abroad: &Abroad,
    ) -> Result<BTreeMap<SiteId, Vec<Part>>, SiteError> {
        let mut missing = Missing {
            site: self.site,
            abroad,
            parts: BTreeMap::new(),
        };
        match operation {
            SiteOperation::Remove { directory, name }
            | SiteOperation::RemoveDirectory { directory, name } => {
                let parent = self.directory_cell(*directory)?;
                let entry = self.entry(parent.serial, name).ok_or(SiteError::NotFound)?;
                missing.file(entry.child());
            }
            SiteOperation::Link {
                file, directory, ..
            } => {
                self.directory_cell(*directory)?;
                missing.file(*file);
            }
            SiteOperation::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => {
                let source = self.directory_cell(*from_directory)?;
                let entry = self.entry(source.serial, from_name);
                let child = entry.ok_or(SiteError::NotFound)?.child();
                missing.place(*to_directory, to_name);
                missing.file(child);
                if missing.parts.is_empty() {
                    self.missing_of_rename(&mut missing, child, *to_directory, to_name)?;
                }
                if missing.parts.is_empty() && from_directory != to_directory {
                    self.missing_of_move(&mut missing, child, *to_directory)?;
                }
            }
            _ => return Err(SiteError::Moved),
        }
        Ok(missing.parts)
    }

    /// What the new name names now, unless it is the same file.
    fn missing_of_rename(
        &self,
        missing: &mut Missing<'_>,
        child: FileRef,
        directory: FileRef,
        name: &Bytes,
    ) -> Result<(), SiteError> {
        let replaced = self.child_at(directory, name, missing.abroad)?;
        if let Some(replaced) = replaced.filter(|&replaced| replaced != child) {
            missing.file(replaced);
        }
        Ok(())
    }

    /// The way up from a moved directory's new parent.
    fn missing_of_move(
        &self,
        missing: &mut Missing<'_>,
        child: FileRef,
        target: FileRef,
    ) -> Result<(), SiteError> {
        if !self.known(child, missing.abroad)?.cell.is_directory() {
            return Ok(());
        }
        if !missing.abroad.has_moves {
            missing.add(SiteId(0), Part::Moves);
            return Ok(());
        }
        if let Way::Unknown(directory) = self.way_up(child, target, missing.abroad)? {
            missing.add(directory.id.site(), Part::Ancestors(directory));
        }
        Ok(())
    }

    /// Climbs from `target` to the root.
    ///
    /// # Errors
    /// [`SiteError::Invalid`] if `moved` is on the way: it would be its own
    /// descendant.
    pub(crate) fn way_up(
        &self,
        moved: FileRef,
        target: FileRef,
        abroad: &Abroad,
    ) -> Result<Way, SiteError> {
        let mut at = target;
        loop {
            if at == moved {
                return Err(SiteError::Invalid);
            }
            let parent = if at.id.site() == self.site {
                self.parent_of(at.id.serial()).ok_or(SiteError::Io)?
            } else {
                match abroad.parents.get(&at) {
                    Some(&parent) => parent,
                    None => return Ok(Way::Unknown(at)),
                }
            };
            if parent == at {
                return Ok(Way::Root);
            }
            at = parent;
        }
    }

    /// A file of this site, or what another one told of its.
    pub(crate) fn known<'a>(
        &'a self,
        file: FileRef,
        abroad: &'a Abroad,
    ) -> Result<Known<'a>, SiteError> {
        if file.id.site() == self.site {
            return self.known_here(file);
        }
        let told = abroad.files.get(&file).ok_or(SiteError::Moved)?;
        Ok(Known {
            file,
            cell: &told.cell,
            tree: told.is_in_tree.into(),
            listing: told.listing,
        })
    }

    pub(crate) fn known_here(&self, file: FileRef) -> Result<Known<'_>, SiteError> {
        let cell = self.cell(file)?;
        let listing = cell.is_directory().then(|| self.listing(cell.serial));
        let listing = listing.flatten().map(|listing| Listed {
            next_cookie: listing.next_cookie,
            is_empty: listing.entries.is_empty(),
        });
        Ok(Known {
            file,
            cell,
            tree: self.tree_of(cell),
            listing,
        })
    }

    /// What a name names in a directory of this site, or of another one that told.
    pub(crate) fn child_at(
        &self,
        directory: FileRef,
        name: &Bytes,
        abroad: &Abroad,
    ) -> Result<Option<FileRef>, SiteError> {
        if directory.id.site() == self.site {
            let entry = self.entry(directory.id.serial(), name);
            return Ok(entry.map(crate::names::Entry::child));
        }
        let place = (directory, name.clone());
        abroad.places.get(&place).copied().ok_or(SiteError::Moved)
    }

    /// Whether a directory that another site has numbered is still to come.
    #[must_use]
    pub fn is_adoptable(&self, file: FileRef) -> bool {
        self.cell_of(file.id.serial()).is_none() && self.adopted.is_expected(file.id)
    }

    /// The files that an operation is about: its subject, and what its names name.
    #[must_use]
    pub fn touched(&self, operation: &SiteOperation) -> Vec<FileId> {
        let mut files = vec![operation.subject().id];
        let mut named = |directory: &FileRef, name: &[u8]| {
            if directory.id.site() == self.site {
                let entry = self.entry(directory.id.serial(), name);
                files.extend(entry.map(|entry| entry.child().id));
            }
        };
        match operation {
            SiteOperation::Lookup { directory, name }
            | SiteOperation::Create {
                directory, name, ..
            }
            | SiteOperation::Remove { directory, name }
            | SiteOperation::RemoveDirectory { directory, name } => named(directory, name),
            SiteOperation::Link { file, .. } => files.push(file.id),
            SiteOperation::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => {
                named(from_directory, from_name);
                named(to_directory, to_name);
                files.push(to_directory.id);
            }
            _ => {}
        }
        files
    }
}

/// Where a climb has ended.
pub(crate) enum Way {
    Root,
    /// Another site has to tell what is above this directory.
    Unknown(FileRef),
}

struct Missing<'a> {
    site: SiteId,
    abroad: &'a Abroad,
    parts: BTreeMap<SiteId, Vec<Part>>,
}

impl Missing<'_> {
    fn file(&mut self, file: FileRef) {
        if file.id.site() != self.site && !self.abroad.files.contains_key(&file) {
            self.add(file.id.site(), Part::File(file));
        }
    }

    fn place(&mut self, directory: FileRef, name: &Bytes) {
        let place = (directory, name.clone());
        if directory.id.site() != self.site && !self.abroad.places.contains_key(&place) {
            let (directory, name) = place;
            self.add(directory.id.site(), Part::Place { directory, name });
        }
    }

    fn add(&mut self, site: SiteId, part: Part) {
        let parts = self.parts.entry(site).or_default();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
}

/// Changes as they travel to the site that makes them.
#[must_use]
pub fn encode_edits(edits: &[Mutation]) -> Bytes {
    let mut bytes = vec![FORMAT];
    for edit in edits {
        edit.encode(&mut bytes);
    }
    bytes.into()
}

/// What [`encode_edits`] encoded; `None` if it is nothing of that kind.
#[must_use]
pub fn decode_edits(mut bytes: &[u8]) -> Option<Vec<Mutation>> {
    let bytes = &mut bytes;
    if get_byte(bytes)? != FORMAT {
        return None;
    }
    let mut edits = Vec::new();
    while !bytes.is_empty() {
        edits.push(Mutation::decode(bytes)?);
    }
    Some(edits)
}
