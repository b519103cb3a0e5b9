//! An all-in-one whose nodes are depots, and nothing else has a door; beside its clients, or at the
//! ends of long ways.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::line::Line;
use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, open_log, run};

const PATIENCE: Duration = Duration::from_secs(30);

/// There and back, of the way to each depot.
pub(crate) const ROUND_TRIPS: [Duration; 6] = [
    Duration::from_millis(30),
    Duration::from_millis(35),
    Duration::from_millis(40),
    Duration::from_millis(45),
    Duration::from_millis(50),
    Duration::from_millis(55),
];
/// Of a connection's send buffer: with it the round trip bounds what one connection carries.
const SEND_BUFFER: &str = "4096 65536 131072";
/// Of the first of the depots that are far away.
pub(crate) const PORT: u16 = 6714;

/// It ends when it is dropped.
pub(crate) struct Depots {
    pub(crate) running: Running,
    /// Of each node, as the process tells them.
    pub(crate) addresses: Vec<String>,
    pub(crate) admin: String,
}

/// Starts `command`, Crossdock's program, with so many nodes whose depots listen at `listen` and
/// the ports behind it.
pub(crate) fn start(
    mut command: Command,
    nodes: usize,
    listen: &str,
    folder: &Path,
) -> Result<Depots> {
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
    let (mut addresses, mut admin) = (Vec::new(), None);
    let admin = loop {
        let Some(line) = lines.next(deadline)? else {
            bail!("the server ended: {}", fs::read_to_string(&log)?);
        };
        match line.trim().split_once(' ') {
            Some(("ibp", address)) => addresses.push(address.to_owned()),
            Some(("admin", address)) => admin = Some(address.to_owned()),
            _ => {}
        }
        if let Some(admin) = admin.take_if(|_| addresses.len() == nodes) {
            break admin;
        }
    };
    lines.ignore();
    Ok(Depots {
        running,
        addresses,
        admin,
    })
}

/// A line of [`ROUND_TRIPS`] in `network`; its process runs on that processor.
pub(crate) fn long_ways(paths: &Paths, network: &Network, cpu: usize, log: &Path) -> Result<Line> {
    let setting = format!("net.ipv4.tcp_wmem={SEND_BUFFER}");
    run(network.program("sysctl").args(["-qw", &setting]))?;
    Line::up(paths, network, &ROUND_TRIPS, cpu, log)
}

/// The address of a depot beside it.
pub(crate) fn near(depot: usize) -> String {
    format!("127.0.0.1:{}", usize::from(PORT) + depot)
}

/// The same from the far end.
pub(crate) fn far(depot: usize) -> Result<String> {
    let port = PORT + u16::try_from(depot)?;
    Ok(Line::server(u8::try_from(depot)?, port).to_string())
}

/// Has the parts of an exNode where the first so many depots are seen from the far end.
pub(crate) fn move_away(exnode: &Path, depots: usize) -> Result<()> {
    let mut text = fs::read_to_string(exnode)?;
    for depot in 0..depots {
        let (near, far) = (near(depot), far(depot)?);
        text = text.replace(&format!("ibp://{near}/"), &format!("ibp://{far}/"));
    }
    Ok(fs::write(exnode, text)?)
}
