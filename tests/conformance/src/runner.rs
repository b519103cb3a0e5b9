//! Runs checks one by one against one server, each in a directory of its own,
//! and tells how they ended.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::HandleBuffer;
use crossdock_tests_crash::server::Server;
use serde_json::{Value, json};

use crate::client::Client;

/// One sentence about the server, and how to find out.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Stage<'_>) -> Result<()>,
}

/// An entry of a table of checks.
pub(crate) const fn check(name: &'static str, run: fn(&Stage<'_>) -> Result<()>) -> Check {
    Check { name, run }
}

/// The checks of one file.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    checks: &'static [Check],
}

impl Subject {
    pub(crate) const fn new(name: &'static str, checks: &'static [Check]) -> Self {
        Self { name, checks }
    }
}

/// What a check is given.
pub(crate) struct Stage<'run> {
    /// The server that all checks share.
    pub(crate) address: SocketAddr,
    /// The root of its volume.
    pub(crate) root: HandleBuffer,
    /// An empty directory that everybody may write.
    pub(crate) directory: HandleBuffer,
    /// The name of that directory in the root.
    pub(crate) name: String,
    program: &'run Path,
    folder: PathBuf,
}

impl Stage<'_> {
    /// A connection of root's.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(self.address)
    }

    /// A connection of a user's.
    pub(crate) fn user(&self, uid: u32, gid: u32, groups: &[u32]) -> Result<Client> {
        Ok(Client::connect(self.address)?.of(uid, gid, groups))
    }

    /// A server that this check alone has, on data of its own; it may be killed
    /// and started again under the same `label`.
    pub(crate) fn own_server(&self, label: &str, arguments: &[&str]) -> Result<Server> {
        start(self.program, &self.folder.join(label), arguments)
    }

    /// Removes the data of a server that is not needed any more.
    pub(crate) fn clear(&self, label: &str) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.folder.join(label))?)
    }
}

fn start(program: &Path, folder: &Path, arguments: &[&str]) -> Result<Server> {
    let mut all = vec!["--admin", "127.0.0.1:0"];
    all.extend(arguments);
    Server::start_with(program, folder, &all)
}

/// A run of checks.
pub(crate) struct Run<'run> {
    program: &'run Path,
    folder: &'run Path,
    server: Server,
    checks: usize,
    prints: bool,
}

impl<'run> Run<'run> {
    /// Starts the server that the checks share.
    pub(crate) fn start(program: &'run Path, folder: &'run Path, prints: bool) -> Result<Self> {
        Ok(Self {
            program,
            folder,
            server: start(program, &folder.join("shared"), &[])?,
            checks: 0,
            prints,
        })
    }

    /// Runs all checks of a subject.
    pub(crate) fn subject(&mut self, subject: &Subject, report: &mut Report) -> Result<()> {
        for check in subject.checks {
            self.single(subject.name, check, report)?;
        }
        Ok(())
    }

    /// Runs one check.
    pub(crate) fn single(
        &mut self,
        subject: &'static str,
        check: &'static Check,
        report: &mut Report,
    ) -> Result<()> {
        self.checks += 1;
        let stage = self
            .stage()
            .with_context(|| format!("no directory for: {}", check.name))?;
        let begun = Instant::now();
        let error = (check.run)(&stage).err().map(|error| format!("{error:#}"));
        let entry = Entry {
            subject,
            check: check.name,
            error,
            duration: begun.elapsed(),
        };
        if self.prints {
            println!("{}", entry.line());
        }
        report.entries.push(entry);
        Ok(())
    }

    fn stage(&self) -> Result<Stage<'run>> {
        let mut client = Client::connect(self.server.address())?;
        let root = client.mount("/")?;
        let name = format!("check-{}", self.checks);
        let directory = client.mkdir(&root, &name, 0o777)?;
        Ok(Stage {
            address: self.server.address(),
            root,
            directory,
            name,
            program: self.program,
            folder: self.folder.join(format!("check-{}", self.checks)),
        })
    }

    /// Stops the server gracefully.
    pub(crate) fn stop(self, report: &mut Report) -> Result<()> {
        let begun = Instant::now();
        let error = self.server.stop().err().map(|error| format!("{error:#}"));
        report.entries.push(Entry {
            subject: "server",
            check: "after all checks the server stops with exit code 0",
            error,
            duration: begun.elapsed(),
        });
        ensure!(!report.entries.is_empty(), "nothing was checked");
        Ok(())
    }
}

/// How one check ended.
struct Entry {
    subject: &'static str,
    check: &'static str,
    error: Option<String>,
    duration: Duration,
}

impl Entry {
    fn line(&self) -> String {
        let seconds = self.duration.as_secs_f64();
        let Self { subject, check, .. } = self;
        match &self.error {
            None => format!("ok   {subject}: {check} ({seconds:.2} s)"),
            Some(error) => format!("FAIL {subject}: {check} ({seconds:.2} s)\n     {error}"),
        }
    }
}

/// How all checks ended.
#[derive(Default)]
pub(crate) struct Report {
    entries: Vec<Entry>,
}

impl Report {
    pub(crate) fn is_passed(&self) -> bool {
        self.entries.iter().all(|entry| entry.error.is_none())
    }

    /// A line per subject, then the failures, then the sum.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "\n{:<16}{:>7}{:>8}{:>8}{:>9}\n",
            "subject", "checks", "passed", "failed", "seconds"
        );
        let mut rows: Vec<(&str, Vec<&Entry>)> = Vec::new();
        for entry in &self.entries {
            match rows.last_mut().filter(|(name, _)| *name == entry.subject) {
                Some((_, entries)) => entries.push(entry),
                None => rows.push((entry.subject, vec![entry])),
            }
        }
        rows.push(("all", self.entries.iter().collect()));
        for (name, entries) in &rows {
            let failed = entries.iter().filter(|e| e.error.is_some()).count();
            let seconds: f64 = entries.iter().map(|e| e.duration.as_secs_f64()).sum();
            let (count, passed) = (entries.len(), entries.len() - failed);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{name:<16}{count:>7}{passed:>8}{failed:>8}{seconds:>9.1}"
            );
        }
        for entry in self.entries.iter().filter(|entry| entry.error.is_some()) {
            text += &entry.line();
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let failed = self.entries.iter().filter(|e| e.error.is_some()).count();
        let checks: Vec<Value> = self
            .entries
            .iter()
            .map(|entry| {
                json!({
                    "subject": entry.subject,
                    "check": entry.check,
                    "passed": entry.error.is_none(),
                    "error": entry.error,
                    "seconds": entry.duration.as_secs_f64(),
                })
            })
            .collect();
        json!({
            "passed": self.entries.len() - failed,
            "failed": failed,
            "checks": checks,
        })
    }
}
