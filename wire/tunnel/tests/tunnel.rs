//! Datagrams of the tunnel: what is put in comes out, and nothing else is taken.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crossdock_checksum::mac;
use crossdock_tunnel::{
    Baton, DATAGRAM_BYTES_MAX, Envelope, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, Packet, Part, Parts,
    REPLY_BYTES_MAX, REPLY_ROOM_BYTES, Record, RecordError, ReplayWindow, Reply, Seal, TunnelError,
    TunnelKey, decode_turn, encode_turn, open,
};
use proptest::prelude::*;

const KEY: TunnelKey = TunnelKey {
    id: 3,
    key: [7; 32],
};
const ENVELOPE: Envelope = Envelope {
    sender: 11,
    sender_boot: 12,
    receiver_boot: 13,
    sequence: 1,
};
const HEADERS: [u8; 40] = [0x45; 40];

fn the_key(sender: u64, id: u8) -> Option<&'static TunnelKey> {
    (sender == ENVELOPE.sender && id == KEY.id).then_some(&KEY)
}

fn packet<'a>(parts: &'a [Part<'a>]) -> Record<'a> {
    with_headers(&HEADERS, parts)
}

fn with_headers<'a>(headers: &'a [u8], parts: &'a [Part<'a>]) -> Record<'a> {
    Record::Packet(Packet {
        headers,
        segment_bytes: 1448,
        turn: 0x0102_0304_0506_0708,
        parts: Parts::Given(parts),
    })
}

const BATON: Record<'static> = Record::Baton(Baton {
    turn: 3,
    to: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 7)), 7072),
    headers: &HEADERS,
});

/// Over IPv4.
fn reply<'a>(parts: &'a [Part<'a>]) -> Reply<'a> {
    Reply {
        source: SocketAddr::from(([198, 18, 0, 1], 2049)),
        destination: SocketAddr::from(([198, 18, 0, 9], 700)),
        identification: 0x0102_0304,
        mtu: 1500,
        parts: Parts::Given(parts),
    }
}

fn sealed(records: &[Record<'_>]) -> Vec<u8> {
    let mut seal = Seal::new(&ENVELOPE, &KEY);
    for record in records {
        assert_eq!(seal.push(record), Ok(true));
    }
    seal.finish()
}

const EXTENT: Part<'_> = Part::Extent {
    pin: 5,
    offset_bytes: 1 << 40,
    length_bytes: 50_000,
};

/// Goal: packets and turns come out as they were put in, in order.
#[test]
fn records_come_out_as_they_went_in() {
    let parts = [
        Part::Literal(b"HTTP/1.1 200 OK\r\n\r\n"),
        EXTENT,
        Part::Literal(b"x"),
    ];
    let over_ipv6 = Reply {
        source: "[fd00::1]:2049".parse().expect("an address"),
        destination: "[fd00::9]:700".parse().expect("an address"),
        ..reply(&parts)
    };
    let records = [
        packet(&parts),
        BATON,
        Record::Reply(reply(&parts)),
        Record::Reply(over_ipv6),
        packet(&parts[1..2]),
    ];
    let bytes = sealed(&records);
    let opened = open(&bytes, the_key).expect("authentic");
    assert_eq!(opened.envelope, ENVELOPE);
    let taken: Result<Vec<_>, _> = opened.records().collect();
    assert_eq!(taken.as_deref(), Ok(&records[..]));
    assert_eq!(Parts::Given(&parts).payload_bytes(), 19 + 50_000 + 1);
}

/// Goal: the layout is fixed: hosts of different builds understand each other.
#[test]
fn the_layout_is_fixed() {
    let parts = [Part::Literal(b"ab"), EXTENT];
    let bytes = sealed(&[packet(&parts), BATON, Record::Reply(reply(&parts[..1]))]);
    let mut expected = b"XDTU\x02\x03\x00\x00".to_vec();
    for number in [11u64, 12, 13, 1] {
        expected.extend(number.to_be_bytes());
    }
    expected.extend([1, 40, 0x05, 0xa8, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
    expected.extend(HEADERS);
    expected.extend([1, 0, 2, b'a', b'b', 2, 0xc3, 0x50]);
    expected.extend(5u64.to_be_bytes());
    expected.extend((1u64 << 40).to_be_bytes());
    expected.extend([2, 40, 0, 0, 0, 0, 0, 0, 0, 3, 0x1b, 0xa0]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 7]);
    expected.extend(HEADERS);
    expected.extend([3, 1, 0x05, 0xdc, 1, 2, 3, 4, 0x08, 0x01, 0x02, 0xbc]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 1]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 9]);
    expected.extend([1, 0, 2, b'a', b'b']);
    assert_eq!(bytes[..bytes.len() - 16], expected);
}

