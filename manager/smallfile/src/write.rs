//! Plans of everything that changes: write, commit, truncate, flush, void.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_names::{FileId, Version};
use crossdock_peer::Stability;

use crate::machine::{INLINE_BYTES_MAX, block_range};
use crate::map::{BLOCK_BYTES, BLOCKS, Block, Blocks};
use crate::overlay::{END, PIECE_OVERHEAD_BYTES, end_of};
use crate::read::checked_range;
use crate::record::{Body, RECORD_FILES_MAX, Record};
use crate::{BackingRead, Change, Fetched, Plan, Sequence, SmallFileError, SmallFiles, Write};

/// A file whose blocks are to be written to new fragments.
pub(crate) struct Job {
    serial: u64,
    /// New bytes, above what is inlined.
    above: Vec<(u32, Bytes)>,
    /// Which blocks.
    blocks: [bool; BLOCKS],
}

/// New content of blocks, by file.
pub(crate) type Contents = BTreeMap<u64, Vec<(usize, Bytes)>>;

impl SmallFiles {
    /// How to write. An unstable write is buffered at once, if there is room;
    /// else it is planned as a stable one.
    ///
    /// # Errors
    /// Any [`SmallFileError`].
    pub fn plan_write(&mut self, write: &Write, fetched: &Fetched) -> Result<Plan, SmallFileError> {
        let serial = write.file.serial();
        let (start, end) = checked_range(write.offset_bytes, write.payload.len() as u64)?;
        if start == end {
            return Ok(self.done(serial));
        }
        let length = write.payload.len();
        let room = self
            .unstable
            .has_room(length, self.config.unstable_bytes_max);
        if write.stability == Stability::Unstable && room {
            self.unstable
                .insert(serial, start, write.payload.to_bytes());
            return Ok(Plan::Done { after: None });
        }
        if let Some(&busy) = self.busy.get(&serial) {
            return Ok(Plan::Wait(Sequence(busy)));
        }
        let settles = vec![(serial, start, end)];
        let pieces = vec![(start, write.payload.to_bytes())];
        if self.may_inline(&pieces) {
            return Ok(Plan::Change(self.inline(serial, pieces, settles)));
        }
        let job = Job::over(serial, pieces);
        self.plan_fragments(write.version, vec![job], settles, fetched)
    }

    /// How to make the unstable bytes of a file durable.
    ///
    /// # Errors
    /// [`SmallFileError::NoSpace`], [`SmallFileError::Busy`].
    pub fn plan_commit(
        &mut self,
        file: FileId,
        version: Version,
        fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        let serial = file.serial();
        let pieces = self.unstable.within(serial, 0, END);
        if pieces.is_empty() {
            return Ok(self.done(serial));
        }
        if let Some(&busy) = self.busy.get(&serial) {
            return Ok(Plan::Wait(Sequence(busy)));
        }
        let settles = vec![(serial, 0, END)];
        if self.may_inline(&pieces) {
            return Ok(Plan::Change(self.inline(serial, pieces, settles)));
        }
        let job = Job::over(serial, pieces);
        self.plan_fragments(version, vec![job], settles, fetched)
    }

    /// How to drop everything at and beyond `size_bytes` (any size; 0 also
    /// when the file is removed). Never fetches, never needs space.
    pub fn plan_truncate(&mut self, file: FileId, size_bytes: u64) -> Plan {
        let serial = file.serial();
        let Some(size) = u32::try_from(size_bytes).ok().filter(|&size| size < END) else {
            return self.done(serial);
        };
        let beyond = |(index, block): (usize, Block)| {
            let (start, _) = block_range(index);
            start >= size || start + u32::from(block.valid) > size
        };
        if !self.maps.get(serial).iter().any(beyond)
            && self.inlined.within(serial, size, END).is_empty()
            && self.unstable.within(serial, size, END).is_empty()
        {
            return self.done(serial);
        }
        if let Some(&busy) = self.busy.get(&serial) {
            return Plan::Wait(Sequence(busy));
        }
        let mut change = self.change(Body::Truncate { serial, size });
        change.settles_unstable = vec![(serial, size, END)];
        Plan::Change(change)
    }

