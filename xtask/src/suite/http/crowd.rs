//! Clients that hardly read, and clients that do nothing: others are served, and what
//! they cost is bounded.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::web::Web;
use super::wire::Wire;
use crate::suite::Stage;
use crate::suite::cli::job;

/// Of the files that are asked for: more than the cache.
const BIG_BYTES: usize = 16 << 20;

/// Connections that read a byte each second.
const SLOW_READERS: usize = 50;

/// What their kernels keep of what is sent.
const WINDOW_BYTES: usize = 4 << 10;

/// Files, each of which is downloaded by so many clients beside them.
const FILES: usize = 4;
const DOWNLOADERS: usize = 5;
const DOWNLOADS: usize = FILES * DOWNLOADERS;

/// For how long the slow ones read at least.
const SLOW_TIME: Duration = Duration::from_secs(8);

/// How long all downloads may take. The machine of CI is slow, and busy.
const DOWNLOADS_MAX: Duration = Duration::from_secs(60);

/// What the server may read ahead for all of them (`--delivery-memory`).
const AHEAD: &str = "32M";

/// By how much its memory may grow with the slow readers and the downloads: the budget of
/// delivery and the cache, 32 MiB each, 1 MiB of unsent bytes of each download under way,
/// and 16 MiB for all else.
const GROWTH_KIB_MAX: u64 = (32 + 32 + DOWNLOADERS as u64 + 16) << 10;

/// Connections that do nothing, and what each may cost the process, without TLS and with it.
const IDLE: usize = 10_000;
const IDLE_BYTES_MAX: u64 = 10 << 10;
const IDLE_TLS_BYTES_MAX: u64 = 20 << 10;

/// For how long they are opened: the first must not have ended (75 s) when all are looked at.
/// A busy machine has fewer then.
const OPENING_MAX: Duration = Duration::from_secs(50);
const IDLE_MIN: usize = 1000;

/// In how much time a request beside them is answered.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What the server is told.
const WORDS: [&str; 8] = [
    "--nodes",
    "2",
    "--size",
    "400M",
    "--cache",
    "32M",
    "--delivery-memory",
    AHEAD,
];

/// Fifty connections that ask for a large file and read a byte per second.
pub(super) fn slow_readers(stage: &Stage<'_>) -> Result<()> {
    let web = Web::start(stage, "slow", &WORDS)?;
    let contents: Vec<Vec<u8>> = (0..FILES)
        .map(|number| job::content(&format!("big-{number}"), BIG_BYTES))
        .collect();
    for (number, content) in contents.iter().enumerate() {
        web.put(&format!("/big-{number}"), content)?;
    }
    // Warm: what a first download takes is not what slow ones take.
    for number in 0..FILES {
        ensure!(
            web.get(&format!("/big-{number}"))?.status == 200,
            "a download"
        );
    }
    let before = web.resident_kib()?;
    let slow = (0..SLOW_READERS).map(|number| {
        let mut wire = Wire::connect_narrow(web.address, WINDOW_BYTES)?;
        wire.get(&format!("/big-{}", number % FILES), true)?;
        Ok(wire)
    });
    let slow: Vec<Wire> = slow.collect::<Result<_>>()?;
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let taken = thread::scope(|scope| {
        let sipping = scope.spawn(|| sip(slow, &is_over));
        let downloads: Vec<_> = (0..DOWNLOADERS)
            .map(|_| scope.spawn(|| download(web.address, &contents)))
            .collect();
        let downloaded = downloads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a download panicked"))?
        });
        let taken = began.elapsed();
        while began.elapsed() < SLOW_TIME {
            thread::park_timeout(SLOW_TIME / 20);
        }
        let grown = web.resident_kib()?.saturating_sub(before);
        is_over.store(true, Ordering::Relaxed);
        let sips = sipping
            .join()
            .map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        downloaded?;
        println!(
            "{SLOW_READERS} readers of 1 byte/s ({sips} bytes): {DOWNLOADS} downloads beside them in {:.2} s, {grown} KiB more memory than {before} KiB",
            taken.as_secs_f64()
        );
        ensure!(grown <= GROWTH_KIB_MAX, "{grown} KiB more memory");
        Ok::<_, anyhow::Error>(taken)
    })?;
    ensure!(taken <= DOWNLOADS_MAX, "the downloads took {taken:?}");
    // Their ends are noticed: what was read for them is given back.
    ensure!(web.get("/big-0")?.status == 200, "afterwards");
    web.stop()
}

