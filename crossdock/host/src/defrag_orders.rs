//! The defragmenter in an ensemble: managers order all nodes, by the registry, what they are to put
//! together; each node follows the registry, and tells there what came of it. How far it is meanwhile
//! is in `defrag_words`.

use std::time::Duration;

use crossdock_members::{Change, DailyWindow, DefragOrderRecord, DefragResult, NodeRecord};
use crossdock_names::FileRef;
use crossdock_types::{Time, WallTime};

use crate::defrag::DefragProgress;
use crate::defrag_words::{kept_blocks, layout_word};
use crate::exports::REGISTRY_PATIENCE;
use crate::host::Host;
use crate::nodes::{Drain, NodeState};

/// How often it is looked whether an order can be begun, and the registry is told again what came
/// of one.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Bytes of what is told of an error.
const ERROR_BYTES_MAX: usize = 300;

/// What is known of orders.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Of a manager: the order that the registry is to take, and until when it is waited for.
    ordering: Option<(u64, Time)>,
    /// Of a node: the order that was begun.
    begun: Option<u64>,
    /// What came of it, once it is over.
    result: Option<DefragResult>,
    /// Of a node: the time of the day that it was told last.
    schedule: Option<DailyWindow>,
    due: Option<Time>,
}

impl Orders {
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Of a node: number of the order that it has begun, and that is not over.
    pub(crate) fn under_way(&self) -> Option<u64> {
        self.begun.filter(|_| self.result.is_none())
    }
}

impl Host {
    /// Whether orders given here are for all nodes of an ensemble.
    #[must_use]
    pub fn orders_nodes(&self) -> bool {
        self.registry.is_shared() && self.role.is_manager
    }

    /// The only node of this process, where it is one of an ensemble.
    fn defrag_node(&self) -> Option<&NodeRecord> {
        let own = self.role.nodes.first()?;
        let nodes = &self.registry.state().nodes;
        let found = nodes.iter().find(|node| node.id == *own);
        found.filter(|_| self.registry.is_shared())
    }

    /// At which time of the day passes are made: of this node, or of all.
    #[must_use]
    pub fn defrag_schedule(&self) -> Option<DailyWindow> {
        match self.defrag_node() {
            Some(node) => node.defrag,
            None => self.registry.state().defrag,
        }
    }

    /// The change that makes it another one.
    pub(crate) fn defrag_change(&self, window: Option<DailyWindow>) -> Change {
        match self.defrag_node() {
            Some(node) => Change::SetNodeDefrag {
                node: node.id,
                window,
            },
            None => Change::SetDefrag { window },
        }
    }

    /// How far the last pass has come: of this process, or, at a manager of an ensemble, of all
    /// nodes by the last order.
    #[must_use]
    pub fn defrag_told(&self) -> DefragProgress {
        let own = self.defrag_progress();
        let order = self.registry.state().defrag_order.as_ref();
        // A path is being looked up, or has led nowhere.
        let is_own = own.running || !own.errors.is_empty();
        match order.filter(|_| self.orders_nodes() && !is_own) {
            Some(order) => self.progress_of(order),
            None => own.clone(),
        }
    }

    /// Has all nodes put together what they have of a file, or of everything, if this is a manager
    /// of an ensemble; whether it is.
    pub(crate) fn order_defrag(&mut self, now: Time, file: Option<FileRef>) -> bool {
        if !self.orders_nodes() {
            return false;
        }
        let last = self.registry.state().defrag_order.as_ref();
        let number = last.map_or(0, |order| order.number) + 1;
        let change = Change::OrderDefrag {
            number,
            file: file.map(|file| file.id.0),
            path: self.defrag.progress.path.clone(),
        };
        self.defrag.orders.ordering = Some((number, now + REGISTRY_PATIENCE));
        self.defrag.orders.due = Some(now + AGAIN_AFTER);
        if let Err(why) = self.change(change) {
            self.fail_order(why);
        }
        true
    }

    fn fail_order(&mut self, why: String) {
        self.defrag.orders.ordering = None;
        self.defrag.progress.running = false;
        self.defrag.progress.errors.push(why);
    }

    /// Why nothing can be ordered now, if this is a manager.
    pub(crate) fn is_order_under_way(&self) -> bool {
        self.orders_nodes() && self.registry.state().defragmenting().next().is_some()
    }

    /// Calls off what nodes are at work on, if this is a manager; `None`: it is not, or they are
    /// at work on nothing.
    pub(crate) fn call_off_defrag(&mut self) -> Option<Result<(), String>> {
        let order = self.registry.state().defrag_order.as_ref();
        let number = order.filter(|_| self.is_order_under_way())?.number;
        Some(self.change(Change::StopDefrag { number }))
    }

