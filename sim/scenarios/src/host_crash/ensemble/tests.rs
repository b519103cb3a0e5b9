//! The ensemble tests of every build.

use std::time::Duration;

use crossdock_host::Mutation;

use crate::seeds;

/// Seeds in which a fault has to be found.
const MUTATION_SEEDS: u64 = 1000;

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
