//! A bit that flips on the disk is found, and never reaches a client.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::Status;
use crossdock_tests_crash::client::Client;

use super::job::{self, BIG_BYTES, PART_BYTES};
use super::program::{finish, text};
use super::{pool, service};
use crate::suite::Stage;

const BLOCK_BYTES: usize = 4096;
/// The part of the file whose second block is damaged.
const DAMAGED_PART: usize = 17;

pub(super) fn flipped_bit(stage: &Stage<'_>) -> Result<()> {
    let (number, path, offset) = find_block(stage)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset + 77)?;
    file.write_all_at(&[byte[0] ^ 0x10], offset + 77)?;
    file.sync_all()?;

    let node = pool(stage).join(format!("node-{number}"));
    let fsck = ["fsck", "--json", "--node", text(&node)?, "--full"];
    let report = finish(stage, &fsck)?.json(1)?;
    ensure!(report["findings_total"] == 1, "{report}");
    // Without --full no data is read.
    finish(stage, &fsck[..4])?.json(0)?;

    let up = service::start(stage)?;
    let scrub = up.ask(stage, &["scrub"])?.json(1)?;
    let findings = scrub["findings"].as_array().context("findings")?;
    let named = format!("node {number}, object ");
    ensure!(
        findings.len() == 1
            && findings[0]
                .as_str()
                .is_some_and(|text| text.starts_with(&named)),
        "{scrub}"
    );
    let mut client = Client::connect(up.nfs)?;
    let mut expected = vec![None; BIG_BYTES / PART_BYTES];
    expected[DAMAGED_PART] = Some(Status::Io);
    let statuses = job::read(&mut client, &damaged_file(), BIG_BYTES)?;
    ensure!(statuses == expected, "{statuses:?}");
    let status = up.ask(stage, &["status"])?.json(0)?;
    let errors = status["nodes"][number]["media_errors"].as_u64();
    let bad = status["nodes"][number]["bad_blocks"].as_u64();
    ensure!(
        errors > Some(0) && bad == Some(1) && status["health"]["status"] == "degraded",
        "{status}"
    );
    up.stop()?;
    Ok(())
}

/// The file that is damaged.
fn damaged_file() -> String {
    format!("first-{BIG_BYTES}")
}

/// Node, data file and offset of the block.
fn find_block(stage: &Stage<'_>) -> Result<(usize, PathBuf, u64)> {
    let content = job::content(&damaged_file(), BIG_BYTES);
    let wanted = &content[DAMAGED_PART * PART_BYTES + BLOCK_BYTES..][..BLOCK_BYTES];
    let mut found = None;
    for number in 0..3 {
        let path = pool(stage).join(format!("node-{number}/data"));
        let file = File::open(&path)?;
        let mut chunk = vec![0; 256 * BLOCK_BYTES];
        let mut offset = 0;
        loop {
            let length = file.read_at(&mut chunk, offset)?;
            if length == 0 {
                break;
            }
            for (at, block) in (0_u64..).zip(chunk[..length].chunks(BLOCK_BYTES)) {
                if block == wanted {
                    found = Some((number, path.clone(), offset + at * BLOCK_BYTES as u64));
                }
            }
            offset += length as u64;
        }
    }
    found.context("the block is in no data file")
}
