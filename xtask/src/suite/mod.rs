//! The suites that need the running program: one table, run one by one, each with a time limit,
//! a log of its own and a PASS or FAIL line.

mod certificate;
mod cli;
mod cluster;
mod conformance;
pub(crate) mod console;
mod crash;
mod disks;
mod ensemble;
mod etcd;
mod http;
mod ibp;
mod iscsi;
mod kernel;
mod libnfs;
mod locks;
mod logistics;
mod metrics;
mod package;
pub(crate) mod pjdfstest;
mod sets;
mod sockets;
mod spiral;
mod wan;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::paths::Paths;
use crate::process::{self, open_log};
use crate::rig::server::Kind;

/// How much of a failed suite's log is printed.
const TAIL_LINES: usize = 40;

/// How many failures the last lines of a run tell of each suite.
const FAILURES_SHOWN: usize = 10;

/// How much of the log of each of its processes.
const TAIL_LINES_EACH: usize = 8;

/// What must be free before a suite begins: without it, databases and stores end with
/// errors that say nothing of the suite.
const ROOM_MIB: u64 = 3072;

/// When a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Always.
    Quick,
    /// With `--full` only.
    Full,
}

/// One suite.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) when: When,
    limit_seconds: u64,
    run: fn(&Stage<'_>) -> Result<()>,
}

/// All suites, in the order in which they run.
pub(crate) const SUITES: [Suite; 60] = [
    suite("cli", When::Quick, 120, cli::run),
    suite("conformance", When::Quick, 180, conformance::run),
    suite(
        "conformance-hashed",
        When::Full,
        240,
        conformance::run_hashed,
    ),
    suite("metrics", When::Quick, 60, metrics::run),
    suite("console", When::Quick, 120, console::run),
    suite("etcd", When::Quick, 120, etcd::run),
    suite("http", When::Quick, 300, http::run),
    suite("ibp", When::Quick, 120, ibp::run),
    suite("logistics", When::Quick, 120, logistics::run),
    suite("ibp-wan", When::Quick, 240, wan::run),
    suite("iscsi", When::Quick, 240, iscsi::run),
    suite("kernel-iscsi", When::Quick, 400, iscsi::kernel::run),
    suite("sets", When::Quick, 180, sets::run),
    suite("libnfs", When::Quick, 60, libnfs::run),
    suite("kernel-basics", When::Quick, 120, kernel::basics),
    suite("kernel-tree", When::Quick, 900, kernel::tree),
    suite("kernel-fsx", When::Quick, 240, kernel::fsx),
    suite(
        "kernel-close-to-open",
        When::Quick,
        240,
        kernel::close_to_open,
    ),
    suite("kernel-locks", When::Quick, 240, locks::run),
    suite("kernel-sqlite", When::Quick, 180, kernel::sqlite),
    suite("kernel-pjdfstest", When::Quick, 400, kernel::pjdfstest),
    suite("kernel-restart", When::Quick, 600, kernel::restart),
    suite("kill9", When::Quick, 300, crash::run),
    suite("ensemble", When::Quick, 240, ensemble::run),
    suite("ibp-ensemble", When::Quick, 180, ensemble::run_depots),
    suite("sets-ensemble", When::Quick, 180, ensemble::run_sets),
    suite("iscsi-ensemble", When::Quick, 180, ensemble::run_luns),
    suite("ensemble-tls", When::Quick, 240, ensemble::run_secure),
    suite("http-ensemble", When::Quick, 180, ensemble::run_withdrawals),
    suite("kernel-ensemble", When::Quick, 600, ensemble::run_kernel),
    suite("kernel-multipath", When::Quick, 300, ensemble::run_paths),
    suite("cluster", When::Quick, 300, cluster::run),
    suite("cluster-faults", When::Quick, 600, cluster::run_faults),
    suite("kernel-cluster", When::Full, 600, cluster::run_kernel),
    suite("cluster-clocks", When::Quick, 300, cluster::run_clocks),
    suite(
        "conformance-ensemble",
        When::Quick,
        400,
        cluster::conformance,
    ),
    suite(
        "conformance-ensemble-hashed",
        When::Full,
        900,
        cluster::conformance_hashed,
    ),
    suite(
        "kernel-pjdfstest-ensemble",
        When::Full,
        900,
        cluster::pjdfstest,
    ),
    suite(
        "kernel-pjdfstest-ensemble-hashed",
        When::Full,
        1500,
        cluster::pjdfstest_hashed,
    ),
    suite("disk-faults", When::Quick, 480, disks::faults),
    suite("disk-alone", When::Quick, 480, disks::alone),
    suite("disk-full", When::Quick, 240, disks::full),
    suite("log-writes", When::Quick, 300, disks::log_writes),
    suite("spiral", When::Quick, 300, spiral::run),
    suite("spiral-doors", When::Quick, 300, spiral::run_doors),
    suite("spiral-faults", When::Quick, 300, spiral::run_faults),
    suite("spiral-policy", When::Quick, 120, spiral::run_policy),
    suite("kernel-spiral", When::Quick, 180, spiral::run_kernel),
    suite("fuzz-sockets", When::Quick, 120, sockets::run),
    suite("iscsi-long", When::Full, 1200, iscsi::run_long),
    suite(
        "kernel-iscsi-long",
        When::Full,
        1800,
        iscsi::kernel::run_long,
    ),
    suite("kernel-tree-long", When::Full, 1800, kernel::tree_long),
    suite("kernel-fsx-long", When::Full, 3600, kernel::fsx_long),
    suite(
        "kernel-restart-long",
        When::Full,
        1800,
        kernel::restart_long,
    ),
    suite("kill9-long", When::Full, 1800, crash::run_long),
    suite("log-writes-long", When::Full, 1800, disks::log_writes_long),
    suite(
        "spiral-faults-long",
        When::Full,
        600,
        spiral::run_faults_long,
    ),
    suite("spiral-volume", When::Full, 1800, spiral::run_volume),
    suite("fuzz-sockets-long", When::Full, 900, sockets::run_long),
    suite("package", When::Full, 900, package::run),
];

