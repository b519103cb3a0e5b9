//! What mends a finding of a check of the volume.

use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{Repair, Rights, SiteError};
use crossdock_types::WallTime;

use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::names::FIRST_COOKIE;
use crate::remove::remove_entry;
use crate::state::Directory;

impl Directory {
    /// The changes that mend what was found of `file`; none if it is mended already.
    ///
    /// # Errors
    /// [`SiteError::NotSync`] if it is not so any more, [`SiteError::Exists`] if the
    /// name is another file's, [`SiteError::Stale`] if the file is gone.
    pub fn plan_repair(
        &self,
        file: FileRef,
        repair: &Repair,
        wall: WallTime,
    ) -> Result<Vec<Mutation>, SiteError> {
        match repair {
            Repair::RemoveName { cookie, child } => {
                let part = self.directory_cell(file)?;
                let entry = self.entry_at(part.serial, *cookie);
                let entry = entry.ok_or(SiteError::NotSync)?;
                if entry.child() != *child || self.cell_if_here(*child).is_some() {
                    return Err(SiteError::NotSync);
                }
                let gone = remove_entry(part.serial, entry.name.as_bytes());
                let mut mutations = vec![gone];
                mutations.extend(self.use_cookie(part));
                let mut part = part.clone();
                part.touch_modified(wall);
                mutations.push(Mutation::PutCell(part));
                Ok(mutations)
            }
            Repair::AddName {
                name,
                child,
                is_directory,
            } => {
                let part = self.directory_cell(file)?;
                if let Some(entry) = self.entry(part.serial, name) {
                    return match entry.child() == *child {
                        true => Ok(Vec::new()),
                        false => Err(SiteError::Exists),
                    };
                }
                let entry = self.new_entry_here(part, name, *child)?;
                let mut part = part.clone();
                part.links += u32::from(*is_directory);
                part.touch_modified(wall);
                Ok(vec![entry, Mutation::PutCell(part)])
            }
            Repair::SetLinks { changed, links } => {
                let mut cell = self.unchanged(file, *changed)?.clone();
                cell.links = *links;
                cell.touch_changed(wall);
                Ok(vec![Mutation::PutCell(cell)])
            }
            Repair::SetParent { changed, parent } => {
                let mut cell = self.unchanged(file, *changed)?.clone();
                let listing = self.listing(cell.serial).ok_or(SiteError::NotDirectory)?;
                let put = Mutation::PutDirectory {
                    serial: cell.serial,
                    parent: *parent,
                    next_cookie: listing.next_cookie,
                };
                cell.touch_changed(wall);
                Ok(vec![put, Mutation::PutCell(cell)])
            }
            Repair::MakeDirectory { rights } => self.make_anew(file, *rights, wall),
            Repair::SetRights { changed, rights } => {
                let mut cell = self.unchanged(file, *changed)?.clone();
                cell.set_rights(*rights);
                cell.touch_changed(wall);
                Ok(vec![Mutation::PutCell(cell)])
            }
            Repair::RemovePart { changed } => self.remove_part(file, *changed),
            Repair::MakeObjects => self.cell(file).map(|_| Vec::new()),
        }
    }

    fn remove_part(&self, part: FileRef, changed: WallTime) -> Result<Vec<Mutation>, SiteError> {
        let serial = self.unchanged(part, changed)?.serial;
        if self.whole(part) == part {
            return Err(SiteError::Invalid);
        }
        let listing = self.listing(serial);
        match listing.is_none_or(|listing| listing.entries.is_empty()) {
            true => Ok(vec![Mutation::RemoveCell { serial }]),
            false => Err(SiteError::NotEmpty),
        }
    }

    /// A directory that is not there, over the names in it that are.
    fn make_anew(
        &self,
        file: FileRef,
        rights: Rights,
        wall: WallTime,
    ) -> Result<Vec<Mutation>, SiteError> {
        let serial = file.id.serial();
        if file.id.site() != self.site || self.cell_of(serial).is_some() {
            return self.directory_cell(file).map(|_| Vec::new());
        }
        let listing = self.listing(serial);
        // Of a directory whose names lie at one site the check finds out where its name
        // is, if it has one.
        let parent = match self.whole(file) {
            whole if whole != file => whole,
            _ => {
                let known = self.parent_of(serial).filter(|parent| parent.id.0 != 0);
                known.unwrap_or(FileRef::root_of(SiteId(0)))
            }
        };
        let next_cookie = listing.map_or(FIRST_COOKIE, |listing| listing.next_cookie);
        Ok(vec![
            Mutation::PutCell(Cell::of_directory(file, rights, wall)),
            Mutation::PutDirectory {
                serial,
                parent,
                next_cookie,
            },
        ])
    }

    fn unchanged(&self, file: FileRef, changed: WallTime) -> Result<&Cell, SiteError> {
        let cell = self.cell(file)?;
        (cell.changed == changed)
            .then_some(cell)
            .ok_or(SiteError::NotSync)
    }

    fn cell_if_here(&self, file: FileRef) -> Option<&Cell> {
        self.cell(file).ok()
    }
}
