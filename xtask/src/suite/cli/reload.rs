//! The configuration file read again while the server runs (SIGHUP): what can change
//! changes, what cannot is named, and a file with a mistake changes nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::{Call, Getattr};
use crossdock_tests_crash::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::program::{Up, crossdock, text};
use crate::suite::Stage;
use crate::suite::metrics;

/// How long it may take until the log says what became of it.
const PATIENCE: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Nothing is slow, and the log has warnings only.
const FIRST: &str = "\
nodes = 2
cache = \"8M\"
slow_ms = 60000
log = \"warn\"
";

/// A number where there is a text, at line 3, column 11.
const MISTAKEN: &str = "\
nodes = 2
cache = \"12M\"
slow_ms = \"soon\"
log = \"info\"
";

/// All that can change, and two that cannot; the flag wins over what is said of NFS.
const SECOND: &str = "\
nodes = 3
cache = \"16M\"
slow_ms = 0
log = \"info\"
disk_depth = 7
rebuild_rate = \"1M\"
request_memory = \"32M\"
grace = 9
nfs = \"127.0.0.1:1\"
";

const LIVE: &str = "cache, disk_depth, log, rebuild_rate, request_memory, slow_ms";

const REFUSED: &str = "the configuration is not changed: the file is refused";
const READ: &str = "the configuration was read again";
const UNCHANGED: &str = "the configuration was read again: nothing has changed";
const RESTART: &str = "these keys have changed and need a restart";

pub(super) fn file(stage: &Stage<'_>) -> Result<()> {
    let (path, data) = (
        stage.folder.join("reload.toml"),
        stage.folder.join("reload"),
    );
    fs::write(&path, FIRST)?;
    let words = ["up", "--config", text(&path)?, "--data", text(&data)?];
    let up = Up::start_untold(stage, crossdock(stage, &words))?;
    ensure!(
        cache_bytes(&up)? == 8 << 20,
        "the cache is not as the file says"
    );

    fs::write(&path, MISTAKEN)?;
    let refused = reload(&up, REFUSED)?;
    let place = (&refused["line"], &refused["column"]);
    ensure!(*place.0 == 3 && *place.1 == 11, "{refused}");
    let reason = refused["reason"].as_str().context("no reason")?;
    ensure!(reason.contains("slow_ms"), "{refused}");
    ensure!(
        cache_bytes(&up)? == 8 << 20,
        "a mistake has changed the cache"
    );
    ask(&up)?;
    let said = lines(up.log())?;
    ensure!(
        said.iter().all(|line| line["message"] == REFUSED),
        "a mistake has changed what is logged: {said:?}"
    );

    fs::write(&path, SECOND)?;
    let read = reload(&up, READ)?;
    ensure!(read["changed"] == LIVE, "{read}");
    let later = await_line(&up, RESTART, 1)?;
    ensure!(later["keys"] == "grace, nodes", "{later}");
    let deadline = Instant::now() + PATIENCE;
    while cache_bytes(&up)? != 16 << 20 {
        ensure!(Instant::now() < deadline, "the cache is as it was");
        std::thread::park_timeout(LOOK_EVERY);
    }
    ask(&up)?;
    await_line(&up, "slow request", 1)?;

    // What needs a restart is told again; the rest is as the file says.
    let told = reload_again(&up, RESTART, 2)?;
    ensure!(told["keys"] == "grace, nodes", "{told}");
    fs::write(
        &path,
        SECOND
            .replace("nodes = 3", "nodes = 2")
            .replace("grace = 9\n", ""),
    )?;
    reload(&up, UNCHANGED)?;
    up.stop()?;
    Ok(())
}

/// Something that is slow if everything is.
fn ask(up: &Up) -> Result<()> {
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let object = root.as_handle();
    let status = client.call(&Call::Getattr(Getattr { object }))?.status();
    ensure!(status.is_none(), "GETATTR: {status:?}");
    Ok(())
}

/// What both nodes may cache together.
fn cache_bytes(up: &Up) -> Result<u64> {
    metrics::sum(&up.admin, "crossdock_cache_capacity_bytes")
}

/// Has the file read again; the line that begins with `message`.
fn reload(up: &Up, message: &str) -> Result<Value> {
    reload_again(up, message, 1)
}

/// The same, when there are `count` such lines.
fn reload_again(up: &Up, message: &str, count: usize) -> Result<Value> {
    let id = Pid::from_raw(i32::try_from(up.pid())?).context("process id 0")?;
    kill_process(id, Signal::HUP)?;
    await_line(up, message, count)
}

fn await_line(up: &Up, message: &str, count: usize) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = lines(up.log())?;
        let mut found = said.iter().filter(|line| line["message"] == message);
        if let Some(line) = found.nth(count - 1) {
            return Ok(line.clone());
        }
        ensure!(Instant::now() < deadline, "no {message:?} among {said:?}");
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The fields of all whole lines of the log.
fn lines(log: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(log)?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |line: &str| -> Result<Value> {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        Ok(line["fields"].clone())
    };
    whole.lines().map(parse).collect()
}
