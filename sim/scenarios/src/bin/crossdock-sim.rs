//! Runs scenarios on many seeds: `crossdock-sim [NAME] [--seeds N] [--seed S]`.
//!
//! `crossdock-sim replay FILE` makes decisions again that a running gateway has told.
//!
//! With `--seed` alone, that seed runs and its history is printed. Without a name all
//! scenarios run, one after the other. Exit codes: 0 nothing found, 1 something found, 2
//! wrong usage.

use std::process::ExitCode;
use std::time::Instant;

use crossdock_delivery::{Mutation as DeliveryMutation, Record};
use crossdock_host::Mutation as HostMutation;
use crossdock_scenarios::delivery;
use crossdock_scenarios::host_crash::{self, Shape, ensemble};
use crossdock_scenarios::seeds::{self, Report};
use crossdock_scenarios::store_crash::{self, Options, Outcome};
use crossdock_store::Mutation as StoreMutation;

const USAGE: &str = "\
crossdock-sim [--seeds N] [--seed S]
    all scenarios below, one after the other; with --seed alone: that seed of each
crossdock-sim store [--seeds N] [--seed S] [--mutation NAME]
    --seeds N        how many seeds (10000)
    --seed S         the first of them (0); alone: run this one and print its history
    --mutation NAME  build a fault in, one of those below
crossdock-sim host [--seeds N] [--seed S]
    the same for a whole host, with clients over NFS
crossdock-sim ensemble [--seeds N] [--seed S] [--mutation NAME]
    the same for gateways, managers and nodes over a network
crossdock-sim delivery [--seeds N] [--seed S] [--mutation NAME]
    streams of many rates over one disk
crossdock-sim races [--seeds N] [--seed S] [--mutation NAME]
    the same where all clients race for the same names
crossdock-sim luns [--seeds N] [--seed S] [--mutation NAME]
    the same where initiators share a LUN through several gateways
crossdock-sim replay FILE
    decisions of the delivery engine of a running gateway, from its admin port
    (GET /v1/delivery/decisions), are made again, and have to be the same
faults of the";

/// A fault that can be built in.
#[derive(Clone, Copy)]
enum Fault {
    Store(StoreMutation),
    Ensemble(HostMutation),
    Delivery(DeliveryMutation),
}

