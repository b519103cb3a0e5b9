//! `bench http`: the HTTP door beside nginx, from memory and from a slow disk.
//!
//! nginx takes part as three servers: with `sendfile`, with `sendfile` and threads, and
//! as it is at its best on a slow disk. All speak over loopback in a network of their
//! own; the server has one processor for itself, the load generator the other. What
//! comes from memory is measured with all servers standing, in turn, several rounds; on
//! the slow disk each server is alone, in a memory cgroup, with a disk for ours and one
//! for nginx.

mod ablation;
mod beside;
mod cached;
mod capacity;
mod congested;
mod course;
mod far;
mod field;
mod slow;
mod streams;
mod watch;

use std::fs;

use anyhow::{Result, anyhow, ensure};
use rustix::thread::sched_getaffinity;

use super::nfs::{LOAD_CPU, SERVER_CPU};
use super::{keep, parse};
use crate::paths::Paths;
use field::{Field, Who};

/// The rows that can be asked for.
pub(super) const ROWS: [&str; 16] = [
    "cached",
    "small",
    "mix",
    "streams",
    "capacity",
    "crowd",
    "resets",
    "stalls",
    "congested",
    "shared",
    "far",
    "beside",
    "ablation-tdap",
    "ablation-edrc",
    "ablation-idsr",
    "ablation-daemon",
];

/// Measures, and prints the results of each row as one line; what people want to see
/// goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &ROWS)?;
    let cpus = sched_getaffinity(None)?;
    ensure!(
        cpus.is_set(SERVER_CPU) && cpus.is_set(LOAD_CPU),
        "processors {SERVER_CPU} and {LOAD_CPU} are needed"
    );
    let folder = paths.test_data().join("bench-http");
    remove(&folder)?;
    let mut field = Field::new(paths, &options, &folder)?;
    let is_wanted = |row: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == row);
    let mut all_measured = true;
    for row in ROWS.into_iter().filter(|row| is_wanted(row)) {
        eprintln!("{row}");
        let has_it = field.name_of(Who::Ours) == "crossdock";
        let measured = match row {
            _ if row.starts_with("ablation") && !has_it => {
                Err(anyhow!("only Crossdock has these mechanisms"))
            }
            "cached" => cached::bulk(&mut field, &keep),
            "small" => cached::small(&mut field, &keep),
            "mix" => cached::mix(&mut field, &keep),
            "streams" => streams::streams(&mut field, &keep),
            "capacity" => capacity::capacity(&mut field, &keep),
            "crowd" => streams::crowd(&mut field, &keep),
            "resets" => slow::gone(&mut field, slow::Gone::Reset, &keep),
            "stalls" => slow::gone(&mut field, slow::Gone::Stalled, &keep),
            "congested" => congested::congested(&mut field, &keep),
            "far" => far::far(&mut field, &keep),
            "shared" => slow::shared(&mut field, &keep),
            "ablation-tdap" => ablation::read_ahead(&mut field, &keep),
            "ablation-edrc" => ablation::withdrawal(&mut field, &keep),
            "ablation-idsr" => cached::without_idsr(&mut field, &keep),
            "ablation-daemon" => beside::without_daemon(&mut field, &keep),
            _ => beside::measure(&mut field, &keep),
        };
        if let Err(error) = measured {
            eprintln!("{row}: FAILED: {error:#}");
            all_measured = false;
        }
    }
    drop(field);
    remove(&folder)?;
    Ok(all_measured)
}

fn remove(folder: &std::path::Path) -> Result<()> {
    match folder.exists() {
        true => Ok(fs::remove_dir_all(folder)?),
        false => Ok(()),
    }
}
