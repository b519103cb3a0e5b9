//! Pieces on their way out, and how far they have come.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use crate::dummy::is_dummy;

/// Pieces that the kernel takes in one call (UIO_MAXIOV).
pub const GATHER_PIECES_MAX: usize = 1024;

/// A queue of pieces that is consumed from the front as bytes are written.
#[derive(Debug, Default)]
pub struct Gather {
    pieces: VecDeque<Bytes>,
    length_bytes: usize,
}

impl Gather {
    /// Adds a piece to the end; empty ones leave no trace.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length_bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes not yet written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length_bytes
    }

    /// Whether all is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// Takes note that the first `bytes` bytes have been written.
    ///
    /// # Panics
    /// If there are fewer bytes than that.
    pub fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.length_bytes, "wrote more than there was");
        self.length_bytes -= bytes;
        while bytes > 0 {
            let front = self.pieces.front_mut().expect("bytes lie in pieces");
            if bytes < front.len() {
                front.advance(bytes);
                return;
            }
            bytes -= front.len();
            self.pieces.pop_front();
        }
    }

    /// Moves pieces from the front of `other` to the end of this, until this
    /// holds `bytes_max` bytes or more, or as many pieces as the kernel takes. Dummy bytes
    /// are not mixed with others: they are sent in another way.
    pub fn refill(&mut self, other: &mut Self, bytes_max: usize) {
        while self.length_bytes < bytes_max && self.pieces.len() < GATHER_PIECES_MAX {
            let fits = self.is_empty() || other.is_dummy() == self.is_dummy();
            let Some(piece) = other.pieces.pop_front_if(|_| fits) else {
                return;
            };
            other.length_bytes -= piece.len();
            self.push(piece);
        }
    }

    /// Whether it begins with dummy bytes.
    pub(crate) fn is_dummy(&self) -> bool {
        self.pieces.front().is_some_and(is_dummy)
    }

    /// Puts what is left of `rest` before the front.
    pub fn put_back(&mut self, mut rest: Self) {
        self.length_bytes += rest.length_bytes;
        while let Some(piece) = rest.pieces.pop_back() {
            self.pieces.push_front(piece);
        }
    }

    /// The pieces from the front, as many as the kernel takes in one call.
    pub fn io_slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let slices = self.pieces.iter().map(|piece| IoSlice::new(piece));
        slices.take(GATHER_PIECES_MAX)
    }
}

impl FromIterator<Bytes> for Gather {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut gather = Self::default();
        for piece in pieces {
            gather.push(piece);
        }
        gather
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dummy bytes and others go out one after the other, never in one send.
    #[test]
    fn dummy_bytes_are_not_mixed_with_others() {
        let mut all = Gather::default();
        all.push(Bytes::from_static(b"head"));
        crate::dummy(100_000).for_each(|piece| all.push(piece));
        crate::dummy(3 << 20).for_each(|piece| all.push(piece));
        all.push(Bytes::from_static(b"tail"));
        let mut sends = Vec::new();
        while !all.is_empty() {
            let mut send = Gather::default();
            send.refill(&mut all, 1 << 20);
            sends.push((send.is_dummy(), send.len()));
        }
        let expected = [
            (false, 4),
            (true, 100_000 + (2 << 20)),
            (true, 1 << 20),
            (false, 4),
        ];
        assert_eq!(sends, expected);
    }

    /// Goal: whatever the steps, the same bytes come out.
    #[test]
    fn steps_of_any_size_consume_all_bytes_in_order() {
        for step in 1..9 {
            let pieces = ["ab", "", "cdef", "g"].map(|text| Bytes::from_static(text.as_bytes()));
            let mut gather: Gather = pieces.into_iter().collect();
            let mut seen = Vec::new();
            while !gather.is_empty() {
                let left: Vec<u8> = gather
                    .io_slices()
                    .flat_map(|slice| slice.to_vec())
                    .collect();
                assert_eq!(left.len(), gather.len());
                let step = step.min(left.len());
                seen.extend_from_slice(&left[..step]);
                gather.advance(step);
            }
            assert_eq!(seen, b"abcdefg");
        }
    }

    /// Goal: a refill moves whole pieces and stops at its bound.
    #[test]
    fn a_refill_is_bounded() {
        let mut queue: Gather = (0..10).map(|_| Bytes::from_static(&[0; 10])).collect();
        let mut flying = Gather::default();
        flying.refill(&mut queue, 25);
        assert_eq!((flying.len(), queue.len()), (30, 70));
        flying.refill(&mut queue, usize::MAX);
        assert_eq!((flying.len(), queue.len()), (100, 0));
        flying.advance(95);
        queue.push(Bytes::from_static(&[1]));
        queue.put_back(flying);
        let left: Vec<u8> = queue.io_slices().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!((queue.len(), left), (6, vec![0, 0, 0, 0, 0, 1]));
    }
}
