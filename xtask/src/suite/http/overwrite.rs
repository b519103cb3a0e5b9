//! A file that changes while it is downloaded: what arrives whole is one version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{Call, StableHow, Write};
use crossdock_nfs3::{HandleBuffer, Reply};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;

use super::web::Web;
use super::wire::Answer;
use crate::suite::cli::job;

/// Of the file.
const FILE_BYTES: usize = 8 << 20;

/// Of one WRITE: each is a version of the file.
const BLOCK_BYTES: usize = 64 << 10;

const BLOCKS: usize = FILE_BYTES / BLOCK_BYTES;

const READERS: usize = 4;

/// For how long it goes on, and at most, until both outcomes were seen.
const TIME: Duration = Duration::from_secs(6);
const TIME_MAX: Duration = Duration::from_secs(40);

/// How many downloads have to be whole.
const WHOLE_MIN: u64 = 10;

/// Longest pause of the writer: downloads fit in.
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// How downloads ended.
#[derive(Default)]
struct Outcomes {
    whole: AtomicU64,
    broken: AtomicU64,
    /// Refused before a byte was sent, as the file was another one each time (503).
    refused: AtomicU64,
}

impl Outcomes {
    fn counts(&self) -> [u64; 3] {
        [&self.whole, &self.broken, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The name gets another file, again and again: readers have one of them, whole.
pub(super) fn by_put(web: &Web<'_>) -> Result<()> {
    let version = |number: u64| -> Vec<u8> { (0..BLOCKS).flat_map(|_| block(number)).collect() };
    web.put("/replaced", &version(1))?;
    let judge = |content: &[u8]| {
        let versions = versions(content)?;
        let is_one = versions.iter().all(|&version| version == versions[0]);
        ensure!(is_one, "a mix of versions: {versions:?}");
        Ok(versions[0])
    };
    let newest = AtomicU64::new(1);
    let write = |number: u64| {
        web.put("/replaced", &version(number + 1))?;
        newest.store(number + 1, Ordering::Relaxed);
        Ok(())
    };
    let [whole, broken, refused] = run(web, "/replaced", &newest, &judge, write)?;
    println!("replaced by PUT: {whole} whole, {broken} broken off, {refused} refused");
    ensure!(whole >= WHOLE_MIN, "{whole} downloads were whole");
    Ok(())
}

/// The bytes of the file are written over, block by block, each of which makes a version.
pub(super) fn over_nfs(web: &Web<'_>) -> Result<()> {
    let first: Vec<u8> = (0..BLOCKS).flat_map(|at| block(at as u64)).collect();
    web.put("/rewritten", &first)?;
    let mut client = Client::connect(web.up.nfs)?;
    let file = job::lookup(&mut client, "rewritten")?;
    let start = BLOCKS as u64;
    let newest = AtomicU64::new(start - 1);
    let write = |number: u64| {
        let version = start + number - 1;
        write_block(&mut client, &file, version)?;
        newest.store(version, Ordering::Relaxed);
        Ok(())
    };
    let [whole, broken, refused] = run(web, "/rewritten", &newest, &is_one_moment, write)?;
    println!("written in place over NFS: {whole} whole, {broken} broken off, {refused} refused");
    ensure!(whole >= WHOLE_MIN, "{whole} downloads were whole");
    ensure!(broken > 0, "no download met a change");
    Ok(())
}

/// Whether the blocks are those of one moment: block `at` is that of the newest version
/// up to `v` that wrote it, `v` being the newest of all. Returns `v`.
fn is_one_moment(content: &[u8]) -> Result<u64> {
    let versions = versions(content)?;
    let newest = versions.iter().copied().max().context("an empty file")?;
    for (at, &version) in versions.iter().enumerate() {
        let behind = (newest - at as u64) % BLOCKS as u64;
        ensure!(
            version == newest - behind,
            "block {at} is of version {version}, another one of {newest}: {versions:?}"
        );
    }
    Ok(newest)
}

/// Four readers beside one writer. `judge` says which version a download is.
fn run(
    web: &Web<'_>,
    path: &str,
    newest: &AtomicU64,
    judge: &(dyn Fn(&[u8]) -> Result<u64> + Sync),
    mut write: impl FnMut(u64) -> Result<()>,
) -> Result<[u64; 3]> {
    let (outcomes, is_over) = (Outcomes::default(), AtomicBool::new(false));
    let began = Instant::now();
    let result = thread::scope(|scope| {
        let reader = || read(web, path, newest, judge, &outcomes, &is_over);
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let mut number = 0_u64;
        let mut written = Ok(());
        while written.is_ok() {
            let [whole, broken, _] = outcomes.counts();
            let is_enough = whole >= WHOLE_MIN && broken > 0 && began.elapsed() > TIME;
            let has_ended = readers.iter().any(thread::ScopedJoinHandle::is_finished);
            if is_enough || began.elapsed() > TIME_MAX || has_ended {
                break;
            }
            number += 1;
            written = write(number);
            // From none to the longest, in a row that does not fall into step.
            thread::park_timeout(PAUSE_MAX * u32::try_from(number * 7 % 16).unwrap_or(0) / 15);
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        written
    });
    result?;
    Ok(outcomes.counts())
}

fn read(
    web: &Web<'_>,
    path: &str,
    newest: &AtomicU64,
    judge: &(dyn Fn(&[u8]) -> Result<u64> + Sync),
    outcomes: &Outcomes,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut last = 0;
    while !is_over.load(Ordering::Relaxed) {
        let known = newest.load(Ordering::Relaxed);
        let mut wire = web.connect()?;
        wire.get(path, true)?;
        let count = match wire.answer()? {
            None => &outcomes.broken,
            Some(Answer {
                status: 200,
                content,
                ..
            }) => {
                ensure!(content.len() == FILE_BYTES, "{} bytes", content.len());
                let version = judge(&content)?;
                ensure!(
                    version >= known && version >= last,
                    "version {version} was sent after {known} had been written and {last} seen"
                );
                last = version;
                &outcomes.whole
            }
            Some(answer) if answer.status == 503 => &outcomes.refused,
            Some(answer) => bail!("{}", answer.text()),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A block of that version: each word names it, and its own place.
fn block(version: u64) -> Vec<u8> {
    (0..BLOCK_BYTES as u64 / 8)
        .flat_map(|word| (version << 16 | word).to_le_bytes())
        .collect()
}

/// The version of each block.
fn versions(content: &[u8]) -> Result<Vec<u64>> {
    let of = |part: &[u8]| {
        let word: [u8; 8] = part.get(..8).context("a short block")?.try_into()?;
        let version = u64::from_le_bytes(word) >> 16;
        ensure!(
            part == block(version),
            "a block of version {version} has other bytes in it"
        );
        Ok(version)
    };
    content.chunks(BLOCK_BYTES).map(of).collect()
}

fn write_block(client: &mut Client, file: &HandleBuffer, version: u64) -> Result<()> {
    let at = version % BLOCKS as u64;
    let reply = client.call(&Call::Write(Write {
        file: file.as_handle(),
        offset: at * BLOCK_BYTES as u64,
        count_bytes: u32::try_from(BLOCK_BYTES)?,
        stable: StableHow::Unstable,
        data: Payload::from(Bytes::from(block(version))),
    }))?;
    let is_whole = |bytes: u32| bytes as usize == BLOCK_BYTES;
    ensure!(
        matches!(&reply, Reply::Write(Ok(done)) if is_whole(done.count_bytes)),
        "{reply:?}"
    );
    Ok(())
}