    /// The registry may have changed, or time has passed.
    pub(crate) fn follow_defrag(&mut self, now: Time, wall: WallTime) {
        self.defrag.orders.due = None;
        if !self.registry.is_shared() {
            return;
        }
        self.forget_defrag_words();
        self.follow_ordering(now);
        let window = self.defrag_schedule();
        if self.defrag_node().is_some() {
            if std::mem::replace(&mut self.defrag.orders.schedule, window) != window {
                self.defrag_rescheduled(now, wall);
            }
            self.follow_order(now);
        }
    }

    /// Whether the registry has taken what was ordered here.
    fn follow_ordering(&mut self, now: Time) {
        let Some((number, until)) = self.defrag.orders.ordering else {
            return;
        };
        let progress = &self.defrag.progress;
        let order = self.registry.state().defrag_order.as_ref();
        let order = order.filter(|order| order.number >= number);
        let is_own = order.map(|order| order.number == number && order.path == progress.path);
        match is_own {
            _ if !progress.running => self.defrag.orders.ordering = None, // Stopped meanwhile.
            Some(true) => {
                self.defrag.orders.ordering = None;
                self.defrag.progress = DefragProgress::default();
            }
            Some(false) => {
                self.fail_order(
                    "another pass was ordered at the same moment; try again".to_owned(),
                );
            }
            None if until <= now => {
                self.fail_order("the registry has not taken the order; try again".to_owned());
            }
            None => self.defrag.orders.due = Some(now + AGAIN_AFTER),
        }
    }

    /// Begins what this node is ordered to, ends what was called off, tells what came of it.
    fn follow_order(&mut self, now: Time) {
        let Some(order) = self.registry.state().defrag_order.clone() else {
            return;
        };
        let is_open = |node: &&NodeRecord| {
            order.nodes.contains(&node.number) && node.defrag_done(order.number).is_none()
        };
        let Some(node) = self.defrag_node().filter(is_open).map(|node| node.id) else {
            return;
        };
        self.defrag.orders.due = Some(now + AGAIN_AFTER);
        if self.defrag.orders.begun == Some(order.number) {
            if order.is_stopped && self.defrag.orders.result.is_none() {
                // That it ends just now is as good.
                let _ = self.stop_defrag(now);
            }
        } else if order.is_stopped {
            self.defrag.orders.begun = Some(order.number);
            self.defrag.orders.result = Some(DefragResult {
                order: order.number,
                ..DefragResult::default()
            });
        } else {
            self.begin_order(now, order);
        }
        self.tell_defrag_word(node);
        if let Some(result) = self.defrag.orders.result.clone() {
            // A shared registry takes it, and answers by its state.
            let _ = self.change(Change::EndDefrag { node, result });
        }
    }

    fn begin_order(&mut self, now: Time, order: DefragOrderRecord) {
        let progress = &self.defrag.progress;
        let is_busy = progress.running && !progress.is_scheduled;
        let mut slots = self.nodes.values();
        let is_there = slots.all(|slot| slot.state == NodeState::Running);
        if is_busy || !is_there || self.drain != Drain::Serving {
            return; // It is looked at again.
        }
        self.defrag.orders.begun = Some(order.number);
        self.defrag.orders.result = None;
        self.defrag.placement = order.file;
        self.defrag.progress = DefragProgress {
            running: true,
            path: order.path,
            ..DefragProgress::default()
        };
        self.begin_pass(now);
    }

    /// A pass is over. If it was ordered by a manager, that is told.
    pub(crate) fn note_defrag_end(&mut self, now: Time) {
        let node = self.defrag_node().map(|node| node.number);
        let (Some(number), Some(begun)) = (node, self.defrag.orders.begun) else {
            return;
        };
        let orders = &mut self.defrag.orders;
        if orders.result.is_none() {
            orders.result = Some(result_of(begun, number, &self.defrag.progress));
            orders.due = Some(now);
        }
    }
}

fn result_of(order: u64, node: u32, progress: &DefragProgress) -> DefragResult {
    let (moves, free) = (&progress.moves, &progress.free);
    let error = progress.errors.first().map(|error| {
        let mut told = format!("node {node}: {error}");
        while told.len() > ERROR_BYTES_MAX {
            told.pop();
        }
        told
    });
    DefragResult {
        order,
        found: layout_word(&progress.found),
        left: layout_word(&progress.left),
        moved_blocks: moves.moved_blocks,
        kept_blocks: kept_blocks(moves),
        free: [
            free.blocks,
            free.runs,
            free.longest_blocks,
            free.unseen_blocks,
        ],
        error,
    }
}
