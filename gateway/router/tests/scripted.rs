//! The router against peers that are played by hand: every test asserts the
//! complete list of effects.

mod script;

use std::sync::Arc;
use std::time::Duration;

use crossdock_names::{Epoch, HostId, Incarnation, NodeId, RoutingTable, STRIPE_UNIT_BYTES, SetId};
use crossdock_peer::{
    AccessError, Attributes, CallId, FileKind, NodeAnswer, NodeError, SiteAnswer, SiteError,
    SiteReply, Stability, WeakCache, WriterId,
};
use crossdock_router::{Router, RouterConfig, RouterEffect, RouterInput};

use script::*;

/// Goal: a file that ends below the threshold costs one message, however much
/// the client asks for.
#[test]
fn small_file_is_read_with_one_message() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(0, 1 << 20));
    let [head] = expect(&mut router, vec![Seen::SiteRead(0, T)]);
    site(&mut router, head, Ok(site_read(vec![7; 100], true)), 100);
    let expected = [Seen::Reply(1, Ok(site_read(vec![7; 100], true)))];
    assert_eq!(effects(&mut router), expected);
    assert_eq!((router.requests(), router.poll_timeout()), (0, None));
}

/// Goal: a read across threshold and stripe edge is put together from site and
/// columns; what the columns do not have up to the file's size is zeros.
#[test]
fn read_across_the_edges_is_merged_with_holes() {
    let mut router = router();
    let (start, size) = (T - 10, STRIPE_UNIT_BYTES + 30);
    ask(&mut router, secs(0), 1, read(start, 1 << 20));
    let [head] = expect(&mut router, vec![Seen::SiteRead(start, 10)]);
    site(&mut router, head, Ok(site_read(vec![1; 10], false)), size);
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, size);
    let [first, second] = expect(
        &mut router,
        vec![
            Seen::Read(10, column(0), T, STRIPE_UNIT_BYTES - T),
            Seen::Read(20, column(1), 0, 30),
        ],
    );
    node(&mut router, second, bytes_read(vec![3; 20])); // Answers come in any order.
    assert_eq!(effects(&mut router), []);
    node(&mut router, first, Err(NodeError::NoObject));
    let mut whole = vec![1; 10];
    whole.resize(10 + len(STRIPE_UNIT_BYTES - T), 0);
    whole.extend([3; 20]);
    whole.extend([0; 10]);
    let expected = [Seen::Reply(1, Ok(site_read(whole, true)))];
    assert_eq!(effects(&mut router), expected);
}

/// Goal: a reply tells for whom it was waited how long: of those that were asked
/// at the same time, for the last one.
#[test]
fn a_reply_tells_whom_it_waited_for() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 10 + STRIPE_UNIT_BYTES));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, T + 10 + STRIPE_UNIT_BYTES);
    let (_, calls) = drain(&mut router);
    let [first, second] = calls[..] else {
        panic!("{calls:?}");
    };
    for (at, id, length) in [(3, second, 10 + T), (7, first, STRIPE_UNIT_BYTES - T)] {
        node_at(&mut router, secs(at), id, bytes_read(vec![1; len(length)]));
    }
    let reply = std::iter::from_fn(|| router.poll_effect()).find_map(|effect| match effect {
        RouterEffect::Reply(reply) => Some(reply),
        _ => None,
    });
    let waited = reply.expect("answered").waited;
    assert_eq!(waited.site, Duration::from_secs(1));
    assert_eq!(waited.nodes, Duration::from_secs(6));
}

