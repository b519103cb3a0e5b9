//! Programs that a rig or a test starts: each in a process group of its own,
//! with a time limit, and ended when its handle is dropped.
//!
//! Nothing here outlives xtask: every program also asks the kernel to be
//! killed when the thread that started it dies.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

/// Lines of output that wait for their reader before the program is held back.
const LINES_WAITING_MAX: usize = 4096;

/// A command line whose program will be killed with xtask.
///
/// `setpriv` sets the parent-death signal between fork and exec, which Rust
/// itself could only do with unsafe code.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(name);
    command
}

/// Cargo, as if it was called by hand: what another cargo has said of this program would
/// have it build those crates again whose build scripts look at the like (ring's does).
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Opens `path` for appending, with its folders.
pub(crate) fn open_log(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Runs `command` to its end with output in `log`; anything but success is an error.
pub(crate) fn run_logged(mut command: Command, log: &Path, deadline: Instant) -> Result<()> {
    let mut output = open_log(log)?;
    writeln!(output, "$ {}", describe(&command))?;
    command.stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    let mut running = Running::start(command)?;
    let status = running.wait(deadline)?;
    ensure!(status.success(), "{}: {status}", running.name());
    Ok(())
}

/// Runs `command` to its end with this process's own output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

/// Runs `command` to its end and returns what it printed, trimmed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The command line as a person would type it.
pub(crate) fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    let prefix = "setpriv --pdeathsig KILL -- ";
    text.strip_prefix(prefix).map(str::to_owned).unwrap_or(text)
}

/// A running program. Dropping it kills its whole process group.
pub(crate) struct Running {
    child: Child,
    name: String,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` in a process group of its own.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let name = describe(&command);
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            child,
            name,
            status: None,
        })
    }

    /// Starts `command`, whose standard output is a pipe, and returns that pipe.
    pub(crate) fn start_piped(command: Command) -> Result<(Self, ChildStdout)> {
        let mut running = Self::start(command)?;
        let stdout = running.child.stdout.take().context("no output pipe")?;
        Ok((running, stdout))
    }

    /// Starts `command` and hands its standard output on, line by line; the
    /// lines and its standard error also go to `log`.
    pub(crate) fn start_with_lines(mut command: Command, log: &Path) -> Result<(Self, Lines)> {
        let mut output = open_log(log)?;
        writeln!(output, "$ {}", describe(&command))?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut running, stdout) = Self::start_piped(command)?;
        let stderr = running.child.stderr.take().context("no error pipe")?;
        let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
        forward_lines(stdout, output.try_clone()?, Some(sender));
        forward_lines(stderr, output, None);
        Ok((running, Lines { receiver }))
    }

    /// Starts `command` and hands its standard output on, line by line, which
    /// also goes to `log`; standard error goes where `command` says.
    pub(crate) fn start_with_output_lines(
        mut command: Command,
        mut log: File,
    ) -> Result<(Self, Lines)> {
        writeln!(log, "$ {}", describe(&command))?;
        command.stdout(Stdio::piped());
        let (running, stdout) = Self::start_piped(command)?;
        let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
        forward_lines(stdout, log, Some(sender));
        Ok((running, Lines { receiver }))
    }

    /// The program's standard input, if it was asked for as a pipe.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The command line, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the program. At `deadline` it is killed, which is an error.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let pidfd = pidfd_open(self.group()?, PidfdFlags::empty())?;
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match poll(&mut fds, Some(&Timespec::try_from(left)?)) {
                Ok(0) => {
                    self.kill();
                    bail!("{}: out of time, killed", self.name);
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Asks the program to stop (SIGTERM) and waits for it.
    pub(crate) fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        if self.status.is_none() {
            kill_process(self.group()?, Signal::TERM)?;
        }
        self.wait(Instant::now() + patience)
    }

    /// Sends it a signal, such as the one that has it do nothing (SIGSTOP), or go on (SIGCONT).
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.group()?, signal)?)
    }

    /// Kills the program and all of its process group (SIGKILL) and reaps it.
    pub(crate) fn kill(&mut self) {
        if let Ok(group) = self.group() {
            // The group may be gone already; then there is nothing to end.
            let _ = kill_process_group(group, Signal::KILL);
        }
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }

    fn group(&self) -> Result<Pid> {
        let id = i32::try_from(self.child.id())?;
        Pid::from_raw(id).context("process id 0")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lines that a program prints.
pub(crate) struct Lines {
    receiver: Receiver<String>,
}

impl Lines {
    /// The next line; `None` once the program has closed its output.
    ///
    /// # Errors
    /// `deadline` passed first.
    pub(crate) fn next(&self, deadline: Instant) -> Result<Option<String>> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.receiver.recv_timeout(left) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("out of time waiting for output"),
        }
    }

    /// Goes on to read and log what the program prints, with nobody listening.
    pub(crate) fn ignore(self) {
        thread::spawn(move || for _line in self.receiver {});
    }
}

/// Copies lines from `input` to `log` and, if somebody listens, to `sender`.
fn forward_lines(
    input: impl Read + Send + 'static,
    mut log: File,
    sender: Option<SyncSender<String>>,
) {
    thread::spawn(move || {
        for bytes in BufReader::new(input).split(b'\n') {
            let Ok(bytes) = bytes else { break };
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end_matches('\r');
            // A log that cannot be written must not stop the program under test.
            let _ = writeln!(log, "{line}");
            if let Some(sender) = &sender {
                let _ = sender.send(line.to_owned());
            }
        }
    });
}
