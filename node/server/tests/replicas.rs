//! Two nodes of one set on simulated disks, one of which goes bad.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_disk::Disk;
use crossdock_names::{
    Epoch, FileId, Incarnation, NodeId, ObjectId, ReplicaSet, RoutingTable, SITES, SLOTS, SetId,
    SiteRecord,
};
use crossdock_peer::{
    Call, CallId, MappedRanges, NodeAnswer, NodeError, NodeRequest, Order, Port, ReadVersion,
    Stability, WriteContext,
};
use crossdock_server::{Node, NodeEffect, NodeInput};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_store::{Index, ScrubReport, StoreConfig, StoreDisk, StoreInput};
use crossdock_types::{BLOCK_BYTES, Payload, Time};

const OBJECT: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);
const BLOCKS: usize = 64;
const PRIMARY: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

type Outcome = Result<NodeAnswer, NodeError>;

struct Member {
    node: Node,
    index: Index,
    journal: SimDisk,
    data: SimDisk,
}

/// The set, and what its nodes have said.
struct Rig {
    members: BTreeMap<NodeId, Member>,
    table: Arc<RoutingTable>,
    messages: VecDeque<(NodeId, NodeInput)>,
    now: Time,
    calls: u64,
    replies: BTreeMap<CallId, Outcome>,
    /// Of which set the last answer shows what one member alone says.
    shown: Option<SetId>,
    /// Whether each bad block was repaired.
    damage: Vec<bool>,
    scrubbed: Option<ScrubReport>,
}

