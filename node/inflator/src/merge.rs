//! Neighbouring packets of a flow that can go out as one.

use crossdock_tunnel::Flow;

use crate::frame::IP_TOTAL_MAX;

/// Places in the TCP header (RFC 9293 section 3.1).
const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
const FIN: u8 = 1;
const PSH: u8 = 8;

/// A packet whose bytes are there, as far as merging looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) headers: Vec<u8>,
    /// As the gateway's kernel would have cut it; 0: it is one.
    pub(crate) segment_bytes: u16,
    pub(crate) payload_bytes: usize,
}

impl Shape {
    /// The shape of this packet and `next` as one, if `next` goes on where this one ends and says
    /// the same of everything else. Where the sender cut its stream means nothing to a
    /// receiver (RFC 9293 section 3.7).
    pub(crate) fn merged(&self, next: &Self) -> Option<Self> {
        let tcp = Flow::of(&self.headers).ok()?.ip_bytes;
        let payload_bytes = self.payload_bytes + next.payload_bytes;
        let fits = self.headers.len() + payload_bytes <= IP_TOTAL_MAX;
        let goes_on = |headers: &[u8]| u32::from_be_bytes(array(headers, tcp + SEQUENCE));
        let expected = goes_on(&self.headers).wrapping_add(u32::try_from(self.payload_bytes).ok()?);
        let is_next = fits
            && next.headers.len() == self.headers.len()
            && self.headers[tcp + FLAGS] & FIN == 0
            && goes_on(&next.headers) == expected
            && same_of_all(&self.headers, tcp) == same_of_all(&next.headers, tcp);
        if !is_next {
            return None;
        }
        let mut headers = self.headers.clone();
        headers[tcp + FLAGS] |= next.headers[tcp + FLAGS];
        Some(Self {
            headers,
            segment_bytes: self.segment().max(next.segment()),
            payload_bytes,
        })
    }

    /// No segment that it was cut into is longer.
    fn segment(&self) -> u16 {
        match self.segment_bytes {
            0 => u16::try_from(self.payload_bytes).unwrap_or(u16::MAX),
            bytes => bytes,
        }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|place| bytes[at + place])
}

/// The headers without what is each packet's own: lengths, IPv4's identification, checksums, place in
/// the stream, and what ends a piece of it.
fn same_of_all(headers: &[u8], tcp: usize) -> Vec<u8> {
    let mut same = headers.to_vec();
    match headers[0] >> 4 {
        4 => {
            same[2..6].fill(0);
            same[10..12].fill(0);
        }
        _ => same[4..6].fill(0),
    }
    same[tcp + SEQUENCE..tcp + SEQUENCE + 4].fill(0);
    same[tcp + FLAGS] &= !(FIN | PSH);
    same[tcp + CHECKSUM..tcp + CHECKSUM + 2].fill(0);
    same
}
