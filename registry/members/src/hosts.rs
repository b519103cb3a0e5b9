//! Processes that come and go: who takes what over is decided in one change, so
//! that the one who is replaced is fenced, the sets are without it, and its
//! sites have a new epoch and owner, all at once or not at all (CONSISTENCY 3).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crossdock_names::{HostId, Hosts, NodeId, SiteId};
use serde::{Deserialize, Serialize};

use crate::state::{Change, Conflict, SITE_SETS, State};

/// What a process of the ensemble is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// The storage nodes that it runs.
    pub nodes: Vec<u64>,
    /// Whether it serves sites.
    pub is_manager: bool,
    /// Whether clients are connected to it.
    pub is_gateway: bool,
    /// Whether it is to end when others have its sites.
    #[serde(default)]
    pub is_retiring: bool,
    /// Whether it has an interface for virtual addresses.
    #[serde(default)]
    pub takes_addresses: bool,
    /// Where other hosts connect to it; nothing where all is one process.
    #[serde(default)]
    pub link: Option<SocketAddr>,
    /// Where its administrators do, if it lets them.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Where HTTP clients reach its nodes with signed URLs, if they do.
    #[serde(default)]
    pub node_http: Option<SocketAddr>,
    /// Whether they do over TLS.
    #[serde(default)]
    pub is_node_http_secure: bool,
    /// Where IBP clients reach the depots of its nodes, if they do, by the nodes' numbers.
    #[serde(default)]
    pub depots: BTreeMap<u32, DepotDoor>,
    /// What the machine that it runs on is called, for people.
    #[serde(default)]
    pub machine: String,
    /// What a gateway is called, each time that it starts.
    #[serde(default)]
    pub name: String,
    /// Of a gateway: reservations of LUNs as they were after so many changes are obeyed by it.
    #[serde(default)]
    pub reservations_obeyed: u64,
    /// Of a gateway: where initiators of iSCSI connect; an address that stands for all of the
    /// machine's as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iscsi: Vec<SocketAddr>,
    /// Number of the target port that these are, from when it has joined; 0 without any.
    #[serde(default)]
    pub iscsi_port: u16,
}

/// A door of nodes for HTTP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDoor {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Whether over TLS.
    pub is_secure: bool,
}

/// Where clients reach a depot, and where that is: what the L-Bone tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotDoor {
    /// A name or an address; an IPv6 one in brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its place, and what is there, in the words of the L-Bone.
    #[serde(default)]
    pub location: String,
}

impl HostRecord {
    /// Where HTTP clients reach its nodes, if they do.
    #[must_use]
    pub fn node_door(&self) -> Option<NodeDoor> {
        let is_secure = self.is_node_http_secure;
        let door = |address| NodeDoor { address, is_secure };
        self.node_http.map(door)
    }

    /// HTTP clients reach its nodes there, or not at all.
    pub fn set_node_door(&mut self, door: Option<NodeDoor>) {
        self.node_http = door.map(|door| door.address);
        self.is_node_http_secure = door.is_some_and(|door| door.is_secure);
    }
}

/// Where URLs of objects begin.
impl std::fmt::Display for NodeDoor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.address)
    }
}

impl State {
    /// Where everything runs, for the routing table.
    pub(crate) fn host_table(&self) -> Hosts {
        let nodes = self.hosts.iter().flat_map(|(&host, record)| {
            let nodes = record.nodes.iter();
            nodes.map(move |&node| (NodeId(node), HostId(host)))
        });
        let owners = self.owners.iter();
        let gateways = self.hosts.iter().filter(|(_, record)| record.is_gateway);
        Hosts {
            live: self.hosts.keys().map(|&host| HostId(host)).collect(),
            nodes: nodes.collect(),
            sites: owners
                .map(|(&site, &host)| (SiteId(site), HostId(host)))
                .collect(),
            opened: self.opened_sites.iter().map(|&site| SiteId(site)).collect(),
            gateways: gateways.map(|(&host, _)| HostId(host)).collect(),
        }
    }

