//! Packets that the inflator finishes, against a kernel's part of the work done by hand:
//! segments and checksums.

use std::net::{IpAddr, SocketAddr};

use crossdock_inflator::{Frame, finish};
use crossdock_tunnel::{Flow, HeaderError};
use proptest::prelude::*;

/// Headers as a redirector catches them: lengths and checksums are anything.
fn headers(is_v6: bool, options: usize, flags: u8) -> Vec<u8> {
    let mut bytes = match is_v6 {
        false => {
            let mut ip = vec![0x45, 0, 0xff, 0xff, 0x12, 0x34, 0x40, 0, 64, 6, 0xee, 0xee];
            ip.extend([198, 18, 0, 1, 198, 18, 0, 9]);
            ip
        }
        true => {
            let mut ip = vec![0x60, 0, 0, 0, 0xff, 0xff, 6, 64];
            ip.extend((0..32).map(|at| if at % 16 == 0 { 0xfd } else { at }));
            ip
        }
    };
    bytes.extend([0x08, 0x01, 0xc0, 0x00]);
    bytes.extend([0x10, 0, 0, 1, 0x20, 0, 0, 2]);
    let words = u8::try_from(5 + options / 4).expect("up to 15");
    bytes.extend([words << 4, flags, 0x01, 0x00, 0xdd, 0xdd, 0, 0]);
    bytes.extend(std::iter::repeat_n(1, options));
    bytes
}

/// RFC 1071 over everything, plainly.
fn ones_sum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u16 {
    let all: Vec<u8> = parts.into_iter().flatten().copied().collect();
    let sum: u64 = all
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)))
        .sum();
    let sum = sum % 0xffff;
    u16::try_from(sum).expect("a remainder")
}

/// What VIRTIO 1.2 says that a device does with the packet: the segments that go out.
fn cut(frame: &Frame, payload: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| {
        usize::from(u16::from_le_bytes([
            frame.offload[at],
            frame.offload[at + 1],
        ]))
    };
    let (header_bytes, segment, from, at) = (number(2), number(4), number(6), number(8));
    assert_eq!(frame.offload[0], 1);
    assert_eq!(header_bytes, frame.headers.len());
    let is_cut = frame.offload[1] != 0;
    assert_eq!(is_cut, segment != 0);
    let step = if is_cut { segment } else { payload.len() };
    let mut sequence = 0x1000_0001u32;
    let mut out = Vec::new();
    for part in payload.chunks(step) {
        let mut packet = frame.headers.clone();
        let tcp_bytes = u16::try_from(packet.len() - from + part.len()).expect("short");
        if is_cut {
            // The kernel mends lengths, and the sum of the pseudo-header by them.
            let whole = u16::try_from(frame.headers.len() - from + payload.len()).expect("short");
            let sum = u16::from_be_bytes([packet[from + at], packet[from + at + 1]]);
            let sum = u32::from(sum) + u32::from(!whole) + u32::from(tcp_bytes);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded");
            packet[from + at..from + at + 2].copy_from_slice(&sum.to_be_bytes());
            set_lengths(&mut packet, part.len());
            packet[from + 4..from + 8].copy_from_slice(&sequence.to_be_bytes());
        }
        sequence = sequence.wrapping_add(u32::from(tcp_bytes) - 20);
        let checksum = !ones_sum([&packet[from..], part]);
        packet[from + at..from + at + 2].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(part);
        out.push(packet);
    }
    out
}

