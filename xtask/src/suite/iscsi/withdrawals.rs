//! Initiators that are killed while they read, and units that are reset under reads: what was
//! asked of the disks and nobody waits for is withdrawn, and the nodes' log says so.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_iscsi_pdu::TaskFunction;

use super::Disk;
use super::initiator::Initiator;
use crate::rig::reads::{ReadLimit, WITHDRAWN};
use crate::suite::Stage;

/// Little memory, and one request at a time at each disk: what else is asked for waits in the
/// node's queue.
const NODE: [&str; 4] = ["--cache", "12M", "--disk-depth", "1"];

/// What the process may read in a second, where the system can bound it: a fast disk would have
/// answered one request before the next one came.
const READ_BYTES_PER_SECOND: u64 = 32 << 20;

/// Reads of an initiator, blocks of each, and how far apart they begin.
const READS: u32 = 16;
const READ_BLOCKS: u32 = 512;
const STRIDE_BLOCKS: u32 = 8192;

/// How often it is tried until the nodes must have said something.
const ROUNDS: u32 = 12;

/// In how much time they tell.
const TELL_PATIENCE: Duration = Duration::from_secs(3);

/// What is on the disk.
const FILL: &str = "write -P 0x33 0 64M";
const READ: &str = "read -P 0x33 0 64M";

pub(super) fn check(stage: &Stage<'_>) -> Result<()> {
    let data = stage.folder.join("withdrawals");
    let disk = Disk::start_at(stage, &data, "127.0.0.1:0", &NODE)?;
    let url = disk.lun("withdrawn", &[])?;
    let qemu = |command: &str| -> Result<()> {
        let said = disk.output(
            "qemu-io",
            &["-f", "raw", &url, "-c", command, "-c", "flush"],
        )?;
        ensure!(!said.contains("failed"), "{said}");
        Ok(())
    };
    qemu(FILL)?;
    let limit = ReadLimit::new("iscsi", &stage.folder, READ_BYTES_PER_SECOND)?;
    match &limit {
        Some(limit) => limit.add(disk.up.pid())?,
        None => println!("reads cannot be slowed down here: the disk is as fast as it is"),
    }
    until_withdrawn(&disk, |round| {
        let mut reading = reading(&disk, 1)?;
        begin(&mut reading, round)?;
        pause(round);
        drop(reading);
        Ok(())
    })
    .context("initiators are killed")?;
    let mut resetting = reading(&disk, 2)?;
    // Their connections stay, whose end would have the reads withdrawn, too.
    let mut kept = Vec::new();
    until_withdrawn(&disk, |round| {
        let mut reading = reading(&disk, 3 + u8::try_from(round)?)?;
        begin(&mut reading, round)?;
        pause(round);
        kept.push(reading);
        resetting.manage(TaskFunction::LogicalUnitReset)
    })
    .context("the unit is reset")?;
    limit.as_ref().map_or(Ok(()), ReadLimit::lift)?;
    // Nobody else is the worse for it.
    qemu(READ)?;
    disk.up.stop().map(drop)
}

fn reading(disk: &Disk<'_>, number: u8) -> Result<Initiator> {
    let mut initiator = Initiator::connect(disk.address, number, "withdrawn")?;
    initiator.settled(Initiator::test_unit)?;
    Ok(initiator)
}

/// Each round elsewhere.
fn begin(initiator: &mut Initiator, round: u32) -> Result<()> {
    (0..READS).try_for_each(|number| {
        let lba = number * STRIDE_BLOCKS + (round % 8) * READ_BLOCKS;
        initiator.begin_read(lba, READ_BLOCKS)
    })
}

fn pause(round: u32) {
    thread::park_timeout(Duration::from_millis(3) * round);
}

/// Does it until the log tells of withdrawn reads.
fn until_withdrawn(disk: &Disk<'_>, mut act: impl FnMut(u32) -> Result<()>) -> Result<()> {
    let told = || -> Result<usize> {
        let log = fs::read_to_string(disk.up.log())?;
        Ok(log.matches(WITHDRAWN).count())
    };
    // What was withdrawn before this has been told by then.
    thread::park_timeout(TELL_PATIENCE);
    let before = told()?;
    for round in 0..ROUNDS {
        act(round)?;
        let begun = Instant::now();
        while begun.elapsed() < TELL_PATIENCE {
            if told()? > before {
                return Ok(());
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    bail!("{ROUNDS} times, and no node says that it withdrew reads")
}
