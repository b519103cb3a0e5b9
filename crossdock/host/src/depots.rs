//! The depots of this host's nodes: each is a part of its node, and lives as long as that
//! runs (docs/ibp.md).

use crossdock_checksum::keyed_hash;
use crossdock_delivery::DiskProfile;
use crossdock_depot::{Depot, DepotConfig, DepotEffect, DepotFigures, DepotInput, DepotPolicy};
use crossdock_names::NodeId;
use crossdock_peer::{CallId, NodeError, NodeReply, NodeRequest, Port};
use crossdock_server::NodeInput;
use crossdock_types::{Time, WallTime};

use crate::host::{Host, HostEffect};
use crate::message::Message;

/// How a host's depots are set up.
pub(crate) struct DepotSettings {
    policy: DepotPolicy,
    /// Random: seeds of depots are made of it.
    seed: [u8; 32],
    /// Depots that were made.
    made_total: u64,
}

impl Host {
    /// Nodes that are started from now on have a depot; `seed` is a fresh random number.
    pub fn have_depots(&mut self, policy: DepotPolicy, seed: [u8; 32]) {
        self.depots = Some(DepotSettings {
            policy,
            seed,
            made_total: 0,
        });
    }

    /// Depots grant that from now on, and those that are made later.
    pub(crate) fn set_depot_policy(&mut self, policy: &DepotPolicy) {
        let Some(settings) = &mut self.depots else {
            return;
        };
        settings.policy = policy.clone();
        for slot in self.nodes.values().filter(|slot| slot.depot.is_some()) {
            let input = DepotInput::Policy(policy.clone());
            self.queue.push_back(Message::Depot(slot.id, input));
        }
    }

    /// What the depot of node `number` has counted, if it has one and runs.
    #[must_use]
    pub fn depot_figures(&self, number: u32) -> Option<DepotFigures> {
        let slot = self.nodes.values().find(|slot| slot.number == number)?;
        slot.depot.as_deref().map(Depot::figures)
    }

    pub(crate) fn make_depot(&mut self, id: NodeId) {
        let Some(settings) = &mut self.depots else {
            return;
        };
        settings.made_total += 1;
        let seed = keyed_hash(&settings.seed, &settings.made_total.to_be_bytes());
        let config = DepotConfig::new(settings.policy.clone(), seed);
        if let Some(slot) = self.nodes.get_mut(&id) {
            slot.depot = Some(Box::new(Depot::new(id, config)));
        }
    }

    /// The node's store is open, or cannot be opened.
    pub(crate) fn open_depot(&mut self, id: NodeId, is_open: bool) {
        match is_open {
            true => self
                .queue
                .push_back(Message::Depot(id, DepotInput::NodeOpened)),
            false => self.end_depot(id),
        }
    }

    /// The node is down: who is connected to its depot is not served any more.
    pub(crate) fn end_depot(&mut self, id: NodeId) {
        let Some(slot) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(depot) = slot.depot.take() else {
            return;
        };
        let number = slot.number;
        let callers: Vec<_> = depot.callers().collect();
        let connections = depot.into_connections();
        for (from, call) in callers {
            self.refuse_share(id, from, call);
        }
        for connection in connections {
            self.effects.push_back(HostEffect::Depot {
                number,
                effect: DepotEffect::Abort(connection),
            });
        }
    }

    /// What is for a node's depot rather than for the node goes there.
    pub(crate) fn share(&mut self, id: NodeId, input: NodeInput) -> Option<NodeInput> {
        match input {
            NodeInput::Call { from, call } if matches!(call.request, NodeRequest::Share { .. }) => {
                let slot = self.nodes.get(&id);
                match slot.is_some_and(|slot| slot.depot.is_some()) {
                    true => {
                        let input = DepotInput::Share { from, call };
                        self.queue.push_back(Message::Depot(id, input));
                    }
                    false => self.refuse_share(id, from, call.id),
                }
                None
            }
            input => Some(input),
        }
    }

    /// The node, or its depot, is down.
    fn refuse_share(&mut self, node: NodeId, from: Port, id: CallId) {
        let outcome = Err(NodeError::Unavailable { node });
        self.answer_node(node, from, NodeReply { id, outcome });
    }

    pub(crate) fn take_depot_input(&mut self, number: u32, input: DepotInput) {
        let slot = self.nodes.values().find(|slot| slot.number == number);
        let Some(slot) = slot else { return };
        match (&slot.depot, input) {
            (Some(_), input) => self.queue.push_back(Message::Depot(slot.id, input)),
            (None, DepotInput::Opened { id, .. }) => self.effects.push_back(HostEffect::Depot {
                number,
                effect: DepotEffect::Abort(id),
            }),
            (None, _) => {}
        }
    }

    pub(crate) fn run_depot(&mut self, now: Time, wall: WallTime, id: NodeId, input: DepotInput) {
        let Some(slot) = self.nodes.get_mut(&id) else {
            return;
        };
        let (Some(node), Some(depot)) = (&slot.node, slot.depot.as_deref_mut()) else {
            return;
        };
        let (number, from) = (slot.number, Port::Depot);
        let space = node.store().status();
        depot.set_space(space.capacity_bytes, space.free_bytes);
        depot.handle(now, wall, input);
        let mut answers = Vec::new();
        while let Some(effect) = depot.poll_effect() {
            let to_node = match effect {
                DepotEffect::Node(call) => NodeInput::Call { from, call },
                DepotEffect::Cancel(id) => NodeInput::Cancel { from, id },
                DepotEffect::Postpone(id, by) => NodeInput::Postpone { from, id, by },
                DepotEffect::Hurry(id) => NodeInput::Resume { from, id },
                DepotEffect::Shared { to, reply } => {
                    answers.push((to, reply));
                    continue;
                }
                DepotEffect::Warning(what) => {
                    let what = format!("node {number}: {what}");
                    self.effects.push_back(HostEffect::Warning(what));
                    continue;
                }
                effect => {
                    let effect = HostEffect::Depot { number, effect };
                    self.effects.push_back(effect);
                    continue;
                }
            };
            self.queue.push_back(Message::Node(id, to_node));
        }
        for (to, reply) in answers {
            self.answer_node(id, to, reply);
        }
    }

    pub(crate) fn depot_due(&self) -> Option<Time> {
        let depots = self.nodes.values().filter_map(|slot| slot.depot.as_deref());
        depots.filter_map(Depot::poll_timeout).min()
    }

    pub(crate) fn wake_depots(&mut self, now: Time) {
        for slot in self.nodes.values() {
            let due = slot.depot.as_deref().and_then(Depot::poll_timeout);
            if due.is_some_and(|due| due <= now) {
                let timeout = Message::Depot(slot.id, DepotInput::Timeout);
                self.queue.push_back(timeout);
            }
        }
    }

    /// What the disk of a node is like its depot is told, too.
    pub(crate) fn tell_depot_disk(&mut self, node: NodeId, profile: DiskProfile) {
        let slot = self.nodes.get(&node);
        if slot.is_some_and(|slot| slot.depot.is_some()) {
            let input = DepotInput::Disk(profile);
            self.queue.push_back(Message::Depot(node, input));
        }
    }

    /// No depot takes more requests.
    pub fn stop_depots(&mut self) {
        for slot in self.nodes.values().filter(|slot| slot.depot.is_some()) {
            self.queue
                .push_back(Message::Depot(slot.id, DepotInput::Stop));
        }
    }
}
