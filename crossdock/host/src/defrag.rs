//! The defragmenter of this host: has the nodes' stores put together what lies apart, one
//! node after the other and in small steps, by order or every day at a given time.
//!
//! How far it keeps out of the clients' way is in [`MoverPace`].
//!
//! A pass goes through everything twice: to move, and to look at what has come of it. What managers
//! of an ensemble order is in `defrag_orders`.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_members::DailyWindow;
use crossdock_names::{FileRef, NodeId};
use crossdock_peer::{DefragWord, NodeError};
use crossdock_server::{MoverPace, MoverTurn, NodeInput};
use crossdock_store::{DefragReport, DefragStep, FreeSpace, Layout, Moves, StoreInput};
use crossdock_types::{Time, WallTime};

use crate::defrag_orders::Orders;
use crate::defrag_words::NodePass;
use crate::host::Host;
use crate::message::Message;
use crate::nodes::{Drain, NodeState};
use crate::walks::{Goal, WALKS_MAX, Walk, WalkError, names_of, volume_root};

/// Rest between two steps that nobody is held up by.
const REST: Duration = Duration::from_millis(1);

/// After a step that found no room in the journal, or no longer disk.
const STALL_REST: Duration = Duration::from_millis(100);

/// So many of these on end: there will be none.
const STALLS_MAX: u32 = 600;

/// How often it is looked whether a node has emptied what is to go of its disk.
const EVACUATION_REST: Duration = Duration::from_secs(1);

/// How often it is looked whether the time of the day has come.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(10);

/// How far the last pass has come.
#[derive(Clone, Debug, Default)]
pub struct DefragProgress {
    /// Whether it is at work.
    pub running: bool,
    /// It was begun because its time had come.
    pub is_scheduled: bool,
    /// It waits because clients are at work.
    pub is_yielding: bool,
    /// It was ended by order, before it had come to its end.
    pub is_stopped: bool,
    /// Of which file; `None`: of all that the nodes have.
    pub path: Option<String>,
    /// How objects lay when it came to them.
    pub found: Layout,
    /// How they lie, as far as that has been looked at since.
    pub left: Layout,
    /// How the free space lies; told at the end.
    pub free: FreeSpace,
    /// What was moved, and what was left where it was.
    pub moves: Moves,
    /// What has kept it from going to the end.
    pub errors: Vec<String>,
    /// At a manager of an ensemble: how far each node is with the last order.
    pub nodes: Vec<NodePass>,
}

/// The defragmenter.
#[derive(Debug, Default)]
pub(crate) struct Defrag {
    pub(crate) progress: DefragProgress,
    pub(crate) orders: Orders,
    /// Of a manager: what nodes of other hosts have told of the last order.
    pub(crate) words: BTreeMap<NodeId, DefragWord>,
    /// Nodes that have still to be gone through, by number.
    nodes: Vec<u32>,
    pub(crate) placement: Option<u64>,
    stage: Stage,
    /// The next step is the first of its stage at that node.
    is_first: bool,
    /// Which pass it is; a step of another one tells nothing.
    pass: u64,
    asked: Option<Asked>,
    /// The step that was asked for has been answered: the next one is planned by whoever
    /// knows the time.
    is_answered: bool,
    is_stalled: bool,
    stalls: u32,
    due: Option<Time>,
    pace: MoverPace,
    schedule_due: Option<Time>,
    /// It has had its turn in the window that is open now.
    has_had_turn: bool,
    /// The last window ended before it did.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Moving,
    Looking,
}

/// A step that a node has been asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    pass: u64,
    number: u32,
    at: Time,
}

impl Defrag {
    /// `has_schedule`: the registry knows one.
    pub(crate) fn new(has_schedule: bool) -> Self {
        Self {
            schedule_due: has_schedule.then(Time::default),
            ..Self::default()
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        let dues = [self.due, self.schedule_due, self.orders.due()];
        dues.into_iter().flatten().min()
    }

    /// Whether it has moved what it could at its node, and looks at what has come of it.
    pub(crate) const fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Looking)
    }

    /// Whether a node has been asked for a step.
    pub(crate) fn is_stepping_at(&self, number: u32) -> bool {
        self.asked.is_some_and(|asked| asked.number == number)
    }

    fn next_node(&mut self) {
        if !self.nodes.is_empty() {
            self.nodes.remove(0);
        }
        self.stage = Stage::Moving;
        self.is_first = true;
        self.pace = MoverPace::default();
    }

    fn begin(&mut self, now: Time, nodes: Vec<u32>) {
        self.pass += 1;
        self.nodes = nodes;
        self.stage = Stage::Moving;
        self.is_first = true;
        self.is_cut = false;
        self.stalls = 0;
        self.pace = MoverPace::default();
        self.due = Some(now);
    }
}

impl Host {
    /// How far the last pass of this process has come.
    #[must_use]
    pub const fn defrag_progress(&self) -> &DefragProgress {
        &self.defrag.progress
    }

