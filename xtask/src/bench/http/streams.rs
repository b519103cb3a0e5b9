//! Streams from a slow disk in little memory: how many reach their rates, and what comes
//! of the others when more arrive.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use crossdock_slowdisk::content;
use crossdock_slowdisk::record::{Kind, Record};
use serde_json::Value;

use super::field::{Field, Who};
use super::watch::{self, Watched};
use crate::bench::Keep;
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::rig::line::Line;

/// Files of fast streams: as many as any row has.
const FAST_FILES: usize = 330;
const FAST_BYTES: u64 = 4 << 20;
/// The same of slow ones.
const SLOW_FILES: usize = 300;
const SLOW_BYTES: u64 = 2 << 20;
/// 1 Mb/s and 200 kb/s, in bytes per second.
pub(super) const FAST_RATE: f64 = 125e3;
pub(super) const SLOW_RATE: f64 = 25e3;
/// Streams of each class, as in the text (TPF, evaluation).
pub(super) const FAST: usize = 180;
pub(super) const SLOW: usize = 120;
/// A stream has its rate if it reaches so much of it.
pub(super) const ENOUGH: f64 = 0.95;

/// Figures of delivery.
const BUFFERING: &str = "buffering_seconds";
const RESIDENCE: &str = "residence";
const RESIDENCE_PERCENT: &str = "residence_percent";
const THROWN_AWAY: &str = "thrown_away_bytes";

/// Of a client's buffer, as players do: with a larger one the kernel would hide the disk.
pub(super) const RECEIVE_BYTES: u32 = 16 << 10;

pub(super) const LITTLE_MEMORY: u64 = 96 << 20;
pub(super) const MEMORY: u64 = 256 << 20;

/// Streams of one class.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Which files are theirs.
    pub(super) files: Files,
    /// The number of the first of them.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) rate: f64,
    /// The path of the line that they are at the end of, instead of near.
    pub(super) path: Option<u8>,
    /// More words of the load generator.
    pub(super) more: String,
}

/// Files that [`prepare`] makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Files {
    Fast,
    Slow,
}

impl Group {
    pub(super) fn fast(count: usize) -> Self {
        Self {
            name: "fast",
            files: Files::Fast,
            first: 0,
            count,
            rate: FAST_RATE,
            path: None,
            more: String::new(),
        }
    }

    pub(super) fn slow(count: usize) -> Self {
        Self {
            name: "slow",
            files: Files::Slow,
            rate: SLOW_RATE,
            ..Self::fast(count)
        }
    }

    /// The same with more words.
    pub(super) fn with(mut self, words: &str) -> Self {
        self.more.push(',');
        self.more.push_str(words);
        self
    }

    fn word(&self, who: Who, ramp: f64) -> String {
        let (prefix, size) = match self.files {
            Files::Fast => ("f", FAST_BYTES),
            Files::Slow => ("s", SLOW_BYTES),
        };
        let Self {
            name,
            first,
            count,
            rate,
            path,
            more,
            ..
        } = self;
        let server = path.map_or_else(String::new, |path| {
            format!(",server={}", Line::server(path, who.port()))
        });
        format!(
            "--group=name={name},prefix={prefix},size={size},first={first},count={count},\
             rate={rate},ramp={ramp}{server}{more}"
        )
    }

    /// The files that its streams read, by what is known of their content.
    pub(super) fn contents(&self) -> BTreeSet<u32> {
        let prefix = match self.files {
            Files::Fast => "f",
            Files::Slow => "s",
        };
        let numbers = self.first..self.first + self.count;
        numbers
            .map(|number| content::file(&format!("{prefix}{number:05}")))
            .collect()
    }
}

/// How long a run is, and what is told apart in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Seconds from the first stream to the last.
    pub(super) ramp: f64,
    /// From when on rates are measured.
    pub(super) from: f64,
    pub(super) moment: Option<f64>,
    pub(super) end: f64,
}

impl Times {
    pub(super) const fn steady(full: bool) -> Self {
        match full {
            true => Self {
                ramp: 10.0,
                from: 20.0,
                moment: None,
                end: 80.0,
            },
            false => Self {
                ramp: 5.0,
                from: 8.0,
                moment: None,
                end: 18.0,
            },
        }
    }
}

/// What a run has shown.
pub(super) struct Seen {
    pub(super) figures: Value,
    pub(super) was_killed: bool,
    pub(super) peak_bytes: u64,
    /// Buffers of its sockets, at most: the group's limit is without them.
    pub(super) socket_bytes: u64,
    /// What was read from the disk from the first measured moment to the end.
    pub(super) reads: Vec<Record>,
    /// What delivery of ours told meanwhile.
    pub(super) watched: Watched,
}

