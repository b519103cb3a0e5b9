//! Sockets below RPC: bytes go out exactly as given, records come in whole.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use crossdock_rpc::{AcceptStatus, RecordReader, ReplyBody, ReplyHeader};
use crossdock_xdr::Decoder;

/// Read from the socket at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// One TCP connection.
pub struct Wire {
    stream: TcpStream,
    reader: RecordReader,
    unread: Bytes,
}

impl Wire {
    /// Connects; a server that says nothing for `patience` hangs.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(address: SocketAddr, patience: Duration) -> Result<Self> {
        Self::over(
            TcpStream::connect_timeout(&address, patience).context("cannot connect")?,
            patience,
        )
    }

    /// The same over a connection that there is.
    ///
    /// # Errors
    /// The system's.
    pub fn over(stream: TcpStream, patience: Duration) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self {
            stream,
            reader: RecordReader::default(),
            unread: Bytes::new(),
        })
    }

    /// Sends bytes as they are; `false` if the server has closed the connection.
    ///
    /// # Errors
    /// The connection fails in another way than by its end.
    pub fn send(&mut self, bytes: &[u8]) -> Result<bool> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(true),
            Err(error) if is_gone(error.kind()) => Ok(false),
            Err(error) => Err(error).context("cannot send"),
        }
    }

    /// The next record; `None` once the server has closed the connection.
    ///
    /// # Errors
    /// The server is silent for too long, or what it says is no record.
    pub fn receive(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(record) = self.reader.next_record(&mut self.unread)? {
                return Ok(Some(record));
            }
            let mut chunk = BytesMut::zeroed(CHUNK_BYTES);
            let length = match self.stream.read(&mut chunk) {
                Ok(length) => length,
                Err(error) if is_gone(error.kind()) => 0,
                // With a time limit the kernel does not go on by itself.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("no reply"),
            };
            if length == 0 {
                return Ok(None);
            }
            chunk.truncate(length);
            self.unread = chunk.freeze();
        }
    }

    /// Tells the server that nothing more comes.
    ///
    /// # Errors
    /// The system's.
    pub fn finish_sending(&self) -> Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// The socket, for what only a socket can do.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Reads the header of a reply, which must be one of success; the call's number.
///
/// # Errors
/// It is none, or the call was refused.
pub fn success(decoder: &mut Decoder<'_>) -> Result<u32> {
    let header: ReplyHeader<'_> = decoder.get()?;
    let is_success = matches!(
        header.body,
        ReplyBody::Accepted {
            status: AcceptStatus::Success,
            ..
        }
    );
    ensure!(is_success, "call refused: {header:?}");
    Ok(header.xid)
}

/// What a closed connection, or a killed server, looks like from here.
const fn is_gone(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}
