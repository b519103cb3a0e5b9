//! Which disk is where, and which are out.

use crossdock_disk::DiskError;

use super::{DiskSets, Purpose, Sent, SetsError, SetsEvent};
use crate::assemble::DiskNumber;
use crate::label::{DiskId, MemberState};

/// Reads that a disk may fail before it is taken out, if the set can do without it.
const READ_ERRORS_MAX: u64 = 64;

impl DiskSets {
    /// The disk of a member that is not out.
    pub(super) fn member_disk(&self, set: usize, place: usize) -> Option<DiskNumber> {
        let record = &self.pool.sets[set];
        let member = record.members[place];
        let is_there = !record.is_retired();
        (is_there && member.state != MemberState::Failed)
            .then(|| self.disk_of(member.disk))
            .flatten()
    }

    fn disk_of(&self, id: DiskId) -> Option<DiskNumber> {
        let mut disks = self.disks.iter();
        disks
            .find(|(_, disk)| disk.id == id && !disk.is_out)
            .map(|(number, _)| *number)
    }

    /// The disk of a member that has what it should have of a stripe.
    pub(super) fn present(&self, set: usize, place: usize, stripe: u64) -> Option<DiskNumber> {
        let is_there = match self.pool.sets[set].members[place].state {
            MemberState::Active => true,
            MemberState::Failed => false,
            MemberState::Rebuilding { stripes } => stripe < stripes,
        };
        is_there.then(|| self.member_disk(set, place)).flatten()
    }

    /// Whether nothing that a disk has, or answers, counts any more.
    pub(super) fn is_out(&self, disk: DiskNumber) -> bool {
        self.disks.get(&disk).is_none_or(|disk| disk.is_out)
    }

    /// A disk has failed a request: whether it can stay.
    pub(super) fn judge(&mut self, sent: &Sent, error: &DiskError) {
        let Some(disk) = self.disks.get_mut(&sent.disk) else {
            return;
        };
        if disk.is_out {
            return;
        }
        if sent.is_read {
            disk.read_errors += 1;
            if disk.read_errors < READ_ERRORS_MAX {
                return;
            }
        } else if matches!(sent.purpose, Purpose::Format) && *error == DiskError::NoSpace {
            return; // The file system below is full: no disk's fault.
        }
        let why = error.to_string();
        let id = disk.id;
        match self.pool.place_of(id) {
            Some((set, place)) => {
                if self.pool.sets[set].can_spare(place) {
                    self.fail_member(set, place, why);
                }
            }
            None => self.drop_spare(sent.disk, why),
        }
    }

    /// Takes a member out: it lacks, or will lack, something that was acknowledged.
    pub(super) fn fail_member(&mut self, set: usize, place: usize, why: String) {
        let number = self.member_disk(set, place);
        self.pool.sets[set].members[place].state = MemberState::Failed;
        if let Some(disk) = number.and_then(|number| self.disks.get_mut(&number)) {
            disk.is_out = true;
            let name = disk.name.clone();
            self.events.push_back(SetsEvent::Failed { name, set, why });
        }
        self.stop_rebuild_of(set, place);
        if let Some(ring) = self.sets[set].rings.get_mut(place) {
            ring.clear();
        }
        self.use_spares();
        let ticket = self.request_labels();
        self.labels.hold_until(ticket);
        self.wake_flush_waiters(set);
    }

    fn drop_spare(&mut self, number: DiskNumber, why: String) {
        if let Some(disk) = self.disks.get_mut(&number) {
            disk.is_out = true;
            let (id, name) = (disk.id, disk.name.clone());
            self.pool.spares.retain(|spare| *spare != id);
            self.events.push_back(SetsEvent::SpareFailed { name, why });
            self.request_labels();
        }
    }

    /// Puts spares in the places of members that have failed.
    pub(super) fn use_spares(&mut self) {
        for set in 0..self.pool.sets.len() {
            if self.sets[set].rebuild.is_some() || self.pool.sets[set].is_retired() {
                continue; // One after the other.
            }
            let members = self.pool.sets[set].members.iter();
            let failed = members
                .clone()
                .position(|member| member.state == MemberState::Failed);
            let Some(place) = failed else {
                continue;
            };
            let Some(spare) = self.spare_for(set) else {
                continue;
            };
            let member = &mut self.pool.sets[set].members[place];
            member.disk = spare;
            member.state = MemberState::Rebuilding { stripes: 0 };
            self.pool.spares.retain(|other| *other != spare);
            self.begin_rebuild(set, place);
            self.request_labels();
        }
    }

    /// A spare that is large enough.
    fn spare_for(&self, set: usize) -> Option<DiskId> {
        let wanted = self.disk_offset(self.pool.sets[set].stripes);
        let mut spares = self.pool.spares.iter();
        let is_fit = |spare: &&DiskId| {
            let disk = self
                .disk_of(**spare)
                .and_then(|number| self.disks.get(&number));
            disk.is_some_and(|disk| disk.length_bytes >= wanted)
        };
        spares.find(is_fit).copied()
    }

    /// An administrator takes a disk out.
    ///
    /// # Errors
    /// [`SetsError::Unknown`], [`SetsError::IsOut`] and [`SetsError::Needed`].
    pub fn fail_disk(&mut self, now: crossdock_types::Time, name: &str) -> Result<(), SetsError> {
        self.now = now;
        let why = "taken out by an administrator".to_owned();
        let mut named = self.disks.iter().filter(|(_, disk)| disk.name == name);
        let Some((&number, disk)) = named.clone().find(|(_, disk)| !disk.is_out) else {
            return Err(match named.next() {
                Some(_) => SetsError::IsOut(name.to_owned()),
                None => SetsError::Unknown(name.to_owned()),
            });
        };
        match self.pool.place_of(disk.id) {
            Some((set, place)) if self.pool.sets[set].can_spare(place) => {
                self.fail_member(set, place, why);
            }
            Some((set, _)) => return Err(SetsError::Needed(set)),
            None => self.drop_spare(number, why),
        }
        self.mind_rebuilds();
        Ok(())
    }

    /// Takes a blank disk as a spare; it is used at once if a member is missing. `id` is a
    /// random number. Tells the number under which its requests come.
    ///
    /// # Errors
    /// [`SetsError::TooSmall`] and [`SetsError::Known`].
    pub fn add_spare(
        &mut self,
        now: crossdock_types::Time,
        name: &str,
        length_bytes: u64,
        id: u64,
    ) -> Result<DiskNumber, SetsError> {
        self.now = now;
        self.check_spare(name, length_bytes)?;
        let number = self.attach(DiskId(id), name, length_bytes);
        self.pool.spares.push(DiskId(id));
        if self.recovering.is_none() {
            self.use_spares();
        }
        self.request_labels();
        self.mind_rebuilds();
        Ok(number)
    }

    /// Whether a disk of that length can be a spare.
    ///
    /// # Errors
    /// [`SetsError::TooSmall`] and [`SetsError::Known`].
    pub fn check_spare(&self, name: &str, length_bytes: u64) -> Result<(), SetsError> {
        let used = self.pool.sets.iter().filter(|set| !set.is_retired());
        let needs = used.map(|set| self.disk_offset(set.stripes));
        let wanted_bytes = needs.min().unwrap_or(0);
        if length_bytes < wanted_bytes {
            return Err(SetsError::TooSmall {
                name: name.to_owned(),
                length_bytes,
                wanted_bytes,
            });
        }
        let mut used = self.disks.values().filter(|disk| !disk.is_out);
        match used.any(|disk| disk.name == name) {
            true => Err(SetsError::Known(name.to_owned())),
            false => Ok(()),
        }
    }
}
