//! Configuration of `crossdock up`: one TOML file, every key also a flag and an
//! environment variable. Flags win over the file, the file over defaults.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use crossdock_limits::{DISK_DEPTH_MAX, NFS_REQUEST_BYTES_MIN};
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::format;

/// The flags of `crossdock up`; a key of the file has the flag's name with `_`.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Flags {
    /// Configuration file.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Directory of all data [default: ./crossdock-data].
    #[arg(long, value_name = "DIR", env = "CROSSDOCK_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Number of storage nodes, fixed when the data directory is made [default: 4].
    #[arg(long, value_name = "N", env = "CROSSDOCK_NODES")]
    pub(crate) nodes: Option<u32>,
    /// Space of all nodes together, like 500M, 20G, 1T [default: 80 % of the file system].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_SIZE")]
    pub(crate) size: Option<Size>,
    /// Copies of data on different nodes, fixed when the data directory is made [default: 1].
    #[arg(long, value_name = "N", env = "CROSSDOCK_REPLICAS")]
    pub(crate) replicas: Option<u32>,
    /// Memory for cached blocks, like 512M [default: 25 % of memory].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_CACHE")]
    pub(crate) cache: Option<Size>,
    /// Memory for calls and replies of all NFS clients together, like 256M, at least
    /// 16M [default: 512M, or an eighth of memory if that is less].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_REQUEST_MEMORY")]
    pub(crate) request_memory: Option<Size>,
    /// Requests that each disk works on at a time; more wait by priority [default: 32].
    #[arg(long, value_name = "N", env = "CROSSDOCK_DISK_DEPTH")]
    pub(crate) disk_depth: Option<usize>,
    /// NFS and MOUNT door: an IPv4 and an IPv6 address at most [default: 127.0.0.1:2049].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_NFS")]
    pub(crate) nfs: Option<Door>,
    /// Admin API: an IPv4 and an IPv6 address at most [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_ADMIN_DOOR")]
    pub(crate) admin: Option<Door>,
    /// Names, besides addresses and localhost, under which browsers may ask the admin API.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        env = "CROSSDOCK_ADMIN_NAME"
    )]
    pub(crate) admin_name: Option<Vec<String>>,
    /// HTTP door: not built yet, only `off`.
    #[arg(long, value_name = "ADDR|off", env = "CROSSDOCK_HTTP")]
    pub(crate) http: Option<Door>,
    /// iSCSI door: not built yet, only `off`.
    #[arg(long, value_name = "ADDR|off", env = "CROSSDOCK_ISCSI")]
    pub(crate) iscsi: Option<Door>,
    /// IBP door: not built yet, only `off`.
    #[arg(long, value_name = "ADDR|off", env = "CROSSDOCK_IBP")]
    pub(crate) ibp: Option<Door>,
    /// L-Bone door: not built yet, only `off`.
    #[arg(long, value_name = "ADDR|off", env = "CROSSDOCK_LBONE")]
    pub(crate) lbone: Option<Door>,
    /// Portmapper door, by which clients find NLM to lock files: an IPv4 and an
    /// IPv6 address at most, port 111 [default: off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_PORTMAP")]
    pub(crate) portmap: Option<Door>,
    /// After a restart, how long clients have to take their locks again before
    /// new ones are given; it ends as soon as all of them are told [default: 45].
    #[arg(long, value_name = "SECONDS", env = "CROSSDOCK_GRACE")]
    pub(crate) grace: Option<u64>,
    /// Disk sets: not built yet.
    #[arg(long, value_name = "SPEC", env = "CROSSDOCK_DISKS")]
    pub(crate) disks: Option<String>,
    /// A request that takes longer is told in the log and kept to look at [default: 1000].
    #[arg(long, value_name = "MS", env = "CROSSDOCK_SLOW_MS")]
    pub(crate) slow_ms: Option<u64>,
    /// User to become once the doors are bound, by name or as UID:GID, when started
    /// as root [default: stay, without capabilities].
    #[arg(long, value_name = "NAME", env = "CROSSDOCK_USER")]
    pub(crate) user: Option<String>,
    /// How disks and sockets are driven [default: auto].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_IO")]
    pub(crate) io: Option<Io>,
    /// How log lines look [default: human].
    #[arg(long, value_name = "FORMAT", env = "CROSSDOCK_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Which log lines are shown, like `info` or `crossdock=debug` [default: info].
    #[arg(long, value_name = "FILTER", env = "CROSSDOCK_LOG")]
    pub(crate) log: Option<String>,
}

