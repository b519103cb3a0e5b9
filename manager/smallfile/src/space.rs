//! Free space of the backing objects: power-of-two fragments of 128 B to 8 KiB,
//! best fit, else the end of the newest object (Slice 4.4).
//!
//! All objects together are one line of 128-byte units. Fragments are aligned
//! to their size (a buddy system), so one below 4 KiB never straddles a block
//! of the node. A run of whole 8 KiB blocks never crosses into the next object.
//!
//! Nodes still hold what was in a free place. Free runs that may be more than
//! holes there are known, so that they can be given back; one that is on its
//! way back is not free until the nodes have answered.

use std::collections::{BTreeMap, BTreeSet};

use crate::runs::Runs;

/// Smallest fragment, and the unit of addresses.
pub(crate) const UNIT_BYTES: u32 = 128;

/// Units in a logical block, the largest fragment.
pub(crate) const BLOCK_UNITS: u32 = 64;

/// Sizes below a whole block: 1, 2, 4 … 32 units.
const ORDERS: u32 = BLOCK_UNITS.trailing_zeros();

/// Free space, and where the backing objects end.
#[derive(Debug)]
pub(crate) struct Space {
    blocks_per_object: u32,
    blocks_max: u32,
    end_block: u32,
    /// Free fragments below a block, by the logarithm of their units.
    fragments: [BTreeSet<u32>; ORDERS as usize],
    /// Free runs of whole blocks.
    runs: Runs,
    /// Those of them that nodes may still hold bytes of.
    held: Runs,
    /// On their way back to the nodes: first block → how many.
    returning: BTreeMap<u32, u32>,
    returning_units: u64,
    free_units: u64,
}

impl Space {
    pub(crate) const fn new(blocks_per_object: u32, blocks_max: u32) -> Self {
        Self {
            blocks_per_object,
            blocks_max,
            end_block: 0,
            fragments: [const { BTreeSet::new() }; ORDERS as usize],
            runs: Runs::new(blocks_per_object),
            held: Runs::new(blocks_per_object),
            returning: BTreeMap::new(),
            returning_units: 0,
            free_units: 0,
        }
    }

    /// Free places for fragments of these sizes (powers of two up to
    /// [`BLOCK_UNITS`]), one adjacent run if there is any. They stay free until
    /// [`claim`](Self::claim)ed; `None` if there is no room for all.
    pub(crate) fn find(&mut self, sizes: &[u32]) -> Option<Vec<u32>> {
        if let [only] = sizes
            && *only < BLOCK_UNITS
        {
            return self.find_fragment(*only).map(|unit| vec![unit]);
        }
        let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        if total >= u64::from(BLOCK_UNITS)
            && let Some(places) = self.find_adjacent(sizes, total)
        {
            return Some(places);
        }
        self.find_scattered(sizes)
    }

    /// Takes a free place, growing the end if it lies beyond. False, and
    /// nothing has changed but the end, if it is not free or not a place.
    pub(crate) fn claim(&mut self, unit: u32, units: u32) -> bool {
        let block = unit / BLOCK_UNITS;
        if !units.is_power_of_two()
            || units > BLOCK_UNITS
            || !unit.is_multiple_of(units)
            || block >= self.blocks_max
        {
            return false;
        }
        while block >= self.end_block {
            self.grow(block + 1);
        }
        let claimed = if units == BLOCK_UNITS {
            self.take_blocks(block, 1)
        } else {
            self.claim_fragment(unit, units.trailing_zeros())
        };
        if claimed {
            self.free_units -= u64::from(units);
        }
        claimed
    }

    /// Makes a claimed place free again, joined with its free neighbours.
    pub(crate) fn release(&mut self, unit: u32, units: u32) {
        self.free_units += u64::from(units);
        let mut unit = unit;
        let mut order = units.trailing_zeros();
        while order < ORDERS {
            let buddy = unit ^ (1 << order);
            if !self.fragments[order as usize].remove(&buddy) {
                self.fragments[order as usize].insert(unit);
                return;
            }
            unit &= !(1 << order);
            order += 1;
        }
        self.add_free(unit / BLOCK_UNITS, 1);
    }

    /// Whether there is a free run of `blocks_min` at least that nodes may hold
    /// bytes of.
    pub(crate) fn has_held(&self, blocks_min: u32) -> bool {
        self.held.largest() >= blocks_min
    }

    /// Takes the largest such run, or `blocks_max` of it, out of the free space
    /// until [`end_return`](Self::end_return): first block and how many.
    pub(crate) fn begin_return(&mut self, blocks_min: u32, blocks_max: u32) -> Option<(u32, u32)> {
        let (start, count) = self.held.find_largest(blocks_min)?;
        let count = count.min(blocks_max);
        self.held.take(start, count);
        self.runs.take(start, count);
        let units = u64::from(count) * u64::from(BLOCK_UNITS);
        self.free_units -= units;
        self.returning_units += units;
        self.returning.insert(start, count);
        Some((start, count))
    }

