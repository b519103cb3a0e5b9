//! Datagrams of UDP as packets of IP: with their checksum, and in fragments where the way to
//! the client takes no more.
//!
//! The kernel cuts those of IPv4 on their way out of the node, as late as may be: one write for
//! each, and fragments that lie side by side. Those of IPv6 are cut here, as the kernel would give
//! them numbers of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crossdock_tunnel::Flow;
use crossdock_types::Payload;

use crate::frame::{Frame, OFFLOAD_BYTES, SEGMENTS_UDP, offload};
use crate::message::Filled;
use crate::sum::Sum;

/// The protocol number of UDP, and of IPv6's fragments.
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
/// Of headers: IPv4's without options, IPv6's without and with that of a fragment, UDP's.
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const FRAGMENT_BYTES: usize = 8;
const UDP_BYTES: usize = 8;
/// Where the checksum is in UDP's.
const CHECKSUM: usize = 6;
/// Fragments begin at multiples of it.
const FRAGMENT_UNIT: usize = 8;
/// As Linux has it.
const HOPS: u8 = 64;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// What a datagram's headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// As whom the node speaks.
    pub source: SocketAddr,
    /// The client.
    pub destination: SocketAddr,
    /// Of its fragments; IPv4's are the lowest 16 bits.
    pub identification: u32,
    /// The longest packet of IP that the way takes, in bytes.
    pub mtu: u16,
}

/// What carries a datagram.
#[derive(Debug)]
pub struct Packets {
    /// What is to be sent, in order.
    pub filled: Vec<Filled>,
    /// As how many packets the client gets it.
    pub fragments: usize,
}

/// The packets that carry a datagram: one, or its fragments. One says that it is not
/// to be cut on its way, as the system itself says: what cannot pass is reported to the
/// source, which then knows the way better.
///
/// None if it is longer than a datagram can be, the MTU is none of a link, or the addresses are
/// of different versions.
#[must_use]
pub fn packets(head: &Head, payload: &Payload) -> Option<Packets> {
    let addresses = match (head.source.ip(), head.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6(source, destination),
        _ => return None,
    };
    let udp_bytes = UDP_BYTES + payload.len();
    let (whole, fragment) = addresses.header_bytes();
    let mtu = usize::from(head.mtu);
    let is_whole = whole + udp_bytes <= mtu;
    let is_cut_behind = !is_whole && matches!(addresses, Addresses::V4(..));
    let udp = udp_header(head, &addresses, payload, is_cut_behind)?;
    let step = match is_whole {
        true => udp_bytes,
        false => mtu.checked_sub(fragment)? / FRAGMENT_UNIT * FRAGMENT_UNIT,
    };
    if step == 0 {
        return None;
    }
    let fragments = udp_bytes.div_ceil(step);
    let (at_once, offload) = match is_cut_behind {
        true => {
            let step = u16::try_from(step).ok()?;
            let place = (IPV4_BYTES, UDP_BYTES, CHECKSUM);
            (udp_bytes, offload(SEGMENTS_UDP, place, step)?)
        }
        false => (step, [0; OFFLOAD_BYTES]),
    };
    let mut filled = Vec::with_capacity(udp_bytes.div_ceil(at_once));
    for at in (0..udp_bytes).step_by(at_once) {
        let end = udp_bytes.min(at + at_once);
        let place = Place {
            at_bytes: u16::try_from(at).ok()?,
            is_last: end == udp_bytes,
        };
        let place = (!is_whole).then_some(place);
        let mut headers = match addresses {
            Addresses::V4(from, to) => ipv4(from, to, head, end - at, place.as_ref())?,
            Addresses::V6(from, to) => ipv6(from, to, head, end - at, place.as_ref())?,
        };
        let ip_bytes = headers.len();
        if at == 0 {
            headers.extend(udp);
        }
        let payload = payload.slice(at.saturating_sub(UDP_BYTES), end - UDP_BYTES);
        filled.push(Filled {
            frame: Frame {
                flow: Flow {
                    source: head.source,
                    destination: head.destination,
                    ip_bytes,
                },
                offload,
                headers,
            },
            payload: payload.into_pieces(),
        });
    }
    Some(Packets { filled, fragments })
}

