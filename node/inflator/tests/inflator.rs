//! Which datagrams a node obeys, and that packets of a flow go out whole and in order.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_inflator::{Ends, Filled, GatewayPin, Inflator, Read, Rights, Transport};
use crossdock_tunnel::{
    Baton, Envelope, Packet, Part, Parts, Record, Reply, Seal, TunnelKey, encode_turn,
};
use crossdock_types::Time;
use proptest::prelude::*;

const NOW: Time = Time(1_000_000);
const GATEWAY: u64 = 3;
const GATEWAY_BOOT: u64 = 30;
const NODE_BOOT: u64 = 40;
const KEY: TunnelKey = TunnelKey {
    id: 1,
    key: [5; 32],
};

fn ends(port: u16) -> Ends {
    Ends {
        transport: Transport::Tcp,
        source: SocketAddr::from(([198, 18, 0, 1], 80)),
        destination: SocketAddr::from(([198, 18, 0, 9], port)),
    }
}

fn inflator() -> Inflator {
    let mut inflator = Inflator::new(NODE_BOOT);
    let rights = Rights {
        boot: GATEWAY_BOOT,
        key: KEY,
        addresses: vec![ends(0).source.ip()],
    };
    inflator.admit(GATEWAY, rights);
    assert!(inflator.announce(GATEWAY, ends(1000)));
    assert!(inflator.announce(GATEWAY, ends(1001)));
    inflator
}

fn headers(ends: Ends, sequence: u32) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0];
    for address in [ends.source.ip(), ends.destination.ip()] {
        let std::net::IpAddr::V4(address) = address else {
            panic!("these are of version 4")
        };
        bytes.extend(address.octets());
    }
    bytes.extend(ends.source.port().to_be_bytes());
    bytes.extend(ends.destination.port().to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0x20, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes
}

fn envelope(sequence: u64) -> Envelope {
    Envelope {
        sender: GATEWAY,
        sender_boot: GATEWAY_BOOT,
        receiver_boot: NODE_BOOT,
        sequence,
    }
}

fn sealed(envelope: &Envelope, key: &TunnelKey, headers: &[u8], parts: &[Part<'_>]) -> Vec<u8> {
    let mut seal = Seal::new(envelope, key);
    let packet = Packet {
        headers,
        segment_bytes: 1448,
        turn: 0,
        parts: Parts::Given(parts),
    };
    assert!(seal.push(&Record::Packet(packet)).expect("a packet"));
    seal.finish()
}

const EXTENT: Part<'_> = Part::Extent {
    pin: 7,
    offset_bytes: 100,
    length_bytes: 50,
};

/// What lies under a pin.
fn held(pin: u64, at: u64) -> u8 {
    (pin.wrapping_mul(31) ^ at.wrapping_mul(7) ^ at >> 8).to_le_bytes()[0]
}

fn bytes_of(read: &Read) -> Bytes {
    let places = read.offset_bytes..read.offset_bytes + read.length_bytes as u64;
    places.map(|at| held(read.pin, at)).collect()
}

fn payload(filled: &Filled) -> Vec<u8> {
    filled.payload.iter().flatten().copied().collect()
}

