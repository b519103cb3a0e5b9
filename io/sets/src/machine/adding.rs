//! Sets that are added and retired while others are served.
//!
//! A set that is added makes the space longer by what it holds. One that is retired stays
//! where it is in the space; whoever uses the space moves what lies there, and says when
//! nothing is left. Then its disks may go, and its places hold nothing for good.

use crossdock_types::Time;

use super::ring::Ring;
use super::{Attached, DiskSets, SetState, SetsError, SetsEvent};
use crate::assemble::{DiskNumber, FoundDisk};
use crate::geometry::{Kind, Places, segments};
use crate::label::{DiskId, Pool, Service, SetRecord};
use crate::spec::DISKS_MAX;

/// A set that is to be added: of blank disks.
#[derive(Clone, Debug)]
pub struct NewSet {
    /// What it is to be.
    pub kind: Kind,
    /// Its disks, in order.
    pub disks: Vec<NewDisk>,
}

/// A blank disk.
#[derive(Clone, Debug)]
pub struct NewDisk {
    /// Its path, for errors and for people.
    pub name: String,
    /// Its length in bytes.
    pub length_bytes: u64,
}

impl DiskSets {
    /// Adds sets of blank disks; the space can be longer at once. `fresh` gives random
    /// numbers. Tells the numbers under which requests of the disks come, in order.
    ///
    /// # Errors
    /// [`SetsError::Opening`], [`SetsError::Known`], [`SetsError::TooMany`],
    /// [`SetsError::TooSmall`] and [`SetsError::LabelFull`]: nothing is changed.
    pub fn add_sets(
        &mut self,
        now: Time,
        sets: &[NewSet],
        mut fresh: impl FnMut() -> u64,
    ) -> Result<Vec<DiskNumber>, SetsError> {
        self.now = now;
        let (pool, disks) = self.with_sets(sets, &mut fresh)?;
        self.pool = pool;
        for set in sets {
            let rings = set.disks.iter().map(|_| Ring::from(0)).collect();
            self.sets.push(SetState {
                rings,
                ..SetState::default()
            });
        }
        let named = sets.iter().flat_map(|set| &set.disks);
        let disks = disks.into_iter().zip(named);
        let numbers = disks.map(|(id, disk)| self.attach(id, &disk.name, disk.length_bytes));
        let numbers = numbers.collect();
        self.request_labels();
        Ok(numbers)
    }

    /// Whether sets of blank disks could be added.
    ///
    /// # Errors
    /// Those of [`add_sets`](Self::add_sets).
    pub fn check_sets(&self, sets: &[NewSet]) -> Result<(), SetsError> {
        self.with_sets(sets, &mut || 0).map(|_| ())
    }

    /// The pool with them, and the numbers of their disks in it.
    fn with_sets(
        &self,
        sets: &[NewSet],
        fresh: &mut dyn FnMut() -> u64,
    ) -> Result<(Pool, Vec<DiskId>), SetsError> {
        self.check_new(sets)?;
        let mut pool = self.pool.clone();
        let mut extents = Vec::new();
        let mut disks = Vec::new();
        for set in sets {
            let mut stripes = u64::MAX;
            let mut members = Vec::new();
            for disk in &set.disks {
                let found = pool.geometry.stripes_of(disk.length_bytes);
                let found = found.map_err(|wanted_bytes| SetsError::TooSmall {
                    name: disk.name.clone(),
                    length_bytes: disk.length_bytes,
                    wanted_bytes,
                })?;
                stripes = stripes.min(found);
                members.push(DiskId(fresh()));
            }
            disks.extend_from_slice(&members);
            let record = SetRecord::new(set.kind, stripes, &members);
            extents.push(record.extent(pool.sets.len(), pool.geometry, None));
            pool.sets.push(record);
        }
        pool.segments.extend(segments(extents));
        match pool.fits_label() {
            true => Ok((pool, disks)),
            false => Err(SetsError::LabelFull),
        }
    }

    fn check_new(&self, sets: &[NewSet]) -> Result<(), SetsError> {
        if self.recovering.is_some() {
            return Err(SetsError::Opening);
        }
        let named = || sets.iter().flat_map(|set| &set.disks);
        let used = || self.disks.values().filter(|disk| !disk.is_out);
        if let Some(known) = named().find(|new| used().any(|disk| disk.name == new.name)) {
            return Err(SetsError::Known(known.name.clone()));
        }
        let found = used().count() + named().count();
        match found > DISKS_MAX {
            true => Err(SetsError::TooMany(found)),
            false => Ok(()),
        }
    }