    /// Makes the change in the name of a process. One that has been replaced changes
    /// nothing any more, however late its proposal comes: it may have made a member
    /// equal to what its successor has gone on from (CONSISTENCY 3).
    ///
    /// # Errors
    /// [`Conflict`]: the process had seen something older, or is not a member.
    pub fn apply_by(&mut self, host: HostId, change: Change) -> Result<(), Conflict> {
        let is_known = self.hosts.contains_key(&host.0);
        if !is_known && !matches!(change, Change::Join { .. }) {
            return Err(Conflict::Replaced { host: host.0 });
        }
        self.apply(change)
    }

    /// A process has started. What its nodes had in memory is gone: they are
    /// members only where nobody else is, under a new epoch, and come back to
    /// the others' sets when they have caught up. Who had its nodes, or the address
    /// at which it listens, has ended.
    pub(crate) fn join(&mut self, host: u64, mut record: HostRecord) -> Result<(), Conflict> {
        if self.hosts.contains_key(&host) {
            return Ok(());
        }
        for node in &record.nodes {
            let place = self.nodes.iter_mut().find(|known| known.id == *node);
            let place = place.ok_or_else(|| Conflict::Unknown {
                what: format!("node {node:016x}"),
            })?;
            place.is_used = true;
        }
        let is_same = |other: &HostRecord| {
            let shares = other.nodes.iter().any(|node| record.nodes.contains(node));
            shares || record.link.is_some() && other.link == record.link
        };
        let earlier = self.hosts.iter().filter(|(_, other)| is_same(other));
        let earlier: Vec<u64> = earlier.map(|(&other, _)| other).collect();
        for other in earlier {
            self.leave(other)?;
        }
        for node in &record.nodes {
            self.restart_node(*node);
        }
        let is_manager = record.is_manager;
        self.note_gateway(&record);
        self.assign_iscsi_port(&mut record);
        let nodes = record.nodes.clone();
        self.hosts.insert(host, record);
        self.fill_empty(&nodes);
        self.settle_unused();
        if is_manager {
            self.assign_sites();
        }
        self.assign_addresses();
        Ok(())
    }

    /// A process has ended. Its sites go to other managers; its nodes leave all
    /// sets that have other members.
    pub(crate) fn leave(&mut self, host: u64) -> Result<(), Conflict> {
        let record = self
            .hosts
            .remove(&host)
            .ok_or(Conflict::Replaced { host })?;
        for node in record.nodes {
            self.remove_member(node);
        }
        self.settle_unused();
        self.owners.retain(|_, owner| *owner != host);
        self.assign_sites();
        self.assign_addresses();
        Ok(())
    }

    fn restart_node(&mut self, node: u64) {
        self.remove_member(node);
        let sole = self.sets.values_mut();
        for set in sole.filter(|set| set.members == [node]) {
            set.epoch += 1;
        }
    }

    /// A data set goes on with the next member alone if the primary left: what
    /// it sent to some of the others only has to be made equal first.
    fn remove_member(&mut self, node: u64) {
        for (&id, set) in &mut self.sets {
            let Some(place) = set.members.iter().position(|&member| member == node) else {
                continue;
            };
            if set.members.len() == 1 {
                continue; // Nobody else has it: it is away until the node is back.
            }
            set.members.remove(place);
            if place == 0 && id < SITE_SETS {
                set.members.truncate(1);
            }
            set.epoch += 1;
        }
    }

    /// A manager is to end; the last one stays.
    pub(crate) fn retire(&mut self, host: u64) -> Result<(), Conflict> {
        let stays = |(&other, record): (&u64, &HostRecord)| {
            other != host && record.is_manager && !record.is_retiring
        };
        let is_last = !self.hosts.iter().any(stays);
        let record = self.hosts.get_mut(&host);
        let Some(record) = record.filter(|record| record.is_manager) else {
            let what = format!("manager {host:016x}");
            return Err(Conflict::Unknown { what });
        };
        if is_last {
            let why = format!("{host:016x} is the last manager: start another one first");
            return Err(Conflict::Refused { why });
        }
        record.is_retiring = true;
        Ok(())
    }

