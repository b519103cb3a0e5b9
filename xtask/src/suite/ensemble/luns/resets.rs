//! A LOGICAL UNIT RESET through one gateway: what came through the other one is over when it is
//! answered, and every session is told once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::initiator::Said;
use super::{block_of, initiator, pass, read_counter};
use crate::suite::ensemble::Processes;

const RESETS: u32 = 20;

pub(super) fn check(processes: &Processes<'_>) -> Result<()> {
    // Through one gateway each.
    let mut resetting = initiator(processes, 70)?;
    let mut writing = initiator(processes, 71)?;
    let mut slowest = Duration::ZERO;
    let mut aborted = 0;
    for initiator in [&mut resetting, &mut writing] {
        initiator.settled(|it| it.test_unit())?;
    }
    for round in 0..RESETS {
        let (lba, value) = (600 + round, u64::from(round) + 1);
        writing.begin_write(lba, &block_of(value))?;
        let asked = Instant::now();
        resetting
            .reset()
            .with_context(|| format!("round {round}"))?;
        slowest = slowest.max(asked.elapsed());
        let told = read_counter(&mut resetting, lba)?;
        aborted += u32::from(told != value);
        for (initiator, attentions) in [(&mut writing, 1), (&mut resetting, 0)] {
            let mut seen = 0;
            while initiator.test_unit()? == Said::Attention {
                seen += 1;
            }
            ensure!(
                seen == attentions,
                "round {round}: {seen} unit attentions in place of {attentions}"
            );
        }
        pass(Duration::from_millis(30)); // For what may be on its way yet.
        let later = read_counter(&mut resetting, lba)?;
        ensure!(
            told == later,
            "round {round}: a block was {told} behind the answer, and {later} later"
        );
    }
    println!(
        "{RESETS} resets, the slowest took {slowest:.1?}; {aborted} writes through the other gateway were aborted"
    );
    Ok(())
}
