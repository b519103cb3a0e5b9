//! Variable-length numbers (LEB128): small numbers, the common ones, take one byte.

/// Appends `number` in 1 to 10 bytes, 7 bits each, lowest first.
pub fn put_varint(bytes: &mut Vec<u8>, number: u64) {
    give_varint(number, |byte| bytes.push(byte));
}

/// The same, byte by byte.
pub(crate) fn give_varint(mut number: u64, mut take: impl FnMut(u8)) {
    while number >= 0x80 {
        take(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    take((number & 0x7f) as u8);
}

/// Takes a number from the front of `bytes`; `None` if they end within it or
/// it is wider than 64 bits.
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = get_byte(bytes)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes a byte from the front of `bytes`; `None` if there is none.
pub fn get_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every width survives, and nothing longer than 64 bits is taken.
    #[test]
    fn numbers_survive() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                let mut rest = bytes.as_slice();
                assert_eq!((get_varint(&mut rest), rest.len()), (Some(number), 0));
            }
        }
        assert_eq!(get_varint(&mut [0xff; 11].as_slice()), None);
        assert_eq!(get_varint(&mut [0x80].as_slice()), None);
    }
}
