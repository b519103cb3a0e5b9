//! `bench nfs`: a first look at speed, beside nfs-ganesha.
//!
//! For each row all servers are started on fresh data, each in a network of its
//! own; then the load visits them in turn, several rounds. Servers have one
//! processor for themselves, the load generator the other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::document::Document;
use super::figures::{Figure, Sample, row as result_row};
use super::{Options, parse};
use crate::install;
use crate::paths::Paths;
use crate::process::{Running, output, program, run as run_program};
use crate::rig::network::Network;
use crate::rig::server::{Kind, Server};

/// Processor of the server.
const SERVER_CPU: usize = 0;
/// Processor of the load generator.
const LOAD_CPU: usize = 1;
/// What a run may take beyond the time for which requests are sent: files made
/// before, the last COMMIT, removal.
const RUN_PATIENCE: Duration = Duration::from_secs(60);
/// Blocks of a bulk file.
const SPAN_BYTES: u64 = 256 << 20;

/// One kind of load.
struct Row {
    name: &'static str,
    variant: &'static str,
    work: &'static str,
    clients: u32,
    outstanding: u32,
    size_bytes: u64,
    /// Requests of each client at most, so that disks do not fill.
    count: u64,
    peers: &'static [Peer],
}

/// What Crossdock is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// nfs-ganesha on ext4 as it is.
    Plain,
    /// nfs-ganesha on ext4 that writes each change through.
    Durable,
    /// Answers without looking.
    Floor,
}

const MIB: u64 = 1 << 20;
const NO_LIMIT: u64 = 10_000_000;

const ROWS: [Row; 10] = [
    Row {
        name: "null",
        variant: "NULL: 1 client, 64 outstanding",
        work: "null",
        clients: 1,
        outstanding: 64,
        size_bytes: 1,
        count: NO_LIMIT,
        peers: &[Peer::Floor, Peer::Plain],
    },
    Row {
        name: "write",
        variant: "WRITE: 1 MiB UNSTABLE and COMMIT, 1 client, 8 outstanding",
        work: "write",
        clients: 1,
        outstanding: 8,
        size_bytes: MIB,
        count: 1024,
        peers: &[Peer::Plain, Peer::Durable],
    },
    Row {
        name: "read",
        variant: "READ: 1 MiB from 256 MiB just written, 1 client, 8 outstanding",
        work: "read",
        clients: 1,
        outstanding: 8,
        size_bytes: MIB,
        count: NO_LIMIT,
        peers: &[Peer::Plain],
    },
    small("sync-1", "WRITE: 4 KiB FILE_SYNC, 1 client", "sync", 1),
    small("sync-8", "WRITE: 4 KiB FILE_SYNC, 8 clients", "sync", 8),
    small("create-1", "CREATE: 1 client", "create", 1),
    small("create-8", "CREATE: 8 clients", "create", 8),
    small("remove-8", "REMOVE: 8 clients", "remove", 8),
    lookup("getattr", "GETATTR: 8 clients, 8 outstanding each"),
    lookup("lookup", "LOOKUP: 8 clients, 8 outstanding each"),
];

/// One request outstanding per client; each changes something for good.
const fn small(name: &'static str, variant: &'static str, work: &'static str, clients: u32) -> Row {
    Row {
        name,
        variant,
        work,
        clients,
        outstanding: 1,
        size_bytes: 4096,
        count: NO_LIMIT,
        peers: &[Peer::Durable, Peer::Plain],
    }
}

/// Nothing changes.
const fn lookup(name: &'static str, variant: &'static str) -> Row {
    Row {
        name,
        variant,
        work: name,
        clients: 8,
        outstanding: 8,
        size_bytes: 1,
        count: NO_LIMIT,
        peers: &[Peer::Plain],
    }
}

impl Row {
    /// Whether bytes are counted, not operations.
    const fn is_bulk(&self) -> bool {
        self.size_bytes == MIB
    }
}

