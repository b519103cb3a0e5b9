//! Nodes are drained, added, removed and lost in the middle of everything else; in
//! the end every set is whole, its members have the same bytes, and no node has
//! anything of a set that is not its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_members::{Change, HostRecord, Placement};
use crossdock_names::{HostId, NodeId, ObjectClass, ObjectId, RoutingTable};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ReadVersion};

use super::driver::Driver;
use super::network::Place;

/// Nodes beyond those that an ensemble was made with, at most.
const ADDED_MAX: usize = 2;

/// How long it may take, after all is mended, until every set is whole.
const PATIENCE: Duration = Duration::from_secs(120);

const CLASSES: [ObjectClass; 4] = [
    ObjectClass::Column,
    ObjectClass::SiteLog,
    ObjectClass::Checkpoint,
    ObjectClass::SmallFiles,
];

/// What a node holds: each object's bytes.
type Holdings = BTreeMap<ObjectId, Vec<u8>>;

impl Driver {
    /// An administrator changes what belongs where.
    pub(super) fn rearrange(&mut self) {
        if self.random.one_in(3) {
            return self.change_managers();
        }
        let nodes = self.world.service.state.nodes.clone();
        let Some(node) = self.random.pick(&nodes).cloned() else {
            return;
        };
        let number = node.number;
        let placement = match self.random.below(8) {
            0..3 => Placement::Drain {
                number,
                drains: true,
            },
            3 => Placement::Drain {
                number,
                drains: false,
            },
            4 if nodes.len() < self.shape.nodes as usize + ADDED_MAX => {
                let number = nodes.iter().map(|node| node.number).max().unwrap_or(0) + 1;
                let id = self.random.next_u64();
                self.world.add_machine(HostRecord {
                    nodes: vec![id],
                    ..HostRecord::default()
                });
                Placement::Add { number, id }
            }
            5 => Placement::Remove { number },
            6 => Placement::Replace { number, id: None },
            _ => {
                let id = self.random.next_u64();
                if let Some(place) = self.world.place_of_node(node.id) {
                    self.kill(place);
                    self.world.loses_files(place, id);
                }
                Placement::Replace {
                    number,
                    id: Some(id),
                }
            }
        };
        let running = (0..self.world.places()).filter(|&place| self.world.is_running(place));
        let running: Vec<Place> = running.collect();
        if let Some(&place) = self.random.pick(&running) {
            self.note(|| format!("process {place} is asked for {placement:?}"));
            self.world.propose(place, Change::Place(placement));
        }
    }

    /// A manager comes, or one goes in order.
    fn change_managers(&mut self) {
        let managers = self.world.managers();
        let Some(&place) = self.random.pick(&managers) else {
            return;
        };
        match self.random.below(3) {
            0 if managers.len() <= self.shape.managers as usize => {
                self.note(|| "another manager comes".to_owned());
                self.world.add_machine(HostRecord {
                    is_manager: true,
                    ..HostRecord::default()
                });
            }
            1 => {
                let asked = self.random.pick(&managers).copied().unwrap_or(place);
                if let Some(HostId(host)) = self.world.host_at(place) {
                    self.note(|| format!("manager {place} is to go, says {asked}"));
                    self.world.propose(asked, Change::Retire { host });
                }
            }
            _ => {
                self.note(|| format!("manager {place} is stopped"));
                self.world.stop(place);
            }
        }
    }

