//! When members of replica sets are made equal: before anything is served after
//! a start, and when a node comes back while the others serve.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossdock_members::{Change, SITE_SETS, SetRecord};
use crossdock_names::{Epoch, NodeId, ObjectClass, SetId, SiteId, Version};
use crossdock_peer::{Call, NodeAnswer, NodeError, NodeRequest, Port};
use crossdock_server::NodeInput;
use crossdock_types::Time;

use crate::equalize::{Answer, Equalize, Goal, Pair, Question};
use crate::host::{Host, HostEffect};
use crate::message::{EQUALIZE_CALL, Message};
use crate::mutation::Mutation;
use crate::nodes::NodeState;

/// What the primary of a data set orders.
const COLUMNS: &[ObjectClass] = &[ObjectClass::Column];

/// What a site keeps on its set besides its log, which it makes equal itself.
const SITE_OBJECTS: &[ObjectClass] = &[ObjectClass::SmallFiles];

/// What a member that comes back into a site's set needs: while the site serves, and
/// once more of what has changed since when it is opened anew. (Members of a set that
/// nobody has used yet may have beginnings of different logs.)
const ALL_SITE_OBJECTS: &[ObjectClass] = &[
    ObjectClass::SiteLog,
    ObjectClass::Checkpoint,
    ObjectClass::SmallFiles,
];

/// How long a node that is made equal may look for room for a change: if its disk is full
/// there is none, and clients may wait for the set.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);

/// Pairs to be made equal, the one under way, and the calls that wait for it.
#[derive(Default)]
pub(crate) struct Replicas {
    planned: VecDeque<Pair>,
    current: Option<Equalize>,
    /// Who was made equal to the primary of its set, for a set that clients wait for
    /// ([`Goal::Equal`]), and the epoch and homes that the set had.
    made: BTreeSet<(SetId, (u64, u64), NodeId)>,
    held: VecDeque<(NodeId, NodeInput)>,
    /// Which node has been asked and has not answered.
    asked: Option<NodeId>,
    /// The answer is of no use any more: its pair was given up.
    is_stale: bool,
    /// The current pair wants changes of its set to wait, and whether none is under way.
    is_holding: bool,
    is_quiet: bool,
    /// What is copied while clients are served goes out at a bounded rate: what waits for
    /// its time, and when the next may go.
    delayed: Option<(NodeId, NodeRequest)>,
    next_copy_at: Time,
    is_start_planned: bool,
    /// A set whose members are equal, and the epoch and homes under which the registry
    /// was asked to say so.
    settling: Option<(SetId, (u64, u64))>,
}

impl Replicas {
    /// Whether all pairs are equal.
    pub(crate) fn is_idle(&self) -> bool {
        self.planned.is_empty() && self.current.is_none() && self.settling.is_none()
    }

    /// Whether something of that set is not equal yet.
    pub(crate) fn is_busy_with(&self, set: SetId) -> bool {
        self.planned.iter().any(|pair| pair.set == set)
            || self
                .current
                .as_ref()
                .is_some_and(|current| current.pair.set == set)
            || self.settling.is_some_and(|(settling, _)| settling == set)
    }

    /// All of a set are to be made equal anew: who was before may differ by now, as the set
    /// serves under the same epoch until somebody joins or leaves.
    pub(crate) fn forget_made(&mut self, set: SetId) {
        self.made.retain(|made| made.0 != set);
    }

    /// Whether others of a set that clients wait for are still to be made equal.
    fn has_more(&self, set: SetId) -> bool {
        let mut planned = self.planned.iter();
        planned.any(|pair| pair.set == set && pair.goal == Goal::Equal)
    }

    /// The set whose changes wait.
    fn held_set(&self) -> Option<SetId> {
        let current = self.current.as_ref().map(|current| &current.pair);
        let pair = match current {
            Some(pair) => (pair.goal == Goal::Equal || self.is_holding).then_some(pair),
            None => self.planned.front().filter(|pair| pair.goal == Goal::Equal),
        };
        let settling = self.settling.map(|(set, _)| set);
        settling.or_else(|| pair.map(|pair| pair.set))
    }

    /// Whether the current pair is copied while clients go on.
    fn is_behind_clients(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.pair.goal != Goal::Equal && !self.is_holding)
    }

    /// When something that waits for its time may go.
    pub(crate) fn due(&self) -> Option<Time> {
        self.delayed.as_ref().map(|_| self.next_copy_at)
    }
}