/// Goal: a turn that is passed on is understood, and nothing else is one.
#[test]
fn a_turn_is_passed_on() {
    let bytes = encode_turn(0x0102_0304_0506_0708);
    assert_eq!(bytes, *b"XDTT\x01\x02\x03\x04\x05\x06\x07\x08");
    assert_eq!(decode_turn(&bytes), Some(0x0102_0304_0506_0708));
    assert_eq!(decode_turn(&bytes[..11]), None);
    assert_eq!(decode_turn(b"XDTU00000000"), None);
}

/// Goal: no bit can be changed, and no other key is as good (SPIRAL's tunnel would be an
/// oracle for forged packets).
#[test]
fn every_bit_is_protected() {
    let bytes = sealed(&[packet(&[EXTENT])]);
    for bit in 0..bytes.len() * 8 {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&forged, the_key).is_err(), "bit {bit}");
        // Also for one who has a key under every name.
        let any = |_, id| (id == KEY.id).then_some(&KEY);
        assert!(open(&forged, any).is_err(), "bit {bit}");
    }
    let other = TunnelKey {
        id: 3,
        key: [8; 32],
    };
    let sender = ENVELOPE.sender;
    let refused = open(&bytes, |_, _| Some(&other)).map(|_| ());
    assert_eq!(refused, Err(TunnelError::Forged { sender }));
    let refused = open(&bytes, |_, _| None).map(|_| ());
    assert_eq!(refused, Err(TunnelError::Key { sender, key_id: 3 }));
    let refused = open(&bytes[..55], the_key).map(|_| ());
    assert_eq!(refused, Err(TunnelError::Length(55)));
}

/// Goal: a datagram is never longer than its bound, and takes what fits to the byte.
#[test]
fn what_does_not_fit_is_for_the_next_one() {
    let mut seal = Seal::new(&ENVELOPE, &KEY);
    assert!(seal.is_empty());
    let parts = [EXTENT];
    let count = (1..).find(|_| seal.push(&packet(&parts)) == Ok(false));
    assert_eq!(count, Some(19), "18 of 72 bytes in 1344");
    assert!(!seal.is_empty());
    assert_eq!(seal.finish().len(), 40 + 18 * 72 + 16);

    let literal = [0; DATAGRAM_BYTES_MAX];
    for (length, fits) in [(1344 - 56, true), (1344 - 55, false)] {
        let parts = [Part::Literal(&literal[..length])];
        let mut seal = Seal::new(&ENVELOPE, &KEY);
        assert_eq!(seal.push(&packet(&parts)), Ok(fits));
        assert_eq!(seal.finish().len() == DATAGRAM_BYTES_MAX, fits);
    }
}

/// Goal: what could not be sent is not taken by either side.
#[test]
fn what_is_no_packet_is_refused() {
    let long = [0; HEADERS_BYTES_MAX + 1];
    let mut seal = Seal::new(&ENVELOPE, &KEY);
    let parts = [EXTENT];
    for headers in [&long[..], &[]] {
        let packet = with_headers(headers, &parts);
        let length = headers.len();
        assert_eq!(seal.push(&packet), Err(RecordError::Headers(length)));
    }
    assert_eq!(seal.push(&packet(&[])), Err(RecordError::Parts(0)));
    assert_eq!(
        seal.push(&packet(&[EXTENT, Part::Literal(b"")])),
        Err(RecordError::Parts(2))
    );
    let refused = seal.push(&packet(&[EXTENT; 2]));
    assert_eq!(refused, Err(RecordError::Payload(100_000)));
    let most = u16::try_from(PAYLOAD_BYTES_MAX).expect("a length");
    let long = Part::Extent {
        pin: 1,
        offset_bytes: 0,
        length_bytes: most,
    };
    let parts = [long, Part::Literal(b"x")];
    assert_eq!(
        Seal::new(&ENVELOPE, &KEY).push(&packet(&parts[..1])),
        Ok(true)
    );
    let refused = seal.push(&packet(&parts));
    assert_eq!(refused, Err(RecordError::Payload(PAYLOAD_BYTES_MAX + 1)));
    let one = [Part::Literal(b"x"); 256];
    assert_eq!(seal.push(&packet(&one)), Err(RecordError::Parts(256)));
    assert!(seal.is_empty());
}

