//! Requests.

use std::fmt;
use std::num::NonZeroU64;

use crate::fields::Fields;
use crate::{Access, Capability, ErrorCode, Key, Word};

/// The first field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0, "IBPv031": ibp 1.0 to 1.3.
    V031,
    /// 1, "IBPv040": ibp 1.4. ALLOCATE and STATUS say which resource.
    V040,
}

/// Whether what is stored may go before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reliability {
    /// 1, "soft": revoked when the depot needs the room.
    Volatile,
    /// 2, "hard": kept until its time is over.
    Stable,
}

/// How an allocation takes and gives bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageType {
    /// 1: appended to, or written at an offset; read at any offset, any number of times.
    ByteArray,
    /// 2: each store replaces the content.
    Buffer,
    /// 3: loads take bytes out, stores wait for room.
    Fifo,
    /// 4: loads take bytes out, stores drop the oldest.
    CircularQueue,
}

/// A request: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Decides which fields ALLOCATE and STATUS have.
    pub version: Version,
    /// What is asked for.
    pub command: Command,
}

/// What a client asks a depot for. A `time_limit` is in seconds, 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// 1: an allocation.
    Allocate {
        /// Of which resource; written in version 1 alone, where `None` is 0, the default.
        resource: Option<Word>,
        /// Whether it may go early.
        reliability: Reliability,
        /// What it is.
        storage: StorageType,
        /// For how long, in seconds from now; 0 and less: for ever.
        duration_seconds: i64,
        /// How many bytes it may hold.
        size_bytes: u64,
        /// How long the depot may wait for room.
        time_limit: u32,
    },
    /// 2: append. The bytes follow when the depot has answered.
    Store {
        /// Of the WRITE capability.
        key: Key,
        /// Of the WRITE capability.
        attribute_key: Key,
        /// How many bytes follow.
        size_bytes: u64,
        /// How long the depot may wait for room and for bytes.
        time_limit: u32,
    },
    /// 13: write at an offset (ibp 1.4). The bytes follow when the depot has answered.
    Write {
        /// Of the WRITE capability.
        key: Key,
        /// Of the WRITE capability.
        attribute_key: Key,
        /// Where the first byte goes.
        offset_bytes: u64,
        /// How many bytes follow.
        size_bytes: u64,
        /// How long the depot may wait for bytes.
        time_limit: u32,
    },
    /// 8: read. The bytes follow the answer.
    Load {
        /// Of the READ capability.
        key: Key,
        /// Of the READ capability.
        attribute_key: Key,
        /// The first byte.
        offset_bytes: u64,
        /// How many; `None`: up to the current end.
        size_bytes: Option<NonZeroU64>,
        /// How long the depot may wait for bytes.
        time_limit: u32,
    },
    /// 5, SEND: third-party copy; goes to the source and is an append at the target.
    Send {
        /// Of the source's READ capability.
        key: Key,
        /// The target's WRITE capability.
        target: Capability,
        /// Of the source's READ capability.
        attribute_key: Key,
        /// The first byte of the source.
        offset_bytes: u64,
        /// How many; `None`: up to the current end.
        size_bytes: Option<NonZeroU64>,
        /// How long the source may wait for its bytes.
        time_limit: u32,
        /// How long the target may wait, as the source tells it.
        target_time_limit: u32,
        /// How long the source waits for the target.
        target_patience: u32,
    },
    /// 9: about an allocation.
    Manage {
        /// Of the MANAGE capability; of any for a probe.
        key: Key,
        /// Of the same capability.
        attribute_key: Key,
        /// What about it.
        manage: Manage,
        /// How long the depot may take.
        time_limit: u32,
    },
    /// 4: about the depot.
    Status {
        /// Of which resource; written in version 1 alone, where `None` is 0, the default.
        resource: Option<Word>,
        /// What about it.
        query: StatusQuery,
        /// How long the depot may take.
        time_limit: u32,
    },
}

