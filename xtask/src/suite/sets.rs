//! Disk sets at the released program, on files: a member fails under a server that goes on,
//! a spare takes its place while progress is told, a killed server finds everything again,
//! a disk that is gone is replaced, and what is not of the sets is refused. Sets come and go
//! under it, too, and what nobody reads is compared.

mod changes;
mod scrub;

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Stage;
use super::cli::job;
use super::cli::program::{Up, crossdock, finish, text};

/// Bytes of a disk.
const DISK_BYTES: u64 = 128 << 20;

/// Slow enough to be seen under way.
const REBUILD_RATE: &str = "16M";

/// How long a rebuild may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let disks = ["a", "b", "c", "d", "e", "spare", "new"].map(|name| stage.folder.join(name));
    for disk in &disks {
        File::create(disk)?.set_len(DISK_BYTES)?;
    }
    let name = |number: usize| text(&disks[number]);
    let spec = format!(
        "mirror:{},{};parity:{},{},{};spare:{}",
        name(0)?,
        name(1)?,
        name(2)?,
        name(3)?,
        name(4)?,
        name(5)?
    );
    refusals(stage, &disks)?;
    let up = start(stage, Some(&spec))?;
    job::write(&up, "first")?;
    job::verify(&up, "first")?;
    member_fails(stage, &up, name(4)?, name(5)?)?;
    up.kill();

    // Which disks it has it knows without being told.
    let up = start(stage, None)?;
    job::verify(&up, "first")?;
    ensure!(lacking(&list(stage, &up)?) == 0, "a set lacks a disk");
    up.stop()?;

    fs::remove_file(&disks[0])?;
    let up = start(stage, None)?;
    ensure!(lacking(&list(stage, &up)?) == 1, "a disk is gone");
    job::verify(&up, "first")?;
    job::write(&up, "second")?;
    let needed = up.ask(stage, &["disk", "fail", name(1)?])?;
    ensure!(needed.code == 1, "the last copy was given up");
    up.ask(stage, &["disk", "replace", name(0)?, name(6)?])?
        .json(0)?;
    rebuilt(stage, &up, name(6)?)?;
    job::verify(&up, "first")?;
    up.stop()?;

    // The new one has all that the old one of the mirror has.
    fs::remove_file(&disks[1])?;
    let up = start(stage, None)?;
    job::verify(&up, "first")?;
    job::verify(&up, "second")?;
    up.stop()?;
    changes::run(stage)?;
    scrub::run(stage)
}

fn start(stage: &Stage<'_>, spec: Option<&str>) -> Result<Up> {
    let data = stage.folder.join("data");
    let mut words = vec!["up", "--rebuild-rate", REBUILD_RATE, "--data", text(&data)?];
    if let Some(spec) = spec {
        words.extend(["--disks", spec]);
    }
    Up::start(stage, crossdock(stage, &words))
}

fn list(stage: &Stage<'_>, up: &Up) -> Result<Value> {
    let nodes = up.ask(stage, &["disk", "list"])?.json(0)?;
    ensure!(nodes[0]["node"] == 0, "{nodes}");
    Ok(nodes[0].clone())
}

fn lacking(node: &Value) -> u64 {
    let sets = node["sets"].as_array().into_iter().flatten();
    sets.filter_map(|set| set["lacking"].as_u64()).sum()
}

/// A member is taken out; everything is read and written while its place is filled.
fn member_fails(stage: &Stage<'_>, up: &Up, victim: &str, spare: &str) -> Result<()> {
    up.ask(stage, &["disk", "fail", victim])?.json(0)?;
    up.ask(stage, &["disk", "rebuild", "pause"])?.json(0)?;
    let node = list(stage, up)?;
    let set = &node["sets"][1];
    ensure!(
        node["is_paused"] == true && set["members"][2]["name"] == spare,
        "{node}"
    );
    ensure!(set["members"][2]["state"] == "rebuilding", "{node}");
    ensure!(node["failed"][0]["name"] == victim, "{node}");
    job::verify(up, "first")?;
    job::write(up, "degraded")?;
    job::verify(up, "degraded")?;
    up.ask(stage, &["disk", "rebuild", "resume"])?.json(0)?;
    rebuilt(stage, up, spare)?;
    job::verify(up, "first")?;
    job::verify(up, "degraded")
}

/// Waits until a disk has all that it should have; its progress never goes back.
fn rebuilt(stage: &Stage<'_>, up: &Up, disk: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut seen) = (0, 0);
    loop {
        let node = list(stage, up)?;
        let sets = node["sets"].as_array().context("sets")?;
        let set = sets.iter().find(|set| {
            let mut members = set["members"].as_array().into_iter().flatten();
            members.any(|member| member["name"] == disk)
        });
        let set = set.with_context(|| format!("{disk} is in no set: {node}"))?;
        let Some(done) = set["rebuild"]["done_bytes"].as_u64() else {
            ensure!(set["lacking"] == 0, "{node}");
            ensure!(seen > 0, "the rebuild was never seen under way");
            return Ok(());
        };
        let total = set["rebuild"]["total_bytes"].as_u64().context("total")?;
        ensure!(last <= done && done <= total, "{node}");
        ensure!(set["rebuild"]["unreadable_stripes"] == 0, "{node}");
        (last, seen) = (done, seen + 1);
        if Instant::now() > deadline {
            bail!("not rebuilt in time: {node}");
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// What is not of the sets is refused, and nothing is made.
fn refusals(stage: &Stage<'_>, disks: &[PathBuf]) -> Result<()> {
    let data = stage.folder.join("refused");
    let foreign = stage.folder.join("foreign");
    fs::write(&foreign, vec![7; 32 << 20])?;
    let (good, foreign) = (text(&disks[0])?, text(&foreign)?);
    let up = |spec: String| {
        let words = ["up", "--data", text(&data)?, "--disks", &spec];
        finish(stage, &words)
    };
    up(format!("mirror:{good},{foreign}"))?.expect(1, &[foreign, "not of a disk set"])?;
    let nowhere = format!("{foreign}-nowhere");
    up(format!("mirror:{good},{nowhere}"))?.expect(1, &[&nowhere, "cannot be read"])?;
    up(format!("mirror:{good}"))?.expect(2, &["2 to 8 disks"])?;
    up(format!("raid:{good}"))?.expect(2, &["stripe|mirror|parity|spare"])?;
    let head = fs::read(good)?;
    ensure!(head.iter().all(|&byte| byte == 0), "a refusal has written");
    Ok(())
}
