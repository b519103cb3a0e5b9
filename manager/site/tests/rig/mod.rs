//! A site on nodes that are maps in memory.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{
    Epoch, FileId, FileRef, HostId, Incarnation, NodeId, ObjectClass, ObjectId, ReplicaSet,
    RoutingTable, SITES, SLOTS, SetId, SiteId, SiteRecord, Version, VolumeId,
};
use crossdock_peer::{
    Attributes, Call, CallId, Caller, CreateMode, DuplicateKey, LockNotice, NodeAnswer, NodeError,
    NodeReply, NodeRequest, ObjectStat, OpenFor, Recall, SiteAnswer, SiteError, SiteOperation,
    SiteReply, SiteRequest, Stability,
};
use crossdock_site::{OpenError, OpenReport, Site, SiteConfig, SiteEffect, SiteInput, SiteLimits};
use crossdock_smallfile::SmallFilesConfig;
use crossdock_types::{Payload, Time, WallTime};

/// An open to read anything that needs no map.
pub(crate) const READ: OpenFor = OpenFor::Read {
    offset_bytes: 0,
    end_bytes: 0,
};

pub(crate) const ROOT: FileRef = FileRef {
    id: FileId(1),
    generation: 1,
};

/// An object in memory; everything is stable at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fence: Epoch,
    pub(crate) truncate_generation: u64,
}

/// A node that keeps its objects in a map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) objects: BTreeMap<ObjectId, Object>,
    pub(crate) down: bool,
    pub(crate) no_space_for_columns: bool,
    /// Backing objects of small files cannot be read.
    pub(crate) unreadable_small_files: bool,
    /// Backing objects of small files cannot be written.
    pub(crate) no_space_for_small_files: bool,
    /// The disk takes no writes; what was sent to it may be there all the same.
    pub(crate) takes_no_writes: Option<Landing>,
}

/// What becomes of an append that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    Lost,
    Kept,
}

impl Node {
    pub(crate) fn carry_out(
        &mut self,
        id: NodeId,
        request: NodeRequest,
    ) -> Result<NodeAnswer, NodeError> {
        if self.down {
            return Err(NodeError::Unavailable { node: id });
        }
        let reads = matches!(
            request,
            NodeRequest::Read { .. } | NodeRequest::Stat { .. } | NodeRequest::List { .. }
        );
        if let Some(landing) = self.takes_no_writes
            && !reads
        {
            let failed = Err(NodeError::Media {
                node: id,
                what: "the disk takes no writes".to_owned(),
            });
            if landing == Landing::Kept && matches!(request, NodeRequest::Append { .. }) {
                self.takes_no_writes = None;
                let _ = self.carry_out(id, request);
                self.takes_no_writes = Some(Landing::Lost); // Only the first one arrives.
            }
            return failed;
        }
        let done = Ok(NodeAnswer::Done {
            version: Version::NONE,
        });
        match request {
            NodeRequest::Create { object, .. } => {
                if self.no_space_for_columns && object.class == ObjectClass::Column {
                    return Err(NodeError::NoSpace);
                }
                self.objects.entry(object).or_default();
                done
            }
            NodeRequest::Remove { object, .. } => {
                self.objects.remove(&object);
                done
            }
            NodeRequest::Append {
                object,
                offset_bytes,
                payload,
                fence,
            } => {
                if offset_bytes > 0 && !self.objects.contains_key(&object) {
                    return Err(NodeError::NoObject);
                }
                let known = self.objects.entry(object).or_default();
                if fence < known.fence {
                    return Err(NodeError::Fenced { seen: known.fence });
                }
                known.fence = fence;
                let size_bytes = known.bytes.len() as u64;
                if size_bytes != offset_bytes {
                    return Err(NodeError::WrongEnd { size_bytes });
                }
                known.bytes.extend_from_slice(&payload.to_bytes());
                Ok(NodeAnswer::End {
                    size_bytes: known.bytes.len() as u64,
                })
            }
            NodeRequest::Seal { object, fence } => {
                let known = self.objects.entry(object).or_default();
                if fence < known.fence {
                    return Err(NodeError::Fenced { seen: known.fence });
                }
                known.fence = fence;
                Ok(NodeAnswer::End {
                    size_bytes: known.bytes.len() as u64,
                })
            }
            NodeRequest::List {
                class,
                placement,
                after,
                limit,
            } => {
                let mut all = self.objects.keys().filter(|object| {
                    object.class == class
                        && placement.is_none_or(|placement| placement == object.placement)
                        && after.is_none_or(|after| **object > after)
                });
                let objects: Vec<_> = all.by_ref().take(limit.min(2)).copied().collect();
                let more = all.next().is_some();
                Ok(NodeAnswer::List { objects, more })
            }
            other => self.content(id, other),
        }
    }

