//! One connection: requests go out, answers are read as far as the reader wants.

use std::io::Write;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Socket, Type};

/// A head must end within so many bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes asked for at a time where a head is expected: small, because a reader at its
/// own rate wants no more of the body than its share.
const HEAD_READ_BYTES: usize = 1024;
/// The same where answers follow each other.
const PIPELINE_READ_BYTES: usize = 64 << 10;
/// Lines of a head.
const FIELDS_MAX: usize = 64;

/// The beginning of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) length: u64,
}

/// What came next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing yet.
    Blocked,
    /// An answer begins.
    Head(Answer),
    /// So many bytes of its body, in the buffer if that was asked for.
    Body(usize),
    /// The answer is whole.
    End,
    /// The server has closed the connection.
    Closed,
}

/// A connection to the server.
pub(super) struct Connection {
    stream: TcpStream,
    /// Received, not looked at.
    early: Vec<u8>,
    early_from: usize,
    state: State,
    /// Answers that have not begun.
    expected: usize,
    ends: bool,
    /// Whether body bytes are wanted, rather than thrown away by the kernel.
    is_checked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
}

impl Connection {
    /// Connects; `receive_bytes` is for `SO_RCVBUF`, `segment_bytes` for `TCP_MAXSEG`:
    /// loopback's segments of 64 KiB do not fit into a small buffer.
    pub(super) fn open(
        server: SocketAddr,
        receive_bytes: Option<usize>,
        segment_bytes: Option<u32>,
    ) -> anyhow::Result<Self> {
        let socket = socket_for(server, receive_bytes, segment_bytes)?;
        socket.connect(&server.into()).context("cannot connect")?;
        socket.set_nonblocking(true)?;
        Ok(Self::of(socket))
    }

