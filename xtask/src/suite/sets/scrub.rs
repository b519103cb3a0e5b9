//! What nobody reads: a copy and parity that change at rest are found by a scrub and made
//! anew, after which the disks that were right may be lost.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::DISK_BYTES;
use crate::suite::Stage;
use crate::suite::cli::job;
use crate::suite::cli::program::{Up, crossdock, text};

/// Where disks hold what is stored, in cells; before that they tell of themselves.
const DATA_OFFSET: u64 = 8768 << 10;
const CELL_BYTES: u64 = 64 << 10;

const BLOCK: usize = 4096;

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    let disks = ["c1", "c2", "q1", "q2", "q3"].map(|name| stage.folder.join(name));
    for disk in &disks {
        File::create(disk)?.set_len(DISK_BYTES)?;
    }
    let names = disks.iter().map(|disk| text(disk));
    let names = names.collect::<Result<Vec<&str>>>()?;
    let spec = format!(
        "mirror:{},{};parity:{},{},{}",
        names[0], names[1], names[2], names[3], names[4]
    );
    let up = start(stage, Some(&spec))?;
    for name in ["first", "second"] {
        job::write(&up, name)?;
    }
    // While nobody is at work: at a start the members are made equal where they were written
    // last. One copy; and the parity of the stripes that have it on the first disk of three: whoever
    // writes beside it would only make it right.
    let changed = change(&disks[1], |_| true)? + change(&disks[2], |stripe| stripe % 3 == 2)?;

    let found = scrub(stage, &up)?;
    let number = |name: &str| found[name].as_u64().unwrap_or_default();
    ensure!(found["findings"] == serde_json::json!([]), "{found}");
    ensure!(
        number("differing_blocks") > changed / 2 && number("agreed_blocks") > 0,
        "{changed} blocks were changed: {found}"
    );
    let again = scrub(stage, &up)?;
    ensure!(again["differing_blocks"] == 0, "{again}");
    up.stop()?;

    for disk in [&disks[0], &disks[3]] {
        fs::remove_file(disk)?;
    }
    let up = start(stage, None)?;
    for name in ["first", "second"] {
        job::verify(&up, name)?;
    }
    up.stop()?;
    Ok(())
}

fn start(stage: &Stage<'_>, spec: Option<&str>) -> Result<Up> {
    let data = stage.folder.join("compared");
    let mut words = vec!["up", "--data", text(&data)?];
    if let Some(spec) = spec {
        words.extend(["--disks", spec]);
    }
    Up::start(stage, crossdock(stage, &words))
}

fn scrub(stage: &Stage<'_>, up: &Up) -> Result<Value> {
    up.ask(stage, &["scrub"])?.json(0)
}

/// Turns a bit of every fifth block that holds something, in some stripes; tells how many.
fn change(disk: &Path, is_meant: impl Fn(u64) -> bool) -> Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(disk)?;
    let mut block = [0; BLOCK];
    let (mut held, mut changed) = (0, 0);
    for at in (DATA_OFFSET..DISK_BYTES).step_by(BLOCK) {
        file.read_exact_at(&mut block, at)?;
        let stripe = (at - DATA_OFFSET) / CELL_BYTES;
        if !is_meant(stripe) || block.iter().all(|&byte| byte == 0) {
            continue;
        }
        held += 1;
        if held % 5 == 0 {
            block[77] ^= 4;
            file.write_all_at(&block, at)?;
            changed += 1;
        }
    }
    file.sync_all()?;
    ensure!(changed > 5, "{} holds nothing", disk.display());
    Ok(changed)
}
