//! A node on simulated disks that take one request at a time, so that requests
//! wait in its queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{Disk, DiskOperation};
use crossdock_names::{
    Epoch, FileId, Incarnation, NodeId, ObjectId, ReplicaSet, RoutingTable, SITES, SLOTS, SetId,
    SiteRecord,
};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeRequest, Order, Port, ReadVersion, Stability,
    WriteContext,
};
use crossdock_server::{Node, NodeEffect, NodeInput};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_store::{Index, StoreConfig, StoreDisk, StoreInput};
use crossdock_types::{BLOCK_BYTES, Payload, Time};

const NODE: NodeId = NodeId(1);
const OBJECT: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);
const BLOCKS: usize = 1088;

/// Of one write.
const WRITE_BLOCKS: usize = 64;

struct Rig {
    node: Node,
    index: Index,
    journal: SimDisk,
    data: SimDisk,
    now: Time,
    is_open: bool,
    calls: u64,
    replies: BTreeMap<CallId, Result<NodeAnswer, NodeError>>,
    /// The calls that were answered, in that order.
    answered: Vec<CallId>,
    seen: Vec<NodeEffectSeen>,
    /// Where the data disk has read, in blocks.
    places: Vec<(u64, usize)>,
}

/// What the node told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeEffectSeen {
    Withdrawn(u64, u64),
    Postponed(u64),
}

impl Rig {
    /// A node with an object of [`BLOCKS`] blocks and no cache to speak of.
    fn new() -> Self {
        Self::with_cache(0)
    }

    /// The same, whose node has a cache; nothing of the object is in it.
    fn with_cache(cache_bytes: usize) -> Self {
        let options = SimDiskOptions::default();
        let boot = Incarnation(1);
        let config = StoreConfig {
            journal_bytes: 1 << 20,
            growth_bytes: 4 << 20,
            cache_bytes,
            ..StoreConfig::new(NODE, boot, 64 << 20)
        };
        let index = SimBlockingDisk::new(3, 0, options);
        let now = Time::from_secs(1);
        let mut rig = Self {
            node: Node::new(now, NODE, boot, config, 1, table()),
            index: Index::open(Box::new(index)).expect("an index"),
            journal: SimDisk::new(1, 0, options),
            data: SimDisk::new(2, 0, options),
            now,
            is_open: false,
            calls: 0,
            replies: BTreeMap::new(),
            answered: Vec::new(),
            seen: Vec::new(),
            places: Vec::new(),
        };
        rig.settle();
        assert!(rig.is_open);
        let context = WriteContext {
            table_epoch: Epoch(1),
            ..WriteContext::default()
        };
        let order = Order::Primary;
        rig.send(NodeRequest::Create {
            object: OBJECT,
            reservation_bytes: 0,
            attributes: Bytes::new(),
            context,
            order,
        });
        rig.settle();
        for block in (0..BLOCKS).step_by(WRITE_BLOCKS) {
            rig.send(NodeRequest::Write {
                object: OBJECT,
                offset_bytes: (block * BLOCK_BYTES) as u64,
                payload: Payload::from(Bytes::from(vec![7; WRITE_BLOCKS * BLOCK_BYTES])),
                stability: Stability::Stable,
                context,
                order,
            });
            rig.settle();
        }
        assert!(rig.replies.values().all(Result::is_ok), "{:?}", rig.replies);
        rig.replies.clear();
        rig.answered.clear();
        rig.places.clear();
        rig
    }

    fn cancel(&mut self, id: CallId) {
        let from = Port::Router;
        self.give(NodeInput::Cancel { from, id });
    }

    fn postpone(&mut self, id: CallId, milliseconds: u64) {
        let from = Port::Router;
        let by = Duration::from_millis(milliseconds);
        self.give(NodeInput::Postpone { from, id, by });
    }

    fn withdrawn(&self) -> u64 {
        self.node.counts().disks[1].cancelled_total
    }

