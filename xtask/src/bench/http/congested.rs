//! Congestion on the paths of some clients, near the disk's capacity (TPF 4.6): what was
//! read for them can wait, and others have its time.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::ablation::EDRC;
use super::course;
use super::field::{Field, Who};
use super::slow::{bytes, reads_of, recovery};
use super::streams::{
    Beside, FAST, FAST_RATE, Group, MEMORY, SLOW, SLOW_RATE, Seen, Times, costs, each_in_turn,
    of_group, prepare, rounds, run_words, words,
};
use crate::bench::Keep;
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::rig::line::{Disturbance, Line};
use crate::rig::nginx::Variant;

/// One stream in so many has a path that is congested: 20 %.
const PART: usize = 5;
/// The rates of `streams` by so much: what the disk has not quite, until the congested ask
/// for less.
const NEAR: f64 = 1.65;
/// Of that path: without a round trip that takes its time a small window is no small rate.
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// Of a client's buffer: more than one has on its way there.
const RECEIVE_BYTES: u32 = 32 << 10;
/// So many of 1,000 packets meet congestion. A Reno-like window is then 1.22/√p = 5.5
/// segments (RFC 3649, section 2), 80 kB/s at that round-trip time: less than half of what the
/// fast streams ask for, about as in the text.
const PERMILLE: u32 = 50;
/// What was postponed in the text: requests and megabytes.
const TEXT: [f64; 2] = [23.0, 1.7];

pub(super) fn congested(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    field.with_line(&[ROUND_TRIP], |field| {
        for disturbance in [Disturbance::Marks, Disturbance::Drops] {
            one(field, disturbance, keep)?;
        }
        Ok(())
    })
}

/// All streams, those on the congested path in groups of their own behind the others.
fn groups() -> [Group; 4] {
    let of = |group: Group, count: usize, rate: f64| {
        let stay = count - count / PART;
        let near = Group {
            count: stay,
            rate: rate * NEAR,
            ..group.clone()
        };
        let congested = Group {
            first: stay,
            count: count / PART,
            path: Some(0),
            ..near.clone()
        };
        (near, congested)
    };
    let (fast, fast_congested) = of(Group::fast(FAST), FAST, FAST_RATE);
    let (slow, slow_congested) = of(Group::slow(SLOW), SLOW, SLOW_RATE);
    let named = |group, name| Group { name, ..group };
    [
        fast,
        slow,
        named(fast_congested, "fast-congested"),
        named(slow_congested, "slow-congested"),
    ]
}

/// Later than in other rows: what is seen is to be the congestion, not how the streams
/// have begun.
fn times(full: bool) -> Times {
    let scale = if full { 2.0 } else { 1.0 };
    Times {
        ramp: 5.0 * scale,
        from: 16.0 * scale,
        moment: Some(20.0 * scale),
        end: 28.0 * scale,
    }
}

const fn is_congested(place: usize) -> bool {
    place >= 2
}

