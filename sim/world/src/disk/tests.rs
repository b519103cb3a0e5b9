use crossdock_disk::{BlockingDisk, suite};
use crossdock_types::{AlignedBuffer, Scatter};

use super::*;

const BLOCKS: u64 = 32;
const LENGTH_BYTES: u64 = BLOCKS * BLOCK;

struct SimRig {
    seed: u64,
}

impl suite::Rig for SimRig {
    type Disk = SimDisk;

    fn create(&mut self, length_bytes: u64) -> SimDisk {
        self.seed += 1;
        SimDisk::new(self.seed, length_bytes, SimDiskOptions::default())
    }

    fn reopen(&mut self, disk: SimDisk) -> SimDisk {
        disk.crashed(&mut Random::new(self.seed))
    }

    fn wait(&mut self, disk: &mut SimDisk) -> DiskCompletion {
        disk.step().expect("a request in flight")
    }
}

fn block_of(byte: u8) -> Bytes {
    let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
    buffer.fill(byte);
    buffer.freeze()
}

fn submit(disk: &mut SimDisk, token: u64, operation: DiskOperation) {
    disk.submit(DiskRequest {
        token: DiskToken(token),
        operation,
    });
}

fn submit_write(disk: &mut SimDisk, block: u64, byte: u8) {
    submit_write_as(disk, block, byte, false);
}

fn submit_write_as(disk: &mut SimDisk, block: u64, byte: u8, is_durable: bool) {
    let operation = DiskOperation::Write {
        offset_bytes: block * BLOCK,
        pieces: vec![block_of(byte)],
        is_durable,
    };
    submit(disk, block, operation);
}

fn write(disk: &mut SimDisk, block: u64, byte: u8) {
    submit_write(disk, block, byte);
    disk.step().expect("a completion").result.expect("to write");
}

fn flush(disk: &mut SimDisk) -> Result<DiskOutput, DiskError> {
    submit(disk, u64::MAX, DiskOperation::Flush);
    disk.step().expect("a completion").result
}

fn peek(disk: &SimDisk, block: u64) -> Vec<u8> {
    let mut content = vec![0; BLOCK_BYTES];
    disk.peek(block * BLOCK, &mut content);
    content
}

fn all_are(content: &[u8], byte: u8) -> bool {
    content.iter().all(|&found| found == byte)
}

/// Goal: without faults the twin is a disk like the real ones.
#[test]
fn the_simulated_disk_passes_the_suite() {
    for seed in [1, 1000, 2000] {
        suite::run(&mut SimRig { seed });
    }
}

/// Goal: the same for the blocking face.
#[test]
fn the_blocking_face_passes_the_suite() {
    let disk = SimBlockingDisk::new(1, 0, SimDiskOptions::default());
    suite::run_blocking(&disk);
}

/// Goal: a crash keeps what was flushed, and leaves each sector of the rest
/// old or new; over the seeds all of kept, lost and torn occur.
#[test]
fn a_crash_keeps_what_was_flushed_and_tears_the_rest() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        write(&mut disk, 1, 1);
        write(&mut disk, 2, 1);
        flush(&mut disk).expect("to flush");
        write(&mut disk, 2, 2); // Completed, not flushed.
        submit_write(&mut disk, 3, 2); // Not even completed.
        disk.crash(&mut Random::new(seed));
        assert_eq!(disk.in_flight(), 0);
        assert!(all_are(&peek(&disk, 1), 1), "seed {seed}");
        for (block, old) in [(2, 1), (3, 0)] {
            let content = peek(&disk, block);
            for sector in content.chunks(512) {
                assert!(all_are(sector, old) || all_are(sector, 2), "seed {seed}");
            }
            match () {
                () if all_are(&content, 2) => kept += 1,
                () if all_are(&content, old) => lost += 1,
                () => torn += 1,
            }
        }
    }
    assert!(kept > 50 && lost > 50 && torn > 50, "{kept} {lost} {torn}");
}

/// Goal: a flush covers what had completed when it was submitted, not what
/// completed while it ran.
#[test]
fn a_flush_does_not_cover_what_completes_after_its_start() {
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        submit_write(&mut disk, 5, 1);
        submit(&mut disk, 99, DiskOperation::Flush);
        while disk.step().is_some() {}
        disk.crash(&mut Random::new(seed));
        outcomes[usize::from(all_are(&peek(&disk, 5), 1))] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 10), "{outcomes:?}");
}

