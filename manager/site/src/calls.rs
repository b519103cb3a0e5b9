//! Calls to nodes: resent until they are answered.
//!
//! Every request that a site sends may be repeated without harm, so a busy or
//! unreachable node is asked again, with growing pauses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_names::{Epoch, NodeId, RoutingTable, Version};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order};
use crossdock_types::Time;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To this node, until it answers.
    Node(NodeId),
    /// To this node; if it cannot be reached another one is tried by the caller.
    Replica(NodeId),
    /// To the primary of the object's set, whichever node that is then.
    Primary,
}

/// An answer, with what it was asked for.
#[derive(Debug)]
pub(crate) struct Answered<P> {
    pub(crate) purpose: P,
    pub(crate) node: NodeId,
    pub(crate) request: NodeRequest,
    pub(crate) outcome: Result<NodeAnswer, NodeError>,
}

#[derive(Debug)]
pub(crate) struct Calls<P> {
    next_id: u64,
    pending: BTreeMap<CallId, Pending<P>>,
    /// When each of them is looked at again.
    wakes: BTreeSet<(Time, CallId)>,
    pub(crate) effects: VecDeque<(NodeId, Call<NodeRequest>)>,
}

#[derive(Debug)]
struct Pending<P> {
    target: Target,
    /// The node that has it now; `None` while it waits to be sent again.
    sent_to: Option<NodeId>,
    request: NodeRequest,
    purpose: P,
    attempts: u32,
    wake: Time,
}

/// When a node that has not answered at all is asked again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl<P> Calls<P> {
    /// The calls of one opening: an answer to an earlier one's is to none of them.
    pub(crate) const fn of_epoch(epoch: Epoch) -> Self {
        Self {
            next_id: epoch.0.wrapping_shl(32) | 1,
            pending: BTreeMap::new(),
            wakes: BTreeSet::new(),
            effects: VecDeque::new(),
        }
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        table: &RoutingTable,
        target: Target,
        request: NodeRequest,
        purpose: P,
    ) {
        let id = CallId(self.next_id);
        self.next_id += 1;
        let pending = Pending {
            target,
            sent_to: None,
            request,
            purpose,
            attempts: 0,
            wake: now,
        };
        self.pending.insert(id, pending);
        self.transmit(now, table, id);
    }

    /// Takes a reply; `None` if it is not the end of the call.
    pub(crate) fn answered(&mut self, now: Time, reply: NodeReply) -> Option<Answered<P>> {
        let pending = self.pending.get_mut(&reply.id)?;
        let node = pending.sent_to?;
        let another = matches!(pending.target, Target::Replica(_));
        let pause = match &reply.outcome {
            Err(NodeError::Busy { retry_after_ms }) => {
                Some(Duration::from_millis((*retry_after_ms).into()))
            }
            Err(NodeError::StaleTable { .. }) => Some(PAUSE_MIN),
            Err(NodeError::Unavailable { .. }) if !another => Some(PAUSE_MIN),
            _ => None,
        };
        if let Some(pause) = pause {
            self.retry_later(now, reply.id, pause);
            return None;
        }
        self.wakes.remove(&(pending.wake, reply.id));
        let pending = self.pending.remove(&reply.id)?;
        Some(Answered {
            purpose: pending.purpose,
            node,
            request: pending.request,
            outcome: reply.outcome,
        })
    }

    /// Sends a request again, after the longest pause: it met an error that
    /// may pass.
    pub(crate) fn send_again(&mut self, now: Time, target: Target, answered: Answered<P>) {
        let id = CallId(self.next_id);
        self.next_id += 1;
        let pending = Pending {
            target,
            sent_to: None,
            request: answered.request,
            purpose: answered.purpose,
            attempts: 0,
            wake: now + PAUSE_MAX,
        };
        self.wakes.insert((pending.wake, id));
        self.pending.insert(id, pending);
    }

    /// Sends what is due; returns what is given up.
    pub(crate) fn timeout(&mut self, now: Time, table: &RoutingTable) -> Vec<Answered<P>> {
        let mut given_up = Vec::new();
        while let Some(&(wake, id)) = self.wakes.first() {
            if wake > now {
                break;
            }
            self.wakes.pop_first();
            let Some(pending) = self.pending.get(&id) else {
                continue;
            };
            match (pending.target, pending.sent_to) {
                (Target::Replica(_), Some(node)) => {
                    if let Some(pending) = self.pending.remove(&id) {
                        given_up.push(Answered {
                            purpose: pending.purpose,
                            node,
                            request: pending.request,
                            outcome: Err(NodeError::Unavailable { node }),
                        });
                    }
                }
                _ => self.transmit(now, table, id),
            }
        }
        given_up
    }

    /// Takes back what was asked of nodes that do not count any more.
    pub(crate) fn withdraw(&mut self, counts: impl Fn(NodeId) -> bool) -> Vec<Answered<P>> {
        let gone = |pending: &mut Pending<P>| match pending.target {
            Target::Node(node) => !counts(node),
            Target::Replica(_) | Target::Primary => false,
        };
        let withdrawn: Vec<_> = self
            .pending
            .extract_if(.., |_, pending| gone(pending))
            .collect();
        let mut answers = Vec::with_capacity(withdrawn.len());
        for (id, pending) in withdrawn {
            self.wakes.remove(&(pending.wake, id));
            if let Target::Node(node) = pending.target {
                answers.push(Answered {
                    purpose: pending.purpose,
                    node,
                    request: pending.request,
                    outcome: Ok(NodeAnswer::Done {
                        version: Version::NONE,
                    }),
                });
            }
        }
        answers
    }

    /// Forgets all calls but those for the purposes that `stays` picks.
    pub(crate) fn keep(&mut self, stays: impl Fn(&P) -> bool) {
        let gone = self.pending.extract_if(.., |_, call| !stays(&call.purpose));
        for (id, call) in gone {
            self.wakes.remove(&(call.wake, id));
        }
    }

    /// Asks everybody again at once: the table has changed.
    pub(crate) fn retry_now(&mut self, now: Time, table: &RoutingTable) {
        let waiting: Vec<CallId> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.sent_to.is_none())
            .map(|(&id, _)| id)
            .collect();
        for id in waiting {
            self.transmit(now, table, id);
        }
    }

    /// The first of the versions that were given to changes which have not been answered.
    pub(crate) fn first_given(&self) -> Option<Version> {
        let requests = self.pending.values().map(|pending| &pending.request);
        requests.filter_map(given_version).min()
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|&(wake, _)| wake)
    }

    fn transmit(&mut self, now: Time, table: &RoutingTable, id: CallId) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        self.wakes.remove(&(pending.wake, id));
        let node = match pending.target {
            Target::Node(node) | Target::Replica(node) => Some(node),
            Target::Primary => pending
                .request
                .object()
                .and_then(|object| table.members_of(object)?.members.first().copied()),
        };
        pending.attempts += 1;
        let Some(node) = node else {
            self.retry_later(now, id, PAUSE_MIN); // No member is left for now.
            return;
        };
        stamp_table_epoch(&mut pending.request, table);
        pending.sent_to = Some(node);
        pending.wake = now + ANSWER_PATIENCE;
        self.wakes.insert((pending.wake, id));
        let call = Call {
            id,
            deadline: now + ANSWER_PATIENCE,
            request: pending.request.clone(),
        };
        self.effects.push_back((node, call));
    }

    fn retry_later(&mut self, now: Time, id: CallId, pause_min: Duration) {
        if let Some(pending) = self.pending.get_mut(&id) {
            let grown = PAUSE_MIN * 2u32.saturating_pow(pending.attempts.min(10));
            let pause = grown.max(pause_min).min(PAUSE_MAX);
            self.wakes.remove(&(pending.wake, id));
            pending.sent_to = None;
            pending.wake = now + pause;
            self.wakes.insert((pending.wake, id));
        }
    }
}

