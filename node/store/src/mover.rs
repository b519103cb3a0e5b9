//! The mover: puts together what objects have in many places, step by step and in the
//! background (iNAS section 1.6, "disk fragment clear-up program").
//!
//! It goes through each object from its first block to its last. A run that does not go on
//! where the last one ends, and is not long enough to be worth a seek, is copied to behind
//! that end, if there is room; else what is short before it, and what comes, goes to the
//! lowest stretch of free blocks that is long enough ([`choice`]). Each piece is a flight
//! of its own ([`carry`]): read and checked, written, flushed, and then mapped by the same
//! record as a write. What a client has written, cut off or pinned meanwhile stays as the
//! client has it. The record that maps a piece frees its old place; so at every moment a
//! loss of power finds one or the other whole.
//!
//! What is moved keeps its versions and checksums: to the other members of its set, and to
//! whoever reads a given version, nothing has happened.

use std::collections::VecDeque;

use crossdock_names::{ObjectClass, ObjectId};
use crossdock_peer::NodeError;

use crate::index::{IndexCall, Walker};
use crate::interface::{DefragReport, DefragStep, StoreEffect};
use crate::layout::LayoutMeter;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::store::{Phase, Store, busy};
use crate::waiting::Hold;

mod carry;
mod choice;
mod evacuate;

use carry::Planned;
use choice::{Choice, LONG_BLOCKS, Place};

/// Decisions in one step: nobody else has a turn meanwhile.
const LOOKS_PER_STEP: usize = 1024;

/// Bytes of records that a block takes at most, when it is moved: each may have a version
/// of its own.
const RECORD_BYTES: u64 = 160;

/// Where the mover is.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    /// Under way.
    step: Option<Step>,
    object: Option<ObjectId>,
    /// The object before; the next is searched after it.
    last: Option<ObjectId>,
    place: Place,
    meter: LayoutMeter,
    /// It goes on when this load has been answered.
    load: Option<u64>,
    /// The index has been asked for the next object.
    is_asked: bool,
    /// Blocks that this step may still move.
    budget: u64,
    looks: usize,
    /// The step looks at nothing more; it ends when its flights have landed.
    is_ending: bool,
    /// Those of this step that have not landed.
    flights: usize,
    /// Those that are still to be read, and those that are still to be written.
    planned: VecDeque<Planned>,
    read: VecDeque<u64>,
    /// Those that are being read.
    reading: usize,
    /// Those that are being written.
    pub(crate) writing: usize,
    is_carrying: bool,
    report: DefragReport,
}

impl Mover {
    /// Whether all flights of the step are on the disk: they are flushed together.
    pub(crate) fn is_written(&self) -> bool {
        let is_idle = self.reading + self.writing == 0;
        self.is_ending && is_idle && self.planned.is_empty() && self.read.is_empty()
    }

    const fn is_exhausted(&self) -> bool {
        self.budget == 0 || self.looks == 0
    }
}

/// What a step is to do.
#[derive(Clone, Copy, Debug)]
struct Step {
    goal: Goal,
    /// Of which file's objects; `None` means all objects.
    placement: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To tell how objects lie.
    Look,
    /// To put together what lies apart.
    Gather,
    /// To leave nothing on closed blocks.
    Evacuate,
}

/// Contiguous blocks of the disk with blocks of an object, in the order of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// First block of the object.
    first: u64,
    /// Behind its last block of the object.
    end: u64,
    disk: DiskRange,
    /// So many of its blocks, from the first on, have no hole between them.
    solid: u64,
}

impl Stretch {
    /// Its first blocks, before which there is no hole.
    const fn cut(&self, blocks: u64) -> Self {
        Self {
            first: self.first,
            end: self.first + blocks,
            disk: DiskRange {
                block: self.disk.block,
                blocks,
            },
            solid: blocks,
        }
    }
}

impl Store {
    pub(crate) fn begin_moving(&mut self, step: DefragStep) {
        let goal = match step.moves {
            true => Goal::Gather,
            false => Goal::Look,
        };
        let placement = step.placement;
        self.begin_step(Step { goal, placement }, step.is_first, step.blocks_max);
    }

