//! Downloads of all lengths in little memory: the paper's own ran through a mapping of the
//! whole file, and fell off when that did not fit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Field, content};
use crate::bench::figures::Comparison;
use crate::bench::{Keep, rig_name};
use crate::process::{program, run};
use crate::rig::depots;
use crate::rig::memory::MemoryGroup;

const MEMORY_BYTES: u64 = 256 << 20;
/// With which length the others are compared.
const COMPARED: usize = 64 << 20;
const LENGTHS: [usize; 4] = [1 << 20, 64 << 20, 256 << 20, 1 << 30];
/// More than the memory, and within what a short run may take.
const SHORT_MAX: usize = 256 << 20;
/// Without a fall-off.
const GOAL: f64 = 0.8;

pub(super) fn sizes(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let folder = field.folder("memory")?;
    let group = MemoryGroup::new(&rig_name(), MEMORY_BYTES)?;
    let group = group.context("no memory cgroup of version 1 here")?;
    let binary = field.paths.release_binary();
    let pool = depots::start(program(&binary), 2, "127.0.0.1:0", &folder)?;
    let depots = pool.addresses.join(",");
    let lengths = LENGTHS.iter().copied();
    let lengths: Vec<usize> = lengths
        .filter(|&length| field.full || length <= SHORT_MAX)
        .collect();
    for &length in &lengths {
        let film = folder.join(format!("film-{length}"));
        fs::write(&film, content(length))?;
        let mut upload = program(&binary);
        upload.args(["upload", "--depot", &depots, "--forecasts", "off", "--json"]);
        upload.arg(&film).current_dir(&folder);
        run(upload.stdout(Stdio::null()))?;
        fs::remove_file(&film)?;
    }
    for to in ["out", "/dev/null"] {
        let mut rates = vec![Vec::new(); lengths.len()];
        for _ in 0..field.rounds() {
            for (length, rates) in lengths.iter().zip(&mut rates) {
                rates.push(rate(&group, &binary, &folder, *length, to)?);
            }
        }
        let compared = lengths.iter().position(|&it| it == COMPARED);
        let compared = rates[compared.context("it is one of them")?].clone();
        let kind = if to == "out" { "a file" } else { "/dev/null" };
        for (&length, rates) in lengths.iter().zip(&rates).filter(|it| *it.0 > COMPARED) {
            keep(vec![
                Comparison {
                    row: &format!("memory-{}-MiB", length >> 20),
                    variant: format!("download to {kind} in 256 MiB of memory"),
                    place: None,
                    unit: "MB/s",
                    ours: rates,
                    peer: ("64 MiB", &compared),
                    is_less_better: false,
                    goal: Some(GOAL),
                }
                .json(),
            ]);
        }
    }
    ensure!(group.killed()? == 0, "processes were killed for memory");
    eprintln!("at most {} MiB of memory", group.peak_bytes()? >> 20);
    Ok(())
}

fn rate(group: &MemoryGroup, binary: &Path, folder: &Path, length: usize, to: &str) -> Result<f64> {
    let out = folder.join("out");
    if out.exists() {
        fs::remove_file(&out)?;
    }
    // The shell joins the group before it becomes the tool.
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"read go; exec "$@""#, "sh"])
        .arg(binary)
        .args(["download", "--forecasts", "off", "--json", "-o", to])
        .arg(format!("film-{length}.xnd"))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = command.spawn()?;
    group.add(child.id())?;
    let began = Instant::now();
    let mut go = child.stdin.take().context("no pipe")?;
    std::io::Write::write_all(&mut go, b"go\n")?;
    drop(go);
    let status = child.wait()?;
    let elapsed = began.elapsed().as_secs_f64();
    ensure!(status.success(), "download of {length} bytes: {status}");
    ensure!(
        to != "out" || fs::metadata(&out)?.len() == length as u64,
        "too short"
    );
    Ok(length as f64 / 1e6 / elapsed)
}
