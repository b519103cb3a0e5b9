//! Crash tests of a whole host: the production [`Host`] over simulated disks,
//! with clients that speak NFS to its door, and a model of what they were told.
//!
//! Each seed is several starts. A start opens the registry and the stores, is
//! held against the model, works, and ends by a loss of power at any moment,
//! also while it opens, or in order. Held against it: what was acknowledged is
//! there, the rest is old or new; a request that is sent again is not done
//! again, and one whose reply was lost gets the same reply; write verifiers do
//! not come back; before a stable reply everything in it was flushed on all
//! replicas; replicas are equal after a start and after a node has come back;
//! when everything is removed, no space is left taken. In some seeds disks fail
//! during the work: with a second copy no client notices, with one copy they see
//! errors that promise nothing.
//!
//! [`Host`]: crossdock_host::Host

mod acts;
mod checks;
mod draw;
mod driver;
pub mod ensemble;
mod faults;
mod flushes;
mod model;
mod rig;
mod shell;
mod wire;

use std::collections::VecDeque;
use std::time::Duration;

use crossdock_members::State;
use crossdock_nfs3::{Call, Location, Name, Reply, SetAttributes, call};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use driver::{Driver, Memory, Stop};
pub use faults::Faults;
use model::Model;
use rig::{Disks, Rig};
use shell::mix;

use crate::store_crash::Outcome;

/// Requests of a start, at most.
const ACTIONS_MAX: u64 = 120;

/// How many nodes, and how many of them hold each thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Storage nodes.
    pub nodes: u32,
    /// Copies of data and of site logs.
    pub replicas: u32,
    /// Whether an administrator stops and starts nodes during the work.
    pub stops_nodes: bool,
    /// What disks do wrong during the work.
    pub faults: Faults,
}

impl Shape {
    /// A shape for `seed`, so that a range of seeds has all of them.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        let (nodes, replicas, stops_nodes) = match seed % 5 {
            0 => (1, 1, false),
            1 => (2, 1, false),
            2 => (2, 2, false),
            3 => (3, 2, false),
            _ => (2, 2, true),
        };
        Self {
            nodes,
            replicas,
            stops_nodes,
            faults: Faults::of_seed(seed, replicas, stops_nodes),
        }
    }
}

/// Runs one seed; `history` keeps its lines.
#[must_use]
pub fn run(seed: u64, shape: Shape, history: bool) -> Outcome {
    let mut random = Random::new(seed);
    let (mut memory, disks) = match new_host(shape, &mut random, history) {
        Ok(made) => made,
        Err(what) => {
            return Outcome {
                violation: Some(what),
                trace_hash: 0,
                crashes: 0,
                gone_blocks: 0,
                calls: 0,
                simulated: Duration::ZERO,
                history: Vec::new(),
            };
        }
    };
    let mut run = Run {
        shape,
        random,
        now: Time::default(),
        crashes: 0,
        trace_hash: 0,
    };
    let violation = run.cycles(&mut memory, disks).err();
    Outcome {
        violation,
        trace_hash: run.trace_hash,
        crashes: run.crashes,
        gone_blocks: 0,
        calls: memory.calls,
        simulated: run.now.since(Time::default()),
        history: memory.history.unwrap_or_default(),
    }
}

/// A host that was just set up, and clients that have not mounted it yet.
fn new_host(shape: Shape, random: &mut Random, history: bool) -> Result<(Memory, Disks), String> {
    let memory = Memory {
        model: Model::default(),
        random: random.fork(),
        next_xid: 1000,
        next_connection: 0,
        caught: Vec::new(),
        caught_names: Vec::new(),
        answered: VecDeque::new(),
        verifier: None,
        old_verifiers: Vec::new(),
        calls: 0,
        history: history.then(Vec::new),
    };
    let nodes: Vec<u64> = (0..shape.nodes).map(|_| random.next_u64()).collect();
    let (ensemble, volume) = (random.next_u64(), random.next_u64());
    let copies = shape.replicas;
    let state = State::fresh(ensemble, volume, &nodes, copies, copies);
    Ok((memory, Disks::fresh(state, random)?))
}

