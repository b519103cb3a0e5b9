//! `cargo xtask bench store`: what a commit costs on each kind of journal, and
//! plain I/O through the production disks and their queue, beside fio on the
//! same file system at the same depth. Prints one JSON document.

mod ours;
mod peer;
mod rows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};

use crate::rows::{ROWS, Row};

/// Share of fio's figure that is wanted.
const GOAL: f64 = 0.9;

/// Measures the disks beneath the store, beside fio.
#[derive(Parser)]
struct Flags {
    /// Only these rows.
    rows: Vec<String>,
    /// Where to make the files, on the disk to be measured.
    #[arg(long)]
    dir: PathBuf,
    /// Commit that is measured, for the result.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// Long runs.
    #[arg(long)]
    full: bool,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    std::fs::create_dir_all(&flags.dir)
        .with_context(|| format!("cannot make {}", flags.dir.display()))?;
    let (rounds, length) = match flags.full {
        true => (7, Duration::from_secs(30)),
        false => (3, Duration::from_secs(3)),
    };
    let wanted =
        |row: &&Row| flags.rows.is_empty() || flags.rows.iter().any(|name| name == row.name);
    let mut rows = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(ours::measure(row, &flags.dir, length)?);
            theirs.push(peer::measure(row, &flags.dir, length)?);
        }
        eprintln!("{} {}: {ours:.1?}, fio {theirs:.1?}", row.name, row.variant);
        rows.push(result(row, ours, theirs));
    }
    let document = json!({
        "bench": "store",
        "machine": machine(&flags.dir),
        "commit": flags.commit,
        "length": if flags.full { "full" } else { "short" },
        "rows": rows,
    });
    println!("{document:#}");
    Ok(())
}

fn result(row: &Row, ours: Vec<f64>, theirs: Vec<f64>) -> Value {
    let (ours, theirs) = (spread(ours), spread(theirs));
    let ratio = match row.is_latency() {
        true => theirs[1] / ours[1],
        false => ours[1] / theirs[1],
    };
    json!({
        "row": row.name,
        "variant": row.variant,
        "unit": row.unit(),
        "ours": { "median": ours[1], "min": ours[0], "max": ours[2] },
        "peer": { "name": "fio", "median": theirs[1], "min": theirs[0], "max": theirs[2] },
        "ratio": ratio,
        "goal": GOAL,
        "met": ratio >= GOAL,
    })
}

/// Least, median and greatest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    [values[0], values[values.len() / 2], values[last]]
}

fn machine(dir: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let mut models = cpuinfo
        .lines()
        .filter(|line| line.starts_with("model name"));
    let model = models.next().and_then(|line| line.split(": ").nth(1));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{cpus} × {}, Linux {}, {}",
        model.unwrap_or("CPU"),
        read("/proc/sys/kernel/osrelease").trim(),
        file_system(dir).unwrap_or_else(|| "unknown file system".to_owned()),
    )
}

/// Type of the file system that the files are on.
fn file_system(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let beneath = entries.filter(|(point, _)| dir.starts_with(point));
    let (_, kind) = beneath.max_by_key(|(point, _)| point.len())?;
    Some(kind.to_owned())
}
