//! Leases of files (docs/decisions/0027): what is done without the site, and what the
//! site is told when.

mod script;

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, Incarnation};
use crossdock_peer::{
    Attributes, Call, CallId, FileLease, LeaseId, LeaseUse, NodeAnswer, Recall, SiteAnswer,
    SiteError, SiteOperation, SiteReply, SiteRequest, Stability, WeakCache, WriterId,
};
use crossdock_router::{RoutedReply, Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_types::{Time, WallTime};

use script::*;

const WALL: WallTime = WallTime(1_000_000_000_000);
const END: u64 = T + 100;

/// A lease that was asked for at second 1.
fn lease(id: u64, is_exclusive: bool) -> FileLease {
    FileLease {
        id: LeaseId(1 << 32 | id),
        is_exclusive,
        lasts_ms: 1500,
        wall: WALL,
        writable_bytes: 1 << 30,
    }
}

fn millis(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

/// What sites are asked, and what doors are answered.
fn happened(router: &mut Router) -> (Vec<(CallId, SiteOperation)>, Vec<RoutedReply>) {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    while let Some(effect) = router.poll_effect() {
        match effect {
            RouterEffect::Site(_, call) => asked.push((call.id, call.request.operation)),
            RouterEffect::Reply(reply) => answered.push(*reply),
            RouterEffect::Keeps(..) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    (asked, answered)
}

fn answer(router: &mut Router, now: Time, id: CallId, outcome: Result<SiteAnswer, SiteError>) {
    let subject = WeakCache {
        before: None,
        after: Some(attributes(END)),
    };
    let reply = SiteReply {
        id,
        outcome,
        subject,
        second: WeakCache::default(),
    };
    router.handle(now, RouterInput::Site(Box::new(reply)));
}

fn opened_with(lease: Option<FileLease>) -> Result<SiteAnswer, SiteError> {
    Ok(SiteAnswer::Opened {
        layout: layout(),
        incarnation: Incarnation(1),
        lease,
    })
}

/// The site is asked for a file to read, and answers with that lease.
fn open_to_read(router: &mut Router, now: Time, lease: Option<FileLease>) {
    let [open] = expect(router, vec![Seen::OpenRead]);
    answer(router, now, open, opened_with(lease));
}

fn recall(router: &mut Router, now: Time, id: u64) {
    let recall = Recall {
        file: FILE,
        lease: lease(id, false).id,
    };
    router.handle(now, RouterInput::Recall(recall));
}

/// A router that has written ten bytes under a lease, and told nobody.
fn dirty() -> Router {
    let mut router = router();
    make_dirty(&mut router);
    router
}

fn make_dirty(router: &mut Router) {
    write_at(router, secs(1), 1, T);
    let [open] = expect(router, vec![Seen::OpenWrite(T, T + 10)]);
    answer(router, secs(1), open, opened_with(Some(lease(1, true))));
    let replies = finish_write(router, secs(1));
    assert_eq!(replies.len(), 1);
}

fn write_at(router: &mut Router, now: Time, id: u64, offset: u64) {
    ask(
        router,
        now,
        id,
        write(offset, vec![7; 10], Stability::Unstable),
    );
}

fn finish_write(router: &mut Router, now: Time) -> Vec<RoutedReply> {
    let (seen, ids) = drain(router);
    assert!(matches!(seen[..], [Seen::Write(..)]), "{seen:?}");
    node_at(router, now, ids[0], written(1));
    happened(router).1
}

/// The push among what sites are asked.
fn pushed(asked: &[(CallId, SiteOperation)]) -> (u64, bool, Option<WallTime>, Option<LeaseUse>) {
    match asked {
        [
            (
                _,
                SiteOperation::PushAttributes {
                    size_at_least_bytes,
                    wrote,
                    written,
                    lease,
                    ..
                },
            ),
        ] => (*size_at_least_bytes, *wrote, *written, *lease),
        other => panic!("unexpected {other:?}"),
    }
}

fn after(reply: &RoutedReply) -> &Attributes {
    reply.reply.subject.after.as_ref().expect("attributes")
}

/// Goal: while a lease lasts the site is asked once, whatever is read; afterwards again.
#[test]
fn reads_under_a_lease_ask_the_site_once() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(T, 10));
    open_to_read(&mut router, secs(1), Some(lease(1, false)));
    for (id, now) in [(1, millis(1000)), (2, millis(1200)), (3, millis(2400))] {
        if id > 1 {
            ask(&mut router, now, id, read(T, 10));
        }
        let [column] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
        node_at(&mut router, now, column, bytes_read(vec![1; 10]));
        let expected = [Seen::Reply(id, Ok(site_read(vec![1; 10], false)))];
        assert_eq!(effects(&mut router), expected);
    }
    assert_eq!(router.leases(), 1);
    ask(&mut router, millis(2500), 4, read(T, 10));
    expect::<1>(&mut router, vec![Seen::OpenRead]);
    assert_eq!(router.leases(), 0);
}

/// Goal: unstable writes under a lease tell nobody; size and times are shown as the site
/// would have them, by its clock; before a COMMIT is answered the site has been told.
#[test]
fn unstable_writes_are_told_with_the_commit() {
    let mut router = dirty();
    let later = millis(1200);
    write_at(&mut router, later, 2, END);
    let replies = finish_write(&mut router, later);
    let told = after(&replies[0]);
    let wall = WallTime(WALL.0 + 200_000_000);
    assert_eq!((told.size_bytes, told.modified), (END + 10, wall));
    let before = replies[0].reply.subject.before.expect("known");
    assert_eq!((before.size_bytes, before.modified), (END, WALL));

    ask(&mut router, later, 3, commit());
    let (asked, _) = happened(&mut router);
    let back = LeaseUse::GiveBack(lease(1, true).id);
    assert_eq!(pushed(&asked), (END + 10, true, Some(wall), Some(back)));
    answer(&mut router, later, asked[0].0, Ok(SiteAnswer::Done));
    let [node_commit, site_commit] = expect(
        &mut router,
        vec![Seen::Commit(10, column(0), 1), Seen::SiteCommit(1)],
    );
    node_at(&mut router, later, node_commit, Ok(NodeAnswer::Committed));
    answer(&mut router, later, site_commit, Ok(SiteAnswer::Committed));
    let expected = [Seen::Reply(3, Ok(SiteAnswer::Committed))];
    assert_eq!(effects(&mut router), expected);
}

/// Goal: a stable write under a lease costs one message to the site, which keeps the
/// lease and has all that it was not told before.
#[test]
fn a_stable_write_tells_all_and_keeps_the_lease() {
    let mut router = dirty();
    let low = write(T, vec![7; 1], Stability::Stable);
    ask(&mut router, secs(1), 2, low);
    let (_, ids) = drain(&mut router);
    node_at(&mut router, secs(1), ids[0], written(1));
    let (asked, _) = happened(&mut router);
    let (end, wrote, _, lease_use) = pushed(&asked);
    let keep = LeaseUse::Keep(lease(1, true).id);
    assert_eq!((end, wrote, lease_use), (T + 10, true, Some(keep)));
    answer(&mut router, secs(1), asked[0].0, Ok(SiteAnswer::Done));
    assert_eq!(happened(&mut router).1.len(), 1);
    assert_eq!(router.leases(), 1);
}

/// Goal: what is recalled goes back at once, with what the site does not know; what is
/// written then asks the site again.
#[test]
fn a_recalled_lease_goes_back_with_what_was_written() {
    let mut router = dirty();
    recall(&mut router, secs(1), 1);
    let (asked, _) = happened(&mut router);
    let back = LeaseUse::GiveBack(lease(1, true).id);
    assert_eq!(pushed(&asked), (T + 10, true, Some(WALL), Some(back)));
    recall(&mut router, secs(1), 1);
    assert_eq!(effects(&mut router), [], "it is on its way");
    write_at(&mut router, secs(1), 2, T);
    expect::<1>(&mut router, vec![Seen::OpenWrite(T, T + 10)]);
}

/// Goal: a lease that was recalled before it arrived is not used, and goes back.
#[test]
fn a_lease_that_was_recalled_before_it_came_is_none() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(T, 10));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    recall(&mut router, secs(1), 1);
    let (asked, _) = happened(&mut router);
    let back = LeaseUse::GiveBack(lease(1, false).id);
    assert_eq!(pushed(&asked), (0, false, None, Some(back)));
    answer(
        &mut router,
        secs(1),
        open,
        opened_with(Some(lease(1, false))),
    );
    assert_eq!(router.leases(), 0);
}

