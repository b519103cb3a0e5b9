//! An ensemble whose hosts do not agree on the time of day: clients see no time of a
//! file or directory go back, whoever serves it, and every byte.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::{ANSWERS, await_supervised, no_panics, raise, report, serving, verify};
use crate::rig::cluster::{Cluster, Options, Role, in_network};
use crate::suite::Stage;
use crate::suite::ensemble::load::Load;

/// Gateways, managers and nodes have clocks that are 5 s fast, 5 s slow and right.
const OPTIONS: [&str; 6] = ["--nodes", "3", "--clients", "1", "--clocks", "5,-5,0"];

/// Times must have been as wrong as that, or no clock was.
const WRONG_SECONDS: u64 = 3;

/// A gateway is killed, then who serves as manager, again and again.
const TURNS: u32 = 5;

/// How long each manager serves.
const TURN: Duration = Duration::from_secs(3);

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    let mut cluster = raise(stage, Options::parse(&OPTIONS)?)?;
    let client = cluster.of(Role::Client).next().context("no client")?;
    let netns = client.netns.clone();
    in_network(&netns, || all(stage, &mut cluster))
}

fn all(stage: &Stage<'_>, cluster: &mut Cluster<'_>) -> Result<()> {
    let doors = cluster.nfs_doors();
    let load = Load::start(&doors);
    load.pause(ANSWERS)?;
    for turn in 0..TURNS {
        let name = match turn {
            0 => "gateway-0".to_owned(),
            _ => serving(cluster)?,
        };
        load.mark();
        cluster.kill(&name)?;
        let pause = load.pause(ANSWERS)?;
        load.go_on(TURN)?;
        cluster.restart(&name)?;
        await_supervised(stage, cluster)?;
        println!("{name} killed: longest answer {:.2} s", pause.as_secs_f64());
    }
    let files = load.finish()?;
    report(&files);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let latest = files.iter().filter_map(|files| files.latest_seconds());
    let latest = latest.max().context("no times were seen")?;
    ensure!(
        latest > now + WRONG_SECONDS,
        "the latest time of all is {latest}, and it is {now}: no clock was fast"
    );
    verify(&files, &doors)?;
    no_panics(stage)
}
