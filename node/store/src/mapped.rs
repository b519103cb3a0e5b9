//! Which blocks of an object have space.
//!
//! A block has some if a run says so, or if bytes of it are in the overlay: those in memory get
//! a place sooner or later. Zeros in the overlay are what is left of a hole's edge.

use std::ops::Range;

use crossdock_limits::{MAPPED_BYTES_MAX, MAPPED_RUNS_MAX};
use crossdock_names::ObjectId;
use crossdock_peer::{CallId, MappedRanges, NodeAnswer, NodeError};

use crate::object::Object;
use crate::runs::WINDOW_BLOCKS;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

impl Store {
    pub(crate) fn mapped(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (offset, length): (u64, u64),
        generation: u64,
    ) -> Result<(), Hold> {
        let end = offset.checked_add(length);
        let Some(end) = end.filter(|_| (1..=MAPPED_BYTES_MAX).contains(&length)) else {
            let error = NodeError::Invalid("length out of bounds".into());
            return Err(Hold::Refuse(error));
        };
        self.need_existing(id)?;
        self.check_generation(id, generation)?;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        self.need_blocks(id, blocks.start, blocks.end)?;
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let mut mapped = MappedRanges {
            runs: Vec::new(),
            end_bytes: end,
        };
        for run in self.mapped_blocks(object, blocks) {
            mapped.add((run.start * BLOCK).max(offset)..(run.end * BLOCK).min(end));
        }
        mapped.cut(MAPPED_RUNS_MAX);
        self.reply(call, NodeAnswer::Mapped(mapped));
        Ok(())
    }

    /// Blocks with space of a range whose runs are in memory, by where they begin.
    fn mapped_blocks(&self, object: &Object, blocks: Range<u64>) -> Vec<Range<u64>> {
        let (from, to) = (blocks.start * BLOCK, blocks.end * BLOCK);
        let in_memory = object.overlay.range(from, to);
        let mut found: Vec<Range<u64>> = in_memory
            .filter(|(_, piece)| piece.bytes.is_some())
            .map(|(at, piece)| at / BLOCK..(at + piece.length).div_ceil(BLOCK))
            .collect();
        let mut block = blocks.start;
        while block < blocks.end {
            let number = block / WINDOW_BLOCKS;
            let window_end = blocks.end.min((number + 1) * WINDOW_BLOCKS);
            let window = self.windows.get(&(object.head.serial, number));
            let run = window.and_then(|window| window.find(block));
            if let Some((first, run)) = run {
                let end = window_end.min(first + run.blocks());
                found.push(block..end);
                block = end;
            } else {
                let next = window.and_then(|window| window.next_after(block));
                block = next.map_or(window_end, |next| next.min(window_end));
            }
        }
        found.sort_unstable_by_key(|run| run.start);
        found
    }
}
