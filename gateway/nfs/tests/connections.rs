//! Records, RPC errors, pipelining, back-pressure: bytes in, bytes out.

mod support;

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_nfs::{ConnId, DoorLimits, NfsEffect, NfsInput};
use crossdock_nfs3::call::{Getattr, Read, StableHow, Write};
use crossdock_nfs3::{self as nfs3, FileType, Location, Name, Procedure, Reply, Status, mount};
use crossdock_peer::{FileKind, SiteAnswer, SiteOperation};
use crossdock_rpc::{AcceptStatus, AuthStatus, Credential, Rejection, ReplyHeader};
use crossdock_types::Payload;
use support::*;

fn getattr(xid: u32, file: FileRef) -> Bytes {
    let handle = handle(file);
    let object = handle.as_handle();
    nfs(xid, &nfs3::Call::Getattr(Getattr { object }))
}

fn read(xid: u32, count_bytes: u32) -> Bytes {
    let handle = handle(FILE);
    let file = handle.as_handle();
    let arguments = Read {
        file,
        offset: 0,
        count_bytes,
    };
    nfs(xid, &nfs3::Call::Read(arguments))
}

fn null(xid: u32) -> Bytes {
    record(&header(xid, nfs3::PROGRAM, 3, 0), &())
}

/// Goal: the exact bytes of NULL, record mark included.
#[test]
fn null_is_answered_with_24_bytes_of_success() {
    let mut door = Bench::new(config()).door;
    door.handle(NOW, NfsInput::Received(CONN, null(0x0102_0304)));
    let Some(NfsEffect::Send(CONN, payload)) = door.poll_effect() else {
        panic!("no reply");
    };
    let mut expected = b"\x80\0\0\x18\x01\x02\x03\x04".to_vec();
    expected.extend([0, 0, 0, 1]); // A reply,
    expected.extend([0; 16]); // accepted, no verifier, success.
    assert_eq!(payload.to_bytes(), expected);
    assert!(door.poll_effect().is_none());
}

/// Goal: every refusal of RFC 5531 section 9 with its ranges.
#[test]
fn calls_that_cannot_be_carried_out_are_refused() {
    let mut bench = Bench::new(config());
    let accepted = ReplyHeader::accepted;
    let mismatch = AcceptStatus::ProgramMismatch { low: 3, high: 3 };
    let cases = [
        (header(1, 100_999, 3, 0), AcceptStatus::ProgramUnavailable),
        (header(2, nfs3::PROGRAM, 2, 0), mismatch),
        (header(3, nfs3::PROGRAM, 4, 1), mismatch),
        (header(4, mount::PROGRAM, 1, 1), mismatch),
        (
            header(5, nfs3::PROGRAM, 3, 22),
            AcceptStatus::ProcedureUnavailable,
        ),
        (
            header(6, mount::PROGRAM, 3, 6),
            AcceptStatus::ProcedureUnavailable,
        ),
        (
            header(7, nfs3::PROGRAM, 3, 1),
            AcceptStatus::GarbageArguments,
        ),
        (
            header(8, mount::PROGRAM, 3, 1),
            AcceptStatus::GarbageArguments,
        ),
    ];
    for (header, status) in cases {
        bench.receive(record(&header, &()));
        assert_eq!(bare(&bench.reply()), accepted(header.xid, status));
    }
    // RPC version 3: it follows xid and message type.
    let mut wrong = null(9).to_vec();
    wrong[15] = 3;
    bench.receive(Bytes::from(wrong));
    let rejection = Rejection::RpcMismatch { low: 2, high: 2 };
    assert_eq!(bare(&bench.reply()), ReplyHeader::denied(9, rejection));
    assert!(bench.asked().is_empty());
}

