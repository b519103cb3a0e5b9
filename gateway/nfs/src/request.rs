//! From NFS calls to requests of sites: handles are opened, exports and names
//! checked, and what the reply will need is kept.

use std::cell::RefCell;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crossdock_names::{
    FileHandle, FileRef, HandleKeys, Incarnation, LayoutClass, Proof, SITES, VolumeId,
};
use crossdock_nfs3::call::{self, CreateHow, Special, StableHow, access};
use crossdock_nfs3::{Call, Handle, Location, Procedure, Status};
use crossdock_peer::{CreateMode, FileKind, SiteOperation, Stability};

use crate::convert::{changes, device, wall_time};
use crate::export::Export;
use crate::listing::Listing;

/// What the reply to a call depends on besides the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Nothing.
    Plain(Procedure),
    /// How much of what was written.
    Write { count_bytes: u32, stable: StableHow },
    /// Whether both names are in the same directory.
    Rename { is_same: bool },
    /// What the client has room for.
    Listing(Listing),
    /// The largest READ and WRITE on the transport of the call.
    Fsinfo { io_bytes_max: u32 },
}

impl Expected {
    pub(crate) const fn procedure(&self) -> Procedure {
        match self {
            Self::Plain(procedure) => *procedure,
            Self::Write { .. } => Procedure::Write,
            Self::Rename { .. } => Procedure::Rename,
            Self::Listing(listing) => listing.procedure(),
            Self::Fsinfo { .. } => Procedure::Fsinfo,
        }
    }
}

/// A call that is understood and allowed so far.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) export: &'a Export,
    pub(crate) operation: SiteOperation,
    pub(crate) expected: Expected,
    /// Bytes that the reply may take.
    pub(crate) reply_bytes_max: usize,
}

/// Whether a retransmission of it has to be recognised, because doing it twice
/// would give another result (CONSISTENCY 8).
pub(crate) const fn is_once(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Link
    )
}

/// Reads calls of one client on one transport.
pub(crate) struct Reader<'a> {
    pub(crate) volume: VolumeId,
    /// Of handles of format 1.
    pub(crate) keys: Option<&'a HandleKeys>,
    pub(crate) exports: &'a [Export],
    pub(crate) client: SocketAddr,
    /// Largest READ and WRITE on the transport.
    pub(crate) io_bytes_max: u32,
    /// Whether the gateway is scoped to exports: it takes handles of proofs only.
    pub(crate) is_scoped: bool,
    /// What the handles of format 2 say, true or not.
    pub(crate) shown: RefCell<Vec<Proof>>,
}

/// Headers and attributes of any reply without bulk data.
const REPLY_BYTES: usize = 512;

