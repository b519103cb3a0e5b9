//! An ensemble on the hosts of the cluster rig: clients in a namespace of their own go
//! on while a node and a member of etcd lose all that they have, and a manager and a
//! gateway are killed. Before that, gateways die and stand still whose virtual address
//! the clients use.

mod addresses;
mod clocks;
mod faults;
mod kernel;
mod names;
mod over;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(super) use clocks::run as run_clocks;
pub(super) use faults::run as run_faults;
pub(super) use kernel::run as run_kernel;
pub(super) use over::{conformance, conformance_hashed, pjdfstest, pjdfstest_hashed};

use super::Stage;
use super::ensemble::load::{Files, Load};
use crate::rig::cluster::{Cluster, Options, Role, in_network};

/// Of all new directories, how many lie at other sites than their parents.
const SPREAD: &str = "0.5";

/// Answers that each client has to have after something was killed.
const ANSWERS: u64 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// After a fault all is whole again within this time.
const WHOLE_PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    // Where files lie by maps, nodes come and go as where they are striped.
    let mut options = Options::default();
    options.init = ["--placement", "mapped"].map(str::to_owned).to_vec();
    let mut cluster = raise(stage, options)?;
    described(&cluster).context("the rig's description")?;
    alone(&cluster).context("what processes see")?;
    at_client(&mut cluster, |cluster| kill_each(stage, cluster))
}

/// Does `work` in the network of the first client's host.
fn at_client<'paths>(
    cluster: &mut Cluster<'paths>,
    work: impl FnOnce(&mut Cluster<'paths>) -> Result<()> + Send,
) -> Result<()> {
    let client = cluster.of(Role::Client).next().context("no client")?;
    let netns = client.netns.clone();
    in_network(&netns, || work(cluster))
}

/// Builds the rig.
fn raise<'stage>(stage: &Stage<'stage>, mut options: Options) -> Result<Cluster<'stage>> {
    stage.expect_crossdock()?;
    options.init.extend_from_slice(stage.init);
    // That names lie on all managers is the harder case; `up` tests the other one.
    let is_said = |word: &String| word == "--spread" || word == "--names";
    if !options.init.iter().any(is_said) {
        options.init.extend(["--spread", SPREAD].map(str::to_owned));
    }
    // Another checkout may test at the same time.
    let mut hasher = DefaultHasher::new();
    stage.folder.hash(&mut hasher);
    let name = format!("suite-{:08x}", hasher.finish() >> 32);
    Cluster::up(stage.paths, &name, &stage.folder, &options)
}

fn kill_each(stage: &Stage<'_>, cluster: &mut Cluster<'_>) -> Result<()> {
    addresses::run(cluster).context("virtual addresses")?;
    let doors = cluster.nfs_doors();
    // Each file is written through one gateway and read through the other.
    let load = Load::start("client", &doors);
    load.pause(ANSWERS)?;
    // From here on the registry does with two members.
    kill(cluster, &load, "etcd-0")?;
    kill(cluster, &load, "node-1")?;
    kill(cluster, &load, "manager-0")?;
    cluster.restart("manager-0")?;
    load.pause(ANSWERS)?;
    kill(cluster, &load, "gateway-0")?;
    cluster.restart("gateway-0")?;
    load.pause(ANSWERS)?;
    finish(stage, load, &doors).map(drop)
}

/// Ends the clients: every gateway has every file as it was written, and no process has
/// panicked. What the clients had.
fn finish(stage: &Stage<'_>, load: Load, doors: &[SocketAddr]) -> Result<Vec<Files>> {
    let files = load.finish()?;
    let made: u64 = files.iter().map(Files::made).sum();
    println!("{made} files were written, read and renamed meanwhile");
    for &gateway in doors {
        files.iter().try_for_each(|files| files.verify(gateway))?;
    }
    no_panics(stage)?;
    Ok(files)
}

