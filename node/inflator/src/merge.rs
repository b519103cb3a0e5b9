//! Neighbouring packets of a flow that can go out as one.

use std::num::TryFromIntError;

use crossdock_tunnel::tcp::{CHECKSUM, FIN, FLAGS, PSH, SEQUENCE};
use crossdock_tunnel::{Flow, sequence};

use crate::frame::IP_TOTAL_MAX;

/// A packet whose bytes are there, as far as merging looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) headers: Vec<u8>,
    /// As the gateway's kernel would have cut it; 0: it is one.
    pub(crate) segment_bytes: u16,
    pub(crate) payload_bytes: usize,
}

impl Shape {
    /// Takes the next packet into this one if it goes on where this one ends and says the same of
    /// everything else; false if not. Where the sender cut its stream means nothing to a
    /// receiver (RFC 9293 section 3.7).
    pub(crate) fn merge(&mut self, next: &Self) -> bool {
        let Ok(Flow { ip_bytes: tcp, .. }) = Flow::of(&self.headers) else {
            return false;
        };
        let payload_bytes = self.payload_bytes + next.payload_bytes;
        let is_next = self.headers.len() + payload_bytes <= IP_TOTAL_MAX
            && next.headers.len() == self.headers.len()
            && self.headers[tcp + FLAGS] & FIN == 0
            && next.distance_from(self, tcp) == Ok(self.payload_bytes)
            && same_of_all(&self.headers, tcp) == same_of_all(&next.headers, tcp);
        if is_next {
            self.headers[tcp + FLAGS] |= next.headers[tcp + FLAGS];
            self.segment_bytes = self.segment().max(next.segment());
            self.payload_bytes = payload_bytes;
        }
        is_next
    }

    /// Bytes of the stream from the beginning of another packet to that of this one.
    fn distance_from(&self, other: &Self, tcp: usize) -> Result<usize, TryFromIntError> {
        let to = sequence(&self.headers[tcp..]);
        to.wrapping_sub(sequence(&other.headers[tcp..])).try_into()
    }

    /// No segment that it was cut into is longer.
    fn segment(&self) -> u16 {
        match self.segment_bytes {
            0 => u16::try_from(self.payload_bytes).unwrap_or(u16::MAX),
            bytes => bytes,
        }
    }
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
