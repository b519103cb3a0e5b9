//! `key=value,key=value`: streams of one kind.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{bail, ensure};

use super::words;

/// Streams of one kind.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// What it is called in figures.
    pub(super) name: String,
    /// What the names of its files begin with.
    pub(super) prefix: String,
    /// How many streams.
    pub(super) count: usize,
    /// Bytes of each file.
    pub(super) size: u64,
    /// Bytes per second; 0: as fast as it comes.
    pub(super) rate: f64,
    /// So many read the first file.
    pub(super) shared: usize,
    /// Number of the first file.
    pub(super) first: usize,
    /// Where the server is, if it is elsewhere for them.
    pub(super) server: Option<SocketAddr>,
    /// Until the first begins.
    pub(super) start: Duration,
    /// From the first to the last.
    pub(super) ramp: Duration,
    /// Until all of them go away.
    pub(super) until: Option<Duration>,
    /// So many reset their connections at the moment.
    pub(super) reset: usize,
    /// So many stop reading then.
    pub(super) stall: usize,
}

impl FromStr for Group {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut group = Self {
            name: String::new(),
            prefix: "f".to_owned(),
            count: 1,
            size: 0,
            rate: 0.0,
            shared: 0,
            first: 0,
            server: None,
            start: Duration::ZERO,
            ramp: Duration::ZERO,
            until: None,
            reset: 0,
            stall: 0,
        };
        let seconds = |value: &str| -> anyhow::Result<Duration> {
            Ok(Duration::try_from_secs_f64(value.parse()?)?)
        };
        for (key, value) in words(text)? {
            match key {
                "name" => group.name = value.to_owned(),
                "prefix" => group.prefix = value.to_owned(),
                "count" => group.count = value.parse()?,
                "size" => group.size = value.parse()?,
                "rate" => group.rate = value.parse()?,
                "shared" => group.shared = value.parse()?,
                "first" => group.first = value.parse()?,
                "server" => group.server = Some(value.parse()?),
                "until" => group.until = Some(seconds(value)?),
                "start" => group.start = seconds(value)?,
                "ramp" => group.ramp = seconds(value)?,
                "reset" => group.reset = value.parse()?,
                "stall" => group.stall = value.parse()?,
                other => bail!("no such key: {other}"),
            }
        }
        ensure!(
            group.reset + group.stall <= group.count,
            "more streams stop than there are"
        );
        Ok(group)
    }
}