/// Goal: credentials that are not believed are told apart; NULL needs none.
#[test]
fn unknown_flavors_are_refused() {
    let mut bench = Bench::new(config());
    let cases = [
        (2, AuthStatus::RejectedCredential),
        (6, AuthStatus::TooWeak),
    ];
    for (flavor, status) in cases {
        let mut header = header(1, nfs3::PROGRAM, 3, 1);
        header.credential = Credential::Other { flavor, body: &[] };
        bench.receive(record(&header, &()));
        let rejection = Rejection::Auth(status);
        assert_eq!(bare(&bench.reply()), ReplyHeader::denied(1, rejection));
        header.procedure = 0;
        bench.receive(record(&header, &()));
        assert_eq!(bare(&bench.reply()), ReplyHeader::success(1));
    }
}

/// Goal: a client that no export lets in mounts nothing, and is told so by RPC;
/// what it does with a handle is refused as a file's permissions would be.
#[test]
fn strangers_are_refused() {
    let mut bench = Bench::from(config(), "10.0.0.1:999");
    bench.receive(getattr(1, ROOT));
    let path = mount::Call::Mnt(nfs3::Path(b"/"));
    bench.receive(record(&header(2, mount::PROGRAM, 3, 1), &path));
    let [refused, denied] = &bench.replies()[..] else {
        panic!("two replies");
    };
    let refused = decode(Procedure::Getattr, refused).1;
    assert_eq!(refused.status(), Some(Status::Acces));
    let rejection = Rejection::Auth(AuthStatus::TooWeak);
    assert_eq!(bare(denied), ReplyHeader::denied(2, rejection));
    assert!(bench.asked().is_empty());
}

/// Goal: a client that has sent its last call still gets every reply, and then
/// the end of the connection; one that owes nothing is closed at once.
#[test]
fn half_closed_client_gets_its_replies() {
    let mut bench = Bench::new(config());
    bench.receive(join(&[null(1), getattr(2, FILE), read(3, 100)]));
    assert_eq!(bare(&bench.reply()), ReplyHeader::success(1));
    let calls = bench.asked();
    bench.input(NfsInput::PeerDone(CONN));
    assert!(bench.effects.is_empty(), "two calls are in progress");
    for (call, is_last) in calls.iter().zip([false, true]) {
        let refused = Err(crossdock_peer::SiteError::Io);
        bench.answer(call.id, refused, file_cache());
        assert_eq!(bench.replies().len(), 1);
        let is_closed = matches!(bench.effects[..], [NfsEffect::Close(CONN)]);
        assert_eq!(is_closed, is_last);
    }
    assert_eq!(bench.door.connections(), 0);

    let mut bench = Bench::new(config());
    bench.input(NfsInput::PeerDone(CONN));
    assert!(matches!(bench.effects[..], [NfsEffect::Close(CONN)]));
}

/// Goal: what is not RPC ends the connection; earlier replies still go out first.
#[test]
fn nonsense_ends_the_connection() {
    let too_long = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]);
    let not_a_call = Bytes::from_static(b"\x80\0\0\x08\0\0\0\x01\0\0\0\x01");
    for nonsense in [too_long, not_a_call] {
        let mut bench = Bench::new(config());
        bench.receive(join(&[null(1), nonsense, null(2)]));
        assert_eq!(bare(&bench.reply()), ReplyHeader::success(1));
        assert!(matches!(bench.effects[..], [NfsEffect::Close(CONN)]));
        bench.receive(null(3)); // Was under way.
        bench.input(NfsInput::Closed(CONN));
        assert!(bench.replies().is_empty());
        assert_eq!((bench.effects.len(), bench.door.connections()), (1, 0));
    }
}

