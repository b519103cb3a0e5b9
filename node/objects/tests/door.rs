//! The door with a node that the test plays: what is served, refused, read ahead and
//! given up.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{DeliveryConfig, DiskProfile, TcpSample};
use crossdock_names::{
    Epoch, FileCapability, FileId, HostId, MintingKey, NodeId, ObjectId, Rights, Scope, Version,
};
use crossdock_objects::{ConnId, ObjectDoor, ObjectDoorConfig, ObjectDoorEffect, ObjectDoorInput};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, ObjectStat, ReadVersion,
};
use crossdock_types::{Payload, Time, WallTime};
use crossdock_web::{FilePlace, ObjectGate, ObjectUrl};

const NODE: NodeId = NodeId(7);
const CLIENT: ConnId = ConnId(1);
const SECONDS: u64 = 1_700_000_000;
const NEWEST: Version = Version(41);

const MANAGER: HostId = HostId(1);
const GATEWAY: HostId = HostId(2);

/// The gateway's right to read the file, by a manager with that key.
fn right(key: u8) -> FileCapability {
    let right = FileCapability {
        rights: Rights::READ,
        minter: MANAGER,
        holder: GATEWAY,
        scope: Scope::Columns {
            placement: FileId(5),
            generation: 0,
        },
        expiry_seconds: SECONDS + 60,
        mac: [0; 16],
    };
    right.mint(&MintingKey([key; 32]))
}

fn sign(url: &ObjectUrl) -> String {
    url.sign(&right(9)).expect("the right")
}

fn gate() -> ObjectGate {
    ObjectGate {
        nodes: [NODE].into(),
        minters: [(MANAGER, MintingKey([9; 32]))].into(),
        holders: [GATEWAY].into(),
    }
}

fn url() -> ObjectUrl {
    ObjectUrl {
        object: ObjectId::column(FileId(5), 0, 0, 0),
        node: NODE,
        offset_bytes: 4096,
        length_bytes: 10_000,
        version: Version::NONE,
        expires: SECONDS + 60,
        place: None,
    }
}

/// The byte of an object at that offset.
fn byte(offset: u64) -> u8 {
    u8::try_from(offset % 251).expect("a byte")
}

/// A door, a node with one object, and what clients have got.
struct World {
    door: ObjectDoor,
    now: Time,
    /// Where the object ends.
    size_bytes: u64,
    version: Version,
    /// What is answered before it is looked for, in order.
    errors: Vec<NodeError>,
    /// Whether calls are left unanswered, and which are.
    is_silent: bool,
    calls: Vec<Call<NodeRequest>>,
    cancelled: Vec<CallId>,
    postponed: Vec<CallId>,
    /// How often the node was told that it is told how far is read ahead.
    told: u64,
    /// What connections carry, in bytes a second, and what lies in their sockets.
    rate: u64,
    unsent_bytes: u64,
    /// Since when clients take no more than their rate.
    paced_since: Option<Time>,
    /// Whether the kernel takes nothing.
    is_stuck: bool,
    got: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
    aborted: Vec<ConnId>,
    paused: Vec<ConnId>,
    held_max: u64,
}

/// A door with so much memory, that reads so much at a time of who is new.
fn config(memory_bytes: u64, request_bytes: u64) -> ObjectDoorConfig {
    ObjectDoorConfig {
        delivery: DeliveryConfig {
            memory_bytes,
            request_bytes_min: request_bytes,
            request_bytes_max: request_bytes,
            ..DeliveryConfig::default()
        },
        ..ObjectDoorConfig::default()
    }
}

impl World {
    /// What a client's socket holds, and what the client has acknowledged.
    fn socket(&self, id: ConnId) -> (u64, u64) {
        let got = self.got.get(&id).map_or(0, Vec::len) as u64;
        let Some(since) = self.paced_since else {
            return (self.unsent_bytes, got);
        };
        let millis = u64::try_from(self.now.since(since).as_millis()).expect("a while");
        let acked = got.min(self.rate * millis / 1000);
        (got - acked, acked)
    }

