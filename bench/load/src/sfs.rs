//! A file server's day: many kinds of requests in the shares of SPECsfs97 (NFSv3), at a
//! given rate, on files of which 94 % have 64 KiB at most. Every reply is checked: data
//! and texts against what was written, attributes against what the file is.
//!
//! A client that is not answered in time sends less than it should, as there is a bound
//! to what it has outstanding.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{
    Access, Commit, Create, CreateHow, Fsinfo, Fsstat, Getattr, Read, Readdir, Readdirplus,
    Readlink, Setattr, StableHow, Symlink, Write,
};
use crossdock_nfs3::{
    Attributes, Call, CookieVerifier, HandleBuffer, PROGRAM, Path, Procedure, Reply, Status,
    VERSION,
};
use crossdock_types::Payload;

use crate::client::{Connection, results, wait_ready};
use crate::workload::{Workload, jump, location, mode};

/// Kinds of requests, and their shares in percent.
const SHARES: [(Procedure, usize); 14] = [
    (Procedure::Lookup, 27),
    (Procedure::Read, 18),
    (Procedure::Getattr, 11),
    (Procedure::Write, 9),
    (Procedure::Readdirplus, 9),
    (Procedure::Readlink, 7),
    (Procedure::Access, 7),
    (Procedure::Commit, 5),
    (Procedure::Readdir, 2),
    (Procedure::Create, 1),
    (Procedure::Remove, 1),
    (Procedure::Setattr, 1),
    (Procedure::Fsstat, 1),
    (Procedure::Fsinfo, 1),
];
/// Sizes of files in KiB, and their shares in percent.
const SIZES: [(usize, usize); 10] = [
    (1, 33),
    (2, 21),
    (4, 13),
    (8, 10),
    (16, 8),
    (32, 5),
    (64, 4),
    (128, 3),
    (256, 2),
    (1024, 1),
];
/// Both add up to it.
const PERCENT: usize = 100;

/// Most of a READ or WRITE.
const PIECE_BYTES: usize = 8 << 10;
/// Steps in which files are filled.
const FILL_BYTES: usize = 64 << 10;
/// Room for a part of a listing.
const LISTING_BYTES: u32 = 8 << 10;
/// Every right that ACCESS can ask for.
const ACCESS_ALL: u32 = 0x3f;
const LINK: &str = "link";
const LINK_TEXT: &[u8] = b"somewhere/else";
/// A rate below it is none.
const RATE_MIN: f64 = 0.01;

/// One client.
pub(crate) struct Mix {
    workload: Workload,
    files: Vec<File>,
    link: HandleBuffer,
    /// What calls on their way must be answered.
    asked: BTreeMap<u32, Asked>,
    issued: usize,
    /// Names that were made and not removed yet: the oldest, and the next.
    oldest: usize,
    newest: usize,
    put_off: usize,
    interval: Duration,
    due: Instant,
}

struct File {
    name: String,
    handle: HandleBuffer,
    bytes: usize,
}

/// A call and what it is about.
struct Asked {
    procedure: Procedure,
    file: usize,
    offset: usize,
    bytes: usize,
}

impl Mix {
    /// Makes the files of a client.
    pub(crate) fn new(
        mut workload: Workload,
        number: usize,
        files: usize,
        rate: f64,
    ) -> anyhow::Result<Self> {
        ensure!(rate >= RATE_MIN, "no rate: {rate}");
        let (connection, directory) = workload.parts();
        let mut made = Vec::new();
        for file in 0..files {
            // Of any number of files, so many have each size.
            let bytes = 1024 * pick(&SIZES, file * PERCENT / files);
            made.push(File::make(connection, &directory, file, bytes)?);
        }
        let linked = connection.nfs(&Call::Symlink(Symlink {
            location: location(&directory, LINK),
            attributes: mode(0o777),
            target: Path(LINK_TEXT),
        }))?;
        let Reply::Symlink(Ok(linked)) = linked else {
            bail!("SYMLINK: {linked:?}")
        };
        Ok(Self {
            workload,
            files: made,
            link: linked.object.context("SYMLINK: no handle")?,
            asked: BTreeMap::new(),
            // Not all clients the same at the same moment.
            issued: number * 37,
            oldest: 0,
            newest: 0,
            put_off: 0,
            interval: Duration::from_secs_f64(1.0 / rate),
            due: Instant::now(),
        })
    }

    const fn connection(&self) -> &Connection {
        self.workload.connection()
    }

    /// Takes what has arrived.
    fn take(&mut self, latencies_us: &mut Vec<u64>) -> anyhow::Result<()> {
        self.workload.parts().0.receive()?;
        while let Some(reply) = self.workload.parts().0.next_reply()? {
            let xid = u32::from_be_bytes(reply.record[..4].try_into()?);
            let asked = self.asked.remove(&xid).context("a reply to nothing")?;
            let is_done = self
                .check(&asked, &reply.record)
                .with_context(|| format!("{:?}", asked.procedure))?;
            match is_done {
                true => latencies_us.push(reply.took_us),
                false => self.put_off += 1,
            }
        }
        Ok(())
    }

