//! Several sites on the same nodes, and messages between them that come in any
//! order, twice, and after who sent them has died.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{Epoch, FileId, FileRef, NodeId, RoutingTable, SiteId, Spread, VolumeId};
use crossdock_peer::{
    Attributes, Call, CallId, Caller, DirectoryEntry, DuplicateKey, FileKind, NodeReply,
    NodeRequest, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
};
use crossdock_site::{Site, SiteConfig, SiteEffect, SiteInput};
use crossdock_types::{Time, WallTime};

use super::rig::{Node, ROOT, table};

/// How many sites there are.
pub(crate) const COUNT: u16 = 4;

/// Who asks a site: clients' calls have this bit.
const OF_CLIENTS: u64 = 1 << 63;

/// A message on its way.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful at a time")]
enum Message {
    Node(SiteId, Epoch, NodeId, Call<NodeRequest>),
    Site {
        from: SiteId,
        to: SiteId,
        call: Call<SiteRequest>,
    },
    /// A site's answer to another one.
    Answer(SiteId, SiteReply),
}

/// A request of a client that has no answer yet.
#[derive(Clone, Debug)]
struct Waiting {
    request: SiteRequest,
    /// When it is sent again.
    again: Time,
}

/// The sites, and everything around them.
pub(crate) struct Sites {
    sites: BTreeMap<SiteId, Site>,
    nodes: BTreeMap<NodeId, Node>,
    table: RoutingTable,
    pub(crate) spread: Spread,
    now: Time,
    wall: WallTime,
    messages: Vec<Message>,
    /// Who asked, by the numbers that sites know calls of others by.
    askers: BTreeMap<(SiteId, CallId), (SiteId, CallId)>,
    waiting: BTreeMap<u64, Waiting>,
    pub(crate) replies: BTreeMap<u64, SiteReply>,
    random: u64,
    calls: u64,
    requests: u64,
    /// One in so many messages kills a site; 0 = none.
    pub(crate) crash_one_in: u64,
    /// One in so many messages between sites comes twice; 0 = none.
    pub(crate) twice_one_in: u64,
    /// By how much each site's clock is behind that of the one before.
    pub(crate) skew: Duration,
    pub(crate) crashes: u64,
}

