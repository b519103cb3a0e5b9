//! Targets that take part: Crossdock, tgt and istgt, each with a unit of the same size on the
//! same disk.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Flags, flag};
use crate::bench::nfs::{LOAD_CPU, SERVER_CPU, load_figures, on_cpu};
use crate::paths::Paths;
use crate::process::{Running, open_log, output, program, run as run_program};
use crate::rig::server::READY_PATIENCE;

/// Bytes of each unit.
pub(super) const LUN_BYTES: u64 = 256 << 20;

/// Bytes of a file that is worked on.
const FILE_BYTES: u64 = 64 << 20;

/// The longest load, beyond the time that it was given.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether a target is there.
const PAUSE: Duration = Duration::from_millis(50);

/// A target.
pub(super) struct Contestant {
    pub(super) name: String,
    address: String,
    target: String,
    lun: u8,
    pid: u32,
    /// Whether a write with FUA is durable when it is answered.
    pub(super) is_forced_durable: bool,
    /// Ended when it is dropped.
    running: Option<Running>,
}

impl Contestant {
    /// Debian's tgt with the backing store `rdwr`: files in the page cache.
    pub(super) fn tgt(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let image = image(folder)?;
        let (address, control) = (free_address()?, std::process::id() % 30_000 + 100);
        let mut command = program("tgtd");
        command.args(["-f", "-C", &control.to_string()]);
        command.arg("--iscsi").arg(format!("portal={address}"));
        let running = start(command, &folder.join("log"))?;
        let target = "iqn.2026-11.example:tgt";
        let image = image.to_str().context("not UTF-8")?;
        wait(|| tell(control, &["--op", "new", "--mode", "target", "-T", target]))?;
        let unit = ["--op", "new", "--mode", "logicalunit", "--lun", "1"];
        tell(
            control,
            &[&unit[..], &["-b", image, "--bstype", "rdwr"]].concat(),
        )?;
        tell(control, &["--op", "bind", "--mode", "target", "-I", "ALL"])?;
        Ok(Self {
            name: format!("tgt {} rdwr", version("tgt")?),
            address,
            target: target.to_owned(),
            lun: 1,
            pid: running.pid(),
            is_forced_durable: true,
            running: Some(running),
        })
    }

    /// Debian's istgt on a file.
    pub(super) fn istgt(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let image = image(folder)?;
        let (address, control) = (free_address()?, free_address()?);
        let (config, auth) = (folder.join("istgt.conf"), folder.join("auth.conf"));
        fs::write(&auth, "")?;
        let text = format!(
            "[Global]\n NodeBase \"iqn.2026-11.example\"\n PidFile {folder}/pid\n AuthFile {auth}\n \
             LogFacility \"local7\"\n Timeout 30\n NopInInterval 0\n DiscoveryAuthMethod None\n \
             MaxSessions 16\n MaxConnections 4\n MaxR2T 32\n MaxOutstandingR2T 16\n \
             DefaultTime2Wait 2\n DefaultTime2Retain 60\n FirstBurstLength 262144\n \
             MaxBurstLength 1048576\n MaxRecvDataSegmentLength 262144\n InitialR2T Yes\n \
             ImmediateData Yes\n DataPDUInOrder Yes\n DataSequenceInOrder Yes\n \
             ErrorRecoveryLevel 0\n[UnitControl]\n AuthMethod None\n Portal UC1 {control}\n \
             Netmask 127.0.0.1\n[PortalGroup1]\n Portal DA1 {address}\n[InitiatorGroup1]\n \
             InitiatorName \"ALL\"\n Netmask 127.0.0.1\n[LogicalUnit1]\n TargetName istgt\n \
             Mapping PortalGroup1 InitiatorGroup1\n AuthMethod None\n UseDigest Auto\n \
             UnitType Disk\n QueueDepth 128\n LUN0 Storage {image} {mib}MB\n",
            folder = folder.display(),
            auth = auth.display(),
            image = image.display(),
            mib = LUN_BYTES >> 20,
        );
        fs::write(&config, text)?;
        run_program(program("chmod").arg("600").args([&config, &auth]))?;
        let mut command = program("istgt");
        command.arg("-D").arg("-c").arg(&config);
        let running = start(command, &folder.join("log"))?;
        wait(|| Ok(std::net::TcpStream::connect(&address).map(drop)?))?;
        Ok(Self {
            name: format!("istgt {}", version("istgt")?),
            address,
            target: "iqn.2026-11.example:istgt".to_owned(),
            lun: 0,
            pid: running.pid(),
            // It takes FUA for what its write cache is, and that is the page cache.
            is_forced_durable: false,
            running: Some(running),
        })
    }