/// Subcommands of MANAGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// 40: what it is like.
    Probe,
    /// 41: one more user of this kind of access, reading or writing.
    Increment(Access),
    /// 42: one less; without readers the allocation goes.
    Decrement(Access),
    /// 43: other limits.
    Change {
        /// How many bytes it may hold.
        size_bytes: u64,
        /// For how long, in seconds from now; 0 and less: for ever.
        duration_seconds: i64,
        /// Whether it may go early.
        reliability: Reliability,
    },
    /// 45: another length of what it holds (ACCRE).
    Truncate {
        /// The new length.
        size_bytes: u64,
    },
}

/// Subcommands of STATUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusQuery {
    /// 1: sizes and longest duration.
    Inquire {
        /// Many depots do not look at it; clients send `ibp`.
        password: Word,
    },
    /// 2: other limits. The depot answers, then the client sends them
    /// ([`Limits`](crate::Limits)).
    Change {
        /// Of the depot.
        password: Word,
    },
    /// 3: which resources there are (ACCRE).
    Resources,
}

/// What MANAGE's probe tells of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Users that read.
    pub read_count: i64,
    /// Users that write.
    pub write_count: i64,
    /// Bytes that it holds.
    pub size_bytes: u64,
    /// Bytes that it may hold.
    pub size_bytes_max: u64,
    /// How long it still lives, in seconds; negative or 0: for ever.
    pub duration_seconds: i64,
    /// Whether it may go early.
    pub reliability: Reliability,
    /// What it is.
    pub storage: StorageType,
}

impl Version {
    const fn number(self) -> i64 {
        match self {
            Self::V031 => 0,
            Self::V040 => 1,
        }
    }
}

impl Reliability {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Volatile => 1,
            Self::Stable => 2,
        }
    }

    /// The one with this number.
    #[must_use]
    pub const fn of(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::Volatile),
            2 => Some(Self::Stable),
            _ => None,
        }
    }
}

impl StorageType {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::ByteArray => 1,
            Self::Buffer => 2,
            Self::Fifo => 3,
            Self::CircularQueue => 4,
        }
    }

    /// The one with this number.
    #[must_use]
    pub const fn of(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::ByteArray),
            2 => Some(Self::Buffer),
            3 => Some(Self::Fifo),
            4 => Some(Self::CircularQueue),
            _ => None,
        }
    }
}

impl Request {
    /// Reads a line, without its LF.
    ///
    /// # Errors
    /// What a depot answers: [`ErrorCode::PROT_VERS`] if the line does not begin with a known
    /// version, [`ErrorCode::INVALID_CMD`] if the command is not known here, else what is
    /// wrong with the fields.
    pub fn parse(line: &[u8]) -> Result<Self, ErrorCode> {
        let mut fields = Fields::of(line).ok_or(ErrorCode::BAD_FORMAT)?;
        let version = match fields.next() {
            Some("0") => Version::V031,
            Some("1") => Version::V040,
            _ => return Err(ErrorCode::PROT_VERS),
        };
        let command = match fields.next() {
            Some("1") => allocate(version, fields)?,
            Some("2") => store(fields)?,
            Some("4") => status(version, fields)?,
            Some("5") => send(fields)?,
            Some("8") => load(fields)?,
            Some("9") => manage(fields)?,
            Some("13") => write(fields)?,
            _ => return Err(ErrorCode::INVALID_CMD),
        };
        Ok(Self { version, command })
    }
}

fn allocate(version: Version, mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    let reliability = |number| Reliability::of(number).ok_or(ErrorCode::INVALID_PARAMETER);
    let storage = |number| StorageType::of(number).ok_or(ErrorCode::INVALID_PARAMETER);
    Ok(Command::Allocate {
        resource: resource(version, &mut fields)?,
        reliability: reliability(fields.number()?)?,
        storage: storage(fields.number()?)?,
        duration_seconds: fields.number()?,
        size_bytes: fields.natural(ErrorCode::INV_PAR_SIZE)?,
        time_limit: fields.time_limit()?,
    })
}

