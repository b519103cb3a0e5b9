//! Lists of directories with attributes: those of files of other sites are asked
//! of these.

use crossdock_names::FileRef;
use crossdock_peer::{
    DirectoryEntry, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, WeakCache,
    site_of_cookie,
};

use crate::part::{Outcome, PartRequest};
use crate::work::{Answer, Step, site_replies};

/// Files of other sites that are asked for; of more the client asks itself.
const FILES_MAX: usize = 128;

/// The last cookie of `.` and `..`, of which clients know the attributes.
const DOTS: u64 = 2;

/// What a reply to a list says.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<DirectoryEntry>,
    pub(crate) end: bool,
    pub(crate) verifier: [u8; 8],
    pub(crate) subject: WeakCache,
}

impl List {
    pub(crate) fn reply(self) -> Step {
        let answer = SiteAnswer::Directory {
            entries: self.entries,
            end: self.end,
            verifier: self.verifier,
        };
        Step::Reply(Answer::new(Ok(answer), self.subject))
    }
}

/// A list that lacks attributes.
#[derive(Debug)]
pub(crate) struct ListWork {
    list: List,
    /// Places in the list that have been asked for.
    asked: Vec<usize>,
}

impl ListWork {
    /// Goes on after a site's answer; the reply again, if nothing is missing.
    pub(crate) fn after(
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
        let asked = match &reply.outcome {
            Ok(SiteAnswer::Directory { entries, .. }) if wants => missing_in(entries),
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
        let list = List {
            entries,
            end,
            verifier,
            subject,
        };
        Ok(Self::begin(list, asked))
    }

    /// Asks for the attributes that are missing at these places.
    pub(crate) fn begin(list: List, asked: Vec<usize>) -> (Self, Step) {
        let ask = |&at: &usize| {
            let file = FileRef {
                id: list.entries[at].file,
                generation: 1, // Numbers are never given twice.
            };
            let operation = SiteOperation::GetAttributes { file };
            PartRequest::Site(SiteRequest::as_root(operation))
        };
        let step = Step::Parts(asked.iter().map(ask).collect());
        (Self { list, asked }, step)
    }

    /// All have answered. One that is gone meanwhile has no attributes.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>) -> Step {
        for (&at, reply) in self.asked.iter().zip(site_replies(outcomes)) {
            self.list.entries[at].attributes = reply.subject.after;
        }
        std::mem::take(&mut self.list).reply()
    }
}

/// The places in a list of entries whose attributes another site has.
pub(crate) fn missing_in(entries: &[DirectoryEntry]) -> Vec<usize> {
    // What the site of an entry has and did not tell nobody else can tell either.
    let is_missing = |entry: &DirectoryEntry| {
        let here = site_of_cookie(entry.cookie);
        entry.attributes.is_none() && entry.cookie > DOTS && entry.file.site() != here
    };
    let missing = entries.iter().enumerate();
    let missing = missing.filter(|(_, entry)| is_missing(entry));
    missing.map(|(at, _)| at).take(FILES_MAX).collect()
}
