//! WebBench's mix of sizes (SPIRAL 3.3): fits and does not fit in memory, with HTTP/1.0 and
//! with half of the requests HTTP/1.1, with and without films.

use anyhow::Result;
use serde_json::Value;

use super::RELAY;
use super::field::{Door, Field, Shape, Way};
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::bench::webbench::{self, Mix};
use crate::bench::{Keep, Options};
use crate::paths::Paths;

const NODES: u8 = 5;
/// Files of each size but films: 13 MB in all.
const FILES: usize = 20;
/// Read caches of each node, with what is said of them.
const CACHES: [(&str, &str); 2] = [(FITS, "all in memory"), ("2M", "not all in memory")];
const FITS: &str = "64M";
/// Links but those of clients: as they are, and slow, as all were in the paper.
const LINKS_MBIT: [Option<u32>; 2] = [None, Some(200)];
/// The paper's clients: three with 15 threads each.
const CONNECTIONS: usize = 45;

/// What one run gave.
struct Sample {
    requests: f64,
    /// Bytes that the gateway fetched for each that the clients got.
    fetched: f64,
}

/// All combinations, injected and relayed.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    for link_mbit in LINKS_MBIT {
        for (cache, fits) in CACHES {
            let shape = Shape {
                cache,
                link_mbit,
                ..Shape::of(NODES)
            };
            let field = Field::bare(paths, options, shape)?;
            field.make(&webbench::classes(Mix::Films, FILES))?;
            let links =
                link_mbit.map_or_else(String::new, |mbit| format!(", links of {mbit} Mbit/s"));
            mixes(&field, options, &format!("{fits}{links}"), keep)?;
        }
    }
    Ok(())
}

/// Both versions of HTTP, with and without films.
fn mixes(field: &Field<'_>, options: &Options, place: &str, keep: Keep<'_>) -> Result<()> {
    for (flags, versions) in [
        ("--old", "HTTP/1.0"),
        ("--mixed", "half of it HTTP/1.1, 1 to 10 requests pipelined"),
    ] {
        for (mix, films) in [(Mix::Small, ""), (Mix::Films, ", films of 32 MiB")] {
            let words = words(options, mix, flags);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..if options.full { 5 } else { 2 } {
                ours.push(once(field, Way::Inject, &words)?);
                theirs.push(once(field, Way::Relay, &words)?);
            }
            let variant = format!("WebBench's sizes{films}, {versions}, {place}");
            let goal = goal(mix, place.starts_with(CACHES[0].1), flags);
            keep(rows(&variant, goal, &ours, &theirs));
        }
    }
    Ok(())
}

/// What the paper gained in requests: 60 % where films do not fit, 15 % where they do (its
/// table 4). Where it gained nothing there is no goal.
fn goal(mix: Mix, fits: bool, flags: &str) -> Option<f64> {
    match (mix, fits, flags) {
        (Mix::Films, false, "--mixed") => Some(1.6),
        (Mix::Films, true, "--mixed") => Some(1.15),
        _ => None,
    }
}

fn words(options: &Options, mix: Mix, flags: &str) -> String {
    let seconds = if options.full { 20.0 } else { 2.0 };
    let mut words =
        format!("http requests {flags} --connections {CONNECTIONS} --seconds {seconds}");
    for class in webbench::classes(mix, FILES) {
        words += " --class ";
        words += &class;
    }
    words
}

#[expect(clippy::cast_precision_loss, reason = "some bytes")]
fn once(field: &Field<'_>, way: Way, words: &str) -> Result<Sample> {
    let before = field.fetched(way)?;
    let address = field.address(Door::Http, way)?;
    let figures = field.load(0, &format!("{words} --server {address}"))?;
    let fetched = (field.fetched(way)? - before) as f64;
    Ok(Sample {
        requests: number(&figures, "operations")? / number(&figures, "seconds")?,
        fetched: fetched / number(&figures, "bytes")?,
    })
}

fn rows(variant: &str, goal: Option<f64>, ours: &[Sample], theirs: &[Sample]) -> Vec<Value> {
    let figure = |row: &str, unit, goal, of: fn(&Sample) -> f64| {
        let [ours, theirs] = [ours, theirs].map(|it| it.iter().map(of).collect::<Vec<f64>>());
        Comparison {
            row,
            variant: variant.to_owned(),
            place: None,
            unit,
            ours: &ours,
            peer: (RELAY, &theirs),
            is_less_better: unit != "op/s",
            goal,
        }
        .json()
    };
    vec![
        figure("webbench", "op/s", goal, |one| one.requests),
        figure("webbench-fetched", "bytes/byte", None, |one| one.fetched),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the paper gained is asked for where it had its gains.
    #[test]
    fn goals_are_those_of_the_paper() {
        assert_eq!(goal(Mix::Films, false, "--mixed"), Some(1.6));
        assert_eq!(goal(Mix::Films, true, "--mixed"), Some(1.15));
        assert_eq!(goal(Mix::Films, true, "--old"), None);
        assert_eq!(goal(Mix::Small, false, "--mixed"), None);
    }
}
