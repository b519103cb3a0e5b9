//! What the cache keeps, beside a plain LRU and a model without a bound.

use std::collections::BTreeMap;

use super::*;

const BLOCK: usize = BLOCK_BYTES;

/// Blocks that tell their number and a generation.
fn content(block: u64, blocks: u64, generation: u64) -> Bytes {
    let mut buffer = AlignedBuffer::zeroed(byte_distance(0, blocks));
    for (index, bytes) in buffer.chunks_mut(BLOCK).enumerate() {
        bytes[..8].copy_from_slice(&(block + index as u64).to_be_bytes());
        bytes[8..16].copy_from_slice(&generation.to_be_bytes());
    }
    buffer.freeze()
}

/// A small generator: tests must not depend on chance.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }
}

/// Goal: what was inserted at once is found in pieces of 64 KiB, and the blocks
/// that are not there are counted.
#[test]
fn a_mebibyte_is_found_in_seventeen_pieces() {
    let mut cache = Cache::new(4 << 20);
    cache.insert(1000, content(1000, 256, 1));
    let (mut at, mut pieces) = (1000, 0);
    while at < 1256 {
        let bytes = cache.get(at, 1256 - at).expect("it was inserted");
        assert_eq!(bytes[..8], at.to_be_bytes());
        at += (bytes.len() / BLOCK) as u64;
        pieces += 1;
    }
    assert_eq!(pieces, 17);
    assert_eq!(cache.get(1010, 1).expect("it was inserted").len(), BLOCK);
    assert!(cache.get(999, 1).is_none());
    assert_eq!(cache.missing(990, 20), 10);
    assert_eq!(cache.missing(1256, 64), 64);
    assert_eq!(cache.missing(1255, 64), 0);
    cache.invalidate(1020, 30);
    assert_eq!(cache.missing(1020, 64), 30);
    assert!(cache.get(1019, 5).is_some_and(|bytes| bytes.len() == BLOCK));
}

/// Goal: a cache of no size takes nothing, and one that is smaller than what is
/// inserted does not keep it.
#[test]
fn what_does_not_fit_is_not_kept() {
    for capacity_bytes in [0, 1000, 10 * BLOCK] {
        let mut cache = Cache::new(capacity_bytes);
        cache.insert(0, content(0, 256, 1));
        assert!(cache.used_bytes() <= capacity_bytes);
        assert!(cache.get(0, 1).is_none());
    }
}

/// Goal: whatever is inserted, invalidated and read in any order, the cache
/// never shows anything but the newest content, and never takes more than its
/// capacity.
#[test]
fn it_shows_the_newest_content_and_keeps_its_bound() {
    let mut draws = Draws(7);
    for capacity_bytes in [300_000, 1 << 20, 8 << 20] {
        let mut cache = Cache::new(capacity_bytes);
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for generation in 1..20_000 {
            let block = draws.below(1500);
            let size = draws.index(4);
            let blocks = 1 + draws.below([1, 4, 20, 256][size]);
            match draws.below(8) {
                0 => {
                    cache.invalidate(block, blocks);
                    newest.retain(|at, _| !(block..block + blocks).contains(at));
                }
                1..4 => {
                    cache.insert(block, content(block, blocks, generation));
                    newest.extend((block..block + blocks).map(|block| (block, generation)));
                }
                _ => check_range(&mut cache, &newest, block, blocks),
            }
            assert!(cache.used_bytes() <= capacity_bytes);
        }
        assert!(cache.stats().hit_blocks > 0);
        cache.invalidate(0, 2000);
        assert_eq!(cache.missing(0, 2000), 2000);
        assert_eq!(cache.buffers.bytes, 0, "forgotten memory is free");
        assert_eq!(cache.small_blocks, 0);
    }
}

fn check_range(cache: &mut Cache, newest: &BTreeMap<u64, u64>, block: u64, blocks: u64) {
    let end = block + blocks;
    let mut at = block;
    while at < end {
        let missing = cache.missing(at, end - at);
        assert_eq!(cache.get(at, end - at).is_none(), missing > 0);
        let Some(bytes) = cache.get(at, end - at) else {
            at += missing;
            continue;
        };
        for bytes in bytes.chunks(BLOCK) {
            let generation = newest.get(&at).expect("invalidated, but shown");
            assert_eq!(bytes[..8], at.to_be_bytes());
            assert_eq!(bytes[8..16], generation.to_be_bytes(), "block {at}");
            at += 1;
        }
    }
}