/// Goal: a reply that no datagram of UDP could be is not taken by either side, and one takes as
/// many literal bytes as it says.
#[test]
fn what_is_no_reply_is_refused() {
    let parts = [EXTENT];
    let usual = reply(&parts);
    let ipv6: SocketAddr = "[fd00::1]:1".parse().expect("an address");
    let mut seal = Seal::new(&ENVELOPE, &KEY);
    let mut push = |reply| seal.push(&Record::Reply(reply));
    let mixed = Reply {
        source: ipv6,
        ..usual
    };
    assert_eq!(push(mixed), Err(RecordError::Versions));
    let narrow = Reply { mtu: 67, ..usual };
    assert_eq!(push(narrow), Err(RecordError::Mtu(67)));
    let narrow = Reply {
        source: ipv6,
        destination: ipv6,
        mtu: 1279,
        ..usual
    };
    assert_eq!(push(narrow), Err(RecordError::Mtu(1279)));
    assert_eq!(push(reply(&[])), Err(RecordError::Parts(0)));
    let refused = push(reply(&[EXTENT; 2]));
    assert_eq!(refused, Err(RecordError::Payload(100_000)));
    let longest = |length_bytes| Part::Extent {
        pin: 1,
        offset_bytes: 0,
        length_bytes,
    };
    let most = u16::try_from(REPLY_BYTES_MAX).expect("a length");
    let (too_long, most) = ([longest(most + 1)], [longest(most)]);
    let refused = push(reply(&too_long));
    assert_eq!(refused, Err(RecordError::Payload(REPLY_BYTES_MAX + 1)));
    assert_eq!(push(reply(&most)), Ok(true));

    let literal = [0; DATAGRAM_BYTES_MAX];
    for (length, fits) in [(REPLY_ROOM_BYTES - 3, true), (REPLY_ROOM_BYTES - 2, false)] {
        let mut seal = Seal::new(&ENVELOPE, &KEY);
        let parts = [Part::Literal(&literal[..length])];
        assert_eq!(seal.push(&Record::Reply(reply(&parts))), Ok(fits));
    }
}

/// Goal: each number is taken once, in any order within the window.
#[test]
fn a_datagram_is_taken_once() {
    let mut window = ReplayWindow::default();
    assert!(!window.admit(0));
    for number in [5, 3, 1024, 1028, 6] {
        assert!(window.admit(number), "{number}");
        assert!(!window.admit(number), "{number}");
    }
    // 5 is the oldest of the 1024 up to 1028.
    assert!(!window.admit(4));
    assert!(window.admit(u64::MAX));
    assert!(!window.admit(1029));
    assert!(window.admit(u64::MAX - 1023));
    assert!(!window.admit(u64::MAX - 1024));
}

proptest! {
    /// Goal: against a plain set: no number twice, and every new one within the window.
    #[test]
    fn the_window_is_as_a_set(numbers in prop::collection::vec(0u64..5000, 0..400)) {
        let mut window = ReplayWindow::default();
        let mut seen = BTreeSet::new();
        for number in numbers {
            let newest = seen.last().copied().unwrap_or(0);
            let expected = number > 0 && number + 1024 > newest && !seen.contains(&number);
            prop_assert_eq!(window.admit(number), expected, "{}", number);
            if expected {
                seen.insert(number);
            }
        }
    }

    /// Goal: records of any bytes, well sealed, are survived; what is read of them can be
    /// sent again as it is.
    #[test]
    fn any_records_are_survived(records in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = Seal::new(&ENVELOPE, &KEY).finish();
        bytes.truncate(40);
        bytes.extend(records);
        let mut again = Seal::new(&ENVELOPE, &KEY);
        let made = mac(&KEY.key, &bytes);
        bytes.extend(made);
        let opened = open(&bytes, the_key).expect("authentic");
        let mut length = 40;
        for packet in opened.records().map_while(Result::ok) {
            prop_assert_eq!(again.push(&packet), Ok(true));
        }
        let again = again.finish();
        length = length.max(again.len() - 16);
        prop_assert_eq!(&again[40..length], &bytes[40..length]);
    }

    /// Goal: any bytes are survived.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        prop_assert!(open(&bytes, |_, _| Some(&KEY)).is_err());
    }
}
