//! Carrying a piece to its new place.

use bytes::Bytes;
use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};
use crossdock_types::Payload;

use super::Stretch;
use crate::flight::{Flight, Role, Stage, aligned_copy, block_checksums};
use crate::interface::Mutation;
use crate::object::Object;
use crate::overlay::PieceState;
use crate::read::{Plan, Reader};
use crate::record::Record;
use crate::runs::{DiskRange, WINDOW_BLOCKS};
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;

/// Most blocks of one read and one write: 256 KiB, so that a client's request never waits
/// long for one that the disk works on.
pub(super) const UNIT_BLOCKS: u64 = 64;

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

impl Part {
    /// Whether the block belongs to it, too.
    fn goes_on(&self, block: u64, version: Version, is_cached: bool) -> bool {
        self.to == block && self.version == version && self.is_cached == is_cached
    }
}

/// A piece that is to be read.
#[derive(Debug)]
pub(super) struct Planned {
    /// Of its flight.
    number: u64,
    plan: Plan,
    /// Held until it is read.
    source: DiskRange,
}

impl Store {
    /// Moves the beginning of the stretch to behind what lies before it, where there is
    /// room.
    pub(super) fn follow(&mut self, id: &ObjectId, stretch: &Stretch) -> Result<(), Hold> {
        let Some(end) = self.mover.place.end() else {
            return Ok(());
        };
        let blocks = stretch.solid.min(UNIT_BLOCKS).min(self.mover.budget);
        let has_room = self.spare_blocks() >= blocks * SPARE_SHARE;
        self.move_unit(id, &stretch.cut(blocks), end, has_room)
    }

    /// Moves blocks without a hole to free ones from `end` on, unless there is too little
    /// room.
    pub(super) fn move_unit(
        &mut self,
        id: &ObjectId,
        unit: &Stretch,
        end: u64,
        has_room: bool,
    ) -> Result<(), Hold> {
        let (from, to, source) = (unit.first, unit.end, unit.disk);
        let blocks = source.blocks;
        let target = DiskRange { block: end, blocks };
        self.need_moving_room()?;
        let is_pinned = self.pinned.meets(source);
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        let (mut stamp, mut is_busy) = (0, self.is_in_flight(object, from, to));
        for (_, piece) in object.overlay.overlapping(from * BLOCK, to * BLOCK) {
            stamp = stamp.max(piece.stamp);
            is_busy |= piece.state != PieceState::Journalled;
        }
        // With what the journal has: what lies beneath a block that it has whole may be torn.
        let plan = self.plan(object, from * BLOCK, to * BLOCK);
        if is_pinned || is_busy || !has_room {
            let moves = &mut self.mover.report.moves;
            *match (is_pinned, is_busy) {
                (true, _) => &mut moves.pinned_blocks,
                (false, true) => &mut moves.busy_blocks,
                (false, false) => &mut moves.homeless_blocks,
            } += blocks;
            self.mover.place.leave(unit, true);
            return Ok(());
        }
        self.space.take_at(target);
        self.mover.place.go_on(from, target);
        self.mover.place.next_block = to;
        self.mover.budget -= blocks;
        let flight = Flight {
            stage: Stage::Merging,
            role: Role::Move,
            ..Flight::new(*id, (stamp, Version::NONE), (from, to), vec![target])
        };
        self.plan_move(flight, plan, source);
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

    fn plan_move(&mut self, flight: Flight, plan: Plan, source: DiskRange) {
        let number = self.next_token;
        self.next_token += 1;
        if let Some(object) = self.object_mut(&flight.object) {
            object.flights.insert(number);
        }
        self.flights.insert(number, flight);
        // Whatever becomes of it meanwhile, it is what will be read.
        self.holds.add(source);
        self.mover.flights += 1;
        self.mover.planned.push_back(Planned {
            number,
            plan,
            source,
        });
    }

    /// First all pieces of the step are read, then they are written, which goes on where
    /// the one before ends; one at a time, such that a client waits for one at most.
    pub(crate) fn carry_on(&mut self) {
        if std::mem::replace(&mut self.mover.is_carrying, true) {
            return; // What needed no disk has ended already.
        }
        while self.mover.is_ending && self.mover.reading + self.mover.writing == 0 {
            if let Some(planned) = self.mover.planned.pop_front() {
                self.read_planned(planned);
            } else if let Some(number) = self.mover.read.pop_front() {
                self.write_read(number);
            } else {
                break;
            }
        }
        self.mover.is_carrying = false;
    }

    fn read_planned(&mut self, planned: Planned) {
        let Planned {
            number,
            plan,
            source,
        } = planned;
        let is_gone = |flight: &Flight| flight.live.is_empty();
        if self.flights.get(&number).is_none_or(is_gone) {
            self.give_up(number);
        } else {
            self.mover.reading += 1;
            self.start_read(Reader::Move(number), None, plan);
        }
        self.holds.remove(source);
    }

    /// A piece was read, or cannot be.
    pub(crate) fn move_read(&mut self, number: u64, payload: &Payload, is_bad: bool) {
        let Some(flight) = self.flights.get_mut(&number) else {
            return; // The store has failed.
        };
        self.mover.reading -= 1;
        if is_bad {
            self.mover.report.moves.unreadable_blocks += flight.blocks;
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
            self.mover.report.moves.moved_blocks += range.blocks;
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
        for block in flight.live.iter().flat_map(|&(from, to)| from..to) {
            let window = self.windows.get(&(serial, block / WINDOW_BLOCKS));
            let Some((first, run)) = window.and_then(|window| window.find(block)) else {
                continue;
            };
            let old = run.part(block - first, block - first + 1);
            let place = DiskRange {
                block: old.disk,
                blocks: 1,
            };
            if self.pinned.meets(place) {
                pinned += 1;
                continue;
            }
            let merged = merged_version(object, block, flight.stamp);
            let is_as_read = merged.is_some()
                || old.checksums == flight.checksums_of(block, block + 1)
                || self.config.has(Mutation::MoveOverNewer);
            if !is_as_read || old.references > 1 {
                continue;
            }
            let version = merged.map_or(old.version, |merged| merged.max(old.version));
            let is_cached = self.cache.present(place.block, 1) == 1;
            match parts.last_mut() {
                Some(last) if last.goes_on(block, version, is_cached) => last.to += 1,
                _ => parts.push(Part {
                    from: block,
                    to: block + 1,
                    version,
                    is_cached,
                }),
            }
        }
        self.mover.report.moves.pinned_blocks += pinned;
        parts
    }
}

/// The newest version of the bytes that the journal has of a block, up to `stamp`.
fn merged_version(object: &Object, block: u64, stamp: u64) -> Option<Version> {
    let pieces = object
        .overlay
        .overlapping(block * BLOCK, (block + 1) * BLOCK);
    let merged = pieces.filter(|(_, piece)| piece.stamp <= stamp);
    merged.map(|(_, piece)| piece.version).max()
}

/// The bytes of a part, in memory of their own.
fn content_of(flight: &Flight, part: &Part) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "within the flight")]
    let at = |block: u64| ((block - flight.first_block) * BLOCK) as usize;
    aligned_copy(&flight.content.slice(at(part.from), at(part.to)))
}