    /// How to move inlined pieces into fragments, up to about `bytes_max` of
    /// content: one stream of backing writes. Done when there are none left
    /// (that can move now).
    ///
    /// # Errors
    /// [`SmallFileError::NoSpace`], [`SmallFileError::Busy`].
    pub fn plan_flush(
        &mut self,
        version: Version,
        bytes_max: usize,
        fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        let mut jobs = Vec::new();
        let mut bytes = 0;
        let mut next = self.inlined.next_file(0);
        while let Some(serial) = next {
            if bytes >= bytes_max || jobs.len() >= RECORD_FILES_MAX {
                break;
            }
            if !self.busy.contains_key(&serial) {
                let mut job = Job::over(serial, Vec::new());
                for (start, piece) in self.inlined.of(serial) {
                    job.touch(start, end_of(start, piece));
                }
                bytes += job.content_bytes_max();
                jobs.push(job);
            }
            next = self.inlined.next_file(serial + 1);
        }
        if jobs.is_empty() {
            return Ok(Plan::Done { after: None });
        }
        let mut plan = self.plan_fragments(version, jobs, Vec::new(), fetched)?;
        if let Plan::Change(change) = &mut plan {
            change.invisible = true;
        }
        Ok(plan)
    }

    /// Whether enough is inlined to call [`plan_flush`](Self::plan_flush).
    #[must_use]
    pub const fn flush_is_due(&self) -> bool {
        self.inlined.charged_bytes() > self.config.inlined_bytes_max / 2
    }

    /// A record that lets freed space be reused: to be logged when the site is
    /// idle or short of space; `None` if it would free nothing.
    pub fn plan_mark(&mut self) -> Option<Change> {
        self.mark_helps().then(|| self.change(Body::Mark))
    }

    /// Undoes changes whose backing writes failed (live), or that a
    /// [`crate::ReplayTail`] dropped. The operation that wanted the change is
    /// answered with the error after this one has settled.
    pub fn plan_void(&mut self, sequences: &[Sequence]) -> Change {
        let voids: Vec<u64> = sequences.iter().map(|sequence| sequence.0).collect();
        // After a replay the last record may be the void one: its number is taken.
        self.next = voids
            .iter()
            .fold(self.next, |next, &void| next.max(void + 1));
        self.change(Body::Void(voids))
    }

    fn done(&self, serial: u64) -> Plan {
        Plan::Done {
            after: self.unsettled(serial),
        }
    }

    fn may_inline(&self, pieces: &[(u32, Bytes)]) -> bool {
        let bytes: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let overhead = (pieces.len() - 1) * PIECE_OVERHEAD_BYTES;
        bytes <= INLINE_BYTES_MAX
            && self
                .inlined
                .has_room(bytes + overhead, self.config.inlined_bytes_max)
    }

    fn inline(
        &self,
        serial: u64,
        pieces: Vec<(u32, Bytes)>,
        settles: Vec<(u64, u32, u32)>,
    ) -> Change {
        let pieces = pieces
            .into_iter()
            .map(|(start, bytes)| (serial, start, bytes));
        let mut change = self.change(Body::Inline(pieces.collect()));
        change.settles_unstable = settles;
        change
    }

    fn change(&self, body: Body) -> Change {
        // In its own record a change is not written yet, if it has writes.
        let decoded = Record {
            sequence: self.next,
            written_below: self.written_below(),
            body,
        };
        Change {
            sequence: Sequence(self.next),
            record: decoded.encode(),
            writes: Vec::new(),
            decoded,
            settles_unstable: Vec::new(),
            contents: BTreeMap::new(),
            invisible: false,
        }
    }

    fn plan_fragments(
        &mut self,
        version: Version,
        jobs: Vec<Job>,
        settles: Vec<(u64, u32, u32)>,
        fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        let contents = match self.contents(&jobs, fetched) {
            Ok(contents) => contents,
            Err(reads) => {
                return Ok(Plan::Fetch {
                    reads,
                    ticket: self.begin_read(),
                });
            }
        };
        let all = contents.iter().flat_map(|(&serial, blocks)| {
            blocks
                .iter()
                .map(move |(index, bytes)| (serial, *index, bytes.clone()))
        });
        let all: Vec<(u64, usize, Bytes)> = all.collect();
        let bytes: usize = all.iter().map(|(.., bytes)| bytes.len()).sum();
        if self.in_flight_bytes > 0
            && self.in_flight_bytes + bytes > self.config.in_flight_bytes_max
        {
            return Err(SmallFileError::Busy);
        }
        let mut blocks: Vec<Block> = all
            .iter()
            .map(|(.., bytes)| unplaced_block(bytes))
            .collect();
        let sizes: Vec<u32> = blocks.iter().map(Block::units).collect();
        let Some(places) = self.space.find(&sizes) else {
            let later = self.has_pending_space();
            return Err(if later {
                SmallFileError::Busy
            } else {
                SmallFileError::NoSpace
            });
        };
        let mut files: Vec<(u64, Vec<(usize, Block)>)> = Vec::new();
        let mut fragments = Vec::new();
        for ((block, unit), (serial, index, bytes)) in blocks.iter_mut().zip(places).zip(all) {
            block.unit = unit;
            fragments.push((*block, bytes));
            match files.last_mut() {
                Some((last, blocks)) if *last == serial => blocks.push((index, *block)),
                _ => files.push((serial, vec![(index, *block)])),
            }
        }
        let mut change = self.change(Body::Write { version, files });
        change.writes = self.backing.writes(fragments, version);
        change.settles_unstable = settles;
        change.contents = contents;
        Ok(Plan::Change(change))
    }

