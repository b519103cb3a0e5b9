//! Messages as bytes: what is written is read again, and nothing else is.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_fuzzing::link::{self as samples, NOW};
use crossdock_fuzzing::{Dice, link_frame};
use crossdock_limits::{LINK_BODY_BYTES_MAX, LINK_HELLO_BYTES_MAX, OBJECT_IO_BYTES_MAX};
use crossdock_link::{
    EncodeError, Frame, FrameError, FrameReader, HEADER_BYTES, Message, PROTOCOL_VERSION,
};
use crossdock_names::{Epoch, FileId, NodeId, ObjectId};
use crossdock_peer::{
    AccessError, Call, CallId, LockOperation, NodeAnswer, NodeError, NodeReply, NodeRequest, Port,
    SiteAnswer, SiteError, SiteOperation,
};
use crossdock_types::{Payload, Time};

/// CRC32C over all samples as this version of the protocol encodes them.
const GOLDEN: (u16, u32) = (18, 4_274_925_494);

fn append(offset_bytes: u64, payload: Payload) -> Message {
    let request = NodeRequest::Append {
        object: ObjectId::column(FileId(5), 1, 0, 0),
        offset_bytes,
        payload,
        fence: Epoch(3),
    };
    let call = Call {
        id: CallId(9),
        deadline: NOW + Duration::from_secs(1),
        request,
    };
    let frame = Frame::NodeCall {
        from: Port::Router,
        to: NodeId(4),
        call,
        capability: None,
        flow: None,
    };
    Message::Frame(frame.by(Epoch(7)))
}

fn bytes_of(message: &Message) -> Bytes {
    message.encode(NOW).expect("a message").to_bytes()
}

/// The message with another byte at a place, and its checksum made right.
fn forged(message: &Message, at: usize, byte: u8) -> Bytes {
    let mut bytes = bytes_of(message).to_vec();
    bytes[at] = byte;
    let payload = u32::from_le_bytes(bytes[12..16].try_into().expect("four"));
    let body_end = bytes.len() - usize::try_from(payload).expect("few");
    let covered = [&bytes[..20], &bytes[HEADER_BYTES..body_end]].concat();
    bytes[20..24].copy_from_slice(&crc32c(&covered).to_le_bytes());
    bytes.into()
}

/// Goal: every message comes out as it went in, with many values.
#[test]
fn every_message_is_read_as_it_was_written() {
    for seed in 0..50 {
        for message in samples::messages(&mut Dice::new(seed)) {
            let again = Message::decode(NOW, &bytes_of(&message));
            assert_eq!(again, Ok(Some(message)), "seed {seed}");
        }
    }
}

/// Goal: whoever changes what is encoded raises the version of the protocol
/// (and writes the new sum here).
#[test]
fn another_encoding_is_another_version() {
    let mut dice = Dice::new(1);
    let all: Vec<u8> = samples::messages(&mut dice)
        .iter()
        .flat_map(bytes_of)
        .collect();
    assert_eq!((PROTOCOL_VERSION, crc32c(&all)), GOLDEN);
}

/// Goal: the samples leave no kind of message out. A new kind does not compile
/// here until it has a number, and fails until it has a sample.
#[test]
fn samples_are_of_every_kind() {
    fn all_of<T>(samples: &[T], number: fn(&T) -> usize, count: usize) {
        let seen: BTreeSet<usize> = samples.iter().map(number).collect();
        assert_eq!(seen, (0..count).collect());
    }
    let dice = &mut Dice::new(3);
    all_of(&samples::node_requests(dice), number_of_request, 21);
    all_of(&samples::node_answers(dice), number_of_answer, 15);
    all_of(&samples::node_errors(dice), number_of_error, 16);
    all_of(&samples::access_errors(dice), number_of_access_error, 11);
    all_of(&samples::site_operations(dice), number_of_operation, 35);
    all_of(&samples::lock_operations(dice), number_of_lock, 11);
    all_of(&samples::site_answers(dice), number_of_site_answer, 23);
    all_of(&samples::site_errors(dice), number_of_site_error, 25);
}

