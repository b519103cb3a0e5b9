//! `bench ensemble`: many hosts on this machine (the cluster rig), beside the limits of
//! their links, beside what Slice 5 reports, and beside nfs-ganesha.
//!
//! Every client has a gateway on its own host, as the paper's client-based proxy, so
//! that what limits is what a row says: the links of nodes, or the CPU time of managers.

mod affinity;
mod bulk;
mod field;
mod mix;
mod names;
mod router;
mod takeover;

use anyhow::Result;

use super::figures::Comparison as Figure;
use super::{Keep, Options, keep, parse};
use crate::paths::Paths;

/// The rows that can be asked for.
pub(super) const ROWS: [&str; 9] = [
    "bulk",
    "bulk-mirrored",
    "create-mix",
    "scaling",
    "affinity",
    "untar",
    "router",
    "mix",
    "take-over",
];

/// Measures, and prints the results of each row as one line; what people want to see
/// goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &ROWS)?;
    let is_wanted = |row: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == row);
    let mut all_measured = true;
    for row in ROWS.into_iter().filter(|row| is_wanted(row)) {
        let measured = match row {
            "bulk" => bulk::measure(paths, &options, 1, &keep),
            "bulk-mirrored" => bulk::measure(paths, &options, 2, &keep),
            "create-mix" => names::create_mix(paths, &options, &keep),
            "scaling" => affinity::scaling(paths, &options, &keep),
            "affinity" => affinity::sweep(paths, &options, &keep),
            "untar" => names::untar(paths, &options, &keep),
            "router" => router::measure(paths, &options, &keep),
            "take-over" => takeover::measure(paths, &options, &keep),
            _ => mix::measure(paths, &options, &keep),
        };
        if let Err(error) = measured {
            eprintln!("{row}: FAILED: {error:#}");
            all_measured = false;
        }
    }
    Ok(all_measured)
}

/// `1 node`, `2 nodes`.
fn several(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Rounds of each figure.
const fn rounds(options: &Options) -> usize {
    if options.full { 5 } else { 1 }
}
