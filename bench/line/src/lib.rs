//! A long line, for measurements: client and server on one machine, in one network, as if
//! far from each other.
//!
//! The program `crossdock-line` makes a TUN device, and gives every packet that the kernel
//! sends there back to the kernel later. What is there for each [path](address):
//!
//! | host | who |
//! |---|---|
//! | 1 | the client, local |
//! | 2 | the server, local |
//! | 3 | the client, as the server sees it: behind the device |
//! | 4 | the server, as the client sees it: behind the device |
//!
//! A packet from 1 to 4 comes back as one from 3 to 2, one from 2 to 3 as one from 4 to 1.
//! As 1 + 4 = 2 + 3, all checksums stay right.

pub mod delay;

use std::net::Ipv4Addr;

/// The host of the client.
pub const CLIENT: u8 = 1;
/// The host of the server.
pub const SERVER: u8 = 2;
/// The client, as the server sees it.
pub const CLIENT_SEEN: u8 = 3;
/// The server, as the client sees it.
pub const SERVER_SEEN: u8 = 4;

/// The most paths of a line.
pub const PATHS_MAX: usize = 64;

/// What all addresses begin with (RFC 2544 benchmark range: never routed).
const NETWORK: [u8; 2] = [198, 18];

/// A host of a path; paths are counted from 0 to [`PATHS_MAX`].
#[must_use]
pub const fn address(path: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(NETWORK[0], NETWORK[1], path + 1, host)
}

/// Where a packet enters the line: its path. Its addresses become those with which it
/// comes out; `None` for what is no packet of a path, and stays as it is.
#[must_use]
pub fn enter(packet: &mut [u8]) -> Option<usize> {
    const SOURCE: usize = 12;
    const DESTINATION: usize = 16;
    const HEADER_BYTES: usize = 20;
    let header = packet.get_mut(..HEADER_BYTES)?;
    let is_of_line = header[0] >> 4 == 4
        && header[SOURCE..SOURCE + 2] == NETWORK
        && header[DESTINATION..DESTINATION + 2] == NETWORK
        && header[SOURCE + 2] == header[DESTINATION + 2];
    let path = usize::from(header[SOURCE + 2]).checked_sub(1)?;
    let (source, destination) = match (header[SOURCE + 3], header[DESTINATION + 3]) {
        (CLIENT, SERVER_SEEN) => (CLIENT_SEEN, SERVER),
        (SERVER, CLIENT_SEEN) => (SERVER_SEEN, CLIENT),
        _ => return None,
    };
    if !is_of_line || path >= PATHS_MAX {
        return None;
    }
    header[SOURCE + 3] = source;
    header[DESTINATION + 3] = destination;
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&source.octets());
        packet[16..20].copy_from_slice(&destination.octets());
        packet
    }

    fn sum(packet: &[u8]) -> u32 {
        let words = packet.chunks(2);
        words
            .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]))
            .sum()
    }

    /// Goal: each end gets packets from where it sends its own, and checksums stay right.
    #[test]
    fn addresses_change_and_their_sum_does_not() {
        for path in [0, 3] {
            for (from, to) in [((1, 4), (3, 2)), ((2, 3), (4, 1))] {
                let mut entered = packet(address(path, from.0), address(path, from.1));
                let before = sum(&entered);
                assert_eq!(enter(&mut entered), Some(usize::from(path)));
                assert_eq!(entered, packet(address(path, to.0), address(path, to.1)));
                assert_eq!(sum(&entered), before);
            }
        }
    }

    /// Goal: what the kernel sends to the device besides, or what is cut off, goes nowhere.
    #[test]
    fn other_packets_are_none_of_a_path() {
        let mut all = [
            packet(address(0, CLIENT), address(1, SERVER_SEEN)),
            packet(address(0, CLIENT), Ipv4Addr::new(198, 18, 1, 255)),
            packet(Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 1, 4)),
            packet(address(0, CLIENT), address(0, SERVER_SEEN))[..19].to_vec(),
            vec![0x60; 40],
        ];
        for packet in &mut all {
            assert_eq!(enter(packet), None);
        }
    }
}
