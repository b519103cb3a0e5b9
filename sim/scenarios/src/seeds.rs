//! Many seeds on all processors, and what to say of one that failed.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::store_crash::{self, Options};

/// A seed that found something.
#[derive(Debug)]
pub struct Failure {
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
    /// The failure with the lowest seed.
    pub failure: Option<Failure>,
}

/// Runs `count` seeds from `first` on, or as many as can be begun in
/// `patience`; ends early after a failure. With `twice`, each seed runs a
/// second time and has to do the same.
#[must_use]
pub fn run_store(
    first: u64,
    count: u64,
    patience: Option<Duration>,
    twice: bool,
    options: Options,
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
            let failure = check(seed, twice, options, &report);
            if let Some(what) = failure {
                end.fetch_min(seed, Ordering::Relaxed);
                if let Ok(mut report) = report.lock() {
                    report.take_failure(seed, what);
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
        let with_history = Options {
            history: true,
            ..options
        };
        failure.history = store_crash::run(failure.seed, with_history).history;
    }
    report
}

fn check(seed: u64, twice: bool, options: Options, report: &Mutex<Report>) -> Option<String> {
    let run = || store_crash::run(seed, options);
    let Ok(outcome) = std::panic::catch_unwind(run) else {
        return Some("the store panicked".to_owned());
    };
    if let Ok(mut report) = report.lock() {
        report.seeds += 1;
        report.crashes += outcome.crashes;
        report.calls += outcome.calls;
    }
    if twice {
        let again = store_crash::run(seed, options);
        if (again.trace_hash, &again.violation) != (outcome.trace_hash, &outcome.violation) {
            return Some(format!(
                "two runs differ: {:x} {:?}, {:x} {:?}",
                outcome.trace_hash, outcome.violation, again.trace_hash, again.violation
            ));
        }
    }
    outcome.violation
}

impl Report {
    fn take_failure(&mut self, seed: u64, what: String) {
        if self.failure.as_ref().is_none_or(|known| seed < known.seed) {
            self.failure = Some(Failure {
                seed,
                what,
                history: Vec::new(),
            });
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.history {
            writeln!(formatter, "{line}")?;
        }
        writeln!(formatter, "seed {}: {}", self.seed, self.what)?;
        let seed = self.seed;
        write!(
            formatter,
            "replay: cargo run -p crossdock-scenarios --bin crossdock-sim -- store --seed {seed}"
        )
    }
}
