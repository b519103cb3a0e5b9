//! What one host does at the registry: which endpoint it talks to, what it reads
//! and watches, how its lease and its proposals fare, whom it declares gone.
//!
//! No I/O and no clock here. The shell feeds [`Input`]s with the current time,
//! carries out [`Effect`]s in order, and calls back at [`Session::poll_timeout`].
//!
//! There is one connection at a time. Each begins with a read of everything through
//! consensus, and a watch from the revision of that read on: so nothing is missed
//! between connections, whatever etcd has forgotten meanwhile. Whatever fails, or is
//! not answered within [`PATIENCE`], ends the connection, and the next endpoint is tried.

mod hosts;
mod lease;
mod proposals;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_members::{Change, State};
use crossdock_names::HostId;
use crossdock_types::Time;

use crate::api::Notice;
use hosts::Hosts;
use lease::Lease;
use proposals::Proposals;

/// How long any request may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// A connection that lasted so long has shown that its endpoint is well.
const STEADY_AFTER: Duration = Duration::from_secs(1);
/// Pause before the endpoints are tried again, after all of them have failed.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The pause doubles up to this. Much less than a lease lasts: when etcd comes back,
/// every host has to be heard of before its lease ends.
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// Longest reason of an endpoint that is kept, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// The value of the state's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Revision of etcd at which it was written.
    pub(crate) revision: i64,
    /// JSON.
    pub(crate) value: Vec<u8>,
}

/// What etcd is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// State and hosts, of one moment.
    Read,
    /// Writes the state if its key is still of revision `expected`.
    Swap { expected: i64, value: Vec<u8> },
    /// A lease.
    Grant { ttl_seconds: i64 },
    /// Writes this host's key under the lease.
    Announce { lease: i64 },
    /// Prolongs the lease.
    KeepAlive { lease: i64 },
    /// Says in this host's key that it ends.
    Leave { lease: i64 },
}

/// What etcd answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To a [`Request::Read`].
    Read {
        /// Of etcd, at that moment.
        revision: i64,
        state: Option<Entry>,
        hosts: Vec<HostId>,
    },
    /// The state was written, at this revision.
    Swapped { revision: i64 },
    /// It was not, because this is there.
    Differs { state: Option<Entry> },
    /// A lease, and for how long.
    Granted { lease: i64, ttl_seconds: i64 },
    /// The host's key was written, at this revision.
    Announced { revision: i64 },
    /// The lease goes on.
    Alive,
}

/// A change that was watched.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new state.
    State(Entry),
    /// The ensemble was removed.
    StateGone,
    /// A host's key was written.
    Seen(HostId),
    /// It says that the host ends.
    Left(HostId),
    /// It was removed: its lease has ended.
    Gone { host: HostId, revision: i64 },
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The endpoint cannot do it, for this reason.
    Away(String),
    /// The lease is not known any more.
    LeaseGone,
    /// What was to be watched is forgotten.
    Compacted,
}

/// What the session is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// A change to be carried out.
    Propose(Change),
    /// What came of [`Effect::Send`].
    Answer {
        id: u64,
        result: Result<Reply, Failure>,
    },
    /// Changes, or the end of [`Effect::Watch`].
    Watched {
        connection: u64,
        result: Result<Vec<Event>, Failure>,
    },
    /// This host ends.
    Leave,
    /// The time of [`Session::poll_timeout`] has come.
    Timeout,
}

/// What the session wants done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Drop the connection that was, with all that is on its way; go to this endpoint.
    Connect { endpoint: usize },
    /// Send a request over the connection.
    Send { id: u64, request: Request },
    /// Watch over the connection, from this revision on.
    Watch { connection: u64, from: i64 },
    /// Tell the host.
    Notice(Notice),
    /// Tell the host that the registry has heard of it, by a question of that time.
    Heard(Time),
    /// All is done: the session has ended.
    Ended,
}

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none; the next one is made then.
    Pausing(Time),
    /// The read is not answered yet.
    Reading,
    /// All is known, and watched.
    Following,
    /// It says that it ends; at the latest then all does.
    Leaving(Time),
    /// Over.
    Ended,
}

