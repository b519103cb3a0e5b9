//! Blocks that are given back: the pool's space, and what is told of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Disk;

/// How long space may take to be free: a node frees it when its journal says so.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

const MIB: u64 = 1 << 20;

pub(super) fn check(disk: &Disk<'_>) -> Result<()> {
    let url = disk.lun("holes", &[])?;
    let empty = free_bytes(disk)?;
    ensure!(
        runs(disk, &url)?.iter().all(|run| run.1 <= 64 << 10),
        "it is not thin"
    );
    disk.output(
        "qemu-io",
        &["-f", "raw", &url, "-c", "write -P 7 16M 64M", "-c", "flush"],
    )?;
    let full = free_bytes(disk)?;
    ensure!(full + 64 * MIB <= empty, "{full} free of {empty}");
    let said = disk.output(
        "qemu-io",
        &[
            "-f",
            "raw",
            &url,
            "-c",
            "discard 20M 48M",
            "-c",
            "write -z -u 72M 4M",
            "-c",
            "read -P 7 16M 4M",
            "-c",
            "read -P 0 20M 48M",
            "-c",
            "read -P 7 68M 4M",
            "-c",
            "read -P 0 72M 4M",
            "-c",
            "read -P 7 76M 4M",
        ],
    )?;
    ensure!(!said.contains("failed"), "{said}");
    // Of what was written 52 MiB are holes now.
    let wanted = full + 50 * MIB;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let free = free_bytes(disk)?;
        if free >= wanted {
            break;
        }
        ensure!(Instant::now() < deadline, "{free} free, not {wanted}");
        std::thread::park_timeout(PAUSE);
    }
    let told = runs(disk, &url)?;
    let told: Vec<(u64, u64)> = told.into_iter().filter(|run| run.0 >= 16 * MIB).collect();
    let there = [
        (16 * MIB, 4 * MIB),
        (68 * MIB, 4 * MIB),
        (76 * MIB, 4 * MIB),
    ];
    ensure!(told == there, "these have space: {told:?}");
    Ok(())
}

/// Bytes that new data can take, at all nodes.
fn free_bytes(disk: &Disk<'_>) -> Result<u64> {
    let status = disk.up.ask(disk.stage, &["status"])?.json(0)?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    let free = nodes.iter().map(|node| node["free_bytes"].as_u64());
    free.sum::<Option<u64>>().context("no free bytes")
}

/// Where the unit has space, and how much, as QEMU is told.
fn runs(disk: &Disk<'_>, url: &str) -> Result<Vec<(u64, u64)>> {
    let said = disk.output("qemu-img", &["map", "--output=json", "-f", "raw", url])?;
    let map: Value = serde_json::from_str(&said)?;
    let parts = map.as_array().context("no map")?;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for part in parts.iter().filter(|part| part["data"] == true) {
        let number = |name: &str| {
            part[name]
                .as_u64()
                .with_context(|| format!("no {name}: {part}"))
        };
        let (start, length) = (number("start")?, number("length")?);
        match runs.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += length,
            _ => runs.push((start, length)),
        }
    }
    Ok(runs)
}
