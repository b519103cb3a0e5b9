//! The processes of an ensemble, as an administrator starts, kills and stops them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::paths::Paths;
use crate::process::{Lines, Running};
use crate::rig::cluster::missing_in;
use crate::rig::etcd::Etcd;
use crate::rig::network::Network;
use crate::rig::server::READY_PATIENCE;
use crate::suite::Stage;
use crate::suite::cli::program::{Finished, crossdock, finish_command};

/// How long a graceful stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(25);

/// How long it may take until all replica sets are whole again.
const WHOLE_PATIENCE: Duration = Duration::from_secs(40);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Size of each node.
const SIZE: &str = "4G";

/// A process of the ensemble.
pub(super) struct Member<'network> {
    name: String,
    network: Option<&'network Network>,
    words: Vec<String>,
    log: PathBuf,
    running: Option<Running>,
    /// Where its doors are: the same after a restart.
    doors: BTreeMap<String, SocketAddr>,
}

/// What all of them are told.
pub(super) struct Ensemble<'stage> {
    pub(super) stage: &'stage Stage<'stage>,
    pub(super) etcd: String,
    /// Further flags by which etcd is reached.
    pub(super) etcd_flags: Vec<String>,
    /// Where all of it runs, unless that is the machine's own network.
    pub(super) network: Option<&'stage Network>,
    /// Where its authority is, if it talks over TLS.
    pub(super) ca: Option<PathBuf>,
}

impl<'stage> Ensemble<'stage> {
    /// One whose members are to be started, in the machine's own network and in the clear.
    pub(super) fn over(etcd: &Etcd, stage: &'stage Stage<'stage>) -> Result<Self> {
        Ok(Self {
            stage,
            etcd: etcd.endpoints(),
            etcd_flags: etcd.flags()?,
            network: None,
            ca: None,
        })
    }

    /// The name that `cluster init` gave it.
    pub(super) const NAME: &'static str = "pool";

    /// Flags that name an ensemble in this etcd.
    pub(super) fn at<'words>(&'words self, name: &'words str) -> Vec<&'words str> {
        let mut words = vec!["--etcd", &self.etcd, "--name", name];
        words.extend(self.etcd_flags.iter().map(String::as_str));
        words
    }

