//! What a primary shows is what all members have: bytes of a change that some of them lack would be
//! gone again if another one took over now. A read whose answer may have such bytes waits until
//! the change has been answered by all of them, or by all that are left in the set.

use std::collections::BTreeSet;
use std::ops::Range;

use crossdock_names::ObjectId;
use crossdock_peer::{CallId, NodeRequest};

use crate::exchange::overlap;
use crate::node::Node;

/// What a read is about, if its bytes are shown by a primary alone.
pub(crate) fn shown_range(request: &NodeRequest) -> Option<(ObjectId, Range<u64>)> {
    match *request {
        NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => Some((
            object,
            offset_bytes..offset_bytes.saturating_add(length_bytes),
        )),
        NodeRequest::Stat { object } | NodeRequest::Mapped { object, .. } => {
            Some((object, 0..u64::MAX))
        }
        _ => None,
    }
}

impl Node {
    /// The store has answered a read: it waits for the changes under way whose bytes that may be.
    pub(crate) fn wait_for_members(&mut self, read: CallId) {
        let shown = self.pending.get(&read);
        let Some((object, range)) = shown.and_then(|pending| pending.shown.clone()) else {
            return;
        };
        let is_unsettled = |(_, touched): &(&CallId, &(ObjectId, Range<u64>))| {
            touched.0 == object && overlap(&touched.1, &range)
        };
        let ordered = self.pending.iter().filter_map(|(id, pending)| {
            let touched = pending.touches.as_ref();
            touched.filter(|_| pending.is_ordered()).map(|it| (id, it))
        });
        let unsettled: BTreeSet<CallId> = ordered.filter(is_unsettled).map(|(id, _)| *id).collect();
        if unsettled.is_empty() {
            return;
        }
        self.reads_waiting += 1;
        if let Some(pending) = self.pending.get_mut(&read) {
            pending.unsettled = unsettled;
        }
    }

    /// All members have a change: reads that waited for it may go on.
    pub(crate) fn settled(&mut self, change: CallId) {
        if self.reads_waiting == 0 {
            return;
        }
        let waiting = self.pending.iter_mut();
        let ready = waiting.filter_map(|(id, pending)| {
            let was_last = pending.unsettled.remove(&change) && pending.unsettled.is_empty();
            was_last.then_some(*id)
        });
        let ready: Vec<CallId> = ready.collect();
        self.reads_waiting -= ready.len();
        for read in ready {
            self.finish(read);
        }
    }
}
