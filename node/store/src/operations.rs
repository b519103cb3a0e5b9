//! What each request does, but for the bytes of writes and reads.

use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::{OBJECT_ATTRIBUTES_BYTES_MAX, OBJECT_IO_BYTES_MAX};
use crossdock_names::{Epoch, ObjectId, Version};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeRequest, ObjectStat, Order, ReadVersion, Stability,
    WriteContext,
};
use crossdock_types::Payload;

use crate::commit::EDGES_BYTES_MAX;
use crate::pins::NewPin;
use crate::record::Record;
use crate::runs::WINDOW_BLOCKS;
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;
use crate::write::{NewWrite, OBJECT_BYTES_MAX};

/// Room for the records of an operation without payload.
const SMALL_RECORDS_BYTES: u64 = 1024;

impl Store {
    /// Does what a call wants, or changes nothing and says why not.
    pub(crate) fn dispatch(&mut self, call: &Call<NodeRequest>) -> Result<(), Hold> {
        let id = call.id;
        match &call.request {
            NodeRequest::Create {
                object,
                reservation_bytes,
                attributes,
                order,
                ..
            } => self.create(id, object, *reservation_bytes, attributes, given(*order)?),
            NodeRequest::Read {
                object,
                offset_bytes,
                length_bytes,
                version,
                ..
            } => self.read(id, object, (*offset_bytes, *length_bytes), *version),
            NodeRequest::Write {
                object,
                offset_bytes,
                payload,
                stability,
                context,
                order,
            } => {
                let version = given(*order)?;
                check_length(*offset_bytes, payload.len() as u64)?;
                self.need_existing(object)?;
                self.check_context(object, context, true)?;
                let incarnation = self.config.boot;
                self.write(NewWrite {
                    object: *object,
                    offset: *offset_bytes,
                    payload: payload.clone(),
                    version,
                    is_stable: *stability == Stability::Stable,
                    inline_max: self.inline_max(),
                    reply: (
                        id,
                        NodeAnswer::Written {
                            version,
                            incarnation,
                        },
                    ),
                })
            }
            NodeRequest::Commit {
                object,
                incarnation,
            } => {
                let current = self.config.boot;
                if *incarnation != current {
                    return Err(Hold::Refuse(NodeError::Lost { current }));
                }
                self.need_existing(object)?;
                self.commit(id, object)
            }
            NodeRequest::Append {
                object,
                offset_bytes,
                payload,
                fence,
            } => self.append(id, object, *offset_bytes, payload, *fence),
            NodeRequest::Seal { object, fence } => self.seal(id, object, *fence),
            NodeRequest::Truncate {
                object,
                size_bytes,
                context,
                order,
            } => self.truncate(id, object, *size_bytes, context, given(*order)?),
            NodeRequest::Zero {
                object,
                offset_bytes,
                length_bytes,
                context,
                order,
            } => {
                let range = (*offset_bytes, *length_bytes);
                self.zero(id, object, range, context, given(*order)?)
            }
            NodeRequest::Remove {
                object,
                context,
                order,
            } => self.remove(id, object, context, given(*order)?),
            NodeRequest::SetAttributes {
                object,
                reservation_bytes,
                attributes,
                context,
                order,
            } => {
                let version = given(*order)?;
                let wanted = (*reservation_bytes, attributes);
                self.set_attributes(id, object, wanted, context, version)
            }
            NodeRequest::Repair {
                object,
                offset_bytes,
                payload,
                version,
            } => self.repair(id, object, *offset_bytes, payload, *version),
            NodeRequest::Stat { object } => self.stat(id, object),
            NodeRequest::Mapped {
                object,
                offset_bytes,
                length_bytes,
                truncate_generation,
            } => {
                let range = (*offset_bytes, *length_bytes);
                self.mapped(id, object, range, *truncate_generation)
            }
            NodeRequest::List {
                class,
                placement,
                after,
                limit,
            } => {
                self.begin_list(id, *class, *placement, *after, *limit);
                Ok(())
            }
            NodeRequest::Changes { since, after } => {
                self.begin_changes(id, *since, *after);
                Ok(())
            }
            NodeRequest::Pin {
                object,
                offset_bytes,
                length_bytes,
                version,
                lease_ms,
            } => {
                check_length(*offset_bytes, *length_bytes)?;
                let wanted = NewPin {
                    object: *object,
                    offset: *offset_bytes,
                    length: *length_bytes,
                    version: *version,
                    lease: Duration::from_millis(u64::from(*lease_ms)),
                };
                self.pin(id, &wanted)
            }
            NodeRequest::Share { .. } => Err(Hold::Refuse(NodeError::Invalid(
                "capabilities are made by depots".into(),
            ))),
            NodeRequest::Exchange { .. } => Err(Hold::Refuse(NodeError::Invalid(
                "bytes are exchanged by the primary of a set".into(),
            ))),
            NodeRequest::Copy { .. } => Err(Hold::Refuse(NodeError::Invalid(
                "bytes are copied by the primary of a set".into(),
            ))),
            NodeRequest::Unpin { pin } => {
                self.unpin(*pin);
                self.reply(id, NodeAnswer::Unpinned);
                Ok(())
            }
            NodeRequest::Ahead {
                object,
                offset_bytes,
                length_bytes,
                is_wanted,
            } => {
                let range = (*offset_bytes, offset_bytes.saturating_add(*length_bytes));
                match is_wanted {
                    true => self.read_towards(object, range)?,
                    false => self.end_readers(object, range),
                }
                self.reply(id, NodeAnswer::Ahead);
                Ok(())
            }
        }
    }

