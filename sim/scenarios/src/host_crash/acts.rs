//! What clients ask, as calls, and what the model learns from the replies.

use std::ops::Range;

use bytes::Bytes;
use crossdock_nfs3::call::{self, CreateHow, StableHow};
use crossdock_nfs3::{
    Call, Handle, HandleBuffer, Location, Name, Procedure, Reply, SetAttributes, Status,
    WriteVerifier,
};
use crossdock_types::Payload;

use super::flushes::{Mark, Moment, Watch};
use super::model::{
    CELL, CELL_BYTES, File, Model, NameKey, Tag, cell_mark, fill, has_whole_mark, name_mark,
    name_of,
};
use super::wire;

/// A request, by what it means.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Create {
        name: NameKey,
        is_directory: bool,
    },
    Remove {
        name: NameKey,
    },
    Rename {
        source: NameKey,
        target: NameKey,
    },
    Write {
        file: usize,
        cells: Range<usize>,
        tag: Tag,
        is_stable: bool,
    },
    Truncate {
        file: usize,
        cells: usize,
    },
    Read {
        file: usize,
        cells: Range<usize>,
        size_low: u64,
    },
    Commit {
        file: usize,
        unstable: Vec<(usize, Tag, WriteVerifier)>,
    },
    /// Which file has the name.
    Look {
        name: NameKey,
    },
    /// How large the file is.
    Stat {
        file: usize,
        size_low: u64,
    },
}

/// What is known when a reply arrives.
pub(super) struct Circumstances<'a> {
    pub(super) watch: &'a Watch,
    /// When the request was sent; `None` if it was sent in an earlier start too.
    pub(super) sent: Option<Moment>,
    /// Nodes stopped or started since.
    pub(super) is_disturbed: bool,
    /// On how many nodes everything has to be before a reply; 0 if nodes are away.
    pub(super) copies: usize,
}

/// What to do after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// Send it again later, as a new call.
    Again,
}

impl Act {
    /// The record of the call.
    pub(super) fn encode(&self, xid: u32, model: &Model) -> Bytes {
        match self {
            Self::Create { name, is_directory } => {
                let bytes = name_of(*name);
                let location = locate(model, name, &bytes);
                let attributes = SetAttributes {
                    mode: Some(0o755),
                    ..SetAttributes::default()
                };
                wire::encode(
                    xid,
                    &match is_directory {
                        true => Call::Mkdir(call::Mkdir {
                            location,
                            attributes,
                        }),
                        false => Call::Create(call::Create {
                            location,
                            how: CreateHow::Guarded(attributes),
                        }),
                    },
                )
            }
            Self::Remove { name } => {
                let bytes = name_of(*name);
                let location = locate(model, name, &bytes);
                let call = match self.procedure(model) {
                    Procedure::Rmdir => Call::Rmdir(location),
                    _ => Call::Remove(location),
                };
                wire::encode(xid, &call)
            }
            Self::Rename { source, target } => {
                let (from, to) = (name_of(*source), name_of(*target));
                let source = locate(model, source, &from);
                let target = locate(model, target, &to);
                wire::encode(xid, &Call::Rename(call::Rename { source, target }))
            }
            Self::Truncate { file, cells } => {
                let attributes = SetAttributes {
                    size_bytes: Some(*cells as u64 * CELL_BYTES),
                    ..SetAttributes::default()
                };
                let object = model.files[file].handle.as_handle();
                let guard = None;
                wire::encode(
                    xid,
                    &Call::Setattr(call::Setattr {
                        object,
                        attributes,
                        guard,
                    }),
                )
            }
            Self::Write {
                file,
                cells,
                tag,
                is_stable,
            } => {
                let file = model.files[file].handle.as_handle();
                wire::encode(xid, &write(file, cells, *tag, *is_stable))
            }
            Self::Read { file, cells, .. } => {
                let file = model.files[file].handle.as_handle();
                wire::encode(
                    xid,
                    &Call::Read(call::Read {
                        file,
                        offset: cells.start as u64 * CELL_BYTES,
                        count_bytes: bytes_of(cells),
                    }),
                )
            }
            Self::Look { name } => {
                let bytes = name_of(*name);
                wire::encode(xid, &Call::Lookup(locate(model, name, &bytes)))
            }
            Self::Stat { file, .. } => {
                let object = model.files[file].handle.as_handle();
                wire::encode(xid, &Call::Getattr(call::Getattr { object }))
            }
            Self::Commit { file, .. } => {
                let file = model.files[file].handle.as_handle();
                let (offset, count_bytes) = (0, 0);
                wire::encode(
                    xid,
                    &Call::Commit(call::Commit {
                        file,
                        offset,
                        count_bytes,
                    }),
                )
            }
        }
    }

