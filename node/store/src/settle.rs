//! Moves what the journal holds to runs, so that its tail can advance, in the
//! background and in small steps.
//!
//! Blocks that the journal holds whole are written over in place: if that tears
//! one, replay shows the journal's bytes. Other bytes of the overlay are merged
//! with the blocks beneath them and written to new blocks. Both are flights of
//! the store's own; the record that marks or maps the blocks makes the records of
//! the bytes superfluous.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};
use crossdock_types::{BLOCK_BYTES, Payload};

use crate::flight::{Flight, Role, Stage, aligned_copy, block_checksums};
use crate::interface::Mutation;
use crate::overlay::PieceState;
use crate::read::Reader;
use crate::runs::{DiskRange, RUN_BLOCKS_MAX, WINDOW_BLOCKS};
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;
use crate::write::aligned_pieces;

/// Flights of settling at a time: many, as one flush serves them all.
const FLIGHTS_MAX: usize = 256;

/// Blocks in them, at most, before the last one: 2 MiB.
const FLIGHT_BLOCKS_MAX: u64 = 512;

/// How many are started in one step, and blocks in them, at most, before the last one: they
/// are summed and sent to the disk in one go, while everybody waits.
const FLIGHTS_PER_STEP: usize = 16;
const BLOCKS_PER_STEP: u64 = 128;

/// Objects that are looked at in one step.
const OBJECTS_PER_STEP: usize = 64;

/// A block that cannot be read so often is given up.
const READS_MAX: u32 = 3;

/// How often a step looks for what it can start: halving 256 blocks to one
/// takes 8.
const ROUNDS_PER_STEP: usize = 16;

/// How far settling has got.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Somebody needs room in the journal.
    pub(crate) is_wanted: bool,
    /// Under way: everything recorded up to here goes to runs.
    target: Option<Position>,
    queue: VecDeque<ObjectId>,
    /// Objects of which nothing can be started until a flight of theirs lands.
    resting: BTreeSet<ObjectId>,
    flights: usize,
    flight_blocks: u64,
    /// How many there may be in this step.
    flights_max: usize,
    flight_blocks_max: u64,
    /// How many of them are being written.
    pub(crate) writing: usize,
    /// Flights that are merged and have no place yet.
    merged: BTreeSet<u64>,
    /// Most blocks at a time: less when the disk is nearly full.
    blocks_max: u64,
    /// Not even one block had a place: nothing goes on before there is room.
    pub(crate) is_starved: bool,
    /// Blocks of objects that could not be read, and how often that was tried.
    unreadable: BTreeMap<(ObjectId, u64), u32>,
}

impl Default for Settling {
    fn default() -> Self {
        Self {
            is_wanted: false,
            target: None,
            queue: VecDeque::new(),
            resting: BTreeSet::new(),
            flights: 0,
            flight_blocks: 0,
            flights_max: 0,
            flight_blocks_max: 0,
            writing: 0,
            merged: BTreeSet::new(),
            blocks_max: RUN_BLOCKS_MAX,
            is_starved: false,
            unreadable: BTreeMap::new(),
        }
    }
}

impl Settling {
    const fn is_full(&self) -> bool {
        self.flights >= self.flights_max || self.flight_blocks >= self.flight_blocks_max
    }

    fn begin_step(&mut self) {
        self.flights_max = FLIGHTS_MAX.min(self.flights + FLIGHTS_PER_STEP);
        self.flight_blocks_max = FLIGHT_BLOCKS_MAX.min(self.flight_blocks + BLOCKS_PER_STEP);
    }

    const fn add(&mut self, flight: &Flight) {
        self.flights += 1;
        self.flight_blocks += flight.blocks;
    }

    pub(crate) const fn remove(&mut self, flight: &Flight) {
        self.flights -= 1;
        self.flight_blocks -= flight.blocks;
    }
}

/// How far an object is settled.
#[derive(Debug)]
enum Progress {
    /// Nothing of it is left up to the target.
    Done,
    /// All of it is under way.
    Resting,
    /// There may be more to start.
    Going,
}

/// What becomes of a block that is settled.
#[derive(Debug)]
enum Way {
    /// Its records are not durable yet.
    Later,
    /// It goes to a new block.
    Elsewhere,
    /// It is written over, here.
    InPlace(Vec<DiskRange>),
}

