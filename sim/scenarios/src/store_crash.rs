//! Crash tests of the object store: the production [`Store`] and [`Index`] over
//! simulated disks, under a random workload, with a model beside them.
//!
//! Each seed is several starts of one store. A start opens it, compares all that
//! is there with the model, works, and ends by a loss of power at any moment,
//! also while it opens, or in order. Held against it: what was acknowledged
//! stable is there; of the rest each 4 KiB block is old or new, never mixed and
//! never another object's; a flipped bit is an error and never other bytes; pins
//! and unstable writes of an earlier start are refused; no space leaks. After
//! each start the offline check has to find the three disks consistent.
//!
//! [`Store`]: crossdock_store::Store
//! [`Index`]: crossdock_store::Index

mod driver;
mod history;
mod model;
mod plan;
mod rig;

use std::time::Duration;

use crossdock_names::ObjectClass;
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::Mutation;
use crossdock_types::Time;

use driver::{Closing, Driver, Memory, Stop};
use history::History;
use model::Object;
use plan::Plan;
use rig::{Disks, Rig};

/// Requests of a start, at most.
const ACTIONS_MAX: u64 = 100;

/// What a run is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A fault in the store that should be found.
    pub mutation: Option<Mutation>,
    /// Keep the lines of [`Outcome::history`].
    pub history: bool,
    /// Parts of the data disk are closed, emptied and lost meanwhile.
    pub closes: bool,
}

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// What the store did wrong.
    pub violation: Option<String>,
    /// Two runs of a seed agree in it.
    pub trace_hash: u64,
    /// Losses of power that the store came through.
    pub crashes: u64,
    /// Blocks of the data disk that have gone, as nothing was on them.
    pub gone_blocks: u64,
    /// Requests sent.
    pub calls: u64,
    /// How long it took in simulated time.
    pub simulated: Duration,
    /// What happened, if it was to be kept.
    pub history: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random, options.mutation);
    let objects = plan.objects.iter();
    let mut memory = Memory {
        model: objects
            .map(|&id| (id, Object::new(id.class == ObjectClass::SiteLog)))
            .collect(),
        random: random.fork(),
        history: History::new(options.history),
        calls: 0,
        epoch: 0,
        is_drained: false,
        is_made: false,
        old: None,
        closing: Closing {
            seed: u64::from(options.closes) * (seed | 1 << 63),
            ..Closing::default()
        },
    };
    let mut run = Run {
        plan,
        random,
        now: Time::default(),
        crashes: 0,
        trace_hash: 0,
    };
    let violation = run.cycles(&mut memory).err();
    Outcome {
        violation,
        trace_hash: run.trace_hash,
        crashes: run.crashes,
        gone_blocks: memory.closing.gone_blocks,
        calls: memory.calls,
        simulated: run.now.since(Time::default()),
        history: memory.history.into_lines(),
    }
}

struct Run {
    plan: Plan,
    random: Random,
    now: Time,
    crashes: u64,
    trace_hash: u64,
}

/// How a start is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After so many events.
    Crash(u64),
    Orderly,
}

impl Run {
    fn cycles(&mut self, memory: &mut Memory) -> Result<(), String> {
        let mut disks = self.new_disks();
        for _ in 0..self.plan.cycles {
            let end = match self.random.below(8) {
                0 => End::Orderly,
                // Early enough to meet the opening.
                1 | 2 => End::Crash(self.random.below(60)),
                _ => End::Crash(self.random.between(20, 450)),
            };
            disks = self.start(disks, memory, end)?;
        }
        // The last two: what is there is right, and an orderly end loses nothing.
        disks = self.start(disks, memory, End::Orderly)?;
        self.start(disks, memory, End::Orderly)?;
        Ok(())
    }

    fn new_disks(&mut self) -> Disks {
        let options = SimDiskOptions::default();
        Disks {
            journal: SimDisk::new(self.random.next_u64(), 0, options),
            data: SimDisk::new(self.random.next_u64(), 0, options),
            index: SimBlockingDisk::new(self.random.next_u64(), 0, options),
        }
    }

    fn start(&mut self, mut disks: Disks, memory: &mut Memory, end: End) -> Result<Disks, String> {
        memory
            .history
            .note(self.now, || format!("start, to end by {end:?}"));
        let mut config = self.plan.config(&mut self.random);
        config.closed.clone_from(&memory.closing.zones);
        let boot = config.boot;
        let budget = match end {
            End::Crash(events) => Some(events),
            End::Orderly => None,
        };
        if memory.closing.is_gone {
            disks.lose(&memory.closing.zones);
        }
        let actions = self.random.below(ACTIONS_MAX);
        let rig = Rig::start(disks, config, self.now, self.random.fork())?;
        let mut driver = Driver::new(&self.plan, memory, rig, boot, budget);
        let mut lived = driver.live(actions).and_then(|()| driver.finish());
        if matches!(lived, Err(Stop::Failed)) {
            lived = driver.outlive_failure().and(Err(Stop::Failed));
        }
        driver.leave();
        let Driver { rig, .. } = driver;
        self.now = rig.now;
        let disks = match lived {
            Ok(()) => rig.close(),
            Err(Stop::Crash | Stop::Failed) => {
                memory.model.values_mut().for_each(Object::crash);
                self.end_badly(rig, memory)
            }
            Err(Stop::Violation(what)) => return Err(what),
        };
        if memory.is_made {
            // A bad block is no news.
            let faults = disks.data.faults();
            disks.check(faults.silent() + faults.read_errors == 0)?;
        }
        let hashes = [disks.journal.trace_hash(), disks.data.trace_hash()];
        for word in [self.now.0, hashes[0], hashes[1]] {
            self.trace_hash = (self.trace_hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(disks)
    }

    fn end_badly(&mut self, rig: Rig, memory: &mut Memory) -> Disks {
        self.crashes += 1;
        if self.random.one_in(4) {
            memory.history.note(self.now, || "it is killed".to_owned());
            rig.kill()
        } else {
            memory.history.note(self.now, || "power fails".to_owned());
            rig.crash()
        }
    }
}

#[cfg(test)]
mod tests;