impl Host {
    /// After a start: every set with more than one home.
    pub(crate) fn plan_start(&mut self) {
        if std::mem::replace(&mut self.replicas.is_start_planned, true) {
            return;
        }
        for (id, record) in self.registry.state().sets.clone() {
            for &target in record
                .home
                .iter()
                .filter(|&&home| record.members.first() != Some(&home))
            {
                self.plan(SetId(id), &record, NodeId(target), Goal::Equal);
            }
        }
    }

    /// Plans a pair unless it is planned.
    pub(crate) fn plan_once(&mut self, set: SetId, record: &SetRecord, target: NodeId, goal: Goal) {
        let current = self.replicas.current.as_ref().map(|current| &current.pair);
        let mut pairs = self.replicas.planned.iter().chain(current);
        let is_same = |pair: &Pair| pair.set == set && pair.target == target && pair.goal == goal;
        let is_planned = pairs.any(is_same)
            || self
                .replicas
                .settling
                .is_some_and(|(settling, _)| settling == set);
        if !is_planned {
            self.plan(set, record, target, goal);
        }
    }

    fn plan(&mut self, set: SetId, record: &SetRecord, target: NodeId, goal: Goal) {
        let Some(&source) = record.members.first() else {
            return;
        };
        if !self.is_running(NodeId(source)) || !self.is_running(target) {
            return;
        }
        let is_member = record.members.contains(&target.0);
        let classes = match (set.0 < SITE_SETS, is_member, goal) {
            (true, ..) => COLUMNS,
            (false, true, _) if self.registry.state().is_set_used(set.0) => SITE_OBJECTS,
            (false, ..) => ALL_SITE_OBJECTS,
        };
        // Versions of columns begin with the set's epoch. Those of a site's objects
        // begin with the site's, of which the set's record says nothing.
        let since = match set.0 < SITE_SETS {
            true => Version::first_of(Epoch(record.differs_since)),
            false => Version::NONE,
        };
        let others = record.members.iter().skip(1);
        let is_serving = self.is_ready || self.registry.is_shared() && set.0 < SITE_SETS;
        let pair = Pair {
            set,
            source: NodeId(source),
            target,
            since,
            epoch: record.epoch,
            moves: record.moves,
            others: others.map(|&member| NodeId(member)).collect(),
            is_serving,
            goal: match goal {
                Goal::Join if !is_serving && set.0 < SITE_SETS => Goal::Equal,
                goal => goal,
            },
            log_piece_bytes: self.settings.log_piece_bytes,
            classes,
            table: Arc::clone(&self.table),
        };
        if pair.goal != Goal::Equal {
            return self.replicas.planned.push_back(pair);
        }
        // Somebody waits for it: what nobody waits for begins anew later.
        let mut planned = self.replicas.planned.iter();
        let behind = planned.position(|other| other.goal != Goal::Equal);
        let place = behind.unwrap_or(self.replicas.planned.len());
        self.replicas.planned.insert(place, pair);
        if self.replicas.is_behind_clients() {
            self.drop_current();
            self.following.fail();
        }
    }

    /// Gives up all pairs of a set; whether nothing of them is on its way any more.
    pub(crate) fn release_set(&mut self, set: SetId) -> bool {
        self.replicas.planned.retain(|pair| pair.set != set);
        let current = self.replicas.current.as_ref();
        if current.is_some_and(|current| current.pair.set == set) {
            self.drop_current();
            self.following.want();
        }
        let settling = self.replicas.settling.map(|(settling, _)| settling);
        !self.replicas.is_stale && settling != Some(set)
    }

    /// Gives the current pair up, whoever has been asked for it.
    fn drop_current(&mut self) -> Option<Pair> {
        let replicas = &mut self.replicas;
        let current = replicas.current.take()?;
        replicas.is_stale = replicas.asked.is_some();
        replicas.is_holding = false;
        replicas.is_quiet = false;
        replicas.delayed = None;
        Some(current.pair)
    }

