//! Who takes part in `bench http`, where their files are, and how they are asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench::nfs::{LOAD_CPU, SERVER_CPU, counted_calls, counting_calls, on_cpu};
use crate::bench::{Options, Subject};
use crate::paths::Paths;
use crate::process::{Running, output, run};
use crate::rig::Life;
use crate::rig::line::Line;
use crate::rig::memory::MemoryGroup;
use crate::rig::network::Network;
use crate::rig::nginx::{self, Nginx, Variant};
use crate::rig::server::READY_PATIENCE;
use crate::rig::slowdisk::Slowdisk;

/// Port of ours; those of nginx follow.
const PORT: u16 = 8080;
/// How long a load may take beyond the time that it was told.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);
/// How long making all files may take, also where others use disk and processors.
const MAKE_PATIENCE: Duration = Duration::from_secs(600);
/// What Crossdock may use where there is no limit.
const CACHED_BYTES: u64 = 2 << 30;
/// What it needs beside blocks and what is read ahead: 16 MiB of requests, the program, and
/// what its allocator keeps. With 32 MiB 390 and 450 streams ended it once each.
const PROCESS_BYTES: u64 = 44 << 20;
/// Size of each slow disk.
const DISK_BYTES: u64 = 3 << 30;
/// What buffers of a socket may hold on the slow disk: with more, the kernel would read
/// ahead in place of the server.
const SEND_BUFFER: &str = "4096 65536 131072";

/// Settings of the network.
const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";
const ECN: &str = "net/ipv4/tcp_ecn";

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Ours,
    /// Crossdock with one mechanism switched off by this flag, to see what it is worth.
    Without(&'static str),
    Nginx(Variant),
}

impl Who {
    pub(super) const ALL: [Self; 4] = [
        Self::Ours,
        Self::Nginx(Variant::Sendfile),
        Self::Nginx(Variant::Threads),
        Self::Nginx(Variant::Direct),
    ];

    pub(super) const fn port(self) -> u16 {
        PORT + match self {
            Self::Ours | Self::Without(_) => 0,
            Self::Nginx(Variant::Sendfile) => 1,
            Self::Nginx(Variant::Threads) => 2,
            Self::Nginx(Variant::Direct) => 3,
        }
    }

    /// Which of the two slow disks is its own.
    fn disk(self) -> usize {
        usize::from(matches!(self, Self::Nginx(_)))
    }
}

/// What all rows have in common.
pub(super) struct Field<'run> {
    pub(super) paths: &'run Paths,
    pub(super) full: bool,
    subject: Subject,
    network: Network,
    folder: PathBuf,
    nginx_version: String,
    /// Of ours and of nginx, once a row needs them.
    disks: Vec<Slowdisk>,
    /// Where a row has laid one.
    line: Option<Line>,
}

/// A server that stands. It ends when it is dropped.
pub(super) struct Standing {
    pub(super) who: Who,
    server: Server,
    group: Option<MemoryGroup>,
}

enum Server {
    Crossdock(Running),
    Nginx(Nginx),
}

impl<'run> Field<'run> {
    pub(super) fn new(paths: &'run Paths, options: &Options, folder: &Path) -> Result<Self> {
        ensure!(
            options.server != Subject::Ganesha,
            "nfs-ganesha does not speak HTTP"
        );
        fs::create_dir_all(folder)?;
        Ok(Self {
            paths,
            full: options.full,
            subject: options.server,
            network: Network::new()?,
            folder: folder.to_owned(),
            nginx_version: nginx::version()?,
            disks: Vec::new(),
            line: None,
        })
    }

    pub(super) fn name_of(&self, who: Who) -> String {
        match who {
            Who::Ours => self.subject.word().to_owned(),
            Who::Without(flag) => format!("crossdock {flag}"),
            Who::Nginx(variant) => format!("nginx {} {}", self.nginx_version, variant.name()),
        }
    }

    /// Whether ours is Crossdock: something else may be measured in its place.
    pub(super) fn is_of_crossdock(&self) -> bool {
        self.subject == Subject::Crossdock
    }

