//! The fields of a line, one after the other.

use std::str::{FromStr, SplitAsciiWhitespace};

use crate::ErrorCode;

/// What is left of a line. Blanks at both ends and runs of them mean nothing.
#[derive(Clone)]
pub(crate) struct Fields<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Fields<'a> {
    /// The fields of `line`; `None` if it holds anything but visible ASCII and blanks.
    pub(crate) fn of(line: &'a [u8]) -> Option<Self> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r');
        let text = line.iter().all(is_text).then_some(line)?;
        Some(Self(str::from_utf8(text).ok()?.split_ascii_whitespace()))
    }

    /// The next one, if there is one.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next one, which has to be there.
    pub(crate) fn text(&mut self) -> Result<&'a str, ErrorCode> {
        self.next().ok_or(ErrorCode::BAD_FORMAT)
    }

    /// The next one as a number.
    pub(crate) fn number(&mut self) -> Result<i64, ErrorCode> {
        parse(self.text()?)
    }

    /// The next one as a number that is not negative; else `code`.
    pub(crate) fn natural(&mut self, code: ErrorCode) -> Result<u64, ErrorCode> {
        u64::try_from(self.number()?).map_err(|_| code)
    }

    /// The time limit at the end of a line, in seconds: it may be missing, which is 0, and
    /// so is what is negative. Nothing follows it.
    pub(crate) fn time_limit(&mut self) -> Result<u32, ErrorCode> {
        let seconds = match self.next() {
            Some(field) => whole_seconds(field)?,
            None => 0,
        };
        self.end()?;
        Ok(seconds)
    }

    /// One that others follow.
    pub(crate) fn seconds(&mut self) -> Result<u32, ErrorCode> {
        whole_seconds(self.text()?)
    }

    /// How many are left.
    pub(crate) fn count(&self) -> usize {
        self.0.clone().count()
    }

    /// Nothing is left.
    pub(crate) fn end(&mut self) -> Result<(), ErrorCode> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(ErrorCode::BAD_FORMAT),
        }
    }
}

/// A time limit; libdlt sends parts of seconds, which are rounded up: 0 would be none.
fn whole_seconds(field: &str) -> Result<u32, ErrorCode> {
    let (whole, part) = field.split_once('.').unwrap_or((field, ""));
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ErrorCode::BAD_FORMAT);
    }
    let more = part.bytes().any(|byte| byte != b'0') && !whole.starts_with('-');
    let seconds = parse(whole)?.max(0).saturating_add(more.into());
    Ok(u32::try_from(seconds).unwrap_or(u32::MAX))
}

fn parse(field: &str) -> Result<i64, ErrorCode> {
    i64::from_str(field).map_err(|_| ErrorCode::BAD_FORMAT)
}
