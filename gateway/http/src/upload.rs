//! Taking a file: its bytes go into a file of their own beside it, which takes its
//! name when all of them are durable. Who reads meanwhile sees the old one, whole.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_http1::{CONTINUE, Condition, ResponseHead, Status, evaluate};
use crossdock_names::{FileRef, Incarnation};
use crossdock_peer::{
    AttributeChanges, Attributes, CallId, CreateMode, FileKind, SiteAnswer, SiteError,
    SiteOperation, SiteReply, Stability,
};
use crossdock_router::{RoutedReply, WriteVerifier};
use crossdock_types::{Payload, Time, WallTime};

use crate::door::{HttpDoor, What};
use crate::exchange::Stage;
use crate::fill::Fills;
use crate::message::ConnId;
use crate::stream::validators;

/// Names of uploads under way begin so.
const UPLOAD_PREFIX: &[u8] = b".crossdock-upload-";

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Writes of one upload at a time.
const WRITES_MAX: usize = 4;

/// Permission bits of a file that was not there.
const MODE: u32 = 0o644;

/// Whether a name is that of an upload under way: lists do not show it, and nobody asks for
/// it.
pub(crate) fn is_upload(name: &[u8]) -> bool {
    name.starts_with(UPLOAD_PREFIX)
}

/// A file on its way from a client.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) directory: FileRef,
    name: Bytes,
    /// Where its bytes are meanwhile.
    pub(crate) own_name: Bytes,
    /// What had the name before.
    existing: Option<Attributes>,
    phase: Phase,
    file: Option<FileRef>,
    /// Bytes that have been given to the volume.
    offset: u64,
    /// Bytes that have arrived and have not been.
    gathered: Payload,
    pub(crate) fills: Fills,
    /// Writes under way, and their bytes.
    writes: BTreeMap<CallId, usize>,
    /// What the bytes depend on: another one at the end, and some may be lost
    /// (RFC 1813 section 4.8).
    verifier: Option<WriteVerifier>,
    is_stable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// What has the name now.
    Looking,
    Creating,
    Writing,
    Committing,
    /// Whether the conditions still hold.
    Checking,
    Renaming,
    /// What it is called now.
    Naming,
}

impl Upload {
    /// Whether no more of the content can be taken at this moment.
    pub(crate) fn is_full(&self) -> bool {
        self.phase != Phase::Writing
            || (self.gathered.len() >= WRITE_BYTES && self.writes.len() >= WRITES_MAX)
    }

    /// How many more bytes are written together with those that have arrived, and where in the
    /// file they begin; `None` while it takes none.
    pub(crate) fn wanted(&self) -> Option<(usize, u64)> {
        let here = self.gathered.len();
        let wanted_bytes = WRITE_BYTES.saturating_sub(here);
        (!self.is_full()).then_some((wanted_bytes, self.offset + here as u64))
    }

    /// Whether the volume has been given bytes that it has not taken yet.
    pub(crate) fn is_writing(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.gathered.len() + self.fills.coming_bytes + self.writes.values().sum::<usize>()
    }

    /// Whether a file of its own may be left behind if it ends now.
    pub(crate) const fn is_leaving_a_file(&self) -> bool {
        !matches!(self.phase, Phase::Looking | Phase::Renaming | Phase::Naming)
    }

    /// Whether all of it is there.
    pub(crate) const fn is_taking_its_name(&self) -> bool {
        matches!(self.phase, Phase::Renaming | Phase::Naming)
    }

    /// Whether that file may only be about to be made.
    pub(crate) const fn is_creating(&self) -> bool {
        matches!(self.phase, Phase::Creating)
    }
}

