//! Sessions of several hosts over a [model](model::Model) of etcd, under simulated
//! time: members fail and come back, answers are late or lost, revisions are
//! forgotten, hosts are killed.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_members::{Change, DirectoryRecord, HostRecord, State};
use crossdock_names::HostId;
use crossdock_peer::ExportRules;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::{Effect, Event, Failure, Input, Reply, Request, Session};
use crate::api::Notice;
use model::{Condition, MEMBERS, Model};

const TTL: Duration = Duration::from_secs(2);
const HOSTS: u64 = 3;
/// On the way to etcd, and back.
const DELAY_MAX: Duration = Duration::from_millis(20);
const HANGING_TRIES_AGAIN: Duration = Duration::from_millis(300);
/// What a host may connect within any second.
const CONNECTS_PER_SECOND_MAX: usize = 16;

/// What is under way.
enum Job {
    /// A request that comes to a member.
    Arrive {
        host: HostId,
        route: Route,
        id: u64,
        request: Request,
    },
    /// The same at a member that hung when it came: it may still be carried out.
    Linger { host: HostId, request: Request },
    Answer {
        host: HostId,
        route: Route,
        id: u64,
        result: Result<Reply, Failure>,
    },
    Watched {
        host: HostId,
        route: Route,
        connection: u64,
        result: Result<Vec<Event>, Failure>,
    },
    /// A watch looks for news.
    Look {
        host: HostId,
        route: Route,
        connection: u64,
        from: i64,
    },
}

/// Which of a host's connections, and to which member.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Route {
    number: u64,
    member: usize,
}

struct Process {
    session: Session,
    route: Route,
    state_revision: u64,
    is_away: bool,
    aways: u32,
    backs: u32,
    /// Paths that it has proposed to export.
    paths: Vec<String>,
    connects: Vec<Time>,
    has_ended: bool,
}