    /// Nothing is made equal to or from a node that has stopped.
    pub(crate) fn forget_pairs_of(&mut self, node: NodeId) {
        // It will not answer.
        if self.replicas.asked == Some(node) {
            self.replicas.asked = None;
            self.replicas.is_stale = false;
        }
        let names = |pair: &Pair| pair.source == node || pair.target == node;
        let planned = self.replicas.planned.iter().filter(|pair| names(pair));
        let made = self.replicas.made.iter().filter(|made| made.2 == node);
        let sets = planned.map(|pair| pair.set).chain(made.map(|made| made.0));
        let sets: BTreeSet<SetId> = sets.collect();
        self.replicas.made.retain(|made| made.2 != node);
        self.forget_prepared(&sets);
        self.forget_pairs(names, &format!("node {node} was stopped"));
    }

    /// Gives up what was planned for other members than there are now, and goes
    /// on with sets that have become what they were to become.
    pub(crate) fn abort_outdated_pairs(&mut self) {
        let state = self.registry.state();
        let seen: std::collections::BTreeMap<u32, (u64, u64)> = state
            .sets
            .iter()
            .map(|(&id, set)| (id, (set.epoch, set.moves)))
            .collect();
        let is_outdated = |set: SetId, was: (u64, u64)| seen.get(&set.0) != Some(&was);
        let current = self.replicas.current.as_ref().map(|current| &current.pair);
        let pairs = self.replicas.planned.iter().chain(current);
        let unfinished = pairs.filter(|pair| {
            pair.goal == Goal::Equal && is_outdated(pair.set, (pair.epoch, pair.moves))
        });
        let unfinished: BTreeSet<SetId> = unfinished.map(|pair| pair.set).collect();
        let made = &mut self.replicas.made;
        made.retain(|&(set, was, _)| !is_outdated(set, was));
        self.forget_prepared(&unfinished);
        self.forget_pairs(
            |pair| is_outdated(pair.set, (pair.epoch, pair.moves)),
            "its set has changed",
        );
        if let Some((set, seen)) = self.replicas.settling
            && is_outdated(set, seen)
        {
            self.replicas.settling = None;
        }
        self.release_held();
    }

    fn forget_pairs(&mut self, is_one: impl Fn(&Pair) -> bool, why: &str) {
        self.replicas.planned.retain(|pair| !is_one(pair));
        let current = self.replicas.current.as_ref();
        if current.is_some_and(|current| is_one(&current.pair))
            && let Some(pair) = self.drop_current()
        {
            self.finish_equalize(pair, Err(why.to_owned()));
        }
    }

    /// Whether a node serves, here or where it can be reached.
    pub(crate) fn is_running(&self, id: NodeId) -> bool {
        match self.nodes.get(&id) {
            Some(slot) => slot.state == NodeState::Running,
            None => {
                let host = self.table.hosts.nodes.get(&id);
                host.is_some_and(|&host| self.peers.is_connected(host))
            }
        }
    }

    /// Begins with the next pair once no change of its set is under way, and goes on
    /// with what waited for that, or for its time.
    pub(crate) fn begin_equalize(&mut self) {
        self.go_on_quietly();
        self.send_delayed();
        let is_settling = self.replicas.settling.is_some();
        if self.replicas.current.is_some() || self.replicas.is_stale || is_settling {
            return;
        }
        let Some(pair) = self.replicas.planned.front() else {
            return;
        };
        if pair.goal == Goal::Equal && self.is_changing(pair) {
            return;
        }
        if let Some(mut pair) = self.replicas.planned.pop_front() {
            pair.table = Arc::clone(&self.table);
            if self.has(Mutation::JoinUnequal) {
                pair.since = Version(u64::MAX);
            }
            self.replicas.current = Some(Equalize::new(pair));
            self.step_equalize(None);
        }
    }

    /// Whether a node here has changes of the pair's set under way.
    fn is_changing(&self, pair: &Pair) -> bool {
        let source = self.nodes.get(&pair.source);
        let source = source.and_then(|slot| slot.node.as_ref());
        source.is_some_and(|node| node.is_changing(pair.set))
    }

    /// The set's changes wait, and the last one that did not has ended.
    fn go_on_quietly(&mut self) {
        let Some(current) = &self.replicas.current else {
            return;
        };
        let waits = self.replicas.is_holding && !self.replicas.is_quiet;
        if waits && !self.is_changing(&current.pair) {
            self.replicas.is_quiet = true;
            self.step_equalize(Some(done(Version::NONE)));
        }
    }

    fn send_delayed(&mut self) {
        if self.leases.now >= self.replicas.next_copy_at
            && let Some((node, request)) = self.replicas.delayed.take()
        {
            self.ask_for_pair(node, request);
        }
    }

