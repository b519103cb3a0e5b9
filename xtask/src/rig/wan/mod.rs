//! Depots in networks of their own, each behind a link with a rate of its own, and clients
//! behind another one: `crossdock up` with one node each, on a bridge. Connections may have a
//! rate of their own, too, as those over long lines do.
//!
//! `cargo xtask rig wan up|down` makes one that stands.

mod command;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Life;
use super::cluster::jail::Process;
use super::cluster::switch;
use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, open_log};

pub(crate) use command::command;

/// The host of the clients.
const CLIENT: &str = "client";
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 9, 100);
/// Where depots listen.
const PORT: u16 = 6714;
/// How long one may take to serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a depot's data.
const SIZE: &str = "1G";

/// What it is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links<'words> {
    /// Of each depot, in Mbit/s.
    pub(crate) depots_mbit: &'words [u32],
    /// Of the clients' host.
    pub(crate) client_mbit: u32,
    /// Of each connection, if it has less than the links.
    pub(crate) flow_mbit: Option<u32>,
    /// Further words of each depot's command line.
    pub(crate) words: &'words [&'words str],
}

impl<'words> Links<'words> {
    /// Connections have what links give them.
    pub(crate) const fn new(depots_mbit: &'words [u32], client_mbit: u32) -> Self {
        Self {
            depots_mbit,
            client_mbit,
            flow_mbit: None,
            words: &[],
        }
    }
}

/// The depots, and the network of their clients. It goes when it is dropped, with its processes and
/// its namespaces.
pub(crate) struct Wan {
    name: String,
    binary: PathBuf,
    folder: PathBuf,
    life: Life,
    client: Network,
    depots: Vec<Depot>,
    flow_mbit: Option<u32>,
    words: Vec<String>,
    /// Last: what still runs in a namespace keeps it.
    namespaces: Namespaces,
}

struct Depot {
    host: String,
    address: Ipv4Addr,
    /// None while it is down.
    serving: Option<Serving>,
}

/// Who serves a depot.
enum Serving {
    Standing(Process),
    /// It is ended when it is dropped.
    OfXtask {
        _running: Running,
    },
}

struct Namespaces {
    rig: String,
    names: Vec<String>,
    /// They stay when this is dropped.
    are_kept: bool,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if self.are_kept {
            return;
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        // What cannot be removed stays for the next run of that name.
        let _ = switch::remove(&self.rig, &names);
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        if self.namespaces.are_kept {
            return;
        }
        for number in 0..self.depots.len() {
            if let Err(error) = self.kill(number) {
                eprintln!("a depot of the rig {} does not end: {error:#}", self.name);
            }
        }
    }
}

impl Wan {
    /// Makes the links, and starts the depots behind them. What fails on the way takes all of it
    /// down again.
    pub(crate) fn up(
        paths: &Paths,
        name: &str,
        folder: &Path,
        links: Links<'_>,
        life: Life,
    ) -> Result<Self> {
        let count = links.depots_mbit.len();
        let hosts: Vec<String> = (0..count).map(|it| format!("d{it}")).collect();
        let all = hosts.iter().map(String::as_str).chain([CLIENT]);
        let namespaces = Namespaces {
            rig: name.to_owned(),
            names: all.map(|host| switch::netns(name, host)).collect(),
            are_kept: false,
        };
        switch::make(name)?;
        switch::add(name, CLIENT, CLIENT_ADDRESS, Some(links.client_mbit))?;
        let mut wan = Self {
            name: name.to_owned(),
            binary: paths.release_binary(),
            folder: folder.to_owned(),
            life,
            client: Network::of_host(&switch::netns(name, CLIENT)),
            depots: Vec::new(),
            flow_mbit: links.flow_mbit,
            words: links.words.iter().map(|&word| word.to_owned()).collect(),
            namespaces,
        };
        wan.limit_flows(CLIENT, links.client_mbit)?;
        for (host, (&rate, number)) in hosts.into_iter().zip(links.depots_mbit.iter().zip(1..)) {
            let address = Ipv4Addr::new(198, 18, 9, number);
            switch::add(name, &host, address, Some(rate))?;
            wan.limit_flows(&host, rate)?;
            wan.depots.push(Depot {
                host,
                address,
                serving: None,
            });
        }
        for number in 0..wan.depots.len() {
            wan.start(number)?;
        }
        Ok(wan)
    }

