//! A store whose data lies on a set of disks, one of which gives back other bytes than were
//! written, without a word.

mod rig;

use std::time::Duration;

use crossdock_disk::Disk;
use crossdock_names::Incarnation;
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, ReadVersion};
use crossdock_sets::{
    DiskNumber, DiskSets, Found, Geometry, Kind, Options, SetWish, SetsEvent, Wish, assemble,
};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::{Index, Store, StoreConfig, StoreDisk, StoreEffect, StoreInput};
use crossdock_types::Time;
use rig::{BLOCK, NODE, create, object, write};

const GEOMETRY: Geometry = Geometry {
    chunk_bytes: 8192,
    log_slots: 6,
    region_stripes: 4,
};
/// Stripes of each disk.
const STRIPES: u64 = 1024;
const SEEDS: u64 = 30;
/// Bits that are turned over.
const FLIPS: usize = 40;
const OBJECTS: u64 = 3;
const OBJECT_BYTES: usize = 96 * BLOCK;

/// A store, and the disks below it.
struct World {
    store: Store,
    index: Index,
    journal: SimDisk,
    sets: DiskSets,
    members: Vec<SimDisk>,
    now: Time,
    calls: u64,
    replies: Vec<NodeReply>,
    is_open: bool,
    /// What the last scrub step has found, and whether it was the last.
    scrubbed: Option<(usize, bool)>,
    doubted: usize,
}

impl World {
    fn new(kind: Kind, disks: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let options = SimDiskOptions {
            delay_max: Duration::from_micros(300),
            ..SimDiskOptions::default()
        };
        let length = GEOMETRY.data_offset() + STRIPES * u64::from(GEOMETRY.chunk_bytes);
        let members = (0..disks).map(|_| SimDisk::new(random.next_u64(), length, options));
        let members: Vec<SimDisk> = members.collect();
        let head_bytes = usize::try_from(GEOMETRY.data_offset()).expect("small");
        let found = (0..disks).map(|number| Found {
            name: format!("disk{number}"),
            length_bytes: length,
            head: Ok(vec![0; head_bytes]),
        });
        let wish = Wish {
            disks: found.collect(),
            sets: vec![SetWish {
                kind,
                disks: (0..disks).collect(),
                speed: None,
            }],
            spares: Vec::new(),
            geometry: GEOMETRY,
        };
        let assembled = assemble(&wish, || random.next_u64()).expect("new disks");
        let options = Options {
            rebuild_bytes_per_second: 50 << 20,
        };
        let sets = DiskSets::new(Time::from_secs(1), assembled, options);
        let config = StoreConfig {
            journal_bytes: 1 << 20,
            growth_bytes: 1 << 20,
            // Reads are of disks.
            cache_bytes: 0,
            dirty_bytes_max: 4 << 20,
            ..StoreConfig::new(NODE, Incarnation(1), sets.capacity_bytes())
        };
        let plain = SimDiskOptions::default();
        let index = SimBlockingDisk::new(random.next_u64(), 0, plain);
        let mut world = Self {
            store: Store::new(config),
            index: Index::open(Box::new(index)).expect("the index opens"),
            journal: SimDisk::new(random.next_u64(), 0, plain),
            sets,
            members,
            now: Time::from_secs(1),
            calls: 0,
            replies: Vec::new(),
            is_open: false,
            scrubbed: None,
            doubted: 0,
        };
        while !world.is_open {
            assert!(world.step(), "opening got stuck");
        }
        world
    }

    /// Lets the next thing happen. False if nothing is under way.
    fn step(&mut self) -> bool {
        self.carry();
        let journal = self.journal.next_completion_at();
        let members = self.members.iter().map(SimDisk::next_completion_at);
        let due = members.chain([journal, self.sets.poll_timeout()]);
        let Some(due) = due.flatten().min() else {
            return false;
        };
        self.now = self.now.max(due);
        self.journal.advance(self.now);
        if let Some(completion) = self.journal.poll() {
            let input = StoreInput::Disk(StoreDisk::Journal, completion);
            self.store.handle(self.now, input);
        }
        for (number, member) in (0..).zip(&mut self.members) {
            member.advance(self.now);
            if let Some(completion) = member.poll() {
                let number = DiskNumber(number);
                self.sets.disk_completed(self.now, number, completion);
            }
        }
        if self.sets.poll_timeout().is_some_and(|due| due <= self.now) {
            self.sets.handle_timeout(self.now);
        }
        self.carry();
        true
    }

    fn carry(&mut self) {
        loop {
            if let Some(effect) = self.store.poll_effect() {
                self.carry_out(effect);
            } else if let Some((number, request)) = self.sets.poll_request() {
                self.members[usize::from(number.0)].submit(request);
            } else if let Some(completion) = self.sets.poll() {
                let input = StoreInput::Disk(StoreDisk::Data, completion);
                self.store.handle(self.now, input);
            } else if let Some(event) = self.sets.poll_event() {
                self.doubted += usize::from(matches!(event, SetsEvent::Doubted { .. }));
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: StoreEffect) {
        match effect {
            StoreEffect::Disk(StoreDisk::Journal, _, request) => self.journal.submit(request),
            StoreEffect::Disk(StoreDisk::Data, _, request) => {
                self.sets.submit(self.now, request);
            }
            StoreEffect::Index(request) => {
                let reply = self.index.handle(request);
                self.store.handle(self.now, StoreInput::Index(reply));
            }
            StoreEffect::Reply(reply) => self.replies.push(reply),
            StoreEffect::Opened(outcome) => {
                outcome.expect("it opens");
                self.is_open = true;
            }
            StoreEffect::Scrubbed(report) => {
                let report = report.expect("a report");
                self.scrubbed = Some((report.findings.len(), report.is_complete));
            }
            StoreEffect::Failed(what) => panic!("{what}"),
            _ => {}
        }
    }

    fn call(&mut self, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        self.calls += 1;
        let id = CallId(self.calls);
        let call = Call {
            id,
            deadline: Time(u64::MAX),
            request,
        };
        self.store.handle(self.now, StoreInput::Request(call));
        self.carry();
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.id == id) {
                return self.replies.swap_remove(at).outcome;
            }
            assert!(self.step(), "no answer");
        }
    }