    /// A disk is there from now on.
    pub(super) fn attach(&mut self, id: DiskId, name: &str, length_bytes: u64) -> DiskNumber {
        let number = DiskNumber(self.next_disk);
        self.next_disk = self.next_disk.saturating_add(1);
        let disk = Attached::new(FoundDisk {
            id,
            name: name.to_owned(),
            length_bytes,
            is_labelled: false,
        });
        self.disks.insert(number, disk);
        number
    }

    /// What is on a set is to go elsewhere: see [`closed`](Self::closed).
    ///
    /// # Errors
    /// [`SetsError::Opening`], [`SetsError::NoSet`], [`SetsError::Retiring`] and
    /// [`SetsError::Only`]: nothing is changed.
    pub fn retire_set(&mut self, now: Time, set: usize) -> Result<(), SetsError> {
        self.now = now;
        self.check_retire(set)?;
        self.pool.sets[set].service = Service::Retiring;
        self.request_labels();
        Ok(())
    }

    /// Whether a set can be retired.
    ///
    /// # Errors
    /// Those of [`retire_set`](Self::retire_set).
    pub fn check_retire(&self, set: usize) -> Result<(), SetsError> {
        if self.recovering.is_some() {
            return Err(SetsError::Opening);
        }
        let used = self.pool.sets.iter().filter(|set| !set.is_retired());
        match (self.pool.sets.get(set), self.retiring()) {
            (None, _) => Err(SetsError::NoSet(set)),
            (Some(record), _) if record.is_retired() => Err(SetsError::NoSet(set)),
            (_, Some(other)) => Err(SetsError::Retiring(other)),
            _ if used.count() == 1 => Err(SetsError::Only(set)),
            _ => Ok(()),
        }
    }

    /// A set that was to be retired stays.
    ///
    /// # Errors
    /// [`SetsError::NotRetiring`].
    pub fn keep_set(&mut self, now: Time, set: usize) -> Result<(), SetsError> {
        self.now = now;
        if self.retiring() != Some(set) {
            return Err(SetsError::NotRetiring(set));
        }
        self.pool.sets[set].service = Service::Full;
        self.request_labels();
        Ok(())
    }

    /// The set that is being retired.
    #[must_use]
    pub fn retiring(&self) -> Option<usize> {
        let mut sets = self.pool.sets.iter();
        sets.position(|set| set.service == Service::Retiring)
    }

    /// Where nothing is to lie: on sets that are retired, or were.
    #[must_use]
    pub fn closed(&self) -> Vec<Places> {
        let sets = self.pool.sets.iter().enumerate();
        let closed = sets.filter(|(_, set)| set.service != Service::Full);
        closed
            .flat_map(|(number, _)| self.pool.places(number))
            .collect()
    }

    /// Bytes that a set holds, or holds no more.
    #[must_use]
    pub fn set_bytes(&self, set: usize) -> u64 {
        match set < self.pool.sets.len() {
            true => self.pool.set_bytes(set),
            false => 0,
        }
    }

    /// Nothing lies any more on the set that is being retired, and nothing will ever be
    /// asked of its places. [`SetsEvent::Retired`] comes when its disks may go.
    pub fn set_emptied(&mut self, now: Time) {
        self.now = now;
        let Some(set) = self.retiring() else {
            return;
        };
        if let Some(place) = self.sets[set].rebuild.as_ref().map(|rebuild| rebuild.place) {
            self.stop_rebuild_of(set, place);
        }
        self.pool.sets[set].service = Service::Retired;
        let ticket = self.request_labels();
        self.leaving = Some((set, ticket));
        self.see_off();
    }

    /// Lets the disks of a set go, once all others know and nothing is asked of them.
    pub(super) fn see_off(&mut self) {
        let Some((set, ticket)) = self.leaving else {
            return;
        };
        let members = &self.pool.sets[set].members;
        let is_member =
            |disk: &Attached| members.iter().any(|member| member.disk == disk.id) && !disk.is_out;
        let disks = self.disks.iter().filter(|(_, disk)| is_member(disk));
        let is_quiet = disks.clone().all(|(_, disk)| disk.in_flight == 0);
        if ticket > self.labels.done || !is_quiet {
            return;
        }
        let disks: Vec<DiskNumber> = disks.map(|(number, _)| *number).collect();
        let names = disks.iter().filter_map(|number| self.disks.remove(number));
        let names = names.map(|disk| disk.name).collect();
        self.leaving = None;
        self.events
            .push_back(SetsEvent::Retired { set, names, disks });
    }
}
