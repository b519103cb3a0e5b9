//! Reads: what is where, checked against its checksum, merged with the overlay.

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::{DiskError, DiskOutput};
use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError};
use crossdock_types::{BLOCK_BYTES, Payload};

use crate::interface::Mutation;
use crate::object::Object;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::store::{BLOCK, DiskUse, Store, busy};

/// Where the bytes of a range are, as of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    segments: Vec<Segment>,
    pub(crate) length: u64,
    /// The newest version in the range.
    pub(crate) version: Version,
}

#[derive(Clone, Debug)]
enum Segment {
    Bytes(Bytes),
    Zeros(u64),
    /// Bytes of the disk from `at` on, and the checksums of the blocks they lie in.
    Disk {
        at: u64,
        length: u64,
        checksums: Vec<u32>,
    },
}

impl Segment {
    const fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(length) | Self::Disk { length, .. } => *length,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "within one request")]
    fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(from as usize..to as usize)),
            Self::Zeros(_) => Self::Zeros(to - from),
            Self::Disk { at, checksums, .. } => {
                let first = (at + from) / BLOCK - at / BLOCK;
                let end = (at + to).div_ceil(BLOCK) - at / BLOCK;
                Self::Disk {
                    at: at + from,
                    length: to - from,
                    checksums: checksums[first as usize..end as usize].to_vec(),
                }
            }
        }
    }
}

impl Plan {
    /// Bytes `from..to`, counted from the plan's first.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        let mut segments = Vec::new();
        let mut at = 0;
        for segment in &self.segments {
            let (start, end) = (from.max(at), to.min(at + segment.length()));
            if start < end {
                segments.push(segment.part(start - at, end - at));
            }
            at += segment.length();
        }
        Self {
            segments,
            length: to - from,
            version: self.version,
        }
    }

    /// The blocks that have to be there, each once, with their checksums.
    pub(crate) fn blocks(&self) -> Vec<(u64, u32)> {
        let mut blocks: Vec<(u64, u32)> = Vec::new();
        for segment in &self.segments {
            if let Segment::Disk { at, checksums, .. } = segment {
                let first = at / BLOCK;
                for (block, checksum) in (first..).zip(checksums) {
                    if blocks.last().is_none_or(|(last, _)| *last != block) {
                        blocks.push((block, *checksum));
                    }
                }
            }
        }
        blocks
    }

    fn push(&mut self, segment: Segment) {
        self.length += segment.length();
        self.segments.push(segment);
    }

    /// Puts together what was found; `pieces` are (first block, content).
    pub(crate) fn assemble(&self, pieces: &[(u64, Bytes)]) -> Payload {
        let mut payload = Payload::new();
        for segment in &self.segments {
            match segment {
                Segment::Bytes(bytes) => payload.push(bytes.clone()),
                #[expect(clippy::cast_possible_truncation, reason = "within one request")]
                Segment::Zeros(length) => payload.push_zeros(*length as usize),
                Segment::Disk { at, length, .. } => take_bytes(pieces, *at, *length, &mut payload),
            }
        }
        payload
    }
}

/// Adds `length` bytes of the disk from `at` on to the payload.
fn take_bytes(pieces: &[(u64, Bytes)], mut at: u64, length: u64, payload: &mut Payload) {
    let end = at + length;
    while at < end {
        let next = pieces.partition_point(|(block, _)| block * BLOCK <= at);
        let found = next.checked_sub(1).and_then(|index| pieces.get(index));
        let holds = |(block, bytes): &&(u64, Bytes)| block * BLOCK + bytes.len() as u64 > at;
        let Some((block, bytes)) = found.filter(holds) else {
            // It could not be read; whoever gets the payload knows.
            let to = end.min((at / BLOCK + 1) * BLOCK);
            #[expect(clippy::cast_possible_truncation, reason = "within a block")]
            payload.push_zeros((to - at) as usize);
            at = to;
            continue;
        };
        let skip = at - block * BLOCK;
        let to = end.min(block * BLOCK + bytes.len() as u64);
        #[expect(clippy::cast_possible_truncation, reason = "within the piece")]
        payload.push(bytes.slice(skip as usize..(skip + to - at) as usize));
        at = to;
    }
}

