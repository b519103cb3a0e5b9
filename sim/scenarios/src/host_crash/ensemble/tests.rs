//! The ensemble tests of every build.

use std::time::Duration;

use crate::seeds;

/// Goal: invariants 1 to 5 of an ensemble whose processes, connections and
/// registry fail, on many seeds, each of which runs twice and does the same.
/// `CROSSDOCK_SEEDS` sets how many.
#[test]
fn an_ensemble_has_what_it_acknowledged() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_secs(40)),
    };
    let report = seeds::run_ensembles(0, wanted.unwrap_or(400), patience, None);
    report.expect_sound();
}
