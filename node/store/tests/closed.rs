//! Blocks that are to hold nothing: what lies there moves away, and nothing comes.

mod rig;

use crossdock_disk::Disk;
use crossdock_names::Version;
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_sim::random::Random;
use crossdock_store::{ClosedBlocks, EvacuationReport, StoreEffect, StoreInput};
use rig::*;

/// Of each 40 blocks, the first 16.
fn striped(capacity_bytes: u64) -> Vec<ClosedBlocks> {
    vec![ClosedBlocks {
        first: 0,
        blocks: 16,
        row_blocks: 40,
        rows: capacity_bytes / BLOCK as u64 / 40,
    }]
}

/// The first half of all that is written.
fn front() -> Vec<ClosedBlocks> {
    vec![ClosedBlocks {
        first: 0,
        blocks: 400,
        row_blocks: 400,
        rows: 1,
    }]
}

fn close(rig: &mut Rig, closed: &[ClosedBlocks]) {
    let capacity_bytes = rig.config.capacity_bytes;
    rig.config.closed = closed.to_vec();
    let input = StoreInput::Space {
        capacity_bytes,
        closed: closed.to_vec(),
    };
    rig.store.handle(rig.now, input);
    rig.run_effects();
}

fn take_report(rig: &mut Rig) -> Option<Result<EvacuationReport, NodeError>> {
    rig.take_event(|event| match event {
        StoreEffect::Evacuated(report) => Some(report.clone()),
        _ => None,
    })
}

fn step(rig: &mut Rig, is_first: bool) -> EvacuationReport {
    let input = StoreInput::Evacuate {
        is_first,
        blocks_max: 64,
    };
    rig.store.handle(rig.now, input);
    rig.run_effects();
    rig.settle();
    let report = take_report(rig).expect("a report");
    report.expect("a sound disk")
}

/// One pass; the sum of its steps.
fn pass(rig: &mut Rig) -> EvacuationReport {
    let mut sum = EvacuationReport::default();
    for number in 0..400 {
        let report = step(rig, number == 0);
        sum.moves.add(&report.moves);
        if report.is_complete {
            sum.is_complete = true;
            sum.left_blocks = report.left_blocks;
            return sum;
        }
    }
    panic!("the pass does not end: {sum:?}");
}

/// Objects of bulk and small writes: what they hold.
fn fill(rig: &mut Rig, objects: u64, pieces: usize) -> Vec<Vec<u8>> {
    let mut version = objects + 1;
    let mut contents = vec![vec![0; pieces * BULK]; usize::try_from(objects).expect("few")];
    for number in 1..=objects {
        assert!(rig.call(create(object(number), number)).is_ok());
    }
    for piece in 0..pieces {
        for number in 1..=objects {
            version += 1;
            let content = &mut contents[usize::try_from(number - 1).expect("few")];
            for (at, length) in [(piece * BULK, BULK), (piece * BULK + 5000, 700)] {
                version += 1;
                let bytes = vec![version.to_le_bytes()[0]; length];
                content[at..][..length].copy_from_slice(&bytes);
                let write = write(object(number), at as u64, bytes, true, version);
                assert!(rig.call(write).is_ok());
            }
        }
    }
    contents
}

/// Nothing of what a disk that has gone held may be needed: it gives back garbage.
fn spoil(rig: &mut Rig, closed: &[ClosedBlocks]) {
    let end = rig.disks.data.length_bytes() / BLOCK as u64;
    for zone in closed {
        for row in 0..zone.rows {
            let begin = zone.first + row * zone.row_blocks;
            for block in begin..end.min(begin + zone.blocks) {
                rig.disks.data.scribble(block);
            }
        }
    }
}

/// Goal: after one pass, or two, nothing is left on closed blocks, in whatever pieces they
/// lie; what they gave back would not matter, now and after a loss of power, and writes that
/// come have their places elsewhere.
#[test]
fn what_lies_there_goes_elsewhere() {
    for shape in 0..2 {
        let mut rig = Rig::new();
        rig.config.cache_bytes = 0;
        let mut rig = rig.reopen();
        let mut contents = fill(&mut rig, 3, 16);
        let allocated = rig.store.status().allocated_bytes;
        let closed = match shape {
            0 => striped(rig.config.capacity_bytes),
            _ => front(),
        };
        let blocks: u64 = closed.iter().map(|zone| zone.blocks * zone.rows).sum();
        let before = rig.store.status();
        close(&mut rig, &closed);
        let after = rig.store.status();
        let gone = before.capacity_bytes - after.capacity_bytes;
        assert_eq!(gone, blocks * BLOCK as u64);
        let first = pass(&mut rig);
        assert!(first.moves.moved_blocks > 100, "{first:?}");
        assert_eq!(
            (first.moves.pinned_blocks, first.moves.homeless_blocks),
            (0, 0)
        );
        let second = pass(&mut rig);
        assert_eq!(second.left_blocks, 0, "{second:?}");
        assert_eq!(rig.store.status().allocated_bytes, allocated);
        spoil(&mut rig, &closed);
        rig.expect_contents(&contents);

        let mut rig = rig.crash(&mut Random::new(shape));
        spoil(&mut rig, &closed);
        rig.expect_contents(&contents);
        let bytes = vec![0xaa; 4 * BULK];
        contents[0][2 * BULK..][..4 * BULK].copy_from_slice(&bytes);
        let write = write(object(1), 2 * BULK as u64, bytes, true, 5000);
        assert!(rig.call(write).is_ok());
        let third = pass(&mut rig);
        assert_eq!(
            (third.moves.moved_blocks, third.left_blocks),
            (0, 0),
            "{third:?}"
        );
        let mut rig = rig.reopen();
        spoil(&mut rig, &closed);
        rig.expect_contents(&contents);
    }
}

