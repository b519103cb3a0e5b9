//! One call to a site or node as a part of a request, sent again until it has
//! an answer that sending again cannot change.

use std::time::Duration;

use crossdock_names::Incarnation;
use crossdock_names::{Epoch, FileCapability, FileRef, HostId, NodeId, ObjectId};
use crossdock_peer::{
    AccessError, CallId, CopySource, Flow, NodeAnswer, NodeError, NodeRequest, Order, ReadVersion,
    Sending, SiteError, SiteOperation, SiteReply, SiteRequest, Stability, Transport, WriteContext,
    WriterId,
};
use crossdock_types::{Payload, Time, WallTime};

use crate::message::KeptRead;
use crate::warm::Piece;

/// A piece of a file that is in a known state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileState {
    pub(crate) file: FileRef,
    /// Since when it is in that state.
    pub(crate) changed: WallTime,
    /// First byte of the piece, in the file.
    pub(crate) offset_bytes: u64,
    /// Another gateway that keeps the file in that state.
    pub(crate) keeper: Option<HostId>,
}

/// What is asked of whom.
#[derive(Clone, Debug)]
pub(crate) enum PartRequest {
    /// The site of the operation's subject.
    Site(SiteRequest),
    /// Reads from a column.
    Read {
        object: ObjectId,
        offset_bytes: u64,
        length_bytes: u64,
        version: ReadVersion,
        patience_ms: u32,
        capability: Option<FileCapability>,
        /// In which connection the node may send the bytes itself.
        flow: Option<Flow>,
        /// In which state its file is, if nobody changes it as long as a lease lasts.
        state: Option<FileState>,
    },
    /// Writes to a column. By its number of this router's changes a node knows one that is sent
    /// again.
    Write {
        object: ObjectId,
        offset_bytes: u64,
        payload: Payload,
        stability: Stability,
        truncate_generation: u64,
        capability: Option<FileCapability>,
        number: u64,
    },
    /// Makes a hole in a column.
    Zero {
        object: ObjectId,
        offset_bytes: u64,
        length_bytes: u64,
        truncate_generation: u64,
        capability: Option<FileCapability>,
        number: u64,
    },
    /// Exchanges bytes of a column for others.
    Exchange {
        object: ObjectId,
        offset_bytes: u64,
        payload: Payload,
        truncate_generation: u64,
        capability: Option<FileCapability>,
        number: u64,
    },
    /// Has a column written with bytes of another one.
    Copy {
        object: ObjectId,
        offset_bytes: u64,
        source: CopySource,
        stability: Stability,
        frees_zeros: bool,
        truncate_generation: u64,
        capability: Option<FileCapability>,
        number: u64,
    },
    /// Asks a column what of it has space.
    Mapped {
        object: ObjectId,
        offset_bytes: u64,
        length_bytes: u64,
        truncate_generation: u64,
        capability: Option<FileCapability>,
    },
    /// Commits a column.
    Commit {
        object: ObjectId,
        incarnation: Incarnation,
        capability: Option<FileCapability>,
    },
}

