//! What sites tell of files, and are told of them: types, attributes and what is to be different
//! in these, layouts, entries of directories, space.

use std::ops::Range;

use bytes::Bytes;
use crossdock_names::{
    FileCapability, FileId, FileRef, LayoutClass, MapFragment, ObjectId, Version,
};
use crossdock_types::WallTime;
use serde::{Deserialize, Serialize};

/// Type of a file (RFC 1813 ftype3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Block device.
    Block = 3,
    /// Character device.
    Character = 4,
    /// Symbolic link.
    Symlink = 5,
    /// Socket.
    Socket = 6,
    /// Named pipe.
    Fifo = 7,
}

impl FileKind {
    /// The kind of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return None,
        })
    }
}

/// Device numbers of a block or character special file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Attributes of a file as a client sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The file and its generation.
    pub file: FileRef,
    /// Type.
    pub kind: FileKind,
    /// Permission bits and set-id bits (12 bits).
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes on disk.
    pub used_bytes: u64,
    /// Device numbers, zero for others.
    pub device: Device,
    /// Last read.
    pub accessed: WallTime,
    /// Last change of content.
    pub modified: WallTime,
    /// Last change of attributes.
    pub changed: WallTime,
}

impl Attributes {
    /// What weak cache consistency data says of the time before an operation.
    #[must_use]
    pub const fn before(&self) -> BeforeAttributes {
        BeforeAttributes {
            size_bytes: self.size_bytes,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// A regular file was written up to `end_bytes`: its size only grows, its times are
    /// `wall`, or just after those that it has.
    pub fn write(&mut self, end_bytes: u64, wall: WallTime) {
        self.size_bytes = self.size_bytes.max(end_bytes);
        self.used_bytes = allocated_bytes(self.size_bytes);
        self.changed = wall.max(WallTime(self.changed.0.saturating_add(1)));
        self.modified = self.changed;
    }

    /// Whether a read at `wall` has to be noted ([`is_access_due`]).
    #[must_use]
    pub fn is_access_due(&self, wall: WallTime) -> bool {
        is_access_due(self.accessed, self.modified, wall)
    }
}

/// A time of access that is older than this is moved by a read, in nanoseconds.
const ACCESS_NANOS_MAX: i64 = 24 * 3600 * 1_000_000_000;

/// Whether a read at `wall` moves the time of access: once after each change of content and
/// once a day, as with Linux' "relatime", and not with every read.
#[must_use]
pub fn is_access_due(accessed: WallTime, modified: WallTime, wall: WallTime) -> bool {
    let is_stale = accessed <= modified || wall.0.saturating_sub(accessed.0) > ACCESS_NANOS_MAX;
    is_stale && wall > accessed
}

/// Bytes on disk that a file of `size_bytes` without holes takes.
#[must_use]
pub const fn allocated_bytes(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(4096)
}

/// Attributes before an operation (RFC 1813 wcc_attr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeAttributes {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Last change of content.
    pub modified: WallTime,
    /// Last change of attributes.
    pub changed: WallTime,
}

/// Weak cache consistency data of one file or directory (RFC 1813 wcc_data).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeakCache {
    /// Before the operation; `None` where it changed nothing or is not known.
    pub before: Option<BeforeAttributes>,
    /// After the operation.
    pub after: Option<Attributes>,
}

/// A new value for a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeChange {
    /// As it is.
    #[default]
    Keep,
    /// The site's clock.
    Now,
    /// A given time; only the owner may.
    To(WallTime),
}

/// Which attributes to change (RFC 1813 sattr3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncate or extend.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub accessed: TimeChange,
    /// Last change of content.
    pub modified: TimeChange,
}

/// How a file is created when the name is taken (RFC 1813 createmode3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateMode {
    /// The existing file is taken; the changes are applied (size at least).
    Unchecked(AttributeChanges),
    /// An error.
    Guarded(AttributeChanges),
    /// An error, unless the existing one was made with the same verifier.
    Exclusive([u8; 8]),
}

/// What an open is for; decides which permission is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenFor {
    /// Reading (the owner may, and who may execute).
    Read {
        /// First byte that will be read.
        offset_bytes: u64,
        /// The end of the read.
        end_bytes: u64,
    },
    /// Writing up to `end_bytes`; columns are made as needed before the answer.
    Write {
        /// First byte that will be written.
        offset_bytes: u64,
        /// The end of the write.
        end_bytes: u64,
    },
    /// Giving space back: as writing, but nothing is made or placed for it.
    Free {
        /// First byte that will be zero.
        offset_bytes: u64,
        /// The end of the zeros.
        end_bytes: u64,
    },
}

impl OpenFor {
    /// Whether it is for changing bytes.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Free { .. })
    }

    /// The bytes that it is about.
    #[must_use]
    pub const fn range(self) -> Range<u64> {
        match self {
            Self::Read {
                offset_bytes,
                end_bytes,
            }
            | Self::Write {
                offset_bytes,
                end_bytes,
            }
            | Self::Free {
                offset_bytes,
                end_bytes,
            } => offset_bytes..end_bytes,
        }
    }
}

/// What a router needs to do bulk I/O on a file itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// Layout class, with its epoch.
    pub class: LayoutClass,
    /// Raised when the class changes.
    pub class_epoch: u32,
    /// Under which file id the columns are named.
    pub placement: FileId,
    /// Generation in the columns' names.
    pub generation: u32,
    /// Columns per segment; 0 = nothing beyond the threshold exists.
    pub columns: u16,
    /// Goes into the context of every write, and of what is read by a map.
    pub truncate_generation: u64,
    /// Of a file with a block map, as much of it as the range of the open needs.
    pub map: MapFragment,
    /// What the nodes of other hosts want to see: made when the answer leaves for a
    /// router on another host.
    pub capability: Option<FileCapability>,
}

/// Bytes of a small file, or of a file's head, in a backing object of its site.
///
/// Space there is used again: it is these bytes only as long as nothing in the range is newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingExtent {
    /// The backing object.
    pub object: ObjectId,
    /// First byte.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u32,
    /// The newest version of the file's bytes.
    pub version: Version,
    /// What the nodes of other hosts want to see: made when the answer leaves for a
    /// router on another host.
    pub capability: Option<FileCapability>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// The file.
    pub file: FileId,
    /// Its name.
    pub name: Bytes,
    /// Where to go on after it.
    pub cookie: u64,
    /// For READDIRPLUS, if the cell is at this site.
    pub attributes: Option<Attributes>,
}

/// Space of the volume, or of a tree with a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceUsage {
    /// Capacity in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that there is room for: less than are free where a quota
    /// allows more than the volume has left.
    pub available_bytes: u64,
    /// Possible files.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
    /// Files that there is room for.
    pub available_files: u64,
}
