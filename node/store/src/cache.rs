//! The node's own read cache: checked blocks in memory, by disk address.
//!
//! The store looks here before it reads a disk and inserts what it has read and
//! checked. Disks are opened O_DIRECT, so there is no page cache beneath.
//!
//! **Policy.** S3-FIFO (Yang et al., *FIFO Queues are All You Need for Cache
//! Eviction*, SOSP 2023): what is new enters a small queue and leaves it soon
//! unless it was read twice again; what is asked for shortly after it left goes
//! straight into the main queue. So a scan passes through a tenth of the cache
//! and leaves the rest alone.
//!
//! **Granularity.** Entries are aligned groups of [`GROUP_BLOCKS`] blocks, so a
//! cached read of 1 MiB is some 17 look-ups and as many pieces, not 256. Which
//! queue a block belongs to and how often it was read is kept per block, as bits
//! of the group: a hot block does not hold its cold neighbours.
//!
//! **Memory.** What is inserted together is one buffer, cut at group edges
//! without a copy. It counts whole until its last piece has gone. Blocks that
//! move to the main queue are copied out of a buffer that they share, so it is
//! not held by one hot block. Every operation is O(1) per group, eviction
//! amortised. Nothing here depends on chance or time.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload};
use hashbrown::HashMap;

use self::written::WrittenBlocks;

/// Blocks of an entry: 64 KiB.
const GROUP_BLOCKS: u64 = 16;

/// Counted for an entry beside its blocks: its place in map and queues, its
/// segments, and the bookkeeping of their buffers.
const ENTRY_BYTES: usize = 256;

/// Counted for a group that is remembered without its content.
const GHOST_BYTES: usize = 64;

/// One part in this many of the capacity is for what is new.
const SMALL_SHARE: usize = 10;

/// One part in this many may lie in memory that it shares with others.
const SHARED_SHARE: usize = 4;

/// A set of blocks of a group, as bits.
type Mask = u16;

type GroupMap<Value> = HashMap<u64, Value, BuildHasherDefault<GroupHasher>>;

mod written;

#[cfg(test)]
mod tests;

/// A bounded cache of disk blocks.
pub(crate) struct Cache {
    capacity_bytes: usize,
    entries: GroupMap<Entry>,
    /// Groups with new blocks, oldest first; each at most once.
    small: VecDeque<u64>,
    /// Groups with blocks that have proved themselves; each at most once.
    main: VecDeque<u64>,
    small_blocks: usize,
    buffers: Buffers,
    ghosts: Ghosts,
    written: WrittenBlocks,
    stats: CacheStats,
}

/// What the cache has done so far and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    /// Blocks that were found.
    pub(crate) hit_blocks: u64,
    /// Blocks that were put in: mostly, what had not been found.
    pub(crate) inserted_blocks: u64,
    /// Blocks that went for others.
    pub(crate) evicted_blocks: u64,
}

/// An aligned group of blocks, some of them present.
#[derive(Default)]
struct Entry {
    /// In order of address, not overlapping.
    segments: Vec<Segment>,
    /// Present blocks that are new.
    small: Mask,
    /// Present blocks that have proved themselves.
    main: Mask,
    /// Present blocks that were written and not read yet.
    written: Mask,
    reads: ReadCounts,
    in_small: bool,
    in_main: bool,
}

/// Neighbouring blocks that lie in one buffer.
struct Segment {
    first: u8,
    bytes: Bytes,
    buffer: BufferId,
}