    /// A manager gives sites to another one; if that is gone, whoever has the fewest
    /// gets them, under new epochs in any case.
    pub(crate) fn move_sites(&mut self, sites: &[(u16, u64)], to: u64) -> Result<(), Conflict> {
        let is_there = |record: &HostRecord| record.is_manager && !record.is_retiring;
        let has_taker = self.hosts.get(&to).is_some_and(is_there);
        let is_seen = |&&(site, expected): &&(u16, u64)| {
            let current = self.sites.get(usize::from(site));
            current.is_some_and(|current| current.0 == expected)
        };
        let moved: Vec<u16> = sites
            .iter()
            .filter(is_seen)
            .map(|(site, _)| *site)
            .collect();
        if moved.is_empty() {
            let why = "the sites have been moved by others".to_owned();
            return Err(Conflict::Refused { why });
        }
        for site in moved {
            self.owners.remove(&site);
            if has_taker {
                self.owners.insert(site, to);
                self.sites[usize::from(site)].0 += 1;
            }
        }
        self.assign_sites();
        Ok(())
    }

    /// Gives every site without an owner to the manager with the fewest, of those that
    /// stay if there is one.
    fn assign_sites(&mut self) {
        let managers = self.hosts.iter().filter(|(_, record)| record.is_manager);
        let stays = managers.clone().any(|(_, record)| !record.is_retiring);
        let managers = managers.filter(|(_, record)| !(stays && record.is_retiring));
        let mut load: BTreeMap<u64, SiteLoad> = managers
            .map(|(&host, _)| (host, SiteLoad::default()))
            .collect();
        for (&site, owner) in &self.owners {
            if let Some(sites) = load.get_mut(owner) {
                sites.add(self.has_names(SiteId(site)));
            }
        }
        for site in 0..u16::try_from(self.sites.len()).unwrap_or(u16::MAX) {
            if self.owners.contains_key(&site) {
                continue;
            }
            let has_names = self.has_names(SiteId(site));
            let least = load
                .iter_mut()
                .min_by_key(|(host, sites)| (sites.rank(has_names), **host));
            let Some((&host, sites)) = least else {
                return;
            };
            sites.add(has_names);
            self.owners.insert(site, host);
            self.sites[usize::from(site)].0 += 1;
        }
    }

    /// Whether the volume's names come to the site, as it was made; others stay empty.
    #[must_use]
    pub const fn has_names(&self, site: SiteId) -> bool {
        site.0 < self.spread.sites
    }
}

/// How many sites a manager has. Those that have names are shared out for themselves: where
/// they are few, a manager could have its share of all sites and no work, or all of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteLoad {
    /// With those that have names.
    pub all: usize,
    /// Those alone.
    pub with_names: usize,
}

impl SiteLoad {
    /// One more.
    pub const fn add(&mut self, has_names: bool) {
        self.all += 1;
        self.with_names += has_names as usize;
    }