    fn ask_for_pair(&mut self, node: NodeId, request: NodeRequest) {
        if let NodeRequest::Write { payload, .. } = &request
            && self.replicas.is_behind_clients()
        {
            let rate = self.settings.rebuild_bytes_per_second.max(1);
            let pause = Duration::from_nanos(payload.len() as u64 * 1_000_000_000 / rate);
            self.replicas.next_copy_at = self.leases.now + pause;
        }
        self.replicas.asked = Some(node);
        let deadline = match is_change(&request) {
            true => self.leases.now + ROOM_PATIENCE,
            false => Time(u64::MAX),
        };
        let call = Call {
            id: EQUALIZE_CALL,
            deadline,
            request,
        };
        self.queue.push_back(Message::call(node, Port::Host, call));
    }

    pub(crate) fn step_equalize(&mut self, answer: Option<Answer>) {
        self.replicas.asked = None;
        if std::mem::take(&mut self.replicas.is_stale) {
            return;
        }
        let Some(current) = &mut self.replicas.current else {
            return;
        };
        let mut step = current.step(answer);
        while step.is_pending() {
            let Some(current) = &mut self.replicas.current else {
                return;
            };
            match current.question() {
                Some(Question::Mark) => {
                    let pair = current.pair.clone();
                    let marked = self.first_to_come(&pair);
                    if let Some(current) = &mut self.replicas.current {
                        step = current.step(Some(marked));
                    }
                }
                Some(Question::Hold) => {
                    self.replicas.is_holding = true;
                    return self.following.want();
                }
                Some(Question::Node(node, request)) => {
                    let is_copy = matches!(request, NodeRequest::Write { .. });
                    let is_early = self.leases.now < self.replicas.next_copy_at;
                    match is_copy && is_early && self.replicas.is_behind_clients() {
                        true => self.replicas.delayed = Some((node, request)),
                        false => self.ask_for_pair(node, request),
                    }
                    return;
                }
                None => return,
            }
        }
        if let Poll::Ready(result) = step {
            self.end_current(result);
        }
    }

    /// The version from which on changes of a pair's set are under way, or to come: its
    /// primary knows, or the site that gives them, while it serves.
    fn first_to_come(&self, pair: &Pair) -> Answer {
        if pair.set.0 < SITE_SETS {
            let source = self.nodes.get(&pair.source);
            let source = source.and_then(|slot| slot.node.as_ref());
            return done(source.map_or(Version::NONE, |node| node.first_to_come(pair.set)));
        }
        let serving = self.sites.iter().filter(|(_, site)| site.is_serving());
        let sites = &self.registry.state().sites;
        let is_of = |id: &SiteId| {
            let record = sites.get(usize::from(id.0));
            record.is_some_and(|(_, set)| *set == pair.set.0)
        };
        let mut serving = serving.filter(|(id, _)| is_of(id));
        let site = serving.next().map(|(_, site)| site);
        let busy = NodeError::Busy { retry_after_ms: 0 };
        done(site.ok_or(busy)?.first_to_come())
    }

    fn end_current(&mut self, result: Result<(), String>) {
        if let Some(pair) = self.drop_current() {
            self.finish_equalize(pair, result);
        }
    }

    fn finish_equalize(&mut self, pair: Pair, result: Result<(), String>) {
        let Some(record) = self.registry.state().sets.get(&pair.set.0).cloned() else {
            return;
        };
        let is_known = record.epoch == pair.epoch && record.moves == pair.moves;
        let is_out = !record.members.contains(&pair.target.0);
        let mut is_tried_again = false;
        let change = match &result {
            // Others have changed it meanwhile.
            _ if self.registry.is_shared() && !is_known => None,
            Ok(()) if pair.goal == Goal::Copy => {
                self.take_copied(&pair);
                None
            }
            Ok(()) => self.membership_of_equal(&pair, &record),
            Err(reason) => {
                // It is not in the set, and will be tried again.
                is_tried_again = self.registry.is_shared() && is_out;
                self.membership_without(&pair, &record, is_tried_again, reason)
            }
        };
        if let Some(change) = change {
            self.propose(change);
            if self.registry.is_shared() {
                self.replicas.settling = Some((pair.set, (record.epoch, record.moves)));
            }
        }
        if !self.registry.is_shared() {
            self.spread_table();
        }
        if self.replicas.held_set() != Some(pair.set) {
            self.release_held();
        }
        match is_tried_again {
            true => self.following.fail(),
            false => self.following.want(),
        }
    }

