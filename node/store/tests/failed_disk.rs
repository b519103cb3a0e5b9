//! What a store does when a disk fails reads, writes or flushes.

mod rig;

use crossdock_names::Version;
use crossdock_peer::{NodeError, NodeRequest};
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_store::{StoreEffect, StoreInput};
use crossdock_types::Time;
use rig::*;

/// Goal: after a flush of the journal that failed, the change is refused and so
/// are all others; reads go on; a stop does not wait.
#[test]
fn after_a_failed_flush_only_reads_go_on() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    assert!(rig.call(write(object(1), 0, vec![1; 100], true, 2)).is_ok());
    rig.disks.journal.set_options(SimDiskOptions {
        flush_error_one_in: 1,
        ..SimDiskOptions::default()
    });
    for version in 3..5 {
        let outcome = rig.call(write(object(1), 100, vec![2; 100], true, version));
        assert!(
            matches!(outcome, Err(NodeError::Media { .. })),
            "{outcome:?}"
        );
    }
    assert!(rig.store.status().has_failed);
    let bytes = rig.read(object(1), 0, 100);
    assert_eq!(bytes, Ok(vec![1; 100]));
    rig.store.handle(rig.now, StoreInput::Drain);
    rig.settle();
    let is_quiet = |event: &StoreEffect| matches!(event, StoreEffect::Quiet);
    assert!(rig.events.iter().any(is_quiet));
}

/// Goal: a frame whose flush failed is shown by reads and may vanish with the
/// power: a start that finds it makes it durable before anything follows it.
#[test]
fn nothing_is_chained_to_a_frame_that_may_vanish() {
    for seed in 0..20 {
        let mut rig = Rig::new();
        assert!(rig.call(create(object(1), 1)).is_ok());
        rig.disks.journal.set_options(SimDiskOptions {
            flush_error_one_in: 1,
            ..SimDiskOptions::default()
        });
        assert!(rig.call(write(object(1), 0, vec![1; 10], true, 2)).is_err());
        rig.disks.journal.set_options(SimDiskOptions::default());
        // The process starts anew; the power stays.
        let mut rig = rig.reopen();
        assert!(
            rig.call(write(object(1), 100, vec![2; 10], true, 3))
                .is_ok()
        );
        let mut rig = rig.crash(&mut Random::new(seed));
        let bytes = rig.read(object(1), 100, 10);
        assert_eq!(bytes, Ok(vec![2; 10]), "seed {seed}");
    }
}

/// Goal: a read that fails once while journalled bytes are merged with the block
/// beneath does not cost the block.
#[test]
fn one_failed_read_costs_no_block() {
    let mut rig = Rig::new();
    rig.config.cache_bytes = 0;
    assert!(rig.call(create(object(1), 1)).is_ok());
    let mut expected = vec![1; 32 * BLOCK];
    let whole = write(object(1), 0, expected.clone(), true, 2);
    assert!(rig.call(whole).is_ok());
    let mut rig = rig.crash(&mut Random::new(1));
    assert!(rig.call(write(object(1), 50, vec![2; 10], true, 3)).is_ok());
    expected[50..60].fill(2);
    let faulty = |read_error_one_in| SimDiskOptions {
        read_error_one_in,
        ..SimDiskOptions::default()
    };
    rig.disks.data.set_options(faulty(1));
    rig.store.handle(rig.now, StoreInput::Drain);
    while rig.disks.data.faults().read_errors == 0 {
        assert!(rig.step(), "nothing is read");
    }
    rig.disks.data.set_options(faulty(0));
    rig.settle();
    let mut rig = rig.crash(&mut Random::new(2));
    assert_eq!(rig.read(object(1), 0, 1 << 20), Ok(expected));
}

/// Goal: after the index has failed nobody waits for it without an end: a scrub,
/// a list of changes and a list of objects are answered, those under way and
/// those that come later.
#[test]
fn whoever_asks_a_failed_index_is_answered() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    rig.disks.index.set_options(SimDiskOptions {
        write_error_one_in: 1,
        ..SimDiskOptions::default()
    });
    // A batch is on its way to the index, the first questions come behind it.
    rig.now = Time(rig.now.0 + 60_000_000_000);
    rig.store.handle(rig.now, StoreInput::Timeout);
    for _ in 0..2 {
        let scrub = StoreInput::Scrub { blocks_max: 8 };
        rig.store.handle(rig.now, scrub);
        let since = Version::default();
        let changes = rig.send(NodeRequest::Changes { since, after: None });
        let list = rig.send(NodeRequest::List {
            class: object(1).class,
            placement: None,
            after: None,
            limit: 8,
        });
        rig.settle();
        assert!(rig.store.status().has_failed);
        let told = |event: &&StoreEffect| matches!(event, StoreEffect::Scrubbed(Err(_)));
        assert_eq!(
            rig.events.iter().filter(told).count(),
            1,
            "{:?}",
            rig.events
        );
        for call in [changes, list] {
            let answer = rig.take_reply(call);
            let is_told = matches!(answer, Some(Err(NodeError::Media { .. })));
            assert!(is_told, "{answer:?}");
        }
        rig.events.clear();
    }
}
