//! Leases of files: what a router may know of a file without asking its site, and what it
//! has still to tell it (CONSISTENCY 4, docs/decisions/0027).
//!
//! Under a lease to read layout and attributes are as the site gave them. Under one to
//! write, size and times change here, and are *dirty* until they are pushed. A lease is
//! not renewed: it is given back while it still lasts, and the next request takes another
//! one. Whatever a lease was used for that has ended meanwhile is done as without one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_names::{FileRef, Incarnation, RoutingTable, SiteId};
use crossdock_peer::{
    Attributes, Caller, FileLayout, FileLease, LeaseId, LeaseUse, OpenFor, Recall, SiteOperation,
    Stability, WeakCache,
};
use crossdock_types::{Time, WallTime};

/// Users that are known to have a right to a file; others ask.
const ALLOWED_MAX: usize = 8;

/// The leases of a router, by file.
#[derive(Debug)]
pub(crate) struct Leases {
    files: BTreeMap<FileRef, Held>,
    files_max: usize,
    /// When something of them is due.
    wakes: BTreeSet<(Time, FileRef)>,
    by_use: BTreeSet<(u64, FileRef)>,
    /// The clock of sites, as the newest lease told it, and when that was asked for.
    clock: Option<(Time, WallTime)>,
    uses_total: u64,
    /// By site, the newest that has ended: of what was given before it, what arrives later
    /// does not count any more.
    ended: BTreeMap<SiteId, LeaseId>,
    /// On their way back, with what the site is told.
    returning: BTreeMap<LeaseId, Return>,
    returns: VecDeque<Return>,
}

/// A lease that is held.
#[derive(Debug)]
struct Held {
    lease: FileLease,
    /// When it was asked for: it counts from then.
    since: Time,
    until: Time,
    layout: FileLayout,
    incarnation: Incarnation,
    attributes: Attributes,
    allowed: Vec<(Caller, bool)>, // To write?
    dirty: Dirty,
    wake: Time,
    used: u64,
}

/// What the site does not know yet.
#[derive(Clone, Copy, Debug, Default)]
struct Dirty {
    written: Option<Written>,
    was_read: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Up to here at most.
    pub(crate) end_bytes: u64,
    /// The last of it.
    pub(crate) at: WallTime,
}

/// What is known of a file under a lease.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) lease: LeaseId,
    pub(crate) layout: FileLayout,
    pub(crate) incarnation: Incarnation,
    pub(crate) attributes: Attributes,
    /// Whether size and times change here.
    pub(crate) is_exclusive: bool,
}

/// A lease that ends, and what is to be told with it.
#[derive(Clone, Debug)]
pub(crate) struct Return {
    pub(crate) file: FileRef,
    pub(crate) lease: LeaseId,
    /// Under which incarnation of the site it was held, if it was.
    pub(crate) incarnation: Option<Incarnation>,
    truncate_generation: u64,
    dirty: Dirty,
}

/// What an answer to an open has brought.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) file: FileRef,
    pub(crate) caller: &'a Caller,
    pub(crate) purpose: OpenFor,
    /// When it was asked.
    pub(crate) asked_at: Time,
}

impl Leases {
    /// None are held; at most `files_max` at a time.
    pub(crate) const fn new(files_max: usize) -> Self {
        Self {
            files: BTreeMap::new(),
            files_max,
            wakes: BTreeSet::new(),
            by_use: BTreeSet::new(),
            clock: None,
            uses_total: 0,
            ended: BTreeMap::new(),
            returning: BTreeMap::new(),
            returns: VecDeque::new(),
        }
    }

    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether any are wanted.
    pub(crate) const fn are_wanted(&self) -> bool {
        self.files_max > 0
    }

    /// What may be done without asking the site: reading, or writing in
    /// `offset_bytes..end_bytes`.
    pub(crate) fn known(
        &mut self,
        now: Time,
        file: FileRef,
        caller: &Caller,
        purpose: OpenFor,
    ) -> Option<Known> {
        let held = self.files.get_mut(&file).filter(|held| now < held.until)?;
        let is_enough = match purpose {
            OpenFor::Read { .. } => true,
            OpenFor::Write { end_bytes, .. } => held.may_write(end_bytes),
            OpenFor::Free { .. } => held.lease.is_exclusive,
        };
        if !is_enough || !held.allows(caller, purpose) {
            return None;
        }
        let known = held.known();
        self.touch(file);
        Some(known)
    }

