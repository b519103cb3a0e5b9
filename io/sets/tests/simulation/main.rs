//! Disk sets under every fault that they are for: power that fails at any moment, also while
//! a disk is missing, while one is rebuilt, or while another start puts things in order;
//! disks that die at any moment; bytes that change at rest.
//!
//! Each seed is a few starts of one node's sets. Held against it: what was acknowledged and
//! flushed is read back, whatever happened; of the rest, each sector is old or new (not
//! promised where a parity set lacks a disk when it starts again); when all is quiet the
//! members of each set agree.

mod changes;
mod comparing;
mod merging;
mod model;
mod records;
mod rig;
mod starts;

use std::collections::BTreeMap;

use crossdock_disk::{DiskError, DiskOperation, DiskOutput, DiskToken};
use crossdock_sets::Kind;
use crossdock_sim::random::Random;
use crossdock_types::{Scatter, Time};

use model::Model;
use rig::{BLOCK, Rig, Shape, Slot, fresh_slots};

/// Requests in flight at a time.
const FLIGHT_MAX: usize = 8;

/// What was asked for and has not ended.
#[derive(Debug)]
enum Asked {
    Read {
        first: u64,
        blocks: u64,
    },
    Write {
        first: u64,
        blocks: u64,
        is_durable: bool,
    },
    Flush {
        order: u64,
    },
    Grow {
        blocks: u64,
    },
}

struct Run {
    random: Random,
    model: Model,
    asked: BTreeMap<DiskToken, Asked>,
    is_growing: bool,
}

fn shape(random: &mut Random) -> Shape {
    let set = |random: &mut Random| match random.below(4) {
        0 => (Kind::Mirror, 2),
        1 => (Kind::Mirror, 3),
        2 => (Kind::Parity, 3),
        _ => (Kind::Parity, 4 + random.index(2)),
    };
    let mut sets = vec![set(random)];
    if random.coin() {
        sets.push(set(random));
    }
    Shape {
        sets,
        spares: random.index(3),
        stripes: random.between(20, 40),
    }
}

