//! How a host of an ensemble follows the shared registry: it joins once its
//! nodes serve, opens the sites that it is given and lets go of those that it
//! loses, and takes nodes that come back into the sets that it answers for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crossdock_members::{Change, SITE_SETS, SetRecord};
use crossdock_names::{HostId, NodeId, SetId, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_site::SiteInput;
use crossdock_types::{Time, WallTime};

use crate::host::{Host, HostEffect};
use crate::mutation::Mutation;
use crate::nodes::NodeState;
use crate::sites::ROOT_SITE;

/// When what could not be done is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long a site that is to be opened anew waits for its unstable bytes: what
/// cannot be written by then is lost, and clients are told.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// What the host wants and does not have yet.
#[derive(Default)]
pub(crate) struct Following {
    /// Whether the shared registry has known this host.
    pub(crate) has_joined: bool,
    is_joining: bool,
    /// Sites that somebody has asked for.
    wanted: BTreeSet<SiteId>,
    /// Sites whose members are being made equal, or are, and under which epoch.
    prepared: BTreeMap<SiteId, u64>,
    /// For whose sake a site was opened anew.
    reopened_for: BTreeSet<(SiteId, NodeId, HostId)>,
    /// Sites that are about to be opened anew, at the latest then.
    closing: BTreeMap<SiteId, Time>,
    /// Something that [`Host::follow`] waits for has come.
    is_wanted: bool,
    /// Something failed that is to be tried again after a while, not at once.
    has_failed: bool,
    again_due: Option<Time>,
}

impl Following {
    /// Who has no nodes to wait for joins at once.
    pub(crate) fn new(is_shared: bool) -> Self {
        Self {
            is_wanted: is_shared,
            ..Self::default()
        }
    }

    /// Something that it waits for has come.
    pub(crate) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Something failed: it is tried again after a while.
    pub(crate) const fn fail(&mut self) {
        self.has_failed = true;
    }

    /// When something is tried again.
    pub(crate) const fn again_due(&self) -> Option<Time> {
        self.again_due
    }

    /// The time has come, or not yet.
    pub(crate) fn wake(&mut self, now: Time) {
        self.is_wanted |= self.again_due.is_some_and(|due| due <= now);
    }

    /// Whether to go on now; what failed just now is for later.
    pub(crate) fn takes_turn(&mut self, now: Time) -> bool {
        if std::mem::take(&mut self.has_failed) {
            self.later(now);
        }
        std::mem::take(&mut self.is_wanted)
    }

    fn later(&mut self, now: Time) {
        self.again_due.get_or_insert(now + AGAIN_AFTER);
    }
}

impl Host {
    /// Whether this host is the one that serves `site`.
    pub(crate) fn serves(&self, site: SiteId) -> bool {
        !self.registry.is_shared()
            || self.registry.state().owners.get(&site.0) == Some(&self.instance())
    }

    /// A host has not been heard of: it is replaced, whether it lives or not.
    pub(crate) fn propose_leave(&mut self, host: HostId) {
        if self.registry.state().hosts.contains_key(&host.0) {
            self.propose(Change::Leave { host: host.0 });
        }
    }

    /// The registry has changed.
    pub(crate) fn take_state(&mut self, now: Time, wall: WallTime) {
        let knows_us = self.registry.state().hosts.contains_key(&self.instance());
        if self.following.has_joined && !knows_us {
            self.sites.clear();
            self.follow_addresses(now);
            let what = "this host has been replaced by others; it has to start anew";
            return self.effects.push_back(HostEffect::Failed(what.to_owned()));
        }
        self.following.has_joined |= knows_us;
        let before = Arc::clone(&self.table);
        self.spread_table();
        self.follow_access();
        let live = &self.table.hosts.live;
        let replaced: Vec<HostId> = before.hosts.live.difference(live).copied().collect();
        for peer in replaced {
            self.take_disconnected(peer);
        }
        let exports = crate::exports::exports(self.registry.state());
        self.queue
            .push_back(crate::message::Message::Door(NfsInput::Exports(exports)));
        self.settle_exports(now);
        self.settle_addresses(now);
        self.settle_gateways(now);
        self.follow_addresses(now);
        self.release_sites(now, wall);
        self.abort_outdated_pairs();
        self.follow(now, wall);
        self.carry_early();
    }

    /// Does what the registry's state, and who can be reached, allow.
    pub(crate) fn follow(&mut self, now: Time, wall: WallTime) {
        self.following.again_due = None;
        if !self.registry.is_shared() {
            return;
        }
        if !self.following.has_joined {
            return self.join();
        }
        // Data sets whose primary is here take back who belongs to them.
        self.plan_returns(|host, record, _| {
            let first = record.members.first();
            first.is_some_and(|&first| host.nodes.contains_key(&NodeId(first)))
        });
        for site in self.sites_to_open() {
            self.prepare_site(now, site);
        }
        self.reopen_for_returned(now, wall);
    }

    /// Remembers that somebody asks for a site that is not open.
    pub(crate) fn want_site(&mut self, site: SiteId) {
        if self.following.wanted.insert(site) {
            self.following.want();
        }
    }

    /// Changes the registry, or sends the change on its way; whether that was
    /// possible. If not, the host cannot go on.
    pub(crate) fn propose(&mut self, change: Change) -> bool {
        let changed = self.change(change);
        let is_changed = changed.is_ok();
        self.effects.extend(changed.err().map(HostEffect::Failed));
        is_changed
    }

    /// The same for an administrator, who is told why not.
    pub(crate) fn change(&mut self, change: Change) -> Result<(), String> {
        self.registry
            .change(change)
            .map_err(|error| format!("cannot write the registry: {error}"))
    }

    /// A node is known to others once it can answer, and once the leases have ended
    /// that an earlier process of it may have given.
    fn join(&mut self) {
        if self.role.takes_addresses {
            self.leases.begin_once();
        }
        self.following.again_due = self.leases.waits_until();
        if self.following.again_due.is_some() {
            return;
        }
        let mut nodes = self.nodes.values();
        if nodes.all(|slot| slot.state == NodeState::Running) && !self.following.is_joining {
            self.following.is_joining = true;
            let (host, record) = (self.instance(), self.role.clone());
            self.propose(Change::Join { host, record });
        }
    }

    /// Plans that nodes come back into the data sets that they had to leave, where
    /// `is_one` says so. (Sets of sites take them back when the site is opened.)
    pub(crate) fn plan_returns(&mut self, is_one: impl Fn(&Self, &SetRecord, NodeId) -> bool) {
        for (id, record) in self.registry.state().sets.clone() {
            for node in absent(&record) {
                if id < SITE_SETS && is_one(self, &record, node) {
                    self.plan_once(SetId(id), &record, node, false);
                }
            }
        }
    }

    fn sites_to_open(&self) -> Vec<SiteId> {
        let state = self.registry.state();
        let ours = state
            .owners
            .iter()
            .filter(|(_, owner)| **owner == self.instance());
        let is_used = |site: &SiteId| {
            *site == ROOT_SITE
                || state.opened_sites.contains(&site.0)
                || self.following.wanted.contains(site)
        };
        ours.map(|(&site, _)| SiteId(site))
            .filter(|site| is_used(site) && !self.sites.contains_key(site))
            .collect()
    }

    /// Has the members of a site's set made equal, then opens the site.
    fn prepare_site(&mut self, now: Time, site: SiteId) {
        let state = self.registry.state();
        let (epoch, set) = state.sites[usize::from(site.0)];
        let Some(record) = state.sets.get(&set).cloned() else {
            return;
        };
        let source = record.members.first().map(|&first| NodeId(first));
        if !source.is_some_and(|source| self.is_running(source)) {
            return; // Nobody has its log now.
        }
        if self.following.prepared.insert(site, epoch) != Some(epoch) {
            for &node in &record.home {
                if record.members.first() != Some(&node) {
                    let is_member = record.members.contains(&node);
                    self.plan_once(SetId(set), &record, NodeId(node), is_member);
                }
            }
        }
        if !self.replicas.is_busy_with(SetId(set)) {
            self.open_site(now, site);
        }
    }

    /// Lets go of sites that have another owner, or the same one anew.
    fn release_sites(&mut self, now: Time, wall: WallTime) {
        let state = self.registry.state();
        let is_lost = |id: &SiteId| {
            let epoch = self.sites.get(id).map(crossdock_site::Site::epoch);
            !self.serves(*id) || epoch != Some(state.site_epoch(*id))
        };
        let lost: Vec<SiteId> = self.sites.keys().copied().filter(is_lost).collect();
        for id in lost {
            let table = SiteInput::Table(Arc::clone(&self.table));
            if let Some(site) = self.sites.get_mut(&id) {
                site.handle(now, wall, table);
            }
            self.drain_site(id);
            self.withdraw_answers(id);
            self.sites.remove(&id);
            self.following.closing.remove(&id);
        }
    }

    /// A node that came back gets its part of a site's log when the site is
    /// opened: that is done anew, once. A site moves only after its unstable
    /// bytes are on disk (CONSISTENCY 6), so it takes no requests until then.
    fn reopen_for_returned(&mut self, now: Time, wall: WallTime) {
        let open: Vec<SiteId> = self.sites.keys().copied().collect();
        let skips = self.has(Mutation::ReopenUncommitted);
        for id in open {
            let state = self.registry.state();
            let (expected, set) = state.sites[usize::from(id.0)];
            let Some(record) = state.sets.get(&set) else {
                continue;
            };
            let back = absent(record).into_iter().find_map(|node| {
                let host = *self.table.hosts.nodes.get(&node)?;
                self.is_running(node).then_some((id, node, host))
            });
            let Some(site) = self.sites.get_mut(&id).filter(|site| site.is_serving()) else {
                continue;
            };
            if let Some(back) = back
                && self.following.reopened_for.insert(back)
            {
                self.following.closing.insert(id, now + CLOSING_PATIENCE);
            }
            if let Some(&due) = self.following.closing.get(&id) {
                if !skips {
                    site.commit_all(now, wall);
                }
                if site.is_committed() || due <= now || skips {
                    let site = id.0;
                    self.propose(Change::RaiseSite { site, expected });
                }
                self.drain_site(id);
                self.following.later(now);
            }
        }
    }

    /// Whether a site takes no requests any more.
    pub(crate) fn is_closing(&self, site: SiteId) -> bool {
        self.following.closing.contains_key(&site)
    }
}

/// Who belongs to a set and is not in it.
fn absent(record: &SetRecord) -> Vec<NodeId> {
    let home = record.home.iter();
    home.filter(|node| !record.members.contains(node))
        .map(|&node| NodeId(node))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what failed is tried again after its pause, not at the next input;
    /// what has come for something else is acted on at once.
    #[test]
    fn what_failed_is_tried_again_after_a_pause() {
        let mut following = Following::default();
        let begun = Time::from_secs(1);
        following.fail();
        assert!(!following.takes_turn(begun));
        let due = begun + AGAIN_AFTER;
        assert_eq!(following.again_due(), Some(due));
        following.wake(begun);
        assert!(!following.takes_turn(begun), "an input comes meanwhile");
        following.want();
        assert!(following.takes_turn(begun));
        following.wake(due);
        assert!(following.takes_turn(due));
    }
}
