//! Clients that go on whatever happens: each call is sent again until it is
//! answered, through whichever gateway there is, and everything that was
//! answered is compared with what is read.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{self, Call, CreateHow, StableHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes, Status, Timestamp};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;

use super::pause::Pause;

/// Clients at a time.
const CLIENTS: u32 = 3;

/// A call that is not answered for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause before a call is sent again that the server could not carry out yet.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Lengths of files: inside a log record, a small file, over the threshold, over
/// several stripes.
const LENGTHS: [usize; 4] = [700, 40 << 10, 200 << 10, 1500 << 10];

/// Bytes of one READ or WRITE.
const PIECE_BYTES: usize = 256 << 10;

/// Where a file's bytes are on nodes.
const FAR_BYTES: u64 = 128 << 10;

/// Every so many files one of the oldest is removed.
const REMOVE_EVERY: u64 = 7;

/// The clients.
pub(in crate::suite) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Files>>>,
}

struct Shared {
    name: &'static str,
    gateways: Vec<SocketAddr>,
    /// Who hears nothing for so long asks another gateway; absent: it is an error.
    silence: Option<Duration>,
    stops: AtomicBool,
    /// Whether NOSPC is asked again, like what cannot be done yet.
    tolerates_full: AtomicBool,
    progress: Mutex<Vec<Progress>>,
}

/// What a client has done since the last mark.
#[derive(Clone, Default)]
struct Progress {
    calls: u64,
    /// Of a call that was under way at the mark, only what came after it.
    longest: Duration,
    /// Answers that say to try again later.
    refused: u64,
    marked_at: Option<Instant>,
    /// How it has ended.
    ended: Option<String>,
}

/// What there is, as a client knows it.
pub(in crate::suite) struct Files {
    client: u32,
    directory: HandleBuffer,
    files: Vec<File>,
    made: u64,
    /// What the client goes on to write to, and how it was seen last.
    journal: Watched,
    /// How the directory was seen last.
    seen: Times,
    /// By how many seconds a time differed from this machine's, at most.
    wrong_seconds: u64,
}

/// A file that is written from the beginning to the end, and when that was.
struct Watched {
    handle: HandleBuffer,
    seen: Times,
}

/// The times of a file or directory that the server gives: of its content, and of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    modified: (u32, u32),
    changed: (u32, u32),
}

#[derive(Clone)]
struct File {
    name: String,
    seed: u64,
    length: usize,
}

impl Load {
    /// Starts the clients, each with a directory that begins with `name`.
    pub(in crate::suite) fn start(name: &'static str, gateways: &[SocketAddr]) -> Self {
        Self::start_shared(Shared::new(name, gateways, None))
    }

    /// The same with clients that ask another gateway when they have heard nothing
    /// for so long.
    pub(in crate::suite) fn start_within(
        name: &'static str,
        gateways: &[SocketAddr],
        silence: Duration,
    ) -> Self {
        Self::start_shared(Shared::new(name, gateways, Some(silence)))
    }

    fn start_shared(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let clients = (0..CLIENTS).map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let worked = Worker::new(number, &shared).work();
                let ended = match &worked {
                    Ok(_) => "told to".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                shared.change(number, |progress| progress.ended = Some(ended));
                worked
            })
        });
        let threads = clients.collect();
        Self { shared, threads }
    }

    /// From here on [`pause`](Self::pause) counts.
    pub(in crate::suite) fn mark(&self) {
        let mut all = self.shared.lock();
        all.iter_mut().for_each(|one| {
            (one.calls, one.longest, one.refused) = (0, Duration::ZERO, 0);
            one.marked_at = Some(Instant::now());
        });
    }

    /// Waits until every client has had so many answers since the mark; how long
    /// the longest of them took, and how often a client was told to try again.
    ///
    /// # Errors
    /// A client has ended, or gets no answers.
    pub(in crate::suite) fn pause(&self, calls: u64) -> Result<Pause> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.shared.expect_all()?;
            let all = self.shared.lock().clone();
            if all.iter().all(|one| one.calls >= calls) {
                let longest = all.iter().map(|one| one.longest).max();
                return Ok(Pause {
                    longest: longest.context("there are no clients")?,
                    refused: all.iter().map(|one| one.refused).sum(),
                });
            }
            ensure!(Instant::now() < deadline, "a client gets no answers");
            thread::park_timeout(AGAIN_AFTER);
        }
    }

    /// Lets the clients work for so long.
    ///
    /// # Errors
    /// A client has ended.
    pub(in crate::suite) fn go_on(&self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            self.shared.expect_all()?;
            thread::park_timeout(AGAIN_AFTER);
        }
        Ok(())
    }

    /// Whether clients that are told that there is no room wait for some.
    pub(in crate::suite) fn tolerate_full(&self, tolerates: bool) {
        let flag = &self.shared.tolerates_full;
        flag.store(tolerates, Ordering::Relaxed);
    }

    /// Ends the clients; what there is now.
    pub(in crate::suite) fn finish(self) -> Result<Vec<Files>> {
        self.shared.stops.store(true, Ordering::Relaxed);
        let files = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(files) => files,
            Err(_) => bail!("a client panicked"),
        });
        files.collect()
    }
}