impl Seen {
    /// A time of the run, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn ns(&self, name: &str) -> Result<u64> {
        self.figures[name].as_u64().context("no time")
    }
}

/// The files of all rows on the slow disk.
pub(super) fn prepare(field: &mut Field<'_>) -> Result<()> {
    field.prepare_disks(&[
        format!("prefix=f,count={FAST_FILES},size={FAST_BYTES}"),
        format!("prefix=s,count={SLOW_FILES},size={SLOW_BYTES}"),
    ])
}

/// One server alone on its disk, with these streams.
pub(super) fn run(
    field: &mut Field<'_>,
    who: Who,
    memory_bytes: u64,
    groups: &[Group],
    times: Times,
) -> Result<Seen> {
    let words = words(who, groups, times, RECEIVE_BYTES);
    run_words(field, who, memory_bytes, &words, |_| Ok(()))
}

/// The same with these words; `meanwhile` is done beside it, from its beginning on.
pub(super) fn run_words(
    field: &mut Field<'_>,
    who: Who,
    memory_bytes: u64,
    words: &[String],
    meanwhile: impl FnOnce(&Field<'_>) -> Result<()>,
) -> Result<Seen> {
    let standing = field.stand_slow(who, memory_bytes)?;
    let field = &*field;
    let load = || {
        let load = field.load_beside(&standing, words)?;
        meanwhile(field)?;
        load.figures()
    };
    let (figures, watched) = match standing.is_ours() {
        true => watch::beside(field.network(), load)?,
        false => (load()?, Watched::default()),
    };
    let mut seen = Seen {
        was_killed: standing.was_killed()?,
        peak_bytes: standing.peak_bytes()?,
        socket_bytes: standing.socket_bytes(),
        reads: Vec::new(),
        watched,
        figures,
    };
    let asked = field.disk(who)?;
    let asked = asked.asked(seen.ns("from_ns")?, seen.ns("end_ns")?)?;
    seen.reads
        .extend(asked.iter().filter(|it| it.kind == Kind::Read));
    Ok(seen)
}

/// Words of the load generator.
pub(super) fn words(who: Who, groups: &[Group], times: Times, receive_bytes: u32) -> Vec<String> {
    let mut words = vec!["streams".to_owned()];
    words.extend(groups.iter().map(|group| group.word(who, times.ramp)));
    words.push(format!("--from={}", times.from));
    words.push(format!("--seconds={}", times.end));
    if let Some(moment) = times.moment {
        words.push(format!("--moment={moment}"));
    }
    words.push(format!("--receive-buffer={receive_bytes}"));
    words.push("--segment=1448".to_owned());
    words
}

/// A figure of the first or last part of a run, of one class.
pub(super) fn of_group(figures: &Value, group: usize, part: &str, name: &str) -> Result<f64> {
    let group = &figures["groups"][group];
    // Without streams that were served there is no spread.
    match &group[part] {
        Value::Null => Ok(0.0),
        spread => number(spread, name),
    }
}

/// Ours beside each variant of nginx, from what each run has shown.
pub(super) struct Beside<'row> {
    pub(super) row: &'row str,
    pub(super) variant: String,
    pub(super) unit: &'row str,
    pub(super) is_less_better: bool,
    pub(super) goal: Option<f64>,
}

impl Beside<'_> {
    /// `figure` is read out of each run; the first of `all` is ours. The goal is beside
    /// the peer that is best at this.
    pub(super) fn rows<T>(
        &self,
        field: &Field<'_>,
        all: &[(Who, Vec<T>)],
        figure: impl Fn(&T) -> Result<f64>,
    ) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for (who, seen) in all {
            let found: Vec<f64> = seen.iter().map(&figure).collect::<Result<_>>()?;
            values.push((*who, found));
        }
        let ((_, ours), peers) = values.split_first().context("nobody")?;
        let median = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let best = peers.iter().map(|(_, values)| median(values));
        let best = match self.is_less_better {
            true => best.fold(f64::INFINITY, f64::min),
            false => best.fold(0.0, f64::max),
        };
        let rows = peers.iter().map(|(who, theirs)| {
            let name = field.name_of(*who);
            let is_best = median(theirs) == best;
            let comparison = Comparison {
                row: self.row,
                variant: self.variant.clone(),
                place: None,
                unit: self.unit,
                ours,
                peer: (&name, theirs),
                is_less_better: self.is_less_better,
                goal: self.goal.filter(|_| is_best),
            };
            comparison.json()
        });
        Ok(rows.collect())
    }
}

