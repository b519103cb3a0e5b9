//! Reads whose bytes nodes may send themselves, in a connection of a client.

mod script;

use crossdock_limits::INJECTED_PIECE_BYTES_MIN;
use crossdock_names::{NodeId, ObjectClass, ObjectId, STRIPE_UNIT_BYTES, SiteId, Version};
use crossdock_peer::{
    AccessError, BackingExtent, Call, CallId, Flow, NodeAnswer, NodeError, NodeRequest,
    ReadVersion, SiteAnswer, SiteError, SiteRequest, Transport,
};
use crossdock_router::{Router, RouterEffect, RouterInput};
use crossdock_types::{Extent, Payload, Released};

use script::*;

const SIZE: u64 = 4 * STRIPE_UNIT_BYTES;

fn flow(transport: Transport) -> Flow {
    Flow {
        transport,
        source: "198.18.2.1:2049".parse().expect("an address"),
        destination: "198.18.5.1:700".parse().expect("an address"),
    }
}

/// Asks for it, up to the columns: what was asked of which node, and whether bytes may stay.
fn begin(router: &mut Router, id: u64, start: u64, length: u64) -> Vec<(NodeId, CallId, bool)> {
    begin_in(Transport::Tcp, router, id, start, length)
}

fn begin_in(
    transport: Transport,
    router: &mut Router,
    id: u64,
    start: u64,
    length: u64,
) -> Vec<(NodeId, CallId, bool)> {
    read_for(transport, router, id, start, length);
    let [open] = expect(router, vec![Seen::OpenRead]);
    opened(router, open, SIZE);
    asked_of_nodes(router, flow(transport))
}

fn read_for(transport: Transport, router: &mut Router, id: u64, start: u64, length: u64) {
    let call = Call {
        id: CallId(id),
        deadline: DEADLINE,
        request: SiteRequest::as_root(read(start, length)),
    };
    let input = RouterInput::ReadFor(flow(transport), Box::new(call));
    router.handle(secs(0), input);
}

/// Where a site tells that bytes lie: pieces of so many bytes of one object, one after the other.
fn located(router: &mut Router, id: CallId, lengths: &[u32]) {
    let mut offset_bytes = 1 << 20;
    let extents = lengths.iter().map(|&length_bytes| {
        offset_bytes += 8192;
        BackingExtent {
            object: backing(),
            offset_bytes,
            length_bytes,
            version: Version(5),
            capability: None,
        }
    });
    let extents = extents.collect();
    let end_of_file = true;
    let answer = SiteAnswer::Located {
        extents,
        end_of_file,
    };
    let size = lengths.iter().map(|&length| u64::from(length)).sum();
    site(router, id, Ok(answer), size);
}

fn backing() -> ObjectId {
    ObjectId::of_site(ObjectClass::SmallFiles, SiteId(0), 3)
}

fn asked_of_nodes(router: &mut Router, flow: Flow) -> Vec<(NodeId, CallId, bool)> {
    std::iter::from_fn(|| router.poll_effect())
        .map(|effect| match effect {
            RouterEffect::ReadFor(of, node, call, _) => {
                assert_eq!(of, flow);
                (node, call.id, true)
            }
            RouterEffect::Node(node, call, _) => (node, call.id, false),
            other => panic!("unexpected {other:?}"),
        })
        .collect()
}

/// What a node keeps, as the host makes it of its word.
fn held(pin: u64, length: usize, released: &Released) -> Result<NodeAnswer, NodeError> {
    let mut payload = Payload::new();
    payload.push_extent(Extent::new(7, pin, length, released));
    Ok(NodeAnswer::Read {
        payload,
        version: Version::NONE,
    })
}

fn places(payload: &Payload) -> Vec<(usize, u64, usize)> {
    let extents = payload.extents().iter();
    extents
        .map(|(at, extent)| (*at, extent.pin(), extent.length_bytes))
        .collect()
}

/// Goal: what nodes keep lies in the answer where it belongs, with zeros where a column ends early
/// and bytes where a node gave some; short pieces are not left with nodes.
#[test]
fn what_nodes_keep_has_its_place_in_the_answer() {
    let mut router = router();
    let released = Released::default();
    let unit = STRIPE_UNIT_BYTES;
    let short = INJECTED_PIECE_BYTES_MIN - 1;
    let asked = begin(&mut router, 1, unit, 2 * unit + short);
    let nodes: Vec<_> = asked.iter().map(|(node, _, may)| (node.0, *may)).collect();
    assert_eq!(nodes, [(20, true), (10, true), (20, false)]);
    let whole = len(unit);
    node(&mut router, asked[0].1, held(5, whole - 100, &released));
    node(&mut router, asked[2].1, bytes_read(vec![3; len(short)]));
    node(&mut router, asked[1].1, held(6, whole, &released));
    let (mut seen, _) = drain(&mut router);
    let Some(Seen::Reply(1, Ok(SiteAnswer::Read { payload, .. }))) = seen.pop() else {
        panic!("no answer: {seen:?}")
    };
    assert_eq!(payload.len(), 2 * whole + len(short));
    assert_eq!(places(&payload), [(0, 5, whole - 100), (whole, 6, whole)]);
    assert_eq!(released.take(), []);
    drop(payload);
    assert_eq!(released.take(), [(7, 5), (7, 6)]);
}

