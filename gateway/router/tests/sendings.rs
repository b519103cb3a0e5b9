//! Changes of columns have numbers, by which nodes know one that is sent again; what is not known to
//! have been carried out is said to disks' initiators, and done again for others
//! (docs/decisions/0049).

mod script;

use crossdock_names::{Epoch, NodeId, STRIPE_UNIT_BYTES};
use crossdock_peer::{
    AccessError, CallId, DuplicateKey, NodeAnswer, NodeError, NodeRequest, Sending, SiteAnswer,
    SiteError, SiteOperation, Stability,
};
use crossdock_router::{Router, RouterEffect, RouterInput};

use script::{
    DEADLINE, FILE, Seen, T, ask, effects, expect, node, node_at, opened, router, secs, site,
    site_written, table, write, written,
};

const UNIT: u64 = STRIPE_UNIT_BYTES;

/// What columns are asked to change, each with its number; nothing else is asked.
fn sent(router: &mut Router) -> Vec<(CallId, Sending)> {
    let mut sent = Vec::new();
    while let Some(effect) = router.poll_effect() {
        let RouterEffect::Node(_, call, _) = effect else {
            panic!("{effect:?}");
        };
        let (NodeRequest::Write { context, .. } | NodeRequest::Zero { context, .. }) = call.request
        else {
            panic!("{:?}", call.request);
        };
        sent.push((call.id, context.sending));
    }
    sent
}

/// Begins a write of `length` bytes there, up to what is asked of columns.
fn begin(
    router: &mut Router,
    id: u64,
    (offset, length): (u64, u64),
    stability: Stability,
) -> Vec<(CallId, Sending)> {
    let bytes = vec![1; usize::try_from(length).expect("few")];
    ask(router, secs(0), id, write(offset, bytes, stability));
    let end = offset + length;
    let [open] = expect(router, vec![Seen::OpenWrite(offset, end)]);
    opened(router, open, 2 * UNIT);
    sent(router)
}

fn sending(number: u64, in_doubt_since: Option<u64>, answered_below: u64) -> Sending {
    Sending {
        number,
        in_doubt_since: in_doubt_since.map(Epoch),
        answered_below,
    }
}

fn unavailable() -> Result<NodeAnswer, NodeError> {
    let node = NodeId(10);
    Err(NodeError::Unavailable { node })
}

/// Goal: each piece has a number of its own, the same whenever it is sent, and the table of the
/// first sending that may have been carried out; and nodes are told what is answered.
#[test]
fn what_is_sent_again_has_its_number() {
    let mut router = router();
    let first = begin(&mut router, 1, (UNIT - 512, 1024), Stability::Data);
    let numbers: Vec<Sending> = first.iter().map(|(_, sending)| *sending).collect();
    assert_eq!(numbers, [sending(1, None, 1), sending(2, None, 1)]);
    let other = begin(&mut router, 2, (T, 512), Stability::Unstable);
    assert_eq!(other[0].1, sending(3, None, 1));
    node(&mut router, other[0].0, written(1));
    assert!(matches!(effects(&mut router)[..], [Seen::Push(..)]));

    node(&mut router, first[0].0, unavailable());
    node(&mut router, first[1].0, written(1));
    router.handle(secs(2), RouterInput::Table(table(2)));
    router.handle(secs(2), RouterInput::Timeout);
    let again = sent(&mut router);
    assert_eq!(again[0].1, sending(1, Some(1), 1));
    node_at(&mut router, secs(2), again[0].0, written(1));
    let [push] = expect(
        &mut router,
        vec![Seen::Push(UNIT + 512, true, Stability::Unstable)],
    );
    site(&mut router, push, Ok(SiteAnswer::Done), 2 * UNIT);
    assert!(matches!(effects(&mut router)[..], [Seen::Reply(1, Ok(_))]));
    // The second write is not answered yet.
    let next = begin(&mut router, 3, (T, 512), Stability::Data);
    assert_eq!(next[0].1, sending(4, None, 3));
}

/// Goal: where it is not known what has become of a disk's write its initiator is told so, and of
/// others it is done again, as another change.
#[test]
fn what_is_unclear_is_told_to_disks_and_done_again_for_others() {
    let refused = || Err(NodeError::Refused(AccessError::Expired { seconds: 3 }));
    for (stability, answer) in [
        (Stability::Data, Err(NodeError::Unclear)),
        (Stability::Data, refused()),
        (Stability::Stable, Err(NodeError::Unclear)),
        (Stability::Unstable, refused()),
    ] {
        let mut router = router();
        let first = begin(&mut router, 1, (T, 512), stability);
        node(&mut router, first[0].0, unavailable());
        router.handle(secs(2), RouterInput::Timeout);
        let again = sent(&mut router);
        assert_eq!(again[0].1, sending(1, Some(1), 1));
        node_at(&mut router, secs(2), again[0].0, answer);
        if stability == Stability::Data {
            let busy = Err(SiteError::Busy);
            assert_eq!(effects(&mut router), [Seen::Reply(1, busy)]);
            continue;
        }
        let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 512)]);
        opened(&mut router, open, 2 * UNIT);
        let anew = sent(&mut router);
        assert_eq!(anew[0].1, sending(2, None, 1));
    }
}

