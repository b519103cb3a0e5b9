//! Sites that a manager gives to others while it lives: its share, to one that has
//! joined; all of them, before it ends.
//!
//! Whoever gives a site up is the first to know: it takes no requests for it from then
//! on, makes durable what is not (CONSISTENCY 6), and shows nothing of it any more once
//! it has proposed the change. So no lease of its stands in the way of the successor
//! (docs/decisions/0019: what a live host is to lose, it has to give up itself first).

use std::collections::BTreeMap;

use crossdock_members::Change;
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
            let Some(to) = self.next_manager() else {
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

    /// Sites beyond this manager's share, those with the highest numbers first.
    fn surplus(&self) -> Vec<SiteId> {
        let state = self.registry.state();
        let owned = state.owners.iter().filter(|(site, owner)| {
            **owner == self.instance() && !self.following.is_given_up(SiteId(**site))
        });
        let owned: Vec<SiteId> = owned.map(|(&site, _)| SiteId(site)).collect();
        let managers = self.managers();
        let share = match self.is_ending() || !managers.contains_key(&self.host_id()) {
            true => 0,
            false => state.sites.len().div_ceil(managers.len()),
        };
        let surplus = owned.len().saturating_sub(share);
        owned.into_iter().rev().take(surplus).collect()
    }

    /// The manager that has the fewest sites, with those that are on their way to it.
    fn next_manager(&self) -> Option<HostId> {
        let mut others = self.managers();
        others.remove(&self.host_id());
        let least = others
            .into_iter()
            .min_by_key(|&(host, sites)| (sites, host));
        least.map(|(host, _)| host)
    }

    /// How many sites each manager has, or will have, that is not about to end.
    fn managers(&self) -> BTreeMap<HostId, usize> {
        let state = self.registry.state();
        let managers = state.hosts.iter();
        let stays = managers.filter(|(_, record)| record.is_manager && !record.is_retiring);
        let mut load: BTreeMap<HostId, usize> = stays.map(|(&host, _)| (HostId(host), 0)).collect();
        for (&site, &owner) in &state.owners {
            let to = self.following.given_to(SiteId(site));
            if let Some(sites) = load.get_mut(&to.unwrap_or(HostId(owner))) {
                *sites += 1;
            }
        }
        load
    }
}
