//! The log of requests: one record of [`RECORD_BYTES`] for each, in the order in which
//! they were done.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | queued: nanoseconds of `CLOCK_MONOTONIC` |
//! | 8 | 8 | started |
//! | 16 | 8 | done |
//! | 24 | 8 | offset on the disk |
//! | 32 | 4 | length |
//! | 36 | 4 | kind: 0 read, 1 write |
//! | 40 | 16 | the first bytes that were read or written |
//! | 56 | 8 | zero |
//!
//! All numbers are little-endian.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// Bytes of content that are kept of each request: what was read is known by them.
pub const HEAD_BYTES: usize = 16;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came, in nanoseconds of `CLOCK_MONOTONIC`.
    pub queued_ns: u64,
    /// When the arm began to move for it.
    pub started_ns: u64,
    /// When it was done.
    pub done_ns: u64,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u32,
    /// What was done.
    pub kind: Kind,
    /// The beginning of its content.
    pub head: [u8; HEAD_BYTES],
}

impl Record {
    /// As it is in the log.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (place, number) in [self.queued_ns, self.started_ns, self.done_ns, self.offset]
            .into_iter()
            .enumerate()
        {
            bytes[place * 8..place * 8 + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.length.to_le_bytes());
        bytes[36] = u8::from(self.kind == Kind::Write);
        bytes[40..40 + HEAD_BYTES].copy_from_slice(&self.head);
        bytes
    }

    /// Reads one; `None` if its kind is unknown.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mut length = [0; 4];
        length.copy_from_slice(&bytes[32..36]);
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes[40..40 + HEAD_BYTES]);
        Some(Self {
            queued_ns: number(0),
            started_ns: number(8),
            done_ns: number(16),
            offset: number(24),
            length: u32::from_le_bytes(length),
            kind: match bytes[36] {
                0 => Kind::Read,
                1 => Kind::Write,
                _ => return None,
            },
            head,
        })
    }
}

/// The records of a log; what a record at its end lacks is not there yet.
pub fn records(log: &[u8]) -> impl Iterator<Item = Record> + '_ {
    let (whole, _) = log.as_chunks::<RECORD_BYTES>();
    whole.iter().filter_map(Record::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was logged is what is read, and half a record is none.
    #[test]
    fn a_log_is_read_as_it_was_written() {
        let record = Record {
            queued_ns: 1,
            started_ns: u64::MAX,
            done_ns: 3,
            offset: 1 << 40,
            length: 512 << 10,
            kind: Kind::Write,
            head: *b"0123456789abcdef",
        };
        let other = Record {
            kind: Kind::Read,
            ..record
        };
        let mut log = [record.encode(), other.encode()].concat();
        log.extend([0; RECORD_BYTES - 1]);
        let read: Vec<Record> = records(&log).collect();
        assert_eq!(read, [record, other]);
    }
}