fn number_of_request(of: &NodeRequest) -> usize {
    match of {
        NodeRequest::Create { .. } => 0,
        NodeRequest::Read { .. } => 1,
        NodeRequest::Write { .. } => 2,
        NodeRequest::Commit { .. } => 3,
        NodeRequest::Append { .. } => 4,
        NodeRequest::Seal { .. } => 5,
        NodeRequest::Truncate { .. } => 6,
        NodeRequest::Zero { .. } => 7,
        NodeRequest::Remove { .. } => 8,
        NodeRequest::Repair { .. } => 9,
        NodeRequest::Stat { .. } => 10,
        NodeRequest::List { .. } => 11,
        NodeRequest::Changes { .. } => 12,
        NodeRequest::Pin { .. } => 13,
        NodeRequest::Unpin { .. } => 14,
        NodeRequest::Ahead { .. } => 15,
        NodeRequest::SetAttributes { .. } => 16,
        NodeRequest::Mapped { .. } => 17,
        NodeRequest::Share { .. } => 18,
        NodeRequest::Exchange { .. } => 19,
        NodeRequest::Copy { .. } => 20,
    }
}

fn number_of_answer(of: &NodeAnswer) -> usize {
    match of {
        NodeAnswer::Done { .. } => 0,
        NodeAnswer::Read { .. } => 1,
        NodeAnswer::Written { .. } => 2,
        NodeAnswer::Committed => 3,
        NodeAnswer::End { .. } => 4,
        NodeAnswer::Stat(..) => 5,
        NodeAnswer::List { .. } => 6,
        NodeAnswer::Changes(..) => 7,
        NodeAnswer::Pinned { .. } => 8,
        NodeAnswer::Unpinned => 9,
        NodeAnswer::Ahead => 10,
        NodeAnswer::Held { .. } => 11,
        NodeAnswer::Mapped(..) => 12,
        NodeAnswer::Shared { .. } => 13,
        NodeAnswer::Differs { .. } => 14,
    }
}

fn number_of_error(of: &NodeError) -> usize {
    match of {
        NodeError::NoObject => 0,
        NodeError::NoSpace => 1,
        NodeError::Busy { .. } => 2,
        NodeError::Unavailable { .. } => 3,
        NodeError::Media { .. } => 4,
        NodeError::Fenced { .. } => 5,
        NodeError::StaleTable { .. } => 6,
        NodeError::StaleGeneration { .. } => 7,
        NodeError::WrongEnd { .. } => 8,
        NodeError::VersionGone => 9,
        NodeError::UnknownPin => 10,
        NodeError::Lost { .. } => 11,
        NodeError::Invalid(..) => 12,
        NodeError::Refused(..) => 13,
        NodeError::Unclear => 14,
        NodeError::Source(..) => 15,
    }
}

fn number_of_access_error(of: &AccessError) -> usize {
    match of {
        AccessError::Revoked { .. } => 0,
        AccessError::Role { .. } => 1,
        AccessError::Name { .. } => 10,
        AccessError::NotForGateways => 2,
        AccessError::Missing => 3,
        AccessError::OtherHolder { .. } => 4,
        AccessError::OtherFile => 5,
        AccessError::Rights => 6,
        AccessError::UnknownMinter { .. } => 7,
        AccessError::Expired { .. } => 8,
        AccessError::Forged => 9,
    }
}