struct World {
    now: Time,
    random: Random,
    model: Model,
    processes: BTreeMap<HostId, Process>,
    jobs: BTreeMap<(Time, u64), Job>,
    next_job: u64,
    /// Of 1,000 answers so many are lost.
    lost_of_1000: u64,
    /// Who was declared gone, by whom, and when.
    expired: Vec<(Time, HostId, HostId)>,
    paths_total: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let state = State::fresh(1, 2, &[11, 12, 13], 2, 2, [7; 32]);
        Self {
            now: Time(1),
            random: Random::new(seed),
            model: Model::new(&state),
            processes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            lost_of_1000: 0,
            expired: Vec::new(),
            paths_total: 0,
        }
    }

    fn start(&mut self, host: HostId) {
        let names = (0..MEMBERS)
            .map(|member| format!("member {member}"))
            .collect();
        let (revision, state) = (self.model.state_revision, self.model.state());
        let process = Process {
            session: Session::new(self.now, names, host, TTL, revision, state),
            route: Route {
                number: 0,
                member: 0,
            },
            state_revision: revision.unsigned_abs(),
            is_away: false,
            aways: 0,
            backs: 0,
            paths: Vec::new(),
            connects: Vec::new(),
            has_ended: false,
        };
        self.processes.insert(host, process);
        let record = HostRecord {
            is_manager: true,
            ..HostRecord::default()
        };
        self.give(
            host,
            Input::Propose(Change::Join {
                host: host.0,
                record,
            }),
        );
    }

    fn propose_export(&mut self, host: HostId) {
        self.paths_total += 1;
        let path = format!("/{}", self.paths_total);
        let Some(process) = self.processes.get_mut(&host) else {
            return;
        };
        process.paths.push(path.clone());
        let (root, rules) = (DirectoryRecord::default(), ExportRules::local());
        self.give(
            host,
            Input::Propose(Change::AddExport { path, root, rules }),
        );
    }

    fn give(&mut self, host: HostId, input: Input) {
        if let Some(process) = self.processes.get_mut(&host) {
            process.session.handle(self.now, input);
            self.carry_out(host);
        }
    }

    fn later(&mut self, job: Job) {
        let delay = self
            .random
            .below(u64::try_from(DELAY_MAX.as_nanos()).expect("short"));
        self.at(self.now + Duration::from_nanos(delay), job);
    }

    fn at(&mut self, due: Time, job: Job) {
        self.next_job += 1;
        self.jobs.insert((due, self.next_job), job);
    }

    fn carry_out(&mut self, host: HostId) {
        loop {
            let Some(process) = self.processes.get_mut(&host) else {
                return;
            };
            assert!(
                process.session.asked.len() <= 3,
                "{:?}",
                process.session.asked
            );
            let Some(effect) = process.session.poll_effect() else {
                return;
            };
            let route = process.route;
            match effect {
                Effect::Connect { endpoint } => {
                    process.route = Route {
                        number: route.number + 1,
                        member: endpoint,
                    };
                    process.connects.push(self.now);
                    let recent = process.connects.iter().rev();
                    let recent = recent.take_while(|at| self.now.since(**at).as_secs() < 1);
                    assert!(recent.count() <= CONNECTS_PER_SECOND_MAX, "no back-off");
                }
                Effect::Send { id, request } => {
                    self.later(Job::Arrive {
                        host,
                        route,
                        id,
                        request,
                    });
                }
                Effect::Watch { connection, from } => {
                    self.later(Job::Look {
                        host,
                        route,
                        connection,
                        from,
                    });
                }
                Effect::Notice(notice) => self.take_notice(host, notice),
                Effect::Ended => process.has_ended = true,
            }
        }
    }

    fn take_notice(&mut self, host: HostId, notice: Notice) {
        let Some(process) = self.processes.get_mut(&host) else {
            return;
        };
        match notice {
            Notice::State { revision, state } => {
                assert!(revision > process.state_revision, "revisions rise");
                process.state_revision = revision;
                let written = &self.model.states[&i64::try_from(revision).expect("small")];
                let written: State = serde_json::from_slice(written).expect("a state");
                assert_eq!(*state, written, "what is told is what was written");
            }
            Notice::Expired(gone) => {
                self.expired.push((self.now, host, gone));
                let is_there = self.model.hosts.contains_key(&gone);
                let went = self.model.gone_at.get(&gone);
                let just_went = went.is_some_and(|at| self.now.since(*at) <= DELAY_MAX * 3);
                assert!(!is_there || just_went, "{gone} is heard of");
                // As a host does.
                self.give(host, Input::Propose(Change::Leave { host: gone.0 }));
            }
            Notice::Away(reasons) => {
                assert!(!process.is_away && reasons.contains("member"), "{reasons}");
                process.is_away = true;
                process.aways += 1;
            }
            Notice::Back => {
                assert!(process.is_away, "back from nowhere");
                process.is_away = false;
                process.backs += 1;
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let job = self.jobs.keys().next().map(|(due, _)| *due);
            let sessions = self.processes.values();
            let timer = sessions.filter_map(|process| process.session.poll_timeout());
            let next = timer.chain(job).min().filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                self.model.take_time(end);
                return;
            };
            let next = next.max(self.now);
            self.now = next;
            self.model.take_time(next);
            if job.is_some_and(|due| due <= next) {
                if let Some((_, job)) = self.jobs.pop_first() {
                    self.take_job(job);
                }
                continue;
            }
            let is_due = |process: &Process| process.session.poll_timeout() <= Some(next);
            let due = self
                .processes
                .iter()
                .filter(|(_, process)| process.session.poll_timeout().is_some() && is_due(process));
            let due: Vec<HostId> = due.map(|(&host, _)| host).collect();
            for host in due {
                self.give(host, Input::Timeout);
                let again = self.processes[&host].session.poll_timeout();
                assert!(
                    again > Some(next) || again.is_none(),
                    "it turns on the spot"
                );
            }
        }
    }

    fn is_current(&self, host: HostId, route: Route) -> bool {
        let process = self.processes.get(&host);
        process.is_some_and(|process| process.route == route)
    }

    fn take_job(&mut self, job: Job) {
        match job {
            Job::Arrive {
                host,
                route,
                id,
                request,
            } => self.arrive(host, route, id, request),
            Job::Linger { host, request } if self.model.has_quorum() => {
                let _ = self.model.carry_out(self.now, host, &request);
            }
            Job::Linger { .. } => self.at(self.now + HANGING_TRIES_AGAIN, job),
            Job::Answer {
                host,
                route,
                id,
                result,
            } if self.is_current(host, route) => {
                self.give(host, Input::Answer { id, result });
            }
            Job::Watched {
                host,
                route,
                connection,
                result,
            } if self.is_current(host, route) => {
                self.give(host, Input::Watched { connection, result });
            }
            Job::Look {
                host,
                route,
                connection,
                from,
            } => {
                self.look(host, route, connection, from);
            }
            Job::Answer { .. } | Job::Watched { .. } => {}
        }
    }

    fn arrive(&mut self, host: HostId, route: Route, id: u64, request: Request) {
        let result = match self.model.conditions[route.member] {
            Condition::Refuses => Err(Failure::Away("refused".to_owned())),
            _ if !self.model.serves(route.member) => {
                if self.random.one_in(3) {
                    self.at(
                        self.now + HANGING_TRIES_AGAIN,
                        Job::Linger { host, request },
                    );
                }
                return;
            }
            _ => self.model.carry_out(self.now, host, &request),
        };
        if self.random.below(1000) >= self.lost_of_1000 {
            self.later(Job::Answer {
                host,
                route,
                id,
                result,
            });
        }
    }

    fn look(&mut self, host: HostId, route: Route, connection: u64, from: i64) {
        if !self.is_current(host, route) {
            return;
        }
        let member = self.model.conditions[route.member];
        let (result, next) = match self.model.watched(from) {
            _ if member == Condition::Hangs => (None, from),
            _ if !self.model.serves(route.member) => {
                (Some(Err(Failure::Away("no leader".to_owned()))), from)
            }
            Ok((events, next)) => (Some(Ok(events)), next),
            Err(failure) => (Some(Err(failure)), from),
        };
        let goes_on = !matches!(result, Some(Err(_)));
        if let Some(result) = result {
            self.at(
                self.now,
                Job::Watched {
                    host,
                    route,
                    connection,
                    result,
                },
            );
        }
        if goes_on {
            self.later(Job::Look {
                host,
                route,
                connection,
                from: next,
            });
        }
    }

    fn heal(&mut self) {
        for member in 0..MEMBERS {
            self.model.set(self.now, member, Condition::Up);
        }
        self.lost_of_1000 = 0;
    }

    /// Hosts that run and are members, or have not joined yet.
    fn check_settled(&self) {
        let state = self.model.state();
        for (host, process) in &self.processes {
            assert!(
                process.session.proposals.is_empty(),
                "{host}: proposals wait"
            );
            let knows = i64::try_from(process.state_revision).expect("small");
            assert_eq!(knows, self.model.state_revision, "{host} is behind");
            assert!(!process.is_away && process.aways == process.backs);
            for path in &process.paths {
                let exports = state.exports.iter();
                let count = exports.filter(|export| export.path == *path).count();
                assert_eq!(count, 1, "{host}: {path}");
            }
            let is_member = state.hosts.contains_key(&host.0);
            assert_eq!(is_member, self.model.hosts.contains_key(host), "{host}");
        }
    }
}

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

/// Goal: of a host that dies everybody learns when its lease has ended, not before; of
/// one that stops gracefully at once.
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
                after >= TTL / 2 && after <= TTL + DELAY_MAX * 4,
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
        session.handle(world.now, Input::Propose(Change::SiteOpened { site }));
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
