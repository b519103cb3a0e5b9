//! Holes: what is given back, what is told of it, and what a pin keeps of it.

mod rig;

use crossdock_limits::MAPPED_BYTES_MAX;
use crossdock_names::Version;
use crossdock_peer::{
    MappedRanges, NodeAnswer, NodeError, NodeRequest, Order, ReadVersion, WriteContext,
};
use crossdock_sim::random::Random;
use rig::*;

fn mapped(rig: &mut Rig, offset_bytes: u64, length_bytes: u64) -> MappedRanges {
    let request = NodeRequest::Mapped {
        object: object(1),
        offset_bytes,
        length_bytes,
        truncate_generation: 0,
    };
    match rig.call(request) {
        Ok(NodeAnswer::Mapped(mapped)) => mapped,
        other => panic!("{other:?}"),
    }
}

/// Goal: what has space is told block by block – in memory, in the journal, on the disk –
/// and what was made a hole is none of it, also after a crash.
#[test]
fn holes_are_told_as_holes() {
    let mut rig = Rig::new();
    let id = object(1);
    assert!(rig.call(create(id, 1)).is_ok());
    let whole = 1 << 20;
    assert_eq!(mapped(&mut rig, 0, whole).runs, []);
    assert!(rig.call(write(id, 8192, vec![1; 400_000], true, 2)).is_ok());
    assert!(rig.call(write(id, 600_000, vec![2; 100], true, 3)).is_ok());
    assert!(
        rig.call(write(id, 800_000, vec![3; 5000], false, 4))
            .is_ok()
    );
    let unstable = 798_720..806_912;
    let mut all = vec![8192..409_600, 598_016..602_112, unstable];
    assert_eq!(mapped(&mut rig, 0, whole).runs, all);
    assert_eq!(mapped(&mut rig, 8193, 10).runs.first(), Some(&(8193..8203)));
    // Edges are zeros in blocks that stay.
    assert!(rig.call(zero(id, 100_000, 100_000, 5)).is_ok());
    all.splice(0..1, [8192..102_400, 196_608..409_600]);
    assert_eq!(mapped(&mut rig, 0, whole).runs, all);
    assert_eq!(rig.read(id, 99_999, 3), Ok(vec![1, 0, 0]));
    rig.settle();
    assert_eq!(mapped(&mut rig, 0, whole).runs, all);
    let mut rig = rig.crash(&mut Random::new(9));
    let found = mapped(&mut rig, 0, whole);
    assert_eq!(found.runs[..3], all[..3]);
    assert_eq!(found.end_bytes, whole);
    assert_eq!(rig.read(id, 102_400, 94_208), Ok(vec![0; 94_208]));
}

/// Goal: what was asked by an old layout, or is too long, is refused.
#[test]
fn questions_about_space_are_bounded() {
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    let ask = |rig: &mut Rig, length_bytes, truncate_generation| {
        rig.call(NodeRequest::Mapped {
            object: object(1),
            offset_bytes: 4096,
            length_bytes,
            truncate_generation,
        })
    };
    assert!(ask(&mut rig, MAPPED_BYTES_MAX, 7).is_ok());
    for length in [0, MAPPED_BYTES_MAX + 1, u64::MAX] {
        assert!(matches!(
            ask(&mut rig, length, 7),
            Err(NodeError::Invalid(_))
        ));
    }
    let cut = NodeRequest::Truncate {
        object: object(1),
        size_bytes: 0,
        context: WriteContext {
            truncate_generation: 8,
            ..context()
        },
        order: Order::Given(Version(2)),
    };
    assert!(rig.call(cut).is_ok());
    let current = 8;
    assert_eq!(
        ask(&mut rig, 4096, 7),
        Err(NodeError::StaleGeneration { current })
    );
}

/// Goal: what a pin holds of a hole is read until the pin is given back, however full the disk
/// gets; then the space is free.
#[test]
fn a_hole_leaves_what_a_pin_holds() {
    let mut rig = Rig::new();
    let id = object(1);
    assert!(rig.call(create(id, 1)).is_ok());
    let free = |rig: &mut Rig| {
        rig.settle();
        rig.store.status().free_bytes
    };
    let empty = free(&mut rig);
    assert!(rig.call(write(id, 0, vec![1; 1 << 20], true, 2)).is_ok());
    let full = free(&mut rig);
    assert!(full + (1 << 20) <= empty, "{full} of {empty}");
    let pin = NodeRequest::Pin {
        object: id,
        offset_bytes: 0,
        length_bytes: 512 << 10,
        version: None,
        lease_ms: 60_000,
    };
    let Ok(NodeAnswer::Pinned { pin, .. }) = rig.call(pin) else {
        panic!("no pin");
    };
    assert!(rig.call(zero(id, 0, 1 << 20, 3)).is_ok());
    assert_eq!(rig.read(id, 0, 1 << 20), Ok(vec![0; 1 << 20]));
    assert_eq!(free(&mut rig), full, "what a pin holds is not free");
    // New data goes elsewhere, up to the last free place.
    let other = object(2);
    assert!(rig.call(create(other, 4)).is_ok());
    let mut at = 0;
    while free(&mut rig) > 4 << 20 {
        let bytes = vec![9; 256 << 10];
        assert!(rig.call(write(other, at, bytes, true, 5)).is_ok());
        at += 256 << 10;
    }
    let read = NodeRequest::Read {
        object: id,
        offset_bytes: 4096,
        length_bytes: 100_000,
        version: ReadVersion::Pinned(pin),
        patience_ms: 0,
    };
    match rig.call(read) {
        Ok(NodeAnswer::Read { payload: bytes, .. }) => assert_eq!(bytes, payload(vec![1; 100_000])),
        other => panic!("{other:?}"),
    }
    assert!(rig.call(NodeRequest::Unpin { pin }).is_ok());
    let left = free(&mut rig);
    assert!(left > 4 << 20, "{left}");
    assert!(rig.call(zero(other, 0, at, 6)).is_ok());
    rig.wait(100);
    assert_eq!(free(&mut rig), empty);
}
