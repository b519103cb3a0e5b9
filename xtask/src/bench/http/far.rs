//! Streams of near and of far clients, into which a burst of new ones comes (TPF 4.4).
//!
//! Far clients have more in the socket and on its way, and can wait longer for the disk:
//! near ones should be served first, and lose no more than they do.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::course;
use super::field::{Field, Who};
use super::streams::{
    Beside, Group, MEMORY, Seen, Times, costs, each_in_turn, limit, prepare, rounds, run_words,
    words,
};
use crate::bench::Keep;
use crate::bench::nfs::number;
use crate::rig::nginx::Variant;

/// Round-trip times of the two paths.
const ROUND_TRIPS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];
/// A path that takes this much longer is not the one that was asked for.
const TOLERANCE: Duration = Duration::from_millis(8);
const NEAR: u8 = 0;
const FAR: u8 = 1;
/// Streams of each group.
const COUNT: usize = 50;
/// 2 Mb/s, in bytes per second: 100 of them ask as much of the disk as the text's 200 at
/// 1 Mb/s, most of what it has.
const RATE: f64 = 250e3;
/// Of a client's buffer: more than a far one has on its way.
const RECEIVE_BYTES: u32 = 64 << 10;
/// How long the bursts are, in seconds.
const BURSTS: [f64; 2] = [1.0, 3.0];
/// For so long near clients are to keep up, in seconds.
const KEPT: f64 = 1.0;
/// They do with so much of the far ones' rate, in percent.
const KEPT_PERCENT: f64 = 95.0;

/// Places of the groups.
const NEAR_ONES: usize = 0;
const FAR_ONES: usize = 1;
const NEW_ONES: usize = 2;

pub(super) fn far(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    field.with_line(&ROUND_TRIPS, |field| {
        for burst in BURSTS {
            one(field, burst, keep)?;
        }
        Ok(())
    })
}

/// A burst of one length.
fn one(field: &mut Field<'_>, burst: f64, keep: Keep<'_>) -> Result<()> {
    let scale = if field.full { 2.0 } else { 1.0 };
    let moment = 12.0 * scale;
    let until = moment + burst;
    let times = Times {
        ramp: 5.0 * scale,
        from: 8.0 * scale,
        moment: Some(moment),
        end: until + 4.0,
    };
    let group = |name, number: usize, path| Group {
        name,
        first: number * COUNT,
        rate: RATE,
        path: Some(path),
        ..Group::fast(COUNT)
    };
    let groups = [
        group("near", NEAR_ONES, NEAR),
        group("far", FAR_ONES, FAR),
        group("new", NEW_ONES, NEAR).with(&format!("start={moment},ramp=0,until={until}")),
    ];
    let who = [Who::Ours, Who::Nginx(Variant::Direct)];
    let all = each_in_turn(field, &who, rounds(field.full), |field, who| {
        let words = words(who, &groups, times, RECEIVE_BYTES);
        let seen = run_words(field, who, MEMORY, &words, |_| Ok(()))?;
        ensure_far(&seen)?;
        Ok(seen)
    })?;
    let variant = format!(
        "{COUNT} streams at 10 ms, {COUNT} at 200 ms, 2 Mb/s each; {COUNT} more at 10 ms for {burst} s"
    );
    let row = format!("far-{burst}s");
    let kept = |seen: &Seen| {
        let near = rate(seen, NEAR_ONES, moment, moment + KEPT)?;
        Ok(100.0 * near / rate(seen, FAR_ONES, moment, moment + KEPT)?)
    };
    keep(vec![limit(
        &format!("{row}-kept"),
        &variant,
        "% of far clients' rate that near ones have in the first second",
        &all[0].1.iter().map(kept).collect::<Result<Vec<f64>>>()?,
        ("to be reached", &[KEPT_PERCENT]),
        false,
    )]);
    let beside = Beside {
        row: &format!("{row}-near-of-far"),
        variant: variant.clone(),
        unit: "% of far clients' rate that near ones have in the first second",
        is_less_better: false,
        goal: None,
    };
    keep(beside.rows(field, &all, kept)?);
    let parts = [
        ("before", times.from, moment),
        ("burst", moment, until),
        ("after", until, times.end),
    ];
    for (place, group) in groups.iter().enumerate() {
        for (part, from, to) in parts {
            // Nobody new is there before, or after.
            if place == NEW_ONES && part != "burst" {
                continue;
            }
            let beside = Beside {
                row: &format!("{row}-{}-{part}", group.name),
                variant: variant.clone(),
                unit: "kb/s mean",
                is_less_better: false,
                goal: None,
            };
            let mut rows =
                beside.rows(field, &all, |seen| Ok(8e-3 * rate(seen, place, from, to)?))?;
            if part == "burst" {
                let span = (times.from, times.end);
                course::add(&mut rows[0], group.name, &all, place, span)?;
            }
            keep(rows);
        }
    }
    let beside = Beside {
        row: &format!("{row}-new-first-byte"),
        variant: variant.clone(),
        unit: "ms until the first byte, median of the new",
        is_less_better: true,
        goal: None,
    };
    keep(beside.rows(field, &all, |seen| {
        let first = &seen.figures["groups"][NEW_ONES]["first_byte"];
        Ok(number(first, "p50_us")? / 1e3)
    })?);
    keep(costs(field, &row, &variant, &all)?);
    Ok(())
}

/// Mean rate of a stream of a group in these seconds of the run, which are whole ones, in
/// bytes per second.
fn rate(seen: &Seen, group: usize, from: f64, to: f64) -> Result<f64> {
    let seconds = course::per_second(seen, group)?.iter().enumerate();
    let within = seconds.filter(|(second, _)| (from..to).contains(&(*second as f64)));
    let bytes: f64 = within.filter_map(|(_, bytes)| bytes.as_f64()).sum();
    Ok(bytes / (to - from) / COUNT as f64)
}

/// The line does what it should, and no more.
fn ensure_far(seen: &Seen) -> Result<()> {
    for (group, asked) in [(NEAR_ONES, ROUND_TRIPS[0]), (FAR_ONES, ROUND_TRIPS[1])] {
        let found = &seen.figures["groups"][group]["connect"];
        let found = Duration::from_secs_f64(number(found, "p50_us")? / 1e6);
        ensure!(
            (asked..asked + TOLERANCE).contains(&found),
            "the line takes {found:?} for {asked:?}"
        );
    }
    Ok(())
}
