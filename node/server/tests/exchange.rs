//! COMPARE AND WRITE at the primary of a set: nothing comes between comparing and writing, and
//! what is sent again is not done again.

mod rig;

use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::SetId;
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, Order, Stability};
use crossdock_server::NodeInput;
use crossdock_types::{BLOCK_BYTES, Payload};

use rig::{
    BLOCKS, OBJECT, OTHER, Outcome, PRIMARY, Rig, all_reads_fail, content, numbered, routed_at,
    table,
};

/// Within one block, over the end of the one before.
const AT: usize = 3 * BLOCK_BYTES - 100;
const LENGTH: usize = 512;

fn exchange(number: u64, expected: &[u8], new: &[u8]) -> NodeRequest {
    exchange_at(AT, number, expected, new)
}

fn exchange_at(at: usize, number: u64, expected: &[u8], new: &[u8]) -> NodeRequest {
    let mut payload = Payload::from(Bytes::copy_from_slice(expected));
    payload.append(Bytes::copy_from_slice(new).into());
    NodeRequest::Exchange {
        object: OBJECT,
        offset_bytes: at as u64,
        payload,
        context: numbered(number),
    }
}

fn write(fill: u8) -> NodeRequest {
    NodeRequest::Write {
        object: OBJECT,
        offset_bytes: AT as u64,
        payload: Payload::from(Bytes::from(vec![fill; LENGTH])),
        stability: Stability::Stable,
        context: routed_at(1),
        order: Order::Primary,
    }
}

fn old() -> Vec<u8> {
    content()[AT..AT + LENGTH].to_vec()
}

fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(NodeAnswer::Written { .. }))
}

fn there(rig: &mut Rig) -> Vec<u8> {
    rig.read().expect("bytes")[AT..AT + LENGTH].to_vec()
}

/// Goal: equal bytes are exchanged at all members, in one version; others are left, and it is
/// said where they differ, which is the primary's word alone.
#[test]
fn equal_bytes_are_exchanged_everywhere() {
    let mut rig = Rig::new();
    let done = rig.call(PRIMARY, exchange(1, &old(), &[7; LENGTH]));
    assert!(is_written(&done), "{done:?}");
    assert_eq!(rig.shown, None, "all members have it");
    let mut expected = [7; LENGTH];
    expected[300] = 8;
    let differs = rig.call(PRIMARY, exchange(2, &expected, &[9; LENGTH]));
    assert_eq!(differs, Ok(NodeAnswer::Differs { at_bytes: 300 }));
    assert_eq!(rig.shown, Some(SetId(0)));
    let refused = rig.call(OTHER, exchange(3, &[7; LENGTH], &[9; LENGTH]));
    assert!(matches!(refused, Err(NodeError::StaleTable { .. })));
    assert_eq!(there(&mut rig), [7; LENGTH]);
    rig.table = table(2, &[OTHER]);
    for id in [PRIMARY, OTHER] {
        let input = NodeInput::Table(Arc::clone(&rig.table));
        rig.give(id, input);
    }
    rig.settle();
    assert_eq!(there(&mut rig), [7; LENGTH]);
    let late = rig.call(OTHER, exchange(4, &[7; LENGTH], &[9; LENGTH]));
    assert!(
        matches!(late, Err(NodeError::StaleTable { .. })),
        "{late:?}"
    );
}

/// Goal: of many that expect the same bytes at the same moment one is done; a write that comes
/// behind an exchange is behind it, and one that came before is seen by it.
#[test]
fn nothing_comes_between_comparing_and_writing() {
    let mut rig = Rig::new();
    let before = rig.begin(PRIMARY, write(1));
    let rivals: Vec<CallId> = (1..=10)
        .map(|number| {
            let new = [10 + u8::try_from(number).expect("few"); LENGTH];
            rig.begin(PRIMARY, exchange(number, &[1; LENGTH], &new))
        })
        .collect();
    let behind = rig.begin(PRIMARY, write(2));
    let last = rig.begin(PRIMARY, exchange(11, &[2; LENGTH], &[3; LENGTH]));
    // One beside it waits for nobody.
    let beside = [content()[..LENGTH].to_vec(), vec![5; LENGTH]];
    let beside = rig.begin(PRIMARY, exchange_at(0, 12, &beside[0], &beside[1]));
    rig.settle();
    for call in [before, behind, last, beside] {
        let outcome = rig.replies.remove(&call).expect("an answer");
        assert!(is_written(&outcome), "{outcome:?}");
    }
    let outcomes = rivals.iter().map(|call| &rig.replies[call]);
    let outcomes: Vec<bool> = outcomes.map(is_written).collect();
    assert_eq!(outcomes.iter().filter(|is_written| **is_written).count(), 1);
    assert!(outcomes[0], "the first of them");
    assert_eq!(there(&mut rig), [3; LENGTH]);
}