/// Goal: a write that is begun again as a node wants to see another capability asks for each piece
/// under its number, and one that is begun again behind a truncate does all of it again; a disk's
/// file is not cut: a newer generation says that its site was taken over.
#[test]
fn pieces_keep_their_numbers_unless_the_file_was_cut() {
    let expired = || Err(NodeError::Refused(AccessError::Expired { seconds: 3 }));
    let cut = || Err(NodeError::StaleGeneration { current: 4 });
    for (stability, answer, numbers) in [
        (Stability::Data, expired(), [1, 2]),
        (Stability::Stable, expired(), [1, 2]),
        (Stability::Data, cut(), [1, 2]),
        (Stability::Stable, cut(), [3, 4]),
    ] {
        let mut router = router();
        let range = (UNIT - 512, 1024);
        let first = begin(&mut router, 1, range, stability);
        node(&mut router, first[0].0, written(1));
        node(&mut router, first[1].0, answer);
        let open = Seen::OpenWrite(range.0, range.0 + range.1);
        let [open] = expect(&mut router, vec![open]);
        opened(&mut router, open, 2 * UNIT);
        let again = sent(&mut router);
        let seen: Vec<u64> = again.iter().map(|(_, sending)| sending.number).collect();
        assert_eq!(seen, numbers);
    }
}

/// Goal: a disk's write that was done is not done again as its site was taken over before it has
/// heard of that; another one is, as it may have been cut.
#[test]
fn a_site_that_was_taken_over_has_nothing_done_again() {
    for stability in [Stability::Data, Stability::Stable] {
        let mut router = router();
        let first = begin(&mut router, 1, (T, 512), stability);
        node(&mut router, first[0].0, written(1));
        let is_once = stability == Stability::Data;
        let told = match is_once {
            true => Stability::Unstable,
            false => Stability::Stable,
        };
        let [push] = expect(&mut router, vec![Seen::Push(T + 512, true, told)]);
        opened(&mut router, push, 2 * UNIT);
        let seen = effects(&mut router);
        match is_once {
            true => assert!(matches!(seen[..], [Seen::Reply(1, Ok(_))]), "{seen:?}"),
            false => assert_eq!(seen, [Seen::OpenWrite(T, T + 512)]),
        }
    }
}

/// Goal: the site's part of a disk's write has a key, and is asked for until it is answered, as
/// long as it may have been done; others' have none.
#[test]
fn a_site_knows_a_disk_s_write() {
    let ask_site = |router: &mut Router, stability| {
        ask(router, secs(0), 1, write(0, vec![1; 512], stability));
        site_call(router)
    };
    let mut key = [0; 16];
    (key[7], key[15]) = (77, 1);
    let mut router = router();
    let (first, duplicate) = ask_site(&mut router, Stability::Data);
    assert_eq!(duplicate, Some(DuplicateKey(key)));
    site(&mut router, first, Err(SiteError::Unanswered), UNIT);
    router.handle(
        DEADLINE + std::time::Duration::from_secs(1),
        RouterInput::Timeout,
    );
    let (again, duplicate) = site_call(&mut router);
    assert_eq!(duplicate, Some(DuplicateKey(key)));
    site(&mut router, again, Ok(site_written(1)), UNIT);
    let written = Ok(site_written(1));
    assert_eq!(effects(&mut router), [Seen::Reply(1, written)]);
    for stability in [Stability::Stable, Stability::Unstable] {
        let mut router = script::router();
        let (_, duplicate) = ask_site(&mut router, stability);
        assert_eq!(duplicate, None);
    }
    // One that was refused for lack of time is not in doubt: it ends with its time.
    let mut router = script::router();
    let (first, _) = ask_site(&mut router, Stability::Data);
    let reply = crossdock_peer::SiteReply::refusal(first, SiteError::Busy);
    router.handle(DEADLINE, RouterInput::Site(Box::new(reply)));
    assert_eq!(effects(&mut router), [Seen::Reply(1, Err(SiteError::Busy))]);
}

fn site_call(router: &mut Router) -> (CallId, Option<DuplicateKey>) {
    match router.poll_effect() {
        Some(RouterEffect::Site(_, call)) => {
            let is_write = matches!(
                call.request.operation,
                SiteOperation::Write { file, .. } if file == FILE
            );
            assert!(is_write, "{:?}", call.request);
            (call.id, call.request.duplicate)
        }
        other => panic!("unexpected {other:?}"),
    }
}
