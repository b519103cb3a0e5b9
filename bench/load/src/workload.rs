//! What a client does: one kind of request, over and over.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use crossdock_nfs3::call::{
    Commit, Create, CreateHow, Getattr, Mkdir, Read, Readdirplus, Rename, Setattr, StableHow, Write,
};
use crossdock_nfs3::{
    Attributes, Call, CookieVerifier, Handle, HandleBuffer, Location, Name, Procedure, Reply,
    SetAttributes, Status,
};
use crossdock_types::Payload;

use crate::client::{Connection, Received, results};
use crate::pace::Pace;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// NULL: the floor.
    Null,
    /// Attributes of one file.
    Getattr,
    /// One name.
    Lookup,
    /// Any of the names that `create` made.
    RandomLookup,
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
    /// READs of `size` bytes here and there in the file that `write` made.
    RandomRead,
    /// UNSTABLE writes of `size` bytes here and there, then COMMIT.
    RandomWrite,
    /// FILE_SYNC writes of `size` bytes here and there.
    RandomSync,
    /// Another mode of one file.
    Setattr,
    /// The files that `create` made get other names.
    Rename,
    /// A directory of 100 files, whole.
    Readdirplus,
    /// What unpacking an archive asks for: see untar.rs.
    Untar,
    /// What its names alone ask for.
    Names,
    /// Its directories alone.
    Tree,
    /// Many kinds at a given rate: see sfs.rs.
    Sfs,
    /// One READ as `random-read` has them, then four LOOKUPs, and so on.
    Generic,
    /// One new file after the other, each from its beginning, with a COMMIT at its end.
    WriteFiles,
    /// The files that `write-files` made, one after the other.
    ReadFiles,
}

/// What has to be there before requests of a kind make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// The whole file, written.
    Content,
    /// As many files as there will be requests.
    Files,
    /// A directory's worth of files.
    Entries,
}

impl Kind {
    /// Whether requests carry `size` bytes.
    pub(crate) const fn is_bulk(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Read
                | Self::Scatter
                | Self::Sync
                | Self::RandomRead
                | Self::RandomWrite
                | Self::RandomSync
                | Self::WriteFiles
                | Self::ReadFiles
        )
    }

    /// What each of many files is asked for, one after the other.
    pub(crate) const fn of_each_file(self) -> Option<Self> {
        match self {
            Self::WriteFiles => Some(Self::Write),
            Self::ReadFiles => Some(Self::Read),
            _ => None,
        }
    }

    /// Whether a COMMIT belongs to it.
    const fn ends_with_commit(self) -> bool {
        matches!(self, Self::Write | Self::Scatter | Self::RandomWrite)
    }

    pub(crate) const fn needs(self) -> Needs {
        match self {
            Self::Read
            | Self::RandomRead
            | Self::RandomWrite
            | Self::RandomSync
            | Self::Generic => Needs::Content,
            Self::Remove | Self::Rename => Needs::Files,
            Self::Readdirplus => Needs::Entries,
            _ => Needs::Nothing,
        }
    }

    const fn procedure(self) -> Procedure {
        match self {
            Self::Null | Self::Untar | Self::Names | Self::Tree | Self::Sfs => Procedure::Null,
            Self::Getattr => Procedure::Getattr,
            Self::Lookup | Self::RandomLookup | Self::Generic => Procedure::Lookup,
            Self::Create => Procedure::Create,
            Self::Remove => Procedure::Remove,
            Self::Read | Self::RandomRead | Self::ReadFiles => Procedure::Read,
            Self::Write
            | Self::Scatter
            | Self::Sync
            | Self::RandomWrite
            | Self::RandomSync
            | Self::WriteFiles => Procedure::Write,
            Self::Setattr => Procedure::Setattr,
            Self::Rename => Procedure::Rename,
            Self::Readdirplus => Procedure::Readdirplus,
        }
    }
}

