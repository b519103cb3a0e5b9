//! Which blocks of the data disk are taken.
//!
//! A block is *committed* when a record says so; the index keeps that, as one
//! bitmap per allocation group of [`GROUP_BLOCKS`]. It is *busy* while it may
//! not be given out: committed, given to a write that is not recorded yet, or
//! freed by a record that is not durable or still read. Groups are loaded from
//! the index when something is to be allocated in them.

use std::collections::BTreeMap;

use crossdock_log::Position;

use crate::runs::DiskRange;

use closed::Closed;

mod closed;
mod contiguity;

/// Blocks of an allocation group: 128 MiB.
pub(crate) const GROUP_BLOCKS: u64 = 32_768;

/// Bytes of a group's bitmap; bit i % 8 of byte i / 8 is block i, 1 = taken.
pub(crate) const BITMAP_BYTES: usize = 4096;

const _: () = assert!(BITMAP_BYTES as u64 * 8 == GROUP_BLOCKS);

/// A change of committed blocks, for the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceDelta {
    pub(crate) range: DiskRange,
    pub(crate) is_taken: bool,
}

/// Why nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationError {
    /// Ask again when this group has been loaded.
    Load(u32),
    /// Ask again when the disk has this many blocks.
    Grow(u64),
    /// There is nothing.
    Full,
}

/// Freed blocks that cannot be given out yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) range: DiskRange,
    /// The record that freed them.
    pub(crate) position: Position,
}

#[derive(Debug)]
struct Group {
    committed: Box<Bitmap>,
    busy: Box<Bitmap>,
    free: u64,
    /// No stretch of free blocks is longer than this.
    longest_bound: u64,
}

/// The allocator.
#[derive(Debug, Default)]
pub(crate) struct Space {
    capacity: u64,
    grown: u64,
    growth: u64,
    groups: BTreeMap<u32, Group>,
    /// Free blocks of groups as the index has them; absent = all.
    counts: BTreeMap<u32, i64>,
    committed: u64,
    /// Given out, not recorded.
    unrecorded: u64,
    held: Vec<Held>,
    held_blocks: u64,
    cursor: u64,
    /// The last attempt to grow failed.
    is_stuck: bool,
    closed: Closed,
    /// Closed blocks of all that the disk can have, and of what it has.
    closed_blocks: u64,
    closed_grown: u64,
    deltas: Vec<SpaceDelta>,
    /// In a batch that waits for the journal: the index does not have them yet.
    collected: Vec<SpaceDelta>,
    /// Changes of groups that are being loaded, to be made on top.
    loading: BTreeMap<u32, Vec<SpaceDelta>>,
}

impl Space {
    pub(crate) fn new(capacity: u64, growth: u64) -> Self {
        Self {
            capacity,
            growth: growth.max(256),
            ..Self::default()
        }
    }

    /// Takes over what the index knows.
    pub(crate) fn start(&mut self, committed: u64, grown: u64, counts: Vec<(u32, u32)>) {
        self.committed = committed;
        self.grown = grown;
        self.counts = counts
            .into_iter()
            .map(|(group, free)| (group, i64::from(free)))
            .collect();
        self.count_closed();
    }

