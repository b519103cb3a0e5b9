//! Messages between hosts: samples of every kind, and the target.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::NAME_BYTES_MAX;
use crossdock_link::{
    Credit, Frame, FrameReader, Hello, Message, Refusal, RefusalKind, Role, Welcome,
};
use crossdock_names::{
    Epoch, FileCapability, FileId, FileRef, HandleKey, HostId, Incarnation, MintingKey, NodeId,
    ObjectClass, ObjectId, Proof, ProofKey, Rights, Scope, SiteId, Version,
};
use crossdock_peer::{
    AccessError, Call, CallId, Caller, ChangedRange, ChangesPage, CopySource, DefragWord,
    DuplicateKey, Flow, KeptAsk, KeptPin, LayoutWord, LeaseId, MappedRanges, NodeAnswer, NodeError,
    NodeReply, NodeRequest, ObjectStat, Order, PinId, Port, Promise, ReadVersion, Recall, Sending,
    SiteReply, SiteRequest, SourceError, Stability, Transfer, Transport, TunnelSecret,
    WriteContext, WriterId,
};
use crossdock_types::{Payload, Time, WallTime};

use crate::Dice;

mod site;

use site::weak_cache;
pub use site::{lock_operations, notices, site_answers, site_errors, site_operations};

/// When samples are encoded and decoded.
pub const NOW: Time = Time::from_secs(1000);

/// Every message of a link: all kinds of requests, answers and errors.
#[must_use]
pub fn messages(dice: &mut Dice) -> Vec<Message> {
    let mut all = vec![
        Message::Hello(Hello {
            version_min: 1,
            version_max: 2,
            ensemble: dice.u64(),
            host: HostId(dice.u64()),
            role: Role::Node as u8,
            connection: dice.u64(),
            table_epoch: Epoch(dice.u64()),
            call_window_bytes: dice.u64(),
            reply_window_bytes: dice.u64(),
            expected: Some(HostId(3)),
        }),
        Message::Welcome(Welcome {
            version: 1,
            ensemble: dice.u64(),
            host: HostId(dice.u64()),
            role: Role::All as u8,
            table_epoch: Epoch(dice.u64()),
            call_window_bytes: dice.u64(),
            reply_window_bytes: dice.u64(),
        }),
        Message::Refuse(Refusal {
            kind: RefusalKind::Superseded as u8,
            text: "no".to_owned(),
            connection: dice.u64(),
        }),
        Message::Ping,
        Message::Pong,
        Message::Credit(Credit {
            call_bytes: dice.u64(),
            reply_bytes: dice.u64(),
        }),
    ];
    for frame in frames(dice) {
        all.push(Message::Frame(frame.by(Epoch(dice.u64()))));
    }
    all
}

