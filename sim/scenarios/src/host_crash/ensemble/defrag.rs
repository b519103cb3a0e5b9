//! Orders to put together what lies apart: how far nodes are with one is known at managers while they
//! are at work.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use crossdock_host::{DefragProgress, PassStage};
use crossdock_members::Change;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_types::Payload;

use super::network::Place;
use super::stage::{SHAPE, Stage};

/// Of a write.
const PIECE: usize = 64 << 10;

/// Of each file.
const PIECES: usize = 96;

/// Until an order must have come to its end.
const PATIENCE: Duration = Duration::from_secs(600);

const MANAGERS: [Place; 2] = [3, 4];

/// Files that lie in pieces between each other's.
fn write_in_turns(stage: &mut Stage) -> HandleBuffer {
    let files = [&b"one"[..], b"two", b"three"].map(|name| stage.create(name));
    for piece in 0..PIECES {
        for file in &files {
            let written = stage.do_it(&Call::Write(call::Write {
                file: file.as_handle(),
                offset: (piece * PIECE) as u64,
                count_bytes: u32::try_from(PIECE).expect("few"),
                stable: StableHow::FileSync,
                data: Payload::from(Bytes::from(vec![7; PIECE])),
            }));
            assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
        }
    }
    stage.pass(Duration::from_secs(5)); // What is written behind is.
    files[0]
}

fn order(stage: &mut Stage, number: u64) {
    let change = Change::OrderDefrag {
        number,
        file: None,
        path: None,
    };
    stage.world.propose(stage.manager(), change);
}

/// A client is at work all the time, so that the nodes take theirs.
fn disturb(stage: &mut Stage, file: &HandleBuffer) {
    let written = stage.do_it(&Call::Write(call::Write {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 4096,
        stable: StableHow::FileSync,
        data: Payload::from(Bytes::from(vec![8; 4096])),
    }));
    assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    stage.pass(Duration::from_millis(20));
}

/// The sums are those of the nodes.
fn expect_sums(told: &DefragProgress) {
    let sum = |of: fn(&crossdock_host::NodePass) -> u64| told.nodes.iter().map(of).sum::<u64>();
    assert_eq!(told.found.blocks, sum(|pass| pass.found.blocks));
    assert_eq!(told.left.runs, sum(|pass| pass.left.runs));
    assert_eq!(told.moves.moved_blocks, sum(|pass| pass.moves.moved_blocks));
}

/// Goal: every manager counts what nodes have done while they are at work, and tells what each is at;
/// what it tells grows, and at the end is what the nodes have written down.
#[test]
fn managers_hear_of_nodes_at_work() {
    let mut stage = Stage::new(SHAPE, None);
    let file = write_in_turns(&mut stage);
    order(&mut stage, 1);
    let until = stage.world.now + PATIENCE;
    let mut heard = [(); 2].map(|()| BTreeSet::new());
    let mut moved_before = [0; 2];
    loop {
        disturb(&mut stage, &file);
        assert!(stage.world.now < until, "no end");
        let told = MANAGERS.map(|place| stage.world.defrag_told(place));
        for (at, told) in told.iter().enumerate() {
            expect_sums(told);
            assert!(told.moves.moved_blocks >= moved_before[at], "{told:?}");
            moved_before[at] = told.moves.moved_blocks;
            assert_eq!(told.nodes.len(), 3);
            for pass in &told.nodes {
                let has_moved = pass.moves.moved_blocks > 0;
                let has_looked = pass.left.objects > 0;
                heard[at].insert(match pass.stage {
                    PassStage::Moving if has_moved => "has moved",
                    PassStage::Looking if has_looked => "has looked",
                    PassStage::Done => "done",
                    _ => "something else",
                });
            }
        }
        if told.iter().all(|told| !told.running) {
            break;
        }
    }
    for (at, heard) in heard.iter().enumerate() {
        for what in ["has moved", "done"] {
            assert!(heard.contains(what), "manager {at}: {heard:?}");
        }
        let told = stage.world.defrag_told(MANAGERS[at]);
        let is_done = |pass: &crossdock_host::NodePass| pass.stage == PassStage::Done;
        assert!(told.nodes.iter().all(is_done), "{told:?}");
    }
}

/// Goal: a node that is gone is not counted, and not waited for; one that comes back begins anew. What
/// was told of an earlier order is not told of the next one.
#[test]
fn what_nodes_have_told_is_forgotten_with_them() {
    let mut stage = Stage::new(SHAPE, None);
    let file = write_in_turns(&mut stage);
    order(&mut stage, 1);
    let [manager, _] = MANAGERS;
    let has_moved = |told: &DefragProgress| {
        told.nodes
            .first()
            .is_some_and(|it| it.moves.moved_blocks > 0)
    };
    while !has_moved(&stage.world.defrag_told(manager)) {
        disturb(&mut stage, &file);
    }
    stage.world.kill(0, Duration::from_secs(12));
    stage.pass(Duration::from_secs(8));
    let told = stage.world.defrag_told(manager);
    let pass = &told.nodes[0];
    assert_eq!((pass.stage, pass.moves.moved_blocks), (PassStage::Away, 0));
    expect_sums(&told);
    let until = stage.world.now + PATIENCE;
    while stage.world.defrag_told(manager).nodes[0].stage != PassStage::Done {
        stage.pass(Duration::from_secs(1));
        assert!(stage.world.now < until, "no end");
    }
    assert!(stage.world.is_running(0));
    order(&mut stage, 2);
    let mut told = stage.world.defrag_told(manager);
    while told.nodes.iter().all(|pass| pass.stage == PassStage::Done) {
        stage.step(Duration::from_millis(1));
        told = stage.world.defrag_told(manager);
    }
    assert!(
        told.nodes.iter().all(|pass| pass.moves.moved_blocks == 0),
        "{told:?}"
    );
}
