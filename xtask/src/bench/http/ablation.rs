//! What each mechanism of delivery is worth: Crossdock beside itself without it.

use anyhow::Result;

use super::field::{Field, Who};
use super::slow::{self, Gone};
use super::streams::{
    Beside, FAST, FAST_RATE, Group, LITTLE_MEMORY, MEMORY, SLOW, Seen, Times, each_in_turn,
    of_group, prepare, rounds, run,
};
use crate::bench::Keep;
use crate::bench::nfs::number;

const TDAP: [&str; 2] = ["--delivery.tdap=off", "--delivery.tdap=literal"];
pub(super) const EDRC: &str = "--delivery.edrc=off";
pub(super) const IDSR: &str = "--delivery.idsr=off";
pub(super) const DAEMON: &str = "--delivery.daemon=off";

/// TDAP: the streams that a slow disk carries in little memory, and how long what was read
/// waits for them.
pub(super) fn read_ahead(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let groups = [Group::fast(FAST), Group::slow(SLOW)];
    let times = Times::steady(field.full);
    let all = [Who::Ours, Who::Without(TDAP[0]), Who::Without(TDAP[1])];
    let all = each_in_turn(field, &all, rounds(field.full), |field, who| {
        run(field, who, LITTLE_MEMORY, &groups, times)
    })?;
    for (class, group) in groups.iter().enumerate() {
        let beside = Beside {
            row: &format!("ablation-tdap-{}", group.name),
            variant: format!("{FAST} streams at 1 Mb/s, {SLOW} at 200 kb/s, in 96 MB"),
            unit: "kb/s mean",
            is_less_better: false,
            goal: None,
        };
        keep(beside.rows(field, &all, |seen| {
            Ok(8e-3 * of_group(&seen.figures, class, "before", "mean")?)
        })?);
    }
    Ok(())
}

/// EDRC: what is read for connections that were reset, and what the others have then.
pub(super) fn withdrawal(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let (groups, times) = slow::near_capacity(field, Gone::Reset);
    let all = [Who::Ours, Who::Without(EDRC)];
    let all = each_in_turn(field, &all, rounds(field.full), |field, who| {
        run(field, who, MEMORY, &groups, times)
    })?;
    let variant = format!(
        "streams of {:.0} kb/s and slower, 15 % are reset",
        FAST_RATE / 125.0
    );
    type Read = fn(&Seen) -> Result<f64>;
    let figures: [(&str, &str, bool, Read); 2] = [
        ("bytes", "MB read for the dead", true, |seen| {
            slow::read_for_the_gone(seen)
        }),
        ("rate", "MB/s of all", false, |seen| {
            Ok(number(&seen.figures, "bytes")? / 1e6 / number(&seen.figures, "seconds")?)
        }),
    ];
    for (name, unit, is_less_better, figure) in figures {
        let beside = Beside {
            row: &format!("ablation-edrc-{name}"),
            variant: variant.clone(),
            unit,
            is_less_better,
            goal: None,
        };
        keep(beside.rows(field, &all, figure)?);
    }
    Ok(())
}