/// One host's session with the registry.
pub(crate) struct Session {
    host: HostId,
    effects: VecDeque<Effect>,

    // The connection.
    stage: Stage,
    endpoint: usize,
    connection: u64,
    connected_at: Time,
    /// Requests without an answer, and when they are given up. Numbers are never
    /// used again: what is not here is of an earlier connection.
    asked: BTreeMap<u64, (Request, Time)>,
    next_id: u64,
    /// When the watch has to have begun.
    watch_due: Option<Time>,

    // How the endpoints fare: the last reason of each, and failures in a row.
    reasons: Vec<(String, Option<String>)>,
    failures: u32,
    is_away: bool,

    // The state as this host knows it, and the revision of its key.
    state: State,
    revision: i64,
    /// Whether a state has had this host in it.
    was_member: bool,

    lease: Lease,
    hosts: Hosts,
    proposals: Proposals,
}

impl Session {
    /// A session that knows `state`, of `revision`. It connects at once.
    ///
    /// `endpoints` are their names, for messages; not empty.
    pub(crate) fn new(
        now: Time,
        endpoints: Vec<String>,
        host: HostId,
        ttl: Duration,
        revision: i64,
        state: State,
    ) -> Self {
        // Hosts begin at different endpoints, so that load is even.
        let first = usize::try_from(host.0 % endpoints.len() as u64).unwrap_or(0);
        let mut session = Self {
            host,
            effects: VecDeque::new(),
            stage: Stage::Pausing(now),
            endpoint: first,
            connection: 0,
            connected_at: now,
            asked: BTreeMap::new(),
            next_id: 0,
            watch_due: None,
            reasons: endpoints.into_iter().map(|name| (name, None)).collect(),
            failures: 0,
            is_away: false,
            was_member: state.hosts.contains_key(&host.0),
            state,
            revision,
            lease: Lease::new(ttl),
            hosts: Hosts::new(ttl),
            proposals: Proposals::default(),
        };
        session.connect(now);
        session
    }

    /// Takes an input.
    pub(crate) fn handle(&mut self, now: Time, input: Input) {
        if self.stage == Stage::Ended {
            return;
        }
        match input {
            Input::Propose(change) => self.proposals.add(change),
            Input::Answer { id, result } => {
                // One of an earlier connection is of no interest.
                if let Some((request, _)) = self.asked.remove(&id) {
                    self.take_answer(now, &request, result);
                }
            }
            Input::Watched { connection, result } => {
                if connection == self.connection && self.stage == Stage::Following {
                    self.take_watched(now, result);
                }
            }
            Input::Leave => self.leave(now),
            Input::Timeout => {}
        }
        self.take_time(now);
        self.go_on(now);
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Input::Timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let of_stage = match self.stage {
            Stage::Ended => return None,
            Stage::Pausing(due) | Stage::Leaving(due) => Some(due),
            Stage::Reading => None,
            Stage::Following => {
                let lease = self.lease.due().filter(|_| !self.is_replaced());
                lease.into_iter().chain(self.hosts.next_due()).min()
            }
        };
        let asked = self.asked.values().map(|(_, due)| *due);
        asked.chain(of_stage).chain(self.watch_due).min()
    }

    fn take_time(&mut self, now: Time) {
        match self.stage {
            Stage::Pausing(due) if due <= now => return self.connect(now),
            Stage::Leaving(due) if due <= now => return self.end(),
            _ => {}
        }
        let is_late = self.asked.values().any(|(_, due)| *due <= now);
        if is_late || self.watch_due.is_some_and(|due| due <= now) {
            let patience = PATIENCE.as_secs_f32();
            self.fail(now, format!("no answer within {patience} s"));
        }
    }

