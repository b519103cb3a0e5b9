//! Peers that are played by hand: what the router asks, in a form that can be
//! compared, and answers to it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{
    Epoch, FileCapability, FileId, FileRef, HostId, Incarnation, LayoutClass, MapFragment, NodeId,
    ObjectId, ReplicaSet, Rights, RoutingTable, SITES, SLOTS, SMALL_FILE_THRESHOLD_BYTES, Scope,
    SetId, SiteId, SiteRecord, Version,
};
use crossdock_peer::{
    Attributes, Call, CallId, Caller, Device, DuplicateKey, FileKind, FileLayout, FileLease,
    LeaseId, NodeAnswer, NodeError, NodeReply, NodeRequest, OpenFor, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest, Stability, WeakCache, WriterId,
};
use crossdock_router::{Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_types::{Payload, Time, WallTime};

pub(crate) const T: u64 = SMALL_FILE_THRESHOLD_BYTES;
pub(crate) const FILE: FileRef = FileRef {
    id: FileId(5),
    generation: 1,
};
pub(crate) const DEADLINE: Time = Time::from_secs(30);

pub(crate) fn secs(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// Two sets of two nodes; columns 0 and 1 of every slot are sets 0 and 1.
pub(crate) fn table(epoch: u64) -> Arc<RoutingTable> {
    let set = |first, second| ReplicaSet {
        epoch: Epoch(1),
        members: vec![NodeId(first), NodeId(second)],
    };
    Arc::new(RoutingTable {
        epoch: Epoch(epoch),
        sets: BTreeMap::from([(SetId(0), set(10, 11)), (SetId(1), set(20, 21))]),
        slots: vec![vec![SetId(0), SetId(1)]; SLOTS],
        sites: vec![
            SiteRecord {
                epoch: Epoch(1),
                set: SetId(0),
            };
            SITES
        ],
        spread: crossdock_names::Spread::default(),
        layout: crossdock_names::LayoutClass::default(),
        hosts: crossdock_names::Hosts::default(),
    })
}

pub(crate) fn router() -> Router {
    Router::new(RouterConfig::new(WriterId(77)), table(1))
}

pub(crate) fn attributes(size_bytes: u64) -> Attributes {
    Attributes {
        file: FILE,
        kind: FileKind::Regular,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size_bytes,
        used_bytes: size_bytes,
        device: Device::default(),
        accessed: WallTime(10),
        modified: WallTime(5),
        changed: WallTime(5),
    }
}

pub(crate) fn layout() -> FileLayout {
    FileLayout {
        class: LayoutClass::STRIPED,
        class_epoch: 0,
        placement: FILE.id,
        generation: 1,
        columns: 2,
        truncate_generation: 3,
        map: MapFragment::default(),
        capability: None,
    }
}

pub(crate) fn column(number: u16) -> ObjectId {
    ObjectId::column(FILE.id, 1, 0, number)
}

pub(crate) fn ask(router: &mut Router, now: Time, id: u64, operation: SiteOperation) {
    let request = SiteRequest {
        caller: Caller::root(),
        duplicate: None,
        operation,
    };
    let id = CallId(id);
    let call = Call {
        id,
        deadline: DEADLINE,
        request,
    };
    router.handle(now, RouterInput::Request(Box::new(call)));
}

pub(crate) fn read(offset_bytes: u64, length_bytes: u64) -> SiteOperation {
    SiteOperation::Read {
        file: FILE,
        offset_bytes,
        length_bytes,
        patience_ms: 0,
    }
}

pub(crate) fn write(offset_bytes: u64, bytes: Vec<u8>, stability: Stability) -> SiteOperation {
    SiteOperation::Write {
        file: FILE,
        offset_bytes,
        payload: Payload::from(Bytes::from(bytes)),
        stability,
    }
}

pub(crate) fn commit() -> SiteOperation {
    SiteOperation::Commit {
        file: FILE,
        incarnation: Incarnation(0),
    }
}

/// An effect in a form that can be compared, ids apart.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    SiteRead(u64, u64),
    SiteLocate(u64, u64),
    SiteWrite(u64, usize, Stability),
    SiteCommit(u64),
    OpenRead,
    OpenWrite(u64, u64),
    OpenFree(u64, u64),
    Push(u64, bool, Stability),
    Getattr,
    /// To how many bytes, if the file's ctime is that.
    Truncate(u64, Option<WallTime>),
    Read(u64, ObjectId, u64, u64),
    Write(u64, ObjectId, u64, usize, u64, u64),
    Commit(u64, ObjectId, u64),
    SiteZero(u64, u64),
    Zero(u64, ObjectId, u64, u64, u64),
    Mapped(u64, ObjectId, u64, u64),
    SiteExchange(u64, usize, Option<DuplicateKey>),
    /// At the end: its number, and by which table one was sent that may have been done.
    Exchange(u64, ObjectId, u64, usize, (u64, Option<u64>)),
    /// Of which column to which: first bytes, and how many, and whether zeros need no space.
    Copy(u64, (ObjectId, u64), (ObjectId, u64), u64, bool),
    Cancel(u64),
    Postpone(u64, Duration),
    Resume(u64),
    /// Of which gateway: first byte in the file, and how many.
    ReadKept(u64, u64, u64),
    Keeps(WallTime),
    Reply(u64, Result<SiteAnswer, SiteError>),
}

/// All effects, and the call ids of those that want an answer.
pub(crate) fn drain(router: &mut Router) -> (Vec<Seen>, Vec<CallId>) {
    let (mut seen, mut ids) = (Vec::new(), Vec::new());
    while let Some(effect) = router.poll_effect() {
        seen.push(match effect {
            RouterEffect::Site(site, call) => {
                assert_eq!((site, call.deadline), (SiteId(0), DEADLINE));
                ids.push(call.id);
                match call.request.operation {
                    SiteOperation::Exchange {
                        offset_bytes,
                        payload,
                        ..
                    } => Seen::SiteExchange(offset_bytes, payload.len(), call.request.duplicate),
                    operation => see_site(operation),
                }
            }
            RouterEffect::Node(node, call, _) | RouterEffect::ReadFor(_, node, call, _) => {
                assert_eq!(call.deadline, DEADLINE);
                ids.push(call.id);
                see_node(node, call.request)
            }
            RouterEffect::CancelNode(node, _) => Seen::Cancel(node.0),
            RouterEffect::PostponeNode(node, _, by) => Seen::Postpone(node.0, by),
            RouterEffect::ResumeNode(node, _) => Seen::Resume(node.0),
            RouterEffect::ReadKept(_, gateway, id, kept) => {
                ids.push(id);
                Seen::ReadKept(gateway.0, kept.offset_bytes, kept.length_bytes)
            }
            RouterEffect::Keeps(_, changed) => Seen::Keeps(changed),
            RouterEffect::Reply(routed) => Seen::Reply(routed.reply.id.0, routed.reply.outcome),
        });
    }
    (seen, ids)
}

pub(crate) fn see_site(operation: SiteOperation) -> Seen {
    match operation {
        SiteOperation::Read {
            offset_bytes,
            length_bytes,
            ..
        } => Seen::SiteRead(offset_bytes, length_bytes),
        SiteOperation::Locate {
            offset_bytes,
            length_bytes,
            ..
        } => Seen::SiteLocate(offset_bytes, length_bytes),
        SiteOperation::Write {
            offset_bytes,
            payload,
            stability,
            ..
        } => Seen::SiteWrite(offset_bytes, payload.len(), stability),
        SiteOperation::Zero {
            offset_bytes,
            length_bytes,
            ..
        } => Seen::SiteZero(offset_bytes, length_bytes),
        SiteOperation::Commit { incarnation, .. } => Seen::SiteCommit(incarnation.0),
        SiteOperation::Open { purpose, .. } => match purpose {
            OpenFor::Read { .. } => Seen::OpenRead,
            OpenFor::Write {
                offset_bytes,
                end_bytes,
            } => Seen::OpenWrite(offset_bytes, end_bytes),
            OpenFor::Free {
                offset_bytes,
                end_bytes,
            } => Seen::OpenFree(offset_bytes, end_bytes),
        },
        SiteOperation::PushAttributes {
            size_at_least_bytes,
            wrote,
            truncate_generation,
            stability,
            ..
        } => {
            assert_eq!(truncate_generation, 3);
            Seen::Push(size_at_least_bytes, wrote, stability)
        }
        SiteOperation::GetAttributes { .. } => Seen::Getattr,
        SiteOperation::SetAttributes { changes, guard, .. } => {
            Seen::Truncate(changes.size_bytes.expect("a size"), guard)
        }
        other => panic!("unexpected {other:?}"),
    }
}

pub(crate) fn see_node(node: NodeId, request: NodeRequest) -> Seen {
    match request {
        NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => Seen::Read(node.0, object, offset_bytes, length_bytes),
        NodeRequest::Write {
            object,
            offset_bytes,
            payload,
            stability,
            context,
            ..
        } => {
            assert_eq!(context.writer, WriterId(77));
            assert_ne!(stability, Stability::Data, "that is the router's business");
            let (epoch, generation) = (context.table_epoch.0, context.truncate_generation);
            Seen::Write(
                node.0,
                object,
                offset_bytes,
                payload.len(),
                epoch,
                generation,
            )
        }
        NodeRequest::Zero {
            object,
            offset_bytes,
            length_bytes,
            context,
            ..
        } => {
            assert_eq!(context.writer, WriterId(77));
            let generation = context.truncate_generation;
            Seen::Zero(node.0, object, offset_bytes, length_bytes, generation)
        }
        NodeRequest::Exchange {
            object,
            offset_bytes,
            payload,
            context,
        } => {
            assert_eq!(context.writer, WriterId(77));
            assert_eq!(context.truncate_generation, 3);
            let since = context.sending.in_doubt_since.map(|epoch| epoch.0);
            let number = (context.sending.number, since);
            Seen::Exchange(node.0, object, offset_bytes, payload.len(), number)
        }
        NodeRequest::Copy {
            object,
            offset_bytes,
            source,
            stability,
            frees_zeros,
            context,
        } => {
            assert_eq!(context.writer, WriterId(77));
            assert_eq!(context.truncate_generation, 3);
            assert_ne!(stability, Stability::Data, "that is the router's business");
            let from = (source.object, source.offset_bytes);
            let to = (object, offset_bytes);
            Seen::Copy(node.0, from, to, source.length_bytes, frees_zeros)
        }
        NodeRequest::Mapped {
            object,
            offset_bytes,
            length_bytes,
            truncate_generation: 3,
        } => Seen::Mapped(node.0, object, offset_bytes, length_bytes),
        NodeRequest::Commit {
            object,
            incarnation,
        } => Seen::Commit(node.0, object, incarnation.0),
        other => panic!("unexpected {other:?}"),
    }
}

pub(crate) fn effects(router: &mut Router) -> Vec<Seen> {
    drain(router).0
}

/// Asserts the effects and returns the ids to answer.
#[track_caller]
pub(crate) fn expect<const N: usize>(router: &mut Router, expected: Vec<Seen>) -> [CallId; N] {
    let (seen, ids) = drain(router);
    assert_eq!(seen, expected);
    ids.try_into().expect("as many calls as asserted")
}

pub(crate) fn site(
    router: &mut Router,
    id: CallId,
    outcome: Result<SiteAnswer, SiteError>,
    size: u64,
) {
    let subject = WeakCache {
        before: None,
        after: Some(attributes(size)),
    };
    let reply = SiteReply {
        id,
        outcome,
        subject,
        second: WeakCache::default(),
    };
    router.handle(secs(1), RouterInput::Site(Box::new(reply)));
}

pub(crate) fn opened(router: &mut Router, id: CallId, size: u64) {
    opened_by(router, id, size, None);
}

/// The same with what the nodes want to see.
pub(crate) fn opened_by(
    router: &mut Router,
    id: CallId,
    size: u64,
    capability: Option<FileCapability>,
) {
    let mut layout = layout();
    layout.capability = capability;
    let answer = SiteAnswer::Opened {
        layout,
        incarnation: Incarnation(1),
        lease: None,
    };
    site(router, id, Ok(answer), size);
}

/// A capability that ends then.
pub(crate) fn capability(expiry_seconds: u64) -> FileCapability {
    FileCapability {
        rights: Rights::READ,
        minter: HostId(1),
        holder: HostId(2),
        scope: Scope::Columns {
            placement: FILE.id,
            generation: 1,
        },
        expiry_seconds,
        mac: [0; 16],
    }
}

/// Asserts that one node is asked, and returns the id and what it was shown.
#[track_caller]
pub(crate) fn shown(router: &mut Router) -> (CallId, Option<FileCapability>) {
    match router.poll_effect() {
        Some(RouterEffect::Node(_, call, shown)) => (call.id, shown),
        other => panic!("unexpected {other:?}"),
    }
}

pub(crate) fn node(router: &mut Router, id: CallId, outcome: Result<NodeAnswer, NodeError>) {
    node_at(router, secs(1), id, outcome);
}

pub(crate) fn node_at(
    router: &mut Router,
    now: Time,
    id: CallId,
    outcome: Result<NodeAnswer, NodeError>,
) {
    router.handle(now, RouterInput::Node(NodeId(0), NodeReply { id, outcome }));
}

pub(crate) fn bytes_read(bytes: Vec<u8>) -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Read {
        payload: Payload::from(Bytes::from(bytes)),
        version: Version::NONE,
    })
}

