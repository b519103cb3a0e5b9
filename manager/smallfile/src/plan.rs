//! What the site and [`crate::SmallFiles`] exchange: plans, changes, and the
//! reads and writes of backing objects that the site sends to nodes.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_checksum::crc32c_append;
use crossdock_names::{FileId, ObjectId, Version};
use crossdock_peer::Stability;
use crossdock_types::Payload;
use thiserror::Error;

use crate::record::Record;

/// Number of a change of the small files of a site, in the order of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// A read of backing bytes under way. What it reads is not reused before
/// [`crate::SmallFiles::read_done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTicket(pub u64);

/// Why nothing was planned. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SmallFileError {
    /// The range does not end at or below the threshold.
    #[error("the range ends beyond the small-file threshold")]
    BeyondThreshold,
    /// No backing space left, and none about to become free.
    #[error("no backing space left for small files")]
    NoSpace,
    /// Too much is under way, or freed space is still held: try again once the
    /// log has moved on ([`crate::SmallFiles::plan_mark`] moves it).
    #[error("small files are busy")]
    Busy,
}

/// Backing bytes do not match the CRC32C of their map record. Try a replica.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{object}: bytes at {offset_bytes} do not match their checksum or are too few")]
pub struct Corrupt {
    /// The backing object.
    pub object: ObjectId,
    /// Where the fragment begins.
    pub offset_bytes: u64,
}

/// A whole fragment within a [`BackingRead`], whose checksum is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentCheck {
    /// Where it begins within the read, in bytes.
    pub start_bytes: u32,
    /// How many bytes the checksum covers.
    pub length_bytes: u32,
    /// CRC32C of these bytes.
    pub crc: u32,
}

/// Bytes to read from a backing object (current version: the ticket keeps
/// them from being reused meanwhile).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingRead {
    /// The backing object.
    pub object: ObjectId,
    /// First byte.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u32,
    /// Newest version among the file's fragments: for extents that are handed out.
    pub version: Version,
    /// Fragments that are read whole.
    pub checks: Vec<FragmentCheck>,
}

impl BackingRead {
    /// Compares what was read with the checksums of the map record.
    ///
    /// # Errors
    /// [`Corrupt`] if bytes are missing or differ.
    pub fn verify(&self, payload: &Payload) -> Result<(), Corrupt> {
        if payload.len() != self.length_bytes as usize {
            return Err(self.corrupt(0));
        }
        for check in &self.checks {
            let start = check.start_bytes as usize;
            let end = start + check.length_bytes as usize;
            if checksum(&payload.slice(start, end)) != check.crc {
                return Err(self.corrupt(check.start_bytes));
            }
        }
        Ok(())
    }

    fn corrupt(&self, start_bytes: u32) -> Corrupt {
        Corrupt {
            object: self.object,
            offset_bytes: self.offset_bytes + u64::from(start_bytes),
        }
    }
}

/// CRC32C of all bytes of `payload`, which need not lie in one piece.
fn checksum(payload: &Payload) -> u32 {
    let pieces = payload.pieces().iter();
    pieces.fold(0, |checksum, piece| crc32c_append(checksum, piece))
}

/// Bytes to write to a backing object, stable, on every member.
///
/// The site creates an object (idempotent) before its first write to it in
/// this incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingWrite {
    /// The backing object.
    pub object: ObjectId,
    /// First byte; fragments below 4 KiB never straddle a 4 KiB block.
    pub offset_bytes: u64,
    /// The bytes; whole 4 KiB blocks where the fragments are that big.
    pub payload: Payload,
    /// The version that the site gave for the change.
    pub version: Version,
}

/// Free space to be made a hole of, on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingHole {
    /// The backing object.
    pub object: ObjectId,
    /// First byte, of a block of the node.
    pub offset_bytes: u64,
    /// How many, in whole blocks of the node.
    pub length_bytes: u64,
    /// Names it in [`crate::SmallFiles::end_return`].
    pub(crate) start_block: u32,
}

/// A piece of what a read returns.
#[derive(Clone, Debug)]
pub enum ReadPiece {
    /// In memory: unstable, inlined in the log, or on its way to the nodes.
    Memory(Bytes),
    /// That many zeros.
    Zeros(u32),
    /// To be read from a node.
    Backing(BackingRead),
}

/// How to answer a read.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// In order; together exactly the range that was asked for.
    pub pieces: Vec<ReadPiece>,
    /// The reply may go out once this has settled (at once if `None`): nobody
    /// is shown what a crash could still take back. If it becomes void, plan again.
    pub after: Option<Sequence>,
    /// To be given back when the backing reads have ended; `None` without any.
    pub ticket: Option<ReadTicket>,
}

