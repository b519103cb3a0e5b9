//! `cargo xtask rig slowdisk up|down`: a disk with one arm (bench/slowdisk) under a loop
//! device with direct I/O, with ext4 without a journal on it.
//!
//! Files are put on it while it takes no time; then it is paced. What it was asked is in
//! a log.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_slowdisk::record::{Record, records};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::Life;
use super::cluster::jail::Process;
use crate::paths::Paths;
use crate::process::{Running, open_log, output, program, run};
use crate::{Usage, install};

/// Its size, if nobody says another: what [`Check`] reads lies on all of it.
const SIZE_BYTES: u64 = 4 << 30;
/// How long its process may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one measurement of the self-check takes.
const CHECK_TIME: Duration = Duration::from_millis(1500);
/// Where it is, to whom asks by command line.
const STATE: &str = "state.json";

/// Carries `cargo xtask rig slowdisk …` out.
pub(crate) fn command(paths: &Paths, words: &[&str]) -> Result<bool> {
    let folder = paths.target.join("rig/slowdisk");
    match words {
        ["up", flags @ ..] => {
            let size = size_of(flags)?;
            install::debian(&["e2fsprogs", "mount", "util-linux"])?;
            build(paths)?;
            if !install::is_root() {
                return as_root(&["up-built", &size.to_string()]);
            }
            up(paths, &folder, size)
        }
        // What `up` calls through sudo.
        ["up-built", size] => up(paths, &folder, size.parse()?),
        ["down"] if !install::is_root() => as_root(words),
        ["down"] => down(&folder).map(|()| true),
        _ => Err(Usage("cargo xtask rig slowdisk up [--size BYTES]|down".to_owned()).into()),
    }
}

/// Builds the program.
pub(crate) fn build(paths: &Paths) -> Result<()> {
    let mut build = crate::process::cargo();
    build.args(["build", "--release", "--bin", "crossdock-slowdisk"]);
    run(build.current_dir(&paths.root))
}

fn size_of(flags: &[&str]) -> Result<u64> {
    match flags {
        [] => Ok(SIZE_BYTES),
        ["--size", bytes] => bytes
            .parse()
            .map_err(|_| Usage(format!("--size {bytes}: not a number of bytes")).into()),
        other => Err(Usage(format!("rig slowdisk up: {other:?}?")).into()),
    }
}

fn as_root(words: &[&str]) -> Result<bool> {
    let mut command = install::as_root("env");
    command.arg(std::env::current_exe()?);
    command.args(["rig", "slowdisk"]).args(words);
    run(&mut command).map(|()| true)
}

fn up(paths: &Paths, folder: &Path, size_bytes: u64) -> Result<bool> {
    down(folder)?;
    let mut disk = Slowdisk::up(paths, folder, size_bytes, Life::Standing)?;
    let check = disk.check()?;
    for line in check.lines() {
        eprintln!("{line}");
    }
    let device = disk.device.clone();
    disk.format()?;
    disk.pace(true)?;
    println!(
        "{}",
        json!({
            "hosts": [],
            "paths": {
                "disk": disk.mount_point(),
                "device": device,
                "log": disk.log_file(),
                "control": disk.folder.join("control"),
            },
            "check": check.to_json(),
        })
    );
    disk.keep();
    Ok(true)
}

