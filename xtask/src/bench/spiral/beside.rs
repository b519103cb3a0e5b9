//! How long small requests take beside large files (SPIRAL 3.1.4): one client reads large
//! files at a steady rate, another one small files at five rates, and attributes. All links
//! but the clients' are slow, as in the paper.

use anyhow::{Context, Result};
use serde_json::Value;

use super::RELAY;
use super::field::{Door, Field, Shape, Way};
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

const NODES: u8 = 3;
const LINK_MBIT: u32 = 200;
/// Of the large files, all together: 60 % of a link, as in the paper.
const BULK_BYTES_PER_SECOND: f64 = 15e6;
/// The paper's files.
const SMALL_FILES: usize = 250;
const SMALL_BYTES: usize = 64 << 10;
/// Requests for them in a second: with the highest rate a relay's link is full.
const RATES: [u32; 5] = [20, 40, 80, 120, 160];
/// GETATTRs in a second.
const GETATTRS: u32 = 100;
/// Until small requests begin.
const BEGIN: f64 = 0.5;
/// What has a small request take 2.5 times as long with a relay (the paper, its lowest rate).
const GOAL_RELAY: f64 = 2.5;
/// And what "unchanged" is.
const GOAL_ALONE: f64 = 0.9;
const ALONE: &str = "the same without large files";

/// What one run gave.
struct Sample {
    small_p50: f64,
    small_p99: f64,
    getattr_p50: f64,
    getattr_p99: f64,
    /// Of the large files, in MB per second.
    bulk: f64,
    /// Of blocks that nodes read, in memory.
    hits: f64,
}

/// One of its figures.
type Figure = fn(&Sample) -> f64;

/// Latencies at all rates.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let shape = Shape {
        clients: 2,
        link_mbit: Some(LINK_MBIT),
        ..Shape::of(NODES)
    };
    let field = Field::raise(paths, options, shape)?;
    field.make(&[class()])?;
    for rate in RATES {
        let mut samples = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..if options.full { 5 } else { 3 } {
            let ways = [
                (Way::Inject, true),
                (Way::Relay, true),
                (Way::Inject, false),
            ];
            for ((way, has_bulk), samples) in ways.into_iter().zip(&mut samples) {
                samples.push(once(&field, options, way, rate, has_bulk)?);
            }
        }
        keep(rows(rate, &samples));
    }
    Ok(())
}

fn class() -> String {
    format!("prefix=s,count={SMALL_FILES},size={SMALL_BYTES}")
}

fn once(
    field: &Field<'_>,
    options: &Options,
    way: Way,
    rate: u32,
    has_bulk: bool,
) -> Result<Sample> {
    let seconds = if options.full { 10.0 } else { 3.0 };
    let (http, nfs) = (
        field.address(Door::Http, way)?,
        field.address(Door::Nfs, way)?,
    );
    let before = blocks(field)?;
    let words = Door::Http.paced(Some(BULK_BYTES_PER_SECOND), BEGIN, BEGIN + seconds);
    let bulk = match has_bulk {
        true => Some(field.start_load(0, &format!("{words} --server {http}"))?),
        false => None,
    };
    let small = field.start_load(
        1,
        &format!(
            "http requests --class {} --connections 32 --rate {rate} --seconds {} --server {http}",
            class(),
            BEGIN + seconds
        ),
    )?;
    let getattrs = field.load(
        1,
        &format!(
            "run --work getattr --again --keep --name read --count 100000000 --pace {GETATTRS} --outstanding 32 --seconds {} --server {nfs}",
            BEGIN + seconds
        ),
    )?;
    let small = small.figures()?;
    let bulk = bulk.map(|bulk| bulk.figures()).transpose()?;
    let after = blocks(field)?;
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    Ok(Sample {
        small_p50: number(&small, "p50_us")?,
        small_p99: number(&small, "p99_us")?,
        getattr_p50: number(&getattrs, "p50_us")?,
        getattr_p99: number(&getattrs, "p99_us")?,
        bulk: match bulk {
            Some(bulk) => number(&bulk, "bytes")? / number(&bulk, "seconds")? / 1e6,
            None => 0.0,
        },
        hits: hits / (hits + misses).max(1.0),
    })
}

/// Blocks that nodes found in memory, and that they read.
fn blocks(field: &Field<'_>) -> Result<(f64, f64)> {
    let metric = |name| field.nodes_metric(name).context("metrics of nodes");
    Ok((
        metric("crossdock_cache_hit_blocks_total")?,
        metric("crossdock_cache_miss_blocks_total")?,
    ))
}

fn rows(rate: u32, [ours, relayed, alone]: &[Vec<Sample>; 3]) -> Vec<Value> {
    let lowest = rate == RATES[0];
    let figure = |row: &str,
                  unit,
                  (peer, theirs): (&str, &[Sample]),
                  goal,
                  of: fn(&Sample) -> f64| {
        let values = |samples: &[Sample]| samples.iter().map(of).collect::<Vec<f64>>();
        Comparison {
            row: &format!("beside-{row}"),
            variant: format!(
                "{rate} files of 64 KiB and {GETATTRS} GETATTRs a second beside 15 MB/s of large files, links of {LINK_MBIT} Mbit/s"
            ),
            place: Some((row.to_owned(), rate as usize)),
            unit,
            ours: &values(ours),
            peer: (peer, &values(theirs)),
            is_less_better: unit == "µs",
            goal,
        }
        .json()
    };
    let latencies: [(&str, Figure); 4] = [
        ("small-p50", |one| one.small_p50),
        ("small-p99", |one| one.small_p99),
        ("getattr-p50", |one| one.getattr_p50),
        ("getattr-p99", |one| one.getattr_p99),
    ];
    let mut rows = Vec::new();
    for (row, of) in latencies {
        let is_median = row.ends_with("p50");
        let goal = (is_median && lowest).then_some(GOAL_RELAY);
        rows.push(figure(row, "µs", (RELAY, relayed), goal, of));
        let goal = is_median.then_some(GOAL_ALONE);
        rows.push(figure(row, "µs", (ALONE, alone), goal, of));
    }
    rows.push(figure("bulk", "MB/s", (RELAY, relayed), None, |one| {
        one.bulk
    }));
    rows.push(figure(
        "hits",
        "of nodes' blocks",
        (RELAY, relayed),
        None,
        |one| one.hits,
    ));
    rows
}