/// Goal: where the site has made a lease to read one to write, and wants that back before it
/// has come, the one to read has ended, too.
#[test]
fn a_recall_ends_what_became_of_an_older_lease() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(T, 10));
    open_to_read(&mut router, secs(1), Some(lease(1, false)));
    expect::<1>(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    write_at(&mut router, secs(1), 2, T);
    expect::<1>(&mut router, vec![Seen::OpenWrite(T, T + 10)]);
    recall(&mut router, secs(1), 2);
    assert_eq!(router.leases(), 0);
}

/// Goal: a lease that an earlier answer brings, which arrives later, does not take the
/// place of a newer one.
#[test]
fn an_older_lease_does_not_replace_a_newer_one() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(T, 10));
    let [read_open] = expect(&mut router, vec![Seen::OpenRead]);
    write_at(&mut router, secs(1), 2, END);
    let [write_open] = expect(&mut router, vec![Seen::OpenWrite(END, END + 10)]);
    answer(
        &mut router,
        secs(1),
        write_open,
        opened_with(Some(lease(2, true))),
    );
    finish_write(&mut router, secs(1));
    answer(
        &mut router,
        secs(1),
        read_open,
        opened_with(Some(lease(1, false))),
    );
    let [reading] = expect(&mut router, vec![Seen::Read(10, column(0), T, 10)]);
    node_at(&mut router, secs(1), reading, bytes_read(vec![1; 10]));
    let (_, replies) = happened(&mut router);
    assert_eq!(after(&replies[0]).size_bytes, END + 10);
}