    /// All of them on files in memory, with these classes of files made; without a limit.
    pub(super) fn stand_cached(&self, classes: &[String]) -> Result<Vec<Standing>> {
        let place = self.folder.join("cached");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        self.make_local(&place.join("files"), classes)?;
        let mut all = Vec::new();
        for who in Who::ALL {
            let standing = self.start(who, &place, None)?;
            if who == Who::Ours && self.is_of_crossdock() {
                self.put(&standing, classes)?;
            }
            all.push(standing);
        }
        Ok(all)
    }

    /// One of them alone on files in memory that were put there by
    /// [`stand_cached`](Self::stand_cached), whose servers have ended.
    pub(super) fn stand_again(&self, who: Who) -> Result<Standing> {
        self.start(who, &self.folder.join("cached"), None)
    }

    /// Makes both slow disks, with these files, unless they are there. All rows on
    /// the slow disk use the same.
    pub(super) fn prepare_disks(&mut self, classes: &[String]) -> Result<()> {
        if !self.disks.is_empty() {
            return Ok(());
        }
        self.sysctl("net/ipv4/tcp_wmem", SEND_BUFFER)?;
        for name in ["ours", "nginx"] {
            let folder = self.folder.join(format!("disk-{name}"));
            let mut disk = Slowdisk::up(self.paths, &folder, DISK_BYTES, Life::OfXtask)?;
            disk.format()?;
            let place = disk.mount_point();
            self.disks.push(disk);
            if name == "ours" && self.is_of_crossdock() {
                let standing = self.start(Who::Ours, &place, None)?;
                self.put(&standing, classes)?;
            } else {
                self.make_local(&place.join("files"), classes)?;
            }
        }
        rustix::fs::sync();
        Ok(())
    }

    /// One of them alone on its slow disk, with so much memory and nothing in it yet.
    pub(super) fn stand_slow(&mut self, who: Who, memory_bytes: u64) -> Result<Standing> {
        let disk = self.disks.get_mut(who.disk()).context("no slow disk")?;
        disk.pace(false)?;
        disk.remount()?;
        let place = disk.mount_point();
        // Another checkout may measure at the same time.
        let checkout = self.paths.root.file_name().unwrap_or_default();
        let name = format!("bench-http-{}", checkout.display());
        let group = MemoryGroup::new(&name, memory_bytes)?;
        let group = group.context("no memory cgroup of version 1 here")?;
        let standing = self.start(who, &place, Some((group, memory_bytes)))?;
        self.disk(who)?.pace(true)?;
        Ok(standing)
    }

    /// Lays a line with paths of these round-trip times, for one measurement; all
    /// connections then have Reno, which heeds congestion (BBR hides it), and ECN.
    pub(super) fn with_line<T>(
        &mut self,
        round_trips: &[Duration],
        measure: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let log = self.folder.join("line.log");
        if log.exists() {
            fs::remove_file(&log)?;
        }
        let before = [CONGESTION_CONTROL, ECN].map(|key| self.sysctl_value(key));
        self.sysctl(CONGESTION_CONTROL, "reno")?;
        self.sysctl(ECN, "1")?;
        let line = Line::up(self.paths, &self.network, round_trips, LOAD_CPU, &log)?;
        self.line = Some(line);
        let measured = measure(self);
        self.line = None;
        for (key, value) in [CONGESTION_CONTROL, ECN].into_iter().zip(before) {
            self.sysctl(key, &value?)?;
        }
        let measured = measured?;
        let log = fs::read_to_string(&log)?;
        ensure!(!log.contains("lost"), "the line was too slow: {log}");
        Ok(measured)
    }

    pub(super) const fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn disk(&self, who: Who) -> Result<&Slowdisk> {
        self.disks.get(who.disk()).context("no slow disk")
    }

    /// Runs the load generator on a server: `words` behind `http`.
    pub(super) fn load(
        &self,
        standing: &Standing,
        words: &[String],
        spends: bool,
    ) -> Result<Value> {
        let command = self.load_command(standing, words, spends)?;
        self.figures(command)
    }

