//! Removes from the nodes of this host what they hold no copy of any more: objects
//! of sets of which a node is neither a home nor a member. A node may have lost its
//! home while it was away, or died in the middle of this: so every node is looked
//! through when its process has joined, and again whenever it loses a set.
//!
//! A set may come back to the node meanwhile. Who copies it does so by a later table,
//! whose messages come here after this host has taken that table (0016), and what was
//! asked of a store before is done before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_members::{SITE_SETS, State};
use crossdock_names::{Epoch, NodeId, ObjectClass, ObjectId, SetId, Version};
use crossdock_peer::{Call, NodeAnswer, NodeError, NodeRequest, Order, Port, WriteContext};
use crossdock_types::Time;

use crate::equalize::LIST_LIMIT;
use crate::host::Host;
use crate::message::{Message, SWEEP_CALL};
use crate::nodes::NodeState;

const CLASSES: [ObjectClass; 4] = [
    ObjectClass::Column,
    ObjectClass::SiteLog,
    ObjectClass::Checkpoint,
    ObjectClass::SmallFiles,
];

/// What is being looked through.
#[derive(Default)]
pub(crate) struct Sweeps {
    wanted: BTreeSet<NodeId>,
    current: Option<Sweep>,
    /// The sets that each node here had something of, by the last state.
    had: BTreeMap<NodeId, BTreeSet<SetId>>,
    /// Objects that were removed.
    pub(crate) removed_total: u64,
}

struct Sweep {
    node: NodeId,
    /// Which of [`CLASSES`] are left, the current one first.
    classes: VecDeque<ObjectClass>,
    after: Option<ObjectId>,
    garbage: VecDeque<ObjectId>,
    is_asking: bool,
}

impl Host {
    /// The sets have other homes or members.
    pub(crate) fn find_lost_sets(&mut self) {
        let state = self.registry.state();
        for &node in self.nodes.keys() {
            let has = sets_of(state, node);
            let had = self.sweeps.had.insert(node, has.clone());
            if had.is_none_or(|had| !had.is_subset(&has)) {
                self.sweeps.wanted.insert(node);
            }
        }
    }

    /// Begins with the next node, or goes on.
    pub(crate) fn sweep(&mut self) {
        if !self.following.has_joined {
            return;
        }
        if self.sweeps.current.is_none() {
            let mut wanted = self.sweeps.wanted.iter().copied();
            let ready = |node: &NodeId| {
                let slot = self.nodes.get(node);
                slot.is_some_and(|slot| slot.state == NodeState::Running)
            };
            let Some(node) = wanted.find(ready) else {
                return;
            };
            self.sweeps.wanted.remove(&node);
            self.sweeps.current = Some(Sweep {
                node,
                classes: CLASSES.into(),
                after: None,
                garbage: VecDeque::new(),
                is_asking: false,
            });
        }
        let state = self.registry.state();
        let Some(sweep) = self
            .sweeps
            .current
            .as_mut()
            .filter(|sweep| !sweep.is_asking)
        else {
            return;
        };
        let ours = sets_of(state, sweep.node);
        let is_lost = |object: &ObjectId| !ours.contains(&self.table.set_of(object));
        let garbage = std::iter::from_fn(|| sweep.garbage.pop_front()).find(is_lost);
        let request = match (garbage, sweep.classes.front()) {
            (Some(object), _) => {
                self.sweeps.removed_total += 1;
                let (version, context) = fences(state, &object);
                NodeRequest::Remove {
                    object,
                    context,
                    order: Order::Given(version),
                }
            }
            (None, Some(&class)) => NodeRequest::List {
                class,
                placement: None,
                after: sweep.after,
                limit: LIST_LIMIT,
            },
            (None, None) => {
                self.sweeps.current = None;
                return;
            }
        };
        sweep.is_asking = true;
        let call = Call {
            id: SWEEP_CALL,
            deadline: Time(u64::MAX),
            request,
        };
        let message = Message::call(sweep.node, Port::Host, call);
        self.queue.push_back(message);
    }

    pub(crate) fn take_swept(&mut self, answer: Result<NodeAnswer, NodeError>) {
        let Some(sweep) = &mut self.sweeps.current else {
            return;
        };
        sweep.is_asking = false;
        match answer {
            Ok(NodeAnswer::List { objects, more }) => {
                sweep.after = objects.last().copied().filter(|_| more);
                if sweep.after.is_none() {
                    sweep.classes.pop_front();
                }
                sweep.garbage = objects.into();
            }
            Ok(_) | Err(NodeError::NoObject) => {}
            // It is looked through again when it has started anew, or lost another set.
            Err(_) => self.sweeps.current = None,
        }
    }
}

/// Sets that a node is to hold something of.
fn sets_of(state: &State, node: NodeId) -> BTreeSet<SetId> {
    let sets = state.sets.iter();
    let has = sets.filter(|(_, set)| set.home.contains(&node.0) || set.members.contains(&node.0));
    has.map(|(&id, _)| SetId(id)).collect()
}

/// As whoever is in charge of the object now.
fn fences(state: &State, object: &ObjectId) -> (Version, WriteContext) {
    let site = usize::try_from(object.placement).unwrap_or(usize::MAX);
    let site = state
        .sites
        .get(site)
        .filter(|_| object.class != ObjectClass::Column);
    let site_epoch = site.map(|site| Epoch(site.0));
    let context = WriteContext {
        site_epoch: site_epoch.unwrap_or_default(),
        ..WriteContext::default()
    };
    let newest = state
        .sets
        .range(..SITE_SETS)
        .map(|(_, set)| Epoch(set.epoch))
        .max();
    let epoch = site_epoch.or(newest).unwrap_or_default();
    (Version::first_of(epoch), context)
}
