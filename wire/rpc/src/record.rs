//! Records on a byte stream (RFC 5531 section 11).
//!
//! A record is a sequence of fragments, each behind a mark:
//!
//! | bits | meaning |
//! |---|---|
//! | 31 | this is the record's last fragment |
//! | 30..0 | length of the fragment in bytes |
//!
//! The mark is big-endian and counts itself nowhere.

use bytes::{Buf, Bytes, BytesMut};
use crossdock_limits::{RPC_FRAGMENTS_EMPTY_MAX, RPC_RECORD_BYTES_MAX};
use crossdock_types::Payload;
use crossdock_xdr::Encoder;
use thiserror::Error;

const MARK_BYTES: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// Why a stream cannot be read any further: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A record announces more bytes than the limit.
    #[error("record of at least {length_bytes} bytes, limit {length_bytes_max}")]
    TooLong {
        /// Bytes announced so far.
        length_bytes: usize,
        /// The limit.
        length_bytes_max: usize,
    },
    /// A record has too many fragments with nothing in them.
    #[error("more than {RPC_FRAGMENTS_EMPTY_MAX} empty fragments in one record")]
    EmptyFragments,
}

/// Cuts a byte stream into records.
///
/// Feed every chunk that arrives to [`next_record`](Self::next_record) until it
/// returns `None`, which says that the chunk is used up. A record that lies in
/// one chunk and one fragment shares the chunk's memory. Any other is gathered
/// as its bytes arrive; the rest of a large one can be received elsewhere, right
/// behind its beginning: see [`lend`](Self::lend).
///
/// It holds at most one record, of at most the limit, and takes memory only for
/// what has arrived.
#[derive(Debug)]
pub struct RecordReader {
    length_bytes_max: usize,
    mark: [u8; MARK_BYTES],
    mark_bytes: usize,     // How much of `mark` has arrived.
    fragment_bytes: usize, // Still missing of the current fragment.
    is_last: bool,         // The current fragment ends the record.
    fragments_empty: u32,
    gathered: BytesMut, // Earlier parts of the current record.
    lent_bytes: usize,  // Length of the record that is completed elsewhere.
}

impl Default for RecordReader {
    /// A reader of records up to [`RPC_RECORD_BYTES_MAX`].
    fn default() -> Self {
        Self::new(RPC_RECORD_BYTES_MAX)
    }
}

impl RecordReader {
    /// A reader at the start of a stream, for records of at most
    /// `length_bytes_max`.
    #[must_use]
    pub fn new(length_bytes_max: usize) -> Self {
        Self {
            length_bytes_max,
            mark: [0; MARK_BYTES],
            mark_bytes: 0,
            fragment_bytes: 0,
            is_last: false,
            fragments_empty: 0,
            gathered: BytesMut::new(),
            lent_bytes: 0,
        }
    }

