//! Clients that die while disks are behind with what they have asked for: the gateway
//! withdraws their reads at the nodes, which are processes of their own and say so in
//! their logs. Over HTTP and over NFS.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::{Call, Read};
use crossdock_tests_crash::client::Client;
use rustix::process::Signal;

use super::Processes;
use super::members::{Ensemble, Member};
use super::pieces;
use crate::install;
use crate::process::{Running, open_log, program};
use crate::rig::etcd::Etcd;
use crate::rig::reads::{ReadLimit, WITHDRAWN};
use crate::suite::Stage;
use crate::suite::cli::job;
use crate::suite::http::nodes;
use crate::suite::http::wire::Wire;
use crate::suite::metrics::scrape;

/// Files, together many times what the nodes keep in memory.
const FILES: usize = 64;
const FILE_BYTES: usize = 4 << 20;

/// Of so many of them pieces are asked of the nodes that have them: more than they keep, too.
const FILES_AT_NODES: usize = 24;

/// One request at a time at each disk: what else is asked for waits in the node's queue.
const NODE: [&str; 6] = [
    "--cache",
    "16M",
    "--disk-depth",
    "1",
    "--node-http",
    "127.0.0.1:0",
];

/// Connections of an NFS client, READs outstanding on each, and bytes of a READ.
const NFS_CONNECTIONS: usize = 4;
const NFS_READS: u64 = 16;
const NFS_READ_BYTES: u32 = 256 << 10;

/// How often a client is killed until a node must have said something: a moment at which
/// nothing is asked of nodes is no failure.
const ROUNDS: u32 = 12;

/// Nodes stand still for so long before their client is killed, so that what the gateway asks
/// of them waits, and for so long afterwards, so that it has withdrawn that.
const STILL: Duration = Duration::from_millis(50);

/// How long curl works before it is killed, and how long others: a little longer each time.
const CURL_LIFE: Duration = Duration::from_millis(200);
const LIFE: Duration = Duration::from_millis(3);

/// In how much time a node tells.
const TELL_PATIENCE: Duration = Duration::from_secs(3);

/// What the nodes may read in a second while clients are killed, together, where the system
/// can bound it: a fast disk would have answered one request before the next one came.
const READ_BYTES_PER_SECOND: u64 = 32 << 20;

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::http_clients()?;
    let etcd = Etcd::start(stage.paths, None, &stage.folder)?;
    let ensemble = Ensemble::over(&etcd, stage)?;
    ensemble.init(&[])?;
    let nodes = (0..3).map(|number| ensemble.node_with(number, &NODE));
    let mut processes = Processes {
        nodes: nodes.collect::<Result<_>>()?,
        managers: vec![ensemble.manager("manager-a")?],
        gateways: vec![ensemble.gateway("gateway-a")?],
    };
    processes.await_whole(stage)?;
    let (gateway, nodes) = (&processes.gateways[0], &processes.nodes[..]);
    let (http, nfs) = (gateway.door("http")?, gateway.door("nfs")?);
    let admin = gateway.door("admin")?.to_string();
    fill(nfs)?;
    let limit = slow_down(&ensemble, nodes)?;

    let before = scrape(&admin)?;
    let (requests, bytes) = until_withdrawn(nodes, |round| kill_curl(stage, http, nodes, round))
        .context("over HTTP")?;
    println!("HTTP client killed: nodes withdrew {requests} requests, {bytes} bytes");
    let after = scrape(&admin)?;
    ensure!(
        after.since(&before, "crossdock_delivery_withdrawn_total") > 0.0,
        "the gateway counts no reads that it withdrew"
    );
    let (requests, bytes) =
        until_withdrawn(nodes, |round| kill_nfs(nfs, nodes, round)).context("over NFS")?;
    println!("NFS client killed: nodes withdrew {requests} requests, {bytes} bytes");

    let urls = urls_at_nodes(&ensemble, &admin)?;
    let (requests, bytes) = until_withdrawn(nodes, |round| reset_at_nodes(&urls, round))
        .context("at the nodes' own door")?;
    println!("clients of nodes reset: they withdrew {requests} requests, {bytes} bytes");

    limit.as_ref().map_or(Ok(()), ReadLimit::lift)?;
    // Nobody else is the worse for it: all bytes are read, over both doors.
    verify(http, nfs)?;
    let file = (name(0), job::content(&name(0), FILE_BYTES));
    let manager = &processes.managers[0];
    pieces::check(&ensemble, gateway, manager, (&file.0, &file.1)).context("pieces from nodes")?;
    processes.stop()
}

/// The disks of the nodes are slow from now on, where that can be.
fn slow_down(ensemble: &Ensemble<'_>, nodes: &[Member<'_>]) -> Result<Option<ReadLimit>> {
    let folder = ensemble.node_directory(0);
    let limit = ReadLimit::new("withdrawals", &folder, READ_BYTES_PER_SECOND)?;
    match &limit {
        Some(limit) => nodes.iter().try_for_each(|node| limit.add(node.pid()?))?,
        None => println!("reads cannot be slowed down here: the disk is as fast as it is"),
    }
    Ok(limit)
}

fn name(number: usize) -> String {
    format!("file-{number}")
}

fn fill(nfs: SocketAddr) -> Result<()> {
    let mut client = Client::connect(nfs)?;
    (0..FILES).try_for_each(|number| job::write_one(&mut client, &name(number), FILE_BYTES))
}

