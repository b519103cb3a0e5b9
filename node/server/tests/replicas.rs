//! Two nodes of one set on simulated disks, one of which goes bad.

mod rig;

use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{Epoch, SetId};
use crossdock_peer::{
    MappedRanges, NodeAnswer, NodeError, NodeRequest, Order, ReadVersion, Stability,
};
use crossdock_server::NodeInput;
use crossdock_sim::disk::SimDiskOptions;
use crossdock_store::StoreInput;
use crossdock_types::{BLOCK_BYTES, Payload};

use rig::{BLOCKS, OBJECT, OTHER, PRIMARY, Rig, all_reads_fail, content, routed_at, table};

/// Goal (invariant 7): a client never sees a flipped bit, nor an error, while
/// another member has the block; behind its read the block is mended, in the
/// place where the next read looks for it.
#[test]
fn a_bad_block_is_read_from_the_other_member_and_repaired() {
    let mut rig = Rig::new();
    assert!(rig.data(PRIMARY).flip_bit().is_some());
    assert_eq!(rig.read(), Ok(content()));
    assert_eq!(rig.damage, [true]);
    let status = rig.members[&PRIMARY].node.store().status();
    assert_eq!((status.media_errors > 0, status.repaired_blocks), (true, 1));
    assert_eq!(status.bad_blocks, 0, "it is not bad any more");
    rig.data(OTHER).set_options(all_reads_fail());
    assert_eq!(rig.read(), Ok(content()), "without the other's help");
    assert_eq!(rig.damage.len(), 1);
}

/// Goal: what a scrub finds is mended from the other member before it tells of
/// it, on the primary and on the others; the next scrub is clean.
#[test]
fn a_scrub_mends_what_it_finds() {
    for id in [PRIMARY, OTHER] {
        let mut rig = Rig::new();
        assert!(rig.data(id).flip_bit().is_some());
        let report = rig.scrub(id);
        assert!(report.is_complete);
        let repaired: Vec<bool> = report.findings.iter().map(|it| it.is_repaired).collect();
        assert_eq!(repaired, [true], "{report:?}");
        assert_eq!(rig.scrub(id).findings, []);
        assert_eq!(rig.read(), Ok(content()));
    }
}

/// Goal: a block of which the journal holds newer bytes is mended with them, also
/// when its checksum was given up because they were merged with what was bad.
#[test]
fn a_block_that_was_merged_with_a_bad_one_is_repaired() {
    for merges in [false, true] {
        let mut rig = Rig::new();
        let mut expected = content();
        for block in 0..BLOCKS {
            rig.data(PRIMARY).flip_bit();
            let at = block * BLOCK_BYTES + 50;
            expected[at..at + 10].fill(9);
            assert!(rig.write(at as u64, vec![9; 10]).is_ok());
        }
        if merges {
            rig.give(PRIMARY, NodeInput::Store(StoreInput::Drain));
            rig.settle();
        }
        // Those that were just being merged are repaired behind the second read.
        for _ in 0..2 {
            assert_eq!(rig.read(), Ok(expected.clone()));
        }
        assert!(
            rig.damage.len() > 1 && rig.damage.iter().all(|it| *it),
            "{merges}"
        );
        rig.data(OTHER).set_options(all_reads_fail());
        assert_eq!(rig.read(), Ok(expected));
    }
}

/// Goal: when nobody has the block the client is told, once per bad block the
/// administrator is, too, and nothing goes round in circles.
#[test]
fn a_block_that_is_bad_everywhere_is_reported() {
    let mut rig = Rig::new();
    for id in [PRIMARY, OTHER] {
        rig.data(id).set_options(all_reads_fail());
    }
    for _ in 0..3 {
        assert!(matches!(
            rig.read(),
            Err(NodeError::Media { node: PRIMARY, .. })
        ));
    }
    assert_eq!(rig.damage, [false; BLOCKS]);
    for id in [PRIMARY, OTHER] {
        rig.data(id).set_options(SimDiskOptions::default());
    }
    assert_eq!(rig.read(), Ok(content()));
}

