//! What comes from memory: large files on few and many connections, small files, and a
//! mix of sizes as web servers once had it.

use anyhow::Result;
use serde_json::{Value, json};

use super::ablation::IDSR;
use super::field::{Field, Standing, Who};
use crate::bench::figures::{Figure, Sample, row};
use crate::bench::nfs::number;
use crate::bench::{Keep, webbench};
use crate::rig::nginx::Variant;

/// Connections of `cached`.
const CONNECTIONS: [usize; 3] = [1, 30, 300];
/// Size of each of its files.
const LARGE_BYTES: u64 = 8 << 20;
/// How many there are: connections beyond share them.
const LARGE_FILES: usize = 30;
/// Sizes of `small`.
const SMALL_BYTES: [u64; 3] = [1 << 10, 4 << 10, 16 << 10];
/// Files of each size.
const SMALL_FILES: usize = 100;
/// Files of each size of `mix`.
const MIX_FILES: usize = 20;

/// One kind of load.
struct Work<'text> {
    name: &'text str,
    variant: String,
    words: Vec<String>,
    is_bulk: bool,
    /// Connections, where a picture shows what they change.
    across: Option<usize>,
    goal: fn(Variant, Figure) -> Option<f64>,
}

/// Large files.
pub(super) fn bulk(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    let classes = [format!("prefix=l,count={LARGE_FILES},size={LARGE_BYTES}")];
    let mut all = field.stand_cached(&classes)?;
    for connections in CONNECTIONS {
        let files = connections.min(LARGE_FILES);
        // Groups of at most so many streams as there are files.
        let groups = (0..connections.div_ceil(files))
            .map(|_| format!("--group=name=all,prefix=l,count={files},size={LARGE_BYTES}"));
        let seconds = seconds(field);
        let mut words = vec!["streams".to_owned()];
        words.extend(groups);
        words.push(format!("--seconds={}", seconds + 0.3));
        words.push("--from=0.3".to_owned());
        let plural = if connections == 1 { "" } else { "s" };
        let work = Work {
            name: "cached",
            variant: format!("files of 8 MiB from memory, {connections} connection{plural}"),
            words,
            is_bulk: true,
            across: Some(connections),
            goal: |variant, figure| match (variant, figure) {
                (Variant::Sendfile, Figure::Cpu) => Some(1.0 / 1.1),
                (Variant::Sendfile, Figure::Switches | Figure::Calls) => Some(1.0),
                _ => None,
            },
        };
        measure(field, &mut all, &work, keep)?;
    }
    Ok(())
}

/// IDSR: large files on some connections, with and without it.
pub(super) fn without_idsr(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    let class = format!("count={LARGE_FILES},size={LARGE_BYTES}");
    let put = field.stand_cached(&[format!("prefix=l,{class}")])?;
    drop(put);
    let seconds = seconds(field);
    let words = [
        "streams".to_owned(),
        format!("--group=name=all,prefix=l,{class}"),
        format!("--seconds={}", seconds + 0.3),
        "--from=0.3".to_owned(),
    ];
    let work = Work {
        name: "ablation-idsr",
        variant: format!("files of 8 MiB from memory, {LARGE_FILES} connections"),
        words: words.into(),
        is_bulk: true,
        across: None,
        goal: |_, _| None,
    };
    let mut all = Vec::new();
    for who in [Who::Ours, Who::Without(IDSR)] {
        let standing = field.stand_again(who)?;
        field.load(&standing, &work.words, false)?;
        let mut samples = Vec::new();
        for _ in 0..rounds(field) {
            samples.push(sample(&field.load(&standing, &work.words, true)?, &work)?);
        }
        count_calls(field, &standing, &work, &mut samples)?;
        all.push((who, samples));
    }
    let [(_, ours), (who, theirs)] = all.as_slice() else {
        return Ok(());
    };
    let name = field.name_of(*who);
    let label = || (work.name.to_owned(), work.variant.clone());
    let rows = Figure::ALL.into_iter();
    let rows = rows.flat_map(|it| row(label(), it, true, ours, (&name, theirs), None));
    keep(rows.collect());
    Ok(())
}

/// Small files, connections stay.
pub(super) fn small(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    let class = |bytes| format!("prefix=s{bytes}-,count={SMALL_FILES},size={bytes}");
    let classes = SMALL_BYTES.map(class);
    let mut all = field.stand_cached(&classes)?;
    for bytes in SMALL_BYTES {
        for (connections, pipeline) in [(1, 1), (30, 1), (30, 8)] {
            let plural = if connections == 1 { "" } else { "s" };
            let work = Work {
                name: "small",
                variant: format!(
                    "files of {} KiB, {connections} connection{plural}, {pipeline} on their way",
                    bytes >> 10
                ),
                words: requests(field, &[class(bytes)], connections, pipeline, &[]),
                is_bulk: false,
                across: None,
                goal: requests_goal,
            };
            measure(field, &mut all, &work, keep)?;
        }
    }
    Ok(())
}

