//! A private network namespace with its own loopback and one tap device.
//!
//! It has no name: it lives as long as a process is in it, so nothing is left
//! behind even if xtask itself is killed. Or it is that of a rig's host.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{Running, program, run};

/// The tap device, as the host side names it.
pub(crate) const TAP: &str = "tap0";
/// The host's address on the tap (RFC 2544 benchmark range: never routed).
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The guest's address on the tap.
pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// A tap device: a wire between the host's side and one guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) tap: &'static str,
    pub(crate) host: Ipv4Addr,
    pub(crate) guest: Ipv4Addr,
}

/// That of the first guest.
pub(crate) const LINK: Link = Link {
    tap: TAP,
    host: HOST,
    guest: GUEST,
};

/// That of a second one.
pub(crate) const SECOND_LINK: Link = Link {
    tap: "tap1",
    host: Ipv4Addr::new(198, 18, 0, 5),
    guest: Ipv4Addr::new(198, 18, 0, 6),
};

/// Prefix length of the tap's network: just the two of them.
pub(crate) const PREFIX_BITS: u8 = 30;

/// What xtask's own small servers print once they listen.
pub(crate) const READY: &str = "ready";
/// How long they may take.
const HELPER_PATIENCE: Duration = Duration::from_secs(10);

/// When a connection that was refused is tried again: Linux's NFS client waits for 3 s.
const CONNECT_AGAIN: Duration = Duration::from_secs(3);

/// For how long it is tried.
const FORWARD_PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace. Dropping it ends the process that holds it open.
pub(crate) struct Network {
    /// What it is entered by.
    path: PathBuf,
    /// Absent: it is a rig's.
    _holder: Option<Running>,
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
        let network = Self {
            path: format!("/proc/{}/ns/net", holder.pid()).into(),
            _holder: Some(holder),
        };
        run(network.program("ip").args(["link", "set", "lo", "up"]))?;
        network.add(&LINK)?;
        Ok(network)
    }

    /// That of a rig's host.
    pub(crate) fn of_host(netns: &str) -> Self {
        Self {
            path: Path::new("/run/netns").join(netns),
            _holder: None,
        }
    }

    /// What it is entered by.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a tap that waits for another guest.
    pub(crate) fn add(&self, link: &Link) -> Result<()> {
        let Link { tap, host, .. } = link;
        for line in [
            format!("tuntap add {tap} mode tap"),
            format!("address add {host}/{PREFIX_BITS} dev {tap}"),
            format!("link set {tap} up"),
        ] {
            run(self.program("ip").args(line.split(' ')))?;
        }
        Ok(())
    }

    /// A command line whose program will run inside.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = program("nsenter");
        command
            .arg(format!("--net={}", self.path.display()))
            .arg("--")
            .arg(name);
        command
    }

    /// Does `work` on a thread that is inside, as are those that it starts.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let namespace = File::open(&self.path)?;
        let enter = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        };
        thread::scope(|scope| {
            let done = scope.spawn(enter).join();
            done.unwrap_or_else(|_| bail!("it has panicked"))
        })
    }

    /// Forwards the port of `server` at the tap's host address to `server`, which a
    /// guest does not reach: it listens on loopback, or is another host of a rig.
    pub(crate) fn forward(&self, server: SocketAddr, log: &Path) -> Result<Running> {
        let mut forward = self.program(std::env::current_exe()?);
        forward.arg("forward");
        forward.arg(format!("{HOST}:{}", server.port()));
        forward.arg(server.to_string());
        start_helper(forward, log)
    }
}

/// Starts one of xtask's own small servers and waits until it listens.
pub(crate) fn start_helper(mut command: Command, log: &Path) -> Result<Running> {
    command.stdin(Stdio::null());
    let (running, lines) = Running::start_with_lines(command, log)?;
    let line = lines.next(Instant::now() + HELPER_PATIENCE)?;
    ensure!(
        line.as_deref() == Some(READY),
        "{}: {line:?}",
        running.name()
    );
    lines.ignore();
    Ok(running)
}

/// Forwards connections until killed (`xtask forward FROM TO`, inside a namespace).
///
/// Once either side has closed, the other is closed too: that is how a client learns that
/// the server was killed. While nobody listens at `to` a new connection waits, and it is
/// tried again as a kernel's NFS client would: one whose connections are taken and closed
/// at once waits longer each time, which no server has told it to.
pub(crate) fn serve_forward(from: &str, to: &str) -> Result<()> {
    let listener = TcpListener::bind(from)?;
    let to: SocketAddr = to.parse()?;
    println!("{READY}");
    for client in listener.incoming() {
        let client = client?;
        thread::spawn(move || forward(client, to));
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "as long as the client that it stands for"
)]
fn forward(client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let deadline = Instant::now() + FORWARD_PATIENCE;
    let server = loop {
        match TcpStream::connect(to) {
            Ok(server) => break server,
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(CONNECT_AGAIN),
        }
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_too, server_too) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || copy(server_too, client_too));
    copy(client, server);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Any end ends both directions; which error it was tells nobody anything.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
