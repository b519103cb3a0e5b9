//! A door and a volume of a few files in memory, driven by hand: what the door asks
//! for is answered when the test says so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Advice, TcpSample};
use crossdock_http::{ConnId, HttpConfig, HttpDoor, HttpEffect, HttpInput, Wanted};
use crossdock_names::{FileId, FileRef, Incarnation, LayoutClass, SiteId};
use crossdock_peer::{
    Attributes, Call, CallId, CreateMode, Device, DirectoryEntry, FileKind, Flow, SiteAnswer,
    SiteError, SiteOperation, SiteReply, SiteRequest, Transport, WeakCache,
};
use crossdock_router::{RoutedReply, Waited};
use crossdock_types::{Extent, Filler, Part, Payload, Released, Time, WallTime};

/// 2026-11-24T12:00:00Z.
pub(crate) const WALL: WallTime = WallTime(1_795_521_600_000_000_000);

/// Whether an operation is meant.
type Matches = fn(&SiteOperation) -> bool;

struct File {
    attributes: Attributes,
    content: Vec<u8>,
    names: BTreeMap<Bytes, FileRef>,
}

pub(crate) struct Rig {
    pub(crate) door: HttpDoor,
    pub(crate) now: Time,
    files: BTreeMap<FileRef, File>,
    changes: i64,
    /// Asked, not answered.
    pub(crate) asked: VecDeque<Call<SiteRequest>>,
    /// What has been sent on each connection.
    pub(crate) out: BTreeMap<ConnId, Vec<u8>>,
    /// What dummy bytes in it stand for, and where they begin.
    pub(crate) named: Vec<(usize, Extent)>,
    /// Calls whose answers nodes keep, to be sent in these connections.
    pub(crate) flows: BTreeMap<CallId, Flow>,
    /// What was given back of that.
    pub(crate) released: Released,
    pub(crate) ended: BTreeMap<ConnId, Ended>,
    pub(crate) paused: BTreeMap<ConnId, bool>,
    /// What is received in one piece.
    pub(crate) filling: BTreeMap<ConnId, Filler>,
    pub(crate) withdrawn: Vec<CallId>,
    pub(crate) advice: Vec<Advice>,
    /// Reads whose bytes are kept.
    pub(crate) kept: Vec<CallId>,
    /// What is to be found at one node.
    pub(crate) wanted: Vec<(ConnId, Wanted)>,
    /// Bytes that the client takes of each send before it is told; all by default.
    pub is_reading: bool,
    /// What connections carry, in bytes a second.
    pub rate: u64,
    /// What lies in their sockets whenever somebody looks.
    pub unsent_bytes: u64,
    /// What the next calls that match fail with.
    pub(crate) failing: Option<(Matches, SiteError)>,
    connections: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Aborted,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(HttpConfig {
            seed: 7,
            ..HttpConfig::default()
        })
    }

    pub(crate) fn with(config: HttpConfig) -> Self {
        let mut rig = Self {
            door: HttpDoor::new(config),
            now: Time::from_secs(1),
            files: BTreeMap::new(),
            changes: 0,
            asked: VecDeque::new(),
            out: BTreeMap::new(),
            named: Vec::new(),
            flows: BTreeMap::new(),
            released: Released::default(),
            ended: BTreeMap::new(),
            paused: BTreeMap::new(),
            filling: BTreeMap::new(),
            withdrawn: Vec::new(),
            advice: Vec::new(),
            kept: Vec::new(),
            wanted: Vec::new(),
            is_reading: true,
            rate: 100_000_000,
            unsent_bytes: 0,
            failing: None,
            connections: 0,
        };
        let root = FileRef::root_of(SiteId(0));
        rig.insert(root, FileKind::Directory, 0o755, Vec::new());
        rig
    }

    fn insert(&mut self, file: FileRef, kind: FileKind, mode: u32, content: Vec<u8>) {
        let changed = self.next_change();
        let attributes = Attributes {
            file,
            kind,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: content.len() as u64,
            used_bytes: content.len() as u64,
            device: Device::default(),
            accessed: changed,
            modified: changed,
            changed,
        };
        let names = BTreeMap::new();
        self.files.insert(
            file,
            File {
                attributes,
                content,
                names,
            },
        );
    }

    fn next_change(&mut self) -> WallTime {
        self.changes += 1;
        WallTime(WALL.0 - 3_600_000_000_000 + self.changes)
    }

    fn new_file(&mut self, kind: FileKind, mode: u32, content: Vec<u8>) -> FileRef {
        let serial = 100 + self.files.len() as u64 + self.changes as u64;
        let file = FileRef {
            id: FileId::new(SiteId(0), serial),
            generation: 1,
        };
        self.insert(file, kind, mode, content);
        file
    }

    /// Makes, or replaces, a file at a path; directories on the way are made.
    pub(crate) fn put(
        &mut self,
        path: &str,
        kind: FileKind,
        content: impl Into<Vec<u8>>,
    ) -> FileRef {
        let mut here = FileRef::root_of(SiteId(0));
        let mut names = path.trim_matches('/').split('/').peekable();
        let content = content.into();
        while let Some(name) = names.next() {
            let name = Bytes::copy_from_slice(name.as_bytes());
            let is_last = names.peek().is_none();
            let known = self.files[&here].names.get(&name).copied();
            here = match (known, is_last) {
                (Some(known), false) => known,
                (_, true) => {
                    let file = self.new_file(kind, 0o644, content.clone());
                    self.name(here, name, file);
                    file
                }
                (None, false) => {
                    let file = self.new_file(FileKind::Directory, 0o755, Vec::new());
                    self.name(here, name, file);
                    file
                }
            };
        }
        here
    }

    fn name(&mut self, directory: FileRef, name: Bytes, file: FileRef) {
        let directory = self.files.get_mut(&directory).expect("a directory");
        directory.names.insert(name, file);
    }

    /// Overwrites the content of a file in its place.
    pub(crate) fn overwrite(&mut self, file: FileRef, content: impl Into<Vec<u8>>) {
        let changed = self.next_change();
        let file = self.files.get_mut(&file).expect("a file");
        file.content = content.into();
        file.attributes.size_bytes = file.content.len() as u64;
        file.attributes.changed = changed;
        file.attributes.modified = changed;
    }

    /// Removes a file that has lost its name.
    pub(crate) fn forget(&mut self, file: FileRef) {
        self.files.remove(&file).expect("a file");
    }

    pub(crate) fn content(&self, path: &str) -> Option<&[u8]> {
        let mut here = FileRef::root_of(SiteId(0));
        for name in path.trim_matches('/').split('/') {
            here = *self.files[&here].names.get(name.as_bytes())?;
        }
        Some(&self.files[&here].content)
    }

    /// What lies at a path.
    pub(crate) fn file(&self, path: &str) -> FileRef {
        let mut here = FileRef::root_of(SiteId(0));
        for name in path.trim_matches('/').split('/') {
            here = self.files[&here].names[name.as_bytes()];
        }
        here
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let root = &self.files[&FileRef::root_of(SiteId(0))];
        let names = root.names.keys();
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// A connection in which nodes may send.
    pub(crate) fn connect_for_nodes(&mut self) -> (ConnId, Flow) {
        let id = self.connect();
        let flow = Flow {
            transport: Transport::Tcp,
            source: "198.18.0.1:80".parse().expect("an address"),
            destination: "198.18.0.9:4000".parse().expect("an address"),
        };
        self.input(HttpInput::Flow(id, flow));
        (id, flow)
    }

    pub(crate) fn connect(&mut self) -> ConnId {
        self.connections += 1;
        let id = ConnId(self.connections);
        let peer = "198.18.0.9:4000".parse().expect("an address");
        self.input(HttpInput::Opened(id, peer));
        id
    }

    pub(crate) fn input(&mut self, input: HttpInput) {
        self.door.handle(self.now, WALL, input);
        self.drain();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.door.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(HttpInput::Timeout);
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(effect) = self.door.poll_effect() {
            match effect {
                HttpEffect::Send(id, payload) => {
                    let bytes = payload.len();
                    let out = self.out.entry(id).or_default();
                    for part in payload.into_parts() {
                        match part {
                            Part::Bytes(bytes) => out.extend_from_slice(&bytes),
                            Part::Extent(extent) => {
                                let length = extent.length_bytes;
                                self.named.push((out.len(), extent));
                                out.resize(out.len() + length, 0);
                            }
                        }
                    }
                    if self.is_reading {
                        self.door.handle(self.now, WALL, HttpInput::Sent(id, bytes));
                    }
                }
                HttpEffect::Close(id) => drop(self.ended.insert(id, Ended::Closed)),
                HttpEffect::Abort(id) => drop(self.ended.insert(id, Ended::Aborted)),
                HttpEffect::Fill(id, fill) => {
                    let before = self.filling.insert(id, fill.into());
                    assert!(before.is_none(), "two at a time");
                }
                HttpEffect::Pause(id) => drop(self.paused.insert(id, true)),
                HttpEffect::Resume(id) => drop(self.paused.insert(id, false)),
                HttpEffect::Sample(id) => {
                    let sent = self.out.get(&id).map_or(0, Vec::len) as u64;
                    let sample = TcpSample {
                        delivery_rate: self.rate,
                        unsent_bytes: self.unsent_bytes,
                        acked_bytes: sent,
                        rtt: Duration::from_millis(1),
                        ..TcpSample::default()
                    };
                    self.door
                        .handle(self.now, WALL, HttpInput::Sampled(id, sample));
                }
                HttpEffect::Postpone(..) | HttpEffect::Hurry(_) | HttpEffect::Ahead(_) => {}
                HttpEffect::Advise(advice) => self.advice.push(advice),
                HttpEffect::Router(call) => self.asked.push_back(*call),
                HttpEffect::ReadFor(flow, _, call) => {
                    self.flows.insert(call.id, flow);
                    self.asked.push_back(*call);
                }
                HttpEffect::ReadHot(call) => {
                    self.kept.push(call.id);
                    self.asked.push_back(*call);
                }
                HttpEffect::Locate(id, wanted) => self.wanted.push((id, *wanted)),
                HttpEffect::Withdraw(id) => {
                    self.asked.retain(|call| call.id != id);
                    self.withdrawn.push(id);
                }
            }
        }
    }

    pub(crate) fn send(&mut self, id: ConnId, bytes: impl AsRef<[u8]>) {
        let mut bytes = Bytes::copy_from_slice(bytes.as_ref());
        while let Some(whole) = Filler::next_of(&mut self.filling, id, &mut bytes) {
            self.input(HttpInput::Received(id, whole));
        }
    }

    /// Answers the oldest call; false if there is none.
    pub(crate) fn answer_one(&mut self) -> bool {
        let Some(call) = self.asked.pop_front() else {
            return false;
        };
        let reply = self.reply(call);
        self.input(HttpInput::Reply(Box::new(reply)));
        true
    }

    /// Answers until so many calls are left.
    pub(crate) fn settle_but(&mut self, left: usize) {
        while self.asked.len() > left {
            self.answer_one();
        }
    }

    /// Answers the newest call.
    pub(crate) fn answer_last(&mut self) {
        if let Some(last) = self.asked.pop_back() {
            self.asked.push_front(last);
            self.answer_one();
        }
    }

    pub(crate) fn settle(&mut self) {
        while self.answer_one() {}
    }

    /// Sends a request on a connection of its own, and returns the response.
    pub(crate) fn ask(&mut self, request: &str) -> Response {
        let id = self.connect();
        self.send(id, request);
        self.settle();
        self.response(id)
    }

    pub(crate) fn response(&mut self, id: ConnId) -> Response {
        let mut all = self.responses(id);
        assert_eq!(all.len(), 1, "one response");
        all.remove(0)
    }

    /// All responses on a connection, in order.
    pub(crate) fn responses(&mut self, id: ConnId) -> Vec<Response> {
        let mut rest = self.out.remove(&id).unwrap_or_default();
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (response, bytes) = Response::parse(&rest);
            rest.drain(..bytes);
            all.push(response);
        }
        all
    }

    fn reply(&mut self, call: Call<SiteRequest>) -> RoutedReply {
        let operation = call.request.operation;
        let failure = self.failing.filter(|(matches, _)| matches(&operation));
        let (outcome, after) = match failure {
            Some((_, error)) => (Err(error), None),
            None => self.carry_out(&call.request.caller.uid, operation.clone()),
        };
        let outcome = match (outcome, operation) {
            (
                Ok(SiteAnswer::Read {
                    payload,
                    end_of_file,
                }),
                SiteOperation::Read { offset_bytes, .. },
            ) if self.flows.contains_key(&call.id) => {
                let mut named = Payload::new();
                let length = payload.len();
                named.push_extent(Extent::new(1, offset_bytes, length, &self.released));
                Ok(SiteAnswer::Read {
                    payload: named,
                    end_of_file,
                })
            }
            (outcome, _) => outcome,
        };
        RoutedReply {
            reply: SiteReply {
                id: call.id,
                outcome,
                subject: WeakCache {
                    before: None,
                    after,
                },
                second: WeakCache::default(),
            },
            verifier: [1; 8],
            waited: Waited::default(),
        }
    }

    fn carry_out(
        &mut self,
        uid: &u32,
        operation: SiteOperation,
    ) -> (Result<SiteAnswer, SiteError>, Option<Attributes>) {
        let outcome = self.outcome(*uid, &operation);
        let subject = *operation.subject();
        let after = self.files.get(&subject);
        (outcome, after.map(|file| file.attributes.clone()))
    }

    fn found(&self, file: FileRef) -> SiteAnswer {
        SiteAnswer::Found {
            attributes: self.files[&file].attributes.clone(),
            layout: LayoutClass::STRIPED,
            placement: file.id,
        }
    }

    fn outcome(&mut self, uid: u32, operation: &SiteOperation) -> Result<SiteAnswer, SiteError> {
        let file = self
            .files
            .get(operation.subject())
            .ok_or(SiteError::Stale)?;
        let may_read = uid == 0 || file.attributes.mode & 0o004 != 0;
        let may_write = uid == 0 || file.attributes.mode & 0o002 != 0;
        match operation {
            SiteOperation::GetAttributes { .. } => Ok(SiteAnswer::Done),
            SiteOperation::Lookup { name, .. } => {
                let found = file.names.get(name).ok_or(SiteError::NotFound)?;
                Ok(self.found(*found))
            }
            SiteOperation::Access { wanted, .. } => Ok(SiteAnswer::Access {
                granted: if may_read { *wanted } else { 0 },
            }),
            SiteOperation::ReadLink { .. } => Ok(SiteAnswer::Link {
                target: Bytes::copy_from_slice(&file.content),
            }),
            SiteOperation::Read { .. } if !may_read => Err(SiteError::AccessDenied),
            SiteOperation::Read {
                offset_bytes,
                length_bytes,
                ..
            } => {
                let size = file.content.len();
                let from = usize::try_from(*offset_bytes).expect("small").min(size);
                let to = (from + usize::try_from(*length_bytes).expect("small")).min(size);
                Ok(SiteAnswer::Read {
                    payload: Payload::from(Bytes::copy_from_slice(&file.content[from..to])),
                    end_of_file: to == size,
                })
            }
            SiteOperation::ReadDirectory {
                cookie,
                entries_max,
                ..
            } => {
                let skipped = usize::try_from(*cookie).expect("small");
                let all = file.names.iter().enumerate().skip(skipped);
                let entries: Vec<DirectoryEntry> = all
                    .take(*entries_max)
                    .map(|(at, (name, file))| DirectoryEntry {
                        file: file.id,
                        name: name.clone(),
                        cookie: at as u64 + 1,
                        attributes: Some(self.files[file].attributes.clone()),
                    })
                    .collect();
                let end = skipped + entries.len() == file.names.len();
                Ok(SiteAnswer::Directory {
                    entries,
                    end,
                    verifier: [0; 8],
                })
            }
            _ if !may_write => Err(SiteError::AccessDenied),
            operation => self.change(operation.clone()),
        }
    }

    fn change(&mut self, operation: SiteOperation) -> Result<SiteAnswer, SiteError> {
        match operation {
            SiteOperation::Create {
                directory,
                name,
                mode,
            } => {
                let CreateMode::Guarded(changes) = mode else {
                    return Err(SiteError::Invalid);
                };
                if self.files[&directory].names.contains_key(&name) {
                    return Err(SiteError::Exists);
                }
                let mode = changes.mode.expect("a mode");
                let file = self.new_file(FileKind::Regular, mode, Vec::new());
                self.name(directory, name, file);
                Ok(self.found(file))
            }
            SiteOperation::MakeDirectory {
                directory, name, ..
            } => {
                let file = self.new_file(FileKind::Directory, 0o755, Vec::new());
                self.name(directory, name, file);
                Ok(self.found(file))
            }
            SiteOperation::Write {
                file,
                offset_bytes,
                payload,
                ..
            } => {
                let mut content = self.files[&file].content.clone();
                let from = usize::try_from(offset_bytes).expect("small");
                content.resize(content.len().max(from + payload.len()), 0);
                payload.copy_to_slice(&mut content[from..from + payload.len()]);
                self.overwrite(file, content);
                Ok(SiteAnswer::Written {
                    incarnation: Incarnation(1),
                })
            }
            SiteOperation::Commit { .. } => Ok(SiteAnswer::Committed),
            SiteOperation::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => {
                let from = self.files.get_mut(&from_directory).expect("a directory");
                let file = from.names.remove(&from_name).ok_or(SiteError::NotFound)?;
                self.name(to_directory, to_name, file);
                Ok(SiteAnswer::Done)
            }
            SiteOperation::Remove { directory, name }
            | SiteOperation::RemoveDirectory { directory, name } => {
                let file = self.files[&directory].names.get(&name);
                let file = *file.ok_or(SiteError::NotFound)?;
                if !self.files[&file].names.is_empty() {
                    return Err(SiteError::NotEmpty);
                }
                let directory = self.files.get_mut(&directory).expect("a directory");
                directory.names.remove(&name);
                Ok(SiteAnswer::Done)
            }
            _ => Err(SiteError::Invalid),
        }
    }
}

/// A response, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    fn parse(bytes: &[u8]) -> (Self, usize) {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let status = head[9..12].parse().expect("a status");
        let mut response = Self {
            status,
            head,
            body: Vec::new(),
        };
        let has_none = matches!(status, 100..=199 | 204 | 304);
        let length = response.header("content-length");
        let length = length.map_or(0, |length| length.parse().expect("a length"));
        let here = (bytes.len() - end).min(if has_none { 0 } else { length });
        response.body = bytes[end..end + here].to_vec();
        (response, end + here)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
