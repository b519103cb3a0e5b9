//! Who is asked for what was read before, when the set has another primary since.

mod script;

use std::sync::Arc;
use std::time::Duration;

use crossdock_names::{NodeId, Version};
use crossdock_peer::{
    CallId, LeaseId, NodeAnswer, NodeError, NodeRequest, ReadVersion, SiteAnswer,
};
use crossdock_router::{Router, RouterEffect, RouterInput};
use crossdock_types::{Payload, Time, WallTime};

use script::*;

const END: u64 = T + 100;
const GIVEN: Version = Version(40);

/// Reads ten bytes, and opens the file with a lease unless that is known already.
fn begin(
    router: &mut Router,
    id: u64,
    lease: Option<(bool, WallTime)>,
) -> (NodeId, CallId, ReadVersion) {
    begin_at(router, (secs(1), T), id, lease)
}

/// The same with bytes from `offset` on, at that time.
fn begin_at(
    router: &mut Router,
    (now, offset): (Time, u64),
    id: u64,
    lease: Option<(bool, WallTime)>,
) -> (NodeId, CallId, ReadVersion) {
    ask(router, now, id, read(offset, 10));
    if let Some((is_exclusive, changed)) = lease {
        let [open] = expect(router, vec![Seen::OpenRead]);
        let mut told = attributes(END);
        told.changed = changed;
        open_with_lease(router, open, (id, is_exclusive), told);
    }
    asked(router)
}

/// The one node that is asked to read.
#[track_caller]
fn asked(router: &mut Router) -> (NodeId, CallId, ReadVersion) {
    match router.poll_effect() {
        Some(RouterEffect::Node(node, call, _)) => match call.request {
            NodeRequest::Read { version, .. } => (node, call.id, version),
            other => panic!("unexpected {other:?}"),
        },
        other => panic!("unexpected {other:?}"),
    }
}

fn give(router: &mut Router, id: CallId, version: Version) {
    give_at(router, secs(1), id, version);
}

fn give_at(router: &mut Router, now: Time, id: CallId, version: Version) {
    let payload = Payload::from(bytes::Bytes::from_static(b"0123456789"));
    node_at(router, now, id, Ok(NodeAnswer::Read { payload, version }));
    let (seen, _) = drain(router);
    let is_right = matches!(seen[..], [Seen::Reply(_, Ok(SiteAnswer::Read { .. }))]);
    assert!(is_right, "{seen:?}");
}

/// The other member of set 0 is its primary now.
fn swap(router: &mut Router) {
    lead(router, 2, true);
}

/// From that table on the second members are the primaries, or the first ones.
fn lead(router: &mut Router, epoch: u64, is_second: bool) {
    let mut table = Arc::unwrap_or_clone(table(epoch));
    for set in table.sets.values_mut().filter(|_| is_second) {
        set.members.reverse();
    }
    router.handle(secs(1), RouterInput::Table(Arc::new(table)));
}

/// A router that has read a piece of node 10 under a lease, before node 11 became the primary.
fn after_swap(is_exclusive: bool) -> Router {
    let mut router = router();
    let lease = (is_exclusive, WallTime(5));
    let (asked, call, version) = begin(&mut router, 1, Some(lease));
    assert_eq!((asked, version), (NodeId(10), ReadVersion::Current));
    give(&mut router, call, GIVEN);
    swap(&mut router);
    router
}

/// Goal: as long as a lease says that nobody has changed the file, the member that has given a
/// piece gives it again, in the version that it gave, though another one is the primary.
#[test]
fn who_gave_a_piece_is_asked_again() {
    let mut router = after_swap(false);
    for id in 2..4 {
        let (asked, call, version) = begin(&mut router, id, None);
        assert_eq!((asked, version), (NodeId(10), ReadVersion::Exactly(GIVEN)));
        give(&mut router, call, GIVEN);
    }
}

/// Goal: who does not have it any more, or cannot be asked, is asked once: then the primary is,
/// as ever, and its answer counts from then on.
#[test]
fn the_primary_is_asked_if_that_fails() {
    for error in [
        NodeError::VersionGone,
        NodeError::Unavailable { node: NodeId(10) },
    ] {
        let mut router = after_swap(false);
        let (asked_first, call, _) = begin(&mut router, 2, None);
        assert_eq!(asked_first, NodeId(10));
        node(&mut router, call, Err(error));
        router.handle(secs(1), RouterInput::Timeout);
        let (node, call, version) = asked(&mut router);
        assert_eq!((node, version), (NodeId(11), ReadVersion::Current));
        give(&mut router, call, GIVEN);
        let (node, _, version) = begin(&mut router, 3, None);
        assert_eq!((node, version), (NodeId(11), ReadVersion::Current));
    }
}

/// Goal: the primary is asked if the file was changed since, and under a lease to write, when
/// changes may be on their way.
#[test]
fn only_an_unchanged_file_counts() {
    let mut router = after_swap(true);
    let (node, _, version) = begin(&mut router, 2, None);
    assert_eq!((node, version), (NodeId(11), ReadVersion::Current));

    let mut router = after_swap(false);
    let recall = crossdock_peer::Recall {
        file: FILE,
        lease: LeaseId(1 << 32 | 1),
    };
    router.handle(secs(1), RouterInput::Recall(recall));
    while router.poll_effect().is_some() {} // It goes back.
    let changed = Some((false, WallTime(6)));
    let (node, _, version) = begin(&mut router, 2, changed);
    assert_eq!((node, version), (NodeId(11), ReadVersion::Current));
}

/// Goal: what a member gives slowly again is asked of one that gives again much faster, in the
/// version that was given; a part of it still of the slow one, and all of it once the faster one
/// has not had something.
#[test]
fn a_faster_member_is_asked() {
    const PIECES: u64 = 40;
    let mut router = router();
    let (mut now, mut id) = (secs(1), 0);
    let mut lease = Some((false, WallTime(5)));
    // Reads a piece, which takes that long, and says who has given it.
    let mut read_at = |router: &mut Router, piece: u64, ms: u64, version: Version| {
        id += 1;
        let (from, call, _) = begin_at(router, (now, T + piece), id, lease.take());
        now = now + Duration::from_millis(ms);
        give_at(router, now, call, version);
        from
    };
    for piece in 0..PIECES {
        assert_eq!(read_at(&mut router, piece, 0, GIVEN), NodeId(10));
    }
    for piece in 0..10 {
        assert_eq!(read_at(&mut router, piece, 20, GIVEN), NodeId(10));
    }
    swap(&mut router);
    for _ in 0..10 {
        assert_eq!(read_at(&mut router, PIECES, 1, Version(41)), NodeId(11));
    }
    lead(&mut router, 3, false);
    let mut asked = Vec::new();
    for piece in 0..PIECES {
        asked.push(begin_at(&mut router, (now, T + piece), 1000 + piece, None));
    }
    let fast = asked.iter().filter(|it| it.0 == NodeId(11));
    assert!((20..40).contains(&fast.clone().count()), "{asked:?}");
    for (node, _, version) in &asked {
        match *node {
            NodeId(11) => assert_eq!(*version, ReadVersion::Exactly(GIVEN)),
            _ => assert_eq!((*node, *version), (NodeId(10), ReadVersion::Current)),
        }
    }
    let (_, call, _) = *fast.clone().next().expect("one of them");
    node_at(&mut router, now, call, Err(NodeError::VersionGone));
    while router.poll_effect().is_some() {} // The primary is asked.
    for piece in 0..PIECES {
        let (node, ..) = begin_at(&mut router, (now, T + piece), 2000 + piece, None);
        assert_eq!(node, NodeId(10));
    }
}
