//! What the depot asks of its node, and for whom.

use std::ops::Range;
use std::time::Duration;

use crossdock_delivery::End;
use crossdock_ibp::ErrorCode;
use crossdock_names::Version;
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, Port, WriteContext,
};
use crossdock_types::{Time, WallTime};

use crate::depot::Depot;
use crate::ledger::object;
use crate::message::{ConnId, DepotEffect};
use crate::record::Record;
use crate::sharing::Sharing;

/// How often a busy node is asked again.
const BUSY_MAX: u32 = 64;

/// A call that is not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) purpose: Purpose,
    request: NodeRequest,
    tries: u32,
    /// When it is asked again.
    retry: Option<Time>,
}

impl Asked {
    /// Who waits for a capability of the volume's bytes, if that is what it is for.
    pub(crate) const fn caller(&self) -> Option<(Port, CallId)> {
        match &self.purpose {
            Purpose::Share(sharing) => Some(sharing.caller()),
            _ => None,
        }
    }
}

/// What a call is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// Nobody waits for it.
    Nobody,
    /// The depot's state, when it opens.
    State,
    /// Which allocations there are.
    List,
    /// What that one is.
    Found(u64),
    /// A new one.
    Create(ConnId, u64),
    /// So many bytes of a store into it.
    Write(ConnId, u64, usize),
    /// All bytes of a store are durable.
    Commit(ConnId),
    /// What is left of a store that has broken off goes.
    Clean(u64),
    /// Bytes of a load.
    Read(ConnId),
    /// Its record becomes this.
    Record {
        number: u64,
        record: Record,
        after: After,
        by: Option<ConnId>,
    },
    /// Whether the node has what somebody wants a capability of.
    Share(Box<Sharing>),
    /// It is removed; who has asked for that.
    Remove(u64, Option<ConnId>),
}

/// What a new record means.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// So many bytes were stored, and these positions are free.
    Stored { bytes: u64, freed: Range<u64> },
    /// What was at these positions was loaded, for good.
    Taken { freed: Range<u64> },
    /// Its limits have changed; before they were these.
    Changed { before: Record },
    /// It ends there now.
    Cut { size_bytes: u64 },
}

impl Depot {
    /// Asks the node.
    pub(crate) fn ask(&mut self, now: Time, purpose: Purpose, request: NodeRequest) -> CallId {
        self.calls_total += 1;
        let id = CallId(self.calls_total);
        let asked = Asked {
            purpose,
            request: request.clone(),
            tries: 0,
            retry: None,
        };
        self.calls.insert(id, asked);
        self.send_call(now, id, request);
        id
    }

