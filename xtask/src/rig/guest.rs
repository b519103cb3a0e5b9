//! A guest with a real Linux kernel and its own NFS client: Debian's User-Mode
//! Linux, which needs neither virtualisation nor modules of the host.
//!
//! The guest boots a small root folder (busybox and the kernel's modules),
//! changes into the host's `/` over hostfs, read-only, and runs one shell
//! script there with the host's own programs. Its two serial lines carry the
//! script's output and errors; the last line of output is the exit code.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::network::{LINK, Link, Network, PREFIX_BITS};
use crate::paths::Paths;
use crate::process::{Lines, Running, run};

/// Memory of the guest. Its host file lies in /dev/shm and is sparse.
const MEMORY: &str = "mem=1024M";
/// What busybox must answer to in the small root.
const APPLETS: [&str; 9] = [
    "cat", "chroot", "ip", "mkdir", "mount", "poweroff", "sh", "stty", "sync",
];
/// What lets the guest run on processors with wider registers than it knows.
const PRELOADED: &str = "wide-registers.so";
/// How the guest's init script reports the script's exit code.
const EXIT_MARK: &str = "@@exit ";
/// How a script that takes orders answers one.
const ANSWER_MARK: &str = "@@ ";

/// One script to run in a guest.
pub(crate) struct Job<'job> {
    /// Script below tests/kernel.
    pub(crate) script: &'job str,
    /// Its variables.
    pub(crate) variables: Vec<(&'job str, String)>,
    /// Files that are its block devices /dev/ubda, /dev/ubdb, …
    pub(crate) disks: Vec<PathBuf>,
    /// Where the console, the output and the errors go.
    pub(crate) log: &'job Path,
    /// When the guest is killed.
    pub(crate) deadline: Instant,
}

