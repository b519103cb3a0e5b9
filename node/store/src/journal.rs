//! The journal: frames of the log library in a ring on a disk of its own.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4096 | superblock |
//! | 4096 | 4096 | the same again |
//! | 8192 | ring bytes | frames, each on a 4096-byte boundary and padded with zeros to one |
//!
//! A frame that does not fit before the ring's end lies at its begin. The
//! superblock:
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDST" |
//! | 4 | 4 | format | 1 |
//! | 8 | 8 | node | id of the node |
//! | 16 | 8 | store | random number; id of the journal's log |
//! | 24 | 8 | ring bytes | length of the ring |
//! | 32 | 4 | – | zero |
//! | 36 | 4 | checksum | CRC32C of bytes 0–35 |

use std::collections::VecDeque;

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_log::{LogId, LogWriter, Position};
use crossdock_metrics::Histogram;
use crossdock_names::NodeId;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::index::RingPoint;
use crate::record::Record;

/// Where the ring begins on the disk.
pub(crate) const RING_OFFSET: u64 = 2 * BLOCK_BYTES as u64;

/// Version of all formats of a store.
pub(crate) const STORE_FORMAT: u32 = 1;

const BLOCK: u64 = BLOCK_BYTES as u64;
const MAGIC: [u8; 4] = *b"XDST";

/// All frames of a journal have this epoch: it has one owner for ever.
pub(crate) const EPOCH: u64 = 1;

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) node: NodeId,
    pub(crate) store: u64,
    pub(crate) ring_bytes: u64,
}

/// What the first blocks of a journal hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundSuperblock {
    Blank,
    Damaged,
    UnknownFormat(u32),
    Good(Superblock),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredSuperblock {
    magic: [u8; 4],
    format: U32,
    node: U64,
    store: U64,
    ring_bytes: U64,
    zero: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<StoredSuperblock>() == 40);

impl Superblock {
    /// Both copies.
    pub(crate) fn encode(&self) -> Bytes {
        let mut stored = StoredSuperblock {
            magic: MAGIC,
            format: U32::new(STORE_FORMAT),
            node: U64::new(self.node.0),
            store: U64::new(self.store),
            ring_bytes: U64::new(self.ring_bytes),
            zero: U32::new(0),
            checksum: U32::new(0),
        };
        stored.checksum = U32::new(crc32c(&stored.as_bytes()[..36]));
        let mut blocks = AlignedBuffer::zeroed(2 * BLOCK_BYTES);
        blocks[..40].copy_from_slice(stored.as_bytes());
        blocks[BLOCK_BYTES..BLOCK_BYTES + 40].copy_from_slice(stored.as_bytes());
        blocks.freeze()
    }

    /// The first copy that is whole.
    pub(crate) fn find(blocks: &[u8]) -> FoundSuperblock {
        let mut worst = FoundSuperblock::Blank;
        for block in blocks.chunks_exact(BLOCK_BYTES) {
            match Self::decode(block) {
                FoundSuperblock::Blank => {}
                FoundSuperblock::Damaged => worst = FoundSuperblock::Damaged,
                found => return found,
            }
        }
        worst
    }

    fn decode(block: &[u8]) -> FoundSuperblock {
        let Ok((stored, _)) = StoredSuperblock::ref_from_prefix(block) else {
            return FoundSuperblock::Damaged;
        };
        if stored.as_bytes().iter().all(|byte| *byte == 0) {
            return FoundSuperblock::Blank;
        }
        if stored.magic != MAGIC {
            return FoundSuperblock::Damaged;
        }
        if stored.format.get() != STORE_FORMAT {
            return FoundSuperblock::UnknownFormat(stored.format.get());
        }
        if crc32c(&stored.as_bytes()[..36]) != stored.checksum.get() {
            return FoundSuperblock::Damaged;
        }
        FoundSuperblock::Good(Self {
            node: NodeId(stored.node.get()),
            store: stored.store.get(),
            ring_bytes: stored.ring_bytes.get(),
        })
    }
}

/// A frame between tail and head.
#[derive(Clone, Copy, Debug)]
struct FrameAt {
    point: RingPoint,
    /// Ring bytes from its begin to the next frame's, a jump to the ring's
    /// begin included.
    bytes: u64,
}

/// A frame to be written.
#[derive(Debug)]
pub(crate) struct FrameWrite {
    pub(crate) position: Position,
    /// On the disk.
    pub(crate) offset_bytes: u64,
    pub(crate) padded: Bytes,
}

/// The writing side of the ring.
#[derive(Debug)]
pub(crate) struct Journal {
    writer: LogWriter,
    ring_bytes: u64,
    head: u64,
    frames: VecDeque<FrameAt>,
    used: u64,
    scratch: Vec<u8>,
    last: Position,
    pub(crate) frames_written: u64,
    pub(crate) bytes_written: u64,
    pub(crate) frame_records: Box<Histogram>,
    pub(crate) trims: u64,
}

