//! A reply that is a datagram of its own: no socket has had anything of it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::datagram::PACKET_ROOM_BYTES;
use crate::packet::{
    KIND_REPLY, Parts, RecordError, decode_parts, encode_parts, payload_of, take_array,
};

/// Of a datagram of UDP over IPv4: both headers and the payload have 16 bits for their length.
pub const REPLY_BYTES_MAX: usize = 65_535 - 20 - 8;

/// What the parts of a reply may take in a datagram of the tunnel.
pub const REPLY_ROOM_BYTES: usize = PACKET_ROOM_BYTES - 1 - FIXED_BYTES;

/// The least that a link of IPv4 takes (RFC 791 section 3.2).
pub const IPV4_MTU_MIN: u16 = 68;
/// The same of IPv6 (RFC 8200 section 5).
pub const IPV6_MTU_MIN: u16 = 1280;

/// Behind the kind, before the parts.
const FIXED_BYTES: usize = 43;

/// A datagram of UDP that a node builds and sends, in fragments if it is longer than what the
/// way to the client takes (SPIRAL section 2).
///
/// | bytes | name | meaning (big-endian) |
/// |---|---|---|
/// | 1 | kind | 3 |
/// | 1 | parts | how many, 1 to 255 |
/// | 2 | MTU | of the way to the client, headers of IP included |
/// | 4 | identification | of its fragments; IPv4's are the lowest 16 bits |
/// | 2 | source port | the gateway's |
/// | 2 | destination port | the client's |
/// | 16 | source | IPv4's as IPv6's (RFC 4291 section 2.5.5.2) |
/// | 16 | destination | of the same version |
/// | | parts | see [`Part`](crate::Part) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The gateway: as whom the node speaks.
    pub source: SocketAddr,
    /// The client.
    pub destination: SocketAddr,
    /// What no other datagram of the two addresses has that is on its way (RFC 6864).
    pub identification: u32,
    /// In bytes.
    pub mtu: u16,
    /// In the order of the payload.
    pub parts: Parts<'a>,
}

impl<'a> Reply<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let (count, payload_bytes) = payload_of(self.parts)?;
        self.check(payload_bytes)?;
        out.extend([KIND_REPLY, count]);
        out.extend(self.mtu.to_be_bytes());
        out.extend(self.identification.to_be_bytes());
        out.extend(self.source.port().to_be_bytes());
        out.extend(self.destination.port().to_be_bytes());
        for end in [self.source, self.destination] {
            out.extend(as_ipv6(end.ip()).octets());
        }
        encode_parts(self.parts, out);
        Ok(())
    }

    /// Takes the record from the front of `bytes`, behind its kind.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Result<Self, RecordError> {
        let [count] = take_array(bytes)?;
        let mtu = u16::from_be_bytes(take_array(bytes)?);
        let identification = u32::from_be_bytes(take_array(bytes)?);
        let source_port = u16::from_be_bytes(take_array(bytes)?);
        let destination_port = u16::from_be_bytes(take_array(bytes)?);
        let source = Ipv6Addr::from(take_array::<16>(bytes)?).to_canonical();
        let destination = Ipv6Addr::from(take_array::<16>(bytes)?).to_canonical();
        let (parts, payload_bytes) = decode_parts(usize::from(count), bytes)?;
        let reply = Self {
            source: SocketAddr::new(source, source_port),
            destination: SocketAddr::new(destination, destination_port),
            identification,
            mtu,
            parts,
        };
        reply.check(payload_bytes)?;
        Ok(reply)
    }

    const fn check(&self, payload_bytes: usize) -> Result<(), RecordError> {
        let mtu_min = match (self.source, self.destination) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) => IPV4_MTU_MIN,
            (SocketAddr::V6(_), SocketAddr::V6(_)) => IPV6_MTU_MIN,
            _ => return Err(RecordError::Versions),
        };
        if self.mtu < mtu_min {
            return Err(RecordError::Mtu(self.mtu));
        }
        if payload_bytes > REPLY_BYTES_MAX {
            return Err(RecordError::Payload(payload_bytes));
        }
        Ok(())
    }
}

/// As the tunnel carries addresses.
pub(crate) const fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