    fn limit_flows(&self, host: &str, link_mbit: u32) -> Result<()> {
        match self.flow_mbit {
            Some(mbit) => switch::limit_flows(&self.name, host, link_mbit, mbit),
            None => Ok(()),
        }
    }

    /// Starts a depot on what it had before.
    pub(crate) fn start(&mut self, number: usize) -> Result<()> {
        let Depot { host, address, .. } = &self.depots[number];
        let log = self.folder.join(format!("{host}.log"));
        fs::create_dir_all(&self.folder)?;
        let network = Network::of_host(&switch::netns(&self.name, host));
        let mut command = match self.life {
            Life::OfXtask => network.program(&self.binary),
            Life::Standing => {
                // In a session of its own: it does not end with the terminal.
                let mut command = Command::new("setsid");
                command.args(["nsenter", &format!("--net={}", network.path().display())]);
                command.arg("--").arg(&self.binary);
                command
            }
        };
        command.args(["up", "--nodes", "1", "--size", SIZE, "--data"]);
        command.arg(self.folder.join(host));
        command.args(["--ibp", &format!("{address}:{PORT}")]);
        for door in ["--nfs", "--http", "--node-http", "--iscsi", "--lbone"] {
            command.args([door, "off"]);
        }
        command.args(["--admin", "127.0.0.1:7070"]);
        command.args(&self.words).stdin(Stdio::null());
        let output = open_log(&log)?;
        command.stderr(output.try_clone()?);
        self.depots[number].serving = Some(match self.life {
            Life::OfXtask => start_with_xtask(command, output, &log)?,
            Life::Standing => {
                let child = command.stdout(output).spawn();
                let process = Process::of(child.context("cannot start setsid")?.id())?;
                process.wait_for_line(&log, is_told, PATIENCE)?;
                Serving::Standing(process)
            }
        });
        Ok(())
    }

    /// Kills a depot (SIGKILL); what it has acknowledged stays.
    pub(crate) fn kill(&mut self, number: usize) -> Result<()> {
        match self.depots[number].serving.take() {
            Some(Serving::Standing(process)) => process.kill(),
            // Dropping it kills it.
            Some(Serving::OfXtask { .. }) | None => Ok(()),
        }
    }

    /// From now on a depot's link carries so much.
    pub(crate) fn set_rate(&self, number: usize, mbit: u32) -> Result<()> {
        let host = &self.depots[number].host;
        switch::set_rate(&self.name, host, mbit)?;
        self.limit_flows(host, mbit)
    }

    /// Where clients reach the depots.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let depots = self.depots.iter();
        let addresses = depots.map(|depot| SocketAddr::from((depot.address, PORT)));
        addresses.collect()
    }

    /// The same as a command line has them, the first `count`.
    pub(crate) fn depots_words(&self, count: usize) -> String {
        let words = self.addresses().into_iter().take(count);
        words.map(|it| it.to_string()).collect::<Vec<_>>().join(",")
    }

    /// A command of Crossdock where the clients are, in the rig's folder.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.client.program(&self.binary);
        command
            .args(words)
            .current_dir(&self.folder)
            .env("CROSSDOCK_FORECASTS", "off")
            .stdin(Stdio::null());
        command
    }

    /// Runs one to its end; how long that took.
    pub(crate) fn timed(&self, words: &[&str]) -> Result<Duration> {
        let began = Instant::now();
        let output = self.command(words).output();
        let output = output.with_context(|| format!("cannot start {words:?}"))?;
        if !output.status.success() {
            bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(began.elapsed())
    }

    /// A file in the rig's folder.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Whether a depot says in this line that it serves.
fn is_told(line: &str) -> bool {
    line.starts_with("ibp ")
}

fn start_with_xtask(command: Command, output: File, log: &Path) -> Result<Serving> {
    let (running, lines) = Running::start_with_output_lines(command, output)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lines.next(deadline)? {
            Some(line) if is_told(&line) => break,
            Some(_) => {}
            None => bail!("a depot has ended: {}", fs::read_to_string(log)?),
        }
    }
    lines.ignore();
    Ok(Serving::OfXtask { _running: running })
}