impl Way {
    /// Takes the next block along if it goes the same way.
    fn goes_on(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Later, Self::Later) | (Self::Elsewhere, Self::Elsewhere) => true,
            (Self::InPlace(extents), Self::InPlace(more)) => {
                for range in more {
                    match extents.last_mut() {
                        Some(last) if last.end() == range.block => last.blocks += range.blocks,
                        _ => extents.push(*range),
                    }
                }
                true
            }
            _ => false,
        }
    }
}

impl Store {
    pub(crate) const fn is_settling(&self) -> bool {
        self.settling.target.is_some()
    }

    /// Goes on with settling; begins when the journal is filling up.
    pub(crate) fn settle(&mut self) {
        if self.settling.is_starved || self.settling.target.is_none() {
            self.place_merged(); // A pass may be over before all that it started.
        }
        if self.settling.is_starved {
            // The bytes stay in the journal.
            self.settling.target = None;
            self.settling.queue.clear();
            self.settling.resting.clear();
            return;
        }
        if self.settling.target.is_none() {
            let is_full = self.journal.used_bytes() > self.journal.ring_bytes() * 3 / 8;
            let is_wanted = is_full || self.settling.is_wanted || self.checkpoint.is_draining;
            // A pass that begins before the last one's checkpoint finds the same
            // records still there.
            if !is_wanted || self.overlaid.is_empty() || self.checkpoint.is_busy() {
                return;
            }
            self.settling.target = Some(self.journal.last());
            self.settling.queue = self.overlaid.iter().copied().collect();
        }
        self.settling.begin_step();
        // What needs no read is merged at once; nobody would call again for it.
        for _ in 0..ROUNDS_PER_STEP {
            let before = self.totals.promised_blocks;
            self.settle_some();
            let has_dropped = self.totals.promised_blocks < before;
            if !self.place_merged() && !has_dropped {
                break;
            }
        }
        if self.settling.queue.is_empty() && self.settling.resting.is_empty() {
            self.settling.target = None;
            self.settling.is_wanted = false;
            self.settling.unreadable.clear();
            self.checkpoint.is_wanted = true;
        }
    }

    fn settle_some(&mut self) {
        for _ in 0..OBJECTS_PER_STEP.min(self.settling.queue.len()) {
            if self.settling.is_full() {
                return;
            }
            let Some(id) = self.settling.queue.pop_front() else {
                break;
            };
            match self.settle_object(&id) {
                Ok(Progress::Done) => {}
                Ok(Progress::Resting) => {
                    self.settling.resting.insert(id);
                }
                Ok(Progress::Going) | Err(Hold::Room | Hold::Refuse(_)) => {
                    self.settling.queue.push_back(id);
                }
                Err(Hold::Load(wanted)) => {
                    self.load(*wanted);
                    self.settling.queue.push_back(id);
                }
            }
        }
    }

    /// A flight of the object has landed: there may be more to start.
    pub(crate) fn wake_settling(&mut self, id: &ObjectId) {
        if self.settling.resting.remove(id) {
            self.settling.queue.push_back(*id);
        }
    }

    /// Starts what can be started of the object's bytes up to the target.
    fn settle_object(&mut self, id: &ObjectId) -> Result<Progress, Hold> {
        let target = self.settling.target.unwrap_or_default();
        let Some(object) = self.object(id) else {
            return Ok(Progress::Done);
        };
        if object.overlay.low() > target {
            return Ok(Progress::Done);
        }
        self.hurry_flights(id);
        let room = self.settling.flights_max - self.settling.flights;
        let (stretches, is_covered) = self.stretches(id, target, room);
        for (from, to) in &stretches {
            if self.settling.is_full() {
                break;
            }
            self.need_blocks(id, *from, *to)?;
            self.settle_stretch(id, *from, *to);
        }
        if is_covered {
            self.checkpoint.written_back.get_or_insert_default();
        }
        let Some(object) = self.object(id).filter(|it| it.overlay.low() <= target) else {
            return Ok(Progress::Done);
        };
        let is_resting = stretches.is_empty() && !is_covered && !object.flights.is_empty();
        Ok(match is_resting {
            true => Progress::Resting,
            false => Progress::Going,
        })
    }

