//! A caught packet: its headers, and what its payload is made of; and whose turn is next.

use std::net::{Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::datagram::PACKET_ROOM_BYTES;
use crate::reply::{Reply, as_ipv6};

/// IPv4 and TCP have up to 60 bytes each; IPv6 has 40.
pub const HEADERS_BYTES_MAX: usize = 120;

/// Of one packet: as much as the kernel's segmentation takes at once (GSO).
pub const PAYLOAD_BYTES_MAX: usize = 65_535;

/// Of one packet.
pub const PARTS_MAX: usize = u8::MAX as usize;

/// What the parts of a packet may take in a datagram, whatever its headers are.
pub const PARTS_ROOM_BYTES: usize = PACKET_ROOM_BYTES - RECORD_BYTES - HEADERS_BYTES_MAX;

/// Of a record, before the headers.
const RECORD_BYTES: usize = 13;
/// Of a part, before a literal's bytes; and of an extent.
const LITERAL_BYTES: usize = 3;
const EXTENT_BYTES: usize = 19;

const KIND_PACKET: u8 = 1;
const KIND_BATON: u8 = 2;
pub(crate) const KIND_REPLY: u8 = 3;
const PART_LITERAL: u8 = 1;
const PART_EXTENT: u8 = 2;

/// A packet as it would have left the gateway, with extents where dummy bytes were.
///
/// | bytes | name | meaning (big-endian) |
/// |---|---|---|
/// | 1 | kind | 1 |
/// | 1 | headers' length | 1 to 120 |
/// | 2 | segment | payload of each segment that it is cut into; 0 = it is one |
/// | 1 | parts | how many, 1 to 255 |
/// | 8 | turn | 0, or what has to come before the packet may go: see [`Baton`] |
/// | | headers | IP and TCP as they were caught: their lengths and checksums are the node's |
/// | | parts | see [`Part`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// IP and transport.
    pub headers: &'a [u8],
    /// In bytes of payload; 0 if it is not to be cut.
    pub segment_bytes: u16,
    /// Goes when this turn has come; 0: in the order of the tunnel.
    pub turn: u64,
    /// In the order of the payload.
    pub parts: Parts<'a>,
}

/// Where one node's bytes of a connection end and another's begin: when all packets before it
/// are sent, the node passes the turn on. So what several nodes send stays in order.
///
/// | bytes | name | meaning (big-endian) |
/// |---|---|---|
/// | 1 | kind | 2 |
/// | 1 | headers' length | 1 to 120 |
/// | 8 | turn | which |
/// | 2 | port | of the next node's tunnel |
/// | 16 | address | its own, IPv4's as IPv6's (RFC 4291 section 2.5.5.2) |
/// | | headers | of a packet of the connection |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baton<'a> {
    /// Whose turn it is; no other node can guess it.
    pub turn: u64,
    /// The next node's tunnel.
    pub to: SocketAddr,
    /// IP and transport of any packet of the connection.
    pub headers: &'a [u8],
}

/// What a datagram tells a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// To be filled and sent.
    Packet(Packet<'a>),
    /// To be passed on behind the packets before it.
    Baton(Baton<'a>),
    /// To be built and sent.
    Reply(Reply<'a>),
}

/// A piece of a payload.
///
/// | bytes | literal | extent |
/// |---|---|---|
/// | 1 | kind 1 | kind 2 |
/// | 2 | length | length |
/// | | the bytes | 8 pin, 8 offset in the pinned object |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// These bytes.
    Literal(&'a [u8]),
    /// Those that a pin of the node holds.
    Extent {
        /// The pin.
        pin: u64,
        /// Of the first byte, in the object.
        offset_bytes: u64,
        /// How many.
        length_bytes: u16,
    },
}

impl Part<'_> {
    /// How many bytes of the payload it is.
    #[must_use]
    pub const fn length_bytes(&self) -> usize {
        match self {
            Self::Literal(bytes) => bytes.len(),
            Self::Extent { length_bytes, .. } => *length_bytes as usize,
        }
    }

    /// What it takes in a datagram.
    #[must_use]
    pub const fn encoded_bytes(&self) -> usize {
        match self {
            Self::Literal(bytes) => LITERAL_BYTES + bytes.len(),
            Self::Extent { .. } => EXTENT_BYTES,
        }
    }
}

/// The parts of a packet: given by who makes it, or still encoded, and known to be right.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// To be sent.
    Given(&'a [Part<'a>]),
    /// As they came.
    Encoded(EncodedParts<'a>),
}

