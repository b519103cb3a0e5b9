//! Nodes that are processes of their own and have their data on disk sets: they find them again
//! without being told, and disks fail, come and go by orders to each node's admin port. They are
//! defragmented.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_tests_crash::client::Client;
use serde_json::Value;

use super::members::{Ensemble, Member};
use super::{Processes, defrag};
use crate::rig::etcd::Etcd;
use crate::suite::Stage;
use crate::suite::cli::job;

/// Bytes of a disk.
const DISK_BYTES: u64 = 256 << 20;

/// Of several stripes of all nodes.
const FILM_BYTES: usize = 6_000_000;

/// How long a rebuild, or what is on a set, may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let etcd = Etcd::start(stage.paths, None, &stage.folder)?;
    let ensemble = Ensemble::over(&etcd, stage)?;
    ensemble.init(&[])?;
    let node = |number: u32| -> Result<Member<'_>> {
        let spec = mirror(stage, &format!("{number}-a"), &format!("{number}-b"))?;
        ensemble.node_with(number, &["--cache", "32M", "--disks", &spec])
    };
    let mut processes = Processes {
        nodes: (0..3).map(node).collect::<Result<_>>()?,
        managers: vec![ensemble.manager("manager-a")?],
        gateways: vec![ensemble.gateway("gateway-a")?],
    };
    processes.await_whole(stage)?;
    let door = processes.gateways[0].door("nfs")?;
    let mut client = Client::connect(door)?;
    job::write_one(&mut client, "film", FILM_BYTES)?;

    let gateway = processes.gateways[0].door("admin")?.to_string();
    let wrong = ensemble.finish(&["disk", "list", "--admin", &gateway])?;
    wrong.expect(1, &["no storage node", "admin port"])?;
    let node = &processes.nodes[1];
    let new = mirror(stage, "new-a", "new-b")?;
    order(&ensemble, node, &["add", "1", &new])?;
    order(&ensemble, node, &["retire", "1", "0"])?;
    await_set(&ensemble, node, |sets| {
        sets.len() == 1 && sets[0]["number"] == 1
    })?;
    for name in ["1-a", "1-b"] {
        fs::remove_file(stage.folder.join(name))?;
    }
    let lost = stage.folder.join("2-b");
    let node = &processes.nodes[2];
    order(&ensemble, node, &["fail", lost.to_str().context("UTF-8")?])?;
    await_set(&ensemble, node, |sets| sets[0]["lacking"] == 1)?;
    verify(&mut client)?;

    // Killed, and started with the words of the first time.
    for node in &mut processes.nodes[1..] {
        node.kill();
    }
    for node in &mut processes.nodes[1..] {
        node.restart(stage)?;
    }
    processes.await_whole(stage)?;
    let mut client = Client::connect(door)?;
    verify(&mut client)?;
    defrag::check(stage, &ensemble, &mut processes).context("defragmentation")?;
    let sets = sets_of(&ensemble, &processes.nodes[2])?;
    ensure!(sets[0]["lacking"] == 1, "{sets:?}");
    processes.stop()
}

fn verify(client: &mut Client) -> Result<()> {
    let statuses = job::read(client, "film", FILM_BYTES)?;
    ensure!(statuses.iter().all(Option::is_none), "{statuses:?}");
    Ok(())
}

/// A mirror of two new disks.
fn mirror(stage: &Stage<'_>, first: &str, second: &str) -> Result<String> {
    let mut paths = Vec::new();
    for name in [first, second] {
        let path = stage.folder.join(name);
        File::create(&path)?.set_len(DISK_BYTES)?;
        paths.push(path.to_str().context("not UTF-8")?.to_owned());
    }
    Ok(format!("mirror:{}", paths.join(",")))
}

/// Says `crossdock disk …` to a node.
fn order(ensemble: &Ensemble<'_>, node: &Member<'_>, words: &[&str]) -> Result<Value> {
    let admin = node.door("admin")?.to_string();
    let mut all = vec!["disk"];
    all.extend(words);
    all.extend(["--json", "--admin", &admin]);
    ensemble.finish(&all)?.json(0)
}

fn sets_of(ensemble: &Ensemble<'_>, node: &Member<'_>) -> Result<Vec<Value>> {
    let nodes = order(ensemble, node, &["list"])?;
    let sets = nodes[0]["sets"].as_array();
    Ok(sets.with_context(|| format!("{nodes}"))?.clone())
}

fn await_set(
    ensemble: &Ensemble<'_>,
    node: &Member<'_>,
    is_so: impl Fn(&[Value]) -> bool,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let sets = sets_of(ensemble, node)?;
        if is_so(&sets) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{}: {sets:?}", node.name());
        thread::park_timeout(Duration::from_millis(100));
    }
}