impl Files {
    /// How many files were made.
    pub(in crate::suite) const fn made(&self) -> u64 {
        self.made
    }

    /// By how many seconds a time that was given to a change differed from this
    /// machine's, at most.
    pub(in crate::suite) const fn wrong_seconds(&self) -> u64 {
        self.wrong_seconds
    }

    /// Reads all of it through that gateway.
    pub(in crate::suite) fn verify(&self, gateway: SocketAddr) -> Result<()> {
        let shared = Shared::new("", &[gateway], None);
        let mut worker = Worker::new(self.client, &shared);
        // Of another client than those that wrote.
        worker.xid += 1 << 27;
        self.files
            .iter()
            .try_for_each(|file| worker.check(&self.directory, file))
    }
}

impl Shared {
    fn new(name: &'static str, gateways: &[SocketAddr], silence: Option<Duration>) -> Self {
        Self {
            name,
            gateways: gateways.to_vec(),
            silence,
            stops: AtomicBool::new(false),
            tolerates_full: AtomicBool::new(false),
            progress: Mutex::new(vec![Progress::default(); CLIENTS as usize]),
        }
    }

    /// Whether that is to be asked again.
    fn is_not_yet(&self, status: Option<Status>) -> bool {
        match status {
            Some(Status::Jukebox) => true,
            Some(Status::NoSpc) => self.tolerates_full.load(Ordering::Relaxed),
            _ => false,
        }
    }

    /// That no client has ended.
    fn expect_all(&self) -> Result<()> {
        let all = self.lock();
        match all.iter().find_map(|one| one.ended.as_ref()) {
            Some(ended) => bail!("a client has ended: {ended}"),
            None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, number: u32, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.lock().get_mut(number as usize) {
            change(progress);
        }
    }
}

/// One client.
struct Worker<'a> {
    number: u32,
    shared: &'a Shared,
    /// Which gateway it uses.
    at: usize,
    client: Option<Client>,
    xid: u32,
}

impl<'a> Worker<'a> {
    fn new(number: u32, shared: &'a Shared) -> Self {
        Self {
            number,
            shared,
            at: number as usize,
            client: None,
            // Far from those of the others.
            xid: (std::process::id() << 12) ^ (number << 24),
        }
    }

    fn work(&mut self) -> Result<Files> {
        let directory = self.make_directory()?;
        let mut files = Files {
            client: self.number,
            journal: Watched {
                handle: self.create(&directory, "journal")?,
                seen: Times::default(),
            },
            directory,
            files: Vec::new(),
            made: 0,
            seen: Times::default(),
            wrong_seconds: 0,
        };
        while !self.shared.stops.load(Ordering::Relaxed) {
            self.one_file(&mut files)
                .with_context(|| format!("client {}, file {}", self.number, files.made))?;
        }
        Ok(files)
    }

    /// A file is made and written through one gateway, and read through the next.
    fn one_file(&mut self, files: &mut Files) -> Result<()> {
        let number = files.made;
        files.made += 1;
        let choice = usize::try_from(number)?;
        let file = File {
            name: format!("file-{number}"),
            seed: u64::from(self.number) << 32 | number,
            length: LENGTHS[choice % LENGTHS.len()],
        };
        let directory = files.directory;
        let handle = self.create(&directory, "new")?;
        self.write(&handle, &file, number.is_multiple_of(2))?;
        self.rename(&directory, "new", &file.name)?;
        self.at += 1;
        self.client = None;
        self.check(&directory, &file)?;
        files.files.push(file);
        if number % REMOVE_EVERY == REMOVE_EVERY - 1 {
            let old = files.files.remove(0);
            self.remove(&directory, &old.name)?;
        }
        self.watch(files)?;
        // One of those that have been there for a while.
        let old = files.files[choice * 7 % files.files.len()].clone();
        self.check(&directory, &old)
    }

