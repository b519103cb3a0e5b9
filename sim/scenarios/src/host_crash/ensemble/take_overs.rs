//! Histories of CONSISTENCY 2 and 6, move by move: who takes a site over has what was
//! acknowledged, and nothing that was shown is taken back. Each must also go wrong when
//! the rule that prevents it is built out.

use std::time::Duration;

use bytes::Bytes;
use crossdock_host::Mutation;
use crossdock_nfs3::call::{self, CreateHow, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply, SetAttributes, Status};
use crossdock_types::Payload;

use super::network::Place;
use super::stage::{CUT, LONG, SHAPE, Stage, WELL};

/// Where the managers of a [`Stage`] run.
const MANAGERS: [Place; 2] = [3, 4];

/// A little longer than it takes to replace a process that is not heard of.
const REPLACED: Duration = Duration::from_secs(5);

/// More than a log record has room for, and less than what lies at nodes.
const SMALL_BYTES: u32 = 10_000;

fn other_than(manager: Place) -> Place {
    let [first, second] = MANAGERS;
    if manager == first { second } else { first }
}

impl Stage {
    /// The nodes of the root's site, the first one first.
    fn site_members(&self) -> Vec<Place> {
        let state = &self.world.service.state;
        let (_, set) = state.sites[0];
        let members = state.sets[&set].members.iter();
        let places = members.filter_map(|&node| self.world.place_of_node(node));
        places.collect()
    }

    fn wait_for_members(&mut self, members: &[Place]) {
        while self.site_members() != members {
            self.step(Duration::from_millis(1));
        }
    }

    /// Nothing moves between two places.
    fn part(&mut self, a: Place, b: Place, length: Duration) {
        self.world.cut(a, b, length);
        self.world.cut(b, a, length);
    }

    /// What is said of a name through the gateway that is well: nothing if nobody answers.
    fn said_of(&mut self, name: &[u8], patience: Duration) -> Option<bool> {
        let root = self.root;
        let call = Call::Lookup(Self::location(&root, name));
        match self.ask(WELL, &call, patience)? {
            Reply::Lookup(Ok(_)) => Some(true),
            Reply::Lookup(Err(failed)) if failed.status == Status::NoEnt => Some(false),
            _ => None,
        }
    }

    /// Sends a creation through the gateway that will be cut off.
    fn begin_creation(&mut self, name: &[u8]) {
        let root = self.root;
        self.begin(
            CUT,
            &Call::Create(call::Create {
                location: Self::location(&root, name),
                how: CreateHow::Guarded(SetAttributes::default()),
            }),
        );
    }
}

/// A site has one node left, on which a name was acknowledged; the other node is there
/// again, and whoever takes over reaches only that one. Whether the name is gone.
fn lone_replica(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    stage.create(b"old");
    let manager = stage.manager();
    let successor = other_than(manager);
    let [first, last] = stage.site_members()[..] else {
        panic!("two nodes have the site");
    };
    stage.world.kill(first, LONG);
    stage.wait_for_members(&[last]);
    stage.create(b"new");
    stage.world.kill(manager, LONG);
    stage.part(successor, last, Duration::from_secs(9));
    stage.world.start_now(first);
    let until = stage.world.now + Duration::from_secs(20);
    while stage.world.now < until {
        if stage.said_of(b"new", Duration::from_secs(1)) == Some(false) {
            return true;
        }
    }
    assert_eq!(stage.manager(), successor);
    stage.said_of(b"new", LONG) != Some(true)
}

/// Goal: history `lone-replica`: the set is {B}; a manager that has seen {A, B} does not
/// replay A, whatever it reaches.
#[test]
fn lone_replica_is_waited_for() {
    assert!(!lone_replica(None));
    assert!(lone_replica(Some(Mutation::CachedSet)));
}

