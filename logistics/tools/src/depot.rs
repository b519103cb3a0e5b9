//! Depots, as a client sees them.

mod connection;
mod load;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossdock_forecast::Failure;
use crossdock_ibp::answer::{self, AnswerError};
use crossdock_ibp::{
    Access, Capabilities, Capability, Command, ErrorCode, Manage, PORT, Probe, Reliability,
    Request, StatusQuery, StorageType, Totals, Version, Word,
};
use crossdock_limits::IBP_REQUEST_BYTES_MAX;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use connection::Connection;
pub(crate) use load::{Turn, Turns, reads_ahead};

/// Idle connections that are kept of each depot.
const IDLE_MAX: usize = 32;

/// Bytes that are read or written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// How much longer than other answers that of a copy may take.
const COPY_TIMES: u32 = 20;

/// Host and port of a depot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name or an address; an IPv6 one in brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Text that is no address of a depot.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not HOST or HOST:PORT")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let is_bare = text.starts_with('[') && text.ends_with(']') || !text.contains(':');
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !is_bare => (host, port.parse().map_err(|_| wrong())?),
            _ => (text, PORT),
        };
        let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        match is_host && !host.contains('/') && (!host.contains(':') || host.starts_with('[')) {
            true => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl From<&Capability> for Address {
    fn from(capability: &Capability) -> Self {
        Self {
            host: capability.host.as_str().to_owned(),
            port: capability.port,
        }
    }
}

/// Why a depot has not done what it was asked to.
#[derive(Debug, Error)]
pub enum DepotError {
    /// There is no connection to it.
    #[error("depot {depot} cannot be reached: {error}")]
    Connect {
        /// Which.
        depot: Address,
        /// Why.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to depot {depot} broke: {error}")]
    Broken {
        /// Which.
        depot: Address,
        /// Why.
        error: io::Error,
    },
    /// It closed the connection before it answered.
    #[error("depot {depot} closed the connection without an answer")]
    Closed {
        /// Which.
        depot: Address,
    },
    /// It did not answer in time.
    #[error("depot {depot} did not answer in time")]
    TimedOut {
        /// Which.
        depot: Address,
    },
    /// It has refused.
    #[error("depot {depot}: {code}")]
    Refused {
        /// Which.
        depot: Address,
        /// Why.
        code: ErrorCode,
    },
    /// It said something that is no answer.
    #[error("depot {depot} gave an answer that is none")]
    Malformed {
        /// Which.
        depot: Address,
    },
    /// It took or gave another number of bytes.
    #[error("depot {depot} moved {moved} bytes of {wanted}")]
    Short {
        /// Which.
        depot: Address,
        /// That were to be moved.
        wanted: u64,
        /// That it has moved.
        moved: u64,
    },
    /// The request would be longer than depots take.
    #[error("a capability is too long for a request")]
    TooLong,
}

impl DepotError {
    /// What the scheduler makes of it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Connect { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                Failure::Missing
            }
            Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Closed { .. }
            | Self::TimedOut { .. } => Failure::Broken,
            Self::Refused { code, .. } => match *code {
                ErrorCode::QUEUE_FULL | ErrorCode::OUT_OF_SOCKETS | ErrorCode::WOULD_BLOCK => {
                    Failure::Busy
                }
                ErrorCode::SERVER_TIMEOUT
                | ErrorCode::CLIENT_TIMEOUT
                | ErrorCode::SERVER_RECOVERING
                | ErrorCode::SOCK_READ
                | ErrorCode::SOCK_WRITE
                | ErrorCode::CONNECTION
                | ErrorCode::CANT_CONNECT => Failure::Broken,
                _ => Failure::Missing,
            },
            Self::Malformed { .. } | Self::Short { .. } | Self::TooLong => Failure::Missing,
        }
    }
}

/// What an allocation is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many bytes it may hold.
    pub bytes: u64,
    /// For how long.
    pub duration: Duration,
    /// Whether it may go early.
    pub reliability: Reliability,
}

/// Depots, with connections to them that are used again. Clones share them.
#[derive(Clone, Debug)]
pub struct Depots {
    idle: Arc<Mutex<BTreeMap<Address, Vec<Connection>>>>,
    /// How long an answer, or the next byte, may take.
    patience: Duration,
    bounds: Option<Bounds>,
}

/// Whether a depot that has this address may be connected to.
#[derive(Clone)]
struct Bounds(Arc<Allows>);

type Allows = dyn Fn(&Address, IpAddr) -> bool + Send + Sync;

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bounds")
    }
}