/// Goal: a stable write beyond the threshold is answered only after every
/// column has it and the size is pushed stable.
#[test]
fn stable_write_pushes_before_it_is_answered() {
    let mut router = router();
    let bytes = vec![1; len(STRIPE_UNIT_BYTES)];
    let end = T - 10 + STRIPE_UNIT_BYTES;
    ask(
        &mut router,
        secs(0),
        1,
        write(T - 10, bytes, Stability::Stable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, end)]);
    opened(&mut router, open, 0);
    let [head, first, second] = expect(
        &mut router,
        vec![
            Seen::SiteWrite(T - 10, 10, Stability::Stable),
            Seen::Write(10, column(0), T, len(STRIPE_UNIT_BYTES - T), 1, 3),
            Seen::Write(20, column(1), 0, len(T) - 10, 1, 3),
        ],
    );
    node(&mut router, first, written(1));
    site(&mut router, head, Ok(site_written(1)), T);
    assert_eq!(effects(&mut router), []);
    node(&mut router, second, written(1));
    let [push] = expect(&mut router, vec![Seen::Push(end, true, Stability::Stable)]);
    site(&mut router, push, Ok(SiteAnswer::Done), end);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
    // Nothing is unstable: a COMMIT only fetches attributes.
    ask(&mut router, secs(1), 2, commit());
    let [getattr] = expect(&mut router, vec![Seen::Getattr]);
    site(&mut router, getattr, Ok(SiteAnswer::Done), end);
    let expected = [Seen::Reply(2, Ok(SiteAnswer::Committed))];
    assert_eq!(effects(&mut router), expected);
}

/// Goal: a write to a file whose end is known for good waits for its bytes, not for the log of
/// the site; they are stable at all who take them.
#[test]
fn durable_bytes_wait_for_no_time_of_change() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T - 10, vec![1; 20], Stability::Data),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 10)]);
    opened(&mut router, open, 9 * T);
    let (seen, ids) = drain(&mut router);
    assert_eq!(seen[0], Seen::SiteWrite(T - 10, 10, Stability::Stable));
    assert_eq!(seen[1], Seen::Write(10, column(0), T, 10, 1, 3));
    site(&mut router, ids[0], Ok(site_written(1)), 9 * T);
    node(&mut router, ids[1], written(1));
    let told = Seen::Push(T + 10, true, Stability::Unstable);
    let [push] = expect(&mut router, vec![told]);
    site(&mut router, push, Ok(SiteAnswer::Done), 9 * T);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

/// Goal: a truncate that comes between the parts of a write cuts only some of
/// them. The push tells, and the write is done again as a whole: it was answered
/// with its front behind the truncate and its rest before it.
#[test]
fn write_that_was_truncated_in_part_is_done_again() {
    let mut router = router();
    let bytes = vec![1; 20];
    ask(
        &mut router,
        secs(0),
        1,
        write(T - 10, bytes, Stability::Stable),
    );
    for is_truncated in [true, false] {
        let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 10)]);
        opened(&mut router, open, 0);
        let [head, tail] = expect(
            &mut router,
            vec![
                Seen::SiteWrite(T - 10, 10, Stability::Stable),
                Seen::Write(10, column(0), T, 10, 1, 3),
            ],
        );
        node(&mut router, tail, written(1));
        site(&mut router, head, Ok(site_written(1)), T);
        let [push] = expect(
            &mut router,
            vec![Seen::Push(T + 10, true, Stability::Stable)],
        );
        if is_truncated {
            opened(&mut router, push, T);
        } else {
            site(&mut router, push, Ok(SiteAnswer::Done), T + 10);
        }
    }
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

/// Goal: COMMIT of a directory is refused: it looked like one of a file without
/// unstable bytes, and succeeded.
#[test]
fn commit_of_what_is_no_file_is_invalid() {
    let mut router = router();
    ask(&mut router, secs(0), 1, commit());
    let [getattr] = expect(&mut router, vec![Seen::Getattr]);
    let directory = Attributes {
        kind: FileKind::Directory,
        ..attributes(4096)
    };
    let reply = SiteReply {
        id: getattr,
        outcome: Ok(SiteAnswer::Done),
        subject: WeakCache {
            before: None,
            after: Some(directory),
        },
        second: WeakCache::default(),
    };
    router.handle(secs(0), RouterInput::Site(Box::new(reply)));
    let expected = [Seen::Reply(1, Err(SiteError::Invalid))];
    assert_eq!(effects(&mut router), expected);
}

