//! LUNs of a running host: an administrator makes, grows and removes them, and says who may
//! use them; the registry keeps them, and the iSCSI doors of all gateways serve them.
//!
//! A LUN is a file in the directory `/.luns`: it is made and given its length first, then the
//! registry knows the LUN; the other way round when it is removed. What a crash leaves
//! between is a file without a LUN, which takes the name until root removes it over NFS.

use std::collections::VecDeque;

use bytes::Bytes;
use crossdock_limits::{
    COPY_BYTES_MAX, FILE_BYTES_MAX, ISCSI_NAME_BYTES_MAX, LUN_INITIATORS_MAX, LUN_NAME_BYTES_MAX,
    LUNS_MAX,
};
use crossdock_members::{Change, Conflict, OpenError};
use crossdock_names::{FileRef, Incarnation, SMALL_FILE_THRESHOLD_BYTES, SiteId};
use crossdock_peer::{
    AttributeChanges, CreateMode, FileKind, Lun, LunAccess, Reservations, SiteAnswer, SiteError,
    SiteOperation, SiteReply, Stability,
};
use crossdock_types::{Payload, Time, WallTime};
use thiserror::Error;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::iscsi::LUN_DIRECTORY;
use crate::walks::{Goal, WALKS_MAX, Walk, names_of};

/// Bytes that are written at a time into a new LUN.
const PIECE_BYTES: u64 = 1 << 20;

/// Which order about LUNs an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LunTicket(pub(crate) u64);

/// A LUN that is to be.
#[derive(Clone, Debug)]
pub struct LunWish {
    /// A random number.
    pub id: u64,
    /// What it is to be called.
    pub name: String,
    /// How many bytes it is to have.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether blocks get space only when they are written.
    pub is_thin: bool,
    /// Whether initiators may take its medium out.
    pub is_removable: bool,
    /// Whether writes may be answered before they are durable.
    pub has_write_cache: bool,
    /// A file of the volume whose bytes it begins with.
    pub from: Option<String>,
    /// Who may use it.
    pub access: LunAccess,
}

/// Why an order about LUNs was not carried out; nothing was done, unless stated otherwise.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LunError {
    /// The name cannot be one.
    #[error(
        "{0:?} is no name of a LUN: it has 1 to {LUN_NAME_BYTES_MAX} small letters, digits, `.` and `-`, and begins with a letter or digit"
    )]
    Name(String),
    /// The size cannot be one.
    #[error(
        "a LUN has at least one block and at most {FILE_BYTES_MAX} bytes, and whole blocks of {block_bytes} bytes; {size_bytes} bytes are not so"
    )]
    Size {
        /// As it was said.
        size_bytes: u64,
        /// Of a block.
        block_bytes: u32,
    },
    /// Blocks cannot be so long.
    #[error("blocks have 512 or 4096 bytes, not {0}")]
    Block(u32),
    /// It would lose what is behind its new end.
    #[error("the LUN {name} has {size_bytes} bytes: LUNs grow, they are not cut")]
    Shrinks {
        /// Which.
        name: String,
        /// Its size.
        size_bytes: u64,
    },
    /// Several gateways serve it.
    #[error(
        "no LUN of an ensemble has a write cache: one gateway cannot flush what another one has; leave --write-cache out"
    )]
    Cached,
    /// Several gateways serve it.
    #[error(
        "no LUN of an ensemble has a medium that can be taken out: it would be out at one gateway only; leave --removable out"
    )]
    Removable,
    /// Who may use it cannot be said so.
    #[error("{0}")]
    Access(String),
    /// The path cannot be one.
    #[error("{path:?} is no path of the volume: {why}")]
    Path {
        /// As it was said.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// What it is to begin with is not there, or is no file.
    #[error("the volume has no file {0}; --from names a file of the volume, like /images/disk.raw")]
    NoSource(String),
    /// It would lose bytes of the file.
    #[error("{path} has {size_bytes} bytes, more than the LUN is to have")]
    SourceTooLong {
        /// The file.
        path: String,
        /// Its size.
        size_bytes: u64,
    },
    /// The name is taken.
    #[error("there is a LUN {0} already; crossdock lun list shows all")]
    Exists(String),
    /// There is no such LUN.
    #[error("there is no LUN {0}; crossdock lun list shows all")]
    Unknown(String),
    /// There are as many as there may be.
    #[error("there are {LUNS_MAX} LUNs already; remove one with crossdock lun remove")]
    TooMany,
    /// Somebody else has changed it at the same time.
    #[error("the LUN {0} was changed by somebody else at this moment; look at it, and try again")]
    Changed(String),
    /// The volume has no room.
    #[error("the volume has no room for the LUN")]
    NoSpace,
    /// The volume does not answer now.
    #[error("the volume did not do it ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} orders are being carried out at this moment; try again")]
    Busy,
    /// This process is no part of the ensemble yet.
    #[error("this process has not joined the ensemble; crossdock status may show why; try again")]
    NotJoined,
    /// A shared registry says nothing: it may still be done.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock lun list tells what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
    /// The registry cannot be written.
    #[error("cannot write the registry: {0}")]
    Registry(String),
}

