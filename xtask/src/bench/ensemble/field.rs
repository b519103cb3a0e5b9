//! The ensemble that is measured, the load on it, and what its processes spend.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::admin::{self, ADMIN};
use crate::bench::{Options, cpu, rig_name};
use crate::paths::Paths;
use crate::process::program;
use crate::rig::cluster::{Cluster, Options as RigOptions, Role, in_network, words_of};

/// How long an administrator's port may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A CPU group's share is given out anew so often.
const PERIOD_US: u32 = 20_000;
/// Directories at sites that a coin chose, before an ensemble is measured: hardly one of
/// the 256 sites is without any.
const DIRECTORIES: f64 = 1000.0;
/// Processes of each client that make them.
const MAKERS: usize = 8;
/// How often an end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 100;

/// An ensemble on hosts of its own. Dropping it takes it down.
pub(super) struct Field<'paths> {
    paths: &'paths Paths,
    // Before the groups, which have to be empty to go.
    pub(super) cluster: Cluster<'paths>,
    groups: Vec<CpuGroup>,
}

/// What one client of a run gave.
pub(super) struct Sample {
    pub(super) operations: f64,
    /// That were made.
    pub(super) directories: f64,
    pub(super) bytes: f64,
    mean_us: f64,
    pub(super) longest_us: f64,
    /// In seconds, of the same clock for all.
    started: f64,
    ended: f64,
}

impl<'paths> Field<'paths> {
    /// Builds the rig that `words` describe: every client has a gateway.
    pub(super) fn raise(paths: &'paths Paths, options: &Options, words: &str) -> Result<Self> {
        Self::raise_spread(paths, options, words, 0.0)
    }

    /// The same, where new directories go to other sites with a probability. All sites are
    /// in use then: one that is used for the first time is made, and told to all.
    pub(super) fn raise_spread(
        paths: &'paths Paths,
        options: &Options,
        words: &str,
        probability: f64,
    ) -> Result<Self> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut rig = RigOptions::parse(&words)?;
        rig.client_gateways = rig.clients;
        rig.init = words_of(&options.init);
        rig.init
            .extend(["--spread".to_owned(), probability.to_string()]);
        let clients = usize::from(rig.clients);
        let field = Self {
            paths,
            cluster: Cluster::up(paths, &rig_name(), &folder(paths), &rig)?,
            groups: Vec::new(),
        };
        if probability > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "some clients")]
            let count = DIRECTORIES / probability / (clients * MAKERS) as f64;
            let words = format!("--work tree --clients {MAKERS} --count {count:.0} --seconds 60");
            field.load(clients, "warm-up", &words)?;
        }
        Ok(field)
    }

    /// Gives each manager that part of a processor and no more.
    pub(super) fn limit_managers(&mut self, share: f64) -> Result<()> {
        for manager in self.cluster.of(Role::Manager) {
            let group = CpuGroup::new(&manager.netns, share)?;
            group.add(self.cluster.pid(&manager.name)?)?;
            self.groups.push(group);
        }
        Ok(())
    }

    /// Has the first `clients` clients do the same at the same time, each over its own
    /// gateway, with files that are called by `name`.
    pub(super) fn load(&self, clients: usize, name: &str, words: &str) -> Result<Vec<Sample>> {
        let hosts: Vec<_> = self.cluster.of(Role::Client).take(clients).collect();
        ensure!(hosts.len() == clients, "there are no {clients} clients");
        let door = Cluster::OWN_DOOR;
        let places = hosts
            .iter()
            .map(|host| (host.netns.as_str(), host.name.as_str()));
        load_from(self.paths, places, door, name, words)
    }

    /// CPU seconds that a host's process has spent.
    pub(super) fn cpu_seconds(&self, host: &str) -> Result<f64> {
        cpu::seconds(self.cluster.pid(host)?)
    }

    /// The same of all managers.
    pub(super) fn managers_cpu_seconds(&self) -> Result<f64> {
        let managers = self.cluster.of(Role::Manager);
        managers
            .map(|manager| self.cpu_seconds(&manager.name))
            .sum()
    }

    /// A metric of each manager, summed over its sites.
    pub(super) fn managers_metric(&self, metric: &str) -> Result<Vec<f64>> {
        let managers = self.cluster.of(Role::Manager);
        let values = managers.map(|manager| {
            let text = in_network(&manager.netns, || admin::get(ADMIN, "/metrics", PATIENCE))?;
            let lines = text.lines().filter(|line| line.starts_with(metric));
            let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
            Ok(lines.filter_map(value).sum::<f64>())
        });
        values.collect()
    }
}

