//! Defragmentation of the nodes of an ensemble: when each of them does it, and what they were last
//! ordered to put together at once. Nodes follow the registry, and tell there what came of it.

use std::collections::BTreeSet;

use crossdock_peer::LayoutWord;
use serde::{Deserialize, Serialize};

use crate::daily::DailyWindow;
use crate::state::{Conflict, NodeRecord, State};

/// An order to nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragOrderRecord {
    /// One more than that of the order before.
    pub number: u64,
    /// Number of the file whose columns are meant; `None`: all that the nodes have.
    pub file: Option<u64>,
    /// The file's path when it was looked up.
    pub path: Option<String>,
    /// The nodes that were there, by number.
    pub nodes: BTreeSet<u32>,
    /// Whether it was called off.
    #[serde(default)]
    pub is_stopped: bool,
}

/// What has come of an order at one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragResult {
    /// The order's number.
    pub order: u64,
    /// How objects lay.
    pub found: LayoutWord,
    /// How they lie.
    pub left: LayoutWord,
    /// Blocks that have another place.
    pub moved_blocks: u64,
    /// Blocks that stayed, as they were pinned, being changed, unreadable, or without room.
    pub kept_blocks: [u64; 4],
    /// The free space: blocks, stretches, blocks of the longest of them, blocks not looked at.
    pub free: [u64; 4],
    /// Why it did not come to its end.
    pub error: Option<String>,
}

impl State {
    /// Nodes that are there and have not carried out the last order yet.
    pub fn defragmenting(&self) -> impl Iterator<Item = &NodeRecord> {
        let order = self.defrag_order.as_ref().filter(|it| !it.is_stopped);
        order.into_iter().flat_map(move |order| {
            let has_to = move |node: &&NodeRecord| {
                let is_done = node.defrag_done(order.number).is_some();
                order.nodes.contains(&node.number) && !is_done && self.is_there(node.id)
            };
            self.nodes.iter().filter(has_to)
        })
    }

    /// Whether a process has that node now.
    #[must_use]
    pub fn is_there(&self, node: u64) -> bool {
        self.hosts.values().any(|host| host.nodes.contains(&node))
    }

    pub(crate) fn order_defrag(
        &mut self,
        number: u64,
        file: Option<u64>,
        path: Option<String>,
    ) -> Result<(), Conflict> {
        let refused = |why: &str| {
            let why = why.to_owned();
            Err(Conflict::Refused { why })
        };
        if self.defragmenting().next().is_some() {
            return refused("nodes are still at work on the last order");
        }
        let last = self.defrag_order.as_ref().map_or(0, |order| order.number);
        if number != last + 1 {
            return refused("somebody else has ordered something meanwhile");
        }
        let nodes = self.nodes.iter().filter(|node| self.is_there(node.id));
        let nodes = nodes.map(|node| node.number).collect();
        self.defrag_order = Some(DefragOrderRecord {
            number,
            file,
            path,
            nodes,
            is_stopped: false,
        });
        Ok(())
    }

    pub(crate) fn stop_defrag(&mut self, number: u64) -> Result<(), Conflict> {
        let order = self.defrag_order.as_mut();
        let Some(order) = order.filter(|order| order.number == number) else {
            let what = format!("order {number} to put files together");
            return Err(Conflict::Unknown { what });
        };
        order.is_stopped = true;
        Ok(())
    }

    pub(crate) fn end_defrag(&mut self, node: u64, result: DefragResult) -> Result<(), Conflict> {
        let known = self.node_of(node)?;
        let before = known.defrag_done.as_ref().map_or(0, |done| done.order);
        if before < result.order {
            known.defrag_done = Some(result);
        }
        Ok(())
    }

    /// All nodes, also those to come, or one of them.
    pub(crate) fn schedule_defrag(
        &mut self,
        node: Option<u64>,
        window: Option<DailyWindow>,
    ) -> Result<(), Conflict> {
        if let Some(node) = node {
            self.node_of(node)?.defrag = window;
            return Ok(());
        }
        self.defrag = window;
        self.nodes.iter_mut().for_each(|node| node.defrag = window);
        Ok(())
    }

