//! Which hosts are heard of, and when one that is not counts as gone.
//!
//! A host that says that it ends is reported at once. One whose key goes while this one
//! watches has lost its lease, and has [`GRACE`] to show that it lives. One whose key is
//! merely not there is given the length of a lease, and so is everybody after each read:
//! when etcd comes back, all have to be heard again first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_members::State;
use crossdock_names::HostId;
use crossdock_types::Time;

use super::{Effect, Session};
use crate::api::Notice;

/// How long a host that lost its lease has for another one. Before 3.5.13 and 3.4.31 etcd
/// ends the leases of all hosts when a member that stood still takes itself for the leader
/// (etcd's pull request 16822): those who live have another after three requests.
pub(super) const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Hosts {
    ttl: Duration,
    present: BTreeSet<HostId>,
    /// Members that are not present, and when to say so.
    absent: BTreeMap<HostId, Time>,
    /// Nobody is reported before.
    quiet_until: Time,
}

impl Hosts {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            present: BTreeSet::new(),
            absent: BTreeMap::new(),
            quiet_until: Time(0),
        }
    }

    /// All that are present.
    pub(super) fn read(&mut self, now: Time, hosts: Vec<HostId>) {
        self.present = hosts.into_iter().collect();
        self.absent.clear();
        self.quiet_until = now + self.ttl;
    }

    pub(super) fn see(&mut self, host: HostId) {
        self.present.insert(host);
    }

    pub(super) fn lose(&mut self, now: Time, host: HostId) {
        // One that has said that it ends is due already.
        if self.present.remove(&host) {
            let due = self.quiet_until.max(now + GRACE);
            self.absent.insert(host, due);
        }
    }

    pub(super) fn leave(&mut self, now: Time, host: HostId) {
        self.present.remove(&host);
        self.absent.insert(host, now.max(self.quiet_until));
    }

    /// Finds out who of the members is absent.
    pub(super) fn compare(&mut self, now: Time, own: HostId, state: &State) {
        let is_member = |host: &HostId| state.hosts.contains_key(&host.0);
        let present = &self.present;
        self.absent
            .retain(|host, _| is_member(host) && !present.contains(host));
        for &host in state.hosts.keys() {
            let host = HostId(host);
            if host != own && !self.present.contains(&host) {
                self.absent.entry(host).or_insert(now + self.ttl);
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.absent.values().min().copied()
    }

    /// Who is to be reported now; again after a while.
    fn expired(&mut self, now: Time) -> Vec<HostId> {
        let mut expired = Vec::new();
        for (&host, due) in &mut self.absent {
            if *due <= now {
                *due = now + self.ttl;
                expired.push(host);
            }
        }
        expired
    }
}

impl Session {
    pub(super) fn report_expired(&mut self, now: Time) {
        for host in self.hosts.expired(now) {
            self.effects
                .push_back(Effect::Notice(Notice::Expired(host)));
        }
    }
}
