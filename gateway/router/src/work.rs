//! What a request is made of: phases of parts that run at the same time.

use std::collections::BTreeSet;

use crossdock_names::{
    FileRef, Incarnation, RoutingTable, SMALL_FILE_THRESHOLD_BYTES, SiteId, Spread,
};
use crossdock_peer::{
    Caller, NodeAnswer, NodeError, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
    Stability, WeakCache,
};

use crate::commit::CommitWork;
use crate::find::FindWork;
use crate::list::ListWork;
use crate::mapped::MappedWork;
use crate::merge::MergeWork;
use crate::part::{Outcome, PartRequest};
use crate::read::{Bulk, ReadWork};
use crate::return_lease::ReturnWork;
use crate::soft::Soft;
use crate::unstable::{Holder, Unstable};
use crate::write::{Content, Copied, WriteWork};

/// What a request does.
#[derive(Debug)]
pub(crate) enum Work {
    /// One site does it all.
    Forward,
    Find(Box<FindWork>),
    List(Box<ListWork>),
    /// The parts of a directory are listed one after the other.
    Merge(Box<MergeWork>),
    /// All sites do it.
    Everywhere,
    Read(Box<ReadWork>),
    Write(Box<WriteWork>),
    Mapped(Box<MappedWork>),
    Commit(Box<CommitWork>),
    Return(Box<ReturnWork>),
}

/// What comes next.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would cost every reply an allocation"
)]
pub(crate) enum Step {
    /// These parts, all at once; then [`Work::next`] with their outcomes.
    Parts(Vec<PartRequest>),
    /// The end.
    Reply(Answer),
}

/// What the door gets, but for ids.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Result<SiteAnswer, SiteError>,
    pub(crate) subject: WeakCache,
    pub(crate) second: WeakCache,
}

impl Answer {
    pub(crate) fn new(outcome: Result<SiteAnswer, SiteError>, subject: WeakCache) -> Self {
        Self {
            outcome,
            subject,
            second: WeakCache::default(),
        }
    }

    /// A failure about which no more is known.
    pub(crate) fn failure(error: SiteError) -> Self {
        Self::new(Err(error), WeakCache::default())
    }
}

impl From<SiteReply> for Answer {
    fn from(reply: SiteReply) -> Self {
        Self {
            outcome: reply.outcome,
            subject: reply.subject,
            second: reply.second,
        }
    }
}