impl Run {
    /// Sends one request, if it meets no other.
    fn ask(&mut self, rig: &mut Rig) {
        let space = rig.machine.capacity_bytes() / BLOCK;
        let known = self.model.blocks();
        if known == 0 || (self.random.one_in(40) && known < space && !self.is_growing) {
            if self.is_growing {
                return;
            }
            let blocks = space.min(known + self.random.between(20, 80));
            self.is_growing = true;
            let grow = DiskOperation::Grow {
                length_bytes: blocks * BLOCK,
            };
            let token = rig.submit(grow);
            self.asked.insert(token, Asked::Grow { blocks });
            return;
        }
        if self.random.one_in(8) {
            let order = self.model.order();
            let token = rig.submit(DiskOperation::Flush);
            self.asked.insert(token, Asked::Flush { order });
            return;
        }
        let longest = if self.random.coin() { 3 } else { 16 };
        let first = self.random.below(known);
        let blocks = self.random.between(1, longest).min(known - first);
        if !self.model.take(first, blocks) {
            return;
        }
        let offset_bytes = first * BLOCK;
        if self.random.one_in(3) {
            let buffer = Scatter::zeroed(usize::try_from(blocks * BLOCK).unwrap());
            let token = rig.submit(DiskOperation::Read {
                offset_bytes,
                buffer,
            });
            self.asked.insert(token, Asked::Read { first, blocks });
        } else {
            let is_durable = self.random.one_in(6);
            let pieces = self.model.write(first, blocks);
            let token = rig.submit(DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable,
            });
            let write = Asked::Write {
                first,
                blocks,
                is_durable,
            };
            self.asked.insert(token, write);
        }
    }

    fn take_completions(&mut self, rig: &mut Rig) -> Result<(), String> {
        while let Some(completion) = rig.machine.poll() {
            let asked = self.asked.remove(&completion.token);
            let asked = asked.ok_or("a completion of nothing")?;
            let output = completion
                .result
                .map_err(|error| format!("{asked:?} failed: {error}"))?;
            match (asked, output) {
                (Asked::Read { first, blocks }, DiskOutput::Read(buffer)) => {
                    self.model.check(first, &buffer.into_bytes(), true)?;
                    self.model.give_back(first, blocks);
                }
                (
                    Asked::Write {
                        first,
                        blocks,
                        is_durable,
                    },
                    _,
                ) => {
                    self.model.written(first, blocks, is_durable);
                    self.model.give_back(first, blocks);
                }
                (Asked::Flush { order }, _) => self.model.flushed(order),
                (Asked::Grow { blocks }, _) => {
                    self.is_growing = false;
                    self.model.grow(blocks);
                }
                (asked, output) => return Err(format!("{asked:?} gave {output:?}")),
            }
        }
        Ok(())
    }

    /// Kills a disk of a set that can do without it.
    fn kill_one(&mut self, rig: &mut Rig) {
        let status = rig.machine.status();
        let members = status.sets.iter().filter(|set| set.lacking == 0);
        let members = members.flat_map(|set| &set.members);
        let names: Vec<&String> = members.filter_map(|member| member.name.as_ref()).collect();
        if let Some(name) = self.random.pick(&names) {
            let number = name.trim_start_matches("disk").parse().unwrap();
            rig.kill(number);
        }
    }

    /// Works for some events.
    fn live(&mut self, rig: &mut Rig, events: u64) -> Result<(), String> {
        let dies_at = self.random.coin().then(|| self.random.below(events + 1));
        for event in 0..events {
            if dies_at == Some(event) && rig.machine.length_bytes() > 0 {
                self.kill_one(rig);
            }
            if self.asked.len() < FLIGHT_MAX && self.random.one_in(2) {
                self.ask(rig);
            }
            rig.step();
            self.take_completions(rig)?;
        }
        Ok(())
    }

    /// Lets all requests end.
    fn drain(&mut self, rig: &mut Rig) -> Result<(), String> {
        while !self.asked.is_empty() {
            if !rig.step() {
                return Err(format!("never answered: {:?}", self.asked));
            }
            self.take_completions(rig)?;
        }
        Ok(())
    }

    /// Reads all there is after a start, then writes anew what may be anything.
    fn check_all(&mut self, rig: &mut Rig) -> Result<(), String> {
        let known = self.model.blocks();
        let mut at = 0;
        while at < known {
            let blocks = self.random.between(1, 32).min(known - at);
            let read = rig.read(at, blocks)?;
            self.model.check(at, &read, false)?;
            // Twice the same: a mirror must not waver.
            let again = rig.read(at, blocks)?;
            if read != again {
                return Err(format!("blocks from {at} on waver"));
            }
            at += blocks;
        }
        for block in self.model.uncertain() {
            let pieces = self.model.write(block, 1);
            rig.write(block, pieces)?;
            self.model.written(block, 1, false);
        }
        let order = self.model.order();
        rig.finish(DiskOperation::Flush)
            .map_err(|error| format!("flush: {error}"))?;
        self.model.flushed(order);
        Ok(())
    }

    /// Changes bytes of one disk at rest; whoever checks what he reads finds and mends it.
    fn corrupt_and_scrub(&mut self, rig: &mut Rig) -> Result<u64, String> {
        let victims: Vec<usize> = (0..rig.slots.len())
            .filter(|&number| matches!(rig.slots[number], Slot::Good(_)))
            .collect();
        let victim = *self.random.pick(&victims).ok_or("no disk is left")?;
        if let Slot::Good(disk) = &mut rig.slots[victim] {
            for _ in 0..self.random.between(1, 6) {
                disk.flip_bit();
            }
        }
        let mut found = 0;
        // What is read wrong first: making parity anew would take it for right.
        for block in 0..self.model.blocks() {
            let read = rig.read(block, 1)?;
            if self.model.check(block, &read, true).is_ok() {
                continue;
            }
            found += 1;
            let mut attempt = 1;
            let right = loop {
                let other = rig.read_other(block, attempt);
                match other {
                    Ok(other) if self.model.check(block, &other, true).is_ok() => break other,
                    Err(DiskError::NoOther) => {
                        return Err(format!("block {block} is lost with one disk's bytes"));
                    }
                    _ => attempt += 1,
                }
            };
            let right = crossdock_types::AlignedBuffer::padded_from(&right).freeze();
            rig.write(block, vec![right])?;
        }
        for block in 0..self.model.blocks() {
            let mut attempt = 1;
            loop {
                match rig.read_other(block, attempt) {
                    Err(DiskError::NoOther) => break,
                    Ok(other) if self.model.check(block, &other, true).is_err() => {
                        found += 1;
                        let right = rig.read(block, 1)?;
                        let right = crossdock_types::AlignedBuffer::padded_from(&right).freeze();
                        rig.write(block, vec![right])?;
                    }
                    _ => {}
                }
                attempt += 1;
            }
        }
        Ok(found)
    }
}

#[derive(Default)]
struct Counts {
    crashes: u64,
    lost: u64,
    rebuilt: u64,
    corrupt: u64,
}

