//! A client that sends the bytes that it is told to, and reads responses one by one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Who says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take until a connection that is to end has ended.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A connection.
pub(in crate::suite) struct Wire {
    channel: Channel,
    /// What has arrived and was not looked at.
    buffer: Vec<u8>,
    /// Whether the next response has no content, as it is to HEAD.
    is_to_head: bool,
    /// TLS was broken off: whoever ends it properly says so (RFC 8446 section 6.1).
    is_cut: bool,
}

/// What its bytes go through.
enum Channel {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Channel {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Channel {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
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

    /// The same connection with TLS over it; the handshake is done.
    ///
    /// # Errors
    /// The client does not believe the server's certificate.
    pub(in crate::suite) fn secure(self, config: &Arc<ClientConfig>) -> Result<Self> {
        let Channel::Plain(mut socket) = self.channel else {
            bail!("there is TLS already");
        };
        let name = ServerName::from(socket.peer_addr()?.ip());
        let mut client = ClientConnection::new(Arc::clone(config), name)?;
        while client.is_handshaking() {
            client.complete_io(&mut socket)?;
        }
        Ok(Self {
            channel: Channel::Tls(Box::new(StreamOwned::new(client, socket))),
            ..self
        })
    }

    fn over(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            channel: Channel::Plain(stream),
            buffer: Vec::new(),
            is_to_head: false,
            is_cut: false,
        })
    }

    pub(in crate::suite) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.channel.write_all(bytes)?;
        Ok(())
    }

    /// Sends as much as the server takes before it ends the connection.
    pub(in crate::suite) fn send_what_is_taken(&mut self, bytes: &[u8]) -> Result<()> {
        match self.channel.write_all(bytes) {
            Err(error) if is_end(&error) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The same connection, without TLS, for another thread.
    pub(in crate::suite) fn second(&self) -> Result<Self> {
        match &self.channel {
            Channel::Plain(stream) => Self::over(stream.try_clone()?),
            Channel::Tls(_) => bail!("two threads cannot share TLS"),
        }
    }

    /// The next response is to HEAD.
    pub(in crate::suite) const fn expect_head(&mut self) {
        self.is_to_head = true;
    }

    /// Ends the connection as a client's kernel does that has unread bytes of it: by a reset.
    pub(in crate::suite) fn reset(self) -> Result<()> {
        Ok(set_socket_linger(
            self.channel.socket(),
            Some(Duration::ZERO),
        )?)
    }

    /// Nothing more will be sent.
    pub(in crate::suite) fn finish_sending(&mut self) -> Result<()> {
        if let Channel::Tls(stream) = &mut self.channel {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        Ok(self.channel.socket().shutdown(Shutdown::Write)?)
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

    /// Whether the connection has ended, or does soon, without another byte. TLS has to say so.
    pub(in crate::suite) fn is_over(&mut self) -> Result<bool> {
        self.channel.socket().set_read_timeout(Some(END_PATIENCE))?;
        let more = self.read_more();
        self.channel.socket().set_read_timeout(Some(PATIENCE))?;
        match more {
            Ok(is_more) => Ok(!is_more && !self.is_cut && self.buffer.is_empty()),
            Err(_) => Ok(false), // It is silent.
        }
    }

    /// Reads at most so many bytes and forgets them; how many.
    pub(in crate::suite) fn sip(&mut self, bytes: usize) -> Result<usize> {
        let mut sip = vec![0; bytes];
        Ok(self.channel.read(&mut sip)?)
    }

    /// `false` at the end of the connection, whoever ended it and how.
    fn read_more(&mut self) -> Result<bool> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.channel.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(bytes) => {
                    self.buffer.extend_from_slice(&chunk[..bytes]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.is_cut = true;
                    return Ok(false);
                }
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
