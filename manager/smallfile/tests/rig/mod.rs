//! A site, its log and its nodes, all lossy, around [`SmallFiles`].

mod event;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossdock_names::{FileId, ObjectId, SiteId, Version};
use crossdock_peer::Stability;
use crossdock_smallfile::{
    BackingRead, BackingWrite, Change, Checkpoint, CheckpointState, Fetched, Plan, ReadPlan,
    ReplayTail, Sequence, SmallFileError, SmallFiles, SmallFilesConfig, Standing, Write,
};
use crossdock_types::Payload;

pub(crate) use event::Event;

const THRESHOLD: usize = 64 << 10;
const SITE: SiteId = SiteId(3);
const SERIALS: [u64; 5] = [1, 2, 63, 64, 1 << 40];

/// How a change changes the content of a file.
#[derive(Clone, Debug)]
enum What {
    /// These bytes, from an offset.
    Bytes(usize, Vec<Option<u8>>),
    /// Nothing from here on.
    End(usize),
}

/// What a change does to the model.
#[derive(Clone, Debug)]
struct Effect {
    file: usize,
    what: What,
    unstable_before: Vec<(usize, u8)>,
}

struct Logged {
    sequence: Sequence,
    record: Vec<u8>,
    effect: Option<Effect>,
}

struct SlowRead {
    plan: ReadPlan,
    expected: Vec<u8>,
}

pub(crate) struct Rig {
    files: SmallFiles,
    version: Version,
    log: Vec<Logged>,
    durable: usize,
    void: BTreeSet<Sequence>,
    disk: BTreeMap<ObjectId, Vec<u8>>,
    in_flight: BTreeMap<Sequence, Vec<BackingWrite>>,
    slow_reads: Vec<SlowRead>,
    checkpoint: Option<(Checkpoint, Vec<Vec<u8>>, usize)>,
    published: Option<(Vec<Vec<u8>>, usize)>,
    /// Durable state as of the whole log, and unstable bytes above it.
    content: Vec<Vec<u8>>,
    unstable: Vec<Vec<Option<u8>>>,
}