/// Name of the one file that most kinds are about.
const FILE: &str = "file";
/// The first bytes of a file, where small synchronous writes go: those that a
/// server may keep apart from big files.
const SMALL_BYTES: usize = 64 << 10;
/// Files of the directory that is listed.
pub(crate) const ENTRIES: usize = 100;
/// Room for all of them in one reply.
const LISTING_BYTES: u32 = 64 << 10;
/// Of so many requests of `generic` one is a READ: a fifth of all, as in the trace of SPIRAL 3.2.
const GENERIC_CYCLE: usize = 5;
/// Files are filled in steps of this size.
const FILL_BYTES: usize = 1 << 20;

/// One client at work, in a directory of its own.
pub(crate) struct Workload {
    connection: Connection,
    kind: Kind,
    directory: HandleBuffer,
    file: HandleBuffer,
    count: usize,
    size: usize,
    span: usize,
    /// Made by an earlier run.
    files: usize,
    issued: usize,
    done: usize,
    /// Requests that were to be sent again later (JUKEBOX).
    put_off: usize,
    /// When requests are due, if not as soon as others are answered.
    pace: Option<Pace>,
    /// READs on their way among LOOKUPs.
    reads: BTreeSet<u32>,
    data: Bytes,
}

impl Workload {
    /// A client that does nothing yet, with requests of `size` bytes in a file
    /// of `span`.
    pub(crate) fn new(connection: Connection, size: usize, span: usize) -> anyhow::Result<Self> {
        let nowhere = HandleBuffer::new(&[]).context("no room for no handle")?;
        Ok(Self {
            connection,
            kind: Kind::Null,
            directory: nowhere,
            file: nowhere,
            count: 0,
            size,
            span,
            files: 1,
            issued: 0,
            done: 0,
            put_off: 0,
            pace: None,
            reads: BTreeSet::new(),
            data: content(size),
        })
    }

    /// Writes the whole file, in large steps; the requests that follow have their
    /// own size again.
    pub(crate) fn begin_content(&mut self) {
        self.size = FILL_BYTES.min(self.span);
        self.data = content(self.size);
        self.begin(Kind::Write, self.span / self.size);
    }

    /// How many files `create` has made.
    pub(crate) const fn set_files(&mut self, files: usize) {
        self.files = files;
    }

    pub(crate) fn set_size(&mut self, size: usize) {
        self.size = size;
        self.data = content(size);
    }

    /// The connection and the directory, for work of another shape.
    pub(crate) const fn parts(&mut self) -> (&mut Connection, HandleBuffer) {
        (&mut self.connection, self.directory)
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
        self.create(FILE)
    }

    /// Makes a file, which requests are about from now on.
    fn create(&mut self, name: &str) -> anyhow::Result<()> {
        let directory = self.directory;
        let created = self.connection.nfs(&Call::Create(Create {
            location: location(&directory, name),
            how: CreateHow::Guarded(mode(0o644)),
        }))?;
        let Reply::Create(Ok(created)) = created else {
            bail!("CREATE {name}: {created:?}")
        };
        self.file = created.object.context("CREATE: no handle")?;
        Ok(())
    }

    /// Begins to write or read one of many files, all of it.
    pub(crate) fn begin_file(&mut self, kind: Kind, number: usize) -> anyhow::Result<()> {
        let name = number.to_string();
        if kind == Kind::Write {
            self.create(&name)?;
        } else {
            let directory = self.directory;
            self.file = self.look_up(&directory, &name)?;
        }
        self.begin(kind, self.span / self.size);
        Ok(())
    }

    /// Starts `count` requests of a kind.
    pub(crate) fn begin(&mut self, kind: Kind, count: usize) {
        if kind == Kind::Read {
            self.connection.expect_bulk();
        }
        self.kind = kind;
        self.count = count;
        self.issued = 0;
        self.done = 0;
    }

