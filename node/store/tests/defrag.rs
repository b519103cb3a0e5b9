//! What the mover puts together, and what it leaves.

mod rig;

use crossdock_names::{ObjectId, Version};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, PinId, ReadVersion};
use crossdock_sim::random::Random;
use crossdock_store::{DefragReport, DefragStep, StoreEffect, StoreInput};
use rig::*;

/// Starts a step.
fn begin(rig: &mut Rig, step: DefragStep) {
    rig.store.handle(rig.now, StoreInput::Defrag(step));
    rig.run_effects();
}

/// The report of a step that has ended.
fn take_report(rig: &mut Rig) -> Option<Result<DefragReport, NodeError>> {
    rig.take_event(|event| match event {
        StoreEffect::Defragged(report) => Some(report.clone()),
        _ => None,
    })
}

/// A pass over everything, or the objects of one placement; the sum of its steps.
fn pass(rig: &mut Rig, placement: Option<u64>, moves: bool) -> DefragReport {
    let mut sum = DefragReport::default();
    for number in 0..200 {
        let step = DefragStep {
            placement,
            moves,
            is_first: number == 0,
            blocks_max: 256,
        };
        begin(rig, step);
        rig.settle();
        let report = take_report(rig).expect("a report").expect("a sound disk");
        sum.layout.add(&report.layout);
        sum.moves.add(&report.moves);
        if report.is_complete {
            sum.is_complete = true;
            sum.free = report.free;
            return sum;
        }
    }
    panic!("the pass does not end: {sum:?}");
}

fn look(rig: &mut Rig) -> DefragReport {
    pass(rig, None, false)
}

/// Objects whose bulk writes took turns, and were written over at random: what they hold.
fn scattered(rig: &mut Rig, objects: u64, pieces: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut version = objects + 1;
    let mut contents = vec![vec![0; pieces * BULK]; usize::try_from(objects).expect("few")];
    for number in 1..=objects {
        assert!(rig.call(create(object(number), number)).is_ok());
    }
    let in_turns: Vec<(usize, u64)> = (0..pieces)
        .flat_map(|piece| (1..=objects).map(move |number| (piece, number)))
        .collect();
    let at_random = (0..pieces * 2).map(|_| (random.index(pieces), random.between(1, objects)));
    for (piece, number) in in_turns.into_iter().chain(at_random.collect::<Vec<_>>()) {
        version += 1;
        let bytes = vec![version.to_le_bytes()[0]; BULK];
        let index = usize::try_from(number - 1).expect("few");
        contents[index][piece * BULK..][..BULK].copy_from_slice(&bytes);
        let write = write(object(number), (piece * BULK) as u64, bytes, true, version);
        assert!(rig.call(write).is_ok());
    }
    contents
}

/// Goal: after one pass each object is one run, and the space that was between its pieces is
/// free in few stretches; what the objects hold, and how much is allocated, is as before,
/// also after a loss of power. Another pass finds nothing to do.
#[test]
fn one_pass_puts_everything_together() {
    let mut rig = Rig::new();
    let contents = scattered(&mut rig, 3, 24);
    let before = look(&mut rig);
    assert_eq!((before.layout.objects, before.moves.moved_blocks), (3, 0));
    assert!(before.layout.jumps() > 60, "{before:?}");
    let allocated = rig.store.status().allocated_bytes;

    let moving = pass(&mut rig, None, true);
    assert_eq!(moving.layout, before.layout, "as it was found");
    let after = look(&mut rig);
    assert_eq!(after.layout.jumps(), 0, "{after:?}");
    assert_eq!(after.layout.blocks, before.layout.blocks);
    assert!(after.free.runs < before.free.runs, "{after:?} {before:?}");
    assert_eq!(rig.store.status().allocated_bytes, allocated);
    assert_eq!(rig.store.status().moved_blocks, moving.moves.moved_blocks);
    rig.expect_contents(&contents);

    assert_eq!(pass(&mut rig, None, true).moves.moved_blocks, 0);
    let mut rig = rig.crash(&mut Random::new(1));
    assert_eq!(look(&mut rig).layout, after.layout);
    assert_eq!(rig.store.status().allocated_bytes, allocated);
    rig.expect_contents(&contents);
}

/// Goal: of one file only that file's objects are moved.
#[test]
fn one_file_is_put_together_alone() {
    let mut rig = Rig::new();
    let contents = scattered(&mut rig, 3, 16);
    let [all, one] = [None, Some(2)].map(|placement| pass(&mut rig, placement, false));
    assert_eq!((all.layout.objects, one.layout.objects), (3, 1));
    pass(&mut rig, Some(2), true);
    assert_eq!(pass(&mut rig, Some(2), false).layout.jumps(), 0);
    let jumps = look(&mut rig).layout.jumps();
    assert_eq!(jumps, all.layout.jumps() - one.layout.jumps());
    rig.expect_contents(&contents);
}