fn config() -> SmallFilesConfig {
    SmallFilesConfig {
        object_bytes_max: 128 << 10,
        backing_bytes_max: 700 << 10,
        inlined_bytes_max: 24 << 10,
        unstable_bytes_max: 64 << 10,
        in_flight_bytes_max: 160 << 10,
        ..SmallFilesConfig::new(SITE)
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            files: SmallFiles::new(config()),
            version: Version(1),
            log: Vec::new(),
            durable: 0,
            void: BTreeSet::new(),
            disk: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            slow_reads: Vec::new(),
            checkpoint: None,
            published: None,
            content: vec![vec![0; THRESHOLD]; SERIALS.len()],
            unstable: vec![vec![None; THRESHOLD]; SERIALS.len()],
        }
    }

    pub(crate) fn step(&mut self, step: usize, event: Event) {
        self.version = self.version.next();
        match event {
            Event::Write {
                file,
                start,
                length,
                stable,
            } => self.write(step, file, start, length, stable),
            Event::Commit { file } => self.commit(file),
            Event::Truncate { file, size } => self.truncate(file, size),
            Event::Flush { bytes_max } => {
                let version = self.version;
                let plan =
                    self.plan(|files, fetched| files.plan_flush(version, bytes_max, fetched));
                if let Some(Plan::Change(change)) = plan {
                    self.accept(change, None);
                }
            }
            Event::Mark => {
                if let Some(change) = self.files.plan_mark() {
                    self.accept(change, None);
                }
            }
            Event::LogDurable { records } => self.log_durable(records),
            Event::BackingDone { which } => {
                if let Some(sequence) = self.pick_in_flight(which) {
                    self.land(sequence);
                }
            }
            Event::BackingFails { which } => {
                if let Some(sequence) = self.pick_in_flight(which) {
                    self.fail(sequence, which);
                }
            }
            Event::Read {
                file,
                start,
                length,
                slow,
            } => self.read(file, start, length, slow),
            Event::SlowReadsEnd => self.end_slow_reads(),
            Event::Checkpoint { bytes_max } => self.step_checkpoint(bytes_max),
            Event::Crash { seed } => self.crash(seed),
        }
        self.files.check_space().expect("space is exact");
    }

    fn write(&mut self, step: usize, file: usize, start: usize, length: usize, stable: bool) {
        let pattern = |at: usize| u8::try_from((step * 31 + at / 97 + 1) % 255 + 1).unwrap();
        let bytes: Vec<u8> = (start..start + length).map(pattern).collect();
        let write = Write {
            file: FileId::new(SITE, SERIALS[file]),
            offset_bytes: start as u64,
            payload: Payload::from(Bytes::from(bytes.clone())),
            stability: if stable {
                Stability::Stable
            } else {
                Stability::Unstable
            },
            version: self.version,
        };
        match self.plan(|files, fetched| files.plan_write(&write, fetched)) {
            Some(Plan::Change(change)) => {
                let bytes = bytes.into_iter().map(Some).collect();
                self.accept(change, Some((file, What::Bytes(start, bytes))));
            }
            Some(Plan::Done { after }) => {
                assert!(!stable && after.is_none(), "a stable write needs a record");
                for (place, byte) in self.unstable[file][start..].iter_mut().zip(bytes) {
                    *place = Some(byte);
                }
            }
            _ => {}
        }
    }

    fn commit(&mut self, file: usize) {
        let id = FileId::new(SITE, SERIALS[file]);
        let version = self.version;
        let plan = self.plan(|files, fetched| files.plan_commit(id, version, fetched));
        let any = self.unstable[file].iter().any(Option::is_some);
        match plan {
            Some(Plan::Change(change)) => {
                let bytes = self.unstable[file].clone();
                self.accept(change, Some((file, What::Bytes(0, bytes))));
            }
            Some(Plan::Done { .. }) => assert!(!any, "unstable bytes were forgotten"),
            _ => {}
        }
    }

    fn truncate(&mut self, file: usize, size: usize) {
        let id = FileId::new(SITE, SERIALS[file]);
        match self.plan(|files, _| Ok(files.plan_truncate(id, size as u64))) {
            Some(Plan::Change(change)) => self.accept(change, Some((file, What::End(size)))),
            Some(Plan::Done { .. }) => {
                assert!(self.visible(file)[size..].iter().all(|&byte| byte == 0));
            }
            _ => {}
        }
    }

    /// Drives one operation to its end; `None` if it was refused.
    fn plan(
        &mut self,
        mut operation: impl FnMut(&mut SmallFiles, &Fetched) -> Result<Plan, SmallFileError>,
    ) -> Option<Plan> {
        let mut fetched = Fetched::new();
        for _ in 0..8 {
            match operation(&mut self.files, &fetched) {
                Ok(Plan::Fetch { reads, ticket }) => {
                    for read in &reads {
                        let payload = read_disk(&self.disk, read);
                        fetched
                            .add(read, &payload)
                            .expect("bytes match their checksum");
                    }
                    self.files.read_done(ticket);
                }
                Ok(Plan::Wait(sequence)) => self.land(sequence),
                Ok(plan) => return Some(plan),
                Err(SmallFileError::Busy | SmallFileError::NoSpace) => return None,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("planning does not come to an end");
    }

    fn accept(&mut self, change: Change, effect: Option<(usize, What)>) {
        self.files.accept(&change);
        for write in &change.writes {
            let within = write.offset_bytes + write.payload.len() as u64;
            assert!(
                within <= config().object_bytes_max,
                "a write beyond its object"
            );
        }
        let effect = effect.map(|(file, what)| {
            let range = match &what {
                What::Bytes(start, bytes) => *start..start + bytes.len(),
                What::End(size) => *size..THRESHOLD,
            };
            let taken =
                range.filter_map(|at| self.unstable[file][at].take().map(|byte| (at, byte)));
            let unstable_before = taken.collect();
            Effect {
                file,
                what,
                unstable_before,
            }
        });
        if let Some(effect) = &effect {
            apply(&mut self.content, effect);
        }
        if !change.writes.is_empty() {
            self.in_flight.insert(change.sequence, change.writes);
        }
        self.log.push(Logged {
            sequence: change.sequence,
            record: change.record,
            effect,
        });
    }

    fn log_durable(&mut self, records: usize) {
        let durable = (self.durable + records).min(self.log.len());
        if durable > self.durable {
            self.durable = durable;
            self.files.durable(self.log[durable - 1].sequence);
        }
    }

    fn pick_in_flight(&self, which: usize) -> Option<Sequence> {
        let count = self.in_flight.len().max(1);
        self.in_flight.keys().nth(which % count).copied()
    }

    fn land(&mut self, sequence: Sequence) {
        let writes = self.in_flight.remove(&sequence).expect("it is under way");
        for write in &writes {
            write_disk(&mut self.disk, write, write.payload.len());
        }
        self.files.written(sequence);
    }

    /// A node has some of the writes, but answers with an error.
    fn fail(&mut self, sequence: Sequence, seed: usize) {
        let writes = self.in_flight.remove(&sequence).expect("it is under way");
        for write in &writes {
            write_disk(&mut self.disk, write, seed % (write.payload.len() + 1));
        }
        let change = self.files.plan_void(&[sequence]);
        self.accept(change, None);
        self.void.insert(sequence);
        let failed = self.log.iter().find(|logged| logged.sequence == sequence);
        let effect = failed.and_then(|logged| logged.effect.clone());
        if let Some(effect) = effect {
            for (at, byte) in effect.unstable_before {
                self.unstable[effect.file][at].get_or_insert(byte);
            }
        }
        self.fold();
    }

    /// The content that the log, but for void changes, says.
    fn fold(&mut self) {
        self.content = vec![vec![0; THRESHOLD]; SERIALS.len()];
        for logged in &self.log {
            if let Some(effect) = &logged.effect
                && !self.void.contains(&logged.sequence)
            {
                apply(&mut self.content, effect);
            }
        }
    }

    fn visible(&self, file: usize) -> Vec<u8> {
        let pairs = self.content[file].iter().zip(&self.unstable[file]);
        pairs
            .map(|(&stable, unstable)| unstable.unwrap_or(stable))
            .collect()
    }

    fn read(&mut self, file: usize, start: usize, length: usize, slow: bool) {
        let id = FileId::new(SITE, SERIALS[file]);
        let plan = self
            .files
            .plan_read(id, start as u64, length as u64)
            .expect("in range");
        let expected = self.visible(file)[start..start + length].to_vec();
        let read = SlowRead { plan, expected };
        if slow && self.slow_reads.len() < 4 {
            self.slow_reads.push(read);
        } else {
            self.end_read(&read);
        }
    }

    fn end_slow_reads(&mut self) {
        for read in std::mem::take(&mut self.slow_reads) {
            self.end_read(&read);
        }
    }

    fn end_read(&mut self, read: &SlowRead) {
        let payloads = read.plan.reads().map(|read| {
            let payload = read_disk(&self.disk, read);
            read.verify(&payload).expect("bytes match their checksum");
            payload
        });
        let payloads = payloads.collect();
        let got = read
            .plan
            .assemble(payloads)
            .expect("all bytes are there")
            .to_bytes();
        assert_eq!(got.len(), read.expected.len());
        let differs = got
            .iter()
            .zip(&read.expected)
            .position(|(got, expected)| got != expected);
        assert_eq!(differs, None, "a byte differs in {:?}", read.plan);
        if let Some(ticket) = read.plan.ticket {
            self.files.read_done(ticket);
        }
    }

    fn step_checkpoint(&mut self, bytes_max: usize) {
        let Some((checkpoint, chunks, _)) = &mut self.checkpoint else {
            let checkpoint = self.files.begin_checkpoint();
            self.checkpoint = Some((checkpoint, Vec::new(), self.log.len()));
            return;
        };
        if let Some(chunk) = checkpoint.next_chunk(bytes_max) {
            chunks.push(chunk);
            return;
        }
        match self.files.checkpoint_state(checkpoint) {
            CheckpointState::Waiting => {}
            CheckpointState::Broken => self.checkpoint = None,
            CheckpointState::Ready => {
                self.published = self.checkpoint.take().map(|(_, chunks, log)| (chunks, log));
            }
        }
    }

    /// Loses all that is not durable, but for what got through by chance;
    /// then opens again and compares.
    pub(crate) fn crash(&mut self, seed: u16) {
        let mut chance = u64::from(seed) | 1 << 20;
        let mut draw = |bound: usize| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(chance >> 33).unwrap() % bound
        };
        let settled: BTreeSet<Sequence> = {
            let sequences = self.log[..self.durable]
                .iter()
                .map(|logged| logged.sequence);
            sequences
                .filter(|&sequence| self.files.standing(sequence) == Standing::Settled)
                .collect()
        };
        let kept = self.durable + draw(self.log.len() - self.durable + 1);
        self.log.truncate(kept);
        for write in std::mem::take(&mut self.in_flight).values().flatten() {
            let whole = write.payload.len();
            let landed = [0, whole, draw(whole)][draw(3)];
            write_disk(&mut self.disk, write, landed);
        }
        self.slow_reads.clear();
        self.checkpoint = None;
        self.unstable = vec![vec![None; THRESHOLD]; SERIALS.len()];
        self.reopen(&settled);
        self.fold();
        for file in 0..SERIALS.len() {
            self.read(file, 0, THRESHOLD, false);
        }
        self.files.check_space().expect("space is exact");
    }

    fn reopen(&mut self, settled: &BTreeSet<Sequence>) {
        self.files = SmallFiles::new(config());
        let (chunks, first) = self.published.clone().unwrap_or_default();
        for chunk in &chunks {
            self.files.load(chunk).expect("a checkpoint loads");
        }
        let mut tail = ReplayTail::new();
        // A log may be read from before the checkpoint: what it has is left out.
        for logged in &self.log[first.saturating_sub(self.log.len() % 3)..] {
            let summary = self.files.summary(&logged.record).expect("own record");
            tail.push(logged.record.clone(), Some(summary));
            while let Some(record) = tail.pop() {
                self.files.replay(&record).expect("own record");
            }
        }
        let matches = |reads: &[BackingRead]| {
            reads
                .iter()
                .all(|read| read.verify(&read_disk(&self.disk, read)).is_ok())
        };
        let verdicts: Vec<(Sequence, bool)> = tail
            .unverified()
            .map(|(sequence, reads)| (sequence, matches(reads)))
            .collect();
        let mut voids = Vec::new();
        for (sequence, there) in verdicts {
            if there {
                tail.verified(sequence);
            } else {
                assert!(
                    !settled.contains(&sequence),
                    "{sequence:?} was acknowledged"
                );
                tail.void(sequence);
                voids.push(sequence);
            }
        }
        while let Some(record) = tail.pop() {
            self.files.replay(&record).expect("own record");
        }
        assert!(tail.is_empty());
        self.durable = self.log.len();
        // The kept log's own void records count, those that were lost do not.
        self.void.clear();
        for logged in &self.log {
            self.void.extend(
                self.files
                    .summary(&logged.record)
                    .expect("own record")
                    .voids,
            );
        }
        if !voids.is_empty() {
            let change = self.files.plan_void(&voids);
            self.void.extend(voids);
            self.accept(change, None);
            self.log_durable(1);
        }
    }

    /// Removes all files and proves that all space is free again.
    pub(crate) fn remove_everything(&mut self) {
        for file in 0..SERIALS.len() {
            self.truncate(file, 0);
        }
        self.log_durable(usize::MAX / 2);
        while let Some(change) = self.files.plan_mark() {
            self.accept(change, None);
            self.log_durable(1);
        }
        let space = self.files.space();
        assert_eq!(
            (space.allocated_bytes, space.pending_bytes),
            (0, 0),
            "{space:?}"
        );
        assert_eq!(space.free_bytes, space.backing_bytes);
        let memory = self.files.memory();
        assert_eq!(
            (memory.files, memory.map_bytes, memory.inlined_bytes),
            (0, 0, 0)
        );
    }
}

fn apply(content: &mut [Vec<u8>], effect: &Effect) {
    let content = &mut content[effect.file];
    match &effect.what {
        What::Bytes(start, bytes) => {
            for (place, byte) in content[*start..].iter_mut().zip(bytes) {
                *place = byte.unwrap_or(*place);
            }
        }
        What::End(size) => content[*size..].fill(0),
    }
}

fn read_disk(disk: &BTreeMap<ObjectId, Vec<u8>>, read: &BackingRead) -> Payload {
    let start = usize::try_from(read.offset_bytes).unwrap();
    let end = start + read.length_bytes as usize;
    let object = disk.get(&read.object).map_or(&[][..], Vec::as_slice);
    let bytes = object
        .get(start.min(object.len())..end.min(object.len()))
        .unwrap_or_default();
    Payload::from(Bytes::copy_from_slice(bytes))
}

fn write_disk(disk: &mut BTreeMap<ObjectId, Vec<u8>>, write: &BackingWrite, length: usize) {
    let start = usize::try_from(write.offset_bytes).unwrap();
    let object = disk.entry(write.object).or_default();
    object.resize(object.len().max(start + length), 0);
    object[start..start + length].copy_from_slice(&write.payload.slice(0, length).to_bytes());
}
