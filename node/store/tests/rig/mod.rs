//! A store on simulated disks, driven step by step.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses its part"
)]

use bytes::Bytes;
use crossdock_disk::{BlockingDisk, Disk, DiskOperation};
use crossdock_names::{Epoch, FileId, Incarnation, NodeId, ObjectId, Version};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, ReadVersion, Stability,
    WriteContext,
};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::{
    Index, OpenError, OpenReport, Store, StoreConfig, StoreDisk, StoreEffect, StoreInput, fsck,
};
use crossdock_types::{Payload, Time};

pub const NODE: NodeId = NodeId(0xabc);
pub const BLOCK: usize = 4096;

/// A write of so many bytes gets new blocks.
pub const BULK: usize = 64 << 10;

/// The three disks of a store.
pub struct Disks {
    pub journal: SimDisk,
    pub data: SimDisk,
    pub index: SimBlockingDisk,
}

impl Disks {
    pub fn new(seed: u64) -> Self {
        let options = SimDiskOptions::default();
        Self {
            journal: SimDisk::new(seed, 0, options),
            data: SimDisk::new(seed ^ 1, 0, options),
            index: SimBlockingDisk::new(seed ^ 2, 0, options),
        }
    }

    pub fn crash(&mut self, random: &mut Random) {
        self.journal.crash(random);
        self.data.crash(random);
        self.index.crash(random);
    }
}

/// A store and its world.
pub struct Rig {
    pub store: Store,
    pub disks: Disks,
    index: Index,
    pub now: Time,
    next_call: u64,
    /// Reads that the data disk was asked for.
    pub data_reads: u64,
    pub replies: Vec<NodeReply>,
    pub events: Vec<StoreEffect>,
    pub opened: Option<Result<OpenReport, OpenError>>,
    pub config: StoreConfig,
}