    fn begin_step(&mut self, step: Step, is_first: bool, blocks_max: u64) {
        let mut error = match &self.phase {
            Phase::Open => None,
            Phase::Opening(_) => Some(busy()),
            Phase::Failed(what) => Some(self.media(what.clone())),
        };
        if let Some(other) = &self.mover.step {
            if (other.goal == Goal::Evacuate) == (step.goal == Goal::Evacuate) {
                return; // One at a time; that one is answered.
            }
            error = error.or(Some(busy()));
        }
        if let Some(error) = error {
            return self.effects.push_back(failed_step(step.goal, error));
        }
        let records = self.journal.frame_bytes_max() / RECORD_BYTES;
        let mover = &mut self.mover;
        if is_first {
            mover.object = None;
            mover.last = step.placement.and_then(before_placement);
            mover.meter = LayoutMeter::default();
        }
        mover.budget = blocks_max.min(records);
        mover.looks = LOOKS_PER_STEP;
        mover.step = Some(step);
        self.move_on();
    }

    /// The index gave its next object.
    pub(crate) fn mover_found(&mut self, found: Option<ObjectId>) {
        if !std::mem::take(&mut self.mover.is_asked) {
            return; // Of a step that was given up.
        }
        let object = self.next_known(self.mover.last, found);
        let placement = self.mover.step.and_then(|step| step.placement);
        let is_meant = |id: &ObjectId| {
            let is_of = |it| id.class == ObjectClass::Column && id.placement == it;
            placement.is_none_or(is_of)
        };
        let object = object.filter(is_meant);
        if object.is_none()
            && self.is_evacuating()
            && let Err(Hold::Load(wanted)) = self.need_closed_groups()
        {
            self.mover.load = Some(self.load(*wanted));
            return; // The index is asked once more when they are there.
        }
        let mover = &mut self.mover;
        mover.object = object;
        mover.place = Place::default();
        mover.meter.begin_object();
        if object.is_none() {
            mover.last = None;
            mover.report.is_complete = true;
            mover.is_ending = true;
        }
        self.move_on();
    }

    /// The index answered the load of that number.
    pub(crate) fn mover_loaded(&mut self, token: u64) {
        if self.mover.load.is_some_and(|load| load <= token) {
            self.mover.load = None;
            self.move_on();
        }
    }

    /// Looks on, until the step is at its end or has to wait.
    fn move_on(&mut self) {
        while let Some(step) = self.mover.step
            && !self.mover.is_ending
        {
            if self.mover.is_exhausted() || self.checkpoint.is_draining {
                self.mover.is_ending = true;
                break;
            }
            let Some(id) = self.mover.object else {
                self.mover.is_asked = true;
                let after = self.mover.last;
                self.ask_index(IndexCall::NextObject(Walker::Mover, after));
                return;
            };
            self.mover.looks -= 1;
            match self.look_on(&id, step.goal) {
                Ok(()) => {}
                Err(Hold::Load(wanted)) => {
                    self.mover.load = Some(self.load(*wanted));
                    return;
                }
                Err(Hold::Room) => {
                    self.mover.report.is_stalled = true;
                    self.mover.is_ending = true;
                }
                Err(Hold::Refuse(_)) => self.next_object_to_move(id),
            }
        }
        self.carry_on();
        self.end_move_step();
    }

    fn next_object_to_move(&mut self, id: ObjectId) {
        self.mover.last = Some(id);
        self.mover.object = None;
    }

    /// Tells of the step if nothing of it is under way any more.
    fn end_move_step(&mut self) {
        let mover = &mut self.mover;
        if !mover.is_ending || mover.flights > 0 {
            return;
        }
        let Some(step) = mover.step.take() else {
            return;
        };
        mover.is_ending = false;
        let mut report = std::mem::take(&mut mover.report);
        report.layout = mover.meter.take();
        if step.goal == Goal::Evacuate {
            return self.tell_evacuated(&report);
        }
        if report.is_complete {
            report.free = self.space.free_space();
        }
        self.effects.push_back(StoreEffect::Defragged(Ok(report)));
    }

