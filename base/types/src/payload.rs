//! Bulk bytes on their way between disk and socket: shared pieces, never copied.

use bytes::{Buf, Bytes, BytesMut};

use crate::Extent;

/// A sequence of refcounted pieces that together are one range of bytes.
///
/// A read of a striped file is answered by one `Payload` whose pieces come from
/// several nodes' caches; the socket sends them with one gathered call.
///
/// In place of bytes that a node sends itself there are dummy bytes, and an [`Extent`] that
/// says which they are. Who asks for extents sends what he gets by [`Payload::extents`]; to
/// everybody else a payload consists of bytes.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
    length_bytes: usize,
    /// Only if there are some: most payloads have none, and are moved often.
    named: Option<Box<Named>>,
}

/// What dummy bytes stand for, and where they begin; in order.
#[derive(Clone, Debug, Default)]
struct Named {
    extents: Vec<(usize, Extent)>,
}

impl Payload {
    /// No bytes at all.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            length_bytes: 0,
            named: None,
        }
    }

    /// Adds `piece` to the end; empty pieces leave no trace.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length_bytes += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Adds all pieces of `other` to the end.
    pub fn append(&mut self, other: Self) {
        if self.pieces.is_empty() {
            *self = other;
            return;
        }
        let behind = self.length_bytes;
        if let Some(named) = other.named {
            let extents = named.extents.into_iter();
            let moved = extents.map(|(at, extent)| (behind + at, extent));
            self.named.get_or_insert_default().extents.extend(moved);
        }
        self.length_bytes += other.length_bytes;
        self.pieces.extend(other.pieces);
    }

    /// Adds bytes that are elsewhere to the end: dummy bytes, without allocating for them.
    pub fn push_extent(&mut self, extent: Extent) {
        let length_bytes = extent.length_bytes;
        if length_bytes > 0 {
            let named = self.named.get_or_insert_default();
            named.extents.push((self.length_bytes, extent));
            self.push_zeros(length_bytes);
        }
    }

    /// What dummy bytes stand for, and where in the payload they begin, in order.
    #[must_use]
    pub fn extents(&self) -> &[(usize, Extent)] {
        self.named.as_ref().map_or(&[], |named| &named.extents)
    }

    /// Adds `length_bytes` zeros to the end, without allocating for them.
    pub fn push_zeros(&mut self, mut length_bytes: usize) {
        static ZEROS: [u8; 65536] = [0; 65536];
        while length_bytes > 0 {
            let step = length_bytes.min(ZEROS.len());
            self.push(Bytes::from_static(&ZEROS[..step]));
            length_bytes -= step;
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length_bytes
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// Whether all bytes are zeros; there are to be no extents.
    #[must_use]
    pub fn is_zeros(&self) -> bool {
        // In runs that are looked at all at once.
        let is_zeros = |run: &[u8]| run.iter().fold(0, |seen, byte| seen | byte) == 0;
        self.pieces
            .iter()
            .all(|piece| piece.chunks(256).all(is_zeros))
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Gives the pieces away, which are all there is: no extents.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Bytes> {
        debug_assert!(self.named.is_none(), "dummy bytes taken for real ones");
        self.pieces
    }

    /// Gives away what it consists of, in order; dummy bytes are gone.
    #[must_use]
    pub fn into_parts(self) -> Vec<Part> {
        let mut extents = self.named.map_or_else(Vec::new, |named| named.extents);
        extents.reverse();
        let mut parts = Vec::with_capacity(self.pieces.len());
        // Where the piece begins, and up to where extents have gone.
        let (mut at, mut named) = (0, 0);
        for piece in self.pieces {
            let end = at + piece.len();
            let mut from = at.max(named);
            while let Some((start, extent)) = extents.pop_if(|(start, _)| *start < end) {
                if from < start {
                    parts.push(Part::Bytes(piece.slice(from - at..start - at)));
                }
                from = start + extent.length_bytes;
                parts.push(Part::Extent(extent));
            }
            if from < end {
                parts.push(Part::Bytes(piece.slice(from - at..)));
            }
            named = from;
            at = end;
        }
        parts
    }

    /// Takes the first pieces off: as many as have `bytes_min` bytes together, all if they
    /// have not.
    #[must_use]
    pub fn take_pieces(&mut self, bytes_min: usize) -> Self {
        let mut taken = Self::new();
        let mut pieces = std::mem::take(&mut self.pieces).into_iter();
        while taken.length_bytes < bytes_min
            && let Some(piece) = pieces.next()
        {
            taken.push(piece);
        }
        self.pieces = pieces.collect(); // In place.
        let cut = taken.length_bytes;
        taken.named = self.named_within(0, cut);
        self.named = self.named_within(cut, self.length_bytes);
        self.length_bytes -= cut;
        taken
    }

    /// The parts of extents in `start..end`, counted from `start`.
    fn named_within(&self, start: usize, end: usize) -> Option<Box<Named>> {
        let cut = |(at, extent): &(usize, Extent)| {
            let (from, to) = (start.max(*at), end.min(at + extent.length_bytes));
            (from < to).then(|| (from - start, extent.slice(from - at, to - at)))
        };
        let extents: Vec<_> = self.extents().iter().filter_map(cut).collect();
        (!extents.is_empty()).then(|| Box::new(Named { extents }))
    }

    /// The bytes of `start..end` (offsets in this payload) as a payload that
    /// shares the same memory.
    ///
    /// # Panics
    /// If the range does not lie within the payload.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        assert!(
            start <= end && end <= self.length_bytes,
            "slice {start}..{end} of {}",
            self.length_bytes
        );
        let mut part = Self::new();
        let mut at = 0;
        for piece in &self.pieces {
            let from = start.max(at);
            let to = end.min(at + piece.len());
            if from < to {
                part.push(piece.slice(from - at..to - at));
            }
            at += piece.len();
        }
        part.named = self.named_within(start, end);
        part
    }

    /// Drops everything after the first `length_bytes` bytes.
    pub fn truncate(&mut self, length_bytes: usize) {
        if length_bytes < self.length_bytes {
            *self = self.slice(0, length_bytes);
        }
    }

    /// One contiguous buffer; copies only if there is more than one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        debug_assert!(self.named.is_none(), "dummy bytes taken for real ones");
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            pieces => {
                let mut whole = BytesMut::with_capacity(self.length_bytes);
                for piece in pieces {
                    whole.extend_from_slice(piece);
                }
                whole.freeze()
            }
        }
    }

    /// Copies all bytes into `target`, which must be exactly as long.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to_slice(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.length_bytes, "copy of another length");
        let mut at = 0;
        for piece in &self.pieces {
            target[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }
}