    /// Does what is to be done while all is well.
    fn go_on(&mut self, now: Time) {
        if self.stage == Stage::Following {
            self.keep_lease(now);
            self.send_proposals(now);
            self.hosts.compare(now, self.host, &self.state);
            self.report_expired(now);
            if self.is_heard_of() && self.proposals.is_empty() {
                self.take_success();
            }
        }
    }

    fn take_answer(&mut self, now: Time, request: &Request, result: Result<Reply, Failure>) {
        if matches!(self.stage, Stage::Leaving(_)) {
            return self.end(); // Whatever it was: the lease ends by itself, too.
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(Failure::LeaseGone) => return self.lose_lease(now),
            Err(Failure::Away(reason)) => return self.fail(now, reason),
            Err(Failure::Compacted) => return self.read(now),
        };
        match (request, reply) {
            (
                Request::Read,
                Reply::Read {
                    revision,
                    state,
                    hosts,
                },
            ) => {
                self.take_read(now, revision, state, hosts);
            }
            (Request::Swap { .. }, Reply::Swapped { revision }) => self.take_swapped(revision),
            (Request::Swap { .. }, Reply::Differs { state }) => self.take_differing(now, state),
            (Request::Grant { .. }, Reply::Granted { lease, ttl_seconds }) => {
                self.lease.grant(now, lease, ttl_seconds);
            }
            (Request::Announce { .. }, Reply::Announced { revision }) => {
                self.lease.announce(revision);
            }
            (Request::KeepAlive { .. }, Reply::Alive) => {
                self.effects
                    .extend(self.lease.asked_at().map(Effect::Heard));
                self.lease.prolong(now);
            }
            (request, reply) => self.fail(now, format!("{reply:?} in answer to {request:?}")),
        }
    }

    fn take_watched(&mut self, now: Time, result: Result<Vec<Event>, Failure>) {
        self.watch_due = None;
        match result {
            Ok(events) => {
                for event in events {
                    self.take_event(now, event);
                }
            }
            // Changed so often meanwhile that etcd has forgotten: all is read anew.
            Err(Failure::Compacted) => self.read(now),
            Err(Failure::Away(reason)) => self.fail(now, reason),
            Err(Failure::LeaseGone) => self.fail(now, "a watch has no lease".to_owned()),
        }
    }

    fn take_event(&mut self, now: Time, event: Event) {
        if self.stage != Stage::Following {
            return; // An event before this one has ended the connection.
        }
        match event {
            Event::State(entry) => self.take_entry(now, &entry),
            Event::StateGone => self.fail(now, missing()),
            Event::Seen(host) => self.hosts.see(host),
            Event::Gone { host, revision } if host == self.host => {
                // That of an earlier lease may be heard of after the new one is there.
                if self.lease.is_announced_before(revision) {
                    self.lose_lease(now);
                }
            }
            Event::Gone { host, .. } => self.hosts.lose(now, host),
            Event::Left(host) => self.hosts.leave(now, host),
        }
    }

    fn take_read(&mut self, now: Time, revision: i64, state: Option<Entry>, hosts: Vec<HostId>) {
        let Some(entry) = state else {
            return self.fail(now, missing());
        };
        if entry.revision < self.revision {
            let (old, known) = (entry.revision, self.revision);
            let what = format!("revision {old} where {known} was known: the data is a copy");
            return self.fail(now, what);
        }
        self.stage = Stage::Following;
        self.take_entry(now, &entry);
        if self.stage != Stage::Following {
            return;
        }
        if !hosts.contains(&self.host) {
            self.lease.forget_announcement();
        }
        self.hosts.read(now, hosts);
        self.lease.check();
        self.watch_due = Some(now + PATIENCE);
        self.effects.push_back(Effect::Watch {
            connection: self.connection,
            from: revision + 1,
        });
    }