fn store(mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    Ok(Command::Store {
        key: key(&mut fields)?,
        attribute_key: key(&mut fields)?,
        size_bytes: fields.natural(ErrorCode::INV_PAR_SIZE)?,
        time_limit: fields.time_limit()?,
    })
}

fn write(mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    Ok(Command::Write {
        key: key(&mut fields)?,
        attribute_key: key(&mut fields)?,
        offset_bytes: fields.natural(ErrorCode::INVALID_PARAMETER)?,
        size_bytes: fields.natural(ErrorCode::INV_PAR_SIZE)?,
        time_limit: fields.time_limit()?,
    })
}

fn load(mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    Ok(Command::Load {
        key: key(&mut fields)?,
        attribute_key: key(&mut fields)?,
        offset_bytes: fields.natural(ErrorCode::INVALID_PARAMETER)?,
        size_bytes: wanted(&mut fields)?,
        time_limit: fields.time_limit()?,
    })
}

fn send(mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    Ok(Command::Send {
        key: key(&mut fields)?,
        target: (fields.text()?.parse()).map_err(|_| ErrorCode::WRONG_CAP_FORMAT)?,
        attribute_key: key(&mut fields)?,
        offset_bytes: fields.natural(ErrorCode::INVALID_PARAMETER)?,
        size_bytes: wanted(&mut fields)?,
        time_limit: fields.seconds()?,
        target_time_limit: fields.seconds()?,
        target_patience: fields.time_limit()?,
    })
}

fn manage(mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    let key_field = key(&mut fields)?;
    let attribute_key = key(&mut fields)?;
    let manage = match fields.number()? {
        // The other fields mean nothing; a short form leaves them out.
        40 => {
            while fields.count() > 1 {
                fields.number()?;
            }
            Manage::Probe
        }
        41 => Manage::Increment(counted(&mut fields)?),
        42 => Manage::Decrement(counted(&mut fields)?),
        43 => {
            fields.number()?; // The kind of access, which has no meaning here.
            let size_bytes = fields.natural(ErrorCode::INV_PAR_SIZE)?;
            let duration_seconds = fields.number()?;
            let reliability = Reliability::of(fields.number()?);
            Manage::Change {
                size_bytes,
                duration_seconds,
                reliability: reliability.ok_or(ErrorCode::INV_PAR_ATRL)?,
            }
        }
        45 => Manage::Truncate {
            size_bytes: fields.natural(ErrorCode::INV_PAR_SIZE)?,
        },
        _ => return Err(ErrorCode::INVALID_CMD),
    };
    Ok(Command::Manage {
        key: key_field,
        attribute_key,
        manage,
        time_limit: fields.time_limit()?,
    })
}

fn status(version: Version, mut fields: Fields<'_>) -> Result<Command, ErrorCode> {
    // Which resources there are is asked for without saying of which.
    let mut first = fields.clone();
    if first.count() <= 2 && first.next() == Some("3") {
        return Ok(Command::Status {
            resource: None,
            query: StatusQuery::Resources,
            time_limit: first.time_limit()?,
        });
    }
    let resource = resource(version, &mut fields)?;
    let subcommand = fields.number()?;
    if !matches!(subcommand, 1 | 2) {
        return Err(ErrorCode::INVALID_CMD);
    }
    let password = word(&mut fields)?;
    Ok(Command::Status {
        resource,
        query: match subcommand {
            1 => StatusQuery::Inquire { password },
            _ => StatusQuery::Change { password },
        },
        time_limit: fields.time_limit()?,
    })
}

fn word(fields: &mut Fields<'_>) -> Result<Word, ErrorCode> {
    Word::new(fields.text()?).map_err(|_| ErrorCode::BAD_FORMAT)
}

fn resource(version: Version, fields: &mut Fields<'_>) -> Result<Option<Word>, ErrorCode> {
    match version {
        Version::V031 => Ok(None),
        Version::V040 => word(fields).map(Some),
    }
}