    fn send_call(&mut self, now: Time, id: CallId, request: NodeRequest) {
        let deadline = now + self.config.patience;
        self.effects.push_back(DepotEffect::Node(Call {
            id,
            deadline,
            request,
        }));
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget_call(&mut self, id: CallId) {
        let Some(asked) = self.calls.remove(&id) else {
            return;
        };
        match asked.retry {
            Some(when) => _ = self.retries.remove(&(when, id)),
            None => self.effects.push_back(DepotEffect::Cancel(id)),
        }
    }

    /// Asks again what the node was too busy for.
    pub(crate) fn ask_again(&mut self, now: Time) {
        while let Some(&(when, id)) = self.retries.first()
            && when <= now
        {
            self.retries.pop_first();
            if let Some(asked) = self.calls.get_mut(&id) {
                asked.retry = None;
                let request = asked.request.clone();
                self.send_call(now, id, request);
            }
        }
    }

    pub(crate) fn take_reply(&mut self, now: Time, wall: WallTime, reply: NodeReply) {
        let Some(asked) = self.calls.get_mut(&reply.id) else {
            return; // Nobody waits any more.
        };
        if let Err(NodeError::Busy { retry_after_ms }) = reply.outcome
            && asked.tries < BUSY_MAX
        {
            asked.tries += 1;
            let when = now + Duration::from_millis(u64::from(retry_after_ms).max(1));
            asked.retry = Some(when);
            self.retries.insert((when, reply.id));
            return;
        }
        let Some(asked) = self.calls.remove(&reply.id) else {
            return;
        };
        let (outcome, call) = (reply.outcome, reply.id);
        match asked.purpose {
            Purpose::Nobody => {}
            Purpose::State => self.take_state(now, wall, outcome),
            Purpose::List => self.take_list(now, outcome),
            Purpose::Found(number) => self.take_found(now, number, outcome),
            Purpose::Create(id, number) => self.created(now, id, number, outcome),
            Purpose::Write(id, number, bytes) => self.wrote(now, id, number, (bytes, outcome)),
            Purpose::Commit(id) => self.committed(now, id, outcome),
            Purpose::Clean(number) => self.cleaned(number),
            Purpose::Read(id) => self.take_read(now, id, call, outcome),
            Purpose::Record {
                number,
                record,
                after,
                by,
            } => self.recorded(now, number, record, (after, by, outcome)),
            Purpose::Share(sharing) => self.take_shared(&sharing, outcome),
            Purpose::Remove(number, by) => self.removed(now, number, by, outcome),
        }
    }

    /// Writes another record of an allocation. Until that is answered nothing else changes it.
    pub(crate) fn record(
        &mut self,
        now: Time,
        number: u64,
        record: Record,
        after: After,
        by: Option<ConnId>,
    ) {
        let Some(allocation) = self.ledger.get_mut(number) else {
            return;
        };
        allocation.is_changing = true;
        let request = NodeRequest::SetAttributes {
            object: object(number),
            reservation_bytes: record.reservation_bytes(),
            attributes: record.encode(),
            context: WriteContext::default(),
            order: Order::Given(allocation.next_version()),
        };
        let purpose = Purpose::Record {
            number,
            record,
            after,
            by,
        };
        self.ask(now, purpose, request);
    }

    fn recorded(
        &mut self,
        now: Time,
        number: u64,
        record: Record,
        (after, by, outcome): (After, Option<ConnId>, Result<NodeAnswer, NodeError>),
    ) {
        let Some(allocation) = self.ledger.get_mut(number) else {
            return; // It is gone meanwhile; who waits has been told.
        };
        allocation.is_changing = false;
        let outcome = outcome.map(drop).map_err(|error| code_of(&error));
        if outcome.is_ok() {
            self.ledger.update(number, record);
        }
        self.wake_waiters(number);
        match after {
            After::Stored { bytes, freed } => {
                self.end_writing(number);
                self.free(now, number, &freed, outcome.is_ok());
                self.stored(now, by, outcome.map(|()| bytes));
            }
            After::Taken { freed } => {
                self.end_reading(number);
                self.free(now, number, &freed, outcome.is_ok());
                self.took(now, by, outcome);
            }
            After::Changed { before } => {
                if outcome.is_err() {
                    self.ledger.update(number, before);
                }
                self.wake_for_room();
                self.changed(now, by, outcome);
            }
            After::Cut { size_bytes } => {
                self.end_writing(number);
                if outcome.is_ok() {
                    self.truncate(now, number, size_bytes, Purpose::Nobody);
                }
                self.changed(now, by, outcome);
            }
        }
    }

    /// What was at these positions takes no room any more.
    fn free(&mut self, now: Time, number: u64, positions: &Range<u64>, is_so: bool) {
        if is_so {
            self.zero(now, number, positions, Purpose::Nobody);
        }
    }

    /// Makes a hole; the answer to each of its pieces is for `purpose`.
    pub(crate) fn zero(
        &mut self,
        now: Time,
        number: u64,
        positions: &Range<u64>,
        purpose: Purpose,
    ) {
        let Some(allocation) = self.ledger.get_mut(number) else {
            return;
        };
        let bytes = positions.end - positions.start;
        let ranges = allocation.record.ranges(positions.start, bytes);
        let versions: Vec<Version> = ranges.iter().map(|_| allocation.next_version()).collect();
        for (range, version) in ranges.into_iter().zip(versions) {
            let request = NodeRequest::Zero {
                object: object(number),
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
                context: WriteContext::default(),
                order: Order::Given(version),
            };
            self.ask(now, purpose.clone(), request);
        }
    }

    /// Cuts the object of a byte array, or extends it.
    pub(crate) fn truncate(&mut self, now: Time, number: u64, size_bytes: u64, purpose: Purpose) {
        let Some(allocation) = self.ledger.get_mut(number) else {
            return;
        };
        let request = NodeRequest::Truncate {
            object: object(number),
            size_bytes,
            context: WriteContext::default(),
            order: Order::Given(allocation.next_version()),
        };
        self.ask(now, purpose, request);
    }

    /// An allocation is nobody's from now on; its space comes back when the node has removed
    /// it, and `by` is told then.
    pub(crate) fn remove(&mut self, now: Time, number: u64, why: usize, by: Option<ConnId>) {
        let Some(mut allocation) = self.ledger.take(number) else {
            return;
        };
        self.figures.gone[why] += 1;
        self.ready.extend(allocation.waiters.drain(..));
        let users = self.connections.iter();
        let users = users.filter(|(_, connection)| connection.allocation() == Some(number));
        let users: Vec<ConnId> = users.map(|(&id, _)| id).collect();
        for id in users {
            if Some(id) != by {
                self.end_command(now, id, Some(ErrorCode::CAP_NOT_FOUND), End::Reset);
            }
        }
        let request = NodeRequest::Remove {
            object: object(number),
            context: WriteContext::default(),
            order: Order::Given(allocation.next_version()),
        };
        self.ask(now, Purpose::Remove(number, by), request);
    }

    fn removed(
        &mut self,
        now: Time,
        number: u64,
        by: Option<ConnId>,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        self.ledger.forget(number);
        if let Err(error) = &outcome {
            let what = format!("allocation {number:016x} is not removed: {error}");
            self.effects.push_back(DepotEffect::Warning(what));
        }
        self.wake_for_room();
        let outcome = outcome.map(drop).map_err(|error| code_of(&error));
        self.changed(now, by, outcome);
    }
}

/// What a client is told of a node's failure.
pub(crate) const fn code_of(error: &NodeError) -> ErrorCode {
    match error {
        // What a capability of the volume's bytes names is not there any more.
        NodeError::NoObject | NodeError::VersionGone => ErrorCode::CAP_NOT_FOUND,
        // It is no member of their set (yet, or at the moment).
        NodeError::StaleTable { .. } => ErrorCode::SERVER_RECOVERING,
        NodeError::NoSpace => ErrorCode::WOULD_EXCEED_LIMIT,
        NodeError::Busy { .. } => ErrorCode::QUEUE_FULL,
        NodeError::Media { .. } => ErrorCode::FILE_ACCESS,
        _ => ErrorCode::INTERNAL,
    }
}
