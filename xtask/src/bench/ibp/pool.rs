//! An all-in-one whose nodes are depots, and nothing else has a door.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{Running, open_log};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts `command`, Crossdock's program, with so many nodes whose depots listen at `listen` and
/// the ports behind it; their addresses, as it tells them.
pub(super) fn start(
    mut command: Command,
    nodes: usize,
    listen: &str,
    folder: &Path,
) -> Result<(Running, Vec<String>)> {
    let log = folder.join("server.log");
    command
        .args(["up", "--nodes", &nodes.to_string(), "--size", "4G"])
        .arg("--data")
        .arg(folder.join("data"))
        .args(["--ibp", listen, "--nfs", "off", "--http", "off"])
        .args(["--node-http", "off", "--iscsi", "off", "--lbone", "off"])
        .args(["--admin", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(File::create(&log)?);
    let (running, lines) = Running::start_with_output_lines(command, open_log(&log)?)?;
    let deadline = Instant::now() + PATIENCE;
    let mut depots = Vec::new();
    while depots.len() < nodes {
        match lines.next(deadline)? {
            Some(line) => depots.extend(line.trim().strip_prefix("ibp ").map(str::to_owned)),
            None => bail!("the server ended: {}", fs::read_to_string(&log)?),
        }
    }
    lines.ignore();
    Ok((running, depots))
}
