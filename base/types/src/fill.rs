//! Bulk bytes of a connection that are received where a disk takes them, right behind their
//! beginning, and never copied.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::{AlignedBuffer, BLOCK_BYTES};

/// Less is gathered as it comes: a receive of its own would not pay.
pub const FILL_BYTES_MIN: usize = 32 << 10;

/// Who sends such bytes more slowly, in bytes a second, may be taken for dead.
const FILL_RATE_MIN: u64 = 4096;

/// How much longer a peer may say nothing while it sends so many bytes that are told of only
/// when all of them are there.
#[must_use]
pub const fn fill_patience(bytes: usize) -> Duration {
    Duration::from_secs((bytes as u64).div_ceil(FILL_RATE_MIN))
}

/// How far behind the beginning of its block a byte lies.
#[must_use]
pub fn beside_block(place: u64) -> usize {
    usize::try_from(place % BLOCK_BYTES as u64).unwrap_or(0)
}

/// Something long on a connection of which the beginning is here: a record, a payload, the data
/// of a PDU. Who asks for it gets the head and what was missing as one piece.
#[derive(Clone, Debug)]
pub struct Fill {
    /// What is here; maybe nothing.
    pub head: Bytes,
    /// In memory it is to begin so many bytes behind a block boundary: blocks of the file are
    /// then blocks in memory.
    pub lead_bytes: usize,
    /// The next so many bytes of the connection complete it.
    pub missing_bytes: usize,
}

impl Fill {
    /// Length of the whole.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        self.head.len() + self.missing_bytes
    }
}

/// Completes it from chunks, for a shell that does not receive in place.
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
    /// What the next bytes of `chunk` are to the connection of that name: the whole that they
    /// complete, if it waits for one, else all of them. `None` when none are left.
    pub fn next_of<Name: Ord + Copy>(
        filling: &mut BTreeMap<Name, Self>,
        name: Name,
        chunk: &mut Bytes,
    ) -> Option<Bytes> {
        if chunk.is_empty() {
            return None;
        }
        let Some(filler) = filling.remove(&name) else {
            return Some(std::mem::take(chunk));
        };
        let taken = filler.take(chunk);
        taken.map_err(|filler| filling.insert(name, filler)).ok()
    }

    /// Takes what it needs from the front of `chunk`; gives the whole if that
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
