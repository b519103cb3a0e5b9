//! Many connections, many calls, and clients that do not read.

use std::collections::BTreeSet;
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::Procedure;
use crossdock_nfs3::Reply;
use crossdock_nfs3::call::StableHow;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Client;
use crate::hand::{Eye, NFS, call};
use crate::operations::{getattr, read};
use crate::runner::{Check, Stage, check};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "10,000 connections are open at once, and each is answered",
        ten_thousand_connections,
    ),
    check(
        "2,000 calls sent at once over one connection are all answered",
        many_calls,
    ),
    check(
        "a client that takes no replies delays nobody, and gets them all later",
        slow_reader,
    ),
    check(
        "100 clients that go away without taking their replies leave nothing behind",
        gone_readers,
    ),
];

const CONNECTIONS: usize = 10_000;

/// Descriptors for all connections, here and in the server, which takes the
/// hard limit over.
pub(crate) fn raise_descriptor_limit() -> Result<()> {
    const SPARE: u64 = 1000;
    let wanted = CONNECTIONS as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum,
            },
        )
        .context("cannot raise the limit of open files (ulimit -n)")?;
    }
    Ok(())
}

fn ten_thousand_connections(stage: &Stage<'_>) -> Result<()> {
    let mut wires = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let wire = Wire::connect(stage.address);
        wires.push(wire.with_context(|| format!("connection {number}"))?);
    }
    // All are asked before the first is heard: none waits for another one's end.
    for (number, wire) in wires.iter_mut().enumerate() {
        let xid = u32::try_from(number)?;
        let record = call(xid, NFS, 3, 1).opaque(stage.root.as_bytes());
        let sent = wire.send_record(&record.0);
        sent.with_context(|| format!("connection {number}"))?;
    }
    for (number, wire) in wires.iter_mut().enumerate() {
        let reply = wire.expect();
        let reply = reply.with_context(|| format!("connection {number}"))?;
        let mut eye = Eye(&reply);
        eye.success(u32::try_from(number)?)?;
        eye.is(0, "status")?;
    }
    drop(wires);
    stage.client()?.accepts(&getattr(&stage.root))
}

fn many_calls(stage: &Stage<'_>) -> Result<()> {
    const CALLS: usize = 2000;
    let mut client = stage.client()?;
    let mut xids = BTreeSet::new();
    for _ in 0..CALLS {
        xids.insert(client.send(&getattr(&stage.directory))?);
    }
    for _ in 0..CALLS {
        let (xid, reply) = client.receive(Procedure::Getattr)?;
        ensure!(xids.remove(&xid), "{xid} was answered twice");
        ensure!(reply.status().is_none(), "{reply:?}");
    }
    Ok(())
}

const MEBIBYTE: usize = 1 << 20;

/// Sends 64 READs of 1 MiB each.
fn ask_for_much(client: &mut Client, stage: &Stage<'_>) -> Result<BTreeSet<u32>> {
    let file = client.lookup(&stage.directory, "file")?;
    (0..64)
        .map(|_| client.send(&read(&file, 0, 1 << 20)))
        .collect()
}

fn slow_reader(stage: &Stage<'_>) -> Result<()> {
    let mut other = stage.client()?;
    let file = other.create(&stage.directory, "file", 0o644)?;
    let data: Vec<u8> = (0..=252).cycle().take(MEBIBYTE).collect();
    other.write(&file, 0, &data, StableHow::FileSync)?;
    let mut slow = stage.client()?;
    let mut xids = ask_for_much(&mut slow, stage)?;
    // Others are served as if it was not there.
    for _ in 0..200 {
        other.getattr(&stage.root)?;
    }
    let name_of = |number| format!("file-{number}");
    for number in 0..50 {
        other.create(&stage.directory, name_of(number), 0o644)?;
    }
    while !xids.is_empty() {
        let (xid, reply) = slow.receive(Procedure::Read)?;
        ensure!(xids.remove(&xid), "{xid} was answered twice");
        let Reply::Read(Ok(done)) = reply else {
            anyhow::bail!("{reply:?}");
        };
        ensure!(done.data.to_bytes()[..] == data[..], "other bytes");
    }
    slow.accepts(&getattr(&stage.root))
}

fn gone_readers(stage: &Stage<'_>) -> Result<()> {
    let mut other = stage.client()?;
    let file = other.create(&stage.directory, "file", 0o644)?;
    other.write(&file, 0, &vec![1; MEBIBYTE], StableHow::FileSync)?;
    for _ in 0..100 {
        let mut client = stage.client()?;
        ask_for_much(&mut client, stage)?;
        let _: &TcpStream = client.wire.stream();
        drop(client);
        other.getattr(&stage.root)?;
    }
    let read = other.read(&file, 0, 1 << 20)?;
    ensure!(read.data.len() == MEBIBYTE, "{} bytes", read.data.len());
    Ok(())
}
