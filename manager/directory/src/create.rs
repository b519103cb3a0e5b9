//! Making files, directories, links and special files.

use bytes::Bytes;
use crossdock_limits::{FILE_BYTES_MAX, LINKS_MAX, PATH_BYTES_MAX};
use crossdock_names::{FileId, FileRef, NUMBERS_MAX, SiteId};
use crossdock_peer::{
    AttributeChanges, Caller, CreateMode, Device, FileKind, SiteError, TimeChange, allocated_bytes,
};
use crossdock_types::WallTime;

use crate::abroad::Abroad;
use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::names::FIRST_COOKIE;
use crate::permission::{SET_GROUP, is_member};
use crate::plan::{Answer, Plan, is_dot};
use crate::state::Directory;

/// Size that directories show.
pub(crate) const DIRECTORY_BYTES: u64 = 4096;

impl Directory {
    pub(crate) fn create(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        mode: &CreateMode,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        if let Some(plan) = self.create_existing(caller, directory, name, mode, wall)? {
            return Ok(plan);
        }
        let (changes, verifier) = match mode {
            CreateMode::Unchecked(changes) | CreateMode::Guarded(changes) => (*changes, None),
            CreateMode::Exclusive(verifier) => (AttributeChanges::default(), Some(verifier)),
        };
        let parent = self.parent_for_new(caller, directory, name)?;
        let mut cell = self.new_cell(caller, parent, FileKind::Regular, &changes, wall);
        if let Some(size) = changes.size_bytes {
            if size > FILE_BYTES_MAX {
                return Err(SiteError::FileTooBig);
            }
            cell.size_bytes = size;
            cell.used_or_device = allocated_bytes(size);
        }
        if let Some(verifier) = verifier {
            (cell.accessed, cell.modified) = verifier_times(*verifier);
        }
        self.plan_new(parent, name, cell, None, wall)
    }

    pub(crate) fn make_directory(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        changes: &AttributeChanges,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let parent = self.parent_for_new(caller, directory, name)?;
        let mut cell = self.new_cell(caller, parent, FileKind::Directory, changes, wall);
        if parent.links >= LINKS_MAX {
            return Err(SiteError::TooManyLinks);
        }
        cell.links = 2;
        cell.size_bytes = DIRECTORY_BYTES;
        cell.used_or_device = DIRECTORY_BYTES;
        cell.set_mode(cell.mode() | parent.mode() & SET_GROUP);
        let home = self.home_of(parent, name);
        if self.spread.is_hashed {
            return self.plan_new_in_parts(parent, name, cell, wall);
        }
        if home != self.site && cell.serial < NUMBERS_MAX {
            cell.serial = FileId::numbered_by(self.site, home, cell.serial).serial();
            return self.plan_new_elsewhere(parent, name, cell, home, wall);
        }
        let listing = Mutation::PutDirectory {
            serial: cell.serial,
            parent: directory,
            next_cookie: FIRST_COOKIE,
        };
        self.plan_new(parent, name, cell, Some(listing), wall)
    }

