//! What a primary shows is what all members have: bytes of a change that some of them lack would be
//! gone again if another one took over now. A read whose answer may have such bytes waits until
//! the change has been answered by all of them, or by all that are left in the set.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_names::{ObjectClass, ObjectId};
use crossdock_peer::{CallId, NodeRequest, Port, ReadVersion};

use crate::exchange::{overlap, touched_by};
use crate::node::Node;

/// Bytes of an object.
type Place = (ObjectId, Range<u64>);

/// Changes under way, and what is shown meanwhile.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// What changes are about, and whether this node has ordered them.
    changes: BTreeMap<CallId, (Place, bool)>,
    /// What reads are about.
    shown: BTreeMap<CallId, Place>,
    /// Reads that wait for members.
    waiting: usize,
}

impl Unsettled {
    /// A call begins; `shown` is what [`shown_by`] says of it.
    pub(crate) fn begin(
        &mut self,
        id: CallId,
        request: &NodeRequest,
        is_ordered: bool,
        shown: Option<Place>,
    ) {
        if let Some(place) = touched_by(request) {
            self.changes.insert(id, (place, is_ordered));
        }
        self.shown.extend(shown.map(|place| (id, place)));
    }

    /// A call has ended: what object it has changed, if it has.
    pub(crate) fn end(&mut self, id: CallId) -> Option<ObjectId> {
        self.shown.remove(&id);
        self.changes.remove(&id).map(|((object, _), _)| object)
    }

    /// Whether these bytes are being changed.
    pub(crate) fn is_changing(&self, object: &ObjectId, range: &Range<u64>) -> bool {
        self.of(object, range).next().is_some()
    }

    /// Changes of these bytes, and whether this node has ordered them.
    fn of(&self, object: &ObjectId, range: &Range<u64>) -> impl Iterator<Item = (CallId, bool)> {
        let changes = self.changes.iter();
        let of_range = changes
            .filter(move |(_, ((changed, own), _))| changed == object && overlap(own, range));
        of_range.map(|(id, (_, is_ordered))| (*id, *is_ordered))
    }
}

/// What of an object only the primary of its set may show. Which bytes a version is made of is the
/// same at every member.
pub(crate) fn shown_by(from: Port, request: &NodeRequest) -> Option<Place> {
    let (object, range) = match *request {
        NodeRequest::Read {
            version: ReadVersion::Exactly(_) | ReadVersion::AsOf { .. },
            ..
        } => return None,
        NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => (
            object,
            offset_bytes..offset_bytes.saturating_add(length_bytes),
        ),
        NodeRequest::Stat { object } | NodeRequest::Mapped { object, .. } => (object, 0..u64::MAX),
        _ => return None,
    };
    (from.is_client() && object.class == ObjectClass::Column).then_some((object, range))
}

impl Node {
    /// The store has answered a read: it waits for the changes under way whose bytes that may be.
    pub(crate) fn wait_for_members(&mut self, read: CallId) {
        let Some((object, range)) = self.unsettled.shown.get(&read) else {
            return;
        };
        let changes = self.unsettled.of(object, range);
        let ordered = changes.filter(|(_, is_ordered)| *is_ordered);
        let unsettled: BTreeSet<CallId> = ordered.map(|(id, _)| id).collect();
        if unsettled.is_empty() {
            return;
        }
        self.unsettled.waiting += 1;
        if let Some(pending) = self.pending.get_mut(&read) {
            pending.unsettled = unsettled;
        }
    }

    /// All members have a change: reads that waited for it may go on.
    pub(crate) fn settled(&mut self, change: CallId) {
        if self.unsettled.waiting == 0 {
            return;
        }
        let waiting = self.pending.iter_mut();
        let ready = waiting.filter_map(|(id, pending)| {
            let was_last = pending.unsettled.remove(&change) && pending.unsettled.is_empty();
            was_last.then_some(*id)
        });
        let ready: Vec<CallId> = ready.collect();
        self.unsettled.waiting -= ready.len();
        for read in ready {
            self.finish(read);
        }
    }
}