struct Run {
    shape: Shape,
    random: Random,
    now: Time,
    crashes: u64,
    trace_hash: u64,
}

/// What a start is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// The first one: makes the directories.
    SetUp,
    /// Works until power fails after so many events, or until all is done.
    Work(Option<u64>),
    /// The last one: removes everything.
    CleanUp,
}

impl Run {
    fn cycles(&mut self, memory: &mut Memory, mut disks: Disks) -> Result<(), String> {
        disks = self.start(disks, memory, Task::SetUp)?;
        for _ in 0..self.random.between(2, 5) {
            let budget = match self.random.below(6) {
                0 => None,
                // Early enough to meet the opening.
                1 => Some(self.random.below(150)),
                2 => Some(self.random.below(800)),
                _ => Some(self.random.between(300, 4000)),
            };
            disks = self.start(disks, memory, Task::Work(budget))?;
        }
        disks = self.start(disks, memory, Task::CleanUp)?;
        self.trace_hash = mix(self.trace_hash, disks.trace_hash());
        Ok(())
    }

    fn start(&mut self, disks: Disks, memory: &mut Memory, task: Task) -> Result<Disks, String> {
        memory.note(self.now, || format!("start: {task:?}"));
        let rig = Rig::start(disks, self.now, self.random.fork())?;
        let budget = match task {
            Task::Work(budget) => budget,
            Task::SetUp | Task::CleanUp => None,
        };
        let mut driver = Driver::new(self.shape, memory, rig, budget);
        let lived = live(&mut driver, task);
        driver.leave();
        let Driver { rig, .. } = driver;
        self.now = rig.now + Duration::from_secs(1);
        self.trace_hash = [rig.trace_hash, rig.now.0, rig.events]
            .into_iter()
            .fold(self.trace_hash, mix);
        match lived {
            Ok(()) => Ok(rig.close()),
            Err(Stop::Crash) => {
                self.crashes += 1;
                memory.note(self.now, || "power fails".to_owned());
                memory.model.loses();
                Ok(rig.crash())
            }
            Err(Stop::Violation(what)) => Err(what),
        }
    }
}

fn live(driver: &mut Driver<'_>, task: Task) -> Result<(), Stop> {
    driver.open()?;
    match task {
        Task::SetUp => set_up(driver)?,
        Task::Work(_) => {
            driver.verify_start()?;
            if driver.memory.random.coin() {
                driver.bring_nodes_back()?;
                driver.verify_replicas()?;
            }
            let actions = driver.memory.random.below(ACTIONS_MAX);
            driver.work_on_bad_disks(actions)?;
            if driver.memory.random.coin() {
                driver.bring_nodes_back()?;
                driver.verify_replicas()?;
            }
        }
        Task::CleanUp => {
            driver.verify_start()?;
            driver.bring_nodes_back()?;
            driver.verify_replicas()?;
            driver.verify_empty()?;
        }
    }
    driver.rig.drain();
    let until = driver.rig.now + Duration::from_secs(20);
    while !driver.rig.is_quiet {
        driver.step(Some(until))?;
        if driver.rig.now >= until {
            return Err(Stop::Violation("a graceful stop does not end".to_owned()));
        }
    }
    driver.memory.model.loses();
    Ok(())
}

/// Makes two directories beside the root.
fn set_up(driver: &mut Driver<'_>) -> Result<(), Stop> {
    for name in [b"one", b"two"] {
        let root = driver.memory.model.directories[0];
        let reply = driver.call(&Call::Mkdir(call::Mkdir {
            location: Location {
                directory: root.as_handle(),
                name: Name(name),
            },
            attributes: SetAttributes::default(),
        }))?;
        let made = match reply {
            Reply::Mkdir(Ok(made)) => made.object,
            _ => None,
        };
        let handle = made.ok_or_else(|| Stop::Violation("MKDIR fails".to_owned()))?;
        driver.memory.model.directories.push(handle);
    }
    Ok(())
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
