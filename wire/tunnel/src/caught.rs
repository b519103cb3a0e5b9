//! A caught packet, as the kernel's program tells the gateway of it.

use crate::HEADERS_BYTES_MAX;

/// Of the record of a caught packet.
pub const CAUGHT_BYTES: usize = 32 + HEADERS_BYTES_MAX;

/// A connection that packets are caught of. Its lowest 16 bits are the number of its slot in
/// the program's memory; none is given twice, so that a socket whose slot went to another one
/// is told from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// A packet that was on its way to a client, and did not go (`struct caught` in
/// redirector.bpf.c; numbers as this machine has them).
///
/// | offset | bytes | name |
/// |---|---|---|
/// | 0 | 8 | connection |
/// | 8 | 8 | offset of the payload |
/// | 16 | 8 | what is acknowledged |
/// | 24 | 4 | length of the payload |
/// | 28 | 2 | segment |
/// | 30 | 1 | length of the headers |
/// | 31 | 1 | – |
/// | 32 | 120 | headers |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Of which connection.
    pub connection: ConnectionId,
    /// Of its payload's first byte, in the stream to the client.
    pub offset: u64,
    /// Up to where the client has acknowledged the stream.
    pub acknowledged: u64,
    /// How long its payload is.
    pub payload_bytes: usize,
    /// Payload of each segment that it would have been cut into; 0: it is one.
    pub segment_bytes: u16,
    /// IP and TCP, without valid lengths and checksums.
    pub headers: Vec<u8>,
}

impl Caught {
    /// Of what the program has written; None if that is something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CAUGHT_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_ne_bytes);
        let payload_bytes = bytes[24..].first_chunk().copied().map(u32::from_ne_bytes)?;
        let headers = &bytes[32..];
        Some(Self {
            connection: ConnectionId(number(0)?),
            offset: number(8)?,
            acknowledged: number(16)?,
            payload_bytes: usize::try_from(payload_bytes).ok()?,
            segment_bytes: u16::from_ne_bytes([bytes[28], bytes[29]]),
            headers: headers.get(..usize::from(bytes[30]))?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the program writes is read as it is meant, and nothing else is.
    #[test]
    fn a_record_is_read() {
        let mut bytes = Vec::new();
        bytes.extend([7_u64, 1000, 900].iter().flat_map(|it| it.to_ne_bytes()));
        bytes.extend(2896_u32.to_ne_bytes());
        bytes.extend(1448_u16.to_ne_bytes());
        bytes.extend([52, 0]);
        bytes.extend([9; HEADERS_BYTES_MAX]);
        let caught = Caught {
            connection: ConnectionId(7),
            offset: 1000,
            acknowledged: 900,
            payload_bytes: 2896,
            segment_bytes: 1448,
            headers: vec![9; 52],
        };
        assert_eq!(Caught::decode(&bytes), Some(caught));
        assert_eq!(Caught::decode(&bytes[1..]), None);
        bytes[30] = 121;
        assert_eq!(Caught::decode(&bytes), None, "longer than headers are");
    }
}
