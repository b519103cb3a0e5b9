//! Which allocations there are, and how much of what is granted they take.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_ibp::Reliability;
use crossdock_names::{ObjectId, Version};

use crate::clock::Millis;
use crate::message::ConnId;
use crate::record::Record;

/// Number of the depot's own object; allocations have others.
pub(crate) const DEPOT: u64 = 0;

/// An allocation, and what is going on with it.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) record: Record,
    version: Version,
    /// The record is being written; what changes it waits.
    pub(crate) is_changing: bool,
    /// Somebody stores, or what somebody has not completed is being removed.
    pub(crate) has_writer: bool,
    /// Writes that the node has not answered.
    pub(crate) writes: usize,
    /// Positions at which a store has broken off that was not completed.
    pub(crate) broken: Option<Range<u64>>,
    /// Loads and copies that read.
    pub(crate) readers: usize,
    /// Who waits until something of this is different.
    pub(crate) waiters: Vec<ConnId>,
}

impl Allocation {
    pub(crate) const fn new(record: Record, version: Version) -> Self {
        Self {
            record,
            version,
            is_changing: false,
            has_writer: false,
            writes: 0,
            broken: None,
            readers: 0,
            waiters: Vec::new(),
        }
    }

    /// For its next change.
    pub(crate) const fn next_version(&mut self) -> Version {
        self.version = self.version.next();
        self.version
    }

    /// That connection is told when something of this is different.
    pub(crate) fn wait(&mut self, id: ConnId) {
        if !self.waiters.contains(&id) {
            self.waiters.push(id);
        }
    }

    /// Whether nobody reads or writes: queues and buffers serve one at a time.
    pub(crate) const fn is_free(&self) -> bool {
        !self.has_writer && self.readers == 0
    }
}

/// Bytes that are promised, by reliability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) stable: u64,
    pub(crate) volatile: u64,
}

impl Promised {
    pub(crate) const fn total(self) -> u64 {
        self.stable.saturating_add(self.volatile)
    }
}

/// All allocations of a depot.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    allocations: BTreeMap<u64, Allocation>,
    /// By the end of their leases.
    ends: BTreeSet<(Millis, u64)>,
    /// Those of them that may be revoked.
    volatile: BTreeSet<(Millis, u64)>,
    /// Being made, or removed: their space is taken.
    passing: BTreeMap<u64, Record>,
    promised: Promised,
}

impl Ledger {
    pub(crate) fn get(&self, number: u64) -> Option<&Allocation> {
        self.allocations.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.allocations.len() + self.passing.len()
    }

    /// Whether that number is taken.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.allocations.contains_key(&number) || self.passing.contains_key(&number)
    }

    pub(crate) const fn promised(&self) -> Promised {
        self.promised
    }

    /// When the first lease ends.
    pub(crate) fn first_end(&self) -> Option<(Millis, u64)> {
        let first = self.ends.first().copied();
        first.filter(|&(end, _)| end < Millis::FOREVER)
    }

    /// Volatile allocations, those first that end first.
    pub(crate) fn revocable(&self) -> impl Iterator<Item = (u64, &Record)> {
        let numbers = self.volatile.iter().map(|&(_, number)| number);
        numbers.filter_map(|number| Some((number, &self.get(number)?.record)))
    }

    /// Bytes of volatile allocations that are being removed.
    pub(crate) fn leaving_volatile(&self) -> u64 {
        let passing = self.passing.values();
        let volatile = passing.filter(|record| record.reliability == Reliability::Volatile);
        volatile.map(|record| record.size_bytes).sum()
    }

    /// What is being made, or removed.
    pub(crate) fn passing(&self, number: u64) -> Option<Record> {
        self.passing.get(&number).copied()
    }

    /// It is being made.
    pub(crate) fn promise(&mut self, number: u64, record: Record) {
        self.count(&record);
        self.passing.insert(number, record);
    }

    /// It is there.
    pub(crate) fn insert(&mut self, number: u64, allocation: Allocation) {
        let record = allocation.record;
        if self.passing.remove(&number).is_none() {
            self.count(&record);
        }
        self.index(number, &record);
        self.allocations.insert(number, allocation);
    }

    /// It is not for anybody any more; its space is still taken.
    pub(crate) fn take(&mut self, number: u64) -> Option<Allocation> {
        let allocation = self.allocations.remove(&number)?;
        self.unindex(number, &allocation.record);
        self.passing.insert(number, allocation.record);
        Some(allocation)
    }

    /// It was not made, or is removed: its space is free.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(record) = self.passing.remove(&number) {
            self.uncount(&record);
        }
    }

    /// What is known of it has changed.
    pub(crate) fn update(&mut self, number: u64, record: Record) {
        if let Some(allocation) = self.allocations.get_mut(&number) {
            let before = std::mem::replace(&mut allocation.record, record);
            self.unindex(number, &before);
            self.uncount(&before);
            self.index(number, &record);
            self.count(&record);
        }
    }

    fn index(&mut self, number: u64, record: &Record) {
        self.ends.insert((record.end, number));
        if record.reliability == Reliability::Volatile {
            self.volatile.insert((record.end, number));
        }
    }

    fn unindex(&mut self, number: u64, record: &Record) {
        self.ends.remove(&(record.end, number));
        self.volatile.remove(&(record.end, number));
    }

    const fn sum(&mut self, record: &Record) -> &mut u64 {
        match record.reliability {
            Reliability::Stable => &mut self.promised.stable,
            Reliability::Volatile => &mut self.promised.volatile,
        }
    }

    fn count(&mut self, record: &Record) {
        let sum = self.sum(record);
        *sum = sum.saturating_add(record.size_bytes);
    }

    fn uncount(&mut self, record: &Record) {
        let sum = self.sum(record);
        *sum = sum.saturating_sub(record.size_bytes);
    }
}

/// The object of an allocation.
pub(crate) const fn object(number: u64) -> ObjectId {
    ObjectId::allocation(number)
}
