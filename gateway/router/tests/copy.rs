//! Copies from file to file: what orders nodes get, and what becomes of what they answer
//! (docs/decisions/0051).

mod script;

use bytes::Bytes;
use crossdock_limits::COPY_BYTES_MAX;
use crossdock_names::{
    FileId, FileRef, Incarnation, LayoutClass, MapFragment, NodeId, ObjectId, STRIPE_UNIT_BYTES,
    UNMAPPED,
};
use crossdock_peer::{
    AccessError, CallId, FileLayout, NodeAnswer, NodeError, SiteAnswer, SiteError, SiteOperation,
    SourceError, Stability,
};
use crossdock_router::{Router, RouterInput};

use script::{
    FILE, Seen, T, ask, column, effects, expect, layout, node, node_at, opened, router, secs, site,
    site_written, written,
};

const UNIT: u64 = STRIPE_UNIT_BYTES;
const SOURCE: FileRef = FileRef {
    id: FileId(6),
    generation: 1,
};
const SIZE: u64 = 9 * UNIT;

fn copy(from: u64, to: u64, length_bytes: u64) -> SiteOperation {
    SiteOperation::Copy {
        file: FILE,
        offset_bytes: to,
        source: SOURCE,
        source_offset_bytes: from,
        length_bytes,
        stability: Stability::Data,
        frees_zeros: true,
    }
}

fn source(number: u16) -> ObjectId {
    ObjectId::column(SOURCE.id, 1, 0, number)
}

/// One column.
fn narrow() -> FileLayout {
    FileLayout {
        placement: SOURCE.id,
        columns: 1,
        ..layout()
    }
}

/// Blocks of 64 KiB, the second of them in column 1, the fourth in column 0.
fn mapped() -> FileLayout {
    FileLayout {
        class: LayoutClass(16),
        placement: SOURCE.id,
        map: MapFragment {
            first_window: 0,
            windows: 1,
            columns: Bytes::from_static(&[UNMAPPED, 1, UNMAPPED, 0]),
        },
        ..layout()
    }
}

/// Begins a copy, and opens both files; the ids of the orders.
fn begin<const N: usize>(
    router: &mut Router,
    operation: &SiteOperation,
    told: FileLayout,
    orders: Vec<Seen>,
) -> [CallId; N] {
    ask(router, secs(0), 1, operation.clone());
    open(router, operation, told, orders)
}

fn open<const N: usize>(
    router: &mut Router,
    operation: &SiteOperation,
    told: FileLayout,
    orders: Vec<Seen>,
) -> [CallId; N] {
    let &SiteOperation::Copy {
        offset_bytes: to,
        length_bytes: length,
        ..
    } = operation
    else {
        panic!("a copy");
    };
    let [read] = expect(router, vec![Seen::OpenRead]);
    let answer = SiteAnswer::Opened {
        layout: told,
        incarnation: Incarnation(1),
        lease: None,
    };
    site(router, read, Ok(answer), SIZE);
    let [write] = expect(router, vec![Seen::OpenWrite(to, to + length)]);
    opened(router, write, SIZE);
    expect(router, orders)
}

/// The site hears of it, and the door.
fn finish(router: &mut Router, end: u64) {
    let [push] = expect(router, vec![Seen::Push(end, true, Stability::Unstable)]);
    site(router, push, Ok(SiteAnswer::Done), SIZE);
    assert_eq!(effects(router), [Seen::Reply(1, Ok(site_written(1)))]);
}

fn done() -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Done {
        version: crossdock_names::Version(4),
    })
}

/// Goal: what is striped otherwise is cut along the stripes of both, and each piece is an order to
/// the primary of the column that is written; no byte comes here.
#[test]
fn pieces_are_ordered_of_who_writes_them() {
    let mut router = router();
    let (from, to) = (T + 100, UNIT - 1000);
    let orders = vec![
        Seen::Copy(10, (source(0), from), (column(0), to), 1000, true),
        Seen::Copy(20, (source(0), from + 1000), (column(1), 0), 2000, true),
    ];
    let operation = copy(from, to, 3000);
    let [first, second] = begin(&mut router, &operation, narrow(), orders);
    node(&mut router, second, done());
    assert_eq!(effects(&mut router), []);
    node(&mut router, first, written(1));
    finish(&mut router, to + 3000);
    // And the other way round: the source is striped, and what is written lies in one column.
    let (from, to) = (2 * UNIT - 8, 4 * UNIT + 5);
    let orders = vec![
        Seen::Copy(
            10,
            (source(1), UNIT - 8),
            (column(0), 2 * UNIT + 5),
            8,
            true,
        ),
        Seen::Copy(10, (source(0), UNIT), (column(0), 2 * UNIT + 13), 8, true),
    ];
    let striped = FileLayout {
        placement: SOURCE.id,
        ..layout()
    };
    let operation = copy(from, to, 16);
    let orders: [CallId; 2] = begin(&mut router, &operation, striped, orders);
    for order in orders {
        node(&mut router, order, written(1));
    }
    finish(&mut router, to + 16);
}