    fn read(&mut self, number: u64, offset: usize, length: usize) -> Result<Vec<u8>, NodeError> {
        let request = NodeRequest::Read {
            object: object(number),
            offset_bytes: offset as u64,
            length_bytes: length as u64,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        match self.call(request)? {
            NodeAnswer::Read { payload, .. } => Ok(payload.to_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Objects of any bytes, on the disks; what they hold.
    fn fill(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut version = 0;
        let mut next = || {
            version += 1;
            version
        };
        let mut all = Vec::new();
        for number in 0..OBJECTS {
            let mut content = vec![0; OBJECT_BYTES];
            random.fill(&mut content);
            self.call(create(object(number), next())).expect("made");
            let half = OBJECT_BYTES / 2;
            for (offset, part) in (0..).step_by(half).zip(content.chunks(half)) {
                let write = write(object(number), offset, part.to_vec(), true, next());
                self.call(write).expect("written");
            }
            all.push(content);
        }
        while self.step() {}
        all
    }

    /// Reads everything, a random piece at a time, and compares it.
    fn read_all(&mut self, random: &mut Random, all: &[Vec<u8>]) {
        for (number, content) in (0..).zip(all) {
            let mut at = 0;
            while at < content.len() {
                let length = (1 + random.index(40 * BLOCK)).min(content.len() - at);
                let read = self.read(number, at, length).expect("from another disk");
                assert!(read == content[at..at + length], "object {number} at {at}");
                at += length;
            }
        }
        while self.step() {} // What was bad is written anew behind the answers.
    }

    fn scrub(&mut self) -> usize {
        let mut findings = 0;
        loop {
            let scrub = StoreInput::Scrub { blocks_max: 64 };
            self.store.handle(self.now, scrub);
            while self.step() {}
            let (found, is_complete) = self.scrubbed.take().expect("a report");
            findings += found;
            if is_complete {
                return findings;
            }
        }
    }

    fn flip(&mut self, disk: usize) {
        for _ in 0..FLIPS {
            self.members[disk].flip_bit().expect("something to flip");
        }
    }
}

fn shape(random: &mut Random) -> (Kind, usize) {
    match random.coin() {
        true => (Kind::Mirror, 2 + random.index(2)),
        false => (Kind::Parity, 3 + random.index(3)),
    }
}

/// Goal: whichever disk of a mirror or parity set gives back other bytes than were written, at
/// any places, readers get the right ones; what they met is written anew, and is right the next
/// time. A scrub finds nothing that is lost.
#[test]
fn what_one_disk_has_wrong_is_read_elsewhere_and_healed() {
    let mut healed = [0, 0];
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let (kind, disks) = shape(&mut random);
        let mut world = World::new(kind, disks, seed);
        let all = world.fill(&mut random);
        assert_eq!(world.doubted, 0);
        world.flip(random.index(disks));
        world.read_all(&mut random, &all);
        assert_eq!(world.scrub(), 0, "seed {seed}");
        let first = world.store.status();
        assert_eq!(first.media_errors, 0, "seed {seed}");
        assert_eq!(first.repaired_blocks > 0, world.doubted > 0);
        for _ in 0..3 {
            world.read_all(&mut random, &all);
        }
        let last = world.store.status();
        // Of a parity set each block is read from the same disk each time.
        if kind == Kind::Parity {
            assert_eq!(last.repaired_blocks, first.repaired_blocks, "seed {seed}");
        }
        assert!(last.repaired_blocks <= FLIPS as u64, "seed {seed}: again");
        healed[usize::from(kind == Kind::Parity)] += last.repaired_blocks;
    }
    assert!(healed.iter().all(|blocks| *blocks >= SEEDS), "{healed:?}");
}

/// Goal: where no disk has the bytes a second time the read fails, as of a plain disk, and says
/// so; nothing is written.
#[test]
fn what_is_nowhere_else_is_lost() {
    let mut random = Random::new(1);
    let mut world = World::new(Kind::Stripe, 3, 1);
    let all = world.fill(&mut random);
    (0..3).for_each(|disk| world.flip(disk));
    let mut failed = 0;
    for (number, content) in (0..).zip(&all) {
        for at in (0..content.len()).step_by(BLOCK) {
            match world.read(number, at, BLOCK) {
                Ok(read) => assert!(read == content[at..at + BLOCK]),
                Err(NodeError::Media { .. }) => failed += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(failed > 0);
    assert_eq!(world.doubted, 0, "nobody was asked");
    assert_eq!(world.store.status().repaired_blocks, 0);
}
