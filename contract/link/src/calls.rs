//! Which calls are on their way over a link, in both directions: what is to be
//! answered when it ends, and what nobody asked for.

use std::collections::BTreeMap;

use crossdock_names::{NodeId, SiteId};
use crossdock_peer::{CallId, NodeRequest, Port};

use crate::Frame;

/// Whom a call was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A node of the other host.
    Node(NodeId),
    /// A site of the other host.
    Site(SiteId),
}

/// A call of this host that gets no answer from the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallRef {
    /// Who had asked.
    pub port: Port,
    /// Whom.
    pub to: Target,
    /// Under which number.
    pub id: CallId,
}

/// What makes a call one of its kind on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallKey {
    Node(Port, NodeId, CallId),
    /// A site's reply does not say which site; the numbers of a port are its own.
    Site(Port, CallId),
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    to: Target,
    /// In the queue.
    number: u64,
    /// Where the bytes of the answer lie in their object.
    place: u64,
    is_cancelled: bool,
}

/// Calls that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    ours: BTreeMap<CallKey, Sent>,
    theirs: BTreeMap<CallKey, Target>,
}

impl CallKey {
    /// Of a call.
    pub(crate) const fn of_call(frame: &Frame) -> Option<(Self, Target)> {
        match frame {
            Frame::NodeCall { from, to, call, .. } => {
                Some((Self::Node(*from, *to, call.id), Target::Node(*to)))
            }
            Frame::SiteCall { from, to, call, .. } => {
                Some((Self::Site(*from, call.id), Target::Site(*to)))
            }
            _ => None,
        }
    }

    /// Of the call that a frame answers.
    pub(crate) const fn of_reply(frame: &Frame) -> Option<Self> {
        match frame {
            Frame::NodeReply { from, to, reply } => Some(Self::Node(*to, *from, reply.id)),
            Frame::SiteReply { to, reply, .. } => Some(Self::Site(*to, reply.id)),
            _ => None,
        }
    }

    pub(crate) const fn call(self, to: Target) -> CallRef {
        match self {
            Self::Node(port, _, id) => CallRef { port, to, id },
            Self::Site(port, id) => CallRef { port, to, id },
        }
    }
}

/// Where the bytes of the answer to a call lie in their object.
pub(crate) const fn place_of_answer(call: &Frame) -> u64 {
    match call {
        Frame::NodeCall { call, .. } => match call.request {
            NodeRequest::Read { offset_bytes, .. } => offset_bytes,
            _ => 0,
        },
        _ => 0,
    }
}

impl Calls {
    /// How many of ours have no answer.
    pub(crate) fn ours(&self) -> usize {
        self.ours.len()
    }

    /// How many of theirs have no answer.
    pub(crate) fn theirs(&self) -> usize {
        self.theirs.len()
    }

    /// One of ours lies in the queue under `number`.
    pub(crate) fn begin(&mut self, key: CallKey, to: Target, number: u64, place: u64) {
        self.ours.insert(
            key,
            Sent {
                to,
                number,
                place,
                is_cancelled: false,
            },
        );
    }

    /// One of ours is cancelled: its number in the queue, the first time.
    pub(crate) fn cancel(&mut self, key: CallKey) -> Option<u64> {
        let sent = self.ours.get_mut(&key)?;
        let is_news = !std::mem::replace(&mut sent.is_cancelled, true);
        is_news.then_some(sent.number)
    }

    /// The number in the queue of one of ours that has no answer yet, and was not
    /// cancelled.
    pub(crate) fn number_of(&self, key: CallKey) -> Option<u64> {
        let sent = self.ours.get(&key)?;
        (!sent.is_cancelled).then_some(sent.number)
    }

    /// One of ours has its answer, or never gets one: whether it was waited for.
    pub(crate) fn end(&mut self, key: CallKey) -> bool {
        self.ours.remove(&key).is_some()
    }

    /// Where the payload of a frame goes in its object.
    pub(crate) fn place(&self, frame: &Frame) -> u64 {
        match CallKey::of_reply(frame) {
            Some(key) => self.ours.get(&key).map_or(0, |sent| sent.place),
            None => frame.payload_offset_bytes(),
        }
    }

    /// One of theirs has come.
    pub(crate) fn came(&mut self, key: CallKey, to: Target) {
        self.theirs.insert(key, to);
    }

    /// Whether that one of theirs waits for its answer.
    pub(crate) fn is_theirs(&self, key: CallKey) -> bool {
        self.theirs.contains_key(&key)
    }

    /// One of theirs is answered: whether there is such a one.
    pub(crate) fn answered(&mut self, key: CallKey) -> bool {
        self.theirs.remove(&key).is_some()
    }

    /// The link has ended: our calls, which get no answer any more.
    pub(crate) fn take_ours(&mut self) -> impl Iterator<Item = CallRef> {
        let ours = std::mem::take(&mut self.ours);
        ours.into_iter().map(|(key, sent)| key.call(sent.to))
    }

    /// The link has ended: nobody waits for answers to theirs any more.
    pub(crate) fn take_theirs(&mut self) -> impl Iterator<Item = Frame> {
        let theirs = std::mem::take(&mut self.theirs);
        theirs.into_keys().filter_map(|key| match key {
            CallKey::Node(from, to, id) => Some(Frame::CancelNode { from, to, id }),
            CallKey::Site(..) => None,
        })
    }
}
