//! Packets that a gateway has a node fill and send: target and seeds.

use std::net::Ipv4Addr;

use bytes::Bytes;
use crossdock_checksum::{MAC_BYTES, mac};
use crossdock_inflator::{Head, finish, packets};
use crossdock_tunnel::{
    Baton, Envelope, Flow, PACKET_ROOM_BYTES, Packet, Part, Parts, Record, Reply, Seal, TunnelKey,
    open,
};
use crossdock_types::Payload;

const KEY: TunnelKey = TunnelKey {
    id: 1,
    key: [1; 32],
};
const ENVELOPE: Envelope = Envelope {
    sender: 2,
    sender_boot: 3,
    receiver_boot: 4,
    sequence: 5,
};

/// Opens any bytes, and the same as records that the key's owner has sealed; finishes the
/// headers of each packet, and cuts each reply.
///
/// # Panics
/// If a record could not be sent again as it was read, finished headers are of another
/// connection, or a reply's packets are not all of it.
pub fn tunnel(input: &[u8]) {
    if let Ok(opened) = open(input, |_, _| Some(&KEY)) {
        assert!(opened.records().count() <= input.len());
    }
    let mut bytes = Seal::new(&ENVELOPE, &KEY).finish();
    bytes.truncate(bytes.len() - MAC_BYTES);
    bytes.extend(&input[..input.len().min(PACKET_ROOM_BYTES)]);
    let made = mac(&KEY.key, &bytes);
    bytes.extend(made);
    let opened = open(&bytes, |_, _| Some(&KEY)).expect("it is sealed");
    assert_eq!(opened.envelope, ENVELOPE);
    let mut again = Seal::new(&ENVELOPE, &KEY);
    for record in opened.records().map_while(Result::ok) {
        assert_eq!(again.push(&record), Ok(true), "a record changed");
        match record {
            Record::Packet(packet) => finished(&packet),
            Record::Reply(reply) => cut(&reply),
            Record::Baton(_) => {}
        }
    }
    let again = again.finish();
    assert!(bytes.starts_with(&again[..again.len() - MAC_BYTES]));
}

fn finished(packet: &Packet<'_>) {
    let payload_bytes = packet.parts.payload_bytes();
    if let Ok(frame) = finish(packet.headers, packet.segment_bytes, payload_bytes) {
        assert_eq!(Flow::of(packet.headers), Ok(frame.flow));
        assert_eq!(frame.headers.len(), packet.headers.len());
    }
}

/// What a node would send of a reply is all of it, in packets that are not too long, or are cut into such.
fn cut(reply: &Reply<'_>) {
    let mut payload = Payload::new();
    payload.push_zeros(reply.parts.payload_bytes());
    let head = Head {
        source: reply.source,
        destination: reply.destination,
        identification: reply.identification,
        mtu: reply.mtu,
    };
    let packets = packets(&head, &payload).expect("a reply is a datagram");
    let mut sent_bytes = 0;
    for packet in packets.filled {
        let bytes: usize = packet.payload.iter().map(Bytes::len).sum();
        let packet_bytes = match packet.frame.offload {
            [1, 3, _, _, low, high, ..] => {
                packet.frame.flow.ip_bytes + usize::from(u16::from_le_bytes([low, high]))
            }
            _ => packet.frame.headers.len() + bytes,
        };
        assert!(packet_bytes <= usize::from(reply.mtu));
        sent_bytes += bytes;
    }
    assert_eq!(sent_bytes, payload.len());
}

/// Records as they lie in a datagram.
pub(crate) fn tunnel_seeds() -> Vec<Vec<u8>> {
    let ipv4 = {
        let mut headers = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
        headers.extend([198, 18, 0, 1, 198, 18, 0, 2]);
        headers
    };
    let ipv6 = {
        let mut headers = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        headers.extend([0xfd; 32]);
        headers
    };
    let tcp = [
        0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
    ];
    let extent = Part::Extent {
        pin: 7,
        offset_bytes: 1 << 20,
        length_bytes: 4000,
    };
    let parts = [Part::Literal(b"HTTP/1.1 200 OK\r\n\r\n"), extent];
    let ends = ["198.18.0.1:2049", "[fd00::1]:2049"];
    let seeds = [(ipv4, ends[0]), (ipv6, ends[1])].map(|(mut headers, end)| {
        headers.extend(tcp);
        let packet = Packet {
            headers: &headers,
            segment_bytes: 1448,
            turn: 9,
            parts: Parts::Given(&parts),
        };
        let baton = Baton {
            turn: 9,
            to: (Ipv4Addr::new(198, 18, 0, 3), 7072).into(),
            headers: &headers,
        };
        let end = end.parse().expect("an address");
        let reply = Reply {
            source: end,
            destination: end,
            identification: 7,
            mtu: 1500,
            parts: Parts::Given(&parts),
        };
        let empty = Seal::new(&ENVELOPE, &KEY).finish().len() - MAC_BYTES;
        let mut seal = Seal::new(&ENVELOPE, &KEY);
        assert_eq!(seal.push(&Record::Packet(packet)), Ok(true));
        assert_eq!(seal.push(&Record::Baton(baton)), Ok(true));
        assert_eq!(seal.push(&Record::Reply(reply)), Ok(true));
        let bytes = seal.finish();
        bytes[empty..bytes.len() - MAC_BYTES].to_vec()
    });
    seeds.to_vec()
}