/// Contiguous blocks as a range, and their checksums.
fn unread(stretch: &[(u64, u32)]) -> (DiskRange, Vec<u32>) {
    let block = stretch.first().map_or(0, |(block, _)| *block);
    let blocks = stretch.len() as u64;
    let checksums = stretch.iter().map(|(_, checksum)| *checksum).collect();
    (DiskRange { block, blocks }, checksums)
}

/// Who wants the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Client(CallId),
    /// A flight that merges.
    Settle(u64),
    Scrub,
}

/// A read whose blocks are on their way.
#[derive(Debug)]
pub(crate) struct ReadWait {
    reader: Reader,
    plan: Plan,
    pieces: Vec<(u64, Bytes)>,
    outstanding: usize,
    error: Option<String>,
    /// A request for part of it never reached the disk.
    is_given_up: bool,
}

impl ReadWait {
    pub(crate) const fn reader(&self) -> Reader {
        self.reader
    }
}

impl Store {
    /// Where the bytes `from..to` are; the runs are known.
    pub(crate) fn plan(&self, object: &Object, from: u64, to: u64) -> Plan {
        let mut plan = Plan::default();
        let mut at = from;
        let pieces: Vec<_> = object.overlay.range(from, to).collect();
        for (offset, piece) in pieces {
            self.plan_runs(object, at, offset, &mut plan);
            at = offset + piece.length;
            plan.version = plan.version.max(piece.version);
            plan.push(match piece.bytes {
                Some(bytes) => Segment::Bytes(bytes),
                None => Segment::Zeros(piece.length),
            });
        }
        self.plan_runs(object, at, to, &mut plan);
        plan
    }

    fn plan_runs(&self, object: &Object, from: u64, to: u64, plan: &mut Plan) {
        let serial = object.head.serial;
        let mut at = from;
        while at < to {
            let block = at / BLOCK;
            let number = block / WINDOW_BLOCKS;
            let window = self.windows.get(&(serial, number));
            let window_end = to.min((number + 1) * WINDOW_BLOCKS * BLOCK);
            if let Some((first, run)) = window.and_then(|window| window.find(block)) {
                let end = window_end.min((first + run.blocks()) * BLOCK);
                let part = run.part(block - first, end.div_ceil(BLOCK) - first);
                plan.version = plan.version.max(run.version);
                plan.push(Segment::Disk {
                    at: part.disk * BLOCK + at % BLOCK,
                    length: end - at,
                    checksums: part.checksums,
                });
                at = end;
            } else {
                let next = window.and_then(|window| window.next_after(block));
                let end = next.map_or(window_end, |next| window_end.min(next * BLOCK));
                // Zeros may have been made by a truncate or zero; which one is
                // not known, so the newest counts.
                plan.version = plan.version.max(object.head.hole_version);
                plan.push(Segment::Zeros(end - at));
                at = end;
            }
        }
    }

    /// Fetches the blocks of a plan.
    pub(crate) fn start_read(&mut self, reader: Reader, plan: Plan) {
        let mut pieces = Vec::new();
        let mut missing: Vec<(DiskRange, Vec<u32>)> = Vec::new();
        let blocks = plan.blocks();
        let mut rest = blocks.as_slice();
        while let Some((block, _)) = rest.first().copied() {
            let length = (0u64..)
                .zip(rest)
                .take_while(|(i, (b, _))| *b == block + i)
                .count();
            let (stretch, after) = rest.split_at(length);
            rest = after;
            if reader == Reader::Scrub {
                missing.push(unread(stretch)); // The disk is asked, whatever memory has.
            } else {
                self.look_up(stretch, &mut pieces, &mut missing);
            }
        }
        let number = self.next_token;
        self.next_token += 1;
        let wait = ReadWait {
            reader,
            plan,
            pieces,
            outstanding: missing.len(),
            error: None,
            is_given_up: false,
        };
        if missing.is_empty() {
            self.end_read(wait);
            return;
        }
        self.reads.insert(number, wait);
        for (range, checksums) in missing {
            self.counters.miss_blocks += range.blocks;
            self.holds.add(range);
            let purpose = DiskUse::DataRead {
                read: number,
                range,
                checksums,
            };
            self.submit_read(range, purpose);
        }
    }