impl HttpDoor {
    /// The path leads into that directory: what has the name now?
    pub(crate) fn begin_upload(&mut self, now: Time, id: ConnId, directory: FileRef, name: Bytes) {
        let own_name = self.upload_name();
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        exchange.stage = Stage::Upload(Box::new(Upload {
            directory,
            name: name.clone(),
            own_name,
            existing: None,
            phase: Phase::Looking,
            file: None,
            offset: 0,
            gathered: Payload::new(),
            fills: Fills::default(),
            writes: BTreeMap::new(),
            verifier: None,
            is_stable: false,
        }));
        let operation = SiteOperation::Lookup { directory, name };
        self.ask(now, id, What::Step, operation);
    }

    /// A name that no other upload has: of this process, and counted.
    fn upload_name(&mut self) -> Bytes {
        self.uploads_total += 1;
        let mut name = UPLOAD_PREFIX.to_vec();
        name.extend(format!("{:016x}-{:x}", self.config.seed, self.uploads_total).into_bytes());
        name.into()
    }

    /// Goes on after an answer.
    pub(crate) fn step_upload(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        call: CallId,
        routed: RoutedReply,
    ) {
        let RoutedReply {
            reply, verifier, ..
        } = routed;
        let Some(upload) = self.upload(id) else {
            return;
        };
        match upload.phase {
            Phase::Looking => self.after_look(now, wall, id, reply),
            Phase::Checking => self.after_recheck(now, wall, id, &reply),
            Phase::Creating => match reply.outcome {
                Ok(SiteAnswer::Found { attributes, .. }) => {
                    self.created(now, wall, id, attributes.file);
                }
                outcome => self.fail_upload(now, wall, id, failure(outcome)),
            },
            Phase::Writing => {
                let bytes = upload.writes.remove(&call).unwrap_or_default();
                self.upload_bytes -= bytes;
                match reply.outcome {
                    Ok(SiteAnswer::Written { .. }) => self.written(now, wall, id, verifier),
                    outcome => self.fail_upload(now, wall, id, failure(outcome)),
                }
            }
            Phase::Committing => match reply.outcome {
                Ok(_) if upload.verifier == Some(verifier) => self.settle(now, wall, id),
                // Some of the bytes may be gone, and only the client has them.
                Ok(_) => self.fail_upload(now, wall, id, SiteError::Unanswered),
                outcome => self.fail_upload(now, wall, id, failure(outcome)),
            },
            Phase::Renaming => match (reply.outcome, upload.file) {
                (Ok(_), Some(file)) => {
                    upload.phase = Phase::Naming;
                    self.ask(now, id, What::Step, SiteOperation::GetAttributes { file });
                }
                (outcome, _) => {
                    upload.phase = Phase::Writing; // The file of its own is left.
                    self.fail_upload(now, wall, id, failure(outcome));
                }
            },
            Phase::Naming => self.named(now, wall, id, &reply),
        }
    }

