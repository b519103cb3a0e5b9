//! Moves what the journal holds to runs, so that its tail can advance; and
//! frees the runs of what was removed. Both in the background, in small steps.
//!
//! Bytes of the overlay are merged with the blocks beneath them and written as
//! a flight of the store's own, to new blocks; the record that maps them makes
//! the records of the bytes superfluous.

use std::collections::{BTreeSet, VecDeque};

use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Payload};

use crate::index::{IndexCall, Wanted};
use crate::overlay::PieceState;
use crate::read::Reader;
use crate::record::Record;
use crate::runs::{RUN_BLOCKS_MAX, WINDOW_BLOCKS};
use crate::store::{BLOCK, Store};
use crate::waiting::Hold;
use crate::write::{Flight, Stage, block_checksums};

/// Flights of settling at a time.
const FLIGHTS_MAX: usize = 16;

/// Objects that are looked at in one step.
const OBJECTS_PER_STEP: usize = 64;

/// How often a step looks for what it can start: halving 256 blocks to one
/// takes 8.
const ROUNDS_PER_STEP: usize = 16;

/// Windows whose runs are freed in one step.
const REAP_WINDOWS: usize = 16;

/// How far settling and reaping have got.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Somebody needs room in the journal.
    pub(crate) is_wanted: bool,
    /// Under way: everything recorded up to here goes to runs.
    target: Option<Position>,
    queue: VecDeque<ObjectId>,
    flights: usize,
    /// Most blocks at a time: less when the disk is nearly full.
    blocks_max: u64,
    /// The serial whose runs are being freed, and the window to go on from.
    reaping: Option<(u64, u64)>,
    is_reap_asked: bool,
    /// Windows to be freed next, and whether there are none after them.
    reap_windows: VecDeque<u64>,
}

impl Default for Settling {
    fn default() -> Self {
        Self {
            is_wanted: false,
            target: None,
            queue: VecDeque::new(),
            flights: 0,
            blocks_max: RUN_BLOCKS_MAX,
            reaping: None,
            is_reap_asked: false,
            reap_windows: VecDeque::new(),
        }
    }
}

impl Store {
    pub(crate) const fn is_settling(&self) -> bool {
        self.settling.target.is_some()
    }

    /// Goes on with settling; begins when the journal is filling up.
    pub(crate) fn settle(&mut self) {
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
        // What needs no read is merged at once; nobody would call again for it.
        for _ in 0..ROUNDS_PER_STEP {
            self.settle_some();
            if !self.place_merged() {
                break;
            }
        }
        if self.settling.queue.is_empty() {
            self.settling.target = None;
            self.settling.is_wanted = false;
            self.checkpoint.is_wanted = true;
        }
    }

    fn settle_some(&mut self) {
        for _ in 0..OBJECTS_PER_STEP.min(self.settling.queue.len()) {
            if self.settling.flights >= FLIGHTS_MAX {
                return;
            }
            let Some(id) = self.settling.queue.pop_front() else {
                break;
            };
            match self.settle_object(&id) {
                Ok(true) => {}
                Ok(false) | Err(Hold::Room | Hold::Refuse(_)) => self.settling.queue.push_back(id),
                Err(Hold::Load(wanted)) => {
                    self.load(*wanted);
                    self.settling.queue.push_back(id);
                }
            }
        }
    }

    /// True if nothing of the object is left up to the target.
    fn settle_object(&mut self, id: &ObjectId) -> Result<bool, Hold> {
        let target = self.settling.target.unwrap_or_default();
        let Some(object) = self.object(id) else {
            return Ok(true);
        };
        if object.overlay.low() > target {
            return Ok(true);
        }
        // Unstable bytes may lie over recorded ones: they become durable first.
        self.promote(id)?;
        let numbers: Vec<u64> = self
            .object(id)
            .map_or_else(Vec::new, |o| o.flights.iter().copied().collect());
        for number in numbers {
            if let Some(flight) = self.flights.get_mut(&number) {
                flight.is_urgent = true;
            }
        }
        for (from, to) in self.stretches(id, target) {
            if self.settling.flights >= FLIGHTS_MAX {
                break;
            }
            self.need_blocks(id, from, to)?;
            self.settle_blocks(id, from, to);
        }
        Ok(self.object(id).is_none_or(|o| o.overlay.low() > target))
    }