fn run(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let mut random = Random::new(seed);
    let shape = shape(&mut random);
    let has_parity = shape.sets.iter().any(|(kind, _)| *kind == Kind::Parity);
    let mut slots = fresh_slots(&shape, &mut random);
    let mut run = Run {
        random: random.fork(),
        model: Model::default(),
        asked: BTreeMap::new(),
        is_growing: false,
    };
    let mut now = Time::default();
    for _ in 0..random.between(2, 4) {
        let mut rig = Rig::start(shape.clone(), slots, now, &mut random)?;
        if random.one_in(4) {
            // Before it is in order, or just after.
            for _ in 0..random.below(60) {
                rig.step();
            }
        } else {
            run.check_all(&mut rig)?;
            let events = random.between(20, 900);
            run.live(&mut rig, events)?;
        }
        now = rig.now;
        let count = |events: &[crossdock_sets::SetsEvent]| {
            let is_rebuilt = |it: &&crossdock_sets::SetsEvent| {
                matches!(it, crossdock_sets::SetsEvent::Rebuilt { .. })
            };
            events.iter().filter(is_rebuilt).count() as u64
        };
        counts.rebuilt += count(&rig.events);
        let lacking = |rig: &Rig| rig.machine.status().sets.iter().any(|set| set.lacking > 0);
        let mut has_lost = lacking(&rig);
        // A disk that dies together with the power.
        // Not before there is something to lose: half-made sets are made anew of all disks.
        let is_made = rig.machine.length_bytes() > 0;
        if is_made && !has_lost && rig.events.is_empty() && random.one_in(4) {
            let dead = rig.slots.iter().any(|slot| !matches!(slot, Slot::Good(_)));
            if !dead {
                let number = random.index(rig.slots.len());
                rig.slots[number] = Slot::Gone;
                has_lost = true;
            }
        }
        has_lost |= rig.slots.iter().any(|slot| !matches!(slot, Slot::Good(_)));
        counts.lost += u64::from(has_lost);
        counts.crashes += 1;
        slots = rig.crash(&mut random);
        run.model.crashed(has_lost && has_parity);
        run.asked.clear();
        run.is_growing = false;
        for slot in &mut slots {
            // A dead one comes back as it was, or not at all.
            if let Slot::Dead(disk, _) = slot {
                *slot = match random.coin() {
                    true => {
                        let disk = std::mem::replace(disk, rig::no_disk());
                        Slot::Good(disk)
                    }
                    false => Slot::Gone,
                };
            }
        }
    }
    let mut rig = Rig::start(shape, slots, now, &mut random)?;
    run.check_all(&mut rig)?;
    run.live(&mut rig, random.below(300))?;
    run.drain(&mut rig)?;
    // It finds each disk that is dead, and has spares take their places.
    let order = run.model.order();
    rig.finish(DiskOperation::Flush)
        .map_err(|error| error.to_string())?;
    run.model.flushed(order);
    rig.settle();
    rig.check_members()?;
    let is_whole = rig.machine.status().sets.iter().all(|set| set.lacking == 0);
    if is_whole && random.one_in(8) {
        // All that is formatted is within reach.
        let length_bytes = rig.machine.capacity_bytes();
        rig.finish(DiskOperation::Grow { length_bytes })
            .map_err(|error| format!("grow: {error}"))?;
        run.model.grow(length_bytes / BLOCK);
        counts.corrupt += run.corrupt_and_scrub(&mut rig)?;
        rig.settle();
        rig.check_members()
            .map_err(|error| format!("after a scrub: {error}"))?;
    }
    run.check_all(&mut rig)
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(what) = run(seed, &mut counts) {
            failed.push(format!("seed {seed}: {what}"));
        }
    }
    failed.truncate(10);
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(counts.crashes > 0 && counts.lost > 0, "nothing went wrong");
    assert!(counts.rebuilt > 0, "nothing was rebuilt");
    assert!(counts.corrupt > 0, "no byte was wrong");
}

/// Goal: nothing that was promised is lost, whatever happens. `SETS_SEED` runs one seed.
#[test]
fn seeds() {
    if let Ok(seed) = std::env::var("SETS_SEED") {
        let seed = seed.parse().expect("a number");
        let outcome = run(seed, &mut Counts::default());
        assert_eq!(outcome, Ok(()));
        return;
    }
    run_seeds(0..500);
}

/// Goal: seeds that have found something. Records of a parity log of which a newer one had been
/// written over, and a mirror's member that was rebuilt up to the middle of a region.
#[test]
fn seeds_that_failed() {
    for seed in [1272, 3632, 3929, 6165, 6489, 7233, 8287, 9093] {
        assert_eq!(run(seed, &mut Counts::default()), Ok(()), "seed {seed}");
    }
}

/// Goal: the same with other seeds, beside the first.
#[test]
fn more_seeds() {
    run_seeds(1000..1500);
}
