//! Large WRITEs: the rest of a record is received right behind its beginning,
//! so that the data lies in memory where a disk takes it, and is never copied.

use bytes::Bytes;
use crossdock_nfs3::{self as nfs3, Procedure};
use crossdock_rpc::CallHeader;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};
use crossdock_xdr::{DecodeError, Decoder};

/// Less is gathered as it comes: a receive of its own would not pay.
pub(crate) const FILL_BYTES_MIN: usize = 32 << 10;

/// A record of which the beginning is here.
#[derive(Clone, Debug)]
pub struct Fill {
    /// What is here.
    pub head: Bytes,
    /// In memory the record is to begin so many bytes behind a block boundary:
    /// blocks of the file are then blocks in memory.
    pub lead_bytes: usize,
    /// The next so many bytes of the connection complete the record.
    pub missing_bytes: usize,
}

impl Fill {
    /// Length of the record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.head.len() + self.missing_bytes
    }
}

/// Completes a record from chunks, for a shell that does not receive in place.
#[derive(Debug)]
pub struct Filler {
    buffer: AlignedBuffer,
    start: usize,
    filled: usize,
    end: usize,
}

impl From<Fill> for Filler {
    fn from(fill: Fill) -> Self {
        let start = fill.lead_bytes;
        let filled = start + fill.head.len();
        let end = filled + fill.missing_bytes;
        let mut buffer = AlignedBuffer::zeroed(end);
        buffer[start..filled].copy_from_slice(&fill.head);
        Self {
            buffer,
            start,
            filled,
            end,
        }
    }
}

impl Filler {
    /// Takes what it needs from the front of `chunk`; gives the record if that
    /// completes it, else itself.
    ///
    /// # Errors
    /// Not complete yet.
    pub fn take(mut self, chunk: &mut Bytes) -> Result<Bytes, Self> {
        let part = chunk.split_to(chunk.len().min(self.end - self.filled));
        let end = self.filled + part.len();
        self.buffer[self.filled..end].copy_from_slice(&part);
        self.filled = end;
        if self.filled < self.end {
            return Err(self);
        }
        Ok(self.buffer.freeze().slice(self.start..self.end))
    }
}

/// How far behind a block boundary a record has to begin in memory; `None` if
/// it is no WRITE, or too little of it is here to say.
pub(crate) fn lead_bytes(beginning: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(beginning);
    let header = CallHeader::decode(&mut decoder).ok()?;
    let is_write = header.program == nfs3::PROGRAM
        && header.version == nfs3::VERSION
        && header.procedure == Procedure::Write.number();
    if !is_write {
        return None;
    }
    let (offset, data) = place(&mut decoder).ok()?;
    let block = BLOCK_BYTES as u64;
    let lead = (offset % block + block - data as u64 % block) % block;
    usize::try_from(lead).ok()
}

/// Where in the file the data goes, and where in the record it begins
/// (RFC 1813 section 3.3.7).
fn place(decoder: &mut Decoder<'_>) -> Result<(u64, usize), DecodeError> {
    decoder.opaque(nfs3::HANDLE_BYTES_MAX)?;
    let offset = decoder.u64()?;
    for _count_stable_length in 0..3 {
        decoder.u32()?;
    }
    Ok((offset, decoder.position()))
}
