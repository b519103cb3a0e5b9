//! The part of a benchmark that makes networks needs root; this one builds what is
//! measured, starts that part, and keeps each row when it is done.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::document::Document;
use super::{Options, Subject};
use crate::install;
use crate::paths::Paths;
use crate::process::run as run_program;

/// Builds what is measured, measures it and keeps the result.
pub(super) fn run(paths: &Paths, bench: &str, options: &Options) -> Result<bool> {
    match bench {
        "http" => install::http_peer()?,
        "iscsi" => {
            install::iscsi_peers()?;
            install::debian(&["binutils", "fio", "linux-perf", "util-linux"])?;
        }
        "ibp" => {
            install::http_peer()?;
            install::debian(&["aria2", "curl", "iproute2", "nftables", "vsftpd"])?;
        }
        "spiral" => {
            install::http_peer()?;
            install::debian(&["iproute2", "nftables", "util-linux"])?;
            install::etcd(paths)?;
        }
        _ => {
            install::peer()?;
            install::debian(&["fio", "linux-perf"])?;
            install::etcd(paths)?;
        }
    }
    let mut build = crate::process::cargo();
    build.args(["build", "--release", "--bin", "crossdock-load"]);
    match bench {
        "http" => _ = build.args(["--bin", "crossdock-slowdisk", "--bin", "crossdock-line"]),
        "ibp" => _ = build.args(["--bin", "crossdock-line"]),
        _ => {}
    }
    if options.server == Subject::Crossdock {
        build.args(["--bin", "crossdock"]);
    }
    run_program(build.current_dir(&paths.root))?;

    let mut child = measuring(bench, options)?.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no output pipe")?;
    let mut document = Document::open(paths, bench, options.full, !options.rows.is_empty())?;
    for line in BufReader::new(stdout).lines() {
        let rows: Vec<Value> = serde_json::from_str(&line?)?;
        // A peer in our place shows what noise looks like; that is no result.
        if options.server == Subject::Crossdock {
            document.add(rows)?;
        }
    }
    if options.server == Subject::Crossdock {
        document.announce();
    }
    Ok(child.wait()?.success())
}

/// Has mounts and processes of its own: all of them end with the first of these, also if
/// xtask itself is killed.
const ALONE: [&str; 11] = [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "--",
];
/// The first of them ignores signals; so it is not xtask.
const AND_END: &str = r#""$@"; exit $?"#;

/// The command line of the part that needs root: it prints the results
/// of each row as one line.
fn measuring(bench: &str, options: &Options) -> Result<Command> {
    let mut command = match install::is_root() {
        true => Command::new("env"),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("--preserve-env=PATH,CARGO_TARGET_DIR");
            sudo
        }
    };
    if bench == "http" {
        command.args(ALONE).args(["sh", "-c", AND_END, "sh"]);
    }
    command.arg(std::env::current_exe()?);
    command.arg(format!("bench-{bench}")).args(&options.rows);
    if !options.init.is_empty() {
        command.args(["--init", &options.init]);
    }
    if options.full {
        command.arg("--full");
    }
    if options.server != Subject::Crossdock {
        command.args(["--server", options.server.word()]);
    }
    Ok(command)
}
