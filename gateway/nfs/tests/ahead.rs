//! READs that go on are streams of the delivery engine, where it has a say.

mod support;

use std::time::Duration;

use crossdock_delivery::{Advice, Guest, Switches, TcpSample};
use crossdock_names::FileRef;
use crossdock_nfs::{ConnId, DoorConfig, NfsEffect, NfsInput};
use crossdock_nfs3::{Call as NfsCall, call};
use crossdock_peer::{FileKind, SiteAnswer, WeakCache};
use crossdock_types::{Payload, Time};
use support::*;

const BYTES: u32 = 64 << 10;
const SIZE: u64 = 1 << 30;

fn read(xid: u32, offset: u64) -> bytes::Bytes {
    nfs(
        xid,
        &NfsCall::Read(call::Read {
            file: handle(FILE).as_handle(),
            offset,
            count_bytes: BYTES,
        }),
    )
}

fn subject(file: FileRef) -> WeakCache {
    let mut subject = cache(file, FileKind::Regular);
    if let Some(after) = &mut subject.after {
        after.size_bytes = SIZE;
    }
    subject
}

/// Reads so many pieces; what the door wants beside the reads themselves.
fn read_on(bench: &mut Bench, pieces: u32) -> Vec<NfsEffect> {
    let mut others = Vec::new();
    for piece in 0..pieces {
        bench.receive(read(piece, u64::from(piece) * u64::from(BYTES)));
        let mut call = None;
        for effect in bench.effects.drain(..) {
            match effect {
                NfsEffect::Router(asked) => call = Some(asked),
                other => others.push(other),
            }
        }
        let answer = SiteAnswer::Read {
            payload: Payload::from(bytes::Bytes::from(vec![0; BYTES as usize])),
            end_of_file: false,
        };
        let id = call.expect("the read is asked for").id;
        bench.answer(id, Ok(answer), subject(FILE));
        bench.input(NfsInput::Sent(CONN, 1 << 20));
        others.append(&mut bench.effects);
    }
    others
}

/// Goal: without TDAP the door wants what it wanted before there was an engine: reads.
#[test]
fn without_tdap_nodes_decide() {
    let delivery = Switches {
        tdap: false,
        ..Switches::default()
    };
    let mut bench = Bench::new(DoorConfig {
        delivery,
        ..config()
    });
    let others = read_on(&mut bench, 20);
    assert!(others.is_empty(), "{others:?}");
    bench.input(NfsInput::Closed(CONN));
    assert!(bench.effects.is_empty(), "{:?}", bench.effects);
}

/// Goal: the second READ makes it a stream, of what is left of the file; what the engine
/// decides goes to the router, and the end of the connection to both.
#[test]
fn who_reads_on_is_a_stream_of_the_engine() {
    let mut bench = Bench::new(config());
    let others = read_on(&mut bench, 3);
    let piece = u64::from(BYTES);
    let [
        NfsEffect::Deliver(Guest::Open {
            stream,
            total_bytes,
            unit_bytes: 65_536,
            place_bytes: 131_072,
        }),
        NfsEffect::Sample(CONN),
        NfsEffect::Sample(CONN),
        NfsEffect::Deliver(Guest::Asked {
            stream: asked,
            bytes,
        }),
        NfsEffect::Deliver(Guest::Answered {
            stream: answered,
            bytes: came,
        }),
    ] = others[..]
    else {
        panic!("{others:?}")
    };
    assert!(Guest::owns(stream) && asked == stream && answered == stream);
    assert_eq!((total_bytes, bytes, came), (SIZE - 2 * piece, piece, piece));
    let sample = TcpSample {
        acked_bytes: 1 << 20,
        unsent_bytes: 0,
        rtt: Duration::from_millis(3),
        ..TcpSample::default()
    };
    bench.input(NfsInput::Sampled(CONN, sample));
    let effects = std::mem::take(&mut bench.effects);
    let [NfsEffect::Deliver(Guest::Sample { sample, .. })] = effects[..] else {
        panic!("{effects:?}")
    };
    // The second and the third answer, with their heads, have arrived.
    assert!(
        (2 * piece..2 * piece + 1024).contains(&sample.acked_bytes),
        "{sample:?}"
    );
    assert_eq!(
        (sample.unsent_bytes, sample.rtt),
        (0, Duration::from_millis(3))
    );
    let remaining_bytes = SIZE - 7 * piece;
    bench.input(NfsInput::Advice(Advice::Request {
        stream,
        remaining_bytes,
    }));
    bench.input(NfsInput::Closed(CONN));
    let effects = std::mem::take(&mut bench.effects);
    let [
        NfsEffect::Ahead(wanted),
        NfsEffect::Deliver(Guest::Lost { stream: lost }),
        NfsEffect::Ahead(unwanted),
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*lost, stream);
    let range = |ahead: &crossdock_router::ReadAhead| (ahead.offset_bytes, ahead.end_bytes);
    assert_eq!(
        (range(wanted), wanted.is_wanted),
        ((3 * piece, 7 * piece), true)
    );
    assert_eq!(
        (range(unwanted), unwanted.is_wanted),
        ((3 * piece, 7 * piece), false)
    );
    assert_eq!((wanted.file, unwanted.file), (FILE, FILE));
    // A late word of the engine is nobody's.
    for advice in [
        Advice::Look { stream },
        Advice::Request {
            stream,
            remaining_bytes: 0,
        },
    ] {
        bench.input(NfsInput::Advice(advice));
    }
    assert!(bench.effects.is_empty());
}

/// Goal: a client that stops reading is forgotten, and wakes the door for nothing more.
#[test]
fn who_stops_reading_is_forgotten() {
    let mut bench = Bench::new(config());
    read_on(&mut bench, 3);
    let until = NOW + Duration::from_secs(60);
    let effects = bench.wait(until);
    let left = |effect: &NfsEffect| matches!(effect, NfsEffect::Deliver(Guest::Leave { .. }));
    assert_eq!(
        effects.iter().filter(|effect| left(effect)).count(),
        1,
        "{effects:?}"
    );
    let next = bench.door.poll_timeout().unwrap_or(Time(u64::MAX));
    assert!(next > until, "{next:?}");
    bench.input(NfsInput::Sampled(ConnId(77), TcpSample::default()));
    assert!(bench.effects.is_empty());
}