/// An order on its way.
#[derive(Debug)]
pub(crate) struct LunWork {
    wish: Wish,
    step: Step,
    directory: Option<FileRef>,
}

#[derive(Debug)]
enum Wish {
    Create(Box<LunWish>),
    Resize(Box<Lun>, u64),
    Remove(Box<Lun>),
}

/// What was asked last.
#[derive(Clone, Debug)]
enum Step {
    LookingForDirectory,
    MakingDirectory,
    /// The next of these names, on the way to the source.
    LookingForSource(VecDeque<Bytes>),
    Creating(Option<Source>),
    Sizing(FileRef, Option<Source>),
    /// Reading the source, or nothing of it, at this place.
    Reading(FileRef, Source, u64),
    Writing(FileRef, Option<Source>, u64),
    /// Nodes copy the source, up to that place.
    Copying(FileRef, Source, u64),
    /// All is copied: the source is to be as long as it was.
    Checking(FileRef, Source),
    Committing(FileRef),
    /// The order cannot be carried out: what there was of it is removed.
    CleaningUp(LunError),
    Removing,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    file: FileRef,
    size_bytes: u64,
}

/// A change of LUNs on its way to the registry.
pub(crate) struct LunChange {
    ticket: LunTicket,
    wanted: Wanted,
    /// When it is given up.
    pub(crate) due: Time,
}

#[derive(Clone, Debug)]
enum Wanted {
    Is(Box<Lun>),
    IsGone(Box<Lun>),
}

impl Host {
    /// The LUNs there are.
    #[must_use]
    pub fn lun_records(&self) -> &[Lun] {
        &self.registry.state().luns
    }

    /// One of them.
    pub(crate) fn lun(&self, id: u64) -> Option<&Lun> {
        self.lun_records().iter().find(|lun| lun.id == id)
    }

    fn lun_called(&self, name: &str) -> Result<&Lun, LunError> {
        let mut luns = self.lun_records().iter();
        let found = luns.find(|lun| lun.name == name);
        found.ok_or_else(|| LunError::Unknown(name.to_owned()))
    }

    /// Begins to make a LUN; [`HostEffect::LunChanged`] tells what came of it.
    ///
    /// # Errors
    /// What is wrong with it, as far as it can be seen at once.
    pub fn create_lun(
        &mut self,
        now: Time,
        wall: WallTime,
        wish: LunWish,
    ) -> Result<LunTicket, LunError> {
        check(&wish)?;
        if wish.has_write_cache && self.registry.is_shared() {
            return Err(LunError::Cached);
        }
        if wish.is_removable && self.registry.is_shared() {
            return Err(LunError::Removable);
        }
        if self.lun_called(&wish.name).is_ok() {
            return Err(LunError::Exists(wish.name));
        }
        if self.lun_records().len() >= LUNS_MAX {
            return Err(LunError::TooMany);
        }
        self.begin_lun(now, wall, Wish::Create(Box::new(wish)))
    }

    /// Begins to make a LUN longer.
    ///
    /// # Errors
    /// As above.
    pub fn resize_lun(
        &mut self,
        now: Time,
        wall: WallTime,
        name: &str,
        size_bytes: u64,
    ) -> Result<LunTicket, LunError> {
        let lun = self.lun_called(name)?.clone();
        check_size(size_bytes, lun.block_bytes)?;
        if size_bytes < lun.size_bytes {
            return Err(LunError::Shrinks {
                name: lun.name,
                size_bytes: lun.size_bytes,
            });
        }
        self.begin_lun(now, wall, Wish::Resize(Box::new(lun), size_bytes))
    }

