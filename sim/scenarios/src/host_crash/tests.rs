//! The crash tests of every build.

use std::time::Duration;

use crate::seeds;

/// Goal: invariants 1, 4 and 7 of a whole host, on many seeds, each of which
/// runs twice and does the same. `CROSSDOCK_SEEDS` sets how many; without it
/// there are 200, or as many as can be done in 40 seconds.
#[test]
fn a_crashed_host_has_what_it_acknowledged() {
    let wanted = std::env::var("CROSSDOCK_SEEDS").ok();
    let wanted: Option<u64> = wanted.and_then(|seeds| seeds.parse().ok());
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_secs(40)),
    };
    let report = seeds::run_hosts(0, wanted.unwrap_or(200), patience);
    println!(
        "{} seeds, each twice: {} crashes, {} requests",
        report.seeds, report.crashes, report.calls
    );
    if let Some(failure) = report.failure {
        panic!("{failure}");
    }
    assert!(report.crashes > report.seeds, "hardly anything crashed");
}