/// Takes down what a command line has put up, as far as it is there.
fn down(folder: &Path) -> Result<()> {
    let state = folder.join(STATE);
    if state.exists() {
        let state: Value = serde_json::from_slice(&fs::read(&state)?)?;
        unmount(&folder.join("disk"))?;
        if let Some(device) = state["device"].as_str() {
            detach(device, folder)?;
        }
        unmount(&folder.join("fuse"))?;
        Process::from_json(&state["process"])?.kill()?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

/// Who serves it.
enum Serving {
    Standing(Process),
    /// It is ended when it is dropped.
    OfXtask {
        _running: Running,
    },
}

/// A slow disk. Dropping it takes it down, unless it is kept.
pub(crate) struct Slowdisk {
    folder: PathBuf,
    device: Option<String>,
    serving: Option<Serving>,
    is_mounted: bool,
}

impl Slowdisk {
    /// Starts it in an empty `folder`; it takes no time yet, and has no file system.
    pub(crate) fn up(paths: &Paths, folder: &Path, size_bytes: u64, life: Life) -> Result<Self> {
        fs::create_dir_all(folder.join("fuse"))?;
        fs::create_dir_all(folder.join("disk"))?;
        let mut disk = Self {
            folder: folder.to_owned(),
            device: None,
            serving: None,
            is_mounted: false,
        };
        let log = folder.join("slowdisk.log");
        let binary = paths.target.join("release/crossdock-slowdisk");
        let words = [
            format!("--mount={}", folder.join("fuse").display()),
            format!("--backing={}", folder.join("content").display()),
            format!("--log={}", disk.log_file().display()),
            format!("--control={}", folder.join("control").display()),
            format!("--size={size_bytes}"),
        ];
        disk.serving = Some(match life {
            Life::Standing => {
                // In a session of its own: it does not end with the terminal.
                let mut command = Command::new("setsid");
                command.arg(binary).args(words).stdin(Stdio::null());
                let output = open_log(&log)?;
                command.stdout(output.try_clone()?).stderr(output);
                let process = Process::of(command.spawn()?.id())?;
                disk.save(&process)?;
                process.wait_for_line(&log, |line| line == "ready", PATIENCE)?;
                Serving::Standing(process)
            }
            Life::OfXtask => {
                let mut command = program(binary);
                command.args(words).stdin(Stdio::null());
                let (running, lines) = Running::start_with_lines(command, &log)?;
                let line = lines.next(Instant::now() + PATIENCE)?;
                ensure!(line.as_deref() == Some("ready"), "see {}", log.display());
                lines.ignore();
                Serving::OfXtask { _running: running }
            }
        });
        disk.attach()?;
        Ok(disk)
    }

    /// Makes the file system and mounts it.
    pub(crate) fn format(&mut self) -> Result<()> {
        let device = self.device.clone().context("no device")?;
        let mut make = program("mkfs.ext4");
        make.args(["-q", "-F", "-m", "0", "-O", "^has_journal"]);
        // Neither of them later, in the background of what is measured.
        make.args(["-E", "nodiscard,lazy_itable_init=0"]);
        run(make.arg(&device))?;
        self.mount()
    }

    /// The device, as long as no file system of it is mounted.
    pub(crate) fn device(&self) -> Result<&str> {
        self.device.as_deref().context("no device")
    }

    /// Where files are put.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Takes the file system off and puts it on again: nothing of it is in memory.
    pub(crate) fn remount(&mut self) -> Result<()> {
        unmount(&self.mount_point())?;
        self.is_mounted = false;
        self.mount()
    }

    /// Whether requests take their time from now on.
    pub(crate) fn pace(&self, is_paced: bool) -> Result<()> {
        self.switch("pace", is_paced)
    }

    /// Whether whatever is asked of it fails from now on.
    pub(crate) fn fail(&self, has_failed: bool) -> Result<()> {
        self.switch("fail", has_failed)
    }

    /// Whether nothing is answered from now on.
    pub(crate) fn hang(&self, is_hung: bool) -> Result<()> {
        self.switch("hang", is_hung)
    }

    fn switch(&self, what: &str, is_on: bool) -> Result<()> {
        let word = if is_on { "on" } else { "off" };
        self.tell(&format!("{what} {word}")).map(drop)
    }

    /// What was asked of the disk between two times, of `CLOCK_MONOTONIC` in
    /// nanoseconds, by when it was queued.
    pub(crate) fn asked(&self, from_ns: u64, to_ns: u64) -> Result<Vec<Record>> {
        let status = self.tell("status")?;
        ensure!(status["log_is_full"] == false, "the disk's log is full");
        let log = fs::read(self.log_file())?;
        let within = |record: &Record| (from_ns..to_ns).contains(&record.queued_ns);
        Ok(records(&log).filter(within).collect())
    }

    /// What it does, measured on the raw device.
    fn check(&self) -> Result<Check> {
        let device = self.device.as_ref().context("no device")?;
        self.pace(true)?;
        let mut results = Vec::new();
        for load in Load::ALL {
            results.push((load, load.measure(device)?));
        }
        self.pace(false)?;
        Ok(Check { results })
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("requests")
    }

    fn tell(&self, command: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(self.folder.join("control"))?;
        writeln!(stream, "{command}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["error"].is_null(), "{}", answer["error"]);
        Ok(answer)
    }

    fn attach(&mut self) -> Result<()> {
        let mut losetup = program("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]);
        self.device = Some(output(losetup.arg(self.folder.join("fuse/disk")))?);
        self.save_again()
    }

    fn mount(&mut self) -> Result<()> {
        if self.device.is_none() {
            self.attach()?;
        }
        let device = self.device.take().context("no device")?;
        let mut mount = program("mount");
        mount.args(["-t", "ext4", "-o", "noatime,noinit_itable", &device]);
        let mounted = run(mount.arg(self.mount_point()));
        // From here on the device is there as long as it is mounted: also if xtask is
        // killed, nothing of it is left.
        run(program("losetup").args(["--detach", &device]))?;
        mounted?;
        self.is_mounted = true;
        Ok(())
    }

    fn save(&self, process: &Process) -> Result<()> {
        let state = json!({ "process": process.to_json(), "device": self.device });
        fs::write(self.folder.join(STATE), state.to_string())?;
        Ok(())
    }

    fn save_again(&self) -> Result<()> {
        match &self.serving {
            Some(Serving::Standing(process)) => self.save(process),
            _ => Ok(()),
        }
    }

    /// Lets it go on without this handle.
    fn keep(mut self) {
        self.serving = None;
        self.is_mounted = false;
        self.device = None;
        self.folder = PathBuf::new();
    }

    fn take_down(&mut self) -> Result<()> {
        if self.is_mounted {
            unmount(&self.mount_point())?;
        }
        if let Some(device) = self.device.take() {
            run(program("losetup").args(["--detach", &device]))?;
        }
        if let Some(serving) = self.serving.take() {
            unmount(&self.folder.join("fuse"))?;
            if let Serving::Standing(process) = &serving {
                process.kill()?;
            }
            drop(serving);
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }
}

impl Drop for Slowdisk {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("the slow disk is not down: {error:#}");
        }
    }
}

/// Unmounts what is mounted there; a server that was just killed may hold it for a moment.
fn unmount(at: &Path) -> Result<()> {
    for _ in 0..50 {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let place = at.to_str().context("not UTF-8")?;
        if !mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(place))
        {
            return Ok(());
        }
        let mut umount = Command::new("umount");
        umount.arg(at).stderr(Stdio::null());
        if umount.status()?.success() {
            return Ok(());
        }
        thread::park_timeout(Duration::from_millis(100));
    }
    run(program("umount").arg(at))
}

/// Detaches a loop device, if it still is one of `folder`.
fn detach(device: &str, folder: &Path) -> Result<()> {
    let name = device.trim_start_matches("/dev/");
    let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    match backing {
        Ok(file) if Path::new(file.trim()).starts_with(folder) => {
            run(program("losetup").args(["--detach", device]))
        }
        _ => Ok(()),
    }
}

/// What trials of such a disk have found, and what this one does.
struct Check {
    results: Vec<(Load, f64)>,
}

impl Check {
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.results.iter().map(|(load, found)| {
            let Load {
                title,
                unit,
                expected,
                ..
            } = load;
            format!("{title}: {found:.1} {unit}, expected {expected}")
        })
    }

    fn to_json(&self) -> Value {
        let results = self.results.iter().map(|(load, found)| {
            json!({ "load": load.title, "found": found, "expected": load.expected, "unit": load.unit })
        });
        results.collect()
    }
}

/// One kind of reading.
#[derive(Clone, Copy)]
struct Load {
    title: &'static str,
    bytes: usize,
    depth: usize,
    is_random: bool,
    expected: f64,
    unit: &'static str,
}

impl Load {
    const ALL: [Self; 5] = [
        Self::random("random 4 KiB", 4 << 10, 1, 115.0, "IOPS"),
        Self::random("random 128 KiB", 128 << 10, 1, 12.0, "MB/s"),
        Self::random("random 128 KiB, 32 at a time", 128 << 10, 32, 17.0, "MB/s"),
        Self::random("random 512 KiB, 4 at a time", 512 << 10, 4, 31.0, "MB/s"),
        Self {
            is_random: false,
            ..Self::random("128 KiB in sequence", 128 << 10, 1, 54.0, "MB/s")
        },
    ];

    const fn random(
        title: &'static str,
        bytes: usize,
        depth: usize,
        expected: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            title,
            bytes,
            depth,
            is_random: true,
            expected,
            unit,
        }
    }

    /// Requests, or MB, per second.
    fn measure(self, device: &str) -> Result<f64> {
        let begun = Instant::now();
        let readers: Vec<_> = (0..self.depth as u64)
            .map(|number| {
                let device = device.to_owned();
                thread::spawn(move || self.read(&device, number, begun + CHECK_TIME))
            })
            .collect();
        let mut count = 0;
        for reader in readers {
            let read = reader.join().ok().context("a reader has panicked")?;
            count += read?;
        }
        let rate = f64::from(count) / begun.elapsed().as_secs_f64();
        Ok(match self.unit {
            "IOPS" => rate,
            _ => rate * self.bytes as f64 / 1e6,
        })
    }

    /// Reads until then; how often.
    fn read(self, device: &str, seed: u64, until: Instant) -> Result<u32> {
        const ALIGNMENT: usize = 4096;
        let flags = i32::try_from(OFlags::DIRECT.bits())?;
        let device = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(device)?;
        let places = size(&device)? / self.bytes as u64;
        let mut room = vec![0; self.bytes + ALIGNMENT];
        let from = room.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut room[from..from + self.bytes];
        let mut place = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1);
        let mut count = 0;
        while Instant::now() < until {
            if self.is_random {
                place ^= place << 13;
                place ^= place >> 7;
                place ^= place << 17;
            } else {
                place = u64::from(count);
            }
            device.read_exact_at(buffer, place % places * self.bytes as u64)?;
            count += 1;
        }
        Ok(count)
    }
}

fn size(device: &File) -> Result<u64> {
    Ok(rustix::fs::seek(device, rustix::fs::SeekFrom::End(0))?)
}