    /// Begins to say anew who may use a LUN.
    ///
    /// # Errors
    /// As above.
    pub fn set_lun_access(
        &mut self,
        now: Time,
        wall: WallTime,
        name: &str,
        access: LunAccess,
    ) -> Result<LunTicket, LunError> {
        check_access(&access)?;
        let known = self.lun_called(name)?.clone();
        let wanted = Lun {
            access,
            ..known.clone()
        };
        self.walks_total += 1;
        let ticket = LunTicket(self.walks_total);
        self.set_lun(now, ticket, known, wanted)?;
        self.pump(now, wall);
        Ok(ticket)
    }

    /// Begins to remove a LUN, with all its bytes.
    ///
    /// # Errors
    /// As above.
    pub fn remove_lun(
        &mut self,
        now: Time,
        wall: WallTime,
        name: &str,
    ) -> Result<LunTicket, LunError> {
        let lun = self.lun_called(name)?.clone();
        self.walks_total += 1;
        let ticket = LunTicket(self.walks_total);
        let change = Change::RemoveLun { id: lun.id };
        let wanted = Wanted::IsGone(Box::new(lun));
        self.change_luns(now, ticket, change, wanted)?;
        self.pump(now, wall);
        Ok(ticket)
    }

    fn begin_lun(&mut self, now: Time, wall: WallTime, wish: Wish) -> Result<LunTicket, LunError> {
        if self.walks.len() >= WALKS_MAX {
            return Err(LunError::Busy);
        }
        if self.registry.is_shared() && !self.following.has_joined {
            return Err(LunError::NotJoined);
        }
        self.walks_total += 1;
        let number = self.walks_total;
        match wish {
            Wish::Resize(lun, size_bytes) => {
                let step = Step::Sizing(lun.file, None);
                let operation = sized(lun.file, size_bytes);
                self.ask_for_lun(
                    now,
                    number,
                    LunWork::new(Wish::Resize(lun, size_bytes), step),
                    operation,
                );
            }
            wish => {
                let operation = SiteOperation::Lookup {
                    directory: FileRef::root_of(SiteId(0)),
                    name: Bytes::from_static(LUN_DIRECTORY),
                };
                let work = LunWork::new(wish, Step::LookingForDirectory);
                self.ask_for_lun(now, number, work, operation);
            }
        }
        self.pump(now, wall);
        Ok(LunTicket(number))
    }

    fn ask_for_lun(&mut self, now: Time, number: u64, work: LunWork, operation: SiteOperation) {
        let walk = Walk::new(&[], Goal::Lun(Box::new(work)));
        self.ask_for_walk(now, number, walk, operation);
    }

    /// Goes on with an order after an answer.
    pub(crate) fn step_lun(
        &mut self,
        now: Time,
        number: u64,
        mut work: Box<LunWork>,
        reply: SiteReply,
    ) {
        match work.next(reply) {
            Next::Ask(operation) => self.ask_for_lun(now, number, *work, operation),
            Next::Register(file) => self.register_lun(now, LunTicket(number), &work, file),
            Next::Grown => {
                if let Wish::Resize(lun, size_bytes) = work.wish {
                    let wanted = Lun {
                        size_bytes,
                        ..(*lun).clone()
                    };
                    let ticket = LunTicket(number);
                    if let Err(error) = self.set_lun(now, ticket, *lun, wanted) {
                        self.end_lun(ticket, Err(error));
                    }
                }
            }
            Next::Removed => {
                if let Wish::Remove(lun) = work.wish {
                    self.end_lun(LunTicket(number), Ok(*lun));
                }
            }
            Next::Failed(error) => self.end_lun(LunTicket(number), Err(error)),
        }
    }

