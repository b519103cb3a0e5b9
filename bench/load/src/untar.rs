//! Unpacking an archive: for each small file a LOOKUP that finds nothing, CREATE,
//! one or more UNSTABLE WRITEs, COMMIT, and SETATTR of mode and time; every tenth
//! file in a new directory. Each step needs the reply to the one before, so what is
//! outstanding is the number of files that are unpacked side by side.
//!
//! Or its names only, by the seven operations of Slice 5: LOOKUP, ACCESS, CREATE,
//! GETATTR, LOOKUP, SETATTR, SETATTR; or its directories only. Then directories are nested,
//! as in a source tree.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{
    Access, Commit, Create, CreateHow, Getattr, Mkdir, Setattr, StableHow, Write,
};
use crossdock_nfs3::{
    Call, HandleBuffer, PROGRAM, Procedure, Reply, SetTime, Status, Timestamp, VERSION,
};
use crossdock_types::Payload;

use crate::client::{Connection, results};
use crate::workload::{Kind, Workload, location, mode};

/// Files in a directory.
const DIRECTORY_FILES: usize = 10;
/// Directories in a directory, if they are nested.
const BRANCHES: usize = 6;
/// Every right that ACCESS can ask for (RFC 1813 section 3.3.4).
const ACCESS_ALL: u32 = 0x3f;
/// Bytes that one WRITE carries, at most.
const WRITE_BYTES: usize = 8 << 10;
/// Sizes of files in turn: small ones are the most.
const SIZES: [usize; 8] = [700, 2_000, 4_096, 1_200, 9_000, 3_000, 500, 20_000];

/// One client that unpacks.
pub(crate) struct Untar {
    workload: Workload,
    lanes: Vec<Lane>,
    /// The lane of a call that is on its way.
    by_xid: BTreeMap<u32, usize>,
    /// The one that all are in, then those that were made, if they are nested.
    directories: Vec<HandleBuffer>,
    is_nested: bool,
    has_files: bool,
    made: usize,
    files: usize,
    files_max: usize,
    content: Bytes,
    is_over: bool,
}

/// A file that is being unpacked.
struct Lane {
    directory: HandleBuffer,
    directory_files: usize,
    file: HandleBuffer,
    name: String,
    size: usize,
    written: usize,
    has_content: bool,
    step: Step,
}

/// What is asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Directory,
    Lookup,
    Access,
    Create,
    Write,
    Commit,
    Getattr,
    LookupAgain,
    Mode,
    Attributes,
    Idle,
}

impl Untar {
    /// As `kind` says, with so many files at most.
    pub(crate) fn new(mut workload: Workload, lanes: usize, kind: Kind, files_max: usize) -> Self {
        let (_, directory) = workload.parts();
        let lane = |_| Lane {
            directory,
            directory_files: DIRECTORY_FILES,
            file: directory,
            name: String::new(),
            size: 0,
            written: 0,
            has_content: kind == Kind::Untar,
            step: Step::Idle,
        };
        Self {
            workload,
            lanes: (0..lanes).map(lane).collect(),
            by_xid: BTreeMap::new(),
            directories: vec![directory],
            is_nested: kind != Kind::Untar,
            has_files: kind != Kind::Tree,
            made: 0,
            files: 0,
            files_max,
            content: Bytes::from(vec![0x5a; WRITE_BYTES]),
            is_over: false,
        }
    }

    pub(crate) const fn connection(&self) -> &Connection {
        self.workload.connection()
    }

    const fn wire(&mut self) -> &mut Connection {
        self.workload.parts().0
    }

    /// How many directories were made, with the one that all are in.
    pub(crate) const fn directories(&self) -> usize {
        self.made + 1
    }

    pub(crate) fn into_workload(self) -> Workload {
        self.workload
    }

    /// Begins no more files.
    pub(crate) const fn stop(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        (self.is_over || self.files == self.files_max)
            && self.lanes.iter().all(|lane| lane.step == Step::Idle)
    }

    /// Takes the replies that are there and asks on.
    pub(crate) fn turn(&mut self, latencies_us: &mut Vec<u64>) -> anyhow::Result<()> {
        self.wire().receive()?;
        while let Some(reply) = self.wire().next_reply()? {
            let xid = u32::from_be_bytes(reply.record[..4].try_into()?);
            let number = self.by_xid.remove(&xid).context("a reply to nothing")?;
            if let Some(made) = self.lanes[number].take(&reply.record)? {
                self.made += 1;
                self.directories.extend(self.is_nested.then_some(made));
                if !self.has_files {
                    self.lanes[number].end();
                }
            }
            latencies_us.push(reply.took_us);
        }
        self.ask()
    }

    /// Asks what each file needs next.
    pub(crate) fn ask(&mut self) -> anyhow::Result<()> {
        for number in 0..self.lanes.len() {
            let is_asked = self.by_xid.values().any(|lane| *lane == number);
            if is_asked {
                continue;
            }
            let (workload, lane) = (&mut self.workload, &mut self.lanes[number]);
            let (connection, _) = workload.parts();
            if lane.step == Step::Idle {
                if self.is_over || self.files == self.files_max {
                    continue;
                }
                // The oldest that has room for one more.
                let parent = (self.directories.len() - 1) / BRANCHES;
                lane.begin(self.files, self.directories[parent]);
                self.files += 1;
            }
            let xid = lane.ask(connection, &self.content);
            self.by_xid.insert(xid, number);
        }
        self.wire().send()
    }
}

