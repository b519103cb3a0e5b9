//! Bytes of files that are read again and again, kept at the gateway.
//!
//! They are of one state of a file, which its time of change names: no two states share one.
//! They are given out only under a lease of the file that says so (docs/decisions/0027), so a
//! client sees what it would see of the nodes. Nothing in here is dirty.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_names::FileRef;
use crossdock_types::{Payload, WallTime};

/// Files of which anything is kept.
const FILES_MAX: usize = 4096;

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    bytes_max: usize,
    bytes: usize,
    files: BTreeMap<FileRef, OfFile>,
    /// The one that was used longest ago is the first.
    by_use: BTreeSet<(u64, FileRef)>,
    uses_total: u64,
    /// Bytes that were given out.
    pub(crate) served_bytes: u64,
}

#[derive(Debug)]
struct OfFile {
    /// Of which state.
    changed: WallTime,
    /// By where they begin in the file.
    pieces: BTreeMap<u64, Payload>,
    bytes: usize,
    used: u64,
}

impl Hot {
    /// Nothing is kept yet; at most so many bytes will be.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// Bytes that are kept.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A range of a file as it is since `changed`, if all of it is kept.
    pub(crate) fn get(
        &mut self,
        file: FileRef,
        changed: WallTime,
        range: Range<u64>,
    ) -> Option<Payload> {
        let known = self.files.get(&file)?;
        if known.changed != changed {
            self.forget(file);
            return None;
        }
        let mut payload = Payload::new();
        let mut at = range.start;
        while at < range.end {
            let (&from, piece) = known.pieces.range(..=at).next_back()?;
            let end = (from + piece.len() as u64).min(range.end);
            if end <= at {
                return None;
            }
            payload.append(piece.slice(place(at - from), place(end - from)));
            at = end;
        }
        self.served_bytes += payload.len() as u64;
        self.touch(file);
        Some(payload)
    }

    /// Keeps bytes of a file as it is since `changed`, which begin at `from` there.
    pub(crate) fn put(&mut self, file: FileRef, changed: WallTime, from: u64, payload: Payload) {
        if payload.is_empty() || payload.len() > self.bytes_max || !payload.extents().is_empty() {
            return;
        }
        let is_other = |known: &OfFile| known.changed != changed;
        if self.files.get(&file).is_some_and(is_other) {
            self.forget(file);
        }
        let known = self.files.entry(file).or_insert_with(|| OfFile {
            changed,
            pieces: BTreeMap::new(),
            bytes: 0,
            used: 0,
        });
        let had = known.pieces.get(&from).map_or(0, Payload::len);
        if had >= payload.len() {
            return;
        }
        known.bytes += payload.len() - had;
        self.bytes += payload.len() - had;
        known.pieces.insert(from, payload);
        self.touch(file);
        while self.bytes > self.bytes_max || self.files.len() > FILES_MAX {
            let Some(&(_, oldest)) = self.by_use.first() else {
                return;
            };
            self.forget(oldest);
        }
    }

    /// A file is written to, or is there no more.
    pub(crate) fn forget(&mut self, file: FileRef) {
        if let Some(known) = self.files.remove(&file) {
            self.bytes -= known.bytes;
            self.by_use.remove(&(known.used, file));
        }
    }

    fn touch(&mut self, file: FileRef) {
        self.uses_total += 1;
        if let Some(known) = self.files.get_mut(&file) {
            self.by_use.remove(&(known.used, file));
            known.used = self.uses_total;
            self.by_use.insert((known.used, file));
        }
    }
}

/// A place in a payload, which is in memory.
fn place(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use crossdock_names::FileId;
    use crossdock_types::{Extent, Released};

    use super::*;

    const NOW: WallTime = WallTime(7);

    fn file(number: u64) -> FileRef {
        FileRef {
            id: FileId(number),
            generation: 1,
        }
    }

    fn bytes(range: Range<u8>) -> Payload {
        Payload::from(Bytes::from_iter(range))
    }

    fn got(hot: &mut Hot, number: u64, changed: WallTime, range: Range<u64>) -> Option<Vec<u8>> {
        let payload = hot.get(file(number), changed, range)?;
        Some(payload.to_bytes().to_vec())
    }

    /// Goal: what is kept is given out in any cut, but only all of it, and only as long as
    /// the file is as it was.
    #[test]
    fn ranges_are_whole_and_of_one_state() {
        let mut hot = Hot::new(1000);
        hot.put(file(1), NOW, 10, bytes(10..20));
        hot.put(file(1), NOW, 20, bytes(20..30));
        hot.put(file(1), NOW, 40, bytes(40..50));
        assert_eq!(got(&mut hot, 1, NOW, 12..28), Some((12..28).collect()));
        assert_eq!(got(&mut hot, 1, NOW, 10..30), Some((10..30).collect()));
        for missing in [9..11, 25..31, 30..40, 45..51] {
            assert_eq!(got(&mut hot, 1, NOW, missing.clone()), None, "{missing:?}");
        }
        assert_eq!(got(&mut hot, 2, NOW, 12..28), None);
        // A longer one takes the place of a shorter one, not the other way round.
        hot.put(file(1), NOW, 40, bytes(40..45));
        hot.put(file(1), NOW, 40, bytes(40..60));
        assert_eq!(got(&mut hot, 1, NOW, 40..60), Some((40..60).collect()));
        assert_eq!((hot.bytes(), hot.served_bytes), (40, 56));
        assert_eq!(got(&mut hot, 1, WallTime(8), 12..28), None);
        assert_eq!((hot.bytes(), got(&mut hot, 1, NOW, 12..28)), (0, None));
        hot.put(file(1), NOW, 0, bytes(0..9));
        hot.put(file(1), WallTime(8), 9, bytes(9..12));
        assert_eq!(got(&mut hot, 1, WallTime(8), 0..12), None, "no mix of two");
    }

    /// Goal: there is a bound; what was used longest ago goes first; what is not here is not
    /// kept.
    #[test]
    fn the_coldest_goes_first() {
        let mut hot = Hot::new(30);
        hot.put(file(1), NOW, 0, bytes(0..10));
        hot.put(file(2), NOW, 0, bytes(0..10));
        hot.put(file(3), NOW, 0, bytes(0..10));
        assert!(got(&mut hot, 1, NOW, 0..10).is_some());
        hot.put(file(4), NOW, 0, bytes(0..10));
        assert!(got(&mut hot, 2, NOW, 0..10).is_none());
        assert!(got(&mut hot, 1, NOW, 0..10).is_some());
        hot.put(file(5), NOW, 0, bytes(0..31));
        let mut named = Payload::new();
        named.push_extent(Extent::new(1, 1, 5, &Released::default()));
        hot.put(file(6), NOW, 0, named);
        assert_eq!((hot.bytes(), hot.files.len()), (30, 3));
    }
}
