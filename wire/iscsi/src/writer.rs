//! Makes the bytes of a PDU: header, digests, data, padding.

use bytes::Bytes;
use crossdock_checksum::{crc32c, crc32c_append};
use crossdock_types::Payload;
use zerocopy::{Immutable, IntoBytes};

/// Which digests a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C of the headers.
    pub header: bool,
    /// CRC32C of the data and its padding.
    pub data: bool,
}

/// The bytes of a PDU with this header, whose data length is filled in, and this data, which
/// is not copied.
///
/// # Panics
/// If the header is none, or there are 2²⁴ bytes of data or more: both are the caller's own.
#[must_use]
pub fn encode(header: &(impl IntoBytes + Immutable), data: Payload, digests: Digests) -> Payload {
    let mut head = header.as_bytes().to_vec();
    let [zero, length @ ..] = u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes();
    assert!(
        zero == 0 && head.len() == crate::BHS_BYTES,
        "no PDU of ours"
    );
    head[5..8].copy_from_slice(&length);
    if digests.header {
        let digest = crc32c(&head);
        head.extend(digest.to_le_bytes());
    }
    if data.is_empty() {
        return Payload::from(Bytes::from(head));
    }
    let padding = data.len().next_multiple_of(4) - data.len();
    let mut tail = vec![0; padding];
    if digests.data {
        let pieces = data.pieces().iter();
        let digest = pieces.fold(0, |digest, piece| crc32c_append(digest, piece));
        let digest = crc32c_append(digest, &tail);
        tail.extend(digest.to_le_bytes());
    }
    let mut pdu = Payload::from(Bytes::from(head));
    pdu.append(data);
    pdu.push(Bytes::from(tail));
    pdu
}
