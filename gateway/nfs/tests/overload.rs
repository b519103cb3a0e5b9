//! A door that is asked for more than it may hold: bounded, and fair
//! (docs/overload.md, invariant 9).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::RPC_RECORD_BYTES_MAX;
use crossdock_names::FileRef;
use crossdock_nfs::{ConnId, DoorConfig, NfsDoor, NfsEffect, NfsInput};
use crossdock_nfs3::call::{Getattr, Read};
use crossdock_nfs3::{self as nfs3};
use crossdock_peer::{FileKind, SiteAnswer, SiteOperation, SiteReply};
use crossdock_router::RoutedReply;
use crossdock_types::{Payload, Time};
use support::*;

/// Many clients of one door, a router that answers when it is told to, and
/// sockets that take what they are told to.
struct Crowd {
    door: NfsDoor,
    now: Time,
    bytes_max: usize,
    clients: usize,
    /// Asked, not answered: of which connection is not known here.
    asked: Vec<crossdock_peer::Call<crossdock_peer::SiteRequest>>,
    /// Bytes of replies that a client has not taken.
    unsent: BTreeMap<ConnId, usize>,
    replies: BTreeMap<ConnId, usize>,
    paused: BTreeSet<ConnId>,
    /// Ended by the door.
    ended: BTreeSet<ConnId>,
}

impl Crowd {
    fn new(bytes_max: usize, clients: u64) -> Self {
        let mut config = config();
        config.limits.bytes_max = bytes_max;
        Self::of(config, clients)
    }

    fn of(config: DoorConfig, clients: u64) -> Self {
        let mut crowd = Self {
            bytes_max: config.limits.bytes_max,
            clients: usize::try_from(clients).expect("few"),
            door: NfsDoor::new(config),
            now: NOW,
            asked: Vec::new(),
            unsent: BTreeMap::new(),
            replies: BTreeMap::new(),
            paused: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        for number in 0..clients {
            crowd.open(number);
        }
        crowd
    }

    fn open(&mut self, number: u64) {
        let peer = address("127.0.0.1:700");
        self.input(NfsInput::Opened(ConnId(number), peer));
    }

    fn input(&mut self, input: NfsInput) {
        self.door.handle(self.now, input);
        while let Some(effect) = self.door.poll_effect() {
            self.take(effect);
        }
        let held_bytes = self.door.held_bytes();
        let under_way = self.clients * BUFFER_BYTES;
        assert!(
            held_bytes <= self.bytes_max + SLACK + under_way,
            "{held_bytes} held"
        );
    }

    fn take(&mut self, effect: NfsEffect) {
        match effect {
            NfsEffect::Send(id, payload) => {
                *self.unsent.entry(id).or_default() += payload.len();
                *self.replies.entry(id).or_default() += 1;
            }
            NfsEffect::Pause(id) => assert!(self.paused.insert(id)),
            NfsEffect::Resume(id) => assert!(self.paused.remove(&id)),
            NfsEffect::Close(id) | NfsEffect::Abort(id) => {
                self.ended.insert(id);
                self.unsent.remove(&id);
                self.input(NfsInput::Closed(id));
            }
            NfsEffect::Router(call) | NfsEffect::ReadFor(_, _, call) | NfsEffect::ReadHot(call) => {
                self.asked.push(*call)
            }
            NfsEffect::Withdraw(_)
            | NfsEffect::Ahead(_)
            | NfsEffect::Deliver(_)
            | NfsEffect::Sample(_) => {}
            NfsEffect::Fill(..)
            | NfsEffect::SendDatagram(..)
            | NfsEffect::SendIn(..)
            | NfsEffect::SendPortmapDatagram(..) => panic!("not asked for"),
        }
    }

    fn receive(&mut self, number: u64, bytes: Bytes) {
        self.input(NfsInput::Received(ConnId(number), bytes));
    }

    /// Answers what has been asked so far; how many that was.
    fn answer(&mut self) -> usize {
        let asked = std::mem::take(&mut self.asked);
        for call in &asked {
            let outcome = Ok(match call.request.operation {
                SiteOperation::Read { length_bytes, .. } => {
                    let mut payload = Payload::new();
                    payload.push_zeros(usize::try_from(length_bytes).expect("small"));
                    SiteAnswer::Read {
                        payload,
                        end_of_file: true,
                    }
                }
                _ => SiteAnswer::Done,
            });
            let reply = SiteReply {
                id: call.id,
                outcome,
                subject: cache(FILE, FileKind::Regular),
                second: crossdock_peer::WeakCache::default(),
            };
            let routed = RoutedReply {
                reply,
                verifier: VERIFIER,
                waited: crossdock_router::Waited::default(),
            };
            self.input(NfsInput::Reply(Box::new(routed)));
        }
        asked.len()
    }

    /// The client takes up to so many bytes of its replies.
    fn take_replies(&mut self, number: u64, bytes: usize) {
        let id = ConnId(number);
        let unsent = self.unsent.entry(id).or_default();
        let taken = bytes.min(*unsent);
        *unsent -= taken;
        if taken > 0 {
            self.input(NfsInput::Sent(id, taken));
        }
    }

    /// Time passes; the door is woken whenever it wants to be.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(wake) = self.door.poll_timeout().filter(|&wake| wake <= until) {
            self.now = self.now.max(wake);
            self.input(NfsInput::Timeout);
        }
        self.now = until;
    }

    fn has_reply(&self, number: u64) -> bool {
        self.replies.contains_key(&ConnId(number))
    }
}

