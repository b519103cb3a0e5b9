//! Kills while an initiator writes: what was acknowledged as durable – a write with FUA, one
//! before a flush, a block that was given back – is so afterwards.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Disk;
use crate::process::{Running, open_log, program};
use crate::suite::Stage;

/// Writes of one round; all are of 4 KiB, each at a place of its own.
const WRITES: u64 = 600;

/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn check(stage: &Stage<'_>, kills: u64) -> Result<()> {
    let data = stage.folder.join("durability");
    let mut disk = Disk::start_at(stage, &data, "127.0.0.1:0", &[])?;
    let url = disk.lun("killed", &[])?;
    let address = disk.address.to_string();
    let mut acknowledged = 0;
    for round in 1..=kills {
        // Another moment each time.
        let wanted = 20 + round * 37 % (WRITES - 50);
        let durable = write(stage, &url, round, wanted)?;
        disk.up.kill();
        disk = Disk::start_at(stage, &data, &address, &[])?;
        verify(stage, &disk, &url, round, &durable)?;
        acknowledged += durable.len();
    }
    println!("{kills} kills, {acknowledged} acknowledged writes, all there");
    disk.up.stop()?;
    Ok(())
}

/// Where a write of a round goes, and its bytes.
fn place(round: u64, number: u64) -> (u64, u64) {
    let block = (number * 7919 + round) % (32 << 10);
    (block * 4096, (round * 31 + number) % 255 + 1)
}

/// Whether a write waits for the flush behind it.
const fn is_flushed(number: u64) -> bool {
    number % 8 < 4
}

/// Whether a block is given back right behind its write with FUA. That is durable when the next
/// write is acknowledged: commands of this initiator come one after the other.
const fn is_freed(number: u64) -> bool {
    number % 8 == 6
}

/// Writes until so many are acknowledged; returns which are durable.
fn write(stage: &Stage<'_>, url: &str, round: u64, wanted: u64) -> Result<Vec<u64>> {
    let mut commands = String::new();
    for number in 0..WRITES {
        let (offset, pattern) = place(round, number);
        let force = if is_flushed(number) { "" } else { "-f " };
        writeln!(commands, "write {force}-P {pattern} {offset} 4k")?;
        if is_freed(number) {
            writeln!(commands, "discard {offset} 4k")?;
        }
        if number % 8 == 3 {
            // It says nothing: the next write is answered behind it.
            writeln!(commands, "flush")?;
        }
    }
    let script = stage.folder.join("commands");
    fs::write(&script, commands)?;
    let mut command = program("qemu-io");
    command.args(["-f", "raw", url]).stdin(File::open(&script)?);
    command.stderr(Stdio::null());
    let (mut writer, lines) = Running::start_with_output_lines(command, open_log(&stage.log)?)?;
    let deadline = Instant::now() + PATIENCE;
    let mut done = 0;
    while done < wanted {
        let line = lines.next(deadline)?.context("qemu-io has ended")?;
        done += u64::from(line.contains("wrote 4096/4096"));
    }
    writer.kill();
    lines.ignore();
    // One that waits for a flush is durable when a write behind that flush is acknowledged.
    let is_durable = |number: &u64| match is_freed(*number) {
        true => number + 1 < done,
        false => !is_flushed(*number) || number / 8 * 8 + 4 < done,
    };
    Ok((0..done).filter(is_durable).collect())
}

fn verify(
    stage: &Stage<'_>,
    disk: &Disk<'_>,
    url: &str,
    round: u64,
    durable: &[u64],
) -> Result<()> {
    let mut words = vec![
        "-r".to_owned(),
        "-f".to_owned(),
        "raw".to_owned(),
        url.to_owned(),
    ];
    for &number in durable {
        let (offset, pattern) = match (place(round, number), is_freed(number)) {
            ((offset, _), true) => (offset, 0),
            (place, false) => place,
        };
        words.push("-c".to_owned());
        words.push(format!("read -P {pattern} {offset} 4k"));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = disk.output("qemu-io", &words)?;
    let read = said.matches("read 4096/4096").count();
    ensure!(
        read == durable.len() && !said.contains("failed"),
        "round {round}: {} of {} acknowledged writes are there; see {}\n{said}",
        read,
        durable.len(),
        stage.log.display()
    );
    Ok(())
}
