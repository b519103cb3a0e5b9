//! Where the copies of sets belong, and how that changes.
//!
//! Sets and slots stay for good; what moves is who is a *home* of a set. A new home
//! is not a member yet, and an old one is a member still: the set's primary (for a
//! site's set the site's manager) makes the new one equal, and [`Change::SetEqual`]
//! then puts the one in the other's place, so that at no moment a copy is missing
//! that was there before. Plans are made here, in one change, from the state alone:
//! whoever proposes them twice, or dies behind them, does no harm.
//!
//! [`Change::SetEqual`]: crate::Change::SetEqual

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::state::{Conflict, NodeRecord, SITE_SETS, SetRecord, State};

/// Data sets of an ensemble at most; the ids of sites' sets begin behind them.
const DATA_SETS_MAX: u32 = 512;

/// The site of the root directory.
const ROOT: u16 = 0;

/// Most places for nodes: more than anybody has, and a bound for numbers.
const NODES_MAX: usize = 1024;

/// An administrator's change of what belongs where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// A node is to hold nothing any more, or may hold something again.
    Drain {
        /// Its number.
        number: u32,
        /// Which of the two.
        drains: bool,
    },
    /// A place for a node that there was not; its share of the homes moves to it
    /// when a process has joined with it.
    Add {
        /// Its number.
        number: u32,
        /// Its id, a new random number.
        id: u64,
    },
    /// A place ends. Refused while the node is a home or a member of anything.
    Remove {
        /// Its number.
        number: u32,
    },
    /// The homes of a node that is away go to others. With an `id` the place gets
    /// that, and is as new: what the node's files held is given up.
    Replace {
        /// Its number.
        number: u32,
        /// A new random number, if its files are lost.
        id: Option<u64>,
    },
}

/// What a home does in its set: loads are compared within one of these.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    is_data: bool,
    is_primary: bool,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::new(true, true),
        Self::new(true, false),
        Self::new(false, true),
        Self::new(false, false),
    ];

    const fn new(is_data: bool, is_primary: bool) -> Self {
        Self {
            is_data,
            is_primary,
        }
    }

    const fn of(set: u32, place: usize) -> Self {
        Self::new(set < SITE_SETS, place == 0)
    }
}

impl SetRecord {
    /// A set whose homes are all members.
    pub(crate) fn whole(home: Vec<u64>) -> Self {
        Self {
            epoch: 1,
            members: home.clone(),
            home,
            differs_since: 1,
            moves: 0,
        }
    }

    /// Members that belong to it no more, and leave when its homes are equal.
    pub fn leaving(&self) -> impl Iterator<Item = u64> {
        let members = self.members.iter().copied();
        members.filter(|member| !self.home.contains(member))
    }

    /// Another home. It has nothing of the set, or something that may be of any age:
    /// all of it is compared.
    fn move_home(&mut self, place: usize, to: u64) {
        self.home[place] = to;
        self.moves += 1;
        self.differs_since = 0;
    }
}

impl State {
    /// The same with `per_node` data sets for each node, as far as there is room, and
    /// a set of its own for every site.
    ///
    /// Consecutive sets begin at consecutive nodes, and a slot lists as many as there
    /// are nodes: neighbouring columns of a file have different primaries. The other
    /// copies of a node's sets are spread over all nodes, so that many rebuild what
    /// one has lost.
    #[must_use]
    pub fn with_many_sets(mut self, per_node: u32) -> Self {
        let nodes: Vec<u64> = self.nodes.iter().map(|node| node.id).collect();
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let rounds = per_node.min(DATA_SETS_MAX / count).max(1);
        self.sets.clear();
        self.data_sets = (0..count * rounds).collect();
        self.columns = count;
        for &set in &self.data_sets {
            let home = spread(&nodes, set as usize, self.replicas);
            self.sets.insert(set, SetRecord::whole(home));
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            site.1 = SITE_SETS + u32::try_from(number).unwrap_or(0);
            let home = spread(&nodes, number, self.site_replicas);
            self.sets.insert(site.1, SetRecord::whole(home));
        }
        self
    }

