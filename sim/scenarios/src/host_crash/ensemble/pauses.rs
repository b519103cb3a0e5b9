//! How long clients wait at most, in simulated time, while names lie at several
//! managers: when one of these is cut off, and when a node comes back.

use std::time::Duration;

use crossdock_sim::random::Random;

use super::super::model::Model;
use super::driver::Driver;
use super::{Faults, RacesOf, Shape, world_of};

const SHAPE: Shape = Shape {
    nodes: 4,
    replicas: 2,
    managers: 3,
    gateways: 2,
    sites: 16,
    addresses: 0,
    is_scoped: false,
    races: RacesOf::None,
    faults: Faults::None,
    is_hashed: false,
    has_maps: false,
};

/// In which directions nothing moves, seen from the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Both,
    Hearing,
    Saying,
}

/// How long it is cut off: longer than it takes to put others in its place.
const LENGTH: Duration = Duration::from_secs(12);

/// Requests of the clients in each part of a history.
const REQUESTS: u64 = 150;

/// How long it takes until a node that came back has its part of all sites again.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// What clients of an ensemble wait for at most, whatever happens to one host.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An ensemble in which names lie at several managers, and clients have worked.
fn begin(seed: u64) -> Driver {
    let mut random = Random::new(seed);
    let world = world_of(SHAPE, None, &mut random);
    let mut driver = Driver::new(SHAPE, world, Model::default(), random, false);
    let begun = spread_names(&mut driver);
    begun.expect("nothing fails");
    driver
}

fn spread_names(driver: &mut Driver) -> Result<(), String> {
    driver.make_directories(&[b"one", b"two", b"three", b"four", b"five"])?;
    // Who joined first has all names, until it leaves: then the others have.
    let first = driver.world.owner_of_root().ok_or("nobody has the root")?;
    driver.world.kill(first, Duration::from_secs(4));
    for _ in 0..2 {
        driver.work(REQUESTS, Faults::None)?;
        driver.settle(Duration::from_secs(8))?;
    }
    driver.longest = Duration::ZERO;
    Ok(())
}

/// Everything is as it should be; the longest answer since [`begin`].
fn end(mut driver: Driver) -> Duration {
    let longest = driver.longest;
    driver.finish().expect("all is as clients were told");
    longest
}

/// The longest answer while the manager of the root directory is cut off.
fn cut_off(seed: u64, cut: Cut) -> Duration {
    let mut driver = begin(seed);
    let manager = driver.world.owner_of_root().expect("it runs");
    for other in (0..driver.world.places()).filter(|&other| other != manager) {
        if cut != Cut::Saying {
            driver.world.cut(other, manager, LENGTH);
        }
        if cut != Cut::Hearing {
            driver.world.cut(manager, other, LENGTH);
        }
    }
    driver.world.cut_from_registry(manager, LENGTH);
    let worked = driver.work(REQUESTS, Faults::None);
    worked.expect("all is as clients were told");
    end(driver)
}

/// The longest answer after a node has come back.
fn comes_back(seed: u64) -> Duration {
    let mut driver = begin(seed);
    let node = driver.random.index(SHAPE.nodes as usize);
    driver.world.kill(node, Duration::from_secs(6));
    driver.settle(Duration::from_millis(1)).expect("it is gone");
    let mut worked = driver.work(REQUESTS, Faults::None);
    while worked.is_ok() && !driver.world.is_running(node) {
        worked = driver.settle(Duration::from_millis(10));
    }
    driver.longest = Duration::ZERO;
    let until = driver.world.now + AFTERWARDS;
    while worked.is_ok() && driver.world.now < until {
        worked = driver.work(20, Faults::None);
    }
    worked.expect("all is as clients were told");
    end(driver)
}

/// Goal: a manager that lives, and is cut off in one direction or both, holds its
/// clients up no longer than others need to take its names over.
#[test]
fn who_asks_a_manager_that_is_cut_off_is_answered_by_others_soon() {
    for cut in [Cut::Both, Cut::Hearing, Cut::Saying] {
        for seed in 0..3 {
            let longest = cut_off(seed, cut);
            assert!(longest < PAUSE_MAX, "seed {seed}, {cut:?}: {longest:?}");
        }
    }
}

/// Goal: sites that are opened anew for a node that came back do not wait for each
/// other. One had kept a file for an operation of another one, which was opened anew
/// first; it took no word of what had become of that, so the file's bytes could not be
/// written, and clients waited until its patience was over: 2.6 s.
#[test]
fn sites_that_are_opened_anew_do_not_wait_for_each_other() {
    for seed in [2, 14, 17, 23] {
        let longest = comes_back(seed);
        let most = Duration::from_millis(1500);
        assert!(longest < most, "seed {seed}: {longest:?}");
    }
}
