//! Which member of a set has a piece of a file in memory: the one that gave it last.
//!
//! That is the primary, unless another one has become the primary since: after a failure, or as
//! sets get other homes. Then the bytes are still in the memory of the one before, and the new one
//! would fetch them from its disk. The one before may give them, in the version that it gave
//! ([`ReadVersion::Exactly`](crossdock_peer::ReadVersion)), as long as the file is in the same
//! state: that says a lease of the file by its time of change, which no two states share
//! (docs/decisions/0044).
//!
//! So may any other member, which has the same bytes in that version: it is asked if it is much
//! faster ([`Speeds`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{HostId, NodeId, ObjectId, RoutingTable, Version};
use crossdock_types::WallTime;

use crate::speeds::Speeds;

/// Pieces of which it is remembered, in each of the two halves.
const PIECES_MAX: usize = 32_768;

/// A piece of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    pub(crate) object: ObjectId,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// Who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    node: NodeId,
    /// What that node's memory ends with.
    host: Option<HostId>,
    version: Version,
    /// Of the file, then.
    changed: WallTime,
}

/// What is remembered: the newer half, and an older one that goes when the newer is full.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    newer: BTreeMap<Piece, Given>,
    older: BTreeMap<Piece, Given>,
    speeds: Speeds,
}

impl Warm {
    /// A node has given a piece of a file that was in that state, so long after it was asked.
    pub(crate) fn note(
        &mut self,
        table: &RoutingTable,
        piece: Piece,
        changed: WallTime,
        (node, version): (NodeId, Version),
        took: Duration,
    ) {
        // Where there is one copy there is no choice.
        let set = table.members_of(&piece.object);
        if set.is_none_or(|set| set.members.len() < 2) {
            return;
        }
        let is_it =
            |given: &Given| (given.node, given.version, given.changed) == (node, version, changed);
        if self.given(&piece).is_some_and(is_it) {
            self.speeds.note(node, piece.length_bytes, took);
        }
        if self.newer.len() >= PIECES_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        let given = Given {
            node,
            host: table.hosts.nodes.get(&node).copied(),
            version,
            changed,
        };
        self.newer.insert(piece, given);
    }

    /// A node was asked for a piece in the primary's place, and has not given it.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.speeds.forget(node);
    }

    fn given(&self, piece: &Piece) -> Option<&Given> {
        self.newer.get(piece).or_else(|| self.older.get(piece))
    }

    /// Whether a node that runs is known to have a piece of a file in memory that is in that state.
    pub(crate) fn is_warm(&self, table: &RoutingTable, piece: &Piece, changed: WallTime) -> bool {
        let given = self.given(piece);
        given.is_some_and(|given| {
            let is_up = table.hosts.nodes.get(&given.node).copied() == given.host;
            is_up && given.changed == changed
        })
    }

    /// Who is to be asked for a piece of a file that is in that state, and for which version:
    /// none if that is the primary, as ever.
    pub(crate) fn holder(
        &self,
        table: &RoutingTable,
        piece: &Piece,
        changed: WallTime,
    ) -> Option<(NodeId, Version)> {
        let given = self.given(piece)?;
        let members = &table.members_of(&piece.object)?.members;
        let is_up = table.hosts.nodes.get(&given.node).copied() == given.host;
        if !is_up || !members.contains(&given.node) || given.changed != changed {
            return None;
        }
        let all = members.iter().copied();
        let node = self.speeds.choose(piece, given.node, all);
        (members.first() != Some(&node)).then_some((node, given.version))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crossdock_names::{
        Epoch, FileId, Hosts, LayoutClass, ReplicaSet, SITES, SLOTS, SetId, SiteRecord, Spread,
    };

    use super::*;

    const NOW: WallTime = WallTime(7);
    const GIVEN: (NodeId, Version) = (NodeId(1), Version(40));
    const SOON: Duration = Duration::from_millis(1);

    fn table(members: &[u64], hosts: &[(u64, u64)]) -> RoutingTable {
        let set = ReplicaSet {
            epoch: Epoch(1),
            members: members.iter().map(|&node| NodeId(node)).collect(),
        };
        let site = SiteRecord {
            epoch: Epoch(1),
            set: SetId(0),
        };
        let hosts = hosts.iter();
        RoutingTable {
            epoch: Epoch(1),
            sets: BTreeMap::from([(SetId(0), set)]),
            slots: vec![vec![SetId(0)]; SLOTS],
            sites: vec![site; SITES],
            spread: Spread::default(),
            layout: LayoutClass::default(),
            hosts: Hosts {
                nodes: hosts
                    .map(|&(node, host)| (NodeId(node), HostId(host)))
                    .collect(),
                ..Hosts::default()
            },
        }
    }

    fn piece(offset_bytes: u64) -> Piece {
        Piece {
            object: ObjectId::column(FileId(7), 1, 0, 0),
            offset_bytes,
            length_bytes: 100,
        }
    }

    /// Goal: the member that gave a piece is asked for it if another one is the primary now, and
    /// for no other piece, state of the file or start of its process; the primary is asked as
    /// ever.
    #[test]
    fn who_gave_it_gives_it_again() {
        let hosts = [(1, 10), (2, 20)];
        let before = table(&[1, 2], &hosts);
        let after = table(&[2, 1], &hosts);
        let mut warm = Warm::default();
        warm.note(&before, piece(0), NOW, GIVEN, SOON);
        assert_eq!(warm.holder(&before, &piece(0), NOW), None, "the primary");
        assert_eq!(warm.holder(&after, &piece(0), NOW), Some(GIVEN));
        assert_eq!(warm.holder(&after, &piece(100), NOW), None);
        assert_eq!(warm.holder(&after, &piece(0), WallTime(8)), None);
        let left = table(&[2], &hosts);
        assert_eq!(warm.holder(&left, &piece(0), NOW), None);
        let restarted = table(&[2, 1], &[(1, 11), (2, 20)]);
        assert_eq!(warm.holder(&restarted, &piece(0), NOW), None);
    }

    /// Goal: nothing is remembered of what has one copy, and no more than there is room for.
    #[test]
    fn what_is_remembered_is_bounded() {
        let hosts = [(1, 10), (2, 20)];
        let after = table(&[2, 1], &hosts);
        let mut warm = Warm::default();
        warm.note(&table(&[1], &hosts), piece(0), NOW, GIVEN, SOON);
        assert_eq!(warm.holder(&after, &piece(0), NOW), None);
        for number in 0..=2 * PIECES_MAX as u64 {
            warm.note(&after, piece(number * 100), NOW, GIVEN, SOON);
        }
        assert!(warm.newer.len() + warm.older.len() <= 2 * PIECES_MAX);
        assert_eq!(warm.holder(&after, &piece(0), NOW), None, "the oldest");
        let last = piece(2 * PIECES_MAX as u64 * 100);
        assert_eq!(warm.holder(&after, &last, NOW), Some(GIVEN));
        let middle = piece(PIECES_MAX as u64 * 100);
        assert_eq!(warm.holder(&after, &middle, NOW), Some(GIVEN));
    }
}
