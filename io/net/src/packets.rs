//! Packets that tell a network where an address is now. Built byte by byte, without
//! a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A hardware address of Ethernet.
pub(crate) type HardwareAddress = [u8; 6];

const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_ARP: u16 = 0x0806;
const BROADCAST: HardwareAddress = [0xff; 6];
/// Shorter frames are padded (IEEE 802.3), without the checksum that hardware adds.
const FRAME_BYTES_MIN: usize = 60;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ICMPV6: u8 = 58;
const HOPS: u8 = 64;
const TCP_BYTES: u8 = 20;

/// The frame by which everybody on the network learns that `address` is at
/// `hardware` now: a gratuitous ARP request (RFC 5944, section 4.6), or an unsolicited
/// neighbour advertisement to all nodes (RFC 4861, section 7.2.6).
pub(crate) fn announcement(hardware: HardwareAddress, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => gratuitous_arp(hardware, address),
        IpAddr::V6(address) => neighbour_advertisement(hardware, address),
    }
}

/// A segment of TCP that has `to` answer by what it knows of its connection to
/// `from`: whoever has that address now, and knows of no such connection, resets it.
/// With the IP header; nothing if the two are of different kinds.
///
/// It acknowledges what cannot have been sent, and RFC 9293 (section 3.10.7.4) has such
/// a segment answered by an empty one.
pub(crate) fn tickle(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => Some(tickle_v4(from, to)),
        (SocketAddr::V6(from), SocketAddr::V6(to)) => Some(tickle_v6(from, to)),
        _ => None,
    }
}

fn gratuitous_arp(hardware: HardwareAddress, address: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, hardware, ETHERTYPE_ARP);
    // Ethernet, IPv4, lengths of their addresses, request.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(hardware);
    frame.extend(address.octets());
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame.resize(FRAME_BYTES_MIN, 0);
    frame
}

fn neighbour_advertisement(hardware: HardwareAddress, address: Ipv6Addr) -> Vec<u8> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    // Type 136; flag "override"; option 2: the sender's link-layer address.
    let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend(address.octets());
    message.extend([2, 1]);
    message.extend(hardware);
    let sum = checksum_v6(address, all_nodes, PROTOCOL_ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet([0x33, 0x33, 0, 0, 0, 1], hardware, ETHERTYPE_IPV6);
    // Routers pass nothing on that has fewer hops left: it is from this network.
    frame.extend(header_v6(
        address,
        all_nodes,
        PROTOCOL_ICMPV6,
        message.len(),
        255,
    ));
    frame.extend(message);
    frame
}