/// Goal: what is pinned stays and is told of, until it is pinned no more.
#[test]
fn pinned_blocks_are_waited_for() {
    let mut rig = Rig::new();
    let contents = fill(&mut rig, 2, 8);
    let request = NodeRequest::Pin {
        object: object(1),
        offset_bytes: 0,
        length_bytes: contents[0].len() as u64,
        version: None,
        lease_ms: 3_600_000,
    };
    let Ok(NodeAnswer::Pinned { pin, .. }) = rig.call(request) else {
        panic!("not pinned");
    };
    close(&mut rig, &front());
    for _ in 0..2 {
        let report = pass(&mut rig);
        assert!(report.moves.pinned_blocks > 0, "{report:?}");
        assert!(
            report.left_blocks >= report.moves.pinned_blocks,
            "{report:?}"
        );
    }
    assert!(rig.call(NodeRequest::Unpin { pin }).is_ok());
    pass(&mut rig);
    assert_eq!(pass(&mut rig).left_blocks, 0);
    rig.expect_contents(&contents);
}

/// Goal: what was on its way to closed blocks when they were closed is found there, and what
/// comes while they are emptied gets other places.
#[test]
fn writes_under_way_are_found() {
    for events in 0..10 {
        let mut rig = Rig::new();
        let mut contents = fill(&mut rig, 2, 8);
        let mut version: u64 = 3000;
        let mut send = |rig: &mut Rig, number: usize, piece: usize| {
            version += 1;
            let bytes = vec![version.to_le_bytes()[0]; BULK];
            contents[number - 1][piece * BULK..][..BULK].copy_from_slice(&bytes);
            let at = (piece * BULK) as u64;
            rig.send(write(object(number as u64), at, bytes, true, version));
        };
        for piece in 0..4 {
            send(&mut rig, 1, piece);
        }
        for _ in 0..events {
            rig.step();
        }
        let closed = striped(rig.config.capacity_bytes);
        close(&mut rig, &closed);
        let input = StoreInput::Evacuate {
            is_first: true,
            blocks_max: 64,
        };
        rig.store.handle(rig.now, input);
        rig.run_effects();
        for piece in 0..4 {
            send(&mut rig, 2, piece);
            rig.step();
        }
        rig.settle();
        assert!(take_report(&mut rig).is_some_and(|report| report.is_ok()));
        pass(&mut rig);
        assert_eq!(pass(&mut rig).left_blocks, 0);
        let mut rig = rig.crash(&mut Random::new(events));
        spoil(&mut rig, &closed);
        rig.expect_contents(&contents);
    }
}

/// Goal: blocks that are opened again are used again, and a disk that may be longer is.
#[test]
fn room_comes_and_goes() {
    let mut config = config(1);
    config.capacity_bytes = 4 << 20;
    let mut rig = Rig::open(Disks::new(1), config);
    let contents = fill(&mut rig, 1, 20);
    let free = rig.store.status().free_bytes;
    let closed = front();
    close(&mut rig, &closed);
    let fits = |rig: &mut Rig, pieces: u64, version| {
        rig.call(create(object(9), version)).expect("made");
        let written = (0..pieces).all(|piece| {
            let bytes = vec![7; BULK];
            let write = write(
                object(9),
                piece * BULK as u64,
                bytes,
                true,
                version + 1 + piece,
            );
            rig.call(write).is_ok()
        });
        let removed = rig.call(remove(object(9), version + 1 + pieces));
        assert!(removed.is_ok(), "{removed:?}");
        rig.settle();
        written
    };
    assert!(!fits(&mut rig, 20, 4000), "closed");
    close(&mut rig, &[]);
    assert!(rig.store.status().free_bytes >= free);
    assert!(fits(&mut rig, 20, 4100), "open again");
    close(&mut rig, &closed);
    rig.config.capacity_bytes = 8 << 20;
    close(&mut rig, &closed);
    assert!(fits(&mut rig, 20, 4200), "longer");
    pass(&mut rig);
    assert_eq!(pass(&mut rig).left_blocks, 0);
    spoil(&mut rig, &closed);
    rig.expect_contents(&contents);
}

/// Goal: what is moved keeps its versions.
#[test]
fn versions_stay_what_they_were() {
    let mut rig = Rig::new();
    let contents = fill(&mut rig, 1, 8);
    let versions = |rig: &mut Rig| -> Vec<Version> {
        let of_piece = |number: usize| {
            let request = NodeRequest::Read {
                object: object(1),
                offset_bytes: (number * BULK) as u64,
                length_bytes: BULK as u64,
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            match rig.call(request) {
                Ok(NodeAnswer::Read { version, .. }) => version,
                other => panic!("{other:?}"),
            }
        };
        (0..contents[0].len() / BULK).map(of_piece).collect()
    };
    let before = versions(&mut rig);
    close(&mut rig, &front());
    assert!(pass(&mut rig).moves.moved_blocks > 0);
    assert_eq!(versions(&mut rig), before);
}
