//! What a disk is to everybody above it: requests in, completions out.
//!
//! A request is started by [`Disk::submit`] and its completion comes back from
//! [`Disk::poll`], with the same token. Nothing here waits. The shell (event
//! loop or simulation) decides when time passes.
//!
//! **Order.** There is none among requests in flight. Whoever needs one
//! operation after another waits for the completion of the first. Two writes
//! whose ranges meet must never be in flight together; nor a read and a write
//! whose ranges meet, unless the reader can stand either outcome per sector.
//!
//! **Durability.** A write that completed is in the device's hands and can
//! still be lost by a crash; a [`DiskOperation::Flush`] that was submitted
//! after that completion makes it stable when the flush itself completes. A
//! write that [is durable](DiskOperation::Write::is_durable) is stable when it
//! completes; until then a crash may tear it like any other, and it says
//! nothing about other writes.

use bytes::Bytes;
use crossdock_types::{BLOCK_BYTES, Scatter, is_aligned};

/// Chosen by the caller; comes back with the completion. The disk attaches no
/// meaning to it, so it need not be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskToken(pub u64);

/// One thing to do.
#[derive(Debug)]
pub enum DiskOperation {
    /// Fills the whole of `buffer` from `offset_bytes`, a multiple of
    /// [`BLOCK_BYTES`]. What was never written reads as zeros.
    Read {
        /// Where on the disk the bytes begin.
        offset_bytes: u64,
        /// Comes back, filled, in [`DiskOutput::Read`].
        buffer: Scatter,
    },
    /// Like [`Read`](Self::Read), from another place where the same bytes lie: for who has
    /// found that what a read gave is wrong. Attempts count from 1; a disk that has no such
    /// place, or not so many, says [`DiskError::NoOther`].
    ReadOther {
        /// Where on the disk the bytes begin.
        offset_bytes: u64,
        /// Comes back, filled, in [`DiskOutput::Read`].
        buffer: Scatter,
        /// Which of the other places.
        attempt: u32,
    },
    /// Writes all pieces one after the other from `offset_bytes`. Each piece
    /// is aligned in memory and holds whole blocks
    /// ([`is_aligned`]).
    Write {
        /// Where on the disk the first piece begins.
        offset_bytes: u64,
        /// Shared, so they are held until the completion and must not change.
        pieces: Vec<Bytes>,
        /// Whether it completes only when these bytes are on stable storage:
        /// for whoever waits for one write alone, cheaper than a flush after it.
        is_durable: bool,
    },
    /// Everything whose completion was reported before this flush was
    /// submitted is on stable storage when it completes.
    Flush,
    /// Makes the disk at least this long; the new bytes are zeros and have
    /// space of their own. A shorter length than the present one does nothing.
    /// The new length is stable after the next flush.
    Grow {
        /// The least length wanted, a multiple of [`BLOCK_BYTES`].
        length_bytes: u64,
    },
}

/// An operation and the name under which its completion is wanted.
#[derive(Debug)]
pub struct DiskRequest {
    /// Comes back in [`DiskCompletion::token`].
    pub token: DiskToken,
    /// What to do.
    pub operation: DiskOperation,
}

/// The end of one request. Each request has exactly one.
#[derive(Debug)]
pub struct DiskCompletion {
    /// From [`DiskRequest::token`].
    pub token: DiskToken,
    /// What came of it.
    pub result: Result<DiskOutput, DiskError>,
}

/// What a request that succeeded gives.
#[derive(Debug)]
pub enum DiskOutput {
    /// The buffer of a [`DiskOperation::Read`], filled.
    Read(Scatter),
    /// The end of any other operation.
    Done,
}

/// Why a request failed.
///
/// After a failed write the range holds, per sector, old or new content; after
/// a failed flush nothing is known about what was written since the last
/// flush that succeeded, and a later flush does not mend it. A durable write
/// that failed may have failed in both ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The device or the kernel failed the request.
    #[error("{operation} failed: {message}")]
    Io {
        /// Which operation, as a word for the log.
        operation: &'static str,
        /// The system's error number.
        errno: i32,
        /// The same in words, with what is known about the place.
        message: String,
    },
    /// The disk cannot become, or hold, as much as was asked for. Nothing was
    /// changed by a grow; a write may have landed in part.
    #[error("no space left on the device")]
    NoSpace,
    /// The request lies outside the disk. Nothing was done.
    #[error("request ends at byte {end_bytes}, the disk at {length_bytes}")]
    OutOfRange {
        /// The first byte after the request.
        end_bytes: u64,
        /// The disk's length.
        length_bytes: u64,
    },
    /// The offset, the length or the memory is not aligned to whole blocks.
    /// Nothing was done.
    #[error("offset, length or memory not aligned to {BLOCK_BYTES} bytes")]
    Unaligned,
    /// The bytes are nowhere else, or not so often.
    #[error("there is no other copy")]
    NoOther,
    /// It never reached the disk: nobody waits for it any more, or too many
    /// others wait. Only a queue before the disk says so.
    #[error("the request was not begun")]
    NotBegun,
}