/// A mix of sizes.
pub(super) fn mix(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    let classes = webbench::classes(webbench::Mix::Small, MIX_FILES);
    let mut all = field.stand_cached(&classes)?;
    let kinds: [(&str, usize, &[&str]); 3] = [
        ("HTTP/1.0", 1, &["--old"]),
        ("HTTP/1.1, 10 a connection", 1, &["--per-connection=10"]),
        (
            "HTTP/1.1, 10 a connection, pipelined",
            10,
            &["--per-connection=10"],
        ),
    ];
    for (title, pipeline, more) in kinds {
        let work = Work {
            name: "mix",
            variant: format!("sizes as of WebBench, {title}"),
            words: requests(field, &classes, 30, pipeline, more),
            is_bulk: false,
            across: None,
            goal: requests_goal,
        };
        measure(field, &mut all, &work, keep)?;
    }
    Ok(())
}

fn requests_goal(_: Variant, figure: Figure) -> Option<f64> {
    (figure == Figure::Rate).then_some(1.0)
}

fn requests(
    field: &Field<'_>,
    classes: &[String],
    connections: usize,
    pipeline: usize,
    more: &[&str],
) -> Vec<String> {
    let mut words = vec!["requests".to_owned()];
    words.extend(classes.iter().map(|class| format!("--class={class}")));
    words.push(format!("--connections={connections}"));
    words.push(format!("--pipeline={pipeline}"));
    words.push(format!("--seconds={}", seconds(field)));
    words.extend(more.iter().map(|&word| word.to_owned()));
    words
}

fn seconds(field: &Field<'_>) -> f64 {
    if field.full { 5.0 } else { 0.5 }
}

/// All rounds of one load; a result for each variant of nginx and figure.
fn measure(field: &Field<'_>, all: &mut [Standing], work: &Work<'_>, keep: Keep<'_>) -> Result<()> {
    // The files come into memory, and are right.
    for standing in &*all {
        let mut words = work.words.clone();
        words.push("--check".to_owned());
        field.load(standing, &words, false)?;
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); all.len()];
    for _ in 0..rounds(field) {
        for (standing, samples) in all.iter().zip(&mut samples) {
            samples.push(sample(&field.load(standing, &work.words, true)?, work)?);
        }
    }
    for (standing, samples) in all.iter().zip(&mut samples) {
        count_calls(field, standing, work, samples)?;
    }
    let (ours, peers) = samples.split_at(1);
    let mut results = Vec::new();
    for figure in Figure::ALL {
        for (standing, theirs) in all[1..].iter().zip(peers) {
            let Who::Nginx(variant) = standing.who else {
                continue;
            };
            let label = (work.name.to_owned(), work.variant.clone());
            let name = field.name_of(standing.who);
            let goal = (work.goal)(variant, figure);
            let peer = (name.as_str(), theirs.as_slice());
            let mut result = row(label, figure, work.is_bulk, &ours[0], peer, goal);
            if let (Some(result), Some(connections)) = (&mut result, work.across)
                && variant == Variant::Sendfile
            {
                result["series"] = json!("files of 8 MiB");
                result["x"] = json!(connections);
            }
            results.extend(result);
        }
    }
    keep(results);
    Ok(())
}

const fn rounds(field: &Field<'_>) -> usize {
    if field.full { 9 } else { 5 }
}

/// One more run, with system calls counted, from the first connection on.
fn count_calls(
    field: &Field<'_>,
    standing: &Standing,
    work: &Work<'_>,
    samples: &mut [Sample],
) -> Result<()> {
    let (figures, calls) = field.load_counted(standing, &work.words)?;
    let calls = calls
        / match work.is_bulk {
            true => number(&figures, "bytes_in_all")? / 1e6,
            false => amount(&figures, work)?,
        };
    for sample in samples {
        sample.calls = Some(calls);
    }
    Ok(())
}

fn amount(figures: &Value, work: &Work<'_>) -> Result<f64> {
    match work.is_bulk {
        true => Ok(number(figures, "bytes")? / 1e6),
        false => number(figures, "operations"),
    }
}

fn sample(figures: &Value, work: &Work<'_>) -> Result<Sample> {
    let amount = amount(figures, work)?;
    let seconds = number(figures, "seconds")?;
    // Of streams without a rate the time to the first byte says nothing.
    let latency = |name| match work.is_bulk {
        true => Ok(None),
        false => number(figures, name).map(Some),
    };
    Ok(Sample {
        rate: amount / seconds,
        cpu_seconds: Some(number(figures, "server_cpu_seconds")? / amount),
        switches: Some(number(figures, "server_context_switches")? / amount),
        calls: None,
        load_busy: Some(number(figures, "load_cpu_seconds")? / seconds),
        p50_us: latency("p50_us")?,
        p99_us: latency("p99_us")?,
        p999_us: None,
    })
}
