//! Changes that routers number, so that one that is sent again, as a connection broke, is carried
//! out once (docs/decisions/0049).
//!
//! The primary of a set knows what it has carried out, and so do the other members, as it sends
//! them the number with the change. A member that takes over knows a number, and answers as the
//! first primary would have; or it does not, and has been a member since before the first sending:
//! then it was not carried out, and is. Where it became a member later, or has forgotten, nobody
//! knows ([`NodeError::Unclear`]), and what comes under that number is not carried out any more.
//!
//! Nothing of it is written anywhere: a member that starts again is none until it has been made
//! equal. What routers have answers to they say with whatever they send next.

use std::collections::BTreeMap;

use crossdock_names::{Epoch, Incarnation, ObjectId, SetId, Version};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, Order, Port, Sending, Stability,
    WriteContext, WriterId,
};

use crate::node::{Node, NodeEffect, RETRY_AFTER_MS};

/// Changes of one router that are known at most: many times as many as it has under way; the
/// oldest are forgotten first.
const KNOWN_MAX: usize = 16_384;

type Outcome = Result<NodeAnswer, NodeError>;

/// Who waits for an answer.
pub(crate) type Caller = (Port, CallId);

/// The numbered changes that a node knows.
#[derive(Default)]
pub(crate) struct Sendings {
    writers: BTreeMap<WriterId, OfWriter>,
    /// What carries them out, by whoever asked first.
    carrying: BTreeMap<Caller, Carrying>,
}

#[derive(Default)]
struct OfWriter {
    known: BTreeMap<u64, Known>,
    /// Lower numbers that are not known may have been forgotten.
    forgotten_below: u64,
}

#[derive(Clone, Copy, Debug)]
struct Carrying {
    writer: WriterId,
    number: u64,
    object: ObjectId,
    is_unstable: bool,
    /// This node orders it; else another one did, which has its own answer in any case.
    is_ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// For that one, if somebody waits for it as a router does.
    UnderWay(Option<Caller>),
    Written {
        version: Version,
        is_unstable: bool,
    },
    Done(Version),
    Unclear,
}

/// What is to become of a change.
enum Recognised {
    /// It is to be carried out.
    New,
    /// It is being carried out, and is answered when it is over.
    UnderWay,
    Known(Outcome),
}

/// Who is told of the end of a call.
enum Ended {
    /// Whoever has made it.
    Itself,
    /// Whoever has asked for the same change last.
    For(Caller),
    /// Who has made it, and a router that waits for what it has done to that object.
    Also(Caller, ObjectId, Option<Known>),
}

/// A numbered change, as far as it matters here.
struct Numbered {
    object: ObjectId,
    context: WriteContext,
    is_unstable: bool,
    is_ordered: bool,
}

impl Sendings {
    /// Who waits for the answer to a call.
    pub(crate) fn waits_for(&self, call: Caller) -> Caller {
        let waiter = self.carrying.get(&call).and_then(|carrying| {
            let writer = self.writers.get(&carrying.writer)?;
            match writer.known.get(&carrying.number) {
                Some(Known::UnderWay(waiter)) if carrying.is_ours => *waiter,
                _ => None,
            }
        });
        waiter.unwrap_or(call)
    }

    /// Forgets writers that are gone.
    pub(crate) fn retain(&mut self, lives: impl Fn(WriterId) -> bool) {
        self.writers.retain(|&writer, _| lives(writer));
    }

    fn of(&mut self, writer: WriterId, sending: &Sending) -> &mut OfWriter {
        let of_writer = self.writers.entry(writer).or_default();
        of_writer.forget_below(sending.answered_below);
        of_writer
    }

