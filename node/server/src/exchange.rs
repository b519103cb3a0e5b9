//! COMPARE AND WRITE of a column's bytes, at the primary of its set (docs/decisions/0049).
//!
//! An exchange waits for the changes of its bytes that are under way, reads them, and is a write
//! if they are what was expected. Changes of the same bytes that come meanwhile wait for that: so
//! nothing comes between. The other members get a write.
//!
//! One that is sent again is known by its number like any other change
//! ([`crate::sendings`]); that bytes differed nobody remembers: it is compared again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crossdock_limits::EXCHANGE_BYTES_MAX;
use crossdock_names::ObjectId;
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeRequest, Order, Port, ReadVersion, Stability,
};
use crossdock_types::{Payload, Time};

use crate::node::Node;
use crate::sendings::Caller;

type Outcome = Result<NodeAnswer, NodeError>;

/// The exchanges of a node.
#[derive(Default)]
pub(crate) struct Exchanges {
    /// By object, in the order in which they came: exchanges, and changes that wait for them.
    queues: BTreeMap<ObjectId, VecDeque<Queued>>,
    queued: usize,
    /// Objects at which something may go on.
    due: Vec<ObjectId>,
}

struct Queued {
    from: Port,
    call: Call<NodeRequest>,
    range: Range<u64>,
    /// Of an exchange.
    stage: Option<Stage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// Its bytes are being read, by that call.
    Reading(CallId),
    Read(Outcome),
}

/// What may go on in a queue.
enum Ready {
    Change(Queued),
    /// The bytes of an exchange are to be read.
    Read(Port, Call<NodeRequest>),
    /// They are there.
    Compare(Queued, Outcome),
}

impl Exchanges {
    /// Those that wait; their own bound is that of the node's calls.
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// Calls that wait here.
    pub(crate) fn callers(&self) -> impl Iterator<Item = Caller> {
        let queued = self.queues.values().flatten();
        queued.map(|queued| (queued.from, queued.call.id))
    }

    /// Objects of which bytes are to be exchanged.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.queues.keys()
    }

    /// A change of an object is over.
    pub(crate) fn change_ended(&mut self, object: ObjectId) {
        if self.queues.contains_key(&object) {
            self.due.push(object);
        }
    }

    /// Whether a change has to wait for exchanges of the same bytes.
    fn is_in_the_way(&self, object: &ObjectId, range: &Range<u64>) -> bool {
        let queue = self.queues.get(object);
        queue.is_some_and(|queue| queue.iter().any(|it| overlap(&it.range, range)))
    }

    fn push(&mut self, object: ObjectId, queued: Queued) {
        self.queues.entry(object).or_default().push_back(queued);
        self.queued += 1;
        self.due.push(object);
    }

    fn take(&mut self, object: &ObjectId, at: usize) -> Option<Queued> {
        let queue = self.queues.get_mut(object)?;
        let taken = queue.remove(at)?;
        self.queued -= 1;
        if queue.is_empty() {
            self.queues.remove(object);
        }
        Some(taken)
    }

    /// The first of an object's queue that nothing before it in the queue is in the way of;
    /// `is_changing` tells which bytes changes under way are about.
    fn next_of(
        &mut self,
        object: &ObjectId,
        is_changing: impl Fn(&Range<u64>) -> bool,
    ) -> Option<Ready> {
        let queue = self.queues.get_mut(object)?;
        for at in 0..queue.len() {
            let (before, rest) = queue.make_contiguous().split_at(at);
            let queued = rest.first()?;
            if before.iter().any(|it| overlap(&it.range, &queued.range)) {
                continue;
            }
            match &queued.stage {
                None => return self.take(object, at).map(Ready::Change),
                Some(Stage::Waiting) if !is_changing(&queued.range) => {
                    return Some(Ready::Read(queued.from, queued.call.clone()));
                }
                Some(Stage::Read(outcome)) => {
                    let outcome = outcome.clone();
                    let taken = self.take(object, at)?;
                    return Some(Ready::Compare(taken, outcome));
                }
                Some(Stage::Waiting | Stage::Reading(_)) => {}
            }
        }
        None
    }

    /// Another stage of the exchange that is at this one.
    fn advance(&mut self, object: &ObjectId, from: impl Fn(&Queued) -> bool, to: Stage) {
        let queue = self.queues.get_mut(object).into_iter().flatten();
        for queued in queue.filter(|queued| from(queued)) {
            if let Some(stage) = &mut queued.stage {
                *stage = to;
                self.due.push(*object);
                return;
            }
        }
    }
}

