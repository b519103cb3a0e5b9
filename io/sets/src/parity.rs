//! Exclusive or of buffers.

/// `target` becomes the exclusive or of both; they have the same length.
pub(crate) fn xor_into(target: &mut [u8], source: &[u8]) {
    debug_assert_eq!(target.len(), source.len());
    for (into, from) in target.iter_mut().zip(source) {
        *into ^= from;
    }
}