    /// The file is there: from now on it is a LUN.
    fn register_lun(&mut self, now: Time, ticket: LunTicket, work: &LunWork, file: FileRef) {
        let (Wish::Create(wish), Some(directory)) = (&work.wish, work.directory) else {
            return;
        };
        let record = Lun {
            id: wish.id,
            name: wish.name.clone(),
            file,
            size_bytes: wish.size_bytes,
            block_bytes: wish.block_bytes,
            is_thin: wish.is_thin,
            is_removable: wish.is_removable,
            has_write_cache: wish.has_write_cache,
            access: wish.access.clone(),
            reservations: Reservations::default(),
        };
        let change = Change::AddLun {
            record: record.clone(),
            directory: directory.into(),
        };
        let wanted = Wanted::Is(Box::new(record));
        if let Err(error) = self.change_luns(now, ticket, change, wanted) {
            self.end_lun(ticket, Err(error));
        }
    }

    fn set_lun(
        &mut self,
        now: Time,
        ticket: LunTicket,
        expected: Lun,
        wanted: Lun,
    ) -> Result<(), LunError> {
        let change = Change::SetLun {
            expected: Box::new(expected),
            wanted: Box::new(wanted.clone()),
        };
        self.change_luns(now, ticket, change, Wanted::Is(Box::new(wanted)))
    }

    /// Makes a change durable, then tells the door; or sends it to the registry that others
    /// share, from where it comes back with the next state.
    fn change_luns(
        &mut self,
        now: Time,
        ticket: LunTicket,
        change: Change,
        wanted: Wanted,
    ) -> Result<(), LunError> {
        if self.registry.is_shared() && !self.following.has_joined {
            return Err(LunError::NotJoined);
        }
        if self.lun_changes.len() >= WALKS_MAX {
            return Err(LunError::Busy);
        }
        let (Wanted::Is(lun) | Wanted::IsGone(lun)) = &wanted;
        let name = lun.name.clone();
        let changed = self.registry.change(change);
        changed.map_err(|error| match error {
            OpenError::Conflict(Conflict::Full { .. }) => LunError::TooMany,
            OpenError::Conflict(Conflict::Exists { .. }) => LunError::Exists(name),
            OpenError::Conflict(Conflict::Unknown { .. }) => LunError::Unknown(name),
            OpenError::Conflict(_) => LunError::Changed(name),
            error => LunError::Registry(error.to_string()),
        })?;
        self.lun_changes.push(LunChange {
            ticket,
            wanted,
            due: now + REGISTRY_PATIENCE,
        });
        self.tell_luns();
        self.settle_luns(now);
        Ok(())
    }

    /// Goes on with those whose change is in the registry, and ends those that cannot come
    /// there any more.
    pub(crate) fn settle_luns(&mut self, now: Time) {
        for change in std::mem::take(&mut self.lun_changes) {
            let (Wanted::Is(lun) | Wanted::IsGone(lun)) = &change.wanted;
            let known = self.lun(lun.id);
            let is_done = match &change.wanted {
                Wanted::Is(lun) => known.is_some_and(|known| {
                    let reservations = lun.reservations.clone();
                    let known = Lun {
                        reservations,
                        ..known.clone()
                    };
                    known == **lun
                }),
                Wanted::IsGone(_) => known.is_none(),
            };
            match (is_done, change.wanted) {
                (true, Wanted::Is(lun)) => self.end_lun(change.ticket, Ok(*lun)),
                (true, Wanted::IsGone(lun)) => self.remove_lun_file(now, change.ticket, *lun),
                (false, _) if change.due <= now => {
                    self.end_lun(change.ticket, Err(LunError::Unanswered));
                }
                (false, wanted) => self.lun_changes.push(LunChange { wanted, ..change }),
            }
        }
    }

    /// Nobody has it as a LUN any more.
    fn remove_lun_file(&mut self, now: Time, ticket: LunTicket, lun: Lun) {
        let directory = self.registry.state().lun_directory;
        let Some(directory) = directory.map(FileRef::from) else {
            return self.end_lun(ticket, Ok(lun));
        };
        let name = Bytes::copy_from_slice(lun.name.as_bytes());
        let work = LunWork::new(Wish::Remove(Box::new(lun)), Step::Removing);
        let operation = SiteOperation::Remove { directory, name };
        self.ask_for_lun(now, ticket.0, work, operation);
    }

    fn end_lun(&mut self, ticket: LunTicket, result: Result<Lun, LunError>) {
        self.effects
            .push_back(HostEffect::LunChanged { ticket, result });
    }
}

/// What comes after an answer.
enum Next {
    Ask(SiteOperation),
    Register(FileRef),
    Grown,
    Removed,
    Failed(LunError),
}

