//! GET LBA STATUS: what the volume tells of bytes, as blocks of a unit.

use std::ops::Range;

use crossdock_peer::MappedRanges;
use crossdock_scsi::{LbaStatus, Provisioning};

/// What is told of the blocks of a range, as far as it is known: at least of the first one.
/// A block of which a part has space has some.
pub(crate) fn statuses(
    mapped: &MappedRanges,
    range: Range<u64>,
    block_bytes: u64,
) -> Vec<LbaStatus> {
    let run = |from: u64, to: u64, provisioning| LbaStatus {
        lba: from / block_bytes,
        blocks: u32::try_from((to - from) / block_bytes).unwrap_or(u32::MAX),
        provisioning,
    };
    let mut runs = Vec::new();
    let mut at = range.start;
    for has_space in &mapped.runs {
        let from = (has_space.start - has_space.start % block_bytes).max(at);
        let to = has_space.end.next_multiple_of(block_bytes);
        if at < from {
            runs.push(run(at, from, Provisioning::Deallocated));
        }
        if from < to {
            runs.push(run(from, to, Provisioning::Mapped));
            at = to;
        }
    }
    let end = mapped.end_bytes.min(range.end);
    let end = end - end % block_bytes;
    if at < end {
        runs.push(run(at, end, Provisioning::Deallocated));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: runs and holes are told block by block, one behind the other, and nothing beyond
    /// what is known.
    #[test]
    fn blocks_are_told_as_they_lie() {
        let mapped = MappedRanges {
            runs: vec![4096..8192, 10_000..10_100, 12_288..12_800],
            end_bytes: 16_384,
        };
        let told = |range, block_bytes| -> Vec<(u64, u32, u8)> {
            let runs = statuses(&mapped, range, block_bytes);
            let tell = |run: &LbaStatus| (run.lba, run.blocks, run.provisioning as u8);
            runs.iter().map(tell).collect()
        };
        assert_eq!(
            told(0..20_480, 512),
            [
                (0, 8, 1),
                (8, 8, 0),
                (16, 3, 1),
                (19, 1, 0),
                (20, 4, 1),
                (24, 1, 0),
                (25, 7, 1)
            ]
        );
        assert_eq!(told(8192..16_384, 4096), [(2, 1, 0), (3, 1, 0)]);
    }
}
