//! Lists of directories whose names are hashed: the parts one after the other, in
//! the order of their sites, which is that of the cookies.

use crossdock_names::{FileRef, SiteId, Spread};
use crossdock_peer::{
    Caller, DirectoryEntry, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
    WeakCache, site_of_cookie,
};

use crate::list::{List, ListWork, missing_in};
use crate::part::{Outcome, PartRequest};
use crate::work::{Answer, Step, site_replies};

/// `.` and `..`, the cookie after both, and what an entry counts beside its name.
const DOTS: u64 = 2;
const ENTRY_BYTES: usize = 24;

/// A list that is being put together.
#[derive(Debug)]
pub(crate) struct MergeWork {
    caller: Caller,
    /// As a client knows it.
    directory: FileRef,
    spread: Spread,
    stage: Stage,
    list: List,
    /// How much more fits.
    entries_max: usize,
    name_bytes_max: usize,
    with_attributes: bool,
}

#[derive(Debug)]
enum Stage {
    /// The home tells the dots.
    Dots,
    Part(SiteId),
    /// A part is not there: whether the directory is.
    Kind,
    /// All entries are there, but not all attributes.
    Attributes(Box<ListWork>),
}

impl MergeWork {
    /// Begins a list from the operation's cookie on.
    pub(crate) fn begin(
        caller: &Caller,
        spread: Spread,
        operation: &SiteOperation,
    ) -> Option<(Self, Step)> {
        let &SiteOperation::ReadDirectory {
            directory,
            cookie,
            entries_max,
            name_bytes_max,
            with_attributes,
        } = operation
        else {
            return None;
        };
        let mut work = Self {
            caller: caller.clone(),
            directory,
            spread,
            stage: Stage::Dots,
            list: List::default(),
            entries_max,
            name_bytes_max,
            with_attributes,
        };
        let step = match site_of_cookie(cookie) {
            _ if cookie < DOTS => work.ask(directory, cookie),
            site if site.0 < spread.sites => work.ask_part(site, cookie),
            _ => Step::Reply(Answer::failure(SiteError::BadCookie)),
        };
        Some((work, step))
    }

    /// The part of the stage is done.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>) -> Step {
        if let Stage::Attributes(work) = &mut self.stage {
            return work.next(outcomes);
        }
        let Some(reply) = site_replies(outcomes).next() else {
            return Step::Reply(Answer::failure(SiteError::Io)); // Not reached: it was a site's.
        };
        match (&self.stage, reply) {
            (Stage::Kind, reply) => Step::Reply(Answer::failure(match reply.outcome {
                Ok(SiteAnswer::Done) => SiteError::NotDirectory,
                Ok(_) => SiteError::Stale,
                Err(error) => error,
            })),
            (
                stage,
                SiteReply {
                    outcome:
                        Ok(SiteAnswer::Directory {
                            entries,
                            end,
                            verifier,
                        }),
                    ..
                },
            ) => {
                let next = match stage {
                    Stage::Part(site) => Some(SiteId(site.0 + 1)).filter(|_| end),
                    _ => Some(SiteId(0)),
                };
                self.list.verifier = verifier;
                self.take(entries, next)
            }
            (Stage::Part(_), reply) if reply.outcome == Err(SiteError::Stale) => {
                self.stage = Stage::Kind;
                let file = self.directory;
                let operation = SiteOperation::GetAttributes { file };
                Step::Parts(vec![PartRequest::Site(SiteRequest::as_root(operation))])
            }
            (_, reply) => Step::Reply(Answer::new(reply.outcome, WeakCache::default())),
        }
    }

    /// Takes entries; then the part at `next` comes, if there is one and room for it.
    fn take(&mut self, entries: Vec<DirectoryEntry>, next: Option<SiteId>) -> Step {
        let bytes = entries.iter().map(|entry| entry.name.len() + ENTRY_BYTES);
        self.name_bytes_max = self.name_bytes_max.saturating_sub(bytes.sum());
        self.entries_max = self.entries_max.saturating_sub(entries.len());
        self.list.entries.extend(entries);
        match next {
            Some(site) if site.0 >= self.spread.sites => {
                self.list.end = true;
                self.finish()
            }
            Some(site) if self.entries_max > 0 && self.name_bytes_max > 0 => {
                self.ask_part(site, DOTS)
            }
            _ => self.finish(),
        }
    }

    fn finish(&mut self) -> Step {
        let list = std::mem::take(&mut self.list);
        let missing = match self.with_attributes {
            true => missing_in(&list.entries),
            false => Vec::new(),
        };
        if missing.is_empty() {
            return list.reply();
        }
        let (work, step) = ListWork::begin(list, missing);
        self.stage = Stage::Attributes(Box::new(work));
        step
    }

    fn ask_part(&mut self, site: SiteId, cookie: u64) -> Step {
        let mut parts = self.spread.parts_of(self.directory);
        let Some(part) = parts.find(|part| part.id.site() == site) else {
            return Step::Reply(Answer::failure(SiteError::BadCookie));
        };
        self.stage = Stage::Part(site);
        self.ask(part, cookie)
    }

    fn ask(&self, directory: FileRef, cookie: u64) -> Step {
        let dots = usize::try_from(DOTS.saturating_sub(cookie)).unwrap_or_default();
        let entries_max = match self.stage {
            Stage::Dots => self.entries_max.min(dots),
            _ => self.entries_max,
        };
        let operation = SiteOperation::ReadDirectory {
            directory,
            cookie,
            entries_max,
            name_bytes_max: self.name_bytes_max,
            with_attributes: self.with_attributes,
        };
        Step::Parts(vec![PartRequest::Site(SiteRequest {
            caller: self.caller.clone(),
            duplicate: None,
            operation,
        })])
    }
}
