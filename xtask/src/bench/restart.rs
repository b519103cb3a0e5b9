//! `bench restart`: what a start costs after a kill under load, with many runs
//! on the nodes and with few. The load before the kill is the same, so what was
//! in flight is about the same; only what is allocated differs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Options;
use super::cpu;
use super::document::Document;
use super::figures::Spread;
use crate::paths::Paths;
use crate::process::{Lines, Running, output, program, run as run_program, run_logged};

/// Runs of one block each that the nodes have in all.
const MANY: u64 = 1_000_000;
/// The same for the one it is compared with.
const FEW: u64 = 10_000;
const BLOCK_BYTES: u64 = 4096;
/// How long the nodes are written to before a kill.
const LOADED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(600);
/// Name of the one file.
const NAME: &str = "restart";

/// Builds what is measured, measures it and keeps the result.
pub(super) fn run(paths: &Paths, options: &Options) -> Result<bool> {
    let mut build = crate::process::cargo();
    build.args(["build", "--release", "--bin", "crossdock-load"]);
    build.args(["--bin", "crossdock"]);
    run_program(build.current_dir(&paths.root))?;
    let rounds = if options.full { 9 } else { 3 };
    let folder = paths.test_data().join("bench-restart");
    let measured = measure(paths, &folder, rounds);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut document = Document::open(paths, "restart", options.full, false)?;
    document.add(measured?)?;
    document.announce();
    Ok(true)
}

/// Both pools are filled, then killed and started again in turn.
fn measure(paths: &Paths, folder: &Path, rounds: usize) -> Result<Vec<Value>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let pools = [MANY, FEW].map(|runs| Pool {
        paths,
        data: folder.join(runs.to_string()),
        runs,
    });
    for pool in &pools {
        pool.fill()?;
    }
    let mut samples: [Vec<Sample>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (pool, samples) in pools.iter().zip(&mut samples) {
            let sample = pool.kill_and_start()?;
            eprintln!("{} runs: {sample:?}", pool.runs);
            samples.push(sample);
        }
    }
    let allocated = pools[0].allocated_runs()?;
    ensure!(allocated >= MANY, "only {allocated} runs were allocated");
    let row =
        |name, unit, figure: fn(&Sample) -> f64| row((name, unit), allocated, &samples, figure);
    Ok(vec![
        row("start", "s", |sample| sample.seconds),
        row("start-cpu", "CPU s", |sample| sample.cpu_seconds),
        row("start-read", "MB read", |sample| sample.read_megabytes),
    ])
}

/// What one start took until the doors were open.
#[derive(Debug)]
struct Sample {
    seconds: f64,
    cpu_seconds: f64,
    /// From disks, by all threads.
    read_megabytes: f64,
}

fn row(
    (name, unit): (&str, &str),
    allocated: u64,
    samples: &[Vec<Sample>; 2],
    figure: fn(&Sample) -> f64,
) -> Value {
    let [many, few] = samples
        .each_ref()
        .map(|it| Spread::of(it.iter().map(figure)));
    let mut peer = few.json();
    peer["name"] = json!(format!("the same with {FEW} runs"));
    json!({
        "row": name,
        "variant": format!("start after a kill under load: {allocated} runs, half of them overwritten"),
        "unit": unit,
        "ours": many.json(),
        "peer": peer,
        "ratio": few.median / many.median,
        "goal": null,
        "met": null,
    })
}

/// Data of an all-in-one system.
struct Pool<'paths> {
    paths: &'paths Paths,
    data: PathBuf,
    runs: u64,
}

impl Pool<'_> {
    /// Makes all runs and overwrites every second of them.
    fn fill(&self) -> Result<()> {
        let (server, address) = self.start()?;
        let log = self.log();
        let deadline = Instant::now() + PATIENCE;
        let fill = self.load(&address, self.runs, &[]);
        run_logged(fill, &log, deadline)?;
        let overwrite = self.load(&address, self.runs / 2, &["--again"]);
        run_logged(overwrite, &log, deadline)?;
        drop(server); // Killed.
        Ok(())
    }

    /// Starts, loads, kills; starts again with a watch.
    fn kill_and_start(&self) -> Result<Sample> {
        let (server, address) = self.start()?;
        let load = self.load(&address, 1 << 40, &["--again"]);
        let (load, lines) = Running::start_with_lines(load, &self.log())?;
        // It prints when it ends, which is not before the server does.
        let ended = lines.next(Instant::now() + LOADED);
        ensure!(ended.is_err(), "the load has ended: {ended:?}");
        lines.ignore();
        drop(server);
        drop(load);
        let before = Instant::now();
        let (server, _) = self.start()?;
        let seconds = before.elapsed().as_secs_f64();
        let io = format!("/proc/{}/io", server.pid());
        Ok(Sample {
            seconds,
            cpu_seconds: cpu::seconds(server.pid())?,
            read_megabytes: read_megabytes(&fs::read_to_string(io)?)?,
        })
    }

    /// Ready to serve; where it does.
    fn start(&self) -> Result<(Running, String)> {
        let mut command = program(self.paths.release_binary());
        command.arg("up").arg("--data").arg(&self.data);
        command.args(["--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args([
            "--http", "off", "--iscsi", "off", "--ibp", "off", "--lbone", "off",
        ]);
        command.stdin(Stdio::null());
        let (running, lines) = Running::start_with_lines(command, &self.log())?;
        let address = door(&lines)?;
        lines.ignore();
        Ok((running, address))
    }

    fn load(&self, address: &str, count: u64, more: &[&str]) -> Command {
        let mut command = program(self.paths.target.join("release/crossdock-load"));
        command.args(["run", "--work", "scatter", "--keep", "--name", NAME]);
        command.arg(format!("--server={address}"));
        command.args(["--outstanding", "64", "--seconds", "500"]);
        for (flag, value) in [
            ("--count", count),
            ("--size", BLOCK_BYTES),
            ("--span", 2 * self.runs * BLOCK_BYTES),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.args(more);
        command
    }

    /// As the offline check counts them; it must find nothing wrong.
    fn allocated_runs(&self) -> Result<u64> {
        let mut runs = 0;
        for entry in fs::read_dir(&self.data)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("node-") {
                continue;
            }
            let mut fsck = program(self.paths.release_binary());
            fsck.args(["fsck", "--json", "--node"]).arg(&path);
            let report: Value = serde_json::from_str(&output(&mut fsck)?)?;
            runs += report["runs"].as_u64().context("fsck tells no runs")?;
        }
        Ok(runs)
    }

    fn log(&self) -> PathBuf {
        self.paths.logs().join("bench-restart.log")
    }
}

/// Waits until the server says where its NFS door is.
fn door(lines: &Lines) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    while let Some(line) = lines.next(deadline)? {
        if let Some(address) = line.strip_prefix("nfs ") {
            return Ok(address.to_owned());
        }
    }
    anyhow::bail!("the server ended before it was ready")
}

fn read_megabytes(io: &str) -> Result<f64> {
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    let bytes: f64 = line.context("no read_bytes")?.parse()?;
    Ok(bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's text is read right.
    #[test]
    fn process_figures_are_read() {
        let io = "rchar: 1\nread_bytes: 2000000\nwrite_bytes: 5\n";
        assert!((read_megabytes(io).unwrap() - 2.0).abs() < 1e-9);
    }
}
