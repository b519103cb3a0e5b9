//! What a node has changed, range by range, as it is compared with another node's list.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_types::BLOCK_BYTES;

/// In pieces of how many bytes logs are compared and copied, where nothing else is said.
pub const LOG_PIECE_BYTES: u64 = 256 << 10;

/// Object, offset, length, version. Ranges may overlap: what is told of memory
/// and what is told of the disk need not be cut alike.
pub(crate) type Ranges = BTreeSet<(ObjectId, u64, u64, Version)>;

/// Ranges cut so that what two nodes have in common cancels out, however it was written
/// and wherever it lies in the nodes.
pub(crate) fn recut(ranges: Ranges, piece_bytes: u64) -> Ranges {
    let (small, others): (Ranges, Ranges) =
        ranges.into_iter().partition(|range| is_small(&range.0));
    let mut ranges = recut_logs(others, piece_bytes);
    ranges.extend(visible(&small));
    ranges
}

/// Whether an object has the bytes of small files.
pub(crate) const fn is_small(object: &ObjectId) -> bool {
    matches!(object.class, ObjectClass::SmallFiles)
}

/// Whether anything of bytes `from..to` of a small files' object is in these ranges.
pub(crate) fn is_told(ranges: &Ranges, object: &ObjectId, from: u64, to: u64) -> bool {
    let before = ranges.range(..(*object, to, 0, Version::NONE));
    let last = before.into_iter().next_back();
    last.is_some_and(|last| last.0 == *object && last.1 + last.2 > from)
}

/// Bytes `from..to` of an object as they are copied: whole blocks. A node tells of a block
/// that it has put together from several writes only the newest one: with a part of it the
/// target would tell the same, and have something else. Logs and checkpoints are written
/// once, and compared in pieces of their own.
pub(crate) const fn in_blocks(object: &ObjectId, from: u64, to: u64) -> (u64, u64) {
    let block = BLOCK_BYTES as u64;
    match object.class {
        ObjectClass::SiteLog | ObjectClass::Checkpoint => (from, to),
        ObjectClass::Column | ObjectClass::SmallFiles | ObjectClass::Allocation => {
            (from - from % block, to.next_multiple_of(block))
        }
    }
}

/// Of small files' objects, which are written over all the time, how new each byte is:
/// what has been written over, and is still somewhere, does not count, nor does in how many
/// parts something lies on the disk. The ranges do not overlap.
///
/// Space that went back to the node counts for the whole object there; nothing is in it,
/// so it is left out. Nothing else begins at 0 and is longer than a write.
fn visible(small: &Ranges) -> Ranges {
    let is_hole = |range: &&(ObjectId, u64, u64, Version)| {
        range.1 == 0 && range.2 > OBJECT_IO_BYTES_MAX as u64
    };
    let mut ends: Vec<(ObjectId, u64, bool, Version)> = Vec::with_capacity(2 * small.len());
    for &(object, offset, length, version) in small.iter().filter(|range| !is_hole(range)) {
        ends.push((object, offset, true, version));
        ends.push((object, offset + length, false, version));
    }
    ends.sort_unstable();
    let mut found = Ranges::new();
    let mut open: BTreeMap<Version, usize> = BTreeMap::new();
    let mut begun: Option<(u64, Version)> = None;
    for here in ends.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let (object, at, ..) = here[0];
        for &(.., version) in here.iter().filter(|end| end.2) {
            *open.entry(version).or_default() += 1;
        }
        for (.., version) in here.iter().filter(|end| !end.2) {
            let left = open.remove(version).unwrap_or_default().saturating_sub(1);
            if left > 0 {
                open.insert(*version, left);
            }
        }
        let newest = open.last_key_value().map(|(&newest, _)| newest);
        if begun.map(|(_, version)| version) != newest {
            let ended = begun.map(|(from, version)| (object, from, at - from, version));
            found.extend(ended);
            begun = newest.map(|newest| (at, newest));
        }
    }
    found
}

/// Logs and checkpoints are written once, from beginning to end: what a site wrote
/// under one epoch at one place is the same everywhere. So their many small ranges are
/// cut anew, by epochs and at multiples of `piece_bytes`: what both have cancels
/// out however it was written, and the rest is copied in few calls.
fn recut_logs(ranges: Ranges, piece_bytes: u64) -> Ranges {
    let is_log = |range: &(ObjectId, u64, u64, Version)| {
        matches!(
            range.0.class,
            ObjectClass::SiteLog | ObjectClass::Checkpoint
        )
    };
    let (logs, mut ranges): (Ranges, Ranges) = ranges.into_iter().partition(is_log);
    let cut = |range| pieces(range, piece_bytes);
    let mut open: Option<(ObjectId, u64, u64, Version)> = None;
    for (object, offset, length, version) in logs {
        let version = Version::first_of(version.epoch());
        let end = offset + length;
        open = Some(match open {
            Some((last, from, to, epoch)) if last == object && epoch == version && offset <= to => {
                (last, from, to.max(end), epoch)
            }
            other => {
                ranges.extend(other.into_iter().flat_map(cut));
                (object, offset, end, version)
            }
        });
    }
    ranges.extend(open.into_iter().flat_map(cut));
    ranges
}

