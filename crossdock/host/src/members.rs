//! How a host of an ensemble follows the shared registry: it joins once its
//! nodes serve, opens the sites that it is given and lets go of those that it
//! loses, and takes nodes that come back into the sets that it answers for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crossdock_members::{Change, SITE_SETS, SetRecord};
use crossdock_names::{HostId, NodeId, SetId, SiteId};
use crossdock_site::SiteInput;
use crossdock_types::{Time, WallTime};

use crate::equalize::{Goal, Pair};
use crate::host::{Host, HostEffect};
use crate::mutation::Mutation;
use crate::nodes::{Drain, NodeState};
use crate::sites::ROOT_SITE;

/// When what could not be done is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long a site that is to be opened anew waits for its unstable bytes: what
/// cannot be written by then is lost, and clients are told.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// A site that could not be opened is tried again after this.
pub(crate) const OPENED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A node that is to come into a site's set, its process, and how often the set's homes
/// had been changed.
type Return = (SiteId, NodeId, HostId, u64);

/// A site that takes no requests any more.
#[derive(Clone, Copy)]
struct Closing {
    /// What is not durable by then is lost, and clients are told.
    due: Time,
    /// Who gets it, if not this host.
    to: Option<HostId>,
}

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
    reopened_for: BTreeSet<Return>,
    /// Who has most of what it needs of a site's set.
    copied: BTreeSet<Return>,
    /// Sites that are about to be opened anew, here or by another manager.
    closing: BTreeMap<SiteId, Closing>,
    /// Sites that were given to others, as far as is known: under which epoch, and to whom.
    given_up: BTreeMap<SiteId, (u64, HostId)>,
    /// The shell knows that this manager is to end.
    is_told_to_end: bool,
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

    /// A site is to be given to another manager.
    pub(crate) fn close_for(&mut self, site: SiteId, now: Time, to: HostId) {
        let due = now + CLOSING_PATIENCE;
        let to = Some(to);
        self.closing.entry(site).or_insert(Closing { due, to }).to = to;
    }

    /// A site could not be opened: it takes no requests until that is tried again.
    pub(crate) fn open_again(&mut self, site: SiteId, now: Time) {
        let due = now + OPENED_AGAIN_AFTER;
        self.closing.insert(site, Closing { due, to: None });
        self.later(now);
    }

    /// Whether any site is about to be opened anew.
    pub(crate) fn is_closing_any(&self) -> bool {
        !self.closing.is_empty()
    }

    /// A site is another manager's as soon as the registry says so.
    pub(crate) fn give_up(&mut self, site: SiteId, epoch: u64, to: HostId) {
        self.closing.remove(&site);
        self.given_up.insert(site, (epoch, to));
    }

    /// Who is to have a site that was given up.
    pub(crate) fn given_to(&self, site: SiteId) -> Option<HostId> {
        self.given_up.get(&site).map(|&(_, to)| to)
    }

    /// Whether a site was given up.
    pub(crate) fn is_given_up(&self, site: SiteId) -> bool {
        self.given_up.contains_key(&site)
    }

    /// The connection to a process has ended: its nodes may have missed what they were
    /// to get, and have left sets since. When it is there again they count as come back.
    pub(crate) fn forget_returns(&mut self, host: HostId) {
        self.copied.retain(|back| back.2 != host);
        self.reopened_for.retain(|back| back.2 != host);
    }

    /// Something is to be looked at again after a while.
    pub(crate) fn later(&mut self, now: Time) {
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
        let mut nodes = self.role.nodes.iter();
        if !nodes.all(|&node| self.registry.state().has_node(node)) {
            let what = "the place of this node has been given up, or replaced by a new one";
            return self.effects.push_back(HostEffect::Failed(what.to_owned()));
        }
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
        self.follow_scopes();
        let live = &self.table.hosts.live;
        let replaced: Vec<HostId> = before.hosts.live.difference(live).copied().collect();
        for peer in replaced {
            self.take_disconnected(peer);
        }
        self.tell_exports();
        self.tell_tokens();
        self.tell_policy();
        self.tell_portals();
        self.tell_luns();
        let live = &self.table.hosts.live;
        let is_live = |back: &Return| live.contains(&back.2);
        self.following.copied.retain(is_live);
        self.following.reopened_for.retain(is_live);
        let state = self.registry.state();
        let is_pending =
            |site: &SiteId, (epoch, _): &mut (u64, HostId)| state.site_epoch(*site).0 == *epoch;
        self.following.given_up.retain(is_pending);
        if state
            .hosts
            .get(&self.instance())
            .is_some_and(|own| own.is_retiring)
            && !std::mem::replace(&mut self.following.is_told_to_end, true)
        {
            self.effects.push_back(HostEffect::Retired);
        }
        self.find_lost_sets();
        self.settle_exports(now);
        self.settle_tokens(now);
        self.settle_policy(now);
        self.settle_luns(now);
        self.settle_reservations(now);
        self.tell_obeyed(now);
        self.follow_defrag(now, wall);
        self.settle_addresses(now);
        self.settle_gateways(now);
        self.follow_addresses(now);
        self.release_sites(now, wall);
        self.abort_outdated_pairs();
        self.follow(now, wall);
        self.replace_absent(now);
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
        self.tell_used_sites(now);
        self.reopen_for_returned(now);
        self.hand_over(now, wall);
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
            for node in to_join(&record) {
                if id < SITE_SETS && is_one(self, &record, node) {
                    self.plan_once(SetId(id), &record, node, Goal::Join);
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
            .filter(|site| !self.following.is_given_up(*site))
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
            // Nobody has its log now. Who could not be compared with it is, once it is back.
            self.following.prepared.remove(&site);
            return;
        }
        // A member that cannot be compared: it connects, or is found to be gone.
        let mut members = record.members.iter();
        if !members.all(|&member| self.is_running(NodeId(member))) {
            return self.following.later(now);
        }
        if self.following.prepared.insert(site, epoch) != Some(epoch) {
            self.replicas.forget_made(SetId(set));
            let others = record.members.iter().skip(1).copied();
            let all: BTreeSet<NodeId> = others.map(NodeId).chain(absent(&record)).collect();
            for node in all {
                self.plan_once(SetId(set), &record, node, Goal::Equal);
            }
        }
        if !self.replicas.is_busy_with(SetId(set)) {
            self.open_site(now, site);
        }
    }

    /// The sets of these sites were to be made equal, and have changed before that.
    pub(crate) fn forget_prepared(&mut self, sets: &BTreeSet<SetId>) {
        let sites = &self.registry.state().sites;
        self.following.prepared.retain(|site, _| {
            let record = sites.get(usize::from(site.0));
            record.is_none_or(|(_, set)| !sets.contains(&SetId(*set)))
        });
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
            self.remove_site(id);
            self.following.closing.remove(&id);
        }
    }

    /// A node that came back, or that is a new home, gets its part of a site's set while
    /// the site serves, and what is missing then when the site is opened: that is done
    /// anew, once. A site moves only after its unstable bytes are on disk (CONSISTENCY 6),
    /// so it takes no requests until then.
    fn reopen_for_returned(&mut self, now: Time) {
        let open: Vec<SiteId> = self.sites.keys().copied().collect();
        for id in open {
            let state = self.registry.state();
            let (_, set) = state.sites[usize::from(id.0)];
            let Some(record) = state.sets.get(&set).cloned() else {
                continue;
            };
            // Who is to leave when all homes are there does so when the site is opened.
            let away = absent(&record);
            let leaving = record.leaving().map(NodeId).filter(|_| away.is_empty());
            let leaving: Vec<NodeId> = leaving.collect();
            let back = away.iter().chain(&leaving).filter_map(|&node| {
                let host = *self.table.hosts.nodes.get(&node)?;
                let back = (id, node, host, record.moves);
                let is_new = !self.following.reopened_for.contains(&back);
                (is_new && self.is_running(node)).then_some(back)
            });
            let back: Vec<Return> = back.collect();
            let mut is_copied = true;
            for back in &back {
                if !leaving.contains(&back.1) && !self.following.copied.contains(back) {
                    is_copied = false;
                    self.plan_once(SetId(set), &record, back.1, Goal::Copy);
                }
            }
            if !self
                .sites
                .get(&id)
                .is_some_and(crossdock_site::Site::is_serving)
            {
                if !back.is_empty() {
                    self.following.later(now);
                }
                continue;
            }
            if is_copied && !back.is_empty() && !self.following.is_given_up(id) {
                self.following.reopened_for.extend(back);
                let due = now + CLOSING_PATIENCE;
                let closing = Closing { due, to: None };
                self.following.closing.entry(id).or_insert(closing);
            }
        }
    }

    /// Opens sites anew, here or by others, that have nothing in memory only any more.
    pub(crate) fn close_sites(&mut self, now: Time, wall: WallTime) {
        let skips = self.has(Mutation::ReopenUncommitted);
        for (id, Closing { due, to }) in self.following.closing.clone() {
            let expected = self.registry.state().site_epoch(id).0;
            let Some(site) = self.sites.get_mut(&id) else {
                self.following.closing.remove(&id);
                continue;
            };
            if !site.is_serving() && due > now {
                self.following.later(now);
                continue;
            }
            if !skips {
                site.commit_all(now, wall);
            }
            let is_ready = site.is_committed() || due <= now || skips;
            self.drain_site(id);
            match to.filter(|_| is_ready) {
                Some(to) => self.give_site_up(now, id, to),
                None if is_ready => {
                    let site = id.0;
                    self.propose(Change::RaiseSite { site, expected });
                }
                None => {}
            }
            self.following.later(now);
        }
    }

    /// A node has most of what a site has on its set.
    pub(crate) fn take_copied(&mut self, pair: &Pair) {
        let sites = &self.registry.state().sites;
        let site = sites.iter().position(|(_, set)| *set == pair.set.0);
        let site = site.and_then(|site| u16::try_from(site).ok()).map(SiteId);
        let host = self.table.hosts.nodes.get(&pair.target).copied();
        if let (Some(site), Some(host)) = (site, host) {
            let back = (site, pair.target, host, pair.moves);
            self.following.copied.insert(back);
        }
    }

    /// Whether a site takes no requests any more.
    pub(crate) fn is_closing(&self, site: SiteId) -> bool {
        self.following.closing.contains_key(&site) || self.following.is_given_up(site)
    }

    /// Whether this host is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        let own = self.registry.state().hosts.get(&self.instance());
        self.drain != Drain::Serving || own.is_some_and(|own| own.is_retiring)
    }
}