/// Goal: a datagram of somebody else, of another boot of either side, or that came before
/// does nothing, and is counted; nor does a packet of a flow or an address that the gateway
/// has not announced.
#[test]
fn only_what_was_announced_is_sent() {
    let mut inflator = inflator();
    let usual = headers(ends(1000), 1);
    let other = TunnelKey {
        id: 1,
        key: [6; 32],
    };
    inflator.take(NOW, &sealed(&envelope(1), &other, &usual, &[EXTENT]));
    inflator.take(NOW, b"noise");
    let stranger = Envelope {
        sender: 4,
        ..envelope(1)
    };
    inflator.take(NOW, &sealed(&stranger, &KEY, &usual, &[EXTENT]));
    assert_eq!(inflator.figures().forged, 3);

    let dead_gateway = Envelope {
        sender_boot: 29,
        ..envelope(1)
    };
    let dead_node = Envelope {
        receiver_boot: 39,
        ..envelope(1)
    };
    inflator.take(NOW, &sealed(&dead_gateway, &KEY, &usual, &[EXTENT]));
    inflator.take(NOW, &sealed(&dead_node, &KEY, &usual, &[EXTENT]));
    assert_eq!(inflator.figures().stale, 2);
    assert_eq!(inflator.poll_read(), None);

    let good = sealed(&envelope(1), &KEY, &usual, &[EXTENT]);
    inflator.take(NOW, &good);
    assert!(inflator.poll_read().is_some());
    inflator.take(NOW, &good);
    assert_eq!(inflator.figures().stale, 3, "a datagram counts once");

    let unknown = headers(ends(1002), 1);
    inflator.take(NOW, &sealed(&envelope(2), &KEY, &unknown, &[EXTENT]));
    assert_eq!(inflator.figures().refused, 1);
    let told = GatewayPin {
        gateway: GATEWAY,
        pin: 7,
    };
    assert_eq!(inflator.poll_unfilled(), Some(told), "somebody else has to");
    assert_eq!(inflator.poll_unfilled(), None);
    let foreign = Ends {
        source: SocketAddr::from(([198, 18, 0, 2], 80)),
        ..ends(1000)
    };
    assert!(!inflator.announce(GATEWAY, foreign), "not its address");
    assert!(!inflator.announce(4, ends(1002)), "not a gateway");
    assert_eq!(inflator.poll_read(), None);
    assert_eq!(inflator.poll_filled(), None);
}

/// Goal: a packet whose bytes come early waits for those before it, and goes along with
/// them.
#[test]
fn packets_of_a_flow_stay_in_order() {
    let mut inflator = inflator();
    for (number, sequence) in [(1, 1000), (2, 1050)] {
        let headers = headers(ends(1000), sequence);
        inflator.take(NOW, &sealed(&envelope(number), &KEY, &headers, &[EXTENT]));
    }
    let other = headers(ends(1001), 1);
    inflator.take(
        NOW,
        &sealed(&envelope(3), &KEY, &other, &[Part::Literal(b"head")]),
    );
    let first = inflator.poll_read().expect("a read");
    let second = inflator.poll_read().expect("a read");
    inflator.on_read(&second, Some(bytes_of(&second).into()));
    let filled = inflator.poll_filled().expect("of the other flow");
    assert_eq!(payload(&filled), b"head");
    assert_eq!(inflator.poll_filled(), None, "the first is missing");
    inflator.on_read(&first, Some(bytes_of(&first).into()));
    let both = inflator.poll_filled().expect("two as one");
    assert_eq!(payload(&both).len(), 100);
    assert_eq!(inflator.figures().merged, 1);
    assert_eq!(inflator.figures().injected_bytes, 100);
    assert_eq!(inflator.poll_filled(), None);
}

/// Goal: what cannot be read, or comes short, is not sent, the gateway is told of the pin,
/// and the next packet goes on its way.
#[test]
fn what_cannot_be_read_is_not_sent() {
    for bytes in [None, Some(Bytes::from_static(b"short"))] {
        let mut inflator = inflator();
        let (first, second) = (headers(ends(1000), 1000), headers(ends(1000), 1050));
        inflator.take(NOW, &sealed(&envelope(1), &KEY, &first, &[EXTENT]));
        inflator.take(
            NOW,
            &sealed(&envelope(2), &KEY, &second, &[Part::Literal(b"tail")]),
        );
        let read = inflator.poll_read().expect("a read");
        inflator.on_read(&read, bytes.map(Into::into));
        let filled = inflator.poll_filled().expect("the second");
        assert_eq!(payload(&filled), b"tail");
        let told = GatewayPin {
            gateway: GATEWAY,
            pin: 7,
        };
        assert_eq!(inflator.poll_unfilled(), Some(told));
        assert_eq!(inflator.poll_unfilled(), None);
        assert_eq!(inflator.figures().unfilled, 1);
    }
}

