//! Depots in networks of their own, each behind a link with a rate of its own, and clients
//! behind another one: `crossdock up` with one node each, on a bridge.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::switch;
use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, open_log};

/// The host of the clients.
const CLIENT: &str = "client";
/// Where depots listen.
const PORT: u16 = 6714;
/// How long one may take to serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a depot's data.
const SIZE: &str = "1G";

/// The depots, and the network of their clients. It goes when it is dropped, with its processes and
/// its namespaces.
pub(crate) struct Wan {
    name: String,
    binary: PathBuf,
    folder: PathBuf,
    client: Network,
    depots: Vec<Depot>,
    /// Last: what still runs in a namespace keeps it.
    _namespaces: Namespaces,
}

struct Depot {
    host: String,
    address: Ipv4Addr,
    /// None while it is down.
    running: Option<Running>,
}

struct Namespaces {
    rig: String,
    names: Vec<String>,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        // What cannot be removed stays for the next run of that name.
        let _ = switch::remove(&self.rig, &names);
    }
}

impl Wan {
    /// Makes depots behind links of so many Mbit/s each, and a client's link of as many as
    /// `client_mbit`.
    pub(crate) fn up(
        paths: &Paths,
        name: &str,
        folder: &Path,
        rates_mbit: &[u32],
        client_mbit: u32,
    ) -> Result<Self> {
        let hosts: Vec<String> = (0..rates_mbit.len()).map(|it| format!("d{it}")).collect();
        let all = hosts.iter().map(String::as_str).chain([CLIENT]);
        let namespaces = Namespaces {
            rig: name.to_owned(),
            names: all.map(|host| switch::netns(name, host)).collect(),
        };
        switch::make(name)?;
        switch::add(
            name,
            CLIENT,
            Ipv4Addr::new(198, 18, 9, 100),
            Some(client_mbit),
        )?;
        let mut wan = Self {
            name: name.to_owned(),
            binary: paths.release_binary(),
            folder: folder.to_owned(),
            client: Network::of_host(&switch::netns(name, CLIENT)),
            depots: Vec::new(),
            _namespaces: namespaces,
        };
        for (host, (&rate, number)) in hosts.into_iter().zip(rates_mbit.iter().zip(1..)) {
            let address = Ipv4Addr::new(198, 18, 9, number);
            switch::add(name, &host, address, Some(rate))?;
            wan.depots.push(Depot {
                host,
                address,
                running: None,
            });
        }
        for number in 0..wan.depots.len() {
            wan.start(number)?;
        }
        Ok(wan)
    }

    /// Starts a depot on what it had before.
    pub(crate) fn start(&mut self, number: usize) -> Result<()> {
        let Depot { host, address, .. } = &self.depots[number];
        let data = self.folder.join(host);
        let log = self.folder.join(format!("{host}.log"));
        fs::create_dir_all(&self.folder)?;
        let network = Network::of_host(&switch::netns(&self.name, host));
        let mut command = network.program(&self.binary);
        command.args(["up", "--nodes", "1", "--size", SIZE, "--data"]);
        command
            .arg(&data)
            .args(["--ibp", &format!("{address}:{PORT}")]);
        for door in ["--nfs", "--http", "--node-http", "--iscsi", "--lbone"] {
            command.args([door, "off"]);
        }
        command
            .args(["--admin", "127.0.0.1:7070"])
            .stdin(Stdio::null());
        command.stderr(File::options().create(true).append(true).open(&log)?);
        let (running, lines) = Running::start_with_output_lines(command, open_log(&log)?)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lines.next(deadline)? {
                Some(line) if line.starts_with("ibp ") => break,
                Some(_) => {}
                None => bail!("a depot has ended: {}", fs::read_to_string(&log)?),
            }
        }
        lines.ignore();
        self.depots[number].running = Some(running);
        Ok(())
    }

    /// Kills a depot (SIGKILL); what it has acknowledged stays.
    pub(crate) fn kill(&mut self, number: usize) {
        // Dropping it kills it.
        self.depots[number].running = None;
    }

    /// From now on a depot's link carries so much.
    pub(crate) fn set_rate(&self, number: usize, mbit: u32) -> Result<()> {
        switch::set_rate(&self.name, &self.depots[number].host, mbit)
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