/// Goal: calls arrive in any cut, are asked in order, and answered in any
/// order; replies that are ready together leave in one send.
#[test]
fn pipelined_calls_are_answered_out_of_order() {
    let mut bench = Bench::new(config());
    let stream = join(&[getattr(1, ROOT), getattr(2, FILE), null(3)]);
    for byte in 0..stream.len() {
        bench.receive(stream.slice(byte..byte + 1));
    }
    let calls = bench.asked();
    let file = |call: &SiteOperation| match call {
        SiteOperation::GetAttributes { file } => *file,
        other => panic!("unexpected {other:?}"),
    };
    let files: Vec<_> = calls.iter().map(|c| file(&c.request.operation)).collect();
    assert_eq!(files, [ROOT, FILE]);
    assert_eq!(bare(&bench.reply()), ReplyHeader::success(3));
    bench.answer(
        calls[1].id,
        Ok(SiteAnswer::Done),
        cache(FILE, FileKind::Regular),
    );
    bench.answer(
        calls[0].id,
        Ok(SiteAnswer::Done),
        cache(ROOT, FileKind::Directory),
    );
    let replies = bench.replies();
    let of = |xid, file, kind| (xid, Reply::Getattr(Ok(shown(file, kind))));
    let decoded: Vec<_> = replies
        .iter()
        .map(|r| decode(Procedure::Getattr, r))
        .collect();
    let expected = [
        of(2, FILE, FileType::Regular),
        of(1, ROOT, FileType::Directory),
    ];
    assert_eq!(decoded, expected);

    let sends = bench.sends;
    bench.receive(join(&[null(4), null(5), null(6)]));
    assert_eq!((bench.replies().len(), bench.sends), (3, sends + 1));
}

/// Goal: at the bound of calls a connection is paused, what has arrived waits,
/// and each answer lets one more in (invariant 9).
#[test]
fn connection_is_paused_at_its_bound() {
    let mut config = config();
    config.limits.calls_per_connection_max = 2;
    let mut bench = Bench::new(config);
    bench.receive(join(&[
        getattr(1, ROOT),
        getattr(2, ROOT),
        getattr(3, ROOT),
    ]));
    assert!(matches!(
        bench.effects[..],
        [
            NfsEffect::Router(_),
            NfsEffect::Router(_),
            NfsEffect::Pause(CONN)
        ]
    ));
    let NfsEffect::Router(first) = bench.effects.remove(0) else {
        panic!("checked before");
    };
    bench.effects.clear();
    let root = || cache(ROOT, FileKind::Directory);
    bench.answer(first.id, Ok(SiteAnswer::Done), root());
    let third = bench.asked_one(); // Still full: no resume.
    bench.answer(third.id, Ok(SiteAnswer::Done), root());
    assert!(matches!(bench.effects[..], [NfsEffect::Resume(CONN)]));
    assert_eq!(bench.replies().len(), 2);
}

/// Goal: a client that does not take its replies is not read from.
#[test]
fn slow_reader_is_paused_until_its_replies_are_gone() {
    let mut config = config();
    config.limits.connection_bytes_max = 100_000;
    let mut bench = Bench::new(config);
    bench.receive(read(1, 200_000));
    let NfsEffect::Router(call) = bench.effects.remove(0) else {
        panic!("no call");
    };
    assert!(matches!(bench.effects[..], [NfsEffect::Pause(CONN)]));
    bench.effects.clear();
    let mut payload = Payload::new();
    payload.push_zeros(200_000);
    let answer = SiteAnswer::Read {
        payload,
        end_of_file: true,
    };
    bench.answer(call.id, Ok(answer), cache(FILE, FileKind::Regular));
    let bytes = bench.reply().len() + 4;
    assert!(bench.effects.is_empty());
    bench.input(NfsInput::Sent(CONN, 50_000));
    assert!(bench.effects.is_empty());
    bench.input(NfsInput::Sent(CONN, bytes - 50_000));
    assert!(matches!(bench.effects[..], [NfsEffect::Resume(CONN)]));
}

/// Goal: a connection without calls ends after the idle time, counted from its
/// last call; one whose call is in progress does not.
#[test]
fn idle_connections_end_after_hours() {
    let idle = config().limits.idle_patience;
    let mut bench = Bench::new(config());
    assert!(bench.wait(NOW + idle / 2).is_empty());
    let last = NOW + idle / 2;
    bench.input_at(last, NfsInput::Received(CONN, null(1)));
    let sent = bench.reply().len() + 4;
    bench.input_at(last, NfsInput::Sent(CONN, sent));
    let before = idle - Duration::from_secs(1);
    assert!(bench.wait(last + before).is_empty());
    assert!(matches!(
        bench.wait(last + idle)[..],
        [NfsEffect::Close(CONN)]
    ));
    bench.input_at(last + idle, NfsInput::Closed(CONN));
    assert!(bench.wait(last + idle * 2).is_empty());
    assert_eq!(bench.door.poll_timeout(), None);

    let mut bench = Bench::new(config());
    bench.receive(getattr(1, FILE));
    bench.asked_one();
    assert!(bench.wait(NOW + idle * 3).is_empty());
}

