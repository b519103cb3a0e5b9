//! Small files on nodes that fail: what was acknowledged stays, what was taken
//! back is gone for everybody, and freed space comes back.

mod rig;

use std::time::Duration;

use crossdock_names::{NodeId, ObjectClass, SiteId};
use crossdock_peer::{NodeRequest, SiteError, Stability};
use crossdock_site::SiteLimits;
use crossdock_smallfile::SmallFilesConfig;

use rig::{Node, Rig, create, plain, write};

fn rig() -> Rig {
    Rig::new(SiteLimits::default())
}

fn node(rig: &mut Rig, number: u64) -> &mut Node {
    rig.nodes.get_mut(&NodeId(number)).expect("a node")
}

/// Goal: an acknowledged write survives a restart during which replicas cannot
/// read its bytes: they had them, as far as anybody can tell. (A failed read
/// was once taken for bytes that never arrived, and the write was dropped.)
#[test]
fn an_unreadable_replica_voids_nothing() {
    for unreadable in [&[1][..], &[2], &[1, 2]] {
        let mut rig = rig();
        let file = rig.create("a");
        rig.write(file, 0, &[1; 20_000], Stability::Stable);
        for &number in unreadable {
            node(&mut rig, number).unreadable_small_files = true;
        }
        rig.restart();
        let report = rig.opened.clone().expect("opened").expect("well");
        assert_eq!(report.voided, 0);
        if unreadable.len() == 2 {
            node(&mut rig, 2).unreadable_small_files = false;
        }
        assert_eq!(rig.read(file), vec![1; 20_000]);
    }
}

/// Goal: a member that has other bytes proves that a write was not
/// acknowledged, also if the other member cannot read its own.
#[test]
fn a_replica_without_the_bytes_voids_the_write() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, &[1; 20_000], Stability::Stable);
    let written = rig.send(plain(write(file, 0, &[2; 20_000], Stability::Stable)));
    rig.to_nodes
        .retain(|(_, call)| matches!(call.request, NodeRequest::Append { .. }));
    rig.run();
    assert!(!rig.replies.contains_key(&written));
    node(&mut rig, 1).unreadable_small_files = true;
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert_eq!(report.voided, 1);
    node(&mut rig, 1).unreadable_small_files = false;
    assert_eq!(rig.read(file), vec![1; 20_000]);
}

/// Goal: a write that a node refuses is taken back, and the attributes are the
/// same before and after a restart. (Memory once kept the size that the write
/// had given, which replay dropped with the write.)
#[test]
fn a_write_that_was_taken_back_leaves_the_same_attributes_after_a_restart() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, &[1; 5000], Stability::Stable);
    node(&mut rig, 2).no_space_for_small_files = true;
    let reply = rig.ask(write(file, 2000, &[2; 20_000], Stability::Stable));
    assert_eq!(reply.outcome, Err(SiteError::NoSpace));
    let before = rig.attributes(file);
    let content = rig.read(file);
    assert_eq!(content[..5000], [1; 5000]);
    assert!(content[5000..].iter().all(|&byte| byte == 0));
    rig.restart();
    assert_eq!(rig.attributes(file), before);
    assert_eq!(rig.read(file), content);
}

/// Goal: a write is answered although a member leaves the set while the write's
/// backing object is being made. (It once waited for as many answers as there
/// had been members when it began.)
#[test]
fn a_member_that_leaves_while_a_backing_object_is_made_holds_up_nobody() {
    for steps in 0..12 {
        let mut rig = rig();
        let file = rig.create("a");
        let written = rig.send(plain(write(file, 0, &[1; 20_000], Stability::Stable)));
        for _ in 0..steps {
            rig.step();
        }
        rig.leave(NodeId(2));
        rig.run();
        let reply = rig.replies.get(&written);
        let outcome = reply.map(|reply| &reply.outcome);
        assert!(matches!(outcome, Some(Ok(_))), "{steps}: {outcome:?}");
        assert_eq!(rig.read(file), [1; 20_000]);
    }
}