/// Names of all rows.
pub(super) fn row_names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// Builds what is measured, measures it and keeps the result.
pub(super) fn run(paths: &Paths, options: &Options) -> Result<bool> {
    install::peer()?;
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--bin", "crossdock-load"]);
    if options.server == Kind::Crossdock {
        build.args(["--bin", "crossdock"]);
    }
    run_program(build.current_dir(&paths.root))?;

    let mut child = measuring(options)?.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no output pipe")?;
    let mut document = Document::open(paths, "nfs", options.full, !options.rows.is_empty())?;
    for line in BufReader::new(stdout).lines() {
        let rows: Vec<Value> = serde_json::from_str(&line?)?;
        // A peer in our place shows what noise looks like; that is no result.
        if options.server == Kind::Crossdock {
            document.add(rows)?;
        }
    }
    if options.server == Kind::Crossdock {
        document.announce();
    }
    Ok(child.wait()?.success())
}

/// The command line of the part that needs root: see [`run_as_root`].
fn measuring(options: &Options) -> Result<Command> {
    let itself = std::env::current_exe()?;
    let mut command = match install::is_root() {
        true => Command::new(itself),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("--preserve-env=PATH,CARGO_TARGET_DIR").arg(itself);
            sudo
        }
    };
    command.arg("bench-nfs").args(&options.rows);
    if options.full {
        command.arg("--full");
    }
    if options.server == Kind::Ganesha {
        command.args(["--server", "ganesha"]);
    }
    Ok(command)
}

/// Measures, and prints the results of each row as one line; what people want
/// to see goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &row_names())?;
    let cpus = sched_getaffinity(None)?;
    ensure!(
        cpus.is_set(SERVER_CPU) && cpus.is_set(LOAD_CPU),
        "processors {SERVER_CPU} and {LOAD_CPU} are needed"
    );
    let mut all_measured = true;
    let is_wanted =
        |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|it| it == row.name);
    // Nothing is removed between rows: the next one would pay for it.
    let all_data = paths.test_data().join("bench-nfs");
    remove(&all_data)?;
    for row in ROWS.iter().filter(is_wanted) {
        match measure(paths, row, &options, &all_data.join(row.name)) {
            Ok(results) => println!("{}", Value::Array(results)),
            Err(error) => {
                eprintln!("{}: FAILED: {error:#}", row.name);
                all_measured = false;
            }
        }
    }
    remove(&all_data)?;
    Ok(all_measured)
}

/// All rounds of one row; a result for each peer and figure.
fn measure(paths: &Paths, row: &Row, options: &Options, folder: &Path) -> Result<Vec<Value>> {
    let (rounds, seconds) = match options.full {
        true => (9, 10.0),
        false => (5, 1.0),
    };
    let networks: Vec<Network> = (0..=row.peers.len())
        .map(|_| Network::new())
        .collect::<Result<_>>()?;
    let ours = folder.join("ours");
    let mut contestants = vec![Contestant::server(
        options.server,
        paths,
        &networks[0],
        &ours,
    )?];
    for (peer, network) in row.peers.iter().zip(&networks[1..]) {
        let folder = folder.join(format!("{peer:?}"));
        contestants.push(Contestant::peer(*peer, paths, network, &folder)?);
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            let run = Run {
                row,
                seconds,
                // New for each run, so that the directories are elsewhere.
                name: format!("{}-{round}", std::process::id()),
            };
            let sample = contestant
                .run(paths, &run, folder)
                .with_context(|| contestant.name.clone())?;
            samples.push(sample);
        }
    }
    let mut results = Vec::new();
    for figure in Figure::ALL {
        for (peer, theirs) in contestants.iter().zip(&samples).skip(1) {
            results.push(result_row(
                (row.name, row.variant),
                figure,
                row.is_bulk(),
                &samples[0],
                (&peer.name, theirs),
            ));
        }
    }
    for result in &results {
        eprintln!("{}", summary(result));
    }
    Ok(results)
}

fn summary(result: &Value) -> String {
    let number = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "?".to_owned(), |it| format!("{it:.2}"))
    };
    format!(
        "{:<18} {:>12} {:<12} {:>12} {:<44} ratio {}",
        result["row"].as_str().unwrap_or("?"),
        number(&result["ours"]["median"]),
        result["unit"].as_str().unwrap_or("?"),
        number(&result["peer"]["median"]),
        result["peer"]["name"].as_str().unwrap_or("?"),
        number(&result["ratio"]),
    )
}

/// One visit of the load.
struct Run<'row> {
    row: &'row Row,
    seconds: f64,
    name: String,
}

/// A server that takes part.
struct Contestant<'network> {
    name: String,
    network: &'network Network,
    /// Arguments that tell the load generator where it is.
    place: Vec<String>,
    _standing: Standing<'network>,
}