/// Goal: a primary whose disk takes no writes any more leaves its set: the write
/// is done again under the other member, which has all that was acknowledged.
#[test]
fn a_primary_whose_disk_fails_leaves_its_set() {
    let mut rig = Rig::new();
    let member = rig.members.get_mut(&PRIMARY).expect("a member");
    member.journal.set_options(SimDiskOptions {
        flush_error_one_in: 1,
        ..SimDiskOptions::default()
    });
    let refused = rig.write(0, vec![5; 100]);
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
    assert_eq!(rig.table.epoch, Epoch(2));
    assert!(rig.write(0, vec![5; 100]).is_ok());
    let mut expected = content();
    expected[..100].fill(5);
    assert_eq!(rig.read(), Ok(expected));
}

/// Goal: a hole is at all members before it is answered, with the same version, and whoever
/// becomes the primary then tells it as one.
#[test]
fn a_hole_is_made_at_all_members() {
    let mut rig = Rig::new();
    let (offset_bytes, length_bytes) = (3 * BLOCK_BYTES as u64, 10 * BLOCK_BYTES as u64);
    let zero = |epoch| NodeRequest::Zero {
        object: OBJECT,
        offset_bytes,
        length_bytes,
        context: routed_at(epoch),
        order: Order::Primary,
    };
    let all_bytes = (BLOCKS * BLOCK_BYTES) as u64;
    let mapped = NodeRequest::Mapped {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: all_bytes,
        truncate_generation: 0,
    };
    let made = rig.call(PRIMARY, zero(1));
    assert!(matches!(made, Ok(NodeAnswer::Done { .. })), "{made:?}");
    assert_eq!(rig.shown, None, "all members have it");
    let told = rig.call(PRIMARY, mapped.clone());
    assert_eq!(rig.shown, Some(SetId(0)), "the primary's word alone");
    let expected = MappedRanges {
        runs: vec![0..offset_bytes, offset_bytes + length_bytes..all_bytes],
        end_bytes: all_bytes,
    };
    assert_eq!(told, Ok(NodeAnswer::Mapped(expected)));
    assert!(rig.call(OTHER, mapped.clone()).is_err(), "no primary");
    rig.table = table(2, &[OTHER]);
    for id in [PRIMARY, OTHER] {
        let input = NodeInput::Table(Arc::clone(&rig.table));
        rig.give(id, input);
    }
    rig.settle();
    assert_eq!(rig.call(OTHER, mapped), told);
    let mut bytes = content();
    bytes[3 * BLOCK_BYTES..13 * BLOCK_BYTES].fill(0);
    assert_eq!(rig.read(), Ok(bytes));
    // One that was routed by the old table comes too late.
    let late = rig.call(PRIMARY, zero(1));
    assert!(
        matches!(late, Err(NodeError::StaleTable { .. })),
        "{late:?}"
    );
}

/// Goal (CONSISTENCY 4): an answer that a primary gives alone says so, as it needs
/// a lease; what all members have had a part in does not.
#[test]
fn what_a_primary_answers_alone_is_marked() {
    let mut rig = Rig::new();
    assert!(rig.write(0, vec![1; 100]).is_ok());
    assert_eq!(rig.shown, None, "all members have it");
    assert!(rig.read().is_ok());
    assert_eq!(rig.shown, Some(SetId(0)));
    let stat = rig.call(PRIMARY, NodeRequest::Stat { object: OBJECT });
    assert!(stat.is_ok());
    assert_eq!(rig.shown, Some(SetId(0)));
    let refused = rig.call(OTHER, NodeRequest::Stat { object: OBJECT });
    assert!(refused.is_err());
    assert_eq!(rig.shown, None, "nothing is shown");
}