/// Parts in a datagram.
#[derive(Clone, Copy, Debug)]
pub struct EncodedParts<'a> {
    bytes: &'a [u8],
}

impl<'a> Parts<'a> {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let (given, mut encoded): (&'a [Part<'a>], &'a [u8]) = match *self {
            Self::Given(parts) => (parts, &[]),
            Self::Encoded(parts) => (&[], parts.bytes),
        };
        let decoded = std::iter::from_fn(move || match encoded.is_empty() {
            true => None,
            false => decode_part(&mut encoded).ok(),
        });
        given.iter().copied().chain(decoded)
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.iter().map(|part| part.length_bytes()).sum()
    }
}

impl PartialEq for Parts<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Parts<'_> {}

/// Why bytes are no packet, or a packet none that can be sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// It ends before it should.
    #[error("a packet's record ends early")]
    Short,
    /// A kind that this build does not have.
    #[error("record kind {0} is unknown")]
    Kind(u8),
    /// No headers, or longer ones than there are.
    #[error("headers of {0} bytes are none of a packet")]
    Headers(usize),
    /// No parts, an empty one, or too many.
    #[error("a packet's payload has {0} parts, or an empty one")]
    Parts(usize),
    /// More than a packet can carry.
    #[error("a payload of {0} bytes is longer than a packet's")]
    Payload(usize),
    /// Addresses of which one is IPv4's and the other IPv6's.
    #[error("from an address of one version of IP to one of the other")]
    Versions,
    /// Less than what every link takes.
    #[error("an MTU of {0} bytes is no link's")]
    Mtu(u16),
}

impl<'a> Packet<'a> {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let headers = self.headers.len();
        let (parts, payload_bytes) = payload_of(self.parts)?;
        check(headers, payload_bytes)?;
        let headers_length = u8::try_from(headers).map_err(|_| RecordError::Headers(headers))?;
        out.extend([KIND_PACKET, headers_length]);
        out.extend(self.segment_bytes.to_be_bytes());
        out.push(parts);
        out.extend(self.turn.to_be_bytes());
        out.extend(self.headers);
        encode_parts(self.parts, out);
        Ok(())
    }

    /// Takes the record from the front of `bytes`, behind its kind.
    fn decode(bytes: &mut &'a [u8]) -> Result<Self, RecordError> {
        let [headers, segment @ .., count] = take_array::<4>(bytes)?;
        let turn = u64::from_be_bytes(take_array(bytes)?);
        let (headers, count) = (usize::from(headers), usize::from(count));
        let headers = take(bytes, headers)?;
        let (parts, payload_bytes) = decode_parts(count, bytes)?;
        check(headers.len(), payload_bytes)?;
        Ok(Self {
            headers,
            segment_bytes: u16::from_be_bytes(segment),
            turn,
            parts,
        })
    }
}

impl<'a> Baton<'a> {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let headers = self.headers.len();
        let length = u8::try_from(headers).map_err(|_| RecordError::Headers(headers))?;
        check(headers, 0)?;
        out.extend([KIND_BATON, length]);
        out.extend(self.turn.to_be_bytes());
        out.extend(self.to.port().to_be_bytes());
        out.extend(as_ipv6(self.to.ip()).octets());
        out.extend(self.headers);
        Ok(())
    }

    fn decode(bytes: &mut &'a [u8]) -> Result<Self, RecordError> {
        let [headers] = take_array::<1>(bytes)?;
        let turn = u64::from_be_bytes(take_array(bytes)?);
        let port = u16::from_be_bytes(take_array(bytes)?);
        let address = Ipv6Addr::from(take_array::<16>(bytes)?).to_canonical();
        let headers = take(bytes, usize::from(headers))?;
        check(headers.len(), 0)?;
        Ok(Self {
            turn,
            to: SocketAddr::new(address, port),
            headers,
        })
    }
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        match self {
            Self::Packet(packet) => packet.encode(out),
            Self::Baton(baton) => baton.encode(out),
            Self::Reply(reply) => reply.encode(out),
        }
    }

    /// Takes a record from the front of `bytes`.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Result<Self, RecordError> {
        match take_array::<1>(bytes)? {
            [KIND_PACKET] => Packet::decode(bytes).map(Self::Packet),
            [KIND_BATON] => Baton::decode(bytes).map(Self::Baton),
            [KIND_REPLY] => Reply::decode(bytes).map(Self::Reply),
            [kind] => Err(RecordError::Kind(kind)),
        }
    }
}

