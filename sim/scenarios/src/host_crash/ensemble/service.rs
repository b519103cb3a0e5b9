//! The registry that all processes share: linearizable changes, states that
//! reach each process in order but late, and leases that run out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_host::Mutation;
use crossdock_members::{Change, State};
use crossdock_names::HostId;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::shell::nanos;
use super::network::Place;

const DELAY_MAX: Duration = Duration::from_millis(4);

/// A process that is not heard of for so long is believed dead.
const LEASE: Duration = Duration::from_secs(2);

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(250);

/// What a process learns.
pub(super) enum News {
    State(u64, Box<State>),
    Expired(HostId),
    /// It was heard of, and is not believed dead before then.
    Heard(Time),
}

pub(super) struct Service {
    pub(super) state: State,
    /// A fault of the registry's, if one is built in.
    mutation: Option<Mutation>,
    pub(super) revision: u64,
    proposals: VecDeque<(Time, HostId, Change)>,
    feeds: BTreeMap<Place, VecDeque<(Time, News)>>,
    /// Processes that run, and when each was heard last, also those that ended.
    running: BTreeMap<Place, HostId>,
    heard: BTreeMap<HostId, Time>,
    /// Who cannot reach it, until when.
    cut: BTreeMap<Place, Time>,
    tick: Time,
    /// How often somebody was replaced, with all that was in its memory only.
    pub(super) replaced_total: u64,
    /// What was changed, for the history.
    pub(super) told: Vec<String>,
}

impl Service {
    pub(super) const fn new(state: State, mutation: Option<Mutation>) -> Self {
        Self {
            state,
            mutation,
            revision: 1,
            proposals: VecDeque::new(),
            feeds: BTreeMap::new(),
            running: BTreeMap::new(),
            heard: BTreeMap::new(),
            cut: BTreeMap::new(),
            tick: Time(0),
            replaced_total: 0,
            told: Vec::new(),
        }
    }

    pub(super) fn starts(&mut self, now: Time, place: Place, host: HostId) {
        self.feeds.insert(place, VecDeque::new());
        self.running.insert(place, host);
        self.heard.insert(host, now);
    }

    pub(super) fn ends(&mut self, place: Place) {
        self.feeds.remove(&place);
        self.running.remove(&place);
    }

    pub(super) fn cut(&mut self, now: Time, place: Place, length: Duration) {
        self.cut.insert(place, now + length);
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(super) fn propose(&mut self, now: Time, place: Place, change: Change, random: &mut Random) {
        let Some(&host) = self.running.get(&place) else {
            return;
        };
        let reachable = self.cut.get(&place).map_or(now, |until| now.max(*until));
        let due = reachable + Duration::from_nanos(random.below(nanos(DELAY_MAX)));
        self.proposals.push_back((due, host, change));
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        let proposals = self.proposals.iter().map(|(due, ..)| *due);
        let feeds = self.feeds.values().filter_map(|feed| Some(feed.front()?.0));
        proposals.chain(feeds).chain([self.tick]).min()
    }

    /// Carries out what is due; then what a process learns by now.
    pub(super) fn next(&mut self, now: Time, random: &mut Random) -> Option<(Place, News)> {
        while let Some(at) = self.proposals.iter().position(|(due, ..)| *due <= now) {
            if let Some((_, host, change)) = self.proposals.remove(at) {
                self.carry_out(now, host, change, random);
            }
        }
        if self.tick <= now {
            self.tick = now + TICK;
            self.expire(now, random);
        }
        let due = |feed: &VecDeque<(Time, News)>| feed.front().is_some_and(|(due, _)| *due <= now);
        let (&place, _) = self.feeds.iter().find(|(_, feed)| due(feed))?;
        let (_, news) = self.feeds.get_mut(&place)?.pop_front()?;
        Some((place, news))
    }

    fn carry_out(&mut self, now: Time, host: HostId, change: Change, random: &mut Random) {
        let line = format!("{host}: {change:?}");
        self.replaced_total +=
            u64::from(matches!(change, Change::Leave { .. } | Change::Join { .. }));
        let joins = matches!(change, Change::Join { .. });
        let keeps = joins && self.mutation == Some(Mutation::KeepRestarted);
        let sets = keeps.then(|| self.state.sets.clone());
        let leaves = matches!(change, Change::Leave { .. });
        let moves = matches!(change, Change::Place(_) | Change::Join { .. });
        match self.state.apply_by(host, change) {
            Ok(()) => {
                if let Some(sets) = sets {
                    self.state.sets = sets;
                }
                if leaves && self.mutation == Some(Mutation::CachedSet) {
                    self.restore_homes();
                }
                if moves && self.mutation == Some(Mutation::DropBeforeEqual) {
                    self.drop_old_homes();
                }
                self.revision += 1;
                self.told
                    .push(format!("registry {}: {line}", self.revision));
                let (revision, state) = (self.revision, self.state.clone());
                self.spread(now, random, || {
                    News::State(revision, Box::new(state.clone()))
                });
            }
            Err(conflict) => self.told.push(format!("registry: {line}: {conflict}")),
        }
    }

    /// A fault: who takes a site over puts in its set whom it remembers there.
    fn restore_homes(&mut self) {
        let of_sites = self.state.sites.iter().map(|(_, set)| *set);
        for set in of_sites.collect::<Vec<u32>>() {
            if let Some(set) = self.state.sets.get_mut(&set)
                && set.members != set.home
            {
                set.members = set.home.clone();
                set.epoch += 1;
            }
        }
    }

    /// A fault: who is to leave a set leaves it, and who is to come is in it at once.
    fn drop_old_homes(&mut self) {
        for set in self.state.sets.values_mut() {
            if set.leaving().next().is_some() {
                set.members = set.home.clone();
                set.epoch += 1;
            }
        }
    }

    fn spread(&mut self, now: Time, random: &mut Random, news: impl Fn() -> News) {
        for (&place, feed) in &mut self.feeds {
            let reachable = self.cut.get(&place).map_or(now, |until| now.max(*until));
            let due = reachable + Duration::from_nanos(random.below(nanos(DELAY_MAX)));
            let due = feed.back().map_or(due, |last| last.0.max(due));
            feed.push_back((due, news()));
        }
    }

    fn expire(&mut self, now: Time, random: &mut Random) {
        self.cut.retain(|_, until| *until > now);
        for (place, host) in &self.running {
            if !self.cut.contains_key(place) {
                self.heard.insert(*host, now);
                if let Some(feed) = self.feeds.get_mut(place) {
                    let due = feed.back().map_or(now, |last| last.0.max(now));
                    feed.push_back((due, News::Heard(now + LEASE)));
                }
            }
        }
        let known: Vec<u64> = self.state.hosts.keys().copied().collect();
        for host in known {
            let heard = self.heard.get(&HostId(host));
            if heard.is_none_or(|heard| now.since(*heard) >= LEASE) {
                self.spread(now, random, || News::Expired(HostId(host)));
            }
        }
    }
}
