//! Bytes that a host held for a client and does not send, as it is gone or does not know them
//! any more: they are read again in the very same version, wherever that is left.
//!
//! All members of the set are asked in turn, whoever is its primary: a version has the same
//! bytes everywhere ([`ReadVersion::AsOf`]). Who can sends them then; the bytes of others
//! are held here, and this gateway sends them itself. When a set gets another primary a member is
//! told what is outstanding, and keeps it: a holder that is not in the set any more hears of no
//! later change (docs/decisions/0044).

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{
    FileCapability, HostId, NodeId, ObjectClass, ObjectId, RoutingTable, Version,
};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeError, NodeReply, NodeRequest, Promise, ReadVersion,
};
use crossdock_types::{Extent, Time};

use crate::held::PIN_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};

/// Calls of these have this bit, those of doors and of the router never.
const REFILL_BIT: u64 = 1 << 56;
/// And these, too, that have others keep what is held.
const KEEP_BIT: u64 = 1 << 55;
/// How long a member that has the bytes may take to be there, and to read them.
const PATIENCE: Duration = Duration::from_secs(20);
/// After which they are asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Refills at a time: the bytes of one are on their way to a client.
const REFILLS_MAX: usize = 4096;
/// What others are asked to keep at a time: beyond that it goes without.
const KEEPS_MAX: usize = 4096;

/// Where held bytes were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) object: ObjectId,
    /// Of the first of them, in the object.
    pub(crate) offset_bytes: u64,
    pub(crate) capability: Option<FileCapability>,
}

/// What a pin holds.
#[derive(Clone, Debug)]
pub(crate) struct Promised {
    pub(crate) source: Source,
    pub(crate) length_bytes: usize,
    /// The newest version in it.
    pub(crate) version: Version,
    pub(crate) promise: Promise,
    /// Who was a member then, and by which start of its process: these have lost nothing since.
    pub(crate) members: Vec<(NodeId, HostId)>,
    /// Another one keeps it, too; it hears when that is dropped.
    pub(crate) kept: Option<Extent>,
}

impl Promised {
    /// How a member is asked for it that runs at `host`.
    fn version_for(&self, node: NodeId, host: Option<HostId>) -> ReadVersion {
        let (changed, as_of) = (self.version, self.promise.as_of);
        let is_column = self.source.object.class == ObjectClass::Column;
        match host.is_some_and(|host| is_column && self.members.contains(&(node, host))) {
            true => ReadVersion::AsOf { changed, as_of },
            false => ReadVersion::Exactly(changed),
        }
    }

    /// By what right: what the holder has given lasts longer.
    fn right(&self) -> Option<FileCapability> {
        self.promise.right.or(self.source.capability)
    }

    /// Who has to be told of it, if another one is the primary now: that one, or another member,
    /// of those that have been one since.
    fn new_keeper(&self, old: &RoutingTable, new: &RoutingTable, holder: HostId) -> Option<NodeId> {
        let object = &self.source.object;
        let members = &new.members_of(object)?.members;
        let before = old.members_of(object).and_then(|set| set.members.first());
        if object.class != ObjectClass::Column || before == members.first() {
            return None;
        }
        let may_keep = |node: &NodeId| {
            let host = new.hosts.nodes.get(node).copied();
            host.is_some_and(|host| host != holder && self.members.contains(&(*node, host)))
        };
        members.iter().copied().find(may_keep)
    }
}

/// What a gateway knows of the bytes that others hold for it, and what it asks for again.
#[derive(Default)]
pub(crate) struct Refills {
    noted: BTreeMap<(HostId, u64), Promised>,
    /// What others are asked to keep.
    keeping: BTreeMap<CallId, (HostId, u64)>,
    begun: BTreeMap<CallId, Refill>,
    /// The same by what is lost.
    by_pin: BTreeMap<(HostId, u64), CallId>,
    total: u64,
}

struct Refill {
    lost: (HostId, u64),
    flow: Flow,
    noted: Promised,
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

