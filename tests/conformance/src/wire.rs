//! Sockets below RPC: bytes go out exactly as given, records come in whole.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use crossdock_rpc::RecordReader;

/// A server that says nothing for so long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const CHUNK_BYTES: usize = 64 * 1024;
const LAST_FRAGMENT: u32 = 1 << 31;

/// One TCP connection.
pub(crate) struct Wire {
    stream: TcpStream,
    reader: RecordReader,
    unread: Bytes,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            reader: RecordReader::default(),
            unread: Bytes::new(),
        })
    }

    /// Sends bytes as they are; `false` if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<bool> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(true),
            Err(error) if is_gone(error.kind()) => Ok(false),
            Err(error) => Err(error).context("cannot send"),
        }
    }

    /// Sends a record in one fragment.
    pub(crate) fn send_record(&mut self, record: &[u8]) -> Result<()> {
        ensure!(self.send(&framed(record))?, "the connection is closed");
        Ok(())
    }

    /// The next record; `None` once the server has closed the connection.
    pub(crate) fn receive(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(record) = self.reader.next_record(&mut self.unread)? {
                return Ok(Some(record));
            }
            let mut chunk = BytesMut::zeroed(CHUNK_BYTES);
            let length = match self.stream.read(&mut chunk) {
                Ok(length) => length,
                Err(error) if is_gone(error.kind()) => 0,
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

    /// The next record, which must come.
    pub(crate) fn expect(&mut self) -> Result<Bytes> {
        self.receive()?.context("closed instead of a reply")
    }

    /// The server closes the connection without another record.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        match self.receive()? {
            None => Ok(()),
            Some(record) => bail!("a reply instead of a close: {record:02x?}"),
        }
    }

    /// Sends a record and waits for one.
    pub(crate) fn exchange(&mut self, record: &[u8]) -> Result<Bytes> {
        self.send_record(record)?;
        self.expect()
    }

    /// Tells the server that nothing more comes.
    pub(crate) fn finish_sending(&self) -> Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// The socket, for what only a socket can do.
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// A record as one fragment behind its mark.
pub(crate) fn framed(record: &[u8]) -> Vec<u8> {
    let mut bytes = mark(record.len(), true).to_vec();
    bytes.extend_from_slice(record);
    bytes
}

/// A record cut into fragments of at most `length_bytes` (RFC 5531 section 11).
pub(crate) fn fragments(record: &[u8], length_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let last = record.len().div_ceil(length_bytes).saturating_sub(1);
    for (number, piece) in record.chunks(length_bytes).enumerate() {
        bytes.extend(mark(piece.len(), number == last));
        bytes.extend_from_slice(piece);
    }
    bytes
}

/// The mark before a fragment.
pub(crate) fn mark(length_bytes: usize, is_last: bool) -> [u8; 4] {
    let length = u32::try_from(length_bytes).unwrap_or(LAST_FRAGMENT - 1);
    let flag = if is_last { LAST_FRAGMENT } else { 0 };
    (length | flag).to_be_bytes()
}

/// What a closed connection looks like from here.
const fn is_gone(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}