impl<'a> Reader<'a> {
    /// What to ask the router for `call`, which is not NULL.
    ///
    /// # Errors
    /// What to answer at once.
    pub(crate) fn read(&self, call: Call<'_>) -> Result<Request<'a>, Status> {
        let plain = Expected::Plain(call.procedure());
        let is_change = is_change(call.procedure());
        let (handle, operation, expected) = match call {
            Call::Null => return Err(Status::ServerFault), // Answered before.
            Call::Getattr(call::Getattr { object }) | Call::Pathconf(call::Pathconf { object }) => {
                self.attributes(object, plain)?
            }
            Call::Fsinfo(call::Fsinfo { root }) => {
                let io_bytes_max = self.io_bytes_max;
                self.attributes(root, Expected::Fsinfo { io_bytes_max })?
            }
            Call::Setattr(arguments) => self.set_attributes(&arguments, plain)?,
            Call::Lookup(location) => self.lookup(&location, plain)?,
            Call::Access(call::Access { object, wanted }) => {
                let handle = self.open(object)?;
                let file = handle.0.file;
                let wanted = if handle.1.rules.read_only {
                    wanted & !(access::MODIFY | access::EXTEND | access::DELETE)
                } else {
                    wanted
                };
                (handle, SiteOperation::Access { file, wanted }, plain)
            }
            Call::Readlink(call::Readlink { symlink }) => {
                let handle = self.open(symlink)?;
                let file = handle.0.file;
                (handle, SiteOperation::ReadLink { file }, plain)
            }
            Call::Read(arguments) => self.read_file(&arguments, plain)?,
            Call::Write(arguments) => self.write_file(arguments)?,
            Call::Create(arguments) => self.create(&arguments, plain)?,
            Call::Mkdir(arguments) => self.mkdir(&arguments, plain)?,
            Call::Symlink(arguments) => self.symlink(&arguments, plain)?,
            Call::Mknod(arguments) => self.mknod(&arguments, plain)?,
            Call::Remove(location) => {
                let (handle, directory, name) = self.entry(&location, Status::Inval)?;
                let operation = SiteOperation::Remove { directory, name };
                (handle, operation, plain)
            }
            Call::Rmdir(location) => {
                // RFC 1813 section 3.3.13 has two answers for the two names.
                let dots = if location.name.0 == b"." {
                    Status::Inval
                } else {
                    Status::Exist
                };
                let (handle, directory, name) = self.entry(&location, dots)?;
                let operation = SiteOperation::RemoveDirectory { directory, name };
                (handle, operation, plain)
            }
            Call::Rename(arguments) => self.rename(&arguments)?,
            Call::Link(arguments) => self.link(&arguments, plain)?,
            Call::Readdir(arguments) => {
                self.list(arguments.directory, Listing::of_readdir(&arguments, self))?
            }
            Call::Readdirplus(arguments) => self.list(
                arguments.directory,
                Listing::of_readdirplus(&arguments, self),
            )?,
            Call::Fsstat(call::Fsstat { root }) => {
                let handle = self.open(root)?;
                let file = handle.0.file;
                (handle, SiteOperation::Space { file }, plain)
            }
            Call::Commit(call::Commit { file, .. }) => {
                let handle = self.open(file)?;
                let operation = SiteOperation::Commit {
                    file: handle.0.file,
                    incarnation: Incarnation::default(), // The router knows it.
                };
                (handle, operation, plain)
            }
        };
        let (_, export) = handle;
        if export.rules.read_only && is_change {
            return Err(Status::Rofs);
        }
        let reply_bytes_max = REPLY_BYTES + bulk_bytes(&operation, &expected);
        Ok(Request {
            export,
            operation,
            expected,
            reply_bytes_max,
        })
    }

    /// What a handle names, if this client may use it here; and, if it is of format 2,
    /// if it is true, which is to be found out before anything is done with it.
    pub(crate) fn open(&self, handle: Handle<'_>) -> Result<Opened<'a>, Status> {
        let handle = self.handle(handle.as_bytes())?;
        if handle.volume != self.volume {
            return Err(Status::BadHandle);
        }
        let export = self.exports.iter().find(|e| e.id == handle.export);
        let export = export.ok_or(Status::Stale)?; // It was withdrawn.
        if !export.rules.admits(self.client) {
            return Err(Status::Acces);
        }
        Ok((handle, export))
    }

    fn handle(&self, bytes: &[u8]) -> Result<FileHandle, Status> {
        let forged = |_| Status::BadHandle;
        let Some(proof) = Proof::of_handle(bytes, self.volume).map_err(forged)? else {
            return match self.is_scoped {
                // Given out before the gateway was scoped, or by one that is not, or
                // forged: it has no key to tell.
                true if HandleKeys::is_format_of(bytes) => Err(Status::Stale),
                true => Err(Status::BadHandle),
                false => self
                    .keys
                    .ok_or(Status::Jukebox)?
                    .open(bytes)
                    .map_err(forged),
            };
        };
        if usize::from(proof.file.id.site().0) >= SITES {
            return Err(Status::BadHandle);
        }
        self.shown.borrow_mut().push(proof);
        Ok(FileHandle {
            volume: self.volume,
            export: proof.export,
            file: proof.file,
            placement: proof.file.id,
            layout: LayoutClass::STRIPED,
        })
    }

    /// Directory and name of an entry that is made or removed; `dots` is the
    /// answer to `.` and `..`.
    fn entry(
        &self,
        location: &Location<'_>,
        dots: Status,
    ) -> Result<(Opened<'a>, FileRef, Bytes), Status> {
        let handle = self.open(location.directory)?;
        let name = name(location.name.0)?;
        if matches!(location.name.0, b"." | b"..") {
            return Err(dots);
        }
        let directory = handle.0.file;
        Ok((handle, directory, name))
    }

    fn attributes(&self, object: Handle<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let handle = self.open(object)?;
        let file = handle.0.file;
        Ok((handle, SiteOperation::GetAttributes { file }, expected))
    }

    fn set_attributes(
        &self,
        arguments: &call::Setattr<'_>,
        expected: Expected,
    ) -> Result<Read<'a>, Status> {
        let handle = self.open(arguments.object)?;
        let operation = SiteOperation::SetAttributes {
            file: handle.0.file,
            changes: changes(&arguments.attributes)?,
            guard: arguments.guard.map(wall_time).transpose()?,
        };
        Ok((handle, operation, expected))
    }

    fn lookup(&self, location: &Location<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let handle = self.open(location.directory)?;
        let directory = handle.0.file;
        let within = handle.1.root;
        let operation = match location.name.0 {
            // The root of an export is its own parent: nobody climbs out of it.
            b".." if directory == within => SiteOperation::Lookup {
                directory,
                name: Bytes::from_static(b"."),
            },
            // Nor out of a directory that has left the export meanwhile.
            b".." => SiteOperation::LookupParent { directory, within },
            other => SiteOperation::Lookup {
                directory,
                name: name(other)?,
            },
        };
        Ok((handle, operation, expected))
    }

    fn read_file(
        &self,
        arguments: &call::Read<'_>,
        expected: Expected,
    ) -> Result<Read<'a>, Status> {
        let handle = self.open(arguments.file)?;
        let operation = SiteOperation::Read {
            file: handle.0.file,
            offset_bytes: arguments.offset,
            length_bytes: u64::from(arguments.count_bytes.min(self.io_bytes_max)),
            patience_ms: 0,
        };
        Ok((handle, operation, expected))
    }

