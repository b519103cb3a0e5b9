//! A site and two nodes in memory that answer late, in any order, not at once,
//! and lose unstable bytes when they crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{
    Epoch, FileId, FileRef, Incarnation, LayoutClass, MapFragment, NodeId, ObjectId, ReplicaSet,
    RoutingTable, SITES, SLOTS, SMALL_FILE_THRESHOLD_BYTES, SetId, SiteRecord, Version,
};
use crossdock_peer::{
    Attributes, Device, FileKind, FileLayout, NodeAnswer, NodeError, NodeReply, NodeRequest,
    OpenFor, SiteAnswer, SiteError, SiteOperation, SiteReply, SourceError, Stability, WeakCache,
    WriteContext,
};
use crossdock_router::{RouterEffect, RouterInput};
use crossdock_types::{Payload, WallTime};

pub(crate) const FILE: FileRef = FileRef {
    id: FileId(5),
    generation: 1,
};
const COLUMNS: u16 = 2;
const NODES: [NodeId; 2] = [NodeId(10), NodeId(20)];

/// A small generator, the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

/// Bytes as they are now, and as they are after a crash.
#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

impl Content {
    fn write(&mut self, offset: u64, payload: &Payload, stability: Stability) {
        put(&mut self.now, offset, payload);
        if stability == Stability::Stable {
            put(&mut self.durable, offset, payload);
        }
    }

    fn truncate(&mut self, end: u64) {
        self.now.truncate(len(end));
        self.durable.truncate(len(end));
    }

    /// Durable at once; what is not there stays so.
    fn zero(&mut self, offset: u64, length: u64) {
        for bytes in [&mut self.now, &mut self.durable] {
            let end = len(offset + length).min(bytes.len());
            let start = len(offset).min(end);
            bytes[start..end].fill(0);
        }
    }

    fn commit(&mut self) {
        self.durable = self.now.clone();
    }

    fn crash(&mut self) {
        self.now = self.durable.clone();
    }

    /// What there is of a range.
    fn read(&self, offset: u64, length: u64) -> Payload {
        let start = len(offset).min(self.now.len());
        let end = len(offset + length).min(self.now.len());
        Payload::from(Bytes::copy_from_slice(&self.now[start..end]))
    }
}

fn put(target: &mut Vec<u8>, offset: u64, payload: &Payload) {
    let start = len(offset);
    let end = start + payload.len();
    if target.len() < end {
        target.resize(end, 0);
    }
    payload.copy_to_slice(&mut target[start..end]);
}

fn len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

pub(crate) struct Peers {
    small: Content,
    size: u64,
    durable_size: u64,
    truncate_generation: u64,
    site_incarnation: u64,
    columns: BTreeMap<ObjectId, Content>,
    node_incarnations: [u64; 2],
    table_epoch: u64,
    has_new_table: bool,
}

impl Peers {
    pub(crate) fn new() -> Self {
        Self {
            small: Content::default(),
            size: 0,
            durable_size: 0,
            truncate_generation: 1,
            site_incarnation: 1,
            columns: BTreeMap::new(),
            node_incarnations: [1; 2],
            table_epoch: 1,
            has_new_table: false,
        }
    }

    pub(crate) fn table(&self) -> Arc<RoutingTable> {
        let set = |node| ReplicaSet {
            epoch: Epoch(1),
            members: vec![node],
        };
        let site = SiteRecord {
            epoch: Epoch(1),
            set: SetId(0),
        };
        Arc::new(RoutingTable {
            epoch: Epoch(self.table_epoch),
            sets: BTreeMap::from([(SetId(0), set(NODES[0])), (SetId(1), set(NODES[1]))]),
            slots: vec![vec![SetId(0), SetId(1)]; SLOTS],
            sites: vec![site; SITES],
            spread: crossdock_names::Spread::default(),
            layout: crossdock_names::LayoutClass::default(),
            hosts: crossdock_names::Hosts::default(),
        })
    }

    pub(crate) fn newer_table(&mut self) -> Option<Arc<RoutingTable>> {
        std::mem::take(&mut self.has_new_table).then(|| self.table())
    }

    pub(crate) fn crash_site(&mut self) {
        self.small.crash();
        self.size = self.durable_size;
        self.site_incarnation += 1;
    }