/// Goal: a client that begins a record and does not finish it loses its
/// connection after minutes, however slowly it goes on; whole records begin
/// anew.
#[test]
fn half_a_record_ends_the_connection() {
    let stalled = config().limits.stalled_patience;
    let mut bench = Bench::new(config());
    let bytes = getattr(1, FILE);
    bench.receive(join(&[null(1), bytes.slice(..1)]));
    assert_eq!(bare(&bench.reply()), ReplyHeader::success(1));
    bench.input(NfsInput::Sent(CONN, 28));
    let half = NOW + stalled / 2;
    bench.input_at(half, NfsInput::Received(CONN, bytes.slice(1..20)));
    let whole = NOW + (stalled - Duration::from_secs(1));
    let more = join(&[bytes.slice(20..), bytes.slice(..50)]);
    bench.input_at(whole, NfsInput::Received(CONN, more));
    bench.asked_one();
    let late = whole + stalled;
    bench.input_at(late, NfsInput::Received(CONN, bytes.slice(50..60)));
    assert!(matches!(bench.wait(late)[..], [NfsEffect::Close(CONN)]));
}

/// Goal: a client that takes none of its replies is cut off after minutes, also
/// if the door has closed its end; one that takes some is not.
#[test]
fn unread_replies_end_the_connection() {
    let stalled = config().limits.stalled_patience;
    let mut bench = Bench::new(config());
    bench.receive(join(&[null(1), null(2)]));
    let half = NOW + stalled / 2;
    bench.input_at(half, NfsInput::Sent(CONN, 1));
    assert!(bench.wait(NOW + stalled).is_empty());
    assert!(matches!(
        bench.wait(half + stalled)[..],
        [NfsEffect::Abort(CONN)]
    ));
    assert_eq!((bench.door.connections(), bench.door.held_bytes()), (0, 0));

    let mut bench = Bench::new(config());
    bench.receive(null(1));
    bench.input(NfsInput::PeerDone(CONN));
    assert!(matches!(bench.effects[..], [NfsEffect::Close(CONN)]));
    bench.effects.clear();
    assert!(matches!(
        bench.wait(NOW + stalled)[..],
        [NfsEffect::Abort(CONN)]
    ));
    assert_eq!(bench.door.poll_timeout(), None);
}

/// Goal: a paused connection is not read from, so what lies there in part is not
/// its client's fault.
#[test]
fn a_paused_connection_is_not_stalled() {
    let mut config = config();
    config.limits.calls_per_connection_max = 1;
    let stalled = config.limits.stalled_patience;
    let mut bench = Bench::new(config);
    let bytes = getattr(1, ROOT);
    bench.receive(join(&[bytes.clone(), bytes.slice(..20)]));
    let NfsEffect::Router(call) = bench.effects.remove(0) else {
        panic!("no call");
    };
    assert!(matches!(bench.effects[..], [NfsEffect::Pause(CONN)]));
    bench.effects.clear();
    let late = NOW + stalled * 2;
    assert!(bench.wait(late).is_empty());
    let root = cache(ROOT, FileKind::Directory);
    bench.answer(call.id, Ok(SiteAnswer::Done), root);
    assert!(matches!(bench.effects[..], [NfsEffect::Resume(CONN)]));
    bench.effects.clear();
    bench.input_at(late, NfsInput::Sent(CONN, 1));
    let ended = bench.wait(late + stalled);
    assert_eq!(ended.len(), 1, "now it is");
}