/// Goal: a cache that is made smaller while it is full keeps its new bound at once, and
/// takes more again when it may.
#[test]
fn it_follows_a_change_of_its_size() {
    let full = 8 << 20;
    let mut cache = Cache::new(full);
    let fill = |cache: &mut Cache| {
        for round in 0..16 {
            cache.insert(round * 256, content(round * 256, 256, 1));
        }
    };
    fill(&mut cache);
    assert!(cache.used_bytes() > full / 2);
    for capacity_bytes in [2 << 20, 0] {
        cache.set_capacity(capacity_bytes);
        assert!(cache.used_bytes() <= capacity_bytes);
    }
    cache.set_capacity(full);
    fill(&mut cache);
    assert!(cache.used_bytes() > full / 2 && cache.used_bytes() <= full);
}

/// Goal: one hot block does not hold the megabyte that it was read with.
#[test]
fn a_hot_block_is_copied_out_of_its_buffer() {
    let capacity_bytes = 4 << 20;
    let mut cache = Cache::new(capacity_bytes);
    for round in 0..64 {
        let block = round * 256;
        cache.insert(block, content(block, 256, 1));
        cache.get(block + 7, 1);
        cache.get(block + 7, 1);
    }
    let kept = (0..64).filter(|round| cache.get(round * 256 + 7, 1).is_some());
    assert_eq!(kept.count(), 64);
    assert!(cache.used_bytes() <= capacity_bytes);
}

/// Blocks by last use; as much content as the cache has, with no bookkeeping.
struct Lru {
    capacity_blocks: usize,
    used_at: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    now: u64,
}

impl Lru {
    fn read(&mut self, block: u64) -> bool {
        self.now += 1;
        let before = self.used_at.insert(block, self.now);
        if let Some(before) = before {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.now, block);
        if self.used_at.len() > self.capacity_blocks {
            let (_, oldest) = self.by_use.pop_first().expect("it is full");
            self.used_at.remove(&oldest);
        }
        before.is_some()
    }
}

/// A trace as (first block, blocks) of reads.
type Trace = Vec<(u64, u64)>;

/// Hit ratios (ours, LRU) of a trace, where ours has `capacity_blocks` of
/// memory with its bookkeeping, and LRU as much for content alone.
fn hit_ratios(name: &str, trace: &Trace, capacity_blocks: usize) -> (f64, f64) {
    let mut cache = Cache::new(capacity_blocks * BLOCK);
    let mut lru = Lru {
        capacity_blocks,
        used_at: BTreeMap::new(),
        by_use: BTreeMap::new(),
        now: 0,
    };
    let (mut hits, mut lru_hits, mut total) = (0, 0, 0);
    for &(block, blocks) in trace {
        let end = block + blocks;
        let mut at = block;
        while at < end {
            let missing = cache.missing(at, end - at);
            if missing > 0 {
                cache.insert(at, content(at, missing, 1));
                at += missing;
            } else if let Some(bytes) = cache.get(at, end - at) {
                hits += bytes.len() / BLOCK;
                at += (bytes.len() / BLOCK) as u64;
            }
        }
        lru_hits += (block..end).filter(|&block| lru.read(block)).count();
        total += end - block;
    }
    let (ours, lru) = (hits as f64 / total as f64, lru_hits as f64 / total as f64);
    println!("{name:<44} ours {ours:.3}  LRU {lru:.3}");
    (ours, lru)
}

/// Places of `count` pieces, the most wanted first, wanted as Zipf's law says
/// (exponent 0.9), strewn over the disk; `draw` picks one.
struct Zipf {
    sums: Vec<f64>,
    places: Vec<u64>,
}

