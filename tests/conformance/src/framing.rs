//! Records and their fragments on a TCP connection (RFC 5531 section 11).

use std::io::Write;
use std::net::TcpStream;

use anyhow::{Result, ensure};
use crossdock_nfs3::Call;
use crossdock_nfs3::call::StableHow;

use crate::client::{Client, decode_of, next_xid};
use crate::operations::{at, getattr, guarded, write};
use crate::runner::{Check, Stage, check};
use crate::wire::{Wire, fragments, framed, mark};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "calls in fragments of 1, 3 and 5 bytes are carried out",
        tiny_fragments,
    ),
    check(
        "a WRITE of 1 MiB in 10,000 fragments is carried out",
        many_fragments,
    ),
    check(
        "some empty fragments in a record do no harm",
        empty_fragments,
    ),
    check(
        "empty fragments without end close the connection",
        endless_empty_fragments,
    ),
    check(
        "a length of 2^31-1 closes the connection, whatever follows",
        huge_length,
    ),
    check(
        "fragments that are too long together close the connection",
        huge_sum,
    ),
    check("a call that comes byte by byte is carried out", dribbled),
    check(
        "two and a half calls in one segment are three calls",
        joined_calls,
    ),
    check(
        "who sends no more still gets all replies, then the end",
        half_closed,
    ),
    check(
        "clients that go away inside of a record leave others alone",
        abandoned,
    ),
];

/// Sends `call` in fragments of `length` bytes.
fn call_in_fragments(client: &mut Client, call: &Call<'_>, length: usize) -> Result<()> {
    let xid = next_xid();
    let record = client.record(xid, call);
    ensure!(client.wire.send(&fragments(&record, length))?, "closed");
    let reply = decode_of(xid, call.procedure(), &client.wire.expect()?)?;
    ensure!(reply.status().is_none(), "{:?}", reply.status());
    Ok(())
}

fn tiny_fragments(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for length in [1, 3, 5] {
        let name = format!("file-{length}");
        let create = guarded(at(&stage.directory, &name), 0o644);
        call_in_fragments(&mut client, &create, length)?;
        let file = client.lookup(&stage.directory, &name)?;
        let data: Vec<u8> = (0..=255).cycle().take(1001).collect();
        let call = write(&file, 0, &data, StableHow::FileSync);
        call_in_fragments(&mut client, &call, length)?;
        let read = client.read(&file, 0, 2000)?;
        ensure!(read.data.to_bytes()[..] == data[..], "other bytes");
    }
    Ok(())
}

fn many_fragments(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let data: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    let call = write(&file, 0, &data, StableHow::Unstable);
    call_in_fragments(&mut client, &call, 105)?;
    let read = client.read(&file, 0, 1 << 20)?;
    ensure!(read.data.to_bytes()[..] == data[..], "other bytes");
    Ok(())
}

fn empty_fragments(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let call = getattr(&stage.directory);
    for _ in 0..3 {
        let xid = next_xid();
        let record = client.record(xid, &call);
        let (front, back) = record.split_at(10);
        let mut bytes = Vec::new();
        for piece in [&[][..], front, &[], &[], back] {
            bytes.extend(mark(piece.len(), false));
            bytes.extend(piece);
        }
        bytes.extend(mark(0, true));
        ensure!(client.wire.send(&bytes)?, "closed");
        decode_of(xid, call.procedure(), &client.wire.expect()?)?;
    }
    Ok(())
}

fn endless_empty_fragments(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    // A closed connection takes some more before it says so.
    let _ = wire.send(&[0; 4096])?;
    wire.expect_end()
}

fn huge_length(stage: &Stage<'_>) -> Result<()> {
    for length in [(1 << 31) - 1, 1 << 24, (1 << 20) + 5000] {
        let mut wire = Wire::connect(stage.address)?;
        let _ = wire.send(&mark(length, true))?;
        wire.expect_end()?;
    }
    stage.client()?.getattr(&stage.root)?;
    Ok(())
}

fn huge_sum(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let piece = vec![0; 300_000];
    for _ in 0..5 {
        let mut bytes = mark(piece.len(), false).to_vec();
        bytes.extend(&piece);
        if !wire.send(&bytes)? {
            break;
        }
    }
    wire.expect_end()
}

fn dribbled(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let mut other = stage.client()?;
    let xid = next_xid();
    let call = guarded(at(&stage.directory, "dribbled"), 0o644);
    let bytes = framed(&client.record(xid, &call));
    for (number, byte) in bytes.iter().enumerate() {
        ensure!(client.wire.send(&[*byte])?, "closed");
        // A round trip of another client's: the byte has been received alone.
        if number % 4 == 1 {
            other.getattr(&stage.root)?;
        }
    }
    let reply = decode_of(xid, call.procedure(), &client.wire.expect()?)?;
    ensure!(reply.status().is_none(), "{reply:?}");
    Ok(())
}

fn joined_calls(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let xids = [next_xid(), next_xid(), next_xid()];
    let call = getattr(&stage.directory);
    let mut bytes = Vec::new();
    for xid in xids {
        bytes.extend(framed(&client.record(xid, &call)));
    }
    let (front, back) = bytes.split_at(bytes.len() * 5 / 6);
    ensure!(client.wire.send(front)?, "closed");
    for xid in &xids[..2] {
        decode_of(*xid, call.procedure(), &client.wire.expect()?)?;
    }
    ensure!(client.wire.send(back)?, "closed");
    decode_of(xids[2], call.procedure(), &client.wire.expect()?)?;
    Ok(())
}

fn half_closed(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for number in 0..20 {
        let name = format!("file-{number}");
        client.send(&guarded(at(&stage.directory, &name), 0o644))?;
    }
    client.wire.finish_sending()?;
    for _ in 0..20 {
        let (_, reply) = client.receive(crossdock_nfs3::Procedure::Create)?;
        ensure!(reply.status().is_none(), "{:?}", reply.status());
    }
    client.wire.expect_end()
}

fn abandoned(stage: &Stage<'_>) -> Result<()> {
    let mut other = stage.client()?;
    for length in [1, 3, 4, 5, 40, 1000] {
        let mut bytes = mark(1 << 20, true).to_vec();
        bytes.resize(length, 0);
        for _ in 0..10 {
            let mut stream = TcpStream::connect(stage.address)?;
            stream.write_all(&bytes[..length])?;
        }
        other.getattr(&stage.root)?;
    }
    Ok(())
}
