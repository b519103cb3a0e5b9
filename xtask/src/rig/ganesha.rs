//! Debian's nfs-ganesha (FSAL VFS) as the server under test: the peer that the
//! rigs are checked against, and that benchmarks compare with.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::network::{Network, start_helper};
use crate::process::{Running, open_log};

/// Its NFS port; MOUNT has one of its own.
pub(crate) const NFS_PORT: u16 = 2049;
/// Its MOUNT port.
pub(crate) const MOUNT_PORT: u16 = 20048;

/// Starts the portmapper stub inside `network` and waits until it listens.
pub(crate) fn start_portmap(network: &Network, log: &Path) -> Result<Running> {
    let mut stub = network.program(std::env::current_exe()?);
    stub.arg("portmap-stub");
    start_helper(stub, log)
}

/// The command line that serves `export` from inside `network`.
pub(crate) fn command(network: &Network, folder: &Path, export: &Path) -> Result<Command> {
    let config = folder.join("ganesha.conf");
    fs::create_dir_all(export)?;
    let export = export.to_str().context("the folder's name is not UTF-8")?;
    fs::write(
        &config,
        format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; \
             MNT_Port = {MOUNT_PORT}; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = \"/\"; Protocols = 3; \
             Transports = TCP; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; \
             FSAL {{ Name = VFS; }} }}\n"
        ),
    )?;
    let mut command = network.program("ganesha.nfsd");
    command.arg("-F").arg("-f").arg(config);
    command.arg("-L").arg(folder.join("ganesha-own.log"));
    command.arg("-p").arg(folder.join("ganesha.pid"));
    let log = open_log(&folder.join("server.log"))?;
    command.stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log);
    Ok(command)
}
