//! The record of a full test run, kept in the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::paths::Paths;
use crate::process::output;
use crate::suite::Outcome;
use crate::test::Count;

/// Writes bench/results/full-test.txt: what was tested, when, where, and how it ended.
pub(crate) fn write(paths: &Paths, count: Count, outcomes: &[Outcome]) -> Result<()> {
    let git =
        |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(&paths.root));
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let state = if changed.is_empty() {
        "clean"
    } else {
        "with changes"
    };
    let date = output(Command::new("date").args(["-u", "+%F %H:%M UTC"]))?;
    let mut text = format!(
        "commit {commit} ({state})\ndate {date}\nmachine {}\n\n",
        machine()?
    );
    for outcome in outcomes {
        text.push_str(&outcome.line);
        text.push('\n');
    }
    text.push_str(&format!(
        "\nwith the workspace's own tests: {} passed, {} failed\n",
        count.passed, count.failed
    ));
    let file = paths.root.join("bench/results/full-test.txt");
    fs::create_dir_all(file.parent().unwrap_or_else(|| Path::new(".")))?;
    fs::write(&file, text)?;
    println!("wrote {}", file.display());
    Ok(())
}

/// Processors, memory and kernel of this machine.
pub(crate) fn machine() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = value(&cpuinfo, "model name").unwrap_or("unknown processor");
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let memory = value(&meminfo, "MemTotal").unwrap_or("unknown memory");
    let kernel = output(Command::new("uname").arg("-r"))?;
    Ok(format!("{cpus} x {model}, {memory}, Linux {kernel}"))
}

fn value<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}
