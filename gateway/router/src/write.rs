//! WRITE of any range (Slice 3.1 and 4.1): permission and layout first, then
//! the site's part and the columns at once, then size and time are pushed to
//! the site, stable before a stable reply.

use crossdock_limits::FILE_BYTES_MAX;
use crossdock_names::{FileRef, Incarnation};
use crossdock_peer::{
    Attributes, BeforeAttributes, Caller, FileLayout, NodeAnswer, NodeError, OpenFor, SiteAnswer,
    SiteError, SiteOperation, SiteReply, SiteRequest, Stability, WeakCache,
};
use crossdock_types::Payload;

use crate::commit::CommitSet;
use crate::part::{Outcome, PartRequest, site_error};
use crate::pieces;
use crate::read::refused;
use crate::unstable::Unstable;
use crate::work::{Answer, Step, boundary, site_replies};

/// How often a write begins again because the file was truncated under it, or the
/// nodes wanted to see another capability.
const RESTARTS_MAX: u32 = 16;

/// A WRITE in progress.
#[derive(Debug)]
pub(crate) struct WriteWork {
    caller: Caller,
    pub(crate) file: FileRef,
    start: u64,
    payload: Payload,
    stability: Stability,
    unstable_holders_max: usize,
    opened: Option<(FileLayout, Incarnation)>,
    head: WeakCache, // What the site said to its part.
    restarts: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The site gives permission and layout, and makes columns.
    Opening,
    /// Site and columns write.
    Writing,
    /// The site learns the size.
    Pushing,
    /// Too much is unstable: the oldest file is committed; then this answer.
    Evicting(CommitSet, Box<Answer>),
}

