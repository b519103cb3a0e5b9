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
