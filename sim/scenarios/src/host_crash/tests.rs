//! The crash tests of every build.

use std::time::Duration;

use crate::seeds;

/// Goal: invariants 1, 4 and 7 of a whole host, on many seeds, each of which
/// runs twice and does the same. `CROSSDOCK_SEEDS` sets how many; without it
/// there are 400, or as many as can be done in 50 seconds.
#[test]
fn a_crashed_host_has_what_it_acknowledged() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_secs(50)),
    };
    let report = seeds::run_hosts(0, wanted.unwrap_or(400), patience);
    report.expect_sound();
}
