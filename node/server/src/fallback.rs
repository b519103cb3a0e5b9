//! What a node does about its own bad disk: reads that it cannot serve are read
//! from another member, blocks are repaired (see [`crate::repair`]), and a disk
//! that takes no writes makes it leave its sets.
//!
//! A read from another member sees what it must: the primary has sent that
//! member every change that it ordered before the read, in order.

use std::time::Duration;

use crossdock_names::{NodeId, ObjectClass, ObjectId};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Port, ReadVersion,
};
use crossdock_store::StoreInput;
use crossdock_types::Time;

use crate::node::{Node, NodeEffect};
use crate::repair::{Ask, Told};

/// How long a block waits for room in the store before it is left as it is.
const REPAIR_PATIENCE: Duration = Duration::from_secs(10);

/// What is remembered of a read, in case the disk cannot serve it.
#[derive(Debug)]
pub(crate) struct ReadOfPending {
    object: ObjectId,
    offset_bytes: u64,
    length_bytes: u64,
    version: ReadVersion,
    patience: Duration,
    /// Whether other members are asked here. (Sites do it themselves.)
    falls_back: bool,
    /// Members that have been asked.
    asked: usize,
    /// What is answered if none of them can help.
    own_error: Option<NodeError>,
}

impl ReadOfPending {
    /// By when the bytes are wanted, from when they were asked for on.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn of(from: Port, request: &NodeRequest) -> Option<Self> {
        let NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            version,
            patience_ms,
        } = *request
        else {
            return None;
        };
        // A member that helps another one does not ask that one for help.
        (!matches!(from, Port::Node(_))).then_some(Self {
            object,
            offset_bytes,
            length_bytes,
            version,
            patience: Duration::from_millis(patience_ms.into()),
            falls_back: match from {
                Port::Router | Port::Copy(_) => object.class == ObjectClass::Column,
                // What is made equal must not stay unequal for one bad block.
                Port::Host => true,
                Port::Site(_) | Port::Node(_) | Port::Depot => false,
            },
            asked: 0,
            own_error: None,
        })
    }
}

impl Node {
    /// The own store has answered. Gives the reply back unless another member is
    /// asked first.
    pub(crate) fn fall_back(&mut self, reply: NodeReply) -> Option<NodeReply> {
        let is_bad = matches!(reply.outcome, Err(NodeError::Media { .. }));
        let pending = self.pending.get_mut(&reply.id).filter(|_| is_bad);
        let Some(read) = pending.and_then(|pending| pending.read.as_mut()) else {
            return Some(reply);
        };
        if matches!(read.version, ReadVersion::Pinned(_)) {
            return Some(reply); // Others do not know the pin.
        }
        self.repairs
            .add_range(read.object, read.offset_bytes, read.length_bytes);
        if !read.falls_back {
            return Some(reply);
        }
        read.own_error = reply.outcome.clone().err();
        match self.ask_next(reply.id) {
            true => None,
            false => Some(reply),
        }
    }

    /// Another member's answer to a read that this one could not serve.
    pub(crate) fn take_read_of(&mut self, reply: NodeReply) {
        let pending = self.pending.get(&reply.id);
        let read = pending.and_then(|pending| pending.read.as_ref());
        let Some(own_error) = read.and_then(|read| read.own_error.clone()) else {
            return; // Nobody was asked.
        };
        let outcome = match reply.outcome {
            Ok(answer) => Ok(answer),
            Err(_) if self.ask_next(reply.id) => return,
            Err(_) => Err(own_error),
        };
        if let Some(pending) = self.pending.get_mut(&reply.id) {
            pending.local = Some(outcome);
            self.wait_for_members(reply.id);
            self.finish(reply.id);
        }
    }

    /// Asks the next member for a read. False if there is none.
    fn ask_next(&mut self, id: CallId) -> bool {
        let Some(read) = self
            .pending
            .get_mut(&id)
            .and_then(|pending| pending.read.as_mut())
        else {
            return false;
        };
        let others = self.ordering.others_of(&read.object);
        let Some(&to) = others.get(read.asked) else {
            return false;
        };
        read.asked += 1;
        let request = NodeRequest::Read {
            object: read.object,
            offset_bytes: read.offset_bytes,
            length_bytes: read.length_bytes,
            version: read.version,
            patience_ms: 0,
        };
        self.ask_member(to, id, request);
        true
    }

    fn ask_member(&mut self, to: NodeId, id: CallId, request: NodeRequest) {
        // It is answered in any case: by the host if the member is gone.
        let deadline = Time(u64::MAX);
        let call = Call {
            id,
            deadline,
            request,
        };
        self.effects.push_back(NodeEffect::Peer { to, call });
    }

    /// A disk takes no writes any more: what others have goes on without this
    /// node.
    pub(crate) fn leave_sets(&mut self, what: String) {
        self.effects.push_back(NodeEffect::Failed(what));
        let member = self.id();
        for (set, epoch) in self.ordering.shared_sets() {
            let leave = NodeEffect::Suspect { set, epoch, member };
            self.effects.push_back(leave);
        }
    }

    /// Goes on with repairs as far as that needs no answer. True if the own store
    /// was asked.
    pub(crate) fn repair(&mut self, now: Time) -> bool {
        let mut is_asked = false;
        while let Some(ask) = self.repairs.poll_ask() {
            match ask {
                Ask::Own(request) => {
                    self.repair_own(now, request);
                    is_asked = true;
                }
                Ask::Other { request, asked } => {
                    let others = request.object().map(|it| self.ordering.others_of(it));
                    let to = others.and_then(|others| others.get(asked).copied());
                    match to {
                        Some(to) => {
                            let id = self.next_repair_call();
                            self.ask_member(to, id, request);
                        }
                        None => {
                            self.repairs.step(None);
                        }
                    }
                }
            }
        }
        while let Some(told) = self.repairs.poll_told() {
            self.effects.push_back(match told {
                Told::Scrub(report) => NodeEffect::Scrubbed(Ok(report)),
                Told::Block {
                    object,
                    offset_bytes,
                    what,
                    is_repaired,
                } => NodeEffect::Damage {
                    object,
                    offset_bytes,
                    what,
                    is_repaired,
                },
            });
        }
        is_asked
    }

    /// The repair's question was answered.
    pub(crate) fn repair_answered(&mut self, now: Time, outcome: Result<NodeAnswer, NodeError>) {
        if let Some(put) = self.repairs.step(Some(outcome)) {
            self.repair_own(now, put);
        }
    }

    fn repair_own(&mut self, now: Time, request: NodeRequest) {
        let id = self.next_repair_call();
        let deadline = now + REPAIR_PATIENCE;
        let call = Call {
            id,
            deadline,
            request,
        };
        self.store.gather(now, StoreInput::Request(call));
    }

    fn next_repair_call(&mut self) -> CallId {
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.repairs.sent(id);
        id
    }
}