/// One record that turned out to be large, and refusals.
const SLACK: usize = RPC_RECORD_BYTES_MAX + (64 << 10);
/// What a connection is received with; it may be full when the door is.
const BUFFER_BYTES: usize = 8 << 10;
const MIB: usize = 1 << 20;

fn getattr(xid: u32, file: FileRef) -> Bytes {
    let handle = handle(file);
    let object = handle.as_handle();
    nfs(xid, &nfs3::Call::Getattr(Getattr { object }))
}

fn read(xid: u32, count_bytes: usize) -> Bytes {
    let handle = handle(FILE);
    let arguments = Read {
        file: handle.as_handle(),
        offset: 0,
        count_bytes: u32::try_from(count_bytes).expect("small"),
    };
    nfs(xid, &nfs3::Call::Read(arguments))
}

/// Goal: a client with 1,000 calls outstanding lets another one in after few of
/// them, and is served completely all the same.
#[test]
fn greedy_client_does_not_starve_a_modest_one() {
    let mut crowd = Crowd::new(512 << 20, 2);
    let calls: Vec<Bytes> = (0..1000).map(|xid| getattr(xid, ROOT)).collect();
    crowd.receive(0, join(&calls));
    let ahead = crowd.asked.len();
    assert!(
        (1..=32).contains(&ahead),
        "{ahead} calls before the other's"
    );
    crowd.receive(1, getattr(1, FILE));
    assert_eq!(crowd.asked.len(), ahead + 1);
    crowd.answer();
    assert!(crowd.has_reply(1));

    let mut answered = ahead;
    for modest in 2.. {
        crowd.take_replies(0, MIB);
        crowd.input(NfsInput::Timeout);
        let turn = crowd.asked.len();
        assert!(turn <= 32, "{turn} calls in one turn");
        crowd.receive(1, getattr(modest, FILE));
        answered += crowd.answer() - 1;
        if turn == 0 {
            break;
        }
    }
    assert_eq!(answered, 1000);
}

/// Goal: clients that take no replies fill the door to its bound and no further;
/// one that wants little is served all the while, one that wants much when they
/// have had their time.
#[test]
fn clients_that_never_read_make_room_again() {
    let mut crowd = Crowd::new(64 * MIB, 200);
    for number in 0..100 {
        crowd.receive(number, read(1, MIB));
        crowd.answer();
    }
    assert!(crowd.door.held_bytes() > 50 * MIB);
    crowd.receive(100, getattr(1, FILE));
    crowd.receive(101, read(1, MIB));
    assert_eq!(crowd.answer(), 1, "the door has room for the small one");
    assert!(crowd.has_reply(100));
    assert!(crowd.paused.contains(&ConnId(101)));

    // A byte now and then is no sign of life.
    for _second in 0..6 {
        crowd.pass(Duration::from_secs(1));
        for number in 0..100 {
            crowd.take_replies(number, 1);
        }
    }
    assert!(!crowd.ended.is_empty(), "after a second");
    assert!(
        crowd.ended.len() >= 50,
        "{} were cut off",
        crowd.ended.len()
    );
    assert!(!crowd.ended.contains(&ConnId(101)));
    while crowd.answer() > 0 {}
    assert!(crowd.has_reply(101));
}

/// Goal: while nobody waits for room, a client may take its time.
#[test]
fn slow_clients_are_left_alone_while_there_is_room() {
    let mut crowd = Crowd::new(64 * MIB, 1);
    crowd.receive(0, read(1, MIB));
    crowd.answer();
    for _second in 0..250 {
        crowd.pass(Duration::from_secs(1));
        crowd.take_replies(0, 100);
    }
    assert!(crowd.ended.is_empty());
}