/// Unpacks the guest kernel from its Debian package and makes the small root.
pub(crate) fn prepare(paths: &Paths, package: &Path) -> Result<()> {
    let folder = paths.guest();
    let stamp = folder.join("package");
    let name = package.file_name().context("no package name")?;
    if !fs::read(&stamp).is_ok_and(|made_from| made_from == name.as_encoded_bytes()) {
        unpack(&folder, package)?;
        // Last, so that a half-made folder is made again.
        fs::write(stamp, name.as_encoded_bytes())?;
    }
    let source = paths.root.join("tests/kernel/wide-registers.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
    run(compiler.arg(folder.join(PRELOADED)).arg(source))
}

fn unpack(folder: &Path, package: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    run(Command::new("dpkg").arg("-x").arg(package).arg(&unpacked))?;

    let root = folder.join("root");
    for inner in ["bin", "dev", "host", "lib", "proc", "sys"] {
        fs::create_dir_all(root.join(inner))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).context("busybox-static is needed")?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    fs::rename(
        unpacked.join("usr/lib/uml/modules"),
        root.join("lib/modules"),
    )?;
    let version = only_entry(&root.join("lib/modules"))?;
    run(Command::new("depmod").arg("-b").arg(&root).arg(version))?;
    fs::rename(unpacked.join("usr/bin/linux.uml"), folder.join("linux"))?;
    Ok(())
}

/// Boots a guest on `network`, runs the job in it and returns the script's exit code.
///
/// Each line that the script prints goes to `on_line` first.
///
/// # Errors
/// The guest did not boot, or did not come to its end before the deadline.
pub(crate) fn run_job(
    paths: &Paths,
    network: &Network,
    job: &Job<'_>,
    mut on_line: impl FnMut(&str) -> Result<()>,
) -> Result<i32> {
    let command = boot(paths, network, job, &LINK, None)?;
    let (mut guest, lines) = Running::start_with_lines(command, job.log)?;
    // The serial line hangs up when its input ends, so it is held open.
    let _input = guest.take_stdin();
    let mut booted = false;
    while let Some(line) = lines.next(job.deadline)? {
        if let Some(code) = line.strip_prefix(EXIT_MARK) {
            let code = code.trim().parse().context("the guest's exit code")?;
            // It has said all; how it halts is of no interest.
            guest.wait(job.deadline)?;
            return Ok(code);
        }
        booted |= line.starts_with("guest kernel ");
        on_line(&line)?;
    }
    if booted {
        bail!("the guest halted before its script ended");
    }
    let console = fs::read(console(job)).unwrap_or_default();
    bail!(
        "the guest did not boot; its console said:\n{}",
        String::from_utf8_lossy(&console)
    );
}

/// A guest that does what it is told, line by line. Dropping it is a power
/// failure.
pub(crate) struct Guest {
    lines: Lines,
    input: ChildStdin,
    _running: Running,
}

impl Guest {
    /// Boots a guest at `link`, whose /run/exchange is the host's `exchange`,
    /// and waits until its script says that it takes orders.
    ///
    /// # Errors
    /// It does not come so far before the deadline.
    pub(crate) fn start(
        paths: &Paths,
        network: &Network,
        job: &Job<'_>,
        link: &Link,
        exchange: &Path,
    ) -> Result<Self> {
        let command = boot(paths, network, job, link, Some(exchange))?;
        let (mut running, lines) = Running::start_with_lines(command, job.log)?;
        let input = running.take_stdin().context("no input pipe")?;
        let mut guest = Self {
            lines,
            input,
            _running: running,
        };
        let said = guest.answer(job.deadline)?;
        ensure!(said == "ready", "the guest said {said}");
        Ok(guest)
    }

    /// Gives it an order and waits for the answer.
    ///
    /// # Errors
    /// There is none before the deadline.
    pub(crate) fn ask(&mut self, order: &str, deadline: Instant) -> Result<String> {
        writeln!(self.input, "{order}")?;
        self.answer(deadline).with_context(|| order.to_owned())
    }

    fn answer(&mut self, deadline: Instant) -> Result<String> {
        while let Some(line) = self.lines.next(deadline)? {
            if let Some(answer) = line.strip_prefix(ANSWER_MARK) {
                return Ok(answer.to_owned());
            }
            if let Some(code) = line.strip_prefix(EXIT_MARK) {
                bail!("the guest's script has ended with {code}");
            }
        }
        bail!("the guest halted");
    }
}

/// The command line of the guest's kernel; the script to run is written beside the log.
fn boot(
    paths: &Paths,
    network: &Network,
    job: &Job<'_>,
    link: &Link,
    exchange: Option<&Path>,
) -> Result<Command> {
    let folder = paths.guest();
    let root = folder.join("root");
    let init = root.join("init");
    fs::copy(paths.root.join("tests/kernel/guest-init.sh"), &init)?;
    fs::set_permissions(&init, Permissions::from_mode(0o755))?;
    let script = write_job(paths, job)?;

    // A process namespace of its own: the guest's helpers end with it, also when
    // xtask is killed. In it, fd 3 is the guest's console; only a shell can open
    // it without unsafe code.
    let mut command = network.program("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--", "sh", "-c"]);
    command.args(["console=$1; shift; \"$@\" 3>\"$console\"; exit $?", "sh"]);
    command.arg(console(job));
    command.arg(folder.join("linux"));
    command.args([MEMORY, "root=/dev/root", "rootfstype=hostfs"]);
    command.arg(format!("rootflags={}", Paths::plain(&root)?));
    command.args(["ro", "init=/init", "con=null", "con0=null,fd:3"]);
    command.args(["ssl0=fd:0,fd:1", "ssl1=null,fd:2"]);
    command.arg(format!("vec0:transport=tap,ifname={},gro=1", link.tap));
    for (number, disk) in job.disks.iter().enumerate() {
        command.arg(format!("ubd{number}={}", Paths::plain(disk)?));
    }
    command.arg(format!("crossdock.repo={}", Paths::plain(&paths.root)?));
    command.arg(format!("crossdock.target={}", Paths::plain(&paths.target)?));
    command.arg(format!("crossdock.job={}", Paths::plain(&script)?));
    command.arg(format!("crossdock.address={}/{PREFIX_BITS}", link.guest));
    command.arg(format!("crossdock.gateway={}", link.host));
    if let Some(exchange) = exchange {
        command.arg(format!("crossdock.exchange={}", Paths::plain(exchange)?));
    }
    command.env("TMPDIR", "/dev/shm");
    command.env("LD_PRELOAD", folder.join(PRELOADED));
    command.stdin(Stdio::piped());
    Ok(command)
}

/// Where the guest kernel's own messages go.
fn console(job: &Job<'_>) -> PathBuf {
    job.log.with_extension("console.log")
}

/// Writes the job's variables and the call of its script to a file below the
/// target folder, and returns that file's path relative to it.
fn write_job(paths: &Paths, job: &Job<'_>) -> Result<PathBuf> {
    let mut text = String::new();
    for (name, value) in &job.variables {
        ensure!(!value.contains('\''), "{name}: a quote in {value}");
        text.push_str(&format!("export {name}='{value}'\n"));
    }
    text.push_str(&format!(
        "exec bash /run/repo/tests/kernel/{}\n",
        job.script
    ));
    let file = job.log.with_extension("job.sh");
    fs::write(&file, text)?;
    Ok(file.strip_prefix(&paths.target)?.to_owned())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?;
    let entry = entries
        .next()
        .context("no kernel version in the package")??;
    Ok(entry.file_name().into())
}