    /// What becomes of a set of which one more home is equal.
    fn membership_of_equal(&mut self, pair: &Pair, record: &SetRecord) -> Option<Change> {
        let (set, expected, moves) = (pair.set.0, record.epoch, record.moves);
        if pair.goal == Goal::Equal {
            let seen = (expected, moves);
            self.replicas.made.insert((pair.set, seen, pair.target));
            if self.replicas.has_more(pair.set) {
                return None; // Nothing changes until they are equal, too.
            }
        }
        // Who has connected since it was planned was not compared, member or not.
        let made = &self.replicas.made;
        let is_had = |node: &u64| match pair.goal {
            Goal::Equal => {
                *node == pair.source.0
                    || made.contains(&(pair.set, (expected, moves), NodeId(*node)))
            }
            Goal::Join | Goal::Copy => record.members.contains(node) || *node == pair.target.0,
        };
        if record.home.iter().all(is_had) {
            return Some(Change::SetEqual {
                set,
                expected,
                moves,
            });
        }
        // Others of its home are still away, and who is to leave stays until they come.
        let mut members: Vec<u64> = record.home.iter().copied().filter(is_had).collect();
        if record.leaving().any(|node| is_had(&node)) {
            let stays = |node: &u64| record.members.contains(node) && is_had(node);
            let stay: Vec<u64> = record.members.iter().copied().filter(stays).collect();
            members.retain(|home| !stay.contains(home));
            members.splice(..0, stay);
        }
        Some(Change::SetMembers {
            set,
            expected,
            members,
        })
    }

    /// What becomes of a set of which a home could not be made equal: it leaves, and those
    /// come that were made equal before it. (Nobody would make them equal again: the site
    /// is opened anew once for each.)
    fn membership_without(
        &mut self,
        pair: &Pair,
        record: &SetRecord,
        is_tried_again: bool,
        reason: &str,
    ) -> Option<Change> {
        let (set, expected, moves) = (pair.set.0, record.epoch, record.moves);
        let made = &self.replicas.made;
        let is_made = |node: &u64| made.contains(&(pair.set, (expected, moves), NodeId(*node)));
        let is_new = |node: &&u64| is_made(node) && !record.members.contains(node);
        let come: Vec<u64> = record.home.iter().filter(is_new).copied().collect();
        if is_tried_again && (come.is_empty() || self.replicas.has_more(pair.set)) {
            return None;
        }
        if !is_tried_again {
            self.effects.push_back(HostEffect::Warning(format!(
                "node {} stays out of replica set {}: {reason}",
                pair.target, pair.set
            )));
        }
        let left = |&member: &u64| member != pair.target.0;
        let stay = record.members.iter().copied().filter(left);
        Some(Change::SetMembers {
            set,
            expected,
            members: stay.chain(come).collect(),
        })
    }

    /// Carries what waited for its set, or has it wait again.
    fn release_held(&mut self) {
        let held = std::mem::take(&mut self.replicas.held);
        let held = held.into_iter();
        self.queue
            .extend(held.map(|(node, input)| Message::Node(node, input)));
    }

    /// Keeps a gateway's or site's call on a set that is being made equal until
    /// it is; gives back what need not wait. Their own bounds bound the queue.
    pub(crate) fn hold(&mut self, node: NodeId, input: NodeInput) -> Option<NodeInput> {
        let Some(held) = self.replicas.held_set() else {
            return Some(input);
        };
        let waits = match &input {
            NodeInput::Call {
                from: Port::Router | Port::Site(_),
                call,
            } => call.request.object().is_some_and(|object| {
                object.class == ObjectClass::Column && self.table.set_of(object) == held
            }),
            _ => false,
        };
        if waits {
            self.replicas.held.push_back((node, input));
            return None;
        }
        Some(input)
    }
}

fn done(version: Version) -> Answer {
    Ok(NodeAnswer::Done { version })
}

const fn is_change(request: &NodeRequest) -> bool {
    matches!(
        request,
        NodeRequest::Create { .. }
            | NodeRequest::Write { .. }
            | NodeRequest::Append { .. }
            | NodeRequest::Truncate { .. }
            | NodeRequest::Remove { .. }
    )
}
