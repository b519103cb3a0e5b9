//! Clocks that are wrong, and times that clients are shown.

use std::time::Duration;

use crossdock_sim::random::Random;

use super::super::model::Model;
use super::driver::Driver;
use super::{Faults, Shape, world_of};

const SHAPE: Shape = Shape {
    nodes: 3,
    replicas: 2,
    managers: 2,
    gateways: 1,
    sites: 4,
    addresses: 0,
    faults: Faults::None,
};

/// Goal: the workload compares times, also across managers that take over.
#[test]
fn times_of_directories_are_compared() {
    let mut random = Random::new(6);
    let (world, root) = world_of(SHAPE, None, &mut random);
    let mut driver = Driver::new(SHAPE, world, Model::default(), random, false);
    driver
        .make_directories(root.expect("a root"), &[b"one", b"two"])
        .expect("they are made");
    for _ in 0..2 {
        driver.work(100, Faults::None).expect("nothing fails");
        let owner = driver.world.owner_of_root().expect("somebody serves it");
        driver.world.kill(owner, Duration::from_secs(4));
    }
    driver.work(100, Faults::None).expect("nothing fails");
    assert!(driver.times.compared > 20, "{}", driver.times.compared);
}
