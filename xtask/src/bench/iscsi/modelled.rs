//! On modelled disks with one arm each (bench/slowdisk), whose reads and writes take what an
//! arm takes: one to four sets striped into one space, kinds of sets, sequential files with and
//! without what iNAS gains by (its figure 5), and one disk before and after the defragmenter. The node's journal is on the machine's own disk.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contestant::{LUN_BYTES, Ours};
use super::{Flags, flag};
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::install;
use crate::paths::Paths;
use crate::process::{Running, open_log, output, program};
use crate::rig::Life;
use crate::rig::slowdisk::{self, Slowdisk};

/// The rows.
pub(super) const SETS: &str = "sets";
pub(super) const FILES: &str = "sequential-files";
pub(super) const DEFRAG: &str = "defrag";

/// Bytes of a disk.
const DISK_BYTES: u64 = 1 << 30;
/// Of a request in sequence, and how many are outstanding.
const REQUEST_BYTES: u64 = 1 << 20;
const OUTSTANDING: u32 = 16;
/// For how long the unit is written over here and there before the defragmenter comes, on a disk
/// that takes no time: some three times all of it.
const OVERWRITE_SECONDS: f64 = 10.0;
/// How long a pass may take.
const PASS_PATIENCE: Duration = Duration::from_secs(300);

/// Pools that are measured: a name, and how many disks each of their sets has and of what kind.
const POOLS: [(&str, &[(&str, usize)]); 6] = [
    ("1 disk", &[("stripe", 1)]),
    ("2 sets of 1 disk", &[("stripe", 1); 2]),
    ("3 sets of 1 disk", &[("stripe", 1); 3]),
    ("4 sets of 1 disk", &[("stripe", 1); 4]),
    ("a mirror of 2 disks", &[("mirror", 2)]),
    ("parity over 3 disks", &[("parity", 3)]),
];

/// Pools of sequential files: a name, how many sets of one disk, and whether zero copy is on
/// (iNAS, figure 5).
const MECHANISMS: [(&str, usize, bool); 4] = [
    ("neither", 1, false),
    ("zero copy", 1, true),
    ("4 sets", 4, false),
    ("4 sets and zero copy", 4, true),
];

/// Bytes of a file, and of all that are read or written in a run.
pub(super) const FILE_SIZES: [u64; 5] = [64 << 10, 512 << 10, 1 << 20, 10 << 20, 100 << 20];
const FILES_BYTES: u64 = 400 << 20;

/// The paper's gains of striping with zero copy.
const GOALS: [(&str, f64); 2] = [("read", 3.8), ("write", 4.3)];

/// A pool on disks of its own.
struct Pool {
    ours: Ours,
    disks: Vec<Slowdisk>,
}

impl Pool {
    fn start(paths: &Paths, folder: &Path, sets: &[(&str, usize)]) -> Result<Self> {
        let pool = Self::empty(paths, folder, sets, true)?;
        pool.ours.block.fill(paths)?;
        Ok(pool)
    }

    /// One with nothing on its disks.
    fn empty(
        paths: &Paths,
        folder: &Path,
        sets: &[(&str, usize)],
        zero_copy: bool,
    ) -> Result<Self> {
        let mut disks = Vec::new();
        let mut spec = Vec::new();
        for (kind, count) in sets {
            let mut members = Vec::new();
            for _ in 0..*count {
                let at = folder.join(format!("disk-{}", disks.len()));
                let disk = Slowdisk::up(paths, &at, DISK_BYTES, Life::OfXtask)?;
                members.push(disk.device()?.to_owned());
                disks.push(disk);
            }
            spec.push(format!("{kind}:{}", members.join(",")));
        }
        let spec = spec.join(";");
        // What is read in sequence again and again is never in memory.
        let zero_copy = if zero_copy { "on" } else { "off" };
        let more = ["--disks", &spec, "--cache", "32M", "--zero-copy", zero_copy];
        let ours = Ours::start_with(paths, folder, &more)?;
        Ok(Self { ours, disks })
    }

    fn pace(&self, is_paced: bool) -> Result<()> {
        self.disks.iter().try_for_each(|disk| disk.pace(is_paced))
    }

    /// MB per second of work on the disks.
    fn rate(&self, paths: &Paths, work: &str, seconds: f64) -> Result<f64> {
        let figures = self.work(paths, &sequential(work, seconds))?;
        Ok(number(&figures, "bytes")? / 1e6 / number(&figures, "seconds")?)
    }

