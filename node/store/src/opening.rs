//! Opening: finds or makes the superblock, then replays the journal from where
//! the index's last durable commit says.
//!
//! Costs what was in flight: records and the run maps that they touch, never
//! the capacity of the disk.

use std::collections::VecDeque;

use bytes::Bytes;
use crossdock_disk::{DiskError, DiskOperation, DiskOutput};
use crossdock_log::{ChainPosition, FrameError, FrameReader, LogId, Position};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use crate::apply::Applying;
use crate::index::{Batch, IndexCall, Meta, RingPoint, Wanted};
use crate::interface::{OpenError, OpenReport, StoreDisk, StoreEffect};
use crate::journal::{FoundSuperblock, Journal, RING_OFFSET, RingReplay, STORE_FORMAT, Superblock};
use crate::record::Record;
use crate::runs::WINDOW_BLOCKS;
use crate::store::{BLOCK, DiskUse, Phase, Store};

/// The least that works: frames of 32 KiB.
const RING_BYTES_MIN: u64 = 256 << 10;

const CAPACITY_BLOCKS_MIN: u64 = 32;

/// Bytes that are read at a time while replaying.
const READ_BYTES: u64 = 1 << 20;

/// Bytes that are written at a time while the ring is made.
const ZERO_BYTES: u64 = 1 << 20;

/// What opening is waiting for, and what it knows.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    step: Step,
    first_blocks: Option<Result<Bytes, DiskError>>,
    index: Option<IndexStart>,
    superblock: Option<Superblock>,
    meta: Meta,
    replay: Replay,
    report: OpenReport,
}

/// Meta record, free blocks of groups, dead run maps.
type IndexStart = (Option<Meta>, Vec<(u32, u32)>, Vec<u64>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Looking,
    GrowingRing,
    /// From this offset on the journal is not zeroed yet.
    Zeroing(u64),
    FlushingZeros,
    MakingIndex,
    WritingSuperblock,
    FlushingSuperblock,
    Reading,
    /// Records wait for the index.
    Loading,
    RewritingFrame,
    FlushingJournal,
    GrowingData,
}

/// Where replay is.
#[derive(Debug, Default)]
struct Replay {
    reader: Option<FrameReader>,
    found: RingReplay,
    ring_bytes: u64,
    /// Where the bytes that are being read begin in the ring.
    reading_at: u64,
    chunk: Bytes,
    /// The last frame that was found, with its padding, and where in the ring.
    last_frame: Option<(u64, Bytes)>,
    /// Records of a frame that was read.
    records: VecDeque<(Record, Position)>,
}

impl Store {
    pub(crate) fn begin_opening(&mut self) {
        if self.config.journal_bytes < RING_OFFSET + RING_BYTES_MIN {
            self.opening_failed(OpenError::Config("the journal needs at least 264 KiB"));
            return;
        }
        if self.config.capacity_bytes / BLOCK < CAPACITY_BLOCKS_MIN {
            self.opening_failed(OpenError::Config("the data disk needs at least 128 KiB"));
            return;
        }
        self.ask_index(IndexCall::Start);
        self.read_journal(0, RING_OFFSET + BLOCK);
    }

    pub(crate) fn opening_failed(&mut self, error: OpenError) {
        self.phase = Phase::Failed(error.to_string());
        self.effects.push_back(StoreEffect::Opened(Err(error)));
    }

    fn opening(&mut self) -> Option<&mut Opening> {
        match &mut self.phase {
            Phase::Opening(opening) => Some(opening),
            _ => None,
        }
    }

    fn step(&mut self, step: Step) {
        if let Some(opening) = self.opening() {
            opening.step = step;
        }
    }

    fn damaged(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.opening_failed(OpenError::Damaged { what });
    }

