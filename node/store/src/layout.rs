//! The figures of fragmentation: how objects lie on the disk, and in how many pieces the
//! free space is.

use std::time::Duration;

use crossdock_types::BLOCK_BYTES;

use crate::runs::DiskRange;

/// How objects lie on a disk, as it shows when each is read from its first byte to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Objects that have blocks on the disk.
    pub objects: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Stretches of contiguous blocks that these lie in. At best each object is one.
    pub runs: u64,
    /// How far the arm goes from the ends of runs to the next ones of the same object, in
    /// blocks.
    pub seek_blocks: u64,
}

impl Layout {
    /// What is left out between two runs of an object.
    #[must_use]
    pub const fn jumps(&self) -> u64 {
        self.runs.saturating_sub(self.objects)
    }

    /// What reading all objects from their first bytes to their last reaches of the rate of a
    /// contiguous layout, in percent, on a disk that gives so many bytes per second in
    /// sequence and takes `positioning` for each jump.
    #[must_use]
    pub fn sequential_percent(&self, positioning: Duration, bytes_per_second: u64) -> u64 {
        let bytes = u128::from(self.blocks) * BLOCK_BYTES as u128;
        let reading = bytes * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        let jumping = u128::from(self.jumps()) * positioning.as_nanos();
        let percent = (reading * 100).checked_div(reading + jumping);
        percent.map_or(100, |percent| u64::try_from(percent).unwrap_or(100))
    }

    /// Adds what was seen of other objects, or of other parts of the same; what other hosts say is
    /// not believed to add up.
    pub const fn add(&mut self, other: &Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.runs = self.runs.saturating_add(other.runs);
        self.seek_blocks = self.seek_blocks.saturating_add(other.seek_blocks);
    }
}

/// Measures a [`Layout`], object by object, from blocks in the order of the object.
#[derive(Debug, Default)]
pub(crate) struct LayoutMeter {
    layout: Layout,
    /// Behind the last block of the object, on the disk.
    end: Option<u64>,
}

impl LayoutMeter {
    /// The next blocks are another object's.
    pub(crate) const fn begin_object(&mut self) {
        self.end = None;
    }

    pub(crate) const fn add(&mut self, range: DiskRange) {
        let layout = &mut self.layout;
        match self.end {
            None => {
                layout.objects += 1;
                layout.runs += 1;
            }
            Some(end) if end == range.block => {}
            Some(end) => {
                layout.runs += 1;
                layout.seek_blocks += end.abs_diff(range.block);
            }
        }
        layout.blocks += range.blocks;
        self.end = Some(range.end());
    }

    /// What was measured since this was asked last. The object goes on.
    pub(crate) fn take(&mut self) -> Layout {
        std::mem::take(&mut self.layout)
    }
}

/// The free space within what the disk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free blocks of which it is known where they are.
    pub blocks: u64,
    /// Stretches of contiguous blocks that these are.
    pub runs: u64,
    /// The longest of them, in blocks.
    pub longest_blocks: u64,
    /// Free blocks in parts of the disk whose map is not in memory.
    pub unseen_blocks: u64,
}

impl FreeSpace {
    /// Adds what another disk has.
    pub fn add(&mut self, other: &Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.runs = self.runs.saturating_add(other.runs);
        self.longest_blocks = self.longest_blocks.max(other.longest_blocks);
        self.unseen_blocks = self.unseen_blocks.saturating_add(other.unseen_blocks);
    }
}

/// Measures [`FreeSpace`] from free ranges, the lowest first.
#[derive(Debug, Default)]
pub(crate) struct FreeMeter {
    free: FreeSpace,
    last: Option<DiskRange>,
}

impl FreeMeter {
    pub(crate) fn add(&mut self, range: DiskRange) {
        self.free.blocks += range.blocks;
        match &mut self.last {
            Some(last) if last.end() == range.block => last.blocks += range.blocks,
            last => {
                self.free.runs += 1;
                *last = Some(range);
            }
        }
        let last = self.last.map_or(0, |last| last.blocks);
        self.free.longest_blocks = self.free.longest_blocks.max(last);
    }

    pub(crate) const fn add_unseen(&mut self, blocks: u64) {
        self.free.unseen_blocks += blocks;
    }

    pub(crate) const fn measured(self) -> FreeSpace {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(block: u64, blocks: u64) -> DiskRange {
        DiskRange { block, blocks }
    }

    /// Goal: what goes on where the last one ended is no other run; what lies elsewhere is
    /// one, and as far away as it is, in either direction; objects are apart.
    #[test]
    fn runs_and_distances_are_those_of_reading_in_order() {
        let mut meter = LayoutMeter::default();
        for part in [range(100, 10), range(110, 5), range(200, 5), range(50, 1)] {
            meter.add(part);
        }
        meter.begin_object();
        meter.add(range(51, 4));
        let first = meter.take();
        let expected = Layout {
            objects: 2,
            blocks: 25,
            runs: 4,
            seek_blocks: (200 - 115) + (205 - 50),
        };
        assert_eq!(first, expected);
        assert_eq!(first.jumps(), 2);
        // The object goes on.
        meter.add(range(55, 1));
        let mut sum = meter.take();
        assert_eq!((sum.objects, sum.runs, sum.blocks), (0, 0, 1));
        sum.add(&first);
        assert_eq!((sum.objects, sum.runs, sum.blocks), (2, 4, 26));
    }

    /// Goal: a jump costs what it takes, beside what reading takes; a layout without any,
    /// or without blocks, is as good as can be.
    #[test]
    fn jumps_cost_their_time() {
        let positioning = Duration::from_millis(8);
        let percent = |blocks, runs| {
            let layout = Layout {
                objects: 1,
                blocks,
                runs,
                seek_blocks: 0,
            };
            layout.sequential_percent(positioning, 60_000_000)
        };
        // 64 KiB take 1.09 ms.
        assert_eq!(percent(16 * 1000, 1000), 12);
        // 16 MiB take 280 ms.
        assert_eq!(percent(4096 * 1000, 1000), 97);
        assert_eq!(percent(16, 1), 100);
        assert_eq!(
            Layout::default().sequential_percent(positioning, 60_000_000),
            100
        );
    }

    /// Goal: free ranges that meet are one; the longest is told.
    #[test]
    fn free_ranges_that_meet_are_one() {
        let mut meter = FreeMeter::default();
        for part in [range(0, 3), range(3, 4), range(10, 5), range(20, 6)] {
            meter.add(part);
        }
        meter.add_unseen(9);
        let expected = FreeSpace {
            blocks: 18,
            runs: 3,
            longest_blocks: 7,
            unseen_blocks: 9,
        };
        assert_eq!(meter.measured(), expected);
    }
}
