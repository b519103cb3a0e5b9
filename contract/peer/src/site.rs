//! Gateway to site: operations on names, attributes and small files.

use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, HostId, Incarnation, LayoutClass, Proof, SiteId};
use crossdock_types::{Payload, WallTime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    AttributeChanges, Attributes, BackingExtent, CallId, CensusClass, CensusPage, CensusPlace,
    CreateMode, Device, DirectoryEntry, FileKind, FileLayout, FileLease, LeaseUse, ListedLock,
    LockOperation, LockRefusal, MappedRanges, NamePlace, OpenFor, Quota, QuotaChange, Repair,
    SpaceUsage, Stability, TransactionId, TransactionStep, WeakCache,
};

/// Who asks, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Caller {
    /// The super user.
    #[must_use]
    pub fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Arc::from([]),
        }
    }
}

/// Names a request whose effect must happen once: a 128-bit hash of client
/// address without port, xid, program, version, procedure, credential and
/// arguments (CONSISTENCY 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DuplicateKey(pub [u8; 16]);

/// A request to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRequest {
    /// Who asks.
    pub caller: Caller,
    /// Present for operations that must not happen twice.
    pub duplicate: Option<DuplicateKey>,
    /// What is wanted.
    pub operation: SiteOperation,
}

impl SiteRequest {
    /// One of the ensemble's own: no client asks it, so no permission bounds it, and
    /// it may be done again.
    #[must_use]
    pub fn as_root(operation: SiteOperation) -> Self {
        Self {
            caller: Caller::root(),
            duplicate: None,
            operation,
        }
    }
}

