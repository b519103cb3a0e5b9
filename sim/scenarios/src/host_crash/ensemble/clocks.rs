//! Clocks that are wrong, and what hosts know of each other's.

use std::time::Duration;

use crossdock_sim::random::Random;

use super::super::model::Model;
use super::driver::Driver;
use super::world::CLOCKS_SECONDS;
use super::{Faults, RacesOf, Shape, world_of};

const SHAPE: Shape = Shape {
    nodes: 3,
    replicas: 2,
    managers: 2,
    gateways: 1,
    sites: 4,
    addresses: 0,
    is_scoped: false,
    races: RacesOf::None,
    faults: Faults::None,
    is_hashed: false,
    has_maps: false,
};

/// Goal: each host can say by how much the clock of each other one is ahead of its own,
/// give or take what a message takes.
#[test]
fn hosts_know_how_wrong_the_others_clocks_are() {
    let mut random = Random::new(5);
    let world = world_of(SHAPE, None, &mut random);
    let mut driver = Driver::new(SHAPE, world, Model::default(), random, false);
    driver
        .settle(Duration::from_secs(12))
        .expect("nothing fails");
    let world = &driver.world;
    let clock = |place: usize| CLOCKS_SECONDS[place % CLOCKS_SECONDS.len()] * 1000;
    for place in 0..world.places() {
        for other in (0..world.places()).filter(|&other| other != place) {
            let ahead = world.clock_ahead(place, other).expect("it was asked");
            let wrong = (ahead / 1_000_000 - (clock(other) - clock(place))).abs();
            assert!(
                wrong <= 250,
                "{place} believes {other} to be ahead by {ahead} ns"
            );
        }
    }
}

/// Goal: the workload compares times, also across managers that take over.
#[test]
fn times_of_directories_are_compared() {
    let mut random = Random::new(6);
    let world = world_of(SHAPE, None, &mut random);
    let mut driver = Driver::new(SHAPE, world, Model::default(), random, false);
    driver
        .make_directories(&[b"one", b"two"])
        .expect("they are made");
    for _ in 0..2 {
        driver.work(100, Faults::None).expect("nothing fails");
        let owner = driver.world.owner_of_root().expect("somebody serves it");
        driver.world.kill(owner, Duration::from_secs(4));
    }
    driver.work(100, Faults::None).expect("nothing fails");
    assert!(driver.times.compared > 20, "{}", driver.times.compared);
}
