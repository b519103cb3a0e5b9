//! The delivery scenarios of every build, and the proof that they would find faults.

use std::time::Duration;

use crossdock_delivery::Mutation;

use crate::seeds;

/// Seeds within which each built-in fault must be found.
const MUTATION_SEEDS: u64 = 500;

/// Goal: budget, order, completeness, fairness and withdrawal on many seeds, each of
/// which runs twice and does the same. `CROSSDOCK_SEEDS` sets how many; without it there
/// are 300, or what can be done in a minute; more of them run by hand (`cargo xtask sim
/// delivery --seeds N`).
#[test]
fn streams_get_their_bytes_within_the_memory() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_mins(1)),
    };
    let report = seeds::run_deliveries(0, wanted.unwrap_or(300), patience, None);
    report.expect_sound();
}

fn finds(mutation: Mutation, by: &str) {
    let report = seeds::run_deliveries(0, MUTATION_SEEDS, None, Some(mutation));
    let failure = report.failure;
    let failure = failure.unwrap_or_else(|| panic!("{mutation:?} was not found"));
    println!("{mutation:?}: seed {}: {}", failure.seed, failure.what);
    assert!(failure.what.contains(by), "{}", failure.what);
    // It was the fault that was found, and nothing else.
    let sound = super::run(failure.seed, None, false);
    assert_eq!(sound.violation, None, "seed {}", failure.seed);
}

/// Goal: reading ahead beyond the memory is found by the door's own count.
#[test]
fn an_overrun_budget_is_found() {
    finds(Mutation::OverrunBudget, "bytes are ahead of");
}

/// Goal: disk work for the dead is found.
#[test]
fn requests_kept_for_the_dead_are_found() {
    finds(Mutation::KeepDead, "after the reset");
}

/// Goal: a stream that nobody looks at any more is found.
#[test]
fn a_forgotten_stream_is_found() {
    finds(Mutation::NeverLook, "");
}

/// Goal: who is overtaken while waiting is found.
#[test]
fn an_overtaken_stream_is_found() {
    finds(Mutation::NewestFirst, "begins");
}

/// Goal: bytes asked for twice are found.
#[test]
fn bytes_requested_twice_are_found() {
    finds(Mutation::RequestTwice, "beyond its end");
}
