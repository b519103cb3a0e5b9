//! Which of several media types a client would rather have (RFC 9110 section
//! 12.5.1).

use crate::RequestHead;
use crate::head::elements;

/// The media type of `offered` that the Accept field of a request gives the highest
/// weight, the first of those with the same; `None` if it wants none of them. Without
/// the field it is the first. Elements that are malformed are skipped.
#[must_use]
pub fn preferred<'a>(head: &RequestHead, offered: &[&'a str]) -> Option<&'a str> {
    let Some(accept) = head.header("accept") else {
        return offered.first().copied();
    };
    let mut best = None;
    let mut best_weight = 0;
    for &media_type in offered {
        let weight = weight(accept, media_type);
        if weight > best_weight {
            (best, best_weight) = (Some(media_type), weight);
        }
    }
    best
}

/// The weight in thousandths of the most specific range that has `media_type`.
fn weight(accept: &[u8], media_type: &str) -> u16 {
    let ranges = elements(accept).filter_map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let rank = rank(parts.next()?, media_type)?;
        let is_weight = |part: &&[u8]| part.len() > 2 && part[..2].eq_ignore_ascii_case(b"q=");
        let weight = parts
            .find(is_weight)
            .map_or(Some(1000), |part| qvalue(&part[2..]))?;
        Some((rank, weight))
    });
    ranges.max().map_or(0, |(_, weight)| weight)
}

/// How specific `range` is for `media_type`; `None` if it does not have it.
fn rank(range: &[u8], media_type: &str) -> Option<u8> {
    let (kind, _) = media_type.split_once('/')?;
    if range == b"*/*" {
        return Some(0);
    }
    if range.eq_ignore_ascii_case(media_type.as_bytes()) {
        return Some(2);
    }
    let of_kind = range.strip_suffix(b"/*")?;
    of_kind.eq_ignore_ascii_case(kind.as_bytes()).then_some(1)
}

/// RFC 9110 section 12.4.2: 0 to 1 with up to three decimals, in thousandths.
fn qvalue(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut value = u16::from(whole - b'0');
    for place in 0..3 {
        let digit = decimals.get(place).copied().unwrap_or(b'0');
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        value = value * 10 + u16::from(digit);
    }
    (value <= 1000).then_some(value)
}