/// Goal: a durable write is stable from its completion on, whatever lay beneath
/// it or beside it; before, a crash keeps, loses or tears it; and it makes
/// nothing else stable.
#[test]
fn a_durable_write_is_stable_when_it_completes_and_not_before() {
    let (mut kept, mut lost, mut torn, mut beside_lost) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        write(&mut disk, 1, 1); // Beneath, not flushed.
        write(&mut disk, 2, 1); // Beside, not flushed.
        submit_write_as(&mut disk, 1, 2, true);
        disk.step().expect("a completion").result.expect("to write");
        submit_write_as(&mut disk, 3, 2, true); // Never completes.
        disk.crash(&mut Random::new(seed));
        assert!(all_are(&peek(&disk, 1), 2), "seed {seed}");
        beside_lost += u32::from(all_are(&peek(&disk, 2), 0));
        let content = peek(&disk, 3);
        for sector in content.chunks(512) {
            assert!(all_are(sector, 0) || all_are(sector, 2), "seed {seed}");
        }
        match () {
            () if all_are(&content, 2) => kept += 1,
            () if all_are(&content, 0) => lost += 1,
            () => torn += 1,
        }
    }
    assert!(kept > 50 && lost > 50 && torn > 50, "{kept} {lost} {torn}");
    assert!(beside_lost > 50, "{beside_lost}");
}

/// Goal: a durable write into space that was grown and not flushed is found
/// after a crash; one that failed is not promised.
#[test]
fn a_durable_write_brings_its_space_along_or_fails() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        let length_bytes = 4 * LENGTH_BYTES;
        submit(&mut disk, 1, DiskOperation::Grow { length_bytes });
        disk.step().expect("a completion").result.expect("to grow");
        submit_write_as(&mut disk, 2 * BLOCKS, 1, true);
        disk.step().expect("a completion").result.expect("to write");
        disk.set_options(SimDiskOptions {
            flush_error_one_in: 1,
            ..SimDiskOptions::default()
        });
        submit_write_as(&mut disk, 1, 1, true);
        let failed = disk.step().expect("a completion").result;
        assert!(matches!(failed, Err(DiskError::Io { .. })), "{failed:?}");
        disk.crash(&mut Random::new(seed));
        assert!(disk.length_bytes() > 2 * BLOCKS * BLOCK);
        assert!(all_are(&peek(&disk, 2 * BLOCKS), 1), "seed {seed}");
        lost += u32::from(all_are(&peek(&disk, 1), 0));
    }
    assert!(lost > 10, "{lost}");
}

/// Goal: two changes of one sector survive in their order or not at all.
#[test]
fn a_crash_never_brings_an_older_write_over_a_newer_flushed_one() {
    for seed in 0..100 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        write(&mut disk, 1, 1);
        write(&mut disk, 1, 2);
        flush(&mut disk).expect("to flush");
        disk.crash(&mut Random::new(seed));
        assert!(all_are(&peek(&disk, 1), 2), "seed {seed}");
    }
}

/// Goal: one seed is one run.
#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let options = SimDiskOptions {
            read_error_one_in: 5,
            write_error_one_in: 7,
            lost_write_one_in: 9,
            misdirected_write_one_in: 9,
            bit_flip_one_in: 9,
            flush_error_one_in: 9,
            ..SimDiskOptions::default()
        };
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, options);
        let mut random = Random::new(seed);
        for round in 0..20 {
            let mut blocks: Vec<u64> = (0..BLOCKS).collect();
            random.shuffle(&mut blocks);
            for &block in &blocks[..8] {
                submit_write(&mut disk, block, round);
            }
            for &block in &blocks[8..16] {
                let buffer = Scatter::zeroed(BLOCK_BYTES);
                let offset_bytes = block * BLOCK;
                submit(
                    &mut disk,
                    block,
                    DiskOperation::Read {
                        offset_bytes,
                        buffer,
                    },
                );
            }
            submit(&mut disk, 77, DiskOperation::Flush);
            while disk.step().is_some() {}
        }
        (disk.trace_hash(), disk.faults())
    };
    let (hash, faults) = run(4);
    assert_eq!((hash, faults), run(4));
    assert_ne!(hash, run(5).0);
    assert!(
        faults.read_errors > 0
            && faults.write_errors > 0
            && faults.flush_errors > 0
            && faults.bit_flips > 0
            && faults.misdirected_writes > 0
            && faults.lost_writes > 0,
        "{faults:?}"
    );
}

