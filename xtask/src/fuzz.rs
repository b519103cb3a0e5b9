//! `cargo xtask fuzz [TARGET…]`: each decoder on a million inputs and more,
//! starting from the corpus in the repository; and the sockets of the running
//! program.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::paths::Paths;
use crate::process::Running;
use crate::suite::Outcome;
use crate::{Usage, install, test};

/// Executions of each target at least.
const RUNS: u64 = 1_000_000;
/// The target that is no decoder, and the suite that is behind it.
const SOCKETS: (&str, &str) = ("sockets", "fuzz-sockets-long");
/// What one target may take, with its build.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Runs the named targets, or all; `false` if one has failed.
pub(crate) fn run(paths: &Paths, words: &[&str]) -> Result<bool> {
    let (sockets, suite) = SOCKETS;
    let known = targets(paths)?;
    let is_known = |word: &&str| *word == sockets || known.iter().any(|it| it == word);
    if let Some(unknown) = words.iter().find(|word| !is_known(word)) {
        let known = known.join(" ");
        return Err(Usage(format!(
            "no such target: {unknown}\ntargets: {known} {sockets}"
        ))
        .into());
    }
    let wanted = |target: &&String| words.is_empty() || words.contains(&target.as_str());
    let chosen: Vec<&String> = known.iter().filter(wanted).collect();
    let outcomes = match chosen.is_empty() {
        true => Vec::new(),
        false => fuzz(paths, &chosen)?,
    };
    let is_sound = outcomes.iter().all(|outcome| outcome.passed);
    let with_sockets = words.is_empty() || words.contains(&sockets);
    Ok((!with_sockets || test::run(paths, &[suite])?) && is_sound)
}

/// Runs all decoders' targets, for the full test, which has the sockets' suite as well.
pub(crate) fn run_all(paths: &Paths) -> Result<Vec<Outcome>> {
    let known = targets(paths)?;
    fuzz(paths, &known.iter().collect::<Vec<_>>())
}

fn fuzz(paths: &Paths, targets: &[&String]) -> Result<Vec<Outcome>> {
    install::fuzzer()?;
    let mut outcomes = Vec::new();
    for target in targets {
        let started = Instant::now();
        let result = fuzz_one(paths, target);
        let seconds = started.elapsed().as_secs_f64();
        let (passed, said) = match result {
            Ok(executions) => (true, format!("{executions} executions")),
            Err(error) => (false, format!("{error:#}")),
        };
        let verdict = if passed { "PASS" } else { "FAIL" };
        let line = format!("{verdict} fuzz-{target} ({seconds:.1} s): {said}");
        println!("{line}");
        outcomes.push(Outcome { passed, line });
    }
    Ok(outcomes)
}

/// Runs one target and returns how many inputs it has had.
fn fuzz_one(paths: &Paths, target: &str) -> Result<u64> {
    // libFuzzer writes what it finds into the first folder, not into the
    // repository's corpus.
    let found = paths.target.join("fuzz").join(target);
    fs::create_dir_all(&found)?;
    let log = paths.logs().join(format!("fuzz-{target}.log"));
    if log.exists() {
        fs::remove_file(&log)?;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut command = install::fuzzer_command();
    command.args(["run", target]).arg(&found);
    command.arg(paths.root.join("fuzz/corpus").join(target));
    command.arg("--");
    command.args([&format!("-runs={RUNS}"), "-print_final_stats=1"]);
    command.current_dir(&paths.root).stdin(Stdio::null());
    let (mut running, lines) = Running::start_with_lines(command, &log)?;
    lines.ignore();
    let status = running.wait(deadline)?;
    ensure!(status.success(), "{status}: see {}", log.display());
    let executions = executions(&log)?;
    ensure!(executions >= RUNS, "only {executions} executions");
    Ok(executions)
}

/// Reads libFuzzer's own count.
fn executions(log: &Path) -> Result<u64> {
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let counted = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    Ok(counted.context("no count of executions")?.trim().parse()?)
}

/// All targets: what lies in fuzz/fuzz_targets.
fn targets(paths: &Paths) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(paths.root.join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().context("a target without a name")?;
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
