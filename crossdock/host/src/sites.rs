//! The sites of this host, and what the registry's state means for the door.

use std::sync::Arc;
use std::time::Duration;

use crossdock_delivery::Switches;
use crossdock_members::{Change, State};
use crossdock_names::{Epoch, NodeId, ObjectClass, ObjectId, SetId, SiteId};
use crossdock_nfs::{DoorConfig, DoorLimits};
use crossdock_peer::{Port, SiteError, SiteOperation, TransactionStep, WriterId};
use crossdock_site::{OpenError, Site, SiteConfig, SiteEffect, SiteInput};
use crossdock_types::{Time, WallTime};

use crate::host::{Host, HostEffect};
use crate::members::OPENED_AGAIN_AFTER;
use crate::message::Message;
use crate::nodes::NodeState;
use crate::peers::refusal;

/// The site that holds the root directory.
pub(crate) const ROOT_SITE: SiteId = SiteId(0);

/// How long a client's call may take before the client is asked to try again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

impl Host {
    /// Opens the root's site, once all nodes that shall run do. Other sites are
    /// opened when they are first asked for.
    pub(crate) fn open_sites(&mut self, now: Time) {
        let waiting = self
            .nodes
            .values()
            .any(|slot| slot.state == NodeState::Opening);
        if waiting || !self.sites.is_empty() {
            return;
        }
        self.plan_start();
        self.begin_equalize();
        if self.replicas.is_idle() {
            self.open_site(now, ROOT_SITE);
        }
    }

    pub(crate) fn open_site(&mut self, now: Time, id: SiteId) {
        let state = self.registry.state();
        let mut config = SiteConfig::new(id, state.volume_id(), state.site_epoch(id));
        config.writer = WriterId(self.instance());
        config.grace = self.grace;
        config.spread = state.spread;
        config.new_volume = !state.opened_sites.contains(&id.0);
        config.serves_from = self.leases_end(id);
        #[cfg(feature = "mutations")]
        {
            config.fault = self.fault_of_sites();
        }
        let site = Site::open(now, config, Arc::clone(&self.table));
        self.sites.insert(id, site);
        self.tell_sites();
        self.count_leases();
        self.drain_site(id);
    }

    pub(crate) fn run_site(&mut self, now: Time, wall: WallTime, id: SiteId, input: SiteInput) {
        let is_closed = self.is_closing(id) && !is_taken_while_closing(&input);
        let is_away = !self.sites.contains_key(&id) || is_closed;
        if is_away && self.registry.is_shared() && matches!(input, SiteInput::Request(_)) {
            return self.send_to_site(id, input);
        }
        if let SiteInput::Request(call) = &input
            && self.is_unknown(id)
        {
            return self.answer_site(refusal(call.id, SiteError::Busy));
        }
        if !self.sites.contains_key(&id) {
            if !matches!(input, SiteInput::Request(_))
                || usize::from(id.0) >= crossdock_names::SITES
            {
                return;
            }
            self.open_site(now, id);
        }
        if let Some(site) = self.sites.get_mut(&id) {
            site.gather(now, wall, input);
        }
        if !self.sites_at_work.contains(&id) {
            self.sites_at_work.push(id);
        }
        self.drain_site(id);
    }

    /// Whether others do not know yet that a site which is open here is used: what it
    /// acknowledged would be lost with its nodes, whose places others take without asking
    /// what they have. (Nobody takes those of the root's.)
    fn is_unknown(&self, id: SiteId) -> bool {
        let is_known = self.registry.state().opened_sites.contains(&id.0);
        self.registry.is_shared() && id != ROOT_SITE && !is_known
    }

    /// Says once more which sites are used, if others do not know yet.
    pub(crate) fn tell_used_sites(&mut self, now: Time) {
        let serving = self.sites.iter().filter(|(_, site)| site.is_serving());
        let serving: Vec<SiteId> = serving.map(|(&id, _)| id).collect();
        for id in serving {
            if self.is_unknown(id) {
                self.tell_used(id);
                self.following.later(now);
            }
        }
    }

    /// Says that a site which is open here is used; false if it cannot be said.
    fn tell_used(&mut self, id: SiteId) -> bool {
        let expected = self.sites.get(&id).map(|site| site.epoch().0);
        self.propose(Change::SiteOpened {
            site: id.0,
            expected,
        })
    }

