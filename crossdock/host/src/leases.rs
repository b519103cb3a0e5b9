//! Leases between hosts: who answers from memory, or for a set that others have
//! too, may do so only for as long as those who would know of a successor say
//! that there is none (CONSISTENCY 4, docs/decisions/0019-leases.md).
//!
//! A host has a lease of another one for [`LEASE`] from when it asked, on its own
//! clock: by a call of its sites or nodes that was answered, or by a question of
//! its own when there is nothing else to say. The one that has given it holds
//! every table back in which that host is gone until the lease has ended. As no
//! message is taken before its sender's table, nothing of a successor gets to it
//! until then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_link::Frame;
use crossdock_members::{SITE_SETS, State};
use crossdock_names::{HostId, NodeId, SetId, SiteId};
use crossdock_peer::{NodeError, NodeReply, Port, SiteError, SiteReply};
use crossdock_types::{Time, WallTime};

use crate::host::Host;
use crate::mutation::Mutation;
use crate::peers::refusal;

/// How long a lease lasts, on its holder's clock.
const LEASE: Duration = Duration::from_millis(1500);

/// How long whoever gave it keeps it, on its own clock: clocks that run up to a
/// fiftieth faster or slower than each other do no harm.
const KEPT: Duration = Duration::from_millis(1530);

/// A lease of this age is asked for again.
const RENEWED_AFTER: Duration = Duration::from_millis(750);

/// Who does not answer is asked again after this.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A member that gives none for so long, while somebody waits, leaves the set: as
/// if it did not carry out a change. Longer than it may hold a table back.
const MEMBER_PATIENCE: Duration = Duration::from_secs(3);

/// The leases of this host, and those that it has given.
#[derive(Default)]
pub(crate) struct Leases {
    /// The time of this turn.
    pub(crate) now: Time,
    /// By whom they were given: when they were asked for.
    held: BTreeMap<HostId, Time>,
    /// Whose are needed for what is answered here.
    needed: BTreeSet<HostId>,
    /// When a question of its own was sent last.
    asked: BTreeMap<HostId, Time>,
    /// To whom this host has given one, until when.
    given: BTreeMap<HostId, Time>,
    /// A state in which somebody is gone who has a lease of this host.
    coming: Option<Coming>,
    /// An earlier process may have given leases until then.
    started_until: Time,
    /// Answers that wait for a lease; whoever asked bounds them.
    of_sites: VecDeque<(SiteId, Box<SiteReply>)>,
    of_nodes: VecDeque<WaitingRead>,
}

/// What a primary has read, and may not show yet.
struct WaitingRead {
    set: SetId,
    node: NodeId,
    to: Port,
    reply: NodeReply,
    since: Time,
}

struct Coming {
    revision: u64,
    state: Box<State>,
    until: Time,
}

impl Leases {
    /// A process begins that may have given leases before: it does not know to whom.
    pub(crate) fn begin(&mut self, now: Time) {
        self.started_until = now + KEPT;
    }

    /// The same for one that has no nodes to open: from its first turn on.
    pub(crate) fn begin_once(&mut self) {
        if self.started_until == Time::default() {
            self.begin(self.now);
        }
    }

    /// Until when this host must not be known to others.
    pub(crate) fn waits_until(&self) -> Option<Time> {
        (self.now < self.started_until).then_some(self.started_until)
    }

    /// `host` has a lease that was asked for at `asked_at`.
    pub(crate) fn granted(&mut self, host: HostId, asked_at: Time) {
        let held = self.held.entry(host).or_default();
        *held = asked_at.min(self.now).max(*held);
    }

    /// Whether nobody has to wait for a lease that this host was given.
    pub(crate) fn have_ended(&self) -> bool {
        self.held
            .values()
            .all(|&asked_at| self.now > asked_at + KEPT + ASK_AGAIN_AFTER)
    }

    /// When that of a host was asked for that it has given last: it had taken the table that this
    /// host had then.
    pub(crate) fn asked_at(&self, host: HostId) -> Time {
        self.held.get(&host).copied().unwrap_or_default()
    }

    fn has(&self, host: HostId) -> bool {
        self.now < self.until(host)
    }

    /// Until when there is one of `host`.
    pub(crate) fn until(&self, host: HostId) -> Time {
        let held = self.held.get(&host);
        held.map_or_else(Time::default, |&asked_at| asked_at + LEASE)
    }

