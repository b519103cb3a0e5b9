//! Clients that go away while nodes of other processes read for them: what waits for
//! disks is withdrawn there.

use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_types::{Payload, Time};

use super::network::Place;
use super::stage::{CUT, SHAPE, Stage, WELL};

/// Of a call.
const PIECE: usize = 64 << 10;

/// Of the file: more than the caches of all nodes.
const PIECES: usize = 96;

fn write_file(stage: &mut Stage, name: &[u8]) -> HandleBuffer {
    let file = stage.create(name);
    for piece in 0..PIECES {
        let data = Payload::from(Bytes::from(vec![7; PIECE]));
        let written = stage.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: (piece * PIECE) as u64,
            count_bytes: u32::try_from(PIECE).expect("few"),
            stable: StableHow::FileSync,
            data,
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }
    file
}

fn read_piece(file: &HandleBuffer, piece: usize) -> Call<'_> {
    read_part(file, piece * PIECE, PIECE)
}

fn read_part(file: &HandleBuffer, offset: usize, bytes: usize) -> Call<'_> {
    Call::Read(call::Read {
        file: file.as_handle(),
        offset: offset as u64,
        count_bytes: u32::try_from(bytes).expect("few"),
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
        // Far from each other, so that nothing is fetched ahead; and short ones, so that
        // there are many.
        for number in 4..4 * PIECES {
            let part = 4 + number * 149 % (4 * (PIECES - 1));
            stage.begin(CUT, &read_part(&file, part * PIECE / 4, PIECE / 4));
        }
        while stage.world.reads_issued.len() < before + 12 {
            stage.step(Duration::from_secs(1));
        }
        if goes {
            stage.leave(CUT);
        }
        stage.pass(Duration::from_secs(3));
        let world = &stage.world;
        let issued = &world.reads_issued[before..];
        let withdrawn: u64 = world.withdrawn.iter().map(|(.., requests)| requests).sum();
        let read = issued.len();
        assert_eq!(withdrawn > 0, goes, "{withdrawn} withdrawn, {read} read");
        if !goes {
            continue;
        }
        // The disks need 4 ms for all of it, so 10 ms would tell nothing.
        for (last, place, _) in &world.withdrawn {
            assert!(*last > begun);
            let is_later = |(of, at, _): &&(Time, Place, u64)| at == place && of > last;
            if world.withdrawn.iter().any(|other| is_later(&other)) {
                continue;
            }
            let is_late = |(time, at): &&(Time, Place)| at == place && time > last;
            assert_eq!(issued.iter().filter(is_late).count(), 0, "read for nobody");
        }
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