/// Goal: at the bound of the whole door all connections wait their turn, and
/// datagrams are dropped.
#[test]
fn full_door_serves_connections_in_turn() {
    let mut config = config();
    config.limits = DoorLimits {
        calls_max: 1,
        ..DoorLimits::default()
    };
    let mut bench = Bench::new(config);
    let other = ConnId(2);
    bench.input(NfsInput::Opened(other, address("127.0.0.1:998")));
    bench.receive(join(&[getattr(1, ROOT), getattr(2, ROOT)]));
    bench.input(NfsInput::Received(other, getattr(3, FILE)));
    let datagram = message(&header(4, nfs3::PROGRAM, 3, 0), &());
    bench.input(NfsInput::Datagram(address("127.0.0.1:997"), datagram));
    let effects = std::mem::take(&mut bench.effects);
    let [
        NfsEffect::Router(first),
        NfsEffect::Pause(CONN),
        NfsEffect::Pause(ConnId(2)),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    bench.answer(
        first.id,
        Ok(SiteAnswer::Done),
        cache(ROOT, FileKind::Directory),
    );
    let second = bench.asked_one(); // This connection began to wait first.
    bench.answer(
        second.id,
        Ok(SiteAnswer::Done),
        cache(ROOT, FileKind::Directory),
    );
    let NfsEffect::Router(third) = bench.effects.remove(0) else {
        panic!("the other connection does not get on");
    };
    assert!(matches!(
        third.request.operation,
        SiteOperation::GetAttributes { file: FILE }
    ));
}

/// Goal: the death of a connection withdraws its reads only, and late answers
/// go nowhere.
#[test]
fn closed_connection_withdraws_its_reads() {
    let mut bench = Bench::new(config());
    bench.receive(join(&[read(1, 10), getattr(2, ROOT)]));
    let calls = bench.asked();
    bench.input(NfsInput::Closed(CONN));
    assert!(matches!(bench.effects[..], [NfsEffect::Withdraw(id)] if id == calls[0].id));
    bench.effects.clear();
    for call in &calls {
        bench.answer(
            call.id,
            Ok(SiteAnswer::Done),
            cache(ROOT, FileKind::Directory),
        );
    }
    assert_eq!((bench.door.calls(), bench.effects.len()), (0, 0));
    assert!(bench.replies().is_empty());
}

/// Goal: a WRITE that is sent again while it is in progress is not carried out
/// twice; its reply goes where it was sent from last (history `late-write`).
#[test]
fn write_sent_again_takes_the_reply_over() {
    let mut bench = Bench::new(config());
    let handle = handle(FILE);
    let write = |data: &'static [u8]| {
        let call = nfs3::Call::Write(Write {
            file: handle.as_handle(),
            offset: 0,
            count_bytes: 4,
            stable: StableHow::FileSync,
            data: Payload::from(Bytes::from_static(data)),
        });
        nfs(7, &call)
    };
    let other = ConnId(2);
    bench.input(NfsInput::Opened(other, address("127.0.0.1:5")));
    bench.receive(write(b"data"));
    let first = bench.asked_one();
    bench.input(NfsInput::Closed(CONN));
    bench.input(NfsInput::Received(other, write(b"data")));
    assert!(bench.asked().is_empty());
    // The same xid with other bytes is another write.
    bench.input(NfsInput::Received(other, write(b"DATA")));
    let second = bench.asked_one();
    for id in [first.id, second.id] {
        let incarnation = crossdock_names::Incarnation(1);
        let written = SiteAnswer::Written { incarnation };
        bench.answer(id, Ok(written), cache(FILE, FileKind::Regular));
    }
    let is_reply = |effect: &NfsEffect| matches!(effect, NfsEffect::Send(ConnId(2), _));
    assert_eq!(bench.effects.iter().filter(|e| is_reply(e)).count(), 2);
    assert_eq!((bench.effects.len(), bench.door.calls()), (2, 0));
    bench.effects.clear();
    // Done: sent once more, it is carried out once more.
    bench.input(NfsInput::Received(other, write(b"data")));
    bench.asked_one();
}

