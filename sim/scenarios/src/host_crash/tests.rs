//! The crash tests of every build.

use std::time::Duration;

use crate::{regressions, seeds};

/// Goal: invariants 1, 4 and 7 of a whole host, on many seeds, each of which
/// runs twice and does the same. `CROSSDOCK_SEEDS` sets how many; without it
/// there are 400, or as many as can be done in 50 seconds, behind those that have failed
/// before.
#[test]
fn a_crashed_host_has_what_it_acknowledged() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_secs(50)),
    };
    regressions::expect_sound("host", |seed| seeds::run_hosts(seed, 1, None));
    let report = seeds::run_hosts(0, wanted.unwrap_or(400), patience);
    report.expect_sound();
}

/// Goal: the same on seeds that nobody has run before, for a minute.
#[test]
fn a_crashed_host_has_what_it_acknowledged_on_new_seeds() {
    let first = seeds::fresh("host");
    let report = seeds::run_hosts(first, u64::MAX, Some(seeds::FRESH_FOR));
    report.expect_nothing("found by a new seed: mend it, and add it to regressions.rs");
}