impl Journal {
    /// Goes on behind what was replayed: `frames` between tail and `head`.
    pub(crate) fn new(store: u64, ring_bytes: u64, replay: &RingReplay) -> Self {
        let writer = LogWriter::new(LogId(store), EPOCH, replay.point.chain);
        Self {
            last: writer.durable(),
            writer,
            ring_bytes,
            head: replay.point.offset,
            frames: replay.frames.iter().copied().collect(),
            used: replay.frames.iter().map(|frame| frame.bytes).sum(),
            scratch: Vec::new(),
            frames_written: 0,
            bytes_written: 0,
            frame_records: Box::default(),
            trims: 0,
        }
    }

    pub(crate) const fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Ring bytes between tail and head, with what is being gathered.
    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used + self.writer.gathered_bytes() as u64
    }

    /// Most bytes that may gather for one frame.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        (self.ring_bytes / 8).min(4 << 20)
    }

    pub(crate) const fn gathered_bytes(&self) -> u64 {
        self.writer.gathered_bytes() as u64
    }

    pub(crate) const fn durable(&self) -> Position {
        self.writer.durable()
    }

    /// The position of the last record that was appended.
    pub(crate) const fn last(&self) -> Position {
        self.last
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.writer.is_idle()
    }

    pub(crate) fn append(&mut self, record: &Record) -> Position {
        let mut head = std::mem::take(&mut self.scratch);
        let tail = record.encode(&mut head);
        self.last = self.writer.append_parts(&[&head, tail]);
        self.scratch = head;
        self.last
    }

    /// The next frame, if none is in flight and the ring has room for it.
    pub(crate) fn next_frame(&mut self) -> Option<FrameWrite> {
        let wanted = padded(self.writer.gathered_bytes() as u64 + 48);
        let gap = if self.head + wanted > self.ring_bytes {
            self.ring_bytes - self.head
        } else {
            0
        };
        // One block stays free, so that a full ring differs from an empty one.
        if self.used + gap + wanted + BLOCK > self.ring_bytes {
            return None;
        }
        let chain = self.writer.chain();
        let records = self.writer.gathered_records();
        let frame = self.writer.next_frame()?;
        if gap > 0 {
            // The frame before takes the gap along; if there is none that is
            // needed, the gap is free already.
            if let Some(before) = self.frames.back_mut() {
                before.bytes += gap;
                self.used += gap;
            }
            self.head = 0;
        }
        let at = self.head;
        self.frames.push_back(FrameAt {
            point: RingPoint { offset: at, chain },
            bytes: wanted,
        });
        self.used += wanted;
        self.head += wanted;
        if self.head == self.ring_bytes {
            self.head = 0;
        }
        self.frames_written += 1;
        self.bytes_written += wanted;
        self.frame_records.record(records.into());
        Some(FrameWrite {
            position: frame.position,
            offset_bytes: RING_OFFSET + at,
            padded: frame.padded,
        })
    }

    pub(crate) fn frame_durable(&mut self) -> Position {
        self.writer.frame_durable()
    }

    /// Where replay has to begin if records from `low` on are needed.
    pub(crate) fn point_of(&self, low: Position) -> RingPoint {
        self.frames
            .iter()
            .find(|frame| frame.point.chain.next_sequence >= low.0)
            .map_or_else(|| self.end(), |frame| frame.point)
    }

    /// The place behind the last frame that was handed out.
    pub(crate) const fn end(&self) -> RingPoint {
        RingPoint {
            offset: self.head,
            chain: self.writer.chain(),
        }
    }

    /// Frames before `point` are not needed any more.
    pub(crate) fn trim(&mut self, point: &RingPoint) {
        self.trims += 1;
        while let Some(frame) = self.frames.front()
            && frame.point.chain.next_sequence < point.chain.next_sequence
        {
            self.used -= frame.bytes;
            self.frames.pop_front();
        }
    }
}

/// What replay has found: the frames, and where the chain ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingReplay {
    pub(crate) point: RingPoint,
    frames: Vec<FrameAt>,
}

impl RingReplay {
    pub(crate) const fn new(point: RingPoint) -> Self {
        Self {
            point,
            frames: Vec::new(),
        }
    }

    /// A frame of `length` bytes was found at `offset` of the ring; the chain
    /// goes on as `after`.
    pub(crate) fn found(
        &mut self,
        offset: u64,
        length: u64,
        after: crossdock_log::ChainPosition,
        ring_bytes: u64,
    ) {
        if offset != self.point.offset
            && let Some(before) = self.frames.last_mut()
        {
            before.bytes += ring_bytes - self.point.offset;
        }
        let point = RingPoint {
            offset,
            chain: self.point.chain,
        };
        let bytes = padded(length);
        self.frames.push(FrameAt { point, bytes });
        self.point = RingPoint {
            offset: (offset + bytes) % ring_bytes,
            chain: after,
        };
    }

    pub(crate) fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.bytes).sum()
    }
}

/// Rounded up to whole blocks.
pub(crate) const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK) * BLOCK
}
