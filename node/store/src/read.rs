//! Reads: what is where, checked against its checksum, merged with the overlay.

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::{DiskError, DiskOutput, DiskToken};
use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError};
use crossdock_types::{BLOCK_BYTES, Payload, Scatter, Time};

use crate::interface::{Mutation, StoreEffect};
use crate::mending::Mending;
use crate::object::Object;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::store::{BLOCK, DiskUse, Store, busy};
use crate::waiting::Hold;

/// Blocks that nobody wants, or that are in memory, are read with those on both sides of them: one
/// request for all costs a disk less than two requests do.
const PASSED_BLOCKS_MAX: u64 = 8;

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

/// Contiguous blocks of the disk, in parts that are held alone: first blocks and contents.
#[derive(Debug)]
pub(crate) struct Parts(Vec<(u64, Bytes)>);

impl Parts {
    fn of(first: u64, read: Scatter) -> Self {
        let mut block = first;
        let parts = read.freeze().map(|bytes| {
            let part = (block, bytes);
            block += blocks_of(&part.1);
            part
        });
        Self(parts.collect())
    }

    fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let parts = self.0.iter();
        parts.flat_map(|(first, bytes)| (*first..).zip(bytes.chunks_exact(BLOCK_BYTES)))
    }

    /// Puts another content in the place of a block.
    pub(crate) fn replace(&mut self, block: u64, content: Bytes) {
        let end = self
            .0
            .last()
            .map_or(0, |(first, bytes)| first + blocks_of(bytes));
        let range = |block: u64, end: u64| DiskRange {
            block,
            blocks: end.saturating_sub(block),
        };
        let before = self.within(range(0, block)).0;
        let behind = self.within(range(block + 1, end)).0;
        let all = before.into_iter().chain([(block, content)]).chain(behind);
        self.0 = all.collect();
    }

    /// Those of a range.
    fn within(&self, range: DiskRange) -> Self {
        let cut = |(block, bytes): &(u64, Bytes)| {
            let from = range.block.max(*block);
            let to = (range.block + range.blocks).min(block + blocks_of(bytes));
            let place = |at: u64| index((at - block) * BLOCK);
            (from < to).then(|| (from, bytes.slice(place(from)..place(to))))
        };
        Self(self.0.iter().filter_map(cut).collect())
    }
}

const fn blocks_of(bytes: &Bytes) -> u64 {
    (bytes.len() / BLOCK_BYTES) as u64
}

/// Contiguous blocks that are to be read, and their checksums.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) range: DiskRange,
    pub(crate) checksums: Vec<u32>,
}

fn unread(stretch: &[(u64, u32)]) -> Wanted {
    let block = stretch.first().map_or(0, |(block, _)| *block);
    let blocks = stretch.len() as u64;
    Wanted {
        range: DiskRange { block, blocks },
        checksums: stretch.iter().map(|(_, checksum)| *checksum).collect(),
    }
}

/// Ranges that lie close behind each other, for a request each.
fn near(missing: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut requests: Vec<Vec<Wanted>> = Vec::new();
    for wanted in missing {
        let block = wanted.range.block;
        let last = requests.last_mut();
        let last = last.filter(|request| {
            let end = request.last().map(|it| it.range.block + it.range.blocks);
            let passed = end.and_then(|end| block.checked_sub(end));
            passed.is_some_and(|passed| passed <= PASSED_BLOCKS_MAX)
        });
        match last {
            Some(request) => request.push(wanted),
            None => requests.push(vec![wanted]),
        }
    }
    requests
}

/// From the first block of several ranges to the last.
fn spanned(wanted: &[Wanted]) -> DiskRange {
    let block = wanted.first().map_or(0, |it| it.range.block);
    let last = wanted.last().map(|it| it.range);
    let end = last.map_or(block, |range| range.block + range.blocks);
    DiskRange {
        block,
        blocks: end - block,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "within one request")]
const fn index(number: u64) -> usize {
    number as usize
}

/// Who wants the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Client(CallId),
    /// A flight that merges.
    Settle(u64),
    Scrub,
    /// A flight that moves.
    Move(u64),
    /// Nobody yet: a client is expected to.
    Ahead,
}

impl Reader {
    /// Wants what the disk has, whatever memory has of it, and leaves nothing there.
    const fn is_of_disk(self) -> bool {
        matches!(self, Self::Scrub | Self::Move(_))
    }
}