/// What can be asked of a site. Names are any bytes but `/` and NUL, 1 to 255;
/// `.` is a name of LOOKUP only, and `..` is [`Self::LookupParent`]. The site checks POSIX permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteOperation {
    /// Attributes of a file.
    GetAttributes {
        /// The file.
        file: FileRef,
    },
    /// Changes attributes, and truncates.
    SetAttributes {
        /// The file.
        file: FileRef,
        /// What to change.
        changes: AttributeChanges,
        /// Only if the file's ctime is this (RFC 1813 sattrguard3).
        guard: Option<WallTime>,
    },
    /// Finds a name.
    Lookup {
        /// The directory.
        directory: FileRef,
        /// The name; `.` works.
        name: Bytes,
    },
    /// Finds a directory's parent, within a tree: the parent is the tree's root
    /// or lies below it, or it is [`SiteError::AccessDenied`].
    LookupParent {
        /// The directory.
        directory: FileRef,
        /// The tree's root; the volume's root bounds nothing.
        within: FileRef,
    },
    /// Whether a directory is another one, or lies below it, else
    /// [`SiteError::AccessDenied`]: the rest of a [`Self::LookupParent`] whose way
    /// up leads through this site.
    Within {
        /// The directory.
        directory: FileRef,
        /// The tree's root.
        root: FileRef,
    },
    /// Which of the ACCESS3 bits the caller has.
    Access {
        /// The file.
        file: FileRef,
        /// ACCESS3 bits that are asked for.
        wanted: u32,
    },
    /// Text of a symbolic link.
    ReadLink {
        /// The link.
        file: FileRef,
    },
    /// Makes a regular file.
    Create {
        /// The directory.
        directory: FileRef,
        /// The new name.
        name: Bytes,
        /// What if it exists.
        mode: CreateMode,
    },
    /// Makes a directory.
    MakeDirectory {
        /// The parent.
        directory: FileRef,
        /// The new name.
        name: Bytes,
        /// First attributes.
        changes: AttributeChanges,
    },
    /// Makes a symbolic link.
    MakeSymlink {
        /// The directory.
        directory: FileRef,
        /// The new name.
        name: Bytes,
        /// First attributes.
        changes: AttributeChanges,
        /// The link's text, 1 to `limits::PATH_BYTES_MAX` bytes.
        target: Bytes,
    },
    /// Makes a special file.
    MakeNode {
        /// The directory.
        directory: FileRef,
        /// The new name.
        name: Bytes,
        /// Block, character, socket or fifo.
        kind: FileKind,
        /// For block and character files.
        device: Device,
        /// First attributes.
        changes: AttributeChanges,
    },
    /// Removes a name that is not a directory's.
    Remove {
        /// The directory.
        directory: FileRef,
        /// The name.
        name: Bytes,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The parent.
        directory: FileRef,
        /// The name.
        name: Bytes,
    },
    /// Renames, replacing what the new name named, atomically.
    Rename {
        /// Source directory.
        from_directory: FileRef,
        /// Source name.
        from_name: Bytes,
        /// Target directory.
        to_directory: FileRef,
        /// Target name.
        to_name: Bytes,
    },
    /// Makes a further name for a file.
    Link {
        /// The file.
        file: FileRef,
        /// The directory.
        directory: FileRef,
        /// The new name.
        name: Bytes,
    },
    /// Entries of a directory, `.` and `..` first, in cookie order.
    ReadDirectory {
        /// The directory.
        directory: FileRef,
        /// 0 = from the beginning; else entries after this cookie.
        cookie: u64,
        /// How many at most.
        entries_max: usize,
        /// How many bytes of names at most (an entry counts its name and 24 bytes).
        name_bytes_max: usize,
        /// Whether attributes are wanted.
        with_attributes: bool,
    },
    /// Space of the tree with a quota in which a file lies, else of the volume,
    /// as the site knows it.
    Space {
        /// Any file of the volume.
        file: FileRef,
    },
    /// Gives the tree below a directory a quota, or its quota other limits. An
    /// administrator's: no door asks it.
    SetQuota {
        /// The directory.
        directory: FileRef,
        /// What is to be different; of a new quota, from no limits.
        #[serde(with = "crate::quota::in_place")]
        change: QuotaChange,
    },
    /// Takes the quota of a tree away.
    RemoveQuota {
        /// The directory where it begins.
        directory: FileRef,
    },
    /// Reads below the threshold; `offset + length` ≤ threshold.
    Read {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// By when nodes are to have read them, from when it is asked on, in milliseconds
        /// (T_n of TPF section 3.2, for who reads ahead). 0: as soon as may be.
        patience_ms: u32,
    },
    /// The same of a read whose bytes nodes may send themselves: if all of them lie in backing
    /// objects the answer is where ([`SiteAnswer::Located`]), else as to a read.
    Locate {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// As of a read.
        patience_ms: u32,
    },
    /// Writes below the threshold; `offset + length` ≤ threshold.
    Write {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// The bytes.
        #[serde(skip)]
        payload: Payload,
        /// How durable.
        stability: Stability,
    },
    /// Makes bytes zeros, durably, and gives their space back as far as it can be; the
    /// size stays. At a site `offset + length` ≤ threshold, and the space stays.
    Zero {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// How many; of a router up to `limits::MAPPED_BYTES_MAX`.
        length_bytes: u64,
    },
    /// Asks which bytes have space, of up to `limits::MAPPED_BYTES_MAX`. What lies below the
    /// threshold is told to have some. A router's: it asks no site that.
    Mapped {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Makes unstable bytes below the threshold and pushed attributes durable.
    Commit {
        /// The file.
        file: FileRef,
        /// What took the bytes; another one answers [`SiteError::Lost`].
        incarnation: Incarnation,
    },
    /// Asks for the right and the layout to do bulk I/O beyond the threshold.
    Open {
        /// The file.
        file: FileRef,
        /// Reading or writing.
        purpose: OpenFor,
        /// Whose router would like a lease of the file. The receiving host has it from
        /// the link.
        holder: Option<HostId>,
    },
    /// Tells the site what bulk I/O did: before any reply that promises
    /// stability it is pushed stable. The size only grows by it. If the file was
    /// truncated since a write was opened, the answer is [`SiteAnswer::Opened`]
    /// as of now: parts of it may be cut, and it has to be done again.
    PushAttributes {
        /// The file.
        file: FileRef,
        /// The file ends at least here (0 = size unknown or unchanged).
        size_at_least_bytes: u64,
        /// Whether content was written (mtime and ctime become now) …
        wrote: bool,
        /// … or read (atime).
        read: bool,
        /// The truncate generation under which it was done; an older one than
        /// the cell's leaves the size as it is.
        truncate_generation: u64,
        /// Whether the answer waits until it is durable.
        stability: Stability,
        /// When it was written, by the clock of a write lease; the site's, if it was not
        /// done under one.
        written: Option<WallTime>,
        /// The lease under which it was done.
        lease: Option<LeaseUse>,
    },
    /// Locks: answered with [`SiteAnswer::Done`] if it was done.
    Locks {
        /// The file; where it is about clients, the root of the site.
        file: FileRef,
        /// What is wanted.
        operation: LockOperation,
    },
    /// A part in an operation over several sites. A site's: no door asks it.
    Transaction {
        /// The root of the site.
        file: FileRef,
        /// Of which.
        id: TransactionId,
        /// What is to be done.
        step: TransactionStep,
    },
    /// What the site has, for a check of the volume. No door asks it.
    Census {
        /// The root of the site.
        file: FileRef,
        /// Which files.
        class: CensusClass,
        /// Where the piece begins.
        from: CensusPlace,
    },
    /// Names by their cookies, for what a check has found. No door asks it.
    Names {
        /// The root of the site.
        file: FileRef,
        /// Which, all of them of the site.
        places: Vec<NamePlace>,
    },
    /// Mends what a check has found. No door asks it.
    Repair {
        /// The file or directory.
        file: FileRef,
        /// What is to be done to it.
        repair: Repair,
    },
    /// Whether a handle of format 2 is true: a gateway asks that of any it has not seen.
    /// The host of the site answers in its place, it has the key.
    Prove {
        /// What the handle says.
        proof: Proof,
    },
    /// COMPARE AND WRITE (SBC-3 section 5.2): if the bytes are the first half of the payload, the
    /// second half is written in their place, durably, and nothing else changes them between. Of a
    /// router it has to lie in one piece, below the threshold or in a column
    /// ([`SiteError::Invalid`]); at a site `offset + length` ≤ threshold. 1 to
    /// `limits::EXCHANGE_BYTES_MAX` bytes. A site does not do it again for a duplicate.
    Exchange {
        /// The file.
        file: FileRef,
        /// First byte.
        offset_bytes: u64,
        /// What is expected, and as many bytes to be written.
        #[serde(skip)]
        payload: Payload,
    },
    /// Writes bytes that lie in a file, this one or another: nodes give them to each other. Both
    /// ranges lie beyond the threshold, within their files, and do not overlap. 1 to
    /// `limits::COPY_BYTES_MAX` bytes. A router's: it asks no site that.
    Copy {
        /// The file that is written.
        file: FileRef,
        /// First byte of it.
        offset_bytes: u64,
        /// The file that is read. Each block is read sometime before the answer.
        source: FileRef,
        /// First byte of it.
        source_offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// How durable.
        stability: Stability,
        /// Zeros take no space, as far as whole pieces consist of them.
        frees_zeros: bool,
    },
}

