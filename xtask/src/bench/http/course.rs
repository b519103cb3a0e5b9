//! How rates went in the seconds of a run: what a picture shows and a number does not.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::field::Who;
use super::streams::Seen;

/// Bytes that all streams of a group read in each second of a run.
pub(super) fn per_second(seen: &Seen, group: usize) -> Result<&[Value]> {
    let per_second = seen.figures["groups"][group]["per_second"].as_array();
    Ok(per_second.context("no rates")?)
}

/// Gives a row the line of one group: what each of its streams had in the seconds between
/// these two, in kb/s, ours and of the first peer; of several rounds the median.
pub(super) fn add(
    row: &mut Value,
    series: &str,
    all: &[(Who, Vec<Seen>)],
    group: usize,
    (from, to): (f64, f64),
) -> Result<()> {
    let [(_, ours), (_, theirs), ..] = all else {
        return Ok(());
    };
    let mut points = Vec::new();
    let mut second = from.ceil();
    while second + 1.0 <= to {
        let of = |seen: &[Seen]| median(seen, group, second);
        points.push(json!([second - from.ceil(), of(ours)?, of(theirs)?]));
        second += 1.0;
    }
    row["series"] = json!(series);
    row["points"] = json!(points);
    Ok(())
}

fn median(all: &[Seen], group: usize, second: f64) -> Result<f64> {
    let mut rates = Vec::new();
    for seen in all {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some seconds"
        )]
        let bytes = per_second(seen, group)?.get(second as usize);
        let count = seen.figures["groups"][group]["count"].as_f64();
        let count = count.context("no count")?.max(1.0);
        // Nobody reads behind the last that did.
        let bytes = bytes.and_then(Value::as_f64).unwrap_or(0.0);
        rates.push(8e-3 * bytes / count);
    }
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().context("no runs")
}