    /// Contiguous blocks: from the cache what is there.
    fn look_up(
        &mut self,
        stretch: &[(u64, u32)],
        pieces: &mut Vec<(u64, Bytes)>,
        missing: &mut Vec<(DiskRange, Vec<u32>)>,
    ) {
        let mut at = 0;
        while at < stretch.len() {
            let block = stretch[at].0;
            let wanted = (stretch.len() - at) as u64;
            if let Some(bytes) = self.cache.get(block, wanted) {
                at += bytes.len() / BLOCK_BYTES;
                pieces.push((block, bytes));
                continue;
            }
            let blocks = self.cache.missing(block, wanted).max(1);
            #[expect(clippy::cast_possible_truncation, reason = "within the stretch")]
            let end = at + blocks as usize;
            missing.push(unread(&stretch[at..end]));
            at = end;
        }
    }

    pub(crate) fn read_ended(
        &mut self,
        number: u64,
        range: DiskRange,
        checksums: &[u32],
        result: Result<DiskOutput, DiskError>,
    ) {
        self.holds.remove(range);
        let is_begun = !matches!(result, Err(DiskError::NotBegun));
        let checked = match result {
            Ok(DiskOutput::Read(buffer)) => {
                let bytes = buffer.freeze();
                self.check_blocks(range, checksums, &bytes).map(|()| bytes)
            }
            Ok(DiskOutput::Done) => Err((range, "the disk gave no bytes".to_owned())),
            Err(error) => Err((range, error.to_string())),
        };
        match &checked {
            Ok(_) => self.bad_blocks.forget(range),
            Err((bad, _)) if is_begun => self.bad_blocks.note(*bad),
            Err(_) => {}
        }
        let Some(wait) = self.reads.get_mut(&number) else {
            return;
        };
        wait.outstanding -= 1;
        match checked {
            Ok(bytes) => {
                wait.pieces.push((range.block, bytes.clone()));
                if wait.reader != Reader::Scrub {
                    self.cache.insert(range.block, bytes);
                }
            }
            Err(_) if !is_begun && matches!(wait.reader, Reader::Client(_)) => {
                wait.is_given_up = true;
            }
            Err((_, what)) => {
                wait.error.get_or_insert(what);
                self.counters.media_errors += 1;
            }
        }
        if wait.outstanding == 0
            && let Some(wait) = self.reads.remove(&number)
        {
            self.end_read(wait);
        }
    }

    /// Invariant 7: no block is handed out that does not match its checksum. The
    /// first one that does not, and what is wrong with it.
    fn check_blocks(
        &self,
        range: DiskRange,
        checksums: &[u32],
        bytes: &[u8],
    ) -> Result<(), (DiskRange, String)> {
        if self.config.has(Mutation::NoChecksumCheck) {
            return Ok(());
        }
        let blocks = bytes.chunks_exact(BLOCK_BYTES);
        for (block, (content, expected)) in (range.block..).zip(blocks.zip(checksums)) {
            let found = crc32c(content);
            if found != *expected {
                let what = format!(
                    "block {block} of the data disk has checksum {found:08x}, {expected:08x} is right"
                );
                return Err((DiskRange { block, blocks: 1 }, what));
            }
        }
        Ok(())
    }

    fn end_read(&mut self, mut wait: ReadWait) {
        wait.pieces.sort_unstable_by_key(|(block, _)| *block);
        let payload = wait.plan.assemble(&wait.pieces);
        match (wait.reader, wait.error) {
            (Reader::Client(call), _) if wait.is_given_up => self.refuse(call, busy()),
            (Reader::Client(call), None) => {
                let version = wait.plan.version;
                self.reply(call, NodeAnswer::Read { payload, version });
            }
            (Reader::Client(call), Some(what)) => {
                let error = self.media(what);
                self.refuse(call, error);
            }
            (Reader::Settle(flight), error) => {
                self.flight_merged(flight, &payload, error.as_deref());
            }
            (Reader::Scrub, error) => self.scrub_read(error),
        }
    }

    /// The range of a read that lies within the object.
    pub(crate) fn readable(
        &self,
        id: &ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<(u64, u64), NodeError> {
        let object = self.object(id).ok_or(NodeError::NoObject)?;
        let end = offset.saturating_add(length).min(object.visible_size);
        Ok((offset.min(end), end))
    }
}