    /// Begins to connect, and waits for nobody: it is connected, or has failed, once it
    /// can be written to, which [`connected`](Self::connected) tells.
    pub(super) fn begin(
        server: SocketAddr,
        receive_bytes: Option<usize>,
        segment_bytes: Option<u32>,
    ) -> anyhow::Result<Self> {
        let socket = socket_for(server, receive_bytes, segment_bytes)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&server.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error).context("cannot connect"),
        }
        Ok(Self::of(socket))
    }

    /// Whether what was begun has worked.
    pub(super) fn connected(&self) -> anyhow::Result<()> {
        match self.stream.take_error()? {
            None => Ok(()),
            Some(error) => Err(error).context("cannot connect"),
        }
    }

    fn of(socket: Socket) -> Self {
        Self {
            stream: socket.into(),
            early: Vec::new(),
            early_from: 0,
            state: State::Head,
            expected: 0,
            ends: false,
            is_checked: false,
        }
    }

    pub(super) fn check(&mut self) {
        self.is_checked = true;
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn set_blocking(&self, is_blocking: bool) -> std::io::Result<()> {
        self.stream.set_nonblocking(!is_blocking)
    }

    /// Whether the server said that it closes the connection behind this answer.
    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Answers that are not whole.
    pub(super) fn outstanding(&self) -> usize {
        self.expected + usize::from(self.state != State::Head)
    }

    /// Whether all of an answer has been read, and its end not told yet.
    pub(super) fn is_whole(&self) -> bool {
        self.state == State::Body(0)
    }

    /// Sends requests, which are short enough for any buffer.
    pub(super) fn ask(&mut self, requests: &[u8], count: usize) -> anyhow::Result<()> {
        let mut stream = &self.stream;
        stream.write_all(requests).context("cannot ask")?;
        self.expected += count;
        Ok(())
    }

    /// A request was sent by other means.
    pub(super) fn expect_answer(&mut self) {
        self.expected += 1;
    }

    /// Ends the connection by RST: what is on its way is of no use any more.
    pub(super) fn reset(self) -> anyhow::Result<()> {
        let socket = Socket::from(self.stream);
        Ok(socket.set_linger(Some(Duration::ZERO))?)
    }

    /// Reads on, at most `allowance` bytes of a body; they are in `buffer` if content
    /// is checked.
    pub(super) fn advance(&mut self, allowance: usize, buffer: &mut [u8]) -> anyhow::Result<Step> {
        match self.state {
            State::Head => self.head(buffer),
            State::Body(0) => {
                self.state = State::Head;
                Ok(Step::End)
            }
            State::Body(left) => self.body(left, allowance, buffer),
        }
    }

    fn head(&mut self, buffer: &mut [u8]) -> anyhow::Result<Step> {
        loop {
            if let Some((answer, bytes)) = self.parse()? {
                ensure!(self.expected > 0, "an answer to no request");
                self.expected -= 1;
                self.early_from += bytes;
                self.state = State::Body(answer.length);
                return Ok(Step::Head(answer));
            }
            self.early.drain(..self.early_from);
            self.early_from = 0;
            ensure!(self.early.len() < HEAD_BYTES_MAX, "a head without an end");
            let room = match self.expected > 1 {
                true => PIPELINE_READ_BYTES,
                false => HEAD_READ_BYTES,
            };
            let room = room.min(buffer.len());
            match recv(&self.stream, &mut buffer[..room], RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Step::Closed),
                Ok((count, _)) => self.early.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(Step::Blocked),
                Err(Errno::CONNRESET) => return Ok(Step::Closed),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The head that is there, and its length.
    fn parse(&mut self) -> anyhow::Result<Option<(Answer, usize)>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        let bytes = match head.parse(&self.early[self.early_from..])? {
            httparse::Status::Complete(bytes) => bytes,
            httparse::Status::Partial => return Ok(None),
        };
        let field = |name: &str| {
            let mut fields = head.headers.iter();
            let field = fields.find(|field| field.name.eq_ignore_ascii_case(name));
            field.and_then(|field| std::str::from_utf8(field.value).ok())
        };
        let status = head.code.context("no status")?;
        let length = match (field("content-length"), status) {
            (Some(length), _) => length.trim().parse()?,
            (None, 204 | 304) => 0,
            (None, _) => bail!("status {status} without a length"),
        };
        self.ends = field("connection").is_some_and(|word| word.eq_ignore_ascii_case("close"));
        Ok(Some((Answer { status, length }, bytes)))
    }

    fn body(&mut self, left: u64, allowance: usize, buffer: &mut [u8]) -> anyhow::Result<Step> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(allowance);
        let early = self.early.len() - self.early_from;
        if early > 0 {
            let count = early.min(most).min(buffer.len());
            let from = self.early_from;
            buffer[..count].copy_from_slice(&self.early[from..from + count]);
            self.early_from += count;
            return Ok(self.took(left, count));
        }
        loop {
            let received = match self.is_checked {
                true => {
                    let room = most.min(buffer.len());
                    recv(&self.stream, &mut buffer[..room], RecvFlags::empty())
                }
                false => skip(&self.stream, most),
            };
            return match received {
                Ok((_, 0)) => Ok(Step::Closed),
                Ok((_, count)) => Ok(self.took(left, count)),
                Err(Errno::AGAIN) => Ok(Step::Blocked),
                Err(Errno::CONNRESET) => Ok(Step::Closed),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    fn took(&mut self, left: u64, count: usize) -> Step {
        self.state = State::Body(left - count as u64);
        Step::Body(count)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn socket_for(
    server: SocketAddr,
    receive_bytes: Option<usize>,
    segment_bytes: Option<u32>,
) -> anyhow::Result<Socket> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = segment_bytes {
        socket.set_tcp_mss(bytes)?;
    }
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// Has the kernel throw bytes away, which costs no copy.
fn skip(stream: &TcpStream, bytes: usize) -> rustix::io::Result<(usize, usize)> {
    const ROOM: usize = 1 << 20;
    let mut nowhere = [MaybeUninit::<u8>::uninit(); ROOM];
    let room = bytes.min(ROOM);
    let (_, count) = recv(stream, &mut nowhere[..room], RecvFlags::TRUNC)?;
    Ok((0, count))
}
