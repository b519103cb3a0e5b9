//! A small ensemble on which a test does one thing after the other.

use std::time::Duration;

use bytes::Bytes;
use crossdock_host::Mutation;
use crossdock_members::Change;
use crossdock_nfs::ConnId;
use crossdock_nfs3::call::{self, CreateHow};
use crossdock_nfs3::{Call, HandleBuffer, Location, Name, Procedure, Reply, SetAttributes, Status};
use crossdock_sim::random::Random;

use super::super::wire;
use super::network::Place;
use super::world::World;
use super::{Faults, RacesOf, Shape, world_of};

/// Two copies of everything, on three nodes.
pub(super) const SHAPE: Shape = Shape {
    nodes: 3,
    replicas: 2,
    managers: 2,
    sites: 1,
    is_hashed: false,
    has_maps: false,
    addresses: 0,
    is_scoped: false,
    races: RacesOf::None,
    gateways: 2,
    faults: Faults::None,
};

/// The gateway that is cut off, and the one that is not.
pub(super) const CUT: Place = 5;
pub(super) const WELL: Place = 6;

/// Longer than everything else here takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) root: HandleBuffer,
    calls: u32,
    procedure: Procedure,
    /// Of the gateways, in their order.
    connections: [ConnId; 2],
    connections_total: u64,
}

impl Stage {
    pub(super) fn new(shape: Shape, mutation: Option<Mutation>) -> Self {
        let mut random = Random::new(16);
        let world = world_of(shape, mutation, &mut random);
        let mut stage = Self {
            world,
            root: HandleBuffer::new(&[]).expect("it fits"), // Not yet.
            calls: 0,
            procedure: Procedure::Null,
            connections: [ConnId(0); 2],
            connections_total: 0,
        };
        stage.connect_again(CUT);
        stage.connect_again(WELL);
        stage.root = stage.mount(WELL);
        assert_eq!(stage.mount(CUT), stage.root);
        // All hear of what the start has changed in the registry: whoever is cut off from
        // it next would else be the only one that has not.
        stage.pass(Duration::from_secs(1));
        stage
    }

    /// Lets the next thing happen that is due within `longest`.
    pub(super) fn step(&mut self, longest: Duration) {
        let wake = self.world.now + longest;
        self.world.step(wake).expect("nothing fails");
    }

    pub(super) fn pass(&mut self, length: Duration) {
        let until = self.world.now + length;
        while self.world.now < until {
            let left = until.since(self.world.now);
            self.step(left);
        }
    }

    pub(super) fn begin(&mut self, via: Place, call: &Call<'_>) {
        self.calls += 1;
        let name = self.connections[via - CUT];
        self.world.send(name, wire::encode(self.calls, call));
        self.procedure = call.procedure();
    }

    /// The client of a gateway gives its connection up.
    pub(super) fn leave(&mut self, via: Place) {
        let name = self.connections[via - CUT];
        self.world.leave(name);
    }

    /// A gateway has been killed: when it is there again its client connects anew.
    pub(super) fn connect_again(&mut self, via: Place) {
        while !self.world.is_open(via) {
            self.step(LONG);
        }
        self.connections_total += 1;
        let name = ConnId(self.connections_total);
        self.connections[via - CUT] = name;
        self.world.connect(name, via - CUT, via);
    }

    /// The handle of the root that MOUNT gives through a gateway.
    pub(super) fn mount(&mut self, via: Place) -> HandleBuffer {
        loop {
            self.calls += 1;
            let name = self.connections[via - CUT];
            self.world.send(name, wire::encode_mount(self.calls));
            let record = self.wait_for_record(LONG).expect("an answer");
            if let Some(root) = wire::decode_mount(&record).expect("a reply") {
                return root;
            }
            self.pass(Duration::from_millis(20));
        }
    }

    /// What is answered to the last call within `patience`.
    pub(super) fn wait(&mut self, patience: Duration) -> Option<Reply> {
        let record = self.wait_for_record(patience)?;
        Some(wire::decode(self.procedure, &record).expect("a reply"))
    }

    fn wait_for_record(&mut self, patience: Duration) -> Option<Bytes> {
        let until = self.world.now + patience;
        while self.world.now < until {
            while let Some((_, record)) = self.world.replies.pop_front() {
                if wire::xid(&record) == Ok(self.calls) {
                    return Some(record);
                }
            }
            self.step(until.since(self.world.now));
        }
        None
    }

    /// What is answered through a gateway within `patience`.
    pub(super) fn ask(&mut self, via: Place, call: &Call<'_>, patience: Duration) -> Option<Reply> {
        self.begin(via, call);
        self.wait(patience)
    }

    /// Likewise, as often as it is told to try again.
    pub(super) fn do_it(&mut self, call: &Call<'_>) -> Reply {
        loop {
            let reply = self.ask(WELL, call, LONG).expect("an answer");
            if reply.status() != Some(Status::Jukebox) {
                return reply;
            }
        }
    }

    pub(super) fn location<'a>(root: &'a HandleBuffer, name: &'a [u8]) -> Location<'a> {
        Location {
            directory: root.as_handle(),
            name: Name(name),
        }
    }

    pub(super) fn create(&mut self, name: &[u8]) -> HandleBuffer {
        let root = self.root;
        let made = self.do_it(&Call::Create(call::Create {
            location: Self::location(&root, name),
            how: CreateHow::Guarded(SetAttributes::default()),
        }));
        let Reply::Create(Ok(made)) = made else {
            panic!("{made:?}");
        };
        made.object.expect("a handle")
    }

    pub(super) fn rename(&mut self, source: &[u8], target: &[u8]) {
        let root = self.root;
        let renamed = self.do_it(&Call::Rename(call::Rename {
            source: Self::location(&root, source),
            target: Self::location(&root, target),
        }));
        assert!(matches!(renamed, Reply::Rename(Ok(_))), "{renamed:?}");
    }

    /// Whether the gateway that is cut off says that the name is there.
    pub(super) fn is_shown(&mut self, name: &[u8], patience: Duration) -> bool {
        let root = self.root;
        let call = Call::Lookup(Self::location(&root, name));
        let answer = self.ask(CUT, &call, patience);
        matches!(answer, Some(Reply::Lookup(Ok(_))))
    }

    /// Until another one has the root's site, and all who can have heard of it.
    pub(super) fn wait_for_another(&mut self, manager: Place) {
        while self.manager() == manager {
            self.step(Duration::from_millis(1));
        }
        self.pass(Duration::from_millis(10));
        assert!(self.world.is_running(manager), "it does not know");
    }

    /// An administrator has the registry changed through a manager; all have heard of it.
    pub(super) fn propose(&mut self, change: Change) {
        self.world.propose(self.manager(), change);
        self.pass(Duration::from_secs(1));
    }

    /// Who serves the root's site.
    pub(super) fn manager(&self) -> Place {
        self.world.owner_of_root().expect("it runs")
    }
}
