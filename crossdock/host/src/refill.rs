//! Bytes that a host held for a client and does not send, as it is gone or does not know them
//! any more: they are read again in the very same version, wherever that is left.
//!
//! All members of the set are asked in turn, whoever is its primary: a version has the same
//! bytes everywhere ([`ReadVersion::Exactly`]). Who can sends them then; the bytes of others
//! are held here, and this gateway sends them itself (docs/decisions/0044).

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{FileCapability, HostId, NodeId, ObjectId, Version};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeError, NodeReply, NodeRequest, ReadVersion,
};
use crossdock_types::{Extent, Time};

use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};

/// Calls of these have this bit, those of doors and of the router never.
const REFILL_BIT: u64 = 1 << 56;
/// How long a member that has the bytes may take to be there, and to read them.
const PATIENCE: Duration = Duration::from_secs(20);
/// After which they are asked again.
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

/// What a pin holds.
#[derive(Clone, Copy, Debug)]
struct Noted {
    source: Source,
    length_bytes: usize,
    version: Version,
}

/// What a gateway knows of the bytes that others hold for it, and what it asks for again.
#[derive(Default)]
pub(crate) struct Refills {
    noted: BTreeMap<(HostId, u64), Noted>,
    begun: BTreeMap<CallId, Refill>,
    /// The same by what is lost.
    by_pin: BTreeMap<(HostId, u64), CallId>,
    total: u64,
}

struct Refill {
    lost: (HostId, u64),
    flow: Flow,
    noted: Noted,
    /// Parts of it, each with its ticket.
    wanted: Vec<(u64, Extent)>,
    until: Time,
    /// When it is asked again.
    again: Option<Time>,
    turn: Turn,
}

/// Whose turn it is to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    /// Times that somebody was asked.
    asked: usize,
    /// How many in a row have answered that they do not have it, or cannot be asked.
    without: usize,
    /// One of those may have it later.
    is_open: bool,
}

impl Turn {
    /// The next of so many members.
    const fn next(&mut self, members: usize) -> Option<usize> {
        if members == 0 {
            return None;
        }
        let place = self.asked % members;
        self.asked += 1;
        Some(place)
    }