    /// Makes the change, or leaves everything as it is.
    pub(crate) fn place(&mut self, placement: Placement) -> Result<(), Conflict> {
        match placement {
            Placement::Drain { number, drains } => self.drain(number, drains)?,
            Placement::Add { number, id } => self.add_node(number, id)?,
            Placement::Remove { number } => self.remove_node(number)?,
            Placement::Replace { number, id } => self.replace_node(number, id)?,
        }
        self.settle_unused();
        Ok(())
    }

    /// Sets of sites that nobody has used hold nothing: those of their homes that run are
    /// their members at once, and whoever had them before is not waited for. Such a site
    /// may be about to make its log with the members from before, and is told by its epoch
    /// that it has to do so anew.
    pub(crate) fn settle_unused(&mut self) {
        for site in 0..self.sites.len() {
            let set = self.sites[site].1;
            let Some(record) = self.sets.get(&set).filter(|_| !self.is_set_used(set)) else {
                continue;
            };
            let is_member = |home: &u64| {
                let may_come = record.members.contains(home) && !self.has_run(*home);
                self.is_hosted(*home) || may_come
            };
            let members: Vec<u64> = record.home.iter().copied().filter(is_member).collect();
            let runs = members.iter().any(|&member| self.is_hosted(member));
            if let Some(record) = self.sets.get_mut(&set)
                && runs
                && record.members != members
            {
                record.members = members;
                record.epoch += 1;
                self.sites[site].0 += 1;
            }
        }
    }

