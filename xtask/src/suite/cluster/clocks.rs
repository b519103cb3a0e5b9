//! An ensemble whose hosts do not agree on the time of day: clients see no time of a
//! file or directory go back, whoever serves it, and every byte.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{ANSWERS, LOOK_EVERY, at_client, await_supervised, finish, raise};
use crate::rig::cluster::{Cluster, Options, Role};
use crate::suite::Stage;
use crate::suite::ensemble::load::{Files, Load};

/// Gateways, managers and nodes have clocks that are 5 s fast, 5 s slow and right.
const OPTIONS: [&str; 6] = ["--nodes", "3", "--clients", "1", "--clocks", "5,-5,0"];

/// Times must have been as wrong as that, or no clock was.
const WRONG_SECONDS: u64 = 3;

/// A gateway is killed, then who serves as manager, again and again.
const TURNS: u32 = 5;

/// How long each manager serves.
const TURN: Duration = Duration::from_secs(4);

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    let mut cluster = raise(stage, Options::parse(&OPTIONS)?)?;
    at_client(&mut cluster, |cluster| all(stage, cluster))
}

fn all(stage: &Stage<'_>, cluster: &mut Cluster<'_>) -> Result<()> {
    let seen = await_clocks(stage, cluster)?;
    println!("a manager's status shows clocks that are {seen:?} ms ahead of its own");
    let doors = cluster.nfs_doors();
    let load = Load::start("client", &doors);
    load.pause(ANSWERS)?;
    for turn in 0..TURNS {
        let name = match turn {
            0 => "gateway-0".to_owned(),
            _ => cluster.serving_manager()?,
        };
        load.mark();
        cluster.kill(&name)?;
        let pause = load.pause(ANSWERS)?;
        load.go_on(TURN)?;
        cluster.restart(&name)?;
        await_supervised(stage, cluster)?;
        println!("{name} killed: {pause}");
        pause.judge(&format!("{name} killed"))?;
    }
    let files = finish(stage, load, &doors)?;
    let wrong = files.iter().map(Files::wrong_seconds).max();
    let wrong = wrong.context("there are no clients")?;
    ensure!(
        wrong >= WRONG_SECONDS,
        "no time was off by more than {wrong} s: no clock was wrong"
    );
    println!("times were off by up to {wrong} s, and none has gone back");
    Ok(())
}

/// Waits until a manager's status shows how wrong the others' clocks are; in milliseconds.
fn await_clocks(stage: &Stage<'_>, cluster: &Cluster<'_>) -> Result<Vec<i64>> {
    let manager = &cluster.of(Role::Manager).next().context("no manager")?.name;
    let is_wrong = |ahead: &i64| ahead.unsigned_abs() > 1000;
    loop {
        let status = cluster.status(manager)?;
        let hosts = status["hosts"].as_array().context("no list of hosts")?;
        let ahead: Vec<i64> = hosts
            .iter()
            .filter_map(|host| host["clock_ahead_ms"].as_i64())
            .collect();
        let warnings = status["warnings"].as_array().context("no warnings")?;
        let told = warnings.iter().filter_map(|it| it.as_str());
        let told = told
            .filter(|it| it.starts_with("the clock of host"))
            .count();
        let wrong = ahead.iter().filter(|it| is_wrong(it)).count();
        let are_known = ahead.len() + 1 == hosts.len();
        if are_known && wrong > 0 && told == wrong {
            let off = |ahead: &i64| (ahead.rem_euclid(5000) + 500) % 5000;
            ensure!(
                ahead.iter().all(|ahead| off(ahead) < 1000),
                "clocks are ahead by {ahead:?} ms, not by multiples of 5 s"
            );
            return Ok(ahead);
        }
        ensure!(
            Instant::now() < stage.deadline,
            "status: clocks {ahead:?}, {told} warnings"
        );
        thread::park_timeout(LOOK_EVERY);
    }
}