    /// Takes bytes from the front of `chunk` until a record is complete, and
    /// returns it without its marks; `None` if the chunk ends first.
    ///
    /// # Errors
    /// See [`RecordError`]. The reader cannot be used afterwards.
    ///
    /// # Panics
    /// If a record is lent.
    pub fn next_record(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, RecordError> {
        assert!(self.lent_bytes == 0, "reading while a record is lent");
        loop {
            if self.mark_bytes < MARK_BYTES {
                if !self.fill_mark(chunk) {
                    return Ok(None);
                }
                self.begin_fragment()?;
            }
            let part = chunk.split_to(self.fragment_bytes.min(chunk.len()));
            self.fragment_bytes -= part.len();
            if self.fragment_bytes > 0 {
                self.gathered.extend_from_slice(&part);
                return Ok(None);
            }
            if let Some(record) = self.end_fragment(part) {
                return Ok(Some(record));
            }
        }
    }

    /// Bytes that are known to be missing of the current record: the rest of
    /// its current fragment, or of a mark that arrived in part.
    #[must_use]
    pub const fn missing_bytes(&self) -> usize {
        match self.mark_bytes {
            MARK_BYTES => self.fragment_bytes,
            0 => 0,
            some => MARK_BYTES - some,
        }
    }

    /// Bytes of earlier chunks that are kept for the current record.
    #[must_use]
    pub fn gathered_bytes(&self) -> usize {
        self.gathered.len()
    }

    /// Whether nothing has arrived of the next record.
    #[must_use]
    pub fn is_between_records(&self) -> bool {
        self.mark_bytes == 0
            && self.fragments_empty == 0
            && self.gathered.is_empty()
            && self.lent_bytes == 0
    }

    /// What has arrived of the current record, if only the rest of its last
    /// fragment is missing: [`missing_bytes`](Self::missing_bytes).
    #[must_use]
    pub fn beginning(&self) -> Option<&[u8]> {
        let is_open = self.mark_bytes == MARK_BYTES && self.is_last && self.fragment_bytes > 0;
        (is_open && self.lent_bytes == 0).then_some(&self.gathered)
    }

    /// Hands out the [`beginning`](Self::beginning), so that the missing bytes
    /// are received right behind it, wherever that is.
    ///
    /// The next bytes of the stream belong there, and nothing is read here until
    /// the whole record has been [given back](Self::give_back).
    pub fn lend(&mut self) -> Option<Bytes> {
        let lent_bytes = self.beginning()?.len() + self.fragment_bytes;
        self.lent_bytes = lent_bytes;
        Some(std::mem::take(&mut self.gathered).freeze())
    }

    /// The record that was lent is complete: the next one may follow.
    ///
    /// # Panics
    /// If none was lent, or `record` has another length.
    pub fn give_back(&mut self, record: &Bytes) {
        assert!(
            self.lent_bytes > 0 && record.len() == self.lent_bytes,
            "not the record that was lent"
        );
        self.lent_bytes = 0;
        self.mark_bytes = 0;
        self.fragment_bytes = 0;
        self.fragments_empty = 0;
    }

    /// Whether the mark is complete.
    fn fill_mark(&mut self, chunk: &mut Bytes) -> bool {
        let step = (MARK_BYTES - self.mark_bytes).min(chunk.len());
        self.mark[self.mark_bytes..self.mark_bytes + step].copy_from_slice(&chunk[..step]);
        self.mark_bytes += step;
        chunk.advance(step);
        self.mark_bytes == MARK_BYTES
    }

    fn begin_fragment(&mut self) -> Result<(), RecordError> {
        let mark = u32::from_be_bytes(self.mark);
        self.is_last = mark & LAST_FRAGMENT != 0;
        self.fragment_bytes = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        let length_bytes = self.gathered.len().saturating_add(self.fragment_bytes);
        if length_bytes > self.length_bytes_max {
            return Err(RecordError::TooLong {
                length_bytes,
                length_bytes_max: self.length_bytes_max,
            });
        }
        if self.fragment_bytes == 0 {
            self.fragments_empty += 1;
            if self.fragments_empty > RPC_FRAGMENTS_EMPTY_MAX {
                return Err(RecordError::EmptyFragments);
            }
        }
        Ok(())
    }

    /// The current fragment is complete with `part`, and perhaps the record.
    fn end_fragment(&mut self, part: Bytes) -> Option<Bytes> {
        self.mark_bytes = 0;
        if self.is_last && self.gathered.is_empty() {
            self.fragments_empty = 0;
            return Some(part);
        }
        self.gathered.extend_from_slice(&part);
        if !self.is_last {
            return None;
        }
        self.fragments_empty = 0;
        Some(std::mem::take(&mut self.gathered).freeze())
    }
}

/// Frames one outgoing record: a single fragment with its mark on a stream, or
/// the bare bytes of a datagram.
#[derive(Debug)]
pub struct RecordWriter {
    encoder: Encoder,
    is_marked: bool,
}

impl RecordWriter {
    /// A record for a byte stream, with room for `capacity_bytes` of headers.
    #[must_use]
    pub fn stream(capacity_bytes: usize) -> Self {
        let mut encoder = Encoder::with_capacity(MARK_BYTES + capacity_bytes);
        encoder.u32(0); // The mark; finish() knows it.
        Self {
            encoder,
            is_marked: true,
        }
    }

    /// A record that is one datagram, with room for `capacity_bytes` of headers.
    #[must_use]
    pub fn datagram(capacity_bytes: usize) -> Self {
        Self {
            encoder: Encoder::with_capacity(capacity_bytes),
            is_marked: false,
        }
    }

    /// Where the content of the record goes.
    pub const fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// The record, ready to be sent.
    ///
    /// # Panics
    /// If it is 2 GiB or longer: nothing that large is ever sent.
    #[must_use]
    pub fn finish(mut self) -> Payload {
        if self.is_marked {
            let length = u32::try_from(self.encoder.len() - MARK_BYTES)
                .ok()
                .filter(|length| length & LAST_FRAGMENT == 0)
                .expect("records are bounded far below 2 GiB");
            self.encoder.patch_u32(0, LAST_FRAGMENT | length);
        }
        self.encoder.into_payload()
    }
}