    fn write_file(&self, arguments: call::Write<'_>) -> Result<Read<'a>, Status> {
        let handle = self.open(arguments.file)?;
        let count_bytes = arguments.count_bytes;
        if u64::from(count_bytes) > arguments.data.len() as u64 {
            return Err(Status::Inval);
        }
        // More than wtmax is written in part; the client sends the rest again.
        let count_bytes = count_bytes.min(self.io_bytes_max);
        let mut payload = arguments.data;
        payload.truncate(usize::try_from(count_bytes).unwrap_or(usize::MAX));
        let (stability, stable) = match arguments.stable {
            StableHow::Unstable => (Stability::Unstable, StableHow::Unstable),
            StableHow::DataSync | StableHow::FileSync => (Stability::Stable, StableHow::FileSync),
        };
        let operation = SiteOperation::Write {
            file: handle.0.file,
            offset_bytes: arguments.offset,
            payload,
            stability,
        };
        let expected = Expected::Write {
            count_bytes,
            stable,
        };
        Ok((handle, operation, expected))
    }

    fn create(&self, arguments: &call::Create<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let (handle, directory, name) = self.entry(&arguments.location, Status::Exist)?;
        let mode = match &arguments.how {
            CreateHow::Unchecked(attributes) => CreateMode::Unchecked(changes(attributes)?),
            CreateHow::Guarded(attributes) => CreateMode::Guarded(changes(attributes)?),
            CreateHow::Exclusive(verifier) => CreateMode::Exclusive(verifier.0),
        };
        let operation = SiteOperation::Create {
            directory,
            name,
            mode,
        };
        Ok((handle, operation, expected))
    }

    fn mkdir(&self, arguments: &call::Mkdir<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let (handle, directory, name) = self.entry(&arguments.location, Status::Exist)?;
        let operation = SiteOperation::MakeDirectory {
            directory,
            name,
            changes: changes(&arguments.attributes)?,
        };
        Ok((handle, operation, expected))
    }

    fn symlink(
        &self,
        arguments: &call::Symlink<'_>,
        expected: Expected,
    ) -> Result<Read<'a>, Status> {
        let (handle, directory, name) = self.entry(&arguments.location, Status::Exist)?;
        let target = arguments.target.0;
        if target.is_empty() {
            return Err(Status::Inval);
        }
        if target.len() > PATH_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        let operation = SiteOperation::MakeSymlink {
            directory,
            name,
            changes: changes(&arguments.attributes)?,
            target: Bytes::copy_from_slice(target),
        };
        Ok((handle, operation, expected))
    }