impl WriteWork {
    pub(crate) fn begin(
        caller: Caller,
        file: FileRef,
        offset: u64,
        payload: Payload,
        stability: Stability,
        unstable_holders_max: usize,
    ) -> Result<(Self, Step), SiteError> {
        let end = offset.checked_add(payload.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(SiteError::FileTooBig);
        }
        let mut work = Self {
            caller,
            file,
            // A write of nothing asks for permission only: the site's, anywhere.
            start: if payload.is_empty() { 0 } else { offset },
            payload,
            stability,
            unstable_holders_max,
            opened: None,
            head: WeakCache::default(),
            restarts: 0,
            phase: Phase::Writing,
        };
        let step = if work.has_tail() {
            work.open()
        } else {
            work.write()
        };
        Ok((work, step))
    }

    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, unstable: &mut Unstable) -> Step {
        match std::mem::replace(&mut self.phase, Phase::Writing) {
            Phase::Writing => self.after_write(outcomes, unstable),
            Phase::Opening => match site_replies(outcomes).next() {
                Some(reply) => self.after_open(reply),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            Phase::Pushing => match site_replies(outcomes).next() {
                Some(reply) => self.after_push(reply, unstable),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            Phase::Evicting(set, answer) => {
                if set.settle(&outcomes, unstable).is_err() {
                    // Not durable and yet to be forgotten: the client must resend.
                    unstable.lose();
                }
                Step::Reply(*answer)
            }
        }
    }

    /// The site's incarnation when it opened the file.
    pub(crate) fn opened_by(&self) -> Option<Incarnation> {
        self.opened.as_ref().map(|(_, incarnation)| *incarnation)
    }

    const fn end(&self) -> u64 {
        self.start + self.payload.len() as u64
    }

    fn boundary(&self) -> u64 {
        boundary(self.start, self.end())
    }

    fn has_tail(&self) -> bool {
        self.boundary() < self.end()
    }

    fn site(&self, operation: SiteOperation) -> PartRequest {
        PartRequest::Site(SiteRequest {
            caller: self.caller.clone(),
            duplicate: None,
            operation,
        })
    }

    fn open(&mut self) -> Step {
        self.phase = Phase::Opening;
        Step::Parts(vec![self.site(SiteOperation::Open {
            file: self.file,
            purpose: OpenFor::Write {
                offset_bytes: self.boundary(),
                end_bytes: self.end(),
            },
        })])
    }

    fn after_open(&mut self, reply: SiteReply) -> Step {
        let Ok(SiteAnswer::Opened {
            layout,
            incarnation,
        }) = &reply.outcome
        else {
            return Step::Reply(refused(reply));
        };
        if layout.columns == 0 {
            return Step::Reply(Answer::new(Err(SiteError::Io), reply.subject));
        }
        self.opened = Some((layout.clone(), *incarnation));
        self.write()
    }

    /// All parts of the write, the site's first.
    fn write(&mut self) -> Step {
        self.phase = Phase::Writing;
        let mut parts = Vec::new();
        let boundary = self.boundary();
        if self.start < boundary || self.payload.is_empty() {
            parts.push(self.site(SiteOperation::Write {
                file: self.file,
                offset_bytes: self.start,
                payload: self.slice(self.start, boundary),
                stability: self.stability,
            }));
        }
        if let Some((layout, _)) = &self.opened {
            for piece in pieces::split(layout, boundary, self.end()) {
                parts.push(PartRequest::Write {
                    object: piece.object,
                    offset_bytes: piece.object_offset,
                    payload: self.slice(piece.file_offset, piece.file_offset + piece.length_bytes),
                    stability: self.stability,
                    truncate_generation: layout.truncate_generation,
                    capability: layout.capability,
                });
            }
        }
        Step::Parts(parts)
    }

    /// The bytes of `start..end` of the file.
    fn slice(&self, start: u64, end: u64) -> Payload {
        let at = |offset: u64| usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        self.payload.slice(at(start), at(end))
    }

    fn after_write(&mut self, outcomes: Vec<Outcome>, unstable: &mut Unstable) -> Step {
        let mut again = None;
        for outcome in outcomes {
            match outcome {
                Outcome::Site(reply) if reply.outcome.is_ok() && self.opened.is_none() => {
                    return self.finish((*reply).into(), unstable);
                }
                Outcome::Site(reply) if reply.outcome.is_ok() => self.head = reply.subject,
                Outcome::Site(reply) => return Step::Reply((*reply).into()),
                Outcome::Node(Ok(NodeAnswer::Written { .. })) => {}
                Outcome::Node(Err(
                    error @ (NodeError::StaleGeneration { .. } | NodeError::NoObject),
                )) => again = Some(error),
                Outcome::Node(Err(error @ NodeError::Refused(refused)))
                    if refused.is_outdated() =>
                {
                    again = Some(error);
                }
                Outcome::Node(Err(error)) => {
                    return self.fail(site_error(&error));
                }
                Outcome::Node(Ok(_)) => return self.fail(SiteError::Io),
            }
        }
        match again {
            None => self.push(),
            // The truncate may have cut what the other parts wrote: all of the
            // write is done again after it, so that no part of it is missing. So it
            // is where a node wants to see another capability.
            Some(_) if self.restarts < RESTARTS_MAX => {
                self.restarts += 1;
                self.open()
            }
            Some(error) => self.fail(site_error(&error)),
        }
    }

    /// The columns failed; the site's part may have been written.
    fn fail(&self, error: SiteError) -> Step {
        Step::Reply(Answer::new(Err(error), self.head.clone()))
    }

    fn push(&mut self) -> Step {
        self.phase = Phase::Pushing;
        let generation = |(layout, _): &(FileLayout, Incarnation)| layout.truncate_generation;
        Step::Parts(vec![self.site(SiteOperation::PushAttributes {
            file: self.file,
            size_at_least_bytes: self.end(),
            wrote: true,
            read: false,
            truncate_generation: self.opened.as_ref().map_or(0, generation),
            stability: self.stability,
        })])
    }

    fn after_push(&mut self, reply: SiteReply, unstable: &Unstable) -> Step {
        // The file was truncated between two parts of the write, and the one that
        // came first is cut: all of it is done again.
        if let Ok(SiteAnswer::Opened { .. }) = &reply.outcome {
            if self.restarts == RESTARTS_MAX {
                return self.fail(SiteError::Busy);
            }
            self.restarts += 1;
            return self.open();
        }
        let (Ok(_), Some(incarnation)) = (&reply.outcome, self.opened_by()) else {
            return Step::Reply(refused(reply));
        };
        let subject = WeakCache {
            before: self.before(&reply.subject),
            after: reply.subject.after,
        };
        let written = SiteAnswer::Written { incarnation };
        self.finish(Answer::new(Ok(written), subject), unstable)
    }

    /// Attributes before both of the site's steps, if nothing came in between.
    fn before(&self, pushed: &WeakCache) -> Option<BeforeAttributes> {
        match &self.head.after {
            None => pushed.before,
            Some(between) if pushed.before == Some(before_of(between)) => self.head.before,
            Some(_) => None,
        }
    }

    /// Answers, after making room for the holders of this write if need be.
    fn finish(&mut self, answer: Answer, unstable: &Unstable) -> Step {
        if self.stability == Stability::Stable || unstable.len() <= self.unstable_holders_max {
            return Step::Reply(answer);
        }
        let Some(oldest) = unstable.oldest() else {
            return Step::Reply(answer);
        };
        let set = CommitSet::new(oldest, unstable);
        let parts = set.parts(&Caller::root());
        self.phase = Phase::Evicting(set, Box::new(answer));
        Step::Parts(parts)
    }
}

const fn before_of(attributes: &Attributes) -> BeforeAttributes {
    BeforeAttributes {
        size_bytes: attributes.size_bytes,
        modified: attributes.modified,
        changed: attributes.changed,
    }
}
