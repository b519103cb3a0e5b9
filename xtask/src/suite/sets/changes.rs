//! Sets that are added to a server and retired from it while it is used: their space counts
//! at once, what lies on them moves at a bounded rate, also across a `kill -9`, and then
//! their disks may be deleted.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{DISK_BYTES, PATIENCE, list};
use crate::suite::Stage;
use crate::suite::cli::job;
use crate::suite::cli::program::{Up, crossdock, finish, text};

/// Slow enough to be seen under way: what a job writes takes seconds.
const RATE: &str = "3M";

/// A set of one such disk has no room for what the jobs write.
const SMALL_BYTES: u64 = 12 << 20;

const JOBS: [&str; 3] = ["one", "two", "three"];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    let disks = ["m1", "m2", "p1", "p2", "p3"].map(|name| stage.folder.join(name));
    for disk in &disks {
        File::create(disk)?.set_len(DISK_BYTES)?;
    }
    let small = stage.folder.join("small");
    File::create(&small)?.set_len(SMALL_BYTES)?;
    let names = disks.iter().map(|disk| text(disk));
    let names = names.collect::<Result<Vec<&str>>>()?;
    let mirror = format!("mirror:{},{}", names[0], names[1]);
    let parity = format!("parity:{},{},{}", names[2], names[3], names[4]);

    let up = start(stage, Some(&mirror))?;
    for name in JOBS {
        job::write(&up, name)?;
    }
    let before = capacity(stage, &up)?;
    up.ask(stage, &["disk", "retire", "0", "0"])?
        .expect(1, &["only one"])?;
    up.ask(
        stage,
        &["disk", "add", "0", &format!("stripe:{}", text(&small)?)],
    )?
    .json(0)?;
    let small_bytes = capacity(stage, &up)? - before;
    ensure!(small_bytes > 1 << 20, "{small_bytes} more");
    up.ask(stage, &["disk", "retire", "0", "0"])?
        .expect(1, &["no room", "disk add"])?;
    up.ask(stage, &["disk", "add", "0", &mirror])?
        .expect(1, &["is in use"])?;
    up.ask(stage, &["disk", "add", "0", &parity])?.json(0)?;
    let all = capacity(stage, &up)?;
    ensure!(all > before + DISK_BYTES, "{before} bytes, now {all}");

    // What has something on it takes a while to go, and may stay after all.
    up.ask(stage, &["disk", "retire", "0", "0"])?.json(0)?;
    up.ask(stage, &["disk", "retire", "0", "0", "--cancel"])?
        .json(0)?;
    ensure!(capacity(stage, &up)? == all, "called off");
    up.ask(stage, &["disk", "retire", "0", "1"])?.json(0)?;
    retired(stage, &up, 1)?;
    fs::remove_file(&small)?;

    up.ask(stage, &["disk", "retire", "0", "0"])?.json(0)?;
    ensure!(capacity(stage, &up)? == all - before - small_bytes, "less");
    let other = up.ask(stage, &["disk", "retire", "0", "2"])?;
    other.expect(1, &["set 0 is being retired"])?;
    moves(stage, &up)?;
    job::write(&up, "meanwhile")?;
    up.kill();
    // As it was started at first: what was added and retired since is known.
    let up = start(stage, Some(&mirror))?;
    ensure!(list(stage, &up)?["retiring"]["set"] == 0, "it is forgotten");
    retired(stage, &up, 0)?;
    up.kill();
    for disk in &disks[..2] {
        fs::remove_file(disk)?;
    }
    let up = start(stage, None)?;
    for name in JOBS.into_iter().chain(["meanwhile"]) {
        job::verify(&up, name)?;
    }
    ensure!(capacity(stage, &up)? == all - before - small_bytes, "less");
    used_again(stage, &up, &mirror, &disks)?;
    up.stop()?;
    Ok(())
}

/// The disks of a set that was retired, wiped, make another one.
fn used_again(stage: &Stage<'_>, up: &Up, mirror: &str, disks: &[PathBuf]) -> Result<()> {
    for disk in &disks[..2] {
        File::create(disk)?.set_len(DISK_BYTES)?;
    }
    let before = capacity(stage, up)?;
    let node = up.ask(stage, &["disk", "add", "0", mirror])?.json(0)?;
    ensure!(node[0]["sets"][1]["number"] == 3, "{node}");
    ensure!(capacity(stage, up)? > before, "no more room");
    job::write(up, "last")?;
    job::verify(up, "last")?;
    let twice = up.ask(stage, &["disk", "add", "1", mirror])?;
    ensure!(twice.code != 0, "there is no such node");
    finish(stage, &["disk", "add", "0", "1=mirror:/a,/b"])?.expect(1, &["names a node"])
}

fn start(stage: &Stage<'_>, spec: Option<&str>) -> Result<Up> {
    let data = stage.folder.join("changing");
    let mut words = vec!["up", "--rebuild-rate", RATE, "--data", text(&data)?];
    if let Some(spec) = spec {
        words.extend(["--disks", spec]);
    }
    Up::start(stage, crossdock(stage, &words))
}

/// What the node can hold.
fn capacity(stage: &Stage<'_>, up: &Up) -> Result<u64> {
    let status = up.ask(stage, &["status"])?.json(0)?;
    let bytes = status["nodes"][0]["capacity_bytes"].as_u64();
    bytes.with_context(|| format!("{status}"))
}

/// Waits until something has moved, and not all of it.
fn moves(stage: &Stage<'_>, up: &Up) -> Result<()> {
    waited(stage, up, |node| {
        let moved = node["retiring"]["moved_bytes"].as_u64();
        Ok(moved.context("it is over already")? > 0)
    })
}

/// Waits until a set is no more.
fn retired(stage: &Stage<'_>, up: &Up, number: u64) -> Result<()> {
    waited(stage, up, |node| {
        let sets = node["sets"].as_array().context("sets")?;
        Ok(sets.iter().all(|set| set["number"] != number))
    })
}

fn waited(stage: &Stage<'_>, up: &Up, is_so: impl Fn(&Value) -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let node = list(stage, up)?;
        if is_so(&node)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("not in time: {node}");
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}
