//! Changing attributes: by request, and by reads and writes of content.

use crossdock_limits::FILE_BYTES_MAX;
use crossdock_names::{FileRef, SEGMENT_BYTES};
use crossdock_peer::{
    AttributeChanges, Caller, SiteError, TimeChange, allocated_bytes, is_access_due,
};
use crossdock_types::WallTime;

use crate::abroad::Abroad;
use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::permission::{SET_GROUP, Wanted, is_member};
use crate::plan::{Answer, Plan};
use crate::state::Directory;

/// Most segments of a file. Columns are made for all segments up to the last
/// written one, so this bounds what one write at a far offset costs.
pub const SEGMENTS_MAX: u32 = 1024;

const _: () = assert!(FILE_BYTES_MAX == SEGMENTS_MAX as u64 * SEGMENT_BYTES);

impl Directory {
    pub(crate) fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        changes: &AttributeChanges,
        guard: Option<WallTime>,
        wall: WallTime,
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        let old = self.cell(file)?;
        if self.is_split(old) {
            return self.set_attributes_of_parts(caller, file, changes, guard, wall, abroad);
        }
        if guard.is_some_and(|guard| guard != old.changed) {
            return Err(SiteError::NotSync);
        }
        let mut plan = Plan::answer(Answer::Done);
        if *changes == AttributeChanges::default() {
            return Ok(plan);
        }
        let cell = old.with_changes(caller, changes, wall)?;
        if let Some(size) = changes.size_bytes {
            if size > old.size_bytes {
                // It takes nothing yet, but could never be written.
                self.check_growth(old, size)?;
            }
            plan.resized = Some(cell.clone());
        }
        plan.mutations.push(Mutation::PutCell(cell));
        Ok(plan)
    }
}

impl Cell {
    /// The cell after SETATTR.
    pub(crate) fn with_changes(
        &self,
        caller: &Caller,
        changes: &AttributeChanges,
        wall: WallTime,
    ) -> Result<Self, SiteError> {
        let mut cell = self.clone();
        if let Some(size) = changes.size_bytes {
            resize(&mut cell, caller, size, wall)?;
        }
        change_mode(&mut cell, caller, changes)?;
        change_owner(&mut cell, caller, changes)?;
        cell.touch_changed(wall);
        change_times(&mut cell, caller, changes)?;
        Ok(cell)
    }

    /// The cell after `caller` (`None`: checked and counted before) wrote up to
    /// `end_bytes`. The size only grows.
    #[must_use]
    pub fn written(&self, caller: &Caller, end_bytes: u64, wall: WallTime) -> Self {
        let mut cell = self.clone();
        cell.size_bytes = cell.size_bytes.max(end_bytes);
        // Which parts are holes only the nodes know. Never too little: tools
        // take a file with fewer bytes on disk than its size for sparse.
        cell.used_or_device = allocated_bytes(cell.size_bytes);
        cell.touch_modified(wall);
        if caller.uid != 0 {
            cell.clear_set_ids();
        }
        cell
    }

    /// The cell after a read; `None` if atime need not move.
    #[must_use]
    pub fn read(&self, wall: WallTime) -> Option<Self> {
        is_access_due(self.accessed, self.modified, wall).then(|| Self {
            accessed: wall,
            ..self.clone()
        })
    }
}

fn resize(cell: &mut Cell, caller: &Caller, size: u64, wall: WallTime) -> Result<(), SiteError> {
    cell.check_io(caller, Wanted::Write)?;
    if size > FILE_BYTES_MAX {
        return Err(SiteError::FileTooBig);
    }
    if size < cell.size_bytes {
        cell.used_or_device = cell.used_or_device.min(allocated_bytes(size));
    }
    cell.size_bytes = size;
    // Also when extended: a write that is still on its way must not show up in
    // what is then zeros (CONSISTENCY 5).
    cell.change_rare(|rare| rare.truncate_generation += 1);
    cell.modified = cell.tick(wall);
    if caller.uid != 0 {
        cell.clear_set_ids();
    }
    Ok(())
}

fn change_mode(
    cell: &mut Cell,
    caller: &Caller,
    changes: &AttributeChanges,
) -> Result<(), SiteError> {
    let Some(mut mode) = changes.mode else {
        return Ok(());
    };
    if !cell.is_owner(caller) {
        return Err(SiteError::NotOwner);
    }
    if caller.uid != 0 && !is_member(caller, changes.gid.unwrap_or(cell.gid)) {
        mode &= !SET_GROUP;
    }
    cell.set_mode(mode);
    Ok(())
}

fn change_owner(
    cell: &mut Cell,
    caller: &Caller,
    changes: &AttributeChanges,
) -> Result<(), SiteError> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    let uid = changes.uid.unwrap_or(cell.uid);
    let gid = changes.gid.unwrap_or(cell.gid);
    let allowed = caller.uid == 0
        || (caller.uid == cell.uid
            && uid == cell.uid
            && (gid == cell.gid || is_member(caller, gid)));
    if !allowed {
        return Err(SiteError::NotOwner);
    }
    cell.uid = uid;
    cell.gid = gid;
    if !cell.is_directory() {
        cell.clear_set_ids();
    }
    Ok(())
}

fn change_times(
    cell: &mut Cell,
    caller: &Caller,
    changes: &AttributeChanges,
) -> Result<(), SiteError> {
    let now = cell.changed;
    let check = |cell: &Cell, change| match change {
        TimeChange::Keep => Ok(None),
        TimeChange::To(_) if !cell.is_owner(caller) => Err(SiteError::NotOwner),
        TimeChange::To(time) => Ok(Some(time)),
        TimeChange::Now if cell.is_owner(caller) => Ok(Some(now)),
        TimeChange::Now => cell.check(caller, Wanted::Write).map(|()| Some(now)),
    };
    if let Some(time) = check(cell, changes.accessed)? {
        cell.accessed = time;
    }
    if let Some(time) = check(cell, changes.modified)? {
        cell.modified = time;
    }
    Ok(())
}