/// Goal: a lease to write goes back while it still lasts, without being asked for.
#[test]
fn a_lease_to_write_goes_back_before_it_ends() {
    let mut router = dirty();
    let due = router.poll_timeout().expect("something is due");
    assert!(due > secs(1) && due < millis(2400), "{due:?}");
    router.handle(due, RouterInput::Timeout);
    let (asked, _) = happened(&mut router);
    let back = LeaseUse::GiveBack(lease(1, true).id);
    assert_eq!(pushed(&asked), (T + 10, true, Some(WALL), Some(back)));
}

/// Goal: where a file was cut before its writer told what it wrote, clients learn that
/// they have to write again.
#[test]
fn what_was_cut_before_it_was_told_changes_the_verifier() {
    let mut router = dirty();
    let verifier = router.verifier();
    ask(&mut router, secs(1), 2, commit());
    let (asked, _) = happened(&mut router);
    answer(&mut router, secs(1), asked[0].0, opened_with(None));
    assert_ne!(router.verifier(), verifier);
}

/// Goal: what the site gives without a lease, or does not give any more, is asked for
/// by each request.
#[test]
fn without_a_lease_each_write_asks_and_tells() {
    let mut router = router();
    write_at(&mut router, secs(1), 1, T);
    let [open] = expect(&mut router, vec![Seen::OpenWrite(T, T + 10)]);
    answer(&mut router, secs(1), open, opened_with(None));
    let (_, ids) = drain(&mut router);
    node_at(&mut router, secs(1), ids[0], written(1));
    let (asked, _) = happened(&mut router);
    assert_eq!(pushed(&asked), (T + 10, true, None, None));
}

