//! The same load by fio.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::ours;
use crate::rows::{BESIDE_BYTES, BESIDE_FLUSH_BYTES, COMMIT_BYTES, FILE_BYTES, Journal, Load, Row};

/// One round of a row by fio, in its unit.
pub(crate) fn measure(row: &Row, dir: &Path, length: Duration) -> Result<f64> {
    let mut arguments: Vec<String> = [
        "--output-format=json",
        "--ioengine=io_uring",
        "--direct=1",
        "--time_based",
        "--fallocate=none",
        "--allow_file_create=1",
        "--randrepeat=0",
        "--lat_percentiles=1",
        "--refill_buffers=0",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--runtime={}", length.as_secs()));
    match row.load {
        Load::Commit {
            journal,
            beside_mb_per_second,
            ..
        } => commit_arguments(&mut arguments, dir, journal, beside_mb_per_second)?,
        Load::Io {
            is_write,
            is_random,
            bytes,
            depth,
        } => {
            let path = ours::io_file(dir)?;
            let kind = match (is_random, is_write) {
                (true, true) => "randwrite",
                (true, false) => "randread",
                (false, true) => "write",
                (false, false) => "read",
            };
            arguments.extend([
                "--name=io".to_owned(),
                format!("--filename={}", path.display()),
                format!("--filesize={FILE_BYTES}"),
                "--overwrite=1".to_owned(),
                format!("--rw={kind}"),
                format!("--bs={bytes}"),
                format!("--iodepth={depth}"),
            ]);
        }
    }
    let report = run(&arguments)?;
    let job = &report["jobs"][0];
    match row.load {
        Load::Commit { .. } => {
            let median = |lat: &Value| lat["percentile"]["50.000000"].as_f64();
            let write = median(&job["write"]["lat_ns"]);
            let sync = median(&job["sync"]["lat_ns"]);
            let sum = write.zip(sync).map(|(write, sync)| (write + sync) / 1e3);
            sum.context("fio's report has no percentiles")
        }
        Load::Io { is_write, .. } => {
            let side = if is_write { "write" } else { "read" };
            let rate = job[side]["bw_bytes"].as_f64();
            Ok(rate.context("fio's report has no rate")? / 1e6)
        }
    }
}

fn commit_arguments(
    arguments: &mut Vec<String>,
    dir: &Path,
    journal: Journal,
    beside_mb_per_second: u64,
) -> Result<()> {
    let path = ours::journal_file(dir, journal)?;
    arguments.extend([
        "--name=commit".to_owned(),
        format!("--filename={}", path.display()),
        format!("--filesize={FILE_BYTES}"),
        "--rw=write".to_owned(),
        format!("--bs={COMMIT_BYTES}"),
        "--iodepth=1".to_owned(),
        "--fdatasync=1".to_owned(),
    ]);
    arguments.push(match journal {
        Journal::Growing => "--file_append=0".to_owned(),
        _ => "--overwrite=1".to_owned(),
    });
    if beside_mb_per_second > 0 {
        let path = dir.join("data");
        if path.exists() {
            std::fs::remove_file(&path).context("cannot remove the data of the round before")?;
        }
        arguments.extend([
            "--name=data".to_owned(),
            format!("--filename={}", path.display()),
            format!("--filesize={FILE_BYTES}"),
            "--rw=write".to_owned(),
            format!("--bs={BESIDE_BYTES}"),
            "--iodepth=8".to_owned(),
            format!("--rate={}", beside_mb_per_second * 1_000_000),
            "--overwrite=0".to_owned(),
            format!("--fdatasync={}", BESIDE_FLUSH_BYTES / BESIDE_BYTES as u64),
        ]);
    }
    Ok(())
}

fn run(arguments: &[String]) -> Result<Value> {
    let output = Command::new("fio").args(arguments).output();
    let output = output.context("cannot run fio: is it installed?")?;
    ensure!(
        output.status.success(),
        "fio failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Warnings may stand before the document.
    let start = output.stdout.iter().position(|&byte| byte == b'{');
    let document = start.and_then(|start| output.stdout.get(start..));
    Ok(serde_json::from_slice(document.unwrap_or_default())?)
}
