//! Calls in one line each: what a check does on its way to what it checks.
//!
//! A method fails if the server does; checks of failures use
//! [`Client::refuses`].

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use crossdock_nfs3::call::{self, CreateHow, StableHow};
use crossdock_nfs3::reply;
use crossdock_nfs3::{
    Attributes, Call, CookieVerifier, CreateVerifier, HandleBuffer, Location, Name, Path, Reply,
    SetAttributes, WccData,
};
use crossdock_types::Payload;

use crate::client::Client;

/// A name in a directory.
pub(crate) fn at<'a>(
    directory: &'a HandleBuffer,
    name: &'a (impl AsRef<[u8]> + ?Sized),
) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_ref()),
    }
}

/// Sets the mode and nothing else.
pub(crate) fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

/// Sets the size and nothing else.
pub(crate) fn size(size_bytes: u64) -> SetAttributes {
    SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    }
}

/// CREATE of a name that is free, with a mode.
pub(crate) fn guarded<'a>(location: Location<'a>, bits: u32) -> Call<'a> {
    create(location, CreateHow::Guarded(mode(bits)))
}

/// CREATE, EXCLUSIVE.
pub(crate) fn exclusive(location: Location<'_>, verifier: [u8; 8]) -> Call<'_> {
    create(location, CreateHow::Exclusive(CreateVerifier(verifier)))
}

/// CREATE.
pub(crate) const fn create(location: Location<'_>, how: CreateHow) -> Call<'_> {
    Call::Create(call::Create { location, how })
}

/// MKDIR.
pub(crate) fn mkdir(location: Location<'_>, bits: u32) -> Call<'_> {
    Call::Mkdir(call::Mkdir {
        location,
        attributes: mode(bits),
    })
}

/// SYMLINK.
pub(crate) fn symlink<'a>(location: Location<'a>, target: &'a [u8]) -> Call<'a> {
    Call::Symlink(call::Symlink {
        location,
        attributes: SetAttributes::default(),
        target: Path(target),
    })
}

/// MKNOD.
pub(crate) const fn mknod(location: Location<'_>, what: call::Special) -> Call<'_> {
    Call::Mknod(call::Mknod { location, what })
}

/// MKNOD of a named pipe.
pub(crate) fn fifo(location: Location<'_>) -> Call<'_> {
    mknod(location, call::Special::Fifo(mode(0o644)))
}

/// RENAME.
pub(crate) const fn rename<'a>(source: Location<'a>, target: Location<'a>) -> Call<'a> {
    Call::Rename(call::Rename { source, target })
}

/// LINK.
pub(crate) fn link<'a>(object: &'a HandleBuffer, location: Location<'a>) -> Call<'a> {
    Call::Link(call::Link {
        object: object.as_handle(),
        location,
    })
}

/// GETATTR.
pub(crate) fn getattr(object: &HandleBuffer) -> Call<'_> {
    Call::Getattr(call::Getattr {
        object: object.as_handle(),
    })
}

/// SETATTR without a guard.
pub(crate) fn setattr(object: &HandleBuffer, attributes: SetAttributes) -> Call<'_> {
    Call::Setattr(call::Setattr {
        object: object.as_handle(),
        attributes,
        guard: None,
    })
}

/// ACCESS.
pub(crate) fn access(object: &HandleBuffer, wanted: u32) -> Call<'_> {
    Call::Access(call::Access {
        object: object.as_handle(),
        wanted,
    })
}

/// READ.
pub(crate) fn read(file: &HandleBuffer, offset: u64, count_bytes: u32) -> Call<'_> {
    Call::Read(call::Read {
        file: file.as_handle(),
        offset,
        count_bytes,
    })
}

/// WRITE of all of `data`.
pub(crate) fn write<'a>(
    file: &'a HandleBuffer,
    offset: u64,
    data: &[u8],
    stable: StableHow,
) -> Call<'a> {
    Call::Write(call::Write {
        file: file.as_handle(),
        offset,
        count_bytes: u32::try_from(data.len()).unwrap_or(u32::MAX),
        stable,
        data: Payload::from(Bytes::copy_from_slice(data)),
    })
}

