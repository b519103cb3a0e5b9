//! Zero copy (iNAS): how many bytes the server copies in its own memory for each byte that it
//! serves, door by door, counted from outside the program; and what copying costs, beside a
//! server that copies all bulk bytes once on their way (`--zero-copy off`).

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::contestant::Ours;
use super::{flag, rows};
use crate::bench::figures::Comparison;
use crate::bench::nfs::{drop_page_cache, number};
use crate::paths::Paths;
use crate::rig::copies::Copies;

/// The rows: copies, and what they cost.
pub(super) const ROW: &str = "copies";
pub(super) const COSTS: &str = "zero-copy";

/// Bytes of a request: whole blocks.
const LONG: u32 = 1 << 20;
const SHORT: u32 = 64 << 10;
const SECONDS: f64 = 0.5;
/// No more than a thousandth of a copy.
const GOAL: f64 = 1000.0;

/// Files of the rows.
const NAME: &str = "copies";

/// What bytes come and go by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Iscsi,
    /// With CRC32C of headers and data.
    IscsiDigests,
    Nfs,
    Http,
}

impl Door {
    const ALL: [Self; 4] = [Self::Iscsi, Self::IscsiDigests, Self::Nfs, Self::Http];

    const fn word(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::IscsiDigests => "iscsi with digests",
            Self::Nfs => "nfs",
            Self::Http => "http",
        }
    }

    /// Lengths of requests; a PUT is one whole file.
    const fn sizes(self) -> &'static [u32] {
        match self {
            Self::Http => &[LONG],
            _ => &[LONG, SHORT],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    FromMemory,
    FromDisk,
    Write,
}

/// All doors, and all ways, and how many copies there are without zero copy.
pub(super) fn measure(ours: &mut Ours, paths: &Paths, folder: &Path) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for zero_copy in [true, false] {
        for door in Door::ALL {
            for &size in door.sizes() {
                for (work, row) in [
                    (Work::FromDisk, "copies-disk"),
                    (Work::FromMemory, "copies-memory"),
                    (Work::Write, "copies-write"),
                ] {
                    if work == Work::FromDisk {
                        ours.restart_with(paths, zero_copy)?;
                        drop_page_cache()?;
                    }
                    let copies = Copies::of(ours.pid(), &paths.release_binary(), folder)?;
                    let figures = load(ours, paths, (door, size), work)?;
                    #[expect(clippy::cast_precision_loss, reason = "some GB")]
                    let copied = copies.finish()? as f64;
                    let (told, word) = (rows::told(size), door.word());
                    let how = if zero_copy { "" } else { ", --zero-copy off" };
                    let comparison = Comparison {
                        row,
                        variant: format!(
                            "requests of {told}, {word}{how}: bytes copied for each byte"
                        ),
                        place: Some((format!("{word}{how}"), size as usize)),
                        unit: "bytes/byte",
                        ours: &[copied / number(&figures, "bytes")?],
                        peer: ("one copy of everything", &[1.0]),
                        is_less_better: true,
                        goal: zero_copy.then_some(GOAL),
                    };
                    results.push(comparison.json());
                }
            }
        }
    }
    ours.restart(paths)?;
    Ok(results)
}

/// Rates and CPU time with zero copy and without, in turn.
pub(super) fn costs(
    ours: &mut Ours,
    paths: &Paths,
    (rounds, seconds): (usize, f64),
) -> Result<Vec<Value>> {
    let kinds = || {
        Door::ALL
            .into_iter()
            .flat_map(|door| [(door, Work::FromMemory), (door, Work::Write)])
    };
    // For each kind: with, without.
    let mut all: Vec<[Vec<Value>; 2]> = vec![Default::default(); kinds().count()];
    for _ in 0..rounds {
        for (place, zero_copy) in [true, false].into_iter().enumerate() {
            ours.restart_with(paths, zero_copy)?;
            for ((door, work), found) in kinds().zip(&mut all) {
                if work == Work::FromMemory {
                    load_for(ours, paths, (door, LONG), work, seconds)?; // It is read.
                }
                found[place].push(load_for(ours, paths, (door, LONG), work, seconds)?);
            }
        }
    }
    ours.restart(paths)?;
    let mut results = Vec::new();
    for ((door, work), [with, without]) in kinds().zip(&all) {
        let is_write = work == Work::Write;
        let row = if is_write {
            "zero-copy-write"
        } else {
            "zero-copy-read"
        };
        for (suffix, unit, figure, is_less_better) in [
            ("", "MB/s", rate as fn(&Value) -> Result<f64>, false),
            ("-cpu", "CPU s/GB", cpu, true),
        ] {
            let of = |figures: &[Value]| figures.iter().map(figure).collect::<Result<Vec<_>>>();
            let comparison = Comparison {
                row: &format!("{row}{suffix}"),
                variant: format!("requests of 1 MiB, {}, memory", door.word()),
                place: Some((door.word().to_owned(), LONG as usize)),
                unit,
                ours: &of(with)?,
                peer: ("the same with --zero-copy off", &of(without)?),
                is_less_better,
                goal: None,
            };
            results.push(comparison.json());
        }
    }
    Ok(results)
}

fn rate(figures: &Value) -> Result<f64> {
    Ok(number(figures, "bytes")? / 1e6 / number(figures, "seconds")?)
}

fn cpu(figures: &Value) -> Result<f64> {
    Ok(number(figures, "server_cpu_seconds")? / number(figures, "bytes")? * 1e9)
}

/// Makes the files.
pub(super) fn make(ours: &Ours, paths: &Paths) -> Result<()> {
    ours.file_fill(paths, NAME)?;
    ours.http_make(paths, NAME).map(drop)
}

fn load(ours: &Ours, paths: &Paths, of: (Door, u32), work: Work) -> Result<Value> {
    load_for(ours, paths, of, work, SECONDS)
}

fn load_for(
    ours: &Ours,
    paths: &Paths,
    (door, size): (Door, u32),
    work: Work,
    seconds: f64,
) -> Result<Value> {
    let is_write = work == Work::Write;
    match door {
        Door::Iscsi | Door::IscsiDigests => {
            let mut flags = rows::block_flags(size, is_write, seconds);
            if door == Door::IscsiDigests {
                flags.push(flag("--digests", ""));
            }
            ours.block.load(paths, &flags)
        }
        Door::Nfs => ours.file_again(paths, NAME, (size, is_write, seconds)),
        Door::Http if is_write => ours.http_make(paths, "written"),
        Door::Http => ours.http_read(paths, NAME, size, seconds),
    }
}