    fn mknod(&self, arguments: &call::Mknod<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let (handle, directory, name) = self.entry(&arguments.location, Status::Exist)?;
        let (kind, attributes, number) = match &arguments.what {
            Special::CharacterDevice {
                attributes,
                device: number,
            } => (FileKind::Character, attributes, device(*number)),
            Special::BlockDevice {
                attributes,
                device: number,
            } => (FileKind::Block, attributes, device(*number)),
            Special::Socket(attributes) => (FileKind::Socket, attributes, Default::default()),
            Special::Fifo(attributes) => (FileKind::Fifo, attributes, Default::default()),
            Special::Other(_) => return Err(Status::BadType),
        };
        let operation = SiteOperation::MakeNode {
            directory,
            name,
            kind,
            device: number,
            changes: changes(attributes)?,
        };
        Ok((handle, operation, expected))
    }

    fn rename(&self, arguments: &call::Rename<'_>) -> Result<Read<'a>, Status> {
        let (handle, from_directory, from_name) = self.entry(&arguments.source, Status::Inval)?;
        let (target, to_directory, to_name) = self.entry(&arguments.target, Status::Inval)?;
        if target.1.id != handle.1.id {
            return Err(Status::XDev);
        }
        let operation = SiteOperation::Rename {
            from_directory,
            from_name,
            to_directory,
            to_name,
        };
        let is_same = from_directory == to_directory;
        Ok((handle, operation, Expected::Rename { is_same }))
    }

    fn link(&self, arguments: &call::Link<'_>, expected: Expected) -> Result<Read<'a>, Status> {
        let (object, export) = self.open(arguments.object)?;
        let (handle, directory, name) = self.entry(&arguments.location, Status::Exist)?;
        if export.id != handle.1.id {
            return Err(Status::XDev);
        }
        let operation = SiteOperation::Link {
            file: object.file,
            directory,
            name,
        };
        Ok((handle, operation, expected))
    }

    fn list(&self, directory: Handle<'_>, listing: Listing) -> Result<Read<'a>, Status> {
        let handle = self.open(directory)?;
        let directory = handle.0.file;
        let listing = if directory == handle.1.root {
            listing.of_root(directory.id)
        } else {
            listing
        };
        let operation = listing.operation(directory);
        Ok((handle, operation, Expected::Listing(listing)))
    }
}

pub(crate) type Opened<'a> = (FileHandle, &'a Export);
type Read<'a> = (Opened<'a>, SiteOperation, Expected);

/// A name that may stand in a directory, in memory of its own: who keeps it
/// must not keep the whole record.
fn name(name: &[u8]) -> Result<Bytes, Status> {
    match name {
        [] => Err(Status::Inval),
        _ if name.len() > NAME_BYTES_MAX => Err(Status::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Status::Inval),
        _ => Ok(Bytes::copy_from_slice(name)),
    }
}

/// Whether a read-only export refuses it.
const fn is_change(procedure: Procedure) -> bool {
    is_once(procedure) || matches!(procedure, Procedure::Write | Procedure::Commit)
}

/// Bytes of the reply that depend on what was asked for.
fn bulk_bytes(operation: &SiteOperation, expected: &Expected) -> usize {
    match (operation, expected) {
        (SiteOperation::Read { length_bytes, .. }, _) => {
            usize::try_from(*length_bytes).unwrap_or(usize::MAX)
        }
        (SiteOperation::ReadLink { .. }, _) => PATH_BYTES_MAX,
        (_, Expected::Listing(listing)) => listing.reply_bytes_max(),
        _ => 0,
    }
}
