//! The routing table: which nodes hold a slot, which manager hosts a site.
//!
//! It is a registry record with an epoch. Routers and nodes keep a copy; a
//! request that was sent by an old table is refused with the new epoch.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Epoch, HostId, LayoutClass, NodeId, ObjectClass, ObjectId, SetId, SiteId, Slot, Spread,
};

/// Buckets of the placement hash per volume.
pub const SLOTS: usize = 1024;

/// Logical sites per volume, fixed when the volume is made.
pub const SITES: usize = 256;

/// Nodes that hold the same objects. The first one orders all writes
/// (CONSISTENCY 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    /// Raised with every change of the members, and when the primary restarts.
    pub epoch: Epoch,
    /// Members in order; empty means that the set is unavailable.
    pub members: Vec<NodeId>,
}

/// Where a site's state lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// Raised at each take-over; fences the log.
    pub epoch: Epoch,
    /// The set whose nodes hold the site's log, checkpoints and small files.
    pub set: SetId,
}

/// Who runs what; most of it is empty where all is one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Who may change anything; everybody else has been replaced, or is not
    /// known yet.
    pub live: BTreeSet<HostId>,
    /// Where each node runs.
    pub nodes: BTreeMap<NodeId, HostId>,
    /// Which manager serves each site.
    pub sites: BTreeMap<SiteId, HostId>,
    /// Sites that have been opened: what is about all sites is about these.
    pub opened: BTreeSet<SiteId>,
    /// Where clients are connected.
    pub gateways: BTreeSet<HostId>,
}

impl Hosts {
    /// Whether all is one process, where nobody can be replaced while others
    /// go on.
    #[must_use]
    pub fn is_one_process(&self) -> bool {
        self.live.is_empty()
    }
}

/// The table of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingTable {
    /// Raised with every change of the table.
    pub epoch: Epoch,
    /// All replica sets.
    pub sets: BTreeMap<SetId, ReplicaSet>,
    /// Per slot the ordered list of sets; column c uses entry c mod length.
    pub slots: Vec<Vec<SetId>>,
    /// Per site its epoch and set.
    pub sites: Vec<SiteRecord>,
    /// At which of them names lie, for good.
    pub spread: Spread,
    /// How the bytes of new files are spread.
    pub layout: LayoutClass,
    /// Which processes serve all that.
    pub hosts: Hosts,
}

impl RoutingTable {
    /// The slot of a segment of a file.
    #[must_use]
    pub fn slot_of(placement: u64, segment: u32) -> Slot {
        // SplitMix64's finaliser: well mixed, cheap, and the same for ever.
        let mut hash = placement ^ (u64::from(segment) << 40 | u64::from(segment));
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        #[expect(clippy::cast_possible_truncation, reason = "SLOTS fits a u16")]
        Slot((hash % SLOTS as u64) as u16)
    }

    /// The set that holds `object`; [`SetId::NONE`] if it has no replicas.
    ///
    /// # Panics
    /// If the table does not have [`SLOTS`] slots and [`SITES`] sites, or an
    /// object of a site beyond them is asked for.
    #[must_use]
    pub fn set_of(&self, object: &ObjectId) -> SetId {
        match object.class {
            ObjectClass::Column => {
                let slot = Self::slot_of(object.placement, object.segment);
                let entries = &self.slots[usize::from(slot.0)];
                entries[usize::from(object.column) % entries.len()]
            }
            ObjectClass::SiteLog | ObjectClass::Checkpoint | ObjectClass::SmallFiles => {
                let site = usize::try_from(object.placement).unwrap_or(usize::MAX);
                self.sites[site].set
            }
            ObjectClass::Allocation => SetId::NONE,
        }
    }

    /// The set's record.
    #[must_use]
    pub fn set(&self, id: SetId) -> Option<&ReplicaSet> {
        self.sets.get(&id)
    }

    /// The record of the set that holds `object`.
    #[must_use]
    pub fn members_of(&self, object: &ObjectId) -> Option<&ReplicaSet> {
        self.set(self.set_of(object))
    }

    /// The record of `site`.
    #[must_use]
    pub fn site(&self, site: SiteId) -> Option<&SiteRecord> {
        self.sites.get(usize::from(site.0))
    }

    /// How many columns a new segment of `placement` gets: one per set of its slot.
    #[must_use]
    pub fn columns_for(&self, placement: u64, segment: u32) -> u16 {
        let slot = Self::slot_of(placement, segment);
        u16::try_from(self.slots[usize::from(slot.0)].len()).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neighbouring file ids spread evenly, so that no slot is hot.
    #[test]
    fn slots_are_even() {
        let mut counts = vec![0u32; SLOTS];
        for file in 0..SLOTS as u64 * 64 {
            counts[usize::from(RoutingTable::slot_of(file, 0).0)] += 1;
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least > Some(&30) && most < Some(&110), "{least:?} {most:?}");
    }
}