    /// Blocks that can be given out, all in all.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity - self.closed_blocks
    }

    pub(crate) const fn grown(&self) -> u64 {
        self.grown
    }

    pub(crate) const fn committed(&self) -> u64 {
        self.committed
    }

    /// Blocks that were given out and of which no record tells yet.
    pub(crate) const fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// Blocks by which the disk grows at least.
    pub(crate) const fn growth(&self) -> u64 {
        self.growth
    }

    /// Blocks that are not busy.
    pub(crate) const fn free(&self) -> u64 {
        let capacity = if self.is_stuck {
            self.open_grown()
        } else {
            self.capacity()
        };
        capacity.saturating_sub(self.committed + self.unrecorded + self.held_blocks)
    }

    /// How large the disk is to be for so many blocks that are not busy, if it is smaller.
    pub(crate) fn growth_for(&self, free: u64) -> Option<u64> {
        let busy = self.committed + self.unrecorded + self.held_blocks;
        let missing = (busy + free).saturating_sub(self.open_grown());
        let target = self.grown_by(missing.max(self.growth))?;
        (missing > 0).then_some(target)
    }

    /// How long the disk is to be to have so many more blocks to give out, or as many as it
    /// can; `None` if it can have no more.
    fn grown_by(&self, blocks: u64) -> Option<u64> {
        let wanted = self.length_with(self.open_grown() + blocks);
        (self.open_grown() < self.capacity()).then(|| wanted.min(self.capacity))
    }

    pub(crate) fn set_grown(&mut self, blocks: u64) {
        if blocks > self.grown {
            // A group that was cut off by the old end has room now.
            let last = group_of(self.grown);
            self.grown = blocks;
            self.count_closed();
            if let Some(group) = self.groups.get_mut(&last) {
                group.longest_bound = GROUP_BLOCKS;
            }
        }
    }

    /// The disk grows, as far as is known.
    pub(crate) const fn may_grow(&mut self) {
        self.is_stuck = false;
    }

    pub(crate) const fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// The disk refused to grow: what it has is all there is.
    pub(crate) const fn cannot_grow(&mut self) {
        self.is_stuck = true;
    }

    /// Gives out `blocks`, in one stretch if there is one.
    pub(crate) fn allocate(&mut self, blocks: u64) -> Result<Vec<DiskRange>, AllocationError> {
        if self.free() < blocks {
            return Err(AllocationError::Full);
        }
        if let Some(range) = self.find_stretch(blocks)? {
            self.take(range);
            return Ok(vec![range]);
        }
        match self.next_size(blocks) {
            Some(target) => Err(AllocationError::Grow(target)),
            None => self.gather(blocks),
        }
    }

    /// How large the disk is to be for a stretch of so many blocks, if it can grow.
    pub(crate) fn next_size(&self, blocks: u64) -> Option<u64> {
        let target = self.grown_by(self.growth.max(blocks))?;
        (!self.is_stuck).then_some(target)
    }

    /// A record gives blocks to a run. They were allocated, or it is replayed.
    pub(crate) fn commit(&mut self, range: DiskRange, was_allocated: bool) {
        if was_allocated {
            self.unrecorded -= range.blocks;
        }
        self.committed += range.blocks;
        self.change(SpaceDelta {
            range,
            is_taken: true,
        });
    }

    /// A record takes blocks from a run; they stay busy until they are
    /// [released](Self::release).
    pub(crate) fn free_range(&mut self, range: DiskRange, position: Position) {
        self.committed = self.committed.saturating_sub(range.blocks);
        self.held_blocks += range.blocks;
        self.held.push(Held { range, position });
        self.change(SpaceDelta {
            range,
            is_taken: false,
        });
    }

    /// Blocks that were allocated and never recorded.
    pub(crate) fn give_back(&mut self, range: DiskRange, position: Position) {
        self.unrecorded -= range.blocks;
        self.held_blocks += range.blocks;
        self.held.push(Held { range, position });
    }

    /// Blocks that were given out and not written to.
    pub(crate) fn untake(&mut self, range: DiskRange) {
        self.unrecorded -= range.blocks;
        self.mark_busy(range, false);
    }

    /// Gives out again what was freed by durable records and `is_unused`.
    pub(crate) fn release(
        &mut self,
        durable: Position,
        is_unused: impl Fn(DiskRange) -> bool,
    ) -> Vec<DiskRange> {
        let mut released = Vec::new();
        let mut index = 0;
        while index < self.held.len() {
            let held = self.held[index];
            if held.position <= durable && is_unused(held.range) {
                self.held.swap_remove(index);
                self.held_blocks -= held.range.blocks;
                released.push(held.range);
            } else {
                index += 1;
            }
        }
        for range in &released {
            self.mark_busy(*range, false);
        }
        released
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// What the index has to be told.
    pub(crate) fn take_deltas(&mut self) -> Vec<SpaceDelta> {
        self.collected = std::mem::take(&mut self.deltas);
        self.collected.clone()
    }

    /// The batch with what was taken went to the index: a load that is asked
    /// for from now on sees it.
    pub(crate) fn deltas_sent(&mut self) {
        self.collected.clear();
    }

    pub(crate) const fn deltas(&self) -> usize {
        self.deltas.len()
    }

    /// A load of the group was sent to the index. False: it is under way or here.
    pub(crate) fn begin_loading(&mut self, group: u32) -> bool {
        if self.groups.contains_key(&group) || self.loading.contains_key(&group) {
            return false;
        }
        let mut unsent = parts(&self.collected, group);
        unsent.extend(parts(&self.deltas, group));
        self.loading.insert(group, unsent);
        true
    }

    /// The index gave the group's bitmap.
    pub(crate) fn loaded(&mut self, group: u32, bitmap: &[u8]) {
        let Some(later) = self.loading.remove(&group) else {
            return;
        };
        let mut committed = Box::new(Bitmap::from_bytes(bitmap));
        for delta in later {
            committed.set(delta.range, delta.is_taken);
        }
        let mut busy = committed.clone();
        for held in &self.held {
            if let Some(range) = within(held.range, group) {
                busy.set(range, true);
            }
        }
        let free = GROUP_BLOCKS - busy.ones();
        let mut loaded = Group {
            committed,
            busy,
            free,
            longest_bound: free,
        };
        self.close_in(group, &mut loaded);
        self.groups.insert(group, loaded);
    }

    fn change(&mut self, delta: SpaceDelta) {
        for group in groups_of(delta.range) {
            let Some(range) = within(delta.range, group) else {
                continue;
            };
            let blocks = i64::try_from(range.blocks).unwrap_or(0);
            #[expect(clippy::cast_possible_wrap, reason = "a constant")]
            let count = self.counts.entry(group).or_insert(GROUP_BLOCKS as i64);
            *count += if delta.is_taken { -blocks } else { blocks };
            if let Some(later) = self.loading.get_mut(&group) {
                later.push(SpaceDelta { range, ..delta });
            }
            if let Some(loaded) = self.groups.get_mut(&group) {
                loaded.committed.set(range, delta.is_taken);
            }
        }
        if delta.is_taken {
            self.mark_busy(delta.range, true);
        }
        self.deltas.push(delta);
    }

    fn take(&mut self, range: DiskRange) {
        self.take_at(range);
        self.cursor = range.end();
    }

    fn mark_busy(&mut self, range: DiskRange, is_busy: bool) {
        for number in groups_of(range) {
            let Some(group) = self.groups.get_mut(&number) else {
                continue;
            };
            if let Some(part) = within(range, number) {
                let changed = group.busy.set(part, is_busy);
                group.free = match is_busy {
                    true => group.free - changed,
                    false => group.free + changed,
                };
                if !is_busy {
                    for closed in self.closed.parts(part) {
                        group.free -= group.busy.set(closed, true);
                    }
                    group.longest_bound = GROUP_BLOCKS;
                }
            }
        }
    }

    /// Next fit: from the cursor on, group by group, around once.
    fn find_stretch(&mut self, blocks: u64) -> Result<Option<DiskRange>, AllocationError> {
        let groups = self.disk_groups();
        if groups == 0 {
            return Ok(None);
        }
        let first = group_of(self.cursor) % groups;
        for step in 0..=groups {
            let number = (first + step) % groups;
            if !self.may_have(number, blocks) {
                continue;
            }
            let grown = self.grown;
            let Some(group) = self.groups.get_mut(&number) else {
                return Err(AllocationError::Load(number));
            };
            let base = u64::from(number) * GROUP_BLOCKS;
            let start = match step {
                0 => self.cursor.saturating_sub(base).min(GROUP_BLOCKS),
                _ => 0,
            };
            let end = GROUP_BLOCKS.min(grown - base);
            if let Some(at) = group.busy.find_zeros(start, end, blocks) {
                let block = base + at;
                return Ok(Some(DiskRange { block, blocks }));
            }
            if start == 0 {
                group.longest_bound = group.longest_bound.min(blocks - 1);
            }
        }
        Ok(None)
    }

    fn may_have(&self, number: u32, blocks: u64) -> bool {
        match self.groups.get(&number) {
            Some(group) => group.free >= blocks && group.longest_bound >= blocks,
            None => self
                .counts
                .get(&number)
                .is_none_or(|free| *free >= i64::try_from(blocks).unwrap_or(i64::MAX)),
        }
    }

    /// The disk is full grown and has no long stretch: takes what there is.
    fn gather(&mut self, blocks: u64) -> Result<Vec<DiskRange>, AllocationError> {
        let mut found = Vec::new();
        let mut missing = blocks;
        for number in 0..self.disk_groups() {
            if missing == 0 {
                break;
            }
            if !self.may_have(number, 1) {
                continue;
            }
            let Some(group) = self.groups.get(&number) else {
                return Err(AllocationError::Load(number));
            };
            let base = u64::from(number) * GROUP_BLOCKS;
            let end = GROUP_BLOCKS.min(self.grown - base);
            for (from, to) in group.busy.zero_stretches(end) {
                let taken = (to - from).min(missing);
                found.push(DiskRange {
                    block: base + from,
                    blocks: taken,
                });
                missing -= taken;
                if missing == 0 {
                    break;
                }
            }
        }
        if missing > 0 {
            return Err(AllocationError::Full);
        }
        for range in &found {
            self.take(*range);
        }
        Ok(found)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a disk has less than 2^47 blocks"
)]
const fn group_of(block: u64) -> u32 {
    (block / GROUP_BLOCKS) as u32
}