    pub(crate) fn make_symlink(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        changes: &AttributeChanges,
        target: &Bytes,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let parent = self.parent_for_new(caller, directory, name)?;
        if target.len() > PATH_BYTES_MAX {
            return Err(SiteError::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(SiteError::Invalid);
        }
        let mut cell = self.new_cell(caller, parent, FileKind::Symlink, changes, wall);
        cell.size_bytes = target.len() as u64;
        cell.set_mode(changes.mode.unwrap_or(0o777));
        let text = Mutation::PutLink {
            serial: cell.serial,
            target: target.clone(),
        };
        self.plan_new(parent, name, cell, Some(text), wall)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn make_node(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        kind: FileKind,
        device: Device,
        changes: &AttributeChanges,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let parent = self.parent_for_new(caller, directory, name)?;
        let mut cell = self.new_cell(caller, parent, kind, changes, wall);
        match kind {
            FileKind::Block | FileKind::Character if caller.uid != 0 => {
                return Err(SiteError::NotOwner);
            }
            FileKind::Block | FileKind::Character => {
                cell.used_or_device = u64::from(device.major) << 32 | u64::from(device.minor);
            }
            FileKind::Socket | FileKind::Fifo => {}
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                return Err(SiteError::BadType);
            }
        }
        self.plan_new(parent, name, cell, None, wall)
    }

    pub(crate) fn link(
        &self,
        caller: &Caller,
        file: FileRef,
        directory: FileRef,
        name: &[u8],
        wall: WallTime,
        abroad: &Abroad,
    ) -> Result<Plan, SiteError> {
        let known = self.known(file, abroad)?;
        let parent = self.parent_for_new(caller, directory, name)?;
        if known.cell.is_directory() {
            return Err(SiteError::IsDirectory);
        }
        if known.tree != self.tree_of(parent) {
            return Err(SiteError::CrossDevice);
        }
        if known.cell.links >= LINKS_MAX {
            return Err(SiteError::TooManyLinks);
        }
        let mut cell = known.cell.clone();
        cell.links += 1;
        cell.touch_changed(wall);
        let entry = self.new_entry_here(parent, name, file)?;
        let mut parent = parent.clone();
        parent.touch_modified(wall);
        let mut plan = Plan::answer(Answer::Done);
        plan.put(self.site, known.site(), Mutation::PutCell(cell));
        plan.mutations.extend([Mutation::PutCell(parent), entry]);
        Ok(plan)
    }

    /// CREATE of a name that is taken: the plan, or the error, or `None` if it
    /// is free.
    fn create_existing(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
        mode: &CreateMode,
        wall: WallTime,
    ) -> Result<Option<Plan>, SiteError> {
        let parent = self.directory_cell(directory)?;
        parent.check(caller, crate::Wanted::Execute)?;
        let Some(entry) = self.entry(parent.serial, name) else {
            return Ok(None);
        };
        let child = entry.child();
        if child.id.site() != self.site {
            return match mode {
                CreateMode::Unchecked(_) => Ok(Some(Plan::answer(Answer::Elsewhere(child)))),
                _ => Err(SiteError::Exists),
            };
        }
        let cell = self.cell(child)?;
        match mode {
            CreateMode::Unchecked(changes) if cell.is_regular() => {
                let mut plan = Plan::answer(Answer::Done);
                if changes.size_bytes.is_some() {
                    // Nothing but the size is taken over.
                    let size_only = AttributeChanges {
                        size_bytes: changes.size_bytes,
                        ..AttributeChanges::default()
                    };
                    let nothing = Abroad::default(); // It is no directory.
                    plan = self.set_attributes(caller, child, &size_only, None, wall, &nothing)?;
                }
                plan.answer = Answer::Found(child);
                Ok(Some(plan))
            }
            // The same request again, after its duplicate record was dropped.
            CreateMode::Exclusive(verifier)
                if cell.is_regular()
                    && cell.size_bytes == 0
                    && (cell.accessed, cell.modified) == verifier_times(*verifier) =>
            {
                Ok(Some(Plan::answer(Answer::Found(child))))
            }
            _ => Err(SiteError::Exists),
        }
    }

    /// The directory that is to get a new name.
    fn parent_for_new(
        &self,
        caller: &Caller,
        directory: FileRef,
        name: &[u8],
    ) -> Result<&Cell, SiteError> {
        if is_dot(name) {
            self.directory_cell(directory)?;
            return Err(SiteError::Exists);
        }
        // Whether a name is taken may be seen without the right to add one.
        let cell = self.directory_cell(directory)?;
        let taken = self.entry(cell.serial, name).is_some();
        if taken && cell.check(caller, crate::Wanted::Execute).is_ok() {
            return Err(SiteError::Exists);
        }
        let (cell, _) = self.directory_to_change(caller, directory, name)?;
        Ok(cell)
    }

    fn new_cell(
        &self,
        caller: &Caller,
        parent: &Cell,
        kind: FileKind,
        changes: &AttributeChanges,
        wall: WallTime,
    ) -> Cell {
        let root = caller.uid == 0;
        let inherited = if parent.mode() & SET_GROUP != 0 {
            parent.gid
        } else {
            caller.gid
        };
        let gid = match changes.gid {
            Some(gid) if root || is_member(caller, gid) => gid,
            _ => inherited,
        };
        let mut mode = changes.mode.unwrap_or(0);
        if !root && kind != FileKind::Directory && !is_member(caller, gid) {
            mode &= !SET_GROUP;
        }
        let time = |change| match change {
            TimeChange::To(time) => time,
            TimeChange::Keep | TimeChange::Now => wall,
        };
        Cell {
            serial: self.next_serial,
            generation: 1, // Serials are never given out twice.
            kind_and_mode: Cell::pack_kind(kind, mode),
            links: 1,
            uid: changes.uid.filter(|_| root).unwrap_or(caller.uid),
            gid,
            accessed: time(changes.accessed),
            modified: time(changes.modified),
            changed: wall,
            quota_tree: parent.quota_tree,
            ..Cell::default()
        }
    }

    fn plan_new(
        &self,
        parent: &Cell,
        name: &[u8],
        cell: Cell,
        more: Option<Mutation>,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        if cell.serial >= NUMBERS_MAX {
            return Err(SiteError::NoSpace);
        }
        self.check_new(parent, &cell)?;
        let file = cell.file(self.site);
        let is_directory = cell.is_directory();
        let mut plan = Plan::answer(Answer::Found(file));
        plan.mutations = vec![Mutation::PutCell(cell)];
        plan.mutations.extend(more);
        self.plan_name(plan, parent, name, (file, is_directory), wall)
    }

    /// A new directory whose cell and entries lie at another site: that adopts it
    /// before anybody is told of it.
    fn plan_new_elsewhere(
        &self,
        parent: &Cell,
        name: &[u8],
        cell: Cell,
        home: SiteId,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let file = cell.file(home);
        let listing = Mutation::PutDirectory {
            serial: cell.serial,
            parent: parent.file(self.site),
            next_cookie: FIRST_COOKIE,
        };
        let mut plan = Plan::answer(Answer::Elsewhere(file));
        let edits = vec![Mutation::PutCell(cell), listing];
        plan.elsewhere.insert(home, edits);
        let serial = self.next_serial + 1;
        plan.mutations.push(Mutation::NextSerial { serial });
        self.plan_name(plan, parent, name, (file, true), wall)
    }

    /// A new directory whose home is this site, with a part at each of the others:
    /// these adopt them before anybody is told of it.
    fn plan_new_in_parts(
        &self,
        parent: &Cell,
        name: &[u8],
        cell: Cell,
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let listing = Mutation::PutDirectory {
            serial: cell.serial,
            parent: self.whole(parent.file(self.site)),
            next_cookie: FIRST_COOKIE,
        };
        let mut plan = self.plan_new(parent, name, cell.clone(), Some(listing), wall)?;
        self.add_parts(&mut plan, &cell);
        Ok(plan)
    }

    /// Adds the name of a new file.
    fn plan_name(
        &self,
        mut plan: Plan,
        parent: &Cell,
        name: &[u8],
        (file, is_directory): (FileRef, bool),
        wall: WallTime,
    ) -> Result<Plan, SiteError> {
        let entry = self.new_entry_here(parent, name, file)?;
        let mut parent = parent.clone();
        parent.touch_modified(wall);
        parent.links += u32::from(is_directory);
        plan.mutations.push(Mutation::PutCell(parent));
        plan.mutations.push(entry);
        Ok(plan)
    }
}

/// An exclusive create's verifier, kept in the times until the client sets
/// them: 31 bits of each half as seconds, the top bit as a nanosecond.
fn verifier_times(verifier: [u8; 8]) -> (WallTime, WallTime) {
    let half = |bytes: &[u8]| {
        let number = bytes
            .iter()
            .fold(0u32, |sum, &byte| sum << 8 | u32::from(byte));
        WallTime::from_parts((number & 0x7fff_ffff).into(), number >> 31)
    };
    (half(&verifier[..4]), half(&verifier[4..]))
}