/// COMMIT of the whole file.
pub(crate) fn commit(file: &HandleBuffer) -> Call<'_> {
    Call::Commit(call::Commit {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 0,
    })
}

/// READLINK.
pub(crate) fn readlink(symlink: &HandleBuffer) -> Call<'_> {
    Call::Readlink(call::Readlink {
        symlink: symlink.as_handle(),
    })
}

/// READDIR.
pub(crate) fn readdir(directory: &HandleBuffer, cookie: u64, count_bytes: u32) -> Call<'_> {
    Call::Readdir(call::Readdir {
        directory: directory.as_handle(),
        cookie,
        verifier: CookieVerifier::default(),
        count_bytes,
    })
}

/// READDIRPLUS; as much of names as of everything.
pub(crate) fn readdirplus(directory: &HandleBuffer, cookie: u64, count_bytes: u32) -> Call<'_> {
    Call::Readdirplus(call::Readdirplus {
        directory: directory.as_handle(),
        cookie,
        verifier: CookieVerifier::default(),
        directory_count_bytes: count_bytes,
        count_bytes,
    })
}

/// FSSTAT.
pub(crate) fn fsstat(root: &HandleBuffer) -> Call<'_> {
    Call::Fsstat(call::Fsstat {
        root: root.as_handle(),
    })
}

/// FSINFO.
pub(crate) fn fsinfo(root: &HandleBuffer) -> Call<'_> {
    Call::Fsinfo(call::Fsinfo {
        root: root.as_handle(),
    })
}

/// PATHCONF.
pub(crate) fn pathconf(object: &HandleBuffer) -> Call<'_> {
    Call::Pathconf(call::Pathconf {
        object: object.as_handle(),
    })
}

/// The results of success, or a failed check.
macro_rules! done {
    ($reply:expr, $procedure:ident) => {
        match $reply {
            Reply::$procedure(Ok(done)) => done,
            other => bail!("{}: {:?}", stringify!($procedure), other.status()),
        }
    };
}

impl Client {
    pub(crate) fn getattr(&mut self, object: &HandleBuffer) -> Result<Attributes> {
        Ok(done!(self.call(&getattr(object))?, Getattr))
    }

    pub(crate) fn setattr(
        &mut self,
        object: &HandleBuffer,
        attributes: SetAttributes,
    ) -> Result<WccData> {
        Ok(done!(self.call(&setattr(object, attributes))?, Setattr))
    }

    pub(crate) fn lookup(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
    ) -> Result<HandleBuffer> {
        Ok(self.found(directory, name)?.object)
    }

    pub(crate) fn found(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
    ) -> Result<reply::Lookup> {
        let call = Call::Lookup(at(directory, &name));
        Ok(done!(self.call(&call)?, Lookup))
    }

    pub(crate) fn access(&mut self, object: &HandleBuffer, wanted: u32) -> Result<u32> {
        Ok(done!(self.call(&access(object, wanted))?, Access).granted)
    }

    /// A new, empty file.
    pub(crate) fn create(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
        bits: u32,
    ) -> Result<HandleBuffer> {
        self.make(&guarded(at(directory, &name), bits))
    }

    pub(crate) fn mkdir(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
        bits: u32,
    ) -> Result<HandleBuffer> {
        self.make(&mkdir(at(directory, &name), bits))
    }

    pub(crate) fn symlink(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
        target: &[u8],
    ) -> Result<HandleBuffer> {
        self.make(&symlink(at(directory, &name), target))
    }