    /// The disk takes nothing any more.
    pub(crate) fn fail_mover(&mut self, error: &NodeError) {
        if let Some(step) = std::mem::take(&mut self.mover).step {
            self.effects
                .push_back(failed_step(step.goal, error.clone()));
        }
    }

    /// Looks at the next stretch of the object, and does what is to be done with it.
    fn look_on(&mut self, id: &ObjectId, goal: Goal) -> Result<(), Hold> {
        self.need_existing(id)?;
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let (serial, mapped_end) = (object.head.serial, object.head.mapped_end);
        let from = self.mover.place.next_block;
        if from >= mapped_end {
            self.next_object_to_move(*id);
            return Ok(());
        }
        let seen = mapped_end.min(from + 2 * LONG_BLOCKS);
        self.need_blocks(id, from, seen)?;
        let limit = seen.min(from + LONG_BLOCKS);
        let Some(stretch) = self.stretch_at(serial, from, limit) else {
            self.mover.place.next_block = limit;
            return Ok(());
        };
        if stretch.first >= self.mover.place.measured_to {
            self.mover.meter.add(stretch.disk);
            self.mover.place.measured_to = stretch.end;
        }
        match goal {
            Goal::Gather => {}
            Goal::Look => {
                self.mover.place.leave(&stretch, false);
                return Ok(());
            }
            Goal::Evacuate => return self.evacuate(id, &stretch),
        }
        let next = self.stretch_at(serial, stretch.end, seen.min(stretch.end + LONG_BLOCKS));
        let next = next.map_or(0, |next| next.disk.blocks);
        match self.choose(&stretch, next, mapped_end)? {
            Choice::Leave => self.mover.place.leave(&stretch, false),
            Choice::Follow => self.follow(id, &stretch)?,
            // What goes along may be on its way yet: the next step finds it landed.
            Choice::Anew { .. } if self.mover.flights > 0 => self.mover.is_ending = true,
            Choice::Anew { at, is_back } => self.mover.place.turn(at, &stretch, is_back),
        }
        Ok(())
    }

    /// The first stretch with blocks of `from..to` of a run map, all of which is in memory.
    fn stretch_at(&self, serial: u64, from: u64, to: u64) -> Option<Stretch> {
        let mut stretch: Option<Stretch> = None;
        let mut at = from;
        while at < to {
            let number = at / WINDOW_BLOCKS;
            let window_end = to.min((number + 1) * WINDOW_BLOCKS);
            let window = self.windows.get(&(serial, number));
            let Some((first, run)) = window.and_then(|window| window.find(at)) else {
                let next = window.and_then(|window| window.next_after(at));
                at = next.map_or(window_end, |next| next.min(window_end));
                continue;
            };
            let end = window_end.min(first + run.blocks());
            let disk = DiskRange {
                block: run.disk + (at - first),
                blocks: end - at,
            };
            match &mut stretch {
                None => {
                    stretch = Some(Stretch {
                        first: at,
                        end,
                        disk,
                        solid: disk.blocks,
                    });
                }
                Some(known) if known.disk.end() == disk.block => {
                    if known.first + known.solid == at {
                        known.solid += disk.blocks;
                    }
                    known.disk.blocks += disk.blocks;
                    known.end = end;
                }
                Some(_) => break,
            }
            at = end;
        }
        stretch
    }
}

/// What is told of a step that cannot be made.
fn failed_step(goal: Goal, error: NodeError) -> StoreEffect {
    match goal {
        Goal::Look | Goal::Gather => StoreEffect::Defragged(Err(error)),
        Goal::Evacuate => StoreEffect::Evacuated(Err(error)),
    }
}

/// The id before all columns of that file.
fn before_placement(placement: u64) -> Option<ObjectId> {
    Some(ObjectId {
        class: ObjectClass::Column,
        placement: placement.checked_sub(1)?,
        generation: u32::MAX,
        branch: u32::MAX,
        segment: u32::MAX,
        column: u16::MAX,
    })
}