    /// A storage node, ready.
    pub(super) fn node(&self, number: u32) -> Result<Member<'stage>> {
        self.node_with(number, &["--cache", "32M"])
    }

    /// The same with these further words.
    pub(super) fn node_with(&self, number: u32, more: &[&str]) -> Result<Member<'stage>> {
        let data = self.node_directory(number);
        let data = data.to_str().context("not UTF-8")?;
        let number = number.to_string();
        let own = ["--number", &number, "--data", data, "--size", SIZE];
        self.start(
            &format!("node-{number}"),
            "node",
            &[&own[..], more].concat(),
        )
    }

    /// The same, with further doors.
    pub(super) fn node_of(
        &self,
        number: u32,
        more: &[&str],
        doors: &[&str],
    ) -> Result<Member<'stage>> {
        let data = self.node_directory(number);
        let data = data.to_str().context("not UTF-8")?;
        let (name, number) = (format!("node-{number}"), number.to_string());
        let own = ["--number", &number, "--data", data, "--size", SIZE];
        self.with_doors(&name, "node", &[&own[..], more].concat(), doors)
    }

    /// A process with these doors besides those that it has anyway, ready.
    pub(super) fn with_doors(
        &self,
        name: &str,
        role: &str,
        own: &[&str],
        doors: &[&str],
    ) -> Result<Member<'stage>> {
        let mut member = self.stopped(name, role, own)?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let doors = doors.iter().map(|door| ((*door).to_owned(), any));
        member.doors.extend(doors);
        member.restart(self.stage)?;
        Ok(member)
    }

    /// Where a node keeps what it holds.
    pub(super) fn node_directory(&self, number: u32) -> PathBuf {
        self.stage.folder.join(format!("node-{number}"))
    }

    /// A manager, ready.
    pub(super) fn manager(&self, name: &str) -> Result<Member<'stage>> {
        self.start(name, "manager", &["--grace", "1"])
    }

    /// A gateway, ready.
    pub(super) fn gateway(&self, name: &str) -> Result<Member<'stage>> {
        self.start(name, "gateway", &["--gateway-name", name])
    }

    /// A gateway that clients reach at these doors, ready.
    pub(super) fn gateway_at(
        &self,
        name: &str,
        doors: &[(&str, SocketAddr)],
    ) -> Result<Member<'stage>> {
        let mut gateway = self.stopped(name, "gateway", &["--gateway-name", name])?;
        let doors = doors.iter().map(|door| (door.0.to_owned(), door.1));
        gateway.doors.extend(doors);
        gateway.restart(self.stage)?;
        Ok(gateway)
    }

    /// Makes it: three nodes, two copies; `more` are further words.
    pub(super) fn init(&self, more: &[&str]) -> Result<()> {
        let mut words = vec!["cluster", "init"];
        words.extend(self.at(Self::NAME));
        words.extend(["--nodes", "3", "--replicas", "2"]);
        if let Some(ca) = &self.ca {
            words.extend(["--transport", "tls", "--ca", Paths::plain(ca)?]);
        }
        words.extend(more);
        words.extend(self.stage.init.iter().map(String::as_str));
        self.finish(&words)?.expect(0, &[])
    }

    /// Runs the binary with `words` to its end.
    pub(super) fn finish(&self, words: &[&str]) -> Result<Finished> {
        finish_command(self.stage, command(self.stage, self.network, words))
    }

    fn start(&self, name: &str, role: &str, own: &[&str]) -> Result<Member<'stage>> {
        let mut member = self.stopped(name, role, own)?;
        member.restart(self.stage)?;
        Ok(member)
    }

    /// A manager that runs, and may wait for nodes.
    pub(super) fn waiting_manager(&self, name: &str) -> Result<(Member<'stage>, Lines)> {
        let mut member = self.stopped(name, "manager", &["--grace", "1"])?;
        let lines = member.launch(self.stage)?;
        Ok((member, lines))
    }

    /// A process of the binary with these words only, which may not get ready.
    pub(super) fn bare(&self, name: &str, words: &[&str]) -> Result<Member<'stage>> {
        let mut member = Member {
            name: name.to_owned(),
            network: self.network,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            log: self.log_of(name),
            running: None,
            doors: BTreeMap::new(),
        };
        // What one of an earlier run said is not to be taken for what this one says.
        if member.log.exists() {
            std::fs::remove_file(&member.log)?;
        }
        member.launch(self.stage)?.ignore();
        Ok(member)
    }

    /// Where a process keeps its key and certificate.
    pub(super) fn identity(&self, name: &str) -> PathBuf {
        self.stage.folder.join(format!("identity-{name}"))
    }

    /// A fresh token.
    pub(super) fn token(&self, more: &[&str]) -> Result<String> {
        let words = ["cluster", "token", "create"];
        let words = [&words[..], &self.at(Self::NAME), more].concat();
        let made = self.finish(&words)?;
        made.expect(0, &[])?;
        Ok(made.stdout.trim().to_owned())
    }

    /// How a process shows who it is, where that is asked.
    fn proof(&self, name: &str, role: &str) -> Result<Vec<String>> {
        let Some(ca) = &self.ca else {
            return Ok(Vec::new());
        };
        let identity = self.identity(name);
        let mut words = vec!["--identity".to_owned(), Paths::plain(&identity)?.to_owned()];
        if role == "manager" {
            words.extend(["--ca".to_owned(), Paths::plain(ca)?.to_owned()]);
        } else if !identity.exists() {
            words.extend(["--token".to_owned(), self.token(&["--role", role])?]);
        }
        Ok(words)
    }

    fn stopped(&self, name: &str, role: &str, own: &[&str]) -> Result<Member<'stage>> {
        let common = [&[role, "run"], &self.at(Self::NAME)[..]].concat();
        let words = common.iter().chain(own).map(|word| (*word).to_owned());
        let words = words.chain(self.proof(name, role)?);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut doors = vec!["link"];
        if role == "gateway" {
            doors.push("nfs");
        }
        doors.push("admin");
        Ok(Member {
            name: name.to_owned(),
            network: self.network,
            words: words.collect(),
            log: self.log_of(name),
            running: None,
            doors: doors.iter().map(|door| ((*door).to_owned(), any)).collect(),
        })
    }

    /// Where a process's output goes: other suites have processes of the same names.
    fn log_of(&self, name: &str) -> PathBuf {
        let suite = self.stage.log.file_stem().unwrap_or_default();
        let suite = suite.to_string_lossy();
        self.stage.log.with_file_name(format!("{suite}.{name}.log"))
    }
}

/// The binary, where the ensemble runs.
fn command(stage: &Stage<'_>, network: Option<&Network>, words: &[&str]) -> Command {
    match network {
        None => crossdock(stage, words),
        Some(network) => {
            let mut command = network.program(stage.paths.release_binary());
            command.args(words);
            command
        }
    }
}

