//! Calls that are sent again: each is carried out once, and every sending gets
//! the same reply, to the byte.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Status};

use crate::client::{Client, decode_of, next_xid};
use crate::datagrams::Datagrams;
use crate::operations::{
    at, create, exclusive, fifo, getattr, guarded, link, mkdir, mode, rename, setattr, size,
    symlink, write,
};
use crate::runner::{Check, Stage, check, with_servers};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "sent again over the same, over new connections and over UDP, every reply is the first",
        over_new_connections,
    ),
    with_servers(
        "sent again after a stop and after kill -9, every reply is the first",
        after_restarts,
    ),
    check(
        "two sendings at the same moment are carried out once",
        at_the_same_moment,
    ),
    check(
        "sent and abandoned, then sent again: carried out once",
        abandoned,
    ),
    check("another call with the same xid is another call", same_xid),
    check(
        "another user's call with the same xid is another call",
        same_xid_of_another,
    ),
    check(
        "a WRITE sent again over a new connection is answered there, and undoes no later one",
        writes,
    ),
];

/// Every procedure that must not be done twice, each of which would fail or
/// change something if it were; and what it works on.
struct Once {
    directory: HandleBuffer,
    file: HandleBuffer,
    guarded: HandleBuffer,
    guard: crossdock_nfs3::Timestamp,
}

impl Once {
    fn prepare(client: &mut Client, directory: HandleBuffer) -> Result<Self> {
        let file = client.create(&directory, "file", 0o644)?;
        let guarded = client.create(&directory, "guarded", 0o644)?;
        client.write(&file, 0, &[7; 100], StableHow::FileSync)?;
        client.create(&directory, "to-remove", 0o644)?;
        client.mkdir(&directory, "to-rmdir", 0o755)?;
        client.create(&directory, "to-rename", 0o644)?;
        client.create(&directory, "to-cut", 0o644)?;
        let guard = client.getattr(&guarded)?.changed;
        Ok(Self {
            directory,
            file,
            guarded,
            guard,
        })
    }

    fn calls(&self) -> Vec<Call<'_>> {
        let directory = &self.directory;
        vec![
            Call::Setattr(call::Setattr {
                object: self.guarded.as_handle(),
                attributes: mode(0o600),
                guard: Some(self.guard),
            }),
            setattr(&self.file, size(50)),
            guarded(at(directory, "new"), 0o644),
            exclusive(at(directory, "exclusive"), *b"verifier"),
            create(
                at(directory, "to-cut"),
                call::CreateHow::Unchecked(size(10)),
            ),
            mkdir(at(directory, "sub"), 0o755),
            symlink(at(directory, "symlink"), b"target"),
            fifo(at(directory, "fifo")),
            Call::Remove(at(directory, "to-remove")),
            Call::Rmdir(at(directory, "to-rmdir")),
            rename(at(directory, "to-rename"), at(directory, "renamed")),
            link(&self.file, at(directory, "linked")),
        ]
    }

    /// Names and times after all calls were carried out once.
    fn state(
        &self,
        client: &mut Client,
    ) -> Result<(Vec<Vec<u8>>, Vec<crossdock_nfs3::Attributes>)> {
        let names = client.names(&self.directory)?;
        let objects = [self.directory, self.file, self.guarded];
        let attributes = objects.iter().map(|object| client.getattr(object));
        Ok((names, attributes.collect::<Result<_>>()?))
    }
}

/// Sends all calls once; their records and replies.
fn first_sending(client: &mut Client, once: &Once) -> Result<Vec<(Bytes, Bytes)>> {
    let mut sent = Vec::new();
    for call in once.calls() {
        let xid = next_xid();
        let record = client.record(xid, &call);
        let reply = client.wire.exchange(&record)?;
        let decoded = decode_of(xid, call.procedure(), &reply)?;
        ensure!(decoded.status().is_none(), "{decoded:?}");
        sent.push((record, reply));
    }
    Ok(sent)
}

fn ensure_same(number: usize, how: &str, reply: &Bytes, first: &Bytes) -> Result<()> {
    ensure!(
        reply == first,
        "call {number} {how}: {:02x?}, not {:02x?}",
        &reply[..],
        &first[..]
    );
    Ok(())
}

/// Every record again, each over a connection of its own.
fn again(address: SocketAddr, sent: &[(Bytes, Bytes)], how: &str) -> Result<()> {
    for (number, (record, first)) in sent.iter().enumerate() {
        let reply = Wire::connect(address)?.exchange(record)?;
        ensure_same(number, how, &reply, first)?;
    }
    Ok(())
}

fn over_new_connections(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let once = Once::prepare(&mut client, stage.directory)?;
    let sent = first_sending(&mut client, &once)?;
    let state = once.state(&mut client)?;
    again(stage.address, &sent, "over a new connection")?;
    for (number, (record, first)) in sent.iter().enumerate().rev() {
        let reply = client.wire.exchange(record)?;
        ensure_same(number, "over the same connection", &reply, first)?;
        let reply = Datagrams::connect(stage.address)?.exchange(record)?;
        ensure_same(number, "over UDP", &reply, first)?;
    }
    ensure!(
        once.state(&mut client)? == state,
        "something was done twice"
    );
    Ok(())
}