/// What a suite is given.
pub(crate) struct Stage<'test> {
    pub(crate) paths: &'test Paths,
    /// Which server to test.
    pub(crate) server: Kind,
    /// Further words of `cluster init`, for the suites that make an ensemble.
    pub(crate) init: &'test [String],
    /// Log of the suite; files beside it may take its name with another end.
    pub(crate) log: PathBuf,
    /// Folder for the data of this suite, empty at the start.
    pub(crate) folder: PathBuf,
    /// When it must have ended.
    pub(crate) deadline: Instant,
}

impl Stage<'_> {
    /// For suites of what peers do not have.
    fn expect_crossdock(&self) -> Result<()> {
        let is_ours = self.server == Kind::Crossdock;
        ensure!(is_ours, "this suite tests Crossdock only");
        Ok(())
    }
}

/// How a suite ended.
pub(crate) struct Outcome {
    pub(crate) passed: bool,
    pub(crate) line: String,
}

impl Outcome {
    /// The name of the suite, when it is one that failed.
    pub(crate) fn failed_suite(&self) -> Option<&str> {
        let rest = self.line.strip_prefix("FAIL ")?;
        rest.split(' ').next()
    }
}

/// Runs `suite`, prints its line and says how it ended.
pub(crate) fn run(suite: &Suite, paths: &Paths, server: Kind, init: &[String]) -> Outcome {
    let started = Instant::now();
    let log = paths.logs().join(suite.name).with_extension("log");
    let result = prepare(suite, paths, server, init, &log).and_then(|stage| (suite.run)(&stage));
    let verdict = if result.is_ok() { "PASS" } else { "FAIL" };
    let seconds = started.elapsed().as_secs_f64();
    let line = format!("{verdict} {} ({seconds:.1} s)", suite.name);
    let folder = folder_of(suite, paths);
    match &result {
        // A machine of CI has no room for the data of thirty suites.
        Ok(()) => drop(fs::remove_dir_all(&folder)),
        Err(error) => {
            println!("{error:#}\nlog: {}", log.display());
            print_tail(&log, TAIL_LINES);
            if let Ok(mut file) = open_log(&log) {
                drop(writeln!(file, "FAIL {}\n{error:#}", suite.name));
            }
            print_logs(&folder, "");
            print_logs(&folder.join("logs"), "");
            print_logs(&paths.logs(), &format!("{}.", suite.name));
        }
    }
    println!("{line}");
    Outcome {
        passed: result.is_ok(),
        line,
    }
}

/// The suite of that name.
pub(crate) fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

const fn suite(
    name: &'static str,
    when: When,
    limit_seconds: u64,
    run: fn(&Stage<'_>) -> Result<()>,
) -> Suite {
    Suite {
        name,
        when,
        limit_seconds,
        run,
    }
}

fn prepare<'test>(
    suite: &Suite,
    paths: &'test Paths,
    server: Kind,
    init: &'test [String],
    log: &Path,
) -> Result<Stage<'test>> {
    let folder = folder_of(suite, paths);
    if folder.exists() {
        unmount_below(&folder)?;
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let room = rustix::fs::statvfs(&folder)?;
    let room_mib = room.f_bavail * room.f_frsize / (1 << 20);
    ensure!(
        room_mib >= ROOM_MIB,
        "{room_mib} MiB are free at {}: suites need {ROOM_MIB} MiB",
        folder.display()
    );
    if log.exists() {
        fs::remove_file(log)?;
    }
    open_log(log)?;
    ensure!(
        server == Kind::Ganesha || paths.release_binary().exists(),
        "target/release/crossdock is not built"
    );
    Ok(Stage {
        paths,
        server,
        init,
        log: log.to_owned(),
        folder,
        deadline: Instant::now() + Duration::from_secs(suite.limit_seconds),
    })
}

/// Unmounts what a run that was killed has left.
fn unmount_below(folder: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        process::run(Command::new("umount").arg(place))?;
    }
    Ok(())
}

fn folder_of(suite: &Suite, paths: &Paths) -> PathBuf {
    paths.test_data().join(suite.name)
}

/// The ends of what a failed suite's processes logged, in files that begin so.
fn print_logs(folder: &Path, prefix: &str) {
    let logs = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = logs.map(|entry| entry.path()).collect();
    logs.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(".log") && name.len() > prefix.len() + 3
    });
    logs.sort();
    for path in logs {
        println!("log: {}", path.display());
        print_tail(&path, TAIL_LINES_EACH);
    }
}

/// Why a suite failed, by its log: the lines that begin with FAIL, each with the one
/// behind it.
pub(crate) fn print_failures(paths: &Paths, name: &str) {
    let log = paths.logs().join(name).with_extension("log");
    let Ok(bytes) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let failed = lines.windows(2).filter(|two| two[0].starts_with("FAIL "));
    for line in failed.take(FAILURES_SHOWN).flatten() {
        println!("    {line}");
    }
}

/// The end of a failed suite's log, so that a CI log is enough to understand it.
fn print_tail(log: &Path, most_lines: usize) {
    let Ok(bytes) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(most_lines)..] {
        println!("    {line}");
    }
}
