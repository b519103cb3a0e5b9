//! What deploy/ brings for systemd: a unit that systemd takes, that is shut in,
//! and that is told when the program is ready; a configuration that is valid.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::program::{Up, crossdock, finish, text};
use crate::install;
use crate::process::output;
use crate::suite::Stage;

/// systemd's measure of what a service could do: 100 is everything. A service
/// like this one without its sandbox has 92.
const EXPOSURE_MAX: &str = "--threshold=20";

pub(super) fn unit(stage: &Stage<'_>) -> Result<()> {
    let deploy = stage.paths.root.join("deploy");
    let config = deploy.join("crossdock.toml");
    finish(stage, &["config", "check", text(&config)?])?.expect(0, &[])?;

    install::debian(&["systemd"])?;
    // The unit names where the package puts the program.
    let unit = fs::read_to_string(deploy.join("crossdock.service"))?;
    let installed = "/usr/bin/crossdock";
    ensure!(
        unit.contains(installed),
        "the unit does not start {installed}"
    );
    let binary = stage.paths.release_binary();
    let path = stage.folder.join("crossdock.service");
    fs::write(&path, unit.replace(installed, text(&binary)?))?;
    let said = output(Command::new("systemd-analyze").arg("verify").arg(&path))?;
    ensure!(said.is_empty(), "systemd complains: {said}");
    output(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", EXPOSURE_MAX])
            .arg(&path),
    )?;
    tells_when_ready(stage)
}

/// `Type=notify`: READY when the doors answer, STOPPING when it stops.
fn tells_when_ready(stage: &Stage<'_>) -> Result<()> {
    let path = stage.folder.join("notify");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let data = stage.folder.join("notified");
    let mut command = crossdock(stage, &["up", "--nodes", "1", "--data", text(&data)?]);
    command.env("NOTIFY_SOCKET", &path);
    let up = Up::start(stage, command)?;
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).context("nothing was told")?;
    ensure!(&bytes[..length] == b"READY=1", "{:?}", &bytes[..length]);
    up.stop()?;
    let length = socket.recv(&mut bytes).context("no word of the stop")?;
    ensure!(&bytes[..length] == b"STOPPING=1", "{:?}", &bytes[..length]);
    Ok(())
}