impl Default for Depots {
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl Depots {
    /// For answers, and each next byte, depots have `patience`.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            idle: Arc::default(),
            patience,
            bounds: None,
        }
    }

    /// Connects only where `allows` says so: of which depot, and the address that it has. A
    /// name is looked up once for both, so that it cannot stand for another address then.
    #[must_use]
    pub fn within(self, allows: impl Fn(&Address, IpAddr) -> bool + Send + Sync + 'static) -> Self {
        let bounds = Some(Bounds(Arc::new(allows)));
        Self { bounds, ..self }
    }

    /// How much room a depot has, and for how long: the answer of version 0, which every depot
    /// knows.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn status(&self, depot: &Address) -> Result<Totals, DepotError> {
        let password = Word::new("ibp").map_err(|_| DepotError::TooLong)?;
        let command = Command::Status {
            resource: None,
            query: StatusQuery::Inquire { password },
            time_limit: self.time_limit(),
        };
        self.simple(depot, command, Totals::parse).await
    }

    /// Makes a byte array.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn allocate(
        &self,
        depot: &Address,
        wanted: Wanted,
    ) -> Result<Capabilities, DepotError> {
        let command = Command::Allocate {
            resource: None,
            reliability: wanted.reliability,
            storage: StorageType::ByteArray,
            duration_seconds: seconds(wanted.duration),
            size_bytes: wanted.bytes,
            time_limit: 0,
        };
        self.simple(depot, command, answer::read_capabilities).await
    }

    /// Appends `bytes`; `moved` is told how many have gone so far.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn store(
        &self,
        write: &Capability,
        bytes: Bytes,
        mut moved: impl FnMut(u64),
    ) -> Result<(), DepotError> {
        let depot = Address::from(write);
        let wanted = bytes.len() as u64;
        let command = Command::Store {
            key: write.key.clone(),
            attribute_key: write.attribute_key.clone(),
            size_bytes: wanted,
            time_limit: self.time_limit(),
        };
        let (mut connection, ()) = self.ask(&depot, command, false, answer::read_done).await?;
        let mut done = 0;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let sent = timeout(self.patience, connection.writer.write_all(chunk)).await;
            sent.map_err(|_| timed_out(&depot))?
                .map_err(|error| broken(&depot, error))?;
            done += chunk.len() as u64;
            moved(done);
        }
        let line = self.line(&depot, &mut connection.reader).await?;
        let stored = understood(&depot, answer::read_bytes(&line))?;
        self.keep(depot.clone(), connection);
        match stored == wanted {
            true => Ok(()),
            false => Err(DepotError::Short {
                depot,
                wanted,
                moved: stored,
            }),
        }
    }

    /// Has the depot of `read` append bytes to what `write` names, elsewhere (third-party copy).
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn copy(
        &self,
        read: &Capability,
        offset: u64,
        bytes: u64,
        write: &Capability,
    ) -> Result<(), DepotError> {
        let depot = Address::from(read);
        let command = Command::Send {
            key: read.key.clone(),
            target: write.clone(),
            attribute_key: read.attribute_key.clone(),
            offset_bytes: offset,
            size_bytes: NonZeroU64::new(bytes),
            time_limit: self.time_limit(),
            target_time_limit: self.time_limit(),
            target_patience: self.time_limit(),
        };
        // Nothing is said until all has moved.
        let patient = Self {
            patience: self.patience * COPY_TIMES,
            ..self.clone()
        };
        // Not over a connection that may have ended: it would not be known whether the copy
        // was made, and a second one would be appended.
        let (connection, moved) = patient
            .ask(&depot, command, true, answer::read_bytes)
            .await?;
        self.keep(depot.clone(), connection);
        match moved == bytes {
            true => Ok(()),
            false => Err(DepotError::Short {
                depot,
                wanted: bytes,
                moved,
            }),
        }
    }

    /// What an allocation is like; any of its capabilities will do.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn probe(&self, capability: &Capability) -> Result<Probe, DepotError> {
        let command = self.manage(capability, Manage::Probe);
        let depot = Address::from(capability);
        self.simple(&depot, command, answer::read_probe).await
    }

    /// Gives an allocation another end, size or reliability.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn change(&self, manage: &Capability, wanted: Wanted) -> Result<(), DepotError> {
        let change = Manage::Change {
            size_bytes: wanted.bytes,
            duration_seconds: seconds(wanted.duration),
            reliability: wanted.reliability,
        };
        let command = self.manage(manage, change);
        let depot = Address::from(manage);
        self.simple(&depot, command, answer::read_done).await
    }

    /// Has one reader less: without any the allocation goes.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn release(&self, manage: &Capability) -> Result<(), DepotError> {
        let command = self.manage(manage, Manage::Decrement(Access::Read));
        let depot = Address::from(manage);
        let (connection, ()) = self.ask(&depot, command, true, answer::read_done).await?;
        self.keep(depot, connection);
        Ok(())
    }

    fn manage(&self, capability: &Capability, manage: Manage) -> Command {
        Command::Manage {
            key: capability.key.clone(),
            attribute_key: capability.attribute_key.clone(),
            manage,
            time_limit: self.time_limit(),
        }
    }

    fn time_limit(&self) -> u32 {
        u32::try_from(self.patience.as_secs()).unwrap_or(u32::MAX)
    }

    /// A request whose answer is one line.
    async fn simple<T, E: Into<AnswerError>>(
        &self,
        depot: &Address,
        command: Command,
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<T, DepotError> {
        let (connection, answer) = self.ask(depot, command, false, read).await?;
        self.keep(depot.clone(), connection);
        Ok(answer)
    }

    /// Sends a request and reads the line that answers it. A connection that was used before
    /// may have ended meanwhile: then it goes over a new one, as with the ibp 1.4 library.
    async fn ask<T, E: Into<AnswerError>>(
        &self,
        depot: &Address,
        command: Command,
        is_fresh: bool,
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<(Connection, T), DepotError> {
        let request = request(command)?;
        let idle = match is_fresh {
            true => None,
            false => self.idle().get_mut(depot).and_then(Vec::pop),
        };
        if let Some(connection) = idle {
            match self.exchange(depot, connection, &request).await {
                Ok((connection, line)) => {
                    return understood(depot, read(&line)).map(|answer| (connection, answer));
                }
                Err(DepotError::Closed { .. } | DepotError::Broken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let connection = self.connect(depot).await?;
        let (connection, line) = self.exchange(depot, connection, &request).await?;
        understood(depot, read(&line)).map(|answer| (connection, answer))
    }

    async fn connect(&self, depot: &Address) -> Result<Connection, DepotError> {
        let stream = timeout(self.patience, self.dial(depot))
            .await
            .map_err(|_| timed_out(depot))?;
        let failed = |error| DepotError::Connect {
            depot: depot.clone(),
            error,
        };
        let stream = stream.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Connection::new(stream))
    }

    async fn dial(&self, depot: &Address) -> io::Result<TcpStream> {
        let host = depot.host.trim_start_matches('[').trim_end_matches(']');
        let Some(Bounds(allows)) = &self.bounds else {
            return TcpStream::connect((host, depot.port)).await;
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in lookup_host((host, depot.port)).await? {
            last = match allows(depot, address.ip()) {
                true => match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => error,
                },
                false => io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "{} is not among the networks that may be connected to",
                        address.ip()
                    ),
                ),
            };
        }
        Err(last)
    }

    async fn exchange(
        &self,
        depot: &Address,
        mut connection: Connection,
        request: &str,
    ) -> Result<(Connection, Vec<u8>), DepotError> {
        self.send(depot, &mut connection.writer, request).await?;
        let line = self.line(depot, &mut connection.reader).await?;
        Ok((connection, line))
    }

    fn keep(&self, depot: Address, connection: Connection) {
        // What is not asked for means that both ends do not agree on where they are.
        if !connection.reader.is_empty() {
            return;
        }
        let mut idle = self.idle();
        let of_depot = idle.entry(depot).or_default();
        if of_depot.len() < IDLE_MAX {
            of_depot.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<Address, Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The line of a request. ibp 1.4 says 1 in ALLOCATE and STATUS, where it makes a difference;
/// version 0 is understood by every depot.
fn request(command: Command) -> Result<String, DepotError> {
    let version = Version::V031;
    let request = Request { version, command }.to_string();
    match request.len() > IBP_REQUEST_BYTES_MAX {
        true => Err(DepotError::TooLong),
        false => Ok(request),
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn timed_out(depot: &Address) -> DepotError {
    let depot = depot.clone();
    DepotError::TimedOut { depot }
}

fn broken(depot: &Address, error: io::Error) -> DepotError {
    let depot = depot.clone();
    DepotError::Broken { depot, error }
}

fn understood<T, E: Into<AnswerError>>(
    depot: &Address,
    answer: Result<T, E>,
) -> Result<T, DepotError> {
    answer.map_err(|error| match error.into() {
        AnswerError::Refused { code, .. } => DepotError::Refused {
            depot: depot.clone(),
            code,
        },
        AnswerError::Malformed => DepotError::Malformed {
            depot: depot.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names, addresses of both kinds and ports are told apart; what is none is refused.
    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Address>().map(|it| (it.host, it.port));
        let is = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(read("depot.example"), is("depot.example", 6714));
        assert_eq!(read("10.0.0.1:7000"), is("10.0.0.1", 7000));
        assert_eq!(read("[::1]:7000"), is("[::1]", 7000));
        assert_eq!(read("[::1]"), is("[::1]", 6714));
        for wrong in ["", ":1", "a:", "a:70000", "a b", "::1:5", "a/b", "a:x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
