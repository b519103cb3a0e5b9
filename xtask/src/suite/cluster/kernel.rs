//! A Linux kernel mounts a virtual address of an ensemble whose clocks are wrong, and
//! writes without a pause while hosts are killed, cut off, stand still and run full.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::faults::{LEFT_BYTES, fill, remove};
use super::over::client;
use super::{await_supervised, no_panics, raise};
use crate::rig::cluster::{Cluster, Cut, Options, Role, in_network};
use crate::rig::network::{HOST, LINK};
use crate::suite::Stage;
use crate::suite::kernel::{in_guest, mount_variables};

const OPTIONS: [&str; 8] = [
    "--nodes",
    "4",
    "--clients",
    "1",
    "--node-disk",
    "3G",
    "--clocks",
    "5,-5,0",
];

/// The guest says so when it waits for a fault.
const FAULT_MARK: &str = "@@fault";

/// And how long the longest pause of its writer was around the last one.
const PAUSE_MARK: &str = "@@pause ";

/// A hard mount goes on within 5 s (docs/operations.md); a fault lasts for 4 s, and the rest
/// is for a machine that does other things, too, and the guest's own work on a file.
const PAUSE_MAX: Duration = Duration::from_secs(5 + 5);

/// From one fault to the next, and what a fault may take, all being whole again included.
const INTERVAL: Duration = Duration::from_secs(15);

/// How long a fault lasts: others have been put in the place of what it hit (2 s), and
/// have served for as long again.
const LASTS: Duration = Duration::from_secs(4);

/// Members of etcd that are a majority.
const MAJORITY: [&str; 2] = ["etcd-0", "etcd-1"];

/// What happens to whom.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(Victim),
    CutOff(Victim),
    EtcdStandsStill,
    /// A client's file takes what the file system of a node has left.
    Full,
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    ServingManager,
    /// That has the address which the guest mounts.
    Gateway,
    Node(&'static str),
}

const FAULTS: [Fault; 8] = [
    Fault::Kill(Victim::ServingManager),
    Fault::Kill(Victim::Node("node-1")),
    Fault::Kill(Victim::Gateway),
    Fault::CutOff(Victim::Node("node-2")),
    Fault::CutOff(Victim::ServingManager),
    Fault::CutOff(Victim::Gateway),
    Fault::EtcdStandsStill,
    Fault::Full,
];

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    let mut cluster = raise(stage, Options::parse(&OPTIONS)?)?;
    let client = client(&cluster)?;
    client.add(&LINK)?;
    let door = door(&cluster)?;
    let _forward = client.forward(door, &stage.folder.join("forward.log"))?;
    let mut variables = mount_variables(SocketAddr::from((HOST, door.port())));
    variables.extend([
        ("FAULTS", FAULTS.len().to_string()),
        ("INTERVAL", INTERVAL.as_secs().to_string()),
    ]);
    let mut faults = FAULTS.into_iter();
    let mut last = None;
    in_guest(stage, &client, "faults.sh", variables, |line| {
        if line == FAULT_MARK {
            let fault = faults.next().context("more faults than there are")?;
            last = Some(fault);
            bring(stage, &mut cluster, fault).with_context(|| format!("{fault:?}"))?;
        } else if let Some(pause) = line.strip_prefix(PAUSE_MARK) {
            let fault = last.context("a pause of nothing")?;
            let pause = Duration::from_millis(pause.trim().parse()?);
            println!("{fault:?}: longest pause {:.2} s", pause.as_secs_f64());
            ensure!(pause <= PAUSE_MAX, "{fault:?}: a pause of {pause:?}");
        } else if line.contains("were written") {
            println!("{line}");
        }
        Ok(())
    })?;
    ensure!(faults.len() == 0, "{} faults did not come", faults.len());
    no_panics(stage)
}

/// A fault begins, lasts, and ends; then all is whole again before the guest waits for
/// the next one.
fn bring(stage: &Stage<'_>, cluster: &mut Cluster<'_>, fault: Fault) -> Result<()> {
    let began = Instant::now();
    let what = match fault {
        Fault::Kill(victim) => {
            let name = name_of(cluster, victim)?;
            match victim {
                // It comes back with what it had, of which a part is old by then; suite
                // `cluster` has one that lost all.
                Victim::Node(_) => cluster.kill_keeping_files(&name)?,
                Victim::ServingManager | Victim::Gateway => cluster.kill(&name)?,
            }
            last();
            cluster.restart(&name)?;
            format!("{name} killed")
        }
        Fault::CutOff(victim) => {
            let name = name_of(cluster, victim)?;
            cluster.cut(&name, Cut::Both)?;
            last();
            cluster.mend(&name, Cut::Both)?;
            format!("{name} cut off")
        }
        Fault::EtcdStandsStill => {
            let all = |signal| {
                MAJORITY
                    .iter()
                    .try_for_each(|name| cluster.signal(name, signal))
            };
            all(Signal::STOP)?;
            last();
            all(Signal::CONT)?;
            "two of etcd stood still".to_owned()
        }
        Fault::Full => {
            let (netns, door) = (netns(cluster)?, door(cluster)?);
            cluster.fill("node-3", LEFT_BYTES)?;
            let filled = in_network(&netns, || fill(door))?;
            last();
            in_network(&netns, || remove(door))?;
            cluster.unfill("node-3")?;
            format!("the file system of node-3 was full, by {filled} MiB")
        }
    };
    let started = await_supervised(stage, cluster)?;
    let took = began.elapsed();
    println!(
        "{what}: all is whole after {:.1} s; started again: {}",
        took.as_secs_f64(),
        match started.is_empty() {
            true => "none".to_owned(),
            false => started.join(", "),
        }
    );
    ensure!(
        took < INTERVAL,
        "{what}: that took longer than the guest waits for the next"
    );
    Ok(())
}

/// Lets a fault last.
fn last() {
    let end = Instant::now() + LASTS;
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(rest);
    }
}

/// What the guest mounts.
fn door(cluster: &Cluster<'_>) -> Result<SocketAddr> {
    let door = cluster.virtual_doors().first().copied();
    door.context("there is no virtual address")
}

/// The network of the client's host.
fn netns(cluster: &Cluster<'_>) -> Result<String> {
    let client = cluster.of(Role::Client).next().context("no client")?;
    Ok(client.netns.clone())
}

fn name_of(cluster: &Cluster<'_>, victim: Victim) -> Result<String> {
    match victim {
        Victim::ServingManager => cluster.serving_manager(),
        Victim::Node(name) => Ok(name.to_owned()),
        Victim::Gateway => {
            let holders = cluster.holders(door(cluster)?.ip())?;
            match holders.as_slice() {
                [holder] => Ok(holder.clone()),
                _ => bail!("the address is at {holders:?}"),
            }
        }
    }
}
