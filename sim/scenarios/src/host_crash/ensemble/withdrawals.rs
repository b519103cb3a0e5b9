//! Clients that go away while nodes of other processes read for them: what waits for
//! disks is withdrawn there.

use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_types::Payload;

use super::stage::{CUT, SHAPE, Stage, WELL};

/// Of a call.
const PIECE: u32 = 64 << 10;

/// Of the file: more than the caches of all nodes.
const PIECES: usize = 96;

fn write_file(stage: &mut Stage, name: &[u8]) -> HandleBuffer {
    let file = stage.create(name);
    for piece in 0..PIECES {
        let data = Payload::from(Bytes::from(vec![7; PIECE as usize]));
        let written = stage.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: piece as u64 * u64::from(PIECE),
            count_bytes: PIECE,
            stable: StableHow::FileSync,
            data,
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }
    file
}

fn read_piece(file: &HandleBuffer, piece: usize) -> Call<'_> {
    Call::Read(call::Read {
        file: file.as_handle(),
        offset: piece as u64 * u64::from(PIECE),
        count_bytes: PIECE,
    })
}

/// Goal: the reads of a connection that is gone are withdrawn from the queues of other
/// processes' nodes, which tell it, and 10 ms later nothing is read for them any more;
/// without its end all of them would have been read.
#[test]
fn reads_of_the_gone_are_withdrawn_at_other_hosts() {
    for goes in [false, true] {
        let mut stage = Stage::new(SHAPE, None);
        let file = write_file(&mut stage, b"file");
        stage.pass(Duration::from_secs(5)); // What is written behind is.
        let read = stage.ask(CUT, &read_piece(&file, 1), Duration::from_secs(5));
        assert!(matches!(read, Some(Reply::Read(Ok(_)))), "{read:?}");
        stage.pass(Duration::from_secs(1));
        let before = stage.world.reads_issued.len();
        let begun = stage.world.now;
        // Far from each other, so that nothing is fetched ahead.
        for piece in (0..PIECES).map(|number| 1 + number * 37 % (PIECES - 1)) {
            stage.begin(CUT, &read_piece(&file, piece));
        }
        if goes {
            stage.leave(CUT);
        }
        stage.pass(Duration::from_secs(3));
        let world = &stage.world;
        let issued = &world.reads_issued[before..];
        let withdrawn: u64 = world.withdrawn.iter().map(|(.., requests)| requests).sum();
        assert_eq!(withdrawn > 0, goes, "{withdrawn} were withdrawn");
        if !goes {
            continue;
        }
        let (last, ..) = *world.withdrawn.last().expect("there was one");
        assert!(last > begun);
        let late = issued
            .iter()
            .filter(|(time, _)| *time > last + Duration::from_millis(10));
        assert_eq!(late.count(), 0, "read for nobody");
        assert!(
            withdrawn > issued.len() as u64 / 4,
            "{withdrawn} of {}",
            issued.len()
        );
    }
}

/// Goal: every gateway knows the disks of all nodes, which are of other processes, as
/// they are: the simulated ones are quicker than what is assumed at first.
#[test]
fn gateways_know_the_disks_of_nodes() {
    let mut stage = Stage::new(SHAPE, None);
    let file = write_file(&mut stage, b"file");
    for piece in (1..PIECES).rev() {
        let read = stage.ask(WELL, &read_piece(&file, piece), Duration::from_secs(5));
        assert!(matches!(read, Some(Reply::Read(Ok(_)))), "{read:?}");
    }
    stage.pass(Duration::from_secs(3));
    for gateway in [CUT, WELL] {
        let profiles = stage.world.disk_profiles(gateway);
        assert_eq!(profiles.len(), 3);
        let assumed = Duration::from_millis(8);
        let quick = profiles.iter().filter(|(_, it)| it.positioning < assumed);
        assert!(quick.count() > 0, "{profiles:?}");
    }
}