fn no_panics(stage: &Stage<'_>) -> Result<()> {
    for log in fs::read_dir(stage.folder.join("logs"))? {
        let log = fs::read_to_string(log?.path())?;
        ensure!(!log.contains("panicked"), "a process has panicked: {log}");
    }
    Ok(())
}

/// Kills a host, with all that it had, and waits until the clients are served.
fn kill(cluster: &mut Cluster<'_>, load: &Load, name: &str) -> Result<()> {
    load.mark();
    cluster.kill(name)?;
    let pause = load.pause(ANSWERS)?;
    println!("{name} killed: {pause}");
    pause.judge(&format!("{name} killed"))
}

/// Waits until no set misses a member and every process talks to every other one, and
/// starts again meanwhile what ends; which it has started.
fn await_supervised(stage: &Stage<'_>, cluster: &mut Cluster<'_>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let deadline = stage.deadline.min(Instant::now() + WHOLE_PATIENCE);
    loop {
        let started = cluster.supervise()?;
        let missing = match started.is_empty() {
            // A process that is about to end may not answer.
            true => cluster
                .what_misses()
                .unwrap_or_else(|error| Some(format!("{error:#}"))),
            false => Some("some were started again".to_owned()),
        };
        all.extend(started);
        let Some(missing) = missing else {
            return Ok(all);
        };
        ensure!(Instant::now() < deadline, missing);
        thread::park_timeout(LOOK_EVERY);
    }
}

/// The line of JSON is true: every process is there, in the namespace that it names.
fn described(cluster: &Cluster<'_>) -> Result<()> {
    let line = cluster.line();
    let hosts = line["hosts"].as_array().context("no hosts")?;
    ensure!(hosts.len() == cluster.hosts.len() + 1, "{line}");
    for host in hosts {
        let netns = host["netns"].as_str().context("no namespace")?;
        let named = fs::metadata(format!("/run/netns/{netns}"))?;
        let pids = host["pids"].as_array().context("no processes")?;
        let runs = !matches!(host["role"].as_str(), Some("client" | "switch"));
        ensure!(pids.len() == usize::from(runs), "{host}");
        for pid in pids {
            let own = fs::metadata(format!("/proc/{pid}/ns/net"))?;
            let inode = std::os::unix::fs::MetadataExt::ino;
            ensure!(inode(&own) == inode(&named), "{host}: another network");
        }
    }
    Ok(())
}

/// No process can write anything but its own directory and its own network's settings,
/// and none sees another.
fn alone(cluster: &Cluster<'_>) -> Result<()> {
    let line = cluster.line();
    for host in line["hosts"].as_array().context("no hosts")? {
        for pid in host["pids"].as_array().context("no processes")? {
            let has_data = matches!(host["role"].as_str(), Some("etcd" | "node"));
            check_mounts(pid, has_data).with_context(|| host.to_string())?;
            let seen = fs::read_dir(format!("/proc/{pid}/root/proc"))?;
            let names = seen.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let others = names.filter_map(|name| name.parse::<u32>().ok());
            ensure!(others.eq([1]), "{host} sees other processes");
        }
    }
    Ok(())
}

fn check_mounts(pid: &Value, has_data: bool) -> Result<()> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let mut writable = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(4);
        let (place, flags) = (fields.next(), fields.next());
        let (place, flags) = (place.context("no path")?, flags.context("no flags")?);
        // Devices take writes and keep nothing.
        if flags.split(',').any(|flag| flag == "rw") && !place.starts_with("/dev/") {
            writable.push(place.to_owned());
        }
    }
    let allowed: &[&str] = match has_data {
        true => &["/proc/sys/net", "/data"],
        false => &["/proc/sys/net"],
    };
    ensure!(writable == allowed, "it can write {writable:?}");
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    ensure!(
        fs::read_dir(root)?.count() == 12,
        "it sees more than it should"
    );
    Ok(())
}