fn pin(rig: &mut Rig, object: ObjectId, offset_bytes: u64, length_bytes: u64) -> PinId {
    let request = NodeRequest::Pin {
        object,
        offset_bytes,
        length_bytes,
        version: None,
        lease_ms: 3_600_000,
    };
    match rig.call(request) {
        Ok(NodeAnswer::Pinned { pin, .. }) => pin,
        other => panic!("{other:?}"),
    }
}

/// Goal: pinned blocks stay where they are while all around them moves; when the pin has
/// gone they come after.
#[test]
fn pinned_blocks_are_not_moved() {
    let mut rig = Rig::new();
    let contents = scattered(&mut rig, 2, 16);
    let whole = contents[0].len() as u64;
    let pinned = pin(&mut rig, object(1), 0, whole);
    let before = pass(&mut rig, Some(1), false).layout;
    let moving = pass(&mut rig, None, true);
    assert!(moving.moves.pinned_blocks > 0, "{moving:?}");
    assert_eq!(pass(&mut rig, Some(1), false).layout, before);
    assert_eq!(pass(&mut rig, Some(2), false).layout.jumps(), 0);
    assert!(rig.call(NodeRequest::Unpin { pin: pinned }).is_ok());
    assert!(pass(&mut rig, None, true).moves.moved_blocks > 0);
    assert_eq!(look(&mut rig).layout.jumps(), 0);
    rig.expect_contents(&contents);
}

/// Goal: blocks that are pinned while they are on their way stay where they were.
#[test]
fn a_pin_taken_meanwhile_counts() {
    let mut rig = Rig::new();
    let contents = scattered(&mut rig, 1, 8);
    let step = DefragStep {
        placement: None,
        moves: true,
        is_first: true,
        blocks_max: 64,
    };
    // The first step may only turn to a place.
    begin(&mut rig, step);
    let whole = contents[0].len() as u64;
    pin(&mut rig, object(1), 0, whole);
    rig.settle();
    let report = take_report(&mut rig).expect("a report").expect("sound");
    assert!(report.moves.pinned_blocks > 0, "{report:?}");
    assert_eq!(report.moves.moved_blocks, 0, "{report:?}");
    rig.expect_contents(&contents);
}

/// Goal: what is written, cut off or freed while it is on its way stays so, at every point
/// of the way, in bulk as through the journal; the rest is moved.
#[test]
fn what_is_changed_meanwhile_stays_changed() {
    for events in 0..12 {
        let mut rig = Rig::new();
        let mut contents = scattered(&mut rig, 1, 8);
        let content = &mut contents[0];
        let step = DefragStep {
            placement: None,
            moves: true,
            is_first: true,
            blocks_max: 256,
        };
        begin(&mut rig, step);
        for _ in 0..events {
            rig.step();
        }
        let (bulk, small, hole) = (2 * BULK, 5 * BULK + 100, 6 * BULK);
        let end = 7 * BULK + 5 * BLOCK + 7;
        content[bulk..][..BULK].fill(0xb1);
        content[small..][..1000].fill(0x51);
        content[hole..][..4 * BLOCK].fill(0);
        content.truncate(end);
        let changes = [
            write(object(1), bulk as u64, vec![0xb1; BULK], true, 1001),
            write(object(1), small as u64, vec![0x51; 1000], true, 1002),
            zero(object(1), hole as u64, 4 * BLOCK as u64, 1003),
            truncate(object(1), end as u64, 1004),
        ];
        for change in changes {
            rig.send(change);
        }
        rig.settle();
        assert!(take_report(&mut rig).is_some_and(|report| report.is_ok()));
        rig.expect_contents(&contents);
        pass(&mut rig, None, true);
        rig.expect_contents(&contents);
        let mut rig = rig.crash(&mut Random::new(events));
        rig.expect_contents(&contents);
    }
}

/// Goal: what the journal has of blocks goes along with them, and needs no place in it any
/// more; what lies beneath it, which a write in place may have torn, is not looked at.
#[test]
fn what_the_journal_has_goes_along() {
    let mut rig = Rig::new();
    let mut contents = scattered(&mut rig, 2, 12);
    let mut random = Random::new(9);
    for number in 0..40 {
        let index = random.index(2);
        let (at, length) = match number % 2 {
            0 => (random.index(12 * BULK / BLOCK) * BLOCK, BLOCK),
            _ => (random.index(12 * BULK - 1000), 1000),
        };
        let byte = 0x80 | u8::try_from(number).expect("few");
        contents[index][at..][..length].fill(byte);
        let object = object(index as u64 + 1);
        let write = write(object, at as u64, vec![byte; length], true, 1000 + number);
        assert!(rig.call(write).is_ok());
    }
    let moving = pass(&mut rig, None, true);
    assert_eq!(
        (moving.moves.busy_blocks, moving.moves.unreadable_blocks),
        (0, 0)
    );
    assert_eq!(look(&mut rig).layout.jumps(), 0);
    assert_eq!(rig.store.status().media_errors, 0);
    rig.expect_contents(&contents);
    let mut rig = rig.crash(&mut Random::new(4));
    rig.expect_contents(&contents);
}

