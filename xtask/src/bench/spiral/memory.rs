//! Files that are read again and again, and that the gateway could keep: by the choice of the
//! gateway itself, with nodes told to send them all the same, and with third-party transfer
//! switched off.

use anyhow::Result;

use super::field::{Cost, Door, Field, Shape, Way};
use crate::bench::figures::Comparison;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

const NODES: u8 = 3;
/// Files of each size, in bytes: less than a gateway keeps in all.
const FILES: usize = 16;
const SIZES: [usize; 2] = [256 << 10, 4 << 20];
const CONNECTIONS: usize = 8;
/// What the gateway's own choice may lose.
const GOAL: f64 = 0.97;
const OFF: &str = "a gateway without --spiral-device";

/// Rates and costs of the three. The rule comes first: what a gateway keeps already it gives
/// out, whatever a rule says.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    for (row, is_forced) in [("memory-forced", true), ("memory", false)] {
        let field = Field::bare(paths, options, Shape::of(NODES))?;
        field.make(&SIZES.map(class))?;
        if is_forced {
            field.inject_from("4K")?;
        }
        for size in SIZES {
            // They get hot.
            alternate(&field, options, size)?;
            let (ours, off) = alternate(&field, options, size)?;
            let goal = (!is_forced).then_some(GOAL);
            keep(rows(row, size, goal, &ours, &off));
        }
    }
    Ok(())
}

fn class(size: usize) -> String {
    format!("prefix=m{size}-,count={FILES},size={size}")
}

/// The first gateway and the second in turn, a few times.
fn alternate(field: &Field<'_>, options: &Options, size: usize) -> Result<(Vec<Cost>, Vec<Cost>)> {
    let (rounds, seconds) = if options.full { (7, 3.0) } else { (3, 0.7) };
    let words = format!(
        "http requests --class {} --connections {CONNECTIONS} --seconds {seconds}",
        class(size)
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(field.cost_of(Door::Http, Way::Inject, &words)?);
        theirs.push(field.cost_of(Door::Http, Way::Relay, &words)?);
    }
    Ok((ours, theirs))
}

fn rows(
    row: &str,
    size: usize,
    goal: Option<f64>,
    ours: &[Cost],
    off: &[Cost],
) -> Vec<serde_json::Value> {
    let figure = |row: &str, unit, goal, of: fn(&Cost) -> f64| {
        let [ours, off] = [ours, off].map(|it| it.iter().map(of).collect::<Vec<f64>>());
        Comparison {
            row,
            variant: format!(
                "{FILES} files of {} KiB over and over, {CONNECTIONS} connections",
                size >> 10
            ),
            place: None,
            unit,
            ours: &ours,
            peer: (OFF, &off),
            is_less_better: unit != "MB/s",
            goal,
        }
        .json()
    };
    vec![
        figure(row, "MB/s", goal, |cost| cost.rate),
        figure(&format!("{row}-cpu"), "CPU s/GB", None, |cost| cost.gateway),
        figure(&format!("{row}-link"), "bytes/byte", None, |cost| cost.link),
    ]
}