    fn create(
        &mut self,
        call: CallId,
        id: &ObjectId,
        reservation: u64,
        attributes: &Bytes,
        version: Version,
    ) -> Result<(), Hold> {
        check_attributes(attributes)?;
        self.need_object(id)?;
        if let Some(object) = self.object(id) {
            let (position, version) = (object.last_position, object.visible_version);
            self.reply_at(position, call, NodeAnswer::Done { version });
            return Ok(());
        }
        let blocks = reservation.div_ceil(BLOCK);
        if blocks > 0 {
            self.need_space(id, blocks)?;
        }
        self.need_journal(SMALL_RECORDS_BYTES)?;
        let position = self.record_create(id, blocks, attributes.clone(), version);
        self.reply_at(position, call, NodeAnswer::Done { version });
        Ok(())
    }

    fn set_attributes(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (reservation, attributes): (u64, &Bytes),
        context: &WriteContext,
        version: Version,
    ) -> Result<(), Hold> {
        check_attributes(attributes)?;
        self.need_existing(id)?;
        self.check_context(id, context, false)?;
        let reserved_blocks = reservation.div_ceil(BLOCK);
        if let Some(object) = self.object(id)
            && reserved_blocks > object.head.reserved_blocks
        {
            let wanted = reserved_blocks.saturating_sub(object.head.allocated_blocks);
            self.need_space(id, wanted)?;
        }
        self.need_journal(SMALL_RECORDS_BYTES)?;
        let position = self.record(Record::Attributes {
            object: *id,
            reserved_blocks,
            version,
            attributes: Bytes::copy_from_slice(attributes),
        });
        self.reply_at(position, call, NodeAnswer::Done { version });
        Ok(())
    }

    fn record_create(
        &mut self,
        id: &ObjectId,
        reserved_blocks: u64,
        attributes: Bytes,
        version: Version,
    ) -> crossdock_log::Position {
        let serial = self.totals.next_serial;
        self.record(Record::Create {
            object: *id,
            serial,
            // Random by the boot number, different for every object of a boot.
            incarnation: mix(self.config.boot.0 ^ serial),
            reserved_blocks,
            version,
            attributes: Bytes::copy_from_slice(&attributes),
        })
    }

    fn read(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (offset, length): (u64, u64),
        version: ReadVersion,
    ) -> Result<(), Hold> {
        check_length(offset, length)?;
        if let ReadVersion::Pinned(pin) = version {
            return self.read_pinned(call, id, (offset, length), pin);
        }
        if let ReadVersion::Exactly(version) = version {
            let is_it = |newest: Version, _| newest == version;
            return self.read_of_then(call, id, (offset, length), is_it);
        }
        if let ReadVersion::AsOf { changed, as_of } = version {
            let is_it = |newest, seen| newest <= as_of && changed <= seen;
            return self.read_of_then(call, id, (offset, length), is_it);
        }
        let plan = self.plan_range(id, offset, length)?;
        if let ReadVersion::MappedUnder(generation) = version {
            self.check_generation(id, generation)?;
        }
        if let ReadVersion::NotAfter(newest) = version
            && plan.version > newest
        {
            return Err(Hold::Refuse(NodeError::VersionGone));
        }
        let end = offset + plan.length;
        self.read_on(call, id, (offset, end), plan);
        Ok(())
    }