impl PartRequest {
    /// The column that it is about.
    pub(crate) const fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Site(_) => None,
            Self::Read { object, .. }
            | Self::Write { object, .. }
            | Self::Zero { object, .. }
            | Self::Exchange { object, .. }
            | Self::Copy { object, .. }
            | Self::Mapped { object, .. }
            | Self::Commit { object, .. } => Some(object),
        }
    }

    /// A piece that is read of a file, and in which state that is, if it is known.
    pub(crate) fn piece(&self) -> Option<(Piece, WallTime)> {
        let Self::Read {
            object,
            offset_bytes,
            length_bytes,
            state,
            ..
        } = *self
        else {
            return None;
        };
        let piece = Piece {
            object,
            offset_bytes,
            length_bytes,
        };
        Some((piece, state?.changed))
    }

    /// Which other gateway keeps a piece, and how it is asked for it: in a connection's stream
    /// only.
    pub(crate) fn kept(&self) -> Option<(Flow, HostId, KeptRead)> {
        let Self::Read {
            object,
            offset_bytes,
            length_bytes,
            capability,
            flow: Some(flow),
            state: Some(state),
            ..
        } = *self
        else {
            return None;
        };
        let kept = KeptRead {
            file: state.file,
            changed: state.changed,
            offset_bytes: state.offset_bytes,
            length_bytes,
            object,
            object_offset: offset_bytes,
            capability,
        };
        (flow.transport == Transport::Tcp).then_some((flow, state.keeper?, kept))
    }

    /// In which connection the node may send what is read.
    pub(crate) const fn flow(&self) -> Option<Flow> {
        match self {
            Self::Read { flow, .. } => *flow,
            _ => None,
        }
    }

    /// By what right the column is asked.
    pub(crate) const fn capability(&self) -> Option<FileCapability> {
        match self {
            Self::Site(_) => None,
            Self::Read { capability, .. }
            | Self::Write { capability, .. }
            | Self::Zero { capability, .. }
            | Self::Exchange { capability, .. }
            | Self::Copy { capability, .. }
            | Self::Mapped { capability, .. }
            | Self::Commit { capability, .. } => *capability,
        }
    }

    /// The number by which a node knows the change that it is.
    pub(crate) const fn number(&self) -> Option<u64> {
        match self {
            Self::Write { number, .. }
            | Self::Zero { number, .. }
            | Self::Exchange { number, .. }
            | Self::Copy { number, .. } => Some(*number),
            Self::Site(_) | Self::Read { .. } | Self::Mapped { .. } | Self::Commit { .. } => None,
        }
    }

    /// What of a column it changes, and where its number is to be.
    pub(crate) fn changed(&mut self) -> Option<(Place, &mut u64)> {
        let (object, offset_bytes, length_bytes, number) = match self {
            Self::Write {
                object,
                offset_bytes,
                payload,
                number,
                ..
            } => (object, offset_bytes, payload.len() as u64, number),
            Self::Zero {
                object,
                offset_bytes,
                length_bytes,
                number,
                ..
            } => (object, offset_bytes, *length_bytes, number),
            Self::Exchange {
                object,
                offset_bytes,
                payload,
                number,
                ..
            } => (object, offset_bytes, payload.len() as u64, number),
            Self::Copy {
                object,
                offset_bytes,
                source,
                number,
                ..
            } => (object, offset_bytes, source.length_bytes, number),
            Self::Site(_) | Self::Read { .. } | Self::Mapped { .. } | Self::Commit { .. } => {
                return None;
            }
        };
        Some(((*object, *offset_bytes, length_bytes), number))
    }

    /// The message to a node, by that table and writer; `None` if it is a site's.
    pub(crate) fn node_request(&self, sent: &Sent) -> Option<NodeRequest> {
        let context = |truncate_generation| WriteContext {
            table_epoch: sent.table_epoch,
            writer: sent.writer,
            truncate_generation,
            sending: self
                .number()
                .map_or_else(Sending::default, |number| Sending {
                    number,
                    in_doubt_since: sent.in_doubt_since,
                    answered_below: sent.answered_below,
                }),
            ..WriteContext::default()
        };
        Some(match self {
            Self::Site(_) => return None,
            Self::Read {
                object,
                offset_bytes,
                length_bytes,
                version,
                patience_ms,
                ..
            } => NodeRequest::Read {
                object: *object,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
                version: *version,
                patience_ms: *patience_ms,
            },
            Self::Write {
                object,
                offset_bytes,
                payload,
                stability,
                truncate_generation,
                ..
            } => NodeRequest::Write {
                object: *object,
                offset_bytes: *offset_bytes,
                payload: payload.clone(),
                stability: *stability,
                context: context(*truncate_generation),
                order: Order::Primary,
            },
            Self::Zero {
                object,
                offset_bytes,
                length_bytes,
                truncate_generation,
                ..
            } => NodeRequest::Zero {
                object: *object,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
                context: context(*truncate_generation),
                order: Order::Primary,
            },
            Self::Exchange {
                object,
                offset_bytes,
                payload,
                truncate_generation,
                ..
            } => NodeRequest::Exchange {
                object: *object,
                offset_bytes: *offset_bytes,
                payload: payload.clone(),
                context: context(*truncate_generation),
            },
            Self::Copy {
                object,
                offset_bytes,
                source,
                stability,
                frees_zeros,
                truncate_generation,
                ..
            } => NodeRequest::Copy {
                object: *object,
                offset_bytes: *offset_bytes,
                source: Box::new(*source),
                stability: *stability,
                frees_zeros: *frees_zeros,
                context: context(*truncate_generation),
            },
            Self::Mapped {
                object,
                offset_bytes,
                length_bytes,
                truncate_generation,
                ..
            } => NodeRequest::Mapped {
                object: *object,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
                truncate_generation: *truncate_generation,
            },
            Self::Commit {
                object,
                incarnation,
                ..
            } => NodeRequest::Commit {
                object: *object,
                incarnation: *incarnation,
            },
        })
    }
}

