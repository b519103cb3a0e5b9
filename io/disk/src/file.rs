//! The file or block device beneath a disk: making, opening and locking it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crossdock_types::{AlignedBuffer, BLOCK_BYTES};
use rustix::fs::{
    CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, fallocate, fdatasync,
    flock, fstat, fsync, ftruncate, open, openat, seek,
};
use rustix::io::{Errno, pread, pwrite};

use crate::DiskError;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Zeros are written in steps of this many bytes.
const PREWRITE_BYTES: usize = 1 << 20;

/// How to open a disk, and what to make if it is not there.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The least length, a multiple of [`BLOCK_BYTES`]. A longer disk keeps its
    /// length.
    pub length_bytes: u64,
    /// Whether what is added is written through with zeros and synced (for a
    /// journal: later writes change no metadata), or only allocated.
    pub prewrite: bool,
}

/// An open disk, before something serves it.
///
/// It is locked: nobody else can open it as a disk until it is dropped.
#[derive(Debug)]
pub struct DiskFile {
    pub(crate) fd: OwnedFd,
    pub(crate) length_bytes: u64,
    pub(crate) grows: bool,
    direct: bool,
}

/// Why a disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process, or another part of this one, has it open.
    #[error("{0} is in use: another process has it open as a disk")]
    InUse(PathBuf),
    /// A device is as long as it is.
    #[error("{path} has {length_bytes} bytes, {wanted_bytes} are needed")]
    TooShort {
        /// The device.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// What was asked for.
        wanted_bytes: u64,
    },
    /// A directory, a pipe or the like.
    #[error("{0} is neither a file nor a block device")]
    Unsuitable(PathBuf),
}

impl DiskFile {
    /// Opens the disk at `path`; makes the file if it is not there, and
    /// extends it if it is too short. When this returns, the file, its length
    /// and its name are stable.
    ///
    /// A crash in the middle of making leaves a shorter file, which the next
    /// call completes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_or_create(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let failed = |action| {
            move |errno: Errno| OpenError::Io {
                action,
                path: path.to_owned(),
                source: errno.into(),
            }
        };
        let mut file = Self::open_with(path, OFlags::CREATE)?;
        if file.length_bytes < options.length_bytes {
            if !file.grows {
                return Err(OpenError::TooShort {
                    path: path.to_owned(),
                    length_bytes: file.length_bytes,
                    wanted_bytes: options.length_bytes,
                });
            }
            file.extend(options).map_err(failed("extend"))?;
            fsync(&file.fd).map_err(failed("sync"))?;
            sync_directory_of(path).map_err(failed("sync the directory of"))?;
        }
        Ok(file)
    }

    /// Opens the disk at `path` as it is; it must be there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, OFlags::empty())
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<Self, OpenError> {
        let failed = |action| {
            move |errno: Errno| OpenError::Io {
                action,
                path: path.to_owned(),
                source: errno.into(),
            }
        };
        let (fd, direct) = open_direct(path, flags).map_err(failed("open"))?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse(path.to_owned())),
            locked => locked.map_err(failed("lock"))?,
        }
        let stat = fstat(&fd).map_err(failed("examine"))?;
        let grows = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::BlockDevice => false,
            _ => return Err(OpenError::Unsuitable(path.to_owned())),
        };
        let length_bytes = seek(&fd, SeekFrom::End(0)).map_err(failed("measure"))? / BLOCK * BLOCK;
        Ok(Self {
            fd,
            length_bytes,
            grows,
            direct,
        })
    }

    /// Reads before anything serves it, waiting for it: the disk's beginning, say. Ends
    /// early where the disk ends.
    ///
    /// # Errors
    /// The system's.
    pub fn read_before(&self, target: &mut AlignedBuffer, offset_bytes: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < target.len() {
            match pread(
                &self.fd,
                &mut target[filled..],
                offset_bytes + filled as u64,
            )? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    /// Writes zeros before anything serves it, and waits until they are stable: to find out
    /// how fast it is.
    ///
    /// # Errors
    /// The system's.
    pub fn zero_before(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        Ok(self.prewrite(offset_bytes, offset_bytes + length_bytes)?)
    }

    /// The length in bytes, whole blocks.
    #[must_use]
    pub const fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Whether I/O goes past the page cache. Where the file system has no
    /// direct I/O the disk works through the cache, which costs memory and
    /// speed, not safety: worth a warning.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    fn extend(&mut self, options: OpenOptions) -> rustix::io::Result<()> {
        let (from, to) = (self.length_bytes, options.length_bytes);
        if options.prewrite {
            self.prewrite(from, to)?;
        } else {
            allocate(&self.fd, from, to)?;
        }
        self.length_bytes = to;
        Ok(())
    }

    /// Writes zeros from front to back, so that the length tells how far it
    /// came.
    fn prewrite(&self, from: u64, to: u64) -> rustix::io::Result<()> {
        // Only for contiguous space; without it the zeros still make their own.
        let _ = fallocate(&self.fd, FallocateFlags::KEEP_SIZE, from, to - from);
        let zeros = AlignedBuffer::zeroed(PREWRITE_BYTES);
        let mut at = from;
        while at < to {
            let step = usize::try_from(to - at).map_or(zeros.len(), |left| left.min(zeros.len()));
            at += pwrite(&self.fd, &zeros[..step], at)? as u64;
        }
        fdatasync(&self.fd)
    }
}

/// Makes the file `to` bytes long, with space for what lies beyond `from`.
pub(crate) fn allocate(fd: impl AsFd, from: u64, to: u64) -> rustix::io::Result<()> {
    match fallocate(fd.as_fd(), FallocateFlags::empty(), from, to - from) {
        Err(errno) if lacks_fallocate(errno) => ftruncate(fd, to),
        result => result,
    }
}

/// Whether the file system cannot reserve space; a longer file must do.
pub(crate) fn lacks_fallocate(errno: Errno) -> bool {
    errno == Errno::OPNOTSUPP || errno == Errno::NOSYS
}

/// What a failed system call means to the user of a disk.
pub(crate) fn disk_error(operation: &'static str, errno: Errno, offset_bytes: u64) -> DiskError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => DiskError::NoSpace,
        _ => DiskError::Io {
            operation,
            errno: errno.raw_os_error(),
            message: format!("{} (at byte {offset_bytes})", io::Error::from(errno)),
        },
    }
}

fn open_direct(path: &Path, flags: OFlags) -> rustix::io::Result<(OwnedFd, bool)> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, path, flags | OFlags::DIRECT, mode) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((openat(CWD, path, flags, mode)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// Makes the name of a new file stable.
pub(crate) fn sync_directory_of(path: &Path) -> rustix::io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(open(directory, flags, Mode::empty())?)
}