fn set_lengths(packet: &mut [u8], part: usize) {
    let whole = packet.len() + part;
    match packet[0] >> 4 {
        4 => {
            let whole = u16::try_from(whole).expect("short");
            packet[2..4].copy_from_slice(&whole.to_be_bytes());
            packet[10..12].fill(0);
            let checksum = !ones_sum([&packet[..20]]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        _ => {
            let whole = u16::try_from(whole - 40).expect("short");
            packet[4..6].copy_from_slice(&whole.to_be_bytes());
        }
    }
}

/// As a client checks it. Returns the payload.
fn receive(packet: &[u8]) -> Vec<u8> {
    let flow = match packet[0] >> 4 {
        4 => {
            assert_eq!(ones_sum([&packet[..20]]), 0, "the checksum of IP");
            let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert_eq!(length, packet.len());
            (20, &packet[12..20])
        }
        _ => {
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            assert_eq!(length + 40, packet.len());
            (40, &packet[8..40])
        }
    };
    let (ip_bytes, addresses) = flow;
    let tcp = &packet[ip_bytes..];
    let length = u32::try_from(tcp.len()).expect("short").to_be_bytes();
    let sum = ones_sum([addresses, &length, &[0, 0, 0, 6], tcp]);
    assert_eq!(sum, 0, "the checksum of TCP");
    tcp[usize::from(tcp[12] >> 4) * 4..].to_vec()
}

proptest! {
    /// Goal: whatever the packet, a client takes each of its segments, and has the payload.
    #[test]
    fn clients_take_what_is_finished(
        is_v6: bool,
        options in prop::sample::select(vec![0usize, 12, 40]),
        segment in prop::sample::select(vec![0u16, 1, 536, 1448, 8948]),
        payload in prop::collection::vec(any::<u8>(), 1..4000),
    ) {
        let caught = headers(is_v6, options, 0x18);
        let frame = finish(&caught, segment, payload.len()).expect("headers");
        let segments = cut(&frame, &payload);
        let received: Vec<u8> = segments.iter().flat_map(|packet| receive(packet)).collect();
        prop_assert_eq!(received, payload);
    }

    /// Goal: any headers are survived, and what is refused is told.
    #[test]
    fn any_headers_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..130),
        version in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0x00]),
        payload: u16,
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        if let Ok(frame) = finish(&bytes, 1448, usize::from(payload)) {
            prop_assert_eq!(Flow::of(&frame.headers), Ok(frame.flow));
            prop_assert_eq!(frame.headers.len(), bytes.len());
        }
    }
}

/// Goal: it is known as whom the packet speaks, and to whom.
#[test]
fn the_flow_is_told() {
    let flow = Flow::of(&headers(false, 12, 0x10)).expect("headers");
    let of = |address: &str, port| SocketAddr::new(address.parse::<IpAddr>().expect("one"), port);
    assert_eq!(flow.source, of("198.18.0.1", 0x0801));
    assert_eq!(flow.destination, of("198.18.0.9", 0xc000));
    let flow = Flow::of(&headers(true, 0, 0x10)).expect("headers");
    assert_eq!(flow.source.port(), 0x0801);
    assert!(flow.source.is_ipv6() && flow.destination.is_ipv6());
}

/// Goal: what is no TCP segment with a payload is never sent.
#[test]
fn what_is_no_segment_is_refused() {
    let good = headers(false, 0, 0x10);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        finish(&bytes, 0, 100).map(|_| ())
    };
    assert_eq!(changed(0, 0x55), Err(HeaderError::Version(5)));
    assert_eq!(changed(9, 17), Err(HeaderError::Protocol(17)));
    assert_eq!(changed(6, 0x20), Err(HeaderError::Fragment));
    assert_eq!(changed(7, 1), Err(HeaderError::Fragment));
    assert_eq!(changed(0, 0x46), Err(HeaderError::Length(40)));
    assert_eq!(changed(32, 0x60), Err(HeaderError::Length(40)));
    assert_eq!(changed(32, 0x40), Err(HeaderError::Length(40)));
    let lengths = [0, 65_535 - 39];
    for payload_bytes in lengths {
        let refused = finish(&good, 0, payload_bytes).map(|_| ());
        let expected = HeaderError::Payload {
            payload_bytes,
            segment_bytes: 0,
        };
        assert_eq!(refused, Err(expected));
    }
    assert!(finish(&good, 0, 65_535 - 40).is_ok());
    let extension = {
        let mut bytes = headers(true, 0, 0x10);
        bytes[6] = 0;
        bytes
    };
    assert_eq!(
        finish(&extension, 0, 100).map(|_| ()),
        Err(HeaderError::Protocol(0))
    );
}

/// Goal: that a window was reduced is told by the first segment alone (CWR, RFC 3168).
#[test]
fn the_kernel_knows_of_a_reduced_window() {
    let frame = finish(&headers(false, 0, 0x98), 1448, 5000).expect("headers");
    assert_eq!(frame.offload[1], 0x81);
    let frame = finish(&headers(true, 0, 0x18), 1448, 5000).expect("headers");
    assert_eq!(frame.offload[1], 4);
    let frame = finish(&headers(true, 0, 0x98), 1448, 1448).expect("headers");
    assert_eq!(frame.offload[1], 0);
}
