//! Runs: contiguous blocks on the disk that hold contiguous blocks of an object.
//!
//! The run map of an object is cut into windows of [`WINDOW_BLOCKS`]; a run
//! never crosses a window's edge, so windows are loaded and dropped one by one.
//!
//! A run in the index: key
//!
//! | offset | bytes | name | meaning (big-endian, so that keys sort) |
//! |---|---|---|---|
//! | 0 | 8 | serial | of the object, see [`crate::object::Head`] |
//! | 8 | 8 | first block | of the object, in blocks |
//!
//! and value
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 8 | disk address | set (upper 16 bit), block (lower 48 bit) |
//! | 8 | 8 | version | of the newest write in it |
//! | 16 | 4 | references | how many run maps share it, 1 without clones |
//! | 20 | 4 · n | checksums | CRC32C of each of the n blocks, 1 to 256 |

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::Version;

/// Blocks of an object whose runs are loaded and cached together: 4 MiB.
pub(crate) const WINDOW_BLOCKS: u64 = 1024;

/// Most blocks of a run: bounds what one overwritten block costs in the index.
pub(crate) const RUN_BLOCKS_MAX: u64 = 256;

const RUN_HEADER_BYTES: usize = 20;

/// Key of a run in the index.
pub(crate) type RunKey = [u8; 16];

/// Contiguous blocks on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskRange {
    /// First block.
    pub(crate) block: u64,
    /// How many.
    pub(crate) blocks: u64,
}

impl DiskRange {
    pub(crate) const fn end(self) -> u64 {
        self.block + self.blocks
    }
}

/// A run; where it lies in the object is its key in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its first block on the disk (set 0: striping over sets comes above).
    pub(crate) disk: u64,
    /// Version of the newest write in it.
    pub(crate) version: Version,
    /// How many run maps share it.
    pub(crate) references: u32,
    /// CRC32C of each block.
    pub(crate) checksums: Vec<u32>,
}

impl Run {
    pub(crate) const fn blocks(&self) -> u64 {
        self.checksums.len() as u64
    }

    /// Blocks `from..to`, counted from the run's first.
    #[expect(clippy::cast_possible_truncation, reason = "at most 256 blocks")]
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        Self {
            disk: self.disk + from,
            version: self.version,
            references: self.references,
            checksums: self.checksums[from as usize..to as usize].to_vec(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RUN_HEADER_BYTES + 4 * self.checksums.len());
        bytes.extend_from_slice(&self.disk.to_le_bytes());
        bytes.extend_from_slice(&self.version.0.to_le_bytes());
        bytes.extend_from_slice(&self.references.to_le_bytes());
        for checksum in &self.checksums {
            bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    /// `None` if these are not the bytes of a run.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (disk, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let (references, rest) = rest.split_first_chunk::<4>()?;
        let (checksums, odd) = rest.as_chunks::<4>();
        let blocks = checksums.len() as u64;
        if !odd.is_empty() || blocks == 0 || blocks > RUN_BLOCKS_MAX {
            return None;
        }
        Some(Self {
            disk: u64::from_le_bytes(*disk),
            version: Version(u64::from_le_bytes(*version)),
            references: u32::from_le_bytes(*references),
            checksums: checksums.iter().map(|c| u32::from_le_bytes(*c)).collect(),
        })
    }
}

pub(crate) fn run_key(serial: u64, first_block: u64) -> RunKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&serial.to_be_bytes());
    key[8..].copy_from_slice(&first_block.to_be_bytes());
    key
}

/// Serial and first block of a key.
pub(crate) fn split_run_key(key: &RunKey) -> (u64, u64) {
    let (serial, first) = key.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    (number(serial), number(first))
}

/// The runs of one window of an object, by their first block in the object.
#[derive(Debug, Default)]
pub(crate) struct Window {
    runs: BTreeMap<u64, Run>,
    /// First blocks of runs that the index has to set or delete.
    dirty: BTreeSet<u64>,
    /// Number of the last batch for the index that had changes of this window.
    pub(crate) batch: u64,
    /// When it was last used, for eviction.
    pub(crate) used: u64,
}