    /// Writes all blocks once.
    pub(super) fn fill(&self, paths: &Paths) -> Result<()> {
        let flags = [
            flag("--work", "fill"),
            flag("--size", 1 << 20),
            flag("--outstanding", 4),
            flag("--span", LUN_BYTES),
            flag("--flush", ""),
        ];
        self.load(paths, &flags).map(drop)
    }

    /// Runs the load generator with these flags; what it prints.
    pub(super) fn load(&self, paths: &Paths, flags: &[(&str, String)]) -> Result<Value> {
        let mut command = generator(paths);
        command.args(["iscsi", "--server", &self.address, "--target", &self.target]);
        command.args(["--lun", &self.lun.to_string()]);
        command.args(["--server-pid", &self.pid.to_string()]);
        figures(command, flags, paths).with_context(|| self.name.clone())
    }
}

/// Crossdock with all its doors.
pub(super) struct Ours {
    pub(super) block: Contestant,
    data: PathBuf,
    more: Vec<String>,
    admin: String,
    nfs: String,
    http: String,
    /// For the HTTP door.
    token: String,
}

impl Ours {
    pub(super) fn start(paths: &Paths, folder: &Path) -> Result<Self> {
        Self::start_with(paths, folder, &["--size", "4G"])
    }

    /// One that is told more.
    pub(super) fn start_with(paths: &Paths, folder: &Path, more: &[&str]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
        let doors = Doors::open(paths, &folder.join("data"), "127.0.0.1:0", &more, true)?;
        let size = LUN_BYTES.to_string();
        let mut create = program(paths.release_binary());
        create.args([
            "lun",
            "create",
            "bench",
            &size,
            "--write-cache",
            "--admin",
            &doors.admin,
        ]);
        run_program(create.stdout(Stdio::null()))?;
        let mut create = program(paths.release_binary());
        create.args(["token", "create", "--read", "--write", "--json"]);
        let token = output(create.args(["--admin", &doors.admin]))?;
        let token: Value = serde_json::from_str(&token)?;
        let block = Contestant {
            name: "crossdock".to_owned(),
            address: doors.iscsi,
            target: "iqn.2026-11.io.crossdock:bench".to_owned(),
            lun: 0,
            pid: doors.running.pid(),
            is_forced_durable: true,
            running: Some(doors.running),
        };
        Ok(Self {
            block,
            data: folder.join("data"),
            more,
            admin: doors.admin,
            nfs: doors.nfs,
            http: doors.http,
            token: token["token"].as_str().context("no token")?.to_owned(),
        })
    }

    /// Where it is administered.
    pub(super) fn admin(&self) -> &str {
        &self.admin
    }

    pub(super) const fn pid(&self) -> u32 {
        self.block.pid
    }

    /// Kills it and starts it again, with nothing in memory.
    pub(super) fn restart(&mut self, paths: &Paths) -> Result<()> {
        self.restart_with(paths, true)
    }