    pub(super) fn procedure(&self, model: &Model) -> Procedure {
        match self {
            Self::Create {
                is_directory: true, ..
            } => Procedure::Mkdir,
            Self::Create { .. } => Procedure::Create,
            Self::Remove { name } => {
                let file = model.names.get(name).and_then(|file| model.files.get(file));
                match file.is_some_and(|file| file.is_directory) {
                    true => Procedure::Rmdir,
                    false => Procedure::Remove,
                }
            }
            Self::Rename { .. } => Procedure::Rename,
            Self::Write { .. } => Procedure::Write,
            Self::Truncate { .. } => Procedure::Setattr,
            Self::Read { .. } => Procedure::Read,
            Self::Commit { .. } => Procedure::Commit,
            Self::Look { .. } => Procedure::Lookup,
            Self::Stat { .. } => Procedure::Getattr,
        }
    }

    /// Whether a retransmission has to get the same reply (CONSISTENCY 8).
    pub(super) const fn is_once(&self) -> bool {
        !matches!(
            self,
            Self::Write { .. }
                | Self::Read { .. }
                | Self::Commit { .. }
                | Self::Look { .. }
                | Self::Stat { .. }
        )
    }

    /// Whether it is small, and does no harm if it is sent over two gateways at a time: of
    /// two that write the same bytes one may come late.
    pub(super) const fn can_be_posted(&self) -> bool {
        self.is_once() || matches!(self, Self::Look { .. } | Self::Stat { .. })
    }

    /// Takes the locks that keep requests apart whose order nobody knows.
    pub(super) fn lock(&self, model: &mut Model) {
        self.set_locks(model, true);
    }

    /// Gives them back.
    pub(super) fn unlock(&self, model: &mut Model) {
        self.set_locks(model, false);
    }

    fn set_locks(&self, model: &mut Model, is_taken: bool) {
        let names: &[NameKey] = match self {
            Self::Create { name, .. } | Self::Remove { name } => &[*name],
            Self::Rename { source, target } => &[*source, *target],
            _ => &[],
        };
        for name in names {
            if is_taken {
                model.locked.insert(*name);
            } else {
                model.locked.remove(name);
            }
            // Whatever has the name: its handle may become stale.
            let file = model.names.get(name).copied();
            if let Some(file) = file.and_then(|file| model.files.get_mut(&file)) {
                file.is_locked = is_taken;
            }
        }
        match self {
            Self::Write { file, cells, .. } | Self::Read { file, cells, .. } => {
                if let Some(state) = model.files.get_mut(file) {
                    if is_taken {
                        let writes = matches!(self, Self::Write { .. });
                        state.busy.push((cells.clone(), writes));
                    } else {
                        state.done_with(cells);
                    }
                }
            }
            Self::Look { name } => {
                if is_taken {
                    model.locked.insert(*name);
                } else {
                    model.locked.remove(name);
                }
            }
            Self::Commit { file, .. } | Self::Stat { file, .. } => {
                if let Some(state) = model.files.get_mut(file) {
                    // An empty range: meets no other, but forbids a lock.
                    if is_taken {
                        state.busy.push((0..0, false));
                    } else {
                        state.done_with(&(0..0));
                    }
                }
            }
            Self::Truncate { file, .. } => {
                if let Some(state) = model.files.get_mut(file) {
                    state.is_locked = is_taken;
                }
            }
            _ => {}
        }
    }

