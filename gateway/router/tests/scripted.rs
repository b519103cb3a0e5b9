//! The router against peers that are played by hand: every test asserts the
//! complete list of effects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{
    Epoch, FileId, FileRef, Incarnation, LayoutClass, NodeId, ObjectId, ReplicaSet, RoutingTable,
    SITES, SLOTS, SMALL_FILE_THRESHOLD_BYTES, STRIPE_UNIT_BYTES, SetId, SiteId, SiteRecord,
    Version,
};
use crossdock_peer::{
    Attributes, Call, CallId, Caller, Device, FileKind, FileLayout, NodeAnswer, NodeError,
    NodeReply, NodeRequest, OpenFor, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
    Stability, WeakCache, WriterId,
};
use crossdock_router::{Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_types::{Payload, Time, WallTime};

const T: u64 = SMALL_FILE_THRESHOLD_BYTES;
const FILE: FileRef = FileRef {
    id: FileId(5),
    generation: 1,
};
const DEADLINE: Time = Time::from_secs(30);

fn secs(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// Two sets of two nodes; columns 0 and 1 of every slot are sets 0 and 1.
fn table(epoch: u64) -> Arc<RoutingTable> {
    let set = |first, second| ReplicaSet {
        epoch: Epoch(1),
        members: vec![NodeId(first), NodeId(second)],
    };
    Arc::new(RoutingTable {
        epoch: Epoch(epoch),
        sets: BTreeMap::from([(SetId(0), set(10, 11)), (SetId(1), set(20, 21))]),
        slots: vec![vec![SetId(0), SetId(1)]; SLOTS],
        sites: vec![
            SiteRecord {
                epoch: Epoch(1),
                set: SetId(0),
            };
            SITES
        ],
    })
}

fn router() -> Router {
    Router::new(RouterConfig::new(WriterId(77)), table(1))
}

fn attributes(size_bytes: u64) -> Attributes {
    Attributes {
        file: FILE,
        kind: FileKind::Regular,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size_bytes,
        used_bytes: size_bytes,
        device: Device::default(),
        accessed: WallTime(10),
        modified: WallTime(5),
        changed: WallTime(5),
    }
}

fn layout() -> FileLayout {
    FileLayout {
        class: LayoutClass::STRIPED,
        class_epoch: 0,
        placement: FILE.id,
        generation: 1,
        columns: 2,
        truncate_generation: 3,
    }
}

fn column(number: u16) -> ObjectId {
    ObjectId::column(FILE.id, 1, 0, number)
}

fn ask(router: &mut Router, now: Time, id: u64, operation: SiteOperation) {
    let request = SiteRequest {
        caller: Caller::root(),
        duplicate: None,
        operation,
    };
    let id = CallId(id);
    let call = Call {
        id,
        deadline: DEADLINE,
        request,
    };
    router.handle(now, RouterInput::Request(call));
}

fn read(offset_bytes: u64, length_bytes: u64) -> SiteOperation {
    SiteOperation::Read {
        file: FILE,
        offset_bytes,
        length_bytes,
    }
}

fn write(offset_bytes: u64, bytes: Vec<u8>, stability: Stability) -> SiteOperation {
    SiteOperation::Write {
        file: FILE,
        offset_bytes,
        payload: Payload::from(Bytes::from(bytes)),
        stability,
    }
}

fn commit() -> SiteOperation {
    SiteOperation::Commit {
        file: FILE,
        incarnation: Incarnation(0),
    }
}

/// An effect in a form that can be compared, ids apart.
#[derive(Debug, PartialEq)]
enum Seen {
    SiteRead(u64, u64),
    SiteWrite(u64, usize, Stability),
    SiteCommit(u64),
    OpenRead,
    OpenWrite(u64, u64),
    Push(u64, bool, Stability),
    Getattr,
    Read(u64, ObjectId, u64, u64),
    Write(u64, ObjectId, u64, usize, u64, u64),
    Commit(u64, ObjectId, u64),
    Cancel(u64),
    Reply(u64, Result<SiteAnswer, SiteError>),
}

/// All effects, and the call ids of those that want an answer.
fn drain(router: &mut Router) -> (Vec<Seen>, Vec<CallId>) {
    let (mut seen, mut ids) = (Vec::new(), Vec::new());
    while let Some(effect) = router.poll_effect() {
        seen.push(match effect {
            RouterEffect::Site(site, call) => {
                assert_eq!((site, call.deadline), (SiteId(0), DEADLINE));
                ids.push(call.id);
                see_site(call.request.operation)
            }
            RouterEffect::Node(node, call) => {
                assert_eq!(call.deadline, DEADLINE);
                ids.push(call.id);
                see_node(node, call.request)
            }
            RouterEffect::CancelNode(node, _) => Seen::Cancel(node.0),
            RouterEffect::Reply(routed) => Seen::Reply(routed.reply.id.0, routed.reply.outcome),
        });
    }
    (seen, ids)
}

fn see_site(operation: SiteOperation) -> Seen {
    match operation {
        SiteOperation::Read {
            offset_bytes,
            length_bytes,
            ..
        } => Seen::SiteRead(offset_bytes, length_bytes),
        SiteOperation::Write {
            offset_bytes,
            payload,
            stability,
            ..
        } => Seen::SiteWrite(offset_bytes, payload.len(), stability),
        SiteOperation::Commit { incarnation, .. } => Seen::SiteCommit(incarnation.0),
        SiteOperation::Open { purpose, .. } => match purpose {
            OpenFor::Read => Seen::OpenRead,
            OpenFor::Write {
                offset_bytes,
                end_bytes,
            } => Seen::OpenWrite(offset_bytes, end_bytes),
        },
        SiteOperation::PushAttributes {
            size_at_least_bytes,
            wrote,
            truncate_generation,
            stability,
            ..
        } => {
            assert_eq!(truncate_generation, 3);
            Seen::Push(size_at_least_bytes, wrote, stability)
        }
        SiteOperation::GetAttributes { .. } => Seen::Getattr,
        other => panic!("unexpected {other:?}"),
    }
}

fn see_node(node: NodeId, request: NodeRequest) -> Seen {
    match request {
        NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => Seen::Read(node.0, object, offset_bytes, length_bytes),
        NodeRequest::Write {
            object,
            offset_bytes,
            payload,
            context,
            ..
        } => {
            assert_eq!(context.writer, WriterId(77));
            let (epoch, generation) = (context.table_epoch.0, context.truncate_generation);
            Seen::Write(
                node.0,
                object,
                offset_bytes,
                payload.len(),
                epoch,
                generation,
            )
        }
        NodeRequest::Commit {
            object,
            incarnation,
        } => Seen::Commit(node.0, object, incarnation.0),
        other => panic!("unexpected {other:?}"),
    }
}

fn effects(router: &mut Router) -> Vec<Seen> {
    drain(router).0
}

/// Asserts the effects and returns the ids to answer.
#[track_caller]
fn expect<const N: usize>(router: &mut Router, expected: Vec<Seen>) -> [CallId; N] {
    let (seen, ids) = drain(router);
    assert_eq!(seen, expected);
    ids.try_into().expect("as many calls as asserted")
}

fn site(router: &mut Router, id: CallId, outcome: Result<SiteAnswer, SiteError>, size: u64) {
    let subject = WeakCache {
        before: None,
        after: Some(attributes(size)),
    };
    let reply = SiteReply {
        id,
        outcome,
        subject,
        second: WeakCache::default(),
    };
    router.handle(secs(1), RouterInput::Site(reply));
}

fn opened(router: &mut Router, id: CallId, size: u64) {
    let answer = SiteAnswer::Opened {
        layout: layout(),
        incarnation: Incarnation(1),
    };
    site(router, id, Ok(answer), size);
}

fn node(router: &mut Router, id: CallId, outcome: Result<NodeAnswer, NodeError>) {
    node_at(router, secs(1), id, outcome);
}

fn node_at(router: &mut Router, now: Time, id: CallId, outcome: Result<NodeAnswer, NodeError>) {
    router.handle(now, RouterInput::Node(NodeId(0), NodeReply { id, outcome }));
}

fn bytes_read(bytes: Vec<u8>) -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Read {
        payload: Payload::from(Bytes::from(bytes)),
        version: Version::NONE,
    })
}

