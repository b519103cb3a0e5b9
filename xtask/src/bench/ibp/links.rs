//! Depots behind links with rates: copies (paper, test 4), and what the scheduler makes of depots
//! that are slow, become slow, or are said to be fast.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Field, content};
use crate::bench::Keep;
use crate::bench::figures::Comparison;
use crate::bench::rig_name;
use crate::rig::Life;
use crate::rig::wan::{Links, Wan};

/// Links of equal depots.
const EQUAL: [u32; 6] = [50; 6];
/// Links of others.
const UNEQUAL: [u32; 6] = [100, 50, 50, 20, 10, 5];
/// The client's, where it is no limit.
const WIDE: u32 = 400;
/// The client's, where it is one that five of the equal depots fill as well as six.
const FILLED: u32 = 200;
/// The client's, where it is.
const NARROW: u32 = 20;
const FILM_BYTES: usize = 32 << 20;
const COPIED_BYTES: usize = 8 << 20;
const THREADS: &str = "8";
/// A tenth of what an equal depot had.
const SLOW: u32 = 5;
/// What a depot that slows down, or is thought to be fast, may cost: a tenth of the time.
const COST_GOAL: f64 = 1.0 / 1.1;
/// What depots copying among themselves has to be worth where the uplink limits.
const COPY_GOAL: f64 = 1.2;

/// Three copies on six depots: the client stores all, or one, and depots make the others.
pub(super) fn copies(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let wan = up(field, "copies", &EQUAL, NARROW)?;
    fs::write(wan.local("film"), content(COPIED_BYTES))?;
    let depots = wan.depots_words(6);
    let words = [
        "upload",
        "film",
        "--copies",
        "3",
        "--block-size",
        "1M",
        "--threads",
        THREADS,
        "--depot",
        &depots,
        "--duration",
        "10m",
        "--json",
    ];
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..field.rounds() {
        let name = format!("copied-{round}.xnd");
        let copied = [&words[..], &["-o", &name]].concat();
        ours.push(wan.timed(&copied)?.as_secs_f64());
        direct.push(
            wan.timed(&[&copied[..], &["--direct"]].concat())?
                .as_secs_f64(),
        );
    }
    keep(vec![
        Comparison {
            row: "copies",
            variant: format!("8 MiB, 3 copies on 6 depots, uplink {NARROW} Mbit/s"),
            place: None,
            unit: "s",
            ours: &ours,
            peer: ("the client stores all (--direct)", &direct),
            is_less_better: true,
            goal: Some(COPY_GOAL),
        }
        .json(),
    ]);
    Ok(())
}

/// In the middle of a download a depot becomes ten times as slow.
pub(super) fn slow_depot(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    slow_depot_with(field, FILLED, keep)?;
    // Here what the depot does not bring any more nobody can: that alone costs 8 %.
    slow_depot_with(field, WIDE, keep)
}

fn slow_depot_with(field: &Field<'_>, client: u32, keep: Keep<'_>) -> Result<()> {
    let wan = up(field, &format!("slow-{client}"), &EQUAL, client)?;
    upload(&wan)?;
    let (mut slowed, mut even) = (Vec::new(), Vec::new());
    for _ in 0..field.rounds() {
        let whole = download(&wan, "off")?;
        even.push(whole.as_secs_f64());
        let taken = thread::scope(|scope| {
            let taking = scope.spawn(|| download(&wan, "off"));
            thread::park_timeout(whole / 2);
            wan.set_rate(0, SLOW)?;
            taking
                .join()
                .unwrap_or_else(|_| anyhow::bail!("it has panicked"))
        });
        wan.set_rate(0, EQUAL[0])?;
        slowed.push(taken?.as_secs_f64());
    }
    keep(vec![
        Comparison {
            row: "slow-depot",
            variant: format!(
                "32 MiB from 6 depots (50 Mbit/s each, 2 copies) to a client of {client}, one depot at 5 Mbit/s after half of the time"
            ),
            place: None,
            unit: "s",
            ours: &slowed,
            peer: ("none becomes slow", &even),
            is_less_better: true,
            goal: Some(COST_GOAL),
        }
        .json(),
    ]);
    Ok(())
}