    /// Nobody will learn what became of it: data may be either. (Names are
    /// looked up.)
    pub(super) fn may_have_happened(&self, model: &mut Model) {
        match self {
            Self::Write {
                file, cells, tag, ..
            } => {
                if let Some(file) = model.files.get_mut(file) {
                    file.may_have_written(cells.clone(), *tag);
                }
            }
            Self::Truncate { file, cells } => {
                if let Some(file) = model.files.get_mut(file) {
                    file.may_be_truncated(*cells);
                }
            }
            _ => {}
        }
    }

    /// Names that have to be looked up if nobody knows what became of it.
    pub(super) fn names(&self) -> Vec<NameKey> {
        match self {
            Self::Create { name, .. } | Self::Remove { name } => vec![*name],
            Self::Rename { source, target } => vec![*source, *target],
            _ => Vec::new(),
        }
    }

    /// Takes the reply into the model, after [`unlock`](Self::unlock).
    pub(super) fn replied(
        &self,
        model: &mut Model,
        reply: &Reply,
        at: &Circumstances<'_>,
    ) -> Result<Next, String> {
        if reply.status() == Some(Status::Jukebox) {
            // Not done, or at least to be done again; data may show.
            self.may_have_happened(model);
            return Ok(Next::Again);
        }
        match (self, reply) {
            (
                Self::Create { name, is_directory },
                Reply::Create(Ok(made)) | Reply::Mkdir(Ok(made)),
            ) => {
                let handle = made.object.ok_or("made something without a handle")?;
                self.created(model, *name, handle, *is_directory);
            }
            (Self::Remove { name }, Reply::Remove(Ok(_)) | Reply::Rmdir(Ok(_))) => {
                self.removed(model, *name);
            }
            (Self::Rename { source, target }, Reply::Rename(Ok(_))) => {
                self.renamed(model, *source, *target);
            }
            (Self::Truncate { file, cells }, Reply::Setattr(Ok(_))) => {
                file_of(model, *file)?.truncated(*cells);
                return Ok(Next::Done);
            }
            (Self::Write { file, .. }, Reply::Write(Ok(done))) => {
                let file = file_of(model, *file)?;
                return self.wrote(file, done, at).map(|()| Next::Done);
            }
            (
                Self::Read {
                    file,
                    cells,
                    size_low,
                },
                Reply::Read(Ok(done)),
            ) => {
                let file = file_of(model, *file)?;
                let offset = cells.start as u64 * CELL_BYTES;
                let data = done.data.to_bytes();
                let least = size_low
                    .saturating_sub(offset)
                    .min(u64::from(bytes_of(cells)));
                if (data.len() as u64) < least {
                    return Err(format!(
                        "a read from {offset} has {} bytes, not {least}",
                        data.len()
                    ));
                }
                file.check(offset, &data, false)?;
                return Ok(Next::Done);
            }
            (Self::Look { name }, Reply::Lookup(found)) => {
                let found = match found {
                    Ok(found) => Some(found.object),
                    Err(failed) if failed.status == Status::NoEnt => None,
                    Err(failed) => return Err(format!("a look-up fails: {}", failed.status)),
                };
                let file = model.names.get(name).map(|file| &model.files[file]);
                let expected = file.map(|file| file.handle);
                if found != expected {
                    return Err(format!(
                        "name {name:?} is {found:?}, should be {expected:?}"
                    ));
                }
                return Ok(Next::Done);
            }
            (Self::Stat { file, size_low }, Reply::Getattr(Ok(found))) => {
                let (size, high) = (found.size_bytes, file_of(model, *file)?.size_max());
                if size < *size_low || size > high {
                    return Err(format!("{size} bytes, should have {size_low} to {high}"));
                }
                return Ok(Next::Done);
            }
            (Self::Commit { file, unstable }, Reply::Commit(Ok(done))) => {
                let file = file_of(model, *file)?;
                for &(cell, tag, verifier) in unstable {
                    if verifier == done.verifier {
                        // What is written over meanwhile need not become durable.
                        let is_newest = file.is_newest(cell, tag);
                        file.committed(cell, tag);
                        let is_checkable = is_newest && has_whole_mark(cell);
                        check_copies(at, cell_mark(tag, cell), 0, is_checkable)?;
                    }
                }
                return Ok(Next::Done);
            }
            (_, reply) => {
                return Err(format!("{self:?} is answered {:?}", reply.status()));
            }
        }
        if let Some(sent) = at.sent {
            for name in self.names() {
                check_copies(at, name_mark(name), sent, true)?;
            }
        }
        Ok(Next::Done)
    }

