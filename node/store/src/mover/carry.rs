//! Carrying a piece to its new place.

use bytes::Bytes;
use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};
use crossdock_types::Payload;

use super::Stretch;
use crate::flight::{Flight, Role, Stage, aligned_copy, block_checksums};
use crate::interface::Mutation;
use crate::read::Reader;
use crate::record::Record;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

/// Most blocks of one read and one write: 256 KiB, so that a client's request never waits
/// long for one that the disk works on.
const UNIT_BLOCKS: u64 = 64;

/// The mover works where so many times what it moves is free: it takes nothing that others
/// would have to wait for.
const SPARE_SHARE: u64 = 8;

/// Blocks of an object that keep their version at their new place.
#[derive(Debug)]
struct Part {
    from: u64,
    to: u64,
    version: Version,
    /// All of them are in the cache, at their old place.
    is_cached: bool,
}

impl Store {
    /// Moves the beginning of the stretch to behind what lies before it, where there is
    /// room.
    pub(super) fn move_unit(&mut self, id: &ObjectId, stretch: &Stretch) -> Result<(), Hold> {
        let Some(end) = self.mover.place.end() else {
            return Ok(());
        };
        let blocks = stretch.solid.min(UNIT_BLOCKS).min(self.mover.budget);
        let (from, to) = (stretch.first, stretch.first + blocks);
        let source = DiskRange {
            block: stretch.disk.block,
            blocks,
        };
        let target = DiskRange { block: end, blocks };
        self.need_moving_room()?;
        let is_pinned = self.pinned.meets(source);
        let object = self.object(id);
        let is_busy = object.is_none_or(|object| self.is_in_flight(object, from, to));
        let is_homeless = self.spare_blocks() < blocks * SPARE_SHARE;
        if is_pinned || is_busy || is_homeless {
            let report = &mut self.mover.report;
            *match (is_pinned, is_busy) {
                (true, _) => &mut report.pinned_blocks,
                (false, true) => &mut report.busy_blocks,
                (false, false) => &mut report.homeless_blocks,
            } += blocks;
            let unit = Stretch {
                first: from,
                end: to,
                disk: source,
                solid: blocks,
            };
            self.mover.place.leave(&unit, true);
            return Ok(());
        }
        self.space.take_at(target);
        self.mover.place.go_on(from, target);
        self.mover.place.next_block = to;
        self.mover.budget -= blocks;
        self.send_off(id, (from, to), target);
        Ok(())
    }

    /// The records of what is moved must not fill the journal.
    fn need_moving_room(&self) -> Result<(), Hold> {
        let is_full = self.journal.used_bytes() > self.journal.ring_bytes() / 2;
        let is_crowded = self.journal.gathered_bytes() > self.journal.frame_bytes_max() / 2;
        match is_full || is_crowded {
            true => Err(Hold::Room),
            false => Ok(()),
        }
    }

    /// Plans to carry blocks to `target`, which is taken.
    fn send_off(&mut self, id: &ObjectId, (from, to): (u64, u64), target: DiskRange) {
        let number = self.next_token;
        self.next_token += 1;
        // Older than all that is written from now on.
        let flight = Flight {
            stage: Stage::Merging,
            role: Role::Move,
            ..Flight::new(*id, (0, Version::NONE), (from, to), vec![target])
        };
        self.flights.insert(number, flight);
        if let Some(object) = self.object_mut(id) {
            object.flights.insert(number);
        }
        self.mover.flights += 1;
        self.mover.planned.push_back(number);
    }

    /// First all pieces of the step are read, then they are written, which goes on where
    /// the one before ends; one at a time, such that a client waits for one at most.
    pub(crate) fn carry_on(&mut self) {
        while self.mover.is_ending && self.mover.reading + self.mover.writing == 0 {
            if let Some(number) = self.mover.planned.pop_front() {
                self.read_planned(number);
            } else if let Some(number) = self.mover.read.pop_front() {
                self.write_read(number);
            } else {
                return;
            }
        }
    }

    fn read_planned(&mut self, number: u64) {
        let Some(flight) = self.flights.get(&number) else {
            return;
        };
        let (first, end) = (flight.first_block, flight.first_block + flight.blocks);
        let Some(object) = self
            .object(&flight.object)
            .filter(|_| !flight.live.is_empty())
        else {
            return self.give_up(number);
        };
        // What others have taken meanwhile is read along, and not mapped.
        let plan = self.plan_beneath(object, first * BLOCK, end * BLOCK);
        self.mover.reading += 1;
        self.start_read(Reader::Move(number), None, plan);
    }