/// A site whose backing space takes two files of 64 KiB, and is full.
fn full_rig() -> Rig {
    let mut rig = Rig::with_small_files(SmallFilesConfig {
        object_bytes_max: 128 << 10,
        backing_bytes_max: 128 << 10,
        ..SmallFilesConfig::new(SiteId(0))
    });
    for name in ["a", "b"] {
        let file = rig.create(name);
        rig.write(file, 0, &[1; 64 << 10], Stability::Stable);
    }
    rig
}

/// Goal: where space was freed and nothing else happens, it can be used after
/// a while.
#[test]
fn freed_space_comes_back_to_an_idle_site() {
    let mut rig = full_rig();
    assert_eq!(rig.remove("a").outcome.err(), None);
    let file = rig.create("c");
    assert_eq!(rig.site.small_files().space().free_bytes, 0);
    let wake = rig.site.poll_timeout().expect("it wants to be woken");
    assert!(wake <= rig.now + Duration::from_secs(5));
    rig.pass(Duration::from_secs(6));
    assert_eq!(rig.site.small_files().space().free_bytes, 64 << 10);
    rig.write(file, 0, &[3; 64 << 10], Stability::Stable);
    rig.restart();
    assert_eq!(rig.read(file), [3; 64 << 10]);
}

/// Bytes of backing objects on a node that are not zero.
fn held_bytes(rig: &mut Rig, number: u64) -> usize {
    let objects = node(rig, number).objects.iter();
    let small = objects.filter(|(id, _)| id.class == ObjectClass::SmallFiles);
    let count = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte != 0).count();
    small.map(|(_, object)| count(&object.bytes)).sum()
}

/// Goal: space of removed files goes back to every node after a while; bytes of
/// files that are there stay, and what was given back can be used again.
#[test]
fn freed_space_goes_back_to_the_nodes() {
    let mut rig = full_rig();
    assert_eq!(rig.remove("a").outcome.err(), None);
    let left = rig.lookup("b").expect("it is there");
    for _ in 0..3 {
        rig.pass(Duration::from_secs(6));
    }
    for number in [1, 2] {
        assert_eq!(held_bytes(&mut rig, number), 64 << 10);
    }
    assert_eq!(rig.site.poll_timeout(), None, "nothing is left to do");
    let file = rig.create("c");
    rig.write(file, 0, &[3; 64 << 10], Stability::Stable);
    assert_eq!(rig.read(file), [3; 64 << 10]);
    assert_eq!(rig.read(left), [1; 64 << 10]);
    rig.site.small_files().check_space().expect("exact");
    rig.restart();
    assert_eq!(rig.read(file), [3; 64 << 10]);
    assert_eq!(rig.read(left), [1; 64 << 10]);
}

/// Goal: space on its way back is given to no file: a write that needs it is
/// told to try again. A node that leaves meanwhile holds nothing up, and a
/// restart gives back again what may have been given back in part.
#[test]
fn space_on_its_way_back_is_given_to_nobody() {
    for leaves in [false, true] {
        let mut rig = full_rig();
        assert_eq!(rig.remove("a").outcome.err(), None);
        let file = rig.create("c");
        rig.pass(Duration::from_secs(6));
        rig.now = rig.now + Duration::from_secs(6);
        rig.input(crossdock_site::SiteInput::Timeout);
        let is_hole = |request: &NodeRequest| matches!(request, NodeRequest::Zero { .. });
        let (holes, others): (Vec<_>, Vec<_>) = rig
            .to_nodes
            .drain(..)
            .partition(|(_, call)| is_hole(&call.request));
        assert_eq!(holes.len(), 2, "one to each member");
        rig.to_nodes.extend(others);
        let again = write(file, 0, &[3; 64 << 10], Stability::Stable);
        let reply = rig.ask(again.clone());
        assert_eq!(reply.outcome, Err(SiteError::Busy));
        rig.site.small_files().check_space().expect("exact");
        rig.to_nodes.extend(holes);
        if leaves {
            rig.leave(NodeId(2));
        } else {
            rig.step_unanswered(); // One member has done it.
            rig.restart();
            rig.pass(Duration::from_secs(6));
            rig.pass(Duration::from_secs(6));
            assert_eq!(held_bytes(&mut rig, 2), 64 << 10);
        }
        rig.run();
        assert_eq!(held_bytes(&mut rig, 1), 64 << 10);
        assert!(rig.ask(again).outcome.is_ok());
        assert_eq!(rig.read(file), [3; 64 << 10]);
    }
}