/// Goal: COMMIT goes to every holder under the incarnation that took the
/// bytes, and a holder that was replaced changes the verifier before the reply
/// (CONSISTENCY 6, history `quick-restart`).
#[test]
fn lost_bytes_change_the_verifier_before_the_commit_is_answered() {
    let mut router = router();
    write_unstable(&mut router, 1, 8);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
    let before = router.verifier();
    ask(&mut router, secs(1), 2, commit());
    let commits = vec![Seen::Commit(10, column(0), 8), Seen::SiteCommit(1)];
    let [column_commit, site_commit] = expect(&mut router, commits);
    site(&mut router, site_commit, Ok(SiteAnswer::Committed), T + 1);
    assert_eq!((effects(&mut router), router.verifier()), (vec![], before));
    let current = Incarnation(9);
    node(&mut router, column_commit, Err(NodeError::Lost { current }));
    let Some(RouterEffect::Reply(routed)) = router.poll_effect() else {
        panic!("no reply");
    };
    assert_eq!(routed.reply.outcome, Ok(SiteAnswer::Committed));
    assert_eq!(routed.verifier, router.verifier());
    assert_ne!(routed.verifier, before);
}

/// Goal: a write whose own holder restarted between two writes is answered with
/// the verifier of its arrival, so that the first writer and this one both resend.
#[test]
fn changed_incarnation_changes_the_verifier_at_once() {
    let mut router = router();
    write_unstable(&mut router, 1, 8);
    effects(&mut router);
    let before = router.verifier();
    write_unstable(&mut router, 2, 9);
    let Some(RouterEffect::Reply(routed)) = router.poll_effect() else {
        panic!("no reply");
    };
    assert_eq!(routed.verifier, before);
    assert_ne!(router.verifier(), before);
}

/// Goal: beyond the bound the oldest file is committed before the next answer.
#[test]
fn unstable_holders_are_bounded() {
    let mut config = RouterConfig::new(WriterId(77));
    config.unstable_holders_max = 1;
    let mut router = Router::new(config, table(1));
    write_unstable(&mut router, 1, 8); // A column and the site: two holders.
    let commits = vec![Seen::Commit(10, column(0), 8), Seen::SiteCommit(1)];
    let [column_commit, site_commit] = expect(&mut router, commits);
    let before = router.verifier();
    node(&mut router, column_commit, Ok(NodeAnswer::Committed));
    assert_eq!(effects(&mut router), []);
    site(&mut router, site_commit, Ok(SiteAnswer::Committed), T + 1);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
    assert_eq!(router.verifier(), before);
}

/// Goal: what is over the bound and cannot be committed is given up, and the
/// verifier says so: state never grows, and nothing is promised.
#[test]
fn holders_that_cannot_be_committed_are_given_up() {
    let mut config = RouterConfig::new(WriterId(77));
    config.unstable_holders_max = 1;
    let mut router = Router::new(config, table(1));
    let before = router.verifier();
    write_unstable(&mut router, 1, 8);
    let commits = vec![Seen::Commit(10, column(0), 8), Seen::SiteCommit(1)];
    let [column_commit, site_commit] = expect(&mut router, commits);
    site(&mut router, site_commit, Ok(SiteAnswer::Committed), T + 1);
    let media = NodeError::Media {
        node: NodeId(10),
        what: String::from("write error"),
    };
    node(&mut router, column_commit, Err(media));
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
    assert_ne!(router.verifier(), before);
}

/// Goal: a truncate under the write makes all of it be done again, in the new
/// generation (history `resurrected-bytes`).
#[test]
fn truncated_write_begins_again() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T, vec![1], Stability::Stable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
    opened(&mut router, open, 0);
    let [late] = expect(&mut router, vec![Seen::Write(10, column(0), T, 1, 1, 3)]);
    let stale = NodeError::StaleGeneration { current: 4 };
    node(&mut router, late, Err(stale));
    expect::<1>(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
}