/// What is ended when a contestant is dropped.
enum Standing<'network> {
    Server { _server: Server<'network> },
    Floor { _answering: Running },
}

impl<'network> Contestant<'network> {
    fn peer(peer: Peer, paths: &Paths, network: &'network Network, folder: &Path) -> Result<Self> {
        match peer {
            Peer::Floor => Self::floor(paths, network, folder),
            Peer::Plain | Peer::Durable => {
                let mut contestant = Self::server(Kind::Ganesha, paths, network, folder)?;
                if peer == Peer::Durable {
                    // What is made in it from now on has both flags, too.
                    let mut chattr = program("chattr");
                    run_program(chattr.args(["+S", "+D"]).arg(folder.join("data")))?;
                    contestant.name = contestant.name.replace("plain", "durable");
                }
                Ok(contestant)
            }
        }
    }

    fn server(
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
        let place = vec![
            format!("--server=127.0.0.1:{}", server.port()),
            format!("--mount=127.0.0.1:{}", server.mount_port()),
            format!("--path={}", server.export()?),
            format!("--server-pid={}", server.pid().context("no process")?),
        ];
        Ok(Self {
            name,
            network,
            place,
            _standing: Standing::Server { _server: server },
        })
    }

    fn floor(paths: &Paths, network: &'network Network, folder: &Path) -> Result<Self> {
        let mut command = network.program("taskset");
        command.arg("-c").arg(SERVER_CPU.to_string());
        command.arg(load_generator(paths)).arg("floor");
        let (answering, lines) = Running::start_with_lines(command, &folder.join("floor.log"))?;
        let address = lines.next(Instant::now() + RUN_PATIENCE)?;
        let place = vec![
            format!("--server={}", address.context("the floor has ended")?),
            format!("--server-pid={}", answering.pid()),
        ];
        lines.ignore();
        Ok(Self {
            name: "floor".to_owned(),
            network,
            place,
            _standing: Standing::Floor {
                _answering: answering,
            },
        })
    }

    fn run(&self, paths: &Paths, run: &Run<'_>, folder: &Path) -> Result<Sample> {
        // What the visit before has left to be written is not ours to pay for.
        rustix::fs::syncfs(fs::File::open(folder)?)?;
        let row = run.row;
        let mut command = self.network.program("taskset");
        command.arg("-c").arg(LOAD_CPU.to_string());
        command.arg(load_generator(paths)).arg("run");
        command.args(&self.place).args(["--work", row.work]);
        command.args(["--name", &run.name]);
        for (flag, value) in [
            ("--clients", u64::from(row.clients)),
            ("--outstanding", u64::from(row.outstanding)),
            ("--size", row.size_bytes),
            ("--span", SPAN_BYTES),
            ("--count", row.count),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.args(["--seconds", &run.seconds.to_string()]);
        let deadline = Instant::now() + RUN_PATIENCE + Duration::from_secs_f64(4.0 * run.seconds);
        let log = paths.logs().join("bench-nfs.log");
        let (mut running, lines) = Running::start_with_lines(command, &log)?;
        let line = lines.next(deadline)?;
        let status = running.wait(deadline)?;
        ensure!(
            status.success(),
            "the load generator failed: {}",
            log.display()
        );
        let figures: Value = serde_json::from_str(&line.context("no figures")?)?;
        sample(row, &figures)
    }
}

/// What the load generator has printed, per operation or per MB.
fn sample(row: &Row, figures: &Value) -> Result<Sample> {
    let number = |name: &str| figures[name].as_f64().with_context(|| format!("no {name}"));
    let amount = match row.is_bulk() {
        true => number("bytes")? / 1e6,
        false => number("operations")?,
    };
    let seconds = number("seconds")?;
    Ok(Sample {
        rate: amount / seconds,
        cpu_seconds: number("server_cpu_seconds")? / amount,
        switches: number("server_context_switches")? / amount,
        load_busy: number("load_cpu_seconds")? / seconds,
        p99_us: number("p99_us")?,
    })
}

/// Runs `start` on one processor, and all that it starts.
fn on_cpu<T>(cpu: usize, start: impl FnOnce() -> Result<T>) -> Result<T> {
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

/// Removes a folder that may have been written through, which would be slow.
fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    run_program(program("chattr").args(["-R", "-f", "-S", "-D"]).arg(folder))?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