    fn work(&self, paths: &Paths, flags: &Flags) -> Result<Value> {
        self.pace(true)?;
        let figures = self.ours.block.load(paths, flags);
        self.pace(false)?;
        figures
    }
}

fn sequential(work: &str, seconds: f64) -> Flags {
    let mut flags = vec![
        flag("--work", work),
        flag("--size", REQUEST_BYTES),
        flag("--outstanding", OUTSTANDING),
        flag("--span", LUN_BYTES),
        flag("--seconds", seconds),
    ];
    if work == "write" {
        flags.push(flag("--flush", ""));
    }
    flags
}

/// What the rows need beside the program.
fn prepare(paths: &Paths) -> Result<()> {
    install::debian(&["e2fsprogs", "mount", "util-linux"])?;
    slowdisk::build(paths)
}

/// Each pool beside one disk, in turn, several rounds.
pub(super) fn sets(
    paths: &Paths,
    folder: &Path,
    (rounds, seconds): (usize, f64),
) -> Result<Vec<Value>> {
    prepare(paths)?;
    let mut pools = Vec::new();
    for (number, (_, sets)) in POOLS.iter().enumerate() {
        pools.push(Pool::start(
            paths,
            &folder.join(format!("pool-{number}")),
            sets,
        )?);
    }
    let mut rates = vec![[const { Vec::new() }; 2]; pools.len()];
    for _ in 0..rounds {
        for (pool, rates) in pools.iter_mut().zip(&mut rates) {
            for (work, rates) in ["read", "write"].iter().zip(rates) {
                rates.push(pool.rate(paths, work, 2.0 * seconds)?);
            }
        }
    }
    let mut results = Vec::new();
    for ((name, sets), measured) in POOLS.iter().zip(&rates).skip(1) {
        for (at, (work, gain)) in GOALS.iter().enumerate() {
            let comparison = Comparison {
                row: &format!("sets-{work}"),
                variant: format!("{name}: in sequence, 1 MiB, on modelled disks"),
                place: None,
                unit: "MB/s",
                ours: &measured[at],
                peer: (POOLS[0].0, &rates[0][at]),
                is_less_better: false,
                goal: (sets.len() == 4).then_some(*gain),
            };
            results.push(comparison.json());
        }
    }
    Ok(results)
}

/// Files of one size, so many that it is 400 MiB in all, written one after the other and then read
/// so, over NFS.
pub(super) fn files(
    paths: &Paths,
    folder: &Path,
    size: u64,
    (rounds, _): (usize, f64),
) -> Result<Vec<Value>> {
    prepare(paths)?;
    let told = match size {
        size if size < 1 << 20 => format!("{} KiB", size >> 10),
        size => format!("{} MiB", size >> 20),
    };
    let mut rates = [const { [const { Vec::new() }; 2] }; MECHANISMS.len()];
    for ((_, sets, zero_copy), rates) in MECHANISMS.iter().zip(&mut rates) {
        let folder = folder.join(format!("files-{size}-{sets}-{zero_copy}"));
        let sets = vec![("stripe", 1); *sets];
        let pool = Pool::empty(paths, &folder, &sets, *zero_copy)?;
        for round in 0..rounds.div_ceil(2) {
            let name = format!("round-{round}");
            for (work, rates) in ["write-files", "read-files"].into_iter().zip(&mut *rates) {
                pool.pace(true)?;
                let figures = pool.ours.files(paths, &name, work, (size, FILES_BYTES));
                pool.pace(false)?;
                let figures = figures?;
                rates.push(number(&figures, "bytes")? / 1e6 / number(&figures, "seconds")?);
            }
        }
    }
    let mut results = Vec::new();
    for ((name, sets, zero_copy), measured) in MECHANISMS.iter().zip(&rates).skip(1) {
        for (at, work) in ["write", "read"].into_iter().enumerate() {
            let gain = GOALS.iter().find(|(name, _)| *name == work);
            // The paper tells of its largest files only.
            let is_theirs = *sets == 4 && *zero_copy && Some(&size) == FILE_SIZES.last();
            let comparison = Comparison {
                row: &format!("sequential-{work}-{}", told.replace(' ', "-")),
                variant: format!("{name}: files over NFS, one after the other, on modelled disks"),
                place: Some((format!("{work}, {name}"), usize::try_from(size)?)),
                unit: "MB/s",
                ours: &measured[at],
                peer: (MECHANISMS[0].0, &rates[0][at]),
                is_less_better: false,
                goal: gain.filter(|_| is_theirs).map(|(_, gain)| *gain),
            };
            results.push(comparison.json());
        }
    }
    Ok(results)
}

