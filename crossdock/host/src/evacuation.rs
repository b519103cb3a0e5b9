//! Emptying parts of nodes' data disks: what lies on a set of disks that is to go moves to
//! the others, step by step and at a bounded rate, until nothing is left.
//!
//! Each pass goes through all objects of the node. What is pinned, or being changed, stays
//! for the next one.

use std::time::Duration;

use crossdock_peer::NodeError;
use crossdock_server::NodeInput;
use crossdock_store::{ClosedBlocks, EvacuationReport, Moves, StoreInput};
use crossdock_types::{BLOCK_BYTES, Time, WallTime};

use crate::host::{Host, HostEffect};
use crate::message::Message;
use crate::nodes::{Drain, NodeState};

/// Blocks that are moved in one step: 1 MiB. Before the disk they stand behind all others.
const STEP_BLOCKS: u64 = 256;

/// Rest between two steps, at least.
const REST: Duration = Duration::from_millis(1);

/// After a step that found no room in the journal, or no longer disk; and where the mover
/// has something else to do.
const STALL_REST: Duration = Duration::from_millis(100);

/// Between two passes: until then pins may have gone.
const PASS_REST: Duration = Duration::from_millis(500);

/// How much of a node's data disk may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataRoom {
    /// How long it can become.
    pub capacity_bytes: u64,
    /// Where nothing is to lie.
    pub closed: Vec<ClosedBlocks>,
}

/// How far a node is with emptying what is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvacuationProgress {
    /// Blocks that have another place now, since it was begun in this process.
    pub moved_blocks: u64,
    /// Blocks that were left at the end of the last pass; `None` before the first.
    pub left_blocks: Option<u64>,
    /// Of the last pass: blocks that were pinned.
    pub pinned_blocks: u64,
    /// The same that could not be read, or lay beside such ones.
    pub unreadable_blocks: u64,
    /// The same that had no room elsewhere.
    pub homeless_blocks: u64,
    /// Why it does not go on.
    pub error: Option<String>,
}

/// What is done at one node.
#[derive(Debug, Default)]
pub(crate) struct Evacuation {
    progress: EvacuationProgress,
    /// What this pass has found so far.
    pass: Moves,
    /// The next step is not the first of its pass.
    is_under_way: bool,
    /// A step was asked for, and when.
    asked: Option<Time>,
    /// It has been answered; who knows the time plans the next one.
    answer: Option<Result<EvacuationReport, NodeError>>,
    due: Option<Time>,
    /// It was called off: it ends with its step.
    is_off: bool,
}

impl Evacuation {
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// When the next step may begin after one that has moved so much.
    fn rest(&self, report: &EvacuationReport, bytes_per_second: u64) -> Duration {
        if report.is_stalled && report.moves.moved_blocks == 0 {
            return STALL_REST;
        }
        if report.is_complete {
            return PASS_REST;
        }
        let bytes = u128::from(report.moves.moved_blocks * BLOCK_BYTES as u64);
        let nanos = bytes * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(REST)
    }

    fn count(&mut self, report: &EvacuationReport) {
        self.is_under_way = !report.is_complete;
        self.progress.error = None;
        self.progress.moved_blocks += report.moves.moved_blocks;
        self.pass.add(&report.moves);
        if report.is_complete {
            let pass = std::mem::take(&mut self.pass);
            self.progress.left_blocks = Some(report.left_blocks);
            self.progress.pinned_blocks = pass.pinned_blocks;
            self.progress.unreadable_blocks = pass.unreadable_blocks;
            self.progress.homeless_blocks = pass.homeless_blocks;
        }
    }
}

impl Host {
    /// How much of node `number`'s data disk may be used from now on: at once if it runs.
    pub fn set_data_room(&mut self, now: Time, wall: WallTime, number: u32, room: DataRoom) {
        let slot = self.nodes.values().find(|slot| slot.number == number);
        let running = slot.filter(|slot| slot.node.is_some()).map(|slot| slot.id);
        let input = StoreInput::Space {
            capacity_bytes: room.capacity_bytes,
            closed: room.closed.clone(),
        };
        self.data_rooms.insert(number, room);
        if let Some(id) = running {
            self.queue
                .push_back(Message::Node(id, NodeInput::Store(input)));
            self.advance(now, wall);
        }
    }

