//! A node on simulated disks that take one request at a time, so that requests
//! wait in its queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_disk::Disk;
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
}

impl Rig {
    /// A node with an object of [`BLOCKS`] blocks and no cache to speak of.
    fn new() -> Self {
        let options = SimDiskOptions::default();
        let boot = Incarnation(1);
        let config = StoreConfig {
            journal_bytes: 1 << 20,
            growth_bytes: 4 << 20,
            cache_bytes: 0,
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
        rig
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
        })
    }

    fn give(&mut self, input: NodeInput) {
        self.node.handle(self.now, input);
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                NodeEffect::Disk(StoreDisk::Journal, request) => self.journal.submit(request),
                NodeEffect::Disk(StoreDisk::Data, request) => {
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
/// reaches it, is answered once, and keeps no place in the node; the others are
/// served.
#[test]
fn a_cancelled_read_is_not_begun_and_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let calls: Vec<CallId> = (0..8).map(|block| rig.read(block)).collect();
    assert!(rig.replies.is_empty());
    for id in [calls[0], calls[3], calls[5]] {
        let from = Port::Router;
        rig.give(NodeInput::Cancel { from, id });
    }
    assert_eq!(rig.replies.len(), 2, "the first is at the disk");
    let before = rig.node.store().status().media_errors;
    rig.settle();
    for (number, id) in calls.iter().enumerate() {
        let is_gone = matches!(rig.replies.get(id), Some(Err(NodeError::Busy { .. })));
        assert_eq!(is_gone, number == 3 || number == 5, "{number}");
    }
    assert_eq!(rig.replies.len(), calls.len());
    assert_eq!(rig.node.callers().count(), 0);
    assert_eq!(rig.node.store().status().media_errors, before);
}

/// Goal: who waits for what another call fetches is served although nobody waits
/// for that call any more.
#[test]
fn a_read_that_shares_a_cancelled_one_is_served() {
    let mut rig = Rig::new();
    let busy = rig.read(9);
    let (first, second) = (rig.read(3), rig.read(3));
    let from = Port::Router;
    rig.give(NodeInput::Cancel { from, id: first });
    rig.settle();
    assert!(rig.replies[&busy].is_ok());
    assert!(matches!(rig.replies[&first], Err(NodeError::Busy { .. })));
    assert!(rig.replies[&second].is_ok());
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
