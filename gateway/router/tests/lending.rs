//! What another gateway keeps of a file is asked of it, and what this one keeps is lent.

mod script;

use bytes::Bytes;
use crossdock_names::{HostId, NodeId, Version};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeError, NodeReply, SiteAnswer, SiteRequest, Transport,
};
use crossdock_router::{Router, RouterEffect, RouterInput};
use crossdock_types::{Extent, Payload, Released, WallTime};

use script::*;

const LENGTH: u64 = 20_000;
const GIVEN: Version = Version(40);
const KEEPER: HostId = HostId(9);
const NOW: WallTime = WallTime(5);

fn flow(transport: Transport) -> Flow {
    Flow {
        transport,
        source: "198.18.2.1:2049".parse().expect("an address"),
        destination: "198.18.5.1:700".parse().expect("an address"),
    }
}

fn call(id: u64, offset: u64, length: u64) -> Box<Call<SiteRequest>> {
    Box::new(Call {
        id: CallId(id),
        deadline: DEADLINE,
        request: SiteRequest::as_root(read(offset, length)),
    })
}

/// The site opens the file, in that state.
fn open(router: &mut Router, lease: u64, is_exclusive: bool, changed: WallTime) {
    let [open] = expect(router, vec![Seen::OpenRead]);
    let mut told = attributes(T + LENGTH);
    told.changed = changed;
    // Nothing has to be told of who reads.
    told.accessed = WallTime(1_000_000_000_000);
    open_with_lease(router, open, (lease, is_exclusive), told);
}

/// A client wants 8000 bytes, which whoever is asked may send itself.
fn begin(router: &mut Router, id: u64) {
    let input = RouterInput::ReadFor(flow(Transport::Tcp), call(id, T, 8000));
    router.handle(secs(1), input);
}

fn held(released: &Released) -> NodeAnswer {
    let mut payload = Payload::new();
    payload.push_extent(Extent::new(KEEPER.0, 77, 8000, released));
    NodeAnswer::Read {
        payload,
        version: GIVEN,
    }
}

fn answer(router: &mut Router, id: CallId, outcome: Result<NodeAnswer, NodeError>) {
    let reply = NodeReply { id, outcome };
    router.handle(secs(1), RouterInput::Kept(reply));
    router.handle(secs(1), RouterInput::Timeout);
}

/// A router that has heard of another gateway that keeps the file as it is now.
fn told() -> Router {
    let mut router = router();
    let told = RouterInput::KeptElsewhere(KEEPER, FILE, NOW);
    router.handle(secs(1), told);
    router
}

fn of_keeper() -> Seen {
    Seen::ReadKept(KEEPER.0, T, 8000)
}

fn of_primary() -> Seen {
    Seen::Read(10, column(0), T, 8000)
}

/// Goal: who reads a hot file whole says so, once and only then; of what it keeps another
/// gateway gets any range with its version, in the state of the file that it is of.
#[test]
fn what_is_kept_whole_is_told_and_lent() {
    let mut router = router();
    let read_hot = |router: &mut Router, id, offset, length| {
        let input = RouterInput::ReadHot(call(id, offset, length));
        router.handle(secs(1), input);
        if id == 1 {
            open(router, 1, false, NOW);
        }
        let (_, asked) = drain(router);
        let payload = Payload::from(Bytes::from(vec![7; len(length)]));
        let version = Version(GIVEN.0 + id);
        node(router, asked[0], Ok(NodeAnswer::Read { payload, version }));
        effects(router)
    };
    let seen = read_hot(&mut router, 1, T, 8000);
    assert!(matches!(seen[..], [Seen::Reply(1, Ok(_))]), "{seen:?}");
    assert_eq!(router.kept_files().count(), 0);
    let seen = read_hot(&mut router, 2, T + 8000, LENGTH - 8000);
    let is_told = matches!(seen[..], [Seen::Reply(2, Ok(_)), Seen::Keeps(NOW)]);
    assert!(is_told, "{seen:?}");
    assert_eq!(router.kept_files().collect::<Vec<_>>(), [(FILE, NOW)]);
    let lent = |changed, range| {
        let (payload, version) = router.lend(FILE, changed, &range)?;
        Some((payload.to_bytes().to_vec(), version))
    };
    let first = Some((vec![7; 100], Version(41)));
    assert_eq!(lent(NOW, T + 50..T + 150), first);
    let both = Some((vec![7; 100], Version(42)));
    assert_eq!(lent(NOW, T + 7950..T + 8050), both);
    assert_eq!(lent(WallTime(6), T..T + 100), None);
    assert_eq!(lent(NOW, T + LENGTH - 1..T + LENGTH + 1), None);
}

