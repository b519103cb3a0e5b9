//! How many streams reach their rates on the slow disk.

use anyhow::{Context, Result};
use serde_json::Value;

use super::field::{Field, Who};
use super::streams::{
    Beside, ENOUGH, FAST, FAST_RATE, Group, MEMORY, SLOW, SLOW_RATE, Seen, Times, of_group,
    prepare, run,
};
use crate::bench::Keep;
use crate::bench::figures::Comparison;
use crate::rig::nginx::Variant;

/// What one server does.
struct Reached {
    who: Who,
    /// Streams of which so many had their rates, until at one step they had not.
    most: f64,
    is_at_end: bool,
}

/// How many streams, in the same shares, reach their rates in 256 MB; each server takes
/// every step until neither can any more.
pub(super) fn capacity(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let times = Times::steady(field.full);
    // In hundredths of 300 streams.
    let steps: &[usize] = match field.full {
        true => &[100, 120, 130, 140, 150, 160, 170, 180],
        false => &[85, 100, 115, 130, 145, 160, 175],
    };
    let mut all = [Who::Ours, Who::Nginx(Variant::Direct)].map(|who| Reached {
        who,
        most: 0.0,
        is_at_end: false,
    });
    for &percent in steps {
        let (fast, slow) = (FAST * percent / 100, SLOW * percent / 100);
        let mut rates = Vec::new();
        for one in &mut all {
            let groups = [Group::fast(fast), Group::slow(slow)];
            let seen = run(field, one.who, MEMORY, &groups, times)?;
            let reached = |class| of_group(&seen.figures, class, "before", "reached");
            let reached = reached(0)?.min(reached(1)?);
            eprintln!(
                "  {}: {fast} + {slow} streams: {:.0} % reach their rates",
                field.name_of(one.who),
                100.0 * reached
            );
            one.is_at_end |= reached < ENOUGH || seen.was_killed;
            if !one.is_at_end {
                one.most = (fast + slow) as f64;
            }
            rates.push((one.who, percents(&seen)?));
        }
        keep(rates_of(field, fast + slow, &rates)?);
        if all.iter().all(|one| one.is_at_end) {
            break;
        }
    }
    let beside = Beside {
        row: "capacity",
        variant: "3 of 5 at 1 Mb/s, the others at 200 kb/s, in 256 MB".to_owned(),
        unit: "streams, of which 95 % reach 95 %",
        is_less_better: false,
        goal: Some(1.15),
    };
    let all = all.map(|one| (one.who, vec![one.most]));
    keep(beside.rows(field, &all, |&most| Ok(most))?);
    Ok(())
}

/// What streams of either class have of their rates, in percent.
fn percents(seen: &Seen) -> Result<[f64; 2]> {
    let percent = |class, rate: f64| {
        let mean = of_group(&seen.figures, class, "before", "mean")?;
        Ok::<_, anyhow::Error>(100.0 * mean / rate)
    };
    Ok([percent(0, FAST_RATE)?, percent(1, SLOW_RATE)?])
}

/// The points of a picture at one number of streams.
fn rates_of(field: &Field<'_>, streams: usize, all: &[(Who, [f64; 2])]) -> Result<Vec<Value>> {
    let [(_, ours), (who, theirs)] = all else {
        return Ok(Vec::new());
    };
    let name = field.name_of(*who);
    let series = ["1 Mb/s", "200 kb/s"].into_iter().enumerate();
    let rows = series.map(|(class, series)| {
        let comparison = Comparison {
            row: "capacity-rate",
            variant: format!("streams at {series} of {streams}, in 256 MB"),
            place: Some((series.to_owned(), streams)),
            unit: "% of their rate, mean",
            ours: ours.get(class..=class).context("no class")?,
            peer: (&name, theirs.get(class..=class).context("no class")?),
            is_less_better: false,
            goal: None,
        };
        Ok(comparison.json())
    });
    rows.collect()
}