    /// The same; without zero copy all bulk bytes are copied once.
    pub(super) fn restart_with(&mut self, paths: &Paths, zero_copy: bool) -> Result<()> {
        self.block.running = None;
        let doors = Doors::open(
            paths,
            &self.data,
            &self.block.address,
            &self.more,
            zero_copy,
        )?;
        self.admin = doors.admin;
        self.nfs = doors.nfs;
        self.http = doors.http;
        self.block.pid = doors.running.pid();
        self.block.running = Some(doors.running);
        Ok(())
    }

    /// Works on a file of the pool over NFS.
    pub(super) fn file_load(
        &self,
        paths: &Paths,
        name: &str,
        wanted: (u32, bool, f64),
    ) -> Result<Value> {
        self.file_work(paths, name, wanted, &[])
    }

    /// Makes such a file, for [`Self::file_again`].
    pub(super) fn file_fill(&self, paths: &Paths, name: &str) -> Result<()> {
        let flags: Flags = vec![
            flag("--work", "write"),
            flag("--keep", ""),
            flag("--count", FILE_BYTES >> 20),
            flag("--span", FILE_BYTES),
            flag("--name", name),
        ];
        figures(self.over_nfs(paths), &flags, paths).map(drop)
    }

    /// Works on one that is there, and stays.
    pub(super) fn file_again(
        &self,
        paths: &Paths,
        name: &str,
        wanted: (u32, bool, f64),
    ) -> Result<Value> {
        self.file_work(paths, name, wanted, &["--again", "--keep"])
    }

