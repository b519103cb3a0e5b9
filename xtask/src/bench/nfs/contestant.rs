//! Who takes part in a benchmark of NFS: servers that stand all the while, and
//! limits that are measured without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::ground;
use super::rows::{Peer, Row};
use crate::bench::figures::Sample;
use crate::paths::Paths;
use crate::process::{Running, output, program, run as run_program};
use crate::rig::memory::MemoryGroup;
use crate::rig::network::Network;
use crate::rig::server::{Kind, Server};

/// Processor of the server.
pub(in crate::bench) const SERVER_CPU: usize = 0;
/// Processor of the load generator.
pub(in crate::bench) const LOAD_CPU: usize = 1;
/// What a run may take beyond the time for which requests are sent: files made
/// before, the last COMMIT, removal.
const RUN_PATIENCE: Duration = Duration::from_secs(60);

/// The longest load.
const LOAD_PATIENCE: Duration = Duration::from_secs(900);

/// One visit of the load.
pub(super) struct Visit<'row> {
    pub(super) row: &'row Row,
    pub(super) seconds: f64,
    /// Part of the names of its files.
    pub(super) name: String,
    /// Where one that is compared but is no server works.
    pub(super) folder: &'row Path,
}

impl Visit<'_> {
    fn patience(&self) -> Duration {
        RUN_PATIENCE + Duration::from_secs_f64(4.0 * self.seconds)
    }
}

/// A server that takes part.
pub(super) struct Contestant<'network> {
    pub(super) name: String,
    network: &'network Network,
    standing: Standing<'network>,
    /// Where it keeps its data.
    pub(super) folder: PathBuf,
}

/// What is ended when a contestant is dropped.
enum Standing<'network> {
    Server(Kind, Box<Server<'network>>),
    Floor { answering: Running, address: String },
}

impl<'network> Contestant<'network> {
    /// nfs-ganesha, as it is or writing everything through.
    pub(super) fn ganesha(
        is_durable: bool,
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        let mut contestant = Self::server(Kind::Ganesha, paths, network, folder)?;
        if is_durable {
            // What is made in it from now on has both flags, too.
            let mut chattr = program("chattr");
            run_program(chattr.args(["+S", "+D"]).arg(folder.join("data")))?;
            contestant.name = contestant.name.replace("plain", "durable");
        }
        Ok(contestant)
    }

    pub(super) fn server(
        kind: Kind,
        paths: &Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        let server = on_cpu(SERVER_CPU, || Server::start(kind, paths, network, folder))?;
        let name = match kind {
            Kind::Crossdock => "crossdock".to_owned(),
            Kind::Ganesha => {
                // ext4 takes a long way around inodes that were freed in the last
                // minutes, in an earlier run or by a neighbour: let it put each
                // directory into a group of its own choice, by its name.
                run_program(program("chattr").arg("+T").arg(folder.join("data")))?;
                format!("nfs-ganesha {} VFS, plain", ganesha_version()?)
            }
        };
        Ok(Self {
            name,
            network,
            standing: Standing::Server(kind, Box::new(server)),
            folder: folder.join("data"),
        })
    }

    pub(super) fn floor(paths: &Paths, network: &'network Network, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut command = network.program("taskset");
        command.arg("-c").arg(SERVER_CPU.to_string());
        command.arg(load_generator(paths)).arg("floor");
        let (answering, lines) = Running::start_with_lines(command, &folder.join("floor.log"))?;
        let address = lines.next(Instant::now() + RUN_PATIENCE)?;
        lines.ignore();
        Ok(Self {
            name: "floor".to_owned(),
            network,
            standing: Standing::Floor {
                answering,
                address: address.context("the floor has ended")?,
            },
            folder: folder.to_owned(),
        })
    }

    /// Puts its process into a memory cgroup.
    pub(super) fn limit_memory(&self, group: &MemoryGroup) -> Result<()> {
        group.add(self.pid()?)
    }

