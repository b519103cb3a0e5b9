//! What is no part of the ensemble is refused, in words that help.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::members::{Ensemble, Member};
use crate::suite::cli::program::{Finished, finish};

/// How long a host may listen to nonsense.
const NONSENSE_PATIENCE: Duration = Duration::from_secs(10);

/// Usage, and what there is not; nothing runs yet but etcd and the ensemble's state.
pub(super) fn before(ensemble: &Ensemble<'_>) -> Result<()> {
    let (stage, etcd) = (ensemble.stage, ensemble.etcd.as_str());
    let run = |words: &[&str]| finish(stage, words);
    let again = [
        "cluster",
        "init",
        "--etcd",
        etcd,
        "--name",
        "pool",
        "--nodes",
        "3",
        "--replicas",
        "2",
    ];
    run(&again)?.expect(1, &["already", "pool"])?;
    let gateway = ["gateway", "run", "--etcd", etcd];
    let listen = ["--listen", "127.0.0.1:0"];
    let other = [
        &gateway[..],
        &["--name", "other"],
        &listen,
        &["--nfs", "127.0.0.1:0", "--admin", "off"],
    ]
    .concat();
    run(&other)?.expect(1, &["no ensemble", "other", "cluster init"])?;
    run(&[&gateway[..], &["--name", "pool"]].concat())?.expect(2, &["--listen", "missing"])?;
    let nowhere = [
        &gateway[..],
        &["--name", "pool", "--listen", "0.0.0.0:7071"],
    ]
    .concat();
    run(&nowhere)?.expect(2, &["0.0.0.0", "others"])?;
    let node = [
        "node", "run", "--etcd", etcd, "--name", "pool", "--admin", "off",
    ];
    let data = stage.folder.join("unused");
    let data = data.to_str().context("not UTF-8")?;
    let ninth = [&node[..], &listen, &["--number", "9", "--data", data]].concat();
    run(&ninth)?.expect(1, &["no node 9", "3 nodes"])?;
    let file = stage.folder.join("node.toml");
    std::fs::write(
        &file,
        format!("etcd = [{etcd:?}]\nname = \"pool\"\nnfs = \"off\"\nnumber = 1\n"),
    )?;
    let file = file.to_str().context("not UTF-8")?;
    let check = run(&["config", "check", file, "--json"])?;
    let answer = check.json(2)?;
    ensure!(answer["line"] == 3 && answer["column"] == 1, "{answer}");
    check.expect(2, &["nfs", "number"])
}

/// A process that starts while etcd is away waits for it, says so, and ends when it is
/// told to.
pub(super) fn without_etcd(ensemble: &Ensemble<'_>) -> Result<()> {
    let nobody = ["--etcd", "http://127.0.0.1:1", "--name", "pool"];
    let own = ["--listen", "127.0.0.1:0", "--admin", "off"];
    let words = [&["manager", "run"], &nobody[..], &own].concat();
    let mut manager = ensemble.bare("manager-alone", &words)?;
    manager.await_said(&["etcd does not answer: waiting for it", "waited_s"])?;
    manager.stop()
}

/// A second process for a node that runs, on its data and on other data.
pub(super) fn second(ensemble: &Ensemble<'_>) -> Result<()> {
    let (stage, etcd) = (ensemble.stage, ensemble.etcd.as_str());
    let start = |data: &str| {
        let words = [
            "node",
            "run",
            "--etcd",
            etcd,
            "--name",
            "pool",
            "--number",
            "0",
            "--admin",
            "off",
            "--size",
            "1G",
            "--listen",
            "127.0.0.1:0",
            "--data",
            data,
        ];
        finish(stage, &words)
    };
    let fresh = stage.folder.join("fresh");
    let said = start(fresh.to_str().context("not UTF-8")?)?;
    said.expect(
        1,
        &[
            "has been in the ensemble before",
            "journal",
            "--data",
            "restore",
        ],
    )?;
    ensure!(!fresh.exists(), "what was refused has made data");
    let same = ensemble.node_directory(0);
    let said = start(same.to_str().context("not UTF-8")?)?;
    said.expect(1, &["another crossdock serves", "stop it"])
}

/// Bytes that are no message end the connection, and nothing else.
pub(super) fn nonsense(member: &Member<'_>) -> Result<()> {
    for bytes in [&b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n"[..], &[0xa5; 4096]] {
        let mut stream = TcpStream::connect(member.door("link")?)?;
        stream.set_read_timeout(Some(NONSENSE_PATIENCE))?;
        stream.write_all(bytes)?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => bail!("nonsense at the link port was not refused: {error}"),
        }
    }
    Ok(())
}

/// Orders that a process of that role cannot carry out.
pub(super) fn orders(
    ensemble: &Ensemble<'_>,
    node: &Member<'_>,
    gateway: &Member<'_>,
) -> Result<()> {
    let stage = ensemble.stage;
    let (node, gateway) = (node.door("admin")?, gateway.door("admin")?);
    let ask = |words: &[&str], admin: SocketAddr| {
        finish(stage, &[words, &["--admin", &admin.to_string()]].concat())
    };
    ask(&["node", "stop", "0"], node)?.expect(1, &["SIGTERM", "node run"])?;
    ask(&["scrub"], gateway)?.expect(1, &["no storage node"])?;
    ask(&["quota", "list"], gateway)?.expect(1, &["manager", "--admin"])?;
    ask(&["scrub"], node)?.expect(0, &[])?;
    addresses(&ask, node, gateway)
}

/// Virtual addresses are known to all, though no gateway here has an interface for them.
fn addresses(
    ask: &impl Fn(&[&str], SocketAddr) -> Result<Finished>,
    node: SocketAddr,
    gateway: SocketAddr,
) -> Result<()> {
    let address = "192.0.2.7/24";
    ask(&["address", "add", "192.0.2.7"], node)?.expect(2, &["behind a /"])?;
    ask(&["address", "add", address], node)?.expect(0, &[])?;
    ask(&["address", "add", address], node)?.expect(1, &["already"])?;
    let listed = ask(&["address", "list", "--json"], node)?.json(0)?;
    let is_it = listed[0]["address"] == address && listed[0]["gateway"].is_null();
    ensure!(is_it, "{listed}");
    ask(&["address", "remove", "192.0.2.8"], gateway)?.expect(1, &["no virtual address"])?;
    ask(&["address", "remove", "192.0.2.7"], node)?.expect(0, &[])
}
