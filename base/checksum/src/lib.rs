//! CRC32C (Castagnoli) of blocks, records and frames, and MACs of what must not be forged.
//!
//! One door in front of the libraries, so that they can be exchanged by measurement.

mod mac;

pub use mac::{MAC_BYTES, equal_in_constant_time, first_half, keyed_hash, mac};

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC32C of what `checksum` covers followed by `bytes`.
#[must_use]
pub fn crc32c_append(checksum: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(checksum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the polynomial is Castagnoli's (check value of RFC 3720 B.4), and
    /// appending equals the whole.
    #[test]
    fn check_values_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), 0xe306_9283);
    }
}
