//! What a client does: one kind of request, over and over.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use crossdock_nfs3::call::{Commit, Create, CreateHow, Getattr, Mkdir, Read, StableHow, Write};
use crossdock_nfs3::{Call, Handle, HandleBuffer, Location, Name, Procedure, Reply, SetAttributes};
use crossdock_types::Payload;

use crate::client::{Connection, results};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// NULL: the floor.
    Null,
    /// Attributes of one file.
    Getattr,
    /// One name.
    Lookup,
    /// New files.
    Create,
    /// The files that `create` made.
    Remove,
    /// One file from its beginning, UNSTABLE, then COMMIT.
    Write,
    /// The file that `write` made.
    Read,
    /// Every second stretch of `size` bytes of one file, beyond its first
    /// 64 KiB, UNSTABLE, then COMMIT: each becomes a run of its own.
    Scatter,
    /// Small files: FILE_SYNC writes of `size` bytes over the first 64 KiB.
    Sync,
}

impl Kind {
    pub(crate) const fn is_bulk(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Scatter | Self::Sync)
    }
}

/// Name of the one file that most kinds are about.
const FILE: &str = "file";
/// The first bytes of a file, where small synchronous writes go: those that a
/// server may keep apart from big files.
const SMALL_BYTES: usize = 64 << 10;

/// One client at work, in a directory of its own.
pub(crate) struct Workload {
    connection: Connection,
    kind: Kind,
    directory: HandleBuffer,
    file: HandleBuffer,
    count: usize,
    size: usize,
    span: usize,
    issued: usize,
    done: usize,
    data: Bytes,
}

impl Workload {
    /// A client that does nothing yet, with requests of `size` bytes in a file
    /// of `span`.
    pub(crate) fn new(connection: Connection, size: usize, span: usize) -> anyhow::Result<Self> {
        let nowhere = HandleBuffer::new(&[]).context("no room for no handle")?;
        // Not compressible, and different in every block.
        let data: Vec<u8> = (0..size as u64 / 8 + 1)
            .flat_map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .take(size)
            .collect();
        Ok(Self {
            connection,
            kind: Kind::Null,
            directory: nowhere,
            file: nowhere,
            count: 0,
            size,
            span,
            issued: 0,
            done: 0,
            data: Bytes::from(data),
        })
    }

    /// Finds the directory and the file of an earlier run of that name.
    pub(crate) fn find(&mut self, root: &HandleBuffer, name: &str) -> anyhow::Result<()> {
        self.directory = self.look_up(root, name)?;
        let directory = self.directory;
        self.file = self.look_up(&directory, FILE)?;
        Ok(())
    }

    fn look_up(&mut self, directory: &HandleBuffer, name: &str) -> anyhow::Result<HandleBuffer> {
        let found = self
            .connection
            .nfs(&Call::Lookup(location(directory, name)))?;
        match found {
            Reply::Lookup(Ok(found)) => Ok(found.object),
            other => bail!("LOOKUP {name}: {other:?}"),
        }
    }

    /// Makes the client's directory and the file in it.
    pub(crate) fn settle(&mut self, root: &HandleBuffer, name: &str) -> anyhow::Result<()> {
        let made = self.connection.nfs(&Call::Mkdir(Mkdir {
            location: location(root, name),
            attributes: mode(0o755),
        }))?;
        let Reply::Mkdir(Ok(made)) = made else {
            bail!("MKDIR {name}: {made:?}")
        };
        self.directory = made
            .object
            .with_context(|| format!("MKDIR {name}: no handle"))?;
        let directory = self.directory;
        let created = self.connection.nfs(&Call::Create(Create {
            location: location(&directory, FILE),
            how: CreateHow::Guarded(mode(0o644)),
        }))?;
        let Reply::Create(Ok(created)) = created else {
            bail!("CREATE {FILE}: {created:?}")
        };
        self.file = created.object.context("CREATE: no handle")?;
        Ok(())
    }

    /// Starts `count` requests of a kind.
    pub(crate) const fn begin(&mut self, kind: Kind, count: usize) {
        self.kind = kind;
        self.count = count;
        self.issued = 0;
        self.done = 0;
    }

    /// No more requests than were sent.
    pub(crate) const fn stop(&mut self) {
        self.count = self.issued;
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.done == self.count
    }

    /// How many requests were answered.
    pub(crate) const fn done(&self) -> usize {
        self.done
    }

