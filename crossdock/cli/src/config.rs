//! Configuration: one TOML file per process, every key also a flag and an
//! environment variable. Flags win over the file, the file over defaults.

mod depot;
mod groups;
mod http;
mod iscsi;
mod lbone;
mod member;
mod up;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Spanned;

use crate::format;

pub(crate) use depot::DepotSettings;
pub(crate) use groups::{
    DoorSettings, EnsembleFlags, NodeDoorSettings, ProcessSettings, REBUILD_RATE_DEFAULT,
    StoreSettings, TransportSettings,
};
pub(crate) use http::{HttpSettings, Switch};
pub(crate) use iscsi::IscsiSettings;
pub(crate) use lbone::{LboneSettings, record_of};
pub(crate) use member::{
    EnsembleSettings, GatewayFlags, ManagerFlags, MemberSettings, NodeFlags, Part,
    check_gateway_name,
};
pub(crate) use up::{NODES_DEFAULT, UpFlags, UpSettings, check_pool, check_spread};
pub(crate) use values::{Io, LogFormat, Names, Placement, Secret, Size, Span, Transport};

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

/// Some of a command's flags, and the keys of the same names.
trait Group: Default + DeserializeOwned + Serialize {
    /// These flags, and the file's keys where there are none.
    fn over(self, file: Self) -> Self;
}

/// A configuration file, or nothing where none is named. A command takes its
/// groups out of it, one after the other; what is left then is a mistake.
struct File {
    path: PathBuf,
    text: String,
    /// Keys that the groups have taken so far.
    known: BTreeSet<String>,
}

impl File {
    fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let text = path.map(|path| {
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration file {}", path.display()))
        });
        Ok(Self {
            path: path.map(Path::to_owned).unwrap_or_default(),
            text: text.transpose()?.unwrap_or_default(),
            known: BTreeSet::new(),
        })
    }

    /// A group of flags, with the file's keys where there are none.
    fn complete<G: Group>(&mut self, flags: G) -> anyhow::Result<G> {
        if let serde_json::Value::Object(keys) = serde_json::to_value(G::default())? {
            self.known.extend(keys.into_iter().map(|(key, _)| key));
        }
        Ok(flags.over(self.parse()?))
    }

    /// Refuses keys that no group has.
    fn finish(self) -> anyhow::Result<()> {
        let keys: BTreeMap<Spanned<String>, IgnoredAny> = self.parse()?;
        let unknown = keys.keys().find(|key| !self.known.contains(key.get_ref()));
        let Some(unknown) = unknown else {
            return Ok(());
        };
        let (line, column) = place_of(&self.text, unknown.span().start);
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let what = format!(
            "{}: line {line}, column {column}: unknown field `{}`; there are {}",
            self.path.display(),
            unknown.get_ref(),
            known.join(", ")
        );
        let place = Some((line, column));
        Err(anyhow::Error::new(UsageError { what, place }))
    }

    /// What of the file is a `T`. Errors come with line, column and the line itself.
    fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        toml::from_str(&self.text).map_err(|error| {
            let what = format!("{}: {}", self.path.display(), error.to_string().trim_end());
            let place = error.span().map(|span| place_of(&self.text, span.start));
            anyhow::Error::new(UsageError { what, place })
        })
    }
}

/// The commands that have configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Of {
    /// crossdock up
    Up,
    /// crossdock node run
    Node,
    /// crossdock manager run
    Manager,
    /// crossdock gateway run
    Gateway,
}

impl Of {
    /// Which command a file seems to be for, by keys that only one has.
    fn guess(file: &File) -> anyhow::Result<Self> {
        let keys: BTreeMap<String, IgnoredAny> = file.parse()?;
        Ok(match () {
            () if !keys.contains_key("etcd") && !keys.contains_key("listen") => Self::Up,
            () if keys.contains_key("number") || keys.contains_key("data") => Self::Node,
            () if keys.contains_key("nfs") || keys.contains_key("portmap") => Self::Gateway,
            () => Self::Manager,
        })
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Node => "node run",
            Self::Manager => "manager run",
            Self::Gateway => "gateway run",
        }
    }
}

/// `crossdock config check FILE`: what is wrong, with line and column, or what
/// the file means.
pub(crate) fn check(path: &Path, of: Option<Of>, json: bool) -> anyhow::Result<()> {
    let of = match of {
        Some(of) => of,
        None => Of::guess(&File::read(Some(path))?)?,
    };
    let file = path.to_owned();
    let settings = match of {
        Of::Up => serde_json::to_value(UpFlags::of_file(file).settle()?)?,
        Of::Node => serde_json::to_value(NodeFlags::of_file(file).settle()?)?,
        Of::Manager => serde_json::to_value(ManagerFlags::of_file(file).settle()?)?,
        Of::Gateway => serde_json::to_value(GatewayFlags::of_file(file).settle()?)?,
    };
    if json {
        return format::print_json(&settings);
    }
    let mut text = format!(
        "{0} is valid. crossdock {1} --config {0} means:\n",
        path.display(),
        of.command()
    );
    if let serde_json::Value::Object(keys) = settings {
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

pub(crate) fn usage(what: String) -> anyhow::Error {
    anyhow::Error::new(UsageError { what, place: None })
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

#[cfg(test)]
mod tests {
    use super::up::UpFlags;
    use super::*;

    fn file(text: &str) -> File {
        File {
            path: PathBuf::from("crossdock.toml"),
            text: text.to_owned(),
            known: BTreeSet::new(),
        }
    }

    fn mistake(text: &str) -> String {
        let mut file = file(text);
        let taken = file.complete(groups::DoorFlags::default());
        let outcome = taken.and_then(|_| file.finish());
        outcome.expect_err("a mistake").to_string()
    }

    /// Goal: a wrong key or value is refused with its line and column.
    #[test]
    fn mistakes_are_shown_with_their_place() {
        let message = mistake("nfs = \"off\"\nreplica = 2\n");
        let words = ["line 2, column 1", "unknown field", "replica", "portmap"];
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        let message = mistake("nfs = \"localhost\"\n");
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

    /// Goal: flags win over the file, the file over defaults.
    #[test]
    fn flags_win_over_the_file() {
        let flags = groups::LockFlags { grace: Some(1) };
        let grace = |flags: groups::LockFlags, text| {
            let settled = file(text).complete(flags).and_then(|it| it.settle());
            settled.expect("no mistake")
        };
        assert_eq!(grace(flags, "grace = 2"), 1);
        assert_eq!(grace(groups::LockFlags::default(), "grace = 2"), 2);
        let defaults = UpFlags::default().settle().expect("defaults");
        assert_eq!(grace(groups::LockFlags::default(), ""), defaults.grace);
    }

    /// Goal: what a file is for is seen by its keys.
    #[test]
    fn files_are_told_apart() {
        for (text, of) in [
            ("", Of::Up),
            ("nfs = \"off\"", Of::Up),
            ("etcd = [\"http://127.0.0.1:1\"]\nnumber = 1", Of::Node),
            (
                "etcd = [\"http://127.0.0.1:1\"]\nnfs = \"off\"",
                Of::Gateway,
            ),
            ("etcd = [\"http://127.0.0.1:1\"]", Of::Manager),
        ] {
            assert_eq!(Of::guess(&file(text)).expect("TOML"), of, "{text}");
        }
    }
}
