//! The defragmenter of an ensemble: a manager has what all nodes have of a file put together, or all
//! that they have; each node has its time of the day, also when it starts again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use crossdock_tests_crash::client::Client;
use serde_json::Value;

use super::Processes;
use super::members::{Ensemble, Member};
use crate::suite::Stage;
use crate::suite::cli::defrag::window_of_now;
use crate::suite::cli::job::{self, BIG_BYTES};

/// Files that are written in turns.
const NAMES: [&str; 3] = ["turn-a", "turn-b", "turn-c"];

/// How long a node may take to begin at its time, and to come to the end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn check(
    stage: &Stage<'_>,
    ensemble: &Ensemble<'_>,
    processes: &mut Processes<'_>,
) -> Result<()> {
    let mut client = Client::connect(processes.gateways[0].door("nfs")?)?;
    job::write_in_turns(&mut client, &NAMES, BIG_BYTES)?;
    let manager = &processes.managers[0];
    refusals(ensemble, processes)?;
    let one = defrag(ensemble, manager, &["--file", "/turn-a"])?;
    ensure!(
        one["path"] == "/turn-a"
            && one["running"] == false
            && one["errors"] == serde_json::json!([])
            && number(&one, "/moved_blocks") > 0
            && number(&one, "/found/runs") > number(&one, "/left/runs")
            && number(&one, "/left/runs") == number(&one, "/left/objects"),
        "{one}"
    );
    let mut moved = 0;
    for node in &processes.nodes {
        let status = defrag(ensemble, node, &["status"])?;
        ensure!(status["path"] == "/turn-a", "{}: {status}", node.name());
        moved += number(&status, "/moved_blocks");
    }
    ensure!(
        moved == number(&one, "/moved_blocks"),
        "the nodes moved {moved}: {one}"
    );
    let all = defrag(ensemble, manager, &["--now"])?;
    ensure!(
        all["running"] == false
            && all["path"].is_null()
            && number(&all, "/found/objects") > number(&one, "/found/objects")
            && number(&all, "/found/runs") > number(&all, "/left/runs")
            && number(&all, "/left/sequential_percent") >= 90
            && number(&all, "/free/blocks") > 0,
        "{all}"
    );
    for status in [&one, &all] {
        expect_passes(status, processes.nodes.len())?;
    }
    for name in NAMES {
        let statuses = job::read(&mut client, name, BIG_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
    }
    println!(
        "{} and {} blocks moved",
        number(&one, "/moved_blocks"),
        number(&all, "/moved_blocks")
    );
    schedules(stage, ensemble, processes)
}

/// All nodes have come to the end, and the sum is of what each has moved.
fn expect_passes(status: &Value, nodes: usize) -> Result<()> {
    let passes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let moved: u64 = passes.iter().map(|it| number(it, "/moved_blocks")).sum();
    ensure!(
        passes.len() == nodes
            && passes.iter().all(|it| it["state"] == "done")
            && moved == number(status, "/moved_blocks"),
        "{status}"
    );
    Ok(())
}

fn schedules(
    stage: &Stage<'_>,
    ensemble: &Ensemble<'_>,
    processes: &mut Processes<'_>,
) -> Result<()> {
    let window = window_of_now()?;
    let set = defrag(ensemble, &processes.nodes[1], &["--schedule", &window])?;
    ensure!(set["schedule"] == window.as_str(), "{set}");
    let other = defrag(ensemble, &processes.nodes[0], &["status"])?;
    ensure!(other["schedule"].is_null(), "{other}");
    await_pass(ensemble, &processes.nodes[1])?;
    processes.nodes[1].kill();
    processes.nodes[1].restart(stage)?;
    processes.await_whole(stage)?;
    let kept = defrag(ensemble, &processes.nodes[1], &["status"])?;
    ensure!(kept["schedule"] == window.as_str(), "{kept}");
    await_pass(ensemble, &processes.nodes[1])?;

    let manager = &processes.managers[0];
    for (said, expected) in [
        ("03:00-03:01", serde_json::json!("03:00-03:01")),
        ("off", Value::Null),
    ] {
        defrag(ensemble, manager, &["--schedule", said])?;
        for member in processes.nodes.iter().chain([manager]) {
            let status = await_status(ensemble, member, |it| it["schedule"] == expected)?;
            ensure!(
                status["schedule"] == expected,
                "{}: {status}",
                member.name()
            );
        }
    }
    Ok(())
}

fn await_pass(ensemble: &Ensemble<'_>, node: &Member<'_>) -> Result<()> {
    let is_over = |it: &Value| it["scheduled"] == true && it["running"] == false;
    let status = await_status(ensemble, node, is_over)?;
    ensure!(is_over(&status), "no pass at its time: {status}");
    Ok(())
}

/// The first status that is so, or the last one before patience ends.
fn await_status(
    ensemble: &Ensemble<'_>,
    member: &Member<'_>,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let began = Instant::now();
    loop {
        let status = defrag(ensemble, member, &["status"])?;
        if is_so(&status) || began.elapsed() > PATIENCE {
            return Ok(status);
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// What is said to the wrong process, or is no file, is refused with a next step.
fn refusals(ensemble: &Ensemble<'_>, processes: &Processes<'_>) -> Result<()> {
    let say = |member: &Member<'_>, words: &[&str]| {
        let admin = member.door("admin")?.to_string();
        ensemble.finish(&[&["defrag"], words, &["--admin", &admin]].concat())
    };
    let file = ["--file", "/turn-a"];
    say(&processes.gateways[0], &["--now"])?.expect(1, &["managers", "admin port"])?;
    say(&processes.nodes[0], &file)?.expect(1, &["managers", "admin port"])?;
    let manager = &processes.managers[0];
    say(manager, &["--file", "/no-such"])?.expect(1, &["the volume has no /no-such"])?;
    say(manager, &["stop"])?.expect(1, &["no pass is at work"])
}

/// Says `crossdock defrag …` to a process.
fn defrag(ensemble: &Ensemble<'_>, member: &Member<'_>, words: &[&str]) -> Result<Value> {
    let admin = member.door("admin")?.to_string();
    let all = [&["defrag"], words, &["--json", "--admin", &admin]].concat();
    ensemble.finish(&all)?.json(0)
}

fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_default()
}
