//! Neighbours on a disk go to it as one command: each request has its own bytes, and its own error.

use bytes::Bytes;
use crossdock_disk::{
    DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};
use crossdock_sets::{DiskNumber, Kind};
use crossdock_sim::random::Random;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Scatter, Time};

use crate::rig::{BLOCK, GEOMETRY, Rig, Shape, fresh_slots};

/// Requests of a chunk each, one after the other.
const COUNT: u64 = 7;

const DISK: DiskNumber = DiskNumber(0);

/// One disk, asked by hand.
fn one_disk() -> Rig {
    let mut random = Random::new(1);
    let shape = Shape {
        sets: vec![(Kind::Stripe, 1)],
        spares: 0,
        stripes: 40,
    };
    let slots = fresh_slots(&shape, &mut random);
    let mut rig = Rig::start(shape, slots, Time::default(), &mut random).expect("starts");
    let length_bytes = rig.machine.capacity_bytes();
    rig.finish(DiskOperation::Grow { length_bytes })
        .expect("grows");
    rig.settle();
    rig
}

fn chunk_bytes() -> usize {
    usize::try_from(GEOMETRY.chunk_bytes).expect("small")
}

/// What lies in a block of the disk.
fn content(block: u64) -> u8 {
    u8::try_from(block % 251).expect("small")
}

fn asked(rig: &mut Rig) -> Vec<DiskRequest> {
    std::iter::from_fn(|| rig.machine.poll_request())
        .map(|(disk, request)| {
            assert_eq!(disk, DISK);
            request
        })
        .collect()
}

fn chunks(request: &DiskRequest) -> usize {
    let bytes = match &request.operation {
        DiskOperation::Read { buffer, .. } => buffer.len(),
        DiskOperation::Write { pieces, .. } => pieces.iter().map(Bytes::len).sum(),
        other => panic!("nobody asks for {other:?}"),
    };
    bytes / chunk_bytes()
}

fn bad() -> DiskError {
    DiskError::Io {
        operation: "read",
        errno: 5,
        message: "a bad block".to_owned(),
    }
}

/// The disk answers; a write has to bring what belongs there.
fn answer(rig: &mut Rig, request: DiskRequest, is_well: bool) {
    let result = match request.operation {
        _ if !is_well => Err(bad()),
        DiskOperation::Read {
            offset_bytes,
            mut buffer,
        } => {
            let mut block = offset_bytes / BLOCK;
            for part in buffer.unfilled(0) {
                for bytes in part.chunks_mut(BLOCK_BYTES) {
                    bytes.fill(content(block));
                    block += 1;
                }
            }
            Ok(DiskOutput::Read(buffer))
        }
        DiskOperation::Write {
            offset_bytes,
            pieces,
            ..
        } => {
            let bytes: Vec<u8> = pieces.iter().flatten().copied().collect();
            for (block, bytes) in (offset_bytes / BLOCK..).zip(bytes.chunks(BLOCK_BYTES)) {
                assert!(bytes.iter().all(|byte| *byte == content(block)));
            }
            Ok(DiskOutput::Done)
        }
        other => panic!("nobody asks for {other:?}"),
    };
    let token = request.token;
    let completion = DiskCompletion { token, result };
    rig.machine.disk_completed(rig.now, DISK, completion);
}

/// First block of the n-th request, in the space and on the disk.
fn place(number: u64) -> (u64, u64) {
    let at = number * u64::from(GEOMETRY.chunk_bytes) / BLOCK;
    (at, GEOMETRY.data_offset() / BLOCK + at)
}

fn submit(rig: &mut Rig, number: u64, is_read: bool) {
    let (block, disk_block) = place(number);
    let offset_bytes = block * BLOCK;
    let operation = match is_read {
        true => DiskOperation::Read {
            offset_bytes,
            buffer: Scatter::zeroed(chunk_bytes()),
        },
        false => {
            let pieces = (0..chunk_bytes() / BLOCK_BYTES).map(|piece| {
                let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
                bytes.fill(content(disk_block + piece as u64));
                bytes.freeze()
            });
            DiskOperation::Write {
                offset_bytes,
                pieces: pieces.collect(),
                is_durable: false,
            }
        }
    };
    let token = DiskToken(1000 + number);
    rig.machine
        .submit(rig.now, DiskRequest { token, operation });
}

/// The requests that have ended, and which of them well; what was read is what lies there.
fn ended(rig: &mut Rig) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    while let Some(completion) = rig.machine.poll() {
        let number = completion.token.0 - 1000;
        if let Ok(DiskOutput::Read(buffer)) = completion.result {
            let bytes = buffer.into_bytes();
            assert_eq!(bytes.len(), chunk_bytes());
            let (_, disk_block) = place(number);
            for (block, bytes) in (disk_block..).zip(bytes.chunks(BLOCK_BYTES)) {
                assert!(bytes.iter().all(|byte| *byte == content(block)));
            }
            all.push((number, true));
        } else {
            all.push((number, completion.result.is_ok()));
        }
    }
    all.sort_unstable();
    all
}

/// Asks for neighbours until the disk has two commands, and lets the first one end: the command
/// that the others are.
fn merged(rig: &mut Rig, is_read: bool) -> DiskRequest {
    for number in 0..COUNT {
        submit(rig, number, is_read);
    }
    let mut first = asked(rig).into_iter();
    let (one, two) = (first.next().expect("one"), first.next().expect("two"));
    assert!(first.next().is_none(), "the others wait");
    answer(rig, one, true);
    let mut next = asked(rig);
    let together = next.pop().expect("a command");
    assert_eq!((next.len(), chunks(&together)), (0, 5));
    assert_eq!(ended(rig), [(0, true)]);
    answer(rig, two, true);
    assert!(asked(rig).is_empty());
    assert_eq!(ended(rig), [(1, true)]);
    together
}

/// Goal: what comes as one is shared out right.
#[test]
fn neighbours_have_their_own_bytes() {
    for is_read in [true, false] {
        let mut rig = one_disk();
        let together = merged(&mut rig, is_read);
        answer(&mut rig, together, true);
        assert!(asked(&mut rig).is_empty());
        let expected: Vec<(u64, bool)> = (2..COUNT).map(|number| (number, true)).collect();
        assert_eq!(ended(&mut rig), expected);
    }
}

/// Goal: an error of a command is that of the request that has it: the others are carried out.
#[test]
fn neighbours_have_their_own_errors() {
    for is_read in [true, false] {
        let mut rig = one_disk();
        let together = merged(&mut rig, is_read);
        answer(&mut rig, together, false);
        let again = asked(&mut rig);
        assert_eq!(again.iter().map(chunks).collect::<Vec<_>>(), [1; 5]);
        assert!(ended(&mut rig).is_empty());
        for (number, request) in again.into_iter().enumerate() {
            answer(&mut rig, request, number != 3);
        }
        assert!(asked(&mut rig).is_empty(), "there is no other copy");
        let expected: Vec<(u64, bool)> = (2..COUNT).map(|number| (number, number != 5)).collect();
        assert_eq!(ended(&mut rig), expected);
    }
}
