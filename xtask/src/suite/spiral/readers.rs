//! Clients that read ranges of files and look at each byte: over HTTP and over NFS.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{self, Call, StableHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply};
use crossdock_tests_crash::client::{Client, Xid};

/// Who is told nothing for so long is told nothing any more.
const PATIENCE: Duration = Duration::from_secs(90);
/// Read from a socket at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Of one READ, and how many are on their way.
const READ_BYTES: u64 = 1 << 20;
const READS_AHEAD: usize = 8;

/// What looks at bytes: from where in the file they are, and they.
pub(super) trait Judge: FnMut(u64, &[u8]) -> Result<()> {}
impl<J: FnMut(u64, &[u8]) -> Result<()>> Judge for J {}

/// A connection to an HTTP door.
pub(super) struct Http {
    pub(super) socket: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    pub(super) fn connect(door: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(door)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            buffer: Vec::new(),
        })
    }

    /// Asks for a range without waiting for it.
    pub(super) fn ask(&mut self, path: &str, range: &Range<u64>) -> Result<()> {
        let (first, last) = (range.start, range.end - 1);
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={first}-{last}\r\n\r\n");
        Ok(self.socket.write_all(request.as_bytes())?)
    }

    /// Takes the head of the next answer.
    pub(super) fn head(&mut self) -> Result<()> {
        let head = read_head(&mut self.socket)?;
        ensure!(head.starts_with("HTTP/1.1 206 "), "{head}");
        Ok(())
    }

    /// Takes bytes of a body.
    pub(super) fn body(&mut self, range: Range<u64>, mut judge: impl Judge) -> Result<()> {
        self.buffer.resize(CHUNK_BYTES, 0);
        let mut at = range.start;
        while at < range.end {
            let room = usize::try_from(range.end - at)?.min(CHUNK_BYTES);
            let length = self.socket.read(&mut self.buffer[..room])?;
            ensure!(length > 0, "the stream ends at {at}");
            judge(at, &self.buffer[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// Asks for a range and takes it.
    pub(super) fn get(&mut self, path: &str, range: Range<u64>, judge: impl Judge) -> Result<()> {
        self.ask(path, &range)?;
        self.head()?;
        self.body(range, judge)
    }
}

/// The next head, byte by byte: what is behind it stays where it is.
pub(super) fn read_head(socket: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < 4096, "no head");
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head)?)
}

/// A client of an NFS door over TCP, with one file.
pub(super) struct Nfs {
    client: Client,
    file: HandleBuffer,
    asked: BTreeMap<Xid, Range<u64>>,
}

impl Nfs {
    /// Mounts `/` and looks for a file in it.
    pub(super) fn open(door: SocketAddr, name: &str) -> Result<Self> {
        let mut client = Client::connect_within(door, PATIENCE)?;
        let root = client.root();
        let location = Location {
            directory: root.as_handle(),
            name: Name(name.as_bytes()),
        };
        let file = match client.call(&Call::Lookup(location))? {
            Reply::Lookup(Ok(found)) => found.object,
            other => bail!("LOOKUP of {name}: {:?}", other.status()),
        };
        Ok(Self {
            client,
            file,
            asked: BTreeMap::new(),
        })
    }

    /// Asks for a piece without waiting for it.
    pub(super) fn ask(&mut self, piece: Range<u64>) -> Result<()> {
        let read = Call::Read(call::Read {
            file: self.file.as_handle(),
            offset: piece.start,
            count_bytes: u32::try_from(piece.end - piece.start)?,
        });
        let xid = self.client.send(&read)?;
        let xid = xid.context("the connection is gone")?;
        self.asked.insert(xid, piece);
        Ok(())
    }

    /// Writes other bytes, and waits until they are safe.
    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>) -> Result<()> {
        let write = Call::Write(call::Write {
            file: self.file.as_handle(),
            offset,
            count_bytes: u32::try_from(bytes.len())?,
            stable: StableHow::FileSync,
            data: Bytes::from(bytes).into(),
        });
        match self.client.call(&write)? {
            Reply::Write(Ok(_)) => Ok(()),
            other => bail!("WRITE: {:?}", other.status()),
        }
    }

    /// Takes the next answer, whichever it is.
    pub(super) fn take(&mut self, judge: &mut impl Judge) -> Result<()> {
        let received = self.client.receive()?;
        let (xid, reply) = received.context("the connection is gone")?;
        let piece = self.asked.remove(&xid).context("an answer to nothing")?;
        let Reply::Read(Ok(read)) = reply else {
            bail!("READ: {:?}", reply.status());
        };
        let length = read.data.len() as u64;
        ensure!(length == piece.end - piece.start, "{length} of {piece:?}");
        let mut at = piece.start;
        for bytes in read.data.pieces() {
            judge(at, bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Reads a range, several pieces at a time.
    pub(super) fn read(&mut self, range: Range<u64>, mut judge: impl Judge) -> Result<()> {
        let mut next = range.start;
        while next < range.end || !self.asked.is_empty() {
            while next < range.end && self.asked.len() < READS_AHEAD {
                let end = range.end.min(next + READ_BYTES);
                self.ask(next..end)?;
                next = end;
            }
            self.take(&mut judge)?;
        }
        Ok(())
    }
}

/// What has come of a client's thread.
pub(super) fn joined(client: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    client
        .join()
        .map_err(|_| anyhow!("a client has panicked"))?
}
