//! Pins, and which blocks of the disk may not be given out or written over.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError, PinId};
use crossdock_types::{BLOCK_BYTES, Time};

use crate::interface::Mutation;
use crate::read::{Plan, Reader};
use crate::runs::{DiskRange, RUN_BLOCKS_MAX};
use crate::store::{BLOCK, Store, busy};
use crate::waiting::Hold;

/// Pins at a time.
const PINS_MAX: usize = 65_536;

/// A leased hold on what a range held at one moment.
#[derive(Debug)]
pub(crate) struct Pin {
    object: ObjectId,
    offset: u64,
    plan: Plan,
    /// The newest version of the object then.
    seen: Version,
    held: Vec<DiskRange>,
    pub(crate) expires: Time,
}

/// A request for a pin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPin {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) version: Option<Version>,
    pub(crate) lease: Duration,
}

/// Ranges that are being read or pinned.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// (first block, blocks) → how many hold it.
    ranges: BTreeMap<(u64, u64), u32>,
}

impl Holds {
    /// Longer ranges are held in parts, so that a look-up needs to look back
    /// no further than that.
    pub(crate) fn add(&mut self, range: DiskRange) {
        for part in parts(range) {
            *self.ranges.entry(part).or_insert(0) += 1;
        }
    }

    pub(crate) fn remove(&mut self, range: DiskRange) {
        for part in parts(range) {
            if let Some(count) = self.ranges.get_mut(&part) {
                *count -= 1;
                if *count == 0 {
                    self.ranges.remove(&part);
                }
            }
        }
    }

    pub(crate) fn meets(&self, range: DiskRange) -> bool {
        let first = range.block.saturating_sub(RUN_BLOCKS_MAX - 1);
        let near = self.ranges.range((first, 0)..(range.end(), 0));
        near.into_iter()
            .any(|((block, blocks), _)| block + blocks > range.block)
    }
}

fn parts(range: DiskRange) -> impl Iterator<Item = (u64, u64)> {
    let step = usize::try_from(RUN_BLOCKS_MAX).unwrap_or(1);
    let starts = (range.block..range.end()).step_by(step);
    starts.map(move |block| (block, RUN_BLOCKS_MAX.min(range.end() - block)))
}

impl Store {
    pub(crate) fn pin(&mut self, call: CallId, wanted: &NewPin) -> Result<(), Hold> {
        if self.pins.len() >= PINS_MAX {
            return Err(Hold::Refuse(busy()));
        }
        let plan = self.plan_range(&wanted.object, wanted.offset, wanted.length)?;
        if wanted.version.is_some_and(|version| plan.version > version) {
            return Err(Hold::Refuse(NodeError::VersionGone));
        }
        let held: Vec<DiskRange> = merge(&plan.blocks());
        for range in &held {
            self.holds.add(*range);
            self.pinned.add(*range);
        }
        let version = plan.version;
        let pin = PinId(self.next_pin);
        self.next_pin += 1;
        let (object, offset) = (wanted.object, wanted.offset);
        let expires = self.now + wanted.lease;
        let seen = self.newest_of(&object);
        let held = Pin {
            object,
            offset,
            plan,
            seen,
            held,
            expires,
        };
        self.pins.insert(pin, held);
        let boot = self.config.boot;
        self.reply(call, NodeAnswer::Pinned { pin, boot, version });
        Ok(())
    }

    pub(crate) fn unpin(&mut self, id: PinId) {
        if let Some(pin) = self.pins.remove(&id) {
            for range in pin.held {
                self.holds.remove(range);
                self.pinned.remove(range);
            }
        }
    }

    pub(crate) fn expire_pins(&mut self) {
        let now = self.now;
        let ended: Vec<PinId> = (self.pins.iter())
            .filter(|(_, pin)| pin.expires <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.unpin(id);
        }
    }

