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
    /// Whether it starts servers of its own: it says nothing about one that
    /// stands already, and is left out there.
    pub(crate) has_servers: bool,
}

/// An entry of a table of checks.
pub(crate) const fn check(name: &'static str, run: fn(&Stage<'_>) -> Result<()>) -> Check {
    Check {
        name,
        run,
        has_servers: false,
    }
}

/// The same, of a check that starts servers of its own.
pub(crate) const fn with_servers(name: &'static str, run: fn(&Stage<'_>) -> Result<()>) -> Check {
    Check {
        name,
        run,
        has_servers: true,
    }
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
    /// Whether the volume's names are hashed: see [`Stage::shown`].
    pub(crate) is_hashed: bool,
    /// Absent: the server stands already, and no other can be started.
    own: Option<(&'run Path, PathBuf)>,
}

impl Stage<'_> {
    /// A connection of root's.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(self.address)
    }

    /// What a reply shows of a directory beside what it was asked for: with hashed
    /// names all sites would have to be asked for it, and nothing is shown.
    pub(crate) fn shown<T>(&self, of_directory: T) -> Option<T> {
        (!self.is_hashed).then_some(of_directory)
    }

    /// A connection of a user's.
    pub(crate) fn user(&self, uid: u32, gid: u32, groups: &[u32]) -> Result<Client> {
        Ok(Client::connect(self.address)?.of(uid, gid, groups))
    }

    /// A server that this check alone has, on data of its own; it may be killed
    /// and started again under the same `label`.
    pub(crate) fn own_server(&self, label: &str, arguments: &[&str]) -> Result<Server> {
        let (program, folder) = self.own()?;
        start(program, &folder.join(label), self.is_hashed, arguments)
    }

    /// Removes the data of a server that is not needed any more.
    pub(crate) fn clear(&self, label: &str) -> Result<()> {
        let (_, folder) = self.own()?;
        Ok(std::fs::remove_dir_all(folder.join(label))?)
    }

    fn own(&self) -> Result<(&Path, &Path)> {
        let own = self.own.as_ref();
        let own = own.map(|(program, folder)| (*program, folder.as_path()));
        own.context("a check that starts servers is not marked so in its table")
    }
}

fn start(program: &Path, folder: &Path, is_hashed: bool, arguments: &[&str]) -> Result<Server> {
    let mut all = vec!["--admin", "127.0.0.1:0"];
    if is_hashed {
        // The second way of both.
        all.extend(["--names", "hashed", "--placement", "mapped"]);
    }
    all.extend(arguments);
    Server::start_with(program, folder, &all)
}

/// What is checked.
pub(crate) enum Target<'run> {
    /// A server that is started, with its program, and data in a folder.
    Fresh(&'run Path, &'run Path),
    /// A gateway that stands already, with others than these checks behind it.
    Standing(SocketAddr),
}

/// The server that the checks share.
enum Shared<'run> {
    Own(Server, &'run Path, &'run Path),
    Standing(SocketAddr),
}

/// A run of checks.
pub(crate) struct Run<'run> {
    shared: Shared<'run>,
    is_hashed: bool,
    checks: usize,
    left_out: usize,
    prints: bool,
}

impl<'run> Run<'run> {
    /// Starts the server that the checks share, unless it stands already.
    pub(crate) fn start(target: &Target<'run>, is_hashed: bool, prints: bool) -> Result<Self> {
        let shared = match *target {
            Target::Fresh(program, folder) => Shared::Own(
                start(program, &folder.join("shared"), is_hashed, &[])?,
                program,
                folder,
            ),
            Target::Standing(address) => Shared::Standing(address),
        };
        Ok(Self {
            shared,
            is_hashed,
            checks: 0,
            left_out: 0,
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
        if check.has_servers && matches!(self.shared, Shared::Standing(_)) {
            self.left_out += 1;
            return Ok(());
        }
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
        let mut label = format!("check-{}", self.checks);
        let (address, own) = match &self.shared {
            Shared::Own(server, program, folder) => {
                (server.address(), Some((*program, folder.join(&label))))
            }
            Shared::Standing(address) => {
                // Other runs may have left theirs.
                label += &format!("-{}", std::process::id());
                (*address, None)
            }
        };
        let mut client = Client::connect(address)?;
        let root = client.mount("/")?;
        let directory = client.mkdir(&root, &label, 0o777)?;
        Ok(Stage {
            address,
            root,
            directory,
            name: label,
            is_hashed: self.is_hashed,
            own,
        })
    }

    /// Stops the server gracefully, if it was started here.
    pub(crate) fn stop(self, report: &mut Report) -> Result<()> {
        ensure!(!report.entries.is_empty(), "nothing was checked");
        report.left_out = self.left_out;
        let Shared::Own(server, ..) = self.shared else {
            return Ok(());
        };
        let begun = Instant::now();
        let error = server.stop().err().map(|error| format!("{error:#}"));
        report.entries.push(Entry {
            subject: "server",
            check: "after all checks the server stops with exit code 0",
            error,
            duration: begun.elapsed(),
        });
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
    /// Checks that start servers of their own, of a server that stands already.
    left_out: usize,
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
        if self.left_out > 0 {
            let _ = writeln!(
                text,
                "{} checks start servers of their own, and were left out",
                self.left_out
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
            "left_out": self.left_out,
            "checks": checks,
        })
    }
}
