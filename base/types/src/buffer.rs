//! Memory that O_DIRECT accepts: whole 4 KiB blocks on 4 KiB boundaries,
//! allocated without `unsafe`.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a block: the unit of allocation, of checksums, and of the
/// alignment of direct I/O.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// An owned buffer of whole blocks, aligned for direct I/O.
///
/// It is filled by one owner, then [frozen](Self::freeze) into [`Bytes`] that
/// many share without a copy.
pub struct AlignedBuffer {
    blocks: Vec<Block>,
}

impl AlignedBuffer {
    /// A zeroed buffer of at least `length_bytes`, rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(length_bytes: usize) -> Self {
        let blocks = length_bytes.div_ceil(BLOCK_BYTES);
        // The allocator hands out zero pages; only small buffers pay for a fill.
        Self {
            blocks: Block::new_vec_zeroed(blocks).unwrap_or_else(|_| {
                // Every caller has bounded the length (base/limits) before.
                panic!("out of memory: {blocks} blocks")
            }),
        }
    }

    /// A buffer that begins with `bytes`, padded with zeros to whole blocks.
    #[must_use]
    pub fn padded_from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// Makes it `length_bytes` long at least, rounded up to whole blocks; what is new is zeros.
    pub fn grow(&mut self, length_bytes: usize) {
        let blocks = length_bytes.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks.resize_with(blocks, Block::new_zeroed);
        }
    }

    /// Gives the buffer up for shared, refcounted reading, without a copy.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.len())
    }
}

/// Whether `bytes` may be given to direct I/O as it is: starts on a block
/// boundary in memory and holds whole blocks.
#[must_use]
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is frozen stays aligned, so that one buffer goes from disk to socket.
    #[test]
    fn frozen_buffers_are_aligned_and_padded() {
        let bytes = AlignedBuffer::padded_from(&[7; 5000]).freeze();
        assert_eq!(bytes.len(), 8192);
        assert!(is_aligned(&bytes));
        assert!(is_aligned(&bytes.slice(4096..)));
        assert!(!is_aligned(&bytes.slice(1..4097)));
        assert_eq!((bytes[4999], bytes[5000]), (7, 0));
    }
}