impl Work {
    /// How to do `request`, and what becomes of the bytes that it reads.
    pub(crate) fn begin(
        request: SiteRequest,
        bulk: Bulk,
        table: &RoutingTable,
        soft: &mut Soft,
    ) -> (Self, Step) {
        let SiteRequest {
            caller,
            duplicate,
            operation,
        } = request;
        match operation {
            SiteOperation::Read {
                file,
                offset_bytes,
                length_bytes,
                patience_ms,
            } => {
                let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
                let (work, step) = ReadWork::begin(caller, file, range, (patience_ms, bulk), soft);
                (Self::Read(Box::new(work)), step)
            }
            SiteOperation::Write {
                file,
                offset_bytes,
                payload,
                stability,
            } => {
                let content = Content::Bytes(payload, stability);
                Self::begin_write(caller, (file, offset_bytes), content, soft)
            }
            SiteOperation::Zero {
                file,
                offset_bytes,
                length_bytes,
            } => {
                let content = Content::Hole(length_bytes);
                Self::begin_write(caller, (file, offset_bytes), content, soft)
            }
            SiteOperation::Exchange {
                file,
                offset_bytes,
                payload,
            } => {
                let content = Content::Exchange(payload);
                Self::begin_write(caller, (file, offset_bytes), content, soft)
            }
            SiteOperation::Copy {
                file,
                offset_bytes,
                source,
                source_offset_bytes,
                length_bytes,
                stability,
                frees_zeros,
            } => {
                let from = (source, source_offset_bytes);
                let copied = Copied::new(from, length_bytes, stability, frees_zeros);
                let content = Content::Copy(Box::new(copied));
                Self::begin_write(caller, (file, offset_bytes), content, soft)
            }
            SiteOperation::Mapped {
                file,
                offset_bytes,
                length_bytes,
            } => {
                let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
                match MappedWork::begin(caller, file, range, soft) {
                    Ok((work, step)) => (Self::Mapped(Box::new(work)), step),
                    Err(error) => (Self::Forward, Step::Reply(Answer::failure(error))),
                }
            }
            SiteOperation::Commit { file, .. } => {
                let (work, step) = CommitWork::begin(&caller, file, soft);
                (Self::Commit(Box::new(work)), step)
            }
            SiteOperation::Locks { operation, .. } if operation.is_about_clients() => {
                let opened = table.hosts.opened.iter().chain(&soft.lock_sites);
                let sites = opened.copied().chain([SiteId(0)]);
                let sites: BTreeSet<SiteId> = sites.collect();
                let part = |site| {
                    PartRequest::Site(SiteRequest {
                        caller: caller.clone(),
                        duplicate,
                        operation: SiteOperation::Locks {
                            file: FileRef::root_of(site),
                            operation: operation.clone(),
                        },
                    })
                };
                let parts = sites.into_iter().map(part).collect();
                (Self::Everywhere, Step::Parts(parts))
            }
            operation => {
                if table.spread.is_hashed
                    && let Some((work, step)) = MergeWork::begin(&caller, table.spread, &operation)
                {
                    return (Self::Merge(Box::new(work)), step);
                }
                if matches!(operation, SiteOperation::Locks { .. }) {
                    soft.lock_sites.insert(operation.site());
                }
                let part = PartRequest::Site(SiteRequest {
                    caller,
                    duplicate,
                    operation: operation.placed(&table.spread),
                });
                (Self::Forward, Step::Parts(vec![part]))
            }
        }
    }

    fn begin_write(
        caller: Caller,
        (file, offset): (FileRef, u64),
        content: Content,
        soft: &mut Soft,
    ) -> (Self, Step) {
        match WriteWork::begin(caller, file, offset, content, soft) {
            Ok((work, step)) => (Self::Write(Box::new(work)), step),
            Err(error) => (Self::Forward, Step::Reply(Answer::failure(error))),
        }
    }

    /// The answer to a forwarded request, or the step by which other sites are
    /// asked for the rest of it.
    pub(crate) fn after_forward(
        &mut self,
        request: &SiteRequest,
        spread: Spread,
        reply: Box<SiteReply>,
    ) -> Step {
        match FindWork::begin(request, spread, reply) {
            Ok((work, step)) => {
                *self = Self::Find(Box::new(work));
                step
            }
            Err(reply) => match ListWork::after(request, reply) {
                Ok((work, step)) => {
                    *self = Self::List(Box::new(work));
                    step
                }
                Err(reply) => Step::Reply(Answer::from(*reply)),
            },
        }
    }

