//! `bench iscsi`: beside tgt and istgt, beside fio on the disk, and blocks beside files.
//!
//! All targets stand from the first row to the last, on the same disk; for each row the load
//! visits them in turn, several rounds. Targets have one processor for themselves, the load
//! generator the other.

mod contestant;
mod copies;
mod files;
mod modelled;
mod rows;

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use rustix::thread::sched_getaffinity;
use serde_json::Value;

use super::figures::{Figure, Sample, row as result_row};
use super::nfs::{LOAD_CPU, SERVER_CPU, drop_page_cache, fio_cold, sample, summary};
use super::parse;
use crate::paths::Paths;
use contestant::{Contestant, LUN_BYTES, Ours};
pub(super) use rows::names as row_names;
use rows::{FILE_SIZES, Row};

/// Rounds of a row, and seconds of a visit.
const SHORT: (usize, f64) = (5, 0.5);
const LONG: (usize, f64) = (9, 5.0);

/// Measures, and prints the results of each row as one line; what people want to see goes to
/// standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &row_names())?;
    let cpus = sched_getaffinity(None)?;
    ensure!(
        cpus.is_set(SERVER_CPU) && cpus.is_set(LOAD_CPU),
        "processors {SERVER_CPU} and {LOAD_CPU} are needed"
    );
    let folder = paths.test_data().join("bench-iscsi");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut field = Field::start(paths, &folder)?;
    let is_wanted =
        |name: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == name);
    let times = if options.full { LONG } else { SHORT };
    let mut all_measured = true;
    let mut keep = |name: &str, measured: Result<Vec<Value>>| match measured {
        Ok(results) => {
            for result in &results {
                eprintln!("{}", summary(result));
            }
            println!("{}", Value::Array(results));
        }
        Err(error) => {
            eprintln!("{name}: FAILED: {error:#}");
            all_measured = false;
        }
    };
    for row in rows::all().iter().filter(|row| is_wanted(row.name)) {
        keep(row.name, field.measure(row, &field.ours.block, times));
    }
    let polling = rows::polling();
    let mut wanted = polling.iter().filter(|row| is_wanted(row.name)).peekable();
    if wanted.peek().is_some() {
        let ours = Ours::start_with(paths, &folder.join("polling"), &rows::POLLING)?;
        ours.block.fill(paths)?;
        for row in wanted {
            keep(row.name, field.measure(row, &ours.block, times));
        }
    }
    if is_wanted(rows::COLD) {
        keep(rows::COLD, field.cold(times));
    }
    if is_wanted(rows::FILES) {
        for size in FILE_SIZES {
            keep(
                rows::FILES,
                files::each_alone(&mut field.ours, paths, size, times),
            );
        }
    }
    if is_wanted(rows::TOGETHER) {
        let made = files::make(&field.ours, paths);
        for size in FILE_SIZES {
            let measured = made.as_ref().map_err(|error| anyhow!("{error:#}"));
            let measured =
                measured.and_then(|()| files::together(&mut field.ours, paths, size, times));
            keep(rows::TOGETHER, measured);
        }
    }
    if [copies::ROW, copies::COSTS].into_iter().any(is_wanted) {
        copies::make(&field.ours, paths)?;
    }
    if is_wanted(copies::ROW) {
        keep(
            copies::ROW,
            copies::measure(&mut field.ours, paths, &folder),
        );
    }
    if is_wanted(copies::COSTS) {
        keep(copies::COSTS, copies::costs(&mut field.ours, paths, times));
    }
    drop(field);
    if is_wanted(modelled::SETS) {
        keep(modelled::SETS, modelled::sets(paths, &folder, times));
    }
    if is_wanted(modelled::FILES) {
        for size in modelled::FILE_SIZES {
            let measured = modelled::files(paths, &folder, size, times);
            keep(modelled::FILES, measured);
        }
    }
    if is_wanted(modelled::DEFRAG) {
        keep(modelled::DEFRAG, modelled::defrag(paths, &folder, times));
    }
    fs::remove_dir_all(&folder)?;
    Ok(all_measured)
}

/// Everybody who takes part.
struct Field<'run> {
    paths: &'run Paths,
    folder: &'run Path,
    ours: Ours,
    peers: Vec<Contestant>,
}

impl<'run> Field<'run> {
    fn start(paths: &'run Paths, folder: &'run Path) -> Result<Self> {
        let ours = Ours::start(paths, &folder.join("ours"))?;
        let peers = vec![
            Contestant::tgt(&folder.join("tgt"))?,
            Contestant::istgt(&folder.join("istgt"))?,
        ];
        let field = Self {
            paths,
            folder,
            ours,
            peers,
        };
        for contestant in std::iter::once(&field.ours.block).chain(&field.peers) {
            contestant.fill(paths)?;
        }
        Ok(field)
    }

    /// All rounds of one row; a result for each peer and figure.
    fn measure(
        &self,
        row: &Row,
        ours: &Contestant,
        (rounds, seconds): (usize, f64),
    ) -> Result<Vec<Value>> {
        let takes_part: Vec<&Contestant> = std::iter::once(ours)
            .chain(&self.peers)
            .filter(|it| !row.is_forced || it.is_forced_durable)
            .collect();
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); takes_part.len()];
        for _ in 0..rounds {
            for (contestant, samples) in takes_part.iter().zip(&mut samples) {
                // What the visit before has left to be written is not this one's to pay for.
                rustix::fs::syncfs(fs::File::open(self.folder)?)?;
                let figures = contestant.load(self.paths, &row.flags(seconds))?;
                samples.push(sample(row.is_bulk, &figures)?);
            }
        }
        let mut results = Vec::new();
        for figure in Figure::ALL {
            for (peer, theirs) in takes_part.iter().zip(&samples).skip(1) {
                let label = (row.name.to_owned(), row.variant.to_owned());
                let peer = (peer.name.as_str(), &theirs[..]);
                let goal = row.goal(figure);
                let result = result_row(label, figure, row.is_bulk, &samples[0], peer, goal);
                results.extend(result);
            }
        }
        Ok(results)
    }

    /// Random reads that no memory has: ours, tgt's, and the disk's own.
    fn cold(&mut self, (rounds, seconds): (usize, f64)) -> Result<Vec<Value>> {
        let row = rows::cold();
        let mut samples: [Vec<Sample>; 3] = Default::default();
        for _ in 0..rounds {
            self.ours.restart(self.paths)?;
            drop_page_cache()?;
            let ours = self.ours.block.load(self.paths, &row.flags(seconds))?;
            samples[0].push(sample(false, &ours)?);
            drop_page_cache()?;
            let theirs = self.peers[0].load(self.paths, &row.flags(seconds))?;
            samples[1].push(sample(false, &theirs)?);
            let iops = fio_cold(&self.folder.join("fio"), row.depth, LUN_BYTES, seconds)?;
            samples[2].push(Sample::of_rate(iops));
        }
        let [ours, tgt, fio] = &samples;
        let mut results = Vec::new();
        for figure in Figure::ALL {
            let peers = [
                (self.peers[0].name.as_str(), &tgt[..], None),
                ("fio io_uring on the disk", &fio[..], Some(0.9)),
            ];
            for (name, theirs, goal) in peers {
                let label = (row.name.to_owned(), row.variant.to_owned());
                let goal = goal.filter(|_| figure == Figure::Rate);
                let result = result_row(label, figure, false, ours, (name, theirs), goal);
                results.extend(result);
            }
        }
        Ok(results)
    }
}

/// Flags of the load generator.
type Flags = Vec<(&'static str, String)>;

fn flag(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}