/// Goal: what an old table sent waits for the newer one and goes to the new primary.
#[test]
fn stale_table_waits_for_the_new_one() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T, vec![1], Stability::Stable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
    opened(&mut router, open, 0);
    let [old] = expect(&mut router, vec![Seen::Write(10, column(0), T, 1, 1, 3)]);
    let stale = NodeError::StaleTable { current: Epoch(2) };
    node(&mut router, old, Err(stale));
    assert_eq!(
        (effects(&mut router), router.poll_timeout()),
        (vec![], Some(DEADLINE))
    );
    let mut newer = RoutingTable::clone(&table(2));
    if let Some(set) = newer.sets.get_mut(&SetId(0)) {
        set.members.reverse();
    }
    router.handle(secs(2), RouterInput::Table(Arc::new(newer)));
    expect::<1>(&mut router, vec![Seen::Write(11, column(0), T, 1, 2, 3)]);
}

/// Goal: a node that is away is tried again with growing pauses, and when the
/// next attempt would be too late the client is asked to try later.
#[test]
fn unavailable_node_is_tried_until_the_deadline() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, T + 10);
    let asked = || vec![Seen::Read(10, column(0), T, 10)];
    let [mut call] = expect(&mut router, asked());
    let mut now = secs(1);
    let mut pauses = Vec::new();
    let node = NodeId(10);
    loop {
        node_at(&mut router, now, call, Err(NodeError::Unavailable { node }));
        let seen = effects(&mut router);
        if !seen.is_empty() {
            assert_eq!(seen, [Seen::Reply(1, Err(SiteError::Busy))]);
            break;
        }
        let wake = router.poll_timeout().expect("it tries again");
        pauses.push(wake - now);
        now = wake;
        router.handle(now, RouterInput::Timeout);
        [call] = expect(&mut router, asked());
    }
    assert!(now < DEADLINE && now > secs(29), "gave up at {now:?}");
    assert_eq!(
        pauses[..2],
        [Duration::from_millis(5), Duration::from_millis(10)]
    );
    assert!(pauses.len() < 100, "{} attempts", pauses.len());
    assert_eq!((router.requests(), router.poll_timeout()), (0, None));
}

/// Goal: a block that the primary can get from no member is an error for the
/// client at once (invariant 7): other members serve no reads.
#[test]
fn media_error_of_the_primary_is_final() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, T + 10);
    let [primary] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    let media = NodeError::Media {
        node: NodeId(10),
        what: String::from("checksum"),
    };
    node(&mut router, primary, Err(media));
    assert_eq!(effects(&mut router), [Seen::Reply(1, Err(SiteError::Io))]);
}

/// Goal: the death of a connection ends its reads at the nodes and leaves its
/// writes alone.
#[test]
fn withdrawal_cancels_reads_and_no_writes() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, T + 10);
    let [late] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    ask(
        &mut router,
        secs(0),
        2,
        write(0, vec![1], Stability::Stable),
    );
    let [head] = expect(&mut router, vec![Seen::SiteWrite(0, 1, Stability::Stable)]);
    router.handle(secs(1), RouterInput::Withdraw(CallId(1)));
    router.handle(secs(1), RouterInput::Withdraw(CallId(2)));
    let expected = [Seen::Cancel(10), Seen::Reply(1, Err(SiteError::Busy))];
    assert_eq!(effects(&mut router), expected);
    node(&mut router, late, bytes_read(vec![1; 10])); // Too late: no effect.
    assert_eq!(effects(&mut router), []);
    site(&mut router, head, Ok(site_written(1)), 1);
    assert_eq!(effects(&mut router), [Seen::Reply(2, Ok(site_written(1)))]);
}