/// Goal: beginnings of records count, and those who do not go on with them lose
/// their connections when others wait.
#[test]
fn beginnings_of_records_are_bounded() {
    let mut crowd = Crowd::new(16 * MIB, 100);
    // A fragment of 1 MiB that is not the last one: nothing says what it is.
    let mut beginning = 0x000f_0000_u32.to_be_bytes().to_vec();
    beginning.resize(100 << 10, 0);
    let beginning = Bytes::from(beginning);
    for number in 0..99 {
        let mut rest = beginning.clone();
        while !rest.is_empty() && !crowd.paused.contains(&ConnId(number)) {
            let part = rest.split_to(rest.len().min(BUFFER_BYTES));
            crowd.receive(number, part);
        }
    }
    assert!(!crowd.paused.is_empty());
    crowd.receive(99, getattr(1, FILE));
    crowd.pass(Duration::from_secs(6));
    assert!(!crowd.ended.is_empty());
    crowd.pass(Duration::from_secs(60));
    crowd.answer();
    assert!(crowd.has_reply(99));
}

/// Goal: at the bound of connections those without a call for longest give way;
/// those at work do not.
#[test]
fn idle_connections_give_way() {
    let mut config = config();
    config.limits.connections_max = 100;
    let mut crowd = Crowd::of(config, 100);
    crowd.receive(7, getattr(1, FILE));
    crowd.open(100);
    assert!(crowd.ended.contains(&ConnId(100)), "nobody is idle yet");
    crowd.pass(Duration::from_secs(11));
    crowd.open(101);
    assert!(!crowd.ended.contains(&ConnId(101)));
    assert!(!crowd.ended.contains(&ConnId(7)));
    assert!(crowd.ended.contains(&ConnId(0)));
    crowd.receive(101, getattr(1, FILE));
    assert_eq!(crowd.answer(), 2);
}

/// Goal: whatever clients do, the door holds no more than it may, forgets
/// nothing, and serves everybody who behaves in the end.
#[test]
fn any_crowd_is_served_within_the_bound() {
    for seed in 0..200 {
        any_crowd(seed);
    }
}

fn any_crowd(seed: u64) {
    const CLIENTS: u64 = 24;
    let mut random = Random(seed);
    let mut crowd = Crowd::new(16 * MIB, CLIENTS);
    // What a client still has to send of the records that it has begun.
    let mut streams: BTreeMap<u64, Bytes> = BTreeMap::new();
    let mut calls: BTreeMap<u64, usize> = BTreeMap::new();
    for step in 0..400 {
        let number = random.below(CLIENTS);
        let id = ConnId(number);
        match random.below(8) {
            0..=2 if !crowd.paused.contains(&id) && !crowd.ended.contains(&id) => {
                let rest = streams.entry(number).or_default();
                if rest.is_empty() {
                    let count = random.below(20) + 1;
                    let records: Vec<Bytes> = (0..count)
                        .map(|_| match random.below(3) {
                            0 => read(step, MIB),
                            1 => read(step, 100_000),
                            _ => getattr(step, FILE),
                        })
                        .collect();
                    *calls.entry(number).or_default() += records.len();
                    *rest = join(&records);
                }
                let length = usize::try_from(random.below(rest.len() as u64) + 1).expect("small");
                let part = rest.split_to(length);
                crowd.receive(number, part);
            }
            3 | 4 => {
                crowd.answer();
            }
            5 => crowd.take_replies(number, MIB),
            6 => crowd.pass(Duration::from_millis(random.below(300))),
            _ => crowd.pass(Duration::ZERO),
        }
    }
    // From now on everybody behaves.
    for _round in 0..10_000 {
        crowd.answer();
        for number in 0..CLIENTS {
            crowd.take_replies(number, usize::MAX);
            let id = ConnId(number);
            let rest = streams.remove(&number).unwrap_or_default();
            if !rest.is_empty() && !crowd.ended.contains(&id) {
                match crowd.paused.contains(&id) {
                    true => drop(streams.insert(number, rest)),
                    false => crowd.receive(number, rest),
                }
            }
        }
        crowd.pass(Duration::from_millis(1));
    }
    for number in (0..CLIENTS).filter(|&number| !crowd.ended.contains(&ConnId(number))) {
        let sent = calls.get(&number).copied().unwrap_or(0);
        let replied = crowd.replies.get(&ConnId(number)).copied().unwrap_or(0);
        assert!(replied > 0 || sent == 0, "seed {seed}: {number} starved");
        assert!(
            !crowd.paused.contains(&ConnId(number)),
            "seed {seed}: {number} hangs"
        );
    }
    assert_eq!(
        (crowd.door.calls(), crowd.door.held_bytes()),
        (0, 0),
        "seed {seed}"
    );
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        let mut x = self.0.wrapping_mul(2).wrapping_add(1);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}