/// Where a door listens, or that it does not.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Door {
    Off,
    /// At one address of each kind at most: what a client is answered through
    /// follows from its own address.
    At(Vec<SocketAddr>),
}

/// A number of bytes, written with or without K, M, G, T (powers of 1,024).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Size(pub(crate) u64);

/// How disks and sockets are driven.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Io {
    /// io_uring, or threads where the kernel has or allows none.
    Auto,
    /// io_uring or an error.
    Uring,
    /// A thread pool.
    Threads,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What `crossdock up` runs with, all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    /// `None`: what the data directory has; 4 for a new one.
    pub(crate) nodes: Option<u32>,
    pub(crate) size: Option<u64>,
    /// `None`: what the data directory has; 1 for a new one.
    pub(crate) replicas: Option<u32>,
    pub(crate) cache: Option<u64>,
    pub(crate) request_memory: Option<u64>,
    pub(crate) disk_depth: usize,
    pub(crate) nfs: Door,
    pub(crate) admin: Door,
    pub(crate) admin_name: Vec<String>,
    pub(crate) slow_ms: u64,
    pub(crate) portmap: Door,
    /// In seconds.
    pub(crate) grace: u64,
    /// `None`: stay who we are.
    pub(crate) user: Option<String>,
    pub(crate) io: Io,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
}

/// The command line or the file asks for something that cannot be: exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError {
    what: String,
    /// Line and column of the file, counted from 1.
    pub(crate) place: Option<(usize, usize)>,
}

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for UsageError {}

/// Nodes of a new all-in-one.
pub(crate) const NODES_DEFAULT: u32 = 4;

/// Clients begin to notice.
const SLOW_MS_DEFAULT: u64 = 1000;
/// Seconds of grace for locks, as other servers have.
const GRACE_DEFAULT: u64 = 45;

/// Most seconds of it: nobody gets a new lock meanwhile.
const GRACE_MAX: u64 = 3600;

/// Most nodes of an all-in-one.
const NODES_MAX: u32 = 64;

/// No device takes more at a time.
const DISK_DEPTH_LIMIT: usize = 1024;

impl Flags {
    /// Reads the file, if one is named, and fills in defaults.
    pub(crate) fn settle(&self) -> anyhow::Result<Settings> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => Self::default(),
        };
        let both = |flag: &Option<Door>, key: Option<Door>| flag.clone().or(key);
        for (name, door) in [
            ("http", both(&self.http, file.http)),
            ("iscsi", both(&self.iscsi, file.iscsi)),
            ("ibp", both(&self.ibp, file.ibp)),
            ("lbone", both(&self.lbone, file.lbone)),
        ] {
            if let Some(Door::At(_)) = door {
                return Err(usage(format!(
                    "the {name} door is not built in this version; leave --{name} away or say --{name} off"
                )));
            }
        }
        if self.disks.is_some() || file.disks.is_some() {
            return Err(usage(
                "disk sets are not built in this version; leave --disks away: each node keeps its disk as files in the data directory".to_owned(),
            ));
        }
        let settings = Settings {
            data: self
                .data
                .clone()
                .or(file.data)
                .unwrap_or_else(|| PathBuf::from("crossdock-data")),
            nodes: self.nodes.or(file.nodes),
            size: self.size.or(file.size).map(|size| size.0),
            replicas: self.replicas.or(file.replicas),
            cache: self.cache.or(file.cache).map(|size| size.0),
            request_memory: self
                .request_memory
                .or(file.request_memory)
                .map(|size| size.0),
            disk_depth: self
                .disk_depth
                .or(file.disk_depth)
                .unwrap_or(DISK_DEPTH_MAX),
            nfs: both(&self.nfs, file.nfs).unwrap_or_else(|| loopback(2049)),
            admin: both(&self.admin, file.admin).unwrap_or_else(|| loopback(7070)),
            admin_name: self
                .admin_name
                .clone()
                .or(file.admin_name)
                .unwrap_or_default(),
            slow_ms: self.slow_ms.or(file.slow_ms).unwrap_or(SLOW_MS_DEFAULT),
            portmap: both(&self.portmap, file.portmap).unwrap_or(Door::Off),
            grace: self.grace.or(file.grace).unwrap_or(GRACE_DEFAULT),
            user: self.user.clone().or(file.user),
            io: self.io.or(file.io).unwrap_or(Io::Auto),
            log_format: self
                .log_format
                .or(file.log_format)
                .unwrap_or(LogFormat::Human),
            log: self
                .log
                .clone()
                .or(file.log)
                .unwrap_or_else(|| "info".to_owned()),
        };
        settings.check()?;
        Ok(settings)
    }
}