    fn node_of(&mut self, id: u64) -> Result<&mut NodeRecord, Conflict> {
        let found = self.nodes.iter_mut().find(|node| node.id == id);
        found.ok_or_else(|| Conflict::Unknown {
            what: format!("node {id:016x}"),
        })
    }
}

impl NodeRecord {
    /// What has come of the order of that number, if it is over here.
    #[must_use]
    pub fn defrag_done(&self, order: u64) -> Option<&DefragResult> {
        let done = self.defrag_done.as_ref();
        done.filter(|done| done.order == order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, HostRecord};

    fn ensemble() -> State {
        let mut state = State::fresh(1, 2, &[11, 12, 13], 2, 2);
        for (host, node) in [(1, 11), (2, 12)] {
            let record = HostRecord {
                nodes: vec![node],
                ..HostRecord::default()
            };
            state.apply(Change::Join { host, record }).expect("joins");
        }
        state
    }

    fn order(state: &mut State, number: u64) -> Result<(), Conflict> {
        let (file, path) = (Some(7), Some("/film".to_owned()));
        state.apply(Change::OrderDefrag { number, file, path })
    }

    fn end(state: &mut State, node: u64, order: u64) {
        let result = DefragResult {
            order,
            moved_blocks: node,
            ..DefragResult::default()
        };
        let change = Change::EndDefrag { node, result };
        state.apply(change).expect("is known");
    }

    fn at_work(state: &State) -> Vec<u32> {
        state.defragmenting().map(|node| node.number).collect()
    }

    /// Goal: an order is for the nodes that are there; the next one comes when all that still are
    /// have told of their end, or when it was called off.
    #[test]
    fn orders_come_one_after_the_other() {
        let mut state = ensemble();
        let epoch = state.table_epoch;
        assert_eq!(order(&mut state, 1), Ok(()));
        assert_eq!(at_work(&state), [0, 1]);
        assert!(order(&mut state, 2).is_err(), "it is under way");
        end(&mut state, 11, 1);
        assert_eq!(at_work(&state), [1]);
        let text = serde_json::to_string(&state).expect("JSON");
        assert_eq!(
            serde_json::from_str::<State>(&text).expect("a state"),
            state
        );
        assert_eq!(state.table_epoch, epoch, "routing does not hang on it");
        state.apply(Change::Leave { host: 2 }).expect("leaves");
        assert_eq!(at_work(&state), [0; 0], "it is gone");
        assert!(order(&mut state, 1).is_err() && order(&mut state, 3).is_err());
        assert_eq!(order(&mut state, 2), Ok(()));
        assert_eq!(at_work(&state), [0]);
        end(&mut state, 11, 1);
        assert_eq!(at_work(&state), [0], "of the last order");
        assert!(state.apply(Change::StopDefrag { number: 1 }).is_err());
        assert_eq!(state.apply(Change::StopDefrag { number: 2 }), Ok(()));
        assert_eq!(at_work(&state), [0; 0]);
        assert_eq!(order(&mut state, 3), Ok(()));
    }

    /// Goal: each node has a time of its own; one for all is that of nodes to come, too, and a node
    /// that takes another's place has that one's.
    #[test]
    fn nodes_have_their_times() {
        let mut state = ensemble();
        let window = |text: &str| Some(text.parse().expect("a time"));
        let times = |state: &State| -> Vec<Option<DailyWindow>> {
            state.nodes.iter().map(|node| node.defrag).collect()
        };
        let set =
            |state: &mut State, node, window| state.apply(Change::SetNodeDefrag { node, window });
        assert_eq!(set(&mut state, 12, window("02:00-03:00")), Ok(()));
        assert_eq!(times(&state), [None, window("02:00-03:00"), None]);
        assert!(set(&mut state, 99, None).is_err());
        let all = window("04:00-05:00");
        let change = Change::SetDefrag { window: all };
        state.apply(change).expect("always");
        set(&mut state, 13, None).expect("is known");
        assert_eq!(times(&state), [all, all, None]);
        let (number, id) = (3, 14);
        let add = Change::Place(crate::Placement::Add { number, id });
        state.apply(add).expect("is new");
        assert_eq!(times(&state), [all, all, None, all]);
    }
}