impl LunWork {
    const fn new(wish: Wish, step: Step) -> Self {
        Self {
            wish,
            step,
            directory: None,
        }
    }

    fn next(&mut self, reply: SiteReply) -> Next {
        let root = FileRef::root_of(SiteId(0));
        match (self.step.clone(), reply.outcome) {
            (
                Step::LookingForDirectory | Step::MakingDirectory,
                Ok(SiteAnswer::Found { attributes, .. }),
            ) => {
                if attributes.kind != FileKind::Directory {
                    return Next::Failed(LunError::Volume(SiteError::NotDirectory));
                }
                self.directory = Some(attributes.file);
                self.look_for_source()
            }
            (Step::LookingForDirectory, Err(SiteError::NotFound)) => {
                self.step = Step::MakingDirectory;
                Next::Ask(SiteOperation::MakeDirectory {
                    directory: root,
                    name: Bytes::from_static(LUN_DIRECTORY),
                    changes: mode(0o700),
                })
            }
            (Step::LookingForSource(mut rest), Ok(SiteAnswer::Found { attributes, .. })) => {
                match (rest.pop_front(), attributes.kind) {
                    (Some(name), FileKind::Directory) => self.look_up(attributes.file, name, rest),
                    (None, FileKind::Regular) => self.found_source(&Source {
                        file: attributes.file,
                        size_bytes: attributes.size_bytes,
                    }),
                    _ => Next::Failed(LunError::NoSource(self.source_path())),
                }
            }
            (Step::LookingForSource(_), Err(SiteError::NotFound | SiteError::NotDirectory)) => {
                Next::Failed(LunError::NoSource(self.source_path()))
            }
            (Step::Creating(source), Ok(SiteAnswer::Found { attributes, .. })) => {
                let file = attributes.file;
                self.step = Step::Sizing(file, source);
                Next::Ask(sized(file, self.size_bytes()))
            }
            (Step::Creating(_), Err(SiteError::Exists)) => {
                Next::Failed(LunError::Exists(self.name()))
            }
            (Step::Sizing(file, source), Ok(_)) => match &self.wish {
                Wish::Create(wish) if source.is_some() || !wish.is_thin => {
                    self.fill(file, source, 0)
                }
                Wish::Create(_) => Next::Register(file),
                _ => Next::Grown,
            },
            (Step::Reading(file, source, at), Ok(SiteAnswer::Read { payload, .. })) => {
                self.write(file, Some(source), at, payload)
            }
            (Step::Writing(file, source, at), Ok(_)) => self.fill(file, source, at),
            (Step::Copying(file, source, at), Ok(SiteAnswer::Written { .. })) => {
                self.fill(file, Some(source), at)
            }
            (Step::Checking(file, source), Ok(_)) => {
                let is_whole = |size_bytes: u64| size_bytes >= source.size_bytes;
                let told = reply.subject.after;
                match told.is_some_and(|attributes| is_whole(attributes.size_bytes)) {
                    true => self.commit(file),
                    // It was cut meanwhile.
                    false => self.failed(&Step::Committing(file), SiteError::Stale),
                }
            }
            (Step::Committing(file), Ok(_)) => Next::Register(file),
            // It went with another one's request.
            (Step::Removing, Ok(_) | Err(SiteError::NotFound)) => Next::Removed,
            (Step::CleaningUp(error), _) => Next::Failed(error),
            (step, outcome) => self.failed(&step, outcome.err().unwrap_or(SiteError::Io)),
        }
    }

    /// What was made is removed.
    fn failed(&mut self, step: &Step, error: SiteError) -> Next {
        let error = match error {
            SiteError::NoSpace | SiteError::Quota => LunError::NoSpace,
            error => LunError::Volume(error),
        };
        let is_made = matches!(
            step,
            Step::Sizing(..)
                | Step::Reading(..)
                | Step::Writing(..)
                | Step::Copying(..)
                | Step::Checking(..)
                | Step::Committing(_)
        );
        match (is_made, &self.wish, self.directory) {
            (true, Wish::Create(_), Some(directory)) => {
                self.step = Step::CleaningUp(error);
                let name = Bytes::from(self.name());
                Next::Ask(SiteOperation::Remove { directory, name })
            }
            _ => Next::Failed(error),
        }
    }