impl Window {
    /// What the index knows.
    pub(crate) fn loaded(runs: Vec<(u64, Run)>, used: u64) -> Self {
        Self {
            runs: runs.into_iter().collect(),
            used,
            ..Self::default()
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs.iter().map(|(first, run)| (*first, run))
    }

    /// The run that holds `block`, and its first block.
    pub(crate) fn find(&self, block: u64) -> Option<(u64, &Run)> {
        let (&first, run) = self.runs.range(..=block).next_back()?;
        (block < first + run.blocks()).then_some((first, run))
    }

    /// First block of the next run after `block`.
    pub(crate) fn next_after(&self, block: u64) -> Option<u64> {
        let (&first, _) = self.runs.range(block + 1..).next()?;
        Some(first)
    }

    /// Takes blocks `from..to` out of the map; calls `freed` for what they held.
    pub(crate) fn cut(&mut self, from: u64, to: u64, mut freed: impl FnMut(DiskRange)) {
        let mut at = from;
        while at < to {
            let Some((first, run)) = self.find(at) else {
                match self.next_after(at) {
                    Some(next) => at = next,
                    None => return,
                }
                continue;
            };
            let end = first + run.blocks();
            let cut_end = end.min(to);
            let Some(run) = self.runs.remove(&first) else {
                return;
            };
            self.dirty.insert(first);
            freed(DiskRange {
                block: run.disk + (at - first),
                blocks: cut_end - at,
            });
            if at > first {
                self.runs.insert(first, run.part(0, at - first));
            }
            if cut_end < end {
                self.dirty.insert(cut_end);
                let rest = run.part(cut_end - first, run.blocks());
                self.runs.insert(cut_end, rest);
            }
            at = cut_end;
        }
    }

    /// Puts a run where the map is empty.
    pub(crate) fn insert(&mut self, first: u64, run: Run) {
        self.dirty.insert(first);
        self.runs.insert(first, run);
    }

    /// Gives a block, whose content changes in place, its new checksum.
    /// False if it is not mapped.
    pub(crate) fn set_checksum(&mut self, block: u64, checksum: u32, version: Version) -> bool {
        let Some((first, _)) = self.find(block) else {
            return false;
        };
        let Some(run) = self.runs.get_mut(&first) else {
            return false;
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 256 blocks")]
        let index = (block - first) as usize;
        run.checksums[index] = checksum;
        run.version = run.version.max(version);
        self.dirty.insert(first);
        true
    }

    /// What the index has to do; the window counts as clean from now on.
    pub(crate) fn take_changes(&mut self, mut change: impl FnMut(u64, Option<&Run>)) {
        for first in std::mem::take(&mut self.dirty) {
            change(first, self.runs.get(&first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(disk: u64, blocks: u32) -> Run {
        Run {
            disk,
            version: Version(7),
            references: 1,
            checksums: (0..blocks).collect(),
        }
    }

    /// Goal: a run survives its encoding, and a run of another shape is refused.
    #[test]
    fn runs_come_back_from_their_bytes() {
        let original = run(0x1234_5678, 3);
        let bytes = original.encode();
        assert_eq!(Run::decode(&bytes), Some(original));
        assert_eq!(Run::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Run::decode(&bytes[..RUN_HEADER_BYTES]), None);
        assert_eq!(split_run_key(&run_key(5, 1 << 40)), (5, 1 << 40));
    }

    /// Goal: cutting the middle out of a run frees exactly that and keeps both sides.
    #[test]
    fn a_cut_keeps_what_lies_beside_it() {
        let mut window = Window::loaded(vec![(10, run(100, 10)), (30, run(200, 5))], 0);
        let mut freed = Vec::new();
        window.cut(13, 32, |range| freed.push((range.block, range.blocks)));
        assert_eq!(freed, [(103, 7), (200, 2)]);
        let left: Vec<_> = window
            .runs()
            .map(|(at, r)| (at, r.disk, r.blocks()))
            .collect();
        assert_eq!(left, [(10, 100, 3), (32, 202, 3)]);
        assert_eq!(
            window.find(12).map(|(at, r)| (at, r.checksums[2])),
            Some((10, 2))
        );
        assert_eq!(window.find(32).map(|(_, r)| r.checksums[0]), Some(2));
        let mut changes = Vec::new();
        window.take_changes(|at, run| changes.push((at, run.is_some())));
        assert_eq!(changes, [(10, true), (30, false), (32, true)]);
    }
}
