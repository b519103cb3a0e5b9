//! What routing costs a gateway on the client's host (Slice 5, Table 3): its CPU time
//! for each request of the create mix, split by where samples of its program counter
//! fall, as the paper did. What is routed by a processor counts all but what the system
//! and the program's own shell spend on moving bytes, which a row of its own has.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::field::{Field, Sample};
use super::{Figure, Keep};
use crate::bench::Options;
use crate::paths::Paths;
use crate::process::{Running, output};

/// Routed in a second by one processor, beside moving the bytes.
const GOAL_PER_SECOND: f64 = 150_000.0;
/// Requests of the paper's table: 6,250 packets a second are requests and replies.
const SLICE_REQUESTS: f64 = 3125.0;
/// Samples per second of CPU time: no divisor of anything that ticks.
const SAMPLES_PER_SECOND: &str = "1999";

/// The parts of the paper's table, with its percent of a 500 MHz processor.
const PARTS: [(Part, &str, f64); 4] = [
    (Part::Receive, "router-receive", 0.7),
    (Part::Decode, "router-decode", 4.1),
    (Part::Rewrite, "router-rewrite", 0.5),
    (Part::SoftState, "router-soft-state", 0.8),
];

/// What a sample was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The kernel, and what talks to it: bytes come and go. The first of all parts.
    Receive,
    /// Records and calls are read, handles checked.
    Decode,
    /// Messages to sites and nodes, and replies, are written.
    Rewrite,
    /// Who is asked, and what is known of it; memory.
    SoftState,
}

pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let seconds = if options.full { 30 } else { 8 };
    let words = "--nodes 3 --managers 1 --gateways 1 --clients 1 --replicas 1";
    let field = Field::raise(paths, options, words)?;
    // What is first is done: connections, the root's attributes.
    field.load(
        1,
        "warm",
        "--work names --clients 16 --seconds 1 --count 1000000",
    )?;
    let gateway = "client-0";
    let profile = paths.test_data().join("bench-ensemble/router.perf");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", SAMPLES_PER_SECOND]);
    perf.arg("-p").arg(field.cluster.pid(gateway)?.to_string());
    perf.arg("-o").arg(&profile);
    let mut perf = Running::start(perf)?;
    let before = field.cpu_seconds(gateway)?;
    let words = format!("--work names --clients 16 --count 1000000 --seconds {seconds}");
    let samples = field.load(1, "routed", &words)?;
    let spent = field.cpu_seconds(gateway)? - before;
    // SIGTERM has it write what it has.
    perf.terminate(Duration::from_secs(20))?;
    let operations = Sample::sum(&samples, |one| one.operations);
    let us = spent * 1e6 / operations;
    let shares = shares(&said(&profile)?)?;
    keep(rows(us, shares));
    Ok(())
}

fn said(profile: &std::path::Path) -> Result<String> {
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--no-children", "-F", "overhead,sym"]);
    report.args(["-t", ";", "-i"]).arg(profile);
    output(&mut report)
}

/// The share of each part, of what perf says: `12.34%;[.] name`.
fn shares(said: &str) -> Result<[f64; 4]> {
    let mut shares = [0.0; 4];
    for line in said.lines() {
        let Some((percent, symbol)) = line.split_once(';') else {
            continue;
        };
        let Ok(percent) = percent.trim().trim_end_matches('%').parse::<f64>() else {
            continue;
        };
        let part = part(symbol.trim());
        let place = PARTS.iter().position(|(known, ..)| *known == part);
        shares[place.context("no such part")?] += percent / 100.0;
    }
    let sum: f64 = shares.iter().sum();
    ensure!((0.9..1.1).contains(&sum), "perf accounts for {sum} of all");
    Ok(shares)
}

fn part(symbol: &str) -> Part {
    let has = |words: &[&str]| words.iter().any(|word| symbol.contains(word));
    let shell = [
        "crossdock_net::",
        "crossdock_ring::",
        "io_uring",
        "syscall",
        "vdso",
    ];
    if symbol.starts_with("[k]") || has(&shell) {
        Part::Receive
    } else if has(&["ncode", "crossdock_link::", "RecordWriter", "Payload"]) && !has(&["decode"]) {
        Part::Rewrite
    } else if has(&[
        "decode",
        "Decoder",
        "crossdock_rpc::",
        "crossdock_xdr::",
        "blake3",
    ]) {
        Part::Decode
    } else {
        Part::SoftState
    }
}

fn rows(us: f64, shares: [f64; 4]) -> Vec<serde_json::Value> {
    let variant = "a gateway on the client's host: create mix, 16 processes";
    let routing: f64 = shares[1..].iter().sum();
    let all = [
        ("router", us * routing, Some(1.0)),
        ("router-whole", us, None),
    ];
    let all = all.map(|(row, us, goal)| {
        Figure {
            row,
            variant: variant.to_owned(),
            place: None,
            unit: "op/s a core",
            ours: &[1e6 / us],
            peer: ("what is wanted", &[GOAL_PER_SECOND]),
            is_less_better: false,
            goal,
        }
        .json()
    });
    let parts = PARTS.iter().zip(shares).map(|((_, row, percent), share)| {
        Figure {
            row,
            variant: variant.to_owned(),
            place: None,
            unit: "CPU µs/op",
            ours: &[us * share],
            peer: (
                "Slice's µproxy at 500 MHz",
                &[percent / 100.0 / SLICE_REQUESTS * 1e6],
            ),
            is_less_better: true,
            goal: None,
        }
        .json()
    });
    all.into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what perf says is counted, each sample to one part.
    #[test]
    fn samples_are_counted_by_part() {
        let said = "# a head\n    40.00%;[k] tcp_sendmsg\n\
                    30.00%;[.] crossdock_nfs3::call::Call::decode\n\
                    20.00%;[.] <X as crossdock_xdr::Encode>::encode\n\
                    10.00%;[.] crossdock_router::machine::Router::handle\n";
        assert_eq!(shares(said).expect("shares"), [0.4, 0.3, 0.2, 0.1]);
        assert!(shares("no percents").is_err());
    }
}
