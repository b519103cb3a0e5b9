//! Runs a scenario on many seeds: `crossdock-sim NAME [--seeds N] [--seed S]`.
//!
//! With `--seed` alone, that seed runs and its history is printed. Exit codes: 0
//! nothing found, 1 something found, 2 wrong usage.

use std::process::ExitCode;
use std::time::Instant;

use crossdock_scenarios::host_crash::{self, Shape};
use crossdock_scenarios::seeds;
use crossdock_scenarios::store_crash::{self, Options};
use crossdock_store::Mutation;

const USAGE: &str = "\
crossdock-sim store [--seeds N] [--seed S] [--mutation NAME]
    --seeds N        how many seeds (10000)
    --seed S         the first of them (0); alone: run this one and print its history
    --mutation NAME  build a fault in: reply-before-flush, no-flush, no-checksum-check,
                     index-ahead-of-journal, freed-run-reused-early,
                     in-place-before-journal
crossdock-sim host [--seeds N] [--seed S]
    the same for a whole host, with clients over NFS";

#[derive(Default)]
struct Arguments {
    is_host: bool,
    seeds: Option<u64>,
    seed: Option<u64>,
    mutation: Option<Mutation>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match (arguments.seeds, arguments.seed) {
        (None, Some(seed)) if arguments.is_host => run_one_host(seed),
        (seeds, seed) if arguments.is_host => {
            run_many_hosts(seed.unwrap_or(0), seeds.unwrap_or(1000))
        }
        (None, Some(seed)) => run_one(seed, arguments.mutation),
        (seeds, seed) => run_many(
            seed.unwrap_or(0),
            seeds.unwrap_or(10_000),
            arguments.mutation,
        ),
    }
}

fn parse(words: &[String]) -> Option<Arguments> {
    let (name, mut rest) = words.split_first()?;
    let mut arguments = Arguments {
        is_host: name == "host",
        ..Arguments::default()
    };
    if name != "store" && !arguments.is_host {
        return None;
    }
    while let [flag, value, others @ ..] = rest {
        match flag.as_str() {
            "--seeds" => arguments.seeds = Some(value.parse().ok()?),
            "--seed" => arguments.seed = Some(value.parse().ok()?),
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

fn run_one(seed: u64, mutation: Option<Mutation>) -> ExitCode {
    let options = Options {
        mutation,
        history: true,
    };
    let outcome = store_crash::run(seed, options);
    for line in &outcome.history {
        println!("{line}");
    }
    println!("seed {seed}: trace {:016x}", outcome.trace_hash);
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run_one_host(seed: u64) -> ExitCode {
    let outcome = host_crash::run(seed, Shape::of_seed(seed), true);
    for line in &outcome.history {
        println!("{line}");
    }
    println!("seed {seed}: trace {:016x}", outcome.trace_hash);
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run_many_hosts(first: u64, count: u64) -> ExitCode {
    let report = seeds::run_hosts(first, count, None);
    println!(
        "host: {} seeds from {first}, each twice, {} crashes, {} requests",
        report.seeds, report.crashes, report.calls
    );
    match report.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_many(first: u64, count: u64, mutation: Option<Mutation>) -> ExitCode {
    let begun = Instant::now();
    let options = Options {
        mutation,
        history: false,
    };
    let report = seeds::run_store(first, count, None, true, options);
    println!(
        "store: {} seeds from {first}, each twice, {} crashes, {} requests, {:.1} s",
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
