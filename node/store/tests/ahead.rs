//! What is fetched for sequential readers before they ask, and reads that wait
//! for what another one fetches.

mod rig;

use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_sim::random::Random;
use crossdock_store::StoreEffect;
use rig::*;

const READ: usize = 16 * BLOCK;
const LENGTH: usize = 128 * READ;

fn content(version: u8) -> Vec<u8> {
    let block = |at: usize| (at / BLOCK).to_le_bytes()[0].wrapping_mul(31) ^ version;
    (0..LENGTH).map(block).collect()
}

/// A store with an object of 8 MiB, of which nothing is in memory.
fn cold(cache_bytes: usize) -> Rig {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    for (number, part) in content(0).chunks(1 << 20).enumerate() {
        let offset = (number as u64) << 20;
        let version = 2 + number as u64;
        let whole = write(object(1), offset, part.to_vec(), true, version);
        assert!(rig.call(whole).is_ok());
    }
    rig.config.cache_bytes = cache_bytes;
    rig.crash(&mut Random::new(1))
}

fn begin_read(rig: &mut Rig, offset: usize, length: usize) -> CallId {
    rig.send(NodeRequest::Read {
        object: object(1),
        offset_bytes: offset as u64,
        length_bytes: length as u64,
        version: ReadVersion::Current,
        patience_ms: 0,
    })
}