    /// Takes a later state and tells the host.
    fn take_entry(&mut self, now: Time, entry: &Entry) {
        if entry.revision <= self.revision {
            return;
        }
        match serde_json::from_slice(&entry.value) {
            Ok(state) => self.take_state(entry.revision, state),
            Err(error) => self.fail(now, format!("the state cannot be read: {error}")),
        }
    }

    fn take_state(&mut self, revision: i64, state: State) {
        self.was_member |= state.hosts.contains_key(&self.host.0);
        self.revision = revision;
        self.state = state.clone();
        self.effects.push_back(Effect::Notice(Notice::State {
            revision: revision.unsigned_abs(),
            state: Box::new(state),
        }));
    }

    /// Others have taken this host's place: it is not to be heard of any more.
    fn is_replaced(&self) -> bool {
        self.was_member && !self.state.hosts.contains_key(&self.host.0)
    }

    fn ask(&mut self, now: Time, request: Request) {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(id, (request.clone(), now + PATIENCE));
        self.effects.push_back(Effect::Send { id, request });
    }

    fn connect(&mut self, now: Time) {
        self.connected_at = now;
        let endpoint = self.endpoint;
        self.effects.push_back(Effect::Connect { endpoint });
        self.read(now);
    }

    /// Begins anew with reading, over the same connection.
    fn read(&mut self, now: Time) {
        self.connection += 1;
        self.forget_asked();
        self.stage = Stage::Reading;
        self.ask(now, Request::Read);
    }

    /// What was asked may have been done, or be done later: whatever it was, the
    /// read that comes next shows what became of it.
    fn forget_asked(&mut self) {
        self.asked.clear();
        self.watch_due = None;
        self.proposals.forget_sent();
        self.lease.forget_asked();
    }

    /// Gives the connection up, for this reason.
    fn fail(&mut self, now: Time, mut reason: String) {
        if matches!(self.stage, Stage::Leaving(_)) {
            return self.end();
        }
        let count = u32::try_from(self.reasons.len()).unwrap_or(u32::MAX);
        if self.stage == Stage::Following && now.since(self.connected_at) >= STEADY_AFTER {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let cut = reason.floor_char_boundary(REASON_BYTES_MAX);
        reason.truncate(cut);
        self.reasons[self.endpoint].1 = Some(reason);
        self.forget_asked();
        self.endpoint = (self.endpoint + 1) % self.reasons.len();
        // All of them are tried in a row, then there is a pause.
        let pause = match self.failures.div_ceil(count) {
            _ if !self.failures.is_multiple_of(count) => Duration::ZERO,
            rounds => PAUSE_MAX.min(PAUSE_MIN * (1 << (rounds - 1).min(8))),
        };
        self.stage = Stage::Pausing(now + pause);
        if self.failures >= count && !self.is_away {
            self.is_away = true;
            let notice = Notice::Away(self.reasons());
            self.effects.push_back(Effect::Notice(notice));
        }
        if pause.is_zero() {
            self.connect(now);
        }
    }

    /// etcd has carried out what this host needs of it.
    fn take_success(&mut self) {
        if self.is_away {
            self.is_away = false;
            self.effects.push_back(Effect::Notice(Notice::Back));
        }
    }

    fn reasons(&self) -> String {
        let of_each = self.reasons.iter().filter_map(|(name, reason)| {
            let reason = reason.as_ref()?;
            Some(format!("{name}: {reason}"))
        });
        of_each.collect::<Vec<_>>().join("; ")
    }

    fn leave(&mut self, now: Time) {
        if matches!(self.stage, Stage::Leaving(_)) {
            return;
        }
        let is_connected = matches!(self.stage, Stage::Following | Stage::Reading);
        self.forget_asked();
        match self.lease.id() {
            Some(lease) if is_connected => {
                self.stage = Stage::Leaving(now + PATIENCE);
                self.ask(now, Request::Leave { lease });
            }
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Ended;
        self.asked.clear();
        self.effects.push_back(Effect::Ended);
    }
}

fn missing() -> String {
    "the ensemble's key is not there any more".to_owned()
}