fn told(records: &[Record<'_>], sequence: u64) -> Vec<u8> {
    let mut seal = Seal::new(&envelope(sequence), &KEY);
    for record in records {
        assert_eq!(seal.push(record), Ok(true));
    }
    seal.finish()
}

/// Goal: a packet whose turn has not come waits, for so long and no longer; a turn that came before
/// it counts, once.
#[test]
fn packets_wait_for_their_turn() {
    let headers = headers(ends(1000), 1000);
    let parts = [Part::Literal(b"bytes")];
    let packet = |turn| {
        Record::Packet(Packet {
            headers: &headers,
            segment_bytes: 1448,
            turn,
            parts: Parts::Given(&parts),
        })
    };
    let mut inflator = inflator();
    inflator.take(NOW, &told(&[packet(5)], 1));
    assert_eq!(inflator.poll_filled(), None);
    inflator.take(NOW, &encode_turn(6));
    assert_eq!(inflator.poll_filled(), None, "another's");
    inflator.take(NOW, &encode_turn(5));
    assert!(inflator.poll_filled().is_some());

    inflator.take(NOW, &told(&[packet(6)], 2));
    assert!(inflator.poll_filled().is_some(), "it has come before");
    inflator.take(NOW, &told(&[packet(6)], 3));
    assert_eq!(inflator.poll_filled(), None);
    let deadline = inflator.poll_timeout().expect("it waits");
    inflator.handle_timeout(NOW);
    assert_eq!(inflator.poll_filled(), None);
    inflator.handle_timeout(NOW + Duration::from_millis(100));
    assert!(inflator.poll_filled().is_some());
    assert!(deadline <= NOW + Duration::from_millis(100));
    assert_eq!(inflator.poll_timeout(), None);
    assert_eq!(inflator.figures().untold, 1);
}

/// Goal: the turn is passed on behind the packets before it, and not earlier; nor for a flow
/// that the gateway has not announced.
#[test]
fn a_turn_is_passed_on_behind_what_is_before_it() {
    let (known, unknown) = (headers(ends(1000), 1000), headers(ends(1002), 1000));
    let to = SocketAddr::from(([198, 18, 3, 2], 7072));
    let baton = |headers| {
        Record::Baton(Baton {
            turn: 9,
            to,
            headers,
        })
    };
    let mut inflator = inflator();
    inflator.take(NOW, &sealed(&envelope(1), &KEY, &known, &[EXTENT]));
    inflator.take(NOW, &told(&[baton(&known), baton(&unknown)], 2));
    assert_eq!(inflator.poll_filled(), None);
    assert_eq!(inflator.poll_turn(), None);
    let read = inflator.poll_read().expect("a read");
    inflator.on_read(&read, Some(bytes_of(&read).into()));
    assert!(inflator.poll_filled().is_some());
    assert_eq!(inflator.poll_filled(), None);
    assert_eq!(inflator.poll_turn(), Some((to, encode_turn(9).to_vec())));
    assert_eq!(inflator.poll_turn(), None);
    assert_eq!(inflator.figures().refused, 1);
}

/// Goal: a packet that cannot be filled keeps neither the turn behind it nor what follows.
#[test]
fn what_is_lost_holds_nothing_up() {
    let mut inflator = inflator();
    let headers = headers(ends(1000), 1000);
    let to = SocketAddr::from(([198, 18, 3, 2], 7072));
    let baton = Record::Baton(Baton {
        turn: 9,
        to,
        headers: &headers,
    });
    inflator.take(NOW, &sealed(&envelope(1), &KEY, &headers, &[EXTENT]));
    inflator.take(NOW, &told(&[baton], 2));
    let tail = [Part::Literal(b"tail")];
    inflator.take(NOW, &sealed(&envelope(3), &KEY, &headers, &tail));
    let read = inflator.poll_read().expect("a read");
    inflator.on_read(&read, None);
    let filled = inflator.poll_filled().expect("what follows");
    assert_eq!(payload(&filled), b"tail");
    assert_eq!(inflator.poll_turn(), Some((to, encode_turn(9).to_vec())));
    assert_eq!(inflator.poll_filled(), None);
}

/// Goal: nothing of a flow that has ended, or of a gateway that is gone, goes out, also if its
/// bytes come later.
#[test]
fn the_end_of_a_flow_is_the_end() {
    for is_gateway in [false, true] {
        let mut inflator = inflator();
        let headers = headers(ends(1000), 1000);
        inflator.take(NOW, &sealed(&envelope(1), &KEY, &headers, &[EXTENT]));
        let read = inflator.poll_read().expect("a read");
        match is_gateway {
            true => inflator.dismiss(GATEWAY),
            false => inflator.withdraw(GATEWAY, ends(1000)),
        }
        inflator.on_read(&read, Some(bytes_of(&read).into()));
        assert_eq!(inflator.poll_filled(), None);
    }
}

/// Goal: a gateway that hands more than a node can hold is bounded; what is beyond is
/// dropped and counted.
#[test]
fn what_waits_is_bounded() {
    let mut inflator = inflator();
    let long = Part::Extent {
        pin: 1,
        offset_bytes: 0,
        length_bytes: 60_000,
    };
    for sequence in 1..=5000_u32 {
        let headers = headers(ends(1000), sequence * 60_000);
        inflator.take(
            NOW,
            &sealed(&envelope(sequence.into()), &KEY, &headers, &[long]),
        );
    }
    let reads = std::iter::from_fn(|| inflator.poll_read()).count();
    assert_eq!(reads, (256 << 20) / 60_000);
    assert_eq!(inflator.figures().overflowed, 5000 - reads as u64);
}

/// A part of a packet: literal, or an extent's length and pin.
fn part() -> impl Strategy<Value = (bool, u16, u64)> {
    (any::<bool>(), 1_u16..300, 1_u64..5)
}

proptest! {
    /// Goal: however packets of two flows are made, and in whatever order their bytes come,
    /// each flow's payload is what it should be, in order, and packets that were merged
    /// go on where the one before them ended.
    #[test]
    fn payloads_are_whole(
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(part(), 1..4)), 1..30),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let mut inflator = inflator();
        let (mut expected, mut at) = ([Vec::new(), Vec::new()], [1_u32 << 31; 2]);
        for (number, (is_second, parts)) in (1_u64..).zip(&packets) {
            let flow = usize::from(*is_second);
            let ports = [1000, 1001];
            let literal = vec![number.to_le_bytes()[0]; 300];
            let parts: Vec<Part<'_>> = parts.iter().map(|&(is_literal, length, pin)| {
                let length_bytes = length;
                match is_literal {
                    true => Part::Literal(&literal[..usize::from(length)]),
                    false => Part::Extent { pin, offset_bytes: u64::from(at[flow]), length_bytes },
                }
            }).collect();
            let headers = headers(ends(ports[flow]), at[flow]);
            inflator.take(NOW, &sealed(&envelope(number), &KEY, &headers, &parts));
            for part in &parts {
                match *part {
                    Part::Literal(bytes) => expected[flow].extend(bytes),
                    Part::Extent { pin, offset_bytes, length_bytes } => {
                        let places = offset_bytes..offset_bytes + u64::from(length_bytes);
                        expected[flow].extend(places.map(|at| held(pin, at)));
                    }
                }
            }
            let length: usize = parts.iter().map(Part::length_bytes).sum();
            at[flow] = at[flow].wrapping_add(u32::try_from(length).expect("short"));
        }
        let mut reads: Vec<Read> = std::iter::from_fn(|| inflator.poll_read()).collect();
        let (mut came, mut order) = ([Vec::new(), Vec::new()], order.into_iter());
        loop {
            while let Some(filled) = inflator.poll_filled() {
                let flow = usize::from(filled.frame.flow.destination.port() - 1000);
                let tcp = &filled.frame.headers[20..];
                let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
                let place = sequence.wrapping_sub(1 << 31);
                prop_assert_eq!(usize::try_from(place).expect("small"), came[flow].len());
                came[flow].extend(payload(&filled));
            }
            if reads.is_empty() {
                break;
            }
            let next = order.next().map_or(0, |index| index.index(reads.len()));
            let read = reads.swap_remove(next);
            inflator.on_read(&read, Some(bytes_of(&read).into()));
        }
        prop_assert_eq!(came, expected);
    }
}

