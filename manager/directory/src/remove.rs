//! Removing names, and with the last one the file.

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{Caller, SiteError};
use crossdock_types::WallTime;

use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::plan::{Answer, Plan};
use crate::state::Directory;

impl Directory {
    pub(crate) fn remove(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        if crate::plan::is_dot(name) {
            self.directory_cell(directory)?;
            return Err(SiteError::Invalid);
        }
        let (parent, entry) = self.directory_to_change(caller, directory, name)?;
        let cell = self.cell(entry.ok_or(SiteError::NotFound)?.child())?;
        parent.check_sticky(caller, cell)?;
        if cell.is_directory() {
            return Err(SiteError::IsDirectory);
        }
        let mut plan = Plan::answer(Answer::Done);
        plan.mutations.push(remove_entry(parent, name));
        unlink(&mut plan, cell, wall);
        let mut parent = parent.clone();
        parent.touch_modified(wall);
        plan.mutations.push(Mutation::PutCell(parent));
        Ok(plan)
    }

    pub(crate) fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        // RFC 1813 section 3.3.13 tells the two apart.
        match name {
            b"." => {
                return Err(self
                    .directory_cell(directory)
                    .map_or_else(|e| e, |_| SiteError::Invalid));
            }
            b".." => {
                return Err(self
                    .directory_cell(directory)
                    .map_or_else(|e| e, |_| SiteError::Exists));
            }
            _ => {}
        }
        let (parent, entry) = self.directory_to_change(caller, directory, name)?;
        let cell = self.cell(entry.ok_or(SiteError::NotFound)?.child())?;
        parent.check_sticky(caller, cell)?;
        if !cell.is_directory() {
            return Err(SiteError::NotDirectory);
        }
        self.check_empty(cell)?;
        let mut plan = Plan::answer(Answer::Done);
        let mut parent = parent.clone();
        parent.touch_modified(wall);
        parent.links -= 1;
        plan.mutations = vec![
            remove_entry(&parent, name),
            Mutation::RemoveCell {
                serial: cell.serial,
            },
            Mutation::PutCell(parent),
        ];
        Ok(plan)
    }

    pub(crate) fn check_empty(&self, cell: &Cell) -> Result<(), SiteError> {
        let listing = self.listing(cell.serial).ok_or(SiteError::Io)?;
        if listing.entries.is_empty() {
            Ok(())
        } else {
            Err(SiteError::NotEmpty)
        }
    }
}

/// The change that takes a name out of a directory.
pub(crate) fn remove_entry(parent: &Cell, name: &[u8]) -> Mutation {
    Mutation::RemoveEntry {
        parent: parent.serial,
        name: Bytes::copy_from_slice(name),
    }
}

/// Takes one link from a file that is not a directory.
pub(crate) fn unlink(plan: &mut Plan, cell: &Cell, wall: WallTime) {
    if cell.links > 1 {
        let mut cell = cell.clone();
        cell.links -= 1;
        cell.touch_changed(wall);
        plan.mutations.push(Mutation::PutCell(cell));
        return;
    }
    plan.mutations.push(Mutation::RemoveCell {
        serial: cell.serial,
    });
    plan.freed = Some(cell.clone());
}