    fn look_for_source(&mut self) -> Next {
        let Wish::Create(wish) = &self.wish else {
            return Next::Failed(LunError::Volume(SiteError::Io));
        };
        let Some(path) = &wish.from else {
            return self.create(None);
        };
        let names = names_of(path).unwrap_or_default();
        let names = names
            .iter()
            .map(|name| Bytes::copy_from_slice(name.as_bytes()));
        let mut rest: VecDeque<Bytes> = names.collect();
        match rest.pop_front() {
            Some(name) => self.look_up(FileRef::root_of(SiteId(0)), name, rest),
            None => Next::Failed(LunError::NoSource(self.source_path())),
        }
    }

    fn look_up(&mut self, directory: FileRef, name: Bytes, rest: VecDeque<Bytes>) -> Next {
        self.step = Step::LookingForSource(rest);
        Next::Ask(SiteOperation::Lookup { directory, name })
    }

    fn found_source(&mut self, source: &Source) -> Next {
        if source.size_bytes > self.size_bytes() {
            return Next::Failed(LunError::SourceTooLong {
                path: self.source_path(),
                size_bytes: source.size_bytes,
            });
        }
        self.create(Some(*source))
    }

    fn create(&mut self, source: Option<Source>) -> Next {
        let Some(directory) = self.directory else {
            return Next::Failed(LunError::Volume(SiteError::Io));
        };
        self.step = Step::Creating(source);
        Next::Ask(SiteOperation::Create {
            directory,
            name: Bytes::from(self.name()),
            mode: CreateMode::Guarded(mode(0o600)),
        })
    }

    /// The next bytes of the source, or zeros where all blocks are to have space.
    fn fill(&mut self, file: FileRef, source: Option<Source>, at: u64) -> Next {
        let is_thin = matches!(&self.wish, Wish::Create(wish) if wish.is_thin);
        let size_bytes = self.size_bytes();
        let end = match source {
            Some(source) if is_thin => source.size_bytes,
            _ => size_bytes,
        };
        if at >= end {
            let Some(source) = source else {
                return self.commit(file);
            };
            self.step = Step::Checking(file, source);
            let file = source.file;
            return Next::Ask(SiteOperation::GetAttributes { file });
        }
        match source.filter(|source| at < source.size_bytes) {
            // Nodes give each other what lies in columns.
            Some(source) if at >= SMALL_FILE_THRESHOLD_BYTES => {
                let length_bytes = COPY_BYTES_MAX.min(source.size_bytes - at);
                self.step = Step::Copying(file, source, at + length_bytes);
                Next::Ask(SiteOperation::Copy {
                    file,
                    offset_bytes: at,
                    source: source.file,
                    source_offset_bytes: at,
                    length_bytes,
                    stability: Stability::Stable,
                    frees_zeros: is_thin,
                })
            }
            Some(source) => {
                self.step = Step::Reading(file, source, at);
                Next::Ask(SiteOperation::Read {
                    file: source.file,
                    offset_bytes: at,
                    length_bytes: (SMALL_FILE_THRESHOLD_BYTES - at).min(source.size_bytes - at),
                    patience_ms: 0,
                })
            }
            None => {
                let length = PIECE_BYTES.min(end - at);
                let mut zeros = Payload::new();
                zeros.push_zeros(usize::try_from(length).unwrap_or_default());
                self.write(file, source, at, zeros)
            }
        }
    }

    fn commit(&mut self, file: FileRef) -> Next {
        self.step = Step::Committing(file);
        Next::Ask(SiteOperation::Commit {
            file,
            incarnation: Incarnation::default(),
        })
    }

    fn write(&mut self, file: FileRef, source: Option<Source>, at: u64, payload: Payload) -> Next {
        if payload.is_empty() {
            // The source was cut meanwhile.
            return self.failed(&Step::Committing(file), SiteError::Stale);
        }
        self.step = Step::Writing(file, source, at + payload.len() as u64);
        Next::Ask(SiteOperation::Write {
            file,
            offset_bytes: at,
            payload,
            // Stable: no verifier has to be looked at behind it.
            stability: Stability::Stable,
        })
    }

    fn name(&self) -> String {
        match &self.wish {
            Wish::Create(wish) => wish.name.clone(),
            Wish::Resize(lun, _) | Wish::Remove(lun) => lun.name.clone(),
        }
    }

