//! A client that sends the bytes that it is told to, and reads responses one by one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};

/// Who says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take until a connection that is to end has ended.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A connection.
pub(in crate::suite) struct Wire {
    stream: TcpStream,
    /// What has arrived and was not looked at.
    buffer: Vec<u8>,
    /// Whether the next response has no content, as it is to HEAD.
    is_to_head: bool,
}

/// A response, whole.
#[derive(Debug)]
pub(in crate::suite) struct Answer {
    pub(in crate::suite) status: u16,
    fields: Vec<(String, String)>,
    pub(in crate::suite) content: Vec<u8>,
}

impl Wire {
    pub(in crate::suite) fn connect(address: SocketAddr) -> Result<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    /// One whose kernel keeps little of what the server sends.
    pub(in crate::suite) fn connect_narrow(address: SocketAddr, bytes: usize) -> Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None)?;
        set_socket_recv_buffer_size(&socket, bytes)?;
        connect(&socket, &address)?;
        Self::over(TcpStream::from(socket))
    }

    fn over(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            is_to_head: false,
        })
    }

    pub(in crate::suite) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)?;
        Ok(())
    }

    /// Sends as much as the server takes before it ends the connection.
    pub(in crate::suite) fn send_what_is_taken(&mut self, bytes: &[u8]) -> Result<()> {
        match self.stream.write_all(bytes) {
            Err(error) if is_end(&error) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The same connection for another thread.
    pub(in crate::suite) fn second(&self) -> Result<Self> {
        Self::over(self.stream.try_clone()?)
    }

    /// The next response is to HEAD.
    pub(in crate::suite) const fn expect_head(&mut self) {
        self.is_to_head = true;
    }

    /// Nothing more will be sent.
    pub(in crate::suite) fn finish_sending(&self) -> Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Asks for a path, and for the end of the connection if `is_last`.
    pub(in crate::suite) fn get(&mut self, path: &str, is_last: bool) -> Result<()> {
        let more = if is_last { "Connection: close\r\n" } else { "" };
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n").as_bytes())
    }

    /// The next response; `None` if the connection ends before it is complete.
    ///
    /// # Errors
    /// It is no response, or does not come.
    pub(in crate::suite) fn answer(&mut self) -> Result<Option<Answer>> {
        let head_bytes = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            ensure!(self.buffer.len() < 64 << 10, "a head without an end");
            if !self.read_more()? {
                return Ok(None);
            }
        };
        let head: Vec<u8> = self.buffer.drain(..head_bytes).collect();
        let mut answer = Answer::parse(&head)?;
        let is_to_head = std::mem::take(&mut self.is_to_head) && answer.status >= 200;
        let is_empty = is_to_head || answer.status < 200 || matches!(answer.status, 204 | 304);
        let length = match answer.field("content-length") {
            _ if is_empty => 0,
            Some(length) => length.parse()?,
            None => bail!("a response without a length: {answer:?}"),
        };
        while self.buffer.len() < length {
            if !self.read_more()? {
                return Ok(None);
            }
        }
        answer.content = self.buffer.drain(..length).collect();
        Ok(Some(answer))
    }

    /// Whether the connection has ended, or does soon, without another byte.
    pub(in crate::suite) fn is_over(&mut self) -> Result<bool> {
        self.stream.set_read_timeout(Some(END_PATIENCE))?;
        let more = self.read_more();
        self.stream.set_read_timeout(Some(PATIENCE))?;
        match more {
            Ok(is_more) => Ok(!is_more && self.buffer.is_empty()),
            Err(_) => Ok(false), // It is silent.
        }
    }

    /// Reads at most so many bytes and forgets them; how many.
    pub(in crate::suite) fn sip(&mut self, bytes: usize) -> Result<usize> {
        let mut sip = vec![0; bytes];
        Ok(self.stream.read(&mut sip)?)
    }

    /// Ends it with a reset: the kernel forgets what was sent.
    pub(in crate::suite) fn reset(self) -> Result<()> {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))?;
        Ok(())
    }

    /// `false` at the end of the connection, whoever ended it and how.
    fn read_more(&mut self) -> Result<bool> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(bytes) => {
                    self.buffer.extend_from_slice(&chunk[..bytes]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => return Ok(false),
                Err(error) => return Err(error).context("the server says nothing"),
            }
        }
    }
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

impl Answer {
    fn parse(head: &[u8]) -> Result<Self> {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.trim_end().split("\r\n");
        let first = lines.next().context("an empty head")?;
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .with_context(|| format!("no status line: {first}"))?
            .parse()?;
        let field = |line: &str| {
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("no field: {line}"))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Ok(Self {
            status,
            fields: lines.map(field).collect::<Result<_>>()?,
            content: Vec::new(),
        })
    }

    /// The value of a field.
    pub(in crate::suite) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| &value[..])
    }

    /// Status and content, for messages.
    pub(in crate::suite) fn text(&self) -> String {
        let content = String::from_utf8_lossy(&self.content);
        format!("{} {content}", self.status)
    }
}
