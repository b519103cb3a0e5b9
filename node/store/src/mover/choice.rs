//! What is to be done with a stretch of an object: the mover's decisions.

use super::Stretch;
use crate::runs::DiskRange;
use crate::space::{AllocationError, GROUP_BLOCKS};
use crate::store::Store;
use crate::waiting::Hold;

/// A run of so many blocks is worth the seek to it, wherever it lies: 16 MiB, of which a
/// seek is a few percent on any disk.
pub(super) const LONG_BLOCKS: u64 = 4096;

/// A run of fewer blocks is copied once more rather than left apart from what comes behind
/// it: 4 MiB.
const SHORT_BLOCKS: u64 = 1024;

/// Where in an object the mover is, and how what lies before that lies.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Of the object, the next one to be looked at.
    pub(super) next_block: u64,
    /// All before it was measured.
    pub(super) measured_to: u64,
    /// First block, in the object, of the run that ends at `end`.
    run_first: u64,
    run_blocks: u64,
    /// The run cannot be moved now.
    is_fixed: bool,
    /// Behind the last block, on the disk; `None` before the first one.
    end: Option<u64>,
}

impl Place {
    /// The stretch stays where it is; because it must, if `is_fixed`.
    pub(super) fn leave(&mut self, stretch: &Stretch, is_fixed: bool) {
        self.go_on(stretch.first, stretch.disk);
        self.is_fixed |= is_fixed;
        self.next_block = stretch.end;
    }

    /// Blocks from `first` on lie there, or will.
    pub(super) fn go_on(&mut self, first: u64, disk: DiskRange) {
        if self.end != Some(disk.block) {
            self.run_first = first;
            self.run_blocks = 0;
            self.is_fixed = false;
        }
        self.run_blocks += disk.blocks;
        self.end = Some(disk.end());
    }

    /// What comes goes to `at`, and the run before the stretch, too, if `is_back`.
    pub(super) const fn turn(&mut self, at: DiskRange, stretch: &Stretch, is_back: bool) {
        if !is_back {
            self.run_first = stretch.first;
        }
        self.next_block = self.run_first;
        self.run_blocks = 0;
        self.is_fixed = false;
        self.end = Some(at.block);
    }

    /// The place behind what lies before.
    pub(super) const fn end(&self) -> Option<u64> {
        self.end
    }

    /// Blocks of the run before that would have to be moved along.
    const fn back_blocks(&self) -> u64 {
        match self.is_fixed || self.run_blocks >= SHORT_BLOCKS {
            true => 0,
            false => self.run_blocks,
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nothing: it is well where it is, or nothing is better.
    Leave,
    /// It goes to behind what lies before it.
    Follow,
    /// It goes where more has its place, with the run before it if `is_back`.
    Anew { at: DiskRange, is_back: bool },
}

impl Store {
    /// What is best for a stretch, behind which comes one of `next` blocks, in an object
    /// that ends at `mapped_end`.
    ///
    /// Whatever is moved makes one run of at least two, so that no pass undoes another.
    pub(super) fn choose(
        &mut self,
        stretch: &Stretch,
        next: u64,
        mapped_end: u64,
    ) -> Result<Choice, Hold> {
        let place = &self.mover.place;
        let blocks = stretch.disk.blocks;
        let Some(end) = place.end else {
            return Ok(Choice::Leave);
        };
        if end == stretch.disk.block || blocks >= LONG_BLOCKS {
            return Ok(Choice::Leave);
        }
        let back = place.back_blocks();
        let behind = DiskRange { block: end, blocks };
        if self.space.is_free(behind).map_err(hold)? {
            return Ok(Choice::Follow);
        }
        let next = if next < LONG_BLOCKS { next } else { 0 };
        if back == 0 && next == 0 {
            return Ok(Choice::Leave);
        }
        let needed = back + blocks + next;
        let remaining = back + (mapped_end - stretch.first);
        self.look_for_place(needed, remaining, back > 0)
    }

    /// The lowest place for all that remains; for less, down to what is needed, if there
    /// is none.
    fn look_for_place(
        &mut self,
        needed: u64,
        remaining: u64,
        is_back: bool,
    ) -> Result<Choice, Hold> {
        let mut wanted = remaining.min(GROUP_BLOCKS).max(needed);
        loop {
            if let Some(at) = self.space.find_lowest(wanted).map_err(hold)? {
                return Ok(Choice::Anew { at, is_back });
            }
            // Before it becomes short the disk gets longer, if it can.
            let is_short = wanted == needed || wanted / 2 < LONG_BLOCKS;
            if is_short && let Some(target) = self.space.next_size(wanted) {
                self.grow(target);
                return Err(Hold::Room);
            }
            if wanted == needed {
                return Ok(Choice::Leave);
            }
            wanted = (wanted / 2).max(needed);
        }
    }
}

/// The mover asks for places only, and can wait for their maps.
pub(super) fn hold(error: AllocationError) -> Hold {
    match error {
        AllocationError::Load(group) => Hold::group(group),
        AllocationError::Grow(_) | AllocationError::Full => Hold::Room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn stretch(first: u64, block: u64, blocks: u64) -> Stretch {
        Stretch {
            first,
            end: first + blocks,
            disk: DiskRange { block, blocks },
            solid: blocks,
        }
    }

    /// Goal: only a run that is short and can be moved goes along.
    #[test]
    fn short_runs_go_along() {
        let mut place = Place::default();
        assert_eq!(place.end(), None);
        place.leave(&stretch(0, 100, 10), false);
        place.leave(&stretch(10, 110, 5), false);
        assert_eq!((place.end(), place.next_block), (Some(115), 15));
        assert_eq!(place.back_blocks(), 15);

        let at = DiskRange {
            block: 500,
            blocks: 100,
        };
        place.turn(at, &stretch(15, 300, 5), true);
        assert_eq!((place.end(), place.next_block), (Some(500), 0));
        assert_eq!(place.back_blocks(), 0, "it comes again");

        place.leave(&stretch(0, 100, 15), true);
        assert_eq!(place.back_blocks(), 0, "pinned");
        place.turn(at, &stretch(15, 300, 5), false);
        assert_eq!(place.next_block, 15);
        place.go_on(
            15,
            DiskRange {
                block: 500,
                blocks: SHORT_BLOCKS,
            },
        );
        assert_eq!(place.back_blocks(), 0, "long");
    }
}