    fn source_path(&self) -> String {
        match &self.wish {
            Wish::Create(wish) => wish.from.clone().unwrap_or_default(),
            _ => String::new(),
        }
    }

    fn size_bytes(&self) -> u64 {
        match &self.wish {
            Wish::Create(wish) => wish.size_bytes,
            Wish::Resize(_, size_bytes) => *size_bytes,
            Wish::Remove(lun) => lun.size_bytes,
        }
    }
}

fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges {
        mode: Some(mode),
        ..AttributeChanges::default()
    }
}

fn sized(file: FileRef, size_bytes: u64) -> SiteOperation {
    SiteOperation::SetAttributes {
        file,
        changes: AttributeChanges {
            size_bytes: Some(size_bytes),
            ..AttributeChanges::default()
        },
        guard: None,
    }
}

fn check(wish: &LunWish) -> Result<(), LunError> {
    let name = &wish.name;
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = name.len() <= LUN_NAME_BYTES_MAX
        && name.bytes().next().is_some_and(is_letter)
        && name
            .bytes()
            .all(|byte| is_letter(byte) || matches!(byte, b'.' | b'-'));
    if !is_name {
        let name = name.chars().take(LUN_NAME_BYTES_MAX).collect();
        return Err(LunError::Name(name));
    }
    if !matches!(wish.block_bytes, 512 | 4096) {
        return Err(LunError::Block(wish.block_bytes));
    }
    check_size(wish.size_bytes, wish.block_bytes)?;
    if let Some(path) = &wish.from {
        names_of(path).map_err(|(path, why)| LunError::Path { path, why })?;
    }
    check_access(&wish.access)
}

fn check_size(size_bytes: u64, block_bytes: u32) -> Result<(), LunError> {
    let is_whole = size_bytes.is_multiple_of(block_bytes.into());
    match is_whole && (1..=FILE_BYTES_MAX).contains(&size_bytes) {
        true => Ok(()),
        false => Err(LunError::Size {
            size_bytes,
            block_bytes,
        }),
    }
}

/// Secrets of CHAP are as long as RFC 7143 section 9.2.1 wants them.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