impl Settings {
    /// From which time on a request is slow.
    pub(crate) const fn slow_after(&self) -> Duration {
        Duration::from_millis(self.slow_ms)
    }

    fn check(&self) -> anyhow::Result<()> {
        let nodes = self.nodes.unwrap_or(NODES_DEFAULT);
        if nodes == 0 || nodes > NODES_MAX {
            return Err(usage(format!(
                "nodes must be 1 to {NODES_MAX}, not {nodes}"
            )));
        }
        if let Some(replicas) = self.replicas
            && (replicas == 0 || (self.nodes.is_some() && replicas > nodes) || replicas > NODES_MAX)
        {
            return Err(usage(format!(
                "replicas must be 1 to the number of nodes ({nodes}), not {replicas}"
            )));
        }
        if let Some(bytes) = self.request_memory
            && bytes < NFS_REQUEST_BYTES_MIN as u64
        {
            return Err(usage(format!(
                "request_memory must be at least {}M, some of the largest calls at a time, not {bytes} bytes",
                NFS_REQUEST_BYTES_MIN >> 20
            )));
        }
        if self.disk_depth == 0 || self.disk_depth > DISK_DEPTH_LIMIT {
            return Err(usage(format!(
                "disk_depth must be 1 to {DISK_DEPTH_LIMIT}, not {}",
                self.disk_depth
            )));
        }
        if self.grace > GRACE_MAX {
            return Err(usage(format!(
                "grace must be 0 to {GRACE_MAX} seconds, not {}",
                self.grace
            )));
        }
        if let Err(error) = EnvFilter::try_new(&self.log) {
            return Err(usage(format!(
                "the log filter {:?} is not valid ({error}); try `info` or `crossdock=debug`",
                self.log
            )));
        }
        Ok(())
    }
}

/// `crossdock config check FILE`: what is wrong, with line and column, or what
/// the file means.
pub(crate) fn check(path: &Path, json: bool) -> anyhow::Result<()> {
    let settings = Flags {
        config: Some(path.to_owned()),
        ..Flags::default()
    }
    .settle()?;
    if json {
        return format::print_json(&settings);
    }
    let mut text = format!(
        "{0} is valid. crossdock up --config {0} means:\n",
        path.display()
    );
    if let serde_json::Value::Object(keys) = serde_json::to_value(&settings)? {
        for (key, value) in keys {
            let value = if value.is_null() {
                "(default)".to_owned()
            } else {
                value.to_string()
            };
            text += &format!("  {key:<14} {value}\n");
        }
    }
    Ok(format::print(&text)?)
}

fn read(path: &Path) -> anyhow::Result<Flags> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    parse(&text).map_err(|error| {
        let what = format!("{}: {}", path.display(), error.to_string().trim_end());
        let place = error.span().map(|span| place_of(&text, span.start));
        anyhow::Error::new(UsageError { what, place })
    })
}

