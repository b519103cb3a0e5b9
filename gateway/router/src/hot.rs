//! Bytes of files that are read again and again, kept at the gateway.
//!
//! They are of one state of a file, which its time of change names: no two states share one.
//! They are given out only under a lease of the file that says so (docs/decisions/0027), so a
//! client sees what it would see of the nodes. Nothing in here is dirty.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_names::{FileRef, Version};
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
    /// Files of which all was kept that may be, since somebody asked.
    whole: Vec<(FileRef, WallTime)>,
}

/// Bytes, and which version of a column they are, as far as it has all of them.
#[derive(Debug)]
struct Kept {
    payload: Payload,
    version: Option<Version>,
}

#[derive(Debug)]
struct OfFile {
    /// Of which state.
    changed: WallTime,
    /// By where they begin in the file.
    pieces: BTreeMap<u64, Kept>,
    bytes: usize,
    used: u64,
    /// All that columns have of it was kept at a time.
    is_whole: bool,
}

impl OfFile {
    /// A range, if all of it is kept; its newest version, if that is known of all.
    fn range(&self, range: &Range<u64>) -> Option<(Payload, Option<Version>)> {
        let mut payload = Payload::new();
        let mut newest = Some(Version::NONE);
        let mut at = range.start;
        while at < range.end {
            let (&from, piece) = self.pieces.range(..=at).next_back()?;
            let end = (from + piece.payload.len() as u64).min(range.end);
            if end <= at {
                return None;
            }
            payload.append(piece.payload.slice(place(at - from), place(end - from)));
            newest = newest.zip(piece.version).map(|(one, other)| one.max(other));
            at = end;
        }
        Some((payload, newest))
    }
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
        let (payload, _) = known.range(&range)?;
        self.served_bytes += payload.len() as u64;
        self.touch(file);
        Some(payload)
    }

    /// A range of a file as it is since `changed`, and of which version of its columns, if all of
    /// it is kept and known so: for another gateway, which does not say how it is used.
    pub(crate) fn lend(
        &self,
        file: FileRef,
        changed: WallTime,
        range: &Range<u64>,
    ) -> Option<(Payload, Version)> {
        let known = self.files.get(&file)?;
        let (payload, version) = known.range(range).filter(|_| known.changed == changed)?;
        Some((payload, version?))
    }

    /// Files of which all is kept that columns have, and in which state.
    pub(crate) fn whole(&self) -> impl Iterator<Item = (FileRef, WallTime)> {
        let files = self.files.iter().filter(|(_, known)| known.is_whole);
        files.map(|(&file, known)| (file, known.changed))
    }

    /// Those that have become so since this was asked.
    pub(crate) fn take_whole(&mut self) -> Vec<(FileRef, WallTime)> {
        std::mem::take(&mut self.whole)
    }

    /// Bytes of a file were kept, of which columns have these: whether that is all of them now.
    pub(crate) fn note_whole(&mut self, file: FileRef, of_columns: &Range<u64>) {
        let Some(known) = self.files.get_mut(&file) else {
            return;
        };
        let is_new = !known.is_whole && !of_columns.is_empty();
        if is_new && known.range(of_columns).is_some() {
            known.is_whole = true;
            self.whole.push((file, known.changed));
        }
    }

    /// Keeps bytes of a file as it is since `changed`, which begin at `from` there.
    pub(crate) fn put(
        &mut self,
        file: FileRef,
        changed: WallTime,
        from: u64,
        (payload, version): (Payload, Option<Version>),
    ) {
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
            is_whole: false,
        });
        let had = known
            .pieces
            .get(&from)
            .map_or(0, |piece| piece.payload.len());
        if had >= payload.len() {
            return;
        }
        known.bytes += payload.len() - had;
        self.bytes += payload.len() - had;
        known.pieces.insert(from, Kept { payload, version });
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
        hot.put(file(1), NOW, 10, (bytes(10..20), None));
        hot.put(file(1), NOW, 20, (bytes(20..30), None));
        hot.put(file(1), NOW, 40, (bytes(40..50), None));
        assert_eq!(got(&mut hot, 1, NOW, 12..28), Some((12..28).collect()));
        assert_eq!(got(&mut hot, 1, NOW, 10..30), Some((10..30).collect()));
        for missing in [9..11, 25..31, 30..40, 45..51] {
            assert_eq!(got(&mut hot, 1, NOW, missing.clone()), None, "{missing:?}");
        }
        assert_eq!(got(&mut hot, 2, NOW, 12..28), None);
        // A longer one takes the place of a shorter one, not the other way round.
        hot.put(file(1), NOW, 40, (bytes(40..45), None));
        hot.put(file(1), NOW, 40, (bytes(40..60), None));
        assert_eq!(got(&mut hot, 1, NOW, 40..60), Some((40..60).collect()));
        assert_eq!((hot.bytes(), hot.served_bytes), (40, 56));
        assert_eq!(got(&mut hot, 1, WallTime(8), 12..28), None);
        assert_eq!((hot.bytes(), got(&mut hot, 1, NOW, 12..28)), (0, None));
        hot.put(file(1), NOW, 0, (bytes(0..9), None));
        hot.put(file(1), WallTime(8), 9, (bytes(9..12), None));
        assert_eq!(got(&mut hot, 1, WallTime(8), 0..12), None, "no mix of two");
    }

    /// Goal: another gateway gets what is kept of one state, if it is known which version all of it
    /// is: the newest of its pieces. Others are told of a file when all of its columns is kept,
    /// once.
    #[test]
    fn what_is_lent_has_a_version() {
        let mut hot = Hot::new(1000);
        let version = |number| Some(Version(number));
        hot.put(file(1), NOW, 10, (bytes(10..20), version(5)));
        hot.note_whole(file(1), &(10..40));
        hot.put(file(1), NOW, 20, (bytes(20..30), version(4)));
        hot.put(file(1), NOW, 30, (bytes(30..40), None));
        assert_eq!(hot.take_whole(), []);
        hot.note_whole(file(1), &(10..40));
        assert_eq!(hot.take_whole(), [(file(1), NOW)]);
        hot.note_whole(file(1), &(10..40));
        hot.note_whole(file(1), &(40..40));
        assert_eq!(hot.take_whole(), []);
        assert_eq!(hot.whole().collect::<Vec<_>>(), [(file(1), NOW)]);
        let lent = |changed, range| {
            let (payload, version) = hot.lend(file(1), changed, &range)?;
            Some((payload.to_bytes().to_vec(), version))
        };
        assert_eq!(lent(NOW, 12..28), Some(((12..28).collect(), Version(5))));
        assert_eq!(lent(NOW, 22..28), Some(((22..28).collect(), Version(4))));
        assert_eq!(lent(NOW, 22..32), None, "of a part no version is known");
        assert_eq!(lent(NOW, 5..12), None);
        assert_eq!(lent(WallTime(8), 12..28), None);
        assert_eq!(hot.served_bytes, 0);
    }

    /// Goal: there is a bound; what was used longest ago goes first; what is not here is not
    /// kept.
    #[test]
    fn the_coldest_goes_first() {
        let mut hot = Hot::new(30);
        hot.put(file(1), NOW, 0, (bytes(0..10), None));
        hot.put(file(2), NOW, 0, (bytes(0..10), None));
        hot.put(file(3), NOW, 0, (bytes(0..10), None));
        assert!(got(&mut hot, 1, NOW, 0..10).is_some());
        hot.put(file(4), NOW, 0, (bytes(0..10), None));
        assert!(got(&mut hot, 2, NOW, 0..10).is_none());
        assert!(got(&mut hot, 1, NOW, 0..10).is_some());
        hot.put(file(5), NOW, 0, (bytes(0..31), None));
        let mut named = Payload::new();
        named.push_extent(Extent::new(1, 1, 5, &Released::default()));
        hot.put(file(6), NOW, 0, (named, None));
        assert_eq!((hot.bytes(), hot.files.len()), (30, 3));
    }
}