    fn append(
        &mut self,
        call: CallId,
        id: &ObjectId,
        offset: u64,
        payload: &Payload,
        fence: Epoch,
    ) -> Result<(), Hold> {
        check_length(offset, payload.len() as u64)?;
        self.need_object(id)?;
        let (seen, size, version) = match self.object(id) {
            Some(object) => (
                object.head.fence,
                object.visible_size,
                object.visible_version,
            ),
            None => (Epoch(0), 0, Version::NONE),
        };
        if fence < seen {
            return Err(Hold::Refuse(NodeError::Fenced { seen }));
        }
        if offset != size {
            let size_bytes = size;
            return Err(Hold::Refuse(NodeError::WrongEnd { size_bytes }));
        }
        // An append that goes to new runs is recorded when it is on the disk;
        // one behind it must not be recorded before.
        self.need_landed(id)?;
        let length = payload.len() as u64;
        // One device write and one flush, also for large ones.
        let mut inline_max = self.journal.frame_bytes_max() / 4;
        if self.object(id).is_none() {
            // Everything that can refuse the bytes comes before the object is made.
            inline_max *= 2;
            self.need_memory(length)?;
            self.need_space(id, length.div_ceil(BLOCK) + 1)?;
            self.need_journal(length + 2 * SMALL_RECORDS_BYTES)?;
            self.need_place(length.div_ceil(BLOCK))?;
            self.record_create(id, 0, Bytes::new(), Version::first_of(fence));
        }
        let size_bytes = offset + length;
        self.write(NewWrite {
            object: *id,
            offset,
            payload: payload.clone(),
            version: version.next().max(Version::first_of(fence).next()),
            is_stable: true,
            inline_max,
            reply: (call, NodeAnswer::End { size_bytes }),
        })?;
        self.raise_fence(id, fence);
        Ok(())
    }

    fn seal(&mut self, call: CallId, id: &ObjectId, fence: Epoch) -> Result<(), Hold> {
        self.need_object(id)?;
        if let Some(object) = self.object(id)
            && object.head.fence > fence
        {
            let seen = object.head.fence;
            return Err(Hold::Refuse(NodeError::Fenced { seen }));
        }
        self.need_landed(id)?;
        self.need_journal(SMALL_RECORDS_BYTES)?;
        if self.object(id).is_none() {
            self.record_create(id, 0, Bytes::new(), Version::first_of(fence));
        }
        self.raise_fence(id, fence);
        let size_bytes = self.object(id).map_or(0, |object| object.visible_size);
        self.reply_at(self.journal.last(), call, NodeAnswer::End { size_bytes });
        Ok(())
    }

    fn raise_fence(&mut self, id: &ObjectId, fence: Epoch) {
        if self
            .object(id)
            .is_some_and(|object| object.head.fence < fence)
        {
            let object = *id;
            self.record(Record::Fence { object, fence });
        }
    }

    /// No bulk write of the object is under way.
    fn need_landed(&mut self, id: &ObjectId) -> Result<(), Hold> {
        if self.hurry_flights(id) {
            return Err(Hold::Room);
        }
        Ok(())
    }

    fn truncate(
        &mut self,
        call: CallId,
        id: &ObjectId,
        size: u64,
        context: &WriteContext,
        version: Version,
    ) -> Result<(), Hold> {
        if size > OBJECT_BYTES_MAX {
            return Err(Hold::Refuse(NodeError::Invalid(
                "beyond the largest object".into(),
            )));
        }
        self.need_existing(id)?;
        self.check_context(id, context, true)?;
        // Dropping everything costs the same for any size: the old runs get a
        // name that nothing leads to, and are freed step by step.
        let is_drop = size == 0
            && self
                .object(id)
                .is_some_and(|o| o.head.mapped_end > WINDOW_BLOCKS);
        if !is_drop {
            self.need_blocks(id, size / BLOCK, u64::MAX)?;
        }
        self.need_journal(SMALL_RECORDS_BYTES + EDGES_BYTES_MAX)?;
        self.harden_edges(id, size, size)?;
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let serial = if is_drop {
            self.totals.next_serial
        } else {
            object.head.serial
        };
        let stamp = self.next_stamp();
        let position = self.record(Record::Truncate {
            object: *id,
            stamp,
            version,
            size,
            generation: context.truncate_generation,
            serial,
        });
        self.reply_at(position, call, NodeAnswer::Done { version });
        Ok(())
    }