fn key(fields: &mut Fields<'_>) -> Result<Key, ErrorCode> {
    Key::new(fields.text()?).map_err(|_| ErrorCode::WRONG_CAP_FORMAT)
}

/// How many bytes are read: 0 and -1 are all that there are.
fn wanted(fields: &mut Fields<'_>) -> Result<Option<NonZeroU64>, ErrorCode> {
    match fields.number()? {
        -1 => Ok(None),
        size => u64::try_from(size)
            .map(NonZeroU64::new)
            .map_err(|_| ErrorCode::INV_PAR_SIZE),
    }
}

/// Whose users are counted: readers or writers.
fn counted(fields: &mut Fields<'_>) -> Result<Access, ErrorCode> {
    match fields.number()? {
        1 => Ok(Access::Read),
        2 => Ok(Access::Write),
        _ => Err(ErrorCode::INVALID_PARAMETER),
    }
}

impl fmt::Display for Request {
    /// The line with its LF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.version.number())?;
        let all = |size_bytes: &Option<NonZeroU64>| size_bytes.map_or(0, NonZeroU64::get);
        match &self.command {
            Command::Allocate {
                resource,
                reliability,
                storage,
                duration_seconds,
                size_bytes,
                time_limit,
            } => {
                f.write_str("1 ")?;
                self.write_resource(f, resource.as_ref())?;
                let (reliability, storage) = (reliability.number(), storage.number());
                write!(
                    f,
                    "{reliability} {storage} {duration_seconds} {size_bytes} "
                )?;
                writeln!(f, "{time_limit}")
            }
            Command::Store {
                key,
                attribute_key,
                size_bytes,
                time_limit,
            } => writeln!(f, "2 {key} {attribute_key} {size_bytes} {time_limit} "),
            Command::Write {
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
            } => {
                write!(f, "13 {key} {attribute_key} {offset_bytes} ")?;
                writeln!(f, "{size_bytes} {time_limit} ")
            }
            Command::Load {
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
            } => {
                write!(f, "8 {key} {attribute_key} {offset_bytes} ")?;
                writeln!(f, "{} {time_limit} ", all(size_bytes))
            }
            Command::Send {
                key,
                target,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
                target_time_limit,
                target_patience,
            } => {
                write!(f, "5 {key} {target} {attribute_key} {offset_bytes} ")?;
                write!(f, "{} {time_limit} ", all(size_bytes))?;
                writeln!(f, "{target_time_limit} {target_patience} ")
            }
            Command::Manage {
                key,
                attribute_key,
                manage,
                time_limit,
            } => writeln!(f, "9 {key} {attribute_key} {manage} {time_limit}"),
            Command::Status {
                resource,
                query,
                time_limit,
            } => {
                f.write_str("4 ")?;
                if *query != StatusQuery::Resources {
                    self.write_resource(f, resource.as_ref())?;
                }
                writeln!(f, "{query} {time_limit}")
            }
        }
    }
}

impl Request {
    fn write_resource(&self, f: &mut fmt::Formatter<'_>, resource: Option<&Word>) -> fmt::Result {
        match (self.version, resource) {
            (Version::V031, _) => Ok(()),
            (Version::V040, Some(resource)) => write!(f, "{resource} "),
            (Version::V040, None) => f.write_str("0 "),
        }
    }
}

impl fmt::Display for Manage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe => f.write_str("40 0 0 0 0"),
            Self::Increment(access) => write!(f, "41 {}", access.number()),
            Self::Decrement(access) => write!(f, "42 {}", access.number()),
            Self::Change {
                size_bytes,
                duration_seconds,
                reliability,
            } => {
                let reliability = reliability.number();
                write!(f, "43 0 {size_bytes} {duration_seconds} {reliability}")
            }
            Self::Truncate { size_bytes } => write!(f, "45 {size_bytes}"),
        }
    }
}

impl fmt::Display for StatusQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inquire { password } => write!(f, "1 {password}"),
            Self::Change { password } => write!(f, "2 {password}"),
            Self::Resources => f.write_str("3"),
        }
    }
}