impl Cache {
    /// A cache that takes up to `capacity_bytes`, its own bookkeeping included;
    /// 0 switches it off.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes,
            entries: GroupMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_blocks: 0,
            buffers: Buffers::default(),
            ghosts: Ghosts::default(),
            written: WrittenBlocks::default(),
            stats: CacheStats::default(),
        }
    }

    /// Takes up to `capacity_bytes` from now on; what is too much goes at once.
    pub(crate) fn set_capacity(&mut self, capacity_bytes: usize) {
        self.capacity_bytes = capacity_bytes;
        self.evict();
    }

    /// The content of `block` and, where they lie in the same piece of memory,
    /// of blocks after it: whole blocks, at least one and at most `blocks`.
    ///
    /// `None` if `block` is not here; [`missing`](Self::missing) says how many
    /// are not. A caller that wants a range loops over both.
    pub(crate) fn get(&mut self, block: u64, blocks: u64) -> Option<Bytes> {
        let entry = self.entries.get_mut(&(block / GROUP_BLOCKS))?;
        let at = within_group(block);
        let segment = entry
            .segments
            .iter()
            .find(|segment| (segment.first..segment.end()).contains(&at))?;
        let end = u64::from(segment.end()).min(u64::from(at) + blocks);
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        let end = end as u8;
        let start = bytes_of(at - segment.first);
        let bytes = segment.bytes.slice(start..bytes_of(end - segment.first));
        entry.reads.count(mask(at, end));
        let first_reads = entry.written & mask(at, end);
        if first_reads != 0 {
            entry.written &= !first_reads;
            self.written.were_read(first_reads.count_ones());
        }
        self.stats.hit_blocks += u64::from(end - at);
        Some(bytes)
    }

    /// How many of `blocks` blocks from `block` on are not here before the
    /// first one that is. Counts as no read.
    pub(crate) fn missing(&self, block: u64, blocks: u64) -> u64 {
        self.distance(block, blocks, |present| present)
    }

    /// How many of `blocks` blocks from `block` on are here before the first one
    /// that is not. Counts as no read.
    pub(crate) fn present(&self, block: u64, blocks: u64) -> u64 {
        self.distance(block, blocks, |present| !present)
    }

    /// How many of `blocks` blocks from `block` on come before the first one that
    /// is looked for: `sought` makes it of what is present in a group.
    fn distance(&self, block: u64, blocks: u64, sought: impl Fn(Mask) -> Mask) -> u64 {
        let end = block.saturating_add(blocks);
        let mut at = block;
        while at < end {
            let group_end = group_end(at).min(end);
            let entry = self.entries.get(&(at / GROUP_BLOCKS));
            let present = entry.map_or(0, |entry| entry.small | entry.main);
            let distance = u64::from((sought(present) >> within_group(at)).trailing_zeros());
            if at + distance < group_end {
                return at + distance - block;
            }
            at = group_end;
        }
        blocks
    }

    /// Puts in the content of the blocks from `block` on; what was there of
    /// them is replaced. `bytes` is kept, not copied: no more memory than it
    /// shows may hang on it.
    ///
    /// # Panics
    /// If `bytes` are not whole blocks.
    pub(crate) fn insert(&mut self, block: u64, bytes: Bytes) {
        assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "not whole blocks");
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        if self.capacity_bytes == 0 || blocks == 0 {
            return;
        }
        let buffer = self.buffers.add(bytes.len(), false);
        let end = block + blocks;
        let mut at = block;
        while at < end {
            let group_end = group_end(at).min(end);
            let start = byte_distance(block, at);
            let part = bytes.slice(start..byte_distance(block, group_end));
            self.insert_part(at, part, buffer);
            at = group_end;
        }
        self.buffers.release(buffer);
        self.stats.inserted_blocks += blocks;
        self.evict();
    }

    /// The same for what was just written, if such is read often enough.
    ///
    /// `content` may lie in larger memory, which stays as long as it is here. So
    /// only a part of the cache is for such, and it is copied when it moves to the
    /// main queue. How it is cut into pieces, between blocks, makes no difference.
    pub(crate) fn insert_written(&mut self, block: u64, content: &Payload) {
        if self.capacity_bytes == 0 || !self.written.admits() {
            return;
        }
        let end = block + (content.len() / BLOCK_BYTES) as u64;
        let mut at = block;
        while at < end {
            let group_end = group_end(at).min(end);
            let (from, to) = (byte_distance(block, at), byte_distance(block, group_end));
            let buffer = self.buffers.add(to - from, true);
            let mut first = at;
            for piece in content.slice(from, to).into_pieces() {
                let blocks = (piece.len() / BLOCK_BYTES) as u64;
                self.insert_part(first, piece, buffer);
                first += blocks;
            }
            self.buffers.release(buffer);
            if let Some(entry) = self.entries.get_mut(&(at / GROUP_BLOCKS)) {
                entry.written |= mask_of_range(at, group_end);
            }
            self.stats.inserted_blocks += group_end - at;
            at = group_end;
        }
        self.evict();
        while self.buffers.shared_bytes > self.capacity_bytes / SHARED_SHARE {
            if !self.evict_small() {
                return;
            }
        }
    }

    /// Forgets the content of a range, present or not: its blocks were written
    /// or freed.
    pub(crate) fn invalidate(&mut self, block: u64, blocks: u64) {
        let end = block.saturating_add(blocks);
        let mut at = block;
        while at < end {
            let group_end = group_end(at).min(end);
            let gone = mask_of_range(at, group_end);
            self.ghosts.forget(at / GROUP_BLOCKS, gone);
            if let Some(entry) = self.entries.get_mut(&(at / GROUP_BLOCKS)) {
                self.small_blocks -= count(entry.small & gone);
                entry.drop_blocks(gone, &mut self.buffers, &mut self.written);
                // An entry without blocks stays until its turn in the queue.
            }
            at = group_end;
        }
    }

    /// Bytes taken now, bookkeeping included; never above the capacity when a
    /// call has returned.
    pub(crate) fn used_bytes(&self) -> usize {
        self.buffers.bytes + self.entries.len() * ENTRY_BYTES + self.ghosts.used_bytes()
    }

    /// What has been found and put in so far.
    pub(crate) const fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Inserts blocks that lie in one group.
    fn insert_part(&mut self, block: u64, bytes: Bytes, buffer: BufferId) {
        let group = block / GROUP_BLOCKS;
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        let new = mask_of_range(block, block + blocks);
        let returned = self.ghosts.take(group, new);
        let entry = self.entries.entry(group).or_default();
        let was = (entry.small, entry.main, entry.reads);
        self.small_blocks -= count(entry.small & new);
        entry.drop_blocks(new, &mut self.buffers, &mut self.written);
        entry.put(within_group(block), bytes, buffer);
        self.buffers.hold(buffer);
        // Replaced content keeps its standing.
        entry.reads = was.2;
        let to_main = (was.1 | (returned & !was.0)) & new;
        entry.main |= to_main;
        entry.small |= new & !to_main;
        self.small_blocks += count(new & !to_main);
        if entry.small != 0 && !std::mem::replace(&mut entry.in_small, true) {
            self.small.push_back(group);
        }
        if entry.main != 0 && !std::mem::replace(&mut entry.in_main, true) {
            self.main.push_back(group);
        }
    }

    fn evict(&mut self) {
        while self.used_bytes() > self.capacity_bytes {
            let small_bytes = self.small_blocks * BLOCK_BYTES + self.small.len() * ENTRY_BYTES;
            let from_small = small_bytes > self.capacity_bytes / SMALL_SHARE;
            if from_small || self.main.is_empty() {
                if !self.evict_small() && !self.ghosts.forget_oldest() {
                    return;
                }
            } else {
                self.evict_main();
            }
        }
    }

    /// The oldest of the new groups: blocks that were read twice move to the
    /// main queue, the others go and are remembered. False if there is none.
    fn evict_small(&mut self) -> bool {
        let Some(group) = self.small.pop_front() else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(&group) else {
            return true;
        };
        entry.in_small = false;
        self.small_blocks -= count(entry.small);
        let proved = entry.small & entry.reads.at_least_two();
        let leaving = entry.small & !proved;
        self.stats.evicted_blocks += count(leaving) as u64;
        entry.drop_blocks(leaving, &mut self.buffers, &mut self.written);
        entry.small = 0;
        entry.main |= proved;
        entry.reads.clear(proved);
        if proved != 0 {
            entry.compact(&mut self.buffers);
            if !std::mem::replace(&mut entry.in_main, true) {
                self.main.push_back(group);
            }
        }
        self.drop_if_empty(group);
        if leaving != 0 {
            self.ghosts.remember(group, leaving, self.capacity_bytes);
        }
        true
    }

    /// The group at the hand of the main queue: blocks that were read since
    /// get another round, the others go.
    fn evict_main(&mut self) {
        let Some(group) = self.main.pop_front() else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&group) else {
            return;
        };
        let kept = entry.main & entry.reads.at_least_one();
        let leaving = entry.main & !kept;
        entry.reads.discount(kept);
        if leaving != 0 {
            self.stats.evicted_blocks += count(leaving) as u64;
            entry.drop_blocks(leaving, &mut self.buffers, &mut self.written);
            entry.compact(&mut self.buffers);
        }
        entry.in_main = kept != 0;
        if kept != 0 {
            self.main.push_back(group);
        }
        self.drop_if_empty(group);
    }

    fn drop_if_empty(&mut self, group: u64) {
        let unused = |entry: &Entry| !entry.in_small && !entry.in_main;
        if self.entries.get(&group).is_some_and(unused) {
            self.entries.remove(&group);
        }
    }
}

