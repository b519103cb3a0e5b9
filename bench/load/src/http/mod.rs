//! Load on an HTTP server: streams at their own rates, or as many requests as it can
//! answer; and the files that are asked for. All from one thread.

mod compute;
mod connection;
mod group;
mod make;
mod requests;
mod streams;
mod wanted;

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use crossdock_slowdisk::content;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::usage::Usage;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Makes files whose content is known by their names.
    Make(make::Make),
    /// Reads files as fast as they should be shown, or as fast as they come.
    Streams(streams::Flags),
    /// Asks for whole files, as many as are answered.
    Requests(requests::Flags),
    /// Multiplies matrices: somebody else's work beside a server.
    Compute(compute::Compute),
}

/// Carries it out; what it prints.
pub(crate) fn run(command: &Command) -> anyhow::Result<Value> {
    match command {
        Command::Make(flags) => make::run(flags),
        Command::Streams(flags) => streams::run(flags),
        Command::Requests(flags) => requests::run(flags),
        Command::Compute(flags) => compute::run(flags),
    }
}

/// Which server, and what belongs to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// HTTP server.
    #[arg(long)]
    server: SocketAddr,
    /// Path of the directory with the files.
    #[arg(long, default_value = "/")]
    path: String,
    /// Processes of the server, to see what they spend.
    #[arg(long = "server-pid")]
    pids: Vec<u32>,
    /// What readers show, where reading is not for all.
    #[arg(long)]
    token: Option<String>,
    /// Compares all content with what it should be.
    #[arg(long)]
    check: bool,
}

impl Place {
    /// The request for a file.
    fn request(&self, method: &str, name: &str, version: Version, more: &str) -> Vec<u8> {
        let Self { path, token, .. } = self;
        let slash = if path.ends_with('/') { "" } else { "/" };
        let token = token.as_ref().map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let version = match version {
            Version::Old => "1.0",
            Version::New => "1.1",
        };
        format!("{method} {path}{slash}{name} HTTP/{version}\r\nHost: bench\r\n{token}{more}\r\n")
            .into_bytes()
    }

    /// What all of its processes have cost so far.
    fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of_all(&self.pids)
    }
}

/// Version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// 1.0: a connection for each request.
    Old,
    /// 1.1: connections stay.
    New,
}

/// Files of one kind: words `prefix=`, `count=`, `size=` (bytes), `weight=` (how often
/// they are asked for), `range=` (bytes of a range that is asked for in place of a whole
/// file), with commas.
#[derive(Clone, Debug)]
struct Class {
    prefix: String,
    count: usize,
    size: u64,
    range: Option<u64>,
    weight: f64,
}

impl Class {
    fn name(&self, number: usize) -> String {
        format!("{}{number:05}", self.prefix)
    }
}

impl FromStr for Class {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut class = Self {
            prefix: String::new(),
            count: 1,
            size: 0,
            range: None,
            weight: 1.0,
        };
        for (key, value) in words(text)? {
            match key {
                "prefix" => class.prefix = value.to_owned(),
                "count" => class.count = value.parse()?,
                "size" => class.size = value.parse()?,
                "range" => class.range = Some(value.parse()?),
                "weight" => class.weight = value.parse()?,
                other => bail!("no such key: {other}"),
            }
        }
        ensure!(class.count > 0 && !class.prefix.is_empty(), "no files");
        let has_ranges = |range| wanted::has_ranges(class.size, range);
        ensure!(class.range.is_none_or(has_ranges), "no such ranges");
        Ok(class)
    }
}

/// `key=value,key=value`.
fn words(text: &str) -> anyhow::Result<Vec<(&str, &str)>> {
    let words = text.split(',').map(|word| {
        word.split_once('=')
            .with_context(|| format!("{word}: not key=value"))
    });
    words.collect()
}

/// `CLOCK_MONOTONIC`, which the log of the disk uses, too.
fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// At which part of them all values are at most so great, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |percent: usize| {
        let last = times.len().checked_sub(1)?;
        let time: Duration = times[last * percent / 100];
        u64::try_from(time.as_micros()).ok()
    };
    json!({ "p50_us": at(50), "p90_us": at(90), "p99_us": at(99), "max_us": at(100) })
}

/// Number of the file that is called so, by which its content is known.
fn file_number(name: &str) -> u32 {
    content::file(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what cannot be understood is refused, not taken for a default.
    #[test]
    fn classes_are_read() {
        let class: Class = "prefix=s,count=3,size=100".parse().unwrap();
        assert_eq!((class.name(2).as_str(), class.size), ("s00002", 100));
        assert!("prefix=s,cuont=3".parse::<Class>().is_err());
        assert!("count=3".parse::<Class>().is_err());
        assert!("prefix".parse::<Class>().is_err());
    }
}
