//! Six depots in networks of their own, behind links of 100 to 5 Mbit/s: depots that are killed while
//! files are uploaded, downloaded and copied, and leases that end, or not, while a file is read. And
//! six at the ends of [long ways](far).

mod far;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Stage;
use super::cli::job;
use crate::rig::Life;
use crate::rig::wan::{Links, Wan};

const RATES: [u32; 6] = [100, 50, 50, 20, 10, 5];
const CLIENT_RATE: u32 = 400;
const FILM_BYTES: usize = 24 << 20;
/// A moment at which something is under way.
const MIDDLE: Duration = Duration::from_millis(700);

/// Of a file whose lease ends: at one depot, whose link is slow from then on.
const LEASED: usize = 5;
const LEASED_BYTES: usize = 4 << 20;
const FAST: u32 = 100;
const SLOW: u32 = 4;
const LEASE: &str = "4s";

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    // Another checkout may test at the same time.
    let mut hasher = DefaultHasher::new();
    stage.folder.hash(&mut hasher);
    let name = format!("wan-{:08x}", hasher.finish() >> 32);
    let links = Links::new(&RATES, CLIENT_RATE);
    let mut wan = Wan::up(stage.paths, &name, &stage.folder, links, Life::OfXtask)?;
    let film = job::content("film", FILM_BYTES);
    fs::write(wan.local("film"), &film)?;
    killed_while_uploading(&mut wan, &film).context("a depot killed during an upload")?;
    killed_while_downloading(&mut wan, &film).context("a depot killed during a download")?;
    killed_while_copying(&mut wan, &film).context("a depot killed during copies")?;
    lease_ends(&wan).context("a lease that ends during a download")?;
    refresh_keeps(&wan).context("a lease that is refreshed during a download")?;
    drop(wan);
    far::stopped_while_downloading(stage).context("a far depot stopped during a download")
}

/// Starts a command, has something happen after that time, and waits for its end.
fn while_running(
    mut command: Command,
    after: Duration,
    middle: impl FnOnce() -> Result<()>,
) -> Result<Output> {
    let began = Instant::now();
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let waiting = thread::spawn(move || child.wait_with_output());
    thread::park_timeout(after);
    ensure!(
        !waiting.is_finished(),
        "{command:?} took {:?} only: nothing happens in the middle of it",
        began.elapsed()
    );
    middle()?;
    match waiting.join() {
        Ok(output) => Ok(output?),
        Err(_) => bail!("it has panicked"),
    }
}

fn expect_success(output: &Output) -> Result<Value> {
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("no JSON")
}

fn expect_film(wan: &Wan, exnode: &str, film: &[u8]) -> Result<()> {
    wan.timed(&["download", exnode, "-o", "back", "--force", "--json"])?;
    ensure!(fs::read(wan.local("back"))? == film, "other bytes");
    Ok(())
}

fn upload<'words>(exnode: &'words str, depots: &'words str) -> Vec<&'words str> {
    let words = [
        "upload", "film", "-o", exnode, "--depot", depots, "--copies", "2",
    ];
    let more = [
        "--block-size",
        "1M",
        "--duration",
        "10m",
        "--timeout",
        "3s",
        "--json",
    ];
    [&words[..], &more].concat()
}

/// Other depots take what it was to have: the file is whole without it.
fn killed_while_uploading(wan: &mut Wan, film: &[u8]) -> Result<()> {
    let depots = wan.depots_words(RATES.len());
    let words = [&upload("up.xnd", &depots)[..], &["--direct"]].concat();
    let uploaded = while_running(wan.command(&words), MIDDLE, || wan.kill(1))?;
    expect_success(&uploaded)?;
    expect_film(wan, "up.xnd", film)?;
    wan.start(1)?;
    expect_film(wan, "up.xnd", film).context("when it is back")
}

/// What it has is at another one, too.
fn killed_while_downloading(wan: &mut Wan, film: &[u8]) -> Result<()> {
    let depots = wan.depots_words(RATES.len());
    wan.timed(&[&upload("down.xnd", &depots)[..], &["--direct"]].concat())?;
    let words = [
        "download",
        "down.xnd",
        "-o",
        "back",
        "--force",
        "--timeout",
        "3s",
        "--json",
    ];
    let downloaded = while_running(wan.command(&words), MIDDLE, || wan.kill(0))?;
    expect_success(&downloaded)?;
    ensure!(fs::read(wan.local("back"))? == film, "other bytes");
    wan.start(0)
}

/// Copies are made elsewhere, or it is said that they were not; what there was before is as good as
/// before.
fn killed_while_copying(wan: &mut Wan, film: &[u8]) -> Result<()> {
    let depots = wan.depots_words(RATES.len());
    let words = [
        "augment", "down.xnd", "-o", "more.xnd", "--copies", "1", "--depot", &depots,
    ];
    let words = [
        &words[..],
        &["--duration", "10m", "--timeout", "3s", "--json"],
    ]
    .concat();
    let copied = while_running(wan.command(&words), MIDDLE, || wan.kill(2))?;
    match copied.status.success() {
        true => {
            let told = expect_success(&copied)?;
            ensure!(told["mappings_added"].as_u64() > Some(0), "{told}");
            expect_film(wan, "more.xnd", film)?;
        }
        false => {
            let said = String::from_utf8_lossy(&copied.stderr);
            ensure!(said.contains("depot") || said.contains("bytes"), "{said}");
        }
    }
    expect_film(wan, "down.xnd", film)?;
    wan.start(2)?;
    expect_film(wan, "down.xnd", film).context("when it is back")
}

/// A small file at one depot, whose link is slow from then on.
fn lease(wan: &Wan, exnode: &str) -> Result<()> {
    fs::write(wan.local("leased"), job::content("leased", LEASED_BYTES))?;
    wan.set_rate(LEASED, FAST)?;
    let depot = wan.addresses()[LEASED].to_string();
    wan.timed(&[
        "upload",
        "leased",
        "-o",
        exnode,
        "--depot",
        &depot,
        "--block-size",
        "256K",
        "--duration",
        LEASE,
        "--json",
    ])?;
    wan.set_rate(LEASED, SLOW)
}

/// What could not be read in time is said.
fn lease_ends(wan: &Wan) -> Result<()> {
    lease(wan, "ends.xnd")?;
    let output = wan
        .command(&["download", "ends.xnd", "-o", "ends", "--json"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("no source has bytes"),
        "{said}"
    );
    ensure!(
        !wan.local("ends").exists(),
        "half a file looks like all of it"
    );
    Ok(())
}

/// Whoever is reading gets all of it.
fn refresh_keeps(wan: &Wan) -> Result<()> {
    lease(wan, "kept.xnd")?;
    let (kept, refreshed) = thread::scope(|scope| {
        let download = ["download", "kept.xnd", "-o", "kept", "--json"];
        let reading = scope.spawn(move || wan.timed(&download));
        thread::park_timeout(MIDDLE);
        let refreshed = wan.timed(&["refresh", "kept.xnd", "--for", "2m", "--json"]);
        let kept = reading.join().unwrap_or_else(|_| bail!("it has panicked"));
        (kept, refreshed)
    });
    refreshed?;
    let elapsed = kept?;
    ensure!(
        elapsed > Duration::from_secs(4),
        "it was read within its lease: {elapsed:?}"
    );
    let content = job::content("leased", LEASED_BYTES);
    ensure!(fs::read(wan.local("kept"))? == content, "other bytes");
    Ok(())
}