    /// Has node `number` move away what lies where nothing is to lie;
    /// [`HostEffect::Evacuated`] comes when nothing is left there.
    pub fn begin_evacuation(&mut self, now: Time, number: u32) {
        let evacuation = self.evacuations.entry(number).or_default();
        evacuation.is_off = false;
        evacuation.is_under_way = false;
        evacuation.progress = EvacuationProgress::default();
        evacuation.pass = Moves::default();
        if evacuation.asked.is_none() {
            evacuation.due = Some(now);
        }
    }

    /// It is not wanted any more.
    pub fn call_off_evacuation(&mut self, number: u32) {
        let is_idle = |evacuation: &mut Evacuation| {
            evacuation.is_off = true;
            evacuation.due = None;
            evacuation.asked.is_none()
        };
        if self.evacuations.get_mut(&number).is_some_and(is_idle) {
            self.evacuations.remove(&number);
        }
    }

    /// How far node `number` is with it.
    #[must_use]
    pub fn evacuation_progress(&self, number: u32) -> Option<&EvacuationProgress> {
        let evacuation = self.evacuations.get(&number);
        let evacuation = evacuation.filter(|evacuation| !evacuation.is_off);
        evacuation.map(|evacuation| &evacuation.progress)
    }

    /// A node's store has ended a step.
    pub(crate) fn take_evacuated(
        &mut self,
        number: u32,
        step: Result<EvacuationReport, NodeError>,
    ) {
        if let Some(evacuation) = self.evacuations.get_mut(&number)
            && evacuation.asked.is_some()
        {
            evacuation.answer = Some(step);
        }
    }

    /// The node is gone: so is the step that it was asked for.
    pub(crate) fn forget_evacuation_of(&mut self, number: u32) {
        if let Some(evacuation) = self.evacuations.get_mut(&number) {
            evacuation.asked = None;
            evacuation.answer = None;
            evacuation.due = None;
            evacuation.is_under_way = false;
        }
    }

    /// The node serves, again.
    pub(crate) fn resume_evacuation_of(&mut self, now: Time, number: u32) {
        if let Some(evacuation) = self.evacuations.get_mut(&number) {
            evacuation.due = Some(now);
        }
    }

    /// Plans the next steps, where the last ones were answered.
    pub(crate) fn plan_evacuations(&mut self, now: Time) {
        let rate = self.settings.rebuild_bytes_per_second;
        let mut ended = Vec::new();
        for (&number, evacuation) in &mut self.evacuations {
            let Some(answer) = evacuation.answer.take() else {
                continue;
            };
            evacuation.asked = None;
            if evacuation.is_off {
                ended.push((number, false));
                continue;
            }
            match answer {
                Ok(report) => {
                    evacuation.count(&report);
                    if report.is_complete && report.left_blocks == 0 {
                        ended.push((number, true));
                    }
                    evacuation.due = Some(now + evacuation.rest(&report, rate));
                }
                Err(error) => {
                    evacuation.progress.error = Some(error.to_string());
                    evacuation.due = Some(now + PASS_REST);
                }
            }
        }
        for (number, is_empty) in ended {
            self.evacuations.remove(&number);
            if is_empty {
                self.effects.push_back(HostEffect::Evacuated { number });
            }
        }
    }

    /// Asks the nodes whose time has come for their next steps.
    pub(crate) fn wake_evacuations(&mut self, now: Time) {
        for (&number, evacuation) in &mut self.evacuations {
            if evacuation.due.is_none_or(|due| due > now) {
                continue;
            }
            evacuation.due = None;
            let slot = self.nodes.values().find(|slot| slot.number == number);
            let slot = slot.filter(|slot| slot.state == NodeState::Running);
            let Some(slot) = slot.filter(|_| self.drain == Drain::Serving) else {
                continue; // It goes on when the node is there again.
            };
            if self.defrag.is_stepping_at(number) {
                evacuation.due = Some(now + STALL_REST);
                continue;
            }
            evacuation.asked = Some(now);
            let input = StoreInput::Evacuate {
                is_first: !evacuation.is_under_way,
                blocks_max: STEP_BLOCKS,
            };
            self.queue
                .push_back(Message::Node(slot.id, NodeInput::Store(input)));
        }
    }
}