    /// No time goes back: through this gateway and the next, whoever serves.
    fn watch(&mut self, files: &mut Files) -> Result<()> {
        let handle = files.journal.handle;
        // At the site, and on nodes.
        for offset in [0, FAR_BYTES] {
            self.write_little(&handle, offset + files.made * 8, files.made)?;
            for _ in 0..2 {
                self.see(&handle, &mut files.journal.seen)
                    .context("its journal")?;
                self.at += 1;
                self.client = None;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let changed = u64::from(files.journal.seen.changed.0);
        files.wrong_seconds = files.wrong_seconds.max(now.abs_diff(changed));
        self.see(&files.directory, &mut files.seen)
            .context("its directory")
    }

    fn see(&mut self, handle: &HandleBuffer, seen: &mut Times) -> Result<()> {
        let object = handle.as_handle();
        let found = match self.call(&Call::Getattr(call::Getattr { object }))? {
            Reply::Getattr(Ok(found)) => found,
            other => bail!("GETATTR: {:?}", other.status()),
        };
        let time = |time: Timestamp| (time.seconds, time.nanoseconds);
        let now = Times {
            modified: time(found.modified),
            changed: time(found.changed),
        };
        ensure!(
            now.modified >= seen.modified && now.changed >= seen.changed,
            "a time goes back: {now:?} after {seen:?}"
        );
        *seen = now;
        Ok(())
    }

    fn write_little(&mut self, handle: &HandleBuffer, offset: u64, value: u64) -> Result<()> {
        let mut data = Payload::new();
        data.push(Bytes::copy_from_slice(&value.to_be_bytes()));
        let call = Call::Write(call::Write {
            file: handle.as_handle(),
            offset,
            count_bytes: 8,
            stable: StableHow::FileSync,
            data,
        });
        let status = self.call(&call)?.status();
        ensure!(status.is_none(), "WRITE of its journal: {status:?}");
        Ok(())
    }

    fn make_directory(&mut self) -> Result<HandleBuffer> {
        let root = self.root()?;
        let name = format!("{}-{}", self.shared.name, self.number);
        let call = Call::Mkdir(call::Mkdir {
            location: place(&root, &name),
            attributes: SetAttributes::default(),
        });
        match self.call(&call)? {
            Reply::Mkdir(Ok(made)) => made.object.context("MKDIR without a handle"),
            other => bail!("MKDIR: {:?}", other.status()),
        }
    }

    fn create(&mut self, directory: &HandleBuffer, name: &str) -> Result<HandleBuffer> {
        let call = Call::Create(call::Create {
            location: place(directory, name),
            how: CreateHow::Guarded(SetAttributes::default()),
        });
        match self.call(&call)? {
            Reply::Create(Ok(made)) => made.object.context("CREATE without a handle"),
            other => bail!("CREATE: {:?}", other.status()),
        }
    }

    /// Stable, or unstable with a COMMIT behind it and all again if that says
    /// that a server has lost it.
    fn write(&mut self, handle: &HandleBuffer, file: &File, is_stable: bool) -> Result<()> {
        let stable = if is_stable {
            StableHow::FileSync
        } else {
            StableHow::Unstable
        };
        loop {
            let mut verifiers = Vec::new();
            let content = file.content();
            for offset in (0..file.length).step_by(PIECE_BYTES) {
                let end = file.length.min(offset + PIECE_BYTES);
                let mut data = Payload::new();
                data.push(content.slice(offset..end));
                let call = Call::Write(call::Write {
                    file: handle.as_handle(),
                    offset: u64::try_from(offset)?,
                    count_bytes: u32::try_from(end - offset)?,
                    stable,
                    data,
                });
                match self.call(&call)? {
                    Reply::Write(Ok(done)) => {
                        let count = usize::try_from(done.count_bytes)?;
                        ensure!(count == end - offset, "a short WRITE: {count}");
                        verifiers.push(done.verifier);
                    }
                    other => bail!("WRITE at {offset}: {:?}", other.status()),
                }
            }
            if is_stable {
                return Ok(());
            }
            let call = Call::Commit(call::Commit {
                file: handle.as_handle(),
                offset: 0,
                count_bytes: 0,
            });
            match self.call(&call)? {
                Reply::Commit(Ok(done)) => {
                    if verifiers.iter().all(|verifier| *verifier == done.verifier) {
                        return Ok(());
                    }
                }
                other => bail!("COMMIT: {:?}", other.status()),
            }
        }
    }

    fn rename(&mut self, directory: &HandleBuffer, from: &str, to: &str) -> Result<()> {
        let call = Call::Rename(call::Rename {
            source: place(directory, from),
            target: place(directory, to),
        });
        match self.call(&call)? {
            Reply::Rename(Ok(_)) => Ok(()),
            other => bail!("RENAME: {:?}", other.status()),
        }
    }

    fn remove(&mut self, directory: &HandleBuffer, name: &str) -> Result<()> {
        match self.call(&Call::Remove(place(directory, name)))? {
            Reply::Remove(Ok(_)) => {}
            other => bail!("REMOVE: {:?}", other.status()),
        }
        match self.call(&Call::Lookup(place(directory, name)))? {
            Reply::Lookup(Err(failure)) if failure.status == Status::NoEnt => Ok(()),
            other => bail!("{name} was removed, and LOOKUP says {:?}", other.status()),
        }
    }

    /// The file is there, with its content.
    fn check(&mut self, directory: &HandleBuffer, file: &File) -> Result<()> {
        let name = &file.name;
        let handle = match self.call(&Call::Lookup(place(directory, name)))? {
            Reply::Lookup(Ok(found)) => found.object,
            other => bail!("LOOKUP of {name}: {:?}", other.status()),
        };
        let mut read = Vec::new();
        loop {
            let call = Call::Read(call::Read {
                file: handle.as_handle(),
                offset: u64::try_from(read.len())?,
                count_bytes: u32::try_from(PIECE_BYTES)?,
            });
            let part = match self.call(&call)? {
                Reply::Read(Ok(part)) => part,
                other => bail!("READ of {name} at {}: {:?}", read.len(), other.status()),
            };
            part.data
                .pieces()
                .iter()
                .for_each(|piece| read.extend_from_slice(piece));
            if part.is_end {
                break;
            }
            ensure!(!part.data.is_empty(), "READ of {name} gets no further");
        }
        let expected = file.content();
        ensure!(
            read.len() == expected.len(),
            "{name} has {} bytes, not {}",
            read.len(),
            expected.len()
        );
        let wrong = read.iter().zip(&expected).position(|(is, was)| is != was);
        ensure!(wrong.is_none(), "{name} differs at {wrong:?}");
        Ok(())
    }

    fn root(&mut self) -> Result<HandleBuffer> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(client) = self.connected() {
                return Ok(client.root());
            }
            ensure!(Instant::now() < deadline, "no gateway can be mounted");
            thread::park_timeout(AGAIN_AFTER);
        }
    }

