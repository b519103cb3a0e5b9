//! Defragmentation of a running server: files in many runs become files in few, hold what
//! they held, also after a restart; the time of the day lasts; what an administrator may get
//! wrong.

use std::process::Stdio;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use crossdock_tests_crash::client::Client;
use serde_json::Value;

use super::job::{self, BIG_BYTES};
use super::program::{Finished, Up, crossdock};
use super::service;
use crate::suite::Stage;

/// Files that are written in turns.
const NAMES: [&str; 3] = ["turn-a", "turn-b", "turn-c"];

pub(super) fn passes(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    job::write_in_turns(&mut client, &NAMES, BIG_BYTES)?;
    let defrag = |words: &[&str]| up.ask(stage, &[&["defrag"], words].concat());
    let idle = defrag(&["status"])?.json(0)?;
    ensure!(
        idle["running"] == false && idle["schedule"].is_null(),
        "{idle}"
    );

    let one = defrag(&["--file", "/turn-a"])?.json(0)?;
    ensure!(
        one["path"] == "/turn-a"
            && number(&one, "/moved_blocks") > 0
            && number(&one, "/found/runs") > number(&one, "/left/runs")
            && number(&one, "/left/runs") == number(&one, "/left/objects"),
        "{one}"
    );
    let all = defrag(&["--now"])?.json(0)?;
    ensure!(
        all["running"] == false
            && all["errors"] == serde_json::json!([])
            && number(&all, "/found/objects") > number(&one, "/found/objects")
            && number(&all, "/found/runs") > number(&all, "/left/runs")
            && number(&all, "/left/sequential_percent") >= 90
            && number(&all, "/free/blocks") > 0,
        "{all}"
    );
    let status = defrag(&["status"])?.json(0)?;
    ensure!(status == all, "{status}\n{all}");
    for name in NAMES {
        let statuses = job::read(&mut client, name, BIG_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
    }
    refusals(&defrag)?;
    stopped(stage, &up, &mut client)?;
    let window = window_of_now()?;
    let set = defrag(&["--schedule", &window])?.json(0)?;
    ensure!(set["schedule"] == window.as_str(), "{set}");
    up.stop()?;

    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    for name in NAMES {
        let statuses = job::read(&mut client, name, BIG_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
    }
    let kept = up.ask(stage, &["defrag", "status"])?.json(0)?;
    ensure!(kept["schedule"] == window.as_str(), "{kept}");
    // That is now: it begins by itself.
    let is_done = |status: &Value| status["scheduled"] == true && status["running"] == false;
    while !is_done(&up.ask(stage, &["defrag", "status"])?.json(0)?) {
        ensure!(Instant::now() < stage.deadline, "no pass at its time");
    }
    let off = up.ask(stage, &["defrag", "--schedule", "off"])?.json(0)?;
    ensure!(off["schedule"].is_null(), "{off}");
    up.stop()?;
    Ok(())
}

/// A pass that waits for clients is ended by order; whoever waits for its end hears of it.
fn stopped(stage: &Stage<'_>, up: &Up, client: &mut Client) -> Result<()> {
    let defrag = |words: &[&str]| up.ask(stage, &[&["defrag"], words].concat());
    defrag(&["stop"])?.expect(1, &["no pass is at work"])?;
    let names = ["again-a", "again-b"];
    job::write_in_turns(client, &names, BIG_BYTES)?;
    let mut waiting = crossdock(stage, &["defrag", "--now", "--admin", &up.admin]);
    let mut waiting = waiting
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    loop {
        let statuses = job::read(client, names[0], BIG_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{statuses:?}");
        if defrag(&["status"])?.json(0)?["running"] == true {
            break;
        }
        ensure!(Instant::now() < stage.deadline, "it never begins");
        ensure!(waiting.try_wait()?.is_none(), "it waits for nobody");
    }
    let status = defrag(&["stop"])?.json(0)?;
    ensure!(
        status["running"] == false && status["stopped"] == true,
        "{status}"
    );
    ensure!(waiting.wait()?.success(), "who waits hears of no end");
    let whole = defrag(&["--now"])?.json(0)?;
    ensure!(whole["stopped"] == false, "{whole}");
    for name in names {
        let statuses = job::read(client, name, BIG_BYTES)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
    }
    Ok(())
}

fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_default()
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(defrag: &dyn Fn(&[&str]) -> Result<Finished>) -> Result<()> {
    defrag(&["--file", "/no-such-file"])?.expect(1, &["the volume has no /no-such-file"])?;
    defrag(&["--file", "/"])?.expect(1, &["/ is a directory", "--now"])?;
    defrag(&["--file", "turn-a"])?.expect(1, &["has to begin with /"])?;
    defrag(&["--schedule", "2-5"])?.expect(1, &["like 02:00-05:00"])?;
    defrag(&[])?.expect(2, &["--now"])?;
    defrag(&["--now", "--file", "/turn-a"])?.expect(2, &["--file"])?;
    Ok(())
}

/// A time of the day that has begun an hour ago at least, and does not end for some.
pub(in crate::suite) fn window_of_now() -> Result<String> {
    let hour = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 3600 % 24;
    Ok(format!(
        "{:02}:30-{:02}:00",
        (hour + 22) % 24,
        (hour + 12) % 24
    ))
}
