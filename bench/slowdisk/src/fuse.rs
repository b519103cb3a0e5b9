//! The file system: a directory with one file, whose reads and writes the disk answers.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyWrite, Request, Session, WriteFlags,
};

use crate::disk::{Answer, Disk};

/// Name of the file.
const NAME: &str = "disk";
const DISK: INodeNo = INodeNo(2);
/// Nothing changes by itself.
const VALID: Duration = Duration::from_secs(3600);
/// Requests that the kernel hands over at a time: more than the disk orders.
const BACKGROUND: u16 = 128;
/// The longest request: the kernel's own limit.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The file system.
pub(crate) struct Tree {
    disk: Arc<Disk>,
}

impl Tree {
    pub(crate) fn mount(disk: Arc<Disk>, at: &Path) -> io::Result<Session<Self>> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("crossdock-slowdisk".to_owned()),
            MountOption::NoAtime,
        ];
        Session::new(Self { disk }, at, &config)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            DISK => (FileType::RegularFile, 0o600, self.disk.size_bytes()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Direct I/O of the loop device does not wait for one request before the next.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config
            .add_capabilities(wanted)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))?;
        // The nearest that the kernel grants.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(disk) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&VALID, &disk, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            // One entry fits into any buffer.
            let _ = reply.add(DISK, 1, FileType::RegularFile, NAME);
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.disk.size_bytes().saturating_sub(offset);
        let length = u32::try_from(left).map_or(size, |left| size.min(left));
        self.disk.submit(offset, length, Answer::Read(reply));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The disk has the size that it has.
        let end = offset.checked_add(data.len() as u64);
        let (Some(..), Ok(length)) = (
            end.filter(|&end| end <= self.disk.size_bytes()),
            u32::try_from(data.len()),
        ) else {
            return reply.error(Errno::ENOSPC);
        };
        match self.disk.store(offset, data) {
            Ok(head) => self.disk.submit(offset, length, Answer::Write(reply, head)),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // What was answered is on the platter: this disk has no cache for writes.
        reply.ok();
    }
}