    fn zero(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (offset, length): (u64, u64),
        context: &WriteContext,
        version: Version,
    ) -> Result<(), Hold> {
        if length == 0 || offset > OBJECT_BYTES_MAX {
            return Err(Hold::Refuse(NodeError::Invalid("an empty range".into())));
        }
        let length = length.min(OBJECT_BYTES_MAX - offset + BLOCK);
        self.need_existing(id)?;
        self.check_context(id, context, true)?;
        self.need_blocks(id, offset / BLOCK, (offset + length).div_ceil(BLOCK))?;
        self.need_journal(SMALL_RECORDS_BYTES + EDGES_BYTES_MAX)?;
        self.harden_edges(id, offset, offset + length)?;
        self.record_size(id, version);
        let stamp = self.next_stamp();
        let position = self.record(Record::Zero {
            object: *id,
            stamp,
            version,
            offset,
            length,
        });
        self.reply_at(position, call, NodeAnswer::Done { version });
        Ok(())
    }

    /// Unrecorded bytes that reach the end may be about to be dropped: the end
    /// stays.
    fn record_size(&mut self, id: &ObjectId, version: Version) {
        let Some(object) = self.object(id) else {
            return;
        };
        let size = object.visible_size;
        if size > object.head.size {
            let stamp = self.next_stamp();
            self.record(Record::Inline {
                object: *id,
                stamp,
                version,
                offset: size,
                checksum: 0,
                bytes: Bytes::new(),
            });
        }
    }

    /// Works on a full disk: it needs a record and nothing else.
    fn remove(
        &mut self,
        call: CallId,
        id: &ObjectId,
        context: &WriteContext,
        version: Version,
    ) -> Result<(), Hold> {
        self.need_object(id)?;
        if self.object(id).is_none() {
            // The removal that came before may not be durable yet.
            self.reply_at(self.journal.last(), call, NodeAnswer::Done { version });
            return Ok(());
        }
        self.check_context(id, context, false)?;
        self.need_journal(SMALL_RECORDS_BYTES)?;
        let object = *id;
        let position = self.record(Record::Remove { object, version });
        self.reply_at(position, call, NodeAnswer::Done { version });
        Ok(())
    }

    fn stat(&mut self, call: CallId, id: &ObjectId) -> Result<(), Hold> {
        self.need_existing(id)?;
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let stat = ObjectStat {
            size_bytes: object.visible_size,
            allocated_bytes: object.head.allocated_blocks * BLOCK,
            version: object.visible_version,
            truncate_generation: object.head.truncate_generation,
            fence: object.head.fence,
            attributes: object.head.attributes.clone(),
        };
        self.reply(call, NodeAnswer::Stat(stat));
        Ok(())
    }

    /// CONSISTENCY 3 and 5: late writes of a replaced owner, or from before a
    /// truncate, are refused.
    fn check_context(
        &self,
        id: &ObjectId,
        context: &WriteContext,
        checks_generation: bool,
    ) -> Result<(), Hold> {
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let seen = object.head.fence;
        if context.site_epoch < seen {
            return Err(Hold::Refuse(NodeError::Fenced { seen }));
        }
        if checks_generation {
            self.check_generation(id, context.truncate_generation)?;
        }
        Ok(())
    }

    /// Refuses what was sent before the object was last truncated.
    pub(crate) fn check_generation(&self, id: &ObjectId, generation: u64) -> Result<(), Hold> {
        let current = self
            .object(id)
            .map_or(0, |object| object.head.truncate_generation);
        if generation < current {
            return Err(Hold::Refuse(NodeError::StaleGeneration { current }));
        }
        Ok(())
    }
}

fn given(order: Order) -> Result<Version, Hold> {
    match order {
        Order::Given(version) => Ok(version),
        Order::Primary => Err(Hold::Refuse(NodeError::Invalid(
            "a store gives no versions".into(),
        ))),
    }
}

fn check_attributes(attributes: &Bytes) -> Result<(), Hold> {
    match attributes.len() > OBJECT_ATTRIBUTES_BYTES_MAX {
        true => Err(Hold::Refuse(NodeError::Invalid(
            "attributes too long".into(),
        ))),
        false => Ok(()),
    }
}

fn check_length(offset: u64, length: u64) -> Result<(), Hold> {
    if length == 0 || length > OBJECT_IO_BYTES_MAX as u64 {
        return Err(Hold::Refuse(NodeError::Invalid(
            "length out of bounds".into(),
        )));
    }
    if offset > OBJECT_BYTES_MAX - length {
        return Err(Hold::Refuse(NodeError::Invalid(
            "beyond the largest object".into(),
        )));
    }
    Ok(())
}

/// Spreads a number over all bits (the finisher of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
