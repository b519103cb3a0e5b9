//! Files with block maps: the router sends bytes where the map says, keeps what it was told
//! as long as that is right, and asks again when a node refuses it (docs/decisions/0029).

mod script;

use bytes::Bytes;
use crossdock_names::{Incarnation, LayoutClass, MapFragment, UNMAPPED};
use crossdock_peer::{
    CallId, FileLayout, FileLease, LeaseId, NodeAnswer, NodeError, SiteAnswer, SiteError,
    SiteOperation, SiteReply, Stability, WeakCache,
};
use crossdock_router::{Router, RouterInput};
use crossdock_types::{Time, WallTime};

use script::{
    Seen, ask, attributes, bytes_read, column, expect, layout, node, read, router, secs, write,
    written,
};

const BLOCK: u64 = 1 << 20;

fn lease(id: u64, is_exclusive: bool) -> FileLease {
    FileLease {
        id: LeaseId(1 << 32 | id),
        is_exclusive,
        lasts_ms: 1500,
        wall: WallTime(1_000_000),
        writable_bytes: 64 << 30,
    }
}

/// The site says where the blocks lie.
fn told(
    router: &mut Router,
    now: Time,
    id: CallId,
    columns: &'static [u8],
    lease: Option<FileLease>,
) {
    let layout = FileLayout {
        class: LayoutClass::MAPPED,
        map: MapFragment {
            first_window: 0,
            windows: 1,
            columns: Bytes::from_static(columns),
        },
        ..layout()
    };
    let outcome = Ok(SiteAnswer::Opened {
        layout,
        incarnation: Incarnation(1),
        lease,
    });
    let subject = WeakCache {
        before: None,
        after: Some(attributes(8 * BLOCK)),
    };
    let reply = SiteReply {
        id,
        outcome,
        subject,
        second: WeakCache::default(),
    };
    router.handle(now, RouterInput::Site(Box::new(reply)));
}

/// What a door has been answered to a read.
fn answered(router: &mut Router) -> Vec<u8> {
    match &script::effects(router)[..] {
        [Seen::Reply(_, Ok(SiteAnswer::Read { payload, .. }))] => payload.to_bytes().to_vec(),
        other => panic!("unexpected {other:?}"),
    }
}

/// Goal: a read goes to the columns that the map names, and blocks that lie nowhere are
/// zeros that nobody is asked for.
#[test]
fn reads_go_where_the_map_says() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(BLOCK - 3, BLOCK + 6));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    told(&mut router, secs(1), open, &[1, UNMAPPED, 0], None);
    let [first, last] = expect(
        &mut router,
        vec![
            Seen::Read(20, column(1), BLOCK - 3, 3),
            Seen::Read(10, column(0), 2 * BLOCK, 3),
        ],
    );
    node(&mut router, first, bytes_read(vec![5; 3]));
    node(&mut router, last, bytes_read(vec![6; 3]));
    let bytes = answered(&mut router);
    assert_eq!(bytes[..3], [5; 3]);
    assert!(bytes[3..bytes.len() - 3].iter().all(|&byte| byte == 0));
    assert_eq!(bytes[bytes.len() - 3..], [6; 3]);
    assert_eq!(bytes.len() as u64, BLOCK + 6);
}

/// Goal: under a lease the site is asked once; and again by a write to a block that had no
/// place.
#[test]
fn a_map_is_asked_for_once() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(BLOCK, 8));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    let given = lease(1, false);
    told(&mut router, secs(1), open, &[1, 0], Some(given));
    let [first] = expect(&mut router, vec![Seen::Read(10, column(0), BLOCK, 8)]);
    node(&mut router, first, bytes_read(vec![1; 8]));
    answered(&mut router);
    ask(&mut router, secs(1), 2, read(BLOCK - 8, 8));
    let [second] = expect(&mut router, vec![Seen::Read(20, column(1), BLOCK - 8, 8)]);
    node(&mut router, second, bytes_read(vec![1; 8]));
    answered(&mut router);
    ask(&mut router, secs(1), 3, read(3 * BLOCK, 8));
    assert_eq!(
        answered(&mut router),
        [0; 8],
        "it lies nowhere, as is known"
    );
    let at = 3 * BLOCK;
    let bytes = vec![9; 8];
    ask(
        &mut router,
        secs(1),
        4,
        write(at, bytes, Stability::Unstable),
    );
    let [open] = expect(&mut router, vec![Seen::OpenWrite(at, at + 8)]);
    let columns = &[1, 0, UNMAPPED, 1];
    told(&mut router, secs(1), open, columns, Some(lease(2, true)));
    let (seen, ids) = script::drain(&mut router);
    let sent = seen.iter().zip(&ids).find_map(|(seen, &id)| match seen {
        Seen::Write(20, object, offset, 8, _, 3) => {
            assert_eq!((*object, *offset), (column(1), at));
            Some(id)
        }
        _ => None,
    });
    let sent = sent.unwrap_or_else(|| panic!("{seen:?}"));
    node(&mut router, sent, written(1));
    // Now it lies somewhere, and that is not forgotten.
    ask(&mut router, secs(1), 5, read(at, 8));
    let (seen, _) = script::drain(&mut router);
    assert!(seen.contains(&Seen::Read(20, column(1), at, 8)), "{seen:?}");
}

