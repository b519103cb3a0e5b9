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
use serde_json::{Value, json};

use super::figures::Spread;
use super::{Options, parse};
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

/// Hands results to who keeps them.
fn keep(rows: Vec<Value>) {
    for row in &rows {
        let number = |value: &Value| value.as_f64().map_or(f64::NAN, |it| it);
        eprintln!(
            "{:<24} {:>12.2} {:<14} {:>12.2} {:<44} ratio {:.2}  {}",
            row["row"].as_str().unwrap_or("?"),
            number(&row["ours"]["median"]),
            row["unit"].as_str().unwrap_or("?"),
            number(&row["peer"]["median"]),
            row["peer"]["name"].as_str().unwrap_or("?"),
            number(&row["ratio"]),
            row["variant"].as_str().unwrap_or("?"),
        );
    }
    println!("{}", Value::Array(rows));
}

/// Where results go when they are there.
type Keep<'run> = &'run dyn Fn(Vec<Value>);

/// One figure beside what it is compared with.
struct Figure<'text> {
    row: &'text str,
    variant: String,
    /// Which line of a picture it belongs to, and where.
    place: Option<(String, usize)>,
    unit: &'text str,
    ours: &'text [f64],
    peer: (&'text str, &'text [f64]),
    /// Costs and times; otherwise more is better.
    is_less_better: bool,
    goal: Option<f64>,
}

impl Figure<'_> {
    fn json(&self) -> Value {
        let ours = Spread::of(self.ours.iter().copied());
        let theirs = Spread::of(self.peer.1.iter().copied());
        let ratio = match self.is_less_better {
            true => theirs.median / ours.median,
            false => ours.median / theirs.median,
        };
        let mut peer = theirs.json();
        peer["name"] = json!(self.peer.0);
        let place = self.place.as_ref();
        json!({
            "row": self.row,
            "variant": self.variant,
            "series": place.map(|(series, _)| series),
            "x": place.map(|(_, x)| x),
            "unit": self.unit,
            "ours": ours.json(),
            "peer": peer,
            "ratio": ratio.is_finite().then_some(ratio),
            "goal": self.goal,
            "met": self.goal.map(|goal| ratio >= goal),
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in a ratio more is better, of rates and of costs.
    #[test]
    fn in_a_ratio_more_is_better() {
        let figure = |is_less_better| {
            let figure = Figure {
                row: "x",
                variant: String::new(),
                place: Some(("line".to_owned(), 4)),
                unit: "y",
                ours: &[2.0],
                peer: ("peer", &[4.0]),
                is_less_better,
                goal: Some(1.0),
            };
            figure.json()
        };
        assert_eq!(figure(true)["ratio"], 2.0);
        assert_eq!(figure(true)["met"], true);
        assert_eq!(figure(false)["ratio"], 0.5);
        assert_eq!(figure(false)["met"], false);
        assert_eq!(figure(false)["peer"]["name"], "peer");
        assert_eq!(figure(false)["x"], 4);
    }
}