impl Node {
    /// Whether a change of `range` has to wait for exchanges of the same bytes.
    pub(crate) fn waits_for_exchange(&self, object: &ObjectId, range: &Range<u64>) -> bool {
        self.exchanges.is_in_the_way(object, range)
    }

    /// Has a change wait for exchanges that came before it.
    pub(crate) fn queue_change(
        &mut self,
        from: Port,
        call: Call<NodeRequest>,
        (object, range): (ObjectId, Range<u64>),
    ) {
        let queued = Queued {
            from,
            call,
            range,
            stage: None,
        };
        self.exchanges.push(object, queued);
    }

    /// Takes an exchange.
    ///
    /// # Errors
    /// It is refused: nothing was done.
    pub(crate) fn begin_exchange(
        &mut self,
        from: Port,
        call: Call<NodeRequest>,
    ) -> Result<(), NodeError> {
        let NodeRequest::Exchange {
            object,
            offset_bytes,
            ref payload,
            context,
        } = call.request
        else {
            return Ok(());
        };
        let length = payload.len() as u64 / 2;
        let end = offset_bytes.checked_add(length);
        let is_whole = payload.len().is_multiple_of(2) && length > 0;
        let (Some(end), true) = (end, is_whole && length <= EXCHANGE_BYTES_MAX.into()) else {
            let what = "an exchange of no bytes, or of too many";
            return Err(NodeError::Invalid(what.into()));
        };
        // Also where it has to wait first: who does not order it says so at once.
        self.ordering.check_routed(&object, &context)?;
        let queued = Queued {
            from,
            call,
            range: offset_bytes..end,
            stage: Some(Stage::Waiting),
        };
        self.exchanges.push(object, queued);
        Ok(())
    }

    /// What reading the bytes of an exchange has come to.
    pub(crate) fn take_exchange_read(&mut self, object: ObjectId, read: CallId, outcome: Outcome) {
        let is_it = |queued: &Queued| queued.stage.as_ref() == Some(&Stage::Reading(read));
        self.exchanges.advance(&object, is_it, Stage::Read(outcome));
    }

    /// Goes on with exchanges, and with what waits for them, as far as it can; whether anything
    /// was begun.
    pub(crate) fn advance_exchanges(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(object) = self.exchanges.due.pop() {
            loop {
                let unsettled = &self.unsettled;
                let is_changing = |range: &Range<u64>| unsettled.is_changing(&object, range);
                let Some(ready) = self.exchanges.next_of(&object, is_changing) else {
                    break;
                };
                any = true;
                match ready {
                    Ready::Change(queued) => self.handle_change(now, queued.from, queued.call),
                    Ready::Read(from, call) => self.read_bytes(now, from, &call),
                    Ready::Compare(queued, outcome) => self.compare(now, queued, outcome),
                }
            }
        }
        any
    }

    fn read_bytes(&mut self, now: Time, from: Port, call: &Call<NodeRequest>) {
        let NodeRequest::Exchange {
            object,
            offset_bytes,
            ref payload,
            ..
        } = call.request
        else {
            return;
        };
        let request = NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes: payload.len() as u64 / 2,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        let read = CallId(self.next_call + 1); // It will be.
        let is_it = |queued: &Queued| queued.call.id == call.id && queued.from == from;
        self.exchanges.advance(&object, is_it, Stage::Reading(read));
        if let Err(error) = self.read_for_exchange(now, object, request) {
            self.take_exchange_read(object, read, Err(error));
        }
    }

