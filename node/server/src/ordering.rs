//! What a node knows of the replica sets: whether it may order, which version
//! comes next, and who has been replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_names::{
    Epoch, NodeId, ObjectClass, ObjectId, ReplicaSet, RoutingTable, SetId, Version,
};
use crossdock_peer::{NodeError, WriteContext};

/// The node's copy of the routing table, and the versions that it gives as primary.
pub(crate) struct Ordering {
    node: NodeId,
    table: Arc<RoutingTable>,
    /// Table epoch at which each set last changed: requests that were routed
    /// before it are refused.
    changed: BTreeMap<SetId, Epoch>,
    /// Since which table this start of the node has been a member of a set without a break, and
    /// has seen all that its primaries ordered.
    joined: BTreeMap<SetId, Epoch>,
    /// Last version given per set that this node is primary of.
    given: BTreeMap<SetId, Version>,
}

/// What the primary has to do for a change.
pub(crate) struct Turn {
    pub(crate) set: SetId,
    pub(crate) set_epoch: Epoch,
    pub(crate) version: Version,
    /// The members besides the primary.
    pub(crate) others: Vec<NodeId>,
}

impl Ordering {
    pub(crate) fn new(node: NodeId, table: Arc<RoutingTable>) -> Self {
        let changed = table.sets.keys().map(|&set| (set, table.epoch)).collect();
        let own = table
            .sets
            .iter()
            .filter(|(_, set)| set.members.contains(&node));
        // By that table an earlier start of this node may have ordered.
        let joined = own.map(|(&set, _)| (set, Epoch(table.epoch.0 + 1)));
        let joined = joined.collect();
        Self {
            node,
            table,
            changed,
            joined,
            given: BTreeMap::new(),
        }
    }

    /// Takes a newer table. A set whose epoch rose starts its versions anew,
    /// above all that were given before.
    pub(crate) fn take_table(&mut self, table: Arc<RoutingTable>) {
        if table.epoch <= self.table.epoch {
            return;
        }
        let host = |table: &RoutingTable| table.hosts.nodes.get(&self.node).copied();
        if host(&table) != host(&self.table) {
            // Until then it may have been an earlier start of this node that was meant.
            for joined in self.joined.values_mut() {
                *joined = table.epoch;
            }
        }
        for (&id, set) in &table.sets {
            let before = self.table.set(id);
            if before != Some(set) {
                self.changed.insert(id, table.epoch);
                self.given.remove(&id);
                // Of two changes at a time the first one may have been that this node left.
                let is_next = before.is_some_and(|before| before.epoch.0 + 1 == set.epoch.0);
                if !set.members.contains(&self.node) {
                    self.joined.remove(&id);
                } else if !is_next || !self.joined.contains_key(&id) {
                    self.joined.insert(id, table.epoch);
                }
            }
        }
        self.table = table;
    }

    /// Whether this node has seen all that was ordered in `set` by that table or a newer one.
    pub(crate) fn has_seen_all(&self, set: SetId, since: Epoch) -> bool {
        self.joined.get(&set).is_some_and(|joined| since >= *joined)
    }

    /// Whether `node` still belongs to `set`.
    pub(crate) fn is_member(&self, set: SetId, node: NodeId) -> bool {
        self.table
            .set(set)
            .is_some_and(|set| set.members.contains(&node))
    }

    /// The set of an object.
    pub(crate) fn set_of(&self, object: &ObjectId) -> SetId {
        self.table.set_of(object)
    }

    /// The set of an object, if this node is its primary now.
    pub(crate) fn primary_of(&self, object: &ObjectId) -> Result<(SetId, Epoch), NodeError> {
        let id = self.table.set_of(object);
        match self.table.set(id) {
            Some(set) if set.members.first() == Some(&self.node) => Ok((id, set.epoch)),
            _ => Err(self.stale()),
        }
    }

    /// Whether this node has all changes of an object that were answered: it is a member of the
    /// object's set, and not only about to become one.
    pub(crate) fn check_member(&self, object: &ObjectId) -> Result<(), NodeError> {
        match self.is_member(self.table.set_of(object), self.node) {
            true => Ok(()),
            false => Err(self.stale()),
        }
    }

    /// The set of an object, if this node orders its changes, and whoever asks for one knows who
    /// is in it.
    pub(crate) fn check_routed(
        &self,
        object: &ObjectId,
        context: &WriteContext,
    ) -> Result<(SetId, Epoch), NodeError> {
        let (set, epoch) = self.primary_of(object)?;
        let changed = self.changed.get(&set);
        match changed.is_some_and(|&changed| context.table_epoch < changed) {
            true => Err(self.stale()),
            false => Ok((set, epoch)),
        }
    }

    /// Gives the next version for a change of `object`.
    pub(crate) fn give(
        &mut self,
        object: &ObjectId,
        context: &WriteContext,
    ) -> Result<Turn, NodeError> {
        let (set, set_epoch) = self.check_routed(object, context)?;
        let last = self
            .given
            .entry(set)
            .or_insert_with(|| Version::first_of(set_epoch));
        *last = last.next();
        let version = *last;
        Ok(Turn {
            set,
            set_epoch,
            version,
            others: self.others(set),
        })
    }

