//! The part of a benchmark that makes networks needs root; this one builds what is
//! measured, starts that part, and keeps each row when it is done.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Options;
use super::document::Document;
use crate::install;
use crate::paths::Paths;
use crate::process::run as run_program;
use crate::rig::server::Kind;

/// Builds what is measured, measures it and keeps the result.
pub(super) fn run(paths: &Paths, bench: &str, options: &Options) -> Result<bool> {
    install::peer()?;
    install::debian(&["fio", "linux-perf"])?;
    install::etcd(paths)?;
    let mut build = crate::process::cargo();
    build.args(["build", "--release", "--bin", "crossdock-load"]);
    if options.server == Kind::Crossdock {
        build.args(["--bin", "crossdock"]);
    }
    run_program(build.current_dir(&paths.root))?;

    let mut child = measuring(bench, options)?.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no output pipe")?;
    let mut document = Document::open(paths, bench, options.full, !options.rows.is_empty())?;
    for line in BufReader::new(stdout).lines() {
        let rows: Vec<Value> = serde_json::from_str(&line?)?;
        // A peer in our place shows what noise looks like; that is no result.
        if options.server == Kind::Crossdock {
            document.add(rows)?;
        }
    }
    if options.server == Kind::Crossdock {
        document.announce();
    }
    Ok(child.wait()?.success())
}

/// The command line of the part that needs root: it prints the results
/// of each row as one line.
fn measuring(bench: &str, options: &Options) -> Result<Command> {
    let itself = std::env::current_exe()?;
    let mut command = match install::is_root() {
        true => Command::new(itself),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("--preserve-env=PATH,CARGO_TARGET_DIR").arg(itself);
            sudo
        }
    };
    command.arg(format!("bench-{bench}")).args(&options.rows);
    if !options.init.is_empty() {
        command.args(["--init", &options.init]);
    }
    if options.full {
        command.arg("--full");
    }
    if options.server == Kind::Ganesha {
        command.args(["--server", "ganesha"]);
    }
    Ok(command)
}
