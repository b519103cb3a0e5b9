//! How many bytes the server copies in its own memory for each byte that it serves, door by
//! door (iNAS, "zero copy"). Counted from outside the program.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::contestant::Ours;
use super::rows;
use crate::bench::figures::Comparison;
use crate::bench::nfs::{drop_page_cache, number};
use crate::paths::Paths;
use crate::rig::copies::Copies;

/// The row.
pub(super) const ROW: &str = "copies";

/// Bytes of a request: whole blocks.
const REQUEST_BYTES: u32 = 1 << 20;
const SECONDS: f64 = 0.5;
/// No more than a thousandth of a copy.
const GOAL: f64 = 1000.0;

/// What bytes come and go by.
#[derive(Clone, Copy)]
enum Door {
    Iscsi,
    Nfs,
    Http,
}

#[derive(Clone, Copy)]
enum Work {
    FromMemory,
    FromDisk,
    Write,
}

/// All doors, and all ways.
pub(super) fn measure(ours: &mut Ours, paths: &Paths, folder: &Path) -> Result<Vec<Value>> {
    ours.file_fill(paths, NAME)?;
    ours.http_make(paths, NAME)?;
    let mut results = Vec::new();
    for (door, word) in [
        (Door::Iscsi, "iscsi"),
        (Door::Nfs, "nfs"),
        (Door::Http, "http"),
    ] {
        for (work, row) in [
            (Work::FromMemory, "copies-memory"),
            (Work::FromDisk, "copies-disk"),
            (Work::Write, "copies-write"),
        ] {
            if matches!(work, Work::FromDisk) {
                ours.restart(paths)?;
                drop_page_cache()?;
            }
            let copies = Copies::of(ours.pid(), &paths.release_binary(), folder)?;
            let figures = load(ours, paths, door, work)?;
            #[expect(clippy::cast_precision_loss, reason = "some GB")]
            let copied = copies.finish()? as f64;
            let comparison = Comparison {
                row,
                variant: format!("requests of 1 MiB, {word}: bytes copied for each byte"),
                place: Some((word.to_owned(), REQUEST_BYTES as usize)),
                unit: "bytes/byte",
                ours: &[copied / number(&figures, "bytes")?],
                peer: ("one copy of everything", &[1.0]),
                is_less_better: true,
                goal: Some(GOAL),
            };
            results.push(comparison.json());
        }
    }
    Ok(results)
}

/// Files of the row.
const NAME: &str = "copies";

fn load(ours: &Ours, paths: &Paths, door: Door, work: Work) -> Result<Value> {
    let is_write = matches!(work, Work::Write);
    match door {
        Door::Iscsi => {
            let flags = rows::block_flags(REQUEST_BYTES, is_write, SECONDS);
            ours.block.load(paths, &flags)
        }
        Door::Nfs => ours.file_again(paths, NAME, (REQUEST_BYTES, is_write, SECONDS)),
        Door::Http if is_write => ours.http_make(paths, "written"),
        Door::Http => ours.http_read(paths, NAME, REQUEST_BYTES, SECONDS),
    }
}
