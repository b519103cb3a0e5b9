//! Crossdock on disks that fail, with a kernel's own fault layer: the server
//! runs in a guest, whose device mapper lies below its data (tests/kernel/
//! disk-faults.sh, disk-alone.sh, disk-full.sh, log-writes.sh).

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::process::{output, program, run_logged};
use crate::rig::guest::{self, Job};
use crate::rig::network::Network;

const MIB: u64 = 1 << 20;

/// Two nodes' devices, and a small one.
const DISKS_MIB: [u64; 3] = [1500, 700, 260];

/// The device whose writes are recorded, and the record.
const RECORDED_MIB: u64 = 260;
const RECORD_MIB: u64 = 3000;

/// Steps that the workload takes, and moments that are looked at.
struct Extent {
    steps: u32,
    points: u32,
}

/// Reads and writes that fail, bytes that change, writes that get lost.
pub(super) fn faults(stage: &Stage<'_>) -> Result<()> {
    let disks = make_disks(stage, &DISKS_MIB)?;
    script(stage, "disk-faults.sh", Vec::new(), disks)
}

/// The same with one copy: errors, and never other bytes.
pub(super) fn alone(stage: &Stage<'_>) -> Result<()> {
    let disks = make_disks(stage, &DISKS_MIB)?;
    script(stage, "disk-alone.sh", Vec::new(), disks)
}

/// No room, in the volume and in the file system below.
pub(super) fn full(stage: &Stage<'_>) -> Result<()> {
    let disks = make_disks(stage, &DISKS_MIB)?;
    script(stage, "disk-full.sh", Vec::new(), disks)
}

/// Every write and flush of the device is recorded; the device as it was at many
/// of its flushes holds what had been acknowledged by then.
pub(super) fn log_writes(stage: &Stage<'_>) -> Result<()> {
    replay(
        stage,
        &Extent {
            steps: 24,
            points: 40,
        },
    )
}

pub(super) fn log_writes_long(stage: &Stage<'_>) -> Result<()> {
    replay(
        stage,
        &Extent {
            steps: 40,
            points: 240,
        },
    )
}

fn replay(stage: &Stage<'_>, extent: &Extent) -> Result<()> {
    let disks = make_disks(stage, &[RECORDED_MIB, RECORD_MIB])?;
    let random = stage.folder.join("random");
    let mut make = program("dd");
    make.args(["if=/dev/urandom", "bs=64k", "count=32", "status=none"]);
    make.arg(format!("of={}", random.display()));
    run_logged(make, &stage.log, stage.deadline)?;
    let inner = random.strip_prefix(&stage.paths.target)?;
    let variables = vec![
        ("RANDOM_FILE", format!("/run/target/{}", inner.display())),
        ("STEPS", extent.steps.to_string()),
    ];
    let record = disks.last().context("the record's file")?.clone();
    script(stage, "log-writes.sh", variables, disks)?;

    // Mounts of its own, in a network of its own: nothing is left behind.
    let network = Network::new()?;
    let mut command = network.program("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--"]);
    command.arg(stage.paths.target.join("release/crossdock-tests-replay"));
    command.arg("--server").arg(stage.paths.release_binary());
    command.arg("--record").arg(record);
    command.arg("--random").arg(random);
    command.args(["--device-bytes", &(RECORDED_MIB * MIB).to_string()]);
    command.arg("--folder").arg(stage.folder.join("replay"));
    command.args(["--points", &extent.points.to_string()]);
    run_logged(command, &stage.log, stage.deadline)?;
    let said = output(Command::new("tail").arg("-n1").arg(&stage.log))?;
    println!("{said}");
    Ok(())
}

fn script(
    stage: &Stage<'_>,
    name: &str,
    mut variables: Vec<(&str, String)>,
    disks: Vec<PathBuf>,
) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    variables.push(("PROGRAM", "/run/target/release/crossdock".to_owned()));
    let job = Job {
        script: name,
        variables,
        disks,
        log: &stage.log,
        deadline: stage.deadline,
    };
    let code = guest::run_job(stage.paths, &network, &job, |line| {
        if line.starts_with("guest kernel ") {
            println!("{line}");
        }
        Ok(())
    })?;
    ensure!(code == 0, "{name} failed with {code}");
    Ok(())
}

/// Sparse files of those sizes.
fn make_disks(stage: &Stage<'_>, sizes_mib: &[u64]) -> Result<Vec<PathBuf>> {
    let mut disks = Vec::new();
    for (number, size) in sizes_mib.iter().enumerate() {
        let path = stage.folder.join(format!("disk-{number}"));
        File::create(&path)?.set_len(size * MIB)?;
        disks.push(fs::canonicalize(path)?);
    }
    Ok(disks)
}
