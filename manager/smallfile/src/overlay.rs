//! Pieces of files that lie in memory above their fragments.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use bytes::Bytes;
use crossdock_names::SMALL_FILE_THRESHOLD_BYTES;

/// What a piece costs beside its bytes, so that the bound holds for tiny ones.
pub(crate) const PIECE_OVERHEAD_BYTES: usize = 128;

/// End of the range that a small-file site holds.
pub(crate) const END: u32 = 64 << 10;

const _: () = assert!(END as u64 == SMALL_FILE_THRESHOLD_BYTES);

/// Pieces by file and offset; they never overlap within a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    pieces: BTreeMap<(u64, u32), Bytes>,
    charged_bytes: usize,
}

impl Overlay {
    /// What it costs in memory.
    pub(crate) const fn charged_bytes(&self) -> usize {
        self.charged_bytes
    }

    /// Whether a piece of this length fits below `bytes_max`.
    pub(crate) const fn has_room(&self, length: usize, bytes_max: usize) -> bool {
        self.charged_bytes + length + PIECE_OVERHEAD_BYTES <= bytes_max
    }

    /// The pieces of a file in order.
    pub(crate) fn of(&self, serial: u64) -> impl Iterator<Item = (u32, &Bytes)> {
        self.pieces
            .range((serial, 0)..=(serial, END))
            .map(|(&(_, start), bytes)| (start, bytes))
    }

    /// All pieces in order of file and offset.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32, &Bytes)> {
        self.pieces
            .iter()
            .map(|(&(serial, start), bytes)| (serial, start, bytes))
    }

    /// The first file at or after `serial` that has pieces.
    pub(crate) fn next_file(&self, serial: u64) -> Option<u64> {
        self.pieces
            .range((serial, 0)..)
            .next()
            .map(|(&(serial, _), _)| serial)
    }

    /// The parts of the pieces that lie within `start..end`.
    pub(crate) fn within(&self, serial: u64, start: u32, end: u32) -> Vec<(u32, Bytes)> {
        let mut found = Vec::new();
        if start >= end {
            return found;
        }
        let before = self.pieces.range((serial, 0)..(serial, start)).next_back();
        let inside = self
            .pieces
            .range((Included((serial, start)), Excluded((serial, end))));
        for (&(_, at), bytes) in before.into_iter().chain(inside) {
            let from = at.max(start);
            let to = end_of(at, bytes).min(end);
            if from < to {
                found.push((from, bytes.slice((from - at) as usize..(to - at) as usize)));
            }
        }
        found
    }

    /// Removes `start..end` and returns what was there.
    pub(crate) fn cut(&mut self, serial: u64, start: u32, end: u32) -> Vec<(u32, Bytes)> {
        let removed = self.within(serial, start, end);
        let mut touched: Vec<u32> = Vec::new();
        let before = self.pieces.range((serial, 0)..(serial, start)).next_back();
        touched.extend(before.map(|(&(_, at), _)| at));
        touched.extend(removed.iter().map(|&(at, _)| at));
        for at in touched {
            let Some(bytes) = self.pieces.get(&(serial, at)) else {
                continue; // The part of a piece that begins before `start`.
            };
            let to = end_of(at, bytes);
            if to <= start {
                continue;
            }
            let left = bytes.slice(..(start.max(at) - at) as usize);
            let right = bytes.slice((end.min(to) - at) as usize..);
            self.take_out(serial, at);
            self.put(serial, at, left);
            self.put(serial, end.min(to), right);
        }
        removed
    }

    /// Puts a piece above all that is there; returns what it covered.
    pub(crate) fn insert(&mut self, serial: u64, start: u32, bytes: Bytes) -> Vec<(u32, Bytes)> {
        let covered = self.cut(serial, start, end_of(start, &bytes));
        self.put(serial, start, bytes);
        covered
    }

    /// Puts a piece below all that is there.
    pub(crate) fn insert_below(&mut self, serial: u64, start: u32, bytes: &Bytes) {
        let end = end_of(start, bytes);
        let mut gaps = Vec::new();
        let mut next = start;
        for (at, newer) in self.within(serial, start, end) {
            gaps.push((next, at));
            next = end_of(at, &newer);
        }
        gaps.push((next, end));
        for (from, to) in gaps {
            self.put(
                serial,
                from,
                bytes.slice((from - start) as usize..(to - start) as usize),
            );
        }
    }

    fn put(&mut self, serial: u64, start: u32, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        // Copied: a slice would hold all of the buffer that it came in, and the
        // bound would count only a part of it.
        let bytes = Bytes::copy_from_slice(&bytes);
        self.charged_bytes += bytes.len() + PIECE_OVERHEAD_BYTES;
        self.pieces.insert((serial, start), bytes);
    }

    fn take_out(&mut self, serial: u64, start: u32) {
        if let Some(bytes) = self.pieces.remove(&(serial, start)) {
            self.charged_bytes -= bytes.len() + PIECE_OVERHEAD_BYTES;
        }
    }
}

/// Where a piece ends; none is longer than the threshold.
pub(crate) fn end_of(start: u32, bytes: &Bytes) -> u32 {
    start + u32::try_from(bytes.len()).unwrap_or(END)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(overlay: &Overlay) -> Vec<(u32, String)> {
        let string = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        overlay
            .of(1)
            .map(|(start, bytes)| (start, string(bytes)))
            .collect()
    }

    /// Goal: newer pieces win, what they leave stays, and the charge follows.
    #[test]
    fn pieces_replace_split_and_fill() {
        let mut overlay = Overlay::default();
        overlay.insert(1, 10, Bytes::from_static(b"abcdefghij"));
        overlay.insert(2, 0, Bytes::from_static(b"other"));
        let covered = overlay.insert(1, 13, Bytes::from_static(b"XY"));
        assert_eq!(covered, [(13, Bytes::from_static(b"de"))]);
        let expected = [(10, "abc"), (13, "XY"), (15, "fghij")].map(|(at, s)| (at, s.to_owned()));
        assert_eq!(text(&overlay), expected);
        overlay.insert_below(1, 8, &Bytes::from_static(b"0123456789abcdef"));
        let filled = text(&overlay);
        assert_eq!(filled.first(), Some(&(8, "01".to_owned())));
        assert_eq!(filled.last(), Some(&(20, "cdef".to_owned())));
        let removed = overlay.cut(1, 0, END);
        assert_eq!(removed.len(), 5);
        assert_eq!(overlay.charged_bytes(), 5 + PIECE_OVERHEAD_BYTES);
        assert_eq!((overlay.of(1).count(), overlay.of(2).count()), (0, 1));
    }
}