    fn after_look(&mut self, now: Time, wall: WallTime, id: ConnId, reply: SiteReply) {
        let existing = match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => Some(attributes),
            Err(SiteError::NotFound) => None,
            outcome => return self.fail_upload(now, wall, id, failure(outcome)),
        };
        let key = self.duplicate_key();
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let current = existing.as_ref().map(validators);
        if evaluate(&exchange.head, current.as_ref()) != Condition::Proceed {
            return self.answer_status(now, wall, id, Status::PreconditionFailed);
        }
        let is_file = |attributes: &Attributes| {
            matches!(attributes.kind, FileKind::Regular | FileKind::Symlink)
        };
        if existing.as_ref().is_some_and(|found| !is_file(found)) {
            let hint = "a directory has that name";
            return self.answer_error(now, wall, id, Status::Conflict, hint);
        }
        let Stage::Upload(upload) = &mut exchange.stage else {
            return;
        };
        upload.phase = Phase::Creating;
        let mode = existing.as_ref().map_or(MODE, |found| found.mode & 0o777);
        upload.existing = existing;
        let changes = AttributeChanges {
            mode: Some(mode),
            ..AttributeChanges::default()
        };
        let operation = SiteOperation::Create {
            directory: upload.directory,
            name: upload.own_name.clone(),
            mode: CreateMode::Guarded(changes),
        };
        self.ask_once(now, id, operation, key);
    }

    fn created(&mut self, now: Time, wall: WallTime, id: ConnId, file: FileRef) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let owes = std::mem::take(&mut exchange.owes_continue);
        if let Stage::Upload(upload) = &mut exchange.stage {
            upload.file = Some(file);
            upload.phase = Phase::Writing;
        }
        if owes {
            self.push(id, [Bytes::from_static(CONTINUE)]);
        }
        self.write_gathered(now, wall, id);
        self.go_on(now, wall, id);
    }

    /// Content has arrived.
    pub(crate) fn gather(&mut self, now: Time, wall: WallTime, id: ConnId, data: Bytes) {
        let body_bytes_max = self.config.limits.body_bytes_max;
        let bytes = data.len();
        let Some(upload) = self.upload(id) else {
            return;
        };
        upload.gathered.push(data);
        upload.fills.arrived(bytes);
        let total = upload.offset + upload.gathered.len() as u64;
        self.upload_bytes += bytes;
        if total > body_bytes_max {
            return self.fail_upload(now, wall, id, SiteError::FileTooBig);
        }
        self.write_gathered(now, wall, id);
    }

    /// Writes what has been gathered, if it is enough, or all; goes on when all is written.
    pub(crate) fn write_gathered(&mut self, now: Time, wall: WallTime, id: ConnId) {
        // Where many bytes wait, each upload writes what it has.
        let is_crowded = self.upload_bytes >= self.config.limits.upload_bytes_max;
        loop {
            let Some(exchange) = self.exchange(id) else {
                return;
            };
            let is_all = exchange.body.is_done();
            let Stage::Upload(upload) = &mut exchange.stage else {
                return;
            };
            let (Phase::Writing, Some(file)) = (upload.phase, upload.file) else {
                return;
            };
            let here = upload.gathered.len();
            if here == 0 && is_all && upload.writes.is_empty() {
                return self.all_written(now, wall, id);
            }
            let is_enough = here >= WRITE_BYTES || ((is_all || is_crowded) && here > 0);
            if !is_enough || upload.writes.len() >= WRITES_MAX {
                return;
            }
            let bytes = here.min(WRITE_BYTES);
            let payload = upload.gathered.slice(0, bytes);
            upload.gathered = upload.gathered.slice(bytes, here);
            // One write that is all of it: nothing is left for a commit.
            upload.is_stable = is_all && upload.offset == 0 && bytes == here;
            let stability = match upload.is_stable {
                true => Stability::Stable,
                false => Stability::Unstable,
            };
            let operation = SiteOperation::Write {
                file,
                offset_bytes: upload.offset,
                payload,
                stability,
            };
            upload.offset += bytes as u64;
            let Some(call) = self.ask(now, id, What::Step, operation) else {
                return;
            };
            if let Some(upload) = self.upload(id) {
                upload.writes.insert(call, bytes);
            }
        }
    }

    fn written(&mut self, now: Time, wall: WallTime, id: ConnId, verifier: WriteVerifier) {
        let Some(upload) = self.upload(id) else {
            return;
        };
        match upload.verifier {
            Some(known) if known != verifier => {
                return self.fail_upload(now, wall, id, SiteError::Unanswered);
            }
            _ => upload.verifier = Some(verifier),
        }
        self.write_gathered(now, wall, id);
        self.go_on(now, wall, id);
    }

    fn all_written(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(upload) = self.upload(id) else {
            return;
        };
        match upload.file {
            Some(file) if !upload.is_stable && upload.offset > 0 => {
                upload.phase = Phase::Committing;
                // The router knows who has taken the bytes.
                let incarnation = Incarnation(0);
                self.ask(
                    now,
                    id,
                    What::Step,
                    SiteOperation::Commit { file, incarnation },
                );
            }
            _ => self.settle(now, wall, id),
        }
    }

    /// All bytes are durable. Conditions are asked again: a long upload leaves others time.
    fn settle(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let is_conditional = ["if-match", "if-none-match", "if-unmodified-since"]
            .iter()
            .any(|name| exchange.head.header(name).is_some());
        let Stage::Upload(upload) = &mut exchange.stage else {
            return;
        };
        if !is_conditional {
            return self.rename(now, wall, id);
        }
        upload.phase = Phase::Checking;
        let operation = SiteOperation::Lookup {
            directory: upload.directory,
            name: upload.name.clone(),
        };
        self.ask(now, id, What::Step, operation);
    }

    fn after_recheck(&mut self, now: Time, wall: WallTime, id: ConnId, reply: &SiteReply) {
        let current = match &reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => Some(validators(attributes)),
            Err(SiteError::NotFound) => None,
            Err(error) => return self.fail_upload(now, wall, id, *error),
            Ok(_) => return self.fail_upload(now, wall, id, SiteError::Io),
        };
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        if evaluate(&exchange.head, current.as_ref()) == Condition::Proceed {
            return self.rename(now, wall, id);
        }
        self.clean_up(now, id);
        self.answer_status(now, wall, id, Status::PreconditionFailed);
    }

    fn rename(&mut self, now: Time, _wall: WallTime, id: ConnId) {
        let key = self.duplicate_key();
        let Some(upload) = self.upload(id) else {
            return;
        };
        upload.phase = Phase::Renaming;
        let operation = SiteOperation::Rename {
            from_directory: upload.directory,
            from_name: upload.own_name.clone(),
            to_directory: upload.directory,
            to_name: upload.name.clone(),
        };
        self.ask_once(now, id, operation, key);
    }

    fn named(&mut self, now: Time, wall: WallTime, id: ConnId, reply: &SiteReply) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let version = exchange.version();
        let Stage::Upload(upload) = &exchange.stage else {
            return;
        };
        let status = match upload.existing {
            Some(_) => Status::NoContent,
            None => Status::Created,
        };
        let mut head = ResponseHead::new(version, status).content_length(0);
        if let (Ok(_), Some(attributes)) = (&reply.outcome, &reply.subject.after) {
            head = head.validators(&validators(attributes));
        }
        self.answer(now, wall, id, head, Bytes::new());
    }

    fn fail_upload(&mut self, now: Time, wall: WallTime, id: ConnId, error: SiteError) {
        self.clean_up(now, id);
        self.refuse(now, wall, id, error);
    }

    /// The upload will not be: what there is of it is removed.
    pub(crate) fn clean_up(&mut self, now: Time, id: ConnId) {
        let Some(upload) = self.upload(id) else {
            return;
        };
        let held_bytes = upload.held_bytes();
        let (is_left, is_creating) = (upload.is_leaving_a_file(), upload.is_creating());
        let (directory, name) = (upload.directory, upload.own_name.clone());
        if let Some(exchange) = self.exchange(id) {
            exchange.stage = Stage::Ended;
        }
        self.upload_bytes -= held_bytes;
        let of_it: Vec<CallId> = self.calls_for(id).collect();
        for call in of_it {
            match is_creating {
                // Removed when it is there.
                true => self.orphan(call, directory, name.clone()),
                false => drop(self.calls.remove(&call)),
            }
        }
        if is_left && !is_creating {
            self.remove_upload(now, directory, name);
        }
    }

    pub(crate) fn upload(&mut self, id: ConnId) -> Option<&mut Upload> {
        match &mut self.exchange(id)?.stage {
            Stage::Upload(upload) => Some(upload),
            _ => None,
        }
    }
}

fn failure(outcome: Result<SiteAnswer, SiteError>) -> SiteError {
    outcome.err().unwrap_or(SiteError::Io)
}
