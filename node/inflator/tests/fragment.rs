//! Datagrams of UDP as packets, against a client's side that puts fragments together.

use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_inflator::{Filled, Head, Packets, packets};
use crossdock_types::Payload;
use proptest::prelude::*;

fn head(is_v6: bool, identification: u32, mtu: u16) -> Head {
    let (source, destination) = match is_v6 {
        false => ("198.18.0.1:2049", "198.18.0.9:700"),
        true => ("[fd00::1]:2049", "[fd00::1:9]:700"),
    };
    Head {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        identification,
        mtu,
    }
}

/// RFC 1071, plainly: 0xffff if the checksum in it is right.
fn ones_sum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let all: Vec<u8> = parts.into_iter().flatten().copied().collect();
    let words = all.chunks(2);
    let words =
        words.map(|word| (u32::from(word[0]) << 8) | u32::from(word.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// What leaves the node: what the kernel is to cut it cuts (`udp4_ufo_fragment` of Linux).
fn leave(packets: Packets) -> Vec<Vec<u8>> {
    let filled = packets.filled.iter();
    let all: Vec<Vec<u8>> = filled.flat_map(on_the_wire).collect();
    assert_eq!(all.len(), packets.fragments);
    all
}

fn on_the_wire(packet: &Filled) -> Vec<Vec<u8>> {
    let mut bytes = packet.frame.headers.clone();
    bytes.extend(packet.payload.iter().flatten());
    let offload = packet.frame.offload;
    if offload == [0; 10] {
        return vec![bytes];
    }
    let number = |at: usize| usize::from(u16::from_le_bytes([offload[at], offload[at + 1]]));
    let told = (offload[..2].to_vec(), number(2), number(6), number(8));
    assert_eq!(told, (vec![1, 3], 28, 20, 6), "fragments of UDP over IPv4");
    assert_eq!(short(&bytes, 6), 0, "nothing of fragments yet");
    let (ip, udp) = bytes.split_at_mut(20);
    let length = u16::try_from(udp.len()).expect("16 bits").to_be_bytes();
    let pseudo = [&ip[12..20], &[0, 17], &length].concat();
    let partial = u32::from(u16::from_be_bytes([udp[6], udp[7]]));
    assert_eq!(partial, ones_sum([&pseudo[..]]), "of the pseudo-header");
    let sum = ones_sum([&udp[..]]).to_be_bytes();
    let checksum = match [!sum[2], !sum[3]] {
        [0, 0] => [0xff, 0xff],
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum);
    let step = number(4);
    let pieces = udp.chunks(step).enumerate();
    let count = udp.len().div_ceil(step);
    let fragment = |(index, piece): (usize, &[u8])| {
        let mut packet = [&*ip, piece].concat();
        let total = u16::try_from(packet.len()).expect("16 bits");
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let more = if index + 1 < count { 0x2000 } else { 0 };
        let place = u16::try_from(index * step / 8).expect("16 bits") | more;
        packet[6..8].copy_from_slice(&place.to_be_bytes());
        packet[10..12].fill(0);
        let sum = ones_sum([&packet[..20]]).to_be_bytes();
        packet[10..12].copy_from_slice(&[!sum[2], !sum[3]]);
        packet
    };
    pieces.map(fragment).collect()
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What a packet carries of its datagram, as RFC 791 and RFC 8200 say.
struct Piece {
    at: usize,
    more: bool,
    is_fragment: bool,
    bytes: Vec<u8>,
}

fn read_ipv4(head: &Head, packet: &[u8]) -> Piece {
    assert_eq!((packet[0], packet[8], packet[9]), (0x45, 64, 17));
    assert_eq!(usize::from(short(packet, 2)), packet.len());
    assert_eq!(ones_sum([&packet[..20]]), 0xffff);
    let of = [[198, 18, 0, 1], [198, 18, 0, 9]].concat();
    assert_eq!(packet[12..20], of);
    let fragment = short(packet, 6);
    let is_fragment = fragment != 0x4000;
    if is_fragment {
        assert_eq!(fragment & 0xc000, 0, "may be cut again");
        assert_eq!(u32::from(short(packet, 4)), head.identification & 0xffff);
    }
    Piece {
        at: usize::from(fragment & 0x1fff) * 8,
        more: fragment & 0x2000 != 0,
        is_fragment,
        bytes: packet[20..].to_vec(),
    }
}

fn read_ipv6(head: &Head, packet: &[u8]) -> Piece {
    assert_eq!((packet[0], packet[7]), (0x60, 64));
    assert_eq!(usize::from(short(packet, 4)), packet.len() - 40);
    if packet[6] == 17 {
        return Piece {
            at: 0,
            more: false,
            is_fragment: false,
            bytes: packet[40..].to_vec(),
        };
    }
    assert_eq!((packet[6], packet[40], packet[41]), (44, 17, 0));
    assert_eq!(packet[44..48], head.identification.to_be_bytes());
    let fragment = short(packet, 42);
    assert_eq!(fragment & 6, 0, "reserved");
    Piece {
        at: usize::from(fragment & !7),
        more: fragment & 1 != 0,
        is_fragment: true,
        bytes: packet[48..].to_vec(),
    }
}

/// Puts the packets together, in whatever order they come; the payload.
fn reassemble(head: &Head, all: &[Vec<u8>]) -> Vec<u8> {
    let is_v6 = head.source.is_ipv6();
    let mut pieces: Vec<Piece> = all
        .iter()
        .map(|packet| {
            assert!(packet.len() <= usize::from(head.mtu));
            match is_v6 {
                false => read_ipv4(head, packet),
                true => read_ipv6(head, packet),
            }
        })
        .collect();
    assert!(pieces.iter().all(|it| it.is_fragment == (all.len() > 1)));
    pieces.sort_by_key(|piece| piece.at);
    let mut datagram = Vec::new();
    for piece in &pieces {
        assert_eq!(piece.at, datagram.len(), "no gap, nothing twice");
        datagram.extend(&piece.bytes);
        assert_eq!(piece.more, piece.at != pieces[pieces.len() - 1].at);
        assert!(!piece.more || piece.bytes.len() % 8 == 0);
    }
    let ends = |end: SocketAddr| match end.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let length = u16::try_from(datagram.len()).expect("16 bits");
    let pseudo = [
        &ends(head.source)[..],
        &ends(head.destination),
        &[0, 17],
        &length.to_be_bytes(),
    ]
    .concat();
    assert_eq!(ones_sum([&pseudo[..], &datagram]), 0xffff);
    assert_eq!(short(&datagram, 0), head.source.port());
    assert_eq!(short(&datagram, 2), head.destination.port());
    assert_eq!(short(&datagram, 4), length);
    assert_ne!(short(&datagram, 6), 0, "a checksum");
    datagram.split_off(8)
}

fn content(length: usize, seed: usize) -> Vec<u8> {
    let bytes = (0..length).map(|at| ((at + seed).wrapping_mul(167) >> 3).to_le_bytes()[0]);
    bytes.collect()
}

proptest! {
    /// Goal: whatever its length, pieces of memory and MTU, a datagram comes out as it is, and
    /// no packet is longer than the way takes.
    #[test]
    fn a_datagram_comes_out_whole(
        is_v6 in any::<bool>(),
        length in 0usize..40_000,
        cuts in prop::collection::vec(1usize..9000, 0..10),
        mtu in prop_oneof![Just(1500u16), Just(1280), Just(9000), 1280u16..3000],
        id in any::<u32>(),
        seed in any::<usize>(),
        turned in any::<prop::sample::Index>(),
    ) {
        let head = head(is_v6, id, mtu);
        let whole = content(length, seed);
        let mut payload = Payload::new();
        let mut rest = &whole[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            payload.push(Bytes::copy_from_slice(piece));
            rest = behind;
        }
        payload.push(Bytes::copy_from_slice(rest));
        let packets = packets(&head, &payload).expect("a datagram");
        let mut all = leave(packets);
        let headers = if is_v6 { 40 } else { 20 };
        prop_assert_eq!(all.len() == 1, headers + 8 + length <= usize::from(mtu));
        let first = turned.index(all.len());
        all.rotate_left(first);
        prop_assert_eq!(reassemble(&head, &all), whole);
    }
}

/// Goal: the least MTU of IPv4 is one, too, and what fits to the byte is not cut.
#[test]
fn bounds_are_exact() {
    for (mtu, length, count) in [(68, 40, 1), (68, 41, 2), (68, 88, 2), (68, 89, 3)] {
        let (head, whole) = (head(false, 7, mtu), content(length, 1));
        let payload = Payload::from(Bytes::from(whole.clone()));
        let packets = packets(&head, &payload).expect("a datagram");
        assert_eq!(packets.fragments, count, "{length} bytes");
        let all = leave(packets);
        assert_eq!(reassemble(&head, &all), whole);
    }
    let packets = packets(&head(true, 7, 1280), &Bytes::from(content(1233, 1)).into());
    assert_eq!(packets.map(|all| all.filled.len()), Some(2));
}

/// Goal: a checksum that comes out as zero is sent as its other form: zero would be none.
#[test]
fn a_checksum_is_never_zero() {
    let head = head(false, 7, 1500);
    let checksum = |payload: [u8; 2]| {
        let payload = Payload::from(Bytes::copy_from_slice(&payload));
        let packets = packets(&head, &payload).expect("a datagram");
        short(&packets.filled[0].frame.headers, 26)
    };
    let before = checksum([0, 0]);
    assert_eq!(checksum(before.to_be_bytes()), 0xffff);
}

/// Goal: what no datagram can be is not sent.
#[test]
fn what_is_no_datagram_is_none() {
    let of = |head: &Head, length: usize| packets(head, &Bytes::from(vec![0; length]).into());
    let usual = head(false, 7, 1500);
    assert!(of(&usual, 65_507).is_some());
    assert!(of(&usual, 65_508).is_none());
    let usual = head(true, 7, 1500);
    assert!(of(&usual, 65_527).is_some());
    assert!(of(&usual, 65_528).is_none());
    for mtu in [0, 20, 27] {
        assert!(of(&head(false, 7, mtu), 100).is_none(), "{mtu}");
    }
    let mixed = Head {
        source: head(true, 7, 1500).source,
        ..head(false, 7, 1500)
    };
    assert!(of(&mixed, 1).is_none());
}
