//! The scrub: reads every block from the disk and checks it, step by step.

use std::ops::Bound;

use crossdock_names::ObjectId;
use crossdock_peer::NodeError;

use crate::index::{IndexCall, Walker};
use crate::interface::{ScrubFinding, ScrubReport, StoreEffect};
use crate::read::Reader;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

/// Blocks that are verified with one read.
const STEP_BLOCKS: u64 = 256;

/// Where the scrub is.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    object: Option<ObjectId>,
    /// The object before; the next is searched after it.
    last: Option<ObjectId>,
    next_block: u64,
    /// Where the read that is under way begins.
    first_block: u64,
    /// One of the blocks before this one is bad: they are read one by one.
    suspect_end: u64,
    /// It goes on when this load has been answered.
    load: Option<u64>,
    /// Blocks that this step may still verify.
    budget: u64,
    report: ScrubReport,
    is_running: bool,
}

impl Store {
    pub(crate) fn begin_scrub(&mut self, blocks_max: u64) {
        if let Some(error) = self.index_error() {
            self.effects.push_back(StoreEffect::Scrubbed(Err(error)));
        } else if !std::mem::replace(&mut self.scrub.is_running, true) {
            self.scrub.budget = blocks_max;
            self.scrub.report = ScrubReport::default();
            self.scrub_on();
        }
    }

    /// The index gave its next object.
    pub(crate) fn scrub_found(&mut self, object: Option<ObjectId>) {
        let object = self.next_known(self.scrub.last, object);
        self.scrub.next_block = 0;
        self.scrub.suspect_end = 0;
        self.scrub.object = object;
        if object.is_none() {
            self.scrub.last = None;
            self.scrub.report.is_complete = true;
            self.end_scrub();
        } else {
            self.scrub_on();
        }
    }

    /// The next object: that of the index, or one that only memory knows yet.
    pub(crate) fn next_known(
        &self,
        last: Option<ObjectId>,
        found: Option<ObjectId>,
    ) -> Option<ObjectId> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut known = self.objects.range((after, Bound::Unbounded));
        let known = known.find(|(_, entry)| entry.object.is_some());
        found.into_iter().chain(known.map(|(id, _)| *id)).min()
    }

    /// The index answered the load of that number.
    pub(crate) fn scrub_loaded(&mut self, token: u64) {
        if self.scrub.load.is_some_and(|load| load <= token) {
            self.scrub.load = None;
            self.scrub_on();
        }
    }

    fn scrub_on(&mut self) {
        loop {
            let is_suspect = self.scrub.next_block < self.scrub.suspect_end;
            if self.scrub.budget == 0 && !is_suspect {
                self.end_scrub();
                return;
            }
            let Some(id) = self.scrub.object else {
                self.ask_index(IndexCall::NextObject(Walker::Scrub, self.scrub.last));
                return;
            };
            match self.scrub_step(&id) {
                Ok(true) => return, // Goes on when the read ends.
                Ok(false) => {}
                Err(Hold::Load(wanted)) => {
                    self.scrub.load = Some(self.load(*wanted));
                    return;
                }
                Err(Hold::Room | Hold::Refuse(_)) => self.next_scrub_object(id),
            }
        }
    }

    fn next_scrub_object(&mut self, id: ObjectId) {
        self.scrub.last = Some(id);
        self.scrub.object = None;
    }

    /// True if a read was started.
    fn scrub_step(&mut self, id: &ObjectId) -> Result<bool, Hold> {
        self.need_existing(id)?;
        let from = self.scrub.next_block;
        let mapped_end = self.object(id).map_or(0, |object| object.head.mapped_end);
        if from >= mapped_end {
            self.next_scrub_object(*id);
            return Ok(false);
        }
        let is_suspect = from < self.scrub.suspect_end;
        let blocks = match is_suspect {
            true => 1,
            false => STEP_BLOCKS.min(self.scrub.budget),
        };
        let to = mapped_end.min(from + blocks);
        self.need_blocks(id, from, to)?;
        let Some(object) = self.object(id) else {
            return Ok(false);
        };
        let plan = self.plan(object, from * BLOCK, to * BLOCK);
        self.scrub.first_block = from;
        self.scrub.next_block = to;
        if !is_suspect {
            let blocks = plan.blocks().len() as u64;
            self.scrub.report.blocks += blocks;
            self.scrub.budget = self.scrub.budget.saturating_sub(blocks.max(1));
        }
        self.start_read(Reader::Scrub, None, plan);
        Ok(true)
    }

    pub(crate) fn scrub_read(&mut self, error: Option<String>) {
        let (first, next) = (self.scrub.first_block, self.scrub.next_block);
        if error.is_some() && next - first > 1 {
            self.scrub.suspect_end = next;
            self.scrub.next_block = first;
        } else if let (Some(what), Some(object)) = (error, self.scrub.object) {
            self.scrub.report.findings.push(ScrubFinding {
                object,
                offset_bytes: first * BLOCK,
                what,
                is_repaired: false,
            });
        }
        self.scrub_on();
    }

    fn end_scrub(&mut self) {
        self.scrub.is_running = false;
        let report = std::mem::take(&mut self.scrub.report);
        self.effects.push_back(StoreEffect::Scrubbed(Ok(report)));
    }

    /// The index has failed: there is no next object.
    pub(crate) fn fail_scrub(&mut self, error: &NodeError) {
        if std::mem::take(&mut self.scrub).is_running {
            let failed = StoreEffect::Scrubbed(Err(error.clone()));
            self.effects.push_back(failed);
        }
    }
}