    /// Whether a process has ever joined with the node.
    fn has_run(&self, id: u64) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.id == id && node.is_used)
    }

    /// In how many sets a node is at home, and of how many it is a member.
    #[must_use]
    pub fn load_of(&self, node: u64) -> (usize, usize) {
        let counts = |list: fn(&SetRecord) -> &Vec<u64>| {
            let sets = self.sets.values();
            sets.filter(|set| list(set).contains(&node)).count()
        };
        (counts(|set| &set.home), counts(|set| &set.members))
    }

    /// Sets of which that node has the only copy.
    fn sole_copies(&self, node: u64) -> usize {
        let sets = self.sets.iter();
        sets.filter(|(id, set)| set.members == [node] && self.is_set_used(**id))
            .count()
    }

    /// Whether anything can be in a set: in those of sites only once they were opened. (The
    /// root's site is opened before anybody asks.)
    #[must_use]
    pub fn is_set_used(&self, set: u32) -> bool {
        let mut sites = self.opened_sites.iter().chain(&[ROOT]);
        set < SITE_SETS
            || sites.any(|&site| self.sites.get(usize::from(site)).map(|site| site.1) == Some(set))
    }

    /// Whether a node has a place in the ensemble, running or not.
    #[must_use]
    pub fn has_node(&self, id: u64) -> bool {
        self.nodes.iter().any(|node| node.id == id)
    }

    /// Whether a process runs the node now.
    #[must_use]
    pub fn is_hosted(&self, node: u64) -> bool {
        let mut hosts = self.hosts.values();
        hosts.any(|host| host.nodes.contains(&node))
    }

    fn drain(&mut self, number: u32, drains: bool) -> Result<(), Conflict> {
        let id = self.node(number)?.id;
        let before = self.clone();
        self.node_mut(number)?.is_draining = drains;
        if !drains {
            self.take_homes_back(id);
            self.fill(id);
            return Ok(());
        }
        if self.move_homes_from(id) > 0 {
            let copies = self.replicas.max(self.site_replicas);
            *self = before;
            return Err(refused(format!(
                "node {number} cannot be drained: every set needs {copies} nodes that run and are not drained themselves; add a node first"
            )));
        }
        Ok(())
    }

    fn add_node(&mut self, number: u32, id: u64) -> Result<(), Conflict> {
        let is_taken = |node: &NodeRecord| node.number == number || node.id == id;
        if self.nodes.iter().any(is_taken) {
            return Err(refused(format!("there is a node {number} already")));
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(refused(format!(
                "an ensemble has at most {NODES_MAX} nodes"
            )));
        }
        self.nodes.push(NodeRecord {
            defrag: self.defrag,
            ..NodeRecord::new(id, number)
        });
        Ok(())
    }

    fn remove_node(&mut self, number: u32) -> Result<(), Conflict> {
        let id = self.node(number)?.id;
        let (homes, members) = self.load_of(id);
        if homes > 0 {
            return Err(refused(format!(
                "node {number} belongs to {homes} sets: say crossdock node drain {number} first"
            )));
        }
        if members > 0 {
            return Err(refused(format!(
                "{members} sets have not moved away from node {number} yet: crossdock node drain {number} shows how far that is"
            )));
        }
        let hosts = self.hosts.iter();
        let hosts = hosts.filter(|(_, host)| host.nodes.contains(&id));
        for host in hosts.map(|(&host, _)| host).collect::<Vec<_>>() {
            self.leave(host)?;
        }
        self.nodes.retain(|node| node.number != number);
        Ok(())
    }

    fn replace_node(&mut self, number: u32, fresh: Option<u64>) -> Result<(), Conflict> {
        let id = self.node(number)?.id;
        if self.is_hosted(id) {
            return Err(refused(format!(
                "node {number} runs: say crossdock node drain {number} to empty it, or stop it first"
            )));
        }
        let Some(fresh) = fresh else {
            let homes = self.load_of(id).0;
            return match self.move_homes_from(id) < homes {
                true => Ok(()),
                false => Err(refused(format!(
                    "nobody can have what belongs to node {number}"
                ))),
            };
        };
        let sole = self.sole_copies(id);
        if sole > 0 {
            return Err(refused(format!(
                "node {number} has the only copy of {sole} sets: start it with the directory that it had"
            )));
        }
        if self.has_node(fresh) {
            return Err(refused(format!("node {fresh:016x} is there already")));
        }
        self.move_homes_from(id);
        let place = self.node_mut(number)?;
        *place = NodeRecord {
            defrag: place.defrag,
            ..NodeRecord::new(fresh, number)
        };
        for set in self.sets.values_mut() {
            // Where nobody else is, it will be made equal from its very beginning.
            if let Some(place) = set.home.iter().position(|&home| home == id) {
                set.move_home(place, fresh);
            }
            // Of a site that was never opened.
            if set.members == [id] {
                set.members = vec![fresh];
                set.epoch += 1;
            }
        }
        Ok(())
    }

    /// Gives all homes of a node to others, evenly; how many found no other.
    fn move_homes_from(&mut self, node: u64) -> usize {
        let mut stay = 0;
        for set in self.sets.keys().copied().collect::<Vec<_>>() {
            let home = &self.sets[&set].home;
            let Some(place) = home.iter().position(|&home| home == node) else {
                continue;
            };
            match self.next_home(set, place) {
                Some(to) => self.move_home(set, place, to),
                None => stay += 1,
            }
        }
        stay
    }

    fn move_home(&mut self, set: u32, place: usize, to: u64) {
        if let Some(record) = self.sets.get_mut(&set) {
            record.move_home(place, to);
        }
    }

    /// Sets that have not left the node yet stay with it.
    fn take_homes_back(&mut self, node: u64) {
        for set in self.sets.values_mut() {
            let is_leaving = set.members.contains(&node) && !set.home.contains(&node);
            let absent = set.home.iter().position(|home| !set.members.contains(home));
            if let (true, Some(place)) = (is_leaving, absent) {
                set.move_home(place, node);
            }
        }
    }

    /// The node that has the least of the kind, and then of all: one that runs, is not
    /// drained, and has no copy. Who still is a member goes before all others.
    fn next_home(&self, set: u32, place: usize) -> Option<u64> {
        let record = self.sets.get(&set)?;
        let load = self.loads(Kind::of(set, place));
        let candidates = self.nodes.iter().filter(|node| {
            !node.is_draining && self.is_hosted(node.id) && !record.home.contains(&node.id)
        });
        let best = candidates.min_by_key(|node| {
            let is_new = !record.members.contains(&node.id);
            let of_kind = load.get(&node.id).copied().unwrap_or(0);
            (is_new, of_kind, self.load_of(node.id).0, node.number)
        });
        best.map(|node| node.id)
    }

    /// How many homes of a kind each node has.
    fn loads(&self, kind: Kind) -> BTreeMap<u64, usize> {
        let mut load = BTreeMap::new();
        for (&set, record) in &self.sets {
            for (place, &home) in record.home.iter().enumerate() {
                if Kind::of(set, place) == kind {
                    *load.entry(home).or_default() += 1;
                }
            }
        }
        load
    }

    /// A node gets its share of all homes, from those that have the most.
    pub(crate) fn fill(&mut self, node: u64) {
        let nodes = self.nodes.iter().filter(|record| !record.is_draining);
        let eligible = nodes.clone().count();
        if !nodes.map(|record| record.id).any(|id| id == node) {
            return;
        }
        for kind in Kind::ALL {
            let load = self.loads(kind);
            let share = load.values().sum::<usize>() / eligible;
            let mut has = load.get(&node).copied().unwrap_or(0);
            while has < share && self.fill_one(node, kind, has) {
                has += 1;
            }
        }
    }

    /// Moves one home of the node that has the most to `node`; whether there was one
    /// to be moved. Of its sets the one is taken whose neighbours are led by others:
    /// columns of one file are to lie on different nodes.
    fn fill_one(&mut self, node: u64, kind: Kind, has: usize) -> bool {
        let load = self.loads(kind);
        let led = |place: usize| {
            let set = self.data_sets.get(place % self.data_sets.len())?;
            self.sets.get(set)?.home.first().copied()
        };
        let crowd = |set: u32| {
            let columns = self.columns as usize;
            let at = set as usize + self.data_sets.len();
            let near = (at.saturating_sub(columns) + 1..at + columns).filter(|&near| near != at);
            match kind.is_data && kind.is_primary {
                true => near.filter(|&near| led(near) == Some(node)).count(),
                false => 0,
            }
        };
        let mut best = None;
        for (&set, record) in &self.sets {
            for (place, home) in record.home.iter().enumerate() {
                let donors = load.get(home).copied().unwrap_or(0);
                if Kind::of(set, place) != kind || record.home.contains(&node) || donors <= has + 1
                {
                    continue;
                }
                let key = (std::cmp::Reverse(donors), crowd(set), set, place);
                best = best.max(Some(std::cmp::Reverse(key)));
            }
        }
        let Some(std::cmp::Reverse((_, _, set, place))) = best else {
            return false;
        };
        self.move_home(set, place, node);
        true
    }

    /// A node that has joined and is no home of anything gets its share.
    pub(crate) fn fill_empty(&mut self, nodes: &[u64]) {
        let homes = self.sets.values().flat_map(|set| set.home.iter().copied());
        let homes: BTreeSet<u64> = homes.collect();
        for &node in nodes.iter().filter(|node| !homes.contains(node)) {
            self.fill(node);
        }
    }

    fn node(&self, number: u32) -> Result<&NodeRecord, Conflict> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|node| node.number == number)
            .ok_or_else(|| unknown_node(number))
    }

    fn node_mut(&mut self, number: u32) -> Result<&mut NodeRecord, Conflict> {
        let mut nodes = self.nodes.iter_mut();
        nodes
            .find(|node| node.number == number)
            .ok_or_else(|| unknown_node(number))
    }
}

/// The homes of the set of that number: its turn's node leads, and with every round
/// over all nodes the others are other ones.
fn spread(nodes: &[u64], number: usize, copies: u32) -> Vec<u64> {
    let count = nodes.len();
    let (first, round) = (number % count, number / count);
    let others = copies as usize - 1;
    let steps = (0..others).map(|copy| 1 + (round * others + copy) % (count - 1));
    let places = std::iter::once(0).chain(steps);
    places.map(|step| nodes[(first + step) % count]).collect()
}

const fn refused(why: String) -> Conflict {
    Conflict::Refused { why }
}

fn unknown_node(number: u32) -> Conflict {
    Conflict::Unknown {
        what: format!("node {number}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
