//! Sites that a manager gives to others while it lives: its share, to one that has
//! joined; all of them, before it ends.
//!
//! Whoever gives a site up is the first to know: it takes no requests for it from then
//! on, makes durable what is not (CONSISTENCY 6), and shows nothing of it any more once
//! it has proposed the change. So no lease of its stands in the way of the successor
//! (docs/decisions/0019: what a live host is to lose, it has to give up itself first).

use std::collections::BTreeMap;

use crossdock_members::{Change, SiteLoad};
use crossdock_names::{HostId, SiteId};
use crossdock_types::{Time, WallTime};

use crate::host::Host;

impl Host {
    /// Gives sites to managers that have fewer, as long as this one has more than its
    /// share. Open ones go one after the other, unless the manager is about to end.
    pub(crate) fn hand_over(&mut self, now: Time, wall: WallTime) {
        if !self.role.is_manager {
            return;
        }
        let mut idle: BTreeMap<HostId, Vec<SiteId>> = BTreeMap::new();
        for site in self.surplus() {
            let Some(to) = self.next_manager(site) else {
                break;
            };
            if !self.sites.contains_key(&site) {
                if self.prepare_to_give_up(now, site, to) {
                    idle.entry(to).or_default().push(site);
                }
            } else if self.is_ending() || !self.following.is_closing_any() {
                self.following.close_for(site, now, to);
            }
        }
        for (to, sites) in idle {
            self.propose_move(&sites, to);
        }
        self.close_sites(now, wall);
    }

    /// Proposes that `to` has the site; nothing of it is shown here any more.
    pub(crate) fn give_site_up(&mut self, now: Time, site: SiteId, to: HostId) {
        if self.prepare_to_give_up(now, site, to) {
            self.propose_move(&[site], to);
        }
    }

    /// From now on nothing of the site is done or shown here; whether it can be proposed
    /// that `to` has it. Not before the last copy has been answered that was made for its
    /// set: it could land after the successor's.
    fn prepare_to_give_up(&mut self, now: Time, site: SiteId, to: HostId) -> bool {
        let set = self.table.site(site).map(|record| record.set);
        if set.is_some_and(|set| !self.release_set(set)) {
            self.following.later(now);
            return false;
        }
        let epoch = self.registry.state().site_epoch(site).0;
        self.following.give_up(site, epoch, to);
        self.withdraw_answers(site);
        true
    }

    fn propose_move(&mut self, sites: &[SiteId], to: HostId) {
        let state = self.registry.state();
        let sites = sites.iter().map(|&site| (site.0, state.site_epoch(site).0));
        let sites = sites.collect();
        self.propose(Change::MoveSites { sites, to: to.0 });
    }

    /// The others are to give this manager nothing any more.
    pub(crate) fn retire_here(&mut self) {
        if self.role.is_manager && self.registry.is_shared() {
            let host = self.instance();
            self.propose(Change::Retire { host });
        }
        self.following.want();
    }

    /// Whether this manager has nothing any more that somebody would have to wait for.
    pub(crate) fn has_handed_over(&mut self) -> bool {
        let others = self.managers();
        let is_alone = others.keys().all(|host| *host == self.host_id());
        if !self.role.is_manager || !self.registry.is_shared() || is_alone {
            return true;
        }
        let mut owners = self.registry.state().owners.values();
        let is_done = owners.all(|owner| *owner != self.instance());
        is_done && self.leases.have_ended()
    }

    /// Sites beyond this manager's share, of those with names and of all; those with the
    /// highest numbers first.
    fn surplus(&self) -> Vec<SiteId> {
        let state = self.registry.state();
        let owned = state.owners.iter().filter(|(site, owner)| {
            **owner == self.instance() && !self.following.is_given_up(SiteId(**site))
        });
        let owned = owned.rev().map(|(&site, _)| SiteId(site));
        let (named, spare): (Vec<_>, Vec<_>) = owned.partition(|&site| state.has_names(site));
        let managers = self.managers();
        let keeps_none = self.is_ending() || !managers.contains_key(&self.host_id());
        let beyond_share = |owned: usize, of: usize| match keeps_none {
            true => owned,
            false => owned.saturating_sub(of.div_ceil(managers.len())),
        };
        let all = state.sites.len();
        let with_names = all.min(usize::from(state.spread.sites));
        let beyond = beyond_share(named.len(), with_names);
        let beyond_all = beyond_share(named.len() + spare.len(), all);
        let named = named.into_iter().take(beyond);
        let spare = spare.into_iter();
        named
            .chain(spare.take(beyond_all.saturating_sub(beyond)))
            .collect()
    }

    /// The manager that gets the site: it has the fewest, with those that are on their way
    /// to it.
    fn next_manager(&self, site: SiteId) -> Option<HostId> {
        let has_names = self.registry.state().has_names(site);
        let mut others = self.managers();
        others.remove(&self.host_id());
        let least = others
            .into_iter()
            .min_by_key(|(host, sites)| (sites.rank(has_names), *host));
        least.map(|(host, _)| host)
    }

    /// How many sites each manager has, or will have, that is not about to end.
    fn managers(&self) -> BTreeMap<HostId, SiteLoad> {
        let state = self.registry.state();
        let managers = state.hosts.iter();
        let stays = managers.filter(|(_, record)| record.is_manager && !record.is_retiring);
        let stays = stays.map(|(&host, _)| (HostId(host), SiteLoad::default()));
        let mut load: BTreeMap<HostId, SiteLoad> = stays.collect();
        for (&site, &owner) in &state.owners {
            let site = SiteId(site);
            let to = self.following.given_to(site);
            if let Some(sites) = load.get_mut(&to.unwrap_or(HostId(owner))) {
                sites.add(state.has_names(site));
            }
        }
        load
    }
}