impl Member<'_> {
    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where that door is.
    pub(super) fn door(&self, name: &str) -> Result<SocketAddr> {
        let door = self.doors.get(name).copied();
        door.with_context(|| format!("{} has no door {name}", self.name))
    }

    /// Starts it, with the doors that it had, and waits until it is ready.
    pub(super) fn restart(&mut self, stage: &Stage<'_>) -> Result<()> {
        let lines = self.launch(stage)?;
        self.await_ready(lines)
    }

    fn launch(&mut self, stage: &Stage<'_>) -> Result<Lines> {
        let mut words: Vec<String> = self.words.clone();
        for (door, address) in &self.doors {
            let flag = if door == "link" { "listen" } else { door };
            words.extend([format!("--{flag}"), address.to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = command(stage, self.network, &words);
        command.stdin(Stdio::null());
        let (running, lines) = Running::start_with_lines(command, &self.log)?;
        self.running = Some(running);
        Ok(lines)
    }

    /// Waits until it has said where its doors are.
    pub(super) fn await_ready(&mut self, lines: Lines) -> Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        let name = &self.name;
        let mut is_ready = false;
        loop {
            let line = lines.next(deadline);
            let line = line.with_context(|| format!("{name} is not ready"))?;
            let Some(line) = line else {
                bail!(
                    "{name} ended before it was ready: see {}",
                    self.log.display()
                );
            };
            if line == "crossdock ready" {
                is_ready = true;
            } else if let Some((door, address)) = line.split_once(' ').filter(|_| is_ready) {
                self.doors.insert(door.to_owned(), address.parse()?);
                // The last one.
                if door == "admin" {
                    break;
                }
            }
        }
        lines.ignore();
        Ok(())
    }

    /// What it has logged.
    pub(super) fn said(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// Waits until its log has all of `words` in one line.
    pub(super) fn await_said(&self, words: &[&str]) -> Result<()> {
        let began = Instant::now();
        loop {
            let said = self.said()?;
            let mut lines = said.lines();
            if lines.any(|line| words.iter().all(|word| line.contains(word))) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < STOP_PATIENCE,
                "{} has not said {words:?}: see {}",
                self.name,
                self.log.display()
            );
            thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Kills the process with SIGKILL; its files stay. Suites over the rig kill whole hosts.
    pub(super) fn kill(&mut self) {
        self.running = None;
    }

    /// Of the process, while it runs.
    pub(super) fn pid(&self) -> Result<u32> {
        Ok(self.running()?.pid())
    }

    fn running(&self) -> Result<&Running> {
        let running = self.running.as_ref();
        running.with_context(|| format!("{} does not run", self.name))
    }

    /// Has it do nothing (SIGSTOP), or go on (SIGCONT).
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.running()?.signal(signal)
    }

    /// Waits until it ends by itself, as one that has been replaced.
    pub(super) fn await_replaced(&mut self) -> Result<()> {
        self.await_ended("has been replaced")
    }

    /// Waits until it ends by itself and says why.
    pub(super) fn await_ended(&mut self, why: &str) -> Result<()> {
        let mut running = self.running.take();
        let running = running.as_mut();
        let running = running.with_context(|| format!("{} does not run", self.name))?;
        let status = running.wait(Instant::now() + STOP_PATIENCE)?;
        let said = std::fs::read_to_string(&self.log)?;
        ensure!(
            status.code() == Some(1) && said.contains(why),
            "{} ended with {status}: see {}",
            self.name,
            self.log.display()
        );
        Ok(())
    }

    /// Waits until it has ended in order, as one that was told to by another one.
    pub(super) fn await_stopped(&mut self) -> Result<()> {
        let mut running = self.running.take();
        let running = running.as_mut();
        let running = running.with_context(|| format!("{} does not run", self.name))?;
        let status = running.wait(Instant::now() + STOP_PATIENCE)?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    /// Stops it with SIGTERM; it must exit with 0.
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut running = self.running.take();
        let running = running.as_mut();
        let running = running.with_context(|| format!("{} does not run", self.name))?;
        let status = running.terminate(STOP_PATIENCE)?;
        ensure!(status.success(), "{} stopped with {status}", self.name);
        Ok(())
    }

    /// What `crossdock status` says of it.
    pub(super) fn status(&self, stage: &Stage<'_>) -> Result<serde_json::Value> {
        let admin = self.door("admin")?.to_string();
        let words = ["status", "--json", "--admin", &admin];
        finish_command(stage, command(stage, self.network, &words))?.json(0)
    }

    /// Waits until it knows of no replica set that misses a member, and of
    /// `hosts` processes, all of which it talks to.
    pub(super) fn await_whole(&self, stage: &Stage<'_>, hosts: usize) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let status = self.status(stage)?;
            let Some(missing) = missing_in(&status, hosts)? else {
                return Ok(began.elapsed());
            };
            ensure!(
                began.elapsed() < WHOLE_PATIENCE,
                "{} {missing}: {status:#}",
                self.name
            );
            thread::park_timeout(LOOK_EVERY);
        }
    }
}
