//! The processes of an ensemble, as an administrator starts, kills and stops them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::Running;
use crate::rig::server::READY_PATIENCE;
use crate::suite::Stage;
use crate::suite::cli::program::{crossdock, finish};

/// How long a graceful stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(25);

/// How long it may take until all replica sets are whole again.
const WHOLE_PATIENCE: Duration = Duration::from_secs(40);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Size of each node.
const SIZE: &str = "1G";

/// A process of the ensemble.
pub(super) struct Member {
    name: String,
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
}

impl Ensemble<'_> {
    /// The name that `cluster init` gave it.
    pub(super) const NAME: &'static str = "pool";

    /// A storage node, ready.
    pub(super) fn node(&self, number: u32) -> Result<Member> {
        let data = self.node_directory(number);
        let data = data.to_str().context("not UTF-8")?;
        let number = number.to_string();
        let own = [
            "--number", &number, "--data", data, "--size", SIZE, "--cache", "32M",
        ];
        self.start(&format!("node-{number}"), "node", &own)
    }

    /// Where a node keeps what it holds.
    pub(super) fn node_directory(&self, number: u32) -> PathBuf {
        self.stage.folder.join(format!("node-{number}"))
    }

    /// A manager, ready.
    pub(super) fn manager(&self, name: &str) -> Result<Member> {
        self.start(name, "manager", &["--grace", "1"])
    }

    /// A gateway, ready.
    pub(super) fn gateway(&self, name: &str) -> Result<Member> {
        self.start(name, "gateway", &[])
    }

    fn start(&self, name: &str, role: &str, own: &[&str]) -> Result<Member> {
        let common = [role, "run", "--etcd", &self.etcd, "--name", Self::NAME];
        let words = common.iter().chain(own).map(|word| (*word).to_owned());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut doors = vec!["link"];
        if role == "gateway" {
            doors.push("nfs");
        }
        doors.push("admin");
        let mut member = Member {
            name: name.to_owned(),
            words: words.collect(),
            log: self
                .stage
                .log
                .with_file_name(format!("ensemble-{name}.log")),
            running: None,
            doors: doors.iter().map(|door| ((*door).to_owned(), any)).collect(),
        };
        member.restart(self.stage)?;
        Ok(member)
    }
}

impl Member {
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
        let mut words: Vec<String> = self.words.clone();
        for (door, address) in &self.doors {
            let flag = if door == "link" { "listen" } else { door };
            words.extend([format!("--{flag}"), address.to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = crossdock(stage, &words);
        command.stdin(Stdio::null());
        let (running, lines) = Running::start_with_lines(command, &self.log)?;
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
        self.running = Some(running);
        Ok(())
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.running = None;
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
        finish(stage, &["status", "--json", "--admin", &admin])?.json(0)
    }

    /// Waits until it knows of no replica set that misses a member, and of
    /// `hosts` processes, all of which it talks to.
    pub(super) fn await_whole(&self, stage: &Stage<'_>, hosts: usize) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let status = self.status(stage)?;
            let all = status["hosts"].as_array().context("no list of hosts")?;
            let is_connected = all.iter().all(|host| host["is_connected"] == true);
            if status["sets_short"] == 0 && all.len() == hosts && is_connected {
                return Ok(began.elapsed());
            }
            ensure!(
                began.elapsed() < WHOLE_PATIENCE,
                "{} sees {} sets that miss a member, and {status:#}",
                self.name,
                status["sets_short"]
            );
            thread::park_timeout(LOOK_EVERY);
        }
    }
}