fn check_access(access: &LunAccess) -> Result<(), LunError> {
    let wrong = |what: String| Err(LunError::Access(what));
    if access.initiators.len() > LUN_INITIATORS_MAX || access.networks.len() > LUN_INITIATORS_MAX {
        return wrong(format!(
            "a LUN names at most {LUN_INITIATORS_MAX} initiators and as many networks"
        ));
    }
    for rule in &access.initiators {
        let name = &rule.name;
        let is_name = name.len() <= ISCSI_NAME_BYTES_MAX
            && ["iqn.", "eui.", "naa."]
                .iter()
                .any(|form| name.starts_with(form))
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return wrong(format!(
                "{name:?} is no name of an initiator: it is like iqn.1993-08.org.debian:01:1234"
            ));
        }
        for user in rule.chap.iter().chain(&rule.mutual) {
            if !SECRET_BYTES.contains(&user.secret.0.len()) || user.user.is_empty() {
                return wrong(
                    "a user of CHAP has a name, and a secret of 12 to 255 bytes".to_owned(),
                );
            }
        }
        if rule.mutual.is_some() && rule.chap.is_none() {
            return wrong("a target proves itself only to who proves himself".to_owned());
        }
        let is_same = |(one, other): (&crossdock_peer::ChapUser, &crossdock_peer::ChapUser)| {
            one.secret == other.secret
        };
        if rule
            .chap
            .as_ref()
            .zip(rule.mutual.as_ref())
            .is_some_and(is_same)
        {
            return wrong(
                "both secrets of an initiator are the same: one would give the other away"
                    .to_owned(),
            );
        }
    }
    let mut names: Vec<&str> = access
        .initiators
        .iter()
        .map(|rule| &rule.name[..])
        .collect();
    names.sort_unstable();
    match names.windows(2).any(|two| two[0] == two[1]) {
        true => wrong("an initiator is named twice".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, size_bytes: u64, block_bytes: u32) -> LunWish {
        LunWish {
            id: 1,
            name: name.to_owned(),
            size_bytes,
            block_bytes,
            is_thin: true,
            is_removable: false,
            has_write_cache: false,
            from: None,
            access: LunAccess::local(),
        }
    }

    const fn file(number: u64) -> FileRef {
        FileRef {
            id: crossdock_names::FileId(number),
            generation: 1,
        }
    }

    fn reply(outcome: Result<SiteAnswer, SiteError>, size_bytes: u64) -> SiteReply {
        let attributes = crossdock_peer::Attributes {
            file: file(6),
            kind: FileKind::Regular,
            mode: 0o600,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes,
            used_bytes: 0,
            device: crossdock_peer::Device::default(),
            accessed: WallTime(0),
            modified: WallTime(0),
            changed: WallTime(0),
        };
        let mut reply = SiteReply::refusal(crossdock_peer::CallId(0), SiteError::Io);
        (reply.outcome, reply.subject.after) = (outcome, Some(attributes));
        reply
    }

    /// Goal: of a file that becomes a LUN nodes copy all but what the site has; one that was cut
    /// meanwhile, or that cannot be read, makes no LUN.
    #[test]
    fn nodes_copy_the_source_of_a_lun() {
        const HEAD: u64 = SMALL_FILE_THRESHOLD_BYTES;
        const SIZE: u64 = HEAD + COPY_BYTES_MAX + 10;
        let written = || {
            let incarnation = Incarnation::default();
            Ok(SiteAnswer::Written { incarnation })
        };
        for (left, is_readable) in [(SIZE, true), (SIZE - 1, true), (SIZE, false)] {
            let source = Source {
                file: file(6),
                size_bytes: SIZE,
            };
            let wish = Wish::Create(Box::new(wish("a", 16 << 20, 512)));
            let mut work = LunWork::new(wish, Step::Sizing(file(7), Some(source)));
            work.directory = Some(file(1));
            let mut asked = |outcome, size| match work.next(reply(outcome, size)) {
                Next::Ask(operation) => operation,
                _ => panic!("it asks for nothing"),
            };
            let head = asked(Ok(SiteAnswer::Done), 0);
            assert!(matches!(
                head,
                SiteOperation::Read {
                    offset_bytes: 0,
                    length_bytes: HEAD,
                    ..
                }
            ));
            let mut payload = Payload::new();
            payload.push_zeros(usize::try_from(HEAD).expect("small"));
            let read = SiteAnswer::Read {
                payload,
                end_of_file: false,
            };
            assert!(matches!(asked(Ok(read), 0), SiteOperation::Write { .. }));
            for (at, length) in [(HEAD, COPY_BYTES_MAX), (HEAD + COPY_BYTES_MAX, 10)] {
                let copy = SiteOperation::Copy {
                    file: file(7),
                    offset_bytes: at,
                    source: file(6),
                    source_offset_bytes: at,
                    length_bytes: length,
                    stability: Stability::Stable,
                    frees_zeros: true,
                };
                assert_eq!(asked(written(), 0), copy);
            }
            if !is_readable {
                let cleaned = asked(Ok(SiteAnswer::Unreadable), 0);
                assert!(matches!(cleaned, SiteOperation::Remove { .. }));
                continue;
            }
            let looked = asked(written(), 0);
            assert_eq!(looked, SiteOperation::GetAttributes { file: file(6) });
            match asked(Ok(SiteAnswer::Done), left) {
                SiteOperation::Commit { .. } => assert_eq!(left, SIZE),
                SiteOperation::Remove { .. } => assert!(left < SIZE),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Goal: what cannot be a LUN is refused with the reason, before anything is made.
    #[test]
    fn wishes_are_checked() {
        assert_eq!(check(&wish("disk-1.a", 1 << 20, 512)), Ok(()));
        for name in ["", "-a", "A", "a b", "a/b", "ä", &"x".repeat(65)] {
            let refused = check(&wish(name, 1 << 20, 512));
            assert!(matches!(refused, Err(LunError::Name(_))), "{name}");
        }
        for (size, block) in [
            (0, 512),
            (1000, 512),
            (6 * 512, 4096),
            (FILE_BYTES_MAX + 512, 512),
        ] {
            let refused = check(&wish("a", size, block));
            assert!(matches!(refused, Err(LunError::Size { .. })), "{size}");
        }
        assert_eq!(check(&wish("a", 1024, 1024)), Err(LunError::Block(1024)));
    }
}
