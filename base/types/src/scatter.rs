//! Memory for one read that is given back piece by piece.

use bytes::Bytes;

use crate::AlignedBuffer;

/// Length of each part but the last, in bytes: what a slow client still has to take of a
/// large read holds no more memory than this beyond itself.
const PART_BYTES: usize = 64 << 10;

/// Where a read puts its bytes: parts that are filled one after the other, as if they
/// were one buffer. Each is freed by itself, when nobody needs its bytes any more.
#[derive(Debug)]
pub struct Scatter {
    parts: Vec<AlignedBuffer>,
    length_bytes: usize,
}

impl Scatter {
    /// Zeroed parts of at least `length_bytes` together, rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(length_bytes: usize) -> Self {
        let count = length_bytes.div_ceil(PART_BYTES);
        let length_of = |part: usize| (length_bytes - part * PART_BYTES).min(PART_BYTES);
        let parts = (0..count).map(|part| AlignedBuffer::zeroed(length_of(part)));
        Self::of(parts.collect())
    }

    /// Parts that are there already, in this order.
    #[must_use]
    pub fn of(parts: Vec<AlignedBuffer>) -> Self {
        let length_bytes = parts.iter().map(|part| part.len()).sum();
        Self {
            parts,
            length_bytes,
        }
    }

    /// Bytes of all parts.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length_bytes
    }

    /// Whether there is no part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// The parts, to be filled, without the first `filled` bytes.
    pub fn unfilled(&mut self, filled: usize) -> impl Iterator<Item = &mut [u8]> {
        let mut skip = filled;
        self.parts.iter_mut().filter_map(move |part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            (skipped < part.len()).then(|| &mut part[skipped..])
        })
    }

    /// The content of all parts in turn.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &**part)
    }

    /// Gives the parts up as they are.
    #[must_use]
    pub fn into_parts(self) -> Vec<AlignedBuffer> {
        self.parts
    }

    /// Gives the parts up for shared, refcounted reading, without a copy.
    pub fn freeze(self) -> impl Iterator<Item = Bytes> {
        self.parts.into_iter().map(AlignedBuffer::freeze)
    }

    /// The content as one: copied, if it lies in several parts.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match <[AlignedBuffer; 1]>::try_from(self.parts) {
            Ok([part]) => part.freeze(),
            Err(parts) => Self::of(parts).parts().collect::<Vec<_>>().concat().into(),
        }
    }
}

/// One part, whatever its length.
impl From<AlignedBuffer> for Scatter {
    fn from(buffer: AlignedBuffer) -> Self {
        Self::of(vec![buffer])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: however much of it is filled at a time, each byte lands once and in order.
    #[test]
    fn parts_are_filled_as_one() {
        let length = 2 * PART_BYTES + 4096;
        for step in [4096, PART_BYTES, 100_000, length] {
            let mut scatter = Scatter::zeroed(length);
            let mut filled = 0;
            while filled < length {
                let mut left = step.min(length - filled);
                for part in scatter.unfilled(filled) {
                    let now = left.min(part.len());
                    for byte in &mut part[..now] {
                        *byte = u8::try_from(filled / 4096).unwrap() + 1;
                        filled += 1;
                    }
                    left -= now;
                }
            }
            assert_eq!(scatter.unfilled(length).count(), 0);
            let content = scatter.into_bytes();
            assert_eq!(content.len(), length);
            let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == at / 4096 + 1;
            assert!(content.iter().enumerate().all(is_right), "{step}");
        }
    }

    /// Goal: who holds a byte of a large read holds 64 KiB, and not all of it.
    #[test]
    fn parts_are_small() {
        let parts: Vec<Bytes> = Scatter::zeroed(3 * PART_BYTES + 1).freeze().collect();
        let lengths: Vec<usize> = parts.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [PART_BYTES, PART_BYTES, PART_BYTES, 4096]);
    }
}
