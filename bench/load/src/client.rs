//! A connection that does not block: requests out, whole replies in.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::{Buf, Bytes};
use crossdock_rpc::{
    AcceptStatus, AuthSys, CallHeader, Credential, Groups, RecordReader, RecordWriter, ReplyBody,
    ReplyHeader, Verifier,
};
use crossdock_xdr::{Decoder, Encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

/// Bytes read at a time: enough for many small replies, few enough to stay in
/// the processor's cache until they are copied.
const CHUNK_BYTES: usize = 256 << 10;
/// Pieces of calls that one system call sends.
const PIECES_SENT_AT_ONCE_MAX: usize = 64;

/// Bytes read at a time where replies are large: little more than their headers.
const HEAD_BYTES: usize = 4 << 10;
/// The rest of a reply, if it is at least so long, is not even copied.
const SKIPPED_BYTES_MIN: usize = 32 << 10;
/// What stands for what was skipped.
static SKIPPED: [u8; crossdock_limits::RPC_RECORD_BYTES_MAX * 2] =
    [0; crossdock_limits::RPC_RECORD_BYTES_MAX * 2];

/// A reply, as far as it was looked at.
pub(crate) struct Received {
    /// All of it, or the beginning of a large one.
    pub(crate) record: Bytes,
    /// Length of the whole.
    pub(crate) length: usize,
    pub(crate) took_us: u64,
}

/// A large reply of which the beginning is here.
struct Large {
    head: Bytes,
    missing: usize,
    length: usize,
}

/// One connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    reader: RecordReader,
    /// Replies and their lengths.
    replies: VecDeque<(Bytes, usize)>,
    large: Option<Large>,
    unsent: VecDeque<Bytes>,
    sent: VecDeque<(u32, Instant)>,
    chunk: Vec<u8>,
    next_xid: u32,
}

