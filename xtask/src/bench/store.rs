//! The benchmark of the disks beneath the store: a program of its own.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::document::{Document, commit};
use crate::install;
use crate::paths::Paths;
use crate::process::{output, run as run_program};

/// Builds it, runs it and keeps what it found.
pub(super) fn run(paths: &Paths, words: &[&str]) -> Result<bool> {
    install::debian(&["fio"])?;
    let mut build = crate::process::cargo();
    build.args(["build", "--release", "-p", "crossdock-bench-store"]);
    run_program(build.current_dir(&paths.root))?;
    let folder = paths.test_data().join("bench-store");
    let mut measure = Command::new(paths.target.join("release/crossdock-bench-store"));
    measure.arg("--dir").arg(&folder);
    measure.args(["--commit", &commit(paths)?]).args(words);
    let printed = output(measure.stdin(Stdio::null()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut found: Value = serde_json::from_str(&printed?)?;
    let rows = found["rows"].as_array_mut().context("no rows")?;
    let full = words.contains(&"--full");
    let only_some = words.iter().any(|word| !word.starts_with("--"));
    let mut document = Document::open(paths, "store", full, only_some)?;
    document.add(std::mem::take(rows))?;
    document.announce();
    Ok(true)
}