    /// Takes the lease that came with an answer, if one did and it still counts; or what
    /// is held already, which is as new or newer.
    pub(crate) fn take(
        &mut self,
        now: Time,
        opening: &Opening<'_>,
        (layout, incarnation, lease): (&FileLayout, Incarnation, Option<FileLease>),
        attributes: Option<&Attributes>,
    ) -> Option<Known> {
        let Opening {
            file,
            caller,
            purpose,
            asked_at,
        } = *opening;
        let is_write = purpose.is_write();
        if let Some(lease) = lease {
            self.clock = Some((asked_at, lease.wall));
            let until = asked_at + Duration::from_millis(lease.lasts_ms.into());
            let counts = now < until && self.is_newest(file, lease.id);
            match attributes.filter(|_| counts && self.make_room(file)) {
                Some(attributes) => {
                    let old = self.files.get(&file);
                    let was_read = old.is_some_and(|old| old.dirty.was_read);
                    match old.is_some_and(|old| old.lease.is_exclusive) {
                        true => self.give_back(file),
                        false => self.forget(file),
                    }
                    let held = Held {
                        lease,
                        since: asked_at,
                        until,
                        layout: layout.clone(),
                        incarnation,
                        attributes: attributes.clone(),
                        allowed: Vec::new(),
                        dirty: Dirty {
                            written: None,
                            was_read,
                        },
                        wake: Time(u64::MAX),
                        used: 0,
                    };
                    self.files.insert(file, held);
                    self.touch(file);
                    self.arm(file);
                }
                // The site has given a newer one since.
                None if self.files.contains_key(&file) => {}
                None => self.return_unused(file, lease.id),
            }
        }
        let held = self.files.get_mut(&file).filter(|held| now < held.until)?;
        if held.layout.truncate_generation != layout.truncate_generation {
            return None; // Another one of which has not been heard yet.
        }
        held.allow(caller, is_write);
        match purpose {
            OpenFor::Write { end_bytes, .. } if !held.may_write(end_bytes) => None,
            OpenFor::Free { .. } if !held.lease.is_exclusive => None,
            _ => Some(held.known()),
        }
    }

    /// Bytes up to `end_bytes` were written under that lease: what the client is told of
    /// the file; `None` if the lease has ended meanwhile.
    pub(crate) fn wrote(
        &mut self,
        now: Time,
        file: FileRef,
        lease: LeaseId,
        end_bytes: u64,
    ) -> Option<WeakCache> {
        let held = self.valid(now, file, lease)?;
        let before = held.attributes.before();
        let wall = held.wall(now);
        held.attributes.write(end_bytes, wall);
        let written = held.dirty.written.get_or_insert(Written {
            end_bytes,
            at: wall,
        });
        written.end_bytes = written.end_bytes.max(end_bytes);
        written.at = held.attributes.changed;
        let after = held.attributes.clone();
        self.arm(file);
        Some(WeakCache {
            before: Some(before),
            after: Some(after),
        })
    }

    /// What has been written under that lease, as far as the site does not know it.
    pub(crate) fn written(&self, file: FileRef, lease: LeaseId) -> Option<Written> {
        let held = self
            .files
            .get(&file)
            .filter(|held| held.lease.id == lease)?;
        held.dirty.written
    }

    /// The site has been told of a stable write under that lease.
    pub(crate) fn pushed(&mut self, now: Time, file: FileRef, lease: LeaseId, after: &Attributes) {
        if let Some(held) = self.valid(now, file, lease) {
            let end_bytes = held.attributes.size_bytes.max(after.size_bytes);
            let changed = held.attributes.changed.max(after.changed);
            let accessed = held.attributes.accessed.max(after.accessed);
            held.attributes = Attributes {
                size_bytes: end_bytes,
                used_bytes: held.attributes.used_bytes.max(after.used_bytes),
                modified: changed,
                changed,
                accessed,
                ..after.clone()
            };
        }
    }

    /// Whether a read has to be noted. The time of day is known once any site has given a
    /// lease; before, only reads after a change are noted.
    pub(crate) fn is_access_due(&self, now: Time, attributes: &Attributes) -> bool {
        match self.clock {
            Some((since, wall)) => attributes.is_access_due(carried_on(wall, since, now)),
            None => attributes.accessed <= attributes.modified,
        }
    }

