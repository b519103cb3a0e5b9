//! A private network namespace with its own loopback and one tap device.
//!
//! It has no name: it lives as long as a process is in it, so nothing is left
//! behind even if xtask itself is killed.

use std::ffi::OsStr;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process::{Running, program, run};

/// The tap device, as the host side names it.
pub(crate) const TAP: &str = "tap0";
/// The host's address on the tap (RFC 2544 benchmark range: never routed).
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The guest's address on the tap.
pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Prefix length of the tap's network: just the two of them.
pub(crate) const PREFIX_BITS: u8 = 30;

/// A network namespace. Dropping it ends the process that holds it open.
pub(crate) struct Network {
    holder: Running,
}

impl Network {
    /// Makes a namespace with loopback up and a tap that waits for a guest.
    pub(crate) fn new() -> Result<Self> {
        let mut hold = program("unshare");
        // `cat` says "held" once the namespace is there, then waits for ever.
        hold.args(["--net", "--", "sh", "-c", "echo held; exec cat"]);
        hold.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (holder, mut stdout) = Running::start_piped(hold)?;
        let mut held = [0; 5];
        stdout
            .read_exact(&mut held)
            .context("cannot make a network namespace (root is needed)")?;
        let network = Self { holder };
        let address = format!("{HOST}/{PREFIX_BITS}");
        for line in [
            "link set lo up".to_owned(),
            format!("tuntap add {TAP} mode tap"),
            format!("address add {address} dev {TAP}"),
            format!("link set {TAP} up"),
        ] {
            run(network.program("ip").args(line.split(' ')))?;
        }
        Ok(network)
    }

    /// A command line whose program will run inside.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = program("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder.pid()))
            .arg("--")
            .arg(name);
        command
    }

    /// Forwards `port` of the tap's host address to the same port on loopback.
    ///
    /// The server under test listens on loopback only, as it does by default.
    pub(crate) fn forward(&self, port: u16) -> Result<Running> {
        let mut socat = self.program("socat");
        socat.arg(format!("TCP-LISTEN:{port},bind={HOST},fork,reuseaddr,nodelay"));
        socat.arg(format!("TCP:127.0.0.1:{port},nodelay"));
        // It complains about each connection refused while the server is down.
        socat.stdin(Stdio::null()).stderr(Stdio::null());
        Running::start(socat)
    }
}
