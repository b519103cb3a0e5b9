//! A connection that does not block: requests out, whole replies in.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context, bail};
use bytes::{Buf, Bytes};
use crossdock_rpc::{
    AcceptStatus, AuthSys, CallHeader, Credential, Groups, RecordReader, RecordWriter, ReplyBody,
    ReplyHeader, Verifier,
};
use crossdock_xdr::{Decoder, Encode};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes read at a time: enough for many small replies, few enough to stay in
/// the processor's cache until they are copied.
const CHUNK_BYTES: usize = 256 << 10;
/// Pieces of calls that one system call sends.
const PIECES_SENT_AT_ONCE_MAX: usize = 64;

/// One connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    reader: RecordReader,
    replies: VecDeque<Bytes>,
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
            unsent: VecDeque::new(),
            sent: VecDeque::new(),
            chunk: vec![0; CHUNK_BYTES],
            next_xid: 1,
        })
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
        self.next_xid += 1;
        let mut writer = RecordWriter::stream(512);
        let encoder = writer.encoder();
        encoder.put(&CallHeader {
            xid,
            program,
            version,
            procedure,
            credential: Credential::Sys(AuthSys {
                stamp: 0,
                machine_name: b"load",
                uid: 0,
                gid: 0,
                groups: Groups::default(),
            }),
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
            match self.stream.read(&mut self.chunk) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(count) => {
                    let mut bytes = Bytes::copy_from_slice(&self.chunk[..count]);
                    while let Some(record) = self.reader.next_record(&mut bytes)? {
                        self.replies.push_back(record);
                    }
                    if count < CHUNK_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
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

    /// The next reply: the record, and how many microseconds it took.
    pub(crate) fn next_reply(&mut self) -> anyhow::Result<Option<(Bytes, u64)>> {
        let Some(record) = self.replies.pop_front() else {
            return Ok(None);
        };
        let xid = Decoder::of_record(&record).u32()?;
        let place = self.sent.iter().position(|&(sent, _)| sent == xid);
        let (_, at) = place
            .and_then(|place| self.sent.remove(place))
            .context("a reply to nothing")?;
        let took_us = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(Some((record, took_us)))
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
            if let Some((record, _)) = self.next_reply()? {
                return Ok(record);
            }
            wait_ready([&*self].into_iter())?;
        }
    }
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
/// what is unsent, and says which.
pub(crate) fn wait_ready<'a>(
    connections: impl Iterator<Item = &'a Connection>,
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
    poll(&mut descriptors, None)?;
    let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
    Ok(descriptors.iter().map(is_ready).collect())
}
