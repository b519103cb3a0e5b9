//! Blocks that are to hold nothing: what lies below them is to go, or has gone. They are
//! never given out, and count as no room; what is there yet is moved away
//! ([`crate::mover`]).

use super::{AllocationError, GROUP_BLOCKS, Group, Space, groups_of, within};
use crate::interface::ClosedBlocks;
use crate::runs::DiskRange;

/// All of them; they do not overlap.
#[derive(Debug, Default)]
pub(super) struct Closed(Vec<ClosedBlocks>);

impl ClosedBlocks {
    /// How many of them lie before a block.
    fn below(&self, block: u64) -> u64 {
        let Some(within) = block.checked_sub(self.first) else {
            return 0;
        };
        let row = within / self.row_blocks;
        match row < self.rows {
            true => row * self.blocks + (within % self.row_blocks).min(self.blocks),
            false => self.rows * self.blocks,
        }
    }

    /// Whether a block is one of them, and up to where its neighbours are the same at least.
    fn at(&self, block: u64) -> (bool, u64) {
        let Some(within) = block.checked_sub(self.first) else {
            return (false, self.first);
        };
        let row = within / self.row_blocks;
        if row >= self.rows {
            return (false, u64::MAX);
        }
        let begin = self.first + row * self.row_blocks;
        match within % self.row_blocks < self.blocks {
            true => (true, begin + self.blocks),
            false if row + 1 < self.rows => (false, begin + self.row_blocks),
            false => (false, u64::MAX),
        }
    }
}

impl Closed {
    fn below(&self, block: u64) -> u64 {
        self.0.iter().map(|zone| zone.below(block)).sum()
    }

    /// The beginning of a range that is closed, or open, as a whole.
    fn first_part(&self, range: DiskRange) -> (bool, u64) {
        let mut end = range.end();
        for zone in &self.0 {
            let (is_closed, until) = zone.at(range.block);
            end = end.min(until);
            if is_closed {
                return (true, end - range.block);
            }
        }
        (false, end - range.block)
    }

    /// The parts of a range that are closed.
    pub(super) fn parts(&self, range: DiskRange) -> impl Iterator<Item = DiskRange> {
        let mut rest = if self.0.is_empty() {
            DiskRange { blocks: 0, ..range }
        } else {
            range
        };
        std::iter::from_fn(move || {
            while rest.blocks > 0 {
                let (is_closed, blocks) = self.first_part(rest);
                let part = DiskRange { blocks, ..rest };
                rest = DiskRange {
                    block: part.end(),
                    blocks: rest.blocks - blocks,
                };
                if is_closed {
                    return Some(part);
                }
            }
            None
        })
    }
}

impl Space {
    /// How long the disk can become, and which of its blocks are to hold nothing. `in_use`
    /// is what was given out and is not recorded yet.
    pub(crate) fn set_room(
        &mut self,
        capacity: u64,
        closed: Vec<ClosedBlocks>,
        in_use: &[DiskRange],
    ) {
        self.capacity = capacity.max(self.grown);
        self.closed = Closed(closed);
        self.count_closed();
        let held = self.held.iter().map(|held| held.range);
        let busy: Vec<DiskRange> = held.chain(in_use.iter().copied()).collect();
        for (&number, group) in &mut self.groups {
            group.busy = group.committed.clone();
            let busy = busy.iter().copied();
            for part in busy.filter_map(|range| within(range, number)) {
                group.busy.set(part, true);
            }
            for part in self.closed.parts(whole(number)) {
                group.busy.set(part, true);
            }
            group.free = GROUP_BLOCKS - group.busy.ones();
            group.longest_bound = group.free;
        }
    }

    pub(super) fn count_closed(&mut self) {
        self.closed_blocks = self.closed.below(self.capacity);
        self.closed_grown = self.closed.below(self.grown);
    }

    /// A group as it was loaded gets its closed blocks.
    pub(super) fn close_in(&self, number: u32, group: &mut Group) {
        for part in self.closed.parts(whole(number)) {
            group.free -= group.busy.set(part, true);
        }
    }