impl Connection {
    pub(crate) fn open(server: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            reader: RecordReader::new(crossdock_limits::RPC_RECORD_BYTES_MAX * 2),
            replies: VecDeque::new(),
            large: None,
            unsent: VecDeque::new(),
            sent: VecDeque::new(),
            chunk: vec![0; CHUNK_BYTES],
            next_xid: first_xid(),
        })
    }

    /// From now on replies are large, and nobody looks at their content: it is
    /// thrown away where the kernel has it, so that the server is what is measured.
    pub(crate) fn expect_bulk(&mut self) {
        self.chunk.truncate(HEAD_BYTES);
    }

    /// Queues a call; its xid.
    pub(crate) fn queue(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        call: &impl Encode,
    ) -> u32 {
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1);
        let mut writer = RecordWriter::stream(512);
        let encoder = writer.encoder();
        encoder.put(&CallHeader {
            xid,
            program,
            version,
            procedure,
            credential: Credential::Sys(credential()),
            verifier: Verifier::NONE,
        });
        encoder.put(call);
        self.unsent.extend(writer.finish().into_pieces());
        self.sent.push_back((xid, Instant::now()));
        xid
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.sent.len()
    }

    /// Sends what goes without waiting.
    pub(crate) fn send(&mut self) -> anyhow::Result<()> {
        while !self.unsent.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .unsent
                .iter()
                .take(PIECES_SENT_AT_ONCE_MAX)
                .map(|piece| IoSlice::new(piece))
                .collect();
            match self.stream.write_vectored(&slices) {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives what is there.
    pub(crate) fn receive(&mut self) -> anyhow::Result<()> {
        loop {
            let is_skipping = self.large.is_some();
            let read = match &self.large {
                Some(large) => skip(&self.stream, large.missing),
                None => self.stream.read(&mut self.chunk),
            };
            match read {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(count) if is_skipping => self.skipped(count),
                Ok(count) => {
                    let mut bytes = Bytes::copy_from_slice(&self.chunk[..count]);
                    while let Some(record) = self.reader.next_record(&mut bytes)? {
                        let length = record.len();
                        self.replies.push_back((record, length));
                    }
                    self.begin_skipping();
                    if count < self.chunk.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// If the rest of a large reply is missing, it is skipped.
    fn begin_skipping(&mut self) {
        let missing = self.reader.missing_bytes();
        if self.chunk.len() == HEAD_BYTES
            && missing >= SKIPPED_BYTES_MIN
            && let Some(head) = self.reader.lend()
        {
            let length = head.len() + missing;
            self.large = Some(Large {
                head,
                missing,
                length,
            });
        }
    }

    fn skipped(&mut self, count: usize) {
        let Some(mut large) = self.large.take() else {
            return;
        };
        large.missing -= count;
        if large.missing > 0 {
            self.large = Some(large);
            return;
        }
        let whole = Bytes::from_static(&SKIPPED[..large.length]);
        self.reader.give_back(&whole);
        self.replies.push_back((large.head, large.length));
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.unsent.front_mut() {
            let step = written.min(piece.len());
            piece.advance(step);
            written -= step;
            if !piece.is_empty() {
                break;
            }
            self.unsent.pop_front();
        }
    }

    /// The next reply.
    pub(crate) fn next_reply(&mut self) -> anyhow::Result<Option<Received>> {
        let Some((record, length)) = self.replies.pop_front() else {
            return Ok(None);
        };
        let xid = Decoder::of_record(&record).u32()?;
        let place = self.sent.iter().position(|&(sent, _)| sent == xid);
        let (_, at) = place
            .and_then(|place| self.sent.remove(place))
            .context("a reply to nothing")?;
        let took_us = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(Some(Received {
            record,
            length,
            took_us,
        }))
    }

    /// One call, waiting for its reply.
    pub(crate) fn call_and_wait(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        call: &impl Encode,
    ) -> anyhow::Result<Bytes> {
        self.queue(program, version, procedure, call);
        loop {
            self.send()?;
            self.receive()?;
            if let Some(reply) = self.next_reply()? {
                return Ok(reply.record);
            }
            wait_ready([&*self].into_iter(), None)?;
        }
    }
}

/// Who calls.
pub(crate) fn credential() -> AuthSys<'static> {
    AuthSys {
        stamp: 0,
        machine_name: b"load",
        uid: 0,
        gid: 0,
        groups: Groups::default(),
    }
}

/// Calls of two runs must not be each other's retransmissions.
pub(crate) fn first_xid() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |since| since.subsec_nanos());
    nanoseconds ^ std::process::id().rotate_left(16)
}

/// Throws away up to `bytes` bytes that have arrived.
fn skip(stream: &TcpStream, bytes: usize) -> std::io::Result<usize> {
    let mut nowhere = [MaybeUninit::<u8>::uninit(); CHUNK_BYTES];
    let room = bytes.min(nowhere.len());
    let skipped = recv(stream, &mut nowhere[..room], RecvFlags::TRUNC)?;
    Ok(skipped.1)
}

/// The results of a reply that was accepted.
pub(crate) fn results(record: &Bytes) -> anyhow::Result<Decoder<'_>> {
    let mut decoder = Decoder::of_record(record);
    let header: ReplyHeader<'_> = decoder.get()?;
    match header.body {
        ReplyBody::Accepted {
            status: AcceptStatus::Success,
            ..
        } => Ok(decoder),
        other => bail!("refused: {other:?}"),
    }
}

/// Waits until some of the connections have something to read, or room to write
/// what is unsent, and says which; none do if `patience` ends first.
pub(crate) fn wait_ready<'a>(
    connections: impl Iterator<Item = &'a Connection>,
    patience: Option<Duration>,
) -> anyhow::Result<Vec<bool>> {
    let mut descriptors: Vec<PollFd<'_>> = connections
        .map(|connection| {
            let mut wanted = PollFlags::IN;
            if !connection.unsent.is_empty() {
                wanted |= PollFlags::OUT;
            }
            PollFd::from_borrowed_fd(connection.stream.as_fd(), wanted)
        })
        .collect();
    let patience = patience.map(Timespec::try_from).transpose()?;
    poll(&mut descriptors, patience.as_ref())?;
    let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
    Ok(descriptors.iter().map(is_ready).collect())
}
