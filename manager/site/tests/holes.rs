//! Holes, as far as they are the site's: an open for one makes nothing, and bytes below the
//! threshold become zeros.

mod rig;

use std::collections::BTreeSet;

use crossdock_names::FileRef;
use crossdock_peer::{OpenFor, SiteAnswer, SiteError, SiteOperation, Stability};

use rig::{Rig, many_checkpoints};

fn zero(file: FileRef, offset_bytes: u64, length_bytes: u64) -> SiteOperation {
    SiteOperation::Zero {
        file,
        offset_bytes,
        length_bytes,
    }
}

fn opened_for_a_hole(rig: &mut Rig, file: FileRef) -> u16 {
    let open = SiteOperation::Open {
        file,
        purpose: OpenFor::Free {
            offset_bytes: 1 << 20,
            end_bytes: 1 << 30,
        },
        holder: None,
    };
    match rig.ask(open).outcome {
        Ok(SiteAnswer::Opened { layout, .. }) => layout.columns,
        other => panic!("{other:?}"),
    }
}

/// Goal: who opens a file for a hole makes no columns of it, and is told those that there are.
#[test]
fn an_open_for_a_hole_makes_nothing() {
    let mut rig = Rig::new(many_checkpoints());
    let file = rig.create("a");
    assert_eq!(opened_for_a_hole(&mut rig, file), 0);
    assert!(rig.columns().is_empty());
    let write = SiteOperation::Open {
        file,
        purpose: OpenFor::Write {
            offset_bytes: 1 << 20,
            end_bytes: 2 << 20,
        },
        holder: None,
    };
    assert!(rig.ask(write).outcome.is_ok());
    let made = rig.columns();
    let different: BTreeSet<_> = made.iter().collect();
    assert!(!made.is_empty());
    assert_eq!(
        usize::from(opened_for_a_hole(&mut rig, file)),
        different.len()
    );
    assert_eq!(rig.columns(), made);
}

/// Goal: bytes below the threshold become zeros up to the file's end, for good.
#[test]
fn small_bytes_become_zeros_and_the_file_does_not_grow() {
    let mut rig = Rig::new(many_checkpoints());
    let file = rig.create("a");
    rig.write(file, 0, &[7; 30_000], Stability::Stable);
    rig.write(file, 10_000, &[8; 100], Stability::Unstable);
    for (offset, length) in [(5000, 6000), (29_000, 9000), (40_000, 1)] {
        let answer = rig.ask(zero(file, offset, length)).outcome;
        assert!(
            matches!(answer, Ok(SiteAnswer::Written { .. })),
            "{answer:?}"
        );
    }
    let mut expected = vec![7; 30_000];
    expected[5000..11_000].fill(0);
    expected[29_000..].fill(0);
    assert_eq!(rig.read(file), expected);
    rig.restart();
    assert_eq!(rig.read(file), expected);
    let beyond = rig.ask(zero(file, 60_000, 10_000)).outcome;
    assert_eq!(beyond, Err(SiteError::Invalid), "that is a router's");
}