fn bytes_of(rig: &mut Rig, id: CallId) -> Vec<u8> {
    match rig.take_reply(id) {
        Some(Ok(NodeAnswer::Read { payload, .. })) => payload.to_bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Goal: who reads on waits for the disk twice at most, whatever the length;
/// each block is fetched once, none beyond the end, and he gets what is there.
#[test]
fn a_sequential_reader_finds_everything_fetched() {
    let mut rig = cold(64 << 20);
    let expected = content(0);
    for at in (0..LENGTH).step_by(READ) {
        let got = rig.read(object(1), at as u64, READ as u64);
        assert_eq!(got.as_deref(), Ok(&expected[at..at + READ]), "{at}");
    }
    rig.settle();
    let status = rig.store.status();
    assert_eq!(status.cache_miss_blocks, 2 * (READ / BLOCK) as u64);
    let fetched = status.cache_miss_blocks + status.read_ahead_blocks;
    assert_eq!(fetched, (LENGTH / BLOCK) as u64);
}

/// Goal: random reads fetch nothing but what was asked for, and without a cache
/// nothing is fetched ahead.
#[test]
fn nothing_is_fetched_for_others() {
    let mut rig = cold(64 << 20);
    for place in [100, 3, 60, 27, 81, 45] {
        rig.read(object(1), (place * READ) as u64, READ as u64)
            .expect("readable");
    }
    assert_eq!(rig.store.status().read_ahead_blocks, 0);
    let mut rig = cold(0);
    for at in 0..8 {
        rig.read(object(1), at * READ as u64, READ as u64)
            .expect("readable");
    }
    assert_eq!(rig.store.status().read_ahead_blocks, 0);
}

/// Goal: blocks that several want at the same time are fetched once, and each
/// gets his part.
#[test]
fn readers_of_the_same_blocks_share_a_request() {
    let mut rig = cold(64 << 20);
    rig.read(object(1), 0, 1).expect("the map is loaded");
    rig.read(object(1), 1600 * BLOCK as u64, 1).expect("loaded");
    let before = rig.store.status().cache_miss_blocks;
    // None reads on where another one ended: nothing is fetched ahead.
    let wanted = [(1548, 12), (1544, 8), (1541, 2), (1538, 20)];
    let calls = wanted.map(|(block, blocks)| {
        let id = begin_read(&mut rig, block * BLOCK, blocks * BLOCK);
        (id, block * BLOCK..(block + blocks) * BLOCK)
    });
    rig.settle();
    for (id, range) in calls {
        assert_eq!(bytes_of(&mut rig, id), content(0)[range]);
    }
    assert_eq!(rig.store.status().cache_miss_blocks - before, 22);
    assert_eq!(rig.store.status().read_ahead_blocks, 0);
}

/// Goal: a few blocks in memory – of the disk, or newer than what is there – do not cut a read of
/// the disk into many; more of them do.
#[test]
fn a_few_blocks_in_memory_are_passed_over() {
    let mut rig = cold(64 << 20);
    rig.read(object(1), 1600 * BLOCK as u64, 1).expect("loaded");
    let mut expected = content(0)[1538 * BLOCK..1570 * BLOCK].to_vec();
    for (block, blocks) in [(1541, 1), (1545, 2), (1556, 9)] {
        let length = (blocks * BLOCK) as u64;
        rig.read(object(1), (block * BLOCK) as u64, length)
            .expect("readable");
    }
    let newer = (1549 - 1538) * BLOCK..(1550 - 1538) * BLOCK;
    expected[newer.clone()].copy_from_slice(&content(7)[newer.clone()]);
    let newer = write(
        object(1),
        1549 * BLOCK as u64,
        expected[newer].to_vec(),
        true,
        50,
    );
    assert!(rig.call(newer).is_ok());
    let before = (rig.data_reads, rig.store.status().cache_miss_blocks);
    let got = rig.read(object(1), 1538 * BLOCK as u64, 32 * BLOCK as u64);
    assert_eq!(got.as_deref(), Ok(&expected[..]));
    let after = (rig.data_reads, rig.store.status().cache_miss_blocks);
    assert_eq!(after.0 - before.0, 2);
    assert_eq!(after.1 - before.1, 32 - 1 - 2 - 9 - 1);
    assert_eq!(rig.store.status().read_ahead_blocks, 0);
}

/// Goal: who asks after blocks were written over gets the new ones, although
/// the old ones are still on their way for somebody else.
#[test]
fn a_reader_never_shares_what_is_older_than_his_question() {
    let mut rig = cold(64 << 20);
    rig.read(object(1), 0, 1).expect("the map is loaded");
    let old = begin_read(&mut rig, 40 * BLOCK, 16 * BLOCK);
    let new = content(7)[44 * BLOCK..48 * BLOCK].to_vec();
    let write = rig.send(write(object(1), 44 * BLOCK as u64, new.clone(), true, 50));
    while rig.take_reply(write).is_none() {
        assert!(rig.step(), "the write ends");
    }
    let late = begin_read(&mut rig, 42 * BLOCK, 8 * BLOCK);
    rig.settle();
    assert_eq!(bytes_of(&mut rig, old), content(0)[40 * BLOCK..56 * BLOCK]);
    let got = bytes_of(&mut rig, late);
    assert_eq!(got[2 * BLOCK..6 * BLOCK], new);
    assert_eq!(got[..2 * BLOCK], content(0)[42 * BLOCK..44 * BLOCK]);
}

fn towards(offset: usize, length: usize, is_wanted: bool) -> NodeRequest {
    NodeRequest::Ahead {
        object: object(1),
        offset_bytes: offset as u64,
        length_bytes: length as u64,
        is_wanted,
    }
}

/// Goal: a gateway's word fetches what it says, once, before it is read; windows of the
/// node's own come on top no more; and nothing of an object that is not there.
#[test]
fn a_gateway_says_how_far_is_fetched() {
    let mut rig = cold(64 << 20);
    let expected = content(0);
    rig.read(object(1), 0, READ as u64).expect("readable");
    assert_eq!(
        rig.call(towards(READ, 5 * READ, true)),
        Ok(NodeAnswer::Ahead)
    );
    rig.settle();
    let fetched = |rig: &Rig| rig.store.status().read_ahead_blocks * BLOCK as u64;
    assert_eq!(fetched(&rig), 5 * READ as u64);
    let missed = rig.store.status().cache_miss_blocks;
    for at in (READ..6 * READ).step_by(READ) {
        let got = rig.read(object(1), at as u64, READ as u64);
        assert_eq!(got.as_deref(), Ok(&expected[at..at + READ]), "{at}");
    }
    rig.settle();
    assert_eq!(
        rig.store.status().cache_miss_blocks,
        missed,
        "all was there"
    );
    assert_eq!(fetched(&rig), 5 * READ as u64, "and nothing came on top");
    let nowhere = NodeRequest::Ahead {
        object: object(7),
        offset_bytes: 0,
        length_bytes: READ as u64,
        is_wanted: true,
    };
    assert_eq!(rig.call(nowhere), Err(NodeError::NoObject));
}

/// Goal: a gateway that asks for all it wants by itself gets that, and nothing is fetched on
/// top of it, whether its word comes before its reads or with them.
#[test]
fn nothing_is_fetched_for_who_reads_ahead_by_himself() {
    for is_before in [true, false] {
        let mut rig = cold(64 << 20);
        let expected = content(0);
        for at in (0..8 * READ).step_by(READ) {
            if is_before || at > 0 {
                assert_eq!(rig.call(towards(at, 0, true)), Ok(NodeAnswer::Ahead));
            }
            let got = rig.read(object(1), at as u64, READ as u64);
            assert_eq!(got.as_deref(), Ok(&expected[at..at + READ]), "{at}");
            rig.settle();
        }
        assert_eq!(rig.store.status().read_ahead_blocks, 0);
    }
}

/// Goal: what is fetched for a reader who is gone is taken back from before the disk,
/// unless a read of somebody there waits for an answer.
#[test]
fn what_a_dead_reader_would_have_read_is_withdrawn() {
    for somebody_reads in [false, true] {
        let mut rig = cold(64 << 20);
        rig.read(object(1), 0, READ as u64).expect("readable");
        let wanted = rig.send(towards(READ, 8 * READ, true));
        let other = somebody_reads.then(|| begin_read(&mut rig, READ, READ));
        let gone = rig.send(towards(2 * READ, READ, false));
        assert_eq!(rig.take_reply(wanted), Some(Ok(NodeAnswer::Ahead)));
        assert_eq!(rig.take_reply(gone), Some(Ok(NodeAnswer::Ahead)));
        let is_withdrawal = |event: &StoreEffect| matches!(event, StoreEffect::Withdraw(_));
        assert_eq!(rig.events.iter().any(is_withdrawal), !somebody_reads);
        rig.settle();
        if let Some(other) = other {
            assert_eq!(bytes_of(&mut rig, other), content(0)[READ..2 * READ]);
        }
        // Nothing counts for him any more: his place is anybody's.
        let again = rig.read(object(1), READ as u64, READ as u64);
        assert_eq!(again.as_deref(), Ok(&content(0)[READ..2 * READ]));
    }
}
