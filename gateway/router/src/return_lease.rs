//! A lease goes back to its site, with what the site does not know yet. No door waits
//! for it.

use crossdock_names::{FileRef, Incarnation};
use crossdock_peer::{SiteAnswer, SiteError, SiteReply, SiteRequest};

use crate::leases::Return;
use crate::part::{Outcome, PartRequest};
use crate::soft::Soft;
use crate::work::{Answer, Step, site_replies};

/// A return in progress.
#[derive(Debug)]
pub(crate) struct ReturnWork {
    back: Return,
}

impl ReturnWork {
    pub(crate) fn begin(back: Return) -> (Self, Step) {
        let step = Step::Parts(vec![push(&back)]);
        (Self { back }, step)
    }

    pub(crate) const fn file(&self) -> FileRef {
        self.back.file
    }

    /// Who takes what is told, as far as is known.
    pub(crate) const fn taken_by(&self) -> Option<Incarnation> {
        self.back.incarnation
    }

    pub(crate) fn next(&self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        let outcome = site_replies(outcomes)
            .next()
            .map(|reply| settle(&self.back, &reply, soft));
        Step::Reply(Answer::failure(match outcome {
            Some(Err(error)) => error,
            _ => SiteError::Busy, // Nobody sees it.
        }))
    }
}

/// What gives a lease back.
pub(crate) fn push(back: &Return) -> PartRequest {
    PartRequest::Site(SiteRequest::as_root(back.operation()))
}

/// The site has answered: if it could not take what it was told, clients have to write
/// it again.
///
/// # Errors
/// Why it could not.
pub(crate) fn settle(back: &Return, reply: &SiteReply, soft: &mut Soft) -> Result<(), SiteError> {
    soft.leases.returned(back.lease);
    match &reply.outcome {
        Ok(SiteAnswer::Opened { .. }) if back.is_dirty() => {
            soft.unstable.lose();
            Ok(())
        }
        // Removed since: nobody wants it any more.
        Ok(_) | Err(SiteError::Stale) => Ok(()),
        Err(error) => {
            if back.is_dirty() {
                soft.unstable.lose();
            }
            Err(*error)
        }
    }
}