/// Each connection reads a byte, every second; they hang on to the end. How many bytes.
fn sip(mut wires: Vec<Wire>, is_over: &AtomicBool) -> Result<usize> {
    let mut sips = 0;
    while !is_over.load(Ordering::Relaxed) {
        let next = Instant::now() + Duration::from_secs(1);
        for wire in &mut wires {
            let bytes = wire.sip(1)?;
            ensure!(bytes == 1, "a slow reader's connection has ended");
            sips += bytes;
        }
        while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(50));
        }
    }
    Ok(sips)
}

fn download(address: SocketAddr, contents: &[Vec<u8>]) -> Result<()> {
    for (number, content) in contents.iter().enumerate() {
        let mut wire = Wire::connect(address)?;
        wire.get(&format!("/big-{number}"), true)?;
        let answer = wire.answer()?.context("a download was broken off")?;
        ensure!(answer.status == 200, "{}", answer.text());
        ensure!(answer.content == *content, "other bytes");
    }
    Ok(())
}

/// Ten thousand connections that do nothing: one half after a request, the other half
/// from the beginning.
pub(super) fn idle(stage: &Stage<'_>) -> Result<()> {
    idle_at(Web::start(stage, "idle", &WORDS)?, IDLE_BYTES_MAX)
}

/// The same over TLS, with all handshakes done.
pub(super) fn idle_over_tls(stage: &Stage<'_>) -> Result<()> {
    idle_at(
        Web::start_https(stage, "idle-tls", &WORDS)?,
        IDLE_TLS_BYTES_MAX,
    )
}

fn idle_at(web: Web<'_>, bytes_max: u64) -> Result<()> {
    raise_open_files()?;
    web.put("/small", b"small")?;
    for _ in 0..200 {
        ensure!(web.get("/small")?.status == 200, "a request");
    }
    let before = web.resident_kib()?;
    let began = Instant::now();
    let mut wires = Vec::with_capacity(IDLE);
    while wires.len() < IDLE / 2 && began.elapsed() < OPENING_MAX / 2 {
        wires.push(web.connect()?);
    }
    // It has seen the last one when it has answered a later one.
    ensure!(web.get("/small")?.status == 200, "a request");
    let silent = web.resident_kib()?.saturating_sub(before);
    while wires.len() < IDLE && began.elapsed() < OPENING_MAX {
        let mut wire = web.connect()?;
        wire.get("/small", false)?;
        let answer = wire.answer()?.context("the connection ended")?;
        ensure!(answer.content == b"small", "{}", answer.text());
        wires.push(wire);
    }
    let opened = began.elapsed();
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let asked = Instant::now();
        ensure!(
            web.get("/small")?.content == b"small",
            "a request beside them"
        );
        slowest = slowest.max(asked.elapsed());
    }
    let grown = web.resident_kib()?.saturating_sub(before);
    let opened_total = wires.len();
    let bytes = grown * 1024 / opened_total as u64;
    println!(
        "{opened_total} idle connections (opened in {:.1} s): {grown} KiB, {bytes} bytes each, {silent} KiB of it for those without a request; the slowest of 20 requests beside them {} ms",
        opened.as_secs_f64(),
        slowest.as_millis()
    );
    ensure!(opened_total >= IDLE_MIN, "only {opened_total} connections");
    ensure!(bytes <= bytes_max, "{bytes} bytes for an idle connection");
    ensure!(slowest <= ANSWER_MAX, "a request took {slowest:?}");
    // All are there still: they are served.
    for wire in wires.iter_mut().step_by(199) {
        wire.get("/small", true)?;
        let answer = wire.answer()?.context("an idle connection has ended")?;
        ensure!(answer.content == b"small", "{}", answer.text());
    }
    drop(wires);
    web.stop()
}

/// This process has one end of each connection.
fn raise_open_files() -> Result<()> {
    let wanted = IDLE as u64 + 1000;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
        let raised = Rlimit {
            current: Some(wanted),
            maximum,
        };
        setrlimit(Resource::Nofile, raised).context("10,000 open connections")?;
    }
    Ok(())
}