    fn content(&mut self, id: NodeId, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        let object = *request.object().expect("about an object");
        let is_small = object.class == ObjectClass::SmallFiles;
        if let NodeRequest::Read { .. } = request
            && is_small
            && self.unreadable_small_files
        {
            return Err(NodeError::Media {
                node: id,
                what: "the medium fails".to_owned(),
            });
        }
        if let NodeRequest::Write { .. } = request
            && is_small
            && self.no_space_for_small_files
        {
            return Err(NodeError::NoSpace);
        }
        let known = self.objects.get_mut(&object).ok_or(NodeError::NoObject)?;
        match request {
            NodeRequest::Read {
                offset_bytes,
                length_bytes,
                ..
            } => {
                let range = within(&known.bytes, offset_bytes, length_bytes);
                Ok(NodeAnswer::Read {
                    payload: Payload::from(Bytes::copy_from_slice(&known.bytes[range])),
                    version: Version::NONE,
                })
            }
            NodeRequest::Write {
                offset_bytes,
                payload,
                context,
                ..
            } => {
                if context.truncate_generation < known.truncate_generation {
                    let current = known.truncate_generation;
                    return Err(NodeError::StaleGeneration { current });
                }
                let start = usize::try_from(offset_bytes).unwrap();
                let end = start + payload.len();
                if known.bytes.len() < end {
                    known.bytes.resize(end, 0);
                }
                payload.copy_to_slice(&mut known.bytes[start..end]);
                Ok(NodeAnswer::Written {
                    version: Version::NONE,
                    incarnation: Incarnation(1),
                })
            }
            NodeRequest::Truncate {
                size_bytes,
                context,
                ..
            } => {
                if context.truncate_generation < known.truncate_generation {
                    let current = known.truncate_generation;
                    return Err(NodeError::StaleGeneration { current });
                }
                known.truncate_generation = context.truncate_generation;
                known.bytes.resize(usize::try_from(size_bytes).unwrap(), 0);
                Ok(NodeAnswer::Done {
                    version: Version::NONE,
                })
            }
            NodeRequest::Zero {
                offset_bytes,
                length_bytes,
                ..
            } => {
                let range = within(&known.bytes, offset_bytes, length_bytes);
                known.bytes[range].fill(0);
                Ok(NodeAnswer::Done {
                    version: Version::NONE,
                })
            }
            NodeRequest::Stat { .. } => Ok(NodeAnswer::Stat(ObjectStat {
                size_bytes: known.bytes.len() as u64,
                allocated_bytes: known.bytes.len() as u64,
                version: Version::NONE,
                truncate_generation: known.truncate_generation,
                fence: known.fence,
                attributes: Bytes::new(),
            })),
            other => panic!("a site never asks for {other:?}"),
        }
    }
}

/// A site, its nodes, and the messages between them.
pub(crate) struct Rig {
    pub(crate) site: Site,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) table: RoutingTable,
    pub(crate) now: Time,
    pub(crate) wall: WallTime,
    pub(crate) limits: SiteLimits,
    /// Bounds of the small files from the next opening on.
    pub(crate) small_files: SmallFilesConfig,
    pub(crate) to_nodes: VecDeque<(NodeId, Call<NodeRequest>)>,
    pub(crate) replies: BTreeMap<CallId, SiteReply>,
    pub(crate) opened: Option<Result<OpenReport, OpenError>>,
    /// What doors were told about locks.
    pub(crate) notices: Vec<LockNotice>,
    pub(crate) recalls: Vec<(HostId, Recall)>,
    /// Why the log took nothing any more.
    pub(crate) read_only: Vec<String>,
    /// Whether the volume has been opened before.
    pub(crate) old: bool,
    /// Not 0: messages arrive in an order of this seed's.
    pub(crate) shuffle: u64,
    next_call: u64,
}

