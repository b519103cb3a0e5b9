//! The server under test, inside a [`Network`]: started, killed, started again
//! on the same data.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::ganesha;
use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, run};

/// How long a server may take until it says that it is ready.
pub(crate) const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Where all guests are.
pub(crate) const GUESTS: &str = "198.18.0.0/15";
/// How long a graceful stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Which server is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `target/release/crossdock up`.
    Crossdock,
    /// The peer, to tell a fault of the rig from one of ours.
    Ganesha,
}

/// A server with its data, its log and its network's forwarders.
pub(crate) struct Server<'network> {
    kind: Kind,
    network: &'network Network,
    /// Whether it listens on all addresses of the network itself, with a
    /// portmapper, rather than on loopback behind a forwarder.
    is_open: bool,
    /// More of what Crossdock is told.
    arguments: &'static [&'static str],
    binary: PathBuf,
    folder: PathBuf,
    running: Option<Running>,
    _helpers: Vec<Running>,
}

impl<'network> Server<'network> {
    /// Starts a server of `kind` on fresh data in `folder`, reachable on
    /// loopback and on the tap's host address.
    pub(crate) fn start(
        kind: Kind,
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        Self::start_as(kind, paths, network, folder, (false, &[]))
    }

    /// The same for Crossdock that is told more than usual.
    pub(crate) fn start_told(
        arguments: &'static [&'static str],
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        Self::start_as(Kind::Crossdock, paths, network, folder, (false, arguments))
    }

    /// Starts Crossdock on fresh data in `folder`, on all addresses of the
    /// network, with its portmapper and an export to all guests.
    pub(crate) fn start_open(
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        let server = Self::start_as(Kind::Crossdock, paths, network, folder, (true, &[]))?;
        let mut export = network.program(&server.binary);
        export.args(["export", "set", "/", "--allow", GUESTS]);
        run(&mut export)?;
        Ok(server)
    }

    fn start_as(
        kind: Kind,
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
        (is_open, arguments): (bool, &'static [&'static str]),
    ) -> Result<Self> {
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        fs::create_dir_all(folder)?;
        let mut helpers = Vec::new();
        if kind == Kind::Ganesha {
            helpers.push(ganesha::start_portmap(
                network,
                &folder.join("portmap.log"),
            )?);
        }
        let mut server = Self {
            kind,
            network,
            is_open,
            arguments,
            binary: paths.release_binary(),
            folder: folder.to_owned(),
            running: None,
            _helpers: helpers,
        };
        server.restart()?;
        // The peer listens on all addresses by itself.
        if kind == Kind::Crossdock && !is_open {
            let forward = network.forward(
                SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())),
                &folder.join("forward.log"),
            )?;
            server._helpers.push(forward);
        }
        Ok(server)
    }

    /// The server's process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// Port of NFS.
    pub(crate) fn port(&self) -> u16 {
        ganesha::NFS_PORT
    }

    /// Port of MOUNT.
    pub(crate) fn mount_port(&self) -> u16 {
        match self.kind {
            Kind::Crossdock => self.port(),
            Kind::Ganesha => ganesha::MOUNT_PORT,
        }
    }

    /// Mount options that this server needs beside the usual ones.
    pub(crate) fn mount_options(&self) -> &'static str {
        match self.kind {
            Kind::Crossdock => "",
            // It offers the ACL side protocol, and then answers it with an I/O error.
            Kind::Ganesha => "noacl",
        }
    }

    /// The path that a client mounts.
    pub(crate) fn export(&self) -> Result<String> {
        match self.kind {
            Kind::Crossdock => Ok("/".to_owned()),
            Kind::Ganesha => {
                let export = self.folder.join("data");
                Ok(export.to_str().context("not UTF-8")?.to_owned())
            }
        }
    }

    /// Carries out a command of Crossdock's administrator; it must succeed.
    pub(crate) fn administer(&self, words: &[&str]) -> Result<()> {
        ensure!(self.kind == Kind::Crossdock, "the peer has no such command");
        run(self.network.program(&self.binary).args(words))
    }

    /// Kills the server with SIGKILL, as a power failure of the process would.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// Starts the server again on the data that is there, and waits until it serves.
    pub(crate) fn restart(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the server is running");
        self.running = Some(match self.kind {
            Kind::Crossdock => self.start_crossdock()?,
            Kind::Ganesha => self.start_ganesha()?,
        });
        Ok(())
    }

    /// Stops the server gracefully; it must exit with 0.
    pub(crate) fn stop(mut self) -> Result<()> {
        let Some(mut running) = self.running.take() else {
            bail!("the server is not running");
        };
        let status = running.terminate(STOP_PATIENCE)?;
        // The peer's own exit code says nothing about us.
        ensure!(
            self.kind == Kind::Ganesha || status.success(),
            "server stopped with {status}"
        );
        Ok(())
    }

    fn start_crossdock(&self) -> Result<Running> {
        let mut command = self.network.program(&self.binary);
        command
            .arg("up")
            .arg("--data")
            .arg(self.folder.join("data"));
        let address = if self.is_open { "0.0.0.0" } else { "127.0.0.1" };
        command
            .arg("--nfs")
            .arg(format!("{address}:{}", self.port()));
        if self.is_open {
            command.args(["--portmap", "0.0.0.0:111"]);
        }
        command.args(self.arguments).stdin(Stdio::null());
        let (running, lines) = Running::start_with_lines(command, &self.folder.join("server.log"))?;
        let deadline = Instant::now() + READY_PATIENCE;
        let door = format!("nfs {address}:{}", self.port());
        loop {
            match lines.next(deadline).context("the server is not ready")? {
                Some(line) if line == door => break,
                Some(_) => {}
                None => bail!("the server ended before it was ready: see server.log"),
            }
        }
        lines.ignore();
        Ok(running)
    }

    fn start_ganesha(&self) -> Result<Running> {
        let command = ganesha::command(self.network, &self.folder, &self.folder.join("data"))?;
        let running = Running::start(command)?;
        // It does not say when it is ready: ask until it answers.
        let mut ask = self.network.program("socat");
        let address = format!("TCP:127.0.0.1:{},retry=100,interval=0.1", self.mount_port());
        ask.args(["-u", "/dev/null", &address]);
        run(&mut ask)?;
        Ok(running)
    }
}
