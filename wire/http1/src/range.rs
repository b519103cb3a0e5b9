//! Range requests (RFC 9110 section 14).

use std::ops::Range;

use crate::date::seconds;
use crate::{ETag, Method, RequestHead, Validators, parse_http_date};

/// What to send of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All of it: 200.
    Whole,
    /// These bytes: 206 with [`content_range`].
    One(Range<u64>),
    /// These, in this order; they neither overlap nor touch: 206 with a
    /// [`Multipart`](crate::Multipart).
    Many(Vec<Range<u64>>),
    /// None of what was asked for is there: 416 with
    /// [`content_range_unsatisfied`].
    Unsatisfiable,
}

/// What a request asks for of `size` bytes with these validators. Evaluate its
/// conditions first (RFC 9110 section 13.2.2).
///
/// A Range that is malformed, has another unit, more than `ranges_max` ranges, or
/// an If-Range that does not hold, is ignored (sections 14.2 and 17.15), as it is
/// with any method but GET. Ranges that overlap or touch become one, at the place
/// of the first (section 15.3.7.2). No range is empty.
///
/// A date in If-Range has to be that of the last change (section 13.1.5). Clients
/// send one only if they have no entity tag, so whoever was answered with a
/// [`ResponseHead::validators`](crate::ResponseHead::validators) sends the tag,
/// which tells two changes within a second apart.
#[must_use]
pub fn ranges(head: &RequestHead, size: u64, validators: &Validators, ranges_max: usize) -> Ranges {
    if head.method != Method::Get || !holds_if_range(head, validators) {
        return Ranges::Whole;
    }
    let Some(value) = head.header("range") else {
        return Ranges::Whole;
    };
    let Some(specs) = parse(value, ranges_max) else {
        return Ranges::Whole;
    };
    if size == 0 && specs.iter().any(|spec| matches!(spec, Spec::Last(1..))) {
        // The last bytes of nothing: satisfiable, but no Content-Range can say so.
        return Ranges::Whole;
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in specs.iter().filter_map(|spec| spec.of(size)) {
        add(&mut found, range);
    }
    match found.len() {
        0 => Ranges::Unsatisfiable,
        1 => Ranges::One(found.remove(0)),
        _ => Ranges::Many(found),
    }
}

/// Content-Range of a part: `bytes 0-9/100` (RFC 9110 section 14.4). `range` is
/// not empty.
#[must_use]
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    let last = range.end.saturating_sub(1);
    format!("bytes {}-{last}/{size}", range.start)
}

/// Content-Range of a 416: `bytes */100` (RFC 9110 section 14.4).
#[must_use]
pub fn content_range_unsatisfied(size: u64) -> String {
    format!("bytes */{size}")
}

/// RFC 9110 section 13.1.5: the same strong tag, or exactly the date; true
/// without the field.
fn holds_if_range(head: &RequestHead, validators: &Validators) -> bool {
    let Some(value) = head.header("if-range") else {
        return true;
    };
    if let Some(tag) = ETag::parse(value) {
        return tag.eq_strong(&validators.etag);
    }
    match (parse_http_date(value), validators.modified) {
        (Some(date), Some(modified)) => date == seconds(modified),
        _ => false,
    }
}

/// One range-spec (RFC 9110 section 14.1.1), before the size is known.
enum Spec {
    From(u64),        // First byte, to the end.
    Within(u64, u64), // First and last byte.
    Last(u64),        // So many at the end.
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, _) => Some(Self::Last(number(last)?)),
            (false, true) => Some(Self::From(number(first)?)),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                // An int-range that ends before it begins is invalid.
                (first <= last).then_some(Self::Within(first, last))
            }
        }
    }

    /// The bytes of a representation of `size`; `None` if there are none.
    fn of(&self, size: u64) -> Option<Range<u64>> {
        let range = match *self {
            Self::From(first) => first..size,
            Self::Within(first, last) => first..size.min(last.saturating_add(1)),
            Self::Last(count) => size.saturating_sub(count)..size,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// The specs of a Range field; `None` if it is malformed, of another unit, or has
/// too many.
fn parse(value: &[u8], ranges_max: usize) -> Option<Vec<Spec>> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    // Section 14.1: names of units are case-insensitive.
    if !unit.eq_ignore_ascii_case(b"bytes=") || set.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    let mut specs = Vec::new();
    for element in set.split(|&byte| byte == b',') {
        let element = element.trim_ascii();
        if element.is_empty() {
            continue; // Section 5.6.1.2.
        }
        if specs.len() == ranges_max {
            return None;
        }
        specs.push(Spec::parse(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

/// 1*DIGIT; what is beyond 64 bits is beyond any size.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, &digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, add))
}

/// Adds a range to some that neither overlap nor touch, and keeps them so.
fn add(found: &mut Vec<Range<u64>>, range: Range<u64>) {
    let touches = |a: &Range<u64>, b: &Range<u64>| a.start <= b.end && b.start <= a.end;
    let Some(first) = found.iter().position(|other| touches(other, &range)) else {
        return found.push(range);
    };
    let mut merged = range;
    // What they have in common they have with the new one: one pass is enough.
    found.retain(|other| {
        let is_part = touches(other, &merged);
        if is_part {
            merged = merged.start.min(other.start)..merged.end.max(other.end);
        }
        !is_part
    });
    found.insert(first, merged);
}