/// Goal: whoever asks again gets the first answer, whatever was written since; what differed is
/// compared again; what is under way is answered to whoever asked last.
#[test]
fn what_is_sent_again_is_not_done_again() {
    let mut rig = Rig::new();
    let first = exchange(1, &old(), &[7; LENGTH]);
    let done = rig.call(PRIMARY, first.clone());
    assert!(is_written(&done));
    assert!(rig.write(AT as u64, old()).is_ok());
    assert_eq!(rig.call(PRIMARY, first), done);
    assert_eq!(there(&mut rig), old());
    let second = exchange(2, &[7; LENGTH], &[8; LENGTH]);
    let differs = rig.call(PRIMARY, second.clone());
    assert!(matches!(differs, Ok(NodeAnswer::Differs { .. })));
    assert!(rig.write(AT as u64, vec![7; LENGTH]).is_ok());
    let done = rig.call(PRIMARY, second);
    assert!(is_written(&done), "{done:?}");
    let third = exchange(3, &[8; LENGTH], &[7; LENGTH]);
    let early = rig.begin(PRIMARY, third.clone());
    let late = rig.begin(PRIMARY, third);
    assert_eq!(rig.members[&PRIMARY].node.callers().count(), 1);
    rig.settle();
    assert!(is_written(&rig.replies[&late]));
    assert!(!rig.replies.contains_key(&early));
    assert_eq!(there(&mut rig), [7; LENGTH]);
}

/// Goal: bytes behind the object's end are zeros; a block that cannot be read is read from the
/// other member; what makes no sense is refused, and nothing hangs.
#[test]
fn ends_bad_blocks_and_nonsense() {
    let mut rig = Rig::new();
    let end = BLOCKS * BLOCK_BYTES;
    let mut expected = content()[end - 256..].to_vec();
    expected.extend([0; 256]);
    let done = rig.call(PRIMARY, exchange_at(end - 256, 1, &expected, &[4; LENGTH]));
    assert!(is_written(&done), "{done:?}");
    rig.data(PRIMARY).set_options(all_reads_fail());
    let done = rig.call(PRIMARY, exchange(2, &old(), &[7; LENGTH]));
    assert!(is_written(&done), "{done:?}");
    rig.data(OTHER).set_options(all_reads_fail());
    let at = 20 * BLOCK_BYTES;
    let bytes = content()[at..at + LENGTH].to_vec();
    let failed = rig.call(PRIMARY, exchange_at(at, 3, &bytes, &[7; LENGTH]));
    assert!(matches!(failed, Err(NodeError::Media { .. })), "{failed:?}");
    let long = [[1; 70_000], [2; 70_000]];
    for (expected, new) in [
        (&[][..], &[][..]),
        (&long[0][..], &long[1][..]),
        (&[1], &[]),
    ] {
        let refused = rig.call(PRIMARY, exchange(4, expected, new));
        assert!(matches!(refused, Err(NodeError::Invalid(_))), "{refused:?}");
    }
}

/// Goal: a primary that is replaced while it compares exchanges nothing.
#[test]
fn who_is_replaced_exchanges_nothing() {
    let mut rig = Rig::new();
    let under_way = rig.begin(PRIMARY, write(1));
    let call = rig.begin(PRIMARY, exchange(1, &[1; LENGTH], &[7; LENGTH]));
    rig.table = table(2, &[OTHER, PRIMARY]);
    for id in [OTHER, PRIMARY] {
        let input = NodeInput::Table(Arc::clone(&rig.table));
        rig.give(id, input);
    }
    rig.settle();
    let refused = rig.replies.get(&call).expect("an answer");
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
    assert!(!rig.replies.contains_key(&under_way), "nobody knows");
    rig.table = table(2, &[OTHER, PRIMARY]);
    assert_ne!(there(&mut rig), [7; LENGTH]);
}