    /// What the blocks of all jobs will hold (but for what is unstable), or what has to be read
    /// first.
    pub(crate) fn contents(
        &self,
        jobs: &[Job],
        fetched: &Fetched,
    ) -> Result<Contents, Vec<BackingRead>> {
        let mut contents = Contents::new();
        let mut reads = Vec::new();
        for job in jobs {
            let blocks = self.maps.get(job.serial);
            for index in (0..BLOCKS).filter(|&index| job.blocks[index]) {
                if let Some(bytes) = self.content(job, &blocks, index, fetched) {
                    contents.entry(job.serial).or_default().push((index, bytes));
                } else {
                    let block = &blocks.blocks[index];
                    let range = (0, u32::from(block.stored));
                    self.backing
                        .push_read(&mut reads, block, range, blocks.version);
                }
            }
        }
        if reads.is_empty() {
            Ok(contents)
        } else {
            Err(reads)
        }
    }

    /// What a block will hold; `None` if its old bytes are needed for that.
    fn content(
        &self,
        job: &Job,
        blocks: &Blocks,
        index: usize,
        fetched: &Fetched,
    ) -> Option<Bytes> {
        let (start, end) = block_range(index);
        let block = &blocks.blocks[index];
        let mut layers = self.inlined.within(job.serial, start, end);
        for (at, bytes) in &job.above {
            let from = start.max(*at);
            let to = end.min(end_of(*at, bytes));
            if from < to {
                layers.push((from, bytes.slice((from - at) as usize..(to - at) as usize)));
            }
        }
        let ends = layers.iter().map(|(at, bytes)| end_of(*at, bytes) - start);
        let length = ends.max().unwrap_or(0).max(u32::from(block.valid));
        // The common case, a block that is written whole, is not copied.
        if let Some((at, bytes)) = layers.last()
            && *at == start
            && end_of(*at, bytes) - start == length
        {
            return Some(bytes.clone());
        }
        let mut content = vec![0; length as usize];
        if !covers(&layers, start, start + u32::from(block.valid)) {
            let (object, offset) = self.backing.place(block.unit);
            let old = fetched.get(object, offset, u32::from(block.stored), block.crc)?;
            let valid = usize::from(block.valid);
            content[..valid].copy_from_slice(&old[..valid]);
        }
        for (at, bytes) in layers {
            let at = (at - start) as usize;
            content[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Some(Bytes::from(content))
    }
}

impl Job {
    pub(crate) fn over(serial: u64, above: Vec<(u32, Bytes)>) -> Self {
        let mut job = Self {
            serial,
            above: Vec::new(),
            blocks: [false; BLOCKS],
        };
        for (start, bytes) in &above {
            job.touch(*start, end_of(*start, bytes));
        }
        job.above = above;
        job
    }

    pub(crate) fn touch(&mut self, start: u32, end: u32) {
        let last = (end - 1) / BLOCK_BYTES;
        for index in start / BLOCK_BYTES..=last {
            self.blocks[index as usize] = true;
        }
    }

    fn content_bytes_max(&self) -> usize {
        self.blocks.iter().filter(|&&touched| touched).count() * BLOCK_BYTES as usize
    }
}

/// Whether the pieces together cover `start..end`.
fn covers(pieces: &[(u32, Bytes)], start: u32, end: u32) -> bool {
    let mut ranges: Vec<(u32, u32)> = pieces
        .iter()
        .map(|(at, bytes)| (*at, end_of(*at, bytes)))
        .collect();
    ranges.sort_unstable();
    let reached = ranges.into_iter().fold(start, |reached, (from, to)| {
        if from <= reached {
            reached.max(to)
        } else {
            reached
        }
    });
    reached >= end
}

/// The block that these bytes make, its place not chosen yet.
fn unplaced_block(bytes: &Bytes) -> Block {
    let stored = u16::try_from(bytes.len()).expect("content is at most one block");
    Block {
        unit: 0,
        crc: crc32c(bytes),
        stored,
        valid: stored,
    }
}