    /// A member does not have it, `for now` or for good. What comes next.
    const fn without(&mut self, members: usize, for_now: bool) -> Next {
        self.without += 1;
        self.is_open |= for_now;
        if self.without < members {
            return Next::Ask;
        }
        self.without = 0;
        match std::mem::replace(&mut self.is_open, false) {
            true => Next::Wait,
            false => Next::GiveUp,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next member is asked at once.
    Ask,
    /// All are asked again after a pause.
    Wait,
    /// Nobody has it.
    GiveUp,
}

impl Refills {
    /// Whether an answer with this id is for one.
    pub(crate) const fn owns(id: CallId) -> bool {
        id.0 >> 56 == 1
    }

    pub(crate) fn note(
        &mut self,
        holder: HostId,
        pin: u64,
        source: Source,
        length_bytes: usize,
        version: Version,
    ) {
        let noted = Noted {
            source,
            length_bytes,
            version,
        };
        self.noted.insert((holder, pin), noted);
    }

    pub(crate) fn forget(&mut self, holder: HostId, pin: u64) {
        self.noted.remove(&(holder, pin));
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
        let refills = &mut self.refills;
        let under_way = refills.by_pin.get(&key);
        if let Some(refill) = under_way.and_then(|id| refills.begun.get_mut(id)) {
            return refill.wanted.push((ticket, lost));
        }
        let known = refills.noted.get(&key).copied();
        let Some(noted) = known.filter(|_| refills.begun.len() < REFILLS_MAX) else {
            let found = None;
            let refilled = HostEffect::Refilled { ticket, found };
            return self.effects.push_back(refilled);
        };
        refills.total += 1;
        let id = CallId(REFILL_BIT | refills.total);
        let refill = Refill {
            lost: key,
            flow,
            noted,
            wanted: vec![(ticket, lost)],
            until: now + PATIENCE,
            again: None,
            turn: Turn::default(),
        };
        refills.begun.insert(id, refill);
        refills.by_pin.insert(key, id);
        self.ask_refill(now, id);
    }

    fn members_of(&self, object: &ObjectId) -> Vec<NodeId> {
        let set = self.table.members_of(object);
        set.map_or_else(Vec::new, |set| set.members.clone())
    }

    fn ask_refill(&mut self, now: Time, id: CallId) {
        let Some(refill) = self.refills.begun.get(&id) else {
            return;
        };
        let members = self.members_of(&refill.noted.source.object);
        let Some(refill) = self.refills.begun.get_mut(&id) else {
            return;
        };
        let Some(place) = refill.turn.next(members.len()) else {
            refill.again = Some(now + PAUSE);
            return;
        };
        refill.again = None;
        let Noted {
            source,
            length_bytes,
            version,
        } = refill.noted;
        let request = NodeRequest::Read {
            object: source.object,
            offset_bytes: source.offset_bytes,
            length_bytes: length_bytes as u64,
            version: ReadVersion::Exactly(version),
            patience_ms: 0,
        };
        let call = Call {
            id,
            deadline: refill.until,
            request,
        };
        let shown = Shown {
            capability: source.capability,
            flow: Some(refill.flow),
        };
        let message = Message::Routed(members[place], call, shown);
        self.queue.push_back(message);
    }

    /// A node has answered.
    pub(crate) fn take_refill(&mut self, now: Time, reply: NodeReply) {
        let id = reply.id;
        let Some(refill) = self.refills.begun.get(&id) else {
            return;
        };
        let (flow, length_bytes) = (refill.flow, refill.noted.length_bytes);
        let (members, until) = (self.members_of(&refill.noted.source.object), refill.until);
        let for_now = match reply.outcome {
            Ok(NodeAnswer::Read { payload, version }) if payload.len() == length_bytes => {
                let held = match payload.extents() {
                    [(0, extent)] => Some(extent.clone()),
                    // Whoever has the bytes does not send them.
                    _ => self.hold_own(flow, payload, version),
                };
                if held.is_some() {
                    return self.end_refill(id, held.as_ref());
                }
                true // There is no room, for the moment.
            }
            Ok(_) => false,
            Err(error) => is_passing(&error),
        };
        let Some(refill) = self.refills.begun.get_mut(&id) else {
            return;
        };
        match refill.turn.without(members.len(), for_now) {
            Next::Ask => self.ask_refill(now, id),
            Next::Wait if now < until => refill.again = Some(now + PAUSE),
            Next::Wait | Next::GiveUp => self.end_refill(id, None),
        }
    }

    /// A connection is over: nobody needs what was to be sent in it.
    pub(crate) fn end_refills(&mut self, flow: Flow) {
        let of_flow = self.refills.begun.iter();
        let of_flow = of_flow.filter(|(_, refill)| refill.flow == flow);
        let over: Vec<CallId> = of_flow.map(|(&id, _)| id).collect();
        for id in over {
            self.end_refill(id, None);
        }
    }

    fn end_refill(&mut self, id: CallId, found: Option<&Extent>) {
        let Some(refill) = self.refills.begun.remove(&id) else {
            return;
        };
        self.refills.by_pin.remove(&refill.lost);
        for (ticket, lost) in refill.wanted {
            let found = found.and_then(|found| {
                let start = usize::try_from(lost.offset_bytes).ok()?;
                let end = start.checked_add(lost.length_bytes)?;
                (end <= found.length_bytes).then(|| found.slice(start, end))
            });
            let refilled = HostEffect::Refilled { ticket, found };
            self.effects.push_back(refilled);
        }
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

/// Whether a member may have the bytes a moment later.
const fn is_passing(error: &NodeError) -> bool {
    matches!(
        error,
        NodeError::Busy { .. }
            | NodeError::Unavailable { .. }
            | NodeError::StaleTable { .. }
            | NodeError::Fenced { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every member is asked before it is given up, one after the other and at once; as
    /// long as one of them may have it later all are asked again.
    #[test]
    fn all_members_are_asked() {
        let mut turn = Turn::default();
        assert_eq!(turn.next(0), None);
        assert_eq!(turn.next(2), Some(0));
        assert_eq!(turn.without(2, true), Next::Ask);
        assert_eq!(turn.next(2), Some(1));
        assert_eq!(turn.without(2, false), Next::Wait);
        assert_eq!(turn.next(2), Some(0));
        assert_eq!(turn.without(2, false), Next::Ask);
        assert_eq!(turn.next(2), Some(1));
        assert_eq!(turn.without(2, false), Next::GiveUp);
        assert_eq!(Turn::default().without(1, false), Next::GiveUp);
        assert_eq!(Turn::default().without(1, true), Next::Wait);
    }

    /// Goal: what a member refuses because it has another version, or nothing, stays so; what
    /// it cannot say now does not.
    #[test]
    fn some_refusals_pass() {
        let node = NodeId(1);
        assert!(is_passing(&NodeError::Unavailable { node }));
        assert!(is_passing(&NodeError::Busy { retry_after_ms: 1 }));
        assert!(!is_passing(&NodeError::VersionGone));
        assert!(!is_passing(&NodeError::NoObject));
    }
}