/// Who belongs to a set and is not in it.
fn absent(record: &SetRecord) -> Vec<NodeId> {
    let home = record.home.iter();
    home.filter(|node| !record.members.contains(node))
        .map(|&node| NodeId(node))
        .collect()
}

/// Who is made equal for the set to become what it is to be: who belongs to it and is
/// not in it, or, if its homes are members already, anybody, so that who belongs to it no
/// more can leave while no change of it is under way.
fn to_join(record: &SetRecord) -> Vec<NodeId> {
    let absent = absent(record);
    if !absent.is_empty() || record.leaving().next().is_none() {
        return absent;
    }
    let others = record.members.iter().skip(1).take(1);
    others.map(|&member| NodeId(member)).collect()
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

    /// Goal: a site is opened anew once for a node of a process, and again if the
    /// connection to that has ended meanwhile; that others are there changes nothing.
    #[test]
    fn a_node_that_was_cut_off_counts_as_come_back() {
        let back = |host| (SiteId(1), NodeId(2), HostId(host), 3);
        let mut following = Following::default();
        following.copied.extend([back(7), back(8)]);
        following.reopened_for.extend([back(7), back(8)]);
        following.forget_returns(HostId(7));
        assert_eq!(following.copied, BTreeSet::from([back(8)]));
        assert_eq!(following.reopened_for, BTreeSet::from([back(8)]));
    }
}