    /// The first stretches of contiguous blocks with bytes from records up to
    /// `target`, without blocks that a flight is about to change. And whether
    /// there are more with unstable bytes, which have to become durable first.
    fn stretches(&self, id: &ObjectId, target: Position, count: usize) -> (Vec<(u64, u64)>, bool) {
        let Some(object) = self.object(id) else {
            return (Vec::new(), false);
        };
        let flights = object.flights.iter();
        let busy = busy_blocks(flights.filter_map(|number| self.flights.get(number)));
        let is_busy = |block: u64| {
            let before = busy.partition_point(|(first, _)| *first <= block);
            before > 0 && busy[before - 1].1 > block
        };
        let is_unstable = |block: u64| {
            let mut pieces = (object.overlay).overlapping(block * BLOCK, (block + 1) * BLOCK);
            pieces.any(|(_, piece)| piece.state != PieceState::Journalled)
        };
        let is_suspect = |block| self.settling.unreadable.contains_key(&(*id, block));
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        let mut is_covered = false;
        let mut next = 0; // The first block that was not looked at.
        for (offset, piece) in object.overlay.iter().filter(|(_, it)| it.low <= target) {
            let first = next.max(offset / BLOCK);
            next = next.max((offset + piece.length).div_ceil(BLOCK));
            for block in (first..next).filter(|block| !is_busy(*block)) {
                let blocks_max = self.settling.blocks_max;
                if is_unstable(block) {
                    is_covered = true;
                } else if let Some((from, to)) = stretches.last_mut()
                    && *to == block
                    && block - *from < blocks_max
                    && !is_suspect(block)
                    && !is_suspect(block - 1)
                {
                    *to += 1;
                } else if stretches.len() == count {
                    return (stretches, is_covered);
                } else {
                    stretches.push((block, block + 1));
                }
            }
        }
        (stretches, is_covered)
    }

    /// Each part of a stretch goes its way.
    fn settle_stretch(&mut self, id: &ObjectId, from: u64, to: u64) {
        let mut parts: Vec<(u64, u64, Way)> = Vec::new();
        for block in from..to {
            let way = self.way_of(id, block);
            if let Some((_, end, last)) = parts.last_mut()
                && last.goes_on(&way)
            {
                *end = block + 1;
            } else {
                parts.push((block, block + 1, way));
            }
        }
        for (from, to, way) in parts {
            if self.settling.is_full() {
                return;
            }
            match way {
                Way::Later => {}
                Way::Elsewhere => self.settle_blocks(id, from, to),
                Way::InPlace(extents) => self.settle_in_place(id, (from, to), extents),
            }
        }
    }

    /// A block is written over where it lies if the journal holds all of it: a
    /// write that tears it does no harm then. Nobody may be reading or holding
    /// the old content.
    fn way_of(&self, id: &ObjectId, block: u64) -> Way {
        let Some(object) = self.object(id) else {
            return Way::Later;
        };
        let window = self
            .windows
            .get(&(object.head.serial, block / WINDOW_BLOCKS));
        let Some((first, run)) = window.and_then(|window| window.find(block)) else {
            return Way::Elsewhere;
        };
        let disk = DiskRange {
            block: run.disk + (block - first),
            blocks: 1,
        };
        let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
        let (mut covered, mut newest) = (0, Position(0));
        for (_, piece) in object.overlay.range(start, end) {
            if piece.bytes.is_some() {
                covered += piece.length;
            }
            newest = newest.max(piece.low);
        }
        if covered < BLOCK || run.references > 1 || self.holds.meets(disk) {
            return Way::Elsewhere;
        }
        if newest > self.journal.durable() && !self.config.has(Mutation::InPlaceBeforeJournal) {
            return Way::Later;
        }
        Way::InPlace(vec![disk])
    }

    fn settle_in_place(&mut self, id: &ObjectId, blocks: (u64, u64), extents: Vec<DiskRange>) {
        let Some(object) = self.object(id) else {
            return;
        };
        let (start, end) = (blocks.0 * BLOCK, blocks.1 * BLOCK);
        let pieces = object.overlay.overlapping(start, end);
        let stamp = pieces.map(|(_, piece)| piece.stamp).max().unwrap_or(0);
        let plan = self.plan(object, start, end);
        let content = plan.assemble(&[]);
        let data = aligned_pieces(&content);
        for extent in &extents {
            self.holds.add(*extent);
        }
        let flight = Flight {
            checksums: block_checksums(&data),
            held_bytes: content.len() as u64,
            role: Role::InPlace,
            ..Flight::new(*id, (stamp, plan.version), blocks, extents)
        };
        self.settling.add(&flight);
        self.launch(flight, data);
    }