fn written(incarnation: u64) -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Written {
        version: Version::NONE,
        incarnation: Incarnation(incarnation),
    })
}

fn site_read(bytes: Vec<u8>, end_of_file: bool) -> SiteAnswer {
    SiteAnswer::Read {
        payload: Payload::from(Bytes::from(bytes)),
        end_of_file,
    }
}

fn site_written(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Written {
        incarnation: Incarnation(incarnation),
    }
}

fn len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

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

/// Writes one unstable byte into column 0 under the node's `incarnation`.
fn write_unstable(router: &mut Router, id: u64, incarnation: u64) {
    ask(router, secs(1), id, write(T, vec![1], Stability::Unstable));
    let [open] = expect(router, vec![Seen::OpenWrite(T, T + 1)]);
    opened(router, open, 0);
    let [column_write] = expect(router, vec![Seen::Write(10, column(0), T, 1, 1, 3)]);
    node(router, column_write, written(incarnation));
    let [push] = expect(router, vec![Seen::Push(T + 1, true, Stability::Unstable)]);
    site(router, push, Ok(SiteAnswer::Done), T + 1);
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

/// Goal: a bad block is read from the other replica; only if that is bad too
/// the client gets an error (invariant 7).
#[test]
fn media_error_is_read_from_another_replica() {
    let mut router = router();
    ask(&mut router, secs(0), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, T + 10);
    let [primary] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    let media = || NodeError::Media {
        node: NodeId(10),
        what: String::from("checksum"),
    };
    node(&mut router, primary, Err(media()));
    let [replica] = expect(&mut router, vec![Seen::Read(11, column(0), T, 10)]);
    node(&mut router, replica, Err(media()));
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
    for (id, offset) in [(1, u64::MAX), (2, (1 << 63) - 1)] {
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
