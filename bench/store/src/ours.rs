//! The load through a ring, its disks and the disk queue, as a data thread of
//! the server drives them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use crossdock_disk::uring::UringDisk;
use crossdock_disk::{
    Disk, DiskFile, DiskOperation, DiskOutput, DiskRequest, DiskToken, OpenOptions,
};
use crossdock_disks::{DiskClass, DiskQueue, QueuedRequest};
use crossdock_ring::Ring;
use crossdock_types::{AlignedBuffer, Scatter, Time};

use crate::rows::{BESIDE_BYTES, BESIDE_FLUSH_BYTES, COMMIT_BYTES, FILE_BYTES, Journal, Load, Row};

/// The file beside a journal is grown by this, as the store's data file is.
const GROWTH_BYTES: u64 = 64 << 20;

/// One round of a row, in its unit.
pub(crate) fn measure(row: &Row, dir: &Path, length: Duration) -> Result<f64> {
    let ring = Ring::new(256).context("the benchmark needs io_uring")?;
    match row.load {
        Load::Commit {
            journal,
            is_durable,
            beside_mb_per_second,
        } => {
            let path = journal_file(dir, journal)?;
            let mut disk = UringDisk::new(&ring, open(&path, file_bytes(journal), false)?);
            let mut beside = Beside::start(&ring, dir, beside_mb_per_second)?;
            let way = (journal, is_durable);
            commits(&ring, &mut disk, way, &mut beside, length)
        }
        Load::Io {
            is_write,
            is_random,
            bytes,
            depth,
        } => {
            let path = io_file(dir)?;
            let disk = UringDisk::new(&ring, open(&path, FILE_BYTES, true)?);
            let mut flow = Flow {
                disk,
                queue: DiskQueue::new(depth),
                places: Places::new(is_random, bytes),
                content: content(bytes),
                is_write,
                bytes,
            };
            flow.run(&ring, depth, length)
        }
    }
}

/// A fresh file of that kind, not open.
pub(crate) fn journal_file(dir: &Path, journal: Journal) -> Result<PathBuf> {
    let path = dir.join("journal");
    if path.exists() {
        std::fs::remove_file(&path).context("cannot remove the journal of the round before")?;
    }
    if journal != Journal::Growing {
        open(&path, FILE_BYTES, journal == Journal::WrittenThrough)?;
    }
    Ok(path)
}

/// The file for plain I/O, with content everywhere; made once.
pub(crate) fn io_file(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("io");
    open(&path, FILE_BYTES, true)?;
    Ok(path)
}

const fn file_bytes(journal: Journal) -> u64 {
    match journal {
        Journal::Growing => 0,
        _ => FILE_BYTES,
    }
}

fn open(path: &Path, length_bytes: u64, prewrite: bool) -> Result<DiskFile> {
    let options = OpenOptions {
        length_bytes,
        prewrite,
    };
    Ok(DiskFile::open_or_create(path, options)?)
}

/// Median of the commits of a round, in microseconds.
fn commits(
    ring: &Ring,
    disk: &mut UringDisk,
    (journal, is_durable): (Journal, bool),
    beside: &mut Option<Beside>,
    length: Duration,
) -> Result<f64> {
    let content = content(COMMIT_BYTES);
    let mut took = Vec::new();
    let begun = Instant::now();
    let mut offset_bytes = 0;
    while begun.elapsed() < length && offset_bytes + (COMMIT_BYTES as u64) < FILE_BYTES {
        let commit = Instant::now();
        let end_bytes = offset_bytes + COMMIT_BYTES as u64;
        if journal == Journal::Growing {
            let grow = DiskOperation::Grow {
                length_bytes: end_bytes,
            };
            carry_out(ring, disk, grow, beside)?;
        }
        let write = DiskOperation::Write {
            offset_bytes,
            pieces: vec![content.clone()],
            is_durable,
        };
        carry_out(ring, disk, write, beside)?;
        if !is_durable {
            carry_out(ring, disk, DiskOperation::Flush, beside)?;
        }
        took.push(commit.elapsed().as_secs_f64() * 1e6);
        offset_bytes = end_bytes;
    }
    took.sort_by(f64::total_cmp);
    let median = took.get(took.len() / 2);
    median.copied().context("no commit ended in time")
}

fn carry_out(
    ring: &Ring,
    disk: &mut UringDisk,
    operation: DiskOperation,
    beside: &mut Option<Beside>,
) -> Result<()> {
    let token = DiskToken(0);
    disk.submit(DiskRequest { token, operation });
    loop {
        if let Some(completion) = disk.poll() {
            completion.result?;
            return Ok(());
        }
        let patience = match beside {
            Some(beside) => Some(beside.go_on()?),
            None => None,
        };
        ring.turn(patience)?;
    }
}

/// Data writes at a steady rate, with a flush now and then, into a file that
/// grows in steps.
struct Beside {
    disk: UringDisk,
    content: Bytes,
    per_second: u64,
    begun: Instant,
    written_bytes: u64,
    in_flight: usize,
}

/// Most data requests on their way.
const BESIDE_DEPTH: usize = 32;