    fn read_journal(&mut self, offset_bytes: u64, length: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "a frame at most")]
        let buffer = AlignedBuffer::zeroed(length as usize);
        let read = DiskOperation::Read {
            offset_bytes,
            buffer: buffer.into(),
        };
        self.submit(StoreDisk::Journal, DiskUse::Opening, read);
    }

    pub(crate) fn index_started(
        &mut self,
        meta: Option<Meta>,
        free: Vec<(u32, u32)>,
        dead: Vec<u64>,
    ) {
        if let Some(opening) = self.opening() {
            opening.index = Some((meta, free, dead));
            self.look();
        }
    }

    pub(crate) fn opening_disk(&mut self, disk: StoreDisk, result: Result<DiskOutput, DiskError>) {
        let Some(opening) = self.opening() else {
            return;
        };
        let step = opening.step;
        if step == Step::Looking {
            opening.first_blocks = Some(result.map(|output| match output {
                DiskOutput::Read(buffer) => buffer.into_bytes(),
                DiskOutput::Done => Bytes::new(),
            }));
            self.look();
            return;
        }
        match (step, result) {
            (_, Err(error)) => {
                let what = format!("{disk:?} disk: {error}");
                self.opening_failed(OpenError::Disk { what });
            }
            (Step::GrowingRing, _) => self.zero_ring(0),
            (Step::Zeroing(offset), _) => self.zero_ring(offset),
            (Step::FlushingZeros, _) => self.make_index(),
            (Step::WritingSuperblock, _) => {
                self.step(Step::FlushingSuperblock);
                self.submit(disk, DiskUse::Opening, DiskOperation::Flush);
            }
            (Step::FlushingSuperblock, _) => self.begin_replay(),
            (Step::Reading, Ok(DiskOutput::Read(buffer))) => {
                if let Some(opening) = self.opening() {
                    opening.replay.chunk = buffer.into_bytes();
                }
                self.replay_chunk();
            }
            (Step::RewritingFrame, _) => self.flush_journal(),
            (Step::FlushingJournal, _) => self.grow_data(),
            (Step::GrowingData, _) => self.opened(),
            (Step::Looking | Step::Reading | Step::MakingIndex | Step::Loading, Ok(_)) => {}
        }
    }

    /// Superblock and index are both known: do they belong together?
    fn look(&mut self) {
        let node = self.config.node;
        let Some(opening) = self.opening() else {
            return;
        };
        let (Some(first), Some((meta, ..))) = (opening.first_blocks.clone(), &opening.index) else {
            return;
        };
        let meta = *meta;
        let first = match first {
            Ok(bytes) => bytes,
            // A new disk, or one whose making stopped at once.
            Err(DiskError::OutOfRange { .. }) => Bytes::new(),
            Err(error) => {
                let what = format!("Journal disk: {error}");
                self.opening_failed(OpenError::Disk { what });
                return;
            }
        };
        let superblocks = first.slice(..first.len().min(2 * BLOCK_BYTES));
        match Superblock::find(&superblocks) {
            FoundSuperblock::Blank => {
                let has_frames = first.iter().any(|byte| *byte != 0);
                if has_frames || meta.is_some_and(|meta| meta.complete > 0) {
                    self.damaged("the journal has no superblock, but there is data");
                    return;
                }
                self.make_store();
            }
            FoundSuperblock::Damaged => self.damaged("the journal's superblock cannot be read"),
            FoundSuperblock::UnknownFormat(found) => {
                let supported = STORE_FORMAT;
                self.opening_failed(OpenError::UnknownFormat { found, supported });
            }
            FoundSuperblock::Good(superblock) if superblock.node != node => {
                let found = superblock.node;
                let wanted = node;
                self.opening_failed(OpenError::ForeignNode { found, wanted });
            }
            FoundSuperblock::Good(superblock) => match meta {
                None => self.damaged("the index is empty, the journal is not"),
                Some(meta) if meta.store != superblock.store => {
                    self.damaged("journal and index belong to different stores");
                }
                Some(meta) => {
                    if let Some(opening) = self.opening() {
                        opening.superblock = Some(superblock);
                        opening.meta = meta;
                    }
                    self.begin_replay();
                }
            },
        }
    }

    fn make_store(&mut self) {
        let store = self.config.boot.0.max(1);
        let ring_bytes = (self.config.journal_bytes - RING_OFFSET) / BLOCK * BLOCK;
        let node = self.config.node;
        let Some(opening) = self.opening() else {
            return;
        };
        opening.report.is_new = true;
        opening.superblock = Some(Superblock {
            node,
            store,
            ring_bytes,
        });
        opening.meta = Meta {
            store,
            tail: RingPoint {
                offset: 0,
                chain: ChainPosition::start(),
            },
            next_serial: 1,
            next_stamp: 1,
            ..Meta::default()
        };
        opening.step = Step::GrowingRing;
        let length_bytes = RING_OFFSET + ring_bytes;
        let grow = DiskOperation::Grow { length_bytes };
        self.submit(StoreDisk::Journal, DiskUse::Opening, grow);
    }

    /// Writes zeros through, so that later no write of a frame has to convert
    /// or allocate anything in the file system (measured: DESIGN "Journal").
    fn zero_ring(&mut self, offset: u64) {
        let Some(superblock) = self.opening().and_then(|opening| opening.superblock) else {
            return;
        };
        let end = RING_OFFSET + superblock.ring_bytes;
        if offset == end {
            self.step(Step::FlushingZeros);
            self.submit(StoreDisk::Journal, DiskUse::Opening, DiskOperation::Flush);
            return;
        }
        let length = ZERO_BYTES.min(end - offset);
        self.step(Step::Zeroing(offset + length));
        #[expect(clippy::cast_possible_truncation, reason = "1 MiB at most")]
        let zeros = AlignedBuffer::zeroed(length as usize).freeze();
        let write = DiskOperation::Write {
            offset_bytes: offset,
            pieces: vec![zeros],
            is_durable: false,
        };
        self.submit(StoreDisk::Journal, DiskUse::Opening, write);
    }

    fn make_index(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        opening.step = Step::MakingIndex;
        let meta = opening.meta;
        self.ask_index(IndexCall::Apply(Box::new(Batch {
            meta,
            is_durable: true,
            ..Batch::default()
        })));
    }

    pub(crate) fn index_made(&mut self) {
        let Some(superblock) = self.opening().and_then(|opening| opening.superblock) else {
            return;
        };
        self.step(Step::WritingSuperblock);
        let write = DiskOperation::Write {
            offset_bytes: 0,
            pieces: vec![superblock.encode()],
            is_durable: false,
        };
        self.submit(StoreDisk::Journal, DiskUse::Opening, write);
    }

    fn begin_replay(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        let Some(superblock) = opening.superblock else {
            return;
        };
        let meta = opening.meta;
        if meta.tail.offset >= superblock.ring_bytes {
            self.damaged("the index points outside the journal");
            return;
        }
        opening.replay = Replay {
            reader: Some(FrameReader::new(LogId(superblock.store), meta.tail.chain)),
            found: RingReplay::new(meta.tail),
            ring_bytes: superblock.ring_bytes,
            ..Replay::default()
        };
        opening.report.store = superblock.store;
        let (_, free, dead) = opening.index.take().unwrap_or_default();
        self.store = superblock.store;
        self.space.start(meta.committed, meta.grown, free);
        self.dead = dead.into_iter().collect();
        self.totals.objects = meta.objects;
        self.totals.reserved = meta.reserved;
        self.totals.next_serial = meta.next_serial;
        self.totals.next_stamp = meta.next_stamp;
        self.checkpoint.saved = meta.complete;
        self.read_ring(meta.tail.offset, READ_BYTES);
    }

    fn read_ring(&mut self, offset: u64, length: u64) {
        let Some(opening) = self.opening() else {
            return;
        };
        opening.step = Step::Reading;
        opening.replay.reading_at = offset;
        let length = length.min(opening.replay.ring_bytes - offset);
        self.read_journal(RING_OFFSET + offset, length);
    }

    /// Takes the next frame out of what was read.
    fn replay_chunk(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        let replay = &mut opening.replay;
        let Some(reader) = &mut replay.reader else {
            return;
        };
        let at = replay.reading_at;
        match reader.read(&replay.chunk) {
            Ok(frame) => {
                let length = frame.length_bytes as u64;
                let after = reader.position();
                replay.found.found(at, length, after, replay.ring_bytes);
                let padded = frame.length_bytes.next_multiple_of(BLOCK_BYTES);
                let bytes = replay.chunk.split_to(padded.min(replay.chunk.len()));
                replay.last_frame = Some((at, bytes));
                replay.reading_at = replay.found.point.offset;
                let position = Position(frame.sequence);
                for bytes in frame.records() {
                    let Some(record) = Record::decode(&bytes) else {
                        self.damaged(format!("frame {} has an unknown record", position.0));
                        return;
                    };
                    replay.records.push_back((record, position));
                }
                self.go_on_replaying();
            }
            Err(FrameError::Short) => {
                let length = reader.length_of(&replay.chunk).unwrap_or(BLOCK_BYTES);
                let length = length.next_multiple_of(BLOCK_BYTES) as u64;
                if at + length > replay.ring_bytes {
                    self.jump_or_end(at);
                } else {
                    self.read_ring(at, length.max(READ_BYTES));
                }
            }
            Err(_) => self.jump_or_end(at),
        }
    }

    /// No frame here: it may lie at the ring's begin, if it was too long for
    /// the rest of the ring. Else the journal ends.
    fn jump_or_end(&mut self, at: u64) {
        if at == 0 {
            self.rewrite_frame();
        } else {
            self.read_ring(0, READ_BYTES);
        }
    }

    /// If the process before died of a flush that failed, the last frame is shown
    /// by reads, and no flush makes it durable: it is written once more.
    fn rewrite_frame(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        let Some((at, bytes)) = opening.replay.last_frame.take() else {
            self.flush_journal();
            return;
        };
        self.step(Step::RewritingFrame);
        let write = DiskOperation::Write {
            offset_bytes: RING_OFFSET + at,
            pieces: vec![bytes],
            is_durable: false,
        };
        self.submit(StoreDisk::Journal, DiskUse::Opening, write);
    }

    /// What was read back may still be in the device's cache only.
    fn flush_journal(&mut self) {
        self.step(Step::FlushingJournal);
        self.submit(StoreDisk::Journal, DiskUse::Opening, DiskOperation::Flush);
    }

    /// Applies the records of the frame, once what they concern is loaded.
    pub(crate) fn go_on_replaying(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        let complete = Position(opening.meta.complete);
        let records = std::mem::take(&mut opening.replay.records);
        let wanted = self.wanted_for(&records, complete);
        if wanted != Wanted::default() {
            if let Some(opening) = self.opening() {
                opening.replay.records = records;
                opening.step = Step::Loading;
            }
            self.load(wanted);
            return;
        }
        let count = records.len() as u64;
        for (record, position) in records {
            let how = if position <= complete {
                Applying::OverlayOnly
            } else {
                Applying::Replay
            };
            self.apply(record, position, how);
        }
        let Some(opening) = self.opening() else {
            return;
        };
        opening.report.records += count;
        opening.step = Step::Reading;
        let at = opening.replay.reading_at;
        if opening.replay.chunk.is_empty() {
            self.read_ring(at, READ_BYTES);
        } else {
            self.replay_chunk();
        }
    }

    /// What the records need that is not in memory.
    fn wanted_for(&mut self, records: &VecDeque<(Record, Position)>, complete: Position) -> Wanted {
        let mut wanted = Wanted::default();
        for (record, position) in records {
            if let Some(id) = record.object()
                && !self.objects.contains_key(&id)
                && !wanted.objects.contains(&id)
            {
                wanted.objects.push(id);
            }
            if *position > complete
                && let Some((serial, from, to)) = self.blocks_of(record)
            {
                let missing = self.missing_windows(serial, from, to);
                wanted.windows.extend(missing);
            }
        }
        wanted.windows.sort_unstable();
        wanted.windows.dedup();
        wanted
    }

    /// The run map that a record changes, and the blocks that the index may
    /// have runs for.
    fn blocks_of(&self, record: &Record) -> Option<(u64, u64, u64)> {
        if let Record::Reap {
            serial,
            first_block,
            end_block,
            ..
        } = record
        {
            return Some((*serial, *first_block, *end_block));
        }
        let head = &self.object(&record.object()?)?.head;
        let (from, to) = match record {
            Record::Map {
                first_block,
                checksums,
                ..
            }
            | Record::Marker {
                first_block,
                checksums,
                ..
            } => (*first_block, first_block + checksums.len() as u64),
            Record::Zero { offset, length, .. } => (
                offset / BLOCK,
                offset.saturating_add(*length).div_ceil(BLOCK),
            ),
            Record::Truncate { size, serial, .. } if *serial == head.serial => {
                (size / BLOCK, u64::MAX)
            }
            _ => return None,
        };
        let mapped_end = head.mapped_end.next_multiple_of(WINDOW_BLOCKS);
        Some((head.serial, from, to.min(mapped_end)))
    }

    /// A growth that was not flushed may be lost; what is mapped was flushed.
    fn grow_data(&mut self) {
        self.step(Step::GrowingData);
        let length_bytes = self.space.grown() * BLOCK;
        let grow = DiskOperation::Grow { length_bytes };
        self.submit(StoreDisk::Data, DiskUse::Opening, grow);
    }

    fn opened(&mut self) {
        let Some(opening) = self.opening() else {
            return;
        };
        let mut report = std::mem::take(&mut opening.report);
        let replay = std::mem::take(&mut opening.replay);
        report.frames = replay.found.frames();
        report.replayed_bytes = replay.found.bytes();
        self.journal = Journal::new(self.store, replay.ring_bytes, &replay.found);
        self.checkpoint.last_durable = self.now;
        self.checkpoint.last_writeback = self.now;
        self.phase = Phase::Open;
        self.effects.push_back(StoreEffect::Opened(Ok(report)));
    }
}