    /// The same with the server's system calls counted.
    pub(super) fn load_counted(
        &self,
        standing: &Standing,
        words: &[String],
    ) -> Result<(Value, f64)> {
        let counts = self.folder.join("calls");
        let command = self.load_command(standing, words, true)?;
        let counting = counting_calls(&standing.pids()?, &counts, &command);
        let figures = self.figures(counting)?;
        let calls = counted_calls(&counts)?;
        fs::remove_file(&counts)?;
        Ok((figures, calls))
    }

    /// A load that goes on beside something else; its figures are its one line.
    pub(super) fn load_beside(&self, standing: &Standing, words: &[String]) -> Result<Load> {
        let command = self.load_command(standing, words, false)?;
        let log = self.log();
        let (running, lines) = Running::start_with_lines(command, &log)?;
        Ok(Load {
            running,
            lines,
            log,
        })
    }

    /// A part of the load generator that has no server, on the server's processor.
    pub(super) fn on_server_cpu(&self, words: &[&str]) -> Result<Value> {
        let mut command = self.network.program("taskset");
        command.arg("-c").arg(SERVER_CPU.to_string());
        command.arg(self.generator()).arg("http").args(words);
        self.figures(command)
    }

    fn load_command(&self, standing: &Standing, words: &[String], spends: bool) -> Result<Command> {
        let mut command = self.network.program("taskset");
        command.arg("-c").arg(LOAD_CPU.to_string());
        command.arg(self.generator()).arg("http").args(words);
        command.arg(format!("--server=127.0.0.1:{}", standing.who.port()));
        if spends {
            for pid in standing.pids()? {
                command.arg(format!("--server-pid={pid}"));
            }
        }
        Ok(command)
    }

    fn figures(&self, command: Command) -> Result<Value> {
        self.wait_for(command, LOAD_PATIENCE)
    }

    fn wait_for(&self, command: Command, patience: Duration) -> Result<Value> {
        let log = self.log();
        let (running, lines) = Running::start_with_lines(command, &log)?;
        let load = Load {
            running,
            lines,
            log,
        };
        load.figures_within(patience)
    }

    fn make_local(&self, into: &Path, classes: &[String]) -> Result<()> {
        let mut command = self.network.program(self.generator());
        command.args(["http", "make", "--server=127.0.0.1:1"]);
        command.arg("--into").arg(into);
        for class in classes {
            command.arg("--class").arg(class);
        }
        self.wait_for(command, MAKE_PATIENCE)?;
        Ok(())
    }

    fn put(&self, standing: &Standing, classes: &[String]) -> Result<()> {
        let mut create = self.network.program(self.paths.release_binary());
        create.args([
            "token", "create", "--read", "--write", "--name", "bench", "--json",
        ]);
        let made: Value = serde_json::from_str(&output(&mut create)?)?;
        let token = made["token"].as_str().context("no token")?;
        let mut words = vec!["make".to_owned(), format!("--token={token}")];
        words.extend(classes.iter().map(|class| format!("--class={class}")));
        let command = self.load_command(standing, &words, false)?;
        self.wait_for(command, MAKE_PATIENCE)?;
        Ok(())
    }

    fn start(&self, who: Who, place: &Path, group: Option<(MemoryGroup, u64)>) -> Result<Standing> {
        let variant = match (who, self.subject) {
            (Who::Nginx(variant), _) => Some(variant),
            // What is best from memory, and what is best on a slow disk.
            (Who::Ours, Subject::Nginx) => Some(match group {
                None => Variant::Sendfile,
                Some(_) => Variant::Direct,
            }),
            (Who::Ours | Who::Without(_), _) => None,
        };
        let server = on_cpu(SERVER_CPU, || match variant {
            Some(variant) => {
                let own = self.folder.join(format!("nginx-{}", who.port()));
                let files = place.join("files");
                let nginx = Nginx::start(variant, &self.network, &files, &own, who.port())?;
                Ok(Server::Nginx(nginx))
            }
            None => {
                let memory_bytes = group.as_ref().map_or(CACHED_BYTES, |(_, bytes)| *bytes);
                Ok(Server::Crossdock(self.start_crossdock(
                    who,
                    place,
                    memory_bytes,
                )?))
            }
        })?;
        let group = group.map(|(group, _)| group);
        let standing = Standing { who, server, group };
        if let Some(group) = &standing.group {
            for pid in standing.pids()? {
                group.add(pid)?;
            }
        }
        Ok(standing)
    }

