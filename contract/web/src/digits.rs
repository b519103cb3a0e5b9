//! Numbers and bytes as digits: exactly as they are written, and in no other way.

/// Bytes as hexadecimal digits, two for each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `N` bytes of hexadecimal digits.
pub(crate) fn from_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

/// The value of one hexadecimal digit.
pub(crate) const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// A decimal number without a sign and without leading zeros.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    if !is_plain || digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: there is one way to write a number, and it does not overflow.
    #[test]
    fn numbers_are_read_strictly() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [
            "",
            "+1",
            "-1",
            "01",
            "1 ",
            "0x1",
            "18446744073709551616",
            "\u{ff11}",
        ] {
            assert_eq!(decimal(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(from_hex(hex(&[0, 0xaf, 9]).as_bytes()), Some([0, 0xaf, 9]));
        assert_eq!(from_hex::<1>(b"0"), None);
        assert_eq!(from_hex::<1>(b"+1"), None);
    }
}
