//! Holes: bytes become zeros that take no space, and which bytes have some is told
//! (docs/decisions/0047).

mod script;

use std::ops::Range;

use crossdock_limits::MAPPED_BYTES_MAX;
use crossdock_names::STRIPE_UNIT_BYTES;
use crossdock_peer::{
    CallId, MappedRanges, NodeAnswer, NodeError, SiteAnswer, SiteError, SiteOperation, Stability,
};
use crossdock_router::Router;

use script::{
    FILE, Seen, T, ask, column, effects, expect, node, opened, router, secs, site, site_written,
};

const UNIT: u64 = STRIPE_UNIT_BYTES;

fn zero(offset_bytes: u64, length_bytes: u64) -> SiteOperation {
    SiteOperation::Zero {
        file: FILE,
        offset_bytes,
        length_bytes,
    }
}

fn mapped(range: Range<u64>) -> SiteOperation {
    SiteOperation::Mapped {
        file: FILE,
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
    }
}

fn done() -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Done {
        version: crossdock_names::Version(4),
    })
}

fn runs(runs: &[Range<u64>], end_bytes: u64) -> MappedRanges {
    MappedRanges {
        runs: runs.to_vec(),
        end_bytes,
    }
}

/// Goal: each column is asked once, whatever the stripes; the file does not grow; the answer
/// comes behind the last of them, and the site hears of it.
#[test]
fn a_hole_is_one_message_for_each_column() {
    let mut router = router();
    let end = 5 * UNIT + 1;
    ask(&mut router, secs(0), 1, zero(T - 10, end - (T - 10)));
    let [open] = expect(&mut router, vec![Seen::OpenFree(T, end)]);
    opened(&mut router, open, 9 * UNIT);
    let [head, first, second] = expect(
        &mut router,
        vec![
            Seen::SiteZero(T - 10, 10),
            Seen::Zero(10, column(0), T, 3 * UNIT - T, 3),
            Seen::Zero(20, column(1), 0, 2 * UNIT + 1, 3),
        ],
    );
    node(&mut router, first, done());
    site(&mut router, head, Ok(site_written(1)), 9 * UNIT);
    assert_eq!(effects(&mut router), []);
    // A column that nothing was written to is a hole.
    node(&mut router, second, Err(NodeError::NoObject));
    let [push] = expect(&mut router, vec![Seen::Push(0, true, Stability::Unstable)]);
    site(&mut router, push, Ok(SiteAnswer::Done), 9 * UNIT);
    assert_eq!(effects(&mut router), [Seen::Reply(1, Ok(site_written(1)))]);
}

/// Goal: a truncate in between makes it begin anew; what is longer than may be is refused.
#[test]
fn a_hole_of_an_old_layout_is_made_again() {
    let mut router = router();
    ask(&mut router, secs(0), 1, zero(T, 8192));
    let seen = || vec![Seen::Zero(10, column(0), T, 8192, 3)];
    let [open] = expect(&mut router, vec![Seen::OpenFree(T, T + 8192)]);
    opened(&mut router, open, UNIT);
    let [first] = expect(&mut router, seen());
    node(
        &mut router,
        first,
        Err(NodeError::StaleGeneration { current: 9 }),
    );
    let [open] = expect(&mut router, vec![Seen::OpenFree(T, T + 8192)]);
    opened(&mut router, open, UNIT);
    let [again] = expect(&mut router, seen());
    node(&mut router, again, done());
    let [push] = expect(&mut router, vec![Seen::Push(0, true, Stability::Unstable)]);
    site(&mut router, push, Err(SiteError::Stale), UNIT);
    assert_eq!(
        effects(&mut router),
        [Seen::Reply(1, Err(SiteError::Stale))]
    );
    ask(&mut router, secs(0), 2, zero(T, MAPPED_BYTES_MAX + 1));
    assert_eq!(
        effects(&mut router),
        [Seen::Reply(2, Err(SiteError::Invalid))]
    );
}

fn asked(router: &mut Router, range: Range<u64>, seen: Vec<Seen>) -> [CallId; 2] {
    ask(router, secs(0), 1, mapped(range));
    let [open] = expect(router, vec![Seen::OpenRead]);
    opened(router, open, 9 * UNIT);
    expect(router, seen)
}

/// Goal: what columns have is told where it lies in the file; the site's part counts as
/// there; nothing is told beyond what a node has told.
#[test]
fn space_is_told_where_it_lies_in_the_file() {
    let mut router = router();
    let seen = || {
        vec![
            Seen::Mapped(10, column(0), T, 2 * UNIT - T),
            Seen::Mapped(20, column(1), 0, 2 * UNIT),
        ]
    };
    let [first, second] = asked(&mut router, 0..4 * UNIT, seen());
    let own = runs(&[T + 4096..T + 8192, UNIT - 4096..UNIT + 4096], 2 * UNIT);
    node(&mut router, first, Ok(NodeAnswer::Mapped(own)));
    assert_eq!(effects(&mut router), []);
    node(&mut router, second, Err(NodeError::NoObject));
    let told = runs(
        &[
            0..T,
            T + 4096..T + 8192,
            UNIT - 4096..UNIT,
            2 * UNIT..2 * UNIT + 4096,
        ],
        4 * UNIT,
    );
    let expected = [Seen::Reply(1, Ok(SiteAnswer::Mapped(told)))];
    assert_eq!(effects(&mut router), expected);
    let [first, second] = asked(&mut router, 0..4 * UNIT, seen());
    node(
        &mut router,
        second,
        Ok(NodeAnswer::Mapped(runs(
            std::slice::from_ref(&(0..4096)),
            8192,
        ))),
    );
    node(
        &mut router,
        first,
        Ok(NodeAnswer::Mapped(runs(&[], 2 * UNIT))),
    );
    let told = runs(&[0..T, UNIT..UNIT + 4096], UNIT + 8192);
    let expected = [Seen::Reply(1, Ok(SiteAnswer::Mapped(told)))];
    assert_eq!(effects(&mut router), expected);
}