/// Every frame of a link.
#[must_use]
pub fn frames(dice: &mut Dice) -> Vec<Frame> {
    let mut all = Vec::new();
    for request in node_requests(dice) {
        let call = call(dice, request);
        let (from, to) = (port(dice), NodeId(dice.u64()));
        let capability = dice.maybe(capability);
        all.push(Frame::NodeCall {
            from,
            to,
            call,
            capability,
            flow: dice.maybe(flow).map(Box::new),
        });
    }
    let answers = node_answers(dice).into_iter().map(Ok);
    let refused = access_errors(dice).into_iter().map(NodeError::Refused);
    let errors = node_errors(dice).into_iter().chain(refused);
    for outcome in answers.chain(errors.map(Err)) {
        let id = CallId(dice.u64());
        let (from, to) = (NodeId(dice.u64()), port(dice));
        let reply = NodeReply { id, outcome };
        all.push(Frame::NodeReply { from, to, reply });
    }
    let (from, to) = (port(dice), NodeId(dice.u64()));
    let id = CallId(dice.u64());
    all.push(Frame::CancelNode { from, to, id });
    let by_micros = dice.u64();
    all.push(Frame::PostponeNode {
        from,
        to,
        id,
        by_micros,
    });
    all.push(Frame::ResumeNode { from, to, id });
    all.push(Frame::DiskProfile {
        node: to,
        positioning_nanos: dice.u64(),
        sequential_bytes_per_second: dice.u64(),
        load_percent: dice.u32(),
    });
    all.push(Frame::Defrag {
        node: to,
        word: Box::new(defrag_word(dice)),
    });
    for operation in site_operations(dice) {
        let request = SiteRequest {
            caller: Caller {
                uid: dice.u32(),
                gid: dice.u32(),
                groups: (0..dice.below(17)).map(|_| dice.u32()).collect(),
            },
            duplicate: dice.maybe(|dice| DuplicateKey(sixteen(dice))),
            operation,
        };
        let (from, to) = (port(dice), SiteId(u16::from(dice.eight()[0])));
        let call = call(dice, request);
        let proofs = proofs(dice);
        all.push(Frame::SiteCall {
            from,
            to,
            call: Box::new(call),
            proofs,
        });
    }
    let answers = site_answers(dice).into_iter().map(Ok);
    for outcome in answers.chain(site_errors(dice).into_iter().map(Err)) {
        let to = port(dice);
        let reply = SiteReply {
            id: CallId(dice.u64()),
            outcome,
            subject: weak_cache(dice),
            second: weak_cache(dice),
        };
        let proofs = proofs(dice);
        let reply = Box::new(reply);
        all.push(Frame::SiteReply { to, reply, proofs });
    }
    all.extend(notices(dice).into_iter().map(Frame::Lock));
    all.push(Frame::Renew { at: dice.u64() });
    all.push(Frame::Granted { at: dice.u64() });
    all.push(Frame::AskClock { at: dice.u64() });
    all.push(Frame::Clock {
        at: dice.u64(),
        wall: WallTime(dice.u64().cast_signed()),
    });
    let key = [sixteen(dice), sixteen(dice)].concat();
    all.extend(key.try_into().ok().map(MintingKey).map(Frame::Minting));
    let key = [sixteen(dice), sixteen(dice)].concat();
    let key = key.try_into().ok().map(|key| ProofKey { id: 1, key });
    all.extend(key.map(Frame::Proving));
    let key = [sixteen(dice), sixteen(dice)].concat();
    let key = key.try_into().ok().map(|key| HandleKey { id: 1, key });
    all.extend(key.map(Frame::Handling));
    all.push(Frame::Recall(Recall {
        file: FileRef {
            id: FileId(dice.u64()),
            generation: dice.u32(),
        },
        lease: LeaseId(dice.u64()),
    }));
    all.push(Frame::Space {
        node: NodeId(dice.u64()),
        total_bytes: dice.u64(),
        free_bytes: dice.u64(),
        load_percent: dice.u32(),
    });
    let key = [sixteen(dice), sixteen(dice)].concat();
    let transfers = [
        key.try_into().ok().map(|key| Transfer::Tunnel {
            address: flow(dice).source,
            secret: TunnelSecret(key),
        }),
        Some(Transfer::End(flow(dice))),
        Some(Transfer::Release(
            (0..dice.below(9)).map(|_| dice.u64()).collect(),
        )),
        Some(Transfer::Unfilled(
            (0..dice.below(9)).map(|_| dice.u64()).collect(),
        )),
        Some(Transfer::Keeps(
            (0..dice.below(9)).map(|_| kept_file(dice)).collect(),
        )),
        Some(Transfer::Ask(Box::new(kept_ask(dice)))),
        Some(Transfer::Lent {
            id: CallId(dice.u64()),
            pin: dice.maybe(|dice| KeptPin {
                pin: dice.u64(),
                version: Version(dice.u64()),
            }),
        }),
    ];
    all.extend(transfers.into_iter().flatten().map(Frame::Transfer));
    let old = SocketAddr::from((Ipv4Addr::from_bits(dice.u32()), 2049));
    let new = SocketAddr::from((Ipv6Addr::from(sixteen(dice)), 2049));
    for at in [old, new] {
        let clients = vec![at; dice.below(4)];
        all.push(Frame::Clients { at, clients });
    }
    all
}

fn flow(dice: &mut Dice) -> Flow {
    Flow {
        transport: dice.one_of(&[Transport::Tcp, Transport::Udp]),
        source: SocketAddr::from((Ipv4Addr::from_bits(dice.u32()), 80)),
        destination: SocketAddr::from((Ipv6Addr::from(sixteen(dice)), 4000)),
    }
}

fn defrag_word(dice: &mut Dice) -> DefragWord {
    DefragWord {
        order: dice.u64(),
        is_looking: dice.one_of(&[false, true]),
        is_yielding: dice.one_of(&[false, true]),
        found: layout_word(dice),
        left: layout_word(dice),
        moved_blocks: dice.u64(),
        kept_blocks: [dice.u64(), dice.u64(), dice.u64(), dice.u64()],
    }
}

fn layout_word(dice: &mut Dice) -> LayoutWord {
    LayoutWord {
        objects: dice.u64(),
        blocks: dice.u64(),
        runs: dice.u64(),
        seek_blocks: dice.u64(),
    }
}

