//! The programs of libnfs (Debian's libnfs-utils): another client than the
//! kernel's, with its own codecs.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

use super::Stage;
use crate::process::{output, run_logged};
use crate::rig::network::Network;
use crate::rig::server::Server;

/// On both sides of the small-file threshold, of a stripe unit and of a
/// transfer's largest size.
const LENGTHS_BYTES: [usize; 7] = [0, 1, 8192, 65_537, 262_145, 1_048_577, 20_000_000];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    let network = Network::new()?;
    let mut server = Server::start(stage.server, stage.paths, &network, &stage.folder)?;
    for length in LENGTHS_BYTES {
        let local = stage.folder.join(format!("sent-{length}"));
        fs::write(&local, content(length))?;
        let mut copy = network.program("nfs-cp");
        copy.arg(&local)
            .arg(url(&server, &format!("file-{length}"))?);
        run_logged(copy, &stage.log, stage.deadline)?;
    }
    check(stage, &network, &server, "before")?;
    server.kill();
    server.restart()?;
    check(stage, &network, &server, "after")?;
    server.stop()
}

/// All files are listed with their sizes, and read as they were sent.
fn check(stage: &Stage<'_>, network: &Network, server: &Server<'_>, round: &str) -> Result<()> {
    let list = output(network.program("nfs-ls").arg(url(server, "")?))?;
    for length in LENGTHS_BYTES {
        let name = format!("file-{length}");
        let listed = list.lines().any(|line| {
            let mut words = line.split_whitespace().rev();
            words.next() == Some(&name) && words.next() == Some(&length.to_string())
        });
        ensure!(listed, "{name} is not listed with its size:\n{list}");
        let read = read(network, &url(server, &name)?)?;
        ensure!(read == content(length), "{name} was read with other bytes");
        // A new name for each copy: nfs-cp does not write over a local file.
        let received = stage.folder.join(format!("received-{round}-{length}"));
        let mut copy = network.program("nfs-cp");
        copy.arg(url(server, &name)?).arg(&received);
        run_logged(copy, &stage.log, stage.deadline)?;
        ensure!(
            fs::read(received)? == content(length),
            "{name} came back changed"
        );
    }
    Ok(())
}

fn read(network: &Network, url: &str) -> Result<Vec<u8>> {
    let mut cat: Command = network.program("nfs-cat");
    let output = cat.arg(url).output()?;
    ensure!(output.status.success(), "nfs-cat {url}: {}", output.status);
    Ok(output.stdout)
}

fn url(server: &Server<'_>, name: &str) -> Result<String> {
    // libnfs mounts what is before the last slash, and refuses to mount
    // nothing: a file in the root needs two slashes.
    Ok(format!(
        "nfs://127.0.0.1{}/{name}?version=3&nfsport={}&mountport={}",
        server.export()?,
        server.port(),
        server.mount_port()
    ))
}

/// Bytes in which each place can be told from its neighbours.
fn content(length: usize) -> Vec<u8> {
    (0..length.div_ceil(8))
        .flat_map(|word| (word ^ (length << 32)).to_le_bytes())
        .take(length)
        .collect()
}
