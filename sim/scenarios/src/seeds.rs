//! Many seeds on all processors, and what to say of one that failed.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossdock_delivery::Mutation as DeliveryMutation;
use crossdock_host::Mutation;

use crate::delivery;
use crate::host_crash::{self, Shape, ensemble};
use crate::store_crash::{self, Options, Outcome};

/// A seed that found something.
#[derive(Debug)]
pub struct Failure {
    /// Of which scenario.
    pub scenario: &'static str,
    /// Which.
    pub seed: u64,
    /// What it found.
    pub what: String,
    /// How it came about.
    pub history: Vec<String>,
}

/// What a range of seeds amounts to.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Losses of power in them.
    pub crashes: u64,
    /// Requests in them.
    pub calls: u64,
    /// How long they took in simulated time, all together.
    pub simulated: Duration,
    /// The failure with the lowest seed.
    pub failure: Option<Failure>,
}

/// A scenario: its name, and how a seed of it runs, with or without history.
struct Scenario<R> {
    name: &'static str,
    run: R,
    twice: bool,
}

/// Runs `count` seeds of the store's crash tests from `first` on, or as many as
/// can be begun in `patience`; ends early after a failure. With `twice`, each
/// seed runs a second time and has to do the same.
#[must_use]
pub fn run_store(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    twice: bool,
    options: Options,
) -> Report {
    let run = |seed, history| store_crash::run(seed, Options { history, ..options });
    let name = if options.closes { "closing" } else { "store" };
    run_all(first, count, patience, &Scenario { name, run, twice })
}

/// Likewise for whole hosts, each seed twice.
#[must_use]
pub fn run_hosts(first: u64, count: u64, patience: Option<Duration>) -> Report {
    let run = |seed, history| host_crash::run(seed, Shape::of_seed(seed), history);
    let (name, twice) = ("host", true);
    run_all(first, count, patience, &Scenario { name, run, twice })
}

/// Likewise for ensembles, with a fault built in, if there is one.
#[must_use]
pub fn run_ensembles(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    mutation: Option<Mutation>,
) -> Report {
    let run = |seed, history| {
        let shape = ensemble::Shape::of_seed(seed);
        ensemble::run(seed, shape, mutation, history)
    };
    let (name, twice) = ("ensemble", mutation.is_none());
    run_all(first, count, patience, &Scenario { name, run, twice })
}

/// Likewise for delivery, with a fault built in, if there is one.
#[must_use]
pub fn run_deliveries(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    mutation: Option<DeliveryMutation>,
) -> Report {
    let run = |seed, history| delivery::run(seed, mutation, history);
    let (name, twice) = ("delivery", mutation.is_none());
    run_all(first, count, patience, &Scenario { name, run, twice })
}

/// Likewise for ensembles in which all clients race for the same few names.
#[must_use]
pub fn run_races(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    mutation: Option<Mutation>,
) -> Report {
    let run =
        |seed, history| ensemble::run(seed, ensemble::Shape::of_races(seed), mutation, history);
    let (name, twice) = ("races", mutation.is_none());
    run_all(first, count, patience, &Scenario { name, run, twice })
}

/// Likewise for ensembles in which initiators share a LUN through several gateways.
#[must_use]
pub fn run_luns(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    mutation: Option<Mutation>,
) -> Report {
    let run = |seed, history| {
        let shape = ensemble::Shape::of_luns(seed);
        ensemble::luns::run(seed, shape, mutation, history)
    };
    let (name, twice) = ("luns", mutation.is_none());
    run_all(first, count, patience, &Scenario { name, run, twice })
}