    /// Begins a pass over all nodes of this host, or, at a manager of an ensemble, over all that are
    /// there; or over what they have of one file.
    ///
    /// # Errors
    /// One is at work already, or there can be no such file.
    pub fn start_defrag(
        &mut self,
        now: Time,
        wall: WallTime,
        path: Option<&str>,
    ) -> Result<(), String> {
        if self.defrag.progress.running || self.is_order_under_way() {
            return Err(
                "a pass is at work already; crossdock defrag status shows how far it is".to_owned(),
            );
        }
        let names = match path.map(names_of) {
            None => None,
            Some(Ok(names)) if !names.is_empty() => Some(names),
            Some(Ok(_)) => return Err("/ is a directory; say a file, or --now".to_owned()),
            Some(Err((path, why))) => {
                return Err(format!("{path:?} is no path of the volume: {why}"));
            }
        };
        if names.is_some() && self.walks.len() >= WALKS_MAX {
            return Err("too many paths are being looked up at this moment; try again".to_owned());
        }
        self.defrag.placement = None;
        self.defrag.progress = DefragProgress {
            running: true,
            path: path.map(str::to_owned),
            ..DefragProgress::default()
        };
        match names {
            Some(names) => {
                let walk = Walk::new(&names, Goal::Defrag);
                self.begin_walk(now, walk, volume_root());
            }
            None => {
                if !self.order_defrag(now, None) {
                    self.begin_pass(now);
                }
            }
        }
        self.advance(now, wall);
        Ok(())
    }

    /// Ends the pass that is at work; what it has moved stays so. One that was begun by its
    /// time of the day does not go on before the next one.
    ///
    /// # Errors
    /// None is at work.
    pub fn stop_defrag(&mut self, now: Time) -> Result<(), String> {
        if let Some(called_off) = self.call_off_defrag() {
            return called_off;
        }
        let defrag = &mut self.defrag;
        if !defrag.progress.running {
            return Err("no pass is at work".to_owned());
        }
        defrag.progress.running = false;
        defrag.progress.is_yielding = false;
        defrag.progress.is_stopped = true;
        defrag.placement = None;
        defrag.nodes.clear();
        defrag.due = None;
        self.note_defrag_end(now);
        Ok(())
    }

    /// The path has led to a file.
    pub(crate) fn finish_defrag_path(&mut self, now: Time, file: FileRef) {
        let progress = &self.defrag.progress;
        if !progress.running || progress.path.is_none() {
            return; // It was stopped before it had begun.
        }
        if !self.order_defrag(now, Some(file)) {
            self.defrag.placement = Some(file.id.0);
            self.begin_pass(now);
        }
    }

    /// It has not.
    pub(crate) fn fail_defrag_path(&mut self, path: &str, error: &WalkError) {
        let why = match error {
            WalkError::NotFound => format!("the volume has no {path}"),
            WalkError::NotDirectory => format!("{path} is no regular file"),
            WalkError::Volume(error) => format!(
                "the volume did not answer ({error}); crossdock status may show why; try again"
            ),
        };
        self.defrag.progress.errors.push(why);
        self.defrag.progress.running = false;
    }

