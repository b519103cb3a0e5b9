//! Sockets below RPC: bytes go out exactly as given, records come in whole.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_tests_crash::wire;

/// A server that says nothing for so long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const LAST_FRAGMENT: u32 = 1 << 31;

/// One TCP connection, and what is expected of it.
pub(crate) struct Wire(wire::Wire);

impl Deref for Wire {
    type Target = wire::Wire;

    fn deref(&self) -> &wire::Wire {
        &self.0
    }
}

impl DerefMut for Wire {
    fn deref_mut(&mut self) -> &mut wire::Wire {
        &mut self.0
    }
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        wire::Wire::connect(address, PATIENCE).map(Self)
    }

    /// Sends a record in one fragment.
    pub(crate) fn send_record(&mut self, record: &[u8]) -> Result<()> {
        ensure!(self.send(&framed(record))?, "the connection is closed");
        Ok(())
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