/// A disk driven by an event loop; one thread owns it.
pub trait Disk {
    /// The present length in bytes. A grow changes it when it completes.
    fn length_bytes(&self) -> u64;

    /// Starts a request. Also a request that is refused at once
    /// ([`DiskError::OutOfRange`], [`DiskError::Unaligned`]) is answered by a
    /// completion.
    fn submit(&mut self, request: DiskRequest);

    /// The next completion, if there is one by now.
    fn poll(&mut self) -> Option<DiskCompletion>;
}

/// A disk for threads that may wait: the index thread and offline tools.
///
/// Offsets and lengths need no alignment. The same rule of durability holds:
/// what was written before [`flush`](Self::flush) began is stable when it
/// returns.
pub trait BlockingDisk: Send + Sync {
    /// The present length in bytes.
    ///
    /// # Errors
    /// [`DiskError::Io`] if the system does not tell.
    fn length_bytes(&self) -> Result<u64, DiskError>;

    /// Fills `target` from `offset_bytes`.
    ///
    /// # Errors
    /// [`DiskError::OutOfRange`] if the range does not lie within the disk.
    fn read_at(&self, target: &mut [u8], offset_bytes: u64) -> Result<(), DiskError>;

    /// Writes `source` at `offset_bytes`.
    ///
    /// # Errors
    /// [`DiskError::OutOfRange`] if the range does not lie within the disk;
    /// [`DiskError::NoSpace`].
    fn write_at(&self, source: &[u8], offset_bytes: u64) -> Result<(), DiskError>;

    /// Makes all that was written stable.
    ///
    /// # Errors
    /// [`DiskError::Io`]; see [`DiskError`] about failed flushes.
    fn flush(&self) -> Result<(), DiskError>;

    /// Cuts the disk, or extends it with zeros.
    ///
    /// # Errors
    /// [`DiskError::NoSpace`]: the length is as before.
    fn set_length(&self, length_bytes: u64) -> Result<(), DiskError>;

    /// Sets room aside, so that no write below `length_bytes` is refused for lack
    /// of it. The length stays; cutting the disk gives the room back. A disk that has
    /// its room anyway does nothing.
    ///
    /// # Errors
    /// [`DiskError::NoSpace`].
    fn reserve(&self, length_bytes: u64) -> Result<(), DiskError> {
        let _ = length_bytes;
        Ok(())
    }
}

impl DiskOperation {
    /// A word for logs and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::ReadOther { .. } => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::Grow { .. } => "grow",
        }
    }

    /// Refuses what no disk of `length_bytes` may be asked for; every
    /// implementation calls it first, so all refuse alike.
    ///
    /// # Errors
    /// [`DiskError::Unaligned`] and [`DiskError::OutOfRange`].
    pub fn check(&self, length_bytes: u64) -> Result<(), DiskError> {
        match self {
            Self::Read {
                offset_bytes,
                buffer,
            }
            | Self::ReadOther {
                offset_bytes,
                buffer,
                ..
            } => check_range(*offset_bytes, buffer.len(), length_bytes),
            Self::Write {
                offset_bytes,
                pieces,
                ..
            } => {
                if !pieces.iter().all(|piece| is_aligned(piece)) {
                    return Err(DiskError::Unaligned);
                }
                let bytes = pieces.iter().map(Bytes::len).sum();
                check_range(*offset_bytes, bytes, length_bytes)
            }
            Self::Flush => Ok(()),
            Self::Grow {
                length_bytes: wanted,
            } if wanted.is_multiple_of(BLOCK_BYTES as u64) => Ok(()),
            Self::Grow { .. } => Err(DiskError::Unaligned),
        }
    }
}

fn check_range(offset_bytes: u64, bytes: usize, length_bytes: u64) -> Result<(), DiskError> {
    if !offset_bytes.is_multiple_of(BLOCK_BYTES as u64) || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(DiskError::Unaligned);
    }
    let end_bytes = offset_bytes.saturating_add(bytes as u64);
    if end_bytes > length_bytes {
        return Err(DiskError::OutOfRange {
            end_bytes,
            length_bytes,
        });
    }
    Ok(())
}

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn length_bytes(&self) -> u64 {
        (**self).length_bytes()
    }

    fn submit(&mut self, request: DiskRequest) {
        (**self).submit(request);
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        (**self).poll()
    }
}
