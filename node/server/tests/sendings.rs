//! Changes that routers send again are carried out once, whichever member has the set by then
//! (docs/decisions/0049).

mod rig;

use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{Epoch, Incarnation, NodeId};
use crossdock_peer::{
    CopySource, NodeAnswer, NodeError, NodeRequest, Order, ReadVersion, Stability, WriteContext,
};
use crossdock_server::NodeInput;
use crossdock_types::{BLOCK_BYTES, Payload};

use rig::{OBJECT, OTHER, Outcome, PRIMARY, Rig, content, numbered, table};

const LENGTH: usize = BLOCK_BYTES;

fn write(fill: u8, context: WriteContext) -> NodeRequest {
    NodeRequest::Write {
        object: OBJECT,
        offset_bytes: 0,
        payload: Payload::from(Bytes::from(vec![fill; LENGTH])),
        stability: Stability::Stable,
        context,
        order: Order::Primary,
    }
}

fn unstable(fill: u8, context: WriteContext) -> NodeRequest {
    let mut request = write(fill, context);
    if let NodeRequest::Write { stability, .. } = &mut request {
        *stability = Stability::Unstable;
    }
    request
}

/// The same change, routed by a newer table.
fn again(context: WriteContext, table_epoch: u64) -> WriteContext {
    let mut again = context;
    again.table_epoch = Epoch(table_epoch);
    again.sending.in_doubt_since = Some(context.table_epoch);
    again
}

/// First sent by that table.
fn first_by(epoch: u64, number: u64) -> WriteContext {
    WriteContext {
        table_epoch: Epoch(epoch),
        ..numbered(number)
    }
}

fn version_of(outcome: &Outcome) -> u64 {
    match outcome {
        Ok(NodeAnswer::Written { version, .. } | NodeAnswer::Done { version }) => version.0,
        other => panic!("{other:?}"),
    }
}

fn fill_of(rig: &mut Rig) -> u8 {
    rig.read().expect("bytes")[0]
}

/// All nodes take a table with these members, in order.
fn turn(rig: &mut Rig, epoch: u64, members: &[NodeId]) {
    rig.table = table(epoch, members);
    for id in [PRIMARY, OTHER] {
        let input = NodeInput::Table(Arc::clone(&rig.table));
        rig.give(id, input);
    }
    rig.settle();
}

/// Goal: writes, holes and copies that are sent again get the first answer, while they are under
/// way and later, and what others have written since stays. Without numbers all is done again.
#[test]
fn what_is_sent_again_is_answered_and_not_done() {
    let mut rig = Rig::new();
    let at = BLOCK_BYTES as u64;
    let length_bytes = LENGTH as u64;
    let hole = |context| NodeRequest::Zero {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes,
        context,
        order: Order::Primary,
    };
    let copy = |context| NodeRequest::Copy {
        object: OBJECT,
        offset_bytes: 0,
        source: Box::new(CopySource {
            object: OBJECT,
            offset_bytes: at,
            length_bytes,
            version: ReadVersion::Current,
            capability: None,
        }),
        stability: Stability::Stable,
        frees_zeros: false,
        context,
    };
    for (number, request) in [
        (1, write(5, numbered(1))),
        (2, hole(numbered(2))),
        (3, copy(numbered(3))),
    ] {
        let early = rig.begin(PRIMARY, request.clone());
        let late = rig.begin(PRIMARY, request.clone());
        rig.settle();
        assert!(!rig.replies.contains_key(&early), "{number}");
        let first = rig.replies.remove(&late).expect("an answer");
        assert!(
            rig.call(PRIMARY, write(9, first_by(1, 100 + number)))
                .is_ok()
        );
        let second = rig.call(PRIMARY, request);
        assert_eq!(version_of(&second), version_of(&first), "{number}");
        assert_eq!(fill_of(&mut rig), 9, "{number}");
    }
    let plain = write(5, first_by(1, 0));
    for _ in 0..2 {
        assert!(rig.call(PRIMARY, write(9, first_by(1, 200))).is_ok());
        assert!(rig.call(PRIMARY, plain.clone()).is_ok());
        assert_eq!(fill_of(&mut rig), 5);
    }
}

/// Goal: whoever takes over knows what was done, and answers it; what never reached it was not
/// done, and is. The bytes of the one are not written over others of its own.
#[test]
fn who_takes_over_knows_what_was_done() {
    let mut rig = Rig::new();
    turn(&mut rig, 2, &[PRIMARY, OTHER]);
    let (done, lost) = (first_by(2, 1), first_by(2, 2));
    let first = rig.call(PRIMARY, write(5, done));
    rig.is_cut = true;
    let never = rig.begin(PRIMARY, write(6, lost));
    rig.settle();
    assert!(!rig.replies.contains_key(&never));
    turn(&mut rig, 3, &[OTHER]);
    assert!(rig.call(OTHER, write(9, first_by(3, 3))).is_ok());
    let second = rig.call(OTHER, write(5, again(done, 3)));
    assert_eq!(version_of(&second), version_of(&first));
    assert_eq!(fill_of(&mut rig), 9);
    let carried_out = rig.call(OTHER, write(6, again(lost, 3)));
    assert!(version_of(&carried_out) > version_of(&first));
    assert_eq!(fill_of(&mut rig), 6);
    // What the old primary has sent comes yet: it is fenced, and changes nothing.
    rig.is_cut = false;
    rig.settle();
    rig.table = table(3, &[OTHER]);
    assert_eq!(fill_of(&mut rig), 6);
}

