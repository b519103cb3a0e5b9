//! `bench spiral`: an ensemble whose nodes send long replies themselves, beside the same
//! through a gateway that relays them. Both gateways belong to one ensemble, on hosts of
//! their own (`rig spiral`); a client reads from one and the other in turn.

mod beside;
mod cost;
mod field;
mod generic;
mod left;
mod links;
mod memory;
mod mix;
mod unused;

use anyhow::Result;

use super::{Keep, Options, keep, parse};
use crate::paths::Paths;

/// The rows that can be asked for.
pub(super) const ROWS: [&str; 11] = [
    "cpu-http", "cpu-nfs", "cpu-udp", "cpu-loss", "unused", "left", "links", "beside", "webbench",
    "memory", "generic",
];

/// What rows are compared with.
const RELAY: &str = "the same through a gateway that relays";

/// Measures, and prints the results of each row as one line; what people want to see
/// goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &ROWS)?;
    let is_wanted = |row: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == row);
    let mut all_measured = true;
    for row in ROWS.into_iter().filter(|row| is_wanted(row)) {
        if let Err(error) = measure(row, paths, &options, &keep) {
            eprintln!("{row}: FAILED: {error:#}");
            all_measured = false;
        }
    }
    Ok(all_measured)
}

fn measure(row: &str, paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    match row {
        "cpu-http" => cost::http(paths, options, keep),
        "cpu-nfs" => cost::nfs(paths, options, keep),
        "cpu-udp" => cost::udp(paths, options, keep),
        "cpu-loss" => cost::with_losses(paths, options, keep),
        "unused" => unused::measure(paths, options, keep),
        "left" => left::measure(paths, options, keep),
        "links" => links::measure(paths, options, keep),
        "beside" => beside::measure(paths, options, keep),
        "memory" => memory::measure(paths, options, keep),
        "webbench" => mix::measure(paths, options, keep),
        _ => generic::measure(paths, options, keep),
    }
}

/// The end of "1 node".
const fn plural(count: u8) -> &'static str {
    if count == 1 { "" } else { "s" }
}