/// Goal: an object that goes while it is moved, and another one of the same name, are as if
/// nothing had been moved; nothing of the first one stays allocated.
#[test]
fn an_object_that_goes_meanwhile_leaves_nothing() {
    for events in 0..12 {
        let mut rig = Rig::new();
        scattered(&mut rig, 1, 8);
        let step = DefragStep {
            placement: None,
            moves: true,
            is_first: true,
            blocks_max: 256,
        };
        begin(&mut rig, step);
        for _ in 0..events {
            rig.step();
        }
        rig.send(remove(object(1), 1001));
        rig.send(create(object(1), 1002));
        rig.send(write(object(1), 0, vec![9; 2 * BLOCK], true, 1003));
        rig.settle();
        assert!(take_report(&mut rig).is_some());
        rig.expect_contents(&[vec![9; 2 * BLOCK]]);
        rig.store.handle(rig.now, StoreInput::Drain);
        rig.settle();
        let quiet = |event: &StoreEffect| matches!(event, StoreEffect::Quiet);
        assert!(rig.events.iter().any(quiet));
        let mut rig = rig.reopen();
        assert_eq!(rig.store.status().allocated_bytes, 2 * BLOCK as u64);
        rig.expect_contents(&[vec![9; 2 * BLOCK]]);
    }
}

/// Goal: who asks for a range as it was at a version gets it, and is refused, as before.
#[test]
fn versions_stay_what_they_were() {
    let mut rig = Rig::new();
    let contents = scattered(&mut rig, 1, 12);
    let versions = |rig: &mut Rig| -> Vec<Version> {
        let pieces = contents[0].chunks(BULK).enumerate();
        let of_piece = |(number, piece): (usize, &[u8])| {
            let request = NodeRequest::Read {
                object: object(1),
                offset_bytes: (number * BULK) as u64,
                length_bytes: piece.len() as u64,
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            match rig.call(request) {
                Ok(NodeAnswer::Read { version, .. }) => version,
                other => panic!("{other:?}"),
            }
        };
        pieces.map(of_piece).collect()
    };
    let before = versions(&mut rig);
    let mut distinct = before.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 6, "{before:?}");
    assert!(pass(&mut rig, None, true).moves.moved_blocks > 0);
    assert_eq!(versions(&mut rig), before);
    let mut rig = rig.crash(&mut Random::new(3));
    assert_eq!(versions(&mut rig), before);
}

/// Goal: a block that the disk has lost stays where it is, with what is read along with it,
/// and is found by the next scrub as before; the others are put together.
#[test]
fn what_cannot_be_read_is_left() {
    let mut rig = Rig::new();
    rig.config.cache_bytes = 0;
    scattered(&mut rig, 1, 16);
    let mut rig = rig.reopen();
    while rig.store.status().bad_blocks == 0 {
        assert!(rig.disks.data.flip_bit().is_some());
        let whole = rig.read(object(1), 0, 16 * BULK as u64);
        assert!(whole.is_ok() || matches!(whole, Err(NodeError::Media { .. })));
    }
    let before = look(&mut rig).layout;
    let moving = pass(&mut rig, None, true);
    assert!(moving.moves.unreadable_blocks > 0, "{moving:?}");
    assert!(look(&mut rig).layout.jumps() < before.jumps());
    let whole = rig.read(object(1), 0, 16 * BULK as u64);
    assert!(matches!(whole, Err(NodeError::Media { .. })));
}

/// Goal: on a disk that is nearly full nothing is moved, and the pass ends.
#[test]
fn without_room_nothing_is_moved() {
    let mut config = config(1);
    config.capacity_bytes = 6 << 20;
    let mut rig = Rig::open(Disks::new(1), config);
    let contents = scattered(&mut rig, 2, 44);
    let before = look(&mut rig).layout;
    assert!(before.jumps() > 0);
    let moving = pass(&mut rig, None, true);
    assert_eq!(moving.moves.moved_blocks, 0, "{moving:?}");
    assert_eq!(look(&mut rig).layout, before);
    rig.expect_contents(&contents);
}

/// Goal: a store that is not open, or whose disk has failed, says so at once.
#[test]
fn a_failed_store_moves_nothing() {
    let mut rig = Rig::new();
    scattered(&mut rig, 1, 8);
    let mut options = rig.disks.data.options();
    options.write_error_one_in = 1;
    rig.disks.data.set_options(options);
    let step = DefragStep {
        placement: None,
        moves: true,
        is_first: true,
        blocks_max: 256,
    };
    for _ in 0..2 {
        begin(&mut rig, step);
        rig.settle();
        assert!(matches!(take_report(&mut rig), Some(Err(_))));
    }
    assert!(rig.store.status().has_failed);
}
