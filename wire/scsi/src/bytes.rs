//! Big-endian numbers at places of a byte string; what is not there is zero.

/// The 16 bits at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// The 32 bits at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

/// The 64 bits at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    let found = bytes.get(at..).unwrap_or_default();
    let length = found.len().min(N);
    array[..length].copy_from_slice(&found[..length]);
    array
}

/// A length that has been bounded before, as 16 bits.
pub(crate) fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// The same as 32 bits.
pub(crate) fn long(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The same as eight bits.
pub(crate) fn tiny(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