    fn new(config: ObjectDoorConfig) -> Self {
        let mut door = ObjectDoor::new(config);
        let now = Time::from_secs(1);
        door.handle(now, WallTime(0), ObjectDoorInput::Gate(gate()));
        Self {
            door,
            now,
            size_bytes: 1 << 40,
            version: NEWEST,
            errors: Vec::new(),
            is_silent: false,
            calls: Vec::new(),
            cancelled: Vec::new(),
            postponed: Vec::new(),
            told: 0,
            rate: 100_000_000,
            unsent_bytes: 0,
            paced_since: None,
            is_stuck: false,
            got: BTreeMap::new(),
            closed: Vec::new(),
            aborted: Vec::new(),
            paused: Vec::new(),
            held_max: 0,
        }
    }

    fn usual() -> Self {
        let mut world = Self::new(config(1 << 20, 4096));
        world.give(ObjectDoorInput::Opened(CLIENT));
        world
    }

    fn give(&mut self, input: ObjectDoorInput) {
        let wall = i64::try_from(SECONDS).expect("a time") * 1_000_000_000;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.door.handle(self.now, WallTime(wall), input);
            self.held_max = self.held_max.max(self.door.figures().held_bytes);
            while let Some(effect) = self.door.poll_effect() {
                match effect {
                    ObjectDoorEffect::Send(id, pieces) => {
                        let bytes = pieces.concat();
                        if !self.is_stuck {
                            inputs.push(ObjectDoorInput::Sent(id, bytes.len()));
                        }
                        self.got.entry(id).or_default().extend(bytes);
                    }
                    ObjectDoorEffect::Close(id) => self.closed.push(id),
                    ObjectDoorEffect::Abort(id) => self.aborted.push(id),
                    ObjectDoorEffect::Pause(id) => self.paused.push(id),
                    ObjectDoorEffect::Resume(id) => self.paused.retain(|&it| it != id),
                    ObjectDoorEffect::Cancel(NODE, call) => self.cancelled.push(call),
                    ObjectDoorEffect::Postpone(NODE, call, _) => self.postponed.push(call),
                    ObjectDoorEffect::Hurry(NODE, call) => {
                        self.postponed.retain(|&it| it != call);
                    }
                    ObjectDoorEffect::Sample(id) => {
                        let (unsent_bytes, acked_bytes) = self.socket(id);
                        let sample = TcpSample {
                            delivery_rate: self.rate,
                            unsent_bytes,
                            acked_bytes,
                            is_window_zero: self.is_stuck,
                            rtt: Duration::from_millis(1),
                            ..TcpSample::default()
                        };
                        inputs.push(ObjectDoorInput::Sampled(id, sample));
                    }
                    // Nobody waits for the answer.
                    ObjectDoorEffect::Node(NODE, call)
                        if matches!(call.request, NodeRequest::Ahead { .. }) =>
                    {
                        self.told += 1;
                    }
                    ObjectDoorEffect::Node(NODE, call) if self.is_silent => self.calls.push(call),
                    ObjectDoorEffect::Node(NODE, call) => inputs.push(self.answer(&call)),
                    other => panic!("another node: {other:?}"),
                }
            }
        }
    }

    fn answer(&mut self, call: &Call<NodeRequest>) -> ObjectDoorInput {
        assert!(ObjectDoor::owns(call.id) && call.deadline > self.now);
        let outcome = match self.errors.is_empty() {
            true => Ok(self.look(&call.request)),
            false => Err(self.errors.remove(0)),
        };
        ObjectDoorInput::Reply(NodeReply {
            id: call.id,
            outcome,
        })
    }

    fn look(&self, request: &NodeRequest) -> NodeAnswer {
        match request {
            NodeRequest::Stat { object } => {
                assert_eq!(*object, url().object);
                NodeAnswer::Stat(ObjectStat {
                    size_bytes: self.size_bytes,
                    allocated_bytes: 0,
                    version: self.version,
                    truncate_generation: 0,
                    fence: Epoch(0),
                    attributes: Bytes::new(),
                })
            }
            NodeRequest::Read {
                object,
                offset_bytes,
                length_bytes,
                version,
                ..
            } => {
                assert_eq!(*object, url().object);
                assert!(matches!(version, ReadVersion::NotAfter(_)), "{version:?}");
                let end = (offset_bytes + length_bytes).min(self.size_bytes);
                let bytes: Vec<u8> = (*offset_bytes..end).map(byte).collect();
                NodeAnswer::Read {
                    payload: Payload::from(Bytes::from(bytes)),
                    version: self.version,
                }
            }
            other => panic!("the door asks for {other:?}"),
        }
    }

    fn say(&mut self, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.give(ObjectDoorInput::Received(CLIENT, bytes));
    }

    /// Asks for a URL, and returns head and content of the response.
    fn get(&mut self, url: &ObjectUrl, fields: &str) -> (String, Vec<u8>) {
        self.ask("GET", &sign(url), fields)
    }

    fn ask(&mut self, method: &str, target: &str, fields: &str) -> (String, Vec<u8>) {
        self.got.clear();
        self.say(&format!(
            "{method} {target} HTTP/1.1\r\nHost: n\r\n{fields}\r\n"
        ));
        response(self.got.get(&CLIENT).map_or(&[], Vec::as_slice))
    }
}