/// Goal: what lies nowhere at the source becomes a hole, or zeros where there are to be none.
#[test]
fn holes_of_a_map_are_not_read() {
    for frees_zeros in [true, false] {
        let mut router = router();
        let mut operation = copy(T, UNIT + T, 3 * T);
        if let SiteOperation::Copy {
            frees_zeros: frees, ..
        } = &mut operation
        {
            *frees = frees_zeros;
        }
        let at = |offset| (column(1), offset);
        let hole = match frees_zeros {
            true => Seen::Zero(20, column(1), 2 * T, T, 3),
            false => Seen::Write(20, column(1), 2 * T, script::len(T), 1, 3),
        };
        let orders = vec![
            Seen::Copy(20, (source(1), T), at(T), T, frees_zeros),
            hole,
            Seen::Copy(20, (source(0), 3 * T), at(3 * T), T, frees_zeros),
        ];
        let [first, hole, last] = begin(&mut router, &operation, mapped(), orders);
        node(&mut router, first, written(1));
        node(&mut router, last, written(1));
        node(
            &mut router,
            hole,
            if frees_zeros { done() } else { written(1) },
        );
        finish(&mut router, UNIT + 4 * T);
    }
}

/// Goal: a column that nothing was ever written to is a hole; a source that was truncated, a right
/// that has ended, and a destination that was truncated, are looked for anew.
#[test]
fn outdated_layouts_are_asked_for_anew() {
    let operation = copy(T, 2 * T, 8);
    let order = || vec![Seen::Copy(10, (source(0), T), (column(0), 2 * T), 8, true)];
    let expired = NodeError::Refused(AccessError::Expired { seconds: 3 });
    for (error, again) in [
        (
            NodeError::Source(SourceError::NoObject),
            vec![Seen::Zero(10, column(0), 2 * T, 8, 3)],
        ),
        (
            NodeError::Source(SourceError::StaleGeneration { current: 9 }),
            order(),
        ),
        (NodeError::StaleGeneration { current: 9 }, order()),
        (expired, order()),
    ] {
        let mut router = router();
        let [first] = begin(&mut router, &operation, narrow(), order());
        node(&mut router, first, Err(error));
        let [second] = open(&mut router, &operation, narrow(), again);
        node(&mut router, second, done());
        finish(&mut router, 2 * T + 8);
    }
}

/// Goal: a node that is away, here or there, is asked again; what cannot be read is told as the
/// source's; no room as the destination's.
#[test]
fn what_fails_is_told() {
    let operation = copy(T, 2 * T, 8);
    let order = || vec![Seen::Copy(10, (source(0), T), (column(0), 2 * T), 8, true)];
    let away = NodeError::Unavailable { node: NodeId(20) };
    let media = NodeError::Source(SourceError::Media {
        node: NodeId(20),
        what: "block 7".to_owned(),
    });
    for (error, outcome) in [
        (media, Ok(SiteAnswer::Unreadable)),
        (NodeError::NoSpace, Err(SiteError::NoSpace)),
    ] {
        let mut router = router();
        let [first] = begin(&mut router, &operation, narrow(), order());
        node(&mut router, first, Err(away.clone()));
        assert_eq!(effects(&mut router), []);
        router.handle(secs(2), RouterInput::Timeout);
        let [second] = expect(&mut router, order());
        node_at(&mut router, secs(2), second, Err(error));
        assert_eq!(effects(&mut router), [Seen::Reply(1, outcome)]);
    }
}

/// Goal: what a site would have to copy, what is copied over itself, and too much, is refused.
#[test]
fn what_nodes_cannot_copy_is_refused() {
    let mut router = router();
    let refused = [Seen::Reply(1, Err(SiteError::Invalid))];
    let within = |to| SiteOperation::Copy {
        file: SOURCE,
        offset_bytes: to,
        source: SOURCE,
        source_offset_bytes: T,
        length_bytes: 100,
        stability: Stability::Data,
        frees_zeros: true,
    };
    for operation in [
        copy(T - 1, 2 * T, 8),
        copy(2 * T, T - 1, 8),
        copy(T, T, 0),
        copy(T, T, COPY_BYTES_MAX + 1),
        within(T + 99),
        within(T),
    ] {
        ask(&mut router, secs(0), 1, operation);
        assert_eq!(effects(&mut router), refused);
    }
    ask(&mut router, secs(0), 1, within(T + 100));
    let [_open] = expect(&mut router, vec![Seen::OpenRead]);
}