pub fn config(boot: u64) -> StoreConfig {
    StoreConfig {
        journal_bytes: 1 << 20,
        growth_bytes: 4 << 20,
        cache_bytes: 1 << 20,
        dirty_bytes_max: 4 << 20,
        ..StoreConfig::new(NODE, Incarnation(boot), 64 << 20)
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::open(Disks::new(1), config(1))
    }

    /// Opens a store and waits until it says how that went.
    pub fn open(disks: Disks, config: StoreConfig) -> Self {
        let index = Index::open(Box::new(disks.index.clone())).expect("the index opens");
        let mut rig = Self {
            store: Store::new(config.clone()),
            disks,
            index,
            now: Time::from_secs(1),
            next_call: 1,
            data_reads: 0,
            replies: Vec::new(),
            events: Vec::new(),
            opened: None,
            config,
        };
        while rig.opened.is_none() {
            assert!(rig.step(), "opening got stuck");
        }
        rig
    }

    /// Loses power and opens again.
    pub fn crash(mut self, random: &mut Random) -> Self {
        self.disks.crash(random);
        self.check();
        self.reopen()
    }

    /// The offline check of copies of the disks as they are.
    pub fn check(&self) {
        let copy = |disk: &SimDisk| {
            let length = disk.length_bytes();
            let copy = SimBlockingDisk::new(0, length, SimDiskOptions::default());
            let mut block = vec![0; BLOCK];
            for at in (0..length).step_by(BLOCK) {
                disk.peek(at, &mut block);
                if block.iter().any(|byte| *byte != 0) {
                    copy.write_at(&block, at).expect("within the copy");
                }
            }
            copy
        };
        let (journal, data) = (copy(&self.disks.journal), copy(&self.disks.data));
        let index = Box::new(self.disks.index.crashed(&mut Random::new(0)));
        let report = fsck(&journal, &data, index, true).expect("readable");
        assert_eq!(report.findings, Vec::<String>::new(), "{report:?}");
    }

    /// Opens again on the same disks; what was in flight is dropped.
    pub fn reopen(self) -> Self {
        let Self {
            disks,
            index,
            config,
            store,
            ..
        } = self;
        drop((index, store));
        let mut config = config;
        config.boot = Incarnation(config.boot.0 + 1);
        Self::open(disks, config)
    }

    /// Carries out all effects, then lets the next completion happen. False if
    /// nothing is under way.
    pub fn step(&mut self) -> bool {
        self.run_effects();
        let journal = self.disks.journal.next_completion_at();
        let data = self.disks.data.next_completion_at();
        let Some(at) = journal.into_iter().chain(data).min() else {
            return false;
        };
        self.now = self.now.max(at);
        self.disks.journal.advance(self.now);
        self.disks.data.advance(self.now);
        if let Some(completion) = self.disks.journal.poll() {
            let input = StoreInput::Disk(StoreDisk::Journal, completion);
            self.store.handle(self.now, input);
        } else if let Some(completion) = self.disks.data.poll() {
            let input = StoreInput::Disk(StoreDisk::Data, completion);
            self.store.handle(self.now, input);
        }
        self.run_effects();
        true
    }

    pub fn run_effects(&mut self) {
        while let Some(effect) = self.store.poll_effect() {
            self.carry_out(effect);
        }
    }

    pub fn carry_out(&mut self, effect: StoreEffect) {
        match effect {
            StoreEffect::Disk(StoreDisk::Journal, _, request) => {
                self.disks.journal.submit(request);
            }
            StoreEffect::Disk(StoreDisk::Data, _, request) => {
                self.data_reads +=
                    u64::from(matches!(request.operation, DiskOperation::Read { .. }));
                self.disks.data.submit(request);
            }
            StoreEffect::Index(request) => {
                let reply = self.index.handle(request);
                self.store.handle(self.now, StoreInput::Index(reply));
            }
            StoreEffect::Reply(reply) => self.replies.push(reply),
            StoreEffect::Opened(outcome) => self.opened = Some(outcome),
            event => self.events.push(event),
        }
    }

    /// Until nothing is under way any more.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Lets time pass, with the timeouts that are due in it.
    pub fn wait(&mut self, seconds: u64) {
        let until = Time(self.now.0 + seconds * 1_000_000_000);
        self.settle();
        while let Some(at) = self.store.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.store.handle(self.now, StoreInput::Timeout);
            self.settle();
        }
        self.now = until;
    }

    pub fn send(&mut self, request: NodeRequest) -> CallId {
        self.send_until(Time(u64::MAX), request)
    }

    pub fn send_until(&mut self, deadline: Time, request: NodeRequest) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        let call = Call {
            id,
            deadline,
            request,
        };
        self.store.handle(self.now, StoreInput::Request(call));
        self.run_effects();
        id
    }

    pub fn take_reply(&mut self, id: CallId) -> Option<Result<NodeAnswer, NodeError>> {
        let at = self.replies.iter().position(|reply| reply.id == id)?;
        Some(self.replies.swap_remove(at).outcome)
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        let id = self.send(request);
        loop {
            if let Some(outcome) = self.take_reply(id) {
                return outcome;
            }
            assert!(
                self.step(),
                "no answer to {id:?}: {:?}",
                self.store.status()
            );
        }
    }

    /// The first event that there is something of, which goes.
    pub fn take_event<T>(&mut self, of: impl Fn(&StoreEffect) -> Option<T>) -> Option<T> {
        let mut found = self.events.iter().enumerate();
        let (at, taken) = found.find_map(|(at, event)| Some((at, of(event)?)))?;
        self.events.remove(at);
        Some(taken)
    }

    /// Objects 1, 2, … hold that.
    pub fn expect_contents(&mut self, contents: &[Vec<u8>]) {
        for (number, content) in (1..).zip(contents) {
            for (piece, expected) in content.chunks(BULK).enumerate() {
                let found = self.read(object(number), (piece * BULK) as u64, BULK as u64);
                let is_right = found.as_ref().is_ok_and(|found| found == expected);
                assert!(is_right, "object {number}, piece {piece}");
            }
        }
    }

    pub fn read(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, NodeError> {
        let request = NodeRequest::Read {
            object,
            offset_bytes: offset,
            length_bytes: length,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        match self.call(request)? {
            NodeAnswer::Read { payload, .. } => Ok(payload.to_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

pub fn object(number: u64) -> ObjectId {
    ObjectId::column(FileId(number), 1, 0, 0)
}

pub fn context() -> WriteContext {
    WriteContext::default()
}

pub fn given(version: u64) -> Order {
    Order::Given(Version(version))
}

pub fn create(object: ObjectId, version: u64) -> NodeRequest {
    NodeRequest::Create {
        object,
        reservation_bytes: 0,
        attributes: Bytes::from_static(b"attributes"),
        context: context(),
        order: given(version),
    }
}

pub fn payload(bytes: Vec<u8>) -> Payload {
    Payload::from(Bytes::from(bytes))
}

pub fn write(
    object: ObjectId,
    offset: u64,
    bytes: Vec<u8>,
    is_stable: bool,
    version: u64,
) -> NodeRequest {
    NodeRequest::Write {
        object,
        offset_bytes: offset,
        payload: payload(bytes),
        stability: if is_stable {
            Stability::Stable
        } else {
            Stability::Unstable
        },
        context: context(),
        order: given(version),
    }
}

pub fn truncate(object: ObjectId, size: u64, version: u64) -> NodeRequest {
    NodeRequest::Truncate {
        object,
        size_bytes: size,
        context: context(),
        order: given(version),
    }
}

pub fn zero(object: ObjectId, offset: u64, length: u64, version: u64) -> NodeRequest {
    NodeRequest::Zero {
        object,
        offset_bytes: offset,
        length_bytes: length,
        context: context(),
        order: given(version),
    }
}

pub fn remove(object: ObjectId, version: u64) -> NodeRequest {
    NodeRequest::Remove {
        object,
        context: context(),
        order: given(version),
    }
}

pub fn append(object: ObjectId, offset: u64, bytes: Vec<u8>, fence: u64) -> NodeRequest {
    NodeRequest::Append {
        object,
        offset_bytes: offset,
        payload: payload(bytes),
        fence: Epoch(fence),
    }
}

pub fn commit(object: ObjectId, boot: Incarnation) -> NodeRequest {
    NodeRequest::Commit {
        object,
        incarnation: boot,
    }
}
