//! Nodes come and go while clients write and read: one is added, one drained and
//! removed, one comes back without its files.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::Load;
use super::members::{Ensemble, Member};
use super::{ANSWERS, Processes};
use crate::suite::cli::program::{Finished, finish};

/// How long it may take until everything is where it belongs.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The number of the node that is added.
const ADDED: u32 = 3;

/// All of it; in the end node 0 is gone and node 3 is there.
pub(super) fn change<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
    load: &Load,
) -> Result<()> {
    add(ensemble, processes, load)?;
    drain(ensemble, processes, load)?;
    managers(ensemble, processes, load)?;
    lose(ensemble, processes, load)
}

fn add<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
    load: &Load,
) -> Result<()> {
    let manager = &processes.managers[0];
    node(ensemble, manager, &["remove", "0"])?.expect(1, &["node 0", "drain"])?;
    node(ensemble, manager, &["drain", "7"])?.expect(1, &["no node 7", "node list"])?;
    load.mark();
    let began = Instant::now();
    let added = node(ensemble, manager, &["add", "--json"])?.json(0)?;
    ensure!(added["number"] == ADDED, "{added}");
    processes.nodes.push(ensemble.node(ADDED)?);
    let places = await_settled(ensemble, &processes.managers[0])?;
    let sets: Vec<u64> = places.iter().filter_map(|it| it["sets"].as_u64()).collect();
    let (least, most) = (sets.iter().min(), sets.iter().max());
    let (least, most) = least.zip(most).context("there are no nodes")?;
    ensure!(most - least <= 8, "sets are not spread evenly: {sets:?}");
    tell("node 3 added", began, load)
}

fn drain<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
    load: &Load,
) -> Result<()> {
    load.mark();
    let began = Instant::now();
    let manager = &processes.managers[0];
    node(ensemble, manager, &["drain", "0"])?.says(&["node 0", "drained"])?;
    node(ensemble, manager, &["remove", "0"])?.expect(1, &["not moved", "drain 0"])?;
    await_settled(ensemble, manager)?;
    node(ensemble, manager, &["drain", "0"])?.says(&["empty", "remove 0"])?;
    tell("node 0 drained", began, load)?;
    load.mark();
    let began = Instant::now();
    node(ensemble, manager, &["remove", "0"])?.says(&["no node 0"])?;
    let mut removed = processes.nodes.remove(0);
    removed.await_ended("has been given up")?;
    processes.await_whole(ensemble.stage)?;
    tell("node 0 removed", began, load)
}

/// A manager comes, one is removed, one is stopped in order and comes back.
fn managers<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
    load: &Load,
) -> Result<()> {
    load.mark();
    let began = Instant::now();
    processes.managers.push(ensemble.manager("manager-c")?);
    processes.await_whole(ensemble.stage)?;
    tell("manager-c added", began, load)?;

    load.mark();
    let began = Instant::now();
    let mut removed = processes.managers.remove(0);
    let status = processes.managers[0].status(ensemble.stage)?;
    let hosts = status["hosts"].as_array().context("no list of hosts")?;
    let link = removed.door("link")?.to_string();
    let host = hosts.iter().find(|host| host["link"] == link.as_str());
    let host = host.and_then(|host| host["id"].as_str());
    let host = host.with_context(|| format!("nobody listens at {link}: {status:#}"))?;
    let admin = processes.managers[0].door("admin")?.to_string();
    let words = ["manager", "remove", host, "--admin", &admin];
    finish(ensemble.stage, &words)?.says(&[host, "ends"])?;
    removed.await_stopped()?;
    processes.await_whole(ensemble.stage)?;
    tell("manager-a removed", began, load)?;

    load.mark();
    let began = Instant::now();
    processes.managers[0].stop()?;
    tell("manager-b stopped with SIGTERM", began, load)?;
    processes.managers[0].restart(ensemble.stage)?;
    processes.await_whole(ensemble.stage)
}

/// A node's files are gone.
fn lose<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
    load: &Load,
) -> Result<()> {
    let manager = &processes.managers[0];
    node(ensemble, manager, &["replace", "1"])?.expect(1, &["node 1 runs"])?;
    load.mark();
    let began = Instant::now();
    processes.nodes[0].kill();
    fs::remove_dir_all(ensemble.node_directory(1))?;
    let deadline = Instant::now() + PATIENCE;
    // Until the others have noticed.
    while node(ensemble, manager, &["list", "--json"])?.json(0)?[0]["is_running"] == true {
        ensure!(Instant::now() < deadline, "nobody misses node 1");
        thread::park_timeout(LOOK_EVERY);
    }
    node(ensemble, manager, &["replace", "1"])?.says(&["node 1", "empty directory"])?;
    processes.nodes[0].restart(ensemble.stage)?;
    await_settled(ensemble, &processes.managers[0])?;
    processes.await_whole(ensemble.stage)?;
    tell("node 1 came back without its files", began, load)
}

/// `crossdock node …`, to that process.
fn node(ensemble: &Ensemble<'_>, of: &Member<'_>, words: &[&str]) -> Result<Finished> {
    let admin = of.door("admin")?.to_string();
    let all = [&["node"], words, &["--admin", &admin]].concat();
    finish(ensemble.stage, &all)
}

/// Waits until nothing is on its way any more; what each node has then.
fn await_settled(ensemble: &Ensemble<'_>, of: &Member<'_>) -> Result<Vec<Value>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let places = node(ensemble, of, &["list", "--json"])?.json(0)?;
        let places = places.as_array().context("no list of nodes")?.clone();
        let rests = |place: &Value| place["leaving"] == 0 && place["is_running"] == true;
        let status = of.status(ensemble.stage)?;
        if places.iter().all(rests) && status["sets_short"] == 0 {
            return Ok(places);
        }
        ensure!(
            Instant::now() < deadline,
            "sets are on their way for ever: {places:?}"
        );
        thread::park_timeout(LOOK_EVERY);
    }
}

fn tell(what: &str, began: Instant, load: &Load) -> Result<()> {
    let took = began.elapsed();
    let pause = load.pause(ANSWERS)?;
    println!("{what}: {:.1} s, {pause} meanwhile", took.as_secs_f64());
    pause.judge_moving(what)
}
