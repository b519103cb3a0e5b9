//! What an administrator sees and changes of where copies belong, and nodes that
//! stay away for too long, whose homes go to others.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_members::{Change, Placement, State};
use crossdock_names::{HostId, NodeId};
use crossdock_types::Time;

use crate::host::Host;

/// A node's place in the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Its number.
    pub number: u32,
    /// Its id.
    pub id: u64,
    /// Whether a process runs it.
    pub is_running: bool,
    /// Whether it is to hold nothing any more.
    pub is_draining: bool,
    /// Replica sets that belong to it.
    pub homes: usize,
    /// Of these, the ones of which it has no valid copy yet.
    pub coming: usize,
    /// Sets that belong to others, and that it keeps until they have them.
    pub leaving: usize,
}

/// Since when this host sees nodes away.
#[derive(Default)]
pub(crate) struct Absences {
    since: BTreeMap<NodeId, Time>,
    due: Option<Time>,
}

impl Absences {
    /// When somebody will have been away for too long.
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }
}

impl Host {
    /// Where all nodes stand, by number.
    #[must_use]
    pub fn places(&self) -> Vec<NodePlace> {
        let state = self.registry.state();
        let nodes = state.nodes.iter().map(|node| {
            let sets = || state.sets.values();
            let is_home = |set: &&crossdock_members::SetRecord| set.home.contains(&node.id);
            let homes = || sets().filter(is_home);
            NodePlace {
                number: node.number,
                id: node.id,
                is_running: state.is_hosted(node.id),
                is_draining: node.is_draining,
                homes: homes().count(),
                coming: homes()
                    .filter(|set| !set.members.contains(&node.id))
                    .count(),
                leaving: sets()
                    .filter(|set| set.leaving().any(|id| id == node.id))
                    .count(),
            }
        });
        let mut places: Vec<NodePlace> = nodes.collect();
        places.sort_by_key(|place| place.number);
        places
    }

    /// Sends a change of what belongs where on its way; [`has_placed`](Self::has_placed)
    /// says when the registry has it.
    ///
    /// # Errors
    /// Why not, for people: the state that this host knows does not allow it.
    pub fn place(&mut self, placement: &Placement) -> Result<(), String> {
        self.change_if_allowed(Change::Place(placement.clone()))
    }

    /// Whether the registry has that change.
    #[must_use]
    pub fn has_placed(&self, placement: &Placement) -> bool {
        let nodes = &self.registry.state().nodes;
        let with = |number: u32| nodes.iter().find(|node| node.number == number);
        match *placement {
            Placement::Drain { number, drains } => {
                with(number).is_some_and(|node| node.is_draining == drains)
            }
            Placement::Add { number, id } => with(number).is_some_and(|node| node.id == id),
            Placement::Remove { number } => with(number).is_none(),
            Placement::Replace { number, id } => {
                with(number).is_none_or(|node| id.is_none_or(|id| node.id == id))
            }
        }
    }

    /// Sends it on its way that a manager is to end; its sites go to others first.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn retire(&mut self, host: HostId) -> Result<(), String> {
        self.change_if_allowed(Change::Retire { host: host.0 })
    }

    /// Sends a change on its way, or says why the state that this host knows does not
    /// allow it.
    fn change_if_allowed(&mut self, change: Change) -> Result<(), String> {
        let mut state = self.registry.state().clone();
        let allowed = state.apply_by(self.host_id(), change.clone());
        allowed.map_err(|refused| refused.to_string())?;
        self.change(change)
    }

    /// Whether a manager is to end, or has; and how many sites it still has.
    #[must_use]
    pub fn retiring(&self, host: HostId) -> (bool, usize) {
        let state = self.registry.state();
        let record = state.hosts.get(&host.0);
        let owners = state.owners.values();
        let sites = owners.filter(|&&owner| owner == host.0).count();
        (record.is_none_or(|record| record.is_retiring), sites)
    }

    /// Gives the homes of nodes to others that have been away, as far as this host has
    /// seen, for as long as the ensemble waits for them.
    pub(crate) fn replace_absent(&mut self, now: Time) {
        let state = self.registry.state();
        let patience = Duration::from_secs(state.replace_after_seconds);
        let away = absent(state);
        self.absences.since.retain(|node, _| away.contains(node));
        for &node in &away {
            self.absences.since.entry(node).or_insert(now);
        }
        let late = self.absences.since.iter();
        let late = late.filter(|(_, since)| **since + patience <= now);
        let late: Vec<NodeId> = late.map(|(&node, _)| node).collect();
        for node in late {
            // Once more after as long, if nobody can have them now.
            self.absences.since.insert(node, now);
            if let Some(number) = self.node_number(node.0) {
                let replace = Placement::Replace { number, id: None };
                self.propose(Change::Place(replace));
            }
        }
        let since = self.absences.since.values().min();
        self.absences.due = since.map(|&since| since + patience);
    }
}

/// Nodes that belong to sets and that nobody runs.
fn absent(state: &State) -> Vec<NodeId> {
    let nodes = state.nodes.iter();
    let away = nodes.filter(|node| !state.is_hosted(node.id) && state.load_of(node.id).0 > 0);
    away.map(|node| NodeId(node.id)).collect()
}