    /// The nodes have answered: the run is free again. If not all have given it
    /// back, it is tried again.
    pub(crate) fn end_return(&mut self, start: u32, is_given_back: bool) {
        let Some(count) = self.returning.remove(&start) else {
            return;
        };
        let units = u64::from(count) * u64::from(BLOCK_UNITS);
        self.free_units += units;
        self.returning_units -= units;
        self.runs.insert(start, count);
        if !is_given_back {
            self.held.insert(start, count);
        }
    }

    pub(crate) const fn returning_units(&self) -> u64 {
        self.returning_units
    }

    pub(crate) const fn end_units(&self) -> u64 {
        self.end_block as u64 * BLOCK_UNITS as u64
    }

    pub(crate) const fn free_units(&self) -> u64 {
        self.free_units
    }

    /// Sets the end to at least `end_block`; what is new is free.
    pub(crate) fn extend_to(&mut self, end_block: u32) {
        while self.end_block < end_block.min(self.blocks_max) {
            self.grow(end_block.min(self.blocks_max));
        }
    }

    /// Every free place as (unit, units), in no order.
    pub(crate) fn free_places(&self) -> impl Iterator<Item = (u64, u64)> {
        let fragments = (0u32..)
            .zip(&self.fragments)
            .flat_map(|(order, set)| set.iter().map(move |&unit| (u64::from(unit), 1 << order)));
        let block_units = u64::from(BLOCK_UNITS);
        let runs = self.runs.iter().map(move |(start, count)| {
            (
                u64::from(start) * block_units,
                u64::from(count) * block_units,
            )
        });
        fragments.chain(runs)
    }

    /// Every place that is on its way back, likewise.
    pub(crate) fn returning_places(&self) -> impl Iterator<Item = (u64, u64)> {
        let block_units = u64::from(BLOCK_UNITS);
        self.returning.iter().map(move |(&start, &count)| {
            (
                u64::from(start) * block_units,
                u64::from(count) * block_units,
            )
        })
    }

    fn find_fragment(&self, units: u32) -> Option<u32> {
        (units.trailing_zeros()..ORDERS)
            .find_map(|order| self.fragments[order as usize].first().copied())
            .or_else(|| self.find_blocks(1).map(|block| block * BLOCK_UNITS))
    }