/// What a payload consists of.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes that are here.
    Bytes(Bytes),
    /// Bytes that are elsewhere.
    Extent(Extent),
}

impl Part {
    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Extent(extent) => extent.length_bytes,
        }
    }

    /// Whether there is no byte in it: no part of a payload is so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut payload = Self::new();
        pieces.into_iter().for_each(|piece| payload.push(piece));
        payload
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(bytes);
        payload
    }
}

impl PartialEq for Payload {
    /// Equal if the bytes are equal, however they are cut into pieces.
    fn eq(&self, other: &Self) -> bool {
        if self.length_bytes != other.length_bytes {
            return false;
        }
        let (mut left, mut right) = (self.pieces.iter().cloned(), other.pieces.iter().cloned());
        let (mut a, mut b) = (Bytes::new(), Bytes::new());
        loop {
            if a.is_empty() {
                match left.next() {
                    Some(piece) => a = piece,
                    None => return true,
                }
            }
            if b.is_empty() {
                b = right.next().unwrap_or_default();
            }
            let step = a.len().min(b.len());
            if a[..step] != b[..step] {
                return false;
            }
            a.advance(step);
            b.advance(step);
        }
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Released;

    fn payload(pieces: &[&'static [u8]]) -> Payload {
        let mut payload = Payload::new();
        for piece in pieces {
            payload.push(Bytes::from_static(piece));
        }
        payload
    }

    /// Goal: slices and comparison see bytes, not pieces.
    #[test]
    fn pieces_do_not_show() {
        let whole = payload(&[b"abc", b"", b"defg", b"h"]);
        assert_eq!(whole.len(), 8);
        assert_eq!(whole, payload(&[b"abcdefgh"]));
        assert_ne!(whole, payload(&[b"abcdefgx"]));
        assert_ne!(whole, payload(&[b"abcdefg"]));
        assert_eq!(whole.slice(2, 7), payload(&[b"cdefg"]));
        assert_eq!(whole.slice(4, 4), Payload::new());
        assert_eq!(&whole.to_bytes()[..], b"abcdefgh");
        let mut shorter = whole;
        shorter.truncate(4);
        assert_eq!(shorter, payload(&[b"abcd"]));
    }

    /// Goal: one byte that is none shows, wherever it is.
    #[test]
    fn zeros_are_told_from_others() {
        let mut payload = Payload::new();
        assert!(payload.is_zeros());
        payload.push_zeros(70_000);
        assert!(payload.is_zeros());
        for at in [0, 255, 256, 299] {
            let mut bytes = vec![0; 300];
            bytes[at] = 0x10;
            let mut other = payload.clone();
            other.push(bytes.into());
            assert!(!other.is_zeros(), "{at}");
            assert!(other.slice(0, 70_000 + at).is_zeros(), "{at}");
        }
    }

    /// Goal: pieces go whole, and what stays is the rest.
    #[test]
    fn pieces_are_taken_off_whole() {
        let mut rest = payload(&[b"abc", b"defg", b"h"]);
        assert_eq!(rest.take_pieces(4).pieces().len(), 2);
        assert_eq!((rest.len(), rest.pieces().len()), (1, 1));
        assert_eq!(rest.take_pieces(9), payload(&[b"h"]));
        assert!(rest.is_empty());
    }

    /// Goal: extents stay where their dummy bytes are, however a payload is cut and put
    /// together; and the pin is held as long as any part of it.
    #[test]
    fn extents_go_with_their_dummy_bytes() {
        let released = Released::default();
        let mut whole = payload(&[b"abc"]);
        whole.push_extent(Extent::new(1, 2, 100_000, &released));
        whole.append(payload(&[b"de"]));
        let mut other = payload(&[b"x"]);
        other.push_extent(Extent::new(1, 3, 10, &released));
        whole.append(other);
        let places = |payload: &Payload| -> Vec<_> {
            let extents = payload.extents().iter();
            extents
                .map(|(at, it)| (*at, it.pin(), it.offset_bytes, it.length_bytes))
                .collect()
        };
        assert_eq!(places(&whole), [(3, 2, 0, 100_000), (100_006, 3, 0, 10)]);
        let lengths = |payload: Payload| -> Vec<_> {
            let parts = payload.into_parts();
            parts
                .iter()
                .map(|part| (matches!(part, Part::Extent(_)), part.len()))
                .collect()
        };
        let of_whole = [
            (false, 3),
            (true, 100_000),
            (false, 2),
            (false, 1),
            (true, 10),
        ];
        assert_eq!(lengths(whole.clone()), of_whole);
        let mut behind = Payload::new();
        behind.push_extent(Extent::new(1, 4, 70_000, &Released::default()));
        behind.append(payload(&[b"cd"]));
        assert_eq!(
            lengths(behind.slice(66_000, 70_001)),
            [(true, 4000), (false, 1)]
        );
        let part = whole.slice(50_000, 100_010);
        assert_eq!(places(&part), [(0, 2, 49_997, 50_003), (50_006, 3, 0, 4)]);
        let first = whole.take_pieces(10);
        assert_eq!(places(&first), [(3, 2, 0, 65_536)]);
        assert_eq!(places(&whole), [(0, 2, 65_536, 34_464), (34_467, 3, 0, 10)]);
        drop((whole, part));
        assert_eq!(released.take(), [(1, 3)]);
        drop(first);
        assert_eq!(released.take(), [(1, 2)]);
    }
}
