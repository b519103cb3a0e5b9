//! Calls to clients: found by their portmapper, sent again, answered or given up.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use crossdock_locking::{ClientAnswer, ClientCall, ClientCalls, is_reply};
use crossdock_nlm::lock::{Arguments, Outcome, Procedure, Results, Status, Versioned, Width};
use crossdock_nlm::portmap;
use crossdock_nlm::{lock, status};
use crossdock_peer::{GrantId, GrantedLock, LockClient, LockOwner, LockRange, LockWanted};
use crossdock_rpc::{AcceptStatus, CallHeader, RecordWriter, ReplyHeader};
use crossdock_types::Time;
use crossdock_xdr::{Decoder, Encode};

const NOW: Time = Time::from_secs(100);

fn client(address: &str) -> LockClient {
    LockClient {
        name: Bytes::from_static(b"host"),
        address: address.parse::<IpAddr>().expect("an address"),
    }
}

fn grant(id: u64, address: &str) -> ClientCall {
    ClientCall::Granted(Box::new(GrantedLock {
        id: GrantId(id),
        lock: LockWanted {
            owner: LockOwner {
                client: client(address),
                process: 7,
                handle: Bytes::from_static(b"owner"),
            },
            range: LockRange::new(5, 6).expect("a range"),
            is_exclusive: true,
        },
        handle: Bytes::from_static(b"handle"),
        version: 4,
    }))
}

fn news(address: &str) -> ClientCall {
    ClientCall::Restarted {
        client: client(address),
        state: 9,
        host: Bytes::from_static(b"server"),
    }
}

/// To whom, xid, (program, version, procedure), arguments.
type SentCall = (SocketAddr, u32, (u32, u32, u32), Bytes);

/// The datagrams that are to be sent: to whom, what is called, and with what.
fn sent(calls: &mut ClientCalls) -> Vec<SentCall> {
    let mut all = Vec::new();
    while let Some((to, pieces)) = calls.poll_datagram() {
        let whole = Bytes::from(pieces.concat());
        assert!(!is_reply(&whole));
        let mut decoder = Decoder::of_record(&whole);
        let header = CallHeader::decode(&mut decoder).expect("a call");
        let called = (header.program, header.version, header.procedure);
        let rest = whole.slice(decoder.position()..);
        all.push((to, header.xid, called, rest));
    }
    all
}

fn reply(header: &ReplyHeader<'_>, results: &impl Encode) -> Bytes {
    let mut writer = RecordWriter::datagram(64);
    writer.encoder().put(header);
    writer.encoder().put(results);
    let datagram = writer.finish().to_bytes();
    assert!(is_reply(&datagram));
    datagram
}

fn answer(calls: &mut ClientCalls, xid: u32, from: SocketAddr, results: &impl Encode) {
    let datagram = reply(&ReplyHeader::success(xid), results);
    calls.take_reply(NOW, from, &datagram);
}

fn outcome(status: Status) -> Versioned<Results<'static>> {
    let cookie = b"any";
    Versioned(Width::Wide, Results::Done(Outcome { cookie, status }))
}

/// Goal: a client is asked for the port first, then told of its lock as it asked
/// for it; the next call goes to the known port at once.
#[test]
fn a_client_is_found_and_told() {
    let mut calls = ClientCalls::default();
    calls.begin(NOW, grant(1, "192.0.2.1"));
    let (to, xid, called, rest) = sent(&mut calls).remove(0);
    assert_eq!(to, "192.0.2.1:111".parse().unwrap());
    assert_eq!(called, (portmap::PROGRAM, 2, 3));
    let mapping = portmap::Arguments::decode(portmap::Procedure::GetPort, &mut Decoder::new(&rest));
    let Ok(portmap::Arguments::Mapping(mapping)) = mapping else {
        panic!("{mapping:?}");
    };
    let asked = (mapping.program, mapping.version, mapping.protocol);
    assert_eq!(asked, (lock::PROGRAM, 4, portmap::UDP));

    answer(&mut calls, xid, to, &portmap::Results::Port(4045));
    let (to, xid, called, rest) = sent(&mut calls).remove(0);
    assert_eq!(to, "192.0.2.1:4045".parse().unwrap());
    assert_eq!(called, (lock::PROGRAM, 4, Procedure::Granted.number()));
    let mut decoder = Decoder::new(&rest);
    let granted = Arguments::decode(Procedure::Granted, Width::Wide, &mut decoder);
    let Ok(Arguments::Test(granted)) = granted else {
        panic!("{granted:?}");
    };
    let lock = granted.lock;
    assert_eq!(
        (lock.caller, lock.file, lock.owner),
        (&b"host"[..], &b"handle"[..], &b"owner"[..])
    );
    assert_eq!((lock.process, lock.offset, lock.length), (7, 5, 6));
    assert!(granted.is_exclusive && calls.poll_answer().is_none());

    // Nobody else may answer for it.
    answer(
        &mut calls,
        xid,
        "192.0.2.9:4045".parse().unwrap(),
        &outcome(Status::Granted),
    );
    assert_eq!(calls.poll_answer(), None);
    answer(&mut calls, xid, to, &outcome(Status::Granted));
    assert_eq!(
        calls.poll_answer(),
        Some(ClientAnswer::Granted(GrantId(1), true))
    );
    assert_eq!(calls.poll_timeout(), None);

    calls.begin(NOW, grant(2, "192.0.2.1"));
    let (to, xid, called, _) = sent(&mut calls).remove(0);
    assert_eq!((to.port(), called.0), (4045, lock::PROGRAM));
    answer(&mut calls, xid, to, &outcome(Status::Denied));
    assert_eq!(
        calls.poll_answer(),
        Some(ClientAnswer::Granted(GrantId(2), false))
    );
}

