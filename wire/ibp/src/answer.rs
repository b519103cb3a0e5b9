//! What a depot answers: a line of each kind is written by one function here and read by
//! another. Lines are written with their LF and read without it.

use std::fmt::Write as _;
use std::time::Duration;

use thiserror::Error;

use crate::fields::Fields;
use crate::{Capabilities, Capability, ErrorCode, Probe, Reliability, StorageType, Word};

/// Why an answer is not what was hoped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The depot has refused. It may close the connection, and what it still sends there means
    /// nothing: the next request goes over another one.
    #[error("{code}")]
    Refused {
        /// Why.
        code: ErrorCode,
        /// When to come again, if it says so ([`ErrorCode::OUT_OF_SOCKETS`]).
        retry_after: Option<Duration>,
    },
    /// It is no answer to what was asked.
    #[error("malformed answer")]
    Malformed,
}

/// Success, with nothing to tell: go on, or it is done.
#[must_use]
pub fn done() -> String {
    "1 \n".into()
}

/// So many bytes were stored, or copied.
#[must_use]
pub fn stored(bytes: u64) -> String {
    format!("1 {bytes}\n")
}

/// So many bytes follow: what was asked to be loaded, or a status.
#[must_use]
pub fn follows(bytes: u64) -> String {
    format!("1 {bytes} \n")
}

/// A new allocation.
#[must_use]
pub fn allocated(capabilities: &Capabilities) -> String {
    let Capabilities {
        read,
        write,
        manage,
    } = capabilities;
    format!("1 {read} {write} {manage} \n")
}

/// What an allocation is like.
#[must_use]
pub fn probed(probe: &Probe) -> String {
    format!(
        "1 {} {} {} {} {} {} {} \n",
        probe.read_count,
        probe.write_count,
        probe.size_bytes,
        probe.size_bytes_max,
        probe.duration_seconds,
        probe.reliability.number(),
        probe.storage.number()
    )
}

/// Which resources there are.
#[must_use]
pub fn resources(ids: &[Word]) -> String {
    let mut line = String::from("1 ");
    for id in ids {
        let _ = write!(line, "{id} ");
    }
    line.push('\n');
    line
}

/// A refusal. LoCI's depot writes a blank before the codes of what it has found behind the
/// first two fields of a request, and so does this.
#[must_use]
pub fn refused(code: ErrorCode) -> String {
    let number = code.number();
    match code {
        ErrorCode::PROT_VERS
        | ErrorCode::INVALID_CMD
        | ErrorCode::QUEUE_FULL
        | ErrorCode::WRONG_PASSWD => format!("{number} \n"),
        _ => format!(" {number} \n"),
    }
}

/// A refusal of the depot that was copied to, passed on as it is.
#[must_use]
pub fn passed_on(code: ErrorCode) -> String {
    format!("{} \n", code.number())
}

/// Reads [`done`].
///
/// # Errors
/// The depot has refused, or this is something else.
pub fn read_done(line: &[u8]) -> Result<(), AnswerError> {
    success(line)?.end().map_err(|_| AnswerError::Malformed)
}

/// Reads [`stored`] and [`follows`].
///
/// # Errors
/// The depot has refused, or this is something else.
pub fn read_bytes(line: &[u8]) -> Result<u64, AnswerError> {
    read(line, |fields| fields.natural(ErrorCode::BAD_FORMAT))
}

/// Reads [`allocated`].
///
/// # Errors
/// The depot has refused, or this is something else.
pub fn read_capabilities(line: &[u8]) -> Result<Capabilities, AnswerError> {
    let capability = |fields: &mut Fields<'_>| -> Result<Capability, ErrorCode> {
        (fields.text()?.parse()).map_err(|_| ErrorCode::WRONG_CAP_FORMAT)
    };
    read(line, |fields| {
        Ok(Capabilities {
            read: capability(fields)?,
            write: capability(fields)?,
            manage: capability(fields)?,
        })
    })
}

/// Reads [`probed`].
///
/// # Errors
/// The depot has refused, or this is something else.
pub fn read_probe(line: &[u8]) -> Result<Probe, AnswerError> {
    read(line, |fields| {
        Ok(Probe {
            read_count: fields.number()?,
            write_count: fields.number()?,
            size_bytes: fields.natural(ErrorCode::BAD_FORMAT)?,
            size_bytes_max: fields.natural(ErrorCode::BAD_FORMAT)?,
            duration_seconds: fields.number()?,
            reliability: Reliability::of(fields.number()?).ok_or(ErrorCode::INV_PAR_ATRL)?,
            storage: StorageType::of(fields.number()?).ok_or(ErrorCode::INV_PAR_ATTP)?,
        })
    })
}

/// Reads [`resources`].
///
/// # Errors
/// The depot has refused, or this is something else.
pub fn read_resources(line: &[u8]) -> Result<Vec<Word>, AnswerError> {
    let mut fields = success(line)?;
    let mut ids = Vec::new();
    while let Some(id) = fields.next() {
        ids.push(Word::new(id).map_err(|_| AnswerError::Malformed)?);
    }
    Ok(ids)
}

fn read<'a, T>(
    line: &'a [u8],
    value: impl FnOnce(&mut Fields<'a>) -> Result<T, ErrorCode>,
) -> Result<T, AnswerError> {
    let mut fields = success(line)?;
    let read = value(&mut fields).and_then(|value| fields.end().map(|()| value));
    read.map_err(|_| AnswerError::Malformed)
}

/// What follows the 1 of a success.
fn success(line: &[u8]) -> Result<Fields<'_>, AnswerError> {
    let mut fields = Fields::of(line).ok_or(AnswerError::Malformed)?;
    match fields.number().map_err(|_| AnswerError::Malformed)? {
        1 => Ok(fields),
        number => Err(refusal(number, fields.next())),
    }
}

/// What a line that begins with `number` refuses.
pub(crate) fn refusal(number: i64, next: Option<&str>) -> AnswerError {
    let code = i32::try_from(number).ok().and_then(ErrorCode::of);
    let Some(code) = code else {
        return AnswerError::Malformed;
    };
    // ACCRE: the time after which to come again, as a decimal fraction.
    let retry_after = match (code, next) {
        (ErrorCode::OUT_OF_SOCKETS, Some(seconds)) => seconds.parse().ok(),
        _ => None,
    };
    let retry_after = retry_after.and_then(|it: f64| Duration::try_from_secs_f64(it).ok());
    AnswerError::Refused { code, retry_after }
}