/// A figure of ours beside what it is to reach, or not to exceed.
pub(super) fn limit(
    row: &str,
    variant: &str,
    unit: &str,
    ours: &[f64],
    limit: (&str, &[f64]),
    is_less_better: bool,
) -> Value {
    let comparison = Comparison {
        row,
        variant: variant.to_owned(),
        place: None,
        unit,
        ours,
        peer: limit,
        is_less_better,
        goal: Some(1.0),
    };
    comparison.json()
}

/// Runs ours and all of nginx in turn.
pub(super) fn in_turn<T>(
    field: &mut Field<'_>,
    rounds: usize,
    one: impl FnMut(&mut Field<'_>, Who) -> Result<T>,
) -> Result<Vec<(Who, Vec<T>)>> {
    each_in_turn(field, &Who::ALL, rounds, one)
}

/// Runs these in turn.
pub(super) fn each_in_turn<T>(
    field: &mut Field<'_>,
    who: &[Who],
    rounds: usize,
    mut one: impl FnMut(&mut Field<'_>, Who) -> Result<T>,
) -> Result<Vec<(Who, Vec<T>)>> {
    let mut all: Vec<(Who, Vec<T>)> = who.iter().map(|who| (*who, Vec::new())).collect();
    for _ in 0..rounds {
        for (who, seen) in &mut all {
            let name = field.name_of(*who);
            eprintln!("  {name}");
            seen.push(one(field, *who).context(name)?);
        }
    }
    Ok(all)
}

/// Rounds of rows on the slow disk, in which a run takes long enough to be even.
pub(super) const fn rounds(full: bool) -> usize {
    if full { 3 } else { 1 }
}

/// All streams in 96 MB.
pub(super) fn streams(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let groups = [Group::fast(FAST), Group::slow(SLOW)];
    let times = Times::steady(field.full);
    let all = in_turn(field, rounds(field.full), |field, who| {
        run(field, who, LITTLE_MEMORY, &groups, times)
    })?;
    let variant = format!("{FAST} streams at 1 Mb/s, {SLOW} at 200 kb/s, in 96 MB");
    for (class, goal) in [(0, Some(1.0)), (1, Some(1.0))] {
        let name = groups[class].name;
        let beside = Beside {
            row: &format!("streams-{name}"),
            variant: variant.clone(),
            unit: "% of streams at ≥ 95 %",
            is_less_better: false,
            goal,
        };
        keep(beside.rows(field, &all, |seen| {
            Ok(100.0 * of_group(&seen.figures, class, "before", "reached")?)
        })?);
        let rate = Beside {
            row: &format!("streams-{name}-rate"),
            variant: variant.clone(),
            unit: "kb/s mean",
            is_less_better: false,
            goal: None,
        };
        keep(rate.rows(field, &all, |seen| {
            Ok(8e-3 * of_group(&seen.figures, class, "before", "mean")?)
        })?);
    }
    if field.is_of_crossdock() {
        keep(residence(&variant, &all[0].1)?);
    }
    keep(costs(field, "streams", &variant, &all)?);
    Ok(())
}

/// How long what was read waits in memory, which is not to be longer than T_D, for which it
/// was read; and what was read for nothing.
fn residence(variant: &str, ours: &[Seen]) -> Result<Vec<Value>> {
    let each = |figure: &dyn Fn(&Watched, u64, u64) -> Result<f64>| {
        let figures = ours.iter();
        let figures =
            figures.map(|seen| figure(&seen.watched, seen.ns("from_ns")?, seen.ns("end_ns")?));
        figures.collect::<Result<Vec<f64>>>()
    };
    let buffering = each(&|it, from, to| it.median(BUFFERING, from, to))?;
    let mut rows = Vec::new();
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let found = each(&|it, from, to| Ok(it.quantile(RESIDENCE, part, from, to)? / 1e6))?;
        rows.push(limit(
            &format!("streams-residence-{name}"),
            variant,
            "s from the disk to the network",
            &found,
            ("T_D", &buffering),
            true,
        ));
        // Slow streams have a longer one of their own.
        let found = each(&|it, from, to| it.quantile(RESIDENCE_PERCENT, part, from, to))?;
        rows.push(limit(
            &format!("streams-residence-own-{name}"),
            variant,
            "% of the stream's own T_D",
            &found,
            ("its own T_D", &[100.0]),
            true,
        ));
    }
    let thrown_away = each(&|it, from, to| it.grown(THROWN_AWAY, from, to))?;
    rows.push(limit(
        "streams-thrown-away",
        variant,
        "bytes read and not sent",
        &thrown_away,
        ("none", &[0.0]),
        true,
    ));
    Ok(rows)
}

/// What all runs on the disk are asked besides.
pub(super) fn costs(
    field: &Field<'_>,
    row: &str,
    variant: &str,
    all: &[(Who, Vec<Seen>)],
) -> Result<Vec<Value>> {
    type Read = fn(&Seen) -> Result<f64>;
    let figures: [(&str, &str, bool, Option<f64>, Read); 9] = [
        ("first-byte-p99", "ms", true, None, |seen| {
            Ok(number(&seen.figures, "p99_us")? / 1e3)
        }),
        (
            "read-again",
            "bytes read for a byte sent",
            true,
            None,
            |seen| {
                let read: f64 = seen.reads.iter().map(|it| f64::from(it.length)).sum();
                Ok(read / number(&seen.figures, "bytes")?.max(1.0))
            },
        ),
        ("disk-busy", "% of the time", true, None, |seen| {
            let times = seen.reads.iter().map(|it| it.done_ns - it.started_ns);
            let busy = times.sum::<u64>() as f64 / 1e9;
            Ok(100.0 * busy / number(&seen.figures, "seconds")?)
        }),
        ("requests", "disk requests/s", false, None, |seen| {
            Ok(seen.reads.len() as f64 / number(&seen.figures, "seconds")?)
        }),
        ("request-size", "KiB a disk request", false, None, |seen| {
            let read: f64 = seen.reads.iter().map(|it| f64::from(it.length)).sum();
            Ok(read / 1024.0 / (seen.reads.len().max(1) as f64))
        }),
        ("memory", "MB at most", true, None, |seen| {
            Ok(seen.peak_bytes as f64 / 1e6)
        }),
        (
            "sockets",
            "MB of their buffers at most",
            true,
            None,
            |seen| Ok(seen.socket_bytes as f64 / 1e6),
        ),
        (
            "load-late",
            "ms of turns of the load, p99",
            true,
            None,
            |seen| Ok(number(&seen.figures["late"], "p99_us")? / 1e3),
        ),
        ("killed", "killed for memory", true, None, |seen| {
            Ok(f64::from(u8::from(seen.was_killed)))
        }),
    ];
    let mut rows = Vec::new();
    for (name, unit, is_less_better, goal, figure) in figures {
        let beside = Beside {
            row: &format!("{row}-{name}"),
            variant: variant.to_owned(),
            unit,
            is_less_better,
            goal,
        };
        rows.extend(beside.rows(field, all, figure)?);
    }
    let groups = all.first().and_then(|(_, seen)| seen.first());
    let groups = groups.and_then(|seen| seen.figures["groups"].as_array());
    for (class, group) in groups.context("no groups")?.iter().enumerate() {
        let beside = Beside {
            row: &format!(
                "{row}-{}-fairness",
                group["name"].as_str().context("no name")?
            ),
            variant: variant.to_owned(),
            unit: "Jain's index",
            is_less_better: false,
            goal: None,
        };
        rows.extend(beside.rows(field, all, |seen| {
            // Behind the moment, where there is one.
            let part = match seen.figures["groups"][class]["behind"] {
                Value::Null => "before",
                _ => "behind",
            };
            of_group(&seen.figures, class, part, "fairness")
        })?);
    }
    Ok(rows)
}

/// 200 more slow streams come.
pub(super) fn crowd(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    prepare(field)?;
    let scale = if field.full { 2.5 } else { 1.0 };
    let times = Times {
        ramp: 5.0 * scale,
        from: 8.0 * scale,
        moment: Some(14.0 * scale),
        end: 24.0 * scale,
    };
    let later = format!("start={}", 14.0 * scale);
    let groups = [
        Group::fast(FAST),
        Group::slow(100),
        Group {
            name: "late",
            ..Group::slow(200)
        }
        .with(&later),
    ];
    let all = in_turn(field, rounds(field.full), |field, who| {
        run(field, who, MEMORY, &groups, times)
    })?;
    let variant =
        format!("{FAST} streams at 1 Mb/s, 100 at 200 kb/s, then 300 of these; in 256 MB");
    for (class, part, title) in [
        (0, "before", "crowd-fast-before"),
        (0, "behind", "crowd-fast-after"),
        (1, "before", "crowd-slow-before"),
        (1, "behind", "crowd-slow-after"),
    ] {
        let beside = Beside {
            row: title,
            variant: variant.clone(),
            unit: "kb/s mean",
            is_less_better: false,
            goal: None,
        };
        keep(beside.rows(field, &all, |seen| {
            Ok(8e-3 * of_group(&seen.figures, class, part, "mean")?)
        })?);
    }
    keep(costs(field, "crowd", &variant, &all)?);
    Ok(())
}