/// A record is on the first node only. It dies with the manager, and another manager takes
/// over with the second one. Whether a name was shown that is gone.
fn seen_on_one(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    let manager = stage.manager();
    let [first, second] = stage.site_members()[..] else {
        panic!("two nodes have the site");
    };
    stage.part(first, second, Duration::from_secs(3));
    stage.part(manager, second, Duration::from_secs(3));
    stage.begin_creation(b"seen");
    stage.pass(Duration::from_millis(20));
    let shown = stage.said_of(b"seen", Duration::from_millis(100));
    // Nobody else asks for it again.
    for place in [CUT, manager, first] {
        stage.world.kill(place, LONG);
    }
    stage.pass(REPLACED);
    let later = stage.said_of(b"seen", LONG);
    assert!(later.is_some(), "somebody takes over");
    shown == Some(true) && later == Some(false)
}

/// The same with a take-over in between, by one who reaches the first node, and maybe the
/// second one. Whether what it has shown is gone when the first node is.
fn seen_in_between(mutation: Option<Mutation>, reaches_second: bool, pause: Duration) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    let manager = stage.manager();
    let successor = other_than(manager);
    let [first, second] = stage.site_members()[..] else {
        panic!("two nodes have the site");
    };
    stage.part(first, second, Duration::from_secs(7));
    stage.part(manager, second, Duration::from_secs(7));
    if !reaches_second {
        stage.part(successor, second, Duration::from_secs(7));
    }
    stage.begin_creation(b"seen");
    stage.pass(pause);
    stage.world.kill(CUT, LONG);
    stage.world.kill(manager, Duration::from_secs(1));
    stage.pass(REPLACED);
    let shown = stage.said_of(b"seen", Duration::from_secs(2));
    stage.world.kill(first, Duration::from_secs(12));
    stage.world.kill(successor, LONG);
    let until = stage.world.now + Duration::from_secs(25);
    let mut is_gone = false;
    while stage.world.now < until {
        is_gone |= stage.said_of(b"seen", Duration::from_secs(1)) == Some(false);
    }
    let later = stage.said_of(b"seen", LONG);
    assert!(later.is_some(), "somebody takes over");
    shown == Some(true) && (is_gone || later == Some(false))
}

/// Goal: history `seen-then-gone`: what is on one node only is shown to nobody; who takes
/// over and finds it shows it when the whole set, as it is by then, has it.
#[test]
fn seen_then_gone_does_not_happen() {
    assert!(!seen_on_one(None));
    assert!(seen_on_one(Some(Mutation::ReplyBeforeLog)));
    for pause in [300, 700, 1500, 4000].map(Duration::from_micros) {
        for reaches_second in [false, true] {
            assert!(!seen_in_between(None, reaches_second, pause));
        }
    }
}

/// The old manager reaches the first node only, the new one the second only; what the old
/// one wants of the registry comes there late. Whether something was acknowledged that is
/// gone, on either side.
fn split_log(mutation: Option<Mutation>) -> bool {
    let apart = Duration::from_secs(9);
    let mut stage = Stage::new(SHAPE, mutation);
    stage.create(b"old");
    let manager = stage.manager();
    let successor = other_than(manager);
    let [first, second] = stage.site_members()[..] else {
        panic!("two nodes have the site");
    };
    for (a, b) in [(first, second), (manager, second), (successor, first)] {
        stage.part(a, b, apart);
    }
    for place in [manager, first, CUT] {
        stage.world.cut_from_registry(place, apart);
    }
    stage.begin_creation(b"one");
    let one = stage.wait(REPLACED);
    let is_one = matches!(one, Some(Reply::Create(Ok(_))));
    while stage.manager() == manager {
        stage.step(Duration::from_millis(1));
    }
    stage.create(b"two");
    assert_eq!(stage.site_members(), [second], "the new one has its node");
    // What the old one wanted has come to the registry by then.
    stage.pass(Duration::from_secs(12));
    let told = [b"one", b"two"].map(|name| stage.said_of(name, LONG));
    is_one && told[0] != Some(true) || told[1] != Some(true)
}

