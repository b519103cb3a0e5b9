//! Renaming, atomically, over whatever had the name.

use bytes::Bytes;
use crossdock_limits::LINKS_MAX;
use crossdock_names::FileRef;
use crossdock_peer::{Caller, SiteError};
use crossdock_types::WallTime;

use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::permission::Wanted;
use crate::plan::{Answer, Plan, is_dot};
use crate::remove::{remove_entry, unlink};
use crate::state::Directory;

impl Directory {
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        (from, from_name): (FileRef, &Bytes),
        (to, to_name): (FileRef, &Bytes),
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        self.directory_cell(from)?;
        self.directory_cell(to)?;
        if is_dot(from_name) || is_dot(to_name) {
            return Err(SiteError::Invalid);
        }
        let (source, entry) = self.directory_to_change(caller, from, from_name)?;
        let (target, replaced) = self.directory_to_change(caller, to, to_name)?;
        let child = entry.ok_or(SiteError::NotFound)?.child();
        let moved = self.cell(child)?;
        source.check_sticky(caller, moved)?;
        // The tree of the directories counts: the moved one may be a tree's root,
        // or have further names in another tree.
        if self.tree_of(source) != self.tree_of(target) {
            return Err(SiteError::CrossDevice);
        }
        let across = source.serial != target.serial;
        if moved.is_directory() {
            self.check_no_loop(moved, target)?;
            if across {
                moved.check(caller, Wanted::Write)?; // Its `..` changes.
            }
        }
        let replaced = match replaced {
            // Two names of one file: both stay (POSIX rename).
            Some(replaced) if replaced.child() == child => return Ok(Plan::answer(Answer::Done)),
            Some(replaced) => Some(self.cell(replaced.child())?),
            None => None,
        };
        if let Some(replaced) = replaced {
            target.check_sticky(caller, replaced)?;
            self.check_replace(moved, replaced)?;
        } else if moved.is_directory() && across && target.links >= LINKS_MAX {
            return Err(SiteError::TooManyLinks);
        }
        let places = [(source, from_name), (target, to_name)];
        self.plan_rename(moved, replaced, places, wall)
    }

    fn plan_rename(
        &self,
        moved: &Cell,
        replaced: Option<&Cell>,
        [(source, from_name), (target, to_name)]: [(&Cell, &Bytes); 2],
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let across = source.serial != target.serial;
        let child = moved.file(self.site);
        let mut plan = Plan::answer(Answer::Done);
        let entry = self.new_entry(target.serial, to_name, child)?;
        plan.mutations.push(remove_entry(source, from_name));
        let (mut source, mut target) = (source.clone(), target.clone());
        if let Some(replaced) = replaced {
            if replaced.is_directory() {
                plan.mutations.push(Mutation::RemoveCell {
                    serial: replaced.serial,
                });
                target.links -= 1;
                if !across {
                    source.links -= 1;
                }
            } else {
                unlink(&mut plan, replaced, wall);
            }
        }
        plan.mutations.push(entry);
        if moved.is_directory() && across {
            source.links -= 1;
            target.links += 1;
            let next_cookie = self.listing(moved.serial).ok_or(SiteError::Io)?.next_cookie;
            plan.mutations.push(Mutation::PutDirectory {
                serial: moved.serial,
                parent: target.file(self.site),
                next_cookie,
            });
        }
        let mut moved = moved.clone();
        moved.touch_changed(wall);
        plan.mutations.push(Mutation::PutCell(moved));
        source.touch_modified(wall);
        plan.mutations.push(Mutation::PutCell(source));
        if across {
            target.touch_modified(wall);
            plan.mutations.push(Mutation::PutCell(target));
        }
        Ok(plan)
    }

    /// A directory never becomes its own descendant.
    fn check_no_loop(&self, moved: &Cell, target: &Cell) -> Result<(), SiteError> {
        let mut at = target.serial;
        loop {
            if at == moved.serial {
                return Err(SiteError::Invalid);
            }
            let parent = self.parent_of(at).ok_or(SiteError::Io)?;
            if parent.id.site() != self.site || parent.id.serial() == at {
                return Ok(()); // The root.
            }
            at = parent.id.serial();
        }
    }

    fn check_replace(&self, moved: &Cell, replaced: &Cell) -> Result<(), SiteError> {
        match (moved.is_directory(), replaced.is_directory()) {
            (true, true) => self.check_empty(replaced),
            (true, false) => Err(SiteError::NotDirectory),
            (false, true) => Err(SiteError::IsDirectory),
            (false, false) => Ok(()),
        }
    }
}