/// The file's keys. Errors come with line, column and the line itself.
fn parse(text: &str) -> Result<Flags, toml::de::Error> {
    toml::from_str(text)
}

/// Line and column of a byte, counted from 1 in characters.
fn place_of(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

pub(crate) fn usage(what: String) -> anyhow::Error {
    anyhow::Error::new(UsageError { what, place: None })
}

fn loopback(port: u16) -> Door {
    Door::At(vec![SocketAddr::from(([127, 0, 0, 1], port))])
}

impl std::str::FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for word in text.split(',') {
            let address = word.trim().parse().map_err(|_| {
                format!(
                    "{text:?} is neither `off` nor an address like 127.0.0.1:2049 or [::1]:2049"
                )
            })?;
            addresses.push(address);
        }
        if let [first, second, rest @ ..] = &addresses[..]
            && (first.is_ipv6() == second.is_ipv6() || !rest.is_empty())
        {
            return Err(format!(
                "{text:?} has more than one IPv4 and one IPv6 address; 0.0.0.0 and [::] stand for all of a kind"
            ));
        }
        Ok(Self::At(addresses))
    }
}

impl TryFrom<String> for Door {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Door> for String {
    fn from(door: Door) -> Self {
        match door {
            Door::Off => "off".to_owned(),
            Door::At(addresses) => {
                let texts: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
                texts.join(",")
            }
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(format!("{text:?} is no size; write like 500M, 20G or 1T")),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(1 << shift))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no size; write like 500M, 20G or 1T"))
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a wrong key or value is refused with its line and column.
    #[test]
    fn mistakes_are_shown_with_their_place() {
        let unknown = parse("nodes = 4\nreplica = 2\n")
            .map(|_| ())
            .map_err(|error| error.to_string());
        let message = unknown.expect_err("unknown key");
        assert!(
            message.contains("line 2, column 1") && message.contains("replica"),
            "{message}"
        );
        let wrong = parse("nfs = \"localhost\"\n")
            .map(|_| ())
            .map_err(|error| error.to_string());
        let message = wrong.expect_err("no address");
        assert!(
            message.contains("line 1") && message.contains("127.0.0.1:2049"),
            "{message}"
        );
    }

    /// Goal: programs get line and column as numbers, of characters and from 1.
    #[test]
    fn places_are_counted_from_one() {
        assert_eq!(place_of("a = 1\nbc = 2\n", 6), (2, 1));
        assert_eq!(place_of("a = \"\u{e4}\" x", 8), (1, 8));
    }

    /// Goal: doors that are not built are refused, `off` is accepted.
    #[test]
    fn doors_not_built_are_refused() {
        let flags = |door| Flags {
            http: Some(door),
            ..Flags::default()
        };
        assert!(flags(Door::Off).settle().is_ok());
        let error = flags(loopback(80)).settle().expect_err("not built");
        assert!(error.downcast_ref::<UsageError>().is_some(), "exit code 2");
    }

    /// Goal: flags win over the file, sizes are powers of 1,024.
    #[test]
    fn sizes_and_doors_parse() {
        assert_eq!("20G".parse(), Ok(Size(20 << 30)));
        assert_eq!("512".parse(), Ok(Size(512)));
        assert!("12Q".parse::<Size>().is_err() && "".parse::<Size>().is_err());
        assert_eq!("off".parse(), Ok(Door::Off));
        let both = "127.0.0.1:1, [::1]:2".parse::<Door>().expect("two kinds");
        assert_eq!(String::from(both), "127.0.0.1:1,[::1]:2");
        for wrong in [
            "::1:2049",
            "127.0.0.1:1,127.0.0.2:1",
            "[::1]:1,[::2]:1",
            "1.2.3.4:1,",
        ] {
            assert!(wrong.parse::<Door>().is_err(), "{wrong}");
        }
    }
}
