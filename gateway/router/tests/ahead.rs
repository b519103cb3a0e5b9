//! What is read ahead of a client, cut along the stripes.

mod script;

use crossdock_names::{Incarnation, NodeId, ObjectId, STRIPE_UNIT_BYTES};
use crossdock_peer::{
    CallId, Caller, FileLease, LeaseId, NodeAnswer, NodeError, NodeRequest, SiteAnswer,
};
use crossdock_router::{ReadAhead, Router, RouterEffect, RouterInput};
use crossdock_types::WallTime;
use script::*;

const SIZE: u64 = 8 * STRIPE_UNIT_BYTES;

/// A router that knows by a lease where the file lies.
fn knowing() -> Router {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    let lease = FileLease {
        id: LeaseId(1 << 32 | 1),
        is_exclusive: false,
        lasts_ms: 60_000,
        wall: WallTime(1_000_000_000_000),
        writable_bytes: 0,
    };
    let mut layout = layout();
    layout.capability = Some(capability(2_000_000_000));
    let answer = SiteAnswer::Opened {
        layout,
        incarnation: Incarnation(1),
        lease: Some(lease),
    };
    site(&mut router, open, Ok(answer), SIZE);
    let [read] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    node(&mut router, read, bytes_read(vec![1; 10]));
    effects(&mut router);
    router
}

fn tell(router: &mut Router, offset_bytes: u64, end_bytes: u64, is_wanted: bool) {
    let ahead = ReadAhead {
        caller: Caller::root(),
        file: FILE,
        offset_bytes,
        end_bytes,
        is_wanted,
        is_read: false,
    };
    router.handle(secs(2), RouterInput::Ahead(Box::new(ahead)));
}

/// Node, column, range, whether it is wanted; and the calls' ids.
type Told = (NodeId, ObjectId, u64, u64, bool);

fn told(router: &mut Router) -> (Vec<Told>, Vec<CallId>) {
    let (mut told, mut ids) = (Vec::new(), Vec::new());
    while let Some(effect) = router.poll_effect() {
        let RouterEffect::Node(node, call, Some(_)) = effect else {
            panic!("unexpected {effect:?}");
        };
        let NodeRequest::Ahead {
            object,
            offset_bytes,
            length_bytes,
            is_wanted,
        } = call.request
        else {
            panic!("unexpected {call:?}");
        };
        ids.push(call.id);
        told.push((
            node,
            object,
            offset_bytes,
            offset_bytes + length_bytes,
            is_wanted,
        ));
    }
    (told, ids)
}

/// Goal: each node, of a mirrored set the first, is told the part that lies with it, once,
/// up to the file's end; and so it is when the client is gone.
#[test]
fn each_node_is_told_its_part() {
    let mut router = knowing();
    let unit = STRIPE_UNIT_BYTES;
    for is_wanted in [true, false] {
        tell(&mut router, unit / 2, 3 * unit + 7, is_wanted);
        let both = [
            (NodeId(10), column(0), unit / 2, 2 * unit, is_wanted),
            (NodeId(20), column(1), 0, unit + 7, is_wanted),
        ];
        assert_eq!(told(&mut router).0, both);
    }
    tell(&mut router, SIZE - 7, SIZE + unit, true);
    let last = (NodeId(20), column(1), 4 * unit - 7, 4 * unit, true);
    assert_eq!(told(&mut router).0, [last]);
    // The site has the beginning.
    tell(&mut router, 0, T, true);
    assert_eq!(told(&mut router).0, []);
}

/// Goal: answers of nodes, whatever they say, are nobody's; and without knowing where a
/// file lies nobody is asked.
#[test]
fn nobody_waits_for_what_is_read_ahead() {
    let mut router = knowing();
    tell(&mut router, T, SIZE, true);
    let ids = told(&mut router).1;
    assert_eq!(ids.len(), 2);
    node(&mut router, ids[0], Ok(NodeAnswer::Ahead));
    node(&mut router, ids[1], Err(NodeError::NoObject));
    assert_eq!(effects(&mut router), []);
    assert_eq!(router.requests(), 0);
    let mut stranger = script::router();
    tell(&mut stranger, T, SIZE, true);
    assert_eq!(told(&mut stranger).0, []);
}