    /// Reads what is needed to merge the blocks.
    fn settle_blocks(&mut self, id: &ObjectId, from: u64, to: u64) {
        let Some(object) = self.object(id) else {
            return;
        };
        let serial = object.head.serial;
        let (start, end) = (from * BLOCK, to * BLOCK);
        let (mut stamp, mut version) = (0, Version::NONE);
        let mut is_zeros = true;
        for (_, piece) in object.overlay.overlapping(start, end) {
            stamp = stamp.max(piece.stamp);
            version = version.max(piece.version);
            is_zeros &= piece.bytes.is_none();
        }
        if is_zeros && (from..to).all(|block| self.is_hole(serial, block)) {
            // Zeros over nothing are nothing.
            self.change_overlay(id, |object| object.overlay.remove(start, end, stamp));
            return;
        }
        let plan = self.plan(object, start, end);
        let number = self.next_token;
        self.next_token += 1;
        let flight = Flight {
            stage: Stage::Merging,
            role: Role::Merge,
            ..Flight::new(
                *id,
                (stamp, version.max(plan.version)),
                (from, to),
                Vec::new(),
            )
        };
        self.settling.add(&flight);
        self.flights.insert(number, flight);
        if let Some(object) = self.object_mut(id) {
            object.flights.insert(number);
        }
        self.start_read(Reader::Settle(number), None, plan);
    }

    /// The bytes of a flight were read and merged, or what of them there is.
    pub(crate) fn flight_merged(&mut self, number: u64, payload: &Payload, error: Option<&str>) {
        let Some(flight) = self.flights.get_mut(&number) else {
            return;
        };
        let blocks = flight.live.iter().map(|(from, to)| to - from).sum::<u64>();
        if error.is_some() && blocks > 1 {
            // One of them is bad: they are taken one by one.
            self.settling.blocks_max = 1;
            self.take_flight(number);
            return;
        }
        if error.is_some() {
            let tried = self
                .settling
                .unreadable
                .entry((flight.object, flight.first_block));
            let tried = tried.or_insert(0);
            *tried += 1;
            if *tried < READS_MAX {
                self.take_flight(number); // A disk may fail a read and not the next.
                return;
            }
        }
        flight.is_poisoned = error.is_some();
        flight.stage = Stage::Placing(aligned_copy(payload));
        self.settling.merged.insert(number);
    }

    /// Finds places for flights that are merged. True if some are on their way,
    /// or were given up to be tried in smaller parts.
    fn place_merged(&mut self) -> bool {
        let mut is_moving = false;
        for number in self.settling.merged.clone() {
            let Some(flight) = self.flights.get(&number) else {
                continue;
            };
            let Stage::Placing(data) = &flight.stage else {
                continue;
            };
            let data = data.clone();
            match self.place((data.len() / BLOCK_BYTES) as u64) {
                Ok(extents) => {
                    let Some(mut flight) = self.take_flight(number) else {
                        continue;
                    };
                    self.settling.blocks_max = RUN_BLOCKS_MAX;
                    self.settling.is_starved = false;
                    flight.extents = extents;
                    flight.held_bytes = data.len() as u64;
                    flight.checksums = block_checksums(std::slice::from_ref(&data));
                    if flight.is_poisoned {
                        // What lay beneath is lost. The block stays unreadable, so
                        // that it is repaired and never passed on.
                        flight.checksums.iter_mut().for_each(|sum| *sum = !*sum);
                    }
                    self.settling.add(&flight);
                    self.launch(flight, vec![data]);
                    is_moving = true;
                }
                Err(Hold::Load(wanted)) => {
                    self.load(*wanted);
                }
                Err(Hold::Room) if self.is_growing || self.space.has_held() => {}
                Err(Hold::Room | Hold::Refuse(_)) => {
                    // Less at a time finds its place in what is reserved.
                    self.settling.blocks_max = (self.settling.blocks_max / 2).max(1);
                    self.settling.is_starved |= data.len() == BLOCK_BYTES;
                    self.take_flight(number);
                    is_moving = true;
                }
            }
        }
        is_moving
    }

    fn take_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        self.wake_settling(&flight.object);
        self.settling.merged.remove(&number);
        self.settling.remove(&flight);
        if let Some(object) = self.object_mut(&flight.object) {
            object.flights.remove(&number);
        }
        Some(flight)
    }
}

/// The blocks that flights are about to change, as (from, to), in order and apart.
fn busy_blocks<'a>(flights: impl Iterator<Item = &'a Flight>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = flights.flat_map(Flight::ranges).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let is_joined = next.0 <= last.1;
        if is_joined {
            last.1 = last.1.max(next.1);
        }
        is_joined
    });
    ranges
}
