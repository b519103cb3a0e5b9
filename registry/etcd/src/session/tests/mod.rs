//! Sessions of several hosts at an etcd whose members fail and come back: answers are
//! late or lost, revisions are forgotten, hosts are killed.

mod model;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use crossdock_members::{Change, HostRecord};
use crossdock_names::HostId;
use crossdock_types::Time;

use super::Input;
use super::hosts::GRACE;
use model::{Condition, MEMBERS, Model};
use world::{DELAY_MAX, TTL, World};

const HOSTS: u64 = 3;

fn hosts() -> impl Iterator<Item = HostId> {
    (1..=HOSTS).map(HostId)
}

fn started(seed: u64) -> World {
    let mut world = World::new(seed);
    hosts().for_each(|host| world.start(host));
    world.run_until(Time::from_secs(3));
    world.check_settled();
    world
}

/// Goal: whatever fails, in any order: no proposal is lost or done twice, revisions
/// rise, what is told is what was written, nobody is declared gone who is heard of,
/// and once all is well again everybody knows the last state.
#[test]
fn random_failures_lose_nothing() {
    for seed in 0..40 {
        let mut world = started(seed);
        world.lost_of_1000 = world.random.below(30);
        let mut killed = BTreeSet::new();
        while world.now < Time::from_secs(40) {
            let step = Duration::from_millis(world.random.below(500));
            world.run_until(world.now + step);
            let member = world.random.index(MEMBERS);
            match world.random.below(12) {
                0 => world.model.set(world.now, member, Condition::Refuses),
                1 => world.model.set(world.now, member, Condition::Hangs),
                2..=4 => world.model.set(world.now, member, Condition::Up),
                5 => world.model.compact(),
                6 if killed.is_empty() && world.random.one_in(5) => {
                    let host = HostId(world.random.between(1, HOSTS));
                    world.processes.remove(&host);
                    killed.insert(host);
                }
                _ => {
                    let host = HostId(world.random.between(1, HOSTS));
                    world.propose_export(host);
                }
            }
        }
        world.heal();
        world.run_until(Time::from_secs(55));
        world.check_settled();
        let members = world.model.state().hosts;
        for host in killed {
            assert!(
                !members.contains_key(&host.0),
                "{host} is gone, and nobody says so"
            );
        }
    }
}

/// Goal: while one member after the other is away, refusing or hanging, nobody who
/// lives is declared gone, and nobody reports etcd as away.
#[test]
fn one_member_away_at_a_time_is_not_noticed() {
    for seed in 0..40 {
        let mut world = started(seed);
        for round in 0..8 {
            let member = world.random.index(MEMBERS);
            let condition = [Condition::Refuses, Condition::Hangs][round % 2];
            world.model.set(world.now, member, condition);
            world.propose_export(HostId(1));
            world.run_until(world.now + Duration::from_secs(4));
            world.model.set(world.now, member, Condition::Up);
            world.run_until(world.now + Duration::from_secs(1));
        }
        world.check_settled();
        assert_eq!(world.expired, [], "seed {seed}");
        assert!(world.processes.values().all(|process| process.aways == 0));
    }
}

/// Goal: after an outage of the whole registry, however long, everybody is still a
/// member, what was proposed meanwhile is done, and each host said once that etcd was
/// away and once that it is back.
#[test]
fn an_outage_expires_nobody() {
    for seed in 0..40 {
        let mut world = started(seed);
        let conditions = [Condition::Refuses, Condition::Hangs];
        let condition = conditions[world.random.index(2)];
        let first = world.random.index(MEMBERS);
        let second = (first + 1) % MEMBERS;
        world.model.set(world.now, first, condition);
        world.model.set(world.now, second, condition);
        hosts().for_each(|host| world.propose_export(host));
        let length = 4_000 + world.random.below(20_000);
        world.run_until(world.now + Duration::from_millis(length));
        assert!(world.processes.values().all(|process| process.is_away));
        world.model.compact();
        world.model.set(world.now, first, Condition::Up);
        world.run_until(world.now + Duration::from_secs(10));
        world.check_settled();
        assert_eq!(world.expired, [], "seed {seed}");
        assert!(world.processes.values().all(|process| process.aways == 1));
    }
}

/// Goal: when etcd ends the leases of all one after the other, because a member that stood
/// still takes itself for the leader, those who live have others before anybody declares
/// them gone.
#[test]
fn leases_that_etcd_ends_by_mistake_expire_nobody() {
    for seed in 0..40 {
        let mut world = started(seed);
        for _ in 0..3 {
            for host in hosts() {
                world.model.end_lease_of(world.now, host);
                world.run_until(world.now + DELAY_MAX / 4);
            }
            world.run_until(world.now + Duration::from_secs(4));
        }
        world.check_settled();
        assert_eq!(world.expired, [], "seed {seed}");
        assert_eq!(world.model.hosts.len(), world.processes.len());
    }
}

