//! The server as a process: started on one data folder, killed, started again.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// A running server.
pub struct Server {
    child: Child,
    address: SocketAddr,
    binary: PathBuf,
    // Kept open: a few lines more may come, and must find a reader.
    lines: BufReader<ChildStdout>,
    admin: Option<String>,
}

impl Server {
    /// Starts `binary` on the data in `folder` and waits until it is ready.
    ///
    /// # Errors
    /// It ends before, or cannot be started.
    pub fn start(binary: &Path, folder: &Path) -> Result<Self> {
        Self::start_with(binary, folder, &[])
    }

    /// The same, with further `arguments` of `crossdock up`.
    ///
    /// # Errors
    /// It ends before, or cannot be started.
    pub fn start_with(binary: &Path, folder: &Path, arguments: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("server.log"))?;
        // If this program is killed itself, the server goes with it.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary)
            .args([
                "up",
                "--nfs",
                "127.0.0.1:0",
                "--http",
                "off",
                "--iscsi",
                "off",
                "--ibp",
                "off",
                "--lbone",
                "off",
            ])
            .arg("--data")
            .arg(folder.join("data"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = child.stdout.take().context("no output pipe")?;
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            if let Some(address) = line.trim_end().strip_prefix("nfs ") {
                return Ok(Self {
                    address: address.parse().context("the server's address")?,
                    child,
                    binary: binary.to_owned(),
                    lines,
                    admin: None,
                });
            }
            line.clear();
        }
        bail!("the server ended before it was ready: {}", child.wait()?);
    }

    /// Where it serves NFS and MOUNT.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its further door `name` is, as its next lines say.
    ///
    /// # Errors
    /// They do not.
    pub fn door(&mut self, name: &str) -> Result<SocketAddr> {
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            let address = line.trim_end().strip_prefix(name);
            if let Some(address) = address.and_then(|rest| rest.strip_prefix(' ')) {
                return address.parse().context("a door's address");
            }
            line.clear();
        }
        bail!("no door {name}");
    }

    /// Carries out a command of the administrator, like `quota set /a --files 3`.
    ///
    /// # Errors
    /// The server has no admin API, or the command fails.
    pub fn administer(&mut self, words: &[&str]) -> Result<()> {
        let admin = self.admin()?;
        let output = Command::new(&self.binary)
            .args(words)
            .args(["--admin", &admin])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {said}");
        Ok(())
    }

    /// The address of the admin API.
    fn admin(&mut self) -> Result<String> {
        if let Some(admin) = &self.admin {
            return Ok(admin.clone());
        }
        let admin = self.door("admin")?.to_string();
        self.admin = Some(admin.clone());
        Ok(admin)
    }

    /// Kills the server with SIGKILL, at once.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.wait()
    }

    /// Kills the server with SIGKILL after `delay`, while the caller goes on.
    /// Dropping the returned guard kills it at once.
    ///
    /// # Errors
    /// The server has no process id.
    pub fn kill_after(&mut self, delay: Duration) -> Result<Killer> {
        let pid = self.pid()?;
        let (now, wait) = channel::<()>();
        let thread = thread::spawn(move || {
            // Ends early only if the guard is dropped; either way it is time.
            let _ = wait.recv_timeout(delay);
            kill_process(pid, Signal::KILL).is_ok()
        });
        Ok(Killer {
            now: Some(now),
            thread: Some(thread),
        })
    }

    fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.context("the server has no process id")
    }

    /// Reaps the killed server.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Stops the server gracefully; it must exit with 0.
    ///
    /// # Errors
    /// It does not.
    pub fn stop(mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::TERM).context("cannot ask the server to stop")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kill that is under way.
pub struct Killer {
    now: Option<Sender<()>>,
    thread: Option<JoinHandle<bool>>,
}

impl Killer {
    /// Waits until the server has its signal.
    ///
    /// # Errors
    /// It could not be killed.
    pub fn finish(mut self) -> Result<()> {
        let killed = self.thread.take().map(JoinHandle::join);
        ensure!(matches!(killed, Some(Ok(true))), "the kill failed");
        Ok(())
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.now = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
