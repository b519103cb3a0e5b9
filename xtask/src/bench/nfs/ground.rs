//! The ground beneath the servers: how much memory they have, and what the disk and
//! the file system can do at best.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::output;

/// What all servers may use together, page cache included.
pub(super) const MEMORY_BYTES: u64 = 6 << 30;

/// Nothing of any file is in the kernel's memory any more.
pub(in crate::bench) fn drop_page_cache() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot empty the page cache")
}

/// What it costs to write 4 KiB into a file that has its blocks, and to have the
/// disk hold it: the median, on the file system of `folder`.
pub(super) fn durable_write(folder: &Path) -> Result<Duration> {
    const WRITES: u64 = 300;
    const BLOCK: usize = 4096;
    let path = folder.join("floor");
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)?;
    let block = [0x5a; BLOCK];
    for number in 0..WRITES {
        file.write_all_at(&block, number * BLOCK as u64)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for number in 0..WRITES {
        let begun = Instant::now();
        file.write_all_at(&block, number * BLOCK as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    fs::remove_file(&path)?;
    Ok(median(times))
}

/// What making an empty file costs in `folder`, without any server: above
/// [`SLOW_CREATE`] the file system itself is slow at this moment.
pub(super) fn local_create(folder: &Path) -> Result<Duration> {
    const FILES: u32 = 200;
    let folder = folder.join("local-create");
    fs::create_dir_all(&folder)?;
    let mut times = Vec::new();
    for number in 0..FILES {
        let path = folder.join(number.to_string());
        let begun = Instant::now();
        File::create_new(&path)?;
        times.push(begun.elapsed());
    }
    fs::remove_dir_all(&folder)?;
    Ok(median(times))
}

/// A row is marked where making a file costs more.
pub(super) const SLOW_CREATE: Duration = Duration::from_micros(50);

/// Reads of 4 KiB here and there that fio does in a second, past the page cache.
pub(in crate::bench) fn fio_cold(
    file: &Path,
    depth: u32,
    span_bytes: u64,
    seconds: f64,
) -> Result<f64> {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=cold",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--ioengine=io_uring",
        "--time_based",
        "--output-format=json",
    ]);
    fio.arg(format!("--filename={}", file.display()));
    fio.arg(format!("--iodepth={depth}"));
    fio.arg(format!("--size={span_bytes}"));
    fio.arg(format!("--runtime={}ms", (seconds * 1e3).round()));
    let printed: Value = serde_json::from_str(&output(&mut fio)?)?;
    let rate = printed["jobs"][0]["read"]["iops"].as_f64();
    rate.context("fio says no rate")
}

/// Bytes per second of fio on a file of `span_bytes` in `folder`.
pub(super) fn fio_read(folder: &Path, size_bytes: u64, depth: u32, span_bytes: u64) -> Result<f64> {
    let file = folder.join("fio");
    if !file.exists() {
        let mut whole = File::create_new(&file)?;
        let block = vec![0x5a; 1 << 20];
        for _ in 0..span_bytes >> 20 {
            whole.write_all(&block)?;
        }
        whole.sync_all()?;
    }
    let mut fio = Command::new("fio");
    fio.args([
        "--name=cold",
        "--rw=read",
        "--direct=1",
        "--ioengine=io_uring",
    ]);
    fio.arg(format!("--filename={}", file.display()));
    fio.arg(format!("--bs={size_bytes}"));
    fio.arg(format!("--iodepth={depth}"));
    fio.arg(format!("--size={span_bytes}"));
    fio.arg("--output-format=json");
    let printed: Value = serde_json::from_str(&output(&mut fio)?)?;
    let rate = printed["jobs"][0]["read"]["bw_bytes"].as_f64();
    rate.context("fio says no rate")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// System calls that processes have made while `command` ran, counted by the kernel's
/// trace point; `command` is run by `perf stat`.
pub(in crate::bench) fn counting_calls(pids: &[u32], counts: &Path, command: &Command) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"]);
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    perf.arg(pids.join(",")).arg("-o").arg(counts).arg("--");
    perf.arg(command.get_program()).args(command.get_args());
    perf
}

/// What [`counting_calls`] has counted.
pub(in crate::bench) fn counted_calls(counts: &Path) -> Result<f64> {
    let text = fs::read_to_string(counts)?;
    let line = text.lines().find(|line| line.contains("sys_enter"));
    let count = line.and_then(|line| line.split(',').next());
    let count: f64 = count.context("perf has counted nothing")?.parse()?;
    ensure!(count.is_finite(), "perf has counted {count}");
    Ok(count)
}