/// Goal: history `split-log`: a manager that has been replaced cannot make the set its own
/// while its successor has sealed another member, and acknowledges nothing.
#[test]
fn split_log_has_one_half_at_most() {
    assert!(!split_log(None));
    assert!(split_log(Some(Mutation::ReplyBeforeLog)));
}

fn write_small(file: &HandleBuffer, byte: u8, stable: StableHow) -> Call<'_> {
    Call::Write(call::Write {
        file: file.as_handle(),
        offset: 0,
        count_bytes: SMALL_BYTES,
        stable,
        data: Payload::from(Bytes::from(vec![byte; SMALL_BYTES as usize])),
    })
}

/// What a file below the threshold holds.
fn read_small(stage: &mut Stage, file: &HandleBuffer) -> Bytes {
    let read = stage.do_it(&Call::Read(call::Read {
        file: file.as_handle(),
        offset: 0,
        count_bytes: SMALL_BYTES,
    }));
    let Reply::Read(Ok(read)) = read else {
        panic!("{read:?}");
    };
    read.data.to_bytes()
}

/// Unstable bytes of a small file are in its manager's memory when that dies, and another
/// one commits. Whether the verifier says that they are durable, and whether they are.
fn committed_after_take_over() -> (bool, bool) {
    let mut stage = Stage::new(SHAPE, None);
    let file = stage.create(b"small");
    let written = stage.do_it(&write_small(&file, 1, StableHow::Unstable));
    let Reply::Write(Ok(written)) = written else {
        panic!("{written:?}");
    };
    assert_eq!(written.committed, StableHow::Unstable);
    let manager = stage.manager();
    stage.world.kill(manager, LONG);
    stage.pass(REPLACED);
    assert_ne!(stage.manager(), manager);
    let committed = stage.do_it(&Call::Commit(call::Commit {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 0,
    }));
    let Reply::Commit(Ok(committed)) = committed else {
        panic!("{committed:?}");
    };
    let is_there = read_small(&mut stage, &file) == vec![1; SMALL_BYTES as usize];
    (committed.verifier == written.verifier, is_there)
}

/// Files of which one after the other is written while a site is about to be opened anew.
const FILES: usize = 60;

/// Unstable bytes of small files are in their manager's memory when the site is opened
/// anew, for a node that has come back. Whether some are gone.
fn moved_with_unstable(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    let names = (0..FILES).map(|number| format!("small-{number}").into_bytes());
    let files: Vec<HandleBuffer> = names.map(|name| stage.create(&name)).collect();
    let [first, last] = stage.site_members()[..] else {
        panic!("two nodes have the site");
    };
    stage.world.kill(first, LONG);
    stage.wait_for_members(&[last]);
    stage.world.start_now(first);
    stage.pass(Duration::from_millis(1500));
    let epoch_of = |stage: &Stage| stage.world.service.state.sites[0].0;
    let epoch = epoch_of(&stage);
    let mut written = Vec::new();
    for file in &files {
        let reply = stage.ask(WELL, &write_small(file, 1, StableHow::Unstable), LONG);
        if epoch_of(&stage) != epoch {
            break;
        }
        if matches!(reply, Some(Reply::Write(Ok(_)))) {
            written.push(*file);
        }
        stage.pass(Duration::from_millis(2));
    }
    assert!(!written.is_empty(), "nothing was written before");
    while epoch_of(&stage) == epoch {
        stage.step(Duration::from_millis(1));
    }
    stage.pass(Duration::from_secs(3));
    let mut gone = written.iter();
    gone.any(|file| read_small(&mut stage, file) != vec![1; SMALL_BYTES as usize])
}

/// Goal: history `take-over-with-unstable-small-file`: COMMIT tells by another verifier
/// that the bytes are gone with who had them; a site that moves in order has made them
/// durable before.
#[test]
fn take_over_with_unstable_small_file_is_told() {
    let (is_promised, is_there) = committed_after_take_over();
    assert!(!is_there, "the history does not happen: they were durable");
    assert!(!is_promised);
    assert!(!moved_with_unstable(None));
    assert!(moved_with_unstable(Some(Mutation::ReopenUncommitted)));
}