impl Lane {
    /// With no file: the next one is in a new directory.
    const fn end(&mut self) {
        self.directory_files = DIRECTORY_FILES;
        self.step = Step::Idle;
    }

    /// With the next file, where it is or in a new directory in `parent`.
    fn begin(&mut self, number: usize, parent: HandleBuffer) {
        self.name = format!("file-{number}");
        self.size = SIZES[number % SIZES.len()];
        self.written = 0;
        self.step = Step::Lookup;
        if self.directory_files == DIRECTORY_FILES {
            self.directory = parent;
            self.step = Step::Directory;
        }
    }

    fn ask(&self, connection: &mut Connection, content: &Bytes) -> u32 {
        let place = location(&self.directory, &self.name);
        let directory_name = format!("directory-{}", self.name);
        let file = self.file.as_handle();
        let call = match self.step {
            Step::Directory => Call::Mkdir(Mkdir {
                location: location(&self.directory, &directory_name),
                attributes: mode(0o755),
            }),
            Step::Lookup | Step::LookupAgain => Call::Lookup(place),
            Step::Access => Call::Access(Access {
                object: self.directory.as_handle(),
                wanted: ACCESS_ALL,
            }),
            Step::Getattr => Call::Getattr(Getattr { object: file }),
            Step::Mode => Call::Setattr(Setattr {
                object: file,
                attributes: mode(0o644),
                guard: None,
            }),
            Step::Create => Call::Create(Create {
                location: place,
                how: CreateHow::Guarded(mode(0o600)),
            }),
            Step::Write => {
                let data = content.slice(..WRITE_BYTES.min(self.size - self.written));
                Call::Write(Write {
                    file,
                    offset: self.written as u64,
                    count_bytes: u32::try_from(data.len()).unwrap_or(u32::MAX),
                    stable: StableHow::Unstable,
                    data: Payload::from(data),
                })
            }
            Step::Commit => Call::Commit(Commit {
                file,
                offset: 0,
                count_bytes: 0,
            }),
            Step::Attributes | Step::Idle => {
                let mut attributes = mode(0o644);
                attributes.modified = SetTime::ClientTime(Timestamp {
                    seconds: 1_000_000_000,
                    nanoseconds: 0,
                });
                Call::Setattr(Setattr {
                    object: file,
                    attributes,
                    guard: None,
                })
            }
        };
        connection.queue(PROGRAM, VERSION, call.procedure().number(), &call)
    }

    /// Takes a reply; gives the directory that was made.
    fn take(&mut self, record: &Bytes) -> anyhow::Result<Option<HandleBuffer>> {
        let mut decoder = results(record)?;
        let procedure = match self.step {
            Step::Directory => Procedure::Mkdir,
            Step::Lookup | Step::LookupAgain => Procedure::Lookup,
            Step::Access => Procedure::Access,
            Step::Getattr => Procedure::Getattr,
            Step::Create => Procedure::Create,
            Step::Write => Procedure::Write,
            Step::Commit => Procedure::Commit,
            Step::Mode | Step::Attributes | Step::Idle => Procedure::Setattr,
        };
        let reply = Reply::decode(procedure, &mut decoder)?;
        let is_absent = reply.status() == Some(Status::NoEnt);
        if let Some(status) = reply.status().filter(|_| self.step != Step::Lookup) {
            bail!("{procedure:?}: {status:?}");
        }
        let mut new = None;
        self.step = match (self.step, reply) {
            (Step::Directory, Reply::Mkdir(Ok(made))) => {
                self.directory = made.object.context("MKDIR: no handle")?;
                self.directory_files = 0;
                new = Some(self.directory);
                Step::Lookup
            }
            (Step::Lookup, reply) => {
                ensure!(is_absent, "LOOKUP of a new name: {reply:?}");
                match self.has_content {
                    true => Step::Create,
                    false => Step::Access,
                }
            }
            (Step::Access, _) => Step::Create,
            (Step::Create, Reply::Create(Ok(created))) => {
                self.file = created.object.context("CREATE: no handle")?;
                self.directory_files += 1;
                match self.has_content {
                    true => Step::Write,
                    false => Step::Getattr,
                }
            }
            (Step::Getattr, _) => Step::LookupAgain,
            (Step::LookupAgain, Reply::Lookup(Ok(found))) => {
                ensure!(found.object == self.file, "LOOKUP finds another file");
                Step::Mode
            }
            (Step::Mode, _) => Step::Attributes,
            (Step::Write, Reply::Write(Ok(write))) => {
                self.written += write.count_bytes as usize;
                match self.written < self.size {
                    true => Step::Write,
                    false => Step::Commit,
                }
            }
            (Step::Commit, _) => Step::Attributes,
            _ => Step::Idle,
        };
        Ok(new)
    }
}
