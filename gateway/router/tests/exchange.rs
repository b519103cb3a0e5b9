//! COMPARE AND WRITE goes to whoever orders the bytes, and is not done twice
//! (docs/decisions/0049).

mod script;

use bytes::Bytes;
use crossdock_names::{NodeId, STRIPE_UNIT_BYTES};
use crossdock_peer::{
    AccessError, DuplicateKey, NodeAnswer, NodeError, SiteAnswer, SiteError, SiteOperation,
    Stability,
};
use crossdock_router::RouterInput;
use crossdock_types::Payload;

use script::{
    DEADLINE, FILE, Seen, T, ask, column, effects, expect, node, node_at, opened, router, secs,
    site, table, written,
};

const UNIT: u64 = STRIPE_UNIT_BYTES;

fn exchange(offset_bytes: u64, length: usize) -> SiteOperation {
    SiteOperation::Exchange {
        file: FILE,
        offset_bytes,
        payload: Payload::from(Bytes::from(vec![1; 2 * length])),
    }
}

fn unavailable() -> Result<NodeAnswer, NodeError> {
    let node = NodeId(10);
    Err(NodeError::Unavailable { node })
}

/// Goal: beyond the threshold the column's primary is asked, and the answer waits for no log; a
/// difference is told with its place.
#[test]
fn a_column_s_primary_exchanges() {
    let mut router = router();
    ask(&mut router, secs(0), 1, exchange(T, 512));
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 512)]);
    opened(&mut router, open, UNIT);
    let seen = Seen::Exchange(10, column(0), T, 1024, (1, None));
    let [asked] = expect(&mut router, vec![seen]);
    node(&mut router, asked, written(1));
    let push = Seen::Push(T + 512, true, Stability::Unstable);
    let [push] = expect(&mut router, vec![push]);
    // It is done, whatever becomes of the time of change.
    site(&mut router, push, Err(SiteError::Io), UNIT);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(SiteAnswer::Done))]);
    ask(&mut router, secs(0), 2, exchange(UNIT, 512));
    let [open] = expect(&mut router, vec![Seen::OpenWrite(UNIT, UNIT + 512)]);
    opened(&mut router, open, 2 * UNIT);
    let seen = Seen::Exchange(20, column(1), 0, 1024, (2, None));
    let [asked] = expect(&mut router, vec![seen]);
    node(&mut router, asked, Ok(NodeAnswer::Differs { at_bytes: 3 }));
    let differs = Ok(SiteAnswer::Differs { at_bytes: 3 });
    assert_eq!(effects(&mut router), [Seen::Reply(2, differs)]);
}

/// Goal: below it the site is asked, under a key by which it knows a sending again.
#[test]
fn a_site_exchanges_once() {
    let mut router = router();
    ask(&mut router, secs(0), 1, exchange(T - 512, 512));
    let mut key = [0; 16];
    (key[7], key[15]) = (77, 1);
    let seen = || vec![Seen::SiteExchange(T - 512, 1024, Some(DuplicateKey(key)))];
    let [asked] = expect(&mut router, seen());
    site(&mut router, asked, Err(SiteError::Unanswered), UNIT);
    router.handle(secs(2), RouterInput::Timeout);
    let [again] = expect(&mut router, seen());
    site(&mut router, again, Ok(SiteAnswer::Done), UNIT);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(SiteAnswer::Done))]);
}

/// Goal: what lies in two pieces, or is too long, is done nowhere.
#[test]
fn what_lies_in_two_pieces_is_refused() {
    let mut router = router();
    let refused = [Seen::Reply(1, Err(SiteError::Invalid))];
    for (offset, length) in [(T - 512, 1024), (UNIT, 65_537), (0, 0)] {
        ask(&mut router, secs(0), 1, exchange(offset, length));
        assert_eq!(effects(&mut router), refused);
    }
    ask(&mut router, secs(0), 1, exchange(UNIT - 512, 1024));
    let open = Seen::OpenWrite(UNIT - 512, UNIT + 512);
    let [open] = expect(&mut router, vec![open]);
    opened(&mut router, open, 2 * UNIT);
    assert_eq!(effects(&mut router), refused);
}

/// Goal: where the connection broke the primary is asked what has become of it, under the same
/// number; if it does not know, or does not let itself be asked, the initiator is told to look.
#[test]
fn what_is_in_doubt_is_asked_for_and_not_done_again() {
    let refused = Err(NodeError::Refused(AccessError::Expired { seconds: 3 }));
    let differs = Ok(NodeAnswer::Differs { at_bytes: 0 });
    for (answer, outcome) in [
        (Err(NodeError::Unclear), Err(SiteError::Busy)),
        (refused, Err(SiteError::Busy)),
        (differs, Ok(SiteAnswer::Differs { at_bytes: 0 })),
    ] {
        let mut router = router();
        ask(&mut router, secs(0), 1, exchange(T, 512));
        let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 512)]);
        opened(&mut router, open, UNIT);
        let seen = |since| {
            let number = (1, since);
            vec![Seen::Exchange(10, column(0), T, 1024, number)]
        };
        let [first] = expect(&mut router, seen(None));
        // Not seen by the node: nothing is in doubt.
        let busy = Err(NodeError::Busy { retry_after_ms: 1 });
        node(&mut router, first, busy);
        router.handle(secs(1), RouterInput::Table(table(2)));
        router.handle(secs(2), RouterInput::Timeout);
        let [second] = expect(&mut router, seen(None));
        node_at(&mut router, secs(2), second, unavailable());
        router.handle(secs(2), RouterInput::Table(table(3)));
        router.handle(secs(3), RouterInput::Timeout);
        let [third] = expect(&mut router, seen(Some(2)));
        node_at(&mut router, secs(3), third, answer);
        assert_eq!(effects(&mut router), [Seen::Reply(1, outcome)]);
    }
    let mut router = router();
    ask(&mut router, secs(0), 1, exchange(T, 512));
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 512)]);
    opened(&mut router, open, UNIT);
    let seen = Seen::Exchange(10, column(0), T, 1024, (1, None));
    let [first] = expect(&mut router, vec![seen]);
    node_at(&mut router, DEADLINE, first, unavailable());
    assert_eq!(effects(&mut router), [Seen::Reply(1, Err(SiteError::Busy))]);
}