/// Goal: what is not answered is sent again with growing pauses, for longer than
/// the half minute after which clients ask themselves, and then given up: a
/// grant is taken back, news are not.
#[test]
fn silence_is_asked_again_and_given_up() {
    let mut calls = ClientCalls::default();
    calls.begin(NOW, grant(1, "192.0.2.1"));
    calls.begin(NOW, news("192.0.2.2"));
    let (mut count, mut last) = (sent(&mut calls).len(), NOW);
    while let Some(due) = calls.poll_timeout() {
        assert!(due > last && due.since(last) <= Duration::from_secs(10));
        last = due;
        calls.timeout(due);
        count += sent(&mut calls).len();
        assert!(count < 100);
    }
    assert_eq!(count, 18);
    let lasted = last.since(NOW);
    assert!(
        lasted > Duration::from_secs(45) && lasted < Duration::from_secs(90),
        "{lasted:?}"
    );
    assert_eq!(
        calls.poll_answer(),
        Some(ClientAnswer::Granted(GrantId(1), false))
    );
    assert_eq!(calls.poll_answer(), None);
}

/// Goal: a client that is just booting, or itself in its grace period, is asked
/// again; a grant that is settled is not.
#[test]
fn clients_that_are_not_ready_are_asked_again() {
    let mut calls = ClientCalls::default();
    calls.begin(NOW, grant(1, "192.0.2.1"));
    let (to, xid, ..) = sent(&mut calls).remove(0);
    answer(&mut calls, xid, to, &portmap::Results::Port(0));
    assert!(sent(&mut calls).is_empty(), "there is no port yet");
    calls.timeout(calls.poll_timeout().expect("due"));
    let (to, xid, called, _) = sent(&mut calls).remove(0);
    assert_eq!(called.0, portmap::PROGRAM);
    answer(&mut calls, xid, to, &portmap::Results::Port(99));
    let (to, xid, ..) = sent(&mut calls).remove(0);
    answer(&mut calls, xid, to, &outcome(Status::GracePeriod));
    assert_eq!(calls.poll_answer(), None);
    calls.timeout(calls.poll_timeout().expect("due"));
    assert_eq!(sent(&mut calls).len(), 1);
    // Its program has gone from that port: where is it now?
    let gone = ReplyHeader::accepted(xid, AcceptStatus::ProgramUnavailable);
    calls.take_reply(NOW, to, &reply(&gone, &()));
    calls.timeout(calls.poll_timeout().expect("due"));
    assert_eq!(sent(&mut calls)[0].2.0, portmap::PROGRAM);
    calls.settle(GrantId(1));
    assert_eq!(calls.poll_timeout(), None);
    assert_eq!(calls.poll_answer(), None);
}

/// Goal: news of a restart go to the status monitor, by IPv6 as well, and its
/// reply means that the client knows.
#[test]
fn news_of_a_restart_are_acknowledged() {
    let mut calls = ClientCalls::default();
    calls.begin(NOW, news("2001:db8::1"));
    let (to, xid, called, _) = sent(&mut calls).remove(0);
    assert_eq!((to.port(), called), (111, (portmap::PROGRAM, 4, 3)));
    let address = portmap::Results::Address(b"2001:db8::1.2.1");
    answer(&mut calls, xid, to, &address);
    let (to, xid, called, rest) = sent(&mut calls).remove(0);
    assert_eq!(to, "[2001:db8::1]:513".parse().unwrap());
    assert_eq!(called, (status::PROGRAM, 1, 6));
    let notify = status::Arguments::decode(status::Procedure::Notify, &mut Decoder::new(&rest));
    let host = b"server";
    let change = status::Change { host, state: 9 };
    assert_eq!(notify, Ok(status::Arguments::Notify(change)));
    answer(&mut calls, xid, to, &());
    let told = ClientAnswer::Told(client("2001:db8::1"));
    assert_eq!(calls.poll_answer(), Some(told));
}

/// Goal: garbage is no reply to anything.
#[test]
fn garbage_is_dropped() {
    let mut calls = ClientCalls::default();
    calls.begin(NOW, grant(1, "192.0.2.1"));
    let (to, xid, ..) = sent(&mut calls).remove(0);
    let whole = reply(&ReplyHeader::success(xid), &portmap::Results::Port(1));
    for length in 0..whole.len() {
        calls.take_reply(NOW, to, &whole[..length]);
    }
    answer(
        &mut calls,
        xid.wrapping_add(1),
        to,
        &portmap::Results::Port(1),
    );
    answer(&mut calls, xid, to, &portmap::Results::Port(70_000));
    assert!(sent(&mut calls).is_empty());
}
