//! When members of replica sets are made equal: before anything is served after
//! a start, and when a node comes back while the others serve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use crossdock_members::{Change, SITE_SETS, SetRecord};
use crossdock_names::{Epoch, NodeId, ObjectClass, SetId, Version};
use crossdock_peer::{Call, Port};
use crossdock_server::NodeInput;
use crossdock_types::Time;

use crate::equalize::{Answer, Equalize, Pair, Question};
use crate::host::{Host, HostEffect};
use crate::message::{EQUALIZE_CALL, Message};
use crate::mutation::Mutation;
use crate::nodes::NodeState;

/// What the primary of a data set orders.
const COLUMNS: &[ObjectClass] = &[ObjectClass::Column];

/// What a site keeps on its set besides its log, which it makes equal itself.
const SITE_OBJECTS: &[ObjectClass] = &[ObjectClass::SmallFiles];

/// What a member that comes back into a site's set needs.
const ALL_SITE_OBJECTS: &[ObjectClass] = &[
    ObjectClass::SiteLog,
    ObjectClass::Checkpoint,
    ObjectClass::SmallFiles,
];

/// Pairs to be made equal, the one under way, and the calls that wait for it.
#[derive(Default)]
pub(crate) struct Replicas {
    planned: VecDeque<Pair>,
    current: Option<Equalize>,
    held: VecDeque<(NodeId, NodeInput)>,
    /// Which node has been asked and has not answered.
    asked: Option<NodeId>,
    /// The answer is of no use any more: its pair was given up.
    is_stale: bool,
    is_start_planned: bool,
    /// A set whose members are equal, and the epoch under which the registry was
    /// asked to say so.
    settling: Option<(SetId, u64)>,
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