    /// Does what a site wants done; whoever has given it something calls this.
    pub(crate) fn drain_site(&mut self, id: SiteId) {
        while let Some(effect) = self.sites.get_mut(&id).and_then(Site::poll_effect) {
            match effect {
                SiteEffect::Node(node, call) => {
                    self.queue
                        .push_back(Message::call(node, Port::Site(id), call));
                }
                SiteEffect::Site(to, call) => self.ask_site(id, to, call),
                SiteEffect::Reply(reply) => self.answer_for_site(id, reply),
                SiteEffect::Lock(notice) => self.tell_doors(notice),
                SiteEffect::Recall(holder, recall) => self.recall(id, holder, recall),
                SiteEffect::Opened(Ok(_)) => self.take_site_opened(id),
                SiteEffect::ReadOnly(what) => self.effects.push_back(HostEffect::Warning(format!(
                    "site {id} takes no changes any more, its log cannot be written ({what}): mend the disk, then stop and start the node"
                ))),
                SiteEffect::Opened(Err(error)) if self.is_ready => {
                    let warning = format!("site {id} cannot be opened: {error}");
                    self.effects.push_back(HostEffect::Warning(warning));
                }
                SiteEffect::Opened(Err(error)) if self.registry.is_shared() => {
                    self.take_unopened(id, &error);
                }
                SiteEffect::Opened(Err(error)) => {
                    self.effects
                        .push_back(HostEffect::Failed(format!("site {id}: {error}")));
                }
            }
        }
        match self.sites.get(&id).and_then(Site::poll_timeout) {
            Some(due) => self.site_dues.insert(id, due),
            None => self.site_dues.remove(&id),
        };
        if id == ROOT_SITE {
            self.take_root_drained();
        }
    }

    /// A site cannot be opened: the others of this manager are served all the same.
    fn take_unopened(&mut self, id: SiteId, error: &OpenError) {
        if matches!(error, OpenError::Replaced) {
            return;
        }
        self.following.open_again(id, self.leases.now);
        let warning = format!(
            "site {id} cannot be opened: {error}; who asks for it waits, and it is tried again every {} s; crossdock fsck --node DIR tells what a node's copy lacks",
            OPENED_AGAIN_AFTER.as_secs()
        );
        self.effects.push_back(HostEffect::Warning(warning));
    }

    fn take_site_opened(&mut self, id: SiteId) {
        if id == ROOT_SITE {
            self.take_root_opened();
        }
        let known = self.registry.state().opened_sites.contains(&id.0);
        if !known {
            if !self.tell_used(id) {
                return;
            }
            // What concerns all sites concerns this one. (A shared registry tells it.)
            if !self.registry.is_shared() {
                self.spread_table();
            }
        }
        if id == ROOT_SITE && !self.registry.is_shared() {
            self.is_ready = true;
        }
    }

    /// Opens the sites anew whose logs could not be written, once the node that
    /// has them runs again: what was never durable goes with the old ones.
    pub(crate) fn reopen_sites(&mut self, now: Time, node: NodeId) {
        let stopped = self.sites.iter().filter(|(_, site)| site.needs_opening());
        let stopped: Vec<SiteId> = stopped.map(|(&id, _)| id).collect();
        for id in stopped {
            let log = ObjectId::of_site(ObjectClass::SiteLog, id, 0);
            let set = self.table.members_of(&log);
            if !set.is_some_and(|set| set.members.contains(&node)) {
                continue;
            }
            let change = Change::RaiseSite {
                site: id.0,
                expected: self.registry.state().site_epoch(id).0,
            };
            if !self.propose(change) {
                return;
            }
            self.remove_site(id);
            self.spread_table();
            self.open_site(now, id);
        }
    }

    /// A member failed to carry out a change: it leaves the set before the
    /// change is answered. The last member never leaves.
    pub(crate) fn expel(&mut self, set: SetId, epoch: Epoch, member: NodeId) {
        let Some(record) = self.registry.state().sets.get(&set.0) else {
            return;
        };
        let members: Vec<u64> = record
            .members
            .iter()
            .copied()
            .filter(|&id| id != member.0)
            .collect();
        // What it did not carry out may have been ordered under an earlier epoch.
        let first = record.members.first().map(|&first| NodeId(first));
        let leads = first.is_some_and(|first| self.nodes.contains_key(&first));
        let is_seen = record.epoch == epoch.0 || leads && record.epoch > epoch.0;
        if members.is_empty() || !is_seen || members.len() == record.members.len() {
            return;
        }
        let change = Change::SetMembers {
            set: set.0,
            expected: record.epoch,
            members,
        };
        if self.propose(change) {
            self.effects.push_back(HostEffect::Warning(format!(
                "node {member} has left replica set {set}: it does not carry out changes"
            )));
            self.spread_table();
        }
    }
}

/// Whether a site takes it that is about to be opened anew: bytes of files that it
/// keeps for an operation of another site are not written before that has ended, and
/// leases come back.
const fn is_taken_while_closing(input: &SiteInput) -> bool {
    let SiteInput::Request(call) = input else {
        return false;
    };
    matches!(
        call.request.operation,
        SiteOperation::Transaction {
            step: TransactionStep::Finish(_) | TransactionStep::Inquire,
            ..
        } | SiteOperation::PushAttributes { lease: Some(_), .. }
    )
}

/// What the door is told when the host starts.
pub(crate) fn door_config(state: &State, request_bytes: usize, delivery: Switches) -> DoorConfig {
    DoorConfig {
        volume: state.volume_id(),
        exports: crate::exports::exports(state),
        keys: None,
        patience: PATIENCE,
        limits: DoorLimits {
            bytes_max: request_bytes,
            ..DoorLimits::default()
        },
        delivery,
    }
}