    fn wrote(
        &self,
        file: &mut File,
        done: &crossdock_nfs3::reply::Write,
        at: &Circumstances<'_>,
    ) -> Result<(), String> {
        let Self::Write {
            cells,
            tag,
            is_stable,
            ..
        } = self
        else {
            return Ok(());
        };
        if done.count_bytes != bytes_of(cells) {
            return Err(format!(
                "a write of {cells:?} wrote {} bytes",
                done.count_bytes
            ));
        }
        let is_durable = done.committed == StableHow::FileSync;
        if *is_stable && !is_durable {
            return Err("a stable write was answered as unstable".to_owned());
        }
        file.wrote(cells.clone(), *tag, (!is_durable).then_some(done.verifier));
        if !is_durable && at.is_disturbed {
            file.loses();
        }
        if is_durable && at.sent.is_some() {
            for cell in cells.clone() {
                check_copies(at, cell_mark(*tag, cell), 0, has_whole_mark(cell))?;
            }
        }
        Ok(())
    }

    /// The name is there, with this handle.
    pub(super) fn created(
        &self,
        model: &mut Model,
        name: NameKey,
        handle: HandleBuffer,
        is_directory: bool,
    ) {
        let file = model.add(File::new(handle, is_directory));
        model.names.insert(name, file);
    }

    /// The name is gone.
    pub(super) fn removed(&self, model: &mut Model, name: NameKey) {
        if let Some(file) = model.names.remove(&name) {
            model.files.remove(&file);
        }
    }

    /// The name has moved.
    pub(super) fn renamed(&self, model: &mut Model, source: NameKey, target: NameKey) {
        self.removed(model, target);
        if let Some(file) = model.names.remove(&source) {
            model.names.insert(target, file);
        }
    }
}

/// Invariant 1: what a reply promises is on enough nodes.
fn check_copies(
    at: &Circumstances<'_>,
    mark: Mark,
    since: Moment,
    is_checkable: bool,
) -> Result<(), String> {
    let copies = at.watch.copies(mark, since);
    if is_checkable && copies < at.copies {
        return Err(format!(
            "the reply came before it was flushed: {mark:x?} is on {copies} of {} nodes",
            at.copies
        ));
    }
    Ok(())
}

/// A WRITE of whole cells.
pub(super) fn write<'a>(
    file: Handle<'a>,
    cells: &Range<usize>,
    tag: Tag,
    is_stable: bool,
) -> Call<'a> {
    let mut data = vec![0; cells.len() * CELL];
    for (number, part) in cells.clone().zip(data.chunks_mut(CELL)) {
        fill(tag, number, part);
    }
    Call::Write(call::Write {
        file,
        offset: cells.start as u64 * CELL_BYTES,
        count_bytes: bytes_of(cells),
        stable: match is_stable {
            true => StableHow::FileSync,
            false => StableHow::Unstable,
        },
        data: Payload::from(Bytes::from(data)),
    })
}

fn bytes_of(cells: &Range<usize>) -> u32 {
    u32::try_from(cells.len() as u64 * CELL_BYTES).unwrap_or(u32::MAX)
}

fn locate<'a>(model: &'a Model, (directory, _): &NameKey, bytes: &'a [u8]) -> Location<'a> {
    Location {
        directory: model.directories[*directory].as_handle(),
        name: Name(bytes),
    }
}

fn file_of(model: &mut Model, file: usize) -> Result<&mut File, String> {
    model
        .files
        .get_mut(&file)
        .ok_or_else(|| format!("file {file} is not in the model"))
}
