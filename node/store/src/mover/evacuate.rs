//! Emptying closed blocks: what lies there goes to wherever there is room, piece by piece,
//! by the flights of the mover. What cannot be moved yet is left to the next pass.

use crossdock_names::ObjectId;

use super::carry::UNIT_BLOCKS;
use super::choice::hold;
use super::{Goal, Step, Stretch};
use crate::interface::{ClosedBlocks, DefragReport, EvacuationReport, StoreEffect};
use crate::runs::DiskRange;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

/// Before pieces become shorter than this, 64 KiB, the disk gets longer, if it can.
const PIECE_BLOCKS_MIN: u64 = 16;

impl Store {
    pub(crate) fn begin_evacuating(&mut self, is_first: bool, blocks_max: u64) {
        let step = Step {
            goal: Goal::Evacuate,
            placement: None,
        };
        self.begin_step(step, is_first, blocks_max);
    }

    /// The disk can have that length, and these blocks of it are to hold nothing.
    pub(crate) fn take_space(&mut self, capacity_bytes: u64, closed: Vec<ClosedBlocks>) {
        self.config.capacity_bytes = capacity_bytes;
        self.config.closed = closed;
        self.set_room();
        // What the disk refused it may have by now.
        self.space.may_grow();
        self.settling.is_starved = false;
    }

    pub(crate) fn set_room(&mut self) {
        let flights = self.flights.values();
        let in_use = flights.flat_map(|flight| flight.extents.iter().copied());
        let in_use: Vec<DiskRange> = in_use.collect();
        let capacity = self.config.capacity_bytes / BLOCK;
        let closed = self.config.closed.clone();
        self.space.set_room(capacity, closed, &in_use);
    }

    pub(super) fn is_evacuating(&self) -> bool {
        let goal = self.mover.step.as_ref().map(|step| step.goal);
        goal == Some(Goal::Evacuate)
    }

    /// Moves the beginning of a stretch if that is closed.
    pub(super) fn evacuate(&mut self, id: &ObjectId, stretch: &Stretch) -> Result<(), Hold> {
        let (is_closed, blocks) = self.space.first_part(stretch.disk);
        if !is_closed {
            // Where there are holes it is not known which block lies at the border.
            let rest = match blocks == stretch.disk.blocks {
                true => *stretch,
                false => stretch.cut(blocks.min(stretch.solid)),
            };
            self.mover.place.leave(&rest, false);
            return Ok(());
        }
        let blocks = blocks.min(stretch.solid).min(UNIT_BLOCKS);
        let blocks = blocks.min(self.mover.budget);
        match self.look_for_room(blocks)? {
            Some(at) => self.move_unit(id, &stretch.cut(at.blocks), at.block, true),
            None => {
                self.mover.report.moves.homeless_blocks += blocks;
                self.mover.place.leave(&stretch.cut(blocks), true);
                Ok(())
            }
        }
    }

    /// Free blocks for that many, or for the first of them: behind what lies before, else
    /// the lowest.
    fn look_for_room(&mut self, blocks: u64) -> Result<Option<DiskRange>, Hold> {
        if let Some(end) = self.mover.place.end() {
            let behind = DiskRange { block: end, blocks };
            if self.space.is_free(behind).map_err(hold)? {
                return Ok(Some(behind));
            }
        }
        let mut wanted = blocks;
        loop {
            if let Some(at) = self.space.find_lowest(wanted).map_err(hold)? {
                return Ok(Some(at));
            }
            if wanted <= PIECE_BLOCKS_MIN
                && let Some(target) = self.space.next_size(PIECE_BLOCKS_MIN)
            {
                self.grow(target);
                return Err(Hold::Room);
            }
            if wanted == 1 {
                return Ok(None);
            }
            wanted /= 2;
        }
    }

    /// What is to be known before it can be told how much is left.
    pub(super) fn need_closed_groups(&self) -> Result<(), Hold> {
        self.space.closed_left().map_err(hold)?;
        Ok(())
    }

    pub(super) fn tell_evacuated(&mut self, report: &DefragReport) {
        let flights = self.flights.values().flat_map(|flight| &flight.extents);
        let in_flight: u64 = flights.map(|extent| self.space.closed_in(*extent)).sum();
        let left = self.space.closed_left();
        self.effects
            .push_back(StoreEffect::Evacuated(Ok(EvacuationReport {
                moves: report.moves,
                is_stalled: report.is_stalled,
                is_complete: report.is_complete && left.is_ok(),
                left_blocks: left.unwrap_or(0) + in_flight,
            })));
    }
}
