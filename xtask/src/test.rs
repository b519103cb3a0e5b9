//! `cargo xtask test`: installs what is missing, runs the workspace's own tests,
//! builds the released binary and runs the real-client suites against it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::rig::cluster::words_of;
use crate::rig::server::Kind;
use crate::suite::{self, Outcome, SUITES, Suite, When};
use crate::{Usage, fresh, fuzz, install, process, report};

/// What the command line asked for.
#[derive(Default)]
struct Options<'words> {
    full: bool,
    fresh: bool,
    server: Option<&'words str>,
    /// Further words of `cluster init`.
    init: &'words str,
    names: Vec<&'words str>,
}

/// How many tests ended how.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Runs everything that was asked for; `false` if something failed.
pub(crate) fn run(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words)?;
    if options.fresh {
        return fresh::run(paths);
    }
    let server = options.server.unwrap_or("crossdock");
    let kind = parse_server(server)?;
    let everything = options.names.is_empty();
    install::for_suites(paths, kind == Kind::Ganesha)?;

    let mut count = Count::default();
    if everything {
        count = workspace_tests(paths)?;
    }
    if kind == Kind::Crossdock {
        let mut build = crate::process::cargo();
        build.args(["build", "--release", "--bin", "crossdock"]);
        build.args(["--bin", "crossdock-line"]);
        build.args(["--bin", "crossdock-tests-conformance"]);
        build.args(["--bin", "crossdock-tests-crash"]);
        build.args(["--bin", "crossdock-tests-replay"]);
        build.args(["--bin", "crossdock-tests-etcd"]);
        build.args(["--bin", "crossdock-tests-spiral"]);
        process::run(build.current_dir(&paths.root))?;
    }
    let chosen: Vec<&str> = if everything {
        let of_this_run = |suite: &&Suite| options.full || suite.when == When::Quick;
        SUITES
            .iter()
            .filter(of_this_run)
            .map(|suite| suite.name)
            .collect()
    } else {
        options.names
    };
    let mut outcomes = suites_as_root(paths, server, options.init, &chosen)?;
    if options.full && everything {
        outcomes.extend(fuzz::run_all(paths)?);
    }

    println!("\nsuites:");
    for outcome in &outcomes {
        println!("  {}", outcome.line);
        if let Some(name) = outcome.failed_suite() {
            suite::print_failures(paths, name);
        }
        let ended = if outcome.passed {
            &mut count.passed
        } else {
            &mut count.failed
        };
        *ended += 1;
    }
    if options.full && everything {
        report::write(paths, count, &outcomes)?;
    }
    println!("{} passed, {} failed", count.passed, count.failed);
    Ok(count.failed == 0)
}

/// The part that needs root: runs the named suites in this process.
pub(crate) fn run_suites(paths: &Paths, server: &str, init: &str, names: &[&str]) -> Result<bool> {
    let outcomes = suites(paths, server, init, names)?;
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

fn parse<'words>(words: &[&'words str]) -> Result<Options<'words>> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--full" => options.full = true,
            "--fresh" => options.fresh = true,
            "--init" => {
                let init = words.next();
                options.init = init.ok_or_else(|| Usage("--init: which words?".to_owned()))?;
            }
            "--server" => {
                let server = words.next();
                options.server = Some(server.ok_or_else(|| Usage("--server: which?".to_owned()))?);
            }
            name if suite::find(name).is_some() => options.names.push(name),
            other => {
                let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
                let names = names.join(" ");
                return Err(Usage(format!("no such suite: {other}\nsuites: {names}")).into());
            }
        }
    }
    Ok(options)
}

fn parse_server(name: &str) -> Result<Kind> {
    match name {
        "crossdock" => Ok(Kind::Crossdock),
        "ganesha" => Ok(Kind::Ganesha),
        other => Err(Usage(format!("no such server: {other}")).into()),
    }
}

/// Runs `cargo test` over the workspace and counts what its summaries say.
fn workspace_tests(paths: &Paths) -> Result<Count> {
    let mut cargo = crate::process::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    cargo.current_dir(&paths.root).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let stdout = child.stdout.take().context("no output pipe")?;
    let mut count = Count::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(summary) = parse_summary(&line) {
            count.passed += summary.passed;
            count.failed += summary.failed;
        }
    }
    // What did not even build has no summary line, but is a failure.
    if !child.wait()?.success() && count.failed == 0 {
        count.failed = 1;
    }
    Ok(count)
}

/// Reads `test result: ok. 3 passed; 0 failed; …`.
fn parse_summary(line: &str) -> Option<Count> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse().ok()
    };
    Some(Count {
        passed: number(" passed")?,
        failed: number(" failed")?,
    })
}

/// Runs the suites here, or in a copy of this process that sudo starts.
fn suites_as_root(paths: &Paths, server: &str, init: &str, names: &[&str]) -> Result<Vec<Outcome>> {
    if install::is_root() {
        return suites(paths, server, init, names);
    }
    // Root's own search path may not have cargo.
    let mut sudo = Command::new("sudo");
    sudo.args(["--preserve-env=PATH,HOME,CARGO_HOME,RUSTUP_HOME,CARGO_TARGET_DIR"]);
    sudo.arg(std::env::current_exe()?)
        .args(["suites", server, init]);
    let mut child = sudo.args(names).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no output pipe")?;
    let mut outcomes = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        outcomes.extend(parse_outcome(&line));
    }
    child.wait()?;
    anyhow::ensure!(outcomes.len() == names.len(), "not every suite has run");
    Ok(outcomes)
}

/// Reads the line that [`suite::run`] prints.
fn parse_outcome(line: &str) -> Option<Outcome> {
    let (verdict, rest) = line.split_once(' ')?;
    let passed = match verdict {
        "PASS" => true,
        "FAIL" => false,
        _ => return None,
    };
    let name = rest.split(' ').next()?;
    suite::find(name)?;
    Some(Outcome {
        passed,
        line: line.to_owned(),
    })
}

fn suites(paths: &Paths, server: &str, init: &str, names: &[&str]) -> Result<Vec<Outcome>> {
    let kind = parse_server(server)?;
    let init = words_of(init);
    let mut outcomes = Vec::new();
    for name in names {
        let suite = suite::find(name).with_context(|| format!("no such suite: {name}"))?;
        outcomes.push(suite::run(suite, paths, kind, &init));
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: failures are counted from what cargo prints, and other lines are not taken for it.
    #[test]
    fn summaries_of_cargo_test_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let count = parse_summary(line).unwrap();
        assert_eq!((count.passed, count.failed), (12, 3));
        assert!(parse_summary("running 3 tests").is_none());
    }

    /// Goal: what a suite prints under sudo is understood; a script's own words are not.
    #[test]
    fn outcomes_are_read_back() {
        assert!(parse_outcome("PASS libnfs (1.0 s)").unwrap().passed);
        assert!(!parse_outcome("FAIL kill9 (1.0 s)").unwrap().passed);
        assert!(parse_outcome("PASS something else").is_none());
    }

    /// Goal: a misspelt suite is wrong usage, not a run of nothing.
    #[test]
    fn unknown_suites_and_servers_are_refused() {
        assert!(parse(&["kernel-basics", "--full"]).is_ok());
        assert!(parse(&["kernel-basic"]).is_err_and(|error| error.is::<Usage>()));
        assert!(parse_server("samba").is_err_and(|error| error.is::<Usage>()));
    }
}