    /// Reads what a pin holds: never anything newer.
    pub(crate) fn read_pinned(
        &mut self,
        call: CallId,
        object: &ObjectId,
        (offset, length): (u64, u64),
        id: PinId,
    ) -> Result<(), Hold> {
        self.expire_pins();
        let pin = self.pins.get(&id).filter(|pin| pin.object == *object);
        let Some(pin) = pin else {
            return Err(Hold::Refuse(NodeError::UnknownPin));
        };
        if offset < pin.offset || offset > pin.offset + pin.plan.length {
            return Err(Hold::Refuse(NodeError::Invalid(
                "outside the pinned range".into(),
            )));
        }
        let from = offset - pin.offset;
        let to = pin.plan.length.min(from.saturating_add(length));
        let plan = pin.plan.part(from, to);
        self.start_read(Reader::Client(call), None, plan);
        Ok(())
    }

    /// The version of the newest change of an object, as far as that is in memory.
    #[must_use]
    pub fn newest_of(&self, id: &ObjectId) -> Version {
        let object = self.object(id);
        object.map_or(Version::NONE, |object| object.visible_version)
    }

    /// Reads a range as it was then: as it is, or as a pin holds it. `is_it` tells by the newest
    /// version in the range and the newest one of the object at that time.
    pub(crate) fn read_of_then(
        &mut self,
        call: CallId,
        id: &ObjectId,
        (offset, length): (u64, u64),
        is_it: impl Fn(Version, Version) -> bool,
    ) -> Result<(), Hold> {
        self.expire_pins();
        let current = match self.plan_range(id, offset, length) {
            Err(Hold::Refuse(_)) => None, // Removed, or cut off before it.
            planned => Some(planned?),
        };
        let seen = self.newest_of(id);
        let current = current.filter(|plan| is_it(plan.version, seen) && plan.length == length);
        let holds_it = |pin: &&Pin| {
            let end = pin.offset + pin.plan.length;
            let holds_all = pin.offset <= offset && offset + length <= end;
            pin.object == *id && is_it(pin.plan.version, pin.seen) && holds_all
        };
        let pinned = || {
            let pin = self.pins.values().find(holds_it)?;
            let from = offset - pin.offset;
            Some(pin.plan.part(from, from + length))
        };
        let plan = current.or_else(pinned);
        let plan = plan.ok_or(Hold::Refuse(NodeError::VersionGone))?;
        self.start_read(Reader::Client(call), None, plan);
        Ok(())
    }

    /// The plan of a range, cut at the object's end.
    pub(crate) fn plan_range(
        &mut self,
        id: &ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<Plan, Hold> {
        self.need_existing(id)?;
        let (from, to) = self.readable(id, offset, length).map_err(Hold::Refuse)?;
        self.need_blocks(id, from / BLOCK, to.div_ceil(BLOCK))?;
        let object = self.object(id).ok_or(Hold::Refuse(NodeError::NoObject))?;
        Ok(self.plan(object, from, to))
    }

    /// Gives freed blocks out again where nothing needs them any more.
    pub(crate) fn release_freed(&mut self) {
        if !self.space.has_held() {
            return;
        }
        let is_early = self.config.has(Mutation::FreedRunReusedEarly);
        let durable = if is_early {
            crossdock_log::Position(u64::MAX)
        } else {
            self.journal.durable()
        };
        let holds = &self.holds;
        let released = self.space.release(durable, |range| !holds.meets(range));
        self.settling.is_starved &= released.is_empty();
        for range in released {
            self.cache.invalidate(range.block, range.blocks);
            self.bad_blocks.forget(range);
        }
    }
}

/// Contiguous blocks as ranges.
fn merge(blocks: &[(u64, u32)]) -> Vec<DiskRange> {
    debug_assert!(BLOCK_BYTES as u64 == BLOCK);
    let mut ranges: Vec<DiskRange> = Vec::new();
    for (block, _) in blocks {
        match ranges.last_mut() {
            Some(last) if last.end() == *block => last.blocks += 1,
            _ => ranges.push(DiskRange {
                block: *block,
                blocks: 1,
            }),
        }
    }
    ranges
}
