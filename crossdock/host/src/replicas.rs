//! When members of replica sets are made equal: before anything is served after
//! a start, and when a node comes back while the others serve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use crossdock_members::{Change, SITE_SETS, SetRecord};
use crossdock_names::{Epoch, NodeId, ObjectClass, SetId, Version};
use crossdock_peer::Call;
use crossdock_server::{NodeInput, Party};
use crossdock_store::StoreInput;
use crossdock_types::Time;

use crate::equalize::{Answer, Equalize, Pair, Question};
use crate::host::{Host, HostEffect};
use crate::message::{EQUALIZE_CALL, Message};
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
}

impl Replicas {
    /// Whether all pairs are equal.
    pub(crate) fn is_idle(&self) -> bool {
        self.planned.is_empty() && self.current.is_none()
    }

    /// The set whose changes wait.
    fn held_set(&self) -> Option<SetId> {
        let pair = self
            .current
            .as_ref()
            .map(|current| &current.pair)
            .or_else(|| self.planned.front());
        pair.map(|pair| pair.set)
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

    /// While others serve: the data sets that `node` had to leave. (Sets of
    /// sites take it back at the next start.)
    pub(crate) fn plan_return_of(&mut self, node: NodeId) {
        for (id, record) in self.registry.state().sets.clone() {
            if id < SITE_SETS && record.home.contains(&node.0) && !record.members.contains(&node.0)
            {
                self.plan(SetId(id), &record, node, false);
            }
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
            is_serving: self.is_ready,
            classes,
            table: Arc::clone(&self.table),
        });
    }

    /// Nothing is made equal to or from a node that has stopped.
    pub(crate) fn forget_pairs_of(&mut self, node: NodeId) {
        let names = |pair: &Pair| pair.source == node || pair.target == node;
        self.replicas.planned.retain(|pair| !names(pair));
        // It will not answer.
        if self.replicas.asked == Some(node) {
            self.replicas.asked = None;
            self.replicas.is_stale = false;
        }
        let current = self.replicas.current.as_ref();
        if current.is_some_and(|current| names(&current.pair)) {
            self.replicas.is_stale = self.replicas.asked.is_some();
            self.finish_equalize(Err(format!("node {node} was stopped")));
        }
    }

    fn is_running(&self, id: NodeId) -> bool {
        self.nodes
            .get(&id)
            .is_some_and(|slot| slot.state == NodeState::Running)
    }

    /// Begins with the next pair once no change of its set is under way.
    pub(crate) fn begin_equalize(&mut self) {
        if self.replicas.current.is_some() || self.replicas.is_stale {
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
            self.step_equalize(None);
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
                    self.replicas.asked = Some(question.node());
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
        let change = match result {
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
        if let Some(change) = change
            && let Err(error) = self.registry.change(change)
        {
            self.effects.push_back(HostEffect::Failed(format!(
                "cannot write the registry: {error}"
            )));
        }
        self.spread_table();
        if self.replicas.held_set() != Some(pair.set) {
            let held = std::mem::take(&mut self.replicas.held);
            self.queue.extend(
                held.into_iter()
                    .map(|(node, input)| Message::Node(node, input)),
            );
        }
    }

    /// Keeps a gateway's or site's call on a set that is being made equal until
    /// it is; gives back what need not wait. Their own bounds bound the queue.
    pub(crate) fn hold(&mut self, node: NodeId, input: NodeInput) -> Option<NodeInput> {
        let Some(held) = self.replicas.held_set() else {
            return Some(input);
        };
        let waits = match &input {
            NodeInput::Call {
                from: Party::Router | Party::Site(_),
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

fn message(question: Question) -> Message {
    match question {
        Question::Changes { node, since, after } => Message::Node(
            node,
            NodeInput::Store(StoreInput::ListChanges { since, after }),
        ),
        Question::Call { node, request } => {
            let call = Call {
                id: EQUALIZE_CALL,
                deadline: Time(u64::MAX),
                request: *request,
            };
            Message::call(node, Party::Host, call)
        }
    }
}