fn one(field: &mut Field<'_>, disturbance: Disturbance, keep: Keep<'_>) -> Result<()> {
    let groups = groups();
    let times = times(field.full);
    let moment = Duration::from_secs_f64(times.moment.unwrap_or(0.0));
    let who = [Who::Ours, Who::Nginx(Variant::Direct), Who::Without(EDRC)];
    let all = each_in_turn(field, &who, rounds(field.full), |field, who| {
        let words = words(who, &groups, times, RECEIVE_BYTES);
        let seen = run_words(field, who, MEMORY, &words, |field| {
            wait(moment);
            Line::disturb(field.network(), 0, disturbance, PERMILLE)
        });
        let packets = Line::calm(field.network());
        let seen = seen?;
        let packets = packets?;
        eprintln!("    {packets} packets met congestion");
        ensure!(packets > 0, "no packet has met congestion");
        Ok(seen)
    })?;
    let (row, title) = match disturbance {
        Disturbance::Marks => ("marks", "CE marks"),
        Disturbance::Drops => ("drops", "losses"),
    };
    let asked = NEAR * (FAST as f64 * FAST_RATE + SLOW as f64 * SLOW_RATE) / 1e6;
    let variant = format!(
        "{title} of {} % of packets for {} of {} streams, at 100 ms; {asked:.0} MB/s asked of the disk before",
        PERMILLE / 10,
        (FAST + SLOW) / PART,
        FAST + SLOW,
    );
    keep(postponed(row, &variant, &all[0].1)?);
    type Read<'groups> = Box<dyn Fn(&Seen) -> Result<f64> + 'groups>;
    let contents: BTreeSet<u32> = groups[2..].iter().flat_map(Group::contents).collect();
    let figures: [(&str, &str, bool, Read<'_>); 2] = [
        (
            "recovery",
            "s until the others have 95 %",
            true,
            Box::new(|seen| recovery(seen, |place| !is_congested(place))),
        ),
        (
            "read",
            "bytes read for a byte that they took, behind the moment",
            true,
            Box::new(|seen| read_for_them(seen, &contents)),
        ),
    ];
    for (name, unit, is_less_better, figure) in figures {
        let beside = Beside {
            row: &format!("{row}-{name}"),
            variant: variant.clone(),
            unit,
            is_less_better,
            goal: Some(1.0),
        };
        keep(beside.rows(field, &all, figure)?);
    }
    for (class, group) in groups.iter().enumerate() {
        for (part, when) in [("before", "before"), ("behind", "after")] {
            let beside = Beside {
                row: &format!("{row}-{}-{when}", group.name),
                variant: variant.clone(),
                unit: "kb/s mean",
                is_less_better: false,
                goal: None,
            };
            let mut rows = beside.rows(field, &all, |seen| {
                Ok(8e-3 * of_group(&seen.figures, class, part, "mean")?)
            })?;
            if part == "behind" {
                let span = (times.from, times.end);
                course::add(&mut rows[0], group.name, &all, class, span)?;
            }
            keep(rows);
        }
    }
    keep(costs(field, row, &variant, &all)?);
    Ok(())
}

/// What of ours was moved behind others from the moment on, beside what the text tells.
fn postponed(row: &str, variant: &str, ours: &[Seen]) -> Result<Vec<serde_json::Value>> {
    let since = |seen: &Seen, name: &str| {
        let (from, to) = (seen.ns("moment_ns")?, seen.ns("end_ns")?);
        seen.watched.grown(name, from, to)
    };
    let kinds = [
        (
            "postponed",
            "disk requests postponed",
            1.0,
            "postponed_total",
        ),
        ("postponed-bytes", "MB of them", 1e6, "postponed_bytes"),
    ];
    let mut rows = Vec::new();
    for ((name, unit, of, metric), text) in kinds.into_iter().zip(TEXT) {
        let found = ours.iter().map(|seen| Ok(since(seen, metric)? / of));
        let found = found.collect::<Result<Vec<f64>>>()?;
        let comparison = Comparison {
            row: &format!("{row}-{name}"),
            variant: variant.to_owned(),
            place: None,
            unit,
            ours: &found,
            peer: ("the text (TPF 4.6)", &[text]),
            is_less_better: false,
            goal: None, // Other disks, other streams.
        };
        rows.push(comparison.json());
    }
    Ok(rows)
}

/// Bytes read for them behind the moment, for each that they took.
fn read_for_them(seen: &Seen, contents: &BTreeSet<u32>) -> Result<f64> {
    let moment = seen.ns("moment_ns")?;
    let mut reads = reads_of(seen, contents)?;
    reads.retain(|record| record.queued_ns > moment);
    let seconds = (seen.ns("end_ns")? - moment) as f64 / 1e9;
    let mut taken = 0.0;
    for group in 2..4 {
        let mean = of_group(&seen.figures, group, "behind", "mean")?;
        taken += mean * number(&seen.figures["groups"][group], "staying")? * seconds;
    }
    Ok(bytes(&reads) / taken.max(1.0))
}

#[expect(clippy::disallowed_methods, reason = "the load has a time of its own")]
fn wait(time: Duration) {
    thread::sleep(time);
}
