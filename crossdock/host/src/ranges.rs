//! What a node has changed, range by range, as it is compared with another node's list.

use std::collections::BTreeSet;

use crossdock_names::{ObjectClass, ObjectId, Version};

/// In pieces of how many bytes logs are compared and copied, where nothing else is said.
pub const LOG_PIECE_BYTES: u64 = 256 << 10;

/// Object, offset, length, version. Ranges may overlap: what is told of memory
/// and what is told of the disk need not be cut alike.
pub(crate) type Ranges = BTreeSet<(ObjectId, u64, u64, Version)>;

/// Logs and checkpoints are written once, from beginning to end: what a site wrote
/// under one epoch at one place is the same everywhere. So their many small ranges are
/// cut anew, by epochs and at multiples of `piece_bytes`: what both have cancels
/// out however it was written, and the rest is copied in few calls.
pub(crate) fn recut(ranges: Ranges, piece_bytes: u64) -> Ranges {
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

    /// Goal: columns and small files, which are written over, are compared by each
    /// version.
    #[test]
    fn what_is_written_over_is_compared_by_versions() {
        let bytes = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
        let ranges = Ranges::from([(bytes, 0, 10, version(7, 1)), (bytes, 10, 5, version(7, 2))]);
        assert_eq!(recut(ranges.clone()), ranges);
    }
}