/// A part of a disk read that has ended.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) token: DiskToken,
    /// Number of the read that it is for.
    pub(crate) read: u64,
    pub(crate) range: DiskRange,
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
    /// The sequential reader that it is of, or for.
    pub(crate) stream: Option<u64>,
    /// Until when nobody needs it.
    pub(crate) postponed: Option<Time>,
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

    /// Fetches the blocks of a plan, for a stream if it is known to be one's.
    pub(crate) fn start_read(&mut self, reader: Reader, stream: Option<u64>, plan: Plan) {
        let number = self.next_token;
        self.next_token += 1;
        let blocks = plan.blocks();
        let mut wait = ReadWait {
            reader,
            plan,
            pieces: Vec::new(),
            outstanding: 0,
            error: None,
            is_given_up: false,
            stream,
            postponed: None,
        };
        let mut missing = Vec::new();
        let mut rest = blocks.as_slice();
        while let Some((block, _)) = rest.first().copied() {
            let length = (0u64..)
                .zip(rest)
                .take_while(|(i, (b, _))| *b == block + i)
                .count();
            let (stretch, after) = rest.split_at(length);
            rest = after;
            match reader {
                Reader::Scrub | Reader::Move(_) => missing.push(unread(stretch)),
                Reader::Ahead => self.find_absent(stretch, &mut missing),
                Reader::Client(_) | Reader::Settle(_) => {
                    self.look_up(number, stretch, &mut wait, &mut missing);
                }
            }
        }
        wait.outstanding += missing.len();
        if wait.outstanding == 0 {
            self.end_read(wait);
            return;
        }
        self.reads.insert(number, wait);
        for wanted in near(missing) {
            self.fetch(number, wanted);
        }
    }

    /// Contiguous blocks: from the cache what is there, from reads under way what
    /// comes anyway.
    fn look_up(
        &mut self,
        number: u64,
        stretch: &[(u64, u32)],
        wait: &mut ReadWait,
        missing: &mut Vec<Wanted>,
    ) {
        let mut at = 0;
        while at < stretch.len() {
            let block = stretch[at].0;
            let wanted = (stretch.len() - at) as u64;
            if let Some(bytes) = self.cache.get(block, wanted) {
                at += bytes.len() / BLOCK_BYTES;
                wait.pieces.push((block, bytes));
                continue;
            }
            if let Some((joined, token)) = self.under_way.join(number, &stretch[at..]) {
                wait.outstanding += 1;
                self.counters.shared_blocks += joined as u64;
                self.effects.push_back(StoreEffect::Urgent(token));
                at += joined;
                continue;
            }
            let end = at + self.absent_from(block, wanted);
            missing.push(unread(&stretch[at..end]));
            at = end;
        }
    }

    /// Contiguous blocks: those that are neither in the cache nor on their way.
    fn find_absent(&self, stretch: &[(u64, u32)], missing: &mut Vec<Wanted>) {
        let mut at = 0;
        while at < stretch.len() {
            let block = stretch[at].0;
            let wanted = (stretch.len() - at) as u64;
            let present = self.cache.present(block, wanted);
            let there = present.max(self.under_way.coming(block, wanted));
            if there > 0 {
                at = index(at as u64 + there);
                continue;
            }
            let end = at + self.absent_from(block, wanted);
            missing.push(unread(&stretch[at..end]));
            at = end;
        }
    }

    /// How many of `wanted` blocks from `block` on, which is absent, one request
    /// should fetch.
    fn absent_from(&self, block: u64, wanted: u64) -> usize {
        let missing = self.cache.missing(block, wanted);
        index(self.under_way.ahead_of(block, missing).max(1))
    }

    /// Asks the disk for blocks, in one request.
    fn fetch(&mut self, number: u64, wanted: Vec<Wanted>) {
        let reader = self.reads.get(&number).map(ReadWait::reader);
        let blocks = wanted.iter().map(|it| it.range.blocks).sum::<u64>();
        if reader == Some(Reader::Ahead) {
            self.counters.ahead_blocks += blocks;
            self.ahead.in_flight_bytes += blocks * BLOCK;
        } else {
            self.counters.miss_blocks += blocks;
        }
        for it in &wanted {
            self.holds.add(it.range);
        }
        let purpose = DiskUse::DataRead {
            read: number,
            wanted: wanted.clone(),
        };
        let token = self.submit_read(spanned(&wanted), purpose);
        if !reader.is_some_and(Reader::is_of_disk) {
            for Wanted { range, checksums } in wanted {
                self.under_way.begin(token, range, checksums);
            }
        }
    }

    /// A client wants bytes `from..to` of an object, which `plan` has: if he reads on,
    /// the next ones are fetched, too.
    pub(crate) fn read_on(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (from, to): (u64, u64),
        plan: Plan,
    ) {
        let size = self.object(id).map_or(0, |object| object.visible_size);
        let noted = self.ahead.note(self.now, *id, (from, to), size);
        self.start_read(Reader::Client(call), noted.stream, plan);
        if let (Some(stream), Some(window)) = (noted.stream, noted.window) {
            self.read_ahead(id, stream, window);
        }
    }

    /// A gateway wants bytes of an object for who reads on towards them.
    pub(crate) fn read_towards(&mut self, id: &ObjectId, range: (u64, u64)) -> Result<(), Hold> {
        self.need_existing(id)?;
        let size = self.object(id).map_or(0, |object| object.visible_size);
        let noted = self.ahead.towards(self.now, *id, range, size);
        if let (Some(stream), Some(window)) = (noted.stream, noted.window) {
            self.fetch_ahead(id, stream, window)?;
        }
        Ok(())
    }

    /// Fetches bytes of an object for the next reads of a stream.
    fn read_ahead(&mut self, id: &ObjectId, stream: u64, window: (u64, u64)) {
        match self.fetch_ahead(id, stream, window) {
            // The next read finds the map there, and proposes the same.
            Err(Hold::Load(wanted)) => {
                self.load(*wanted);
            }
            Ok(()) | Err(Hold::Room | Hold::Refuse(_)) => {}
        }
    }

    fn fetch_ahead(
        &mut self,
        id: &ObjectId,
        stream: u64,
        (start, end): (u64, u64),
    ) -> Result<(), Hold> {
        let plan = self.plan_range(id, start, end - start)?;
        self.ahead.begun(id, start, end);
        self.start_read(Reader::Ahead, Some(stream), plan);
        Ok(())
    }

    pub(crate) fn read_ended(
        &mut self,
        (token, read): (DiskToken, u64),
        wanted: Vec<Wanted>,
        result: Result<DiskOutput, DiskError>,
    ) {
        let fetched = |range| Fetched { token, read, range };
        let is_begun = !matches!(result, Err(DiskError::NotBegun));
        let failed = match result {
            Ok(DiskOutput::Read(buffer)) => {
                let parts = Parts::of(spanned(&wanted).block, buffer);
                for Wanted { range, checksums } in wanted {
                    self.check_read(fetched(range), checksums, parts.within(range));
                }
                return;
            }
            Ok(DiskOutput::Done) => "the disk gave no bytes".to_owned(),
            Err(error) => error.to_string(),
        };
        for Wanted { range, .. } in wanted {
            let failed = Err((range, failed.clone()));
            self.read_known(&fetched(range), failed, is_begun);
        }
    }

    /// What a disk has given is what it should be, or is looked for where else it is.
    pub(crate) fn check_read(&mut self, fetched: Fetched, checksums: Vec<u32>, parts: Parts) {
        match self.check_blocks(&parts, &checksums) {
            Ok(()) => self.read_known(&fetched, Ok(parts), true),
            Err(found) => self.mend(Mending::new((fetched, checksums), parts, found)),
        }
    }

    /// It is known what came of a disk read: what is right, or what was bad first.
    pub(crate) fn read_known(
        &mut self,
        fetched: &Fetched,
        checked: Result<Parts, (DiskRange, String)>,
        is_begun: bool,
    ) {
        let range = fetched.range;
        self.holds.remove(range);
        match &checked {
            Ok(_) => self.bad_blocks.forget(range),
            Err((bad, _)) if is_begun => self.bad_blocks.note(*bad),
            Err(_) => {}
        }
        let reader = self.reads.get(&fetched.read).map(ReadWait::reader);
        if reader == Some(Reader::Ahead) {
            self.ahead.in_flight_bytes -= range.blocks * BLOCK;
        }
        if let Ok(parts) = &checked
            && !reader.is_some_and(Reader::is_of_disk)
        {
            for (block, bytes) in &parts.0 {
                self.cache.insert(*block, bytes.clone());
            }
        }
        for waiter in self.under_way.end(fetched.token, range.block) {
            match &checked {
                Ok(parts) => {
                    self.take_blocks(waiter.read, Ok(parts.within(waiter.wanted.range)), true)
                }
                // He finds out by himself what is wrong with his part.
                Err(_) => self.fetch(waiter.read, vec![waiter.wanted]),
            }
        }
        let parts = checked.map_err(|(_, what)| what);
        self.take_blocks(fetched.read, parts, is_begun);
    }

    /// One of the requests that a read waits for has ended.
    fn take_blocks(&mut self, number: u64, parts: Result<Parts, String>, is_begun: bool) {
        let Some(wait) = self.reads.get_mut(&number) else {
            return;
        };
        wait.outstanding -= 1;
        match parts {
            Ok(_) if wait.reader == Reader::Ahead => {} // The cache has them.
            Ok(parts) => wait.pieces.extend(parts.0),
            Err(_) if !is_begun && matches!(wait.reader, Reader::Client(_)) => {
                wait.is_given_up = true;
            }
            Err(what) => {
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
    fn check_blocks(&self, parts: &Parts, checksums: &[u32]) -> Result<(), (DiskRange, String)> {
        if self.config.has(Mutation::NoChecksumCheck) {
            return Ok(());
        }
        for ((block, content), expected) in parts.blocks().zip(checksums) {
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
        let payload = || wait.plan.assemble(&wait.pieces);
        match (wait.reader, wait.error) {
            (Reader::Client(call), _) if wait.is_given_up => self.refuse(call, busy()),
            (Reader::Client(call), None) => {
                let (payload, version) = (payload(), wait.plan.version);
                self.reply(call, NodeAnswer::Read { payload, version });
            }
            (Reader::Client(call), Some(what)) => {
                let error = self.media(what);
                self.refuse(call, error);
            }
            (Reader::Settle(flight), error) => {
                self.flight_merged(flight, &payload(), error.as_deref());
            }
            (Reader::Scrub, error) => self.scrub_read(error),
            (Reader::Move(flight), error) => self.move_read(flight, &payload(), error.is_some()),
            (Reader::Ahead, _) => {} // The cache has them.
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
