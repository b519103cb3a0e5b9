//! A process of a rig: it sees its host's network, programs that it cannot change,
//! and its own directory if it has one; no other file and no other process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::process::open_log;
use crate::rig::network::Network;

/// A process's own directory, as it sees it.
pub(super) const DATA: &str = "/data";
/// How often a log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a process may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds the root that the process sees: memory that is read-only in the end, with
/// the system's programs, ours, and its directory. All of it goes with its namespace.
const SCRIPT: &str = r#"
set -e
root=$1 data=$2 programs=$3 tools=$4; hostname "$5"; shift 5
mount -t tmpfs -o mode=755,size=256k rig "$root"
cd "$root"
mkdir data dev etc proc programs tools usr
for link in bin lib lib64 sbin; do
    if [ -h "/$link" ]; then cp -P "/$link" "$link"
    elif [ -d "/$link" ]; then mkdir "$link"; mount -o bind,ro "/$link" "$link"; fi
done
mount -o bind,ro /usr usr
mount -o bind,ro "$programs" programs
mount -o bind,ro "$tools" tools
mkdir dev/net
for device in null zero random urandom net/tun; do
    [ -e "/dev/$device" ] || continue
    touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"
done
mount -t proc -o nosuid,nodev,noexec proc proc
mkdir -p sys/devices/system/cpu
mount -o bind,ro /sys/devices/system/cpu sys/devices/system/cpu
# Its own network's settings are its own.
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc
if [ -n "$data" ]; then mount --bind "$data" data; fi
mkdir old
pivot_root . old
cd /
umount -l old
rmdir old
mount -o remount,ro,mode=755,size=256k /
exec "$@"
"#;

/// Where a process runs.
pub(super) struct Place<'rig> {
    pub(super) netns: &'rig str,
    /// Its host name.
    pub(super) name: &'rig str,
    /// What is its [`DATA`]; nothing is, without.
    pub(super) data: Option<&'rig Path>,
    /// What is /programs and /tools there.
    pub(super) programs: &'rig Path,
    pub(super) tools: &'rig Path,
}

/// A process, told from a later one of the same number by when it started.
#[derive(Debug)]
pub(in crate::rig) struct Process {
    pub(in crate::rig) pid: u32,
    started: u64,
    /// Where its part of the log begins.
    log_bytes: u64,
}

/// A command line that sees the host's network and all else of this machine.
pub(super) fn command_in(netns: &str, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{netns}"));
    command.arg("--").arg(program);
    command
}

/// Does `work` on a thread that is in a host's network, as are those that it starts.
pub(crate) fn in_network<T: Send>(
    netns: &str,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    Network::of_host(netns).within(work)
}

/// Starts a process that outlives this one; its output goes to `log`.
pub(super) fn start(place: &Place<'_>, words: &[String], log: &Path) -> Result<Process> {
    let output = open_log(log)?;
    let log_bytes = output.metadata()?.len();
    // An empty folder of this machine, over which the process's root is mounted.
    let root = Path::new("/run/crossdock-rig/root");
    fs::create_dir_all(root)?;
    // In a session of its own: it does not end with the terminal.
    let mut command = Command::new("setsid");
    command.args(["nsenter", &format!("--net=/run/netns/{}", place.netns)]);
    command.args(["--", "unshare"]);
    command.args([
        "--mount",
        "--uts",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child=KILL",
    ]);
    command.args(["--propagation", "private", "--", "sh", "-c", SCRIPT, "sh"]);
    command.arg(root);
    command.arg(place.data.unwrap_or_else(|| Path::new("")));
    command.arg(place.programs).arg(place.tools).arg(place.name);
    command.args(words);
    command.stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    let mut outer = command.spawn()?;
    // The first process of the new namespace is the child of what was started.
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let child = fs::read_to_string(&children).unwrap_or_default();
        if let Some(pid) = child.split(' ').next().and_then(|pid| pid.parse().ok()) {
            let started = started(pid).with_context(|| format!("see {}", log.display()))?;
            return Ok(Process {
                pid,
                started,
                log_bytes,
            });
        }
        if let Some(status) = outer.try_wait()? {
            bail!("it ended with {status}: see {}", log.display());
        }
        ensure!(Instant::now() < deadline, "it does not begin");
        thread::park_timeout(LOOK_EVERY);
    }
}

impl Process {
    /// One that was just started, whose log begins with it.
    pub(in crate::rig) fn of(pid: u32) -> Result<Self> {
        Ok(Self {
            pid,
            started: started(pid).context("it has ended")?,
            log_bytes: 0,
        })
    }

    pub(in crate::rig) fn to_json(&self) -> Value {
        json!({ "pid": self.pid, "started": self.started })
    }

    pub(in crate::rig) fn from_json(value: &Value) -> Result<Self> {
        Ok(Self {
            pid: u32::try_from(value["pid"].as_u64().context("no pid")?)?,
            started: value["started"].as_u64().context("no start")?,
            log_bytes: 0,
        })
    }

    /// Whether it has not ended.
    pub(in crate::rig) fn is_running(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Sends it a signal that does not end it.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid)?).context("no process")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        ensure!(self.is_running(), "process {} has ended", self.pid);
        Ok(pidfd_send_signal(&pidfd, signal)?)
    }

    /// Ends it with SIGKILL, if it still is the one that was started, and waits for
    /// its end: its files are its own no more.
    pub(in crate::rig) fn kill(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid)?).context("no process")?;
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(()); // It has ended.
        };
        // What the descriptor is of cannot become another process from here on.
        if !self.is_running() {
            return Ok(());
        }
        pidfd_send_signal(&pidfd, Signal::KILL)?;
        let patience = Timespec::try_from(PATIENCE)?;
        let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience))?;
        ensure!(ended > 0, "process {} does not end", self.pid);
        Ok(())
    }

    /// Waits until it has written such a line to its log.
    pub(in crate::rig) fn wait_for_line(
        &self,
        log: &Path,
        is_wanted: impl Fn(&str) -> bool,
        patience: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let is_running = self.is_running();
            let text = fs::read(log)?;
            let own = text
                .get(usize::try_from(self.log_bytes)?..)
                .unwrap_or_default();
            let own = String::from_utf8_lossy(own);
            if own.lines().any(&is_wanted) {
                return Ok(());
            }
            let says = own.lines().last().unwrap_or_default();
            ensure!(
                is_running,
                "it has ended: {says} (all in {})",
                log.display()
            );
            ensure!(
                Instant::now() < deadline,
                "it is not ready: see {}",
                log.display()
            );
            thread::park_timeout(LOOK_EVERY);
        }
    }
}

/// When a process started, in ticks since the machine did (proc(5), field 22).
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses, and may have anything in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A process that has ended and is not reaped yet runs no more.
    let state = fields.next()?;
    (state != "Z").then_some(())?;
    fields.nth(18)?.parse().ok()
}