    /// Contiguous blocks with bytes from records up to `target`, without those
    /// that a flight is about to change.
    fn stretches(&self, id: &ObjectId, target: Position) -> Vec<(u64, u64)> {
        let Some(object) = self.object(id) else {
            return Vec::new();
        };
        let flights = object
            .flights
            .iter()
            .filter_map(|number| self.flights.get(number));
        let flights: Vec<&Flight> = flights.collect();
        let mut blocks = BTreeSet::new();
        for (offset, piece) in object.overlay.iter() {
            if piece.state != PieceState::Journalled || piece.low > target {
                continue;
            }
            blocks.extend(offset / BLOCK..(offset + piece.length).div_ceil(BLOCK));
            if blocks.len() as u64 > RUN_BLOCKS_MAX * FLIGHTS_MAX as u64 {
                break;
            }
        }
        let is_settled = |block: &u64| {
            let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
            let is_unsettled =
                |(_, piece): (u64, &crate::overlay::Piece)| piece.state != PieceState::Journalled;
            !flights.iter().any(|flight| flight.meets(from, to))
                && !object.overlay.overlapping(from, to).any(is_unsettled)
        };
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for block in blocks.into_iter().filter(is_settled) {
            match stretches.last_mut() {
                Some((from, to)) if *to == block && block - *from < self.settling.blocks_max => {
                    *to += 1;
                }
                _ => stretches.push((block, block + 1)),
            }
        }
        stretches
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
            object: *id,
            stamp,
            version: version.max(plan.version),
            first_block: from,
            extents: Vec::new(),
            checksums: Vec::new(),
            live: vec![(from, to)],
            edges: Vec::new(),
            end_bytes: 0,
            held_bytes: 0,
            stage: Stage::Merging,
            is_urgent: true,
            is_settling: true,
            is_poisoned: false,
            reply: None,
            commits: Vec::new(),
        };
        self.settling.flights += 1;
        self.flights.insert(number, flight);
        if let Some(object) = self.object_mut(id) {
            object.flights.insert(number);
        }
        self.start_read(Reader::Settle(number), plan);
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
        flight.is_poisoned = error.is_some();
        let mut buffer = AlignedBuffer::zeroed(payload.len());
        payload.copy_to_slice(&mut buffer[..payload.len()]);
        flight.stage = Stage::Placing(buffer.freeze());
    }

    /// Finds places for flights that are merged. True if some are on their way,
    /// or were given up to be tried in smaller parts.
    fn place_merged(&mut self) -> bool {
        let mut is_moving = false;
        let is_merged = |flight: &Flight| matches!(flight.stage, Stage::Placing(_));
        let merged: Vec<u64> = (self.flights.iter())
            .filter(|(_, flight)| is_merged(flight))
            .map(|(number, _)| *number)
            .collect();
        for number in merged {
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
                    flight.extents = extents;
                    flight.held_bytes = data.len() as u64;
                    flight.checksums = block_checksums(std::slice::from_ref(&data));
                    if flight.is_poisoned {
                        // What lay beneath is lost. The block stays unreadable, so
                        // that it is repaired and never passed on.
                        flight.checksums.iter_mut().for_each(|sum| *sum = !*sum);
                    }
                    self.settling.flights += 1;
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
                    self.take_flight(number);
                    is_moving = true;
                }
            }
        }
        is_moving
    }

    fn take_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        self.settling.flights -= 1;
        if let Some(object) = self.object_mut(&flight.object) {
            object.flights.remove(&number);
        }
        Some(flight)
    }

    pub(crate) const fn settle_landed(&mut self) {
        self.settling.flights -= 1;
    }

    /// Frees the runs of removed objects: windows in memory at once, the others
    /// as the index finds them.
    pub(crate) fn reap(&mut self) {
        loop {
            let Some((serial, from)) = self.settling.reaping else {
                let Some(serial) = self.dead.first().copied() else {
                    return;
                };
                self.settling.reaping = Some((serial, 0));
                continue;
            };
            if self.settling.is_reap_asked || !self.has_reap_room() {
                return;
            }
            let Some(number) = self.settling.reap_windows.pop_front() else {
                self.settling.is_reap_asked = true;
                self.ask_index(IndexCall::NextWindows {
                    serial,
                    window: from,
                    limit: REAP_WINDOWS,
                });
                return;
            };
            if !self.windows.contains_key(&(serial, number)) {
                self.settling.reap_windows.push_front(number);
                let windows = vec![(serial, number)];
                self.load(Wanted {
                    windows,
                    ..Wanted::default()
                });
                return;
            }
            self.reap_window(serial, number, false);
            self.settling.reaping = Some((serial, number + 1));
        }
    }

    fn has_reap_room(&self) -> bool {
        let is_full = self.journal.used_bytes() > self.journal.ring_bytes() / 8 * 7;
        !is_full && self.journal.gathered_bytes() < self.journal.frame_bytes_max()
    }

    fn reap_window(&mut self, serial: u64, number: u64, is_last: bool) {
        self.record(Record::Reap {
            serial,
            first_block: number * WINDOW_BLOCKS,
            end_block: (number + 1) * WINDOW_BLOCKS,
            is_last,
        });
    }

    /// The index told which windows have runs. What is in memory may be newer.
    pub(crate) fn reap_found(&mut self, serial: u64, found: &[u64]) {
        self.settling.is_reap_asked = false;
        let Some((_, from)) = self.settling.reaping.filter(|(s, _)| *s == serial) else {
            return;
        };
        let is_end = found.len() < REAP_WINDOWS;
        let last = if is_end {
            u64::MAX
        } else {
            found[found.len() - 1]
        };
        let cached = self.windows.range((serial, from)..=(serial, last));
        let with_runs = cached.filter(|(_, window)| window.runs().next().is_some());
        let mut windows: BTreeSet<u64> = with_runs.map(|((_, number), _)| *number).collect();
        // A window in memory without runs was reaped, and the index is behind.
        let unknown = found
            .iter()
            .filter(|n| !self.windows.contains_key(&(serial, **n)));
        windows.extend(unknown);
        self.settling.reap_windows = windows.into_iter().collect();
        if self.settling.reap_windows.is_empty() {
            if is_end {
                self.reap_window(serial, 0, true);
                self.settling.reaping = None;
            } else {
                self.settling.reaping = Some((serial, last + 1));
            }
        }
    }
}
