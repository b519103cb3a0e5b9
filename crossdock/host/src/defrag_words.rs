//! How far the nodes of an ensemble are with what a manager has ordered them to put together: while a
//! node is at work it tells the managers, and what has come of it is in the registry. So nothing is
//! written there for it, and whoever asks hears of all nodes.

use crossdock_link::Frame;
use crossdock_members::{DefragOrderRecord, DefragResult, NodeRecord};
use crossdock_names::NodeId;
use crossdock_peer::{DefragWord, LayoutWord};
use crossdock_store::{FreeSpace, Layout, Moves};

use crate::defrag::DefragProgress;
use crate::host::Host;

/// How far a node is with the last order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePass {
    /// The node's number.
    pub node: u32,
    /// What it is at.
    pub stage: PassStage,
    /// It waits because clients are at work.
    pub is_yielding: bool,
    /// How objects lay when it came to them.
    pub found: Layout,
    /// How they lie, as far as that has been looked at since.
    pub left: Layout,
    /// What was moved, and what was left where it was.
    pub moves: Moves,
}

/// What a node is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassStage {
    /// It has not begun, or this process has not heard of it.
    Waiting,
    /// It moves what lies apart.
    Moving,
    /// It looks at what has come of that.
    Looking,
    /// It has come to the end, or has been told to end.
    Done,
    /// It was called off before it was done, or is being.
    Stopped,
    /// The node is not there.
    Away,
}

impl Host {
    /// Tells managers how far this process' node is, if it is at work on an order.
    pub(crate) fn tell_defrag_word(&mut self, node: u64) {
        let Some(order) = self.defrag.orders.under_way() else {
            return;
        };
        let progress = &self.defrag.progress;
        let word = DefragWord {
            order,
            is_looking: self.defrag.is_looking(),
            is_yielding: progress.is_yielding,
            found: layout_word(&progress.found),
            left: layout_word(&progress.left),
            moved_blocks: progress.moves.moved_blocks,
            kept_blocks: kept_blocks(&progress.moves),
        };
        for manager in self.other_managers() {
            let (node, word) = (NodeId(node), Box::new(word.clone()));
            self.send_frame(manager, Frame::Defrag { node, word });
        }
    }

    /// A node of another host is so far. What is not of the last order says nothing.
    pub(crate) fn take_defrag_word(&mut self, node: NodeId, word: DefragWord) {
        let state = self.registry.state();
        let order = state.defrag_order.as_ref();
        let is_last = order.is_some_and(|order| order.number == word.order);
        if is_last && state.has_node(node.0) {
            self.defrag.words.insert(node, word);
        }
    }

    /// Nodes that are gone have to begin anew, and so do all with a new order.
    pub(crate) fn forget_defrag_words(&mut self) {
        let state = self.registry.state();
        let last = state.defrag_order.as_ref().map(|order| order.number);
        let is_of_use = |node: &NodeId, word: &mut DefragWord| {
            Some(word.order) == last && state.is_there(node.0)
        };
        self.defrag.words.retain(is_of_use);
    }

    /// How far all nodes are with an order.
    pub(crate) fn progress_of(&self, order: &DefragOrderRecord) -> DefragProgress {
        let state = self.registry.state();
        let mut sum = DefragProgress {
            running: state.defragmenting().next().is_some(),
            is_stopped: order.is_stopped,
            path: order.path.clone(),
            ..DefragProgress::default()
        };
        for node in &state.nodes {
            if !order.nodes.contains(&node.number) {
                continue;
            }
            let done = node.defrag_done(order.number);
            let pass = match done {
                Some(done) => pass_done(node.number, done),
                None => self.pass_under_way(order, node),
            };
            sum.found.add(&pass.found);
            sum.left.add(&pass.left);
            sum.moves.add(&pass.moves);
            if let Some(done) = done {
                sum.free.add(&free(done));
                sum.errors.extend(done.error.clone());
            }
            sum.nodes.push(pass);
        }
        // All that are at work wait.
        let is_at_work =
            |pass: &&NodePass| matches!(pass.stage, PassStage::Moving | PassStage::Looking);
        let mut at_work = sum.nodes.iter().filter(is_at_work).peekable();
        sum.is_yielding = at_work.peek().is_some() && at_work.all(|pass| pass.is_yielding);
        sum
    }

    fn pass_under_way(&self, order: &DefragOrderRecord, node: &NodeRecord) -> NodePass {
        let state = self.registry.state();
        let words = &self.defrag.words;
        let word = words.get(&NodeId(node.id));
        let word = word.filter(|word| word.order == order.number);
        let stage = match word {
            _ if !state.is_there(node.id) => PassStage::Away,
            _ if order.is_stopped => PassStage::Stopped,
            None => PassStage::Waiting,
            Some(word) if word.is_looking => PassStage::Looking,
            Some(_) => PassStage::Moving,
        };
        let word = word.cloned().unwrap_or_default();
        NodePass {
            node: node.number,
            stage,
            is_yielding: word.is_yielding && !order.is_stopped,
            found: layout(&word.found),
            left: layout(&word.left),
            moves: moves(word.moved_blocks, word.kept_blocks),
        }
    }
}

fn pass_done(node: u32, done: &DefragResult) -> NodePass {
    NodePass {
        node,
        stage: PassStage::Done,
        is_yielding: false,
        found: layout(&done.found),
        left: layout(&done.left),
        moves: moves(done.moved_blocks, done.kept_blocks),
    }
}

pub(crate) const fn kept_blocks(moves: &Moves) -> [u64; 4] {
    [
        moves.pinned_blocks,
        moves.busy_blocks,
        moves.unreadable_blocks,
        moves.homeless_blocks,
    ]
}

pub(crate) const fn layout_word(layout: &Layout) -> LayoutWord {
    LayoutWord {
        objects: layout.objects,
        blocks: layout.blocks,
        runs: layout.runs,
        seek_blocks: layout.seek_blocks,
    }
}

const fn layout(word: &LayoutWord) -> Layout {
    Layout {
        objects: word.objects,
        blocks: word.blocks,
        runs: word.runs,
        seek_blocks: word.seek_blocks,
    }
}

const fn moves(moved_blocks: u64, kept_blocks: [u64; 4]) -> Moves {
    let [
        pinned_blocks,
        busy_blocks,
        unreadable_blocks,
        homeless_blocks,
    ] = kept_blocks;
    Moves {
        moved_blocks,
        pinned_blocks,
        busy_blocks,
        unreadable_blocks,
        homeless_blocks,
    }
}

const fn free(done: &DefragResult) -> FreeSpace {
    let [blocks, runs, longest_blocks, unseen_blocks] = done.free;
    FreeSpace {
        blocks,
        runs,
        longest_blocks,
        unseen_blocks,
    }
}