    /// Whether that lease still says that the file is as it was at `changed`.
    pub(crate) fn is_unchanged(
        &mut self,
        now: Time,
        file: FileRef,
        lease: LeaseId,
        changed: WallTime,
    ) -> bool {
        let held = self.valid(now, file, lease);
        held.is_some_and(|held| held.attributes.changed == changed)
    }

    /// Bytes were read under that lease; what is known of the file then, or `None` if it
    /// has ended.
    pub(crate) fn was_read(
        &mut self,
        now: Time,
        file: FileRef,
        lease: LeaseId,
    ) -> Option<&Attributes> {
        let held = self.valid(now, file, lease)?;
        held.attributes.accessed = held.wall(now).max(held.attributes.accessed);
        held.dirty.was_read = true;
        self.arm(file);
        self.files.get(&file).map(|held| &held.attributes)
    }

    /// A lease that is not needed any more, or whose layout has proved wrong, goes back.
    pub(crate) fn give_back(&mut self, file: FileRef) {
        if let Some(back) = self.end(file) {
            self.returns.push_back(back);
        }
    }

    /// The lease to write of a file ends, and whoever asks tells the site. One that is on
    /// its way back is told once more: who asks has to know that it has arrived.
    pub(crate) fn end_writer(&mut self, file: FileRef) -> Option<Return> {
        match self.files.get(&file) {
            Some(held) if held.lease.is_exclusive => self.end(file),
            _ => {
                let mut returning = self.returning.values();
                let told = returning.find(|back| back.file == file && back.is_dirty());
                told.cloned()
            }
        }
    }

    /// The site wants it back.
    pub(crate) fn recall(&mut self, recall: Recall) {
        let Recall { file, lease } = recall;
        self.has_ended(file, lease);
        let held = self.files.get(&file).map(|held| held.lease.id);
        // An older one has become the one that is on its way, and is none any more.
        if held.is_some_and(|held| held <= lease) {
            self.give_back(file);
        }
        if held != Some(lease) && !self.returning.contains_key(&lease) {
            self.return_unused(file, lease);
        }
    }

    /// A return has been answered.
    pub(crate) fn returned(&mut self, lease: LeaseId) {
        self.returning.remove(&lease);
    }

    /// What is to be told to sites now.
    pub(crate) fn next_return(&mut self) -> Option<Return> {
        self.returns.pop_front()
    }

    /// Gives back or forgets what has been held long enough.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(&(wake, file)) = self.wakes.first()
            && wake <= now
        {
            let Some(held) = self.files.get(&file) else {
                self.wakes.pop_first();
                continue;
            };
            match held.has_to_tell() {
                true => self.give_back(file),
                false => self.forget(file),
            }
        }
    }

    /// Leases of sites that somebody else has now, or that were opened anew, have ended.
    pub(crate) fn follow(&mut self, table: &RoutingTable) {
        let epoch = |file: &FileRef| table.site(file.id.site()).map(|record| record.epoch.0);
        let held = self.files.iter();
        let ended = held.filter(|(file, held)| epoch(file) != Some(held.lease.id.0 >> 32));
        let ended: Vec<FileRef> = ended.map(|(&file, _)| file).collect();
        for file in ended {
            self.give_back(file);
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|&(wake, _)| wake)
    }

    fn valid(&mut self, now: Time, file: FileRef, lease: LeaseId) -> Option<&mut Held> {
        let held = self.files.get_mut(&file)?;
        (held.lease.id == lease && now < held.until).then_some(held)
    }

    /// Whether that lease is newer than the one that is held, and those that have ended.
    fn is_newest(&self, file: FileRef, lease: LeaseId) -> bool {
        let ended = self.ended.get(&file.id.site());
        let held = self.files.get(&file);
        ended.is_none_or(|ended| lease > *ended) && held.is_none_or(|held| lease > held.lease.id)
    }

    fn has_ended(&mut self, file: FileRef, lease: LeaseId) {
        let ended = self.ended.entry(file.id.site()).or_insert(lease);
        *ended = lease.max(*ended);
    }

    /// Whether there is room for one of `file`.
    fn make_room(&mut self, file: FileRef) -> bool {
        if self.files.len() >= self.files_max
            && !self.files.contains_key(&file)
            && let Some(&(_, oldest)) = self.by_use.first()
        {
            self.give_back(oldest);
        }
        self.files_max > 0
    }

    fn touch(&mut self, file: FileRef) {
        self.uses_total += 1;
        if let Some(held) = self.files.get_mut(&file) {
            self.by_use.remove(&(held.used, file));
            held.used = self.uses_total;
            self.by_use.insert((held.used, file));
        }
    }

    /// Sets when something is due.
    fn arm(&mut self, file: FileRef) {
        if let Some(held) = self.files.get_mut(&file) {
            // What has to be told is told while the lease lasts, with a third to spare.
            let wake = match held.has_to_tell() {
                true => held.since + held.until.since(held.since) / 3 * 2,
                false => held.until,
            };
            self.wakes.remove(&(held.wake, file));
            held.wake = wake;
            self.wakes.insert((wake, file));
        }
    }

    /// A lease that there was no use for.
    fn return_unused(&mut self, file: FileRef, lease: LeaseId) {
        let back = Return {
            file,
            lease,
            incarnation: None,
            truncate_generation: 0,
            dirty: Dirty::default(),
        };
        self.returning.insert(lease, back.clone());
        self.returns.push_back(back);
    }

    fn end(&mut self, file: FileRef) -> Option<Return> {
        let held = self.remove(file)?;
        self.has_ended(file, held.lease.id);
        let back = Return {
            file,
            lease: held.lease.id,
            incarnation: Some(held.incarnation),
            truncate_generation: held.layout.truncate_generation,
            dirty: held.dirty,
        };
        self.returning.insert(back.lease, back.clone());
        Some(back)
    }

    /// One that nobody has to be told of.
    fn forget(&mut self, file: FileRef) {
        self.remove(file);
    }

    fn remove(&mut self, file: FileRef) -> Option<Held> {
        let held = self.files.remove(&file)?;
        self.wakes.remove(&(held.wake, file));
        self.by_use.remove(&(held.used, file));
        Some(held)
    }
}

