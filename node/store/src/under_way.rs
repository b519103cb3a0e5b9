//! Disk reads under way: who wants blocks that are being fetched waits for
//! them, instead of having the disk fetch them twice.

use std::collections::BTreeMap;

use crossdock_disk::DiskToken;

use crate::read::Wanted;
use crate::runs::DiskRange;

/// The reads under way that others may wait for. Their ranges do not meet.
#[derive(Debug, Default)]
pub(crate) struct ReadsUnderWay {
    /// By first block.
    reads: BTreeMap<u64, UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    token: DiskToken,
    checksums: Vec<u32>,
    waiters: Vec<Waiter>,
}

/// A read that waits for a part of what is fetched for another one.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Number of the read.
    pub(crate) read: u64,
    pub(crate) wanted: Wanted,
}

impl UnderWay {
    const fn end(&self, first: u64) -> u64 {
        first + self.checksums.len() as u64
    }
}

impl ReadsUnderWay {
    /// A read begins. Nobody can wait for one that meets another.
    pub(crate) fn begin(&mut self, token: DiskToken, range: DiskRange, checksums: Vec<u32>) {
        if self.ahead_of(range.block, range.blocks) == range.blocks
            && self.covering(range.block).is_none()
        {
            let read = UnderWay {
                token,
                checksums,
                waiters: Vec::new(),
            };
            self.reads.insert(range.block, read);
        }
    }

    /// `read` wants contiguous blocks, of which the first is not in the cache. If
    /// that one is on its way with the same content, the read waits for it and as
    /// many after it as are. Returns how many, and the disk request.
    pub(crate) fn join(&mut self, read: u64, stretch: &[(u64, u32)]) -> Option<(usize, DiskToken)> {
        let block = stretch.first()?.0;
        let first = self.covering(block)?;
        let under_way = self.reads.get_mut(&first)?;
        let skip = usize::try_from(block - first).ok()?;
        let coming = under_way.checksums.get(skip..)?;
        let checksums: Vec<u32> = (coming.iter().zip(stretch))
            .take_while(|(coming, (_, wanted))| *coming == wanted)
            .map(|(coming, _)| *coming)
            .collect();
        if checksums.is_empty() {
            return None; // They have been written over since: that is another content.
        }
        let joined = checksums.len();
        let range = DiskRange {
            block,
            blocks: joined as u64,
        };
        let wanted = Wanted { range, checksums };
        under_way.waiters.push(Waiter { read, wanted });
        Some((joined, under_way.token))
    }

    /// The read waits for nothing any more. Returns what it has waited for.
    pub(crate) fn leave(&mut self, read: u64) -> Vec<DiskToken> {
        let mut left = Vec::new();
        for under_way in self.reads.values_mut() {
            let before = under_way.waiters.len();
            under_way.waiters.retain(|waiter| waiter.read != read);
            if under_way.waiters.len() < before {
                left.push(under_way.token);
            }
        }
        left
    }

    /// What the read waits for, of what others have asked for.
    pub(crate) fn waited_for_by(&self, read: u64) -> Vec<DiskToken> {
        let reads = self.reads.values();
        let waited = reads.filter(|one| one.waiters.iter().any(|waiter| waiter.read == read));
        waited.map(|one| one.token).collect()
    }

    /// The reads that wait for a request whose first block is `block`.
    pub(crate) fn waiters(&self, token: DiskToken, block: u64) -> impl Iterator<Item = u64> {
        let read = self.reads.get(&block).filter(|read| read.token == token);
        let waiters = read.map(|read| &read.waiters).into_iter().flatten();
        waiters.map(|waiter| waiter.read)
    }

    /// How many of `blocks` blocks from `block` on are on their way in one read.
    pub(crate) fn coming(&self, block: u64, blocks: u64) -> u64 {
        let first = self.covering(block);
        let read = first.and_then(|first| Some((first, self.reads.get(&first)?)));
        read.map_or(0, |(first, read)| blocks.min(read.end(first) - block))
    }

    /// How many of `blocks` blocks from `block` on come before the next one that is
    /// on its way.
    pub(crate) fn ahead_of(&self, block: u64, blocks: u64) -> u64 {
        let next = self.reads.range(block + 1..).next();
        next.map_or(blocks, |(first, _)| blocks.min(first - block))
    }

    /// The read has ended. Returns who waited for it.
    pub(crate) fn end(&mut self, token: DiskToken, block: u64) -> Vec<Waiter> {
        match self.reads.get(&block) {
            Some(read) if read.token == token => {}
            _ => return Vec::new(),
        }
        self.reads
            .remove(&block)
            .map_or_else(Vec::new, |read| read.waiters)
    }

    /// The first block of the read that fetches `block`.
    fn covering(&self, block: u64) -> Option<u64> {
        let (first, read) = self.reads.range(..=block).next_back()?;
        (block < read.end(*first)).then_some(*first)
    }
}