    pub(crate) fn crash_node(&mut self, index: usize) {
        for (object, content) in &mut self.columns {
            if usize::from(object.column) == index {
                content.crash();
            }
        }
        self.node_incarnations[index] += 1;
    }

    /// The answer to a call; now and then it is an excuse.
    pub(crate) fn carry_out(
        &mut self,
        effect: RouterEffect,
        random: &mut Random,
    ) -> Option<RouterInput> {
        let luck = random.below(16);
        Some(match effect {
            RouterEffect::Site(_, call) => {
                let outcome = match luck {
                    0 => Err(SiteError::Busy),
                    1 => Err(SiteError::Moved),
                    _ => self.site(call.request.operation),
                };
                RouterInput::Site(Box::new(SiteReply {
                    id: call.id,
                    outcome,
                    subject: self.subject(),
                    second: WeakCache::default(),
                }))
            }
            RouterEffect::Node(node, call, _) | RouterEffect::ReadFor(_, node, call, _) => {
                let outcome = match luck {
                    0 => Err(NodeError::Busy { retry_after_ms: 7 }),
                    1 => Err(NodeError::Unavailable { node }),
                    2 => {
                        self.table_epoch += 1;
                        self.has_new_table = true;
                        let current = Epoch(self.table_epoch);
                        Err(NodeError::StaleTable { current })
                    }
                    _ => self.node(node, call.request),
                };
                RouterInput::Node(
                    node,
                    NodeReply {
                        id: call.id,
                        outcome,
                    },
                )
            }
            RouterEffect::CancelNode(..)
            | RouterEffect::PostponeNode(..)
            | RouterEffect::ResumeNode(..)
            | RouterEffect::ReadKept(..)
            | RouterEffect::Keeps(..)
            | RouterEffect::Reply(_) => return None,
        })
    }

    fn subject(&self) -> WeakCache {
        let after = Attributes {
            file: FILE,
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: self.size,
            used_bytes: self.size,
            device: Device::default(),
            accessed: WallTime(0),
            modified: WallTime(1),
            changed: WallTime(1),
        };
        WeakCache {
            before: None,
            after: Some(after),
        }
    }

    fn site(&mut self, operation: SiteOperation) -> Result<SiteAnswer, SiteError> {
        let threshold = SMALL_FILE_THRESHOLD_BYTES;
        let incarnation = Incarnation(self.site_incarnation);
        Ok(match operation {
            SiteOperation::GetAttributes { .. } => SiteAnswer::Done,
            SiteOperation::SetAttributes { changes, .. } => {
                self.truncate(changes.size_bytes.expect("only truncates"));
                SiteAnswer::Done
            }
            SiteOperation::Read {
                offset_bytes,
                length_bytes,
                ..
            } => {
                assert!(offset_bytes + length_bytes <= threshold);
                let end = (offset_bytes + length_bytes).min(self.size);
                let wanted = end.saturating_sub(offset_bytes);
                let mut payload = self.small.read(offset_bytes, wanted);
                payload.push_zeros(len(wanted) - payload.len());
                let end_of_file = offset_bytes + length_bytes >= self.size;
                SiteAnswer::Read {
                    payload,
                    end_of_file,
                }
            }
            SiteOperation::Write {
                offset_bytes,
                payload,
                stability,
                ..
            } => {
                let end = offset_bytes + payload.len() as u64;
                assert!(end <= threshold);
                if !payload.is_empty() {
                    self.small.write(offset_bytes, &payload, stability);
                    self.grow(end, stability);
                }
                SiteAnswer::Written { incarnation }
            }
            SiteOperation::Zero {
                offset_bytes,
                length_bytes,
                ..
            } => {
                assert!(offset_bytes + length_bytes <= threshold);
                self.small.zero(offset_bytes, length_bytes);
                SiteAnswer::Written { incarnation }
            }
            SiteOperation::Commit {
                incarnation: named, ..
            } if named != incarnation => {
                return Err(SiteError::Lost {
                    current: incarnation,
                });
            }
            SiteOperation::Commit { .. } => {
                self.small.commit();
                self.durable_size = self.size;
                SiteAnswer::Committed
            }
            SiteOperation::Open { purpose, .. } => {
                if matches!(purpose, OpenFor::Write { end_bytes, .. } if end_bytes > threshold) {
                    for column in 0..COLUMNS {
                        let object = ObjectId::column(FILE.id, 1, 0, column);
                        self.columns.entry(object).or_default();
                    }
                }
                let columns = if self.columns.is_empty() { 0 } else { COLUMNS };
                let layout = FileLayout {
                    class: LayoutClass::STRIPED,
                    class_epoch: 0,
                    placement: FILE.id,
                    generation: 1,
                    columns,
                    truncate_generation: self.truncate_generation,
                    map: MapFragment::default(),
                    capability: None,
                };
                SiteAnswer::Opened {
                    layout,
                    incarnation,
                    lease: None,
                }
            }
            SiteOperation::PushAttributes {
                size_at_least_bytes,
                truncate_generation,
                stability,
                ..
            } => {
                if truncate_generation == self.truncate_generation {
                    self.grow(size_at_least_bytes, stability);
                }
                SiteAnswer::Done
            }
            other => panic!("unexpected {other:?}"),
        })
    }