const fn check(headers: usize, payload_bytes: usize) -> Result<(), RecordError> {
    if headers == 0 || headers > HEADERS_BYTES_MAX {
        return Err(RecordError::Headers(headers));
    }
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(RecordError::Payload(payload_bytes));
    }
    Ok(())
}

/// How many parts there are, and how many bytes they are together.
pub(crate) fn payload_of(parts: Parts<'_>) -> Result<(u8, usize), RecordError> {
    let (mut count, mut payload_bytes) = (0, 0);
    for part in parts.iter() {
        count += 1;
        payload_bytes += part.length_bytes();
        if part.length_bytes() == 0 {
            return Err(RecordError::Parts(count));
        }
    }
    match u8::try_from(count) {
        Ok(count @ 1..) => Ok((count, payload_bytes)),
        _ => Err(RecordError::Parts(count)),
    }
}

pub(crate) fn encode_parts(parts: Parts<'_>, out: &mut Vec<u8>) {
    for part in parts.iter() {
        encode_part(&part, out);
    }
}

/// Takes `count` parts from the front of `bytes`: them, and how many bytes they are together.
pub(crate) fn decode_parts<'a>(
    count: usize,
    bytes: &mut &'a [u8],
) -> Result<(Parts<'a>, usize), RecordError> {
    if count == 0 {
        return Err(RecordError::Parts(count));
    }
    let before = *bytes;
    let mut payload_bytes = 0;
    for _ in 0..count {
        payload_bytes += decode_part(bytes)?.length_bytes();
    }
    let encoded = &before[..before.len() - bytes.len()];
    let parts = Parts::Encoded(EncodedParts { bytes: encoded });
    Ok((parts, payload_bytes))
}

/// Its length is 1 to 65535.
fn encode_part(part: &Part<'_>, out: &mut Vec<u8>) {
    let length = u16::try_from(part.length_bytes()).unwrap_or(u16::MAX);
    match part {
        Part::Literal(bytes) => {
            out.push(PART_LITERAL);
            out.extend(length.to_be_bytes());
            out.extend(*bytes);
        }
        Part::Extent {
            pin, offset_bytes, ..
        } => {
            out.push(PART_EXTENT);
            out.extend(length.to_be_bytes());
            out.extend(pin.to_be_bytes());
            out.extend(offset_bytes.to_be_bytes());
        }
    }
}

fn decode_part<'a>(bytes: &mut &'a [u8]) -> Result<Part<'a>, RecordError> {
    let [kind, length @ ..] = take_array::<LITERAL_BYTES>(bytes)?;
    let length_bytes = u16::from_be_bytes(length);
    if length_bytes == 0 {
        return Err(RecordError::Parts(0));
    }
    match kind {
        PART_LITERAL => Ok(Part::Literal(take(bytes, usize::from(length_bytes))?)),
        PART_EXTENT => Ok(Part::Extent {
            pin: u64::from_be_bytes(take_array(bytes)?),
            offset_bytes: u64::from_be_bytes(take_array(bytes)?),
            length_bytes,
        }),
        kind => Err(RecordError::Kind(kind)),
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(RecordError::Short)?;
    *bytes = rest;
    Ok(taken)
}

pub(crate) fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(RecordError::Short)?;
    *bytes = rest;
    Ok(*taken)
}