    /// Requests are due at a rate from now on.
    pub(crate) const fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// When the next one is, if there will be one.
    pub(crate) fn due(&self) -> Option<Instant> {
        let pace = self.pace.filter(|_| self.issued < self.count);
        pace.map(|pace| pace.due())
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

    /// How many requests were answered with "later".
    pub(crate) const fn put_off(&self) -> usize {
        self.put_off
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
        while let Some(reply) = self.connection.next_reply()? {
            let is_done = match reply.length > reply.record.len() {
                true => self.check_large(&reply).map(|()| true)?,
                false => self.check(&reply.record)?,
            };
            match is_done {
                true => latencies_us.push(reply.took_us),
                false => self.put_off += 1,
            }
            self.done += 1;
        }
        self.fill(outstanding)
    }

    /// Keeps `outstanding` requests in flight.
    pub(crate) fn fill(&mut self, outstanding: usize) -> anyhow::Result<()> {
        let now = Instant::now();
        while self.issued < self.count && self.connection.outstanding() < outstanding {
            if self.pace.as_mut().is_some_and(|it| it.take(now).is_none()) {
                break;
            }
            self.issue();
            self.issued += 1;
        }
        self.connection.send()
    }

    /// What belongs to the work but comes once: the COMMIT of a write.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        if self.kind.ends_with_commit() {
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
            self.remove(FILE)?;
        }
        Ok(())
    }

    /// Likewise, of many files.
    pub(crate) fn clean_files(&mut self) -> anyhow::Result<()> {
        (0..self.files).try_for_each(|number| self.remove(&number.to_string()))
    }

    fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        let directory = self.directory;
        let call = Call::Remove(location(&directory, name));
        let reply = self.connection.nfs(&call)?;
        ensure!(
            matches!(reply, Reply::Remove(Ok(_))),
            "REMOVE {name}: {reply:?}"
        );
        Ok(())
    }

    fn issue(&mut self) {
        let (directory, file) = (self.directory, self.file);
        let any_name = jump(self.issued, self.files).to_string();
        let (name, new_name) = (self.issued.to_string(), format!("new-{}", self.issued));
        let call = match self.kind {
            Kind::Null | Kind::Untar | Kind::Names | Kind::Tree | Kind::Sfs => Call::Null,
            Kind::Getattr => Call::Getattr(Getattr {
                object: handle(&file),
            }),
            Kind::Lookup => Call::Lookup(location(&directory, FILE)),
            Kind::Generic if self.issued.is_multiple_of(GENERIC_CYCLE) => {
                self.read(&file, self.random_offset())
            }
            Kind::Generic => Call::Lookup(location(&directory, FILE)),
            Kind::RandomLookup => Call::Lookup(location(&directory, &any_name)),
            Kind::Create => Call::Create(Create {
                location: location(&directory, &name),
                how: CreateHow::Guarded(mode(0o644)),
            }),
            Kind::Remove => Call::Remove(location(&directory, &name)),
            Kind::Rename => Call::Rename(Rename {
                source: location(&directory, &name),
                target: location(&directory, &new_name),
            }),
            Kind::Setattr => Call::Setattr(Setattr {
                object: handle(&file),
                attributes: mode(0o600 + u32::from(self.issued.is_multiple_of(2))),
                guard: None,
            }),
            Kind::Readdirplus => Call::Readdirplus(Readdirplus {
                directory: handle(&directory),
                cookie: 0,
                verifier: CookieVerifier::default(),
                directory_count_bytes: LISTING_BYTES,
                count_bytes: LISTING_BYTES,
            }),
            Kind::Read | Kind::ReadFiles => self.read(&file, self.offset(self.span)),
            Kind::RandomRead => self.read(&file, self.random_offset()),
            Kind::RandomWrite => self.write(&file, self.random_offset(), StableHow::Unstable),
            Kind::RandomSync => self.write(&file, self.random_offset(), StableHow::FileSync),
            Kind::Write | Kind::WriteFiles => {
                self.write(&file, self.offset(self.span), StableHow::Unstable)
            }
            Kind::Scatter => {
                let offset = SMALL_BYTES as u64 + 2 * self.offset(self.span / 2);
                self.write(&file, offset, StableHow::Unstable)
            }
            Kind::Sync => {
                let offset = self.offset(SMALL_BYTES.max(self.size));
                self.write(&file, offset, StableHow::FileSync)
            }
        };
        let procedure = call.procedure();
        let xid = self.connection.queue(
            crossdock_nfs3::PROGRAM,
            crossdock_nfs3::VERSION,
            procedure as u32,
            &call,
        );
        if self.kind == Kind::Generic && procedure == Procedure::Read {
            self.reads.insert(xid);
        }
    }

    /// The file and where in it the next READ of `random-read` goes.
    pub(crate) fn next_random_read(&mut self) -> (HandleBuffer, u64) {
        let offset = self.random_offset();
        self.issued += 1;
        (self.file, offset)
    }

    fn read<'a>(&self, file: &'a HandleBuffer, offset: u64) -> Call<'a> {
        Call::Read(Read {
            file: handle(file),
            offset,
            count_bytes: u32::try_from(self.size).unwrap_or(u32::MAX),
        })
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

    /// The same anywhere in the file: a fixed order that jumps.
    const fn random_offset(&self) -> u64 {
        (jump(self.issued, self.span / self.size) * self.size) as u64
    }

    /// A large READ reply of which only the beginning is here (RFC 1813 section 3.3.6).
    fn check_large(&self, reply: &Received) -> anyhow::Result<()> {
        let mut decoder = results(&reply.record)?;
        let status = decoder.u32()?;
        ensure!(status == 0, "READ: status {status}");
        let _attributes: Option<Attributes> = decoder.get()?;
        let (count, _is_end, length) = (decoder.u32()?, decoder.bool()?, decoder.u32()?);
        let here = reply.record.len() - decoder.remaining_bytes();
        ensure!(
            count as usize == self.size
                && length == count
                && reply.length == here + self.size.next_multiple_of(4),
            "READ: {count} bytes in a reply of {}",
            reply.length
        );
        Ok(())
    }

    /// Whether it was carried out, and not put off.
    fn check(&mut self, record: &Bytes) -> anyhow::Result<bool> {
        let xid = u32::from_be_bytes(record[..4].try_into()?);
        let procedure = match self.reads.remove(&xid) {
            true => Procedure::Read,
            false => self.kind.procedure(),
        };
        let mut decoder = results(record)?;
        let reply = Reply::decode(procedure, &mut decoder)?;
        match reply.status() {
            // What is asked next takes its place.
            Some(Status::Jukebox) => return Ok(false),
            Some(status) => bail!("{procedure:?}: {status:?}"),
            None => {}
        }
        match &reply {
            Reply::Read(Ok(read)) => ensure!(read.data.len() == self.size, "short READ"),
            Reply::Readdirplus(Ok(listing)) => {
                let entries = listing.entries.iter().count();
                ensure!(entries >= ENTRIES, "a listing of {entries} entries");
            }
            Reply::Write(Ok(write)) => {
                ensure!(write.count_bytes as usize == self.size, "short WRITE");
            }
            _ => {}
        }
        Ok(true)
    }
}

/// One of so many places, in a fixed order that jumps.
pub(crate) const fn jump(step: usize, places: usize) -> usize {
    const ODD: usize = 0x9e37_79b9_7f4a_7c15;
    (step.wrapping_add(1).wrapping_mul(ODD) >> 20) % places
}

/// Not compressible, and different in every block.
fn content(size: usize) -> Bytes {
    let words = 0..size as u64 / 8 + 1;
    let bytes = words.flat_map(|word| {
        let mixed = (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.to_le_bytes()
    });
    Bytes::from(bytes.take(size).collect::<Vec<u8>>())
}

fn handle(buffer: &HandleBuffer) -> Handle<'_> {
    buffer.as_handle()
}

pub(crate) fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

pub(crate) fn location<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: handle(directory),
        name: Name(name.as_bytes()),
    }
}
