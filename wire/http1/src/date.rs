//! Dates (RFC 9110 section 5.6.7): whole seconds, GMT.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use crossdock_types::WallTime;
use httpdate::HttpDate;

/// Length of an IMF-fixdate.
const DATE_BYTES: usize = 29;

/// `at` as an IMF-fixdate, rounded down to the second; `None` before 1970, which
/// no HTTP date is here.
#[must_use]
pub fn http_date(at: WallTime) -> Option<String> {
    // The years of a WallTime end in 2262, those of an HttpDate in 9999.
    let seconds = u64::try_from(seconds(at)).ok()?;
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds));
    let mut text = String::with_capacity(DATE_BYTES);
    write!(text, "{date}").ok()?;
    Some(text)
}

/// Seconds since 1970 of a date in any of the three formats; `None` if it is none.
#[must_use]
pub fn parse_http_date(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let at = httpdate::parse_http_date(text).ok()?;
    let since = at.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// The second in which `at` lies.
pub(crate) const fn seconds(at: WallTime) -> i64 {
    at.parts().0
}
