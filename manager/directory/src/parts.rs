//! Directories whose names are hashed: what their parts at all sites are together.
//!
//! A part is a directory of its site: a cell with the owner and mode of all parts,
//! and the entries whose names lie there. Operations on one name need one part;
//! what is about the directory as a whole – attributes, emptiness, removal – needs
//! all of them, which other sites tell as they tell of any directory.

use crossdock_names::{FileId, FileRef};
use crossdock_peer::{AttributeChanges, Caller, SiteError};
use crossdock_types::WallTime;

use crate::abroad::{Abroad, Known};
use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::names::FIRST_COOKIE;
use crate::plan::{Answer, Plan};
use crate::state::Directory;

impl Directory {
    /// Whether a file has parts at all sites, so that none has its attributes.
    #[must_use]
    pub fn is_split(&self, cell: &Cell) -> bool {
        self.spread.is_hashed && cell.is_directory()
    }

    /// What a client knows a directory as, of which this is a part.
    pub(crate) const fn whole(&self, directory: FileRef) -> FileRef {
        self.spread.whole(directory)
    }

    /// How often the entries of a part have changed: each new one and, where names
    /// are hashed, each that went has used up a cookie.
    pub(crate) fn changes_of(&self, part: FileRef) -> Result<u64, SiteError> {
        let listing = self.listing(part.id.serial()).ok_or(SiteError::Io)?;
        Ok(listing.next_cookie - FIRST_COOKIE)
    }

    /// The change by which an entry that goes from a part counts as one.
    pub(crate) fn use_cookie(&self, part: &Cell) -> Option<Mutation> {
        let listing = self.listing(part.serial)?;
        self.is_split(part).then_some(Mutation::PutDirectory {
            serial: part.serial,
            parent: FileRef {
                id: FileId(listing.parent),
                generation: listing.parent_generation,
            },
            next_cookie: listing.next_cookie + 1,
        })
    }

    /// The parts of a directory, its home first; itself, if names are not hashed.
    fn known_parts<'a>(
        &'a self,
        directory: FileRef,
        abroad: &'a Abroad,
    ) -> Result<Vec<Known<'a>>, SiteError> {
        let parts = self.spread.parts_of(directory);
        parts.map(|part| self.known(part, abroad)).collect()
    }

    /// Checks that there is no entry in any part.
    pub(crate) fn check_empty(&self, directory: FileRef, abroad: &Abroad) -> Result<(), SiteError> {
        for part in self.known_parts(directory, abroad)? {
            if !part.listing()?.is_empty {
                return Err(SiteError::NotEmpty);
            }
        }
        Ok(())
    }

    /// Adds the removal of all parts.
    pub(crate) fn remove_parts(&self, plan: &mut Plan, directory: FileRef) {
        for part in self.spread.parts_of(directory) {
            let serial = part.id.serial();
            plan.put(self.site, part.id.site(), Mutation::RemoveCell { serial });
        }
    }

    /// Adds the parts of a new directory that lie at other sites than its home, this one.
    pub(crate) fn add_parts(&self, plan: &mut Plan, cell: &Cell) {
        let home = cell.file(self.site);
        for part in self.spread.parts_of(home).skip(1) {
            let serial = part.id.serial();
            let cell = Cell {
                serial,
                ..cell.clone()
            };
            let listing = Mutation::PutDirectory {
                serial,
                parent: home,
                next_cookie: FIRST_COOKIE,
            };
            let edits = vec![Mutation::PutCell(cell), listing];
            plan.elsewhere.insert(part.id.site(), edits);
        }
    }

    /// SETATTR of a directory in parts: all get its owner and mode, and the time.
    pub(crate) fn set_attributes_of_parts(
        &self,
        caller: &Caller,
        directory: FileRef,
        changes: &AttributeChanges,
        guard: Option<WallTime>,
        wall: WallTime,
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        let parts = self.known_parts(directory, abroad)?;
        let (old, later) = together(&parts)?;
        if guard.is_some_and(|guard| guard != old.changed) {
            return Err(SiteError::NotSync);
        }
        let mut plan = Plan::answer(Answer::Done);
        if *changes == AttributeChanges::default() {
            return Ok(plan);
        }
        let new = old.with_changes(caller, changes, wall)?;
        for part in &parts {
            let mut cell = part.cell.clone();
            cell.kind_and_mode = new.kind_and_mode;
            (cell.uid, cell.gid) = (new.uid, new.gid);
            cell.changed = WallTime(new.changed.0.saturating_sub(later));
            if new.modified != old.modified {
                cell.modified = WallTime(new.modified.0.saturating_sub(later));
            }
            if part.file == directory {
                cell.accessed = new.accessed;
            }
            plan.put(self.site, part.site(), Mutation::PutCell(cell));
        }
        Ok(plan)
    }
}

/// The cell that all parts show together, and by how many nanoseconds its times
/// are later than the latest of theirs: one for each change.
fn together(parts: &[Known<'_>]) -> Result<(Cell, i64), SiteError> {
    let home = parts.first().ok_or(SiteError::Io)?;
    let mut cell = home.cell.clone();
    let mut changes = 0;
    for part in parts {
        cell.modified = cell.modified.max(part.cell.modified);
        cell.changed = cell.changed.max(part.cell.changed);
        changes += part.listing()?.next_cookie - FIRST_COOKIE;
    }
    let later = i64::try_from(changes).unwrap_or(i64::MAX);
    cell.modified.0 = cell.modified.0.saturating_add(later);
    cell.changed.0 = cell.changed.0.saturating_add(later);
    Ok((cell, later))
}
