//! An etcd of one member, on loopback.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process::{Running, open_log, program};

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running etcd. Dropping it kills it.
pub(crate) struct Etcd {
    address: SocketAddr,
    _running: Running,
}

impl Etcd {
    /// Starts one with its data in `folder`.
    pub(crate) fn start(folder: &Path, log: &Path) -> Result<Self> {
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (address, peer) = (free()?, free()?);
        let (client, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let mut command = program("etcd");
        command.arg("--data-dir").arg(folder);
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let output = open_log(&log.with_file_name("ensemble-etcd.log"))?;
        command.stdout(output.try_clone()?).stderr(output);
        let running = Running::start(command)?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            ensure!(Instant::now() < deadline, "etcd does not answer");
            thread::park_timeout(Duration::from_millis(50));
        }
        Ok(Self {
            address,
            _running: running,
        })
    }

    /// What `--etcd` is given.
    pub(crate) fn endpoints(&self) -> String {
        format!("http://{}", self.address)
    }
}
