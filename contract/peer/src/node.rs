//! Gateway, site or node to node: operations on objects (DESIGN "Object operations").

use std::borrow::Cow;

use bytes::Bytes;
use crossdock_names::{Epoch, FileCapability, Incarnation, NodeId, ObjectClass, ObjectId, Version};
use crossdock_types::Payload;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{AccessError, CallId, MappedRanges, Stability, WriteContext};

/// A pin: a leased hold on a version of a range. Numbers are never reused
/// within a boot of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PinId(pub u64);

/// Who gives a change its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The node that gets the request, as primary of the object's set; it
    /// sends the change on to the other members (CONSISTENCY 1).
    Primary,
    /// Given already: by the primary to the other members, or by the site that
    /// owns the object.
    Given(Version),
}

/// Which bytes a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadVersion {
    /// Those that are there now.
    Current,
    /// Current ones, if nothing in the range is newer than this.
    NotAfter(Version),
    /// Those that the pin holds.
    Pinned(PinId),
    /// Current ones, unless the object has been truncated under a later generation: the
    /// map by which it is read may be outdated then.
    MappedUnder(u64),
    /// All of the range with this as the newest version in it: as it is now, or as a pin
    /// still holds it. Whichever member has that has the same bytes, so any may answer.
    Exactly(Version),
    /// All of the range as it was when `as_of` was the newest change of the *object*, as it is now
    /// or as a pin still holds it. Any member may answer that has lost none of its changes by a
    /// restart since then: who asks has to know that. It finds more than
    /// [`ReadVersion::Exactly`], as members put blocks together at different times, and what has
    /// become one shares a version from then on.
    AsOf {
        /// No later change than this one was in the range then: whoever has had it has them all.
        changed: Version,
        /// The newest change of the object then; a later one may be in the range.
        as_of: Version,
    },
}

/// What is said with [`NodeAnswer::Held`], by which other members are asked for the same bytes
/// if whoever holds them dies (docs/decisions/0044).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// They are the bytes [`ReadVersion::AsOf`] this version.
    pub as_of: Version,
    /// The right to these bytes up to that version, at any member and for as long as they may be
    /// held: what the gateway has shown ends sooner. None within a process.
    pub right: Option<FileCapability>,
}