pub(crate) fn groups_of(range: DiskRange) -> std::ops::RangeInclusive<u32> {
    group_of(range.block)..=group_of(range.end().saturating_sub(1))
}

/// The part of `range` in the group.
pub(crate) fn within(range: DiskRange, group: u32) -> Option<DiskRange> {
    let base = u64::from(group) * GROUP_BLOCKS;
    let block = range.block.max(base);
    let end = range.end().min(base + GROUP_BLOCKS);
    // What lies behind or before the group ends before it begins.
    (block < end).then(|| DiskRange {
        block,
        blocks: end - block,
    })
}

fn parts(deltas: &[SpaceDelta], group: u32) -> Vec<SpaceDelta> {
    deltas
        .iter()
        .filter_map(|delta| {
            let range = within(delta.range, group)?;
            Some(SpaceDelta { range, ..*delta })
        })
        .collect()
}

/// A bit per block of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap([u64; BITMAP_BYTES / 8]);

impl Bitmap {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; BITMAP_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Sets the bits of blocks that lie in one group; how many were not so before.
    pub(crate) fn set(&mut self, range: DiskRange, value: bool) -> u64 {
        let mut changed = 0;
        let mut at = range.block % GROUP_BLOCKS;
        let end = at + range.blocks;
        while at < end {
            let bit = at % 64;
            let bits = (end - at).min(64 - bit);
            let mask = (u64::MAX >> (64 - bits)) << bit;
            let word = &mut self.0[index(at)];
            let before = *word;
            *word = if value { before | mask } else { before & !mask };
            changed += u64::from((before ^ *word).count_ones());
            at += bits;
        }
        changed
    }

