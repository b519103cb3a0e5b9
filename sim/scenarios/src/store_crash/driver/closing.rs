//! Blocks that are closed, emptied, and then gone: what they give back from then on is
//! garbage, in this start and all that come.

use crossdock_store::{ClosedBlocks, Moves};

use super::super::rig::Output;
use super::{BLOCK, Driver, Outcome, violation};

/// Far more steps than it takes to empty everything.
const STEPS_MAX: usize = 400;

/// Blocks that are to hold nothing, from one start to the next: as labels of disks tell.
#[derive(Debug, Default)]
pub(in super::super) struct Closing {
    /// A random number that all of it comes from; 0 if nothing is ever closed.
    pub(in super::super) seed: u64,
    pub(in super::super) zones: Vec<ClosedBlocks>,
    /// Nothing is on them, and there is nothing below them.
    pub(in super::super) is_gone: bool,
    /// Blocks that are gone by now, of all seeds that were run.
    pub(in super::super) gone_blocks: u64,
}

impl Closing {
    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.seed >> 33) % bound
    }

    fn blocks(&self) -> u64 {
        self.zones.iter().map(|zone| zone.blocks * zone.rows).sum()
    }
}

impl Driver<'_> {
    /// Closes something, opens it again, or goes on with emptying it.
    pub(super) fn mind_closed(&mut self) {
        if self.memory.closing.seed == 0 || self.is_moving {
            return;
        }
        let closing = &mut self.memory.closing;
        match (closing.zones.is_empty(), closing.is_gone) {
            (true, _) if closing.below(12) == 0 => self.close_some(),
            (false, false) if closing.below(60) == 0 => {
                closing.zones.clear();
                self.tell_room("opened again");
            }
            (false, _) if closing.below(2) == 0 => {
                let is_first = !std::mem::take(&mut self.is_emptying);
                let blocks_max = 1 + self.memory.closing.below(64);
                self.empty(is_first, blocks_max);
            }
            _ => {}
        }
    }

    fn close_some(&mut self) {
        let capacity = self.rig.status().capacity_bytes / BLOCK;
        let free = self.rig.status().free_bytes / BLOCK;
        let closing = &mut self.memory.closing;
        let row_blocks = 2 + closing.below(50);
        let blocks = 1 + closing.below(row_blocks);
        let first = closing.below(capacity);
        let rows = (capacity - first) / row_blocks;
        let rows = 1 + closing.below(rows.max(1));
        let zone = ClosedBlocks {
            first,
            blocks,
            row_blocks,
            rows,
        };
        // Whoever closes something makes sure that there is room for what lies there.
        if rows * blocks <= free && first + rows * row_blocks <= capacity {
            self.memory.closing.zones = vec![zone];
            self.tell_room("closed");
        }
    }

    fn tell_room(&mut self, what: &str) {
        self.is_emptying = false;
        let zones = self.memory.closing.zones.clone();
        let line = || format!("{what}: {zones:?}");
        self.memory.history.note(self.rig.now, line);
        self.rig.set_closed(zones);
    }

    fn empty(&mut self, is_first: bool, blocks_max: u64) {
        self.is_moving = true;
        self.is_emptying = true;
        let line = || format!("empty {blocks_max} blocks, first: {is_first}");
        self.memory.history.note(self.rig.now, line);
        self.rig.evacuate(is_first, blocks_max);
    }

    pub(super) fn take_evacuated(&mut self, output: Output) -> Outcome<()> {
        let Output::Evacuated(outcome) = output else {
            return Ok(());
        };
        if !std::mem::take(&mut self.is_moving) {
            return violation(format!("nobody asked for {outcome:?}"));
        }
        let line = || format!("  {outcome:?}");
        self.memory.history.note(self.rig.now, line);
        let report = match outcome {
            Ok(report) if report.moves.unreadable_blocks > 0 && !self.may_be_unreadable() => {
                return violation(format!("blocks of sound disks cannot be moved: {report:?}"));
            }
            Ok(report) => report,
            Err(_) if self.rig.status().has_failed => return Ok(()),
            Err(error) => return violation(format!("a step of emptying gave {error}")),
        };
        self.is_emptying &= !report.is_complete;
        if report.is_complete && report.left_blocks == 0 {
            self.lose_closed();
        }
        self.evacuated = Some(report);
        Ok(())
    }

    /// They are empty: nobody will ever need what they give back.
    fn lose_closed(&mut self) {
        let closing = &mut self.memory.closing;
        if closing.zones.is_empty() {
            return;
        }
        if !std::mem::replace(&mut closing.is_gone, true) {
            closing.gone_blocks += closing.blocks();
        }
        self.rig.disks().lose(&self.memory.closing.zones);
    }

    /// Empties what is closed: with sound disks and nothing pinned, nothing is left.
    pub(super) fn empty_all(&mut self) -> Outcome<()> {
        if self.memory.closing.zones.is_empty() {
            return Ok(());
        }
        let (mut is_first, mut passes) = (true, 0);
        let mut pass = Moves::default();
        for _ in 0..STEPS_MAX {
            self.evacuated = None;
            self.empty(is_first, 64);
            let report = loop {
                self.step(None)?;
                if let Some(report) = self.evacuated.take() {
                    break report;
                }
            };
            is_first = report.is_complete;
            pass.add(&report.moves);
            if !report.is_complete {
                continue;
            }
            passes += 1;
            let is_stuck = pass.unreadable_blocks + pass.homeless_blocks > 0;
            if report.left_blocks == 0 || (is_stuck && passes > 3) {
                return Ok(());
            }
            pass = Moves::default();
        }
        match self.rig.disks().data.options().no_space_one_in {
            0 => violation("what is closed does not get empty".to_owned()),
            _ => Ok(()), // A full file system has no room for it.
        }
    }
}
