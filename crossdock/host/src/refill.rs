//! Bytes that a host held for a client and has taken along, as it is gone or out of reach:
//! they are asked for again in the same version, of whoever is the primary of their set now.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{FileCapability, HostId, ObjectId, Version};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeError, NodeReply, NodeRequest, ReadVersion,
};
use crossdock_types::{Extent, Time};

use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};

/// Calls of these have this bit, those of doors and of the router never.
const REFILL_BIT: u64 = 1 << 56;
/// How long another member may take to become the primary, and to read.
const PATIENCE: Duration = Duration::from_secs(20);
/// After which somebody is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Refills at a time: the bytes of one are on their way to a client.
const REFILLS_MAX: usize = 4096;

/// Where held bytes were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) object: ObjectId,
    /// Of the first of them, in the object.
    pub(crate) offset_bytes: u64,
    pub(crate) capability: Option<FileCapability>,
}

/// What a gateway knows of the bytes that others hold for it, and what it asks for again.
#[derive(Default)]
pub(crate) struct Refills {
    sources: BTreeMap<(HostId, u64), (Source, Version)>,
    begun: BTreeMap<CallId, Refill>,
    total: u64,
}

struct Refill {
    ticket: u64,
    flow: Flow,
    lost: Extent,
    source: Source,
    version: Version,
    until: Time,
    /// When it is asked again.
    again: Option<Time>,
}

impl Refills {
    /// Whether an answer with this id is for one.
    pub(crate) const fn owns(id: CallId) -> bool {
        id.0 >> 56 == 1
    }

    pub(crate) fn note(&mut self, holder: HostId, pin: u64, source: Source, version: Version) {
        self.sources.insert((holder, pin), (source, version));
    }

    pub(crate) fn forget(&mut self, holder: HostId, pin: u64) {
        self.sources.remove(&(holder, pin));
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.begun.values().filter_map(|refill| refill.again).min()
    }
}

impl Host {
    /// Asks for what `lost` was again, to be sent in the connection `flow`:
    /// [`HostEffect::Refilled`] with the same ticket says what came of it.
    pub fn refill(&mut self, now: Time, ticket: u64, flow: Flow, lost: Extent) {
        let key = (HostId(lost.holder()), lost.pin());
        let known = self.refills.sources.get(&key).copied();
        let known = known.filter(|_| self.refills.begun.len() < REFILLS_MAX);
        let Some((source, version)) = known else {
            let found = None;
            let refilled = HostEffect::Refilled { ticket, found };
            return self.effects.push_back(refilled);
        };
        self.refills.total += 1;
        let id = CallId(REFILL_BIT | self.refills.total);
        let refill = Refill {
            ticket,
            flow,
            lost,
            source,
            version,
            until: now + PATIENCE,
            again: None,
        };
        self.refills.begun.insert(id, refill);
        self.ask_refill(now, id);
    }

    fn ask_refill(&mut self, now: Time, id: CallId) {
        let Some(refill) = self.refills.begun.get_mut(&id) else {
            return;
        };
        let set = self.table.members_of(&refill.source.object);
        let Some(&node) = set.and_then(|set| set.members.first()) else {
            refill.again = Some(now + PAUSE);
            return;
        };
        refill.again = None;
        let request = NodeRequest::Read {
            object: refill.source.object,
            offset_bytes: refill.source.offset_bytes + refill.lost.offset_bytes,
            length_bytes: refill.lost.length_bytes as u64,
            version: ReadVersion::NotAfter(refill.version),
            patience_ms: 0,
        };
        let call = Call {
            id,
            deadline: refill.until,
            request,
        };
        let shown = Shown {
            capability: refill.source.capability,
            flow: Some(refill.flow),
        };
        self.queue.push_back(Message::Routed(node, call, shown));
    }

    /// A node has answered.
    pub(crate) fn take_refill(&mut self, now: Time, reply: NodeReply) {
        let Some(refill) = self.refills.begun.get_mut(&reply.id) else {
            return;
        };
        let is_passing = |error: &NodeError| {
            matches!(
                error,
                NodeError::Busy { .. }
                    | NodeError::Unavailable { .. }
                    | NodeError::StaleTable { .. }
                    | NodeError::Fenced { .. }
            )
        };
        if now < refill.until && reply.outcome.as_ref().is_err_and(is_passing) {
            refill.again = Some(now + PAUSE);
            return;
        }
        let found = match &reply.outcome {
            Ok(NodeAnswer::Read { payload, .. }) => match payload.extents() {
                [(0, extent)] if extent.length_bytes == refill.lost.length_bytes => {
                    Some(extent.clone())
                }
                _ => None, // Bytes, or fewer of them: the gateway does not send them itself.
            },
            _ => None,
        };
        let ticket = refill.ticket;
        self.refills.begun.remove(&reply.id);
        self.effects
            .push_back(HostEffect::Refilled { ticket, found });
    }

    /// Asks those again whose time has come.
    pub(crate) fn step_refills(&mut self, now: Time) {
        let is_due = |refill: &Refill| refill.again.is_some_and(|again| again <= now);
        let due = self.refills.begun.iter();
        let due: Vec<CallId> = due
            .filter(|(_, refill)| is_due(refill))
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            self.ask_refill(now, id);
        }
    }
}
