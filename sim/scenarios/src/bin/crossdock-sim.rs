//! Runs a scenario on many seeds: `crossdock-sim NAME [--seeds N] [--seed S]`.
//!
//! With `--seed` alone, that seed runs and its history is printed. Exit codes: 0
//! nothing found, 1 something found, 2 wrong usage.

use std::process::ExitCode;
use std::time::Instant;

use crossdock_scenarios::host_crash::{self, Shape, ensemble};
use crossdock_scenarios::seeds::{self, Report};
use crossdock_scenarios::store_crash::{self, Options, Outcome};
use crossdock_store::Mutation;

const USAGE: &str = "\
crossdock-sim store [--seeds N] [--seed S] [--mutation NAME]
    --seeds N        how many seeds (10000)
    --seed S         the first of them (0); alone: run this one and print its history
    --mutation NAME  build a fault in: reply-before-flush, no-flush, no-checksum-check,
                     index-ahead-of-journal, freed-run-reused-early,
                     in-place-before-journal
crossdock-sim host [--seeds N] [--seed S]
    the same for a whole host, with clients over NFS
crossdock-sim ensemble [--seeds N] [--seed S] [--mutation NAME]
    the same for gateways, managers and nodes over a network, with ignore-epoch,
    skip-fence, join-unequal, reopen-uncommitted, mirror-nothing, reply-before-log,
    forget-duplicates, lose-truncates, forget-doubt, keep-restarted";

#[derive(Clone, Copy, Default)]
enum Scenario {
    #[default]
    Store,
    Host,
    Ensemble,
}

#[derive(Default)]
struct Arguments {
    scenario: Scenario,
    seeds: Option<u64>,
    seed: Option<u64>,
    mutation: Option<Mutation>,
    fault: Option<crossdock_host::Mutation>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match (arguments.seeds, arguments.seed) {
        (None, Some(seed)) => show(seed, &run_one(&arguments, seed)),
        (seeds, seed) => run_many(&arguments, seed.unwrap_or(0), seeds),
    }
}

fn run_one(arguments: &Arguments, seed: u64) -> Outcome {
    match arguments.scenario {
        Scenario::Store => {
            let options = Options {
                mutation: arguments.mutation,
                history: true,
            };
            store_crash::run(seed, options)
        }
        Scenario::Host => host_crash::run(seed, Shape::of_seed(seed), true),
        Scenario::Ensemble => {
            ensemble::run(seed, ensemble::Shape::of_seed(seed), arguments.fault, true)
        }
    }
}

fn run_many(arguments: &Arguments, first: u64, count: Option<u64>) -> ExitCode {
    let begun = Instant::now();
    let (name, report) = match arguments.scenario {
        Scenario::Store => {
            let options = Options {
                mutation: arguments.mutation,
                history: false,
            };
            let count = count.unwrap_or(10_000);
            ("store", seeds::run_store(first, count, None, true, options))
        }
        Scenario::Host => ("host", seeds::run_hosts(first, count.unwrap_or(1000), None)),
        Scenario::Ensemble => {
            let count = count.unwrap_or(1000);
            (
                "ensemble",
                seeds::run_ensembles(first, count, None, arguments.fault),
            )
        }
    };
    sum_up(name, first, begun, report)
}

fn parse(words: &[String]) -> Option<Arguments> {
    let (name, mut rest) = words.split_first()?;
    let mut arguments = Arguments {
        scenario: match name.as_str() {
            "store" => Scenario::Store,
            "host" => Scenario::Host,
            "ensemble" => Scenario::Ensemble,
            _ => return None,
        },
        ..Arguments::default()
    };
    while let [flag, value, others @ ..] = rest {
        match flag.as_str() {
            "--seeds" => arguments.seeds = Some(value.parse().ok()?),
            "--seed" => arguments.seed = Some(value.parse().ok()?),
            "--mutation" if matches!(arguments.scenario, Scenario::Ensemble) => {
                arguments.fault = Some(fault(value)?);
            }
            "--mutation" => arguments.mutation = Some(mutation(value)?),
            _ => return None,
        }
        rest = others;
    }
    rest.is_empty().then_some(arguments)
}

fn mutation(name: &str) -> Option<Mutation> {
    Some(match name {
        "reply-before-flush" => Mutation::ReplyBeforeFlush,
        "no-flush" => Mutation::NoFlush,
        "no-checksum-check" => Mutation::NoChecksumCheck,
        "index-ahead-of-journal" => Mutation::IndexAheadOfJournal,
        "freed-run-reused-early" => Mutation::FreedRunReusedEarly,
        "in-place-before-journal" => Mutation::InPlaceBeforeJournal,
        _ => return None,
    })
}

fn fault(name: &str) -> Option<crossdock_host::Mutation> {
    use crossdock_host::Mutation;
    Some(match name {
        "ignore-epoch" => Mutation::IgnoreEpoch,
        "skip-fence" => Mutation::SkipFence,
        "join-unequal" => Mutation::JoinUnequal,
        "reopen-uncommitted" => Mutation::ReopenUncommitted,
        "mirror-nothing" => Mutation::MirrorNothing,
        "reply-before-log" => Mutation::ReplyBeforeLog,
        "forget-duplicates" => Mutation::ForgetDuplicates,
        "lose-truncates" => Mutation::LoseTruncates,
        "forget-doubt" => Mutation::ForgetDoubt,
        "keep-restarted" => Mutation::KeepRestarted,
        _ => return None,
    })
}

fn show(seed: u64, outcome: &Outcome) -> ExitCode {
    for line in &outcome.history {
        println!("{line}");
    }
    println!("seed {seed}: trace {:016x}", outcome.trace_hash);
    match &outcome.violation {
        None => ExitCode::SUCCESS,
        Some(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn sum_up(name: &str, first: u64, begun: Instant, report: Report) -> ExitCode {
    println!(
        "{name}: {} seeds from {first}, each twice, {} crashes, {} requests, {:.1} s",
        report.seeds,
        report.crashes,
        report.calls,
        begun.elapsed().as_secs_f64()
    );
    match report.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}
