//! Copies of bytes that lie at another primary, or at this one: they are ordinary changes once the
//! bytes have come, and nothing before that.

mod rig;

use std::sync::Arc;

use bytes::Bytes;
use crossdock_limits::{NODE_COPY_BYTES_MAX, OBJECT_IO_BYTES_MAX};
use crossdock_names::ObjectId;
use crossdock_peer::{
    CallId, CopySource, NodeAnswer, NodeError, NodeRequest, Order, Port, ReadVersion, SourceError,
    Stability,
};
use crossdock_server::NodeInput;
use crossdock_types::{BLOCK_BYTES, Payload};

use rig::{
    BLOCKS, OBJECT, OTHER, Outcome, PRIMARY, Rig, SOURCE, all_reads_fail, content, routed_at, table,
};

/// Not on block boundaries, and not the same distance from them.
const FROM: u64 = 1000;
const TO: u64 = 3 * BLOCK_BYTES as u64 + 500;
const LENGTH: u64 = 3 * BLOCK_BYTES as u64;

/// A source whose bytes are none of those of the object that is written.
fn rig() -> Rig {
    let mut rig = Rig::new();
    make_source(&mut rig, source_content());
    rig
}

fn make_source(rig: &mut Rig, bytes: Vec<u8>) {
    let (context, order) = (routed_at(1), Order::Primary);
    let create = NodeRequest::Create {
        object: SOURCE,
        reservation_bytes: 0,
        attributes: Bytes::new(),
        context,
        order,
    };
    assert!(rig.call(OTHER, create).is_ok());
    if !bytes.is_empty() {
        assert!(rig.call(OTHER, write(SOURCE, 0, bytes)).is_ok());
    }
}

fn source_content() -> Vec<u8> {
    content().iter().map(|byte| byte ^ 0xff).collect()
}

fn write(object: ObjectId, offset_bytes: u64, bytes: Vec<u8>) -> NodeRequest {
    NodeRequest::Write {
        object,
        offset_bytes,
        payload: Payload::from(Bytes::from(bytes)),
        stability: Stability::Stable,
        context: routed_at(1),
        order: Order::Primary,
    }
}

fn copy(source: ObjectId, length_bytes: u64) -> NodeRequest {
    copy_at((source, FROM), TO, length_bytes)
}

fn copy_at((source, from): (ObjectId, u64), offset_bytes: u64, length_bytes: u64) -> NodeRequest {
    NodeRequest::Copy {
        object: OBJECT,
        offset_bytes,
        source: Box::new(CopySource {
            object: source,
            offset_bytes: from,
            length_bytes,
            version: ReadVersion::Current,
            capability: None,
        }),
        stability: Stability::Stable,
        frees_zeros: true,
        context: routed_at(1),
    }
}

fn range(start: u64, length: u64) -> std::ops::Range<usize> {
    let at = |offset: u64| usize::try_from(offset).expect("small");
    at(start)..at(start + length)
}

fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(NodeAnswer::Written { .. }))
}

/// Goal: the bytes of another primary, or of this one, are at all members when it is answered, and
/// nothing beside them has changed.
#[test]
fn copied_bytes_are_at_all_members() {
    for (source, there) in [(SOURCE, source_content()), (OBJECT, content())] {
        let mut rig = rig();
        let done = rig.call(PRIMARY, copy(source, LENGTH));
        assert!(is_written(&done), "{done:?}");
        assert_eq!(rig.shown, None, "all members have it");
        let mut expected = content();
        expected[range(TO, LENGTH)].copy_from_slice(&there[range(FROM, LENGTH)]);
        assert!(rig.read() == Ok(expected.clone()));
        rig.table = table(2, &[OTHER]);
        for id in [PRIMARY, OTHER] {
            let input = NodeInput::Table(Arc::clone(&rig.table));
            rig.give(id, input);
        }
        rig.settle();
        assert!(rig.read() == Ok(expected), "whoever takes over has it");
    }
}

