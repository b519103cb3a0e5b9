//! Removing names, and with the last one the file.

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{Caller, SiteError};
use crossdock_types::WallTime;

use crate::abroad::{Abroad, Known};
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
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        if crate::plan::is_dot(name) {
            self.directory_cell(directory)?;
            return Err(SiteError::Invalid);
        }
        let (parent, entry) = self.directory_to_change(caller, directory, name)?;
        let known = self.known(entry.ok_or(SiteError::NotFound)?.child(), abroad)?;
        parent.check_sticky(caller, known.cell)?;
        if known.cell.is_directory() {
            return Err(SiteError::IsDirectory);
        }
        let mut plan = Plan::answer(Answer::Done);
        plan.mutations.push(remove_entry(parent.serial, name));
        self.unlink(&mut plan, &known, wall);
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
        abroad: &Abroad,
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
        let known = self.known(entry.ok_or(SiteError::NotFound)?.child(), abroad)?;
        parent.check_sticky(caller, known.cell)?;
        if !known.cell.is_directory() {
            return Err(SiteError::NotDirectory);
        }
        check_empty(&known)?;
        let mut plan = Plan::answer(Answer::Done);
        let mut parent = parent.clone();
        parent.touch_modified(wall);
        parent.links -= 1;
        plan.mutations.push(remove_entry(parent.serial, name));
        plan.put(self.site, known.site(), remove_cell(&known));
        plan.mutations.push(Mutation::PutCell(parent));
        Ok(plan)
    }

    /// Takes one link from a file that is not a directory.
    pub(crate) fn unlink(&self, plan: &mut Plan, known: &Known<'_>, wall: WallTime) {
        let mut cell = known.cell.clone();
        if cell.links > 1 {
            cell.links -= 1;
            cell.touch_changed(wall);
            return plan.put(self.site, known.site(), Mutation::PutCell(cell));
        }
        plan.put(self.site, known.site(), remove_cell(known));
        if known.site() == self.site {
            plan.freed = Some(cell);
        }
    }
}

pub(crate) fn check_empty(known: &Known<'_>) -> Result<(), SiteError> {
    if known.listing()?.is_empty {
        Ok(())
    } else {
        Err(SiteError::NotEmpty)
    }
}

pub(crate) const fn remove_cell(known: &Known<'_>) -> Mutation {
    Mutation::RemoveCell {
        serial: known.cell.serial,
    }
}

/// The change that takes a name out of the directory with that serial.
pub(crate) fn remove_entry(parent: u64, name: &[u8]) -> Mutation {
    Mutation::RemoveEntry {
        parent,
        name: Bytes::copy_from_slice(name),
    }
}
