//! What a depot tells of itself, and is told.

use std::fmt;

use crossdock_limits::{IBP_RESOURCES_MAX, IBP_STATUS_BYTES_MAX};
use thiserror::Error;

use crate::answer::{AnswerError, refusal};
use crate::fields::Fields;
use crate::{ErrorCode, Word};

/// The answer of version 0: space in MiB. One line, without a 1 in front of it.
///
/// The volatile figures are of all space, which both kinds share; the stable ones are what of
/// it stable allocations may have, and have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// For stable allocations, in MiB.
    pub stable_mib: u64,
    /// Of that in use.
    pub stable_used_mib: u64,
    /// For all allocations, in MiB.
    pub volatile_mib: u64,
    /// Of that in use.
    pub volatile_used_mib: u64,
    /// The longest duration, in seconds; `None`: without a limit.
    pub duration_seconds_max: Option<u64>,
}

impl Totals {
    /// Reads a line, without its LF.
    ///
    /// # Errors
    /// The depot has refused, or this is something else.
    pub fn parse(line: &[u8]) -> Result<Self, AnswerError> {
        let mut fields = Fields::of(line).ok_or(AnswerError::Malformed)?;
        let first = fields.number().map_err(|_| AnswerError::Malformed)?;
        if first < 0 {
            return Err(refusal(first, fields.next()));
        }
        let mut rest = || -> Result<Self, ErrorCode> {
            let totals = Self {
                stable_mib: u64::try_from(first).map_err(|_| ErrorCode::BAD_FORMAT)?,
                stable_used_mib: fields.natural(ErrorCode::BAD_FORMAT)?,
                volatile_mib: fields.natural(ErrorCode::BAD_FORMAT)?,
                volatile_used_mib: fields.natural(ErrorCode::BAD_FORMAT)?,
                duration_seconds_max: u64::try_from(fields.number()?).ok(),
            };
            fields.end()?;
            Ok(totals)
        };
        rest().map_err(|_| AnswerError::Malformed)
    }
}

impl fmt::Display for Totals {
    /// The line with its LF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.stable_mib, self.stable_used_mib)?;
        write!(f, "{} {} ", self.volatile_mib, self.volatile_used_mib)?;
        writeln!(f, "{} ", OrForever(self.duration_seconds_max))
    }
}

/// What a client sends after STATUS CHANGE: the depot's new limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For stable allocations, in MiB.
    pub stable_mib: u64,
    /// For all allocations, in MiB.
    pub volatile_mib: u64,
    /// The longest duration, in seconds; `None`: without a limit.
    pub duration_seconds_max: Option<u64>,
}

impl Limits {
    /// Reads a line, without its LF.
    ///
    /// # Errors
    /// What a depot answers.
    pub fn parse(line: &[u8]) -> Result<Self, ErrorCode> {
        let mut fields = Fields::of(line).ok_or(ErrorCode::BAD_FORMAT)?;
        let limits = Self {
            stable_mib: fields.natural(ErrorCode::INVALID_PARAMETER)?,
            volatile_mib: fields.natural(ErrorCode::INVALID_PARAMETER)?,
            duration_seconds_max: u64::try_from(fields.number()?).ok(),
        };
        fields.end()?;
        Ok(limits)
    }
}

impl fmt::Display for Limits {
    /// The line with its LF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.stable_mib, self.volatile_mib)?;
        writeln!(f, "{} ", OrForever(self.duration_seconds_max))
    }
}

/// The answer of version 1, which follows the line that says how many bytes it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Version of the protocol and of the depot: the text after `VS:`.
    pub version: Word,
    /// Data movers, by their numbers.
    pub data_movers: Vec<u32>,
    /// Its resources.
    pub resources: Vec<Resource>,
}

/// One resource of a depot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// How requests name it.
    pub id: Word,
    /// 1: disk; 2: memory.
    pub kind: u32,
    /// Space of all allocations.
    pub total: Space,
    /// The part of it that stable ones may have.
    pub stable: Space,
    /// The longest duration, in seconds; `None`: without a limit.
    pub duration_seconds_max: Option<u64>,
}