fn verify(http: SocketAddr, nfs: SocketAddr) -> Result<()> {
    let mut client = Client::connect(nfs)?;
    let mut wire = Wire::connect(http)?;
    for number in 0..FILES {
        let name = name(number);
        let statuses = job::read(&mut client, &name, FILE_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
        wire.get(&format!("/{name}"), false)?;
        let answer = wire.answer()?.context("the connection ended")?;
        ensure!(answer.content == job::content(&name, FILE_BYTES), "{name}");
    }
    Ok(())
}

/// Kills clients until a node has said that it withdrew reads; how many, and their bytes.
fn until_withdrawn(
    nodes: &[Member<'_>],
    mut kill: impl FnMut(u32) -> Result<()>,
) -> Result<(u64, u64)> {
    let before = withdrawn(nodes)?;
    for round in 0..ROUNDS {
        kill(round)?;
        let told = Instant::now();
        while told.elapsed() < TELL_PATIENCE {
            let now = withdrawn(nodes)?;
            let (requests, bytes) = (now.0 - before.0, now.1 - before.1);
            if requests > 0 {
                ensure!(bytes > 0, "{requests} requests of no bytes");
                println!("nodes have told of it after {} killed", round + 1);
                return Ok((requests, bytes));
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    anyhow::bail!("{ROUNDS} clients were killed, and no node says that it withdrew reads")
}

/// What all nodes have said so far.
fn withdrawn(nodes: &[Member<'_>]) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    for node in nodes {
        for line in node.said()?.lines().filter(|line| line.contains(WITHDRAWN)) {
            sum.0 += field(line, "requests").with_context(|| line.to_owned())?;
            sum.1 += field(line, "bytes").with_context(|| line.to_owned())?;
        }
    }
    Ok(sum)
}

/// The number behind `name=`.
fn field(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!("{name}="))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A curl with a download of each file is killed. It has not read what came last, so that its
/// kernel resets the connections.
fn kill_curl(stage: &Stage<'_>, http: SocketAddr, nodes: &[Member<'_>], round: u32) -> Result<()> {
    let mut curl = program("curl");
    curl.args(["--silent", "--parallel", "--parallel-immediate"]);
    curl.args(["--parallel-max", &FILES.to_string()]);
    for number in 0..FILES {
        let url = format!("http://{http}/{}", name(number));
        curl.args(["--output", "/dev/null", &url]);
    }
    let log = open_log(&stage.log)?;
    curl.stdout(log.try_clone()?).stderr(log);
    let mut running = Running::start(curl)?;
    thread::park_timeout(CURL_LIFE * (round + 1));
    running.signal(Signal::STOP)?;
    while_still(nodes, || running.kill())
}

/// Does something while nodes stand still: they have in hand what was asked of them before, and
/// hear of it together with what is withdrawn then.
fn while_still(nodes: &[Member<'_>], act: impl FnOnce()) -> Result<()> {
    nodes
        .iter()
        .try_for_each(|node| node.signal(Signal::STOP))?;
    thread::park_timeout(STILL);
    act();
    thread::park_timeout(STILL);
    nodes.iter().try_for_each(|node| node.signal(Signal::CONT))
}

/// Where nodes send pieces of some of the files.
fn urls_at_nodes(ensemble: &Ensemble<'_>, admin: &str) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    for number in 0..FILES_AT_NODES {
        let path = format!("/{}", name(number));
        let signed = ensemble.finish(&["sign", &path, "--nodes", "--json", "--admin", admin])?;
        let signed = signed.json(0)?;
        let pieces = signed["pieces"].as_array().context("no pieces")?.iter();
        let at_nodes = pieces.filter(|piece| !piece["node"].is_null());
        urls.extend(at_nodes.filter_map(|piece| piece["url"].as_str().map(str::to_owned)));
    }
    ensure!(urls.len() >= FILES_AT_NODES, "only {urls:?} are at nodes");
    Ok(urls)
}

/// Clients that each have asked for one of the URLs, all at once, are gone by resets. (Of one
/// that is killed before a byte has come nodes hear FIN alone, which says little.)
fn reset_at_nodes(urls: &[String], round: u32) -> Result<()> {
    let connect = |url: &String| Wire::connect(nodes::parts(url)?.0);
    let mut wires: Vec<Wire> = urls.iter().map(connect).collect::<Result<_>>()?;
    for (wire, url) in wires.iter_mut().zip(urls) {
        wire.get(&format!("/{}", nodes::parts(url)?.1), false)?;
    }
    thread::park_timeout(LIFE * round);
    wires.into_iter().try_for_each(Wire::reset)
}

/// A client that has asked for much, and reads nothing of it, is gone.
fn kill_nfs(nfs: SocketAddr, nodes: &[Member<'_>], round: u32) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..NFS_CONNECTIONS {
        let mut client = Client::connect(nfs)?;
        let number = (number + round as usize * NFS_CONNECTIONS) % FILES;
        let file = job::lookup(&mut client, &name(number))?;
        for read in 0..NFS_READS {
            let call = Call::Read(Read {
                file: file.as_handle(),
                offset: read * u64::from(NFS_READ_BYTES),
                count_bytes: NFS_READ_BYTES,
            });
            client.send(&call)?.context("the connection is gone")?;
        }
        clients.push(client);
    }
    thread::park_timeout(LIFE * round);
    while_still(nodes, || drop(clients))
}