/// What can be asked of a storage node.
///
/// Offsets and lengths are in bytes. A length is 1 to
/// `limits::OBJECT_IO_BYTES_MAX` unless stated otherwise. Everything that
/// changes carries a [`WriteContext`] and an [`Order`], and is durable before
/// it is answered, except an unstable write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest {
    /// Makes an empty object; one that exists already is left as it is
    /// (idempotent). Writes never make objects: a late write cannot bring a
    /// removed one back.
    Create {
        /// The new object.
        object: ObjectId,
        /// Bytes set aside for it.
        reservation_bytes: u64,
        /// Opaque to the node; up to `limits::OBJECT_ATTRIBUTES_BYTES_MAX`.
        attributes: Bytes,
        /// Fences.
        context: WriteContext,
        /// Version of the creation.
        order: Order,
    },
    /// Reads; what lies beyond the end is not returned, holes are zeros.
    Read {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// Which version.
        version: ReadVersion,
        /// By when the bytes are wanted, from when it is asked on, in milliseconds: what is
        /// wanted first goes to the disk first. 0: as soon as may be.
        patience_ms: u32,
    },
    /// Writes, growing the object as needed.
    Write {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// The bytes.
        #[serde(skip)]
        payload: Payload,
        /// How durable before the answer.
        stability: Stability,
        /// Fences; a truncate generation older than the object's is refused.
        context: WriteContext,
        /// Version of the write.
        order: Order,
    },
    /// Makes all unstable writes of the object durable.
    Commit {
        /// The object.
        object: ObjectId,
        /// What took the bytes; another one answers [`NodeError::Lost`].
        incarnation: Incarnation,
    },
    /// Appends to a log object, durable, kept inline in the journal while
    /// small. In order: one whose offset is not the end is refused.
    Append {
        /// The log object; made if it is not there and `offset_bytes` is 0.
        object: ObjectId,
        /// Where the object must end now.
        offset_bytes: u64,
        /// The bytes.
        #[serde(skip)]
        payload: Payload,
        /// Epoch of the site; one lower than any seen on this object is refused.
        fence: Epoch,
    },
    /// Refuses every later append with a lower fence, and tells the end.
    Seal {
        /// The log object; sealing one that is not there makes it.
        object: ObjectId,
        /// The new owner's epoch.
        fence: Epoch,
    },
    /// Cuts or extends the object to `size_bytes` and raises its truncate generation.
    Truncate {
        /// The object.
        object: ObjectId,
        /// The new end.
        size_bytes: u64,
        /// Fences; its truncate generation becomes the object's.
        context: WriteContext,
        /// Version of the truncate.
        order: Order,
    },
    /// Makes a hole: the bytes are zeros, and whole blocks of them take no space any more.
    /// The size stays. Any length.
    Zero {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// Fences.
        context: WriteContext,
        /// Version of the zeros.
        order: Order,
    },
    /// Removes the object; one that is not there is no error (idempotent).
    Remove {
        /// The object.
        object: ObjectId,
        /// Fences.
        context: WriteContext,
        /// Version of the removal.
        order: Order,
    },
    /// Changes what the object is described by, and what is set aside for it.
    SetAttributes {
        /// The object.
        object: ObjectId,
        /// Bytes set aside for it in all.
        reservation_bytes: u64,
        /// Opaque to the node; up to `limits::OBJECT_ATTRIBUTES_BYTES_MAX`.
        attributes: Bytes,
        /// Fences.
        context: WriteContext,
        /// Version of the change.
        order: Order,
    },
    /// Gives the node a block back that it cannot read, as another member of the
    /// set has it. Taken only if it is what must be there: by its checksum, or,
    /// where the journal holds part of it or the checksum is lost too, by its
    /// version; else [`NodeError::VersionGone`]. The block goes to a new place.
    Repair {
        /// The object.
        object: ObjectId,
        /// First byte of the block.
        offset_bytes: u64,
        /// The block's bytes up to the object's end.
        #[serde(skip)]
        payload: Payload,
        /// The newest version in it, where it was read.
        version: Version,
    },
    /// Size, version, attributes.
    Stat {
        /// The object.
        object: ObjectId,
    },
    /// Ids of objects in order.
    List {
        /// Only of this class.
        class: ObjectClass,
        /// Only of this placement, if given.
        placement: Option<u64>,
        /// Only those after this one, if given.
        after: Option<ObjectId>,
        /// How many at most, up to 4096.
        limit: usize,
    },
    /// What was changed by `since` or later, whoever changed it; for those who
    /// make members of a set equal.
    Changes {
        /// The oldest version of interest.
        since: Version,
        /// Only objects after this one.
        after: Option<ObjectId>,
    },
    /// Holds the current bytes of a range until unpinned or the lease ends;
    /// overwrites go elsewhere meanwhile. After a crash there are no pins.
    Pin {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// `None` = current; else only if nothing in the range is newer.
        version: Option<Version>,
        /// How long, in milliseconds, unless renewed by pinning again.
        lease_ms: u32,
    },
    /// Gives a pin back; an unknown one is no error.
    Unpin {
        /// The pin.
        pin: PinId,
    },
    /// Who reads on towards this range will want it: it is fetched into the node's cache,
    /// as far as there is room and it lies within the object. From now on the gateway says
    /// how far is read ahead of that reader, and not the node. Answered before anything
    /// was read; any length.
    Ahead {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many; with 0 nothing is fetched but what is asked for.
        length_bytes: u64,
        /// If not, the reader is gone: what is fetched for it in the range, and not at the
        /// disk yet, is withdrawn, unless somebody else reads there.
        is_wanted: bool,
    },
    /// Which blocks of a range have space; the primary's are told. Up to
    /// `limits::MAPPED_BYTES_MAX`.
    Mapped {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// Of the file's layout by which it is asked: a later truncate than that is told of
        /// as to a write.
        truncate_generation: u64,
    },
    /// The node's depot makes a read capability of these bytes of a column as they are up to
    /// a version, for IBP clients (docs/decisions/0046). It is the depot that answers; any member
    /// has one that has the version.
    Share {
        /// The column.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// How many; any length.
        length_bytes: u64,
        /// Nothing newer is ever given by it.
        version: Version,
        /// For how long from now on.
        seconds: u32,
    },
    /// COMPARE AND WRITE (SBC-3 section 5.2): if the bytes are the first half of the payload, the
    /// second half is written in their place, stable. Of the primary only, which lets no change of
    /// these bytes come between, and sends the other members a write
    /// (docs/decisions/0049). Up to `limits::EXCHANGE_BYTES_MAX`.
    Exchange {
        /// The column.
        object: ObjectId,
        /// First byte.
        offset_bytes: u64,
        /// What is expected, and as many bytes to be written.
        #[serde(skip)]
        payload: Payload,
        /// Fences.
        context: WriteContext,
    },
    /// Writes bytes that lie elsewhere: the primary of the object's set reads them at the source's
    /// and makes a write of them, or a hole (docs/decisions/0051). To be sent again, like a write.
    Copy {
        /// The column that is written.
        object: ObjectId,
        /// First byte of it.
        offset_bytes: u64,
        /// What is read; in a box, as requests of other kinds are shorter.
        source: Box<CopySource>,
        /// How durable before the answer.
        stability: Stability,
        /// Bytes that are all zeros take no space, durably.
        frees_zeros: bool,
        /// Fences, of the write.
        context: WriteContext,
    },
}

