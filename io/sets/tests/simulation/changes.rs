//! Sets that are added and retired under load, with power that fails at any moment of it.
//!
//! The user of the space is played by the test: it leaves the places of a set that is to go,
//! and says so. From then on its disks are not there, and whoever asks them for anything
//! fails the run. What lies elsewhere is held against the model as ever.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_disk::DiskOperation;
use crossdock_sets::{Kind, NewDisk, NewSet, Places, SetsError, SetsEvent};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use crate::Run;
use crate::model::Model;
use crate::rig::{BLOCK, Rig, Shape, Slot, fresh_slots, try_assemble};

/// Requests in flight at a time.
const FLIGHT_MAX: usize = 8;

/// Sets at a time.
const SETS_MAX: usize = 4;

#[derive(Default)]
struct Counts {
    added: u64,
    retired: u64,
    kept: u64,
    /// Starts behind a retirement that was told to be durable.
    told: u64,
    /// Starts that found a set which was to go.
    resumed: u64,
    /// Starts that found the disks of one that had gone.
    left_out: u64,
}

/// A node whose sets change.
struct Node {
    random: Random,
    shape: Shape,
    run: Run,
    /// Blocks that nobody asks for any more.
    closed: BTreeSet<u64>,
    /// With that length and these places all closed blocks are known.
    known: Option<(u64, Vec<Places>)>,
    /// A set of which it was told that it goes, also after a loss of power.
    told: Option<usize>,
    counts: Counts,
}

fn kind(random: &mut Random) -> (Kind, usize) {
    match random.below(4) {
        0 => (Kind::Stripe, 1 + random.index(3)),
        1 => (Kind::Mirror, 2),
        2 => (Kind::Mirror, 3),
        _ => (Kind::Parity, 3 + random.index(2)),
    }
}

impl Node {
    /// Works for some events; power may fail behind them.
    fn work(&mut self, rig: &mut Rig, events: u64) -> Result<(), String> {
        for _ in 0..events {
            if self.run.asked.len() < FLIGHT_MAX && self.run.random.one_in(2) {
                self.run.ask(rig);
            }
            rig.step();
            self.run.take_completions(rig)?;
            self.close(rig);
        }
        Ok(())
    }

    /// Nobody asks for closed blocks any more, as soon as nobody does.
    fn close(&mut self, rig: &Rig) {
        let known = self.run.model.blocks();
        let all = (known, rig.machine.closed());
        if self.known.as_ref() == Some(&all) {
            return;
        }
        let mut is_complete = true;
        for places in &all.1 {
            for row in 0..places.rows {
                let begin = (places.offset_bytes + row * places.row_bytes) / BLOCK;
                for block in begin..known.min(begin + places.bytes / BLOCK) {
                    if self.closed.contains(&block) {
                        continue;
                    }
                    match self.run.model.take(block, 1) {
                        true => self.closed.insert(block),
                        false => std::mem::take(&mut is_complete),
                    };
                }
            }
        }
        self.known = is_complete.then_some(all);
    }

