//! Sizes and times as people write them: `5M`, `1h`.

use std::time::Duration;

/// Bytes: a number, and `K`, `M`, `G` or `T` (binary) behind it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1u64 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        Some((at, 't' | 'T')) => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is no size: a number, and K, M, G or T"))
}

/// Seconds, or with `s`, `m`, `h` or `d` behind the number.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1u64),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86400),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .map(Duration::from_secs)
        .ok_or_else(|| format!("{text:?} is no time: a number, and s, m, h or d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: endings count as described; what is too large or no number is refused.
    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(bytes("5M"), Ok(5 << 20));
        assert_eq!(bytes("17"), Ok(17));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        for wrong in ["", "M", "-1", "1.5G", "99999999999T", "5é"] {
            assert!(bytes(wrong).is_err() && duration(wrong).is_err(), "{wrong}");
        }
    }
}