    /// All parts of the phase are done.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        match self {
            // Not reached: its one part is a site's, see `after_forward`.
            Self::Forward => Step::Reply(Answer::failure(SiteError::Io)),
            Self::Everywhere => Step::Reply(together(outcomes)),
            Self::Find(work) => work.next(outcomes),
            Self::List(work) => work.next(outcomes),
            Self::Merge(work) => work.next(outcomes),
            Self::Read(work) => work.next(outcomes, soft),
            Self::Write(work) => work.next(outcomes, soft),
            Self::Mapped(work) => work.next(outcomes, soft),
            Self::Commit(work) => work.next(outcomes, soft),
            Self::Return(work) => work.next(outcomes, soft),
        }
    }

    /// Nothing is changed by it: it may end at any moment.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Mapped(_))
    }

    /// Whether it writes.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }

    /// Notes what an answer reveals about holders, as soon as it is there.
    pub(crate) fn observe(&self, part: &PartRequest, outcome: &Outcome, unstable: &mut Unstable) {
        let (holder, incarnation, stability) = match (part, outcome) {
            (_, Outcome::Node(Err(NodeError::Lost { .. }))) => return unstable.lose(),
            (_, Outcome::Site(reply)) if matches!(reply.outcome, Err(SiteError::Lost { .. })) => {
                return unstable.lose();
            }
            (
                PartRequest::Write {
                    object, stability, ..
                }
                | PartRequest::Copy {
                    object, stability, ..
                },
                Outcome::Node(Ok(NodeAnswer::Written { incarnation, .. })),
            ) => (Holder::Column(*object), *incarnation, *stability),
            (
                PartRequest::Exchange { object, .. },
                Outcome::Node(Ok(NodeAnswer::Written { incarnation, .. })),
            ) => (Holder::Column(*object), *incarnation, Stability::Stable),
            (PartRequest::Site(request), Outcome::Site(reply)) => {
                let Some((incarnation, stability)) = self.site_took(&request.operation, reply)
                else {
                    return;
                };
                (Holder::Site, incarnation, stability)
            }
            _ => return,
        };
        let Some(file) = self.file() else { return };
        match stability {
            Stability::Unstable => {
                unstable.took(file, holder, incarnation);
                if let Holder::Column(_) = holder {
                    unstable.keep_right(file, part.capability());
                }
            }
            Stability::Stable | Stability::Data => unstable.saw(file, holder, incarnation),
        }
    }

    /// Under which incarnation a site took what, if it took anything.
    fn site_took(
        &self,
        operation: &SiteOperation,
        reply: &SiteReply,
    ) -> Option<(Incarnation, Stability)> {
        match (operation, reply.outcome.as_ref().ok()?) {
            (SiteOperation::Write { stability, .. }, SiteAnswer::Written { incarnation }) => {
                Some((*incarnation, *stability))
            }
            (SiteOperation::Zero { .. }, SiteAnswer::Written { incarnation }) => {
                Some((*incarnation, Stability::Stable))
            }
            // Opening leaves nothing behind, but tells who is there.
            (_, SiteAnswer::Opened { incarnation, .. }) => Some((*incarnation, Stability::Stable)),
            (
                SiteOperation::PushAttributes {
                    wrote: true,
                    stability,
                    ..
                },
                SiteAnswer::Done,
            ) => match self {
                Self::Write(work) => Some((work.opened_by()?, *stability)),
                Self::Return(work) => Some((work.taken_by()?, *stability)),
                Self::Commit(work) => Some((work.taken_by()?, *stability)),
                _ => None,
            },
            _ => None,
        }
    }

    const fn file(&self) -> Option<FileRef> {
        match self {
            Self::Forward | Self::Find(_) | Self::List(_) | Self::Merge(_) | Self::Everywhere => {
                None
            }
            Self::Read(work) => Some(work.file),
            Self::Write(work) => Some(work.file),
            Self::Mapped(work) => Some(work.file),
            Self::Commit(work) => Some(work.file()),
            Self::Return(work) => Some(work.file()),
        }
    }
}

/// What all sites say together: the first refusal, or all that they list.
fn together(outcomes: Vec<Outcome>) -> Answer {
    let mut listed = None;
    for reply in site_replies(outcomes) {
        match reply.outcome {
            Ok(SiteAnswer::Locked(locks)) => listed.get_or_insert_with(Vec::new).extend(locks),
            Ok(_) => {}
            Err(error) => return Answer::failure(error),
        }
    }
    let answer = listed.map_or(SiteAnswer::Done, SiteAnswer::Locked);
    Answer::new(Ok(answer), WeakCache::default())
}

/// The outcomes that came from sites, in order.
pub(crate) fn site_replies(outcomes: Vec<Outcome>) -> impl Iterator<Item = SiteReply> {
    outcomes.into_iter().filter_map(|outcome| match outcome {
        Outcome::Site(reply) => Some(*reply),
        Outcome::Node(_) => None,
    })
}

/// Where the bytes of `offset..end` change hands from site to columns.
pub(crate) fn boundary(offset: u64, end: u64) -> u64 {
    SMALL_FILE_THRESHOLD_BYTES.clamp(offset, end)
}
