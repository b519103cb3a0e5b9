//! A packet is finished: lengths, checksums as far as the kernel does not make them, and
//! what the kernel has to do.

use crossdock_tunnel::tcp::{CHECKSUM, CWR, FLAGS};
use crossdock_tunnel::{Flow, HeaderError, TCP};

use crate::sum::Sum;

/// Of what goes before a packet that is written to a packet socket or a TUN device
/// (`virtio_net_hdr`, VIRTIO 1.2 section 5.1.6).
pub const OFFLOAD_BYTES: usize = 10;

/// Headers and payload: IP's lengths have 16 bits.
pub(crate) const IP_TOTAL_MAX: usize = u16::MAX as usize;

/// The kernel is to complete the checksum.
const NEEDS_CHECKSUM: u8 = 1;
const NO_SEGMENTS: u8 = 0;
const SEGMENTS_TCP4: u8 = 1;
/// Fragments of IP: the header of UDP counts among the bytes that are cut.
pub(crate) const SEGMENTS_UDP: u8 = 3;
const SEGMENTS_TCP6: u8 = 4;
/// The first segment alone tells that the window was reduced.
const SEGMENTS_ECN: u8 = 0x80;

/// What goes out before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whose it is, and where the header of IP ends.
    pub flow: Flow,
    /// What the kernel does: completes the checksum, cuts it into segments, or a datagram of UDP
    /// into fragments; nothing with one that need not be cut, or not by the kernel.
    pub offload: [u8; OFFLOAD_BYTES],
    /// IP and TCP; the checksum of TCP is that of the pseudo-header, which the kernel
    /// completes by the payload. Or IP and, before the first bytes of a datagram, UDP.
    pub headers: Vec<u8>,
}

/// Finishes the headers of a packet that has `payload_bytes` and goes out in segments of
/// `segment_bytes`, or in one if that is 0 or more than there is. What checksums and lengths
/// say in caught headers counts for nothing.
///
/// # Errors
/// [`HeaderError`]: nothing may be sent.
pub fn finish(
    headers: &[u8],
    segment_bytes: u16,
    payload_bytes: usize,
) -> Result<Frame, HeaderError> {
    let flow = Flow::of(headers)?;
    let is_cut = segment_bytes > 0 && payload_bytes > usize::from(segment_bytes);
    let too_long = HeaderError::Payload {
        payload_bytes,
        segment_bytes,
    };
    let short = |bytes: usize| u16::try_from(bytes).map_err(|_| too_long);
    if payload_bytes == 0 {
        return Err(too_long);
    }
    let whole = short(headers.len() + payload_bytes)?;
    let tcp_bytes = whole - short(flow.ip_bytes)?;
    let mut headers = headers.to_vec();
    let (ip, tcp) = headers.split_at_mut(flow.ip_bytes);
    let (addresses, segments) = match flow.source.is_ipv4() {
        true => {
            ip[2..4].copy_from_slice(&whole.to_be_bytes());
            ip[10..12].fill(0);
            let checksum = !Sum::of(ip).fold();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            (&ip[12..20], SEGMENTS_TCP4)
        }
        false => {
            ip[4..6].copy_from_slice(&tcp_bytes.to_be_bytes());
            (&ip[8..], SEGMENTS_TCP6)
        }
    };
    let pseudo = Sum::of(addresses).and(&[0, TCP]);
    let pseudo = pseudo.and(&tcp_bytes.to_be_bytes()).fold();
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
    let ecn = match tcp[FLAGS] & CWR {
        0 => 0,
        _ => SEGMENTS_ECN,
    };
    let (kind, segment_bytes) = match is_cut {
        true => (segments | ecn, segment_bytes),
        false => (NO_SEGMENTS, 0),
    };
    let tcp_bytes = headers.len() - flow.ip_bytes;
    let place = (flow.ip_bytes, tcp_bytes, CHECKSUM);
    let offload = offload(kind, place, segment_bytes).ok_or(too_long)?;
    Ok(Frame {
        flow,
        offload,
        headers,
    })
}

/// What the kernel has to do: to complete the checksum at `checksum` in the header behind IP's, and
/// to cut what lies behind both.
pub(crate) fn offload(
    kind: u8,
    (ip_bytes, own_bytes, checksum): (usize, usize, usize),
    segment_bytes: u16,
) -> Option<[u8; OFFLOAD_BYTES]> {
    let mut offload = [0; OFFLOAD_BYTES];
    offload[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
    let [headers, ip, checksum] =
        [ip_bytes + own_bytes, ip_bytes, checksum].map(|it| u16::try_from(it).ok());
    let numbers = [headers?, segment_bytes, ip?, checksum?];
    for (place, number) in offload[2..].chunks_exact_mut(2).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Some(offload)
}