impl Entry {
    /// Forgets blocks, and all that is known of them.
    fn drop_blocks(&mut self, gone: Mask, buffers: &mut Buffers, written: &mut WrittenBlocks) {
        if (self.small | self.main) & gone == 0 {
            return;
        }
        let unread = self.written & gone;
        if unread != 0 {
            self.written &= !unread;
            written.have_gone(unread.count_ones());
        }
        self.small &= !gone;
        self.main &= !gone;
        self.reads.clear(gone);
        for segment in std::mem::take(&mut self.segments) {
            for (first, end) in runs(mask(segment.first, segment.end()) & !gone) {
                buffers.hold(segment.buffer);
                self.segments.push(segment.part(first, end));
            }
            buffers.release(segment.buffer);
        }
    }

    /// Puts a segment where there is none; the caller holds the buffer for it.
    fn put(&mut self, first: u8, bytes: Bytes, buffer: BufferId) {
        let at = self.segments.partition_point(|other| other.first < first);
        let segment = Segment {
            first,
            bytes,
            buffer,
        };
        self.segments.insert(at, segment);
    }

    /// Copies neighbouring blocks together unless they are one segment that has
    /// its buffer for itself, so that they hold no memory but their own.
    fn compact(&mut self, buffers: &mut Buffers) {
        let compact = |segment: &Segment| buffers.is_own(segment.buffer, segment.bytes.len());
        let apart = |pair: &[Segment]| pair[0].end() < pair[1].first;
        if self.segments.iter().all(compact) && self.segments.windows(2).all(apart) {
            return;
        }
        let old = std::mem::take(&mut self.segments);
        for (first, end) in runs(self.small | self.main) {
            let mut copy = AlignedBuffer::zeroed(bytes_of(end - first));
            for segment in old.iter().filter(|s| s.first >= first && s.first < end) {
                let at = bytes_of(segment.first - first);
                copy[at..at + segment.bytes.len()].copy_from_slice(&segment.bytes);
            }
            let buffer = buffers.add(copy.len(), false);
            self.put(first, copy.freeze(), buffer);
        }
        for segment in old {
            buffers.release(segment.buffer);
        }
    }
}