    /// Sends `call` until it is answered: under the same number if the
    /// connection ends, under a new one if it was not carried out.
    fn call(&mut self, call: &Call<'_>) -> Result<Reply> {
        let began = Instant::now();
        self.xid = self.xid.wrapping_add(1);
        loop {
            ensure!(
                began.elapsed() < PATIENCE,
                "{:?}: no answer",
                call.procedure()
            );
            let xid = self.xid;
            let Some(client) = self.connected() else {
                thread::park_timeout(AGAIN_AFTER);
                continue;
            };
            let reply = client
                .send_again(xid, call)
                .and_then(|is_sent| match is_sent {
                    true => client.receive(),
                    false => Ok(None),
                });
            let reply = match reply {
                Err(error) if self.shared.silence.is_some() && is_silence(&error) => None,
                reply => reply?,
            };
            match reply {
                None => {
                    self.client = None;
                    self.at += 1;
                }
                Some((answered, _)) if answered != xid => bail!("a reply to another call"),
                Some((_, reply)) if self.shared.is_not_yet(reply.status()) => {
                    if reply.status() == Some(Status::Jukebox) {
                        self.shared
                            .change(self.number, |progress| progress.refused += 1);
                    }
                    thread::park_timeout(AGAIN_AFTER);
                    self.xid = self.xid.wrapping_add(1);
                }
                Some((_, reply)) => {
                    self.shared.change(self.number, |progress| {
                        progress.calls += 1;
                        let since = progress.marked_at.map_or(began, |at| at.max(began));
                        progress.longest = progress.longest.max(since.elapsed());
                    });
                    return Ok(reply);
                }
            }
        }
    }

    /// The connection, to the next gateway if this one is not there.
    fn connected(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            let gateways = &self.shared.gateways;
            let patience = self.shared.silence.unwrap_or(PATIENCE);
            match Client::connect_within(gateways[self.at % gateways.len()], patience) {
                Ok(client) => self.client = Some(client),
                Err(_) => self.at += 1,
            }
        }
        self.client.as_mut()
    }
}

impl File {
    /// Different for each file, and at each place.
    fn content(&self) -> Bytes {
        let words = (0..self.length.div_ceil(8) as u64).flat_map(|word| {
            let mixed = (self.seed << 20 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).to_le_bytes()
        });
        words.take(self.length).collect::<Vec<u8>>().into()
    }
}

/// Whether a time limit of the socket has passed, or its network is gone.
fn is_silence(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::WouldBlock
                | ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
        )
    })
}

fn place<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}