/// A disk that was written in sequence, the same after it was written over here and there for
/// long, and after a pass, under which others read.
pub(super) fn defrag(
    paths: &Paths,
    folder: &Path,
    (rounds, seconds): (usize, f64),
) -> Result<Vec<Value>> {
    prepare(paths)?;
    let pool = Pool::start(paths, &folder.join("defrag"), POOLS[0].1)?;
    let read = || -> Result<Vec<f64>> {
        (0..rounds)
            .map(|_| pool.rate(paths, "read", 2.0 * seconds))
            .collect()
    };
    let fresh = read()?;
    let overwrite = vec![
        flag("--work", "random-write"),
        flag("--size", 4096),
        flag("--outstanding", 32),
        flag("--span", LUN_BYTES),
        flag("--seconds", OVERWRITE_SECONDS),
        flag("--flush", ""),
    ];
    pool.ours.block.load(paths, &overwrite)?;
    let worn = read()?;
    let quiet: Vec<f64> = (0..rounds)
        .map(|_| tail(&pool.work(paths, &foreground(seconds))?))
        .collect::<Result<_>>()?;
    let beside = beside_pass(paths, &pool, rounds, seconds)?;
    let tidy = read()?;
    let comparison =
        |row, variant: &str, unit, (ours, peer): (&[f64], (&str, &[f64])), is_less_better, goal| {
            Comparison {
                row,
                variant: variant.to_owned(),
                place: None,
                unit,
                ours,
                peer,
                is_less_better,
                goal,
            }
            .json()
        };
    let reads = "reads in sequence of a unit of 256 MiB on one modelled disk, after a pass";
    let foregrounds = "others' reads of 4 KiB, p99, while the pass works";
    Ok(vec![
        comparison(
            "defrag-read",
            reads,
            "MB/s",
            (&tidy, ("as written in sequence", &fresh)),
            false,
            Some(0.9),
        ),
        comparison(
            "defrag-read",
            reads,
            "MB/s",
            (&tidy, ("written over here and there", &worn)),
            false,
            None,
        ),
        comparison(
            "defrag-p99",
            foregrounds,
            "µs",
            (&beside, ("without it", &quiet)),
            true,
            Some(1.0 / 1.2),
        ),
    ])
}

/// Reads of 4 KiB now and then.
fn foreground(seconds: f64) -> Flags {
    vec![
        flag("--work", "random-read"),
        flag("--size", 4096),
        flag("--outstanding", 1),
        flag("--span", LUN_BYTES),
        flag("--seconds", 4.0 * seconds),
    ]
}

fn tail(figures: &Value) -> Result<f64> {
    number(figures, "p99_us")
}

/// The foreground's tail while a pass works, on a disk that takes its time; then the pass goes on to its end.
fn beside_pass(paths: &Paths, pool: &Pool, rounds: usize, seconds: f64) -> Result<Vec<f64>> {
    let log = paths.logs().join("bench-iscsi-defrag.log");
    let mut command = program(paths.release_binary());
    command.args(["defrag", "--now", "--json", "--admin", pool.ours.admin()]);
    command.stdin(Stdio::null()).stdout(open_log(&log)?);
    let mut pass = Running::start(command)?;
    let mut tails = Vec::new();
    for _ in 0..rounds {
        let measured = tail(&pool.work(paths, &foreground(seconds))?)?;
        // Only what was measured beside it from beginning to end counts.
        if !is_running(paths, pool)? {
            break;
        }
        tails.push(measured);
    }
    ensure!(
        !tails.is_empty(),
        "the pass was over before it was measured"
    );
    let status = pass.wait(Instant::now() + PASS_PATIENCE)?;
    ensure!(
        status.success(),
        "the pass ended with {status}: {}",
        fs::read_to_string(&log)?
    );
    Ok(tails)
}

fn is_running(paths: &Paths, pool: &Pool) -> Result<bool> {
    let mut command = program(paths.release_binary());
    command.args(["defrag", "status", "--json", "--admin", pool.ours.admin()]);
    let status: Value = serde_json::from_str(&output(&mut command)?)?;
    status["running"].as_bool().context("running")
}