    pub(crate) fn get(&self, at: u64) -> bool {
        self.0[index(at)] >> (at % 64) & 1 == 1
    }

    pub(crate) fn ones(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many bits of a range that lies in one group are ones.
    fn count(&self, range: DiskRange) -> u64 {
        let begin = range.block % GROUP_BLOCKS;
        let end = begin + range.blocks;
        let (mut ones, mut at) = (0, begin);
        while at < end {
            let from = self.next(at, end, true);
            at = self.next(from, end, false);
            ones += at - from;
        }
        ones
    }

    /// The first of `blocks` zeros in `start..end`.
    fn find_zeros(&self, start: u64, end: u64, blocks: u64) -> Option<u64> {
        let mut at = start;
        while at + blocks <= end {
            let from = self.next(at, end, false);
            if from + blocks > end {
                return None;
            }
            let to = self.next(from, from + blocks, true);
            if to == from + blocks {
                return Some(from);
            }
            at = to;
        }
        None
    }

    fn zero_stretches(&self, end: u64) -> Vec<(u64, u64)> {
        let mut stretches = Vec::new();
        let mut at = 0;
        while at < end {
            let from = self.next(at, end, false);
            if from == end {
                break;
            }
            at = self.next(from, end, true);
            stretches.push((from, at));
        }
        stretches
    }

    /// The first bit in `at..end` that is `value`, else `end`.
    fn next(&self, mut at: u64, end: u64, value: bool) -> u64 {
        while at < end {
            let word = self.0[index(at)];
            let wanted = if value { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return (at + u64::from(wanted.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }
}

const fn index(at: u64) -> usize {
    (at / 64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DURABLE: Position = Position(1);

    fn loaded(capacity: u64) -> Space {
        let mut space = Space::new(capacity, capacity);
        assert_eq!(space.allocate(1), Err(AllocationError::Grow(capacity)));
        space.set_grown(capacity);
        for group in 0..=group_of(capacity - 1) {
            assert!(space.begin_loading(group));
            space.loaded(group, &[]);
        }
        space
    }

    /// Goal: a freed block is given out again only when the record that frees
    /// it is durable and nobody reads it.
    #[test]
    fn freed_blocks_wait_for_their_record() {
        let mut space = loaded(4);
        let all = space.allocate(4).expect("room");
        space.commit(all[0], true);
        let freed = DiskRange {
            block: 2,
            blocks: 1,
        };
        space.free_range(freed, Position(2));
        assert_eq!(space.allocate(1), Err(AllocationError::Full));
        assert_eq!(space.release(DURABLE, |_| true), []);
        assert_eq!(space.release(Position(2), |_| false), []);
        assert_eq!(space.release(Position(2), |_| true), [freed]);
        assert_eq!(space.allocate(1), Ok(vec![freed]));
    }

    /// Goal: of a range that begins behind a group, or ends before it, the group
    /// has nothing; of one that reaches over its end it has the part.
    #[test]
    fn a_range_is_within_the_groups_that_it_touches() {
        let range = |block, blocks| DiskRange { block, blocks };
        let over = range(2 * GROUP_BLOCKS - 1, 2);
        assert_eq!(within(over, 0), None);
        assert_eq!(within(over, 1), Some(range(2 * GROUP_BLOCKS - 1, 1)));
        assert_eq!(within(over, 2), Some(range(2 * GROUP_BLOCKS, 1)));
        assert_eq!(within(over, 3), None);
    }

    /// Goal: what changes while a group is being loaded is not lost.
    #[test]
    fn changes_meet_the_loaded_group() {
        let mut space = Space::new(100, 100);
        space.set_grown(100);
        let taken = DiskRange {
            block: 3,
            blocks: 2,
        };
        space.commit(taken, false);
        assert_eq!(space.allocate(1), Err(AllocationError::Load(0)));
        assert!(space.begin_loading(0));
        space.free_range(
            DiskRange {
                block: 4,
                blocks: 1,
            },
            DURABLE,
        );
        space.loaded(0, &[0b1]);
        let found = space.allocate(96).map(|found| found.len());
        assert_eq!(
            found,
            Ok(2),
            "blocks 1, 2 and 5 to 99: block 0 and 3 are taken, 4 is held"
        );
    }

    proptest! {
        /// Goal: no block is given out twice, and sums are right.
        #[test]
        fn no_block_has_two_owners(steps in prop::collection::vec((1u64..300, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let capacity = GROUP_BLOCKS + 500;
            let mut space = loaded(capacity);
            let mut taken = vec![false; usize::try_from(capacity).expect("small")];
            let mut ranges: Vec<DiskRange> = Vec::new();
            for (blocks, frees, which) in steps {
                if frees && !ranges.is_empty() {
                    let range = ranges.swap_remove(which.index(ranges.len()));
                    space.free_range(range, DURABLE);
                    space.release(DURABLE, |_| true);
                    for block in range.block..range.end() {
                        taken[usize::try_from(block).expect("small")] = false;
                    }
                } else if let Ok(found) = space.allocate(blocks * 20) {
                    for range in found {
                        for block in range.block..range.end() {
                            let taken = &mut taken[usize::try_from(block).expect("small")];
                            prop_assert!(!*taken);
                            *taken = true;
                        }
                        space.commit(range, true);
                        ranges.push(range);
                    }
                }
                let free = taken.iter().filter(|taken| !**taken).count() as u64;
                prop_assert_eq!(space.free(), free);
            }
        }
    }
}