    pub(crate) fn fifo(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
    ) -> Result<HandleBuffer> {
        self.make(&fifo(at(directory, &name)))
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD: the handle of what was made.
    pub(crate) fn make(&mut self, call: &Call<'_>) -> Result<HandleBuffer> {
        self.made(call)?.object.context("no handle")
    }

    pub(crate) fn made(&mut self, call: &Call<'_>) -> Result<reply::Created> {
        match self.call(call)? {
            Reply::Create(Ok(made))
            | Reply::Mkdir(Ok(made))
            | Reply::Symlink(Ok(made))
            | Reply::Mknod(Ok(made)) => Ok(made),
            other => bail!("{:?}: {:?}", call.procedure(), other.status()),
        }
    }

    /// REMOVE or RMDIR.
    pub(crate) fn removed(&mut self, call: &Call<'_>) -> Result<WccData> {
        match self.call(call)? {
            Reply::Remove(Ok(wcc)) | Reply::Rmdir(Ok(wcc)) => Ok(wcc),
            other => bail!("{:?}: {:?}", call.procedure(), other.status()),
        }
    }

    pub(crate) fn remove(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
    ) -> Result<WccData> {
        self.removed(&Call::Remove(at(directory, &name)))
    }

    pub(crate) fn rmdir(
        &mut self,
        directory: &HandleBuffer,
        name: impl AsRef<[u8]>,
    ) -> Result<WccData> {
        self.removed(&Call::Rmdir(at(directory, &name)))
    }

    pub(crate) fn rename(
        &mut self,
        source: Location<'_>,
        target: Location<'_>,
    ) -> Result<reply::Renamed> {
        Ok(done!(self.call(&rename(source, target))?, Rename))
    }

    pub(crate) fn link(
        &mut self,
        object: &HandleBuffer,
        location: Location<'_>,
    ) -> Result<reply::Linked> {
        Ok(done!(self.call(&link(object, location))?, Link))
    }

    pub(crate) fn read(
        &mut self,
        file: &HandleBuffer,
        offset: u64,
        count_bytes: u32,
    ) -> Result<reply::Read> {
        Ok(done!(self.call(&read(file, offset, count_bytes))?, Read))
    }

    pub(crate) fn write(
        &mut self,
        file: &HandleBuffer,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<reply::Write> {
        Ok(done!(self.call(&write(file, offset, data, stable))?, Write))
    }

    pub(crate) fn commit(&mut self, file: &HandleBuffer) -> Result<reply::Commit> {
        Ok(done!(self.call(&commit(file))?, Commit))
    }

    pub(crate) fn readlink(&mut self, symlink: &HandleBuffer) -> Result<Bytes> {
        Ok(done!(self.call(&readlink(symlink))?, Readlink).target)
    }

    /// One READDIR.
    pub(crate) fn readdir(
        &mut self,
        directory: &HandleBuffer,
        cookie: u64,
        count_bytes: u32,
    ) -> Result<reply::Readdir> {
        let call = readdir(directory, cookie, count_bytes);
        Ok(done!(self.call(&call)?, Readdir))
    }

    /// One READDIRPLUS.
    pub(crate) fn readdirplus(
        &mut self,
        directory: &HandleBuffer,
        cookie: u64,
        count_bytes: u32,
    ) -> Result<reply::Readdirplus> {
        let call = readdirplus(directory, cookie, count_bytes);
        Ok(done!(self.call(&call)?, Readdirplus))
    }

    /// All names of a directory but the dots, in the order of their cookies.
    pub(crate) fn names(&mut self, directory: &HandleBuffer) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let listed = self.readdir(directory, cookie, 8192)?;
            for entry in listed.entries.iter() {
                cookie = entry.cookie;
                if !matches!(entry.name.0, b"." | b"..") {
                    names.push(entry.name.0.to_vec());
                }
            }
            if listed.is_end {
                return Ok(names);
            }
        }
    }

    pub(crate) fn fsstat(&mut self, root: &HandleBuffer) -> Result<reply::Fsstat> {
        Ok(done!(self.call(&fsstat(root))?, Fsstat))
    }

    pub(crate) fn fsinfo(&mut self, root: &HandleBuffer) -> Result<reply::Fsinfo> {
        Ok(done!(self.call(&fsinfo(root))?, Fsinfo))
    }

    pub(crate) fn pathconf(&mut self, object: &HandleBuffer) -> Result<reply::Pathconf> {
        Ok(done!(self.call(&pathconf(object))?, Pathconf))
    }
}