    fn send(&mut self, request: NodeRequest) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        let deadline = Time(u64::MAX);
        let from = Port::Router;
        let call = Call {
            id,
            deadline,
            request,
        };
        self.give(NodeInput::Call { from, call });
        id
    }

    fn read(&mut self, block: usize) -> CallId {
        self.send(NodeRequest::Read {
            object: OBJECT,
            offset_bytes: (block * BLOCK_BYTES) as u64,
            length_bytes: BLOCK_BYTES as u64,
            version: ReadVersion::Current,
            patience_ms: 0,
        })
    }

    fn give(&mut self, input: NodeInput) {
        self.node.handle(self.now, input);
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                NodeEffect::Disk(StoreDisk::Journal, request) => self.journal.submit(request),
                NodeEffect::Disk(StoreDisk::Data, request) => {
                    if let DiskOperation::Read {
                        offset_bytes,
                        buffer,
                    } = &request.operation
                    {
                        let block = offset_bytes / BLOCK_BYTES as u64;
                        self.places.push((block, buffer.len() / BLOCK_BYTES));
                    }
                    self.data.submit(request);
                    assert_eq!(self.data.in_flight(), 1, "deeper than allowed");
                }
                NodeEffect::Index(request) => {
                    let input = StoreInput::Index(self.index.handle(request));
                    self.node.handle(self.now, NodeInput::Store(input));
                }
                NodeEffect::Opened(result) => {
                    result.expect("to open");
                    self.is_open = true;
                }
                NodeEffect::Reply { reply, .. } => {
                    let before = self.replies.insert(reply.id, reply.outcome);
                    assert!(before.is_none(), "two answers");
                    self.answered.push(reply.id);
                }
                NodeEffect::Withdrawn { requests, bytes } => {
                    self.seen.push(NodeEffectSeen::Withdrawn(requests, bytes));
                }
                NodeEffect::Postponed { requests } => {
                    self.seen.push(NodeEffectSeen::Postponed(requests));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Until the disks are idle.
    fn settle(&mut self) {
        self.give(NodeInput::Store(StoreInput::Timeout));
        loop {
            let due = [&self.journal, &self.data].map(SimDisk::next_completion_at);
            let Some(next) = due.into_iter().flatten().min() else {
                return;
            };
            self.now = self.now.max(next);
            self.journal.advance(self.now);
            self.data.advance(self.now);
            let journal = self.journal.poll().map(|done| (StoreDisk::Journal, done));
            let ended = journal.or_else(|| self.data.poll().map(|done| (StoreDisk::Data, done)));
            if let Some((disk, completion)) = ended {
                self.give(NodeInput::Store(StoreInput::Disk(disk, completion)));
            }
        }
    }
}

fn table() -> Arc<RoutingTable> {
    let set = ReplicaSet {
        epoch: Epoch(1),
        members: vec![NODE],
    };
    let site = SiteRecord {
        epoch: Epoch(1),
        set: SetId(0),
    };
    Arc::new(RoutingTable {
        epoch: Epoch(1),
        sets: BTreeMap::from([(SetId(0), set)]),
        slots: vec![vec![SetId(0)]; SLOTS],
        sites: vec![site; SITES],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    })
}

/// Goal: a read whose caller went away while it waited for the disk never
/// reaches it, is answered once, at once, and keeps no place in the node; the others
/// are served, and it is told what was withdrawn.
#[test]
fn a_cancelled_read_is_not_begun_and_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let calls: Vec<CallId> = (0..8).map(|block| rig.read(block)).collect();
    assert!(rig.replies.is_empty());
    for id in [calls[0], calls[3], calls[5]] {
        let from = Port::Router;
        rig.give(NodeInput::Cancel { from, id });
    }
    assert_eq!(rig.replies.len(), 3);
    let one = NodeEffectSeen::Withdrawn(1, BLOCK_BYTES as u64);
    assert_eq!(rig.seen, [one, one], "the first is at the disk");
    let before = rig.node.store().status().media_errors;
    rig.settle();
    for (number, id) in calls.iter().enumerate() {
        let is_gone = matches!(rig.replies.get(id), Some(Err(NodeError::Busy { .. })));
        assert_eq!(is_gone, [0, 3, 5].contains(&number), "{number}");
    }
    let [_, data] = rig.node.counts().disks;
    let cancelled = (data.cancelled_total, data.cancelled_bytes);
    assert_eq!(cancelled, (2, 2 * BLOCK_BYTES as u64));
    assert_eq!(rig.replies.len(), calls.len());
    assert_eq!(rig.node.callers().count(), 0);
    assert_eq!(rig.node.store().status().media_errors, before);
}

/// Goal: who waits for what another call fetches is served although nobody waits
/// for that call any more, by the same request in the same turn: nothing is
/// withdrawn, and read again later.
#[test]
fn a_read_that_shares_a_cancelled_one_is_served() {
    let mut rig = Rig::new();
    let busy = rig.read(9);
    let (first, second) = (rig.read(3), rig.read(3));
    let later = rig.read(5);
    rig.cancel(first);
    assert!(matches!(rig.replies[&first], Err(NodeError::Busy { .. })));
    rig.settle();
    assert_eq!(rig.answered, [first, busy, second, later]);
    assert!(rig.replies[&busy].is_ok() && rig.replies[&second].is_ok());
    assert_eq!((rig.withdrawn(), rig.places.len()), (0, 3));
}

/// Goal: a request that several wait for is withdrawn with the last of them,
/// whichever that is.
#[test]
fn a_shared_read_is_withdrawn_with_its_last_reader() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut rig = Rig::new();
        let busy = rig.read(9);
        let calls = [rig.read(3), rig.read(3), rig.read(3)];
        for (gone, number) in (1..).zip(order) {
            rig.cancel(calls[number]);
            assert_eq!(rig.withdrawn(), u64::from(gone == 3), "{order:?}");
        }
        rig.settle();
        assert_eq!(rig.places.len(), 1, "only {busy:?} was read");
    }
}