impl Held {
    fn known(&self) -> Known {
        Known {
            lease: self.lease.id,
            layout: self.layout.clone(),
            incarnation: self.incarnation,
            attributes: self.attributes.clone(),
            is_exclusive: self.lease.is_exclusive,
        }
    }

    const fn may_write(&self, end_bytes: u64) -> bool {
        self.lease.is_exclusive && end_bytes <= self.lease.writable_bytes
    }

    /// The site would allow it: the rights are among the attributes.
    fn allows(&self, caller: &Caller, purpose: OpenFor) -> bool {
        let is_write = purpose.is_write();
        let mut allowed = self.allowed.iter();
        caller.uid == 0
            || caller.uid == self.attributes.uid
            || allowed.any(|(known, write)| known == caller && *write == is_write)
    }

    fn allow(&mut self, caller: &Caller, is_write: bool) {
        let is_known = |(known, write): &(Caller, bool)| known == caller && *write == is_write;
        if self.allowed.len() < ALLOWED_MAX && !self.allowed.iter().any(is_known) {
            self.allowed.push((caller.clone(), is_write));
        }
    }

    /// The site's clock, carried on by this one.
    fn wall(&self, now: Time) -> WallTime {
        carried_on(self.lease.wall, self.since, now)
    }

    /// Whether the site has to hear of its end: one to write that ends without a word
    /// makes the site cut what may have been written.
    const fn has_to_tell(&self) -> bool {
        self.lease.is_exclusive || self.dirty.was_read
    }
}

/// A clock that showed `wall` at `since`, at `now`.
fn carried_on(wall: WallTime, since: Time, now: Time) -> WallTime {
    let passed = i64::try_from(now.since(since).as_nanos()).unwrap_or(i64::MAX);
    WallTime(wall.0.saturating_add(passed))
}

impl Return {
    /// What the site is told.
    pub(crate) const fn operation(&self) -> SiteOperation {
        let (end_bytes, at) = match self.dirty.written {
            Some(written) => (written.end_bytes, Some(written.at)),
            None => (0, None),
        };
        SiteOperation::PushAttributes {
            file: self.file,
            size_at_least_bytes: end_bytes,
            wrote: at.is_some(),
            read: self.dirty.was_read,
            truncate_generation: self.truncate_generation,
            stability: Stability::Unstable,
            written: at,
            lease: Some(LeaseUse::GiveBack(self.lease)),
        }
    }

    /// Whether something would be lost if the site did not hear it.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.dirty.written.is_some()
    }
}
