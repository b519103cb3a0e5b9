//! Lists of directories with attributes: those of files of other sites are asked
//! of these.

use crossdock_names::FileRef;
use crossdock_peer::{
    DirectoryEntry, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, WeakCache,
};

use crate::part::{Outcome, PartRequest};
use crate::work::{Answer, Step, site_replies};

/// Files of other sites that are asked for; of more the client asks itself.
const FILES_MAX: usize = 128;

/// A list that lacks attributes.
#[derive(Debug)]
pub(crate) struct ListWork {
    entries: Vec<DirectoryEntry>,
    end: bool,
    verifier: [u8; 8],
    subject: WeakCache,
    /// Places in the list that have been asked for.
    asked: Vec<usize>,
}

impl ListWork {
    /// Goes on after the site's answer; the reply again, if nothing is missing.
    pub(crate) fn begin(
        request: &SiteRequest,
        reply: Box<SiteReply>,
    ) -> Result<(Self, Step), Box<SiteReply>> {
        let wants = matches!(
            request.operation,
            SiteOperation::ReadDirectory {
                with_attributes: true,
                ..
            }
        );
        let here = request.operation.site();
        let is_missing =
            |entry: &DirectoryEntry| entry.attributes.is_none() && entry.file.site() != here;
        let asked: Vec<usize> = match &reply.outcome {
            Ok(SiteAnswer::Directory { entries, .. }) if wants => {
                let missing = entries.iter().enumerate();
                let missing = missing.filter(|(_, entry)| is_missing(entry));
                missing.map(|(at, _)| at).take(FILES_MAX).collect()
            }
            _ => Vec::new(),
        };
        if asked.is_empty() {
            return Err(reply);
        }
        let SiteReply {
            outcome, subject, ..
        } = *reply;
        let Ok(SiteAnswer::Directory {
            entries,
            end,
            verifier,
        }) = outcome
        else {
            return Err(Box::new(SiteReply::refusal(reply.id, SiteError::Io))); // Not reached.
        };
        let ask = |&at: &usize| {
            let file = FileRef {
                id: entries[at].file,
                generation: 1, // Numbers are never given twice.
            };
            let operation = SiteOperation::GetAttributes { file };
            PartRequest::Site(SiteRequest::as_root(operation))
        };
        let step = Step::Parts(asked.iter().map(ask).collect());
        let work = Self {
            entries,
            end,
            verifier,
            subject,
            asked,
        };
        Ok((work, step))
    }

    /// All have answered. One that is gone meanwhile has no attributes.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>) -> Step {
        for (&at, reply) in self.asked.iter().zip(site_replies(outcomes)) {
            self.entries[at].attributes = reply.subject.after;
        }
        let answer = SiteAnswer::Directory {
            entries: std::mem::take(&mut self.entries),
            end: self.end,
            verifier: self.verifier,
        };
        let subject = std::mem::take(&mut self.subject);
        Step::Reply(Answer::new(Ok(answer), subject))
    }
}
