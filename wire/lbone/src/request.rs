//! Requests.

use crossdock_limits::LBONE_DEPOTS_MAX;
use thiserror::Error;

use crate::fields::{FIELD, Fields, HOST, left, left_nul, number, right};
use crate::{ERROR_PARAMETER, ERROR_TYPE, VERSION};

/// Bytes of a depot list and of a proximity request.
const LONG: usize = 512;

/// Bytes of a depot count request.
const SHORT: usize = 46;

/// Bytes of a resolution request before its depots.
const HEAD: usize = 5 * FIELD;

/// Bytes of a depot.
pub(crate) const RECORD: usize = HOST + FIELD;

const LOCATION: usize = LONG - 6 * FIELD;

/// A depot by host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Depot {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Which depots are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotQuery {
    /// How many at most; all unless said (-1).
    pub depots_max: Option<u32>,
    /// Free space for stable allocations that each has to have, in MB.
    pub stable_mb: u64,
    /// Free space for volatile ones.
    pub volatile_mb: u64,
    /// How long it has to keep them, in seconds.
    pub duration_seconds: u64,
    /// Near what, and with which properties; empty if it is no matter.
    pub location: String,
}

/// What pairs of depots are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// 1: the network's weather: bandwidth, in Mb/s.
    Network,
    /// 2: miles between them.
    Geographic,
}

/// What a client asks an L-Bone for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// 1: depots.
    Depots(DepotQuery),
    /// 3: how many there are, and how many answer.
    Count,
    /// 4: all depots, by distance from a place.
    Proximity {
        /// From where.
        location: String,
    },
    /// 5: something of each pair of two lists.
    Resolution {
        /// What.
        kind: Resolution,
        /// The first of each pair.
        sources: Vec<Depot>,
        /// The second.
        targets: Vec<Depot>,
    },
}

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Of a type that is not known.
    #[error("unknown type of request")]
    Type,
    /// A field says something that cannot be.
    #[error("malformed request")]
    Malformed,
}

impl RequestError {
    /// The number in the answer.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Type => ERROR_TYPE,
            Self::Malformed => ERROR_PARAMETER,
        }
    }
}

/// Reads the request at the beginning of what has arrived; `None` if more has to come.
///
/// # Errors
/// It is none, whatever comes.
pub fn take_request(bytes: &[u8]) -> Result<Option<Request>, RequestError> {
    if bytes.len() < 2 * FIELD {
        return Ok(None);
    }
    let mut fields = Fields::of(bytes);
    let malformed = RequestError::Malformed;
    fields.text(FIELD).ok_or(malformed)?; // Any version.
    let kind: u32 = fields.number(FIELD).ok_or(RequestError::Type)?;
    let needed = match kind {
        1 | 4 => LONG,
        3 => SHORT,
        5 => HEAD,
        _ => return Err(RequestError::Type),
    };
    if bytes.len() < needed {
        return Ok(None);
    }
    let request = match kind {
        1 => Request::Depots(query(fields).ok_or(malformed)?),
        3 => Request::Count,
        4 => Request::Proximity {
            location: location(fields.text(LONG - 2 * FIELD)).ok_or(malformed)?,
        },
        _ => return resolution(bytes, fields),
    };
    Ok(Some(request))
}

fn query(mut fields: Fields<'_>) -> Option<DepotQuery> {
    let wanted: i64 = fields.number(FIELD)?;
    let depots_max = match wanted {
        -1 => None,
        wanted => Some(u32::try_from(wanted).ok()?),
    };
    // Clients of a float of days may send a fraction, or less than nothing.
    let natural = |number: i64| u64::try_from(number).ok();
    Some(DepotQuery {
        depots_max,
        stable_mb: natural(fields.number(FIELD)?)?,
        volatile_mb: natural(fields.number(FIELD)?)?,
        duration_seconds: natural(fields.number(FIELD)?)?,
        location: location(fields.text(LOCATION))?,
    })
}

/// `NULL` says that there is none.
fn location(text: Option<&str>) -> Option<String> {
    // What follows a NUL was left there by the client.
    let text = text?.split('\0').next().unwrap_or_default().trim();
    Some(if text == "NULL" { "" } else { text }.to_owned())
}

fn resolution(bytes: &[u8], mut fields: Fields<'_>) -> Result<Option<Request>, RequestError> {
    let malformed = RequestError::Malformed;
    let kind = match fields.number(FIELD) {
        Some(1) => Resolution::Network,
        Some(2) => Resolution::Geographic,
        _ => return Err(malformed),
    };
    let mut count = || -> Result<u32, RequestError> {
        let count: u32 = fields.number(FIELD).ok_or(malformed)?;
        match count <= LBONE_DEPOTS_MAX {
            true => Ok(count),
            false => Err(malformed),
        }
    };
    let (sources, targets) = (count()?, count()?);
    // As many pairs are answered.
    if u64::from(sources) * u64::from(targets) > u64::from(LBONE_DEPOTS_MAX) {
        return Err(malformed);
    }
    let records = (sources + targets) as usize;
    if bytes.len() < HEAD + records * RECORD {
        return Ok(None);
    }
    let mut depots = |count| {
        let depots = (0..count).map(|_| depot(&mut fields));
        depots.collect::<Option<Vec<_>>>().ok_or(malformed)
    };
    Ok(Some(Request::Resolution {
        kind,
        sources: depots(sources)?,
        targets: depots(targets)?,
    }))
}

/// Reads a host and a port.
pub(crate) fn depot(fields: &mut Fields<'_>) -> Option<Depot> {
    let host = fields.text(HOST)?.to_owned();
    let is_name = host.bytes().all(|byte| byte.is_ascii_graphic());
    let port = fields.number(FIELD)?;
    (!host.is_empty() && is_name).then_some(Depot { host, port })
}

/// Writes a host and a port.
pub(crate) fn put_depot(out: &mut Vec<u8>, depot: &Depot) {
    left(out, &depot.host, HOST);
    number(out, depot.port, FIELD);
}

impl Request {
    /// The bytes, as historic clients send them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LONG);
        match self {
            Self::Depots(query) => {
                right(&mut out, VERSION, FIELD);
                let wanted = query.depots_max.map_or(-1, i64::from);
                let numbers = [
                    "1".to_owned(),
                    wanted.to_string(),
                    query.stable_mb.to_string(),
                    query.volatile_mb.to_string(),
                    query.duration_seconds.to_string(),
                ];
                for number in numbers {
                    right(&mut out, &number, FIELD);
                }
                let location = match query.location.is_empty() {
                    true => "NULL",
                    false => &query.location,
                };
                left_nul(&mut out, location, LOCATION - 1);
                out.push(0);
            }
            Self::Count => {
                left(&mut out, VERSION, FIELD);
                left(&mut out, "3", FIELD);
                out.resize(SHORT, 0);
            }
            Self::Proximity { location } => {
                left(&mut out, VERSION, FIELD);
                left(&mut out, "4", FIELD);
                left(&mut out, location, LONG - 2 * FIELD);
            }
            Self::Resolution {
                kind,
                sources,
                targets,
            } => {
                let kind = match kind {
                    Resolution::Network => "1",
                    Resolution::Geographic => "2",
                };
                let (from, to) = (sources.len().to_string(), targets.len().to_string());
                for text in [VERSION, "5", kind, &from, &to] {
                    left(&mut out, text, FIELD);
                }
                for depot in sources.iter().chain(targets) {
                    put_depot(&mut out, depot);
                }
            }
        }
        out
    }
}