    fn renewal_due(&self, host: HostId) -> Time {
        let held = self.held.get(&host);
        let old = held.map_or_else(Time::default, |&asked_at| asked_at + RENEWED_AFTER);
        let asked = self.asked.get(&host);
        asked.map_or(old, |&asked| old.max(asked + ASK_AGAIN_AFTER))
    }
}

impl Host {
    /// `peer` is told something by which it may go on for a while.
    pub(crate) fn grant(&mut self, peer: HostId) {
        if !self.is_doomed(peer) {
            let until = self.leases.now + KEPT;
            self.leases.given.insert(peer, until);
        }
    }

    /// Whether a state is on its way in which `peer` is gone.
    pub(crate) fn is_doomed(&self, peer: HostId) -> bool {
        let coming = self.leases.coming.as_ref();
        coming.is_some_and(|coming| !coming.state.hosts.contains_key(&peer.0))
    }

    /// A state of the registry: it is held back while somebody who is gone in it
    /// has a lease of this host.
    pub(crate) fn take_news(
        &mut self,
        now: Time,
        wall: WallTime,
        revision: u64,
        state: Box<State>,
    ) {
        let coming = self.leases.coming.as_ref();
        if coming.is_some_and(|coming| coming.revision > revision) {
            return;
        }
        self.leases.coming = None;
        if let Some(until) = self.kept_until(&state) {
            self.leases.coming = Some(Coming {
                revision,
                state,
                until,
            });
        } else if self.registry.take(revision, *state) {
            let hosts = &self.registry.state().hosts;
            let leases = &mut self.leases;
            for times in [&mut leases.given, &mut leases.held, &mut leases.asked] {
                times.retain(|host, _| hosts.contains_key(&host.0));
            }
            self.take_state(now, wall);
        }
    }

    fn kept_until(&self, state: &State) -> Option<Time> {
        if !state.hosts.contains_key(&self.instance()) || self.has(Mutation::GrantAtOnce) {
            return None; // Of one that is gone nothing counts anyway.
        }
        let given = self.leases.given.iter();
        let gone = given.filter(|(host, _)| !state.hosts.contains_key(&host.0));
        let kept = gone.map(|(_, &until)| until).max();
        kept.filter(|&until| self.leases.now < until)
    }

    /// The time of [`lease_due`](Self::lease_due) may have come.
    pub(crate) fn wake_leases(&mut self, now: Time, wall: WallTime) {
        let is_due = |coming: &mut Coming| coming.until <= now;
        if let Some(coming) = self.leases.coming.take_if(is_due) {
            self.take_news(now, wall, coming.revision, coming.state);
        }
    }

    /// When something is to be done about leases.
    pub(crate) fn lease_due(&self) -> Option<Time> {
        let needed = self.leases.needed.iter();
        let needed = needed.filter(|&&host| self.peers.is_connected(host));
        let renewals = needed.map(|&host| self.leases.renewal_due(host));
        let coming = self.leases.coming.as_ref().map(|coming| coming.until);
        let reads = self.leases.of_nodes.iter();
        let reads = reads.map(|read| read.since + MEMBER_PATIENCE);
        renewals.chain(coming).chain(reads).min()
    }

    /// Finds out anew whose leases are needed.
    pub(crate) fn count_leases(&mut self) {
        if self.registry.is_shared() {
            let sites = self.sites.keys();
            let of_sites = sites.filter_map(|&id| Some(self.table.site(id)?.set));
            let leads = |id: &SetId| {
                let first = self.table.set(*id).and_then(|set| set.members.first());
                id.0 < SITE_SETS && first.is_some_and(|node| self.nodes.contains_key(node))
            };
            let led = self.table.sets.keys().copied().filter(leads);
            let needed = of_sites.chain(led).flat_map(|set| self.hosts_of(set));
            let needed = needed.flatten().chain(self.other_takers());
            self.leases.needed = needed.collect();
        }
    }

    /// Asks for leases that end soon.
    pub(crate) fn renew_leases(&mut self) {
        let now = self.leases.now;
        let needed = self.leases.needed.iter().copied();
        let is_due =
            |host: &HostId| self.peers.is_connected(*host) && self.leases.renewal_due(*host) <= now;
        let due: Vec<HostId> = needed.filter(is_due).collect();
        for host in due {
            self.leases.asked.insert(host, now);
            self.send_frame(host, Frame::Renew { at: now.0 });
        }
    }

