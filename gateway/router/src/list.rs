//! Lists of directories with attributes: those of files of other sites are asked
//! of these.

use crossdock_names::FileRef;
use crossdock_peer::{
    DirectoryEntry, SiteAnswer, SiteOperation, SiteReply, SiteRequest, WeakCache, site_of_cookie,
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
        let SiteReply {
            id,
            outcome,
            subject,
            second,
        } = *reply;
        let again = |outcome, subject| {
            Err(Box::new(SiteReply {
                id,
                outcome,
                subject,
                second,
            }))
        };
        let Ok(SiteAnswer::Directory {
            entries,
            end,
            verifier,
        }) = outcome
        else {
            return again(outcome, subject);
        };
        let list = List {
            entries,
            end,
            verifier,
            subject,
        };
        let list = match wants {
            true => Self::begin(list),
            false => Err(list),
        };
        list.or_else(|list| {
            let answer = SiteAnswer::Directory {
                entries: list.entries,
                end: list.end,
                verifier: list.verifier,
            };
            again(Ok(answer), list.subject)
        })
    }

    /// Asks for what is missing; the list again, if that is nothing.
    pub(crate) fn begin(list: List) -> Result<(Self, Step), List> {
        // What the site of an entry has and did not tell nobody else can tell either.
        let is_missing = |entry: &DirectoryEntry| {
            let here = site_of_cookie(entry.cookie);
            entry.attributes.is_none() && entry.cookie > DOTS && entry.file.site() != here
        };
        let missing = list.entries.iter().enumerate();
        let missing = missing.filter(|(_, entry)| is_missing(entry));
        let asked: Vec<usize> = missing.map(|(at, _)| at).take(FILES_MAX).collect();
        if asked.is_empty() {
            return Err(list);
        }
        let ask = |&at: &usize| {
            let file = FileRef {
                id: list.entries[at].file,
                generation: 1, // Numbers are never given twice.
            };
            let operation = SiteOperation::GetAttributes { file };
            PartRequest::Site(SiteRequest::as_root(operation))
        };
        let step = Step::Parts(asked.iter().map(ask).collect());
        Ok((Self { list, asked }, step))
    }

    /// All have answered. One that is gone meanwhile has no attributes.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>) -> Step {
        for (&at, reply) in self.asked.iter().zip(site_replies(outcomes)) {
            self.list.entries[at].attributes = reply.subject.after;
        }
        std::mem::take(&mut self.list).reply()
    }
}