fn number_of_operation(of: &SiteOperation) -> usize {
    match of {
        SiteOperation::GetAttributes { .. } => 0,
        SiteOperation::SetAttributes { .. } => 1,
        SiteOperation::Lookup { .. } => 2,
        SiteOperation::LookupParent { .. } => 3,
        SiteOperation::Access { .. } => 4,
        SiteOperation::ReadLink { .. } => 5,
        SiteOperation::Create { .. } => 6,
        SiteOperation::MakeDirectory { .. } => 7,
        SiteOperation::MakeSymlink { .. } => 8,
        SiteOperation::MakeNode { .. } => 9,
        SiteOperation::Remove { .. } => 10,
        SiteOperation::RemoveDirectory { .. } => 11,
        SiteOperation::Rename { .. } => 12,
        SiteOperation::Link { .. } => 13,
        SiteOperation::ReadDirectory { .. } => 14,
        SiteOperation::Space { .. } => 15,
        SiteOperation::SetQuota { .. } => 16,
        SiteOperation::RemoveQuota { .. } => 17,
        SiteOperation::Read { .. } => 18,
        SiteOperation::Write { .. } => 19,
        SiteOperation::Commit { .. } => 20,
        SiteOperation::Open { .. } => 21,
        SiteOperation::PushAttributes { .. } => 22,
        SiteOperation::Locks { .. } => 23,
        SiteOperation::Within { .. } => 24,
        SiteOperation::Transaction { .. } => 25,
        SiteOperation::Census { .. } => 26,
        SiteOperation::Repair { .. } => 27,
        SiteOperation::Prove { .. } => 28,
        SiteOperation::Names { .. } => 29,
        SiteOperation::Locate { .. } => 30,
        SiteOperation::Zero { .. } => 31,
        SiteOperation::Mapped { .. } => 32,
        SiteOperation::Exchange { .. } => 33,
        SiteOperation::Copy { .. } => 34,
    }
}

fn number_of_lock(of: &LockOperation) -> usize {
    match of {
        LockOperation::Test(..) => 0,
        LockOperation::Lock(..) => 1,
        LockOperation::Cancel(..) => 2,
        LockOperation::Unlock(..) => 3,
        LockOperation::Share(..) => 4,
        LockOperation::Unshare(..) => 5,
        LockOperation::Forget(..) => 6,
        LockOperation::Told(..) => 7,
        LockOperation::GrantAnswered(..) => 8,
        LockOperation::List => 9,
        LockOperation::Release(..) => 10,
    }
}

fn number_of_site_answer(of: &SiteAnswer) -> usize {
    match of {
        SiteAnswer::Done => 0,
        SiteAnswer::Found { .. } => 1,
        SiteAnswer::Access { .. } => 2,
        SiteAnswer::Link { .. } => 3,
        SiteAnswer::Directory { .. } => 4,
        SiteAnswer::Space(..) => 5,
        SiteAnswer::Quota(..) => 6,
        SiteAnswer::Read { .. } => 7,
        SiteAnswer::Written { .. } => 8,
        SiteAnswer::Committed => 9,
        SiteAnswer::Opened { .. } => 10,
        SiteAnswer::NotLocked(..) => 11,
        SiteAnswer::Locked(..) => 12,
        SiteAnswer::Elsewhere(..) => 13,
        SiteAnswer::Above { .. } => 14,
        SiteAnswer::Prepared(..) => 15,
        SiteAnswer::Part { .. } => 16,
        SiteAnswer::Census(..) => 17,
        SiteAnswer::Names(..) => 18,
        SiteAnswer::Located { .. } => 19,
        SiteAnswer::Mapped(..) => 20,
        SiteAnswer::Differs { .. } => 21,
        SiteAnswer::Unreadable => 22,
    }
}

fn number_of_site_error(of: &SiteError) -> usize {
    match of {
        SiteError::NotOwner => 0,
        SiteError::NotFound => 1,
        SiteError::Io => 2,
        SiteError::AccessDenied => 3,
        SiteError::Exists => 4,
        SiteError::CrossDevice => 5,
        SiteError::NotDirectory => 6,
        SiteError::IsDirectory => 7,
        SiteError::Invalid => 8,
        SiteError::FileTooBig => 9,
        SiteError::NoSpace => 10,
        SiteError::Quota => 11,
        SiteError::TooManyLinks => 12,
        SiteError::NameTooLong => 13,
        SiteError::NotEmpty => 14,
        SiteError::Stale => 15,
        SiteError::BadCookie => 16,
        SiteError::NotSync => 17,
        SiteError::BadType => 18,
        SiteError::Busy => 19,
        SiteError::Lost { .. } => 20,
        SiteError::Moved => 21,
        SiteError::Unanswered => 22,
        SiteError::Refused => 23,
        SiteError::NotProven => 24,
    }
}