/// Goal: of a read that fails, was withdrawn, or has to begin anew because the file was
/// written over or moved between its layout and its bytes, nothing stays with nodes.
#[test]
fn what_is_not_used_is_given_back() {
    let mut router = router();
    let released = Released::default();
    let unit = len(STRIPE_UNIT_BYTES);
    let asked = begin(&mut router, 1, STRIPE_UNIT_BYTES, 2 * STRIPE_UNIT_BYTES);
    node(&mut router, asked[0].1, held(1, unit, &released));
    let bad = NodeError::Media {
        node: NodeId(10),
        what: "torn".into(),
    };
    node(&mut router, asked[1].1, Err(bad));
    assert_eq!(effects(&mut router), [Seen::Reply(1, Err(SiteError::Io))]);
    assert_eq!(released.take(), [(7, 1)]);

    let asked = begin(&mut router, 2, STRIPE_UNIT_BYTES, 2 * STRIPE_UNIT_BYTES);
    node(&mut router, asked[0].1, held(2, unit, &released));
    router.handle(secs(1), RouterInput::Withdraw(CallId(2)));
    assert_eq!(released.take(), [(7, 2)]);
    node(&mut router, asked[1].1, held(3, unit, &released));
    assert_eq!(released.take(), [(7, 3)], "one that comes too late");
    effects(&mut router);

    let asked = begin(&mut router, 3, STRIPE_UNIT_BYTES, 2 * STRIPE_UNIT_BYTES);
    node(&mut router, asked[0].1, held(4, unit, &released));
    let moved = NodeError::StaleGeneration { current: 9 };
    node(&mut router, asked[1].1, Err(moved));
    assert_eq!(released.take(), [(7, 4)]);
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, SIZE);
    let again = std::iter::from_fn(|| router.poll_effect());
    let again = again.filter(|effect| matches!(effect, RouterEffect::ReadFor(..)));
    assert_eq!(again.count(), 2, "resolved again");
}

/// Goal: a datagram is left to a node only as a whole: what lies in one piece there and is not
/// too short.
#[test]
fn a_datagram_is_one_nodes() {
    let unit = STRIPE_UNIT_BYTES;
    let few = INJECTED_PIECE_BYTES_MIN;
    let cases = [
        (unit, 32 << 10, vec![true]),
        (unit, few, vec![true]),
        (unit, few - 1, vec![false]),
        (2 * unit - 8192, 16 << 10, vec![false; 2]),
    ];
    for (start, length, expected) in cases {
        let mut router = router();
        let asked = begin_in(Transport::Udp, &mut router, 1, start, length);
        let may: Vec<bool> = asked.iter().map(|(_, _, may)| *may).collect();
        assert_eq!(may, expected, "{start} {length}");
    }
}

/// Goal: where a column ends before the file, zeros would have to go with a node's bytes in one
/// datagram: they are read again to go through the gateway, and the node's are given back.
#[test]
fn a_datagram_with_zeros_is_read_again() {
    let mut router = router();
    let released = Released::default();
    let asked = begin_in(Transport::Udp, &mut router, 1, STRIPE_UNIT_BYTES, 32 << 10);
    assert_eq!(asked.len(), 1);
    node(&mut router, asked[0].1, held(5, 20_000, &released));
    assert_eq!(released.take(), [(7, 5)]);
    let [open] = expect(&mut router, vec![Seen::OpenRead]);
    opened(&mut router, open, SIZE);
    let asked = asked_of_nodes(&mut router, flow(Transport::Udp));
    let [(_, id, false)] = asked[..] else {
        panic!("asked for again in the same way: {asked:?}");
    };
    node(&mut router, id, bytes_read(vec![3; 20_000]));
    let (mut seen, _) = drain(&mut router);
    let Some(Seen::Reply(1, Ok(SiteAnswer::Read { payload, .. }))) = seen.pop() else {
        panic!("no answer: {seen:?}")
    };
    assert_eq!((payload.len(), places(&payload)), (32 << 10, vec![]));
    let bytes = payload.to_bytes();
    assert!(bytes[..20_000].iter().all(|&byte| byte == 3));
    assert!(bytes[20_000..].iter().all(|&byte| byte == 0));
}

