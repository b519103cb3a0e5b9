//! An etcd cluster of three members, as far as the session sees it: one sequence of
//! revisions, leases, watches, and members that refuse, stand still or come back.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_members::State;
use crossdock_names::HostId;
use crossdock_types::Time;

use crate::session::{Entry, Event, Failure, Reply, Request};

/// How many members there are.
pub(super) const MEMBERS: usize = 3;

/// How long members wait for a leader before they elect another: etcd's default.
const ELECTION: Duration = Duration::from_secs(1);

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    /// Its process is gone: connections are refused.
    Refuses,
    /// It takes everything and answers nothing.
    Hangs,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug)]
enum Happening {
    State,
    Seen(HostId),
    Left(HostId),
    Gone(HostId),
}

pub(super) struct Model {
    pub(super) revision: i64,
    pub(super) conditions: [Condition; MEMBERS],
    /// The revision of the state's key.
    pub(super) state_revision: i64,
    /// Every state that ever was.
    pub(super) states: BTreeMap<i64, Vec<u8>>,
    /// Keys of hosts: under which lease.
    pub(super) hosts: BTreeMap<HostId, i64>,
    /// Those that say that the host ends.
    leaving: BTreeMap<HostId, i64>,
    /// When each host's key went for the last time, or said that it ends.
    pub(super) gone_at: BTreeMap<HostId, Time>,
    leases: BTreeMap<i64, (Duration, Time)>,
    next_lease: i64,
    log: Vec<(i64, Happening)>,
    compacted: i64,
}

impl Model {
    pub(super) fn new(state: &State) -> Self {
        let value = serde_json::to_vec(state).expect("JSON");
        Self {
            revision: 5,
            conditions: [Condition::Up; MEMBERS],
            state_revision: 5,
            states: BTreeMap::from([(5, value)]),
            hosts: BTreeMap::new(),
            leaving: BTreeMap::new(),
            gone_at: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 100,
            log: vec![(5, Happening::State)],
            compacted: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        serde_json::from_slice(&self.states[&self.state_revision]).expect("a state")
    }

    pub(super) fn has_quorum(&self) -> bool {
        let up = self.conditions.iter().filter(|&&one| one == Condition::Up);
        up.count() * 2 > MEMBERS
    }

    /// Whether a member carries out what it is asked.
    pub(super) fn serves(&self, member: usize) -> bool {
        self.conditions[member] == Condition::Up && self.has_quorum()
    }

    /// A member changes. A new leader gives every lease its whole length again, and
    /// the time that an election takes.
    pub(super) fn set(&mut self, now: Time, member: usize, condition: Condition) {
        let had_quorum = self.has_quorum();
        self.conditions[member] = condition;
        if !had_quorum || condition != Condition::Up {
            for (length, until) in self.leases.values_mut() {
                *until = now + *length + ELECTION;
            }
        }
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Ends leases; nothing does without a leader.
    pub(super) fn take_time(&mut self, now: Time) {
        if !self.has_quorum() {
            return;
        }
        let over = self.leases.iter().filter(|(_, (_, until))| *until <= now);
        let over: Vec<i64> = over.map(|(&lease, _)| lease).collect();
        for lease in over {
            self.revoke(now, lease);
        }
    }

    fn revoke(&mut self, now: Time, lease: i64) {
        self.leases.remove(&lease);
        for host in remove_of(&mut self.hosts, lease) {
            self.gone_at.insert(host, now);
            self.happen(Happening::Gone(host));
        }
        for host in remove_of(&mut self.leaving, lease) {
            self.happen(Happening::Gone(host));
        }
    }

    /// Ends the lease of a host that has prolonged it.
    pub(super) fn end_lease_of(&mut self, now: Time, host: HostId) {
        if let Some(&lease) = self.hosts.get(&host) {
            self.revoke(now, lease);
        }
    }

    fn happen(&mut self, happening: Happening) {
        self.revision += 1;
        self.log.push((self.revision, happening));
    }

    /// Carries a request of `host` out.
    pub(super) fn carry_out(
        &mut self,
        now: Time,
        host: HostId,
        request: &Request,
    ) -> Result<Reply, Failure> {
        match request {
            Request::Read => Ok(Reply::Read {
                revision: self.revision,
                state: Some(self.entry(self.state_revision)),
                hosts: self.hosts.keys().copied().collect(),
            }),
            Request::Swap { expected, .. } if *expected != self.state_revision => {
                Ok(Reply::Differs {
                    state: Some(self.entry(self.state_revision)),
                })
            }
            Request::Swap { value, .. } => {
                self.happen(Happening::State);
                self.state_revision = self.revision;
                self.states.insert(self.revision, value.clone());
                Ok(Reply::Swapped {
                    revision: self.revision,
                })
            }
            Request::Grant { ttl_seconds } => {
                let lease = self.next_lease;
                self.next_lease += 1;
                let length = Duration::from_secs(ttl_seconds.unsigned_abs());
                self.leases.insert(lease, (length, now + length));
                Ok(Reply::Granted {
                    lease,
                    ttl_seconds: *ttl_seconds,
                })
            }
            Request::Announce { lease } if self.leases.contains_key(lease) => {
                self.hosts.insert(host, *lease);
                self.happen(Happening::Seen(host));
                Ok(Reply::Announced {
                    revision: self.revision,
                })
            }
            Request::KeepAlive { lease } if self.leases.contains_key(lease) => {
                if let Some((length, until)) = self.leases.get_mut(lease) {
                    *until = now + *length;
                }
                Ok(Reply::Alive)
            }
            Request::Leave { lease } if self.leases.contains_key(lease) => {
                self.hosts.remove(&host);
                self.leaving.insert(host, *lease);
                self.gone_at.insert(host, now);
                self.happen(Happening::Left(host));
                Ok(Reply::Announced {
                    revision: self.revision,
                })
            }
            Request::Announce { .. } | Request::KeepAlive { .. } | Request::Leave { .. } => {
                Err(Failure::LeaseGone)
            }
        }
    }

    /// What a watch that has come to `from` gets, and to where it comes by that.
    pub(super) fn watched(&self, from: i64) -> Result<(Vec<Event>, i64), Failure> {
        if from <= self.compacted {
            return Err(Failure::Compacted);
        }
        let new = self.log.iter().filter(|(revision, _)| *revision >= from);
        let events = new.map(|&(revision, happening)| match happening {
            Happening::State => Event::State(self.entry(revision)),
            Happening::Seen(host) => Event::Seen(host),
            Happening::Left(host) => Event::Left(host),
            Happening::Gone(host) => Event::Gone { host, revision },
        });
        Ok((events.collect(), self.revision + 1))
    }

    fn entry(&self, revision: i64) -> Entry {
        Entry {
            revision,
            value: self.states[&revision].clone(),
        }
    }
}

/// The hosts that have a key under `lease`; it is removed.
fn remove_of(keys: &mut BTreeMap<HostId, i64>, lease: i64) -> Vec<HostId> {
    let of_lease = keys.extract_if(.., |_, of| *of == lease);
    of_lease.map(|(host, _)| host).collect()
}
