//! DELETE, and PUT of a directory: one change of one name.

use bytes::Bytes;
use crossdock_http1::{Condition, ResponseHead, Status, evaluate};
use crossdock_names::FileRef;
use crossdock_peer::{AttributeChanges, FileKind, SiteAnswer, SiteError, SiteOperation, SiteReply};
use crossdock_types::{Time, WallTime};

use crate::door::{HttpDoor, What};
use crate::exchange::Stage;
use crate::message::ConnId;
use crate::stream::validators;

/// Permission bits of a new directory.
const MODE: u32 = 0o755;

/// A name that is to be removed, or to become a directory's.
#[derive(Debug)]
pub(crate) struct Removal {
    directory: FileRef,
    name: Bytes,
    makes_directory: bool,
    /// What has the name has been asked, and what is to be done has been, too.
    has_looked: bool,
}

impl HttpDoor {
    /// The path leads into that directory: what has the name now?
    pub(crate) fn begin_change(
        &mut self,
        now: Time,
        id: ConnId,
        directory: FileRef,
        name: Bytes,
        makes_directory: bool,
    ) {
        if let Some(exchange) = self.exchange(id) {
            exchange.stage = Stage::Change(Box::new(Removal {
                directory,
                name: name.clone(),
                makes_directory,
                has_looked: false,
            }));
        }
        let operation = SiteOperation::Lookup { directory, name };
        self.ask(now, id, What::Step, operation);
    }

    /// Goes on after an answer.
    pub(crate) fn step_change(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        mut change: Box<Removal>,
        reply: SiteReply,
    ) {
        if change.has_looked {
            return match reply.outcome {
                Ok(_) if change.makes_directory => self.answer_created(now, wall, id),
                Ok(_) => self.answer_status(now, wall, id, Status::NoContent),
                Err(error) => self.refuse(now, wall, id, error),
            };
        }
        let found = match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => Some(attributes),
            Err(SiteError::NotFound) => None,
            Err(error) => return self.refuse(now, wall, id, error),
            Ok(_) => return self.refuse(now, wall, id, SiteError::Io),
        };
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let current = found.as_ref().map(validators);
        if evaluate(&exchange.head, current.as_ref()) != Condition::Proceed {
            return self.answer_status(now, wall, id, Status::PreconditionFailed);
        }
        let wants_directory = exchange.head.target.is_directory;
        let (directory, name) = (change.directory, change.name.clone());
        let operation = match (change.makes_directory, found) {
            (true, None) => SiteOperation::MakeDirectory {
                directory,
                name,
                changes: AttributeChanges {
                    mode: Some(MODE),
                    ..AttributeChanges::default()
                },
            },
            // It is there already: nothing has to be done (RFC 9110 section 9.2.2).
            (true, Some(found)) if found.kind == FileKind::Directory => {
                return self.answer_status(now, wall, id, Status::NoContent);
            }
            (true, Some(_)) => return self.refuse(now, wall, id, SiteError::Exists),
            (false, None) => return self.refuse(now, wall, id, SiteError::NotFound),
            (false, Some(found)) if found.kind == FileKind::Directory => {
                SiteOperation::RemoveDirectory { directory, name }
            }
            (false, Some(_)) if wants_directory => {
                return self.refuse(now, wall, id, SiteError::NotFound);
            }
            (false, Some(_)) => SiteOperation::Remove { directory, name },
        };
        change.has_looked = true;
        exchange.stage = Stage::Change(change);
        let key = self.duplicate_key();
        self.ask_once(now, id, operation, key);
    }

    fn answer_created(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let head = ResponseHead::new(exchange.version(), Status::Created).content_length(0);
        self.answer(now, wall, id, head, Bytes::new());
    }
}