/// Goal: a write that finds no space but what was just freed is told to try
/// again, and finds it then.
#[test]
fn a_write_that_waits_for_freed_space_finds_it() {
    let mut rig = full_rig();
    assert_eq!(rig.remove("a").outcome.err(), None);
    let file = rig.create("c");
    let again = write(file, 0, &[3; 64 << 10], Stability::Stable);
    let reply = rig.ask(again.clone());
    assert_eq!(reply.outcome, Err(SiteError::Busy));
    assert!(rig.ask(again).outcome.is_ok());
    let reply = rig.ask(write(file, 0, &[4; 64 << 10], Stability::Stable));
    assert_eq!(reply.outcome, Err(SiteError::NoSpace));
}

/// Goal: replay begins at a frame whose records the checkpoint may contain
/// already; what it contains is neither verified nor applied again to space.
#[test]
fn what_a_checkpoint_covers_is_replayed_without_asking_for_its_bytes() {
    let mut rig = Rig::new(SiteLimits {
        checkpoint_log_bytes_max: 500, // Reached by the long name only.
        checkpoint_ratio_max: u64::MAX,
        ..SiteLimits::default()
    });
    let file = rig.create("a");
    // Its frame is under way: the write is gathered for the next one, where
    // the checkpoint that begins now has its start.
    rig.send(plain(create(&"b".repeat(255))));
    let written = rig.send(plain(write(file, 0, &[1; 20_000], Stability::Stable)));
    rig.run();
    assert!(rig.replies[&written].outcome.is_ok());
    rig.begin_restart();
    loop {
        let asked = rig.to_nodes.iter().any(|(_, call)| {
            let object = call.request.object();
            object.is_some_and(|object| object.class == ObjectClass::SmallFiles)
        });
        assert!(!asked, "for bytes that had arrived");
        if !rig.step() {
            break;
        }
    }
    let report = rig.opened.clone().expect("opened").expect("well");
    assert!(report.checkpoint.is_some());
    assert!(report.records > 0, "the write is behind the start");
    assert_eq!(report.voided, 0);
    rig.site.small_files().check_space().expect("exact");
    assert_eq!(rig.read(file), [1; 20_000]);
}

/// Goal: a large small-file write whose bytes did not arrive before a crash
/// was never acknowledged, and is void.
#[test]
fn bytes_that_did_not_arrive_are_void() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, &[1; 20_000], Stability::Stable);
    let written = rig.send(plain(write(file, 0, &[2; 20_000], Stability::Stable)));
    // Only the log's appends are carried out.
    let (appends, others): (Vec<_>, Vec<_>) = rig
        .to_nodes
        .drain(..)
        .partition(|(_, call)| matches!(call.request, NodeRequest::Append { .. }));
    assert!(!others.is_empty());
    rig.to_nodes.extend(appends);
    rig.run();
    assert!(!rig.replies.contains_key(&written));
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert_eq!(report.voided, 1);
    assert_eq!(rig.read(file), vec![1; 20_000]);
    rig.restart();
    assert_eq!(rig.read(file), vec![1; 20_000]);
}

/// Goal: many inlined files are moved to backing objects, and are what they were.
#[test]
fn inlined_bytes_are_moved_to_backing_objects() {
    let mut rig = rig();
    let mut files = Vec::new();
    for number in 0..6000u32 {
        let file = rig.create(&number.to_string());
        let byte = u8::try_from(number % 251).expect("a byte");
        rig.write(file, 0, &[byte; 4000], Stability::Stable);
        files.push((file, byte));
    }
    let memory = rig.site.small_files().memory();
    assert!(memory.inlined_bytes <= 17 << 20, "{memory:?}");
    rig.restart();
    for (file, byte) in files {
        assert_eq!(rig.read(file), vec![byte; 4000]);
    }
}