impl Zipf {
    fn new(count: u64, draws: &mut Draws) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| 1.0 / ((rank + 1) as f64).powf(0.9);
        let sums = (0..count).map(|rank| {
            sum += weight(rank);
            sum
        });
        let mut places: Vec<u64> = (0..count).collect();
        let sums = sums.collect();
        for last in (1..places.len()).rev() {
            let other = draws.index(last + 1);
            places.swap(last, other);
        }
        Self { sums, places }
    }

    fn draw(&self, draws: &mut Draws) -> u64 {
        let all = self.sums[self.sums.len() - 1];
        let point = draws.below(1 << 40) as f64 / (1_u64 << 40) as f64 * all;
        self.places[self.sums.partition_point(|&sum| sum < point)]
    }
}

const CAPACITY_BLOCKS: usize = 2048;

/// Goal: where plain popularity decides, the cache is about as good as LRU or
/// better, though it pays for its bookkeeping: single blocks strewn among cold
/// ones, and whole stripe pieces.
#[test]
fn zipf_is_no_worse_than_lru() {
    let mut draws = Draws(1);
    for (name, count, blocks) in [("zipf, 4 KiB", 20_000, 1), ("zipf, 256 KiB", 400, 64)] {
        let zipf = Zipf::new(count, &mut draws);
        let reads = 400_000 / blocks;
        let trace = (0..reads).map(|_| (zipf.draw(&mut draws) * blocks, blocks));
        let (ours, lru) = hit_ratios(name, &trace.collect(), CAPACITY_BLOCKS);
        assert!(ours >= lru * 0.95, "{name}: ours {ours:.3}, LRU {lru:.3}");
    }
}

/// Goal: a backup that reads everything once, 1 MiB at a time, does not drive
/// out what is wanted again.
#[test]
fn a_scan_beside_zipf_hurts_less_than_with_lru() {
    let mut draws = Draws(2);
    for (name, count, blocks) in [
        ("zipf, 4 KiB + scan", 20_000, 1),
        ("zipf, 256 KiB + scan", 400, 64),
    ] {
        let zipf = Zipf::new(count, &mut draws);
        let mut trace = Trace::new();
        for round in 0..1200 {
            let wanted = (0..256 / blocks).map(|_| (zipf.draw(&mut draws) * blocks, blocks));
            trace.extend(wanted);
            trace.push((1_000_000 + round * 256, 256));
        }
        let (ours, lru) = hit_ratios(name, &trace, CAPACITY_BLOCKS);
        assert!(ours > lru * 1.1, "{name}: ours {ours:.3}, LRU {lru:.3}");
    }
}

/// Goal: reading again and again what is a little larger than the cache finds
/// most of it, where LRU finds nothing.
#[test]
fn a_loop_larger_than_the_cache_is_found_in_part() {
    let blocks = 64;
    let pieces = (CAPACITY_BLOCKS as u64 + CAPACITY_BLOCKS as u64 / 5) / blocks;
    let trace = (0..100 * pieces).map(|read| (read % pieces * blocks, blocks));
    let (ours, lru) = hit_ratios("loop of 1.2 capacities", &trace.collect(), CAPACITY_BLOCKS);
    assert_eq!(lru, 0.0);
    assert!(ours > 0.3, "ours {ours:.3}");
}

/// Goal: what was written takes its part of the cache and no more, and is copied
/// out of the memory that it shares when it proves itself.
#[test]
fn written_blocks_do_not_hold_on_to_shared_memory() {
    let mut cache = Cache::new(1 << 20);
    let large = Bytes::from(vec![7; 1 << 20]);
    let group = |part: u64| {
        let at = usize::try_from(part).expect("few") << 16;
        Payload::from(large.slice(at..at + (64 << 10)))
    };
    for part in 0..16 {
        cache.insert_written(part * 16_000, &group(part));
        cache.get(part * 16_000, 16); // They are read, so they are worth it.
    }
    assert!(cache.buffers.shared_bytes <= (1 << 20) / 4);
    let newest = 15 * 16_000;
    assert!(cache.get(newest, 16).is_some());
    assert!(cache.get(0, 16).is_none(), "the oldest have gone");
    // Read again, it goes to the main queue, into memory of its own.
    for part in 16..24 {
        cache.insert_written(part * 16_000, &group(part % 16));
    }
    let kept = cache.get(newest, 16).expect("it has proved itself");
    assert!(!large.as_ptr_range().contains(&kept.as_ptr()));
    assert_eq!(kept[..], large[..64 << 10]);
}
