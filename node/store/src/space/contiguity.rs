//! What the mover asks of the allocator: given places, and the lowest ones.

use super::{AllocationError, GROUP_BLOCKS, Space, group_of, groups_of, within};
use crate::layout::{FreeMeter, FreeSpace};
use crate::runs::DiskRange;

impl Space {
    /// Whether all these blocks are there and may be given out.
    pub(crate) fn is_free(&self, range: DiskRange) -> Result<bool, AllocationError> {
        if range.end() > self.grown {
            return Ok(false);
        }
        for number in groups_of(range) {
            if !self.may_have(number, 1) {
                return Ok(false);
            }
            let Some(group) = self.groups.get(&number) else {
                return Err(AllocationError::Load(number));
            };
            if let Some(part) = within(range, number) {
                let at = part.block % GROUP_BLOCKS;
                let end = at + part.blocks;
                if group.busy.next(at, end, true) < end {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Gives out blocks that [are free](Self::is_free). Where the next ones are looked
    /// for stays as it is.
    pub(crate) fn take_at(&mut self, range: DiskRange) {
        self.unrecorded += range.blocks;
        self.mark_busy(range, true);
    }

    /// The lowest stretch of so many free blocks, which stay free.
    pub(crate) fn find_lowest(
        &mut self,
        blocks: u64,
    ) -> Result<Option<DiskRange>, AllocationError> {
        for number in 0..self.disk_groups() {
            if !self.may_have(number, blocks) {
                continue;
            }
            let grown = self.grown;
            let Some(group) = self.groups.get_mut(&number) else {
                return Err(AllocationError::Load(number));
            };
            let base = u64::from(number) * GROUP_BLOCKS;
            let end = GROUP_BLOCKS.min(grown - base);
            if let Some(at) = group.busy.find_zeros(0, end, blocks) {
                let block = base + at;
                return Ok(Some(DiskRange { block, blocks }));
            }
            group.longest_bound = group.longest_bound.min(blocks - 1);
        }
        Ok(None)
    }

    /// How the free space lies.
    pub(crate) fn free_space(&self) -> FreeSpace {
        let mut meter = FreeMeter::default();
        for number in 0..self.disk_groups() {
            let base = u64::from(number) * GROUP_BLOCKS;
            let end = GROUP_BLOCKS.min(self.grown - base);
            let free = |from: u64, to: u64| DiskRange {
                block: base + from,
                blocks: to - from,
            };
            if let Some(group) = self.groups.get(&number) {
                for (from, to) in group.busy.zero_stretches(end) {
                    meter.add(free(from, to));
                }
                continue;
            }
            match self.counts.get(&number).map(|count| u64::try_from(*count)) {
                None | Some(Ok(GROUP_BLOCKS)) if self.closed_in(free(0, end)) == 0 => {
                    meter.add(free(0, end));
                }
                // What lies behind the end of the disk is counted as free there.
                count => {
                    let count = count.map_or(GROUP_BLOCKS, |count| count.unwrap_or(0));
                    let closed = self.closed_in(free(0, end));
                    meter.add_unseen(count.saturating_sub(GROUP_BLOCKS - end + closed));
                }
            }
        }
        meter.measured()
    }

    /// Groups that the disk has, the last one perhaps in part.
    pub(super) const fn disk_groups(&self) -> u32 {
        group_of(self.grown.div_ceil(GROUP_BLOCKS) * GROUP_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(capacity: u64) -> Space {
        let mut space = Space::new(capacity, capacity);
        space.set_grown(capacity);
        for group in 0..=group_of(capacity - 1) {
            assert!(space.begin_loading(group));
            space.loaded(group, &[]);
        }
        space
    }

    const fn range(block: u64, blocks: u64) -> DiskRange {
        DiskRange { block, blocks }
    }

    /// Goal: a given place is free until it is taken, also over the edge of a group and up
    /// to the end of the disk; others are looked for where they were before.
    #[test]
    fn given_places_are_taken_as_they_are() {
        let capacity = GROUP_BLOCKS + 100;
        let mut space = loaded(capacity);
        let over = range(GROUP_BLOCKS - 10, 20);
        assert_eq!(space.is_free(over), Ok(true));
        space.take_at(over);
        assert_eq!(space.is_free(over), Ok(false));
        assert_eq!(space.is_free(range(GROUP_BLOCKS - 20, 10)), Ok(true));
        assert_eq!(space.is_free(range(GROUP_BLOCKS - 20, 11)), Ok(false));
        assert_eq!(space.is_free(range(capacity - 1, 1)), Ok(true));
        assert_eq!(space.is_free(range(capacity - 1, 2)), Ok(false));
        assert_eq!(space.allocate(5), Ok(vec![range(0, 5)]));
        space.commit(over, true);
        assert_eq!(space.free(), capacity - 25);
    }

    /// Goal: the lowest stretch that is long enough is found, and what was freed counts
    /// only when it may be given out; the figures agree.
    #[test]
    fn the_lowest_stretch_is_found() {
        let mut space = loaded(2 * GROUP_BLOCKS);
        for taken in [range(10, 10), range(25, 75)] {
            space.take_at(taken);
            space.commit(taken, true);
        }
        assert_eq!(space.find_lowest(5), Ok(Some(range(0, 5))));
        assert_eq!(space.find_lowest(11), Ok(Some(range(100, 11))));
        assert_eq!(space.find_lowest(GROUP_BLOCKS + 1), Ok(None));
        let free = space.free_space();
        assert_eq!((free.runs, free.unseen_blocks), (3, 0));
        assert_eq!(free.blocks, 2 * GROUP_BLOCKS - 85);
        assert_eq!(free.longest_blocks, 2 * GROUP_BLOCKS - 100);
        let durable = crossdock_log::Position(1);
        space.free_range(range(10, 10), durable);
        assert_eq!(space.find_lowest(11), Ok(Some(range(100, 11))));
        space.release(durable, |_| true);
        assert_eq!(space.find_lowest(11), Ok(Some(range(0, 11))));
    }

    /// Goal: of what is not in memory it is told how much is free, not how it lies.
    #[test]
    fn groups_that_were_not_loaded_are_not_guessed() {
        let mut space = Space::new(2 * GROUP_BLOCKS, 1);
        space.start(7, GROUP_BLOCKS + 50, vec![(0, 32_761)]);
        assert_eq!(space.is_free(range(3, 1)), Err(AllocationError::Load(0)));
        assert_eq!(space.find_lowest(1), Err(AllocationError::Load(0)));
        let free = space.free_space();
        assert_eq!(free.unseen_blocks, 32_761);
        assert_eq!((free.blocks, free.runs), (50, 1));
    }
}