    /// The bytes are there: they are exchanged, or not.
    fn compare(&mut self, now: Time, queued: Queued, read: Outcome) {
        let (from, id) = (queued.from, queued.call.id);
        let deadline = queued.call.deadline;
        let NodeRequest::Exchange {
            object,
            offset_bytes,
            payload,
            context,
        } = queued.call.request
        else {
            return;
        };
        let found = match read {
            Ok(NodeAnswer::Read { payload, .. }) => payload,
            Ok(_) => return self.refuse(from, id, NodeError::Unclear),
            Err(error) => return self.refuse(from, id, error),
        };
        if let Err(error) = self.ordering.check_routed(&object, &context) {
            return self.refuse(from, id, error);
        }
        if now > deadline {
            return self.refuse(from, id, NodeError::Busy { retry_after_ms: 0 });
        }
        let length = payload.len() / 2;
        if let Some(at) = first_difference(found, &payload.slice(0, length)) {
            let at_bytes = at as u64;
            // It says so alone: no other member has had a part in it.
            let shows = Some(self.ordering.set_of(&object));
            return self.answer((from, id), Ok(NodeAnswer::Differs { at_bytes }), shows);
        }
        let request = NodeRequest::Write {
            object,
            offset_bytes,
            payload: payload.slice(length, 2 * length),
            stability: Stability::Stable,
            context,
            order: Order::Primary,
        };
        let asker = (from, id);
        if let Err(error) = self.write_for_exchange(now, asker, deadline, request) {
            self.refuse(from, id, error);
        }
    }

    /// This node may be the primary of other sets than before: what waits for its turn at objects
    /// that others order is theirs.
    pub(crate) fn refuse_exchanges(&mut self) {
        let objects: Vec<ObjectId> = self.exchanges.objects().copied().collect();
        for object in objects {
            let Err(error) = self.ordering.primary_of(&object) else {
                continue;
            };
            while let Some(queued) = self.exchanges.take(&object, 0) {
                self.refuse(queued.from, queued.call.id, error.clone());
            }
        }
    }

    /// The write of an exchange is over.
    pub(crate) fn exchange_written(&mut self, asker: Caller, outcome: Outcome) {
        let outcome = outcome.map_err(|error| match error {
            // So say all members.
            NodeError::NoSpace
            | NodeError::NoObject
            | NodeError::StaleGeneration { .. }
            | NodeError::Invalid(_) => error,
            // Others may have done it.
            _ => NodeError::Unclear,
        });
        self.answer(asker, outcome, None);
    }
}

/// The bytes that a change is about; all of them, if it is about more than bytes.
pub(crate) fn touched_by(request: &NodeRequest) -> Option<(ObjectId, Range<u64>)> {
    match request {
        NodeRequest::Write {
            object,
            offset_bytes,
            payload,
            ..
        } => {
            let end = offset_bytes.saturating_add(payload.len() as u64);
            Some((*object, *offset_bytes..end))
        }
        NodeRequest::Zero {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => {
            let end = offset_bytes.saturating_add(*length_bytes);
            Some((*object, *offset_bytes..end))
        }
        NodeRequest::Truncate {
            object, size_bytes, ..
        } => Some((*object, *size_bytes..u64::MAX)),
        NodeRequest::Create { object, .. } | NodeRequest::Remove { object, .. } => {
            Some((*object, 0..u64::MAX))
        }
        _ => None,
    }
}

pub(crate) const fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Where what was found differs from what was expected; behind its end there are zeros.
fn first_difference(mut found: Payload, expected: &Payload) -> Option<usize> {
    found.push_zeros(expected.len().saturating_sub(found.len()));
    let (found, expected) = (found.to_bytes(), expected.to_bytes());
    let mut pairs = found.iter().zip(expected.iter());
    pairs.position(|(found, expected)| found != expected)
}