    pub(crate) fn note(&mut self, holder: HostId, pin: u64, promised: Promised) {
        self.noted.insert((holder, pin), promised);
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
        let known = refills.noted.get(&key).cloned();
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

    /// The members of an object's set, and at which hosts they are.
    pub(crate) fn members_up(&self, object: &ObjectId) -> Vec<(NodeId, HostId)> {
        let nodes = &self.table.hosts.nodes;
        let members = self.members_of(object).into_iter();
        let members = members.filter_map(|node| Some((node, *nodes.get(&node)?)));
        members.collect()
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
        let (noted, node) = (&refill.noted, members[place]);
        let host = self.table.hosts.nodes.get(&node).copied();
        let request = NodeRequest::Read {
            object: noted.source.object,
            offset_bytes: noted.source.offset_bytes,
            length_bytes: noted.length_bytes as u64,
            version: noted.version_for(node, host),
            patience_ms: 0,
        };
        let call = Call {
            id,
            deadline: refill.until,
            request,
        };
        let shown = Shown {
            capability: noted.right(),
            flow: Some(refill.flow),
        };
        let message = Message::Routed(node, call, shown);
        self.queue.push_back(message);
    }

    /// The table is a new one: members of sets that have new primaries keep what others hold.
    pub(crate) fn keep_promises(&mut self, now: Time, old: &RoutingTable) {
        if self.refills.noted.is_empty() || old.sets == self.table.sets {
            return;
        }
        let own = self.host_id();
        let noted = self.refills.noted.iter();
        // Who has no right from the holder could not have it kept.
        let noted = noted.filter(|(_, promised)| promised.promise.right.is_some());
        let wanted = noted.filter_map(|(&key, promised)| {
            let node = promised.new_keeper(old, &self.table, key.0)?;
            (self.table.hosts.nodes.get(&node) != Some(&own)).then_some((key, node))
        });
        let room = KEEPS_MAX.saturating_sub(self.refills.keeping.len());
        let wanted: Vec<_> = wanted.take(room).collect();
        for (key, node) in wanted {
            self.ask_to_keep(now, key, node);
        }
    }

    fn ask_to_keep(&mut self, now: Time, key: (HostId, u64), node: NodeId) {
        let refills = &mut self.refills;
        let Some(promised) = refills.noted.get(&key) else {
            return;
        };
        refills.total += 1;
        let id = CallId(REFILL_BIT | KEEP_BIT | refills.total);
        refills.keeping.insert(id, key);
        let request = NodeRequest::Pin {
            object: promised.source.object,
            offset_bytes: promised.source.offset_bytes,
            length_bytes: promised.length_bytes as u64,
            version: Some(promised.promise.as_of),
            lease_ms: u32::try_from(PIN_PATIENCE.as_millis()).unwrap_or(u32::MAX),
        };
        let call = Call {
            id,
            deadline: now + PATIENCE,
            request,
        };
        let shown = Shown {
            capability: promised.right(),
            flow: None,
        };
        self.queue.push_back(Message::Routed(node, call, shown));
    }

    /// A node keeps something, or not: then it may be lost with its holder.
    fn take_kept(&mut self, reply: NodeReply) {
        let Some(key) = self.refills.keeping.remove(&reply.id) else {
            return;
        };
        if let Some(promised) = self.refills.noted.get_mut(&key)
            && let Ok(NodeAnswer::Read { payload, .. }) = reply.outcome
            && let [(0, kept)] = payload.extents()
        {
            promised.kept = Some(kept.clone());
        }
    }

    /// A node has answered.
    pub(crate) fn take_refill(&mut self, now: Time, reply: NodeReply) {
        let id = reply.id;
        if id.0 & KEEP_BIT != 0 {
            return self.take_kept(reply);
        }
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
    use crossdock_names::{
        Epoch, FileId, Hosts, LayoutClass, ReplicaSet, Rights, SITES, SLOTS, Scope, SetId, SiteId,
        SiteRecord, Spread,
    };

    use super::*;

    const COLUMN: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);

    fn table(members: &[u64], hosts: &[(u64, u64)]) -> RoutingTable {
        let set = ReplicaSet {
            epoch: Epoch(1),
            members: members.iter().map(|&node| NodeId(node)).collect(),
        };
        let site = SiteRecord {
            epoch: Epoch(1),
            set: SetId(0),
        };
        let nodes = hosts.iter();
        RoutingTable {
            epoch: Epoch(1),
            sets: BTreeMap::from([(SetId(0), set)]),
            slots: vec![vec![SetId(0)]; SLOTS],
            sites: vec![site; SITES],
            spread: Spread::default(),
            layout: LayoutClass::default(),
            hosts: Hosts {
                nodes: nodes
                    .map(|&(node, host)| (NodeId(node), HostId(host)))
                    .collect(),
                ..Hosts::default()
            },
        }
    }

    /// Of nodes 1 and 2 at hosts 10 and 20.
    fn promised(object: ObjectId) -> Promised {
        Promised {
            source: Source {
                object,
                offset_bytes: 0,
                capability: None,
            },
            length_bytes: 100,
            version: Version(40),
            promise: Promise {
                as_of: Version(45),
                right: None,
            },
            members: vec![(NodeId(1), HostId(10)), (NodeId(2), HostId(20))],
            kept: None,
        }
    }

    /// Goal: who has been a member since the bytes were read is asked for them as of that time;
    /// who has started again since, or come later, for the very version in the range: it may have
    /// lost changes that nobody had committed. So it is with backing objects, of which sites order
    /// the changes.
    #[test]
    fn who_may_have_lost_changes_is_asked_strictly() {
        let (changed, as_of) = (Version(40), Version(45));
        let column = promised(COLUMN);
        let asked = |node, host| column.version_for(NodeId(node), host);
        assert_eq!(
            asked(2, Some(HostId(20))),
            ReadVersion::AsOf { changed, as_of }
        );
        let exactly = ReadVersion::Exactly(changed);
        assert_eq!(asked(2, Some(HostId(21))), exactly);
        assert_eq!(asked(3, Some(HostId(20))), exactly);
        assert_eq!(asked(2, None), exactly);
        let small = promised(ObjectId::of_site(ObjectClass::SmallFiles, SiteId(1), 0));
        assert_eq!(small.version_for(NodeId(2), Some(HostId(20))), exactly);
    }

    /// Goal: when another one becomes the primary, that is told of what others hold, or another
    /// member if it has not been one since; whoever holds it itself is not.
    #[test]
    fn a_new_primary_keeps_what_others_hold() {
        let hosts = [(1, 10), (2, 20), (3, 30)];
        let before = table(&[1, 2], &hosts);
        let column = promised(COLUMN);
        let keeper = |members: &[u64], hosts: &[(u64, u64)], holder| {
            column.new_keeper(&before, &table(members, hosts), HostId(holder))
        };
        assert_eq!(keeper(&[2], &hosts, 10), Some(NodeId(2)));
        assert_eq!(keeper(&[2, 1], &hosts, 10), Some(NodeId(2)));
        assert_eq!(keeper(&[1], &hosts, 10), None, "the same primary");
        assert_eq!(keeper(&[2], &hosts, 20), None, "it holds it");
        assert_eq!(keeper(&[3, 2], &hosts, 10), Some(NodeId(2)));
        assert_eq!(keeper(&[3, 2], &hosts, 20), None);
        assert_eq!(keeper(&[3], &hosts, 10), None, "it has come later");
        assert_eq!(keeper(&[2], &[(2, 21)], 10), None, "it was started again");
        assert_eq!(keeper(&[], &hosts, 10), None);
        let small = promised(ObjectId::of_site(ObjectClass::SmallFiles, SiteId(1), 0));
        let after = table(&[2], &hosts);
        assert_eq!(small.new_keeper(&before, &after, HostId(10)), None);
    }

    /// Goal: the right that the holder gave is shown, and the site's only without one.
    #[test]
    fn the_holders_right_counts() {
        let capability = |expiry_seconds| FileCapability {
            rights: Rights::READ,
            minter: HostId(1),
            holder: HostId(2),
            scope: Scope::Columns {
                placement: FileId(7),
                generation: 1,
            },
            expiry_seconds,
            mac: [0; 16],
        };
        let mut column = promised(COLUMN);
        column.source.capability = Some(capability(1));
        assert_eq!(column.right(), Some(capability(1)));
        column.promise.right = Some(capability(2));
        assert_eq!(column.right(), Some(capability(2)));
    }

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