/// Goal: a node that has seen a later truncate refuses an old map, and the router asks the
/// site for the new one.
#[test]
fn an_outdated_map_is_refused_and_asked_for_again() {
    let mut router = router();
    ask(&mut router, secs(1), 1, read(BLOCK, 8));
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    told(&mut router, secs(1), open, &[1, 0], None);
    let [first] = expect(&mut router, vec![Seen::Read(10, column(0), BLOCK, 8)]);
    let stale = Err(NodeError::StaleGeneration { current: 4 });
    node(&mut router, first, stale);
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    told(&mut router, secs(1), open, &[1, 1], None);
    let [again] = expect(&mut router, vec![Seen::Read(20, column(1), BLOCK, 8)]);
    node(&mut router, again, bytes_read(vec![4; 8]));
    assert_eq!(answered(&mut router), [4; 8]);
}

/// Begins to write 8 bytes to a block at column 1, whose node has no room; the router's
/// question where the file ends.
fn write_to_full(router: &mut Router, block: usize) -> CallId {
    let at = block as u64 * BLOCK;
    let bytes = vec![9; 8];
    ask(router, secs(1), 1, write(at, bytes, Stability::Stable));
    let [open] = expect(router, vec![Seen::OpenWrite(at, at + 8)]);
    told(router, secs(1), open, &[1; 9], None);
    let [sent] = expect(router, vec![Seen::Write(20, column(1), at, 8, 1, 3)]);
    node(router, sent, Err(NodeError::NoSpace));
    let [measured] = expect(router, vec![Seen::Getattr]);
    measured
}

/// Goal: a block that was placed behind the end of a file, at a node that has become full
/// meanwhile, gets another place: the file is cut where it ends, if nobody has written
/// since, and the site is asked again.
#[test]
fn a_write_behind_the_end_finds_another_place() {
    let mut router = router();
    let (end, at) = (8 * BLOCK - 100, 8 * BLOCK);
    let measured = write_to_full(&mut router, 8);
    script::site(&mut router, measured, Ok(SiteAnswer::Done), end);
    let cut = || Seen::Truncate(end, Some(attributes(end).changed));
    let [first] = expect(&mut router, vec![cut()]);
    // Somebody has written since.
    script::site(&mut router, first, Err(SiteError::NotSync), end);
    let [measured] = expect(&mut router, vec![Seen::Getattr]);
    script::site(&mut router, measured, Ok(SiteAnswer::Done), end);
    let [second] = expect(&mut router, vec![cut()]);
    script::site(&mut router, second, Ok(SiteAnswer::Done), end);
    let [open] = expect(&mut router, vec![Seen::OpenWrite(at, at + 8)]);
    let columns = &[1, 1, 1, 1, 1, 1, 1, 1, 0];
    told(&mut router, secs(1), open, columns, None);
    let [sent] = expect(&mut router, vec![Seen::Write(10, column(0), at, 8, 1, 3)]);
    node(&mut router, sent, written(1));
    let stable = Stability::Stable;
    let [pushed] = expect(&mut router, vec![Seen::Push(at + 8, true, stable)]);
    script::site(&mut router, pushed, Ok(SiteAnswer::Done), at + 8);
    let seen = script::effects(&mut router);
    assert!(
        matches!(&seen[..], [Seen::Reply(1, Ok(SiteAnswer::Written { .. }))]),
        "{seen:?}"
    );
}

/// Goal: a block before the end may have bytes: it stays where it is, and the client is
/// told that there is no room; so it is when all nodes are full.
#[test]
fn a_block_that_may_have_bytes_stays_where_it_is() {
    let refused = vec![Seen::Reply(1, Err(SiteError::NoSpace))];
    let mut router = router();
    let measured = write_to_full(&mut router, 8);
    script::site(&mut router, measured, Ok(SiteAnswer::Done), 8 * BLOCK + 1);
    assert_eq!(script::effects(&mut router), refused);

    let mut router = script::router();
    let mut measured = write_to_full(&mut router, 8);
    for _ in 0..3 {
        script::site(&mut router, measured, Ok(SiteAnswer::Done), 8 * BLOCK);
        let (seen, ids) = script::drain(&mut router);
        assert!(matches!(seen[..], [Seen::Truncate(..)]), "{seen:?}");
        script::site(&mut router, ids[0], Err(SiteError::NotSync), 8 * BLOCK);
        measured = expect::<1>(&mut router, vec![Seen::Getattr])[0];
    }
    script::site(&mut router, measured, Ok(SiteAnswer::Done), 8 * BLOCK);
    let (_, ids) = script::drain(&mut router);
    script::site(&mut router, ids[0], Err(SiteError::NotSync), 8 * BLOCK);
    assert_eq!(script::effects(&mut router), refused);
}

/// Goal: a hole goes to the blocks that lie somewhere, and gives none a place.
#[test]
fn blocks_without_a_place_are_holes() {
    let mut router = router();
    let zero = SiteOperation::Zero {
        file: script::FILE,
        offset_bytes: BLOCK,
        length_bytes: 3 * BLOCK,
    };
    ask(&mut router, secs(1), 1, zero);
    let [open] = expect(&mut router, vec![Seen::OpenFree(BLOCK, 4 * BLOCK)]);
    told(&mut router, secs(1), open, &[1, UNMAPPED, 0, 0], None);
    let [zeros] = expect(
        &mut router,
        vec![Seen::Zero(10, column(0), 2 * BLOCK, 2 * BLOCK, 3)],
    );
    let version = crossdock_names::Version(1);
    node(&mut router, zeros, Ok(NodeAnswer::Done { version }));
    let [push] = expect(&mut router, vec![Seen::Push(0, true, Stability::Unstable)]);
    script::site(&mut router, push, Ok(SiteAnswer::Done), 8 * BLOCK);
    let written = SiteAnswer::Written {
        incarnation: Incarnation(1),
    };
    assert_eq!(script::effects(&mut router), [Seen::Reply(1, Ok(written))]);
}