/// Goal: datagrams have the same procedures with smaller I/O; nonsense is dropped.
#[test]
fn datagrams_are_answered_with_datagrams() {
    let mut bench = Bench::new(config());
    let client = address("127.0.0.1:700");
    bench.input(NfsInput::Datagram(client, Bytes::from_static(b"nonsense")));
    assert!(bench.effects.is_empty());
    let handle = handle(FILE);
    let file = handle.as_handle();
    let call = nfs3::Call::Read(Read {
        file,
        offset: 7,
        count_bytes: 1 << 20,
    });
    let header = header(5, nfs3::PROGRAM, 3, 6);
    bench.input(NfsInput::Datagram(client, message(&header, &call)));
    let asked = bench.asked_one();
    assert!(matches!(
        asked.request.operation,
        SiteOperation::Read {
            file: FILE,
            offset_bytes: 7,
            length_bytes: 32_768,
            patience_ms: 0,
        }
    ));
    let payload = Payload::from(Bytes::from_static(b"abc"));
    let answer = SiteAnswer::Read {
        payload: payload.clone(),
        end_of_file: true,
    };
    bench.answer(asked.id, Ok(answer), cache(FILE, FileKind::Regular));
    let [NfsEffect::SendDatagram(to, pieces)] = &bench.effects[..] else {
        panic!("{:?}", bench.effects);
    };
    assert_eq!(*to, client);
    let (xid, reply) = decode(Procedure::Read, &join(pieces));
    let Reply::Read(Ok(read)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((xid, read.data, read.is_end), (5, payload, true));
}

/// Goal: no connection beyond the bound.
#[test]
fn too_many_connections_are_closed() {
    let mut config = config();
    config.limits.connections_max = 1;
    let mut bench = Bench::new(config);
    bench.input(NfsInput::Opened(ConnId(2), address("127.0.0.1:1")));
    assert!(matches!(bench.effects[..], [NfsEffect::Close(ConnId(2))]));
}

/// Goal: a call that must happen once carries a key that a retransmission
/// shares, and nothing else does (CONSISTENCY 8).
#[test]
fn retransmissions_have_the_same_key() {
    let directory = handle(ROOT);
    let call = |name| {
        nfs3::Call::Remove(Location {
            directory: directory.as_handle(),
            name: Name(name),
        })
    };
    let key = |client: &str, bytes: Bytes| {
        let mut bench = Bench::from(config(), client);
        bench.receive(bytes);
        bench.asked_one().request.duplicate
    };
    let (here, a) = ("127.0.0.1:999", nfs(1, &call(b"a")));
    let first = key(here, a.clone());
    assert!(first.is_some());
    assert_eq!(key("127.0.0.1:998", a.clone()), first);
    assert_eq!(key("[::ffff:127.0.0.1]:998", a.clone()), first);
    assert_ne!(key("127.0.0.2:999", a), first);
    assert_ne!(key(here, nfs(2, &call(b"a"))), first);
    assert_ne!(key(here, nfs(1, &call(b"b"))), first);
    let mut other = header(1, nfs3::PROGRAM, 3, 12);
    other.credential = sys(1001, 100, &[5]);
    assert_ne!(key(here, record(&other, &call(b"a"))), first);
    assert_eq!(key(here, getattr(1, ROOT)), None);
}

/// Goal: any bytes leave the door in a sound state, and a flipped bit in a
/// handle is a forgery, not another file (invariant 8).
#[test]
fn flipped_bits_never_reach_another_file() {
    let sound = getattr(1, FILE);
    for bit in 32..sound.len() * 8 {
        let mut bytes = sound.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut bench = Bench::new(config());
        bench.receive(Bytes::from(bytes));
        for effect in &bench.effects {
            match effect {
                NfsEffect::Router(call) => assert_eq!(*call.request.operation.subject(), FILE),
                NfsEffect::Close(_) | NfsEffect::Pause(_) => {}
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }
    let mut bench = Bench::new(config());
    let object = forged();
    let reply = bench.at_once(&nfs3::Call::Getattr(Getattr { object }));
    assert_eq!(reply, Reply::Getattr(Err(Status::BadHandle.into())));
}
