//! The one test suite that every [`Disk`] passes: the pool's, the ring's and
//! the simulated one. A [`Rig`] says how to open a disk and how to wait for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Scatter};

use crate::{
    BlockingDisk, Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest,
    DiskToken,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
const LENGTH_BYTES: u64 = 64 * BLOCK;

/// How the suite meets one kind of disk.
pub trait Rig {
    /// The kind.
    type Disk: Disk;

    /// An empty disk of `length_bytes`, another one on each call.
    fn create(&mut self, length_bytes: u64) -> Self::Disk;

    /// Closes a disk and opens it again, with the same content.
    fn reopen(&mut self, disk: Self::Disk) -> Self::Disk;

    /// Waits until a completion can be polled, and polls it. Called only while
    /// a request is in flight.
    fn wait(&mut self, disk: &mut Self::Disk) -> DiskCompletion;
}

/// Runs all tests of asynchronous disks.
pub fn run(rig: &mut impl Rig) {
    what_was_written_is_read_back(rig);
    what_was_never_written_is_zeros(rig);
    requests_beyond_the_end_are_refused(rig);
    unaligned_requests_are_refused(rig);
    a_grown_disk_has_more_zeros(rig);
    many_requests_in_flight_complete_once_each(rig);
    a_long_gathered_write_lands_whole(rig);
    a_reopened_disk_has_what_was_flushed(rig);
    a_reopened_disk_has_what_was_written_durably(rig);
    durable_writes_are_refused_and_gathered_like_others(rig);
}

/// Runs all tests of blocking disks on `disk`, which is empty.
pub fn run_blocking(disk: &dyn BlockingDisk) {
    assert_eq!(disk.length_bytes(), Ok(0));
    disk.set_length(10_000).expect("to grow");
    disk.write_at(b"crossdock", 4090).expect("to write");
    let mut read = [7; 12];
    disk.read_at(&mut read, 4089).expect("to read");
    assert_eq!(&read, b"\0crossdock\0\0");
    disk.flush().expect("to flush");
    assert!(matches!(
        disk.read_at(&mut read, 9_990),
        Err(DiskError::OutOfRange { .. })
    ));
    assert!(matches!(
        disk.write_at(b"x", 10_000),
        Err(DiskError::OutOfRange { .. })
    ));
    disk.set_length(4092).expect("to shrink");
    disk.set_length(10_000).expect("to grow again");
    disk.read_at(&mut read, 4089).expect("to read");
    assert_eq!(
        &read, b"\0cr\0\0\0\0\0\0\0\0\0",
        "cut bytes come back as zeros"
    );
}

fn what_was_written_is_read_back(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    assert_eq!(disk.length_bytes(), LENGTH_BYTES);
    let pieces = vec![pattern(1, 1), pattern(2, 3), pattern(3, 1).slice(..)];
    let whole = pieces.concat();
    done(rig, &mut disk, write(7 * BLOCK, pieces));
    assert_eq!(read(rig, &mut disk, 7 * BLOCK, 5), whole);
    done(rig, &mut disk, write(8 * BLOCK, vec![pattern(9, 1)]));
    let mut mixed = whole;
    mixed[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&pattern(9, 1));
    assert_eq!(read(rig, &mut disk, 7 * BLOCK, 5), mixed);
    done(rig, &mut disk, DiskOperation::Flush);
}

fn what_was_never_written_is_zeros(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    let mut buffer = AlignedBuffer::zeroed(2 * BLOCK_BYTES);
    buffer.fill(0xaa); // What was in the buffer must not shine through.
    let operation = DiskOperation::Read {
        offset_bytes: LENGTH_BYTES - 2 * BLOCK,
        buffer: buffer.into(),
    };
    let Ok(DiskOutput::Read(buffer)) = finish(rig, &mut disk, operation) else {
        panic!("a read gives a buffer");
    };
    assert!(buffer.into_bytes().iter().all(|&byte| byte == 0));
}

fn requests_beyond_the_end_are_refused(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    let buffer = Scatter::zeroed(2 * BLOCK_BYTES);
    let beyond = [
        DiskOperation::Read {
            offset_bytes: LENGTH_BYTES - BLOCK,
            buffer,
        },
        write(LENGTH_BYTES, vec![pattern(1, 1)]),
        write(u64::MAX - BLOCK + 1, vec![pattern(1, 1)]),
    ];
    for operation in beyond {
        let result = finish(rig, &mut disk, operation);
        assert!(
            matches!(result, Err(DiskError::OutOfRange { length_bytes, .. }) if length_bytes == LENGTH_BYTES),
            "{result:?}"
        );
    }
    assert_eq!(disk.length_bytes(), LENGTH_BYTES);
}

fn unaligned_requests_are_refused(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    let two = pattern(1, 2);
    let unaligned = [
        DiskOperation::Read {
            offset_bytes: 512,
            buffer: Scatter::zeroed(BLOCK_BYTES),
        },
        write(1, vec![pattern(1, 1)]),
        write(0, vec![two.slice(512..512 + BLOCK_BYTES)]),
        write(0, vec![two.slice(..100), two.slice(..BLOCK_BYTES - 100)]),
        DiskOperation::Grow {
            length_bytes: LENGTH_BYTES + 1,
        },
    ];
    for operation in unaligned {
        let result = finish(rig, &mut disk, operation);
        assert!(matches!(result, Err(DiskError::Unaligned)), "{result:?}");
    }
    let start = read(rig, &mut disk, 0, 1);
    assert!(start.iter().all(|&byte| byte == 0), "nothing was written");
}

fn a_grown_disk_has_more_zeros(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    let longer = DiskOperation::Grow {
        length_bytes: 2 * LENGTH_BYTES,
    };
    done(rig, &mut disk, longer);
    assert_eq!(disk.length_bytes(), 2 * LENGTH_BYTES);
    let zeros = read(rig, &mut disk, LENGTH_BYTES, 64);
    assert!(zeros.iter().all(|&byte| byte == 0));
    done(
        rig,
        &mut disk,
        write(2 * LENGTH_BYTES - BLOCK, vec![pattern(4, 1)]),
    );
    assert_eq!(
        read(rig, &mut disk, 2 * LENGTH_BYTES - BLOCK, 1),
        pattern(4, 1)
    );
    let shorter = DiskOperation::Grow {
        length_bytes: BLOCK,
    };
    done(rig, &mut disk, shorter);
    assert_eq!(disk.length_bytes(), 2 * LENGTH_BYTES, "grow never cuts");
}

fn many_requests_in_flight_complete_once_each(rig: &mut impl Rig) {
    const REQUESTS: u64 = 500;
    let mut disk = rig.create(REQUESTS * BLOCK);
    let mut finish_all = |disk: &mut _, operation: &dyn Fn(u64) -> DiskOperation| {
        for index in 0..REQUESTS {
            Disk::submit(
                disk,
                DiskRequest {
                    token: DiskToken(index),
                    operation: operation(index),
                },
            );
        }
        let mut results = BTreeMap::new();
        for _ in 0..REQUESTS {
            let completion = rig.wait(disk);
            let output = completion.result.expect("to succeed");
            let before = results.insert(completion.token.0, output);
            assert!(before.is_none(), "{:?} completed twice", completion.token);
        }
        assert!(disk.poll().is_none());
        results
    };
    finish_all(&mut disk, &|index| {
        write(index * BLOCK, vec![pattern(index, 1)])
    });
    let outputs = finish_all(&mut disk, &|index| DiskOperation::Read {
        offset_bytes: index * BLOCK,
        buffer: Scatter::zeroed(BLOCK_BYTES),
    });
    assert_eq!(outputs.len() as u64, REQUESTS);
    for (index, output) in outputs {
        let DiskOutput::Read(buffer) = output else {
            panic!("a read gives a buffer");
        };
        assert_eq!(buffer.into_bytes(), pattern(index, 1), "block {index}");
    }
}

fn a_long_gathered_write_lands_whole(rig: &mut impl Rig) {
    const PIECES: u64 = 1500; // More than the kernel takes at once.
    let mut disk = rig.create(PIECES * BLOCK);
    let pieces: Vec<Bytes> = (0..PIECES).map(|index| pattern(index, 1)).collect();
    let whole = pieces.concat();
    done(rig, &mut disk, write(0, pieces));
    let blocks = usize::try_from(PIECES).expect("a small number");
    assert!(read(rig, &mut disk, 0, blocks) == whole);
    done(rig, &mut disk, write(0, Vec::new()));
}

fn a_reopened_disk_has_what_was_flushed(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    done(rig, &mut disk, write(3 * BLOCK, vec![pattern(5, 2)]));
    let longer = DiskOperation::Grow {
        length_bytes: LENGTH_BYTES + BLOCK,
    };
    done(rig, &mut disk, longer);
    done(rig, &mut disk, DiskOperation::Flush);
    let mut disk = rig.reopen(disk);
    assert_eq!(disk.length_bytes(), LENGTH_BYTES + BLOCK);
    assert_eq!(read(rig, &mut disk, 3 * BLOCK, 2), pattern(5, 2));
}

fn a_reopened_disk_has_what_was_written_durably(rig: &mut impl Rig) {
    let mut disk = rig.create(LENGTH_BYTES);
    done(rig, &mut disk, write(3 * BLOCK, vec![pattern(5, 3)]));
    let pieces = vec![pattern(6, 1), pattern(7, 1)];
    let whole = pieces.concat();
    done(rig, &mut disk, durable(write(4 * BLOCK, pieces)));
    assert_eq!(read(rig, &mut disk, 4 * BLOCK, 2), whole);
    let mut disk = rig.reopen(disk);
    assert_eq!(read(rig, &mut disk, 4 * BLOCK, 2), whole);
}

fn durable_writes_are_refused_and_gathered_like_others(rig: &mut impl Rig) {
    const WRITES: u64 = 300;
    let mut disk = rig.create(WRITES * 8 * BLOCK);
    let beyond = durable(write(WRITES * 8 * BLOCK, vec![pattern(1, 1)]));
    let result = finish(rig, &mut disk, beyond);
    assert!(
        matches!(result, Err(DiskError::OutOfRange { .. })),
        "{result:?}"
    );
    let unaligned = durable(write(1, vec![pattern(1, 1)]));
    let result = finish(rig, &mut disk, unaligned);
    assert!(matches!(result, Err(DiskError::Unaligned)), "{result:?}");
    done(rig, &mut disk, durable(write(0, Vec::new())));
    // Many at a time, of several pieces, among others.
    for index in 0..WRITES {
        let pieces = (0..8).map(|piece| pattern(index * 8 + piece, 1)).collect();
        let operation = match index % 3 {
            0 => write(index * 8 * BLOCK, pieces),
            _ => durable(write(index * 8 * BLOCK, pieces)),
        };
        let token = DiskToken(index);
        disk.submit(DiskRequest { token, operation });
    }
    for _ in 0..WRITES {
        let result = rig.wait(&mut disk).result;
        assert!(matches!(result, Ok(DiskOutput::Done)), "{result:?}");
    }
    assert!(disk.poll().is_none(), "each completes once");
    for block in 0..WRITES * 8 {
        let found = read(rig, &mut disk, block * BLOCK, 1);
        assert!(found == pattern(block, 1), "block {block}");
    }
    let pieces: Vec<Bytes> = (0..1500).map(|index| pattern(index, 1)).collect();
    let whole = pieces.concat(); // More pieces than the kernel takes at once.
    done(rig, &mut disk, durable(write(0, pieces)));
    assert!(read(rig, &mut disk, 0, 1500) == whole);
}

fn write(offset_bytes: u64, pieces: Vec<Bytes>) -> DiskOperation {
    DiskOperation::Write {
        offset_bytes,
        pieces,
        is_durable: false,
    }
}

fn durable(mut write: DiskOperation) -> DiskOperation {
    if let DiskOperation::Write { is_durable, .. } = &mut write {
        *is_durable = true;
    }
    write
}

/// Blocks that tell their number and place.
fn pattern(seed: u64, blocks: usize) -> Bytes {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    for (index, word) in buffer.chunks_mut(8).enumerate() {
        let value = (seed << 32 | 0x5a00_0000) + index as u64;
        word.copy_from_slice(&value.to_be_bytes());
    }
    buffer.freeze()
}

fn finish<R: Rig>(
    rig: &mut R,
    disk: &mut R::Disk,
    operation: DiskOperation,
) -> Result<DiskOutput, DiskError> {
    let token = DiskToken(u64::MAX);
    disk.submit(DiskRequest { token, operation });
    let completion = rig.wait(disk);
    assert_eq!(completion.token, token);
    completion.result
}

fn done<R: Rig>(rig: &mut R, disk: &mut R::Disk, operation: DiskOperation) {
    let result = finish(rig, disk, operation);
    assert!(matches!(result, Ok(DiskOutput::Done)), "{result:?}");
}

fn read<R: Rig>(rig: &mut R, disk: &mut R::Disk, offset_bytes: u64, blocks: usize) -> Vec<u8> {
    let buffer = Scatter::zeroed(blocks * BLOCK_BYTES);
    let operation = DiskOperation::Read {
        offset_bytes,
        buffer,
    };
    match finish(rig, disk, operation) {
        Ok(DiskOutput::Read(buffer)) => buffer.into_bytes().to_vec(),
        other => panic!("read at {offset_bytes}: {other:?}"),
    }
}