/// Goal: zeros, a source that ends before them included, become a hole; where they may not, they
/// have space.
#[test]
fn zeros_become_holes() {
    for frees in [true, false] {
        let mut rig = Rig::new();
        make_source(&mut rig, vec![0; 2 * BLOCK_BYTES]);
        let block = BLOCK_BYTES as u64;
        let mut request = copy_at((SOURCE, 0), block, 3 * block);
        if let NodeRequest::Copy { frees_zeros, .. } = &mut request {
            *frees_zeros = frees;
        }
        let done = rig.call(PRIMARY, request);
        assert_eq!(
            matches!(done, Ok(NodeAnswer::Done { .. })),
            frees,
            "{done:?}"
        );
        let mut expected = content();
        expected[range(block, 3 * block)].fill(0);
        assert!(rig.read() == Ok(expected));
        let asked = NodeRequest::Mapped {
            object: OBJECT,
            offset_bytes: 0,
            length_bytes: 8 * block,
            truncate_generation: 0,
        };
        let Ok(NodeAnswer::Mapped(mapped)) = rig.call(PRIMARY, asked) else {
            panic!("what has space");
        };
        let whole = 0..8 * block;
        let runs = match frees {
            true => vec![0..block, 4 * block..8 * block],
            false => vec![whole],
        };
        assert_eq!(mapped.runs, runs);
    }
}

/// Goal: until its bytes have come a copy is in nobody's way; then it is ordered behind what was
/// written meanwhile, and before what comes then. What is read is what all members have.
#[test]
fn copies_are_ordered_when_their_bytes_are_there() {
    let mut rig = rig();
    rig.is_cut = true;
    let copied = rig.begin(PRIMARY, copy(SOURCE, LENGTH));
    let written = rig.begin(PRIMARY, write(OBJECT, TO, vec![1; 100]));
    let again = rig.begin(OTHER, write(SOURCE, FROM, vec![2; 50]));
    rig.is_cut = false;
    rig.settle();
    for call in [copied, written, again] {
        let outcome = rig.replies.remove(&call).expect("an answer");
        assert!(is_written(&outcome), "{outcome:?}");
    }
    let mut expected = source_content();
    expected[range(FROM, 50)].fill(2);
    let there = rig.read().expect("bytes");
    assert!(there[range(TO, LENGTH)] == expected[range(FROM, LENGTH)]);
    assert!(is_written(
        &rig.call(PRIMARY, write(OBJECT, TO, vec![3; 10]))
    ));
    assert_eq!(rig.read().expect("bytes")[range(TO, 10)], [3; 10]);
}

/// Goal: a block that the source's primary cannot read it has from the other member; where nobody
/// can read it, that, and each other reason of the source, is told as the source's; a source that
/// is away as such. Nothing is written then.
#[test]
fn what_the_source_says_is_told() {
    let mut rig = rig();
    rig.data(OTHER).set_options(all_reads_fail());
    assert!(is_written(&rig.call(PRIMARY, copy(SOURCE, LENGTH))));
    let before = rig.read();
    rig.data(PRIMARY).set_options(all_reads_fail());
    let far = copy_at((SOURCE, 40 * BLOCK_BYTES as u64), TO, LENGTH);
    let failed = rig.call(PRIMARY, far);
    let is_media = matches!(failed, Err(NodeError::Source(SourceError::Media { .. })));
    assert!(is_media, "{failed:?}");
    for id in [PRIMARY, OTHER] {
        rig.data(id)
            .set_options(crossdock_sim::disk::SimDiskOptions::default());
    }
    let nothing = ObjectId {
        column: 3,
        ..SOURCE
    };
    let missing = rig.call(PRIMARY, copy(nothing, LENGTH));
    assert_eq!(missing, Err(NodeError::Source(SourceError::NoObject)));
    rig.is_away = true;
    let away = rig.call(PRIMARY, copy(SOURCE, LENGTH));
    assert_eq!(away, Err(NodeError::Unavailable { node: OTHER }));
    assert!(rig.read() == before);
}

