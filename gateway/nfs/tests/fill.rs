//! Large WRITEs that arrive in part: received in place, counted, given up.

mod support;

use bytes::Bytes;
use crossdock_nfs::{NfsEffect, NfsInput};
use crossdock_nfs3::call::{Read, StableHow, Write};
use crossdock_nfs3::{Call, Status};
use crossdock_peer::SiteOperation;
use crossdock_types::{Fill, Filler, Payload, is_aligned};
use support::*;

const DATA_BYTES: usize = 300_000;

fn data() -> Bytes {
    (0..=250).cycle().take(DATA_BYTES).collect()
}

/// A WRITE at `offset`, as it lies on the stream.
fn write(offset: u64, xid: u32) -> Bytes {
    let handle = handle(FILE);
    let call = Call::Write(Write {
        file: handle.as_handle(),
        offset,
        count_bytes: u32::try_from(DATA_BYTES).expect("small"),
        stable: StableHow::Unstable,
        data: Payload::from(data()),
    });
    nfs(xid, &call)
}

fn begin_fill(bench: &mut Bench, beginning: Bytes) -> Fill {
    bench.receive(beginning);
    match bench.effects.pop() {
        Some(NfsEffect::Fill(CONN, fill)) => fill,
        other => panic!("no fill: {other:?}"),
    }
}

fn complete(fill: Fill, mut rest: Bytes) -> Bytes {
    let record = Filler::from(fill).take(&mut rest).expect("all of it");
    assert!(rest.is_empty());
    record
}

/// Goal: wherever the first receive ends, the blocks of the file are blocks in
/// memory, and the content is right.
#[test]
fn blocks_of_the_file_are_blocks_in_memory() {
    for offset in [0, 4096, 100, 65_537] {
        for cut in [200, 1000, 8192] {
            let mut bench = bench();
            let stream = write(offset, 1);
            let fill = begin_fill(&mut bench, stream.slice(..cut));
            assert_eq!(fill.missing_bytes, stream.len() - cut);
            let record = complete(fill, stream.slice(cut..));
            bench.input(NfsInput::Filled(CONN, record));
            let asked = bench.asked_one();
            let SiteOperation::Write { payload, .. } = &asked.request.operation else {
                panic!("no write");
            };
            assert_eq!(*payload, Payload::from(data()));
            let skipped = usize::try_from(offset.next_multiple_of(4096) - offset).expect("small");
            let blocks = payload.slice(skipped, skipped + 65_536);
            assert!(is_aligned(&blocks.pieces()[0]), "offset {offset}, {cut}");
        }
    }
}

/// Goal: what follows a filled record is read as always, and small or other
/// records are not filled.
#[test]
fn the_stream_goes_on_behind_a_filled_record() {
    let mut bench = bench();
    let stream = write(0, 1);
    let fill = begin_fill(&mut bench, stream.slice(..500));
    bench.input(NfsInput::Filled(CONN, complete(fill, stream.slice(500..))));
    assert_eq!(bench.asked().len(), 1);
    let handle = handle(FILE);
    let read = nfs(
        2,
        &Call::Read(Read {
            file: handle.as_handle(),
            offset: 0,
            count_bytes: 10,
        }),
    );
    bench.receive(read.slice(..20));
    bench.receive(read.slice(20..));
    assert_eq!(bench.asked().len(), 1);
    // Nearly all of it is here: the rest is gathered.
    let stream = write(0, 3);
    bench.receive(stream.slice(..stream.len() - 100));
    bench.receive(stream.slice(stream.len() - 100..));
    assert_eq!(bench.asked().len(), 1);
}

/// Goal: a record under way counts as held, until it is complete or the
/// connection is gone; a lie about the length of its data changes nothing.
#[test]
fn a_record_under_way_is_counted() {
    let mut bench = bench();
    let stream = write(0, 1);
    let fill = begin_fill(&mut bench, stream.slice(..500));
    assert_eq!(fill.whole_bytes(), stream.len() - 4);
    assert_eq!(bench.door.held_bytes(), stream.len() - 4);
    bench.input(NfsInput::Closed(CONN));
    assert_eq!(bench.door.held_bytes(), 0);

    let mut bench = support::bench();
    let mut lie = stream.to_vec();
    let length_at = lie.len() - DATA_BYTES - 4;
    lie[length_at..length_at + 4].copy_from_slice(&7u32.to_be_bytes());
    let lie = Bytes::from(lie);
    let fill = begin_fill(&mut bench, lie.slice(..500));
    bench.input(NfsInput::Filled(CONN, complete(fill, lie.slice(500..))));
    let (_, reply) = decode(crossdock_nfs3::Procedure::Write, &bench.reply());
    assert_eq!(reply.status(), Some(Status::Inval));
}
