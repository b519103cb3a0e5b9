//! The same bytes as blocks and as a file of one pool, as in iNAS's table 3: each alone, and
//! both at once.

use std::thread;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::contestant::Ours;
use super::rows;
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::paths::Paths;

/// The file that is worked on beside blocks.
const NAME: &str = "beside";

const ALONE: &str = "blocks (iSCSI) beside a file (NFS) of the same pool, eight outstanding, here \
                     and there, from memory";
const TOGETHER: &str = "blocks (iSCSI) and a file (NFS) of the same pool at once, eight \
                        outstanding each, here and there, from memory";

/// What all runs of one kind gave.
#[derive(Default)]
struct Runs(Vec<Value>);

impl Runs {
    fn of(&self, figure: fn(&Value) -> Result<f64>) -> Result<Vec<f64>> {
        self.0.iter().map(figure).collect()
    }
}

/// MB per second.
fn rate(figures: &Value) -> Result<f64> {
    Ok(number(figures, "bytes")? / 1e6 / number(figures, "seconds")?)
}

fn mean(figures: &Value) -> Result<f64> {
    number(figures, "mean_us")
}

const fn verb(is_write: bool) -> &'static str {
    if is_write { "write" } else { "read" }
}

/// Rate and mean time of one beside another.
fn compare(
    (row, variant): (&str, &str),
    place: (&str, u32),
    ours: &Runs,
    (name, theirs): (&str, &Runs),
) -> Result<[Value; 2]> {
    let figure = |suffix, unit, figure, is_less_better| -> Result<Value> {
        let comparison = Comparison {
            row: &format!("{row}{suffix}"),
            variant: variant.to_owned(),
            place: Some((place.0.to_owned(), place.1 as usize)),
            unit,
            ours: &ours.of(figure)?,
            peer: (name, &theirs.of(figure)?),
            is_less_better,
            goal: None,
        };
        Ok(comparison.json())
    };
    Ok([
        figure("", "MB/s", rate, false)?,
        figure("-mean", "µs", mean, true)?,
    ])
}

/// Each alone.
pub(super) fn each_alone(
    ours: &mut Ours,
    paths: &Paths,
    size: u32,
    (rounds, seconds): (usize, f64),
) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for is_write in [false, true] {
        let [mut blocks, mut files]: [Runs; 2] = Default::default();
        for round in 0..rounds.div_ceil(2) {
            let flags = rows::block_flags(size, is_write, seconds);
            blocks.0.push(ours.block.load(paths, &flags)?);
            // Another one each time: a name is used once.
            let name = format!("file-{size}-{is_write}-{round}");
            let wanted = (size, is_write, seconds);
            files.0.push(ours.file_load(paths, &name, wanted)?);
        }
        let verb = verb(is_write);
        let label = (&*format!("block-{verb}"), ALONE);
        let peer = (&*format!("file, {}", rows::told(size)), &files);
        results.extend(compare(label, (verb, size), &blocks, peer)?);
    }
    Ok(results)
}

/// Makes what [`together`] works on.
pub(super) fn make(ours: &Ours, paths: &Paths) -> Result<()> {
    ours.file_fill(paths, NAME)
}

/// Both at once, each beside the other and beside itself alone; and what both have in sum, beside
/// half of what each has alone: what is lost by serving both.
pub(super) fn together(
    ours: &mut Ours,
    paths: &Paths,
    size: u32,
    (rounds, seconds): (usize, f64),
) -> Result<Vec<Value>> {
    let ours = &*ours;
    let told = rows::told(size);
    let mut results = Vec::new();
    for is_write in [false, true] {
        let flags = rows::block_flags(size, is_write, seconds);
        let work_on_blocks = || ours.block.load(paths, &flags);
        let work_on_file = || ours.file_again(paths, NAME, (size, is_write, seconds));
        let [mut blocks, mut file, mut blocks_alone, mut file_alone]: [Runs; 4] =
            Default::default();
        for _ in 0..rounds.div_ceil(2) {
            blocks_alone.0.push(work_on_blocks()?);
            file_alone.0.push(work_on_file()?);
            let (on_blocks, on_file) = thread::scope(|scope| {
                let on_blocks = scope.spawn(work_on_blocks);
                let on_file = work_on_file();
                (on_blocks.join(), on_file)
            });
            blocks.0.push(on_blocks.map_err(|_| anyhow!("a panic"))??);
            file.0.push(on_file?);
        }
        let verb = verb(is_write);
        let line = format!("{verb}, both at once");
        let row = |name: &str| format!("{name}-{verb}-both");
        for (name, ours, (peer, theirs)) in [
            ("block", &blocks, ("file at once", &file)),
            ("block", &blocks, ("blocks alone", &blocks_alone)),
            ("file", &file, ("file alone", &file_alone)),
        ] {
            let label = (&*row(name), TOGETHER);
            let peer = (&*format!("{peer}, {told}"), theirs);
            results.extend(compare(label, (&line, size), ours, peer)?);
        }
        let sums = |one: &Runs, other: &Runs, part: f64| -> Result<Vec<f64>> {
            let (one, other) = (one.of(rate)?, other.of(rate)?);
            let pairs = one.iter().zip(&other);
            Ok(pairs.map(|(one, other)| part * (one + other)).collect())
        };
        let comparison = Comparison {
            row: &row("sum"),
            variant: TOGETHER.to_owned(),
            place: Some((line, size as usize)),
            unit: "MB/s",
            ours: &sums(&blocks, &file, 1.0)?,
            peer: (
                &format!("half of each alone, {told}"),
                &sums(&blocks_alone, &file_alone, 0.5)?,
            ),
            is_less_better: false,
            goal: None,
        };
        results.push(comparison.json());
    }
    Ok(results)
}