    /// From now on passes are made at that time of the day, or only by order.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn set_defrag_schedule(
        &mut self,
        now: Time,
        wall: WallTime,
        window: Option<DailyWindow>,
    ) -> Result<(), String> {
        self.change(self.defrag_change(window))?;
        if !self.registry.is_shared() {
            self.defrag_rescheduled(now, wall);
            self.advance(now, wall);
        }
        Ok(())
    }

    /// The time of the day is another one.
    pub(crate) fn defrag_rescheduled(&mut self, now: Time, wall: WallTime) {
        self.defrag.has_had_turn = false;
        self.follow_defrag_schedule(now, wall);
    }

    pub(crate) fn begin_pass(&mut self, now: Time) {
        let running = self.nodes.values();
        let running = running.filter(|slot| slot.state == NodeState::Running);
        let mut nodes: Vec<u32> = running.map(|slot| slot.number).collect();
        nodes.sort_unstable();
        self.defrag.begin(now, nodes);
    }

    /// A node's store has ended a step.
    pub(crate) fn take_defragged(&mut self, number: u32, step: Result<DefragReport, NodeError>) {
        let defrag = &mut self.defrag;
        let asked = defrag.asked.filter(|asked| asked.number == number);
        let Some(asked) = asked else {
            return;
        };
        defrag.is_answered = true;
        if asked.pass != defrag.pass || !defrag.progress.running {
            return;
        }
        let progress = &mut defrag.progress;
        let report = match step {
            Ok(report) => report,
            Err(error) => {
                let what = format!("node {number}: not gone through to its end: {error}");
                progress.errors.push(what);
                return defrag.next_node();
            }
        };
        defrag.is_first = false;
        defrag.is_stalled = report.is_stalled && report.moves.moved_blocks == 0;
        match defrag.stage {
            Stage::Moving => {
                progress.found.add(&report.layout);
                progress.moves.add(&report.moves);
            }
            Stage::Looking => progress.left.add(&report.layout),
        }
        match (report.is_complete, defrag.stage) {
            (false, _) => {}
            (true, Stage::Moving) => {
                defrag.stage = Stage::Looking;
                defrag.is_first = true;
            }
            (true, Stage::Looking) => {
                progress.free.add(&report.free);
                defrag.next_node();
            }
        }
    }

    /// The node is gone: so is the step that it was asked for.
    pub(crate) fn forget_defrag_of(&mut self, number: u32) {
        let is_its = |asked: &Asked| asked.number == number;
        self.defrag.is_answered |= self.defrag.asked.as_ref().is_some_and(is_its);
    }

    /// Plans the next step, once the last one was answered.
    pub(crate) fn plan_defrag(&mut self, now: Time) {
        let defrag = &mut self.defrag;
        if !std::mem::take(&mut defrag.is_answered) {
            return;
        }
        let Some(asked) = defrag.asked.take() else {
            return;
        };
        if !defrag.progress.running {
            return;
        }
        let slot = self.nodes.values().find(|slot| slot.number == asked.number);
        if let Some(node) = slot.and_then(|slot| slot.node.as_ref()) {
            defrag.pace.step_ended(now, asked.at, node);
        }
        defrag.stalls = match std::mem::take(&mut defrag.is_stalled) {
            true => defrag.stalls + 1,
            false => 0,
        };
        if defrag.stalls > STALLS_MAX {
            let what = "the journal or the disk has had no room for a long time; crossdock status \
                        shows what is full";
            defrag.progress.errors.push(what.to_owned());
            defrag.next_node();
            defrag.stalls = 0;
        }
        let is_stalled = defrag.stalls > 0;
        defrag.due = Some(now + if is_stalled { STALL_REST } else { REST });
    }

    /// What of it is due.
    pub(crate) fn wake_defrag(&mut self, now: Time, wall: WallTime) {
        if self.defrag.schedule_due.is_some_and(|due| due <= now) {
            self.follow_defrag_schedule(now, wall);
        }
        if self.defrag.due.is_some_and(|due| due <= now) {
            self.step_defrag(now);
        }
        if self.defrag.orders.due().is_some_and(|due| due <= now) {
            self.follow_defrag(now, wall);
        }
    }

    /// Begins at its time of the day, and lets go when that is over.
    fn follow_defrag_schedule(&mut self, now: Time, wall: WallTime) {
        let window = self.defrag_schedule();
        let is_open = window.is_some_and(|window| window.contains(wall));
        let defrag = &mut self.defrag;
        defrag.schedule_due = window.map(|_| now + SCHEDULE_INTERVAL);
        if !is_open {
            defrag.has_had_turn = false;
            if defrag.progress.running && defrag.progress.is_scheduled {
                defrag.progress.running = false;
                defrag.is_cut = true;
                defrag.due = None;
            }
            return;
        }
        if defrag.has_had_turn || defrag.progress.running || self.drain != Drain::Serving {
            return;
        }
        if (self.nodes.values()).any(|slot| slot.state == NodeState::Opening) {
            return; // They are to have their turn, too.
        }
        defrag.has_had_turn = true;
        if std::mem::take(&mut defrag.is_cut) {
            defrag.progress.running = true; // From where it was.
            defrag.pass += 1;
            defrag.due = Some(now);
            return;
        }
        defrag.placement = None;
        defrag.progress = DefragProgress {
            running: true,
            is_scheduled: true,
            ..DefragProgress::default()
        };
        self.begin_pass(now);
    }

    /// Asks the next node for the next step, if that holds up nobody; a node that is gone
    /// is left out.
    fn step_defrag(&mut self, now: Time) {
        self.defrag.due = None;
        if self.defrag.asked.is_some() || self.drain != Drain::Serving {
            return; // One of an earlier pass has to be answered first; or nothing goes on.
        }
        while let Some(&number) = self.defrag.nodes.first() {
            let slot = self.nodes.values().find(|slot| slot.number == number);
            let slot = slot.filter(|slot| slot.state == NodeState::Running);
            let Some((id, node)) = slot.and_then(|slot| Some((slot.id, slot.node.as_ref()?)))
            else {
                self.defrag.next_node();
                continue;
            };
            let defrag = &mut self.defrag;
            if self.evacuations.contains_key(&number) {
                // Its mover has something else to do.
                defrag.progress.is_yielding = true;
                defrag.due = Some(now + EVACUATION_REST);
                return;
            }
            let (blocks_max, is_yielding) = match defrag.pace.turn(now, node) {
                MoverTurn::Step {
                    blocks_max,
                    is_yielding,
                } => (blocks_max, is_yielding),
                MoverTurn::Wait(until) => {
                    defrag.progress.is_yielding = true;
                    defrag.due = Some(until);
                    return;
                }
            };
            defrag.progress.is_yielding = is_yielding;
            let step = DefragStep {
                placement: defrag.placement,
                moves: defrag.stage == Stage::Moving,
                is_first: defrag.is_first,
                blocks_max,
            };
            let (pass, at) = (defrag.pass, now);
            defrag.asked = Some(Asked { pass, number, at });
            let input = NodeInput::Store(StoreInput::Defrag(step));
            self.queue.push_back(Message::Node(id, input));
            return;
        }
        self.defrag.progress.running = false;
        self.defrag.progress.is_yielding = false;
        self.note_defrag_end(now);
    }
}