/// Goal: a member that was away, one that has joined since, and one that began by the same table,
/// do not know what was done: they say so, and carry out nothing of that number, whatever comes;
/// what is sent first since is done.
#[test]
fn who_was_away_says_that_it_does_not_know() {
    let mut rig = Rig::new();
    let unclear = Err(NodeError::Unclear);
    let before = again(numbered(1), 1);
    assert_eq!(rig.call(PRIMARY, write(5, before)), unclear);
    turn(&mut rig, 2, &[OTHER]);
    let change = first_by(2, 2);
    assert!(rig.call(OTHER, write(5, change)).is_ok());
    turn(&mut rig, 3, &[OTHER, PRIMARY]);
    turn(&mut rig, 4, &[PRIMARY]);
    for _ in 0..2 {
        assert_eq!(rig.call(PRIMARY, write(5, again(change, 4))), unclear);
    }
    let sent_since = again(first_by(4, 3), 4);
    assert!(rig.call(PRIMARY, write(7, sent_since)).is_ok());
    assert_eq!(fill_of(&mut rig), 7);
    // A table that was not seen may have been one without this node.
    turn(&mut rig, 6, &[PRIMARY, OTHER]);
    let change = first_by(4, 4);
    assert_eq!(rig.call(PRIMARY, write(5, again(change, 6))), unclear);
}

/// Goal: what the router has answers to is forgotten; a sending of that is not carried out.
#[test]
fn what_is_answered_is_forgotten() {
    let mut rig = Rig::new();
    assert!(rig.call(PRIMARY, write(5, numbered(1))).is_ok());
    let mut next = numbered(2);
    next.sending.answered_below = 2;
    let second = rig.call(PRIMARY, write(6, next));
    let late = rig.call(PRIMARY, write(5, numbered(1)));
    assert_eq!(late, Err(NodeError::Unclear));
    let known = rig.call(PRIMARY, write(6, next));
    assert_eq!(version_of(&known), version_of(&second));
    assert_eq!(fill_of(&mut rig), 6);
    // The other member has heard the same.
    turn(&mut rig, 2, &[OTHER]);
    let late = rig.call(OTHER, write(5, again(numbered(1), 2)));
    assert_eq!(late, Err(NodeError::Unclear));
}

/// Goal: bytes in memory are the old primary's word: who repeats it names that one's incarnation,
/// so that a COMMIT finds them lost; of durable ones the new one's.
#[test]
fn bytes_in_memory_are_of_the_incarnation_that_took_them() {
    let mut rig = Rig::new();
    assert!(rig.call(PRIMARY, unstable(5, numbered(1))).is_ok());
    assert!(rig.call(PRIMARY, write(6, numbered(2))).is_ok());
    turn(&mut rig, 2, &[OTHER]);
    let incarnation_of = |outcome: Outcome| match outcome {
        Ok(NodeAnswer::Written { incarnation, .. }) => incarnation,
        other => panic!("{other:?}"),
    };
    let repeated = rig.call(OTHER, unstable(5, again(numbered(1), 2)));
    assert_eq!(incarnation_of(repeated), Incarnation(1));
    let repeated = rig.call(OTHER, write(6, again(numbered(2), 2)));
    assert_eq!(incarnation_of(repeated), Incarnation(2));
    assert_eq!(fill_of(&mut rig), 6);
}

/// Goal: what was refused before anything was done may be sent anew, under its number.
#[test]
fn what_was_refused_is_done_when_it_is_sent_anew() {
    let mut rig = Rig::new();
    let refused = rig.call(OTHER, write(5, numbered(1)));
    assert!(matches!(refused, Err(NodeError::StaleTable { .. })));
    let mut late = write(5, numbered(2));
    if let NodeRequest::Write { context, .. } = &mut late {
        context.table_epoch = Epoch(0);
    }
    let refused = rig.call(PRIMARY, late);
    assert!(matches!(refused, Err(NodeError::StaleTable { .. })));
    for number in [1, 2] {
        assert!(
            rig.call(PRIMARY, write(number, numbered(number.into())))
                .is_ok()
        );
        assert_eq!(fill_of(&mut rig), number);
    }
    assert_ne!(content()[0], 2);
}
