//! On the slow disk: clients that go away, and what serving costs.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use crossdock_slowdisk::content;
use crossdock_slowdisk::record::Record;
use serde_json::Value;

use super::field::{Field, Who};
use super::streams::{
    Beside, FAST, FAST_RATE, Group, MEMORY, RECEIVE_BYTES, SLOW, SLOW_RATE, Seen, Times, costs,
    in_turn, of_group, prepare, rounds, run, words,
};
use crate::bench::Keep;
use crate::bench::figures::{Figure, Sample, row};
use crate::bench::nfs::number;
use crate::rig::nginx::Variant;

/// How the streams that go away do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// By RST.
    Reset,
    /// They stop reading.
    Stalled,
}

/// 15 % of all streams.
const FAST_GONE: usize = FAST * 15 / 100;
const SLOW_GONE: usize = SLOW * 15 / 100;
/// The rates of `streams` by so much: a little more than the disk has, until some go.
const NEAR: f64 = 1.4;
/// Nothing is read for the dead that was issued later than this after the reset.
const PATIENCE_NS: u64 = 10_000_000;
/// Streams have recovered when together they have so much of their rates.
const RECOVERED: f64 = 0.95;
/// Streams without a rate in `shared`: their files are twice as much as the memory.
const SHARED: usize = 120;

/// 15 % of the streams go away near the disk's capacity.
pub(super) fn near_capacity(field: &Field<'_>, how: Gone) -> ([Group; 2], Times) {
    let word = match how {
        Gone::Reset => "reset",
        Gone::Stalled => "stall",
    };
    let near = |group: Group, gone: usize, rate: f64| {
        Group {
            rate: rate * NEAR,
            ..group
        }
        .with(&format!("{word}={gone}"))
    };
    let groups = [
        near(Group::fast(FAST), FAST_GONE, FAST_RATE),
        near(Group::slow(SLOW), SLOW_GONE, SLOW_RATE),
    ];
    let scale = if field.full { 2.0 } else { 1.0 };
    let times = Times {
        ramp: 5.0 * scale,
        from: 8.0 * scale,
        moment: Some(12.0 * scale),
        end: 20.0 * scale,
    };
    (groups, times)
}

/// What comes of it.
pub(super) fn gone(field: &mut Field<'_>, how: Gone, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let (name, title) = match how {
        Gone::Reset => ("resets", "reset their connections"),
        Gone::Stalled => ("stalls", "stop reading"),
    };
    let (groups, times) = near_capacity(field, how);
    let all = in_turn(field, rounds(field.full), |field, who| {
        run(field, who, MEMORY, &groups, times)
    })?;
    let variant = format!(
        "{} of {} streams {title}, {:.0} MB/s asked of the disk before",
        FAST_GONE + SLOW_GONE,
        FAST + SLOW,
        NEAR * (FAST as f64 * FAST_RATE + SLOW as f64 * SLOW_RATE) / 1e6,
    );
    type Read = fn(&Seen) -> Result<f64>;
    let figures: [(&str, &str, Option<f64>, Read); 4] = [
        (
            "bytes",
            "MB read for them behind the moment",
            Some(10.0),
            read_for_the_gone,
        ),
        (
            "late",
            "requests for them issued > 10 ms behind it",
            None,
            |seen| Ok(for_the_gone(seen, PATIENCE_NS)?.len() as f64),
        ),
        ("late-bytes", "MB of these", None, |seen| {
            Ok(bytes(&for_the_gone(seen, PATIENCE_NS)?) / 1e6)
        }),
        ("recovery", "s until the others have 95 %", None, |seen| {
            recovery(seen, |_| true)
        }),
    ];
    for (part, unit, goal, figure) in figures {
        let beside = Beside {
            row: &format!("{name}-{part}"),
            variant: variant.clone(),
            unit,
            is_less_better: true,
            goal,
        };
        keep(beside.rows(field, &all, figure)?);
    }
    for (class, group) in groups.iter().enumerate() {
        for part in ["before", "behind"] {
            let when = if part == "before" { "before" } else { "after" };
            let beside = Beside {
                row: &format!("{name}-{}-{when}", group.name),
                variant: variant.clone(),
                unit: "kb/s mean of those that stay",
                is_less_better: false,
                goal: None,
            };
            keep(beside.rows(field, &all, |seen| {
                Ok(8e-3 * of_group(&seen.figures, class, part, "mean")?)
            })?);
        }
    }
    keep(costs(field, name, &variant, &all)?);
    Ok(())
}