/// The slowest depot is thought to be ten times as fast as the fastest.
pub(super) fn false_forecast(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let wan = up(field, "false", &UNEQUAL, WIDE)?;
    upload(&wan)?;
    let (mut misled, mut told) = (Vec::new(), Vec::new());
    for _ in 0..field.rounds() {
        forecasts(&wan, "true.json", |_, rate| rate)?;
        told.push(download(&wan, "true.json")?.as_secs_f64());
        let fastest = f64::from(UNEQUAL[0]);
        let is_slowest = |depot| depot + 1 == UNEQUAL.len();
        let lie = |depot, rate| {
            if is_slowest(depot) {
                10.0 * fastest
            } else {
                rate
            }
        };
        forecasts(&wan, "false.json", lie)?;
        misled.push(download(&wan, "false.json")?.as_secs_f64());
    }
    keep(vec![
        Comparison {
            row: "false-forecast",
            variant: unequal("the slowest is thought to be the fastest"),
            place: None,
            unit: "s",
            ours: &misled,
            peer: ("true forecasts", &told),
            is_less_better: true,
            goal: Some(COST_GOAL),
        }
        .json(),
    ]);
    Ok(())
}

/// What forecasts are worth.
pub(super) fn no_forecasts(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let wan = up(field, "none", &UNEQUAL, WIDE)?;
    upload(&wan)?;
    let (mut told, mut ignorant) = (Vec::new(), Vec::new());
    for _ in 0..field.rounds() {
        forecasts(&wan, "true.json", |_, rate| rate)?;
        told.push(download(&wan, "true.json")?.as_secs_f64());
        ignorant.push(download(&wan, "off")?.as_secs_f64());
    }
    keep(vec![
        Comparison {
            row: "forecasts",
            variant: unequal("known, or not"),
            place: None,
            unit: "s",
            ours: &told,
            peer: ("without forecasts", &ignorant),
            is_less_better: true,
            goal: Some(1.0),
        }
        .json(),
    ]);
    Ok(())
}

fn unequal(what: &str) -> String {
    format!("32 MiB from 6 depots (100, 50, 50, 20, 10, 5 Mbit/s; 2 copies): {what}")
}

fn up(field: &Field<'_>, name: &str, rates: &[u32], client: u32) -> Result<Wan> {
    let folder = field.folder(name)?;
    let links = Links::new(rates, client);
    Wan::up(field.paths, &rig_name(), &folder, links, Life::OfXtask)
}

/// Two copies, spread over all depots.
fn upload(wan: &Wan) -> Result<()> {
    fs::write(wan.local("film"), content(FILM_BYTES))?;
    let depots = wan.depots_words(6);
    wan.timed(&[
        "upload",
        "film",
        "--copies",
        "2",
        "--block-size",
        "1M",
        "--direct",
        "--depot",
        &depots,
        "--duration",
        "1h",
        "--json",
        "--timeout",
        "60s",
    ])?;
    Ok(())
}

fn download(wan: &Wan, forecasts: &str) -> Result<Duration> {
    let taken = wan.timed(&[
        "download",
        "film.xnd",
        "-o",
        "out",
        "--force",
        "--threads",
        THREADS,
        "--forecasts",
        forecasts,
        "--json",
    ])?;
    let film = fs::read(wan.local("film"))?;
    ensure!(fs::read(wan.local("out"))? == film, "other bytes");
    Ok(taken)
}

/// A file in which each depot has been measured, with a rate of `said` Mbit/s.
fn forecasts(wan: &Wan, name: &str, said: impl Fn(usize, f64) -> f64) -> Result<()> {
    let depots = wan.addresses().into_iter().zip(UNEQUAL).enumerate();
    let series = depots.map(|(depot, (address, mbit))| {
        let rate = said(depot, f64::from(mbit)) * 1e6 / 8.0;
        json!(["here", address.to_string(), "bandwidth", vec![rate; 8]])
    });
    let series: Vec<_> = series.collect();
    let file = json!({"version": 1, "series": series});
    Ok(fs::write(wan.local(name), serde_json::to_vec(&file)?)?)
}
