//! A file behind [`BlockingDisk`], through the page cache: the index and the
//! offline tools read small pieces again and again.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use crate::file::{disk_error, lacks_fallocate, sync_directory_of};
use crate::{BlockingDisk, DiskError, OpenError};

/// What it holds is nobody else's to read: keys are among it.
const OWNER_ONLY: u32 = 0o600;

/// A buffered file. Locked like [`crate::DiskFile`].
#[derive(Debug)]
pub struct FileBlockingDisk {
    file: File,
}

impl FileBlockingDisk {
    /// Opens the file at `path`, or makes it, empty; its name is stable when
    /// this returns.
    ///
    /// # Errors
    /// [`OpenError::Io`] and [`OpenError::InUse`].
    pub fn open_or_create(path: &Path) -> Result<Self, OpenError> {
        let failed = |action| {
            move |source| OpenError::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(OWNER_ONLY)
            .open(path)
            .map_err(failed("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse(path.to_owned())),
            locked => locked.map_err(|errno| failed("lock")(errno.into()))?,
        }
        sync_directory_of(path).map_err(|errno| failed("sync the directory of")(errno.into()))?;
        Ok(Self { file })
    }

    fn check_range(&self, offset_bytes: u64, length: usize) -> Result<(), DiskError> {
        let end_bytes = offset_bytes.saturating_add(length as u64);
        let length_bytes = self.length_bytes()?;
        if end_bytes > length_bytes {
            return Err(DiskError::OutOfRange {
                end_bytes,
                length_bytes,
            });
        }
        Ok(())
    }
}

impl BlockingDisk for FileBlockingDisk {
    fn length_bytes(&self) -> Result<u64, DiskError> {
        let metadata = self.file.metadata().map_err(failed("measure", 0))?;
        Ok(metadata.len())
    }

    fn read_at(&self, target: &mut [u8], offset_bytes: u64) -> Result<(), DiskError> {
        self.check_range(offset_bytes, target.len())?;
        self.file
            .read_exact_at(target, offset_bytes)
            .map_err(failed("read", offset_bytes))
    }

    fn write_at(&self, source: &[u8], offset_bytes: u64) -> Result<(), DiskError> {
        self.check_range(offset_bytes, source.len())?;
        self.file
            .write_all_at(source, offset_bytes)
            .map_err(failed("write", offset_bytes))
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(failed("flush", 0))
    }

    fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
        self.file
            .set_len(length_bytes)
            .map_err(failed("set the length", length_bytes))
    }

    fn reserve(&self, length_bytes: u64) -> Result<(), DiskError> {
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, length_bytes) {
            Err(errno) if !lacks_fallocate(errno) => Err(disk_error("reserve", errno, 0)),
            _ => Ok(()),
        }
    }
}

fn failed(operation: &'static str, offset_bytes: u64) -> impl Fn(std::io::Error) -> DiskError {
    move |error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        disk_error(operation, errno, offset_bytes)
    }
}
