//! Where the content of a request ends, and whether another may follow (RFC 9112
//! sections 6 and 9).

use crate::head::{Fields, elements};
use crate::{HeadError, HttpVersion};

/// Where the content that follows a head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// Where a [`ChunkedDecoder`](crate::ChunkedDecoder) says so.
    Chunked,
}

/// RFC 9112 section 6.3. Everything that another reader may take differently is
/// refused, also where the section would let a server repair it.
pub(crate) fn of(version: HttpVersion, fields: &Fields) -> Result<Framing, HeadError> {
    let length = fields.get("content-length");
    let Some(coding) = fields.get("transfer-encoding") else {
        return length.map_or(Ok(Framing::None), |value| {
            Ok(Framing::Length(number(value)?))
        });
    };
    if length.is_some() {
        return Err(HeadError::LengthAndCoding); // Rule 3.
    }
    // Section 6.1: a 1.0 client that names codings has passed on what it does not
    // understand.
    if version == HttpVersion::Http10 {
        return Err(HeadError::Coding);
    }
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(coding) {
        return Ok(Framing::Chunked);
    }
    // Rule 4: chunked has to be the last coding, and (section 6.1) be there once.
    let count = elements(coding).filter(|coding| is_chunked(coding)).count();
    match count == 1 && elements(coding).last().is_some_and(is_chunked) {
        true => Err(HeadError::CodingUnknown),
        false => Err(HeadError::Coding),
    }
}

/// RFC 9110 section 8.6: 1*DIGIT. Several, equal or not, were joined by a comma
/// and are no number (RFC 9112 section 6.3, rule 5).
fn number(value: &[u8]) -> Result<u64, HeadError> {
    if !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Length); // Else `parse` would take a plus sign.
    }
    let text = std::str::from_utf8(value).map_err(|_| HeadError::Length)?;
    text.parse().map_err(|_| HeadError::Length)
}

/// RFC 9112 section 9.3.
pub(crate) fn keep_alive(version: HttpVersion, fields: &Fields) -> bool {
    let value = fields.get("connection").unwrap_or_default();
    let has = |option: &str| {
        let mut all = elements(value);
        all.any(|element| element.eq_ignore_ascii_case(option.as_bytes()))
    };
    !has("close") && (version == HttpVersion::Http11 || has("keep-alive"))
}

/// RFC 9110 section 10.1.1: ignored from a 1.0 client, and without content.
pub(crate) fn expects_continue(
    version: HttpVersion,
    framing: Framing,
    fields: &Fields,
) -> Result<bool, HeadError> {
    let Some(value) = fields.get("expect") else {
        return Ok(false);
    };
    let is_known = |element: &[u8]| element.eq_ignore_ascii_case(b"100-continue");
    if !elements(value).all(is_known) {
        return Err(HeadError::Expectation);
    }
    let has_content = !matches!(framing, Framing::None | Framing::Length(0));
    Ok(version == HttpVersion::Http11 && has_content && !value.is_empty())
}
