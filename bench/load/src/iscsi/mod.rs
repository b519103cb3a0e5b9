//! Load on an iSCSI target: one initiator with one connection and many commands outstanding.
//! It asks every target for the same: immediate data, bursts of 1 MiB, digests if they are wanted.

mod session;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use crossdock_types::Payload;
use serde_json::{Value, json};

use crate::usage::Meter;
use session::{Session, Transfer};

/// What an initiator does.
#[derive(Args)]
pub(crate) struct Load {
    /// Where the target listens.
    #[arg(long)]
    server: SocketAddr,
    /// Its name.
    #[arg(long)]
    target: String,
    /// Which of its units.
    #[arg(long, default_value_t = 0)]
    lun: u8,
    /// Process of the target, to see what it spends.
    #[arg(long)]
    server_pid: Option<u32>,
    /// What to do.
    #[arg(long, value_enum)]
    work: Work,
    /// Bytes of a command, a multiple of the unit's blocks.
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Commands outstanding.
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    /// Bytes of the unit that are read and written, from its beginning.
    #[arg(long, default_value_t = 64 << 20)]
    span: u64,
    /// Seconds after which no more commands are sent.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Writes are answered when they are durable (FUA).
    #[arg(long)]
    forced: bool,
    /// CRC32C of headers and data, both ways.
    #[arg(long)]
    digests: bool,
    /// A SYNCHRONIZE CACHE at the end, which counts as time.
    #[arg(long)]
    flush: bool,
}

/// Which bytes, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// From the beginning on, again and again.
    Read,
    /// Likewise.
    Write,
    /// Each block once; then it ends.
    Fill,
    /// Here and there.
    RandomRead,
    /// Here and there.
    RandomWrite,
}

impl Work {
    const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Fill | Self::RandomWrite)
    }
}

/// Places in the unit, one for each command.
struct Places {
    work: Work,
    count: u64,
    done: u64,
    random: u64,
}

impl Places {
    /// The number of the next command's place; `None` if there is none.
    const fn next(&mut self) -> Option<u64> {
        let number = self.done;
        if matches!(self.work, Work::Fill) && number == self.count {
            return None;
        }
        self.done += 1;
        Some(match self.work {
            Work::Read | Work::Write | Work::Fill => number % self.count,
            Work::RandomRead | Work::RandomWrite => {
                // Marsaglia's xorshift: good enough to be here and there.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random % self.count
            }
        })
    }
}

/// Works on a target and tells what it took.
pub(crate) fn run(flags: &Load) -> anyhow::Result<Value> {
    ensure!(
        flags.outstanding > 0 && flags.size > 0 && flags.span >= u64::from(flags.size),
        "outstanding and size must be at least 1, span at least size"
    );
    let limit = Duration::try_from_secs_f64(flags.seconds)?;
    let mut session = Session::open(flags.server, &flags.target, flags.lun, flags.digests)?;
    let block_bytes = session.block_bytes();
    ensure!(
        flags.size.is_multiple_of(block_bytes) && flags.span <= session.unit_bytes(),
        "the unit has {} bytes in blocks of {block_bytes}",
        session.unit_bytes()
    );
    let mut places = Places {
        work: flags.work,
        count: flags.span / u64::from(flags.size),
        done: 0,
        random: 0x9e37_79b9_7f4a_7c15,
    };
    let content = Bytes::from(pattern(flags.size as usize));
    let mut next = |is_late: bool| {
        let is_over = is_late && flags.work != Work::Fill;
        let number = places.next().filter(|_| !is_over)?;
        Some(Transfer {
            lba: number * u64::from(flags.size / block_bytes),
            bytes: flags.size,
            is_forced: flags.forced,
            content: match flags.work.is_write() {
                true => Some(Payload::from(content.clone())),
                false => None,
            },
        })
    };
    let mut latencies = Vec::with_capacity(1 << 20);
    let meter = Meter::start(flags.server_pid)?;
    let started = Instant::now();
    loop {
        let is_late = started.elapsed() >= limit;
        while session.outstanding() < flags.outstanding
            && session.has_room()
            && let Some(transfer) = next(is_late)
        {
            session.ask(transfer)?;
        }
        if session.outstanding() == 0 {
            break;
        }
        session.turn(&mut latencies)?;
    }
    if flags.flush {
        session.flush()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let spent = meter.stop()?;
    let mut figures = figures(flags, seconds, latencies)?;
    spent.add_to(&mut figures);
    Ok(figures)
}

/// Bytes that no target finds to be zeros.
fn pattern(length: usize) -> Vec<u8> {
    let words = (1u64..).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes = words.flat_map(u64::to_le_bytes);
    bytes.take(length).collect()
}

fn figures(flags: &Load, seconds: f64, mut latencies: Vec<Duration>) -> anyhow::Result<Value> {
    ensure!(!latencies.is_empty(), "no command was answered");
    latencies.sort_unstable();
    let us = |latency: Duration| latency.as_secs_f64() * 1e6;
    let at = |per_mille: usize| us(latencies[(latencies.len() - 1) * per_mille / 1000]);
    let operations = latencies.len();
    let sum: Duration = latencies.iter().sum();
    Ok(json!({
        "outstanding": flags.outstanding,
        "operations": operations,
        "bytes": operations as u64 * u64::from(flags.size),
        "seconds": seconds,
        "mean_us": us(sum) / operations as f64,
        "p50_us": at(500),
        "p99_us": at(990),
        "p999_us": at(999),
        "max_us": at(1000),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: filling names each place once and ends; other work goes on, within its span.
    #[test]
    fn places_are_within_the_span() {
        let places = |work| Places {
            work,
            count: 5,
            done: 0,
            random: 7,
        };
        let mut fill = places(Work::Fill);
        let filled: Vec<u64> = std::iter::from_fn(|| fill.next()).collect();
        assert_eq!(filled, [0, 1, 2, 3, 4]);
        let mut read = places(Work::Read);
        let read: Vec<u64> = std::iter::from_fn(|| read.next()).take(7).collect();
        assert_eq!(read, [0, 1, 2, 3, 4, 0, 1]);
        let mut random = places(Work::RandomWrite);
        let mut seen: Vec<u64> = std::iter::from_fn(|| random.next()).take(100).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