    /// Who has the least gets the next site.
    #[must_use]
    pub const fn rank(&self, has_names: bool) -> (usize, usize) {
        match has_names {
            true => (self.with_names, self.all),
            false => (self.all, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homes::tests::settle;
    use crossdock_names::Spread;

    fn manager() -> HostRecord {
        HostRecord {
            is_manager: true,
            ..HostRecord::default()
        }
    }

    fn node(id: u64) -> HostRecord {
        HostRecord {
            nodes: vec![id],
            ..HostRecord::default()
        }
    }

    fn join(state: &mut State, host: u64, record: HostRecord) {
        state.apply(Change::Join { host, record }).expect("joins");
    }

    fn ensemble() -> State {
        let mut state = State::fresh(1, 2, &[11, 12, 13], 2, 2);
        for (host, id) in [(1, 11), (2, 12), (3, 13)] {
            join(&mut state, host, node(id));
        }
        join(&mut state, 8, manager());
        join(&mut state, 9, manager());
        settle(&mut state);
        state
    }

    /// Goal: of a manager that left nothing counts any more: all its sites have
    /// another owner and a higher epoch, and those of others are as they were.
    #[test]
    fn the_sites_of_a_dead_manager_get_an_epoch_and_an_owner() {
        let mut state = ensemble();
        assert!(state.owners.values().all(|&owner| owner == 8));
        let before = state.sites.clone();
        state.apply(Change::Leave { host: 8 }).expect("leaves");
        assert!(state.owners.values().all(|&owner| owner == 9));
        for (old, new) in before.iter().zip(&state.sites) {
            assert_eq!(old.0 + 1, new.0);
        }
        assert!(!state.table().hosts.live.contains(&HostId(8)));
        let again = state.apply(Change::Leave { host: 8 });
        assert_eq!(again, Err(Conflict::Replaced { host: 8 }));
    }

    /// Goal: what a replaced process proposed before it knew, and what comes late,
    /// changes nothing; a process that starts may join.
    #[test]
    fn a_replaced_process_changes_nothing_more() {
        let mut state = ensemble();
        state.apply(Change::Leave { host: 8 }).expect("leaves");
        let before = state.clone();
        let set = SITE_SETS;
        let expected = state.sets[&set].epoch;
        let late = Change::SetEqual {
            set,
            expected,
            moves: 0,
        };
        let refused = state.apply_by(HostId(8), late.clone());
        assert_eq!(refused, Err(Conflict::Replaced { host: 8 }));
        assert_eq!(state, before);
        assert_eq!(state.apply_by(HostId(9), late), Ok(()));
        let (host, record) = (10, manager());
        let joined = state.apply_by(HostId(host), Change::Join { host, record });
        assert_eq!(joined, Ok(()));
    }

    /// Goal: a node that is away is in no set that has another member, its sets
    /// have a new epoch, and the only copy stays where it is.
    #[test]
    fn a_dead_node_leaves_the_sets_of_others() {
        let mut state = ensemble();
        let epochs: BTreeMap<u32, u64> = state
            .sets
            .iter()
            .map(|(&id, set)| (id, set.epoch))
            .collect();
        state.apply(Change::Leave { host: 1 }).expect("leaves");
        for (id, set) in &state.sets {
            assert!(!set.members.contains(&11), "set {id}");
            let had = set.home.contains(&11);
            assert_eq!(set.epoch, epochs[id] + u64::from(had), "set {id}");
        }
        state.apply(Change::Leave { host: 2 }).expect("leaves");
        let alone: Vec<_> = state
            .sets
            .values()
            .filter(|set| set.members == [12])
            .collect();
        assert!(!alone.is_empty(), "what only node 12 has stays with it");
    }

    /// Goal: a living manager's sites move under a new epoch, to whoever is there; one
    /// that somebody else has moved stays; the last manager is not told to end.
    #[test]
    fn sites_move_between_living_managers() {
        let mut state = ensemble();
        let epoch = state.sites[5].0;
        let sites = vec![(5, epoch), (6, epoch), (7, epoch + 1)];
        let moved = Change::MoveSites { sites, to: 9 };
        assert_eq!(state.apply(moved.clone()), Ok(()));
        let owners: Vec<u64> = (5..8).map(|site| state.owners[&site]).collect();
        assert_eq!((owners, state.sites[5].0), (vec![9, 9, 8], epoch + 1));
        let again = state.apply(moved);
        assert!(matches!(again, Err(Conflict::Refused { .. })), "{again:?}");
        assert_eq!(state.apply(Change::Retire { host: 9 }), Ok(()));
        let sites = vec![(8, state.sites[8].0)];
        let gone = Change::MoveSites { sites, to: 9 };
        assert_eq!(state.apply(gone), Ok(()));
        assert_eq!(state.owners[&8], 8, "who is about to end gets nothing");
        let last = state.apply(Change::Retire { host: 8 });
        assert!(matches!(last, Err(Conflict::Refused { .. })), "{last:?}");
    }

    /// Goal: who takes over gets an even share of the sites that have names, whatever
    /// number of others it has.
    #[test]
    fn sites_with_names_are_shared_out_for_themselves() {
        let mut state = ensemble();
        state.spread = Spread::hashed(8);
        let spare = (100..200).map(|site| (site, state.sites[usize::from(site)].0));
        let spare = spare.collect();
        let moved = Change::MoveSites {
            sites: spare,
            to: 9,
        };
        assert_eq!(state.apply(moved), Ok(()));
        join(&mut state, 10, manager());
        state.apply(Change::Leave { host: 8 }).expect("leaves");
        let of = |host: u64, sites: std::ops::Range<u16>| {
            sites.filter(|site| state.owners[site] == host).count()
        };
        assert_eq!((of(9, 0..8), of(10, 0..8)), (4, 4));
        assert_eq!((of(9, 0..256), of(10, 0..256)), (128, 128));
    }

    /// Goal: what an earlier version wrote about hosts and nodes is still
    /// understood, and a node's place is known to be used once it was joined.
    #[test]
    fn older_records_are_read_and_places_are_remembered() {
        let old = r#"{"nodes":[11],"is_manager":false,"is_gateway":false}"#;
        let record: HostRecord = serde_json::from_str(old).expect("a record");
        assert_eq!(record, node(11));
        // Doors of nodes had no TLS.
        let old = r#"{"nodes":[11],"is_manager":false,"is_gateway":false,"node_http":"[::1]:80"}"#;
        let mut record: HostRecord = serde_json::from_str(old).expect("a record");
        let url = |record: &HostRecord| record.node_door().map(|door| door.to_string());
        assert_eq!(url(&record).as_deref(), Some("http://[::1]:80"));
        record.is_node_http_secure = true;
        assert_eq!(url(&record).as_deref(), Some("https://[::1]:80"));
        let record = node(11);
        let old = r#"{"id":11,"number":0,"stopped":false}"#;
        let place: crate::NodeRecord = serde_json::from_str(old).expect("a record");
        let mut state = State::fresh(1, 2, &[11, 12], 1, 1);
        assert_eq!(place, state.nodes[0]);
        join(&mut state, 1, record);
        let used: Vec<bool> = state.nodes.iter().map(|place| place.is_used).collect();
        assert_eq!(used, [true, false]);
    }

    /// Goal: a process that listens where another one did has taken its place: no
    /// lease has to run out first.
    #[test]
    fn whoever_listens_at_an_address_is_the_only_one() {
        let mut state = ensemble();
        let at = |port: u16| HostRecord {
            link: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            ..manager()
        };
        join(&mut state, 20, at(7071));
        join(&mut state, 21, at(7072));
        join(&mut state, 22, at(7072));
        let hosts: Vec<u64> = state.hosts.keys().copied().collect();
        assert_eq!(hosts, [1, 2, 3, 8, 9, 20, 22]);
    }

    /// Goal: a node that starts again under another number loses its place
    /// where others went on, and keeps it, under a new epoch, where it is alone.
    #[test]
    fn a_node_that_restarts_counts_anew() {
        let mut state = ensemble();
        state.apply(Change::Leave { host: 2 }).expect("leaves");
        let alone: Vec<u32> = state
            .sets
            .iter()
            .filter(|(_, set)| set.members == [11])
            .map(|(&id, _)| id)
            .collect();
        let epochs: Vec<u64> = alone.iter().map(|id| state.sets[id].epoch).collect();
        join(&mut state, 4, node(11));
        assert!(
            !state.hosts.contains_key(&1),
            "the earlier process is replaced"
        );
        for (id, epoch) in alone.iter().zip(epochs) {
            assert_eq!(state.sets[id].members, [11]);
            assert!(state.sets[id].epoch > epoch);
        }
    }
}