/// Megabytes that were read for them behind the moment.
pub(super) fn read_for_the_gone(seen: &Seen) -> Result<f64> {
    Ok(bytes(&for_the_gone(seen, 0)?) / 1e6)
}

/// What the disk read of files whose readers had gone: what was done behind the moment,
/// or with `after_ns` what was issued so much later.
fn for_the_gone(seen: &Seen, after_ns: u64) -> Result<Vec<Record>> {
    let moment = seen.ns("moment_ns")?;
    let gone = seen.figures["gone"].as_array().context("nobody is gone")?;
    let gone = gone.iter().filter_map(Value::as_str).map(content::file);
    let is_behind = |record: &Record| match after_ns {
        0 => record.done_ns > moment,
        after => record.queued_ns > moment + after,
    };
    let mut reads = reads_of(seen, &gone.collect())?;
    reads.retain(is_behind);
    Ok(reads)
}

/// What the disk read of these files.
pub(super) fn reads_of(seen: &Seen, files: &BTreeSet<u32>) -> Result<Vec<Record>> {
    // Where most of what was read is not known by content, nothing could be said.
    let is_known = |record: &&Record| content::recognise(&record.head).is_some();
    let known = seen.reads.iter().filter(is_known).count();
    ensure!(
        2 * known >= seen.reads.len(),
        "of {} reads only {known} are of known files",
        seen.reads.len()
    );
    let is_of_them = |record: &&Record| {
        let file = content::recognise(&record.head);
        file.is_some_and(|file| files.contains(&file))
    };
    Ok(seen.reads.iter().filter(is_of_them).copied().collect())
}

pub(super) fn bytes(records: &[Record]) -> f64 {
    // The sum of nothing is -0.
    let sum: f64 = records.iter().map(|record| f64::from(record.length)).sum();
    sum + 0.0
}

/// Seconds from the moment until those that stay have their rates, in the groups at these
/// places; to the end if they do not.
pub(super) fn recovery(seen: &Seen, is_theirs: impl Fn(usize) -> bool) -> Result<f64> {
    let figures = &seen.figures;
    let ns = |name: &str| seen.ns(name);
    let begun = ns("from_ns")?;
    let from = number(&figures["groups"][0], "from_second")?;
    let moment = from + (ns("moment_ns")? - begun) as f64 / 1e9;
    let end = from + (ns("end_ns")? - begun) as f64 / 1e9;
    let groups = figures["groups"].as_array().context("no groups")?;
    let groups = groups.iter().enumerate();
    let groups = groups.filter(|(place, _)| is_theirs(*place));
    let groups: Vec<&Value> = groups.map(|(_, group)| group).collect();
    let mut wanted = 0.0;
    for group in &groups {
        wanted += number(group, "rate")? * number(group, "staying")?;
    }
    let mut second = moment.ceil();
    while second < end.floor() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some seconds"
        )]
        let place = second as usize;
        let parts = groups.iter();
        let got = parts.filter_map(|group| group["per_second"][place].as_f64());
        if got.sum::<f64>() >= RECOVERED * wanted {
            break;
        }
        second += 1.0;
    }
    Ok(second - moment)
}

