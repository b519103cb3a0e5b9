//! Downloads by threads from depots behind links: one depot in a LAN (paper, test 1, figures 5
//! and 7), and four fragments with four copies each at depots of few connections (test 3,
//! figures 9 and 10).

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Field, content};
use crate::bench::figures::{Comparison, Spread};
use crate::bench::{Keep, rig_name};
use crate::rig::Life;
use crate::rig::wan::{Links, Wan};

/// The paper's LAN.
const LAN_MBIT: u32 = 100;
const LAN_BYTES: usize = 32 << 20;
const LAN_THREADS: [usize; 5] = [1, 4, 8, 12, 16];
/// Of the link, with the best number of threads.
const LAN_GOAL: f64 = 0.9;

const FRAGMENTS: usize = 4;
const COPIES: usize = 4;
const FRAGMENT_BYTES: usize = 4 << 20;
/// Of the depots, in connections: the paper's had as many threads.
const SERVED: &str = "10";
const SERVED_ALL: usize = 10 * COPIES;
const DEPOTS: [u32; COPIES] = [100; COPIES];
/// Of a connection, in Mbit/s.
const FLOW_MBIT: u32 = 4;
const THREADS: [usize; 5] = [8, 16, 24, 32, 40];
/// From so many threads on the paper's tool gained nothing, as it took the depot with the best
/// forecast whether that had threads left or not.
const PAPER_THREADS: usize = 24;
/// What connections make together is expected of them, but for a start and an end.
const FLOWS_GOAL: f64 = 0.8;
/// Half of what more connections than the paper's last gain could carry.
const GAIN_GOAL: f64 = 1.33;

const BYTES_PER_MBIT: f64 = 1e6 / 8.0;

/// One depot behind a link of 100 Mbit/s, with more and more threads.
pub(super) fn one(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let folder = field.folder("lan")?;
    let links = Links::new(&[LAN_MBIT], 10 * LAN_MBIT);
    let wan = Wan::up(field.paths, &rig_name(), &folder, links, Life::OfXtask)?;
    let film = content(LAN_BYTES);
    fs::write(wan.local("film"), &film)?;
    let depots = wan.depots_words(1);
    wan.timed(&[
        "upload",
        "film",
        "--depot",
        &depots,
        "--duration",
        "1h",
        "--json",
    ])?;
    let link = f64::from(LAN_MBIT) * BYTES_PER_MBIT / 1e6;
    let mut best: Option<Vec<f64>> = None;
    for threads in LAN_THREADS {
        let rates = rates(field, &wan, threads, &film)?;
        keep(vec![
            Comparison {
                row: "lan",
                variant: format!("{threads} threads"),
                place: Some(("1 depot".to_owned(), threads)),
                unit: "MB/s",
                ours: &rates,
                peer: ("the link", &[link]),
                is_less_better: false,
                goal: None,
            }
            .json(),
        ]);
        let median = |rates: &[f64]| Spread::of(rates.iter().copied()).median;
        if best.as_ref().is_none_or(|it| median(it) < median(&rates)) {
            best = Some(rates);
        }
    }
    let best = best.context("no number of threads")?;
    keep(vec![
        Comparison {
            row: "lan-best",
            variant: format!(
                "32 MiB from one depot, link of {LAN_MBIT} Mbit/s, best number of threads"
            ),
            place: None,
            unit: "MB/s",
            ours: &best,
            peer: ("the link", &[link]),
            is_less_better: false,
            goal: Some(LAN_GOAL),
        }
        .json(),
    ]);
    Ok(())
}

/// Four fragments, each at all of four depots, which serve ten connections each.
pub(super) fn fragments(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let folder = field.folder("fragments")?;
    let links = Links {
        flow_mbit: Some(FLOW_MBIT),
        words: &["--ibp-connections", SERVED],
        ..Links::new(&DEPOTS, 400)
    };
    let wan = Wan::up(field.paths, &rig_name(), &folder, links, Life::OfXtask)?;
    let film = content(FRAGMENTS * FRAGMENT_BYTES);
    fs::write(wan.local("film"), &film)?;
    let (depots, copies) = (wan.depots_words(COPIES), COPIES.to_string());
    wan.timed(&[
        "upload",
        "film",
        "--copies",
        &copies,
        "--block-size",
        "4M",
        "--depot",
        &depots,
        "--direct",
        "--duration",
        "1h",
        "--json",
        "--timeout",
        "60s",
    ])?;
    let mut of_paper: Option<Vec<f64>> = None;
    for threads in THREADS {
        let rates = rates(field, &wan, threads, &film)?;
        let flows = threads.min(SERVED_ALL) as f64;
        let flows = flows * f64::from(FLOW_MBIT) * BYTES_PER_MBIT / 1e6;
        let compare = |peer: (&str, &[f64]), goal| {
            Comparison {
                row: "fragments",
                variant: format!("{threads} threads"),
                place: Some(("4 fragments, 4 copies".to_owned(), threads)),
                unit: "MB/s",
                ours: &rates,
                peer,
                is_less_better: false,
                goal: Some(goal),
            }
            .json()
        };
        let mut rows = vec![compare(
            ("what so many connections carry", &[flows]),
            FLOWS_GOAL,
        )];
        if let Some(of_paper) = of_paper.as_ref().filter(|_| threads == SERVED_ALL) {
            rows.push(compare(
                ("24 threads (the paper's last gain)", of_paper),
                GAIN_GOAL,
            ));
        }
        keep(rows);
        if threads == PAPER_THREADS {
            of_paper = Some(rates);
        }
    }
    Ok(())
}

/// Of downloads with so many threads, in MB/s.
fn rates(field: &Field<'_>, wan: &Wan, threads: usize, film: &[u8]) -> Result<Vec<f64>> {
    let threads = threads.to_string();
    let words = [
        "download",
        "film.xnd",
        "-o",
        "out",
        "--force",
        "--threads",
        &threads,
        "--connections",
        &threads,
        "--forecasts",
        "off",
        "--json",
    ];
    let mut rates = Vec::new();
    for _ in 0..field.rounds() {
        let taken = wan.timed(&words)?;
        ensure!(fs::read(wan.local("out"))? == film, "other bytes");
        rates.push(film.len() as f64 / 1e6 / taken.as_secs_f64());
    }
    Ok(rates)
}
