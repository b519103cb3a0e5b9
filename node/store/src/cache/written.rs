//! Whether it pays to cache what is written: whether it is read while it is here.

/// One write in so many is cached to find out, while it does not pay.
const SAMPLE: u32 = 16;

/// It pays if one block in so many, or more, is read.
const WORTH: u32 = 8;

/// What is older than so many blocks counts half.
const MEMORY_BLOCKS: u32 = 4096;

/// What became of written blocks that were cached.
#[derive(Debug, Default)]
pub(super) struct WrittenBlocks {
    read: u32,
    unread: u32,
    writes: u32,
}

impl WrittenBlocks {
    /// Whether the next write is cached.
    pub(super) const fn admits(&mut self) -> bool {
        self.writes = self.writes.wrapping_add(1);
        self.read * WORTH >= self.unread || self.writes.is_multiple_of(SAMPLE)
    }

    /// So many were read for the first time.
    pub(super) const fn were_read(&mut self, blocks: u32) {
        self.read += blocks;
        self.age();
    }

    /// So many have gone without having been read.
    pub(super) const fn have_gone(&mut self, blocks: u32) {
        self.unread += blocks;
        self.age();
    }

    const fn age(&mut self) {
        if self.read + self.unread > MEMORY_BLOCKS {
            self.read /= 2;
            self.unread /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: writes that nobody reads are let pass by but for a few; reads of those
    /// few bring the others back.
    #[test]
    fn writes_are_cached_while_they_are_read() {
        let mut written = WrittenBlocks::default();
        assert!(written.admits(), "nothing is known against it");
        written.have_gone(10_000);
        let admitted = (0..1600).filter(|_| written.admits()).count();
        assert_eq!(admitted, 100);
        written.were_read(2000);
        assert!((0..100).all(|_| written.admits()));
    }
}
