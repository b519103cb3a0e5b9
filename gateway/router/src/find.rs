//! Names whose files are another site's: the site of the directory tells which
//! file has the name, that of the file tells the rest.

use crossdock_names::{FileRef, LayoutClass};
use crossdock_peer::{
    AttributeChanges, Attributes, CreateMode, FileKind, SiteAnswer, SiteError, SiteOperation,
    SiteReply, SiteRequest, WeakCache,
};

use crate::part::{Outcome, PartRequest};
use crate::work::{Answer, Step, site_replies};

/// How often a name is looked up again whose file went away in between.
const TRIES_MAX: u32 = 16;

/// Directories that a way up may lead through, from site to site.
const CLIMBS_MAX: u32 = 4096;

/// A request whose answer several sites know.
#[derive(Debug)]
pub(crate) struct FindWork {
    request: SiteRequest,
    /// What the first site told beside its answer.
    subject: WeakCache,
    stage: Stage,
    tries: u32,
    climbs: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The site of the directory is asked again.
    Name,
    /// Whether the parent lies within the tree.
    Within { parent: FileRef },
    /// Of the file that was found.
    Attributes(FileRef),
    /// Of the one that is cut.
    Cut(FileRef),
}

impl FindWork {
    /// Goes on after the first answer to `request`; the reply again, if that needs
    /// no other site.
    pub(crate) fn begin(
        request: &SiteRequest,
        reply: Box<SiteReply>,
    ) -> Result<(Self, Step), Box<SiteReply>> {
        let is_whole = !matches!(
            reply.outcome,
            Ok(SiteAnswer::Elsewhere(_) | SiteAnswer::Above { .. })
        );
        if is_whole {
            return Err(reply);
        }
        let mut work = Self {
            request: request.clone(),
            subject: WeakCache::default(),
            stage: Stage::Name,
            tries: 0,
            climbs: 0,
        };
        let step = work.after_name(*reply);
        Ok((work, step))
    }

    /// The part of the stage is done.
    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>) -> Step {
        let Some(reply) = site_replies(outcomes).next() else {
            return self.end(Err(SiteError::Io)); // Not reached: it was a site's.
        };
        match self.stage {
            Stage::Name => self.after_name(reply),
            Stage::Within { parent } => match reply.outcome {
                Ok(SiteAnswer::Done) => self.ask_attributes(parent),
                Ok(SiteAnswer::Above { directory, .. }) => self.climb(parent, directory),
                Ok(_) => self.end(Err(SiteError::Io)),
                Err(error) => self.end(Err(error)),
            },
            Stage::Attributes(file) | Stage::Cut(file) => {
                match (reply.outcome, reply.subject.after) {
                    (Ok(_), Some(attributes)) if self.is_taken(&attributes) => {
                        self.end(Err(SiteError::Exists))
                    }
                    (Ok(_), Some(_)) if self.is_to_be_cut() => self.cut(file),
                    (Ok(_), Some(attributes)) => self.end(Ok(SiteAnswer::Found {
                        attributes,
                        layout: LayoutClass::STRIPED,
                        placement: file.id,
                    })),
                    // It has been removed since: the name tells what is so now.
                    (Err(SiteError::Stale), _) if self.tries < TRIES_MAX => {
                        self.tries += 1;
                        self.stage = Stage::Name;
                        ask(self.request.clone())
                    }
                    (Err(error), _) => self.end(Err(error)),
                    (Ok(_), None) => self.end(Err(SiteError::Io)),
                }
            }
        }
    }

    fn after_name(&mut self, reply: SiteReply) -> Step {
        self.subject = reply.subject;
        match reply.outcome {
            Ok(SiteAnswer::Elsewhere(file)) => self.ask_attributes(file),
            Ok(SiteAnswer::Above {
                parent: Some(parent),
                directory,
            }) => self.climb(parent, directory),
            outcome => self.end(outcome),
        }
    }

    fn climb(&mut self, parent: FileRef, directory: FileRef) -> Step {
        let SiteOperation::LookupParent { within, .. } = self.request.operation else {
            return self.end(Err(SiteError::Io));
        };
        self.climbs += 1;
        if self.climbs > CLIMBS_MAX {
            return self.end(Err(SiteError::Busy)); // Moved about all the time.
        }
        self.stage = Stage::Within { parent };
        let operation = SiteOperation::Within {
            directory,
            root: within,
        };
        ask(SiteRequest::as_root(operation))
    }

    fn ask_attributes(&mut self, file: FileRef) -> Step {
        self.stage = Stage::Attributes(file);
        // Everybody may who has found the name.
        let operation = SiteOperation::GetAttributes { file };
        ask(SiteRequest::as_root(operation))
    }

    /// Whether a create takes nothing that is there under the name.
    fn is_taken(&self, found: &Attributes) -> bool {
        let is_create = matches!(self.request.operation, SiteOperation::Create { .. });
        is_create && found.kind != FileKind::Regular
    }

    /// A create that takes the file as it is cuts it all the same.
    fn is_to_be_cut(&self) -> bool {
        matches!(self.stage, Stage::Attributes(_)) && self.wanted_size().is_some()
    }

    const fn wanted_size(&self) -> Option<u64> {
        match &self.request.operation {
            SiteOperation::Create {
                mode: CreateMode::Unchecked(changes),
                ..
            } => changes.size_bytes,
            _ => None,
        }
    }

    fn cut(&mut self, file: FileRef) -> Step {
        self.stage = Stage::Cut(file);
        let changes = AttributeChanges {
            size_bytes: self.wanted_size(),
            ..AttributeChanges::default()
        };
        let operation = SiteOperation::SetAttributes {
            file,
            changes,
            guard: None,
        };
        ask(SiteRequest {
            operation,
            ..self.request.clone()
        })
    }

    fn end(&mut self, outcome: Result<SiteAnswer, SiteError>) -> Step {
        let subject = std::mem::take(&mut self.subject);
        Step::Reply(Answer::new(outcome, subject))
    }
}

fn ask(request: SiteRequest) -> Step {
    Step::Parts(vec![PartRequest::Site(request)])
}