#[derive(Clone, Copy)]
enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    /// What goes before a datagram, and before a fragment.
    const fn header_bytes(&self) -> (usize, usize) {
        match self {
            Self::V4(..) => (IPV4_BYTES, IPV4_BYTES),
            Self::V6(..) => (IPV6_BYTES, IPV6_BYTES + FRAGMENT_BYTES),
        }
    }

    fn sum(&self) -> Sum {
        match self {
            Self::V4(source, destination) => Sum::of(&source.octets()).and(&destination.octets()),
            Self::V6(source, destination) => Sum::of(&source.octets()).and(&destination.octets()),
        }
    }
}

/// Where in its datagram a fragment lies.
struct Place {
    at_bytes: u16,
    is_last: bool,
}

/// RFC 768; the pseudo-header of IPv6 has the same sum (RFC 8200 section 8.1). Where the kernel
/// cuts the datagram it adds the sum of the payload, too.
fn udp_header(
    head: &Head,
    addresses: &Addresses,
    payload: &Payload,
    is_cut_behind: bool,
) -> Option<[u8; UDP_BYTES]> {
    let longest = match addresses {
        Addresses::V4(..) => usize::from(u16::MAX) - IPV4_BYTES,
        Addresses::V6(..) => usize::from(u16::MAX),
    };
    let udp_bytes = Some(UDP_BYTES + payload.len()).filter(|&bytes| bytes <= longest)?;
    let udp_bytes = u16::try_from(udp_bytes).ok()?;
    let mut header = [0; UDP_BYTES];
    let words = [head.source.port(), head.destination.port(), udp_bytes];
    for (place, word) in header.chunks_exact_mut(2).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    let pseudo = addresses.sum().and(&[0, UDP]).and(&udp_bytes.to_be_bytes());
    if is_cut_behind {
        header[CHECKSUM..].copy_from_slice(&pseudo.fold().to_be_bytes());
        return Some(header);
    }
    let pieces = payload.pieces().iter();
    let sum = pieces.fold(pseudo.and(&header), |sum, piece| sum.and(piece));
    // Zero would say that there is none.
    let checksum = match !sum.fold() {
        0 => u16::MAX,
        checksum => checksum,
    };
    header[CHECKSUM..].copy_from_slice(&checksum.to_be_bytes());
    Some(header)
}

/// RFC 791 section 3.1; for what is no fragment the identification says nothing (RFC 6864
/// section 4.1).
fn ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    head: &Head,
    length_bytes: usize,
    place: Option<&Place>,
) -> Option<Vec<u8>> {
    let total_bytes = u16::try_from(IPV4_BYTES + length_bytes).ok()?;
    let [_, _, identification @ ..] = head.identification.to_be_bytes();
    let fragment = match place {
        Some(place) if place.is_last => place.at_bytes / 8,
        Some(place) => MORE_FRAGMENTS | (place.at_bytes / 8),
        None => DONT_FRAGMENT,
    };
    let mut header = vec![0x45, 0];
    header.extend(total_bytes.to_be_bytes());
    header.extend(identification);
    header.extend(fragment.to_be_bytes());
    header.extend([HOPS, UDP, 0, 0]);
    header.extend(source.octets());
    header.extend(destination.octets());
    let checksum = !Sum::of(&header).fold();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(header)
}

/// RFC 8200 sections 3 and 4.5.
fn ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    head: &Head,
    length_bytes: usize,
    place: Option<&Place>,
) -> Option<Vec<u8>> {
    let behind = length_bytes + place.map_or(0, |_| FRAGMENT_BYTES);
    let next = place.map_or(UDP, |_| FRAGMENT);
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(u16::try_from(behind).ok()?.to_be_bytes());
    header.extend([next, HOPS]);
    header.extend(source.octets());
    header.extend(destination.octets());
    if let Some(place) = place {
        // The offset counts in eights, and its three lowest bits are others: it stands as it is.
        let fragment = place.at_bytes | u16::from(!place.is_last);
        header.extend([UDP, 0]);
        header.extend(fragment.to_be_bytes());
        header.extend(head.identification.to_be_bytes());
    }
    Some(header)
}