/// Goal: a postponed read goes behind all others, also of later callers, and comes
/// back by its time or when it is wanted again; all are answered.
#[test]
fn a_postponed_read_waits_for_the_others() {
    let mut rig = Rig::new();
    let calls: Vec<CallId> = (0..5).map(|number| rig.read(3 * number)).collect();
    for number in [0, 1, 2] {
        rig.postpone(calls[number], 60_000);
    }
    assert_eq!(
        rig.seen,
        [NodeEffectSeen::Postponed(1); 2],
        "the first is at the disk"
    );
    let late = rig.read(20);
    let (from, id) = (Port::Router, calls[2]);
    rig.give(NodeInput::Resume { from, id });
    rig.settle();
    let expected = [calls[0], calls[2], calls[3], calls[4], late, calls[1]];
    assert_eq!(rig.answered, expected);
    assert!(rig.replies.values().all(Result::is_ok));
    assert_eq!(rig.node.counts().disks[1].postponed_total, 2);
}

/// Goal: what several wait for goes behind only while all of them can wait.
#[test]
fn a_shared_read_is_postponed_by_its_last_reader() {
    let mut rig = Rig::new();
    let busy = rig.read(9);
    let (first, second) = (rig.read(3), rig.read(3));
    let other = rig.read(5);
    rig.postpone(first, 60_000);
    assert_eq!(rig.seen, [], "the second waits for it");
    rig.postpone(second, 60_000);
    assert_eq!(rig.seen, [NodeEffectSeen::Postponed(1)]);
    let third = rig.read(3); // Does not know, and waits.
    rig.cancel(third);
    assert_eq!(rig.seen.len(), 2, "again");
    rig.settle();
    assert_eq!(rig.answered, [third, busy, other, second, first]);
}

/// Goal: what is fetched ahead for a sequential reader who has gone is withdrawn with
/// the last of his reads, but for what another one waits for.
#[test]
fn what_was_fetched_ahead_goes_with_its_reader() {
    const STEP: usize = 8;
    for is_shared in [false, true] {
        let mut rig = Rig::with_cache(8 << 20);
        let blocks = |rig: &mut Rig, block: usize, blocks: usize| {
            rig.send(NodeRequest::Read {
                object: OBJECT,
                offset_bytes: (block * BLOCK_BYTES) as u64,
                length_bytes: (blocks * BLOCK_BYTES) as u64,
                version: ReadVersion::Current,
                patience_ms: 0,
            })
        };
        blocks(&mut rig, 0, STEP);
        rig.settle();
        rig.places.clear();
        // Far away: the disk is busy with it.
        blocks(&mut rig, 1000, 1);
        let first = blocks(&mut rig, STEP, STEP);
        let second = blocks(&mut rig, 2 * STEP, STEP);
        assert!(rig.node.store().status().read_ahead_blocks > 0);
        let other = is_shared.then(|| blocks(&mut rig, 3 * STEP + 2, 1));
        rig.cancel(first);
        let of_first = rig.withdrawn();
        rig.cancel(second);
        assert!(rig.withdrawn() >= of_first);
        if let Some(other) = other {
            rig.settle();
            assert!(rig.replies[&other].is_ok());
            let missed = rig.node.store().status().cache_miss_blocks;
            let next = blocks(&mut rig, 3 * STEP + 3, STEP);
            rig.settle();
            assert!(rig.replies[&next].is_ok());
            let status = rig.node.store().status();
            assert_eq!(status.cache_miss_blocks, missed, "fetched ahead for him");
            continue;
        }
        rig.settle();
        assert_eq!(rig.places.len(), 1, "{:?}", rig.places);
        // Whoever comes next finds nothing strange.
        let again = blocks(&mut rig, STEP, STEP);
        rig.settle();
        assert!(rig.replies[&again].is_ok());
    }
}

/// Goal: more reads than may wait for a disk are told to try again, each once;
/// those that were taken are served.
#[test]
fn reads_beyond_the_queue_are_told_to_try_again() {
    let mut rig = Rig::new();
    let taken = crossdock_limits::DISK_QUEUE_REQUESTS_MAX + 1;
    for number in 0..taken + 10 {
        rig.read(number);
    }
    assert_eq!(rig.replies.len(), 10);
    let is_busy = |outcome: &Result<_, _>| matches!(outcome, Err(NodeError::Busy { .. }));
    assert!(rig.replies.values().all(is_busy));
    rig.settle();
    let served = rig.replies.values().filter(|outcome| outcome.is_ok());
    assert_eq!(served.count(), taken);
    assert_eq!(rig.node.callers().count(), 0);
}

/// Goal: what a node's disks did while it opened counts from when it began, not from the
/// start of the clock.
#[test]
fn opening_takes_no_longer_than_it_does() {
    let rig = Rig::new();
    let since = rig.now.since(Time::from_secs(1)).as_micros();
    for disk in rig.node.counts().disks {
        // One at a time.
        let took: u64 = disk.operations.iter().map(|of| of.latency.sum()).sum();
        assert!(u128::from(took) <= since, "{took} of {since} microseconds");
    }
}
