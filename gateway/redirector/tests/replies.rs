//! Replies over UDP: what nodes are told, and what becomes of their pins.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::HostId;
use crossdock_redirector::{Redirector, Replies, ReplyEnds, ReplyError};
use crossdock_tunnel::{Part, Record, TunnelKey, open};
use crossdock_types::{Extent, Payload, Released, Time};

const HOLDER: HostId = HostId(7);
const OTHER: HostId = HostId(8);
const KEY: TunnelKey = TunnelKey {
    id: 1,
    key: [5; 32],
};

fn at(ms: u64) -> Time {
    Time(1_000_000_000) + Duration::from_millis(ms)
}

fn ends(port: u16) -> ReplyEnds {
    ReplyEnds {
        source: SocketAddr::from(([198, 18, 2, 1], 2049)),
        destination: SocketAddr::from(([198, 18, 5, 1], port)),
    }
}

fn redirector() -> Redirector {
    let mut redirector = Redirector::new(1, 1);
    for holder in [HOLDER, OTHER] {
        let address = SocketAddr::from(([198, 18, 4, 1], 7072));
        redirector.connect(holder, address, KEY, true);
    }
    redirector
}

fn payload(holders: &[HostId], released: &Released) -> Payload {
    let mut payload = Payload::from(Bytes::from_static(b"head"));
    for (&holder, pin) in holders.iter().zip(20..) {
        let extent = Extent::new(holder.0, pin, 10_000, released);
        payload.push_extent(extent.slice(100, 8292));
    }
    payload.push(Bytes::from_static(b"pad"));
    payload
}

/// Goal: a reply is handed whole to the node that has its bytes, each with a number of its own,
/// and the pin goes back when the node must have sent it.
#[test]
fn a_reply_goes_to_its_node() {
    let (mut redirector, mut replies) = (redirector(), Replies::new([1; 32]));
    let released = Released::default();
    assert!(replies.admit(at(0), ends(700)));
    for _ in 0..2 {
        let reply = payload(&[HOLDER], &released);
        let handed = replies.hand(at(0), &mut redirector, ends(700), 1500, reply);
        assert_eq!(handed, Ok(()));
    }
    let (holder, datagram) = redirector.poll_datagram().expect("a datagram");
    assert_eq!(holder, HOLDER);
    let opened = open(&datagram, |_, _| Some(&KEY)).expect("authentic");
    assert_eq!(opened.envelope.receiver_boot, HOLDER.0);
    let mut numbers = Vec::new();
    for record in opened.records() {
        let Ok(Record::Reply(reply)) = record else {
            panic!("{record:?}");
        };
        assert_eq!((reply.source, reply.mtu), (ends(0).source, 1500));
        assert_eq!(reply.destination, ends(700).destination);
        let parts: Vec<Part<'_>> = reply.parts.iter().collect();
        let extent = Part::Extent {
            pin: 20,
            offset_bytes: 100,
            length_bytes: 8192,
        };
        let expected = [Part::Literal(b"head"), extent, Part::Literal(b"pad")];
        assert_eq!(parts, expected);
        numbers.push(reply.identification);
    }
    assert_eq!(numbers.len(), 2);
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(redirector.figures().replies, 2);
    assert_eq!(redirector.poll_datagram(), None);

    assert_eq!(replies.poll_timeout(), Some(at(1100)));
    replies.handle_timeout(at(999));
    assert_eq!(released.take(), []);
    replies.handle_timeout(at(1000));
    assert_eq!(released.take(), [(7, 20), (7, 20)]);
}

/// Goal: a reply of several nodes, of none, of one that is gone, or with more beside its extent
/// than a record takes is not handed to anybody, and its pins go back.
#[test]
fn what_no_node_can_send_is_lost() {
    let (mut redirector, mut replies) = (redirector(), Replies::new([1; 32]));
    let released = Released::default();
    let mut hand = |redirector: &mut Redirector, payload: Payload| {
        let handed = replies.hand(at(0), redirector, ends(700), 1500, payload);
        (handed, released.take().len())
    };
    let two = payload(&[HOLDER, OTHER], &released);
    assert_eq!(hand(&mut redirector, two), (Err(ReplyError::Parts(4)), 2));
    let none = payload(&[], &released);
    assert_eq!(hand(&mut redirector, none), (Err(ReplyError::Parts(2)), 0));
    let mut long = payload(&[HOLDER], &released);
    long.push(Bytes::from(vec![0; 1300]));
    assert_eq!(hand(&mut redirector, long), (Err(ReplyError::Parts(4)), 1));
    redirector.disconnect(HOLDER);
    let gone = payload(&[HOLDER], &released);
    let lost = Err(ReplyError::Tunnel(HOLDER));
    assert_eq!(hand(&mut redirector, gone), (lost, 1));
    assert_eq!(redirector.poll_datagram(), None);
}

/// Goal: who is silent for a minute is ended, once; who asks meanwhile is not; and there is a
/// bound to how many there are.
#[test]
fn clients_come_and_go() {
    let mut replies = Replies::new([1; 32]);
    assert!(replies.admit(at(0), ends(1)));
    assert!(replies.admit(at(10_000), ends(2)));
    assert!(replies.admit(at(20_000), ends(1)));
    assert_eq!(replies.poll_timeout(), Some(at(60_000)));
    replies.handle_timeout(at(60_000));
    assert_eq!(replies.poll_ended(), None);
    assert_eq!(replies.poll_timeout(), Some(at(70_000)));
    replies.handle_timeout(at(70_000));
    assert_eq!(replies.poll_ended(), Some(ends(2)));
    assert_eq!(replies.poll_ended(), None);
    assert_eq!(replies.clients(), 1);
    for port in 2..=4096 {
        assert!(replies.admit(at(70_000), ends(port)));
    }
    assert!(!replies.admit(at(70_000), ends(5000)));
    assert!(replies.admit(at(70_000), ends(4096)), "it was there");
    replies.handle_timeout(at(80_000));
    assert_eq!(replies.poll_ended(), Some(ends(1)));
    assert!(replies.admit(at(80_000), ends(5000)));
}