    /// Largest first, so that each lies aligned right behind the one before.
    fn find_adjacent(&self, sizes: &[u32], total: u64) -> Option<Vec<u32>> {
        let blocks = u32::try_from(total.div_ceil(u64::from(BLOCK_UNITS))).ok()?;
        let mut next = self.find_blocks(blocks)? * BLOCK_UNITS;
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(sizes[index]));
        let mut places = vec![0; sizes.len()];
        for index in order {
            places[index] = next;
            next += sizes[index];
        }
        Some(places)
    }

    fn find_scattered(&mut self, sizes: &[u32]) -> Option<Vec<u32>> {
        let mut places = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let place = if size == BLOCK_UNITS {
                self.find_blocks(1).map(|block| block * BLOCK_UNITS)
            } else {
                self.find_fragment(size)
            };
            match place {
                Some(unit) if self.claim(unit, size) => places.push(unit),
                _ => break,
            }
        }
        for (&unit, &size) in places.iter().zip(sizes) {
            self.release(unit, size);
        }
        (places.len() == sizes.len()).then_some(places)
    }

    /// The smallest free run of at least `count` blocks, else one that begins
    /// or lies at the end.
    fn find_blocks(&self, count: u32) -> Option<u32> {
        if let Some(start) = self.runs.find_best(count) {
            return Some(start);
        }
        if count > self.blocks_per_object {
            return None;
        }
        let last = self.runs.last();
        let tail = last.filter(|&(start, free)| start + free == self.end_block);
        let mut start = tail.map_or(self.end_block, |(start, _)| start);
        let boundary = start.next_multiple_of(self.blocks_per_object);
        if start < boundary && start + count > boundary {
            start = boundary;
        }
        (start.checked_add(count)? <= self.blocks_max).then_some(start)
    }

    fn claim_fragment(&mut self, unit: u32, order: u32) -> bool {
        let found = (order..ORDERS).find(|&larger| {
            let container = unit & !((1 << larger) - 1);
            self.fragments[larger as usize].remove(&container)
        });
        let from = match found {
            Some(larger) => larger,
            None if self.take_blocks(unit / BLOCK_UNITS, 1) => ORDERS,
            None => return false,
        };
        for smaller in (order..from).rev() {
            let half = unit & !((1 << smaller) - 1);
            self.fragments[smaller as usize].insert(half ^ (1 << smaller));
        }
        true
    }

    fn take_blocks(&mut self, block: u32, count: u32) -> bool {
        let is_free = self.runs.take(block, count);
        if is_free {
            self.held.cut(block, count);
        }
        is_free
    }

    /// Adds a free run; nodes may hold bytes of it. (They may also of one that
    /// the end has just grown by: of a change that became void with a crash.)
    fn add_free(&mut self, start: u32, count: u32) {
        self.runs.insert(start, count);
        self.held.insert(start, count);
    }

    /// Moves the end towards `end_block`, at most to the end of this object.
    fn grow(&mut self, end_block: u32) {
        let boundary = (self.end_block + 1).next_multiple_of(self.blocks_per_object);
        let end = end_block.min(boundary);
        let (start, count) = (self.end_block, end - self.end_block);
        self.end_block = end;
        self.free_units += u64::from(count) * u64::from(BLOCK_UNITS);
        self.add_free(start, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(space: &mut Space, sizes: &[u32]) -> Option<Vec<u32>> {
        let places = space.find(sizes)?;
        for (&unit, &size) in places.iter().zip(sizes) {
            assert!(space.claim(unit, size), "{unit} was found but is not free");
        }
        Some(places)
    }

    /// Goal: the fragments of one file lie behind each other, and small files
    /// fill what is left of its last block (Slice 4.4: 8,300 bytes take 8,320).
    #[test]
    fn a_file_is_one_run_and_its_rest_is_used() {
        let mut space = Space::new(1024, 4096);
        assert_eq!(take(&mut space, &[64, 64, 1]), Some(vec![0, 64, 128]));
        assert_eq!(space.end_units() - space.free_units(), 129);
        assert_eq!(take(&mut space, &[1]), Some(vec![129]));
        assert_eq!(take(&mut space, &[4]), Some(vec![132]));
        assert_eq!(take(&mut space, &[32]), Some(vec![160]));
        assert_eq!(take(&mut space, &[64]), Some(vec![192]));
    }

    /// Goal: a hole that fits best is used before larger ones and before the end.
    #[test]
    fn the_best_fit_wins() {
        let mut space = Space::new(1024, 4096);
        assert!(take(&mut space, &[64; 16]).is_some());
        for block in [1, 4, 5, 9, 10, 11] {
            space.release(block * 64, 64);
        }
        assert_eq!(take(&mut space, &[64, 2]), Some(vec![256, 320]));
        assert_eq!(take(&mut space, &[64]), Some(vec![64]));
        assert_eq!(
            take(&mut space, &[64; 4]),
            Some(vec![1024, 1088, 1152, 1216])
        );
    }

    /// Goal: all that was taken and given back is one run again, object by object.
    #[test]
    fn buddies_join() {
        let mut space = Space::new(4, 12);
        let mut taken = Vec::new();
        for size in [1, 32, 2, 64, 16, 64, 64, 8, 4, 64, 64] {
            taken.extend(take(&mut space, &[size]).map(|places| (places[0], size)));
        }
        for (unit, size) in taken {
            space.release(unit, size);
        }
        assert_eq!(space.free_units(), space.end_units());
        assert!(
            space
                .runs
                .iter()
                .all(|(start, count)| start % 4 + count <= 4)
        );
        assert!(space.fragments.iter().all(BTreeSet::is_empty));
    }

    /// Goal: a run never crosses into the next object; the gap stays usable,
    /// and when no run is long enough fragments are scattered.
    #[test]
    fn objects_bound_runs() {
        let mut space = Space::new(4, 8);
        assert!(take(&mut space, &[64; 3]).is_some());
        assert_eq!(take(&mut space, &[64; 2]), Some(vec![256, 320]));
        assert_eq!(take(&mut space, &[64; 3]), Some(vec![192, 384, 448]));
        assert_eq!(space.find(&[1]), None);
        assert!(!space.claim(0, 64), "it is taken");
        assert!(!space.claim(8 * 64, 64), "it is beyond the limit");
    }

    /// Goal: only what is free is given back, once; what is on its way is not
    /// given out, and what was written since is given back again.
    #[test]
    fn runs_are_given_back_once() {
        let mut space = Space::new(8, 16);
        assert!(take(&mut space, &[64; 8]).is_some());
        for block in [0, 2, 3, 4, 6] {
            space.release(block * 64, 64);
        }
        assert_eq!(space.begin_return(4, 8), None);
        assert_eq!(space.begin_return(2, 8), Some((2, 3)));
        assert_eq!(space.begin_return(2, 8), None);
        assert_eq!(
            take(&mut space, &[64; 2]),
            Some(vec![512, 576]),
            "at the end"
        );
        space.end_return(2, false);
        assert_eq!(space.begin_return(2, 2), Some((2, 2)), "a part of it");
        space.end_return(2, true);
        assert!(space.has_held(1) && !space.has_held(2));
        assert_eq!(take(&mut space, &[64; 3]), Some(vec![128, 192, 256]));
        for block in [2, 3, 4] {
            space.release(block * 64, 64);
        }
        assert_eq!(space.begin_return(3, 8), Some((2, 3)));
        space.end_return(2, true);
        assert_eq!(space.begin_return(1, 8), Some((6, 1)));
        assert_eq!(space.returning_units(), 64);
    }
}