/// Bounds with which checkpoints are made all the time, in many small pieces.
pub(crate) fn many_checkpoints() -> SiteLimits {
    SiteLimits {
        segment_bytes_max: 4096,
        checkpoint_log_bytes_min: 4096,
        checkpoint_ratio_max: u64::MAX,
        checkpoint_chunk_bytes: 512,
        ..SiteLimits::default()
    }
}

impl Rig {
    /// A new volume whose site is open.
    pub(crate) fn new(limits: SiteLimits) -> Self {
        let mut rig = Self::unopened(limits);
        rig.run();
        assert!(matches!(&rig.opened, Some(Ok(report)) if report.fresh));
        rig.old = true;
        rig
    }

    pub(crate) fn unopened(limits: SiteLimits) -> Self {
        Self::begin(limits, SmallFilesConfig::new(SiteId(0)))
    }

    /// A new volume whose site is open, with other bounds of small files.
    pub(crate) fn with_small_files(small_files: SmallFilesConfig) -> Self {
        Self::with(SiteLimits::default(), small_files)
    }

    /// The same with both.
    pub(crate) fn with(limits: SiteLimits, small_files: SmallFilesConfig) -> Self {
        let mut rig = Self::begin(limits, small_files);
        rig.run();
        rig.old = true;
        rig
    }

    fn begin(limits: SiteLimits, small_files: SmallFilesConfig) -> Self {
        let nodes: BTreeMap<NodeId, Node> = (1..=3)
            .map(|number| (NodeId(number), Node::default()))
            .collect();
        let table = table();
        let config = config(&table, limits, small_files, true);
        let now = Time::from_secs(1);
        Self {
            site: Site::open(now, config, Arc::new(table.clone())),
            nodes,
            table,
            now,
            wall: WallTime::from_parts(1_800_000_000, 0),
            limits,
            small_files,
            to_nodes: VecDeque::new(),
            replies: BTreeMap::new(),
            opened: None,
            notices: Vec::new(),
            recalls: Vec::new(),
            read_only: Vec::new(),
            old: false,
            shuffle: 0,
            next_call: 1,
        }
    }

    /// Sends a request; its reply will be in `replies`.
    pub(crate) fn send(&mut self, request: SiteRequest) -> CallId {
        self.send_until(self.now + Duration::from_secs(60), request)
    }

