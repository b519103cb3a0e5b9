//! What a store does when the file system beneath it is full.

mod rig;

use crossdock_peer::NodeError;
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_store::{StoreEffect, StoreInput};
use rig::*;

/// From now on, or not any more, every growth of the data disk is refused.
fn fill(rig: &mut Rig, is_full: bool) {
    let options = SimDiskOptions {
        no_space_one_in: u32::from(is_full),
        ..SimDiskOptions::default()
    };
    rig.disks.data.set_options(options);
}

/// Goal: what the journal has acknowledged finds its place on a disk that does not grow
/// any more since: the blocks were there before it was taken.
#[test]
fn what_was_acknowledged_has_its_place() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    assert!(
        rig.call(write(object(1), 0, vec![7; 9000], true, 2))
            .is_ok()
    );
    assert!(
        rig.call(write(object(1), 20_000, vec![8; 500], false, 3))
            .is_ok()
    );
    fill(&mut rig, true);
    rig.store.handle(rig.now, StoreInput::Drain);
    rig.wait(5);
    let quiet = |event: &&StoreEffect| matches!(event, StoreEffect::Quiet);
    assert_eq!(rig.events.iter().filter(quiet).count(), 1);
    let status = rig.store.status();
    assert_eq!(status.allocated_bytes, 5 * BLOCK as u64);
    let mut rig = rig.crash(&mut Random::new(5));
    let mut expected = vec![0; 20_500];
    expected[..9000].fill(7);
    expected[20_000..].fill(8);
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(expected));
}

/// Goal: a file system that was full for a while does not stay full for ever.
#[test]
fn a_disk_that_refused_to_grow_is_asked_again() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    fill(&mut rig, true);
    let content = vec![1; 64 * BLOCK];
    let refused = rig.call(write(object(1), 0, content.clone(), true, 2));
    assert_eq!(refused, Err(NodeError::NoSpace));
    fill(&mut rig, false);
    rig.wait(2);
    assert!(
        rig.call(write(object(1), 0, content.clone(), true, 3))
            .is_ok()
    );
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(content));
}

/// Goal: what is written over goes on on a disk that does not grow any more, however
/// often the journal gets full: it can be emptied.
#[test]
fn a_journal_is_emptied_on_a_full_disk() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    // Only the journal has them, and the first one holds its tail.
    for (offset, version) in [(0, 2), (8192, 3)] {
        let first = write(object(1), offset, vec![7; 3000], true, version);
        assert!(rig.call(first).is_ok());
    }
    fill(&mut rig, true);
    // The journal of 1 MiB takes some 200 of them.
    for version in 4..1000 {
        let again = write(object(1), 8192, vec![8; 3000], true, version);
        let outcome = rig.call(again);
        assert!(outcome.is_ok(), "version {version}: {outcome:?}");
    }
    assert_eq!(rig.read(object(1), 0, 100), Ok(vec![7; 100]));
    assert_eq!(rig.read(object(1), 8192, 100), Ok(vec![8; 100]));
}
