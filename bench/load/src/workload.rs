//! What a client does: one kind of request, over and over.

use anyhow::{bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use crossdock_nfs3::call::{Commit, Create, CreateHow, Getattr, Read, StableHow, Write};
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
    /// Small files: FILE_SYNC writes of `size` bytes over the first 64 KiB.
    Sync,
}

impl Kind {
    pub(crate) const fn is_bulk(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Sync)
    }
}

/// One client at work.
pub(crate) struct Workload {
    connection: Connection,
    kind: Kind,
    root: HandleBuffer,
    file: HandleBuffer,
    name: String,
    count: usize,
    size: usize,
    issued: usize,
    done: usize,
    data: Bytes,
}

impl Workload {
    /// Makes the file that the work is about.
    pub(crate) fn prepare(
        mut connection: Connection,
        root: HandleBuffer,
        kind: Kind,
        name: &str,
        count: usize,
        size: usize,
    ) -> anyhow::Result<Self> {
        let created = connection.nfs(&Call::Create(Create {
            location: location(&root, name),
            how: CreateHow::Unchecked(SetAttributes {
                mode: Some(0o644),
                ..SetAttributes::default()
            }),
        }))?;
        let Reply::Create(Ok(created)) = created else {
            bail!("CREATE {name}: {created:?}")
        };
        let Some(file) = created.object else {
            bail!("CREATE {name}: no handle")
        };
        // Not compressible, and different in every block.
        let data: Vec<u8> = (0..size as u64 / 8 + 1)
            .flat_map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .take(size)
            .collect();
        Ok(Self {
            connection,
            kind,
            root,
            file,
            name: name.to_owned(),
            count,
            size,
            issued: 0,
            done: 0,
            data: Bytes::from(data),
        })
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.done == self.count
    }

    /// Keeps `outstanding` requests in flight and takes replies.
    pub(crate) fn turn(
        &mut self,
        outstanding: usize,
        latencies_us: &mut Vec<u64>,
    ) -> anyhow::Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.fill(outstanding);
        self.connection.exchange()?;
        while let Some((_, record, took_us)) = self.connection.next_reply()? {
            self.check(&record)?;
            latencies_us.push(took_us);
            self.done += 1;
            self.fill(outstanding);
        }
        self.connection.exchange()
    }

    /// What belongs to the work but comes once: the COMMIT of a write.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        if self.kind == Kind::Write {
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

    fn fill(&mut self, outstanding: usize) {
        while self.issued < self.count && self.connection.outstanding() < outstanding {
            self.issue();
            self.issued += 1;
        }
    }

    fn issue(&mut self) {
        let (root, file) = (self.root, self.file);
        let name = format!("{}-{}", self.name, self.issued);
        let offset = (self.issued * self.size) as u64;
        let count_bytes = u32::try_from(self.size).unwrap_or(u32::MAX);
        let call = match self.kind {
            Kind::Null => Call::Null,
            Kind::Getattr => Call::Getattr(Getattr {
                object: handle(&file),
            }),
            Kind::Lookup => Call::Lookup(location(&root, &self.name)),
            Kind::Create => Call::Create(Create {
                location: location(&root, &name),
                how: CreateHow::Guarded(SetAttributes {
                    mode: Some(0o644),
                    ..SetAttributes::default()
                }),
            }),
            Kind::Remove => Call::Remove(location(&root, &name)),
            Kind::Read => Call::Read(Read {
                file: handle(&file),
                offset,
                count_bytes,
            }),
            Kind::Write | Kind::Sync => Call::Write(Write {
                file: handle(&file),
                offset: if self.kind == Kind::Sync {
                    offset % (64 << 10)
                } else {
                    offset
                },
                count_bytes,
                stable: if self.kind == Kind::Sync {
                    StableHow::FileSync
                } else {
                    StableHow::Unstable
                },
                data: Payload::from(self.data.clone()),
            }),
        };
        let procedure = call.procedure() as u32;
        self.connection.queue(
            crossdock_nfs3::PROGRAM,
            crossdock_nfs3::VERSION,
            procedure,
            &call,
        );
    }

    fn check(&self, record: &Bytes) -> anyhow::Result<()> {
        let procedure = match self.kind {
            Kind::Null => Procedure::Null,
            Kind::Getattr => Procedure::Getattr,
            Kind::Lookup => Procedure::Lookup,
            Kind::Create => Procedure::Create,
            Kind::Remove => Procedure::Remove,
            Kind::Read => Procedure::Read,
            Kind::Write | Kind::Sync => Procedure::Write,
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

fn location<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: handle(directory),
        name: Name(name.as_bytes()),
    }
}
