//! Which node is told of a caught packet, and what of.

use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_names::HostId;
use crossdock_redirector::{AnnounceError, Redirector};
use crossdock_tunnel::{Caught, ConnectionId, Record, TunnelKey, open};
use crossdock_types::{Extent, Released};

const CONNECTION: ConnectionId = ConnectionId(1 << 16 | 5);
const KEY: TunnelKey = TunnelKey {
    id: 2,
    key: [1; 32],
};

fn extent(holder: u64, pin: u64, length_bytes: usize) -> Extent {
    Extent::new(holder, pin, length_bytes, &Released::default())
}

fn address(node: u8) -> SocketAddr {
    SocketAddr::from(([198, 18, 3, node], 7072))
}

fn redirector() -> Redirector {
    let mut redirector = Redirector::new(9, 90);
    redirector.connect(HostId(11), address(1), KEY, true);
    redirector.connect(HostId(12), address(2), KEY, true);
    redirector.open(CONNECTION);
    redirector
}

fn caught(offset: u64, payload_bytes: usize, acknowledged: u64) -> Caught {
    let mut headers = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    headers.extend([198, 18, 0, 1, 198, 18, 0, 9]);
    headers.extend([0, 80, 1, 0]);
    headers.extend(u32::try_from(offset).expect("small").to_be_bytes());
    headers.extend([0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    Caught {
        connection: CONNECTION,
        offset,
        acknowledged,
        payload_bytes,
        segment_bytes: 1448,
        headers,
    }
}

/// Who, and of each packet the sequence number and its payload's length.
type Told = (u64, Vec<(u32, usize)>);

fn told(redirector: &mut Redirector) -> Vec<Told> {
    let mut all = Vec::new();
    while let Some((HostId(holder), datagram)) = redirector.poll_datagram() {
        let opened = open(&datagram, |sender, _| (sender == 9).then_some(&KEY)).expect("ours");
        assert_eq!(opened.envelope.sender_boot, 90);
        let packets = opened.records().filter_map(|record| {
            let Record::Packet(packet) = record.expect("a record") else {
                return None;
            };
            let sequence = packet.headers[24..].first_chunk().copied();
            let sequence = u32::from_be_bytes(sequence.expect("headers of TCP"));
            Some((sequence, packet.parts.payload_bytes()))
        });
        assert_eq!(opened.envelope.receiver_boot, holder);
        all.push((holder, packets.collect()));
    }
    all
}

/// Goal: a packet of two nodes' bytes is one of each; what is caught until nothing is left goes in one
/// datagram.
#[test]
fn each_node_is_told_of_its_own() {
    let mut redirector = redirector();
    let head = Bytes::from_static(b"0123456789");
    assert_eq!(redirector.announce_literal(CONNECTION, head), Ok(None));
    let one = redirector.announce_extent(CONNECTION, extent(11, 1, 100));
    assert_eq!(one, Ok(Some(10)), "caught from the first dummy byte on");
    let two = redirector.announce_extent(CONNECTION, extent(12, 1, 100));
    assert_eq!(two, Ok(Some(10)));
    assert_eq!(redirector.caught(&caught(0, 150, 0)), Some(10));
    assert_eq!(redirector.caught(&caught(150, 60, 0)), Some(10));
    let expected = [(11, vec![(0, 110)]), (12, vec![(110, 40), (150, 60)])];
    assert_eq!(told(&mut redirector), expected);
    assert_eq!(redirector.figures().handed, 3);
    assert_eq!(redirector.figures().datagrams, 2);
    assert_eq!(redirector.caught(&caught(150, 60, 110)), Some(110));
}

/// Goal: where one node's bytes end and another's begin the first is told to pass the turn on, and the second to wait
/// for it; what is repeated, and what has nothing before it, waits for nobody.
#[test]
fn the_second_node_waits_for_its_turn() {
    let mut redirector = redirector();
    for holder in [11, 12] {
        let announced = redirector.announce_extent(CONNECTION, extent(holder, 1, 100));
        assert!(announced.is_ok());
    }
    let turns = |redirector: &mut Redirector| {
        let (mut passed, mut awaited) = (Vec::new(), Vec::new());
        while let Some((HostId(holder), datagram)) = redirector.poll_datagram() {
            let opened = open(&datagram, |_, _| Some(&KEY)).expect("ours");
            for record in opened.records() {
                match record.expect("a record") {
                    Record::Packet(packet) => awaited.push((holder, packet.turn)),
                    Record::Baton(baton) => passed.push((holder, baton.to, baton.turn)),
                    Record::Reply(reply) => panic!("over UDP: {reply:?}"),
                }
            }
        }
        (passed, awaited)
    };
    redirector.caught(&caught(0, 100, 0));
    redirector.caught(&caught(100, 60, 0));
    let (passed, awaited) = turns(&mut redirector);
    let [(11, to, turn)] = passed[..] else {
        panic!("host 11 passes one turn on: {passed:?}")
    };
    assert_eq!(to, address(2));
    assert_ne!(turn, 0);
    assert_eq!(awaited, [(11, 0), (12, turn)]);
    assert_eq!(redirector.figures().turns, 1);

    redirector.caught(&caught(100, 60, 0));
    redirector.caught(&caught(160, 20, 0));
    assert_eq!(turns(&mut redirector), (vec![], vec![(12, 0), (12, 0)]));
    let third = redirector.announce_extent(CONNECTION, extent(11, 2, 100));
    assert!(third.is_ok());
    redirector.caught(&caught(180, 20, 180));
    redirector.caught(&caught(200, 20, 200));
    assert_eq!(turns(&mut redirector), (vec![], vec![(11, 0), (12, 0)]));
}

/// Goal: what a process held that is gone is asked of nobody, not of the next start of it
/// either; and it is told whose bytes those were.
#[test]
fn pins_end_with_their_holder() {
    let mut redirector = redirector();
    let announced = redirector.announce_extent(CONNECTION, extent(11, 1, 100));
    assert_eq!(announced, Ok(Some(0)));
    let lost = redirector.disconnect(HostId(11));
    let [(CONNECTION, lost)] = &lost[..] else {
        panic!("{lost:?}")
    };
    redirector.connect(HostId(13), address(1), KEY, true);
    redirector.caught(&caught(0, 100, 0));
    assert_eq!(told(&mut redirector), []);
    assert_eq!(redirector.figures().unreachable, 1);
    assert_eq!(
        redirector.announce_extent(CONNECTION, extent(11, 2, 100)),
        Err(AnnounceError::Tunnel(HostId(11)))
    );
    let new = redirector.announce_extent(CONNECTION, extent(13, 1, 50));
    assert_eq!(new, Ok(Some(0)));
    redirector.caught(&caught(90, 60, 0));
    assert_eq!(told(&mut redirector), [(13, vec![(100, 50)])]);
    assert!(redirector.disconnect(HostId(12)).is_empty());
    redirector.replace(CONNECTION, lost, &extent(13, 5, 99));
    redirector.caught(&caught(0, 100, 0));
    assert_eq!(told(&mut redirector), [], "not what was lost");
    redirector.replace(CONNECTION, lost, &extent(13, 5, 100));
    redirector.caught(&caught(0, 100, 0));
    assert_eq!(
        told(&mut redirector),
        [(13, vec![(0, 100)])],
        "who has it now"
    );
    redirector.disconnect(HostId(13));
    redirector.caught(&caught(100, 50, 0));
    assert_eq!(told(&mut redirector), []);
}

/// Goal: literal bytes behind what a process has sent that is gone go with whom comes next, and do
/// not wait for it for ever.
#[test]
fn nothing_waits_for_who_is_gone() {
    for is_gone in [true, false] {
        let mut redirector = redirector();
        for _ in 0..2 {
            let announced = redirector.announce_extent(CONNECTION, extent(11, 1, 100));
            assert!(announced.is_ok());
            let head = Bytes::from_static(b"0123456789");
            assert!(redirector.announce_literal(CONNECTION, head).is_ok());
        }
        let next = redirector.announce_extent(CONNECTION, extent(12, 1, 90));
        assert!(next.is_ok());
        // The first extent is acknowledged, the second one is lost.
        redirector.acknowledged(CONNECTION, 100);
        let lost = match is_gone {
            true => redirector.disconnect(HostId(11)),
            false => redirector.lose(HostId(11), |pin| pin == 1),
        };
        let [(CONNECTION, lost)] = &lost[..] else {
            panic!("{lost:?}")
        };
        redirector.replace(CONNECTION, lost, &extent(12, 2, 100));
        redirector.caught(&caught(100, 10, 100));
        assert_eq!(told(&mut redirector), [(12, vec![(100, 10)])]);
        assert!(redirector.lose(HostId(12), |pin| pin == 9).is_empty());
    }
}

/// Goal: a gateway that fills packets itself, where no node can, does not take itself for one:
/// without nodes everything is relayed.
#[test]
fn a_gateway_is_no_node_of_its_own() {
    let mut redirector = redirector();
    assert_eq!(redirector.tunnels(), 2);
    redirector.connect(HostId(9), address(9), KEY, false);
    assert_eq!(redirector.tunnels(), 2);
    let own = redirector.announce_extent(CONNECTION, extent(9, 1, 100));
    assert_eq!(own, Ok(Some(0)));
    redirector.caught(&caught(0, 100, 0));
    assert_eq!(told(&mut redirector), [(9, vec![(0, 100)])]);
}

/// Goal: a tunnel that is closed and opened again goes on with its sequence: the node takes
/// no number twice. One of another key begins anew.
#[test]
fn a_tunnel_goes_on_where_it_was() {
    let mut redirector = redirector();
    let announced = redirector.announce_extent(CONNECTION, extent(11, 1, 100));
    assert!(announced.is_ok());
    let sequence = |redirector: &mut Redirector, key: &TunnelKey| {
        redirector.caught(&caught(0, 100, 0));
        let (_, datagram) = redirector.poll_datagram().expect("one");
        let opened = open(&datagram, |_, _| Some(key)).expect("ours");
        opened.envelope.sequence
    };
    assert_eq!(sequence(&mut redirector, &KEY), 1);
    redirector.disconnect(HostId(11));
    redirector.connect(HostId(11), address(1), KEY, true);
    assert_eq!(sequence(&mut redirector, &KEY), 2);
    redirector.disconnect(HostId(11));
    let other = TunnelKey {
        id: 2,
        key: [9; 32],
    };
    redirector.connect(HostId(11), address(1), other.clone(), true);
    assert_eq!(sequence(&mut redirector, &other), 1);
}

/// Goal: bytes that go by, and those behind an extent that the client has, are no reason to have
/// packets caught; an extent is, until all of it is acknowledged.
#[test]
fn extents_alone_are_to_be_caught() {
    let mut redirector = redirector();
    let released = Released::default();
    assert!(redirector.pass(CONNECTION, 10).is_ok());
    assert!(!redirector.has_extents(CONNECTION));
    assert!(redirector.is_under_way(CONNECTION));
    redirector.acknowledged(CONNECTION, 10);
    let one = Extent::new(11, 1, 100, &released);
    assert!(redirector.announce_extent(CONNECTION, one).is_ok());
    let behind = redirector.announce_literal(CONNECTION, Bytes::from_static(b"behind"));
    assert_eq!(behind, Ok(Some(10)));
    redirector.acknowledged(CONNECTION, 109);
    assert!(redirector.has_extents(CONNECTION));
    redirector.acknowledged(CONNECTION, 110);
    assert!(!redirector.has_extents(CONNECTION));
    assert!(redirector.is_under_way(CONNECTION));
    redirector.acknowledged(CONNECTION, 116);
    assert!(!redirector.is_under_way(CONNECTION));
}

/// Goal: of a connection that has ended nothing is sent, and its pins go back.
#[test]
fn the_end_of_a_connection_is_the_end() {
    let mut redirector = redirector();
    let released = Released::default();
    let one = Extent::new(11, 1, 100, &released);
    assert!(redirector.announce_extent(CONNECTION, one).is_ok());
    assert!(redirector.is_under_way(CONNECTION));
    assert_eq!(released.take(), []);
    redirector.end(CONNECTION);
    assert_eq!(released.take(), [(11, 1)]);
    assert!(!redirector.is_under_way(CONNECTION));
    assert_eq!(redirector.caught(&caught(0, 100, 0)), None);
    assert_eq!(told(&mut redirector), []);
    assert_eq!(redirector.figures().unsent, 1);
    let late = redirector.announce_literal(CONNECTION, Bytes::from_static(b"x"));
    assert_eq!(late, Err(AnnounceError::Ended));
}

/// Goal: more literal bytes than a datagram takes are several packets, none too long.
#[test]
fn long_literals_are_cut() {
    let mut redirector = redirector();
    let announced = redirector.announce_extent(CONNECTION, extent(11, 1, 10));
    assert!(announced.is_ok());
    let literal = Bytes::from(vec![7; 5000]);
    let announced = redirector.announce_literal(CONNECTION, literal);
    assert_eq!(announced, Ok(Some(0)));
    redirector.caught(&caught(0, 5010, 0));
    let told = told(&mut redirector);
    let packets: Vec<_> = told.iter().flat_map(|(_, packets)| packets).collect();
    let mut next = 0;
    for (sequence, length) in packets {
        assert_eq!(*sequence, next);
        next += u32::try_from(*length).expect("short");
    }
    assert_eq!(next, 5010);
}