/// Goal: any member gives the bytes of one version, alone and without a lease, as they are the
/// same everywhere; whoever has left the set does not, as it may lack some of them.
#[test]
fn any_member_gives_exactly_one_version() {
    let mut rig = Rig::new();
    let of = |version| NodeRequest::Read {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: (BLOCKS * BLOCK_BYTES) as u64,
        version,
        patience_ms: 0,
    };
    let current = rig.call(PRIMARY, of(ReadVersion::Current));
    let Ok(NodeAnswer::Read { version, .. }) = current else {
        panic!("{current:?}");
    };
    assert!(rig.call(OTHER, of(ReadVersion::Current)).is_err());
    let exactly = of(ReadVersion::Exactly(version));
    assert_eq!(rig.call(OTHER, exactly.clone()), current);
    assert_eq!(rig.shown, None, "it is nobody's word but the version's");
    assert!(rig.write(0, vec![5; 100]).is_ok());
    let gone = Err(NodeError::VersionGone);
    assert_eq!(rig.call(OTHER, exactly.clone()), gone);
    rig.table = table(2, &[PRIMARY]);
    let input = NodeInput::Table(Arc::clone(&rig.table));
    rig.give(OTHER, input);
    let refused = rig.call(OTHER, exactly);
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
}

/// Goal: what a gateway was promised any member pins for it, in that version or not at all; who has
/// left the set does not.
#[test]
fn members_pin_what_was_promised() {
    let mut rig = Rig::new();
    let pin = |version| NodeRequest::Pin {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: BLOCK_BYTES as u64,
        version: Some(version),
        lease_ms: 60_000,
    };
    let Ok(NodeAnswer::Read { version, payload }) = rig.call(PRIMARY, read_of(0)) else {
        panic!("no read");
    };
    assert!(rig.call(OTHER, pin(version)).is_ok());
    assert!(rig.write(0, vec![5; BLOCK_BYTES]).is_ok());
    let read = NodeRequest::Read {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: BLOCK_BYTES as u64,
        version: ReadVersion::AsOf {
            changed: version,
            as_of: version,
        },
        patience_ms: 0,
    };
    let then = rig.call(OTHER, read.clone());
    assert_eq!(then, Ok(NodeAnswer::Read { payload, version }));
    assert_eq!(rig.call(PRIMARY, read), Err(NodeError::VersionGone));
    assert_eq!(rig.call(OTHER, pin(version)), Err(NodeError::VersionGone));
    rig.table = table(2, &[PRIMARY]);
    let input = NodeInput::Table(Arc::clone(&rig.table));
    rig.give(OTHER, input);
    let refused = rig.call(OTHER, pin(version));
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
}

fn read_of(block: usize) -> NodeRequest {
    NodeRequest::Read {
        object: OBJECT,
        offset_bytes: (block * BLOCK_BYTES) as u64,
        length_bytes: BLOCK_BYTES as u64,
        version: ReadVersion::Current,
        patience_ms: 0,
    }
}

/// Goal: nobody sees bytes that would be gone if the other member took over now: a read of a
/// change that it lacks waits for it; one beside it does not.
#[test]
fn a_read_shows_nothing_that_a_member_lacks() {
    let mut rig = Rig::new();
    rig.is_cut = true;
    let write = NodeRequest::Write {
        object: OBJECT,
        offset_bytes: 3 * BLOCK_BYTES as u64,
        payload: Payload::from(Bytes::from(vec![7; BLOCK_BYTES])),
        stability: Stability::Stable,
        context: routed_at(1),
        order: Order::Primary,
    };
    let write = rig.begin(PRIMARY, write);
    rig.settle();
    let [before, read, behind] = [2, 3, 4].map(|block| rig.begin(PRIMARY, read_of(block)));
    rig.settle();
    assert!(rig.replies.contains_key(&before) && rig.replies.contains_key(&behind));
    assert!(!rig.replies.contains_key(&write) && !rig.replies.contains_key(&read));
    rig.is_cut = false;
    rig.settle();
    assert!(matches!(
        rig.replies.get(&write),
        Some(Ok(NodeAnswer::Written { .. }))
    ));
    let Some(Ok(NodeAnswer::Read { payload, .. })) = rig.replies.get(&read) else {
        panic!("{:?}", rig.replies.get(&read));
    };
    assert_eq!(payload.to_bytes(), vec![7; BLOCK_BYTES]);
}