/// Goal: who does not order the column, or is replaced while the bytes come, writes nothing; nor
/// does a copy whose gateway is gone by then, or one that makes no sense.
#[test]
fn what_may_not_be_written_is_not() {
    let mut rig = rig();
    let stale = |outcome: &Outcome| matches!(outcome, Err(NodeError::StaleTable { .. }));
    let elsewhere = rig.call(OTHER, copy(SOURCE, LENGTH));
    assert!(stale(&elsewhere), "{elsewhere:?}");
    for length in [0, OBJECT_IO_BYTES_MAX as u64 + 1] {
        let refused = rig.call(PRIMARY, copy(SOURCE, length));
        assert!(matches!(refused, Err(NodeError::Invalid(_))), "{refused:?}");
    }
    rig.is_cut = true;
    let gone = rig.begin(PRIMARY, copy(SOURCE, LENGTH));
    let cancel = NodeInput::Cancel {
        from: Port::Router,
        id: gone,
    };
    rig.give(PRIMARY, cancel);
    rig.is_cut = false;
    rig.settle();
    let told = rig.replies.remove(&gone);
    assert!(
        matches!(told, Some(Err(NodeError::Busy { .. }))),
        "{told:?}"
    );
    assert!(rig.read() == Ok(content()));
    rig.is_cut = true;
    let replaced = rig.begin(PRIMARY, copy(SOURCE, LENGTH));
    rig.table = table(2, &[OTHER, PRIMARY]);
    rig.give(PRIMARY, NodeInput::Table(Arc::clone(&rig.table)));
    rig.is_cut = false;
    rig.settle();
    let told = rig.replies.remove(&replaced).expect("an answer");
    assert!(stale(&told), "{told:?}");
    rig.give(OTHER, NodeInput::Table(Arc::clone(&rig.table)));
    assert!(rig.read() == Ok(content()));
}

/// Goal: a copy is answered when all members have it, or all that are left.
#[test]
fn members_that_leave_are_not_waited_for() {
    let mut rig = rig();
    rig.is_cut = true;
    let copied = rig.begin(PRIMARY, copy(OBJECT, LENGTH));
    rig.settle();
    assert!(!rig.replies.contains_key(&copied), "the other has it not");
    rig.table = table(2, &[PRIMARY]);
    rig.give(PRIMARY, NodeInput::Table(Arc::clone(&rig.table)));
    rig.settle();
    let outcome = rig.replies.remove(&copied).expect("an answer");
    assert!(is_written(&outcome), "{outcome:?}");
    let mut expected = content();
    expected[range(TO, LENGTH)].copy_from_slice(&content()[range(FROM, LENGTH)]);
    assert!(rig.read() == Ok(expected));
}

/// Goal: what is on its way for copies is bounded; beyond that the node is busy, until some of it
/// has come.
#[test]
fn bytes_on_their_way_are_bounded() {
    let mut rig = rig();
    rig.is_cut = true;
    let most = NODE_COPY_BYTES_MAX / OBJECT_IO_BYTES_MAX as u64;
    let whole = || copy_at((SOURCE, 0), 0, OBJECT_IO_BYTES_MAX as u64);
    let begun: Vec<CallId> = (0..most).map(|_| rig.begin(PRIMARY, whole())).collect();
    let refused = rig.begin(PRIMARY, copy(SOURCE, 1));
    let told = rig.replies.remove(&refused);
    assert!(
        matches!(told, Some(Err(NodeError::Busy { .. }))),
        "{told:?}"
    );
    rig.is_cut = false;
    rig.settle();
    for call in begun {
        let outcome = rig.replies.remove(&call).expect("an answer");
        assert!(is_written(&outcome), "{outcome:?}");
    }
    assert!(is_written(&rig.call(PRIMARY, copy(SOURCE, 1))));
    assert_eq!(source_content().len(), BLOCKS * BLOCK_BYTES);
}
