//! Two nodes of two sets on simulated disks, each of which is the primary of one.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_disk::Disk;
use crossdock_names::{
    Epoch, FileId, Incarnation, NodeId, ObjectId, ReplicaSet, RoutingTable, SITES, SLOTS, SetId,
    SiteRecord,
};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, Port, ReadVersion, Sending,
    Stability, WriteContext,
};
use crossdock_server::{Node, NodeEffect, NodeInput};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_store::{Index, ScrubReport, StoreConfig, StoreDisk, StoreInput};
use crossdock_types::{BLOCK_BYTES, Payload, Time};

pub(crate) const OBJECT: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);
pub(crate) const BLOCKS: usize = 64;
/// Its primary is the other one.
pub(crate) const SOURCE: ObjectId = ObjectId::column(FileId(7), 1, 0, 1);
pub(crate) const PRIMARY: NodeId = NodeId(1);
pub(crate) const OTHER: NodeId = NodeId(2);

pub(crate) type Outcome = Result<NodeAnswer, NodeError>;

pub(crate) struct Member {
    pub(crate) node: Node,
    index: Index,
    pub(crate) journal: SimDisk,
    pub(crate) data: SimDisk,
}

/// The set, and what its nodes have said.
pub(crate) struct Rig {
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) table: Arc<RoutingTable>,
    messages: VecDeque<(NodeId, NodeInput)>,
    /// Messages to the other member wait, in order.
    pub(crate) is_cut: bool,
    /// The other member gets no questions for bytes to be copied: its host is away.
    pub(crate) is_away: bool,
    cut: Vec<(NodeId, NodeInput)>,
    now: Time,
    calls: u64,
    pub(crate) replies: BTreeMap<CallId, Outcome>,
    /// Of which set the last answer shows what one member alone says.
    pub(crate) shown: Option<SetId>,
    /// Whether each bad block was repaired.
    pub(crate) damage: Vec<bool>,
    scrubbed: Option<ScrubReport>,
}

impl Rig {
    /// Two equal members with an object of [`BLOCKS`] blocks, and no cache to
    /// speak of.
    pub(crate) fn new() -> Self {
        let mut rig = Self {
            members: BTreeMap::new(),
            table: table(1, &[PRIMARY, OTHER]),
            messages: VecDeque::new(),
            is_cut: false,
            is_away: false,
            cut: Vec::new(),
            now: Time::from_secs(1),
            calls: 0,
            replies: BTreeMap::new(),
            shown: None,
            damage: Vec::new(),
            scrubbed: None,
        };
        for id in [PRIMARY, OTHER] {
            let options = SimDiskOptions::default();
            let config = StoreConfig {
                journal_bytes: 1 << 20,
                growth_bytes: 4 << 20,
                cache_bytes: 0,
                ..StoreConfig::new(id, Incarnation(id.0), 64 << 20)
            };
            let index = SimBlockingDisk::new(id.0, 0, options);
            let member = Member {
                node: Node::new(
                    rig.now,
                    id,
                    Incarnation(id.0),
                    config,
                    8,
                    Arc::clone(&rig.table),
                ),
                index: Index::open(Box::new(index)).expect("an index"),
                journal: SimDisk::new(id.0 + 10, 0, options),
                data: SimDisk::new(id.0 + 20, 0, options),
            };
            rig.members.insert(id, member);
            rig.carry_out(id);
        }
        rig.settle();
        let (context, order) = (routed_at(1), Order::Primary);
        let create = NodeRequest::Create {
            object: OBJECT,
            reservation_bytes: 0,
            attributes: Bytes::new(),
            context,
            order,
        };
        assert!(rig.call(PRIMARY, create).is_ok());
        assert!(rig.write(0, content()).is_ok());
        rig
    }

    pub(crate) fn data(&mut self, id: NodeId) -> &mut SimDisk {
        &mut self.members.get_mut(&id).expect("a member").data
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: Vec<u8>) -> Outcome {
        let request = NodeRequest::Write {
            object: OBJECT,
            offset_bytes,
            payload: Payload::from(Bytes::from(bytes)),
            stability: Stability::Stable,
            context: routed_at(self.table.epoch.0),
            order: Order::Primary,
        };
        let primary = self.table.members_of(&OBJECT).expect("a set").members[0];
        self.call(primary, request)
    }