fn response(bytes: &[u8]) -> (String, Vec<u8>) {
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let (head, content) = bytes.split_at(end.map_or(0, |at| at + 4));
    (
        String::from_utf8(head.to_vec()).expect("a head"),
        content.to_vec(),
    )
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn expected(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|at| byte(4096 + at)).collect()
}

/// Goal: a signed URL gives exactly its range, whole or in part, over one connection;
/// HEAD says the same without the bytes, and what a client has is not sent again.
#[test]
fn the_range_of_a_url_is_served() {
    let mut world = World::usual();
    let (head, content) = world.get(&url(), "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(field(&head, "Content-Length"), Some("10000"));
    assert!(content == expected(0..10_000));
    let tag = field(&head, "ETag").expect("a tag").to_owned();

    let (head, content) = world.get(&url(), "Range: bytes=4000-4999\r\n");
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    assert_eq!(field(&head, "Content-Range"), Some("bytes 4000-4999/10000"));
    assert!(content == expected(4000..5000));
    let (head, content) = world.get(&url(), "Range: bytes=-1\r\n");
    assert_eq!(field(&head, "Content-Range"), Some("bytes 9999-9999/10000"));
    assert!(content == expected(9999..10_000));
    let (head, content) = world.get(&url(), "Range: bytes=10000-\r\n");
    assert!(head.starts_with("HTTP/1.1 416 ") && content.is_empty());
    assert_eq!(field(&head, "Content-Range"), Some("bytes */10000"));
    let (head, content) = world.get(&url(), "Range: bytes=0-0,5-5\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && content.len() == 10_000);

    let both = format!("Range: bytes=0-0\r\nIf-Range: {tag}\r\n");
    assert!(world.get(&url(), &both).0.starts_with("HTTP/1.1 206 "));
    let other = "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n";
    assert!(world.get(&url(), other).0.starts_with("HTTP/1.1 200 "));
    let (head, content) = world.get(&url(), &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("HTTP/1.1 304 ") && content.is_empty());
    let (head, _) = world.get(&url(), "If-Match: \"other\"\r\n");
    assert!(head.starts_with("HTTP/1.1 412 "), "{head}");
    let (head, content) = world.ask("HEAD", &sign(&url()), "");
    assert!(head.starts_with("HTTP/1.1 200 ") && content.is_empty());
    assert_eq!(field(&head, "Content-Length"), Some("10000"));
    assert_eq!(field(&head, "ETag"), Some(&tag[..]));

    world.version = Version(42);
    let (head, _) = world.get(&url(), "");
    assert_ne!(field(&head, "ETag"), Some(&tag[..]), "it has changed");
    assert!(world.closed.is_empty() && world.aborted.is_empty());
    assert_eq!(world.door.figures().held_bytes, 0);
}

/// Goal: where the object ends early there are zeros, as the file of the column has.
#[test]
fn behind_the_objects_end_there_are_zeros() {
    let mut world = World::usual();
    world.size_bytes = 4096 + 6000;
    let (head, content) = world.get(&url(), "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(content[..6000] == expected(0..6000));
    assert!(content[6000..] == [0; 4000]);
}

/// Goal: what was not signed, for this node and until later than now, reads nothing: the
/// node is not even asked.
#[test]
fn what_was_not_signed_is_refused() {
    let mut world = World::usual();
    world.is_silent = true;
    let good = sign(&url());
    let ended = ObjectUrl {
        expires: SECONDS,
        ..url()
    };
    let other = ObjectUrl {
        node: NodeId(8),
        ..url()
    };
    for (target, status) in [
        (good.replace("offset=4096", "offset=0"), "403"),
        (good.replace("length=10000", "length=10001"), "403"),
        (url().sign(&right(8)).expect("a right"), "403"),
        (sign(&ended), "403"),
        (sign(&other), "403"),
        (good.replace("&version=0", ""), "400"),
        (format!("{good}&more=1"), "400"),
        ("/o/".to_owned(), "400"),
        ("/".to_owned(), "400"),
    ] {
        let (head, content) = world.ask("GET", &target, "");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {head}"
        );
        assert!(!content.is_empty(), "no hint");
    }
    let (head, content) = world.ask("HEAD", &good.replace("version=0", "version=1"), "");
    assert!(head.starts_with("HTTP/1.1 403 ") && content.is_empty());
    let (head, _) = world.ask("DELETE", &good, "");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: GET, HEAD\r\n"));
    assert_eq!(world.closed, [CLIENT]);
    // RFC 9110 section 9.1: a method that nobody knows is told apart from one that may not be.
    let mut world = World::usual();
    let (head, content) = world.ask("PROPFIND", &good, "");
    assert!(head.starts_with("HTTP/1.1 501 ") && !head.contains("Allow"));
    assert!(!content.is_empty(), "no hint");
    let mut world = World::usual();
    world.say("GET /o/ HTTP/1.0\r\n\r\n");
    assert_eq!(world.closed, [CLIENT], "its client waits for the end");
    for request in [
        format!("GET {good} HTTP/1.1\r\nHost: n\r\nContent-Length: 3\r\n\r\nabc"),
        format!("GET {good} HTTP/1.1\r\nHost: n\r\n folded: x\r\n\r\n"),
    ] {
        let mut world = World::usual();
        world.is_silent = true;
        world.say(&request);
        assert!(world.got[&CLIENT].starts_with(b"HTTP/1.1 400 "));
        assert_eq!((world.closed.len(), world.calls.len()), (1, 0));
    }
    assert!(world.calls.is_empty());
}

/// Goal: a client that a gateway has sent here comes with the range that it asked that for: it
/// gets what it would have got there, and no other bytes of the file.
#[test]
fn a_part_of_a_file_is_read_by_the_files_ranges() {
    let mut world = World::usual();
    let part = ObjectUrl {
        place: Some(FilePlace {
            offset_bytes: 70_000,
            size_bytes: 90_000,
        }),
        ..url()
    };
    let (head, content) = world.get(&part, "Range: bytes=70010-70029\r\n");
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    assert!(
        head.contains("Content-Range: bytes 70010-70029/90000\r\n"),
        "{head}"
    );
    assert!(content == expected(10..30));
    let (head, content) = world.get(&part, "Range: bytes=-10000\r\n");
    assert!(head.starts_with("HTTP/1.1 416 "), "{head}");
    assert!(String::from_utf8_lossy(&content).contains("bytes=70000-79999"));
    for none in ["", "Range: bytes=69999-70000\r\n"] {
        let (head, _) = world.get(&part, none);
        assert!(head.starts_with("HTTP/1.1 416 "), "{head}");
    }
}

/// Goal: an object that changes is never sent as a mix: a URL for any version begins anew or
/// is aborted, one for a version that is gone says so.
#[test]
fn no_mix_of_two_versions_is_sent() {
    let gone = || NodeError::VersionGone;
    let mut world = World::usual();
    let pinned = ObjectUrl {
        version: Version(40),
        ..url()
    };
    world.is_silent = true;
    world.get(&pinned, "");
    let stat = world.calls.remove(0);
    world.is_silent = false;
    let input = world.answer(&stat);
    world.is_silent = true;
    world.give(input);
    let read = world.calls.remove(0);
    let NodeRequest::Read { version, .. } = &read.request else {
        panic!("{read:?}");
    };
    assert_eq!(*version, ReadVersion::NotAfter(Version(40)));
    world.errors = vec![gone()];
    let input = world.answer(&read);
    world.give(input);
    assert!(world.got[&CLIENT].starts_with(b"HTTP/1.1 410 "));

    let mut world = World::usual();
    world.is_silent = true;
    world.get(&url(), "");
    let stat = world.calls.remove(0);
    let input = world.answer(&stat);
    world.give(input);
    let read = world.calls.remove(0);
    world.errors = vec![gone()];
    let input = world.answer(&read);
    world.give(input);
    assert!(!world.got.contains_key(&CLIENT), "it begins anew");
    world.is_silent = false;
    let stat = world.calls.remove(0);
    let input = world.answer(&stat);
    world.give(input);
    assert!(response(&world.got[&CLIENT]).1 == expected(0..10_000));

    world.got.clear();
    world.is_silent = true;
    world.get(&url(), "");
    for _ in 0..2 {
        let call = world.calls.remove(0);
        let input = world.answer(&call);
        world.give(input);
    }
    let second = world.calls.remove(0);
    world.errors = vec![gone()];
    let input = world.answer(&second);
    world.give(input);
    assert_eq!(world.aborted, [CLIENT]);
    assert!(response(&world.got[&CLIENT]).1.len() < 10_000);
    assert_eq!(world.door.figures().held_bytes, 0);
}

/// Goal: what the node cannot do is said in statuses that clients act on; a busy one is
/// asked again when it says.
#[test]
fn errors_of_the_node_become_responses() {
    let mut world = World::usual();
    for (error, status) in [
        (NodeError::NoObject, "404"),
        (NodeError::Unavailable { node: NODE }, "503"),
        (NodeError::StaleTable { current: Epoch(2) }, "503"),
    ] {
        world.errors = vec![error];
        let (head, content) = world.get(&url(), "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(!content.is_empty());
    }
    let media = NodeError::Media {
        node: NODE,
        what: "secret place".to_owned(),
    };
    world.errors = vec![media];
    let (head, content) = world.get(&url(), "");
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert!(!String::from_utf8_lossy(&content).contains("secret"));

    world.errors = vec![NodeError::Busy { retry_after_ms: 5 }];
    let (head, _) = world.get(&url(), "");
    assert!(head.is_empty(), "{head}");
    let due = world.door.poll_timeout().expect("a time");
    assert_eq!(due, world.now + Duration::from_millis(5));
    world.now = due;
    world.give(ObjectDoorInput::Timeout);
    assert!(response(&world.got[&CLIENT]).1 == expected(0..10_000));

    // Not for ever.
    world.errors = vec![NodeError::Busy { retry_after_ms: 5 }; 1000];
    world.get(&url(), "");
    while !world.got.contains_key(&CLIENT) && world.errors.len() > 1 {
        world.now = world.now + Duration::from_millis(5);
        world.give(ObjectDoorInput::Timeout);
    }
    assert!(world.got[&CLIENT].starts_with(b"HTTP/1.1 503 "));
    assert!(world.errors.len() > 900, "{}", world.errors.len());
    assert!(world.aborted.is_empty() && world.closed.is_empty());
}

/// Goal: a client that does not read has a bounded part in memory, all of them together have,
/// too, and those that wait for memory get their turn; a reader that is too late is gone.
#[test]
fn memory_is_bounded_and_shared() {
    const MEMORY: u64 = 12 << 10;
    let config = config(MEMORY, 4096);
    let patience = config.send_patience;
    let mut world = World::new(config);
    world.is_stuck = true;
    let request = format!("GET {} HTTP/1.1\r\nHost: n\r\n\r\n", sign(&url()));
    let clients: Vec<ConnId> = (1..=20).map(ConnId).collect();
    for &id in &clients {
        world.give(ObjectDoorInput::Opened(id));
        let bytes = Bytes::copy_from_slice(request.as_bytes());
        world.give(ObjectDoorInput::Received(id, bytes));
    }
    let first = world.got[&ConnId(1)].len();
    assert!(first < 8192 + 500, "{first}");
    assert!(
        (4096..=MEMORY).contains(&world.held_max),
        "{}",
        world.held_max
    );
    assert!(!world.got.contains_key(&ConnId(20)), "it waits");

    // The first one is gone, and others take what has become free.
    let before: usize = world.got.values().map(Vec::len).sum();
    world.give(ObjectDoorInput::Closed(ConnId(1)));
    let after: usize = world.got.values().map(Vec::len).sum();
    assert!(after > before);
    world.now = world.now + patience;
    world.give(ObjectDoorInput::Timeout);
    assert!(world.aborted.contains(&ConnId(2)));
    // Now the kernel takes what it gets: the rest is served.
    world.is_stuck = false;
    for _ in 0..3 {
        world.now = world.now + patience;
        world.give(ObjectDoorInput::Timeout);
    }
    for &id in &clients {
        let is_aborted = id == ConnId(1) || world.aborted.contains(&id);
        let content = response(world.got.get(&id).map_or(&[], Vec::as_slice)).1;
        assert!(is_aborted || content == expected(0..10_000), "{id:?}");
    }
    assert_eq!(world.door.figures().held_bytes, 0);
}

/// Goal: pipelined requests are answered in order, too many are held back, and what a
/// connection has asked for is cancelled when it ends.
#[test]
fn connections_are_served_one_request_at_a_time() {
    let mut world = World::usual();
    world.is_silent = true;
    let target = sign(&url());
    let request = format!("GET {target} HTTP/1.1\r\nHost: n\r\nRange: bytes=0-9\r\n\r\n");
    world.say(&request.repeat(3));
    assert_eq!(world.calls.len(), 1);
    world.say(&request.repeat(200));
    assert_eq!(world.paused, [CLIENT]);
    world.is_silent = false;
    let call = world.calls.remove(0);
    let input = world.answer(&call);
    world.give(input);
    let got = String::from_utf8_lossy(&world.got[&CLIENT]).into_owned();
    assert_eq!(got.matches("HTTP/1.1 206 ").count(), 203);
    assert!(world.paused.is_empty());

    world.is_silent = true;
    world.say(&request);
    let call = world.calls.remove(0);
    world.give(ObjectDoorInput::Closed(CLIENT));
    assert_eq!(world.cancelled, [call.id]);
    world.is_silent = false;
    let late = world.answer(&call);
    world.give(late);
    assert_eq!(world.door.figures().held_bytes, 0);
}

/// Goal: half a head gets 408, nothing at all an end; who sends no more but reads gets what
/// it has asked for.
#[test]
fn the_slow_and_the_silent_end() {
    let mut world = World::usual();
    world.say("GET /o/");
    let due = world.door.poll_timeout().expect("a time");
    world.now = world.now + Duration::from_secs(15);
    world.say("0");
    assert!(due <= world.now);
    world.give(ObjectDoorInput::Timeout);
    assert!(world.got[&CLIENT].starts_with(b"HTTP/1.1 408 "));
    assert_eq!(world.closed, [CLIENT]);
    world.now = world.now + Duration::from_secs(75);
    world.give(ObjectDoorInput::Timeout);
    assert_eq!(world.aborted, [CLIENT], "its client does not let it end");

    let mut world = World::usual();
    world.now = world.now + Duration::from_secs(75);
    world.give(ObjectDoorInput::Timeout);
    assert_eq!(world.closed, [CLIENT]);
    assert!(world.got.is_empty());

    let mut world = World::usual();
    world.is_silent = true;
    world.get(&url(), "");
    world.give(ObjectDoorInput::PeerDone(CLIENT));
    assert!(world.closed.is_empty());
    world.is_silent = false;
    let call = world.calls.remove(0);
    let input = world.answer(&call);
    world.give(input);
    assert!(response(&world.got[&CLIENT]).1 == expected(0..10_000));
    assert_eq!(world.closed, [CLIENT]);
}

/// Goal: a door that stops sends what was begun, and serves nothing more.
#[test]
fn a_door_that_stops_ends_what_it_has_begun() {
    let mut world = World::usual();
    world.give(ObjectDoorInput::Opened(ConnId(2)));
    world.is_silent = true;
    world.get(&url(), "");
    world.give(ObjectDoorInput::Stop);
    assert_eq!(world.closed, [ConnId(2)], "it was idle");
    world.is_silent = false;
    let call = world.calls.remove(0);
    let input = world.answer(&call);
    world.give(input);
    let (head, content) = response(&world.got[&CLIENT]);
    assert!(head.contains("Connection: close\r\n"), "{head}");
    assert!(content == expected(0..10_000));
    assert_eq!(world.closed, [ConnId(2), CLIENT]);
    world.give(ObjectDoorInput::Opened(ConnId(3)));
    assert_eq!(world.closed, [ConnId(2), CLIENT, ConnId(3)]);
}

/// Goal: until the door is told whose URLs count none does, and what it is told last counts.
#[test]
fn what_is_told_last_counts() {
    let mut world = World::usual();
    for (gate, status) in [
        (ObjectGate::default(), "403"),
        (gate(), "200"),
        (
            ObjectGate {
                holders: [MANAGER].into(),
                ..gate()
            },
            "403",
        ),
    ] {
        world.give(ObjectDoorInput::Gate(gate));
        let (head, _) = world.get(&url(), "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    let figures = world.door.figures();
    assert_eq!(figures.responses_total, [0, 1, 0, 2, 0]);
    assert_eq!((figures.sent_bytes, figures.connections), (10_000, 1));
}

/// A URL for 64 MiB.
fn long() -> ObjectUrl {
    ObjectUrl {
        length_bytes: 64 << 20,
        ..url()
    }
}

/// A read of the node, and by when it is wanted.
fn read_of(call: &Call<NodeRequest>) -> Option<(u64, u32)> {
    match call.request {
        NodeRequest::Read {
            length_bytes,
            patience_ms,
            ..
        } => Some((length_bytes, patience_ms)),
        _ => None,
    }
}

/// Answers the oldest call.
fn answer_one(world: &mut World) {
    let call = world.calls.remove(0);
    let input = world.answer(&call);
    world.give(input);
}

/// Goal: the delivery engine plans what is read (TPF 3.2): a client whose rate is not known gets
/// one short request, one that is known is read ahead of by its rate and not by more, what
/// it is to have later is wanted later, and the node is told once that it has no say.
#[test]
fn what_is_read_ahead_follows_the_client() {
    let mut world = World::new(ObjectDoorConfig::default());
    world.give(ObjectDoorInput::Opened(CLIENT));
    world.give(ObjectDoorInput::Disk(NODE, DiskProfile::default()));
    (world.rate, world.paced_since) = (1_000_000, Some(world.now));
    world.is_silent = true;
    world.get(&long(), "");
    answer_one(&mut world); // What is there.
    assert_eq!(world.told, 1);
    let first = read_of(&world.calls[0]).expect("a read");
    assert_eq!((world.calls.len(), first), (1, (128 << 10, 0)));

    let mut later = Vec::new();
    for _ in 0..500 {
        world.now = world.now + Duration::from_millis(10);
        if !world.calls.is_empty() {
            answer_one(&mut world);
        }
        if world
            .door
            .poll_timeout()
            .is_some_and(|due| due <= world.now)
        {
            world.give(ObjectDoorInput::Timeout);
        }
        later.extend(world.calls.iter().filter_map(read_of));
    }
    assert!(!later.is_empty());
    // What the socket holds, at 1 MB/s.
    assert!(later.iter().all(|&(_, patience_ms)| patience_ms > 0));
    assert!(later.iter().any(|&(_, patience_ms)| patience_ms >= 10));
    let got = world.got[&CLIENT].len() as u64;
    assert!((5_000_000..6_500_000).contains(&got), "{got} in 5 s");
    let held = world.held_max;
    assert!(held < 1 << 20, "{held} bytes for 1 MB/s");
    assert_eq!(world.told, 1);
}

/// Goal: what the client of a stream that stands still has asked for is put off at the node's
/// disk while that has others to serve (EDRC, TPF 3.3), as after FIN alone, and comes after all;
/// what a lost one has asked for is taken back.
#[test]
fn who_stands_still_is_put_off() {
    let busy = DiskProfile {
        load_percent: 95,
        ..DiskProfile::default()
    };
    for is_lost in [false, true] {
        let mut world = World::new(ObjectDoorConfig::default());
        world.give(ObjectDoorInput::Opened(CLIENT));
        world.give(ObjectDoorInput::Disk(NODE, busy));
        world.is_silent = true;
        world.get(&long(), "");
        answer_one(&mut world);
        let reads: Vec<CallId> = world.calls.iter().map(|call| call.id).collect();
        world.give(ObjectDoorInput::PeerDone(CLIENT));
        assert_eq!(world.postponed, reads);
        assert_eq!(world.door.figures().postponed_total, reads.len() as u64);
        if is_lost {
            world.give(ObjectDoorInput::Closed(CLIENT));
            assert_eq!(world.cancelled, reads);
            let figures = world.door.figures();
            assert_eq!(
                (figures.withdrawn_total, figures.held_bytes),
                (reads.len() as u64, 0)
            );
            continue;
        }
        world.is_silent = false;
        while !world.calls.is_empty() {
            answer_one(&mut world);
        }
        while response(&world.got[&CLIENT]).1.len() < 64 << 20 {
            let due = world.door.poll_timeout().expect("it goes on");
            world.now = world.now.max(due);
            world.give(ObjectDoorInput::Timeout);
        }
        assert!(world.cancelled.is_empty());
        assert_eq!(world.closed, [CLIENT]);
    }
}