impl SiteOperation {
    /// The file or directory whose site receives the operation (for rename the
    /// source directory, for link the new name's directory).
    #[must_use]
    pub const fn subject(&self) -> &FileRef {
        match self {
            Self::GetAttributes { file }
            | Self::SetAttributes { file, .. }
            | Self::Access { file, .. }
            | Self::ReadLink { file }
            | Self::Space { file }
            | Self::Read { file, .. }
            | Self::Locate { file, .. }
            | Self::Write { file, .. }
            | Self::Zero { file, .. }
            | Self::Mapped { file, .. }
            | Self::Commit { file, .. }
            | Self::Open { file, .. }
            | Self::PushAttributes { file, .. }
            | Self::Locks { file, .. }
            | Self::Transaction { file, .. }
            | Self::Census { file, .. }
            | Self::Names { file, .. }
            | Self::Repair { file, .. }
            | Self::Exchange { file, .. }
            | Self::Copy { file, .. } => file,
            Self::Lookup { directory, .. }
            | Self::LookupParent { directory, .. }
            | Self::Within { directory, .. }
            | Self::Create { directory, .. }
            | Self::MakeDirectory { directory, .. }
            | Self::MakeSymlink { directory, .. }
            | Self::MakeNode { directory, .. }
            | Self::Remove { directory, .. }
            | Self::RemoveDirectory { directory, .. }
            | Self::SetQuota { directory, .. }
            | Self::RemoveQuota { directory }
            | Self::Link { directory, .. }
            | Self::ReadDirectory { directory, .. } => directory,
            Self::Rename { from_directory, .. } => from_directory,
            Self::Prove { proof } => &proof.file,
        }
    }