impl Segment {
    /// The block after the last.
    fn end(&self) -> u8 {
        let blocks = self.bytes.len() / BLOCK_BYTES;
        self.first + u8::try_from(blocks).unwrap_or(u8::MAX)
    }

    fn part(&self, first: u8, end: u8) -> Self {
        let start = bytes_of(first - self.first);
        Self {
            first,
            bytes: self.bytes.slice(start..bytes_of(end - self.first)),
            buffer: self.buffer,
        }
    }
}

/// How often each block of a group was read, 0 to 3: bit `i` of both numbers
/// together is the counter of block `i`.
#[derive(Clone, Copy, Default)]
struct ReadCounts {
    low: Mask,
    high: Mask,
}

impl ReadCounts {
    const fn count(&mut self, read: Mask) {
        let rising = read & !(self.low & self.high);
        self.high ^= self.low & rising;
        self.low ^= rising;
    }

    const fn discount(&mut self, blocks: Mask) {
        let falling = blocks & self.at_least_one();
        self.high ^= falling & !self.low;
        self.low ^= falling;
    }

    const fn clear(&mut self, blocks: Mask) {
        self.low &= !blocks;
        self.high &= !blocks;
    }

    const fn at_least_one(self) -> Mask {
        self.low | self.high
    }

    const fn at_least_two(self) -> Mask {
        self.high
    }
}

/// Memory that was inserted at once, and how many segments still lie in it.
#[derive(Default)]
struct Buffers {
    table: Vec<Buffer>,
    free: Vec<BufferId>,
    /// Of all that is held by anyone.
    bytes: usize,
    /// Of these, in memory that others may hold as well.
    shared_bytes: usize,
}

struct Buffer {
    bytes: usize,
    holders: usize,
    is_shared: bool,
}

#[derive(Clone, Copy)]
struct BufferId(usize);

impl Buffers {
    /// A buffer with one holder.
    fn add(&mut self, bytes: usize, is_shared: bool) -> BufferId {
        self.bytes += bytes;
        if is_shared {
            self.shared_bytes += bytes;
        }
        let buffer = Buffer {
            bytes,
            holders: 1,
            is_shared,
        };
        match self.free.pop() {
            Some(id) => {
                self.table[id.0] = buffer;
                id
            }
            None => {
                self.table.push(buffer);
                BufferId(self.table.len() - 1)
            }
        }
    }

