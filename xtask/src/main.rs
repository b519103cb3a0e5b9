//! The one entry for people and CI: `cargo xtask COMMAND`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

mod fresh;
mod install;
mod paths;
mod policy;
mod process;
mod report;
mod rig;
mod suite;
mod test;

use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Result;

use paths::Paths;
use process::run;

const USAGE: &str = "\
cargo xtask up [ARGUMENT…]      builds Crossdock and starts it: crossdock up ARGUMENT…
cargo xtask test [SUITE…]       installs what the tests need and runs them; with names, those suites only
    --full                      with the slow suites; writes bench/results/full-test.txt
    --fresh                     runs the README's two commands in a bare Debian tree instead
    --server crossdock|ganesha  which server the suites test (a peer shows faults of the rigs)
cargo xtask policy              checks the licences and sources of all dependencies
cargo xtask bench NAME          not built yet
cargo xtask fuzz [TARGET]       not built yet
cargo xtask sim [NAME]          not built yet";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// Runs one command; `false` says that it ran and found failures.
fn dispatch(words: &[&str]) -> Result<bool> {
    let paths = Paths::find()?;
    match words {
        ["up", arguments @ ..] => up(&paths, arguments),
        ["test", arguments @ ..] => test::run(&paths, arguments),
        ["policy"] => policy::check(&paths).map(|()| true),
        // What test calls through sudo, and what rigs call inside a namespace.
        ["suites", server, names @ ..] => test::run_suites(&paths, server, names),
        ["forward", from, to] => rig::network::serve_forward(from, to).map(|()| true),
        ["portmap-stub"] => rig::portmap::serve().map(|()| true),
        [command @ ("bench" | "fuzz" | "sim"), ..] => {
            Err(Usage(format!("`{command}` is not built yet")).into())
        }
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        [] => Err(Usage(format!("no command\n{USAGE}")).into()),
        [other, ..] => Err(Usage(format!("no such command: {other}\n{USAGE}")).into()),
    }
}

/// Builds the server and becomes it.
fn up(paths: &Paths, arguments: &[&str]) -> Result<bool> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--bin", "crossdock"]);
    run(cargo.current_dir(&paths.root))?;
    let error = Command::new(paths.release_binary())
        .arg("up")
        .args(arguments)
        .exec();
    Err(error.into())
}

/// The command line was wrong; nothing was done.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