    /// The second file that it is about: a rename's target directory, a link's file, a copy's source.
    #[must_use]
    pub const fn second(&self) -> Option<&FileRef> {
        match self {
            Self::Rename { to_directory, .. } => Some(to_directory),
            Self::Link { file, .. } => Some(file),
            Self::Copy { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The site that receives the operation.
    #[must_use]
    pub const fn site(&self) -> SiteId {
        self.subject().id.site()
    }
}

/// What a site answers when all went well. Attributes of the subjects are in
/// [`SiteReply::subject`] and [`SiteReply::second`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteAnswer {
    /// Nothing but attributes: getattr, setattr, remove, rmdir, rename, link,
    /// push. To exchange: the bytes were as expected.
    Done,
    /// To lookup, create, mkdir, symlink, mknod.
    Found {
        /// The file's attributes (its id and generation are in them).
        attributes: Attributes,
        /// Layout class, a hint for the handle.
        layout: LayoutClass,
        /// For the handle.
        placement: FileId,
    },
    /// To lookup and create: the file that has the name, whose attributes another
    /// site has.
    Elsewhere(FileRef),
    /// To looking up a parent, and to what follows it: whether it lies within the
    /// tree depends on a directory that another site has.
    Above {
        /// The parent that was found; not told by [`SiteOperation::Within`].
        parent: Option<FileRef>,
        /// Ask [`SiteOperation::Within`] of this one.
        directory: FileRef,
    },
    /// To getattr of a directory whose names are hashed: what its part at the site
    /// has, see [`Attributes::of_parts`].
    Part {
        /// Of this part; atime counts at its home only.
        attributes: Attributes,
        /// How often the part's entries have changed.
        changes: u64,
    },
    /// To access.
    Access {
        /// The bits that are granted.
        granted: u32,
    },
    /// To readlink.
    Link {
        /// The text.
        target: Bytes,
    },
    /// To readdir.
    Directory {
        /// Entries in cookie order.
        entries: Vec<DirectoryEntry>,
        /// Whether the directory ends after them.
        end: bool,
        /// Cookie verifier.
        verifier: [u8; 8],
    },
    /// To space.
    Space(SpaceUsage),
    /// To setting and removing a quota: as it is now, or was.
    Quota(Quota),
    /// To read.
    Read {
        /// The bytes, shorter than asked only at the end of the file.
        #[serde(skip)]
        payload: Payload,
        /// Whether the file ends with them.
        end_of_file: bool,
    },
    /// To locating bytes that are to be read.
    Located {
        /// Where they lie, in the order of the file; shorter in all than asked only at the end of
        /// the file.
        extents: Vec<BackingExtent>,
        /// Whether the file ends with them.
        end_of_file: bool,
    },
    /// To write, to zero and to copy.
    Written {
        /// Who loses the bytes, if they were unstable, when it changes.
        incarnation: Incarnation,
    },
    /// To commit.
    Committed,
    /// To open.
    Opened {
        /// How to reach the bytes beyond the threshold.
        layout: FileLayout,
        /// The site's epoch: pushed, unstable attributes are lost when it changes.
        incarnation: Incarnation,
        /// That nothing of this changes for a while, to whom it was asked for.
        lease: Option<FileLease>,
    },
    /// To an operation on locks that was not done, because of other locks.
    NotLocked(LockRefusal),
    /// To a list of locks.
    Locked(Vec<ListedLock>),
    /// To preparing: what there is, part by part, as the manager's directory
    /// encodes it.
    Prepared(Bytes),
    /// To a check of the volume.
    Census(CensusPage),
    /// To asking for names: each in the place of what it was asked by, if it is there.
    Names(Vec<Option<Bytes>>),
    /// To mapped, in bytes of the file.
    Mapped(MappedRanges),
    /// To exchange: nothing was written.
    Differs {
        /// The first byte of what was expected that is another one.
        at_bytes: u64,
    },
    /// To copy: some of the source cannot be read (a medium error); the rest may be written.
    Unreadable,
}

/// Why a site did not do it; nothing was changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteError {
    /// NFS3ERR_PERM.
    #[error("not the owner")]
    NotOwner,
    /// NFS3ERR_NOENT.
    #[error("no such file or directory")]
    NotFound,
    /// NFS3ERR_IO.
    #[error("input/output error")]
    Io,
    /// NFS3ERR_ACCES.
    #[error("permission denied")]
    AccessDenied,
    /// NFS3ERR_EXIST.
    #[error("the name exists")]
    Exists,
    /// NFS3ERR_XDEV.
    #[error("across volumes, exports or quota trees")]
    CrossDevice,
    /// NFS3ERR_NOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// NFS3ERR_ISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// NFS3ERR_INVAL.
    #[error("invalid argument")]
    Invalid,
    /// NFS3ERR_FBIG.
    #[error("file too large")]
    FileTooBig,
    /// NFS3ERR_NOSPC.
    #[error("no space left")]
    NoSpace,
    /// NFS3ERR_DQUOT.
    #[error("quota exceeded")]
    Quota,
    /// NFS3ERR_MLINK.
    #[error("too many links")]
    TooManyLinks,
    /// NFS3ERR_NAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// NFS3ERR_NOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// NFS3ERR_STALE.
    #[error("the file has been removed")]
    Stale,
    /// NFS3ERR_BAD_COOKIE.
    #[error("unknown cookie")]
    BadCookie,
    /// NFS3ERR_NOT_SYNC.
    #[error("guard does not match")]
    NotSync,
    /// NFS3ERR_BADTYPE.
    #[error("type not supported")]
    BadType,
    /// NFS3ERR_JUKEBOX.
    #[error("try again later")]
    Busy,
    /// The unstable bytes were taken by another incarnation.
    #[error("unstable bytes may be lost")]
    Lost {
        /// The incarnation that answers.
        current: Incarnation,
    },
    /// The site is hosted elsewhere, or the layout class has changed. What was
    /// asked may have been done: sent to where the site is now, it gets its answer.
    #[error("moved")]
    Moved,
    /// The connection to the site's host has ended; likewise.
    #[error("not answered")]
    Unanswered,
    /// The gateway that asks may not (any more).
    #[error("the gateway has been revoked, or asks for what gateways may not")]
    Refused,
    /// NFS3ERR_BADHANDLE: the gateway is scoped to exports, and shows no proof, or a wrong
    /// one, that the file was reached from one's root.
    #[error("nothing proves that the file was reached from the root of an export")]
    NotProven,
}

/// A site's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReply {
    /// The call's id.
    pub id: CallId,
    /// What came of it.
    pub outcome: Result<SiteAnswer, SiteError>,
    /// Of the operation's subject (the directory of a name operation, the
    /// source directory of a rename, the file else); also in failures.
    pub subject: WeakCache,
    /// Of the second one: a rename's target directory, a link's file.
    pub second: WeakCache,
}

impl SiteReply {
    /// An error about which no more is told.
    #[must_use]
    pub fn refusal(id: CallId, error: SiteError) -> Self {
        Self {
            id,
            outcome: Err(error),
            subject: WeakCache::default(),
            second: WeakCache::default(),
        }
    }
}
