//! What a scrub sees.

mod rig;

use crossdock_names::Version;
use crossdock_peer::{NodeError, NodeRequest};
use crossdock_sim::random::Random;
use crossdock_store::{ScrubReport, StoreEffect, StoreInput};
use crossdock_types::Payload;
use rig::*;

/// Steps until the scrub has seen everything; the sum of its reports.
fn scrub(rig: &mut Rig) -> ScrubReport {
    let mut sum = ScrubReport::default();
    for _ in 0..100 {
        rig.store
            .handle(rig.now, StoreInput::Scrub { blocks_max: 64 });
        rig.settle();
        let is_report = |event: &StoreEffect| matches!(event, StoreEffect::Scrubbed(_));
        let at = rig.events.iter().position(is_report).expect("a report");
        let StoreEffect::Scrubbed(Ok(report)) = rig.events.remove(at) else {
            continue;
        };
        sum.blocks += report.blocks;
        sum.findings.extend(report.findings);
        if report.is_complete {
            sum.is_complete = true;
            return sum;
        }
    }
    panic!("the scrub does not end");
}

/// Goal: a bit that flipped on the disk is found although memory has the block.
#[test]
fn a_flipped_bit_under_a_cached_block_is_found() {
    let mut rig = Rig::new();
    let content = vec![1; 64 * BLOCK];
    assert!(rig.call(create(object(1), 1)).is_ok());
    assert!(
        rig.call(write(object(1), 0, content.clone(), true, 2))
            .is_ok()
    );
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(content.clone()));
    assert_eq!(scrub(&mut rig).findings.len(), 0);
    assert!(rig.disks.data.flip_bit().is_some());
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(content), "from memory");
    let report = scrub(&mut rig);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].object, object(1));
}

/// Goal: objects that the index has not heard of are verified as well.
#[test]
fn an_object_that_only_the_journal_knows_is_verified() {
    let mut rig = Rig::new();
    for number in 1..=3 {
        assert!(rig.call(create(object(number), number * 2)).is_ok());
        let content = vec![1; 32 * BLOCK];
        let write = write(object(number), 0, content, true, number * 2 + 1);
        assert!(rig.call(write).is_ok());
    }
    assert_eq!(rig.store.status().checkpoints, 0, "the index is behind");
    let report = scrub(&mut rig);
    assert_eq!((report.blocks, report.findings.len()), (96, 0));
}

/// Goal: of many blocks that are read together the bad ones are named, not the
/// stretch; a block of another version or other bytes is not taken for a repair,
/// the right one is, and survives a crash in its new place.
#[test]
fn a_bad_block_is_named_and_repaired_with_nothing_but_itself() {
    let mut rig = Rig::new();
    rig.config.cache_bytes = 0;
    let content: Vec<u8> = (0..64 * BLOCK)
        .map(|at| (at / BLOCK).to_le_bytes()[0])
        .collect();
    assert!(rig.call(create(object(1), 1)).is_ok());
    let whole = write(object(1), 0, content.clone(), true, 2);
    assert!(rig.call(whole).is_ok());
    let mut rig = rig.crash(&mut Random::new(1));
    assert!(rig.disks.data.flip_bit().is_some());
    let findings = scrub(&mut rig).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(rig.store.status().bad_blocks, 1);
    let offset_bytes = findings[0].offset_bytes;
    let at = usize::try_from(offset_bytes).expect("within the object");
    let mut put = |bytes: &[u8], version| {
        rig.call(NodeRequest::Repair {
            object: object(1),
            offset_bytes,
            payload: Payload::from(bytes::Bytes::copy_from_slice(bytes)),
            version: Version(version),
        })
    };
    let right = &content[at..at + BLOCK];
    let mut wrong = right.to_vec();
    wrong[9] ^= 1;
    assert_eq!(put(&wrong, 3), Err(NodeError::VersionGone));
    assert_eq!(put(&right[..9], 2), Err(NodeError::VersionGone));
    assert!(put(right, 3).is_ok());
    assert_eq!(rig.store.status().repaired_blocks, 1);
    assert_eq!(rig.store.status().bad_blocks, 0, "repaired");
    let mut rig = rig.crash(&mut Random::new(2));
    assert_eq!(scrub(&mut rig).findings, []);
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(content));
}
