//! Clients that read a file on over NFS, at some rate: what is ahead of them at nodes of
//! other processes is the delivery engine's business.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_types::Payload;

use super::Shape;
use super::stage::{CUT, LONG, SHAPE, Stage};

/// Of a call.
const PIECE: usize = 64 << 10;

/// Of the file: of several stripes.
const PIECES: usize = 640;

fn write_file(stage: &mut Stage) -> HandleBuffer {
    let file = stage.create(b"file");
    for piece in 0..PIECES {
        let written = stage.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: (piece * PIECE) as u64,
            count_bytes: u32::try_from(PIECE).expect("few"),
            stable: StableHow::FileSync,
            data: Payload::from(Bytes::from(vec![piece.to_le_bytes()[0]; PIECE])),
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }
    stage.pass(Duration::from_secs(5)); // What is written behind is.
    file
}

/// Reads the first pieces, one each `pause`.
fn read_on(stage: &mut Stage, file: &HandleBuffer, pieces: usize, pause: Duration) {
    for piece in 0..pieces {
        let begun = stage.world.now;
        let read = Call::Read(call::Read {
            file: file.as_handle(),
            offset: (piece * PIECE) as u64,
            count_bytes: u32::try_from(PIECE).expect("few"),
        });
        match stage.ask(CUT, &read, LONG) {
            Some(Reply::Read(Ok(read))) => {
                let is_right = |byte: &u8| *byte == piece.to_le_bytes()[0];
                assert!(read.data.to_bytes().iter().all(is_right), "{piece}");
            }
            other => panic!("{other:?}"),
        }
        let spent = stage.world.now.since(begun);
        stage.pass(pause.saturating_sub(spent));
    }
}

/// Goal: ahead of a client that reads on is what it takes in T_D, by the rate at which it
/// reads: of a slow one little, of a fast one more; nodes are told by the gateway; and a
/// connection that ends leaves nothing behind.
#[test]
fn what_is_ahead_of_a_client_follows_its_rate() {
    for has_maps in [false, true] {
        let slow = ahead_of(has_maps, 40, 500);
        let fast = ahead_of(has_maps, 600, 6);
        assert!(fast > 2 * slow, "{fast} {slow}");
    }
}

/// Bytes ahead of a client that reads so many pieces, one each `pause` milliseconds.
fn ahead_of(has_maps: bool, pieces: usize, pause: u64) -> u64 {
    let mut stage = Stage::new(Shape { has_maps, ..SHAPE }, None);
    let file = write_file(&mut stage);
    read_on(&mut stage, &file, pieces, Duration::from_millis(pause));
    let figures = stage.world.delivery(CUT);
    let rate = (PIECE * 1000) as f64 / pause as f64;
    assert!(
        (figures.rate_net as f64 - rate).abs() < rate / 2.0,
        "{figures:?}"
    );
    let target = figures.buffering_time.as_secs_f64() * figures.rate_net as f64;
    let least = crossdock_limits::DELIVERY_REQUEST_BYTES_MIN as f64;
    assert!(figures.memory_used as f64 <= target + least, "{figures:?}");
    let ahead = figures.memory_used;
    let told = std::mem::take(&mut stage.world.told_ahead);
    let nodes: BTreeSet<_> = told.iter().map(|(node, ..)| node).collect();
    assert!(nodes.len() > 1, "the file lies on several");
    let bytes: u64 = told.iter().map(|(_, bytes, _)| bytes).sum();
    // Of a file with a map a column's range has gaps: blocks of other columns.
    let is_once = bytes <= (PIECE * PIECES) as u64;
    assert!(is_once || has_maps, "something is told twice: {bytes}");
    assert!(told.iter().all(|(.., is_wanted)| *is_wanted));
    stage.leave(CUT);
    stage.pass(Duration::from_secs(1));
    let told = &stage.world.told_ahead;
    assert!(!told.is_empty() && told.iter().all(|(.., is_wanted)| !is_wanted));
    let figures = stage.world.delivery(CUT);
    assert_eq!((figures.streams, figures.memory_used), (0, 0));
    ahead
}
