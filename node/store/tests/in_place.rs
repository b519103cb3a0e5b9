//! Which overwrites stay where they are, and which go to new blocks.

mod rig;

use crossdock_disk::Disk;
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_sim::random::Random;
use crossdock_store::{StoreDisk, StoreEffect, StoreInput};
use rig::*;

/// Bytes that are in no other block.
fn pattern(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Where on the data disk the bytes are.
fn place_of(rig: &Rig, bytes: &[u8]) -> Option<u64> {
    let mut block = vec![0; BLOCK];
    (0..rig.disks.data.length_bytes() / BLOCK as u64).find(|number| {
        rig.disks.data.peek(number * BLOCK as u64, &mut block);
        block == bytes
    })
}

fn drain(rig: &mut Rig) {
    rig.store.handle(rig.now, StoreInput::Drain);
    rig.settle();
    let is_quiet = |event: &StoreEffect| matches!(event, StoreEffect::Quiet);
    assert!(rig.events.iter().any(is_quiet), "it does not come to rest");
}

/// A file of 32 blocks, each with its own content, on the disk.
fn file_on_the_disk() -> Rig {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    let content: Vec<u8> = (0..32).flat_map(pattern).collect();
    assert!(rig.call(write(object(1), 0, content, true, 2)).is_ok());
    rig
}

/// Goal: a whole block that is overwritten keeps its place, and the rest of the
/// object with it; content and checksum are the new ones after a restart.
#[test]
fn a_whole_block_is_written_over_where_it_lies() {
    let mut rig = file_on_the_disk();
    let before = place_of(&rig, &pattern(5)).expect("on the disk");
    let request = write(object(1), 5 * BLOCK as u64, pattern(100), true, 3);
    assert!(rig.call(request).is_ok());
    assert_eq!(place_of(&rig, &pattern(5)), Some(before), "not yet");
    drain(&mut rig);
    assert_eq!(place_of(&rig, &pattern(100)), Some(before));
    assert_eq!(place_of(&rig, &pattern(5)), None);
    rig.check();
    let mut rig = rig.crash(&mut Random::new(9));
    let mut expected: Vec<u8> = (0..32).flat_map(pattern).collect();
    expected[5 * BLOCK..6 * BLOCK].copy_from_slice(&pattern(100));
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(expected));
}

/// Goal: part of a block goes to a new one, as a torn old one could not be
/// put right.
#[test]
fn a_part_of_a_block_goes_to_a_new_one() {
    let mut rig = file_on_the_disk();
    let before = place_of(&rig, &pattern(5)).expect("on the disk");
    let request = write(object(1), 5 * BLOCK as u64 + 1, vec![7; 100], true, 3);
    assert!(rig.call(request).is_ok());
    drain(&mut rig);
    let mut expected = pattern(5);
    expected[1..101].fill(7);
    let after = place_of(&rig, &expected).expect("settled");
    assert_ne!(after, before);
}

/// Goal: what a pin holds stays, whatever is written over it.
#[test]
fn a_pinned_block_is_not_written_over() {
    let mut rig = file_on_the_disk();
    let before = place_of(&rig, &pattern(5));
    let pin = NodeRequest::Pin {
        object: object(1),
        offset_bytes: 0,
        length_bytes: 32 * BLOCK as u64,
        version: None,
        lease_ms: 3_600_000,
    };
    let Ok(NodeAnswer::Pinned { pin, .. }) = rig.call(pin) else {
        panic!("not pinned");
    };
    let request = write(object(1), 5 * BLOCK as u64, pattern(100), true, 3);
    assert!(rig.call(request).is_ok());
    drain(&mut rig);
    assert_eq!(place_of(&rig, &pattern(5)), before);
    let read = NodeRequest::Read {
        object: object(1),
        offset_bytes: 5 * BLOCK as u64,
        length_bytes: BLOCK as u64,
        version: ReadVersion::Pinned(pin),
        patience_ms: 0,
    };
    match rig.call(read) {
        Ok(NodeAnswer::Read { payload, .. }) => assert_eq!(payload.to_bytes(), pattern(5)),
        other => panic!("{other:?}"),
    }
}

/// Goal: while the journal fills faster than it is emptied, what is not small goes
/// around it: it would have to be written a second time before others have room.
#[test]
fn a_filling_journal_leaves_medium_writes_to_the_disk() {
    let mut rig = file_on_the_disk();
    let four: Vec<u8> = (200..204).flat_map(pattern).collect();
    let used = |rig: &Rig| rig.store.status().journal_used_bytes;
    let before = used(&rig);
    let call = rig.send(write(object(1), 0, four.clone(), true, 3));
    assert!(answer_by_journal(&mut rig, call).is_some());
    assert!(used(&rig) - before > 16 << 10, "an empty journal takes it");
    for version in 4..74 {
        let at = (100 + 2 * version) * BLOCK as u64;
        let call = rig.send(write(object(1), at, pattern(version), true, version));
        assert!(answer_by_journal(&mut rig, call).is_some(), "{version}");
    }
    let before = used(&rig);
    assert!(before > rig.store.status().journal_bytes / 2);
    let at = 20 * BLOCK as u64;
    let call = rig.send(write(object(1), at, four.clone(), true, 74));
    assert!(
        answer_by_journal(&mut rig, call).is_none(),
        "a filling one does not"
    );
    assert_eq!(used(&rig), before);
    rig.settle();
    assert!(matches!(rig.take_reply(call), Some(Ok(_))));
    let mut rig = rig.crash(&mut Random::new(9));
    assert_eq!(rig.read(object(1), at, 4 * BLOCK as u64), Ok(four));
}

/// The answer to a call, as far as it comes without the data disk.
fn answer_by_journal(rig: &mut Rig, call: CallId) -> Option<Result<NodeAnswer, NodeError>> {
    while let Some(at) = rig.disks.journal.next_completion_at() {
        rig.now = rig.now.max(at);
        rig.disks.journal.advance(rig.now);
        while let Some(completion) = rig.disks.journal.poll() {
            let input = StoreInput::Disk(StoreDisk::Journal, completion);
            rig.store.handle(rig.now, input);
        }
        rig.run_effects();
    }
    rig.take_reply(call)
}