    /// A piece was read, or cannot be.
    pub(crate) fn move_read(&mut self, number: u64, payload: &Payload, is_bad: bool) {
        let Some(flight) = self.flights.get_mut(&number) else {
            return; // The store has failed.
        };
        self.mover.reading -= 1;
        if is_bad {
            self.mover.report.unreadable_blocks += flight.blocks;
            self.give_up(number);
        } else {
            flight.stage = Stage::Placing(aligned_copy(payload));
            self.mover.read.push_back(number);
        }
        self.carry_on();
    }

    fn write_read(&mut self, number: u64) {
        let data = match self.flights.get(&number) {
            // Nothing of it is left if the object is gone.
            Some(Flight {
                live,
                stage: Stage::Placing(data),
                ..
            }) if !live.is_empty() => data.clone(),
            _ => return self.give_up(number),
        };
        if let Some(mut flight) = self.take_move(number) {
            flight.checksums = block_checksums(std::slice::from_ref(&data));
            flight.held_bytes = data.len() as u64;
            self.launch(flight, vec![data]);
        }
    }

    fn take_move(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        if let Some(object) = self.object_mut(&flight.object) {
            object.flights.remove(&number);
        }
        Some(flight)
    }

    /// The piece stays where it is.
    fn give_up(&mut self, number: u64) {
        let Some(flight) = self.take_move(number) else {
            return;
        };
        for extent in &flight.extents {
            self.space.give_back(*extent, Position(0));
        }
        self.mover.flights -= 1;
        self.wake_settling(&flight.object);
        self.end_move_step();
    }

    /// A piece is on the disk: what of it is still the object's is mapped there.
    pub(crate) fn land_move(&mut self, flight: &Flight) {
        let target = flight.extents.first().map_or(0, |extent| extent.block);
        let place = |from: u64, to: u64| DiskRange {
            block: target + (from - flight.first_block),
            blocks: to - from,
        };
        let mut at = flight.first_block;
        let end = at + flight.blocks;
        for part in self.parts_to_map(flight) {
            if at < part.from {
                self.space.give_back(place(at, part.from), Position(0));
            }
            let range = place(part.from, part.to);
            self.record(Record::Map {
                object: flight.object,
                stamp: flight.stamp,
                version: part.version,
                first_block: part.from,
                disk: range.block,
                end_bytes: 0,
                checksums: flight.checksums_of(part.from, part.to),
            });
            if part.is_cached {
                self.cache.insert(range.block, content_of(flight, &part));
            }
            self.mover.report.moved_blocks += range.blocks;
            self.counters.moved_blocks += range.blocks;
            at = part.to;
        }
        if at < end {
            self.space.give_back(place(at, end), Position(0));
        }
        self.mover.flights -= 1;
        self.end_move_step();
    }

    /// What has stayed as it was read, and is not pinned; neighbours of one version
    /// together.
    fn parts_to_map(&mut self, flight: &Flight) -> Vec<Part> {
        let Some(object) = self.object(&flight.object) else {
            return Vec::new();
        };
        let serial = object.head.serial;
        let mut parts: Vec<Part> = Vec::new();
        let mut pinned = 0;
        for &(from, to) in &flight.live {
            let mut at = from;
            while at < to {
                let window = self.windows.get(&(serial, at / WINDOW_BLOCKS));
                let Some((first, run)) = window.and_then(|window| window.find(at)) else {
                    at += 1;
                    continue;
                };
                let end = to.min(first + run.blocks());
                let old = run.part(at - first, end - first);
                let place = DiskRange {
                    block: old.disk,
                    blocks: end - at,
                };
                let is_same = old.checksums == flight.checksums_of(at, end)
                    || self.config.has(Mutation::MoveOverNewer);
                let is_pinned = self.pinned.meets(place);
                if is_pinned {
                    pinned += place.blocks;
                } else if is_same && old.references == 1 {
                    let is_cached = self.cache.present(place.block, place.blocks) == place.blocks;
                    match parts.last_mut() {
                        Some(last)
                            if last.to == at
                                && last.version == old.version
                                && last.is_cached == is_cached =>
                        {
                            last.to = end;
                        }
                        _ => parts.push(Part {
                            from: at,
                            to: end,
                            version: old.version,
                            is_cached,
                        }),
                    }
                }
                at = end;
            }
        }
        self.mover.report.pinned_blocks += pinned;
        parts
    }
}

/// The bytes of a part, in memory of their own.
fn content_of(flight: &Flight, part: &Part) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "within the flight")]
    let at = |block: u64| ((block - flight.first_block) * BLOCK) as usize;
    aligned_copy(&flight.content.slice(at(part.from), at(part.to)))
}