/// Of as many files as a rename is about, or of none.
fn proofs(dice: &mut Dice) -> Vec<Proof> {
    (0..dice.below(3)).map(|_| site::proof(dice)).collect()
}

fn call<R>(dice: &mut Dice, request: R) -> Call<R> {
    let left = Duration::from_millis(u64::from(dice.u32()));
    Call {
        id: CallId(dice.u64()),
        deadline: NOW + left,
        request,
    }
}

fn port(dice: &mut Dice) -> Port {
    match dice.below(5) {
        0 => Port::Router,
        1 => Port::Site(SiteId(7)),
        2 => Port::Node(NodeId(dice.u64())),
        3 => Port::Copy(NodeId(dice.u64())),
        _ => Port::Host,
    }
}

fn sixteen(dice: &mut Dice) -> [u8; 16] {
    let (low, high) = (dice.u64(), dice.u64());
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

pub(crate) fn object(dice: &mut Dice) -> ObjectId {
    let (placement, number) = (FileId(dice.u64()), dice.u32());
    match dice.below(4) {
        0 => ObjectId::of_site(ObjectClass::SiteLog, SiteId(3), number),
        1 => ObjectId::of_site(ObjectClass::Checkpoint, SiteId(255), number),
        2 => ObjectId::of_site(ObjectClass::SmallFiles, SiteId(0), number),
        _ => ObjectId::column(placement, number, 1, 2),
    }
}

fn context(dice: &mut Dice) -> WriteContext {
    WriteContext {
        table_epoch: Epoch(dice.u64()),
        writer: WriterId(dice.u64()),
        site_epoch: Epoch(dice.u64()),
        truncate_generation: dice.u64(),
        snapshot_sequence: dice.u64(),
        sending: Sending {
            number: dice.u64(),
            in_doubt_since: dice.flag().then(|| Epoch(dice.u64())),
            answered_below: dice.u64(),
        },
    }
}

fn order(dice: &mut Dice) -> Order {
    match dice.flag() {
        true => Order::Primary,
        false => Order::Given(Version(dice.u64())),
    }
}

fn stability(dice: &mut Dice) -> Stability {
    dice.one_of(&[Stability::Unstable, Stability::Stable])
}

fn kept_file(dice: &mut Dice) -> (FileRef, WallTime) {
    let file = FileRef {
        id: FileId(dice.u64()),
        generation: dice.u32(),
    };
    (file, WallTime(dice.u64().cast_signed()))
}

fn kept_ask(dice: &mut Dice) -> KeptAsk {
    let (file, changed) = kept_file(dice);
    KeptAsk {
        id: CallId(dice.u64()),
        flow: flow(dice),
        file,
        changed,
        offset_bytes: dice.u64(),
        length_bytes: dice.u64(),
    }
}

/// In two pieces, if there are so many bytes.
fn payload(dice: &mut Dice) -> Payload {
    let mut payload = Payload::from(Bytes::from_static(dice.bytes(9000)));
    payload.push(Bytes::from_static(dice.bytes(40)));
    payload
}

fn bytes(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.bytes(NAME_BYTES_MAX))
}

