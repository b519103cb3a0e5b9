//! Message authentication: keyed BLAKE3, cut to 128 bits.

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 16;

/// The MAC of `bytes` under `key`: the first 128 bits of keyed BLAKE3.
#[must_use]
pub fn mac(key: &[u8; 32], bytes: &[u8]) -> [u8; MAC_BYTES] {
    first_half(blake3::keyed_hash(key, bytes).as_bytes())
}

/// A key that is made of another one, and tells nothing about it: all of keyed BLAKE3.
#[must_use]
pub fn keyed_hash(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, bytes).as_bytes()
}

/// The first 128 of 256 bits.
#[must_use]
pub fn first_half(hash: &[u8; 32]) -> [u8; MAC_BYTES] {
    let mut half = [0; MAC_BYTES];
    half.copy_from_slice(&hash[..MAC_BYTES]);
    half
}

/// Compares without telling by its duration where the first difference is.
#[must_use]
pub fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what is the same in length and in every bit is equal.
    #[test]
    fn equal_is_equal_in_every_bit() {
        let made = mac(&[7; 32], b"bytes");
        assert!(equal_in_constant_time(&made, &mac(&[7; 32], b"bytes")));
        assert!(!equal_in_constant_time(&made, &made[..15]));
        assert!(!equal_in_constant_time(&made, &mac(&[8; 32], b"bytes")));
        for bit in 0..MAC_BYTES * 8 {
            let mut other = made;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!equal_in_constant_time(&made, &other), "bit {bit}");
        }
    }
}