impl Beside {
    fn start(ring: &Ring, dir: &Path, mb_per_second: u64) -> Result<Option<Self>> {
        if mb_per_second == 0 {
            return Ok(None);
        }
        let path = dir.join("data");
        if path.exists() {
            std::fs::remove_file(&path).context("cannot remove the data of the round before")?;
        }
        Ok(Some(Self {
            disk: UringDisk::new(ring, open(&path, GROWTH_BYTES, false)?),
            content: content(BESIDE_BYTES),
            per_second: mb_per_second * 1_000_000,
            begun: Instant::now(),
            written_bytes: 0,
            in_flight: 0,
        }))
    }

    /// Starts what is due; how long until the next is.
    fn go_on(&mut self) -> Result<Duration> {
        while let Some(completion) = self.disk.poll() {
            completion.result?;
            self.in_flight -= 1;
        }
        loop {
            let due = self.written_bytes as f64 / self.per_second as f64;
            let early = due - self.begun.elapsed().as_secs_f64();
            if early > 0.0 {
                return Ok(Duration::from_secs_f64(early));
            }
            let is_full = self.written_bytes + BESIDE_BYTES as u64 > self.disk.length_bytes();
            // The next completion wakes the ring.
            if self.in_flight >= BESIDE_DEPTH || (is_full && self.in_flight > 0) {
                return Ok(Duration::from_secs(1));
            }
            match is_full {
                true => self.start_one(DiskOperation::Grow {
                    length_bytes: self.disk.length_bytes() + GROWTH_BYTES,
                }),
                false => self.write(),
            }
        }
    }

    fn write(&mut self) {
        self.start_one(DiskOperation::Write {
            offset_bytes: self.written_bytes,
            pieces: vec![self.content.clone()],
            is_durable: false,
        });
        self.written_bytes += BESIDE_BYTES as u64;
        if self.written_bytes.is_multiple_of(BESIDE_FLUSH_BYTES) {
            self.start_one(DiskOperation::Flush);
        }
    }

    fn start_one(&mut self, operation: DiskOperation) {
        let token = DiskToken(1);
        self.disk.submit(DiskRequest { token, operation });
        self.in_flight += 1;
    }
}

/// Requests at a depth.
struct Flow {
    disk: UringDisk,
    queue: DiskQueue,
    places: Places,
    content: Bytes,
    is_write: bool,
    bytes: usize,
}

impl Flow {
    /// Megabytes in a second.
    fn run(&mut self, ring: &Ring, depth: usize, length: Duration) -> Result<f64> {
        for token in 0..depth {
            self.push(token as u64, None)?;
        }
        let begun = Instant::now();
        let mut done_bytes = 0;
        loop {
            while let Some(request) = self.queue.next(now(begun)) {
                self.disk.submit(request);
            }
            ring.turn(None)?;
            let is_over = begun.elapsed() >= length;
            while let Some(completion) = self.disk.poll() {
                self.queue
                    .completed(Time::default(), completion.token, true);
                done_bytes += self.bytes;
                let buffer = match completion.result? {
                    DiskOutput::Read(buffer) => Some(buffer),
                    DiskOutput::Done => None,
                };
                if !is_over {
                    self.push(completion.token.0, buffer)?;
                }
            }
            if is_over && self.queue.in_flight() == 0 {
                return Ok(done_bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
            }
        }
    }

    fn push(&mut self, token: u64, buffer: Option<Scatter>) -> Result<()> {
        let offset_bytes = self.places.next();
        let operation = match self.is_write {
            true => DiskOperation::Write {
                offset_bytes,
                pieces: vec![self.content.clone()],
                is_durable: false,
            },
            false => DiskOperation::Read {
                offset_bytes,
                buffer: buffer.unwrap_or_else(|| Scatter::zeroed(self.bytes)),
            },
        };
        let request = QueuedRequest {
            request: DiskRequest {
                token: DiskToken(token),
                operation,
            },
            class: DiskClass::Foreground,
            since: Time::default(),
            deadline: Time::from_secs(3600),
        };
        if self.queue.push(request).is_err() {
            bail!("the queue is shorter than the depth");
        }
        Ok(())
    }
}

/// Where requests go: one after the other, or anywhere.
struct Places {
    is_random: bool,
    bytes: u64,
    count: u64,
    drawn: u64,
}

impl Places {
    const fn new(is_random: bool, bytes: usize) -> Self {
        let bytes = bytes as u64;
        Self {
            is_random,
            bytes,
            count: FILE_BYTES / bytes,
            drawn: 0,
        }
    }

    const fn next(&mut self) -> u64 {
        self.drawn += 1;
        let number = match self.is_random {
            // An odd factor visits every place of a power of two once.
            true => self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20,
            false => self.drawn,
        };
        number % self.count * self.bytes
    }
}

fn now(begun: Instant) -> Time {
    Time::default() + begun.elapsed()
}

/// Bytes that no device makes smaller.
fn content(bytes: usize) -> Bytes {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    let mut state = 1_u64;
    for word in buffer.as_chunks_mut().0 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        *word = (state ^ (state >> 33)).to_le_bytes();
    }
    buffer.freeze()
}