    /// Takes a change that this node is to order; `has_seen_all` says whether it has seen all
    /// that was ordered since that one was sent first, and `epoch` is that of the set now.
    fn recognise(
        &mut self,
        caller: Caller,
        numbered: &Numbered,
        (has_seen_all, epoch): (bool, Epoch),
    ) -> Recognised {
        let Numbered { context, .. } = numbered;
        let Sending { number, .. } = context.sending;
        let writer = context.writer;
        let of_writer = self.of(writer, &context.sending);
        match of_writer.known.get_mut(&number) {
            Some(Known::UnderWay(waiter)) => {
                *waiter = Some(caller);
                return Recognised::UnderWay;
            }
            Some(known) => return Recognised::Known(known.outcome(epoch)),
            None if number < of_writer.forgotten_below => {
                return Recognised::Known(Err(NodeError::Unclear));
            }
            None if !has_seen_all => {
                of_writer.note(number, Known::Unclear);
                return Recognised::Known(Err(NodeError::Unclear));
            }
            None => of_writer.note(number, Known::UnderWay(Some(caller))),
        }
        self.carrying.insert(caller, numbered.carrying(true));
        Recognised::New
    }

    /// Takes a change that another node has ordered.
    fn take_ordered(&mut self, caller: Caller, numbered: &Numbered) {
        let Numbered { context, .. } = numbered;
        let number = context.sending.number;
        let of_writer = self.of(context.writer, &context.sending);
        if number < of_writer.forgotten_below {
            return;
        }
        if !of_writer.known.contains_key(&number) {
            of_writer.note(number, Known::UnderWay(None));
        }
        self.carrying.insert(caller, numbered.carrying(false));
    }

    /// A call is over: who is to be told.
    fn end(&mut self, call: Caller, outcome: &Outcome) -> Ended {
        let Some(carrying) = self.carrying.remove(&call) else {
            return Ended::Itself;
        };
        let of_writer = self.writers.get_mut(&carrying.writer);
        let Some(known) = of_writer.map(|of_writer| &mut of_writer.known) else {
            return Ended::Itself;
        };
        let Some(&before) = known.get(&carrying.number) else {
            return Ended::Itself;
        };
        let now = Known::of(outcome, carrying.is_unstable);
        match now {
            Some(now) => {
                known.insert(carrying.number, now);
            }
            // Nothing was done: it may be sent anew.
            None if matches!(before, Known::UnderWay(_)) => {
                known.remove(&carrying.number);
            }
            None => {}
        }
        match before {
            Known::UnderWay(Some(waiter)) if !carrying.is_ours => {
                Ended::Also(waiter, carrying.object, now)
            }
            Known::UnderWay(Some(waiter)) => Ended::For(waiter),
            _ => Ended::Itself,
        }
    }
}

impl OfWriter {
    fn note(&mut self, number: u64, known: Known) {
        self.known.insert(number, known);
        if self.known.len() <= KNOWN_MAX {
            return;
        }
        let is_over = |(_, known): &(&u64, &Known)| !matches!(known, Known::UnderWay(_));
        if let Some((&oldest, _)) = self.known.iter().find(is_over) {
            self.known.remove(&oldest);
            self.forgotten_below = self.forgotten_below.max(oldest + 1);
        }
    }

    fn forget_below(&mut self, number: u64) {
        if number <= self.forgotten_below {
            return;
        }
        self.forgotten_below = number;
        while let Some(first) = self.known.first_entry()
            && *first.key() < number
        {
            first.remove();
        }
    }
}

impl Known {
    /// What an answer leaves to be known.
    const fn of(outcome: &Outcome, is_unstable: bool) -> Option<Self> {
        Some(match outcome {
            Ok(NodeAnswer::Written { version, .. }) => Self::Written {
                version: *version,
                is_unstable,
            },
            Ok(NodeAnswer::Done { version }) => Self::Done(*version),
            Err(NodeError::Unclear) => Self::Unclear,
            _ => return None,
        })
    }

