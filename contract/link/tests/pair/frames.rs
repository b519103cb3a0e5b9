//! Frames to send, and links to send them over.

use std::time::Duration;

use bytes::Bytes;
use crossdock_link::{CallRef, Frame, Link, LinkConfig, Role, Target};
use crossdock_names::{FileId, HostId, NodeId, ObjectId, SiteId, Version};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeReply, NodeRequest, Order, Port, ReadVersion, SiteRequest,
    Stability, WriteContext,
};
use crossdock_types::Time;

use super::{Pair, Told};

const ENSEMBLE: u64 = 0xe5;
pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn config(host: u64) -> LinkConfig {
    LinkConfig::new(ENSEMBLE, HostId(host), Role::All)
}

pub(crate) fn pair_of(seed: u64, connects: LinkConfig, accepts: LinkConfig) -> Pair {
    let mut pair = Pair::new(seed, Link::connect(connects), Link::accept(accepts));
    pair.run(Duration::from_millis(100));
    for side in &pair.sides {
        assert!(matches!(side.told[..], [Told::Ready(_)]), "{:?}", side.told);
    }
    pair
}

pub(crate) fn object() -> ObjectId {
    ObjectId::column(FileId(9), 1, 0, 0)
}

pub(crate) fn node_call(id: u64, deadline: Time, request: NodeRequest) -> Frame {
    let call = Call {
        id: CallId(id),
        deadline,
        request,
    };
    Frame::NodeCall {
        from: Port::Router,
        to: NodeId(4),
        call,
        capability: None,
        flow: None,
    }
}

pub(crate) fn write(id: u64, deadline: Time, length: usize) -> Frame {
    let request = NodeRequest::Write {
        object: object(),
        offset_bytes: id,
        payload: Bytes::from(vec![id.to_le_bytes()[0]; length]).into(),
        stability: Stability::Stable,
        context: WriteContext::default(),
        order: Order::Primary,
    };
    node_call(id, deadline, request)
}

pub(crate) fn read(id: u64, deadline: Time, offset_bytes: u64) -> Frame {
    let request = NodeRequest::Read {
        object: object(),
        offset_bytes,
        length_bytes: 1 << 20,
        version: ReadVersion::Current,
        patience_ms: 0,
    };
    node_call(id, deadline, request)
}

/// The answer to a call: bytes to a read, else that it is done.
pub(crate) fn answer(frame: &Frame) -> Option<Frame> {
    let Frame::NodeCall { from, to, call, .. } = frame else {
        return None;
    };
    let version = Version(call.id.0);
    let answer = match &call.request {
        NodeRequest::Read { length_bytes, .. } => {
            let length = usize::try_from(*length_bytes).expect("small");
            let payload = Bytes::from(vec![3; length]).into();
            NodeAnswer::Read { payload, version }
        }
        _ => NodeAnswer::Done { version },
    };
    let reply = NodeReply {
        id: call.id,
        outcome: Ok(answer),
    };
    let (from, to) = (*to, *from);
    Some(Frame::NodeReply { from, to, reply })
}

pub(crate) fn call_ref(id: u64) -> CallRef {
    CallRef {
        port: Port::Router,
        to: Target::Node(NodeId(4)),
        id: CallId(id),
    }
}

pub(crate) fn site_call(id: u64, deadline: Time, request: SiteRequest) -> Frame {
    let call = Call {
        id: CallId(id),
        deadline,
        request,
    };
    Frame::SiteCall {
        from: Port::Router,
        to: SiteId(3),
        call: Box::new(call),
        proofs: Vec::new(),
    }
}
