//! Answers.

use crossdock_limits::LBONE_DEPOTS_MAX;
use thiserror::Error;

use crate::Request;
use crate::fields::{FIELD, Fields, HOST, fraction, left, number};
use crate::request::{Depot, Resolution, depot, put_depot};

/// Width of the numbers of a count.
const WIDE: usize = 16;

/// What an L-Bone answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It cannot: an error number.
    Failure(i32),
    /// Depots, the best first.
    Depots(Vec<Depot>),
    /// How many there are, and how many answer.
    Count {
        /// All that are known.
        total: u32,
        /// Those that answered when last asked.
        live: u32,
    },
    /// Hosts and their distances in miles, the nearest first.
    Proximity(Vec<(String, f64)>),
    /// Something of each pair: of each source a row with all targets.
    Resolution {
        /// Rows.
        sources: u32,
        /// Columns.
        targets: u32,
        /// Row by row.
        values: Vec<f64>,
    },
}

/// Bytes that are no answer to what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed answer")]
pub struct AnswerError;

impl Answer {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Failure(error) => {
                left(&mut out, "2", FIELD);
                number(&mut out, error, FIELD);
            }
            Self::Depots(depots) => {
                left(&mut out, "1", FIELD);
                number(&mut out, depots.len(), FIELD);
                for depot in depots {
                    put_depot(&mut out, depot);
                }
            }
            Self::Count { total, live } => {
                left(&mut out, "1", FIELD);
                number(&mut out, total, WIDE);
                number(&mut out, live, WIDE);
                out.extend([0; 4]);
            }
            Self::Proximity(hosts) => {
                left(&mut out, "1", FIELD);
                number(&mut out, hosts.len(), FIELD);
                for (host, miles) in hosts {
                    left(&mut out, host, HOST);
                    fraction(&mut out, *miles);
                }
            }
            Self::Resolution {
                sources,
                targets,
                values,
            } => {
                left(&mut out, "1", FIELD);
                number(&mut out, sources, FIELD);
                number(&mut out, targets, FIELD);
                for value in values {
                    fraction(&mut out, *value);
                }
            }
        }
        out
    }

    /// Reads the answer to `request`: all that came until the server has closed.
    ///
    /// # Errors
    /// [`AnswerError`]: it is none.
    pub fn parse(request: &Request, bytes: &[u8]) -> Result<Self, AnswerError> {
        Self::read(request, bytes).ok_or(AnswerError)
    }

    fn read(request: &Request, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        match fields.number(FIELD)? {
            1 => {}
            2 => return Some(Self::Failure(fields.number(FIELD)?)),
            _ => return None,
        }
        let count = |fields: &mut Fields<'_>| {
            let count: u32 = fields.number(FIELD)?;
            (count <= LBONE_DEPOTS_MAX).then_some(count)
        };
        Some(match request {
            Request::Depots(_) => {
                let count = count(&mut fields)?;
                let depots = (0..count).map(|_| depot(&mut fields));
                Self::Depots(depots.collect::<Option<_>>()?)
            }
            Request::Count => Self::Count {
                total: fields.number(WIDE)?,
                live: fields.number(WIDE)?,
            },
            Request::Proximity { .. } => {
                let count = count(&mut fields)?;
                let host = |_| Some((fields.text(HOST)?.to_owned(), fields.number(FIELD)?));
                Self::Proximity((0..count).map(host).collect::<Option<_>>()?)
            }
            Request::Resolution {
                kind: Resolution::Network | Resolution::Geographic,
                ..
            } => {
                let (sources, targets) = (count(&mut fields)?, count(&mut fields)?);
                let pairs = sources.checked_mul(targets)?;
                if pairs > LBONE_DEPOTS_MAX {
                    return None;
                }
                let values = (0..pairs).map(|_| fields.number(FIELD));
                Self::Resolution {
                    sources,
                    targets,
                    values: values.collect::<Option<_>>()?,
                }
            }
        })
    }
}
