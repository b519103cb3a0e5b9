//! The binary as a user runs it: to its end, or as a server.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::{Running, open_log, program};
use crate::rig::server::READY_PATIENCE;
use crate::suite::Stage;

/// How long a command may take that is to end by itself.
const PATIENCE: Duration = Duration::from_secs(15);

/// How a command ended and what it printed.
pub(in crate::suite) struct Finished {
    pub(in crate::suite) code: i32,
    pub(in crate::suite) stdout: String,
    pub(in crate::suite) stderr: String,
}

impl Finished {
    /// Checks that it succeeded, and printed all of `words`.
    pub(in crate::suite) fn says(&self, words: &[&str]) -> Result<()> {
        let missing: Vec<_> = words
            .iter()
            .filter(|word| !self.stdout.contains(**word))
            .collect();
        ensure!(
            self.code == 0 && missing.is_empty(),
            "exit code {}, or without {missing:?}: {}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(())
    }

    /// Checks the exit code, and that the message of an error, or else what was printed,
    /// has all of `words`.
    pub(in crate::suite) fn expect(&self, code: i32, words: &[&str]) -> Result<()> {
        let said = if code == 0 {
            &self.stdout
        } else {
            &self.stderr
        };
        let missing = words.iter().filter(|word| !said.contains(**word));
        let missing: Vec<_> = missing.collect();
        ensure!(
            self.code == code && missing.is_empty(),
            "exit code {} instead of {code}, or without {missing:?}: {}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(())
    }

    /// Checks the exit code and returns what was printed as JSON.
    pub(in crate::suite) fn json(&self, code: i32) -> Result<Value> {
        self.expect(code, &[])?;
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("this is no JSON: {}", self.stdout))
    }
}

/// A command line of the binary under test.
pub(in crate::suite) fn crossdock(stage: &Stage<'_>, arguments: &[&str]) -> Command {
    let mut command = program(stage.paths.release_binary());
    command.args(arguments);
    doors_at_free_ports(&mut command);
    command
}

/// The usual ports may be another one's.
pub(in crate::suite) fn doors_at_free_ports(command: &mut Command) {
    for door in ["HTTP", "ISCSI", "IBP", "LBONE"] {
        command.env(format!("CROSSDOCK_{door}"), "127.0.0.1:0");
    }
}

/// Runs the binary with `arguments` to its end.
pub(in crate::suite) fn finish(stage: &Stage<'_>, arguments: &[&str]) -> Result<Finished> {
    finish_command(stage, crossdock(stage, arguments))
}

/// Runs `command` to its end.
pub(in crate::suite) fn finish_command(
    stage: &Stage<'_>,
    mut command: Command,
) -> Result<Finished> {
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| stage.folder.join(name));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?);
    let mut running = Running::start(command)?;
    let status = running.wait(Instant::now() + PATIENCE)?;
    let finished = Finished {
        code: status
            .code()
            .with_context(|| format!("{}: {status}", running.name()))?,
        stdout: fs::read_to_string(stdout)?,
        stderr: fs::read_to_string(stderr)?,
    };
    // All that was said, for whoever reads the log of a failed suite.
    writeln!(
        open_log(&stage.log)?,
        "$ {}\n{}{}exit code {}",
        running.name(),
        finished.stdout,
        finished.stderr,
        finished.code
    )?;
    Ok(finished)
}

/// `crossdock up`, ready.
pub(in crate::suite) struct Up {
    running: Running,
    /// Where it serves NFS, first of all.
    pub(in crate::suite) nfs: SocketAddr,
    /// All places where it does.
    pub(in crate::suite) nfs_doors: Vec<SocketAddr>,
    /// Where it serves HTTP, if it does.
    pub(in crate::suite) http: Option<SocketAddr>,
    /// Where it serves HTTPS, if it does.
    pub(in crate::suite) https: Option<String>,
    /// Where it serves iSCSI, if it does.
    pub(in crate::suite) iscsi: Option<SocketAddr>,
    /// Where it is administered.
    pub(in crate::suite) admin: String,
    log: PathBuf,
}

