//! The portmapper's own door, and what NSM tells, by hand.

use anyhow::{Error, Result, ensure};
use bytes::Bytes;

use crate::client::next_xid;
use crate::datagrams::Datagrams;
use crate::hand::{Eye, Hand, MOUNT, NFS, anonymous};
use crate::locks::{NLM, NSM, PORTMAP};
use crate::runner::{Check, Stage, check, with_servers};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "STAT, MON and UNMON tell the state, and monitor nobody",
        states,
    ),
    with_servers("the portmapper tells where all programs are", ports),
    with_servers("rpcbind tells addresses, and registers nobody", addresses),
];

fn states(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let mut ask = |procedure, arguments: &Hand, words: usize| {
        let xid = next_xid();
        let reply = wire.exchange(&anonymous(xid, NSM, 1, procedure).raw(&arguments.0).0)?;
        let mut eye = Eye(&reply);
        eye.success(xid)?;
        let words: Result<Vec<u32>> = (0..words).map(|_| eye.u32()).collect();
        eye.end()?;
        words
    };
    let host = Hand::default().opaque(b"host");
    let id = host.clone().opaque(b"me").u32(NLM).u32(4).u32(16);
    let stat = ask(1, &host, 2)?;
    ensure!(stat[0] == 1 && stat[1] % 2 == 1, "{stat:?}");
    ensure!(ask(2, &id.clone().raw(&[0; 16]), 2)? == stat, "MON");
    ensure!(ask(3, &id, 1)? == stat[1..], "UNMON");
    let me = Hand::default().opaque(b"me").u32(NLM).u32(4).u32(16);
    ensure!(ask(4, &me, 1)? == stat[1..], "UNMON_ALL");
    ask(5, &Hand::default(), 0).map(drop)
}

fn ports(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("portmap", &["--portmap", "127.0.0.1:0"])?;
    let nfs = server.address().port();
    let portmap = server.door("portmap")?;
    let mut wire = Wire::connect(portmap)?;
    let socket = Datagrams::connect(portmap)?;
    let mut ask = |procedure, arguments: Hand| {
        let xid = next_xid();
        let record = anonymous(xid, PORTMAP, 2, procedure).raw(&arguments.0).0;
        let (stream, datagram) = (wire.exchange(&record)?, socket.exchange(&record)?);
        ensure!(stream == datagram, "TCP and UDP answer differently");
        Eye(&stream).success(xid)?;
        Ok::<Bytes, Error>(stream.slice(24..))
    };
    ensure!(ask(0, Hand::default())?.is_empty(), "NULL");
    let mapping = |program, version, protocol| {
        Hand::default()
            .u32(program)
            .u32(version)
            .u32(protocol)
            .u32(0)
    };
    let ours = u32::from(portmap.port());
    for (program, version, protocol, port) in [
        (NFS, 3, 6, u32::from(nfs)),
        (MOUNT, 3, 17, nfs.into()),
        (NLM, 4, 6, nfs.into()),
        (NLM, 1, 17, nfs.into()),
        (NSM, 1, 17, nfs.into()),
        (NFS, 4, 6, nfs.into()), // NFS itself tells that it has no version 4.
        (PORTMAP, 2, 6, ours),
        (NFS, 3, 33, 0),
        (100_011, 1, 17, 0),
    ] {
        let found = ask(3, mapping(program, version, protocol))?;
        let found = Eye(&found).u32()?;
        ensure!(
            found == port,
            "{program} {version} {protocol}: {found}, not {port}"
        );
    }
    for procedure in [1, 2] {
        let done = ask(procedure, mapping(NFS, 3, 6))?;
        ensure!(Eye(&done).u32()? == 0, "it registers others");
    }
    let list = ask(4, Hand::default())?;
    let (mut eye, mut count) = (Eye(&list), 0);
    while eye.u32()? == 1 {
        eye.take(16)?;
        count += 1;
    }
    eye.end()?;
    ensure!(count == 2 * (6 + 3), "{count} mappings");
    server.stop()?;
    stage.clear("portmap")
}

fn addresses(stage: &Stage<'_>) -> Result<()> {
    let arguments = ["--portmap", "127.0.0.1:0"];
    let mut server = stage.own_server("rpcbind", &arguments)?;
    let [high, low] = server.address().port().to_be_bytes();
    let mut wire = Wire::connect(server.door("portmap")?)?;
    let mut ask = |version, procedure, program, network: &[u8]| {
        let xid = next_xid();
        let hand = anonymous(xid, PORTMAP, version, procedure)
            .u32(program)
            .u32(3);
        let reply = wire.exchange(&hand.opaque(network).opaque(b"").opaque(b"").0)?;
        let mut eye = Eye(&reply);
        eye.accepted(xid)?;
        Ok::<(u32, Vec<u8>), Error>((eye.u32()?, eye.0.to_vec()))
    };
    let expected = format!("127.0.0.1.{high}.{low}");
    for version in [3, 4] {
        let (status, found) = ask(version, 3, NFS, b"tcp")?;
        ensure!(
            status == 0 && Eye(&found).opaque()? == expected.as_bytes(),
            "{found:?}"
        );
        let (_, none) = ask(version, 3, NFS, b"tcp6")?;
        ensure!(Eye(&none).opaque()?.is_empty(), "it does not listen there");
        let (_, set) = ask(version, 1, NFS, b"tcp")?;
        ensure!(Eye(&set).u32()? == 0, "it registers others");
    }
    let (_, exact) = ask(4, 9, NLM, b"udp")?;
    ensure!(Eye(&exact).opaque()? == expected.as_bytes(), "GETVERSADDR");
    ensure!(
        ask(3, 9, NLM, b"udp")?.0 == 3,
        "version 3 has no GETVERSADDR"
    );
    ensure!(ask(5, 0, NFS, b"")?.0 == 2, "there is no version 5");
    ensure!(ask(4, 5, NFS, b"")?.0 == 3, "it calls nobody for others");
    server.stop()?;
    stage.clear("rpcbind")
}
