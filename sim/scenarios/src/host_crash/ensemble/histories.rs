//! Histories of CONSISTENCY 4, move by move. Each must also go wrong when the rule
//! that prevents it is built out: else it would prove nothing.

use std::time::Duration;

use crossdock_host::Mutation;
use crossdock_names::HostId;
use crossdock_nfs::ConnId;
use crossdock_nfs3::call::{self, CreateHow};
use crossdock_nfs3::{Call, HandleBuffer, Location, Name, Reply, SetAttributes, Status};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::wire;
use super::network::Place;
use super::world::World;
use super::{Faults, Shape, world_of};

const SHAPE: Shape = Shape {
    nodes: 3,
    replicas: 2,
    managers: 2,
    gateways: 2,
    faults: Faults::None,
};

/// The gateway that is cut off, and the one that is not.
const CUT: Place = 5;
const WELL: Place = 6;

/// Longer than everything else here takes.
const LONG: Duration = Duration::from_secs(60);

struct Stage {
    world: World,
    root: HandleBuffer,
    calls: u32,
    /// Of the gateways, in their order.
    connections: [ConnId; 2],
}

impl Stage {
    fn new(mutation: Option<Mutation>) -> Self {
        let mut random = Random::new(16);
        let (world, root) = world_of(SHAPE, mutation, &mut random);
        let mut stage = Self {
            world,
            root: root.expect("a root"),
            calls: 0,
            connections: [ConnId(1), ConnId(2)],
        };
        while ![CUT, WELL].iter().all(|&place| stage.world.is_open(place)) {
            stage.step(LONG);
        }
        stage.world.connect(ConnId(1), 0, CUT);
        stage.world.connect(ConnId(2), 1, WELL);
        stage
    }

    /// Lets the next thing happen that is due within `longest`.
    fn step(&mut self, longest: Duration) {
        let wake = self.world.now + longest;
        self.world.step(wake).expect("nothing fails");
    }

    fn pass(&mut self, length: Duration) {
        let until = self.world.now + length;
        while self.world.now < until {
            let left = until.since(self.world.now);
            self.step(left);
        }
    }

    /// What is answered through a gateway within `patience`, and when.
    fn ask(&mut self, via: Place, call: &Call<'_>, patience: Duration) -> Option<(Time, Reply)> {
        self.calls += 1;
        let xid = self.calls;
        let name = self.connections[via - CUT];
        self.world.send(name, wire::encode(xid, call));
        let until = self.world.now + patience;
        while self.world.now < until {
            self.step(until.since(self.world.now));
            while let Some((_, record)) = self.world.replies.pop_front() {
                if wire::xid(&record) == Ok(xid) {
                    let reply = wire::decode(call.procedure(), &record);
                    return Some((self.world.now, reply.expect("a reply")));
                }
            }
        }
        None
    }

    /// Likewise, as often as it is told to try again.
    fn do_it(&mut self, call: &Call<'_>) -> Reply {
        loop {
            let (_, reply) = self.ask(WELL, call, LONG).expect("an answer");
            if reply.status() != Some(Status::Jukebox) {
                return reply;
            }
        }
    }

    fn location<'a>(root: &'a HandleBuffer, name: &'a [u8]) -> Location<'a> {
        Location {
            directory: root.as_handle(),
            name: Name(name),
        }
    }

    fn create(&mut self, name: &[u8]) -> HandleBuffer {
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

    fn rename(&mut self, source: &[u8], target: &[u8]) {
        let root = self.root;
        let renamed = self.do_it(&Call::Rename(call::Rename {
            source: Self::location(&root, source),
            target: Self::location(&root, target),
        }));
        assert!(matches!(renamed, Reply::Rename(Ok(_))), "{renamed:?}");
    }

    /// Whether the gateway that is cut off says that the name is there.
    fn is_shown(&mut self, name: &[u8], patience: Duration) -> bool {
        let root = self.root;
        let call = Call::Lookup(Self::location(&root, name));
        let answer = self.ask(CUT, &call, patience);
        matches!(answer, Some((_, Reply::Lookup(Ok(_)))))
    }

    /// Until another one has the root's site, and all who can have heard of it.
    fn wait_for_another(&mut self, manager: Place) {
        while self.manager() == manager {
            self.step(Duration::from_millis(1));
        }
        self.pass(Duration::from_millis(10));
        assert!(self.world.is_running(manager), "it does not know");
    }

    /// Who serves the root's site.
    fn manager(&self) -> Place {
        let owner = self.world.service.state.owners[&0];
        self.world.place_of(HostId(owner)).expect("it runs")
    }
}

/// The manager of a site is paused and cut off together with a gateway; when it
/// goes on, another one has long changed a name. Whether the old name shows.
fn paused_reader(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(mutation);
    stage.create(b"old");
    let manager = stage.manager();
    stage.world.pause(manager, Duration::from_millis(2900));
    for place in [manager, CUT] {
        stage.world.cut_from_registry(place, LONG);
    }
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    stage.is_shown(b"old", Duration::from_secs(12))
}

/// Goal: history `paused-reader`: a manager that stood still for longer than its
/// leases last answers nothing of what it remembers.
#[test]
fn paused_reader_is_shown_nothing_old() {
    assert!(!paused_reader(None));
    assert!(paused_reader(Some(Mutation::IgnoreLease)));
}

/// A manager and a gateway are cut off. Whether the old name shows after somebody
/// was told that it has been changed.
fn lease_lost_at_take_over(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(mutation);
    stage.create(b"old");
    let manager = stage.manager();
    for place in [manager, CUT] {
        stage.world.cut_from_registry(place, LONG);
    }
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    stage.is_shown(b"old", Duration::from_secs(3))
}

/// Goal: history `lease-lost-at-take-over`: a successor acknowledges nothing while
/// the one that it has replaced may still answer.
#[test]
fn a_lease_is_waited_out_before_the_site_goes_on() {
    assert!(!lease_lost_at_take_over(None));
    assert!(lease_lost_at_take_over(Some(Mutation::GrantAtOnce)));
    assert!(lease_lost_at_take_over(Some(Mutation::IgnoreLease)));
}

/// Goal: who loses the registry, and nothing else, is replaced within 5 s of it:
/// the registry's lease and the hosts' together.
#[test]
fn a_site_is_taken_over_within_five_seconds() {
    let mut stage = Stage::new(None);
    stage.create(b"old");
    let manager = stage.manager();
    let begun = stage.world.now;
    stage.world.cut_from_registry(manager, LONG);
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    let pause = stage.world.now.since(begun);
    assert!(pause < Duration::from_secs(5), "{pause:?}");
}