/// One request of each kind.
#[must_use]
pub fn node_requests(dice: &mut Dice) -> Vec<NodeRequest> {
    let versions = [
        ReadVersion::Current,
        ReadVersion::NotAfter(Version(dice.u64())),
        ReadVersion::Pinned(PinId(dice.u64())),
        ReadVersion::MappedUnder(dice.u64()),
        ReadVersion::Exactly(Version(dice.u64())),
        ReadVersion::AsOf {
            changed: Version(dice.u64()),
            as_of: Version(dice.u64()),
        },
    ];
    let mut all: Vec<NodeRequest> = versions
        .map(|version| NodeRequest::Read {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            version,
            patience_ms: 1500,
        })
        .into();
    all.extend([
        NodeRequest::Create {
            object: object(dice),
            reservation_bytes: dice.u64(),
            attributes: bytes(dice),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Write {
            object: object(dice),
            offset_bytes: dice.u64(),
            payload: payload(dice),
            stability: stability(dice),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Commit {
            object: object(dice),
            incarnation: Incarnation(dice.u64()),
        },
        NodeRequest::Append {
            object: object(dice),
            offset_bytes: dice.u64(),
            payload: payload(dice),
            fence: Epoch(dice.u64()),
        },
        NodeRequest::Seal {
            object: object(dice),
            fence: Epoch(dice.u64()),
        },
        NodeRequest::Truncate {
            object: object(dice),
            size_bytes: dice.u64(),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Zero {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Remove {
            object: object(dice),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Repair {
            object: object(dice),
            offset_bytes: dice.u64(),
            payload: payload(dice),
            version: Version(dice.u64()),
        },
        NodeRequest::Stat {
            object: object(dice),
        },
        NodeRequest::List {
            class: ObjectClass::Column,
            placement: dice.maybe(Dice::u64),
            after: dice.maybe(object),
            limit: dice.below(4096),
        },
        NodeRequest::Pin {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            version: dice.maybe(|dice| Version(dice.u64())),
            lease_ms: dice.u32(),
        },
        NodeRequest::Changes {
            since: Version(dice.u64()),
            after: dice.maybe(object),
        },
        NodeRequest::Unpin {
            pin: PinId(dice.u64()),
        },
        NodeRequest::Ahead {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            is_wanted: dice.flag(),
        },
        NodeRequest::Mapped {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            truncate_generation: dice.u64(),
        },
        NodeRequest::SetAttributes {
            object: object(dice),
            reservation_bytes: dice.u64(),
            attributes: bytes(dice),
            context: context(dice),
            order: order(dice),
        },
        NodeRequest::Share {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            version: Version(dice.u64()),
            seconds: dice.u32(),
        },
        NodeRequest::Exchange {
            object: object(dice),
            offset_bytes: dice.u64(),
            payload: payload(dice),
            context: context(dice),
        },
        NodeRequest::Copy {
            object: object(dice),
            offset_bytes: dice.u64(),
            source: Box::new(CopySource {
                object: object(dice),
                offset_bytes: dice.u64(),
                length_bytes: dice.u64(),
                version: ReadVersion::MappedUnder(dice.u64()),
                capability: dice.maybe(capability),
            }),
            stability: stability(dice),
            frees_zeros: dice.flag(),
            context: context(dice),
        },
    ]);
    all
}

fn mapped(dice: &mut Dice) -> MappedRanges {
    MappedRanges {
        runs: (0..dice.below(9)).map(|_| dice.u64()..dice.u64()).collect(),
        end_bytes: dice.u64(),
    }
}

/// One answer of each kind.
#[must_use]
pub fn node_answers(dice: &mut Dice) -> Vec<NodeAnswer> {
    let version = Version(dice.u64());
    let incarnation = Incarnation(dice.u64());
    vec![
        NodeAnswer::Done { version },
        NodeAnswer::Read {
            payload: payload(dice),
            version,
        },
        NodeAnswer::Written {
            version,
            incarnation,
        },
        NodeAnswer::Committed,
        NodeAnswer::End {
            size_bytes: dice.u64(),
        },
        NodeAnswer::Stat(ObjectStat {
            size_bytes: dice.u64(),
            allocated_bytes: dice.u64(),
            version,
            truncate_generation: dice.u64(),
            fence: Epoch(dice.u64()),
            attributes: bytes(dice),
        }),
        NodeAnswer::List {
            objects: (0..dice.below(9)).map(|_| object(dice)).collect(),
            more: dice.flag(),
        },
        NodeAnswer::Changes(ChangesPage {
            changes: (0..dice.below(9)).map(|_| changed(dice)).collect(),
            more_after: dice.maybe(object),
        }),
        NodeAnswer::Pinned {
            pin: PinId(dice.u64()),
            boot: incarnation,
            version,
        },
        NodeAnswer::Unpinned,
        NodeAnswer::Ahead,
        NodeAnswer::Mapped(mapped(dice)),
        NodeAnswer::Held {
            pin: dice.u64(),
            length_bytes: dice.u64(),
            version,
            promise: Box::new(Promise {
                as_of: Version(dice.u64()),
                right: dice.maybe(capability),
            }),
        },
        NodeAnswer::Shared {
            key: format!("0#{:x}", dice.u64()),
            attribute_key: dice.u32().to_string(),
        },
        NodeAnswer::Differs {
            at_bytes: dice.u64(),
        },
    ]
}

fn changed(dice: &mut Dice) -> ChangedRange {
    ChangedRange {
        object: object(dice),
        offset_bytes: dice.u64(),
        length_bytes: dice.u64(),
        version: Version(dice.u64()),
    }
}

/// One error of each kind.
#[must_use]
pub fn node_errors(dice: &mut Dice) -> Vec<NodeError> {
    let node = NodeId(dice.u64());
    vec![
        NodeError::NoObject,
        NodeError::NoSpace,
        NodeError::Busy {
            retry_after_ms: dice.u32(),
        },
        NodeError::Unavailable { node },
        NodeError::Media {
            node,
            what: "block 7: wrong checksum".to_owned(),
        },
        NodeError::Fenced {
            seen: Epoch(dice.u64()),
        },
        NodeError::StaleTable {
            current: Epoch(dice.u64()),
        },
        NodeError::StaleGeneration {
            current: dice.u64(),
        },
        NodeError::WrongEnd {
            size_bytes: dice.u64(),
        },
        NodeError::VersionGone,
        NodeError::UnknownPin,
        NodeError::Lost {
            current: Incarnation(dice.u64()),
        },
        NodeError::Invalid("an empty range".into()),
        NodeError::Refused(AccessError::Missing),
        NodeError::Unclear,
        NodeError::Source(SourceError::NoObject),
        NodeError::Source(SourceError::StaleGeneration {
            current: dice.u64(),
        }),
        NodeError::Source(SourceError::Media {
            node,
            what: "block 8: wrong checksum".to_owned(),
        }),
        NodeError::Source(SourceError::Other("fenced".to_owned())),
    ]
}

/// Every reason for which a node refuses a host.
#[must_use]
pub fn access_errors(dice: &mut Dice) -> Vec<AccessError> {
    let host = HostId(dice.u64());
    vec![
        AccessError::Revoked { host },
        AccessError::Role { host },
        AccessError::Name { host },
        AccessError::NotForGateways,
        AccessError::Missing,
        AccessError::OtherHolder { holder: host },
        AccessError::OtherFile,
        AccessError::Rights,
        AccessError::UnknownMinter { minter: host },
        AccessError::Expired {
            seconds: dice.u64(),
        },
        AccessError::Forged,
    ]
}

fn scope(dice: &mut Dice) -> Scope {
    match dice.flag() {
        true => Scope::Columns {
            placement: FileId(dice.u64()),
            generation: dice.u32(),
        },
        false => Scope::Range {
            object: object(dice),
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            version: Version(dice.u64()),
        },
    }
}

pub(crate) fn capability(dice: &mut Dice) -> FileCapability {
    FileCapability {
        rights: Rights(dice.eight()[0]),
        minter: HostId(dice.u64()),
        holder: HostId(dice.u64()),
        scope: scope(dice),
        expiry_seconds: dice.u64(),
        mac: sixteen(dice),
    }
}

/// [`FrameReader`]: what is a message is the same one again after encoding it,
/// and however the stream is cut into chunks, it gives the same messages and the
/// same error. The first byte seeds the cuts.
pub fn link_frame(input: &[u8]) {
    let &[seed, ref stream @ ..] = input else {
        return;
    };
    let stream = Bytes::copy_from_slice(stream);
    let mut dice = Dice::new(u64::from(seed));
    let mut whole = FrameReader::new();
    let mut cut = FrameReader::new();
    // An odd seed: a peer that is known.
    if seed % 2 == 1 {
        whole.trust();
        cut.trust();
    }
    let read = |reader: &mut FrameReader, next_bytes: &mut dyn FnMut() -> usize| {
        let (mut messages, mut rest) = (Vec::new(), stream.clone());
        while !rest.is_empty() {
            let mut chunk = rest.split_to(next_bytes().min(rest.len()));
            loop {
                match reader.next_message(NOW, &mut chunk) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break assert!(chunk.is_empty()),
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
        (messages, None)
    };
    let (expected, error) = read(&mut whole, &mut || usize::MAX);
    let (messages, same_error) = read(&mut cut, &mut || 1 + dice.below(40));
    assert_eq!((&messages, same_error), (&expected, error));
    for message in expected {
        let Ok(encoded) = message.encode(NOW) else {
            panic!("what was read cannot be written: {message:?}");
        };
        let again = Message::decode(NOW, &encoded.to_bytes());
        assert_eq!(again, Ok(Some(message)));
    }
}

/// A known peer's stream of each message, three at a time; and a stranger's.
pub(crate) fn link_frame_seeds() -> Vec<Vec<u8>> {
    let mut dice = Dice::new(5);
    let all = messages(&mut dice);
    let encoded = |message: &Message| match message.encode(NOW) {
        Ok(encoded) => encoded.to_bytes(),
        Err(error) => panic!("a sample cannot be encoded: {error}"),
    };
    let seed = |first: u8, messages: &[Message]| {
        let stream = messages.iter().flat_map(&encoded);
        std::iter::once(first).chain(stream).collect::<Vec<u8>>()
    };
    let mut seeds: Vec<Vec<u8>> = all.chunks(3).map(|three| seed(1, three)).collect();
    seeds.push(seed(0, &all[..6]));
    seeds
}
