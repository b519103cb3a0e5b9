//! The headers of a caught packet: of which connection it is, and where what lies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// The protocol number of TCP.
pub const TCP: u8 = 6;
const TCP_BYTES_MIN: usize = 20;

/// Where what lies in a TCP header, and its flags (RFC 9293 section 3.1, RFC 3168).
pub mod tcp {
    /// Four bytes.
    pub const SEQUENCE: usize = 4;
    /// One byte.
    pub const FLAGS: usize = 13;
    /// Two bytes.
    pub const CHECKSUM: usize = 16;
    /// The stream ends.
    pub const FIN: u8 = 1;
    /// The receiver is to read now.
    pub const PSH: u8 = 8;
    /// The window was reduced.
    pub const CWR: u8 = 0x80;
}

/// The sequence number in a TCP header that [`Flow::of`] has found.
#[must_use]
pub fn sequence(tcp_header: &[u8]) -> u32 {
    let bytes = std::array::from_fn(|place| tcp_header[tcp::SEQUENCE + place]);
    u32::from_be_bytes(bytes)
}
const IPV4_BYTES_MIN: usize = 20;
const IPV6_BYTES: usize = 40;

/// Why headers are not those of a packet that a node may finish.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// They end before IP or TCP says that they do, or after it.
    #[error("headers of {0} bytes are not one of IP and one of TCP")]
    Length(usize),
    /// Neither version 4 nor 6.
    #[error("IP version {0} is unknown")]
    Version(u8),
    /// Something else than TCP, or something between IP and TCP.
    #[error("IP protocol {0} where TCP is expected")]
    Protocol(u8),
    /// A fragment: TCP does not make any.
    #[error("a fragment of a packet cannot be filled")]
    Fragment,
    /// A segment of no length where there is more than one, or a packet longer than IP's.
    #[error("a payload of {payload_bytes} bytes in segments of {segment_bytes} is no packet's")]
    Payload {
        /// The whole.
        payload_bytes: usize,
        /// Each part.
        segment_bytes: u16,
    },
}

/// A direction of a TCP connection, and the shape of its packets' headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The gateway: as whom the node speaks.
    pub source: SocketAddr,
    /// The client.
    pub destination: SocketAddr,
    /// Of the IP header; what follows is TCP's.
    pub ip_bytes: usize,
}

impl Flow {
    /// Of these headers, which are one of IP and one of TCP and nothing else: no extension
    /// headers of IPv6, no fragment.
    ///
    /// # Errors
    /// [`HeaderError`]: nothing may be sent.
    pub fn of(headers: &[u8]) -> Result<Self, HeaderError> {
        let length = HeaderError::Length(headers.len());
        let version = headers.first().ok_or(length)? >> 4;
        let (ip_bytes, source, destination) = match version {
            4 => ipv4(headers)?,
            6 => ipv6(headers)?,
            version => return Err(HeaderError::Version(version)),
        };
        let tcp = headers.get(ip_bytes..).ok_or(length)?;
        if tcp.len() < TCP_BYTES_MIN || tcp.len() != usize::from(tcp[12] >> 4) * 4 {
            return Err(length);
        }
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        Ok(Self {
            source: SocketAddr::new(source, port(0)),
            destination: SocketAddr::new(destination, port(2)),
            ip_bytes,
        })
    }
}

fn ipv4(headers: &[u8]) -> Result<(usize, IpAddr, IpAddr), HeaderError> {
    let length = HeaderError::Length(headers.len());
    let ip_bytes = usize::from(headers[0] & 0xf) * 4;
    if ip_bytes < IPV4_BYTES_MIN || headers.len() < ip_bytes {
        return Err(length);
    }
    // All bits of flags and offset but "don't fragment".
    if u16::from_be_bytes([headers[6], headers[7]]) & !0x4000 != 0 {
        return Err(HeaderError::Fragment);
    }
    if headers[9] != TCP {
        return Err(HeaderError::Protocol(headers[9]));
    }
    let address = |at: usize| {
        let bytes: [u8; 4] = std::array::from_fn(|place| headers[at + place]);
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    Ok((ip_bytes, address(12), address(16)))
}

fn ipv6(headers: &[u8]) -> Result<(usize, IpAddr, IpAddr), HeaderError> {
    if headers.len() < IPV6_BYTES {
        return Err(HeaderError::Length(headers.len()));
    }
    if headers[6] != TCP {
        return Err(HeaderError::Protocol(headers[6]));
    }
    let address = |at: usize| {
        let bytes: [u8; 16] = std::array::from_fn(|place| headers[at + place]);
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Ok((IPV6_BYTES, address(8), address(24)))
}