/// CPU, context switches and system calls on the slow disk, with shares of the streams
/// that read one file.
pub(super) fn shared(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    for percent in [0, 20, 50, 100] {
        let group = Group {
            rate: 0.0,
            ..Group::fast(SHARED)
        };
        let group = group.with(&format!("shared={}", SHARED * percent / 100));
        let seconds = if field.full { 30.0 } else { 4.0 };
        let times = Times {
            ramp: 0.5,
            from: 1.0,
            moment: None,
            end: 1.0 + seconds,
        };
        let all = in_turn(field, rounds(field.full), |field, who| {
            let standing = field.stand_slow(who, MEMORY)?;
            let words = words(who, std::slice::from_ref(&group), times, RECEIVE_BYTES);
            let (figures, calls) = field.load_counted(&standing, &words)?;
            let amount = number(&figures, "bytes")? / 1e6;
            let seconds = number(&figures, "seconds")?;
            // Calls are counted from the first connection on.
            let counted = number(&figures, "bytes_in_all")? / 1e6;
            Ok(Sample {
                cpu_seconds: Some(number(&figures, "server_cpu_seconds")? / amount),
                switches: Some(number(&figures, "server_context_switches")? / amount),
                calls: Some(calls / counted),
                ..Sample::of_rate(amount / seconds)
            })
        })?;
        let variant = format!("{SHARED} streams without a rate, {percent} % of them read one file");
        let mut results = Vec::new();
        for figure in [Figure::Rate, Figure::Cpu, Figure::Switches, Figure::Calls] {
            for (who, theirs) in &all[1..] {
                let is_threads = *who == Who::Nginx(Variant::Threads);
                let goal = match figure {
                    Figure::Rate => None,
                    _ if percent == 0 && is_threads => Some(4.0),
                    _ => None,
                };
                let name = field.name_of(*who);
                let label = ("shared".to_owned(), variant.clone());
                results.extend(row(label, figure, true, &all[0].1, (&name, theirs), goal));
            }
        }
        keep(results);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crossdock_slowdisk::content::CELL_BYTES;
    use crossdock_slowdisk::record::Kind;
    use serde_json::json;

    use super::*;
    use crate::bench::http::watch::Watched;

    fn read(file: &str, queued_ns: u64, done_ns: u64) -> Record {
        let mut head = [0; CELL_BYTES];
        content::fill(content::file(file), 4096, &mut head);
        Record {
            queued_ns,
            started_ns: queued_ns,
            done_ns,
            offset: 0,
            length: 1000,
            kind: Kind::Read,
            head,
        }
    }

    fn seen(reads: Vec<Record>) -> Seen {
        let group = |per_second: [u32; 6]| json!({"rate": 10.0, "staying": 5, "from_second": 2.0, "per_second": per_second});
        Seen {
            figures: json!({
                "from_ns": 1_000_000_000_u64,
                "moment_ns": 2_500_000_000_u64,
                "end_ns": 5_000_000_000_u64,
                "gone": ["f00001"],
                "groups": [group([0, 0, 90, 40, 45, 60]), group([0, 0, 90, 30, 40, 45])],
            }),
            was_killed: false,
            peak_bytes: 0,
            socket_bytes: 0,
            reads,
            watched: Watched::default(),
        }
    }

    /// Goal: what counts is read for those who are gone, behind the moment; and of that,
    /// as late, what was issued more than the allowed time behind it.
    #[test]
    fn reads_for_the_gone_are_told_from_others() {
        let moment = 2_500_000_000;
        let seen = seen(vec![
            read("f00001", moment - 9, moment - 1),
            read("f00001", moment - 5, moment + 5),
            read("f00001", moment + PATIENCE_NS + 1, moment + 2 * PATIENCE_NS),
            read("f00002", moment + PATIENCE_NS + 1, moment + 2 * PATIENCE_NS),
        ]);
        assert_eq!(bytes(&for_the_gone(&seen, 0).unwrap()), 2000.0);
        assert_eq!(for_the_gone(&seen, PATIENCE_NS).unwrap().len(), 1);
    }

    /// Goal: recovery is the first whole second in which all who stay have their rates.
    #[test]
    fn recovery_is_counted_from_the_moment() {
        // The moment is at 3.5 s; second 4 has 85 of 100, second 5 has 105.
        assert_eq!(recovery(&seen(Vec::new()), |_| true).unwrap(), 1.5);
    }
}
