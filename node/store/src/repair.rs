//! Repair: a block that the disk has lost is taken from another member of the
//! set, if it is the block that was here.
//!
//! What proves it is the checksum that the block's map holds. Where it proves
//! nothing, because the journal holds newer bytes of the block or its checksum
//! was given up when such bytes were merged with it, the version does: a set's
//! changes have one order, so a block whose newest change is the same one has
//! the same bytes.

use crossdock_checksum::crc32c;
use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload};

use crate::flight::Flight;
use crate::object::Object;
use crate::overlay::PieceState;
use crate::store::{BLOCK, Store, busy};
use crate::waiting::Hold;

/// Room for the record that maps a block.
const MAP_RECORD_BYTES: u64 = 256;

impl Store {
    /// Puts the block at `offset` of the object to a new place, if it is the same.
    pub(crate) fn repair(
        &mut self,
        call: CallId,
        id: &ObjectId,
        offset: u64,
        payload: &Payload,
        version: Version,
    ) -> Result<(), Hold> {
        let is_block = (1..=BLOCK_BYTES).contains(&payload.len());
        if !is_block || !offset.is_multiple_of(BLOCK) {
            return Err(Hold::Refuse(NodeError::Invalid("not one block".into())));
        }
        let plan = self.plan_range(id, offset, BLOCK)?;
        let block = offset / BLOCK;
        let Some(object) = self.object(id) else {
            return Err(Hold::Refuse(NodeError::NoObject));
        };
        let pieces = object.overlay.overlapping(offset, offset + BLOCK);
        let (mut stamp, mut is_recorded) = (0, true);
        for (_, piece) in pieces {
            stamp = stamp.max(piece.stamp);
            is_recorded &= piece.state == PieceState::Journalled;
        }
        if !is_recorded || self.is_in_flight(object, block, block + 1) {
            return Err(Hold::Refuse(busy())); // It is about to be another block.
        }
        let mut content = AlignedBuffer::zeroed(BLOCK_BYTES);
        payload.copy_to_slice(&mut content[..payload.len()]);
        let checksum = crc32c(&content);
        let is_expected = matches!(plan.blocks()[..], [(_, expected)] if expected == checksum);
        let is_same = (is_expected && stamp == 0) || plan.version == version;
        if plan.length != payload.len() as u64 || !is_same {
            return Err(Hold::Refuse(NodeError::VersionGone));
        }
        if plan.blocks().is_empty() {
            self.reply(call, NodeAnswer::Done { version }); // Nothing of it is on the disk.
            return Ok(());
        }
        self.need_memory(BLOCK)?;
        self.need_journal(MAP_RECORD_BYTES)?;
        let extents = self.place(1)?;
        let flight = Flight {
            checksums: vec![checksum],
            held_bytes: BLOCK,
            reply: Some((call, NodeAnswer::Done { version })),
            ..Flight::new(*id, (stamp, plan.version), (block, block + 1), extents)
        };
        self.counters.repaired_blocks += 1;
        self.launch(flight, vec![content.freeze()]);
        Ok(())
    }

    /// Whether some of blocks `first..end` are about to be others.
    pub(crate) fn is_in_flight(&self, object: &Object, first: u64, end: u64) -> bool {
        let flights = object.flights.iter().filter_map(|it| self.flights.get(it));
        flights
            .flat_map(Flight::ranges)
            .any(|(from, to)| from < end && first < to)
    }
}