    fn grow(&mut self, end: u64, stability: Stability) {
        self.size = self.size.max(end);
        if stability == Stability::Stable {
            self.durable_size = self.durable_size.max(end);
        }
    }

    fn truncate(&mut self, size: u64) {
        self.truncate_generation += 1;
        self.size = size;
        self.durable_size = size;
        self.small.truncate(size);
        for (object, content) in &mut self.columns {
            content.truncate(LayoutClass::STRIPED.column_end(size, 0, object.column, COLUMNS));
        }
    }

    fn node(&mut self, node: NodeId, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        let index = NODES.iter().position(|n| *n == node).expect("one of two");
        let current = Incarnation(self.node_incarnations[index]);
        let object = *request.object().expect("about an object");
        assert_eq!(usize::from(object.column), index, "sent to the wrong node");
        let copied = match &request {
            NodeRequest::Copy { source, .. } => {
                let content = self.columns.get(&source.object);
                let content = content.ok_or(NodeError::Source(SourceError::NoObject))?;
                let length = source.length_bytes;
                let mut payload = content.read(source.offset_bytes, length);
                payload.push_zeros(len(length) - payload.len());
                payload
            }
            _ => Payload::new(),
        };
        let generation = self.truncate_generation;
        let fresh = |context: &WriteContext| match context.truncate_generation < generation {
            true => Err(NodeError::StaleGeneration {
                current: generation,
            }),
            false => Ok(()),
        };
        let content = self.columns.get_mut(&object).ok_or(NodeError::NoObject)?;
        Ok(match request {
            NodeRequest::Copy {
                offset_bytes,
                stability,
                frees_zeros,
                context,
                ..
            } => {
                fresh(&context)?;
                let version = Version::NONE;
                if frees_zeros && copied.is_zeros() {
                    content.zero(offset_bytes, copied.len() as u64);
                    return Ok(NodeAnswer::Done { version });
                }
                content.write(offset_bytes, &copied, stability);
                NodeAnswer::Written {
                    version,
                    incarnation: current,
                }
            }
            NodeRequest::Read {
                offset_bytes,
                length_bytes,
                ..
            } => NodeAnswer::Read {
                payload: content.read(offset_bytes, length_bytes),
                version: Version::NONE,
            },
            NodeRequest::Write {
                offset_bytes,
                payload,
                stability,
                context,
                ..
            } => {
                fresh(&context)?;
                content.write(offset_bytes, &payload, stability);
                NodeAnswer::Written {
                    version: Version::NONE,
                    incarnation: current,
                }
            }
            NodeRequest::Zero {
                offset_bytes,
                length_bytes,
                context,
                ..
            } => {
                fresh(&context)?;
                content.zero(offset_bytes, length_bytes);
                NodeAnswer::Done {
                    version: Version::NONE,
                }
            }
            NodeRequest::Commit { incarnation, .. } if incarnation != current => {
                return Err(NodeError::Lost { current });
            }
            NodeRequest::Commit { .. } => {
                content.commit();
                NodeAnswer::Committed
            }
            other => panic!("unexpected {other:?}"),
        })
    }
}
