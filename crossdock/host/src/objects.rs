//! The nodes' HTTP door within the host: its messages, and whose URLs count
//! (docs/decisions/0032).

use crossdock_members::NodeDoor;
use crossdock_names::{HostId, NodeId};
use crossdock_objects::{ObjectDoorEffect, ObjectDoorFigures, ObjectDoorInput};
use crossdock_peer::Port;
use crossdock_server::NodeInput;
use crossdock_types::{Time, WallTime};
use crossdock_web::ObjectGate;

use crate::host::{Host, HostEffect};
use crate::message::Message;

impl Host {
    /// Gives the nodes' HTTP door what has happened, and takes what it wants done. It asks
    /// nodes as a router does, so they answer as primaries only, under their leases.
    pub(crate) fn run_objects(&mut self, now: Time, wall: WallTime, input: ObjectDoorInput) {
        self.objects.handle(now, wall, input);
        while let Some(effect) = self.objects.poll_effect() {
            match effect {
                ObjectDoorEffect::Node(node, call) => {
                    self.queue
                        .push_back(Message::call(node, Port::Router, call));
                }
                ObjectDoorEffect::Cancel(node, id) => {
                    let from = Port::Router;
                    let cancel = NodeInput::Cancel { from, id };
                    self.queue.push_back(Message::Node(node, cancel));
                }
                ObjectDoorEffect::Postpone(node, id, by) => {
                    let from = Port::Router;
                    let postpone = NodeInput::Postpone { from, id, by };
                    self.queue.push_back(Message::Node(node, postpone));
                }
                ObjectDoorEffect::Hurry(node, id) => {
                    let from = Port::Router;
                    let resume = NodeInput::Resume { from, id };
                    self.queue.push_back(Message::Node(node, resume));
                }
                effect => self.effects.push_back(HostEffect::Objects(effect)),
            }
        }
    }

    /// Tells the nodes' HTTP door whose URLs count, if that has changed. In one process the
    /// gateway and the manager are the process itself.
    pub(crate) fn tell_object_gate(&mut self) {
        let gate = match self.registry.is_shared() {
            true => ObjectGate {
                nodes: self.nodes.keys().copied().collect(),
                minters: self.access.minters().clone(),
                holders: self.trusted_gateways().collect(),
            },
            false => ObjectGate {
                nodes: self.nodes.keys().copied().collect(),
                minters: [(self.host_id(), self.access.own().clone())].into(),
                holders: [self.host_id()].into(),
            },
        };
        if !self.nodes.is_empty() && gate != self.object_gate {
            self.object_gate = gate.clone();
            let input = ObjectDoorInput::Gate(gate);
            self.queue.push_back(Message::Objects(input));
        }
    }

    /// The live gateways that nobody has revoked.
    fn trusted_gateways(&self) -> impl Iterator<Item = HostId> {
        let state = self.registry.state();
        let gateways = state.hosts.iter().filter(|(_, record)| record.is_gateway);
        let gateways = gateways.map(|(&host, _)| HostId(host));
        gateways.filter(|&host| !state.is_revoked(host))
    }

    /// Where HTTP clients reach a node, if it has a door.
    #[must_use]
    pub fn node_door(&self, node: NodeId) -> Option<NodeDoor> {
        if !self.registry.is_shared() {
            return self.role.node_door();
        }
        let host = self.table.hosts.nodes.get(&node)?;
        self.registry.state().hosts.get(&host.0)?.node_door()
    }

    /// What the nodes' HTTP door has counted.
    #[must_use]
    pub fn object_figures(&self) -> ObjectDoorFigures {
        self.objects.figures()
    }
}
