//! Resets through one gateway, and clearings of the task set: what came through the other one is over
//! when they are answered, and every session is told once, or has ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_iscsi_pdu::TaskFunction;

use super::{block_of, initiator, pass, read_counter};
use crate::suite::ensemble::Processes;
use crate::suite::iscsi::initiator::{Initiator, Said};

const RESETS: u32 = 20;
const COLD_RESETS: u32 = 5;

/// Writes of one block, which take turns, so that there are some to be aborted.
const QUEUED: u32 = 32;

pub(super) fn check(processes: &Processes<'_>) -> Result<()> {
    // Through one gateway each.
    let mut resetting = initiator(processes, 70)?;
    let mut writing = initiator(processes, 71)?;
    for initiator in [&mut resetting, &mut writing] {
        initiator.settled(|it| it.test_unit())?;
    }
    resets(&mut resetting, &mut writing).context("LOGICAL UNIT RESET")?;
    clearings(&mut resetting, &mut writing).context("CLEAR TASK SET")?;
    cold_resets(processes).context("TARGET COLD RESET")
}

fn resets(resetting: &mut Initiator, writing: &mut Initiator) -> Result<()> {
    let mut slowest = Duration::ZERO;
    let mut aborted = 0;
    for round in 0..RESETS {
        let (lba, value) = (600 + round, u64::from(round) + 1);
        writing.begin_write(lba, &block_of(value))?;
        let asked = Instant::now();
        resetting
            .manage(TaskFunction::LogicalUnitReset)
            .with_context(|| format!("round {round}"))?;
        slowest = slowest.max(asked.elapsed());
        let told = read_counter(resetting, lba)?;
        aborted += u32::from(told != value);
        for (initiator, attentions) in [(&mut *writing, 1), (&mut *resetting, 0)] {
            let seen = attentions_of(initiator)?;
            ensure!(
                seen == attentions,
                "round {round}: {seen} unit attentions in place of {attentions}"
            );
        }
        expect_same(resetting, lba, told).with_context(|| format!("round {round}"))?;
    }
    println!(
        "{RESETS} resets, the slowest took {slowest:.1?}; {aborted} writes through the other gateway were aborted"
    );
    Ok(())
}

/// Who lost commands by it is told so, and who did not is told nothing.
fn clearings(clearing: &mut Initiator, writing: &mut Initiator) -> Result<()> {
    let mut slowest = Duration::ZERO;
    let mut aborted = 0;
    writing.take_late();
    for round in 0..RESETS {
        let lba = 700 + round;
        begin_writes(writing, lba)?;
        let asked = Instant::now();
        clearing
            .manage(TaskFunction::ClearTaskSet)
            .with_context(|| format!("round {round}"))?;
        slowest = slowest.max(asked.elapsed());
        let told = read_counter(clearing, lba)?;
        let (seen, own) = (attentions_of(writing)?, attentions_of(clearing)?);
        let lost = QUEUED as usize - writing.take_late();
        ensure!(
            (seen, own) == (usize::from(lost > 0), 0),
            "round {round}: {seen} and {own} unit attentions, {lost} writes without an answer"
        );
        aborted += lost;
        expect_same(clearing, lba, told).with_context(|| format!("round {round}"))?;
    }
    println!(
        "{RESETS} clearings, the slowest took {slowest:.1?}; {aborted} writes through the other gateway were aborted"
    );
    ensure!(aborted > 0, "nothing was there to be cleared");
    Ok(())
}

/// All sessions with the target end, through whatever gateway they are.
fn cold_resets(processes: &Processes<'_>) -> Result<()> {
    let mut slowest = Duration::ZERO;
    for round in 0..COLD_RESETS {
        let lba = 800 + round;
        let mut resetting = initiator(processes, 72)?;
        let mut writing = initiator(processes, 73)?;
        begin_writes(&mut writing, lba)?;
        let asked = Instant::now();
        resetting
            .manage(TaskFunction::TargetColdReset)
            .with_context(|| format!("round {round}"))?;
        slowest = slowest.max(asked.elapsed());
        for ended in [&mut resetting, &mut writing] {
            ended.await_end()?;
        }
        let mut again = initiator(processes, 72)?;
        let told = read_counter(&mut again, lba)?;
        expect_same(&mut again, lba, told).with_context(|| format!("round {round}"))?;
    }
    println!("{COLD_RESETS} cold resets, the slowest took {slowest:.1?}: all sessions ended");
    Ok(())
}

fn begin_writes(writing: &mut Initiator, lba: u32) -> Result<()> {
    for value in 1..=QUEUED {
        writing.begin_write(lba, &block_of(value.into()))?;
    }
    Ok(())
}

fn attentions_of(initiator: &mut Initiator) -> Result<usize> {
    let mut seen = 0;
    while initiator.test_unit()? == Said::Attention {
        seen += 1;
    }
    Ok(seen)
}

/// What was read behind the answer stays: nothing is on its way any more.
fn expect_same(initiator: &mut Initiator, lba: u32, told: u64) -> Result<()> {
    pass(Duration::from_millis(30)); // For what may be on its way yet.
    let later = read_counter(initiator, lba)?;
    ensure!(
        told == later,
        "a block was {told} behind the answer, and {later} later"
    );
    Ok(())
}