    /// Takes the replies that are there and sends as many requests more.
    pub(crate) fn turn(
        &mut self,
        outstanding: usize,
        latencies_us: &mut Vec<u64>,
    ) -> anyhow::Result<()> {
        self.connection.receive()?;
        while let Some((record, took_us)) = self.connection.next_reply()? {
            self.check(&record)?;
            latencies_us.push(took_us);
            self.done += 1;
        }
        self.fill(outstanding)
    }

    /// Keeps `outstanding` requests in flight.
    pub(crate) fn fill(&mut self, outstanding: usize) -> anyhow::Result<()> {
        while self.issued < self.count && self.connection.outstanding() < outstanding {
            self.issue();
            self.issued += 1;
        }
        self.connection.send()
    }

    /// What belongs to the work but comes once: the COMMIT of a write.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        if matches!(self.kind, Kind::Write | Kind::Scatter) {
            let file = self.file;
            let reply = self.connection.nfs(&Call::Commit(Commit {
                file: handle(&file),
                offset: 0,
                count_bytes: 0,
            }))?;
            ensure!(matches!(reply, Reply::Commit(Ok(_))), "COMMIT: {reply:?}");
        }
        Ok(())
    }

    /// Removes what holds space.
    pub(crate) fn clean(&mut self) -> anyhow::Result<()> {
        if self.kind.is_bulk() {
            let directory = self.directory;
            let reply = self
                .connection
                .nfs(&Call::Remove(location(&directory, FILE)))?;
            ensure!(matches!(reply, Reply::Remove(Ok(_))), "REMOVE: {reply:?}");
        }
        Ok(())
    }

    fn issue(&mut self) {
        let (directory, file) = (self.directory, self.file);
        let name = self.issued.to_string();
        let call = match self.kind {
            Kind::Null => Call::Null,
            Kind::Getattr => Call::Getattr(Getattr {
                object: handle(&file),
            }),
            Kind::Lookup => Call::Lookup(location(&directory, FILE)),
            Kind::Create => Call::Create(Create {
                location: location(&directory, &name),
                how: CreateHow::Guarded(mode(0o644)),
            }),
            Kind::Remove => Call::Remove(location(&directory, &name)),
            Kind::Read => Call::Read(Read {
                file: handle(&file),
                offset: self.offset(self.span),
                count_bytes: u32::try_from(self.size).unwrap_or(u32::MAX),
            }),
            Kind::Write => self.write(&file, self.offset(self.span), StableHow::Unstable),
            Kind::Scatter => {
                let offset = SMALL_BYTES as u64 + 2 * self.offset(self.span / 2);
                self.write(&file, offset, StableHow::Unstable)
            }
            Kind::Sync => {
                let offset = self.offset(SMALL_BYTES.max(self.size));
                self.write(&file, offset, StableHow::FileSync)
            }
        };
        let procedure = call.procedure() as u32;
        self.connection.queue(
            crossdock_nfs3::PROGRAM,
            crossdock_nfs3::VERSION,
            procedure,
            &call,
        );
    }

    fn write<'a>(&self, file: &'a HandleBuffer, offset: u64, stable: StableHow) -> Call<'a> {
        Call::Write(Write {
            file: handle(file),
            offset,
            count_bytes: u32::try_from(self.size).unwrap_or(u32::MAX),
            stable,
            data: Payload::from(self.data.clone()),
        })
    }

    /// Where the next request of `size` bytes goes in the first `span` bytes.
    const fn offset(&self, span: usize) -> u64 {
        ((self.issued % (span / self.size)) * self.size) as u64
    }

    fn check(&self, record: &Bytes) -> anyhow::Result<()> {
        let procedure = match self.kind {
            Kind::Null => Procedure::Null,
            Kind::Getattr => Procedure::Getattr,
            Kind::Lookup => Procedure::Lookup,
            Kind::Create => Procedure::Create,
            Kind::Remove => Procedure::Remove,
            Kind::Read => Procedure::Read,
            Kind::Write | Kind::Scatter | Kind::Sync => Procedure::Write,
        };
        let mut decoder = results(record)?;
        let reply = Reply::decode(procedure, &mut decoder)?;
        if let Some(status) = reply.status() {
            bail!("{procedure:?}: {status:?}");
        }
        match &reply {
            Reply::Read(Ok(read)) => ensure!(read.data.len() == self.size, "short READ"),
            Reply::Write(Ok(write)) => {
                ensure!(write.count_bytes as usize == self.size, "short WRITE");
            }
            _ => {}
        }
        Ok(())
    }
}

fn handle(buffer: &HandleBuffer) -> Handle<'_> {
    buffer.as_handle()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn location<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: handle(directory),
        name: Name(name.as_bytes()),
    }
}