    pub(super) fn pid(&self) -> Result<u32> {
        match &self.standing {
            Standing::Server(_, server) => server.pid().context("no process"),
            Standing::Floor { answering, .. } => Ok(answering.pid()),
        }
    }

    /// Arguments that tell the load generator where it is.
    fn place(&self) -> Result<Vec<String>> {
        let mut place = match &self.standing {
            Standing::Server(_, server) => vec![
                format!("--server=127.0.0.1:{}", server.port()),
                format!("--mount=127.0.0.1:{}", server.mount_port()),
                format!("--path={}", server.export()?),
            ],
            Standing::Floor { address, .. } => vec![format!("--server={address}")],
        };
        place.push(format!("--server-pid={}", self.pid()?));
        Ok(place)
    }

    /// Runs the load generator with these flags; what it prints.
    pub(super) fn load(&self, paths: &Paths, flags: &[(&str, String)]) -> Result<Value> {
        let mut command = self.generator(paths)?;
        for (flag, value) in flags {
            command.arg(flag);
            if !value.is_empty() {
                command.arg(value);
            }
        }
        figures(command, LOAD_PATIENCE, paths)
    }

    /// Kills it and starts it again on its data; until it serves.
    pub(super) fn kill_and_start(&mut self) -> Result<Duration> {
        let Standing::Server(_, server) = &mut self.standing else {
            bail!("{} keeps nothing", self.name);
        };
        server.kill();
        let begun = Instant::now();
        on_cpu(SERVER_CPU, || server.restart())?;
        Ok(begun.elapsed())
    }

    /// Lets it forget all content that it holds in memory.
    fn chill(&mut self, group: Option<&MemoryGroup>) -> Result<()> {
        if matches!(self.standing, Standing::Server(Kind::Crossdock, _)) {
            self.kill_and_start()?;
            if let Some(group) = group {
                self.limit_memory(group)?;
            }
        }
        ground::drop_page_cache()
    }

    /// A visit, and what it gave.
    pub(super) fn visit(
        &mut self,
        paths: &Paths,
        visit: &Visit<'_>,
        group: Option<&MemoryGroup>,
    ) -> Result<Sample> {
        // What the visit before has left to be written is not ours to pay for.
        rustix::fs::syncfs(fs::File::open(visit.folder)?)?;
        if visit.row.is_cold {
            let written = visit.row.as_work("write");
            let mut command = self.command(paths, visit, &written)?;
            command.arg("--keep");
            figures(command, visit.patience(), paths)?;
            self.chill(group)?;
        }
        let mut command = self.command(paths, visit, visit.row)?;
        if visit.row.is_cold {
            command.arg("--again");
        }
        sample(
            visit.row.is_bulk(),
            &figures(command, visit.patience(), paths)?,
        )
    }

    /// System calls of the server for an operation, or a megabyte: a visit of its own,
    /// because counting costs time.
    pub(super) fn count_calls(&self, paths: &Paths, visit: &Visit<'_>) -> Result<f64> {
        let counts = visit.folder.join("calls");
        let command = self.command(paths, visit, visit.row)?;
        let counting = ground::counting_calls(&[self.pid()?], &counts, &command);
        let figures = figures(counting, visit.patience(), paths)?;
        let calls = ground::counted_calls(&counts)?;
        fs::remove_file(&counts)?;
        Ok(calls / amount(visit.row.is_bulk(), &figures)?)
    }

    fn generator(&self, paths: &Paths) -> Result<Command> {
        let mut command = self.network.program("taskset");
        command.arg("-c").arg(LOAD_CPU.to_string());
        command.arg(load_generator(paths)).arg("run");
        command.args(self.place()?);
        Ok(command)
    }