/// Goal: what nodes may send of a small file stays where it lies, in the version that the site has
/// told; a piece that is too short is read; and the answer is the file's bytes, in order.
#[test]
fn a_small_file_stays_where_it_lies() {
    let mut router = router();
    let released = Released::default();
    read_for(Transport::Tcp, &mut router, 1, 0, 64 << 10);
    let [asked] = expect(&mut router, vec![Seen::SiteLocate(0, 64 << 10)]);
    located(&mut router, asked, &[8192, 100, 5000]);
    let (mut of_nodes, mut ids) = (Vec::new(), Vec::new());
    while let Some(effect) = router.poll_effect() {
        let (call, may) = match effect {
            RouterEffect::ReadFor(_, _, call, _) => (call, true),
            RouterEffect::Node(_, call, _) => (call, false),
            other => panic!("unexpected {other:?}"),
        };
        let NodeRequest::Read {
            object,
            length_bytes,
            version,
            ..
        } = call.request
        else {
            panic!("{call:?}")
        };
        let expected = (backing(), ReadVersion::NotAfter(Version(5)));
        assert_eq!((object, version), expected);
        of_nodes.push((length_bytes, may));
        ids.push(call.id);
    }
    assert_eq!(of_nodes, [(8192, true), (100, false), (5000, true)]);
    node(&mut router, ids[1], bytes_read(vec![3; 100]));
    node(&mut router, ids[2], held(6, 5000, &released));
    node(&mut router, ids[0], held(5, 8192, &released));
    let (mut seen, _) = drain(&mut router);
    let Some(Seen::Reply(1, Ok(SiteAnswer::Read { payload, .. }))) = seen.pop() else {
        panic!("no answer: {seen:?}")
    };
    assert_eq!(payload.len(), 8192 + 100 + 5000);
    assert_eq!(places(&payload), [(0, 5, 8192), (8292, 6, 5000)]);
    drop(payload);
    assert_eq!(released.take(), [(7, 5), (7, 6)]);
}

/// Goal: what is not where the site has told any more - overwritten, moved, of a node that has
/// fewer bytes, or forbidden - the site reads itself, and nothing stays with nodes.
#[test]
fn what_lies_elsewhere_by_now_the_site_reads() {
    let expired = AccessError::Expired { seconds: 9 };
    for answer in [
        Err(NodeError::VersionGone),
        Err(NodeError::NoObject),
        Err(NodeError::Refused(expired)),
        bytes_read(vec![3; 8191]),
    ] {
        let mut router = router();
        let released = Released::default();
        read_for(Transport::Tcp, &mut router, 1, 0, 16 << 10);
        let [asked] = expect(&mut router, vec![Seen::SiteLocate(0, 16 << 10)]);
        located(&mut router, asked, &[8192, 8192]);
        let asked = asked_of_nodes(&mut router, flow(Transport::Tcp));
        node(&mut router, asked[0].1, held(5, 8192, &released));
        node(&mut router, asked[1].1, answer.clone());
        let seen = drain(&mut router);
        assert_eq!(seen.0, [Seen::SiteRead(0, 16 << 10)], "{answer:?}");
        assert_eq!(released.take(), [(7, 5)]);
        let read = Ok(site_read(vec![4; 16 << 10], true));
        site(&mut router, seen.1[0], read, 16 << 10);
        let (mut seen, _) = drain(&mut router);
        let Some(Seen::Reply(1, Ok(SiteAnswer::Read { payload, .. }))) = seen.pop() else {
            panic!("no answer: {seen:?}")
        };
        assert_eq!((payload.len(), places(&payload)), (16 << 10, vec![]));
    }
}

/// Goal: a datagram is one node's: a small file in several pieces comes through the gateway, and so
/// does a range that goes beyond what the site has.
#[test]
fn a_datagram_of_a_small_file_is_one_piece() {
    let mut router = router();
    read_for(Transport::Udp, &mut router, 1, 0, 16 << 10);
    let [asked] = expect(&mut router, vec![Seen::SiteLocate(0, 16 << 10)]);
    located(&mut router, asked, &[8192]);
    let asked = asked_of_nodes(&mut router, flow(Transport::Udp));
    assert!(matches!(asked[..], [(_, _, true)]), "{asked:?}");

    read_for(Transport::Udp, &mut router, 2, 0, 16 << 10);
    let [asked] = expect(&mut router, vec![Seen::SiteLocate(0, 16 << 10)]);
    located(&mut router, asked, &[8192, 8192]);
    let [_] = expect(&mut router, vec![Seen::SiteRead(0, 16 << 10)]);

    read_for(Transport::Udp, &mut router, 3, 60 << 10, 8 << 10);
    let [_] = expect(&mut router, vec![Seen::SiteRead(60 << 10, 4 << 10)]);
}