fn after_restarts(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("again", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let once = Once::prepare(&mut client, root)?;
    let sent = first_sending(&mut client, &once)?;
    let state = once.state(&mut client)?;
    for how in ["after kill -9", "after a stop", "after another kill -9"] {
        if how == "after a stop" {
            server.stop()?;
        } else {
            server.kill()?;
        }
        server = stage.own_server("again", &[])?;
        again(server.address(), &sent, how)?;
        let mut client = Client::connect(server.address())?;
        let now = once.state(&mut client)?;
        ensure!(now == state, "{how}: {now:?}, not {state:?}");
    }
    server.stop()?;
    stage.clear("again")
}

fn at_the_same_moment(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let once = Once::prepare(&mut client, stage.directory)?;
    let mut wires = [
        Wire::connect(stage.address)?,
        Wire::connect(stage.address)?,
        Wire::connect(stage.address)?,
    ];
    for (number, call) in once.calls().iter().enumerate() {
        let xid = next_xid();
        let record = client.record(xid, call);
        for wire in &mut wires {
            wire.send_record(&record)?;
        }
        let mut replies = Vec::new();
        for wire in &mut wires {
            replies.push(wire.expect()?);
        }
        let decoded = decode_of(xid, call.procedure(), &replies[0])?;
        ensure!(decoded.status().is_none(), "call {number}: {decoded:?}");
        for reply in &replies[1..] {
            ensure_same(number, "at the same moment", reply, &replies[0])?;
        }
    }
    Ok(())
}

fn abandoned(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let once = Once::prepare(&mut client, stage.directory)?;
    for (number, call) in once.calls().iter().enumerate() {
        let xid = next_xid();
        let record = client.record(xid, call);
        Wire::connect(stage.address)?.send_record(&record)?;
        let reply = Wire::connect(stage.address)?.exchange(&record)?;
        let decoded = decode_of(xid, call.procedure(), &reply)?;
        ensure!(decoded.status().is_none(), "call {number}: {decoded:?}");
    }
    Ok(())
}

fn same_xid(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let xid = next_xid();
    for name in ["first", "second", "third"] {
        let call = guarded(at(&stage.directory, name), 0o644);
        let record = client.record(xid, &call);
        let reply = decode_of(xid, call.procedure(), &client.wire.exchange(&record)?)?;
        ensure!(reply.status().is_none(), "{name}: {reply:?}");
        let call = Call::Remove(at(&stage.directory, name));
        let record = client.record(xid, &call);
        let reply = decode_of(xid, call.procedure(), &client.wire.exchange(&record)?)?;
        ensure!(reply.status().is_none(), "{name}: {reply:?}");
    }
    ensure!(client.names(&stage.directory)?.is_empty(), "not removed");
    Ok(())
}

fn same_xid_of_another(stage: &Stage<'_>) -> Result<()> {
    let xid = next_xid();
    let call = guarded(at(&stage.directory, "file"), 0o644);
    let mut statuses = Vec::new();
    for uid in [1000, 1001] {
        let mut client = stage.user(uid, uid, &[])?;
        let record = client.record(xid, &call);
        let reply = decode_of(xid, call.procedure(), &client.wire.exchange(&record)?)?;
        statuses.push(reply.status());
    }
    ensure!(statuses == [None, Some(Status::Exist)], "{statuses:?}");
    Ok(())
}

fn writes(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for (offset, length) in [(0, 100), (100_000, 5000), (60_000, 20_000)] {
        let xid = next_xid();
        let data = vec![1; length];
        let call = write(&file, offset, &data, StableHow::FileSync);
        let record = client.record(xid, &call);
        let mut other = Wire::connect(stage.address)?;
        client.wire.send_record(&record)?;
        // The reply to NULL tells that the WRITE has been received.
        let null = next_xid();
        let ping = client.record(null, &Call::Null);
        client.wire.send_record(&ping)?;
        while crate::hand::Eye(&client.wire.expect()?).u32()? != null {}
        // The first sending may get no reply of its own if it was not done yet.
        other.send_record(&record)?;
        let reply = other.expect()?;
        let decoded = decode_of(xid, call.procedure(), &reply)?;
        ensure!(decoded.status().is_none(), "{decoded:?}");
        let mut third = stage.client()?;
        third.write(&file, offset, &vec![2; length], StableHow::FileSync)?;
        let read = third.read(&file, offset, u32::try_from(length)?)?;
        ensure!(read.data.to_bytes().iter().all(|byte| *byte == 2), "undone");
        client = stage.client()?;
    }
    client.accepts(&getattr(&file)).context("at the end")
}