    /// Sends what is due, as far as no more than `outstanding` are on their way.
    fn send(&mut self, outstanding: usize, now: Instant) -> anyhow::Result<()> {
        while self.due <= now && self.asked.len() < outstanding {
            self.issue();
            self.due += self.interval;
        }
        // What could not be sent in time is not made up for.
        self.due = self.due.max(now.checked_sub(self.interval).unwrap_or(now));
        self.workload.parts().0.send()
    }

    fn issue(&mut self) {
        let step = self.issued;
        self.issued += 1;
        let mut procedure = pick(&SHARES, jump(step, PERCENT));
        if procedure == Procedure::Remove && self.oldest == self.newest {
            procedure = Procedure::Create;
        }
        let file = jump(step * 7 + 3, self.files.len());
        let (connection, directory) = self.workload.parts();
        let about = &self.files[file];
        let bytes = about.bytes.min(PIECE_BYTES);
        let offset = jump(step * 3 + 1, about.bytes / bytes) * bytes;
        let new_name = format!("new-{}", self.newest);
        let old_name = format!("new-{}", self.oldest);
        let object = about.handle.as_handle();
        let call = match procedure {
            Procedure::Lookup => Call::Lookup(location(&directory, &about.name)),
            Procedure::Read => Call::Read(Read {
                file: object,
                offset: offset as u64,
                count_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            }),
            Procedure::Write => Call::Write(Write {
                file: object,
                offset: offset as u64,
                count_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                stable: StableHow::Unstable,
                data: Payload::from(content(file, offset, bytes)),
            }),
            Procedure::Commit => Call::Commit(Commit {
                file: object,
                offset: 0,
                count_bytes: 0,
            }),
            Procedure::Readlink => Call::Readlink(Readlink {
                symlink: self.link.as_handle(),
            }),
            Procedure::Readdir => Call::Readdir(Readdir {
                directory: directory.as_handle(),
                cookie: 0,
                verifier: CookieVerifier::default(),
                count_bytes: LISTING_BYTES,
            }),
            Procedure::Readdirplus => Call::Readdirplus(Readdirplus {
                directory: directory.as_handle(),
                cookie: 0,
                verifier: CookieVerifier::default(),
                directory_count_bytes: LISTING_BYTES,
                count_bytes: LISTING_BYTES,
            }),
            Procedure::Create => {
                self.newest += 1;
                Call::Create(Create {
                    location: location(&directory, &new_name),
                    how: CreateHow::Guarded(mode(0o644)),
                })
            }
            Procedure::Remove => {
                self.oldest += 1;
                Call::Remove(location(&directory, &old_name))
            }
            Procedure::Setattr => Call::Setattr(Setattr {
                object,
                attributes: mode(0o644),
                guard: None,
            }),
            Procedure::Fsstat => Call::Fsstat(Fsstat { root: object }),
            Procedure::Fsinfo => Call::Fsinfo(Fsinfo { root: object }),
            Procedure::Access => Call::Access(Access {
                object,
                wanted: ACCESS_ALL,
            }),
            _ => Call::Getattr(Getattr { object }),
        };
        let xid = connection.queue(PROGRAM, VERSION, procedure.number(), &call);
        let asked = Asked {
            procedure,
            file,
            offset,
            bytes,
        };
        self.asked.insert(xid, asked);
    }

    /// Whether it was carried out, and not put off.
    fn check(&self, asked: &Asked, record: &Bytes) -> anyhow::Result<bool> {
        let mut decoder = results(record)?;
        let reply = Reply::decode(asked.procedure, &mut decoder)?;
        match reply.status() {
            Some(Status::Jukebox) => return Ok(false),
            // What was to be made, and was put off, is not there.
            Some(Status::NoEnt) if asked.procedure == Procedure::Remove => return Ok(false),
            Some(status) => bail!("{status:?}"),
            None => {}
        }
        let file = &self.files[asked.file];
        match &reply {
            Reply::Lookup(Ok(found)) => {
                ensure!(found.object == file.handle, "{} is another file", file.name);
            }
            Reply::Getattr(Ok(found)) => file.check(found)?,
            Reply::Read(Ok(read)) => {
                let expected = content(asked.file, asked.offset, asked.bytes);
                ensure!(read.data.to_bytes() == expected, "other bytes");
            }
            Reply::Write(Ok(done)) => {
                ensure!(done.count_bytes as usize == asked.bytes, "a short WRITE");
            }
            Reply::Readlink(Ok(found)) => ensure!(found.target == LINK_TEXT, "another text"),
            Reply::Readdir(Ok(found)) => ensure!(found.entries.iter().count() > 0, "no entries"),
            Reply::Readdirplus(Ok(found)) => {
                ensure!(found.entries.iter().count() > 0, "no entries");
            }
            _ => {}
        }
        Ok(true)
    }