    /// How long the disk has to be to have so many blocks that are not closed.
    pub(super) fn length_with(&self, open: u64) -> u64 {
        let (mut low, mut high) = (open, self.capacity.max(open));
        while low < high && self.closed_blocks > 0 {
            let middle = low.midpoint(high);
            match middle - self.closed.below(middle) >= open {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// Blocks of the disk, as long as it is, that are not closed.
    pub(super) const fn open_grown(&self) -> u64 {
        self.grown - self.closed_grown
    }

    /// Whether the beginning of a range is closed, and how much of it is the same.
    pub(crate) fn first_part(&self, range: DiskRange) -> (bool, u64) {
        self.closed.first_part(range)
    }

    /// Blocks of a range that are closed.
    pub(crate) fn closed_in(&self, range: DiskRange) -> u64 {
        self.closed.parts(range).map(|part| part.blocks).sum()
    }

    /// Closed blocks that hold something, or may be read or written yet; without those that
    /// were given out and are not recorded.
    ///
    /// # Errors
    /// [`AllocationError::Load`].
    pub(crate) fn closed_left(&self) -> Result<u64, AllocationError> {
        let mut left: u64 = self
            .held
            .iter()
            .map(|held| self.closed_in(held.range))
            .sum();
        if self.closed_grown == 0 || self.grown == 0 {
            return Ok(left);
        }
        let all = DiskRange {
            block: 0,
            blocks: self.grown,
        };
        for number in groups_of(all) {
            if self.closed_in(whole(number)) == 0 || self.holds_nothing(number) {
                continue;
            }
            let Some(group) = self.groups.get(&number) else {
                return Err(AllocationError::Load(number));
            };
            let parts = self.closed.parts(whole(number));
            left += parts.map(|part| group.committed.count(part)).sum::<u64>();
        }
        Ok(left)
    }

    /// Whether nothing of a group is committed.
    fn holds_nothing(&self, number: u32) -> bool {
        let all = i64::try_from(GROUP_BLOCKS).unwrap_or(i64::MAX);
        self.counts.get(&number).is_none_or(|free| *free >= all)
    }
}

/// All blocks of a group.
fn whole(number: u32) -> DiskRange {
    DiskRange {
        block: u64::from(number) * GROUP_BLOCKS,
        blocks: GROUP_BLOCKS,
    }
}

#[cfg(test)]
mod tests {
    use crossdock_log::Position;

    use super::*;

    const fn range(block: u64, blocks: u64) -> DiskRange {
        DiskRange { block, blocks }
    }

    /// Of each of 5 rows of 10 blocks from block 20 on, the first 3.
    const STRIPED: ClosedBlocks = ClosedBlocks {
        first: 20,
        blocks: 3,
        row_blocks: 10,
        rows: 5,
    };

    fn loaded(capacity: u64) -> Space {
        let mut space = Space::new(capacity, 1);
        space.set_grown(capacity);
        assert!(space.begin_loading(0));
        space.loaded(0, &[]);
        space
    }

    /// Goal: which blocks are closed, counted and cut as a look at each of them would.
    #[test]
    fn closed_blocks_are_counted_and_cut() {
        let wide = ClosedBlocks {
            first: 90,
            blocks: 7,
            row_blocks: 7,
            rows: 2,
        };
        let closed = Closed(vec![STRIPED, wide]);
        let is_closed = |block: u64| {
            let striped = (20..70).contains(&block) && (block - 20) % 10 < 3;
            striped || (90..104).contains(&block)
        };
        for block in 0..130 {
            let below = (0..block).filter(|&block| is_closed(block)).count() as u64;
            assert_eq!(closed.below(block), below, "{block}");
            let (found, blocks) = closed.first_part(range(block, 40));
            assert_eq!(found, is_closed(block), "{block}");
            let mut part = block..block + blocks;
            assert!(blocks > 0 && part.all(|block| is_closed(block) == found));
            let parts: u64 = closed.parts(range(block, 40)).map(|part| part.blocks).sum();
            assert_eq!(parts, closed.below(block + 40) - closed.below(block));
        }
    }

    /// Goal: closed blocks are no room and are not given out, also when they are freed; open
    /// again they are.
    #[test]
    fn closed_blocks_are_not_given_out() {
        let mut space = loaded(100);
        let taken = range(0, 50);
        assert_eq!(space.allocate(50), Ok(vec![taken]));
        space.commit(taken, true);
        let in_use = space.allocate(2).expect("room");
        assert_eq!(in_use, [range(50, 2)]);
        space.set_room(100, vec![STRIPED], &in_use);
        assert_eq!((space.capacity(), space.free()), (85, 33));
        // Of rows 20, 30 and 40; those at 50 are on their way.
        assert_eq!(space.closed_left(), Ok(9));
        space.free_range(taken, Position(1));
        assert_eq!(space.closed_left(), Ok(9), "held");
        space.release(Position(1), |_| true);
        assert_eq!(space.closed_left(), Ok(0));
        assert_eq!(space.is_free(range(20, 1)), Ok(false));
        assert_eq!(space.is_free(range(23, 7)), Ok(true));
        assert_eq!(space.free(), 83);
        let all = space.allocate(83).expect("all of it");
        assert!(
            all.iter().all(|part| space.closed_in(*part) == 0),
            "{all:?}"
        );
        assert_eq!(space.allocate(1), Err(AllocationError::Full));
        let given: Vec<DiskRange> = all.into_iter().chain(in_use).collect();
        space.set_room(100, Vec::new(), &given);
        assert_eq!(space.free(), 15);
        assert_eq!(space.allocate(16), Err(AllocationError::Full));
        let all = space.allocate(15).expect("the others");
        assert_eq!(all.iter().map(|part| part.blocks).sum::<u64>(), 15);
    }

    /// Goal: a disk that grows grows by what can be given out.
    #[test]
    fn growth_is_of_open_blocks() {
        let mut space = Space::new(100, 256);
        space.growth = 10;
        let closed = ClosedBlocks {
            first: 10,
            blocks: 80,
            row_blocks: 80,
            rows: 1,
        };
        space.set_room(100, vec![closed], &[]);
        assert_eq!(space.next_size(1), Some(10));
        space.set_grown(10);
        assert_eq!(space.next_size(1), Some(100));
        assert_eq!(space.growth_for(5), None);
        assert_eq!(space.growth_for(15), Some(100));
        space.set_room(90, vec![closed], &[]);
        assert_eq!(space.next_size(1), None, "nothing but closed blocks");
        assert_eq!(space.growth_for(15), None);
    }
}
