//! What a store does when the file system beneath it is full.

mod rig;

use crossdock_peer::NodeError;
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_store::{StoreEffect, StoreInput};
use crossdock_types::Time;
use rig::*;

/// From now on, or not any more, every growth of the data disk is refused.
fn fill(rig: &mut Rig, is_full: bool) {
    let options = SimDiskOptions {
        no_space_one_in: u32::from(is_full),
        ..SimDiskOptions::default()
    };
    rig.disks.data.set_options(options);
}

/// Goal: with not a block free, what the journal has stays there: the store
/// comes to rest, and nothing is lost.
#[test]
fn a_stop_with_not_a_block_free_comes_to_rest() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    // The journal takes it; the data disk has no block yet, and gets none.
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
    assert_eq!(rig.store.status().allocated_bytes, 0);
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

/// Goal: a write that waited for room in the journal, which only a block on the
/// disk would give it, is told that there is no space, not to try again.
#[test]
fn a_journal_that_cannot_be_emptied_says_no_space() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    // Only the journal has them, and the first one holds its tail.
    for (offset, version) in [(0, 2), (8192, 3)] {
        let first = write(object(1), offset, vec![7; 3000], true, version);
        assert!(rig.call(first).is_ok());
    }
    fill(&mut rig, true);
    let mut outcomes = Vec::new();
    for version in 4..1000 {
        let again = write(object(1), 8192, vec![8; 3000], true, version);
        let deadline = Time(rig.now.0 + 3_000_000_000);
        let id = rig.send_until(deadline, again);
        rig.wait(4);
        outcomes.push(rig.take_reply(id).expect("a reply"));
    }
    let is_ok = |outcome: &&Result<_, _>| outcome.is_ok();
    let written = outcomes.iter().take_while(is_ok).count();
    assert!(written > 50, "the journal of 1 MiB takes {written}");
    assert!(written < outcomes.len(), "the journal gets no end");
    for outcome in &outcomes[written..] {
        assert_eq!(*outcome, Err(NodeError::NoSpace));
    }
    assert_eq!(rig.read(object(1), 0, 100), Ok(vec![7; 100]));
    assert_eq!(rig.read(object(1), 8192, 100), Ok(vec![8; 100]));
}