/// The version that the site has given to bytes.
const fn given_version(request: &NodeRequest) -> Option<Version> {
    match request {
        NodeRequest::Write {
            order: Order::Given(version),
            ..
        }
        | NodeRequest::Zero {
            order: Order::Given(version),
            ..
        } => Some(*version),
        _ => None,
    }
}

/// A request that waited is sent under the table of now.
fn stamp_table_epoch(request: &mut NodeRequest, table: &RoutingTable) {
    match request {
        NodeRequest::Create { context, .. }
        | NodeRequest::Write { context, .. }
        | NodeRequest::Truncate { context, .. }
        | NodeRequest::Zero { context, .. }
        | NodeRequest::Remove { context, .. }
        | NodeRequest::SetAttributes { context, .. } => context.table_epoch = table.epoch,
        NodeRequest::Read { .. }
        | NodeRequest::Commit { .. }
        | NodeRequest::Append { .. }
        | NodeRequest::Seal { .. }
        | NodeRequest::Repair { .. }
        | NodeRequest::Stat { .. }
        | NodeRequest::Mapped { .. }
        | NodeRequest::List { .. }
        | NodeRequest::Changes { .. }
        | NodeRequest::Pin { .. }
        | NodeRequest::Unpin { .. }
        | NodeRequest::Ahead { .. }
        | NodeRequest::Share { .. }
        | NodeRequest::Exchange { .. }
        | NodeRequest::Copy { .. } => {} // No site asks that.
    }
}