    /// No change of `set` that is yet to be ordered here gets an earlier version.
    pub(crate) fn next_of(&self, set: SetId) -> Version {
        let epoch = self.table.set(set).map(|set| set.epoch);
        let first = Version::first_of(epoch.unwrap_or_default());
        self.given.get(&set).map_or(first, |given| given.next())
    }

    /// The members of `set` besides this node.
    pub(crate) fn others(&self, set: SetId) -> Vec<NodeId> {
        self.table.set(set).map_or_else(Vec::new, |record| {
            record
                .members
                .iter()
                .copied()
                .filter(|&member| member != self.node)
                .collect()
        })
    }

    /// Checks that whoever gave `version` to a change of `object` has not been
    /// replaced: the primary of the set for columns, the site for the rest.
    pub(crate) fn check_given(&self, object: &ObjectId, version: Version) -> Result<(), NodeError> {
        let current = match object.class {
            ObjectClass::Column => self.table.members_of(object).map(|set| set.epoch),
            ObjectClass::SiteLog | ObjectClass::Checkpoint | ObjectClass::SmallFiles => {
                let site = usize::try_from(object.placement).unwrap_or(usize::MAX);
                self.table.sites.get(site).map(|site| site.epoch)
            }
            // Its depot is part of the node, and starts with it.
            ObjectClass::Allocation => None,
        };
        match current {
            Some(current) if version < Version::first_of(current) => {
                Err(NodeError::Fenced { seen: current })
            }
            _ => Ok(()),
        }
    }

    /// The primary of an object's set.
    pub(crate) fn first_of(&self, object: &ObjectId) -> Option<NodeId> {
        let set = self.table.members_of(object)?;
        set.members.first().copied()
    }

    /// The other members of an object's set.
    pub(crate) fn others_of(&self, object: &ObjectId) -> Vec<NodeId> {
        self.others(self.table.set_of(object))
    }

    /// Sets that can go on without this node.
    pub(crate) fn shared_sets(&self) -> Vec<(SetId, Epoch)> {
        let is_shared =
            |record: &ReplicaSet| record.members.contains(&self.node) && record.members.len() > 1;
        let shared = self.table.sets.iter().filter(|(_, set)| is_shared(set));
        shared.map(|(&id, set)| (id, set.epoch)).collect()
    }

    pub(crate) fn stale(&self) -> NodeError {
        NodeError::StaleTable {
            current: self.table.epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_names::{FileId, SITES, SLOTS, SiteRecord};

    fn table(epoch: u64, set_epoch: u64, members: &[u64]) -> Arc<RoutingTable> {
        let set = ReplicaSet {
            epoch: Epoch(set_epoch),
            members: members.iter().map(|&node| NodeId(node)).collect(),
        };
        Arc::new(RoutingTable {
            epoch: Epoch(epoch),
            sets: BTreeMap::from([(SetId(0), set)]),
            slots: vec![vec![SetId(0)]; SLOTS],
            sites: vec![
                SiteRecord {
                    epoch: Epoch(4),
                    set: SetId(0)
                };
                SITES
            ],
            spread: crossdock_names::Spread::default(),
            layout: crossdock_names::LayoutClass::default(),
            hosts: crossdock_names::Hosts::default(),
        })
    }

    fn routed_at(epoch: u64) -> WriteContext {
        WriteContext {
            table_epoch: Epoch(epoch),
            ..WriteContext::default()
        }
    }

    const OBJECT: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);

    /// Goal: history `version-reuse`: after the epoch rose every version is
    /// above all that were given before.
    #[test]
    fn versions_of_a_new_epoch_are_above_all_old_ones() {
        let mut ordering = Ordering::new(NodeId(1), table(1, 1, &[1, 2]));
        let version =
            |given: Result<Turn, NodeError>| given.map(|turn| turn.version).expect("primary");
        let first = version(ordering.give(&OBJECT, &routed_at(1)));
        let second = version(ordering.give(&OBJECT, &routed_at(1)));
        assert!(first < second);
        ordering.take_table(table(2, 2, &[1, 2]));
        let third = version(ordering.give(&OBJECT, &routed_at(2)));
        assert!(second < third);
    }

    /// Goal: who was routed by an old table, asks a node that is not primary, or
    /// carries an old epoch's version, is refused.
    #[test]
    fn the_replaced_are_refused() {
        let mut ordering = Ordering::new(NodeId(1), table(1, 1, &[1, 2]));
        ordering.take_table(table(2, 2, &[1]));
        let stale = Some(NodeError::StaleTable { current: Epoch(2) });
        assert_eq!(ordering.give(&OBJECT, &routed_at(1)).err(), stale);
        assert!(!ordering.is_member(SetId(0), NodeId(2)));
        let old = Version::first_of(Epoch(1)).next();
        assert!(matches!(
            ordering.check_given(&OBJECT, old),
            Err(NodeError::Fenced { .. })
        ));
        let log = ObjectId::of_site(ObjectClass::SmallFiles, crossdock_names::SiteId(0), 0);
        assert!(
            ordering
                .check_given(&log, Version::first_of(Epoch(4)).next())
                .is_ok()
        );
        assert!(
            ordering
                .check_given(&log, Version::first_of(Epoch(3)).next())
                .is_err()
        );
        let mut other = Ordering::new(NodeId(9), table(1, 1, &[1, 2]));
        assert!(other.give(&OBJECT, &routed_at(1)).is_err());
    }
}