    fn hold(&mut self, id: BufferId) {
        self.table[id.0].holders += 1;
    }

    fn release(&mut self, id: BufferId) {
        let buffer = &mut self.table[id.0];
        buffer.holders -= 1;
        if buffer.holders == 0 {
            self.bytes -= buffer.bytes;
            if buffer.is_shared {
                self.shared_bytes -= buffer.bytes;
            }
            self.free.push(id);
        }
    }

    /// Whether a segment of `bytes` is all that lies in the buffer.
    fn is_own(&self, id: BufferId, bytes: usize) -> bool {
        let buffer = &self.table[id.0];
        buffer.bytes == bytes && !buffer.is_shared
    }
}

/// Blocks that left the small queue not long ago, without their content.
#[derive(Default)]
struct Ghosts {
    groups: GroupMap<Ghost>,
    /// (group, stamp), oldest first; those with an old stamp are void.
    queue: VecDeque<(u64, u64, Mask)>,
    /// Of all blocks in the queue, as if they had their content.
    blocks: usize,
    stamp: u64,
}

struct Ghost {
    blocks: Mask,
    stamp: u64,
}

impl Ghosts {
    /// Remembers as many blocks as the cache can hold.
    fn remember(&mut self, group: u64, blocks: Mask, capacity_bytes: usize) {
        self.stamp += 1;
        let stamp = self.stamp;
        let ghost = self.groups.entry(group).or_insert(Ghost { blocks, stamp });
        ghost.blocks |= blocks;
        ghost.stamp = stamp;
        self.queue.push_back((group, stamp, blocks));
        self.blocks += count(blocks);
        while self.blocks > capacity_bytes / BLOCK_BYTES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((group, stamp, blocks)) = self.queue.pop_front() else {
            return false;
        };
        self.blocks -= count(blocks);
        if self.groups.get(&group).is_some_and(|g| g.stamp == stamp) {
            self.groups.remove(&group);
        }
        true
    }

    /// Which of `blocks` were remembered; they are not any more.
    fn take(&mut self, group: u64, blocks: Mask) -> Mask {
        let Some(ghost) = self.groups.get_mut(&group) else {
            return 0;
        };
        let taken = ghost.blocks & blocks;
        ghost.blocks &= !blocks;
        if ghost.blocks == 0 {
            self.groups.remove(&group);
        }
        taken
    }

    fn forget(&mut self, group: u64, blocks: Mask) {
        self.take(group, blocks);
    }

    fn used_bytes(&self) -> usize {
        self.queue.len() * GHOST_BYTES
    }
}

/// Spreads group numbers over all bits; the same in every run.
#[derive(Default)]
struct GroupHasher(u64);

impl Hasher for GroupHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing; the table uses the highest and the lowest bits.
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const fn within_group(block: u64) -> u8 {
    (block % GROUP_BLOCKS) as u8
}

const fn group_end(block: u64) -> u64 {
    (block / GROUP_BLOCKS + 1).saturating_mul(GROUP_BLOCKS)
}

const fn bytes_of(blocks: u8) -> usize {
    blocks as usize * BLOCK_BYTES
}

#[expect(clippy::cast_possible_truncation, reason = "lies within one buffer")]
const fn byte_distance(from: u64, to: u64) -> usize {
    (to - from) as usize * BLOCK_BYTES
}

const fn count(mask: Mask) -> usize {
    mask.count_ones() as usize
}

/// Blocks `first..end` of a group.
#[expect(clippy::cast_possible_truncation, reason = "the mask has 16 bits")]
const fn mask(first: u8, end: u8) -> Mask {
    (((1_u32 << end) - 1) & !((1_u32 << first) - 1)) as Mask
}

/// Blocks `block..end` of the disk, which lie in one group.
fn mask_of_range(block: u64, end: u64) -> Mask {
    let first = within_group(block);
    mask(first, within_group(end - 1) + 1)
}

/// The runs of neighbouring blocks in a mask, as (first, end).
fn runs(mut mask: Mask) -> impl Iterator<Item = (u8, u8)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let first = mask.trailing_zeros();
        let length = (mask >> first).trailing_ones();
        let end = first + length;
        mask &= !self::mask(u8::try_from(first).ok()?, u8::try_from(end).ok()?);
        Some((u8::try_from(first).ok()?, u8::try_from(end).ok()?))
    })
}