/// Goal: of a host that dies everybody learns soon after its lease has ended, not before;
/// of one that stops gracefully at once.
#[test]
fn who_is_gone_is_reported_when_the_lease_ends() {
    for seed in 0..20 {
        let mut world = started(seed);
        let died_at = world.now;
        world.processes.remove(&HostId(1));
        world.run_until(died_at + Duration::from_secs(4));
        let reporters: BTreeSet<HostId> = world.expired.iter().map(|(_, by, _)| *by).collect();
        // Who reads that the others have done something about it says nothing.
        assert!(!reporters.is_empty() && !world.model.state().hosts.contains_key(&1));
        for (at, _, gone) in world.expired.drain(..) {
            let after = at.since(died_at);
            assert_eq!(gone, HostId(1));
            assert!(
                after >= TTL / 2 + GRACE && after <= TTL + GRACE + DELAY_MAX * 4,
                "{after:?}"
            );
        }
        let left_at = world.now;
        world.give(HostId(2), Input::Leave);
        world.run_until(left_at + Duration::from_secs(1));
        assert!(world.processes[&HostId(2)].has_ended);
        let (at, by, gone) = world.expired[0];
        assert_eq!((by, gone), (HostId(3), HostId(2)));
        assert!(at.since(left_at) <= DELAY_MAX * 4);
        assert_eq!(world.model.state().hosts.len(), 1);
    }
}

/// Goal: a member of the state whose key was never there is reported, after a TTL and
/// not before; again as long as nothing is done about it.
#[test]
fn a_member_that_was_never_heard_of_is_reported_after_a_ttl() {
    let mut world = World::new(1);
    let record = HostRecord::default();
    let mut state = world.model.state();
    state
        .apply(Change::Join { host: 9, record })
        .expect("joins");
    world.model = Model::new(&state);
    let started_at = world.now;
    world.start(HostId(1));
    world.run_until(started_at + (TTL - Duration::from_millis(1)));
    assert_eq!(world.expired, []);
    world.run_until(started_at + TTL * 2);
    assert_eq!(world.expired.len(), 1);
    assert!(!world.model.state().hosts.contains_key(&9));
}

/// Goal: a host whose lease was lost while it lives asks for another one; one that was
/// replaced meanwhile does not, and does not join again.
#[test]
fn a_lost_lease_is_replaced_unless_the_host_is() {
    let mut world = started(3);
    // Its process stood still: nothing of it arrives for a while.
    let host = HostId(1);
    let mut stopped = world.processes.remove(&host).expect("it runs");
    stopped.route.number += 1000;
    let now = world.now;
    world.run_until(now + TTL + Duration::from_secs(2));
    assert!(
        !world.model.state().hosts.contains_key(&1),
        "the others have replaced it"
    );
    world.processes.insert(host, stopped);
    world.give(host, Input::Timeout);
    world.run_until(world.now + Duration::from_secs(5));
    assert!(!world.model.hosts.contains_key(&host));
    assert!(!world.model.state().hosts.contains_key(&1));

    // Alone, nobody replaces it.
    let mut world = World::new(4);
    world.start(host);
    world.run_until(Time::from_secs(3));
    let mut stopped = world.processes.remove(&host).expect("it runs");
    stopped.route.number += 1000;
    world.run_until(Time::from_secs(10));
    assert!(!world.model.hosts.contains_key(&host));
    world.processes.insert(host, stopped);
    world.give(host, Input::Timeout);
    world.run_until(world.now + Duration::from_secs(5));
    world.check_settled();
    assert!(world.model.hosts.contains_key(&host));
}

/// Goal: while etcd is away proposals wait up to a bound, and one that says the same
/// again takes no second place.
#[test]
fn proposals_that_wait_are_bounded() {
    let mut world = started(5);
    for member in 0..MEMBERS {
        world.model.set(world.now, member, Condition::Refuses);
    }
    world.run_until(world.now + Duration::from_secs(2));
    let session = &mut world
        .processes
        .get_mut(&HostId(1))
        .expect("it runs")
        .session;
    for round in 0..10_000_u64 {
        let site = u16::try_from(round % 256).expect("small");
        session.handle(
            world.now,
            Input::Propose(Change::SiteOpened {
                site,
                expected: None,
            }),
        );
    }
    assert_eq!(session.proposals.len(), 256);
    for _ in 0..10_000 {
        session.handle(world.now, Input::Propose(Change::RaiseAll));
    }
    assert_eq!(session.proposals.len(), super::proposals::PROPOSALS_MAX);
    world.heal();
    world.run_until(world.now + Duration::from_secs(3));
    world.check_settled();
    assert_eq!(world.model.state().opened_sites.len(), 256);
}
