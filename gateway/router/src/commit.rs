//! COMMIT: everything that took unstable bytes of a file makes them durable
//! under the incarnation that took them (CONSISTENCY 6).
//!
//! A site's commit also makes the pushed attributes durable, so size and times
//! need no push of their own here.

use crossdock_names::{FileCapability, FileRef, Incarnation};
use crossdock_peer::{
    Attributes, Caller, FileKind, NodeAnswer, NodeError, OpenFor, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest,
};

use crate::leases::Return;
use crate::part::{Outcome, PartRequest, site_error};
use crate::read::refused;
use crate::return_lease::{push, settle};
use crate::soft::Soft;
use crate::unstable::{Holder, Taken, Unstable};
use crate::work::{Answer, Step, site_replies};

/// The holders of a file as of a moment.
#[derive(Debug)]
pub(crate) struct CommitSet {
    file: FileRef,
    holders: Vec<(Holder, Taken)>,
    capability: Option<FileCapability>,
}

impl CommitSet {
    pub(crate) fn new(file: FileRef, unstable: &Unstable) -> Self {
        Self {
            file,
            holders: unstable.snapshot(file),
            capability: unstable.right(file),
        }
    }

    /// One commit per holder.
    pub(crate) fn parts(&self, caller: &Caller) -> Vec<PartRequest> {
        let part = |(holder, taken): &(Holder, Taken)| match holder {
            Holder::Column(object) => PartRequest::Commit {
                object: *object,
                incarnation: taken.incarnation,
                capability: self.capability,
            },
            Holder::Site => site(
                caller,
                SiteOperation::Commit {
                    file: self.file,
                    incarnation: taken.incarnation,
                },
            ),
        };
        self.holders.iter().map(part).collect()
    }

    /// Forgets what is durable or gone; `outcomes` are those of the parts.
    ///
    /// # Errors
    /// The first reason why something may become durable only later.
    pub(crate) fn settle(
        &self,
        outcomes: &[Outcome],
        unstable: &mut Unstable,
    ) -> Result<(), SiteError> {
        let mut result = Ok(());
        for ((holder, taken), outcome) in self.holders.iter().zip(outcomes) {
            match verdict(outcome) {
                Ok(()) => unstable.settled(self.file, *holder, *taken),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

/// Whether a holder has nothing unstable any more.
fn verdict(outcome: &Outcome) -> Result<(), SiteError> {
    match outcome {
        Outcome::Node(Ok(NodeAnswer::Committed)) => Ok(()),
        // Removed or truncated since: nobody wants the bytes any more.
        Outcome::Node(Err(NodeError::NoObject)) => Ok(()),
        // The verifier has changed by now; the client resends.
        Outcome::Node(Err(NodeError::Lost { .. })) => Ok(()),
        Outcome::Node(Err(error)) => Err(site_error(error)),
        Outcome::Node(Ok(_)) => Err(SiteError::Io),
        Outcome::Site(reply) => match reply.outcome {
            Ok(_) | Err(SiteError::Lost { .. } | SiteError::Stale) => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// A COMMIT in progress.
#[derive(Debug)]
pub(crate) struct CommitWork {
    caller: Caller,
    set: CommitSet,
    phase: Phase,
    /// The lease under which it was written.
    back: Option<Return>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The site learns what it does not know yet.
    Returning,
    /// All holders commit.
    First,
    /// By what right the columns were written is outdated: the site gives another.
    Opening,
    /// Those that are left commit.
    Second,
}

impl CommitWork {
    pub(crate) fn begin(caller: &Caller, file: FileRef, soft: &mut Soft) -> (Self, Step) {
        let mut work = Self {
            caller: caller.clone(),
            set: CommitSet::new(file, &soft.unstable),
            phase: Phase::First,
            back: soft.leases.end_writer(file),
        };
        let step = match &work.back {
            Some(back) => Step::Parts(vec![push(back)]),
            None => work.commit(),
        };
        if work.back.is_some() {
            work.phase = Phase::Returning;
        }
        (work, step)
    }

    /// Who takes what is told with the lease.
    pub(crate) fn taken_by(&self) -> Option<Incarnation> {
        self.back.as_ref()?.incarnation
    }

    pub(crate) const fn file(&self) -> FileRef {
        self.set.file
    }

    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        if self.phase == Phase::Returning {
            return self.after_return(outcomes, soft);
        }
        let unstable = &mut soft.unstable;
        if self.phase == Phase::Opening {
            return match site_replies(outcomes).next() {
                Some(reply) => self.after_open(reply, unstable),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            };
        }
        let settled = self.set.settle(&outcomes, unstable);
        if self.phase == Phase::First && outcomes.iter().any(Outcome::is_outdated) {
            self.phase = Phase::Opening;
            return self.open();
        }
        let Some(site) = site_replies(outcomes).next() else {
            return Step::Reply(Answer::failure(SiteError::Io));
        };
        let is_part = matches!(site.outcome, Ok(SiteAnswer::Part { .. }));
        let is_file = !is_part && site.subject.after.as_ref().is_none_or(is_regular);
        let outcome = match site.outcome {
            Ok(_) if !is_file => Err(SiteError::Invalid),
            Ok(_) | Err(SiteError::Lost { .. }) => settled.map(|()| SiteAnswer::Committed),
            Err(error) => Err(error),
        };
        Step::Reply(Answer::new(outcome, site.subject))
    }

    fn after_return(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        let reply = site_replies(outcomes).next();
        if let Some((back, reply)) = self.back.as_ref().zip(reply)
            && let Err(error) = settle(back, &reply, soft)
        {
            return Step::Reply(Answer::new(Err(error), reply.subject));
        }
        self.set = CommitSet::new(self.set.file, &soft.unstable);
        self.phase = Phase::First;
        self.commit()
    }

    fn commit(&self) -> Step {
        let mut parts = self.set.parts(&self.caller);
        if !matches!(self.set.holders.last(), Some((Holder::Site, _))) {
            // Nothing to commit at the site; the reply still has attributes.
            let file = self.set.file;
            parts.push(site(&self.caller, SiteOperation::GetAttributes { file }));
        }
        Step::Parts(parts)
    }

    /// Who wrote was allowed to; what became of that since is no matter now.
    fn open(&self) -> Step {
        let operation = SiteOperation::Open {
            file: self.set.file,
            purpose: OpenFor::Write {
                offset_bytes: 0,
                end_bytes: 0,
            },
            holder: None,
        };
        Step::Parts(vec![PartRequest::Site(SiteRequest::as_root(operation))])
    }

    fn after_open(&mut self, reply: SiteReply, unstable: &mut Unstable) -> Step {
        let Ok(SiteAnswer::Opened { layout, .. }) = &reply.outcome else {
            return Step::Reply(refused(reply));
        };
        unstable.keep_right(self.set.file, layout.capability);
        self.set = CommitSet::new(self.set.file, unstable);
        self.phase = Phase::Second;
        self.commit()
    }
}

/// Only files have content. RFC 1813 section 3.3.21 has no status for others;
/// Ganesha's answer is INVAL, too.
const fn is_regular(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::Regular)
}

fn site(caller: &Caller, operation: SiteOperation) -> PartRequest {
    PartRequest::Site(SiteRequest {
        caller: caller.clone(),
        duplicate: None,
        operation,
    })
}