/// Bytes of a column: from where on, and how many.
pub(crate) type Place = (ObjectId, u64, u64);

/// By what a message to a node is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) table_epoch: Epoch,
    pub(crate) writer: WriterId,
    /// The table of the first sending that may have been carried out.
    pub(crate) in_doubt_since: Option<Epoch>,
    /// Changes with lower numbers are answered.
    pub(crate) answered_below: u64,
}

/// What came of a part.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Site(Box<SiteReply>),
    Node(Result<NodeAnswer, NodeError>),
}

impl Outcome {
    /// Whether a node wants to see a newer capability.
    pub(crate) const fn is_outdated(&self) -> bool {
        matches!(self, Self::Node(Err(NodeError::Refused(error))) if error.is_outdated())
    }
}

/// How far a part is.
#[derive(Debug)]
pub(crate) enum PartState {
    /// Sent; to a node, if it is one's.
    Sent(CallId, Option<NodeId>),
    /// To be sent again then.
    Later(Time),
    /// To be sent again with a table of at least this epoch.
    NeedsTable(Epoch),
    /// Answered.
    Done(Outcome),
}

/// A part with its state.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) request: PartRequest,
    pub(crate) state: PartState,
    attempts: u32,
    /// Who was asked last, and when.
    pub(crate) asked: Asked,
    pub(crate) asked_at: Time,
    /// A change that a site or node may have made without being able to say so.
    pub(crate) is_in_doubt: bool,
    /// By which table it was sent, of the sendings that may have been carried out the first.
    pub(crate) sent_by: Epoch,
}

/// Who was asked for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nobody yet: what a lease says holds still.
    Nobody,
    /// A member that may have it in memory, for one version.
    Warm,
    /// Another gateway, which keeps the file.
    Keeper,
    /// Who knows which version is current.
    Owner,
}

/// What to do after an answer.
pub(crate) enum Verdict {
    /// It is final.
    Done(Outcome),
    /// Send again after a while.
    After(Duration),
    /// Send again with a newer table.
    Table(Epoch),
}

/// First pause before a part is sent again; it doubles with each attempt.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LONGEST: Duration = Duration::from_millis(500);
/// How often a node is asked that does not know the manager that made a capability,
/// before the file is opened again.
const MINTER_ATTEMPTS: u32 = 5;
/// Pause when a node refuses the table that the router believes to be current.
const PAUSE_TABLE: Duration = Duration::from_millis(20);

impl Part {
    /// A part that is to be sent at once.
    pub(crate) const fn new(request: PartRequest) -> Self {
        Self {
            request,
            state: PartState::Later(Time(0)),
            attempts: 0,
            asked: Asked::Nobody,
            asked_at: Time(0),
            is_in_doubt: false,
            sent_by: Epoch(0),
        }
    }

    /// What an answer of the site means.
    pub(crate) fn judge_site(&mut self, reply: Box<SiteReply>) -> Verdict {
        match reply.outcome {
            // "Nothing was changed": sending again is safe for every operation,
            // and cheaper than the client's own pause after NFS3ERR_JUKEBOX.
            Err(SiteError::Busy) => Verdict::After(self.next_pause()),
            Err(SiteError::Moved | SiteError::Unanswered) => {
                self.is_in_doubt |= self.is_once();
                Verdict::After(self.next_pause())
            }
            // It may have been done before this gateway was revoked: it asks until it
            // is let in again, or ends.
            Err(SiteError::Refused) if self.is_in_doubt => Verdict::After(self.next_pause()),
            _ => Verdict::Done(Outcome::Site(reply)),
        }
    }