/// All of them, by name.
const FAULTS: [(&str, Fault); 38] = [
    (
        "reply-before-flush",
        Fault::Store(StoreMutation::ReplyBeforeFlush),
    ),
    ("no-flush", Fault::Store(StoreMutation::NoFlush)),
    (
        "no-checksum-check",
        Fault::Store(StoreMutation::NoChecksumCheck),
    ),
    (
        "index-ahead-of-journal",
        Fault::Store(StoreMutation::IndexAheadOfJournal),
    ),
    (
        "freed-run-reused-early",
        Fault::Store(StoreMutation::FreedRunReusedEarly),
    ),
    (
        "in-place-before-journal",
        Fault::Store(StoreMutation::InPlaceBeforeJournal),
    ),
    ("ignore-epoch", Fault::Ensemble(HostMutation::IgnoreEpoch)),
    ("skip-fence", Fault::Ensemble(HostMutation::SkipFence)),
    ("join-unequal", Fault::Ensemble(HostMutation::JoinUnequal)),
    (
        "reopen-uncommitted",
        Fault::Ensemble(HostMutation::ReopenUncommitted),
    ),
    (
        "mirror-nothing",
        Fault::Ensemble(HostMutation::MirrorNothing),
    ),
    (
        "reply-before-log",
        Fault::Ensemble(HostMutation::ReplyBeforeLog),
    ),
    (
        "forget-duplicates",
        Fault::Ensemble(HostMutation::ForgetDuplicates),
    ),
    (
        "lose-truncates",
        Fault::Ensemble(HostMutation::LoseTruncates),
    ),
    ("forget-doubt", Fault::Ensemble(HostMutation::ForgetDoubt)),
    (
        "reserve-at-once",
        Fault::Ensemble(HostMutation::ReserveAtOnce),
    ),
    ("compare-again", Fault::Ensemble(HostMutation::CompareAgain)),
    ("write-again", Fault::Ensemble(HostMutation::WriteAgain)),
    (
        "tell-no-numbers",
        Fault::Ensemble(HostMutation::TellNoNumbers),
    ),
    ("copy-for-gone", Fault::Ensemble(HostMutation::CopyForGone)),
    ("ignore-lease", Fault::Ensemble(HostMutation::IgnoreLease)),
    (
        "drop-before-equal",
        Fault::Ensemble(HostMutation::DropBeforeEqual),
    ),
    ("trust-tables", Fault::Ensemble(HostMutation::TrustTables)),
    ("cached-set", Fault::Ensemble(HostMutation::CachedSet)),
    ("grant-at-once", Fault::Ensemble(HostMutation::GrantAtOnce)),
    (
        "keep-restarted",
        Fault::Ensemble(HostMutation::KeepRestarted),
    ),
    (
        "recall-nothing",
        Fault::Ensemble(HostMutation::RecallNothing),
    ),
    (
        "lease-for-long",
        Fault::Ensemble(HostMutation::LeaseForLong),
    ),
    (
        "push-any-generation",
        Fault::Ensemble(HostMutation::PushAnyGeneration),
    ),
    (
        "prepare-unlogged",
        Fault::Ensemble(HostMutation::PrepareUnlogged),
    ),
    (
        "freeze-nothing",
        Fault::Ensemble(HostMutation::FreezeNothing),
    ),
    (
        "forget-decision",
        Fault::Ensemble(HostMutation::ForgetDecision),
    ),
    ("mint-nothing", Fault::Ensemble(HostMutation::MintNothing)),
    (
        "overrun-budget",
        Fault::Delivery(DeliveryMutation::OverrunBudget),
    ),
    ("keep-dead", Fault::Delivery(DeliveryMutation::KeepDead)),
    ("never-look", Fault::Delivery(DeliveryMutation::NeverLook)),
    (
        "newest-first",
        Fault::Delivery(DeliveryMutation::NewestFirst),
    ),
    (
        "request-twice",
        Fault::Delivery(DeliveryMutation::RequestTwice),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scenario {
    Store,
    /// The same, and parts of its data disk go.
    Closing,
    Host,
    Ensemble,
    Delivery,
    Races,
    Luns,
}

/// All of them, in the order in which they run without a name.
const SCENARIOS: [(&str, Scenario); 7] = [
    ("store", Scenario::Store),
    ("closing", Scenario::Closing),
    ("host", Scenario::Host),
    ("ensemble", Scenario::Ensemble),
    ("races", Scenario::Races),
    ("luns", Scenario::Luns),
    ("delivery", Scenario::Delivery),
];

#[derive(Default)]
struct Arguments {
    /// Or all.
    scenario: Option<Scenario>,
    seeds: Option<u64>,
    seed: Option<u64>,
    fault: Option<Fault>,
}

impl Arguments {
    const fn of_store(&self) -> Option<StoreMutation> {
        match self.fault {
            Some(Fault::Store(mutation)) => Some(mutation),
            _ => None,
        }
    }

    const fn of_ensemble(&self) -> Option<HostMutation> {
        match self.fault {
            Some(Fault::Ensemble(mutation)) => Some(mutation),
            _ => None,
        }
    }

    const fn of_delivery(&self) -> Option<DeliveryMutation> {
        match self.fault {
            Some(Fault::Delivery(mutation)) => Some(mutation),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [command, file] = &words[..]
        && command == "replay"
    {
        return replay(file);
    }
    let Some(arguments) = parse(&words) else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    let (first, count) = (arguments.seed.unwrap_or(0), arguments.seeds);
    match (arguments.scenario, count, arguments.seed) {
        (Some(scenario), None, Some(seed)) => show(seed, &run_one(scenario, &arguments, seed)),
        (Some(scenario), ..) => run_many(scenario, &arguments, first, count),
        (None, count, seed) => run_all(&arguments, first, count.or_else(|| seed.map(|_| 1))),
    }
}

/// Makes recorded decisions again.
fn replay(file: &str) -> ExitCode {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file} cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let records: Vec<Record> = match serde_json::from_slice(&text) {
        Ok(records) => records,
        Err(error) => {
            eprintln!(
                "{file} is not what GET /v1/delivery/decisions gives at an admin port: {error}"
            );
            return ExitCode::from(2);
        }
    };
    match crossdock_delivery::replay(&records) {
        Ok(count) => {
            println!("{count} decisions are the same");
            ExitCode::SUCCESS
        }
        Err(differs) => {
            eprintln!("{differs}");
            ExitCode::FAILURE
        }
    }
}

/// All scenarios, also when one has found something.
fn run_all(arguments: &Arguments, first: u64, count: Option<u64>) -> ExitCode {
    let mut exit = ExitCode::SUCCESS;
    for (_, scenario) in SCENARIOS {
        let ended = run_many(scenario, arguments, first, count);
        if ended != ExitCode::SUCCESS {
            exit = ended;
        }
    }
    exit
}

fn run_one(scenario: Scenario, arguments: &Arguments, seed: u64) -> Outcome {
    match scenario {
        Scenario::Store | Scenario::Closing => {
            let options = Options {
                mutation: arguments.of_store(),
                history: true,
                closes: scenario == Scenario::Closing,
            };
            store_crash::run(seed, options)
        }
        Scenario::Host => host_crash::run(seed, Shape::of_seed(seed), true),
        Scenario::Ensemble => {
            let shape = ensemble::Shape::of_seed(seed);
            ensemble::run(seed, shape, arguments.of_ensemble(), true)
        }
        Scenario::Delivery => delivery::run(seed, arguments.of_delivery(), true),
        Scenario::Races => {
            let shape = ensemble::Shape::of_races(seed);
            ensemble::run(seed, shape, arguments.of_ensemble(), true)
        }
        Scenario::Luns => {
            let shape = ensemble::Shape::of_luns(seed);
            ensemble::luns::run(seed, shape, arguments.of_ensemble(), true)
        }
    }
}

fn run_many(scenario: Scenario, arguments: &Arguments, first: u64, count: Option<u64>) -> ExitCode {
    let begun = Instant::now();
    let (name, report) = match scenario {
        Scenario::Store | Scenario::Closing => {
            let closes = scenario == Scenario::Closing;
            let options = Options {
                mutation: arguments.of_store(),
                history: false,
                closes,
            };
            let count = count.unwrap_or(10_000);
            let name = if closes { "closing" } else { "store" };
            (name, seeds::run_store(first, count, None, true, options))
        }
        Scenario::Host => ("host", seeds::run_hosts(first, count.unwrap_or(1000), None)),
        Scenario::Ensemble => {
            let count = count.unwrap_or(1000);
            (
                "ensemble",
                seeds::run_ensembles(first, count, None, arguments.of_ensemble()),
            )
        }
        Scenario::Delivery => {
            let count = count.unwrap_or(1000);
            (
                "delivery",
                seeds::run_deliveries(first, count, None, arguments.of_delivery()),
            )
        }
        Scenario::Races => {
            let count = count.unwrap_or(1000);
            let report = seeds::run_races(first, count, None, arguments.of_ensemble());
            ("races", report)
        }
        Scenario::Luns => {
            let count = count.unwrap_or(1000);
            let report = seeds::run_luns(first, count, None, arguments.of_ensemble());
            ("luns", report)
        }
    };
    sum_up(name, first, begun, report)
}

fn parse(words: &[String]) -> Option<Arguments> {
    let (scenario, mut rest) = match words.split_first() {
        Some((name, rest)) if !name.starts_with("--") => {
            let known = SCENARIOS.iter().find(|(known, _)| known == name)?;
            (Some(known.1), rest)
        }
        _ => (None, words),
    };
    let mut arguments = Arguments {
        scenario,
        ..Arguments::default()
    };
    while let [flag, value, others @ ..] = rest {
        match flag.as_str() {
            "--seeds" => arguments.seeds = Some(value.parse().ok()?),
            "--seed" => arguments.seed = Some(value.parse().ok()?),
            "--mutation" => arguments.fault = Some(fault(arguments.scenario?, value)?),
            _ => return None,
        }
        rest = others;
    }
    rest.is_empty().then_some(arguments)
}

/// The fault of that name, if it can be built into `scenario`.
fn fault(scenario: Scenario, name: &str) -> Option<Fault> {
    let (_, fault) = FAULTS.iter().find(|(known, _)| *known == name)?;
    let fits = match fault {
        Fault::Store(_) => matches!(scenario, Scenario::Store | Scenario::Closing),
        Fault::Ensemble(_) => {
            matches!(
                scenario,
                Scenario::Ensemble | Scenario::Races | Scenario::Luns
            )
        }
        Fault::Delivery(_) => scenario == Scenario::Delivery,
    };
    fits.then_some(*fault)
}

fn usage() -> String {
    let names = |is_one: fn(&Fault) -> bool| {
        let names = FAULTS.iter().filter(|(_, fault)| is_one(fault));
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let store = names(|fault| matches!(fault, Fault::Store(_)));
    let ensemble = names(|fault| matches!(fault, Fault::Ensemble(_)));
    let delivery = names(|fault| matches!(fault, Fault::Delivery(_)));
    format!(
        "{USAGE} store: {store}\nfaults of the ensemble: {ensemble}\n\
         faults of delivery: {delivery}"
    )
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
        "{name}: {} seeds from {first}, each twice, {} crashes, {} requests, \
         {:.1} simulated hours, {:.1} s",
        report.seeds,
        report.crashes,
        report.calls,
        report.simulated.as_secs_f64() / 3600.0,
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