    /// The same; nobody waits for it after `deadline`.
    pub(crate) fn send_until(&mut self, deadline: Time, request: SiteRequest) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        self.wall = WallTime(self.wall.0 + 1_000_000);
        let call = Call {
            id,
            deadline,
            request,
        };
        self.input(SiteInput::Request(Box::new(call)));
        id
    }

    pub(crate) fn input(&mut self, input: SiteInput) {
        self.site.handle(self.now, self.wall, input);
        self.collect();
    }

    pub(crate) fn collect(&mut self) {
        while let Some(effect) = self.site.poll_effect() {
            match effect {
                SiteEffect::Node(node, call) => self.to_nodes.push_back((node, call)),
                SiteEffect::Site(site, _) => panic!("site {site} is asked; there is one"),
                SiteEffect::Reply(reply) => {
                    let before = self.replies.insert(reply.id, *reply);
                    assert!(before.is_none(), "answered twice: {before:?}");
                }
                SiteEffect::Opened(opened) => {
                    assert!(self.opened.is_none(), "opened twice");
                    self.opened = Some(opened);
                }
                SiteEffect::Recall(holder, recall) => self.recalls.push((holder, recall)),
                SiteEffect::Lock(notice) => self.notices.push(notice),
                SiteEffect::ReadOnly(what) => self.read_only.push(what),
            }
        }
    }

    /// Carries out the next message to a node; whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let Some((node, call)) = self.next_message() else {
            return false;
        };
        let outcome = self
            .nodes
            .get_mut(&node)
            .expect("a known node")
            .carry_out(node, call.request);
        let reply = NodeReply {
            id: call.id,
            outcome,
        };
        self.input(SiteInput::Node(node, reply));
        true
    }

    fn next_message(&mut self) -> Option<(NodeId, Call<NodeRequest>)> {
        if self.shuffle == 0 || self.to_nodes.is_empty() {
            return self.to_nodes.pop_front();
        }
        self.shuffle = self
            .shuffle
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let at = usize::try_from(self.shuffle >> 33).expect("31 bits") % self.to_nodes.len();
        self.to_nodes.remove(at)
    }

    /// Carries out a message without telling the site: it dies meanwhile.
    pub(crate) fn step_unanswered(&mut self) -> bool {
        let Some((node, call)) = self.next_message() else {
            return false;
        };
        let node_state = self.nodes.get_mut(&node).expect("a known node");
        let _ = node_state.carry_out(node, call.request);
        true
    }

    /// Until nothing moves any more.
    pub(crate) fn run(&mut self) {
        self.collect();
        while self.step() {}
    }

    /// Lets time pass until the site wants to be woken, and runs.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.wall = WallTime(self.wall.0 + i64::try_from(duration.as_nanos()).unwrap());
        self.input(SiteInput::Timeout);
        self.run();
    }

    /// The manager dies and another one takes over; messages on their way are lost.
    pub(crate) fn restart(&mut self) {
        self.begin_restart();
        self.run();
        if matches!(self.opened, Some(Ok(_))) {
            self.old = true;
        }
    }

    /// A node stops and leaves the site's set; what was on its way to it is lost.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.to_nodes.retain(|(to, _)| *to != node);
        self.table.epoch = Epoch(self.table.epoch.0 + 1);
        if let Some(set) = self.table.sets.get_mut(&SetId(0)) {
            set.members.retain(|member| *member != node);
        }
        self.input(SiteInput::Table(Arc::new(self.table.clone())));
    }

    /// The same, until the first messages are on their way.
    pub(crate) fn begin_restart(&mut self) {
        self.to_nodes.clear();
        self.replies.clear();
        self.opened = None;
        self.now = self.now + Duration::from_secs(1);
        self.wall = WallTime(self.wall.0 + 1_000_000_000);
        let site = &mut self.table.sites[0];
        site.epoch = Epoch(site.epoch.0 + 1);
        self.table.epoch = Epoch(self.table.epoch.0 + 1);
        let config = config(&self.table, self.limits, self.small_files, !self.old);
        self.site = Site::open(self.now, config, Arc::new(self.table.clone()));
        self.collect();
    }

    /// Sends, runs, and returns the reply.
    pub(crate) fn ask_as(&mut self, caller: Caller, operation: SiteOperation) -> SiteReply {
        let id = self.send(SiteRequest {
            caller,
            duplicate: None,
            operation,
        });
        self.run();
        self.replies.remove(&id).expect("answered")
    }

    pub(crate) fn ask(&mut self, operation: SiteOperation) -> SiteReply {
        self.ask_as(Caller::root(), operation)
    }

    pub(crate) fn attributes(&mut self, file: FileRef) -> Attributes {
        let reply = self.ask(SiteOperation::GetAttributes { file });
        assert_eq!(reply.outcome, Ok(SiteAnswer::Done));
        reply.subject.after.expect("attributes")
    }

    pub(crate) fn create(&mut self, name: &str) -> FileRef {
        file_of(&self.ask(create(name)))
    }

    pub(crate) fn lookup(&mut self, name: &str) -> Result<FileRef, SiteError> {
        let reply = self.ask(SiteOperation::Lookup {
            directory: ROOT,
            name: Bytes::copy_from_slice(name.as_bytes()),
        });
        reply.outcome.map(|answer| found(&answer))
    }

    pub(crate) fn remove(&mut self, name: &str) -> SiteReply {
        self.ask(remove(name))
    }

    pub(crate) fn write(&mut self, file: FileRef, offset: u64, bytes: &[u8], stability: Stability) {
        let reply = self.ask(write(file, offset, bytes, stability));
        assert!(
            matches!(reply.outcome, Ok(SiteAnswer::Written { .. })),
            "{reply:?}"
        );
    }

    pub(crate) fn read(&mut self, file: FileRef) -> Vec<u8> {
        let reply = self.ask(SiteOperation::Read {
            file,
            offset_bytes: 0,
            length_bytes: 65536,
            patience_ms: 0,
        });
        match reply.outcome {
            Ok(SiteAnswer::Read {
                payload,
                end_of_file,
            }) => {
                assert!(end_of_file);
                payload.to_bytes().to_vec()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Columns that are on any node.
    pub(crate) fn columns(&self) -> Vec<ObjectId> {
        let all = self.nodes.values().flat_map(|node| node.objects.keys());
        all.filter(|object| object.class == ObjectClass::Column)
            .copied()
            .collect()
    }
}

pub(crate) fn create(name: &str) -> SiteOperation {
    SiteOperation::Create {
        directory: ROOT,
        name: Bytes::copy_from_slice(name.as_bytes()),
        mode: CreateMode::Guarded(crossdock_peer::AttributeChanges {
            mode: Some(0o644),
            ..Default::default()
        }),
    }
}

pub(crate) fn remove(name: &str) -> SiteOperation {
    SiteOperation::Remove {
        directory: ROOT,
        name: Bytes::copy_from_slice(name.as_bytes()),
    }
}

pub(crate) fn write(
    file: FileRef,
    offset: u64,
    bytes: &[u8],
    stability: Stability,
) -> SiteOperation {
    SiteOperation::Write {
        file,
        offset_bytes: offset,
        payload: Payload::from(Bytes::copy_from_slice(bytes)),
        stability,
    }
}

pub(crate) fn once(number: u8, operation: SiteOperation) -> SiteRequest {
    SiteRequest {
        caller: Caller::root(),
        duplicate: Some(DuplicateKey([number; 16])),
        operation,
    }
}

pub(crate) fn plain(operation: SiteOperation) -> SiteRequest {
    SiteRequest {
        caller: Caller::root(),
        duplicate: None,
        operation,
    }
}

pub(crate) fn found(answer: &SiteAnswer) -> FileRef {
    match answer {
        SiteAnswer::Found { attributes, .. } => attributes.file,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn file_of(reply: &SiteReply) -> FileRef {
    match &reply.outcome {
        Ok(answer) => found(answer),
        Err(error) => panic!("{error}"),
    }
}

/// The site's set is nodes 1 and 2; columns lie on 1, 2 and 3.
pub(crate) fn table() -> RoutingTable {
    let set = |members: &[u64]| ReplicaSet {
        epoch: Epoch(1),
        members: members.iter().map(|&node| NodeId(node)).collect(),
    };
    RoutingTable {
        epoch: Epoch(1),
        sets: BTreeMap::from([
            (SetId(0), set(&[1, 2])),
            (SetId(1), set(&[1])),
            (SetId(2), set(&[2])),
            (SetId(3), set(&[3])),
        ]),
        slots: vec![vec![SetId(1), SetId(2), SetId(3)]; SLOTS],
        sites: vec![
            SiteRecord {
                epoch: Epoch(1),
                set: SetId(0),
            };
            SITES
        ],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    }
}

fn config(
    table: &RoutingTable,
    limits: SiteLimits,
    small_files: SmallFilesConfig,
    new_volume: bool,
) -> SiteConfig {
    let site = SiteId(0);
    let epoch = table.site(site).expect("a site").epoch;
    SiteConfig {
        limits,
        small_files,
        new_volume,
        ..SiteConfig::new(site, VolumeId(0xfeed), epoch)
    }
}

/// The part of the range that the bytes have.
fn within(bytes: &[u8], offset_bytes: u64, length_bytes: u64) -> std::ops::Range<usize> {
    let start = usize::try_from(offset_bytes).unwrap().min(bytes.len());
    let end = start.saturating_add(usize::try_from(length_bytes).unwrap());
    start..end.min(bytes.len())
}