impl ReadPlan {
    /// The backing reads, in the order in which
    /// [`assemble`](Self::assemble) takes their bytes.
    pub fn reads(&self) -> impl Iterator<Item = &BackingRead> {
        self.pieces.iter().filter_map(|piece| match piece {
            ReadPiece::Backing(read) => Some(read),
            ReadPiece::Memory(_) | ReadPiece::Zeros(_) => None,
        })
    }

    /// Puts the reply together from what the [`reads`](Self::reads) returned, each of which
    /// has been [verified](BackingRead::verify).
    ///
    /// # Errors
    /// [`Corrupt`] if a read is missing or too short.
    pub fn assemble(&self, backing: Vec<Payload>) -> Result<Payload, Corrupt> {
        let mut whole = Payload::new();
        let mut backing = backing.into_iter();
        for piece in &self.pieces {
            match piece {
                ReadPiece::Memory(bytes) => whole.push(bytes.clone()),
                ReadPiece::Zeros(length) => whole.push_zeros(*length as usize),
                ReadPiece::Backing(read) => {
                    let payload = backing.next().unwrap_or_default();
                    if payload.len() != read.length_bytes as usize {
                        return Err(read.corrupt(0));
                    }
                    whole.append(payload);
                }
            }
        }
        Ok(whole)
    }
}

/// A write as the site got it.
#[derive(Clone, Debug)]
pub struct Write {
    /// The file (of this site).
    pub file: FileId,
    /// First byte.
    pub offset_bytes: u64,
    /// The bytes; they end at or below the threshold.
    pub payload: Payload,
    /// How durable.
    pub stability: Stability,
    /// The site's next version, used if backing writes are needed.
    pub version: Version,
}

/// What to do next for an operation.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing needs a record. (An unstable write is buffered now; a commit
    /// has nothing left to do.) The reply waits for `after`, if given.
    Done {
        /// See [`ReadPlan::after`].
        after: Option<Sequence>,
    },
    /// Read these whole fragments, [add](Fetched::add) them, plan again with
    /// them, then give the ticket back.
    Fetch {
        /// What to read.
        reads: Vec<BackingRead>,
        /// Holds the fragments meanwhile.
        ticket: ReadTicket,
    },
    /// A backing write of the file is under way: plan again when it is
    /// [written](crate::SmallFiles::written) or [void](crate::SmallFiles::plan_void).
    Wait(Sequence),
    /// Log and [accept](crate::SmallFiles::accept) this in the same step, or drop it.
    Change(Change),
}

/// A change of durable state, decided but not made.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its number; no other change may be accepted between.
    pub sequence: Sequence,
    /// Goes into the log record; see `record.rs` for its layout.
    pub record: Vec<u8>,
    /// To send in parallel with the log append. If empty, the change is
    /// settled when its record is durable.
    pub writes: Vec<BackingWrite>,
    /// The record before it was encoded.
    pub(crate) decoded: Record,
    /// Unstable ranges (file, start, end) that it makes durable or overwrites.
    pub(crate) settles_unstable: Vec<(u64, u32, u32)>,
    /// New content of blocks (file, block), served from memory until written.
    pub(crate) contents: BTreeMap<u64, Vec<(usize, Bytes)>>,
    /// Bytes of a file look the same before and after: readers need not wait.
    pub(crate) invisible: bool,
}

/// Whole fragments read for a plan that has to merge with old bytes.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    fragments: BTreeMap<(ObjectId, u64), (u32, Bytes)>,
}

impl Fetched {
    /// Nothing read yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fragments: BTreeMap::new(),
        }
    }

    /// Takes what `read` returned, after comparing it with its checksums.
    ///
    /// # Errors
    /// [`Corrupt`] if it does not match.
    pub fn add(&mut self, read: &BackingRead, payload: &Payload) -> Result<(), Corrupt> {
        read.verify(payload)?;
        for check in &read.checks {
            let start = check.start_bytes as usize;
            let bytes = payload.slice(start, start + check.length_bytes as usize);
            let at = (
                read.object,
                read.offset_bytes + u64::from(check.start_bytes),
            );
            self.fragments.insert(at, (check.crc, bytes.to_bytes()));
        }
        Ok(())
    }

    /// The fragment with that place, length and checksum.
    pub(crate) fn get(
        &self,
        object: ObjectId,
        offset: u64,
        length: u32,
        crc: u32,
    ) -> Option<&Bytes> {
        let (known, bytes) = self.fragments.get(&(object, offset))?;
        (*known == crc && bytes.len() == length as usize).then_some(bytes)
    }
}