/// Goal: a COMMIT that finds the lease on its way back does not overtake what is told with
/// it: found by simulation, a size was lost that a client had been told to be durable.
#[test]
fn a_commit_does_not_overtake_a_lease_on_its_way_back() {
    let mut router = dirty();
    recall(&mut router, secs(1), 1);
    let (first, _) = happened(&mut router);
    ask(&mut router, secs(1), 2, commit());
    let (second, _) = happened(&mut router);
    assert_eq!(
        pushed(&second),
        pushed(&first),
        "the site is told once more"
    );
    let verifier = router.verifier();
    for (id, _) in [&second[0], &first[0]] {
        answer(&mut router, secs(1), *id, opened_with(None));
    }
    assert_ne!(router.verifier(), verifier, "the file was cut before");
}

/// Goal: where there is room for one lease, that of the file that was used last stays: the
/// other one goes back to its site with the size and the time that nobody was told.
#[test]
fn a_lease_that_makes_room_tells_what_was_written_under_it() {
    let mut config = RouterConfig::new(WriterId(77));
    config.leases_max = 1;
    let mut router = Router::new(config, table(1));
    make_dirty(&mut router);
    let other = FileRef {
        id: FileId(6),
        ..FILE
    };
    let read = SiteOperation::Read {
        file: other,
        offset_bytes: T,
        length_bytes: 10,
        patience_ms: 0,
    };
    ask(&mut router, secs(1), 2, read);
    open_to_read(&mut router, secs(1), Some(lease(2, false)));
    let (mut asked, mut of_nodes) = (Vec::new(), 0);
    while let Some(effect) = router.poll_effect() {
        match effect {
            RouterEffect::Site(_, call) => asked.push((call.id, call.request.operation)),
            RouterEffect::Node(..) => of_nodes += 1,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!((router.leases(), of_nodes), (1, 1));
    assert!(
        matches!(
            asked[..],
            [(_, SiteOperation::PushAttributes { file: FILE, .. })]
        ),
        "{asked:?}"
    );
    let back = LeaseUse::GiveBack(lease(1, true).id);
    assert_eq!(pushed(&asked), (T + 10, true, Some(WALL), Some(back)));
}

const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// What a router notes of a read at second 1 of a file that was read at `accessed`, and
/// written before: it has read another file before, whose site has told the time, and the
/// site gives a `lease` of this one, or none.
fn noted(accessed: WallTime, lease: Option<FileLease>) -> (WallTime, usize) {
    let mut router = dirty();
    let file = FileRef {
        id: FileId(6),
        ..FILE
    };
    let written = WallTime(WALL.0 - 2 * DAY_NANOS);
    let of_file = Attributes {
        file,
        accessed,
        modified: written,
        changed: written,
        ..attributes(END)
    };
    let read = SiteOperation::Read {
        file,
        offset_bytes: T,
        length_bytes: 10,
        patience_ms: 0,
    };
    ask(&mut router, secs(1), 2, read);
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    let reply = SiteReply {
        id: open,
        outcome: opened_with(lease),
        subject: WeakCache {
            before: None,
            after: Some(of_file.clone()),
        },
        second: WeakCache::default(),
    };
    router.handle(secs(1), RouterInput::Site(Box::new(reply)));
    let (_, ids) = drain(&mut router);
    node_at(&mut router, secs(1), ids[0], bytes_read(vec![1; 10]));
    let (asked, mut replies) = happened(&mut router);
    for (id, operation) in &asked {
        let SiteOperation::PushAttributes { read, wrote, .. } = operation else {
            panic!("unexpected {operation:?}");
        };
        assert_eq!((*read, *wrote), (true, false));
        let subject = WeakCache {
            before: None,
            after: Some(Attributes {
                accessed: WALL,
                ..of_file.clone()
            }),
        };
        let reply = SiteReply {
            id: *id,
            outcome: Ok(SiteAnswer::Done),
            subject,
            second: WeakCache::default(),
        };
        router.handle(secs(1), RouterInput::Site(Box::new(reply)));
        replies.extend(happened(&mut router).1);
    }
    (after(&replies[0]).accessed, asked.len())
}

/// Goal: beyond 64 KiB, too, a read moves a time of access that is a day old, and not one
/// that is newer (S-TIME-4): under a lease without a message, and without one by telling
/// the site.
#[test]
fn a_read_moves_a_time_of_access_that_is_a_day_old() {
    let old = WallTime(WALL.0 - DAY_NANOS - 1);
    let new = WallTime(WALL.0 - DAY_NANOS + 1);
    let read_lease = Some(lease(2, false));
    assert_eq!(noted(old, read_lease), (WALL, 0));
    assert_eq!(noted(old, None), (WALL, 1));
    assert_eq!(noted(new, read_lease), (new, 0));
    assert_eq!(noted(new, None), (new, 0));
}

/// Asks for bytes of a file that is read again and again.
fn read_hot(router: &mut Router, now: Time, id: u64, (from, length): (u64, u64)) {
    let call = Call {
        id: CallId(id),
        deadline: DEADLINE,
        request: SiteRequest::as_root(read(from, length)),
    };
    router.handle(now, RouterInput::ReadHot(Box::new(call)));
}

/// Bytes of a reply to a READ.
fn content(replies: &[RoutedReply]) -> Vec<u8> {
    match replies {
        [reply] => match &reply.reply.outcome {
            Ok(SiteAnswer::Read { payload, .. }) => payload.to_bytes().to_vec(),
            other => panic!("unexpected {other:?}"),
        },
        other => panic!("unexpected {other:?}"),
    }
}

/// Goal: what was read of a hot file is given out again without asking a node, as long as a
/// lease says that the file is as it was, also a later one; not when it has changed, when no
/// lease counts, or to who reads beyond it.
#[test]
fn hot_bytes_are_given_out_under_a_lease_only() {
    let mut router = router();
    read_hot(&mut router, secs(1), 1, (T, 50));
    open_to_read(&mut router, secs(1), Some(lease(1, false)));
    let (_, asked) = drain(&mut router);
    node_at(&mut router, secs(1), asked[0], bytes_read(vec![3; 50]));
    assert_eq!(content(&happened(&mut router).1), [3; 50]);
    assert_eq!(router.hot_bytes(), (50, 0));

    ask(&mut router, millis(1100), 2, read(T + 10, 30));
    let (asked, replies) = happened(&mut router);
    assert_eq!((asked.len(), content(&replies)), (0, vec![3; 30]));
    assert_eq!(router.hot_bytes(), (50, 30));

    // Another lease of the same state.
    ask(&mut router, secs(4), 3, read(T, 50));
    open_to_read(&mut router, secs(4), Some(lease(2, false)));
    assert_eq!(content(&happened(&mut router).1), [3; 50]);
    // Beyond what is kept a node is asked.
    ask(&mut router, secs(4), 4, read(T, 60));
    let (seen, asked) = drain(&mut router);
    assert!(matches!(seen[..], [Seen::Read(..)]), "{seen:?}");
    node_at(&mut router, secs(4), asked[0], bytes_read(vec![4; 60]));
    assert_eq!(content(&happened(&mut router).1), [4; 60]);

    // Without a lease, too.
    ask(&mut router, secs(8), 5, read(T, 50));
    open_to_read(&mut router, secs(8), None);
    let (seen, _) = drain(&mut router);
    assert!(matches!(seen[..], [Seen::Read(..)]), "{seen:?}");
}

/// Goal: the head of a hot file, which is its site's, is given out again without asking anybody
/// as long as a lease says that the file is as it was; with the rest, too; not after a recall,
/// which a write of the head waits for; and it is not kept if it was read without a lease, or the
/// lease ended meanwhile.
#[test]
fn hot_heads_are_given_out_under_a_lease_only() {
    let head = |router: &mut Router, now, bytes: Vec<u8>| {
        let (seen, asked) = drain(router);
        assert!(matches!(seen[..], [Seen::SiteRead(0, _)]), "{seen:?}");
        let read = SiteAnswer::Read {
            payload: Bytes::from(bytes).into(),
            end_of_file: false,
        };
        answer(router, now, asked[0], Ok(read));
    };
    let mut router = router();
    read_hot(&mut router, secs(1), 1, (0, T));
    open_to_read(&mut router, secs(1), Some(lease(1, false)));
    let kept = usize::try_from(T).expect("a length");
    head(&mut router, secs(1), vec![3; kept]);
    assert_eq!(content(&happened(&mut router).1).len(), kept);
    assert_eq!(router.hot_bytes().0, kept);
    read_hot(&mut router, millis(1100), 2, (10, 30));
    let (asked, replies) = happened(&mut router);
    assert_eq!((asked.len(), content(&replies)), (0, vec![3; 30]));

    // Head and rest: what lies behind the head is asked of a node once.
    for (id, is_kept) in [(3, false), (4, true)] {
        read_hot(&mut router, millis(1200), id, (T - 10, 20));
        if !is_kept {
            let (seen, asked) = drain(&mut router);
            assert!(matches!(seen[..], [Seen::SiteRead(..)]), "{seen:?}");
            let read = SiteAnswer::Read {
                payload: Bytes::from(vec![3; 10]).into(),
                end_of_file: false,
            };
            answer(&mut router, millis(1200), asked[0], Ok(read));
            let (seen, asked) = drain(&mut router);
            assert!(matches!(seen[..], [Seen::Read(..)]), "{seen:?}");
            node_at(&mut router, millis(1200), asked[0], bytes_read(vec![4; 10]));
        }
        let (asked, replies) = happened(&mut router);
        let expected = [[3; 10], [4; 10]].concat();
        assert_eq!((asked.len(), content(&replies)), (0, expected), "{id}");
    }

    // After a recall its site is asked again.
    recall(&mut router, millis(1300), 1);
    happened(&mut router);
    read_hot(&mut router, millis(1300), 5, (0, 30));
    open_to_read(&mut router, millis(1300), None);
    head(&mut router, millis(1300), vec![5; 30]);
    assert_eq!(content(&happened(&mut router).1), [5; 30]);
    // Two pieces of the last one's read, of which one lies in the first.
    assert_eq!(router.hot_bytes().0, kept + 20);

    let mut router = self::router();
    read_hot(&mut router, secs(1), 1, (0, 30));
    open_to_read(&mut router, secs(1), Some(lease(1, false)));
    let (_, asked) = drain(&mut router);
    recall(&mut router, secs(1), 1);
    let read = SiteAnswer::Read {
        payload: Bytes::from(vec![6; 30]).into(),
        end_of_file: false,
    };
    answer(&mut router, secs(1), asked[0], Ok(read));
    happened(&mut router);
    assert_eq!(
        router.hot_bytes().0,
        0,
        "somebody may have written meanwhile"
    );
}

/// Goal: a write through the same gateway is seen: what was kept before is of no use, and what
/// was read while it went on is not kept.
#[test]
fn hot_bytes_end_with_a_write() {
    let mut router = dirty();
    read_hot(&mut router, secs(1), 2, (T, 10));
    let (_, asked) = drain(&mut router);
    write_at(&mut router, secs(1), 3, T);
    let (seen, ids) = drain(&mut router);
    assert!(matches!(seen[..], [Seen::Write(..)]), "{seen:?}");
    node_at(&mut router, secs(1), ids[0], written(2));
    happened(&mut router);
    node_at(&mut router, secs(1), asked[0], bytes_read(vec![7; 10]));
    assert_eq!(content(&happened(&mut router).1), [7; 10]);
    assert_eq!(router.hot_bytes().0, 0, "the file has changed meanwhile");

    read_hot(&mut router, secs(1), 4, (T, 10));
    let (_, asked) = drain(&mut router);
    node_at(&mut router, secs(1), asked[0], bytes_read(vec![7; 10]));
    happened(&mut router);
    assert_eq!(router.hot_bytes().0, 10);
    write_at(&mut router, secs(1), 5, T);
    finish_write(&mut router, secs(1));
    ask(&mut router, secs(1), 6, read(T, 10));
    let (seen, _) = drain(&mut router);
    assert!(matches!(seen[..], [Seen::Read(..)]), "{seen:?}");
}