/// Bytes that are to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySource {
    /// The column that has them.
    pub object: ObjectId,
    /// First byte.
    pub offset_bytes: u64,
    /// How many; what lies beyond its end is zeros.
    pub length_bytes: u64,
    /// Which version.
    pub version: ReadVersion,
    /// By what right the gateway that asks would read them itself.
    pub capability: Option<FileCapability>,
}

impl CopySource {
    /// What the node that copies asks for.
    #[must_use]
    pub const fn read(&self) -> NodeRequest {
        NodeRequest::Read {
            object: self.object,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            version: self.version,
            patience_ms: 0,
        }
    }
}

impl NodeRequest {
    /// The object it is about; `None` for [`NodeRequest::List`], [`NodeRequest::Changes`]
    /// and [`NodeRequest::Unpin`].
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Create { object, .. }
            | Self::Read { object, .. }
            | Self::Write { object, .. }
            | Self::Commit { object, .. }
            | Self::Append { object, .. }
            | Self::Seal { object, .. }
            | Self::Truncate { object, .. }
            | Self::Zero { object, .. }
            | Self::Remove { object, .. }
            | Self::SetAttributes { object, .. }
            | Self::Repair { object, .. }
            | Self::Stat { object }
            | Self::Pin { object, .. }
            | Self::Mapped { object, .. }
            | Self::Ahead { object, .. }
            | Self::Share { object, .. }
            | Self::Exchange { object, .. }
            | Self::Copy { object, .. } => Some(object),
            Self::List { .. } | Self::Changes { .. } | Self::Unpin { .. } => None,
        }
    }
}

/// What a node knows of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStat {
    /// End of the object, in bytes.
    pub size_bytes: u64,
    /// Bytes that its runs take on the disk.
    pub allocated_bytes: u64,
    /// Version of the newest change.
    pub version: Version,
    /// Highest truncate generation seen.
    pub truncate_generation: u64,
    /// Highest fence seen.
    pub fence: Epoch,
    /// Opaque attributes.
    pub attributes: Bytes,
}

/// A part of the answer to [`NodeRequest::Changes`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesPage {
    /// In the order of the objects.
    pub changes: Vec<ChangedRange>,
    /// Go on after this object, if there is more.
    pub more_after: Option<ObjectId>,
}

/// A range of an object and the version that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedRange {
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u64,
    /// The version.
    pub version: Version,
}