/// Goal: what a read wants of nodes is postponed and wanted again as the door says,
/// also what it asks for later; a write is not.
#[test]
fn postponement_reaches_the_nodes_of_a_read() {
    let mut router = router();
    let by = Duration::from_secs(3);
    ask(&mut router, secs(0), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    router.handle(secs(0), RouterInput::Postpone(CallId(1), by));
    assert_eq!(effects(&mut router), [], "no node is asked yet");
    opened(&mut router, open, T + 10);
    let (seen, ids) = drain(&mut router);
    let asked = Seen::Read(10, column(0), T, 10);
    let [Seen::Postpone(10, left)] = seen[1..] else {
        panic!("{seen:?}")
    };
    assert_eq!(seen[0], asked);
    assert!(left > Duration::ZERO && left <= by, "{left:?}");
    router.handle(secs(1), RouterInput::Resume(CallId(1)));
    assert_eq!(effects(&mut router), [Seen::Resume(10)]);
    router.handle(secs(1), RouterInput::Postpone(CallId(1), by));
    assert_eq!(effects(&mut router), [Seen::Postpone(10, by)]);
    node(&mut router, ids[0], bytes_read(vec![1; 10]));
    assert!(matches!(effects(&mut router)[..], [Seen::Reply(1, Ok(_))]));
    let whole = write(T, vec![1], Stability::Stable);
    ask(&mut router, secs(1), 2, whole);
    effects(&mut router);
    router.handle(secs(1), RouterInput::Postpone(CallId(2), by));
    router.handle(secs(1), RouterInput::Resume(CallId(1)));
    assert_eq!(effects(&mut router), []);
}

/// Goal: a change that is under way at its deadline is waited for: "failed" is
/// never said of a write that still lands.
#[test]
fn write_in_flight_outlives_its_deadline() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(0, vec![1], Stability::Stable),
    );
    let [head] = expect(&mut router, vec![Seen::SiteWrite(0, 1, Stability::Stable)]);
    router.handle(DEADLINE + Duration::from_secs(1), RouterInput::Timeout);
    assert_eq!(effects(&mut router), []);
    site(&mut router, head, Ok(site_written(1)), 1);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

/// Goal: the number of requests in progress is bounded (invariant 9).
#[test]
fn too_many_requests_are_refused() {
    let mut config = RouterConfig::new(WriterId(77));
    config.requests_max = 1;
    let mut router = Router::new(config, table(1));
    ask(&mut router, secs(0), 1, read(0, 1));
    expect::<1>(&mut router, vec![Seen::SiteRead(0, 1)]);
    ask(&mut router, secs(0), 2, read(0, 1));
    assert_eq!(effects(&mut router), [Seen::Reply(2, Err(SiteError::Busy))]);
}

/// Goal: a write whose end is beyond the largest file is refused before
/// anything is sent.
#[test]
fn write_beyond_the_largest_file_is_refused() {
    let mut router = router();
    for (id, offset) in [(1, u64::MAX), (2, 1 << 46)] {
        ask(
            &mut router,
            secs(0),
            id,
            write(offset, vec![1], Stability::Stable),
        );
        let expected = [Seen::Reply(id, Err(SiteError::FileTooBig))];
        assert_eq!(effects(&mut router), expected);
    }
}

/// Goal: a write of nothing asks the site for permission and makes no columns,
/// wherever it is.
#[test]
fn write_of_nothing_is_the_sites() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T + 9, vec![], Stability::Stable),
    );
    let [head] = expect(&mut router, vec![Seen::SiteWrite(0, 0, Stability::Stable)]);
    site(&mut router, head, Ok(site_written(1)), 0);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

fn outdated() -> Result<NodeAnswer, NodeError> {
    Err(NodeError::Refused(AccessError::Expired { seconds: 11 }))
}

/// Goal: columns are shown what the site gave; where that is outdated, the file is
/// opened again, and the client learns nothing of it.
#[test]
fn an_outdated_capability_is_renewed() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 4));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(1)));
    let (column_read, first) = shown(&mut router);
    assert_eq!(first, Some(capability(1)));
    node(&mut router, column_read, outdated());
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(2)));
    let (column_read, second) = shown(&mut router);
    assert_eq!(second, Some(capability(2)));
    node(&mut router, column_read, bytes_read(vec![7; 4]));
    let read = site_read(vec![7; 4], true);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(read))]);
}