impl Up {
    /// Starts `command` with free ports and JSON logs, and waits until it serves.
    pub(in crate::suite) fn start(stage: &Stage<'_>, command: Command) -> Result<Self> {
        Self::start_at(stage, command, "127.0.0.1:0", "127.0.0.1:0")
    }

    /// The same with doors at given addresses.
    pub(in crate::suite) fn start_at(
        stage: &Stage<'_>,
        command: Command,
        nfs: &str,
        admin: &str,
    ) -> Result<Self> {
        Self::start_telling(stage, command, nfs, admin, "debug")
    }

    /// The same with a log of that level.
    pub(in crate::suite) fn start_telling(
        stage: &Stage<'_>,
        mut command: Command,
        nfs: &str,
        admin: &str,
        level: &str,
    ) -> Result<Self> {
        command.args(["--log", level]);
        Self::start_with(stage, command, nfs, admin)
    }

    /// The same with free ports, and a log of what its configuration says.
    pub(in crate::suite) fn start_untold(stage: &Stage<'_>, command: Command) -> Result<Self> {
        Self::start_with(stage, command, "127.0.0.1:0", "127.0.0.1:0")
    }

    fn start_with(stage: &Stage<'_>, mut command: Command, nfs: &str, admin: &str) -> Result<Self> {
        let log = stage.folder.join("server.json");
        command
            .args(["--nfs", nfs, "--admin", admin])
            .args(["--log-format", "json"])
            .stdin(Stdio::null())
            .stderr(File::create(&log)?);
        let (running, lines) = Running::start_with_output_lines(command, open_log(&stage.log)?)?;
        let deadline = Instant::now() + READY_PATIENCE;
        let (mut nfs_doors, mut http) = (Vec::new(), None);
        let (mut https, mut iscsi) = (None, None);
        let admin = loop {
            let Some(line) = lines.next(deadline)? else {
                bail!("the server ended: {}", fs::read_to_string(&log)?);
            };
            match line.trim().split_once(' ') {
                Some(("nfs", address)) => nfs_doors.push(address.parse()?),
                Some(("http", address)) => http = Some(address.parse()?),
                Some(("https", address)) => https = Some(address.to_owned()),
                Some(("iscsi", address)) => iscsi = Some(address.parse()?),
                Some(("admin", address)) => break address.to_owned(),
                _ => {}
            }
        };
        lines.ignore();
        Ok(Self {
            running,
            nfs: *nfs_doors.first().context("no NFS door")?,
            nfs_doors,
            http,
            https,
            iscsi,
            admin,
            log,
        })
    }

    /// Its process.
    pub(in crate::suite) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Where its log goes.
    pub(in crate::suite) fn log(&self) -> &Path {
        &self.log
    }

    /// Runs a command that talks to this server, with `--json`.
    pub(in crate::suite) fn ask(&self, stage: &Stage<'_>, words: &[&str]) -> Result<Finished> {
        let mut command = crossdock(stage, words);
        command.args(["--json", "--admin", &self.admin]);
        finish_command(stage, command)
    }

    /// Kills it (SIGKILL), as a loss of power would.
    pub(in crate::suite) fn kill(mut self) {
        self.running.kill();
    }

    /// Stops it by SIGTERM; it must exit with 0. Returns its log, of which
    /// every line is JSON.
    pub(in crate::suite) fn stop(mut self) -> Result<Vec<Value>> {
        let status = self.running.terminate(PATIENCE)?;
        let text = fs::read_to_string(&self.log)?;
        ensure!(status.success(), "the server stopped with {status}: {text}");
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}")))
            .collect()
    }
}

/// `path` for a command line.
pub(in crate::suite) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is not UTF-8")
}