    /// Waits until all homes of every set are its members, and nobody else is.
    pub(super) fn wait_until_whole(&mut self) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        while self.world.now < deadline {
            if self.missing().is_none() {
                return Ok(());
            }
            self.settle(Duration::from_millis(100))?;
        }
        Err(self.missing().unwrap_or_default())
    }

    /// Which of a set's homes is its primary is not asked: it may have stayed the one that
    /// it was.
    pub(super) fn missing(&self) -> Option<String> {
        let state = &self.world.service.state;
        let short = state.sets.iter().find(|(_, set)| {
            let is_there = |home: &u64| set.members.contains(home);
            set.leaving().next().is_some() || !set.home.iter().all(is_there)
        });
        short.map(|(id, set)| format!("set {id} is not made whole: {set:?}"))
    }

    /// Compares what the members of every set hold. Nodes are read one after the other
    /// while sites settle what clients have left: only what differs again counts.
    pub(super) fn compare_replicas(&mut self) -> Result<(), String> {
        if self.compare_once().is_ok() {
            return Ok(());
        }
        self.settle(Duration::from_secs(1))?;
        self.compare_once()
    }

    fn compare_once(&mut self) -> Result<(), String> {
        let state = self.world.service.state.clone();
        let table = state.table();
        let mut held: BTreeMap<NodeId, Holdings> = BTreeMap::new();
        for record in &state.nodes {
            if let Some(place) = self.world.place_of_node(record.id) {
                let holdings = self.holdings(place, record.number)?;
                held.insert(NodeId(record.id), holdings);
            }
        }
        for (node, holdings) in &held {
            for object in holdings.keys() {
                check_object(&table, &held, *node, object)?;
            }
        }
        Ok(())
    }

    fn holdings(&mut self, place: Place, number: u32) -> Result<Holdings, String> {
        let mut found = Holdings::new();
        for class in CLASSES {
            let mut after = None;
            loop {
                let list = NodeRequest::List {
                    class,
                    placement: None,
                    after,
                    limit: 1000,
                };
                let Ok(NodeAnswer::List { objects, more }) = self.ask(place, number, list)? else {
                    return Err(format!("node {number} does not list its objects"));
                };
                after = objects.last().copied();
                for object in objects {
                    let bytes = self.bytes_of(place, number, object)?;
                    found.insert(object, bytes);
                }
                if !more {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn bytes_of(&mut self, place: Place, number: u32, object: ObjectId) -> Result<Vec<u8>, String> {
        let stat = self.ask(place, number, NodeRequest::Stat { object })?;
        let Ok(NodeAnswer::Stat(stat)) = stat else {
            return Err(format!("node {number} does not tell of {object}: {stat:?}"));
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < stat.size_bytes {
            let offset_bytes = bytes.len() as u64;
            let read = NodeRequest::Read {
                object,
                offset_bytes,
                length_bytes: (stat.size_bytes - offset_bytes).min(1 << 20),
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            match self.ask(place, number, read)? {
                Ok(NodeAnswer::Read { payload, .. }) if !payload.is_empty() => {
                    bytes.extend_from_slice(&payload.to_bytes());
                }
                other => return Err(format!("node {number} does not read {object}: {other:?}")),
            }
        }
        Ok(bytes)
    }

    fn ask(
        &mut self,
        place: Place,
        number: u32,
        request: NodeRequest,
    ) -> Result<Result<NodeAnswer, NodeError>, String> {
        self.world.ask_node(place, number, request)?;
        let deadline = self.world.now + PATIENCE;
        while self.world.now < deadline {
            if let Some(answer) = self.world.node_answer(place) {
                return Ok(answer);
            }
            self.world.step(deadline)?;
        }
        Err(format!("node {number} does not answer"))
    }
}

/// Whether every member of an object's set has it, with these bytes, and nobody else.
fn check_object(
    table: &RoutingTable,
    held: &BTreeMap<NodeId, Holdings>,
    node: NodeId,
    object: &ObjectId,
) -> Result<(), String> {
    let members = table.members_of(object).map(|set| set.members.clone());
    let members: BTreeSet<NodeId> = members.unwrap_or_default().into_iter().collect();
    if !members.contains(&node) {
        return Err(format!(
            "node {node} keeps object {object} of another's set"
        ));
    }
    let bytes = held.get(&node).and_then(|holdings| holdings.get(object));
    for member in members {
        let other = held.get(&member).and_then(|holdings| holdings.get(object));
        if other != bytes {
            let (one, two) = (bytes.map(Vec::len), other.map(Vec::len));
            let at = bytes.zip(other).and_then(|(one, two)| {
                let mut pairs = one.iter().zip(two);
                pairs.position(|(one, two)| one != two)
            });
            return Err(format!(
                "object {object} has {one:?} bytes on node {node} and {two:?} on node {member}, the first that differs is {at:?}"
            ));
        }
    }
    Ok(())
}