/// Goal: a node that does not know the manager yet is asked again for a moment; then
/// the file is opened again: its site may be at another manager.
#[test]
fn a_manager_that_is_not_known_yet_is_waited_for() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 4));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(1)));
    let (minter, mut now) = (HostId(1), secs(1));
    for _ in 0..6 {
        let (id, _) = shown(&mut router);
        let unknown = AccessError::UnknownMinter { minter };
        node_at(&mut router, now, id, Err(NodeError::Refused(unknown)));
        let due = router.poll_timeout().expect("it tries again, or opens");
        if due < DEADLINE {
            assert_eq!(effects(&mut router), []);
            now = due;
            router.handle(now, RouterInput::Timeout);
        }
    }
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(2)));
    assert_eq!(shown(&mut router).1, Some(capability(2)));
}

/// Goal: a write of which a column did not take its part is done again as a whole.
#[test]
fn a_write_with_an_outdated_capability_is_done_again() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T, vec![1], Stability::Stable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
    opened_by(&mut router, open, 0, Some(capability(1)));
    let (column_write, _) = shown(&mut router);
    node(&mut router, column_write, outdated());
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
    opened_by(&mut router, open, 0, Some(capability(2)));
    let (column_write, second) = shown(&mut router);
    assert_eq!(second, Some(capability(2)));
    node(&mut router, column_write, written(8));
    let [push] = expect(
        &mut router,
        vec![Seen::Push(T + 1, true, Stability::Stable)],
    );
    site(&mut router, push, Ok(SiteAnswer::Done), T + 1);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

/// Goal: COMMIT shows by what right was written, and renews it: what was written is
/// neither lost nor written again.
#[test]
fn a_commit_renews_an_outdated_capability() {
    let mut router = router();
    ask(
        &mut router,
        secs(0),
        1,
        write(T, vec![1], Stability::Unstable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 1)]);
    opened_by(&mut router, open, 0, Some(capability(1)));
    let (column_write, _) = shown(&mut router);
    node(&mut router, column_write, written(8));
    let [push] = expect(
        &mut router,
        vec![Seen::Push(T + 1, true, Stability::Unstable)],
    );
    site(&mut router, push, Ok(SiteAnswer::Done), T + 1);
    effects(&mut router);
    let before = router.verifier();
    ask(&mut router, secs(1), 2, commit());
    let (column_commit, first) = shown(&mut router);
    assert_eq!(first, Some(capability(1)));
    let [site_commit] = expect(&mut router, vec![Seen::SiteCommit(1)]);
    site(&mut router, site_commit, Ok(SiteAnswer::Committed), T + 1);
    node(&mut router, column_commit, outdated());
    let [open] = expect(&mut router, vec![Seen::OpenWrite(0, 0)]);
    opened_by(&mut router, open, T + 1, Some(capability(2)));
    let (column_commit, second) = shown(&mut router);
    assert_eq!(second, Some(capability(2)));
    let [getattr] = expect(&mut router, vec![Seen::Getattr]);
    node(&mut router, column_commit, Ok(NodeAnswer::Committed));
    site(&mut router, getattr, Ok(SiteAnswer::Done), T + 1);
    let committed = Seen::Reply(2, Ok(SiteAnswer::Committed));
    assert_eq!(effects(&mut router), [committed]);
    assert_eq!(router.verifier(), before);
}

/// Goal: a gateway that has been revoked tells its clients so, at once, and they try
/// again later; opening anew would not help.
#[test]
fn a_revoked_gateway_says_so() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 4));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(1)));
    let (column_read, _) = shown(&mut router);
    let revoked = AccessError::Revoked { host: HostId(2) };
    node(&mut router, column_read, Err(NodeError::Refused(revoked)));
    let refused = Seen::Reply(1, Err(SiteError::Refused));
    assert_eq!(effects(&mut router), [refused]);
}

/// Goal: a gateway that others do not know yet, or have replaced, has its clients try
/// again: their requests are not wrong.
#[test]
fn clients_of_a_gateway_that_is_not_known_try_again() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 4));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened_by(&mut router, open, T + 4, Some(capability(1)));
    let (column_read, _) = shown(&mut router);
    let unknown = AccessError::Role { host: HostId(2) };
    node(&mut router, column_read, Err(NodeError::Refused(unknown)));
    let again = Seen::Reply(1, Err(SiteError::Busy));
    assert_eq!(effects(&mut router), [again]);
}