    /// What an answer of a node means. A primary that cannot read its disk has
    /// asked the other members itself.
    pub(crate) fn judge_node(
        &mut self,
        outcome: Result<NodeAnswer, NodeError>,
        table: Epoch,
    ) -> Verdict {
        match outcome {
            // The primary has it, if anybody does.
            Err(_) if matches!(self.asked, Asked::Warm | Asked::Keeper) => {
                Verdict::After(Duration::ZERO)
            }
            Err(NodeError::Busy { retry_after_ms }) => {
                let asked = Duration::from_millis(u64::from(retry_after_ms));
                Verdict::After(self.next_pause().max(asked.min(PAUSE_LONGEST)))
            }
            Err(NodeError::Unavailable { .. }) => {
                self.is_in_doubt |= self.request.number().is_some();
                Verdict::After(self.next_pause())
            }
            Err(NodeError::StaleTable { current }) if current > table => Verdict::Table(current),
            Err(NodeError::StaleTable { .. }) => Verdict::After(PAUSE_TABLE),
            // The node has just met the manager, or will at once; or never.
            Err(NodeError::Refused(AccessError::UnknownMinter { .. }))
                if self.attempts < MINTER_ATTEMPTS =>
            {
                Verdict::After(self.next_pause())
            }
            // It was not asked what has become of an earlier sending.
            Err(NodeError::Refused(_)) if self.is_in_doubt => {
                Verdict::Done(Outcome::Node(Err(NodeError::Unclear)))
            }
            outcome => Verdict::Done(Outcome::Node(outcome)),
        }
    }

    /// Whether it is a change that must be made once.
    const fn is_once(&self) -> bool {
        matches!(&self.request, PartRequest::Site(request) if request.duplicate.is_some())
    }

    /// Whether only the site's answer tells what has become of it, however late: it may have been
    /// made, also when its client sent it to another gateway; that is not so of what this one has
    /// numbered.
    pub(crate) const fn must_be_told(&self) -> bool {
        match &self.request {
            PartRequest::Site(request) if request.duplicate.is_some() => {
                let is_numbered_here = matches!(
                    request.operation,
                    SiteOperation::Write { .. }
                        | SiteOperation::Zero { .. }
                        | SiteOperation::Exchange { .. }
                );
                self.is_in_doubt || !is_numbered_here
            }
            _ => false,
        }
    }

    /// The pause before the next attempt.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = PAUSE_FIRST * (1 << self.attempts.min(7));
        self.attempts += 1;
        pause.min(PAUSE_LONGEST)
    }

    /// The answer of a part that has run out of time.
    pub(crate) fn too_late(&self) -> Outcome {
        match self.request {
            PartRequest::Site(_) => {
                let reply = SiteReply::refusal(CallId::default(), SiteError::Busy);
                Outcome::Site(Box::new(reply))
            }
            _ => Outcome::Node(Err(NodeError::Busy { retry_after_ms: 0 })),
        }
    }
}

/// What a client is told about a node's failure.
pub(crate) const fn site_error(error: &NodeError) -> SiteError {
    match error {
        NodeError::NoSpace => SiteError::NoSpace,
        // Fenced: this gateway was replaced; the client finds the other one.
        // Truncated or removed again and again: the next attempt may get through.
        NodeError::Busy { .. }
        | NodeError::Unavailable { .. }
        | NodeError::StaleTable { .. }
        | NodeError::Fenced { .. }
        | NodeError::StaleGeneration { .. }
        | NodeError::NoObject
        // Who asked looks at what is there now.
        | NodeError::Unclear => SiteError::Busy,
        NodeError::Refused(error) if error.is_outdated() => SiteError::Busy,
        NodeError::Refused(AccessError::Revoked { .. } | AccessError::Name { .. }) => {
            SiteError::Refused
        }
        // Others do not know this gateway yet, or have replaced it, which it will learn.
        NodeError::Refused(AccessError::Role { .. }) => SiteError::Busy,
        NodeError::Media { .. }
        | NodeError::WrongEnd { .. }
        | NodeError::VersionGone
        | NodeError::UnknownPin
        | NodeError::Lost { .. }
        | NodeError::Invalid(_)
        | NodeError::Source(_)
        // What this gateway has shown is wrong: asking again shows the same.
        | NodeError::Refused(_) => SiteError::Io,
    }
}