fn over_udp(port: u16) -> Ends {
    Ends {
        transport: Transport::Udp,
        ..ends(port)
    }
}

fn sealed_reply(sequence: u64, ends: Ends, parts: &[Part<'_>]) -> Vec<u8> {
    let mut seal = Seal::new(&envelope(sequence), &KEY);
    let reply = Reply {
        source: ends.source,
        destination: ends.destination,
        identification: 0x1234,
        mtu: 1500,
        parts: Parts::Given(parts),
    };
    assert_eq!(seal.push(&Record::Reply(reply)), Ok(true));
    seal.finish()
}

/// Goal: a reply over UDP goes out as its datagram's fragments, and its pin is needed no more;
/// with an unknown pin nothing goes.
#[test]
fn a_reply_goes_out_in_fragments() {
    let mut inflator = inflator();
    assert!(inflator.announce(GATEWAY, over_udp(1000)));
    let long = Part::Extent {
        pin: 9,
        offset_bytes: 100,
        length_bytes: 4096,
    };
    let parts = [Part::Literal(b"head"), long, Part::Literal(b"pad")];
    inflator.take(NOW, &sealed_reply(1, over_udp(1000), &parts));
    let read = inflator.poll_read().expect("a read");
    assert_eq!(inflator.poll_filled(), None);
    assert_eq!(inflator.poll_spent(), None, "not sent");
    let bytes = bytes_of(&read);
    inflator.on_read(&read, Some(bytes.clone().into()));
    let fragments: Vec<Filled> = std::iter::from_fn(|| inflator.poll_filled()).collect();
    let lengths: Vec<usize> = fragments.iter().map(|it| it.frame.headers.len()).collect();
    assert_eq!(lengths, [28], "cut by the kernel");
    let all: Vec<u8> = fragments.iter().flat_map(payload).collect();
    assert_eq!(all, [b"head", &bytes[..], b"pad"].concat());
    let spent = GatewayPin {
        gateway: GATEWAY,
        pin: 9,
    };
    assert_eq!(inflator.poll_spent(), Some(spent));
    assert_eq!(inflator.poll_spent(), None);
    let figures = inflator.figures();
    assert_eq!((figures.replies, figures.fragments), (1, 3));
    assert_eq!((figures.replied_bytes, figures.injected_bytes), (4096, 0));

    inflator.take(NOW, &sealed_reply(2, over_udp(1000), &parts));
    let read = inflator.poll_read().expect("a read");
    inflator.on_read(&read, None);
    assert_eq!(inflator.poll_filled(), None);
    assert_eq!(inflator.poll_spent(), None);
    assert_eq!(inflator.figures().unfilled, 1);
    assert!(inflator.poll_unfilled().is_some());
}

/// Goal: what is announced for connections may not be said over UDP, nor the other way around;
/// nor does a datagram count twice.
#[test]
fn a_reply_is_announced_for_udp() {
    let mut inflator = inflator();
    inflator.take(NOW, &sealed_reply(1, over_udp(1000), &[EXTENT]));
    assert_eq!(inflator.figures().refused, 1, "announced for TCP only");
    assert!(inflator.announce(GATEWAY, over_udp(1002)));
    let connection = headers(ends(1002), 1);
    inflator.take(NOW, &sealed(&envelope(2), &KEY, &connection, &[EXTENT]));
    assert_eq!(inflator.figures().refused, 2, "announced for UDP only");
    assert_eq!(inflator.poll_read(), None);

    let good = sealed_reply(3, over_udp(1002), &[EXTENT]);
    inflator.take(NOW, &good);
    inflator.take(NOW, &good);
    assert_eq!(inflator.figures().stale, 1);
    assert!(inflator.poll_read().is_some());
    assert_eq!(inflator.poll_read(), None);

    let foreign = Ends {
        source: SocketAddr::from(([198, 18, 0, 2], 2049)),
        ..over_udp(1002)
    };
    assert!(!inflator.announce(GATEWAY, foreign), "not its address");
    inflator.take(NOW, &sealed_reply(4, foreign, &[EXTENT]));
    assert_eq!(inflator.figures().refused, 3);
    inflator.withdraw(GATEWAY, over_udp(1002));
    inflator.take(NOW, &sealed_reply(5, over_udp(1002), &[EXTENT]));
    assert_eq!(inflator.figures().refused, 4, "withdrawn");
    assert_eq!(inflator.poll_filled(), None);
}