    /// It gets told what it may use: what the process itself takes is left out, and a
    /// small part is for blocks that clients share.
    fn start_crossdock(&self, who: Who, place: &Path, memory_bytes: u64) -> Result<Running> {
        let cache = memory_bytes / 32;
        let ahead = memory_bytes - cache - PROCESS_BYTES;
        // At all addresses: some clients are at the end of a line.
        let door = format!("0.0.0.0:{}", Who::Ours.port());
        let mut command = self.network.program(self.paths.release_binary());
        command.arg("up").arg("--data").arg(place.join("data"));
        command.args(["--nodes", "1", "--nfs", "off", "--http", &door]);
        command.args(["--ibp", "off", "--lbone", "off", "--request-memory", "16M"]);
        command.arg("--cache").arg(cache.to_string());
        command.arg("--delivery-memory").arg(ahead.to_string());
        if let Who::Without(flag) = who {
            command.arg(flag);
        }
        command.stdin(Stdio::null());
        let (running, lines) = Running::start_with_lines(command, &self.folder.join("ours.log"))?;
        let deadline = Instant::now() + READY_PATIENCE;
        let ready = format!("http {door}");
        loop {
            match lines.next(deadline).context("ours is not ready")? {
                Some(line) if line == ready => break,
                Some(_) => {}
                None => bail!("ours ended before it was ready: see ours.log"),
            }
        }
        lines.ignore();
        Ok(running)
    }

    /// Sets something of the network that all servers are in.
    fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let mut set = self.network.program("sh");
        run(set.args(["-c", r#"echo "$1" > "/proc/sys/$0""#, key, value]))
    }

    fn sysctl_value(&self, key: &str) -> Result<String> {
        let mut get = self.network.program("cat");
        output(get.arg(format!("/proc/sys/{key}")))
    }

    fn generator(&self) -> PathBuf {
        self.paths.target.join("release/crossdock-load")
    }

    fn log(&self) -> PathBuf {
        self.paths.logs().join("bench-http.log")
    }
}

impl Standing {
    /// Whether it is Crossdock.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(self.server, Server::Crossdock(_))
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Result<Vec<u32>> {
        match &self.server {
            Server::Crossdock(running) => Ok(vec![running.pid()]),
            Server::Nginx(nginx) => nginx.pids(),
        }
    }

    /// Whether one of them was killed because it had used up its memory.
    pub(super) fn was_killed(&self) -> Result<bool> {
        match &self.group {
            Some(group) => Ok(group.killed()? > 0),
            None => Ok(false),
        }
    }

    /// What buffers of its sockets have had at most, in bytes, which is counted apart.
    pub(super) fn socket_bytes(&self) -> u64 {
        self.group.as_ref().map_or(0, MemoryGroup::socket_bytes)
    }

    /// The most memory that it has used at a time, in bytes, without buffers of sockets.
    pub(super) fn peak_bytes(&self) -> Result<u64> {
        let group = self.group.as_ref().context("it has no limit")?;
        group.peak_bytes()
    }
}

/// A load that goes on.
pub(super) struct Load {
    running: Running,
    lines: crate::process::Lines,
    log: PathBuf,
}

impl Load {
    /// Waits until it is over; what it printed.
    pub(super) fn figures(self) -> Result<Value> {
        self.figures_within(LOAD_PATIENCE)
    }

    fn figures_within(mut self, patience: Duration) -> Result<Value> {
        let deadline = Instant::now() + patience;
        let line = self.lines.next(deadline)?;
        let status = self.running.wait(deadline)?;
        ensure!(
            status.success(),
            "the load generator failed: {}",
            self.log.display()
        );
        Ok(serde_json::from_str(&line.context("no figures")?)?)
    }
}