    /// Reads what is not closed, and writes anew what may be anything.
    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        for block in 0..self.run.model.blocks() {
            if !self.closed.contains(&block) {
                let read = rig.read(block, 1)?;
                self.run.model.check(block, &read, false)?;
            }
        }
        for block in self.run.model.uncertain() {
            if !self.closed.contains(&block) {
                let pieces = self.run.model.write(block, 1);
                rig.write(block, pieces)?;
                self.run.model.written(block, 1, false);
            }
        }
        self.flush(rig)
    }

    fn flush(&mut self, rig: &mut Rig) -> Result<(), String> {
        let order = self.run.model.order();
        rig.finish(DiskOperation::Flush)
            .map_err(|error| format!("flush: {error}"))?;
        self.run.model.flushed(order);
        Ok(())
    }

    fn add(&mut self, rig: &mut Rig) -> Result<(), String> {
        let before = rig.machine.capacity_bytes();
        let (kind, count) = kind(&mut self.random);
        let one = Shape {
            sets: vec![(kind, count)],
            spares: 0,
            stripes: self.shape.stripes,
        };
        let first = rig.slots.len();
        let slots = fresh_slots(&one, &mut self.random);
        let disks = (first..).take(slots.len()).map(|number| NewDisk {
            name: format!("disk{number}"),
            length_bytes: one.disk_bytes(),
        });
        let disks = disks.collect();
        // What is said of them is kept first, then the disks learn it.
        self.shape.sets.push((kind, count));
        rig.shape.sets.push((kind, count));
        rig.slots.extend(slots);
        let random = &mut self.random;
        let added = rig
            .machine
            .add_sets(rig.now, &[NewSet { kind, disks }], || random.next_u64());
        rig.carry();
        let numbers = added.map_err(|error| error.to_string())?;
        let expected = (first..)
            .take(count)
            .map(|number| u16::try_from(number).ok());
        let is_right = numbers.iter().map(|number| Some(number.0)).eq(expected);
        if !is_right || rig.machine.capacity_bytes() <= before {
            return Err(format!("{numbers:?} from {first} on, or no longer"));
        }
        self.counts.added += 1;
        Ok(())
    }

    /// Has a set go, or finds one that is going; `None`: it stays, or power fails meanwhile.
    fn retire(&mut self, rig: &mut Rig) -> Result<bool, String> {
        let set = match rig.machine.retiring() {
            Some(set) => set,
            None => {
                let status = rig.machine.status();
                let numbers: Vec<usize> = status.sets.iter().map(|set| set.number).collect();
                let set = *self.random.pick(&numbers).ok_or("no set")?;
                match rig.machine.retire_set(rig.now, set) {
                    Ok(()) => set,
                    Err(SetsError::Only(_)) if numbers.len() == 1 => return Ok(true),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        rig.carry();
        let change = rig.machine.label_change();
        let events = self.random.below(60);
        self.work(rig, events)?;
        self.told = rig.machine.is_labelled(change).then_some(set);
        match self.random.below(6) {
            0 => return Ok(false),
            1 => {
                let kept = rig.machine.keep_set(rig.now, set);
                rig.carry();
                self.counts.kept += 1;
                self.told = None;
                return kept.map(|()| true).map_err(|error| error.to_string());
            }
            _ => {}
        }
        self.run.drain(rig)?;
        self.close(rig);
        self.flush(rig)?;
        self.told = None;
        rig.machine.set_emptied(rig.now);
        rig.carry();
        for _ in 0..self.random.below(12) {
            rig.step();
        }
        if self.random.one_in(4) {
            return Ok(false);
        }
        rig.settle();
        let retired = rig.events.iter().find_map(|event| match event {
            SetsEvent::Retired {
                set: other, disks, ..
            } if *other == set => Some(disks.clone()),
            _ => None,
        });
        for disk in retired.ok_or("its disks never leave")? {
            rig.slots[usize::from(disk.0)] = Slot::Gone;
        }
        self.counts.retired += 1;
        Ok(true)
    }

    /// Power fails, and comes back; what was retired is not named any more.
    fn restart(&mut self, rig: Rig) -> Result<Rig, String> {
        let now = rig.now;
        let mut slots = rig.crash(&mut self.random);
        let is_gone = |slot: &Slot| matches!(slot, Slot::Gone);
        self.drop_sets(&mut slots, |_, slots| slots.iter().all(is_gone));
        let found = try_assemble(&self.shape, &slots, &mut self.random);
        let retired = found.map_err(|error| error.to_string())?.retired;
        self.drop_sets(&mut slots, |set, _| retired.contains(&set));
        self.counts.left_out += retired.len() as u64;
        self.run.model.crashed(false);
        self.run.asked.clear();
        self.run.is_growing = false;
        for &block in &self.closed {
            self.run.model.take(block, 1);
        }
        let shape = self.shape.clone();
        let rig = Rig::start(shape, slots, now, &mut self.random)?;
        self.counts.resumed += u64::from(rig.machine.retiring().is_some());
        if let Some(set) = self.told.take() {
            self.counts.told += 1;
            if rig.machine.retiring() != Some(set) {
                return Err(format!("set {set} does not go, which was answered"));
            }
        }
        Ok(rig)
    }

    /// What is not there is not named any more.
    fn drop_sets(&mut self, slots: &mut Vec<Slot>, is_gone: impl Fn(usize, &[Slot]) -> bool) {
        let (mut first, mut number) = (0, 0);
        self.shape.sets.retain(|&(_, count)| {
            let disks = first..first + count;
            let goes = is_gone(number, &slots[disks.clone()]);
            number += 1;
            match goes {
                true => drop(slots.drain(disks)),
                false => first += count,
            }
            !goes
        });
    }
}

fn run(seed: u64) -> Result<Counts, String> {
    let mut random = Random::new(seed);
    let shape = Shape {
        sets: vec![kind(&mut random)],
        spares: 0,
        stripes: random.between(20, 40),
    };
    let slots = fresh_slots(&shape, &mut random);
    let mut node = Node {
        run: Run {
            random: random.fork(),
            model: Model::default(),
            asked: BTreeMap::new(),
            is_growing: false,
        },
        random,
        shape: shape.clone(),
        closed: BTreeSet::new(),
        known: None,
        told: None,
        counts: Counts::default(),
    };
    let mut rig = Rig::start(shape, slots, Time::default(), &mut node.random)?;
    for _ in 0..8 {
        let events = node.random.between(10, 200);
        node.work(&mut rig, events)?;
        let is_in_order = match node.random.coin() && node.shape.sets.len() < SETS_MAX {
            true => {
                node.add(&mut rig)?;
                let events = node.random.below(80);
                node.work(&mut rig, events)?;
                node.random.coin()
            }
            false => node.retire(&mut rig)?,
        };
        if is_in_order {
            node.run.drain(&mut rig)?;
            node.close(&rig);
            rig.settle();
            rig.check_members()?;
        }
        if !is_in_order || node.random.coin() {
            rig = node.restart(rig)?;
            node.close(&rig);
            node.check(&mut rig)?;
        }
    }
    rig.settle();
    node.check(&mut rig)?;
    rig.settle();
    rig.check_members()?;
    Ok(node.counts)
}

/// Goal: whatever is added and retired, and whenever power fails, all that lies on the sets
/// that are there is kept, the others are asked for nothing, and the space is as long as those
/// that came make it. `SETS_SEED` runs one seed.
#[test]
fn sets_come_and_go_under_load() {
    if let Ok(seed) = std::env::var("SETS_SEED") {
        let seed = seed.parse().expect("a number");
        assert_eq!(run(seed).err(), None);
        return;
    }
    let mut sum = Counts::default();
    let mut failed = Vec::new();
    for seed in 0..600 {
        match run(seed) {
            Ok(counts) => {
                sum.added += counts.added;
                sum.retired += counts.retired;
                sum.kept += counts.kept;
                sum.told += counts.told;
                sum.resumed += counts.resumed;
                sum.left_out += counts.left_out;
            }
            Err(what) => failed.push(format!("seed {seed}: {what}")),
        }
    }
    failed.truncate(10);
    assert!(failed.is_empty(), "{failed:#?}");
    let Counts {
        added,
        retired,
        kept,
        told,
        resumed,
        left_out,
    } = sum;
    let counts = [added, retired, kept, told, resumed, left_out];
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
}