/// What a node answers when all went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAnswer {
    /// To create, truncate, zero, remove and set attributes, and to a copy of zeros that has become a
    /// hole: it is durable on all members.
    /// To repair: on this node.
    Done {
        /// The version it got.
        version: Version,
    },
    /// To read.
    Read {
        /// The bytes; shorter than asked only at the object's end.
        #[serde(skip)]
        payload: Payload,
        /// The newest version in the range.
        version: Version,
    },
    /// To write, to exchange and to copy.
    Written {
        /// The version it got.
        version: Version,
        /// Who loses the bytes, if they were unstable, when it changes.
        incarnation: Incarnation,
    },
    /// To commit: every write of the object so far is durable.
    Committed,
    /// To append and seal.
    End {
        /// Where the log object ends now.
        size_bytes: u64,
    },
    /// To stat.
    Stat(ObjectStat),
    /// To list.
    List {
        /// In order.
        objects: Vec<ObjectId>,
        /// Whether there are more after them.
        more: bool,
    },
    /// To changes.
    Changes(ChangesPage),
    /// To pin.
    Pinned {
        /// The pin.
        pin: PinId,
        /// The node's boot: the pin is unknown in any other.
        boot: Incarnation,
        /// The newest version in the range.
        version: Version,
    },
    /// To unpin.
    Unpinned,
    /// To ahead: it is known.
    Ahead,
    /// To mapped, in bytes of the object.
    Mapped(MappedRanges),
    /// To a read whose caller wants the bytes to stay where they are: the node's host has
    /// them in memory, and sends them when it is told to. To a gateway's pin: they stay as they
    /// are on the node's disk, from where they can be read in that version.
    Held {
        /// Under which it has them, until it is given back or the gateway is gone.
        pin: u64,
        /// How many; fewer than asked only at the object's end.
        length_bytes: u64,
        /// The newest version in the range.
        version: Version,
        /// How they are got elsewhere; in a box, as other answers are shorter.
        promise: Box<Promise>,
    },
    /// To share: the capability, but for its host, which the node does not know.
    Shared {
        /// Its key.
        key: String,
        /// Its attribute key.
        attribute_key: String,
    },
    /// To exchange: nothing was written.
    Differs {
        /// The first byte of what was expected that is another one.
        at_bytes: u64,
    },
}

/// Why a node did not do it. Nothing was changed, unless stated otherwise.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeError {
    /// No such object.
    #[error("the object does not exist")]
    NoObject,
    /// No room, counting what is reserved.
    #[error("the node has no space left")]
    NoSpace,
    /// A queue is full or the deadline has passed: try again.
    #[error("the node is busy, try again in {retry_after_ms} ms")]
    Busy {
        /// When.
        retry_after_ms: u32,
    },
    /// The node is stopped or cannot be reached: another replica or later.
    #[error("node {node} is not available")]
    Unavailable {
        /// Which.
        node: NodeId,
    },
    /// The disk failed, or the bytes do not match their checksum: try a replica.
    #[error("media error on node {node}: {what}")]
    Media {
        /// Which node.
        node: NodeId,
        /// Object, offset and what the disk said.
        what: String,
    },
    /// The sender has been replaced.
    #[error("fenced: epoch {seen} has been seen")]
    Fenced {
        /// The higher epoch.
        seen: Epoch,
    },
    /// The sender's routing table is old, or this node is not the primary.
    #[error("routed by an old table, epoch {current} is current")]
    StaleTable {
        /// The epoch to fetch.
        current: Epoch,
    },
    /// The file has been truncated since.
    #[error("truncated since: generation {current} is current")]
    StaleGeneration {
        /// The object's generation.
        current: u64,
    },
    /// Appended elsewhere than at the end.
    #[error("the log object ends at {size_bytes}")]
    WrongEnd {
        /// Where it ends.
        size_bytes: u64,
    },
    /// Something in the range is newer than what was asked for.
    #[error("that version is gone")]
    VersionGone,
    /// The pin is not known (any more).
    #[error("unknown pin")]
    UnknownPin,
    /// Unstable bytes were taken by another incarnation and may be lost.
    #[error("unstable bytes may be lost, incarnation {current} is current")]
    Lost {
        /// The incarnation that answers.
        current: Incarnation,
    },
    /// The request makes no sense (a length of zero, beyond a limit).
    #[error("invalid request: {0}")]
    Invalid(Cow<'static, str>),
    /// The sender may not ask for that.
    #[error("refused: {0}")]
    Refused(AccessError),
    /// A change that was sent before may have been carried out, or not; it will not be any more.
    #[error("whether an earlier sending was carried out is not known")]
    Unclear,
    /// What was to be copied cannot be read.
    #[error("the source of a copy: {0}")]
    Source(SourceError),
}

/// Why bytes that were to be copied cannot be read, where another sending would find the same.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceError {
    /// No such object.
    #[error("the object does not exist")]
    NoObject,
    /// Its file has been truncated since: the map by which it was asked may be outdated.
    #[error("truncated since: generation {current} is current")]
    StaleGeneration {
        /// The object's generation.
        current: u64,
    },
    /// No member could read it.
    #[error("media error on node {node}: {what}")]
    Media {
        /// Which node.
        node: NodeId,
        /// Object, offset and what the disk said.
        what: String,
    },
    /// Another reason.
    #[error("{0}")]
    Other(String),
}

/// A node's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReply {
    /// The call's id.
    pub id: CallId,
    /// What came of it.
    pub outcome: Result<NodeAnswer, NodeError>,
}