fn run_all<R: Fn(u64, bool) -> Outcome + Sync>(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    scenario: &Scenario<R>,
) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(first);
    let end = AtomicU64::new(first.saturating_add(count));
    let report = Mutex::new(Report::default());
    let begun = Instant::now();
    let work = || {
        let is_late = || patience.is_some_and(|patience| begun.elapsed() >= patience);
        while !is_late() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                break;
            }
            if let Some(what) = scenario.check(seed, &report) {
                end.fetch_min(seed, Ordering::Relaxed);
                if let Ok(mut report) = report.lock() {
                    report.take_failure(scenario.name, seed, what);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut report = report.into_inner().unwrap_or_default();
    if let Some(failure) = &mut report.failure {
        failure.history = scenario.try_run(failure.seed, true).map_or_else(
            || vec!["no history: it panicked".to_owned()],
            |outcome| outcome.history,
        );
    }
    report
}

impl<R: Fn(u64, bool) -> Outcome + Sync> Scenario<R> {
    /// The outcome of a seed; nothing if it panicked.
    fn try_run(&self, seed: u64, history: bool) -> Option<Outcome> {
        let run = std::panic::AssertUnwindSafe(|| (self.run)(seed, history));
        std::panic::catch_unwind(run).ok()
    }

    fn check(&self, seed: u64, report: &Mutex<Report>) -> Option<String> {
        let Some(outcome) = self.try_run(seed, false) else {
            return Some("it panicked".to_owned());
        };
        if let Ok(mut report) = report.lock() {
            report.seeds += 1;
            report.crashes += outcome.crashes;
            report.calls += outcome.calls;
            report.simulated += outcome.simulated;
        }
        if self.twice {
            let again = self.try_run(seed, false);
            let again = again.map(|again| (again.trace_hash, again.violation));
            let expected = (outcome.trace_hash, outcome.violation.clone());
            if again.as_ref() != Some(&expected) {
                return Some(format!("two runs differ: {expected:x?}, {again:x?}"));
            }
        }
        outcome.violation
    }
}

/// How many seeds a test is to run, if somebody says so.
#[cfg(test)]
pub(crate) fn wanted() -> Option<u64> {
    std::env::var("CROSSDOCK_SEEDS").ok()?.parse().ok()
}

/// How long the tests of every build run seeds that nobody has run before.
#[cfg(test)]
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(60);

/// Fresh seeds begin below this, so that they are easy to copy by hand.
#[cfg(test)]
const FRESH_BELOW: u64 = 1_000_000_000_000;

/// A seed that most likely nobody has run before, or that of `CROSSDOCK_SEED`. It is said
/// at once, past what tests capture: also who kills a run that hangs knows it.
#[cfg(test)]
pub(crate) fn fresh(scenario: &str) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    use std::io::Write;

    let given = std::env::var("CROSSDOCK_SEED").ok();
    let given = given.map(|given| given.parse().expect("CROSSDOCK_SEED is a number"));
    let first = given.unwrap_or_else(|| RandomState::new().hash_one(scenario) % FRESH_BELOW);
    let line = format!("{scenario}: new seeds from {first}; again: CROSSDOCK_SEED={first}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("somebody reads it");
    first
}

impl Report {
    /// Says what was run; panics if a seed found something, or if the range
    /// proves nothing.
    #[cfg(test)]
    pub(crate) fn expect_sound(self) {
        println!(
            "{} seeds, each twice: {} crashes, {} requests, {:.1} simulated hours",
            self.seeds,
            self.crashes,
            self.calls,
            self.simulated.as_secs_f64() / 3600.0
        );
        let (crashes, seeds) = (self.crashes, self.seeds);
        self.expect_nothing("");
        assert!(crashes > seeds, "hardly anything crashed");
    }

    /// Panics if a seed found something, or if none was run; `story` is what it was about.
    #[cfg(test)]
    pub(crate) fn expect_nothing(self, story: &str) {
        if let Some(failure) = self.failure {
            panic!("{failure}\n{story}");
        }
        assert!(self.seeds > 0, "no seed was run");
    }

    fn take_failure(&mut self, scenario: &'static str, seed: u64, what: String) {
        if self.failure.as_ref().is_none_or(|known| seed < known.seed) {
            self.failure = Some(Failure {
                scenario,
                seed,
                what,
                history: Vec::new(),
            });
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // First, for a history is long, and who keeps a part of the output keeps its beginning.
        writeln!(formatter, "seed {}: {}", self.seed, self.what)?;
        for line in &self.history {
            writeln!(formatter, "{line}")?;
        }
        let (scenario, seed) = (self.scenario, self.seed);
        write!(
            formatter,
            "replay: cargo run -p crossdock-scenarios --bin crossdock-sim -- {scenario} --seed {seed}"
        )
    }
}
