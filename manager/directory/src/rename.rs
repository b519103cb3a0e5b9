//! Renaming, atomically, over whatever had the name.

use bytes::Bytes;
use crossdock_limits::LINKS_MAX;
use crossdock_names::FileRef;
use crossdock_peer::{Caller, SiteError};
use crossdock_types::WallTime;

use crate::abroad::{Abroad, Known, Way};
use crate::mutation::Mutation;
use crate::permission::Wanted;
use crate::plan::{Answer, Plan, check_name, is_dot, new_entry};
use crate::remove::{check_empty, remove_cell, remove_entry};
use crate::state::Directory;

impl Directory {
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        (from, from_name): (FileRef, &Bytes),
        (to, to_name): (FileRef, &Bytes),
        wall: WallTime,
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        let source = self.known_directory(from, abroad)?;
        let target = self.known_directory(to, abroad)?;
        if is_dot(from_name) || is_dot(to_name) {
            return Err(SiteError::Invalid);
        }
        for (directory, name) in [(&source, from_name), (&target, to_name)] {
            check_name(name)?;
            directory.cell.check(caller, Wanted::Write)?;
        }
        let child = self.child_at(from, from_name, abroad)?;
        let moved = self.known(child.ok_or(SiteError::NotFound)?, abroad)?;
        source.cell.check_sticky(caller, moved.cell)?;
        // The tree of the directories counts: the moved one may be a tree's root,
        // or have further names in another tree. Those of two sites are two.
        let is_one_site = source.site() == target.site();
        if source.tree != target.tree || !is_one_site && source.tree != 0 {
            return Err(SiteError::CrossDevice);
        }
        let across = from != to;
        if moved.cell.is_directory() {
            if let Way::Unknown(_) = self.way_up(moved.file, to, abroad)?
                && across
            {
                return Err(SiteError::Moved); // Others know the way.
            }
            if across {
                moved.cell.check(caller, Wanted::Write)?; // Its `..` changes.
            }
        }
        let replaced = match self.child_at(to, to_name, abroad)? {
            // Two names of one file: both stay (POSIX rename).
            Some(replaced) if replaced == moved.file => return Ok(Plan::answer(Answer::Done)),
            Some(replaced) => Some(self.known(replaced, abroad)?),
            None => None,
        };
        if let Some(replaced) = &replaced {
            target.cell.check_sticky(caller, replaced.cell)?;
            check_replace(&moved, replaced)?;
        } else if moved.cell.is_directory() && across && target.cell.links >= LINKS_MAX {
            return Err(SiteError::TooManyLinks);
        }
        let places = [(source, from_name), (target, to_name)];
        self.plan_rename(&moved, replaced.as_ref(), places, wall)
    }

    fn plan_rename(
        &self,
        moved: &Known<'_>,
        replaced: Option<&Known<'_>>,
        [(from, from_name), (to, to_name)]: [(Known<'_>, &Bytes); 2],
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let across = from.file != to.file;
        let mut plan = Plan::answer(Answer::Done);
        let entry = new_entry(to.file, to.listing()?.next_cookie, to_name, moved.file)?;
        let gone = remove_entry(from.cell.serial, from_name);
        plan.put(self.site, from.site(), gone);
        let (mut source, mut target) = (from.cell.clone(), to.cell.clone());
        if let Some(replaced) = replaced {
            if replaced.cell.is_directory() {
                plan.put(self.site, replaced.site(), remove_cell(replaced));
                target.links -= 1;
                if !across {
                    source.links -= 1;
                }
            } else {
                self.unlink(&mut plan, replaced, wall);
            }
        }
        plan.put(self.site, to.site(), entry);
        if moved.cell.is_directory() && across {
            source.links -= 1;
            target.links += 1;
            let parent = Mutation::PutDirectory {
                serial: moved.cell.serial,
                parent: to.file,
                next_cookie: moved.listing()?.next_cookie,
            };
            plan.put(self.site, moved.site(), parent);
        }
        let mut child = moved.cell.clone();
        child.touch_changed(wall);
        plan.put(self.site, moved.site(), Mutation::PutCell(child));
        source.touch_modified(wall);
        plan.put(self.site, from.site(), Mutation::PutCell(source));
        if across {
            target.touch_modified(wall);
            plan.put(self.site, to.site(), Mutation::PutCell(target));
        }
        Ok(plan)
    }

    fn known_directory<'a>(
        &'a self,
        directory: FileRef,
        abroad: &'a Abroad,
    ) -> Result<Known<'a>, SiteError> {
        let known = self.known(directory, abroad)?;
        if known.cell.is_directory() {
            Ok(known)
        } else {
            Err(SiteError::NotDirectory)
        }
    }
}

fn check_replace(moved: &Known<'_>, replaced: &Known<'_>) -> Result<(), SiteError> {
    match (moved.cell.is_directory(), replaced.cell.is_directory()) {
        (true, true) => check_empty(replaced),
        (true, false) => Err(SiteError::NotDirectory),
        (false, true) => Err(SiteError::IsDirectory),
        (false, false) => Ok(()),
    }
}
