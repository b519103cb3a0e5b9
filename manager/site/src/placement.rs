//! Where new blocks of files with block maps go (Slice 3.1, docs/decisions/0029): to sets
//! whose nodes have room and little to do.
//!
//! Sets take turns by their weights (smooth weighted round robin): each gets credit by its
//! weight, the one with the most is chosen and pays for all. So neighbouring blocks lie on
//! different nodes, and in the long run each has its share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_directory::{Cell, Mutation};
use crossdock_limits::{FILE_BYTES_MAX, NFS_TCP_IO_BYTES_MAX};
use crossdock_names::{NodeId, ObjectId, RoutingTable, SEGMENT_BYTES, SetId};
use crossdock_peer::OpenFor;

use crate::site::Site;

/// What a node has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    /// Free bytes.
    pub free_bytes: u64,
    /// How many requests its disks had to do on average, in hundredths.
    pub load_percent: u32,
}

/// Of all nodes that have told it.
pub type Rooms = BTreeMap<NodeId, NodeRoom>;

/// Blocks that are placed ahead of who writes on: so a site is asked once in 64 MiB, if
/// blocks have 1 MiB.
const BLOCKS_AHEAD: u64 = 64;

/// What all weights of a choice are in all, about.
const TOTAL: i64 = 1 << 20;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) rooms: Arc<Rooms>,
    credits: BTreeMap<SetId, i64>,
}

impl Turns {
    /// The shares of sets, by what their nodes have to give. What is not known counts like
    /// the least that is.
    fn shares(&self, table: &RoutingTable, sets: &[SetId]) -> Vec<i64> {
        let known = self.rooms.values().map(NodeRoom::weight).min();
        let unknown = known.unwrap_or(1);
        let weight_of = |set: &SetId| {
            let members = table.set(*set).map_or(&[][..], |set| &set.members);
            let rooms = members.iter().map(|node| self.rooms.get(node));
            let weights = rooms.map(|room| room.map_or(unknown, NodeRoom::weight));
            // Nobody takes bytes of a set without members now.
            weights.min().unwrap_or(0)
        };
        let weights: Vec<u64> = sets.iter().map(weight_of).collect();
        let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        if sum == 0 {
            return vec![1; sets.len()];
        }
        let share = |weight: &u64| u128::from(*weight) * TOTAL.unsigned_abs() as u128 / sum;
        let shares = weights.iter().map(share);
        shares
            .map(|share| i64::try_from(share).unwrap_or(TOTAL))
            .collect()
    }

    /// The index of the set whose turn it is.
    fn next(&mut self, sets: &[SetId], shares: &[i64]) -> usize {
        let mut best = (i64::MIN, 0);
        for (index, (set, share)) in sets.iter().zip(shares).enumerate() {
            let credit = self.credits.entry(*set).or_default();
            // Bounded, for shares change and files differ in their sets.
            *credit = (*credit + share).clamp(-4 * TOTAL, 4 * TOTAL);
            if *share > 0 && *credit > best.0 {
                best = (*credit, index);
            }
        }
        let (_, chosen) = best;
        if let Some(credit) = sets.get(chosen).and_then(|set| self.credits.get_mut(set)) {
            *credit -= shares.iter().sum::<i64>();
        }
        chosen
    }
}

impl NodeRoom {
    /// Its weight: free MiB, as many times less as requests wait for its disks.
    fn weight(&self) -> u64 {
        let free = (self.free_bytes >> 20).saturating_mul(100);
        free / (100 + u64::from(self.load_percent))
    }
}

impl Site {
    /// The changes that place what an open is to write, and what probably follows it.
    pub(crate) fn place_blocks(&mut self, cell: &Cell, purpose: OpenFor) -> Vec<Mutation> {
        let rare = cell.rare();
        let range = purpose.range();
        // As much as one write can be: what routers say is not believed.
        let most = NFS_TCP_IO_BYTES_MAX as u64;
        let range = range.start..range.end.min(range.start.saturating_add(most));
        let Some(block_bytes) = rare.layout.map_block_bytes() else {
            return Vec::new();
        };
        if !matches!(purpose, OpenFor::Write { .. }) || range.is_empty() {
            return Vec::new();
        }
        let made = u64::from(rare.segments) * SEGMENT_BYTES;
        let end = range.end.div_ceil(block_bytes);
        let limit = made.min(FILE_BYTES_MAX) / block_bytes;
        let first = range.start / block_bytes;
        let directory = &self.state.directory;
        if !directory.has_unmapped(cell.serial, (first, end)) {
            return Vec::new();
        }
        let end = (end + BLOCKS_AHEAD).min(limit);
        let mut changes = Vec::new();
        let per_segment = SEGMENT_BYTES / block_bytes;
        for segment in first / per_segment..end.div_ceil(per_segment) {
            let sets = self.sets_of(cell, segment);
            let shares = self.turns.shares(&self.table, &sets);
            let from = first.max(segment * per_segment);
            let to = end.min((segment + 1) * per_segment);
            let turns = &mut self.turns;
            let choose = || u8::try_from(turns.next(&sets, &shares)).unwrap_or(0);
            changes.extend(directory.map_blocks(cell.serial, (from, to), choose));
        }
        changes
    }

    /// The sets of a segment's columns.
    fn sets_of(&self, cell: &Cell, segment: u64) -> Vec<SetId> {
        let file = cell.file(self.config.site).id;
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        let columns = 0..cell.rare().columns;
        let objects = columns.map(|column| {
            let object = ObjectId::column(file, cell.generation, segment, column);
            self.table.set_of(&object)
        });
        objects.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(shares: &[i64], blocks: usize) -> Vec<usize> {
        let sets: Vec<SetId> = (0..4).map(SetId).collect();
        let mut turns = Turns::default();
        let mut counts = vec![0; shares.len()];
        for _ in 0..blocks {
            counts[turns.next(&sets[..shares.len()], shares)] += 1;
        }
        counts
    }

    /// Goal: sets get blocks by their shares, those without a share none.
    #[test]
    fn sets_get_blocks_by_their_shares() {
        assert_eq!(counts(&[1, 1, 1], 300), [100, 100, 100]);
        assert_eq!(counts(&[5, 3, 2], 1000), [500, 300, 200]);
        assert_eq!(counts(&[1, 0, 1], 10), [5, 0, 5]);
    }

    /// Goal: neighbouring blocks lie on different sets.
    #[test]
    fn neighbours_lie_apart() {
        let sets = [SetId(1), SetId(2), SetId(3)];
        let mut turns = Turns::default();
        let mut next = || turns.next(&sets, &[4, 4, 4]);
        let chosen: Vec<usize> = (0..6).map(|_| next()).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }

    /// Goal: a node with twice the room, or half the load, has twice the weight.
    #[test]
    fn room_and_load_make_the_weight() {
        let room = |free: u64, load_percent| NodeRoom {
            free_bytes: free << 20,
            load_percent,
        };
        assert_eq!(room(1000, 0).weight(), 1000);
        assert_eq!(room(2000, 100).weight(), 1000);
        assert_eq!(room(0, 0).weight(), 0);
    }
}
