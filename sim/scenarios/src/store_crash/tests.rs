//! The crash tests of every build, and the proof that they would find faults.

use std::time::Duration;

use crossdock_store::Mutation;

use super::Options;
use crate::{regressions, seeds};

/// Seeds within which each built-in fault must be found.
const MUTATION_SEEDS: u64 = 1000;

/// Goal: invariants 1 and 7 and the node's part of 6, on many seeds, each of
/// which runs twice and does the same. `CROSSDOCK_SEEDS` sets how many; without
/// it there are 1,000, or what can be done in two minutes; more of them run by
/// hand (`cargo xtask sim store --seeds N`).
#[test]
fn a_crashed_store_has_what_it_acknowledged() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_mins(2)),
    };
    let count = wanted.unwrap_or(1_000);
    let run =
        |first, count, patience| seeds::run_store(first, count, patience, true, Options::default());
    regressions::expect_sound("store", |seed| run(seed, 1, None));
    run(0, count, patience).expect_sound();
}

/// Goal: the same on seeds that nobody has run before, for a minute.
#[test]
fn a_crashed_store_has_what_it_acknowledged_on_new_seeds() {
    let first = seeds::fresh("store");
    let patience = Some(seeds::FRESH_FOR);
    let report = seeds::run_store(first, u64::MAX, patience, true, Options::default());
    report.expect_nothing("found by a new seed: mend it, and add it to regressions.rs");
}

/// Goal: the same while parts of the data disk are closed, emptied and, as soon as the store
/// says that nothing is left there, lost for good: at any moment, with any faults, and with
/// power that fails in the midst of it.
#[test]
fn parts_of_the_disk_may_go() {
    let options = Options {
        closes: true,
        ..Options::default()
    };
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_mins(1)),
    };
    let report = seeds::run_store(0, wanted.unwrap_or(500), patience, true, options);
    report.expect_sound();
    let gone = (0..20).map(|seed| super::run(seed, options).gone_blocks);
    assert!(gone.sum::<u64>() > 200, "nothing was ever lost");
}

fn finds(mutation: Mutation) {
    let options = Options {
        mutation: Some(mutation),
        ..Options::default()
    };
    let report = seeds::run_store(0, MUTATION_SEEDS, None, false, options);
    let failure = report.failure;
    let failure = failure.unwrap_or_else(|| panic!("{mutation:?} was not found"));
    println!("{mutation:?}: seed {}: {}", failure.seed, failure.what);
    // It was the fault that was found, and nothing else.
    let sound = super::run(failure.seed, Options::default());
    assert_eq!(sound.violation, None, "seed {}", failure.seed);
}

/// Goal: an answer before the flush is found.
#[test]
fn a_reply_before_the_flush_is_found() {
    finds(Mutation::ReplyBeforeFlush);
}

/// Goal: disks that are never flushed are found.
#[test]
fn a_missing_flush_is_found() {
    finds(Mutation::NoFlush);
}

/// Goal: blocks that are handed out unchecked are found.
#[test]
fn a_missing_checksum_check_is_found() {
    finds(Mutation::NoChecksumCheck);
}

/// Goal: an index that knows more than the journal is found.
#[test]
fn an_index_ahead_of_the_journal_is_found() {
    finds(Mutation::IndexAheadOfJournal);
}

/// Goal: space that is reused before its release is durable is found.
#[test]
fn a_run_reused_too_early_is_found() {
    finds(Mutation::FreedRunReusedEarly);
}

/// Goal: a block that is written over before its new content is safe is found.
#[test]
fn a_block_written_over_too_early_is_found() {
    finds(Mutation::InPlaceBeforeJournal);
}

/// Goal: blocks that are moved over what was written meanwhile are found.
#[test]
fn a_move_over_something_newer_is_found() {
    finds(Mutation::MoveOverNewer);
}