impl Sites {
    pub(crate) fn new(seed: u64, spread: Spread) -> Self {
        let nodes = (1..=3).map(|number| (NodeId(number), Node::default()));
        let mut sites = Self {
            sites: BTreeMap::new(),
            nodes: nodes.collect(),
            table: table(),
            spread,
            now: Time::from_secs(1),
            wall: WallTime::from_parts(1_800_000_000, 0),
            messages: Vec::new(),
            askers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            replies: BTreeMap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            calls: 0,
            requests: 0,
            crash_one_in: 0,
            twice_one_in: 0,
            skew: Duration::ZERO,
            crashes: 0,
        };
        for number in 0..COUNT {
            sites.open(SiteId(number));
        }
        sites.settle();
        sites
    }

    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % below.max(1)
    }

    fn open(&mut self, site: SiteId) {
        let record = &mut self.table.sites[usize::from(site.0)];
        record.epoch = Epoch(record.epoch.0 + 1);
        self.table.epoch = Epoch(self.table.epoch.0 + 1);
        let mut config = SiteConfig::new(site, VolumeId(0xfeed), record.epoch);
        config.new_volume = record.epoch == Epoch(2);
        config.spread = self.spread;
        config.limits.checkpoint_log_bytes_min = 4096;
        config.limits.checkpoint_chunk_bytes = 512;
        let opened = Site::open(self.now, config, Arc::new(self.table.clone()));
        self.sites.insert(site, opened);
        self.collect(site);
    }

    /// A site's manager dies, and another one opens it. What it sent may come yet.
    fn crash(&mut self, site: SiteId) {
        self.crashes += 1;
        let lost = self.random(2) == 0;
        self.messages.retain(|message| match message {
            // The nodes are fenced; what they answer is to nobody.
            Message::Node(of, ..) => *of != site,
            Message::Answer(to, _) => *to != site,
            Message::Site { from, to, .. } => *to != site && !(lost && *from == site),
        });
        self.askers.retain(|(of, _), _| *of != site);
        self.open(site);
        // Whoever waits for an answer of it learns that there will be none.
        let others: Vec<SiteId> = self.sites.keys().copied().collect();
        for other in others {
            let table = Arc::new(self.table.clone());
            self.input(other, SiteInput::Table(table));
        }
        for waiting in self.waiting.values_mut() {
            waiting.again = self.now;
        }
    }

    fn input(&mut self, site: SiteId, input: SiteInput) {
        let behind = self.skew.as_nanos() * u128::from(site.0);
        let wall = WallTime(self.wall.0 - i64::try_from(behind).expect("a time"));
        if let Some(own) = self.sites.get_mut(&site) {
            own.handle(self.now, wall, input);
        }
        self.collect(site);
    }

    fn collect(&mut self, site: SiteId) {
        let epoch = self.table.sites[usize::from(site.0)].epoch;
        while let Some(effect) = self.sites.get_mut(&site).and_then(Site::poll_effect) {
            match effect {
                SiteEffect::Node(node, call) => {
                    self.messages.push(Message::Node(site, epoch, node, call));
                }
                SiteEffect::Site(to, call) => {
                    let from = site;
                    self.messages.push(Message::Site {
                        from,
                        to,
                        call: *call,
                    });
                }
                SiteEffect::Reply(reply) if reply.id.0 & OF_CLIENTS != 0 => {
                    self.take_reply(*reply);
                }
                SiteEffect::Reply(mut reply) => {
                    if let Some((asker, id)) = self.askers.remove(&(site, reply.id)) {
                        reply.id = id;
                        self.messages.push(Message::Answer(asker, *reply));
                    }
                }
                SiteEffect::Opened(opened) => {
                    opened.expect("a site opens");
                }
                SiteEffect::Lock(_) | SiteEffect::Recall(..) => {}
                SiteEffect::ReadOnly(what) => panic!("{what}"),
            }
        }
    }

    fn take_reply(&mut self, reply: SiteReply) {
        let number = reply.id.0 & !OF_CLIENTS;
        let Some(waiting) = self.waiting.get_mut(&number) else {
            return; // An answer to an earlier sending.
        };
        let is_final = !matches!(
            reply.outcome,
            Err(SiteError::Busy | SiteError::Moved | SiteError::Unanswered)
        );
        if is_final {
            self.waiting.remove(&number);
            self.replies.insert(number, reply);
        } else {
            waiting.again = self.now + Duration::from_millis(20);
        }
    }

    /// Sends a request; its reply will be in `replies`.
    pub(crate) fn send(&mut self, operation: SiteOperation) -> u64 {
        let operation = operation.placed(&self.spread);
        self.requests += 1;
        let number = self.requests;
        let is_change = !matches!(
            operation,
            SiteOperation::GetAttributes { .. }
                | SiteOperation::Lookup { .. }
                | SiteOperation::LookupParent { .. }
                | SiteOperation::ReadDirectory { .. }
        );
        let request = SiteRequest {
            caller: Caller::root(),
            duplicate: is_change.then(|| DuplicateKey(u128::from(number).to_be_bytes())),
            operation,
        };
        let again = self.now;
        self.waiting.insert(number, Waiting { request, again });
        self.send_waiting();
        number
    }

    fn send_waiting(&mut self) {
        let due = self.waiting.iter_mut();
        let due = due.filter(|(_, waiting)| waiting.again <= self.now);
        let mut sent = Vec::new();
        for (&number, waiting) in due {
            waiting.again = self.now + Duration::from_secs(3);
            sent.push((number, waiting.request.clone()));
        }
        for (number, request) in sent {
            let call = Call {
                id: CallId(number | OF_CLIENTS),
                deadline: self.now + Duration::from_secs(20),
                request,
            };
            let site = call.request.operation.site();
            self.input(site, SiteInput::Request(Box::new(call)));
        }
    }

    /// Carries one message, or lets time pass until something is due.
    pub(crate) fn step(&mut self) {
        self.now = self.now + Duration::from_micros(100);
        self.wall = WallTime(self.wall.0 + 100_000);
        if self.messages.is_empty() {
            return self.pass();
        }
        let at = self.random(self.messages.len() as u64);
        let at = usize::try_from(at).expect("an index");
        let message = self.messages.swap_remove(at);
        if self.twice_one_in > 0
            && !matches!(message, Message::Node(..))
            && self.random(self.twice_one_in) == 0
        {
            self.messages.push(message.clone());
        }
        self.deliver(message);
        let due = self.sites.values().filter_map(Site::poll_timeout).min();
        if due.is_some_and(|due| due <= self.now) {
            self.wake();
        }
        if self.crash_one_in > 0 && self.random(self.crash_one_in) == 0 {
            let site = self.random(COUNT.into());
            self.crash(SiteId(u16::try_from(site).expect("a site")));
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Node(site, epoch, node, call) => {
                let outcome = self
                    .nodes
                    .get_mut(&node)
                    .expect("a node")
                    .carry_out(node, call.request);
                let current = self.table.sites[usize::from(site.0)].epoch;
                if epoch == current {
                    let reply = NodeReply {
                        id: call.id,
                        outcome,
                    };
                    self.input(site, SiteInput::Node(node, reply));
                }
            }
            Message::Site { from, to, mut call } => {
                self.calls += 1;
                let id = CallId(self.calls);
                self.askers.insert((to, id), (from, call.id));
                call.id = id;
                self.input(to, SiteInput::Request(Box::new(call)));
            }
            Message::Answer(to, reply) => self.input(to, SiteInput::Site(Box::new(reply))),
        }
    }

    fn pass(&mut self) {
        let due = self.sites.values().filter_map(Site::poll_timeout);
        let clients = self.waiting.values().map(|waiting| waiting.again);
        let Some(next) = due.chain(clients).min() else {
            return;
        };
        let passed = next.max(self.now).since(self.now);
        self.now = self.now + passed;
        self.wall = WallTime(self.wall.0 + i64::try_from(passed.as_nanos()).expect("a time"));
        self.wake();
    }

    fn wake(&mut self) {
        for site in (0..COUNT).map(SiteId) {
            self.input(site, SiteInput::Timeout);
        }
        self.send_waiting();
    }

    /// Until nobody waits for anything any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200_000 {
            let idle = |site: &Site| site.is_idle() && !site.keeps_promises();
            let is_quiet = self.messages.is_empty()
                && self.waiting.is_empty()
                && self.sites.values().all(idle);
            if is_quiet {
                return;
            }
            self.step();
        }
        panic!("it does not end: {:?}", self.waiting);
    }

    /// Sends, and waits for the answer.
    pub(crate) fn ask(&mut self, operation: SiteOperation) -> SiteReply {
        let number = self.send(operation);
        for _ in 0..200_000 {
            if let Some(reply) = self.replies.remove(&number) {
                return reply;
            }
            self.step();
        }
        panic!("no answer: {:?}", self.waiting);
    }

    pub(crate) fn attributes(&mut self, file: FileRef) -> Attributes {
        let reply = self.ask(SiteOperation::GetAttributes { file });
        match reply.outcome {
            Ok(SiteAnswer::Done) => reply.subject.after.expect("attributes"),
            Ok(SiteAnswer::Part {
                attributes,
                changes,
            }) => {
                let mut parts = vec![(attributes, changes)];
                for part in self.spread.parts_of(file).skip(1) {
                    parts.push(self.part(part));
                }
                Attributes::of_parts(parts).expect("a part")
            }
            other => panic!("{file:?}: {other:?}"),
        }
    }

    fn part(&mut self, file: FileRef) -> (Attributes, u64) {
        match self.ask(SiteOperation::GetAttributes { file }).outcome {
            Ok(SiteAnswer::Part {
                attributes,
                changes,
            }) => (attributes, changes),
            other => panic!("{file:?}: {other:?}"),
        }
    }

    /// Which file has the name.
    pub(crate) fn lookup(
        &mut self,
        directory: FileRef,
        name: &Bytes,
    ) -> Result<FileRef, SiteError> {
        let name = name.clone();
        let reply = self.ask(SiteOperation::Lookup { directory, name });
        match reply.outcome? {
            SiteAnswer::Found { attributes, .. } => Ok(attributes.file),
            SiteAnswer::Elsewhere(file) => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn entries(&mut self, directory: FileRef) -> Vec<DirectoryEntry> {
        let mut all = Vec::new();
        for directory in self.spread.parts_of(directory) {
            let reply = self.ask(SiteOperation::ReadDirectory {
                directory,
                cookie: 2,
                entries_max: 10_000,
                name_bytes_max: 1 << 20,
                with_attributes: false,
            });
            match reply.outcome {
                Ok(SiteAnswer::Directory { entries, .. }) => all.extend(entries),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    /// Checks that the volume is one tree: every name names a file, every file has
    /// as many names as it says, every directory one and the parent that it says;
    /// and there is nothing else. How many directories lie elsewhere than their parent.
    pub(crate) fn check(&mut self) -> usize {
        self.settle();
        let mut names: BTreeMap<FileId, u32> = BTreeMap::new();
        let mut seen = BTreeSet::from([ROOT.id]);
        let mut unvisited = vec![(ROOT, ROOT)];
        let mut switched = 0;
        while let Some((directory, parent)) = unvisited.pop() {
            let up = self.ask(SiteOperation::LookupParent {
                directory,
                within: ROOT,
            });
            let up = match up.outcome {
                Ok(SiteAnswer::Found { attributes, .. }) => attributes.file,
                Ok(SiteAnswer::Elsewhere(file)) => file,
                other => panic!("{other:?}"),
            };
            assert_eq!(up, parent, "the parent of {directory:?}");
            let mut subdirectories = 0;
            for entry in self.entries(directory) {
                let child = self
                    .lookup(directory, &entry.name)
                    .expect("the name is there");
                assert_eq!(child.id, entry.file);
                let attributes = self.attributes(child);
                if attributes.kind == FileKind::Directory {
                    assert!(seen.insert(child.id), "{child:?} has two names");
                    subdirectories += 1;
                    switched += usize::from(child.id.site() != directory.id.site());
                    unvisited.push((child, directory));
                } else {
                    *names.entry(child.id).or_default() += 1;
                }
            }
            let attributes = self.attributes(directory);
            assert_eq!(
                attributes.links,
                2 + subdirectories,
                "links of {directory:?}"
            );
            for part in self.spread.parts_of(directory).skip(1) {
                let (part, _) = self.part(part);
                let owned = |of: &Attributes| (of.mode, of.uid, of.gid);
                assert_eq!(owned(&part), owned(&attributes), "a part of {directory:?}");
            }
        }
        for (&file, &count) in &names {
            let attributes = self.attributes(FileRef {
                id: file,
                generation: 1,
            });
            assert_eq!(attributes.links, count, "links of {file:?}");
        }
        let cells = self
            .sites
            .values()
            .map(|site| site.directory().memory_use());
        let cells: usize = cells.map(|memory| memory.cells).sum();
        let parts = self.spread.parts_of(ROOT).count();
        assert_eq!(
            cells,
            seen.len() * parts + names.len(),
            "files without a name"
        );
        switched
    }
}
