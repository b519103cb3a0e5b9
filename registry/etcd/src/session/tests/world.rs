//! Sessions of several hosts over a [model](super::model::Model) of etcd, under
//! simulated time. What must hold at any moment is asserted here.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_members::{Change, DirectoryRecord, HostRecord, State};
use crossdock_names::HostId;
use crossdock_peer::ExportRules;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::model::{Condition, MEMBERS, Model};
use crate::api::Notice;
use crate::session::{Effect, Event, Failure, Input, Reply, Request, Session};

pub(super) const TTL: Duration = Duration::from_secs(2);
/// On the way to etcd, and back.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(20);
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
pub(super) struct Route {
    pub(super) number: u64,
    pub(super) member: usize,
}

pub(super) struct Process {
    pub(super) session: Session,
    pub(super) route: Route,
    pub(super) state_revision: u64,
    pub(super) is_away: bool,
    pub(super) aways: u32,
    pub(super) backs: u32,
    /// Paths that it has proposed to export.
    pub(super) paths: Vec<String>,
    pub(super) connects: Vec<Time>,
    pub(super) has_ended: bool,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) random: Random,
    pub(super) model: Model,
    pub(super) processes: BTreeMap<HostId, Process>,
    jobs: BTreeMap<(Time, u64), Job>,
    next_job: u64,
    /// Of 1,000 answers so many are lost.
    pub(super) lost_of_1000: u64,
    /// Who was declared gone, by whom, and when.
    pub(super) expired: Vec<(Time, HostId, HostId)>,
    pub(super) paths_total: u32,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let state = State::fresh(1, 2, &[11, 12, 13], 2, 2);
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

    pub(super) fn start(&mut self, host: HostId) {
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

    pub(super) fn propose_export(&mut self, host: HostId) {
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

    pub(super) fn give(&mut self, host: HostId, input: Input) {
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
                Effect::Heard(at) => assert!(at <= self.now, "it was asked before"),
                Effect::Ended => process.has_ended = true,
            }
        }
    }

    fn take_notice(&mut self, host: HostId, notice: Notice) {
        let Some(process) = self.processes.get_mut(&host) else {
            return;
        };
        match notice {
            // Made of the effect, which was looked at.
            Notice::Heard(_) => {}
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

    pub(super) fn run_until(&mut self, end: Time) {
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

    pub(super) fn heal(&mut self) {
        for member in 0..MEMBERS {
            self.model.set(self.now, member, Condition::Up);
        }
        self.lost_of_1000 = 0;
    }

    /// Hosts that run and are members, or have not joined yet.
    pub(super) fn check_settled(&self) {
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