    fn file_work(
        &self,
        paths: &Paths,
        name: &str,
        (size, is_write, seconds): (u32, bool, f64),
        more: &[&'static str],
    ) -> Result<Value> {
        let work = if is_write {
            "random-write"
        } else {
            "random-read"
        };
        let mut flags: Flags = vec![
            flag("--work", work),
            flag("--size", size),
            flag("--outstanding", 8),
            flag("--span", FILE_BYTES),
            flag("--count", 1 << 30),
            flag("--name", name),
            flag("--seconds", seconds),
        ];
        flags.extend(more.iter().map(|name| flag(name, "")));
        figures(self.over_nfs(paths), &flags, paths).context("a file over NFS")
    }

    /// Writes files one after the other over NFS, or reads those that were written, which ends
    /// them.
    pub(super) fn files(
        &self,
        paths: &Paths,
        name: &str,
        work: &str,
        (size, all_bytes): (u64, u64),
    ) -> Result<Value> {
        let is_first = work == "write-files";
        let flags: Flags = vec![
            flag("--work", work),
            flag("--size", size.min(1 << 20)),
            flag("--outstanding", 8),
            flag("--span", size),
            flag("--files", all_bytes / size),
            flag("--name", name),
            flag(if is_first { "--keep" } else { "--again" }, ""),
        ];
        figures(self.over_nfs(paths), &flags, paths).context("files over NFS")
    }

    fn over_nfs(&self, paths: &Paths) -> Command {
        let mut command = generator(paths);
        command.args(["run", "--server", &self.nfs]);
        command.args(["--server-pid", &self.block.pid.to_string()]);
        command
    }

    /// Makes a file over HTTP.
    pub(super) fn http_make(&self, paths: &Paths, name: &str) -> Result<Value> {
        let class = format!("prefix={name},size={FILE_BYTES}");
        let mut command = generator(paths);
        command.args(["http", "make", "--server", &self.http]);
        command.args(["--token", &self.token, "--class", &class]);
        command.args(["--server-pid", &self.block.pid.to_string()]);
        figures(command, &[], paths).context("a file over HTTP")
    }

    /// Reads ranges of it.
    pub(super) fn http_read(
        &self,
        paths: &Paths,
        name: &str,
        size: u32,
        seconds: f64,
    ) -> Result<Value> {
        let class = format!("prefix={name},size={FILE_BYTES},range={size}");
        let mut command = generator(paths);
        command.args(["http", "requests", "--server", &self.http]);
        command.args(["--class", &class, "--connections", "4"]);
        command.args(["--seconds", &seconds.to_string()]);
        command.args(["--server-pid", &self.block.pid.to_string()]);
        figures(command, &[], paths).context("a file over HTTP")
    }
}

/// A running `crossdock up`.
struct Doors {
    running: Running,
    nfs: String,
    http: String,
    iscsi: String,
    admin: String,
}

impl Doors {
    fn open(
        paths: &Paths,
        data: &Path,
        iscsi: &str,
        more: &[String],
        zero_copy: bool,
    ) -> Result<Self> {
        let mut command = program(paths.release_binary());
        command.arg("up").arg("--data").arg(data);
        command.args(["--iscsi", iscsi]).args(more);
        for door in ["--nfs", "--http", "--admin"] {
            command.args([door, "127.0.0.1:0"]);
        }
        command.args(["--ibp", "off", "--lbone", "off"]);
        if !zero_copy {
            command.args(["--zero-copy", "off"]);
        }
        command.stdin(Stdio::null());
        let log = paths.logs().join("bench-iscsi-server.log");
        let (running, lines) = on_cpu(SERVER_CPU, || Running::start_with_lines(command, &log))?;
        let deadline = Instant::now() + READY_PATIENCE;
        let (mut nfs, mut http, mut iscsi) = (None, None, None);
        let admin = loop {
            let line = lines.next(deadline)?;
            let line = line.with_context(|| format!("it has ended, see {}", log.display()))?;
            match line.trim().split_once(' ') {
                Some(("nfs", address)) => nfs = Some(address.to_owned()),
                Some(("http", address)) => http = Some(address.to_owned()),
                Some(("iscsi", address)) => iscsi = Some(address.to_owned()),
                Some(("admin", address)) => break address.to_owned(),
                _ => {}
            }
        };
        lines.ignore();
        Ok(Self {
            running,
            nfs: nfs.context("no NFS door")?,
            http: http.context("no HTTP door")?,
            iscsi: iscsi.context("no iSCSI door")?,
            admin,
        })
    }
}

fn generator(paths: &Paths) -> Command {
    let mut command = program("taskset");
    command.arg("-c").arg(LOAD_CPU.to_string());
    command.arg(paths.target.join("release/crossdock-load"));
    command
}

/// Runs the load generator, and reads what it prints.
fn figures(mut command: Command, flags: &[(&str, String)], paths: &Paths) -> Result<Value> {
    for (name, value) in flags {
        command.arg(name);
        if !value.is_empty() {
            command.arg(value);
        }
    }
    load_figures(
        command,
        LOAD_PATIENCE,
        &paths.logs().join("bench-iscsi.log"),
    )
}

/// A file with all its blocks.
fn image(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("image");
    let file = File::create(&path)?;
    file.set_len(LUN_BYTES)?;
    run_program(
        program("fallocate")
            .args(["-l", &LUN_BYTES.to_string()])
            .arg(&path),
    )?;
    Ok(path)
}

fn start(mut command: Command, log: &Path) -> Result<Running> {
    let log = open_log(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    command.stderr(log);
    on_cpu(SERVER_CPU, || Running::start(command))
}

/// An address that nobody listens at.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn tell(control: u32, words: &[&str]) -> Result<()> {
    let mut command = program("tgtadm");
    command.args(["-C", &control.to_string(), "--lld", "iscsi", "--tid", "1"]);
    run_program(command.args(words).stderr(Stdio::null()))
}

/// Tries until it succeeds.
fn wait(mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + READY_PATIENCE;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::park_timeout(PAUSE),
        }
    }
}

fn version(package: &str) -> Result<String> {
    let mut query = Command::new("dpkg-query");
    let version = output(query.args(["-W", "-f", "${Version}", package]))?;
    // Without Debian's own part, and its epoch.
    let version = version.split('-').next().unwrap_or(&version);
    Ok(version.rsplit(':').next().unwrap_or(version).to_owned())
}