/// The load from several hosts at once.
pub(super) fn load_from<'host>(
    paths: &Paths,
    hosts: impl Iterator<Item = (&'host str, &'host str)>,
    door: SocketAddr,
    name: &str,
    words: &str,
) -> Result<Vec<Sample>> {
    let started = hosts.map(|(netns, host)| {
        let mut command = program("nsenter");
        command.arg(format!("--net=/run/netns/{netns}")).arg("--");
        command.arg(paths.target.join("release/crossdock-load"));
        command.args(["run", "--server", &door.to_string()]);
        command.args(words.split_whitespace());
        command.arg("--name").arg(format!("{name}-{host}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("cannot start crossdock-load")
    });
    // All of them, before the first is waited for.
    let started: Vec<_> = started.collect::<Result<_>>()?;
    let ended = started.into_iter().map(|child| {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "crossdock-load: {}", output.status);
        Sample::of(&serde_json::from_slice(&output.stdout)?)
    });
    ended.collect()
}

impl Sample {
    fn of(figures: &Value) -> Result<Self> {
        let number = |name: &str| {
            let value = figures[name].as_f64();
            value.with_context(|| format!("the load says no {name}"))
        };
        Ok(Self {
            operations: number("operations")?,
            directories: number("directories")?,
            bytes: number("bytes")?,
            mean_us: number("mean_us")?,
            longest_us: number("max_us")?,
            started: number("started_at")?,
            ended: number("started_at")? + number("seconds")?,
        })
    }

    /// Together.
    pub(super) fn sum(samples: &[Self], figure: fn(&Self) -> f64) -> f64 {
        samples.iter().map(figure).sum()
    }

    /// A figure of all for each second from the start of the first to the end of the
    /// last: clients that are alone at the end gain nothing.
    pub(super) fn per_second(samples: &[Self], figure: fn(&Self) -> f64) -> f64 {
        let started = samples.iter().map(|one| one.started);
        let ended = samples.iter().map(|one| one.ended);
        let seconds = ended.fold(f64::MIN, f64::max) - started.fold(f64::MAX, f64::min);
        Self::sum(samples, figure) / seconds
    }

    /// Of all requests.
    pub(super) fn mean_us(samples: &[Self]) -> f64 {
        let weighted = samples.iter().map(|one| one.mean_us * one.operations);
        weighted.sum::<f64>() / Self::sum(samples, |one| one.operations)
    }
}

pub(super) fn folder(paths: &Paths) -> PathBuf {
    paths.test_data().join("bench-ensemble")
}

/// A cgroup (version 1) that has a part of a processor.
struct CpuGroup {
    folder: PathBuf,
}

impl CpuGroup {
    fn new(name: &str, share: f64) -> Result<Self> {
        let root = PathBuf::from("/sys/fs/cgroup/cpu");
        ensure!(
            root.join("cpu.cfs_quota_us").exists() || root.join("tasks").exists(),
            "no cpu cgroup of version 1 here"
        );
        let folder = root.join(name);
        fs::create_dir_all(&folder)?;
        let group = Self { folder };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of one processor"
        )]
        let quota_us = (f64::from(PERIOD_US) * share) as u32;
        group.set("cpu.cfs_period_us", PERIOD_US)?;
        group.set("cpu.cfs_quota_us", quota_us)?;
        Ok(group)
    }

    fn add(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", pid)
    }

    fn set(&self, name: &str, value: u32) -> Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, value.to_string()).with_context(|| file.display().to_string())
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // What was killed may take a moment to be gone.
        for _ in 0..LOOKS_MAX {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::park_timeout(LOOK_EVERY);
        }
        eprintln!("{} stays", self.folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what several clients do together counts for the time that all of them
    /// took, and none of it twice.
    #[test]
    fn rates_are_of_the_whole_time() {
        let sample = |operations, started, ended| Sample {
            operations,
            directories: 0.0,
            bytes: 0.0,
            mean_us: operations,
            longest_us: operations,
            started,
            ended,
        };
        let samples = [sample(100.0, 10.0, 15.0), sample(300.0, 11.0, 20.0)];
        let rate = Sample::per_second(&samples, |one| one.operations);
        assert!((rate - 40.0).abs() < 1e-9, "{rate}");
        assert!((Sample::mean_us(&samples) - 250.0).abs() < 1e-9);
    }
}