fn tickle_v4(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let (source, target) = (from.ip().octets(), to.ip().octets());
    let mut segment = segment(from.port(), to.port());
    let mut pseudo = [source, target].concat();
    pseudo.extend([0, PROTOCOL_TCP, 0, TCP_BYTES]);
    let sum = checksum(&[&pseudo, &segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![
        0x45,
        0,
        0,
        20 + TCP_BYTES,
        0,
        0,
        0,
        0,
        HOPS,
        PROTOCOL_TCP,
        0,
        0,
    ];
    packet.extend([source, target].concat());
    let sum = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(segment);
    packet
}

fn tickle_v6(from: SocketAddrV6, to: SocketAddrV6) -> Vec<u8> {
    let mut segment = segment(from.port(), to.port());
    let sum = checksum_v6(*from.ip(), *to.ip(), PROTOCOL_TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = header_v6(*from.ip(), *to.ip(), PROTOCOL_TCP, segment.len(), HOPS);
    packet.extend(segment);
    packet
}

/// An acknowledgement of nothing, without a checksum.
fn segment(from: u16, to: u16) -> Vec<u8> {
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    segment.extend([0; 8]); // Sequence number, and acknowledged number.
    segment.extend([(TCP_BYTES / 4) << 4, 0x10]); // ACK.
    segment.extend(1234u16.to_be_bytes()); // Window.
    segment.extend([0; 4]);
    segment
}

fn ethernet(to: HardwareAddress, from: HardwareAddress, kind: u16) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(kind.to_be_bytes());
    frame
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, bytes: usize, hops: u8) -> Vec<u8> {
    let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(bytes.to_be_bytes());
    header.extend([protocol, hops]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

fn checksum_v6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, message: &[u8]) -> u16 {
    let mut pseudo = [from.octets(), to.octets()].concat();
    let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
    pseudo.extend(bytes.to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    checksum(&[&pseudo, message])
}

/// The Internet checksum (RFC 1071) over parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let pairs = parts.iter().flat_map(|part| part.chunks(2));
    let words = pairs.map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// What a tap of the network needs to know of a frame.
pub(crate) const fn ethertype(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => ETHERTYPE_ARP,
        IpAddr::V6(_) => ETHERTYPE_IPV6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARDWARE: HardwareAddress = [0x02, 0, 0, 0xaa, 0xbb, 0xcc];

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hex digits");
            u8::from_str_radix(pair, 16).expect("hex digits")
        });
        pairs.collect()
    }

    /// Goal: the gratuitous request is that of RFC 826 with both protocol addresses
    /// the same, to everybody, padded.
    #[test]
    fn an_arp_announcement_is_as_it_is_on_the_wire() {
        let frame = announcement(HARDWARE, Ipv4Addr::new(192, 0, 2, 7).into());
        let mut expected = hex("ffffffffffff 02 0000aabbcc 0806 0001 0800 06 04 0001 \
             020000aabbcc c0000207 000000000000 c0000207");
        expected.resize(60, 0);
        assert_eq!(frame, expected);
    }

    /// Goal: the advertisement goes to all nodes, overrides, and its checksum over the
    /// pseudo header is right: summed up with it, all is ones.
    #[test]
    fn a_neighbour_announcement_is_as_it_is_on_the_wire() {
        let address: Ipv6Addr = "fd00::7".parse().expect("an address");
        let frame = announcement(HARDWARE, address.into());
        let expected = hex("333300000001 020000aabbcc 86dd 60000000 0020 3a ff \
             fd000000000000000000000000000007 ff020000000000000000000000000001 \
             8800 9e19 20000000 fd000000000000000000000000000007 0201 020000aabbcc");
        assert_eq!(frame, expected);
        let target = "ff02::1".parse().expect("an address");
        assert_eq!(
            checksum_v6(address, target, PROTOCOL_ICMPV6, &frame[54..]),
            0
        );
    }

    /// Goal: a tickle is an empty acknowledgement with right checksums, and there is
    /// none between different kinds of addresses.
    #[test]
    fn a_tickle_is_an_acknowledgement_of_nothing() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (from, to) = (address("192.0.2.7:2049"), address("192.0.2.99:700"));
        let packet = tickle(from, to).expect("of one kind");
        let expected = hex("45000028 00000000 4006 f665 c0000207 c0000263 \
             0801 02bc 00000000 00000000 5010 04d2 1bdb 0000");
        assert_eq!(packet, expected);
        let (from6, to6) = (address("[fd00::7]:2049"), address("[fd00::99]:700"));
        let packet = tickle(from6, to6).expect("of one kind");
        let head = hex("60000000 0014 06 40 fd000000000000000000000000000007 \
             fd000000000000000000000000000099 0801 02bc");
        assert_eq!(packet[..44], head);
        let (source, target) = ("fd00::7".parse(), "fd00::99".parse());
        let (source, target) = (source.expect("one"), target.expect("one"));
        assert_eq!(checksum_v6(source, target, PROTOCOL_TCP, &packet[40..]), 0);
        assert_eq!(tickle(from, to6), None);
    }

    /// Goal: the example of RFC 1071, section 3.
    #[test]
    fn the_checksum_is_that_of_the_internet() {
        let bytes = hex("0001 f203 f4f5 f6f7");
        assert_eq!(checksum(&[&bytes]), !0xddf2);
        assert_eq!(checksum(&[&bytes[..4], &bytes[4..]]), !0xddf2);
    }
}