    /// How many requests were answered with "later".
    pub(crate) const fn put_off(&self) -> usize {
        self.put_off
    }
}

impl File {
    fn make(
        connection: &mut Connection,
        directory: &HandleBuffer,
        number: usize,
        bytes: usize,
    ) -> anyhow::Result<Self> {
        let name = format!("sfs-{number}");
        let created = connection.nfs(&Call::Create(Create {
            location: location(directory, &name),
            how: CreateHow::Guarded(mode(0o644)),
        }))?;
        let Reply::Create(Ok(created)) = created else {
            bail!("CREATE: {created:?}")
        };
        let handle = created.object.context("CREATE: no handle")?;
        for offset in (0..bytes).step_by(FILL_BYTES) {
            let count = FILL_BYTES.min(bytes - offset);
            let written = connection.nfs(&Call::Write(Write {
                file: handle.as_handle(),
                offset: offset as u64,
                count_bytes: u32::try_from(count)?,
                stable: StableHow::FileSync,
                data: Payload::from(content(number, offset, count)),
            }))?;
            ensure!(written.status().is_none(), "WRITE: {written:?}");
        }
        Ok(Self {
            name,
            handle,
            bytes,
        })
    }

    fn check(&self, attributes: &Attributes) -> anyhow::Result<()> {
        ensure!(
            attributes.size_bytes == self.bytes as u64 && attributes.links == 1,
            "{} is otherwise: {attributes:?}",
            self.name
        );
        Ok(())
    }
}

/// Sends at the clients' rates until `limit`, and takes all replies.
pub(crate) fn drive(
    clients: &mut [Mix],
    outstanding: usize,
    limit: Duration,
    latencies_us: &mut Vec<u64>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let count = u32::try_from(clients.len())?;
    for (number, client) in (0_u32..).zip(clients.iter_mut()) {
        client.due = started + client.interval * number / count;
    }
    loop {
        let now = Instant::now();
        let is_over = now.duration_since(started) >= limit;
        if !is_over {
            for client in clients.iter_mut() {
                client.send(outstanding, now)?;
            }
        } else if clients.iter().all(|client| client.asked.is_empty()) {
            return Ok(());
        }
        let next = clients.iter().filter(|it| it.asked.len() < outstanding);
        let next = next.map(|client| client.due).min().filter(|_| !is_over);
        let patience = next.map(|due| due.saturating_duration_since(now));
        let ready = wait_ready(clients.iter().map(Mix::connection), patience)?;
        for (client, is_ready) in clients.iter_mut().zip(ready) {
            if is_ready {
                client.take(latencies_us)?;
            }
        }
    }
}

/// What stands at that percent of the shares.
fn pick<T: Copy>(shares: &[(T, usize)], percent: usize) -> T {
    let mut end = 0;
    let found = shares.iter().find(|(_, share)| {
        end += share;
        percent < end
    });
    found.unwrap_or(&shares[0]).0
}

/// What a file holds there: different in each file and at each place.
fn content(file: usize, offset: usize, bytes: usize) -> Bytes {
    let words = (offset / 8..(offset + bytes).div_ceil(8)).flat_map(|word| {
        let mixed = ((file as u64) << 32 | word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).to_le_bytes()
    });
    words.take(bytes).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the shares are whole, and 94 % of files have 64 KiB at most.
    #[test]
    fn shares_are_those_of_the_benchmark() {
        assert_eq!(
            SHARES.iter().map(|(_, share)| share).sum::<usize>(),
            PERCENT
        );
        assert_eq!(SIZES.iter().map(|(_, share)| share).sum::<usize>(), PERCENT);
        let small = SIZES.iter().filter(|(kib, _)| *kib <= 64);
        assert_eq!(small.map(|(_, share)| share).sum::<usize>(), 94);
        assert_eq!(pick(&SHARES, 0), Procedure::Lookup);
        assert_eq!(pick(&SHARES, 27), Procedure::Read);
        assert_eq!(pick(&SHARES, 99), Procedure::Fsinfo);
    }

    /// Goal: what is written at a place is what is expected there, however it is cut.
    #[test]
    fn content_depends_on_the_place_alone() {
        let whole = content(3, 0, 32 << 10);
        assert_eq!(whole.slice(8192..16_384), content(3, 8192, 8192));
        assert_ne!(content(3, 0, 64), content(4, 0, 64));
        assert_ne!(content(3, 0, 64), content(3, 64, 64));
    }
}