/// Goal: a lost write leaves the old content, a misdirected one harms another
/// block, a flipped bit changes exactly one bit.
#[test]
fn silent_faults_do_what_they_are_called() {
    let mut disk = SimDisk::new(1, LENGTH_BYTES, SimDiskOptions::default());
    for block in 0..BLOCKS {
        write(&mut disk, block, 1);
    }
    flush(&mut disk).expect("to flush");
    let block = disk.flip_bit().expect("stored content");
    let flipped: u32 = peek(&disk, block)
        .iter()
        .map(|byte| (byte ^ 1).count_ones())
        .sum();
    assert_eq!(flipped, 1);
    write(&mut disk, block, 1);

    disk.set_options(SimDiskOptions {
        lost_write_one_in: 1,
        ..SimDiskOptions::default()
    });
    write(&mut disk, 3, 2);
    assert!((0..BLOCKS).all(|block| all_are(&peek(&disk, block), 1)));

    disk.set_options(SimDiskOptions {
        misdirected_write_one_in: 1,
        ..SimDiskOptions::default()
    });
    for _ in 0..10 {
        write(&mut disk, 3, 2);
    }
    let harmed = (0..BLOCKS).filter(|&block| all_are(&peek(&disk, block), 2));
    assert!(harmed.count() > 1);
}

/// Goal: space runs out with the length as it was.
#[test]
fn growth_beyond_the_capacity_is_refused() {
    let options = SimDiskOptions {
        capacity_bytes: 2 * LENGTH_BYTES,
        ..SimDiskOptions::default()
    };
    let mut disk = SimDisk::new(1, LENGTH_BYTES, options);
    for (length_bytes, fits) in [(2 * LENGTH_BYTES, true), (3 * LENGTH_BYTES, false)] {
        submit(&mut disk, 1, DiskOperation::Grow { length_bytes });
        let result = disk.step().expect("a completion").result;
        assert_eq!(result.is_ok(), fits, "{result:?}");
    }
    assert_eq!(disk.length_bytes(), 2 * LENGTH_BYTES);
}

/// Goal: after a failed flush some of what it covered is gone for good, though
/// it was readable and a later flush succeeded.
#[test]
fn a_failed_flush_is_not_mended_by_the_next() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut disk = SimDisk::new(seed, LENGTH_BYTES, SimDiskOptions::default());
        write(&mut disk, 1, 1);
        disk.set_options(SimDiskOptions {
            flush_error_one_in: 1,
            ..SimDiskOptions::default()
        });
        assert!(flush(&mut disk).is_err());
        disk.set_options(SimDiskOptions::default());
        assert!(all_are(&peek(&disk, 1), 1));
        flush(&mut disk).expect("to flush");
        disk.crash(&mut Random::new(seed));
        lost += u32::from(all_are(&peek(&disk, 1), 0));
    }
    assert!((10..40).contains(&lost), "{lost}");
}

/// Goal: two writes of one range in flight are a bug of the caller, and found.
#[test]
#[should_panic(expected = "two writes in flight meet")]
#[cfg(debug_assertions)]
fn writes_that_meet_in_flight_are_caught() {
    let mut disk = SimDisk::new(1, LENGTH_BYTES, SimDiskOptions::default());
    submit_write(&mut disk, 1, 1);
    submit_write(&mut disk, 1, 2);
}

/// Goal: the blocking face loses what was not flushed, by sector, through all
/// handles, and keeps the rest.
#[test]
fn a_crash_reaches_the_blocking_face() {
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let disk = SimBlockingDisk::new(seed, 0, SimDiskOptions::default());
        let handle = disk.clone();
        handle.set_length(8192).expect("to grow");
        handle.write_at(&[1; 100], 500).expect("to write");
        handle.flush().expect("to flush");
        handle.write_at(&[2; 20], 500).expect("to write");
        disk.crash(&mut Random::new(seed));
        let mut read = [0; 100];
        handle.read_at(&mut read, 500).expect("to read");
        // The sectors meet at byte 512, twelve bytes into the write.
        let (first, second) = (read[0] == 2, read[12] == 2);
        assert!(read[..12].iter().all(|&byte| byte == 1 + u8::from(first)));
        assert!(
            read[12..20]
                .iter()
                .all(|&byte| byte == 1 + u8::from(second))
        );
        assert!(read[20..].iter().all(|&byte| byte == 1));
        outcomes[usize::from(first && second)] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 20), "{outcomes:?}");
}