/// Goal: a gateway that keeps a file in the state that a lease to read says is the current one is
/// asked for a piece before any node, in the client's connection; its answer is the reply's.
#[test]
fn who_keeps_it_is_asked_first() {
    let mut router = told();
    let released = Released::default();
    begin(&mut router, 1);
    open(&mut router, 1, false, NOW);
    let [asked] = expect(&mut router, vec![of_keeper()]);
    answer(&mut router, asked, Ok(held(&released)));
    let (seen, _) = drain(&mut router);
    let [Seen::Reply(1, Ok(SiteAnswer::Read { payload, .. }))] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(payload.extents()[0].1.holder(), KEEPER.0);
    begin(&mut router, 2);
    expect::<1>(&mut router, vec![of_keeper()]);
}

/// Goal: if it says no the primary is asked, at once and as ever; the one that has said so again
/// and again is asked no more.
#[test]
fn the_primary_is_asked_if_it_says_no() {
    let mut router = told();
    for id in 1..3 {
        begin(&mut router, id);
        if id == 1 {
            open(&mut router, 1, false, NOW);
        }
        let [asked] = expect(&mut router, vec![of_keeper()]);
        answer(&mut router, asked, Err(NodeError::VersionGone));
        match router.poll_effect() {
            Some(RouterEffect::ReadFor(of, NodeId(10), ..)) => {
                assert_eq!(of, flow(Transport::Tcp));
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    begin(&mut router, 3);
    expect::<1>(&mut router, vec![of_primary()]);
}

/// Goal: it is not asked for another state of the file, nor under a lease to write, nor for a
/// datagram, nor for what passes through this gateway.
#[test]
fn nothing_else_is_asked_of_it() {
    for (is_exclusive, changed) in [(false, WallTime(6)), (true, NOW)] {
        let mut router = told();
        begin(&mut router, 1);
        open(&mut router, 1, is_exclusive, changed);
        expect::<1>(&mut router, vec![of_primary()]);
    }
    let udp = RouterInput::ReadFor(flow(Transport::Udp), call(1, T, 8000));
    for input in [udp, RouterInput::Request(call(1, T, 8000))] {
        let mut router = told();
        router.handle(secs(1), input);
        open(&mut router, 1, false, NOW);
        expect::<1>(&mut router, vec![of_primary()]);
    }
}

/// Goal: a node that has given the piece in this state has it in memory: it is asked again, and no
/// other gateway.
#[test]
fn a_node_that_has_it_warm_is_asked() {
    let mut router = router();
    begin(&mut router, 1);
    open(&mut router, 1, false, NOW);
    let [asked] = expect(&mut router, vec![of_primary()]);
    node(&mut router, asked, bytes_read(vec![7; 8000]));
    let (seen, _) = drain(&mut router);
    assert!(matches!(seen[..], [Seen::Reply(1, Ok(_))]), "{seen:?}");
    let told = RouterInput::KeptElsewhere(KEEPER, FILE, NOW);
    router.handle(secs(1), told);
    begin(&mut router, 2);
    expect::<1>(&mut router, vec![of_primary()]);
    let beside = RouterInput::ReadFor(flow(Transport::Tcp), call(3, T + 8000, 8000));
    router.handle(secs(1), beside);
    let of_other = Seen::ReadKept(KEEPER.0, T + 8000, 8000);
    expect::<1>(&mut router, vec![of_other]);
}
