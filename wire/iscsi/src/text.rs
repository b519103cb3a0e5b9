//! Keys and values of login and text phases (RFC 7143 section 6).

use bytes::Bytes;
use thiserror::Error;

/// Bytes of all keys and values of one negotiation, over all its PDUs.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// Longest key.
const KEY_BYTES_MAX: usize = 63;

/// Most keys of one text.
const KEYS_MAX: usize = 128;

/// Longest value; only those of CHAP and lists of targets come near.
const VALUE_BYTES_MAX: usize = 8192;

/// Why a text is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TextError {
    /// It is no text, or not of keys and values.
    #[error("a text of keys and values that is none")]
    Malformed,
    /// A key or value is longer than any, or there are too many.
    #[error("keys and values are longer or more than may be")]
    TooLong,
}

/// Reads `key=value` pairs, each with a zero behind it.
///
/// # Errors
/// It is none, or has too many.
pub fn parse_text(text: &[u8]) -> Result<Vec<(String, String)>, TextError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TextError::TooLong);
    }
    let pairs = text.split(|&byte| byte == 0);
    let mut found = Vec::new();
    // Some initiators pad with zeros.
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let pair = std::str::from_utf8(pair).map_err(|_| TextError::Malformed)?;
        let (key, value) = pair.split_once('=').ok_or(TextError::Malformed)?;
        let is_key = key.bytes().all(|byte| byte.is_ascii_graphic());
        if key.is_empty() || !is_key {
            return Err(TextError::Malformed);
        }
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX || found.len() >= KEYS_MAX {
            return Err(TextError::TooLong);
        }
        found.push((key.to_owned(), value.to_owned()));
    }
    Ok(found)
}

/// Writes pairs as [`parse_text`] reads them.
#[must_use]
pub fn encode_text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Bytes {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text.extend(key.bytes());
        text.push(b'=');
        text.extend(value.bytes());
        text.push(0);
    }
    text.into()
}

/// A number in decimal or hexadecimal form.
#[must_use]
pub fn parse_number(value: &str) -> Option<u64> {
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(digits) if is_digits(digits) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if is_digits(value) => value.parse().ok(),
        None => None,
    }
}

/// A byte string in hexadecimal form (`0x…`) or base64 (`0b…`), of at most so many bytes.
#[must_use]
pub fn parse_binary(value: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let (form, digits) = value.split_at_checked(2)?;
    if digits.is_empty() || digits.len() > bytes_max * 2 + 2 {
        return None;
    }
    let bytes = match form {
        "0x" | "0X" => from_hexadecimal(digits)?,
        "0b" | "0B" => from_base64(digits)?,
        _ => return None,
    };
    (bytes.len() <= bytes_max).then_some(bytes)
}

/// The same the other way round, hexadecimal.
#[must_use]
pub fn encode_binary(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("0x".to_owned()).chain(digits).collect()
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let nibbles = digits.chars().map(|digit| digit.to_digit(16));
    let mut nibbles: Vec<u8> = nibbles
        .map(|nibble| u8::try_from(nibble?).ok())
        .collect::<Option<_>>()?;
    if nibbles.len() % 2 == 1 {
        nibbles.insert(0, 0); // 0x1 is one byte.
    }
    let pairs = nibbles.chunks_exact(2);
    Some(pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn from_base64(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.trim_end_matches('=');
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    (count < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pairs come back; empty ones and padding are no pairs; what is none is refused.
    #[test]
    fn pairs_come_back() {
        let text = encode_text([("InitiatorName", "iqn.a"), ("X-b", "c=d"), ("E", "")]);
        let pairs = parse_text(&text).expect("a text");
        assert_eq!(pairs[0], ("InitiatorName".to_owned(), "iqn.a".to_owned()));
        assert_eq!(pairs[1].1, "c=d");
        assert_eq!(pairs[2].1, "");
        assert_eq!(parse_text(b"\0a=b\0\0\0").expect("a text").len(), 1);
        assert_eq!(parse_text(b""), Ok(Vec::new()));
        for wrong in [&b"ab\0"[..], b"=b\0", b"a\xff=b\0", b"a b=c\0"] {
            assert_eq!(parse_text(wrong), Err(TextError::Malformed));
        }
        let long = format!("{}=1\0", "k".repeat(64));
        assert_eq!(parse_text(long.as_bytes()), Err(TextError::TooLong));
        let many = "a=b\0".repeat(129);
        assert_eq!(parse_text(many.as_bytes()), Err(TextError::TooLong));
    }

    /// Goal: numbers and byte strings are read in each form, and nothing else is.
    #[test]
    fn numbers_and_bytes_are_read() {
        assert_eq!(parse_number("262144"), Some(262_144));
        assert_eq!(parse_number("0x10"), Some(16));
        for wrong in ["", "0x", "-1", "+1", "1k", "99999999999999999999"] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
        let bytes = vec![0, 1, 0xfe, 0xff];
        assert_eq!(encode_binary(&bytes), "0x0001feff");
        assert_eq!(parse_binary("0x0001feff", 4), Some(bytes.clone()));
        assert_eq!(parse_binary("0bAAH+/w==", 4), Some(bytes));
        assert_eq!(parse_binary("0x1", 4), Some(vec![1]));
        for wrong in [
            "",
            "0",
            "0x",
            "0xg",
            "0b*",
            "0bA",
            "00",
            "0x0102030405",
            "ä",
        ] {
            assert_eq!(parse_binary(wrong, 4), None, "{wrong}");
        }
    }
}