/// Sizes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Space {
    /// As configured.
    pub configured_bytes: u64,
    /// What is really there.
    pub served_bytes: u64,
    /// In use.
    pub used_bytes: u64,
    /// What can still be allocated.
    pub allocatable_bytes: u64,
}

/// A text that is no [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed status: {0}")]
pub struct StatusError(&'static str);

impl Status {
    /// Reads what has followed. Items may have any order, and unknown ones are passed over.
    ///
    /// # Errors
    /// Something is missing, is no number, or is longer than any status.
    pub fn parse(text: &[u8]) -> Result<Self, StatusError> {
        if text.len() > IBP_STATUS_BYTES_MAX {
            return Err(StatusError("it is too long"));
        }
        let text = str::from_utf8(text).map_err(|_| StatusError("it is not text"))?;
        let mut status = Self {
            version: Word::new("0").map_err(|_| StatusError("no version"))?,
            data_movers: Vec::new(),
            resources: Vec::new(),
        };
        let mut open: Option<Resource> = None;
        for item in text.split_ascii_whitespace() {
            let (name, value) = item.split_once(':').unwrap_or((item, ""));
            match (name, &mut open) {
                ("VS", _) => {
                    status.version = Word::new(value).map_err(|_| StatusError("no version"))?;
                }
                ("DT", _) => {
                    let movers = value.split(':').filter(|it| !it.is_empty());
                    status.data_movers = movers.map(number).collect::<Result<_, _>>()?;
                }
                ("RID", None) => open = Some(Resource::named(value)?),
                ("RID", Some(_)) => return Err(StatusError("a resource does not end")),
                ("RE", open) => status.resources.extend(open.take()),
                (_, Some(resource)) => resource.read(name, value)?,
                (_, None) => {}
            }
            if status.resources.len() > IBP_RESOURCES_MAX {
                return Err(StatusError("too many resources"));
            }
        }
        match open {
            None => Ok(status),
            Some(_) => Err(StatusError("a resource does not end")),
        }
    }
}

impl Resource {
    fn named(id: &str) -> Result<Self, StatusError> {
        Ok(Self {
            id: Word::new(id).map_err(|_| StatusError("a resource has no id"))?,
            kind: 1,
            total: Space::default(),
            stable: Space::default(),
            duration_seconds_max: None,
        })
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), StatusError> {
        let space = match name.as_bytes() {
            [_, b'T'] if name != "RT" => &mut self.total,
            [_, b'H'] => &mut self.stable,
            _ => {
                match name {
                    "RT" => self.kind = number(value)?,
                    "DR" => {
                        let seconds = number::<i64>(value)?;
                        self.duration_seconds_max = u64::try_from(seconds).ok();
                    }
                    _ => {}
                }
                return Ok(());
            }
        };
        let bytes = match name.as_bytes().first() {
            Some(b'C') => &mut space.configured_bytes,
            Some(b'S') => &mut space.served_bytes,
            Some(b'U') => &mut space.used_bytes,
            Some(b'A') => &mut space.allocatable_bytes,
            _ => return Ok(()),
        };
        *bytes = number(value)?;
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, StatusError> {
    text.parse().map_err(|_| StatusError("not a number"))
}

impl fmt::Display for Status {
    /// The text with its LF, which its length counts, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VS:{} DT", self.version)?;
        for mover in &self.data_movers {
            write!(f, ":{mover}")?;
        }
        for resource in &self.resources {
            write!(f, " RID:{} RT:{} ", resource.id, resource.kind)?;
            let spaces = [('T', resource.total), ('H', resource.stable)];
            for (suffix, space) in spaces {
                write!(f, "C{suffix}:{} ", space.configured_bytes)?;
                write!(f, "S{suffix}:{} ", space.served_bytes)?;
                write!(f, "U{suffix}:{} ", space.used_bytes)?;
                write!(f, "A{suffix}:{} ", space.allocatable_bytes)?;
            }
            write!(f, "DR:{} RE", OrForever(resource.duration_seconds_max))?;
        }
        f.write_str(" \n")
    }
}

/// A number of seconds, -1 without a limit.
struct OrForever(Option<u64>);

impl fmt::Display for OrForever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => write!(f, "{seconds}"),
            None => f.write_str("-1"),
        }
    }
}