impl Rig {
    /// Two equal members with an object of [`BLOCKS`] blocks, and no cache to
    /// speak of.
    fn new() -> Self {
        let mut rig = Self {
            members: BTreeMap::new(),
            table: table(1, &[PRIMARY, OTHER]),
            messages: VecDeque::new(),
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

    fn data(&mut self, id: NodeId) -> &mut SimDisk {
        &mut self.members.get_mut(&id).expect("a member").data
    }

    fn write(&mut self, offset_bytes: u64, bytes: Vec<u8>) -> Outcome {
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
    fn read(&mut self) -> Result<Vec<u8>, NodeError> {
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

    fn scrub(&mut self, id: NodeId) -> ScrubReport {
        let blocks_max = 1 << 20;
        let input = NodeInput::Store(StoreInput::Scrub { blocks_max });
        self.give(id, input);
        self.settle();
        self.scrubbed.take().expect("the scrub ends")
    }

    fn call(&mut self, to: NodeId, request: NodeRequest) -> Outcome {
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
        self.settle();
        self.replies.remove(&id).expect("each call is answered")
    }

    fn give(&mut self, to: NodeId, input: NodeInput) {
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
                    Port::Node(to) => {
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
    fn settle(&mut self) {
        loop {
            while let Some((to, input)) = self.messages.pop_front() {
                self.give(to, input);
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

fn content() -> Vec<u8> {
    (0..BLOCKS * BLOCK_BYTES)
        .map(|at| (at / 100).to_le_bytes()[0])
        .collect()
}

fn routed_at(epoch: u64) -> WriteContext {
    WriteContext {
        table_epoch: Epoch(epoch),
        ..WriteContext::default()
    }
}

fn table(epoch: u64, members: &[NodeId]) -> Arc<RoutingTable> {
    let set = ReplicaSet {
        epoch: Epoch(epoch),
        members: members.to_vec(),
    };
    let site = SiteRecord {
        epoch: Epoch(1),
        set: SetId(0),
    };
    Arc::new(RoutingTable {
        epoch: Epoch(epoch),
        sets: BTreeMap::from([(SetId(0), set)]),
        slots: vec![vec![SetId(0)]; SLOTS],
        sites: vec![site; SITES],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    })
}

fn all_reads_fail() -> SimDiskOptions {
    SimDiskOptions {
        read_error_one_in: 1,
        ..SimDiskOptions::default()
    }
}

/// Goal (invariant 7): a client never sees a flipped bit, nor an error, while
/// another member has the block; behind its read the block is mended, in the
/// place where the next read looks for it.
#[test]
fn a_bad_block_is_read_from_the_other_member_and_repaired() {
    let mut rig = Rig::new();
    assert!(rig.data(PRIMARY).flip_bit().is_some());
    assert_eq!(rig.read(), Ok(content()));
    assert_eq!(rig.damage, [true]);
    let status = rig.members[&PRIMARY].node.store().status();
    assert_eq!((status.media_errors > 0, status.repaired_blocks), (true, 1));
    assert_eq!(status.bad_blocks, 0, "it is not bad any more");
    rig.data(OTHER).set_options(all_reads_fail());
    assert_eq!(rig.read(), Ok(content()), "without the other's help");
    assert_eq!(rig.damage.len(), 1);
}

/// Goal: what a scrub finds is mended from the other member before it tells of
/// it, on the primary and on the others; the next scrub is clean.
#[test]
fn a_scrub_mends_what_it_finds() {
    for id in [PRIMARY, OTHER] {
        let mut rig = Rig::new();
        assert!(rig.data(id).flip_bit().is_some());
        let report = rig.scrub(id);
        assert!(report.is_complete);
        let repaired: Vec<bool> = report.findings.iter().map(|it| it.is_repaired).collect();
        assert_eq!(repaired, [true], "{report:?}");
        assert_eq!(rig.scrub(id).findings, []);
        assert_eq!(rig.read(), Ok(content()));
    }
}

/// Goal: a block of which the journal holds newer bytes is mended with them, also
/// when its checksum was given up because they were merged with what was bad.
#[test]
fn a_block_that_was_merged_with_a_bad_one_is_repaired() {
    for merges in [false, true] {
        let mut rig = Rig::new();
        let mut expected = content();
        for block in 0..BLOCKS {
            rig.data(PRIMARY).flip_bit();
            let at = block * BLOCK_BYTES + 50;
            expected[at..at + 10].fill(9);
            assert!(rig.write(at as u64, vec![9; 10]).is_ok());
        }
        if merges {
            rig.give(PRIMARY, NodeInput::Store(StoreInput::Drain));
            rig.settle();
        }
        // Those that were just being merged are repaired behind the second read.
        for _ in 0..2 {
            assert_eq!(rig.read(), Ok(expected.clone()));
        }
        assert!(
            rig.damage.len() > 1 && rig.damage.iter().all(|it| *it),
            "{merges}"
        );
        rig.data(OTHER).set_options(all_reads_fail());
        assert_eq!(rig.read(), Ok(expected));
    }
}

/// Goal: when nobody has the block the client is told, once per bad block the
/// administrator is, too, and nothing goes round in circles.
#[test]
fn a_block_that_is_bad_everywhere_is_reported() {
    let mut rig = Rig::new();
    for id in [PRIMARY, OTHER] {
        rig.data(id).set_options(all_reads_fail());
    }
    for _ in 0..3 {
        assert!(matches!(
            rig.read(),
            Err(NodeError::Media { node: PRIMARY, .. })
        ));
    }
    assert_eq!(rig.damage, [false; BLOCKS]);
    for id in [PRIMARY, OTHER] {
        rig.data(id).set_options(SimDiskOptions::default());
    }
    assert_eq!(rig.read(), Ok(content()));
}

/// Goal: a primary whose disk takes no writes any more leaves its set: the write
/// is done again under the other member, which has all that was acknowledged.
#[test]
fn a_primary_whose_disk_fails_leaves_its_set() {
    let mut rig = Rig::new();
    let member = rig.members.get_mut(&PRIMARY).expect("a member");
    member.journal.set_options(SimDiskOptions {
        flush_error_one_in: 1,
        ..SimDiskOptions::default()
    });
    let refused = rig.write(0, vec![5; 100]);
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
    assert_eq!(rig.table.epoch, Epoch(2));
    assert!(rig.write(0, vec![5; 100]).is_ok());
    let mut expected = content();
    expected[..100].fill(5);
    assert_eq!(rig.read(), Ok(expected));
}

/// Goal: a hole is at all members before it is answered, with the same version, and whoever
/// becomes the primary then tells it as one.
#[test]
fn a_hole_is_made_at_all_members() {
    let mut rig = Rig::new();
    let (offset_bytes, length_bytes) = (3 * BLOCK_BYTES as u64, 10 * BLOCK_BYTES as u64);
    let zero = |epoch| NodeRequest::Zero {
        object: OBJECT,
        offset_bytes,
        length_bytes,
        context: routed_at(epoch),
        order: Order::Primary,
    };
    let all_bytes = (BLOCKS * BLOCK_BYTES) as u64;
    let mapped = NodeRequest::Mapped {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: all_bytes,
        truncate_generation: 0,
    };
    let made = rig.call(PRIMARY, zero(1));
    assert!(matches!(made, Ok(NodeAnswer::Done { .. })), "{made:?}");
    assert_eq!(rig.shown, None, "all members have it");
    let told = rig.call(PRIMARY, mapped.clone());
    assert_eq!(rig.shown, Some(SetId(0)), "the primary's word alone");
    let expected = MappedRanges {
        runs: vec![0..offset_bytes, offset_bytes + length_bytes..all_bytes],
        end_bytes: all_bytes,
    };
    assert_eq!(told, Ok(NodeAnswer::Mapped(expected)));
    assert!(rig.call(OTHER, mapped.clone()).is_err(), "no primary");
    rig.table = table(2, &[OTHER]);
    for id in [PRIMARY, OTHER] {
        let input = NodeInput::Table(Arc::clone(&rig.table));
        rig.give(id, input);
    }
    rig.settle();
    assert_eq!(rig.call(OTHER, mapped), told);
    let mut bytes = content();
    bytes[3 * BLOCK_BYTES..13 * BLOCK_BYTES].fill(0);
    assert_eq!(rig.read(), Ok(bytes));
    // One that was routed by the old table comes too late.
    let late = rig.call(PRIMARY, zero(1));
    assert!(
        matches!(late, Err(NodeError::StaleTable { .. })),
        "{late:?}"
    );
}

/// Goal (CONSISTENCY 4): an answer that a primary gives alone says so, as it needs
/// a lease; what all members have had a part in does not.
#[test]
fn what_a_primary_answers_alone_is_marked() {
    let mut rig = Rig::new();
    assert!(rig.write(0, vec![1; 100]).is_ok());
    assert_eq!(rig.shown, None, "all members have it");
    assert!(rig.read().is_ok());
    assert_eq!(rig.shown, Some(SetId(0)));
    let stat = rig.call(PRIMARY, NodeRequest::Stat { object: OBJECT });
    assert!(stat.is_ok());
    assert_eq!(rig.shown, Some(SetId(0)));
    let refused = rig.call(OTHER, NodeRequest::Stat { object: OBJECT });
    assert!(refused.is_err());
    assert_eq!(rig.shown, None, "nothing is shown");
}

/// Goal: any member gives the bytes of one version, alone and without a lease, as they are the
/// same everywhere; whoever has left the set does not, as it may lack some of them.
#[test]
fn any_member_gives_exactly_one_version() {
    let mut rig = Rig::new();
    let of = |version| NodeRequest::Read {
        object: OBJECT,
        offset_bytes: 0,
        length_bytes: (BLOCKS * BLOCK_BYTES) as u64,
        version,
        patience_ms: 0,
    };
    let current = rig.call(PRIMARY, of(ReadVersion::Current));
    let Ok(NodeAnswer::Read { version, .. }) = current else {
        panic!("{current:?}");
    };
    assert!(rig.call(OTHER, of(ReadVersion::Current)).is_err());
    let exactly = of(ReadVersion::Exactly(version));
    assert_eq!(rig.call(OTHER, exactly.clone()), current);
    assert_eq!(rig.shown, None, "it is nobody's word but the version's");
    assert!(rig.write(0, vec![5; 100]).is_ok());
    let gone = Err(NodeError::VersionGone);
    assert_eq!(rig.call(OTHER, exactly.clone()), gone);
    rig.table = table(2, &[PRIMARY]);
    let input = NodeInput::Table(Arc::clone(&rig.table));
    rig.give(OTHER, input);
    let refused = rig.call(OTHER, exactly);
    assert!(
        matches!(refused, Err(NodeError::StaleTable { .. })),
        "{refused:?}"
    );
}
