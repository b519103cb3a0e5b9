//! Copies of bytes that lie elsewhere (docs/decisions/0051): the primary of the column that is
//! written reads them at the source's primary, as a router would, and makes a write of them, or a
//! hole. Until they are there nothing is ordered; from then on it is a change like any other, under
//! the number by which the copy was asked for.
//!
//! A copy whose gateway is gone before its bytes have come is not made: nothing of a gateway that
//! was replaced lands long behind that.

use std::collections::BTreeMap;

use crossdock_limits::{NODE_COPY_BYTES_MAX, OBJECT_IO_BYTES_MAX};
use crossdock_names::{NodeId, ObjectClass, SetId};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, Port, SourceError,
};
use crossdock_types::Time;

use crate::node::{Node, NodeEffect, RETRY_AFTER_MS};

/// Copies whose bytes have not come yet.
#[derive(Default)]
pub(crate) struct Copies {
    /// By the numbers of the reads.
    reading: BTreeMap<CallId, Reading>,
    /// Callers' numbers, for cancellation.
    by_caller: BTreeMap<(Port, CallId), CallId>,
    bytes: u64,
}

struct Reading {
    from: Port,
    call: Call<NodeRequest>,
    bytes: u64,
    /// Which is to be written.
    set: SetId,
    /// Who is asked.
    source: NodeId,
}

impl Copies {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.reading.len()
    }

    /// Whether one waits for that answer.
    pub(crate) fn awaits(&self, read: CallId) -> bool {
        self.reading.contains_key(&read)
    }

    /// Who waits for an answer.
    pub(crate) fn callers(&self) -> impl Iterator<Item = (Port, CallId)> {
        self.by_caller.keys().copied()
    }

    /// Whether columns of that set are about to be written.
    pub(crate) fn are_of(&self, set: SetId) -> bool {
        self.reading.values().any(|reading| reading.set == set)
    }

    fn begin(&mut self, read: CallId, reading: Reading) {
        let key = (reading.from, reading.call.id);
        self.by_caller.insert(key, read);
        self.bytes += reading.bytes;
        self.reading.insert(read, reading);
    }

    fn end(&mut self, read: CallId) -> Option<Reading> {
        let reading = self.reading.remove(&read)?;
        self.bytes -= reading.bytes;
        let key = (reading.from, reading.call.id);
        // A later sending of the same call has taken its place.
        if self.by_caller.get(&key) == Some(&read) {
            self.by_caller.remove(&key);
        }
        Some(reading)
    }
}

impl Node {
    /// Takes a copy: asks for its bytes.
    ///
    /// # Errors
    /// It is refused: nothing was done.
    pub(crate) fn begin_copy(
        &mut self,
        from: Port,
        call: Call<NodeRequest>,
    ) -> Result<(), NodeError> {
        let NodeRequest::Copy {
            object,
            ref source,
            context,
            ..
        } = call.request
        else {
            return Ok(());
        };
        let bytes = source.length_bytes;
        let is_of_columns =
            object.class == ObjectClass::Column && source.object.class == ObjectClass::Column;
        if !is_of_columns || bytes == 0 || bytes > OBJECT_IO_BYTES_MAX as u64 {
            let what = "a copy of no bytes, of too many, or not of columns";
            return Err(NodeError::Invalid(what.into()));
        }
        // Also before its bytes are there: who does not order it says so at once.
        let (set, _) = self.ordering.check_routed(&object, &context)?;
        if self.copies.bytes + bytes > NODE_COPY_BYTES_MAX {
            return Err(NodeError::Busy {
                retry_after_ms: RETRY_AFTER_MS,
            });
        }
        let to = self.ordering.first_of(&source.object);
        let to = to.ok_or_else(|| self.ordering.stale())?;
        self.next_call += 1;
        let read = Call {
            id: CallId(self.next_call),
            deadline: call.deadline,
            request: source.read(),
        };
        let reading = Reading {
            from,
            call,
            bytes,
            set,
            source: to,
        };
        self.copies.begin(read.id, reading);
        let fetch = NodeEffect::Fetch { to, call: read };
        self.effects.push_back(fetch);
        Ok(())
    }

    /// What reading the bytes of a copy has come to: they are written.
    pub(crate) fn take_fetched(&mut self, now: Time, reply: NodeReply) {
        let Some(reading) = self.copies.end(reply.id) else {
            return;
        };
        let Reading {
            from, call, source, ..
        } = reading;
        let Call {
            id,
            deadline,
            request,
        } = call;
        let change = match now > deadline {
            true => Err(NodeError::Busy { retry_after_ms: 0 }),
            false => change_of(request, reply.outcome, source),
        };
        match change {
            Ok(request) => {
                let call = Call {
                    id,
                    deadline,
                    request,
                };
                self.take_change(now, from, call);
            }
            Err(error) => self.refuse(from, id, error),
        }
    }

    /// Nobody waits for that call any more; whether it was a copy that has not begun to write: it
    /// will not.
    pub(crate) fn cancel_copy(&mut self, from: Port, id: CallId) -> bool {
        let read = self.copies.by_caller.get(&(from, id)).copied();
        let is_copy = read.and_then(|read| self.copies.end(read)).is_some();
        if is_copy {
            self.refuse(from, id, NodeError::Busy { retry_after_ms: 0 });
        }
        is_copy
    }
}

/// The change that a copy becomes, with what was read at `node`.
fn change_of(
    copy: NodeRequest,
    read: Result<NodeAnswer, NodeError>,
    node: NodeId,
) -> Result<NodeRequest, NodeError> {
    let NodeRequest::Copy {
        object,
        offset_bytes,
        source,
        stability,
        frees_zeros,
        context,
    } = copy
    else {
        return Ok(copy);
    };
    let mut payload = match read {
        Ok(NodeAnswer::Read { payload, .. }) => payload,
        Ok(_) => return Err(NodeError::Unavailable { node }),
        Err(error) => return Err(of_source(error, node)),
    };
    let length = usize::try_from(source.length_bytes).unwrap_or(OBJECT_IO_BYTES_MAX);
    payload.truncate(length);
    payload.push_zeros(length - payload.len());
    let order = Order::Primary;
    Ok(match frees_zeros && payload.is_zeros() {
        true => NodeRequest::Zero {
            object,
            offset_bytes,
            length_bytes: source.length_bytes,
            context,
            order,
        },
        false => NodeRequest::Write {
            object,
            offset_bytes,
            payload,
            stability,
            context,
            order,
        },
    })
}

/// What who asked for a copy is told of its source: what passes, as it is; what does not, as the
/// source's.
fn of_source(error: NodeError, node: NodeId) -> NodeError {
    NodeError::Source(match error {
        NodeError::Busy { .. } | NodeError::Unavailable { .. } | NodeError::StaleTable { .. } => {
            return error;
        }
        // This node is not known there yet, or any more.
        NodeError::Fenced { .. } | NodeError::Refused(_) => {
            return NodeError::Unavailable { node };
        }
        NodeError::NoObject => SourceError::NoObject,
        NodeError::StaleGeneration { current } => SourceError::StaleGeneration { current },
        NodeError::Media { node, what } => SourceError::Media { node, what },
        error => SourceError::Other(error.to_string()),
    })
}