    /// The hosts of the members of `set` that do not run here; nothing for one
    /// that runs nowhere.
    pub(crate) fn hosts_of(&self, set: SetId) -> impl Iterator<Item = Option<HostId>> {
        let members = self.table.set(set).map(|set| set.members.as_slice());
        let others = members.unwrap_or_default().iter();
        let others = others.filter(|node| !self.nodes.contains_key(node));
        others.map(|node| self.table.hosts.nodes.get(node).copied())
    }

    fn has_leases(&self, set: SetId) -> bool {
        let is_had = |host: Option<HostId>| host.is_some_and(|host| self.leases.has(host));
        !self.registry.is_shared()
            || self.has(Mutation::IgnoreLease)
            || self.hosts_of(set).all(is_had)
    }

    fn may_answer(&self, site: SiteId) -> bool {
        let record = self.table.site(site);
        record.is_some_and(|record| self.has_leases(record.set))
    }

    /// A site's answer goes out under leases of all members of its set.
    pub(crate) fn answer_for_site(&mut self, site: SiteId, mut reply: Box<SiteReply>) {
        let shows_nothing = matches!(
            reply.outcome,
            Err(SiteError::Busy | SiteError::Moved | SiteError::Unanswered)
        );
        if !shows_nothing && self.following.is_given_up(site) {
            // Others may have changed what it shows.
            self.answer_site(refusal(reply.id, SiteError::Moved));
        } else if shows_nothing || self.may_answer(site) {
            self.bound_lease(site, &mut reply);
            self.answer_site(reply);
        } else {
            self.leases.of_sites.push_back((site, reply));
        }
    }

    /// A node's answer that shows what it has as primary of a set goes out under
    /// leases of the set's other members.
    pub(crate) fn answer_for_node(
        &mut self,
        node: NodeId,
        to: Port,
        reply: NodeReply,
        shows: Option<SetId>,
    ) {
        match shows.filter(|&set| !self.has_leases(set)) {
            Some(set) => self.leases.of_nodes.push_back(WaitingRead {
                set,
                node,
                to,
                reply,
                since: self.leases.now,
            }),
            None => self.answer_node(node, to, reply),
        }
    }

    /// Sends the answers for which there is a lease now. What they show was so
    /// since they were asked for, as nobody has taken over until now.
    pub(crate) fn release_answers(&mut self) {
        for (site, reply) in std::mem::take(&mut self.leases.of_sites) {
            self.answer_for_site(site, reply);
        }
        for mut read in std::mem::take(&mut self.leases.of_nodes) {
            let members = self.table.set(read.set).map(|set| &set.members);
            if members.and_then(|members| members.first()) != Some(&read.node) {
                let current = self.table.epoch;
                read.reply.outcome = Err(NodeError::StaleTable { current });
                self.answer_node(read.node, read.to, read.reply);
            } else if self.has_leases(read.set) {
                self.answer_node(read.node, read.to, read.reply);
            } else {
                if self.leases.now >= read.since + MEMBER_PATIENCE {
                    read.since = self.leases.now;
                    self.expel_silent(read.set);
                }
                self.leases.of_nodes.push_back(read);
            }
        }
    }

    /// Has the members of `set` leave it that give no lease.
    fn expel_silent(&mut self, set: SetId) {
        let Some(record) = self.table.set(set) else {
            return;
        };
        let gives = |node: &NodeId| {
            let host = self.table.hosts.nodes.get(node);
            self.nodes.contains_key(node) || host.is_some_and(|&host| self.leases.has(host))
        };
        let (epoch, members) = (record.epoch, record.members.iter());
        let silent = members.copied().find(|node| !gives(node));
        if let Some(member) = silent {
            self.expel(set, epoch, member);
        }
    }

    /// A site is somebody else's now, or opened anew: who waits asks that one.
    pub(crate) fn withdraw_answers(&mut self, site: SiteId) {
        let answers = self.leases.of_sites.iter_mut();
        for (_, reply) in answers.filter(|(of, _)| *of == site) {
            *reply = refusal(reply.id, SiteError::Moved);
        }
    }
}
