//! The ensemble tests of every build.

use std::time::Duration;

use crossdock_host::Mutation;

use crate::seeds::Report;
use crate::{regressions, seeds};

/// Seeds in which a fault has to be found.
const MUTATION_SEEDS: u64 = 1000;

/// Goal: invariants 1 to 5 of an ensemble whose processes, connections and
/// registry fail, on many seeds, each of which runs twice and does the same.
/// `CROSSDOCK_SEEDS` sets how many. Those that have failed before come first.
#[test]
fn an_ensemble_has_what_it_acknowledged() {
    let wanted = seeds::wanted();
    let patience = match wanted {
        Some(_) => None,
        None => Some(Duration::from_secs(40)),
    };
    regressions::expect_sound("ensemble", |seed| seeds::run_ensembles(seed, 1, None, None));
    let report = seeds::run_ensembles(0, wanted.unwrap_or(400), patience, None);
    report.expect_sound();
}

/// Goal: the same on seeds that nobody has run before, for a minute.
#[test]
fn an_ensemble_has_what_it_acknowledged_on_new_seeds() {
    let first = seeds::fresh("ensemble");
    let report = seeds::run_ensembles(first, u64::MAX, Some(seeds::FRESH_FOR), None);
    report.expect_nothing("found by a new seed: mend it, and add it to regressions.rs");
}

/// How long an order is looked for on fixed seeds, and on new ones.
const ORDER_FOR: Duration = Duration::from_secs(25);

/// Goal: invariants 2 and 3 where all clients race for the same names: there is an order
/// of all requests that explains every answer, on fixed seeds and on new ones.
#[test]
fn raced_for_names_are_linearizable() {
    expect_order("races", 200, |first, count, patience| {
        seeds::run_races(first, count, patience, None)
    });
}

/// Seeds of a scenario that have failed before, as many fixed ones, and new ones: nothing.
fn expect_order(
    scenario: &'static str,
    fixed: u64,
    run: impl Fn(u64, u64, Option<Duration>) -> Report,
) {
    regressions::expect_sound(scenario, |seed| run(seed, 1, None));
    run(0, fixed, Some(ORDER_FOR)).expect_sound();
    let report = run(seeds::fresh(scenario), u64::MAX, Some(ORDER_FOR));
    report.expect_nothing("found by a new seed: mend it, and add it to regressions.rs");
}

/// Goal: the search for that order finds faults that are built in, by itself: requests that
/// are done twice, and answers that are not so any more when they are given.
#[test]
fn built_in_faults_are_found_by_races() {
    for mutation in [Mutation::ForgetDuplicates, Mutation::ReplyBeforeLog] {
        let report = seeds::run_races(0, MUTATION_SEEDS, None, Some(mutation));
        let failure = report.failure;
        let failure = failure.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {}: {}", failure.seed, failure.what);
        let is_by_order = failure.what.contains("not linearizable");
        assert!(is_by_order, "{}", failure.what);
    }
}

/// Goal: the workload finds faults that are built in: what nobody checks could
/// as well not be there.
#[test]
fn built_in_faults_of_an_ensemble_are_found() {
    for mutation in [
        Mutation::IgnoreEpoch,
        Mutation::JoinUnequal,
        Mutation::ReopenUncommitted,
        Mutation::MirrorNothing,
        Mutation::ReplyBeforeLog,
        Mutation::ForgetDuplicates,
        Mutation::LoseTruncates,
        Mutation::KeepRestarted,
        Mutation::MintNothing,
        Mutation::DropBeforeEqual,
        Mutation::ForgetDoubt,
        Mutation::SkipFence,
        Mutation::IgnoreLease,
        Mutation::GrantAtOnce,
        Mutation::RecallNothing,
        Mutation::LeaseForLong,
        Mutation::PushAnyGeneration,
        Mutation::PrepareUnlogged,
        Mutation::FreezeNothing,
        Mutation::ForgetDecision,
    ] {
        let report = seeds::run_ensembles(0, MUTATION_SEEDS, None, Some(mutation));
        let failure = report.failure;
        let failure = failure.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {}: {}", failure.seed, failure.what);
    }
}

/// Goal: what initiators do to the same blocks through several gateways has one order, whatever
/// fails; on fixed seeds and on new ones.
#[test]
fn blocks_of_luns_are_linearizable() {
    expect_order("luns", 400, |first, count, patience| {
        seeds::run_luns(first, count, patience, None)
    });
}

/// Goal: changes that are carried out again, at sites or at nodes, also where another node has
/// taken over, are found, and reservations that are answered before all gateways have heard of
/// them; and copies that are made though their gateways are gone.
#[test]
fn built_in_faults_are_found_by_initiators() {
    for mutation in [
        Mutation::ForgetDuplicates,
        Mutation::CompareAgain,
        Mutation::WriteAgain,
        Mutation::TellNoNumbers,
        Mutation::ReserveAtOnce,
        Mutation::CopyForGone,
    ] {
        let report = seeds::run_luns(0, MUTATION_SEEDS, None, Some(mutation));
        let failure = report.failure;
        let failure = failure.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {}: {}", failure.seed, failure.what);
        let is_by_answers = ["no order", "was pushed out"]
            .iter()
            .any(|what| failure.what.contains(what));
        assert!(is_by_answers, "{}", failure.what);
    }
}
