//! Which blocks of the data disk are known to be bad.
//!
//! A block is bad from the read that failed on, until it is read well or its
//! place is given up: by a repair, which puts the block elsewhere, by a newer
//! write, or with its object. Nothing of it is kept over a restart: reads and
//! scrubs find out again.

use std::collections::BTreeSet;

use crate::runs::DiskRange;

/// Blocks that are remembered; a disk with more is beyond counting.
const BLOCKS_MAX: usize = 65_536;

/// See the file's page.
#[derive(Debug, Default)]
pub(crate) struct BadBlocks(BTreeSet<u64>);

impl BadBlocks {
    /// These could not be read.
    pub(crate) fn note(&mut self, range: DiskRange) {
        let room = BLOCKS_MAX.saturating_sub(self.0.len());
        self.0.extend((range.block..range.end()).take(room));
    }

    /// These were read well, or hold nothing any more.
    pub(crate) fn forget(&mut self, range: DiskRange) {
        while let Some(&block) = self.0.range(range.block..range.end()).next() {
            self.0.remove(&block);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