    fn command(&self, paths: &Paths, visit: &Visit<'_>, row: &Row) -> Result<Command> {
        let mut command = self.generator(paths)?;
        command.args(["--work", row.work]);
        command.args(["--name", &visit.name]);
        for (flag, value) in [
            ("--clients", u64::from(row.clients)),
            ("--outstanding", u64::from(row.outstanding)),
            ("--size", row.size_bytes),
            ("--span", row.span_bytes / u64::from(row.clients)),
            ("--count", row.count),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        // What is read from the disk is read once, however long that takes.
        let seconds = match visit.row.is_cold {
            true => 30.0,
            false => visit.seconds,
        };
        command.args(["--seconds", &seconds.to_string()]);
        Ok(command)
    }
}

/// Who a row is compared with, by what stands and what is measured by itself.
pub(super) fn limit(
    peer: Peer,
    paths: &Paths,
    visit: &Visit<'_>,
    floor: &mut Contestant<'_>,
) -> Result<Sample> {
    let rate = match peer {
        Peer::DurableFloor => {
            let echo = visit.row.as_work("null");
            let visit = Visit {
                row: &echo,
                seconds: visit.seconds / 2.0,
                name: visit.name.clone(),
                folder: visit.folder,
            };
            let echo = floor.visit(paths, &visit, None)?;
            let write = on_cpu(SERVER_CPU, || ground::durable_write(visit.folder))?;
            1.0 / (1.0 / echo.rate + write.as_secs_f64())
        }
        Peer::Fio => {
            let row = visit.row;
            let (size, depth) = (row.size_bytes, row.outstanding);
            ground::fio_read(visit.folder, size, depth, row.span_bytes)? / 1e6
        }
        Peer::Plain | Peer::Durable | Peer::Floor => bail!("{peer:?} is no such limit"),
    };
    Ok(Sample::of_rate(rate))
}

fn figures(command: Command, patience: Duration, paths: &Paths) -> Result<Value> {
    load_figures(command, patience, &paths.logs().join("bench-nfs.log"))
}

/// Runs the load generator, and reads what it prints.
pub(in crate::bench) fn load_figures(
    command: Command,
    patience: Duration,
    log: &Path,
) -> Result<Value> {
    let deadline = Instant::now() + patience;
    let (mut running, lines) = Running::start_with_lines(command, log)?;
    let line = lines.next(deadline)?;
    let status = running.wait(deadline)?;
    ensure!(
        status.success(),
        "the load generator failed: {}",
        log.display()
    );
    Ok(serde_json::from_str(&line.context("no figures")?)?)
}

pub(in crate::bench) fn number(figures: &Value, name: &str) -> Result<f64> {
    figures[name].as_f64().with_context(|| format!("no {name}"))
}

/// MB of what is bulk, else operations.
fn amount(is_bulk: bool, figures: &Value) -> Result<f64> {
    Ok(match is_bulk {
        true => number(figures, "bytes")? / 1e6,
        false => number(figures, "operations")?,
    })
}

/// What the load generator has printed, per operation or per MB.
pub(in crate::bench) fn sample(is_bulk: bool, figures: &Value) -> Result<Sample> {
    let amount = amount(is_bulk, figures)?;
    let seconds = number(figures, "seconds")?;
    Ok(Sample {
        rate: amount / seconds,
        cpu_seconds: Some(number(figures, "server_cpu_seconds")? / amount),
        switches: Some(number(figures, "server_context_switches")? / amount),
        load_busy: Some(number(figures, "load_cpu_seconds")? / seconds),
        p50_us: Some(number(figures, "p50_us")?),
        p99_us: Some(number(figures, "p99_us")?),
        p999_us: figures["p999_us"].as_f64(),
        calls: None,
    })
}

/// Runs `start` on one processor, and all that it starts.
pub(in crate::bench) fn on_cpu<T>(cpu: usize, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let all = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    let started = start();
    sched_setaffinity(None, &all)?;
    started
}

fn load_generator(paths: &Paths) -> PathBuf {
    paths.target.join("release/crossdock-load")
}

fn ganesha_version() -> Result<String> {
    let mut query = Command::new("dpkg-query");
    let version = output(query.args(["-W", "-f", "${Version}", "nfs-ganesha"]))?;
    // Without Debian's own part.
    Ok(version.split('-').next().unwrap_or(&version).to_owned())
}