/// Bytes `from..to` of a log, cut.
fn pieces(
    (object, from, to, version): (ObjectId, u64, u64, Version),
    piece_bytes: u64,
) -> impl Iterator<Item = (ObjectId, u64, u64, Version)> {
    let cuts = from / piece_bytes..to.div_ceil(piece_bytes);
    cuts.map(move |cut| {
        let start = from.max(cut * piece_bytes);
        let end = to.min((cut + 1) * piece_bytes);
        (object, start, end - start, version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_names::{Epoch, SiteId};

    fn version(epoch: u64, sequence: u64) -> Version {
        Version(Version::first_of(Epoch(epoch)).0 + sequence)
    }

    fn recut(ranges: Ranges) -> Ranges {
        super::recut(ranges, LOG_PIECE_BYTES)
    }

    /// Goal: a log that was appended in small records on one member and copied whole to
    /// another one does not differ; what one of them lacks does, and nothing else;
    /// records of two epochs are never taken for each other.
    #[test]
    fn logs_differ_by_what_one_lacks() {
        let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(3), 1);
        let length = 3 * LOG_PIECE_BYTES;
        let records = (0..length / 128).map(|record| (log, record * 128, 128, version(7, record)));
        let appended = recut(records.collect());
        let copied = recut(Ranges::from([(log, 0, length, version(7, 99))]));
        assert_eq!(appended, copied);
        assert_eq!(appended.len(), 3);
        let shorter = recut(Ranges::from([(log, 0, length - 200, version(7, 5))]));
        let differing: Vec<_> = appended.symmetric_difference(&shorter).collect();
        let is_last = |range: &&(ObjectId, u64, u64, Version)| range.1 == 2 * LOG_PIECE_BYTES;
        assert_eq!(differing.len(), 2);
        assert!(differing.iter().all(is_last));
        let tail = (log, length, 128, version(6, 1));
        let other = (log, length, 128, version(7, 1));
        let with = |tail| recut(Ranges::from([(log, 0, length, version(5, 1)), tail]));
        assert_ne!(with(tail), with(other));
    }

    /// Goal: what is written over is copied in whole blocks, as a block has one version on the
    /// disk; logs are copied byte by byte.
    #[test]
    fn what_is_written_over_is_copied_in_whole_blocks() {
        let column = ObjectId::column(crossdock_names::FileId(7), 1, 0, 0);
        let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(3), 1);
        assert_eq!(in_blocks(&column, 41_856, 45_057), (40_960, 49_152));
        assert_eq!(in_blocks(&log, 41_856, 45_057), (41_856, 45_057));
    }

    /// Goal: columns and small files, which are written over, are compared by each
    /// version.
    #[test]
    fn what_is_written_over_is_compared_by_versions() {
        let bytes = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
        let ranges = Ranges::from([(bytes, 0, 10, version(7, 1)), (bytes, 10, 5, version(7, 2))]);
        assert_eq!(recut(ranges.clone()), ranges);
    }

    /// Goal: of small files the newest version of each byte counts, whatever else a node
    /// still has at the place, and however it has cut it; space that went back to the
    /// node does not count.
    #[test]
    fn of_what_is_written_over_the_newest_counts() {
        let bytes = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
        let hole = (bytes, 0, 2 * OBJECT_IO_BYTES_MAX as u64, version(7, 99));
        let run = (bytes, 0, 100, version(7, 1));
        let over = [
            (bytes, 20, 10, version(7, 5)),
            (bytes, 30, 30, version(7, 5)),
        ];
        let written = recut(Ranges::from([hole, run, over[0], over[1]]));
        let pieces = Ranges::from([
            (bytes, 0, 20, version(7, 1)),
            (bytes, 20, 40, version(7, 5)),
            (bytes, 60, 40, version(7, 1)),
        ]);
        assert_eq!(written, pieces);
        assert_eq!(recut(pieces.clone()), pieces, "cut otherwise, and the same");
        assert!(is_told(&pieces, &bytes, 99, 200));
        assert!(!is_told(&pieces, &bytes, 100, 200));
        let other = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 2);
        assert!(!is_told(&pieces, &other, 0, 200));
    }

    /// Goal: of small files whole blocks are copied, of everything else what differs.
    #[test]
    fn small_files_are_copied_in_whole_blocks() {
        let small = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
        let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(3), 1);
        assert_eq!(in_blocks(&small, 4100, 8193), (4096, 12288));
        assert_eq!(in_blocks(&small, 4096, 8192), (4096, 8192));
        assert_eq!(in_blocks(&log, 4100, 8193), (4100, 8193));
    }
}