/// Goal: a message is the same however the stream is cut, at each single byte.
#[test]
fn a_message_cut_at_every_byte_is_the_same() {
    let mut dice = Dice::new(7);
    for message in samples::messages(&mut dice) {
        let bytes = bytes_of(&message);
        let cuts = (1..bytes.len()).filter(|cut| *cut < 300 || cut % 97 == 0);
        for cut in cuts {
            let mut reader = FrameReader::new();
            reader.trust();
            let mut begin = bytes.slice(..cut);
            assert_eq!(reader.next_message(NOW, &mut begin), Ok(None), "at {cut}");
            let mut end = bytes.slice(cut..);
            let read = reader.next_message(NOW, &mut end);
            assert_eq!(read.as_ref(), Ok(&Some(message.clone())), "at {cut}");
        }
    }
}

fn deadline(read: Option<Message>) -> Time {
    match read {
        Some(Message::Frame(sent)) => match sent.frame {
            Frame::NodeCall { call, .. } => call.deadline,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Goal: a deadline travels as what is left of it, whatever the clocks show.
#[test]
fn deadlines_travel_as_the_time_that_is_left() {
    let message = append(0, Payload::new());
    let bytes = message.encode(NOW).expect("a message").to_bytes();
    let there = Time::from_secs(50);
    let read = Message::decode(there, &bytes).expect("sound");
    assert_eq!(deadline(read), there + Duration::from_secs(1));
    let late = message.encode(Time::from_secs(2000)).expect("a message");
    let read = Message::decode(there, &late.to_bytes()).expect("sound");
    assert_eq!(deadline(read), there);
}

/// Goal: sending shares the payload's memory, receiving places its blocks on
/// block boundaries, however it is cut.
#[test]
fn payloads_are_shared_when_sent_and_aligned_when_received() {
    let data = Bytes::from(
        (0..20_000u32)
            .map(|at| at.to_le_bytes()[0])
            .collect::<Vec<u8>>(),
    );
    for offset in [0, 1, 4095, 4096, 123_456_789] {
        let message = append(offset, Payload::from(data.clone()));
        let encoded = message.encode(NOW).expect("a message");
        assert_eq!(encoded.payload.pieces()[0].as_ptr(), data.as_ptr());
        let mut reader = FrameReader::new();
        reader.trust();
        let mut read = None;
        for mut chunk in encoded.to_bytes().chunks(777).map(Bytes::copy_from_slice) {
            read = reader.next_message(NOW, &mut chunk).expect("sound");
        }
        let Some(Message::Frame(sent)) = &read else {
            panic!("not complete");
        };
        let [piece] = sent.frame.payload().expect("bytes").pieces() else {
            panic!("in pieces");
        };
        let place = u64::try_from(piece.as_ptr().addr()).expect("small");
        assert_eq!(place % 4096, offset % 4096);
        assert_eq!(read, Some(message));
    }
}

/// Goal: no flipped bit gets through, and none makes the reader fail otherwise.
#[test]
fn every_flipped_bit_is_noticed() {
    let message = append(7, Payload::from(Bytes::from_static(b"some bytes")));
    let bytes = bytes_of(&message);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match Message::decode(NOW, &damaged.into()) {
            Ok(Some(read)) => panic!("bit {bit}: {read:?}"),
            // A length has become larger: the rest never comes.
            Ok(None) => assert!((64..128).contains(&bit), "bit {bit}"),
            Err(_) => {}
        }
    }
}

/// Goal: what is wrong has a name, and lengths are judged by the header alone,
/// before anything is received or allocated for them.
#[test]
fn what_is_wrong_is_said() {
    let message = append(0, Payload::from(Bytes::from_static(b"bytes")));
    let read = |bytes: Bytes| Message::decode(NOW, &bytes).expect_err("wrong");
    assert_eq!(
        read(Bytes::from_static(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
        FrameError::Magic(*b"GET ")
    );
    assert_eq!(read(forged(&message, 4, 2)), FrameError::Format(2));
    assert_eq!(read(forged(&message, 5, 99)), FrameError::Kind(99));
    assert_eq!(read(forged(&message, 7, 1)), FrameError::Flags(0x100));
    let header = |at: usize, length: usize| {
        let mut bytes = bytes_of(&message)[..HEADER_BYTES].to_vec();
        let length = u32::try_from(length).expect("small");
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Bytes::from(bytes)
    };
    let too_long = read(header(8, LINK_BODY_BYTES_MAX + 1));
    assert!(matches!(too_long, FrameError::BodyTooLong { .. }));
    let too_long = read(header(12, OBJECT_IO_BYTES_MAX + 1));
    assert!(matches!(too_long, FrameError::PayloadTooLong { .. }));
    let last = bytes_of(&message).len() - 1;
    let payload = read(forged(&message, last, 0));
    assert!(matches!(payload, FrameError::PayloadChecksum { .. }));
    // A port that does not exist.
    let port = read(forged(&message, HEADER_BYTES, 200));
    assert!(matches!(port, FrameError::Body { .. }), "{port}");
    // A payload behind a message that has none.
    let read_of = |kind| read(forged(&message, 5, kind));
    assert!(matches!(read_of(4), FrameError::Body { .. }));
    for error in [too_long, payload, port] {
        assert!(!error.to_string().is_empty());
    }
}

/// Goal: a payload cannot hide behind a message that carries none.
#[test]
fn a_payload_behind_a_message_without_one_is_refused() {
    let mut bytes = bytes_of(&Message::Ping).to_vec();
    bytes[12] = 1;
    let sum = crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&sum.to_le_bytes());
    bytes.push(7);
    let read = Message::decode(NOW, &bytes.into());
    assert_eq!(read, Err(FrameError::NoPayload("ping")));
}

/// Goal: a stranger gets no more memory than a greeting takes.
#[test]
fn strangers_are_given_little_room() {
    let message = append(0, Payload::from(Bytes::from(vec![0; 5000])));
    let mut reader = FrameReader::new();
    let read = reader.next_message(NOW, &mut bytes_of(&message));
    let expected = FrameError::PayloadTooLong {
        bytes: 5000,
        bytes_max: 0,
    };
    assert_eq!(read, Err(expected));
    let mut long = bytes_of(&Message::Ping).to_vec();
    let length = u32::try_from(LINK_HELLO_BYTES_MAX + 1).expect("small");
    long[8..12].copy_from_slice(&length.to_le_bytes());
    let read = FrameReader::new().next_message(NOW, &mut long.into());
    assert!(matches!(read, Err(FrameError::BodyTooLong { .. })));
}

/// Goal: what no host would take is not sent either.
#[test]
fn too_long_messages_are_not_sent() {
    let message = append(
        0,
        Payload::from(Bytes::from(vec![0; OBJECT_IO_BYTES_MAX + 1])),
    );
    let error = message.encode(NOW).expect_err("too long");
    assert!(matches!(
        error,
        EncodeError::TooLong {
            part: "payload",
            ..
        }
    ));
    let objects = vec![ObjectId::column(FileId(u64::MAX), 1, 0, 0); LINK_BODY_BYTES_MAX / 14];
    let outcome = Ok(NodeAnswer::List {
        objects,
        more: false,
    });
    let list = Frame::NodeReply {
        from: NodeId(1),
        to: Port::Router,
        reply: NodeReply {
            id: CallId(1),
            outcome,
        },
    };
    let error = Message::Frame(list.by(Epoch(7)))
        .encode(NOW)
        .expect_err("too long");
    assert!(matches!(error, EncodeError::TooLong { part: "body", .. }));
}

/// Goal: no bytes at all make the reader fail: random ones, and messages with
/// random bytes in them.
#[test]
fn garbage_is_survived() {
    let mut dice = Dice::new(11);
    let messages = samples::messages(&mut dice);
    for _ in 0..3000 {
        let mut bytes = vec![dice.eight()[0]];
        match dice.flag() {
            true => bytes.extend(dice.bytes(500)),
            false => {
                let at = dice.below(messages.len());
                bytes.extend(bytes_of(&messages[at]));
                for _ in 0..=dice.below(4) {
                    let at = dice.below(bytes.len());
                    bytes[at] = dice.eight()[0];
                }
            }
        }
        link_frame(&bytes);
    }
}
