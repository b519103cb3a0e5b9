//! Sites that nobody has used when nodes are lost: nothing is at their nodes, so whoever
//! uses one first waits for none that is away.

use std::time::Duration;

use crossdock_members::{Change, Placement};
use crossdock_names::{FileRef, SiteId};
use crossdock_nfs3::call::{self, Mkdir};
use crossdock_nfs3::{Call, HandleBuffer, Location, Name, Reply, SetAttributes};
use crossdock_types::Time;

use super::Shape;
use super::network::Place;
use super::stage::{self, CUT, Stage};

/// Many sites, of which the clients have used one.
const SHAPE: Shape = Shape {
    nodes: 4,
    managers: 1,
    sites: 64,
    ..stage::SHAPE
};

const HOUR: Duration = Duration::from_secs(3600);

/// What the first use of a site takes at most, and everything else here.
const SOON: Duration = Duration::from_secs(2);

/// Until who is away is in no set any more that has others, or who is back is in its sets.
const SETTLED: Duration = Duration::from_secs(8);

impl Stage {
    /// A name in the root under which a directory would lie at a site whose set belongs to
    /// these nodes.
    fn name_of_site_at(&self, places: [Place; 2]) -> (Vec<u8>, SiteId) {
        let state = &self.world.service.state;
        let root = FileRef::root_of(SiteId(0));
        let is_at = |site: SiteId| {
            let record = &state.sets[&state.sites[usize::from(site.0)].1];
            let at = |home: &u64| places.iter().any(|&place| self.node_at(place) == *home);
            site != SiteId(0) && record.home.iter().all(at)
        };
        let mut names = (0..100_000).map(|number| format!("directory-{number}").into_bytes());
        let found = names.find_map(|name| {
            let site = state.spread.home(state.volume_id(), root, &name);
            is_at(site).then_some((name, site))
        });
        found.expect("a name for each pair")
    }

    /// Which node is at a place, running or not: they are made in order.
    fn node_at(&self, place: Place) -> u64 {
        self.world.service.state.nodes[place].id
    }

    /// Two nodes that do not have the root's set between them.
    fn pair(&self) -> [Place; 2] {
        let state = &self.world.service.state;
        let root = &state.sets[&state.sites[0].1].home;
        let has_root = |place: &Place| root.contains(&self.node_at(*place));
        let (with, without): (Vec<Place>, Vec<Place>) = (0..4).partition(has_root);
        [with[0], without[0]]
    }

    /// Makes a directory and a name in it; when that was done.
    fn use_site(&mut self, name: &[u8]) -> Time {
        let root = self.root;
        let Reply::Mkdir(Ok(made)) = self.do_it(&Call::Mkdir(Mkdir {
            location: Self::location(&root, name),
            attributes: SetAttributes::default(),
        })) else {
            panic!("no directory");
        };
        let directory = made.object.expect("a handle");
        let made = self.do_it(&Call::Create(call::Create {
            location: Self::location(&directory, b"name"),
            how: call::CreateHow::Guarded(SetAttributes::default()),
        }));
        assert!(matches!(made, Reply::Create(Ok(_))), "{made:?}");
        let done = self.world.now;
        self.finds_name(&directory);
        done
    }

    /// The other gateway finds the name, too.
    fn finds_name(&mut self, directory: &HandleBuffer) {
        let look = Call::Lookup(Location {
            directory: directory.as_handle(),
            name: Name(b"name"),
        });
        let found = self.ask(CUT, &look, SOON);
        assert!(matches!(found, Some(Reply::Lookup(Ok(_)))), "{found:?}");
    }
}

/// Goal: a node is away for a while, and the other one of the same sets for long after
/// that: the first use of a site whose set these two have does not wait for it.
#[test]
fn first_use_of_a_site_does_not_wait_for_a_lost_node() {
    let mut stage = Stage::new(SHAPE, None);
    let [one, other] = stage.pair();
    let (name, _) = stage.name_of_site_at([one, other]);
    stage.world.kill(one, Duration::from_secs(6));
    stage.pass(SETTLED * 2);
    assert!(stage.world.is_running(one));
    stage.world.kill(other, HOUR);
    stage.pass(SETTLED);
    let begun = stage.world.now;
    let took = stage.use_site(&name).since(begun);
    assert!(took < SOON, "{took:?}");
}

/// Goal: both nodes of a set are lost, and rebuilt elsewhere as far as there is anything:
/// a site that nobody has used is used with the nodes that have taken their places.
#[test]
fn sites_that_nobody_has_used_are_used_without_the_nodes_that_were_lost() {
    let mut stage = Stage::new(SHAPE, None);
    let pair = stage.pair();
    let (name, site) = stage.name_of_site_at(pair);
    let lost = pair.map(|place| stage.node_at(place));
    for place in pair {
        stage.world.kill(place, HOUR);
    }
    stage.pass(SETTLED);
    for place in pair {
        let number = u32::try_from(place).expect("few");
        let replace = Placement::Replace { number, id: None };
        stage.propose(Change::Place(replace));
    }
    let begun = stage.world.now;
    let took = stage.use_site(&name).since(begun);
    assert!(took < SOON, "{took:?}");
    let state = &stage.world.service.state;
    let record = &state.sets[&state.sites[usize::from(site.0)].1];
    assert!(state.opened_sites.contains(&site.0));
    assert_eq!(record.members, record.home);
    assert!(!record.home.iter().any(|home| lost.contains(home)));
}