    /// The answer, of a set that has that epoch now.
    fn outcome(self, epoch: Epoch) -> Outcome {
        match self {
            Self::Written {
                version,
                is_unstable,
            } => {
                // Whoever has taken over has the bytes; that others had them in memory is not
                // told to be so any more.
                let is_of_before = is_unstable && version < Version::first_of(epoch);
                let incarnation = match is_of_before {
                    true => Incarnation(version.epoch().0),
                    false => Incarnation(epoch.0),
                };
                Ok(NodeAnswer::Written {
                    version,
                    incarnation,
                })
            }
            Self::Done(version) => Ok(NodeAnswer::Done { version }),
            Self::Unclear => Err(NodeError::Unclear),
            Self::UnderWay(_) => Err(NodeError::Busy {
                retry_after_ms: RETRY_AFTER_MS,
            }),
        }
    }
}

impl Numbered {
    const fn carrying(&self, is_ours: bool) -> Carrying {
        Carrying {
            writer: self.context.writer,
            number: self.context.sending.number,
            object: self.object,
            is_unstable: self.is_unstable,
            is_ours,
        }
    }
}

impl Node {
    /// Looks whether a call is one that is known; whether it is to be carried out.
    ///
    /// # Errors
    /// Another node orders it, or nobody knows whether it was carried out.
    pub(crate) fn recognise(
        &mut self,
        from: Port,
        call: &Call<NodeRequest>,
    ) -> Result<bool, NodeError> {
        let Some(numbered) = numbered(&call.request) else {
            return Ok(true);
        };
        let caller = (from, call.id);
        if numbered.is_ordered {
            self.sendings.take_ordered(caller, &numbered);
            return Ok(true);
        }
        let Numbered {
            object, context, ..
        } = &numbered;
        let (set, epoch) = self.ordering.check_routed(object, context)?;
        let doubt = context.sending.in_doubt_since;
        let has_seen_all = doubt.is_none_or(|since| self.ordering.has_seen_all(set, since));
        let told = (has_seen_all, epoch);
        match self.sendings.recognise(caller, &numbered, told) {
            Recognised::New => Ok(true),
            Recognised::UnderWay => Ok(false),
            Recognised::Known(outcome) => {
                self.push_reply(caller, outcome, None);
                Ok(false)
            }
        }
    }

    /// Answers a call, or whoever has asked for the same change since.
    pub(crate) fn answer(&mut self, call: Caller, outcome: Outcome, shows: Option<SetId>) {
        let caller = match self.sendings.end(call, &outcome) {
            Ended::Itself => call,
            Ended::For(waiter) => waiter,
            Ended::Also(waiter, object, known) => {
                let told = self.ordering.primary_of(&object).and_then(|(_, epoch)| {
                    // It was not carried out.
                    let busy = Err(NodeError::Busy {
                        retry_after_ms: RETRY_AFTER_MS,
                    });
                    known.map_or(busy, |known| known.outcome(epoch))
                });
                self.push_reply(waiter, told, None);
                call
            }
        };
        self.push_reply(caller, outcome, shows);
    }

    fn push_reply(&mut self, (to, id): Caller, outcome: Outcome, shows: Option<SetId>) {
        let reply = NodeReply { id, outcome };
        self.effects
            .push_back(NodeEffect::Reply { to, reply, shows });
    }
}

fn numbered(request: &NodeRequest) -> Option<Numbered> {
    let (object, context, order, stability) = match request {
        NodeRequest::Write {
            object,
            context,
            order,
            stability,
            ..
        } => (object, context, Some(order), *stability),
        NodeRequest::Zero {
            object,
            context,
            order,
            ..
        } => (object, context, Some(order), Stability::Stable),
        NodeRequest::Exchange {
            object, context, ..
        } => (object, context, None, Stability::Stable),
        NodeRequest::Copy {
            object,
            context,
            stability,
            ..
        } => (object, context, None, *stability),
        _ => return None,
    };
    (context.sending.number > 0).then(|| Numbered {
        object: *object,
        context: *context,
        is_unstable: stability == Stability::Unstable,
        is_ordered: matches!(order, Some(Order::Given(_))),
    })
}