pub(crate) fn written(incarnation: u64) -> Result<NodeAnswer, NodeError> {
    Ok(NodeAnswer::Written {
        version: Version::NONE,
        incarnation: Incarnation(incarnation),
    })
}

pub(crate) fn site_read(bytes: Vec<u8>, end_of_file: bool) -> SiteAnswer {
    SiteAnswer::Read {
        payload: Payload::from(Bytes::from(bytes)),
        end_of_file,
    }
}

pub(crate) fn site_written(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Written {
        incarnation: Incarnation(incarnation),
    }
}

pub(crate) fn len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

/// Writes one unstable byte into column 0 under the node's `incarnation`.
pub(crate) fn write_unstable(router: &mut Router, id: u64, incarnation: u64) {
    ask(router, secs(1), id, write(T, vec![1], Stability::Unstable));
    let [open] = expect(router, vec![Seen::OpenWrite(T, T + 1)]);
    opened(router, open, 0);
    let [column_write] = expect(router, vec![Seen::Write(10, column(0), T, 1, 1, 3)]);
    node(router, column_write, written(incarnation));
    let [push] = expect(router, vec![Seen::Push(T + 1, true, Stability::Unstable)]);
    site(router, push, Ok(SiteAnswer::Done), T + 1);
}

/// The site opens the file, and gives a lease of that number.
pub(crate) fn open_with_lease(
    router: &mut Router,
    open: CallId,
    (number, is_exclusive): (u64, bool),
    told: Attributes,
) {
    let lease = FileLease {
        id: LeaseId(1 << 32 | number),
        is_exclusive,
        lasts_ms: 1500,
        wall: WallTime(1_000_000_000_000),
        writable_bytes: 1 << 30,
    };
    let opened = SiteAnswer::Opened {
        layout: layout(),
        incarnation: Incarnation(1),
        lease: Some(lease),
    };
    let subject = WeakCache {
        before: None,
        after: Some(told),
    };
    let reply = SiteReply {
        id: open,
        outcome: Ok(opened),
        subject,
        second: WeakCache::default(),
    };
    router.handle(secs(1), RouterInput::Site(Box::new(reply)));
}