    /// All bytes, from the primary of now.
    pub(crate) fn read(&mut self) -> Result<Vec<u8>, NodeError> {
        let primary = self.table.members_of(&OBJECT).expect("a set").members[0];
        let request = NodeRequest::Read {
            object: OBJECT,
            offset_bytes: 0,
            length_bytes: (BLOCKS * BLOCK_BYTES) as u64,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        self.call(primary, request).map(|answer| match answer {
            NodeAnswer::Read { payload, .. } => {
                let mut bytes = vec![0; payload.len()];
                payload.copy_to_slice(&mut bytes);
                bytes
            }
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn scrub(&mut self, id: NodeId) -> ScrubReport {
        let blocks_max = 1 << 20;
        let input = NodeInput::Store(StoreInput::Scrub { blocks_max });
        self.give(id, input);
        self.settle();
        self.scrubbed.take().expect("the scrub ends")
    }

    pub(crate) fn call(&mut self, to: NodeId, request: NodeRequest) -> Outcome {
        let id = self.begin(to, request);
        self.settle();
        self.replies.remove(&id).expect("each call is answered")
    }

    /// A call whose answer will be in `replies`.
    pub(crate) fn begin(&mut self, to: NodeId, request: NodeRequest) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        let deadline = Time(u64::MAX);
        let from = Port::Router;
        let call = Call {
            id,
            deadline,
            request,
        };
        self.give(to, NodeInput::Call { from, call });
        id
    }

    pub(crate) fn give(&mut self, to: NodeId, input: NodeInput) {
        let now = self.now;
        if let Some(member) = self.members.get_mut(&to) {
            member.node.handle(now, input);
        }
        self.carry_out(to);
    }

    fn carry_out(&mut self, id: NodeId) {
        while let Some(effect) = self
            .members
            .get_mut(&id)
            .and_then(|it| it.node.poll_effect())
        {
            let member = self.members.get_mut(&id).expect("a member");
            match effect {
                NodeEffect::Disk(StoreDisk::Journal, request) => member.journal.submit(request),
                NodeEffect::Disk(StoreDisk::Data, request) => member.data.submit(request),
                NodeEffect::Index(request) => {
                    let reply = StoreInput::Index(member.index.handle(request));
                    member.node.handle(self.now, NodeInput::Store(reply));
                }
                NodeEffect::Reply { to, reply, shows } => match to {
                    Port::Node(to) | Port::Copy(to) => {
                        let input = NodeInput::Reply { from: id, reply };
                        self.messages.push_back((to, input));
                    }
                    _ => {
                        self.shown = shows;
                        self.replies.insert(reply.id, reply.outcome);
                    }
                },
                NodeEffect::Peer { to, call } => {
                    let from = Port::Node(id);
                    self.messages
                        .push_back((to, NodeInput::Call { from, call }));
                }
                NodeEffect::Fetch { to, call } if self.is_away && to != id => {
                    let outcome = Err(NodeError::Unavailable { node: to });
                    let reply = NodeReply {
                        id: call.id,
                        outcome,
                    };
                    let input = NodeInput::Reply { from: to, reply };
                    self.messages.push_back((id, input));
                }
                NodeEffect::Fetch { to, call } => {
                    let from = Port::Copy(id);
                    self.messages
                        .push_back((to, NodeInput::Call { from, call }));
                }
                NodeEffect::Suspect { member, .. } => {
                    let left: Vec<NodeId> = [PRIMARY, OTHER]
                        .into_iter()
                        .filter(|&it| it != member)
                        .collect();
                    self.table = table(2, &left);
                    for id in [PRIMARY, OTHER] {
                        let input = NodeInput::Table(Arc::clone(&self.table));
                        self.messages.push_back((id, input));
                    }
                }
                NodeEffect::Damage { is_repaired, .. } => self.damage.push(is_repaired),
                NodeEffect::Scrubbed(report) => self.scrubbed = report.ok(),
                NodeEffect::Opened(_)
                | NodeEffect::Defragged(_)
                | NodeEffect::Evacuated(_)
                | NodeEffect::Withdrawn { .. }
                | NodeEffect::Postponed { .. }
                | NodeEffect::Failed(_)
                | NodeEffect::Quiet => {}
            }
        }
    }

    /// Until nothing is under way.
    pub(crate) fn settle(&mut self) {
        loop {
            if !self.is_cut {
                self.messages.extend(self.cut.drain(..));
            }
            while let Some((to, input)) = self.messages.pop_front() {
                match self.is_cut && to == OTHER {
                    true => self.cut.push((to, input)),
                    false => self.give(to, input),
                }
            }
            let disks = self.members.values_mut();
            let due = disks
                .flat_map(|it| {
                    [
                        it.journal.next_completion_at(),
                        it.data.next_completion_at(),
                    ]
                })
                .flatten()
                .min();
            let Some(due) = due else {
                return;
            };
            self.now = self.now.max(due);
            for id in [PRIMARY, OTHER] {
                let member = self.members.get_mut(&id).expect("a member");
                member.journal.advance(self.now);
                member.data.advance(self.now);
                let journal = member.journal.poll().map(|it| (StoreDisk::Journal, it));
                let ended = journal.or_else(|| member.data.poll().map(|it| (StoreDisk::Data, it)));
                if let Some((disk, completion)) = ended {
                    self.give(id, NodeInput::Store(StoreInput::Disk(disk, completion)));
                }
            }
        }
    }
}

pub(crate) fn content() -> Vec<u8> {
    (0..BLOCKS * BLOCK_BYTES)
        .map(|at| (at / 100).to_le_bytes()[0])
        .collect()
}

pub(crate) fn routed_at(epoch: u64) -> WriteContext {
    WriteContext {
        table_epoch: Epoch(epoch),
        ..WriteContext::default()
    }
}

/// A change with a number of its writer's, sent for the first time by the first table.
pub(crate) fn numbered(number: u64) -> WriteContext {
    WriteContext {
        sending: Sending {
            number,
            ..Sending::default()
        },
        ..routed_at(1)
    }
}

pub(crate) fn table(epoch: u64, members: &[NodeId]) -> Arc<RoutingTable> {
    let set = ReplicaSet {
        epoch: Epoch(epoch),
        members: members.to_vec(),
    };
    let other = ReplicaSet {
        epoch: Epoch(epoch),
        members: members.iter().rev().copied().collect(),
    };
    let site = SiteRecord {
        epoch: Epoch(1),
        set: SetId(0),
    };
    Arc::new(RoutingTable {
        epoch: Epoch(epoch),
        sets: BTreeMap::from([(SetId(0), set), (SetId(1), other)]),
        slots: vec![vec![SetId(0), SetId(1)]; SLOTS],
        sites: vec![site; SITES],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    })
}

pub(crate) fn all_reads_fail() -> SimDiskOptions {
    SimDiskOptions {
        read_error_one_in: 1,
        ..SimDiskOptions::default()
    }
}
