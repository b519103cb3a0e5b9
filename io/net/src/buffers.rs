//! Receive buffers, used again and again: a fresh large allocation per read
//! would cost more than the read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

/// Received pieces up to this length are copied into memory of their own: a
/// caller that keeps a header must not keep a whole buffer alive.
const COPY_BYTES_MAX: usize = 2048;

/// The sizes of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferSize {
    /// For connections that send calls and little else.
    Small,
    /// For datagrams, and data of 64 KiB.
    Datagram,
    /// For connections that have filled a small one, and data of 256 KiB.
    Large,
    /// For whole records: the largest NFS WRITE with all around it.
    Record,
}

/// Buffers that nobody uses, kept for the next need. Clones are handles on the
/// same ones, on any thread.
#[derive(Clone, Default)]
pub(crate) struct BufferPool {
    shelves: Arc<[Mutex<Vec<AlignedBuffer>>; BufferSize::ALL.len()]>,
}

/// A lent buffer, under the `Bytes` that the caller got.
struct Lent {
    buffer: Option<AlignedBuffer>,
    pool: BufferPool,
}

impl BufferSize {
    /// In ascending order.
    const ALL: [Self; 4] = [Self::Small, Self::Datagram, Self::Large, Self::Record];

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Small => 8 << 10,
            // With a block for what lies around that much data.
            Self::Datagram => (64 << 10) + BLOCK_BYTES,
            Self::Large => (256 << 10) + BLOCK_BYTES,
            Self::Record => (1 << 20) + (16 << 10),
        }
    }

    /// Memory that the allocator gives anew is cleared, which costs as much as to fill it.
    const fn kept_max(self) -> usize {
        match self {
            Self::Small => 128,
            // Those of unstable writes come back together, when they are flushed.
            Self::Datagram => 1024,
            Self::Large => 64,
            Self::Record => 96,
        }
    }

    fn of(buffer: &AlignedBuffer) -> Option<Self> {
        let mut sizes = Self::ALL.into_iter();
        sizes.find(|size| size.bytes() == buffer.len())
    }
}

impl BufferPool {
    /// A buffer of the size; what is in it is of no meaning.
    pub(crate) fn take(&self, size: BufferSize) -> AlignedBuffer {
        let kept = self.shelf(size).pop();
        kept.unwrap_or_else(|| AlignedBuffer::zeroed(size.bytes()))
    }

    /// A buffer of at least `bytes` bytes. **It may hold what somebody has
    /// received before**: whoever does not fill it must clear it.
    pub(crate) fn take_at_least(&self, bytes: usize) -> AlignedBuffer {
        let mut sizes = BufferSize::ALL.into_iter();
        match sizes.find(|size| size.bytes() >= bytes) {
            Some(size) => self.take(size),
            None => AlignedBuffer::zeroed(bytes),
        }
    }

    pub(crate) fn give_back(&self, buffer: AlignedBuffer) {
        let Some(size) = BufferSize::of(&buffer) else {
            return;
        };
        let mut shelf = self.shelf(size);
        if shelf.len() < size.kept_max() {
            shelf.push(buffer);
        }
    }

    /// The first `length` bytes of the buffer, shared, still aligned. The
    /// buffer comes back to the pool when the last reader has gone.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub(crate) fn share(&self, buffer: AlignedBuffer, length: usize) -> Bytes {
        let lent = Lent {
            buffer: Some(buffer),
            pool: self.clone(),
        };
        Bytes::from_owner(lent).slice(..length)
    }

    /// As [`Self::share`], but what is short gets memory of its own.
    pub(crate) fn share_received(&self, buffer: AlignedBuffer, length: usize) -> Bytes {
        if length > COPY_BYTES_MAX {
            return self.share(buffer, length);
        }
        let copy = Bytes::copy_from_slice(&buffer[..length]);
        self.give_back(buffer);
        copy
    }

    fn shelf(&self, size: BufferSize) -> MutexGuard<'_, Vec<AlignedBuffer>> {
        // The last reader may be on another thread; the lock is held for a push.
        self.shelves[size as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a buffer is used again after its last reader, and not before;
    /// short pieces do not hold one.
    #[test]
    fn buffers_come_back_after_their_last_reader() {
        let pool = BufferPool::default();
        let kept = |size| pool.shelf(size).len();
        let short = pool.share_received(pool.take(BufferSize::Large), 100);
        assert_eq!((short.len(), kept(BufferSize::Large)), (100, 1));
        let long = pool.share_received(pool.take(BufferSize::Large), 100_000);
        let part = long.slice(5..10);
        drop(long);
        assert_eq!(kept(BufferSize::Large), 0);
        drop(part);
        assert_eq!(kept(BufferSize::Large), 1);
        for size in BufferSize::ALL {
            let buffer = pool.take_at_least(size.bytes() - 1);
            assert_eq!(buffer.len(), size.bytes());
            pool.give_back(buffer);
            assert_eq!(kept(size), 1, "{size:?}");
        }
    }

    /// Goal: what is larger than any kept size is had too, and not kept.
    #[test]
    fn sizes_beyond_the_pool_are_made_and_freed() {
        let pool = BufferPool::default();
        let buffer = pool.take_at_least(5_000_000);
        assert!(buffer.len() >= 5_000_000);
        drop(pool.share(buffer, 100));
        assert!(BufferSize::ALL.map(|size| pool.shelf(size).len()) == [0; 4]);
    }

    /// Goal: a burst does not keep its memory for ever.
    #[test]
    fn the_pool_keeps_a_bounded_number() {
        let pool = BufferPool::default();
        for _ in 0..1000 {
            pool.give_back(AlignedBuffer::zeroed(BufferSize::Small.bytes()));
        }
        assert_eq!(pool.shelf(BufferSize::Small).len(), 128);
    }
}