    /// The set whose changes wait.
    fn held_set(&self) -> Option<SetId> {
        let pair = self
            .current
            .as_ref()
            .map(|current| &current.pair)
            .or_else(|| self.planned.front());
        let settling = self.settling.map(|(set, _)| set);
        settling.or_else(|| pair.map(|pair| pair.set))
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
                let is_member = record.members.contains(&target);
                self.plan(SetId(id), &record, NodeId(target), is_member);
            }
        }
    }

    /// Plans a pair unless it is planned.
    pub(crate) fn plan_once(
        &mut self,
        set: SetId,
        record: &SetRecord,
        target: NodeId,
        is_member: bool,
    ) {
        let current = self.replicas.current.as_ref().map(|current| &current.pair);
        let mut pairs = self.replicas.planned.iter().chain(current);
        let is_planned = pairs.any(|pair| pair.set == set && pair.target == target)
            || self
                .replicas
                .settling
                .is_some_and(|(settling, _)| settling == set);
        if !is_planned {
            self.plan(set, record, target, is_member);
        }
    }

    fn plan(&mut self, set: SetId, record: &SetRecord, target: NodeId, is_member: bool) {
        let Some(&source) = record.members.first() else {
            return;
        };
        if !self.is_running(NodeId(source)) || !self.is_running(target) {
            return;
        }
        let classes = match (set.0 < SITE_SETS, is_member) {
            (true, _) => COLUMNS,
            (false, true) => SITE_OBJECTS,
            (false, false) => ALL_SITE_OBJECTS,
        };
        // Versions of columns begin with the set's epoch. Those of a site's objects
        // begin with the site's, of which the set's record says nothing.
        let since = match set.0 < SITE_SETS {
            true => Version::first_of(Epoch(record.differs_since)),
            false => Version::NONE,
        };
        self.replicas.planned.push_back(Pair {
            set,
            source: NodeId(source),
            target,
            since,
            epoch: record.epoch,
            is_serving: self.is_ready || self.registry.is_shared() && set.0 < SITE_SETS,
            classes,
            table: Arc::clone(&self.table),
        });
    }

    /// Nothing is made equal to or from a node that has stopped.
    pub(crate) fn forget_pairs_of(&mut self, node: NodeId) {
        // It will not answer.
        if self.replicas.asked == Some(node) {
            self.replicas.asked = None;
            self.replicas.is_stale = false;
        }
        let names = |pair: &Pair| pair.source == node || pair.target == node;
        self.forget_pairs(names, &format!("node {node} was stopped"));
    }

    /// Gives up what was planned for other members than there are now, and goes
    /// on with sets that have become what they were to become.
    pub(crate) fn abort_outdated_pairs(&mut self) {
        let state = self.registry.state();
        let epochs: std::collections::BTreeMap<u32, u64> = state
            .sets
            .iter()
            .map(|(&id, set)| (id, set.epoch))
            .collect();
        let is_outdated = |set: SetId, epoch: u64| epochs.get(&set.0) != Some(&epoch);
        self.forget_pairs(
            |pair| is_outdated(pair.set, pair.epoch),
            "its set has changed",
        );
        if let Some((set, epoch)) = self.replicas.settling
            && is_outdated(set, epoch)
        {
            self.replicas.settling = None;
        }
        self.release_held();
    }

    fn forget_pairs(&mut self, is_one: impl Fn(&Pair) -> bool, why: &str) {
        self.replicas.planned.retain(|pair| !is_one(pair));
        let current = self.replicas.current.as_ref();
        if current.is_some_and(|current| is_one(&current.pair)) {
            self.replicas.is_stale = self.replicas.asked.is_some();
            self.finish_equalize(Err(why.to_owned()));
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

    /// Begins with the next pair once no change of its set is under way.
    pub(crate) fn begin_equalize(&mut self) {
        let is_settling = self.replicas.settling.is_some();
        if self.replicas.current.is_some() || self.replicas.is_stale || is_settling {
            return;
        }
        let Some(pair) = self.replicas.planned.front() else {
            return;
        };
        let source = self
            .nodes
            .get(&pair.source)
            .and_then(|slot| slot.node.as_ref());
        if source.is_some_and(|node| node.is_changing(pair.set)) {
            return;
        }
        if let Some(mut pair) = self.replicas.planned.pop_front() {
            pair.table = Arc::clone(&self.table);
            self.replicas.current = Some(Equalize::new(pair));
            match self.has(Mutation::JoinUnequal) {
                true => self.finish_equalize(Ok(())),
                false => self.step_equalize(None),
            }
        }
    }

    pub(crate) fn step_equalize(&mut self, answer: Option<Answer>) {
        self.replicas.asked = None;
        if std::mem::take(&mut self.replicas.is_stale) {
            return;
        }
        let Some(current) = &mut self.replicas.current else {
            return;
        };
        match current.step(answer) {
            Poll::Pending => {
                if let Some(question) = current.question() {
                    self.replicas.asked = Some(question.0);
                    self.queue.push_back(message(question));
                }
            }
            Poll::Ready(result) => self.finish_equalize(result),
        }
    }

    fn finish_equalize(&mut self, result: Result<(), String>) {
        let Some(Equalize { pair, .. }) = self.replicas.current.take() else {
            return;
        };
        let more = self
            .replicas
            .planned
            .iter()
            .any(|other| other.set == pair.set);
        let Some(record) = self.registry.state().sets.get(&pair.set.0) else {
            return;
        };
        let expected = record.epoch;
        let mut is_tried_again = false;
        let change = match result {
            // Others have changed it meanwhile.
            _ if self.registry.is_shared() && record.epoch != pair.epoch => None,
            Ok(()) if more => None,
            Ok(())
                if record
                    .home
                    .iter()
                    .all(|&home| self.is_running(NodeId(home))) =>
            {
                Some(Change::SetEqual {
                    set: pair.set.0,
                    expected,
                })
            }
            // Others of its home are still away.
            Ok(()) => {
                let joined = |home: &&u64| record.members.contains(home) || **home == pair.target.0;
                let members = record.home.iter().filter(joined).copied().collect();
                Some(Change::SetMembers {
                    set: pair.set.0,
                    expected,
                    members,
                })
            }
            // It is not in the set, and will be tried again.
            Err(_) if self.registry.is_shared() && !record.members.contains(&pair.target.0) => {
                is_tried_again = true;
                None
            }
            Err(reason) => {
                self.effects.push_back(HostEffect::Warning(format!(
                    "node {} stays out of replica set {}: {reason}",
                    pair.target, pair.set
                )));
                let left = |&&member: &&u64| member != pair.target.0;
                let members = record.members.iter().filter(left).copied().collect();
                Some(Change::SetMembers {
                    set: pair.set.0,
                    expected,
                    members,
                })
            }
        };
        if let Some(change) = change {
            self.propose(change);
            if self.registry.is_shared() {
                self.replicas.settling = Some((pair.set, expected));
            }
        }
        self.spread_table();
        if self.replicas.held_set() != Some(pair.set) {
            self.release_held();
        }
        match is_tried_again {
            true => self.following.fail(),
            false => self.following.want(),
        }
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

fn message((node, request): Question) -> Message {
    let call = Call {
        id: EQUALIZE_CALL,
        deadline: Time(u64::MAX),
        request,
    };
    Message::call(node, Port::Host, call)
}
